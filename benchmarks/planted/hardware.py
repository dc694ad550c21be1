"""Chips and the names that kernels and operators carry on each vendor's stack.

Peaks are dense, without structured sparsity, from the vendors' data sheets (A100 SXM 80 GB, H100 SXM5,
MI300X) and, for the Ascend 910B3, from cores x clock x operations per cycle; they only set how long a
modelled kernel takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from benchmarks.planted.actions import Kernel, Tensor

Vendor = Literal["cuda", "hip", "ascend"]


@dataclass(frozen=True)
class Chip:
    """One accelerator: `flops` 16-bit dense per second, `bandwidth` bytes per second, `cores` SM/CU/AIC."""

    vendor: Vendor
    name: str
    flops: float
    bandwidth: float
    cores: int
    memory: int
    warp: int = 32
    major: int = 9
    minor: int = 0
    vector_cores: int = 0
    mhz: int = 0
    pinned: float = 50e9
    """Bytes per second of a copy from or to pinned host memory."""
    pageable: float = 8e9


H100 = Chip("cuda", "NVIDIA H100 80GB HBM3", 989e12, 3352e9, 132, 85_018_279_936)
A100 = Chip("cuda", "NVIDIA A100-SXM4-80GB", 312e12, 2039e9, 108, 85_051_572_224, major=8, pinned=24e9)
MI300X = Chip("hip", "AMD Instinct MI300X", 1307e12, 5325e9, 304, 206_141_652_992, warp=64, major=9, minor=4)
B3 = Chip(
    "ascend", "Ascend910B3", 294.9e12, 1600e9, 20, 65_796_046_848, vector_cores=40, mhz=1800, pinned=22e9
)

CHIPS = {"h100": H100, "a100": A100, "mi300x": MI300X, "910b3": B3}

# Operators: role -> the chain a call goes through, outermost first.
_OPERATORS: dict[str, dict[str, tuple[str, ...]]] = {
    "gemm": {"": ("aten::linear", "aten::mm")},
    "bmm": {"": ("aten::matmul", "aten::bmm")},
    "norm": {"": ("_C::fused_add_rms_norm",), "ascend": ("npu::npu_add_rms_norm",)},
    "rope": {"": ("_C::rotary_embedding",), "ascend": ("npu::npu_rotary_mul",)},
    "kv_write": {"": ("_C_cache_ops::reshape_and_cache_flash",), "ascend": ("npu::npu_scatter_nd_update_",)},
    "attention": {
        "": ("vllm::unified_attention_with_output", "_vllm_fa3_C::fwd"),
        "hip": ("vllm::unified_attention_with_output",),
        "ascend": ("vllm::unified_ascend_attention_with_output", "npu::npu_fused_infer_attention_score"),
    },
    "sdpa": {
        "": ("aten::scaled_dot_product_attention", "aten::_scaled_dot_product_flash_attention",
             "aten::_flash_attention_forward"),
        "ascend": ("aten::scaled_dot_product_attention", "npu::npu_fusion_attention"),
    },
    "swiglu": {"": ("_C::silu_and_mul",), "ascend": ("npu::npu_swiglu",)},
    "embedding": {"": ("aten::embedding",)},
    "argmax": {"": ("aten::argmax",)},
    "mul": {"": ("aten::mul",)},
    "add": {"": ("aten::add",)},
    "silu": {"": ("aten::silu",)},
    "pow": {"": ("aten::pow",)},
    "mean": {"": ("aten::mean",)},
    "rsqrt": {"": ("aten::rsqrt",)},
    "neg": {"": ("aten::neg",)},
    "cat": {"": ("aten::cat",)},
    "cast": {"": ("aten::to", "aten::_to_copy", "aten::copy_")},
    "contiguous": {"": ("aten::contiguous", "aten::clone", "aten::copy_")},
    "softmax": {"": ("aten::softmax", "aten::_softmax")},
    "sort": {"": ("aten::sort",)},
    "cumsum": {"": ("aten::cumsum",)},
    "index": {"": ("aten::index",)},
    "collective": {"": ("vllm::all_reduce", "c10d::allreduce_", "record_param_comms")},
    "moe": {"": ("vllm::moe_forward",), "ascend": ("npu::npu_grouped_matmul",)},
}  # fmt: skip

_ELEMENT = "at::native::vectorized_elementwise_kernel<{v}, {f}, std::array<char*, {n}ul> >(int, {f}, std::array<char*, {n}ul>)"
_CUDA_KERNELS = {
    "norm": "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*, c10::BFloat16*, c10::BFloat16 const*, float, int, int)",
    "rope": "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*, c10::BFloat16*, c10::BFloat16 const*, int, long, long, int, int, int)",
    "kv_write": "void vllm::reshape_and_cache_flash_kernel<__nv_bfloat16, __nv_bfloat16, (vllm::Fp8KVCacheDataType)0>(__nv_bfloat16 const*, __nv_bfloat16 const*, __nv_bfloat16*, __nv_bfloat16*, long const*, long, long, long, long, long, int, int, int, float const*, float const*)",
    "attention": "void cutlass::device_kernel<flash::enable_sm90_or_later<flash::FlashAttnFwdSm90<flash::CollectiveMainloopFwdSm90<2, cute::tuple<cute::C<1>, cute::C<1>, cute::C<1> >, cute::tuple<cute::C<128>, cute::C<128>, cute::C<128> >, 128, cutlass::bfloat16_t, float, cutlass::arch::Sm90> > > >(flash::FlashAttnFwdSm90::Params)",
    "sdpa": "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t>, false, true, false, false, true, true, false, false>(pytorch_flash::Flash_fwd_params)",
    "swiglu": "void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_kernel<c10::BFloat16>(c10::BFloat16 const&)), true>(c10::BFloat16*, c10::BFloat16 const*, int)",
    "embedding": "void at::native::(anonymous namespace)::vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)",
    "argmax": "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<c10::BFloat16, at::native::ArgMaxOps<float>, unsigned int, long, 4, 4> >(at::native::ReduceOp<c10::BFloat16, at::native::ArgMaxOps<float>, unsigned int, long, 4, 4>)",
    "mul": "void " + _ELEMENT.format(v=4, f="at::native::BinaryFunctor<c10::BFloat16, c10::BFloat16, c10::BFloat16, at::native::binary_internal::MulFunctor<float> >", n=3),
    "add": "void " + _ELEMENT.format(v=4, f="at::native::CUDAFunctor_add<c10::BFloat16>", n=3),
    "silu": "void " + _ELEMENT.format(v=4, f="at::native::(anonymous namespace)::silu_kernel(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}", n=2),
    "pow": "void " + _ELEMENT.format(v=4, f="at::native::(anonymous namespace)::pow_tensor_scalar_kernel_impl<float, float>(at::TensorIteratorBase&, float)::{lambda(float)#1}", n=2),
    "mean": "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, 4, 4> >(at::native::ReduceOp<float, at::native::MeanOps<float, float, float, float>, unsigned int, float, 4, 4>)",
    "rsqrt": "void " + _ELEMENT.format(v=4, f="at::native::rsqrt_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}", n=2),
    "neg": "void " + _ELEMENT.format(v=4, f="at::native::neg_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}", n=2),
    "cat": "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 4, 64, 64>(at::native::(anonymous namespace)::OpaqueType<2u>*, at::native::(anonymous namespace)::CatArrInputTensorMetadata<at::native::(anonymous namespace)::OpaqueType<2u>, unsigned int, 64, 64>, at::native::(anonymous namespace)::TensorSizeStride<unsigned int, 4u>, int, unsigned int)",
    "cast": "void " + _ELEMENT.format(v=4, f="at::native::bfloat16_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(float)#1}", n=2),
    "contiguous": "void at::native::elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1} const&)::{lambda(int)#1}>(int, at::native::gpu_kernel_impl_nocast<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1}>(at::TensorIteratorBase&, at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda(c10::BFloat16)#1} const&)::{lambda(int)#1})",
    "softmax": "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, c10::BFloat16, float, c10::BFloat16, at::native::(anonymous namespace)::SoftMaxForwardEpilogue>(c10::BFloat16*, c10::BFloat16 const*, int)",
    "sort": "void at::native::radixSortKVInPlace<-2, -1, 32, 4, c10::BFloat16, long, unsigned int>(at::cuda::detail::TensorInfo<c10::BFloat16, unsigned int>, unsigned int, unsigned int, unsigned int, at::cuda::detail::TensorInfo<long, unsigned int>, unsigned int, bool)",
    "cumsum": "void at::native::tensor_kernel_scan_innermost_dim<float, std::plus<float> >(float*, float const*, unsigned int, unsigned int, unsigned int, float, std::plus<float>)",
    "index": "void at::native::index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_kernel_impl<at::native::OpaqueType<2> >(at::TensorIteratorBase&, c10::ArrayRef<long>, c10::ArrayRef<long>)::{lambda(char*, char const*, long)#1}>(at::TensorIteratorBase&, c10::ArrayRef<long>, c10::ArrayRef<long>, at::native::index_kernel_impl<at::native::OpaqueType<2> >(at::TensorIteratorBase&, c10::ArrayRef<long>, c10::ArrayRef<long>)::{lambda(char*, char const*, long)#1} const&, bool)::{lambda(int)#1}>(long, at::native::gpu_index_kernel)",
    "collective": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
    "moe": "fused_moe_kernel",
}  # fmt: skip

_GEMM = {
    "cuda9": ("nvjet_tst_64x8_64x16_4x1_v_bz_splitK_TNT", "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNN"),
    "cuda8": ("ampere_bf16_s16816gemm_bf16_64x64_sliced1x2_ldg8_f2f_stages_64x5_tn",
              "ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn"),
    "hip": ("Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT32x16x256_MI16x16x1_SN_LDSB1_AFC1_AFEM1_AFEM1",
            "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x256x64_MI16x16x1_SN_LDSB1_AFC1_AFEM1_AFEM1"),
}  # fmt: skip

# Ascend: role -> (op type, core kind, core type in op_statistic)
ASCEND_KERNELS: dict[str, tuple[str, str]] = {
    "gemm": ("MatMulV3", "AI_CORE"),
    "bmm": ("BatchMatMulV2", "AI_CORE"),
    "norm": ("AddRmsNorm", "AI_VECTOR_CORE"),
    "rope": ("RotaryMul", "AI_VECTOR_CORE"),
    "kv_write": ("ScatterNdUpdate", "AI_VECTOR_CORE"),
    "attention": ("FusedInferAttentionScore", "MIX_AIC"),
    "sdpa": ("FlashAttentionScore", "MIX_AIC"),
    "swiglu": ("SwiGlu", "AI_VECTOR_CORE"),
    "embedding": ("GatherV2", "AI_VECTOR_CORE"),
    "argmax": ("ArgMaxV2", "AI_VECTOR_CORE"),
    "mul": ("Mul", "AI_VECTOR_CORE"),
    "add": ("Add", "AI_VECTOR_CORE"),
    "silu": ("Swish", "AI_VECTOR_CORE"),
    "pow": ("Pows", "AI_VECTOR_CORE"),
    "mean": ("ReduceMean", "AI_VECTOR_CORE"),
    "rsqrt": ("Rsqrt", "AI_VECTOR_CORE"),
    "neg": ("Neg", "AI_VECTOR_CORE"),
    "cat": ("ConcatD", "AI_VECTOR_CORE"),
    "cast": ("Cast", "AI_VECTOR_CORE"),
    "contiguous": ("Transpose", "AI_VECTOR_CORE"),
    "softmax": ("SoftmaxV2", "AI_VECTOR_CORE"),
    "sort": ("Sort", "AI_VECTOR_CORE"),
    "cumsum": ("Cumsum", "AI_VECTOR_CORE"),
    "index": ("Index", "AI_VECTOR_CORE"),
    "collective": ("hcom_allReduce_", "COMMUNICATION"),
    "moe": ("GroupedMatmul", "AI_CORE"),
}


def operators(vendor: Vendor, role: str) -> tuple[str, ...]:
    """The operators a call of this role goes through, outermost first."""
    table = _OPERATORS[role]
    chain = table.get(vendor, table[""])
    if vendor == "ascend" and role != "collective":
        return (*chain, aclnn_name(role))
    return chain


def aclnn_name(role: str) -> str:
    """The vendor library's entry point, which the framework draws as the innermost operator."""
    return "aclnn" + ASCEND_KERNELS[role][0].removesuffix("V2").removesuffix("V3")


def kernel_name(chip: Chip, role: str, rows: int = 1) -> str:
    """The name a kernel of this role shows; `rows` picks small or large GEMM tiles."""
    if chip.vendor == "ascend":
        kind, _ = ASCEND_KERNELS[role]
        if role == "collective":
            return "hcom_allReduce_"
        return f"{aclnn_name(role)}_{kind}AiCore_{kind}"
    if role in ("gemm", "bmm"):
        small, large = _GEMM["hip" if chip.vendor == "hip" else f"cuda{chip.major}"]
        return small if rows <= 256 else large
    if chip.vendor == "hip" and role == "attention":
        return "kernel_unified_attention_2d" if rows > 256 else "kernel_paged_attention_2d"
    return _CUDA_KERNELS[role]


@dataclass(frozen=True)
class Cost:
    """What one kernel does: floating-point operations and bytes moved."""

    flops: float = 0.0
    bytes: float = 0.0


@dataclass(frozen=True)
class Maker:
    """Makes kernels of a chip that last what the roofline says, at a share of the roof.

    `floor_ns` is the shortest a kernel can be.
    """

    chip: Chip
    floor_ns: int = 2200
    share: float = 0.86
    shares: dict[str, float] = field(default_factory=dict)

    def kernel(
        self,
        role: str,
        inputs: tuple[Tensor, ...],
        outputs: tuple[Tensor, ...],
        flops: float = 0.0,
        moved: float = -1.0,
        share: float = 0.0,
        blocks: int = 0,
        ns: int = 0,
        name: str = "",
    ) -> Kernel:
        """One kernel; without `moved` each operand is read or written once."""
        chip = self.chip
        size = sum(t.bytes for t in inputs + outputs) if moved < 0 else moved
        roof = roof_ns(chip, flops, size)
        used = share or self.shares.get(role, self.share)
        rows = inputs[0].shape[0] if inputs and inputs[0].shape else 1
        limit = chip.vector_cores if chip.vendor == "ascend" else 65535
        grid = blocks or max(1, min(limit, int(size // 32768) + 1))
        return Kernel(
            name=name or kernel_name(chip, role, rows),
            ns=ns or max(self.floor_ns, round(roof / used)),
            role=role,
            grid=(grid, 1, 1),
            block=(256 if chip.vendor == "hip" else 128, 1, 1),
            registers=168 if role in ("gemm", "bmm", "attention", "sdpa", "moe") else 32,
            shared_memory=196_608 if role in ("gemm", "attention") and chip.major == 9 else 0,
            inputs=inputs,
            outputs=outputs,
            flops=flops,
            moved=size,
        )


def roof_ns(chip: Chip, flops: float, size: float) -> float:
    """The least time in nanoseconds that the chip's peaks allow for this much work."""
    return max(flops / chip.flops, size / chip.bandwidth) * 1e9
