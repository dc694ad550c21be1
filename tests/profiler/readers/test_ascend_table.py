"""CSV columns, decimal times, and the joins that readers of Ascend files are built on."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.profiler.readers import ascend_table
from stallscope.profiler.readers.ascend_rank import SAME_START_NS, match_starts, task_kind
from stallscope.profiler.readers.ascend_table import DestroyedTimes, canonical, decimal_ns, read_table
from stallscope.profiler.readers.ascend_trace import pair_flows
from stallscope.profiler.timeline import NO_TIME


@given(
    st.decimals(min_value=0, max_value=10**15, places=6, allow_nan=False), st.sampled_from([1, 1000, 10**6])
)
def test_decimal_times_equal_exact_arithmetic(value: Decimal, unit: int) -> None:
    exact = int((value * unit).to_integral_value(ROUND_HALF_UP))
    exact = exact if exact < 1 << 62 else NO_TIME
    assert decimal_ns([f"{value}", f'"{value}\t"'], unit).tolist() == [exact, exact]


def test_what_is_no_time() -> None:
    assert decimal_ns(["N/A", "", "abc", "nan", "inf"]).tolist() == [NO_TIME] * 5


@pytest.mark.parametrize(
    ("header", "name", "unit"),
    [
        ("Task Start Time(us)", "Start Time", "us"),
        ("Op Name", "Name", ""),
        ("Block Dim", "Block Num", ""),
        ("Mix Block Dim", "Mix Block Num", ""),
        ("Step ID", "Step Id", ""),
        ("Communication(Not Overlapped)", "Communication(Not Overlapped)", ""),
        ("aic_l1_read_bw(GB/s)", "aic_l1_read_bw", "GB/s"),
        ("Total Reserved(MB)", "Total Reserved", "MB"),
    ],
)
def test_headers(header: str, name: str, unit: str) -> None:
    assert canonical(header) == (name, unit)


CONTENT = '\ufeffName,Start Time(us),"Input Shapes",n\r\na,1736405443871413.640\t,"""32,3""",1\r\nb,2.5\t,"x\ny",N/A\r\n'


def test_small_and_large_files_read_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text(CONTENT, newline="")
    tables = [read_table(path)]
    monkeypatch.setattr(ascend_table, "_SMALL_FILE", 0)
    tables.append(read_table(path))
    for table in tables:
        assert table.rows == 2
        assert table.times_ns("Start Time").tolist() == [1736405443871413640, 2500]
        codes, texts = table.texts("input  shapes")
        assert [texts[c] for c in codes] == ["32,3", "x\ny"]
        assert table.ints("n").tolist() == [1, -1]
        assert np.isnan(table.numbers("n")).tolist() == [False, True]
        assert table.numbers("not there").shape == (2,)


def test_rows_of_the_wrong_width_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    path.write_text("a,b\n1,2\n3\n4,5,6\n7,8\n")
    for limit in (1 << 20, 0):
        monkeypatch.setattr(ascend_table, "_SMALL_FILE", limit)
        table = read_table(path)
        assert (table.rows, table.ragged) == (2, 2)


def test_times_rounded_by_a_spreadsheet_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("Start Time(us)\n1.69512E+15\n1.69512E+15\n")
    with pytest.raises(DestroyedTimes, match=r"1\.69512E"):
        read_table(path).times_ns("Start Time")


def test_empty_files_have_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(b"")
    assert read_table(path).rows == 0
    path.write_bytes(b"a,b\n")
    assert read_table(path).rows == 0


names = st.integers(0, 2)
times = st.integers(0, 40).map(lambda t: t * 300)
tables = st.lists(st.tuples(names, times, st.integers(0, 1)), max_size=12)


@given(tables, tables)
def test_kernels_match_tasks_one_to_one(
    mine: list[tuple[int, int, int]], other: list[tuple[int, int, int]]
) -> None:
    def columns(rows: list[tuple[int, int, int]]) -> Any:
        table = np.array(rows, np.int64).reshape(-1, 3)
        return table[:, 0].astype(np.int32), table[:, 1], table[:, 2]

    found = match_starts(*columns(mine), *columns(other))
    used = [f for f in found.tolist() if f >= 0]
    assert len(used) == len(set(used))
    for row, f in zip(mine, found.tolist(), strict=True):
        if f >= 0:
            assert row[0] == other[f][0]
            assert abs(row[1] - other[f][1]) <= SAME_START_NS
    # whatever has an exact partner gets one: as many exact pairs as the two tables share
    exact = sum(1 for row, f in zip(mine, found.tolist(), strict=True) if f >= 0 and row[:2] == other[f][:2])
    shared = sum(
        min([r[:2] for r in mine].count(k), [r[:2] for r in other].count(k)) for k in {r[:2] for r in mine}
    )
    assert exact == shared


@given(st.lists(st.integers(0, 4), max_size=10), st.lists(st.integers(0, 4), max_size=10))
def test_arrows_pair_in_order(starts: list[int], ends: list[int]) -> None:
    found = pair_flows(np.array(starts, np.int64), np.array(ends, np.int64))
    seen: dict[int, int] = {}
    for end, partner in zip(ends, found.tolist(), strict=True):
        own = [i for i, s in enumerate(starts) if s == end]
        if not own:
            assert partner == -1
            continue
        place = seen.get(end, 0)
        seen[end] = place + 1
        assert partner == own[min(place, len(own) - 1)]


@pytest.mark.parametrize(
    ("task_type", "name", "kind"),
    [
        ("AI_CORE", "MatMul", "KERNEL"),
        ("AI_VECTOR_CORE", "Add", "KERNEL"),
        ("MIX_AIV", "ReduceSum", "KERNEL"),
        ("AI_CPU", "NonZero", "KERNEL"),
        ("DSA_SQE", "DSAGenBitMask", "KERNEL"),
        ("KERNEL_AIVEC", "MemSet", "KERNEL"),
        ("PCIE_DMA_SQE", "MEMCPY_ASYNC", "MEMCPY"),
        ("SDMA_SQE", "MEMCPY_ASYNC", "MEMCPY"),
        ("SDMA", "SDMA", "MEMCPY"),
        ("EVENT_WAIT_SQE", "EVENT_WAIT", "DEVICE_WAIT"),
        ("EVENT_RECORD_SQE", "EVENT_RECORD", "DEVICE_WAIT"),
        ("PLACE_HOLDER_SQE", "EVENT_RECORD", "DEVICE_WAIT"),
        ("Notify Wait", "Notify Wait", "DEVICE_WAIT"),
        ("Write Value", "Write Value", "DEVICE_WAIT"),
        ("PLACE_HOLDER_SQE", "PROFILING_ENABLE", "DEVICE_ANNOTATION"),
        ("Other", "TASK_TIMEOUT_SET", "DEVICE_ANNOTATION"),
    ],
)
def test_task_types(task_type: str, name: str, kind: str) -> None:
    found = task_kind(task_type, name)
    assert found is not None and found.name == kind


def test_a_new_task_type_is_unknown_not_guessed() -> None:
    assert task_kind("Other", "thing") is None
