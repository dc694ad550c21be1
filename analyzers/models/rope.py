"""Rotary position embedding.

RoFormer (Su et al., arXiv 2104.09864): each pair of numbers is turned by an angle, 4 multiplies and 2 adds
for 2 numbers, so 3 FLOPs a rotated element. Bytes: the rotated part of Q and K is read and written once,
one row of the cosine-sine table and one position per token are read.
"""

from __future__ import annotations

from stallscope.analyzers.models.call import Call, Cost, NoModel, Tensor, Traffic, nbytes
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model, names


def rotary_embedding(call: Call) -> Cost:
    """`rotary_embedding(positions[T], q, k, head_size, cos_sin_cache[max,rot], is_neox)`, in place.

    With rot < head_size only that part of each head is touched.
    """
    positions, q = call.need(0), call.need(1)
    table = next(
        (
            t
            for t in call.given[2:]
            if len(t.shape) == 2 and t.shape[-1] <= 1024 and not t.is_index and t.shape[0] != q.shape[0]
        ),
        None,
    )
    if table is None:
        table = call.tensor(4)
    if table is None or len(table.shape) != 2:
        raise NoModel
    key = call.tensor(2)
    key = key if key is not None and key is not table else None
    rot, head = table.shape[1], call.integer(3) or table.shape[1]
    tokens = positions.numel
    return _rotated([q, *([key] if key is not None else [])], rot, head, tokens, positions, table)


def _rotated(
    turned: list[Tensor], rot: int, head: int, tokens: int, positions: Tensor, table: Tensor
) -> Cost:
    traffic = Traffic().reads(positions)
    flops = 0
    for tensor in turned:
        part = tensor.numel * min(rot, head) // max(head, 1)
        traffic.read += nbytes(part, tensor.dtype)
        traffic.writes(part, tensor.dtype)
        flops += 3 * part
    traffic.read += nbytes(tokens * rot, table.dtype)
    return traffic.cost(flops, turned[0].dtype, Family.ROPE)


def recorded(call: Call) -> Cost:
    """All arguments are whole tensors: `RotaryMul(x, cos, sin)`, `ApplyRotaryPosEmb(q, k, cos, sin)`.

    The tensors of the size of x (or of an output) are turned, the smaller ones are tables.
    """
    given = call.given
    if len(given) < 2:
        raise NoModel
    size = given[0].numel
    turned = [t for t in given if t.numel * 64 >= size and len(t.shape) == len(given[0].shape)]
    tables = [t for t in given[1:] if t.shape[-1] == given[0].shape[-1] and t.numel < size]
    turned = [t for t in turned if t not in tables] or [given[0]]
    traffic = Traffic().reads(*given)
    for tensor in turned:
        traffic.writes(tensor.numel, tensor.dtype)
    return traffic.cost(3 * sum(t.numel for t in turned), given[0].dtype, Family.ROPE)


_TABLES = names("rotary_embedding batched_rotary_embedding rotary_embedding_deepseek")
_RECORDED = names(
    "RotaryMul RotaryPositionEmbedding ApplyRotaryPosEmb npu_rotary_mul npu_apply_rotary_pos_emb "
    "RopeWithSinCosCache InterleaveRope RotaryPositionEmbeddingGrad apply_rotary"
)

MODELS: dict[str, Model] = {**dict.fromkeys(_TABLES, rotary_embedding), **dict.fromkeys(_RECORDED, recorded)}
