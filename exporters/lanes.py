"""Lanes: which line of a picture a span is drawn on, so that nothing hides anything.

Viewers drop a slice that crosses another one on the same line, and real tracks hold such slices: clock
resolution lets children outlive parents, and kernels of one stream overlap (dependent launches, parallel
branches of a graph). Spans are moved to further lanes, and never shortened.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import numpy as np

from stallscope.profiler import kernels
from stallscope.profiler.timeline import Bool, Int32, Int64, Timeline

Assign = Callable[[Int64, Int64], Int32]

_NESTING_LANES = 32
"""Lanes that are searched for a place to nest; later ones take disjoint spans only, so that a file of a
million crossing spans costs n log n and not n * n."""

_ROUNDS = 8
"""How often whole columns are gone through before spans are placed one by one."""


def assign_lanes(start_ns: Int64, end_ns: Int64) -> Int32:
    """A lane for each span, shape (n,): within a lane any two spans are disjoint or one holds the other.

    Spans may come in any order. Lane 0 takes what fits; a span inside a moved one follows it to its lane.

    >>> assign_lanes(np.array([0, 5, 10]), np.array([10, 15, 20])).tolist()
    [0, 1, 0]
    """
    return _in_order(start_ns, end_ns, _nesting)


def assign_disjoint_lanes(start_ns: Int64, end_ns: Int64) -> Int32:
    """A lane for each span, shape (n,): within a lane no two spans overlap. Any order.

    For device work: a kernel that runs while another one does is not a part of it.

    >>> assign_disjoint_lanes(np.array([0, 5, 10]), np.array([10, 8, 20])).tolist()
    [0, 1, 0]
    """
    return _in_order(start_ns, end_ns, _disjoint)


def timeline_lanes(timeline: Timeline) -> Int32:
    """The lane of every row on its own track, shape (n,): disjoint on device tracks, nesting elsewhere."""
    lanes = np.zeros(len(timeline), np.int32)
    starts, ends = timeline.spans.start_ns, timeline.spans.end_ns
    for number, track in enumerate(timeline.tracks):
        rows = timeline.track_rows(number)
        assign = _disjoint if track.role == "device" else _nesting
        lanes[rows] = _in_order(starts[rows], ends[rows], assign)
    return lanes


def _in_order(start_ns: Int64, end_ns: Int64, assign: Assign) -> Int32:
    """Calls `assign` with the spans by start, longer ones first."""
    if len(start_ns) == 0:
        return np.zeros(0, np.int32)
    step = np.diff(start_ns)
    if (step > 0).all() or ((step >= 0).all() and (np.diff(end_ns)[step == 0] <= 0).all()):
        return assign(start_ns, end_ns)
    order = np.lexsort((-end_ns, start_ns))
    lanes = np.empty(len(order), np.int32)
    lanes[order] = assign(start_ns[order], end_ns[order])
    return lanes


def _nesting(start_ns: Int64, end_ns: Int64) -> Int32:
    lanes = np.zeros(len(start_ns), np.int32)
    left = np.arange(len(start_ns))
    for _ in range(_ROUNDS):
        moved = _moved(start_ns[left], end_ns[left])
        if moved is None:
            break
        left = left[moved]
        if len(left) == 0:
            return lanes
        lanes[left] += 1
    # a tangle: place one span after the other, in the groups of overlapping spans that hold a crossing one
    return _place(start_ns, end_ns, _crossing(start_ns, end_ns)[0], _nest_in_lanes)


def _moved(start_ns: Int64, end_ns: Int64) -> Bool | None:
    """Which spans, with all they hold, leave a lane so that the rest nests; None if that takes too long."""
    gone = np.zeros(len(start_ns), bool)
    for _ in range(_ROUNDS):
        kept = np.flatnonzero(~gone)
        start = start_ns[kept]
        crossing, clipped_ns = _crossing(start, end_ns[kept])
        at = np.flatnonzero(crossing)
        if len(at) == 0:
            return gone
        step = np.zeros(len(kept) + 1, np.int64)
        np.add.at(step, at, 1)
        np.add.at(step, np.maximum(np.searchsorted(start, clipped_ns[at]), at + 1), -1)
        gone[kept[np.cumsum(step[:-1]) > 0]] = True
    return None


def _disjoint(start_ns: Int64, end_ns: Int64) -> Int32:
    overlapping = np.zeros(len(start_ns), bool)
    overlapping[1:] = start_ns[1:] < np.maximum.accumulate(end_ns)[:-1]
    return _place(start_ns, end_ns, overlapping, _split_in_lanes)


def _place(start_ns: Int64, end_ns: Int64, bad: Bool, assign: Callable[..., list[int]]) -> Int32:
    """Lanes by `assign` for the groups of overlapping spans that hold a bad one; lane 0 for all others."""
    lanes = np.zeros(len(start_ns), np.int32)
    if not bad.any():
        return lanes
    first = np.ones(len(start_ns), bool)
    first[1:] = start_ns[1:] >= np.maximum.accumulate(end_ns)[:-1]
    group = np.cumsum(first) - 1
    is_bad = np.zeros(int(group[-1]) + 1, bool)
    is_bad[group[bad]] = True
    rows = np.flatnonzero(is_bad[group])
    lanes[rows] = assign(start_ns[rows].tolist(), end_ns[rows].tolist())
    return lanes


def _crossing(start_ns: Int64, end_ns: Int64) -> tuple[Bool, Int64]:
    """Spans that neither nest in what is open nor follow it, and the ends of what they hold. Shapes (n,)."""
    parent, _, _, clipped_ns = kernels.nest(np.zeros(len(start_ns), np.int32), start_ns, end_ns - start_ns)
    crossing: Bool = clipped_ns != end_ns
    by_parent = np.argsort(parent, kind="stable")
    siblings = parent[by_parent][1:] == parent[by_parent][:-1]
    overlap = siblings & (end_ns[by_parent][:-1] > start_ns[by_parent][1:])
    crossing[by_parent[1:][overlap]] = True
    return crossing, clipped_ns


def _nest_in_lanes(starts: list[int], ends: list[int]) -> list[int]:
    lanes: list[int] = []
    stacks: list[list[int]] = [[]]
    """Per lane the ends of its open spans, outermost first."""
    recent: list[tuple[int, int]] = []
    """End and lane of spans, the latest start last; closed ones are dropped when they come to the top."""
    rest = _FreeLanes(_NESTING_LANES)
    for start, end in zip(starts, ends, strict=True):
        while recent and recent[-1][0] <= start:
            recent.pop()
        lane = recent[-1][1] if recent else 0
        if lane >= _NESTING_LANES or not _fits(stacks[lane], start, end):
            lane = next((i for i, stack in enumerate(stacks) if _fits(stack, start, end)), len(stacks))
        if lane == _NESTING_LANES:
            lane = rest.take(start, end)
        else:
            if lane == len(stacks):
                stacks.append([])
            stacks[lane].append(end)
        recent.append((end, lane))
        lanes.append(lane)
    return lanes


def _fits(stack: list[int], start: int, end: int) -> bool:
    while stack and stack[-1] <= start:
        stack.pop()
    return not stack or stack[-1] >= end


def _split_in_lanes(starts: list[int], ends: list[int]) -> list[int]:
    lanes = _FreeLanes(0)
    return [lanes.take(start, end) for start, end in zip(starts, ends, strict=True)]


class _FreeLanes:
    """Hands out the lowest lane that is free at a start; starts must not fall."""

    def __init__(self, first: int) -> None:
        self._next = first
        self._free: list[int] = []
        self._busy: list[tuple[int, int]] = []

    def take(self, start: int, end: int) -> int:
        while self._busy and self._busy[0][0] <= start:
            heappush(self._free, heappop(self._busy)[1])
        if self._free:
            lane = heappop(self._free)
        else:
            lane = self._next
            self._next += 1
        heappush(self._busy, (end, lane))
        return lane
