"""Lone traces and tables, msprof trees, MindSpore folders."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from stallscope.analyzers import analyze
from stallscope.profiler.errors import InputError
from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import load, reader_of
from support import ascend

EPOCH_US = 1_715_594_400_000_000


def process(pid: int, name: str, label: str = "") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    ]
    if label:
        rows.append({"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}})
    return rows


def span(name: str, pid: int, tid: int, at: str, dur: float, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": at, "dur": dur, "args": args}


def write(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps(events))
    return path


def string_times() -> list[dict[str, Any]]:
    """Two kernels 20 ns apart at epoch scale, which floats cannot tell apart (Ascend/pytorch#133)."""
    at = str(EPOCH_US)[:-3]
    return [
        *process(100, "Python"), *process(101, "CANN"), *process(102, "Ascend Hardware"),
        span("aten::mm", 100, 100, at + "400.125", 30.5),
        span("AscendCL@aclnnMatmul", 101, 55, at + "410.001", 10.0),
        span("MatMulV2", 102, 2, at + "456.780", 10.0, **{"Task Type": "AI_CORE", "Stream Id": 2}),
        span("Add", 102, 2, at + "466.800", 5.0, **{"Task Type": "AI_VECTOR_CORE", "Stream Id": 2}),
        {"ph": "s", "name": "HostToDevice1", "id": str(2**32 + 1), "pid": 101, "tid": 55, "ts": at + "410.001", "cat": "HostToDevice"},
        {"ph": "f", "name": "HostToDevice1", "id": str(2**32 + 1), "pid": 102, "tid": 2, "ts": at + "456.780", "cat": "HostToDevice"},
    ]  # fmt: skip


def test_string_times_are_exact(tmp_path: Path) -> None:
    session = load(write(tmp_path / "trace_view.json", string_times()))
    timeline = session.timeline
    assert len(timeline) == 4
    first, second = timeline.rows(Kind.KERNEL).tolist()
    spans = timeline.spans
    assert spans.start_ns[second] - (spans.start_ns[first] + spans.dur_ns[first]) == 20
    assert analyze(session).headline.busy_ns == 15_000
    launch = int(spans.launch_row[first])
    assert timeline.name(launch) == "AscendCL@aclnnMatmul"
    assert spans.start_ns[first] - spans.start_ns[launch] == 46_779
    assert spans.launch_row[second] == -1


def test_graph_kernels_that_were_not_recorded_are_suspected(tmp_path: Path) -> None:
    """vllm-ascend with graphs: only the attention between the graph pieces was recorded, without arrows."""
    at = str(EPOCH_US)[:-3]
    events = [
        *process(100, "Python"), *process(101, "CANN"), *process(102, "Ascend Hardware"), *process(103, "Overlap Analysis"),
        span("aten::linear", 100, 100, at + "100.000", 40.0) | {"cat": "cpu_op"},
        span("AscendCL@aclmdlRIExecuteAsync", 101, 55, at + "120.000", 15.0),
        span("FlashAttentionScore", 102, 2, at + "160.500", 100.0, **{"Task Type": "MIX_AIC"}),
        span("FlashAttentionScore", 102, 2, at + "700.500", 100.0, **{"Task Type": "MIX_AIC"}),
        span("EVENT_WAIT", 102, 3, at + "262.000", 430.0, **{"Task Type": "EVENT_WAIT_SQE"}),
        span("Computing", 103, 0, at + "160.500", 100.0),
        span("Free", 103, 2, at + "260.500", 440.0),
    ]  # fmt: skip
    session = load(write(tmp_path / "t.json", events))
    report = analyze(session)
    assert report.headline.compute_ns == report.headline.busy_ns == 200_000
    facts = session.facts["ascend"]["ranks"][0]
    assert facts["links"]["kernels_with_launch"] is None
    assert facts["graph"]["hole_ns"] == 440_000
    assert "unlinked-device-events" not in session.notes
    for code in ("unrecorded-graph-kernels", "host-device-links-missing", "derived-rows"):
        assert code in session.notes


def test_replays_whose_kernels_were_recorded_are_not_suspected(tmp_path: Path) -> None:
    events = [*process(101, "CANN"), *process(102, "Ascend Hardware")]
    for replay in range(3):
        at = EPOCH_US + 1_000 * replay
        events.append(span("AscendCL@aclmdlRIExecuteAsync", 101, 55, f"{at}.000", 15.0))
        events += [
            span("k", 102, 2, f"{at + 100 + 20 * i}.000", 10.0, **{"Task Type": "AI_CORE"}) for i in range(8)
        ]
    session = load(write(tmp_path / "t.json", events))
    assert "unrecorded-graph-kernels" not in session.notes
    assert session.facts["ascend"]["ranks"][0]["graph"]["replays"] == 3


def test_content_decides_which_reader_reads(tmp_path: Path) -> None:
    trace = write(tmp_path / "any name.txt", string_times())
    packed = tmp_path / "x.json"
    packed.write_bytes(gzip.compress(trace.read_bytes()))
    for path in (trace, packed):
        reader = reader_of(path)
        assert reader is not None and reader.__name__.endswith("ascend_trace")  # type: ignore[attr-defined]
        assert len(load(path).timeline) == 4
    kineto = write(tmp_path / "k.json", [{"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1, "dur": 1}])
    assert reader_of(kineto) is None
    other = tmp_path / "folder"
    other.mkdir()
    (other / "trace_view.txt").write_text("[]")
    with pytest.raises(InputError, match="no known profile"):
        load(other)


def test_processes_without_names_are_told_by_their_rows(tmp_path: Path) -> None:
    events = [e for e in ascend.trace_events() if e["ph"] != "M"]
    timeline = load(write(tmp_path / "t.json", events)).timeline
    assert len(timeline.rows(Kind.KERNEL)) == 5
    assert [timeline.name(r) for r in timeline.rows(Kind.COLLECTIVE)] == [ascend.COLLECTIVE[0]]
    assert len(timeline.rows(Kind.OPERATOR)) == 7


def test_no_host_side_at_all(tmp_path: Path) -> None:
    events = [
        *process(5, "Ascend Hardware", "NPU 6"),
        span("k", 5, 2, f"{EPOCH_US}.000", 3.0, **{"Task Type": "AI_CORE"}),
    ]
    session = load(write(tmp_path / "t.json", events))
    (track,) = {session.timeline.track_of(int(r)) for r in session.timeline.device_work()}
    assert (track.device, track.stream) == (6, 2)


def test_unknown_task_types_are_counted_and_named(tmp_path: Path) -> None:
    events = [
        *process(5, "Ascend Hardware", "NPU 0"),
        span("x", 5, 2, f"{EPOCH_US}.000", 3.0, **{"Task Type": "NEW_THING"}),
    ]
    session = load(write(tmp_path / "t.json", events))
    note = session.notes.get("unknown-task-type")
    assert note is not None and "NEW_THING" in note.text
    assert len(session.timeline.device_work()) == 0


def test_ids_beyond_64_bits_and_double_kernel_starts_stay_apart(tmp_path: Path) -> None:
    at = f"{EPOCH_US}.500"
    events = [
        *process(100, "Python"), *process(102, "Ascend Hardware", "NPU 0"),
        span("aten::a", 100, 1, f"{EPOCH_US}.100", 1.0) | {"cat": "cpu_op"},
        span("aten::b", 100, 1, f"{EPOCH_US}.200", 0.5) | {"cat": "cpu_op"},
        span("ka", 102, 2, at, 1.0, **{"Task Type": "AI_CORE"}), span("kb", 102, 3, at, 1.0, **{"Task Type": "AI_CORE"}),
    ]  # fmt: skip
    for tid, op in ((2, ".100"), (3, ".200")):
        common = {"cat": "async_npu", "name": "torch_to_npu", "id": EPOCH_US * 1000 + 500}
        events.append(common | {"ph": "s", "pid": 100, "tid": 1, "ts": f"{EPOCH_US}{op}"})
        events.append(common | {"ph": "f", "pid": 102, "tid": tid, "ts": at})
    timeline = load(write(tmp_path / "t.json", events)).timeline
    pairs = {
        (timeline.name(int(a)), timeline.name(int(b)))
        for a, b in zip(timeline.flows.from_row, timeline.flows.to_row, strict=True)
    }
    assert pairs == {("aten::a", "ka"), ("aten::b", "kb")}


# -- tables ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["kernel_details.csv", "whatever.csv"])
def test_a_kernel_table_alone(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    ascend.write_csv(path, ascend.kernel_rows())
    for source in (path, tmp_path):
        session = load(source)
        assert sum(k.count for k in analyze(session, {}).kernels) == 6
        assert session.facts["ascend"]["ranks"][0]["steps"][0]["computing_ns"] == 160_500


def test_metrics_of_chips_without_core_prefixes(tmp_path: Path) -> None:
    path = tmp_path / "op_summary_20260101120000.csv"
    rows = [
        {"Op Name": "Conv", "OP Type": "Conv2D", "Task Type": "AI_CORE", "Task Start Time(us)": f"{EPOCH_US}.5\t",
         "Task Duration(us)": "7.25", "Block Dim": "8", "vec_ratio": "0.1", "mac_ratio": "0.9", "memory_bound": "0.2"},
    ]  # fmt: skip
    ascend.write_csv(path, rows)
    timeline = load(path).timeline
    assert timeline.spans.dur_ns.tolist() == [7_250]
    args = timeline.arguments(0)
    assert (args["vec_ratio"], args["mac_ratio"], args["memory_bound"], args["Block Num"]) == (
        0.1,
        0.9,
        0.2,
        8,
    )


def test_a_cut_last_row_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv"
    ascend.write_csv(path, ascend.kernel_rows())
    path.write_text(path.read_text()[:-120])
    session = load(path)
    assert len(session.timeline.rows(Kind.KERNEL, Kind.COLLECTIVE)) == 5
    assert session.notes.get("csv-rows-skipped") is not None


# -- msprof ------------------------------------------------------------------------------------------


def test_msprof_tree(tmp_path: Path) -> None:
    session = load(ascend.write_msprof(tmp_path))
    timeline = session.timeline
    assert sum(k.count for k in analyze(session, {}).kernels) == 6
    device = session.facts["devices"][str(ascend.DEVICE)]
    assert (device["aic_cores"], device["aiv_cores"], device["aic_mhz"]) == (20, 40, 1800)
    assert "secret-host" not in json.dumps(session.facts)
    assert (timeline.spans.launch_row[timeline.device_work()] >= 0).all()
    assert {t.process for t in timeline.tracks if t.role == "host"} == {ascend.PID}


def test_newest_export_in_slices(tmp_path: Path) -> None:
    session = load(ascend.write_msprof(tmp_path, stamps=("20260101120000", "20260102120000"), slices=3))
    assert sum(k.count for k in analyze(session, {}).kernels) == 6
    assert session.facts["ascend"]["ranks"][0]["links"]["device_events"] == 7
    note = session.notes.get("older-exports")
    assert note is not None and "20260101120000" in note.first


def test_a_tree_that_was_never_exported(tmp_path: Path) -> None:
    folder = tmp_path / "PROF_000001_20260101120000123_ABC"
    (folder / "device_0").mkdir(parents=True)
    (folder / "device_0" / "info.json.0").write_text("{}")
    with pytest.raises(InputError, match="never exported"):
        load(folder)


# -- MindSpore ---------------------------------------------------------------------------------------


def mindspore_folder(parent: Path) -> Path:
    folder = parent / "host_1_20260101_ascend_ms"
    output = folder / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    (folder / "profiler_info_0.json").write_text(
        json.dumps({"profiler_level": "Level1", "rank_id": 0, "mindspore_version": "2.10.0"})
    )
    events: list[dict[str, Any]] = [
        *process(1, "MindSpore", "CPU"), *process(2, "CPU OP", "CPU"), *process(3, "Scope Layer", "NPU"),
        *process(101, "CANN", "CPU"), *process(102, "Ascend Hardware", "NPU 0"),
        span("ProfilerStep#1", 1, 77, f"{EPOCH_US}.000", 500.0),
        span("net.py(5): construct", 1, 77, f"{EPOCH_US + 1}.000", 400.0),
        span("PynativeFramework::MatMul", 1, 77, f"{EPOCH_US + 10}.000", 100.0),
        span("Default/network/Add", 2, 78, f"{EPOCH_US + 20}.000", 5.0),
        span("Node@launch", 101, 77, f"{EPOCH_US + 20}.000", 10.0, level="node", connection_id=5),
        span("MatMul-op0", 102, 2, f"{EPOCH_US + 50}.000", 30.0, **{"Task Type": "AI_CORE", "connection_id": 5}),
        span("network-Net", 3, 0, f"{EPOCH_US + 50}.000", 30.0),
        {"ph": "s", "name": "mindspore_to_npu", "cat": "async_npu", "id": f"{EPOCH_US + 50}.000", "pid": 1, "tid": 77, "ts": f"{EPOCH_US + 10}.000"},
        {"ph": "f", "name": "mindspore_to_npu", "cat": "async_npu", "id": f"{EPOCH_US + 50}.000", "pid": 102, "tid": 2, "ts": f"{EPOCH_US + 50}.000"},
    ]  # fmt: skip
    write(output / "trace_view.json", events)
    row = {"Step ID": 1, "Device_id": 0, "Name": "MatMul-op0", "Type": "MatMul", "Accelerator Core": "AI_CORE",
           "Start Time(us)": f"{EPOCH_US + 50}.000\t", "Duration(us)": "30.0", "Wait Time(us)": "0", "Block Num": 20}  # fmt: skip
    ascend.write_csv(output / "kernel_details.csv", [row])
    return folder


def test_mindspore_folder(tmp_path: Path) -> None:
    session = load(mindspore_folder(tmp_path))
    timeline = session.timeline
    assert session.facts["producer"] == "MindSpore 2.10.0"
    facts = session.facts["ascend"]["ranks"][0]
    assert (facts["level"], facts["rank"]) == ("Level1", 0)
    kernel = int(timeline.rows(Kind.KERNEL)[0])
    assert timeline.arguments(kernel)["Step Id"] == 1
    launch = int(timeline.spans.launch_row[kernel])
    assert timeline.name(int(timeline.spans.parent[launch])) == "PynativeFramework::MatMul"
    assert [timeline.name(r) for r in timeline.rows(Kind.PYTHON)] == ["net.py(5): construct"]
    assert [timeline.name(r) for r in timeline.rows(Kind.ANNOTATION)] == ["ProfilerStep#1"]
    assert facts["links"]["operator_by"]["async_npu"] == 1
    assert len(analyze(session).steps) == 1


def test_mindspore_kernels_named_by_their_launch_are_those_of_the_trace(tmp_path: Path) -> None:
    """MindSpore writes "launch operator/kernel" into kernel_details.csv, the kernel alone into the trace."""
    folder = mindspore_folder(tmp_path)
    table = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    table.write_text(table.read_text().replace("MatMul-op0", "KernelLaunch::MatMul/MatMul-op0"))
    session = load(folder)
    assert [(k.name, k.count) for k in analyze(session, {}).kernels] == [
        ("KernelLaunch::MatMul/MatMul-op0", 1)
    ]
    assert session.facts["ascend"]["ranks"][0]["links"]["kernels_with_launch"] == 1
    # the same start alone makes no match
    table.write_text(table.read_text().replace("/MatMul-op0", "/Other-op0"))
    assert sum(k.count for k in analyze(load(folder), {}).kernels) == 2


def test_mindspore_steps_are_cut_at_their_ends_on_the_host(tmp_path: Path) -> None:
    folder = mindspore_folder(tmp_path)
    path = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    events = json.loads(path.read_text())
    later = span("Add-op1", 102, 2, f"{EPOCH_US + 700}.000", 10.0, **{"Task Type": "AI_CORE"})
    path.write_text(json.dumps([*events, later]))
    (step,) = load(folder).facts["ascend"]["ranks"][0]["steps"]
    # free from 80 us to the end of the step at 500 us, not to the next kernel at 700 us
    assert (step["step"], step["computing_ns"]) == (1, 30_000)
    assert step["free_ns"] == pytest.approx(420_000, abs=1)
