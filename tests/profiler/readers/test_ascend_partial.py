"""Recordings of which a part is missing: what is left is read, and worked out where it can be."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from stallscope.analyzers import analyze
from stallscope.cli.main import cli
from stallscope.profiler.errors import InputError
from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import load
from stallscope.profiler.readers.ascend_rank import Kernels
from stallscope.profiler.readers.ascend_steps import range_of, step_times
from stallscope.profiler.session import Session
from support import ascend

OUTPUT = "ASCEND_PROFILER_OUTPUT"
MAIN_DB = "ascend_pytorch_profiler_0.db"


def facts_of(session: Session, rank: int = 0) -> dict[str, Any]:
    facts: dict[str, Any] = session.facts["ascend"]["ranks"][rank]
    return facts


def rewrite(path: Path, change: Any) -> None:
    """Change every row of a CSV in place."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    ascend.write_csv(path, [change(row) or row for row in rows])


def only(folder: Path, *names: str) -> Path:
    """Remove all results but some."""
    for path in (folder / OUTPUT).iterdir():
        if path.name not in names:
            path.unlink()
    return folder


def expected_types() -> dict[tuple[str, str], tuple[int, int]]:
    out = {
        (row["OP Type"], row["Core Type"]): (row["Count"], round(row["Total Time(us)"] * 1000))
        for row in ascend.op_statistic_rows()
    }
    return out | {("hcom_allReduce_", "COMMUNICATION"): (1, ascend.COLLECTIVE[2])}


# -- totals and steps, whatever is there ---------------------------------------------------------------


@pytest.mark.parametrize("write", [ascend.write_text, ascend.write_db, ascend.write_msprof])
def test_totals_by_type_are_those_of_op_statistic(tmp_path: Path, write: Any) -> None:
    types = facts_of(load(write(tmp_path)))["kernel_types"]
    assert {(t["type"], t["core"]): (t["count"], t["total_ns"]) for t in types} == expected_types()
    assert {t["device"] for t in types} == {ascend.DEVICE}
    assert [t["total_ns"] for t in types] == sorted((t["total_ns"] for t in types), reverse=True)


@pytest.mark.parametrize("level", [0, 1, 2])
def test_steps_of_a_trace_without_a_kernel_table(tmp_path: Path, level: int) -> None:
    whole = facts_of(load(ascend.write_text(tmp_path / "whole", 0, level)))
    folder = ascend.write_text(tmp_path / "cut", 0, level)
    (folder / OUTPUT / "kernel_details.csv").unlink()
    for source in (folder, folder / OUTPUT / "trace_view.json"):
        facts = facts_of(load(source))
        assert facts["steps"] == whole["steps"]
        assert sum(t["count"] for t in facts["kernel_types"]) == 6
    assert "step-times-differ" not in load(folder).notes


def test_a_copy_that_ends_a_step_counts_the_pause_after_it(tmp_path: Path) -> None:
    """The profiler's ranges end with the last task that the step's calls started, be it a copy."""
    folder = only(ascend.write_text(tmp_path), "trace_view.json")
    path = folder / OUTPUT / "trace_view.json"
    events = json.loads(path.read_text())
    for e in events:
        if e["name"] == "ProfilerStep#7":
            e["dur"] = 350
    path.write_text(json.dumps(events))
    step = facts_of(load(folder))["steps"][0]
    # the copy, enqueued at 320 us, ends at 450 us, so the pause from 380 us to the all-reduce at 500 us counts
    assert (step["step"], step["free_ns"]) == (7, 19_500 + 120_000)


def test_a_database_that_does_not_describe_its_kernels(tmp_path: Path) -> None:
    whole = facts_of(load(ascend.write_db(tmp_path / "whole")))
    folder = ascend.write_db(tmp_path / "cut")
    connection = sqlite3.connect(folder / OUTPUT / MAIN_DB)
    # the parent of the mixed kernel is told apart by its description alone
    connection.execute("DELETE FROM TASK WHERE globalTaskId = 50")
    connection.execute("DROP TABLE COMPUTE_TASK_INFO")
    connection.commit()
    connection.close()
    assert facts_of(load(folder))["steps"] == whole["steps"]


def table(start: list[int], end: list[int]) -> Kernels:
    n = len(start)
    zeros = np.zeros(n, np.int32)
    times = np.array(start, np.int64)
    return Kernels(times, np.array(end, np.int64) - times, zeros, zeros, zeros.astype(np.int64), zeros, zeros,
                   np.zeros(n, bool), np.full(n, -1, np.int64))  # fmt: skip


def test_each_piece_counts_to_the_first_range_that_holds_its_start() -> None:
    spans = [(1, (0, 100)), (2, (60, 90)), (3, (80, 200))]
    assert range_of(np.array([-1, 0, 70, 99, 100, 199, 200]), spans).tolist() == [-1, 0, 0, 0, 2, 2, -1]
    (one, three) = step_times(table([10, 70, 120], [40, 110, 150]), dict(spans))
    assert (one["step"], one["computing_ns"], one["free_ns"], one["free_inside_ns"]) == (1, 70, 30, 30)
    # the hole from 110 to 120 begins in the range of step 3, before its first kernel
    assert (three["step"], three["computing_ns"], three["free_ns"], three["free_inside_ns"]) == (3, 30, 10, 0)


def test_steps_with_very_long_numbers(tmp_path: Path) -> None:
    number = 123456789012345678
    folder = ascend.write_text(tmp_path)
    path = folder / OUTPUT / "trace_view.json"
    path.write_text(path.read_text().replace("ProfilerStep#7", f"ProfilerStep#{number}"))
    for name, column in (("kernel_details.csv", "Step Id"), ("step_trace_time.csv", "Step")):
        rewrite(folder / OUTPUT / name, lambda row, c=column: row.update({c: number if row[c] == "7" else row[c]}))  # fmt: skip
    (folder / OUTPUT / "communication.json").write_text(
        json.dumps({f"step{number}": {"collective": {"a@g": {"Communication Time Info": {}}}}})
    )
    facts = facts_of(load(folder))
    assert [s["step"] for s in facts["steps"]] == [number, 8]
    assert [s["step"] for s in facts["step_trace_time"]] == [number, 8]
    assert facts["communication"][0]["step"] == number


# -- cells and ids that are missing --------------------------------------------------------------------


def test_a_duration_that_the_table_leaves_out_comes_from_the_trace(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path)
    table_path = folder / OUTPUT / "kernel_details.csv"
    rewrite(table_path, lambda row: row.update({"Duration(us)": "N/A"}))
    busy = sum(k.dur for k in ascend.KERNELS)
    assert analyze(load(folder), {}).headline.compute_ns == busy
    (folder / OUTPUT / "trace_view.json").unlink()
    session = load(folder)
    assert analyze(session, {}).headline.compute_ns == 0
    note = session.notes.get("invalid-duration")
    assert note is not None and note.count == 6


def test_parts_of_collectives_are_known_without_connection_ids(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path)
    path = folder / OUTPUT / "trace_view.json"
    events = json.loads(path.read_text())
    for e in events:
        args = e.get("args", {})
        args.pop("connection_id", None)
        if "task type" in args:
            args["stream id"] = 4
    path.write_text(json.dumps(events))
    timeline = load(folder).timeline
    assert [timeline.name(r) for r in timeline.rows(Kind.MEMCPY)] == ["MEMCPY_ASYNC"]


def test_two_devices_that_start_alike_keep_their_kernels_apart(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path)
    path = folder / OUTPUT / "trace_view.json"
    events = json.loads(path.read_text())
    device = [e for e in events if e["pid"] >> 10 == ascend.PID and e["pid"] >> 5 & 31 != 7]
    path.write_text(json.dumps(events + [e | {"pid": e["pid"] + 1} for e in device]))
    table_path = folder / OUTPUT / "kernel_details.csv"
    with table_path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    ascend.write_csv(table_path, rows + [row | {"Device_id": str(ascend.DEVICE + 1)} for row in rows])
    session = load(folder)
    assert sum(k.count for k in analyze(session, {}).kernels) == 12
    assert "kernels-only-in-table" not in session.notes
    assert {(t["device"], t["count"]) for t in facts_of(session)["kernel_types"] if t["type"] == "Add"} == {
        (ascend.DEVICE, 1), (ascend.DEVICE + 1, 1)}  # fmt: skip


# -- folders -------------------------------------------------------------------------------------------


def test_ranks_in_a_folder_for_each_node_are_one_run(tmp_path: Path) -> None:
    for node in (0, 1):
        ascend.write_text(tmp_path / f"node{node}", node)
    session = load(tmp_path)
    assert [facts_of(session, i)["rank"] for i in (0, 1)] == [0, 1]
    assert "several-recordings" not in session.notes


def test_the_same_rank_in_another_folder_is_another_run(tmp_path: Path) -> None:
    for run in ("a", "b"):
        ascend.write_text(tmp_path / run, 0)
    session = load(tmp_path)
    assert len(session.facts["ascend"]["ranks"]) == 1
    assert "several-recordings" in session.notes


def test_tables_alone_give_a_report_without_a_verdict(tmp_path: Path) -> None:
    folder = only(ascend.write_text(tmp_path), "step_trace_time.csv", "op_statistic.csv")
    report = tmp_path / "report.json"
    result = CliRunner().invoke(cli, ["analyze", str(folder), "--json", str(report)])
    assert result.exit_code == 0, result.output
    written = json.loads(report.read_text())
    assert written["verdict"]["text"].startswith("No verdict")
    assert written["findings"] == []
    assert {r["status"] for r in written["rules"]} == {"not_analysable"}
    assert [s["step"] for s in written["facts"]["ascend"]["ranks"][0]["step_trace_time"]] == [7, 8]


def test_tables_that_tell_nothing_of_the_run_are_named(tmp_path: Path) -> None:
    folder = only(ascend.write_text(tmp_path))
    (folder / OUTPUT / "api_statistic.csv").write_text("Level,API Name,Time(us),Count\nacl,a,1,1\n")
    with pytest.raises(InputError, match="without a timeline"):
        load(folder)


def test_a_database_of_msprof_in_the_results_is_read(tmp_path: Path) -> None:
    folder = ascend.write_db(tmp_path)
    (folder / OUTPUT / "analysis.db").unlink()
    (folder / OUTPUT / MAIN_DB).rename(folder / OUTPUT / "msprof_20260101120000.db")
    session = load(folder)
    assert len(session.timeline.rows(Kind.KERNEL)) == 5
    assert facts_of(session)["level"] == "Level1"


def test_a_damaged_database_is_named_or_noted(tmp_path: Path) -> None:
    folder = ascend.write_db(tmp_path)
    main = folder / OUTPUT / MAIN_DB
    main.write_bytes(main.read_bytes()[:16] + b"\x5a" * 5000)
    assert "database-unreadable" in load(folder).notes
    (folder / OUTPUT / "analysis.db").unlink()
    with pytest.raises(InputError, match="damaged database"):
        load(folder)
    shutil.rmtree(folder / OUTPUT)
    (folder / OUTPUT).mkdir()
    with pytest.raises(InputError, match="without results"):
        load(folder)


def test_a_viewers_own_database_beside_the_results_is_none_of_theirs(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path)
    connection = sqlite3.connect(folder / OUTPUT / "mindstudio_insight_data.db")
    connection.execute("CREATE TABLE slice (id INT, name TEXT)")
    connection.commit()
    connection.close()
    (folder / OUTPUT / "other.db").write_bytes(b"SQLite format 3\0" + b"\x5a" * 99)
    session = load(folder)
    assert session.facts["format"] == "ascend-text"
    assert "database-unreadable" not in session.notes


def test_a_database_without_calls_still_knows_the_operators(tmp_path: Path) -> None:
    folder = ascend.write_db(tmp_path)
    connection = sqlite3.connect(folder / OUTPUT / MAIN_DB)
    connection.execute("DROP TABLE CANN_API")
    connection.execute("UPDATE STRING_IDS SET value = 'N/A' WHERE value = 'MatMulV3'")
    connection.commit()
    connection.close()
    facts = facts_of(load(folder))
    assert (facts["links"]["kernels_with_operator"], facts["links"]["kernels_with_launch"]) == (6, 0)
    assert {t["type"]: t["count"] for t in facts["kernel_types"]}[""] == 2


def test_numbers_that_cannot_be_devices_or_ranks_are_not_taken_for_them(tmp_path: Path) -> None:
    folder = ascend.write_db(tmp_path / "db")
    connection = sqlite3.connect(folder / OUTPUT / MAIN_DB)
    connection.execute("UPDATE AICORE_FREQ SET deviceId = 4294967295")
    connection.execute("UPDATE TASK SET deviceId = 99999999999 WHERE globalTaskId = 0")
    connection.execute("UPDATE RANK_DEVICE_MAP SET rankId = 4294967295")
    connection.commit()
    connection.close()
    info = folder / "profiler_info_0.json"
    info.write_text(info.read_text().replace('"rank_id": "0"', '"rank_id": "99999999999"'))
    info.rename(folder / "profiler_info.json")
    (folder / "profiler_metadata.json").unlink()
    session = load(folder)
    assert {t.device for t in session.timeline.tracks if t.role == "device"} == {0, ascend.DEVICE}
    assert facts_of(session)["rank"] == -1
    text = ascend.write_text(tmp_path / "text")
    rewrite(text / OUTPUT / "kernel_details.csv", lambda row: row.update({"Device_id": "99999999999"}))
    assert {t["device"] for t in facts_of(load(text))["kernel_types"]} == {ascend.DEVICE}
