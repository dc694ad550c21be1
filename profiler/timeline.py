"""The timeline: columns every later stage reads, and what each means.

Times are int64 nanoseconds from `Timeline.origin_ns`; nothing here is a float. One row per span.
Rows are sorted by track, then start, then longer first, so a track is a slice of rows and a
parent always stands before its children. Names and categories are codes into `strings`.

This module is pure data: it imports nothing of ours above `kinds`, `ids` and `kernels`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.ids import NO_ID, TEXT_ID_BASE, decode_id
from stallscope.profiler.kinds import DEVICE_WORK, KIND_NAMES, Kind
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    import pandas as pd

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Bool = npt.NDArray[np.bool_]

NO_TIME = -(1 << 63)
"""A time that the source did not give or that could not be read."""

_BLOCK = 1 << 17
"""Rows looked at at once."""

_FEW_NAMES = 3
"""So many names are compared with each row; more are looked up."""

_JSON = json.JSONDecoder(parse_constant=lambda _: None)


def _blocks(rows: int) -> Iterator[slice]:
    """All rows in blocks: what a step makes of one stays near the processor, and is no page of memory the more."""
    return (slice(low, low + _BLOCK) for low in range(0, rows, _BLOCK))


def _is_one(kind: npt.NDArray[np.int8], kinds: Sequence[Kind]) -> Bool:
    """Whether each of some kinds is one of others; eight times as fast as one look into a table."""
    found: Bool = kind == np.int8(kinds[0])
    for here in _blocks(len(kind)) if len(kinds) > 1 else ():
        for one in kinds[1:]:
            found[here] |= kind[here] == np.int8(one)
    return found


# Tags of ArgStore.tag
ARG_INT, ARG_FLOAT, ARG_STRING, ARG_JSON, ARG_CONST, ARG_BIGINT, ARG_SPILLED, ARG_WIDE = range(8)


_NO_IDS = np.zeros(0, np.int64)


class StringTable:
    """Interned texts. `code(text)` gives the number, `table[code]` the text."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self.texts: list[str] = list(texts)
        self._codes: dict[str, int] | None = None

    def code(self, text: str) -> int:
        if self._codes is None:
            self._codes = {}
            for i, known in enumerate(self.texts):
                self._codes.setdefault(known, i)
        code = self._codes.get(text)
        if code is None:
            code = self._codes[text] = len(self.texts)
            self.texts.append(text)
        return code

    def codes(self, texts: Sequence[str]) -> Int32:
        """Codes of many texts, shape (n,)."""
        return np.fromiter((self.code(t) for t in texts), dtype=np.int32, count=len(texts))

    def find(self, text: str) -> int:
        """The code of a text that is already here, else -1; never adds."""
        if self._codes is None:
            self.code(self.texts[0] if self.texts else "")
        return self._codes.get(text, -1) if self._codes is not None else -1

    def __getitem__(self, code: int) -> str:
        return self.texts[code]

    def __len__(self) -> int:
        return len(self.texts)


def _is_wide(tag: npt.NDArray[np.uint8]) -> Bool:
    """Whether the values of arguments stand in `ArgStore.wide`."""
    found: Bool = (tag == ARG_FLOAT) | (tag == ARG_SPILLED) | (tag == ARG_WIDE)
    return found


def _narrowed(
    tag: npt.NDArray[np.uint8], value: npt.NDArray[Any]
) -> tuple[npt.NDArray[np.uint8], Int32, Int64]:
    """Tags and values in 64 bits as an ArgStore holds them: tag and value, shapes (n,), and wide."""
    narrow = value.astype(np.int32)
    at = np.flatnonzero((narrow != value) | _is_wide(tag))
    narrow[at] = np.arange(len(at), dtype=np.int32)
    integers = at[tag[at] == ARG_INT]
    if len(integers):
        tag = tag.copy()
        tag[integers] = ARG_WIDE
    return tag, narrow, np.asarray(value[at], np.int64)


class ArgStore:
    """Arguments of source events, long form: one row per (event, key), sorted by event.

    `key`, `tag` and `value` have one entry per argument; `event` says whose it is, and `first` where the arguments of
    each event begin. Either of the last two may be given and makes the other when it is asked for.

    `tag` tells what an argument is: ARG_INT the integer; ARG_FLOAT the float64's bits; ARG_STRING a code
    of `strings`; ARG_JSON a code of `strings` holding raw JSON text (lists and objects), decoded once
    per distinct text; ARG_CONST 1 true, 0 false, -1 null; ARG_BIGINT a code of the decimal text;
    ARG_SPILLED a place of `spill`, which holds texts too many to keep in memory.

    Nearly all of it fits into the 32 bits of `value`. What does not stands in `wide`, shape (few,), and `value` is its
    place there: of ARG_FLOAT, of ARG_SPILLED, and of ARG_WIDE, an integer of 64 bits. `entries` puts both together.
    A store may be given all values in 64 bits, and no `wide`.
    """

    def __init__(
        self,
        strings: StringTable,
        keys: list[str],
        event: Int32 | None,
        key: npt.NDArray[np.uint16],
        tag: npt.NDArray[np.uint8],
        value: Int32 | Int64,
        spill: Any = None,
        *,
        first: Int32 | None = None,
        wide: Int64 | None = None,
    ) -> None:
        self.strings, self.keys = strings, keys
        if wide is None:
            tag, value, wide = _narrowed(tag, value)
        self.key, self.tag, self.spill = key, tag, spill
        self.value, self.wide = np.asarray(value, np.int32), wide
        self._event, self._first = event, first
        self._decoded: dict[int, Any] = {}
        self._ids: dict[str, Int64] = {}

    @classmethod
    def empty(cls, strings: StringTable | None = None) -> ArgStore:
        table = StringTable() if strings is None else strings
        none = np.zeros(0)
        return cls(table, [], none.astype(np.int32), none.astype(np.uint16), none.astype(np.uint8),
                   none.astype(np.int64))  # fmt: skip

    @property
    def event(self) -> Int32:
        """The source event of each argument, ascending; shape (arguments,)."""
        if self._event is None:
            first = self.first
            self._event = np.repeat(np.arange(len(first) - 1, dtype=np.int32), np.diff(first))
        return self._event

    @property
    def first(self) -> Int32:
        """The first argument of each source event, and the number of arguments behind the last; shape (events + 1,).

        Events behind the last one that has arguments may be left out.
        """
        if self._first is None:
            count = np.bincount(self.event) if len(self.event) else np.zeros(0, np.int64)
            self._first = np.zeros(len(count) + 1, np.int32)
            np.cumsum(count, out=self._first[1:])
        return self._first

    def last_event(self) -> int:
        """The last event that may have arguments, or -1."""
        if self._event is None:
            return len(self.first) - 2
        return int(self._event[-1]) if len(self._event) else -1

    def events_of(self, at: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        """The source events of some arguments, shape of `at`."""
        if self._event is None:
            return np.searchsorted(self.first, at.astype(np.int32), side="right") - 1
        return self._event[at]

    def entries(self, at: Any = slice(None)) -> tuple[npt.NDArray[np.uint8], Int64]:
        """Tags and values of some arguments, by index, mask or slice: copies, all in 64 bits, ARG_WIDE as ARG_INT."""
        tag, value = np.array(self.tag[at]), self.value[at].astype(np.int64)
        wide = np.flatnonzero(_is_wide(tag))
        value[wide] = self.wide[value[wide]]
        tag[tag == ARG_WIDE] = ARG_INT
        return tag, value

    def part(self, at: npt.NDArray[Any], event: Int32) -> ArgStore:
        """Some of the arguments, by index, as those of these events."""
        tag, value = self.tag[at], self.value[at]
        wide = np.flatnonzero(_is_wide(tag))
        kept = self.wide[value[wide]]
        value[wide] = np.arange(len(wide), dtype=np.int32)
        return ArgStore(self.strings, self.keys, event, self.key[at], tag, value, self.spill, wide=kept)

    @classmethod
    def joined(cls, parts: Sequence[ArgStore], spill: Any = None) -> ArgStore:
        """The arguments of several stores, one behind the other. They share texts and keys, which the last one has all of,
        and texts on disk."""
        event, key, tag, wide = (
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("event", "key", "tag", "wide")
        )
        before = np.cumsum([0, *(len(part.wide) for part in parts)]).tolist()
        value = np.concatenate([part._value_behind(n) for part, n in zip(parts, before, strict=False)])
        return cls(parts[-1].strings, parts[-1].keys, event, key, tag, value, spill, wide=wide)

    def interleaved(self, extra: ArgStore, is_extra: Bool) -> ArgStore:
        """These arguments and those of `extra`, which knows all keys, where `is_extra` says; shape (of both,)."""

        def merged(ours: npt.NDArray[Any], theirs: npt.NDArray[Any]) -> npt.NDArray[Any]:
            out = np.empty(len(is_extra), ours.dtype)
            out[~is_extra], out[is_extra] = ours, theirs
            return out

        return ArgStore(
            extra.strings,
            extra.keys,
            merged(self.event, extra.event),
            merged(self.key, extra.key),
            merged(self.tag, extra.tag),
            merged(self.value, extra._value_behind(len(self.wide))),
            self.spill,
            wide=np.concatenate([self.wide, extra.wide]),
        )

    def _value_behind(self, before: int) -> Int32:
        """`value` where so many others stand before in `wide`."""
        return np.asarray(self.value + _is_wide(self.tag) * np.int32(before), np.int32)

    def of(self, event: int) -> dict[str, Any]:
        """All arguments of one source event, decoded."""
        lo, hi = self.first[event : event + 2].tolist() if 0 <= event < len(self.first) - 1 else (0, 0)
        entries = zip(
            self.key[lo:hi].tolist(), *(c.tolist() for c in self.entries(slice(lo, hi))), strict=True
        )
        return {self.keys[key]: self._decode(tag, value) for key, tag, value in entries}

    def _decode(self, tag: int, value: int) -> Any:
        if tag == ARG_INT:
            return value
        if tag == ARG_FLOAT:
            return float(np.int64(value).view(np.float64))
        if tag == ARG_STRING:
            return self.strings[value]
        if tag == ARG_BIGINT:
            return int(self.strings[value])
        if tag == ARG_CONST:
            return None if value < 0 else bool(value)
        if tag == ARG_SPILLED:
            return self.spilled(value)
        if value not in self._decoded:
            try:
                self._decoded[value] = _JSON.decode(self.strings[value])
            except ValueError:
                self._decoded[value] = self.strings[value]
        return self._decoded[value]

    def spilled(self, place: int) -> str:
        """A text on disk; "" where there is none."""
        return str(self.spill.read(place)) if self.spill is not None else ""

    def _entries(self, key: str) -> npt.NDArray[np.intp]:
        if key not in self.keys:
            return np.zeros(0, dtype=np.intp)
        wanted = np.uint16(self.keys.index(key))
        return np.concatenate([h.start + np.flatnonzero(self.key[h] == wanted) for h in _blocks(len(self.key))]
                              or [np.zeros(0, np.intp)])  # fmt: skip

    def ints(self, key: str, events: int, missing: int = -1) -> Int64:
        """One int64 per source event, shape (events,); floats are truncated, texts are `missing`."""
        out = np.full(events, missing, dtype=np.int64)
        at = self._entries(key)
        tag, value = self.entries(at)
        number = np.where(tag == ARG_FLOAT, 0, value)
        is_float = tag == ARG_FLOAT
        if is_float.any():
            floats = value[is_float].view(np.float64)
            finite = np.where(np.abs(floats) < 2.0**62, floats, missing)
            number[is_float] = np.where(np.isnan(finite), missing, finite).astype(np.int64)
        text = tag == ARG_STRING
        if text.any():
            number[text] = [self._text_int(int(v), missing) for v in value[text]]
        good = text | is_float | (tag == ARG_INT)
        out[self.events_of(at[good])] = number[good]
        return out

    def _text_int(self, code: int, missing: int) -> int:
        text = self.strings[code].strip()
        digits = text[1:] if text[:1] == "-" else text
        return int(text) if digits.isdecimal() and len(digits) < 19 else missing

    def floats(self, key: str, events: int) -> npt.NDArray[np.float64]:
        """One float64 per source event, shape (events,); NaN where there is none."""
        out = np.full(events, np.nan)
        at = self._entries(key)
        tag, value = self.entries(at)
        whole = tag == ARG_INT
        out[self.events_of(at[whole])] = value[whole]
        real = tag == ARG_FLOAT
        out[self.events_of(at[real])] = value[real].view(np.float64)
        return out

    def ids(self, key: str, events: int) -> Int64:
        """One id per source event as `ids.encode_id` makes it; NO_ID where there is none."""
        out = np.full(events, NO_ID, dtype=np.int64)
        at = self._entries(key)
        tag, value = self.entries(at)
        whole = tag == ARG_INT
        out[self.events_of(at[whole])] = value[whole]
        real = np.flatnonzero(tag == ARG_FLOAT)
        floats = value[real].view(np.float64)
        exact = (np.floor(floats) == floats) & (np.abs(floats) < 2.0**53)  # 77.0, as tables write ids
        out[self.events_of(at[real[exact]])] = floats[exact].astype(np.int64)
        text = (tag == ARG_STRING) | (tag == ARG_BIGINT)
        codes = value[text].tolist()
        plain = [self._text_int(code, NO_ID) for code in codes]
        out[self.events_of(at[text])] = [
            number if number != NO_ID else TEXT_ID_BASE - code
            for number, code in zip(plain, codes, strict=True)
        ]
        return out

    def values_at(self, key: str, events: npt.NDArray[Any]) -> tuple[Int32, list[Any]]:
        """As `codes`, but for the given source events only: codes of shape (k,) and the values among them.

        Costs what the given events cost, whatever the size of the store.
        """
        out = np.full(len(events), -1, dtype=np.int32)
        if key not in self.keys or len(events) == 0:
            return out, []
        wanted = self.keys.index(key)
        first = self.first
        known = np.where((events >= 0) & (events < len(first) - 1), events, -1)
        at = first.take(known)  # -1 takes the end of the last one: nothing is between it and itself
        stop = np.where(known < 0, at, first.take(known + 1))
        found = np.full(len(events), -1, np.int64)
        for _ in range(int((stop - at).max())):
            here = np.minimum(at, len(self.key) - 1)
            hit = (at < stop) & (self.key[here] == wanted)
            found[hit] = at[hit]
            at = at + 1
        has = found >= 0
        if not has.any():
            return out, []
        code, values = self._distinct(found[has])
        out[has] = code
        return out, values

    def ints_at(self, key: str, events: npt.NDArray[Any], missing: int = -1) -> Int64:
        """As `ints`, but for the given source events only, shape (k,)."""
        found = self._picked(key, events, missing)
        return self.ints(key, self._events(events), missing)[events] if found is None else found

    def ids_at(self, key: str, events: npt.NDArray[Any]) -> Int64:
        """As `ids`, but for the given source events only, shape (k,)."""
        found = self._picked(key, events, NO_ID)
        if found is not None:
            return found
        count = self._events(events)
        if len(self._ids.get(key, _NO_IDS)) < count:
            self._ids[key] = self.ids(key, count)
        return self._ids[key].take(events)

    def _events(self, events: npt.NDArray[Any]) -> int:
        return max(self.last_event(), int(events.max()) if len(events) else -1) + 1

    def _picked(self, key: str, events: npt.NDArray[Any], missing: int) -> Int64 | None:
        """The integers under a key; None where one of them is written in another way."""
        if key not in self.keys:
            return np.full(len(events), missing, np.int64)
        wanted = self.keys.index(key)
        found, others = kernels.pick(
            self.first, self.key, self.tag, self.value, self.wide, wanted, events, missing
        )
        return found if others == 0 else None

    def has(self, key: str, events: int) -> Bool:
        """Whether each source event has an argument, shape (events,); decodes nothing."""
        out = np.zeros(events, bool)
        out[self.events_of(self._entries(key))] = True
        return out

    def _distinct(self, at: npt.NDArray[np.intp]) -> tuple[Int32, list[Any]]:
        """A code per entry, shape of `at`, and the distinct decoded values."""
        tag, value = self.entries(at)
        code, first = kernels.group(tag.astype(np.int64), value)
        return code, [self._decode(int(tag[i]), int(value[i])) for i in first]

    def codes(self, key: str, events: int) -> tuple[Int32, list[Any]]:
        """Distinct values of a key: a code per source event (-1 none) and the decoded values.

        Shapes and dtypes repeat: 3 M events hold some thousand distinct texts, so each is decoded once.
        """
        out = np.full(events, -1, dtype=np.int32)
        at, code, values = self.coded(key)
        out[at] = code
        return out, values

    def coded(self, key: str) -> tuple[npt.NDArray[Any], Int32, list[Any]]:
        """The source events that have a key, ascending, a code for each, shapes (k,), and the decoded values. Of
        several arguments of one event with one key the last counts."""
        at = self._entries(key)
        if len(at) == 0:
            return at, np.zeros(0, np.int32), []
        events = self.events_of(at)
        last = np.append(events[1:] != events[:-1], True)
        if not last.all():
            at, events = at[last], events[last]
        return events, *self._distinct(at)

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True)
class Track:
    """A lane of the timeline: a host thread, a device stream, or a set of labels.

    `role` is "host" (call tree), "device" (work of one stream) or "label" (mirrored annotations,
    profiler overhead, derived rows): only "device" tracks count as device time.
    """

    name: str
    role: str
    rank: int = -1
    process: int | str = -1
    process_name: str = ""
    thread: int | str = -1
    device: int = -1
    stream: int | str = -1


@dataclass
class Spans:
    """The span columns, all of shape (n,).

    `parent` is a row or -1; `depth` 0 at the root of a thread; `self_ns` duration less children,
    children clipped to their parent; `launch_row` the host call that started a device span, or -1;
    `source` the number of the event in the source, which is the key of `Timeline.args`. Where `correlation` or
    `external_id` was put off (`put_off`), it is read when it is asked for.
    """

    start_ns: Int64
    dur_ns: Int64
    name: Int32
    category: Int32
    kind: npt.NDArray[np.int8]
    track: Int32
    correlation: Int64
    external_id: Int64
    source: Int32
    parent: Int32
    depth: Int32
    self_ns: Int64
    launch_row: Int32

    def __len__(self) -> int:
        return len(self.start_ns)

    def put_off(self, **columns: Callable[[npt.NDArray[Any] | None], Int64]) -> None:
        """Read columns of ids only when they are asked for; each is given by what tells the ids of some rows, or of all
        for None."""
        for name in columns:
            delattr(self, name)
        self.__dict__["_put_off"] = columns

    def ids_at(self, column: str, rows: npt.NDArray[Any]) -> Int64:
        """The ids of some rows in a column; costs what they cost, if it was put off. Shape of `rows`."""
        if column in self.__dict__:
            known: Int64 = self.__dict__[column]
            return known.take(rows)
        found: Int64 = self.__dict__["_put_off"][column](rows)
        return found

    def of_kind(self, *kinds: Kind) -> Bool:
        """Whether each row is of one of the kinds. Shape (n,)."""
        return _is_one(self.kind, kinds)

    def has_kind(self, *kinds: Kind) -> bool:
        """Whether there is a row of one of the kinds."""
        wanted = [np.int8(kind) for kind in kinds]
        return any((self.kind[here] == one).any() for here in _blocks(len(self)) for one in wanted)

    if not TYPE_CHECKING:  # to a type checker all columns are there

        def __getattr__(self, name: str) -> Any:
            ids_of = self.__dict__.get("_put_off", {}).get(name)
            if ids_of is None:
                raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
            ids = self.__dict__[name] = ids_of(None)
            return ids

    @property
    def end_ns(self) -> Int64:
        if self.start_ns.flags.writeable or self.dur_ns.flags.writeable:
            return self.start_ns + self.dur_ns
        return self._frozen_end_ns

    def end_at(self, rows: Any) -> Int64:
        """The ends of some rows, by index, mask or slice; costs what they cost."""
        return np.asarray(self.start_ns[rows] + self.dur_ns[rows], np.int64)

    @cached_property
    def _frozen_end_ns(self) -> Int64:
        end: Int64 = self.start_ns + self.dur_ns
        end.flags.writeable = False
        return end

    @property
    def is_frozen(self) -> bool:
        """Whether the columns are what they will stay (`freeze`)."""
        return not self.start_ns.flags.writeable

    def freeze(self) -> None:
        """The columns do not change any more: then what follows from them is computed only once."""
        self.start_ns, self.dur_ns = self.start_ns.view(), self.dur_ns.view()
        self.start_ns.flags.writeable = self.dur_ns.flags.writeable = False

    @classmethod
    def empty(cls) -> Spans:
        types = {"start_ns": "i8", "dur_ns": "i8", "name": "i4", "category": "i4", "kind": "i1", "track": "i4",
                 "correlation": "i8", "external_id": "i8", "source": "i4", "parent": "i4", "depth": "i4",
                 "self_ns": "i8", "launch_row": "i4"}  # fmt: skip
        return cls(**{name: np.zeros(0, dtype=t) for name, t in types.items()})

    def take(self, rows: npt.NDArray[Any]) -> Spans:
        """The given rows; `parent` and `launch_row` still point into the old numbering."""
        return Spans(**{f.name: getattr(self, f.name)[rows] for f in dataclasses.fields(self)})


@dataclass
class Counters:
    """Sampled values, shape (n,): `name` is a string code, `track` a track or -1, `value` a float64."""

    time_ns: Int64
    name: Int32
    track: Int32
    value: npt.NDArray[np.float64]

    @classmethod
    def empty(cls) -> Counters:
        return cls(np.zeros(0, "i8"), np.zeros(0, "i4"), np.zeros(0, "i4"), np.zeros(0, "f8"))

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass
class Flows:
    """Arrows between spans, shape (n,): rows of both ends (-1 where an end has no span) and a label."""

    from_row: Int32
    to_row: Int32
    name: Int32

    @classmethod
    def empty(cls) -> Flows:
        return cls(np.zeros(0, "i4"), np.zeros(0, "i4"), np.zeros(0, "i4"))

    def __len__(self) -> int:
        return len(self.from_row)


@dataclass
class Allocations:
    """Memory events, shape (n,): bytes > 0 allocates, < 0 frees; total is -1 where unknown.

    `address` is the allocator's address (0 unknown), `device` -1 for host memory, `row` the span that
    was running on that thread, or -1.
    """

    time_ns: Int64
    bytes: Int64
    total_bytes: Int64
    address: Int64
    device: Int32
    track: Int32

    @classmethod
    def empty(cls) -> Allocations:
        return cls(np.zeros(0, "i8"), np.zeros(0, "i8"), np.zeros(0, "i8"), np.zeros(0, "i8"),
                   np.zeros(0, "i4"), np.zeros(0, "i4"))  # fmt: skip

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass
class Marks:
    """Points in time without a length (instants), shape (n,): name code and track (-1 global)."""

    time_ns: Int64
    name: Int32
    track: Int32
    source: Int32

    @classmethod
    def empty(cls) -> Marks:
        return cls(np.zeros(0, "i8"), np.zeros(0, "i4"), np.zeros(0, "i4"), np.zeros(0, "i4"))

    def __len__(self) -> int:
        return len(self.time_ns)


@dataclass
class Timeline:
    """All columns of one capture. `origin_ns` is the absolute time of start_ns 0 on `clock`.

    `clock` is "realtime" (UNIX epoch), "boot", or "unknown" (the file's own zero).
    """

    strings: StringTable
    spans: Spans
    tracks: list[Track]
    args: ArgStore
    origin_ns: int = 0
    clock: str = "unknown"
    counters: Counters = field(default_factory=Counters.empty)
    flows: Flows = field(default_factory=Flows.empty)
    allocations: Allocations = field(default_factory=Allocations.empty)
    marks: Marks = field(default_factory=Marks.empty)

    # -- looking things up -------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.spans)

    def name(self, row: int) -> str:
        """The name of a span."""
        return self.strings[int(self.spans.name[row])]

    def category(self, row: int) -> str:
        """The category the source gave a span ("" for none)."""
        code = int(self.spans.category[row])
        return self.strings[code] if code >= 0 else ""

    def track_of(self, row: int) -> Track:
        return self.tracks[int(self.spans.track[row])]

    def arguments(self, row: int) -> dict[str, Any]:
        """All arguments of a span, decoded now."""
        return self.args.of(int(self.spans.source[row]))

    def correlation(self, row: int) -> int | str | None:
        return decode_id(int(self.spans.ids_at("correlation", np.array([row]))[0]), self.strings.texts)

    def external_id(self, row: int) -> int | str | None:
        return decode_id(int(self.spans.ids_at("external_id", np.array([row]))[0]), self.strings.texts)

    def rows(self, *kinds: Kind) -> npt.NDArray[np.intp]:
        """Rows of the given kinds, in timeline order."""
        few = [self._rows_of(kind) if self.spans.is_frozen else None for kind in kinds]
        kept = [rows for rows in few if rows is not None]
        if len(kept) < len(kinds):
            return np.flatnonzero(self.of_kind(*kinds))
        kept = [rows for rows in kept if len(rows)] or kept[:1]
        # each of them is in order: merging them is enough
        return (np.sort(np.concatenate(kept), kind="stable") if len(kept) > 1 else kept[0]).astype(np.intp)

    def of_kind(self, *kinds: Kind) -> Bool:
        """Whether each row is of one of the kinds. Shape (n,)."""
        return self.spans.of_kind(*kinds)

    def are_kind(self, rows: npt.NDArray[Any], *kinds: Kind) -> Bool:
        """The same of the given rows. Shape of `rows`."""
        return _is_one(self.spans.kind.take(rows), kinds)

    def has_kind(self, *kinds: Kind) -> bool:
        """Whether there is a row of one of the kinds."""
        return self.spans.has_kind(*kinds)

    def device_work(self) -> npt.NDArray[np.intp]:
        """Rows of kernels, collectives, copies and memsets."""
        return self._device_work if self.spans.is_frozen else self.rows(*DEVICE_WORK)

    @cached_property
    def _device_work(self) -> npt.NDArray[np.intp]:
        rows = self.rows(*DEVICE_WORK)
        rows.flags.writeable = False  # all who ask get the same
        return rows

    def track_rows(self, track: int) -> slice:
        """The rows of one track."""
        # of the column's own type: a plain list would make NumPy convert the whole column at every call
        lo, hi = np.searchsorted(self.spans.track, np.array([track, track + 1], self.spans.track.dtype))
        return slice(int(lo), int(hi))

    def ancestors(self, row: int) -> Iterator[int]:
        """The parents of a span, innermost first."""
        up = int(self.spans.parent[row])
        while up >= 0:
            yield up
            up = int(self.spans.parent[up])

    def arg_ints(self, key: str, missing: int = -1) -> Int64:
        """An integer argument per row, shape (n,)."""
        if key not in self.args.keys:
            return np.full(len(self), missing, np.int64)
        return self.args.ints(key, self._sources(), missing)[self.spans.source]

    def arg_ints_at(self, key: str, rows: npt.NDArray[Any], missing: int = -1) -> Int64:
        """An integer argument of the given rows, shape (k,); costs what they cost."""
        return self.args.ints_at(key, self.spans.source[rows], missing)

    def arg_floats(self, key: str) -> npt.NDArray[np.float64]:
        """A number argument per row, shape (n,), NaN where absent."""
        return self.args.floats(key, self._sources())[self.spans.source]

    def arg_codes(self, key: str) -> tuple[Int32, list[Any]]:
        """A code per row (-1 none), shape (n,), and the distinct decoded values."""
        if key not in self.args.keys:
            return np.full(len(self), -1, np.int32), []
        codes, values = self.args.codes(key, self._sources())
        return codes[self.spans.source], values

    def have_arg(self, key: str, rows: npt.NDArray[Any]) -> Bool:
        """Whether each of the given rows has an argument, shape (k,); decodes nothing."""
        if key not in self.args.keys:
            return np.zeros(len(rows), np.bool_)
        return self.args.has(key, self._sources()).take(self.spans.source.take(rows))

    def arg_values(self, key: str, rows: npt.NDArray[Any]) -> tuple[Int32, list[Any]]:
        """A code per given row (-1 none), shape (k,), and the distinct decoded values among them."""
        return self.args.values_at(key, self.spans.source[rows])

    def _sources(self) -> int:
        top = int(self.spans.source.max()) + 1 if len(self.spans) else 0
        return max(top, self.args.last_event() + 1)

    def match_names(self, test: Any, among: Bool | Kind | None = None) -> Bool:
        """`test(name)` per row, called once per distinct name; False outside of `among`. Shape (n,).

        Only names of rows in `among` (a kind, or a mask of shape (n,)) are looked at. What a test said of a name is
        kept: the texts of a timeline do not change.
        """
        if among is None or (isinstance(among, Kind) and self._rows_of(among) is None):
            return self._named(self._told(test, self._used_names(among)), among)
        found = np.zeros(len(self.spans), np.bool_)
        if isinstance(among, Kind):
            found[self.named_rows(test, among)] = True
            return found
        rows = np.flatnonzero(among)
        found[rows[self.match_names_at(test, rows)]] = True
        return found

    def named_rows(self, test: Any, kind: Kind) -> npt.NDArray[Any]:
        """The rows of `match_names(test, kind)`, ascending; costs what the rows of the kind cost, where these are few."""
        told, few = self._told(test, self._used_names(kind)), self._rows_of(kind)
        if few is None:
            if (test, kind) not in self._found or not self.spans.is_frozen:
                self._found[test, kind] = np.flatnonzero(self._named(told, kind)).astype(np.int32)
            return self._found[test, kind]
        return few[kernels.mapped(told, kernels.mapped(self.spans.name, few))] if told.any() else few[:0]

    def match_names_at(self, test: Any, rows: npt.NDArray[Any]) -> Bool:
        """`test(name)` of the given rows, called once per distinct name of theirs. Shape of `rows`."""
        names = self.spans.name.take(rows)
        used = np.zeros(len(self.strings), np.bool_)
        used[names] = True
        return np.asarray(self._told(test, used).take(names), np.bool_)

    def _named(self, table: Bool, kind: Kind | None) -> Bool:
        """Which rows (of a kind, if given) have a name whose code is set in a table. Shape (n,)."""
        found, codes = np.zeros(len(self.spans), np.bool_), np.flatnonzero(table).astype(np.int32)
        for here in _blocks(len(found)) if len(codes) else ():
            name, out = self.spans.name[here], found[here]
            if len(codes) > _FEW_NAMES:
                kernels.mapped(table, name, out)
            else:
                for code in codes:
                    out |= name == code
            if kind is not None:
                out &= self.spans.kind[here] == np.int8(kind)
        return found

    def _told(self, test: Any, used: Bool) -> Bool:
        """The codes of the used texts of which a test says yes. Shape (texts,)."""
        asked, said = self._answers.setdefault(test, (np.zeros(0, np.bool_), np.zeros(0, np.bool_)))
        if len(asked) < len(used):
            more = np.zeros(len(used) - len(asked), np.bool_)
            asked, said = np.concatenate([asked, more]), np.concatenate([said, more])
            self._answers[test] = asked, said
        asked, said = asked[: len(used)], said[: len(used)]
        texts, new = self.strings.texts, np.flatnonzero(used & ~asked)
        said[new] = [bool(test(texts[code])) for code in new.tolist()]
        asked |= used
        return np.asarray(said & used, np.bool_)

    def _used_names(self, kind: Kind | None = None) -> Bool:
        """Whether each text is the name of a span, or of one of a kind. Shape (texts,)."""
        if kind not in self._names_of:
            used = np.zeros(len(self.strings), np.bool_)
            few = None if kind is None else self._rows_of(kind)
            if few is not None:
                used[kernels.mapped(self.spans.name, few)] = True
            for here in _blocks(len(self.spans)) if few is None else ():
                name = self.spans.name[here]
                used[name if kind is None else name[self.spans.kind[here] == np.int8(kind)]] = True
            if kind is not None and not self.spans.is_frozen:
                return used
            self._names_of[kind] = used
        return self._names_of[kind]

    def _rows_of(self, kind: Kind) -> Int32 | None:
        """Rows of one kind, kept: the same kinds are asked for again and again. None for a quarter of all or more."""
        if kind not in self._kinds:
            mask = self.spans.kind == np.int8(kind)
            is_few = 4 * np.count_nonzero(mask) < len(mask)
            few = np.flatnonzero(mask).astype(np.int32) if is_few else None
            if not self.spans.is_frozen:
                return few
            self._kinds[kind] = few
        return self._kinds[kind]

    @cached_property
    def _kinds(self) -> dict[Kind, Int32 | None]:
        return {}

    @cached_property
    def _found(self) -> dict[tuple[Any, Kind], Int32]:
        """Rows by name among kinds that have many rows: those of modules are asked for several times."""
        return {}

    @cached_property
    def _names_of(self) -> dict[Kind | None, Bool]:
        return {}

    @cached_property
    def _answers(self) -> dict[Any, tuple[Bool, Bool]]:
        """Per test which texts it was asked about, and what it said; shapes (texts,)."""
        return {}

    # -- views for people --------------------------------------------------------------------------

    def frame(self) -> pd.DataFrame:
        """The spans as a DataFrame with readable names; pandas is imported only here."""
        import pandas as pd

        texts = pd.Index(self.strings.texts)
        columns: dict[str, Any] = {
            f.name: getattr(self.spans, f.name) for f in dataclasses.fields(self.spans)
        }
        columns["name"] = texts.take(self.spans.name) if len(texts) else []
        columns["kind"] = pd.Categorical.from_codes(self.spans.kind, [KIND_NAMES[k] for k in Kind])
        return pd.DataFrame(columns)
