"""Launched work waits for another stream or another device while this device computes nothing.

## What it finds
Times in which the next work of a stream was launched already, but waited for work on another stream (a copy, a
collective, another branch) or on another device, and no kernel ran beside that. Where the device's own waits are on
record (`EVENT_WAIT`, `Notify Wait` on NPUs) one must fill half of such a time; a pause without one is the device's own.

## Why it costs time
The order between streams that an event sets is kept even where nothing else is ready: the device idles, or only
copies, until what it waits for is done.

## What to try
Start what is waited for earlier (prefetch a step ahead), split it so that the first part is ready sooner, or give the
device other work to do beside it (micro-batches in a pipeline).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers.dependency import StreamWaits
from stallscope.analyzers.finding import Evidence, Finding, Where
from stallscope.analyzers.losses import amount
from stallscope.analyzers.registry import limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "DP501"
NEEDS = {"device", "launches", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When waits between streams are worth a finding."""

    min_share: float = limit(
        0.03, "Share of the device's span that it computes nothing because of such waits.",
        source="as HB101",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding in all: the device that waits most."""
    found = [StreamWaits(run, account) for account in run.idle.values()] if run.can_depend else []
    found = [f for f in found if f.lost_ns >= limits.min_share * max(f.span_ns, 1)]
    if found:
        yield _finding(run, max(found, key=lambda f: f.lost_ns))


def _finding(run: Run, waits: StreamWaits) -> Finding:
    spans = run.timeline.spans
    order = np.argsort(-waits.wait_ns, kind="stable")
    first = int(waits.kernel[order[0]])
    lost = waits.lost_ns
    call, place = waits.place(first)
    phase = run.phase_of_most(spans.start_ns[np.maximum(spans.launch_row[waits.kernel], 0)])
    steps = run.steady_steps(phase) if phase else 0
    on = waits.waits_for()
    facts = {"waits": len(waits.kernel), "waits_for": on}
    if steps:
        facts |= {"steps": steps, "per_step_ns": lost // steps}
    return Finding(
        code=CODE,
        name="stream-dependency",
        title=f"Launched kernels wait {amount(lost, facts, phase)} for {on} while the device computes nothing",
        lost_ns=lost,
        recoverable_ns=lost,
        confidence="high" if call >= 0 else "medium",
        phase=phase,
        where=Where(place.python, place.operator or (run.timeline.name(call) if call >= 0 else ""), run.timeline.name(first)),
        detail=(
            f"{len(waits.kernel)} waits of up to {duration(int(waits.wait_ns[order[0]]))}, {share(lost, waits.span_ns)} of the "
            f"device's time, most often before {run.timeline.name(first)[:80]}."
        ),
        advice="Start what is waited for earlier, or give the device other work beside it.",
        evidence=tuple(
            Evidence(int(spans.track[k]), int(spans.start_ns[k] - waits.wait_ns[i]), int(spans.start_ns[k]),
                     f"waits before {run.timeline.name(int(k))[:60]}")
            for i, k in ((int(i), int(waits.kernel[i])) for i in order[:5])
        ),
        facts=facts,
    )  # fmt: skip
