"""The first sentence of a report: what the run is bound by, and what to do about it first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stallscope.analyzers.finding import Finding, RuleOutcome, Verdict
from stallscope.analyzers.units import duration, share

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run


def verdict(run: Run, findings: Sequence[Finding], outcomes: Sequence[RuleOutcome]) -> Verdict:
    """One sentence and up to three that support it."""
    lines = []
    if findings:
        top = findings[0]
        text = top.title
        if top.recoverable_ns:
            text += f"; worth up to {duration(top.recoverable_ns)}, confidence {top.confidence}"
    elif "device" in run.has:
        text = "No stall found that a rule is sure of"
    else:
        text = "No device activity was recorded; host analysis only"
    if "device" in run.has:
        view = run.whole
        lines.append(
            f"device busy {share(view.busy_ns, view.span_ns)} of {duration(view.span_ns)}, "
            f"idle {duration(view.idle_ns)}"
        )
    untold = [
        o.code for o in outcomes if o.status == "not_analysable" and not o.reason.startswith("does not apply")
    ]
    if untold:
        lines.append(f"not analysable: {', '.join(untold)}")
    return Verdict(text, tuple(lines))
