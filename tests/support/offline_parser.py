"""Runs the offline parser of a torch_npu wheel without torch, CANN or an NPU.

    python offline_parser.py SOURCES RECORDING

The parser is pure Python. Only what it imports from the compiled parts, and from torch, is stubbed; the modules under
test are the wheel's own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def analyse(sources: Path, recording: Path) -> str:
    """Analyse one recording in a process of its own; returns what was printed. Raises where it failed."""
    env = {k: v for k, v in os.environ.items() if k != "RANK"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).resolve()), str(sources), str(recording)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the parser ended with status {done.returncode}: {done.stderr[-2000:]}")
    return done.stdout + done.stderr


class Anything(ModuleType):
    """A module that has every name: of torch, whose names the parser imports and, for what is tested, never calls."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def stub(name: str, path: Path | None = None, **names: Any) -> ModuleType:
    """Put a module in place: a package that leads into the wheel, or one with some names."""
    module = Anything(name) if name.split(".")[0] == "torch" else ModuleType(name)
    if path is not None:
        module.__path__ = [str(path)]
    for key, value in names.items():
        setattr(module, key, value)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent in sys.modules:
        setattr(sys.modules[parent], child, module)
    return module


def prepare(sources: Path) -> None:
    root = sources / "torch_npu"
    stub("torch")
    stub("torch._C")
    stub("torch.profiler")
    stub("torch.profiler._utils")
    stub("torch_npu", root)
    stub("torch_npu._C")
    stub("torch_npu._C._profiler", _get_host_uid=lambda: "1")
    stub("torch_npu.utils", root / "utils")
    stub(
        "torch_npu.utils.utils",
        _is_interactive_command_line=lambda: False,
        _print_error_log=print,
        _print_warn_log=print,
    )
    stub("torch_npu._init", root / "_init")
    stub("torch_npu._init.common", root / "_init" / "common")
    stub("torch_npu.profiler", root / "profiler")


def main(arguments: list[str]) -> None:
    prepare(Path(arguments[0]))
    from torch_npu.profiler.analysis._npu_profiler import NpuProfiler

    NpuProfiler.analyse(arguments[1])


if __name__ == "__main__":
    sys.path[:] = [p for p in sys.path if "fake_torch_npu" not in p]
    main(sys.argv[1:])
