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
        if gaps is not None and not gaps.all():
            found &= kernels.mapped(gaps, self.account.pieces.gap)
        return np.flatnonzero(found)

    def inside(self, gaps: Bool, chosen: Rows) -> Rows:
        """Those of some pieces that lie in the given gaps, shape (g,)."""
        if gaps.all():
            return chosen
        if not gaps.any():
            return chosen[:0]
        found: Bool = kernels.mapped(gaps, self.account.pieces.gap.take(chosen))
        return chosen[found]

    @cached_property
    def steady(self) -> Bool:
        """Gaps whose launch is in no warm-up step. Shape (g,)."""
        return self.run.is_steady(self.account.host_end_ns)

    @cached_property
    def all_steady(self) -> bool:
        return bool(self.steady.all())

    def are_steady(self, chosen: Rows) -> Bool:
        """Which of some pieces lie in steady gaps. Shape of `chosen`."""
        found: Bool = kernels.mapped(self.steady, self.account.pieces.gap.take(chosen))
        return found


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
        unknown = np.flatnonzero(found == _UNKNOWN)
        if len(unknown):
            found[unknown] = self.table[rows[unknown]] = self._codes(rows[unknown])
        found ^= found >> 31  # what is marked as alone
        found -= (found >= self.most) * np.int32(self.most)
        return found

    def labels(self, other: npt.NDArray[np.signedinteger], alone: Bool) -> Int32:
        """A number per row, the same for rows in user frames of one name that are both in `other`, or both not; less
        than 0 for those `alone`, shape (n,), and those without a frame. Shape (n,).

        They stand in the table itself, where `__call__` takes what marks them off again: to be asked for once.
        """
        frames = self.places.frame_of
        codes = kernels.mapped(self.name, frames[:-1], self.table[:-1])
        codes += np.int32(1 + 2 * self.texts)
        for low in range(0, len(alone), _BLOCK):
            np.putmask(codes[low : low + _BLOCK], frames[low : min(low + _BLOCK, len(alone))] < 0, _UNKNOWN)
        some = other[self.table[other] >= 0]
        self.table[some] += self.most
        for low in range(0, len(alone), _BLOCK):
            part = self.table[low : min(low + _BLOCK, len(alone))]
            marked = alone[low : low + _BLOCK] & (part >= 0)
            part ^= -marked.view(np.int8)
        return self.table[:-1]

    def _codes(self, rows: npt.NDArray[np.signedinteger]) -> Int32:
        places, code = self.places, np.zeros(len(rows), np.int32)
        for nth, above in ((1, places.operator_of), (2, places.frame_of)):
            found = kernels.mapped(above, rows)
            np.copyto(
                code, kernels.mapped(self.name, found) + np.int32(1 + nth * self.texts), where=found >= 0
            )
        left = np.flatnonzero(code == 0)
        label = places.nearest(rows[left], places.is_annotation)
        code[left] = np.where(label >= 0, self.name[label] + 1, 0)
        return code


_UNKNOWN = -(1 << 31)
_BLOCK = 1 << 17
