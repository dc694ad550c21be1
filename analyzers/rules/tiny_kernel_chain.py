"""Chains of tiny elementwise kernels that take longer to come and go than to work.

## What it finds
Three or more elementwise kernels, casts or copies on a stream, each writing what the next one reads, shorter than 10 us on
average. Other than LN401 it speaks of the device's own time in them, so it also holds inside of a graph replay that a
companion recording names.

## Why it costs time
A kernel needs about 2 us to start, spread over the chip and drain, whatever it computes. A norm in nine pieces pays that
nine times.

## What to try
Compile the chain, or use the fused operator the engine offers (norms, rotary embedding, activations, sampling).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stallscope.analyzers import kernelwords
from stallscope.analyzers.chains import Chain
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.gain import saving
from stallscope.analyzers.registry import limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "MB304"
NEEDS = {"device", "shapes", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When a chain of tiny kernels is worth a finding."""

    min_share: float = limit(
        0.03, "Share of the run's time that one kernel for the chain must give back.",
        source="XProf calls 3 % of a step moderate",
    )  # fmt: skip
    max_kernel_us: float = limit(
        10, "Longer kernels on average are bound by memory, see MB301.", unit="us",
        source="TensorRT-LLM perf-nsight-compute-analysis",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per chain."""
    kernelwords.need_launches(run)
    least = limits.min_share * kernelwords.run_span_ns(run)
    for chain in run.chains:
        if not chain.computes or chain.mean_kernel_ns >= limits.max_kernel_us * 1000:
            continue
        if chain.saved_share * chain.total_ns >= least:
            yield from _chain(run, chain, least)


def _chain(run: Run, chain: Chain, least: float) -> Iterator[Finding]:
    saved = saving(run, chain.fused(run.timeline.spans.dur_ns))
    if saved.ns < least:
        return
    first = int(chain.rows[0, 0])
    facts = kernelwords.per_step(run, chain.phase, chain.total_ns) | {
        "times": chain.times,
        "kernels": chain.length,
        "operators": list(chain.operators),
        "mean_kernel_ns": chain.mean_kernel_ns,
        "priced_by": saved.by,
    }
    yield Finding(
        code=CODE,
        name="tiny-kernel-chain",
        title=f"{chain.length} tiny kernels in a row{chain.title or ','} {chain.times} times, take {duration(chain.total_ns)}: {chain.name}",
        lost_ns=chain.total_ns,
        recoverable_ns=saved.ns,
        confidence="medium",
        phase=chain.phase,
        where=Where(kernelwords.python_of(run, first), chain.operators[0], chain.kernels[0]),
        detail=(
            f"{duration(chain.mean_kernel_ns)} a kernel, {share(chain.total_ns, run.work.total_ns)} of the device's work. Each writes "
            f"what the next one reads. One kernel for all would save up to {duration(saved.ns)} ({saved.text})."
        ),
        advice=kernelwords.fusing(run, chain),
        evidence=kernelwords.evidence(run, chain.rows.reshape(-1)),
        facts=facts,
        fix=saved.fix,
    )
