"""Compares what the analysis says about a case with what the model knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from benchmarks.planted.cases import Case
from benchmarks.planted.causes import CAUSES
from stallscope.analyzers.finding import Finding, Report

FIRST_TARGET = 0.95
MEDIAN_TARGET = 0.05
WORST_TARGET = 0.15


@dataclass(frozen=True)
class Result:
    """One line of the table.

    `predicted_ns` adds up the findings that name the planted cause and place, under the code that ranks
    first among them: two rules may speak of the same time.
    """

    case: Case
    first: str
    first_right: bool
    place_right: bool
    predicted_ns: int
    true_ns: int
    findings: tuple[str, ...]
    remarks: tuple[str, ...]
    error: str = ""
    not_analysable: tuple[str, ...] = field(default=())

    @property
    def healthy(self) -> bool:
        return self.case.truth is None

    @property
    def relative_error(self) -> float:
        """|predicted - true| / true; 1.0 where nothing was predicted."""
        if not self.true_ns:
            return 0.0
        return abs(self.predicted_ns - self.true_ns) / self.true_ns


def compare(case: Case, report: Report, true_ns: int) -> Result:
    """Judge one report. Findings of severity "info" are remarks: they neither lead nor count as false."""
    ranked = [f for f in report.findings if f.severity != "info"]
    remarks = [f for f in report.findings if f.severity == "info"]
    first = ranked[0] if ranked else None
    right = place = False
    predicted = 0
    if case.truth is not None:
        codes = CAUSES[case.truth.cause].codes
        right = first is not None and first.code in codes
        place = right and first is not None and _placed(case, first)
        matching = [f for f in report.findings if f.code in codes and _placed(case, f)]
        predicted = sum(f.recoverable_ns for f in matching if f.code == matching[0].code)
    return Result(
        case=case,
        first=_label(first) if first else "-",
        first_right=right,
        place_right=place,
        predicted_ns=predicted,
        true_ns=true_ns,
        findings=tuple(_label(f) for f in ranked),
        remarks=tuple(_label(f) for f in remarks),
        not_analysable=tuple(f"{r.code}: {r.reason}" for r in report.rules if r.status == "not_analysable"),
    )


def _placed(case: Case, finding: Finding) -> bool:
    if case.truth is None:
        return False
    if case.truth.python and not case.stack and not case.truth.operators:
        return True
    where = finding.where
    return case.truth.located(where.python, where.operator, where.kernel)


def _label(finding: Finding) -> str:
    where = finding.where
    place = where.python or where.operator or where.kernel
    return f"{finding.code} {place[:48]}".strip()


def table(results: Sequence[Result]) -> str:
    """The printed table and its totals."""
    lines = [
        f"{'case':46} {'planted':18} {'first finding':56} {'ok':3} {'predicted':>10} {'true ms':>9} {'error':>7}"
    ]
    for r in results:
        if r.error:
            lines.append(f"{r.case.id:46} {_planted(r):18} {r.error[:90]}")
        elif r.healthy:
            said = "; ".join(r.findings) or "nothing"
            lines.append(f"{r.case.id:46} {'healthy':18} {said[:56]:56} {'no' if r.findings else 'yes':3}")
        else:
            ok = "yes" if r.place_right else "at?" if r.first_right else "no"
            lines.append(
                f"{r.case.id:46} {_planted(r):18} {r.first[:56]:56} {ok:3} {r.predicted_ns / 1e6:10.3f}"
                f" {r.true_ns / 1e6:9.3f} {r.relative_error:7.1%}"
            )
    return "\n".join([*lines, "", totals(results)])


def _planted(result: Result) -> str:
    if result.case.truth is None:
        return "healthy"
    codes = "/".join(CAUSES[result.case.truth.cause].codes) or "no code yet"
    return f"{result.case.truth.cause[:12]} {codes}"[:18]


def totals(results: Sequence[Result]) -> str:
    """The figures that have targets. A case that raised counts as missed."""
    planted = [r for r in results if not r.healthy]
    healthy = [r for r in results if r.healthy]
    lines = []
    if planted:
        code = sum(r.first_right for r in planted)
        place = sum(r.place_right for r in planted)
        errors = [1.0 if r.error else r.relative_error for r in planted]
        lines.append(
            f"root cause ranked first       {code}/{len(planted)} = {code / len(planted):.1%}"
            f" (with the place: {place} = {place / len(planted):.1%}; target >= {FIRST_TARGET:.0%})"
        )
        lines.append(
            f"predicted against true gain   median error {median(errors):.1%} (target <= {MEDIAN_TARGET:.0%}),"
            f" worst {max(errors):.1%} (target <= {WORST_TARGET:.0%})"
        )
    if healthy:
        false = sum(len(r.findings) for r in healthy)
        remarks = sum(len(r.remarks) for r in healthy)
        lines.append(
            f"false findings when healthy   {false} on {len(healthy)} cases (target 0); {remarks} remarks (info)"
        )
    failed = sum(bool(r.error) for r in results)
    if failed:
        lines.append(f"cases that raised             {failed}")
    return "\n".join(lines)
