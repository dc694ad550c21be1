"""What can be recorded on this machine, and what is missing for the rest."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Literal

from stallscope.profiler.light import dataclass

IMPORT_S = 60
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"


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
        yield Check("compiled core", "problem",
                    f"{kernels.why_python}: reading large traces is 5 to 8 times slower",
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
    torch = _torch_alone()

    if torch.cuda.is_available():
        flavour = "HIP" if getattr(torch.version, "hip", None) else "CUDA"
        for number in range(torch.cuda.device_count()):
            yield Check(f"{flavour} device {number}", "ok", torch.cuda.get_device_name(number))
    else:
        built = getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None)
        text = "no device is visible" if built else "this torch is built for the CPU only"
        yield Check("CUDA/HIP", "missing", text)
    yield from _all_threads()


def _torch_alone() -> ModuleType:
    """torch without the extensions it loads by itself: a torch_npu that is broken would take it down."""
    before = os.environ.get(AUTOLOAD)
    os.environ[AUTOLOAD] = "0"
    try:
        return importlib.import_module("torch")
    finally:
        if before is None:
            del os.environ[AUTOLOAD]
        else:
            os.environ[AUTOLOAD] = before


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
    found = {name: version(name) for name in ("torch-npu", "mindspore")}
    if not any(found.values()):
        yield Check(
            "torch_npu",
            "missing",
            "neither it nor MindSpore is installed: Ascend NPUs cannot be recorded here",
        )
        return
    if found["torch-npu"]:
        yield _loads("torch_npu", found["torch-npu"])
    if found["mindspore"]:
        yield _loads("mindspore", found["mindspore"])
    yield from _cann()
    yield from _npu_conflicts()


def _loads(module: str, found: str) -> Check:
    """Whether a framework can be imported, tried in a process of its own: it may crash, or change this one."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"import {module}"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=IMPORT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Check(module, "problem", f"{found}: its import takes more than {IMPORT_S} s")
    if done.returncode == 0:
        return Check(module, "ok", f"{found}: operators and kernels of NPUs can be recorded")
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    why = next((line for line in reversed(lines) if re.match(r"\w*(Error|Exception)\b", line)), "") or (
        lines[-1] if lines else f"status {done.returncode}"
    )
    return Check(module, "problem", f"{found} is installed but cannot be imported: {why[:200]}", _cure(why))


def _cure(why: str) -> str:
    if "Two accelerators" in why or "ERR00007" in why:
        return "torch is a build for another accelerator: install its CPU build beside torch_npu."
    if ".so" in why:
        return "Source CANN's set_env.sh, so that its libraries are found."
    return ""


def _cann() -> Iterator[Check]:
    from stallscope.profiler.recorder.backends import cann

    nodes, driver = cann.device_nodes(), cann.driver_version()
    if nodes:
        yield Check("NPU driver", "ok", f"{driver or 'version unknown'}, {len(nodes)} NPU(s) are visible")
    else:
        yield Check("NPU driver", "missing", "no NPU is visible: no /dev/davinci device")
    homes = cann.homes()
    if homes:
        yield Check("CANN", "ok", cann.version() or "version unknown")
    else:
        yield Check(
            "CANN",
            "problem",
            f"not found: {' and '.join(cann.HOME_VARIABLES)} name no folder",
            "Install CANN, or source its set_env.sh.",
        )
    msprof, mspti = cann.find_msprof(), cann.find_mspti()
    if msprof:
        where = (
            "on PATH"
            if shutil.which("msprof")
            else "in CANN's folder, not on PATH; it will be used from there"
        )
        yield Check("msprof", "ok", f"{where}: kernels can be exported after the run")
    else:
        text = "a recording will hold no kernels"
        if mspti:
            text = (
                "kernels will be recorded through libmspti: names and times, without shapes and core metrics"
            )
        yield Check("msprof", "problem", f"not found: {text}", "Source CANN's set_env.sh before the run.")
    yield Check(
        "libmspti",
        "ok" if mspti else "missing",
        "found: the fallback where torch_npu's own profiler cannot be used"
        if mspti
        else "not found: there is no fallback where torch_npu's own profiler cannot be used",
    )


def _npu_conflicts() -> Iterator[Check]:
    from stallscope.profiler.recorder.backends.ascend import BLOCKING_VARIABLES, CONFLICTING_VARIABLES

    for name in BLOCKING_VARIABLES:
        if os.environ.get(name):
            yield Check(
                name, "problem", "set: torch_npu's profiler does nothing while it is", f"unset {name}"
            )
    for name in CONFLICTING_VARIABLES:
        if os.environ.get(name, "0") != "0":
            yield Check(
                name,
                "problem",
                "set: another profiler may start in the middle of a run, and ours gives way to it",
                f"unset {name}",
            )
    if os.environ.get("ASCEND_LAUNCH_BLOCKING") == "1":
        yield Check(
            "ASCEND_LAUNCH_BLOCKING",
            "problem",
            "set to 1: every kernel is waited for, so the run is not what it would be without it",
            "unset ASCEND_LAUNCH_BLOCKING",
        )


def _host() -> Iterator[Check]:
    if os.path.isdir("/proc/self/task"):
        yield Check("host sampler", "ok", "per-thread CPU and run-queue wait are recorded")
    else:
        yield Check("host sampler", "missing", "no /proc here: contention cannot be measured")
    if sys.getprofile() is not None or sys.gettrace() is not None:
        yield Check("tracing", "problem", "another profiler or debugger is active in this interpreter")


CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (_python, _torch, _npu, _host)


def examine() -> list[Check]:
    """All checks, in the order in which they are printed."""
    return [check for group in CHECKS for check in group()]
