"""What the rules on kernels share: where a kernel was launched, the spans that prove a finding, and steps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Confidence, Evidence
from stallscope.analyzers.fusion import offered
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.npu import AI_CPU
from stallscope.analyzers.registry import NotAnalysable
from stallscope.analyzers.work import Group
from stallscope.profiler.kinds import DEVICE_WORK

if TYPE_CHECKING:
    from stallscope.analyzers.chains import Chain
    from stallscope.analyzers.run import Run

NPU_CONVERSIONS = (
    "Cast", "TransData", "Transpose", "TransposeD", "TensorMove", "ViewCopy", "AsStrided", "Contiguous", "Identity",
    "FormatCast", "Slice", "SliceD", "StridedSlice", "StridedSliceD", "ZerosLike",
)  # fmt: skip
"""Operator types of NPU kernels that only change a tensor's type or layout, cut a part of it out, or clear it."""

CONVERSIONS = (
    "aten::to", "aten::_to_copy", "aten::copy_", "aten::contiguous", "aten::clone", "aten::type_as", "aten::transpose",
    "aten::permute", "aten::_conj_physical", "npu::npu_format_cast", "npu::npu_dtype_cast", "npu::npu_transpose",
    *NPU_CONVERSIONS,
)  # fmt: skip
"""Operators that only change a tensor's type or layout."""

EVIDENCE = 5
"""Spans a finding shows at most; the longest ones."""


def python_of(run: Run, row: int) -> str:
    """The user frame that launched a device row (or its like, for one launched before the recording); "" if unknown."""
    call = int(run.work.call_of_row[row])
    launch = int(run.timeline.spans.launch_row[row])
    at = int(run.work.calls.op_row[call]) if call >= 0 else launch
    if at < 0 or (launch >= 0 and run.is_graph_launch[launch]) or run.timeline.spans.kind[at] in DEVICE_WORK:
        return ""
    return run.places.place(at).python


def evidence(run: Run, rows: npt.NDArray[Any]) -> tuple[Evidence, ...]:
    """The longest of some device rows."""
    spans = run.timeline.spans
    longest = rows[np.argsort(-spans.dur_ns[rows], kind="stable")[:EVIDENCE]]
    return tuple(
        Evidence(
            int(spans.track[r]),
            int(spans.start_ns[r]),
            int(spans.start_ns[r] + spans.dur_ns[r]),
            run.timeline.name(int(r))[:120],
        )
        for r in longest.tolist()
    )


def per_step(run: Run, phase: str, lost_ns: int) -> dict[str, Any]:
    """What a loss is per step of its phase: facts of a finding."""
    steps = run.steady_steps(phase) if phase else 0
    if not steps:
        return {}
    facts: dict[str, Any] = {"steps": steps, "per_step_ns": lost_ns // steps}
    return facts | ({"per_token_ns": lost_ns // steps} if phase == "decode" else {})


def run_span_ns(run: Run) -> int:
    """The time a share is taken of: the device's span or the host's, whichever is longer."""
    return run.span_ns


def in_chains(run: Run) -> npt.NDArray[np.bool_]:
    """Rows of chains that compute something, which MB301 and MB304 speak of. Shape (n,)."""
    out = np.zeros(len(run.timeline), bool)
    for chain in run.chains:
        if chain.computes:
            out[chain.rows.reshape(-1)] = True
    return out


def need_launches(run: Run) -> None:
    """Raises NotAnalysable where kernels have no operators: not linked to one, and no types of their own (NPUs)."""
    if "launches" not in run.has and not run.npu.groups:
        raise NotAnalysable("no device event could be linked to its launch call")


def fusing(run: Run, chain: Chain) -> str:
    """What to do about a chain: on an NPU the fused operator that torch_npu offers for (part of) it, if there is one."""
    types = [run.npu.type_of(int(row)) for row in chain.rows[0]] if run.npu.present else []
    if fused := offered(types):
        return f"Call torch_npu.{fused}, or switch on the engine's fused layer; or compile the chain."
    return "Compile or fuse the chain, or use the fused operator the engine offers."


def claimed_elsewhere(run: Run, group: Group, chained: npt.NDArray[np.bool_]) -> bool:
    """Whether a group is spoken of as a chain, a conversion or on an AI CPU: its time is not counted twice."""
    if run.npu.core_of(int(group.rows[0])) == AI_CPU:
        return True
    if group.family is Family.COPY and group.operator in CONVERSIONS:
        return True
    return 2 * int(chained[group.rows].sum()) >= len(group.rows)


def by_operator(groups: Sequence[Group]) -> list[list[Group]]:
    """Groups of one operator, phase and device together (of one kernel, where no operator is known), the longest first."""
    found: dict[tuple[str, str, int], list[Group]] = {}
    for group in groups:
        found.setdefault((group.operator or group.kernel, group.phase, group.device), []).append(group)
    return sorted(found.values(), key=lambda same: -sum(g.total_ns for g in same))


def doubtful(groups: Sequence[Group]) -> bool:
    """Whether a peak that bound one of the groups is doubtful itself."""
    points = [g.point for g in groups if g.point is not None]
    figures = [p.peak_bytes if p.roof == "memory" else p.peak_flops for p in points]
    return any(f is not None and f.confidence == "doubtful" for f in figures)


HARDLY = 0.02
"""No kernel of a library is so far from the roof by itself: more likely it was not this work that it did."""


def confidence(groups: Sequence[Group], by: str) -> Confidence:
    """High where the peak is sure, the grid known and the gain replayed; low where the peak is in doubt and the gain
    a bound, or where a kernel reaches next to nothing of its roof."""
    shares = [g.point.share for g in groups if g.point is not None and g.point.share is not None]
    if shares and min(shares) < HARDLY:
        return "low"
    sure, replayed = not doubtful(groups), by == "replay"
    if sure and replayed and all(g.blocks for g in groups):
        return "high"
    return "medium" if sure or replayed else "low"


def spread(shares: Sequence[float]) -> str:
    """ "57 %", or "38 to 57 %".

    >>> spread([0.571]), spread([0.381, 0.571]), spread([0.0004])
    ('57 %', '38 to 57 %', 'under 1 %')
    """
    low, high = round(100 * min(shares)), round(100 * max(shares))
    if high == 0:
        return "under 1 %"
    return f"{high} %" if low == high else f"{low} to {high} %"
