"""The task queue between the thread that runs operators and the one that makes the launch calls (torch_npu).

Operators are put into the queue (`Enqueue`) by the thread that runs Python, and a second thread takes them out
(`Dequeue`) and makes the calls. A device that starves behind it starves for one of two reasons:

    asking    the operator was enqueued only after the device had run dry: Python is late
    calling   it was in the queue before: the thread that empties it is slow
    direct    there is no queue: the thread that runs operators makes the calls itself (TASK_QUEUE_ENABLE=0,
              ASCEND_LAUNCH_BLOCKING=1, an interactive interpreter), or the work comes from a graph
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.environment import variable
from stallscope.analyzers.idle import IdleAccount
from stallscope.analyzers.units import duration, share
from stallscope.profiler import kernels
from stallscope.profiler.kinds import Kind
from stallscope.profiler.links import submitters
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]

ASKING, CALLING, DIRECT, NOT_HOST = range(4)

MOSTLY = 0.8
"""Share of the host's idle time that one side must have to be called the slow one."""


class TaskQueue:
    """One device's idle gaps by the side of the queue that came late."""

    def __init__(self, run: Run, account: IdleAccount) -> None:
        self.run = run
        self.account = account

    @cached_property
    def side(self) -> npt.NDArray[np.int8]:
        """Per gap ASKING, CALLING, DIRECT, or NOT_HOST where the host did not make it. Shape (g,)."""
        account, kind = self.account, self.run.timeline.spans.kind
        launch = account.view.gaps.launch.astype(np.intp)
        behind = (launch >= 0) & (submitters(self.run.timeline.spans, launch) != launch)
        asked = (account.asked >= 0) & (kind[np.maximum(account.asked, 0)] == Kind.QUEUE)
        out = np.where(behind, np.where(asked, ASKING, CALLING), DIRECT).astype(np.int8)
        out[~account.is_host] = NOT_HOST
        return out

    def idle_ns(self, side: int) -> int:
        """Idle time in gaps of one side."""
        return int(self.account.view.gaps.dur_ns[self.side == side].sum())

    @property
    def late_by(self) -> int:
        """ASKING or CALLING where that side has most of the host's idle time behind a queue, else DIRECT."""
        both = self.idle_ns(ASKING) + self.idle_ns(CALLING)
        if not both:
            return DIRECT
        return next((s for s in (ASKING, CALLING) if self.idle_ns(s) >= MOSTLY * both), DIRECT)

    def text(self) -> str:
        """Which side starves, in a sentence; "" where there is no queue or neither side has most of it."""
        asking, calling = self.idle_ns(ASKING), self.idle_ns(CALLING)
        if self.late_by == ASKING:
            more = (
                " TASK_QUEUE_ENABLE=2, which moves workspace look-ups to the other thread, may help."
                if variable(self.run, "TASK_QUEUE_ENABLE") in (None, "", "1")
                else ""
            )
            return (
                f"The task queue was empty then ({share(asking, asking + calling)} of this device's host-made idle time): the "
                f"thread that runs Python enqueues late, not the one that makes the launch calls.{more}"
            )
        if self.late_by == CALLING:
            return (
                f"The work was in the task queue already ({share(calling, asking + calling)} of this device's host-made idle "
                f"time): the thread that makes the launch calls is slow, not Python."
            )
        return ""

    # -- the queue itself ------------------------------------------------------------------------------

    @cached_property
    def dequeues(self) -> Rows:
        """Dequeues with their enqueue known, of the processes that launch on this device, by start."""
        timeline, spans = self.run.timeline, self.run.timeline.spans
        rows = timeline.rows(Kind.QUEUE)
        rows = rows[spans.launch_row[rows] >= 0]
        launches = spans.launch_row[self.account.view.rows]
        used = kernels.distinct(spans.track[launches[launches >= 0]])
        homes = {(timeline.tracks[t].rank, timeline.tracks[t].process) for t in used}
        mine = np.array([(t.rank, t.process) in homes for t in timeline.tracks] or [False], bool)
        rows = rows[mine[spans.track[rows]]]
        return np.asarray(rows[np.argsort(spans.start_ns[rows], kind="stable")], np.intp)

    @cached_property
    def waited_ns(self) -> Int64:
        """How long each entry lay in the queue. Shape of `dequeues`."""
        spans = self.run.timeline.spans
        put = spans.start_ns[spans.launch_row[self.dequeues]]
        return np.asarray(np.maximum(spans.start_ns[self.dequeues] - put, 0), np.int64)

    @cached_property
    def depth(self) -> Int64:
        """Entries in the queue as each one is added. Shape of `dequeues`."""
        spans = self.run.timeline.spans
        put = np.sort(spans.start_ns[spans.launch_row[self.dequeues]])
        taken = np.searchsorted(spans.start_ns[self.dequeues], put, side="right")
        return np.asarray(np.arange(1, len(put) + 1) - taken, np.int64)

    def row(self) -> dict[str, Any]:
        """The row of the table."""
        state = variable(self.run, "TASK_QUEUE_ENABLE")
        return {
            "device": self.account.view.device,
            "queue": "on" if len(self.dequeues) else "not seen",
            "task_queue_enable": "unknown" if state is None else state or "not set",
            "entries": len(self.dequeues),
            "median_wait_ns": int(np.median(self.waited_ns)) if len(self.dequeues) else 0,
            "median_depth": int(np.median(self.depth)) if len(self.dequeues) else 0,
            "max_depth": int(self.depth.max(initial=0)),
            "python_late_ns": self.idle_ns(ASKING),
            "python_late_gaps": int((self.side == ASKING).sum()),
            "calls_late_ns": self.idle_ns(CALLING),
            "calls_late_gaps": int((self.side == CALLING).sum()),
            "no_queue_ns": self.idle_ns(DIRECT),
        }

    def slow_calls(self) -> list[tuple[str, int]]:
        """Runtime calls in the gaps where the calling side was late, by idle time under them, the largest first."""
        pieces, name = self.account.pieces, self.run.timeline.spans.name
        mine = np.flatnonzero((self.side[pieces.gap] == CALLING) & (pieces.row >= 0))
        codes, at = np.unique(name[pieces.row[mine]], return_inverse=True)
        sums = np.zeros(len(codes), np.int64)
        np.add.at(sums, np.asarray(at).reshape(-1), pieces.lengths(mine))
        order = np.argsort(-sums, kind="stable")
        return [(self.run.timeline.strings[int(codes[i])], int(sums[i])) for i in order]

    def slowest(self) -> str:
        """The slow calls in words: "aclopCompileAndExecute (1.56 ms), ..."."""
        return ", ".join(f"{name[:60]} ({duration(ns)})" for name, ns in self.slow_calls()[:3])


def tables(run: Run) -> dict[str, list[dict[str, Any]]]:
    """One row per NPU with linked launches; no table where a recording knows no task queue."""
    if not run.communication.ranks or "launches" not in run.has:
        return {}
    return {"task_queue": [queue.row() for queue in run.task_queues.values()]}
