"""Between steps the device waits for the scheduler, or for requests to come.

## What it finds
Idle time of the device between two steps in which the launching thread was choosing the next batch (frames and
ranges that name scheduling or queues), or was waiting for work: in a queue, a socket, a lock or a sleep.

## Why it costs time
The next step could have been launched as soon as the last one was. Whatever happens between them on the launching
thread is added to every token's latency, unless the device still has work queued.

## What to try
Schedule the next step while the device runs this one (asynchronous scheduling), keep request handling in another
process, and look at the load: a server without requests is idle for a good reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stallscope.analyzers.causes import CauseText, cause_findings, in_place
from stallscope.analyzers.finding import Finding
from stallscope.analyzers.idle import Cause
from stallscope.analyzers.registry import limit
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "HB105"
NEEDS = {"host", "device", "launches", "trusted_host"}
TEXT = CauseText(
    CODE,
    "scheduler-idle",
    lambda loss: f"between steps while the next one is scheduled or waited for{in_place(loss)}",
    "between steps",
    "Schedule the next step while the device runs this one; keep request handling off the launching thread.",
)


@dataclass(frozen=True)
class Limits:
    """When scheduling is worth a finding."""

    min_share: float = limit(
        0.03, "Share of the device's span it must idle for scheduling at a place.",
        source="XProf calls 3 % of a step spent on the host moderate",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per place."""
    yield from cause_findings(run, Cause.SCHEDULER, TEXT, limits.min_share)
