"""What each device did: interval sets of its four classes of work, its idle gaps, and who ended them.

Definitions. Busy is the union of kernels, collectives, copies and memsets; idle is (last end - first
start) - busy, so time before the first and after the last device event is nobody's idle time. A gap is
classed by the device event that ends it:

    host                       its launch call began after the gap began
    queued_short / queued_long launched before the gap began; shorter than / at least 30 us
    launched_before_recording  no launch record, and its correlation id is below the first linked one
    unknown                    no launch record
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt

from stallscope.profiler import intervals, kernels
from stallscope.profiler.ids import NO_ID, TEXT_ID_BASE
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.kinds import DEVICE_WORK, Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Int32, Int64, Timeline

QUEUED_SHORT_NS = 30_000
"""Below this a queued gap is launch and scheduling latency, above it waits for another stream or event."""

GAP_CLASSES = ("host", "queued_short", "queued_long", "launched_before_recording", "unknown")
HOST, QUEUED_SHORT, QUEUED_LONG, BEFORE_RECORDING, UNKNOWN = range(5)

ALL_DEVICES = -1


@dataclass(frozen=True)
class Gaps:
    """The idle gaps of a device, by start; columns of shape (g,).

    `ended_by` is the row of the device event that ends the gap, `launch` the row of its launch call or
    -1, `gap_class` an index into GAP_CLASSES.
    """

    start_ns: Int64
    end_ns: Int64
    ended_by: Int32
    launch: Int32
    gap_class: npt.NDArray[np.int8]

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def dur_ns(self) -> Int64:
        return self.end_ns - self.start_ns

    def totals(self) -> dict[str, int]:
        """Idle nanoseconds per class; they sum to the idle time exactly."""
        sums = np.zeros(len(GAP_CLASSES), np.int64)
        np.add.at(sums, self.gap_class, self.dur_ns)
        return {name: int(sums[i]) for i, name in enumerate(GAP_CLASSES)}

    def counts(self) -> dict[str, int]:
        """Number of gaps per class."""
        found = np.bincount(self.gap_class, minlength=len(GAP_CLASSES))
        return {name: int(found[i]) for i, name in enumerate(GAP_CLASSES)}


class DeviceView:
    """The work of one device, or of all of them together (`device` = ALL_DEVICES)."""

    def __init__(self, timeline: Timeline, device: int, rows: npt.NDArray[np.intp]) -> None:
        self.timeline = timeline
        self.device = device
        starts = timeline.spans.start_ns[rows]
        order = np.argsort(starts, kind="stable")
        self.rows = rows[order]
        """Rows of device work, by start."""
        self.start_ns = starts[order]
        self.end_ns = self.start_ns + timeline.spans.dur_ns[self.rows]
        self.kind = timeline.spans.kind[self.rows]

    def _set(self, *kinds: Kind) -> IntervalSet:
        mine = np.zeros(len(self.kind), np.bool_)
        for kind in kinds:
            mine |= self.kind == np.int8(kind)
        return intervals.union(self.start_ns[mine], self.end_ns[mine])

    @cached_property
    def busy(self) -> IntervalSet:
        return intervals.union(self.start_ns, self.end_ns)

    @cached_property
    def compute(self) -> IntervalSet:
        return self._set(Kind.KERNEL)

    @cached_property
    def collective(self) -> IntervalSet:
        return self._set(Kind.COLLECTIVE)

    @cached_property
    def memcpy(self) -> IntervalSet:
        return self._set(Kind.MEMCPY)

    @cached_property
    def memset(self) -> IntervalSet:
        return self._set(Kind.MEMSET)

    @cached_property
    def exposed_collective(self) -> IntervalSet:
        """Communication that no kernel or memset runs beside."""
        if len(self.collective[0]) == 0:
            return intervals.EMPTY
        return intervals.subtract(intervals.subtract(self.collective, self.compute), self.memset)

    @cached_property
    def exposed_memcpy(self) -> IntervalSet:
        """Copies that nothing else runs beside."""
        if len(self.memcpy[0]) == 0:
            return intervals.EMPTY
        rest = intervals.subtract(intervals.subtract(self.memcpy, self.compute), self.memset)
        return intervals.subtract(rest, self.collective)

    @cached_property
    def first_ns(self) -> int:
        return int(self.start_ns[0]) if len(self.rows) else 0

    @cached_property
    def last_ns(self) -> int:
        return int(self.end_ns.max()) if len(self.rows) else 0

    @property
    def span_ns(self) -> int:
        return self.last_ns - self.first_ns

    @cached_property
    def busy_ns(self) -> int:
        return intervals.length(self.busy)

    @property
    def idle_ns(self) -> int:
        return self.span_ns - self.busy_ns

    @cached_property
    def gaps(self) -> Gaps:
        starts, ends = self._holes()
        # of several events that start as the gap ends, the first in timeline order ended it
        ended_by = self.rows[np.searchsorted(self.start_ns, ends, side="left")]
        launch = self.timeline.spans.launch_row[ended_by]
        return Gaps(
            starts, ends, ended_by.astype(np.int32), launch, self._classes(starts, ends, ended_by, launch)
        )

    def _holes(self) -> IntervalSet:
        """Gaps in the busy set; a zero-length event inside a gap (an empty kernel) splits it."""
        starts, ends = intervals.gaps(self.busy)
        points = self.start_ns[self.start_ns == self.end_ns]
        if len(self.rows) and len(self.busy[0]):
            # a point before the first or after the last busy interval bounds the span as well
            bounds = np.array([self.first_ns, self.last_ns], np.int64)
            points = kernels.distinct(np.concatenate([points, bounds]))
            starts = np.concatenate([bounds[:1], starts, self.busy[1][-1:]])
            ends = np.concatenate([self.busy[0][:1], ends, bounds[1:]])
            keep = ends > starts
            starts, ends = starts[keep], ends[keep]
        inside = points[_strictly_inside(points, starts, ends)]
        if len(inside) == 0:
            return starts, ends
        return np.sort(np.concatenate([starts, inside])), np.sort(np.concatenate([ends, inside]))

    def _classes(
        self, starts: Int64, ends: Int64, ended_by: npt.NDArray[np.intp], launch: Int32
    ) -> npt.NDArray[np.int8]:
        spans = self.timeline.spans
        out = np.full(len(starts), UNKNOWN, np.int8)
        linked = launch >= 0
        began = spans.start_ns[np.maximum(launch, 0)]
        out[linked] = np.where(ends[linked] - starts[linked] < QUEUED_SHORT_NS, QUEUED_SHORT, QUEUED_LONG)
        out[linked & (began > starts)] = HOST
        lost = np.flatnonzero(~linked)
        if len(lost):
            ids = spans.ids_at("correlation", ended_by[lost])
            plain = (ids > TEXT_ID_BASE) & (ids != NO_ID)
            out[lost[plain & (ids < self._first_linked_id())]] = BEFORE_RECORDING
        return out

    def _first_linked_id(self) -> int:
        spans = self.timeline.spans
        ids = spans.ids_at("correlation", self.rows[spans.launch_row[self.rows] >= 0])
        ids = ids[(ids > TEXT_ID_BASE) & (ids != NO_ID)]
        return int(ids.min()) if len(ids) else -(1 << 62)


def _strictly_inside(points: Int64, starts: Int64, ends: Int64) -> npt.NDArray[np.bool_]:
    if len(starts) == 0 or len(points) == 0:
        return np.zeros(len(points), bool)
    at = np.searchsorted(starts, points, side="left") - 1
    return (at >= 0) & (points > starts[np.maximum(at, 0)]) & (points < ends[np.maximum(at, 0)])


def device_views(timeline: Timeline, whole: DeviceView | None = None) -> dict[int, DeviceView]:
    """One view per device that did any work, by device number; ranks of a merged trace stay apart.

    Devices of different processes with one number (every rank has a device 0) are told apart by rank:
    the key is then rank * 1000 + device. `whole` is the view of all of them, if there is one: it has them in order.
    """
    rows = timeline.device_work() if whole is None else whole.rows
    if len(rows) == 0:
        return {}
    keys = device_keys(timeline)
    of_row = keys[timeline.spans.track[rows]]
    return {int(d): DeviceView(timeline, int(d), rows[of_row == d]) for d in kernels.distinct(of_row)}


def device_keys(timeline: Timeline) -> Int64:
    """The key in `device_views` of what runs on each track. Shape (tracks,), at least 1."""
    ranks = {t.rank for t in timeline.tracks if t.role == "device"}
    many = len(ranks) > 1
    return np.array(
        [max(t.device, 0) + (1000 * max(t.rank, 0) if many else 0) for t in timeline.tracks] or [0], np.int64
    )


def rank_labels(timeline: Timeline) -> dict[int, str]:
    """What to call the devices of several ranks ("rank 1 device 0"), by the keys of `device_views`; empty for one."""
    tracks = [t for t in timeline.tracks if t.role == "device"]
    if len({t.rank for t in tracks}) < 2:
        return {}
    keys = device_keys(timeline)
    return {
        int(keys[i]): f"rank {max(t.rank, 0)} device {max(t.device, 0)}"
        for i, t in enumerate(timeline.tracks)
        if t.role == "device"
    }


def whole_view(timeline: Timeline) -> DeviceView:
    """All devices as one: unions over everything."""
    return DeviceView(timeline, ALL_DEVICES, timeline.device_work())


__all__ = [
    "ALL_DEVICES",
    "DEVICE_WORK",
    "GAP_CLASSES",
    "DeviceView",
    "Gaps",
    "device_keys",
    "device_views",
    "rank_labels",
    "whole_view",
]
