"""Long NPU kernels that leave cores empty: fewer blocks than cores, or a last round that is nearly empty.

## What it finds
Kernels of 20 us and more whose block count does not fill the cores of their kind: fewer blocks than cores, or one round more
than full ones would take. The core count comes from the recording (info.json), from the measured utilisation of the cube,
or from the chip's name; where none tells, nothing is claimed. Kernels that are bound by memory at the speed of memory are
left out, and so is what MB303 already says.

## Why it costs time
A kernel takes as long as its busiest core. Cores without a block do nothing while it runs.

## What to try
Split the work along another axis or into more pieces, batch several calls into one, pad or choose sizes that divide by the
core count, or let two such kernels run on two streams.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers import kernelwords
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.gain import saving
from stallscope.analyzers.models.roofline import LOW
from stallscope.analyzers.npu import CORES, MIX_VECTOR, VECTOR, KernelGroup
from stallscope.analyzers.registry import NotAnalysable, limit
from stallscope.analyzers.rules.small_grid_kernel import Limits as SmallGrid
from stallscope.analyzers.rules.small_grid_kernel import is_small
from stallscope.analyzers.units import duration, share
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "NP803"
NAME = "npu-core-use"
NEEDS = {"device", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When empty cores are worth a finding."""

    min_share: float = limit(
        0.03, "Share of the run's time that full cores must give back.", source="XProf calls 3 % of a step moderate"
    )  # fmt: skip
    min_kernel_us: float = limit(
        20, "Shorter kernels are bound by launch and ramp-up.", unit="us", source="msprof-analyze advisor"
    )  # fmt: skip
    max_fill: float = limit(
        0.85, "Share of the cores' time that blocks can use at the most.",
        source="chosen by us: below, the last round costs more than scheduling does",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per operator type, phase and device."""
    run.npu.need()
    if not (run.npu.blocks[run.npu.rows] > 0).any():
        raise NotAnalysable(
            "how many blocks kernels have was not recorded (Block Num: Level1, or Level0 with shapes)"
        )
    if not run.npu.cores:
        raise NotAnalysable(
            "the number of cores is not known: no info.json, no utilisation of the cube, and no known chip name"
        )
    least = limits.min_share * kernelwords.run_span_ns(run)
    for same in run.npu.by_operator(lambda g: _leaves_cores(run, g, limits)):
        if sum(g.total_ns * (1 - fill(run, g)) for g in same) >= least:
            yield from _finding(run, same, least)


def fill(run: Run, group: KernelGroup) -> float:
    """The share of its cores' time that a kernel's blocks can use; 1 where blocks or cores are not known.

    blocks / (cores x rounds), as each core takes one block at a time.
    """
    cores = run.npu.cores.get(group.device)
    if cores is None or not group.blocks or group.core not in CORES:
        return 1.0
    count = cores.of(group.core)
    return group.blocks / (count * -(-group.blocks // count))


def _leaves_cores(run: Run, group: KernelGroup, limits: Limits) -> bool:
    if group.mean_ns < limits.min_kernel_us * 1000 or fill(run, group) > limits.max_fill:
        return False
    point = group.group.point if group.group is not None else None
    if point is not None and point.memory_share is not None and point.memory_share >= LOW:
        return False
    return group.group is None or not is_small(run, group.group, SmallGrid())


def _finding(run: Run, same: Sequence[KernelGroup], least: float) -> Iterator[Finding]:
    saved = saving(run, {int(r): fill(run, g) for g in same for r in g.rows})
    if saved.ns < least:
        return
    worst = max(same, key=lambda g: g.total_ns * (1 - fill(run, g)))
    cores = run.npu.cores[worst.device]
    count = cores.of(worst.core)
    rows = np.concatenate([g.rows for g in same])
    total = sum(g.total_ns for g in same)
    pipes = f" {worst.pipes.text[0].upper()}{worst.pipes.text[1:]}." if worst.pipes is not None else ""
    yield Finding(
        code=CODE,
        name=NAME,
        title=f"{worst.op_type} takes {duration(total)} on {worst.blocks} blocks; the device has {count} {_kind(worst.core)}",
        lost_ns=total,
        recoverable_ns=saved.ns,
        confidence="low",
        phase=worst.phase,
        where=Where(kernelwords.python_of(run, int(worst.rows[0])), run.npu.operator_of(int(worst.rows[0])), worst.kernel),
        detail=(
            f"{len(rows)} kernels, {share(total, run.work.total_ns)} of the device's work; the costliest is "
            f"{worst.shapes_text or worst.kernel}, {duration(worst.mean_ns)} a call, with work for {100 * fill(run, worst):.0f} % of the "
            f"cores' time ({count} cores, {cores.source}).{pipes} With all cores at work the run would be up to "
            f"{duration(saved.ns)} shorter ({saved.text})."
        ),
        advice="Split the work over more blocks, batch several calls into one, or choose sizes that divide by the core count.",
        evidence=kernelwords.evidence(run, rows),
        facts=kernelwords.per_step(run, worst.phase, total)
        | {
            "calls": len(rows),
            "blocks": sorted({g.blocks or 0 for g in same}),
            "cores": count,
            "cores_source": cores.source,
            "priced_by": saved.by,
        },
        fix=saved.fix,
    )  # fmt: skip


def _kind(core: str) -> str:
    return "vector cores" if core in (VECTOR, MIX_VECTOR) else "cube cores"
