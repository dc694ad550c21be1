"""The synthetic sample traces are what their generator makes, and yield what EXPECTED.toml says."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stallscope.analyzers import analyze
from stallscope.analyzers.finding import Report
from stallscope.profiler.readers import load

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces"
FOLDER = SAMPLES / "synthetic"
EXPECTED: dict[str, dict[str, Any]] = tomllib.loads((FOLDER / "EXPECTED.toml").read_text())
NUMBERS = ("span_ns", "busy_ns", "idle_ns", "compute_ns", "memcpy_ns", "device_events")


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_synthetic", SAMPLES / "make_synthetic.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def files(folder: Path) -> dict[str, str]:
    """Contents by relative name; databases differ in their header from one SQLite to the next."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        if path.suffix in (".json", ".csv", ".gz") or path.name.startswith("info.json"):
            data = path.read_bytes()
            text = gzip.decompress(data) if path.suffix == ".gz" else data
            found[str(path.relative_to(folder))] = text.decode()
    return found


def test_the_committed_traces_are_what_the_generator_makes(tmp_path: Path) -> None:
    made = generator()
    for sample in made.SAMPLES:
        made.write(sample, tmp_path)
    assert files(tmp_path) == files(FOLDER)
    assert {s.name for s in made.SAMPLES} == set(EXPECTED)


def report(name: str) -> Report:
    return analyze(load(FOLDER / EXPECTED[name]["path"]))


@pytest.mark.parametrize("name", EXPECTED)
def test_headline_numbers_are_those_worked_out_by_hand(name: str) -> None:
    headline = report(name).headline
    assert {key: getattr(headline, key) for key in NUMBERS} == {key: EXPECTED[name][key] for key in NUMBERS}


@pytest.mark.parametrize("name", EXPECTED)
def test_the_first_finding_is_the_planted_one(name: str) -> None:
    wanted = EXPECTED[name]
    found = [f for f in report(name).findings if f.severity != "info"]
    if not wanted["first"]:
        assert not found
        return
    assert found and found[0].code in wanted["first"]
    where = found[0].where
    assert wanted["where"] in f"{where.python} {where.operator} {where.kernel}"
