"""The other families, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from stallscope.analyzers.models.call import Cost
from stallscope.analyzers.models.collective import Exchange, exchange, kind_of
from stallscope.analyzers.models.cost import estimate
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.moe import active_experts

BF16, HALF, FLOAT, LONG, INT = "c10::BFloat16", "c10::Half", "float", "long int", "int"
FP8 = "c10::Float8_e4m3fn"
S = "Scalar"

# name, shapes, types, arguments, FLOPs, bytes read, bytes written, family
EXACT = [
    # one step an element; a broadcast factor counts its own 8 elements
    ("aten::mul", [[4, 8], [8]], [BF16, BF16], ["", ""], 32, 80, 64, Family.ELEMENTWISE),
    ("aten::mul", [[16, 559, 1024], [16, 559, 1]], [FLOAT, FLOAT], ["", ""], 9_158_656, 36_670_400, 36_634_624,
     Family.ELEMENTWISE),
    # bf16 + float gives float
    ("aten::add", [[4, 8], [4, 8], []], [BF16, FLOAT, S], ["", "", "1"], 32, 192, 128, Family.ELEMENTWISE),
    # in place it stays what it was
    ("aten::add_", [[4, 8], [4, 8], []], [BF16, FLOAT, S], ["", "", "1"], 32, 192, 64, Family.ELEMENTWISE),
    # a 0-dimensional double does not lift float; it has 8 bytes
    ("aten::mul", [[4, 8], []], [FLOAT, "double"], ["", ""], 32, 136, 128, Family.ELEMENTWISE),
    ("aten::eq", [[4, 8], []], [LONG, S], ["", "1"], 32, 256, 32, Family.ELEMENTWISE),
    ("aten::where", [[4], [4], [4]], ["bool", FLOAT, FLOAT], ["", "", ""], 0, 36, 16, Family.ELEMENTWISE),
    ("aten::pow", [[16, 559, 1024], []], [FLOAT, S], ["", "2"], 9_158_656, 36_634_624, 36_634_624, Family.ELEMENTWISE),
    ("aten::silu", [[4, 8]], [BF16], [""], 128, 64, 64, Family.ELEMENTWISE),
    # gate and up side by side: 16 results, silu 4 and the product 1
    ("_C::silu_and_mul", [[2, 8], [2, 16]], [BF16, BF16], ["", ""], 80, 64, 32, Family.ELEMENTWISE),
    ("vllm::silu_and_mul", [[2, 16]], [BF16], [""], 80, 64, 32, Family.ELEMENTWISE),
    # RMS norm: 4 an element; fused sum: 5, and two tensors in and out
    ("_C::rms_norm", [[4, 8], [4, 8], [8], []], [BF16, BF16, BF16, S], ["", "", "", "1e-6"], 128, 80, 64, Family.NORM),
    ("aiter::rms_norm", [[8192, 2880], [2880], [], []], [BF16, BF16, S, S], ["", "", "1e-5", "0"], 94_371_840,
     47_191_680, 47_185_920, Family.NORM),
    ("_C::fused_add_rms_norm", [[4, 8], [4, 8], [8], []], [BF16] * 3 + [S], ["", "", "", "1e-6"], 160, 144, 128,
     Family.NORM),
    # MI300X, vLLM: out, x, residual in, residual out, weight
    ("aiter::rmsnorm2d_fwd_with_add_ck", [[8192, 2880]] * 4 + [[2880], [], []], [BF16] * 5 + [S, S], [""] * 7,
     117_964_800, 94_377_600, 94_371_840, Family.NORM),
    # a quantising norm writes one byte a number
    ("_C::rms_norm_static_fp8_quant", [[4, 8], [4, 8], [8], [1], []], [FP8, BF16, BF16, FLOAT, S], [""] * 5, 128, 80,
     32, Family.NORM),
    # layer norm with weight and bias: 7 an element
    ("aten::native_layer_norm", [[1, 141, 512], [], [512], [512], []], [BF16, "ScalarList", BF16, BF16, S],
     ["", "[512]", "", "", "1e-12"], 505_344, 146_432, 144_384, Family.NORM),
    ("aten::batch_norm", [[2, 3, 4], [3], [3], [3], [3], [], [], [], []], [FLOAT] * 5 + [S] * 4,
     ["", "", "", "", "", "False", "0.1", "1e-5", "True"], 48, 144, 96, Family.NORM),
    ("aten::_softmax", [[4, 8], [], []], [HALF, S, S], ["", "-1", "True"], 160, 64, 128, Family.SOFTMAX),
    ("aten::softmax", [[4, 8], [], []], [HALF, S, ""], ["", "-1", ""], 160, 64, 64, Family.SOFTMAX),
    # 2 tokens, 4 heads of 8 and 1 key head, all of it turned: 3*(64+16); positions 16, table rows 2*8*2
    ("_C::rotary_embedding", [[2], [2, 32], [2, 8], [], [100, 8], []], [LONG, BF16, BF16, S, BF16, S],
     ["", "", "", "8", "", "True"], 240, 16 + 160 + 32, 160, Family.ROPE),
    # half of each head is turned
    ("_C::rotary_embedding", [[2], [2, 32], [2, 8], [], [100, 4], []], [LONG, BF16, BF16, S, BF16, S],
     ["", "", "", "8", "", "True"], 120, 16 + 80 + 16, 80, Family.ROPE),
    ("aten::sum", [[4, 8], [], [], []], [FLOAT, "ScalarList", S, ""], ["", "[1]", "False", ""], 32, 128, 16,
     Family.REDUCTION),
    ("aten::mean", [[16, 559, 1024], [], [], []], [FLOAT, "ScalarList", S, ""], ["", "[-1]", "True", ""], 9_158_656,
     36_634_624, 35_776, Family.REDUCTION),
    ("aten::all", [[16, 559]], ["bool"], [""], 8_944, 8_944, 1, Family.REDUCTION),
    ("aten::max", [[4, 8], [], []], [FLOAT, S, S], ["", "1", "False"], 32, 128, 48, Family.REDUCTION),
    ("aten::cumsum", [[32], [], []], [INT, S, ""], ["", "0", ""], 32, 128, 256, Family.REDUCTION),
    ("aten::max_pool2d_with_indices", [[1, 2, 4, 4], [], [], [], [], []], [FLOAT] + ["ScalarList"] * 4 + [S],
     ["", "[2, 2]", "[2, 2]", "[0, 0]", "[1, 1]", "False"], 32, 128, 96, Family.REDUCTION),
    ("aten::argmax", [[32, 151936], [], []], [FLOAT, S, S], ["", "-1", "False"], 4_861_952, 19_447_808, 256,
     Family.SAMPLING),
    # 141 rows of 512 read and written, indices of 8 bytes
    ("aten::index_select", [[30522, 512], [], [141]], [BF16, S, LONG], ["", "0", ""], 0, 145_512, 144_384,
     Family.EMBEDDING),
    ("aten::embedding", [[100, 8], [2, 3], [], [], []], [HALF, LONG, S, S, S], ["", "", "-1", "False", "False"], 0,
     144, 96, Family.EMBEDDING),
    ("aten::gather", [[10, 8], [], [2, 8], []], [FLOAT, S, LONG, S], ["", "0", "", "False"], 0, 192, 64,
     Family.EMBEDDING),
    # 8192 slots: keys and values read as bf16, written as the cache's type, slots of 8 bytes
    ("_C_cache_ops::reshape_and_cache_flash",
     [[8192, 8, 64], [8192, 8, 64], [224304, 32, 8, 64], [224304, 32, 8, 64], [8192], [], [], []],
     [BF16, BF16, BF16, BF16, LONG, "", FLOAT, FLOAT], [""] * 8, 0, 16_842_752, 16_777_216, Family.KV_CACHE),
    # an 8-bit cache, and fewer slots than (padded) keys
    ("_C_cache_ops::reshape_and_cache", [[4, 2, 8], [4, 2, 8], [9, 16, 2, 8], [9, 16, 2, 8], [3]],
     [BF16, BF16, "unsigned char", "unsigned char", LONG], [""] * 5, 0, 216, 96, Family.KV_CACHE),
    ("_C_cache_ops::concat_and_cache_mla", [[2, 512], [2, 64], [9, 16, 576], [2]], [BF16, BF16, BF16, LONG], [""] * 4,
     0, 2_320, 2_304, Family.KV_CACHE),
    # the destination is argument 0
    ("aten::copy_", [[16, 559, 1024], [16, 559, 1024], []], [FLOAT, BF16, S], ["", "", "False"], 0, 18_317_312,
     36_634_624, Family.COPY),
    ("aten::_to_copy", [[4, 8], [], [], [], [], [], []], [BF16, S, "", "", "", S, ""],
     ["", "6", "", "", "", "False", ""], 0, 64, 128, Family.COPY),
    ("aten::fill_", [[512, 64], []], [BF16, S], ["", "0"], 0, 0, 65_536, Family.COPY),
    ("aten::constant_pad_nd", [[2, 3], [], []], [FLOAT, "ScalarList", S], ["", "[1, 2]", "0"], 0, 24, 48, Family.COPY),
    # 32 results from 8 images of 3x3x3 filters ... 4*8*8*8 outputs, 27 terms each, a bias
    ("aten::convolution", [[4, 3, 8, 8], [8, 3, 3, 3], [8], [], [], [], [], [], []],
     [FLOAT] * 3 + ["ScalarList"] * 3 + [S, "ScalarList", S],
     ["", "", "", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1"], 2 * 2048 * 27 + 2048, (768 + 216 + 8) * 4,
     8_192, Family.CONV),
    # ViT patches: [4,768,14,14] out, 3*16*16 terms each
    ("aten::cudnn_convolution", [[4, 3, 224, 224], [768, 3, 16, 16], [], [], [], [], [], [], []],
     [BF16, BF16] + ["ScalarList"] * 3 + [S] * 4, ["", "", "[0, 0]", "[16, 16]", "[1, 1]", "1", "False", "False", "True"],
     2 * 602_112 * 768, (602_112 + 589_824) * 2, 1_204_224, Family.CONV),
    # transposed: per input element, w[1:] = 4*2*2; out [1,4,6,6]
    ("aten::convolution", [[1, 3, 3, 3], [3, 4, 2, 2], [], [], [], [], [], [], []],
     [FLOAT, FLOAT, ""] + ["ScalarList"] * 3 + [S, "ScalarList", S],
     ["", "", "", "[2, 2]", "[0, 0]", "[1, 1]", "True", "[0, 0]", "1"], 2 * 27 * 16, (27 + 48) * 4, 144 * 4, Family.CONV),
    ("_C::static_scaled_fp8_quant", [[4, 8], [4, 8], [1]], [FP8, BF16, FLOAT], ["", "", ""], 96, 64, 32,
     Family.QUANTISE),
    ("_moe_C::topk_softmax", [[4, 2], [4, 2], [4, 2], [4, 16]], [FLOAT, INT, INT, FLOAT], [""] * 4, 320, 256, 96,
     Family.MOE),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shapes", "types", "args", "flops", "read", "written", "family"), EXACT)
def test_a_call_costs_what_its_shapes_say(
    name: str,
    shapes: list[Any],
    types: list[str],
    args: list[str],
    flops: int,
    read: int,
    written: int,
    family: Family,
) -> None:
    cost = estimate(name, shapes, types, args)
    assert cost is not None
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (flops, read, written)
    assert cost.family is family
    assert cost.exact, cost.note


def lower(name: str, shapes: list[Any], types: list[str], args: list[str], kernel: str = "") -> Cost:
    cost = estimate(name, shapes, types, args, kernel=kernel)
    assert cost is not None
    assert not cost.exact and cost.note
    return cost


def test_concatenation_learns_its_element_size_from_the_kernel() -> None:
    shapes: list[Any] = [[[1, 559, 32], [1, 559, 32]], []]
    kernel = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, int>"
    known = estimate("aten::cat", shapes, ["TensorList", S], ["", "-1"], kernel=kernel)
    assert known is not None and known.exact
    assert known.bytes_read == known.bytes_written == 2 * 559 * 32 * 2
    assert lower("aten::cat", shapes, ["TensorList", S], ["", "-1"]).bytes == 0


def test_selection_is_one_pass_at_the_least() -> None:
    cost = lower(
        "aten::topk", [[32, 1000], [], [], [], []], [FLOAT, S, S, S, S], ["", "5", "-1", "True", "True"]
    )
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (0, 128_000, 32 * 5 * 12)
    cost = lower("aten::sort", [[100], [], []], [FLOAT, S, S], ["", "-1", "False"])
    assert (cost.bytes_read, cost.bytes_written) == (400, 1200)


def test_unknown_reduced_dimensions_are_told() -> None:
    assert estimate("aten::sum", [[4, 8]], [FLOAT], [""]) is not None
    cost = lower("aten::sum", [[4, 8], [], [], []], [FLOAT, "", S, S], [])
    assert cost.bytes == 128 + 4


def test_expected_experts() -> None:
    assert active_experts(8, 2, 0) == 0
    assert active_experts(8, 2, 1) == pytest.approx(2)
    assert active_experts(8, 2, 2) == pytest.approx(3.5)  # 8*(1 - (6/8)^2)
    assert active_experts(8, 8, 1) == pytest.approx(8)
    assert active_experts(128, 8, 10_000) == pytest.approx(128)


def test_a_fused_expert_layer() -> None:
    # 2 tokens of 16, 8 experts with w1[2*32,16] and w2[16,32], 2 per token
    shapes: list[Any] = [[2, 16], [8, 64, 16], [8, 16, 32], [2, 2], [2, 2]]
    cost = estimate("vllm::outplace_fused_experts", shapes, [BF16, BF16, BF16, FLOAT, INT], [""] * 5)
    assert cost is not None
    assert cost.flops == 2 * 2 * 2 * (64 * 16 + 32 * 16)
    # 3.5 of 8 experts, (64*16 + 16*32)*2 bytes each
    assert cost.bytes_read == 2 * 16 * 2 + int(3.5 * (64 * 16 + 16 * 32) * 2)
    assert cost.basis == "expected" and "3.5 of 8" in cost.note


def test_packed_expert_weights_keep_their_flops() -> None:
    # 4-bit weights, two a byte: w1[8,64,8] and w2[8,16,16] of uint8
    shapes: list[Any] = [[2, 16], [8, 64, 8], [8, 16, 16], [2, 2], [2, 2]]
    cost = estimate(
        "vllm::fused_experts", shapes, [BF16, "unsigned char", "unsigned char", FLOAT, INT], [""] * 5
    )
    assert cost is not None
    assert cost.flops == 2 * 2 * 2 * (64 * 16 + 32 * 16)
    assert cost.bytes_read == 2 * 16 * 2 + int(3.5 * (64 * 8 + 16 * 16))


def test_a_layer_that_hides_its_experts_is_a_lower_bound() -> None:
    cost = lower("vllm::moe_forward", [[8192, 3072], [8192, 32], [], []], [BF16, BF16, "", ""], [""] * 4)
    assert cost.flops == 0 and cost.bytes == (2 * 8192 * 3072 + 8192 * 32) * 2


def test_convolution_backward_counts_the_asked_gradients() -> None:
    shapes: list[Any] = [[1, 2, 4, 4], [1, 3, 4, 4], [2, 3, 3, 3], [], [], [], [], [], [], [], []]
    types = [FLOAT] * 3 + ["ScalarList"] * 4 + [S, "ScalarList", S, "ScalarList"]
    args = ["", "", "", "[0]", "[1, 1]", "[1, 1]", "[1, 1]", "False", "[0, 0]", "1", "[True, True, False]"]
    cost = estimate("aten::convolution_backward", shapes, types, args)
    assert cost is not None and cost.flops == 2 * (2 * 32 * 27)
    only_weight = estimate("aten::convolution_backward", shapes, types, [*args[:10], "[False, True, False]"])
    assert only_weight is not None and only_weight.flops == 2 * 32 * 27


def test_inductor_kernels_count_no_more_of_a_table_than_they_span() -> None:
    cost = lower(
        "triton_poi_fused_0", [[8], [201088, 64], [8, 64], []], [INT, BF16, BF16, S], ["", "", "", "512"]
    )
    assert cost.bytes == 8 * 4 + 512 * 2 + 512 * 2


def test_an_old_trace_tells_neither_types_nor_arguments() -> None:
    cost = estimate("aten::add", [[4, 8], [4, 8], []], [], None)
    assert cost is not None and cost.flops == 32 and cost.bytes == 0 and not cost.exact


def test_exchanges_follow_the_bus_factors() -> None:
    assert exchange("allreduce", 1000, 1000, "BFloat16", 8) == Exchange("all_reduce", 2000, 8, 3500)
    assert exchange("_allgather_base", 1000, 4000, "Float", 4) == Exchange("all_gather", 16000, 4, 12000)
    assert exchange("reduce_scatter", 4000, 1000, "Float", 4) == Exchange("reduce_scatter", 16000, 4, 12000)
    assert exchange("broadcast", 10, 10, "Int", 4) == Exchange("broadcast", 40, 4, 40)
    assert exchange("allreduce", 1000, 1000, "Float", 0) == Exchange("all_reduce", 4000, 0, None)
    assert exchange("wait", 1, 1, "Float", 2) is None and exchange("allreduce", 1, 1, "?", 2) is None
    assert [
        kind_of(name) for name in ("hcom_allReduce__868_0_1", "c10d::alltoall_base_", "ncclDevKernel_Generic")
    ] == [
        "all_reduce",
        "all_to_all",
        "",
    ]
