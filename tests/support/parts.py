"""Holds two timelines of the same part against each other, however each was loaded."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from stallscope.profiler.timeline import Timeline

TABLES = ("spans", "flows", "counters", "allocations", "marks")


def differences(a: Timeline, b: Timeline) -> list[str]:
    """The columns in which two timelines differ; texts and ids are compared by what they say."""
    if len(a) != len(b):
        return [f"rows: {len(a)} and {len(b)}"]
    out = [what for what in ("origin_ns", "clock", "tracks") if getattr(a, what) != getattr(b, what)]
    for table in TABLES:
        left, right = getattr(a, table), getattr(b, table)
        for spec in dataclasses.fields(left):
            one, other = (_plain(t, spec.name, getattr(x, spec.name)) for t, x in ((a, left), (b, right)))
            if one != other:
                out.append(f"{table}.{spec.name}")
    step = max(len(a) // 400, 1)
    if any(a.arguments(row) != b.arguments(row) for row in range(0, len(a), step)):
        out.append("arguments")
    return out


def _plain(timeline: Timeline, column: str, values: Any) -> list[Any]:
    if column in ("name", "category"):
        return [timeline.strings[int(code)] if code >= 0 else None for code in values]
    if column == "correlation":
        return [timeline.correlation(row) for row in range(len(values))]
    if column == "external_id":
        return [timeline.external_id(row) for row in range(len(values))]
    return list(np.asarray(values).tolist())
