"""torch.profiler's engine (Kineto): operators on every build, kernels on CUDA, HIP and XPU builds.

Driven below `torch.profiler`: its `schedule` acts on the calling thread alone and keeps one cycle. Files are
plain JSON: Kineto's C++ writes it in 3.4 us an event, while Python's gzip would take 42.
"""

from __future__ import annotations

import os
from types import ModuleType

from stallscope.profiler.recorder.backends.base import Backend
from stallscope.profiler.recorder.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

BYTES_PER_EVENT = 420
_CONFIGS: tuple[dict[str, bool], ...] = (
    {"profile_all_threads": True, "trace_only": True},
    {"profile_all_threads": True},
    {},
)
"""Newest first; keywords an older torch does not know raise TypeError."""


class KinetoBackend(Backend):
    name = "kineto"
    devices: tuple[str, ...] = ("cuda", "xpu")
    """Modules of torch whose devices can be recorded, in the order in which they are looked for."""

    def __init__(self, settings: Settings, torch: ModuleType) -> None:
        super().__init__(settings, torch)
        self._profile: Any = None
        self._activities: list[str] = []
        self._config_keywords = self._probe()
        self.any_thread = bool(self._config_keywords.get("profile_all_threads"))

    def _probe(self) -> dict[str, bool]:
        for keywords in _CONFIGS:
            try:
                self._make_config(**keywords)
            except TypeError:
                continue
            return dict(keywords)
        return {}

    @staticmethod
    def _make_config(**keywords: Any) -> Any:
        from torch._C import _profiler

        make: Any = _profiler._ExperimentalConfig
        return make(**keywords)

    def suits(self) -> bool:
        from torch.autograd import kineto_available

        return bool(kineto_available())

    def busy(self) -> bool:
        return bool(self.torch.autograd._profiler_enabled())

    def start(self) -> None:
        import torch.autograd.profiler as autograd_profiler

        device = self._device()
        keywords: dict[str, Any] = {
            "record_shapes": self.settings.shapes,
            "with_stack": self.settings.python == "calls",
            "use_kineto": True,
            "experimental_config": self._make_config(**self._config_keywords),
        }
        if device:
            keywords["use_device"] = device
        try:
            profile = autograd_profiler.profile(**keywords)
        except TypeError:  # before torch 2.1 the device was a flag of its own
            keywords.pop("use_device", None)
            profile = autograd_profiler.profile(use_cuda=device == "cuda", **keywords)
        profile._stallscope = True
        profile.__enter__()
        self._profile = profile
        self._activities = ["cpu", device] if device else ["cpu"]

    def _device(self) -> str:
        """The device to record besides the host; only one the script has already begun to use.

        Asking for the device earlier would create its context, which breaks scripts that fork or choose
        their devices later.
        """
        wanted = self.settings.device
        for name in self.devices:
            module = getattr(self.torch, name, None)
            if wanted in ("auto", name) and module is not None and _initialised(module):
                return name
        return ""

    def stop(self) -> None:
        self._profile.__exit__(None, None, None)

    def collect(self, stem: str) -> str:
        profile, self._profile = self._profile, None
        path = stem + ".json"
        profile.kineto_results.save(path)
        return path

    def discard(self) -> None:
        self._profile = None

    def after_fork(self, was_open: bool) -> bool:
        """A CPU-only window can be ended in the child; a device's profiling library cannot be used there."""
        if not was_open:
            return True
        if self._activities != ["cpu"]:
            return False
        self.stop()
        self.discard()
        return True

    def activities(self) -> list[str]:
        return self._activities

    def estimate_events(self, bytes_: int) -> int:
        return bytes_ // BYTES_PER_EVENT

    def facts(self) -> dict[str, object]:
        torch = self.torch
        facts: dict[str, object] = {
            "torch": str(torch.__version__),
            "build": "cuda"
            if torch.version.cuda
            else "hip"
            if getattr(torch.version, "hip", None)
            else "cpu",
            "torch_threads": torch.get_num_threads(),
            "all_threads": self.any_thread,
        }
        for name in ("cuda", "xpu"):
            module = getattr(torch, name, None)
            if module is not None and _initialised(module):
                facts["device_kind"] = name
                facts["device_names"] = [module.get_device_name(i) for i in range(module.device_count())]
        for name in ("OMP_NUM_THREADS", "CUDA_LAUNCH_BLOCKING"):
            if name in os.environ:
                facts[name] = os.environ[name]
        return facts


def _initialised(module: ModuleType) -> bool:
    check = getattr(module, "is_initialized", None)
    return bool(check()) if check is not None else False
