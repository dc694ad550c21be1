"""What mending several causes at once gives back. Gains of single findings do not simply add up: two of them may
lie in the same idle time, and a device that no longer waits for one cause may wait for the next.

Findings that were priced by a replay are replayed together. The others are bounded by the time they lie in: what a
device does not compute for causes on the host and between devices, what it computes for kernels. What a finding gives
on top of those before it is its fact `adds_ns`; over all findings these never exceed what all fixes give together.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stallscope.analyzers.finding import Finding
from stallscope.analyzers.units import duration
from stallscope.analyzers.whatif import combined
from stallscope.profiler import intervals
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

MOST_REPLAYS = 8
"""Findings replayed one on top of the other where gains overlap; smaller ones share what is left."""


WAITING = ("HB", "SY", "LN", "GR", "DP", "CC", "ST")
"""Families of rules about time in which the device does not compute."""


@dataclass(frozen=True)
class Together:
    """`alone_ns` is the sum of the single gains, `together_ns` what all findings give at once, at most."""

    findings: int
    alone_ns: int
    together_ns: int

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """The table "together" of a report with several findings."""
        if self.findings < 2:
            return {}
        return {"together": [dataclasses.asdict(self) | {"overlap_ns": self.alone_ns - self.together_ns}]}


def together(run: Run, findings: Sequence[Finding]) -> tuple[list[Finding], Together]:
    """The findings in the same order, each with what it adds to those before it, and the sum of all."""
    adds = _replayed(run, findings)
    room = {True: _computing_ns(run), False: _not_computing_ns(run)}
    whole = max(run.span_ns, run.host_span[1] - run.host_span[0])
    for at, finding in enumerate(findings):
        kernels = _is_kernels(finding)
        mine = min(adds[at], room[kernels], whole)
        adds[at], room[kernels], whole = mine, room[kernels] - mine, whole - mine
    out = [_told(finding, ns, at > 0) for at, (finding, ns) in enumerate(zip(findings, adds, strict=True))]
    return out, Together(len(out), sum(f.recoverable_ns for f in findings), sum(adds))


def _replayed(run: Run, findings: Sequence[Finding]) -> list[int]:
    """What each finding adds by replay, and its own gain where no replay priced it."""
    adds = [f.recoverable_ns for f in findings]
    priced = [i for i, f in enumerate(findings) if f.fix and f.facts.get("priced_by") == "replay"]
    if len(priced) < 2:
        return adds
    fixes = [findings[i].fix for i in priced]
    whole = run.replay.gain_ns(combined(fixes))
    if sum(adds[i] for i in priced) <= whole:
        return adds
    so_far = 0
    for n, i in enumerate(priced):
        last = n + 1 >= min(len(priced), MOST_REPLAYS)
        reached = whole if last else min(run.replay.gain_ns(combined(fixes[: n + 1])), whole)
        adds[i] = min(adds[i], max(reached - so_far, 0))
        so_far += adds[i]
    return adds


def _is_kernels(finding: Finding) -> bool:
    """Whether a finding gives back time in which the device computes."""
    if finding.fix:
        return bool(finding.fix.op_factor) and not finding.fix.no_wait and not finding.fix.as_graph
    return finding.facts.get("priced_by") == "kernel time" or not finding.code.startswith(WAITING)


def _told(finding: Finding, adds_ns: int, has_above: bool) -> Finding:
    """The finding with its share of the whole, and a sentence where findings above have some of its gain."""
    detail = finding.detail
    if has_above and adds_ns < finding.recoverable_ns:
        detail = f"{detail} Of what it is worth, {duration(finding.recoverable_ns - adds_ns)} are counted in findings above."
    return dataclasses.replace(finding, detail=detail, facts=finding.facts | {"adds_ns": adds_ns})


def _computing_ns(run: Run) -> int:
    return sum(intervals.length(view.compute) for view in run.devices.values())


def _not_computing_ns(run: Run) -> int:
    """The longest that one device computed nothing: idle, copying or communicating."""
    idle = [
        view.span_ns
        - intervals.length(view.compute)
        - intervals.length(intervals.clip(run.unrecorded, view.first_ns, view.last_ns))
        for view in run.devices.values()
    ]
    return max(idle, default=run.span_ns)
