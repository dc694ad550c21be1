"""Matrix products: dense, batched, grouped and quantised.

Formulas (the usual count of BLAS libraries, and of the roofline literature, Williams et al., CACM 52(4),
2009): C[M,N] = A[M,K] B[K,N] takes 2*M*N*K FLOPs, one multiply and one add per term; a bias or an added
matrix takes M*N more; B batches take B times as much. Bytes: A, B and what is added are read once, C is
written once, each at its own element size, so packed weights count as packed. Scales of quantised
operands are read once too. Scaling by alpha and beta and dequantising are not counted.
"""

from __future__ import annotations

import math

from stallscope.analyzers.models.call import (
    Basis,
    Call,
    Cost,
    NoModel,
    Tensor,
    Traffic,
    broadcast,
    promote,
)
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.registry import Model, names


def product(
    call: Call,
    m: int,
    n: int,
    k: int,
    a: Tensor,
    b: Tensor,
    *,
    batch: int = 1,
    out: str = "",
    added: Tensor | None = None,
    scales: tuple[Tensor | None, ...] = (),
    compute: str = "",
    basis: Basis = "shapes",
    note: str = "",
) -> Cost:
    """2*batch*m*n*k FLOPs (+ batch*m*n for what is added), operands read once, the result written once."""
    flops = 2 * batch * m * n * k + (batch * m * n if added is not None else 0)
    traffic = Traffic().reads(a, b, added, *scales)
    dtype = compute or promote((a.dtype, b.dtype)) or a.dtype
    traffic.writes(batch * m * n, out or dtype)
    return traffic.cost(flops, dtype, Family.GEMM, unit="matrix", basis=basis, note=note)


def mm(call: Call) -> Cost:
    """`mm(A[M,K], B[K,N])`."""
    a, b = call.need(0), call.need(1)
    m, k, n = _dims2(a, b)
    return product(call, m, n, k, a, b)


def _dims2(a: Tensor, b: Tensor) -> tuple[int, int, int]:
    """(M, K, N) of A[M,K] times B[K,N]."""
    if len(a.shape) != 2 or len(b.shape) != 2 or a.shape[1] != b.shape[0]:
        raise NoModel
    return a.shape[0], a.shape[1], b.shape[1]


def addmm(call: Call) -> Cost:
    """`addmm(C, A[M,K], B[K,N], beta, alpha)`; C is read unless beta is 0."""
    a, b = call.need(1), call.need(2)
    m, k, n = _dims2(a, b)
    return product(call, m, n, k, a, b, added=None if call.integer(3) == 0 else call.need(0))


def addmm_activation(call: Call) -> Cost:
    """`_addmm_activation(bias, A, B, ...)`: the activation runs in the epilogue and is not counted."""
    a, b = call.need(1), call.need(2)
    m, k, n = _dims2(a, b)
    return product(call, m, n, k, a, b, added=call.need(0))


def bmm(call: Call) -> Cost:
    """`bmm(A[B,M,K], B[B,K,N])`."""
    return _batched(call, call.need(0), call.need(1), None)


def baddbmm(call: Call) -> Cost:
    """`baddbmm(C, A[B,M,K], B[B,K,N], beta, alpha)`."""
    return _batched(call, call.need(1), call.need(2), None if call.integer(3) == 0 else call.need(0))


def _batched(call: Call, a: Tensor, b: Tensor, added: Tensor | None) -> Cost:
    if len(a.shape) != 3 or len(b.shape) != 3 or a.shape[0] != b.shape[0] or a.shape[2] != b.shape[1]:
        raise NoModel
    batch, m, k = a.shape
    return product(call, m, b.shape[2], k, a, b, batch=batch, added=added)


def matmul(call: Call) -> Cost:
    """`matmul(A[...,M,K], B[...,K,N])` with broadcast batches; vectors count as one row or column."""
    a, b = call.need(0), call.need(1)
    if not a.shape or not b.shape:
        raise NoModel
    a_shape = (1, *a.shape) if len(a.shape) == 1 else a.shape
    b_shape = (*b.shape, 1) if len(b.shape) == 1 else b.shape
    if a_shape[-1] != b_shape[-2]:
        raise NoModel
    batch = math.prod(broadcast((a_shape[:-2], b_shape[:-2])))
    return product(call, a_shape[-2], b_shape[-1], a_shape[-1], a, b, batch=batch)


def linear(call: Call) -> Cost:
    """`linear(X[...,K], W[N,K], bias[N])`, and library calls with the weight as [N,K]."""
    x, w = call.need(0), call.need(1)
    if len(w.shape) != 2 or not x.shape or x.shape[-1] != w.shape[1]:
        raise NoModel
    bias = call.tensor(2)
    is_bias = bias is not None and bias.shape == (w.shape[0],)
    return product(
        call, x.numel // max(w.shape[1], 1), w.shape[0], w.shape[1], x, w, added=bias if is_bias else None
    )


def mv(call: Call) -> Cost:
    """`mv(A[M,K], x[K])`, `addmv(y, A, x)`."""
    at = 1 if call.base.startswith("addmv") else 0
    a, x = call.need(at), call.need(at + 1)
    if len(a.shape) != 2 or x.shape != (a.shape[1],):
        raise NoModel
    return product(call, a.shape[0], 1, a.shape[1], a, x, added=call.need(0) if at else None)


def dot(call: Call) -> Cost:
    """`dot(x[K], y[K])`."""
    x, y = call.need(0), call.need(1)
    if x.shape != y.shape:
        raise NoModel
    return product(call, 1, 1, x.numel, x, y)


def scaled_mm(call: Call) -> Cost:
    """`_scaled_mm(A[M,K], B[K,N], scale_a, scale_b, bias, scale_result, out_dtype)`; 8 or 4 bits.

    Two 4-bit numbers share one byte of a `Float4_e2m1fn_x2` tensor, so its K counts twice.
    """
    a, b = call.need(0), call.need(1)
    m, k, n = _dims2(a, b)
    out = call.scalar_type(6)
    basis: Basis = "shapes" if out else "lower bound"
    told = "" if out else "the result's type is not recorded: taken as 2 bytes"
    packed = a.dtype == "fp4x2"
    bias = call.tensor(4)
    bias = bias if bias is not None and bias.is_float and bias.shape == (n,) else None
    return product(
        call,
        m,
        n,
        2 * k if packed else k,
        a,
        b,
        out=out or "bf16",
        added=bias,
        basis=basis,
        note=told,
        scales=(call.tensor(2), call.tensor(3)),
        compute="fp4" if packed else "fp8",
    )


def int_mm(call: Call) -> Cost:
    """`_int_mm(A[M,K], B[K,N])`: int8 operands, int32 result."""
    a, b = call.need(0), call.need(1)
    m, k, n = _dims2(a, b)
    return product(call, m, n, k, a, b, out="int32", compute="int8")


def grouped_mm(call: Call) -> Cost:
    """`_grouped_mm(A[T,K], B[G,K,N], offs[G])`: 2*T*K*N FLOPs over all rows, each group's matrix once.

    A group without rows reads nothing; how the rows fall is not recorded, so the expected number of
    groups hit by T independent rows, G(1-(1-1/G)^T), is read.
    """
    scaled = "scaled" in call.base
    a, b = call.need(0), call.need(1)
    if len(a.shape) != 2 or len(b.shape) != 3 or a.shape[1] != b.shape[1]:
        raise NoModel
    rows, k = a.shape
    groups, _, n = b.shape
    active = expected_groups(groups, rows)
    weights = -(-b.bytes * active // groups) if groups else 0
    traffic = Traffic().reads(a)
    traffic.read += int(weights)
    traffic.unknown |= not b.dtype
    traffic.writes(rows * n, "bf16" if scaled else a.dtype)
    return traffic.cost(
        2 * rows * k * n,
        a.dtype,
        Family.GEMM,
        unit="matrix",
        basis="expected",
        note=f"{active:.1f} of {groups} groups expected to hold rows",
    )


def expected_groups(groups: int, draws: int) -> float:
    """How many of `groups` are hit by `draws` independent, even draws: G(1-(1-1/G)^n)."""
    return groups * (1.0 - (1.0 - 1.0 / groups) ** draws) if groups > 0 else 0.0


def int4pack_mm(call: Call) -> Cost:
    """`_weight_int4pack_mm(A[M,K], packed, group_size, scales_and_zeros[K/g,N,2])`."""
    a, b, scales = call.need(0), call.need(1), call.need(3)
    if len(a.shape) != 2 or len(scales.shape) != 3:
        raise NoModel
    m, k = a.shape
    return product(call, m, scales.shape[1], k, a, b, scales=(scales,), out=a.dtype, compute=a.dtype)


def int8pack_mm(call: Call) -> Cost:
    """`_weight_int8pack_mm(A[M,K], W[N,K] int8, scales[N])`."""
    a, w = call.need(0), call.need(1)
    if len(a.shape) != 2 or len(w.shape) != 2 or a.shape[1] != w.shape[1]:
        raise NoModel
    return product(
        call, a.shape[0], w.shape[0], a.shape[1], a, w, scales=(call.tensor(2),), out=a.dtype, compute=a.dtype
    )


def library(call: Call) -> Cost:
    """A library product whose first two matrices are A[M,K] and B, [K,N] or [N,K], told by K.

    `aiter::gemm_a16w16(A, B, bias, ...)`, `sgl_kernel::fp8_scaled_mm(A, B, scale_a, scale_b, ...)` and
    their siblings. With 8-bit operands the result is taken as 2 bytes.
    """
    given = [t for t in call.given if len(t.shape) >= 2]
    if len(given) < 2:
        raise NoModel
    return _told_by_k(call, given[0], given[1])


def library_out_first(call: Call) -> Cost:
    """As `library`, with the result as the first argument: `_C::cutlass_scaled_mm(out, A, B, ...)`."""
    given = [t for t in call.given if len(t.shape) >= 2]
    if len(given) < 3:
        raise NoModel
    return _told_by_k(call, given[1], given[2], out=given[0].dtype, n_of_out=given[0].shape[-1])


def _told_by_k(call: Call, a: Tensor, b: Tensor, out: str = "", n_of_out: int | None = None) -> Cost:
    k = a.shape[-1]
    m = a.numel // max(k, 1)
    if len(b.shape) != 2 or k not in b.shape:
        raise NoModel
    n = b.shape[0] if b.shape[1] == k else b.shape[1]
    if b.shape[0] == k and n_of_out in b.shape and n_of_out is not None:
        n = n_of_out
    packed = a.dtype == "fp4x2" or (a.dtype == "uint8" and b.dtype == "uint8")
    small = a.dtype in ("fp8", "int8", "fp4x2") or packed
    wide = ("bf16", "fp16") if small else ("bf16", "fp16", "fp32", "fp64")
    bias = next((t for t in call.given if t.shape == (n,) and t.dtype in wide), None)
    compute = "fp4" if packed else a.dtype
    return product(
        call,
        m,
        n,
        2 * k if packed else k,
        a,
        b,
        out=out or ("bf16" if small else a.dtype),
        added=bias,
        scales=_scales(call, a, b, small),
        compute=compute,
        note="the result's type is not recorded: taken as 2 bytes" if small and not out else "",
        basis="lower bound" if small and not out else "shapes",
    )


def _scales(call: Call, a: Tensor, b: Tensor, small: bool) -> tuple[Tensor, ...]:
    """fp32 (or block-scale) tensors that come with 8- and 4-bit operands."""
    if not small:
        return ()
    return tuple(
        t for t in call.given if t not in (a, b) and t.dtype == "fp32" and t.numel <= max(a.numel, b.numel)
    )


def weight_only(call: Call) -> Cost:
    """A[M,K] times packed low-bit weights (`gptq_marlin_gemm`, `awq_gemm`, `machete_mm`, ...).

    M, N, K stand as whole numbers among the arguments where the kernel takes them; else N is the last
    dimension of the scales. The packed weight is read as stored. Arithmetic runs in A's type.
    """
    given = call.given
    a = next((t for t in given if len(t.shape) >= 2 and t.dtype in ("bf16", "fp16", "fp8", "int8")), None)
    if a is None:
        raise NoModel
    k = a.shape[-1]
    m = a.numel // max(k, 1)
    packed = next(
        (t for t in given if t is not a and t.dtype in ("int32", "uint8", "int8") and len(t.shape) >= 2), None
    )
    if packed is None:
        raise NoModel
    scales = next((t for t in given if t not in (a, packed) and t.is_float and len(t.shape) == 2), None)
    n = _written_size(call, m, k)
    if n is None and scales is not None:
        n = scales.shape[-1]
    if n is None:
        raise NoModel
    return product(call, m, n, k, a, packed, out=a.dtype, compute=a.dtype, scales=(scales,) if scales else ())


def _written_size(call: Call, m: int, k: int) -> int | None:
    """N, where the arguments hold M, N, K one after the other."""
    numbers = [call.integer(i) for i in range(len(call.concrete))]
    for i in range(len(numbers) - 2):
        n = numbers[i + 1]
        if numbers[i] == m and numbers[i + 2] == k and n is not None and n > 0:
            return n
    return None


def bitsandbytes(call: Call) -> Cost:
    """`bitsandbytes::gemv_4bit(A[...,K], B packed, shapeB, ...)`: B holds two weights a byte."""
    a, b = call.need(0), call.need(1)
    shape = call.integers(2)
    if shape is None or len(shape) != 2:
        raise NoModel
    n, k = shape
    return product(call, a.numel // max(k, 1), n, k, a, b, out=a.dtype, compute=a.dtype)


def ascend(call: Call) -> Cost:
    """An Ascend product from kernel_details: [..,M,K] x [..,K,N], either side maybe transposed or NZ.

    The transposition is an attribute that is not recorded, so M and N come from the output and K from
    A's size: K = |A| / (batch*M). Fractal layouts pad to 16, which makes K and the bytes of the weight
    those of the padded tensor, as they lie in memory.
    """
    a, b = call.need(0), call.need(1)
    if not call.outputs or len(call.outputs[0].shape) < 2:
        raise NoModel
    out = call.outputs[0]
    m, n = out.shape[-2], out.shape[-1]
    batch = math.prod(out.shape[:-2])
    if batch * m * n == 0 or a.numel % (batch * m):
        raise NoModel
    k = a.numel // (batch * m)
    if b.numel < k * n:
        raise NoModel
    bias = call.tensor(2)
    bias = bias if bias is not None and bias.shape in ((n,), (m, n)) else None
    small = a.dtype in ("int8", "int4")
    return product(
        call,
        m,
        n,
        k,
        a,
        b,
        batch=batch,
        out=out.dtype,
        added=bias,
        compute=a.dtype,
        scales=tuple(t for t in call.given[2:] if t is not bias) if small else (),
    )


def ascend_weight_quant(call: Call) -> Cost:
    """`WeightQuantBatchMatmulV2`: A stays 16 bits, the weight is read packed; sizes as in `ascend`."""
    a, b = call.need(0), call.need(1)
    if not call.outputs or len(call.outputs[0].shape) < 2:
        raise NoModel
    out = call.outputs[0]
    m = out.numel // out.shape[-1]
    return product(
        call,
        m,
        out.shape[-1],
        a.numel // max(m, 1),
        a,
        b,
        out=out.dtype,
        compute=a.dtype,
        scales=tuple(call.given[2:]),
    )


def ascend_grouped(call: Call) -> Cost:
    """`GroupedMatmul(X[T,K], W[G,K,N] or [G,N,K], ...) -> Y[T,N]`: 2*T*K*N FLOPs; weights as `grouped_mm`."""
    x, w = call.need(0), call.need(1)
    if not call.outputs or len(x.shape) != 2 or len(w.shape) < 3:
        raise NoModel
    rows, k = x.shape
    out = call.outputs[0]
    n, groups = out.shape[-1], w.shape[0]
    if groups <= 0 or w.numel // groups < k * n:
        raise NoModel
    active = expected_groups(groups, rows)
    traffic = Traffic().reads(x)
    traffic.read += int(-(-w.bytes * active // groups))
    traffic.unknown |= not w.dtype
    traffic.writes(out.numel, out.dtype)
    return traffic.cost(
        2 * rows * k * n,
        x.dtype,
        Family.GEMM,
        unit="matrix",
        basis="expected",
        note=f"{active:.1f} of {groups} groups expected to hold rows",
    )


def ascend_grouped_fused(call: Call) -> Cost:
    """`GroupedMatmulSwigluQuant`, `GroupedMatmulFinalizeRouting`: as `ascend_grouped`, with N from the weight's size.

    The recorded output is that of what follows the product (half of the columns, or summed rows).
    """
    x, w = call.need(0), call.need(1)
    if not call.outputs or len(x.shape) != 2 or len(w.shape) < 3 or not x.shape[1]:
        raise NoModel
    rows, k = x.shape
    groups = w.shape[0]
    if groups <= 0 or w.numel % (groups * k):
        raise NoModel
    n = w.numel // (groups * k)
    active = expected_groups(groups, rows)
    traffic = Traffic().reads(x)
    traffic.read += int(-(-w.bytes * active // groups))
    traffic.unknown |= not w.dtype
    for tensor in call.outputs:
        traffic.writes(tensor.numel, tensor.dtype)
    return traffic.cost(
        2 * rows * k * n,
        x.dtype,
        Family.GEMM,
        unit="matrix",
        basis="expected",
        note=f"{active:.1f} of {groups} groups expected to hold rows",
    )


_LIBRARY = names(
    "gemm_a16w16 gemm_a16w16_asm gemm_a8w8 gemm_a8w8_ck gemm_a8w8_bpreshuffle gemm_a8w8_bpreshuffle_ck "
    "gemm_a8w8_blockscale gemm_a8w8_blockscale_ck gemm_a8w8_blockscale_bpreshuffle gemm_a4w4 "
    "gemm_a4w4_asm gemm_a4w4_blockscale tuned_gemm hipb_mm rocb_mm wvsplitk wvSpltK wv_splitk "
    "wv_splitk_small_fp16_bf16 wvSplitK wvSplitKQ LLMM1 fp8_scaled_mm int8_scaled_mm "
    "fp8_blockwise_scaled_mm dsv3_router_gemm dsv3_fused_a_gemm w8a8_block_fp8_matmul apply_fp8_linear "
    "cutlass_w4a8_mm rocm_unquantized_gemm rocm_unquantized_gemm_impl rocm_aiter_gemm_a8w8 "
    "rocm_aiter_gemm_w8a8 rocm_aiter_gemm_w8a8_blockscale rocm_aiter_triton_gemm_a8w8_blockscale "
    "rocm_per_tensor_float_w8a8_scaled_mm_impl rocm_per_tensor_w8a8_scaled_mm_impl "
    "w8a8_triton_block_scaled_mm_func triton_gemm_a8w8_blockscale fp8_gemm_nt gemm_nt_f8f8bf16 "
    "gemm_fp8_fp8_bf16_nt cpu_unquantized_gemm weight_packed_linear unquantized_gemm int8_linear_matmul "
    "gemm_afp4wfp4 dynamic_mxfp4_gemm"
)

_OUT_FIRST = names(
    "cutlass_scaled_mm cutlass_scaled_mm_azp cutlass_scaled_fp4_mm cutlass_scaled_sparse_mm "
    "scaled_fp4_mm flashinfer_scaled_fp4_mm"
)

_WEIGHT_ONLY = names(
    "gptq_marlin_gemm marlin_gemm gptq_marlin_24_gemm gptq_gemm awq_gemm machete_mm fp8_marlin_gemm "
    "marlin_qqq_gemm allspark_w8a16_gemm awq_marlin_gemm"
)

_ASCEND = names(
    "MatMul MatMulV2 MatMulV3 BatchMatMul BatchMatMulV2 BatchMatMulV3 QuantBatchMatmulV3 "
    "QuantBatchMatmulV4 QuantBatchMatmul QuantMatmul QuantMatmulWeightNz TransposeQuantBatchMatMul MatmulAllReduce "
    "MatmulAllReduceAddRmsNorm TransposeBatchMatMul Gemm"
)

MODELS: dict[str, Model] = {
    "aten::mm": mm,
    "aten::addmm": addmm,
    "aten::_addmm_activation": addmm_activation,
    "aten::bmm": bmm,
    "aten::baddbmm": baddbmm,
    "aten::matmul": matmul,
    "aten::linear": linear,
    "aten::mv": mv,
    "aten::addmv": mv,
    "aten::dot": dot,
    "aten::vdot": dot,
    "aten::_scaled_mm": scaled_mm,
    "aten::_int_mm": int_mm,
    "aten::_grouped_mm": grouped_mm,
    "aten::_scaled_grouped_mm": grouped_mm,
    "aten::_weight_int4pack_mm": int4pack_mm,
    "aten::_weight_int8pack_mm": int8pack_mm,
    "bitsandbytes::gemv_4bit": bitsandbytes,
    "npu::npu_linear": linear,
    **dict.fromkeys(_LIBRARY, library),
    **dict.fromkeys(_OUT_FIRST, library_out_first),
    **dict.fromkeys(_WEIGHT_ONLY, weight_only),
    **dict.fromkeys(_ASCEND, ascend),
    "WeightQuantBatchMatmulV2": ascend_weight_quant,
    "WeightQuantBatchMatmul": ascend_weight_quant,
    "GroupedMatmul": ascend_grouped,
    **dict.fromkeys(
        names("GroupedMatmulSwigluQuant GroupedMatmulSwigluQuantV2 GroupedMatmulFinalizeRouting"),
        ascend_grouped_fused,
    ),
}
