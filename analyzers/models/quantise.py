"""Turning wide numbers into 8- or 4-bit ones and back.

About 3 FLOPs an element (absolute maximum, scale, round). Bytes: the input read once, the quantised
result and its scales written once; a dynamic scale needs the maximum first, so a row that leaves the chip is
read twice, which is not counted.
"""

from __future__ import annotations

from stallscope.analyzers.models.call import Call, Cost, NoModel, Traffic
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model, names


def library(call: Call) -> Cost:
    """`static_scaled_fp8_quant(out, x, scale)`, `per_token_group_quant_fp8(x, out, scales, ...)`, ...

    x is the widest floating-point tensor; 8-bit tensors of its size are results.
    """
    wide = [t for t in call.given if t.dtype in ("bf16", "fp16", "fp32") and len(t.shape) >= 2]
    x = max(wide, key=lambda t: t.numel, default=None)
    if x is None:
        raise NoModel
    traffic = Traffic().reads(x)
    results = [t for t in call.given if t.dtype in ("fp8", "int8", "uint8", "fp4x2") and len(t.shape) >= 2]
    for tensor in results:
        traffic.writes(tensor.numel, tensor.dtype)
    if not results:
        traffic.writes(x.numel, "fp8")
    return traffic.cost(
        3 * x.numel,
        x.dtype,
        Family.QUANTISE,
        basis="shapes" if results else "lower bound",
        note="" if results else "the result is taken as one byte a number",
    )


def recorded(call: Call) -> Cost:
    """`DynamicQuant`, `AscendQuantV2`, `AscendDequant`: recorded inputs and outputs once."""
    if not call.outputs or not call.given:
        raise NoModel
    traffic = Traffic().reads(*call.given)
    for tensor in call.outputs:
        traffic.writes(tensor.numel, tensor.dtype)
    return traffic.cost(3 * call.given[0].numel, call.given[0].dtype, Family.QUANTISE)


_LIBRARY = names(
    "static_scaled_fp8_quant dynamic_scaled_fp8_quant dynamic_per_token_scaled_fp8_quant "
    "static_scaled_int8_quant dynamic_scaled_int8_quant scaled_fp4_quant per_token_group_fp8_quant "
    "per_token_group_quant_8bit sgl_per_token_group_quant_fp8 sgl_per_token_group_quant_8bit "
    "sgl_per_token_quant_fp8 sgl_per_tensor_quant_fp8 triton_per_token_group_quant_fp8 "
    "per_token_group_quant_int8 dynamic_per_token_scaled_quant dynamic_per_tensor_quant "
    "static_per_tensor_quant npu_dynamic_quant npu_quantize rocm_aiter_group_fp8_quant"
)

MODELS: dict[str, Model] = {
    **dict.fromkeys(_LIBRARY, library),
    **dict.fromkeys(
        names(
            "DynamicQuant DynamicQuantV2 AscendQuant AscendQuantV2 AscendDequant AscendAntiQuant AscendAntiQuantV2 DequantBias"
        ),
        recorded,
    ),
}
