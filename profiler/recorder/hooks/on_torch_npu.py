"""torch_npu (Ascend): windows are recorded by its own profiler, and yield to one that the script starts.

torch loads torch_npu at its own import where it is installed, before our torch hook has run; or the script
imports it later. Either way the backend for it is in place when the first window that matters opens.
"""

from __future__ import annotations

import functools
from types import ModuleType

from stallscope.profiler.recorder.backends.kineto import KinetoBackend
from stallscope.profiler.recorder.backends.npu import NpuBackend, is_usable
from stallscope.profiler.recorder.hooks.own_profiler import OwnProfilerGuard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from stallscope.profiler.recorder.agent import Agent
    from stallscope.profiler.recorder.backends.base import Backend

MARK_DOMAIN = "stallscope"


def install(module: ModuleType, agent: Agent) -> None:
    agent.writer.line("module", name="torch_npu", version=str(getattr(module, "__version__", "")))
    if not is_usable():
        agent.note(
            "npu-not-recorded",
            "data_loss",
            "this torch_npu has no profiler of a kind that is known here: its NPU kernels were not recorded. Record them "
            "with torch_npu.profiler and give that folder to `stallscope analyze`",
        )
        return
    agent.guard("torch_npu's profiler", _guard_profilers, module, agent)
    agent.guard("torch_npu's start", _watch_start, module, agent)
    if agent.settings.npu_mstx:
        agent.guard("mstx", _show_marks, module, agent)
    agent.windows.replace(functools.partial(_with_npu, agent))


def _with_npu(agent: Agent, backend: Backend) -> Backend:
    if not isinstance(backend, KinetoBackend) or agent.settings.device not in ("auto", "npu"):
        return backend
    return NpuBackend(agent.settings, backend.torch, backend)


# -- the device comes into use -------------------------------------------------------------------------


def _watch_start(module: Any, agent: Agent) -> None:
    """Tell the windows when the script first uses the device: until then only the host is recorded."""
    original = module.npu._lazy_init
    if hasattr(original, "_stallscope"):
        original._stallscope.append(agent)
        return
    agents = [agent]

    @functools.wraps(original)
    def _lazy_init() -> Any:
        # called by nearly every function of torch_npu: once it is done, this must cost nothing
        if not agents:
            return original()
        result = original()
        if module.npu.is_initialized():
            waiting, agents[:] = list(agents), []
            for each in waiting:
                each.guard("the device", each.windows.device_ready)
        return result

    _lazy_init._stallscope = agents  # type: ignore[attr-defined]
    module.npu._lazy_init = _lazy_init
    agent.hide(_lazy_init)


# -- the script's own profiler -------------------------------------------------------------------------


def _guard_profilers(module: Any, agent: Agent) -> None:
    """Two profilers of one device cannot run: ours is closed before the script's starts, and comes back after it."""
    guard = getattr(module.profiler.profile, "_stallscope_guard", None)
    if guard is not None:
        guard.attach(agent)
        return
    guard = _Guard()
    guard.attach(agent)
    for kind in dict.fromkeys((module.profiler.profile, _base_profile(module))):
        if kind is None:
            continue
        kind.start, kind.stop = guard.wrap_start(kind.start), guard.wrap_stop(kind.stop)
        agent.hide(kind.start)
        agent.hide(kind.stop)
        kind._stallscope_guard = guard


def _base_profile(module: Any) -> Any:
    """The class under `profile`, which some scripts start directly; one that inherits its methods needs no wrapping."""
    kind = getattr(module.profiler, "_KinetoProfile", None)
    return kind if kind is not None and "start" in vars(kind) else None


class _Guard(OwnProfilerGuard):
    kind = whose = "torch_npu"

    def folder_of(self, profile: Any) -> str:
        return str(getattr(getattr(profile, "prof_if", None), "prof_path", "") or "")


# -- marks on the device -------------------------------------------------------------------------------


def _show_marks(module: Any, agent: Agent) -> None:
    """Marks of ours as mstx ranges on the current stream, so that they have a twin on the device's timeline."""
    mstx, npu = module.npu.mstx, module.npu

    def begin(name: str) -> Callable[[], None]:
        if not npu.is_initialized():
            return _nothing
        number = mstx.range_start(name, npu.current_stream(), domain=MARK_DOMAIN)
        if not number:
            return _nothing
        return functools.partial(mstx.range_end, number, domain=MARK_DOMAIN)

    agent.windows.device_range = begin
    agent.on_detach.append(functools.partial(setattr, agent.windows, "device_range", None))


def _nothing() -> None:
    return
