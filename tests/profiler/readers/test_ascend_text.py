"""Text folders of torch_npu: kinds, tracks, kernel table, links, steps, levels and versions, damage."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from stallscope.analyzers import analyze
from stallscope.profiler.errors import InputError
from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import load
from stallscope.profiler.readers.ascend_links import operators_of
from stallscope.profiler.session import Session
from support import ascend


def kernel_table(session: Session) -> dict[str, tuple[int, int]]:
    return {k.name: (k.count, k.total_ns) for k in analyze(session, {}).kernels}


def expected_kernels() -> dict[str, tuple[int, int]]:
    out: dict[str, list[int]] = {}
    for k in ascend.KERNELS:
        out.setdefault(k.name, []).append(k.dur)
    out[ascend.COLLECTIVE[0]] = [ascend.COLLECTIVE[2]]
    return {name: (len(d), sum(d)) for name, d in out.items()}


def operator_names(session: Session) -> dict[int, str]:
    """Absolute start of each kernel and collective -> the operator that caused it."""
    timeline = session.timeline
    rows = timeline.rows(Kind.KERNEL, Kind.COLLECTIVE)
    operators, _ = operators_of(timeline, rows)
    return {
        int(timeline.spans.start_ns[r]) + timeline.origin_ns: timeline.name(int(o)) if o >= 0 else ""
        for r, o in zip(rows.tolist(), operators.tolist(), strict=True)
    }


EXPECTED_OPERATORS = {ascend.BASE + k.start: k.operator for k in ascend.KERNELS} | {
    ascend.BASE + ascend.COLLECTIVE[1]: "c10d::allreduce_"
}

VERSIONS = [
    {"level": 0},
    {"level": 1},
    {"level": 2},
    {"level": 1, "new_pids": False},
    {"level": 1, "block": "Block Dim", "collective": "HCCL"},
    {"level": 1, "process": "Communication"},
]


@pytest.mark.parametrize("version", VERSIONS, ids=str)
def test_every_version_gives_the_same_kernels_operators_and_steps(
    tmp_path: Path, version: dict[str, object]
) -> None:
    session = load(ascend.write_text(tmp_path, 0, **version))  # type: ignore[arg-type]
    facts = session.facts["ascend"]["ranks"][0]
    assert kernel_table(session) == expected_kernels()
    assert operator_names(session) == EXPECTED_OPERATORS
    assert facts["links"]["kernels_with_launch"] == facts["links"]["kernels_with_operator"] == 6
    assert facts["links"]["device_events_with_launch"] == 7
    for told, own in zip(facts["step_trace_time"], facts["steps"], strict=True):
        for key in ("computing_ns", "communication_ns", "free_ns"):
            assert told[key] == own[key]
    assert "step-times-differ" not in session.notes
    assert session.facts["devices"].keys() == {str(ascend.DEVICE)}


def test_times_are_exact_and_the_copy_and_the_wait_keep_their_class(tmp_path: Path) -> None:
    timeline = load(ascend.write_text(tmp_path)).timeline
    starts = timeline.spans.start_ns + timeline.origin_ns
    first = timeline.rows(Kind.KERNEL)[np.argmin(starts[timeline.rows(Kind.KERNEL)])]
    assert starts[first] == ascend.BASE + 200_000
    assert timeline.spans.dur_ns[first] == 120_500
    assert [timeline.name(r) for r in timeline.rows(Kind.MEMCPY)] == ["MEMCPY_ASYNC"]
    assert {timeline.name(r) for r in timeline.rows(Kind.DEVICE_WAIT)} == {"EVENT_WAIT", "Notify Wait"}
    assert timeline.clock == "realtime"


def test_derived_rows_and_parts_of_collectives_are_labels(tmp_path: Path) -> None:
    session = load(ascend.write_text(tmp_path))
    timeline = session.timeline
    headline = analyze(session, {}).headline
    assert headline.compute_ns == sum(k.dur for k in ascend.KERNELS)
    assert headline.collective_ns == ascend.COLLECTIVE[2]
    assert headline.memcpy_ns == ascend.COPY[2]
    for row in range(len(timeline)):
        name = timeline.name(row)
        if name in ("Computing", "Communication", "Free", "SDMA", "Memcpy"):
            assert timeline.spans.kind[row] == Kind.DEVICE_ANNOTATION
            assert timeline.track_of(row).role == "label"
    note = session.notes.get("derived-rows")
    assert note is not None and note.severity == "info"


def test_calls_nest_in_the_dequeue_and_the_dequeue_points_at_the_enqueue(tmp_path: Path) -> None:
    timeline = load(ascend.write_text(tmp_path, 0, 2)).timeline
    spans = timeline.spans
    kernel = int(timeline.rows(Kind.KERNEL)[0])
    launch = int(spans.launch_row[kernel])
    assert timeline.name(launch) == "Node@launch"
    assert timeline.category(launch) == "node"
    dequeue = int(spans.parent[launch])
    assert timeline.name(dequeue) == "Dequeue@aclnnMatMulV3"
    enqueue = int(spans.launch_row[dequeue])
    assert timeline.name(enqueue) == "Enqueue@aclnnMatMulV3"
    assert timeline.name(int(spans.parent[enqueue])) == "aten::linear"
    runtime = next(
        r for r in timeline.rows(Kind.RUNTIME).tolist() if timeline.name(r) == "Runtime@KernelLaunch"
    )
    assert timeline.name(int(spans.parent[runtime])) == "Node@launch"
    assert timeline.track_of(launch).thread == ascend.WORKER
    assert timeline.track_of(launch).process == ascend.PID


def test_level_0_links_kernels_to_the_dequeue_that_holds_the_arrow(tmp_path: Path) -> None:
    timeline = load(ascend.write_text(tmp_path, 0, 0)).timeline
    for kernel in timeline.rows(Kind.KERNEL).tolist():
        assert timeline.spans.kind[timeline.spans.launch_row[kernel]] == Kind.QUEUE


def test_kernel_attributes_are_joined(tmp_path: Path) -> None:
    timeline = load(ascend.write_text(tmp_path)).timeline
    by_type = {
        timeline.arguments(r)["Type"]: timeline.arguments(r) for r in timeline.rows(Kind.KERNEL).tolist()
    }
    matmul, add = by_type["MatMulV3"], by_type["Add"]
    assert matmul["Input Shapes"] == [[8, 64], [64, 64]]
    assert matmul["Input Data Types"] == ["FLOAT16", "FLOAT16"]
    assert (matmul["Block Num"], matmul["Wait Time(us)"], matmul["Accelerator Core"]) == (20, 12.5, "AI_CORE")
    # the trace calls every vector kernel AI_CORE; the table knows better
    assert add["Task Type"] == "AI_CORE" and add["Accelerator Core"] == "AI_VECTOR_CORE"
    assert add["Input Shapes"] == [[8, 64], []]
    # the core that never ran says nothing instead of zero
    assert "aic_mac_ratio" in matmul and "aic_mac_ratio" not in add
    assert "aiv_vec_ratio" in add and "aiv_vec_ratio" not in matmul
    assert "aicore_time(us)" not in by_type["NonZero"]


def test_operator_shapes_are_lists_as_other_profilers_write_them(tmp_path: Path) -> None:
    timeline = load(ascend.write_text(tmp_path)).timeline
    row = int(timeline.rows(Kind.OPERATOR)[0])
    assert timeline.arguments(row)["Input Dims"] == [[8, 64], [64, 64], []]
    assert timeline.arguments(row)["Input type"] == ["c10::Half", "c10::Half", "Scalar"]


def test_settings_are_kept_and_private_things_are_not(tmp_path: Path) -> None:
    session = load(ascend.write_text(tmp_path))
    facts = session.facts["ascend"]["ranks"][0]
    assert facts["level"] == "Level1" and facts["aic_metrics"] == "PipeUtilization"
    assert session.facts["producer"] == "torch_npu 2.14.0, CANN 9.0.0"
    assert facts["environment"] == {"ASCEND_LAUNCH_BLOCKING": "1"}
    assert facts["parallel"] == {"rank": 0, "world_size": 2}
    assert facts["groups"]["g"]["ranks"] == [0, 1]
    dump = json.dumps(session.facts)
    for private in ("hunter2", "10.0.0.1", "someone", "user_note"):
        assert private not in dump


def test_counters_and_memory(tmp_path: Path) -> None:
    session = load(ascend.write_text(tmp_path))
    counters = session.timeline.counters
    names = {session.timeline.strings[int(c)] for c in counters.name}
    assert {"AI Core Freq (MHz)", "memory PTA reserved (bytes)"} <= names
    freq = counters.value[counters.name == session.timeline.strings.find("AI Core Freq (MHz)")]
    assert freq.tolist() == [1800.0, 800.0]
    assert session.facts["ascend"]["ranks"][0]["core_clock"] == {"aic_mhz": 1800.0, "aiv_mhz": 1800.0}
    assert session.timeline.allocations.bytes.tolist() == [2048]


def test_ranks_of_a_folder_become_one_session(tmp_path: Path) -> None:
    ascend.write_text(tmp_path, 0)
    ascend.write_text(tmp_path, 1)
    session = load(tmp_path)
    timeline = session.timeline
    assert {t.rank for t in timeline.tracks} == {0, 1}
    assert kernel_table(session) == {
        name: (2 * n, 2 * total) for name, (n, total) in expected_kernels().items()
    }
    # links never cross ranks although all ids repeat
    spans = timeline.spans
    linked = np.flatnonzero(spans.launch_row >= 0)
    rank = np.array([t.rank for t in timeline.tracks])[spans.track]
    assert (rank[linked] == rank[spans.launch_row[linked]]).all()
    assert session.facts["world_size"] == 2


def test_one_bad_rank_costs_that_rank(tmp_path: Path) -> None:
    ascend.write_text(tmp_path, 0)
    bad = ascend.write_text(tmp_path, 1) / "ASCEND_PROFILER_OUTPUT"
    for file in bad.iterdir():
        file.unlink()
    session = load(tmp_path)
    assert kernel_table(session) == expected_kernels()
    note = session.notes.get("rank-not-loaded")
    assert note is not None and note.severity == "data_loss" and "rank1" in note.first


def test_runs_of_different_moments_are_not_mixed(tmp_path: Path) -> None:
    ascend.write_text(tmp_path / "old", 0)
    newer = ascend.write_text(tmp_path / "new", 0)
    trace = newer / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    text = trace.read_text().replace('"1700000', '"1800000')
    trace.write_text(text)
    (newer / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").unlink()
    session = load(tmp_path)
    assert session.timeline.origin_ns // 10**15 == 1800
    note = session.notes.get("several-recordings")
    assert note is not None and "old" in note.first
    assert sum(n for n, _ in kernel_table(session).values()) == 6


def test_times_a_spreadsheet_destroyed_cost_only_that_file(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path)
    table = folder / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv"
    with table.open(newline="") as file:
        rows = list(csv.DictReader(file))
    for row in rows:
        row["Start Time(us)"] = "1.70000E+15"
    ascend.write_csv(table, rows)
    session = load(folder)
    note = session.notes.get("destroyed-timestamps")
    assert note is not None and note.first == "kernel_details.csv"
    assert kernel_table(session) == expected_kernels()
    with pytest.raises(InputError, match="spreadsheet"):
        load(table)


def test_a_cut_trace_leaves_the_tables(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path)
    trace = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    trace.write_bytes(b"\x00\x01 not a trace")
    session = load(folder)
    assert kernel_table(session) == expected_kernels()
    assert session.facts["ascend"]["ranks"][0]["links"]["kernels_with_launch"] is None


def test_without_a_trace_kernels_come_from_the_table(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path)
    (folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").unlink()
    session = load(folder)
    assert kernel_table(session) == expected_kernels()
    assert {n.code for n in session.notes} >= {"no-trace-view", "host-device-links-missing"}
    timeline = session.timeline
    assert timeline.arguments(int(timeline.rows(Kind.KERNEL)[0]))["Stream Id"] == 2
    assert {t.name for t in timeline.tracks} >= {"Stream 2", "Communication"}


def test_a_folder_that_was_never_analysed_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "host_1_2_ascend_pt"
    (folder / "FRAMEWORK").mkdir(parents=True)
    ascend.write_info(folder, 0)
    with pytest.raises(InputError, match=r"never analysed.*analyse"):
        load(folder)


def test_connection_ids_that_mean_none_link_nothing(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path)
    trace = folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json"
    events = json.loads(trace.read_text())
    events = [e for e in events if e["ph"] not in "sf"]
    for event in events:
        if "connection_id" in event.get("args", {}):
            event["args"]["connection_id"] = 4294967295
    trace.write_text(json.dumps(events))
    session = load(folder)
    assert (session.timeline.spans.launch_row[session.timeline.device_work()] < 0).all()
    assert "host-device-links-missing" in session.notes


def test_hardware_of_the_raw_data_is_added(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path)
    ascend.write_msprof(folder)
    device = load(folder).facts["devices"][str(ascend.DEVICE)]
    assert (device["aic_cores"], device["aic_mhz"]) == (20, 1800)


def test_an_unfinished_analysis_leaves_the_devices_half(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path)
    for file in (folder / "ASCEND_PROFILER_OUTPUT").iterdir():
        file.unlink()
    ascend.write_msprof(folder)
    session = load(folder)
    assert kernel_table(session) == expected_kernels()
    assert "analysis-unfinished" in session.notes
    assert session.facts["ascend"]["ranks"][0]["level"] == "Level1"
