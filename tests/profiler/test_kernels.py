"""The compiled kernels equal their Python twins, and both equal small drawn cases worked out by hand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stallscope.profiler import kernels, kernels_py
from stallscope.profiler.ids import NO_ID
from stallscope.profiler.timeline import ARG_WIDE, ArgStore, StringTable

needs_core = pytest.mark.skipif(kernels.core is None, reason="the compiled core was not built")
both = pytest.mark.parametrize(
    "module", [pytest.param(kernels, marks=needs_core, id="compiled"), pytest.param(kernels_py, id="python")]
)


def i8(*values: int) -> Any:
    return np.array(values, np.int64)


# -- drawn cases ------------------------------------------------------------------------------------


@both
def test_nest_draws_a_tree(module: Any) -> None:
    # main 0..100 holds a 10..40 (which holds b 10..20) and c 50..60; next track starts afresh
    track = np.array([0, 0, 0, 0, 1], np.int32)
    parent, depth, self_ns, end = module.nest(track, i8(0, 10, 10, 50, 5), i8(100, 30, 10, 10, 7))
    assert parent.tolist() == [-1, 0, 1, 0, -1]
    assert depth.tolist() == [0, 1, 2, 1, 0]
    assert self_ns.tolist() == [60, 20, 10, 10, 7]
    assert end.tolist() == [100, 40, 20, 60, 12]


@both
def test_a_child_that_outlives_its_parent_is_clipped(module: Any) -> None:
    track = np.zeros(3, np.int32)
    parent, _, self_ns, end = module.nest(track, i8(0, 10_000, 20_000), i8(50_000, 900_000, 5_000))
    assert parent.tolist() == [-1, 0, 1]
    assert end.tolist() == [50_000, 50_000, 25_000]
    assert self_ns.tolist() == [10_000, 35_000, 5_000]


@both
def test_neighbours_that_jitter_overlaps_are_siblings(module: Any) -> None:
    track = np.zeros(3, np.int32)
    # the second starts 250 ns before the first ends; the third sticks out less than it overlaps
    parent, depth, _, end = module.nest(track, i8(0, 9_750, 19_500), i8(10_000, 10_000, 300))
    assert parent.tolist() == [-1, -1, 1]
    assert depth.tolist() == [0, 0, 1]
    assert end.tolist() == [10_000, 19_750, 19_750]


@both
def test_an_overlap_longer_than_jitter_is_a_child(module: Any) -> None:
    track = np.zeros(2, np.int32)
    parent, *_ = module.nest(track, i8(0, 8_999), i8(10_000, 90_000))
    assert parent.tolist() == [-1, 0]
    parent, *_ = module.nest(track, i8(0, 9_000), i8(10_000, 90_000))
    assert parent.tolist() == [-1, -1]


@both
def test_an_empty_span_at_the_end_of_another_is_not_inside_it(module: Any) -> None:
    track = np.zeros(3, np.int32)
    parent, *_ = module.nest(track, i8(0, 5, 10), i8(10, 0, 0))
    assert parent.tolist() == [-1, 0, -1]


@both
def test_a_million_levels(module: Any) -> None:
    n = 1_000_000
    start = np.arange(n, dtype=np.int64)
    parent, depth, self_ns, end = module.nest(np.zeros(n, np.int32), start, 3 * n - 2 * start)
    assert depth[-1] == n - 1
    assert (parent == start - 1).all()
    assert (end == 3 * n - start).all()
    assert self_ns.sum() == 3 * n


@both
def test_absurd_times_do_not_overflow(module: Any) -> None:
    top = (1 << 63) - 1
    _, _, _, end = module.nest(np.zeros(2, np.int32), i8(top - 10, top - 5), i8(100, 100))
    assert end.tolist() == [top, top]


@both
def test_union_of_unsorted_empty_and_touching_spans(module: Any) -> None:
    starts, ends = module.union(i8(20, 0, 5, 9, 7, 30), i8(25, 5, 8, 9, 6, 31))
    assert (starts.tolist(), ends.tolist()) == ([0, 20, 30], [8, 25, 31])
    starts, ends = module.union(i8(), i8())
    assert len(starts) == len(ends) == 0


@both
def test_covered_and_intersect(module: Any) -> None:
    gaps = (i8(10, 50), i8(20, 60))
    assert module.covered(gaps, i8(0, 15, 55, 12, 70, 18), i8(100, 55, 56, 14, 90, 18)).tolist() == [
        20,
        10,
        1,
        2,
        0,
        0,
    ]
    starts, ends = module.intersect(gaps, (i8(0, 15), i8(12, 55)))
    assert (starts.tolist(), ends.tolist()) == ([10, 15, 50], [12, 20, 55])


@both
def test_self_time_inside_gaps(module: Any) -> None:
    # an operator 0..100 with a child 40..70 during the gap 30..90: 30 of the child, 30 of itself
    inside = module.self_inside((i8(30), i8(90)), i8(0, 40), i8(100, 70), np.array([-1, 0], np.int32))
    assert inside.tolist() == [30, 30]


@both
def test_join_takes_the_first_and_never_matches_missing_ids(module: Any) -> None:
    left = i8(7, NO_ID, 9, 7, -(1 << 62) - 3)
    right = i8(9, 7, NO_ID, 8, -(1 << 62) - 3)
    assert module.join(left, right, NO_ID).tolist() == [2, 0, -1, -1, 4]
    assert module.join(i8(), right, NO_ID).tolist() == [-1] * 5


def test_queue_depth_counts_work_from_launch_to_finish() -> None:
    depth = kernels.queue_depth(i8(0, 10, 20), i8(15, 40, 30), i8(0, 10, 15, 20, 30, 40))
    assert depth.tolist() == [1, 2, 1, 2, 1, 0]


# -- twins ------------------------------------------------------------------------------------------

times = st.integers(0, 6000)
spans = st.lists(st.tuples(st.integers(0, 2), times, st.integers(0, 3000)), max_size=60)
pairs = st.lists(st.tuples(times, st.integers(-5, 400)), max_size=40)


def columns(rows: list[tuple[int, int, int]]) -> tuple[Any, Any, Any]:
    rows = sorted(rows, key=lambda r: (r[0], r[1], -r[2]))
    return (
        np.array([r[0] for r in rows], np.int32),
        np.array([r[1] for r in rows], np.int64),
        np.array([r[2] for r in rows], np.int64),
    )


def ends_of(rows: list[tuple[int, int]]) -> tuple[Any, Any]:
    start = np.array([r[0] for r in rows], np.int64)
    return start, start + np.array([r[1] for r in rows], np.int64)


def same(a: Any, b: Any) -> None:
    for left, right in zip(a, b, strict=True):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)


@needs_core
@settings(max_examples=300, deadline=None)
@given(spans, pairs)
def test_twins_agree_on_trees(rows: list[tuple[int, int, int]], other: list[tuple[int, int]]) -> None:
    track, start, dur = columns(rows)
    tree = kernels.nest(track, start, dur)
    same(tree, kernels_py.nest(track, start, dur))
    gaps = kernels.union(*ends_of(other))
    mine = kernels.self_inside(gaps, start, tree[3], tree[0])
    same([mine], [kernels_py.self_inside(gaps, start, tree[3], tree[0])])
    roots = tree[0] < 0
    assert mine.sum() == kernels.covered(gaps, start[roots], tree[3][roots]).sum()


@needs_core
@settings(max_examples=300, deadline=None)
@given(pairs, pairs)
def test_twins_agree_on_sets(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    first, second = kernels.union(*ends_of(a)), kernels.union(*ends_of(b))
    same(first, kernels_py.union(*ends_of(a)))
    same(kernels.intersect(first, second), kernels_py.intersect(first, second))
    same([kernels.covered(first, *ends_of(b))], [kernels_py.covered(first, *ends_of(b))])


@needs_core
@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(-3, 12), max_size=50), st.lists(st.integers(-3, 12), max_size=50))
def test_twins_agree_on_joins_and_counts(a: list[int], b: list[int]) -> None:
    left, right = np.array(a, np.int64), np.array(b, np.int64)
    same([kernels.join(left, right, -1)], [kernels_py.join(left, right, -1)])
    same([kernels.join(left, np.repeat(right, 3), -1)], [kernels_py.join(left, np.repeat(right, 3), -1)])
    wide, wider = left * (1 << 59), right * (1 << 59)  # no table holds these
    same([kernels.join(wide, wider, -1)], [kernels_py.join(wide, wider, -1)])


@needs_core
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-2, 2), st.integers(0, 1 << 40)), max_size=80))
def test_twins_agree_on_groups(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array([row[i] for row in rows], np.int64) for i in range(3)]
    for some in (columns[:1], columns[:2], columns):
        same(kernels.group(*some), kernels_py.group(*some))


def test_many_groups() -> None:
    column = np.arange(100_000) * 7 % 30_011
    code, first = kernels.group(column, column % 3)
    assert len(first) == 30_011
    assert (first == np.arange(30_011)).all()
    assert (column[first[code]] == column).all()


def test_distinct_values() -> None:
    assert kernels.distinct(np.array([3, 1, 3, -1, 1], np.int32)).tolist() == [-1, 1, 3]
    assert kernels.distinct(i8()).tolist() == []


@given(st.lists(st.integers(-4, 4), max_size=60))
def test_ranked_values_are_those_of_numpy(values: list[int]) -> None:
    column = np.array(values, np.int64)
    ours: Any = kernels.ranked(column)
    theirs: Any = np.unique(column, return_inverse=True, return_counts=True)
    for a, b in zip(ours, theirs, strict=True):
        assert a.tolist() == b.reshape(-1).tolist()


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 10**12), min_size=1, max_size=40), st.lists(st.integers(0, 10**12), max_size=9)
)
def test_numpy_says_the_same(values: list[int], chosen: list[int]) -> None:
    column = i8(*values)
    assert (
        kernels.among(column, chosen + values[:2]).tolist() == np.isin(column, chosen + values[:2]).tolist()
    )
    assert kernels.among(column, i8(*chosen)).tolist() == np.isin(column, chosen).tolist()
    assert kernels.distinct(column).tolist() == np.unique(column).tolist()
    for share in (0.0, 0.1, 0.5, 0.99, 1.0):
        assert kernels.quantile(column, share) == pytest.approx(float(np.quantile(column, share)), rel=1e-12)


EXTREMES = st.sampled_from([0, 5, -(1 << 63), (1 << 63) - 1, 1 << 62])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(-9, 30) | EXTREMES, max_size=40),
    st.lists(st.integers(-9, 30) | EXTREMES, max_size=9),
)
def test_dense_and_scattered_ids_are_looked_up_alike(values: list[int], chosen: list[int]) -> None:
    column = i8(*values)
    assert kernels.among(column, i8(*chosen)).tolist() == [value in chosen for value in values]
    assert kernels.repeated(column).tolist() == sorted({v for v in values if values.count(v) > 1})


@pytest.mark.parametrize("block", [4, 1 << 16])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 1 << 62)), max_size=30), st.integers(0, 9))
def test_sums_are_exact(
    block: int, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[int, int]], groups: int
) -> None:
    monkeypatch.setattr(kernels, "_BLOCK", block)
    for scale in (1 << 62, 1000):  # beyond what doubles hold, and within
        group, values = i8(*(g for g, _ in rows)), i8(*(v % scale // 64 for _, v in rows))
        expected = np.zeros(max(groups, int(group.max(initial=-1)) + 1), np.int64)
        np.add.at(expected, group, values)
        assert kernels.sums(group, values, groups).tolist() == expected.tolist()


@both
def test_the_nearest_marked_ancestor(module: Any) -> None:
    above = np.array([-1, 0, 1, 1, -1], np.int32)
    mask = np.array([True, False, False, True, False])
    assert module.nearest(above, mask, i8(2, 3, 4, -1, 0)).tolist() == [0, 3, -1, -1, 0]


@both
def test_parents_in_a_circle_are_refused(module: Any) -> None:
    above, mask = np.array([1, 0], np.int32), np.zeros(2, bool)
    with pytest.raises(ValueError, match=r"."):
        module.nearest(above, mask, i8(0))
    with pytest.raises(ValueError, match=r"."):
        kernels.inherited(above, mask)


def test_an_ancestor_may_stand_behind() -> None:
    # 0 hangs on 3, which hangs on 2 behind 1; 4 on 0
    above, mask = np.array([3, 2, -1, 1, 0], np.int32), np.array([False, True, False, False, False])
    assert kernels.inherited(above, mask).tolist() == [1, 1, -1, 1, 1, -1]


@both
def test_flatten_draws_the_innermost(module: Any) -> None:
    # a 0..100 holds b 10..40 (which holds c 10..20) and d 50..60; e 60..60 is empty
    start, dur = i8(0, 10, 10, 50, 60), i8(100, 30, 10, 10, 0)
    parent = np.array([-1, 0, 1, 0, 0], np.int32)
    found = module.flatten(np.arange(5), parent, start, dur)
    assert [c.tolist() for c in found] == [[0, 10, 20, 40, 50, 60, 100], [0, 2, 1, 0, 3, 0]]
    # without b, its child belongs to a
    found = module.flatten(i8(0, 2, 3), parent, start, dur)
    assert [c.tolist() for c in found] == [[0, 10, 20, 50, 60, 100], [0, 2, 0, 3, 0]]
    # between c and d alone there is nobody, nor is there behind d
    found = module.flatten(i8(2, 3), parent, start, dur)
    assert [c.tolist() for c in found] == [[10, 20, 50, 60], [2, -1, 3]]
    assert [c.tolist() for c in module.flatten(i8(4), parent, start, dur)] == [[], []]


@needs_core
@pytest.mark.parametrize("kind", ["bool", "i1", "u2", "i4", "f8", "i8"])
@pytest.mark.parametrize("code_kind", ["i4", "i8", "i2"])
def test_items_of_a_table_are_those_numpy_takes(kind: str, code_kind: str) -> None:
    table = np.arange(300).astype(kind)
    codes = (np.arange(1000) * 7 % 301 - 1).astype(code_kind)
    found = kernels.mapped(table, codes)
    assert found.dtype == table.dtype and found.tolist() == table[codes].tolist()
    assert kernels.mapped(table, codes[::3]).tolist() == table[codes[::3]].tolist()
    assert kernels.mapped(table, codes[:0]).tolist() == []
    if table.dtype == codes.dtype:
        assert kernels.mapped(table, codes, codes) is codes and codes.tolist() == found.tolist()


@needs_core
def test_items_are_put_into_an_array_of_another_kind_by_value() -> None:
    found = kernels.mapped(np.array([3, 7]), np.array([1, -1, 0], np.int32), np.empty(3, np.float64))
    assert found.tolist() == [7.0, 7.0, 3.0]


@pytest.mark.parametrize("code", [5, -2, -(1 << 31)])
@needs_core
def test_codes_that_no_table_has_are_refused(code: int) -> None:
    with pytest.raises((ValueError, IndexError)):
        kernels.mapped(np.arange(5)[:0] if code == -2 else np.arange(5), np.array([code], np.int32))


@both
def test_windows_are_cut_at_segments(module: Any) -> None:
    # segments 7 at 10..20 and 8 at 20..30; windows before, over the first end, inside of one, and behind
    row, none = np.array([7, 8], np.int32), np.zeros(0, np.int32)
    found = module.cut(i8(10, 20), i8(20, 30), row, i8(0, 15, 22, 40), i8(5, 22, 24, 45), none)
    assert list(zip(*(c.tolist() for c in found), strict=True)) == [
        (0, 5, -1, 0, 5), (15, 20, 7, 1, 5), (20, 22, 8, 1, 2), (22, 24, 8, 2, 2), (40, 45, -1, 3, 5),
    ]  # fmt: skip


@both
def test_pieces_of_one_label_are_joined(module: Any) -> None:
    # rows 0 and 1 are alike, so are 1 and 0 again; 2 is like nothing, 3 like another, 4 is alike behind a hole
    label = np.array([5, 5, -1, 6, 5], np.int32)
    start, row = i8(10, 13, 20, 30, 32, 34, 50), np.array([0, 1, 0, 2, 2, 3, 4], np.int32)
    found = module.cut(start, i8(13, 20, 22, 32, 34, 40, 60), row, i8(11, 21, 45), i8(21, 42, 60), label)
    assert list(zip(*(c.tolist() for c in found), strict=True)) == [
        (11, 21, 1, 0, 7), (21, 22, 0, 1, 1), (22, 30, -1, 1, 8), (30, 32, 2, 1, 2), (32, 34, 2, 1, 2),
        (34, 40, 3, 1, 6), (40, 42, -1, 1, 2), (45, 50, -1, 2, 5), (50, 60, 4, 2, 10),
    ]  # fmt: skip


@both
def test_of_equally_long_pieces_the_first_names_the_row(module: Any) -> None:
    row, label = np.array([3, 2, 1], np.int32), np.array([0, 0, 0, 0], np.int32)
    found = module.cut(i8(0, 5, 10), i8(5, 10, 14), row, i8(0), i8(14), label)
    assert [c.tolist() for c in found] == [[0], [14], [3], [0], [5]]


def _some_stretches(points: Any, skip: int) -> tuple[Any, Any]:
    """Most of the stretches between times: disjoint, some with a neighbour and some without."""
    points = np.unique(points)
    chosen = np.arange(max(len(points) - 1, 0)) % skip > 0
    return points[:-1][chosen], points[1:][chosen]


@needs_core
@settings(max_examples=200, deadline=None)
@given(spans, spans)
def test_twins_agree_on_cuts(rows: list[tuple[int, int, int]], others: list[tuple[int, int, int]]) -> None:
    segments, windows = (_some_stretches(columns(r)[1], skip) for r, skip in ((rows, 3), (others, 2)))
    row = np.arange(len(segments[0]), dtype=np.int32)
    for kinds in (0, 1, 2, 3):
        label = np.arange(len(row) * 2 // 3, dtype=np.int32) % kinds - 1 if kinds else row[:0]
        same(kernels.cut(*segments, row, *windows, label), kernels_py.cut(*segments, row, *windows, label))


@both
def test_of_neighbours_that_overlap_the_later_owns(module: Any) -> None:
    found = module.flatten(np.arange(2), np.array([-1, -1], np.int32), i8(0, 9_750), i8(10_000, 10_000))
    assert [c.tolist() for c in found] == [[0, 9_750, 19_750], [0, 1]]


@both
def test_a_child_that_outlives_its_parent_owns_up_to_its_end(module: Any) -> None:
    found = module.flatten(np.arange(2), np.array([-1, 0], np.int32), i8(0, 10), i8(50, 100))
    assert [c.tolist() for c in found] == [[0, 10, 50], [0, 1]]


@needs_core
@settings(max_examples=200, deadline=None)
@given(spans, st.integers(0, 1 << 60))
def test_twins_agree_on_walks(rows: list[tuple[int, int, int]], choice: int) -> None:
    track, start, dur = columns(rows)
    parent = kernels.nest(track, start, dur)[0]
    mask = np.array([bool(choice >> (i % 60) & 1) for i in range(len(rows))], bool)
    everything = np.arange(len(rows))
    same([kernels.nearest(parent, mask, everything)], [kernels_py.nearest(parent, mask, everything)])
    same([kernels.inherited(parent, mask)], [kernels_py.inherited(parent, mask)])
    for one in np.unique(track).tolist():
        chosen = np.flatnonzero((track == one) & mask)
        got = kernels.flatten(chosen, parent, start, dur)
        same(got, kernels_py.flatten(chosen, parent, start, dur))
        assert (np.diff(got[0]) > 0).all() and len(got[0]) == len(got[1]) + bool(len(got[1]))


@needs_core
@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(-1, 3), st.integers(-5, 5), st.integers(0, 3)), max_size=200))
def test_twins_agree_on_order(rows: list[tuple[int, int, int]]) -> None:
    track = np.array([r[0] for r in rows], np.int32)
    start, dur = (np.array([r[i] for r in rows], np.int64) for i in (1, 2))
    same([kernels.order(track, start, dur)], [kernels_py.order(track, start, dur)])


@needs_core
@pytest.mark.parametrize("runs", [1, 2, 3, 64, 65, 1000])
def test_sorted_stretches_are_merged(runs: int) -> None:
    random = np.random.default_rng(runs)
    start = np.concatenate([np.sort(random.integers(0, 5000, 37)) for _ in range(runs)])
    track, dur = np.zeros(len(start), np.int32), random.integers(0, 3, len(start))
    same([kernels.order(track, start, dur)], [kernels_py.order(track, start, dur)])


@needs_core
@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 9), st.integers(0, 2), st.sampled_from([0, 0, 1, ARG_WIDE]), st.integers(-3, 3)
        ),
        max_size=60,
    ),
    st.lists(st.integers(-2, 12), max_size=40),
    st.booleans(),
)
def test_twins_agree_on_arguments(
    entries: list[tuple[int, int, int, int]], asked: list[int], sort: bool
) -> None:
    entries.sort(key=lambda e: e[0])
    event, key, tag, value = (
        np.array([e[i] for e in entries], t) for i, t in enumerate((np.int32, np.uint16, np.uint8, np.int32))
    )
    question = np.array(sorted(asked) if sort else asked, np.int32)
    first = ArgStore(StringTable(), [], event, key, tag, value).first
    wide = i8(1 << 40, -(1 << 50))
    ours = kernels.pick(first, key, tag, value, wide, 1, question, -9)
    twin = kernels_py.pick(first, key, tag, value, wide, 1, question, -9)
    same(ours[:1], twin[:1])
    assert ours[1] == twin[1]


def test_arguments_far_apart() -> None:
    event = np.arange(0, 300_000, 3, dtype=np.int32)
    key, tag = np.zeros(len(event), np.uint16), np.zeros(len(event), np.uint8)
    asked = i8(299_997, 0, 150_000, 150_001, 600_000)
    first = ArgStore(StringTable(), [], event, key, tag, event).first
    got, odd = kernels.pick(first, key, tag, event, i8(), 0, asked, -1)
    assert got.tolist() == [299_997, 0, 150_000, -1, -1] and odd == 0


@st.composite
def models(draw: st.DrawFn) -> tuple[Any, dict[str, Any], dict[str, Any]]:
    """Calls and ops whose references point backwards in the order in which they come."""
    n, m = draw(st.integers(0, 8)), draw(st.integers(0, 12))
    events = [*((i, 1) for i in range(n)), *((i, 2) for i in range(m))]
    events = draw(st.permutations(events))
    order: list[tuple[int, int]] = []
    for i, kind in events:
        order.append((i, kind))
        if kind == 1:
            order.append((i, 0))
    place = {event: at for at, event in enumerate(order)}

    def reference(i: int, kind: int, to: int, count: int) -> int:
        earlier = [-1, *(j for j in range(count) if place[j, to] < place[i, kind])]
        return draw(st.sampled_from(earlier))

    def numbers(count: int, high: int) -> Any:
        return np.array([draw(st.integers(0, high)) for _ in range(count)], np.int64)

    def references(count: int, kind: int, to: int, there: int) -> Any:
        return np.array([reference(i, kind, to, there) for i in range(count)], np.int64)

    calls = {name: numbers(n, 50) for name in kernels.CALL_COLUMNS}
    calls |= {name: numbers(n, 1) for name in ("on_start", "follows", "is_main")}
    calls |= {name: references(n, 1, to, n) for name, to in (("prev_call", 0), ("asks", 1), ("drains", 0))}
    calls["waits"] = references(n, 0, 2, m)
    calls["ahead"] = np.array([draw(st.integers(-1, m - 1)) for _ in range(n)], np.int64)
    ops = {name: numbers(m, 50) for name in kernels.OP_COLUMNS}
    ops["op_call"] = references(m, 2, 1, n)
    ops |= {name: references(m, 2, 2, m) for name in ("prev_op", "other_op")}
    return np.array([3 * i + kind for i, kind in order], np.int64), calls, ops


@needs_core
@settings(max_examples=150, deadline=None)
@given(models())
def test_twins_agree_on_replays(model: tuple[Any, dict[str, Any], dict[str, Any]]) -> None:
    same(kernels.replay(*model), kernels_py.replay(*model))


@needs_core
def test_a_replay_refuses_references_to_nothing() -> None:
    calls = {name: i8(0) for name in kernels.CALL_COLUMNS} | {"prev_call": i8(1)}
    ops = {name: i8() for name in kernels.OP_COLUMNS}
    with pytest.raises(ValueError, match="lengths"):
        kernels.replay(i8(1, 0), calls, ops)


NO_ROOM = (i8(0), i8(0), np.zeros(1, np.int32), np.zeros(1, np.int32), i8(0))


@needs_core
@pytest.mark.parametrize(
    "call",
    [
        lambda core: core.nest(i8(1), i8(1), i8(1), i8(1), i8(1), i8(1), i8(1)),
        lambda core: core.union(i8(1, 2), i8(1), i8(0, 0), i8(0, 0)),
        lambda core: core.union(i8(1, 2), i8(1, 2), i8(0), i8(0)),
        lambda core: core.union(b"12345678", b"12345678", b"12345678", b"12345678"),
        lambda core: core.covered(i8(1), i8(2), i8(3), i8(4), np.zeros(2, np.int32), i8(0)),
        lambda core: core.join(i8(), i8(1), i8(1), np.zeros(1, np.int32)),
        lambda core: core.inherit(np.array([1], np.int32), np.zeros(1, bool), np.zeros(1, np.int32)),
        lambda core: core.inherit(np.array([-2], np.int32), np.zeros(1, bool), np.zeros(1, np.int32)),
        lambda core: core.cut(
            i8(0), i8(1), np.zeros(1, np.int32), np.zeros(0, np.int32), i8(0), i8(2), *NO_ROOM
        ),
        lambda core: core.flatten(
            np.array([5], np.int32), np.zeros(1, np.int32), i8(1), i8(1), i8(0, 0), np.zeros(1, np.int32)
        ),
        lambda core: core.order(np.array([-1], np.int32), i8(1), i8(1), i8()),
    ],
)
def test_the_core_refuses_arrays_that_do_not_fit(call: Callable[[Any], object]) -> None:
    with pytest.raises((ValueError, TypeError, BufferError)):
        call(kernels.core)


def test_the_environment_variable_chooses_the_twins() -> None:
    code = "from stallscope.profiler import kernels; print(kernels.active())"
    env = {**os.environ, "STALLSCOPE_NO_CORE": "1"}
    out = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "python"
