"""Do the columns of a timeline that was read from disk fit together? Every number that points is checked.

What later stages take for granted (rows sorted, parents before children, codes that exist) would end in
wrong figures or an endless loop if a damaged or forged session broke it.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.ids import NO_ID, TEXT_ID_BASE
from stallscope.profiler.kinds import Kind
from stallscope.profiler.timeline import ARG_BIGINT, ARG_JSON, ARG_SPILLED, ARG_STRING, StringTable, Timeline

_INTEGER = re.compile(r"-?[0-9]{1,4000}")
_BLOCK = 1 << 16
"""Rows looked at at once."""
_ROLES = ("host", "device", "label")


def fault(timeline: Timeline) -> str:
    """What does not fit, in a few words; "" if all does."""
    spans, strings, tracks = timeline.spans, len(timeline.strings), len(timeline.tracks)
    n, sources = len(spans), most_sources(len(spans), len(timeline.args))
    counters, flows, marks = timeline.counters, timeline.flows, timeline.marks
    ranges = (
        ("track", spans.track, 0, tracks),
        ("name", spans.name, 0, strings),
        ("category", spans.category, -1, strings),
        ("kind", spans.kind, 0, len(Kind)),
        ("parent", spans.parent, -1, n),
        ("launch_row", spans.launch_row, -1, n),
        ("depth", spans.depth, 0, n + 1),
        ("source", spans.source, 0, sources),
        ("flow", flows.from_row, -1, n),
        ("flow", flows.to_row, -1, n),
        ("flow name", flows.name, -1, strings),
        ("counter", counters.track, -1, tracks),
        ("counter name", counters.name, 0, strings),
        ("mark", marks.track, -1, tracks),
        ("mark name", marks.name, 0, strings),
        ("mark source", marks.source, -1, sources),
        ("allocation", timeline.allocations.track, -1, tracks),
    )
    for what, column, low, high in ranges:
        if not _within(column, low, high):
            return f"{what} out of range"
    return _rows(timeline) or _tracks(timeline)


def most_sources(spans: int, args: int) -> int:
    """Event numbers are those of the source, which may hold much that is no span; not without end, though."""
    return (1 << 24) + 64 * (spans + args)


def _within(column: npt.NDArray[Any], low: int, high: int) -> bool:
    return len(column) == 0 or (int(column.min()) >= low and int(column.max()) < high)


def are_ids(ids: npt.NDArray[np.int64], strings: StringTable) -> bool:
    """Whether a column of ids (`ids.encode_id`) names texts that are there."""
    return bool(((ids > TEXT_ID_BASE - len(strings)) | (ids == NO_ID)).all())


def _rows(timeline: Timeline) -> str:
    spans = timeline.spans
    if not _within(spans.start_ns, 1 - (1 << 62), 1 << 62) or not _within(spans.dur_ns, 0, 1 << 62):
        return "times out of range"
    for low in range(0, len(spans), _BLOCK):
        rows = slice(low, low + _BLOCK)
        if (spans.parent[rows] >= np.arange(low, min(low + _BLOCK, len(spans)))).any():
            return "a parent stands behind its child"
        track, start = (column[low : low + _BLOCK + 1] for column in (spans.track, spans.start_ns))
        if ((track[1:] < track[:-1]) | ((track[1:] == track[:-1]) & (start[1:] < start[:-1]))).any():
            return "rows out of order"
    return ""


def arguments_fault(columns: dict[str, Any], keys: list[str], strings: StringTable, sources: int) -> str:
    """As `fault`, for the columns of an ArgStore; `sources` bounds the event numbers."""
    event, key, tag, value = (columns[name] for name in ("event", "key", "tag", "value"))
    if not _within(event, 0, sources) or not _within(key, 0, len(keys)):
        return "argument out of range"
    if not _within(tag, 0, ARG_SPILLED + 1) or (event[1:] < event[:-1]).any():
        return "arguments out of order"
    is_text = np.isin(np.arange(256), (ARG_STRING, ARG_JSON, ARG_BIGINT))
    if not _within(value[is_text[tag]], 0, len(strings)):
        return "argument text out of range"
    for code in kernels.distinct(value[tag == ARG_BIGINT]).tolist():
        if not _INTEGER.fullmatch(strings[code]):
            return "an integer is none"
    return ""


def _tracks(timeline: Timeline) -> str:
    return "" if all(track.role in _ROLES for track in timeline.tracks) else "a track of unknown role"


__all__ = ["are_ids", "arguments_fault", "fault", "most_sources"]
