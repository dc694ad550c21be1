"""Finds where LLM inference waits, and proves it.

The public names are resolved when first used, so that importing the package costs nothing inside a
program under observation.
"""

from __future__ import annotations

TYPE_CHECKING = False  # importing `typing` would cost every recorded process 5 ms
if TYPE_CHECKING:
    from typing import Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from stallscope.analyzers import analyze as analyze
    from stallscope.profiler.readers import load as load
    from stallscope.profiler.recorder.api import mark as mark
    from stallscope.profiler.recorder.api import record as record
    from stallscope.profiler.session import Session as Session

_HOMES = {
    "analyze": "stallscope.analyzers",
    "load": "stallscope.profiler.readers",
    "mark": "stallscope.profiler.recorder.api",
    "record": "stallscope.profiler.recorder.api",
    "Session": "stallscope.profiler.session",
}

__all__ = ["Session", "__version__", "analyze", "load", "mark", "record"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
