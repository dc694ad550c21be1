"""The hot loops over columns: compiled where a compiler was there, else their NumPy and Python twins.

`active()` says which, so that `doctor` and the reports can. Setting STALLSCOPE_NO_CORE=1 before the first
import chooses the twins. Every function takes and returns one-dimensional arrays; times are int64
nanoseconds, interval sets are the pairs of `intervals`.
"""

from __future__ import annotations

import os
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels_py
from stallscope.profiler.ids import NO_ID
from stallscope.profiler.room import Room

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
IntervalSet = tuple[Int64, Int64]


def _load() -> tuple[ModuleType | None, str]:
    if os.environ.get("STALLSCOPE_NO_CORE", "") not in ("", "0"):
        return None, "STALLSCOPE_NO_CORE is set"
    try:
        from stallscope.profiler import core
    except ImportError as error:
        return None, str(error)
    return core, ""


core: Any
core, why_python = _load()
"""The module `core`, or None and why the twins are used."""


def active() -> str:
    """ "compiled" or "python": which implementation of the kernels and of the tokeniser runs."""
    return "python" if core is None else "compiled"


def _i8(values: npt.NDArray[Any]) -> Int64:
    return np.ascontiguousarray(values, dtype=np.int64)


def _i4(values: npt.NDArray[Any]) -> Int32:
    return np.ascontiguousarray(values, dtype=np.int32)


def nest(
    track: Int32, start_ns: Int64, dur_ns: Int64, room: Room | None = None
) -> tuple[Int32, Int32, Int64, Int64]:
    """The call tree of spans that are sorted by track, start and longest first. All shapes (n,).

    Returns `parent` (a row or -1), `depth` (0 at the root), `self_ns` and `end_ns`. A span belongs to the
    innermost one that is open when it starts. If it ends later than that one it is clipped to it, as a
    callee cannot outlive its caller; unless the two overlap by at most 1000 ns and by less than what
    sticks out, which is clock jitter between neighbours: then it is a sibling. `end_ns` is the end after
    clipping, and `self_ns` the clipped duration less the clipped durations of the children. A span that
    starts exactly where another ends is not inside it. No recursion: a million levels are fine. The results stand
    in `room`, where that is given.
    """
    if core is None:
        return kernels_py.nest(track, start_ns, dur_ns)
    n = len(track)
    room = room or Room()
    parent, depth = room.empty(n, np.int32), room.empty(n, np.int32)
    self_ns, end_ns = room.empty(n, np.int64), room.empty(n, np.int64)
    core.nest(_i4(track), _i8(start_ns), _i8(dur_ns), parent, depth, self_ns, end_ns)
    return parent, depth, self_ns, end_ns


def union(starts: Int64, ends: Int64) -> IntervalSet:
    """The union of any spans; see `intervals.union`."""
    if core is None:
        return kernels_py.union(starts, ends)
    n = len(starts)
    starts, ends = _i8(starts), _i8(ends)
    out_start, out_end = np.empty(n, np.int64), np.empty(n, np.int64)
    count = core.union(starts, ends, out_start, out_end)
    if count < 0:
        order = np.argsort(starts, kind="stable")
        count = core.union(starts[order], ends[order], out_start, out_end)
    return _kept(out_start, count), _kept(out_end, count)


def _kept(values: npt.NDArray[Any], count: int) -> npt.NDArray[Any]:
    # A view of a few items would keep the whole buffer alive.
    return values[:count] if count * 2 > len(values) else values[:count].copy()


def intersect(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    """What both sets cover; see `intervals.intersect`."""
    if core is None:
        return kernels_py.intersect(a, b)
    starts, ends, inside, *_ = cut(*a, np.zeros(len(a[0]), np.int32), *b)
    return starts[inside >= 0], ends[inside >= 0]


def covered(a: IntervalSet, starts: Int64, ends: Int64) -> Int64:
    """How much of each span the set covers, shape of `starts`; fastest where spans are nearly sorted."""
    if core is None:
        return kernels_py.covered(a, starts, ends)
    out = np.empty(len(starts), np.int64)
    core.covered(_i8(a[0]), _i8(a[1]), _i8(starts), _i8(ends), np.empty(0, np.int32), out)
    return out


def self_inside(a: IntervalSet, starts: Int64, ends: Int64, parent: Int32) -> Int64:
    """Self time of each span that lies inside a set (such as the device's gaps), shape (n,).

    `starts`, `ends`, `parent` are as `nest` gives them (its `end_ns`). Sum it per name or category with
    `np.bincount(name, weights=...)`; over one thread's tree it adds up to the part of the set that the
    thread's root spans cover.
    """
    if core is None:
        return kernels_py.self_inside(a, starts, ends, parent)
    out = np.empty(len(starts), np.int64)
    core.covered(_i8(a[0]), _i8(a[1]), _i8(starts), _i8(ends), _i4(parent), out)
    return out


def join(left: Int64, right: Int64, none: int = NO_ID) -> Int32:
    """For each id in `right` the first index of that id in `left`, or -1. Shape of `right`.

    The launch join: `left` the correlation of the runtime calls, `right` that of the device spans.
    Ids equal to `none` never match.
    """
    if core is None:
        return kernels_py.join(left, right, none)
    out = np.empty(len(right), np.int32)
    if core.join(np.array([none], np.int64), _i8(left), _i8(right), out) < 0:
        code, first = group(np.concatenate([left, right]))
        found = first.take(code[len(left) :])
        out = np.where((found < len(left)) & (right != none), found, np.int32(-1))
    return out


_BLOCK = 1 << 16
"""Items looked at at once where a step makes wider ones of them."""

MOST_COLUMNS = 8
"""Columns the compiled `group` takes at once."""


def group(*columns: npt.NDArray[Any]) -> tuple[Int32, Int32]:
    """A number per row of equal values in all columns, shape (n,), and the first row of each, shape (groups,).

    Groups are numbered in order of first appearance. Neighbouring rows that are equal cost next to nothing.
    """
    if core is None:
        return kernels_py.group(*columns)
    if len(columns) > MOST_COLUMNS:
        return group(group(*columns[:MOST_COLUMNS])[0], *columns[MOST_COLUMNS:])
    n = len(columns[0])
    code, first = np.empty(n, np.int32), np.empty(n, np.int32)
    count = core.group(*map(_i8, columns), code, first)
    return code, first[:count].copy()


def inherited(above: Int32, mask: npt.NDArray[np.bool_]) -> Int32:
    """For every row itself or its nearest ancestor inside `mask`, else -1; behind them -1, which is what row -1 finds.
    Shape (n + 1,).

    `above`, shape (n,), is each row's parent or -1; `mask` has the same shape. Raises ValueError for parents that
    are not there or in a circle.
    """
    if core is None:
        return kernels_py.inherited(above, mask)
    n = len(above)
    out = np.empty(n + 1, np.int32)
    out[n] = -1
    core.inherit(_i4(above), np.ascontiguousarray(mask, np.bool_), out[:n])
    return out


def nearest(above: Int32, mask: npt.NDArray[np.bool_], rows: npt.NDArray[Any]) -> Int64:
    """The same for some rows (-1 allowed), as often as they are given. Shape of `rows`."""
    if core is None or len(rows) * 16 < len(above):
        return kernels_py.nearest(above, mask, rows)
    return mapped(inherited(above, mask), rows).astype(np.int64)


def flatten(rows: npt.NDArray[Any], parent: Int32, start_ns: Int64, dur_ns: Int64) -> tuple[Int64, Int32]:
    """Which of some rows of one track is the innermost when: where each segment begins and the last one ends, shape
    (s + 1,), and the row of each, -1 where none is open, shape (s,). The first and the last have one; nothing at all
    where no row has a length.

    `rows` stand in timeline order; the columns are of the whole timeline. Rows without length own nothing. After a
    row ends, its nearest chosen ancestor owns what follows; of neighbours that overlap, the later one from its
    start on. A row is cut where its nearest chosen ancestor ends.
    """
    if core is None:
        return kernels_py.flatten(rows, parent, start_ns, dur_ns)
    edges, owners = np.empty(2 * len(rows) + 1, np.int64), np.empty(2 * len(rows), np.int32)
    count = core.flatten(_i4(rows), _i4(parent), _i8(start_ns), _i8(dur_ns), edges, owners)
    return _kept(edges, count + 1 if count else 0), _kept(owners, count)


def cut(
    seg_start: Int64,
    seg_end: Int64,
    seg_row: npt.NDArray[Any],
    start: Int64,
    end: Int64,
    label: Int32 | None = None,
) -> tuple[Int64, Int64, Int32, Int32, Int64]:
    """Windows [start, end) cut at the ends of segments: per piece its start, end, the segment's row (-1 none), the
    index of its window, and its own length. Both stand in order of time and are disjoint; no window is empty.

    `label` has a number per row. Neighbours in one window whose rows have the same one become one piece, with the row
    and the length of its longest segment, of equal ones the first; rows with -1, and those it has no number for, stay
    by themselves.
    """
    label = np.empty(0, np.int32) if label is None else label
    if core is None:
        return kernels_py.cut(seg_start, seg_end, seg_row, start, end, label)
    columns = (_i8(seg_start), _i8(seg_end), _i4(seg_row), _i4(label), _i8(start), _i8(end))
    room = 2 * (len(seg_start) + len(start))  # a segment and what is before it, and the ends of each window
    begin, until, most = (np.empty(room, np.int64) for _ in range(3))
    row, window = np.empty(room, np.int32), np.empty(room, np.int32)
    count = core.cut(*columns, begin, until, row, window, most)
    return (
        _kept(begin, count), _kept(until, count), _kept(row, count), _kept(window, count), _kept(most, count)
    )  # fmt: skip


def order(track: Int32, start_ns: Int64, dur_ns: Int64) -> Int32:
    """The rows in timeline order: by track, then start, then longer first, else as they came.

    Tracks are numbered from 0; rows of track -1 are left out, so that the shape is (rows on tracks,). Fast where the
    rows of a track are few sorted stretches, as files are.
    """
    if core is None or (len(track) and int(track.max()) > 4 * len(track) + 1024):
        return kernels_py.order(track, start_ns, dur_ns)
    out = np.empty(len(track), np.int32)
    count = core.order(_i4(track), _i8(start_ns), _i8(dur_ns), out)
    return _kept(out, count)


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
    """The integer each asked event has under a key, `missing` where it has none; and how many hits were none.

    The first five are columns of an `ArgStore`; of several values of one event the last counts. Events that are not
    in `first` have none. Where the second result is not 0, some events have a value that is no integer (tag 0, or
    ARG_WIDE and in `wide`); these got `missing`.
    """
    if core is None:
        return kernels_py.pick(first, key, tag, value, wide, wanted, asked, missing)
    out = np.empty(len(asked), np.int64)
    odd = core.pick(
        np.array([wanted, missing], np.int64),
        _i4(first),
        np.ascontiguousarray(key, np.uint16),
        np.ascontiguousarray(tag, np.uint8),
        _i4(value),
        _i8(wide),
        _i4(asked),
        out,
    )
    return out, odd


CALL_COLUMNS = ("prev_call", "host", "own", "waits", "on_start", "wait_lag", "follows", "is_main", "call_at", "call_to",
                "asks", "ask_lag", "drains", "drain_lag", "ahead")  # fmt: skip
OP_COLUMNS = ("op_call", "prev_op", "other_op", "stream_lag", "launch_lag", "other_lag", "op_at", "op_dur")  # fmt: skip


def replay(
    order: Int64,
    calls: dict[str, npt.NDArray[Any]],
    ops: dict[str, npt.NDArray[Any]],
) -> tuple[Int64, Int64, Int64, Int64]:
    """Run the model of `analyzers/replay.py`: starts and ends of the calls, shapes (n,), and of the ops, shapes (m,).

    `order` has the codes 3 * index + 0 for the end of a call, 1 for its start, 2 for an op; each of them once, and
    each behind what it depends on. `calls` and `ops` hold CALL_COLUMNS and OP_COLUMNS: indices (-1 none), nanoseconds,
    and flags as 0 and 1. A call waits for the start of the op `ahead`, with which there is room in the queue.
    """
    if core is None:
        return kernels_py.replay(order, calls, ops)
    n, m = len(calls["prev_call"]), len(ops["op_call"])
    out = (np.zeros(n, np.int64), np.zeros(n, np.int64), np.full(m, -(1 << 62)), np.zeros(m, np.int64))
    columns = [*(calls[name] for name in CALL_COLUMNS), *(ops[name] for name in OP_COLUMNS)]
    core.replay(_i8(order), *map(_i8, columns), *out)
    return out


def code_type(count: int) -> type[np.signedinteger[Any]]:
    """The narrowest type for codes from -1 up to `count`: a page of memory costs more than what is done to it."""
    return np.int8 if count < 1 << 7 else np.int16 if count < 1 << 15 else np.int32


def mapped(
    table: npt.NDArray[Any], codes: npt.NDArray[Any], out: npt.NDArray[Any] | None = None
) -> npt.NDArray[Any]:
    """`table.take(codes)`, shape of `codes`; -1 is the last place of the table. `out` may be `codes` itself.

    NumPy makes a copy in 64 bits of whatever it indexes with; here it makes small ones, and none for codes in 32 bits.
    """
    out = np.empty(len(codes), table.dtype) if out is None else out
    take = _TAKE.get(table.dtype.itemsize) if core is not None and codes.dtype == np.int32 else None
    if (
        take is not None
        and out.dtype == table.dtype
        and table.ndim == 1
        and all(x.flags.c_contiguous for x in (table, codes, out))
    ):
        kind = f"i{table.dtype.itemsize}"
        getattr(core, take)(table.view(kind), codes, out.view(kind))
        return out
    for low in range(0, len(codes), 1 << 16):
        out[low : low + (1 << 16)] = table.take(codes[low : low + (1 << 16)])
    return out


_TAKE = {1: "take_bytes", 4: "take_ints", 8: "take_longs"}
"""The compiled ways by the size of an item."""


def sums(group: npt.NDArray[np.signedinteger[Any]], values: Int64, groups: int = 0) -> Int64:
    """The sum of the values of each group, exactly; shape (groups,), or up to the largest group if that is more.

    Values are not negative. Doubles add whole numbers without an error up to 2**53, and many times as fast.
    """
    if len(values) and int(values.max()) > (1 << 53) // len(values):
        out = np.zeros(max(groups, int(group.max()) + 1), np.int64)
        np.add.at(out, group, values)
        return out
    if groups > _BLOCK or len(values) <= _BLOCK:
        return np.bincount(group, values, groups).astype(np.int64)
    groups = max(groups, int(group.max()) + 1)
    total = np.zeros(groups)
    for low in range(0, len(values), _BLOCK):  # both columns are widened on the way: not all at once
        total += np.bincount(group[low : low + _BLOCK], values[low : low + _BLOCK], groups)
    return total.astype(np.int64)


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The different values of a column of integers, ascending: `np.unique`, many times as fast."""
    ordered = np.sort(values, kind="stable" if values.itemsize <= 2 else None)  # narrow values are counted
    first = np.ones(len(ordered), np.bool_)
    first[1:] = ordered[1:] != ordered[:-1]
    found: npt.NDArray[Any] = ordered[first]
    return found


def among(values: npt.NDArray[Any], chosen: npt.ArrayLike) -> npt.NDArray[np.bool_]:
    """Whether each of some integers is one of the chosen, shape of `values`. `np.isin` without its import of masked
    arrays, which takes longer than a small trace."""
    wanted = np.asarray(chosen, np.int64)
    if len(wanted) == 0:
        return np.zeros(len(values), np.bool_)
    low, high = int(wanted.min()), int(wanted.max())
    if high - low > 16 * (len(wanted) + len(values)) + 64:
        ordered = np.sort(wanted)
        at = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
        found: npt.NDArray[np.bool_] = ordered[at] == values
        return found
    table = np.zeros(high - low + 1, np.bool_)  # of all there could be: ids are dense
    table[wanted - low] = True
    inside = (values >= low) & (values <= high)
    inside &= table.take(np.where(inside, values, low) - low)
    return inside


def repeated(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The values of a column of integers that occur more than once, ascending."""
    if len(values) == 0:
        return values
    low, high = int(values.min()), int(values.max())
    if high - low <= 16 * len(values) + 64:
        table = np.zeros(high - low + 1, np.bool_)
        table[values - low] = True
        if np.count_nonzero(table) == len(values):
            return values[:0]
    ordered = np.sort(values)
    return distinct(ordered[1:][ordered[1:] == ordered[:-1]])


def quantile(values: npt.NDArray[Any], share: float) -> float:
    """The value that a share of the values does not exceed, between two of them in proportion. Raises IndexError
    without values. `np.quantile` without the same import."""
    at = share * (len(values) - 1)
    low = int(at)
    ordered = np.partition(values, [low, min(low + 1, len(values) - 1)])
    below, above, part = float(ordered[low]), float(ordered[min(low + 1, len(values) - 1)]), at - low
    return below + (above - below) * part if part < 0.5 else above - (above - below) * (1 - part)


def ranked(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Int32, Int64]:
    """The different values of a column of integers, ascending, the number of each row's value among them, and how
    often each occurs: `np.unique` with inverse and counts, without sorting the rows."""
    if len(values) and int(values.min()) >= 0 and int(values.max()) < 2 * len(values) + 1024:
        return _counted(values)
    code, first = group(values)
    distinct_values = values[first]
    order = np.argsort(distinct_values, kind="stable")
    rank = np.empty(len(order), np.int32)
    rank[order] = np.arange(len(order), dtype=np.int32)
    counts = np.bincount(code, minlength=len(order)).astype(np.int64)
    return distinct_values[order], rank.take(code) if len(code) else code, counts[order]


def _counted(values: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Int32, Int64]:
    """`ranked` for values so small that a table of all there could be is no larger than the column."""
    counts = np.bincount(values)
    found = np.flatnonzero(counts)
    rank = np.empty(len(counts), np.int32)
    rank[found] = np.arange(len(found), dtype=np.int32)
    return found.astype(values.dtype), rank.take(values), counts[found].astype(np.int64)


def queue_depth(launch_ns: Int64, finish_ns: Int64, at_ns: Int64) -> Int64:
    """Device work launched but not finished at each time, shape of `at_ns`, which is best sorted.

    `launch_ns` and `finish_ns`, both shape (m,), are when each piece of work was launched and finished;
    neither needs to be sorted. Work counts from its launch on and no longer at its finish.
    """
    launched = np.searchsorted(np.sort(launch_ns), at_ns, side="right")
    finished = np.searchsorted(np.sort(finish_ns), at_ns, side="right")
    return (launched - finished).astype(np.int64)
