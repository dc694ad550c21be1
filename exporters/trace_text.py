"""Trace-event records as bytes, a batch of columns at a time.

A record is a *head* (numbers: `{"ts":12.345,"dur":0.500`), a *tail* (everything that repeats: phase, name,
category, process, thread, up to the opening of `args`) and the arguments. Numbers are formatted as columns
of digits, tails and texts once per distinct value, and one join makes the text: about a microsecond an
event, where `json.dumps` of dictionaries takes eight.

Every record is left open after its arguments and closed by the beginning of the next one, so that no piece
depends on whether arguments follow. A file that is cut anywhere still holds all records before the cut.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from stallscope.exporters.base import MAX_SAFE_INTEGER, clean, one_line, plain
from stallscope.profiler.timeline import (
    ARG_BIGINT,
    ARG_CONST,
    ARG_FLOAT,
    ARG_INT,
    ARG_JSON,
    Int64,
    StringTable,
)

Objects = npt.NDArray[np.object_]
"""Pieces of text, as `bytes`."""
Rows = npt.NDArray[np.intp]

CLOSE = b"}}"
OPEN = CLOSE + b",\n{"
"""Ends a record and begins the next one."""

_FOUR = np.frombuffer("".join(f"{i:04d}" for i in range(10_000)).encode(), np.uint8).reshape(-1, 4)
_THREE = _FOUR[:1000, 1:]
_POWERS = 10 ** np.arange(1, 19, dtype=np.int64)
_LONG_NUMBER = re.compile(r"\d{16}")


class Number(NamedTuple):
    """A column of numbers and the text before each: integers >= 0, or nanoseconds shown as microseconds."""

    before: bytes
    values: Int64
    is_time: bool = False


def number_pieces(numbers: Sequence[Number], after: bytes = b"") -> Objects:
    """One piece per row: each number after its text, then `after`. Times get exactly three decimals.

    >>> number_pieces([Number(b"a", np.array([7, 123])), Number(b" t", np.array([12, 3456]), True)]).tolist()
    [b'a7 t0.012', b'a123 t3.456']
    """
    count = len(numbers[0].values)
    out = np.empty(count, object)
    if count == 0:
        return out
    shape = np.zeros(count, np.int64)
    parts: list[tuple[Number, npt.NDArray[np.uint8], npt.NDArray[np.uint8] | None]] = []
    for number in numbers:
        whole, rest = np.divmod(number.values, 1000) if number.is_time else (number.values, None)
        shape = shape * 20 + np.searchsorted(_POWERS, whole, side="right") + 1
        parts.append((number, _digits(whole), None if rest is None else _THREE[rest]))
    order = np.argsort(shape.astype(np.uint16) if len(numbers) < 3 else shape, kind="stable")
    bounds = np.flatnonzero(np.diff(shape[order])) + 1
    for rows in np.split(order, bounds):
        # all rows of a group have the same number of digits in each number, so a piece has one width
        out[rows] = _same_width(rows, parts, int(shape[rows[0]]), after)
    return out


def _same_width(rows: Rows, parts: Sequence[Any], shape: int, after: bytes) -> list[bytes]:
    widths: list[int] = []
    for _ in parts:
        shape, width = divmod(shape, 20)
        widths.insert(0, width)
    columns: list[Any] = []
    for (number, digits, decimals), width in zip(parts, widths, strict=True):
        columns += [number.before, digits[rows, digits.shape[1] - width :]]
        if decimals is not None:
            columns += [b".", decimals[rows]]
    columns.append(after)
    width = sum(len(c) if isinstance(c, bytes) else c.shape[1] for c in columns)
    block = np.empty((len(rows), width), np.uint8)
    at = 0
    for column in columns:
        if isinstance(column, bytes):
            column = np.frombuffer(column, np.uint8)[None]
        block[:, at : at + column.shape[1]] = column
        at += column.shape[1]
    pieces: list[bytes] = block.view(f"S{width}").ravel().tolist()
    return pieces


def _digits(values: Int64) -> npt.NDArray[np.uint8]:
    """Decimal digits, right-justified and padded with zeros, shape (n, width)."""
    parts = []
    left = values
    while True:
        left, low = np.divmod(left, 10_000)
        parts.append(_FOUR[low])
        if not left.any():
            break
    return np.concatenate(parts[::-1], axis=1)


def json_text(text: str) -> bytes:
    """A text as JSON in UTF-8 without surrogate escapes; never ends in a backslash.

    Some viewers take the quote after a final backslash for an escaped one and reject the file, so a blank
    is put between them.
    """
    safe = clean(text)
    return json.dumps(f"{safe} " if safe.endswith("\\") else safe, ensure_ascii=False).encode("utf-8")


def name_text(text: str) -> bytes:
    """A name as JSON: like `json_text`, and without control characters."""
    return json_text(one_line(text))


def value_text(value: Any) -> bytes:
    """Any plain value as compact JSON; see `base.plain` for what becomes of odd ones."""
    return json.dumps(_no_final_backslash(plain(value)), ensure_ascii=False, separators=(",", ":")).encode(
        "utf-8"
    )


def _no_final_backslash(value: Any) -> Any:
    if isinstance(value, str):
        return f"{value} " if value.endswith("\\") else value
    if isinstance(value, list):
        return [_no_final_backslash(v) for v in value]
    if isinstance(value, dict):
        return {_no_final_backslash(k): _no_final_backslash(v) for k, v in value.items()}
    return value


def members(values: dict[str, Any]) -> bytes:
    """The members of an object without its braces."""
    return value_text(values)[1:-1]


class Arguments(NamedTuple):
    """Arguments in long form, sorted by `row` (0-based within a batch); columns of shape (m,).

    `key` counts in `keys`; `tag` and `value` are as in ArgStore.
    """

    keys: list[str]
    row: Rows
    key: npt.NDArray[Any]
    tag: npt.NDArray[np.uint8]
    value: Int64


class ArgumentWriter:
    """Formats arguments; remembers the text of lists and objects, which repeat."""

    def __init__(self, strings: StringTable) -> None:
        self._strings = strings
        self._raw: dict[int, bytes] = {}

    def pieces(self, arguments: Arguments) -> Objects:
        """`,"key":value` for each argument, with a blank in place of the comma for the first of a row."""
        count = len(arguments.row)
        out = np.empty(count, object)
        if count == 0:
            return out
        first = np.ones(count, bool)
        first[1:] = arguments.row[1:] != arguments.row[:-1]
        group = (arguments.key.astype(np.int64) * 8 + arguments.tag) * 2 + first
        if int(group.max()) < 1 << 16:
            group = group.astype(np.uint16)
        order = np.argsort(group, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(group[order].astype(np.int64))) + 1):
            key, tag = arguments.keys[int(arguments.key[rows[0]])], int(arguments.tag[rows[0]])
            before = (b" " if first[rows[0]] else b",") + json_text(one_line(key)) + b":"
            self._group(out, rows, before, tag, arguments.value[rows])
        return out

    def _group(self, out: Objects, rows: Rows, before: bytes, tag: int, values: Int64) -> None:
        if tag == ARG_INT:
            _integers(out, rows, before, values)
        elif tag == ARG_FLOAT:
            bits, at = np.unique(values, return_inverse=True)
            texts = [value_text(_float(b)) for b in bits.view(np.float64).tolist()]
            out[rows] = _table([before + t for t in texts])[at.reshape(-1)]
        elif tag == ARG_CONST:
            out[rows] = _table([before + t for t in (b"null", b"false", b"true")])[values + 1]
        else:
            used = np.unique(values)
            table = [before + self._text(tag, code) for code in used.tolist()]
            out[rows] = _table(table)[np.searchsorted(used, values)]

    def _text(self, tag: int, code: int) -> bytes:
        if tag != ARG_JSON:
            text = self._strings[code]
            # integers of more than 64 bits: text keeps them exact in every viewer
            return json_text(text if tag != ARG_BIGINT else text.strip())
        known = self._raw.get(code)
        if known is None:
            known = self._raw[code] = raw_json(self._strings[code])
        return known


def raw_json(text: str) -> bytes:
    """Source JSON as it may stand in our file: checked, and rewritten where a viewer would stumble over it."""
    try:
        packed = text.encode("utf-8")
        value = msgspec.json.decode(packed)
    except (ValueError, RecursionError):
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return json_text(text)
    else:
        if "\\" not in text and "\n" not in text and not _LONG_NUMBER.search(text):
            return packed
    return value_text(value)


def _float(value: float) -> float | str:
    """A finite number itself, its name otherwise: JSON has no NaN, and losing all arguments for it is worse."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _integers(out: Objects, rows: Rows, before: bytes, values: Int64) -> None:
    """Integers; beyond what JavaScript holds they become text."""
    safe = (values <= MAX_SAFE_INTEGER) & (values >= -MAX_SAFE_INTEGER)
    for sign, mask in ((b"", safe & (values >= 0)), (b"-", safe & (values < 0))):
        if mask.any():
            out[rows[mask]] = number_pieces([Number(before + sign, np.abs(values[mask]))])
    if not safe.all():
        out[rows[~safe]] = [before + b'"%d"' % v for v in values[~safe].tolist()]


def _table(pieces: list[bytes]) -> Objects:
    out = np.empty(len(pieces), object)
    out[:] = pieces
    return out


def look_up(codes: npt.NDArray[Any], text_of: Any) -> Objects:
    """`text_of(code)` for each code, called once per distinct code."""
    used, at = np.unique(codes, return_inverse=True)
    return _table([text_of(int(code)) for code in used])[at.reshape(-1)]


def join_records(
    heads: Objects,
    tails: Objects,
    argument_row: Rows | None = None,
    arguments: Objects | None = None,
    follower_row: Rows | None = None,
    followers: Sequence[Objects] = (),
) -> bytes:
    """The text of n records: head, tail, arguments, and after each record those that follow it.

    `argument_row` and `follower_row` are sorted rows of the records; a follower is itself two pieces.
    """
    n = len(heads)
    none = np.zeros(0, np.intp)
    argument_row = none if argument_row is None else argument_row
    follower_row = none if follower_row is None else follower_row
    argument_count = np.bincount(argument_row, minlength=n)
    size = 2 + argument_count + len(followers) * np.bincount(follower_row, minlength=n)
    start = np.cumsum(size) - size
    out = np.empty(int(size.sum()), object)
    out[start] = heads
    out[start + 1] = tails
    if arguments is not None:
        out[start[argument_row] + 2 + _rank(argument_row)] = arguments
    for i, pieces in enumerate(followers):
        first = start[follower_row] + 2 + argument_count[follower_row]
        out[first + len(followers) * _rank(follower_row) + i] = pieces
    return b"".join(out.tolist())


def _rank(rows: Rows) -> Rows:
    """The position of each entry among those of its row; rows are sorted."""
    new = np.ones(len(rows), bool)
    new[1:] = rows[1:] != rows[:-1]
    at = np.arange(len(rows))
    return at - np.maximum.accumulate(np.where(new, at, 0))
