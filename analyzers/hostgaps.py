"""Gaps between the outermost operators of a thread: what a recording without a device can tell."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.idle import cut
from stallscope.profiler import intervals
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]
MIN_OPERATORS = 20
"""A thread with fewer outermost operators is not where the framework runs."""


@dataclass(frozen=True)
class HostGaps:
    """The gaps between outermost operators of one thread, by time; columns of shape (g,).

    `row` is the deepest span around most of the gap (-1: nothing was recorded), `next_row` the operator
    that ends it.
    """

    track: int
    start_ns: Int64
    end_ns: Int64
    row: Rows
    next_row: Rows
    span_ns: int

    @property
    def dur_ns(self) -> Int64:
        return self.end_ns - self.start_ns


class HostView:
    """The threads of a run that execute operators."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def threads(self) -> list[int]:
        """Tracks with enough outermost operators, the busiest first."""
        busy = []
        for track in self.run.host_tracks:
            rows = self._operators(track)
            if len(rows) >= MIN_OPERATORS:
                busy.append((int(self.run.timeline.spans.dur_ns[rows].sum()), track))
        return [track for _, track in sorted(busy, reverse=True)]

    def _operators(self, track: int) -> Rows:
        timeline = self.run.timeline
        rows = timeline.track_rows(track)
        mine = np.arange(rows.start, rows.stop)
        mine = mine[timeline.of_kind(Kind.OPERATOR, Kind.RUNTIME)[rows]]
        up = timeline.spans.parent[mine].astype(np.intp)
        return mine[self.run.places.nearest(up, timeline.of_kind(Kind.OPERATOR, Kind.RUNTIME)) < 0]

    @cached_property
    def gaps(self) -> list[HostGaps]:
        """The gaps of each thread."""
        return [self._gaps(track) for track in self.threads]

    def _gaps(self, track: int) -> HostGaps:
        spans = self.run.timeline.spans
        rows = self._operators(track)
        busy = intervals.union(spans.start_ns[rows], spans.end_at(rows))
        start, end = self._recorded(intervals.subtract(intervals.gaps(busy), self._elsewhere(track)))
        following = rows[np.minimum(np.searchsorted(spans.start_ns[rows], end, side="left"), len(rows) - 1)]
        return HostGaps(
            track, start, end, self._places(track, start, end), following, int(busy[1][-1] - busy[0][0])
        )

    def _elsewhere(self, track: int) -> IntervalSet:
        """When another thread of the process executed operators: a thread that waits for them is in no gap."""
        tracks, spans = self.run.timeline.tracks, self.run.timeline.spans
        others = [t for t in self.threads if t != track and tracks[t].process == tracks[track].process]
        rows = np.concatenate([self._operators(t) for t in others]) if others else np.zeros(0, np.intp)
        return intervals.union(spans.start_ns[rows], spans.end_at(rows))

    def _recorded(self, gaps: IntervalSet) -> IntervalSet:
        """Gaps inside of operator windows: between two windows nothing was to be seen."""
        windows = self.run.session.facts.get("windows")
        if not isinstance(windows, list):
            return gaps
        inside = np.zeros(len(gaps[0]), bool)
        for window in windows:
            begin, end = window.get("start_ns"), window.get("end_ns")
            if not isinstance(begin, int) or not isinstance(end, int):
                return gaps
            inside |= (gaps[0] >= begin) & (gaps[1] <= end)
        return (gaps[0][inside], gaps[1][inside]) if inside.any() else gaps

    def _places(self, track: int, start: Int64, end: Int64) -> Rows:
        none = np.zeros(0, np.int64)
        row, begin, until, index, _ = cut(self.run.segments(track), start, end, none)
        out = np.full(len(start), -1, np.intp)
        known = np.flatnonzero(row >= 0)
        order = known[np.lexsort((until[known] - begin[known], index[known]))]
        if len(order) == 0:
            return out
        longest = order[np.append(index[order][1:] != index[order][:-1], True)]
        gap = index[longest]
        covering = self.run.places.covering(row[longest], start[gap], end[gap], 0.6)
        held = until[longest] - begin[longest] >= 0.4 * (end[gap] - start[gap])
        out[gap] = np.where(covering >= 0, covering, np.where(held, row[longest], -1))
        return out
