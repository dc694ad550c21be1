"""torch_npu's profiler: operators, task queue, CANN calls and kernels of an Ascend NPU.

Three ways to record, chosen when a window opens:

    torch_npu   its own profiler. Leaves FRAMEWORK and PROF_* raw; the launcher has them analysed after the run
    mspti       Kineto with CANN's libmspti: kernels only, no msprof command needed. Where torch_npu's own
                profiler can do nothing
    host        Kineto without a device: as long as the script has not begun to use the NPU

torch_npu records the operators of the thread that started it, and only that thread can end it. So its windows
open and close in threads of the script, never in ours. Its functions print errors instead of raising them: what
they print is kept for the report, and files are checked (`ascend.faults_of_window`).
"""

from __future__ import annotations

import builtins
import os
import sys
from _thread import get_ident
from contextlib import contextmanager
from types import ModuleType

from stallscope.profiler.recorder.backends.ascend import (
    ANCHOR,
    BLOCKING_VARIABLES,
    BYTES_PER_EVENT,
    Listener,
    anchors,
    blocking,
    bytes_of,
    environment,
    faults_of_window,
)
from stallscope.profiler.recorder.backends.base import Backend
from stallscope.profiler.recorder.backends.cann import find_msprof, find_mspti
from stallscope.profiler.recorder.backends.kineto import KinetoBackend
from stallscope.profiler.recorder.settings import NPU_LEVELS, NPU_METRICS, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

__all__ = ["BLOCKING_VARIABLES", "KEYWORDS", "LEVELS", "METRICS", "NpuBackend", "is_usable"]

LEVELS, METRICS = NPU_LEVELS, NPU_METRICS

TORCH_NPU, MSPTI, HOST = "torch_npu", "mspti", "host"

KEYWORDS = {
    "profile.__init__": (
        "activities",
        "on_trace_ready",
        "record_shapes",
        "with_modules",
        "experimental_config",
    ),
    "_ExperimentalConfig.__init__": ("profiler_level", "aic_metrics", "mstx", "data_simplification"),
    "tensorboard_trace_handler": ("dir_name", "analyse_flag"),
}
"""The keywords we pass; what torch_npu takes is tested against its sources."""
_NAMES = (
    "profile",
    "tensorboard_trace_handler",
    "ProfilerActivity",
    "_ExperimentalConfig",
    "ProfilerLevel",
    "AiCMetrics",
)
_CONSTANTS = "torch_npu.profiler.analysis.prof_common_func._constant"
_PATHS = "torch_npu.profiler._profiler_path_creator"
_PATH_STATE = ("_worker_name", "_dir_path", "_export_only_mode")


def is_usable() -> bool:
    """Whether torch_npu is loaded whole, with a profiler of the kind we know."""
    module = sys.modules.get("torch_npu")
    profiler = getattr(module, "profiler", None)
    device = getattr(module, "npu", None)
    return all(hasattr(profiler, name) for name in _NAMES) and hasattr(device, "is_initialized")


class NpuBackend(Backend):
    name = "torch_npu"

    def __init__(self, settings: Settings, torch: ModuleType, host: KinetoBackend | None = None) -> None:
        """`host`: the Kineto backend that served so far; a window of it may be open."""
        super().__init__(settings, torch)
        self._host = host if host is not None else KinetoBackend(settings, torch)
        self._route = HOST
        self._running = host is not None
        self._profile: Any = None
        self._anchors: list[list[int]] = []
        self._listener = Listener()
        self._told: set[str] = set()
        self._recorded_device = False
        self._events = 0

    # -- which way ---------------------------------------------------------------------------------

    @property
    def _npu(self) -> Any:
        return sys.modules["torch_npu"]

    def suits(self) -> bool:
        return is_usable() and self._host.suits()

    @property
    def any_thread(self) -> bool:  # type: ignore[override]
        """torch_npu's own profiler belongs to the thread that started it."""
        route = self._route if self._running else self.route()
        return route != TORCH_NPU and self._host.any_thread

    def route(self) -> str:
        """How a window that opens now would be recorded."""
        if self.settings.device not in ("auto", "npu") or not self._npu.npu.is_initialized():
            return HOST
        obstacles = blocking()
        if not obstacles and find_msprof():
            return TORCH_NPU
        if find_mspti() and self._has_private_use():
            return MSPTI
        return HOST if obstacles else TORCH_NPU

    def _has_private_use(self) -> bool:
        """Whether this torch can hand an NPU's events to Kineto."""
        from torch._C._autograd import _supported_activities

        return any(str(activity).endswith(".PrivateUse1") for activity in _supported_activities())

    def wants_device(self) -> bool:
        """Whether the window that is open misses the device, though the script uses it by now."""
        return self._running and self._route == HOST and self.route() != HOST

    def _tell(self, code: str, severity: str, text: str) -> None:
        if code not in self._told:
            self._told.add(code)
            self.notes.append((code, severity, text))

    # -- windows -----------------------------------------------------------------------------------

    def busy(self) -> bool:
        if self._host.busy():
            return True
        creator = self._path_creator()
        return bool(creator is not None and creator.is_prof_inited)

    def start(self) -> None:
        self._route = self.route()
        if self._route == TORCH_NPU:
            self._start_own()
        else:
            self._say_what_is_missed()
            self._host.devices = ("npu",) if self._route == MSPTI else ("cuda", "xpu")
            self._host.start()
        self._recorded_device |= self._route != HOST
        self._running = True

    def _say_what_is_missed(self) -> None:
        if not self._npu.npu.is_initialized() or self.settings.device not in ("auto", "npu"):
            return
        why = f"{' and '.join(blocking())} set" if blocking() else "there is no msprof command"
        if self._route == MSPTI:
            self._tell(
                "npu-by-mspti",
                "info",
                f"kernels were recorded through libmspti, because {why}: names, times and streams, without "
                "shapes, core metrics and CANN calls",
            )
        else:
            self._tell(
                "npu-not-recorded",
                "data_loss",
                f"NPU kernels were not recorded: with {why} torch_npu's profiler does nothing, and CANN's "
                "libmspti.so was not found. Unset it and run again",
            )

    def _start_own(self) -> None:
        profiler = self._npu.profiler
        settings = self.settings
        self._anchors = []
        creator = self._path_creator()
        kept = {name: getattr(creator, name) for name in _PATH_STATE if hasattr(creator, name)}
        with self._hearing():
            handler = profiler.tensorboard_trace_handler(dir_name=self.place, analyse_flag=False)
            self._profile = profiler.profile(
                activities=[profiler.ProfilerActivity.CPU, profiler.ProfilerActivity.NPU],
                on_trace_ready=handler,
                record_shapes=settings.shapes,
                with_modules=settings.python == "calls",
                experimental_config=profiler._ExperimentalConfig(
                    profiler_level=getattr(profiler.ProfilerLevel, settings.npu_level),
                    aic_metrics=getattr(profiler.AiCMetrics, settings.npu_metrics),
                    mstx=settings.npu_mstx,
                    data_simplification=False,
                ),
            )
            self._profile._stallscope = True
            self._profile.start()
        # the folder is made by now: what the script chose for its own profiler counts again
        for name, value in kept.items():
            setattr(creator, name, value)
        self._anchor()

    def stop(self) -> None:
        self._running = False
        if self._route != TORCH_NPU:
            self._host.stop()
            return
        self._anchor()
        with self._hearing():
            self._profile.stop()
        self._profile = None

    def collect(self, stem: str) -> str:
        if self._route != TORCH_NPU:
            return self._host.collect(stem)
        self._events = _framework_bytes(stem) // BYTES_PER_EVENT
        for fault in faults_of_window(stem, wants_device=True):
            self._tell(*fault)
        self._say_what_it_printed()
        # a window that wrote nothing is one all the same
        os.makedirs(stem, exist_ok=True)
        return stem

    def discard(self) -> None:
        if self._route != TORCH_NPU:
            self._host.discard()
            return
        import shutil

        shutil.rmtree(self.place, ignore_errors=True)
        self._say_what_it_printed()

    def _say_what_it_printed(self) -> None:
        # one of these every profile without a schedule prints
        heard = [m for m in self._listener.take() if "Incorrect schedule" not in m]
        if heard:
            severity = "warning" if any(m.startswith("ERROR") for m in heard) else "info"
            self._tell("npu-profiler-said", severity, f"torch_npu's profiler said: {'; '.join(heard)[:600]}")

    def after_fork(self, was_open: bool) -> bool:
        if was_open and self._route == TORCH_NPU:
            self._running, self._profile = False, None
            return False
        return self._host.after_fork(was_open)

    def activities(self) -> list[str]:
        return ["cpu", "npu"] if self._route == TORCH_NPU else self._host.activities()

    def estimate_events(self, bytes_: int) -> int:
        if self._route != TORCH_NPU:
            return self._host.estimate_events(bytes_)
        return max(self._events, 1)

    def window_facts(self) -> dict[str, object]:
        return {"anchors": self._anchors} if self._route == TORCH_NPU else {}

    def facts(self) -> dict[str, object]:
        facts = self._host.facts()
        device = self._npu.npu
        facts["torch_npu"] = str(getattr(self._npu, "__version__", ""))
        facts["environment"] = environment()
        if device.is_initialized():
            self._say_if_none_was_opened()
            facts["device_kind"] = "npu"
            facts["device_names"] = [str(device.get_device_name(i)) for i in range(device.device_count())]
            facts["npu_recorded_by"] = self._route
            facts["npu_level"], facts["npu_metrics"] = self.settings.npu_level, self.settings.npu_metrics
        return facts

    def _say_if_none_was_opened(self) -> None:
        wanted = self.settings.device in ("auto", "npu") and "npu-not-recorded" not in self._told
        if wanted and not self._recorded_device:
            self._tell(
                "npu-no-window",
                "data_loss",
                "the script used the NPU, but no window was open while it did: no module was called, and no stallscope.mark "
                "was set. `--window all` records from the first use of the device on",
            )

    # -- torch_npu's inside ------------------------------------------------------------------------

    def _anchor(self) -> None:
        from torch.autograd.profiler import record_function

        def enter() -> Any:
            return record_function(ANCHOR).__enter__()

        self._anchors += anchors(enter)

    @staticmethod
    def _path_creator() -> Any:
        """The one object that knows where torch_npu's profiler writes, or None."""
        make = getattr(sys.modules.get(_PATHS), "ProfPathCreator", None)
        return make() if make is not None else None

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        """Keep what torch_npu's profiler prints from the script's output; what the script prints stays."""
        module: Any = sys.modules.get(_CONSTANTS)
        if module is None:
            yield
            return
        ours = get_ident()

        def heard(*values: object, **options: Any) -> None:
            if get_ident() == ours:
                self._listener.hear(" ".join(str(v) for v in values))
            else:
                builtins.print(*values, **options)

        before = module.__dict__.get("print")
        module.print = heard
        try:
            yield
        finally:
            _put_back(module, before)


def _put_back(module: Any, before: Callable[..., None] | None) -> None:
    if before is None:
        del module.print
    else:
        module.print = before


def _framework_bytes(folder: str) -> int:
    from stallscope.profiler.recorder.backends.ascend import FRAMEWORK, recordings

    return sum(bytes_of(os.path.join(r, FRAMEWORK)) for r in recordings(folder))
