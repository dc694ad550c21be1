"""The tokeniser without a compiler: the same columns as the compiled one, by msgspec, in bounded memory.

Reads:  the elements of event lists, a batch of whole events at a time. A batch that is not strict JSON is
        taken apart into its elements, and those that fail go to the tolerant parser one by one.
Leaves: speed: it costs 5 to 10 times as much.
"""

from __future__ import annotations

import re
from array import array
from typing import Any

import msgspec
import numpy as np

from stallscope.profiler.ids import NO_ID, TEXT_ID_BASE, encode_id
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers import trace_events
from stallscope.profiler.readers.event_repair import (
    IN_STRING,
    MAX_DEPTH,
    MAX_DIGITS,
    NONFINITE,
    Mender,
    is_mangled_path,
    is_strict,
    nested_end,
    wraps_event,
)
from stallscope.profiler.readers.trace_events import RawEvents, Spill, decimal_ns
from stallscope.profiler.timeline import (
    ARG_BIGINT,
    ARG_CONST,
    ARG_FLOAT,
    ARG_INT,
    ARG_JSON,
    ARG_SPILLED,
    ARG_STRING,
    NO_TIME,
    ArgStore,
    StringTable,
)

_BATCH = 1 << 20
_MAX_DAMAGE = 1 << 22
_MAX_KEYS = 65535
_MAX_CACHE = 1 << 20
# Between two events. It cannot stand inside a JSON string, where the quote would be escaped.
_SEPARATOR = re.compile(rb'\}\s*(,)\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args)"')
_BLANK = re.compile(rb"[ \t\r\n,]*")
_SPACE = re.compile(rb"[ \t\r\n]*")
_SCALAR = re.compile(rb'"' + IN_STRING + rb'"|[^,\]}\s"]+(?=[\s,\]}])', re.DOTALL)
_INTEGER = re.compile(rb"-?[0-9]+\Z")


class _Event(msgspec.Struct):
    ph: msgspec.Raw = msgspec.Raw()
    name: msgspec.Raw = msgspec.Raw()
    cat: msgspec.Raw = msgspec.Raw()
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    pid: msgspec.Raw = msgspec.Raw()
    tid: msgspec.Raw = msgspec.Raw()
    id: msgspec.Raw = msgspec.Raw()
    id2: msgspec.Raw = msgspec.Raw()
    args: msgspec.Raw = msgspec.Raw()


_BATCH_DECODER = msgspec.json.Decoder(list[_Event])
_EVENT_DECODER = msgspec.json.Decoder(_Event)
_ARGS_DECODER = msgspec.json.Decoder(dict[str, msgspec.Raw])
_DECODE_ERRORS = (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError)


class PythonEngine:
    """See `trace_events.Engine`. With `always_mend` every event takes the tolerant way; for tests."""

    def __init__(self, notes: Notes, *, always_mend: bool = False) -> None:
        self.mender = Mender(notes)
        self.always_mend = always_mend
        self.strings = StringTable()
        self.threads = trace_events.Threads()
        self._pairs: dict[tuple[int, int], int] = {}
        self.spill = Spill()
        self.counts = dict.fromkeys(("unmended", "keys_dropped"), 0)
        self._codes: dict[bytes, int] = {}
        self._values: dict[bytes, tuple[int, int]] = {}
        self._keys: dict[str, int] = {}
        self._text_bytes = 0
        self._buffer = b""
        self._offset = 0  # of the first byte of the buffer
        self._start()

    def _start(self) -> None:
        self._ph = bytearray()
        self._columns = [array(kind) for kind in "iiqqiq"]
        self._arg_columns = (array("i"), array("H"), array("B"), array("q"))

    # -- the stream --------------------------------------------------------------------------------

    def begin(self, offset: int) -> None:
        self._buffer, self._offset = b"", offset

    def rows(self) -> int:
        return len(self._ph)

    def position(self) -> int:
        return self._offset

    def feed(self, data: bytes) -> bytes | None:
        buffer = self._buffer + data if self._buffer else data
        self._buffer = buffer
        if len(buffer) < 4096:
            return None
        cut = self._last_separator(buffer)
        if cut <= 0:
            return self._one_by_one(final=False) if len(buffer) > _BATCH else None
        batch = buffer[:cut]
        if self.always_mend or not self._batch(batch):
            return self._one_by_one(final=False)
        self._advance(cut)
        return None

    def finish(self) -> bytes | None:
        return self._one_by_one(final=True)

    def _advance(self, count: int) -> None:
        self._buffer = self._buffer[count:]
        self._offset += count

    @staticmethod
    def _last_separator(buffer: bytes) -> int:
        """Where the last whole event of the buffer ends."""
        reach = 1 << 14
        while True:
            low = max(len(buffer) - reach, 0)
            found = [match.start(1) for match in _SEPARATOR.finditer(buffer, low)]
            if found:
                return found[-1]
            if low == 0:
                return 0
            reach *= 8

    def _batch(self, batch: bytes) -> bool:
        """Take a run of events at once, if all of it is strict JSON."""
        try:
            events = _BATCH_DECODER.decode(b"[" + batch.lstrip(b" \t\r\n,") + b"]")
        except _DECODE_ERRORS:
            return False
        rows, args = self.rows(), len(self._arg_columns[0])
        try:
            for event in events:
                self._put(event)
        except _DECODE_ERRORS:
            # an argument was not what it seemed: undo, and look at each event on its own
            self._truncate(rows, args)
            return False
        return True

    def _truncate(self, rows: int, args: int) -> None:
        del self._ph[rows:]
        for column in self._columns:
            del column[rows:]
        for column in self._arg_columns:
            del column[args:]

    # -- element by element ------------------------------------------------------------------------

    def _one_by_one(self, final: bool) -> bytes | None:
        """Work through the buffer as far as its elements are whole."""
        buffer, at = self._buffer, 0
        while True:
            blank = _BLANK.match(buffer, at)
            at = blank.end() if blank else at
            if at >= len(buffer):
                break
            if buffer[at : at + 1] == b"]":
                self._advance(at + 1)
                rest, self._buffer = self._buffer, b""
                return rest
            after = self._element(buffer, at, final)
            if after is None:
                break
            at = after
        self._advance(at)
        return None

    def _element(self, buffer: bytes, at: int, final: bool) -> int | None:
        """Store the element at `at` and return the place behind it; None if more text is needed."""
        head = buffer[at : at + 1]
        if head == b"{":
            end, deepest = nested_end(buffer, at)
            # the arguments' own lists and objects are two levels down
            if end > 0 and not self.always_mend and deepest <= MAX_DEPTH and self._event(buffer[at:end]):
                return end
        else:
            end = self._other_end(buffer, at)
            if end > 0:
                self._put(_Event())
                return end
            if end == 0 and not final:
                return None
        return self._mend(buffer, at, final)

    @staticmethod
    def _other_end(buffer: bytes, at: int) -> int:
        """Behind an element that is no object; 0 if it goes on behind the text, -1 if it is none."""
        if buffer[at : at + 1] == b"[":
            if wraps_event(buffer[at : at + 1000]):
                return -1
            end, deepest = nested_end(buffer, at)
            end = -1 if deepest > MAX_DEPTH else end
        else:
            match = _SCALAR.match(buffer, at)
            end = match.end() if match else 0
            if match and not (is_strict(match[0]) or NONFINITE.match(match[0])):
                return -1
            if match is None and len(buffer) - at > 64 and buffer[at : at + 1] != b'"':
                return -1
        if end <= 0:
            return end
        behind = _SPACE.match(buffer, end)
        after = buffer[behind.end() : behind.end() + 1] if behind else b""
        return end if after in (b",", b"]") and after else (-1 if after else 0)

    def _event(self, text: bytes) -> bool:
        rows, args = self.rows(), len(self._arg_columns[0])
        try:
            self._put(_EVENT_DECODER.decode(text))
        except _DECODE_ERRORS:
            self._truncate(rows, args)
            return False
        return True

    def _mend(self, buffer: bytes, at: int, final: bool) -> int | None:
        offset, size, piece = self._offset + at, len(buffer) - at, 1 << 14
        while True:
            piece = min(piece, size)
            last = (final or size >= _MAX_DAMAGE) and piece == size
            window = buffer[at : at + piece]
            skip, text = self.mender.repair(window, offset, last)
            if skip > 0 or piece == size:
                break
            piece *= 8
        if text and not self._event(text):
            self.counts["unmended"] += 1
        return at + skip if skip else None

    # -- values ------------------------------------------------------------------------------------

    def _put(self, event: _Event) -> None:
        name, cat = self._label(event.name), self._label(event.cat)
        ts, dur = _time(event.ts), _time(event.dur)
        pair = self._id(event.pid), self._id(event.tid)
        thread = -1 if pair == (NO_ID, NO_ID) else self._pairs.setdefault(pair, len(self._pairs))
        ident = self._id(event.id)
        if ident == NO_ID:
            ident = self._id(event.id2)
        phase = _phase(event.ph)
        row = len(self._ph)
        if event.args and bytes(event.args)[:1] == b"{":
            for key, value in _ARGS_DECODER.decode(event.args).items():
                self._put_argument(row, key, bytes(value))
        self._ph.append(phase)
        for column, item in zip(self._columns, (name, cat, ts, dur, thread, ident), strict=True):
            column.append(item)

    def _put_argument(self, row: int, key: str, raw: bytes) -> None:
        number = self._keys.get(key)
        if number is None:
            if len(self._keys) >= _MAX_KEYS:
                self.counts["keys_dropped"] += 1
                return
            number = self._keys[key] = len(self._keys)
        known = self._values.get(raw)
        tag, value = known or self._argument(raw)
        event, keys, tags, values = self._arg_columns
        event.append(row)
        keys.append(number)
        tags.append(tag)
        values.append(value)
        if known is None and tag in (ARG_STRING, ARG_JSON) and len(self._values) < _MAX_CACHE:
            self._values[raw] = tag, value

    def _argument(self, raw: bytes) -> tuple[int, int]:
        head = raw[:1]
        if head == b'"':
            return self._text_argument(raw)
        if head in (b"[", b"{"):
            if nested_end(raw)[1] > MAX_DEPTH or not is_strict(raw):
                raise msgspec.DecodeError
            return ARG_JSON, self._code(raw.decode())
        if head in (b"t", b"f", b"n"):
            return ARG_CONST, {b"t": 1, b"f": 0, b"n": -1}[head]
        if len(raw) > MAX_DIGITS:
            raise msgspec.DecodeError
        if _INTEGER.match(raw):
            value = int(raw)
            if -(1 << 63) < value < 1 << 63:
                return ARG_INT, value
            return ARG_BIGINT, self._code(raw.decode())
        number = float(raw)
        if number in (float("inf"), float("-inf")):
            raise msgspec.DecodeError
        return ARG_FLOAT, int(np.float64(number).view(np.int64))

    def _text_argument(self, raw: bytes) -> tuple[int, int]:
        text = self._text(raw)
        if self._text_bytes > trace_events.TEXT_BUDGET and len(raw) > 34 and self.strings.find(text) < 0:
            data = text.encode("utf-8", "replace")[: (1 << 24) - 1]
            place = self.spill.size << 24 | len(data)
            self.spill.add(data)
            return ARG_SPILLED, place
        return ARG_STRING, self._code(text)

    def _text(self, raw: bytes) -> str:
        text: str = msgspec.json.decode(raw, type=str)
        return self.mender.as_path(text, self._offset) if is_mangled_path(text) else text

    def _code(self, text: str) -> int:
        before = len(self.strings)
        code = self.strings.code(text)
        if len(self.strings) > before:
            self._text_bytes += len(text)
        return code

    def _label(self, value: msgspec.Raw) -> int:
        raw = bytes(value)
        if raw in (b"", b"null"):
            return -1
        known = self._codes.get(raw)
        if known is None:
            known = self._code(self._text(raw) if raw[:1] == b'"' else raw.decode())
            if len(self._codes) < _MAX_CACHE:
                self._codes[raw] = known
        return known

    def _id(self, value: msgspec.Raw) -> int:
        raw = bytes(value)
        if raw in (b"", b"null"):
            return NO_ID
        if raw[:1] == b'"':
            return encode_id(self._text(raw), self.strings)
        if raw in (b"true", b"false"):
            return int(raw == b"true")
        if len(raw) < MAX_DIGITS and raw[:1] not in (b"[", b"{"):
            if _INTEGER.match(raw):
                number = int(raw)
                return number if TEXT_ID_BASE < number < 1 << 63 else TEXT_ID_BASE - self._code(raw.decode())
            real = float(raw)
            if -4e18 < real < 9e18 and real == int(real):
                return int(real)
        return TEXT_ID_BASE - self._code(raw.decode())

    # -- the end -----------------------------------------------------------------------------------

    def batch(self) -> RawEvents:
        columns: dict[str, Any] = {"ph": np.frombuffer(self._ph, "u1")}
        for name, column in zip(trace_events.COLUMNS[1:], self._columns, strict=True):
            columns[name] = np.array(column, f"i{column.itemsize}")
        pairs = np.array(list(self._pairs)[len(self.threads) :], np.int64).reshape(-1, 2)
        self.threads.add(pairs[:, 0], pairs[:, 1])
        arguments: list[Any] = [
            np.array(c, kind) for c, kind in zip(self._arg_columns, ("i4", "u2", "u1", "i8"), strict=True)
        ]
        self._start()
        args = ArgStore(self.strings, list(self._keys), *arguments)
        return RawEvents(self.strings, self.threads, args=args, **columns)

    def result(self, raw: RawEvents | None = None) -> RawEvents:
        raw = self.batch() if raw is None else raw
        trace_events.note_counts(self.mender, self.counts)
        if self.spill.size:
            raw.args.spill = self.spill
        return raw


def _time(value: msgspec.Raw) -> int:
    raw = bytes(value)
    return decimal_ns(raw.decode("latin-1")) if raw else NO_TIME


def _phase(value: msgspec.Raw) -> int:
    raw = bytes(value)
    if raw[:1] != b'"':
        return 0
    text = msgspec.json.decode(raw, type=str)
    return min(ord(text[0]), 127) if text else 0
