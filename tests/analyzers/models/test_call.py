"""What a call makes of recorded arguments, and that nothing a file may hold breaks a model."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallscope.analyzers.models.call import (
    Tensor,
    broadcast,
    make_call,
    nbytes,
    parse_dtype,
    parse_ints,
    promote,
)
from stallscope.analyzers.models.cost import MODELS, estimate, estimate_kernel_row, model_of


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("c10::BFloat16", "bf16"),
        ("DT_BF16", "bf16"),
        ("c10::Half", "fp16"),
        ("FLOAT16", "fp16"),
        ("float", "fp32"),
        ("FLOAT", "fp32"),
        ("long int", "int64"),
        ("long", "int64"),
        ("c10::Float8_e4m3fnuz", "fp8"),
        ("unsigned char", "uint8"),
        ("c10::complex<float>", "c64"),
        ("Scalar", ""),
        ("TensorList", ""),
        ("", ""),
        (None, ""),
        (7, ""),
    ],
)
def test_element_types(text: object, short: str) -> None:
    assert parse_dtype(text) == short


def test_promotion_follows_torch() -> None:
    assert promote(["bf16", "fp32"]) == "fp32"
    assert promote(["fp16", "bf16"]) == "fp32"
    assert promote(["int64", "fp16"]) == "fp16"
    assert promote(["bool", "int32", "int64"]) == "int64"
    assert promote([]) == "" and promote(["nonsense"]) == ""


def test_sizes() -> None:
    assert nbytes(3, "int4") == 2 and nbytes(3, "bf16") == 6 and nbytes(3, "") == 0
    assert Tensor((2, 3), "fp32").bytes == 24
    assert Tensor((2, 3), "fp32", (0, 1)).bytes == 12
    assert Tensor((), "fp32").numel == 1
    assert broadcast([(4, 1, 3), (2, 1)]) == (4, 2, 3)
    assert parse_ints("[1, -2]") == [1, -2] and parse_ints("[]") == [] and parse_ints("[1, x]") is None
    assert parse_ints("__import__('os')") is None


def test_malformed_arguments_are_no_tensors() -> None:
    call = make_call("aten::mm", [[2, -1], "x", [[2, 3], [4]], [True], [1.5], None], ["float"] * 6)
    assert call.tensors == (None,) * 6
    assert call.lists[2] == (Tensor((2, 3), "fp32"), Tensor((4,), "fp32"))


def test_names_are_found_in_every_spelling() -> None:
    for name in ("aten::add", "aten::add_", "_C::silu_and_mul", "sgl_kernel::silu_and_mul", "MatMulV3",
                 "aclnnAddmm_MatMulCommon_MatMulV2", "triton_poi_fused_add_3",
                 "sglang_profiler::rmsnorm_rmsnorm2d_fwd_109"):  # fmt: skip
        assert model_of(name) is not None, name
    for name in ("aten::view", "aten::silu_and_mul", "aten::", "", "mm", "mylib::mm"):
        assert model_of(name) is None, name


_NUMBER = st.integers(-2, 70) | st.just(1 << 70) | st.floats(allow_nan=True) | st.booleans() | st.none()
_DIMS = st.lists(_NUMBER | st.lists(_NUMBER, max_size=4) | st.text(max_size=3), max_size=5)
_TYPES = st.sampled_from(["c10::BFloat16", "float", "long int", "Scalar", "ScalarList", "TensorList", "", "bool",
                          "c10::Float8_e4m3fn", "int", "unsigned char", "GenericList"])  # fmt: skip
_ARGUMENTS = st.sampled_from(
    ["", "0", "1", "-1", "True", "False", "[1, 1]", "[]", "[0, 0]", "None", "1e-5", "99999", "x"]
)


@settings(max_examples=600, deadline=None)
@given(
    name=st.sampled_from(sorted(MODELS)),
    shapes=st.lists(_DIMS | st.lists(st.integers(0, 9), max_size=4), max_size=8),
    types=st.lists(_TYPES, max_size=8),
    args=st.lists(_ARGUMENTS, max_size=11),
    outputs=st.none() | st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=3),
)
def test_no_recorded_arguments_break_a_model(
    name: str, shapes: list[Any], types: list[str], args: list[str], outputs: list[list[int]] | None
) -> None:
    cost = estimate(name, shapes, types, args, outputs=outputs, output_dtypes=["FLOAT"] * 3)
    if cost is not None:
        assert cost.flops >= 0 and cost.bytes_read >= 0 and cost.bytes_written >= 0
        assert isinstance(cost.flops, int) and isinstance(cost.bytes, int)
        assert cost.exact or cost.note


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(sorted(MODELS)),
    st.text('0123456789,;"NA/', max_size=20),
    st.text("FLOATDT_BF16;INT8", max_size=20),
)
def test_no_table_cell_breaks_a_model(kind: str, shapes: str, types: str) -> None:
    estimate_kernel_row(kind, shapes, types, shapes, types)
