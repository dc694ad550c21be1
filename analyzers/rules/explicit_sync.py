"""The program synchronises with the device by hand, and the device then runs dry.

## What it finds
Synchronising calls outside of any operator (`torch.cuda.synchronize()`, a stream's or an event's `synchronize()`,
their NPU and HIP twins) after which the device is idle because its next work comes late. The wait itself is split
in two: while the device was busy anyway, and the idle time that follows because the host could not run ahead. Only
the second counts. The profiler's own synchronisations are not the program's.

## Why it costs time
The host waits until the queue is empty and only then prepares the next launches, so host and device take turns
instead of working at the same time.

## What to try
Remove synchronisations that only time or debug. Where a result is needed, wait on an event for that result alone,
a step later. Time with events instead of synchronising.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stallscope.analyzers.finding import Finding
from stallscope.analyzers.registry import limit
from stallscope.analyzers.stalls import sync_findings
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "SY201"
NEEDS = {"host", "device", "launches", "trusted_host"}


@dataclass(frozen=True)
class Limits:
    """When idle time after synchronisations is worth a finding."""

    min_share: float = limit(
        0.02, "A place is reported if the device idles at least this share of its span after it.",
        source="nsys-ai calls a sync cost of 2 % notable",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per place."""
    advice = "Remove it, or wait on an event for the one result that is needed, a step later."
    yield from sync_findings(run, CODE, "explicit-sync", limits.min_share, implicit=False, advice=advice)
