"""An operator that needs a value on the host waits for the device, and the device then runs dry.

## What it finds
Operators that wait for the device as part of their work (`item`, `tolist`, `nonzero`, `masked_select`, indexing by
a mask, `.cpu()`, `.to("cpu")`, `repeat_interleave`...), after which the device is idle because its next work comes
late. Only the idle time that follows counts; a wait while the device is busy costs nothing. An operator that waits
once per step to read the tokens does not answer for long Python work behind it (that is HB101).

## Why it costs time
The shape or value is computed on the device; to know it, the host waits for everything queued before, and only then
goes on to launch.

## What to try
Keep the value on the device (`torch.where`, masks, fixed sizes), read back many values at once, or copy to pinned
memory without blocking and use the value a step later.
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

CODE = "SY202"
NEEDS = {"host", "device", "launches", "operators", "trusted_host"}


@dataclass(frozen=True)
class Limits:
    """When idle time after waiting operators is worth a finding."""

    min_share: float = limit(
        0.02, "A place is reported if the device idles at least this share of its span after it.",
        source="nsys-ai calls a sync cost of 2 % notable",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per place."""
    advice = "Keep the value on the device, or read it back without blocking and use it a step later."
    yield from sync_findings(run, CODE, "implicit-sync", limits.min_share, implicit=True, advice=advice)
