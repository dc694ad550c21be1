"""Moving data without computing: copies, casts, layout changes, concatenation, fills; Inductor pointwise.

No FLOPs. Bytes: what is read once and what is written once. A copy between host and device crosses a
link, not the device memory alone, and has no place on the device's roofline.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace

from stallscope.analyzers.models.call import Call, Cost, NoModel, Tensor, Traffic
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model, names

_OPAQUE = re.compile(r"OpaqueType<(\d+)u?l?>")
_CAT_TYPES = (("c10::BFloat16", "bf16"), ("c10::Half", "fp16"), ("<float,", "fp32"), ("<double,", "fp64"))


def copy(call: Call) -> Cost:
    """`copy_(to, from, non_blocking)`: the source is read, the destination written, each in its type."""
    to, source = call.need(0), call.need(1)
    return Traffic().reads(source).writes(to.numel, to.dtype).cost(0, to.dtype, Family.COPY)


def cast(call: Call) -> Cost:
    """`_to_copy(x, dtype, ...)`, `to`: x read, written in the new type (x's where none is told)."""
    x = call.need(0)
    return Traffic().reads(x).writes(x.numel, call.scalar_type(1) or x.dtype).cost(0, x.dtype, Family.COPY)


def clone(call: Call) -> Cost:
    """`clone(x)`, `contiguous`, `flip`, `roll`: x read and written once."""
    x = call.need(0)
    return Traffic().reads(x).writes(x.numel, x.dtype).cost(0, x.dtype, Family.COPY)


def fill(call: Call) -> Cost:
    """`fill_(x)`, `zero_`: x written once."""
    x = call.need(0)
    return Traffic().writes(x.numel, x.dtype).cost(0, x.dtype, Family.COPY)


def cat(call: Call) -> Cost:
    """`cat([tensors], dim)`, `stack`: every part read, and as many elements written.

    Kineto does not record the element type of listed tensors; the kernel's template tells its size.
    """
    parts = call.lists.get(0)
    if not parts:
        raise NoModel
    dtype = parts[0].dtype or _cat_type(call.kernel)
    typed = [replace(t, dtype=t.dtype or dtype) for t in parts]
    count = sum(t.numel for t in typed)
    return Traffic().reads(*typed).writes(count, dtype).cost(0, dtype, Family.COPY)


def _cat_type(kernel: str) -> str:
    """A type of the right size, from the template of a concatenation kernel; "" if it does not tell."""
    found = _OPAQUE.search(kernel)
    if found is not None:
        return {1: "uint8", 2: "bf16", 4: "fp32", 8: "int64", 16: "c128"}.get(int(found.group(1)), "")
    if "CatArray" not in kernel:
        return ""
    return next((dtype for mark, dtype in _CAT_TYPES if mark in kernel), "")


def pad(call: Call) -> Cost:
    """`constant_pad_nd(x, pad, value)`: x read, the padded tensor written."""
    x, amounts = call.need(0), call.integers(1)
    if amounts is None or len(amounts) % 2 or len(amounts) // 2 > len(x.shape):
        raise NoModel
    shape = list(x.shape)
    for i in range(len(amounts) // 2):
        shape[-1 - i] += amounts[2 * i] + amounts[2 * i + 1]
    return (
        Traffic().reads(x).writes(math.prod(max(n, 0) for n in shape), x.dtype).cost(0, x.dtype, Family.COPY)
    )


def repeat(call: Call) -> Cost:
    """`repeat(x, repeats)`: x read, prod(repeats) times as much written."""
    x, times = call.need(0), call.integers(1)
    if times is None:
        raise NoModel
    return Traffic().reads(x).writes(x.numel * math.prod(times), x.dtype).cost(0, x.dtype, Family.COPY)


def triangle(call: Call) -> Cost:
    """`tril(x)`, `triu`: half is copied, all of it written."""
    x = call.need(0)
    return Traffic().reads(x).writes(x.numel, x.dtype).cost(0, x.dtype, Family.COPY)


def upsample(call: Call) -> Cost:
    """`upsample_nearest2d(x, output_size, ...)`: x read, the larger image written."""
    x, size = call.need(0), call.integers(1)
    if not size or len(size) != len(x.shape) - 2:
        raise NoModel
    out = x.shape[0] * x.shape[1] * math.prod(size)
    return Traffic().reads(x).writes(out, x.dtype).cost(out, x.dtype, Family.ELEMENTWISE)


def foreach_copy(call: Call) -> Cost:
    """`_foreach_copy_([to], [from])`: element types of lists are not recorded."""
    to, source = call.lists.get(0), call.lists.get(1)
    if not to or not source:
        raise NoModel
    traffic = Traffic().reads(*source)
    for tensor in to:
        traffic.writes(tensor.numel, tensor.dtype)
    return traffic.cost(0, to[0].dtype, Family.COPY)


def inductor(call: Call) -> Cost:
    """A kernel of torch.compile: `triton_poi_fused_*`, `triton_red_fused_*`, `triton_per_fused_*`.

    Arguments are pointers and then the index ranges (xnumel, rnumel). Each tensor counts once, and no more
    of it than the ranges span, so that a looked-up table does not count whole. Which are read and which
    written, and what is computed, is not recorded: all but the last count as read, FLOPs as none.
    """
    tensors = call.given
    if not tensors:
        raise NoModel
    ranges = [
        n
        for n in (call.integer(i) for i, t in enumerate(call.tensors) if t is None)
        if n is not None and n > 0
    ]
    if not ranges and call.concrete:
        raise NoModel
    span = (
        math.prod(ranges[-2:] if call.base.startswith(("triton_red", "triton_per")) else ranges[-1:])
        if ranges
        else None
    )
    clipped = [t if span is None or t.numel <= span else Tensor((span,), t.dtype) for t in tensors]
    traffic = Traffic().reads(*clipped[:-1]).writes(clipped[-1].numel, clipped[-1].dtype)
    pointwise = call.base.startswith("triton_poi")
    return traffic.cost(
        0,
        clipped[-1].dtype,
        Family.ELEMENTWISE if pointwise else Family.REDUCTION,
        basis="lower bound",
        note="every argument once, in-out ones too; what is computed is not recorded",
    )


def ascend_fill(call: Call) -> Cost:
    """`ZerosLike`, `OnesLike`, `Fill`, `Range`: the output is written once, inputs only give its form."""
    if not call.outputs:
        raise NoModel
    traffic = Traffic()
    for tensor in call.outputs:
        traffic.writes(tensor.numel, tensor.dtype)
    return traffic.cost(0, call.outputs[0].dtype, Family.COPY)


def ascend(call: Call) -> Cost:
    """`Cast`, `TransData`, `Transpose`, `Slice`, `ConcatD`, ...: as many elements as the output.

    A slice reads only what it writes, so the first input counts no more than the outputs hold.
    """
    if not call.outputs:
        raise NoModel
    out = sum(t.numel for t in call.outputs)
    data = [t for t in call.given if not (t.dtype == "int64" and len(t.shape) <= 1 and t.numel <= 16)]
    traffic = Traffic()
    left = out
    for tensor in data:
        used = min(tensor.numel, left) if len(data) == 1 else tensor.numel
        traffic.reads(Tensor((used,), tensor.dtype))
    for tensor in call.outputs:
        traffic.writes(tensor.numel, tensor.dtype)
    return traffic.cost(0, call.outputs[0].dtype, Family.COPY)


_CLONES = names(
    "clone contiguous flip roll rot90 detach_copy pixel_shuffle channel_shuffle _pin_memory repeat_interleave"
)
_ASCEND = names(
    "Cast TransData Transpose TransposeD TensorMove Slice SliceD StridedSlice StridedSliceD "
    "StridedSliceV3 ConcatD ConcatV2 Concat BroadcastTo AsStrided ViewCopy Identity Pad PadV3 PadD Tile "
    "TileD SplitV SplitVD Split SplitD Pack Unpack ExpandV2 Expand FormatCast Tril Triu "
    "RepeatInterleave StackV2 Roll Reverse CopyFrom"
)
_INDUCTOR = ("triton_poi_fused", "triton_red_fused", "triton_per_fused")

MODELS: dict[str, Model] = {
    "aten::copy": copy,
    "aten::_copy_from": copy,
    "aten::_to_copy": cast,
    "aten::to": cast,
    **{f"aten::{name}": clone for name in _CLONES},
    "aten::fill": fill,
    "aten::zero": fill,
    "aten::cat": cat,
    "aten::_cat": cat,
    "aten::concat": cat,
    "aten::stack": cat,
    "aten::constant_pad_nd": pad,
    "aten::repeat": repeat,
    "aten::tril": triangle,
    "aten::triu": triangle,
    "aten::upsample_nearest2d": upsample,
    "aten::_foreach_copy": foreach_copy,
    **dict.fromkeys(_INDUCTOR, inductor),
    **dict.fromkeys(_ASCEND, ascend),
    **dict.fromkeys(names("ZerosLike OnesLike Fill Fills Range MemSet"), ascend_fill),
}
