"""Trace Event Format text turned into columns: the envelope only, no meaning.

Reads:  the object form (`traceEvents` anywhere among other keys) and the bare array, of any producer.
Leaves: what the events mean. Kineto, torch_npu, JAX and VizTracer files are interpreted by the readers
        that call `tokenise`.

`RawEvents` is the border between the tokenisers (compiled or Python) and those readers; every
tokeniser fills the same columns with the same values.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from stallscope.profiler.errors import InputError
from stallscope.profiler.ids import encode_id
from stallscope.profiler.notes import Notes
from stallscope.profiler.timeline import (
    ARG_BIGINT,
    ARG_CONST,
    ARG_FLOAT,
    ARG_INT,
    ARG_JSON,
    ARG_STRING,
    NO_TIME,
    ArgStore,
    Int32,
    Int64,
    StringTable,
)


@dataclass
class RawEvents:
    """Columns of shape (n,), one row per element of the event array, in file order.

    `ph` is the phase letter's byte (0 where there is none). `name`, `cat` are string codes (-1 none).
    `ts_ns`, `dur_ns` are exact integer nanoseconds from the decimal text, which is in microseconds
    (half a nanosecond rounds up); NO_TIME where absent, null or not a finite number. `pid`, `tid` and
    `id` are `ids.encode_id` values: integers, or text such as "stream 7". `bp` is 1 where a flow end
    binds to the enclosing slice. Elements that are no objects keep their row with ph 0.
    """

    strings: StringTable
    ph: npt.NDArray[np.uint8]
    name: Int32
    cat: Int32
    ts_ns: Int64
    dur_ns: Int64
    pid: Int64
    tid: Int64
    id: Int64
    args: ArgStore
    meta: dict[str, Any] = field(default_factory=dict)
    """The other top-level keys, decoded; `{}` for a bare array."""
    top_level: str = "object"
    """"object" or "array"."""
    notes: Notes = field(default_factory=Notes)
    """What was repaired, skipped or cut while reading the text."""

    def __len__(self) -> int:
        return len(self.ph)


def decimal_ns(text: str) -> int:
    """Microseconds as decimal text to integer nanoseconds, exactly; NO_TIME if it is no finite number.

    >>> decimal_ns("1736405443871413.640"), decimal_ns("-0.0015"), decimal_ns("12e3"), decimal_ns("nan")
    (1736405443871413640, -1, 12000000, -9223372036854775808)
    """
    text = text.strip().strip('"').strip()
    sign = -1 if text[:1] == "-" else 1
    whole, _, rest = text.lstrip("+-").partition(".")
    if whole.isdecimal() and (rest.isdecimal() or not rest) and len(whole) < 16 + 3:
        digits = (rest + "0000")[:4]
        value = int(whole) * 1000 + (int(digits) + 5) // 10
        return sign * value if value < 1 << 63 else NO_TIME
    try:
        number = float(text)
    except ValueError:
        return NO_TIME
    if number != number or abs(number) >= 9.2e15:
        return NO_TIME
    return round(number * 1000)


def read_text(path: Path) -> bytes:
    """The bytes of a file, inflated if its content is gzip."""
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def tokenise(path: Path) -> RawEvents:
    """Read a trace-event file into columns. Raises InputError for what is no such file."""
    data = read_text(path)
    try:
        document = msgspec.json.decode(data, type=dict[str, msgspec.Raw] | list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise InputError(path, f"not readable as JSON ({error})", "Is the profiler still writing it?") from error
    if isinstance(document, dict):
        if "traceEvents" not in document:
            raise InputError(path, "JSON without traceEvents", "A Kineto or Chrome trace has that key.")
        events = msgspec.json.decode(document.pop("traceEvents"), type=list[msgspec.Raw])
        meta = {key: msgspec.json.decode(value) for key, value in document.items()}
        return _columns(events, meta, "object")
    return _columns(document, {}, "array")


class _Event(msgspec.Struct):
    ph: Any = None
    name: Any = None
    cat: Any = None
    ts: msgspec.Raw = msgspec.Raw()
    dur: msgspec.Raw = msgspec.Raw()
    pid: Any = None
    tid: Any = None
    id: Any = None
    args: msgspec.Raw = msgspec.Raw()


def _columns(events: list[msgspec.Raw], meta: dict[str, Any], top_level: str) -> RawEvents:
    strings = StringTable()
    decoder = msgspec.json.Decoder(_Event)
    args_decoder = msgspec.json.Decoder(dict[str, msgspec.Raw])
    n = len(events)
    ph = np.zeros(n, np.uint8)
    name, cat = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    ts, dur = np.full(n, NO_TIME, np.int64), np.full(n, NO_TIME, np.int64)
    pid, tid, ident = (np.full(n, -(1 << 63), np.int64) for _ in range(3))
    arg_event: list[int] = []
    arg_key: list[int] = []
    arg_tag: list[int] = []
    arg_value: list[int] = []
    keys: dict[str, int] = {}
    for i, raw in enumerate(events):
        try:
            event = decoder.decode(raw)
        except (msgspec.DecodeError, msgspec.ValidationError):
            continue
        if isinstance(event.ph, str) and event.ph:
            ph[i] = min(ord(event.ph[0]), 127)
        if event.name is not None:
            name[i] = strings.code(event.name if isinstance(event.name, str) else str(event.name))
        if event.cat is not None:
            cat[i] = strings.code(event.cat if isinstance(event.cat, str) else str(event.cat))
        ts[i] = decimal_ns(bytes(event.ts).decode()) if event.ts else NO_TIME
        dur[i] = decimal_ns(bytes(event.dur).decode()) if event.dur else NO_TIME
        pid[i] = _plain_id(event.pid, strings)
        tid[i] = _plain_id(event.tid, strings)
        ident[i] = _plain_id(event.id, strings)
        if not event.args or bytes(event.args)[:1] != b"{":
            continue
        for key, value in args_decoder.decode(event.args).items():
            tag, number = _argument(bytes(value), strings)
            arg_event.append(i)
            arg_key.append(keys.setdefault(key, len(keys)))
            arg_tag.append(tag)
            arg_value.append(number)
    args = ArgStore(
        strings,
        list(keys),
        np.array(arg_event, np.int32),
        np.array(arg_key, np.uint16),
        np.array(arg_tag, np.uint8),
        np.array(arg_value, np.int64),
    )
    return RawEvents(strings, ph, name, cat, ts, dur, pid, tid, ident, args, meta, top_level)


def _plain_id(value: Any, strings: StringTable) -> int:
    if value is None or isinstance(value, int | str):
        return encode_id(value, strings)
    if isinstance(value, float) and value.is_integer():
        return encode_id(int(value), strings)
    return encode_id(str(value), strings)


def _argument(raw: bytes, strings: StringTable) -> tuple[int, int]:
    head = raw[:1]
    if head == b'"':
        return ARG_STRING, strings.code(msgspec.json.decode(raw))
    if head in b"[{":
        return ARG_JSON, strings.code(raw.decode("utf-8", "replace"))
    if head in b"tfn":
        return ARG_CONST, {b"t": 1, b"f": 0, b"n": -1}[head]
    if raw.lstrip(b"-").isdigit():
        value = int(raw)
        if -(1 << 63) < value < 1 << 63:
            return ARG_INT, value
        return ARG_BIGINT, strings.code(str(value))
    return ARG_FLOAT, int(np.float64(float(raw)).view(np.int64))
