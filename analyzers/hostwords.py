"""Names on the host that tell a cause by themselves: collection of garbage, compilation, memory, copies.

Like `profiler.kinds`, everything here looks at one name and is called once per distinct name.
"""

from __future__ import annotations

import re

_GARBAGE = re.compile(
    r"^(?:python )?gc(?:[ .:(]|$)|^<built-in (?:method|function) collect\b|garbage.?collect|^gc\.py[(:]",
    re.IGNORECASE,
)

# What compiles; running compiled code ("Torch-Compiled Region", "Call CompiledFxGraph", the guard
# look-up "TorchDynamo Cache Lookup") is not compiling.
_COMPILE_SPAN = re.compile(
    r"torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph|bytecode_transformation)\.py|"
    r"torch/_inductor/(?:compile_fx|graph|scheduler|codecache|async_compile|runtime/triton_heuristics)\.py.*"
    r"(?:compile|codegen|load|write|benchmark|autotune)|"
    r"torch/_functorch/(?:aot_autograd|_aot_autograd/)\S*\(\d+\): (?:aot_|create_aot)|"
    r"triton/compiler/\S*\(\d+\): (?:compile|make_\w+|parse)\b|triton/backends/\S+/compiler\.py\(\d+\): make_|"
    r"triton/runtime/build\.py|triton/runtime/autotuner\.py\(\d+\): (?:_bench|benchmark)|"
    r"\b(?:compile_inner|backend_compile|inductor_compile|compile_fx_inner|entire_frame_compile|"
    r"async_compile\.wait|CachingAutotuner\.(?:benchmark|precompile)\w*)\b|"
    r"PjRt\w*::Compile|backend_compile_and_load|aclopCompileAndExecute|jit_compile|nvrtc|hiprtc|"
    r"torch/cuda/graphs\.py\(\d+\): (?:capture_begin|capture_end)"
)
_COMPILE_WORDS = ("torch/_", "triton/", "ompile", "CachingAutotuner", "rtc", "torch/cuda/graphs.py")
"""One of them is in every name that `_COMPILE_SPAN` finds: of most names they are asked, which is ten times as fast."""
_COMPILE_CALL = re.compile(
    r"ModuleLoad|LibraryLoad|LinkCreate|LinkAdd|LinkComplete|BeginCapture|EndCapture|GraphInstantiate|GraphDestroy|"
    r"nvrtcCompile|hiprtcCompile|aclopCompile|^(?:AscendCL@)?opCompile$|KernelGetFunction|aclrtBinaryLoad"
)
_ALLOCATOR_CALL = re.compile(
    r"^(?:cuda|hip)(?:Malloc|Free|HostAlloc|FreeHost|HostMalloc|HostFree|HostRegister|HostUnregister)(?!Async)"
    r"|^(?:cu|hip)(?:MemAlloc|MemFree|MemCreate|MemMap|MemUnmap|MemRelease|MemSetAccess|MemAddressReserve)"
    r"|aclrt(?:Malloc|Free|MapMem|UnmapMem|ReserveMemAddress|ReleaseMemAddress)|aclMallocMemInner|MallocPhysical|FreePhysical"
    r"|(?:^|Runtime@)(?:Dev|Host)(?:Malloc|Free)"
)
_CAPTURE_BEGIN = re.compile(r"StreamBeginCapture|aclmdlRICaptureBegin")
_CAPTURE_END = re.compile(r"StreamEndCapture|aclmdlRICaptureEnd")

_SCHEDULING = ("schedule", "/sched/", "input_queue", "output_queue", "recv_requests", "get_next_batch",
               "process_batch_result", "wait_for_request", "batch_queue")  # fmt: skip


def is_garbage_collection(name: str) -> bool:
    """Whether a span of this name is Python's garbage collector at work."""
    low = name.lower()  # most names have neither word, which is seen at once
    return ("gc" in low or "collect" in low) and _GARBAGE.search(name) is not None


def is_compilation(name: str) -> bool:
    """Whether a Python frame, operator or annotation of this name compiles code."""
    return any(word in name for word in _COMPILE_WORDS) and _COMPILE_SPAN.search(name) is not None


def is_compile_call(name: str) -> bool:
    """Whether a runtime call of this name loads or builds code, or captures a graph."""
    return _COMPILE_CALL.search(name) is not None


def compiles_and_runs(name: str) -> bool:
    """Whether a CANN call of this name compiles an operator unless it did before, and runs it."""
    return "aclopCompileAndExecute" in name


def is_operator_compilation(name: str) -> bool:
    """Whether a CANN call of this name is the compiling part of such a call."""
    return name.removeprefix("AscendCL@") == "opCompile"


def is_allocator_call(name: str) -> bool:
    """Whether a runtime call of this name takes memory from the driver or gives it back.

    >>> is_allocator_call("cudaMalloc"), is_allocator_call("cudaMallocAsync")
    (True, False)
    """
    return _ALLOCATOR_CALL.search(name) is not None


def is_capture_begin(name: str) -> bool:
    return _CAPTURE_BEGIN.search(name) is not None


def is_capture_end(name: str) -> bool:
    return _CAPTURE_END.search(name) is not None


def is_scheduling(name: str) -> bool:
    """Whether a frame or annotation of this name chooses what runs next, or waits for it."""
    # the noise schedulers of diffusion models schedule nothing
    low = name.lower()
    return any(word in low for word in _SCHEDULING) and "diffusers/" not in name
