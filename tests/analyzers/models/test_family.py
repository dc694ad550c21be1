"""Kernel names as profilers print them, and the family each tells."""

from __future__ import annotations

import pytest

from stallscope.analyzers.models.family import Family, head, kernel_family

NATIVE = "void at::native::"
NAMES: dict[Family, list[str]] = {
    Family.GEMM: [
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_32x6_tn_align8>(cutlass_80::Params)",
        "Cijk_Alik_Bljk_BBS_BH_Bias_HA_S_SAV_UserArgs_MT256x192x64_MI16x16x1_SN_LDSB1",
        "volta_sgemm_128x32_nt",
        "nvjet_tst_128x64_64x8_1x2_h_bz_TNT",
        "void splitKreduce_kernel<float, float, float, float, true, false, false>(cublasSplitKParams<float>)",
        "void wvSplitK_hf_sml_<__hip_bfloat16, 64, 2, 16, 8, 2, 1>(int, int)",
        "void marlin::Marlin<__half, 256, 1, 8, 8, 4, 8>(int4 const*, int4 const*)",
        "triton_tem_fused_addmm_relu_3",
        "aclnnMatmul_MatMulV3Common_MatMulV3",
        "MatMul109",
        "void epilogue::impl::globalKernel<float, float, float, true, true>(int, int, long)",
    ],
    Family.ATTENTION: [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128, 128, 4>>(Params)",
        "void flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128, 64>>(Flash_fwd_params)",
        "void paged_attention_ll4mi_QKV_mfma16_kernel<0, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0>(x)",
        "void paged_attention_ll4mi_reduce_kernel<__hip_bfloat16, __hip_bfloat16, 128>(x)",
        "kernel_unified_attention_2d",
        "attn_fwd",
        "sage_fwd",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::Params)",
        "_fwd_grouped_kernel_stage1",
        "void flashinfer::BatchDecodeWithPagedKVCacheKernel<3, 8>(Params)",
        "aclnnFlashAttentionScore_FlashAttentionScore_FlashAttentionScore",
        "FusedInferAttentionScore_ab12",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7",
    ],
    Family.MOE: [
        "_matmul_ogs_NNT_bf16xbf16xmxfp4_128x128x128x1_swiglu",
        "_finalize_matmul_scatter_bf16",
        "_combined_routing_compute",
        "_topk_forward",
        "fused_moe_kernel",
        "void vllm::moe::topkGating<8, 128, 4, 16>(float const*)",
        "void moe_align_block_size_kernel<int>(int*, int*)",
        "aclnnGroupedMatmulV5_GroupedMatmul_GroupedMatmul",
        "MoeGatingTopKSoftmaxV2",
    ],
    Family.NORM: [
        "_ZN7ck_tile6kentryILi1ENS_12Rmsnorm2dFwdINS_27Rmsnorm2dFwdPipelineOnePassIN",
        "_ZN5aiter24add_rmsnorm_quant_kernelIDF16bDF16bLi256ELi16ELb1ELb0ELb1ELi1EEEvPT0_PT_PfS4_S4_S4_diiiiiiib",
        NATIVE + "(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float)",
        "triton_red_fused__to_copy_add_addmm_div_mean_mul_neg_pow_rsqrt_stack_31",
        "void vllm::fused_add_rms_norm_kernel<c10::BFloat16, 8>(c10::BFloat16*)",
        "void cudnn::bn_fw_tr_1C11_kernel_NCHW<float, float, 512, true, 1>(cudnnTensorStruct)",
        "RmsNorm",
        "AddRmsNormBias",
        NATIVE + "batch_norm_transform_input_kernel<c10::BFloat16, c10::BFloat16, float, true, int>(x)",
    ],
    Family.ELEMENTWISE: [
        NATIVE
        + "vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>>(int)",
        NATIVE
        + "elementwise_kernel<128, 4, at::native::gpu_kernel_impl_nocast<at::native::BinaryFunctor<float>>>(int)",
        "triton_poi_fused__unsafe_view_addmm_cat_clone_gelu_transpose_view_34",
        "_ZN7sgl_hip10activation18act_and_mul_kernelI14__hip_bfloat16TnPFT_RKS3_EXadL_Z4siluIS2_ES3_S5_EEEEvPS3_PS4_i",
        "void vllm::act_and_mul_kernel<c10::BFloat16, &(c10::BFloat16 vllm::silu_kernel<c10::BFloat16>)>(x)",
        NATIVE + "(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>(x)",
        "aclnnAdd_AddAiCore_Add",
        "SwiGlu",
        "RealDiv139",
    ],
    Family.COPY: [
        "Memcpy DtoH (Device -> Pinned)",
        "Memset (Device)",
        NATIVE
        + "unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int)",
        NATIVE
        + "vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul>>(int)",
        NATIVE
        + "(anonymous namespace)::CatArrayBatchedCopy<at::native::(anonymous namespace)::OpaqueType<2u>>(x)",
        "__amd_rocclr_copyBuffer",
        "aclnnInplaceCopy_TensorMoveAiCore_TensorMove",
        "aclnnMm_MatMulCommon_MemSet",
        "trans_TransData_24",
        "Cast186",
        "CopyHostToDevice",
    ],
    Family.REDUCTION: [
        NATIVE + "reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>>>(x)",
        "triton_per_fused__to_copy_addmm_mean_pow_view_7",
        "void at_cuda_detail::cub::DeviceReduceSingleTileKernel<int>(x)",
        "ReduceSum7",
        "aclnnLinalgVectorNorm_LpNormV2_LpNormV2",
    ],
    Family.SAMPLING: [
        NATIVE
        + "reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::ArgMaxOps<float>, unsigned int>>(x)",
        NATIVE + "sbtopk::gatherTopK<float, unsigned int, 2, false>(x)",
        "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800>(x)",
        NATIVE + "(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>(x)",
        "void flashinfer::sampling::TopKTopPSamplingFromProbKernel<1024>(float*)",
        "aclnnTopk_TopkV2_TopKV2",
    ],
    Family.EMBEDDING: [
        NATIVE
        + "(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>(x)",
        NATIVE + "vectorized_gather_kernel<16, long>(char*, char*, long*, int, long, long, long, long, bool)",
        "aclnnEmbedding_GatherV2AiCore_GatherV2",
    ],
    Family.KV_CACHE: [
        "void vllm::reshape_and_cache_flash_kernel<__hip_bfloat16, __hip_bfloat16, (vllm::Fp8KVCacheDataType)0>(x)",
        "void (anonymous namespace)::store_kvcache<2048l, 4, false, long>((anonymous namespace)::StoreKVCacheParams)",
        "create_flashinfer_kv_indices_triton",
        "ReshapeAndCacheNdKernel",
    ],
    Family.ROPE: [
        "void vllm::rotary_embedding_kernel<c10::BFloat16, true>(long const*, c10::BFloat16*)",
        "RotaryPositionEmbedding",
        "RotaryMul",
    ],
    Family.SOFTMAX: [
        "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, false>(float*)",
        "ScaledMaskedSoftmax98",
    ],
    Family.CONV: [
        "igemm_fwd_gtcx3_nhwc_bf16_bx0_ex1_bt128x64x32_wt32x32x8_ws1x1",
        "void implicit_convolve_sgemm<float, float, 128, 6, 7, 3, 3, 5, 1, false, true, true>(int)",
        "volta_scudnn_128x128_stridedB_splitK_small_nn_v1",
        "_ZN2ck16tensor_operation6device12_GLOBAL__N_139kernel_grouped_conv_fwd_xdl_cshuffle_v3INS_34Gridwise",
        "void cudnn::ops::nchwToNhwcKernel<float, float, float, false, true>(x)",
        "Conv2D1",
    ],
    Family.QUANTISE: [
        "sage_quant_kernel",
        "_per_token_group_quant_8bit",
        "void vllm::dynamic_per_token_scaled_fp8_quant_kernel_strided<c10::BFloat16>(x)",
        "DynamicQuant",
    ],
    Family.COLLECTIVE: [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>(vllm::RankData*)",
        "hcom_allReduce__868_0_1",
        "multimem_all_reduce_kernel",
    ],
    Family.OTHER: [
        "my_kernel",
        "",
        "at::cuda::(anonymous namespace)::spin_kernel(long)",
        "_Z",
        "_ZN99999999x",
    ],
}


@pytest.mark.parametrize(
    ("family", "name"), [(family, name) for family, names in NAMES.items() for name in names]
)
def test_a_name_tells_its_family(family: Family, name: str) -> None:
    assert kernel_family(name) is family


def test_every_family_has_names_here() -> None:
    assert set(NAMES) == set(Family)


def test_heads() -> None:
    assert head("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, int>(float*)") == (
        "at::native::cat_array_batched_copy"
    )
    assert head("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bEEvPT0_") == "aiter::add_rmsnorm_quant_kernel"
    assert head("aclnnAddmm_MatMulCommon_MatMulV2") == "mat_mul_v2"
    assert head("Memcpy DtoD (Device -> Device)") == "memcpy"
