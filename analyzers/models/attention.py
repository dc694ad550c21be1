"""Attention: dense, causal, of varying lengths, paged, and latent (MLA).

Formulas (FlashAttention, Dao et al., arXiv 2205.14135 and 2307.08691, which count the two matrix products
and leave the softmax out): with P query-key pairs per head, scores take 2*H*P*d_qk FLOPs and the weighted
sum 2*H*P*d_v. Bytes: Q, K and V are read once, the output is written once, each at its element size; the
score matrix never reaches memory; an added mask is read once. The statistics that a backward pass would
need (4 bytes per query and head) are not counted: they are below 1 % of Q.

Pairs per head:
- no mask: Nq * Nkv;
- causal, aligned to the end (FlashAttention, decoding with a cache): Nq*Nkv - Nq(Nq-1)/2 for Nq <= Nkv,
  else Nkv(Nkv+1)/2, since the first Nq-Nkv rows see nothing;
- causal, aligned to the start (`scaled_dot_product_attention(is_causal=True)`): Nq(Nq+1)/2 for Nq <= Nkv,
  else Nkv(Nkv+1)/2 + (Nq-Nkv)*Nkv. Both are equal for Nq = Nkv: N(N+1)/2.

(Half of Nq*Nkv, as some tools count, leaves out half of the diagonal: 0.2 % at 559 tokens.)
"""

from __future__ import annotations

from stallscope.analyzers.models.call import (
    Basis,
    Call,
    Cost,
    NoModel,
    StepTokens,
    Tensor,
    Traffic,
    nbytes,
    promote,
)
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model, names

_HIDDEN = "how many cached tokens each request reads is not recorded"


def pairs(nq: int, nkv: int, causal: str = "") -> int:
    """Query-key pairs of one head; `causal` is "", "end" or "start" (see the head of this file).

    >>> pairs(559, 559), pairs(559, 559, "end"), pairs(2, 5, "end"), pairs(2, 5, "start")
    (312481, 156520, 9, 3)
    """
    if not causal:
        return nq * nkv
    if causal == "start":
        return nq * (nq + 1) // 2 if nq <= nkv else nkv * (nkv + 1) // 2 + (nq - nkv) * nkv
    return nq * nkv - nq * (nq - 1) // 2 if nq <= nkv else nkv * (nkv + 1) // 2


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    heads: int,
    all_pairs: int,
    d_qk: int,
    d_v: int,
    out_numel: int,
    mask: Tensor | None = None,
    basis: Basis = "shapes",
    note: str = "",
) -> Cost:
    """2*heads*pairs*(d_qk + d_v) FLOPs, pairs summed over the batch; Q, K, V and the output once."""
    traffic = Traffic().reads(q, k, v, mask).writes(out_numel, q.dtype)
    flops = 2 * heads * all_pairs * (d_qk + d_v)
    return traffic.cost(
        flops, promote((q.dtype,)) or q.dtype, Family.ATTENTION, unit="matrix", basis=basis, note=note
    )


def _batch_heads_first(
    q: Tensor, k: Tensor, v: Tensor, causal: str, mask: Tensor | None, note: str = ""
) -> Cost:
    """Q[..,Hq,Nq,d], K[..,Hkv,Nkv,d], V[..,Hkv,Nkv,dv]; Hq may be a multiple of Hkv (grouped queries)."""
    if len(q.shape) < 3 or len(k.shape) != len(q.shape) or len(v.shape) != len(q.shape):
        raise NoModel
    if q.shape[-1] != k.shape[-1] or v.shape[-2] != k.shape[-2]:
        raise NoModel
    nq, d_qk, nkv, d_v = q.shape[-2], q.shape[-1], k.shape[-2], v.shape[-1]
    heads = q.numel // max(nq * d_qk, 1)
    return _attention(
        q,
        k,
        v,
        heads=heads,
        all_pairs=pairs(nq, nkv, causal),
        d_qk=d_qk,
        d_v=d_v,
        out_numel=heads * nq * d_v,
        mask=mask,
        note=note,
    )


def _mask(call: Call, index: int) -> Tensor | None:
    tensor = call.tensor(index)
    return tensor if tensor is not None and len(tensor.shape) >= 2 else None


def _causal(flag: bool | None) -> tuple[str, str]:
    """The alignment of SDPA and a remark where the flag was not recorded."""
    if flag is None:
        return "start", "whether it is causal is not recorded: taken as causal"
    return ("start" if flag else ""), ""


def _known(cost: Cost, remark: str) -> Cost:
    if not remark:
        return cost
    return Cost(
        cost.flops,
        cost.bytes_read,
        cost.bytes_written,
        cost.dtype,
        cost.family,
        "lower bound",
        f"{cost.note}; {remark}" if cost.note else remark,
        cost.unit,
    )


def sdpa(call: Call) -> Cost:
    """`scaled_dot_product_attention(q, k, v, mask, dropout, is_causal, ...)` and its math form."""
    causal, remark = _causal(call.flag(5))
    cost = _batch_heads_first(call.need(0), call.need(1), call.need(2), causal, _mask(call, 3))
    return _known(cost, remark)


def sdpa_flash(call: Call) -> Cost:
    """`_scaled_dot_product_flash_attention(q, k, v, dropout, is_causal, ...)` and the CPU form."""
    causal, remark = _causal(call.flag(4))
    return _known(_batch_heads_first(call.need(0), call.need(1), call.need(2), causal, None), remark)


def sdpa_biased(call: Call) -> Cost:
    """`_scaled_dot_product_{efficient,cudnn}_attention(q, k, v, bias, compute_lse, dropout, is_causal)`."""
    causal, remark = _causal(call.flag(6))
    return _known(
        _batch_heads_first(call.need(0), call.need(1), call.need(2), causal, _mask(call, 3)), remark
    )


def sdpa_overrideable(call: Call) -> Cost:
    """`_scaled_dot_product_fused_attention_overrideable(q, k, v, bias, dropout, is_causal, ...)`."""
    causal, remark = _causal(call.flag(5))
    return _known(
        _batch_heads_first(call.need(0), call.need(1), call.need(2), causal, _mask(call, 3)), remark
    )


def _heads_last(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    causal: str,
    note: str = "",
    basis: Basis = "shapes",
    mask: Tensor | None = None,
) -> Cost:
    """Q[B,Nq,H,d], K[B,Nkv,Hkv,d], V[B,Nkv,Hkv,dv]."""
    if len(q.shape) != 4 or len(k.shape) != 4 or len(v.shape) != 4 or q.shape[3] != k.shape[3]:
        raise NoModel
    batch, nq, heads, d_qk = q.shape
    nkv, d_v = k.shape[1], v.shape[3]
    return _attention(
        q,
        k,
        v,
        heads=heads,
        all_pairs=batch * pairs(nq, nkv, causal),
        d_qk=d_qk,
        d_v=d_v,
        out_numel=batch * nq * heads * d_v,
        basis=basis,
        note=note,
        mask=mask,
    )


def flash_forward(call: Call) -> Cost:
    """`_flash_attention_forward(q, k, v, cu_q, cu_k, max_q, max_k, dropout, is_causal, ...)`.

    Dense Q[B,N,H,d], or packed Q[T,H,d] with cumulative lengths; causal is aligned to the end.
    """
    q, k, v = call.need(0), call.need(1), call.need(2)
    flag = call.flag(8)
    remark = "whether it is causal is not recorded: taken as causal" if flag is None else ""
    causal = "" if flag is False else "end"
    if len(q.shape) == 4:
        return _known(_heads_last(q, k, v, causal), remark)
    return _known(
        _packed(call, q, k, v, call.tensor(3), call.tensor(4), call.integer(5), call.integer(6), causal),
        remark,
    )


def efficient_forward(call: Call) -> Cost:
    """`_efficient_attention_forward(q, k, v, bias, cu_q, cu_k, max_q, max_k, dropout, mask_type, ...)`.

    Q[B,N,H,d]; mask type 1 is causal aligned to the start, 2 to the end.
    """
    q, k, v = call.need(0), call.need(1), call.need(2)
    kind = call.integer(9)
    causal = {0: "", 1: "start", 2: "end"}.get(kind if kind is not None else -1)
    remark = "" if causal is not None else "whether it is causal is not recorded: taken as causal"
    if call.tensor(4) is not None and q.shape[:1] == (1,) and len(q.shape) == 4:
        flat_q, flat_k, flat_v = (Tensor(t.shape[1:], t.dtype) for t in (q, k, v))
        return _known(
            _packed(
                call,
                flat_q,
                flat_k,
                flat_v,
                call.tensor(4),
                call.tensor(5),
                call.integer(6),
                call.integer(7),
                "end" if causal is None else causal,
            ),
            remark,
        )
    return _known(_heads_last(q, k, v, "start" if causal is None else causal, mask=_mask(call, 3)), remark)


def flash_dense(call: Call) -> Cost:
    """`flash_attn::_flash_attn_forward(q[B,N,H,d], k, v, dropout, scale, causal, ...)`."""
    flag = call.flag(5)
    remark = "whether it is causal is not recorded: taken as causal" if flag is None else ""
    return _known(
        _heads_last(call.need(0), call.need(1), call.need(2), "" if flag is False else "end"), remark
    )


def flash_varlen(call: Call) -> Cost:
    """`_flash_attn_varlen_forward(q[T,H,d], k, v, cu_q, cu_k, max_q, max_k, dropout, scale, causal, ..)`."""
    flag = call.flag(9)
    remark = "whether it is causal is not recorded: taken as causal" if flag is None else ""
    causal = "" if flag is False else "end"
    return _known(
        _packed(
            call,
            call.need(0),
            call.need(1),
            call.need(2),
            call.tensor(3),
            call.tensor(4),
            call.integer(5),
            call.integer(6),
            causal,
        ),
        remark,
    )


def _packed(
    call: Call,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    cu_q: Tensor | None,
    cu_k: Tensor | None,
    max_q: int | None,
    max_k: int | None,
    causal: str,
) -> Cost:
    """Sequences packed one after the other: Q[T,H,d], K[Tk,Hkv,d], lengths hidden in cu_q and cu_k.

    Exact for one sequence, for sequences that all have the longest length, and where the step tells its
    sums. Else a lower bound: for equal query and key lengths, sum of n^2 >= T^2/B (Cauchy); otherwise
    every query and every key takes part in one pair at least.
    """
    if len(k.shape) == 4:
        return _paged(call, q, k, v)
    if len(q.shape) != 3 or len(k.shape) != 3:
        raise NoModel
    tokens, heads, d_qk = q.shape
    kv_tokens, d_v = k.shape[0], v.shape[-1]
    batch = cu_q.numel - 1 if cu_q is not None and cu_q.numel > 1 else 0
    all_pairs, basis, note = _packed_pairs(call.step, tokens, kv_tokens, batch, max_q, max_k, causal)
    return _attention(
        q,
        k,
        v,
        heads=heads,
        all_pairs=all_pairs,
        d_qk=d_qk,
        d_v=d_v,
        out_numel=tokens * heads * d_v,
        basis=basis,
        note=note,
    )


def _packed_pairs(
    step: StepTokens | None,
    tokens: int,
    kv_tokens: int,
    batch: int,
    max_q: int | None,
    max_k: int | None,
    causal: str,
) -> tuple[int, Basis, str]:
    if batch == 1:
        return pairs(tokens, kv_tokens, causal), "shapes", ""
    if batch and max_q and max_k and tokens == batch * max_q and kv_tokens == batch * max_k:
        return batch * pairs(max_q, max_k, causal), "shapes", ""
    if step is not None and causal and step.kv_tokens:
        return step.causal_pairs, "shapes", "lengths from the step's annotation"
    if batch and tokens == kv_tokens:
        squares = -(-tokens * tokens // batch)
        low = (squares + tokens) // 2 if causal else squares
        return low, "lower bound", f"lengths of {batch} sequences are not recorded: taken as equal"
    return max(tokens, kv_tokens), "lower bound", "lengths of the sequences are not recorded"


def _query_heads(q: Tensor, head_dim: int) -> tuple[int, int]:
    """(tokens, heads) of a query [T,H,d], [B,N,H,d] or [T,H*d]."""
    if head_dim <= 0 or q.numel % head_dim:
        raise NoModel
    if len(q.shape) >= 3 and q.shape[-1] == head_dim:
        return q.numel // (q.shape[-2] * head_dim) if q.shape[-2] else 0, q.shape[-2]
    if len(q.shape) == 2 and q.shape[1] % head_dim == 0:
        return q.shape[0], q.shape[1] // head_dim
    raise NoModel


def _cached(
    q: Tensor,
    *,
    heads: int,
    kv_heads: int,
    d_qk: int,
    d_v: int,
    tokens: int,
    kv_dtype: str,
    step: StepTokens | None,
    kv_width: int | None = None,
) -> Cost:
    """Attention over a cache. Each cached token is read once: kv_heads*(d_qk+d_v) numbers of kv_dtype.

    With the step's sums: pairs under a causal mask and cached tokens are known. Without: a lower bound of
    one cached token per query. Sources of the sums: see `call.StepTokens`.
    """
    width = kv_heads * (d_qk + d_v) if kv_width is None else kv_width
    known = step is not None and step.kv_tokens > 0
    kv_tokens = step.kv_tokens if step is not None and known else tokens
    all_pairs = step.causal_pairs if step is not None and known else tokens
    traffic = Traffic().reads(q).writes(tokens * heads * d_v, q.dtype)
    traffic.read += nbytes(kv_tokens * width, kv_dtype)
    traffic.unknown |= not kv_dtype
    note = (
        "lengths from the step's annotation; no sliding window assumed"
        if known
        else f"{_HIDDEN}: one per query"
    )
    # A window, if the layer has one, would make both smaller, so even known sums are no more than expected.
    return traffic.cost(
        2 * heads * all_pairs * (d_qk + d_v),
        q.dtype,
        Family.ATTENTION,
        unit="matrix",
        basis="expected" if known else "lower bound",
        note=note,
    )


def _paged(call: Call, q: Tensor, k_cache: Tensor, v_cache: Tensor) -> Cost:
    """Queries against a cache [blocks, block_size, Hkv, d]."""
    d_qk, kv_heads = k_cache.shape[-1], k_cache.shape[-2]
    tokens, heads = _query_heads(q, d_qk)
    return _cached(
        q,
        heads=heads,
        kv_heads=kv_heads,
        d_qk=d_qk,
        d_v=v_cache.shape[-1],
        tokens=tokens,
        kv_dtype=k_cache.dtype,
        step=call.step,
    )


def unified(call: Call) -> Cost:
    """`vllm::unified_attention(q[T,H,d], k[T,Hkv,d], v[T,Hkv,d], layer)`, and `..._with_output`.

    The cache is an attribute of the layer: how much of it is read only the step's annotation tells. The
    cache is taken to have K's element type.
    """
    q, k, v = call.need(0), call.need(1), call.need(2)
    if len(k.shape) != 3 or len(v.shape) != 3:
        raise NoModel
    d_qk = k.shape[2]
    tokens, heads = _query_heads(q, d_qk)
    return _cached(
        q,
        heads=heads,
        kv_heads=k.shape[1],
        d_qk=d_qk,
        d_v=v.shape[2],
        tokens=tokens,
        kv_dtype=k.dtype,
        step=call.step,
    )


def unified_mla(call: Call) -> Cost:
    """`vllm::unified_mla_attention(q[T,H,d_qk], kv_c[T,r], k_pe[T,1,p], ...)`: latent attention.

    DeepSeek-V2 (arXiv 2405.04434): in decode the latent of width r+p is keys and its first r numbers are
    values, shared by all heads: 2*H*P*((r+p)+r) FLOPs and one latent per cached token. Prefill may
    expand it instead, and the products that absorb the up-projections are kernels of their own, so this
    is a lower bound.
    """
    q, latent, rope = call.need(0), call.need(1), call.need(2)
    if len(q.shape) != 3 or len(latent.shape) != 2:
        raise NoModel
    tokens, heads, _ = q.shape
    rank, width = latent.shape[1], latent.shape[1] + rope.shape[-1]
    cost = _cached(
        q,
        heads=heads,
        kv_heads=1,
        d_qk=width,
        d_v=rank,
        tokens=tokens,
        kv_dtype=latent.dtype,
        step=call.step,
        kv_width=width,
    )
    return _known(cost, "absorbed form; up-projections are not counted")


def latent_cache(call: Call) -> Cost:
    """Latent decode against a paged cache [blocks, size, (1,) r+p]: `fwd_kvcache_mla`, `mla_decode_fwd`."""
    given = call.given
    q = given[0] if given else None
    if q is None or len(q.shape) < 3:
        raise NoModel
    width = q.shape[-1]
    cache = next(
        (t for t in given[1:] if len(t.shape) >= 3 and t.shape[-1] == width and t.numel > q.numel), None
    )
    if cache is None:
        raise NoModel
    out = next((t for t in given[1:] if t is not cache and t.shape[:-1] == q.shape[:-1]), None)
    rank = out.shape[-1] if out is not None else call.integer(2) or width
    tokens, heads = _query_heads(q, width)
    return _cached(
        q,
        heads=heads,
        kv_heads=1,
        d_qk=width,
        d_v=rank,
        tokens=tokens,
        kv_dtype=cache.dtype,
        step=call.step,
        kv_width=width,
    )


def paged(call: Call) -> Cost:
    """A paged kernel of a library: `paged_attention_v1(out, q, k_cache, v_cache, ...)` and its siblings.

    Q is [T,H,d]; the two largest tensors of one type whose trailing dimensions hold Hkv and d are the
    caches. The old vLLM layout splits d: [blocks, Hkv, d/x, size, x].
    """
    floats = [t for t in call.given if len(t.shape) >= 3 and t.dtype]
    small = [t for t in floats if len(t.shape) == 3]
    caches = [t for t in floats if len(t.shape) >= 4]
    if not small or len(caches) < 2:
        raise NoModel
    q = small[0]
    tokens, heads, d = q.shape
    k_cache, v_cache = caches[0], caches[1]
    kv_heads = _cache_heads(k_cache, d)
    return _cached(
        q,
        heads=heads,
        kv_heads=kv_heads,
        d_qk=d,
        d_v=d,
        tokens=tokens,
        kv_dtype=v_cache.dtype,
        step=call.step,
    )


def _cache_heads(cache: Tensor, d: int) -> int:
    """Key-value heads of [blocks, size, Hkv, d], [blocks, Hkv, size, d] or [blocks, Hkv, d/x, size, x]."""
    if len(cache.shape) == 5:
        return cache.shape[1]
    if cache.shape[3] == d:
        return cache.shape[2]
    if cache.shape[2] == d:
        return cache.shape[1]
    raise NoModel


def flash_cached(call: Call) -> Cost:
    """`_vllm_fa2_C::varlen_fwd`, `_vllm_fa3_C::fwd`, `sgl_kernel::fwd`: K and V packed or paged."""
    given = [t for t in call.given if len(t.shape) >= 3 and t.is_float]
    if len(given) < 3:
        raise NoModel
    q, k, v = given[0], given[1], given[2]
    if len(k.shape) == 4 and len(q.shape) == 3:
        return _paged(call, q, k, v)
    if len(q.shape) == 4 and len(k.shape) == 4:
        return _known(_heads_last(q, k, v, "end"), "whether it is causal or paged is not recorded")
    lengths = [t for t in call.given if len(t.shape) == 1 and t.is_index]
    return _known(
        _packed(call, q, k, v, lengths[0] if lengths else None, None, None, None, "end"),
        "whether it is causal is not recorded: taken as causal",
    )


def ascend_flash(call: Call) -> Cost:
    """`FlashAttentionScore` of kernel_details: Q, K, V, ..., mask; the layout is an attribute.

    Rows of heads are told by the softmax output [B,H,S,8] (or its size), the head dimension by Q's size.
    With a mask the sparse mode is not recorded: taken as causal, a lower bound.
    """
    q, k, v = call.need(0), call.need(1), call.need(2)
    masks = [t for t in call.tensors[3:] if t is not None and len(t.shape) >= 2]
    mask = masks[-1] if masks else None
    rows, nq = _softmax_rows(call, mask)
    if rows == 0 or nq == 0 or q.numel % rows or rows % nq:
        raise NoModel
    d, batch_heads = q.numel // rows, rows // nq
    nkv = _ascend_kv_length(q, k, nq, d)
    cost = _attention(
        q,
        k,
        v,
        heads=batch_heads,
        all_pairs=pairs(nq, nkv, "end" if mask is not None else ""),
        d_qk=d,
        d_v=d,
        out_numel=q.numel,
    )
    if mask is None:
        return cost
    return _known(cost, "the sparse mode of the mask is not recorded: taken as causal")


def ascend_flash_grad(call: Call) -> Cost:
    """`FlashAttentionScoreGrad` of kernel_details: Q, K, V, dY, mask, softmax statistics, output.

    Five products of the forward pass's size instead of two: 2.5 times its FLOPs (arXiv 2307.08691). Q, K, V, dY, the
    output and the statistics are read once, the gradients of Q, K and V written once. The mask as in `ascend_flash`.
    """
    q, k, v = call.need(0), call.need(1), call.need(2)
    stats = [t for t in call.given if t.dtype == "fp32" and len(t.shape) == 4 and t.shape[3] == 8]
    if not stats:
        raise NoModel
    rows, nq = stats[0].numel // 8, stats[0].shape[2]
    if rows == 0 or nq == 0 or q.numel % rows:
        raise NoModel
    d, batch_heads = q.numel // rows, rows // nq
    masked = any(t.dtype in ("bool", "uint8") and len(t.shape) >= 2 for t in call.given[3:])
    nkv = _ascend_kv_length(q, k, nq, d)
    all_pairs = pairs(nq, nkv, "end" if masked else "")
    traffic = Traffic().reads(*(t for t in call.given if t.is_float))
    for tensor in (q, k, v):
        traffic.writes(tensor.numel, tensor.dtype)
    cost = traffic.cost(10 * batch_heads * all_pairs * d, q.dtype, Family.ATTENTION, unit="matrix")
    return _known(cost, "the sparse mode of the mask is not recorded: taken as causal" if masked else "")


def _softmax_rows(call: Call, mask: Tensor | None) -> tuple[int, int]:
    """(B*H*S, S) from the softmax statistics, which hold 8 numbers a row; (0, 0) where they do not tell."""
    for tensor in call.outputs:
        if tensor.dtype == "fp32" and len(tensor.shape) == 4 and tensor.shape[3] == 8:
            return tensor.numel // 8, tensor.shape[2]
        if tensor.dtype == "fp32" and len(tensor.shape) == 1 and tensor.numel % 8 == 0 and mask is not None:
            return tensor.numel // 8, mask.shape[-2]
    return 0, 0


def _ascend_kv_length(q: Tensor, k: Tensor, nq: int, d: int) -> int:
    """Nkv: the dimension of K that stands where Nq stands in Q; raises NoModel where it is not clear."""
    if len(q.shape) != len(k.shape):
        raise NoModel
    places = [i for i, n in enumerate(q.shape[:-1]) if n == nq]
    if len(places) != 1 or q.shape[-1] % d or k.shape[-1] % d:
        raise NoModel
    return k.shape[places[0]]


def ascend_infer(call: Call) -> Cost:
    """`FusedInferAttentionScore`, `IncreFlashAttention`, `PromptFlashAttention`: Q, K, V, ...

    The layout and the true lengths are attributes or values. With K as long as its tensor FLOPs are at
    most 4*|Q|*Nkv; the sums of the step replace that. Without them only Q and the output are certain.
    """
    q, k = call.need(0), call.need(1)
    out_numel = call.outputs[0].numel if call.outputs else q.numel
    step = call.step
    traffic = Traffic().reads(q).writes(out_numel, q.dtype)
    if step is None or not step.kv_tokens or len(q.shape) < 3 or step.generation_q + step.context_q == 0:
        return traffic.cost(
            0, q.dtype, Family.ATTENTION, unit="matrix", basis="lower bound", note=f"{_HIDDEN}: none counted"
        )
    tokens = step.context_q + step.generation_q
    width = q.numel // tokens if q.numel % tokens == 0 else q.shape[-1] * q.shape[-2]
    kv_width = k.shape[-1] if len(k.shape) == 3 else k.shape[-1] * min(k.shape[-2], k.shape[-3])
    traffic.read += nbytes(2 * step.kv_tokens * kv_width, k.dtype)
    return traffic.cost(
        4 * width * step.causal_pairs,
        q.dtype,
        Family.ATTENTION,
        unit="matrix",
        basis="expected",
        note="lengths from the step's annotation",
    )


def ascend_paged(call: Call) -> Cost:
    """`PagedAttention` (ATB): Q[T,H,d], caches [blocks, size, Hkv, d], block table, lengths."""
    return paged(call)


_PAGED = names(
    "paged_attention_v1 paged_attention_v2 paged_attention paged_attention_rocm paged_attention_ragged "
    "pa_fwd pa_fwd_asm pa_fwd_naive attention_paged_attention_ragged _npu_paged_attention "
    "_npu_paged_attention_splitfuse paged_attention_ragged_100"
)

_LATENT = names(
    "fwd_kvcache_mla flash_mla_with_kvcache mla_decode_fwd mla_decode_stage1_asm_fwd cutlass_mla_decode "
    "flash_mla_fwd _npu_paged_attention_mla"
)

MODELS: dict[str, Model] = {
    "aten::scaled_dot_product_attention": sdpa,
    "aten::_scaled_dot_product_attention_math": sdpa,
    "aten::_scaled_dot_product_flash_attention": sdpa_flash,
    "aten::_scaled_dot_product_flash_attention_for_cpu": sdpa_flash,
    "aten::_scaled_dot_product_efficient_attention": sdpa_biased,
    "aten::_scaled_dot_product_cudnn_attention": sdpa_biased,
    "aten::_scaled_dot_product_fused_attention_overrideable": sdpa_overrideable,
    "aten::_flash_attention_forward": flash_forward,
    "aten::_efficient_attention_forward": efficient_forward,
    "flash_attn::_flash_attn_forward": flash_dense,
    "flash_attn::_flash_attn_varlen_forward": flash_varlen,
    "flash_attn_3::_flash_attn_forward": flash_cached,
    "_vllm_fa2_C::varlen_fwd": flash_cached,
    "_vllm_fa3_C::fwd": flash_cached,
    "sgl_kernel::fwd": flash_cached,
    "aiter::mha_fwd": flash_cached,
    "aiter::fmha_v3_fwd": flash_cached,
    "aiter::mha_varlen_fwd": flash_cached,
    "aiter::fmha_v3_varlen_fwd": flash_cached,
    "vllm::unified_attention": unified,
    "vllm::unified_attention_with_output": unified,
    "sglang::unified_attention_with_output": unified,
    "vllm::unified_mla_attention": unified_mla,
    "vllm::unified_mla_attention_with_output": unified_mla,
    **dict.fromkeys(_PAGED, paged),
    **dict.fromkeys(_LATENT, latent_cache),
    "FlashAttentionScore": ascend_flash,
    "FlashAttentionScoreGrad": ascend_flash_grad,
    "FusedInferAttentionScore": ascend_infer,
    "IncreFlashAttention": ascend_infer,
    "PromptFlashAttention": ascend_infer,
    "PagedAttentionMaskMixedPaV2": paged,
    "PagedAttention": ascend_paged,
}
