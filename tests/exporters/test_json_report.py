"""The JSON report: its schema, its fixed part, and values that JSON or JavaScript would spoil."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from stallscope import __version__
from stallscope.analyzers import analyze
from stallscope.analyzers.finding import Evidence, Finding, Report, Where
from stallscope.exporters import json_report
from stallscope.profiler.errors import InputError
from stallscope.profiler.notes import Note
from stallscope.profiler.readers import load
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import Track
from support.lanes import timeline

VALIDATOR = jsonschema.Draft202012Validator(json_report.schema())


def written(session: Session, report: Report, folder: Path) -> Any:
    """The report, exported, read back strictly and checked against the schema."""
    out = folder / "report.json"
    json_report.export(session, report, out)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    data = json.loads(out.read_bytes().decode("utf-8"), parse_constant=refuse)
    VALIDATOR.validate(data)
    return data


def test_the_schema_itself_is_sound() -> None:
    jsonschema.Draft202012Validator.check_schema(json_report.schema())
    assert json_report.schema()["$id"] == json_report.SCHEMA


def test_the_fixed_part_holds_the_reports_numbers(
    small_session: Session, small_report: Report, tmp_path: Path
) -> None:
    data = written(small_session, small_report, tmp_path)
    assert data["schema"] == "stallscope.report/1"
    assert data["producer"] == {"name": "stallscope", "version": __version__}
    assert data["headline"]["busy_ns"] == 42_000 and data["headline"]["launches"] == 4
    (device,) = data["devices"]
    assert (device["id"], device["name"]) == (0, "Drawn GPU")
    assert sum(device["idle_classes"].values()) == sum(device["gap_classes"].values()) == device["idle_ns"]
    assert data["kernels"][0] == {
        "name": "gemm", "count": 2, "total_ns": 20_000, "min_ns": 10_000, "max_ns": 10_000, "kind": "kernel",
    }  # fmt: skip
    assert data["steps"][1]["dur_ns"] == 50_000 and data["steps"][1]["facts"] == {"batch": 32}
    first = data["findings"][0]
    assert (first["code"], first["phase"], first["lost_ns"]) == ("HB101", "decode", 60_000)
    assert first["where"] == {
        "python": "sampler.py(214): sample", "operator": "aten::mm", "kernel": "gemm",
    }  # fmt: skip
    assert first["evidence"][0] == {
        "track": "device 0 / stream 7", "track_index": 2, "start_ns": 4_000, "end_ns": 64_000,
        "label": "gap before gemm",
    }  # fmt: skip
    assert [r["status"] for r in data["rules"]] == ["found", "found", "clean", "not_analysable"]
    assert data["notes"][0] == {
        "code": "python-frame-clamped", "severity": "info", "text": "Python frames ended after their caller",
        "count": 2, "first": "frame 3",
    }  # fmt: skip
    assert data["tracks"][0]["label"] == "python 100 / thread 1"


def test_equal_input_gives_equal_text_and_integers_stay_integers(
    small_session: Session, small_report: Report
) -> None:
    text = json_report.render(small_session, small_report)
    assert text == json_report.render(small_session, small_report)

    def no_float(digits: str) -> None:
        raise AssertionError(f"{digits} is a float")

    json.loads(text, parse_float=no_float)


def test_values_that_json_or_javascript_would_spoil(small_session: Session, small_report: Report) -> None:
    small_session.timeline.origin_ns = 1_736_405_443_871_413_640
    small_session.timeline.tracks[0] = Track(
        "a\ud800b", "host", process=2**63 + 1, process_name="py", thread=7
    )
    odd: dict[Any, Any] = {
        "nan": float("nan"), "inf": np.float32("inf"), "id": 2**53, "safe": 2**53 - 1, "low": -(2**60),
        "array": np.array([1, 2]), "number": np.int64(5), "yes": np.bool_(True), "none": None, 3: (1.5, {2}),
        "text": "\udfff</script>\x00", "path": Path("a"), "where": Where("p"),
    }  # fmt: skip
    small_report.facts = odd
    data = json.loads(json_report.render(small_session, small_report))
    VALIDATOR.validate(data)
    assert data["facts"] == {
        "nan": None, "inf": None, "id": "9007199254740992", "safe": 9007199254740991,
        "low": "-1152921504606846976", "array": [1, 2], "number": 5, "yes": True, "none": None,
        "3": [1.5, [2]], "text": "\ufffd</script>\x00", "path": "a",
        "where": {"python": "p", "operator": "", "kernel": ""},
    }  # fmt: skip
    assert data["timeline"]["origin_ns"] == "1736405443871413640"
    assert data["tracks"][0]["process"] == str(2**63 + 1) and data["tracks"][0]["name"] == "a\ufffdb"


def test_evidence_without_a_track_says_so(small_session: Session, small_report: Report) -> None:
    finding = Finding("XX999", "x", "t", 1, 1, evidence=(Evidence(-1, 0, 5), Evidence(99, 0, 5)))
    small_report.findings = [finding]
    data = json_report.report_data(small_session, small_report)
    assert [(e["track"], e["track_index"]) for e in data["findings"][0]["evidence"]] == [("", -1), ("", -1)]


def test_the_schema_refuses_what_it_must(small_session: Session, small_report: Report) -> None:
    good = json_report.report_data(small_session, small_report)
    VALIDATOR.validate(good)
    for key, bad in [("schema", "stallscope.report/2"), ("findings", [{}]), ("headline", None)]:
        assert not VALIDATOR.is_valid(good | {key: bad})
    silent = {"code": "MB301", "name": "memory-bound", "status": "not_analysable", "reason": ""}
    assert not VALIDATOR.is_valid(good | {"rules": [silent]})


def test_a_report_of_nothing_is_valid(tmp_path: Path) -> None:
    empty = timeline("host")
    assert written(empty, analyze(empty), tmp_path)["kernels"] == []


def test_a_file_that_cannot_be_written_is_one_line(small_session: Session, small_report: Report) -> None:
    with pytest.raises(InputError, match="cannot be written"):
        json_report.export(small_session, small_report, Path("/nowhere/at/all.json"))


def test_every_field_of_the_report_is_exported(small_session: Session, small_report: Report) -> None:
    data = json_report.report_data(small_session, small_report)
    # `run` is the analysis behind the report, not a part of it
    assert {f.name for f in dataclasses.fields(Report)} - {"run"} <= set(data)
    for record, key in [(Finding, "findings"), (Evidence, "evidence"), (Note, "notes")]:
        rows = data["findings"][0]["evidence"] if key == "evidence" else data[key]
        # `fix` is what a replay does, not a value
        assert {f.name for f in dataclasses.fields(record)} - {"fix"} <= set(rows[0])


def test_every_key_is_described() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "reference" / "json-report.md"
    text = page.read_text(encoding="utf-8")

    def keys(schema: Any) -> set[str]:
        if not isinstance(schema, dict):
            return set()
        found = set(schema.get("properties", {}))
        return found.union(*(keys(v) for v in [*schema.values(), *schema.get("properties", {}).values()]))

    missing = {key for key in keys(json_report.schema()) if f"`{key}`" not in text}
    assert not missing


@pytest.mark.shared
@pytest.mark.parametrize("name", ["cpu_traces/hf_llama_ops.json.gz", "cases/c19-pdl-overlap.json"])
def test_reports_of_real_traces_are_valid(shared: Path, name: str, tmp_path: Path) -> None:
    session = load(shared / name)
    data = written(session, analyze(session), tmp_path)
    assert data["timeline"]["spans"] == len(session.timeline)
