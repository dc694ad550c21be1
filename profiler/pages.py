"""How fresh memory comes while columns are computed: in the system's ordinary pages.

NumPy asks Linux for large pages for every array from 4 MiB on. Columns live for one operation, so that each large
page is cleared in full, out of the cache, for a single pass over it: on a trace of four million events that was a
quarter of the time of loading and rules. Ordinary pages are cleared as they are written, and used again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any


@contextmanager
def ordinary_pages() -> Iterator[None]:
    """Arrays made inside ask for no large pages, unless NUMPY_MADVISE_HUGEPAGE says what is wanted.

    What was set before is set again at the end. Does nothing where NumPy has no such switch.
    """
    switch = None if "NUMPY_MADVISE_HUGEPAGE" in os.environ else _switch()
    if switch is None:
        yield
        return
    before = switch(False)
    try:
        yield
    finally:
        switch(before)


def _switch() -> Any:
    """NumPy's own switch, which gives back what was set before; None where it has none."""
    for home in ("numpy._core.multiarray", "numpy.core.multiarray"):  # NumPy 2, NumPy 1
        try:
            return getattr(import_module(home), "_set_madvise_hugepage", None)
        except ImportError:
            continue
    return None
