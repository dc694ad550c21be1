"""Steps from repetition alone: a sequence of names (kernels of a stream, operators of a thread) that comes again.

A step is looked for as the stretch between two occurrences of one name. Stretches are compared by a rolling
hash, so all names are tried in one pass of n log n. A layer repeats as well, and it must not be taken for a step:
a step holds an inner repetition (its layers), or work that belongs to a step and not to a layer (sampling, a copy of
the token to the host). Where neither is seen, nothing is found. Idea: DeepProf (arXiv 1707.03750), by suffix trees.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.light import dataclass

Codes = npt.NDArray[Any]
Positions = npt.NDArray[np.int64]

LEAST_REPEATS = 3
"""A stretch seen fewer times than this is chance."""
LEAST_LENGTH = 4
"""Shorter stretches are no steps."""
LEAST_COVER = 0.6
"""The repeated stretch must make up this share of the whole sequence."""
EXAMINED = 200_000
"""The period is looked for in this many names from the start, its places then in all of them."""

_TAIL = re.compile(
    r"arg_?max|argmax|ArgMaxOps|multinomial|sampl|top_?[kp]_?(?:mask|renorm|sampl)|Memcpy DtoH|MEMCPY_D2H",
    re.IGNORECASE,
)


def is_tail(name: str) -> bool:
    """Whether a kernel or copy of this name belongs to a step and not to a layer.

    >>> is_tail("Memcpy DtoH (Device -> Pageable)"), is_tail("rms_norm_kernel")
    (True, False)
    """
    return _TAIL.search(name) is not None


_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that it has an inverse modulo 2**64


@dataclass(frozen=True)
class Pattern:
    """A repeated stretch: `starts` are the positions at which it begins, `length` how many names it has.

    `exact` tells that the stretches are equal name by name, not only made of the same names.
    """

    starts: Positions
    length: int
    exact: bool


def find_pattern(codes: Codes, is_tail: npt.NDArray[np.bool_]) -> Pattern | None:
    """The stretch that a sequence of name codes repeats, None where it repeats none that could be a step.

    `is_tail` marks names that belong to a step and not to a layer, shape of `codes`.
    """
    if len(codes) < LEAST_REPEATS * LEAST_LENGTH:
        return None
    head = codes[:EXAMINED]
    for exact in (True, False):
        found = _best(head, is_tail[: len(head)], exact)
        if found is not None:
            name, length, value = found
            starts = _places(codes, name, length, value, exact)
            if len(starts) >= LEAST_REPEATS:
                return Pattern(starts, length, exact)
    return None


def _mixed(codes: Codes) -> npt.NDArray[np.uint64]:
    """A random-looking 64-bit number per code (splitmix64), so that sums and polynomials seldom collide."""
    x = (codes.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(x ^ (x >> np.uint64(31)), np.uint64)


def stretch_hashes(
    codes: Codes, start: Positions, stop: Positions, *, ordered: bool = True
) -> npt.NDArray[np.uint64]:
    """A hash of each stretch [start, stop) of a sequence; of its names regardless of order if not `ordered`.

    Equal stretches have equal hashes wherever they stand. Shape (k,).
    """
    values = _mixed(codes)
    if ordered:
        values = values * _powers(len(codes), int(_BASE))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(values, dtype=np.uint64)])
    out = sums[stop] - sums[start]
    if ordered:
        out = out * _powers(len(codes) + 1, pow(int(_BASE), -1, 1 << 64))[start]
    return np.asarray(out, np.uint64)


def _powers(count: int, base: int) -> npt.NDArray[np.uint64]:
    steps = np.full(count, base, np.uint64)
    steps[:1] = 1
    return np.asarray(np.cumprod(steps, dtype=np.uint64), np.uint64)


def _pairs(codes: Codes) -> tuple[Positions, Positions]:
    """Positions of consecutive occurrences of one name: from each to the next."""
    order = np.argsort(codes, kind="stable")
    same = codes[order][1:] == codes[order][:-1]
    return order[:-1][same].astype(np.int64), order[1:][same].astype(np.int64)


def _best(codes: Codes, is_tail: npt.NDArray[np.bool_], exact: bool) -> tuple[int, int, int] | None:
    """Name, length and hash of the longest repeated stretch that could be a step, or None."""
    start, stop = _pairs(codes)
    if len(start) == 0:
        return None
    length = stop - start
    value = stretch_hashes(codes, start, stop, ordered=exact)
    kinds = value ^ _mixed(codes[start])
    _, first, inverse, count = np.unique(kinds, return_index=True, return_inverse=True, return_counts=True)
    cover = count * length[first]
    fits = (count >= LEAST_REPEATS) & (length[first] >= LEAST_LENGTH) & (cover >= LEAST_COVER * len(codes))
    if not exact:
        fits &= length[first] > LEAST_LENGTH
    inside = _Inside(start, length, value, np.asarray(inverse).reshape(-1), count)
    tails = np.concatenate([[0], np.cumsum(is_tail)])
    candidates = np.flatnonzero(fits)
    # the longest, and of equally long ones the one that begins first
    for k in candidates[np.lexsort((start[first[candidates]], -length[first[candidates]]))].tolist():
        at, size = int(start[first[k]]), int(length[first[k]])
        if _distinct(codes[at : at + size]) < 2:
            continue
        tail = int(tails[at + size] - tails[at])
        if inside.repeats(at, size, int(count[k])) or 0 < tail <= max(size // 4, 1):
            return int(codes[at]), size, int(value[first[k]])
    return None


def _distinct(codes: Codes) -> int:
    return len(kernels.distinct(codes))


@dataclass(frozen=True)
class _Inside:
    """All pairs of a sequence, to ask whether a stretch repeats something inside of it."""

    start: Positions
    length: Positions
    value: npt.NDArray[np.uint64]
    kind: npt.NDArray[np.intp]
    count: npt.NDArray[np.intp]

    def repeats(self, at: int, size: int, times: int) -> bool:
        """Whether [at, at + size) holds a shorter stretch twice in a row, in each of its `times` repeats."""
        inner = (self.start >= at) & (self.start + 2 * self.length <= at + size) & (self.length >= 3)
        inner &= self.count[self.kind] >= times
        rows = np.flatnonzero(inner)
        if len(rows) == 0:
            return False
        # the same stretch again, right behind itself
        ends = {
            (int(s + n), int(v))
            for s, n, v in zip(self.start[rows], self.length[rows], self.value[rows], strict=True)
        }
        behind = (self.start >= at) & (self.start + self.length <= at + size) & (self.length >= 3)
        return any(
            (int(s), int(v)) in ends for s, v in zip(self.start[behind], self.value[behind], strict=True)
        )


def _places(codes: Codes, name: int, length: int, value: int, exact: bool) -> Positions:
    """All positions at which the stretch begins; overlapping ones cannot be, since `name` stands once in each."""
    start = np.flatnonzero(codes == name).astype(np.int64)
    start = start[start + length <= len(codes)]
    equal = stretch_hashes(codes, start, start + length, ordered=exact) == np.uint64(value)
    return np.asarray(start[equal], np.int64)


def rotate(pattern: Pattern, codes: Codes, times: npt.NDArray[np.int64]) -> Pattern:
    """The same repetition, begun after its widest pause: between steps there is usually one.

    `codes` and `times` are those of the whole sequence. A stretch at either end may fall away or be won.
    """
    at = pattern.starts[:, None] + np.arange(pattern.length)
    pause = times[at] - times[np.maximum(at - 1, 0)]
    shift = int(np.argmax(np.median(pause, axis=0)))
    starts = kernels.distinct(
        np.concatenate([pattern.starts + shift - pattern.length, pattern.starts + shift])
    )
    starts = starts[(starts >= 0) & (starts + pattern.length <= len(codes))]
    values = stretch_hashes(codes, starts, starts + pattern.length, ordered=pattern.exact)
    kinds, count = np.unique(values, return_counts=True)
    starts = starts[values == kinds[np.argmax(count)]] if len(kinds) else starts
    # where the repetition breaks off, a turned stretch may overlap the next one
    apart = np.append(np.diff(starts) >= pattern.length, True)
    return Pattern(starts[apart], pattern.length, pattern.exact)
