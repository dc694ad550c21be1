"""How a run uses captured graphs (CUDA, HIP, ACL): per step, what was replayed and what was launched one by one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.registry import NotAnalysable
from stallscope.analyzers.replay import Change
from stallscope.profiler import intervals, kernels
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.links import submitters

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]

WHOLE = 0.80
"""From this share of replayed kernels on, a step counts as replayed; under `EAGER` as launched one by one."""
EAGER = 0.20


@dataclass(frozen=True)
class StepUse:
    """One step: kernels replayed from graphs and launched one by one, and its launch calls in order.

    `between` are calls that launched kernels one by one between the first and the last replay of the step.
    """

    step: int
    replayed: int
    eager: int
    launches: Rows
    replays: Rows
    between: Rows

    @property
    def coverage(self) -> float:
        return self.replayed / max(self.replayed + self.eager, 1)


class GraphUse:
    """The use of graphs in all steps outside of warm-up."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def any(self) -> bool:
        """Whether any kernel was replayed from a graph."""
        return any(u.replayed for u in self.steps)

    @cached_property
    def steps(self) -> list[StepUse]:
        """Steps that launched kernels, in order."""
        spans = self.run.timeline.spans
        rows = self.run.whole.rows
        rows = rows[self.run.timeline.are_kind(rows, Kind.KERNEL, Kind.COLLECTIVE)]
        launch = spans.launch_row[rows].astype(np.intp)
        step = self.run.step_of_row[np.maximum(launch, 0)]
        keep = (launch >= 0) & (step >= 0) & self.run.is_steady(spans.start_ns[np.maximum(launch, 0)])
        launch, step = launch[keep], step[keep]
        if len(step) == 0:
            return []
        order = np.lexsort((launch, step))
        launch, step = launch[order], step[order]
        edges = np.flatnonzero(np.append(True, np.diff(step) != 0))
        stops = [*edges[1:].tolist(), len(step)]
        return [self._use(int(step[a]), launch[a:b]) for a, b in zip(edges.tolist(), stops, strict=True)]

    def _use(self, step: int, launch: Rows) -> StepUse:
        spans = self.run.timeline.spans
        is_replay = self.run.is_graph_launch
        calls = kernels.distinct(launch)
        calls = calls[np.argsort(spans.start_ns[calls], kind="stable")]
        replays = calls[is_replay[calls]]
        between = calls[:0]
        if len(replays) >= 2:
            inside = (spans.start_ns[calls] > spans.start_ns[replays[0]]) & (
                spans.start_ns[calls] < spans.start_ns[replays[-1]]
            )
            between = calls[inside & ~is_replay[calls]]
        replayed = int(is_replay[launch].sum())
        return StepUse(step, replayed, len(launch) - replayed, calls, replays, between)

    def of_phase(self, phase: str) -> list[StepUse]:
        """The steps of one phase."""
        return [u for u in self.steps if self.run.steps[u.step].phase == phase]

    def as_graphs(self, uses: Sequence[StepUse], *, between_replays: bool = False) -> Change:
        """The change that makes each of these steps one graph launch; calls that wait stay as they are.

        With `between_replays` only what lies from the first to the last replay of a step joins. Raises NotAnalysable
        where several threads ask for launches. Behind a task queue the asking becomes one as well.
        """
        replay = self.run.replay
        spans = self.run.timeline.spans
        if any((spans.track[submitters(spans, u.launches)] != replay.main_track).any() for u in uses):
            raise NotAnalysable(
                "other threads than the leading one ask for some of the launches (autograd): what a graph saves "
                "cannot be priced"
            )
        joins = {int(r) for r in replay.calls[replay.wait_op < 0]}
        groups = []
        for use in uses:
            launches = (
                kernels.distinct(np.append(use.replays, use.between)) if between_replays else use.launches
            )
            groups.append(tuple(int(r) for r in launches if int(r) in joins))
        return Change(as_graph=[g for g in groups if len(g) > 1])

    def idle_ns(self, uses: Sequence[StepUse]) -> int:
        """Idle time of all devices from the first kernel of each of these steps to that of the next step."""
        view = self.run.whole
        step = self.run.step_of_row[view.rows]
        known = kernels.distinct(step[step >= 0])
        first = np.array([int(view.start_ns[np.argmax(step == s)]) for s in known], np.int64)
        order = np.argsort(first)
        first, known = first[order], known[order]
        stop = np.append(first[1:], view.last_ns)
        mine = kernels.among(known, [u.step for u in uses])
        inside = intervals.union(first[mine], stop[mine])
        idle = intervals.complement(view.busy, view.first_ns, view.last_ns)
        return intervals.length(intervals.intersect(idle, inside))
