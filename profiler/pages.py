"""How memory comes while columns are computed: in the system's ordinary pages, and used again.

NumPy asks Linux for large pages for every array from 4 MiB on. Columns live for one operation, so that each large
page is cleared in full, out of the cache, for a single pass over it: on a trace of four million events that was a
quarter of the time of loading and rules. Ordinary pages are cleared as they are written.

The C library of Linux gives arrays above a threshold back to the system at once, and must have each page of the next
one cleared anew. It raises the threshold by itself with every larger block that is freed, up to 32 MiB; it is told
to begin where it would end. While a file is read, which makes columns that grow, the threshold is lower (`growing`).
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from typing import Any


@contextmanager
def computing() -> Iterator[None]:
    """Ordinary pages, and no garbage collection meanwhile: columns hold no cycles, and each collection would look
    through all else that was loaded. It goes on at the end where it was on."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        with ordinary_pages():
            yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def ordinary_pages() -> Iterator[None]:
    """Arrays made inside ask for no large pages, unless NUMPY_MADVISE_HUGEPAGE says what is wanted; nor are their
    pages given back at once, unless a MALLOC_ variable says when.

    NumPy's switch is set again at the end to what it was before. Does nothing where NumPy has no such switch.
    """
    _keep_pages()
    switch = None if "NUMPY_MADVISE_HUGEPAGE" in os.environ else _switch()
    if switch is None:
        yield
        return
    before = switch(False)
    try:
        yield
    finally:
        switch(before)


@contextmanager
def growing() -> Iterator[None]:
    """For columns that grow: those of 16 MiB and more stand outside of the heap, where the system makes them larger
    without copying them. In the heap each step is copied to fresh pages and leaves a hole behind. Does nothing where
    pages are given back at once anyway."""
    are_kept = _keep_pages.cache_info().currsize > 0 and _keep_pages()
    told = are_kept and _set_threshold(_LARGEST_THRESHOLD // 2)
    try:
        yield
    finally:
        if told:
            _set_threshold(_LARGEST_THRESHOLD)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc
_LARGEST_THRESHOLD = 32 << 20
"""DEFAULT_MMAP_THRESHOLD_MAX of glibc on 64 bits. It trims what is free at the top of the heap at twice as much."""


@cache
def _keep_pages() -> bool:
    """Begin with the thresholds at which glibc arrives by itself. Whether there was a glibc to be told."""
    asked = any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ)
    if asked or sys.platform != "linux" or sys.maxsize < 1 << 32:
        return False
    mallopt = _mallopt()
    if mallopt is None:
        return False
    return _set_threshold(_LARGEST_THRESHOLD) and mallopt(_M_TRIM_THRESHOLD, 2 * _LARGEST_THRESHOLD) == 1


def _set_threshold(size: int) -> bool:
    """From how many bytes on a block is one of the system's own. Whether that was understood."""
    mallopt = _mallopt()
    return mallopt is not None and mallopt(_M_MMAP_THRESHOLD, size) == 1


def _mallopt() -> Any:
    """None where the C library is another than that of Linux, and has none."""
    return getattr(ctypes.CDLL(None), "mallopt", None)


def _switch() -> Any:
    """NumPy's own switch, which gives back what was set before; None where it has none."""
    for home in ("numpy._core.multiarray", "numpy.core.multiarray"):  # NumPy 2, NumPy 1
        try:
            return getattr(import_module(home), "_set_madvise_hugepage", None)
        except ImportError:
            continue
    return None
