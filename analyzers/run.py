"""One analysis in progress: the session and everything derived from it, computed once, when asked.

Rules get a `Run` and read its properties; what two rules need is derived here and not in either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers import backpressure, contention, hostwords, waits
from stallscope.analyzers.backpressure import Pressure, pressure
from stallscope.analyzers.blocking import LaunchBlocking
from stallscope.analyzers.chains import Chain, find_chains
from stallscope.analyzers.communication import Communication
from stallscope.analyzers.companion import Companion
from stallscope.analyzers.floor import Floor
from stallscope.analyzers.frames import is_user_frame
from stallscope.analyzers.graphs import GraphUse
from stallscope.analyzers.hostcause import HostCauses
from stallscope.analyzers.hostgaps import HostView
from stallscope.analyzers.idle import HOST_WORK, IdleAccount, account_idle
from stallscope.analyzers.idle_index import IdleIndex, PlaceCodes
from stallscope.analyzers.losses import Loss, losses, widest
from stallscope.analyzers.models.chips import Chip, chip_of_device
from stallscope.analyzers.npu import Npu
from stallscope.analyzers.pace import Pace
from stallscope.analyzers.phases import PhaseSeries, series
from stallscope.analyzers.places import Places
from stallscope.analyzers.replay import Replay
from stallscope.analyzers.taskqueue import TaskQueue
from stallscope.analyzers.trust import Trust, recorded_windows
from stallscope.analyzers.work import Work
from stallscope.profiler import intervals, kernels, kinds
from stallscope.profiler.activity import Segments, filled, flatten
from stallscope.profiler.device import DeviceView, device_views, rank_labels, whole_view
from stallscope.profiler.ids import NO_ID
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.kinds import Kind
from stallscope.profiler.session import Session
from stallscope.profiler.steps import Step, find_steps, step_of_device_rows
from stallscope.profiler.timeline import Int32, Int64, Timeline

NEEDS_TEXT: dict[str, str] = {
    "host": "no host activity was recorded",
    "device": "no device activity was recorded",
    "launches": "no device event could be linked to its launch call",
    "operators": "no framework operators were recorded",
    "shapes": "operator shapes were not recorded (record_shapes)",
    "steps": "no steps or phases could be found",
    "chip": "the chip is unknown, or its peaks are not in the table",
    "host_code": "of the host only runtime calls were recorded, not what ran between them",
    "trusted_host": "the recording cannot be trusted for what the host did",
    "trusted_device": "the recording cannot be trusted for what the device did",
}
"""What a rule can need, and what is said where it is missing."""

_BLOCK = 1 << 16

INSIDE = 0.95
"""Share of a step that must lie within windows for it to count."""

TRUST_NEEDS = frozenset({"trusted_host", "trusted_device"})
"""Needs that `trust.Trust` decides, with a reason of its own."""


class Run:
    """Derived views of one session. All row arrays are in timeline order unless said otherwise."""

    def __init__(self, session: Session, companion: Session | None = None) -> None:
        """`companion` is a recording of the same program whose launches name the kernels of graph replays."""
        self.session = session
        self.companion = companion
        self.timeline: Timeline = session.timeline
        self.priced_events = 0
        """Events replayed so far to price findings (`pricing.BUDGET`)."""
        self._segments: dict[int, Segments] = {}
        self._blocks: dict[int, waits.WaitBlocks] = {}
        self._captures: dict[int, IntervalSet] = {}
        self._contention: dict[int, IntervalSet] = {}
        self._steady_spans: dict[int, int] = {}
        self._python_time: dict[int, IntervalSet] = {}
        self._worked: dict[tuple[int, int], int] = {}

    # -- what there is -----------------------------------------------------------------------------

    @cached_property
    def has(self) -> frozenset[str]:
        """Which of NEEDS_TEXT this session offers."""
        tests: dict[str, Callable[[], bool]] = {
            "host": lambda: self.timeline.has_kind(*kinds.HOST_CALLS, Kind.ANNOTATION),
            "device": lambda: len(self.whole.rows) > 0,
            "launches": lambda: bool((self.timeline.spans.launch_row[self.whole.rows] >= 0).any()),
            "operators": lambda: self.timeline.has_kind(Kind.OPERATOR),
            "shapes": lambda: (
                "Input Dims" in self.timeline.args.keys or "Input Shapes" in self.timeline.args.keys
            ),
            "steps": lambda: len(self.steps) > 0,
            "chip": lambda: len(self.chips) > 0,
            "host_code": lambda: self.timeline.has_kind(Kind.PYTHON, Kind.OPERATOR, Kind.ANNOTATION),
        }
        return frozenset(name for name, test in tests.items() if test())

    @cached_property
    def trust(self) -> Trust:
        """What the recording can be trusted for."""
        return Trust(self)

    def missing(self, needs: frozenset[str]) -> str:
        """Why a rule with these needs cannot run, or ""."""
        lacks = [
            NEEDS_TEXT[name] for name in NEEDS_TEXT if name in needs - self.has and name not in TRUST_NEEDS
        ]
        if "device" in needs and "device" not in self.has:
            lacks = [NEEDS_TEXT["device"]]  # what hangs on the device is missing with it
        elif not lacks:
            lacks = sorted(
                {self.trust.blocks[name] for name in needs & TRUST_NEEDS if name in self.trust.blocks}
            )
        return "; ".join(lacks)

    # -- devices -----------------------------------------------------------------------------------

    @cached_property
    def whole(self) -> DeviceView:
        """All devices as one."""
        return whole_view(self.timeline)

    @cached_property
    def devices(self) -> dict[int, DeviceView]:
        """Each device that did any work."""
        return device_views(self.timeline, self.whole)

    @cached_property
    def idle(self) -> dict[int, IdleAccount]:
        """Where each device's idle time went."""
        return {number: account_idle(self, view) for number, view in self.devices.items()}

    @cached_property
    def idle_index(self) -> dict[int, IdleIndex]:
        """The pieces of each device's idle time by cause."""
        return {number: IdleIndex(self, account) for number, account in self.idle.items()}

    @cached_property
    def pace(self) -> dict[int, Pace]:
        """Launch pace and stalls of each device's gaps."""
        return {number: Pace(self, account) for number, account in self.idle.items()}

    @cached_property
    def pressure(self) -> dict[int, Pressure]:
        """How far the host is ahead of each device."""
        return {number: pressure(self, view) for number, view in self.devices.items()}

    @cached_property
    def rank_labels(self) -> dict[int, str]:
        """What to call the devices of several ranks; empty where there is one rank."""
        return rank_labels(self.timeline)

    def device_name(self, number: int) -> str:
        """The name the source gave a device, or ""."""
        known = self.session.facts.get("devices", {}).get(str(number % 1000), {})
        return str(known.get("name", ""))

    @cached_property
    def chips(self) -> dict[int, Chip]:
        """Peaks of each device whose chip is in the table.

        A device the source does not describe (inside of a container it may be numbered otherwise) is of the
        same chip as the others if those are all of one.
        """
        told = self.session.facts.get("devices", {})
        kinds_of = {
            key: chip_of_device(entry | (self.npu.measured(int(key)) if key.isdecimal() else {}))
            for key, entry in told.items()
            if isinstance(entry, dict)
        }
        kinds_found = list(kinds_of.values())
        only = kinds_found[0] if kinds_found and all(k == kinds_found[0] for k in kinds_found) else None
        found = {number: kinds_of.get(str(number % 1000), only) for number in self.devices}
        return {number: chip for number, chip in found.items() if chip is not None}

    @cached_property
    def work(self) -> Work:
        """Device work by operator, with costs and rooflines."""
        return Work(self, Companion(self.companion) if self.companion is not None else None)

    @cached_property
    def npu(self) -> Npu:
        """NPU kernels by core kind, with blocks, core counters and clocks."""
        return Npu(self)

    @cached_property
    def chains(self) -> list[Chain]:
        """Chains of kernels that could be fused, the longest in sum first."""
        return find_chains(self)

    @cached_property
    def replay(self) -> Replay:
        """The model that prices changes; ask `gain.replayable` before relying on it."""
        return Replay(self)

    @cached_property
    def graphs(self) -> GraphUse:
        """What was replayed from graphs, per step."""
        return GraphUse(self)

    @cached_property
    def communication(self) -> Communication:
        """How the time of collectives splits into waiting and transfer, where the recording tells."""
        return Communication(self)

    @cached_property
    def blocking(self) -> LaunchBlocking:
        """Launches that the host waits for one by one."""
        return LaunchBlocking(self)

    @cached_property
    def task_queues(self) -> dict[int, TaskQueue]:
        """Each device's idle gaps by the side of the task queue that came late."""
        return {number: TaskQueue(self, account) for number, account in self.idle.items()}

    @cached_property
    def floor(self) -> Floor:
        """The least time of each phase's steps, and MFU and MBU."""
        return Floor(self)

    # -- host --------------------------------------------------------------------------------------

    @cached_property
    def host_tracks(self) -> list[int]:
        """Tracks of host threads that recorded anything."""
        rows = map(self.timeline.track_rows, range(len(self.timeline.tracks)))
        return [
            i
            for i, (t, r) in enumerate(zip(self.timeline.tracks, rows, strict=True))
            if t.role == "host" and r.stop > r.start
        ]

    @cached_property
    def host(self) -> HostView:
        """The threads that execute operators, and the gaps between these."""
        return HostView(self)

    def segments(self, track: int) -> Segments:
        """The innermost-span segments of a host thread, computed once per thread.

        Where a thread has nothing recorded but labels, its stack samples stand in if it has any.
        """
        if track not in self._segments:
            own = flatten(self.timeline, track)
            samples = self.places.samples(track)
            if samples is not None and len(samples.row):
                own = filled(own, self.timeline.are_kind(own.row, Kind.ANNOTATION), samples)
            self._segments[track] = own
        return self._segments[track]

    @cached_property
    def is_sync(self) -> npt.NDArray[np.bool_]:
        """Runtime rows that make the host wait for the device. Shape (n,)."""
        return self.timeline.match_names(kinds.is_sync_call, Kind.RUNTIME)

    @cached_property
    def is_copy_call(self) -> npt.NDArray[np.bool_]:
        """Runtime rows that start or do a copy. Shape (n,)."""
        return self.timeline.match_names(kinds.is_copy_call, Kind.RUNTIME)

    @cached_property
    def is_launch(self) -> npt.NDArray[np.bool_]:
        """Host rows that started device work, by link, or that start kernels by their name. Shape (n,)."""
        linked = self.timeline.of_kind(Kind.RUNTIME)
        linked &= self._is_linked
        linked |= self.is_named_launch
        return linked

    @cached_property
    def _is_linked(self) -> npt.NDArray[np.bool_]:
        """Rows that others name as their launch. Shape (n,)."""
        launch = self.timeline.spans.launch_row
        linked = np.zeros(len(launch), bool)
        linked[launch[launch >= 0]] = True
        return linked

    def outermost(self, calls: npt.NDArray[np.intp], mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.intp]:
        """Those of some runtime rows that are not inside of another one of `mask`, which holds runtime rows alone."""
        outer = np.ones(len(calls), np.bool_)
        inner = np.flatnonzero(self._is_within[calls])
        parents = self.timeline.spans.parent[calls[inner]]
        outer[inner] = self.places.nearest(parents.astype(np.intp), mask) < 0
        return calls[outer]

    @cached_property
    def _is_within(self) -> npt.NDArray[np.bool_]:
        """Runtime rows that may be inside of another runtime row: few, and so not looked for one by one. Shape (n,)."""
        spans = self.timeline.spans
        if self.places.above is not spans.parent:
            return self.timeline.of_kind(Kind.RUNTIME)
        calls, within = self.timeline.rows(Kind.RUNTIME), np.zeros(len(spans), np.bool_)
        first = np.minimum(calls + 1, len(spans) - 1)  # what is below a row follows it
        within[calls[spans.parent[first] == calls]] = True
        within[self.places.below(within)] = True
        return within

    @cached_property
    def is_named_launch(self) -> npt.NDArray[np.bool_]:
        """Runtime rows that start kernels by their name. Shape (n,)."""
        return self.timeline.match_names(kinds.is_kernel_launch, Kind.RUNTIME)

    @cached_property
    def is_graph_launch(self) -> npt.NDArray[np.bool_]:
        """Runtime rows that replay a captured graph. Shape (n,)."""
        return self.timeline.match_names(kinds.is_graph_launch, Kind.RUNTIME)

    @cached_property
    def can_depend(self) -> bool:
        """Whether device work can wait for other device work: several streams or devices, or collectives."""
        tracks = kernels.distinct(self.timeline.spans.track[self.whole.rows])
        return len(tracks) > 1 or bool((self.whole.kind == Kind.COLLECTIVE).any())

    @cached_property
    def profiler_syncs(self) -> npt.NDArray[np.intp]:
        """Rows of synchronisations of the profiler, not the program: around its window, in nobody's code."""
        spans, out = self.timeline.spans, [np.zeros(0, np.intp)]
        syncs = np.flatnonzero(self.is_sync)
        around = self.places.nearest_where(
            syncs, lambda rows: self.timeline.are_kind(rows, Kind.PYTHON, Kind.OPERATOR)
        )
        syncs = syncs[around < 0]
        for track in kernels.distinct(spans.track[syncs]).tolist():
            mine, thread = syncs[spans.track[syncs] == track], self.timeline.track_rows(track)
            work = np.isin(spans.kind[thread], [int(k) for k in kinds.HOST_CALLS]) & ~self.is_sync[thread]
            if work.any():
                first = spans.start_ns[thread.start + int(np.argmax(work))]
                last = spans.start_ns[thread.stop - 1 - int(np.argmax(work[::-1]))]
                mine = mine[(spans.start_ns[mine] > last) | (spans.end_at(mine) <= first)]
            out.append(mine)
        return np.concatenate(out)

    @cached_property
    def is_wait(self) -> npt.NDArray[np.bool_]:
        """Runtime rows in which the program waits for the device (`waits.is_wait`). Shape (n,)."""
        return waits.is_wait(self)

    def copies_of(self, calls: npt.NDArray[np.intp]) -> tuple[Int64, Int64]:
        """What the copies that each of some calls (ascending) started, or waits for, took on the device, and how many
        bytes they moved, 0 where not told. Both of the shape of `calls`."""
        copies, waiter = self.copy_waiters
        at = np.searchsorted(calls, waiter)
        mine = np.append(calls, -1)[at] == waiter
        copies, at = copies[mine], at[mine]
        took, moved = np.zeros(len(calls), np.int64), np.zeros(len(calls), np.int64)
        np.add.at(took, at, self.timeline.spans.dur_ns[copies])
        np.add.at(moved, at, np.maximum(self.timeline.arg_ints_at("bytes", copies, 0), 0))
        return took, moved

    @cached_property
    def copy_waiters(self) -> tuple[npt.NDArray[np.intp], Int32]:
        """The copies that a known call started, ascending, and for each the host row that waits for it
        (`waits.copy_waiters`)."""
        return waits.copy_waiters(self)

    def worked_ns(self, track: int, view: DeviceView) -> int:
        """How long a thread worked while a device did (`backpressure.worked_ns`), added up once."""
        key = track, view.device
        if key not in self._worked:
            self._worked[key] = backpressure.worked_ns(self, track, view)
        return self._worked[key]

    @cached_property
    def is_host_work(self) -> npt.NDArray[np.bool_]:
        """Rows in which the host works and does not wait; False behind them for -1. Shape (n + 1,)."""
        out = np.zeros(len(self.timeline) + 1, np.bool_)
        out[:-1] = self.timeline.of_kind(*kinds.HOST_CALLS)
        for but in (self.is_wait, self.places.is_waiting):
            np.greater(out[:-1], but, out=out[:-1])
        return out

    def let_go_of_thread(self, track: int, view: DeviceView) -> None:
        """Drop the segments of a thread once a device's idle time is cut by them: what comes then needs the room."""
        self.worked_ns(track, view)  # is asked for in any case, and adds them up
        if not any(
            track in account.host_tracks for account in self.idle.values() if account.view is not view
        ):
            self._segments.pop(track, None)

    def let_go_of_threads(self) -> None:
        """Drop what is mostly asked for pieces of idle time, once those of all devices are made."""
        _ = self.pressure  # is asked for in any case, and adds up the segments that are left
        self.host_causes.let_go()
        self._segments.clear()
        self.__dict__.pop("is_host_work", None)

    def let_go(self) -> None:
        """Drop what only rules ask for, once they have: it is worked out again if anyone asks once more."""
        self._segments.clear()
        self._blocks.clear()
        for name in ("copy_waiters", "places", "host_causes", "idle_index", "place_codes"):
            self.__dict__.pop(name, None)

    def wait_blocks(self, track: int) -> waits.WaitBlocks:
        """The wait blocks of one host thread, computed once per thread."""
        if track not in self._blocks:
            self._blocks[track] = waits.wait_blocks(self, track)
        return self._blocks[track]

    @cached_property
    def places(self) -> Places:
        return Places(self.timeline)

    @cached_property
    def place_codes(self) -> PlaceCodes:
        """A number per place of a host row."""
        return PlaceCodes(self.timeline, self.places)

    @cached_property
    def host_causes(self) -> HostCauses:
        return HostCauses(self)

    @cached_property
    def overhead(self) -> IntervalSet:
        """When the profiler itself was at work."""
        rows = self.timeline.rows(Kind.OVERHEAD)
        spans = self.timeline.spans
        return intervals.union(spans.start_ns[rows], spans.end_at(rows))

    @cached_property
    def first_uses(self) -> npt.NDArray[np.bool_]:
        """Calls that launched the first kernel of a name. Shape (n,)."""
        return contention.first_uses(self)

    @cached_property
    def launches_work(self) -> npt.NDArray[np.bool_]:
        """Rows right above a launch (`contention.launches_work`). Shape (n,)."""
        return contention.launches_work(self)

    def python_time(self, track: int) -> IntervalSet:
        """When a thread was in Python code that runs, computed once per thread."""
        if track not in self._python_time:
            self._python_time[track] = contention.python_time(self, track)
        return self._python_time[track]

    def contention(self, track: int) -> IntervalSet:
        """When something kept a thread from running, computed once per thread."""
        if track not in self._contention:
            self._contention[track] = contention.stolen_time(self, track)
        return self._contention[track]

    def shape_codes(self, rows: npt.NDArray[np.intp]) -> Int32:
        """A number per distinct input shapes of some operators, -1 where none were recorded. Shape of `rows`."""
        for key in ("Input Dims", "Input dims", "Input Shapes"):
            if key in self.timeline.args.keys:
                return self.timeline.arg_values(key, rows)[0]
        return np.full(len(rows), -1, np.int32)

    def captures(self, track: int) -> IntervalSet:
        """When a thread recorded launches into a graph instead of running them.

        A thread that empties a task queue captures while the thread that fills it does.
        """
        tracks = self.timeline.tracks
        rows = self.timeline.track_rows(track)
        low, high = np.searchsorted(self.timeline.rows(Kind.QUEUE), [rows.start, rows.stop])
        if low == high:
            return self._own_captures(track)
        same = [t for t in self.host_tracks if tracks[t].process == tracks[track].process]
        sets = [self._own_captures(t) for t in same]
        return intervals.union(np.concatenate([s[0] for s in sets]), np.concatenate([s[1] for s in sets]))

    @cached_property
    def _capture_calls(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Rows of the calls that begin and that end a capture."""
        begins, ends = (
            self.timeline.named_rows(test, Kind.RUNTIME)
            for test in (hostwords.is_capture_begin, hostwords.is_capture_end)
        )
        return begins, ends

    def _own_captures(self, track: int) -> IntervalSet:
        if track not in self._captures:
            spans = self.timeline.spans
            rows = self.timeline.track_rows(track)
            begins, ends = (
                at[slice(*np.searchsorted(at, [rows.start, rows.stop]))] for at in self._capture_calls
            )
            if len(begins) == 0:
                return self._captures.setdefault(track, intervals.EMPTY)
            last = int(spans.end_at(rows).max())
            closes = np.append(spans.end_at(ends), last)
            start = spans.start_ns[begins]
            self._captures[track] = intervals.union(start, closes[np.searchsorted(closes, start)])
        return self._captures[track]

    @cached_property
    def is_capturing(self) -> npt.NDArray[np.bool_]:
        """Host rows inside of a capture on their thread. Shape (n,)."""
        out = np.zeros(len(self.timeline), bool)
        for track in self.host_tracks:
            rows = self.timeline.track_rows(track)
            start = self.timeline.spans.start_ns[rows]
            for low, high in zip(
                *(np.searchsorted(start, edge) for edge in self.captures(track)), strict=True
            ):
                out[rows.start + low : rows.start + high] = True
        return out

    @cached_property
    def lost_launches(self) -> npt.NDArray[np.intp]:
        """Rows that launched kernels by their name, outside of captures, but left no device record."""
        spans, used = self.timeline.spans, self._is_linked.copy()
        named: npt.NDArray[np.intp] = self.timeline.named_rows(kinds.is_kernel_launch, Kind.RUNTIME)
        named = named[~self.is_capturing[named]]
        # one launch may be told twice, by the runtime and by the driver below it
        linked = named[used[named]]
        up = kernels.distinct(spans.parent[linked[self._is_within[linked]]])
        while len(up := up[up >= 0]):
            used[up] = True
            up = kernels.distinct(spans.parent[up])
        rows = named[~used[named]]
        if len(rows) == 0:
            return rows
        mask = np.zeros(len(spans), bool)
        mask[named[used[named]]] = True
        rows = self.outermost(rows, mask)
        told = np.flatnonzero(used)
        told = told[self.timeline.are_kind(told, Kind.RUNTIME)]
        told = np.concatenate([told, self.timeline.device_work()])
        linked, ids = spans.ids_at("correlation", told), spans.ids_at("correlation", rows)
        lost: npt.NDArray[np.intp] = rows[kernels.join(linked, ids, NO_ID + 1) < 0]  # no id is one, too
        return lost

    @cached_property
    def host_span(self) -> tuple[int, int]:
        """First start and last end of program activity on any host thread; (0, 0) if there is none."""
        spans, begins, ends = self.timeline.spans, [], []
        counts = self.timeline.of_kind(*kinds.HOST_CALLS, Kind.ANNOTATION)
        for track in self.host_tracks:
            rows = self.timeline.track_rows(track)
            mine = counts[rows]
            if mine.any():
                begins.append(int(spans.start_ns[rows.start + int(np.argmax(mine))]))  # rows are by start
                for low in range(rows.start, rows.stop, _BLOCK):  # small enough to stay in the cache
                    part = slice(low, min(low + _BLOCK, rows.stop))
                    ends.append(int(np.max(spans.end_at(part), where=counts[part], initial=begins[-1])))
        return (min(begins), max(ends)) if begins else (0, 0)

    # -- steps -------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> list[Step]:
        return find_steps(self.timeline)

    @cached_property
    def step_of_row(self) -> npt.NDArray[np.signedinteger[Any]]:
        """The index into `steps` of each row's step, or -1. Shape (n,)."""
        return step_of_device_rows(self.timeline, self.steps)

    @cached_property
    def series(self) -> list[PhaseSeries]:
        """The steps of each phase in order, with their warm-up told apart."""
        return series(self.leading_steps, self._step_overhead)

    @cached_property
    def leading_steps(self) -> list[Step]:
        """The steps that are counted: of one rank, the first of those with most steps, since every rank goes through
        the same ones; and of those only the ones in which operators and kernels were recorded."""
        steps, tracks = self._recorded_steps, self.timeline.tracks
        of = [tracks[s.track].rank if s.track >= 0 else -1 for s in steps]
        if len(set(of)) < 2:
            return steps
        rank = max(sorted(set(of)), key=of.count)
        return [s for s, r in zip(steps, of, strict=True) if r == rank]

    @cached_property
    def _recorded_steps(self) -> list[Step]:
        """Steps inside of the windows of a recording that has some; marks are recorded between them, too."""
        windows = recorded_windows(self.session.facts)
        if windows is None:
            return self.steps
        start = np.array([s.start_ns for s in self.steps], np.int64)
        end = np.array([s.end_ns for s in self.steps], np.int64)
        inside = intervals.covered(windows, start, end) >= INSIDE * (end - start)
        return [s for s, known in zip(self.steps, inside.tolist(), strict=True) if known]

    def _step_overhead(self, steps: tuple[Step, ...]) -> Int64:
        """What of each step, up to the next one, its device was idle; without a device its length."""
        starts = np.array([s.start_ns for s in self.leading_steps], np.int64)
        begin = np.array([s.start_ns for s in steps], np.int64)
        if not self.idle:
            return np.array([s.dur_ns for s in steps], np.int64)
        ends = np.append(starts, np.iinfo(np.int64).max)
        end = ends[np.searchsorted(starts, begin, side="right")]
        best = np.zeros(len(steps), np.int64)
        for account in self.idle.values():
            host = np.flatnonzero(account.is_host)
            when, length = account.host_end_ns[host], account.view.gaps.dur_ns[host]
            total = np.concatenate([np.zeros(1, np.int64), np.cumsum(length)])
            out = total[np.searchsorted(when, end)] - total[np.searchsorted(when, begin)]
            best = out if int(out.sum()) > int(best.sum()) else best
        return best

    @cached_property
    def _warm_up(self) -> IntervalSet:
        """When warm-up steps ran, on the host clock; each reaches to the start of the step after it."""
        starts = np.array([s.start_ns for s in self.leading_steps], np.int64)
        begin, end = [], []
        for phase in self.series:
            for step in phase.steps[: phase.warm_up]:
                later = starts[starts > step.start_ns]
                begin.append(step.start_ns)
                end.append(max(step.end_ns, int(later[0]) if len(later) else step.end_ns))
        return intervals.union(np.array(begin, np.int64), np.array(end, np.int64))

    def is_steady(self, host_ns: Int64) -> npt.NDArray[np.bool_]:
        """Whether moments of host time are outside of warm-up steps. Shape of `host_ns`."""
        return ~intervals.contains(self._warm_up, host_ns)

    def steady_span_ns(self, view: DeviceView) -> int:
        """A device's span without the warm-up steps."""
        if view.device not in self._steady_spans:
            away = intervals.union(
                *(np.concatenate(x) for x in zip(self._warm_up, self.unrecorded, strict=True))
            )
            lost = intervals.length(intervals.clip(away, view.first_ns, view.last_ns))
            self._steady_spans[view.device] = view.span_ns - lost if view.span_ns else 0
        return self._steady_spans[view.device]

    @cached_property
    def unrecorded(self) -> IntervalSet:
        """Between the windows of a recording that has several."""
        windows = recorded_windows(self.session.facts)
        return intervals.EMPTY if windows is None else intervals.gaps(windows)

    @cached_property
    def span_ns(self) -> int:
        """The time operators and kernels were recorded, on the device's side or the host's, whichever is longer; at
        least 1. Python samples and marks of a session reach beyond its windows and do not count."""
        windows = recorded_windows(self.session.facts)
        first, last = self.whole.first_ns, self.whole.last_ns
        device = last - first - intervals.length(intervals.clip(self.unrecorded, first, last))
        start, end = self.host_span
        seen = intervals.length(intervals.clip(windows, start, end)) if windows is not None else 0
        return max(1, device, seen or end - start)

    def steady_steps(self, phase: str) -> int:
        """How many steps of a phase are no warm-up."""
        return next((len(s.steps) - s.warm_up for s in self.series if s.phase == phase), 0)

    def phase_at(self, host_ns: Int64) -> list[str]:
        """The phase of the step at each moment of host time; between two steps of one phase, that phase; else ""."""
        codes, names = self.phase_codes(host_ns)
        return [names[c] if c >= 0 else "" for c in codes.tolist()]

    def phase_of_most(self, host_ns: Int64) -> str:
        """The phase in which most of some moments of host time lie; of equally many the first by name."""
        phases = self.phase_at(host_ns)
        return max(sorted(set(phases)), key=phases.count, default="")

    def phase_codes(self, host_ns: Int64) -> tuple[npt.NDArray[np.intp], list[str]]:
        """`phase_at` as a code per moment (-1 none), shape of `host_ns`, and the phases they stand for."""
        if not self.steps:
            return np.full(len(host_ns), -1, np.intp), []
        names = sorted({s.phase for s in self.steps})
        starts = np.array([s.start_ns for s in self.steps], np.int64)
        ends = np.array([s.end_ns for s in self.steps], np.int64)
        code = np.array([-1, *(names.index(s.phase) for s in self.steps), -1], np.intp)
        at = np.searchsorted(starts, host_ns, side="right")
        before, after = code[at], code[at + 1]
        inside = (at > 0) & (host_ns < ends[np.maximum(at - 1, 0)])
        return np.where(inside | (before == after), before, -1), names

    def step_index(self, phase: PhaseSeries, host_ns: Int64) -> npt.NDArray[np.intp]:
        """The number within a phase of the step at each moment (up to the start of its next step), else -1."""
        starts = np.array([s.start_ns for s in self.leading_steps], np.int64)
        at = np.searchsorted(phase.start_ns, starts, side="right") - 1
        same = (at >= 0) & (starts == phase.start_ns[np.maximum(at, 0)])
        number = np.append(np.where(same, at, -1), -1)  # the last one is for what is before all steps
        return number[np.searchsorted(starts, host_ns, side="right") - 1]

    def idle_per_step(self, phase: PhaseSeries) -> Int64:
        """Idle time that the host caused in each step of a phase, on the device with most of it. Shape (k,)."""
        return self._step_overhead(phase.steps)

    @cached_property
    def stalls(self) -> list[Loss]:
        """Host stalls by place, the largest first; what HB101 looks at, without its limits."""
        found = []
        for number, account in self.idle.items():
            pace = self.pace[number]
            chosen = self.idle_index[number].of_any(*HOST_WORK, gaps=pace.is_stall)
            found.append(losses(self, account, chosen, pace.stall_places[account.pieces.gap[chosen]]))
        return [loss for loss, _ in widest(found)]

    @cached_property
    def step_set(self) -> IntervalSet:
        """When any step was open, on the host clock."""
        return intervals.union(
            np.array([s.start_ns for s in self.steps], np.int64),
            np.array([s.end_ns for s in self.steps], np.int64),
        )

    @cached_property
    def between_steps(self) -> IntervalSet:
        """The holes between the first and the last step."""
        return intervals.gaps(self.step_set)

    # -- naming a place ----------------------------------------------------------------------------

    def operator_of(self, row: int) -> int:
        """The innermost operator around a host row, or the operator that launched a device row; else -1."""
        spans = self.timeline.spans
        at = int(spans.launch_row[row]) if spans.launch_row[row] >= 0 else row
        return int(self.places.operator_of[at])

    def python_of(self, row: int) -> str:
        """The Python frame around a host row, or around the launch of a device row (`Places.user_frames`), or ""."""
        spans = self.timeline.spans
        at = int(spans.launch_row[row]) if spans.launch_row[row] >= 0 else row
        return self.places.place(at).python


__all__ = ["NEEDS_TEXT", "Int64", "Run", "is_user_frame"]
