"""Finds where LLM inference waits, and proves it.

The public names are resolved when first used, so that importing the package costs nothing inside a
program under observation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from stallscope.analyzers import analyze as analyze
    from stallscope.profiler.readers import load as load
    from stallscope.profiler.session import Session as Session

_HOMES = {
    "analyze": "stallscope.analyzers",
    "load": "stallscope.profiler.readers",
    "Session": "stallscope.profiler.session",
}

__all__ = ["Session", "__version__", "analyze", "load"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
