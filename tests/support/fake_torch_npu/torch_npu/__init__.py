"""A torch_npu without an NPU: its public functions by the contract, its raw files in the real form.

FAKE_TORCH_NPU: "libhccl" and "conflict" fail at import as the real one does without CANN, or beside CUDA.
"""

import os
import time

_mode = os.environ.get("FAKE_TORCH_NPU", "")
if _mode == "libhccl":
    raise OSError("libhccl.so: cannot open shared object file: No such file or directory")
if _mode == "conflict":
    raise RuntimeError(
        "Two accelerators cannot be used at the same time in PyTorch: npu and cuda. You can install the cpu version of "
        "PyTorch to use your npu device, or use the cuda device with 'export TORCH_DEVICE_BACKEND_AUTOLOAD=0'.\n"
        f"[ERROR] {time.strftime('%Y-%m-%d')} (PID:1, Device:-1, RankID:-1) ERR00007 PTA feature not supported"
    )

from torch_npu import npu, profiler

__version__ = "2.14.0"
__all__ = ["npu", "profiler"]
