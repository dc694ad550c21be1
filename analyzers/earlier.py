"""Names kernels that were launched before the recording began, by the sequence they stand in.

At the start of a window the device still works through what was launched before it: kernels without a launch, so
without an operator. If the program repeats itself, the same sequence of kernels follows with launches. A stretch of
names that occurs again, `LEAST` kernels or longer, is taken to be the same operators; where several places fit and
disagree on the cost of a kernel, that kernel stays unnamed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.kinds import Kind
from stallscope.profiler.timeline import Int32, Int64

if TYPE_CHECKING:
    from stallscope.analyzers.work import Calls, Work

Rows = npt.NDArray[np.intp]

LEAST = 12
"""Shorter stretches occur again by chance: a layer has about as many kernels."""
MOST_EARLIER = 5_000
MOST_LATER = 20_000
"""Longer sequences are not searched: the search takes time by their product."""


def earlier_kernels(work: Work, calls: Calls) -> dict[int, int]:
    """Kernels without a launch, each with the row of the kernel it repeats.

    Kernels that tell their own shapes (NPU) need no other to be known by.
    """
    found: dict[int, int] = {}
    spans = work.timeline.spans
    rows = work.attribution.device_rows
    rows = rows[work.timeline.are_kind(rows, Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)]
    stretches = []
    for track in kernels.distinct(spans.track[rows]).tolist():
        mine = rows[spans.track[rows] == track]
        linked = spans.launch_row[mine] >= 0
        first = int(np.argmax(linked)) if linked.any() else 0
        if LEAST <= first <= MOST_EARLIER and not linked[:first].any():
            stretches.append((mine[:first], mine[first : first + MOST_LATER]))
    if not stretches:
        return {}
    call_of = np.full(len(work.timeline), -1, np.int64)
    call_of[calls.rows] = np.repeat(np.arange(len(calls)), np.diff(calls.starts))
    for before, after in stretches:
        found |= _matched(work, calls, call_of, before, after)
    return {row: same for row, same in found.items() if call_of[row] < 0}


def _matched(work: Work, calls: Calls, call_of: Int64, before: Rows, after: Rows) -> dict[int, int]:
    names = work.timeline.spans.name
    length, place = longest_matches(names[before], names[after])
    cost = np.append(calls.cost, -1)
    out: dict[int, int] = {}
    i = 0
    while i < len(before):
        size = min(int(length[i]), len(before) - i)
        if length[i] < LEAST:
            i += 1
            continue
        at = int(place[i])
        there = after[at : at + size]
        others = _other_places(names[before[i : i + size]], names[after], at)
        codes = cost[call_of[there]]
        sure = np.ones(size, bool)
        for other in others:
            sure &= cost[call_of[after[other : other + size]]] == codes
        out.update(zip(before[i : i + size][sure].tolist(), there[sure].tolist(), strict=True))
        i += size
    return out


def longest_matches(before: Int32, after: Int32) -> tuple[Int64, Int64]:
    """For each position of `before`, the longest stretch from it on that occurs in `after`, and where.

    A stretch may run on from `before` into `after`, as the sequence does. Both of shape (len(before),).

    >>> longest_matches(np.array([2, 3]), np.array([1, 2, 3, 1, 2, 3]))[0].tolist()
    [5, 4]
    """
    tail = after[: MOST_EARLIER // 10]
    whole = np.concatenate([before, tail])
    length, place = np.zeros(len(before), np.int64), np.zeros(len(before), np.int64)
    row = np.zeros(len(after) + 1, np.int32)
    for i in range(len(whole) - 1, -1, -1):
        row[:-1] = np.where(after == whole[i], row[1:] + 1, 0)
        if i >= len(before):
            # a stretch of `after` always matches itself
            row[i - len(before)] = 0
        else:
            place[i] = int(np.argmax(row[:-1]))
            length[i] = row[place[i]]
    return length, place


def _other_places(stretch: Int32, after: Int32, known: int, most: int = 8) -> list[int]:
    """Further places at which a stretch stands in `after`."""
    starts = np.flatnonzero(after == stretch[0])
    starts = starts[(starts != known) & (starts + len(stretch) <= len(after))]
    return [int(s) for s in starts if np.array_equal(after[s : s + len(stretch)], stretch)][:most]
