"""The Python sources of a wheel, unpacked beside the checkout and never imported.

    python tests/support/wheels.py          fetch what the contract tests need (`make contract` does this)

Downloads go to `.tools/`, which git ignores. Tests that need a wheel skip, with this command, where it is not there.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[2] / ".tools"
TORCH_NPU = "2.14.0"
_PLATFORM = "manylinux_2_28_x86_64"
COMMAND = "python tests/support/wheels.py"


def torch_npu() -> Path | None:
    """The folder that holds `torch_npu/`, or None where the wheel was not fetched."""
    folder = TOOLS / f"torch_npu-{TORCH_NPU}"
    return folder if (folder / "torch_npu" / "__init__.py").is_file() else None


def mindspore() -> Path | None:
    """The folder that holds `mindspore/profiler/`. Never fetched by itself: the wheel has 800 MB."""
    folder = TOOLS / "mindspore"
    return folder if (folder / "mindspore" / "profiler" / "profiler.py").is_file() else None


def unpack(wheel: Path, folder: Path, prefix: str = "") -> None:
    """The .py files of a wheel whose path begins with `prefix`."""
    with zipfile.ZipFile(wheel) as archive:
        names = [n for n in archive.namelist() if n.startswith(prefix) and n.endswith(".py")]
        archive.extractall(folder, names)


def fetch_torch_npu() -> Path:
    """Download the wheel and unpack it. Raises CalledProcessError where it cannot be had."""
    wheels = TOOLS / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    found = sorted(wheels.glob(f"torch_npu-{TORCH_NPU}-*.whl"))
    if not found:
        command = [sys.executable, "-m", "pip", "download", f"torch-npu=={TORCH_NPU}", "--no-deps",
                   "--python-version", "3.11", "--platform", _PLATFORM, "--only-binary=:all:", "-q", "-d", str(wheels)]  # fmt: skip
        subprocess.run(command, check=True)
        found = sorted(wheels.glob(f"torch_npu-{TORCH_NPU}-*.whl"))
    folder = TOOLS / f"torch_npu-{TORCH_NPU}"
    unpack(found[0], folder)
    return folder


if __name__ == "__main__":
    print(f"unpacked to {(torch_npu() or fetch_torch_npu()).name}")
