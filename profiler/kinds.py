"""The kinds of span a timeline holds, and what a name tells about a call or a kernel.

Everything here works on one name at a time and is called once per distinct name, never per event.
"""

from __future__ import annotations

import re
from enum import IntEnum


class Kind(IntEnum):
    """What a span is. The numbers are stored in saved sessions and never change."""

    PYTHON = 0
    """A Python function call or a sampled stack frame."""
    OPERATOR = 1
    """A framework operator (`aten::mm`)."""
    RUNTIME = 2
    """A call into the device runtime or driver (`cudaLaunchKernel`, `aclnnAdd`)."""
    QUEUE = 3
    """A task-queue step between the framework and the runtime (Ascend enqueue and dequeue)."""
    KERNEL = 4
    MEMCPY = 5
    MEMSET = 6
    COLLECTIVE = 7
    """A communication kernel."""
    DEVICE_WAIT = 8
    """A synchronisation record or wait on the device side; never work."""
    ANNOTATION = 9
    """A host range somebody drew: a step, a phase, `record_function`, NVTX."""
    DEVICE_ANNOTATION = 10
    """A host range mirrored on the device; a label, never work."""
    OVERHEAD = 11
    """Time the profiler itself took; not the program's."""
    OTHER = 12
    """A span whose category says nothing we know."""


KIND_NAMES: dict[Kind, str] = {
    Kind.PYTHON: "python",
    Kind.OPERATOR: "operator",
    Kind.RUNTIME: "runtime call",
    Kind.QUEUE: "queue",
    Kind.KERNEL: "kernel",
    Kind.MEMCPY: "memcpy",
    Kind.MEMSET: "memset",
    Kind.COLLECTIVE: "collective",
    Kind.DEVICE_WAIT: "device wait",
    Kind.ANNOTATION: "annotation",
    Kind.DEVICE_ANNOTATION: "device annotation",
    Kind.OVERHEAD: "profiler overhead",
    Kind.OTHER: "other",
}

DEVICE_WORK = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET, Kind.COLLECTIVE)
"""The four classes whose union is a device's busy time."""

HOST_CALLS = (Kind.PYTHON, Kind.OPERATOR, Kind.RUNTIME, Kind.QUEUE)
"""Kinds that are program activity on a host thread (annotations are labels)."""

# nccl/rccl/hccl/lccl kernels, tensor-parallel one-shot all-reduces, symmetric-memory kernels.
# `^hip` is no sign of communication: many copies and helpers begin with it.
_COLLECTIVE = re.compile(
    r"nccl|rccl|hccl|lccl|hcom_|cross_device_reduce|multimem_|symm_mem"
    r"|(?:one_?shot|two_?shot)_?(?:push_|pull_)?all_?reduce|custom_?all_?reduce|\ball_?reduce_kernel"
    r"|quick_?reduce|fused_allreduce",
    re.IGNORECASE,
)

_SYNC_CALL = re.compile(
    r"^(?:cuda|hip|xpu|mtia|musa|acl(?:rt)?|npu|AscendCL@aclrt|Runtime@)?"
    r"(?:rt)?(?:Stream|Device|Event|Ctx|Context|Queue)Synchronize"
    r"|^aclrtSynchronize(?:Stream|Device|Event)|^AscendCL@aclrtSynchronize"
    r"|^(?:cu|hip)(?:Stream|Ctx|Event|Device)Synchronize|^urQueueFinish|^zeCommandQueueSynchronize"
    r"|SynchronizeStream|SynchronizeDevice|SynchronizeEvent",
)

_GRAPH_LAUNCH = re.compile(r"GraphLaunch|aclmdlRIExecute|ModelExecute|aclmdlExecute", re.IGNORECASE)

_LAUNCH = re.compile(
    r"^(?:cuda|cu|hip|hsa|mtia|musa|xpu|ur|ze)\w*(?:Launch(?:Kernel|Cooperative|Device)?|EnqueueKernel)"
    r"|^hipExtModuleLaunchKernel|^hipModuleLaunchKernel|^hipLaunch|^launch$|^Node@launch|^runFunction|"
    r"^urEnqueueKernelLaunch|^zeCommandListAppendLaunchKernel",
)

_COPY_CALL = re.compile(r"Memcpy|aclrtMemcpy|MemCopy|EnqueueUSMMemcpy", re.IGNORECASE)


_COLLECTIVE_SIGNS = ("ccl", "reduce", "multimem_", "symm_mem", "hcom_")
"""Each of the alternatives has one of these. Names of kernels are long, and few have any."""


def is_collective(name: str) -> bool:
    """Whether a kernel of this name moves data between devices or ranks."""
    folded = name.casefold()
    return any(sign in folded for sign in _COLLECTIVE_SIGNS) and _COLLECTIVE.search(name) is not None


def is_sync_call(name: str) -> bool:
    """Whether a runtime call of this name makes the host wait for the device."""
    return _SYNC_CALL.search(name) is not None


def is_graph_launch(name: str) -> bool:
    """Whether a runtime call of this name replays a captured graph (many kernels, one launch)."""
    return _GRAPH_LAUNCH.search(name) is not None


def is_kernel_launch(name: str) -> bool:
    """Whether a runtime call of this name starts one kernel or one graph.

    Used for counting launches that left no device record; links themselves never look at names.
    """
    return _LAUNCH.search(name) is not None or is_graph_launch(name)


def is_copy_call(name: str) -> bool:
    """Whether a runtime call of this name starts or does a copy."""
    return _COPY_CALL.search(name) is not None


def is_blocking_copy_call(name: str) -> bool:
    """Whether the copy call itself returns only when the copy is done (`cudaMemcpy`, not `...Async`)."""
    return is_copy_call(name) and "async" not in name.lower()
