"""torch: forward passes of outermost modules become phase marks and steps; our windows yield to others.

`nn.Module.__call__` is replaced by a function that adds about 0.2 us to a call. It carries the file and name of
the original, because torch.compile decides by those what to skip: a frame of another file would be compiled
itself, and every compiled module would share its cache.
"""

from __future__ import annotations

import functools
import os
import shutil
import time
from _thread import get_ident
from types import ModuleType

from stallscope.profiler.recorder.format import FORWARD_PASS
from stallscope.profiler.recorder.phases import phase_of, token_shape
from stallscope.profiler.recorder.windows import MODULE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stallscope.profiler.recorder.agent import Agent


def install(torch: ModuleType, agent: Agent) -> None:
    if not hasattr(torch, "nn"):  # the import failed half-way
        return
    watch_modules(torch, agent)
    guard_profilers(torch, agent)
    agent.windows.torch_ready(torch)
    agent.guard("torch facts", _write_facts, torch, agent)


def _write_facts(torch: ModuleType, agent: Agent) -> None:
    agent.writer.line("module", name="torch", version=str(torch.__version__))


class ForwardWatch:
    """What is remembered between forward passes: who is inside one, and the last shape of each module."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.inside: set[int] = set()
        """Threads inside an outermost forward pass."""
        self.prefilling: set[int] = set()
        """Threads inside a prefill that a framework announced."""
        self.announced: set[int] = set()
        """Threads inside a generate call that has done its prefill."""
        self.expecting: set[int] = set()
        """Threads inside a generate call whose next pass is the prefill, though nothing announces it."""
        self._shapes: dict[int, tuple[int, int]] = {}

    def before(
        self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[int, bool, str, Any, Any]:
        thread = get_ident()
        shape = token_shape(args, kwargs)
        if thread in self.prefilling:
            phase = "prefill"
        elif thread in self.expecting:
            phase = "prefill"
            self.expecting.discard(thread)
            self.announced.add(thread)
        elif thread in self.announced:
            phase = "decode"
        else:
            phase = phase_of(shape, self._shapes.get(id(module)))
        if shape is not None:
            if len(self._shapes) > 1000:
                self._shapes.clear()
            self._shapes[id(module)] = shape
        windows = self.agent.windows
        counted = windows.step_begins(MODULE)
        end_range = windows.device_range(phase) if windows.device_range is not None else None
        return time.perf_counter_ns(), counted, phase, shape, end_range

    def after(self, module: Any, begun: tuple[int, bool, str, Any, Any]) -> None:
        end_ns = time.perf_counter_ns()
        start_ns, counted, phase, shape, end_range = begun
        if end_range is not None:
            end_range()
        values: dict[str, object] = {"module": type(module).__name__}
        if shape is not None:
            values["batch"], values["tokens"] = shape
        self.agent.mark(phase, start_ns, end_ns, values, FORWARD_PASS)
        if counted:
            self.agent.windows.step_ends()


_watch: ForwardWatch | None = None
_replaced = 0
"""The id of our `nn.Module.__call__`, once it is in place."""


def forward_watch() -> ForwardWatch | None:
    """The watch of this process, once torch is hooked."""
    return _watch


def _forget() -> None:
    global _watch
    _watch = None


def watch_modules(torch: ModuleType, agent: Agent) -> None:
    """Replace `nn.Module.__call__`, once; later recordings of the process use the same replacement."""
    global _watch, _replaced
    _watch = ForwardWatch(agent)
    agent.on_detach.append(_forget)
    original = torch.nn.Module.__call__
    if id(original) == _replaced:
        return
    is_compiling = _compile_check(torch)

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        # first, so that a compiler tracing this sees a constant and nothing else of ours
        if is_compiling():
            return original(self, *args, **kwargs)
        watch = _watch
        thread = get_ident()
        if watch is None or thread in watch.inside:
            return original(self, *args, **kwargs)
        watch.inside.add(thread)
        begun = watch.agent.guard("before forward", watch.before, self, args, kwargs)
        try:
            return original(self, *args, **kwargs)
        finally:
            watch.inside.discard(thread)
            if begun is not None:
                watch.agent.guard("after forward", watch.after, self, begun)

    torch.nn.Module.__call__ = _disguised(__call__, original)
    _replaced = id(torch.nn.Module.__call__)
    agent.hide(torch.nn.Module.__call__)


def _compile_check(torch: ModuleType) -> Any:
    compiler = getattr(torch, "compiler", None)
    for name in ("is_dynamo_compiling", "is_compiling"):
        if (check := getattr(compiler, name, None)) is not None:
            return check
    return lambda: False


def _disguised(wrapper: Any, original: Any) -> Any:
    functools.update_wrapper(wrapper, original)
    code = getattr(original, "__code__", None)
    if code is not None:
        changes = {
            "co_filename": code.co_filename,
            "co_name": code.co_name,
            "co_firstlineno": code.co_firstlineno,
        }
        wrapper.__code__ = wrapper.__code__.replace(**changes)
    del wrapper.__wrapped__
    return wrapper


# -- other people's profilers --------------------------------------------------------------------------


def guard_profilers(torch: ModuleType, agent: Agent) -> None:
    """A second Kineto session would silently take over ours, or crash: ours yields and comes back.

    What the script's profiler exports is copied, so that its time is no hole. It is never saved by us before
    the script did: Kineto saves a result only once.
    """
    import torch.autograd.profiler as autograd_profiler

    profile = autograd_profiler.profile
    guard = getattr(profile, "_stallscope_guard", None)
    if guard is not None:
        guard.attach(agent)
        return
    guard = _ProfilerGuard()
    guard.attach(agent)
    prepare = getattr(profile, "_prepare_trace", None)
    if prepare is None or not hasattr(profile, "export_chrome_trace"):
        agent.note(
            "no-profiler-guard", "info", "this torch is too old to notice a profiler that the script starts"
        )
        return
    leave, export = profile.__exit__, profile.export_chrome_trace

    @functools.wraps(prepare)
    def _prepare_trace(self: Any) -> Any:
        if not hasattr(self, "_stallscope"):
            guard.begins(self)
        return prepare(self)

    @functools.wraps(leave)
    def __exit__(self: Any, *args: Any) -> Any:
        try:
            return leave(self, *args)
        finally:
            if not hasattr(self, "_stallscope"):
                guard.ended(self)

    @functools.wraps(export)
    def export_chrome_trace(self: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
        result = export(self, path, *args, **kwargs)
        guard.exported(self, path)
        return result

    profile._prepare_trace, profile.__exit__, profile.export_chrome_trace = (
        _prepare_trace,
        __exit__,
        export_chrome_trace,
    )
    profile._stallscope_guard = guard
    for function in (_prepare_trace, __exit__, export_chrome_trace):
        agent.hide(function)


class _ProfilerGuard:
    """What the patched profiler tells us, for the recording that runs just now."""

    def __init__(self) -> None:
        self._agent: Agent | None = None
        self._number = 0
        self._seen: dict[int, tuple[int, int]] = {}

    def attach(self, agent: Agent) -> None:
        """Work for this recording until it ends."""
        self._agent = agent
        agent.on_detach.append(self._detach)

    def _detach(self) -> None:
        self._agent = None
        self._seen.clear()

    def begins(self, profile: Any) -> None:
        if self._agent is not None:
            self._agent.guard("the script's profiler", self._begins, self._agent, profile)

    def _begins(self, agent: Agent, profile: Any) -> None:
        agent.windows.give_way()
        self._number += 1
        self._seen[id(profile)] = (self._number, time.perf_counter_ns())

    def ended(self, profile: Any) -> None:
        if self._agent is not None:
            self._agent.guard("the script's profiler", self._ended, self._agent, profile)

    def _ended(self, agent: Agent, profile: Any) -> None:
        number, start_ns = self._seen.get(id(profile), (0, 0))
        if not number:
            return
        end_ns = time.perf_counter_ns()
        agent.writer.line("user-profiler", n=number, start_ns=start_ns, end_ns=end_ns, file="")
        agent.windows.take_back()

    def exported(self, profile: Any, path: Any) -> None:
        if self._agent is not None:
            self._agent.guard("the script's profiler", self._exported, self._agent, profile, path)

    def _exported(self, agent: Agent, profile: Any, path: Any) -> None:
        number, start_ns = self._seen.pop(id(profile), (0, 0))
        if not number or not os.path.isfile(path):
            return
        name = f"{agent.writer.stem}-u{number}.json"
        shutil.copyfile(path, os.path.join(agent.folder, name))
        agent.writer.line("user-profiler", n=number, start_ns=start_ns, end_ns=0, file=name)
