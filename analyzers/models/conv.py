"""Convolutions, forward, transposed and backward.

Formula: every output element takes one multiply-add per weight of its filter:
2 * |output| * (C_in/groups * kernel volume) FLOPs, plus |output| with a bias; a transposed convolution
counts per input element. The backward pass is two such products, one per asked gradient. Bytes: input,
weight and bias read once, output written once. Winograd and FFT kernels do less arithmetic: a share
over 100 % of the compute roof then tells of the algorithm.
"""

from __future__ import annotations

import math

from stallscope.analyzers.models.call import Call, Cost, NoModel, Tensor, Traffic
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model


def output_size(size: int, kernel: int, stride: int, pad: int, dilation: int) -> int:
    """Length of one spatial dimension of the output: floor((n + 2p - d(k-1) - 1)/s) + 1."""
    if stride <= 0:
        raise NoModel
    return max((size + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1, 0)


def _spread(values: list[int] | None, dims: int) -> list[int]:
    """One number per spatial dimension; raises NoModel where none was recorded."""
    if not values:
        raise NoModel
    return values if len(values) == dims else values[:1] * dims


def _forward(call: Call, *, bias: int | None, stride: int, pad: int, dilation: int) -> Cost:
    x, w = call.need(0), call.need(1)
    if len(w.shape) < 3 or len(x.shape) != len(w.shape):
        raise NoModel
    dims = len(w.shape) - 2
    strides, dilations = _spread(call.integers(stride), dims), _spread(call.integers(dilation), dims)
    pads = _padding(call, pad, dims, w, dilations)
    space = [
        output_size(x.shape[2 + i], w.shape[2 + i], strides[i], pads[i], dilations[i]) for i in range(dims)
    ]
    out = x.shape[0] * w.shape[0] * math.prod(space)
    return _cost(x, w, call.tensor(bias) if bias is not None else None, out, out * math.prod(w.shape[1:]))


def _padding(call: Call, index: int, dims: int, w: Tensor, dilations: list[int]) -> list[int]:
    """Padding per dimension; "same" keeps the size at stride 1, "valid" is none."""
    text = call.text(index).strip("'\"")
    if text == "valid":
        return [0] * dims
    if text == "same":
        return [dilations[i] * (w.shape[2 + i] - 1) // 2 for i in range(dims)]
    return _spread(call.integers(index), dims)


def _cost(x: Tensor, w: Tensor, bias: Tensor | None, out: int, terms: int) -> Cost:
    flops = 2 * terms + (out if bias is not None else 0)
    return Traffic().reads(x, w, bias).writes(out, x.dtype).cost(flops, x.dtype, Family.CONV, unit="matrix")


def convolution(call: Call) -> Cost:
    """`convolution(x, w, bias, stride, padding, dilation, transposed, output_padding, groups)`."""
    transposed = call.flag(6)
    if transposed is None:
        raise NoModel
    if transposed:
        return _transposed(call, stride=3, pad=4, dilation=5, out_pad=7, groups=8)
    return _forward(call, bias=2, stride=3, pad=4, dilation=5)


def _transposed(call: Call, *, stride: int, pad: int, dilation: int, out_pad: int, groups: int) -> Cost:
    """w[C_in, C_out/groups, kernel]: 2*|input|*prod(w[1:]) FLOPs."""
    x, w = call.need(0), call.need(1)
    dims = len(w.shape) - 2
    count = call.integer(groups)
    if dims < 1 or len(x.shape) != len(w.shape) or count is None:
        raise NoModel
    s, p = _spread(call.integers(stride), dims), _spread(call.integers(pad), dims)
    d, op = _spread(call.integers(dilation), dims), _spread(call.integers(out_pad), dims)
    space = [
        (x.shape[2 + i] - 1) * s[i] - 2 * p[i] + d[i] * (w.shape[2 + i] - 1) + op[i] + 1 for i in range(dims)
    ]
    out = x.shape[0] * w.shape[1] * count * math.prod(max(n, 0) for n in space)
    return _cost(x, w, call.tensor(2), out, x.numel * math.prod(w.shape[1:]))


def conv_nd(call: Call) -> Cost:
    """`conv{1,2,3}d(x, w, bias, stride, padding, dilation, groups)`."""
    return _forward(call, bias=2, stride=3, pad=4, dilation=5)


def conv_transpose_nd(call: Call) -> Cost:
    """`conv_transpose{1,2,3}d(x, w, bias, stride, padding, output_padding, groups, dilation)`."""
    return _transposed(call, stride=3, pad=4, dilation=7, out_pad=5, groups=6)


def cudnn(call: Call) -> Cost:
    """`cudnn_convolution(x, w, padding, stride, dilation, groups, ...)`; older ones have a bias at 2."""
    if call.tensor(2) is not None or (not call.text(2) and call.text(3)):
        return _forward(call, bias=2, pad=3, stride=4, dilation=5)
    return _forward(call, bias=None, pad=2, stride=3, dilation=4)


def miopen(call: Call) -> Cost:
    """`miopen_convolution(x, w, bias, padding, stride, dilation, groups, ...)`, `mkldnn_convolution`."""
    return _forward(call, bias=2, pad=3, stride=4, dilation=5)


def cudnn_relu(call: Call) -> Cost:
    """`cudnn_convolution_relu(x, w, bias, stride, padding, dilation, groups)`."""
    return _forward(call, bias=2, stride=3, pad=4, dilation=5)


def backward(call: Call) -> Cost:
    """`convolution_backward(grad, x, w, bias_sizes, stride, pad, dilation, transposed, _, groups, mask)`."""
    grad, x, w = call.need(0), call.need(1), call.need(2)
    mask = [part.strip() == "True" for part in call.text(10).strip("[]").split(",")] if call.text(10) else []
    transposed = call.flag(7)
    if len(mask) != 3 or transposed is None:
        raise NoModel
    terms = (x.numel if transposed else grad.numel) * math.prod(w.shape[1:])
    traffic = Traffic().reads(grad)
    flops = 0
    if mask[0]:
        flops += 2 * terms
        traffic.reads(w).writes(x.numel, x.dtype)
    if mask[1]:
        flops += 2 * terms
        traffic.reads(x).writes(w.numel, w.dtype)
    if mask[2]:
        flops += grad.numel
        traffic.writes(w.shape[0], w.dtype)
    return traffic.cost(flops, x.dtype, Family.CONV, unit="matrix")


def ascend(call: Call) -> Cost:
    """`Conv2D`, `Conv3D` of kernel_details. In the NC1HWC0 layout channels are padded, as they lie in memory.

    The filter volume is the padded weight over its output channels, read off the output.
    """
    x, w = call.need(0), call.need(1)
    if not call.outputs:
        raise NoModel
    out = call.outputs[0]
    if len(out.shape) == 5:
        channels = out.shape[1] * out.shape[4]
    elif len(out.shape) == 4:
        channels = out.shape[1]
    else:
        raise NoModel
    if channels == 0:
        raise NoModel
    bias = call.tensor(2)
    bias = bias if bias is not None and len(bias.shape) == 1 else None
    cost = Traffic().reads(x, w, bias).writes(out.numel, out.dtype)
    flops = 2 * out.numel * (w.numel // channels) + (out.numel if bias is not None else 0)
    return cost.cost(
        flops, x.dtype, Family.CONV, unit="matrix", basis="expected", note="channels as padded in memory"
    )


MODELS: dict[str, Model] = {
    "aten::convolution": convolution,
    "aten::_convolution": convolution,
    "aten::conv1d": conv_nd,
    "aten::conv2d": conv_nd,
    "aten::conv3d": conv_nd,
    "aten::conv_transpose1d": conv_transpose_nd,
    "aten::conv_transpose2d": conv_transpose_nd,
    "aten::conv_transpose3d": conv_transpose_nd,
    "aten::cudnn_convolution": cudnn,
    "aten::miopen_convolution": miopen,
    "aten::mkldnn_convolution": miopen,
    "aten::cudnn_convolution_relu": cudnn_relu,
    "aten::miopen_convolution_relu": cudnn_relu,
    "aten::convolution_backward": backward,
    "Conv2D": ascend,
    "Conv3D": ascend,
    "Conv2DV2": ascend,
}
