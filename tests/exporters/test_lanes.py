"""Lanes: small pictures by hand, and for any spans the promise that nothing hides anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallscope.exporters.lanes import assign_disjoint_lanes, assign_lanes, timeline_lanes
from support.lanes import timeline

spans = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 25)), max_size=40)
crowded = st.integers(34, 80).map(lambda n: [(i, 100) for i in range(n)] + [(i * 3, 2) for i in range(n)])


def columns(pairs: list[tuple[int, int]]) -> tuple[Any, Any]:
    starts = np.array([s for s, _ in pairs], np.int64)
    return starts, starts + np.array([d for _, d in pairs], np.int64)


def overlap(a: tuple[int, int], b: tuple[int, int]) -> bool:
    """Whether two spans share time; one without length inside another does, at its edges not."""
    return a[0] < b[1] and b[0] < a[1]


def holds(a: tuple[int, int], b: tuple[int, int]) -> bool:
    return a[0] <= b[0] and b[1] <= a[1]


def pairs_of_a_lane(starts: Any, ends: Any, lanes: Any) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    out = []
    for lane in np.unique(lanes):
        mine = [(int(s), int(e)) for s, e in zip(starts[lanes == lane], ends[lanes == lane], strict=True)]
        out += [(a, b) for i, a in enumerate(mine) for b in mine[i + 1 :]]
    return out


@given(spans | crowded)
@settings(max_examples=300, deadline=None)
def test_within_a_lane_spans_nest_or_are_disjoint(pairs: list[tuple[int, int]]) -> None:
    starts, ends = columns(pairs)
    lanes = assign_lanes(starts, ends)
    for a, b in pairs_of_a_lane(starts, ends, lanes):
        assert not overlap(a, b) or holds(a, b) or holds(b, a)


@given(spans | crowded)
@settings(max_examples=300, deadline=None)
def test_within_a_disjoint_lane_nothing_overlaps(pairs: list[tuple[int, int]]) -> None:
    starts, ends = columns(pairs)
    lanes = assign_disjoint_lanes(starts, ends)
    assert not any(overlap(a, b) for a, b in pairs_of_a_lane(starts, ends, lanes))
    most = max((int(((starts <= t) & (ends > t)).sum()) for t in starts), default=0)
    longer = ends > starts
    assert len(np.unique(lanes[longer])) <= max(most, 1)


@pytest.mark.parametrize(
    ("pairs", "lanes"),
    [
        ([(0, 10), (0, 10), (2, 3), (5, 5)], [0, 0, 0, 0]),
        ([(0, 10), (10, 10), (20, 0)], [0, 0, 0]),
        # the second sticks out by one; its own child goes with it, the next one is back on the first lane
        ([(0, 10), (8, 3), (9, 2), (12, 1)], [0, 1, 1, 0]),
    ],
)
def test_lanes_of_small_pictures(pairs: list[tuple[int, int]], lanes: list[int]) -> None:
    assert assign_lanes(*columns(pairs)).tolist() == lanes


def test_device_tracks_never_nest_and_host_tracks_do() -> None:
    line = timeline(
        """
        host     op:a@0..10 op:b@2..4 op:c@9..12
        stream7  kernel:k@0..10 kernel:l@2..4 kernel:m@10..12
        """
    ).timeline
    assert dict(zip((line.name(i) for i in range(6)), timeline_lanes(line).tolist(), strict=True)) == {
        "a": 0, "b": 0, "c": 1, "k": 0, "l": 1, "m": 0,
    }  # fmt: skip
