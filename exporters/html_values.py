"""Plain values of a report as text for cells and lists: the unit is told by the key, a missing value is "n/a"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from stallscope.analyzers.finding import Step
from stallscope.analyzers.units import duration, size
from stallscope.exporters.html_text import clean

LONGEST_VALUE = 600


def fact_text(key: str, value: Any) -> str:
    """A fact with its unit, which its key ends with: `_ns`, `_bytes`, `_share`, `_per_s`.

    >>> fact_text("median_gap_ns", 12_345), fact_text("kv_bytes", 3 * 2**20), fact_text("x", None)
    ('12.3 us', '3.0 MiB', 'n/a')
    """
    if value is None:
        return "n/a"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return number_format(key)(value)
    return clean(_nested(key, value), LONGEST_VALUE)


_NEEDS_NO_NAME = frozenset({"place", "name", "ns", "text"})
_NO_COUNTS = ("version", "Version", "rank", "pid", "_id", "year")
_UNITS = ("_ns", "_bytes", "_per_s", "_share", "_percent")


def _nested(key: str, value: Any) -> str:
    """Text of any plain value; what is inside lists and objects is written with its own unit."""
    if isinstance(value, Mapping):
        # `{"split_ns": {"python": 3}}`: what is inside has the unit of the whole unless it names its own
        unit = key[key.rfind("_") :] if key.endswith(_UNITS) else ""
        told = [(str(k), v) for k, v in value.items() if v not in ("", [], {})]
        named = [(k, k if k.endswith(_UNITS) else f"{k}{unit}", v) for k, v in told]
        plain_keys = {k for k, _, _ in named} & _NEEDS_NO_NAME
        texts = [
            fact_text(u, v) if k in plain_keys else f"{column_title(k)} {fact_text(u, v)}"
            for k, u, v in named
        ]
        return (" " if plain_keys else "; ").join(texts) or "none"
    if isinstance(value, list):
        if any(isinstance(v, Mapping) for v in value):
            return "; ".join(fact_text(key, v) for v in value)
        return ", ".join(fact_text(key, v) for v in value)
    return str(value)


@lru_cache(maxsize=512)
def number_format(key: str) -> Callable[[float], str]:
    """How numbers under a key are written."""
    if key.endswith(_NO_COUNTS):
        return str
    if key == "ns" or key.endswith(("_ns", "_ns_per_step")):
        return lambda value: duration(round(value))
    if key.endswith("bytes"):
        return size
    if key.endswith(("bytes_per_s", "flops_per_s")):
        return _rate_in("B/s" if "bytes" in key else "FLOP/s")
    if key.endswith(("_share", "share", "_ratio_of_peak")):
        return lambda value: f"{100 * value:.1f} %"
    if key.endswith("_percent"):
        return lambda value: f"{value:.1f} %"
    return lambda value: f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _rate_in(unit: str) -> Callable[[float], str]:
    def rate(value: float) -> str:
        for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
            if abs(value) >= limit:
                return f"{value / limit:.3g} {prefix}{unit}"
        return f"{value:.3g} {unit}"

    return rate


def time_text(value: Any) -> str:
    return duration(round(value)) if isinstance(value, int | float) else "n/a"


def count_text(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "n/a"


def column_title(key: str) -> str:
    """A key as a column's heading: the unit is in the cells.

    >>> column_title("exposed_memcpy_ns"), column_title("flops_per_s")
    ('exposed memcpy', 'FLOP/s')
    """
    if key.endswith("flops_per_s"):
        return (key.removesuffix("flops_per_s").replace("_", " ") + "FLOP/s").strip()
    if key.endswith("bytes_per_s"):
        return (key.removesuffix("bytes_per_s").replace("_", " ") + "bytes/s").strip()
    return clean(key.removesuffix("_ns").replace("_", " "), 60)


def phase_rows(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Count, median and p99 (nearest rank, so always a duration that occurred) of each phase's steps."""
    by_phase: dict[str, list[int]] = {}
    for step in steps:
        by_phase.setdefault(step.phase, []).append(step.dur_ns)
    rows = []
    for phase, values in sorted(by_phase.items(), key=lambda item: -len(item[1])):
        values.sort()
        n = len(values)
        rows.append(
            {
                "phase": phase,
                "steps": n,
                "median_ns": values[(n - 1) // 2],
                "p99_ns": values[-(-99 * n // 100) - 1],
                "min_ns": values[0],
                "max_ns": values[-1],
            }
        )
    return rows
