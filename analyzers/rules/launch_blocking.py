"""The host waits for every launch before it makes the next one.

## What it finds
Runs in which more than half of the launches are followed by a synchronising call of the same operator: what
`ASCEND_LAUNCH_BLOCKING=1` does to every operator of an NPU. Operators that read a value back launch no kernel before
they wait and are not meant; their waits are rules SY201 to SY203. The switch is named where the recording tells it.

## Why it costs time
The host prepares the next operator only after the device has finished this one, so the device idles for as long as
the host takes for each single operator.

## What to try
Unset the switch; it is for finding the operator that fails. It also turns the task queue off. If it is not set, look
for a debug mode that synchronises after each operator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stallscope.analyzers.finding import Finding
from stallscope.analyzers.idle import Cause, IdleAccount
from stallscope.analyzers.losses import amount, evidence, per_step, together
from stallscope.analyzers.pricing import price
from stallscope.analyzers.registry import NotAnalysable, limit
from stallscope.analyzers.replay import Change
from stallscope.analyzers.stalls import block_pieces
from stallscope.analyzers.units import duration, share
from stallscope.profiler import kernels
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.losses import Loss
    from stallscope.analyzers.run import Run

CODE = "LN402"
NEEDS = {"host", "device", "launches", "trusted_host"}


@dataclass(frozen=True)
class Limits:
    """When blocking launches are worth a finding."""

    min_share: float = limit(
        0.02, "Share of the device's span it must idle after such waits.", source="as SY201",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding in all, on the device that idles most for it."""
    blocking = run.blocking
    if not blocking.launches and blocking.switch:
        raise NotAnalysable(
            f"{blocking.switch} is set, but launch calls were not recorded: level 1 shows what it costs"
        )
    if not blocking.active:
        return
    found = [loss for account in run.idle.values() for loss in _losses(run, account)]
    worst = max(found, key=lambda loss: loss.lost_ns, default=None)
    if worst is not None and worst.share >= limits.min_share:
        yield _finding(run, worst)


def _losses(run: Run, account: IdleAccount) -> list[Loss]:
    found = block_pieces(run, account, Cause.SYNC)
    found = found.where(kernels.among(found.row, run.blocking.syncs))
    return together(run, account, found.chosen, found.row)


def _finding(run: Run, loss: Loss) -> Finding:
    blocking, spans = run.blocking, run.timeline.spans
    facts = per_step(run, loss.lost_ns, loss.by_phase) | {
        "launches": blocking.launches,
        "waited_for": blocking.waited_for,
        "waited_ns": int(spans.dur_ns[blocking.syncs].sum()),
        "call": run.timeline.name(loss.row),
        "switch": blocking.switch,
    }
    worth = price(run, loss.lost_ns, lambda: Change(no_wait={int(r) for r in blocking.syncs}))
    why = f"{blocking.switch} is set" if blocking.switch else "as with ASCEND_LAUNCH_BLOCKING=1"
    return Finding(
        code=CODE,
        name="launch-blocking",
        title=f"The host waits for each launch ({why}): the device idles {amount(loss.lost_ns, facts, loss.phase)}",
        lost_ns=loss.lost_ns,
        recoverable_ns=worth.ns,
        confidence="high",
        phase=loss.phase,
        where=loss.place.where(),
        detail=(
            f"{blocking.waited_for} of {blocking.launches} launches are followed by {run.timeline.name(loss.row)} of the same "
            f"operator; {duration(facts['waited_ns'])} of waiting, after which the device idles "
            f"{share(loss.lost_ns, run.steady_span_ns(loss.account.view))} of its time until the next launch."
        ),
        advice=(
            f"Unset {blocking.switch}." if blocking.switch
            else "Unset ASCEND_LAUNCH_BLOCKING, or whatever synchronises after each operator."
        ),
        evidence=evidence(run, loss, "idle after a blocking launch"),
        facts=facts | worth.facts(),
        fix=worth.fix,
    )  # fmt: skip
