"""Waits of launched work for other streams and devices, and what they waited for."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.idle import Cause, IdleAccount
from stallscope.analyzers.places import Place
from stallscope.profiler import intervals
from stallscope.profiler.device import QUEUED_SHORT_NS
from stallscope.profiler.kinds import Kind
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]
NEAR_NS = 15_000
"""Work that starts this soon after an event of another stream ended was waiting for it."""


class StreamWaits:
    """Kernels of one device that were launched, waited for something else, and nothing was computed meanwhile.

    `kernel` are their rows, `wait_ns` how long the device computed nothing because of each. Shape (k,).
    """

    def __init__(self, run: Run, account: IdleAccount) -> None:
        self.run = run
        self.account = account
        self.view = account.view
        self.span_ns = run.steady_span_ns(account.view)
        self.kernel, self.wait_ns, self.other = self._find()

    @property
    def lost_ns(self) -> int:
        return int(self.wait_ns.sum())

    def _find(self) -> tuple[Rows, Int64, Rows]:
        """Idle waits (another device or stream) and waits beside an exposed copy of another stream."""
        idle_row, idle_ns = self._idle()
        copy_row, copy_ns, copies = self._behind_copies()
        rows = np.concatenate([idle_row, copy_row])
        waits = np.concatenate([idle_ns, copy_ns])
        other = np.concatenate([np.full(len(idle_row), -1, np.intp), copies])
        steady = self.run.is_steady(self.run.timeline.spans.start_ns[rows])
        return rows[steady], waits[steady], other[steady]

    def _idle(self) -> tuple[Rows, Int64]:
        pieces = self.account.pieces
        mine = np.flatnonzero(pieces.cause == Cause.DEPENDENCY)
        return self.view.gaps.ended_by[pieces.gap[mine]].astype(np.intp), pieces.lengths(mine)

    def _behind_copies(self) -> tuple[Rows, Int64, Rows]:
        """Kernels launched before an exposed, non-blocking copy of another stream ended, and started as it did."""
        spans, view = self.run.timeline.spans, self.view
        work = view.rows[np.isin(view.kind, [int(Kind.KERNEL), int(Kind.COLLECTIVE)])]
        copies = view.rows[view.kind == Kind.MEMCPY]
        call = spans.launch_row[copies]
        copies = copies[~((call >= 0) & self.run.is_wait[np.maximum(call, 0)])]
        exposed = intervals.covered(view.exposed_memcpy, spans.start_ns[copies], spans.end_at(copies))
        copies, exposed = copies[exposed > 0], exposed[exposed > 0]
        at = np.searchsorted(spans.start_ns[work], spans.end_at(copies), side="left")
        known = at < len(work)
        copies, exposed, at = copies[known], exposed[known], at[known]
        kernel = work[at]
        launch = spans.launch_row[kernel]
        waited = (launch >= 0) & (spans.start_ns[np.maximum(launch, 0)] < spans.end_at(copies))
        waited &= spans.track[kernel] != spans.track[copies]
        waited &= spans.start_ns[kernel] - spans.end_at(copies) < NEAR_NS
        since = np.maximum(spans.start_ns[copies], spans.start_ns[np.maximum(launch, 0)])
        length = np.minimum(exposed, spans.end_at(copies) - since)
        waited &= length > 0
        return kernel[waited], length[waited], copies[waited]

    @cached_property
    def _event_waits(self) -> Rows:
        """Calls that make a stream wait for an event."""
        named = self.run.timeline.match_names(lambda n: "StreamWaitEvent" in n)
        return np.flatnonzero(named & self.run.timeline.of_kind(Kind.RUNTIME))

    def place(self, kernel: int) -> tuple[int, Place]:
        """The call that ordered the wait before a kernel (-1 unknown) and its place, else the launch's place."""
        spans = self.run.timeline.spans
        launch = int(spans.launch_row[kernel])
        if launch < 0:
            return -1, Place()
        waits = self._event_waits[spans.track[self._event_waits] == spans.track[launch]]
        before = waits[spans.start_ns[waits] < spans.start_ns[launch]]
        if len(before) and spans.start_ns[launch] - spans.start_ns[before[-1]] < 100 * QUEUED_SHORT_NS:
            return int(before[-1]), self.run.places.place(int(before[-1]))
        return -1, self.run.places.place(launch)

    def waits_for(self) -> str:
        """What most of the waiting is for, in words."""
        behind = int(self.wait_ns[self.other >= 0].sum())
        if 2 * behind >= self.lost_ns:
            row = int(self.other[np.argmax(np.where(self.other >= 0, self.wait_ns, -1))])
            return f"{self.run.timeline.name(row)} on another stream"
        return "another device" if len(self.run.devices) > 1 else "another stream"
