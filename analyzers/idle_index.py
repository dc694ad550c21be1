"""The pieces of one device's idle time by cause, and what rules and tables ask of them more than once."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.timeline import Bool, Int32, Timeline

if TYPE_CHECKING:
    from stallscope.analyzers.idle import Cause, IdleAccount
    from stallscope.analyzers.losses import Loss
    from stallscope.analyzers.places import Places
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]


class IdleIndex:
    """One account's pieces by cause. Pieces are given as their numbers, ascending and so by time."""

    def __init__(self, run: Run, account: IdleAccount) -> None:
        self.run = run
        self.account = account
        self.losses: dict[tuple[Cause, bool], list[Loss]] = {}
        """By cause, and whether warm-up is left out: see `losses.cause_losses`."""
        self._of: dict[Cause, Rows] = {}

    def of(self, cause: Cause) -> Rows:
        """The pieces of one cause."""
        if cause not in self._of:
            self._of[cause] = np.flatnonzero(self.account.pieces.cause == np.int8(cause))
        return self._of[cause]

    def of_any(self, *causes: Cause, gaps: Bool | None = None) -> Rows:
        """The pieces of several causes, in the given gaps if these are given (shape (g,))."""
        cause = self.account.pieces.cause
        found = np.zeros(len(cause), np.bool_)
        for one in causes:
            found |= cause == np.int8(one)
        chosen = np.flatnonzero(found)
        return chosen if gaps is None else self.inside(gaps, chosen)

    def inside(self, gaps: Bool, chosen: Rows) -> Rows:
        """Those of some pieces that lie in the given gaps, shape (g,)."""
        if gaps.all():
            return chosen
        if not gaps.any():
            return chosen[:0]
        return chosen[gaps.take(self.account.pieces.gap.take(chosen))]

    @cached_property
    def steady(self) -> Bool:
        """Gaps whose launch is in no warm-up step. Shape (g,)."""
        return self.run.is_steady(self.account.host_end_ns)

    @cached_property
    def all_steady(self) -> bool:
        return bool(self.steady.all())

    def are_steady(self, chosen: Rows) -> Bool:
        """Which of some pieces lie in steady gaps. Shape of `chosen`."""
        return np.asarray(self.steady.take(self.account.pieces.gap.take(chosen)), np.bool_)


class PlaceCodes:
    """A number per place, the same where the user frames, else the operators, else the ranges have the same name.

    An operator in numbered steps is one place; what is known by its step alone stays apart: that is no place. Without
    any of the three it is 0. Each host row is looked at once.
    """

    def __init__(self, timeline: Timeline, places: Places) -> None:
        self.places = places
        self.name = timeline.spans.name
        self.texts = len(timeline.strings)
        self.most = 3 * self.texts + 1  # above all numbers
        # what row -1 finds is the last one: no place
        self.table: Int32 = np.full(len(timeline) + 1, _UNKNOWN, np.int32)
        self.table[-1] = 0

    def __call__(self, rows: npt.NDArray[np.signedinteger]) -> Int32:
        """The numbers of some host rows (-1 none), shape of `rows`."""
        found: Int32 = kernels.mapped(self.table, rows)
        unknown = found == _UNKNOWN
        if not unknown.any():
            return found
        self._learn(rows[unknown])
        again: Int32 = kernels.mapped(self.table, rows)
        return again

    @cached_property
    def of_all(self) -> Int32:
        """The numbers of all rows, shape (n,)."""
        for low in range(0, len(self.table) - 1, _BLOCK):
            some = slice(low, min(low + _BLOCK, len(self.table) - 1))
            self.table[some] = self._codes(some)
        return self.table[:-1]

    def _learn(self, rows: npt.NDArray[np.signedinteger]) -> None:
        """Fill the table for some rows; for all of it, in order, where they are many."""
        if len(rows) * _MANY > len(self.table):
            _ = self.of_all
        else:
            rows = kernels.distinct(rows)
            self.table[rows] = self._codes(rows)

    def _codes(self, rows: npt.NDArray[np.signedinteger] | slice) -> Int32:
        code = np.zeros(len(self.table[rows]), np.int32)
        for nth, place in enumerate(("frame_of", "operator_of", "annotation_of")):
            found = getattr(self.places, place)[rows]
            known = (found >= 0) & (code == 0)
            np.add(kernels.mapped(self.name, found), 1 + (2 - nth) * self.texts, out=code, where=known)
            if code.all():
                break
        return code


_UNKNOWN = -1
_MANY = 64
_BLOCK = 1 << 17
