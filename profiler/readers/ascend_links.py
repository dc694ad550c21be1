"""Which operator and which CANN call started each device event of an Ascend recording.

Launch calls, in the order of trust: the connection id both sides carry; the `HostToDevice` arrow, whose start
is a time inside the call (or, where the level records no calls, inside the dequeue); what the builder derives
from other arrows. Operators: the `async_npu` arrow; then from the launch call outwards on its thread; then,
where the task queue is on, from the dequeue to the enqueue of the same id and outwards on that thread.

A dequeue's `launch_row` is its enqueue, so a walk from a kernel reaches the operator:
kernel -> launch call -> (parents) dequeue -> enqueue -> (parents) operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import intervals, kernels
from stallscope.profiler.activity import flatten_rows
from stallscope.profiler.builder import TimelineBuilder
from stallscope.profiler.ids import NO_ID
from stallscope.profiler.kinds import DEVICE_WORK, Kind, is_graph_launch
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Notes
from stallscope.profiler.timeline import Int32, Int64, Timeline

LEVEL_ORDER = {"node": 0, "hccl": 1, "communication": 1, "acl": 2, "model": 3, "ge": 3, "runtime": 4}
"""Of several calls with one connection id the node launch is the one that starts the task."""

GRAPH_HOLE_NS = 50_000
"""A hole shorter than this after a graph replay is launch latency and says nothing."""

FEW_KERNELS = 4
"""A replayed graph of a model holds dozens of kernels; fewer per replay means that they were not recorded."""


@dataclass
class Arrows:
    """`HostToDevice` arrows, columns of shape (a,): host track and time of the start, device event at the end."""

    track: Int32
    time_ns: Int64
    event: Int64

    @classmethod
    def none(cls) -> Arrows:
        return cls(np.zeros(0, np.int32), np.zeros(0, np.int64), np.zeros(0, np.int64))


@dataclass
class Coverage:
    """How many device events found their launch call and their operator, and by what. -1 stands for n/a."""

    kernels: int = 0
    kernels_with_launch: int = 0
    kernels_with_operator: int = 0
    device_events: int = 0
    device_events_with_launch: int = 0
    device_events_with_operator: int = 0
    launch_by: dict[str, int] = field(default_factory=dict)
    operator_by: dict[str, int] = field(default_factory=dict)
    flows: dict[str, dict[str, int]] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        return dict(vars(self))


def link_by_connection(
    builder: TimelineBuilder,
    call_events: Int64,
    call_ids: Int64,
    call_order: npt.NDArray[np.int8],
    call_start_ns: Int64,
    work_events: Int64,
    work_ids: Int64,
) -> int:
    """Link device events to calls by equal connection ids; returns how many. NO_ID never matches.

    `call_order` is the LEVEL_ORDER of each call: the lowest wins, then the earliest.
    """
    known = call_ids != NO_ID
    call_events, call_ids = call_events[known], call_ids[known]
    if len(call_ids) == 0 or len(work_ids) == 0:
        return 0
    order = np.lexsort((call_start_ns[known], call_order[known], call_ids))
    ids = call_ids[order]
    at = np.minimum(np.searchsorted(ids, work_ids), len(ids) - 1)
    hit = (ids[at] == work_ids) & (work_ids != NO_ID)
    builder.link(call_events[order][at[hit]], work_events[hit])
    return int(hit.sum())


def link_queue(
    builder: TimelineBuilder, enqueues: Int64, enqueue_ids: Int64, dequeues: Int64, dequeue_ids: Int64
) -> int:
    """Make each dequeue point at the enqueue of its id; returns how many found one."""
    enqueues, enqueue_ids = enqueues[enqueue_ids != NO_ID], enqueue_ids[enqueue_ids != NO_ID]
    if len(enqueues) == 0 or len(dequeues) == 0:
        return 0
    order = np.argsort(enqueue_ids, kind="stable")
    ids = enqueue_ids[order]
    at = np.minimum(np.searchsorted(ids, dequeue_ids), len(ids) - 1)
    hit = (ids[at] == dequeue_ids) & (dequeue_ids != NO_ID)
    builder.link(enqueues[order][at[hit]], dequeues[hit])
    builder.add_flows(enqueues[order][at[hit]], dequeues[hit], builder.strings.code("async_task_queue"))
    return int(hit.sum())


def finish_links(
    builder: TimelineBuilder, timeline: Timeline, arrows: Arrows, by_connection: int
) -> Coverage:
    """Follow the arrows that end inside a call, then count what is linked. Changes `launch_row`."""
    spans = timeline.spans
    by_arrow = _follow_arrows(builder, timeline, arrows)
    work = timeline.device_work()
    kernel = np.isin(spans.kind[work], [int(Kind.KERNEL), int(Kind.COLLECTIVE)])
    launch = spans.launch_row[work]
    to_call = launch >= 0
    to_call[to_call] &= np.isin(spans.kind[launch[to_call]], [int(Kind.RUNTIME), int(Kind.QUEUE)])
    operator, by_flow = operators_of(timeline, work)
    cover = Coverage(
        kernels=int(kernel.sum()),
        kernels_with_launch=int((to_call & kernel).sum()),
        kernels_with_operator=int(((operator >= 0) & kernel).sum()),
        device_events=len(work),
        device_events_with_launch=int(to_call.sum()),
        device_events_with_operator=int((operator >= 0).sum()),
        launch_by={"connection_id": by_connection, "host_to_device": by_arrow},
        operator_by={"async_npu": int(by_flow.sum()), "call_chain": int(((operator >= 0) & ~by_flow).sum())},
    )
    return cover


def _follow_arrows(builder: TimelineBuilder, timeline: Timeline, arrows: Arrows) -> int:
    """Link device events whose arrow starts inside a call, or inside a dequeue where no call was recorded."""
    if len(arrows.event) == 0:
        return 0
    spans = timeline.spans
    rows = builder.rows(arrows.event)
    current = np.where(rows >= 0, spans.launch_row[np.maximum(rows, 0)], -1)
    is_call = (current >= 0) & (spans.kind[np.maximum(current, 0)] == Kind.RUNTIME)
    open_ = np.flatnonzero((rows >= 0) & ~is_call)
    time_ns = arrows.time_ns - timeline.origin_ns
    linked = 0
    for track in kernels.distinct(arrows.track[open_]).tolist():
        mine = open_[arrows.track[open_] == track]
        owner = innermost(timeline, track, time_ns[mine], (Kind.RUNTIME,))
        missing = owner < 0
        owner[missing] = innermost(timeline, track, time_ns[mine[missing]], (Kind.QUEUE,))
        hit = owner >= 0
        spans.launch_row[rows[mine[hit]]] = owner[hit]
        linked += int(hit.sum())
    return linked


def innermost(
    timeline: Timeline, track: int, time_ns: Int64, kinds: tuple[Kind, ...]
) -> npt.NDArray[np.intp]:
    """The innermost span of some kinds that holds each time on one host track, or -1. Ends are inclusive."""
    span_rows = np.arange(timeline.track_rows(track).start, timeline.track_rows(track).stop)
    span_rows = span_rows[np.isin(timeline.spans.kind[span_rows], [int(k) for k in kinds])]
    start, end, row = flatten_rows(timeline, span_rows).owned()
    found = np.full(len(time_ns), -1, np.intp)
    if len(start) == 0 or len(time_ns) == 0:
        return found
    at = np.searchsorted(start, time_ns, side="right") - 1
    inside = (at >= 0) & (time_ns <= end[np.maximum(at, 0)])
    found[inside] = row[at[inside]]
    return found


def nearest_above(timeline: Timeline, kind: Kind) -> Int64:
    """For every row the nearest of itself and its parents that is of a kind, or -1. Shape (n,)."""
    spans = timeline.spans
    n = len(spans)
    is_kind = spans.kind == kind
    jump = np.where(is_kind | (spans.parent < 0), np.arange(n), spans.parent).astype(np.int64)
    # each round doubles the reach, so a deep stack takes few rounds
    while n:
        further = jump[jump]
        if np.array_equal(further, jump):
            break
        jump = further
    return np.where(is_kind[jump], jump, -1) if n else jump


def operators_of(timeline: Timeline, rows: npt.NDArray[Any]) -> tuple[Int64, npt.NDArray[np.bool_]]:
    """The operator that caused each device row, or -1, and whether an `async_npu` arrow said so."""
    spans, flows = timeline.spans, timeline.flows
    operator = np.full(len(spans), -1, np.int64)
    code = timeline.strings.find("async_npu")
    told = (flows.name == code) & (flows.from_row >= 0) & (flows.to_row >= 0) & (code >= 0)
    operator[flows.to_row[told]] = flows.from_row[told]
    by_flow = operator[rows] >= 0
    above = nearest_above(timeline, Kind.OPERATOR)
    queue = nearest_above(timeline, Kind.QUEUE)
    launch = spans.launch_row[rows].astype(np.int64)
    chain = np.where(launch >= 0, above[np.maximum(launch, 0)], -1)
    dequeue = np.where(launch >= 0, queue[np.maximum(launch, 0)], -1)
    enqueue = np.where(dequeue >= 0, spans.launch_row[np.maximum(dequeue, 0)], -1)
    over_queue = np.where(enqueue >= 0, above[np.maximum(enqueue, 0)], -1)
    chain = np.where(chain >= 0, chain, over_queue)
    return np.where(by_flow, operator[rows], chain), by_flow


def device_ranges(
    timeline: Timeline, host_steps: Mapping[int, tuple[int, int]]
) -> dict[int, tuple[int, int]]:
    """Each host step's range on the device, absolute ns, as the profiler's own tables have it.

    It runs from the first task of the first call that the step made to the later of the end of the last call's
    tasks and the host step's end. Where the task queue is on, a call is made when it is enqueued; what went around
    the queue is then not asked. A step whose calls started nothing keeps its time on the host.
    """
    spans = timeline.spans
    rows = timeline.device_work()
    launch = spans.launch_row[rows].astype(np.int64)
    queue = nearest_above(timeline, Kind.QUEUE)
    dequeue = np.where(launch >= 0, queue[np.maximum(launch, 0)], -1)
    enqueue = np.where(dequeue >= 0, spans.launch_row[np.maximum(dequeue, 0)], -1)
    call = enqueue if (enqueue >= 0).any() else launch
    rows, call = rows[call >= 0], call[call >= 0]
    made = spans.start_ns[call] + timeline.origin_ns
    order = np.argsort(made, kind="stable")
    rows, made = rows[order], made[order]
    start, end = spans.start_ns[rows] + timeline.origin_ns, spans.end_at(rows) + timeline.origin_ns
    out: dict[int, tuple[int, int]] = {}
    for step, (low, high) in sorted(host_steps.items(), key=lambda item: item[1]):
        a, b = np.searchsorted(made, low, side="left"), np.searchsorted(made, high, side="right")
        if a == b:
            out[step] = low, high
            continue
        of_first = slice(int(a), int(np.searchsorted(made, made[a], side="right")))
        of_last = slice(int(np.searchsorted(made, made[b - 1], side="left")), int(b))
        out[step] = int(start[of_first].min()), max(int(end[of_last].max()), high)
    return out


def graph_replays(timeline: Timeline, cover: Coverage, notes: Notes) -> dict[str, Any]:
    """Graph replays and the device holes after them whose kernels may not have been recorded.

    A replay starts many kernels with one call. Profilers of some versions record none of them, and the
    hole that is left looks like a starving device.
    """
    spans = timeline.spans
    calls = np.flatnonzero((spans.kind == Kind.RUNTIME) & timeline.match_names(is_graph_launch))
    calls = _outermost(timeline, calls)
    if len(calls) == 0:
        return {}
    started = spans.start_ns[np.sort(calls)]
    calls = calls[np.argsort(spans.start_ns[calls], kind="stable")]
    started = spans.start_ns[calls]
    work = timeline.rows(Kind.KERNEL, Kind.COLLECTIVE)
    linked = np.isin(spans.launch_row[work], calls)
    after = np.searchsorted(started, spans.start_ns[work], side="right") - 1
    per_replay = np.bincount(after[after >= 0], minlength=len(calls))
    facts: dict[str, Any] = {
        "replays": len(calls),
        "kernels_linked": int(linked.sum()),
        "kernels_per_replay_median": float(np.median(per_replay)),
    }
    if linked.any() or np.median(per_replay) >= FEW_KERNELS:
        return facts
    starts, ends = _holes_after(timeline, started)
    facts["holes"] = len(starts)
    facts["hole_ns"] = int((ends - starts).sum())
    facts["longest_holes"] = [
        {"start_ns": int(starts[i]), "dur_ns": int(ends[i] - starts[i])}
        for i in np.argsort(starts - ends, kind="stable")[:20].tolist()
    ]
    notes.add(
        "unrecorded-graph-kernels",
        "warning",
        f"after graph replays the device seems idle for {len(starts)} holes of together "
        f"{int((ends - starts).sum()) // 1000} us: possibly unrecorded graph kernels, so idle times are uncertain",
        len(starts),
        timeline.name(int(calls[0])),
    )
    return facts


def _outermost(timeline: Timeline, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Rows whose parent is none of them: nested levels of one call are one replay."""
    chosen = np.zeros(len(timeline.spans), bool)
    chosen[rows] = True
    parent = timeline.spans.parent[rows]
    return rows[~((parent >= 0) & chosen[np.maximum(parent, 0)])]


def _holes_after(timeline: Timeline, started: Int64) -> tuple[Int64, Int64]:
    """Holes in the device's work that begin after some graph replay began."""
    spans = timeline.spans
    work = timeline.rows(*DEVICE_WORK)
    starts, ends = intervals.gaps(intervals.union(spans.start_ns[work], spans.end_at(work)))
    last = np.searchsorted(started, ends, side="left") - 1
    starts = np.where(last >= 0, np.maximum(starts, started[np.maximum(last, 0)]), starts)
    keep = (last >= 0) & (ends - starts >= GRAPH_HOLE_NS)
    return starts[keep], ends[keep]


def note_links(timeline: Timeline, cover: Coverage, had_links: bool, notes: Notes) -> None:
    """Say what the links cover, or that there are none to judge by."""
    if cover.device_events == 0:
        notes.add("no-device-activity", "warning",
                  "no device activity was recorded: the profiler was asked for CPU activities only or for "
                  "Level_none, the msprof command was missing when the recording was analysed, or nothing ran")  # fmt: skip
        return
    if not had_links:
        notes.add("host-device-links-missing", "warning",
                  "nothing in the recording links device events to the host (no HostToDevice arrows, no connection "
                  "ids): which call and which operator started a kernel is not known", cover.device_events)  # fmt: skip
        cover.kernels_with_launch = cover.device_events_with_launch = -1
        cover.kernels_with_operator = cover.device_events_with_operator = -1
        return
    unlinked = cover.device_events - cover.device_events_with_launch
    notes.add("unlinked-device-events", "info" if unlinked * 20 < cover.device_events else "warning",
              f"of {cover.device_events} device events have no launch call in the recording", unlinked)  # fmt: skip
    _note_inversions(timeline, notes)


def _note_inversions(timeline: Timeline, notes: Notes) -> None:
    spans = timeline.spans
    work = timeline.device_work()
    linked = work[spans.launch_row[work] >= 0]
    delay = spans.start_ns[linked] - spans.start_ns[spans.launch_row[linked]]
    early = delay < 0
    if early.any():
        notes.add("clock-inversion", "warning",
                  f"of {len(linked)} device events start before their launch call, by at most {-int(delay.min())} ns: "
                  "host and device clocks agree no better than that", int(early.sum()))  # fmt: skip
