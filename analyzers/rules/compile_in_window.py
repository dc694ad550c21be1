"""Code is compiled, loaded or captured inside of the recorded window while the device waits.

## What it finds
Idle time of the device during which the launching thread compiled (torch.compile, Triton, nvrtc, Ascend operator
compilation), loaded device code, or captured a graph.

## Why it costs time
A compilation takes from tens of milliseconds to minutes. In a serving process it hits the first request with a new
shape, which then waits for it.

## What to try
Warm up with every shape that will be served, mark dimensions as dynamic, pad to a few sizes, keep the compile cache
on disk, and start the recording after warm-up.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stallscope.analyzers.causes import CauseText, cause_findings, in_place
from stallscope.analyzers.finding import Finding
from stallscope.analyzers.idle import Cause
from stallscope.analyzers.registry import limit

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "HB106"
NEEDS = {"host", "device", "launches", "trusted_host"}
TEXT = CauseText(
    CODE,
    "compile-in-window",
    lambda loss: f"while code is compiled, loaded or captured{in_place(loss)}",
    "compilation",
    "Warm up with the shapes that will be served; allow dynamic shapes or pad to a few sizes.",
)


@dataclass(frozen=True)
class Limits:
    """When compilation is worth a finding."""

    min_share: float = limit(
        0.03, "Share of the device's span it must idle during compilation.",
        source="XProf calls 3 % of a step spent on the host moderate",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding in all, at the place that costs most."""
    yield from cause_findings(run, Cause.COMPILE, TEXT, limits.min_share, together=True, steady=False)
