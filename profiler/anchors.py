"""Ties a recording's clock to ours by ranges that both have seen.

A profiler that stamps with a clock of its own gives it as wall-clock time through one pair of readings taken
when it started, so its stamps may be off by as much as the two clocks drift apart, in a minute by a
millisecond. The recorder therefore starts a few named ranges when a window opens and before it closes, and
notes our clock before and after each: the stamp lies between the two. From these intervals follow the
distance of the clocks at both ends and, if it changed, a straight line between.
"""

from __future__ import annotations

import numpy as np

from stallscope.profiler.light import dataclass
from stallscope.profiler.recorder.backends.ascend import ANCHOR
from stallscope.profiler.timeline import Int64, Timeline

MAX_DRIFT = 1e-3
"""More than this is no drift: the ranges were not the ones we think."""
MAX_GAP_NS = 1_000_000_000
"""Two anchors further apart than this belong to the two ends of a window."""


@dataclass(frozen=True)
class Tie:
    """What is added to a stamp: `offset_ns` at `start_ns`, changing by `drift_ns` until `end_ns`.

    `error_ns` bounds how far a stamp may be off at the anchors.
    """

    start_ns: int
    end_ns: int
    offset_ns: int
    drift_ns: int
    error_ns: int

    def correction(self, times_ns: Int64) -> Int64:
        """What is added to `times_ns` beyond `offset_ns`; keeps the order of times."""
        if self.drift_ns == 0 or self.end_ns <= self.start_ns:
            return np.zeros(len(times_ns), np.int64)
        out: Int64 = (times_ns - self.start_ns) * self.drift_ns // (self.end_ns - self.start_ns)
        return out


def anchor_rows(timeline: Timeline) -> Int64:
    """Rows of the ranges, in order of time."""
    rows = np.flatnonzero(timeline.spans.name == timeline.strings.find(ANCHOR))
    return rows[np.argsort(timeline.spans.start_ns[rows], kind="stable")].astype(np.int64)


def tie(stamps_ns: Int64, before_ns: Int64, after_ns: Int64) -> Tie | None:
    """The tie of some anchors, or None where they cannot be it.

    `stamps_ns`: when the profiler says each range began. `before_ns`, `after_ns`: our clock on the common axis
    before and after. All in order of time, one entry a range.
    """
    n = len(stamps_ns)
    if n < 2 or len(before_ns) != n or len(after_ns) != n:
        return None
    half = n // 2
    first, first_error = _offset(stamps_ns[:half], before_ns[:half], after_ns[:half])
    last, last_error = _offset(stamps_ns[half:], before_ns[half:], after_ns[half:])
    start, end = int(stamps_ns[:half].mean()), int(stamps_ns[half:].mean())
    drift = last - first
    if abs(drift) > MAX_DRIFT * max(end - start, MAX_GAP_NS):
        return None
    if abs(drift) <= first_error + last_error:
        drift = 0
        first = (first + last) // 2
    return Tie(start, end, first, drift, max(first_error, last_error))


def _offset(stamps: Int64, before: Int64, after: Int64) -> tuple[int, int]:
    """The distance that fits all intervals best, and how far it may be off."""
    low, high = int((before - stamps).max()), int((after - stamps).min())
    if low <= high:
        return (low + high) // 2, (high - low + 1) // 2
    # they contradict each other by less than the clocks drift in a millisecond: the tightest one counts
    tightest = int(np.argmin(after - before))
    width = int(after[tightest] - before[tightest])
    return int(before[tightest] - stamps[tightest]) + width // 2, width // 2 + (low - high)


def is_anchor(name: str) -> bool:
    """Whether a span is one of these ranges: ours, and nothing the program did."""
    return name == ANCHOR


def bend(timeline: Timeline, correction: Tie) -> None:
    """Add the changing part of a tie to every time of a timeline, in place; its origin stays."""
    if correction.drift_ns == 0:
        return
    origin = timeline.origin_ns
    spans = timeline.spans
    ends = spans.start_ns + spans.dur_ns
    ends += correction.correction(ends + origin)
    spans.start_ns[:] += correction.correction(spans.start_ns + origin)
    spans.dur_ns[:] = ends - spans.start_ns
    for table in (timeline.counters, timeline.marks, timeline.allocations):
        if len(table):
            table.time_ns[:] += correction.correction(table.time_ns + origin)
