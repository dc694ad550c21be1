"""Who records operators and device work. The one table of backends; the first that suits a process is used."""

from __future__ import annotations

from types import ModuleType

from stallscope.profiler.recorder.backends.base import Backend
from stallscope.profiler.recorder.settings import Settings

BACKENDS: tuple[str, ...] = (
    "stallscope.profiler.recorder.backends.npu:NpuBackend",
    "stallscope.profiler.recorder.backends.kineto:KinetoBackend",
)
"""Module and class of each backend, most special first. They are imported only in a process that loaded torch."""

_NPU = "stallscope.profiler.recorder.backends.npu:"


def choose(settings: Settings, torch: ModuleType) -> Backend | None:
    """The backend for this process, or None where operators are not wanted or nothing suits."""
    if not settings.ops or settings.device == "off":
        return None
    import importlib
    import sys

    for entry in BACKENDS:
        if entry.startswith(_NPU) and "torch_npu" not in sys.modules:
            continue
        module, _, name = entry.partition(":")
        backend: Backend = getattr(importlib.import_module(module), name)(settings, torch)
        if backend.suits():
            return backend
    return None
