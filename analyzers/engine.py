"""Runs the rules over a session and puts the report together. Decides severity and order, in one place."""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from stallscope.analyzers import taskqueue
from stallscope.analyzers.finding import (
    DeviceSummary,
    Finding,
    Headline,
    KernelTotal,
    Report,
    RuleOutcome,
    Severity,
)
from stallscope.analyzers.finding import Step as ReportStep
from stallscope.analyzers.registry import NotAnalysable, NotApplicable, Rule
from stallscope.analyzers.run import Run
from stallscope.analyzers.tables import all_tables
from stallscope.analyzers.together import together
from stallscope.analyzers.units import duration
from stallscope.analyzers.verdict import verdict
from stallscope.profiler import intervals, kernels
from stallscope.profiler.device import DeviceView
from stallscope.profiler.kinds import KIND_NAMES, Kind
from stallscope.profiler.notes import Notes
from stallscope.profiler.session import Session

SEVERITY_LIMITS: tuple[tuple[float, Severity], ...] = ((0.10, "high"), (0.03, "medium"), (0.0, "low"))
"""Recoverable share of the run at which a finding is high, medium, low (3 % and 15 % are XProf's host
limits; 10 % is where a step is worth reworking)."""


def analyze_session(session: Session, rules: Mapping[str, Rule], companion: Session | None = None) -> Report:
    """Run the rules; findings come by recoverable time, the largest first.

    `companion` is a recording of the same program that names the kernels of its graph replays.
    """
    session.timeline.spans.freeze()
    run = Run(session, companion)
    findings: list[Finding] = []
    outcomes: list[RuleOutcome] = []
    faults = Notes()
    for rule in rules.values():
        found, outcome = _run_rule(rule, run, faults)
        findings.extend(found)
        outcomes.append(outcome)
    findings = disjoint(_one_for_graphs(findings))
    findings = [_judged(f, run.span_ns) for f in findings]
    findings.sort(key=lambda f: (-f.recoverable_ns, -f.lost_ns, f.code))
    findings, whole = together(run, findings)
    report = Report(
        verdict=verdict(run, findings, outcomes),
        headline=headline(run),
        devices=[device_summary(run, number, view) for number, view in run.devices.items()],
        kernels=kernel_totals(run),
        steps=[ReportStep(**vars(s)) for s in run.steps],
        findings=findings,
        rules=outcomes,
        notes=[*run.trust.notes(), *run.work.notes(), *faults, *session.notes],
        facts=dict(session.facts),
        run=run,
        tables=all_tables(run) | run.floor.tables() | whole.tables() | taskqueue.tables(run),
    )
    run.let_go()
    return report


def _run_rule(rule: Rule, run: Run, faults: Notes) -> tuple[list[Finding], RuleOutcome]:
    if reason := run.missing(rule.needs):
        return [], RuleOutcome(rule.code, rule.name, "not_analysable", reason)
    try:
        found = list(rule.check(run, rule.limits))
    except NotApplicable as error:
        return [], RuleOutcome(rule.code, rule.name, "not_analysable", f"does not apply: {error}")
    except NotAnalysable as error:
        return [], RuleOutcome(rule.code, rule.name, "not_analysable", str(error))
    except Exception as error:  # noqa: BLE001 - one rule's fault must not cost the answers of the others
        reason = on_fault(rule, error)
        faults.add("rule-fault", "data_loss", f"{rule.code} {reason}; please report it")
        return [], RuleOutcome(rule.code, rule.name, "not_analysable", reason)
    return found, RuleOutcome(rule.code, rule.name, "found" if found else "clean")


def on_fault(rule: Rule, error: Exception) -> str:
    """What to say where a rule, ours or another package's, failed on a recording."""
    trace = traceback.extract_tb(error.__traceback__)
    place = (
        f"{trace[-1].filename.replace(chr(92), '/').rpartition('/')[2]}:{trace[-1].lineno}" if trace else "?"
    )
    return f"failed on this recording: {type(error).__name__}: {str(error)[:200]} ({place})"


def _judged(finding: Finding, span_ns: int) -> Finding:
    """With its severity. What a replay saves beyond the time counted so far was lost to the cause as well."""
    worth = finding.recoverable_ns
    told: dict[str, Any] = {"severity": severity(worth, span_ns)}
    if worth > finding.lost_ns:
        told["detail"] = (
            f"{finding.detail} Without it the run would be {duration(worth)} shorter: what comes after it was held up "
            "as well."
        )
        told["facts"] = finding.facts | {"counted_ns": finding.lost_ns}
        told["lost_ns"] = worth
    return dataclasses.replace(finding, **told)


def _one_for_graphs(findings: list[Finding]) -> list[Finding]:
    """Steps that were not replayed (GR501) are launched one by one: LN401 would say the same of the same time."""
    phases = {f.phase for f in findings if f.code == "GR501"}
    return [f for f in findings if f.code != "LN401" or f.phase not in phases]


def disjoint(findings: list[Finding]) -> list[Finding]:
    """Growth at a place (ST702) is part of what HB101 adds up there: HB101 keeps the rest."""
    growth = {f.where.python or f.where.operator: f for f in findings if f.code == "ST702"}
    out = []
    for finding in findings:
        grown = (
            growth.get(finding.where.python or finding.where.operator) if finding.code == "HB101" else None
        )
        if grown is None:
            out.append(finding)
            continue
        rest = max(finding.lost_ns - grown.lost_ns, 0)
        facts = finding.facts | {"lost_with_growth_ns": finding.lost_ns}
        detail = (
            f"{finding.detail} {duration(grown.lost_ns)} of it is growth from step to step, counted in ST702."
        )
        out.append(
            dataclasses.replace(finding, lost_ns=rest, recoverable_ns=min(rest, finding.recoverable_ns),
                                detail=detail, facts=facts)
        )  # fmt: skip
    return out


def severity(recoverable_ns: int, span_ns: int) -> Severity:
    """Severity from the share of the run a finding could give back; what gives nothing back is a remark."""
    if recoverable_ns <= 0:
        return "info"
    share = recoverable_ns / span_ns
    return next(name for least, name in SEVERITY_LIMITS if share >= least)


def headline(run: Run) -> Headline:
    """Whole-file numbers: unions over all devices."""
    view = run.whole
    spans = run.timeline.spans
    start, end = run.host_span
    return Headline(
        span_ns=view.span_ns,
        busy_ns=view.busy_ns,
        idle_ns=view.idle_ns,
        **_class_lengths(view),
        device_events=len(view.rows),
        unlinked_device_events=int((spans.launch_row[view.rows] < 0).sum()),
        launches=len(kernels.distinct(spans.launch_row[view.rows][spans.launch_row[view.rows] >= 0])),
        host_span_ns=end - start,
    )


def _class_lengths(view: DeviceView) -> dict[str, int]:
    return {
        "compute_ns": intervals.length(view.compute),
        "collective_ns": intervals.length(view.collective),
        "memcpy_ns": intervals.length(view.memcpy),
        "memset_ns": intervals.length(view.memset),
        "exposed_collective_ns": intervals.length(view.exposed_collective),
        "exposed_memcpy_ns": intervals.length(view.exposed_memcpy),
    }


def device_summary(run: Run, number: int, view: DeviceView) -> DeviceSummary:
    """One device over its own span."""
    return DeviceSummary(
        id=number,
        name=run.device_name(number),
        span_ns=view.span_ns,
        busy_ns=view.busy_ns,
        idle_ns=view.idle_ns,
        **_class_lengths(view),
        idle_classes=run.idle[number].totals(),
        gap_classes=view.gaps.totals(),
        gap_counts=view.gaps.counts(),
        facts={"start_ns": view.first_ns, "events": len(view.rows)}
        | ({"label": run.rank_labels[number]} if number in run.rank_labels else {}),
    )


def kernel_totals(run: Run) -> list[KernelTotal]:
    """All kernels and collectives by name, the largest total first."""
    spans = run.timeline.spans
    rows = run.timeline.rows(Kind.KERNEL, Kind.COLLECTIVE)
    if len(rows) == 0:
        return []
    names, at, counts = kernels.ranked(spans.name[rows])
    total = np.zeros(len(names), np.int64)
    least = np.full(len(names), np.iinfo(np.int64).max)
    most = np.zeros(len(names), np.int64)
    kind = np.zeros(len(names), np.int8)
    np.add.at(total, at, spans.dur_ns[rows])
    np.minimum.at(least, at, spans.dur_ns[rows])
    np.maximum.at(most, at, spans.dur_ns[rows])
    kind[at] = spans.kind[rows]
    texts = run.timeline.strings
    totals = [
        KernelTotal(texts[int(names[i])], int(counts[i]), int(total[i]), int(least[i]), int(most[i]),
                    KIND_NAMES[Kind(int(kind[i]))])
        for i in range(len(names))
    ]  # fmt: skip
    return sorted(totals, key=lambda k: (-k.total_ns, k.name))


def chosen(rules: Mapping[str, Rule], codes: Iterable[str]) -> dict[str, Rule]:
    """The rules whose code or family prefix is in `codes`."""
    wanted = tuple(codes)
    return {code: rule for code, rule in rules.items() if code.startswith(wanted)}
