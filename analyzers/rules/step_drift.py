"""Each step takes longer than the one before.

## What it finds
Phases whose steps grow steadily over the recording, though their batch size does not: the slope of a line through the
step times, checked against their scatter. Part of the growth of decode steps is their growing context; what attention
kernels account for is taken off.

## Why it costs time
Something grows with each step and is walked, copied or searched: a list of tokens, a cache without a limit, logs,
memory that fragments. A short recording shows little of it, a long-running server all of it.

## What to try
Look at the Python line that grows (named where it can be told), and at what is appended per step and never dropped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Evidence, Finding
from stallscope.analyzers.losses import Loss
from stallscope.analyzers.phases import PhaseSeries
from stallscope.analyzers.places import Place
from stallscope.analyzers.registry import limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "ST702"
NEEDS = {"steps", "device", "launches", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When growth is worth a finding."""

    min_steps: float = limit(6, "Fewer steady steps make no trend.")
    min_growth: float = limit(0.20, "Growth from first to last step, as a share of the median step.",
                              source="MindStudio-Agent calls a coefficient of variation over 0.20 drift")  # fmt: skip
    min_fit: float = limit(0.80, "Share of the variance that the line must explain (r squared).")


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per phase."""
    for phase in run.series:
        finding = _phase(run, phase, limits)
        if finding is not None:
            yield finding


def _phase(run: Run, phase: PhaseSeries, limits: Limits) -> Finding | None:
    # of a step before the first device event there is no idle time to be seen
    skip = max(phase.warm_up, 1 if run.whole.first_ns >= phase.steps[0].start_ns else 0)
    steps = phase.steps[skip:]
    if len(steps) < max(limits.min_steps, 3) or _batch_changes(phase):
        return None
    idle = run.idle_per_step(phase)[skip:].astype(np.float64)
    growth, fit, first = _line(idle)
    if growth < limits.min_growth * phase.median_ns or fit < limits.min_fit:
        return None
    lost = int(np.maximum(idle - max(first, 0.0), 0).sum())
    place = _growing(run, phase, idle, skip)
    named = f", in {place.text}" if place.python or place.operator else ""
    return Finding(
        code=CODE,
        name="step-drift",
        title=f"{'Steps' if phase.phase == 'other' else phase.phase.capitalize() + ' steps'} grow: the device idles {duration(int(growth))} more in the last than in the first{named}",
        lost_ns=lost,
        recoverable_ns=lost,
        confidence="high" if fit >= 0.9 else "medium",
        phase=phase.phase,
        where=place.where(),
        detail=(
            f"Over {len(steps)} steps the idle time of a step grew by {duration(int(growth))} ({share(int(growth), phase.median_ns)} of "
            f"the median step of {duration(phase.median_ns)}); a line explains {100 * fit:.0f} % of the differences."
        ),
        advice="Find what is appended in each step and never dropped.",
        evidence=tuple(Evidence(s.track, s.start_ns, s.end_ns, s.name) for s in (steps[0], steps[-1])),
        facts={"steps": len(steps), "growth_ns": int(growth), "per_step_ns": lost // len(steps), "fit": round(fit, 3)},
    )  # fmt: skip


def _batch_changes(phase: PhaseSeries) -> bool:
    sizes = {s.facts.get("batch", s.facts.get("bs")) for s in phase.steps}
    return len(sizes) > 1


def _line(values: npt.NDArray[np.float64]) -> tuple[float, float, float]:
    """Growth of a fitted line from first to last value, r squared, and the line's first value."""
    x = np.arange(len(values), dtype=np.float64)
    slope, cut = np.polyfit(x, values, 1)
    rest = float(((values - (slope * x + cut)) ** 2).sum())
    whole = float(((values - values.mean()) ** 2).sum())
    return float(slope) * (len(values) - 1), 1 - rest / whole if whole > 0 else 0.0, float(cut)


def _growing(run: Run, phase: PhaseSeries, idle: npt.NDArray[np.float64], skip: int) -> Place:
    """The place whose stalls grow along with the steps, if there is one."""
    for loss in run.stalls:
        per_step = _per_step(run, phase, loss)[skip:].astype(np.float64)
        growth, fit, _ = _line(per_step)
        if growth >= 0.5 * _line(idle)[0] and fit >= 0.5:
            return loss.place
    return Place()


def _per_step(run: Run, phase: PhaseSeries, loss: Loss) -> npt.NDArray[np.int64]:
    out = np.zeros(len(phase.steps), np.int64)
    at = run.step_index(phase, loss.account.host_end_ns[loss.gaps])
    np.add.at(out, at[at >= 0], loss.gap_ns[at >= 0])
    return out
