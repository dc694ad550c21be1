"""The pace of a launching thread: which gaps are its ordinary pace, and which are stalls with a place.

A thread that launches kernel after kernel leaves a gap before each one if it is slower than the device:
that is launch pace (rule LN401). A gap much longer than the thread's own usual time from launch to launch
is a stall: something at one place took the time (rule HB101).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.idle import IS_HOST_WORK, IdleAccount
from stallscope.profiler import kernels
from stallscope.profiler.timeline import Bool, Int32, Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

STALL_FACTOR = 3.0
"""A gap this many times the usual time from launch to launch is a stall."""
STALL_FLOOR_NS = 50_000
"""Below this a gap is pace, whatever the thread's pace is (TensorRT-LLM calls 10-50 us "light Python")."""
STALL_CEILING_NS = 300_000
"""Above this a gap is a stall, whatever the thread's pace is: no framework needs that long per operator."""


class Pace:
    """Pace and stalls of one device's gaps."""

    def __init__(self, run: Run, account: IdleAccount) -> None:
        self.run = run
        self.account = account

    @cached_property
    def limit_ns(self) -> Int64:
        """Per gap, the length from which it is a stall of its launching thread. Shape (g,)."""
        out = np.full(len(self.account.view.gaps), STALL_CEILING_NS, np.int64)
        for track in kernels.distinct(self.account.track[self.account.is_host]).tolist():
            out[self.account.track == track] = self._limit(track)
        return out

    def _limit(self, track: int) -> int:
        rows = self.run.timeline.track_rows(track)
        starts = self.run.timeline.spans.start_ns[rows][self.run.is_launch[rows]]
        if len(starts) < 3:
            return STALL_CEILING_NS
        usual = float(np.median(np.diff(starts)))
        return int(min(max(STALL_FACTOR * usual, STALL_FLOOR_NS), STALL_CEILING_NS))

    @cached_property
    def is_stall(self) -> Bool:
        """Host gaps in which the host, or the launch call itself, took longer than the pace. Shape (g,)."""
        gaps, spans = self.account.view.gaps, self.run.timeline.spans
        host = self.account.host_end_ns - gaps.start_ns
        launch = np.maximum(gaps.launch, 0)
        inside = np.minimum(spans.end_at(launch), gaps.end_ns) - self.account.host_end_ns
        slow = (inside >= STALL_CEILING_NS) & (gaps.launch >= 0) & ~self.run.is_graph_launch[launch]
        return np.asarray(self.account.is_host & ((host >= self.limit_ns) | slow), np.bool_)

    @cached_property
    def is_work(self) -> Bool:
        """Pieces of the host's own work that no wait answers for. Shape (p,)."""
        return IS_HOST_WORK[self.account.pieces.cause]

    @cached_property
    def stall_places(self) -> npt.NDArray[np.intp]:
        """Per gap, the row that was behind a stall: the deepest span around most of it; -1 for none, or where more of
        the stall than not left no record. Shape (g,)."""
        pieces, gaps = self.account.pieces, self.account.view.gaps
        out = np.full(len(gaps), -1, np.intp)
        work = np.flatnonzero(self.is_work & kernels.mapped(self.is_stall, pieces.gap))
        unseen = self._unseen(work)
        work = work[pieces.row[work] >= 0]
        if len(work) == 0:
            return out
        # pieces come by gap and by time
        heads = np.flatnonzero(np.append(True, pieces.gap[work[1:]] != pieces.gap[work[:-1]]))
        tails = np.append(heads[1:], len(work)) - 1
        gap = pieces.gap[work[heads]]
        begin = pieces.start_ns[work[heads]]
        end = np.minimum(pieces.end_ns[work[tails]], self.account.host_end_ns[gap])
        length = pieces.longest_ns[work]
        most = np.repeat(np.maximum.reduceat(length, heads), tails - heads + 1)
        longest = np.flatnonzero(length == most)
        longest = longest[np.searchsorted(longest, tails, side="right") - 1]  # the last one of each gap
        rows = pieces.row[work[longest]]
        found = self.run.places.covering(rows, begin, end, 0.6)
        out[gap] = np.where(found >= 0, found, rows)
        out[unseen] = -1
        return out

    def _unseen(self, work: npt.NDArray[np.intp]) -> Int32:
        """The gaps of some pieces, all of these gaps' work, of which more passed in code that left no record than in
        spans."""
        gap, length = self.account.pieces.gap[work], self.account.pieces.lengths(work)
        if len(gap) == 0:
            return gap
        heads = np.flatnonzero(np.append(True, gap[1:] != gap[:-1]))
        more = np.add.reduceat(np.where(self.account.pieces.row[work] >= 0, length, -length), heads)
        return gap[heads[more < 0]]
