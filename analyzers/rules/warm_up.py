"""The first steps of the recording are warm-up: much slower than those that follow.

## What it finds
Leading steps of a phase in which the device idles over three times as long as in the steps after them (without a
device: that take three times as long). Other rules leave these steps
out, so that what they find is how the run is and not how it started.

## Why it costs time
First uses load kernels, choose algorithms, fill caches and allocate memory. In a recording of some steps this is a
large share of the time; in a server it hits the first requests.

## What to try
Start the recording later (`stallscope run --window 3:20`, a profiler schedule with warm-up), and warm the server up
before it takes requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers.finding import Evidence, Finding
from stallscope.analyzers.phases import PhaseSeries
from stallscope.analyzers.registry import limit
from stallscope.analyzers.units import duration
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "ST701"
NAME = "warm-up"
NEEDS = {"steps"}


@dataclass(frozen=True)
class Limits:
    """When warm-up is worth a finding."""

    min_share: float = limit(
        0.05, "Share of the recorded steps' time that the warm-up takes beyond ordinary steps."
    )


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per phase."""
    whole = sum(int(s.length_ns.sum()) for s in run.series)
    for phase in run.series:
        idle = run.idle_per_step(phase)
        usual = int(np.median(idle[phase.warm_up :])) if phase.warm_up else 0
        lost = sum(int(n) - usual for n in idle[: phase.warm_up])
        if phase.warm_up and lost >= limits.min_share * whole:
            yield _finding(phase, lost)


def _finding(phase: PhaseSeries, lost: int) -> Finding:
    first = phase.steps[: phase.warm_up]
    return Finding(
        code=CODE,
        name=NAME,
        title=(
            f"The first {len(first)} {_named(phase)}step{'s' if len(first) > 1 else ''} of the recording waited "
            f"{duration(lost)} longer than the others"
        ),
        lost_ns=lost,
        recoverable_ns=lost,
        confidence=first[0].confidence,
        phase=phase.phase,
        detail=(
            f"{', '.join(duration(s.dur_ns) for s in first)} against a median of {duration(phase.median_ns)} over the "
            f"{len(phase.steady_ns)} steps after them. They are left out of the other findings."
        ),
        advice="Begin to record after the warm-up, and warm up before serving.",
        evidence=tuple(Evidence(s.track, s.start_ns, s.end_ns, s.name) for s in first[:5]),
        facts={"warm_up_steps": len(first), "median_ns": phase.median_ns},
    )


def _named(phase: PhaseSeries) -> str:
    return "" if phase.phase == "other" else f"{phase.phase} "
