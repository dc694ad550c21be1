"""Steps are padded to a captured batch size far above what they serve.

## What it finds
Steps whose graph was captured for more requests (or tokens) than the step holds, where the engine's annotation, a mark or a
companion recording tells both. Only work that grows with the batch is counted: elementwise kernels, norms and products
bound by arithmetic. Reading the weights costs the same for one request as for a full batch, so padding is free there.

## Why it costs time
The padded rows are computed like the others and thrown away.

## What to try
Capture more sizes around those that occur, so that the next captured one is nearer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from stallscope.analyzers import kernelwords
from stallscope.analyzers.finding import Evidence, Finding
from stallscope.analyzers.gain import Saving, saving
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.registry import NotAnalysable, NotApplicable, limit
from stallscope.analyzers.units import duration, share
from stallscope.analyzers.work import Group
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "GR503"
NEEDS = {"device", "launches", "steps", "trusted_device"}

_GROWS = (
    Family.ELEMENTWISE,
    Family.NORM,
    Family.ROPE,
    Family.SOFTMAX,
    Family.COPY,
    Family.QUANTISE,
    Family.KV_CACHE,
    Family.SAMPLING,
)


@dataclass(frozen=True)
class Padded:
    """One padded step: its index, what it holds and what its graph was made for."""

    step: int
    size: int
    bucket: int

    @property
    def waste(self) -> float:
        return 1 - self.size / self.bucket


@dataclass(frozen=True)
class Limits:
    """When padding is worth a finding."""

    min_share: float = limit(
        0.03,
        "Share of the run's time that the padding must cost.",
        source="XProf calls 3 % of a step moderate",
    )
    min_waste: float = limit(0.10, "Share of a captured batch that must be padding.",
                             source="chosen by us: XProf's inference statistics list padding per batch without a limit")  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding for the run."""
    told = list(_padded(run))
    if not told:
        raise NotApplicable("no step tells both its size and the size its graph was captured for")
    wasteful = [p for p in told if p.waste >= limits.min_waste]
    if not wasteful:
        return
    factors = _factors(run, {p.step: p for p in wasteful})
    if factors is None:
        raise NotAnalysable(
            "what padding costs is not known: the replayed kernels have no operators (see --companion)"
        )
    saved = saving(run, factors) if factors else None
    if saved is not None and saved.ns >= limits.min_share * kernelwords.run_span_ns(run):
        yield _finding(run, wasteful, saved)


def _padded(run: Run) -> Iterator[Padded]:
    """Steps that tell both sizes."""
    buckets: dict[int, int] = {}
    companion = run.work.companion
    if companion is not None and len(run.work.calls) and not companion.match.refusal:
        for launch, made_for in companion.match.buckets.items():
            buckets.setdefault(int(run.step_of_row[launch]), made_for)
    for i, step in enumerate(run.steps):
        bucket: Any = step.facts.get("bucket", buckets.get(i))
        keys = ("batch", "tokens") if step.phase == "decode" else ("tokens", "batch")
        size = next((step.facts[k] for k in keys if isinstance(step.facts.get(k), int)), 0)
        if isinstance(bucket, int) and 0 < size <= bucket:
            yield Padded(i, size, bucket)


def _factors(run: Run, padded: dict[int, Padded]) -> dict[int, float] | None:
    """What would remain of each kernel that grows with the batch; None if no kernel of these steps is known."""
    factors: dict[int, float] = {}
    known = False
    for group in run.work.groups:
        known |= group.cost is not None and any(int(s) in padded for s in run.step_of_row[group.rows])
        if not _grows(group):
            continue
        for row in group.rows.tolist():
            found = padded.get(int(run.step_of_row[row]))
            if found is not None:
                factors[row] = 1 - found.waste
    return factors if known else None


def _grows(group: Group) -> bool:
    """Whether a group's time grows with the batch: not where weights bound it, nor where a launch does."""
    if group.point is None or group.cost is None or group.point.verdict in ("latency-bound", "unknown"):
        return False
    return group.family in _GROWS or group.point.roof == "compute"


def _finding(run: Run, padded: list[Padded], saved: Saving) -> Finding:
    held, made = sum(p.size for p in padded), sum(p.bucket for p in padded)
    worst = max(padded, key=lambda p: p.waste)
    sizes: dict[str, Any] = {}
    for p in padded:
        key = f"{p.size} in {p.bucket}"
        sizes[key] = sizes.get(key, 0) + 1
    phases = {run.steps[p.step].phase for p in padded}
    steps = [run.steps[p.step] for p in sorted(padded, key=lambda p: -p.waste)[: kernelwords.EVIDENCE]]
    return Finding(
        code=CODE,
        name="graph-padding",
        title=f"{share(made - held, made)} of what {len(padded)} replayed steps compute is padding",
        lost_ns=saved.ns,
        recoverable_ns=saved.ns,
        confidence="medium",
        phase=phases.pop() if len(phases) == 1 else "",
        detail=(
            f"They hold {held / len(padded):.0f} and are padded to {made / len(padded):.0f} on average; the worst has {worst.size} in a graph "
            f"for {worst.bucket}. Work that grows with the batch would save up to {duration(saved.ns)} without it ({saved.text})."
        ),
        advice="Capture more sizes around those that occur.",
        evidence=tuple(Evidence(s.track, s.start_ns, s.end_ns, s.name[:120]) for s in steps),
        facts={
            "steps": len(padded),
            "sizes": sizes,
            "waste": round(1 - held / made, 4),
            "priced_by": saved.by,
        },
        fix=saved.fix,
    )
