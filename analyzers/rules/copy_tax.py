"""The device spends its time on casts, copies and transpositions instead of the model's arithmetic.

## What it finds
Kernels of operators that only change a tensor's type or layout (`to`, `copy_`, `contiguous`, `clone`, transpositions), and
copies within device memory, taken together per phase. On an NPU also those kernels inside of other operators (TransData,
Cast, Transpose, TensorMove, Slice, ZerosLike around a convolution or a product), with the kernels they stand between.
Copies from and to the host are SY203; casts inside of a chain that could be fused are MB301 and MB304; writing the
key-value cache is work.

## Why it costs time
Each reads and writes all of its tensor at the speed of memory and computes nothing.

## What to try
Keep one type and one layout through the model: load weights in the type they are used in, pass strides the next kernel
accepts, drop `.contiguous()` where nothing needs it, let a fused kernel cast on the way. NPU: store weights in the layout
their kernel wants once (`torch_npu.npu_format_cast`), or turn private layouts off
(`torch.npu.config.allow_internal_format = False`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers import kernelwords
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.gain import saving
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.registry import NotAnalysable, limit
from stallscope.analyzers.units import duration, share
from stallscope.analyzers.work import copies_within_device
from stallscope.profiler import kernels
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "MB305"
NEEDS = {"device", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When the tax is worth a finding."""

    min_share: float = limit(
        0.05, "Share of the run's time that these kernels must cost.",
        source="TraceLens' agent rules: memory copies over 5 %",
    )  # fmt: skip


@dataclass(frozen=True)
class Part:
    """Kernels of one conversion: `name` is its operator, or its type where it is a part of another operator."""

    name: str
    kernel: str
    shapes: str
    phase: str
    device: int
    rows: Int64
    total_ns: int


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per phase and device."""
    if "operators" not in run.has and not run.npu.groups:
        raise NotAnalysable("no framework operators were recorded, and no operator types of kernels")
    least = limits.min_share * kernelwords.run_span_ns(run)
    taxed: dict[tuple[str, int], list[Part]] = {}
    for part in [*_of_operators(run), *_inside_operators(run)]:
        taxed.setdefault((part.phase, part.device), []).append(part)
    for (phase, _), parts in taxed.items():
        if sum(p.total_ns for p in parts) >= least:
            yield from _finding(run, phase, parts, least)


def _of_operators(run: Run) -> Iterator[Part]:
    """Operators that are conversions, with all of their kernels."""
    fused = kernelwords.in_chains(run)
    for g in run.work.groups:
        if g.family is Family.COPY and g.operator in kernelwords.CONVERSIONS:
            rows = g.rows[~fused[g.rows] & copies_within_device(run.timeline, g.rows)]
            if len(rows):
                total = int(run.timeline.spans.dur_ns[rows].sum())
                yield Part(g.operator, g.kernel, g.shapes, g.phase, g.device, rows, total)


def _inside_operators(run: Run) -> Iterator[Part]:
    """Kernels of NPUs that convert on behalf of another operator: those of no conversion operator."""
    fused = kernelwords.in_chains(run)
    counted = np.zeros(len(run.timeline), bool)
    for g in run.work.groups:
        counted[g.rows] = g.family is Family.COPY and g.operator in kernelwords.CONVERSIONS
    for group in run.npu.groups:
        if group.op_type in kernelwords.NPU_CONVERSIONS:
            rows = group.rows[~fused[group.rows] & ~counted[group.rows]].astype(np.int64)
            if len(rows):
                total = int(run.timeline.spans.dur_ns[rows].sum())
                yield Part(
                    group.op_type, group.kernel, group.shapes_text, group.phase, group.device, rows, total
                )


def _finding(run: Run, phase: str, parts: Sequence[Part], least: float) -> Iterator[Finding]:
    rows = np.concatenate([p.rows for p in parts])
    saved = saving(run, dict.fromkeys(rows.tolist(), 0.0))
    if saved.ns < least:
        return
    sums: dict[str, int] = {}
    for part in parts:
        sums[part.name] = sums.get(part.name, 0) + part.total_ns
    total = sum(sums.values())
    largest = max(parts, key=lambda p: p.total_ns)
    first = max(sums, key=lambda name: sums[name])
    named = ", ".join(f"{name} {duration(ns)}" for name, ns in sorted(sums.items(), key=lambda i: -i[1])[:4])
    around = _neighbours(run, np.concatenate([p.rows for p in parts if p.name == first]))
    between = f" {first} stands most often between {around[0]} and {around[1]}." if around else ""
    yield Finding(
        code=CODE,
        name="copy-tax",
        title=f"Casts, copies and transpositions take {duration(total)}, {share(total, run.work.total_ns)} of the device's work",
        lost_ns=total,
        recoverable_ns=saved.ns,
        confidence="medium" if saved.by == "replay" else "low",
        phase=phase,
        where=Where(
            kernelwords.python_of(run, int(largest.rows[0])), _operator(run, largest), largest.kernel
        ),
        detail=(
            f"{len(rows)} kernels: {named}. The largest is {largest.name} {largest.shapes}.{between} Without any of them the run would "
            f"be up to {duration(saved.ns)} shorter ({saved.text}); those that are needed stay."
        ),
        advice=_advice(first),
        evidence=kernelwords.evidence(run, rows),
        facts=kernelwords.per_step(run, phase, total)
        | {"kernels": len(rows), "operators_ns": sums, "priced_by": saved.by}
        | ({"between": list(around)} if around else {}),
        fix=saved.fix,
    )


def _operator(run: Run, part: Part) -> str:
    """The framework operator a conversion belongs to, where one was recorded."""
    return run.places.name(run.operator_of(int(part.rows[0]))) or part.name


def _neighbours(run: Run, rows: npt.NDArray[np.int64]) -> tuple[str, str] | None:
    """The operator types that some NPU kernels most often stand between on their stream; None on other devices."""
    if not run.npu.present or len(rows) == 0:
        return None
    codes, texts = run.npu.types
    spans = run.timeline.spans
    kernel = run.work.device_rows[spans.kind[run.work.device_rows] == Kind.KERNEL]
    kernel = kernel[np.lexsort((spans.start_ns[kernel], spans.track[kernel]))]
    at = np.flatnonzero(kernels.among(kernel, rows))
    at = at[(at > 0) & (at < len(kernel) - 1)]
    same = (spans.track[kernel[at - 1]] == spans.track[kernel[at]]) & (
        spans.track[kernel[at + 1]] == spans.track[kernel[at]]
    )
    at = at[same]
    if len(at) == 0:
        return None
    pairs, count = np.unique(
        np.stack([codes[kernel[at - 1]], codes[kernel[at + 1]]]), axis=1, return_counts=True
    )
    before, after = pairs[:, int(np.argmax(count))]
    return texts[int(before)], texts[int(after)]


def _advice(first: str) -> str:
    if first in ("TransData", "FormatCast", "npu::npu_format_cast"):
        return (
            "Store weights in the layout their kernels want once (torch_npu.npu_format_cast), or turn private layouts off "
            "(torch.npu.config.allow_internal_format = False)."
        )
    return "Keep one type and one layout through the model; drop conversions that nothing needs."
