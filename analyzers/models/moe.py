"""Mixture of experts: fused expert layers, routing, and the exchange of rows.

Formulas: M tokens, each sent to k of E experts; an expert is W1[N1,K] and W2[K,N2] with N1 = 2*N2 when
gated. FLOPs: 2*M*k*(N1*K + N2*K). Bytes: hidden states read and written once, and the weights of the
experts that get at least one token. Which ones is not recorded; for independent, even routing the
expected number is E(1 - ((E-k)/E)^M) (a token misses an expert with chance (E-k)/E). Skewed routing
touches fewer, so for bytes this is an upper expectation. Intermediate rows are taken to stay on chip.
"""

from __future__ import annotations

from stallscope.analyzers.models.call import Call, Cost, NoModel, Tensor, Traffic
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model, names


def active_experts(experts: int, topk: int, tokens: int) -> float:
    """Expected experts with at least one token: E(1 - ((E-k)/E)^M).

    >>> round(active_experts(8, 2, 1), 6), round(active_experts(128, 8, 32), 3)
    (2.0, 111.762)
    """
    if experts <= 0:
        return 0.0
    return experts * (1.0 - ((experts - min(topk, experts)) / experts) ** tokens)


def _share_of(weight: Tensor, active: float) -> int:
    """Bytes of `active` experts out of a weight [E, ...]."""
    return int(-(-weight.bytes * active // max(weight.shape[0], 1)))


def fused_experts(call: Call) -> Cost:
    """`fused_experts(hidden[M,K], w1[E,N1,K'], w2[E,K,N2'], topk_weights[M,k], topk_ids[M,k], ...)`.

    K' and N2' may be packed; K comes from the hidden states, N1 from w1 and N2 is N1 or N1/2 (gated),
    whichever fits w2.
    """
    given = call.given
    hidden = next((t for t in given if len(t.shape) == 2 and t.is_float), None)
    weights = [t for t in given if len(t.shape) == 3]
    if hidden is None or len(weights) < 2:
        raise NoModel
    w1, w2 = weights[0], weights[1]
    tokens, k_dim = hidden.shape
    experts, n1 = w1.shape[0], w1.shape[1]
    if w2.shape[0] != experts:
        raise NoModel
    topk = _topk(call, tokens)
    n2 = _second_inner(w1, w2, n1, k_dim)
    active = active_experts(experts, topk, tokens)
    traffic = Traffic().reads(hidden).writes(hidden.numel, hidden.dtype)
    traffic.read += _share_of(w1, active) + _share_of(w2, active)
    traffic.unknown |= not (w1.dtype and w2.dtype)
    compute = w1.dtype if w1.dtype in ("fp8", "bf16", "fp16", "int8") else hidden.dtype
    return traffic.cost(
        2 * tokens * topk * (n1 * k_dim + n2 * k_dim),
        compute,
        Family.MOE,
        unit="matrix",
        basis="expected",
        note=f"{active:.1f} of {experts} experts expected to get a token",
    )


def _topk(call: Call, tokens: int) -> int:
    """k, from the [M,k] routing tensors."""
    for tensor in call.given:
        if len(tensor.shape) == 2 and tensor.shape[0] == tokens and tensor.shape[1] <= 64 \
                and tensor.dtype in ("int32", "int64", "fp32", "uint32"):  # fmt: skip
            return tensor.shape[1]
    raise NoModel


def _second_inner(w1: Tensor, w2: Tensor, n1: int, k_dim: int) -> int:
    """N2: the inner size of the second product, N1/2 when w1 holds gate and up side by side."""
    inner = w2.numel // max(w2.shape[0] * k_dim, 1)
    packing = max(w1.numel // max(w1.shape[0] * n1, 1), 1)
    stretch = max(k_dim // packing, 1)
    return n1 // 2 if abs(inner * stretch - n1 // 2) <= abs(inner * stretch - n1) else n1


def hidden_only(call: Call) -> Cost:
    """`vllm::moe_forward(hidden[M,K], router_logits[M,E], ...)`: the weights are attributes of the layer.

    Only the hidden states, in and out, and the logits are certain.
    """
    hidden = call.need(0)
    traffic = Traffic().reads(hidden, call.tensor(1)).writes(hidden.numel, hidden.dtype)
    return traffic.cost(
        0,
        hidden.dtype,
        Family.MOE,
        unit="matrix",
        basis="lower bound",
        note="expert weights and k are not recorded: only hidden states and logits are counted",
    )


def routing(call: Call) -> Cost:
    """Gating over logits [M,E]: softmax or sigmoid, the k largest, scores and ids [M,k] out.

    About 5 FLOPs a logit for the softmax; logits read once, what is recorded as output written once.
    """
    wide = max(
        (t for t in call.given if len(t.shape) == 2 and t.is_float), key=lambda t: t.numel, default=None
    )
    if wide is None:
        raise NoModel
    narrow = [t for t in call.given if t is not wide and len(t.shape) == 2 and t.shape[0] == wide.shape[0]
              and t.shape[1] < wide.shape[1]]  # fmt: skip
    traffic = Traffic().reads(wide)
    for tensor in [*narrow, *call.outputs]:
        traffic.writes(tensor.numel, tensor.dtype)
    certain = bool(narrow or call.outputs)
    return traffic.cost(
        5 * wide.numel,
        wide.dtype,
        Family.MOE,
        basis="shapes" if certain else "lower bound",
        note="" if certain else "the chosen experts are not recorded",
    )


def moves_rows(call: Call) -> Cost:
    """Sorting, permuting, aligning and summing rows of tokens: every recorded tensor once, no arithmetic."""
    if not call.given:
        raise NoModel
    traffic = Traffic().reads(*call.given)
    for tensor in call.outputs:
        traffic.writes(tensor.numel, tensor.dtype)
    return traffic.cost(
        0,
        call.given[0].dtype,
        Family.MOE,
        basis="shapes" if call.outputs else "lower bound",
        note="" if call.outputs else "inputs once; outputs are not told apart",
    )


_FUSED = names(
    "inplace_fused_experts outplace_fused_experts fused_experts fused_moe fused_moe_ asm_moe ck_moe "
    "fmoe rocm_aiter_fused_moe rocm_aiter_asm_moe_tkw1 fused_experts_cpu fused_marlin_moe"
)

_ROUTING = names(
    "topk_softmax topk_sigmoid grouped_topk biased_grouped_topk moe_fused_gate MoeGatingTopK "
    "MoeGatingTopKSoftmax MoeGatingTopKSoftmaxV2 npu_moe_gating_top_k npu_moe_gating_top_k_softmax "
    "rocm_aiter_topk_softmax rocm_aiter_grouped_topk rocm_aiter_biased_grouped_topk TopK"
)

_ROWS = names(
    "moe_align_block_size moe_sum moe_sorting_fwd moe_permute moe_unpermute MoeInitRouting "
    "MoeInitRoutingV2 MoeInitRoutingQuantV2 MoeInitRoutingV3 MoeFinalizeRouting MoeFinalizeRoutingV2 "
    "MoeComputeExpertTokens MoeTokenPermute MoeTokenUnpermute MoeReRouting SortTokens"
)

MODELS: dict[str, Model] = {
    "vllm::moe_forward": hidden_only,
    "vllm::moe_forward_shared": hidden_only,
    **dict.fromkeys(_FUSED, fused_experts),
    **dict.fromkeys(_ROUTING, routing),
    **dict.fromkeys(_ROWS, moves_rows),
}
