"""What a moment of host time is to be counted as: which `Cause` the innermost span of a thread stands for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers import hostwords
from stallscope.analyzers.idle import Cause
from stallscope.profiler import intervals, kernels
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.kinds import Kind
from stallscope.profiler.timeline import Bool, Int32, Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]


FIRST_USE_NS = 500_000
"""A kernel's first launch that takes this long, and this many times the usual launch, loads its code. Of public
traces (PyTorch on MI250, MI300X, V100 and A100) every launch that the device idled for a millisecond or more was one."""
FIRST_USE_RATIO = 50

_CAUSE_OF_KIND = np.full(len(Kind), int(Cause.UNRECORDED), np.int8)
_CAUSE_OF_KIND[Kind.PYTHON] = Cause.PYTHON
_CAUSE_OF_KIND[[Kind.OPERATOR, Kind.QUEUE, Kind.OTHER]] = Cause.DISPATCH
_CAUSE_OF_KIND[Kind.RUNTIME] = Cause.LAUNCH_PATH

SCHEDULING_DEPTH = 4
"""How many user frames up a scheduler's helper may be; its main loop is above everything and says nothing."""


class HostCauses:
    """Classes moments of each host thread. One object per run; what is per thread is kept."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.collects = run.places.telling(hostwords.is_garbage_collection)
        self.schedules = run.places.telling(hostwords.is_scheduling)
        self.is_compile = np.zeros(len(run.timeline), np.bool_)
        self.is_compile[run.places.telling(hostwords.is_compilation)] = True
        timeline = run.timeline
        self.is_compile[timeline.named_rows(hostwords.is_compile_call, Kind.RUNTIME)] = True
        self.is_compile[self._found_compiled()] = False
        self.loads_code = self._loads_code()
        self.is_compile |= self.loads_code
        self.is_allocator = timeline.match_names(hostwords.is_allocator_call, Kind.RUNTIME)
        self._sets: dict[tuple[str, int], IntervalSet] = {}

    def _found_compiled(self) -> Rows:
        """Calls that compile an operator and run it (CANN), in which compiling took less than half of the time: the
        operator was in the cache, and the call is a slow way to launch it."""
        spans, timeline = self.run.timeline.spans, self.run.timeline
        inner = timeline.named_rows(hostwords.is_operator_compilation, Kind.RUNTIME)
        if len(inner) == 0:
            return np.zeros(0, np.intp)
        calls = timeline.match_names(hostwords.compiles_and_runs, Kind.RUNTIME)
        call = self.run.places.nearest(spans.parent[inner].astype(np.intp), calls)
        inner, call = inner[call >= 0], call[call >= 0]
        code, first = kernels.group(call)
        found: Rows = call[first]
        return found[2 * kernels.sums(code, spans.dur_ns[inner], len(first)) < spans.dur_ns[found]]

    def _loads_code(self) -> Bool:
        """First launches of a kernel that took so long that the driver must have loaded its code in them. Shape (n,)."""
        run, spans = self.run, self.run.timeline.spans
        launched = spans.launch_row[run.timeline.rows(Kind.KERNEL)]
        launched = kernels.distinct(launched[launched >= 0])
        launched = launched[run.timeline.are_kind(launched, Kind.RUNTIME) & ~run.is_graph_launch[launched]]
        took = spans.dur_ns[launched]
        usual = float(np.median(took)) if len(took) else 0.0
        long = launched[took >= max(FIRST_USE_NS, FIRST_USE_RATIO * usual)]
        found = np.zeros(len(spans), np.bool_)
        found[long[run.first_uses[long]]] = True
        return found

    def let_go(self) -> None:
        """Drop what is only asked for pieces of idle time, once these are made. Worked out again if anyone asks."""
        self.__dict__.pop("_may_schedule", None)

    def borders(self, track: int) -> Int64:
        """Times at which the class may change without a span of the thread beginning or ending."""
        sets = (
            self.run.overhead,
            self.set_of("gc", track),
            self.run.captures(track),
            self.run.contention(track),
            self.run.between_steps,
        )
        return np.concatenate([np.concatenate(s) for s in sets])

    def set_of(self, what: str, track: int) -> IntervalSet:
        """When the thread compiled (or captured), or any thread of its process collected garbage."""
        key = (what, track)
        if key not in self._sets:
            spans, tracks = self.run.timeline.spans, self.run.timeline.tracks
            rows = self.collects if what == "gc" else np.flatnonzero(self.is_compile)
            if what == "gc":
                process = tracks[track].process
                rows = rows[[tracks[int(t)].process == process for t in spans.track[rows]]]
            else:
                rows = rows[spans.track[rows] == track]
            found = intervals.union(spans.start_ns[rows], spans.end_at(rows))
            if what == "compile":
                found = _joined(found, self.run.captures(track))
            self._sets[key] = found
        return self._sets[key]

    def __call__(self, track: int, row: Int32, begin: Int64, until: Int64) -> npt.NDArray[np.int8]:
        """The cause of each piece [begin, until) owned by `row` (-1: nothing recorded). Pieces are disjoint and come
        in order of time. Shape (p,)."""
        run = self.run
        cause: npt.NDArray[np.int8] = kernels.mapped(self._of_row, row)
        between = self._between(row, begin, until)
        # memory that is taken meanwhile stays the allocator's
        cause[between[cause[between] != np.int8(Cause.ALLOCATOR)]] = Cause.SCHEDULER
        for found, name in (
            (run.contention(track), Cause.CONTENTION),
            (self.set_of("compile", track), Cause.COMPILE),
            (self.set_of("gc", track), Cause.GARBAGE_COLLECTION),
            (run.overhead, Cause.PROFILER),
        ):
            if len(found[0]):
                cause[_middle_inside(found, begin, until)] = name
        return cause

    @cached_property
    def _of_row(self) -> npt.NDArray[np.int8]:
        """What time owned by each row stands for as far as the row alone tells; the last one is for time without a
        row. Shape (n + 1,)."""
        run, places, spans = self.run, self.run.places, self.run.timeline.spans
        cause = np.empty(len(spans) + 1, np.int8)
        kernels.mapped(_CAUSE_OF_KIND, spans.kind, cause[:-1])
        cause[-1] = Cause.UNRECORDED
        labels = run.timeline.rows(Kind.ANNOTATION)
        cause[labels[places.nearest(labels, places.is_python) >= 0]] = Cause.PYTHON
        waits = np.flatnonzero(run.is_wait)
        cause[waits] = np.where(run.is_copy_call[waits], int(Cause.BLOCKING_COPY), int(Cause.SYNC))
        if not run.steps:
            cause[np.flatnonzero(places.is_waiting)] = Cause.SCHEDULER
        cause[places.below(self.is_allocator)] = Cause.ALLOCATOR
        return cause

    @cached_property
    def alike(self) -> Int32:
        """A number per row, the same where moments of two rows say the same between two borders: Python code of one
        place, all of it compiling or none. Less than 0 for all else, of which each row counts: calls, and what may be
        the scheduler's. Shape (n,)."""
        run = self.run
        alone = self._of_row[:-1] != np.int8(Cause.PYTHON)
        if run.steps:
            alone |= self._may_schedule
        return run.place_codes.labels(run.places.below(self.is_compile), alone)

    def _between(self, row: Int32, begin: Int64, until: Int64) -> Rows:
        """Pieces between steps in which the thread scheduled, or waited for work to come: their indices."""
        run = self.run
        if not run.steps:
            return np.zeros(0, np.intp)
        low, high = (np.searchsorted(begin, edge) for edge in run.between_steps)
        outside = np.flatnonzero(_marked(low, high, len(begin)))
        owned = row[outside]
        found: Rows = outside[(owned >= 0) & self._may_schedule[owned]]
        return found

    @cached_property
    def _may_schedule(self) -> Bool:
        """Rows that wait for work to come, or whose nearest user frames (or, without frames, the nearest ranges) name
        scheduling. Shape (n,)."""
        places, parent = self.run.places, self.run.timeline.spans.parent
        asked = self.schedules
        if not (places.is_user[asked] | places.is_annotation[asked]).any():
            return places.is_waiting
        scheduling = np.zeros(len(parent), np.bool_)
        scheduling[asked] = True
        named = places.is_user | places.is_annotation
        rows = np.flatnonzero(named)
        above = kernels.inherited(places.above, named)[parent[rows]]
        schedules = np.zeros(len(parent) + 1, np.bool_)  # the last is what -1 finds
        own = schedules[rows] = scheduling[rows]
        for _ in range(SCHEDULING_DEPTH - 1):
            schedules[rows] = own | schedules[above]
        user = kernels.inherited(places.above, places.is_user)
        label = kernels.inherited(places.above, places.is_annotation)
        found: Bool = kernels.mapped(schedules, np.where(user >= 0, user, label)[:-1])
        found |= places.is_waiting
        return found


def _joined(a: IntervalSet, b: IntervalSet) -> IntervalSet:
    return intervals.union(np.concatenate([a[0], b[0]]), np.concatenate([a[1], b[1]]))


def _middle_inside(found: IntervalSet, begin: Int64, until: Int64) -> Bool:
    """Whether the middle of each piece lies inside of a set. Pieces are disjoint and in order, so are their middles:
    the edges of the set, which are fewer, are looked for among them. Shape (p,)."""
    if len(begin) == 0:
        return np.zeros(0, np.bool_)
    edges = []
    for edge in found:
        at = np.searchsorted(begin, edge)
        before = np.maximum(at - 1, 0)
        middle = begin[before] + (until[before] - begin[before]) // 2
        edges.append(at - ((at > 0) & (middle >= edge)))
    return _marked(edges[0], edges[1], len(begin))


def _marked(low: Rows, high: Rows, count: int) -> Bool:
    """Which of `count` items lie in any of the disjoint ranges [low, high), which come in order. Shape (count,)."""
    some = high > low
    change = np.zeros(count + 1, np.int8)
    change[low[some]] += 1  # a range begins where another ends, but no two begin at one item
    change[high[some]] -= 1
    return np.cumsum(change[:-1], dtype=np.int8).view(np.bool_)
