"""Ids that stay exact: one int64 column holds integers and, below a bound, references to text.

Correlation ids, flow ids and External ids are integers up to 64 bits or strings. A column of
Python objects would cost 60 bytes an event and floats would corrupt ids above 2^53, so:

    value >  -2^62      the integer itself
    value <= -2^62      text: string code = -2^62 - value
    NO_ID (int64 min)   no id

Integers outside (-2^62, 2^63) are stored as their decimal text.
"""

from __future__ import annotations

from typing import Protocol

NO_ID = -(1 << 63)
TEXT_ID_BASE = -(1 << 62)
_MAX = (1 << 63) - 1


class Interner(Protocol):
    """Anything that gives a text its number."""

    def code(self, text: str) -> int: ...


def encode_id(value: int | str | None, strings: Interner) -> int:
    """The column value of an id. Decimal text of a number that fits becomes that number."""
    if value is None:
        return NO_ID
    if isinstance(value, str):
        if len(value) < 20 and value.isdecimal() and str(int(value)) == value and int(value) <= _MAX:
            return int(value)
        return TEXT_ID_BASE - strings.code(value)
    if TEXT_ID_BASE < value <= _MAX:
        return value
    return TEXT_ID_BASE - strings.code(str(value))


def decode_id(value: int, strings: list[str]) -> int | str | None:
    """The id behind a column value: an exact integer, its text, or None."""
    if value == NO_ID:
        return None
    if value > TEXT_ID_BASE:
        return int(value)
    text = strings[TEXT_ID_BASE - int(value)]
    digits = text.removeprefix("-")
    is_plain = digits.isdecimal() and digits[0] != "0" and digits.isascii() and len(digits) < 4000
    return int(text) if is_plain else text
