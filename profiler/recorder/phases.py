"""Which phase a forward pass belongs to, told from what the outermost module was called with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PREFILL, DECODE, FORWARD = "prefill", "decode", "forward"
_TOKEN_NAMES = ("input_ids", "tokens", "token_ids", "idx", "x")


def token_shape(args: Iterable[Any], kwargs: Mapping[str, Any]) -> tuple[int, int] | None:
    """(batch, tokens) of the first integer tensor of two or more dimensions, or None.

    `input_ids` and its usual other names come first, then the positional arguments, then the named ones:
    an attention mask is an integer tensor too, and as long as everything so far.
    """
    for name in _TOKEN_NAMES:
        if (shape := _token_shape(kwargs.get(name))) is not None:
            return shape
    for value in args:
        if (shape := _token_shape(value)) is not None:
            return shape
    return None


def _token_shape(value: Any) -> tuple[int, int] | None:
    dtype = getattr(value, "dtype", None)
    if dtype is None or getattr(dtype, "is_floating_point", True) or getattr(dtype, "is_complex", True):
        return None
    shape: tuple[int, ...] = getattr(value, "shape", ())
    if len(shape) < 2:
        return None
    return int(shape[0]), int(shape[1])


def phase_of(shape: tuple[int, int] | None, previous: tuple[int, int] | None) -> str:
    """The phase of a forward pass over `shape` = (batch, tokens) after one over `previous` by the same module.

    One token a sequence is decoding. One token more than last time is decoding without a cache: the whole
    sequence goes through again for one new token.

    >>> phase_of((1, 32), None), phase_of((1, 1), (1, 32)), phase_of((1, 33), (1, 32)), phase_of(None, None)
    ('prefill', 'decode', 'decode', 'forward')
    """
    if shape is None:
        return FORWARD
    if shape[1] == 1:
        return DECODE
    if previous is not None and previous[0] == shape[0] and shape[1] == previous[1] + 1 and previous[1] > 1:
        return DECODE
    return PREFILL
