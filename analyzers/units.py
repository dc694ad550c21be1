"""Nanoseconds, bytes and shares as short text for sentences. Numbers in data stay integers."""

from __future__ import annotations


def duration(ns: int) -> str:
    """Three significant digits in the unit that fits.

    >>> duration(0), duration(950), duration(12_345), duration(9_100_000), duration(2_500_000_000)
    ('0 ns', '950 ns', '12.3 us', '9.10 ms', '2.50 s')
    """
    for limit, unit in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if abs(ns) >= limit:
            value = ns / limit
            digits = 2 if abs(value) < 10 else 1 if abs(value) < 100 else 0
            return f"{value:.{digits}f} {unit}"
    return f"{ns} ns"


def share(part_ns: int, whole_ns: int) -> str:
    """A percentage, "n/a" where there is no whole.

    >>> share(1, 3), share(1, 0)
    ('33.3 %', 'n/a')
    """
    return f"{100 * part_ns / whole_ns:.1f} %" if whole_ns else "n/a"


def size(count: float) -> str:
    """Bytes with a binary unit.

    >>> size(512), size(3 * 2**20)
    ('512 B', '3.0 MiB')
    """
    for limit, unit in ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if abs(count) >= limit:
            return f"{count / limit:.1f} {unit}"
    return f"{count:.0f} B"


def count(number: int, noun: str) -> str:
    """A number of things, the noun in the form that fits.

    >>> count(1, "gap"), count(3, "gap")
    ('1 gap', '3 gaps')
    """
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
