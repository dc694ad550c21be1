"""What a moment of host time is to be counted as: which `Cause` the innermost span of a thread stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers import hostwords
from stallscope.analyzers.idle import Cause
from stallscope.profiler import intervals
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.kinds import Kind
from stallscope.profiler.timeline import Bool, Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]


FIRST_USE_NS = 500_000
"""A kernel's first launch that takes this long, and this many times the usual launch, loads its code. Of public
traces (PyTorch on MI250, MI300X, V100 and A100) every launch that the device idled for a millisecond or more was one."""
FIRST_USE_RATIO = 50

SCHEDULING_DEPTH = 4
"""How many user frames up a scheduler's helper may be; its main loop is above everything and says nothing."""


class HostCauses:
    """Classes moments of each host thread. One object per run; what is per thread is kept."""

    def __init__(self, run: Run) -> None:
        self.run = run
        timeline, kind = run.timeline, run.timeline.spans.kind
        code = (
            (kind == Kind.PYTHON) | (kind == Kind.OPERATOR) | (kind == Kind.ANNOTATION) | (kind == Kind.OTHER)
        )
        self.is_gc = code & timeline.match_names(hostwords.is_garbage_collection)
        self.is_compile = code & timeline.match_names(hostwords.is_compilation)
        self.is_scheduling = code & timeline.match_names(hostwords.is_scheduling)
        runtime = timeline.of_kind(Kind.RUNTIME)
        self.is_compile |= timeline.match_names(hostwords.is_compile_call, runtime)
        self.is_compile &= ~self._found_compiled(runtime)
        self.loads_code = self._loads_code(runtime)
        self.is_compile |= self.loads_code
        self.is_allocator = timeline.match_names(hostwords.is_allocator_call, runtime)
        self._sets: dict[tuple[str, int], IntervalSet] = {}

    def _found_compiled(self, runtime: Bool) -> Bool:
        """Calls that compile an operator and run it (CANN), in which compiling took less than half of the time: the
        operator was in the cache, and the call is a slow way to launch it. Shape (n,)."""
        spans, timeline = self.run.timeline.spans, self.run.timeline
        calls = timeline.match_names(hostwords.compiles_and_runs, runtime)
        inner = np.flatnonzero(timeline.match_names(hostwords.is_operator_compilation, runtime))
        if len(inner) == 0:
            return np.zeros(len(spans), bool)
        call = self.run.places.nearest(spans.parent[inner].astype(np.intp), calls)
        inner, call = inner[call >= 0], call[call >= 0]
        took = np.zeros(len(spans), np.int64)
        np.add.at(took, call, spans.dur_ns[inner])
        found = np.zeros(len(spans), bool)
        found[call] = True
        return np.asarray(found & (2 * took < spans.dur_ns), np.bool_)

    def _loads_code(self, runtime: Bool) -> Bool:
        """First launches of a kernel that took so long that the driver must have loaded its code in them. Shape (n,)."""
        run, spans = self.run, self.run.timeline.spans
        launched = np.zeros(len(spans), bool)
        rows = run.timeline.rows(Kind.KERNEL)
        launched[spans.launch_row[rows][spans.launch_row[rows] >= 0]] = True
        launched &= runtime & ~run.is_graph_launch
        usual = float(np.median(spans.dur_ns[launched])) if launched.any() else 0.0
        long = spans.dur_ns >= max(FIRST_USE_NS, FIRST_USE_RATIO * usual)
        return np.asarray(launched & run.first_uses & long, np.bool_)

    def borders(self, track: int) -> Int64:
        """Times at which the class may change without a span of the thread beginning or ending."""
        sets = (
            self.run.overhead,
            self.set_of("gc", track),
            self.run.contention(track),
            self.run.between_steps,
        )
        return np.concatenate([np.concatenate(s) for s in sets])

    def set_of(self, what: str, track: int) -> IntervalSet:
        """When the thread compiled (or captured), or any thread of its process collected garbage."""
        key = (what, track)
        if key not in self._sets:
            spans, tracks = self.run.timeline.spans, self.run.timeline.tracks
            mask = {"gc": self.is_gc, "compile": self.is_compile}[what]
            rows = np.flatnonzero(mask)
            if what == "gc":
                process = tracks[track].process
                rows = rows[[tracks[int(t)].process == process for t in spans.track[rows]]]
            else:
                rows = rows[spans.track[rows] == track]
            found = intervals.union(spans.start_ns[rows], spans.end_ns[rows])
            if what == "compile":
                found = _joined(found, self.run.captures(track))
            self._sets[key] = found
        return self._sets[key]

    def __call__(self, track: int, row: Rows, begin: Int64, until: Int64) -> npt.NDArray[np.int8]:
        """The cause of each piece [begin, until) owned by `row` (-1: nothing recorded). Shape (p,)."""
        run, places = self.run, self.run.places
        r = np.maximum(row, 0)
        kind = np.where(row >= 0, run.timeline.spans.kind[r], -1)
        cause = np.full(len(row), int(Cause.UNRECORDED), np.int8)
        labels = np.isin(kind, [int(Kind.PYTHON), int(Kind.ANNOTATION)])
        cause[labels & (places.nearest(row, places.is_python) >= 0)] = Cause.PYTHON
        cause[np.isin(kind, [int(Kind.OPERATOR), int(Kind.QUEUE), int(Kind.OTHER)])] = Cause.DISPATCH
        cause[kind == int(Kind.RUNTIME)] = Cause.LAUNCH_PATH
        waits = (row >= 0) & run.is_wait[r]
        cause[waits] = np.where(run.is_copy_call[r[waits]], int(Cause.BLOCKING_COPY), int(Cause.SYNC))
        cause[self._between(row, begin)] = Cause.SCHEDULER
        cause[(places.nearest(row, self.is_allocator) >= 0)] = Cause.ALLOCATOR
        middle = begin + (until - begin) // 2
        for found, name in (
            (run.contention(track), Cause.CONTENTION),
            (self.set_of("compile", track), Cause.COMPILE),
            (self.set_of("gc", track), Cause.GARBAGE_COLLECTION),
            (run.overhead, Cause.PROFILER),
        ):
            cause[intervals.contains(found, middle)] = name
        return cause

    def _between(self, row: Rows, begin: Int64) -> Bool:
        """Pieces between steps in which the thread scheduled, or waited for work to come."""
        run, places = self.run, self.run.places
        outside = intervals.contains(run.between_steps, begin) if run.steps else np.ones(len(row), bool)
        waiting = (row >= 0) & places.is_waiting[np.maximum(row, 0)]
        if not run.steps:
            return waiting
        return outside & (waiting | self._schedules(row))

    def _schedules(self, row: Rows) -> Bool:
        """Whether the nearest user frames (or, without frames, the nearest ranges) name scheduling."""
        places, parent = self.run.places, self.run.timeline.spans.parent
        out = np.zeros(len(row), bool)
        at = places.nearest(row, places.is_user)
        at = np.where(at >= 0, at, places.annotations(row))
        for _ in range(SCHEDULING_DEPTH):
            out |= (at >= 0) & self.is_scheduling[np.maximum(at, 0)]
            up = np.where(at >= 0, parent[np.maximum(at, 0)], -1)
            at = places.nearest(up, places.is_user | places.is_annotation)
        return out


def _joined(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    return intervals.union(np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]]))
