"""Matrix products, against numbers worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from stallscope.analyzers.models.cost import estimate
from stallscope.analyzers.models.family import Family

BF16, HALF, FLOAT = "c10::BFloat16", "c10::Half", "float"
FP8 = "c10::Float8_e4m3fn"

# name, shapes, types, arguments, FLOPs, bytes read, bytes written
DENSE = [
    # 2*2*4*3 = 48; (2*3 + 3*4)*2 = 36; 2*4*2 = 16
    ("aten::mm", [[2, 3], [3, 4]], [BF16, BF16], ["", ""], 48, 36, 16),
    # Qwen1.5-0.5B on H100: 2*8944*2816*1024; (8944*1024 + 1024*2816)*2; 8944*2816*2
    (
        "aten::mm",
        [[8944, 1024], [1024, 2816]],
        [BF16, BF16],
        ["", ""],
        51_581_550_592,
        24_084_480,
        50_372_608,
    ),
    # an `out` argument is the result, not an operand
    ("aten::mm", [[2, 3], [3, 4], [2, 4]], [BF16] * 3, ["", "", ""], 48, 36, 16),
    # + M*N = 8944*1024 for the bias, and its 1024*2 bytes
    (
        "aten::addmm",
        [[1024], [8944, 1024], [1024, 1024], [], []],
        [BF16, BF16, BF16, "Scalar", "Scalar"],
        ["", "", "", "1", "1"],
        18_766_086_144,
        20_416_512,
        18_317_312,
    ),
    # beta 0: what is added is neither read nor added
    (
        "aten::addmm",
        [[4], [2, 3], [3, 4], [], []],
        [BF16, BF16, BF16, "Scalar", "Scalar"],
        ["", "", "", "0", "1"],
        48,
        36,
        16,
    ),
    # 5 batches of 2x3 by 3x4, float: 5*48; 5*(6+12)*4; 5*8*4
    ("aten::bmm", [[5, 2, 3], [5, 3, 4]], [FLOAT, FLOAT], ["", ""], 240, 360, 160),
    # + 5*2*4 for the added [5,2,4] float
    (
        "aten::baddbmm",
        [[5, 2, 4], [5, 2, 3], [5, 3, 4], [], []],
        [FLOAT, FLOAT, FLOAT, "Scalar", "Scalar"],
        ["", "", "", "1", "1"],
        280,
        520,
        160,
    ),
    # batches broadcast: A[1,2,3], B[7,3,4] gives 7 products; A lies in memory once
    ("aten::matmul", [[1, 2, 3], [7, 3, 4]], [HALF, HALF], ["", ""], 7 * 48, (6 + 84) * 2, 56 * 2),
    # a vector on the right: 2*2*3
    ("aten::matmul", [[2, 3], [3]], [HALF, HALF], ["", ""], 12, 18, 4),
    # X[2,5,3] W[4,3] bias[4]: 10 rows: 2*10*4*3 + 10*4
    ("aten::linear", [[2, 5, 3], [4, 3], [4]], [BF16] * 3, ["", "", ""], 280, (30 + 12 + 4) * 2, 80),
    # vLLM decode: 2*32*5120*2880 + 32*5120
    (
        "vllm::rocm_unquantized_gemm",
        [[32, 2880], [5120, 2880], [5120]],
        [BF16] * 3,
        ["", "", ""],
        943_882_240,
        29_685_760,
        327_680,
    ),
    # SGLang decode: 2*32*24576*4096; weight as [N,K]
    (
        "aiter::gemm_a16w16",
        [[32, 4096], [24576, 4096], [], [], [], [], []],
        [BF16, BF16, "", "Scalar", "", "", ""],
        ["", "", "", "15", "", "", ""],
        6_442_450_944,
        (32 * 4096 + 24576 * 4096) * 2,
        32 * 24576 * 2,
    ),
    ("aten::mv", [[2, 3], [3]], [FLOAT, FLOAT], ["", ""], 12, 36, 8),
    ("aten::dot", [[6], [6]], [FLOAT, FLOAT], ["", ""], 12, 48, 4),
    # int8 operands, int32 result
    ("aten::_int_mm", [[32, 64], [64, 16]], ["signed char"] * 2, ["", ""], 65_536, 3_072, 2_048),
]


@pytest.mark.parametrize(("name", "shapes", "types", "args", "flops", "read", "written"), DENSE)
def test_a_product_costs_what_its_shapes_say(
    name: str, shapes: list[Any], types: list[str], args: list[str], flops: int, read: int, written: int
) -> None:
    cost = estimate(name, shapes, types, args)
    assert cost is not None
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (flops, read, written)
    assert cost.exact and cost.family is Family.GEMM and cost.unit == "matrix"


def test_an_expanded_operand_lies_in_memory_once() -> None:
    cost = estimate(
        "aten::bmm", [[5, 2, 3], [5, 3, 4]], [FLOAT, FLOAT], ["", ""], strides=[[6, 3, 1], [0, 4, 1]]
    )
    assert cost is not None
    assert cost.bytes_read == (30 + 12) * 4


def test_scaled_mm_takes_one_byte_operands_and_the_written_result_type() -> None:
    shapes = [[16, 32], [32, 48], [], [], [], [], []]
    types = [FP8, FP8, "float", "float", "", "", "Scalar"]
    cost = estimate("aten::_scaled_mm", shapes, types, ["", "", "", "", "", "", "15"])
    assert cost is not None
    # two scales of 4 bytes
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (
        2 * 16 * 32 * 48,
        16 * 32 + 32 * 48 + 8,
        16 * 48 * 2,
    )
    assert cost.dtype == "fp8" and cost.exact
    assert not (estimate("aten::_scaled_mm", shapes, types, [""] * 7) or cost).exact


def test_packed_fp4_counts_two_numbers_a_byte() -> None:
    packed = "c10::Float4_e2m1fn_x2"
    cost = estimate("aten::_scaled_mm", [[16, 32], [32, 48], [], [], [], [], []],
                    [packed, packed, "", "", "", "", "Scalar"], ["", "", "", "", "", "", "15"])  # fmt: skip
    assert cost is not None
    assert cost.flops == 2 * 16 * 64 * 48
    assert cost.bytes_read == 16 * 32 + 32 * 48 and cost.dtype == "fp4"


def test_cutlass_scaled_mm_writes_its_first_argument() -> None:
    cost = estimate("_C::cutlass_scaled_mm", [[16, 48], [16, 32], [32, 48], [16, 1], [1, 48], []],
                    [BF16, FP8, FP8, "float", "float", ""], [""] * 6)  # fmt: skip
    assert cost is not None
    assert cost.flops == 2 * 16 * 48 * 32
    assert cost.bytes_read == 16 * 32 + 32 * 48 + (16 + 48) * 4
    assert cost.bytes_written == 16 * 48 * 2


def test_marlin_reads_packed_weights() -> None:
    # a[8,128], 4-bit weights of [128,256] as int32 [8,512], scales [1,256]; M, N, K among the arguments
    args = ["", "", "", "", "", "", "", "", "8", "256", "128"]
    shapes = [[8, 128], [], [8, 512], [1, 256], [], [], [], [], [], [], []]
    types = [HALF, "", "int", HALF, "", "", "", "", "Scalar", "Scalar", "Scalar"]
    cost = estimate("_C::gptq_marlin_gemm", shapes, types, args)
    assert cost is not None
    assert cost.flops == 2 * 8 * 256 * 128
    assert cost.bytes_read == 8 * 128 * 2 + 8 * 512 * 4 + 256 * 2
    assert cost.bytes_written == 8 * 256 * 2 and cost.dtype == "fp16"


def test_int4pack_takes_n_from_its_scales() -> None:
    cost = estimate("aten::_weight_int4pack_mm", [[4, 64], [4, 1, 32, 4], [], [2, 32, 2]],
                    [BF16, "int", "Scalar", BF16], ["", "", "32", ""])  # fmt: skip
    assert cost is not None
    assert cost.flops == 2 * 4 * 32 * 64
    assert cost.bytes_read == 4 * 64 * 2 + 512 * 4 + 128 * 2


def test_grouped_products_expect_every_group_only_with_enough_rows() -> None:
    cost = estimate("aten::_grouped_mm", [[2, 8], [4, 8, 16], [4]], [BF16, BF16, "int"], ["", "", ""])
    assert cost is not None
    # 4*(1 - (3/4)^2) = 1.75 of 4 groups: 1.75 * 8*16*2 = 448 bytes
    assert cost.flops == 2 * 2 * 8 * 16
    assert cost.bytes_read == 2 * 8 * 2 + 448
    assert cost.basis == "expected"


@pytest.mark.parametrize(
    ("name", "shapes", "types"),
    [
        ("aten::mm", [[2, 3], [4, 5]], [BF16, BF16]),
        ("aten::mm", [[2, 3]], [BF16]),
        ("aten::bmm", [[2, 3], [3, 4]], [BF16, BF16]),
        ("aten::linear", [[2, 5], [4, 3]], [BF16, BF16]),
        ("aiter::gemm_a16w16", [[32, 4096], [7, 9]], [BF16, BF16]),
        ("_C::gptq_marlin_gemm", [[8, 128], [8, 512]], [HALF, "int"]),
    ],
)
def test_shapes_that_do_not_fit_have_no_cost(name: str, shapes: list[list[int]], types: list[str]) -> None:
    assert estimate(name, shapes, types, []) is None


def test_without_types_flops_are_known_and_bytes_are_not() -> None:
    cost = estimate("aten::mm", [[2, 3], [3, 4]], [], None)
    assert cost is not None
    assert cost.flops == 48 and cost.bytes == 0 and cost.basis == "lower bound"
    assert "element types" in cost.note
