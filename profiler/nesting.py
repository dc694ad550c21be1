"""The call tree of a thread out of nothing but start times and durations.

Real traces hold children that outlive their parent (by clock resolution, or because a frame was
never closed) and neighbours that overlap by a rounding error. One rule decides all of them, see `nest`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.room import Room
from stallscope.profiler.timeline import Int32, Int64

SIBLING_OVERLAP_NS = 1000
"""Two spans that overlap by no more than this, and mostly do not, follow one another: float
microseconds at epoch scale resolve 250 ns, integer microseconds 1000 ns."""


class CallTree(NamedTuple):
    """Columns of shape (n,): parent row or -1, depth, self time, and the end clipped to the parent."""

    parent: Int32
    depth: Int32
    self_ns: Int64
    effective_end_ns: Int64


def nest(track: npt.NDArray[np.int32], start_ns: Int64, dur_ns: Int64, room: Room | None = None) -> CallTree:
    """Parents, depths and self times of spans sorted by (track, start, longer first).

    A span is the child of the innermost span that is still open when it starts. A child that ends
    after its parent is clipped to the parent's end, unless it overlaps the would-be parent by at most
    `SIBLING_OVERLAP_NS` and overruns it by more than it overlaps: then it is a sibling. Self time is the
    clipped duration less the clipped durations of the children, so it is never negative. The columns stand in
    `room`, where that is given.
    """
    return CallTree(*kernels.nest(track, start_ns, dur_ns, room))
