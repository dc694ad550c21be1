"""Normalisations: layer, RMS, group, instance and batch norm, alone or fused with a residual sum.

FLOPs per element, each multiply, add and square as one: RMS norm 4 (square, sum, scale, weight), layer
and group norm 5 (mean, centre, square, sum, scale) and 2 more with weight and bias, one more for a
residual sum, batch norm in inference 2. Square roots per row are left out. Bytes: activations and weights
read once, results written once; the statistics that training keeps (8 bytes a row) are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.analyzers.models.call import Call, Cost, NoModel, Tensor, Traffic
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model, names


def _norm(
    x: Tensor,
    weights: Sequence[Tensor | None],
    per_element: int,
    *,
    reads: int = 1,
    writes: int = 1,
    out: str = "",
    note: str = "",
    lower: bool = False,
) -> Cost:
    """`reads` and `writes` count tensors of x's size; `out` is the element type of the first written one."""
    traffic = Traffic().reads(*([x] * reads), *weights)
    traffic.writes(x.numel, out or x.dtype)
    for _ in range(writes - 1):
        traffic.writes(x.numel, x.dtype)
    return traffic.cost(
        per_element * x.numel, x.dtype, Family.NORM, basis="lower bound" if lower else "shapes", note=note
    )


def layer_norm(call: Call) -> Cost:
    """`layer_norm(x, shape, weight, bias, eps)`, also `native_layer_norm`."""
    weights = [call.tensor(2), call.tensor(3)]
    affine = sum(w is not None for w in weights)
    return _norm(call.need(0), weights, 5 + affine)


def rms_norm(call: Call) -> Cost:
    """`rms_norm(x, shape, weight, eps)`, also `_fused_rms_norm`."""
    weight = call.tensor(2)
    return _norm(call.need(0), [weight], 4 if weight is not None else 3)


def group_norm(call: Call) -> Cost:
    """`group_norm(x, groups, weight, bias, eps)`, `native_group_norm(x, weight, bias, ...)`, aiter's."""
    x = call.need(0)
    weights = [t for t in call.given[1:] if len(t.shape) == 1][:2]
    return _norm(x, [*weights], 5 + len(weights))


def batch_norm(call: Call) -> Cost:
    """`batch_norm(x, weight, bias, mean, var, training, ...)`; in training x is needed twice."""
    x = call.need(0)
    weights = [call.tensor(i) for i in range(1, 5)]
    training = call.flag(5)
    if training is False:
        return _norm(x, weights, 2)
    return _norm(
        x,
        weights,
        5,
        lower=True,
        note="training: x is read once at the least, twice where it leaves the cache",
    )


def _activations(call: Call) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """(first activation, all tensors of its size, the 1-D weights of its row length)."""
    wide = [t for t in call.given if len(t.shape) >= 2]
    if not wide:
        raise NoModel
    size = max(t.numel for t in wide)
    same = [t for t in wide if t.numel == size]
    row = same[0].shape[-1]
    weights = [t for t in call.given if len(t.shape) == 1 and t.numel in (row, same[-1].shape[-1])]
    return same[0], same, weights


def _main(same: list[Tensor]) -> Tensor:
    """The activation whose type the arithmetic has: the first that is not 8-bit."""
    return next((t for t in same if t.dtype not in ("fp8", "int8")), same[0])


def _out_type(same: list[Tensor]) -> str:
    """The result's type: 8-bit where a quantised tensor of the size stands among the arguments."""
    return next((t.dtype for t in same if t.dtype in ("fp8", "int8")), "")


def library_rms(call: Call) -> Cost:
    """RMS norm of a library, with the result as an argument or returned; fused quantising writes 8 bits.

    `_C::rms_norm(out, x, weight, eps)`, `aiter::rms_norm(x, weight, eps)`, `vllm::rocm_aiter_rms_norm`,
    `sgl_kernel::rmsnorm`, Ascend's `RmsNorm`.
    """
    _, same, weights = _activations(call)
    x = _main(same)
    return _norm(x, weights[:1], 4, out=_out_type(same) or (call.outputs[0].dtype if call.outputs else ""))


def library_add_rms(call: Call) -> Cost:
    """Residual sum and RMS norm: reads x and the residual, writes the norm and the new residual.

    `_C::fused_add_rms_norm(x, residual, weight, eps)`, `aiter::rmsnorm2d_fwd_with_add(...)`,
    `sgl_kernel::fused_add_rmsnorm`, Ascend's `AddRmsNorm`, `InplaceAddRmsNorm`.
    """
    _, same, weights = _activations(call)
    x = _main(same)
    return _norm(x, weights[:1], 5, reads=2, writes=2, out=_out_type(same))


def library_layer(call: Call) -> Cost:
    """Layer norm of a library or of Ascend: `LayerNormV3`, `aiter::layernorm2d_fwd`."""
    _, same, weights = _activations(call)
    return _norm(_main(same), [*weights[:2]], 5 + len(weights[:2]))


def ascend_add_layer(call: Call) -> Cost:
    """`AddLayerNorm`: residual sum and layer norm."""
    _, same, weights = _activations(call)
    return _norm(_main(same), [*weights[:2]], 6 + len(weights[:2]), reads=2, writes=2)


def l2_norm(call: Call) -> Cost:
    """`l2norm(x)`: square, sum, scale."""
    return _norm(call.need(0), [], 3)


def backward(call: Call) -> Cost:
    """`native_layer_norm_backward(grad, x, ...)` and its siblings: gradient and x read, gradient written."""
    grad, x = call.need(0), call.need(1)
    cost = Traffic().reads(grad, x).writes(x.numel, x.dtype)
    return cost.cost(
        8 * x.numel, x.dtype, Family.NORM, basis="lower bound", note="weights' gradients are not counted"
    )


def ascend_backward(call: Call) -> Cost:
    """`RmsNormGrad`, `LayerNormGradV3`: recorded inputs (gradient, x, statistics, weight) and outputs once."""
    if not call.outputs:
        raise NoModel
    traffic = Traffic().reads(*call.given)
    for tensor in call.outputs:
        traffic.writes(tensor.numel, tensor.dtype)
    return traffic.cost(10 * call.need(0).numel, call.need(0).dtype, Family.NORM)


_RMS = names(
    "rms_norm rmsnorm rmsnorm2d_fwd rmsnorm2d_fwd_ck gemma_rmsnorm rocm_aiter_rms_norm "
    "rms_norm_static_fp8_quant rms_norm_dynamic_per_token_quant rmsnorm2d_fwd_with_smoothquant "
    "rmsnorm2d_fwd_with_dynamicquant rmsnorm_rmsnorm2d_fwd RmsNorm RmsNormQuant GemmaRmsNorm npu_rms_norm poly_norm"
)

_ADD_RMS = names(
    "fused_add_rms_norm fused_add_rmsnorm gemma_fused_add_rmsnorm add_rmsnorm rmsnorm2d_fwd_with_add "
    "rmsnorm2d_fwd_with_add_ck rocm_aiter_rmsnorm2d_fwd_with_add rmsnorm2d_fwd_with_add_smoothquant "
    "rmsnorm2d_fwd_with_add_dynamicquant fused_add_rms_norm_static_fp8_quant "
    "rmsnorm_rmsnorm2d_fwd_with_add rocm_aiter_rmsnorm2d_fwd_with_add_quant add_rmsnorm_quant "
    "AddRmsNorm AddRmsNormQuant AddRmsNormQuantV2 AddRmsNormDynamicQuant InplaceAddRmsNorm "
    "AddRmsNormCast npu_add_rms_norm"
)

MODELS: dict[str, Model] = {
    "aten::layer_norm": layer_norm,
    "aten::native_layer_norm": layer_norm,
    "aten::rms_norm": rms_norm,
    "aten::_fused_rms_norm": rms_norm,
    "aten::group_norm": group_norm,
    "aten::native_group_norm": group_norm,
    "aiter::_groupnorm_run": group_norm,
    "aten::instance_norm": batch_norm,
    "aten::batch_norm": batch_norm,
    "aten::native_batch_norm": batch_norm,
    "aten::_native_batch_norm_legit": batch_norm,
    "aten::_batch_norm_impl_index": batch_norm,
    "aten::cudnn_batch_norm": batch_norm,
    "aten::miopen_batch_norm": batch_norm,
    "aten::native_layer_norm_backward": backward,
    "aten::native_group_norm_backward": backward,
    "aten::native_batch_norm_backward": backward,
    "aten::miopen_batch_norm_backward": backward,
    "aten::cudnn_batch_norm_backward": backward,
    "aten::_fused_rms_norm_backward": backward,
    "l2norm": l2_norm,
    **dict.fromkeys(_RMS, library_rms),
    **dict.fromkeys(_ADD_RMS, library_add_rms),
    "layernorm2d_fwd": library_layer,
    "LayerNorm": library_layer,
    "LayerNormV3": library_layer,
    "LayerNormV4": library_layer,
    "AddLayerNorm": ascend_add_layer,
    **dict.fromkeys(names("RmsNormGrad LayerNormGrad LayerNormGradV3"), ascend_backward),
}
