"""What a name tells about a kernel."""

from __future__ import annotations

import pytest

from stallscope.profiler import kinds


@pytest.mark.parametrize(
    "name",
    [
        "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "rcclGenericKernel", "HCCL_op",
        "lcclAllGather", "hcom_broadcast_", "void cross_device_reduce_1stage<bf16, 8>", "multimem_all_gather_kernel",
        "symm_mem_barrier", "one_shot_push_all_reduce_kernel", "twoshot_allreduce", "custom_all_reduce<8>",
        "void all_reduce_kernel", "quickreduce::allreduce_prototype", "fused_allreduce_rms",
    ],
)  # fmt: skip
def test_every_sign_of_a_collective_counts_in_any_case(name: str) -> None:
    assert kinds.is_collective(name)
    assert kinds.is_collective(name.upper())
    assert kinds.is_collective(name.lower())


@pytest.mark.parametrize(
    "name", ["reduce_kernel<512>", "ampere_sgemm", "hipMemcpyAsync", "", "softmax_warp_forward"]
)
def test_other_reductions_are_no_collectives(name: str) -> None:
    assert not kinds.is_collective(name)
