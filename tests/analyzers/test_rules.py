"""Every rule against the cases drawn in sample_traces/rules/<code>.toml."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from stallscope.analyzers import RULES, analyze
from stallscope.analyzers.run import NEEDS_TEXT
from stallscope.profiler.errors import OptionError
from support.lanes import timeline
from support.rule_cases import cases, seen


@pytest.mark.parametrize(
    ("code", "case"), [pytest.param(c, k, id=f"{c}: {k['name']}") for c in RULES for k in cases(c)]
)
def test_rule(code: str, case: dict[str, Any]) -> None:
    rule = RULES[code].with_limits(case.get("limits", {}))

    report = analyze(timeline(case["lanes"], **case.get("facts", {})), {code: rule})

    (outcome,) = report.rules
    if "not_analysable" in case:
        assert outcome.status == "not_analysable" and case["not_analysable"] in outcome.reason
        assert report.findings == []
        return
    assert [f.code for f in report.findings] == [f["code"] for f in case["findings"]], [
        f.title for f in report.findings
    ]
    assert outcome.status == ("found" if case["findings"] else "clean"), outcome.reason
    for finding, expected in zip(report.findings, case["findings"], strict=True):
        known = seen(finding)
        assert {key: known[key] for key in expected} == expected


@pytest.mark.parametrize("code", RULES)
def test_rule_has_a_case_that_fires_and_one_that_stays_silent(code: str) -> None:
    fires = {bool(case["findings"]) for case in cases(code) if "findings" in case}

    assert fires == {True, False}


@pytest.mark.parametrize("code", RULES)
def test_no_other_rule_is_before_the_one_a_case_is_drawn_for(code: str) -> None:
    for case in cases(code):
        if case.get("findings"):
            rules = RULES | {code: RULES[code].with_limits(case.get("limits", {}))}
            report = analyze(timeline(case["lanes"], **case.get("facts", {})), rules)
            assert [f.code for f in report.findings][:1] == [code], (
                case["name"],
                [f.title for f in report.findings],
            )


@pytest.mark.parametrize("code", RULES)
def test_rule_is_documented(code: str) -> None:
    headings = [line for line in RULES[code].doc.splitlines() if line.startswith("## ")]

    assert headings == ["## What it finds", "## Why it costs time", "## What to try"]
    assert RULES[code].summary.endswith(".") and len(RULES[code].summary) <= 120
    assert RULES[code].needs <= set(NEEDS_TEXT)
    for limit in dataclasses.fields(RULES[code].limits):
        assert limit.metadata["help"].endswith("."), limit.name


@pytest.mark.parametrize("code", RULES)
def test_findings_say_what_was_lost_and_where_to_look(code: str) -> None:
    for case in cases(code):
        rules = {code: RULES[code].with_limits(case.get("limits", {}))}
        for finding in analyze(timeline(case["lanes"], **case.get("facts", {})), rules).findings:
            assert 0 <= finding.facts["adds_ns"] <= finding.recoverable_ns <= finding.lost_ns
            assert finding.name == RULES[code].name
            assert finding.title and finding.detail and finding.advice and finding.evidence
            assert all(e.end_ns >= e.start_ns for e in finding.evidence)


def test_unknown_limit_names_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"HB101 has no limit 'min_gap'. Its limits: min_share, min_gap_us"):
        RULES["HB101"].with_limits({"min_gap": 1})


def test_a_limit_is_a_number() -> None:
    with pytest.raises(OptionError, match="must be a number"):
        RULES["HB101"].with_limits({"min_share": True})
