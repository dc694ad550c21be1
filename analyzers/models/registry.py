"""The form of a model: a pure function from a call to its cost."""

from __future__ import annotations

from collections.abc import Callable

from stallscope.analyzers.models.call import Call, Cost

Model = Callable[[Call], Cost]
"""Raises `call.NoModel` where the recorded arguments are not those it needs."""


def names(text: str) -> list[str]:
    """The names of a table, written with spaces between them."""
    return text.split()
