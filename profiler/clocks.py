"""Clocks: records are stamped with CLOCK_MONOTONIC, Kineto with CLOCK_REALTIME; here they become one.

The common time axis is CLOCK_MONOTONIC plus one constant, the distance of the two clocks at the first
reading: it runs evenly even if the wall clock is set while we record. A time of the wall clock is taken
back to it through the pair of readings next to it.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

CLOCK_STEP_NS = 50_000
"""Two neighbouring readings whose distance changed by more: the wall clock was set, not drifting."""
KINETO_ERROR_NS = 1_000
"""Kineto's own time stamps lie within this of the wall clock (measured: 0.3 to 0.8 us round each call)."""


class ClockMap:
    """Readings of both clocks of one host, and what follows from them."""

    def __init__(self, pairs: Iterable[tuple[int, int, int]]) -> None:
        """`pairs` are (monotonic ns, realtime ns, width ns) as `clock_pairs.read_clocks` gives them."""
        known = sorted(set(pairs))
        if not known:
            raise ValueError("no clock reading")
        self._mono = np.array([p[0] for p in known], np.int64)
        self._offset = np.array([p[1] - p[0] for p in known], np.int64)
        self._width = max(p[2] for p in known)

    @property
    def origin_offset_ns(self) -> int:
        """What is added to a monotonic time to get to the common axis."""
        return int(self._offset[0])

    def common(self, mono_ns: int) -> int:
        """A monotonic time on the common axis."""
        return mono_ns + self.origin_offset_ns

    def shift_of_realtime(self, mono_ns: int) -> int:
        """What is added to wall-clock stamps taken at about `mono_ns` to get to the common axis.

        Between two readings the distance is interpolated; across a step the nearer reading counts.
        """
        at = int(np.searchsorted(self._mono, mono_ns))
        if at == 0 or at == len(self._mono):
            offset = int(self._offset[min(at, len(self._mono) - 1)])
            return self.origin_offset_ns - offset
        left, right = int(self._mono[at - 1]), int(self._mono[at])
        before, after = int(self._offset[at - 1]), int(self._offset[at])
        if abs(after - before) > CLOCK_STEP_NS:
            offset = before if mono_ns - left <= right - mono_ns else after
        else:
            offset = before + (after - before) * (mono_ns - left) // max(right - left, 1)
        return self.origin_offset_ns - offset

    def steps(self) -> list[int]:
        """By how many nanoseconds the wall clock was set while we recorded, one entry a time."""
        jumps = np.diff(self._offset)
        return [int(j) for j in jumps[np.abs(jumps) > CLOCK_STEP_NS]]

    @property
    def uncertainty_ns(self) -> int:
        """How far apart a record of ours and one of Kineto may be drawn though they were at one moment."""
        jumps = np.abs(np.diff(self._offset))
        drift = int(jumps[jumps <= CLOCK_STEP_NS].max()) if (jumps <= CLOCK_STEP_NS).any() else 0
        return self._width // 2 + 1 + drift + KINETO_ERROR_NS
