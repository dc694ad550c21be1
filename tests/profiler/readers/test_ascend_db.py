"""Databases: the same answers as the text of the same run, and every way a database can be odd."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
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

OUTPUT = "ASCEND_PROFILER_OUTPUT"


def database(folder: Path) -> Path:
    return next((folder / OUTPUT).glob("ascend_pytorch_profiler*.db"))


def rows_of(session: Session, *kinds: Kind) -> list[tuple[object, ...]]:
    """What matters of every row of some kinds, in an order that does not depend on the reader."""
    t = session.timeline
    out = []
    for r in t.rows(*kinds).tolist():
        launch = int(t.spans.launch_row[r])
        out.append((int(t.spans.start_ns[r]) + t.origin_ns, int(t.spans.dur_ns[r]), t.name(r), int(t.spans.kind[r]),
                    t.name(launch) if launch >= 0 else "", t.track_of(r).name, t.track_of(r).device))  # fmt: skip
    return sorted(out, key=str)


def test_text_and_database_of_one_run_give_the_same_answer(tmp_path: Path) -> None:
    text = load(ascend.write_text(tmp_path / "text"))
    db = load(ascend.write_db(tmp_path / "db"))
    for kinds in (
        (Kind.KERNEL, Kind.COLLECTIVE),
        (Kind.OPERATOR, Kind.PYTHON, Kind.ANNOTATION),
        (Kind.QUEUE,),
        (Kind.RUNTIME,),
    ):
        assert rows_of(text, *kinds) == rows_of(db, *kinds)
    # a database has one name per task type where the trace has two; times and classes agree
    for kinds in ((Kind.MEMCPY,), (Kind.DEVICE_WAIT,)):
        assert [r[:2] for r in rows_of(text, *kinds)] == [r[:2] for r in rows_of(db, *kinds)]
    reports = [analyze(s, {}) for s in (text, db)]
    assert reports[0].headline == reports[1].headline
    assert reports[0].kernels == reports[1].kernels
    facts = [s.facts["ascend"]["ranks"][0] for s in (text, db)]
    for key in ("core_clock", "kernel_table", "environment"):
        assert facts[0][key] == facts[1][key]
    # kernel_details.csv rounds the start of the collective 1 ns off
    for one, other in zip(facts[0]["steps"], facts[1]["steps"], strict=True):
        assert one == pytest.approx(other, abs=1, rel=0)
    for key in (
        "kernels",
        "kernels_with_launch",
        "kernels_with_operator",
        "device_events",
        "device_events_with_launch",
    ):
        assert facts[0]["links"][key] == facts[1]["links"][key]


def test_operators_of_kernels_agree(tmp_path: Path) -> None:
    names = []
    for session in (load(ascend.write_text(tmp_path / "text")), load(ascend.write_db(tmp_path / "db"))):
        t = session.timeline
        work = t.device_work()
        operator, _ = operators_of(t, work)
        assert (operator >= 0).all()
        names.append(
            sorted((int(t.spans.start_ns[r]), t.name(int(o))) for r, o in zip(work, operator, strict=True))
        )
    assert names[0] == names[1]


def test_kernel_arguments_agree(tmp_path: Path) -> None:
    text, db = (
        load(ascend.write_text(tmp_path / "text")).timeline,
        load(ascend.write_db(tmp_path / "db")).timeline,
    )
    keys = ("Type", "Accelerator Core", "Block Num", "Mix Block Num", "Input Shapes", "Input Data Types", "OP State",
            "Step Id", "aicore_time(us)", "aic_total_cycles", "aic_mac_ratio", "aiv_vec_ratio", "connection_id", "Task Id")  # fmt: skip
    for a, b in zip(text.rows(Kind.KERNEL).tolist(), db.rows(Kind.KERNEL).tolist(), strict=True):
        one, other = text.arguments(a), db.arguments(b)
        for key in keys:
            assert (
                one.get(key) == pytest.approx(other.get(key))
                if isinstance(one.get(key), float)
                else one.get(key) == other.get(key)
            ), key


def test_parent_tasks_of_mixed_kernels_are_not_kernels(tmp_path: Path) -> None:
    session = load(ascend.write_db(tmp_path))
    assert session.facts["ascend"]["ranks"][0]["parent_tasks"] == 1
    assert len(session.timeline.rows(Kind.KERNEL)) == 5


def test_call_stacks_are_kept_innermost_first(tmp_path: Path) -> None:
    timeline = load(ascend.write_db(tmp_path)).timeline
    assert (
        timeline.arguments(int(timeline.rows(Kind.OPERATOR)[0]))["Call stack"]
        == "model.py(10): forward;\r\nmain.py(3): run"
    )


def test_older_column_names_and_a_lone_file(tmp_path: Path) -> None:
    session = load(database(ascend.write_db(tmp_path, block="blockDim")))
    timeline = session.timeline
    assert timeline.arguments(int(timeline.rows(Kind.KERNEL)[0]))["Block Num"] == 20
    assert session.facts["devices"][str(ascend.DEVICE)]["name"] == "Ascend910B"
    assert session.facts["rank"] == 0


def test_nothing_is_written_beside_or_into_the_file(tmp_path: Path) -> None:
    folder = ascend.write_db(tmp_path, wal=True)
    before = {p.name: p.read_bytes() for p in (folder / OUTPUT).iterdir()}
    load(folder)
    assert {p.name: p.read_bytes() for p in (folder / OUTPUT).iterdir()} == before


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
def test_a_write_ahead_database_in_a_read_only_folder(tmp_path: Path) -> None:
    folder = ascend.write_db(tmp_path, wal=True)
    (folder / OUTPUT).chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert len(load(folder).timeline.rows(Kind.KERNEL)) == 5
    finally:
        (folder / OUTPUT).chmod(stat.S_IRWXU)


def test_pages_left_in_the_log_are_read(tmp_path: Path) -> None:
    source = ascend.write_db(tmp_path / "a", wal=True)
    open_ = sqlite3.connect(database(source))
    open_.execute("PRAGMA wal_autocheckpoint=0")
    open_.execute("UPDATE NPU_INFO SET name = 'Ascend910C'")
    open_.commit()
    copy = tmp_path / "copy"
    shutil.copytree(source, copy)
    open_.close()
    assert (database(copy).with_name(database(copy).name + "-wal")).stat().st_size > 0
    assert load(copy).facts["devices"][str(ascend.DEVICE)]["name"] == "Ascend910C"


@pytest.mark.parametrize("table", ["TASK_PMU_INFO", "CANN_API", "PYTORCH_API", "CONNECTION_IDS", "COMMUNICATION_OP", "STRING_IDS",
                                   "COMMUNICATION_TASK_INFO", "RANK_DEVICE_MAP", "COMPUTE_TASK_INFO", "AICORE_FREQ"])  # fmt: skip
def test_every_table_is_optional(tmp_path: Path, table: str) -> None:
    folder = ascend.write_db(tmp_path)
    connection = sqlite3.connect(database(folder))
    connection.execute(f"DROP TABLE {table}")
    connection.commit()
    connection.close()
    session = load(folder)
    work = session.timeline.device_work()
    assert len(work) >= 6
    analyze(session)


def test_what_insight_adds_changes_nothing(tmp_path: Path) -> None:
    plain = load(ascend.write_db(tmp_path / "a"))
    touched = ascend.write_db(tmp_path / "b")
    connection = sqlite3.connect(database(touched))
    connection.execute("ALTER TABLE TASK ADD COLUMN depth INTEGER")
    connection.execute(
        "CREATE TABLE OVERLAP_ANALYSIS (id INT, deviceId INT, startNs INT, endNs INT, type INT)"
    )
    connection.execute(
        f"INSERT INTO OVERLAP_ANALYSIS VALUES (1, {ascend.DEVICE}, {ascend.BASE}, {ascend.BASE + 10**9}, 0)"
    )
    connection.execute("CREATE TABLE _TASK_old_20260101 (startNs INT)")
    connection.commit()
    connection.close()
    assert analyze(load(touched), {}).headline == analyze(plain, {}).headline


def test_connection_ids_of_two_processes_do_not_meet(tmp_path: Path) -> None:
    folder = ascend.write_db(tmp_path)
    connection = sqlite3.connect(database(folder))
    # a second process with the same ids, an hour later, and no tasks of its own
    connection.execute(f"INSERT INTO CANN_API SELECT startNs - 3600000000000, endNs - 3600000000000, type, "
                       f"globalTid + ({1 << 32}), connectionId, name FROM CANN_API")  # fmt: skip
    connection.commit()
    connection.close()
    timeline = load(folder).timeline
    work = timeline.device_work()
    launch = timeline.spans.launch_row[work]
    assert (launch >= 0).all()
    assert {timeline.track_of(int(r)).process for r in launch} == {ascend.PID}


def test_a_kernel_still_running_when_the_next_step_begins_belongs_to_its_own_step(tmp_path: Path) -> None:
    folder = ascend.write_db(tmp_path)
    connection = sqlite3.connect(database(folder))
    # step 8 begins on the host while the device still works on what step 7 launched
    connection.execute("UPDATE PYTORCH_API SET startNs = ? WHERE name = (SELECT id FROM STRING_IDS WHERE value = 'ProfilerStep#8')",
                       (str(ascend.BASE + 315_000),))  # fmt: skip
    connection.execute("UPDATE PYTORCH_API SET endNs = ? WHERE name = (SELECT id FROM STRING_IDS WHERE value = 'ProfilerStep#7')",
                       (str(ascend.BASE + 315_000),))  # fmt: skip
    connection.commit()
    connection.close()
    timeline = load(folder).timeline
    steps = timeline.arg_ints("Step Id")[timeline.rows(Kind.KERNEL)]
    # the add at 340 us was launched at 290 us, inside step 7
    assert steps.tolist() == [7, 7, 8, 8, 8]


def test_a_database_without_tables_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ascend_pytorch_profiler_0.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE a (b INT)")
    connection.execute("DROP TABLE a")
    connection.commit()
    connection.close()
    with pytest.raises(InputError):
        load(path)


def test_a_damaged_database_beside_tables_costs_the_database(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path)
    output = folder / OUTPUT
    (output / "trace_view.json").unlink()
    good = database(ascend.write_db(tmp_path / "db")).read_bytes()
    (output / "ascend_pytorch_profiler_0.db").write_bytes(good[:4096] + b"\x5a" * (len(good) - 4096))
    session = load(folder)
    assert len(session.timeline.rows(Kind.KERNEL)) == 5


def test_analysis_database_alone_says_what_to_give(tmp_path: Path) -> None:
    folder = ascend.write_db(tmp_path)
    with pytest.raises(InputError, match="without a timeline"):
        load(folder / OUTPUT / "analysis.db")


def test_counters_and_ids_are_exact(tmp_path: Path) -> None:
    timeline = load(ascend.write_db(tmp_path)).timeline
    values = timeline.counters.value[timeline.counters.name == timeline.strings.find("AI Core Freq (MHz)")]
    assert values.tolist() == [1800.0, 800.0]
    assert np.isin(timeline.spans.correlation[timeline.rows(Kind.KERNEL)], [11, 12, 15, 16, 17]).all()


def test_operators_that_set_marks_are_operators_in_both_forms(tmp_path: Path) -> None:
    """torch_npu gives them a type of their own in the database, and none in the trace."""
    text = ascend.write_text(tmp_path / "text")
    trace = text / OUTPUT / "trace_view.json"
    mark = {"ph": "X", "name": "mstx_mark_op", "cat": "cpu_op", "pid": ascend.PID, "tid": ascend.MAIN, "ts": ascend.us(95_000),
            "dur": 2, "args": {"Sequence number": -1}}  # fmt: skip
    trace.write_text(json.dumps([*json.loads(trace.read_text()), mark]))
    folder = ascend.write_db(tmp_path / "db")
    connection = sqlite3.connect(database(folder))
    connection.execute("INSERT INTO STRING_IDS VALUES (88888, 'mstx_mark_op')")
    connection.execute("INSERT INTO PYTORCH_API (startNs, endNs, globalTid, name, sequenceNumber, type) VALUES (?, ?, ?, 88888, -1, 50004)",
                       (str(ascend.BASE + 95_000), str(ascend.BASE + 97_000), ascend.PID << 32 | ascend.MAIN))  # fmt: skip
    connection.commit()
    connection.close()
    rows = [rows_of(load(f), Kind.OPERATOR, Kind.ANNOTATION) for f in (text, folder)]
    assert rows[0] == rows[1]
    assert any("mstx_mark_op" in row for row in rows[0])
