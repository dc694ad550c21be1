"""How large the HTML report is, and how soon a browser shows it.

    python benchmarks/page.py [--slices 100000 1000000] [--keep FOLDER]

Decode steps of 400 launches, each with its own times and some jitter: five levels of host spans and one kernel. Columns: CPU seconds to write the page; its size, also in bytes per slice;
milliseconds from navigation to the first screen, and to the timeline; the median and the longest frame over 64
windows of all widths; console errors. Needs Playwright and a Chromium; the page is opened three times, medians.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from stallscope.analyzers import analyze
from stallscope.exporters import html
from stallscope.profiler.builder import TimelineBuilder
from stallscope.profiler.kinds import Kind
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import Track

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
from support.browser import chromium

HOST_LEVELS = (("model.py(12): forward", Kind.PYTHON), ("layer.py(80): forward", Kind.PYTHON),
               ("aten::linear", Kind.OPERATOR), ("aten::addmm", Kind.OPERATOR), ("cudaLaunchKernel", Kind.RUNTIME))  # fmt: skip
STEP = 400
JITTER_NS = 512
VARIANTS = 40
"""Names per level, so that the name column is no constant."""

FRAMES = """() => {
  const t = stallscope.timeline, [a, b] = t.full, took = [];
  for (const width of [1, .3, .1, .03, .01, .003, .001, 1e-4]) for (let k = 0; k < 8; k++) {
    const mid = a + (b - a) * (.05 + .9 * k / 8), w = (b - a) * width;
    t.t0 = Math.max(a, mid - w / 2); t.t1 = t.t0 + w;
    const begin = performance.now(); t.paint(); took.push(performance.now() - begin);
  }
  took.sort((x, y) => x - y);
  return [took[32], took[63]];
}"""


def session_of(slices: int, seed: int = 7) -> Session:
    """About `slices` spans: HOST_LEVELS nested spans and a kernel for each launch."""
    random = np.random.default_rng(seed)
    n = slices // (len(HOST_LEVELS) + 1)
    builder = TimelineBuilder()
    host = builder.add_track(Track("thread 1", "host", process=1, process_name="python", thread=1))
    stream = builder.add_track(Track("stream 7", "device", process=0, device=0, stream=7))
    # a step is STEP launches, each with its own usual times; jitter takes a byte or so, as in real traces
    at = np.arange(n) % STEP
    usual = random.integers(8_000, 30_000, STEP)
    length = usual[at] + random.integers(0, JITTER_NS, n)
    pause = random.integers(100, 4_000, STEP)[at] + random.integers(0, JITTER_NS, n)
    start = np.cumsum(length + pause) - length
    begin, end = start.copy(), start + length
    variant = random.integers(0, VARIANTS, STEP)[at]
    for name, kind in HOST_LEVELS:
        codes = builder.strings.codes([f"{name} {i}" for i in range(VARIANTS)])
        more: dict[str, Any] = {"correlation": np.arange(1, n + 1)} if kind == Kind.RUNTIME else {}
        builder.add(track=host, start_ns=begin, dur_ns=end - begin, kind=int(kind),
                    name=codes[variant], **more)  # fmt: skip
        before, after = random.integers(100, 900, (2, STEP))
        begin = begin + before[at] + random.integers(0, 64, n)
        end = end - after[at] - random.integers(0, 64, n)
    kernels = builder.strings.codes(
        [f"void at::native::kernel_{i}<float, {i}>(float*, int)" for i in range(VARIANTS)]
    )
    builder.add(track=stream, start_ns=start + length, dur_ns=usual[at] // 4 + random.integers(0, 256, n), kind=int(Kind.KERNEL),
                name=kernels[variant], correlation=np.arange(1, n + 1))  # fmt: skip
    return Session(builder.finish(), {"source": f"{slices} spans", "devices": {"0": {"name": "synthetic"}}})


def measure(browser: Any, path: Path) -> dict[str, float]:
    """One opening of the page, milliseconds."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    errors: list[str] = []
    page.on("console", lambda m: errors.append(m.text))
    page.on("pageerror", lambda e: errors.append(str(e)))
    page.goto(f"file://{path}")
    page.evaluate("stallscope.ready")
    first = page.evaluate(
        "performance.getEntriesByName('first-contentful-paint').map(e => e.startTime)[0] ?? -1"
    )
    shown = page.evaluate("stallscope.timeline.timings.sinceNavigation")
    page.evaluate("stallscope.chartsReady")
    median, longest = page.evaluate(FRAMES)
    page.close()
    return {"first": first, "timeline": shown, "frame": median, "longest": longest, "errors": len(errors)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--slices", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--keep", type=Path, help="write the pages here and keep them")
    options = parser.parse_args()
    print("  slices  write CPU s     MB  B/slice  first ms  timeline ms  frame ms  longest ms  errors")
    with tempfile.TemporaryDirectory() as scratch, chromium() as browser:
        folder = options.keep or Path(scratch)
        for slices in options.slices:
            session = session_of(slices)
            report = analyze(session, {})
            path = folder.resolve() / f"page-{slices}.html"
            begin = time.process_time()
            html.export(session, report, path)
            cpu, size = time.process_time() - begin, path.stat().st_size
            runs = [measure(browser, path) for _ in range(3)]
            mid = {key: statistics.median(r[key] for r in runs) for key in runs[0]}
            print(
                f"{len(session.timeline):8d} {cpu:12.2f} {size / 1e6:6.2f} {size / len(session.timeline):8.2f} "
                f"{mid['first']:9.0f} {mid['timeline']:12.0f} {mid['frame']:9.1f} {mid['longest']:11.0f} {mid['errors']:7.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
