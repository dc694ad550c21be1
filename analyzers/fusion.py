"""Sequences of NPU kernels for which torch_npu offers one fused operator.

Operator types become letters, so a sequence of kernels on a stream is a text and a pattern a regular expression over it.
The fused names are those of torch_npu 2.14 (its operator list); whether a model may use one (mask, layout, precision) the
person who wrote it knows better, so a match is an offer.
"""

from __future__ import annotations

import re

from stallscope.profiler.light import dataclass

LETTERS: dict[str, str] = {
    "A": "Add Adds AddV2 InplaceAdd Axpy AxpyV2",
    "M": "Mul Muls InplaceMul",
    "P": "Pow Pows Square",
    "R": "ReduceMean ReduceMeanD",
    "Q": "Rsqrt",
    "C": "Cast",
    "S": "Slice SliceD StridedSlice StridedSliceD SplitV SplitVD Split SplitD AsStrided ViewCopy TensorMove",
    "N": "Neg",
    "K": "Concat ConcatD ConcatV2 ConcatV2D",
    "W": "Swish Silu",
    "G": "Sigmoid",
    "E": "Gelu GeluV2",
    "X": "Softmax SoftmaxV2",
    "F": "MaskedFill SelectV2 Select Where ScaledMaskedSoftmax MaskedScale",
    "B": "BatchMatMul BatchMatMulV2 BatchMatMulV3",
    "L": "RmsNorm",
    "Z": "AddRmsNorm InplaceAddRmsNorm",
    "Y": "LayerNorm LayerNormV3 LayerNormV4",
    "D": "DynamicQuant DynamicQuantV2",
    "U": "SwiGlu",
    "V": "TopK TopKV2 TopKV3",
    "H": "GroupedMatmul",
}
"""Letter to the operator types it stands for; any other type is a dot."""

OTHER = "."
_LETTER_OF = {name: letter for letter, names in LETTERS.items() for name in names.split()}


@dataclass(frozen=True)
class Pattern:
    """A sequence, as a regular expression for letters, and the operator that does it in one kernel."""

    name: str
    fused: str
    form: str


PATTERNS: tuple[Pattern, ...] = (
    Pattern("attention in pieces", "npu_fused_infer_attention_score (training: npu_fusion_attention)",
            r"B[MC]*[AFM]?[AF]?C?XC?B"),
    Pattern("RMS norm in pieces", "npu_rms_norm", r"C?[PM]RAQC?MC?M?"),
    Pattern("rotary embedding in pieces", "npu_rotary_mul", r"M?S*NS*KMM?A"),
    Pattern("grouped product, SwiGLU and quantisation", "npu_grouped_matmul_swiglu_quant", r"HUD"),
    Pattern("residual, RMS norm and quantisation", "npu_add_rms_norm_dynamic_quant", r"(?:AL|Z)D"),
    Pattern("residual and RMS norm", "npu_add_rms_norm", r"AL"),
    Pattern("residual and layer norm", "npu_add_layer_norm", r"AY"),
    Pattern("SwiGLU in pieces", "npu_swiglu", r"WM|GMM"),
    Pattern("GELU and product", "npu_gelu_mul", r"EM"),
    Pattern("router in pieces", "npu_moe_gating_top_k_softmax", r"XV"),
)  # fmt: skip
"""The longest patterns first: what one has taken is not taken again."""


def letter(op_type: str) -> str:
    """The letter of an operator type, a dot for one that is in no pattern."""
    return _LETTER_OF.get(op_type, OTHER)


def matches(text: str) -> list[tuple[Pattern, int, int]]:
    """Non-overlapping matches in a text of letters: pattern, start and end, by start.

    >>> [(p.fused, a, b) for p, a, b in matches(".AL.WM")]
    [('npu_add_rms_norm', 1, 3), ('npu_swiglu', 4, 6)]
    """
    taken = bytearray(len(text))
    found = []
    for pattern in PATTERNS:
        for match in re.finditer(pattern.form, text):
            start, end = match.span()
            if not any(taken[start:end]):
                taken[start:end] = b"\1" * (end - start)
                found.append((pattern, start, end))
    return sorted(found, key=lambda m: m[1])


def offered(op_types: list[str]) -> str:
    """The fused operator that torch_npu offers for (part of) a sequence of operator types, "" for none."""
    found = matches("".join(letter(t) for t in op_types))
    return max(found, key=lambda m: m[2] - m[1])[0].fused if found else ""
