"""Interval sets against a picture of booleans, on random input."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.profiler import intervals
from stallscope.profiler.intervals import IntervalSet

WIDTH = 40
spans = st.lists(st.tuples(st.integers(0, WIDTH), st.integers(0, WIDTH)), max_size=12)


def columns(pairs: list[tuple[int, int]]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    return np.array([p[0] for p in pairs], np.int64), np.array([p[1] for p in pairs], np.int64)


def picture(pairs: list[tuple[int, int]]) -> npt.NDArray[np.bool_]:
    cells = np.zeros(WIDTH, bool)
    for start, end in pairs:
        cells[start : max(end, start)] = True
    return cells


def drawn(a: IntervalSet) -> npt.NDArray[np.bool_]:
    return picture(list(zip(a[0].tolist(), a[1].tolist(), strict=True)))


def is_a_set(a: IntervalSet) -> bool:
    return bool(np.all(a[1] > a[0]) and np.all(a[0][1:] > a[1][:-1]))


@given(spans)
def test_union(pairs: list[tuple[int, int]]) -> None:
    found = intervals.union(*columns(pairs))

    assert is_a_set(found)
    assert np.array_equal(drawn(found), picture(pairs))


@given(spans, spans)
def test_intersect_and_subtract(left: list[tuple[int, int]], right: list[tuple[int, int]]) -> None:
    a, b = intervals.union(*columns(left)), intervals.union(*columns(right))

    both, rest = intervals.intersect(a, b), intervals.subtract(a, b)

    assert is_a_set(both)
    assert is_a_set(rest)
    assert np.array_equal(drawn(both), picture(left) & picture(right))
    assert np.array_equal(drawn(rest), picture(left) & ~picture(right))


@given(spans, spans)
def test_covered_counts_what_lies_inside_each_span(
    left: list[tuple[int, int]], right: list[tuple[int, int]]
) -> None:
    a = intervals.union(*columns(left))
    starts, ends = columns([(s, max(s, e)) for s, e in right])

    found = intervals.covered(a, starts, ends)

    assert found.tolist() == [int(picture(left)[s:e].sum()) for s, e in zip(starts, ends, strict=True)]


@given(spans, st.lists(st.integers(-2, WIDTH + 2), max_size=10))
def test_contains(pairs: list[tuple[int, int]], points: list[int]) -> None:
    cells = picture(pairs)

    found = intervals.contains(intervals.union(*columns(pairs)), np.array(points, np.int64))

    assert found.tolist() == [0 <= p < WIDTH and bool(cells[p]) for p in points]


@given(spans)
def test_complement_and_gaps_fill_the_rest(pairs: list[tuple[int, int]]) -> None:
    a = intervals.union(*columns(pairs))

    rest = intervals.complement(a, 0, WIDTH)

    assert intervals.length(a) + intervals.length(rest) == WIDTH
    assert np.array_equal(drawn(rest), ~picture(pairs))
    if len(a[0]):
        assert intervals.length(intervals.gaps(a)) == int(a[1][-1] - a[0][0]) - intervals.length(a)


def test_points_are_looked_up_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intervals, "_BLOCK", 3)
    inside = intervals.contains((np.array([2, 6]), np.array([4, 7])), np.arange(8))
    assert inside.tolist() == [False, False, True, True, False, False, True, False]
