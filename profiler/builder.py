"""Event batches in, a finished Timeline out: sort, nest, link. Every reader and hook ends here.

A reader adds tracks, then batches of spans as columns in any order and with absolute times; the
builder numbers them (the *event number*), so that flows, links and arguments can refer to them before
the rows exist. `finish` derives what all later stages share: rows in order, call trees, launch links.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.ids import NO_ID
from stallscope.profiler.kinds import DEVICE_WORK, Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.links import join_launches
from stallscope.profiler.nesting import nest
from stallscope.profiler.notes import Notes
from stallscope.profiler.room import Room
from stallscope.profiler.timeline import (
    Allocations,
    ArgStore,
    Counters,
    Flows,
    Int32,
    Int64,
    Marks,
    Spans,
    StringTable,
    Timeline,
    Track,
)

Codes = int | npt.NDArray[Any]
IdsOf = Callable[[Int32], Int64]
"""Ids of source events."""


_BLOCK = 1 << 16
"""Rows looked at at once where few of them are kept."""

_ONCE = [int(k) for k in (*DEVICE_WORK, Kind.RUNTIME)]


@dataclass
class _Batch:
    """Columns of events that were added together."""

    track: Int32
    start_ns: Int64
    dur_ns: Int64
    name: Int32
    category: Int32
    kind: npt.NDArray[np.int8]
    correlation: Int64 | None
    """None, as `external_id`, in the only batch there is: then both are arguments, read when they are asked for."""
    external_id: Int64 | None
    source: Int32


def _column(value: Codes, n: int, dtype: Any) -> npt.NDArray[Any]:
    return np.full(n, value, dtype=dtype) if np.isscalar(value) else np.asarray(value, dtype=dtype)


class TimelineBuilder:
    """Collects spans, counters, flows, allocations and marks of one capture.

    `args` may be the tokeniser's own store, then `source` of each batch is the number of the event
    there; otherwise use `add_args`.
    """

    def __init__(self, strings: StringTable | None = None, args: ArgStore | None = None) -> None:
        self.strings = args.strings if args is not None and strings is None else strings or StringTable()
        self.notes = Notes()
        self.tracks: list[Track] = []
        self._track_codes: dict[Track, int] = {}
        self._put_off: dict[str, IdsOf] = {}
        self._args = args
        self._extra_args: list[tuple[Int32, str, npt.NDArray[np.uint8], Int64]] = []
        self._next_source = 0 if args is None or len(args) == 0 else args.last_event() + 1
        self._batches: list[_Batch] = []
        self._events = 0
        self._flows: list[tuple[Int64, Int64, Int32]] = []
        self._links: list[tuple[Int64, Int64]] = []
        self._counters: list[Counters] = []
        self._allocations: list[Allocations] = []
        self._marks: list[Marks] = []
        self._row_of: Int64 | None = np.zeros(0, np.int64)
        """The row of each event number; None where each is its own."""
        self._in_order = False
        self.room = Room()
        """Memory of a reader's own columns that it does not need any more."""

    def add_track(self, track: Track) -> int:
        """The number of a track; equal tracks share one."""
        code = self._track_codes.get(track)
        if code is None:
            code = self._track_codes[track] = len(self.tracks)
            self.tracks.append(track)
        return code

    def add(
        self,
        *,
        track: Codes,
        start_ns: npt.NDArray[Any],
        dur_ns: npt.NDArray[Any],
        name: Codes,
        kind: Codes,
        category: Codes = -1,
        correlation: Codes = NO_ID,
        external_id: Codes = NO_ID,
        source: npt.NDArray[Any] | None = None,
    ) -> Int64:
        """Add n spans; returns their event numbers, shape (n,).

        `start_ns` absolute int64, `dur_ns` int64 >= 0; the rest arrays of shape (n,) or one value for
        all. `name` and `category` are codes of `self.strings`; ids are `ids.encode_id` values. Times must
        be valid: what to do with a missing time is the reader's decision.
        """
        n = len(start_ns)
        if source is None:
            source = np.arange(self._next_source, self._next_source + n, dtype=np.int32)
        if n:
            self._next_source = max(self._next_source, int(np.max(source)) + 1)
        self._batches.append(
            _Batch(
                _column(track, n, np.int32),
                np.asarray(start_ns, np.int64),
                np.asarray(dur_ns, np.int64),
                _column(name, n, np.int32),
                _column(category, n, np.int32),
                _column(kind, n, np.int8),
                _column(correlation, n, np.int64),
                _column(external_id, n, np.int64),
                np.asarray(source, np.int32),
            )
        )
        self._in_order = False
        events = np.arange(self._events, self._events + n, dtype=np.int64)
        self._events += n
        return events

    def add_in_order(self, correlations: IdsOf, external_ids: IdsOf, **columns: npt.NDArray[Any]) -> None:
        """Add all spans there are, in `span_order` already: the columns of `add`, of the timeline's own types, which
        are then kept as they are. Event numbers are those of the rows. Ids are read when they are asked for.
        """
        if self._batches:
            raise ValueError("there are other spans already")
        self._batches.append(_Batch(**columns, correlation=None, external_id=None))
        self._put_off = {"correlation": correlations, "external_id": external_ids}
        self._events = len(columns["start_ns"])
        self._next_source = max(self._next_source, int(np.max(columns["source"], initial=-1)) + 1)
        self._in_order = True

    def sources(self, events: npt.NDArray[Any]) -> Int32:
        """The source numbers (argument keys) of event numbers."""
        return (
            np.concatenate([b.source for b in self._batches])[events]
            if self._batches
            else np.zeros(0, np.int32)
        )

    def add_args(self, sources: npt.NDArray[Any], key: str, tag: Codes, value: npt.NDArray[Any]) -> None:
        """One argument for each of n source numbers; `tag` and `value` as in ArgStore."""
        self._extra_args.append(
            (
                np.asarray(sources, np.int32),
                key,
                _column(tag, len(sources), np.uint8),
                np.asarray(value, np.int64),
            )
        )

    def add_flows(self, from_events: npt.NDArray[Any], to_events: npt.NDArray[Any], name: Codes) -> None:
        """Arrows between event numbers (-1 where an end has no span)."""
        self._flows.append(
            (
                np.asarray(from_events, np.int64),
                np.asarray(to_events, np.int64),
                _column(name, len(from_events), np.int32),
            )
        )

    def link(self, launches: npt.NDArray[Any], works: npt.NDArray[Any]) -> None:
        """Say that host events started device events; such links are kept before any derived one."""
        self._links.append((np.asarray(launches, np.int64), np.asarray(works, np.int64)))

    def add_counters(self, time_ns: Int64, name: Codes, track: Codes, value: npt.NDArray[Any]) -> None:
        n = len(time_ns)
        self._counters.append(
            Counters(
                np.asarray(time_ns, np.int64),
                _column(name, n, np.int32),
                _column(track, n, np.int32),
                np.asarray(value, np.float64),
            )
        )

    def add_allocations(self, allocations: Allocations) -> None:
        """Times absolute, like everything handed to the builder."""
        self._allocations.append(allocations)

    def add_marks(self, time_ns: npt.NDArray[Any], name: Codes, track: Codes, source: Codes = -1) -> None:
        n = len(time_ns)
        self._marks.append(
            Marks(
                np.asarray(time_ns, np.int64),
                _column(name, n, np.int32),
                _column(track, n, np.int32),
                _column(source, n, np.int32),
            )
        )

    # -- finishing ---------------------------------------------------------------------------------

    def finish(self, clock: str = "unknown", origin_ns: int | None = None) -> Timeline:
        """Sort, nest and link. The origin is the first span's start unless given."""
        spans, self._row_of = self._sorted_spans()
        marks = _concat(self._marks, Marks)
        counters = _concat(self._counters, Counters)
        allocations = _concat(self._allocations, Allocations)
        if origin_ns is None:
            origin_ns = self._first_time(spans, marks, counters)
        spans.start_ns -= origin_ns
        for table in (marks, counters, allocations):
            table.time_ns = table.time_ns - origin_ns
        args = self._all_args()
        self._nest(spans)
        flows = self._row_flows()
        self._link(spans, flows)
        return Timeline(
            self.strings, spans, self.tracks, args, origin_ns, clock, counters, flows, allocations, marks
        )

    def rows(self, events: npt.NDArray[Any]) -> Int64:
        """The rows of event numbers, -1 for -1; known once `finish` has run."""
        if self._row_of is None:
            return np.asarray(np.maximum(events, -1), np.int64)
        found = np.full(len(events), -1, np.int64)
        known = events >= 0
        found[known] = self._row_of[events[known]]
        return found

    @staticmethod
    def _first_time(spans: Spans, marks: Marks, counters: Counters) -> int:
        for times in (spans.start_ns, marks.time_ns, counters.time_ns):
            if len(times):
                return int(times.min())
        return 0

    def _sorted_spans(self) -> tuple[Spans, Int64 | None]:
        if not self._batches:
            return Spans.empty(), np.zeros(0, np.int64)
        columns = {
            name: _joined([getattr(b, name) for b in self._batches])
            for name in _Batch.__dataclass_fields__
            if not (self._in_order and name in self._put_off)
        }
        self._batches.clear()
        n = len(columns["track"])
        row_of: Int64 | None = None
        if not self._in_order:
            order = span_order(columns["track"], columns["start_ns"], columns["dur_ns"])
            row_of = np.empty(n, np.int64)
            row_of[order] = np.arange(n)
            # each unsorted column goes before the next is copied
            columns = {name: columns.pop(name)[order] for name in list(columns)}
        again = _repeats(columns, self._put_off if self._in_order else {})
        if len(again):
            kept = np.ones(n, bool)
            kept[again] = False
            row_of = (np.cumsum(kept) - 1)[slice(None) if row_of is None else row_of]
            first = self.strings[int(columns["name"][again[0]])]
            columns = {name: column[kept] for name, column in columns.items()}
            n -= len(again)
            self.notes.add("repeated-events", "warning",
                           "records of device work and of calls came twice (equal name, times and ids); each counts once",
                           len(again), first)  # fmt: skip
        none = np.zeros(0, np.int32)  # until they are nested and linked
        if self._in_order:
            columns |= dict.fromkeys(self._put_off, none)
        spans = Spans(**columns, parent=none, depth=none, self_ns=columns["dur_ns"], launch_row=none)
        if self._in_order:
            spans.put_off(**{name: _of_rows(ids_of, spans.source) for name, ids_of in self._put_off.items()})
        return spans, row_of

    def _nest(self, spans: Spans) -> None:
        tree = nest(spans.track, spans.start_ns, spans.dur_ns, self.room)
        spans.parent, spans.depth, spans.self_ns = tree.parent, tree.depth, tree.self_ns
        for number, track in enumerate(self.tracks):
            if track.role == "device":
                # streams are no call trees: kernels that overlap there are not each other's children
                lo, hi = np.searchsorted(spans.track, np.array([number, number + 1], np.int32))
                spans.parent[lo:hi] = -1
                spans.depth[lo:hi] = 0
                spans.self_ns[lo:hi] = spans.dur_ns[lo:hi]
        self._clamp_open_frames(spans, tree.effective_end_ns)

    def _clamp_open_frames(self, spans: Spans, effective_end_ns: Int64) -> None:
        """A Python call cannot outlive its caller: frames the profiler never saw return are cut there."""
        found = []
        for low in range(0, len(spans), _BLOCK):
            some = slice(low, low + _BLOCK)
            over = spans.start_ns[some] + spans.dur_ns[some] > effective_end_ns[some]
            over &= spans.kind[some] == Kind.PYTHON
            if over.any():
                found.append(np.flatnonzero(over) + low)
        at = np.concatenate([np.zeros(0, np.intp), *found])
        parent = spans.parent[at]
        at = at[(parent >= 0) & (spans.kind[parent] == Kind.PYTHON)]
        if len(at) == 0:
            return
        # below the resolution of any clock here it is rounding, not a lost return
        lost = (spans.start_ns[at] + spans.dur_ns[at] - effective_end_ns[at]) > 1000
        spans.dur_ns[at] = effective_end_ns[at] - spans.start_ns[at]
        first = self.strings[int(spans.name[at[lost][0]])] if lost.any() else ""
        self.notes.add(
            "python-frame-clamped",
            "info",
            "Python frames ended after their caller (the return was never recorded); cut to the caller's end",
            int(lost.sum()),
            first,
        )

    def _row_flows(self) -> Flows:
        if not self._flows:
            return Flows.empty()
        ends = [np.concatenate([f[i] for f in self._flows]) for i in range(2)]
        rows = [self.rows(e).astype(np.int32) for e in ends]
        return Flows(rows[0], rows[1], np.concatenate([f[2] for f in self._flows]))

    def _link(self, spans: Spans, flows: Flows) -> None:
        spans.launch_row = np.full(len(spans), -1, np.int32)  # where the ends of the call tree stood
        for launches, works in self._links:
            spans.launch_row[self.rows(works)] = self.rows(launches)
        join_launches(spans, flows, self.tracks, self.notes)

    def _all_args(self) -> ArgStore:
        base = self._args if self._args is not None else ArgStore.empty(self.strings)
        if not self._extra_args:
            return base
        keys = list(base.keys)
        parts: list[tuple[Any, ...]] = []
        for sources, key, tag, value in self._extra_args:
            if key not in keys:
                keys.append(key)
            parts.append((sources, np.full(len(sources), keys.index(key), np.uint16), tag, value))
        event, key_code, tag, value = (_joined(list(column)) for column in zip(*parts, strict=True))
        order = np.argsort(event, kind="stable")
        extra = ArgStore(self.strings, keys, event[order], key_code[order], tag[order], value[order])
        # the base is sorted and much longer: the rest is put between its rows
        is_extra = np.zeros(len(base) + len(extra), bool)
        is_extra[np.searchsorted(base.event, extra.event, side="right") + np.arange(len(extra))] = True
        return base.interleaved(extra, is_extra)


def _of_rows(ids_of: IdsOf, source: Int32) -> Callable[[npt.NDArray[Any] | None], Int64]:
    """The ids of rows from those of source events."""
    return lambda rows: ids_of(source if rows is None else kernels.mapped(source, rows))


def _repeats(
    sorted_columns: dict[str, npt.NDArray[Any]], put_off: Mapping[str, IdsOf]
) -> npt.NDArray[np.intp]:
    """Rows that are the same record as the row before: equal in lane, times, name and ids.

    Only of records with a length and a correlation id: two operators of one microsecond may well be alike. Ids that
    were put off are read.
    """
    start = sorted_columns["start_ns"]
    at: npt.NDArray[np.intp] = np.flatnonzero(start[1:] == start[:-1]) + 1
    for name in ("dur_ns", "track", "name", "kind"):
        column = sorted_columns[name]
        at = at[column[at] == column[at - 1]]
    at = at[(sorted_columns["dur_ns"][at] > 0) & np.isin(sorted_columns["kind"][at], _ONCE)]
    for name in ("correlation", "external_id"):
        ids, before = (
            put_off[name](sorted_columns["source"][rows]) if name in put_off else sorted_columns[name][rows]
            for rows in (at, at - 1)
        )  # fmt: skip
        at = at[(ids == before) & ((ids != NO_ID) | (name != "correlation"))]
    return at


def span_order(track: Int32, start_ns: Int64, dur_ns: Int64) -> npt.NDArray[np.intp]:
    """Timeline order: by track, then start, then longer first, else as they came."""
    return kernels.order(track, start_ns, dur_ns).astype(np.intp)


def _joined(columns: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def _concat(tables: list[Any], empty: Any) -> Any:
    if not tables:
        return empty.empty()
    names = empty.__dataclass_fields__
    return empty(**{name: np.concatenate([getattr(t, name) for t in tables]) for name in names})
