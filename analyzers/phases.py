"""Steps seen as series: warm-up, medians, spikes and drift per phase."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stallscope.profiler.steps import Step
from stallscope.profiler.timeline import Int64

WARM_UP_FACTOR = 3.0
"""A first step longer than this many medians is warm-up (MindStudio-Agent, gpuprof)."""
MIN_STEPS = 4
"""Fewer steps of a phase make no median."""
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


def series(steps: list[Step]) -> list[PhaseSeries]:
    """One series per phase, the longest in sum first."""
    out = []
    for phase in sorted({s.phase for s in steps}):
        mine = tuple(s for s in steps if s.phase == phase)
        length = np.array([s.dur_ns for s in mine], np.int64)
        start = np.array([s.start_ns for s in mine], np.int64)
        out.append(PhaseSeries(phase, mine, start, length, _warm_up(length)))
    return sorted(out, key=lambda s: -int(s.length_ns.sum()))


def _warm_up(length: npt.NDArray[np.int64]) -> int:
    """How many leading steps are warm-up: each over three medians of those that follow."""
    if len(length) < MIN_STEPS:
        return 0
    most = int(len(length) * MAX_WARM_UP)
    for count in range(most, 0, -1):
        usual = float(np.median(length[count:]))
        if usual > 0 and bool((length[:count] > WARM_UP_FACTOR * usual).all()):
            return count
    return 0
