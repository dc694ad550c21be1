"""What an operator call costs: `estimate` finds the model for a name and asks it.

One table of all models, by operator name. A name with a namespace is looked up whole first
(`aten::mm`), then without it (`silu_and_mul` of `_C::`, `sgl_kernel::` or `aiter::`), an in-place
underscore and a trailing number left off. Names of CANN kernel types (`MatMulV3`) stand in the same table.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from stallscope.analyzers.models import (
    attention,
    collective,
    conv,
    copying,
    elementwise,
    embedding,
    gemm,
    kv_cache,
    moe,
    norm,
    quantise,
    reduction,
    rope,
    sampling,
    softmax,
)
from stallscope.analyzers.models.call import Call, Cost, NoModel, StepTokens, make_call, parse_int
from stallscope.analyzers.models.registry import Model

__all__ = ["MODELS", "Cost", "StepTokens", "estimate", "estimate_call", "estimate_kernel_row", "model_of"]

_FAMILIES = (
    gemm,
    attention,
    moe,
    conv,
    norm,
    softmax,
    rope,
    elementwise,
    reduction,
    embedding,
    sampling,
    kv_cache,
    copying,
    quantise,
    collective,
)


def _table() -> dict[str, Model]:
    table: dict[str, Model] = {}
    for family in _FAMILIES:
        for name, model in family.MODELS.items():
            if name in table:
                raise ValueError(f"two models for {name}")
            table[name] = model
    return table


MODELS: dict[str, Model] = _table()
"""Every known operator name and its model."""

_NONSENSE = 1 << 80
"""No single call computes or moves this much: sizes from a broken file."""

_INDUCTOR = re.compile(r"^triton_(?:poi|red|per)_fused")
_NUMBER = re.compile(r"_\d+$")
_ACLNN_PART = re.compile(r"^aclnn\w*_")


@lru_cache(maxsize=65536)
def model_of(name: str) -> Model | None:
    """The model for an operator's name, None where there is none."""
    found = _INDUCTOR.match(name)
    if found is not None:
        return MODELS.get(found.group(0))
    for key in _spellings(name):
        model = MODELS.get(key)
        if model is not None:
            return model
    return None


def _spellings(name: str) -> list[str]:
    """The keys a name may stand under, most telling first."""
    trimmed = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    keys = [name, trimmed, _NUMBER.sub("", trimmed)]
    if not name.startswith("aten::"):
        keys += [key.rsplit("::", 1)[-1] for key in list(keys)]
    if name.startswith("aclnn"):
        keys.append(_NUMBER.sub("", name).rsplit("_", 1)[-1])
    return keys


def estimate(
    op_name: str,
    shapes: Sequence[Any] | None,
    dtypes: Sequence[Any] | None = None,
    args: Sequence[Any] | None = None,
    *,
    strides: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    output_dtypes: Sequence[Any] | None = None,
    kernel: str = "",
    step: StepTokens | None = None,
) -> Cost | None:
    """The least work and traffic of one operator call, None where no model fits what was recorded.

    `shapes`, `dtypes`, `args` and `strides` are Kineto's `Input Dims`, `Input type`, `Concrete Inputs` and
    `Input Strides`, element for element; `outputs` and `output_dtypes` exist for Ascend rows (see
    `estimate_kernel_row`). `kernel` is the name of a kernel the call started, where known: it tells the
    element size of concatenated lists. `step` holds the token sums of the engine step the call belongs to,
    which attention over a cache needs. Malformed input gives None, never an error.

    The cost is that of the whole call. A call may start several kernels (a split-K product and its
    reduction, a copy and a memset): compare it with the sum of their times.
    """
    call = make_call(
        op_name,
        shapes,
        dtypes,
        args,
        strides=strides,
        outputs=outputs,
        output_dtypes=output_dtypes,
        kernel=kernel,
        step=step,
    )
    return estimate_call(call)


def estimate_call(call: Call) -> Cost | None:
    """As `estimate`, for a call that is already built."""
    model = model_of(call.name)
    if model is None:
        return None
    try:
        cost = model(call)
    except (NoModel, IndexError, ZeroDivisionError):
        # A shape with too few dimensions, or with none of length, is not one this model is for.
        return None
    return (
        cost if all(0 <= n < _NONSENSE for n in (cost.flops, cost.bytes_read, cost.bytes_written)) else None
    )


def estimate_kernel_row(
    op_type: str,
    input_shapes: str,
    input_dtypes: str,
    output_shapes: str,
    output_dtypes: str,
    *,
    step: StepTokens | None = None,
) -> Cost | None:
    """The cost of one row of Ascend's kernel_details or op_summary.

    `op_type` is the `Type` column (or the kernel's name, `aclnnAddmm_MatMulCommon_MatMulV2`); shapes are
    texts such as `"4096,6144;4096,1024"`, types such as `DT_BF16;DT_BF16`. "N/A" or nothing gives None.

    >>> estimate_kernel_row("MatMulV3", '"8,64;64,32"', "DT_BF16;DT_BF16", '"8,32"', "DT_BF16").flops
    32768
    """
    inputs, outputs = parse_ascend_shapes(input_shapes), parse_ascend_shapes(output_shapes)
    if inputs is None and outputs is None:
        return None
    return estimate(
        op_type,
        inputs or [],
        _ascend_types(input_dtypes, inputs),
        outputs=outputs or [],
        output_dtypes=output_dtypes.strip().strip('"').split(";"),
        step=step,
    )


def parse_ascend_shapes(text: str) -> list[list[int]] | None:
    """Shapes of `"4096,6144;;8"`: [[4096, 6144], [], [8]]; None for "N/A" and for nothing.

    An empty part is a scalar or an absent argument; the column does not tell them apart. A quoted empty
    text is one scalar.
    """
    written = text.strip()
    body = written.strip('"')
    if not written or body.upper() == "N/A":
        return None
    shapes: list[list[int]] = []
    for part in body.split(";"):
        sizes = [parse_int(n) for n in part.split(",") if n.strip()]
        shapes.append([n for n in sizes if n is not None and n >= 0] if None not in sizes else [])
    return shapes


def _ascend_types(text: str, shapes: list[list[int]] | None) -> list[str]:
    """Types per shape. An empty part of the shapes is no tensor: absent arguments carry a type, too."""
    types = text.strip().strip('"').split(";")
    return ["" if not shape else types[i] if i < len(types) else "" for i, shape in enumerate(shapes or [])]
