"""Reductions, scans and pooling.

One FLOP per input element and reduced quantity (sum, max: 1; mean: 1; variance and norms: 2). Bytes: the
input is read once, the result written once. A scan writes as much as it reads.
"""

from __future__ import annotations

import math

from stallscope.analyzers.models.call import Basis, Call, Cost, NoModel, Tensor, Traffic
from stallscope.analyzers.models.elementwise import broadcast_result
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model, names

_STEPS = {
    "var": 3,
    "std": 3,
    "var_mean": 3,
    "std_mean": 3,
    "norm": 2,
    "linalg_vector_norm": 2,
    "logsumexp": 4,
}
_BOOL = ("any", "all")


def _out_numel(x: Tensor, dims: list[int] | None) -> int:
    """Elements left after reducing `dims`; None or an empty list reduces all."""
    if not dims:
        return 1
    rank = len(x.shape)
    if any(not -rank <= d < rank for d in dims):
        raise NoModel
    gone = {d % rank for d in dims}
    return math.prod(n for i, n in enumerate(x.shape) if i not in gone)


def _reduce(call: Call, dims_at: int, out_dtype: str = "") -> Cost:
    x = call.need(0)
    recorded = call.text(dims_at)
    dims = call.integers(dims_at)
    basis: Basis = "shapes"
    note = ""
    if recorded and dims is not None:
        out = _out_numel(x, dims)
    elif call.concrete or len(call.tensors) <= dims_at:
        out = 1
    else:
        out, basis, note = 1, "lower bound", "the reduced dimensions are not recorded"
    name = call.base.rstrip("_")
    dtype = out_dtype or ("bool" if name in _BOOL else x.dtype)
    if name in ("sum", "prod") and x.dtype in ("bool", "int8", "int16", "int32", "uint8"):
        dtype = "int64"
    traffic = Traffic().reads(x).writes(out, dtype)
    return traffic.cost(_STEPS.get(name, 1) * x.numel, x.dtype, Family.REDUCTION, basis=basis, note=note)


def over_list(call: Call) -> Cost:
    """`sum(x, dims, keepdim, dtype)`, `mean`, `amax`, `var`: the dimensions are argument 1."""
    text = call.text(1)
    if text in ("True", "False") or (text and text[:1] != "[" and call.base in ("sum", "mean", "prod")):
        text = ""
    dtype = call.scalar_type(3) if text else ""
    return _reduce(call if text or not call.concrete else _without(call, 1), 1, dtype)


def _without(call: Call, index: int) -> Call:
    """The call with argument `index` not told, which for these operators means "all dimensions"."""
    concrete = tuple("" if i == index else text for i, text in enumerate(call.concrete))
    return Call(call.name, call.tensors[:index], call.lists, concrete, call.outputs, call.kernel, call.step)


def norm(call: Call) -> Cost:
    """`norm(x, p, dims, keepdim)`, `linalg_vector_norm(x, ord, dims, keepdim, dtype)`."""
    return _reduce(call, 2)


def minmax(call: Call) -> Cost:
    """`max(x)`, `max(x, dim)` (values and int64 places), `max(x, other)` (elementwise)."""
    other = call.tensor(1)
    if other is not None:
        return broadcast_result(call, [call.need(0), other], 1, call.need(0).dtype)
    if not call.text(1):
        return _reduce(_without(call, 1) if call.concrete else call, 1)
    cost = _reduce(call, 1)
    places = 8 * _out_numel(call.need(0), call.integers(1))
    return Cost(
        cost.flops,
        cost.bytes_read,
        cost.bytes_written + places,
        cost.dtype,
        cost.family,
        cost.basis,
        cost.note,
    )


def argmax(call: Call) -> Cost:
    """`argmax(x, dim, keepdim)`: int64 places out; counts as sampling, which it is for a greedy decoder."""
    x = call.need(0)
    dims = call.integers(1)
    traffic = Traffic().reads(x).writes(_out_numel(x, dims), "int64")
    return traffic.cost(x.numel, x.dtype, Family.SAMPLING)


def scan(call: Call) -> Cost:
    """`cumsum(x, dim, dtype)`: one step an element, as many results as inputs."""
    x = call.need(0)
    dtype = call.scalar_type(2) or (
        "int64" if x.dtype in ("bool", "int32", "int16", "int8", "uint8") else x.dtype
    )
    return Traffic().reads(x).writes(x.numel, dtype).cost(x.numel, x.dtype, Family.REDUCTION)


def pool(call: Call) -> Cost:
    """`max_pool2d_with_indices(x, kernel, stride, padding, ...)`, `avg_pool2d`: kernel volume steps each."""
    x = call.need(0)
    kernel, stride = call.integers(1), call.integers(2) or call.integers(1)
    pad = call.integers(3) or [0]
    if not kernel or not stride or len(kernel) > len(x.shape):
        raise NoModel
    dims = len(kernel)
    space = 1
    for i in range(dims):
        s, p = stride[i % len(stride)], pad[i % len(pad)]
        if s <= 0:
            raise NoModel
        space *= max((x.shape[len(x.shape) - dims + i] + 2 * p - kernel[i]) // s + 1, 0)
    out = math.prod(x.shape[:-dims]) * space
    traffic = Traffic().reads(x).writes(out, x.dtype)
    if "indices" in call.base:
        traffic.writes(out, "int64")
    return traffic.cost(out * math.prod(kernel), x.dtype, Family.REDUCTION)


def nonzero(call: Call) -> Cost:
    """`nonzero(x)`: reads x; how much it writes depends on the data."""
    x = call.need(0)
    return (
        Traffic()
        .reads(x)
        .cost(0, x.dtype, Family.REDUCTION, basis="lower bound", note="the number of hits is not recorded")
    )


def ascend(call: Call) -> Cost:
    """`ReduceSum`, `ReduceMean`, `ReduceMax`, `LpNormV2`, ...: recorded inputs and outputs once."""
    if not call.given:
        raise NoModel
    x = call.given[0]
    traffic = Traffic().reads(*call.given)
    for tensor in call.outputs:
        traffic.writes(tensor.numel, tensor.dtype)
    if not call.outputs:
        return traffic.cost(
            x.numel, x.dtype, Family.REDUCTION, basis="lower bound", note="the result is not recorded"
        )
    return traffic.cost(x.numel, x.dtype, Family.REDUCTION)


_OVER_LIST = names(
    "sum mean prod amax amin var std var_mean std_mean logsumexp any all nansum count_nonzero aminmax"
)
_ASCEND = names(
    "ReduceSum ReduceSumD ReduceMean ReduceMeanD ReduceMax ReduceMaxD ReduceMin ReduceProd ReduceAny "
    "ReduceAll LpNormV2 LpNormReduceV2 Cumsum NonZero AdaptiveAvgPool3d MaxPoolWithArgmaxV1 SquareSumV1 "
    "ReduceStdV2Update"
)

MODELS: dict[str, Model] = {
    **{f"aten::{name}": over_list for name in _OVER_LIST},
    "aten::norm": norm,
    "aten::linalg_vector_norm": norm,
    "aten::max": minmax,
    "aten::min": minmax,
    "aten::argmax": argmax,
    "aten::argmin": argmax,
    "aten::cumsum": scan,
    "aten::cumprod": scan,
    "aten::logcumsumexp": scan,
    "aten::cummax": scan,
    "aten::max_pool2d_with_indices": pool,
    "aten::max_pool2d": pool,
    "aten::avg_pool2d": pool,
    "aten::nonzero": nonzero,
    **dict.fromkeys(_ASCEND, ascend),
}
