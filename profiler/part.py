"""A part of a session: a window of time, a range of steps, one rank.

Spans that reach into the window are kept whole; device work is kept by its own time, its launch too,
so that links and gaps inside the window mean what they meant before. What is counted over rows (self time,
call trees) counts the window only: what a span did outside of it is not this part's.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.errors import OptionError
from stallscope.profiler.links import is_device_work
from stallscope.profiler.nesting import nest
from stallscope.profiler.notes import Notes
from stallscope.profiler.session import Session
from stallscope.profiler.steps import Step, find_steps
from stallscope.profiler.timeline import (
    Allocations,
    ArgStore,
    Counters,
    Flows,
    Int64,
    Marks,
    Spans,
    Timeline,
    Track,
)

FAR = 1 << 62
"""Nanoseconds that no recording reaches."""

Rows = npt.NDArray[np.intp]

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


def parse_window(text: str) -> tuple[int, int]:
    """Both ends of "A..B" in nanoseconds from the start; an end that is left out is far away.

    >>> parse_window("1ms..2ms")
    (1000000, 2000000)
    """
    first, last = _ends(text, "--window")
    low, high = parse_time(first) if first else -FAR, parse_time(last) if last else FAR
    if low >= high:
        raise OptionError(f"--window {text} holds no time: its end must lie behind its beginning.")
    return low, high


def parse_steps(text: str) -> tuple[int, int | None]:
    """The first and the last step of "A..B"; the first is 0 and the last None where they are left out.

    >>> parse_steps("5..8"), parse_steps("3..")
    ((5, 8), (3, None))
    """
    first, last = _ends(text, "--steps")
    if not (_is_count(first or "0") and _is_count(last or "0")):
        raise OptionError(f"--steps takes whole numbers A..B, not {text!r}.")
    if first and last and int(first) > int(last):
        raise OptionError(f"--steps {text} holds no step: its end must not lie before its beginning.")
    return int(first or 0), int(last) if last else None


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 10


def times_of_steps(steps: Sequence[Step], text: str) -> tuple[int, int]:
    """Start and end of the chosen steps "A..B" in nanoseconds. Raises OptionError where there are none."""
    first, last = parse_steps(text)
    chosen = steps[first : None if last is None else last + 1]
    if not chosen:
        raise OptionError(f"there are no steps {text} in this recording. It has {len(steps)}.")
    return min(s.start_ns for s in chosen), max(s.end_ns for s in chosen)


def ends_of(window: str | None, step_times: tuple[int, int] | None = None) -> tuple[int, int]:
    """Both ends of what a window and steps share, in nanoseconds. Raises OptionError where they share nothing."""
    low, high = parse_window(window) if window is not None else (-FAR, FAR)
    if step_times is None:
        return low, high
    if max(low, step_times[0]) > min(high, step_times[1]):
        raise OptionError(f"the chosen steps do not reach into the window {window}.")
    return max(low, step_times[0]), min(high, step_times[1])


def part(
    session: Session,
    *,
    window: str | None = None,
    steps: str | None = None,
    rank: int | None = None,
    step_times: tuple[int, int] | None = None,
) -> Session:
    """The part of a session that is asked for. Raises OptionError for a range that holds nothing.

    `window` is "A..B" from the start of the recording ("10s..12s", either end may be left out); `steps`
    "A..B" counts all steps from 0 and includes both ends; `rank` keeps the tracks of one rank. Together they keep
    what is in all of them. `step_times` is where the steps lie, if that is known already (`times_of_steps`).

    The result depends only on the rows it holds: of a window, call trees and self times count what lies
    inside, tracks stand in the order of their first event, and only the arguments of kept rows stay.
    """
    timeline = session.timeline
    keep = np.ones(len(timeline), bool)
    notes = Notes(session.notes)
    if rank is not None:
        if session.facts.get("rank") != rank:
            keep &= _of_rank(timeline, rank)
        notes.add("part-rank", "info", f"only rank {rank} was analysed")
    if window is not None:
        notes.add("part-window", "info", f"only the window {window} was analysed")
    if steps is not None:
        step_times = step_times or times_of_steps(find_steps(timeline), steps)
        notes.add("part-steps", "info", f"only the steps {steps} were analysed")
    low, high = ends_of(window, step_times)
    if len(timeline) == 0:
        return dataclasses.replace(session, notes=notes)
    inside = keep & (timeline.spans.start_ns < high) & (timeline.spans.end_ns > low)
    # a launch outside the window still explains work inside it
    launches = timeline.spans.launch_row[inside & is_device_work(timeline.spans.kind)]
    kept = inside.copy()
    kept[launches[launches >= 0]] = True
    if not kept.any():
        known = "outside-window" not in session.notes
        end = f", which ends after {int(timeline.spans.end_ns.max()) / 1e9:.6g} s" if known else ""
        raise OptionError(f"nothing was recorded in that part of the trace{end}.")
    cut = _Cut(timeline, np.flatnonzero(kept), inside[kept], low, high)
    return dataclasses.replace(session, timeline=cut.timeline(), facts=dict(session.facts), notes=notes)


def _of_rank(timeline: Timeline, rank: int) -> npt.NDArray[np.bool_]:
    ranks = np.array([t.rank for t in timeline.tracks])
    if not (ranks == rank).any():
        known = sorted({int(r) for r in ranks if r >= 0})
        raise OptionError(
            f"there is no rank {rank} in this recording. Its ranks: {', '.join(map(str, known)) or 'unknown'}."
        )
    of_track: npt.NDArray[np.bool_] = ranks[timeline.spans.track] == rank
    return of_track


class _Cut:
    """The timeline with only some rows; references to rows that are gone become -1.

    `rows` ascend; `inside` says which of them touch [low, high): the others are launches of these.
    """

    def __init__(
        self, timeline: Timeline, rows: Rows, inside: npt.NDArray[np.bool_], low: int, high: int
    ) -> None:
        self.old, self.low, self.high = timeline, low, high
        self.tracks, self.new_track = _tracks_in_order(timeline, rows)
        order = np.argsort(self.new_track[timeline.spans.track[rows]], kind="stable")
        self.rows, self.inside = rows[order], inside[order]
        self.new_row = np.full(len(timeline) + 1, -1, np.int32)  # row -1 is the extra last place
        self.new_row[self.rows] = np.arange(len(rows), dtype=np.int32)

    def timeline(self) -> Timeline:
        old = self.old
        marks = _clip(old.marks, self.low, self.high)
        spans = old.spans.take(self.rows)
        spans.track = self.new_track[spans.track]
        spans.launch_row = self.new_row[spans.launch_row]
        self._nest(spans)
        args, new_source = _arguments(old, spans.source, marks.source)
        spans.source, marks.source = new_source[spans.source], new_source[marks.source]
        marks.track = self.new_track[marks.track]
        counters = _clip(old.counters, self.low, self.high)
        counters.track = self.new_track[counters.track]
        allocations = _clip(old.allocations, self.low, self.high)
        allocations.track = self.new_track[allocations.track]
        return dataclasses.replace(
            old,
            spans=spans,
            tracks=self.tracks,
            args=args,
            flows=self._flows(),
            counters=counters,
            allocations=allocations,
            marks=marks,
        )

    def _nest(self, spans: Spans) -> None:
        """Parents among the kept; self time of what lies inside the window. Launches from outside stand alone."""
        spans.parent = np.where(self.inside, self._kept_parents(), -1).astype(np.int32)
        if self.low <= -FAR and self.high >= FAR:
            return
        spans.depth = np.where(self.inside, spans.depth, 0).astype(np.int32)
        spans.self_ns = self._inside_ns()
        host = np.array([t.role != "device" for t in self.tracks])[spans.track]
        at = np.flatnonzero(host & (spans.parent >= 0))
        np.subtract.at(spans.self_ns, spans.parent[at], spans.self_ns[at].copy())

    def _kept_parents(self) -> npt.NDArray[np.int32]:
        parent = self.old.spans.parent
        up = parent[self.rows].astype(np.intp)
        while (gone := (up >= 0) & (self.new_row[up] < 0)).any():
            up[gone] = parent[up[gone]]
        found: npt.NDArray[np.int32] = self.new_row[up]
        return found

    def _inside_ns(self) -> Int64:
        """How much of each row lies in the window; of host rows, until their callers end at the latest."""
        spans = self.old.spans
        end = np.where(
            np.array([t.role != "device" for t in self.old.tracks])[spans.track],
            nest(spans.track, spans.start_ns, spans.dur_ns).effective_end_ns,
            spans.end_ns,
        )[self.rows]
        start = np.maximum(spans.start_ns[self.rows], self.low)
        inside: Int64 = np.maximum(np.minimum(end, self.high) - start, 0)
        return inside

    def _flows(self) -> Flows:
        """Arrows between kept rows that start in the window; those that repeat a launch link are left out.

        (Whether the reader made these depends on the whole file.)
        """
        flows, start = self.old.flows, self.old.spans.start_ns
        both = (flows.from_row >= 0) & (flows.to_row >= 0)
        both &= self.old.spans.launch_row[flows.to_row] != flows.from_row
        for end in (flows.from_row, flows.to_row):
            at = start[end]
            both &= (self.new_row[end] >= 0) & (at >= self.low) & (at < self.high)
        return Flows(self.new_row[flows.from_row[both]], self.new_row[flows.to_row[both]], flows.name[both])


def _tracks_in_order(timeline: Timeline, rows: Rows) -> tuple[list[Track], npt.NDArray[np.int32]]:
    """The tracks of these rows, in the order in which the source first spoke of them, and old to new numbers.

    A whole and a partial load see tracks in different orders; this one they share.
    """
    spans = timeline.spans
    first = np.full(len(timeline.tracks), np.iinfo(np.int64).max)
    np.minimum.at(first, spans.track[rows], spans.source[rows])
    used = kernels.distinct(spans.track[rows])
    order = used[np.argsort(first[used], kind="stable")]
    new = np.full(len(timeline.tracks) + 1, -1, np.int32)  # track -1 is the extra last place
    new[order] = np.arange(len(order), dtype=np.int32)
    return [timeline.tracks[i] for i in order.tolist()], new


def _arguments(
    timeline: Timeline, spans: npt.NDArray[np.int32], marks: npt.NDArray[np.int32]
) -> tuple[ArgStore, npt.NDArray[np.int32]]:
    """The arguments of these source events, which are numbered anew in their order; and old to new numbers."""
    args = timeline.args
    most = max((int(s.max()) for s in (spans, marks, args.event) if len(s)), default=-1) + 1
    used = np.zeros(most + 1, bool)
    used[spans] = True
    used[marks] = True
    used[-1] = False  # event -1 is the extra last place
    new = np.full(most + 1, -1, np.int32)
    new[used] = np.arange(int(used.sum()), dtype=np.int32)
    at = np.flatnonzero(used[args.event])
    return args.part(at, new[args.event[at]]), new


def _clip(table: _Table, low: int, high: int) -> _Table:
    inside = (table.time_ns >= low) & (table.time_ns < high)
    return type(table)(**{f.name: getattr(table, f.name)[inside] for f in dataclasses.fields(table)})


__all__ = ["ends_of", "parse_steps", "parse_time", "parse_window", "part", "times_of_steps"]
