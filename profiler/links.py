"""Which host call started which device work.

Order of trust: what the reader said, then the correlation id, then flow arrows, then the External
id; never a list of call names. One launch may start many kernels (a graph replay does).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler.ids import NO_ID
from stallscope.profiler.kinds import DEVICE_WORK, Kind
from stallscope.profiler.timeline import Flows, Int64, Spans

_ON_DEVICE = [int(k) for k in (*DEVICE_WORK, Kind.DEVICE_WAIT)]
_LAUNCHERS = [int(Kind.RUNTIME), int(Kind.QUEUE)]


def join_launches(spans: Spans, flows: Flows) -> None:
    """Fill `spans.launch_row` where it is still -1. Rows belong to one process or one file."""
    on_device = np.isin(spans.kind, _ON_DEVICE)
    launchers = np.flatnonzero(spans.kind == Kind.RUNTIME)
    _join_by_id(spans, spans.correlation, launchers, on_device)
    _join_by_flow(spans, flows, on_device)
    operators = np.flatnonzero((spans.kind == Kind.OPERATOR) | (spans.kind == Kind.RUNTIME))
    _join_by_id(spans, spans.external_id, operators, on_device)


def submitters(spans: Spans, launches: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """For each launch row (-1 allowed) the host row that asked for it, shape of `launches`.

    Where a task queue lies between two threads, a launch runs inside a dequeue and the row that asked is the
    enqueue on the other thread (the dequeue's own `launch_row`); everywhere else it is the launch itself.
    """
    launch = np.asarray(launches, np.intp)
    at = launch.copy()
    open_ = (at >= 0) & (spans.kind[np.maximum(at, 0)] != Kind.QUEUE)
    while open_.any():
        at[open_] = spans.parent[at[open_]]
        open_ = (at >= 0) & (spans.kind[np.maximum(at, 0)] != Kind.QUEUE)
    asked = np.where(at >= 0, spans.launch_row[np.maximum(at, 0)], -1)
    return np.where(asked >= 0, asked, launch).astype(np.intp)


def _join_by_id(
    spans: Spans, ids: Int64, launchers: npt.NDArray[np.intp], on_device: npt.NDArray[np.bool_]
) -> None:
    # id 0 means "none" in every producer seen
    launchers = launchers[(ids[launchers] != NO_ID) & (ids[launchers] != 0)]
    works = np.flatnonzero(on_device & (spans.launch_row < 0) & (ids != NO_ID) & (ids != 0))
    if len(launchers) == 0 or len(works) == 0:
        return
    spans.launch_row[works] = lookup(ids[launchers], launchers, spans.start_ns[launchers], ids[works])


def lookup(keys: Int64, rows: npt.NDArray[Any], start_ns: Int64, wanted: Int64) -> npt.NDArray[np.int32]:
    """The row of each wanted key, or -1; of several rows with one key the earliest start wins."""
    order = np.lexsort((start_ns, keys))
    sorted_keys = keys[order]
    at = np.searchsorted(sorted_keys, wanted)
    at = np.minimum(at, len(sorted_keys) - 1)
    hit = sorted_keys[at] == wanted
    return np.where(hit, rows[order][at], -1).astype(np.int32)


def _join_by_flow(spans: Spans, flows: Flows, on_device: npt.NDArray[np.bool_]) -> None:
    usable = (flows.from_row >= 0) & (flows.to_row >= 0)
    start, end = flows.from_row[usable], flows.to_row[usable]
    good = np.isin(spans.kind[start], [*_LAUNCHERS, int(Kind.OPERATOR)]) & on_device[end]
    good &= spans.launch_row[end] < 0
    spans.launch_row[end[good]] = start[good]
