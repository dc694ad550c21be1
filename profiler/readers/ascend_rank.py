"""What all Ascend readers share: one rank's tracks, device tasks, kernel attributes and host rows.

The text reader, the database reader and the msprof reader turn their sources into these columns, so the
same run gives the same timeline whichever of its files is read.

Device tasks are classed by task type, never by guesswork on names:

    kernel       AI Core, vector, mixed, AI CPU and DSA tasks
    collective   an operation of a communication group (its small tasks are labels: they make it up)
    memcpy       SDMA and PCIe copies that belong to no collective
    device wait  event and notify waits and records
    label        profiler marks, placeholders, derived rows such as "Overlap Analysis"
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler.builder import TimelineBuilder
from stallscope.profiler.ids import NO_ID, decode_id, encode_id
from stallscope.profiler.kernels import distinct
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.readers.ascend_table import Column, Table, clean, to_float
from stallscope.profiler.timeline import (
    ARG_FLOAT,
    ARG_INT,
    ARG_JSON,
    ARG_STRING,
    NO_TIME,
    ArgStore,
    Int32,
    Int64,
    StringTable,
    Track,
)

SAME_START_NS = 1_000
"""A kernel of kernel_details.csv and of the trace are one if their names agree and their starts differ by
no more: the two files round the same counter differently (1 ns seen), and one task never starts twice in a us."""

MAX_DEVICE, MAX_RANK = 1 << 16, 1 << 24
"""Numbers beyond these are damage, not devices and ranks."""

COLLECTIVE_CORES = ("HCCL", "COMMUNICATION")
NO_CONTEXT = 4294967295

_KERNEL_TYPES = re.compile(
    r"^(AI_?CORE|AI_VECTOR_CORE|MIX_|AI_?CPU|KERNEL_|DSA|STARS_COMMON|FFTS|AIV|AIC)", re.IGNORECASE
)
_COPY_TYPES = re.compile(r"MEMCPY|DMA|RDMA", re.IGNORECASE)
_SYNC_TYPES = re.compile(r"WAIT|RECORD|WRITE.?VALUE|NOTIFY|EVENT|BARRIER", re.IGNORECASE)
_LABEL_TYPES = re.compile(r"PLACE_?HOLDER|PROFIL|TIMEOUT|MSTX|MSPROF|MARKER", re.IGNORECASE)


def task_kind(task_type: str, name: str) -> Kind | None:
    """What a device task of this type is; None for a type that is not known.

    >>> task_kind("AI_CORE", "MatMulV3").name, task_kind("Notify Wait", "x").name
    ('KERNEL', 'DEVICE_WAIT')
    """
    if name.startswith(("PROFILING_", "TASK_TIMEOUT")):
        return Kind.DEVICE_ANNOTATION
    if name.upper().startswith(("EVENT_", "NOTIFY_")) or _SYNC_TYPES.search(task_type):
        return Kind.DEVICE_WAIT
    if name.upper().startswith("MEMSET") and not _KERNEL_TYPES.match(task_type):
        return Kind.MEMSET
    if name.upper().startswith("MEMCPY") or _COPY_TYPES.search(task_type):
        return Kind.MEMCPY
    if _LABEL_TYPES.search(task_type):
        return Kind.DEVICE_ANNOTATION
    return Kind.KERNEL if _KERNEL_TYPES.match(task_type) else None


def core_name(text: str) -> str:
    """One spelling of an accelerator core: HCCL became COMMUNICATION, databases write KERNEL_AIVEC."""
    return {"HCCL": "COMMUNICATION", "KERNEL_AICORE": "AI_CORE", "KERNEL_AIVEC": "AI_VECTOR_CORE",
            "KERNEL_AICPU": "AI_CPU"}.get(text, text)  # fmt: skip


@dataclass
class ArgColumn:
    """One argument of some kernels: `rows` index the kernel table, `tag` and `value` as in ArgStore."""

    key: str
    rows: npt.NDArray[np.intp]
    tag: int
    value: Int64


@dataclass
class Kernels:
    """Rows of kernel_details.csv, op_summary.csv or COMPUTE_TASK_INFO; columns of shape (k,).

    `stream` holds `ids.encode_id` values; `dur_ns` is -1 where the table has none, until the tasks it is matched
    with tell it; `step` -1 where the kernel belongs to none; `name`, `core` and
    `op_type` are codes of the rank's strings.
    """

    start_ns: Int64
    dur_ns: Int64
    name: Int32
    device: Int32
    stream: Int64
    core: Int32
    op_type: Int32
    is_collective: npt.NDArray[np.bool_]
    step: Int64
    args: list[ArgColumn] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> Int64:
        return self.start_ns + self.dur_ns


@dataclass
class DeviceTasks:
    """Tasks of device streams, columns of shape (n,).

    `stream` and `connection` are `ids.encode_id` values, `task_type` a string code (-1 none), `subtask`
    whether the task is part of a larger one (FFTS context), `in_collective` whether a collective's own list of
    tasks names it, `source` the event's argument key.
    """

    start_ns: Int64
    dur_ns: Int64
    name: Int32
    device: Int32
    stream: Int64
    task_type: Int32
    connection: Int64
    subtask: npt.NDArray[np.bool_]
    source: Int32 | None = None
    in_collective: npt.NDArray[np.bool_] | None = None

    def __len__(self) -> int:
        return len(self.start_ns)


@dataclass
class GroupOps:
    """Operations of communication groups, columns of shape (n,); `group` is a lane number per group."""

    start_ns: Int64
    dur_ns: Int64
    name: Int32
    device: Int32
    group: Int64
    connection: Int64
    source: Int32 | None = None

    def __len__(self) -> int:
        return len(self.start_ns)


class RankBuilder:
    """Collects one rank. `notes` are the builder's."""

    def __init__(self, rank: int, strings: StringTable | None = None, args: ArgStore | None = None) -> None:
        self.rank = rank
        self.builder = TimelineBuilder(strings, args)
        self.notes = self.builder.notes
        self.strings = self.builder.strings
        self.kernels: Kernels | None = None
        self.kernel_events: Int64 = np.zeros(0, np.int64)
        self.unknown_types: dict[str, int] = {}

    # -- tracks ------------------------------------------------------------------------------------

    def host_track(self, pid: int | str, tid: int | str, process: str = "", thread: str = "") -> int:
        return self.builder.add_track(
            Track(thread or f"Thread {tid}", "host", self.rank, pid, process, thread=tid)
        )

    def stream_track(self, device: int, stream: int | str) -> int:
        return self.builder.add_track(
            Track(
                f"Stream {stream}", "device", self.rank, f"NPU {device}", "NPU", device=device, stream=stream
            )
        )

    def group_track(self, device: int, group: int) -> int:
        name = f"Group {group} Communication" if group >= 0 else "Communication"
        return self.builder.add_track(
            Track(name, "device", self.rank, f"NPU {device}", "NPU", device=device, stream=f"group {group}")
        )

    def label_track(self, name: str, device: int = -1, process: str = "") -> int:
        where = process or (f"NPU {device}" if device >= 0 else "")
        return self.builder.add_track(
            Track(name, "label", self.rank, where, "NPU" if device >= 0 else "", device=device)
        )

    # -- device rows -------------------------------------------------------------------------------

    def add_tasks(
        self,
        tasks: DeviceTasks,
        ops: GroupOps,
        kernels: Kernels | None,
        known: tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]] | None = None,
    ) -> tuple[Int64, Int64]:
        """Add tasks and collectives, joined with the kernel table; returns the event numbers of both.

        Kernels that only the table knows are added as well; it is the profiler's own list of what ran.
        `known` says for each kernel which task and which collective it is (-1 none), where ids tell it.
        """
        kind, unknown = self._task_kinds(tasks)
        matched_task, matched_op = known or self._match(tasks, kind, ops, kernels)
        inside = self._inside_collectives(tasks, kind, ops)
        inside[matched_task[matched_task >= 0]] = False
        kind[inside] = Kind.DEVICE_ANNOTATION
        dur, op_dur = tasks.dur_ns.copy(), ops.dur_ns.copy()
        name, op_name = tasks.name.copy(), ops.name.copy()
        category = tasks.task_type.copy()
        if kernels is not None:
            at = matched_task >= 0
            kind[matched_task[at]] = Kind.KERNEL
            self._fill_durations(kernels, tasks, ops, matched_task, matched_op)
            # the table's duration is what its totals are made of; the trace rounds it once more
            dur[matched_task[at]] = kernels.dur_ns[at]
            name[matched_task[at]] = kernels.name[at]
            has_core = at & (kernels.core >= 0)
            category[matched_task[has_core]] = kernels.core[has_core]
            at = matched_op >= 0
            op_dur[matched_op[at]] = kernels.dur_ns[at]
            op_name[matched_op[at]] = kernels.name[at]
        self._count_unknown(tasks, kind, unknown)
        task_events = self.builder.add(
            track=self._task_tracks(tasks, kind, inside),
            start_ns=tasks.start_ns,
            dur_ns=dur,
            name=name,
            kind=kind,
            category=category,
            correlation=tasks.connection,
            source=tasks.source,
        )
        op_events = self.builder.add(
            track=by_pair(ops.device, ops.group, self.group_track),
            start_ns=ops.start_ns,
            dur_ns=op_dur,
            name=op_name,
            kind=Kind.COLLECTIVE,
            category=self.strings.code("COMMUNICATION"),
            correlation=ops.connection,
            source=ops.source,
        )
        if kernels is not None:
            self._attach(kernels, matched_task, matched_op, task_events, op_events)
            self._note_differences(kernels, kind, matched_task, matched_op, len(ops), len(tasks) + len(ops))
        return task_events, op_events

    def _task_kinds(self, tasks: DeviceTasks) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.bool_]]:
        """Kind per task, looked up once per distinct (type, name prefix)."""
        group, heads = grouped(tasks.task_type, tasks.name)
        kinds = np.zeros(len(heads), np.int8)
        unknown = np.zeros(len(heads), bool)
        for i, row in enumerate(heads.tolist()):
            type_code, name_code = int(tasks.task_type[row]), int(tasks.name[row])
            task_type = self.strings[type_code] if type_code >= 0 else ""
            found = task_kind(task_type, self.strings[name_code])
            kinds[i] = Kind.OTHER if found is None else found
            unknown[i] = found is None
        return kinds[group], unknown[group]

    @staticmethod
    def _inside_collectives(
        tasks: DeviceTasks, kind: npt.NDArray[np.int8], ops: GroupOps
    ) -> npt.NDArray[np.bool_]:
        """Copies that a collective is made of: they share its connection id, or it lists them."""
        if len(ops) == 0:
            return np.zeros(len(tasks), bool)
        same = np.isin(tasks.connection, ops.connection[ops.connection != NO_ID]) & (
            tasks.connection != NO_ID
        )
        if tasks.in_collective is not None:
            same |= tasks.in_collective
        small = (kind == Kind.MEMCPY) | (kind == Kind.OTHER) | (kind == Kind.KERNEL)
        # with the group's own row there, its kernels and copies are its parts
        parts: npt.NDArray[np.bool_] = same & small
        return parts

    def _fill_durations(
        self,
        kernels: Kernels,
        tasks: DeviceTasks,
        ops: GroupOps,
        matched_task: npt.NDArray[np.intp],
        matched_op: npt.NDArray[np.intp],
    ) -> None:
        """Durations that the table leaves out (N/A) from the tasks they are; 0 where nothing tells them."""
        for matched, known in ((matched_task, tasks.dur_ns), (matched_op, ops.dur_ns)):
            at = (kernels.dur_ns < 0) & (matched >= 0)
            kernels.dur_ns[at] = known[matched[at]]
        unknown = kernels.dur_ns < 0
        kernels.dur_ns[unknown] = 0
        self.notes.add("invalid-duration", "data_loss",
                       "kernels of the kernel table have no duration; kept as points without length",
                       int(unknown.sum()), _name_of(self.strings, kernels.name, unknown))  # fmt: skip

    def _count_unknown(
        self, tasks: DeviceTasks, kind: npt.NDArray[np.int8], unknown: npt.NDArray[np.bool_]
    ) -> None:
        left = unknown & (kind == Kind.OTHER)
        if not left.any():
            return
        codes, counts = np.unique(tasks.task_type[left], return_counts=True)
        types = {
            self.strings[c] if c >= 0 else "": int(n)
            for c, n in zip(codes.tolist(), counts.tolist(), strict=True)
        }
        self.unknown_types.update(types)
        named = ", ".join(f"{name or '(none)'} x {n}" for name, n in list(types.items())[:5])
        self.notes.add("unknown-task-type", "warning",
                       f"device tasks of a type that is not known are shown but count neither as work nor as waiting: {named}",
                       int(left.sum()))  # fmt: skip

    def _task_tracks(
        self, tasks: DeviceTasks, kind: npt.NDArray[np.int8], inside: npt.NDArray[np.bool_]
    ) -> Int32:
        streams = by_pair(tasks.device, tasks.stream, lambda d, s: self.stream_track(d, self._lane(s)))
        if not inside.any():
            return streams
        labels = by_pair(
            tasks.device[inside],
            tasks.stream[inside],
            lambda d, s: self.label_track(f"Stream {self._lane(s)}: parts of collectives", d),
        )
        streams[inside] = labels
        return streams

    def _lane(self, code: int) -> int | str:
        value = decode_id(code, self.strings.texts)
        return "?" if value is None else value

    # -- the kernel table ----------------------------------------------------------------------------

    def _match(
        self, tasks: DeviceTasks, kind: npt.NDArray[np.int8], ops: GroupOps, kernels: Kernels | None
    ) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """For each kernel of the table the task or the collective it is, or -1."""
        if kernels is None:
            return np.zeros(0, np.intp), np.zeros(0, np.intp)
        may = np.flatnonzero(~np.isin(kind, [int(Kind.DEVICE_WAIT), int(Kind.DEVICE_ANNOTATION)]))
        found = np.full(len(kernels), -1, np.intp)
        found_op = np.full(len(kernels), -1, np.intp)
        compute = np.flatnonzero(~kernels.is_collective)
        collective = np.flatnonzero(kernels.is_collective)
        name, task_name, op_name = _names_by_device(kernels, tasks, ops)
        hit = match_starts(name[compute], kernels.start_ns[compute], kernels.stream[compute],
                           task_name[may], tasks.start_ns[may], tasks.stream[may])  # fmt: skip
        found[compute[hit >= 0]] = may[hit[hit >= 0]]
        none = np.full(1, NO_ID, np.int64)
        hit = match_starts(name[collective], kernels.start_ns[collective], none.repeat(len(collective)),
                           op_name, ops.start_ns, none.repeat(len(ops)))  # fmt: skip
        found_op[collective[hit >= 0]] = hit[hit >= 0]
        self._match_launched(kernels, compute, found, tasks, may)
        self._match_launched(kernels, collective, found_op, ops, np.arange(len(ops)))
        return found, found_op

    def _match_launched(
        self,
        kernels: Kernels,
        rows: npt.NDArray[np.intp],
        found: npt.NDArray[np.intp],
        others: DeviceTasks | GroupOps,
        among: npt.NDArray[np.intp],
    ) -> None:
        """Match what is left where the table's names are "launch operator/kernel", as MindSpore writes them."""
        left = rows[found[rows] < 0]
        free = np.setdiff1d(among, found[rows])
        if len(left) == 0 or len(free) == 0:
            return
        lane = np.full(max(len(left), len(free)), NO_ID, np.int64)
        streams = others.stream[free] if isinstance(others, DeviceTasks) else lane[: len(free)]
        mine = kernels.stream[left] if isinstance(others, DeviceTasks) else lane[: len(left)]
        hit = match_starts(kernels.device[left], kernels.start_ns[left], mine,
                           others.device[free], others.start_ns[free], streams)  # fmt: skip
        left, task = left[hit >= 0], free[hit[hit >= 0]]

        def ends_with(long: int, short: int) -> bool:
            return self.strings[long].endswith("/" + self.strings[short])

        same = by_pair(kernels.name[left], others.name[task], ends_with, dtype=bool)
        found[left[same]] = task[same]

    def _attach(
        self,
        kernels: Kernels,
        matched_task: npt.NDArray[np.intp],
        matched_op: npt.NDArray[np.intp],
        task_events: Int64,
        op_events: Int64,
    ) -> None:
        events = np.full(len(kernels), -1, np.int64)
        events[matched_task >= 0] = task_events[matched_task[matched_task >= 0]]
        events[matched_op >= 0] = op_events[matched_op[matched_op >= 0]]
        alone = events < 0
        events[alone] = self._add_alone(kernels, np.flatnonzero(alone))
        self.attach_args(kernels, events, alone)
        self.kernels, self.kernel_events = kernels, events

    def _add_alone(self, kernels: Kernels, rows: npt.NDArray[np.intp]) -> Int64:
        """Add kernels of which only the table knows."""
        if len(rows) == 0:
            return np.zeros(0, np.int64)
        device = kernels.device[rows]
        collective = kernels.is_collective[rows]
        track = by_pair(
            device, kernels.stream[rows], lambda d, s: self.stream_track(d, self._lane(s)), ~collective
        )
        track[collective] = by_pair(
            device[collective], np.full(int(collective.sum()), -1, np.int64), self.group_track
        )
        return self.builder.add(
            track=track,
            start_ns=kernels.start_ns[rows],
            dur_ns=kernels.dur_ns[rows],
            name=kernels.name[rows],
            kind=np.where(collective, int(Kind.COLLECTIVE), int(Kind.KERNEL)).astype(np.int8),
            category=np.where(collective, self.strings.code("COMMUNICATION"), kernels.core[rows]),
        )

    def attach_args(
        self, kernels: Kernels, events: Int64, alone: npt.NDArray[np.bool_] | None = None
    ) -> None:
        """Give kernels their attributes as arguments of the event they are.

        `alone` marks kernels that have no source event of their own, so that ids are not said twice.
        """
        sources = self.builder.sources(events)
        for column in kernels.args:
            rows, value = column.rows, column.value
            if column.key in ("Task Id", "Stream Id", "Model Id", "Context Id") and alone is not None:
                keep = alone[rows]
                rows, value = rows[keep], value[keep]
            if len(rows):
                self.builder.add_args(sources[rows], column.key, column.tag, value)

    def _note_differences(
        self,
        kernels: Kernels,
        kind: npt.NDArray[np.int8],
        matched_task: npt.NDArray[np.intp],
        matched_op: npt.NDArray[np.intp],
        ops: int,
        device_rows: int,
    ) -> None:
        if device_rows == 0:
            return
        alone = (matched_task < 0) & (matched_op < 0)
        self.notes.add("kernels-only-in-table", "info",
                       "kernels of the kernel table are not in the trace; they were added from the table",
                       int(alone.sum()), _name_of(self.strings, kernels.name, alone))  # fmt: skip
        seen = np.zeros(len(kind), bool)
        seen[matched_task[matched_task >= 0]] = True
        extra = (kind == Kind.KERNEL) & ~seen
        self.notes.add("kernels-only-in-trace", "info",
                       "kernels of the trace are not in the kernel table; they have no shapes and no core metrics",
                       int(extra.sum()) + ops - len(distinct(matched_op[matched_op >= 0])))  # fmt: skip


def _names_by_device(kernels: Kernels, tasks: DeviceTasks, ops: GroupOps) -> tuple[Int64, Int64, Int64]:
    """Names as numbers that differ from device to device, where both sides tell the same several devices."""
    mine = distinct(kernels.device)
    theirs = distinct(np.concatenate([tasks.device, ops.device]))
    count = len(theirs) if len(mine) > 1 and np.isin(mine, theirs).all() else 1

    def told(name: Int32, device: Int32) -> Int64:
        wide = name.astype(np.int64) * count
        return wide + np.searchsorted(theirs, device) if count > 1 else wide

    return told(kernels.name, kernels.device), told(tasks.name, tasks.device), told(ops.name, ops.device)


def _name_of(strings: StringTable, names: Int32, mask: npt.NDArray[np.bool_]) -> str:
    return strings[int(names[mask][0])][:120] if mask.any() else ""


def by_pair(
    first: npt.NDArray[Any],
    second: npt.NDArray[Any],
    make: Any,
    only: npt.NDArray[np.bool_] | None = None,
    dtype: Any = np.int32,
) -> npt.NDArray[Any]:
    """`make(a, b)` per row, called once per distinct pair, shape (n,); 0 where `only` is false."""
    out = np.zeros(len(first), dtype)
    rows = np.arange(len(first)) if only is None else np.flatnonzero(only)
    if len(rows) == 0:
        return out
    group, heads = grouped(first[rows], second[rows])
    made = np.array([make(int(first[i]), int(second[i])) for i in rows[heads].tolist()], dtype)
    out[rows] = made[group]
    return out


def grouped(*columns: npt.NDArray[Any]) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
    """A group number per row of equal values, and one row of each group.

    Neighbours mostly share their lane, so only rows that differ from the one before are sorted.
    """
    n = len(columns[0])
    changed = np.ones(n, bool)
    if n:
        changed[1:] = False
        for column in columns:
            changed[1:] |= column[1:] != column[:-1]
    heads = np.flatnonzero(changed)
    code = np.zeros(len(heads), np.int64)
    for column in columns:
        inverse, count = _ranked(column[heads])
        code = code * count + inverse
    group, count = _ranked(code)
    first = np.zeros(count, np.intp)
    first[group[::-1]] = np.arange(len(heads) - 1, -1, -1)
    return np.repeat(group, np.diff(np.append(heads, n))), heads[first]


def _ranked(values: npt.NDArray[Any]) -> tuple[npt.NDArray[np.intp], int]:
    """The place of each value among the distinct ones, ascending, and how many there are."""
    if len(values) == 0:
        return np.zeros(0, np.intp), 0
    low = int(values.min())
    width = int(values.max()) - low + 1
    if width > 4 * len(values) + (1 << 16):
        distinct, inverse = np.unique(values, return_inverse=True)
        return inverse.reshape(-1), len(distinct)
    # codes and lane numbers are small: a table of what occurs costs less than sorting
    offset = values.astype(np.int64) - low
    present = np.zeros(width, bool)
    present[offset] = True
    place = np.cumsum(present) - 1
    return place[offset], int(place[-1]) + 1


def used_codes(codes: npt.NDArray[Any], size: int) -> list[int]:
    """The distinct string codes >= 0 that occur, ascending."""
    return np.flatnonzero(np.bincount(codes[codes >= 0], minlength=size)).tolist()


def match_starts(
    name: npt.NDArray[Any],
    start_ns: Int64,
    lane: Int64,
    other_name: npt.NDArray[Any],
    other_start_ns: Int64,
    other_lane: Int64,
) -> npt.NDArray[np.intp]:
    """For each row the row of the other table with its name and start, or -1; none is given twice.

    First equal starts (of several, lane order decides), then the nearest within SAME_START_NS.
    """
    n, m = len(name), len(other_name)
    found = np.full(n, -1, np.intp)
    if n == 0 or m == 0:
        return found
    both_name = np.concatenate([name, other_name])
    both_start = np.concatenate([start_ns, other_start_ns])
    order = np.lexsort((np.concatenate([lane, other_lane]), both_start, both_name))
    new = np.ones(n + m, bool)
    new[1:] = (np.diff(both_name[order]) != 0) | (np.diff(both_start[order]) != 0)
    group = np.empty(n + m, np.int64)
    group[order] = np.cumsum(new) - 1
    first = np.flatnonzero(new)
    mine = order < n
    # the how-manieth of its table each row is within its group
    counts = [np.cumsum(mine), np.cumsum(~mine)]
    before = [np.concatenate([[0], c])[first] for c in counts]
    place = np.empty(n + m, np.int64)
    in_order = group[order]
    place[order] = np.where(mine, counts[0] - before[0][in_order], counts[1] - before[1][in_order]) - 1
    key = group * (n + m) + place
    sorter = np.argsort(key[n:], kind="stable")
    at = np.minimum(np.searchsorted(key[n:][sorter], key[:n]), m - 1)
    hit = key[n:][sorter][at] == key[:n]
    found[hit] = sorter[at[hit]]
    _match_near(name, start_ns, other_name, other_start_ns, found)
    return found


def _match_near(
    name: npt.NDArray[Any],
    start_ns: Int64,
    other_name: npt.NDArray[Any],
    other_start_ns: Int64,
    found: npt.NDArray[np.intp],
) -> None:
    left = np.flatnonzero(found < 0)
    free = np.ones(len(other_name), bool)
    free[found[found >= 0]] = False
    spare = np.flatnonzero(free)
    if len(left) == 0 or len(spare) == 0:
        return
    low = min(int(start_ns.min()), int(other_start_ns.min()))
    span = max(int(start_ns.max()), int(other_start_ns.max())) - low + 4 * SAME_START_NS
    if span > (1 << 62) // (int(max(name.max(), other_name.max())) + 2):
        return
    key = name[left].astype(np.int64) * span + (start_ns[left] - low)
    other = other_name[spare].astype(np.int64) * span + (other_start_ns[spare] - low)
    order = np.argsort(other, kind="stable")
    other = other[order]
    at = np.searchsorted(other, key)
    before, after = np.maximum(at - 1, 0), np.minimum(at, len(other) - 1)
    nearer = np.where(np.abs(other[before] - key) <= np.abs(other[after] - key), before, after)
    good = np.abs(other[nearer] - key) <= SAME_START_NS
    taken, first = np.unique(nearer[good], return_index=True)
    found[left[good][first]] = spare[order[taken]]


# -- kernel tables out of CSV ------------------------------------------------------------------------

_NOT_ARGUMENTS = {"name", "starttime", "duration", "deviceid"}
_RENAMED_KEYS = {
    "Task ID": "Task Id",
    "Stream ID": "Stream Id",
    "Model ID": "Model Id",
    "Context ID": "Context Id",
}
_SHAPES = re.compile(r"^(Input|Output) Shapes$")
_LISTS = re.compile(r"^(Input|Output) (Data Types|Formats)$")


def is_kernel_table(names: list[str]) -> bool:
    """Whether canonical column names are those of kernel_details.csv or op_summary.csv."""
    return {"Name", "Start Time", "Duration", "Accelerator Core"} <= set(names) and "Type" in names


def kernels_from_table(table: Table, strings: StringTable, device: int = 0) -> tuple[Kernels, int]:
    """Kernels of kernel_details.csv or op_summary.csv, and how many rows had no start.

    Raises DestroyedTimes where the start column went through a spreadsheet.
    """
    start = table.times_ns("Start Time")
    timeless = int((start == NO_TIME).sum())
    if timeless:
        table = table.take(np.flatnonzero(start != NO_TIME))
        start = table.times_ns("Start Time")
    dur = table.times_ns("Duration")
    core_codes, cores = table.texts("Accelerator Core")
    name_codes, names = table.texts("Name")
    names = [n or "(unnamed)" for n in names]
    type_codes, types = table.texts("Type")
    hcom = np.array([n.startswith("hcom_") for n in names] or [False])
    by_core = np.array([c in COLLECTIVE_CORES for c in cores] or [False])
    kernels = Kernels(
        start_ns=start,
        dur_ns=np.where(dur == NO_TIME, -1, np.maximum(dur, 0)),
        name=strings.codes(names)[name_codes] if table.rows else np.zeros(0, np.int32),
        device=device_numbers(table.ints("Device_id", device), device),
        stream=_stream_ids(table.ints("Stream ID", NO_ID)),
        core=_codes([core_name(c) for c in cores], strings)[core_codes]
        if table.rows
        else np.zeros(0, np.int32),
        op_type=_codes(types, strings)[type_codes] if table.rows else np.zeros(0, np.int32),
        is_collective=(hcom[name_codes] | by_core[core_codes]) if table.rows else np.zeros(0, bool),
        step=table.ints("Step Id", -1),
    )
    kernels.args = kernel_arguments(table, strings)
    return kernels, timeless


def device_numbers(values: Int64, missing: int = 0) -> Int32:
    """Device numbers as int32; `missing` for those that cannot be one."""
    return np.where((values >= 0) & (values < MAX_DEVICE), values, missing).astype(np.int32)


def rank_number(value: Any) -> int:
    """A rank as a number, -1 for what cannot be one."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return -1
    return number if 0 <= number < MAX_RANK else -1


def _stream_ids(values: Int64) -> Int64:
    return np.where(values < 0, NO_ID, values)


def _codes(texts: list[str], strings: StringTable) -> Int32:
    """Codes of distinct texts, -1 for the empty one."""
    return np.array([strings.code(t) if t else -1 for t in texts] or [-1], np.int32)


def kernel_arguments(table: Table, strings: StringTable) -> list[ArgColumn]:
    """All other columns as arguments: lists as JSON, counts as integers, the rest as numbers or text.

    A cube kernel's vector-core metrics and the reverse are all zero and are left out, not reported as 0.
    """
    idle = {prefix: _never_ran(table, prefix) for prefix in ("aic_", "aiv_")}
    out = []
    for name, column in table.columns.items():
        if re.sub(r"[\s_]", "", name).lower() in _NOT_ARGUMENTS:
            continue
        unit = f"({column.unit})" if column.unit else ""
        key = _RENAMED_KEYS.get(name, name) + unit
        prefix = "aic_" if name.startswith(("aic_", "aicore_")) else name[:4]
        found = argument_column(key, column, strings, idle.get(prefix))
        if found is not None:
            out.append(found)
    return out


def _never_ran(table: Table, prefix: str) -> npt.NDArray[np.bool_] | None:
    """Rows whose cores of one kind spent no cycle, or None where cycles are not in the table."""
    if f"{prefix}total_cycles" not in table:
        return None
    idle: npt.NDArray[np.bool_] = table.numbers(f"{prefix}total_cycles") == 0
    return idle


def argument_column(
    key: str, column: Column, strings: StringTable, leave_out: npt.NDArray[np.bool_] | None = None
) -> ArgColumn | None:
    """One column of a kernel table as an argument column; None where it says nothing."""
    texts = [clean(t) for t in column.texts]
    given = np.array([bool(t) for t in texts] or [False])
    if not given.any():
        return None
    tag, values = _argument_values(key, texts, strings)
    keep = given[column.codes]
    if leave_out is not None:
        keep &= ~leave_out
    rows = np.flatnonzero(keep)
    return ArgColumn(key, rows, tag, values[column.codes[rows]]) if len(rows) else None


_TEXT_KEYS = ("Type", "Accelerator Core", "OP State", "HF32 Eligible", "Op Attr")
_WHOLE_KEYS = ("Step Id", "Task Id", "Stream Id", "Model Id", "Context Id", "Block Num", "Mix Block Num")


def _argument_values(key: str, texts: list[str], strings: StringTable) -> tuple[int, Int64]:
    if _SHAPES.match(key):
        return ARG_JSON, np.array([strings.code(json.dumps(shapes(t))) for t in texts], np.int64)
    if _LISTS.match(key):
        return ARG_JSON, np.array([strings.code(json.dumps(listed(t))) for t in texts], np.int64)
    if key == "Accelerator Core":
        texts = [core_name(t) for t in texts]
    if key not in _TEXT_KEYS:
        whole = [t.lstrip("-") for t in texts if t]
        if all(t.isdecimal() and len(t) < 19 for t in whole) and (
            key in _WHOLE_KEYS or key.endswith(("_cycles", ")"))
        ):
            return ARG_INT, np.array([int(t) if t else 0 for t in texts], np.int64)
        numbers = np.array([to_float(t) for t in texts])
        if not np.isnan(numbers[[bool(t) for t in texts]]).any():
            return ARG_FLOAT, numbers.view(np.int64)
    return ARG_STRING, np.array([strings.code(t) for t in texts], np.int64)


def shapes(text: str) -> list[list[int]]:
    """Shapes of kernel_details.csv as lists; a scalar or absent tensor is the empty list.

    >>> shapes("8,64;64,64;;2")
    [[8, 64], [64, 64], [], [2]]
    """
    return [
        [int(d) for d in part.split(",") if d.strip().lstrip("-").isdecimal()]
        for part in text.strip('"').split(";")
    ]


def listed(text: str) -> list[str]:
    """Data types or formats of kernel_details.csv as a list."""
    return [part.strip() for part in text.strip('"').split(";")]


def encode(value: int | str | None, strings: StringTable) -> int:
    return encode_id(value, strings)
