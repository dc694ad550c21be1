"""Faults real trace files have, each as a small input written here, with what must come out.

One test per kind of fault: broken text, odd packings, bad times, missing or shared links, and rows that
look like work and are none.
"""

from __future__ import annotations

import gzip
import itertools
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from stallscope.analyzers import analyze
from stallscope.analyzers.run import Run
from stallscope.exporters import chrome_trace, html, json_report
from stallscope.profiler.errors import InputError
from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import load
from support.events import CHAIN, HOST, Case, call, count, delays_us, durations_us, host, idle_us, kernel, op


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


# -- text -------------------------------------------------------------------------------------------


def test_a_missing_quote_costs_at_most_its_own_event(case: Case) -> None:
    session, _ = case.read(
        '[{"name": "add", "ph": "X", "ts": 101.524, "dur": 134.49, "tid": 1, "pid": "CPU functions"},'
        ' {"name": "add", "ph": "f", "ts": 102.956, tid": 0, "pid": "CUDA functions", "id": 0, "cat": "cpu_to_cuda"},'
        ' {"name": "add", "ph": "X", "ts": 102.956, "dur": 134.175, "tid": 0, "pid": "CUDA functions"},'
        ' {"name": "mul", "ph": "X", "ts": 240.0, "dur": 20.0, "tid": 1, "pid": "CPU functions"}]'
    )
    spans = session.timeline.spans

    assert sorted(spans.dur_ns.tolist()) == [20_000, 134_175, 134_490]
    assert spans.dur_ns[session.timeline.device_work()].tolist() == [134_175]
    assert sum(n.count for n in session.notes if n.code.startswith("bad-event")) == 1
    assert any(n.first for n in session.notes if n.code.startswith("bad-event"))


def test_backslashes_of_windows_paths_survive(case: Case) -> None:
    names = [r"C:\code\engine.py", r"D:\_work\x.py", r"C:\users\me\run.py", r"C:\tmp\new\base.py"]
    events = ",".join(
        f'{{"ph":"X","cat":"python_function","name":"{name}","pid":1,"tid":{i},"ts":{i},"dur":1}}'
        for i, name in enumerate(names)
    )
    session, _ = case.read(f'{{"traceEvents":[{events}]}}')
    read = {session.timeline.name(i) for i in range(len(session.timeline))}

    assert len(session.timeline) == 4
    assert {r"C:\code\engine.py", r"D:\_work\x.py", r"C:\users\me\run.py"} <= read
    assert count(session, "bad-escape") > 0


def test_a_backslash_before_the_closing_quote_costs_one_fact_not_the_events(case: Case) -> None:
    events = json.dumps([op("a", 1, 2), op("b", 5, 2)])
    session, _ = case.read('{"traceEvents": ' + events + ', "traceName": "C:\\traces\\"}')

    assert len(session.timeline) == 2
    assert len(session.notes) >= 1


def test_bad_utf8_is_replaced_and_the_event_kept(case: Case) -> None:
    text = json.dumps({"traceEvents": [*CHAIN[:2], kernel("gemm_XX", 1040, 5, 1)]}).encode()
    session, report = case.read(text.replace(b"XX", b"\xff\xfe"))
    (row,) = session.timeline.device_work()

    assert "�" in session.timeline.name(int(row))
    assert session.timeline.spans.launch_row[row] >= 0
    assert count(session, "bad-utf8") >= 1
    json_report.render(session, report).encode("utf-8")


@pytest.mark.parametrize("word", ["inf", "nan", "NaN", "Infinity", "-Infinity"])
def test_numbers_that_are_none_never_reach_a_sum_or_an_output(case: Case, word: str) -> None:
    events = [
        kernel("k1", 1000, 10),
        kernel("k2", 1020, 20),
        kernel("k3", 1050, "WORD"),
        kernel("Memcpy", 1015, 0, cat="gpu_memcpy", bandwidth="WORD"),
    ]
    text = json.dumps({"traceEvents": events}).replace('"WORD"', word)
    session, report = case.read(text)
    out = json_report.render(session, report)
    html.export(session, report, case.folder / "r.html")

    assert report.headline.busy_ns == 30_000
    assert count(session, "invalid-duration") == 1
    json.loads(out, parse_constant=lambda c: pytest.fail(f"{c} in the JSON report"))


# -- packings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", gzip.compress(b""), b"{}"])
def test_files_without_a_trace_are_refused_in_one_line(case: Case, content: bytes) -> None:
    with pytest.raises(InputError) as error:
        load(case.write(content))

    assert "\n" not in str(error.value)
    assert "trace.json" in str(error.value)


@pytest.mark.parametrize(
    "events", [[], [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]]
)
def test_a_trace_without_events_makes_no_good_looking_report(case: Case, events: list[Any]) -> None:
    session, report = case.read(events)

    assert len(session.timeline) == 0
    assert "no-events" in session.notes
    assert report.findings == []
    assert json.loads(json_report.render(session, report))["headline"]["busy_ns"] == 0


def plain_text() -> bytes:
    return json.dumps({"traceEvents": CHAIN}).encode()


def zipped(text: bytes, folder: Path) -> bytes:
    with zipfile.ZipFile(folder / "x.zip", "w") as archive:
        archive.writestr("inside.json", text)
    return (folder / "x.zip").read_bytes()


@pytest.mark.parametrize(
    "packing", ["members", "gz as json", "json as gz", "zip", "bom", "utf-16", "newlines"]
)
def test_any_packing_gives_the_same_three_slices(case: Case, packing: str) -> None:
    text = plain_text()
    half = len(text) // 2
    content, name = {
        "members": (gzip.compress(text[:half]) + gzip.compress(text[half:]), "t.json.gz"),
        "gz as json": (gzip.compress(text), "t.json"),
        "json as gz": (text, "t.json.gz"),
        "zip": (zipped(text, case.folder), "t.json.zip"),
        "bom": (b"\xef\xbb\xbf" + text, "t.json"),
        "utf-16": (text.decode().encode("utf-16"), "t.json"),
        "newlines": (b"\n\n  " + text, "t.json"),
    }[packing]
    session, _ = case.read(content, name)

    assert durations_us(session) == {"aten::mm": 50, "cudaLaunchKernel": 5, "gemm_kernel": 100}
    assert delays_us(session) == [30]


# -- events -----------------------------------------------------------------------------------------


def test_elements_that_are_no_events_are_skipped_and_counted_once(case: Case) -> None:
    unnamed = {"ph": "X", "pid": HOST, "tid": HOST, "ts": 1200, "dur": 4}
    timeless = {"ph": "X", "name": "lost", "pid": HOST, "tid": HOST, "dur": 4}
    session, _ = case.read([{}, *CHAIN, None, "text", timeless, {"name": "no phase", "pid": 1}, unnamed, {}])

    assert len(session.timeline) == 4
    assert count(session, "skipped-elements") == 6
    assert [(n.severity, n.first) for n in session.notes] == [("info", "event 0")]


def test_times_of_sixteen_digits_keep_their_nanoseconds(case: Case) -> None:
    def row(name: str, ts: str, dur: float, pid: int, tid: int, **args: Any) -> dict[str, Any]:
        return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args}

    names = {100: "Python", 101: "CANN", 102: "Ascend Hardware"}
    meta = [
        {"ph": "M", "name": "process_name", "pid": p, "tid": 0, "args": {"name": n}} for p, n in names.items()
    ]
    flow = {"cat": "HostToDevice", "name": "HostToDevice", "id": "8589934592123", "pid": 101, "tid": 1}
    session, report = case.read(
        json.dumps(
            [
                *meta,
                row("aten::matmul", "1715594400000400.000", 60, 100, 100),
                row("Node@launch", "1715594400000410.001", 5, 101, 1),
                row("MatMulV2", "1715594400000456.780", 10.0, 102, 2, **{"Task Type": "AI_CORE"}),
                row("Add", "1715594400000466.800", 5.0, 102, 2, **{"Task Type": "AI_CORE"}),
                flow | {"ph": "s", "ts": "1715594400000410.001"},
                flow | {"ph": "f", "bp": "e", "ts": "1715594400000456.780", "pid": 102, "tid": 2},
            ]
        )
    )

    assert report.headline.busy_ns == 15_000
    assert report.headline.idle_ns == 20
    assert delays_us(session) == [46.779]


def test_the_window_is_built_from_valid_times_only(case: Case) -> None:
    session, report = case.read(
        [
            op("aten::mm", 1000, 50), call("cudaLaunchKernel", 1002, 3, 1), call("cudaLaunchKernel", 1006, 3, 2),
            kernel("lost_kernel", 0, 0, 1), kernel("good_kernel", 1010, 50, 2), kernel("neg_kernel", 1062, -3),
            host("cpu_op", "unfinished", 1065, -1), host("cpu_op", "null_dur", 1066, None),
            {k: v for k, v in op("no_dur", 1067, 0).items() if k != "dur"}, host("cpu_op", "string_dur", "1060", "12.5"),
        ]
    )  # fmt: skip
    spans = session.timeline.spans

    assert session.timeline.origin_ns == 1_000_000
    assert int(spans.end_ns.max()) == 72_500
    assert report.headline.busy_ns == 50_000
    assert durations_us(session)["string_dur"] == 12.5
    assert "lost_kernel" not in durations_us(session)
    assert count(session, "invalid-times") == 5


def test_python_frames_end_with_their_caller(case: Case) -> None:
    frames = [host("python_function", "train.py(10): main", 1000, 3900)]
    for i in range(6):
        start = 1100 + 500 * i
        frames += [
            host("python_function", "ops.py(5): call_op", start, 400),
            host("python_function", "<built-in method my_op>", start + 50, 5000 - start - 50),
            op("mylib::my_op", start + 60, 200),
        ]
    session, _ = case.read(frames)
    t = session.timeline
    names = [t.name(i) for i in range(len(t))]
    total = sum(int(d) for n, d in zip(names, t.spans.dur_ns, strict=True) if n.startswith("<built-in"))

    assert total == 6 * 350_000
    assert int(t.spans.self_ns[names.index("train.py(10): main")]) == 1_500_000
    assert {int(d) for n, d in zip(names, t.spans.dur_ns, strict=True) if n == "mylib::my_op"} == {200_000}
    assert count(session, "python-frame-clamped") == 6


def test_clock_inversions_are_counted_not_averaged(case: Case) -> None:
    session, report = case.read(
        [
            op("aten::mul", 1000, 10), call("hipLaunchKernel", 1002, 9.2, 1), kernel("mul_kernel", 999, 6, 1),
            op("aten::add", 1020, 10), call("hipLaunchKernel", 1022, 5, 2), kernel("add_kernel", 1026.5, 6, 2),
        ]
    )  # fmt: skip
    t = session.timeline
    late = next(i for i in range(len(t)) if t.name(i) == "hipLaunchKernel")

    assert t.name(int(t.spans.parent[late])) == "aten::mul"
    assert delays_us(session) == [-3.0, 4.5]
    assert count(session, "clock-inversion") == 1
    assert "3000 ns" in session.notes.get("clock-inversion").text  # type: ignore[union-attr]
    assert all(v >= 0 for d in report.devices for v in d.idle_classes.values())


def test_kernels_that_overlap_on_one_stream_all_stay(case: Case) -> None:
    session, report = case.read([kernel("a", 1000, 100), kernel("b", 1096, 64), kernel("c", 1155, 45)])
    out = case.folder / "x.trace.json"
    chrome_trace.export(session, report, out)
    again = load(out)

    assert report.headline.busy_ns == 200_000
    assert report.headline.idle_ns == 0
    assert {k.name: k.total_ns for k in report.kernels} == {"a": 100_000, "b": 64_000, "c": 45_000}
    exported = (
        [e for e in json.loads(out.read_text())["traceEvents"] if e["ph"] == "X"]
        if isinstance(json.loads(out.read_text()), dict)
        else [e for e in json.loads(out.read_text()) if e["ph"] == "X"]
    )
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for e in exported:
        lanes.setdefault((e["pid"], e["tid"]), []).append((e["ts"], e["ts"] + e["dur"]))
    for spans in lanes.values():
        ordered = sorted(spans)
        assert all(b[0] >= a[1] or b[1] <= a[1] for a, b in itertools.pairwise(ordered))
    assert {"a", "b", "c"} <= set(durations_us(again))


# -- links ------------------------------------------------------------------------------------------


def test_one_graph_launch_owns_all_its_kernels(case: Case) -> None:
    _session, report = case.read(
        [
            call("cudaMemcpyAsync", 992, 4, 70), kernel("Memcpy HtoD", 998, 2, 70, "gpu_memcpy"),
            call("cudaGraphLaunch", 1010, 15, 77), *[kernel(f"graph_kernel_{i}", 1030 + 11 * i, 10, 77) for i in range(6)],
            op("aten::argmax", 1040, 10), call("cudaLaunchKernel", 1043, 4, 78), kernel("argmax_kernel", 1100, 5, 78),
        ]
    )  # fmt: skip

    assert report.headline.device_events == 8
    assert report.headline.unlinked_device_events == 0
    assert report.headline.launches == 3
    assert report.headline.busy_ns == 67_000
    # five gaps of 1 us inside the graph and 5 us before argmax are the device's own
    assert idle_us(report)["queue_latency"] == 10
    assert not [f for f in report.findings if f.code.startswith(("HB", "GR", "LN"))]


def test_launches_without_records_leave_no_idle_time_behind(case: Case) -> None:
    events = [call("cudaLaunchKernel", 1005 + 50 * i, 5, i) for i in range(10)]
    events += [kernel(f"k{i}", 1215 + 50 * (i - 4), 40, i) for i in range(4, 10)]
    _session, report = case.read(events)

    assert report.headline.busy_ns == 240_000
    assert report.headline.idle_ns == 50_000
    assert report.findings == []
    told = " ".join(n.text for n in report.notes) + json.dumps(report.tables)
    assert "4 of 10" in told


def test_kernels_of_before_the_window_are_work_of_nobody(case: Case) -> None:
    session, report = case.read(
        [
            kernel("old_1", 1000, 30, 501), kernel("old_2", 1031, 30, 502), kernel("old_3", 1062, 30, 503),
            op("aten::mm", 1020, 20), call("cudaLaunchKernel", 1025, 5, 901), kernel("new_1", 1093, 50, 901),
            call("cudaMemsetAsync", 1130, 4, 902), kernel("Memset (Device)", 1150, 2, 902, "gpu_memset"),
        ]
    )  # fmt: skip
    run = Run(session)
    t = session.timeline
    old = next(i for i in range(len(t)) if t.name(i) == "old_2")

    assert report.headline.device_events == 5
    assert report.headline.unlinked_device_events == 3
    assert report.headline.busy_ns == 142_000
    assert run.operator_of(old) == -1
    assert delays_us(session)[0] == 68
    assert not [f for f in report.findings if f.code.startswith("HB")]


def test_driver_calls_are_launches_with_or_without_arrows(case: Case) -> None:
    session, _ = case.read(
        [
            op("Torch-Compiled Region: 0/0", 1000, 60),
            call("cuLaunchKernel", 1010, 5, 21, "cuda_driver"), kernel("triton_poi_fused_0", 1020, 30, 21),
            call("cuLaunchKernelEx", 1030, 5, 22, "cuda_driver"), kernel("triton_red_fused_1", 1055, 20, 22),
            op("aten::addmm", 1100, 20), call("cudaLaunchKernelExC", 1105, 6, 23), kernel("sm90_gemm", 1125, 80, 23),
        ]
    )  # fmt: skip
    run = Run(session)
    t = session.timeline
    owner = {t.name(int(r)): t.name(run.operator_of(int(r))) for r in t.device_work()}

    assert delays_us(session) == [10, 25, 20]
    assert owner == {
        "triton_poi_fused_0": "Torch-Compiled Region: 0/0",
        "triton_red_fused_1": "Torch-Compiled Region: 0/0",
        "sm90_gemm": "aten::addmm",
    }


# -- meaning ----------------------------------------------------------------------------------------


def test_no_step_no_rank_no_properties_is_still_a_whole_report(case: Case) -> None:
    session, report = case.read(
        [op("aten::mm", 1000, 30), call("cudaLaunchKernel", 1010, 5, 1), kernel("k", 1020, 60, 1)]
    )

    assert report.headline.busy_ns == 60_000
    assert delays_us(session) == [10]
    assert session.timeline.tracks[0].rank == -1
    assert json.loads(json_report.render(session, report))["devices"][0]["id"] == 0


def test_mirrored_annotations_and_profiler_rows_are_no_work(case: Case) -> None:
    events = [host("user_annotation", "decode_step", 1000, 60)]
    events += [call("cudaLaunchKernel", 1005 + 10 * i, 5, i + 1) for i in range(3)]
    events += [kernel(f"k{i}", 1020 + 40 * i, 20, i + 1) for i in range(3)]
    events.append(kernel("decode_step", 1019, 102, cat="gpu_user_annotation"))
    events.append(host("overhead", "Activity Buffer Request", 1001, 900) | {"pid": -1, "tid": 0})
    session, report = case.read(events)
    t = session.timeline

    assert report.headline.busy_ns == 60_000
    assert report.headline.idle_ns == 40_000
    assert [k.count for k in report.kernels] == [1, 1, 1]
    assert report.headline.host_span_ns <= 120_000
    assert t.spans.dur_ns[t.rows(Kind.OVERHEAD)].tolist() == [900_000]


def test_without_device_events_nothing_is_said_of_the_device(case: Case) -> None:
    events = [op(f"aten::op{i}", 1000 + 20 * i, 10) for i in range(5)]
    session, report = case.read({"traceEvents": events, "deviceProperties": [{"id": 0, "name": "GPU"}]})

    assert "no-device-activity" in session.notes
    assert "permission" in session.notes.get("no-device-activity").text  # type: ignore[union-attr]
    assert report.devices == []
    assert not [f for f in report.findings if "device" in f.title.lower() or "gpu" in f.title.lower()]
    assert {r.status for r in report.rules if r.code == "HB101"} == {"not_analysable"}


def test_begin_end_and_async_pairs(case: Case) -> None:
    def edge(ph: str, ts: int, name: str | None = None, tid: int = 13, **rest: Any) -> dict[str, Any]:
        return {"ph": ph, "ts": ts, "pid": 1, "tid": tid, **({"name": name} if name else {}), **rest}

    session, _ = case.read(
        [
            edge("B", 0, "A"), edge("B", 10, "B"), edge("E", 20), edge("E", 30), edge("E", 40), edge("B", 50, "C"),
            edge("B", 60, "D"), edge("E", 65), edge("B", 5, "A", 14), edge("E", 8, None, 14),
            edge("b", 1, "request", cat="req", id="0x1"), edge("b", 7, "request", cat="req", id="0x2"),
            edge("e", 45, "request", cat="req", id="0x1"),
        ]
    )  # fmt: skip
    t = session.timeline
    spans = {(t.name(i), int(t.spans.start_ns[i]), int(t.spans.dur_ns[i])) for i in range(len(t))}

    assert {("A", 0, 30_000), ("B", 10_000, 10_000), ("C", 50_000, 15_000), ("D", 60_000, 5_000)} <= spans
    assert {("A", 5_000, 3_000), ("request", 1_000, 44_000)} <= spans
    assert (
        count(session, "stray-end"),
        count(session, "span-not-closed"),
        count(session, "async-not-closed"),
    ) == (1, 1, 1)


def test_ascend_rows_without_arrows(case: Case) -> None:
    base = 1715594400000000
    names = {100: "Python", 101: "CANN", 102: "Ascend Hardware", 103: "Overlap Analysis"}
    meta = [
        {"ph": "M", "name": "process_name", "pid": p, "tid": 0, "args": {"name": n}} for p, n in names.items()
    ]

    def row(name: str, at: float, dur: float, pid: int, tid: int, **more: Any) -> dict[str, Any]:
        return {"ph": "X", "name": name, "ts": f"{base + at:.3f}", "dur": dur, "pid": pid, "tid": tid, **more}

    session, report = case.read(
        json.dumps(
            [
                *meta,
                row("aten::linear", 100, 40, 100, 100, cat="cpu_op"),
                row("AscendCL@aclmdlRIExecuteAsync", 120, 15, 101, 55),
                row("FlashAttentionScore", 160.5, 100, 102, 2, args={"Task Type": "MIX_AIC"}),
                row("FlashAttentionScore", 700.5, 100, 102, 2, args={"Task Type": "MIX_AIC"}),
                row("EVENT_WAIT", 262, 430, 102, 3, args={"Task Type": "EVENT_WAIT_SQE"}),
                row("Computing", 160.5, 100, 103, 0),
                row("Free", 260.5, 440, 103, 2),
            ]
        )
    )

    assert report.headline.busy_ns == 200_000
    assert len(session.timeline.rows(Kind.DEVICE_WAIT)) == 1
    assert "unrecorded-graph-kernels" in session.notes
    assert "host-device-links-missing" in session.notes
    assert not [f for f in report.findings if f.code.startswith("HB")]


def test_xpu_names_and_the_profilers_own_lane(case: Case) -> None:
    flush = host("xpu_runtime", "profiler_flush", 1105, 500) | {"tid": "__xpu_profiler__"}
    end = {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 1100}
    session, report = case.read(
        [
            op("aten::addmm", 1000, 60), call("urEnqueueKernelLaunch", 1010, 20, 4131, "xpu_runtime"),
            call("zeCommandListAppendLaunchKernel", 1012, 10, 4131, "xpu_driver"), kernel("gemm_kernel", 1040, 8.96, 4131),
            flush, end,
        ]
    )  # fmt: skip

    assert report.headline.busy_ns == 8_960
    assert report.headline.launches == 1
    assert delays_us(session) == [30]
    assert report.headline.host_span_ns <= 100_000


def test_three_thousand_frames_deep(case: Case) -> None:
    deep = [host("python_function", f"f{i}", 1000 + 0.01 * i, 1000 - 0.02 * i) for i in range(3000)]
    session, report = case.read([*deep, op("aten::leaf", 1500, 1)])
    spans = session.timeline.spans
    html.export(session, report, case.folder / "deep.html")

    assert int(spans.depth.max()) == 3000
    assert int(spans.self_ns.sum()) == 1_000_000
    assert set(spans.self_ns[:2999].tolist()) == {20}


def test_rocprofs_dialect_tells_roles_by_process_names(case: Case) -> None:
    names = {2: "4 CPU HIP API", 6: "6 GPU0", 7: "7 GPU1"}
    meta = [{"ph": "M", "name": "process_name", "pid": p, "args": {"name": n}} for p, n in names.items()]

    def row(name: str, ts: str, dur: str, pid: int, tid: int, index: str) -> dict[str, Any]:
        text = {"Name": name, "args": "( kernel(k1()) stream(0) )", "Index": index}
        return {"ph": "X", "name": name, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": text}

    session, report = case.read(
        [
            {}, *meta, row("hipLaunchKernel", "5000000", "12", 2, 3100, "1"), row("k1()", "5000020", "40", 6, 0, "1"),
            row("hipLaunchKernel", "5000100", "9", 2, 3100, "2"), row("k2()", "5000130", "50", 7, 0, "2"),
        ]
    )  # fmt: skip

    assert [d.id for d in report.devices] == [0, 1]
    assert {k.name: k.total_ns for k in report.kernels} == {"k1()": 40_000, "k2()": 50_000}
    assert delays_us(session) == [20, 30]


@pytest.mark.shared
def test_every_case_of_the_collection_is_read_or_refused_in_one_line(shared: Path) -> None:
    inputs = sorted(p for p in (shared / "cases").iterdir() if ".json" in p.name)
    for path in inputs:
        try:
            analyze(load(path))
        except InputError as error:
            assert "\n" not in str(error)

    assert len(inputs) >= 24
