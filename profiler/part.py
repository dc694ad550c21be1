"""A part of a session: a window of time, a range of steps, one rank.

Spans that reach into the window are kept whole; device work is kept by its own time, its launch too,
so that links and gaps inside the window mean what they meant before.
"""

from __future__ import annotations

import dataclasses
import re
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stallscope.profiler.builder import is_device_work
from stallscope.profiler.errors import OptionError
from stallscope.profiler.notes import Notes
from stallscope.profiler.session import Session
from stallscope.profiler.steps import find_steps
from stallscope.profiler.timeline import Allocations, Counters, Flows, Marks, Timeline

_Table = TypeVar("_Table", Counters, Allocations, Marks)

_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "": 10**9}
_TIME = re.compile(r"^(\d+(?:\.\d+)?)\s*(ns|us|ms|s|)$")


def parse_time(text: str) -> int:
    """A length of time as nanoseconds; a bare number is seconds.

    >>> parse_time("10s"), parse_time("1.5ms"), parse_time("2")
    (10000000000, 1500000, 2000000000)
    """
    match = _TIME.match(text.strip())
    if match is None:
        raise OptionError(f"{text!r} is no time. Write 10s, 250ms, 40us or 500ns.")
    whole, _, fraction = match[1].partition(".")
    scale = _UNITS[match[2]]
    return int(whole) * scale + int(int(fraction or "0") * scale // 10 ** len(fraction))


def _ends(text: str, what: str) -> tuple[str, str]:
    first, dots, last = text.partition("..")
    if not dots:
        raise OptionError(f"{what} takes A..B, not {text!r}.")
    return first.strip(), last.strip()


def part(
    session: Session, *, window: str | None = None, steps: str | None = None, rank: int | None = None
) -> Session:
    """The part of a session that is asked for. Raises OptionError for a range that holds nothing.

    `window` is "A..B" from the start of the recording ("10s..12s", either end may be left out); `steps`
    "A..B" counts all steps from 0 and includes both ends; `rank` keeps the tracks of one rank.
    """
    timeline = session.timeline
    keep = np.ones(len(timeline), bool)
    notes = Notes(session.notes)
    low, high = 0, np.iinfo(np.int64).max
    if rank is not None:
        keep &= _of_rank(timeline, rank)
        notes.add("part-rank", "info", f"only rank {rank} was analysed")
    if window is not None:
        first, last = _ends(window, "--window")
        low, high = parse_time(first) if first else 0, parse_time(last) if last else high
        notes.add("part-window", "info", f"only the window {window} was analysed")
    if steps is not None:
        low, high = _step_times(timeline, steps)
        notes.add("part-steps", "info", f"only the steps {steps} were analysed")
    keep &= (timeline.spans.start_ns < high) & (timeline.spans.end_ns > low)
    # a launch outside the window still explains work inside it
    launches = timeline.spans.launch_row[keep & is_device_work(timeline.spans.kind)]
    keep[launches[launches >= 0]] = True
    if not keep.any():
        raise OptionError("nothing was recorded in that part of the trace")
    return Session(_rows(timeline, np.flatnonzero(keep), low, int(high)), dict(session.facts), notes)


def _of_rank(timeline: Timeline, rank: int) -> npt.NDArray[np.bool_]:
    ranks = np.array([t.rank for t in timeline.tracks])
    if not (ranks == rank).any():
        known = sorted({int(r) for r in ranks if r >= 0})
        raise OptionError(f"there is no rank {rank} in this recording. Its ranks: {known or 'unknown'}.")
    of_track: npt.NDArray[np.bool_] = ranks[timeline.spans.track] == rank
    return of_track


def _step_times(timeline: Timeline, text: str) -> tuple[int, int]:
    first, last = _ends(text, "--steps")
    if not ((first or "0").isdecimal() and (last or "0").isdecimal()):
        raise OptionError(f"--steps takes whole numbers A..B, not {text!r}.")
    steps = find_steps(timeline)
    chosen = steps[int(first or 0) : (int(last) + 1 if last else None)]
    if not chosen:
        raise OptionError(f"there are no steps {text} in this recording. It has {len(steps)}.")
    return min(s.start_ns for s in chosen), max(s.end_ns for s in chosen)


def _rows(timeline: Timeline, rows: npt.NDArray[np.intp], low: int, high: int) -> Timeline:
    """The timeline with only these rows; references to rows that are gone become -1."""
    new = np.full(len(timeline) + 1, -1, np.int32)
    new[rows] = np.arange(len(rows), dtype=np.int32)
    spans = timeline.spans.take(rows)
    spans.launch_row = new[spans.launch_row]
    spans.parent = _kept_parent(timeline, rows, new)
    flows = timeline.flows
    ends = Flows(new[flows.from_row], new[flows.to_row], flows.name)
    both = (ends.from_row >= 0) & (ends.to_row >= 0)
    return dataclasses.replace(
        timeline,
        spans=spans,
        flows=Flows(ends.from_row[both], ends.to_row[both], ends.name[both]),
        counters=_clip(timeline.counters, low, high),
        allocations=_clip(timeline.allocations, low, high),
        marks=_clip(timeline.marks, low, high),
    )


def _kept_parent(
    timeline: Timeline, rows: npt.NDArray[np.intp], new: npt.NDArray[np.int32]
) -> npt.NDArray[np.int32]:
    up = timeline.spans.parent[rows].astype(np.intp)
    while True:
        gone = (up >= 0) & (new[up] < 0)
        if not gone.any():
            return new[up]
        up[gone] = timeline.spans.parent[up[gone]]


def _clip(table: _Table, low: int, high: int) -> _Table:
    inside = (table.time_ns >= low) & (table.time_ns < high)
    return type(table)(**{f.name: getattr(table, f.name)[inside] for f in dataclasses.fields(table)})
