"""Lookups: embedding, index_select, gather, scatter, index_put.

No arithmetic (scatter_add: 1 per element). Bytes: every looked-up row is read once and written once, the
indices are read once. A row asked for twice counts twice: how often rows repeat is not recorded.
"""

from __future__ import annotations

import math

from stallscope.analyzers.models.call import Call, Cost, NoModel, Tensor, Traffic, nbytes
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model


def _lookup(table: Tensor, index: Tensor, elements: int, flops: int = 0) -> Cost:
    traffic = Traffic().reads(index).writes(elements, table.dtype)
    traffic.read += nbytes(elements, table.dtype)
    return traffic.cost(flops, table.dtype, Family.EMBEDDING)


def embedding(call: Call) -> Cost:
    """`embedding(weight[V,D], indices, ...)`: |indices| rows of D numbers."""
    weight, index = call.need(0), call.need(1)
    return _lookup(weight, index, index.numel * math.prod(weight.shape[1:]))


def index_select(call: Call) -> Cost:
    """`index_select(x, dim, index)`: |index| slices along dim."""
    x, index = call.need(0), call.need(2)
    dim = call.integer(1)
    if not x.shape:
        raise NoModel
    at = (dim if dim is not None else 0) % len(x.shape)
    return _lookup(x, index, index.numel * (x.numel // max(x.shape[at], 1)))


def gather(call: Call) -> Cost:
    """`gather(x, dim, index)`, `take_along_dim`: one element per index."""
    return _lookup(call.need(0), call.need(2), call.need(2).numel)


def take(call: Call) -> Cost:
    """`take(x, index)`."""
    return _lookup(call.need(0), call.need(1), call.need(1).numel)


def index(call: Call) -> Cost:
    """`index(x, [indices])`: known only where the index tensors are recorded (one index, first dimension)."""
    x = call.need(0)
    indices = call.lists.get(1, ())
    if len(indices) != 1 or indices[0].numel == 0 or not x.shape:
        raise NoModel
    places = Tensor(indices[0].shape, "int64")
    return _lookup(x, places, places.numel * (x.numel // max(x.shape[0], 1)))


def scatter(call: Call) -> Cost:
    """`scatter_(x, dim, index, src)`, `index_add_`, `index_copy_`: src read, x written at those places."""
    x, places, src = call.need(0), call.need(2), call.tensor(3)
    count = src.numel if src is not None and "index" in call.base else places.numel
    adds = "add" in call.base or "reduce" in call.base
    traffic = Traffic().reads(places).writes(count, x.dtype)
    if src is not None:
        traffic.read += nbytes(count, src.dtype)
        traffic.unknown |= not src.dtype
    if adds:
        traffic.read += nbytes(count, x.dtype)
    return traffic.cost(count if adds else 0, x.dtype, Family.EMBEDDING)


def index_put(call: Call) -> Cost:
    """`index_put_(x, [indices], values, accumulate)`: values read, as many elements of x written."""
    x, values = call.need(0), call.need(2)
    adds = bool(call.flag(3))
    traffic = Traffic().reads(values).writes(values.numel, x.dtype)
    if adds:
        traffic.read += nbytes(values.numel, x.dtype)
    return traffic.cost(
        values.numel if adds else 0,
        x.dtype,
        Family.EMBEDDING,
        basis="lower bound",
        note="index tensors, and values that are broadcast, are not counted",
    )


def ascend(call: Call) -> Cost:
    """`GatherV2(table, indices, axis)`, `Index`, `GatherElements`: as many elements as the output has."""
    if not call.outputs or not call.given:
        raise NoModel
    out = call.outputs[0]
    traffic = Traffic().reads(*call.given[1:]).writes(out.numel, out.dtype)
    traffic.read += nbytes(out.numel, call.given[0].dtype)
    traffic.unknown |= not call.given[0].dtype
    return traffic.cost(0, out.dtype, Family.EMBEDDING)


MODELS: dict[str, Model] = {
    "aten::embedding": embedding,
    "aten::index_select": index_select,
    "aten::gather": gather,
    "aten::take_along_dim": gather,
    "aten::take": take,
    "aten::index": index,
    "aten::scatter": scatter,
    "aten::scatter_add": scatter,
    "aten::scatter_reduce": scatter,
    "aten::index_add": scatter,
    "aten::index_copy": scatter,
    "aten::index_put": index_put,
    "aten::_index_put_impl": index_put,
    "GatherV2": ascend,
    "GatherV3": ascend,
    "Gather": ascend,
    "GatherElements": ascend,
    "GatherElementsV2": ascend,
    "Index": ascend,
    "EmbeddingBag": ascend,
}
