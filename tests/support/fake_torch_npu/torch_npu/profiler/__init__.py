from enum import Enum

from torch_npu.profiler.experimental_config import AiCMetrics, ExportType, ProfilerLevel, _ExperimentalConfig
from torch_npu.profiler.profiler import _KinetoProfile, profile, tensorboard_trace_handler


class ProfilerActivity(Enum):
    CPU = 0
    NPU = 1


__all__ = [
    "AiCMetrics",
    "ExportType",
    "ProfilerActivity",
    "ProfilerLevel",
    "_ExperimentalConfig",
    "_KinetoProfile",
    "profile",
    "tensorboard_trace_handler",
]
