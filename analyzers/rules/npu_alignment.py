"""NPU matrix kernels that read memory slowly because the inner axis of their largest operand is not aligned.

## What it finds
Kernels of the cube (products, grouped products, attention) that wait for MTE2, the pipe that reads memory, at least 80 % of
the time, while the cube is busy less than that, and whose largest operand in plain layout has rows that are no multiple of
512 bytes. Where the chip is known the distance from its roof tells more: then MB302 speaks, and names the alignment, and a
kernel that does reach the speed of memory is left alone. Kernels of the same operator with aligned rows, if there are any, set the gain; else the next busy pipe does.

## Why it costs time
MTE2 fetches tiles row by row in bursts of 512 bytes. A row that begins in the middle of a burst costs an extra one, and rows
that are no multiple of 32 bytes (16 elements of 16 bits) are padded on the way.

## What to try
Pad the weight's inner axis (hidden size, vocabulary, head size) to a multiple of 256 elements of 16 bits, or store the
weight in the tiled layout of the cube once (`torch_npu.npu_format_cast(weight, 29)`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers import kernelwords
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.gain import saving
from stallscope.analyzers.models.family import Family, kernel_family
from stallscope.analyzers.models.roofline import LOW
from stallscope.analyzers.npu import BURST_BYTES, CUBE, MIX_CUBE, KernelGroup, Operand, largest_operand
from stallscope.analyzers.pipes import BUSY
from stallscope.analyzers.registry import limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "NP804"
NAME = "npu-alignment"
NEEDS = {"device", "shapes", "trusted_device"}

FAMILIES = (Family.GEMM, Family.ATTENTION, Family.MOE)


@dataclass(frozen=True)
class Limits:
    """When rows that are not aligned are worth a finding."""

    min_share: float = limit(
        0.03, "Share of the run's time that aligned rows must give back.", source="XProf calls 3 % of a step moderate"
    )  # fmt: skip
    min_kernel_us: float = limit(
        20, "Shorter kernels are bound by launch and ramp-up.", unit="us", source="msprof-analyze advisor"
    )  # fmt: skip
    min_row_bytes: float = limit(
        512, "Rows shorter than one burst are a matter of the layout, not of padding.", unit="bytes",
        source="one burst of MTE2",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per operator type, phase and device."""
    run.npu.need()
    run.npu.need_pipes()
    least = limits.min_share * kernelwords.run_span_ns(run)
    found: dict[tuple[str, str, int], list[tuple[KernelGroup, Operand]]] = {}
    waiting = [
        (g, operand)
        for g in run.npu.groups
        if _waits_for_reads(run, g, limits)
        and (operand := largest_operand(g.shapes, g.dtypes, g.formats)) is not None
    ]
    for group, operand in waiting:
        if not operand.aligned and operand.row_bytes >= limits.min_row_bytes:
            found.setdefault((group.op_type, group.phase, group.device), []).append((group, operand))
    for (op_type, _, _), same in found.items():
        best = max(
            (o.bytes / g.mean_ns for g, o in waiting if o.aligned and g.op_type == op_type), default=0.0
        )
        factors = [_factor(g, o, best) for g, o in same]
        if sum(g.total_ns * (1 - f) for (g, _), f in zip(same, factors, strict=True)) >= least:
            yield from _finding(run, same, factors, best, least)


def _waits_for_reads(run: Run, group: KernelGroup, limits: Limits) -> bool:
    if (
        group.pipes is None
        or group.core not in (CUBE, MIX_CUBE)
        or group.mean_ns < limits.min_kernel_us * 1000
    ):
        return False
    if kernel_family(group.op_type) not in FAMILIES:
        return False
    side, pipe, ratio = group.pipes.busiest
    if group.pipes.bound != "memory-bound" or pipe != "mte2" or side == "aiv" or ratio < BUSY:
        return False
    point = group.group.point if group.group is not None else None
    if point is not None and point.verdict in ("inefficient", "latency-bound"):
        return False
    return point is None or point.memory_share is None or point.memory_share < LOW


def _factor(group: KernelGroup, operand: Operand, best: float) -> float:
    """What would remain of the kernel: at the rate of aligned ones, but never less than its other pipes need."""
    assert group.pipes is not None
    rate = operand.bytes / max(group.mean_ns, 1)
    by_rate = rate / best if best else 0.0
    return min(1.0, max(group.pipes.best_factor, by_rate))


def _finding(
    run: Run, same: Sequence[tuple[KernelGroup, Operand]], factors: Sequence[float], best: float, least: float
) -> Iterator[Finding]:
    saved = saving(run, {int(r): f for (g, _), f in zip(same, factors, strict=True) for r in g.rows})
    if saved.ns < least:
        return
    worst, operand = max(same, key=lambda pair: pair[0].total_ns)
    assert worst.pipes is not None
    rows = np.concatenate([g.rows for g, _ in same])
    total = sum(g.total_ns for g, _ in same)
    compared = " than kernels of the same operator with aligned rows" if best else ""
    yield Finding(
        code=CODE,
        name=NAME,
        title=f"{worst.op_type} takes {duration(total)} and waits for reads of rows of {operand.row_bytes} bytes",
        lost_ns=total,
        recoverable_ns=saved.ns,
        confidence="medium" if best else "low",
        phase=worst.phase,
        where=Where(kernelwords.python_of(run, int(worst.rows[0])), run.npu.operator_of(int(worst.rows[0])), worst.kernel),
        detail=(
            f"{len(rows)} kernels, {share(total, run.work.total_ns)} of the device's work. The largest operand of the costliest is "
            f"{list(operand.shape)} of {operand.dtype}: its rows are no multiple of {BURST_BYTES} bytes. {worst.pipes.text[0].upper()}"
            f"{worst.pipes.text[1:]}, the cube less{', and data comes more slowly' + compared if best else ''}. Aligned, the run would be "
            f"up to {duration(saved.ns)} shorter ({saved.text})."
        ),
        advice="Pad the inner axis to a multiple of 512 bytes, or cast the weight to the cube's tiled layout once.",
        evidence=kernelwords.evidence(run, rows),
        facts=kernelwords.per_step(run, worst.phase, total)
        | {
            "calls": len(rows),
            "shape": list(operand.shape),
            "dtype": operand.dtype,
            "row_bytes": operand.row_bytes,
            "compared_with_aligned": bool(best),
            "priced_by": saved.by,
        },
        fix=saved.fix,
    )  # fmt: skip
