"""Stack samples as spans: drawn on paper, checked by hand. Times in ms where not said otherwise."""

from __future__ import annotations

import numpy as np
import pytest

from stallscope.profiler.intervals import EMPTY, IntervalSet
from stallscope.profiler.samples import SampleSpans, Stacks, fuse, hottest_lines, segments, unfold

MS = 1_000_000
# node 1 main:10, node 2 main:10>generate:62, node 3 ..>post:31, node 4 ..>post:32, node 5 ..>model:5
PARENTS = np.array([0, 1, 2, 2, 2], np.int64)
CODES = np.array([1, 2, 3, 3, 4], np.int64)
LINES = np.array([10, 62, 31, 32, 5], np.int64)
MAIN, GENERATE, POST, MODEL = 1, 2, 3, 4


def spans_of(
    nodes: list[int],
    at_ms: list[float],
    operators: IntervalSet = EMPTY,
    passes: IntervalSet = EMPTY,
    first_ms: list[float] | None = None,
) -> dict[int, list[tuple[float, float, int]]]:
    """Code to its spans as (start ms, end ms, hottest line)."""
    stacks, which = unfold(PARENTS, CODES, LINES, np.array(nodes, np.int64))
    last = (np.array(at_ms) * MS).astype(np.int64)
    first = last if first_ms is None else (np.array(first_ms) * MS).astype(np.int64)
    count = np.ones(len(nodes), np.int64)
    spans = fuse(stacks, segments(stacks, which, first, last, count, 10 * MS, operators, passes))
    return by_code(spans)


def by_code(spans: SampleSpans) -> dict[int, list[tuple[float, float, int]]]:
    out: dict[int, list[tuple[float, float, int]]] = {}
    order = np.argsort(spans.start_ns, kind="stable")
    for i in order:
        start, end = spans.start_ns[i] / MS, (spans.start_ns[i] + spans.dur_ns[i]) / MS
        out.setdefault(int(spans.code[i]), []).append((start, end, int(spans.line[i])))
    return out


def interval(*pairs: tuple[float, float]) -> IntervalSet:
    table = (np.array(pairs) * MS).astype(np.int64)
    return table[:, 0], table[:, 1]


def test_stacks_unfold_from_the_outermost_frame() -> None:
    stacks, which = unfold(PARENTS, CODES, LINES, np.array([4, 1, 4], np.int64))

    assert stacks.code.tolist() == [[MAIN, -1, -1], [MAIN, GENERATE, POST]]
    assert stacks.line[1].tolist() == [10, 62, 32]
    assert stacks.depth.tolist() == [1, 3]
    assert which.tolist() == [1, 0, 1]


def test_a_damaged_parent_ends_the_chain() -> None:
    # node 2 claims node 3 as its caller, node 3 node 2: no loop, and no stack that is not there
    stacks, _ = unfold(
        np.array([0, 3, 2]), np.array([1, 2, 3]), np.array([7, 8, 9]), np.array([2, 3, 99, -1])
    )

    assert stacks.code.tolist() == [[-1, -1], [2, -1], [2, 3], [-1, -1]]


def test_without_exact_times_samples_meet_half_way() -> None:
    got = spans_of([3, 5], [0, 10])

    assert got[POST] == [(-5, 5, 31)]
    assert got[MODEL] == [(5, 15, 5)]
    assert got[GENERATE] == [(-5, 15, 62)]


def test_two_lines_of_one_function_are_one_span_with_its_hotter_line() -> None:
    got = spans_of([3, 4, 4], [0, 10, 20])

    assert got[POST] == [(-5, 25, 32)]


def test_a_pause_of_the_sampler_is_a_hole() -> None:
    got = spans_of([3, 3], [0, 200])

    assert got[POST] == [(-5, 5, 31), (195, 205, 31)]


def test_python_between_two_passes_gets_the_gap_and_no_more() -> None:
    # step | post 20 ms | step: the samples of the model lie just inside the passes, as the lock makes them
    passes = interval((0, 5), (25, 30), (50, 55))
    got = spans_of([5, 3, 3, 5, 4, 5], [1, 11, 21, 26, 36, 51], passes=passes)

    assert got[POST] == [(5, 25, 31), (30, 50, 32)]
    assert got[MODEL] == [(-4, 5, 5), (25, 30, 5), (50, 56, 5)]


def test_a_pass_nobody_sampled_is_given_to_the_common_caller() -> None:
    # both samples are in post, a whole pass lies between: post did not run there
    got = spans_of([3, 3], [0, 10], passes=interval((3, 8)))

    assert got[POST] == [(-5, 3, 31), (8, 15, 31)]
    assert got[GENERATE] == [(-5, 15, 62)]


def test_operators_bound_a_gap_exactly() -> None:
    # sampled in the gap at 4, in the operator that follows at 11: the gap ends where the operator starts
    operators = interval((0, 2), (10, 12))
    got = spans_of([5, 3, 5], [1, 4, 11], operators=operators)

    assert got[POST] == [(2, 10, 31)]


def test_a_late_sample_does_not_reach_back_over_the_start_of_an_operator() -> None:
    # due at 0, taken at 15 inside an operator that began at 14
    got = spans_of([5], [15], operators=interval((14, 16)), first_ms=[0])

    assert got[MODEL] == [(14 - 5, 15 + 5, 5)]


def test_hottest_line_of_all_of_a_function() -> None:
    stacks, which = unfold(PARENTS, CODES, LINES, np.array([3, 4, 4, 5], np.int64))
    hot = hottest_lines(stacks, which, np.array([3, 2, 2, 1]), codes=4)

    assert hot.tolist() == [0, 10, 62, 32, 5]


@pytest.mark.parametrize("seed", range(20))
def test_spans_of_one_depth_never_overlap_and_nest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 60
    nodes = rng.integers(1, 6, n)
    at = np.sort(rng.choice(np.arange(0, 2000), n, replace=False)).astype(np.int64) * MS
    edges = np.sort(rng.choice(np.arange(0, 4000), 40, replace=False)) * MS // 2
    known = (edges[0::2].astype(np.int64), edges[1::2].astype(np.int64))
    stacks, which = unfold(PARENTS, CODES, LINES, nodes.astype(np.int64))

    parts = segments(stacks, which, at, at, np.ones(n, np.int64), 10 * MS, known, EMPTY)
    assert (parts.start_ns[1:] >= parts.end_ns[:-1]).all()
    spans = fuse(stacks, parts)

    assert (spans.dur_ns >= 0).all()
    assert int(spans.samples.sum()) == int(stacks.depth[which].sum())
    total = np.zeros(6, np.int64)
    np.add.at(total, spans.code, spans.dur_ns)
    assert total[MAIN] >= total[GENERATE] >= total[POST] + total[MODEL]


def test_no_samples() -> None:
    stacks = Stacks(np.zeros((0, 0), np.int32), np.zeros((0, 0), np.int32), np.zeros(0, np.int32))
    none = np.zeros(0, np.int64)

    spans = fuse(stacks, segments(stacks, none, none, none, none, 10 * MS, EMPTY, EMPTY))

    assert len(spans.start_ns) == 0
