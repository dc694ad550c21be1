"""What faster kernels would give back: not the kernel time alone, since a device that waits for the host gains nothing.

The change is priced by replaying the recording (`replay.Replay`). Where the replay does not describe the run, or the
recording is too long to replay, the kernel time itself is the bound, and only where the device is the slower side.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers.registry import NotAnalysable
from stallscope.analyzers.replay import MAX_ERROR, Change
from stallscope.analyzers.units import share
from stallscope.profiler import intervals, kernels
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

MOST_EVENTS = 150_000
"""Longer recordings are not replayed: a replay takes some microseconds per event."""
BUSY_ENOUGH = 0.8
"""Without a replay, kernel time counts only where the device is busy for at least this share of its span."""


@dataclass(frozen=True)
class Saving:
    """Nanoseconds over the whole recording. `by` is "replay" or "kernel time", which is an upper bound; `fix` the
    change that was replayed."""

    ns: int
    by: str
    fix: Change | None = None

    @property
    def text(self) -> str:
        """How the number was found, as the end of a sentence."""
        if self.by == "replay":
            return "priced by replaying the recording"
        return "an upper bound from the kernels' own time: the recording cannot be replayed closely enough"


def saving(run: Run, factors: Mapping[int, float]) -> Saving:
    """What it saves if each device row takes `factors[row]` of its time.

    A row of factor 0 is work that is not done at all: the host's part of it, the operator that launched it, is left
    out as well. Raises NotAnalysable where neither a replay nor the kernel time itself can tell.
    """
    spans = run.timeline.spans
    direct = sum(int(spans.dur_ns[row]) * (1 - factor) for row, factor in factors.items())
    if replayable(run):
        cuts = _operators_of(run, [row for row, factor in factors.items() if factor == 0])
        host = sum(intervals.length(times) for _, times, _ in cuts)
        fix = Change(op_factor=dict(factors), host_cuts=cuts)
        return Saving(min(run.replay.gain_ns(fix), round(direct) + host), "replay", fix)
    busy = run.whole.busy_ns / max(run.whole.span_ns, 1)
    if busy < BUSY_ENOUGH:
        raise NotAnalysable(
            f"the device is busy {share(run.whole.busy_ns, run.whole.span_ns)} of its time, and {why_not_replayable(run)}: what faster "
            "kernels would give back is not known"
        )
    return Saving(round(direct), "kernel time")


def _operators_of(run: Run, rows: list[int]) -> list[tuple[int, IntervalSet, float]]:
    """Host time of the operators behind some device rows, as cuts of a change: those that started nothing else."""
    spans = run.timeline.spans
    launch = spans.launch_row[np.array(rows, np.intp)].astype(np.intp)
    launch = launch[(launch >= 0) & ~run.is_graph_launch[np.maximum(launch, 0)]]
    outer = run.places.outer_operators(launch)
    all_launches = kernels.distinct(spans.launch_row[run.whole.rows])
    every, count = np.unique(
        run.places.outer_operators(all_launches[all_launches >= 0].astype(np.intp)), return_counts=True
    )
    mine, mine_count = np.unique(outer[outer >= 0], return_counts=True)
    alone = mine[mine_count == count[np.searchsorted(every, mine)]] if len(every) else mine[:0]
    return [
        (track, intervals.union(spans.start_ns[at], spans.end_at(at)), 0.0)
        for track in kernels.distinct(spans.track[alone]).tolist()
        if len(at := alone[spans.track[alone] == track])
    ]


def replayable(run: Run) -> bool:
    """Whether the recording can be replayed closely enough to price a change."""
    return short_enough(run) and "launches" in run.has and run.replay.trusted


def replayed_events(run: Run) -> int:
    """What a replay walks through: device work and launches."""
    return len(run.whole.rows) + int(np.count_nonzero(run.is_launch))


def short_enough(run: Run) -> bool:
    """Whether a replay would take little time."""
    return replayed_events(run) <= MOST_EVENTS


def why_not_replayable(run: Run) -> str:
    """The reason `replayable` says no."""
    if not short_enough(run):
        return f"the recording is too long to replay (limit {MOST_EVENTS:,} events)"
    if "launches" not in run.has:
        return "it cannot be replayed without launches"
    worst = max(run.replay.model_error, run.replay.self_error)
    return f"replaying it unchanged misses its recorded time by {100 * worst:.1f} % (limit {100 * MAX_ERROR:.0f} %)"
