"""Steps seen as series: warm-up, medians, spikes and drift per phase."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stallscope.profiler.light import dataclass
from stallscope.profiler.steps import Step
from stallscope.profiler.timeline import Int64

WARM_UP_FACTOR = 3.0
"""A first step with more overhead than this many medians is warm-up (MindStudio-Agent, gpuprof)."""
MIN_STEPS = 4
"""Fewer steps of a phase make no median."""
WARM_UP_SHARE = 0.5
"""And by this share of a median step, so that tiny overheads do not count."""
MAX_WARM_UP = 0.34
"""More than this share of a phase's steps is not warm-up but how the run is."""


@dataclass(frozen=True)
class PhaseSeries:
    """The steps of one phase by time. `length_ns` and `start_ns` have shape (k,), `warm_up` counts the
    leading warm-up steps among them."""

    phase: str
    steps: tuple[Step, ...]
    start_ns: Int64
    length_ns: Int64
    warm_up: int

    @property
    def steady_ns(self) -> Int64:
        return self.length_ns[self.warm_up :]

    @property
    def median_ns(self) -> int:
        return int(np.median(self.steady_ns)) if len(self.steady_ns) else 0


def series(steps: list[Step], overhead_ns: Callable[[tuple[Step, ...]], Int64]) -> list[PhaseSeries]:
    """One series per phase, the longest in sum first.

    `overhead_ns` tells how much of each step is not work of the device (or, without one, not waiting): a step
    that is long because its prompt is long is no warm-up.
    """
    out = []
    for phase in sorted({s.phase for s in steps}):
        mine = tuple(s for s in steps if s.phase == phase)
        length = np.array([s.dur_ns for s in mine], np.int64)
        start = np.array([s.start_ns for s in mine], np.int64)
        out.append(PhaseSeries(phase, mine, start, length, _warm_up(length, overhead_ns(mine))))
    return sorted(out, key=lambda s: -int(s.length_ns.sum()))


def _warm_up(length: Int64, overhead: Int64) -> int:
    """How many leading steps are warm-up: their overhead is over three medians of those that follow, and much."""
    if len(length) < MIN_STEPS:
        return 0
    most = int(len(length) * MAX_WARM_UP)
    for count in range(most, 0, -1):
        limit = WARM_UP_FACTOR * float(np.median(overhead[count:])) + WARM_UP_SHARE * float(
            np.median(length[count:])
        )
        if bool((overhead[:count] > limit).all()):
            return count
    return 0
