"""How far the host is ahead of the device: queue depth, launch-to-start delay, and who waits for whom.

TKLQT (SKIP, arXiv 2504.11750) is the sum of kernel start minus launch start; per launch it is a few microseconds
while the host is the slower side, and grows without bound once the device is. Host-device balance follows TaxBreak
(arXiv 2603.12465): device work over device work plus the launching threads' own work; 1 is all device.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stallscope.profiler import intervals, kernels
from stallscope.profiler.device import DeviceView
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

LONG_LAUNCH = 10
"""A launch call this many times its median, while the device is busy, waits for room in the queue."""
LANE_POINTS = 2000
"""Points of a lane at most; a longer one keeps the highest value of each slice of time."""
_BLOCK = 1 << 16
AHEAD = 10
"""The device is the slower side if launches wait this many median kernels in the queue."""


@dataclass(frozen=True)
class Pressure:
    """One device. Times in nanoseconds; `launch_ns` and `delay_ns` have one entry per launch, by launch time."""

    device: int
    launch_ns: Int64
    start_ns: Int64
    median_kernel_ns: int
    busy_share: float
    long_launches: int
    long_launch_ns: int
    waited_busy_ns: int
    balance: float

    @property
    def delay_ns(self) -> Int64:
        """From the start of the launch call to the start of its first work; never negative."""
        return np.asarray(np.maximum(self.start_ns - self.launch_ns, 0), np.int64)

    @property
    def median_delay_ns(self) -> int:
        return int(np.median(self.delay_ns)) if len(self.launch_ns) else 0

    @property
    def tklqt_ns(self) -> int:
        return int(self.delay_ns.sum())

    @property
    def device_bound(self) -> bool:
        """Whether the host is so far ahead that it waits for the device and not the other way round."""
        ahead = self.median_delay_ns > AHEAD * max(self.median_kernel_ns, 1)
        return self.busy_share >= 0.9 and (ahead or self.long_launches > 0 or self.waited_busy_ns > 0)

    @cached_property
    def depth(self) -> tuple[Int64, Int64]:
        """Times at which the number of launches in the queue changes, and that number from then on."""
        times = np.concatenate([self.launch_ns, np.maximum(self.start_ns, self.launch_ns)])
        step = np.concatenate(
            [np.ones(len(self.launch_ns), np.int64), -np.ones(len(self.launch_ns), np.int64)]
        )
        order = np.lexsort((-step, times))
        return times[order], np.cumsum(step[order])


def pressure(run: Run, view: DeviceView) -> Pressure:
    """Measure one device."""
    spans = run.timeline.spans
    launch = spans.launch_row[view.rows].astype(np.intp)
    linked = launch >= 0
    # of a launch that starts many kernels (a graph) the first one counts
    calls, first = np.unique(launch[linked], return_index=True)
    starts = view.start_ns[linked][first]
    begin = spans.start_ns[calls]
    order = np.argsort(begin, kind="stable")
    calls, starts, begin = calls[order], starts[order], begin[order]
    length = spans.dur_ns[calls]
    usual = float(np.median(length)) if len(calls) else 0.0
    long = length > LONG_LAUNCH * max(usual, 1.0)
    if long.any():
        inside = intervals.covered(view.busy, begin[long], begin[long] + length[long])
        long[long] = inside >= 0.9 * length[long]
    kernels = view.end_ns - view.start_ns
    return Pressure(
        device=view.device,
        launch_ns=begin,
        start_ns=starts,
        median_kernel_ns=int(np.median(kernels)) if len(kernels) else 0,
        busy_share=view.busy_ns / view.span_ns if view.span_ns else 0.0,
        long_launches=int(long.sum()),
        long_launch_ns=int(length[long].sum()),
        waited_busy_ns=_waited(run, view, calls),
        balance=_balance(run, view, calls),
    )


def _waited(run: Run, view: DeviceView, calls: Any) -> int:
    """What the launching threads waited for the device while it was busy."""
    total = 0
    for track in kernels.distinct(run.timeline.spans.track[calls]).tolist():
        rows = run.timeline.track_rows(track)
        waits = rows.start + np.flatnonzero(run.is_wait[rows])
        spans = run.timeline.spans
        total += int(intervals.covered(view.busy, spans.start_ns[waits], spans.end_at(waits)).sum())
    return total


def _balance(run: Run, view: DeviceView, calls: Any) -> float:
    """Device work over device work plus the launching threads' work that is no wait."""
    tracks = kernels.distinct(run.timeline.spans.track[calls]).tolist()
    work = max((run.worked_ns(track, view) for track in tracks), default=0)
    return view.busy_ns / (view.busy_ns + work) if view.busy_ns + work else 0.0


def worked_ns(run: Run, track: int, view: DeviceView) -> int:
    """How long a thread did what is no wait, from a device's first work to its last."""
    segments, works, total = run.segments(track), run.is_host_work, 0
    low = int(np.searchsorted(segments.end_ns, view.first_ns, side="right"))
    high = int(np.searchsorted(segments.start_ns, view.last_ns))
    for at in range(low, high, _BLOCK):  # small enough to stay in the cache
        part = slice(at, min(at + _BLOCK, high))
        took = segments.end_ns[part] - segments.start_ns[part]
        total += int(took.dot(kernels.mapped(works, segments.row[part])))
    if high > low:  # only the first and the last one stick out
        total -= int(works[segments.row[low]]) * max(view.first_ns - int(segments.start_ns[low]), 0)
        total -= int(works[segments.row[high - 1]]) * max(int(segments.end_ns[high - 1]) - view.last_ns, 0)
    return total


def table(run: Run) -> list[dict[str, Any]]:
    """One row per device with linked launches."""
    rows = []
    for found in run.pressure.values():
        if len(found.launch_ns) == 0:
            continue
        _, depth = found.depth
        rows.append(
            {
                "device": found.device,
                "launches": len(found.launch_ns),
                "median_delay_ns": found.median_delay_ns,
                "p99_delay_ns": int(kernels.quantile(found.delay_ns, 0.99)),
                "tklqt_ns": found.tklqt_ns,
                "median_kernel_ns": found.median_kernel_ns,
                "max_queue_depth": int(depth.max()),
                "median_queue_depth": int(np.median(depth)),
                "long_launches": found.long_launches,
                "long_launch_ns": found.long_launch_ns,
                "waited_while_busy_ns": found.waited_busy_ns,
                "host_device_balance": round(found.balance, 4),
                "device_bound": found.device_bound,
            }
        )
    return rows


def lanes(run: Run) -> list[dict[str, Any]]:
    """Queue depth and launch delay over time: rows of device, lane, time and value, thinned to LANE_POINTS each."""
    rows = []
    for found in run.pressure.values():
        if len(found.launch_ns) == 0:
            continue
        for name, (times, values) in {
            "queue_depth": found.depth,
            "launch_delay_ns": (found.launch_ns, found.delay_ns),
        }.items():
            for time, value in zip(*_thin(times, values), strict=True):
                rows.append({"device": found.device, "lane": name, "time_ns": int(time), "value": int(value)})
    return rows


def _thin(times: Int64, values: Int64) -> tuple[Int64, Int64]:
    """At most LANE_POINTS points: of each slice of time the one with the highest value."""
    if len(times) <= LANE_POINTS:
        return times, values
    first, last = int(times[0]), int(times[-1])
    slot = (times - first) * (LANE_POINTS - 1) // max(last - first, 1)
    heads = np.flatnonzero(np.append(True, slot[1:] != slot[:-1]))
    highest = np.maximum.reduceat(values, heads)
    of_slice = np.repeat(np.arange(len(heads)), np.diff(np.append(heads, len(slot))))
    at = np.flatnonzero(values == highest[of_slice])
    keep = np.empty(len(heads), np.intp)
    keep[of_slice[at]] = at  # of several the last one stays
    return times[keep], values[keep]
