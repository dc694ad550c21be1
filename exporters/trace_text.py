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
from stallscope.profiler import kernels
from stallscope.profiler.timeline import (
    ARG_BIGINT,
    ARG_CONST,
    ARG_FLOAT,
    ARG_INT,
    ARG_JSON,
    ARG_SPILLED,
    ArgStore,
    Int64,
)

Objects = npt.NDArray[np.object_]
"""Pieces of text, as `bytes`."""
Rows = npt.NDArray[np.intp]

CLOSE = b"}}"
OPEN = CLOSE + b",\n{"
"""Ends a record and begins the next one."""

Words = npt.NDArray[np.uint32]
"""Four characters in each number."""
_FOUR: Words = np.frombuffer("".join(f"{i:04d}" for i in range(10_000)).encode(), np.uint32)
_DECIMALS: Words = np.frombuffer("".join(f".{i:03d}" for i in range(1000)).encode(), np.uint32)
_POWERS = 10 ** np.arange(1, 19, dtype=np.int64)
_LONG_NUMBER = re.compile(r"\d{16}")


class Number(NamedTuple):
    """A column of numbers and the text before each: integers >= 0, or nanoseconds shown as microseconds.

    Negative ones are written as 0.
    """

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
    shape = np.zeros(count, np.int16)
    parts: list[tuple[bytes, Words, Words | None]] = []
    for before, signed, is_time in numbers:
        # a damaged session may hold a negative length; it has no digits here
        values = np.maximum(signed, 0)
        whole = values // 1000 if is_time else values
        decimals = _DECIMALS[values - whole * 1000] if is_time else None
        shape = shape * np.int16(20) + np.searchsorted(_POWERS, whole, side="right").astype(np.int16)
        parts.append((before, _digits(whole), decimals))
    # rows with the same number of digits everywhere have pieces of one width: blocks of bytes
    order: Any = slice(None)
    bounds = np.array([0, count])
    if (shape != shape[0]).any():
        order = np.argsort(shape, kind="stable")
        shape = shape[order]
        bounds = np.concatenate([[0], np.flatnonzero(np.diff(shape)) + 1, [count]])
        parts = [
            (before, words[order], None if rest is None else rest[order]) for before, words, rest in parts
        ]
    pieces = np.empty(count, object)
    for low, high in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        pieces[low:high] = _one_width(parts, slice(low, high), int(shape[low]), after)
    out[order] = pieces
    return out


def _one_width(
    parts: Sequence[tuple[bytes, Words, Words | None]], rows: slice, shape: int, after: bytes
) -> Objects:
    columns: list[bytes | npt.NDArray[np.uint8]] = [after]
    for before, words, decimals in reversed(parts):
        shape, digits = divmod(shape, 20)
        if decimals is not None:
            columns.append(_bytes(decimals[rows, None]))
        columns += [_bytes(words[rows])[:, -1 - digits :], before]
    width = sum(len(c) if isinstance(c, bytes) else c.shape[1] for c in columns)
    block = np.empty((rows.stop - rows.start, width), np.uint8)
    at = 0
    for column in reversed(columns):
        filled = np.frombuffer(column, np.uint8)[None] if isinstance(column, bytes) else column
        block[:, at : at + filled.shape[1]] = filled
        at += filled.shape[1]
    return block.view(f"S{width}").ravel().astype(object)


def _bytes(words: Words) -> npt.NDArray[np.uint8]:
    """Four digits in each number, shape (n, k), as bytes, shape (n, 4 k)."""
    return np.ascontiguousarray(words).view(np.uint8)


def _digits(values: Int64) -> Words:
    """Decimal digits, padded with zeros, four in each number; shape (n, k), the last four last."""
    groups = []
    left = values
    while True:
        rest = left // 10_000
        groups.append(_FOUR[left - rest * 10_000])
        left = rest
        if not left.any():
            break
    return np.stack(groups[::-1], axis=1)


def json_text(text: str) -> bytes:
    """A text as JSON in UTF-8 without surrogate escapes; never ends in a backslash.

    Some viewers take the quote after a final backslash for an escaped one and reject the file, so a blank
    is put between them.
    """
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return b'"%s"' % text.encode()
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


MAX_RUN = 3
"""Integers that share a piece. More would make too many combinations of lengths."""


def _runs(same_row: npt.NDArray[np.bool_], arguments: Arguments) -> tuple[Rows, Rows]:
    """First argument and length of each piece: plain integers of a row that follow each other go together."""
    easy = (arguments.tag == ARG_INT) & (arguments.value >= 0) & (arguments.value <= MAX_SAFE_INTEGER)
    begins = np.ones(len(easy), bool)
    begins[1:] = ~(easy[1:] & easy[:-1] & same_row[1:])
    at = np.arange(len(easy))
    begins |= (at - np.maximum.accumulate(np.where(begins, at, 0))) % MAX_RUN == 0
    start = np.flatnonzero(begins)
    return start, np.diff(np.append(start, len(easy)))


def _key(name: str) -> bytes:
    return b"," + json_text(one_line(name)) + b":"


class ArgumentWriter:
    """Formats arguments; remembers the text of lists and objects, which repeat."""

    def __init__(self, store: ArgStore) -> None:
        self._store, self._strings = store, store.strings
        self._raw: dict[int, bytes] = {}

    def pieces(self, arguments: Arguments) -> tuple[Rows, Objects]:
        """`,"key":value` for each argument, a blank instead of the comma for the first of a row, and its row.

        Integers of one row that follow each other share a piece: most arguments are ids, and a piece costs
        more than its digits.
        """
        count = len(arguments.row)
        if count == 0:
            return arguments.row, np.empty(0, object)
        same_row = np.zeros(count, bool)
        same_row[1:] = arguments.row[1:] == arguments.row[:-1]
        start, length = _runs(same_row, arguments)
        out = np.empty(len(start), object)
        group = self._groups(arguments, start, length) * 2 + ~same_row[start]
        order = np.argsort(group, kind="stable")
        for alike in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
            first = int(start[alike[0]])
            numbers = int(length[alike[0]])
            befores = [_key(arguments.keys[int(k)]) for k in arguments.key[first : first + numbers]]
            if not same_row[first]:
                befores[0] = b" " + befores[0][1:]
            at = start[alike]
            if numbers > 1:
                columns = [Number(before, arguments.value[at + i]) for i, before in enumerate(befores)]
                out[alike] = number_pieces(columns)
            else:
                self._group(out, alike, befores[0], int(arguments.tag[first]), arguments.value[at])
        return arguments.row[start], out

    @staticmethod
    def _groups(arguments: Arguments, start: Rows, length: Rows) -> Int64:
        """A number for the keys and the tag of each run; equal ones are formatted together."""
        key = np.append(arguments.key.astype(np.int64) + 1, np.zeros(MAX_RUN, np.int64))
        group = arguments.tag[start].astype(np.int64)
        for i in range(MAX_RUN):
            group = group * (len(arguments.keys) + 1) + np.where(i < length, key[start + i], 0)
        return group

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
            used = kernels.distinct(values)
            table = [before + self._text(tag, code) for code in used.tolist()]
            out[rows] = _table(table)[np.searchsorted(used, values)]

    def _text(self, tag: int, code: int) -> bytes:
        if tag == ARG_SPILLED:
            return json_text(self._store.spilled(code))
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
    arguments: tuple[Rows, Objects] | None = None,
    follower_row: Rows | None = None,
    followers: Sequence[Objects] = (),
) -> bytes:
    """The text of n records: head, tail, arguments, and after each record those that follow it.

    `arguments` are sorted rows of the records and pieces; a follower is itself several pieces.
    """
    n = len(heads)
    none = np.zeros(0, np.intp)
    argument_row, argument_pieces = arguments if arguments is not None else (none, np.empty(0, object))
    follower_row = none if follower_row is None else follower_row
    argument_count = np.bincount(argument_row, minlength=n)
    size = 2 + argument_count + len(followers) * np.bincount(follower_row, minlength=n)
    start = np.cumsum(size) - size
    out = np.empty(int(size.sum()), object)
    out[start] = heads
    out[start + 1] = tails
    out[start[argument_row] + 2 + _rank(argument_row)] = argument_pieces
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
