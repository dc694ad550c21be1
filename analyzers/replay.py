"""Replays a recording on a model of host threads, launch queue and streams, to price a change.

The model. A host thread is a chain of device-related calls with host work between them. A device event
starts when its stream is free, its launch has reached the device and what it waits for on other streams is
done. A waiting call (a synchronise, a copy that blocks, a launch into a full queue) ends when the device event
it waits for does. With a task queue (NPU) one thread asks and a second makes the calls: a call starts when the one
before it is done and it was asked for, and a call of the first thread that needs an empty queue starts when the
second is done. Every edge keeps the delay that was observed on it; an edge that did not bind keeps the
typical delay of its kind, for the case that it binds after the change.

What comes out is `recorded makespan - replayed makespan`. Whether to believe it is asked first: `model_error`
replays the unchanged program with *typical* delays only. Where that misses the recorded time by more than
`MAX_ERROR`, the model does not describe the run and no prediction is made.

Sources: dependency-graph replay with edge kinds as in Daydream (ATC'20) and Lumos (MLSys'25), which also
publish the error of replaying the unchanged run.
"""

from __future__ import annotations

from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.profiler import intervals, kernels
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.kinds import Kind, is_blocking_copy_call, is_graph_launch
from stallscope.profiler.light import dataclass
from stallscope.profiler.links import submitters
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

MAX_ERROR = 0.05
"""Above this share of the recorded time the model is not trusted."""

QUEUE_DEPTH = 1024
"""Launches a stream takes before the launching call blocks (the full mark of CUDA's queue)."""

LONG_LAUNCH = 10
"""A launch this many times its own median, while the device is busy, waited for room in the queue."""

GRAPH_GAP_NS = 100
"""What stays between two kernels of a replayed graph: the median is 1 ns in the MI300X traces of vLLM and FLUX,
64 ns in the RTX 5080 trace."""

_SHORT_LAG_NS = 30_000
"""Delays above this are no ordinary launch or scheduling latency and are left out of typical values."""

_NEAR_NS = 10_000
"""A device event that starts this soon after an event of another stream ended was waiting for it."""

_DRAIN_NS = 20_000
"""A call that starts this soon after the other thread emptied the task queue was waiting for that."""

_RETURN_NS = 2_000
"""A wait may be recorded to end this much before the device event it waited for (two clocks)."""

NONE = -1


@dataclass
class Change:
    """What to change before replaying. Empty means the unchanged program."""

    host_cuts: list[tuple[int, IntervalSet, float]] = field(default_factory=list)
    """(track, times, factor): host work of a thread inside these times takes `factor` of its length."""
    no_wait: set[int] = field(default_factory=set)
    """Rows of calls that no longer wait for the device."""
    op_factor: dict[int, float] = field(default_factory=dict)
    """Device rows and the factor on their duration (0 removes the work, its place in the stream stays)."""
    call_factor: dict[int, float] = field(default_factory=dict)
    """Rows of calls and the factor on their own duration (the part that is no wait)."""
    as_graph: list[tuple[int, ...]] = field(default_factory=list)
    """Groups of launch rows that become one launch: the first one starts the work of all."""

    def __bool__(self) -> bool:
        return bool(self.host_cuts or self.no_wait or self.op_factor or self.call_factor or self.as_graph)


@dataclass(frozen=True)
class Outcome:
    """Times of one replay: the whole (first start to last end) and where each device row ended up."""

    makespan_ns: int
    op_start_ns: list[int]
    op_end_ns: list[int]


class Replay:
    """The model of one recording. Build once, replay many changes.

    `calls` are the host rows that start device work or wait for it, `ops` the device rows; both by start.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self.timeline = run.timeline
        spans = self.timeline.spans
        self.ops = run.whole.rows
        self.op_start = spans.start_ns[self.ops]
        self.op_dur = spans.dur_ns[self.ops]
        self.op_end = self.op_start + self.op_dur
        self.calls = self._call_rows()
        self.call_start = spans.start_ns[self.calls]
        self.call_dur = spans.dur_ns[self.calls]
        self.call_end = self.call_start + self.call_dur
        self.call_track = spans.track[self.calls]
        self._position = np.full(len(spans) + 1, NONE, np.int64)
        self._position[self.calls] = np.arange(len(self.calls))
        self.op_call = self._op_calls()
        self._host_edges()
        self._task_queue_edges()
        self._stream_edges()
        self._wait_edges()
        self._order = self._event_order()

    # -- building ----------------------------------------------------------------------------------

    def _call_rows(self) -> npt.NDArray[np.intp]:
        """Launches and synchronising calls, outermost only (a driver call inside a runtime call is one)."""
        spans = self.timeline.spans
        chosen = (self.run.is_launch | self.run.is_sync) & spans.of_kind(Kind.RUNTIME)
        linked = spans.launch_row[self.ops]
        linked = linked[linked >= 0]
        chosen[linked] = True
        asked = kernels.distinct(submitters(spans, linked))
        chosen[asked[spans.kind[asked] == Kind.QUEUE]] = True
        rows = np.flatnonzero(chosen)
        rows = (
            rows[[self.timeline.tracks[int(t)].role == "host" for t in spans.track[rows]]]
            if len(rows)
            else rows
        )
        inner = np.zeros(len(rows), bool)
        up = spans.parent[rows]
        while (up >= 0).any():
            inner |= (up >= 0) & chosen[np.maximum(up, 0)]
            up = np.where(up >= 0, spans.parent[np.maximum(up, 0)], NONE)
        self._outer = {int(r): self._outermost(int(r), chosen) for r in rows[inner]}
        rows = rows[~inner]
        return rows[np.argsort(spans.start_ns[rows], kind="stable")]

    def _outermost(self, row: int, chosen: npt.NDArray[np.bool_]) -> int:
        return [a for a in self.timeline.ancestors(row) if chosen[a]][-1]

    def _op_calls(self) -> npt.NDArray[np.int64]:
        """The call (index) that launched each op, or NONE."""
        launch = self.timeline.spans.launch_row[self.ops].astype(np.int64)
        if self._outer:
            launch = np.array([self._outer.get(int(r), int(r)) for r in launch], np.int64)
        return self._position[launch]

    def _host_edges(self) -> None:
        """Chain the calls of each thread; `host_ns` is the host work before each call."""
        n = len(self.calls)
        self.prev_call = np.full(n, NONE, np.int64)
        self.host_from = self.call_start.copy()
        for track in kernels.distinct(self.call_track):
            mine = np.flatnonzero(self.call_track == track)
            self.prev_call[mine[1:]] = mine[:-1]
            self.host_from[mine[1:]] = np.minimum(self.call_end[mine[:-1]], self.call_start[mine[1:]])
        self.host_ns = self.call_start - self.host_from
        self.main_track = self._leading_track()
        self.follows_main = self._waits_for_work()

    def _task_queue_edges(self) -> None:
        """Which call asked for each call of another thread, and which call had emptied the queue before each."""
        n = len(self.calls)
        self.ask_call = np.full(n, NONE, np.int64)
        self.ask_lag = np.zeros(n, np.int64)
        self.drain_call = np.full(n, NONE, np.int64)
        self.drain_lag = np.zeros(n, np.int64)
        if n == 0:
            return
        asked = submitters(self.timeline.spans, self.calls)
        ask = np.where(asked != self.calls, self._position[asked], NONE)
        lag = self.call_start - self.call_start[np.maximum(ask, 0)]
        self.ask_call = np.where((ask >= 0) & (lag > 0), ask, NONE)
        mine = np.flatnonzero(self.ask_call >= 0)
        if len(mine) == 0:
            return
        asked_end = self.call_end[self.ask_call[mine]]
        starved = asked_end > self.host_from[mine]
        starved |= self.prev_call[mine] < 0
        lag, host = lag[mine], self.host_ns[mine]
        self.typical_ask_lag = _typical(lag[starved], 3_000)
        self.ask_lag[mine] = np.where(starved, lag, np.minimum(lag, self.typical_ask_lag))
        self.host_ns[mine] = np.where(starved, np.minimum(host, _typical(host[~starved], 2_000)), host)
        self.follows_main[mine] = False
        self._drain_edges(mine)

    def _drain_edges(self, passed_on: npt.NDArray[np.intp]) -> None:
        """Calls a thread makes itself after it had asked for others: most first wait until the queue is empty."""
        asking = np.sort(self.ask_call[passed_on])
        by_ask = passed_on[np.argsort(self.ask_call[passed_on], kind="stable")]
        track = self.call_track[asking]
        for own in kernels.distinct(track).tolist():
            askers = asking[track == own]
            workers = by_ask[track == own]
            calls = np.flatnonzero(self.call_track == own)
            calls = calls[~kernels.among(calls, askers)]
            at = np.searchsorted(askers, calls) - 1
            calls, last = calls[at >= 0], workers[at[at >= 0]]
            lag = self.call_start[calls] - self.call_end[last]
            drains = (lag >= 0) & (self.call_end[last] > self.host_from[calls])
            waited = drains & (lag <= _DRAIN_NS)
            self.drain_call[calls[lag >= 0]] = last[lag >= 0]
            self.drain_lag[calls] = np.where(waited, lag, 0)
            # what the thread did meanwhile is not known, but it was not what the call waited for
            self.host_ns[calls[waited]] = np.minimum(self.host_ns[calls[waited]], lag[waited])

    @cached_property
    def known_tracks(self) -> set[int]:
        """Threads whose order is known: the leading one, and those that only make the calls it asks for."""
        passing = kernels.distinct(self.call_track[self.ask_call >= 0]).tolist()
        alone = [t for t in passing if (self.ask_call[self.call_track == t] >= 0).all()]
        asked = self.ask_call[kernels.among(self.call_track, alone) & (self.ask_call >= 0)]
        return {self.main_track} | (
            set(alone) if (self.call_track[asked] == self.main_track).all() else set()
        )

    def _leading_track(self) -> int:
        """The thread the others wait for: of those that call, the one with most operators and Python, else calls.

        Where a task queue lies between them, most calls are made by the thread that only empties it.
        """
        if len(self.calls) == 0:
            return 0
        tracks, calls = np.unique(self.call_track, return_counts=True)
        work = self.timeline.spans.track[self.timeline.of_kind(Kind.OPERATOR, Kind.PYTHON)]
        own = np.bincount(work, minlength=int(tracks.max()) + 1)[tracks]
        return int(tracks[np.lexsort((calls, own))[-1]])

    def _waits_for_work(self) -> npt.NDArray[np.bool_]:
        """Calls of a second thread before which it had nothing recorded: it waited for the main thread."""
        out = np.zeros(len(self.calls), bool)
        for track in kernels.distinct(self.call_track[self.call_track != self.main_track]):
            mine = np.flatnonzero(self.call_track == track)
            rows = np.arange(
                self.timeline.track_rows(int(track)).start, self.timeline.track_rows(int(track)).stop
            )
            spans = self.timeline.spans
            active = intervals.union(spans.start_ns[rows], spans.end_at(rows))
            busy = intervals.covered(active, self.host_from[mine], self.call_start[mine])
            out[mine] = (2 * busy < self.host_ns[mine]) | (self.prev_call[mine] < 0)
        return out

    def _stream_edges(self) -> None:
        """Per op: the op before it on its stream, observed delays, typical delays, cross-stream waits."""
        n = len(self.ops)
        track = self.timeline.spans.track[self.ops]
        self.prev_op = np.full(n, NONE, np.int64)
        self.nth = np.zeros(n, np.int64)
        self.stream_of = np.zeros(n, np.int64)
        self._stream_ops: list[npt.NDArray[np.intp]] = []
        for number, stream in enumerate(kernels.distinct(track)):
            mine = np.flatnonzero(track == stream)
            self.prev_op[mine[1:]] = mine[:-1]
            self.nth[mine] = np.arange(len(mine))
            self.stream_of[mine] = number
            self._stream_ops.append(mine)
        has_prev, has_call = self.prev_op >= 0, self.op_call >= 0
        free = np.where(has_prev, self.op_end[np.maximum(self.prev_op, 0)], np.iinfo(np.int64).min // 4)
        launched = np.where(has_call, self.call_start[np.maximum(self.op_call, 0)] if len(self.calls) else 0,
                            np.iinfo(np.int64).min // 4)  # fmt: skip
        # work of one launch after its first op is chained by the stream, not by the launch
        same_launch = has_prev & has_call & (self.op_call[np.maximum(self.prev_op, 0)] == self.op_call)
        after_stream, after_launch = self.op_start - free, self.op_start - launched
        idle = has_call & (free <= launched) & ~same_launch
        self.typical_launch_lag = _typical(after_launch[idle & (after_launch >= 0)], 5_000)
        self.typical_stream_lag = _typical(after_stream[has_prev & ~idle & (after_stream >= 0)], 1_000)
        stream_bound = has_prev & (same_launch | ~has_call | (free > launched + self.typical_launch_lag))
        self.stream_lag = np.where(
            stream_bound, after_stream, np.minimum(self.typical_stream_lag, after_stream)
        )
        self.launch_lag = np.where(
            stream_bound, np.minimum(self.typical_launch_lag, after_launch), after_launch
        )
        self.launch_lag[same_launch] = np.minimum(self.launch_lag[same_launch], 0)
        self.stream_bound = stream_bound
        self._cross_edges(stream_bound, np.where(stream_bound, after_stream, after_launch))

    def _cross_edges(self, stream_bound: npt.NDArray[np.bool_], lag: Int64) -> None:
        """Ops that started long after their own predecessor and just after another stream's op ended."""
        n = len(self.ops)
        self.other_op = np.full(n, NONE, np.int64)
        self.other_lag = np.zeros(n, np.int64)
        if len(self._stream_ops) < 2:
            return
        late = np.flatnonzero(lag > _SHORT_LAG_NS)
        for mine in self._stream_ops:
            ends = np.sort(self.op_end[mine])
            by_end = mine[np.argsort(self.op_end[mine], kind="stable")]
            others = late[self.stream_of[late] != self.stream_of[mine[0]]]
            at = np.searchsorted(ends, self.op_start[others], side="right") - 1
            gap = self.op_start[others] - ends[np.maximum(at, 0)]
            hit = (at >= 0) & (gap <= _NEAR_NS)
            better = hit & ((self.other_op[others] < 0) | (gap < self.other_lag[others]))
            self.other_op[others[better]] = by_end[at[better]]
            self.other_lag[others[better]] = gap[better]
        crossed = self.other_op >= 0
        own = np.where(stream_bound, self.stream_lag, self.launch_lag)
        typical = np.where(stream_bound, self.typical_stream_lag, self.typical_launch_lag)
        short = np.minimum(own, typical)
        self.stream_lag[crossed & stream_bound] = short[crossed & stream_bound]
        self.launch_lag[crossed & ~stream_bound] = short[crossed & ~stream_bound]

    def _wait_edges(self) -> None:
        """Per call: the op whose end (or, for a full queue, whose start) it waits for, and the delay after it."""
        n = len(self.calls)
        self.wait_op = np.full(n, NONE, np.int64)
        self.wait_on_start = np.zeros(n, bool)
        self.wait_lag = np.zeros(n, np.int64)
        self.own_ns = self.call_dur.copy()
        if n == 0 or len(self.ops) == 0:
            return
        sync = self.run.is_sync[self.calls]
        self._sync_waits(np.flatnonzero(sync))
        self._copy_waits()
        self._queue_waits(sync)
        waits = self.wait_op >= 0
        short = _typical(self.call_dur[sync & ~waits], 3_000)
        self.own_ns[waits] = np.minimum(self.own_ns[waits], short)

    def _sync_waits(self, syncs: npt.NDArray[np.intp]) -> None:
        by_end = np.argsort(self.op_end, kind="stable")
        ends = self.op_end[by_end]
        launched = np.where(self.op_call >= 0, self.call_start[np.maximum(self.op_call, 0)],
                            np.iinfo(np.int64).min)[by_end]  # fmt: skip
        streams = self._sync_streams(syncs)
        op_stream = self._stream_ids()[by_end]
        for call, stream in zip(syncs.tolist(), streams, strict=True):
            at = int(np.searchsorted(ends, self.call_end[call] + _RETURN_NS, side="right")) - 1
            # walk back over what the call cannot have waited for: launched later, or on another stream
            while at >= 0 and ends[at] > self.call_start[call]:
                if launched[at] < self.call_start[call] and (stream is None or op_stream[at] == stream):
                    self._set_wait(call, int(by_end[at]))
                    break
                at -= 1

    def _sync_streams(self, syncs: npt.NDArray[np.intp]) -> list[object]:
        """The stream a synchronising call names, where a device-side record of it does; else None."""
        spans = self.timeline.spans
        waits = self.timeline.rows(Kind.DEVICE_WAIT)
        of_call: dict[int, object] = {}
        for row in waits.tolist():
            launch = int(spans.launch_row[row])
            stream = self.timeline.track_of(row).stream
            if launch >= 0 and isinstance(stream, int) and 0 <= stream < 2**31:
                of_call[launch] = stream
        return [
            of_call.get(int(self.calls[c])) if "Stream" in self.timeline.name(int(self.calls[c])) else None
            for c in syncs
        ]

    def _stream_ids(self) -> npt.NDArray[np.object_]:
        ids = np.empty(len(self.ops), object)
        for mine in self._stream_ops:
            ids[mine] = self.timeline.track_of(int(self.ops[mine[0]])).stream
        return ids

    def _copy_waits(self) -> None:
        """A copy call that returned only after its own copy was done waits for it."""
        copies = self.run.is_copy_call[self.calls]
        blocking = self.timeline.match_names_at(is_blocking_copy_call, self.calls)
        waits = self.run.is_wait[self.calls]
        for op in np.flatnonzero(self.op_call >= 0).tolist():
            call = int(self.op_call[op])
            if not copies[call] or self.op_end[op] > self.call_end[call] + _RETURN_NS:
                continue
            # a short copy that does not block may happen to end before its call returns
            if blocking[call] or (self.op_end[op] > self.call_start[call] and waits[call]):
                self._set_wait(call, op)

    def _queue_waits(self, sync: npt.NDArray[np.bool_]) -> None:
        """Launches far longer than usual while the device is busy waited for room in the queue."""
        names = self.timeline.spans.name[self.calls]
        busy = intervals.covered(self.run.whole.busy, self.call_start, self.call_end)
        launching = np.zeros(len(self.calls), bool)
        launching[self.op_call[self.op_call >= 0]] = True
        for name in kernels.distinct(names[launching & ~sync]):
            if is_graph_launch(self.timeline.strings[int(name)]):
                continue
            mine = np.flatnonzero((names == name) & launching & (self.wait_op < 0))
            if len(mine) < 3:
                continue
            usual = int(np.median(self.call_dur[mine]))
            long = mine[
                (self.call_dur[mine] > LONG_LAUNCH * max(usual, 1))
                & (busy[mine] * 10 > self.call_dur[mine] * 9)
            ]
            for call in long.tolist():
                at = int(np.searchsorted(self.op_start, self.call_end[call], side="right")) - 1
                if at >= 0 and self.op_start[at] > self.call_start[call]:
                    self._set_wait(call, at, on_start=True)
                    self.own_ns[call] = usual

    def _set_wait(self, call: int, op: int, on_start: bool = False) -> None:
        self.wait_op[call] = op
        self.wait_on_start[call] = on_start
        self.wait_lag[call] = self.call_end[call] - (self.op_start if on_start else self.op_end)[op]

    def _event_order(self) -> Int64:
        """Call ends, call starts and op starts by recorded time, as codes 3 * index + type.

        An event depends only on ones before it in this order: a wait's op has started by the time the wait
        ends, an op's launch has begun by the time the op starts (an op that seems to start before its
        launch is taken right after it).
        """
        ops_at = self.op_start.copy()
        has_call = self.op_call >= 0
        if len(self.calls):
            ops_at = np.where(
                has_call, np.maximum(ops_at, self.call_start[np.maximum(self.op_call, 0)]), ops_at
            )
        # a zero-length or clock-skewed dependency must not come before what it depends on
        ends_at = self.call_end.copy()
        waits = self.wait_op >= 0
        if waits.any():
            ends_at[waits] = np.maximum(ends_at[waits], ops_at[self.wait_op[waits]] + 1)
        times = np.concatenate([ends_at, self.call_start, ops_at])
        kind = np.repeat([0, 1, 2], [len(self.calls), len(self.calls), len(self.ops)])
        index = np.concatenate(
            [np.arange(len(self.calls)), np.arange(len(self.calls)), np.arange(len(self.ops))]
        )
        # at one time: ends before starts, but a call's own start before its own end
        zero = np.concatenate([self.call_dur == 0, np.zeros(len(self.calls) + len(self.ops), bool)])
        rank = np.where(zero, 1.5, kind)
        order = np.lexsort((index, rank, times))
        codes: Int64 = 3 * index[order] + kind[order]
        return codes

    # -- replaying ---------------------------------------------------------------------------------

    @cached_property
    def recorded_ns(self) -> int:
        """First start to last end of the modelled events, as recorded."""
        return self._recorded_end - self._recorded_start

    @cached_property
    def _recorded_start(self) -> int:
        return min([int(t.min()) for t in (self.op_start, self.call_start) if len(t)], default=0)

    @cached_property
    def _recorded_end(self) -> int:
        return max([int(t.max()) for t in (self.op_end, self.call_end) if len(t)], default=0)

    def replay(self, change: Change | None = None, *, typical: bool = False) -> Outcome:
        """Run the model. `typical` replaces every observed delay by the typical one of its kind."""
        change = change or Change()
        host, own, waits, op_dur, op_call = self._changed(change)
        stream_lag, launch_lag, wait_lag = self._lags(typical, change)
        asks, ask_lag, drains, drain_lag = self._queue_edges(change, typical)
        calls = {
            "prev_call": self.prev_call, "host": host, "own": own, "waits": waits, "on_start": self.wait_on_start,
            "wait_lag": wait_lag, "follows": self.follows_main, "is_main": self.call_track == self.main_track,
            "call_at": self.call_start, "call_to": self.call_end, "asks": asks, "ask_lag": ask_lag, "drains": drains,
            "drain_lag": drain_lag, "ahead": self._ahead(op_call),
        }  # fmt: skip
        ops = {
            "op_call": op_call, "prev_op": self.prev_op, "other_op": self.other_op, "stream_lag": stream_lag,
            "launch_lag": launch_lag, "other_lag": self.other_lag, "op_at": self.op_start, "op_dur": op_dur,
        }  # fmt: skip
        _, ends, op_starts, op_ends = kernels.replay(self._order, calls, ops)
        last = max([int(t.max()) for t in (ends, op_ends) if len(t)], default=0)
        return Outcome(last - self._recorded_start, op_starts.tolist(), op_ends.tolist())

    def _ahead(self, op_call: Int64) -> Int64:
        """Per call the op with whose start its own first op has room in the queue of its stream, or -1."""
        out = np.full(len(self.calls), NONE, np.int64)
        launched = np.flatnonzero(op_call >= 0)[::-1]
        first = np.full(len(self.calls), NONE, np.int64)
        first[op_call[launched]] = launched  # of several the first one stays
        full = np.flatnonzero(first >= 0)
        full = full[self.nth[first[full]] >= QUEUE_DEPTH]
        if len(full):
            ops = first[full]
            begin = np.cumsum([0, *(len(mine) for mine in self._stream_ops)])[self.stream_of[ops]]
            out[full] = np.concatenate(self._stream_ops)[begin + self.nth[ops] - QUEUE_DEPTH]
        return out

    def _queue_edges(self, change: Change, typical: bool) -> tuple[Int64, Int64, Int64, Int64]:
        """Who asked for each call and who emptied the queue before it, with delays; a wait that is gone needs neither."""
        ask, drain, lag = self.ask_call.copy(), self.drain_call.copy(), self.ask_lag.copy()
        for row in change.no_wait:
            if (call := int(self._position[row])) >= 0:
                drain[call] = NONE
        # what joined another launch is not asked for any more
        joined = [int(self._position[r]) for group in change.as_graph for r in group[1:]]
        ask[[call for call in joined if call >= 0]] = NONE
        if typical and (self.ask_call >= 0).any():
            lag = np.minimum(lag, self.typical_ask_lag)
        return ask, lag, drain, self.drain_lag

    def _changed(self, change: Change) -> tuple[Int64, Int64, Int64, Int64, Int64]:
        """Host work, own time and waits per call, duration and launch per op, after the change."""
        host, own, waits = self.host_ns.copy(), self.own_ns.copy(), self.wait_op.copy()
        op_dur, op_call = self.op_dur.copy(), self.op_call.copy()
        for track, times, factor in change.host_cuts:
            mine = np.flatnonzero(self.call_track == track)
            cut = intervals.covered(times, self.host_from[mine], self.call_start[mine])
            host[mine] = np.maximum(host[mine] - (cut * (1 - factor)).astype(np.int64), 0)
            inside = intervals.covered(times, self.call_start[mine], self.call_end[mine])
            unwaiting = mine[self.wait_op[mine] < 0]
            kept = inside[self.wait_op[mine] < 0]
            own[unwaiting] = np.maximum(own[unwaiting] - (kept * (1 - factor)).astype(np.int64), 0)
        for row in change.no_wait:
            if (call := int(self._position[row])) >= 0:
                waits[call] = NONE
        for row, factor in change.call_factor.items():
            if (call := int(self._position[row])) >= 0:
                own[call] = int(own[call] * factor)
        if change.op_factor:
            at = {int(r): i for i, r in enumerate(self.ops)}
            for row, factor in change.op_factor.items():
                if row in at:
                    op_dur[at[row]] = int(op_dur[at[row]] * factor)
        for group in change.as_graph:
            self._make_graph(group, host, own, op_call)
        return host, own, waits, op_dur, op_call

    def _make_graph(self, group: tuple[int, ...], host: Int64, own: Int64, op_call: Int64) -> None:
        """One launch for all: the later calls cost nothing and the host work between them is gone."""
        calls = [int(self._position[r]) for r in group if self._position[r] >= 0]
        if len(calls) < 2:
            return
        first, rest = calls[0], calls[1:]
        op_call[kernels.among(op_call, rest)] = first
        asked = self.ask_call[rest]
        for gone in (np.array(rest), asked[(asked >= 0) & (asked != self.ask_call[first])]):
            host[gone] = 0
            own[gone] = 0

    def _lags(self, typical: bool, change: Change) -> tuple[Int64, Int64, Int64]:
        stream_lag, launch_lag, wait_lag = (
            self.stream_lag.copy(),
            self.launch_lag.copy(),
            self.wait_lag.copy(),
        )
        if typical:
            plain = (self.prev_op >= 0) & (stream_lag >= 0)
            stream_lag[plain] = self.typical_stream_lag
            # before a stream's first recorded event it may have been busy with work of before the window
            launch_lag[(self.op_call >= 0) & (launch_lag > 0) & (self.nth > 0)] = self.typical_launch_lag
            waits = self.wait_op >= 0
            wait_lag[waits] = _typical(wait_lag[waits], 2_000)
        if change.as_graph:
            graphed = {int(self._position[r]) for group in change.as_graph for r in group[1:]}
            inside = kernels.among(self.op_call, list(graphed))
            # inside a graph the next kernel follows at the device's own pace
            stream_lag[inside] = np.minimum(stream_lag[inside], min(self.typical_stream_lag, GRAPH_GAP_NS))
            launch_lag[inside] = 0
        return stream_lag, launch_lag, wait_lag

    # -- asking ------------------------------------------------------------------------------------

    @cached_property
    def model_error(self) -> float:
        """|replay of the unchanged program with typical delays - recorded| / recorded."""
        if self.recorded_ns <= 0:
            return 1.0
        return abs(self.replay(typical=True).makespan_ns - self.recorded_ns) / self.recorded_ns

    @cached_property
    def self_error(self) -> float:
        """|replay of the unchanged program - recorded| / recorded; a check of the bookkeeping."""
        if self.recorded_ns <= 0:
            return 1.0
        return abs(self._unchanged_ns - self.recorded_ns) / self.recorded_ns

    @property
    def trusted(self) -> bool:
        return self.model_error <= MAX_ERROR and self.self_error <= MAX_ERROR

    def gain_ns(self, change: Change) -> int:
        """Nanoseconds the change saves over the whole recording; 0 for none, never negative."""
        if not change:
            return 0
        return max(self._unchanged_ns - self.replay(change).makespan_ns, 0)

    @cached_property
    def _unchanged_ns(self) -> int:
        return self.replay().makespan_ns


def _typical(values: Int64, default: int) -> int:
    """The median of ordinary delays, or `default` where there are none."""
    ordinary = values[(values >= 0) & (values <= _SHORT_LAG_NS)]
    return int(np.median(ordinary)) if len(ordinary) else default
