"""What a change would save: the changes a user can name, priced by the replay model."""

from __future__ import annotations

import re

import numpy as np

from stallscope.analyzers.registry import NotAnalysable
from stallscope.analyzers.replay import MAX_ERROR, Change, Replay
from stallscope.analyzers.run import Run
from stallscope.profiler import intervals, kernels
from stallscope.profiler.errors import OptionError
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.kinds import HOST_CALLS
from stallscope.profiler.light import dataclass


@dataclass(frozen=True)
class Prediction:
    """One priced change. Times are nanoseconds over the whole recording; `per_step_ns` is None without steps."""

    change: str
    recorded_ns: int
    predicted_ns: int
    gain_ns: int
    per_step_ns: int | None
    model_error: float


class WhatIf:
    """Prices changes on one recording. Raises NotAnalysable where the model does not describe it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        if reason := run.missing(frozenset({"device", "launches"})):
            raise NotAnalysable(reason)
        self.replay = Replay(run)
        if not self.replay.trusted:
            worst = max(self.replay.model_error, self.replay.self_error)
            raise NotAnalysable(
                f"replaying the unchanged run misses its recorded time by {100 * worst:.1f} % "
                f"(limit {100 * MAX_ERROR:.0f} %), so no prediction is made"
            )

    def predict(self, name: str, change: Change) -> Prediction:
        """The time saved by a change."""
        gain = self.replay.gain_ns(change)
        recorded = self.replay.recorded_ns
        steps = len([s for s in self.run.steps if s.phase == "decode"]) or len(self.run.steps)
        return Prediction(name, recorded, recorded - gain, gain, gain // steps if steps else None,
                          self.replay.model_error)  # fmt: skip

    def remove_waits(self) -> Change:
        """No call waits for the device any more."""
        waits = self.replay.calls[(self.replay.wait_op >= 0) & ~self.replay.wait_on_start]
        return Change(no_wait={int(r) for r in waits})

    def scale_host(self, factor: float) -> Change:
        """All host work takes `factor` of its time."""
        low, high = -(1 << 60), 1 << 60
        everywhere = (np.array([low], np.int64), np.array([high], np.int64))
        rows = self.run.timeline.rows(*HOST_CALLS)
        tracks = {int(t) for t in kernels.distinct(self.run.timeline.spans.track[rows])}
        return Change(host_cuts=[(track, everywhere, factor) for track in tracks])

    def speed_up(self, pattern: str, factor: float) -> Change:
        """Kernels whose name matches take 1/factor of their time. Raises OptionError if none match."""
        try:
            regex = re.compile(pattern)
        except re.error as error:
            raise OptionError(f"{pattern!r} is no regular expression ({error}).") from None
        matches = self.run.timeline.match_names(lambda name: regex.search(name) is not None)
        rows = self.replay.ops[matches[self.replay.ops]]
        if len(rows) == 0:
            raise OptionError(f"no kernel's name matches {pattern!r}.")
        return Change(op_factor={int(r): 1 / factor for r in rows})

    def graph_steps(self, phase: str = "decode") -> Change:
        """All launches of each step become one graph launch: of the steps of a phase, or of all steps where
        none is told to be of that phase. Raises NotAnalysable without steps."""
        steps = [i for i, s in enumerate(self.run.steps) if s.phase == phase]
        steps = steps or list(range(len(self.run.steps)))
        if not steps:
            raise NotAnalysable("no steps were found, so there is nothing to capture as a graph")
        of_call = self.run.step_of_row[self.replay.calls]
        launches = np.zeros(len(self.replay.calls), bool)
        launches[self.replay.op_call[self.replay.op_call >= 0]] = True
        launches &= self.replay.wait_op < 0
        groups = [tuple(int(r) for r in self.replay.calls[(of_call == step) & launches]) for step in steps]
        return Change(as_graph=[g for g in groups if len(g) > 1])


def combined(changes: list[Change]) -> Change:
    """All of the changes at once."""
    out = Change()
    for change in changes:
        out.host_cuts.extend(change.host_cuts)
        out.no_wait |= change.no_wait
        for mine, theirs in ((out.op_factor, change.op_factor), (out.call_factor, change.call_factor)):
            for row, factor in theirs.items():
                mine[row] = min(factor, mine.get(row, factor))
        out.as_graph.extend(change.as_graph)
    out.host_cuts = _disjoint(out.host_cuts)
    return out


def _disjoint(cuts: list[tuple[int, IntervalSet, float]]) -> list[tuple[int, IntervalSet, float]]:
    """The same cuts, each time of a thread in one of them only: in that with the smallest factor."""
    out: list[tuple[int, IntervalSet, float]] = []
    for track in sorted({track for track, _, _ in cuts}):
        taken = intervals.EMPTY
        for factor in sorted({f for t, _, f in cuts if t == track}):
            mine = [times for t, times, f in cuts if t == track and f == factor]
            whole = intervals.union(*(np.concatenate(ends) for ends in zip(*mine, strict=True)))
            out.append((track, intervals.subtract(whole, taken), factor))
            taken = intervals.union(*(np.concatenate(ends) for ends in zip(taken, whole, strict=True)))
    return out
