"""What mending a host-side cause gives back: the recording is replayed without it (`replay.Replay`).

Where the recording cannot be replayed closely enough, the idle time behind the cause itself is the bound. Each
finding says in its facts which of the two it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.gain import replayable, replayed_events, short_enough
from stallscope.analyzers.idle import HOST_WORK
from stallscope.analyzers.losses import Loss
from stallscope.analyzers.replay import Change
from stallscope.analyzers.waits import WaitBlocks
from stallscope.profiler import intervals, kernels
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]

BUDGET = 1_500_000
"""Events replayed for prices in one analysis at most (a replay takes about three microseconds an event); what comes
later, which is the cheaper findings of each rule, is bounded by idle time."""


AHEAD = 1.25
"""A price may be above the idle time behind a cause by this factor at most: the host gets ahead by what the cause
took while the device was busy, too, and later gaps shrink."""

BELIEVED = 0.5
"""Where a single device idled for a cause and the replay finds less than this share of that, the replay does not see
the cause (a launch call that takes long itself, threads that wait for each other): the idle time is the bound."""


@dataclass(frozen=True)
class Price:
    """`ns` is the price, `by` how it was found ("replay" or "idle time"), `error` the replay's own error, `fix` the
    change that was replayed."""

    ns: int
    by: str
    error: float = 0.0
    fix: Change | None = None

    def facts(self) -> dict[str, Any]:
        found: dict[str, Any] = {"priced_by": self.by}
        if self.by == "replay":
            found["replay_error"] = round(self.error, 4)
        return found


def price(run: Run, lost_ns: int, made: Callable[[], Change]) -> Price:
    """The time saved over the whole recording by a change; `lost_ns` where no replay can tell.

    The change is made only where the recording is short enough to replay it.
    """
    events = replayed_events(run)
    if run.priced_events + events > BUDGET or not short_enough(run):
        return Price(lost_ns, "idle time")
    change = made()
    if not change or not replayable(run):
        return Price(lost_ns, "idle time")
    tracks = {track for track, _, _ in change.host_cuts} | {
        int(run.timeline.spans.track[row]) for row in change.no_wait
    }
    if tracks - run.replay.known_tracks:
        return Price(lost_ns, "idle time")  # what a second thread waits for is not in the recording
    run.priced_events += events
    gain = min(run.replay.gain_ns(change), round(AHEAD * lost_ns))
    if gain < BELIEVED * lost_ns and len(run.devices) == 1:
        return Price(lost_ns, "idle time")
    return Price(gain, "replay", run.replay.model_error, change)


def without_stalls(run: Run, loss: Loss, places: Rows) -> Change:
    """The host work of stalls left out: from the thread's call before each gap's launch to that launch, as far as
    the span behind the stall (`places`, one row per gap of the device) reaches. What other causes took in these gaps
    (allocation, loading, waits) is theirs and stays."""
    account, spans = loss.account, run.timeline.spans
    cuts = []
    for track in kernels.distinct(account.track[loss.gaps]).tolist():
        mine = loss.gaps[account.track[loss.gaps] == track]
        until = account.host_end_ns[mine]
        begin = np.minimum(_call_before(run, track, until), account.view.gaps.start_ns[mine])
        row = np.maximum(places[mine], 0)
        known = places[mine] >= 0
        begin = np.where(known, np.maximum(begin, spans.start_ns[row]), begin)
        until = np.where(known, np.minimum(until, spans.end_at(row)), until)
        pieces = account.pieces
        others = np.isin(pieces.gap, mine) & ~np.isin(pieces.cause, [int(c) for c in HOST_WORK])
        kept = intervals.union(pieces.start_ns[others], pieces.end_ns[others])
        cuts.append((track, intervals.subtract(intervals.union(begin, until), kept), 0.0))
    return Change(host_cuts=cuts)


def _call_before(run: Run, track: int, until: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The end of the last launch or wait of a thread that began before each moment."""
    rows = run.timeline.track_rows(track)
    calls = rows.start + np.flatnonzero((run.is_launch | run.is_wait)[rows])
    spans = run.timeline.spans
    at = np.searchsorted(spans.start_ns[calls], until, side="left") - 1
    ends = spans.end_at(calls[np.maximum(at, 0)]) if len(calls) else until
    return np.where(at >= 0, np.minimum(ends, until), np.iinfo(np.int64).min // 4)


def without_times(tracks: dict[int, IntervalSet]) -> Change:
    """Host time of threads left out."""
    return Change(host_cuts=[(track, times, 0.0) for track, times in tracks.items() if len(times[0])])


def without_waits(run: Run, blocks: WaitBlocks, chosen: Rows) -> Change:
    """Some wait blocks gone: nothing waits, and operators that read back are not called at all."""
    timeline, spans = run.timeline, run.timeline.spans
    rows = timeline.track_rows(blocks.track)
    waits = rows.start + np.flatnonzero(run.is_wait[rows])
    inside = intervals.contains(
        intervals.union(blocks.start_ns[chosen], blocks.end_ns[chosen] + 1), spans.start_ns[waits]
    )
    waits = waits[inside]
    outer = kernels.distinct(run.places.calling_operators(waits))
    outer = outer[outer >= 0]
    calls = rows.start + np.flatnonzero((run.is_launch | run.is_wait)[rows])
    calls = calls[kernels.among(run.places.calling_operators(calls), outer)]
    launch = spans.launch_row[run.whole.rows]
    gone = run.whole.rows[kernels.among(launch, np.concatenate([waits, calls]))]
    times = intervals.union(spans.start_ns[outer], spans.end_at(outer))
    return Change(
        no_wait={int(r) for r in np.concatenate([waits, calls])},
        op_factor={int(r): 0.0 for r in gone},
        host_cuts=[(blocks.track, times, 0.0)] if len(outer) else [],
    )


def as_graphs(run: Run, phase: str) -> Change:
    """The single launches of each step of a phase as one; without steps, of each stretch between two waits."""
    spans = run.timeline.spans
    launch = kernels.distinct(spans.launch_row[run.whole.rows])
    launch = launch[launch >= 0].astype(np.intp)
    launch = launch[~run.is_graph_launch[launch] & ~run.is_wait[launch]]
    launch = launch[np.argsort(spans.start_ns[launch], kind="stable")]
    if phase:
        step = run.step_of_row[launch]
        phases = np.array([s.phase == phase for s in run.steps] + [False])
        steady = run.is_steady(spans.start_ns[launch])
        group = np.where(phases[step] & steady, step, -1)
    else:
        waits = np.sort(spans.start_ns[np.flatnonzero(run.is_wait)])
        group = np.where(
            run.is_steady(spans.start_ns[launch]), np.searchsorted(waits, spans.start_ns[launch]), -1
        )
    launch, group = launch[group >= 0], group[group >= 0]
    track = spans.track[launch]
    order = np.lexsort((track, group))
    launch, group, track = launch[order], group[order], track[order]
    cuts = np.flatnonzero((np.diff(group) != 0) | (np.diff(track) != 0)) + 1
    return Change(as_graph=[tuple(g.tolist()) for g in np.split(launch, cuts) if len(g) > 1])
