"""The Chrome export, as text and as a real trace processor and our own reader see it."""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallscope.analyzers.finding import Evidence, Finding, Headline, Report, Step, Verdict
from stallscope.exporters import chrome_trace
from stallscope.exporters.trace_layout import Layout
from stallscope.profiler.device import device_views
from stallscope.profiler.errors import InputError
from stallscope.profiler.kinds import KIND_NAMES, Kind
from stallscope.profiler.readers import load, trace_events
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import Allocations
from support.lanes import timeline
from support.trace_processor import complaints, needs_trace_processor, query

OURS = "stallscope"


def bare_report(**parts: Any) -> Report:
    """A report with nothing in it but what is given."""
    return dataclasses.replace(
        Report(Verdict(""), Headline(), [], [], [], [], [], []),
        **parts,
    )


def text_of(session: Session, report: Report | None = None) -> bytes:
    return b"".join(chrome_trace.chunks(session, report or bare_report()))


def events_of(session: Session, report: Report | None = None) -> list[dict[str, Any]]:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    events: list[dict[str, Any]] = json.loads(text_of(session, report), parse_constant=refuse)
    return events


def write(session: Session, folder: Path, report: Report | None = None) -> Path:
    out = folder / "out.trace.json.gz"
    chrome_trace.export(session, report or bare_report(), out)
    return out


def check_in_trace_processor(session: Session, report: Report, folder: Path) -> None:
    """Loads an export in the trace processor: no complaint, and every track as we have it, to the nanosecond."""
    out = write(session, folder, report)
    assert complaints(out) == {}
    line, layout = session.timeline, Layout(session)
    found: Counter[int] = Counter()
    length: Counter[int] = Counter()
    rows = query(
        out,
        "select t.tid as tid, count(*) as n, sum(s.dur) as total from slice s join thread_track tt on "
        "s.track_id = tt.id join thread t using (utid) "
        f"where s.category not in ('instant', 'cpu_instant_event', '{OURS}') group by t.tid;",
    )
    for row in rows:
        found[int(row["tid"])], length[int(row["tid"])] = int(row["n"]), int(row["total"])
    tids = layout.tids(line.spans.track, layout.lane)
    wanted = Counter(tids.tolist())
    assert found == wanted
    for tid in wanted:
        assert length[tid] == int(line.spans.dur_ns[tids == tid].sum())
    check_arrows(session, out)


def check_arrows(session: Session, out: Path) -> None:
    """Every launch has its arrow, from the very slice to the very slice."""
    line = session.timeline
    spans = line.spans
    rows = query(
        out,
        "select a.name as name_a, a.ts as ts_a, a.dur as dur_a, b.name as name_b, b.ts as ts_b, b.dur as dur_b "
        "from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id;",
    )
    found: Counter[tuple[int, ...]] = Counter(
        (int(r["ts_a"]), int(r["dur_a"]), int(r["ts_b"]), int(r["dur_b"])) for r in rows
    )
    times = [spans.start_ns, line.counters.time_ns, line.marks.time_ns, line.allocations.time_ns]
    base = min(int(t.min()) for t in times if len(t))
    works = np.flatnonzero(spans.launch_row >= 0)
    wanted: Counter[tuple[int, ...]] = Counter()
    for work, launch in zip(works.tolist(), spans.launch_row[works].tolist(), strict=True):
        ends = [(int(spans.start_ns[row]) - base, int(spans.dur_ns[row])) for row in (launch, work)]
        early = ends[1][0] < ends[0][0]
        if early and sum(ends[1]) <= ends[0][0]:
            continue  # the kernel was over before its launch began
        # of two slices with an arrow the trace processor takes the earlier one for its start
        wanted[(*ends[1], *ends[0]) if early else (*ends[0], *ends[1])] += 1
    assert wanted - found == Counter()
    flows = line.flows
    real = int(((flows.from_row >= 0) & (flows.to_row >= 0)).sum())
    assert sum(wanted.values()) <= sum(found.values()) <= len(works) + real


# -- as text ----------------------------------------------------------------------------------------


def test_the_file_is_an_array_of_records_that_all_viewers_know(
    small_session: Session, small_report: Report
) -> None:
    events = events_of(small_session, small_report)
    slices = [e for e in events if e["ph"] == "X" and e["cat"] != OURS]
    line = small_session.timeline
    assert sorted((e["name"], e["ts"], e["dur"]) for e in slices) == sorted(
        (line.name(i), line.spans.start_ns[i] / 1000, line.spans.dur_ns[i] / 1000) for i in range(len(line))
    )
    assert all({"ph", "name", "pid", "tid"} <= set(e) for e in events)
    assert all(isinstance(e["pid"], int) and isinstance(e["tid"], int) for e in events)
    pids, tids = {e["pid"] for e in events}, {e["tid"] for e in events} - {0}
    assert not pids & tids and max(tids) < 100
    gemm = next(e for e in slices if e["name"] == "gemm")
    assert gemm["args"] == {"stream": 7, "grid": [1, 1, 1], "correlation": 1, "device": 0}
    names = {e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "process_name"}
    assert names == {"stallscope findings", "stallscope steps", "python 100", "device 0: Drawn GPU"}


def test_findings_steps_and_gaps_are_drawn_in(small_session: Session, small_report: Report) -> None:
    ours = [e for e in events_of(small_session, small_report) if e.get("cat") == OURS]
    findings = [e for e in ours if e["name"].startswith("HB101")]
    assert [(e["ts"], e["dur"]) for e in findings] == [(2.0, 56.0), (4.0, 60.0)]
    assert findings[0]["tid"] != findings[1]["tid"]
    assert findings[1]["args"]["recoverable_ns"] == 56_000
    assert findings[1]["args"]["track"] == "device 0 / stream 7"
    assert [e["name"] for e in ours if e["name"].startswith("decode")] == ["decode 0", "decode 1"]
    gaps = [e for e in ours if "ended_by" in e["args"]]
    assert [(e["name"], e["ts"], e["dur"], e["args"]["ended_by"]) for e in gaps] == [
        ("host", 4.0, 60.0, "gemm"), ("host", 78.0, 8.0, "Memcpy DtoH"), ("host", 90.0, 20.0, "gemm"),
    ]  # fmt: skip
    causes = [e for e in ours if "cause" in e["args"]]
    assert sum(round(e["dur"] * 1000) for e in causes) == small_report.headline.idle_ns
    assert [(e["name"], e["ts"], e["dur"]) for e in causes][:2] == [
        ("python", 4.0, 54.0),
        ("unrecorded", 58.0, 2.0),
    ]


def test_equal_input_gives_equal_bytes(small_session: Session, small_report: Report, tmp_path: Path) -> None:
    first = write(small_session, tmp_path, small_report).read_bytes()
    assert first == write(small_session, tmp_path, small_report).read_bytes()
    assert gzip.decompress(first) == text_of(small_session, small_report)
    chrome_trace.export(small_session, small_report, tmp_path / "plain.json")
    assert (tmp_path / "plain.json").read_bytes() == text_of(small_session, small_report)


def test_times_keep_their_nanoseconds_far_from_zero() -> None:
    session = timeline("host op:a@0..0.001 op:b@5000000000.123..9000000000.456")
    session.timeline.origin_ns = 1_736_405_443_871_413_640
    text = text_of(session)
    assert b'"ts":5000000000.123,"dur":4000000000.333' in text and b'"dur":0.001' in text
    assert b'"time_0_ns":"1736405443871413640"' in text


def test_a_damaged_length_does_not_hang_the_writer() -> None:
    session = timeline("host op:a@0..1")
    session.timeline.spans.dur_ns[0] = -5
    assert b'"dur":0.000' in text_of(session)


def test_odd_names_and_arguments_cannot_spoil_the_file() -> None:
    session = timeline('host op:a@0..1{x=1;y=1;z=1;u=1;v=[1];w=1;"k"=1} op:b@1..2')
    line = session.timeline
    odd = {"name": 'q"\\', "x": "lone\ud800", "y": "C:\\dir\\", "u": "a\nb\x01"}
    line.strings.texts.extend(
        [*odd.values(), '["\\ud83d\\ude00", NaN, 18446744073709551615, "a\\\\"]', "{bad"]
    )
    code = {text: len(line.strings.texts) - 6 + i for i, text in enumerate(line.strings.texts[-6:])}
    line.spans.name[0] = code['q"\\']
    args = line.args
    for key, text in odd.items():
        if key in args.keys:
            args.tag[args.key == args.keys.index(key)] = 2
            args.value[args.key == args.keys.index(key)] = code[text]
    args.tag[args.key == args.keys.index("z")] = 1
    args.value[args.key == args.keys.index("z")] = len(args.wide)
    args.wide = np.append(args.wide, np.array([np.nan]).view(np.int64))
    args.tag[args.key == args.keys.index("v")] = 3
    args.value[args.key == args.keys.index("v")] = len(line.strings.texts) - 2
    args.tag[args.key == args.keys.index("w")] = 3
    args.value[args.key == args.keys.index("w")] = len(line.strings.texts) - 1
    event = next(e for e in events_of(session) if e["ph"] == "X")
    assert event["name"] == 'q"\\ '
    assert event["args"] == {
        "x": "lone\ufffd", "y": "C:\\dir\\ ", "z": "NaN", "u": "a\nb\x01",
        "v": ["\U0001f600", None, "18446744073709551615", "a\\ "], "w": "{bad", '"k"': 1,
    }  # fmt: skip
    assert b"\\ud83d" not in text_of(session)


def test_argument_texts_that_are_kept_on_disk_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_events, "TEXT_BUDGET", 10)
    texts = [f"a long text of its own, with number {i}" for i in range(50)]
    events = [{"ph": "X", "name": "a", "ts": 9 * i, "dur": 5, "pid": 1, "tid": 1, "args": {"Call stack": text}}
              for i, text in enumerate(texts)]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps({"traceEvents": events}))

    written = events_of(load(tmp_path / "t.json"))

    assert [e["args"]["Call stack"] for e in written if e["ph"] == "X"] == texts


@pytest.mark.parametrize("value", [0, 7, -7, 2**53 - 1, 2**53, -(2**53), 2**63 - 1, -(2**62)])
def test_integers_stay_exact_and_large_ones_become_text(value: int) -> None:
    event = next(e for e in events_of(timeline(f"host op:a@0..1{{n={value}}}")) if e["ph"] == "X")
    assert event["args"]["n"] == (value if abs(value) < 2**53 else str(value))


def test_ids_of_any_form_get_small_numbers_and_stay_readable() -> None:
    session = timeline("host op:a@0..1\nhost2 op:b@0..1\nstream7 kernel:k@2..3#abc")
    tracks = session.timeline.tracks
    tracks[0] = dataclasses.replace(tracks[0], process=-1, thread=2**63 + 5)
    tracks[1] = dataclasses.replace(tracks[1], process="Spans", thread="weird")
    events = events_of(session)
    named = {(e["pid"], e["tid"]): e["args"] for e in events if e["name"] == "thread_name"}
    assert {str(a["thread"]) for a in named.values()} == {str(2**63 + 5), "weird", "-1"}
    kernel = next(e for e in events if e.get("cat") == "kernel")
    assert kernel["args"]["correlation"] == "abc"
    assert len({e["pid"] for e in events if e["ph"] == "X"}) == 3


def test_a_file_that_is_cut_still_holds_what_came_before(small_session: Session, tmp_path: Path) -> None:
    text = text_of(small_session)
    whole = json.loads(text)
    for cut in range(len(text) // 2, len(text) - 2, 37):
        lines = text[:cut].decode().split("\n")[:-1]
        kept = json.loads("\n".join(lines).rstrip(",") + "]")
        assert kept == whole[: len(kept)] and len(kept) > 5


def test_both_compressors_give_a_gzip_that_all_can_read(
    small_session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "isal", None)
    packed = write(small_session, tmp_path).read_bytes()
    assert zlib.decompress(packed, wbits=31) == text_of(small_session)


def test_every_kind_has_a_category_that_readers_know() -> None:
    session = timeline(
        """
        host     python:a@0..9 op:b@0..8 rt:c@0..7 queue:d@0..6 mark:e@0..5 overhead:f@0..4
        stream7  kernel:g@0..1#1 coll:any_name@1..2 coll:nccl_x@2..3 memcpy:h@3..4 memset:i@4..5 wait:j@5..6
        label    gmark:k@0..1
        """
    )
    spans, strings = session.timeline.spans, session.timeline.strings
    spans.category[:] = -1
    spans.category[0] = strings.code("enqueue")
    got = {e["name"]: e["cat"] for e in events_of(session) if e["ph"] == "X" and e["cat"] != OURS}
    assert got == {
        "a": "python_function", "b": "cpu_op", "c": "cuda_runtime", "d": "queue", "e": "user_annotation",
        "f": "overhead", "g": "kernel", "any name": "collective", "nccl x": "kernel", "h": "gpu_memcpy",
        "i": "gpu_memset", "j": "cuda_sync", "k": "gpu_user_annotation",
    }  # fmt: skip
    first = next(e for e in events_of(session) if e["name"] == session.timeline.name(0))
    assert first["args"] == {"category": "enqueue"}


def test_an_empty_timeline_is_a_trace_too(tmp_path: Path) -> None:
    assert [e["ph"] for e in events_of(timeline("host"))].count("X") == 0


def test_a_folder_that_is_not_there_is_one_line(small_session: Session) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        chrome_trace.export(small_session, bare_report(), Path("/nowhere/at/all.json.gz"))


def test_counters_have_one_key_and_nothing_that_is_no_number() -> None:
    session = timeline("host counter:power@0=3 counter:power@1=4\nhost2 counter:power@0=1.5")
    session.timeline.counters.value[1] = np.nan
    events = [e for e in events_of(session) if e["ph"] == "C"]
    assert [(e["name"], e["args"]) for e in events] == [
        ("power (thread 1)", {"value": 3}), ("power (thread 2)", {"value": 1.5}),
    ]  # fmt: skip


def test_memory_events_become_instants_and_counters() -> None:
    session = timeline("host op:a@0..10")
    number = np.array([1_000, 2_000], np.int64)
    session.timeline.allocations = Allocations(
        number, np.array([512, -512]), np.array([512, 0]), np.array([2**40, 2**40]),
        np.array([0, 0], np.int32), np.array([-1, -1], np.int32),
    )  # fmt: skip
    events = events_of(session)
    memory = [e for e in events if e["name"] == "[memory]"]
    assert memory[1]["args"] == {
        "Device Type": 1, "Device Id": 0, "Addr": 2**40, "Bytes": -512, "Total Allocated": 0,
    }  # fmt: skip
    assert [e["args"]["value"] for e in events if e["ph"] == "C"] == [512, 0]


# -- in a trace processor ---------------------------------------------------------------------------

TANGLED = """
    host     op:outer@0..100 op:over@90..110 op:inner@92..105 rt:cudaLaunchKernel@92..95#1 op:late@104..120
    host     op:same@200..210 rt:cudaGraphLaunch@200..210#2 rt:cuLaunchKernel@201..205#3 rt:point@205#4
    host     rt:early@300..302#5 rt:lost@400..401#6 rt:gone@500..501#7
    stream7  kernel:a@93..120#1 kernel:b@210..240#2 kernel:c@212..218#2 kernel:d@240..250#2 kernel:z@241#3
    stream7  kernel:p@206..207#4 kernel:before@299..305#5 kernel:way_before@390..395#6 kernel:at@495..500#7
    gpu1.stream7 kernel:other@100..200 kernel:same@100..200 kernel:in@120..130
"""


@needs_trace_processor
def test_crossing_slices_and_arrows_of_all_kinds_load(tmp_path: Path) -> None:
    session = timeline(TANGLED)
    evidence = tuple(Evidence(0, start * 1000, (start + 40) * 1000) for start in range(0, 200, 10))
    steps = [Step("s", "decode", 0, 50_000), Step("s", "decode", 40_000, 50_000), Step("in", "", 1, 0)]
    findings = [Finding("HB101", "n", "t", 1, 1, evidence=evidence), Finding("SY201", "n", "u", 1, 1)]
    check_in_trace_processor(session, bare_report(findings=findings, steps=steps), tmp_path)
    out = tmp_path / "out.trace.json.gz"
    arrows = query(
        out,
        "select a.name as a, b.name as b from flow f join slice a on f.slice_out = a.id "
        "join slice b on f.slice_in = b.id;",
    )
    assert Counter((r["a"], r["b"]) for r in arrows) == Counter(
        [("cudaLaunchKernel", "a"), ("cudaGraphLaunch", "b"), ("cudaGraphLaunch", "c"), ("cudaGraphLaunch", "d"),
         ("cuLaunchKernel", "z"), ("point", "p"), ("before", "early")]
    )  # fmt: skip
    ours = query(out, f"select count(*) as n from slice where category = '{OURS}';")
    assert int(ours[0]["n"]) >= len(evidence) + len(steps)


@needs_trace_processor
def test_the_small_session_loads(small_session: Session, small_report: Report, tmp_path: Path) -> None:
    check_in_trace_processor(small_session, small_report, tmp_path)


@needs_trace_processor
def test_odd_text_reaches_the_trace_processor_whole(tmp_path: Path) -> None:
    session = timeline("host op:a@0..1{k=1}")
    strings = session.timeline.strings
    strings.texts.append("päth\\")
    session.timeline.spans.name[0] = len(strings.texts) - 1
    strings.texts.append("\U0001f600\x01\ud800")
    session.timeline.args.tag[:] = 2
    session.timeline.args.value[:] = len(strings.texts) - 1
    out = write(session, tmp_path)
    assert complaints(out) == {}
    rows = query(
        out,
        "select s.name as name, a.display_value as v from slice s join args a using (arg_set_id) where a.key = 'args.k';",
    )
    assert [(r["name"], r["v"]) for r in rows] == [("päth\\ ", "\U0001f600\x01\ufffd")]


# -- in our own reader ------------------------------------------------------------------------------


def kinds_of(session: Session) -> Counter[str]:
    return Counter(KIND_NAMES[Kind(int(k))] for k in session.timeline.spans.kind.tolist())


def check_round_trip(session: Session, folder: Path) -> None:
    """Our reader finds the same spans of each kind, launches, counters and memory events in the export."""
    again = load(write(session, folder))
    before, after = session.timeline, again.timeline
    kinds = kinds_of(again)
    own = [e for e in events_of(session) if e["ph"] == "X" and e["cat"] == OURS]
    assert len(own) >= sum(len(view.gaps) for view in device_views(before).values())
    kinds["other"] -= len(own)
    assert +kinds == kinds_of(session)
    work = [s.timeline.device_work() for s in (session, again)]
    linked = [
        int((s.timeline.spans.launch_row[w] >= 0).sum()) for s, w in zip((session, again), work, strict=True)
    ]
    assert linked[0] == linked[1]
    for a, b in [(before.spans.start_ns, after.spans.start_ns), (before.spans.dur_ns, after.spans.dur_ns)]:
        shift = (
            before.spans.start_ns[work[0]].min() - after.spans.start_ns[work[1]].min() if len(work[0]) else 0
        )
        shift = shift if a is before.spans.start_ns else 0
        assert sorted(a[work[0]].tolist()) == sorted((b[work[1]] + shift).tolist())
    assert len(after.marks) == len(before.marks)
    assert len(after.allocations) == len(before.allocations)


def test_our_reader_finds_everything_again(small_session: Session, tmp_path: Path) -> None:
    check_round_trip(small_session, tmp_path)


def test_an_export_of_an_ascend_trace_is_read_as_what_it_is(tmp_path: Path) -> None:
    session = timeline("host rt:a@0..9#1 queue:b@1..2\nstream7 kernel:c@5..6#1")
    tracks = session.timeline.tracks
    tracks[1] = dataclasses.replace(tracks[1], process_name="Ascend Hardware")
    session.facts["source"] = "Ascend Hardware CANN"
    check_round_trip(session, tmp_path)
    assert load(write(session, tmp_path)).facts["format"] == "chrome-trace"


REAL = [
    "traces/vllm-piecewise-mi300x",
    "traces/sglang-decode-mi300x",
    "traces/qwen15-hf-h100",
    "traces/viztracer-threads",
    "traces/viztracer-async",
    "traces/cudagraph-v100-2022",
    "cases/c19-pdl-overlap.json",
    "cases/c34-begin-end.json",
    "cases/c17-clock-inversion.json",
    "cpu_traces/hf_llama_ops.json.gz",
    "ascend/alexnet-train-910b/text_level1/rank0_ascend_pt/ASCEND_PROFILER_OUTPUT/trace_view.json",
]


def first_trace(path: Path) -> Path:
    return path if path.is_file() else next(p for p in sorted(path.iterdir()) if ".json" in p.name)


@pytest.mark.shared
@needs_trace_processor
@pytest.mark.parametrize("name", REAL)
def test_real_traces_load_whole(shared: Path, name: str, tmp_path: Path) -> None:
    session = load(first_trace(shared / name))
    check_in_trace_processor(session, bare_report(), tmp_path)
    check_round_trip(session, tmp_path)
