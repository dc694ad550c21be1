"""What a host thread was doing at any moment: its call tree flattened to innermost spans.

A thread's nested spans become a sequence of disjoint segments, each owned by the innermost span open
in it. Time in a gap can then be attributed to classes of spans by prefix sums, without a loop.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from stallscope.profiler import intervals, kernels
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.timeline import Int32, Int64, Timeline


class Segments(NamedTuple):
    """A thread's time from its first span to its last, cut where another span becomes the innermost: segment i is
    [edge_ns[i], edge_ns[i + 1]), owned by span row[i], by none where that is -1. Shapes (s + 1,), (s,); both are empty
    where there is none."""

    edge_ns: Int64
    row: Int32

    @property
    def start_ns(self) -> Int64:
        return self.edge_ns[:-1]

    @property
    def end_ns(self) -> Int64:
        return self.edge_ns[1:]

    def only(self, chosen: npt.NDArray[Any]) -> IntervalSet:
        """The segments that a mask or indices choose, as an interval set."""
        return intervals.union(self.start_ns[chosen], self.end_ns[chosen])

    def owned(self) -> tuple[Int64, Int64, Int32]:
        """Starts, ends and rows of the segments that have an owner."""
        has = self.row >= 0
        return self.start_ns[has], self.end_ns[has], self.row[has]


def flatten(timeline: Timeline, track: int) -> Segments:
    """The innermost-span segments of one host track."""
    rows = timeline.track_rows(track)
    return flatten_rows(timeline, np.arange(rows.start, rows.stop, dtype=np.int32))


def flatten_rows(timeline: Timeline, rows: npt.NDArray[np.signedinteger[Any]]) -> Segments:
    """The same for chosen rows of one track, in timeline order: all of them or whole subtrees less
    some kinds. A row's owner after a child ends is its nearest chosen ancestor."""
    spans = timeline.spans
    return Segments(*kernels.flatten(rows, spans.parent, spans.start_ns, spans.dur_ns))


def filled(first: Segments, weak: npt.NDArray[np.bool_], second: Segments) -> Segments:
    """The segments of `first`, with those of `second` where `first` has none or only a `weak` one."""
    if len(first.row) == 0:
        return second
    points = kernels.distinct(np.concatenate([first.edge_ns, second.edge_ns]))
    begin = points[:-1]
    row, at = _owner(first, begin)
    other, _ = _owner(second, begin)
    use = (other >= 0) & ((row < 0) | weak[np.maximum(at, 0)])
    return Segments(points, np.where(use, other, row).astype(np.int32))


def _owner(segments: Segments, times: Int64) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """The row that owns each time and the index of its segment, -1 where there is none."""
    if len(segments.row) == 0:
        none = np.full(len(times), -1, np.intp)
        return none, none
    at = np.searchsorted(segments.start_ns, times, side="right") - 1
    inside = (at >= 0) & (times < segments.end_ns[np.maximum(at, 0)])
    return np.where(inside, segments.row[np.maximum(at, 0)], -1), np.where(inside, at, -1)
