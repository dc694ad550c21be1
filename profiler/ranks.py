"""Timelines of several ranks, all on the same clock, as one: tracks keep their rank, rows their links.

Ranks are finished before they meet here, so ids that repeat from rank to rank never link across them.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from stallscope.profiler.ids import NO_ID, TEXT_ID_BASE
from stallscope.profiler.timeline import (
    ARG_BIGINT,
    ARG_JSON,
    ARG_SPILLED,
    ARG_STRING,
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

TEXT_TAGS = (ARG_STRING, ARG_JSON, ARG_BIGINT)
"""Tags of arguments whose value is a string code."""


def join_ranks(parts: Sequence[Timeline]) -> Timeline:
    """One timeline of all parts; its origin is the earliest of theirs, its clock the first part's.

    Rows of each part stay in order and stand one part after the other. Empty parts are skipped.
    """
    filled = [p for p in parts if len(p) or len(p.counters) or len(p.marks)] or list(parts[:1])
    if len(filled) == 1:
        return filled[0]
    joined = _Joined(min(p.origin_ns for p in filled))
    for part in filled:
        joined.add(part)
    return joined.timeline(filled[0].clock)


class _Joined:
    def __init__(self, origin_ns: int) -> None:
        self.origin_ns = origin_ns
        self.strings = StringTable()
        self.tracks: list[Track] = []
        self.keys: list[str] = []
        self.spill = _Spills()
        self.rows = 0
        self.sources = 0
        self.spans: list[Spans] = []
        self.args: list[ArgStore] = []
        self.tables: dict[type, list[Any]] = {Counters: [], Flows: [], Allocations: [], Marks: []}

    def add(self, part: Timeline) -> None:
        texts = self.strings.codes(part.strings.texts)
        shift = part.origin_ns - self.origin_ns
        track_base = len(self.tracks)
        self.tracks.extend(part.tracks)
        spans = part.spans
        self.spans.append(
            dataclasses.replace(
                spans,
                start_ns=spans.start_ns + shift,
                name=translate(texts, spans.name),
                category=translate(texts, spans.category),
                track=spans.track + np.int32(track_base),
                correlation=translate_ids(texts, spans.correlation),
                external_id=translate_ids(texts, spans.external_id),
                source=spans.source + np.int32(self.sources),
                parent=_shifted(spans.parent, self.rows),
                launch_row=_shifted(spans.launch_row, self.rows),
            )
        )
        self._add_args(part.args, texts)
        self._add_tables(part, texts, shift, track_base)
        top = int(spans.source.max()) if len(spans) else -1
        top = max(top, int(part.args.event[-1]) if len(part.args) else -1)
        self.sources += top + 1
        self.rows += len(spans)

    def _add_args(self, args: ArgStore, texts: Int32) -> None:
        if len(args) == 0:
            return
        for key in args.keys:
            if key not in self.keys:
                self.keys.append(key)
        keys = np.array([self.keys.index(k) for k in args.keys], np.uint16)
        tag, value = args.entries()
        is_text = np.isin(tag, TEXT_TAGS)
        value[is_text] = texts[value[is_text]]
        spilled = tag == ARG_SPILLED
        if spilled.any():
            value[spilled] += self.spill.add(args.spill) << 24
        event = args.event + np.int32(self.sources)
        self.args.append(ArgStore(self.strings, self.keys, event, keys[args.key], tag, value))

    def _add_tables(self, part: Timeline, texts: Int32, shift: int, track_base: int) -> None:
        counters, marks, flows, allocations = part.counters, part.marks, part.flows, part.allocations
        self.tables[Counters].append(
            dataclasses.replace(
                counters,
                time_ns=counters.time_ns + shift,
                name=translate(texts, counters.name),
                track=_shifted(counters.track, track_base),
            )
        )
        self.tables[Marks].append(
            dataclasses.replace(
                marks,
                time_ns=marks.time_ns + shift,
                name=translate(texts, marks.name),
                track=_shifted(marks.track, track_base),
                source=_shifted(marks.source, self.sources),
            )
        )
        self.tables[Flows].append(
            Flows(
                _shifted(flows.from_row, self.rows),
                _shifted(flows.to_row, self.rows),
                translate(texts, flows.name),
            )
        )
        self.tables[Allocations].append(
            dataclasses.replace(
                allocations,
                time_ns=allocations.time_ns + shift,
                track=_shifted(allocations.track, track_base),
            )
        )

    def timeline(self, clock: str) -> Timeline:
        args = ArgStore.empty(self.strings)
        if self.args:
            args = ArgStore.joined(self.args, self.spill if self.spill.parts else None)
        return Timeline(
            self.strings,
            _stack(self.spans),
            self.tracks,
            args,
            self.origin_ns,
            clock,
            _stack(self.tables[Counters]),
            _stack(self.tables[Flows]),
            _stack(self.tables[Allocations]),
            _stack(self.tables[Marks]),
        )


class _Spills:
    """Texts on disk of several parts; places are offset << 24 | length, offsets one part after the other."""

    def __init__(self) -> None:
        self.parts: list[Any] = []
        self.bases: list[int] = []
        self.size = 0

    def add(self, spill: Any) -> int:
        """Add one part's texts; returns what its offsets grow by."""
        base = self.size
        self.parts.append(spill)
        self.bases.append(base)
        self.size += spill.size
        return base

    def read(self, place: int) -> str:
        at = bisect.bisect_right(self.bases, place >> 24) - 1
        text: str = self.parts[at].read(place - (self.bases[at] << 24))
        return text


def _stack(parts: list[Any]) -> Any:
    names = [f.name for f in dataclasses.fields(parts[0])]
    return type(parts[0])(**{name: np.concatenate([getattr(p, name) for p in parts]) for name in names})


def _shifted(numbers: Int32, base: int) -> Int32:
    return np.where(numbers >= 0, numbers + base, numbers).astype(np.int32)


def translate(texts: Int32, codes: Int32) -> Int32:
    """String codes of one table as codes of another; -1 stays."""
    if len(texts) == 0:
        return codes
    return np.where(codes >= 0, texts[np.maximum(codes, 0)], codes).astype(np.int32)


def translate_ids(texts: Int32, ids: Int64) -> Int64:
    """`ids.encode_id` values whose text references point into another string table."""
    is_text = (ids <= TEXT_ID_BASE) & (ids != NO_ID)
    if not is_text.any():
        return ids
    out = ids.copy()
    out[is_text] = TEXT_ID_BASE - texts[TEXT_ID_BASE - ids[is_text]].astype(np.int64)
    return out
