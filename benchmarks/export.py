"""CPU and throughput of the Chrome export, beside `json.dumps` of dictionaries in the same run.

    python benchmarks/export.py                  # a made-up timeline of 300,000 spans
    python benchmarks/export.py --spans 1000000
    python benchmarks/export.py TRACE            # any trace that `stallscope analyze` reads

CPU seconds of this process, the best of `--runs`; the machine need not be quiet, but both writers run in turn.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from stallscope.analyzers import analyze
from stallscope.analyzers.finding import Report
from stallscope.exporters import chrome_trace
from stallscope.profiler.builder import TimelineBuilder
from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import load
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import ARG_INT, ARG_JSON, Track


def made_up(spans: int) -> Session:
    """One host thread of operators with a launch each, and one stream of kernels; four arguments a span."""
    n = max(spans // 3, 1)
    builder = TimelineBuilder()
    strings = builder.strings
    host = builder.add_track(Track("thread 1", "host", process=4711, process_name="python", thread=4711))
    stream = builder.add_track(Track("stream 7", "device", process=0, device=0, stream=7))
    start = 1_700_000_000_000_000_000 + np.arange(n, dtype=np.int64) * 12_345
    number = np.arange(n, dtype=np.int64)
    random = np.random.default_rng(0)
    operators = np.array([strings.code(f"aten::operator_{i}") for i in range(200)])
    kernels = np.array([strings.code(f"void kernel_{i}<float, {'int, ' * 12}4>(float*)") for i in range(300)])
    shapes = np.array([strings.code(f"[[{i}, 4096], [4096, 4096]]") for i in range(50)])
    launch = strings.code("cudaLaunchKernel")
    layers = [
        (host, start, 9_000, operators[random.integers(0, 200, n)], Kind.OPERATOR, "cpu_op", 0),
        (host, start + 2_000, 5_123, launch, Kind.RUNTIME, "cuda_runtime", 1),
        (stream, start + 8_000, 11_111, kernels[random.integers(0, 300, n)], Kind.KERNEL, "kernel", 1),
    ]
    for track, begin, length, name, kind, category, linked in layers:
        events = builder.add(
            track=track,
            start_ns=begin,
            dur_ns=length + random.integers(0, 900, n),
            name=name,
            kind=int(kind),
            category=strings.code(category),
            correlation=number + 1 if linked else np.zeros(n, np.int64),
        )
        sources = builder.sources(events)
        for key in ("External id", "Ev Idx", "correlation" if linked else "Sequence number"):
            builder.add_args(sources, key, ARG_INT, number + 1)
        builder.add_args(sources, "Input Dims", ARG_JSON, shapes[random.integers(0, 50, n)])
    return Session(builder.finish())


def as_dictionaries(session: Session, args: list[dict[str, object]]) -> bytes:
    """The usual way: a dictionary for each event, `json.dumps` of the list. The arguments are decoded already."""
    line = session.timeline
    columns = (line.spans.start_ns, line.spans.dur_ns, line.spans.name, line.spans.category, line.spans.track)
    rows = zip(*(column.tolist() for column in columns), args, strict=True)
    events = [
        {"ph": "X", "ts": ts / 1000, "dur": dur / 1000, "name": line.strings[name],
         "cat": line.strings[category] if category >= 0 else "", "pid": 1, "tid": track, "args": values}
        for ts, dur, name, category, track, values in rows
    ]  # fmt: skip
    return json.dumps(events).encode()


def best(runs: int, work: Callable[[], int]) -> tuple[float, int]:
    """The least CPU seconds of several runs, and the bytes they made."""
    seconds, size = [], 0
    for _ in range(runs):
        begin = time.process_time()
        size = work()
        seconds.append(time.process_time() - begin)
    return min(seconds), size


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trace", nargs="?")
    parser.add_argument("--spans", type=int, default=300_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    session = load(options.trace) if options.trace else made_up(options.spans)
    report: Report = analyze(session)
    spans = len(session.timeline)
    print(f"{spans:,} spans, {len(session.timeline.args):,} arguments")
    with TemporaryDirectory() as folder:
        packed = Path(folder) / "out.trace.json.gz"

        def export_packed() -> int:
            chrome_trace.export(session, report, packed)
            return packed.stat().st_size

        args = [session.timeline.arguments(row) for row in range(spans)]
        records = sum(chunk.count(b'"ph":') for chunk in chrome_trace.chunks(session, report))
        print(
            f"the export has {records:,} records: spans, ends of arrows, findings, idle gaps and their causes"
        )
        writers: dict[str, Callable[[], int]] = {
            "chrome export": lambda: sum(len(chunk) for chunk in chrome_trace.chunks(session, report)),
            "chrome export, .json.gz": export_packed,
            "json.dumps of dictionaries": lambda: len(as_dictionaries(session, args)),
        }
        for name, work in writers.items():
            seconds, size = best(options.runs, work)
            written = spans if name.startswith("json") else records
            print(
                f"{name:28} {seconds:7.2f} s CPU  {1e6 * seconds / written:6.2f} us/record  "
                f"{size / 1e6:8.1f} MB  {size / 1e6 / seconds:6.0f} MB/s"
            )


if __name__ == "__main__":
    main()
