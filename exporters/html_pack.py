"""Columns and JSON as the text of a data island: byte planes, deflated, in base64."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels

LARGE = 1 << 18
"""Bytes from which on time counts more than size."""

_BLOCK = 1 << 15
"""Values looked at at once."""

Int64 = npt.NDArray[np.int64]
Rows = npt.NDArray[np.intp]


def pack_json(value: Any) -> str:
    """JSON, deflated, as base64 text."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return deflated(text.encode("ascii"))


def deflated(raw: bytes) -> str:
    """Bytes as zlib level 6 in base64; level 9 is 1 % smaller and takes four times as long. Of what is large, what is
    fast: a sixth larger in a tenth of the time."""
    return base64.b64encode(zlib.compress(raw, 6) if len(raw) < LARGE else _fast(raw)).decode("ascii")


def _fast(raw: bytes) -> bytes:
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.compress(raw, 3)
    return bytes(isal_zlib.compress(raw, 2))


def planes(values: npt.NDArray[Any]) -> tuple[bytes, int]:
    """Byte planes of non-negative integers and how many: the fewest that hold the largest value.

    >>> planes(np.array([1, 258]))
    (b'\\x01\\x02\\x00\\x01', 2)
    """
    if len(values) == 0:
        return b"", 1
    width = max(1, (int(values.max()).bit_length() + 7) // 8)
    little = values.dtype.newbyteorder("<")
    raw = np.ascontiguousarray(values, little).view(np.uint8).reshape(-1, values.dtype.itemsize)
    return raw[:, :width].T.tobytes(), width


def zigzag(values: npt.NDArray[Any]) -> Int64:
    """Small integers of either sign as small non-negative ones: 0, -1, 1, -2 ... become 0, 1, 2, 3 ..."""
    return _zigzag(np.array(values, np.int64))


def zigzag_steps(values: npt.NDArray[Any]) -> Int64:
    """From each value to the next, the first one from 0, in the same way. Shape of `values`."""
    return _zigzag(steps(values))


def steps(values: npt.NDArray[Any]) -> Int64:
    """From each value to the next, the first one from 0. Shape of `values`."""
    out = np.array(values, np.int64)
    np.subtract(values[1:], values[:-1], out=out[1:])
    return out


def _zigzag(out: Int64) -> Int64:
    for low in range(0, len(out), _BLOCK):
        some = out[low : low + _BLOCK]
        sign = some >> 63
        some <<= 1
        some ^= sign
    return out


def extremes(values: npt.NDArray[np.float64], most: int) -> Rows:
    """Indices of at most `most` values: everything, or first, lowest and highest of equal buckets.

    >>> extremes(np.array([1.0, 9.0, 2.0, 3.0, 0.0, 4.0]), 4).tolist()
    [0, 1, 3, 4]
    """
    if len(values) <= most:
        return np.arange(len(values))
    if most < 2:
        return np.zeros(0, np.intp)
    heads = kernels.distinct(np.linspace(0, len(values), most // 2 + 1).astype(np.intp))[:-1]
    bucket = np.repeat(np.arange(len(heads)), np.diff(heads, append=len(values)))
    picks = np.zeros(len(values), bool)
    for best in (np.minimum, np.maximum):
        at = np.flatnonzero(values == best.reduceat(values, heads).take(bucket))
        picks[at[np.append(True, np.diff(bucket.take(at)) > 0)]] = True  # the first of equal ones
    return np.flatnonzero(picks)
