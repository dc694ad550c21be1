"""An NPU starves behind the task queue: the thread that makes the launch calls is the slow one, or there is no queue.

## What it finds
torch_npu hands operators to a second thread through a task queue. Two things are found:

* **The calling thread is late**: the device idles although its next work was enqueued before the gap began; the second
  thread had not made the call yet. The calls it was in are named.
* **No queue**: the thread that runs the operators makes the launch calls itself, and the device idles meanwhile
  (`TASK_QUEUE_ENABLE=0`, `ASCEND_LAUNCH_BLOCKING=1`, an interactive interpreter).

Where Python enqueues late instead, HB101 and LN401 say what it did, and the table *Task queue* shows by how much each
side is late.

## Why it costs time
The two threads work side by side only if both keep up. Behind a slow calling thread a faster Python changes nothing.

## What to try
Calling thread: fewer launches (a captured graph, fused operators), `TASK_QUEUE_ENABLE=1` instead of 2, which moves
further work to this thread, and aclnn operators instead of `aclopCompileAndExecute`
(`torch_npu.npu.set_compile_mode(jit_compile=False)`, `torch.npu.config.allow_internal_format=False`).
No queue: `TASK_QUEUE_ENABLE=1` (the default) or 2.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.environment import variable
from stallscope.analyzers.finding import Finding
from stallscope.analyzers.idle import HOST_WORK, Cause
from stallscope.analyzers.losses import Loss, amount, evidence, per_step, together
from stallscope.analyzers.registry import NotAnalysable, NotApplicable, limit
from stallscope.analyzers.taskqueue import CALLING, DIRECT, TaskQueue
from stallscope.analyzers.units import duration, share
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Bool

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]

CODE = "LN403"
NEEDS = {"host", "device", "launches", "trusted_host"}


@dataclass(frozen=True)
class Limits:
    """When the task queue is worth a finding."""

    min_share: float = limit(
        0.05, "Share of the device's span that it must idle for the calling thread, or for the missing queue.",
        source="half of TensorRT-LLM's 10 % for a host-bound step",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding in all, on the device that idles most for it."""
    if not run.communication.ranks:
        raise NotApplicable("only Ascend recordings know a task queue")
    if "operators" not in run.has:
        raise NotAnalysable("no framework operators were recorded, so the task queue cannot be seen")
    if run.blocking.active:
        return  # LN402: blocking launches turn the queue off
    found = []
    for number, queue in run.task_queues.items():
        chosen = run.idle_index[number].of_any(*HOST_WORK)
        chosen = chosen[_answers(run, queue, chosen)]
        found += [(loss, queue) for loss in together(run, queue.account, chosen)]
    if found:
        loss, queue = max(found, key=lambda f: f[0].lost_ns)
        if loss.share >= limits.min_share:
            yield _finding(run, loss, queue)


def _answers(run: Run, queue: TaskQueue, chosen: Rows) -> Bool:
    """For which of some pieces of idle time the calling thread, or the lack of one, answers."""
    pieces = queue.account.pieces
    side = queue.side[pieces.gap[chosen]]
    if len(queue.dequeues):
        return np.asarray(side == CALLING, np.bool_)
    calls = (side == DIRECT) & (pieces.cause[chosen] == Cause.LAUNCH_PATH)
    inside = run.places.nearest(pieces.row[chosen], run.places.is_operator) >= 0
    return np.asarray(calls & inside, np.bool_)


def _finding(run: Run, loss: Loss, queue: TaskQueue) -> Finding:
    facts = per_step(run, loss.lost_ns, loss.by_phase) | queue.row() | {"gaps": len(loss.gaps)}
    setting = variable(run, "TASK_QUEUE_ENABLE")
    lost, span = (
        amount(loss.lost_ns, facts, loss.phase),
        share(loss.lost_ns, run.steady_span_ns(loss.account.view)),
    )
    if len(queue.dequeues):
        title = (
            f"The thread that empties the task queue is late: the device idles {lost} with work in the queue"
        )
        detail = (
            f"{len(loss.gaps)} gaps, {span} of the device's time. Work lies in the queue for a median of "
            f"{duration(facts['median_wait_ns'])}, up to {facts['max_depth']} entries deep; a faster Python changes nothing. "
            f"In the gaps the thread was in {queue.slowest()}."
        )
        advice = (
            "TASK_QUEUE_ENABLE=2 puts more work on this thread: try 1. Then launch less: a captured graph, fused operators."
            if setting == "2" else "Launch less: a captured graph, fused operators, aclnn instead of aclop operators."
        )  # fmt: skip
    else:
        off = "TASK_QUEUE_ENABLE=0" if setting == "0" else "no task queue"
        title = (
            f"Operators make their launch calls themselves ({off}): the device idles {lost} in these calls"
        )
        detail = (
            f"{len(loss.gaps)} gaps, {span} of the device's time, in runtime calls of the thread that runs the operators. "
            f"A task queue would take them off this thread."
        )
        advice = "Set TASK_QUEUE_ENABLE=1 or 2, and do not run in an interactive interpreter or with launch blocking."
    return Finding(
        code=CODE,
        name="task-queue",
        title=title,
        lost_ns=loss.lost_ns,
        recoverable_ns=loss.lost_ns,
        confidence="medium",
        phase=loss.phase,
        where=loss.place.where(),
        detail=detail,
        advice=advice,
        evidence=evidence(run, loss, "idle while launch calls are made"),
        facts=facts,
    )
