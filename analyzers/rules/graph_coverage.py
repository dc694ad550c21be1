"""Part of the decode steps is launched kernel by kernel although the run has captured graphs.

## What it finds
Decode steps that launch most of their kernels one by one while others of the same phase are replayed from a captured
graph (CUDA, HIP or ACL graph), so that graphs cover less than 80 % of the phase's kernels. What replaying those steps as
well would save is priced by replaying the recording. Runs without any graph are LN401's.

## Why it costs time
A replay is one launch. Launched one by one, a decode step waits for the host between short kernels, and steps of one
phase take different times.

## What to try
Capture the batch sizes that occur (the engine's list of capture sizes), pad to the next captured size, and look for what
makes a step fall back: a size over the largest captured one, logprobs, guided decoding, a LoRA, a mixed batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from stallscope.analyzers import kernelwords
from stallscope.analyzers.finding import Evidence, Finding, Where
from stallscope.analyzers.gain import replayable, why_not_replayable
from stallscope.analyzers.graphs import EAGER, WHOLE, StepUse
from stallscope.analyzers.registry import NotAnalysable, limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "GR501"
NEEDS = {"host", "device", "launches", "steps", "trusted_device"}

PHASES = ("decode", "other")
"""Phases that engines replay; a prompt's length differs each time."""


@dataclass(frozen=True)
class Limits:
    """When graphs cover too little."""

    min_coverage: float = limit(0.80, "Share of a phase's kernels that graphs must cover.",
                                source="TensorRT-LLM perf-host-analysis (graph coverage ratio); the value is ours")  # fmt: skip
    min_share: float = limit(
        0.03, "Share of the run's time that replaying the other steps must give back.",
        source="XProf calls 3 % of a step moderate",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per phase."""
    for phase in PHASES:
        uses = run.graphs.of_phase(phase)
        whole = [u for u in uses if u.coverage >= WHOLE]
        eager = [u for u in uses if u.coverage <= EAGER and len(u.launches) > 1]
        kernels = sum(u.replayed + u.eager for u in uses)
        if not whole or not eager or sum(u.replayed for u in uses) >= limits.min_coverage * kernels:
            continue
        if not replayable(run):
            raise NotAnalysable(f"what graphs would save cannot be priced: {why_not_replayable(run)}")
        # a graph shortens no kernel: it cannot save more than the device idles
        fix = run.graphs.as_graphs(eager)
        saved = min(run.replay.gain_ns(fix), run.graphs.idle_ns(eager))
        if saved >= limits.min_share * kernelwords.run_span_ns(run):
            yield replace(_finding(run, phase, uses, eager, saved), fix=fix)


def _finding(
    run: Run, phase: str, uses: Sequence[StepUse], eager: Sequence[StepUse], saved_ns: int
) -> Finding:
    lost = run.graphs.idle_ns(eager)
    kernels = sum(u.replayed + u.eager for u in uses)
    covered = sum(u.replayed for u in uses)
    sizes = _sizes(run, eager)
    facts: dict[str, Any] = {
        "steps": len(uses),
        "eager_steps": len(eager),
        "kernels": kernels,
        "replayed_kernels": covered,
        "eager_sizes": sizes,
        "per_step_ns": lost // len(uses),
        "priced_by": "replay",
    }
    said = f" (batch {', '.join(str(s) for s in sizes)})" if sizes else ""
    first = int(eager[0].launches[len(eager[0].launches) // 2])
    place = run.places.place(first)
    name = f"{phase} " if phase != "other" else ""
    return Finding(
        code=CODE,
        name="graph-coverage",
        title=f"{len(eager)} of {len(uses)} {name}steps{said} are launched kernel by kernel, the others are replayed from a graph",
        lost_ns=lost,
        recoverable_ns=saved_ns,
        confidence="high" if run.steps[eager[0].step].confidence == "high" else "medium",
        phase=phase,
        where=Where(place.python, place.operator or place.annotation, ""),
        detail=(
            f"Graphs cover {share(covered, kernels)} of the phase's kernels. Steps launched one by one take "
            f"{duration(_median(run, eager))}, replayed ones {duration(_median(run, [u for u in uses if u.coverage >= WHOLE]))}; the "
            f"device idles {duration(lost)} in them. As graphs they would save up to {duration(saved_ns)} (priced by replaying the "
            "recording)."
        ),
        advice="Capture the sizes that occur, or pad to a captured one; find what makes these steps fall back.",
        evidence=tuple(
            Evidence(s.track, s.start_ns, s.end_ns, f"{s.name} launched one by one"[:120])
            for s in (run.steps[u.step] for u in eager[: kernelwords.EVIDENCE])
        ),
        facts=facts,
    )


def _sizes(run: Run, uses: Sequence[StepUse]) -> list[int]:
    found = {run.steps[u.step].facts.get("batch") for u in uses}
    return sorted(int(b) for b in found if isinstance(b, int))[:8]


def _median(run: Run, uses: Sequence[StepUse]) -> int:
    return int(np.median([run.steps[u.step].dur_ns for u in uses]))
