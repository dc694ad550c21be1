"""Kernels in a row on an NPU that one fused operator of torch_npu would do at once.

## What it finds
Sequences of neighbours on a stream, by operator type, for which torch_npu has a fused operator: residual and RMS norm,
norms, SwiGLU, rotary embedding and attention in pieces, routing, quantisation after a norm. Each must pass data on (the
largest input of a later kernel is as large as a tensor that an earlier one wrote or read) and occur at least five times. What MB301 and MB304 say of
chains is not said again.

## Why it costs time
Every kernel reads its inputs from memory and writes its result back, and takes some microseconds to start. The fused
operator moves the data once. Counted is the time beyond the longest kernel of each sequence.

## What to try
Call the fused operator (`torch_npu.npu_add_rms_norm`, `npu_swiglu`, `npu_rotary_mul`, `npu_fused_infer_attention_score`...), or
switch on the engine's fused layers.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from stallscope.analyzers import kernelwords
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.fusion import Pattern, letter, matches
from stallscope.analyzers.gain import saving
from stallscope.analyzers.registry import NotAnalysable, limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler import kernels
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "NP806"
NAME = "npu-fusible"
NEEDS = {"device", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When a fused operator is worth a finding."""

    min_share: float = limit(
        0.03, "Share of the run's time that the fused operator must give back.", source="XProf calls 3 % of a step moderate"
    )  # fmt: skip
    min_times: float = limit(
        5, "How often a sequence must occur.", source="msprof-analyze advisor, fusible sequences"
    )


@dataclass
class Found:
    """All places of one pattern in one phase on one device: `places` holds the rows of each, in order."""

    pattern: Pattern
    phase: str
    places: list[Int64] = field(default_factory=list)
    factors: dict[int, float] = field(default_factory=dict)
    total_ns: int = 0


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per pattern, phase and device."""
    run.npu.need()
    if "Input Shapes" not in run.timeline.args.keys:
        raise NotAnalysable(
            "shapes of kernels were not recorded, so what one passes to the next is not known"
        )
    least = limits.min_share * kernelwords.run_span_ns(run)
    for found in _found(run):
        gain = sum(int(run.timeline.spans.dur_ns[r]) * (1 - f) for r, f in found.factors.items())
        if len(found.places) >= limits.min_times and gain >= least:
            yield from _finding(run, found, least)


def _found(run: Run) -> list[Found]:
    """Every pattern wherever it occurs outside of chains that MB301 and MB304 speak of."""
    work, spans = run.work, run.timeline.spans
    rows = work.device_rows
    told = kernelwords.in_chains(run)
    rows = rows[np.lexsort((spans.start_ns[rows], spans.track[rows]))].astype(np.int64)
    codes, texts = run.npu.types
    letters = np.array([letter(t) for t in texts] + ["."])
    sizes = _Sizes(run, rows)
    found: dict[tuple[str, str, int], Found] = {}
    for pattern, start, end in matches("".join(letters[codes[rows]])):
        mine = rows[start:end]
        phases = kernels.distinct(work.phase_of_row[mine])
        if len(kernels.distinct(spans.track[mine])) > 1 or len(phases) > 1 or told[mine].any():
            continue
        if not sizes.pass_on(start, end):
            continue
        phase, device = work.phase_names[int(phases[0])], int(work.device_of(mine[0]))
        _add(
            found.setdefault((pattern.fused, phase, device), Found(pattern, phase)), mine, spans.dur_ns[mine]
        )
    return list(found.values())


class _Sizes:
    """Element counts of the tensors of some kernels, worked out once per distinct shapes."""

    def __init__(self, run: Run, rows: Int64) -> None:
        self.read, read = run.timeline.arg_values("Input Shapes", rows)
        self.written, written = run.timeline.arg_values("Output Shapes", rows)
        self.of_read = [*(_sizes(v) for v in read), frozenset[int]()]
        self.of_written = [*(_sizes(v) for v in written), frozenset[int]()]

    def pass_on(self, start: int, end: int) -> bool:
        """Whether the largest input of each kernel after the first is of a size that one before it wrote or read."""
        seen: set[int] = set()
        for at in range(start, end):
            given = self.of_read[int(self.read[at])]
            if at > start and max(given, default=0) not in seen:
                return False
            seen |= given | self.of_written[int(self.written[at])]
        return True


def _sizes(shapes: Any) -> frozenset[int]:
    """Element counts of a kernel's tensors; numbers of one element pass nothing on."""
    if not isinstance(shapes, list):
        return frozenset()
    counts = (
        math.prod(s) for s in shapes if isinstance(s, list) and s and all(isinstance(n, int) for n in s)
    )
    return frozenset(n for n in counts if n > 1)


def _add(found: Found, rows: Int64, durations: Int64) -> None:
    longest = int(np.argmax(durations))
    found.places.append(rows)
    found.total_ns += int(durations.sum())
    found.factors |= {int(r): float(i == longest) for i, r in enumerate(rows.tolist())}


def _finding(run: Run, found: Found, least: float) -> Iterator[Finding]:
    saved = saving(run, found.factors)
    if saved.ns < least:
        return
    first = found.places[0]
    names = [run.npu.type_of(int(r)) for r in first]
    rows = np.concatenate(found.places)
    yield Finding(
        code=CODE,
        name=NAME,
        title=f"{found.pattern.name[0].upper()}{found.pattern.name[1:]}, {len(found.places)} times, takes {duration(found.total_ns)}; {found.pattern.fused} does it in one kernel",
        lost_ns=found.total_ns,
        recoverable_ns=saved.ns,
        confidence="low",
        phase=found.phase,
        where=Where(kernelwords.python_of(run, int(first[0])), run.npu.operator_of(int(first[0])), run.timeline.name(int(first[0]))),
        detail=(
            f"{', '.join(names)} in a row, {share(found.total_ns, run.work.total_ns)} of the device's work. If one kernel took as long as "
            f"the longest of them, the run would be up to {duration(saved.ns)} shorter ({saved.text})."
        ),
        advice=f"Call torch_npu.{found.pattern.fused}, or switch on the engine's fused layer.",
        evidence=kernelwords.evidence(run, rows),
        facts=kernelwords.per_step(run, found.phase, found.total_ns)
        | {"times": len(found.places), "operators": names, "fused": found.pattern.fused, "priced_by": saved.by},
        fix=saved.fix,
    )  # fmt: skip
