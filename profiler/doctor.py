"""What can be recorded on this machine, and what is missing for the rest."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Check:
    """One line of the doctor's report. `missing` is fine where the machine has no such hardware."""

    name: str
    status: Literal["ok", "missing", "problem"]
    text: str
    next_step: str = ""


def version(package: str) -> str:
    """The installed version of a distribution, "" if there is none; nothing is imported."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _python() -> Iterator[Check]:
    yield Check("python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    from stallscope.profiler import kernels

    if kernels.active() == "compiled":
        yield Check("compiled core", "ok", "traces are read by the compiled tokeniser")
    else:
        yield Check("compiled core", "problem", "not built: reading large traces is 5 to 8 times slower",
                    "Install a C compiler and reinstall stallscope.")  # fmt: skip
    inflate = "isal" if importlib.util.find_spec("isal") else "zlib"
    yield Check("gzip", "ok", f"inflated by {inflate}")


def _torch() -> Iterator[Check]:
    found = version("torch")
    if not found:
        yield Check("torch", "missing", "not installed here: Python and host activity can be recorded",
                    "Use the environment your script runs in.")  # fmt: skip
        return
    yield Check("torch", "ok", f"{found}: operators can be recorded")
    import torch

    if torch.cuda.is_available():
        flavour = "HIP" if getattr(torch.version, "hip", None) else "CUDA"
        for number in range(torch.cuda.device_count()):
            yield Check(f"{flavour} device {number}", "ok", torch.cuda.get_device_name(number))
    else:
        built = getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None)
        text = "no device is visible" if built else "this torch is built for the CPU only"
        yield Check("CUDA/HIP", "missing", text)
    yield from _all_threads()


def _all_threads() -> Iterator[Check]:
    try:
        from torch._C._profiler import _ExperimentalConfig

        _ExperimentalConfig(profile_all_threads=True)
    except (ImportError, TypeError):
        yield Check("all threads", "problem", "this torch records operators of one thread only",
                    "torch 2.7 or later records every thread.")  # fmt: skip
    else:
        yield Check("all threads", "ok", "operators of every thread are recorded")


def _npu() -> Iterator[Check]:
    found = version("torch-npu") or version("torch_npu")
    if not found:
        yield Check("torch_npu", "missing", "not installed: Ascend NPUs cannot be recorded here")
        return
    yield Check("torch_npu", "ok", found)
    if shutil.which("msprof"):
        yield Check("msprof", "ok", "on PATH: kernels can be exported after the run")
    else:
        yield Check("msprof", "problem", "not on PATH: a recording will hold no kernels",
                    "Source CANN's set_env.sh before the run.")  # fmt: skip
    for name in ("PROFILER_SAMPLECONFIG", "PROFILING_MODE"):
        if os.environ.get(name):
            yield Check(
                name, "problem", "set: torch_npu's profiler does nothing while it is", f"unset {name}"
            )


def _mindspore() -> Iterator[Check]:
    found = version("mindspore")
    yield Check("mindspore", "ok" if found else "missing", found or "not installed")


def _host() -> Iterator[Check]:
    if os.path.isdir("/proc/self/task"):
        yield Check("host sampler", "ok", "per-thread CPU and run-queue wait are recorded")
    else:
        yield Check("host sampler", "missing", "no /proc here: contention cannot be measured")
    if sys.getprofile() is not None or sys.gettrace() is not None:
        yield Check("tracing", "problem", "another profiler or debugger is active in this interpreter")


CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (_python, _torch, _npu, _mindspore, _host)


def examine() -> list[Check]:
    """All checks, in the order in which they are printed."""
    return [check for group in CHECKS for check in group()]
