"""What the two Ascend backends share: settings by name, the environment worth keeping, checking what was written.

The profilers of torch_npu and MindSpore print errors and go on. So nothing they return is trusted: after a
window the files are looked at, and what is missing is said.
"""

from __future__ import annotations

import os
import re
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

FRAMEWORK, OUTPUT, DONE = "FRAMEWORK", "ASCEND_PROFILER_OUTPUT", "analyse.done"
FOLDER_ENDINGS = ("_ascend_pt", "_ascend_ms")
DEVICE_DATA = re.compile(r"^PROF_\d+_\d+_[0-9a-zA-Z]+")
INFO = re.compile(r"^profiler_info(_\d+)?\.json$")
BYTES_PER_EVENT = 300
"""About what an operator and the device tasks it starts take on disk, raw: only used to size windows."""

ANCHOR = "stallscope.clock"
"""Name of the ranges that tie a recording's clock to ours."""
_ANCHORS = 8

BLOCKING_VARIABLES = ("PROFILER_SAMPLECONFIG", "PROFILING_MODE")
"""Set, they make the profilers do nothing: the process runs under the msprof command already."""
CONFLICTING_VARIABLES = ("MSMONITOR_USE_DAEMON", "KINETO_USE_DAEMON", "PROF_CONFIG_PATH")
"""Set, they let somebody else start the profiler in the middle of a run."""
KEPT_VARIABLES = (
    "TASK_QUEUE_ENABLE", "CPU_AFFINITY_CONF", "ASCEND_LAUNCH_BLOCKING", "PYTORCH_NPU_ALLOC_CONF",
    "PYTORCH_NO_NPU_MEMORY_CACHING", "ACLNN_CACHE_LIMIT", "HOST_CACHE_CAPACITY", "ASCEND_ENHANCE_ENABLE",
    "ASCEND_GLOBAL_LOG_LEVEL", "ASCEND_SLOG_PRINT_TO_STDOUT", "ASCEND_RT_VISIBLE_DEVICES", "COMBINED_ENABLE",
    "MULTI_STREAM_MEMORY_REUSE", "INF_NAN_MODE_ENABLE", "OMP_NUM_THREADS", "HCCL_ALGO", "HCCL_BUFFSIZE",
    "HCCL_DETERMINISTIC", "HCCL_OP_EXPANSION_MODE", "HCCL_RDMA_TC", "HCCL_RDMA_SL", "MS_ENABLE_RUNTIME_PROFILER",
    "MS_ALLOC_CONF", "MS_DEV_RUNTIME_CONF", "GRAPH_OP_RUN", "VLLM_ASCEND_ENABLE_NZ",
)  # fmt: skip
"""Variables that change how fast a run is and hold no names or secrets; no other is ever written down."""
_PLAIN_VALUE = re.compile(r"[\w.,:;=+\- ]{0,200}")
_MAX_MESSAGES = 20


def environment() -> dict[str, str]:
    """The switches of the list above that are set; values with anything like a path in them are left out."""
    found = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {name: value for name, value in found.items() if _PLAIN_VALUE.fullmatch(value)}


def blocking() -> list[str]:
    """Variables that are set and make the profilers do nothing."""
    return [name for name in BLOCKING_VARIABLES if os.environ.get(name)]


# -- what a window left --------------------------------------------------------------------------------


def recordings(folder: str) -> list[str]:
    """The recordings in the folder of a window, oldest first."""
    if not os.path.isdir(folder):
        return []
    names = sorted(n for n in os.listdir(folder) if n.endswith(FOLDER_ENDINGS))
    return [os.path.join(folder, n) for n in names if os.path.isdir(os.path.join(folder, n))]


def device_data(recording: str) -> str:
    """The folder of raw device data in a recording, "" if there is none."""
    for name in sorted(os.listdir(recording)):
        if DEVICE_DATA.match(name) and os.path.isdir(os.path.join(recording, name)):
            return os.path.join(recording, name)
    return ""


def bytes_of(folder: str) -> int:
    """Bytes of all files below a folder."""
    return sum(
        os.path.getsize(os.path.join(root, name))
        for root, _, names in os.walk(folder)
        for name in names
        if os.path.isfile(os.path.join(root, name))
    )


EMPTY = (
    "npu-window-empty",
    "data_loss",
    "the NPU profiler was started and stopped, but wrote nothing; operators and kernels of that window are lost",
)
CUT = (
    "npu-window-cut",
    "data_loss",
    "the NPU profiler did not end its recording (no profiler_info.json); it may not be readable",
)
NO_OPERATORS = (
    "npu-no-operators",
    "data_loss",
    "the NPU profiler wrote no framework data: operators are missing",
)
NO_DEVICE_DATA = (
    "npu-no-device-data",
    "data_loss",
    "the NPU profiler wrote no device data (no PROF_ folder), so kernels are missing; is the device profiled already?",
)


def faults_of_window(folder: str, wants_device: bool) -> list[tuple[str, str, str]]:
    """What is missing of a window that was just written, as (code, severity, text)."""
    found = recordings(folder)
    if not found:
        return [EMPTY]
    faults = []
    for recording in found:
        if not any(INFO.match(name) for name in os.listdir(recording)):
            faults.append(CUT)
        if not bytes_of(os.path.join(recording, FRAMEWORK)):
            faults.append(NO_OPERATORS)
        if wants_device and not device_data(recording):
            faults.append(NO_DEVICE_DATA)
    return faults


# -- clocks --------------------------------------------------------------------------------------------


def anchors(enter_range: Callable[[], Any]) -> list[list[int]]:
    """Ranges named ANCHOR, each with our clock before and after it began: [[before ns, after ns], ...].

    `enter_range` starts a range that the profiler sees and returns it; it must have `__exit__`. The profiler's
    stamp of a range lies between the two readings, so several of them tie its clock to ours within a few us.
    """
    out = []
    for _ in range(_ANCHORS):
        before = time.perf_counter_ns()
        entered = enter_range()
        after = time.perf_counter_ns()
        entered.__exit__(None, None, None)
        out.append([before, after])
    return out


# -- what they only print ------------------------------------------------------------------------------


class Listener:
    """Hears what a profiler prints on the thread that called it; other threads print as ever."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self._depth = 0

    def hear(self, text: str) -> None:
        """Keep a message, without paths and without the stamp in front of it."""
        if len(self.messages) >= _MAX_MESSAGES:
            return
        plain = plain_message(text)
        if plain and plain not in self.messages:
            self.messages.append(plain)

    def take(self) -> list[str]:
        """The messages so far, which are then forgotten."""
        heard, self.messages = self.messages, []
        return heard


def plain_message(text: str) -> str:
    """One line without time stamp, process number, colours and paths.

    >>> plain_message("[2026-01-02 03:04:05] [ERROR] [77] profiler.py: Call start failed. Exception: /a/b.so missing")
    'ERROR: Call start failed. Exception: b.so missing'
    """
    line = " ".join(text.split())
    line = re.sub(r"\x1b\[[0-9;]*m", "", line)
    line = re.sub(
        r"^[^\[]{0,3}\[\d{4}-\d\d-\d\d[ -]\d\d:\d\d:\d\d\] \[([A-Z]+)\] \[\d+\] [\w.]+: ", r"\1: ", line
    )
    line = re.sub(r"(?<![\w/])(?:~|\.{1,2})?/(?:[^\s/'\",;:]+/)*([^\s/'\",;:]+)", r"\1", line)
    return line[:300]
