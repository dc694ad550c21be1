"""Choosing tokens: top-k, sort, random draws over logits.

Comparisons are no FLOPs. Bytes: the logits are read once and the results written once; a sort or a
radix selection in practice passes over the data several times, so these are lower bounds.
"""

from __future__ import annotations

from stallscope.analyzers.models.call import Call, Cost, NoModel, Traffic
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model, names

_PASSES = "one pass over the data; real kernels take several"


def topk(call: Call) -> Cost:
    """`topk(x, k, dim, largest, sorted)`: k values and k int64 places per row."""
    x, k = call.need(0), call.integer(1)
    if k is None or not x.shape:
        raise NoModel
    dim = call.integer(2)
    at = (dim if dim is not None else -1) % len(x.shape)
    out = x.numel // max(x.shape[at], 1) * k
    traffic = Traffic().reads(x).writes(out, x.dtype).writes(out, "int64")
    return traffic.cost(0, x.dtype, Family.SAMPLING, basis="lower bound", note=_PASSES)


def sort(call: Call) -> Cost:
    """`sort(x, ...)`, `argsort`: as many values and int64 places as x has elements (argsort: places only)."""
    x = call.need(0)
    traffic = Traffic().reads(x).writes(x.numel, "int64")
    if not call.base.startswith("arg"):
        traffic.writes(x.numel, x.dtype)
    return traffic.cost(0, x.dtype, Family.SAMPLING, basis="lower bound", note=_PASSES)


def multinomial(call: Call) -> Cost:
    """`multinomial(p, n, ...)`: the probabilities once, n int64 draws per row."""
    x, n = call.need(0), call.integer(1)
    rows = x.numel // max(x.shape[-1], 1) if x.shape else 1
    traffic = Traffic().reads(x).writes(rows * (n or 1), "int64")
    return traffic.cost(x.numel, x.dtype, Family.SAMPLING, basis="lower bound", note=_PASSES)


def random_fill(call: Call) -> Cost:
    """`normal_(x)`, `uniform_`, `exponential_`, `bernoulli_`: x is written once."""
    x = call.need(0)
    return Traffic().writes(x.numel, x.dtype).cost(0, x.dtype, Family.SAMPLING)


def library(call: Call) -> Cost:
    """`top_k_top_p_sampling_from_probs(probs, ...)` and its siblings: every recorded tensor once."""
    if not call.given:
        raise NoModel
    x = max(call.given, key=lambda t: t.numel)
    traffic = Traffic().reads(*call.given)
    return traffic.cost(0, x.dtype, Family.SAMPLING, basis="lower bound", note=_PASSES)


def ascend(call: Call) -> Cost:
    """`TopKV2`, `Sort`, `ArgMaxV2`, `ArgMaxWithValue`, `ApplyTopKTopP`: recorded inputs and outputs once."""
    if not call.outputs or not call.given:
        raise NoModel
    traffic = Traffic().reads(*call.given)
    for tensor in call.outputs:
        traffic.writes(tensor.numel, tensor.dtype)
    return traffic.cost(0, call.given[0].dtype, Family.SAMPLING, basis="lower bound", note=_PASSES)


_LIBRARY = names(
    "top_k_top_p_sampling_from_probs top_k_sampling_from_probs top_p_sampling_from_probs "
    "min_p_sampling_from_probs top_k_renorm_probs top_p_renorm_probs sampling_from_probs "
    "sampling_from_logits apply_repetition_penalties_"
)

MODELS: dict[str, Model] = {
    "aten::topk": topk,
    "aten::sort": sort,
    "aten::msort": sort,
    "aten::argsort": sort,
    "aten::multinomial": multinomial,
    "aten::normal": random_fill,
    "aten::uniform": random_fill,
    "aten::exponential": random_fill,
    "aten::bernoulli": random_fill,
    "aten::random": random_fill,
    **dict.fromkeys(_LIBRARY, library),
    **dict.fromkeys(names("TopKV2 TopKV3 Sort ArgMaxV2 ArgMaxWithValue ArgMin ApplyTopKTopP ApplyTopKTopPWithSorted"),
                    ascend),
}  # fmt: skip
