"""Where the host waits for the device: synchronising calls and copies that return when the copy is done.

Waits that follow each other closely, with no kernel launch between them but their own, belong together (`item`
is a copy and a synchronisation; sixteen of them in a loop read back sixteen values) and are one *block*. Had
the host not waited in a block of length W, it would have come to its next launches up to W earlier; so of the
device's idle time in and after the block, until the next one, up to W is the block's doing (`claims`). A wait
while the device is busy costs nothing by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels, kinds
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.links import submitters
from stallscope.profiler.timeline import Bool, Int32, Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

RECURRING = 3
"""A place that waits at least this often has a say in more than the first gap after each wait."""

TOGETHER_NS = 100_000
"""Waits further apart are not one block: there is more than light Python between them."""

COPY_NS = 20_000
"""A block with a copy that takes the device at least this long is a blocking copy; else it reads a value back."""

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class WaitBlocks:
    """The wait blocks of one host thread by time; columns of shape (b,).

    `wait_ns` is the time spent waiting (the block itself begins with its first operator), `row` the longest wait, `operator` the row of the operator
    around it or -1, `frame` the row of the user frame or -1, `copy_ns` what its copies took on the
    device, `longest_copy_ns` the longest call's, `key` a number per place, `repeats` how often that place waits, `once_a_step` whether the
    place is an operator that waits once per step.
    """

    track: int
    start_ns: Int64
    end_ns: Int64
    wait_ns: Int64
    row: Rows
    operator: Rows
    frame: Rows
    copy_ns: Int64
    longest_copy_ns: Int64
    copy_bytes: Int64
    key: Int64
    repeats: Int64
    once_a_step: Bool

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def is_copy(self) -> Bool:
        return self.longest_copy_ns >= COPY_NS


def wait_blocks(run: Run, track: int) -> WaitBlocks:
    """The blocks of one thread, without the profiler's own synchronisations."""
    spans = run.timeline.spans
    rows = run.timeline.track_rows(track)
    waits = rows.start + np.flatnonzero(run.is_wait[rows])
    waits = run.outermost(waits, run.is_wait)
    around = run.places.calling_operators(waits)
    outer = np.where(around >= 0, around, waits)
    start, end = spans.start_ns[outer], np.maximum(spans.end_at(outer), spans.end_at(waits))
    launches = rows.start + np.flatnonzero(run.is_launch[rows] & ~run.is_copy_call[rows])
    launches = launches[~kernels.among(run.places.calling_operators(launches), outer)]
    before = np.searchsorted(spans.start_ns[launches], start, side="left")
    first = np.ones(len(waits), bool)
    first[1:] = (before[1:] != before[:-1]) | (start[1:] - end[:-1] > TOGETHER_NS)
    at = np.flatnonzero(first)
    block = np.cumsum(first) - 1
    length = kernels.sums(block, spans.dur_ns[waits], len(at))
    row = _longest(waits, spans.dur_ns[waits], block, len(at))
    operator, frame = run.places.calling_operators(row), run.places.user_frames(row)
    key, repeats = _keys(run, row, operator, frame)
    copy_ns, copy_bytes = run.copies_of(waits)
    return WaitBlocks(
        track=track,
        start_ns=start[at],
        end_ns=np.maximum.reduceat(end, at) if len(at) else start,
        wait_ns=length,
        row=row,
        operator=operator,
        frame=frame,
        copy_ns=kernels.sums(block, copy_ns, len(at)),
        longest_copy_ns=_most(copy_ns, block, len(at)),
        copy_bytes=kernels.sums(block, copy_bytes, len(at)),
        key=key,
        repeats=repeats,
        once_a_step=_once_a_step(run, row, operator, key),
    )


def _most(values: Int64, group: npt.NDArray[np.intp], groups: int) -> Int64:
    out = np.zeros(groups, np.int64)
    np.maximum.at(out, group, values)
    return out


def _longest(rows: Rows, dur_ns: Int64, group: npt.NDArray[np.intp], groups: int) -> Rows:
    order = np.lexsort((dur_ns, group))
    out = np.zeros(groups, np.intp)
    out[group[order]] = rows[order]  # of one group the last, so the longest, stays
    return out


def _keys(run: Run, row: Rows, operator: Rows, frame: Rows) -> tuple[Int64, Int64]:
    """A number per distinct (call, operator, frame) by name, and how often each occurs."""
    if len(row) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    name = run.timeline.spans.name
    parts = [np.where(r >= 0, name[np.maximum(r, 0)], -1) for r in (row, operator, frame)]
    _, key, counts = np.unique(np.stack(parts), axis=1, return_inverse=True, return_counts=True)
    key = np.asarray(key).reshape(-1).astype(np.int64)
    return key, counts[key].astype(np.int64)


def _once_a_step(run: Run, row: Rows, operator: Rows, key: Int64) -> Bool:
    """Places inside operators that wait about once in each step they occur in."""
    steps = run.step_of_row[row]
    out = np.zeros(len(row), bool)
    if not run.steps:
        return out
    for k in kernels.distinct(key):
        mine = key == k
        inside = steps[mine]
        distinct = max(len(kernels.distinct(inside[inside >= 0])), 1 if (inside < 0).any() else 0)
        # between steps there is no step to count by: compare with the number of steps in all
        expected = distinct if (inside >= 0).any() else len(run.steps)
        out[mine] = bool((operator[mine] >= 0).all()) and int(mine.sum()) <= 1.3 * expected + 1
    return out


def claims(
    run: Run, blocks: WaitBlocks, start_ns: Int64, until_ns: Int64, end_ns: Int64, exempt_ns: Int64
) -> tuple[Rows, Int64]:
    """Which block each idle gap of the thread's launches follows, and how much of the gap is its doing.

    Gaps by time, columns of shape (g,): [start, end), `until_ns` when the launch that ends it began,
    `exempt_ns` what of it a place that reads back once a step does not answer for (long Python work).
    Returns block numbers (-1 none) and nanoseconds.
    """
    after = np.searchsorted(blocks.start_ns, until_ns, side="right") - 1
    claim = np.zeros(len(start_ns), np.int64)
    if len(blocks) == 0 or len(start_ns) == 0:
        return np.full(len(start_ns), -1, np.intp), claim
    b = np.maximum(after, 0)
    first = np.append(True, after[1:] != after[:-1])
    inside = until_ns <= blocks.end_ns[b]
    following = ~inside & (first | np.append(False, inside[:-1]))
    valid = (after >= 0) & (inside | following | (until_ns <= _expiry(run, blocks)[b]))
    since = np.maximum(start_ns, np.minimum(blocks.start_ns[b], end_ns))
    claimable = np.maximum(end_ns - since - np.where(blocks.once_a_step[b], exempt_ns, 0), 0) * valid
    total = np.cumsum(claimable) - claimable
    at = np.flatnonzero(first)
    used = total - total[at][np.cumsum(first) - 1]
    claim = np.clip(blocks.end_ns[b] - blocks.start_ns[b] - used, 0, claimable)
    return after, claim


def _expiry(run: Run, blocks: WaitBlocks) -> Int64:
    """Until when each block may answer for gaps beyond the first: the end of the next step.

    Without steps a recurring place answers until the next block, others for the first gap only.
    """
    never = np.full(len(blocks), np.iinfo(np.int64).min)
    recurring = blocks.repeats >= RECURRING
    if not run.steps:
        return np.where(recurring, np.iinfo(np.int64).max, never)
    ends = np.array([s.end_ns for s in run.steps], np.int64)
    current = np.searchsorted(ends, blocks.end_ns, side="left")
    following = np.minimum(current + 1, len(ends) - 1)
    return np.where(recurring, ends[following], never)


def is_wait(run: Run) -> Bool:
    """Rows in which the host waits: synchronising calls, and copies that return when the copy is done."""
    calls = np.flatnonzero(run.is_copy_call)
    blocking = calls[run.timeline.match_names_at(kinds.is_blocking_copy_call, calls)]
    spans = run.timeline.spans
    copies = run.timeline.rows(Kind.MEMCPY)
    copies = copies[spans.launch_row[copies] >= 0]
    call = spans.launch_row[copies].astype(np.intp)
    done = spans.end_at(call) >= spans.end_at(copies)
    # a pinned, asynchronous copy of some bytes may happen to end before its call returns
    done &= run.is_copy_call[call] & (spans.dur_ns[call] >= COPY_NS)
    waits = run.is_sync.copy()
    waits[blocking] = True
    waits[call[done]] = True
    waits[run.profiler_syncs] = False
    return waits


def copy_waiters(run: Run) -> tuple[Rows, Int32]:
    """The copies that a known call started, ascending, and for each the host row that waits for it: the call that started it, or, where that returns at once (or a
    task queue makes it on another thread), the synchronising call that its operator makes next: what `tensor.to(device)`
    does on an NPU."""
    timeline, spans = run.timeline, run.timeline.spans
    copies = timeline.rows(Kind.MEMCPY)
    found = copies[spans.launch_row[copies] >= 0]
    waiter = spans.launch_row[found]
    own = spans.end_at(waiter) >= spans.end_at(found)
    late = np.flatnonzero(~own & (spans.dur_ns[found] >= COPY_NS))
    asked = submitters(spans, waiter[late].astype(np.intp))
    syncs = np.flatnonzero(run.is_sync)
    at = np.searchsorted(syncs, asked)  # rows of one thread are by start
    late, asked, at = (x[at < len(syncs)] for x in (late, asked, at))
    sync = syncs[at]
    operator = run.places.operators(sync)
    same = (operator >= 0) & (spans.track[sync] == spans.track[asked])
    same &= spans.start_ns[np.maximum(operator, 0)] <= spans.start_ns[asked]
    same &= spans.end_at(sync) >= spans.end_at(found[late])
    waiter[late[same]] = sync[same]
    return found, waiter
