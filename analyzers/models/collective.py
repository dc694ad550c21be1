"""Collectives: how many bytes a message has and how many cross the links.

Bus factors (NCCL tests, PERFORMANCE.md): with n ranks, all-reduce moves 2(n-1)/n of the message over each
rank's links, all-gather, reduce-scatter and all-to-all (n-1)/n of the whole, broadcast, reduce and
point-to-point all of it once. Bus bandwidth is message bytes * factor / time. The chip tables hold no link
speeds, so a collective has no place on the roofline of a device.
"""

from __future__ import annotations

import re

from stallscope.analyzers.models.call import Call, Cost, NoModel, Traffic, nbytes, parse_dtype
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model, names
from stallscope.profiler.light import dataclass

_KINDS: list[tuple[str, re.Pattern[str]]] = [
    ("all_reduce", re.compile(r"all_?reduce")),
    ("reduce_scatter", re.compile(r"reduce_?scatter")),
    ("all_gather", re.compile(r"all_?gather")),
    ("all_to_all", re.compile(r"all_?to_?all")),
    ("broadcast", re.compile(r"broadcast|bcast")),
    ("reduce", re.compile(r"(?<!all)(?<!all_)reduce(?!_?scatter)")),
    ("send_recv", re.compile(r"send|recv|p2p")),
    ("gather", re.compile(r"(?<!all)(?<!all_)gather")),
    ("scatter", re.compile(r"(?<!reduce)(?<!reduce_)scatter")),
]


@dataclass(frozen=True)
class Exchange:
    """One collective: its kind, the bytes of its message, the ranks (0 unknown), the bytes over the links."""

    kind: str
    message_bytes: int
    ranks: int
    bus_bytes: int | None


def kind_of(name: str) -> str:
    """The kind that a collective's name tells ("all_reduce", ...), "" for none."""
    text = name.lower()
    return next((kind for kind, pattern in _KINDS if pattern.search(text)), "")


def bus_factor(kind: str, ranks: int) -> tuple[int, int] | None:
    """Share of the message that crosses each rank's links, as (numerator, denominator)."""
    if ranks < 1 or not kind:
        return None
    if kind == "all_reduce":
        return 2 * (ranks - 1), ranks
    if kind in ("all_gather", "reduce_scatter", "all_to_all", "gather", "scatter"):
        return ranks - 1, ranks
    return 1, 1


def exchange(name: str, in_elements: int, out_elements: int, dtype: str, ranks: int) -> Exchange | None:
    """The exchange of one collective, from the arguments NCCL kernels carry in a Kineto trace.

    `In msg nelems`, `Out msg nelems`, `dtype` and `Group size`; the message is the larger side (the whole,
    for a gather or a scatter). None where the name or the type tells nothing.

    >>> exchange("allreduce", 1000, 1000, "Float", 4)
    Exchange(kind='all_reduce', message_bytes=4000, ranks=4, bus_bytes=6000)
    """
    kind, element = kind_of(name), parse_dtype(dtype)
    if not kind or not element or in_elements < 0 or out_elements < 0:
        return None
    message = nbytes(max(in_elements, out_elements), element)
    factor = bus_factor(kind, ranks)
    return Exchange(
        kind, message, max(ranks, 0), message * factor[0] // factor[1] if factor is not None else None
    )


def from_tensors(call: Call) -> Cost:
    """`record_param_comms(tensor, ...)`, `vllm::all_reduce(x, ...)`: the message is read and written once."""
    x = call.given[0] if call.given else None
    if x is None:
        raise NoModel
    traffic = Traffic().reads(x).writes(x.numel, x.dtype)
    return traffic.cost(
        x.numel if kind_of(call.base) == "all_reduce" else 0,
        x.dtype,
        Family.COLLECTIVE,
        basis="lower bound",
        note="message once in and out; other ranks' parts are not counted",
    )


_NAMES = names(
    "record_param_comms allreduce_ allgather_ _allgather_base_ reduce_scatter_ _reduce_scatter_base_ "
    "alltoall_ alltoall_base_ broadcast_ all_reduce all_gather reduce_scatter all_to_all "
    "outplace_all_reduce inplace_all_reduce outplace_all_gather reg_all_gather_into_tensor "
    "all_gather_into_tensor reduce_scatter_tensor all_reduce_reg all_reduce_unreg _all_gather_base "
    "MoeDistributeDispatch MoeDistributeDispatchV2 MoeDistributeCombine MoeDistributeCombineV2 "
    "MoeDistributeCombineAddRmsNorm MoeDistributeDispatchSetup MoeDistributeCombineSetup"
)

MODELS: dict[str, Model] = dict.fromkeys(_NAMES, from_tensors)
