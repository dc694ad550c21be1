"""Long NPU kernels in which no pipe is busy, or only the scalar unit is.

## What it finds
Kernels of 20 us and more for which the profiler recorded how busy each pipe of the cores was (PipeUtilization), and whose
time went to none that does the work: either the scalar unit was busy at least 80 % of the time, or no pipe reached 80 %.
A kernel bound by the cube, the vector unit or by moving data is no finding here; the table of pipes names what binds each.
Kernels whose shapes and chip already tell their distance from the roof (MB302, MB303), and those that leave cores empty
(NP803), are not told twice.

## Why it costs time
Pipes work side by side only if the next tile is fetched while this one is computed. Tiles too small or too few, short inner
axes, and much index arithmetic leave each pipe waiting for another. In a kernel on both kinds of cores, cube and vector
cores wait for each other.

## What to try
Another operator or layout for the same step: contiguous inputs, larger tiles (batch more), a fused kernel instead of
attention in pieces, an up-to-date operator package. Operators you wrote yourself: double buffering, fewer scalar steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers import kernelwords
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.gain import saving
from stallscope.analyzers.npu import CORES, KernelGroup
from stallscope.analyzers.pipes import Pipes
from stallscope.analyzers.registry import limit
from stallscope.analyzers.rules.npu_core_use import fill
from stallscope.analyzers.units import duration, share
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "NP802"
NAME = "npu-pipes-idle"
NEEDS = {"device", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When waiting pipes are worth a finding."""

    min_share: float = limit(
        0.05, "Share of the run's time that busy pipes must give back.",
        source="as for MB302: tuning one operator for less is seldom worth it",
    )  # fmt: skip
    min_kernel_us: float = limit(
        20, "Shorter kernels never fill their pipes.", unit="us", source="msprof-analyze advisor, operator no bound"
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per operator type, phase and device."""
    run.npu.need()
    run.npu.need_pipes()
    least = limits.min_share * kernelwords.run_span_ns(run)
    for same in run.npu.by_operator(lambda g: _waits(run, g, limits)):
        if sum(g.total_ns * (1 - _factor(g)) for g in same) >= least:
            yield from _finding(run, same, least)


def _waits(run: Run, group: KernelGroup, limits: Limits) -> bool:
    if group.pipes is None or group.core not in CORES or group.mean_ns < limits.min_kernel_us * 1000:
        return False
    if group.pipes.bound not in ("unbound", "scalar-bound"):
        return False
    point = group.group.point if group.group is not None else None
    if point is not None and point.verdict in (
        "inefficient",
        "latency-bound",
        "memory-bound",
        "compute-bound",
    ):
        return False
    return fill(run, group) >= 1.0


def _factor(group: KernelGroup) -> float:
    return group.pipes.best_factor if group.pipes is not None else 1.0


def _finding(run: Run, same: Sequence[KernelGroup], least: float) -> Iterator[Finding]:
    saved = saving(run, {int(r): _factor(g) for g in same for r in g.rows})
    if saved.ns < least:
        return
    worst = max(same, key=lambda g: g.total_ns * (1 - _factor(g)))
    assert worst.pipes is not None
    rows = np.concatenate([g.rows for g in same])
    total = sum(g.total_ns for g in same)
    side, pipe, ratio = worst.pipes.busiest
    yield Finding(
        code=CODE,
        name=NAME,
        title=_title(worst.op_type, total, worst.pipes),
        lost_ns=total,
        recoverable_ns=saved.ns,
        confidence="low",
        phase=worst.phase,
        where=Where(kernelwords.python_of(run, int(worst.rows[0])), run.npu.operator_of(int(worst.rows[0])), worst.kernel),
        detail=(
            f"{len(rows)} kernels on {worst.core}, {share(total, run.work.total_ns)} of the device's work; the costliest is "
            f"{worst.shapes_text or worst.kernel}, {duration(worst.mean_ns)} a call. {_told(worst.pipes)} With pipes that do not "
            f"wait for each other the run would be up to {duration(saved.ns)} shorter ({saved.text})."
        ),
        advice=_advice(worst.pipes),
        evidence=kernelwords.evidence(run, rows),
        facts=kernelwords.per_step(run, worst.phase, total)
        | {
            "calls": len(rows),
            "bound": worst.pipes.bound,
            "busiest_pipe": f"{side}_{pipe}" if side else pipe,
            "busy": round(ratio, 4),
            "ratios": {f"{s}_{p}" if s else p: round(r, 4) for (s, p), r in worst.pipes.ratios.items()},
            "priced_by": saved.by,
        },
        fix=saved.fix,
    )  # fmt: skip


def _title(op_type: str, total: int, pipes: Pipes) -> str:
    _, _, ratio = pipes.busiest
    if pipes.bound == "scalar-bound":
        return f"{op_type} takes {duration(total)}, most of it in scalar code"
    return f"{op_type} takes {duration(total)} and no pipe is busy more than {100 * ratio:.0f} % of it"


def _told(pipes: Pipes) -> str:
    text = pipes.text[0].upper() + pipes.text[1:]
    if pipes.bound == "scalar-bound":
        return f"{text}, the pipes that do the work less."
    if pipes.mixed:
        cube = max((r for (side, _), r in pipes.ratios.items() if side == "aic"), default=0.0)
        vector = max(
            (r for (side, p), r in pipes.ratios.items() if side == "aiv" and p != "scalar"), default=0.0
        )
        return f"{text} at the most (cube side {100 * cube:.0f} %, vector side {100 * vector:.0f} %): cube and vector cores wait for each other."
    return f"{text} at the most: they wait for each other."


def _advice(pipes: Pipes) -> str:
    if pipes.bound == "scalar-bound":
        return "Use an operator or a layout with less index arithmetic: contiguous inputs, longer inner axes, a fused kernel."
    return "Try larger tiles (batch more), contiguous inputs, a fused or newer kernel; tune operators of your own."
