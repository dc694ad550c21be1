"""A part of a trace's events: which ones to keep, decided on columns while the file is read.

Reads:  what another engine stored, some ten thousand events at a time, so that memory is that of the part.
Leaves: what lies elsewhere; only when its first spans start is remembered.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers.trace_events import COLUMNS, Engine, RawEvents
from stallscope.profiler.timeline import ARG_INT, NO_TIME, ArgStore, Int64

WANTED_KEYS = ("correlation", "External id")
_BATCH = 1 << 14
_MAX_FIRSTS = 64
"""Categories whose first span is known; files have 5 to 30."""

Bool = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Part:
    """Which events to keep: those that touch [low_ns, high_ns], as the file's own ts says, and from everywhere
    metadata, begins and ends, marks without a category, events with one of `ids` in an argument of `WANTED_KEYS`,
    and complete events that cover one of `points` (both int64 of any order) or whose name `names` says yes to, which is
    asked once per name.
    """

    low_ns: int
    high_ns: int
    ids: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    points: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    names: Callable[[str], bool] | None = None


class Sieve:
    """An engine that keeps only a part of what another one reads. See `trace_events.Engine`."""

    def __init__(self, engine: Engine, part: Part, notes: Notes) -> None:
        self._engine, self._part, self._notes = engine, part, notes
        self._points = np.sort(part.points)
        self._kept: list[RawEvents] = []
        self._rows = self._outside = 0
        self._named: dict[int, bool] = {}
        self._firsts: dict[int, int] | None = {}

    def begin(self, offset: int) -> None:
        self._engine.begin(offset)

    def feed(self, data: bytes) -> bytes | None:
        rest = self._engine.feed(data)
        if self._engine.rows() >= _BATCH:
            self._sift()
        return rest

    def finish(self) -> bytes | None:
        return self._engine.finish()

    def rows(self) -> int:
        self._sift()
        return self._rows

    def position(self) -> int:
        return self._engine.position()

    def batch(self) -> RawEvents:
        self._sift()
        args = ArgStore.joined([kept.args for kept in self._kept])
        for kept in self._kept:
            kept.args = ArgStore.empty()
        columns: dict[str, Any] = {
            name: np.concatenate([kept.let_go(name) for kept in self._kept]) for name in COLUMNS
        }
        last = self._kept[-1]
        return RawEvents(last.strings, last.threads, args=args, **columns)

    def result(self, raw: RawEvents | None = None) -> RawEvents:
        raw = self._engine.result(self.batch() if raw is None else raw)
        raw.outside, firsts = self._outside, self._firsts
        if firsts is not None and len(firsts) <= _MAX_FIRSTS:
            raw.firsts = {raw.strings[code] if code >= 0 else "": ts for code, ts in firsts.items()}
        self._notes.add(
            "outside-window", "info", "events outside the chosen window were not loaded", self._outside
        )
        return raw

    def _sift(self) -> None:
        """Look at what the engine stored since the last time."""
        if self._kept and self._engine.rows() == 0:
            return
        batch = self._engine.batch()
        self._note_firsts(batch)
        kept = self._inside(batch)
        rows = np.flatnonzero(kept)
        self._outside += len(batch) - len(rows)
        if self._kept and len(rows) == 0:
            return
        first = batch.args.first
        at = np.flatnonzero(np.repeat(kept[: len(first) - 1], np.diff(first)))
        event = np.cumsum(kept, dtype=np.int32)[batch.args.events_of(at)] + np.int32(self._rows - 1)
        columns: dict[str, Any] = {name: getattr(batch, name)[rows] for name in COLUMNS}
        self._kept.append(dataclasses.replace(batch, args=batch.args.part(at, event), **columns))
        self._rows += len(rows)

    def _note_firsts(self, batch: RawEvents) -> None:
        """Remember the earliest start per category, from which the origin of the whole file follows."""
        spans = np.flatnonzero(_phase_in(batch.ph, b"XBbS") & (batch.ts_ns != NO_TIME))
        start = batch.ts_ns[spans]
        if ((start == 0) & (batch.dur_ns[spans] == 0)).any():
            self._firsts = None  # it may be a lost record
        if self._firsts is None:
            return
        code, first = kernels.group(batch.cat[spans])
        earliest = np.full(len(first), (1 << 63) - 1)
        np.minimum.at(earliest, code, start)
        for category, ts in zip(batch.cat[spans[first]].tolist(), earliest.tolist(), strict=True):
            self._firsts[category] = min(ts, self._firsts.get(category, ts))

    def _inside(self, batch: RawEvents) -> Bool:
        """Whether each event belongs to the part. Shape (n,)."""
        ts, part = batch.ts_ns, self._part
        end = ts + np.maximum(batch.dur_ns, 0)
        end = np.where(end < ts, ts, end)  # past the end of time
        kept: Bool = (end >= part.low_ns) & (ts <= part.high_ns)
        kept |= (ts == NO_TIME) | _phase_in(batch.ph, b"MBEbeSF\0")
        kept |= _phase_in(batch.ph, b"iI") & (batch.cat < 0)
        complete = np.flatnonzero(~kept & (batch.ph == ord("X")))
        if len(self._points):
            at = np.searchsorted(self._points, ts[complete])
            point = self._points[np.minimum(at, len(self._points) - 1)]
            kept[complete] = (at < len(self._points)) & (point <= end[complete])
        if len(part.ids):
            kept[self._carrying(batch.args)] = True
        if part.names is not None:
            kept[complete] |= self._wanted(batch, complete)
        return kept

    def _carrying(self, args: ArgStore) -> npt.NDArray[np.intp]:
        """The events that have a wanted id in an argument."""
        keys = [i for i, key in enumerate(args.keys) if key in WANTED_KEYS]
        at = np.flatnonzero(kernels.among(args.key, keys))
        tag, value = args.entries(at)
        return args.events_of(at[(tag == ARG_INT) & kernels.among(value, self._part.ids)])

    def _wanted(self, batch: RawEvents, rows: npt.NDArray[np.intp]) -> Bool:
        """Whether the names of some events are wanted, shape of `rows`."""
        code, first = kernels.group(batch.name[rows])
        for name in batch.name[rows[first]].tolist():
            if name not in self._named and self._part.names is not None:
                self._named[name] = name >= 0 and self._part.names(batch.strings[name])
        wanted: Bool = np.array([self._named[n] for n in batch.name[rows[first]].tolist()], np.bool_)[code]
        return wanted


def _phase_in(ph: npt.NDArray[np.uint8], letters: bytes) -> Bool:
    found = np.zeros(256, np.bool_)
    found[list(letters)] = True
    return found[ph]


__all__ = ["WANTED_KEYS", "Part", "Sieve"]
