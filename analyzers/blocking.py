"""Launches that the host waits for one by one: what a debug switch does to every operator.

With ASCEND_LAUNCH_BLOCKING=1 each operator synchronises its stream after its launch; the recording shows that as a
synchronising call directly after a launch, inside of the operator that made both. An operator that reads a value back
(`aten::item`) waits too, but launches no kernel before that.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.environment import variable
from stallscope.analyzers.places import FEW_LAUNCHES

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]

SWITCHES = ("ASCEND_LAUNCH_BLOCKING", "CUDA_LAUNCH_BLOCKING", "HIP_LAUNCH_BLOCKING", "AMD_SERIALIZE_KERNEL")
MIN_LAUNCHES = 20
"""Fewer launches show no habit."""
SHARE = 0.5
"""Share of launches followed by a synchronisation from which on they are blocking (Ascend advisor)."""


class LaunchBlocking:
    """Synchronisations that directly follow a launch of the same operator."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.launches = 0
        self.waited_for = 0
        self.syncs: Rows = self._find()

    def _find(self) -> Rows:
        run, spans = self.run, self.run.timeline.spans
        named = run.is_named_launch
        launch = np.flatnonzero(named & ~run.is_graph_launch & ~run.is_capturing)
        # a launch inside of another one (node and runtime level) is the same launch
        launch = run.outermost(launch, named)
        sync = run.outermost(np.flatnonzero(run.is_sync), run.is_sync)
        self.launches = len(launch)
        if len(launch) == 0 or len(sync) == 0:
            return np.zeros(0, np.intp)
        # rows of one thread are by start: the next synchronisation after each launch
        at = np.searchsorted(sync, launch)
        launch, following = launch[at < len(sync)], sync[at[at < len(sync)]]
        around = run.places.operators(following)
        same = (around >= 0) & (spans.track[following] == spans.track[launch])
        same &= spans.start_ns[np.maximum(around, 0)] <= spans.start_ns[launch]
        found, count = np.unique(following[same], return_counts=True)
        # an operator that holds many launches is a step or a module that synchronises once, by itself
        small = count <= FEW_LAUNCHES
        self.waited_for = int(count[small].sum())
        return np.asarray(found[small], np.intp)

    @property
    def share(self) -> float:
        """Share of the launches that are waited for at once."""
        return self.waited_for / self.launches if self.launches else 0.0

    @cached_property
    def active(self) -> bool:
        """Whether the host waits for launches one by one."""
        return self.launches >= MIN_LAUNCHES and self.share > SHARE

    @property
    def switch(self) -> str:
        """The switch that is known to be on, or ""."""
        return next((name for name in SWITCHES if variable(self.run, name) not in (None, "", "0")), "")
