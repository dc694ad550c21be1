"""What the engine does with rules whatever they do."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from stallscope.analyzers import RULES, engine
from stallscope.analyzers.finding import Finding
from stallscope.analyzers.registry import NotAnalysable, Rule
from stallscope.analyzers.run import Run
from stallscope.profiler.session import Session

on_fault = engine.on_fault  # as it is before the fixture that makes tests fail on a fault


def failing(run: Run, limits: Any) -> Iterator[Finding]:
    yield from ()
    raise ZeroDivisionError("by " + "nothing " * 100)


def test_a_rule_that_fails_costs_its_own_answer_only(
    small_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = engine.analyze_session(small_session, RULES)
    broken: dict[str, Rule] = {**RULES, "LN401": dataclasses.replace(RULES["LN401"], check=failing)}
    with pytest.raises(ZeroDivisionError):
        engine.analyze_session(small_session, broken)

    monkeypatch.setattr(engine, "on_fault", on_fault)
    report = engine.analyze_session(small_session, broken)

    outcome = next(r for r in report.rules if r.code == "LN401")
    assert outcome.status == "not_analysable"
    assert outcome.reason.startswith("failed on this recording: ZeroDivisionError: by nothing nothing")
    assert outcome.reason.endswith(f"(test_engine.py:{failing.__code__.co_firstlineno + 2})")
    assert len(outcome.reason) < 300
    note = next(n for n in report.notes if n.code == "rule-fault")
    assert note.severity == "data_loss"
    assert note.text.startswith("LN401 failed")
    others = [r for r in report.rules if r.code != "LN401"]
    assert others == [r for r in whole.rules if r.code != "LN401"]
    assert [f for f in whole.findings if f.code != "LN401"] == report.findings


def test_columns_of_rules_are_let_go_and_found_again(small_session: Session) -> None:
    report = engine.analyze_session(small_session, RULES)
    assert report.run is not None
    assert "places" not in vars(report.run)
    again = [
        f for rule in RULES.values() if not report.run.missing(rule.needs) for f in _answers(rule, report.run)
    ]
    assert sorted(f.code for f in again) == sorted(f.code for f in report.findings)
    assert "places" in vars(report.run)


def _answers(rule: Rule, run: Run) -> list[Finding]:
    try:
        return list(rule.check(run, rule.limits))
    except NotAnalysable:
        return []


def test_of_phases_with_equally_many_moments_the_same_one_is_named_each_time(
    small_session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"phase {i}" for i in range(20)]
    for told in (names, names[::-1], [*names, *names]):
        monkeypatch.setattr(Run, "phase_at", lambda _run, _ns, told=told: told)
        assert Run(small_session).phase_of_most(np.zeros(1, np.int64)) == "phase 0"
    monkeypatch.setattr(Run, "phase_at", lambda _run, _ns: ["b", "a", "b"])
    assert Run(small_session).phase_of_most(np.zeros(1, np.int64)) == "b"
