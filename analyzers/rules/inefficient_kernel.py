"""Kernels that neither compute nor move data at a rate worth their chip, though they are long and fill it.

## What it finds
Operators whose kernels reach less than 60 % of the roof that binds them, run for at least 10 us and have a grid that
fills the chip. Only operators with recorded shapes that fix their work, on a chip whose peaks are known. The time they
could give back is counted up to 80 % of the roof, as a good kernel reaches it. On an NPU the counters of the cores are
heard too: a kernel whose cube or vector unit is busy 80 % of the time is bound by arithmetic, whatever its share of a peak.

## Why it costs time
The work would be done sooner by another kernel for the same operator: another tile size, layout, or library.

## What to try
Tune or replace the kernel: another backend (attention), autotuned or compiled products, contiguous inputs (a strided
or transposed operand halves the rate), sizes that are multiples of the tile, 16-bit types on the matrix units.
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

CODE = "MB302"
NEEDS = {"device", "shapes", "chip", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When slow kernels are worth a finding."""

    min_share: float = limit(
        0.05, "Share of the run's time that better kernels of one operator must give back.",
        source="chosen by us: tuning one operator for less is seldom worth it",
    )  # fmt: skip
    below_roof: float = limit(
        0.60, "Kernels under this share of the binding roof.", source="Nsight Compute, SpeedOfLight rules"
    )


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per operator and phase."""
    chained = kernelwords.in_chains(run)
    slow = [
        g
        for g in run.work.groups
        if _is_slow(g, limits) and not kernelwords.claimed_elsewhere(run, g, chained)
    ]
    for same in kernelwords.by_operator(slow):
        if sum(g.gain_ns for g in same) < limits.min_share * kernelwords.run_span_ns(run):
            continue
        factors = {int(r): 1 - g.gain_ns / g.total_ns for g in same for r in g.rows}
        saved = saving(run, factors)
        if saved.ns >= limits.min_share * kernelwords.run_span_ns(run):
            yield _finding(run, same, saved)


def _is_slow(group: Group, limits: Limits) -> bool:
    point, cost = group.point, group.cost
    if point is None or cost is None or point.share is None:
        return False
    return point.verdict == "inefficient" and cost.basis == "shapes" and point.share < limits.below_roof


def _finding(run: Run, same: Sequence[Group], saved: Saving) -> Finding:
    worst = max(same, key=lambda g: g.gain_ns)
    total = sum(g.total_ns for g in same)
    shares = [g.point.share for g in same if g.point is not None and g.point.share is not None]
    assert worst.point is not None
    name = worst.operator or worst.kernel
    rows = np.concatenate([g.rows for g in same])
    facts = kernelwords.per_step(run, worst.phase, total) | {
        "calls": sum(g.calls for g in same),
        "share_of_roof": [round(s, 4) for s in sorted(shares)],
        "roof": worst.point.roof,
        "shapes": worst.shapes,
        "priced_by": saved.by,
    }
    return Finding(
        code=CODE,
        name="inefficient-kernel",
        title=f"{name} takes {duration(total)} at {kernelwords.spread(shares)} of the {worst.point.roof} roof",
        lost_ns=total,
        recoverable_ns=saved.ns,
        confidence=kernelwords.confidence(same, saved.by),
        phase=worst.phase,
        where=Where(kernelwords.python_of(run, int(worst.rows[-1])), worst.operator, worst.kernel),
        detail=(
            f"{facts['calls']} calls, {share(total, run.work.total_ns)} of the device's work; the slowest is {worst.shapes or 'one'} "
            f"with {duration(worst.mean_ns)} a call where {duration((worst.floor_ns or 0) // worst.calls)} are the least on a "
            f"{run.chips[worst.device].name}. At 80 % of the roof they would save {duration(saved.ns)} ({saved.text})."
            + run.npu.words(worst)
        ),
        advice=_advice(worst),
        evidence=kernelwords.evidence(run, rows),
        facts=facts,
        fix=saved.fix,
    )


def _advice(worst: Group) -> str:
    if worst.pipes is not None and worst.pipes.bound == "memory-bound":
        return "Its reads or writes are busy but slow: contiguous inputs, rows of a multiple of 512 bytes, a tiled weight."
    return "Try another kernel for this operator: tune or autotune it, another backend, contiguous inputs."
