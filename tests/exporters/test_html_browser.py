"""The page in a real browser, opened from file://: no request, no error, and everything answers."""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stallscope.analyzers import analyze
from stallscope.analyzers.finding import Evidence, Finding, Report, Where
from stallscope.exporters import html
from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import load
from stallscope.profiler.session import Session
from support.browser import chromium
from support.lanes import timeline

pytestmark = pytest.mark.browser

EVENTS = 60_000
LAUNCHES = EVENTS // 4


def gpu_trace(path: Path) -> Path:
    """A Kineto trace of 60,000 events: decode steps of operators, launches and kernels; a 3 ms hole in step 7."""
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 100, "tid": 0, "args": {"name": "python"}},
    ]
    t, device = 0.0, 5.0
    per_step = 150
    for i in range(LAUNCHES):
        if i % per_step == 0:
            name = f"decode[step={i // per_step}]"
            events.append(_span("user_annotation", name, 100, 100, t, per_step * 10.0))
        if i == 7 * per_step + 75:
            events.append(_span("python_function", "sampler.py(12): sample", 100, 100, t, 3000.0))
            t += 3000.0
        host = {"External id": i + 1, "Input Dims": [[i % 7, 64], [64, 64]]}
        events.append(_span("cpu_op", "aten::linear", 100, 100, t, 9.0, host))
        events.append(_span("cpu_op", "aten::mm", 100, 100, t + 1, 7.0, host))
        launch = {"correlation": i + 1, "External id": i + 1}
        events.append(_span("cuda_runtime", "cudaLaunchKernel", 100, 100, t + 2, 3.0, launch))
        device = max(device, t + 6)
        kernel = launch | {"device": 0, "stream": 7, "grid": [i % 5 + 1, 1, 1], "block": [128, 1, 1]}
        events.append(_span("kernel", f"gemm_{i % 11}", 0, 7, device, 6.0, kernel))
        device += 6.5
        t += 10.0
    header = {"deviceProperties": [{"id": 0, "name": "Synthetic GPU", "totalGlobalMem": 1 << 36}]}
    path.write_text(json.dumps(header | {"traceEvents": events}), encoding="utf-8")
    return path


def _span(
    category: str, name: str, pid: int, tid: int, ts: float, dur: float, args: dict[str, Any] | None = None
) -> dict[str, Any]:
    out = {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": round(ts, 3), "dur": dur}
    return out | ({"args": args} if args else {})


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def gpu_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    session = load(gpu_trace(folder / "trace.json"))
    assert len(session.timeline) >= EVENTS
    report = analyze(session)
    # what the rules say of it is tested elsewhere; the page needs one finding with two places
    [sample] = [
        r for r in session.timeline.rows(Kind.PYTHON) if session.timeline.name(int(r)).startswith("sampler")
    ]
    start = int(session.timeline.spans.start_ns[sample])
    track = int(session.timeline.spans.track[sample])
    finding = Finding(
        "HB101", "host-bound-gaps", "The device waits while sampler.py runs", 3_000_000, 2_900_000, "high", "high",
        "decode", Where("sampler.py(12): sample", "aten::linear", "gemm_0"), "One hole.", "Move it to the device.",
        (Evidence(track, start, start + 3_000_000, "the hole"), Evidence(track, 1000, 2000, "a short one")),
    )  # fmt: skip
    report.findings = [finding, *report.findings]
    out = folder / "report.html"
    html.export(session, report, out)
    return out


Open = Callable[..., Any]


class Watch:
    """Pages of one browser and all they asked for or complained about, which must be nothing."""

    def __init__(self, browser: Any) -> None:
        self.browser = browser
        self.contexts: list[Any] = []
        self.seen: list[str] = []

    def open(self, path: Path, **options: Any) -> Any:
        context = self.browser.new_context(**{"viewport": {"width": 1440, "height": 900}, **options})
        self.contexts.append(context)
        page = context.new_page()
        page.on("console", lambda m: self.seen.append(f"{m.type}: {m.text}"))
        page.on("pageerror", lambda e: self.seen.append(f"error: {e}"))
        page.on("request", lambda r: self._note(r.url, path))
        page.goto(f"file://{path}")
        page.evaluate("stallscope.ready")
        return page

    def _note(self, url: str, path: Path) -> None:
        if url not in (f"file://{path}", "data:,"):
            self.seen.append(url)

    def close(self) -> None:
        for context in self.contexts:
            context.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """Opens a page of its own for a test."""
    watch = Watch(browser)
    yield watch.open
    watch.close()
    assert watch.seen == []


@pytest.fixture(scope="module")
def watched(browser: Any, gpu_page: Path) -> Iterator[tuple[Watch, Any]]:
    watch = Watch(browser)
    page = watch.open(gpu_page)
    assert page.evaluate("stallscope.chartsReady") == 4
    yield watch, page
    watch.close()


@pytest.fixture
def page(watched: tuple[Watch, Any]) -> Iterator[Any]:
    """The page of the 60,000 events, shared and put back to its beginning before each test."""
    watch, shared_page = watched
    shared_page.evaluate("""() => {
      const t = stallscope.timeline;
      t.onClear(); t.select(-1); t.show(...t.full);
      scrollTo({ top: 0, behavior: 'instant' }); t.scroll.scrollTop = 0;
    }""")
    settled(shared_page)
    yield shared_page
    assert watch.seen == []


def write(folder: Path, session: Session, report: Report | None = None) -> Path:
    out = folder / "page.html"
    html.export(session, report or analyze(session), out)
    return out


def window(page: Any) -> tuple[float, float]:
    t0, t1 = page.evaluate("[stallscope.timeline.t0, stallscope.timeline.t1]")
    return t0, t1


def until(page: Any, expression: str, seconds: float = 10) -> None:
    """Wait for an expression. Playwright's own waiting evaluates text in the page, which its policy forbids."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"still not: {expression}"
        time.sleep(0.02)


def settled(page: Any) -> tuple[float, float]:
    """The window once it no longer moves."""
    until(page, "!stallscope.timeline.moving && !stallscope.timeline.dirty")
    return window(page)


COLOURS = """() => {
  const c = document.getElementById('tl-canvas'), d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
  const seen = new Set();
  for (let i = 0; i < d.length; i += 4) seen.add(d[i] << 16 | d[i + 1] << 8 | d[i + 2]);
  return seen.size;
}"""


def test_a_large_trace_opens_with_timeline_and_charts(page: Any) -> None:

    assert page.evaluate(COLOURS) > 20
    assert page.evaluate("stallscope.timeline.code.length") >= EVENTS
    assert page.evaluate("stallscope.chartsReady") == 4
    for chart in ("breakdown", "idle", "kernels", "steps"):
        assert page.locator(f"#chart-{chart} svg.main-svg").count() >= 1, chart
    assert page.locator("#chart-kernels .bars path").count() == 11
    assert page.locator(".wait").count() == 0
    assert page.locator("#tl-details").inner_text().startswith("Click a slice")


def test_a_finding_zooms_to_its_place_and_steps_to_the_next(page: Any) -> None:
    before = window(page)

    page.locator(".finding-head").first.click()
    first = settled(page)

    start, end = page.evaluate("stallscope.timeline.evidence()[stallscope.timeline.place].slice(1, 3)")
    assert end - start == 3_000_000
    assert first != before
    assert first[0] < start < end < first[1]
    assert first[1] - first[0] < 3 * (end - start)
    assert "2 of 2 · 3.00 ms · the hole" in page.locator("#finding-0 .place").inner_text()

    page.locator("#finding-0 [data-step='1']").click()
    assert settled(page) != first
    assert "1 of 2 · 1.00 us · a short one" in page.locator("#finding-0 .place").inner_text()


def test_top_finding_on_the_first_screen_leads_to_the_timeline(page: Any) -> None:

    page.locator(".top-findings a").first.click()
    settled(page)

    assert page.locator("#finding-0").get_attribute("class") == "finding active"
    assert page.evaluate("stallscope.timeline.finding") == 0


def test_wheel_drag_and_keys_move_the_window(page: Any) -> None:
    page.locator("#tl-canvas").scroll_into_view_if_needed()
    page.wait_for_timeout(400)
    box = page.locator("#tl-canvas").bounding_box()
    x, y = box["x"] + box["width"] * 0.6, box["y"] + 120
    whole = window(page)
    page.mouse.move(x, y)

    page.mouse.wheel(0, -400)
    until(page, f"stallscope.timeline.t1 - stallscope.timeline.t0 < {whole[1] - whole[0]}")
    zoomed = settled(page)

    page.mouse.down()
    page.mouse.move(x - 150, y)
    page.mouse.up()
    dragged = settled(page)
    assert dragged[0] > zoomed[0]
    assert dragged[1] - dragged[0] == pytest.approx(zoomed[1] - zoomed[0])

    page.locator("#tl-canvas").focus()
    page.keyboard.press("w")
    assert (after := settled(page))[1] - after[0] < dragged[1] - dragged[0]
    page.keyboard.press("0")
    assert settled(page) == whole


def test_a_kernel_tells_its_launch_and_its_arguments(page: Any) -> None:

    page.evaluate("""async () => {
      const t = stallscope.timeline, stream = t.tracks.find(k => k.kind === 'stream');
      await t.select(stream.lines[0].first + 1000, true);
    }""")

    text = page.locator("#tl-details").inner_text()
    assert "gemm_" in text
    assert "6,000 ns" in text
    assert "[128, 1, 1]" in text
    assert page.evaluate("stallscope.timeline.arrows.length") == 1

    page.locator("#tl-details button").first.click()
    until(page, "document.getElementById('tl-details').innerText.includes('cudaLaunchKernel')")
    text = page.locator("#tl-details").inner_text()
    assert "runtime call" in text
    assert "aten::mm" in text  # what it is inside of
    assert "launched" in text


def test_self_time_is_the_exact_one(tmp_path: Path, opened: Open) -> None:
    session = timeline("host  op:outer@0..100 op:inner@10..30 op:deep@12..20 op:late@40..55")
    page = opened(write(tmp_path, session))

    page.evaluate("""async () => {
      const t = stallscope.timeline;
      await t.select(t.names.indexOf('outer') < 0 ? -1 : [...t.code].findIndex(c => t.names[c] === 'outer'));
    }""")

    assert "65,000 ns" in page.locator("#tl-details").inner_text()


def test_search_counts_dims_and_walks(page: Any) -> None:

    page.keyboard.press("/")
    page.keyboard.type("sampler.py(12)")
    assert page.locator("#tl-found").inner_text() == "1 slice of 1 name"
    page.keyboard.press("Enter")
    until(page, "document.getElementById('tl-details').innerText.includes('3,000,000 ns')")
    t0, t1 = settled(page)
    start, end = page.evaluate("(t => [t.start[t.selected], t.end[t.selected]])(stallscope.timeline)")
    assert t0 <= start < end <= t1
    page.keyboard.press("Escape")
    assert page.locator("#tl-found").inner_text() == ""


def test_tables_sort_and_filter(page: Any) -> None:
    page.locator("#box-kernels > summary").click()
    cells = "[...document.querySelectorAll('#table-kernels tbody tr:not([hidden]) td:first-child')].map(c => c.textContent)"
    totals = "[...document.querySelectorAll('#table-kernels tbody tr td:nth-child(4)')].map(c => Number(c.dataset.v))"

    page.locator("#table-kernels thead button").nth(3).click()
    down = page.evaluate(totals)
    page.locator("#table-kernels thead button").nth(3).click()

    assert down == sorted(down, reverse=True)
    assert page.evaluate(totals) == sorted(down)
    assert page.locator("#table-kernels th").nth(3).get_attribute("aria-sort") == "ascending"
    page.locator("[data-filter='table-kernels']").fill("gemm_10")
    assert page.evaluate(cells) == ["gemm_10"]


def test_theme_follows_the_system_and_the_button(gpu_page: Path, opened: Open) -> None:
    page = opened(gpu_page, color_scheme="dark")
    theme = "document.documentElement.dataset.theme"
    background = "getComputedStyle(document.body).backgroundColor"

    assert page.evaluate(theme) == "dark"
    dark = page.evaluate(background)
    page.locator("#theme").click()
    assert page.evaluate(theme) == "light"
    until(page, f"{background} !== '{dark}'")


def test_a_narrow_screen_does_not_scroll_sideways(gpu_page: Path, opened: Open) -> None:
    page = opened(gpu_page, viewport={"width": 390, "height": 844}, has_touch=True)
    page.evaluate("stallscope.chartsReady")

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.evaluate(COLOURS) > 10


def test_a_deep_stack_is_folded_and_unfolds(tmp_path: Path, opened: Open) -> None:
    levels = " ".join(f"python:f{i}@{i * 0.01:.2f}..{100 - i * 0.01:.2f}" for i in range(600))
    page = opened(write(tmp_path, timeline(f"host {levels}")))
    rows = "stallscope.timeline.lines.filter(l => l.type === 'row').length"

    assert page.evaluate(rows) == 64
    page.evaluate("""() => {
      const t = stallscope.timeline, more = t.lines.find(l => l.type === 'more');
      t.click(20, more.y + 30 - t.scroll.scrollTop);
    }""")
    assert page.evaluate(rows) == 128
    page.evaluate("stallscope.timeline.select(550, true)")
    until(page, "document.getElementById('tl-details').innerText.includes('f550')")
    assert page.evaluate("!!stallscope.timeline.lineOf(550)")


def test_hostile_names_stay_text(tmp_path: Path, opened: Open) -> None:
    names = [
        "</script><img src=x onerror=alert(1)>",
        "</code><b>x",
        "\ud800",
        "\u2028",
        "a\"'>",
        "<a href='x'>y</a>",
    ]
    session = timeline(
        "host  mark:decode@0..5 rt:launch@0..1#1 mark:decode@6..9\nstream7 kernel:k@2..4#1 kernel:j@9..12"
    )
    codes = [session.timeline.strings.code(n) for n in names]
    session.timeline.spans.name[:] = [codes[i % len(codes)] for i in range(len(session.timeline))]
    session.facts["source"] = names[0]
    report = analyze(session)
    text = "".join(names)
    report.verdict = dataclasses.replace(report.verdict, text=text)
    report.findings = [Finding(text, text, text, 9, 3, evidence=(Evidence(0, 0, 900, text),))]
    page = opened(write(tmp_path, session, report))

    page.evaluate("stallscope.chartsReady")
    page.locator(".finding-head").first.click()
    page.evaluate("stallscope.timeline.select(stallscope.timeline.code.length - 1, true)")

    assert page.locator("img").count() == 0
    assert page.locator("main a[href='x']").count() == 0
    assert page.evaluate("document.scripts.length") == 10
    assert names[0] in page.locator("#verdict").inner_text()


def test_a_cpu_run_shows_host_charts_and_says_what_is_missing(tmp_path: Path, opened: Open) -> None:
    session = timeline("host  mark:decode@0..50 op:aten::mm@1..20 mark:decode@50..110 op:aten::mm@60..90")
    report = analyze(session)
    report.tables["operators"] = [{"name": "aten::mm", "count": 2, "self_ns": 49_000}]
    page = opened(write(tmp_path, session, report))

    assert page.evaluate("stallscope.chartsReady") == 2
    assert page.locator("#chart-operators svg.main-svg").count() >= 1
    assert "no device activity was recorded" in page.locator("#charts").inner_text()


def test_the_page_reads_without_scripts(gpu_page: Path, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"file://{gpu_page}")

    assert page.locator(".finding").count() >= 1
    assert page.locator("#table-kernels tbody tr").count() == 11
    assert "need JavaScript" in page.locator(".noscript").inner_text()
    context.close()
