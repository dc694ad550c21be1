"""Operators that run on the NPU's few ordinary processors instead of its cores.

## What it finds
Kernels of task type AI_CPU of 20 us and more, taken together per operator, with the types of their inputs and what their
launches cost the host. Where the same operator also ran on AI cores in this recording, that is the measure of what it
could take; else the least a kernel takes. Where the device has time to spare and the recording cannot be replayed, the
kernels are named without a price.

## Why it costs time
An NPU has a handful of AI CPUs beside its cores. A kernel that has no version for the cores, or none for the types it is
given (64-bit floats, complex numbers, many 64-bit integers), runs there one element after the other, and the stream waits.

## What to try
Give the operator a type the cores know: float32 for double, int32 for int64 where the values fit. Replace operators whose
result's size depends on values (`nonzero`, `masked_select`, `unique`) by masks, and boolean indexing by `where`. Do small
bookkeeping on the host before the step.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers import kernelwords
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.gain import Saving, saving
from stallscope.analyzers.models.call import parse_dtype
from stallscope.analyzers.npu import AI_CPU, CORES, KernelGroup, op_type
from stallscope.analyzers.registry import NotAnalysable, limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler import kernels
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "NP801"
NAME = "ai-cpu-kernel"
NEEDS = {"device", "trusted_device"}

LEAST_KERNEL_NS = 2_000
"""No kernel is shorter than this, however little it does."""

SLOW_TYPES = {"fp64": "float32", "int64": "int32", "uint64": "int32", "uint32": "int32", "c64": "two float32 tensors",
              "c128": "two float32 tensors", "c32": "two float16 tensors", "uint16": "int32", "int16": "int32"}  # fmt: skip
"""Element types that few AI Core kernels know, and what to use instead (CANN operator lists)."""

VALUE_SIZED = ("NonZero", "MaskedSelect", "MaskedSelectV2", "MaskedSelectV3", "Unique", "UniqueV2", "UniqueConsecutive",
               "UniqueWithCountsAndSorting", "Where")  # fmt: skip
INDEXING = (
    "Index",
    "IndexPut",
    "IndexPutV2",
    "IndexPutWithSort",
    "LinearIndexV2",
    "ScatterNd",
    "ArgMin",
    "ArgMinV2",
)


@dataclass(frozen=True)
class Limits:
    """When AI CPU kernels are worth a finding."""

    min_share: float = limit(
        0.01, "Share of the run's time that moving them to AI cores must give back.",
        source="chosen by us: msprof-analyze reports any; under 1 % it is not worth a change",
    )  # fmt: skip
    min_kernel_us: float = limit(
        20, "The longest of an operator's kernels must take this long.", unit="us",
        source="msprof-analyze advisor, AI CPU rule",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per operator type, phase and device."""
    run.npu.need()
    if not (run.npu.core >= 0).any() and not _told_types(run):
        raise NotAnalysable("no kernel's task type was recorded, so those of AI CPUs cannot be told apart")
    least = limits.min_share * kernelwords.run_span_ns(run)
    for same in run.npu.by_operator(lambda g: g.core == AI_CPU):
        rows = np.concatenate([g.rows for g in same])
        durations = run.timeline.spans.dur_ns[rows]
        if int(durations.max()) >= limits.min_kernel_us * 1000 and int(durations.sum()) >= least:
            yield from _finding(run, same, rows, least)


def _told_types(run: Run) -> bool:
    keys = run.timeline.args.keys
    return "Accelerator Core" in keys or "Task Type" in keys


def _finding(
    run: Run, same: Sequence[KernelGroup], rows: np.ndarray[tuple[int], np.dtype[np.intp]], least: float
) -> Iterator[Finding]:
    spans = run.timeline.spans
    worst = max(same, key=lambda g: g.total_ns)
    on_cores = _on_cores_ns(run, worst.op_type)
    target = on_cores or LEAST_KERNEL_NS
    factors = {int(r): min(1.0, target / max(int(spans.dur_ns[r]), 1)) for r in rows}
    try:
        saved = saving(run, factors)
    except NotAnalysable as unknown:
        # that it runs there is certain, even where its price is not
        saved, worth = Saving(0, "unknown"), f"What AI cores would give back is not known: {unknown}."
    else:
        worth = f"On AI cores the run would be up to {duration(saved.ns)} shorter ({saved.text})."
        if saved.ns < least:
            return
    total = int(spans.dur_ns[rows].sum())
    launch = spans.launch_row[rows]
    host = int(spans.dur_ns[kernels.distinct(launch[launch >= 0])].sum())
    types = list(dict.fromkeys(t for g in same for t in g.dtypes if t))
    row = int(rows[np.argmax(spans.dur_ns[rows])])
    yield Finding(
        code=CODE,
        name=NAME,
        title=f"{worst.op_type} runs on AI CPUs for {duration(total)}, {share(total, run.work.total_ns)} of the device's work",
        lost_ns=total,
        recoverable_ns=saved.ns,
        confidence="medium" if on_cores else "low",
        phase=worst.phase,
        where=Where(kernelwords.python_of(run, row), run.npu.operator_of(row), worst.kernel),
        detail=_detail(run, same, len(rows), total, host, on_cores, types)
        + _own_table(run, worst.op_type)
        + f" {worth}",
        advice=_advice(worst.op_type, types),
        evidence=kernelwords.evidence(run, rows),
        facts=kernelwords.per_step(run, worst.phase, total)
        | {"kernels": len(rows), "input_types": types, "launch_ns": host, "priced_by": saved.by},
        fix=saved.fix,
    )


def _on_cores_ns(run: Run, kind: str) -> int:
    """What a kernel of this operator took on AI cores in this recording, 0 where none did."""
    there = [g for g in run.npu.groups if g.op_type == kind and g.core in CORES]
    return sum(g.total_ns for g in there) // max(sum(g.calls for g in there), 1)


def _own_table(run: Run, kind: str) -> str:
    """What the profiler's own AI CPU table (Level2) says of an operator type, as a sentence; "" if nothing."""
    ascend = run.session.facts.get("ascend", {})
    ranks = ascend.get("ranks", []) if isinstance(ascend, dict) else []
    rows = [
        row for rank in ranks for row in rank.get("aicpu", []) if op_type(str(row.get("node", ""))) == kind
    ]
    parts = [
        (sum(max(int(row.get(key) or 0), 0) for row in rows), word)
        for key, word in (
            ("compute_ns", "computing"),
            ("memcpy_ns", "copying"),
            ("dispatch_ns", "dispatching"),
        )
    ]
    if not any(ns for ns, _ in parts):
        return ""
    return f" The AI CPU spent {', '.join(f'{duration(ns)} {word}' for ns, word in parts)}."


def _detail(
    run: Run, same: Sequence[KernelGroup], count: int, total: int, host: int, on_cores: int, types: list[str]
) -> str:
    worst = max(same, key=lambda g: g.total_ns)
    parts = [f"{count} kernel{'s' if count != 1 else ''} of {duration(total // count)} on average"]
    if types:
        parts.append(f"with inputs of {', '.join(types[:4])}")
    if worst.shapes_text:
        parts.append(f"(the costliest {worst.shapes_text})")
    text = " ".join(parts) + "."
    if host:
        text += f" Their launch calls took the host {duration(host)}."
    if on_cores:
        text += f" On AI cores the same operator took {duration(on_cores)} a kernel in this recording."
    return text


def _advice(kind: str, types: list[str]) -> str:
    slow = [(t, SLOW_TYPES[d]) for t in types if (d := parse_dtype(t)) in SLOW_TYPES]
    if kind in VALUE_SIZED:
        return "Replace it by a mask or `torch.where`: the size of its result depends on values."
    if slow:
        told, instead = slow[0]
        return f"Cast its {told} input to {instead} before this operator, if the values fit."
    if kind in INDEXING:
        return "Index by `gather`, `index_select` or a mask with `where`, which have kernels for AI cores."
    return "Use an operator or an input type that has a kernel for AI cores."
