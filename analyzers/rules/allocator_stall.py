"""Device memory is taken from the driver, or given back, between launches.

## What it finds
Idle time of the device during which the launching thread was in a driver call that allocates or frees memory
(`cudaMalloc`, `cudaFree`, `hipMalloc`, `aclrtMalloc`, pinned host memory too).

## Why it costs time
A driver allocation takes hundreds of microseconds and `cudaFree` waits for the whole device. A framework's allocator
keeps freed memory to avoid both; in a steady loop there should be no such call at all.

## What to try
Remove `empty_cache()` from the loop, reserve memory once at start-up, keep shapes few so that cached blocks fit
again, or use expandable segments (`PYTORCH_CUDA_ALLOC_CONF`, `PYTORCH_NPU_ALLOC_CONF`).
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

CODE = "SY204"
NEEDS = {"host", "device", "launches", "trusted_host"}
TEXT = CauseText(
    CODE,
    "allocator-stall",
    lambda loss: f"while memory is taken from the driver or given back{in_place(loss)}",
    "driver allocation",
    "Keep memory instead of giving it back; reserve it once; allow expandable segments.",
)


@dataclass(frozen=True)
class Limits:
    """When driver allocations are worth a finding."""

    min_share: float = limit(
        0.02, "Share of the device's span it must idle during driver allocations.",
        source="as SY201; the Ascend advisor reports 10 ms in all",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding in all, at the place that costs most."""
    yield from cause_findings(run, Cause.ALLOCATOR, TEXT, limits.min_share, together=True)
