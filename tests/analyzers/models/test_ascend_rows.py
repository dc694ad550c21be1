"""Rows of Ascend's kernel tables, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from stallscope.analyzers.models.cost import estimate_kernel_row, parse_ascend_shapes
from stallscope.analyzers.models.family import Family

# type, input shapes, input types, output shapes, output types, FLOPs, bytes read, bytes written, family
ROWS = [
    # 2*4096*2048*1024
    ("MatMulV3", '"4096,1024;1024,2048"', "DT_BF16;DT_BF16", '"4096,2048"', "DT_BF16", 17_179_869_184, 12_582_912,
     16_777_216, Family.GEMM),
    # B transposed: [N,K]
    ("MatMul", '"4096,12288;6400,12288"', "FLOAT16;FLOAT16", '"4096,6400"', "FLOAT16", 2 * 4096 * 6400 * 12288,
     (4096 + 6400) * 12288 * 2, 4096 * 6400 * 2, Family.GEMM),
    # A transposed: [K,M] = [4096,6144], B [4096,1024]
    ("MatMulV3", '"4096,6144;4096,1024"', "DT_BF16;DT_BF16", '"6144,1024"', "DT_BF16", 2 * 6144 * 1024 * 4096,
     4096 * 7168 * 2, 6144 * 1024 * 2, Family.GEMM),
    # with a bias
    ("MatMulV2", '"32,9216;4096,9216;4096"', "FLOAT;FLOAT;FLOAT", '"32,4096"', "FLOAT",
     2 * 32 * 4096 * 9216 + 32 * 4096, (32 * 9216 + 4096 * 9216 + 4096) * 4, 32 * 4096 * 4, Family.GEMM),
    ("BatchMatMul", '"12,1024,512;12,512,1024"', "FLOAT16;FLOAT16", '"12,1024,1024"', "FLOAT16",
     2 * 12 * 1024 * 1024 * 512, 2 * 12 * 1024 * 512 * 2, 12 * 1024 * 1024 * 2, Family.GEMM),
    ("RmsNorm", '"4096,1,16,128;128"', "DT_BF16;DT_BF16", '"4096,1,16,128;4096,1,16,1"', "DT_BF16;FLOAT", 33_554_432,
     16_777_472, 16_777_216, Family.NORM),
    ("AddRmsNorm", '"8,128;8,128;128"', "DT_BF16;DT_BF16;DT_BF16", '"8,128;8,1;8,128"', "DT_BF16;FLOAT;DT_BF16",
     5 * 1024, 2 * 2048 + 256, 4096, Family.NORM),
    # 4 for silu, 1 for the product
    ("SwiGlu", '"4096,6144"', "DT_BF16", '"4096,3072"', "DT_BF16", 5 * 4096 * 3072, 50_331_648, 25_165_824,
     Family.ELEMENTWISE),
    ("RotaryPositionEmbedding", '"4096,1,16,128;4096,1,1,128;4096,1,1,128"', "DT_BF16;DT_BF16;DT_BF16",
     '"4096,1,16,128"', "DT_BF16", 3 * 8_388_608, 16_777_216 + 2 * 1_048_576, 16_777_216, Family.ROPE),
    ("Cast", '"4,1025"', "INT64", '"4,1025"', "INT32", 0, 32_800, 16_400, Family.COPY),
    ("Transpose", '"8192,1,6,6;4"', "FLOAT;INT64", '"1,6,6,8192"', "FLOAT", 0, 1_179_648, 1_179_648, Family.COPY),
    # a slice reads what it writes
    ("Slice", '"4096,8,512;3;3"', "DT_BF16;INT64;INT64", '"4096,8,128"', "DT_BF16", 0, 8_388_608, 8_388_608,
     Family.COPY),
    ("ZerosLike", '"375815680"', "FLOAT", '"375815680"', "FLOAT", 0, 0, 1_503_262_720, Family.COPY),
    ("Add", '"4096,1,16,128;4096,1,16,128"', "DT_BF16;DT_BF16", '"4096,1,16,128"', "DT_BF16", 8_388_608, 33_554_432,
     16_777_216, Family.ELEMENTWISE),
    ("GatherV2", '"151936,1024;1,4096;1"', "DT_BF16;INT64;INT64", '"1,4096,1024"', "DT_BF16", 0,
     8_388_608 + 32_768 + 8, 8_388_608, Family.EMBEDDING),
    ("aclnnMm_MatMulV3Common_MatMulV3", '"8,64;64,64"', "FLOAT;FLOAT", '"8,64"', "FLOAT", 65_536, 18_432, 2_048,
     Family.GEMM),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "shapes", "types", "out", "out_types", "flops", "read", "written", "family"), ROWS
)
def test_a_row_costs_what_its_shapes_say(
    kind: str,
    shapes: str,
    types: str,
    out: str,
    out_types: str,
    flops: int,
    read: int,
    written: int,
    family: Family,
) -> None:
    cost = estimate_kernel_row(kind, shapes, types, out, out_types)
    assert cost is not None
    assert (cost.flops, cost.bytes_read, cost.bytes_written) == (flops, read, written)
    assert cost.family is family and cost.exact, cost.note


def test_flash_attention_takes_its_heads_from_the_softmax_output() -> None:
    """Qwen3-0.6B: 16 query and 8 key heads of 128, one batch of 4096, a compressed causal mask."""
    cost = estimate_kernel_row(
        "FlashAttentionScore",
        '"4096,1,2048;4096,1,1024;4096,1,1024;;;;2048,2048;;;;;;;;"',
        "DT_BF16;DT_BF16;DT_BF16;DT_BF16;UINT8;DT_BF16;BOOL;INT64;INT64;INT64;INT64;INT64;FLOAT;FLOAT;FLOAT",
        '"1,16,4096,8;1,16,4096,8;;4096,1,2048"',
        "FLOAT;FLOAT;DT_BF16;DT_BF16",
    )
    assert cost is not None
    assert cost.flops == 2 * 16 * (4096 * 4097 // 2) * 256
    assert cost.bytes_read == (4096 * 2048 + 2 * 4096 * 1024) * 2
    assert not cost.exact and "sparse mode" in cost.note


def test_the_backward_of_attention_has_five_products_instead_of_two() -> None:
    cost = estimate_kernel_row(
        "FlashAttentionScoreGrad",
        '"4096,1,2048;4096,1,1024;4096,1,1024;4096,1,2048;2048,2048;1,16,4096,8;1,16,4096,8;;4096,1,2048;;;;;;"',
        "DT_BF16;DT_BF16;DT_BF16;DT_BF16;BOOL;FLOAT;FLOAT;DT_BF16;DT_BF16;INT64;FLOAT;FLOAT;FLOAT;FLOAT;FLOAT",
        '"4096,1,2048;4096,1,1024;4096,1,1024;;;"',
        "DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16;DT_BF16",
    )
    assert cost is not None
    pairs = 4096 * 4097 // 2
    assert cost.flops == 5 * 2 * 16 * pairs * 128
    assert cost.bytes_read == (3 * 4096 * 2048 + 2 * 4096 * 1024) * 2 + 2 * 16 * 4096 * 8 * 4
    assert cost.bytes_written == (4096 * 2048 + 2 * 4096 * 1024) * 2
    assert not cost.exact and "sparse mode" in cost.note


def test_an_optimiser_writes_in_place_what_no_output_tells() -> None:
    cost = estimate_kernel_row(
        "ApplyAdamWV2", '"1000;1000;1000;1000;1"', "FLOAT;FLOAT;FLOAT;FLOAT;INT64", "N/A", "N/A"
    )

    assert cost is not None
    assert (cost.bytes_read, cost.bytes_written) == (4 * 4000 + 8, 3 * 4000)


def test_a_norm_to_one_number_leaves_no_result_in_the_table() -> None:
    cost = estimate_kernel_row("LpNormV2", '"220233216"', "FLOAT", "", "")

    assert cost is not None
    assert (cost.bytes_read, cost.basis) == (4 * 220233216, "lower bound")


def test_a_grouped_product_that_goes_on_with_its_result_takes_n_from_the_weight() -> None:
    cost = estimate_kernel_row(
        "GroupedMatmulSwigluQuant",
        '"64,128;8,128,512;8,512;64;8"',
        "INT8;INT8;FLOAT;FLOAT;INT64",
        '"64,256;64"',
        "INT8;FLOAT",
    )

    assert cost is not None
    assert cost.flops == 2 * 64 * 128 * 512
    assert cost.bytes_written == 64 * 256 + 64 * 4
    assert cost.basis == "expected"


def test_experts_on_other_devices_are_bound_by_links() -> None:
    cost = estimate_kernel_row(
        "MoeDistributeDispatchV2", '"64,7168;64,8"', "DT_BF16;INT32", '"512,7168"', "DT_BF16"
    )

    assert cost is not None
    assert (cost.family, cost.basis, cost.bytes_read) == (Family.COLLECTIVE, "lower bound", 64 * 7168 * 2)


def test_attention_over_a_hidden_cache_counts_only_what_is_certain() -> None:
    row = ("FusedInferAttentionScore", '"32,16,128;900,128,1024;900,128,1024"', "DT_BF16;DT_BF16;DT_BF16",
           '"32,16,128"', "DT_BF16")  # fmt: skip
    cost = estimate_kernel_row(*row)
    assert cost is not None
    assert cost.flops == 0 and cost.bytes == 2 * 32 * 16 * 128 * 2 and cost.basis == "lower bound"


def test_grouped_products_expect_the_groups_that_rows_hit() -> None:
    cost = estimate_kernel_row(
        "GroupedMatmul",
        '"512,16;8,2048,16;;;;;;8"',
        "DT_BF16;DT_BF16;FLOAT;UINT64;FLOAT;FLOAT16;FLOAT16;INT64",
        '"512,2048"',
        "DT_BF16",
    )
    assert cost is not None
    assert cost.flops == 2 * 512 * 16 * 2048
    assert cost.bytes_read == 512 * 16 * 2 + 8 * 2048 * 16 * 2 and cost.basis == "expected"


@pytest.mark.parametrize(
    "row",
    [
        ("MemSet", "N/A", "N/A", "N/A", "N/A"),
        ("MatMulV3", "", "", "", ""),
        ("MatMulV3", '"4096,1024;1024,2048"', "DT_BF16;DT_BF16", "N/A", "N/A"),
        ("MatMulV3", '"4096,x;1024,2048"', "DT_BF16;DT_BF16", '"4096,2048"', "DT_BF16"),
        ("MatMulV3", '"0,1024;1024,2048"', "DT_BF16;DT_BF16", '"0,2048"', "DT_BF16"),
        ("NoSuchKernel", '"4"', "FLOAT", '"4"', "FLOAT"),
        ("FlashAttentionScore", '"8,2;8,2;8,2"', "DT_BF16;DT_BF16;DT_BF16", '"8,2"', "DT_BF16"),
    ],
)
def test_rows_without_enough_said_have_no_cost(row: tuple[str, str, str, str, str]) -> None:
    assert estimate_kernel_row(*row) is None


def test_shape_texts() -> None:
    assert parse_ascend_shapes('"4096,6144;;8"') == [[4096, 6144], [], [8]]
    assert parse_ascend_shapes("N/A") is None and parse_ascend_shapes("") is None
    assert parse_ascend_shapes('""') == [[]]
    assert parse_ascend_shapes('"4,-1;2"') == [[4], [2]]
