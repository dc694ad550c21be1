"""Kernels that wait for memory to move bytes that need not be moved.

## What it finds
Two kinds of bytes that can be saved. *Chains*: three or more elementwise kernels, casts or copies on a stream, each
writing what the next one reads, long enough to be bound by memory; one fused kernel would read the inputs and write
the result once. *Wide types*: matrix products in 32 bits, near the memory roof, in a phase whose other products run in 16.
A kernel that is memory-bound and moves only what it must is no finding; the roofline table shows it.

## Why it costs time
A memory-bound kernel takes as long as its bytes take. Faster arithmetic or more cores do not help, fewer bytes do.

## What to try
Compile the chain (`torch.compile`, a fused kernel for norms, rotary embedding, activations), or call the fused operator
the engine offers. Load the weight and compute in bfloat16 where its precision is enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers import kernelwords
from stallscope.analyzers.chains import Chain
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.gain import saving
from stallscope.analyzers.models.call import bits
from stallscope.analyzers.models.roofline import IMPOSSIBLE, LOW
from stallscope.analyzers.registry import limit
from stallscope.analyzers.units import duration, share, size
from stallscope.analyzers.work import Group
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "MB301"
NEEDS = {"device", "shapes", "trusted_device"}

WIDE = ("fp32", "fp64")
NARROW = ("fp16", "bf16", "fp8", "int8")


@dataclass(frozen=True)
class Limits:
    """When bytes that could be saved are worth a finding."""

    min_share: float = limit(
        0.03, "Share of the run's time that saving the bytes must give back.",
        source="XProf calls 3 % of a step moderate",
    )  # fmt: skip
    min_kernel_us: float = limit(
        10, "Chains of kernels shorter than this on average are bound by latency, see MB304.", unit="us",
        source="TensorRT-LLM perf-nsight-compute-analysis",
    )  # fmt: skip
    narrow_share: float = limit(
        0.5, "Share of a phase's other matrix time that must run in 16 bits or fewer before 32 are called wide.",
        source="chosen by us: a run that is all in 32 bits has its reasons",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per chain, and one per operator in a wide type."""
    kernelwords.need_launches(run)
    least = limits.min_share * kernelwords.run_span_ns(run)
    for chain in run.chains:
        if not chain.computes or chain.mean_kernel_ns < limits.min_kernel_us * 1000:
            continue
        if chain.saved_share * chain.total_ns >= least:
            yield from _chain(run, chain, least)
    for same in kernelwords.by_operator([g for g in run.work.groups if _is_wide(run, g, limits)]):
        if sum(g.total_ns for g in same) / 2 >= least:
            yield from _wide(run, same, least)


def _chain(run: Run, chain: Chain, least: float) -> Iterator[Finding]:
    saved = saving(run, chain.fused(run.timeline.spans.dur_ns))
    if saved.ns < least:
        return
    facts = kernelwords.per_step(run, chain.phase, chain.total_ns) | {
        "times": chain.times,
        "kernels": chain.length,
        "operators": list(chain.operators),
        "bytes": chain.bytes,
        "fused_bytes": chain.fused_bytes,
        "priced_by": saved.by,
    }
    first = int(chain.rows[0, 0])
    yield Finding(
        code=CODE,
        name="memory-bound-kernel",
        title=(
            f"{chain.length} elementwise kernels in a row{chain.title} take {duration(chain.total_ns)} and move {size(chain.bytes)}; "
            f"fused they would move {size(chain.fused_bytes)}"
        ),
        lost_ns=chain.total_ns,
        recoverable_ns=saved.ns,
        confidence="medium",
        phase=chain.phase,
        where=Where(kernelwords.python_of(run, first), chain.operators[0], chain.kernels[0]),
        detail=(
            f"{chain.name}, {chain.times} times, {share(chain.total_ns, run.work.total_ns)} of the device's work. Each writes what "
            f"the next one reads. One kernel for all would save up to {duration(saved.ns)} ({saved.text}); less if "
            "intermediate results are needed elsewhere."
        ),
        advice=kernelwords.fusing(run, chain),
        evidence=kernelwords.evidence(run, chain.rows.reshape(-1)),
        facts=facts,
        fix=saved.fix,
    )


def _is_wide(run: Run, group: Group, limits: Limits) -> bool:
    """A product in 32 bits or more, bound by memory, where the phase's other products are narrow."""
    cost, point = group.cost, group.point
    if cost is None or point is None or cost.basis != "shapes" or cost.unit != "matrix":
        return False
    # whichever way the arithmetic was done (FP32 or TF32), memory binds if its roof is reached
    if cost.dtype not in WIDE or point.memory_share is None or not LOW <= point.memory_share <= IMPOSSIBLE:
        return False
    others = [
        g
        for g in run.work.groups
        if g.cost is not None
        and g.cost.unit == "matrix"
        and g.phase == group.phase
        and g.operator
        and g is not group
    ]
    total = sum(g.total_ns for g in others if g.cost is not None and g.cost.dtype != cost.dtype)
    narrow = sum(g.total_ns for g in others if g.cost is not None and g.cost.dtype in NARROW)
    return total > 0 and narrow >= limits.narrow_share * total and narrow > 0


def _wide(run: Run, same: Sequence[Group], least: float) -> Iterator[Finding]:
    worst = max(same, key=lambda g: g.total_ns)
    assert worst.cost is not None
    factors = {int(r): 16 / bits(g.cost.dtype) for g in same if g.cost is not None for r in g.rows}
    saved = saving(run, factors)
    if saved.ns < least:
        return
    total = sum(g.total_ns for g in same)
    moved = sum(g.cost.bytes * g.calls for g in same if g.cost is not None)
    rows = np.concatenate([g.rows for g in same])
    yield Finding(
        code=CODE,
        name="memory-bound-kernel",
        title=f"{worst.operator} takes {duration(total)} to move {size(moved)} in {worst.cost.dtype}; in bf16 it were half",
        lost_ns=total,
        recoverable_ns=saved.ns,
        confidence="medium",
        phase=worst.phase,
        where=Where(kernelwords.python_of(run, int(worst.rows[-1])), worst.operator, worst.kernel),
        detail=(
            f"{sum(g.calls for g in same)} calls ({worst.shapes}), {share(total, run.work.total_ns)} of the device's work, at the "
            f"memory roof, while other products of the {worst.phase or 'run'} run in 16 bits. Half the bytes would save up to "
            f"{duration(saved.ns)} ({saved.text})."
        ),
        advice="Keep this weight and its input in bfloat16 if the result is good enough.",
        evidence=kernelwords.evidence(run, rows),
        facts=kernelwords.per_step(run, worst.phase, total)
        | {"bytes": moved, "dtype": worst.cost.dtype, "priced_by": saved.by},
        fix=saved.fix,
    )
