"""Long kernels that use a fraction of the chip's cores.

## What it finds
Operators whose kernels run for at least 10 us on a grid of fewer blocks than half of the chip's cores, far from both
roofs. Gains are bounded twice: by 80 % of the roof, and by what spreading the same blocks' work over all cores could
give.

## Why it costs time
The other cores do nothing while such a kernel runs, and the next kernel waits for it.

## What to try
Split the work further (split-K products, more key-value splits in attention, a parallel scan or sort), use a library
kernel made for this shape, or batch several of these calls into one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers import kernelwords
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.gain import Saving, saving
from stallscope.analyzers.registry import limit
from stallscope.analyzers.units import duration, share
from stallscope.analyzers.work import Group
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "MB303"
NEEDS = {"device", "shapes", "chip", "trusted_device"}

LEAST_KERNEL_NS = 2_000
"""No kernel is shorter than this, however little it does (fastest kernels of the MI300X and H100 traces)."""


@dataclass(frozen=True)
class Limits:
    """When a small grid is worth a finding."""

    min_share: float = limit(
        0.03, "Share of the run's time that a full grid must give back.",
        source="XProf calls 3 % of a step moderate",
    )  # fmt: skip
    max_fill: float = limit(0.5, "Blocks over cores at which a grid is small.",
                            source="Nsight Compute: less than one wave; half of one leaves room for large blocks")  # fmt: skip
    min_kernel_us: float = limit(
        10, "Shorter kernels are bound by launch and ramp-up (see MB304).", unit="us",
        source="TensorRT-LLM perf-nsight-compute-analysis",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per operator and phase."""
    chained = kernelwords.in_chains(run)
    small = [
        g
        for g in run.work.groups
        if is_small(run, g, limits) and not kernelwords.claimed_elsewhere(run, g, chained)
    ]
    for same in kernelwords.by_operator(small):
        factors = {int(r): _factor(run, g) for g in same for r in g.rows}
        bound = sum(g.total_ns * (1 - _factor(run, g)) for g in same)
        if bound < limits.min_share * kernelwords.run_span_ns(run):
            continue
        saved = saving(run, factors)
        if saved.ns >= limits.min_share * kernelwords.run_span_ns(run):
            yield _finding(run, same, saved)


def is_small(run: Run, group: Group, limits: Limits) -> bool:
    """Whether a group's kernels are long, leave most cores empty, and are far from both roofs."""
    if (
        not group.cores
        or group.device not in run.chips
        or group.point is None
        or group.cost is None
        or not group.blocks
    ):
        return False
    return (
        group.point.verdict == "latency-bound"
        and group.cost.basis == "shapes"
        and group.blocks < limits.max_fill * group.cores
        and group.mean_ns >= limits.min_kernel_us * 1000
    )


def _factor(run: Run, group: Group) -> float:
    """What would remain of the kernel's time on a full grid."""
    cores = group.cores or 1
    best = max(
        1 - group.gain_ns / group.total_ns,
        (group.blocks or cores) / cores,
        LEAST_KERNEL_NS / max(group.mean_ns, 1),
    )
    return min(best, 1.0)


def _finding(run: Run, same: Sequence[Group], saved: Saving) -> Finding:
    worst = max(same, key=lambda g: g.total_ns)
    total = sum(g.total_ns for g in same)
    rows = np.concatenate([g.rows for g in same])
    blocks = sorted({g.blocks or 0 for g in same})
    named = (
        f"{blocks[0]} block{'s' if blocks[0] != 1 else ''}"
        if len(blocks) == 1
        else f"{blocks[0]} to {blocks[-1]} blocks"
    )
    facts = kernelwords.per_step(run, worst.phase, total) | {
        "calls": sum(g.calls for g in same),
        "blocks": blocks,
        "cores": worst.cores,
        "shapes": worst.shapes,
        "priced_by": saved.by,
    }
    return Finding(
        code=CODE,
        name="small-grid-kernel",
        title=f"{worst.operator or worst.kernel} takes {duration(total)} on {named}; the chip has {worst.cores} cores",
        lost_ns=total,
        recoverable_ns=saved.ns,
        confidence=kernelwords.confidence(same, saved.by),
        phase=worst.phase,
        where=Where(kernelwords.python_of(run, int(worst.rows[-1])), worst.operator, worst.kernel),
        detail=(
            f"{facts['calls']} calls of {duration(worst.mean_ns)} ({worst.shapes}), {share(total, run.work.total_ns)} of the "
            f"device's work. A full grid could save up to {duration(saved.ns)} ({saved.text})."
        ),
        advice="Split the work over more blocks, or batch several of these calls into one.",
        evidence=kernelwords.evidence(run, rows),
        facts=facts,
        fix=saved.fix,
    )
