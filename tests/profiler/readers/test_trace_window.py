"""A window that is cut out while the file is read is the window of the whole, with less in memory."""

from __future__ import annotations

import gzip
import json
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stallscope.profiler import kernels
from stallscope.profiler.errors import InputError, OptionError
from stallscope.profiler.part import parse_window, part
from stallscope.profiler.readers import load, partial, trace_window
from stallscope.profiler.readers.partial import files_of_rank, load_part, rank_of
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import Timeline
from support.parts import differences

ROOT = Path(__file__).resolve().parents[3]
MS = 1_000_000

Event = dict[str, Any]


def span(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: Any = 1, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def launch(ts: float, number: int) -> Event:
    return span("cudaLaunchKernel", ts, 5, "cuda_runtime", correlation=number)


def kernel(ts: float, dur: float, number: int, **more: Any) -> Event:
    return (
        span(f"k{number}", ts, dur, "kernel", "stream 7", correlation=number, stream=7, device=0)
        | {"pid": 0}
        | more
    )


def python(name: str, ts: float, dur: float, number: int, caller: int | None) -> Event:
    return span(name, ts, dur, "python_function", **{"Python id": number, "Python parent id": caller})


def written(path: Path, events: list[Event], **more: Any) -> Path:
    text = json.dumps({"baseTimeNanoseconds": 5, **more, "traceEvents": events})
    path.write_bytes(gzip.compress(text.encode(), 1) if path.suffix == ".gz" else text.encode())
    return path


def both(path: Path, window: str) -> tuple[Session | None, Session | None]:
    """The window of the whole, and the one cut out while reading; None for one that holds nothing."""
    cut = trace_window.read_window(path, *parse_window(window))
    out: list[Session | None] = []
    for session in (load(path), cut):
        try:
            out.append(part(session, window=window) if session is not None else None)
        except OptionError:
            out.append(None)
    return out[0], out[1]


def drawn_arrows(timeline: Timeline) -> set[tuple[int, int]]:
    return set(zip(timeline.flows.from_row.tolist(), timeline.flows.to_row.tolist(), strict=True))


def check(path: Path, window: str, *, arrows_may_lack_an_end: bool = False) -> None:
    """`arrows_may_lack_an_end`: one that ends behind the window is not drawn, though the span it ends in begins inside."""
    whole, cut = both(path, window)
    assert (whole is None) == (cut is None)
    if whole is not None and cut is not None:
        found = differences(whole.timeline, cut.timeline)
        if arrows_may_lack_an_end:
            found = [what for what in found if not what.startswith("flows.")]
            assert drawn_arrows(cut.timeline) <= drawn_arrows(whole.timeline)
        assert found == []
        assert whole.facts == cut.facts


LONG = [
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}},
    *(span(f"op{i % 9}", 1_000_000 + i * 100, 90, x=i) for i in range(4000)),
]


def test_only_the_part_is_held(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", LONG)
    session = trace_window.read_window(path, *parse_window("200ms..210ms"))

    assert session is not None
    assert len(session.timeline) < 300
    assert len(session.timeline.args) < 300
    note = session.notes.get("outside-window")
    assert note is not None and note.count == 4000 - len(session.timeline)
    assert session.facts["source_events"] == 4001
    check(path, "200ms..210ms")


@pytest.mark.parametrize(
    "window", ["..5ms", "395ms..", "0..1s", "10ms..10001us", "7s..8s", "12345678ns..12345679ns"]
)
@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_any_window(tmp_path: Path, window: str, name: str) -> None:
    check(written(tmp_path / name, LONG), window)


def test_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "t.json", [*LONG, python("f", 1_000_000, 500_000, 1, None)])
    with_core = both(path, "200ms..210ms")[1]
    monkeypatch.setattr(kernels, "core", None)
    check(path, "200ms..210ms")
    without = both(path, "200ms..210ms")[1]
    assert with_core is not None and without is not None
    assert differences(with_core.timeline, without.timeline) == []


@pytest.mark.parametrize("earlier", [900_000, 999_999])
def test_the_first_span_stands_at_the_end_of_the_file(
    tmp_path: Path, earlier: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_window, "_HEAD", 10_000)
    path = written(tmp_path / "t.json", [*LONG, span("first", earlier, 1)])
    for window in ("200ms..210ms", "0..1us", "1ms..3ms"):
        check(path, window)


def test_the_profilers_own_time_is_no_origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_window, "_HEAD", 10_000)
    flushes = [span("flush", 5 + i, 1, "Overhead") for i in range(200)]
    path = written(tmp_path / "t.json", [*flushes, *LONG])
    assert path.read_text()[:10_000].count("cpu_op") == 0
    for window in ("200ms..210ms", "0..1ms", "..1ms"):
        check(path, window)


def test_a_launch_long_before_its_kernel(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.json", [launch(1_000_010, 3), *LONG, kernel(1_300_000, 50, 3), kernel(1_300_070, 5, 4)]
    )
    whole, cut = both(path, "300ms..301ms")

    assert cut is not None and whole is not None
    row = int(cut.timeline.device_work()[0])
    assert cut.timeline.name(int(cut.timeline.spans.launch_row[row])) == "cudaLaunchKernel"
    assert differences(whole.timeline, cut.timeline) == []


def test_a_frame_whose_return_was_lost(tmp_path: Path) -> None:
    frames = [
        python("main", 1_000_000, 400_000, 1, None),
        python("caller", 1_010_000, 20_000, 2, 1),
        python("lost", 1_011_000, 380_000, 3, 2),  # ends with its caller, long before the window
        python("open", 1_100_000, 299_000, 4, 1),
    ]
    path = written(tmp_path / "t.json", [*LONG, *frames])
    whole, cut = both(path, "300ms..310ms")

    assert cut is not None and whole is not None
    held = {cut.timeline.name(row) for row in range(len(cut.timeline))}
    assert {"main", "open"} <= held and not {"lost", "caller"} & held
    assert differences(whole.timeline, cut.timeline) == []


def test_an_annotation_begun_inside_of_a_call_that_returned(tmp_path: Path) -> None:
    frames = [
        python("main", 1_000_000, 399_000, 1, None),
        python("step", 1_020_000, 1_000, 2, 1),
        span("ProfilerStep#1", 1_020_500, 350_000, "user_annotation"),
        python("step", 1_300_000, 99_000, 3, 1),
        python("exit", 1_300_500, 98_000, 4, 3),
    ]
    path = written(tmp_path / "t.json", [*LONG, *frames])
    for window in ("200ms..210ms", "250ms..371ms", "370ms..399ms"):
        check(path, window)


def test_begins_and_ends_on_both_sides(tmp_path: Path) -> None:
    edges = [
        {"ph": "B", "name": "outer", "pid": 1, "tid": 9, "ts": 1_000_000},
        {"ph": "E", "pid": 1, "tid": 9, "ts": 1_390_000},
        {"ph": "b", "cat": "request", "id": 4, "name": "req", "pid": 1, "tid": 9, "ts": 1_050_000},
        {"ph": "e", "cat": "request", "id": 4, "name": "req", "pid": 1, "tid": 9, "ts": 1_350_000},
        {"ph": "i", "name": "Record Window End", "ts": 1_150_000, "s": "g"},
        launch(1_200_100, 9),
        {"ph": "C", "name": "mem", "pid": 1, "ts": 1_200_000, "args": {"a": 1, "b": 2}},
        {"ph": "C", "name": "mem", "pid": 1, "ts": 1_290_000, "args": {"a": 1, "b": 2}},
    ]
    path = written(tmp_path / "t.json", [*LONG, *edges])
    for window in ("200ms..210ms", "0..1ms", "100ms..151ms"):
        check(path, window)


@pytest.mark.parametrize(
    "more",
    [
        [{"ph": "B", "name": "open", "pid": 1, "tid": 9, "ts": 1_000_000}],
        [kernel(1_205_000, 5, 1, args={"stream": 7})],
        [span("lost", 0, 0, "kernel", "stream 7")],
        [span("x", 1_000_000, 1, tid="__xpu_profiler__")],
    ],
)
def test_where_the_part_alone_does_not_tell(
    tmp_path: Path, more: list[Event], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A span without an end, a kernel without an id, a record without a time, a profiler's own thread."""
    monkeypatch.setattr(partial, "SMALL", 0)
    path = written(tmp_path / "t.json", [*more, *LONG])

    assert trace_window.read_window(path, 200 * MS, 210 * MS) is None
    whole, again = part(load(path), window="200ms..210ms"), load_part(path, window="200ms..210ms")
    assert differences(whole.timeline, again.timeline) == []


def test_long_facts_before_the_first_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_window, "_HEAD", 1000)
    monkeypatch.setattr(partial, "SMALL", 0)
    path = written(tmp_path / "t.json.gz", LONG, facts=["x" * 100] * 40_000)

    assert trace_window.read_window(path, 200 * MS, 210 * MS) is None
    assert len(load_part(path, window="200ms..210ms").timeline) > 50


def test_several_documents_are_read_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", LONG)
    path.write_text(path.read_text() * 2)
    assert trace_window.read_window(path, 200 * MS, 210 * MS) is None


@pytest.mark.parametrize("text", ["", "hello", "{}", '{"traceEvents": 3}'])
def test_what_is_no_trace_is_refused_as_ever(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial, "SMALL", 0)
    path = tmp_path / "t.json"
    path.write_text(text)
    with pytest.raises(InputError):
        load_part(path, window="1s..2s")


def test_a_trace_without_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial, "SMALL", 0)
    session = load_part(written(tmp_path / "t.json", []), window="1s..2s")
    assert len(session.timeline) == 0 and "no-events" in session.notes


# -- any trace ---------------------------------------------------------------------------------------

ticks = st.integers(0, 60_000).map(lambda tick: tick + 0.5)
lengths = st.one_of(st.integers(0, 300), st.integers(0, 40_000)).map(lambda tick: tick / 2)
host = st.builds(
    lambda cat, ts, dur, tid, number: span(f"{cat}{number % 3}", ts, dur, cat, tid, **{"External id": number}),
    st.sampled_from(["cpu_op", "user_annotation", "python_function"]), ticks, lengths, st.integers(1, 2), st.integers(1, 40),
)  # fmt: skip
linked = st.builds(
    lambda ts, delay, dur, number: [launch(ts, number), kernel(ts + delay, dur, number)],
    ticks, st.one_of(st.integers(-3, 50), st.integers(0, 30_000)), lengths, st.integers(1, 30),
)  # fmt: skip
arrow = st.builds(
    lambda ts, later, number: [
        {"ph": "s", "cat": "fwdbwd", "name": "fwdbwd", "id": number, "pid": 1, "tid": 1, "ts": ts},
        {"ph": "f", "cat": "fwdbwd", "name": "fwdbwd", "id": number, "pid": 1, "tid": 2, "ts": ts + later, "bp": "e"},
    ],
    ticks, st.integers(0, 3000), st.integers(1, 9),
)  # fmt: skip


# the same traces each time: what chance finds in new ones is no fault of an unrelated change
@settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(
    events=st.lists(host, min_size=1, max_size=40),
    pairs=st.lists(linked, max_size=12),
    arrows=st.lists(arrow, max_size=3),
    ends=st.tuples(st.integers(0, 62_000_000), st.integers(1, 20_000_000)),
    before=st.sampled_from([0, 1_000_000, 10_000_000]),
)
def test_windows_of_any_trace(
    tmp_path: Path, events: list[Event], pairs: list[list[Event]], arrows: list[list[Event]],
    ends: tuple[int, int], before: int,
) -> None:  # fmt: skip
    path = written(tmp_path / "t.json", [*events, *chain(*pairs), *chain(*arrows)])
    was, trace_window.BEFORE_NS = trace_window.BEFORE_NS, before
    try:
        first = min(e["ts"] for e in [*events, *chain(*pairs)])
        marks = [1000 * (e["ts"] - first) for e in chain(*arrows)]
        outside = any(not ends[0] <= mark < ends[0] + ends[1] for mark in marks)
        check(path, f"{ends[0]}ns..{ends[0] + ends[1]}ns", arrows_may_lack_an_end=outside)
    finally:
        trace_window.BEFORE_NS = was


def windows(path: Path) -> list[str]:
    spans = load(path).timeline.spans
    low, high = int(spans.start_ns.min()), int(spans.end_ns.max())
    cuts = [low + (high - low) * tenth // 20 for tenth in (0, 2, 7, 8, 19, 21)]
    return [f"{max(a, 0)}ns..{max(b, 1)}ns" for a, b in pairwise(cuts)]


@pytest.mark.parametrize(
    "path", sorted((ROOT / "sample_traces" / "synthetic").glob("gpu_*")), ids=lambda p: p.name
)
def test_windows_of_the_samples(path: Path) -> None:
    for window in windows(path):
        check(path, window)


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    ["nanovllm-decode-4080", "bert-h100", "sglang-decode-mi300x", "cudagraph-callables-5080", "gpu-only-mi210",
     "qwen15-hf-h100", "dlrm-8rank-v100", "chrome-tracing", "viztracer-logging", "torch113-cpu"],
)  # fmt: skip
def test_windows_of_real_traces(shared: Path, name: str) -> None:
    path = min((shared / "traces" / name).glob("*.json*"))
    for window in windows(path):
        check(path, window)


# -- one rank ----------------------------------------------------------------------------------------


def ranked(folder: Path, ranks: list[int | None]) -> list[Path]:
    told = [
        {} if r is None else {"distributedInfo": {"backend": "nccl", "rank": r, "world_size": 4}}
        for r in ranks
    ]
    return [written(folder / f"t{i}.json.gz", LONG[:40], **more) for i, more in enumerate(told)]


def test_the_file_of_a_rank_is_told_by_its_head(tmp_path: Path) -> None:
    files = ranked(tmp_path, [1, 0, None, 1])

    assert [rank_of(f) for f in files] == [1, 0, None, 1]
    assert files_of_rank(files, 1) == [files[0], files[3]]
    assert files_of_rank(files, 7) == [files[2]]
    with pytest.raises(OptionError, match=r"no rank 7 in this folder. Its ranks: 0, 1."):
        files_of_rank([files[0], files[1]], 7)


def test_a_file_that_cannot_be_opened_has_no_rank(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(b"BZh91AY")
    assert rank_of(tmp_path / "t.json") is None


def test_a_file_of_one_rank_is_all_of_that_rank(tmp_path: Path) -> None:
    path = ranked(tmp_path, [2])[0]
    assert len(load_part(path, rank=2).timeline) == len(load(path).timeline)
    with pytest.raises(OptionError, match=r"no rank 3 in this recording. Its ranks: 2"):
        load_part(path, rank=3)


def test_only_the_folder_of_an_ascend_rank_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    from stallscope.profiler.readers import ascend_pt

    sample = ROOT / "sample_traces" / "synthetic" / "npu_item_sync_ascend_pt"
    for rank in range(3):
        made = shutil.copytree(sample, tmp_path / f"r{rank}_ascend_pt")
        text = (made / "profiler_info_0.json").read_text()
        (made / "profiler_info_0.json").unlink()
        (made / f"profiler_info_{rank}.json").write_text(text.replace('"rank_id": 0', f'"rank_id": {rank}'))
    read: list[str] = []
    reading = ascend_pt.read_recording

    def watched(folder: Path) -> Any:
        read.append(folder.name)
        return reading(folder)

    monkeypatch.setattr(ascend_pt, "read_recording", watched)
    session = load_part(tmp_path, rank=1)

    assert read == ["r1_ascend_pt"]
    assert len(session.timeline) > 0 and {t.rank for t in session.timeline.tracks} == {1}
    assert session.content is not None
