"""The roofline: how close a kernel came to what its chip allows, and what it would gain.

Williams, Waterman, Patterson, "Roofline", CACM 52(4), 2009: a kernel that computes F and moves B needs
max(F/peak, B/bandwidth) at the least. Shares of both roofs and the verdict follow the speed-of-light rules
of Nsight Compute (80 % saturated, both under 60 % latency-bound, 10 points of difference) and, for NPUs, of
CANN's operator tools (80 %), which agree on the limits.

A share over 105 % cannot be: then the model, the clock, the chip or a cache is wrong, and the verdict says so
instead of a number. A cost that is a lower bound can prove that a roof is reached, never that it is not.
"""

from __future__ import annotations

import math
import re
from typing import Literal

from stallscope.analyzers.models.call import Cost
from stallscope.analyzers.models.chips import Chip, Figure
from stallscope.analyzers.models.family import Family
from stallscope.profiler.light import dataclass

Verdict = Literal[
    "memory-bound", "compute-bound", "latency-bound", "inefficient", "model-or-clock-fault", "unknown"
]
Roof = Literal["memory", "compute", ""]
Grid = tuple[int | None, int | None]
"""Blocks of a kernel and cores it can run on; None where not known."""

SATURATED = 0.80
"""Nsight Compute and CANN: from here on only less work helps."""
LOW = 0.60
"""Nsight Compute: under this on both roofs neither of them binds."""
IMPOSSIBLE = 1.05
"""Over this the model or the clock is at fault."""
TARGET = 0.80
"""The share of the roof that a good kernel reaches; gains are computed against it."""
SHORT_NS = 10_000
"""TensorRT-LLM's Nsight Compute guide: kernels under 10 us are bound by launch and ramp-up."""

_TF32_KERNEL = re.compile(r"tf32|_s1688(?:gemm|tf32)|s1688_?gemm", re.IGNORECASE)
_FP32_KERNEL = re.compile(r"sgemm|ffma|_simt_|f32f32_f32f32|^Cijk_\w+?_S_B_", re.IGNORECASE)
_HOST_COPY = re.compile(
    r"Mem(?:cpy|ory).*(?:HtoD|DtoH|HostToDevice|DeviceToHost|Host)|^MEMCPY_(?:H2D|D2H)", re.IGNORECASE
)


@dataclass(frozen=True)
class RooflinePoint:
    """Where a kernel stands under its chip's roofs.

    Rates are FLOP/s and bytes/s; shares are of the peak (1.0 is the roof) and None where the peak is
    unknown. `share` is that of the binding roof. `floor_ns` is the least time the work needs, `gain_ns` what
    the kernel would save at 80 % of the roof, None where no claim can be made. `peak_flops` and
    `peak_bytes` are the peaks that were used, with their sources.
    """

    verdict: Verdict
    reason: str
    roof: Roof
    intensity: float | None
    flops_per_s: float
    bytes_per_s: float
    compute_share: float | None
    memory_share: float | None
    share: float | None
    floor_ns: int | None
    gain_ns: int | None
    dtype: str
    peak_flops: Figure | None
    peak_bytes: Figure | None


def roofline(
    cost: Cost,
    duration_ns: int,
    chip: Chip | None,
    *,
    kernel: str = "",
    blocks: int | None = None,
    cores: int | None = None,
) -> RooflinePoint:
    """Place a call's cost, and the time all its kernels took together, under the roofs of a chip.

    `kernel` is the name of the (longest) kernel: it tells TF32 from FP32 arithmetic, and a copy from or to
    the host, which no device roof bounds. `blocks` is the number of thread blocks of its grid, `cores` that of the
    cores it runs on where it is not the chip's (NPUs have vector cores beside the cubes).
    """
    if duration_ns <= 0:
        return _without(cost, 0, "the kernel has no duration", None, None)
    if chip is None:
        return _without(cost, duration_ns, "the chip, and so its peaks, is unknown", None, None)
    if cost.family is Family.COLLECTIVE:
        return _without(
            cost, duration_ns, "bound by links between devices, whose speed is not known", None, None
        )
    if _HOST_COPY.search(kernel) is not None:
        return _without(cost, duration_ns, "bound by the link to the host", None, None)
    dtype = arithmetic_type(cost, chip, kernel)
    doubt = "TF32 may be in use" if dtype == "fp32" and _tf32_possible(cost, chip, kernel) else ""
    grid = (blocks, cores or chip.cores)
    return _placed(cost, duration_ns, chip, dtype, doubt, grid)


def arithmetic_type(cost: Cost, chip: Chip, kernel: str) -> str:
    """The element type whose peak binds: FP32 products run as TF32 where the kernel's name says so."""
    if (
        cost.unit == "matrix"
        and cost.dtype == "fp32"
        and "tf32" in chip.peaks
        and _TF32_KERNEL.search(kernel)
    ):
        return "tf32"
    return cost.dtype


def _tf32_possible(cost: Cost, chip: Chip, kernel: str) -> bool:
    return cost.unit == "matrix" and "tf32" in chip.peaks and _FP32_KERNEL.search(kernel) is None


def _without(
    cost: Cost, duration_ns: int, reason: str, peak: Figure | None, bandwidth: Figure | None
) -> RooflinePoint:
    """A point without a verdict: rates only, where there is a time."""
    seconds = duration_ns / 1e9
    return RooflinePoint(
        "unknown",
        reason,
        "",
        cost.intensity,
        cost.flops / seconds if seconds else 0.0,
        cost.bytes / seconds if seconds else 0.0,
        None,
        None,
        None,
        None,
        None,
        cost.dtype,
        peak,
        bandwidth,
    )


def _placed(cost: Cost, duration_ns: int, chip: Chip, dtype: str, doubt: str, grid: Grid) -> RooflinePoint:
    peak, bandwidth = chip.peak(dtype, cost.unit), chip.bandwidth
    seconds = duration_ns / 1e9
    compute = cost.flops / seconds / peak.value if peak is not None else None
    memory = cost.bytes / seconds / bandwidth.value if bandwidth is not None else None
    known = [(value, roof) for value, roof in ((compute, "compute"), (memory, "memory")) if value is not None]
    if not known or (cost.flops == 0 and cost.bytes == 0):
        return _without(cost, duration_ns, "no peak of this chip is known for this work", peak, bandwidth)
    share, roof = max(known)
    floor_ns = math.ceil(share * duration_ns)
    verdict, reason = _verdict(cost, duration_ns, chip, compute, memory, share, doubt, grid)
    claims = verdict not in ("model-or-clock-fault", "unknown") and cost.basis != "lower bound"
    gain = max(0, duration_ns - math.ceil(floor_ns / TARGET)) if claims else None
    return RooflinePoint(
        verdict,
        reason,
        "memory" if roof == "memory" else "compute",
        cost.intensity,
        cost.flops / seconds,
        cost.bytes / seconds,
        compute,
        memory,
        share,
        floor_ns,
        gain,
        dtype,
        peak,
        bandwidth,
    )


def _verdict(
    cost: Cost,
    duration_ns: int,
    chip: Chip,
    compute: float | None,
    memory: float | None,
    share: float,
    doubt: str,
    grid: Grid,
) -> tuple[Verdict, str]:
    """The verdict and why, by the limits at the head of this file."""
    if share > IMPOSSIBLE:
        return "model-or-clock-fault", _fault(cost, chip, duration_ns, share == memory, doubt)
    bound: Verdict = "memory-bound" if share == memory else "compute-bound"
    if share >= LOW and doubt and bound == "compute-bound":
        return "unknown", f"{share:.0%} of the FP32 roof, but {doubt}"
    if share >= SATURATED:
        return bound, f"{share:.0%} of the roof: only less work helps"
    if share >= LOW:
        close = compute is not None and memory is not None and abs(compute - memory) < 0.10
        return bound, f"{share:.0%} of the roof" + (", the other roof is as close" if close else "")
    if cost.basis == "lower bound":
        return "unknown", f"at least {share:.0%} of the roof; the cost is a lower bound: {cost.note}"
    if compute is None and cost.unit == "matrix":
        return (
            "unknown",
            f"{share:.0%} of the memory roof; the compute peak for {cost.dtype or 'this type'} is unknown",
        )
    if memory is None:
        return "unknown", f"{share:.0%} of the compute roof; the memory bandwidth is unknown"
    return far_from_roofs(duration_ns, share, grid)


def far_from_roofs(duration_ns: int, share: float, grid: Grid) -> tuple[Verdict, str]:
    """Why a kernel is far from both roofs: a small grid, too short, or inefficient."""
    blocks, cores = grid
    if blocks is not None and cores and 0 < blocks < cores:
        return "latency-bound", f"grid too small: {blocks} blocks on {cores} cores; {share:.0%} of the roof"
    if duration_ns < SHORT_NS:
        return (
            "latency-bound",
            f"too short to fill the chip ({duration_ns / 1000:.1f} us); {share:.0%} of the roof",
        )
    return "inefficient", f"{share:.0%} of the roof, though neither short nor on a small grid"


def _fault(cost: Cost, chip: Chip, duration_ns: int, by_memory: bool, doubt: str) -> str:
    """What may explain a share that cannot be."""
    cache = chip.cache_bytes or 0
    if (
        by_memory
        and chip.bandwidth is not None
        and (cost.bytes - cache) / chip.bandwidth.value <= duration_ns / 1e9
    ):
        moved = f"{cost.bytes / 2**20:.0f} MiB"
        return f"faster than memory allows: of its {moved} up to {cache >> 20} MiB may stay in the cache"
    if not by_memory and doubt:
        return f"faster than FP32 allows: {doubt}"
    if cost.basis == "expected":
        return f"faster than the roof allows: the expected cost is too high ({cost.note})"
    return "faster than the roof allows: model, clock or chip is at fault"
