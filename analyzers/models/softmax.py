"""Softmax over one dimension.

5 FLOPs an element: running maximum, subtraction, exponential, sum, division (the two-pass "safe" form,
Milakov and Gimelshein, arXiv 1805.02867). Bytes: input and mask read once, result written once, as a
row that stays on chip allows.
"""

from __future__ import annotations

from stallscope.analyzers.models.call import Call, Cost, NoModel, Tensor, Traffic
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model


def _softmax(x: Tensor, out: str, mask: Tensor | None = None) -> Cost:
    return Traffic().reads(x, mask).writes(x.numel, out or x.dtype).cost(5 * x.numel, x.dtype, Family.SOFTMAX)


def softmax(call: Call) -> Cost:
    """`softmax(x, dim, dtype)`, `log_softmax`."""
    return _softmax(call.need(0), call.scalar_type(2))


def core(call: Call) -> Cost:
    """`_softmax(x, dim, half_to_float)`, `_log_softmax`."""
    return _softmax(call.need(0), "fp32" if call.flag(2) else "")


def backward(call: Call) -> Cost:
    """`_softmax_backward_data(grad, output, dim, dtype)`: two inputs, one output."""
    grad, out = call.need(0), call.need(1)
    return (
        Traffic()
        .reads(grad, out)
        .writes(grad.numel, grad.dtype)
        .cost(4 * grad.numel, grad.dtype, Family.SOFTMAX)
    )


def ascend(call: Call) -> Cost:
    """`SoftmaxV2`, `ScaledMaskedSoftmax(x, mask)`, `LogSoftmaxV2`."""
    if not call.outputs or not call.given:
        raise NoModel
    mask = call.given[1] if len(call.given) > 1 else None
    return _softmax(call.given[0], call.outputs[0].dtype, mask)


MODELS: dict[str, Model] = {
    "aten::softmax": softmax,
    "aten::log_softmax": softmax,
    "aten::_softmax": core,
    "aten::_log_softmax": core,
    "aten::_safe_softmax": softmax,
    "aten::_softmax_backward_data": backward,
    "aten::_log_softmax_backward_data": backward,
    "SoftmaxV2": ascend,
    "Softmax": ascend,
    "LogSoftmaxV2": ascend,
    "ScaledMaskedSoftmax": ascend,
    "ScaledMaskedSoftmaxV2": ascend,
}
