"""Python collects garbage on the way to the next launch.

## What it finds
Idle time of the device during which the garbage collector ran in the launching process: its spans in the recording
(`gc` events, `gc.collect()` calls). Collections while the device is busy cost nothing and are not counted.

## Why it costs time
A collection stops the whole interpreter. One of the oldest generation walks every object of the process, tens of
milliseconds in a serving stack with millions of objects.

## What to try
Freeze what lives for good after start-up (`gc.collect(); gc.freeze()`), raise the thresholds (`gc.set_threshold`), or
collect between requests instead of between steps.
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

CODE = "HB103"
NEEDS = {"host", "device", "launches", "trusted_host"}
TEXT = CauseText(
    CODE,
    "garbage-collection",
    lambda loss: f"while Python collects garbage{in_place(loss)}",
    "collection",
    "Freeze long-lived objects after start-up, raise the collector's thresholds, or collect between requests.",
)


@dataclass(frozen=True)
class Limits:
    """When collections are worth a finding."""

    min_share: float = limit(
        0.02, "Share of the device's span it must idle during collections.",
        source="two thirds of XProf's 3 %; the Ascend advisor reports each collection of 1 ms",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding in all."""
    yield from cause_findings(run, Cause.GARBAGE_COLLECTION, TEXT, limits.min_share, together=True)
