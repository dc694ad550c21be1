"""Which host call started which device work.

Order of trust: what the reader said, then the correlation id, then flow arrows, then the External
id; never a list of call names. One launch may start many kernels (a graph replay does).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.ids import NO_ID
from stallscope.profiler.kinds import DEVICE_WORK, Kind
from stallscope.profiler.notes import Notes
from stallscope.profiler.timeline import Flows, Int64, Spans, Track

_FIRST_WORK, _WORK_KINDS = min(DEVICE_WORK), len(DEVICE_WORK)
"""Their numbers follow each other."""
_LAUNCHERS = [int(Kind.RUNTIME), int(Kind.QUEUE)]
_SPREAD = np.int64(0x1E3779B97F4A7C15)


def is_device_work(kind: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
    """Rows of the four classes that make a device busy, shape of `kind`."""
    found: npt.NDArray[np.bool_] = kind.view(np.uint8) - np.uint8(_FIRST_WORK) < _WORK_KINDS
    return found


def join_launches(spans: Spans, flows: Flows, tracks: Sequence[Track], notes: Notes) -> None:
    """Fill `spans.launch_row` where it is still -1. Ids count within one rank; all ranks share one file."""
    on_device = is_device_work(spans.kind) | spans.of_kind(Kind.DEVICE_WAIT)
    works = np.flatnonzero(on_device)
    ambiguous = _join_by_correlation(spans, np.flatnonzero(spans.of_kind(Kind.RUNTIME)), works, tracks)
    _join_by_flow(spans, flows, on_device)
    works = works[spans.launch_row[works] < 0]
    if len(works):
        operators = np.flatnonzero(spans.of_kind(Kind.OPERATOR, Kind.RUNTIME))
        _join_by_external_id(spans, operators, works, tracks)
    notes.add("ambiguous-launch", "warning",
              "device events have an id that calls of several processes share; their launch is not known",
              int((spans.launch_row[ambiguous] < 0).sum()))  # fmt: skip


def submitters(spans: Spans, launches: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """For each launch row (-1 allowed) the host row that asked for it, shape of `launches`.

    Where a task queue lies between two threads, a launch runs inside a dequeue and the row that asked is the
    enqueue on the other thread (the dequeue's own `launch_row`); everywhere else it is the launch itself.
    """
    launch = np.asarray(launches, np.intp)
    if not spans.has_kind(Kind.QUEUE):
        return launch
    at = launch.copy()
    open_ = (at >= 0) & (spans.kind[np.maximum(at, 0)] != Kind.QUEUE)
    while open_.any():
        at[open_] = spans.parent[at[open_]]
        open_ = (at >= 0) & (spans.kind[np.maximum(at, 0)] != Kind.QUEUE)
    asked = np.where(at >= 0, spans.launch_row[np.maximum(at, 0)], -1)
    return np.where(asked >= 0, asked, launch).astype(np.intp)


def _with_id(spans: Spans, column: str, rows: npt.NDArray[np.intp]) -> tuple[npt.NDArray[np.intp], Int64]:
    """The rows that have an id, and their ids; 0 means "none" in every producer seen."""
    ids = spans.ids_at(column, rows)
    found = np.flatnonzero((ids != NO_ID) & (ids != 0))
    return rows.take(found), ids.take(found)


def _keys(spans: Spans, ids: Int64, rows: npt.NDArray[np.intp], tracks: Sequence[Track]) -> Int64:
    """The ids of rows, made to differ from rank to rank; with one rank, as they are."""
    if len({track.rank for track in tracks}) < 2:
        return ids
    ranks = np.array([track.rank for track in tracks], np.int64)
    with np.errstate(over="ignore"):
        return ids + (ranks[spans.track[rows]] + 2) * _SPREAD


def _join_by_external_id(
    spans: Spans,
    operators: npt.NDArray[np.intp],
    works: npt.NDArray[np.intp],
    tracks: Sequence[Track],
) -> None:
    (operators, ids), (works, work_ids) = (
        _with_id(spans, "external_id", rows) for rows in (operators, works)
    )
    if len(operators) == 0 or len(works) == 0:
        return
    keys, wanted = _keys(spans, ids, operators, tracks), _keys(spans, work_ids, works, tracks)
    spans.launch_row[works] = lookup(keys, operators, spans.start_ns[operators], wanted)


def _join_by_correlation(
    spans: Spans,
    launchers: npt.NDArray[np.intp],
    works: npt.NDArray[np.intp],
    tracks: Sequence[Track],
) -> npt.NDArray[np.intp]:
    """Returns the device rows whose launch cannot be told from those of other processes."""
    none = np.zeros(0, np.intp)
    launchers, ids = _with_id(spans, "correlation", launchers)
    works, work_ids = _with_id(spans, "correlation", works[spans.launch_row[works] < 0])
    if len(launchers) == 0 or len(works) == 0:
        return none
    keys, wanted = _keys(spans, ids, launchers, tracks), _keys(spans, work_ids, works, tracks)
    found = kernels.join(keys, wanted)
    spans.launch_row[works] = np.where(found >= 0, launchers[np.maximum(found, 0)], -1)
    # a driver call has the id of the runtime call around it; beyond that an id should come once
    parent = spans.parent[launchers]
    outer = (parent < 0) | (spans.ids_at("correlation", np.maximum(parent, 0)) != ids)
    launchers, keys = launchers[outer], keys[outer]
    common = kernels.repeated(keys)
    if len(common) == 0:
        return none
    return _join_repeated(
        spans, launchers[kernels.among(keys, common)], works[kernels.among(wanted, common)], tracks
    )


def _join_repeated(
    spans: Spans, launchers: npt.NDArray[np.intp], works: npt.NDArray[np.intp], tracks: Sequence[Track]
) -> npt.NDArray[np.intp]:
    """Works and calls of ids that several calls have: told apart by the process, if works name it, and by time.

    Returns the works for which several processes come into question; they get no launch.
    """
    code: dict[Any, int] = {}
    owners = np.array([code.setdefault((t.rank, t.process), len(code)) for t in tracks], np.int64)
    owner, of_work = owners[spans.track[launchers]], owners[spans.track[works]]
    rows = np.concatenate([launchers, works])
    keys = _keys(spans, spans.ids_at("correlation", rows), rows, tracks)
    known = kernels.among(of_work, owner)
    split = len(launchers)
    _by_time(spans, launchers, works[known], kernels.group(keys, np.concatenate([owner, of_work]))[0][
        np.concatenate([np.ones(split, bool), known])], owner)  # fmt: skip
    return _by_time(
        spans, launchers, works[~known], keys[np.concatenate([np.ones(split, bool), ~known])], owner
    )


def _by_time(
    spans: Spans,
    launchers: npt.NDArray[np.intp],
    works: npt.NDArray[np.intp],
    keys: npt.NDArray[Any],
    owner: Int64,
) -> npt.NDArray[np.intp]:
    """Link works to the first of the calls that stand right before them; `keys` of the launchers, then the works.

    An id is used by its calls, then by their works, and then perhaps again. Returns the works whose calls belong
    to several owners.
    """
    rows = np.concatenate([launchers, works])
    is_work = np.arange(len(rows)) >= len(launchers)
    order = np.lexsort((is_work, spans.start_ns[rows], keys))
    rows, keys, is_work = rows[order], keys[order], is_work[order]
    new_key = np.append(True, keys[1:] != keys[:-1])
    begins = ~is_work & (new_key | np.append(True, is_work[:-1]))
    run = np.cumsum(begins) - 1
    heads = np.flatnonzero(begins)
    owners = np.append(owner, np.full(len(works), -1))[order]
    strange = ~is_work & (owners != owners[heads[np.maximum(run, 0)]])
    mixed = np.bincount(run[strange], minlength=len(heads)) > 0
    at = np.flatnonzero(is_work)
    mine = run[at]
    # a work before the first call of its id belongs to that call: the clocks of device and host differ
    early = (mine < 0) | (keys[heads[np.maximum(mine, 0)]] != keys[at])
    mine = np.where(early, np.minimum(mine + 1, len(heads) - 1), mine)
    known = keys[heads[mine]] == keys[at]
    spans.launch_row[rows[at]] = np.where(known & ~mixed[mine], rows[heads[mine]], -1)
    unclear: npt.NDArray[np.intp] = rows[at[known & mixed[mine]]]
    return unclear


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
