"""One analysis in progress: the session and everything derived from it, computed once, when asked.

Rules get a `Run` and read its properties; what two rules need is derived here and not in either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.idle import IdleAccount, account_idle
from stallscope.profiler import kinds
from stallscope.profiler.activity import Segments, flatten
from stallscope.profiler.device import DeviceView, device_views, whole_view
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
}
"""What a rule can need, and what is said where it is missing."""


class Run:
    """Derived views of one session. All row arrays are in timeline order unless said otherwise."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.timeline: Timeline = session.timeline
        self._segments: dict[int, Segments] = {}

    # -- what there is -----------------------------------------------------------------------------

    @cached_property
    def has(self) -> frozenset[str]:
        """Which of NEEDS_TEXT this session offers."""
        tests: dict[str, Callable[[], bool]] = {
            "host": lambda: len(self.timeline.rows(*kinds.HOST_CALLS, Kind.ANNOTATION)) > 0,
            "device": lambda: len(self.whole.rows) > 0,
            "launches": lambda: bool((self.timeline.spans.launch_row[self.whole.rows] >= 0).any()),
            "operators": lambda: len(self.timeline.rows(Kind.OPERATOR)) > 0,
            "shapes": lambda: "Input Dims" in self.timeline.args.keys or "Input Shapes" in self.timeline.args.keys,
            "steps": lambda: len(self.steps) > 0,
            "chip": lambda: len(self.chips) > 0,
        }
        return frozenset(name for name, test in tests.items() if test())

    def missing(self, needs: frozenset[str]) -> str:
        """Why a rule with these needs cannot run, or ""."""
        lacks = [NEEDS_TEXT[name] for name in NEEDS_TEXT if name in needs - self.has]
        return "; ".join(lacks)

    # -- devices -----------------------------------------------------------------------------------

    @cached_property
    def whole(self) -> DeviceView:
        """All devices as one."""
        return whole_view(self.timeline)

    @cached_property
    def devices(self) -> dict[int, DeviceView]:
        """Each device that did any work."""
        return device_views(self.timeline)

    @cached_property
    def idle(self) -> dict[int, IdleAccount]:
        """Where each device's idle time went."""
        return {number: account_idle(self, view) for number, view in self.devices.items()}

    def device_name(self, number: int) -> str:
        """The name the source gave a device, or ""."""
        known = self.session.facts.get("devices", {}).get(str(number % 1000), {})
        return str(known.get("name", ""))

    @cached_property
    def chips(self) -> dict[int, Any]:
        """Peaks of each device whose chip is in the table (`models.chips.Chip`)."""
        try:
            from stallscope.analyzers.models.chips import find_chip
        except ImportError:
            return {}
        found = {number: find_chip(self.device_name(number)) for number in self.devices}
        return {number: chip for number, chip in found.items() if chip is not None}

    # -- host --------------------------------------------------------------------------------------

    @cached_property
    def host_tracks(self) -> list[int]:
        """Tracks of host threads that recorded anything."""
        used = np.unique(self.timeline.spans.track)
        return [int(t) for t in used if self.timeline.tracks[int(t)].role == "host"]

    def segments(self, track: int) -> Segments:
        """The innermost-span segments of a host thread, computed once per thread."""
        if track not in self._segments:
            self._segments[track] = flatten(self.timeline, track)
        return self._segments[track]

    @cached_property
    def is_sync(self) -> npt.NDArray[np.bool_]:
        """Runtime rows that make the host wait for the device. Shape (n,)."""
        return (self.timeline.spans.kind == Kind.RUNTIME) & self.timeline.match_names(kinds.is_sync_call)

    @cached_property
    def is_copy_call(self) -> npt.NDArray[np.bool_]:
        """Runtime rows that start or do a copy. Shape (n,)."""
        return (self.timeline.spans.kind == Kind.RUNTIME) & self.timeline.match_names(kinds.is_copy_call)

    @cached_property
    def is_launch(self) -> npt.NDArray[np.bool_]:
        """Host rows that started device work, by link, or that start kernels by their name. Shape (n,)."""
        spans = self.timeline.spans
        linked = np.zeros(len(spans), bool)
        linked[spans.launch_row[spans.launch_row >= 0]] = True
        named = (spans.kind == Kind.RUNTIME) & self.timeline.match_names(kinds.is_kernel_launch)
        return (linked & (spans.kind == Kind.RUNTIME)) | named

    @cached_property
    def host_span(self) -> tuple[int, int]:
        """First start and last end of program activity on any host thread; (0, 0) if there is none."""
        rows = self.timeline.rows(*kinds.HOST_CALLS, Kind.ANNOTATION)
        rows = rows[[self.timeline.tracks[int(t)].role == "host" for t in self.timeline.spans.track[rows]]]
        if len(rows) == 0:
            return 0, 0
        spans = self.timeline.spans
        return int(spans.start_ns[rows].min()), int(spans.end_ns[rows].max())

    # -- steps -------------------------------------------------------------------------------------

    @cached_property
    def steps(self) -> list[Step]:
        return find_steps(self.timeline)

    @cached_property
    def step_of_row(self) -> Int32:
        """The index into `steps` of each row's step, or -1. Shape (n,)."""
        return step_of_device_rows(self.timeline, self.steps)

    # -- naming a place ----------------------------------------------------------------------------

    def operator_of(self, row: int) -> int:
        """The innermost operator around a host row, or the operator that launched a device row; else -1."""
        spans = self.timeline.spans
        at = int(spans.launch_row[row]) if spans.launch_row[row] >= 0 else row
        for candidate in (at, *self.timeline.ancestors(at)):
            if spans.kind[candidate] == Kind.OPERATOR:
                return candidate
        return -1

    def python_of(self, row: int) -> str:
        """The innermost Python frame of the user's own code around a host row ("file.py(12): f"), or ""."""
        spans = self.timeline.spans
        at = int(spans.launch_row[row]) if spans.launch_row[row] >= 0 else row
        frames = [self.timeline.name(a) for a in (at, *self.timeline.ancestors(at)) if spans.kind[a] == Kind.PYTHON]
        return next((f for f in frames if is_user_frame(f)), frames[0] if frames else "")


_LIBRARY_MARKS = ("site-packages", "dist-packages", "<built-in", "<frozen", "torch/", "nn.Module:", "lib/python")


def is_user_frame(name: str) -> bool:
    """Whether a Python frame's name points into the user's code, not into a library or a builtin."""
    return not any(mark in name for mark in _LIBRARY_MARKS)


__all__ = ["NEEDS_TEXT", "Int64", "Run", "is_user_frame"]
