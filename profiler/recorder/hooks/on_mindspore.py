"""MindSpore: calls of outermost cells become phase marks and steps; windows are recorded by its own profiler."""

from __future__ import annotations

import functools
import sys
from _thread import get_ident
from types import ModuleType

from stallscope.profiler.recorder.backends.mindspore import MindSporeBackend, is_usable
from stallscope.profiler.recorder.hooks.on_torch import ForwardWatch
from stallscope.profiler.recorder.hooks.own_profiler import OwnProfilerGuard

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from stallscope.profiler.recorder.agent import Agent


def install(module: ModuleType, agent: Agent) -> None:
    agent.writer.line("module", name="mindspore", version=str(getattr(module, "__version__", "")))
    if not is_usable():
        agent.note(
            "mindspore-not-recorded",
            "warning",
            "this MindSpore has no profiler of a kind that is known here (2.6 and later have): Python and host activity were "
            "recorded, its operators and kernels were not",
        )
        return
    if agent.settings.ops and agent.settings.device != "off":
        backend = MindSporeBackend(agent.settings, module)
        # whoever records a part of a script has chosen the device before
        backend.ready = not agent.follows_children
        _watch_cells(module, agent, backend)
        agent.guard("MindSpore's profiler", _guard_profilers, module, agent)
        if agent.windows.backend is None:
            agent.windows.serve(backend)


# -- steps ---------------------------------------------------------------------------------------------


class _Cells:
    """The watch of the recording that runs just now."""

    def __init__(self) -> None:
        self.watch: ForwardWatch | None = None
        self.backend: MindSporeBackend | None = None

    def attach(self, agent: Agent, backend: MindSporeBackend) -> None:
        self.watch, self.backend = ForwardWatch(agent), backend
        agent.on_detach.append(self.detach)

    def detach(self) -> None:
        self.watch = self.backend = None

    def before(self, cell: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        watch, backend = self.watch, self.backend
        if watch is None or backend is None:
            return None
        if not backend.ready:
            backend.ready = True
            # torch may be loaded too, to read weights: the framework that computes is the one to record
            if watch.agent.windows.backend is not backend and not watch.agent.windows.has_steps:
                watch.agent.windows.take_over(backend)
        return watch.before(cell, args, kwargs)


def _watch_cells(module: Any, agent: Agent, backend: MindSporeBackend) -> None:
    """Replace `nn.Cell.__call__`, once; later recordings of the process use the same replacement."""
    cell = module.nn.Cell
    known = getattr(cell, "_stallscope_cells", None)
    if known is not None:
        known.attach(agent, backend)
        return
    cells = _Cells()
    cells.attach(agent, backend)
    original = cell.__call__

    @functools.wraps(original)
    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch = cells.watch
        thread = get_ident()
        if watch is None or thread in watch.inside:
            return original(self, *args, **kwargs)
        watch.inside.add(thread)
        begun = watch.agent.guard("before a cell", cells.before, self, args, kwargs)
        try:
            return original(self, *args, **kwargs)
        finally:
            watch.inside.discard(thread)
            if begun is not None:
                watch.agent.guard("after a cell", watch.after, self, begun)

    cell.__call__ = __call__
    cell._stallscope_cells = cells
    agent.hide(__call__)


# -- the script's own profiler -------------------------------------------------------------------------


def _guard_profilers(module: Any, agent: Agent) -> None:
    """Ours is closed before the script makes or starts a profiler of its own, and comes back after that ended."""
    guard = getattr(module.profiler.profile, "_stallscope_guard", None)
    if guard is not None:
        guard.attach(agent)
        return
    guard = _Guard()
    guard.attach(agent)
    for kind in (module.profiler.profile, module.profiler.Profiler):
        kind.__init__ = guard.wrap_set_up(kind.__init__)
        kind.start, kind.stop = guard.wrap_start(kind.start), guard.wrap_stop(kind.stop)
        for function in (kind.__init__, kind.start, kind.stop):
            agent.hide(function)
        kind._stallscope_guard = guard
    # the handler chooses the folder, in the same objects
    wrapped = guard.wrap_set_up(module.profiler.tensorboard_trace_handler)
    places: list[Any] = [module.profiler, sys.modules.get("mindspore.profiler.profiler")]
    for place in filter(None, places):
        place.tensorboard_trace_handler = wrapped
    agent.hide(wrapped)


class _Guard(OwnProfilerGuard):
    kind, whose = "mindspore", "MindSpore"

    def folder_of(self, profile: Any) -> str:
        return str(getattr(getattr(profile, "_prof_context", None), "ascend_ms_dir", "") or "")

    def foreign(self, profile: Any) -> Agent | None:
        """Ours is made while a window opens."""
        agent = super().foreign(profile)
        return None if agent is None or agent.windows.is_busy else agent

    def wrap_set_up(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """For what fills the objects that our window, if one is open, still needs."""

        @functools.wraps(original)
        def set_up(*args: Any, **kwargs: Any) -> Any:
            agent = self.foreign(args[0] if args else None)
            if agent is None:
                return original(*args, **kwargs)
            agent.guard("the script's profiler", agent.windows.give_way)
            try:
                return original(*args, **kwargs)
            finally:
                agent.guard("the script's profiler", agent.windows.take_back)

        return set_up
