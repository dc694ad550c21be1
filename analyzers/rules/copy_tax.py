"""The device spends its time on casts, copies and transpositions instead of the model's arithmetic.

## What it finds
Kernels of operators that only change a tensor's type or layout (`to`, `copy_`, `contiguous`, `clone`, transpositions), and
copies within device memory, taken together per phase. Copies from and to the host are SY203; casts inside of a chain that
could be fused are MB301 and MB304; writing the key-value cache is work.

## Why it costs time
Each reads and writes all of its tensor at the speed of memory and computes nothing.

## What to try
Keep one type and one layout through the model: load weights in the type they are used in, pass strides the next kernel
accepts, drop `.contiguous()` where nothing needs it, let a fused kernel cast on the way.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers import kernelwords
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.gain import saving
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.registry import limit
from stallscope.analyzers.units import duration, share
from stallscope.analyzers.work import Group, copies_within_device
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "MB305"
NEEDS = {"device", "operators", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When the tax is worth a finding."""

    min_share: float = limit(
        0.05, "Share of the run's time that these kernels must cost.",
        source="TraceLens' agent rules: memory copies over 5 %",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per phase and device."""
    least = limits.min_share * kernelwords.run_span_ns(run)
    fused = kernelwords.in_chains(run)
    taxed: dict[tuple[str, int], list[tuple[Group, Int64]]] = {}
    for group in run.work.groups:
        if group.family is Family.COPY and group.operator in kernelwords.CONVERSIONS:
            rows = group.rows[~fused[group.rows] & copies_within_device(run.timeline, group.rows)]
            if len(rows):
                taxed.setdefault((group.phase, group.device), []).append((group, rows))
    for (phase, _), parts in taxed.items():
        rows = np.concatenate([rows for _, rows in parts])
        if int(run.timeline.spans.dur_ns[rows].sum()) >= least:
            yield from _finding(run, phase, parts, rows, least)


def _finding(
    run: Run, phase: str, parts: Sequence[tuple[Group, Int64]], rows: Int64, least: float
) -> Iterator[Finding]:
    saved = saving(run, dict.fromkeys(rows.tolist(), 0.0))
    if saved.ns < least:
        return
    spans = run.timeline.spans
    sums: dict[str, int] = {}
    for group, mine in parts:
        sums[group.operator] = sums.get(group.operator, 0) + int(spans.dur_ns[mine].sum())
    total = sum(sums.values())
    largest, its_rows = max(parts, key=lambda part: int(spans.dur_ns[part[1]].sum()))
    named = ", ".join(f"{name} {duration(ns)}" for name, ns in sorted(sums.items(), key=lambda i: -i[1])[:4])
    yield Finding(
        code=CODE,
        name="copy-tax",
        title=f"Casts, copies and transpositions take {duration(total)}, {share(total, run.work.total_ns)} of the device's work",
        lost_ns=total,
        recoverable_ns=saved.ns,
        confidence="medium" if saved.by == "replay" else "low",
        phase=phase,
        where=Where(kernelwords.python_of(run, int(its_rows[0])), largest.operator, largest.kernel),
        detail=(
            f"{len(rows)} kernels: {named}. The largest is {largest.operator} {largest.shapes}. Without any of them the run would be "
            f"up to {duration(saved.ns)} shorter ({saved.text}); those that are needed stay."
        ),
        advice="Keep one type and one layout through the model; drop conversions that nothing needs.",
        evidence=kernelwords.evidence(run, rows),
        facts=kernelwords.per_step(run, phase, total)
        | {"kernels": len(rows), "operators_ns": sums, "priced_by": saved.by},
        fix=saved.fix,
    )
