"""Real Ascend recordings against an independent reading of the same files: plain csv, json and sqlite3.

Every recording below shared/ascend is checked, whatever its level, rank, form or metric group. Totals must
agree within 1 us.
"""

from __future__ import annotations

import csv
import functools
import json
import sqlite3
from collections import Counter, defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallscope.analyzers import analyze
from stallscope.analyzers.finding import Report
from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import load
from stallscope.profiler.readers.ascend_links import operators_of
from stallscope.profiler.session import Session

US = 1_000
"""Allowed difference in nanoseconds."""

pytestmark = pytest.mark.shared


@functools.cache
def loaded(path: Path) -> Session:
    """Several tests look at each recording; none changes it."""
    return load(path)


@functools.cache
def reported(path: Path) -> Report:
    return analyze(loaded(path), {})


def recordings(shared: Path, name: str) -> list[Path]:
    found = sorted(p.parent for p in (shared / "ascend").rglob(name))
    if not found:
        pytest.skip(f"no {name} in the collection")
    return found


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8-sig") as file:
        return list(csv.DictReader(file))


def cell(row: dict[str, str], *names: str) -> str:
    return next((row[n].strip().strip('"').strip() for n in names if n in row), "")


def kernels_of(path: Path) -> dict[str, tuple[int, int]]:
    return {k.name: (k.count, k.total_ns) for k in reported(path).kernels}


def compare(found: dict[Any, tuple[int, int]], wanted: dict[Any, tuple[int, Decimal]]) -> None:
    assert found.keys() == wanted.keys()
    for key, (count, total_us) in wanted.items():
        assert found[key][0] == count, key
        assert abs(found[key][1] - int(total_us * 1000)) <= US, key


def table_totals(table: list[dict[str, str]], *keys: tuple[str, ...]) -> dict[Any, tuple[int, Decimal]]:
    out: dict[Any, list[Any]] = defaultdict(lambda: [0, Decimal(0)])
    for row in table:
        key = tuple(cell(row, *names) for names in keys)
        out[key if len(key) > 1 else key[0]][0] += 1
        out[key if len(key) > 1 else key[0]][1] += Decimal(cell(row, "Duration(us)", "Task Duration(us)"))
    return {key: (n, total) for key, (n, total) in out.items()}


@pytest.mark.parametrize("name", ["kernel_details*.csv", "op_summary*.csv"])
def test_kernels_are_those_of_the_kernel_table(shared: Path, name: str) -> None:
    for path in sorted((shared / "ascend").rglob(name)):
        table = [r for r in rows(path) if None not in r.values()]
        lone = not (path.parent.name == "ASCEND_PROFILER_OUTPUT" or name.startswith("op_summary"))
        compare(kernels_of(path if lone else path.parent), table_totals(table, ("Name", "Op Name")))


def test_totals_per_type_are_those_of_op_statistic(shared: Path) -> None:
    for folder in recordings(shared, "op_statistic.csv"):
        session = loaded(folder)
        timeline = session.timeline
        found: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        for row in timeline.rows(Kind.KERNEL).tolist():
            args = timeline.arguments(row)
            total = found[(args["Type"], args["Accelerator Core"])]
            total[0] += 1
            total[1] += int(timeline.spans.dur_ns[row])
        wanted = {
            (r["OP Type"], r["Core Type"]): (int(r["Count"]), Decimal(r["Total Time(us)"]))
            for r in rows(folder / "op_statistic.csv")
            if r["Core Type"] not in ("HCCL", "COMMUNICATION")
        }
        compare({k: (n, t) for k, (n, t) in found.items()}, wanted)


def test_kernel_types_of_the_facts_are_those_of_op_statistic(shared: Path) -> None:
    """op_statistic.csv leaves collectives out in some versions, so only kernels are compared."""
    for folder in recordings(shared, "op_statistic.csv"):
        types = loaded(folder).facts["ascend"]["ranks"][0]["kernel_types"]
        found = {(t["type"], t["core"]): (t["count"], t["total_ns"]) for t in types}
        wanted = {
            (r["OP Type"], r["Core Type"].replace("HCCL", "COMMUNICATION")): (
                int(r["Count"]),
                Decimal(r["Total Time(us)"]),
            )
            for r in rows(folder / "op_statistic.csv")
        }
        collective = {key for key in found if key[1] == "COMMUNICATION"}
        compare({k: v for k, v in found.items() if k in wanted or k not in collective}, wanted)


def test_step_times_of_a_trace_alone_are_those_of_the_step_table(shared: Path) -> None:
    for folder in recordings(shared, "trace_view.json"):
        if "synthetic" in str(folder):
            continue
        (own,) = loaded(folder / "trace_view.json").facts["ascend"]["ranks"][0]["steps"]
        (told,) = rows(folder / "step_trace_time.csv")
        for column, key in (
            ("Computing", "computing_ns"),
            ("Communication", "communication_ns"),
            ("Free", "free_ns"),
        ):
            assert abs(own[key] - int(Decimal(told[column]) * 1000)) <= US, (folder, column)


def test_step_times_are_those_of_the_step_table(shared: Path) -> None:
    checked = 0
    for folder in recordings(shared, "step_trace_time.csv"):
        facts = loaded(folder).facts["ascend"]["ranks"][0]
        told = rows(folder / "step_trace_time.csv")
        assert len(facts["step_trace_time"]) == len(told)
        if "steps" not in facts:
            continue
        has_free = "synthetic" not in str(folder)  # invented without any Free bar
        for row, own in zip(told, facts["steps"], strict=True):
            assert own["step"] == int(row["Step"] or -1)
            for column, key in (("Computing", "computing_ns"), ("Communication", "communication_ns"),
                                ("Communication(Not Overlapped)", "communication_not_overlapped_ns"), ("Free", "free_ns")):  # fmt: skip
                if key != "free_ns" or has_free:
                    assert abs(own[key] - int(Decimal(row[column]) * 1000)) <= US, (folder, column)
            checked += 1
    assert checked


def test_headline_is_the_union_of_the_table(shared: Path) -> None:
    for folder in recordings(shared, "kernel_details.csv"):
        if folder.name != "ASCEND_PROFILER_OUTPUT":
            continue
        headline = reported(folder).headline
        spans: dict[bool, list[tuple[Decimal, Decimal]]] = {True: [], False: []}
        for r in rows(folder / "kernel_details.csv"):
            start = Decimal(cell(r, "Start Time(us)"))
            core = cell(r, "Accelerator Core")
            spans[core in ("HCCL", "COMMUNICATION")].append((start, start + Decimal(cell(r, "Duration(us)"))))
        assert abs(headline.compute_ns - int(union(spans[False]) * 1000)) <= US
        assert abs(headline.collective_ns - int(union(spans[True]) * 1000)) <= US


def union(spans: list[tuple[Decimal, Decimal]]) -> Decimal:
    total, reach = Decimal(0), Decimal(-1)
    for start, end in sorted(spans):
        total += max(end - max(start, reach), Decimal(0))
        reach = max(reach, end)
    return total


# -- links -------------------------------------------------------------------------------------------


def test_text_links_are_the_arrows_of_the_file(shared: Path) -> None:
    for folder in recordings(shared, "trace_view.json"):
        events = json.loads((folder / "trace_view.json").read_text())
        session = loaded(folder)
        links = session.facts["ascend"]["ranks"][0]["links"]
        for cat in ("async_npu", "async_task_queue", "HostToDevice", "fwdbwd"):
            counts = Counter(e["ph"] for e in events if e.get("cat") == cat)
            if counts:
                assert (links["flows"][cat]["starts"], links["flows"][cat]["ends"]) == (
                    counts["s"],
                    counts["f"],
                )
        assert links["kernels_with_operator"] == links["kernels_with_launch"] == links["kernels"]
        assert operators_by_start(session) == async_npu_operators(events)


def operators_by_start(session: Session) -> dict[tuple[int, str], str]:
    timeline = session.timeline
    work = timeline.rows(Kind.KERNEL, Kind.COLLECTIVE)
    operators, _ = operators_of(timeline, work)
    return {
        (int(timeline.spans.start_ns[r]) + timeline.origin_ns, timeline.name(r)): timeline.name(int(o))
        for r, o in zip(work.tolist(), operators.tolist(), strict=True)
        if o >= 0
    }


def async_npu_operators(events: list[dict[str, Any]]) -> dict[tuple[int, str], str]:
    """Start and name of a kernel -> operator name, from the arrows alone."""
    at: dict[tuple[Any, ...], str] = {}
    for e in events:
        if e.get("ph") == "X":
            at.setdefault((e["pid"], e["tid"], e["ts"], "cat" in e), e["name"])
    hardware = {e["pid"] for e in events if e.get("name") == "process_name"
                and e["args"]["name"] in ("Ascend Hardware", "HCCL", "Communication")}  # fmt: skip
    starts = {e["id"]: e for e in events if e.get("cat") == "async_npu" and e["ph"] == "s"}
    out = {}
    for e in events:
        if e.get("cat") == "async_npu" and e["ph"] == "f" and e["pid"] in hardware:
            name = at[(e["pid"], e["tid"], e["ts"], False)]
            if name.startswith("MEMCPY"):
                continue
            s = starts[e["id"]]
            out[(int(e["ts"].replace(".", "")), name)] = at[(s["pid"], s["tid"], s["ts"], True)]
    return out


def databases(shared: Path) -> list[Path]:
    found = sorted((shared / "ascend").rglob("ascend_pytorch_profiler*.db"))
    if not found:
        pytest.skip("no database in the collection")
    return found


OPERATOR_SQL = """
    SELECT so.value, sk.value, t.startNs, t.endNs - t.startNs FROM PYTORCH_API p
    JOIN CONNECTION_IDS c ON c.id = p.connectionId JOIN TASK t ON t.connectionId = c.connectionId
    JOIN COMPUTE_TASK_INFO k ON k.globalTaskId = t.globalTaskId
    JOIN STRING_IDS so ON so.id = p.name JOIN STRING_IDS sk ON sk.id = k.name WHERE p.type = 50001
"""


def test_every_kernel_of_a_database_has_the_operator_the_join_gives(shared: Path) -> None:
    for path in databases(shared):
        connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        joined = connection.execute(OPERATOR_SQL).fetchall()
        (kernels,) = connection.execute("SELECT count(*) FROM COMPUTE_TASK_INFO").fetchone()
        connection.close()
        assert len(joined) == kernels
        session = loaded(path.parent)
        found = operators_by_start(session)
        for operator, kernel, start, _ in joined:
            assert found[(start, kernel)] == operator
        links = session.facts["ascend"]["ranks"][0]["links"]
        assert links["kernels_with_operator"] == links["kernels"] >= kernels


def test_kernels_of_a_database_are_its_compute_tasks_and_collectives(shared: Path) -> None:
    for path in databases(shared):
        connection = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)
        compute = connection.execute(
            "SELECT s.value, t.endNs - t.startNs FROM COMPUTE_TASK_INFO k JOIN TASK t USING (globalTaskId) "
            "JOIN STRING_IDS s ON s.id = k.name"
        ).fetchall()
        collective = connection.execute(
            "SELECT s.value, c.endNs - c.startNs FROM COMMUNICATION_OP c JOIN STRING_IDS s ON s.id = c.opName"
        ).fetchall()
        connection.close()
        wanted: dict[str, list[int]] = defaultdict(list)
        for name, dur in compute + collective:
            wanted[name].append(dur)
        assert kernels_of(path.parent) == {name: (len(d), sum(d)) for name, d in wanted.items()}


def test_database_step_times_are_those_of_the_analysis(shared: Path) -> None:
    for path in databases(shared):
        facts = loaded(path.parent).facts["ascend"]["ranks"][0]
        for told, own in zip(facts["step_trace_time"], facts["steps"], strict=True):
            for key in ("computing_ns", "communication_ns", "free_ns"):
                assert abs(told[key] - own[key]) <= US


# -- further things that must hold on every recording ---------------------------------------------------


def test_core_clock_is_a_whole_clock_of_the_chip(shared: Path) -> None:
    clocks = {}
    for path in sorted((shared / "ascend").rglob("kernel_details*.csv")):
        facts = loaded(path).facts["ascend"]["ranks"][0]
        clocks[str(path)] = facts.get("core_clock", {})
    assert any(clocks.values())
    for clock in clocks.values():
        for value in clock.values():
            assert min(abs(value - known) for known in (1650, 1800, 1850)) <= 1


def test_all_starts_are_exact(shared: Path) -> None:
    """Every complete event of the trace starts at the nanosecond its text says."""
    for folder in recordings(shared, "trace_view.json"):
        events = json.loads((folder / "trace_view.json").read_text())
        wanted = Counter(int(e["ts"].replace(".", "")) for e in events if e.get("ph") == "X")
        timeline = loaded(folder / "trace_view.json").timeline
        starts = timeline.spans.start_ns + timeline.origin_ns
        assert Counter(starts.tolist()) == wanted
        assert (timeline.spans.dur_ns >= 0).all()
        work = timeline.device_work()
        assert np.isin(
            timeline.spans.track[work], [i for i, t in enumerate(timeline.tracks) if t.role == "device"]
        ).all()


def test_every_file_set_loads(shared: Path) -> None:
    for folder in sorted((shared / "ascend").iterdir()):
        session = load(folder)
        analyze(session)
        assert session.facts["ascend"]["ranks"]


def test_traces_of_other_collections_load(shared: Path) -> None:
    for folder in sorted((shared / "traces").glob("ascend-*")):
        if folder.name == "ascend-cluster-output":
            continue
        session = load(folder)
        assert len(session.timeline.rows(Kind.KERNEL, Kind.COLLECTIVE)), folder
