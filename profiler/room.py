"""Memory that changes hands: what held one column holds the next, so that the system need not clear fresh pages."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_LEAST = 1 << 20
"""Bytes from which it is worth it."""
_MOST_SPARE = 4
"""A column takes no block that is more than this many times as large as it."""


class Room:
    """Blocks of columns that nobody reads any more."""

    def __init__(self) -> None:
        self._blocks: list[npt.NDArray[np.uint8]] = []

    def give(self, column: npt.NDArray[Any]) -> None:
        """Take a column's memory. Whoever still reads the column will find other values in it."""
        if column.nbytes >= _LEAST and column.flags.c_contiguous and column.flags.writeable:
            self._blocks.append(column.view(np.uint8))

    def empty(self, n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """As `np.empty`, shape (n,), in the smallest block that fits; what is left of it stays."""
        size = n * np.dtype(dtype).itemsize
        fitting = [i for i, block in enumerate(self._blocks) if size <= len(block) <= _MOST_SPARE * size]
        if size < _LEAST or not fitting:
            return np.empty(n, dtype)
        block = self._blocks.pop(min(fitting, key=lambda i: len(self._blocks[i])))
        self.give(block[(size + 63) // 64 * 64 :])
        return block[:size].view(dtype)
