"""Elementwise operators and gated activations.

FLOPs per output element: 1 for one arithmetic step; activations as the steps they are made of, with
exp, tanh, erf and division as one each: sigmoid 4 (negate, exp, add, divide), silu 4 with the product
folded into the division, gelu 8, tanh 1. They run on the vector units and next to never bind. Bytes: each
input once at its stored size (a broadcast or expanded input counts its own elements only), the output once.
"""

from __future__ import annotations

import math

from stallscope.analyzers.models.call import Call, Cost, NoModel, Tensor, Traffic, broadcast, promote
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model, names

# FLOPs per output element of operators with one, two and three tensor arguments.
UNARY: dict[str, int] = {
    "abs": 1, "neg": 1, "sign": 1, "exp": 1, "exp2": 1, "expm1": 2, "log": 1, "log2": 1, "log10": 1,
    "log1p": 2, "sqrt": 1, "rsqrt": 1, "square": 1, "sin": 1, "cos": 1, "tan": 1, "tanh": 1, "erf": 1,
    "reciprocal": 1, "ceil": 1, "floor": 1, "round": 1, "trunc": 1, "frac": 1, "relu": 1, "relu6": 2,
    "sigmoid": 4, "silu": 4, "gelu": 8, "mish": 6, "softplus": 3, "hardtanh": 2, "hardswish": 4,
    "hardsigmoid": 3, "leaky_relu": 2, "elu": 3, "selu": 3, "celu": 3, "logit": 3, "logsigmoid": 3,
    "log_sigmoid_forward": 3, "softsign": 3, "threshold": 1, "clamp_scalar": 2, "dropout": 2,
    "native_dropout": 2, "nan_to_num": 1, "isnan": 0, "isinf": 0, "isfinite": 0, "logical_not": 0,
    "bitwise_not": 1, "atan": 1, "asin": 1, "acos": 1, "sinh": 1, "cosh": 1, "rad2deg": 1, "deg2rad": 1,
    "positive": 0, "alpha_dropout": 2,
}  # fmt: skip

BINARY: dict[str, int] = {
    "add": 1, "sub": 1, "rsub": 1, "mul": 1, "div": 1, "divide": 1, "multiply": 1, "subtract": 1,
    "true_divide": 1, "pow": 1, "float_power": 1, "remainder": 1, "fmod": 1, "floor_divide": 1,
    "maximum": 1, "minimum": 1, "fmax": 1, "fmin": 1, "atan2": 1, "hypot": 3, "clamp_min": 1,
    "clamp_max": 1, "bitwise_and": 1, "bitwise_or": 1, "bitwise_xor": 1, "copysign": 1, "heaviside": 1,
    "prelu": 2, "xlogy": 2, "__and__": 1, "__or__": 1, "bitwise_left_shift": 1, "bitwise_right_shift": 1,
    "mse_loss": 2, "lerp": 3, "threshold_backward": 1, "tanh_backward": 3, "sigmoid_backward": 3,
    "gelu_backward": 14, "silu_backward": 8, "native_dropout_backward": 2, "hardtanh_backward": 1,
    "_conj": 1, "masked_scale": 2,
}  # fmt: skip

COMPARE = tuple(
    names("eq ne lt le gt ge logical_and logical_or logical_xor greater less equal_elementwise not_equal")
)

TERNARY: dict[str, int] = {"where": 0, "addcmul": 3, "addcdiv": 3, "clamp": 2, "clip": 2, "masked_fill": 0}


def broadcast_result(
    call: Call, inputs: list[Tensor], flops: int, dtype: str, family: Family = Family.ELEMENTWISE
) -> Cost:
    """Inputs once, the broadcast result once in `dtype`."""
    out = math.prod(broadcast(t.shape for t in inputs))
    compute = promote(_ranked(inputs)) or dtype
    return Traffic().reads(*inputs).writes(out, dtype).cost(flops * out, compute, family)


def _ranked(inputs: list[Tensor]) -> list[str]:
    """Types that take part in promotion: of tensors with dimensions, else of the 0-dimensional ones."""
    dims = [t.dtype for t in inputs if t.shape]
    zero = [t.dtype for t in inputs if not t.shape]
    if not dims:
        return zero
    # A 0-dimensional float lifts whole numbers to a float, nothing else.
    lifted = [
        z for z in zero if z.startswith(("fp", "bf")) and not promote(dims).startswith(("fp", "bf", "c"))
    ]
    return [*dims, *(["fp32"] if lifted else [])]


def _inputs(call: Call, arity: int) -> list[Tensor]:
    inputs = [t for t in (call.tensor(i) for i in range(arity)) if t is not None]
    if not inputs:
        raise NoModel
    return inputs


def _aten(name: str) -> str:
    return name.rstrip("_") if name.endswith("_") and not name.startswith("__") else name


def unary(call: Call) -> Cost:
    """One input, one output of its shape."""
    x = call.need(0)
    name = _aten(call.base)
    return broadcast_result(
        call, [x], UNARY[name], "bool" if name.startswith(("isn", "isi", "isf", "logical")) else x.dtype
    )


def binary(call: Call) -> Cost:
    """Two inputs (either may be a number), a broadcast output; in place it keeps the first one's type."""
    inputs = _inputs(call, 2)
    name = _aten(call.base)
    dtype = inputs[0].dtype if call.inplace else promote(_ranked(inputs))
    if name in ("div", "true_divide", "atan2") and dtype.startswith(("int", "uint", "bool")):
        dtype = "fp32"
    return broadcast_result(call, inputs, BINARY[name], dtype)


def compare(call: Call) -> Cost:
    """A comparison: one step an element, a one-byte result."""
    return broadcast_result(call, _inputs(call, 2), 1, "bool")


def ternary(call: Call) -> Cost:
    """Three inputs, of which the condition or mask does not shape the result's type."""
    inputs = _inputs(call, 3)
    name = _aten(call.base)
    kept = [t for t in inputs if t.dtype != "bool"] or inputs
    dtype = inputs[0].dtype if call.inplace or name == "masked_fill" else promote(_ranked(kept))
    return broadcast_result(call, inputs, TERNARY[name], dtype)


GATED = {"silu": 4, "gelu": 8, "gelu_tanh": 8, "fatrelu": 1, "swigluoai": 6, "relu2": 2}


def gated(call: Call) -> Cost:
    """`silu_and_mul(out[M,N], x[M,2N])` or `silu_and_mul(x)`: act(x[:N]) * x[N:]; the steps of act and 1.

    SwiGLU, Shazeer, arXiv 2002.05202. A fused quantisation shows as an 8-bit out.
    """
    x = max(call.given, key=lambda t: t.numel, default=None)
    if x is None or not x.shape or x.shape[-1] % 2:
        raise NoModel
    half = x.numel // 2
    out = next(
        (t for t in [*call.given, *call.outputs] if t.numel == half and len(t.shape) == len(x.shape)), None
    )
    steps = next((n for key, n in GATED.items() if call.base.startswith(key)), 4) + 1
    traffic = Traffic().reads(x).writes(half, out.dtype if out is not None else x.dtype)
    return traffic.cost(steps * half, x.dtype, Family.ELEMENTWISE)


def library_unary(call: Call) -> Cost:
    """`_C::gelu_new(out, x)` and its siblings: one input, one output of the same size."""
    x = call.given[-1] if call.given else None
    if x is None:
        raise NoModel
    return Traffic().reads(x).writes(x.numel, x.dtype).cost(8 * x.numel, x.dtype, Family.ELEMENTWISE)


def foreach(call: Call) -> Cost:
    """`_foreach_add_(tensors, tensors, ...)`: every listed tensor read once, the first list written."""
    first = call.lists.get(0)
    if not first:
        raise NoModel
    traffic = Traffic()
    for tensors in call.lists.values():
        traffic.reads(*tensors)
    for tensor in first:
        traffic.writes(tensor.numel, tensor.dtype)
    return traffic.cost(sum(t.numel for t in first), first[0].dtype, Family.ELEMENTWISE)


def recorded(call: Call) -> Cost:
    """An Ascend vector operator: recorded inputs once, recorded outputs once, one step per output element."""
    if not call.outputs:
        raise NoModel
    traffic = Traffic().reads(*call.given)
    for tensor in call.outputs:
        traffic.writes(tensor.numel, tensor.dtype)
    out = call.outputs[0]
    compute = promote(t.dtype for t in call.given) or out.dtype
    return traffic.cost(out.numel, compute, Family.ELEMENTWISE)


def ascend_adam(call: Call) -> Cost:
    """`ApplyAdamW(var, m, v, grad, ...)`: all four read, the first three written in place; no outputs are recorded."""
    large = [t for t in call.given if t.numel == call.need(0).numel and t.is_float]
    if len(large) < 4:
        raise NoModel
    traffic = Traffic().reads(*call.given)
    for tensor in large[:3]:
        traffic.writes(tensor.numel, tensor.dtype)
    return traffic.cost(12 * large[0].numel, large[0].dtype, Family.ELEMENTWISE)


_ASCEND = names(
    "Add Adds Sub Subs Mul Muls Div Divs RealDiv Neg Exp Log Sqrt Rsqrt Square Abs Pow Pows Equal "
    "NotEqual Greater GreaterEqual Less LessEqual LogicalAnd LogicalOr LogicalNot Maximum Minimum "
    "Select SelectV2 Cos Sin ClipByValue ClipByValueV2 MaskedFill Axpy AxpyV2 Addcmul Addcdiv "
    "Reciprocal BitwiseNot BitwiseAnd BitwiseOr FloorDiv FloorMod Erf Sign Ceil Floor Round IsNan IsInf "
    "IsFinite AddN Trunc Mod Softplus Mish Swish Relu Relu6 Sigmoid Tanh Gelu GeluV2 FastGelu Silu "
    "LeakyRelu Elu HardSwish DropOutDoMask MulAddn AddcmulV2 ReluGrad GeluGrad SwiGluGrad ForeachAddList "
    "ForeachMulScalar ForeachMulList"
)

MODELS: dict[str, Model] = {
    **{f"aten::{name}": unary for name in UNARY},
    **{f"aten::{name}": binary for name in BINARY},
    **{f"aten::{name}": compare for name in COMPARE},
    **{f"aten::{name}": ternary for name in TERNARY},
    **{f"{act}_and_mul{tail}": gated for act in GATED for tail in ("", "_quant", "_nvfp4_quant")},
    "SwiGlu": gated,
    "SwiGluV2": gated,
    "DequantSwigluQuant": gated,
    "SwiGluQuant": gated,
    **dict.fromkeys(names("ApplyAdamW ApplyAdamWV2 ApplyAdam ApplyAdamD"), ascend_adam),
    "npu_swiglu": gated,
    "mul_and_silu": gated,
    "gelu_new": library_unary,
    "gelu_fast": library_unary,
    "gelu_quick": library_unary,
    "aten::_foreach_add": foreach,
    "aten::_foreach_mul": foreach,
    **dict.fromkeys(_ASCEND, recorded),
}
