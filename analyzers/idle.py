"""Where a device's idle time went: every idle nanosecond gets one class, and they sum to the idle time.

A gap ends with a device event; the thread that launched it is asked what it did meanwhile. If the launch
began after the gap began, the part before the launch was the host's: it is split by what the thread was
inside of (a synchronising call, a copy, Python, an operator, a runtime call, nothing recorded); the part
after the launch began is launch latency. If the launch was already queued when the gap began, the device
itself was late: scheduling latency when short, a wait for another stream or an event when long.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.profiler import intervals
from stallscope.profiler.activity import Segments
from stallscope.profiler.device import BEFORE_RECORDING, HOST, QUEUED_LONG, QUEUED_SHORT, UNKNOWN, DeviceView
from stallscope.profiler.kinds import Kind
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

IDLE_CLASSES: dict[str, str] = {
    "host_python": "the launching thread was in Python code",
    "host_operator": "the launching thread was in framework dispatch (operators)",
    "host_runtime": "the launching thread was in runtime or driver calls that launch nothing here",
    "sync": "the launching thread was still inside, or just left, a synchronising call",
    "blocking_copy": "the launching thread was inside a copy call that returns when the copy is done",
    "launch_latency": "the launch call had begun; time until the device started",
    "host_unrecorded": "the launching thread had nothing recorded (plain Python, another library, or preempted)",
    "queue_latency": "work was queued already; short gap between queued work",
    "dependency": "work was queued already, but waited long: another stream, an event or a collective",
    "before_recording": "the next work was launched before recording began",
    "profiler": "the profiler itself was at work",
    "unexplained": "the event that ended the gap has no launch in the recording",
}
"""Idle classes and what each means; the keys of `DeviceSummary.idle_classes`."""


@dataclass(frozen=True)
class IdleAccount:
    """Idle time of one device by class.

    `per_gap` holds, for each class, nanoseconds per gap (shape (g,)); over classes they sum to each
    gap's length exactly.
    """

    view: DeviceView
    per_gap: dict[str, Int64]

    def totals(self) -> dict[str, int]:
        return {name: int(values.sum()) for name, values in self.per_gap.items()}


def account_idle(run: Run, view: DeviceView) -> IdleAccount:
    """Attribute every idle nanosecond of a device."""
    gaps = view.gaps
    parts = {name: np.zeros(len(gaps), np.int64) for name in IDLE_CLASSES}
    length = gaps.dur_ns
    for gap_class, name in (
        (QUEUED_SHORT, "queue_latency"),
        (QUEUED_LONG, "dependency"),
        (BEFORE_RECORDING, "before_recording"),
        (UNKNOWN, "unexplained"),
    ):
        mine = gaps.gap_class == gap_class
        parts[name][mine] = length[mine]
    _account_host(run, view, parts)
    return IdleAccount(view, parts)


def _account_host(run: Run, view: DeviceView, parts: dict[str, Int64]) -> None:
    gaps, spans = view.gaps, run.timeline.spans
    host = np.flatnonzero(gaps.gap_class == HOST)
    if len(host) == 0:
        return
    launch = gaps.launch[host]
    # a launch recorded after the kernel's start (clock inversion) leaves no latency
    until = np.minimum(np.maximum(spans.start_ns[launch], gaps.start_ns[host]), gaps.end_ns[host])
    parts["launch_latency"][host] = gaps.end_ns[host] - until
    overhead = _profiler_set(run)
    for track in np.unique(spans.track[launch]).tolist():
        mine = host[spans.track[launch] == track]
        at = until[spans.track[launch] == track]
        _split(run, run.segments(track), gaps.start_ns[mine], at, mine, parts, overhead)


def _split(
    run: Run,
    segments: Segments,
    start: Int64,
    end: Int64,
    gaps: npt.NDArray[np.intp],
    parts: dict[str, Int64],
    overhead: intervals.IntervalSet,
) -> None:
    """Divide [start, end) of each gap by the innermost span of the launching thread."""
    owner = segments.row
    kind = run.timeline.spans.kind[owner]
    sync = run.is_sync[owner]
    copy = run.is_copy_call[owner] & ~sync
    masks = {
        "sync": sync,
        "blocking_copy": copy,
        "host_python": kind == Kind.PYTHON,
        "host_operator": kind == Kind.OPERATOR,
        "host_runtime": (kind == Kind.RUNTIME) & ~sync & ~copy,
    }
    left = end - start
    for name, mask in masks.items():
        got = intervals.covered(segments.only(mask), start, end)
        parts[name][gaps] = got
        left = left - got
    free = intervals.covered(intervals.subtract(overhead, segments.only(kind != Kind.ANNOTATION)), start, end)
    parts["profiler"][gaps] = np.minimum(free, left)
    parts["host_unrecorded"][gaps] = left - parts["profiler"][gaps]


def _profiler_set(run: Run) -> intervals.IntervalSet:
    rows = run.timeline.rows(Kind.OVERHEAD)
    spans = run.timeline.spans
    return intervals.union(spans.start_ns[rows], spans.end_ns[rows])
