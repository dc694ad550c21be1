"""Scripts that use the fake torch_npu, and the environment they run in."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from support import ascend_raw

FAKE = Path(__file__).resolve().parent / "fake_torch_npu"

INFER = """
import sys, time
import torch
import torch_npu

torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
torch_npu.npu.set_device(0)
x = torch.ones(4, 64)
with torch.no_grad():
    for _ in range(8):
        x = model(x)
        time.sleep(0.005)
print("done", tuple(x.shape))
sys.exit(3)
"""
STEPS, KERNELS_A_STEP = 8, 3


def environment(folder: Path, *, msprof: bool = True, **changes: Any) -> dict[str, str]:
    """Variables with which a child finds the fake, and a pretended CANN unless it is not to be there."""
    env = {"PYTHONPATH": str(FAKE), **changes}
    if msprof:
        root = folder / "cann"
        place = root / "tools" / "profiler" / "bin"
        if not place.is_dir():
            ascend_raw.install_msprof(root)
        env["PATH"] = f"{place}{os.pathsep}{os.environ.get('PATH', '')}"
    return env
