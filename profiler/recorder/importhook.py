"""Calls a function of ours right after a named module was first imported, and times that import.

Nothing is imported early: a process that never imports torch never pays for the torch hook.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

Imported = Callable[[str, ModuleType, int, int], None]
"""Called with the module's name, the module, and when its import began and ended (monotonic ns)."""

Failed = Callable[[str, Exception], None]
"""Called with the module's name and what its import raised; must not raise. The script sees the exception as ever."""


def _ignored(name: str, error: Exception) -> None:
    del name, error


class ImportWatch:
    """A finder at the head of `sys.meta_path` that lets the others find, and wraps the loader they return."""

    def __init__(self, names: Sequence[str], imported: Imported, failed: Failed | None = None) -> None:
        self._waiting = set(names)
        self._imported = imported
        self._failed = failed or _ignored

    def install(self) -> None:
        """Start watching. Modules that are loaded already are reported at once."""
        now = time.perf_counter_ns()
        for name in sorted(self._waiting & sys.modules.keys()):
            self._waiting.discard(name)
            self._imported(name, sys.modules[name], now, now)
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Stop watching."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self._waiting:
            return None
        self._waiting.discard(name)
        # finders before us were asked already, and said no
        for finder in sys.meta_path[sys.meta_path.index(self) + 1 :]:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                self._wrap(name, spec)
                return spec
        self._waiting.add(name)
        return None

    def _wrap(self, name: str, spec: ModuleSpec) -> None:
        loader = spec.loader
        # a loader that is a class or shared between modules must not be changed
        if loader is None or isinstance(loader, type) or "exec_module" in getattr(loader, "__dict__", {}):
            return
        run = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            start_ns = time.perf_counter_ns()
            try:
                run(module)
            except Exception as error:
                self._failed(name, error)
                raise
            finally:
                loader.__dict__.pop("exec_module", None)
            self._imported(name, sys.modules.get(name, module), start_ns, time.perf_counter_ns())

        # a failed import is printed without the frames of the import machinery, which Python knows by this name
        exec_module.__code__ = exec_module.__code__.replace(
            co_filename="<frozen importlib._bootstrap_external>"
        )
        try:
            loader.exec_module = exec_module  # type: ignore[method-assign]
        except AttributeError:
            return
