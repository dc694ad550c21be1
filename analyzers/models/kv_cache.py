"""Writing new keys and values into the cache.

No arithmetic. Bytes: per written token the new key and value are read in their type and written in the
cache's type, and its slot number is read. The number of tokens is that of the slots: in graph replays keys
are padded, slots of padding are -1 and write nothing, which the shapes do not show.
"""

from __future__ import annotations

from stallscope.analyzers.models.call import Call, Cost, NoModel, Tensor, Traffic, nbytes
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model


def _written(sources: list[Tensor], cache: Tensor | None, slots: Tensor | None) -> Cost:
    rows = slots.numel if slots is not None else None
    traffic = Traffic().reads(slots)
    for source in sources:
        width = source.numel // max(source.shape[0], 1) if source.shape else source.numel
        count = width * rows if rows is not None else source.numel
        traffic.read += nbytes(count, source.dtype)
        traffic.unknown |= not source.dtype
        traffic.writes(count, cache.dtype if cache is not None else source.dtype)
    return traffic.cost(0, sources[0].dtype, Family.KV_CACHE)


def reshape_and_cache(call: Call) -> Cost:
    """`reshape_and_cache_flash(k[T,H,d], v[T,H,d], k_cache, v_cache, slots[T], ...)`, `store_cache`.

    An 8-bit cache held as uint8 is written with one byte a number.
    """
    key, value = call.need(0), call.need(1)
    slots = next((t for t in call.given[2:] if t.is_index and len(t.shape) == 1), None)
    return _written([key, value], call.tensor(2), slots)


def latent(call: Call) -> Cost:
    """`concat_and_cache_mla(kv_c[T,r], k_pe[T,p], cache, slots[T], ...)`."""
    return _written([call.need(0), call.need(1)], call.need(2), call.tensor(3))


def update(call: Call) -> Cost:
    """`vllm::unified_kv_cache_update(k[T,H,d], v[T,H,d], layer)`: the cache is taken to have K's type."""
    return _written([call.need(0), call.need(1)], None, None)


def ascend(call: Call) -> Cost:
    """`ReshapeAndCache`, `ScatterPaKvCache`, `ScatterUpdate`: key and value are the first two inputs."""
    given = call.given
    if len(given) < 2:
        raise NoModel
    slots = next((t for t in given if t.is_index and len(t.shape) == 1), None)
    sources = [t for t in given[:2] if not t.is_index]
    if not sources:
        raise NoModel
    cache = next((t for t in given[len(sources) :] if t.numel > sources[0].numel), None)
    return _written(sources, cache, slots)


MODELS: dict[str, Model] = {
    "reshape_and_cache": reshape_and_cache,
    "reshape_and_cache_flash": reshape_and_cache,
    "store_cache": reshape_and_cache,
    "memory_pool__set_kv_buffer_impl": reshape_and_cache,
    "store_kvcache": reshape_and_cache,
    "_npu_reshape_and_cache": reshape_and_cache,
    "concat_and_cache_mla": latent,
    "vllm::unified_kv_cache_update": update,
    "ReshapeAndCache": ascend,
    "ReshapeAndCacheNdKernel": ascend,
    "ScatterPaKvCache": ascend,
}
