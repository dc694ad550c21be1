"""The verdicts of docs/explanation/verdicts-npu.md, pinned to the public recordings they speak of."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from stallscope.analyzers import analyze
from stallscope.profiler.readers import load


def step_table(folder: Path) -> dict[str, float]:
    """The one step of step_trace_time.csv, in microseconds."""
    with open(
        folder / "ASCEND_PROFILER_OUTPUT" / "step_trace_time.csv", newline="", encoding="utf-8"
    ) as file:
        (row,) = csv.DictReader(file)
    return {key: float(value) for key, value in row.items()}


@pytest.mark.parametrize(
    ("name", "verdict", "codes"),
    [
        (
            "alexnet-train-910b/text_level1/rank0_ascend_pt",
            (
                "hcom_allReduce is exposed for 102 ms, mostly waiting for rank 5 of its group; worth up to 98.5 ms, confidence "
                "medium"
            ),
            ["CC601", "HB101", "SY203"],
        ),
        (
            "alexnet-train-910b/text_level1",
            (
                "hcom_allReduce is exposed for 102 ms, mostly waiting for rank 5 of its group; worth up to 98.5 ms, confidence "
                "medium"
            ),
            ["CC601", "HB101", "SY203"],
        ),
        (
            "alexnet-train-910b/db_level1/rank0_ascend_pt",
            (
                "hcom_allReduce is exposed for 98.1 ms, mostly waiting for rank 6 of its group; worth up to 94.5 ms, confidence "
                "medium"
            ),
            ["CC601", "HB101", "SY203"],
        ),
        (
            "qwen3-0.6b-train-910b4",
            (
                "hcom_batchSendRecv is exposed for 314 ms, mostly waiting for the rank at the other end; worth up to 313 ms, "
                "confidence high"
            ),
            ["CC601", "CC601"],
        ),
    ],
)
def test_the_verdict_of_a_public_recording(shared: Path, name: str, verdict: str, codes: list[str]) -> None:
    report = analyze(load(shared / "ascend" / name))

    assert report.verdict.text == verdict
    assert [f.code for f in report.findings if f.severity != "info"] == codes


@pytest.mark.parametrize(
    "name", ["alexnet-train-910b/text_level1/rank0_ascend_pt", "qwen3-0.6b-train-910b4/rank_0_ascend_pt"]
)  # fmt: skip
def test_its_numbers_are_those_of_the_profilers_own_table(shared: Path, name: str) -> None:
    folder = shared / "ascend" / name
    table = step_table(folder)

    report = analyze(load(folder))

    (device,) = report.devices
    assert device.compute_ns / 1000 == pytest.approx(table["Computing"], abs=1)
    assert device.exposed_collective_ns / 1000 == pytest.approx(table["Communication(Not Overlapped)"], abs=1)
    assert device.collective_ns / 1000 == pytest.approx(table["Communication"], abs=1)
    exposed = sum(f.facts["exposed_ns"] for f in report.findings if f.code == "CC601")
    assert exposed / 1000 <= table["Communication(Not Overlapped)"] + 1


def test_uneven_ranks_are_named_where_all_tables_are_there(shared: Path) -> None:
    folder = shared / "ascend" / "qwen3-0.6b-train-910b4"

    first = analyze(load(folder)).findings[0]

    assert step_table(folder / "rank_3_ascend_pt")["Computing"] == pytest.approx(401_131.7)
    assert "rank 3 401 ms, rank 1 231 ms in the same steps" in first.detail
