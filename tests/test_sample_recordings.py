"""The CPU sample recordings give the verdicts that stand beside them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from stallscope.analyzers import analyze
from stallscope.profiler.readers import load

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SAMPLES = Path(__file__).resolve().parent.parent / "sample_traces" / "cpu"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((SAMPLES / "EXPECTED.toml").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", EXPECTED)
def test_the_first_finding_is_the_planted_one(name: str) -> None:
    wanted = EXPECTED[name]
    report = analyze(load(SAMPLES / f"{name}.stallscope"))
    found = [f for f in report.findings if f.severity != "info"]

    if not wanted["first"]:
        assert not found
        return
    assert found[0].code == wanted["first"]
    assert wanted.get("python", "") in found[0].where.python
    if "least_ms" in wanted:
        assert wanted["least_ms"] <= found[0].lost_ns / 10**6 <= wanted["most_ms"]


@pytest.mark.parametrize("name", EXPECTED)
def test_nothing_is_said_of_a_device_that_was_not_there(name: str) -> None:
    report = analyze(load(SAMPLES / f"{name}.stallscope"))

    assert report.devices == []
    assert {r.status for r in report.rules if r.code == "HB101"} == {"not_analysable"}


@pytest.mark.parametrize("name", EXPECTED)
def test_samples_hold_no_folder_of_the_machine(name: str) -> None:
    session = load(SAMPLES / f"{name}.stallscope")

    homes = tuple(f"/{top}/" for top in ("home", "root", "Users"))
    assert [t for t in session.timeline.strings.texts if t.startswith(homes)] == []
