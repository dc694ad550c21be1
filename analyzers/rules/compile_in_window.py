"""Code is compiled, loaded or captured inside of the recorded window while the device waits.

## What it finds
Idle time of the device during which the launching thread compiled (torch.compile, Triton, nvrtc, Ascend operator
compilation), loaded device code, or captured a graph. The first launch of a kernel that takes half a millisecond or
more, and fifty times the usual launch, loaded its code.

## Why it costs time
A compilation takes from tens of milliseconds to minutes. In a serving process it hits the first request with a new
shape, which then waits for it.

## What to try
Warm up with every shape that will be served, mark dimensions as dynamic, pad to a few sizes, keep the compile cache
on disk, and start the recording after warm-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from stallscope.analyzers.causes import CauseText, cause_findings, in_place
from stallscope.analyzers.finding import Finding
from stallscope.analyzers.frames import short_place
from stallscope.analyzers.idle import Cause
from stallscope.analyzers.registry import limit
from stallscope.analyzers.units import duration
from stallscope.profiler import kernels
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "HB106"
NEEDS = {"host", "device", "launches", "trusted_host"}
TEXT = CauseText(
    CODE,
    "compile-in-window",
    lambda loss: f"while code is compiled, loaded or captured{in_place(loss)}",
    "compilation",
    "Warm up with the shapes that will be served; allow dynamic shapes or pad to a few sizes.",
)


@dataclass(frozen=True)
class Limits:
    """When compilation is worth a finding."""

    min_share: float = limit(
        0.03, "Share of the device's span it must idle during compilation.",
        source="XProf calls 3 % of a step spent on the host moderate",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding in all, at the place that costs most."""
    for finding in cause_findings(run, Cause.COMPILE, TEXT, limits.min_share, together=True, steady=False):
        yield _with_first_uses(run, finding)


def _with_first_uses(run: Run, finding: Finding) -> Finding:
    """Told what of it was kernels used for the first time, which no name of a call tells."""
    account = run.idle[finding.facts["devices"][0]]
    pieces, loads = account.pieces, run.host_causes.loads_code
    mine = run.idle_index[account.view.device].of(Cause.COMPILE)
    row = pieces.row[mine]
    mine = mine[(row >= 0) & loads[row]]
    took = int(pieces.lengths(mine).sum())
    if not took:
        return finding
    count = len(kernels.distinct(pieces.row[mine]))
    calls = f"{count} launches of kernels" if count > 1 else "one launch of a kernel"
    detail = (
        f"{finding.detail} {duration(took)} of it passed in {calls} that had not run before: the driver loads a "
        "kernel's code when it is first used, once."
    )
    facts = finding.facts | {"first_uses": count, "first_use_ns": took}
    if 2 * took < finding.lost_ns:
        return replace(finding, detail=detail, facts=facts)
    place = finding.where.python or finding.where.operator
    return replace(
        finding,
        title=f"The device idles {duration(finding.lost_ns)} while kernels are loaded at their first use"
        f"{f', first of all in {short_place(place)}' if place else ''}",
        confidence="medium",  # by the length of the calls, not by their names
        detail=detail,
        advice="Run each kernel once before serving (a warm-up with the shapes to come), and record after that.",
        # it happens once, so a share per step would mislead
        facts={k: v for k, v in facts.items() if k not in ("steps", "per_step_ns", "per_token_ns")},
    )
