"""Sets of half-open intervals on integer nanoseconds, as two sorted arrays. Knows no domain.

A *set* is a pair (starts, ends) of int64 arrays, sorted, disjoint, non-touching, every length > 0.
`union` makes a set of any spans; all other functions take sets and return sets or lengths.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels

Int64 = npt.NDArray[np.int64]
IntervalSet = tuple[Int64, Int64]

_BLOCK = 1 << 17
"""Points looked at at once: what is computed on the way stays small, and in the cache."""

_FEW = 8
"""So many intervals are compared with each point; among more they are searched."""

EMPTY: IntervalSet = (np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64))


def union(starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> IntervalSet:
    """The union of any spans: unsorted, overlapping and empty ones are fine.

    >>> [a.tolist() for a in union(np.array([5, 0, 2]), np.array([6, 3, 4]))]
    [[0, 5], [4, 6]]
    """
    return kernels.union(starts, ends)


def length(a: IntervalSet) -> int:
    """Total length."""
    return int((a[1] - a[0]).sum())


def gaps(a: IntervalSet) -> IntervalSet:
    """The holes between the first start and the last end."""
    return a[1][:-1], a[0][1:]


def complement(a: IntervalSet, start: int, end: int) -> IntervalSet:
    """What of [start, end) the set does not cover."""
    inside = clip(a, start, end)
    starts = np.concatenate([np.array([start], dtype=np.int64), inside[1]])
    ends = np.concatenate([inside[0], np.array([end], dtype=np.int64)])
    keep = ends > starts
    return starts[keep], ends[keep]


def clip(a: IntervalSet, start: int, end: int) -> IntervalSet:
    """The part of the set inside [start, end)."""
    starts, ends = np.maximum(a[0], start), np.minimum(a[1], end)
    keep = ends > starts
    return starts[keep], ends[keep]


def intersect(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """What both sets cover."""
    if len(a[0]) == 0 or len(b[0]) == 0:
        return EMPTY
    return kernels.intersect(a, b)


def subtract(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """What the first set covers and the second does not."""
    if len(a[0]) == 0 or len(b[0]) == 0:
        return a
    low = int(min(a[0][0], b[0][0]))
    high = int(max(a[1][-1], b[1][-1]))
    return intersect(a, complement(b, low, high))


def covered(a: IntervalSet, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]) -> Int64:
    """How much of each span [starts[i], ends[i]) the set covers, shape of `starts`.

    The spans may overlap and be in any order. O((n + m) log n) by prefix sums.
    """
    if len(a[0]) == 0:
        return np.zeros(len(starts), dtype=np.int64)
    return kernels.covered(a, starts, ends)


def contains(a: IntervalSet, points: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Whether each point lies inside the set."""
    if len(a[0]) == 0:
        return np.zeros(len(points), dtype=bool)
    inside = np.zeros(len(points), dtype=bool)
    if len(a[0]) <= _FEW:
        for low in range(0, len(points), _BLOCK):
            some, found = points[low : low + _BLOCK], inside[low : low + _BLOCK]
            for start, end in zip(*a, strict=True):
                found |= (some >= start) & (some < end)
        return inside
    for low in range(0, len(points), _BLOCK):
        some = points[low : low + _BLOCK]
        i = np.searchsorted(a[0], some, side="right") - 1
        inside[low : low + _BLOCK] = (i >= 0) & (some < a[1][np.maximum(i, 0)])
    return inside
