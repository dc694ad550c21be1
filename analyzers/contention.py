"""When a host thread was kept from running, as far as the recording shows it.

Two signs. A span that usually takes microseconds takes a hundred times as long, once in a while, without a wait
for the device, a collection or a compilation in it: the thread lost its core. The same in Python code while
another thread of the process was in Python code: that thread held the interpreter lock. Nor is it chance if a thread
comes back from a call that gives the lock up, and time and again goes on at the very moment at which another thread
that was in Python code all the while stops to be. Run-queue counters,
where they were recorded, measure the first directly, but only as sums over a tenth of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.profiler import counters, intervals, kernels
from stallscope.profiler.activity import Segments
from stallscope.profiler.intervals import EMPTY, IntervalSet
from stallscope.profiler.kinds import Kind
from stallscope.profiler.timeline import Bool, Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

OUTLIER_FACTOR = 20.0
"""Operators that take over 20 medians were descheduled in every CPU trace looked at."""
OUTLIER_NS = 200_000
"""Shorter ones are not called outliers: caches and page faults do that."""
MIN_SAMPLES = 8
"""A name seen less often has no usual length."""
LONGEST_NS = 200_000_000
"""Longer than any time slice: something else happened."""
HANDED_NS = OUTLIER_NS // 2
"""Shorter stays are not looked at: neither after a call nor as the own part of a slow call."""
HANDED_TOLERANCE_NS = 20_000
"""Between one thread giving the interpreter lock up and the other going on."""
LEAST_HANDED = 3
"""So many times the lock must have been handed over to the moment, and in most such stays."""
LOCK_FACTOR = 8.0
LOCK_SHARE = 0.6
"""Share of a long Python moment in which another thread must have been in Python code."""
_BLOCK = 1 << 15
"""Segments looked at at once."""


def stolen_time(run: Run, track: int) -> IntervalSet:
    """When a thread was kept from running by a core or by the interpreter lock."""
    segments = run.segments(track)
    if len(segments.row) == 0:
        return EMPTY
    slow = slow_calls(run, track)
    own = EMPTY
    if len(slow):
        long = _long(segments)
        own = segments.only(long[kernels.among(segments.row[long], slow)])
    locked = lock_time(run, track)
    if len(locked[0]) == 0:
        return own
    return intervals.union(np.concatenate([own[0], locked[0]]), np.concatenate([own[1], locked[1]]))


def slow_calls(run: Run, track: int) -> npt.NDArray[np.intp]:
    """Rows whose own time is far over the median of calls of their name, caller and shapes, on one thread.

    First calls do not count: libraries load and choose then.
    """
    spans = run.timeline.spans
    rows = run.timeline.track_rows(track)
    top = _steady(run, rows.start + np.flatnonzero(spans.self_ns[rows] >= OUTLIER_NS))
    top = _undisturbed(run, track, top)
    top = top[spans.self_ns[top] <= LONGEST_NS]
    if len(top) == 0:
        return top
    # only what may be called slow needs to know what is usual
    named = np.zeros(len(run.timeline.strings), np.bool_)
    named[spans.name[top]] = True
    mine = _steady(run, rows.start + np.flatnonzero(kernels.mapped(named, spans.name[rows])))
    mine = _undisturbed(run, track, mine)
    own = spans.self_ns[mine]
    long = (own >= OUTLIER_NS) & (own <= LONGEST_NS)
    up = spans.parent[mine]
    caller = np.where(up >= 0, spans.name[np.maximum(up, 0)], -1)
    label, first = kernels.group(spans.name[mine], caller, run.shape_codes(mine))
    counts = np.bincount(label)
    asked = np.zeros(len(counts), np.bool_)
    asked[label[long]] = True
    asked &= counts >= MIN_SAMPLES
    same = np.flatnonzero(asked[label])
    order = same[np.lexsort((own[same], label[same]))]
    heads = np.flatnonzero(np.append(True, label[order][1:] != label[order][:-1])) if len(order) else order
    usual = np.full(len(counts), np.inf)
    usual[label[order[heads]]] = own[order[heads + counts[label[order[heads]]] // 2]]
    slow = long & (own > OUTLIER_FACTOR * usual[label])
    slow[first] = False
    return np.asarray(mine[slow], np.intp)


def _undisturbed(run: Run, track: int, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Those of some rows of a thread in whose middle it neither compiled nor collected garbage."""
    spans = run.timeline.spans
    for name in ("compile", "gc"):
        middle = spans.start_ns[rows] + spans.dur_ns[rows] // 2
        rows = rows[~intervals.contains(run.host_causes.set_of(name, track), middle)]
    return rows


def _long(segments: Segments) -> npt.NDArray[np.intp]:
    found = []
    for low in range(0, len(segments.row), _BLOCK):  # small enough to stay in the cache
        part = slice(low, low + _BLOCK)
        long = np.flatnonzero(segments.end_ns[part] - segments.start_ns[part] >= HANDED_NS)
        found.append(low + long[segments.row[part][long] >= 0])
    return np.concatenate(found) if found else np.zeros(0, np.intp)


def lock_time(run: Run, track: int) -> IntervalSet:
    """Unusually long moments of a thread in Python code while another thread of its process was in Python."""
    others = _other_python(run, track)
    if len(others[0]) == 0:
        return EMPTY
    segments = run.segments(track)
    long = _long(segments)
    row = segments.row[long]
    waits = run.is_wait[row] | run.places.is_waiting[row]
    code = long[np.isin(run.timeline.spans.kind[row], [int(Kind.PYTHON), int(Kind.OPERATOR)]) & ~waits]
    start, end = segments.start_ns[code], segments.end_ns[code]
    beside = code[intervals.covered(others, start, end) >= LOCK_SHARE * (end - start)]
    far = _outliers(run, segments, beside, LOCK_FACTOR)
    handed = _handed_over(run, segments, code, others)
    return intervals.union(np.concatenate([far[0], handed[0]]), np.concatenate([far[1], handed[1]]))


def _handed_over(
    run: Run, segments: Segments, code: npt.NDArray[np.intp], others: IntervalSet
) -> IntervalSet:
    """Stays in Python after a call, all of them beside another thread's Python, that ended as that thread's did."""
    stays = code[code > 0]
    before = stays - 1
    # no two segments without an owner follow each other, nor is the first one without
    before -= segments.row[before] < 0
    called = run.timeline.spans.kind[segments.row[before]] == Kind.RUNTIME
    called &= segments.start_ns[stays] - segments.end_ns[before] <= HANDED_TOLERANCE_NS
    stays = stays[called]
    start, end = segments.start_ns[stays], segments.end_ns[stays]
    beside = intervals.covered(others, start, end) >= end - start - HANDED_TOLERANCE_NS
    stays, start, end = stays[beside], start[beside], end[beside]
    at = np.searchsorted(others[1], end - HANDED_TOLERANCE_NS)
    near = np.append(others[1], np.iinfo(np.int64).max)[at] <= end + HANDED_TOLERANCE_NS
    if near.sum() < LEAST_HANDED or 2 * near.sum() < len(stays):
        return EMPTY
    return intervals.union(start[near], end[near])


def _steady(run: Run, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Those of some rows that are calls whose own time on the host does not depend on what they are asked to do.

    These are runtime calls, and operators that start device work (on a run without a device: all operators).
    """
    timeline, causes = run.timeline, run.host_causes
    rows = rows[timeline.are_kind(rows, Kind.OPERATOR, Kind.RUNTIME, Kind.QUEUE)]
    for but in (run.is_wait, run.is_sync, causes.is_allocator, causes.is_compile, run.first_uses,
                run.is_copy_call, run.is_graph_launch):  # fmt: skip
        rows = rows[~but[rows]]
    if "device" not in run.has:
        return rows
    operators = timeline.are_kind(rows, Kind.OPERATOR)
    return rows[~operators | run.launches_work[rows]]


def launches_work(run: Run) -> Bool:
    """Rows right above a launch, but not above one that is the first use of a kernel. Shape (n,)."""
    parent = run.timeline.spans.parent
    out = np.zeros(len(parent), np.bool_)
    for which, value in ((run.is_launch, True), (run.first_uses, False)):
        above = parent[np.flatnonzero(which)]
        out[above[above >= 0]] = value
    return out


def first_uses(run: Run) -> Bool:
    """Calls that launched the first kernel of a name: the driver may have loaded its code then. Shape (n,)."""
    spans = run.timeline.spans
    rows = run.timeline.rows(Kind.KERNEL, Kind.COLLECTIVE)
    rows = rows[spans.launch_row[rows] >= 0]
    out = np.zeros(len(spans), bool)
    order = rows[np.argsort(spans.start_ns[rows], kind="stable")]
    _, first = kernels.group(spans.name[order])
    out[spans.launch_row[order[first]]] = True
    return out


def _outliers(run: Run, segments: Segments, usable: npt.NDArray[np.intp], factor: float) -> IntervalSet:
    """Usable segments far longer than the median of all segments of their name."""
    name = run.timeline.spans.name
    long = usable[segments.end_ns[usable] - segments.start_ns[usable] >= OUTLIER_NS]
    if len(long) == 0:
        return EMPTY
    asked = np.zeros(len(run.timeline.strings), np.bool_)
    asked[name[segments.row[long]]] = True
    same = np.flatnonzero(kernels.mapped(asked, kernels.mapped(name, segments.row)) & (segments.row >= 0))
    names, length = name[segments.row[same]], segments.end_ns[same] - segments.start_ns[same]
    out = []
    for one in kernels.distinct(name[segments.row[long]]).tolist():
        usual = length[names == one]
        if len(usual) >= MIN_SAMPLES:
            mine = long[name[segments.row[long]] == one]
            took = segments.end_ns[mine] - segments.start_ns[mine]
            out.append(mine[took > factor * np.median(usual)])
    if not out:
        return EMPTY
    chosen = np.concatenate(out)
    return intervals.union(segments.start_ns[chosen], segments.end_ns[chosen])


def _other_python(run: Run, track: int) -> IntervalSet:
    """When another thread of the same process was in Python code that runs, not waits."""
    tracks = run.timeline.tracks
    others = [
        other
        for other in run.host_tracks
        if tracks[other].process == tracks[track].process and tracks[other].thread != tracks[track].thread
    ]
    found = [run.python_time(other) for other in others]
    if not found:
        return EMPTY
    return intervals.union(np.concatenate([f[0] for f in found]), np.concatenate([f[1] for f in found]))


def python_time(run: Run, track: int) -> IntervalSet:
    """When a thread was in Python code that runs, not waits."""
    if (
        not run.places.is_python[run.timeline.track_rows(track)].any()
        and track not in run.places.sample_tracks
    ):
        return EMPTY
    segments = run.segments(track)
    if len(segments.row) < 3:
        return EMPTY
    running = kernels.mapped(run.places.is_python & ~run.places.is_waiting, segments.row) & (
        segments.row >= 0
    )
    # a frame without an end inside of the recording may have sat in a call that left no record
    running &= segments.end_ns - segments.start_ns <= LONGEST_NS
    running[[0, -1]] = False
    return segments.only(running)


def busiest_other(run: Run, track: int, when: IntervalSet) -> int:
    """The user frame of another thread that ran most inside of `when`, or -1."""
    tracks, best, most = run.timeline.tracks, -1, 0
    for other in run.host_tracks:
        if tracks[other].process != tracks[track].process or tracks[other].thread == tracks[track].thread:
            continue
        segments = run.segments(other)
        if len(segments.row) == 0:
            continue
        inside = intervals.covered(when, segments.start_ns, segments.end_ns)
        inside = np.where(run.places.is_waiting[segments.row] | (segments.row < 0), 0, inside)
        frames = run.places.user_frames(segments.row)
        codes, at = np.unique(
            np.where(frames >= 0, run.timeline.spans.name[np.maximum(frames, 0)], -1), return_inverse=True
        )
        sums = np.zeros(len(codes), np.int64)
        np.add.at(sums, np.asarray(at).reshape(-1), inside)
        top = int(np.argmax(np.where(codes >= 0, sums, -1)))
        if codes[top] >= 0 and sums[top] > most:
            most = int(sums[top])
            best = int(frames[np.flatnonzero(np.asarray(at).reshape(-1) == top)[0]])
    return best


def queue_wait(run: Run, track: int) -> tuple[int, int] | None:
    """What a thread waited for a core according to the kernel, and the time that covers; None without counters.

    Counted from the last reading before the thread's first operator to the first after its last.
    """
    table, strings = run.timeline.counters, run.timeline.strings
    code = strings.find(counters.RUN_QUEUE_NS)
    mine = (
        np.flatnonzero((table.name == code) & (table.track == track)) if code >= 0 else np.zeros(0, np.intp)
    )
    if len(mine) < 2:
        return None
    mine = mine[np.argsort(table.time_ns[mine], kind="stable")]
    times: Int64 = table.time_ns[mine]
    rows = run.timeline.track_rows(track)
    operators = np.flatnonzero(run.timeline.of_kind(Kind.OPERATOR)[rows]) + rows.start
    begin = int(run.timeline.spans.start_ns[operators].min()) if len(operators) else int(times[0])
    end = int(run.timeline.spans.end_at(operators).max()) if len(operators) else int(times[-1])
    low = max(int(np.searchsorted(times, begin, side="right")) - 1, 0)
    high = min(int(np.searchsorted(times, end, side="left")), len(times) - 1)
    if high <= low:
        return None
    return int(table.value[mine[high]] - table.value[mine[low]]), int(times[high] - times[low])
