"""MindSpore's profiler: operators, CANN calls and kernels of an Ascend NPU, or operators alone on a CPU.

It lives in objects of which a process has one: what is to be recorded and where. The script may have filled them
for a profiler of its own, so they are put back as they were after each window. They also remember the device
from the moment they are made: nothing of them is touched before the script runs a cell, when it has chosen one.

What it writes is analysed after the run, by MindSpore in a process of its own. Its functions log errors instead of
raising them: what they log is kept for the report, and files are checked (`ascend.faults_of_window`).
"""

from __future__ import annotations

import os
import sys
from _thread import get_ident
from contextlib import contextmanager
from types import ModuleType

from stallscope.profiler.recorder.backends.ascend import (
    BYTES_PER_EVENT,
    FRAMEWORK,
    Listener,
    blocking,
    bytes_of,
    environment,
    faults_of_window,
    recordings,
)
from stallscope.profiler.recorder.backends.base import Backend
from stallscope.profiler.recorder.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from logging import LogRecord
    from typing import Any

KEYWORDS = {
    "Profile.__init__": (
        "activities",
        "start_profile",
        "record_shapes",
        "with_stack",
        "on_trace_ready",
        "experimental_config",
    ),
    "_ExperimentalConfig.__init__": ("profiler_level", "aic_metrics", "mstx"),
    "tensorboard_trace_handler": ("dir_name", "analyse_flag"),
}
"""The keywords we pass; what MindSpore takes is tested against its sources where they are at hand."""
_NAMES = (
    "profile",
    "tensorboard_trace_handler",
    "ProfilerActivity",
    "_ExperimentalConfig",
    "ProfilerLevel",
    "AicoreMetrics",
)
_SINGLES = (
    ("mindspore.profiler.common.profiler_context", "ProfilerContext"),
    ("mindspore.profiler.common.profiler_path_manager", "ProfilerPathManager"),
)
_INTERFACE = "mindspore.profiler.profiler_interface"
ASCEND = "Ascend"


def is_usable() -> bool:
    """Whether MindSpore is loaded whole, with a profiler of the kind we know (2.6 and later)."""
    profiler = getattr(sys.modules.get("mindspore"), "profiler", None)
    return all(hasattr(profiler, name) for name in _NAMES)


class MindSporeBackend(Backend):
    name = "mindspore"
    any_thread = False

    def __init__(self, settings: Settings, framework: ModuleType) -> None:
        super().__init__(settings, framework)
        self.ready = False
        """Set once the script runs its first cell: it has chosen its device then."""
        self._profile: Any = None
        self._singles: list[tuple[Any, Any, dict[str, Any]]] = []
        self._listener = Listener()
        self._events = 0
        self._told: set[str] = set()

    @property
    def _framework(self) -> Any:
        return self.torch

    def suits(self) -> bool:
        return is_usable()

    def device(self) -> str:
        """ "Ascend", "CPU" or "GPU": what the script computes on."""
        return str(self._framework.get_context("device_target"))

    def _records_device(self) -> bool:
        return self.device() == ASCEND and self.settings.device in ("auto", "npu")

    def busy(self) -> bool:
        interface = getattr(sys.modules.get(_INTERFACE), "ProfilerInterface", None)
        return not self.ready or bool(getattr(interface, "is_initialized", False))

    def start(self) -> None:
        profiler, settings = self._framework.profiler, self.settings
        activities = [profiler.ProfilerActivity.CPU]
        if self._records_device():
            activities.append(profiler.ProfilerActivity.NPU)
            if blocking():
                self._tell(
                    "npu-not-recorded",
                    "data_loss",
                    f"NPU kernels were not recorded: with {' and '.join(blocking())} set MindSpore's profiler does nothing",
                )
        self._singles = [_single(module, name) for module, name in _SINGLES]
        with self._hearing():
            self._profile = profiler.profile(
                activities=activities,
                start_profile=False,
                record_shapes=settings.shapes,
                with_stack=settings.python == "calls",
                on_trace_ready=profiler.tensorboard_trace_handler(dir_name=self.place, analyse_flag=False),
                experimental_config=profiler._ExperimentalConfig(
                    profiler_level=getattr(profiler.ProfilerLevel, settings.npu_level),
                    aic_metrics=getattr(profiler.AicoreMetrics, settings.npu_metrics),
                    mstx=settings.npu_mstx,
                ),
            )
            self._profile._stallscope = True
            self._profile.start()

    def stop(self) -> None:
        try:
            with self._hearing():
                self._profile.stop()
        finally:
            self._profile = None
            for entry in self._singles:
                _put_back(*entry)

    def collect(self, stem: str) -> str:
        os.makedirs(stem, exist_ok=True)
        self._events = _events(stem)
        faults = faults_of_window(stem, wants_device=self._records_device())
        # on a CPU MindSpore writes no such file
        for fault in faults if self._records_device() else []:
            self._tell(*fault)
        self._say_what_it_logged()
        return stem

    def discard(self) -> None:
        import shutil

        shutil.rmtree(self.place, ignore_errors=True)
        self._say_what_it_logged()

    def _say_what_it_logged(self) -> None:
        heard = [m for m in self._listener.take() if "schedule" not in m and "warmup" not in m]
        if heard:
            self._tell("npu-profiler-said", "warning", f"MindSpore's profiler said: {'; '.join(heard)[:600]}")

    def _tell(self, code: str, severity: str, text: str) -> None:
        if code not in self._told:
            self._told.add(code)
            self.notes.append((code, severity, text))

    def after_fork(self, was_open: bool) -> bool:
        self._profile = None
        return not was_open

    def activities(self) -> list[str]:
        return ["cpu", "npu"] if self._records_device() else ["cpu"]

    def estimate_events(self, bytes_: int) -> int:
        return max(self._events, 1)

    def facts(self) -> dict[str, object]:
        facts: dict[str, object] = {
            "mindspore": str(getattr(self._framework, "__version__", "")),
            "environment": environment(),
            "device_target": self.device(),
        }
        if self.device() == ASCEND:
            facts["device_kind"] = "npu"
            facts["npu_level"], facts["npu_metrics"] = self.settings.npu_level, self.settings.npu_metrics
        return facts

    @contextmanager
    def _hearing(self) -> Iterator[None]:
        """Keep what MindSpore's profiler logs from the script's output; what other threads log stays."""
        from mindspore import log

        logger = log._get_logger()
        ours = get_ident()

        def heard(record: LogRecord) -> bool:
            if record.thread != ours:
                return True
            self._listener.hear(record.getMessage())
            return False

        logger.addFilter(heard)
        try:
            yield
        finally:
            logger.removeFilter(heard)


def _single(module: str, name: str) -> tuple[Any, Any, dict[str, Any]]:
    """(maker, the one object it made so far or None, what it holds)."""
    maker = getattr(sys.modules.get(module), name, None)
    made = getattr(maker, "_instance", {}).get(getattr(maker, "_cls", None))
    return maker, made, dict(vars(made)) if made is not None else {}


def _put_back(maker: Any, made: Any, held: dict[str, Any]) -> None:
    if made is not None:
        vars(made).clear()
        vars(made).update(held)
    elif maker is not None:
        # it did not exist: the script's own first use makes it, with the device chosen by then
        maker._instance.clear()


def _events(folder: str) -> int:
    return sum(bytes_of(os.path.join(r, FRAMEWORK)) for r in recordings(folder)) // BYTES_PER_EVENT
