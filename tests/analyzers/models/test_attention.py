"""Attention, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from stallscope.analyzers.models.attention import pairs
from stallscope.analyzers.models.call import Cost, StepTokens
from stallscope.analyzers.models.cost import estimate

BF16 = "c10::BFloat16"
VLLM_STEP = (
    "execute_8192_context_9(sq8155sk8430sqsq7475785sqsk7671310)_generation_37(sq37sk34489sqsq37sqsk34489)"
)


def cost_of(
    name: str, shapes: list[Any], types: list[str], args: list[str], step: StepTokens | None = None
) -> Cost:
    cost = estimate(name, shapes, types, args, step=step)
    assert cost is not None
    return cost


@pytest.mark.parametrize(
    ("nq", "nkv", "causal", "count"),
    [
        (3, 3, "", 9),
        (3, 3, "end", 6),
        (3, 3, "start", 6),
        (2, 5, "end", 9),  # the rows see 4 and 5 keys
        (2, 5, "start", 3),  # the rows see 1 and 2 keys
        (5, 2, "end", 3),  # the last two rows see 1 and 2 keys
        (5, 2, "start", 9),  # 1 + 2 + 2 + 2 + 2
        (1, 100, "end", 100),
        (0, 5, "end", 0),
    ],
)
def test_pairs(nq: int, nkv: int, causal: str, count: int) -> None:
    assert pairs(nq, nkv, causal) == count


@pytest.mark.parametrize("nq", range(1, 7))
@pytest.mark.parametrize("nkv", range(1, 7))
def test_pairs_agree_with_a_mask_drawn_out(nq: int, nkv: int) -> None:
    end = sum(1 for i in range(nq) for j in range(nkv) if j <= i + nkv - nq)
    start = sum(1 for i in range(nq) for j in range(nkv) if j <= i)
    assert pairs(nq, nkv, "end") == end
    assert pairs(nq, nkv, "start") == start


def test_causal_sdpa_counts_the_diagonal_whole() -> None:
    """Half of N*N, as others count, gives 10.2394 GFLOP here; the triangle has N/2 pairs more per head."""
    shapes: list[Any] = [[16, 16, 559, 64]] * 3 + [[]] * 4
    types = [BF16] * 3 + ["Scalar"] * 4
    cost = cost_of(
        "aten::_scaled_dot_product_flash_attention",
        shapes,
        types,
        ["", "", "", "0.", "True", "False", "0.125"],
    )
    assert cost.flops == 2 * 256 * (559 * 560 // 2) * 128 == 10_257_694_720
    assert cost.flops - 10_239_377_408 == 256 * 559 * 128
    assert cost.bytes == 4 * 16 * 16 * 559 * 64 * 2 == 73_269_248
    assert cost.exact


def test_the_inner_operator_has_heads_last_and_costs_the_same() -> None:
    shapes: list[Any] = [[16, 559, 16, 64]] * 3 + [[]] * 12
    types = [BF16] * 3 + ["", ""] + ["Scalar"] * 6 + [""] * 4
    args = ["", "", "", "", "", "559", "559", "0.", "True", "False", "0.125", "", "", "", ""]
    cost = cost_of("aten::_flash_attention_forward", shapes, types, args)
    assert (cost.flops, cost.bytes) == (10_257_694_720, 73_269_248)


def test_grouped_queries_read_fewer_keys() -> None:
    # 8 query heads on 2 key heads, one query against 100 keys, no mask: 2*8*100*(64+64)
    cost = cost_of("aten::scaled_dot_product_attention",
                   [[1, 8, 1, 64], [1, 2, 100, 64], [1, 2, 100, 64], [], [], [], [], []],
                   [BF16, BF16, BF16, "", "Scalar", "Scalar", "", "Scalar"],
                   ["", "", "", "", "0.", "False", "", "True"])  # fmt: skip
    assert cost.flops == 204_800
    assert cost.bytes_read == (8 * 64 + 2 * 2 * 100 * 64) * 2 and cost.bytes_written == 8 * 64 * 2


def test_a_mask_is_read_once() -> None:
    shapes: list[Any] = [[1, 2, 4, 8]] * 3 + [[1, 1, 4, 4], [], [], []]
    cost = cost_of("aten::_scaled_dot_product_efficient_attention", shapes, [BF16] * 4 + ["Scalar"] * 3,
                   ["", "", "", "", "False", "0.", "False"])  # fmt: skip
    assert cost.bytes_read == 3 * 64 * 2 + 16 * 2
    assert cost.flops == 2 * 2 * 16 * 16


def test_an_unrecorded_flag_gives_a_lower_bound() -> None:
    cost = cost_of("aten::scaled_dot_product_attention", [[1, 1, 4, 8]] * 3, [BF16] * 3, [])
    assert cost.flops == 2 * 10 * 16 and not cost.exact and "causal" in cost.note


def test_packed_sequences_are_exact_only_when_their_lengths_are_known() -> None:
    name = "flash_attn::_flash_attn_varlen_forward"

    def varlen(cumulative: int, longest: str, step: StepTokens | None = None) -> Cost:
        shapes: list[Any] = [
            [12, 4, 8],
            [12, 2, 8],
            [12, 2, 8],
            [cumulative],
            [cumulative],
            [],
            [],
            [],
            [],
            [],
        ]
        types = [BF16] * 3 + ["int", "int"] + ["Scalar"] * 5
        return cost_of(name, shapes, types, ["", "", "", "", "", longest, longest, "0.", "1.", "True"], step)

    one = varlen(2, "12")
    assert one.exact and one.flops == 2 * 4 * (12 * 13 // 2) * 16
    equal = varlen(4, "4")  # three sequences of four
    assert equal.exact and equal.flops == 2 * 4 * 3 * 10 * 16
    hidden = varlen(4, "6")  # three sequences, the longest of six: at the least 12*12/3 = 48 square pairs
    assert not hidden.exact and hidden.flops == 2 * 4 * ((48 + 12) // 2) * 16
    told = varlen(4, "6", StepTokens(3, 12, 12, 6 * 6 + 4 * 4 + 2 * 2, 6 * 6 + 4 * 4 + 2 * 2))
    assert told.exact and told.flops == 2 * 4 * (21 + 10 + 3) * 16
    assert hidden.flops <= told.flops


def test_step_annotations_of_vllm_are_read() -> None:
    step = StepTokens.parse(VLLM_STEP)
    assert step == StepTokens(9, 8155, 8430, 7475785, 7671310, 37, 37, 34489, 37, 34489)
    assert step.kv_tokens == 42_919
    # per request q*k - q(q-1)/2: 7671310 - (7475785 - 8155)/2, and one pair per cached token in decode
    assert step.causal_pairs == 7_671_310 - 3_733_815 + 34_489
    assert StepTokens.parse("ProfilerStep#3") is None


def test_attention_over_a_cache_needs_the_sums_of_the_step() -> None:
    shapes: list[Any] = [[8192, 64, 64], [8192, 8, 64], [8192, 8, 64], [8192, 64, 64], [], [], [], [0]]
    types = [BF16] * 4 + ["", "", "", BF16]
    name = "vllm::unified_attention_with_output"
    known = cost_of(name, shapes, types, [""] * 8, StepTokens.parse(VLLM_STEP))
    assert known.bytes == 222_115_840  # Q and output 2*8192*4096*2, and 42919 tokens of 8*(64+64)*2
    assert known.flops == 2 * 64 * 3_971_984 * 128
    assert known.basis == "expected" and "window" in known.note
    hidden = cost_of(name, shapes, types, [""] * 8)
    assert hidden.basis == "lower bound" and hidden.flops == 2 * 64 * 8192 * 128


def test_decode_reads_one_latent_per_cached_token() -> None:
    step = StepTokens(0, 0, 0, 0, 0, 2, 2, 1000, 2, 1000)
    cost = cost_of("vllm::unified_mla_attention", [[2, 128, 192], [2, 512], [2, 1, 64], []], [BF16, BF16, BF16, ""],
                   [""] * 4, step)  # fmt: skip
    assert cost.flops == 2 * 128 * 1000 * (576 + 512)
    assert cost.bytes_read == 2 * 128 * 192 * 2 + 1000 * 576 * 2
    assert not cost.exact


def test_a_paged_kernel_finds_its_heads_in_the_cache() -> None:
    # out, workspace, q, k_cache, v_cache, then tables
    shapes: list[Any] = [[32, 32, 128], [1000], [32, 32, 128], [900, 1, 8, 128], [900, 1, 8, 128], [33]]
    types = [BF16, "unsigned char", BF16, BF16, BF16, "int"]
    step = StepTokens(0, 0, 0, 0, 0, 32, 32, 5000, 32, 5000)
    cost = cost_of("sglang_profiler::attention_paged_attention_ragged_100", shapes, types, [""] * 6, step)
    assert cost.flops == 4 * 32 * 5000 * 128
    assert cost.bytes_read == 32 * 32 * 128 * 2 + 5000 * 8 * 256 * 2


def test_attention_without_a_batch_dimension_has_no_cost() -> None:
    assert (
        estimate(
            "aten::_scaled_dot_product_flash_attention", [[4, 8]] * 3, [BF16] * 3, ["", "", "", "0.", "True"]
        )
        is None
    )
