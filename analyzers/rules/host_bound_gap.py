"""The device waits while the host is busy at one place, much longer than launching usually takes it.

## What it finds
Gaps on the device whose next launch came late because the launching thread was in Python, in operators, in
library calls, or in code that left no record, for much longer than its usual time from launch to launch. Gaps
of one place (Python line, operator or annotation) are added up to one finding. Idle time after a wait for the
device, garbage collection, compilation, allocation and the like are other causes with rules of their own.

## Why it costs time
Nothing is queued, so each nanosecond the host spends at that place is one the device does nothing.

## What to try
Move the work off the launching thread or out of the step: prepare the next batch while the device works on this
one, keep sampling and bookkeeping on the device, do it once for the batch instead of once per request, write
tokens and logs from another thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers.finding import Finding
from stallscope.analyzers.idle import HOST_WORK
from stallscope.analyzers.losses import ONCE_TEXT, Loss, amount, evidence, losses, per_step, widest
from stallscope.analyzers.pricing import price, without_stalls
from stallscope.analyzers.registry import limit
from stallscope.analyzers.units import count, duration, share
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "HB101"
NEEDS = {"host", "device", "launches", "host_code", "trusted_host"}


@dataclass(frozen=True)
class Limits:
    """When host work at one place is worth a finding."""

    min_share: float = limit(
        0.03, "A place is reported if the device idles at least this share of its span for it.",
        source="XProf calls 3 % of a step spent on the host moderate, 15 % high",
    )  # fmt: skip
    min_gap_us: float = limit(50, "Shorter gaps are launch pace, see LN401.", unit="us",
                              source="TensorRT-LLM perf-host-analysis, gap table")  # fmt: skip
    single_share: float = limit(0.10, "The same for a place with one gap only, which may be a first use.")


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per place, the costliest first."""
    for loss, devices in widest(_stalls(run, limits, number) for number in run.devices):
        if loss.share < min(limits.min_share, limits.single_share):
            continue  # of most places the gaps need not be known
        if loss.share >= (limits.min_share if len(loss.gaps) > 1 else limits.single_share):
            yield _finding(run, loss, devices)


def _stalls(run: Run, limits: Limits, device: int) -> list[Loss]:
    pace, account = run.pace[device], run.idle[device]
    long = account.view.gaps.dur_ns >= limits.min_gap_us * 1000
    chosen = run.idle_index[device].of_any(*HOST_WORK, gaps=pace.is_stall & long)
    return losses(run, account, chosen, pace.stall_places[account.pieces.gap[chosen]])


def _finding(run: Run, loss: Loss, devices: list[int]) -> Finding:
    facts = per_step(run, loss.lost_ns, loss.by_phase) | {
        "gaps": len(loss.gaps),
        "longest_gap_ns": int(loss.gap_ns[0]),
        "median_gap_ns": int(np.median(loss.gap_ns)),
        "devices": devices,
    }
    worth = price(
        run,
        loss.lost_ns,
        lambda: without_stalls(run, loss, run.pace[loss.account.view.device].stall_places),
    )
    span = run.steady_span_ns(loss.account.view)
    return Finding(
        code=CODE,
        name="host-bound-gap",
        title=f"The device idles {amount(loss.lost_ns, facts, loss.phase)} while the host is in {loss.place.text}",
        lost_ns=loss.lost_ns,
        recoverable_ns=worth.ns,
        confidence="low"
        if loss.is_once and not loss.place.python
        else "high"
        if loss.place.python
        else "medium",
        phase=loss.phase,
        where=loss.place.where(),
        detail=(
            f"{count(len(loss.gaps), 'gap')} of up to {duration(int(loss.gap_ns[0]))}, {share(loss.lost_ns, span)} of the device's "
            f"time. The launching thread was {_inside(loss)}; nothing else was queued."
            f"{ONCE_TEXT if loss.is_once else ''}"
        ),
        advice="Take this work off the launching thread's path, or do it while the device is busy.",
        evidence=evidence(run, loss, "idle"),
        facts=facts | worth.facts(),
        fix=worth.fix,
    )


def _inside(loss: Loss) -> str:
    place = loss.place
    if place.python:
        return f"in {place.python}"
    if place.operator:
        return f"in operator {place.operator}"
    if place.annotation:
        return f"in range {place.annotation!r}"
    return "in code that left no record (record Python to see it)"
