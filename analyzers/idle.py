"""Where a device's idle time went: every idle nanosecond gets one cause, and they sum to the idle time.

A gap ends with a device event; the thread that launched it is asked what it did meanwhile. The time
until the launch call began is the host's, piece by piece: the innermost span of the thread says what it
did. From there on it is the launch itself, and the device's latency after it; a launch that waits long
after its call returned waits for another stream, an event or a collective. Had the host not waited for
the device before the gap, part of it would not be there: that part is the synchronisation's (see `waits`).
A gap with a launch in it that left no device record is unexplained: the device may have been busy.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.waits import WaitBlocks, claims
from stallscope.profiler import intervals, kernels
from stallscope.profiler.activity import Segments
from stallscope.profiler.device import (
    BEFORE_RECORDING,
    HOST,
    QUEUED_LONG,
    QUEUED_SHORT,
    QUEUED_SHORT_NS,
    DeviceView,
)
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.links import submitters
from stallscope.profiler.timeline import Bool, Int32, Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]
Whole = npt.NDArray[np.signedinteger[Any]]


class Cause(IntEnum):
    """Why a device was idle. The names, lower-case, are the keys of `DeviceSummary.idle_classes`."""

    PYTHON = 0
    DISPATCH = 1
    LAUNCH_PATH = 2
    GRAPH_LAUNCH = 3
    GARBAGE_COLLECTION = 4
    COMPILE = 5
    ALLOCATOR = 6
    CONTENTION = 7
    SYNC = 8
    BLOCKING_COPY = 9
    SCHEDULER = 10
    DEPENDENCY = 11
    QUEUE_LATENCY = 12
    UNRECORDED = 13
    PROFILER = 14
    BEFORE_RECORDING = 15
    UNEXPLAINED = 16
    BETWEEN_WINDOWS = 17

    @property
    def key(self) -> str:
        return self.name.lower()


_TEXT: dict[Cause, str] = {
    Cause.PYTHON: "the launching thread was in Python code",
    Cause.DISPATCH: "the launching thread was in framework dispatch (operators, task queue)",
    Cause.LAUNCH_PATH: "a runtime or library call, the launch call itself, or the device's latency after it",
    Cause.GRAPH_LAUNCH: "the launch of a captured graph and the start of its replay",
    Cause.GARBAGE_COLLECTION: "Python collected garbage",
    Cause.COMPILE: "code was compiled or loaded, or a graph captured",
    Cause.ALLOCATOR: "memory was taken from the driver or given back",
    Cause.CONTENTION: "the launching thread was kept from running: no core, or another thread held the interpreter",
    Cause.SYNC: "the host had waited for the device, and so came late with the next work",
    Cause.BLOCKING_COPY: "the host was inside a copy that returns when the copy is done, or came late after it",
    Cause.SCHEDULER: "between steps: the scheduler worked, or the thread waited for work to come",
    Cause.DEPENDENCY: "work was launched, but waited long: another stream, an event or a collective",
    Cause.QUEUE_LATENCY: "work was queued already; the device's own latency between queued work",
    Cause.UNRECORDED: "the launching thread had nothing recorded (plain Python, another library, or preempted)",
    Cause.PROFILER: "the profiler itself was at work",
    Cause.BEFORE_RECORDING: "the next work was launched before recording began, or waited for work that was",
    Cause.BETWEEN_WINDOWS: "between two windows of the recording, where nothing was recorded",
    Cause.UNEXPLAINED: "no launch is known for the work that ended the gap, or launches in it left no device record",
}

IDLE_CLASSES: dict[str, str] = {cause.key: text for cause, text in _TEXT.items()}
"""Idle classes and what each means; the keys of `DeviceSummary.idle_classes`."""

HOST_WORK = (Cause.PYTHON, Cause.DISPATCH, Cause.LAUNCH_PATH, Cause.GRAPH_LAUNCH, Cause.UNRECORDED)
"""Causes that are the host preparing work: what a wait before it may answer for."""

IS_HOST_WORK = np.isin(np.arange(len(Cause)), [int(c) for c in HOST_WORK])
"""The same, to be asked by the number of a cause."""
_IS_HEAVY = np.isin(np.arange(len(Cause)), [int(Cause.PYTHON), int(Cause.UNRECORDED), int(Cause.SCHEDULER)])

HEAVY_NS = 300_000
"""One span of host work in a gap at least this long, and half of the gap, is a cause of its own."""

_BATCH = 1 << 16
"""Segments cut at once."""

EDGE_EVENTS = 8
"""A long wait behind queued work this near the first recorded device event waits for unrecorded work."""

EDGE_NS = 1_000_000
"""No driver needs this long to start queued work of the only stream."""


Part = tuple[Int64, Int64, Int32, npt.NDArray[np.int8], Int32, Int64]
"""Some pieces in order of time: start, end, gap, activity, row and the longest moment. Shapes (p,)."""


def _part(start: Int64, end: Int64, gap: Whole, activity: Whole, row: Whole, longest: Int64) -> Part:
    return (
        start,
        end,
        gap.astype(np.int32, copy=False),
        activity.astype(np.int8, copy=False),
        row.astype(np.int32, copy=False),
        longest,
    )


@dataclass(frozen=True)
class Pieces:
    """Idle time cut into pieces, by time; columns of shape (p,).

    What a thread did one after the other in Python code of one place is one piece. `gap` is the index of the gap, `activity` what the host did (or, where it did not matter, why), `cause`
    the same after the waits have claimed their part, `row` the host row in which it happened (-1 none; of
    several the one of the longest moment, which took `longest_ns`), `block` the wait block a SYNC or BLOCKING_COPY piece belongs to (index into `blocks[track]`) or -1.
    """

    start_ns: Int64
    end_ns: Int64
    gap: Int32
    activity: npt.NDArray[np.int8]
    cause: npt.NDArray[np.int8]
    row: Int32
    longest_ns: Int64
    block: Int32

    @cached_property
    def dur_ns(self) -> Int64:
        return self.end_ns - self.start_ns

    def lengths(self, chosen: npt.NDArray[Any]) -> Int64:
        """The lengths of some pieces, by index or mask."""
        return np.asarray(self.dur_ns[chosen], np.int64)

    def __len__(self) -> int:
        return len(self.start_ns)


class IdleAccount:
    """The idle time of one device by cause."""

    def __init__(self, run: Run, view: DeviceView) -> None:
        self.run = run
        self.view = view

    @cached_property
    def host_end_ns(self) -> Int64:
        """When the launch that ended each gap began, inside the gap; its end where no launch is known."""
        gaps, spans = self.view.gaps, self.run.timeline.spans
        asked = np.maximum(self.asked, 0)
        # a launch recorded after the kernel's start (clock inversion) leaves no latency
        began = np.clip(spans.start_ns[asked], gaps.start_ns, gaps.end_ns)
        return np.where(gaps.launch >= 0, began, gaps.end_ns)

    @cached_property
    def asked(self) -> Rows:
        """The host row that asked for what ended each gap, -1 unknown: its launch, or behind a task queue its
        enqueue, if that too began after the gap did. Then the thread that fills the queue was late and not the
        one that empties it. Shape (g,)."""
        gaps, spans = self.view.gaps, self.run.timeline.spans
        launch = gaps.launch.astype(np.intp)
        asked = submitters(spans, launch)
        late = (asked >= 0) & (spans.start_ns[np.maximum(asked, 0)] > gaps.start_ns)
        return np.where(late, asked, launch)

    @cached_property
    def track(self) -> npt.NDArray[np.int32]:
        """The thread that launched what ended each gap, -1 unknown. Shape (g,)."""
        tracks = self.run.timeline.spans.track[np.maximum(self.asked, 0)]
        return np.where(self.asked >= 0, tracks, -1).astype(np.int32)

    @cached_property
    def is_host(self) -> Bool:
        """Gaps that the host made: their launch began after they did, and all launches in them are known."""
        return np.asarray(
            (self.view.gaps.gap_class == HOST) & ~self.has_lost_launch & ~self.between_windows, np.bool_
        )

    @cached_property
    def host_tracks(self) -> list[int]:
        """The threads that made any of the gaps that the host made."""
        found: list[int] = kernels.distinct(self.track[self.is_host]).tolist()
        return found

    @cached_property
    def between_windows(self) -> Bool:
        """Gaps that reach into time in which nothing was recorded. Shape (g,)."""
        gaps = self.view.gaps
        return intervals.covered(self.run.unrecorded, gaps.start_ns, gaps.end_ns) > 0

    @cached_property
    def has_lost_launch(self) -> Bool:
        """Gaps in which a kernel was launched that left no device record. Shape (g,)."""
        gaps, spans = self.view.gaps, self.run.timeline.spans
        out = np.zeros(len(gaps), bool)
        lost = self.run.lost_launches
        if len(lost) == 0:
            return out
        when = np.sort(spans.start_ns[lost])
        # a launch just before the gap may have run at its beginning
        low = np.searchsorted(when, gaps.start_ns - QUEUED_SHORT_NS, side="left")
        return np.searchsorted(when, gaps.end_ns, side="left") > low

    @cached_property
    def pieces(self) -> Pieces:
        parts = [self._whole_gaps(), *self._host_parts()]
        claimed, rest, block = _claimed(self, parts)
        whole = _in_order([*parts, rest])  # no two begin at one time
        return _caused(self, whole, np.searchsorted(whole[0], claimed), block)

    def totals(self) -> dict[str, int]:
        """Idle nanoseconds per class; they sum to the idle time exactly."""
        sums = self._cause_sums
        return {cause.key: int(sums[cause]) for cause in Cause}

    @cached_property
    def _cause_sums(self) -> Int64:
        return kernels.sums(self.pieces.cause, self.pieces.dur_ns, len(Cause))

    # -- gaps that are not the host's ------------------------------------------------------------------

    def _whole_gaps(self) -> Part:
        gaps = self.view.gaps
        cause = np.full(len(gaps), int(Cause.UNEXPLAINED), np.int8)
        cause[gaps.gap_class == QUEUED_SHORT] = Cause.QUEUE_LATENCY
        cause[(gaps.gap_class == QUEUED_SHORT) & self._starts_graph] = Cause.GRAPH_LAUNCH
        late = gaps.gap_class == QUEUED_LONG
        cause[late] = self._late[late]
        cause[gaps.gap_class == BEFORE_RECORDING] = Cause.BEFORE_RECORDING
        cause[(gaps.gap_class == QUEUED_LONG) & self._at_edge] = Cause.BEFORE_RECORDING
        cause[self._inside_graph_call & (gaps.gap_class != BEFORE_RECORDING)] = Cause.GRAPH_LAUNCH
        cause[self.has_lost_launch & (gaps.gap_class != QUEUED_SHORT)] = Cause.UNEXPLAINED
        cause[self.between_windows] = Cause.BETWEEN_WINDOWS
        at = np.flatnonzero(~self.is_host)
        return _part(gaps.start_ns[at], gaps.end_ns[at], at, cause[at], gaps.launch[at], gaps.dur_ns[at])

    @cached_property
    def _starts_graph(self) -> Bool:
        """Gaps ended by the first kernel of a graph launch."""
        gaps = self.view.gaps
        graph = (gaps.launch >= 0) & self.run.is_graph_launch[np.maximum(gaps.launch, 0)]
        asked = np.flatnonzero(graph)
        before = np.searchsorted(self.view.start_ns, gaps.end_ns[asked], side="left") - 1
        previous = self.run.timeline.spans.launch_row[self.view.rows[np.maximum(before, 0)]]
        graph[asked] = previous != gaps.launch[asked]
        return graph

    @cached_property
    def _inside_graph_call(self) -> Bool:
        """Gaps in a replay whose launch call had not returned: the call feeds the device as it goes."""
        gaps, launch = self.view.gaps, np.maximum(self.view.gaps.launch, 0)
        running = self.run.timeline.spans.end_at(launch) > gaps.start_ns
        return np.asarray(
            (gaps.launch >= 0) & (gaps.gap_class != HOST) & self.run.is_graph_launch[launch] & running,
            np.bool_,
        )

    @cached_property
    def _late(self) -> npt.NDArray[np.int8]:
        """What a long wait of launched work is, per gap: on one stream alone there is nothing to wait for but the
        driver. Where the device's own waits were recorded (NPU), one must be there to blame another stream for it.
        A launch call that has not returned when its work begins is what the gap waited for. Shape (g,)."""
        gaps = self.view.gaps
        out = np.full(len(gaps), int(Cause.DEPENDENCY if self.run.can_depend else Cause.LAUNCH_PATH), np.int8)
        waits = self._recorded_waits
        if waits is not None and self.run.can_depend:
            seen = intervals.covered(waits, gaps.start_ns, gaps.end_ns)
            out[2 * seen < gaps.dur_ns] = Cause.QUEUE_LATENCY
            open_ = self.run.timeline.spans.end_at(np.maximum(gaps.launch, 0)) >= gaps.end_ns
            out[(gaps.launch >= 0) & open_] = Cause.LAUNCH_PATH
        return out

    @cached_property
    def _recorded_waits(self) -> IntervalSet | None:
        """When any stream of the device waited for an event or a signal; None where such waits are not recorded."""
        if not self.run.communication.ranks:
            return None
        timeline, spans = self.run.timeline, self.run.timeline.spans
        home = {
            (timeline.tracks[t].rank, timeline.tracks[t].device)
            for t in kernels.distinct(spans.track[self.view.rows])
        }
        rows = timeline.rows(Kind.DEVICE_WAIT)
        mine = np.array([(t.rank, t.device) in home for t in timeline.tracks], bool)
        rows = rows[mine[spans.track[rows]]]
        return intervals.union(spans.start_ns[rows], spans.end_at(rows)) if len(rows) else None

    @cached_property
    def _at_edge(self) -> Bool:
        """Gaps near the start of the recording that may wait for unrecorded work: on one stream, only long ones."""
        gaps = self.view.gaps
        near = np.ones(len(gaps), bool)
        if len(self.view.rows) > EDGE_EVENTS:
            near = gaps.end_ns <= self.view.start_ns[EDGE_EVENTS]
        return np.asarray(near & (self.run.can_depend | (gaps.dur_ns >= EDGE_NS)), np.bool_)

    # -- gaps that are ---------------------------------------------------------------------------------

    def _host_parts(self) -> list[Part]:
        host = np.flatnonzero(self.is_host)
        if len(host) == 0:
            return []
        out = [self._launches(host)]
        for track in self.host_tracks:
            mine = host[self.track[host] == track]
            out.append(self._activity(track, mine, self.view.gaps.start_ns[mine], self.host_end_ns[mine]))
            self.run.let_go_of_thread(track, self.view)
        return out

    def _launches(self, host: Rows) -> Part:
        """From the start of the launch call to the device's start: the call, then latency or a long wait."""
        gaps, spans = self.view.gaps, self.run.timeline.spans
        launch = gaps.launch[host].astype(np.intp)
        begin, end = self.host_end_ns[host], gaps.end_ns[host]
        returned = np.clip(spans.end_at(launch), begin, end)
        late = end - returned >= QUEUED_SHORT_NS
        graph = self.run.is_graph_launch[launch]
        copy = self.run.is_wait[launch] & self.run.is_copy_call[launch]
        kind = np.where(graph, int(Cause.GRAPH_LAUNCH), int(Cause.LAUNCH_PATH))
        kind = np.where(copy, int(Cause.BLOCKING_COPY), kind)
        kind = np.where(self.run.host_causes.loads_code[launch], int(Cause.COMPILE), kind)
        waits = np.where(self._at_edge[host], int(Cause.BEFORE_RECORDING), self._late[host])
        after = np.where(late & ~copy, waits, kind)
        longest = np.maximum(returned - begin, end - returned)
        border = np.where(after == kind, end, returned)  # call and latency are one piece if they are the same
        longest = np.concatenate([np.minimum(longest, border - begin), end - border])
        start, end = np.concatenate([begin, border]), np.concatenate([border, end])
        order = np.argsort(start, kind="stable")
        order = order[end[order] > start[order]]
        gap, row = np.concatenate([host, host])[order], np.concatenate([launch, launch])[order]
        return _part(start[order], end[order], gap, np.concatenate([kind, after])[order], row, longest[order])

    def _activity(self, track: int, gap: Rows, start: Int64, end: Int64) -> Part:
        """What a thread did in [start, end) of its gaps, piece by piece."""
        some = end > start
        gap, start, end = gap[some], start[some], end[some]
        borders = np.concatenate([self.run.host_causes.borders(track), self.blocks(track).start_ns])
        causes = self.run.host_causes
        row_of, begin, until, index, longest = cut(
            self.run.segments(track), start, end, borders, causes.alike
        )
        cause = causes(track, row_of, begin, until)
        return _part(begin, until, kernels.mapped(gap.astype(np.int32), index), cause, row_of, longest)

    def heavy_ns(self, parts: list[Part]) -> Int64:
        """Per gap the host work of its heaviest place, where that is long and most of the gap; else 0."""
        run, length = self.run, self.view.gaps.dur_ns
        out = np.zeros(len(length), np.int64)
        long = length >= HEAVY_NS
        start, end, gap, _, row, _ = _chosen(parts, long, _IS_HEAVY)
        sums = kernels.sums(gap, end - start, len(length))
        long &= (sums >= HEAVY_NS) & (2 * sums >= length)
        work = np.flatnonzero(long[gap])
        gap, row, dur = gap[work], row[work], end[work] - start[work]
        frame = run.places.frame_of[row]
        label, first = kernels.group(gap, np.where(frame >= 0, run.timeline.spans.name[frame], -1))
        np.maximum.at(out, gap[first], kernels.sums(label, dur, len(first)))
        return np.where((out >= HEAVY_NS) & (2 * out >= length), out, 0)

    def blocks(self, track: int) -> WaitBlocks:
        return self.run.wait_blocks(track)


def cut(
    segments: Segments,
    start: Int64,
    end: Int64,
    borders: Int64,
    alike: Int32 | None = None,
) -> tuple[Int32, Int64, Int64, Int32, Int64]:
    """Cut disjoint spans [start, end) at the ends of disjoint segments, and at further borders.

    Segments between two borders whose rows are `alike` stay together, see `kernels.cut`. Returns per piece: the segment's row (-1 none), start, end, the index of the span, and the longest segment's length.
    """
    borders = kernels.distinct(borders) if len(start) else borders[:0]
    at = np.searchsorted(start, borders, side="right") - 1
    inside = (at >= 0) & (borders > start[np.maximum(at, 0)]) & (borders < end[np.maximum(at, 0)])
    at, borders = at[inside], borders[inside]
    whole = np.insert(np.arange(len(start), dtype=np.int32), at, at)
    start, end = np.insert(start, at + 1, borders), np.insert(end, at, borders)
    found = [
        (*kernels.cut(s.start_ns, s.end_ns, s.row, start[some], end[some], alike), whole[some])
        for some, s in _batches(segments, start, end)
    ]
    columns = list(zip(*((*f[:3], f[4], kernels.mapped(f[5], f[3])) for f in found), strict=True))
    begin, until, row, longest, index = (np.concatenate(column) for column in columns)
    return row, begin, until, index, longest


def _batches(segments: Segments, start: Int64, end: Int64) -> Iterator[tuple[slice, Segments]]:
    """Some windows after the other, at least once, with the segments that they overlap: the room to cut them in is
    used again and again."""
    edges, last = segments.edge_ns, max(len(segments.row) - 1, 0)
    low = np.clip(np.searchsorted(edges, start, side="right") - 1, 0, last)
    high = np.searchsorted(edges, end)
    at = 0
    while at < max(len(start), 1):
        to = max(int(np.searchsorted(high, low[at] + _BATCH)), at + 1) if len(start) else 1
        some = slice(int(low[at]), int(high[to - 1])) if len(start) else slice(0, 0)
        yield slice(at, to), Segments(edges[some.start : some.stop + 1], segments.row[some])
        at = to


def _in_order(parts: list[Part]) -> Part:
    """The pieces of some parts as one."""
    start = np.concatenate([part[0] for part in parts])
    order = np.argsort(start, kind="stable").astype(np.int32)
    # column by column: each is put together where the one before it stood
    others = (np.concatenate([part[k] for part in parts]) for k in range(1, len(parts[0])))
    return _part(kernels.mapped(start, order), *(kernels.mapped(column, order) for column in others))


def _chosen(parts: list[Part], gaps: Bool, activities: Bool) -> Part:
    """The pieces of some gaps with some activities, in order of time."""
    out = []
    for part in parts:
        found = np.flatnonzero(kernels.mapped(gaps, part[2]))
        found = found[activities[part[3][found]]]
        columns: tuple[Any, ...] = part
        out.append(_part(*(column[found] for column in columns)))
    return _in_order(out)


def _claimed(account: IdleAccount, parts: list[Part]) -> tuple[Int64, Part, Int32]:
    """Give the waits their part of the host's work: the first nanoseconds of the gap, or of what of it lies
    after the block began, as many as claimed.

    Pieces claimed in part end where their claim does from now on. Returns when the claimed ones start, what is left
    of those claimed in part, and the block that has a say in each gap."""
    gaps = account.view.gaps
    limit = np.zeros(len(gaps), np.int64)
    block = np.full(len(gaps), -1, np.int32)
    heavy = account.heavy_ns(parts)
    once = np.zeros(len(gaps), bool)
    since = np.full(len(gaps), -(1 << 62), np.int64)
    host = np.flatnonzero(account.is_host)
    for track in account.host_tracks:
        mine, blocks = host[account.track[host] == track], account.blocks(track)
        found, claim = claims(
            account.run,
            blocks,
            gaps.start_ns[mine],
            account.host_end_ns[mine],
            gaps.end_ns[mine],
            heavy[mine],
        )
        block[mine], limit[mine] = found, claim
        mine = mine[found >= 0]
        once[mine] = blocks.once_a_step[block[mine]]
        since[mine] = blocks.start_ns[block[mine]]
    # few gaps have anything claimed; only their pieces are looked at
    start, end, gap, activity, row, longest = _chosen(parts, limit > 0, IS_HOST_WORK)
    exempt = (heavy[gap] > 0) & once[gap]
    exempt &= (activity == int(Cause.PYTHON)) | (activity == int(Cause.UNRECORDED))
    dur = np.where(~exempt & (start >= since[gap]), end - start, 0)
    used = np.cumsum(dur) - dur
    if len(gap):
        first = np.append(True, gap[1:] != gap[:-1])
        used -= used[np.flatnonzero(first)][np.cumsum(first) - 1]
    until = start + np.clip(limit[gap] - used, 0, dur)
    partly = np.flatnonzero((until > start) & (until < end))
    for part in parts if len(partly) else ():
        at = np.minimum(np.searchsorted(part[0], start[partly]), max(len(part[0]) - 1, 0))
        mine = part[0][at] == start[partly] if len(part[0]) else np.zeros(len(at), np.bool_)
        part[1][at[mine]] = until[partly[mine]]
    left = np.minimum(longest[partly], end[partly] - until[partly])
    rest = _part(until[partly], end[partly], gap[partly], activity[partly], row[partly], left)
    return start[until > start], rest, block


def _caused(account: IdleAccount, part: Part, claimed: Rows, block: Int32) -> Pieces:
    """Set the cause of the claimed pieces, and the block of those that wait."""
    start, end, gap, activity, row, longest = part
    cause = activity.copy()
    blamed = np.full(len(gap), -1, np.int32)
    waits = np.flatnonzero((activity == int(Cause.SYNC)) | (activity == int(Cause.BLOCKING_COPY)))
    # where a block is known it decides: a short copy that reads a value back is a synchronisation
    decided = np.concatenate([claimed, waits])
    decided = decided[block[gap[decided]] >= 0]
    blamed[decided] = block[gap[decided]]
    tracks = account.track[gap[decided]]
    for track in kernels.distinct(tracks).tolist():
        mine = decided[tracks == track]
        is_copy = account.blocks(track).is_copy[blamed[mine]]
        cause[mine] = np.where(is_copy, int(Cause.BLOCKING_COPY), int(Cause.SYNC))
    found = Pieces(start, end, gap, activity, cause, row, longest, blamed)
    np.minimum(longest, found.dur_ns, out=longest)
    return found


def account_idle(run: Run, view: DeviceView) -> IdleAccount:
    """The account of one device's idle time."""
    return IdleAccount(run, view)
