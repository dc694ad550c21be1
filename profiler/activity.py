"""What a host thread was doing at any moment: its call tree flattened to innermost spans.

A thread's nested spans become a sequence of disjoint segments, each owned by the innermost span open
in it. Time in a gap can then be attributed to classes of spans by prefix sums, without a loop.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stallscope.profiler import intervals
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.timeline import Int64, Timeline


class Segments(NamedTuple):
    """Disjoint segments by start, shape (s,): [start_ns, end_ns) is owned by span `row`."""

    start_ns: Int64
    end_ns: Int64
    row: npt.NDArray[np.intp]

    def only(self, mask: npt.NDArray[np.bool_]) -> IntervalSet:
        """The segments a mask chooses, as an interval set."""
        return intervals.union(self.start_ns[mask], self.end_ns[mask])


def flatten(timeline: Timeline, track: int) -> Segments:
    """The innermost-span segments of one host track."""
    rows = np.arange(timeline.track_rows(track).start, timeline.track_rows(track).stop)
    return flatten_rows(timeline, rows)


def flatten_rows(timeline: Timeline, rows: npt.NDArray[np.intp]) -> Segments:
    """The same for chosen rows of one track, in timeline order: all of them or whole subtrees less
    some kinds. A row's owner after a child ends is its nearest chosen ancestor."""
    spans = timeline.spans
    rows = rows[spans.dur_ns[rows] > 0]
    if len(rows) == 0:
        none = np.zeros(0, np.int64)
        return Segments(none, none, np.zeros(0, np.intp))
    parent = _chosen_parent(timeline, rows)
    start = spans.start_ns[rows]
    end = _clipped_ends(start + spans.dur_ns[rows], parent)
    depth = spans.depth[rows].astype(np.int64)
    # Edges by time; at one time ends come first (deepest first), then starts (outermost first), so the
    # last edge of a time tells who owns what follows.
    n = len(rows)
    time = np.concatenate([start, end])
    is_start = np.concatenate([np.ones(n, np.int8), np.zeros(n, np.int8)])
    rank = np.concatenate([depth, -depth])
    owner = np.concatenate([np.arange(n), parent])
    order = np.lexsort((rank, is_start, time))
    time, owner = time[order], owner[order]
    last = np.append(time[1:] != time[:-1], True)
    time, owner = time[last], owner[last]
    held = owner[:-1] >= 0
    return Segments(time[:-1][held], time[1:][held], rows[owner[:-1][held]])


def _chosen_parent(timeline: Timeline, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Position in `rows` of each row's nearest chosen ancestor, or -1."""
    position = np.full(len(timeline.spans), -1, np.intp)
    position[rows] = np.arange(len(rows))
    up = timeline.spans.parent[rows].astype(np.intp)
    while True:
        skipped = (up >= 0) & (position[np.maximum(up, 0)] < 0)
        if not skipped.any():
            break
        up[skipped] = timeline.spans.parent[up[skipped]]
    return np.where(up >= 0, position[np.maximum(up, 0)], -1)


def _clipped_ends(end: Int64, parent: npt.NDArray[np.intp]) -> Int64:
    """Ends cut to the parent's end; parents stand before their children, so few rounds suffice."""
    has = parent >= 0
    while True:
        limit = np.where(has, end[np.maximum(parent, 0)], end)
        over = end > limit
        if not over.any():
            return end
        end = np.where(over, limit, end)


def filled(first: Segments, weak: npt.NDArray[np.bool_], second: Segments) -> Segments:
    """The segments of `first`, with those of `second` where `first` has none or only a `weak` one."""
    if len(first.row) == 0:
        return second
    points = np.unique(np.concatenate([first.start_ns, first.end_ns, second.start_ns, second.end_ns]))
    begin, end = points[:-1], points[1:]
    row, at = _owner(first, begin)
    other, _ = _owner(second, begin)
    use = (other >= 0) & ((row < 0) | weak[np.maximum(at, 0)])
    row = np.where(use, other, row)
    held = row >= 0
    return Segments(begin[held], end[held], row[held])


def _owner(segments: Segments, times: Int64) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The row that owns each time and the index of its segment, -1 where there is none."""
    if len(segments.row) == 0:
        none = np.full(len(times), -1, np.intp)
        return none, none
    at = np.searchsorted(segments.start_ns, times, side="right") - 1
    inside = (at >= 0) & (times < segments.end_ns[np.maximum(at, 0)])
    return np.where(inside, segments.row[np.maximum(at, 0)], -1), np.where(inside, at, -1)


def owned(segments: Segments, mask: npt.NDArray[np.bool_], start_ns: Int64, end_ns: Int64) -> Int64:
    """How much of each [start_ns, end_ns) the chosen segments own, shape of `start_ns`."""
    return intervals.covered(segments.only(mask), start_ns, end_ns)
