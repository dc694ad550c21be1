"""Stack samples turned into spans: a frame seen in consecutive samples is one call as far as we can tell.

A sampler inside the process needs the interpreter lock. A thread that computes in Python gives it up after
5 ms, one that calls into the framework at once: samples pile up on framework calls, and the code that ran
just before is seen late or not at all. Drawn naively, a decode loop with 20 ms of Python a step shows a fifth of it
on the first operator of the next step. So exact times bound the samples: a sample taken between two operators
(or between two forward passes) stands for that gap and no more, and one taken inside an operator never
reaches into the gap beside it. Where two samples leave a stretch open, only their common callers are drawn.

Without such times a sample counts from half-way since the one before to half-way to the next. Calls shorter
than the sampling interval are invisible or look as long as it: sums over many samples are right, single
short spans are not.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.timeline import Int32, Int64

_NEVER = 1 << 62
_NOT_RUNNING = 8
"""Samples further apart than this many intervals: the sampler did not run in between."""


class Stacks(NamedTuple):
    """All distinct stacks: row k is stack k, column d the frame at depth d from the outermost; -1 past the end.

    Shapes (stacks, depth): `code` the code object's number, `line` the line being executed there.
    """

    code: Int32
    line: Int32
    depth: Int32


class SampleSpans(NamedTuple):
    """Spans of one thread, shape (n,): absolute start and length, code number, hottest line, samples seen."""

    start_ns: Int64
    dur_ns: Int64
    code: Int32
    line: Int32
    samples: Int64


def unfold(parents: Int64, codes: Int64, lines: Int64, wanted: Int64) -> tuple[Stacks, Int64]:
    """The stacks of `wanted` nodes. Node n (1-based) has parent `parents[n-1]`, 0 at the root.

    Returns the stacks of the distinct wanted nodes and, per wanted node, which of them it is. A parent never
    comes after its child; one that does (a damaged record) ends the chain.
    """
    distinct, which = np.unique(wanted, return_inverse=True)
    chain: list[Int64] = []
    at = np.where((distinct >= 1) & (distinct <= len(parents)), distinct, 0)
    while (at > 0).any():
        chain.append(at)
        above = np.where(at > 0, parents[np.maximum(at, 1) - 1], 0)
        at = np.where((above >= 1) & (above < at), above, 0)
    n, deepest = len(distinct), len(chain)
    nodes = np.stack(chain, axis=1) if chain else np.zeros((n, 0), np.int64)
    depth = (nodes > 0).sum(axis=1).astype(np.int32)
    # innermost first becomes outermost first: row k is reversed within its own depth
    column = depth[:, None] - 1 - np.arange(deepest)[None, :]
    inside = column >= 0
    nodes = np.where(inside, np.take_along_axis(nodes, np.maximum(column, 0), axis=1), 0)
    index = np.maximum(nodes, 1) - 1
    code = np.where(inside, codes[index] if len(codes) else 0, -1).astype(np.int32)
    line = np.where(inside, lines[index] if len(lines) else 0, -1).astype(np.int32)
    return Stacks(code, line, depth), which.reshape(-1).astype(np.int64)


class Segments(NamedTuple):
    """Stretches of one thread with a known stack, by time, shape (n,): `which` stack, `depth` of it that counts."""

    start_ns: Int64
    end_ns: Int64
    which: Int64
    depth: Int64
    samples: Int64


class _Place(NamedTuple):
    """Where points lie relative to a set of intervals, shape (n,)."""

    inside: npt.NDArray[np.bool_]
    number: npt.NDArray[np.intp]
    next_start: Int64
    last_end: Int64
    """The end of the last interval that ended before the point."""
    own_start: Int64
    own_end: Int64


def _place(a: IntervalSet, points: Int64) -> _Place:
    starts, ends = np.append(a[0], _NEVER), np.append(a[1], _NEVER)
    at = np.searchsorted(a[0], points, side="right") - 1
    own = np.maximum(at, 0)
    inside = (at >= 0) & (points < ends[own])
    before = np.where(inside, at - 1, at)
    last_end = np.where(before >= 0, ends[np.maximum(before, 0)], -_NEVER)
    return _Place(inside, at, starts[at + 1], last_end, starts[own], ends[own])


def segments(
    stacks: Stacks,
    which: Int64,
    first_ns: Int64,
    last_ns: Int64,
    count: Int64,
    interval_ns: int,
    operators: IntervalSet,
    passes: IntervalSet,
) -> Segments:
    """What each sample of one thread stands for, by the rules at the head of this file.

    `first_ns`, `last_ns`: a record covers samples from the one to the other, sorted by time. `operators` are
    the times the thread was inside a framework operator, `passes` inside a forward pass; both exact, and
    empty where nothing was recorded.
    """
    depth = stacks.depth[which].astype(np.int64)
    first_ns = _first_certain(first_ns, last_ns, count, operators, passes)
    end_a, start_b = last_ns[:-1], first_ns[1:]
    cap, floor = _bounds(end_a, start_b, operators, passes)
    middle = end_a + (start_b - end_a) // 2
    capped, floored = cap < _NEVER, floor > -_NEVER
    end = np.select(
        [capped & floored & (cap >= floor), capped, floored],
        [np.clip(middle, floor, cap), cap, floor],
        middle,
    )
    start = np.where(capped & floored & (cap < floor), floor, end)
    apart = start_b - end_a > _NOT_RUNNING * interval_ns
    half = interval_ns // 2
    end, start = np.where(apart, end_a + half, end), np.where(apart, start_b - half, start)
    end, start = np.maximum(end, end_a), np.maximum(np.minimum(start, start_b), end)
    own = Segments(
        np.append(first_ns[:1] - half, start), np.append(end, last_ns[-1:] + half), which, depth, count
    )
    open_ = np.flatnonzero((start > end) & ~apart)
    if len(open_) == 0:
        return own
    shared = _shared(stacks, which[open_], depth[open_], which[open_ + 1], depth[open_ + 1])
    same = which[open_] == which[open_ + 1]
    fill = Segments(
        end[open_],
        start[open_],
        which[open_],
        np.where(same, depth[open_] - 1, shared),
        np.zeros(len(open_), np.int64),
    )
    merged = [np.concatenate(pair) for pair in zip(own, fill, strict=True)]
    order = np.lexsort((merged[1], merged[0]))
    return Segments(*(column[order] for column in merged))


def _first_certain(
    first_ns: Int64, last_ns: Int64, count: Int64, operators: IntervalSet, passes: IntervalSet
) -> Int64:
    """A late sample is thought to hold since it was due; not across the edge of an operator or a pass."""
    out = first_ns
    for known in (operators, passes):
        place = _place(known, last_ns)
        edge = np.where(place.inside, place.own_start, place.last_end)
        out = np.where((count == 1) & (edge > out), np.minimum(edge, last_ns), out)
    return out


def _bounds(end_a: Int64, start_b: Int64, operators: IntervalSet, passes: IntervalSet) -> tuple[Int64, Int64]:
    """The latest end of each sample and the earliest start of the next; _NEVER where nothing bounds them."""
    cap, floor = np.full(len(end_a), _NEVER), np.full(len(end_a), -_NEVER)
    for known, exact_inside in ((operators, False), (passes, True)):
        a, b = _place(known, end_a), _place(known, start_b)
        same = (a.inside == b.inside) & (a.number == b.number)
        caps = np.where(~a.inside & (a.next_start < start_b), a.next_start, _NEVER)
        floors = np.where(~b.inside & (b.last_end > end_a), b.last_end, -_NEVER)
        if exact_inside:
            both = a.inside & b.inside & ~same
            caps, floors = np.where(both, a.own_end, caps), np.where(both, b.own_start, floors)
        cap, floor = np.minimum(cap, caps), np.maximum(floor, floors)
    return cap, floor


def _shared(stacks: Stacks, a: Int64, depth_a: Int64, b: Int64, depth_b: Int64) -> Int64:
    """How many outermost frames pairs of stacks have in common, shape of `a`."""
    out = np.empty(len(a), np.int64)
    for lo in range(0, len(a), 65536):  # rows of a few hundred columns: bounded memory
        rows = slice(lo, lo + 65536)
        equal = stacks.code[a[rows]] == stacks.code[b[rows]]
        out[rows] = np.where(equal.all(axis=1), equal.shape[1], np.argmin(equal, axis=1))
    return np.minimum(out, np.minimum(depth_a, depth_b))


def fuse(stacks: Stacks, parts: Segments) -> SampleSpans:
    """Spans of one thread's segments: a frame goes on while it and all its callers stay the same, without a hole."""
    n, deepest = len(parts.which), int(parts.depth.max(initial=0))
    if n == 0 or deepest == 0:
        none = np.zeros(0, np.int64)
        return SampleSpans(none, none, none.astype(np.int32), none.astype(np.int32), none)
    shared = np.zeros(n, np.int64)
    shared[1:] = _shared(stacks, parts.which[:-1], parts.depth[:-1], parts.which[1:], parts.depth[1:])
    shared[1:][parts.start_ns[1:] != parts.end_ns[:-1]] = 0
    spans: list[SampleSpans] = []
    for level in range(deepest):
        begins = np.flatnonzero(shared <= level)
        real = parts.depth[begins] > level
        if not real.any():
            continue
        span_of = np.searchsorted(begins, np.arange(n), side="right") - 1
        last = np.append(begins[1:], n) - 1
        seen = np.bincount(span_of, weights=parts.samples, minlength=len(begins)).astype(np.int64)
        lines = _hottest(span_of, stacks.line[parts.which, level], parts.end_ns - parts.start_ns, len(begins))
        spans.append(
            SampleSpans(
                parts.start_ns[begins][real],
                (parts.end_ns[last] - parts.start_ns[begins])[real],
                stacks.code[parts.which[begins], level][real],
                lines[real],
                seen[real],
            )
        )
    return SampleSpans(*(np.concatenate(column) for column in zip(*spans, strict=True)))


def _hottest(group: npt.NDArray[np.intp], line: Int32, weight: Int64, groups: int) -> Int32:
    """Per group the line with the greatest weight, shape (groups,)."""
    key = group.astype(np.int64) << 32 | np.maximum(line, 0).astype(np.int64)
    distinct, inverse = np.unique(key, return_inverse=True)
    total = np.bincount(inverse.reshape(-1), weights=weight, minlength=len(distinct))
    order = np.lexsort((-(distinct & 0xFFFFFFFF), total, distinct >> 32))
    last = np.flatnonzero(np.append(np.diff(distinct[order] >> 32), 1))
    out = np.zeros(groups, np.int32)
    best = distinct[order][last]
    out[best >> 32] = (best & 0xFFFFFFFF).astype(np.int32)
    return out


def hottest_lines(stacks: Stacks, which: Int64, weight: Int64, codes: int) -> Int32:
    """Per code number (1-based, `codes` of them) the line it spent most time in, shape (codes + 1,)."""
    per_stack = np.bincount(which, weights=weight, minlength=len(stacks.depth)).astype(np.int64)
    rows, columns = np.nonzero(stacks.code >= 0)
    code = np.clip(stacks.code[rows, columns], 0, codes)
    return _hottest(code.astype(np.intp), stacks.line[rows, columns], per_stack[rows], codes + 1)
