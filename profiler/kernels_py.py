"""The kernels in plain Python and NumPy: what runs without a compiler, and what the tests compare with.

Signatures and results equal those of `kernels`; the definitions are written down there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
IntervalSet = tuple[Int64, Int64]

CLOCK_JITTER_NS = 1000
_MAX, _MIN = (1 << 63) - 1, -(1 << 63)


def nest(track: Int32, start_ns: Int64, dur_ns: Int64) -> tuple[Int32, Int32, Int64, Int64]:
    n = len(track)
    parent, depth = [-1] * n, [0] * n
    self_ns, end = [0] * n, [0] * n
    stack: list[int] = []
    before = None
    rows = zip(track.tolist(), start_ns.tolist(), dur_ns.tolist(), strict=True)
    for i, (lane, s, d) in enumerate(rows):
        e = min(max(s + d, _MIN), _MAX)
        if lane != before:
            stack.clear()
            before = lane
        while stack:
            reach = end[stack[-1]]
            overlap = reach - s
            if overlap <= 0 or (e > reach and overlap <= CLOCK_JITTER_NS and e - reach > overlap):
                stack.pop()
                continue
            e = min(e, reach)
            parent[i] = stack[-1]
            break
        depth[i] = len(stack)
        end[i] = e
        self_ns[i] += e - s
        if stack:
            self_ns[stack[-1]] -= e - s
        stack.append(i)
    return (
        np.array(parent, np.int32),
        np.array(depth, np.int32),
        np.array(self_ns, np.int64),
        np.array(end, np.int64),
    )


def union(starts: Int64, ends: Int64) -> IntervalSet:
    keep = ends > starts
    starts, ends = starts[keep], ends[keep]
    if len(starts) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    if np.any(starts[1:] < starts[:-1]):
        order = np.argsort(starts, kind="stable")
        starts, ends = starts[order], ends[order]
    reach = np.maximum.accumulate(ends)
    first = np.ones(len(starts), dtype=bool)
    first[1:] = starts[1:] > reach[:-1]
    at = np.flatnonzero(first)
    return starts[at], reach[np.append(at[1:], len(starts)) - 1]


def intersect(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    # A point is in both exactly where the running count of open intervals is two.
    points = np.concatenate([a[0], b[0], a[1], b[1]])
    step = np.ones(len(points), dtype=np.int64)
    step[len(a[0]) + len(b[0]) :] = -1
    order = np.lexsort((step, points))
    points, depth = points[order], np.cumsum(step[order])
    at = np.flatnonzero(depth[:-1] == 2)
    starts, ends = points[at], points[at + 1]
    keep = ends > starts
    return starts[keep], ends[keep]


def covered(a: IntervalSet, starts: Int64, ends: Int64) -> Int64:
    if len(a[0]) == 0:
        return np.zeros(len(starts), dtype=np.int64)
    total = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(a[1] - a[0])])

    def before(t: Int64) -> Int64:
        i = np.searchsorted(a[0], t, side="right")
        last = np.maximum(i - 1, 0)
        partial = np.minimum(t, a[1][last]) - a[0][last]
        out: Int64 = np.where(i > 0, total[last] + partial, 0)
        return out

    out: Int64 = np.maximum(before(ends) - before(starts), 0)
    return out


def self_inside(a: IntervalSet, starts: Int64, ends: Int64, parent: Int32) -> Int64:
    inside = covered(a, starts, ends)
    child = np.flatnonzero(parent >= 0)
    out = inside.copy()
    np.subtract.at(out, parent[child], inside[child])
    return out


def join(left: Int64, right: Int64, none: int) -> Int32:
    order = np.argsort(left, kind="stable")
    ordered = left[order]
    at = np.searchsorted(ordered, right, side="left")
    found = np.minimum(at, max(len(ordered) - 1, 0))
    hit = (right != none) & (at < len(ordered))
    if len(ordered):
        hit &= ordered[found] == right
        return np.where(hit, order[found], -1).astype(np.int32)
    return np.full(len(right), -1, np.int32)


def group(*columns: npt.NDArray[Any]) -> tuple[Int32, Int32]:
    n = len(columns[0])
    code = np.zeros(n, np.int64)
    for column in columns:
        distinct, inverse = np.unique(column, return_inverse=True)
        code = code * max(len(distinct), 1) + inverse.reshape(-1)
        _, code = np.unique(code, return_inverse=True)
        code = code.reshape(-1)
    _, first, inverse = np.unique(code, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse.reshape(-1)].astype(np.int32), np.sort(first).astype(np.int32)


def nearest(above: Int32, mask: npt.NDArray[np.bool_], rows: npt.NDArray[Any]) -> Int64:
    at = np.asarray(rows, np.int64).copy()
    if len(at) and int(at.max()) >= len(above):
        raise ValueError("rows that are not there")
    searching = np.flatnonzero((at >= 0) & ~mask[np.maximum(at, 0)])
    for _ in range(len(above) + 2):
        if len(searching) == 0:
            return at
        up = above[at[searching]]
        at[searching] = up
        searching = searching[(up >= 0) & ~mask[np.maximum(up, 0)]]
    raise ValueError("parents in a circle")


def inherited(above: Int32, mask: npt.NDArray[np.bool_]) -> Int32:
    return np.append(nearest(above, mask, np.arange(len(above))), -1).astype(np.int32)


def flatten(rows: npt.NDArray[Any], parent: Int32, start_ns: Int64, dur_ns: Int64) -> tuple[Int64, Int32]:
    out: list[tuple[int, int]] = []
    stack: list[tuple[int, int]] = []  # row and its clipped end
    at = _MIN

    def own(row: int, until: int) -> None:
        nonlocal at
        if until > at:
            out.append((at, row))
            at = until

    for row in rows.tolist():
        start, dur, up = int(start_ns[row]), int(dur_ns[row]), int(parent[row])
        if dur <= 0:
            continue
        end = min(start + dur, _MAX)
        while stack and up != stack[-1][0]:
            if up > stack[-1][0]:
                up = int(parent[up])  # not chosen: its own parent may be
                continue
            last, reach = stack.pop()
            own(last, min(reach, start))
        if stack:
            last, reach = stack[-1]
            own(last, min(reach, start))
            end = min(end, reach)
        if out:
            own(-1, start)
        at = max(at, start)
        stack.append((row, end))
    while stack:
        own(*stack.pop())
    edges = np.array([begin for begin, _ in out] + [at] * bool(out), np.int64)
    return edges, np.array([row for _, row in out], np.int32)


def cut(
    seg_start: Int64, seg_end: Int64, seg_row: npt.NDArray[Any], start: Int64, end: Int64, label: Int32
) -> tuple[Int64, Int64, Int32, Int32, Int64]:
    points = np.unique(np.concatenate([start, end, seg_start, seg_end]))
    begin, until = points[:-1], points[1:]
    window, inside = _holding(start, end, begin)
    begin, until, window = begin[inside], until[inside], window[inside]
    segment, owned = _holding(seg_start, seg_end, begin)
    row = np.full(len(begin), -1, np.int32)
    row[owned] = seg_row[segment[owned]]
    known = (row >= 0) & (row < len(label))
    mark = np.full(len(row), -1, np.int32)
    mark[known] = label[row[known]]
    heads = np.ones(len(row), np.bool_)
    heads[1:] = (mark[1:] < 0) | (mark[1:] != mark[:-1]) | (window[1:] != window[:-1])
    at = np.flatnonzero(heads)
    # by piece, then the longest, then the first
    longest = np.lexsort((begin - until, np.cumsum(heads)))[at]
    last = np.append(at[1:], len(row))[: len(at)] - 1
    most = until[longest] - begin[longest]
    return begin[at], until[last], row[longest], window[at].astype(np.int32), most


def _holding(start: Int64, end: Int64, at: Int64) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """The last of some disjoint spans that begins at or before each time, and whether it holds it."""
    found = np.searchsorted(start, at, side="right") - 1
    if len(start) == 0:
        return found, np.zeros(len(at), np.bool_)
    return found, (found >= 0) & (at < end[np.maximum(found, 0)])


def order(track: Int32, start_ns: Int64, dur_ns: Int64) -> Int32:
    rows = np.flatnonzero(track >= 0)
    return rows[np.lexsort((~dur_ns[rows], start_ns[rows], track[rows]))].astype(np.int32)


WIDE_INT = 7
"""ARG_WIDE of `timeline`: an integer that stands in `wide`."""


def pick(
    first: Int32,
    key: npt.NDArray[np.uint16],
    tag: npt.NDArray[np.uint8],
    value: Int32,
    wide: Int64,
    wanted: int,
    asked: npt.NDArray[Any],
    missing: int,
) -> tuple[Int64, int]:
    out = np.full(len(asked), missing, np.int64)
    known = (asked >= 0) & (asked < len(first) - 1)
    at = np.where(known, first[np.where(known, asked, 0)], 0)
    stop = np.where(known, first[np.where(known, asked + 1, 0)], 0)
    odd = 0
    for _ in range(int((stop - at).max()) if len(asked) else 0):
        here = np.minimum(at, len(key) - 1)
        hit = (at < stop) & (key[here] == wanted)
        told, number = tag[here[hit]], value[here[hit]].astype(np.int64)
        far = (told == WIDE_INT) & (number >= 0) & (number < len(wide))
        number[far] = wide[number[far]]
        good = far | (told == 0)
        odd += int(np.count_nonzero(~good))
        out[hit] = np.where(good, number, missing)
        at = at + 1
    return out, odd


def replay(
    order: Int64,
    calls: dict[str, npt.NDArray[Any]],
    ops: dict[str, npt.NDArray[Any]],
) -> tuple[Int64, Int64, Int64, Int64]:
    call = {name: column.tolist() for name, column in calls.items()}
    op = {name: column.tolist() for name, column in ops.items()}
    starts, ends = [0] * len(call["prev_call"]), [0] * len(call["prev_call"])
    op_starts, op_ends = [-(1 << 62)] * len(op["op_call"]), [0] * len(op["op_call"])
    warp = 0

    def call_begins(i: int) -> int:
        before, begin = call["prev_call"][i], call["call_at"][i]
        if call["follows"][i]:
            begin += warp
            if before >= 0:
                begin = max(begin, ends[before])
        elif before >= 0:
            begin = ends[before] + call["host"][i]
        asker, emptied, ahead = call["asks"][i], call["drains"][i], call["ahead"][i]
        if asker >= 0:
            asked = starts[asker] + call["ask_lag"][i]
            begin = max(begin, asked) if before >= 0 else asked
        if emptied >= 0:
            begin = max(begin, ends[emptied] + call["drain_lag"][i])
        if ahead >= 0:
            begin = max(begin, op_starts[ahead])
        return int(begin)

    def op_begins(i: int) -> int:
        after = []
        if op["op_call"][i] >= 0:
            after.append(starts[op["op_call"][i]] + op["launch_lag"][i])
        if op["prev_op"][i] >= 0:
            after.append(op_ends[op["prev_op"][i]] + op["stream_lag"][i])
        if op["other_op"][i] >= 0:
            after.append(op_ends[op["other_op"][i]] + op["other_lag"][i])
        return int(max(after, default=op["op_at"][i]))

    for code in order.tolist():
        i, kind = divmod(code, 3)
        if kind == 1:
            starts[i] = call_begins(i)
            if call["is_main"][i]:
                warp = starts[i] - call["call_at"][i]
        elif kind == 0:
            ends[i] = starts[i] + call["own"][i]
            waited = call["waits"][i]
            if waited >= 0:
                done = op_starts[waited] if call["on_start"][i] else op_ends[waited]
                ends[i] = max(ends[i], done + call["wait_lag"][i])
            if call["is_main"][i]:
                warp = ends[i] - call["call_to"][i]
        else:
            op_starts[i] = op_begins(i)
            op_ends[i] = op_starts[i] + op["op_dur"][i]
    return (
        np.array(starts, np.int64),
        np.array(ends, np.int64),
        np.array(op_starts, np.int64),
        np.array(op_ends, np.int64),
    )
