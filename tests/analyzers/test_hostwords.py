"""What names of host spans tell."""

from __future__ import annotations

import pytest

from stallscope.analyzers import hostwords


@pytest.mark.parametrize(
    "name",
    [
        "torch/_dynamo/convert_frame.py(1): compile",
        "torch/_inductor/codecache.py(12): load",
        "torch/_functorch/aot_autograd.py(7): aot_module",
        "triton/compiler/compiler.py(9): compile",
        "triton/backends/nvidia/compiler.py(3): make_ptx",
        "triton/runtime/build.py(5): _build",
        "triton/runtime/autotuner.py(5): _bench",
        "compile_inner (dynamo)",
        "async_compile.wait",
        "CachingAutotuner.benchmark_all_configs",
        "PjRtCpuClient::Compile",
        "backend_compile_and_load",
        "aclopCompileAndExecute",
        "jit_compile",
        "nvrtcCompileProgram",
        "hiprtcCompileProgram",
        "torch/cuda/graphs.py(91): capture_begin",
    ],
)
def test_what_compiles_is_known_by_each_of_its_names(name: str) -> None:
    assert hostwords.is_compilation(name)


@pytest.mark.parametrize(
    "name", ["Torch-Compiled Region: 0/0", "torch/nn/modules/linear.py(1): forward", "aten::mm"]
)
def test_running_what_was_compiled_is_no_compiling(name: str) -> None:
    assert not hostwords.is_compilation(name)


@pytest.mark.parametrize("name", ["GC", "gc.collect", "Python GC (gen 2)", "<built-in method collect of module object at 0x7f>",
                                  "Garbage Collection", "gc.py(4): freeze"])  # fmt: skip
def test_garbage_collection_in_any_case(name: str) -> None:
    assert hostwords.is_garbage_collection(name)


@pytest.mark.parametrize("name", ["gcd", "aten::collect", "imgcodec.py(3): decode"])
def test_words_that_only_hold_such_letters_collect_nothing(name: str) -> None:
    assert not hostwords.is_garbage_collection(name)


def test_schedulers_of_serving_and_of_diffusion() -> None:
    assert hostwords.is_scheduling("vllm/v1/core/Scheduler.py(10): run")
    assert hostwords.is_scheduling("engine.py(4): RECV_requests")
    assert not hostwords.is_scheduling("diffusers/schedulers/ddim.py(7): step")
    assert not hostwords.is_scheduling("engine.py(4): forward")
