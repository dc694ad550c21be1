"""Ascend `trace_view.json` and `msprof_*.json`: the bare array of torch_npu, MindSpore and msprof.

Reads:  framework operators, Python calls, task-queue steps, CANN calls of every level, tasks of device streams,
        collectives and their parts, garbage collections, mstx ranges, all counters, and every kind of arrow.
        Alone it gives a whole session; the directory readers add the kernel table and the side files.
Leaves: sort indices and labels beyond the device number.

A row is what its process says it is: processes are told by `process_name`, never by number or order; the pid
scheme has changed twice. A CANN row stands on the same thread as the framework row with its thread id, so calls
nest under the operators and dequeues that made them. "Overlap Analysis" rows are derived: labels, never work.
"""

from __future__ import annotations

import json
import re
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler.errors import InputError
from stallscope.profiler.ids import NO_ID, decode_id
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Notes
from stallscope.profiler.ranks import TEXT_TAGS, translate, translate_ids
from stallscope.profiler.readers import ascend_links, ascend_steps
from stallscope.profiler.readers.ascend_content import head as head_of
from stallscope.profiler.readers.ascend_content import is_trace
from stallscope.profiler.readers.ascend_links import Arrows, Coverage
from stallscope.profiler.readers.ascend_rank import (
    NO_CONTEXT,
    DeviceTasks,
    GroupOps,
    Kernels,
    RankBuilder,
    by_pair,
    grouped,
    used_codes,
)
from stallscope.profiler.readers.trace_events import RawEvents, Threads, tokenise
from stallscope.profiler.session import Session
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
    Timeline,
)

READER_VERSION = 1

FRAMEWORK, CANN, HARDWARE, GROUPS, OVERLAP, GC, MARKS, SCOPES, LABELS, OTHER = range(10)

_ROLES: tuple[tuple[str, int], ...] = (
    (r"^Python GC$", GC),
    (r"^(Python|MindSpore|CPU OP)$", FRAMEWORK),
    (r"^Scope Layer", SCOPES),
    (r"^CANN", CANN),
    (r"^(Ascend|NPU) Hardware", HARDWARE),
    (r"^(HCCL|Communication|LCCL)", GROUPS),
    (r"^Overlap Analysis", OVERLAP),
    (r"(mstx|MsTx|msproftx|MsprofTx)", MARKS),
)
"""Pattern of a process name -> what its rows are; the first that matches."""

_CATEGORIES = {
    "cpu_op": Kind.OPERATOR,
    "enqueue": Kind.QUEUE,
    "dequeue": Kind.QUEUE,
    "python_function": Kind.PYTHON,
    "gc": Kind.PYTHON,
    "mstx": Kind.ANNOTATION,
}
_CANN_NAME = re.compile(r"^(AscendCL|Node|Runtime|Hccl|HCCL|Communication|Model|GE|acl)@", re.IGNORECASE)
_LEVEL_OF_PREFIX = {"ascendcl": "acl", "node": "node", "runtime": "runtime", "hccl": "hccl",
                    "communication": "hccl", "model": "model", "ge": "ge", "acl": "acl"}  # fmt: skip
_PYTHON_NAME = re.compile(r"\.py\(\d+\): |^<built-in |^nn\.Module: ")
_MARK_KEYS = ("event_type", "Message_type", "message_type", "domain")
_OVERLAP_NAMES = ("Computing", "Communication", "Communication(Not Overlapped)", "Free")
_MAX_DURATION_NS = 30 * 24 * 3600 * 10**9


def sniff(path: Path) -> bool:
    """Events with Ascend process names, or a bare array with decimal-string times, near the beginning."""
    return path.is_file() and is_trace(head_of(path))


def read(path: Path) -> Session:
    """Read a lone trace. Raises InputError where nothing in it can be used."""
    rank, trace = load_trace(path, -1)
    trace.add(None)
    timeline, facts = finish(rank, trace)
    facts |= {"rank": -1, "form": "trace"}
    ascend_steps.add_kernel_facts(facts, timeline, rank, trace.step_ends(), on_host_time=trace.is_mindspore)
    if len(timeline) == 0:
        raise InputError(
            path, "an Ascend trace without events", "Was anything recorded in the profiling window?"
        )
    rank.notes.add("no-kernel-table", "info",
                   "the trace was read alone: shapes, core kinds and core metrics are in kernel_details.csv beside it")  # fmt: skip
    session_facts = {
        "source": path.name,
        "format": "ascend-trace",
        "reader_version": READER_VERSION,
        "producer": "MindSpore" if trace.is_mindspore else "torch_npu",
        "source_events": len(trace.raw),
        "devices": ascend_steps.device_facts(facts, trace.devices),
        "ascend": {"ranks": [facts]},
    }
    return Session(timeline, session_facts, rank.notes)


def load_trace(path: Path, number: int) -> tuple[RankBuilder, Trace]:
    """Tokenise a trace for a rank. Raises InputError for what is no trace."""
    raw = tokenise(path)
    raw.args = with_lists(raw.args)
    rank = RankBuilder(number, raw.strings, raw.args)
    rank.notes.extend(raw.notes)
    return rank, Trace(raw, rank)


def with_lists(args: ArgStore) -> ArgStore:
    """Operator shapes and types in the form other profilers write: lists instead of ";\\r\\n" joins."""
    tag, value = args.tag, args.value
    for key, convert in (("Input Dims", dims), ("Input type", types)):
        if key not in args.keys:
            continue
        at = np.flatnonzero((args.key == args.keys.index(key)) & (args.tag == ARG_STRING))
        if tag is args.tag:
            tag, value = args.tag.copy(), args.value.copy()
        codes = args.value[at]
        texts = args.strings.texts
        table = np.zeros(len(texts), np.int64)
        for code in used_codes(codes, len(texts)):
            table[code] = args.strings.code(json.dumps(convert(texts[code])))
        tag[at], value[at] = ARG_JSON, table[codes]
    return ArgStore(args.strings, args.keys, args.event, args.key, tag, value, args.spill, wide=args.wide)


def load_slices(paths: list[Path], number: int) -> tuple[RankBuilder, Trace]:
    """Tokenise the slices of one trace as one: msprof cuts large exports into arrays of their own.

    A slice that cannot be read costs that slice. Raises InputError if none can.
    """
    parts: list[RawEvents] = []
    notes = Notes()
    for path in paths:
        try:
            parts.append(tokenise(path))
        except InputError as error:
            notes.add(
                "trace-unreadable", "data_loss", f"a slice could not be read ({error.seen})", 1, path.name
            )
    if not parts:
        raise InputError(paths[0], "no slice of this trace can be read", "Export it again.")
    raw = join_events(parts)
    raw.notes.extend(notes)
    raw.args = with_lists(raw.args)
    rank = RankBuilder(number, raw.strings, raw.args)
    rank.notes.extend(raw.notes)
    return rank, Trace(raw, rank)


def join_events(parts: list[RawEvents]) -> RawEvents:
    """Tokenised files as one, in order."""
    if len(parts) == 1:
        return parts[0]
    strings = StringTable()
    keys: list[str] = []
    columns: dict[str, list[npt.NDArray[Any]]] = {}
    args: list[ArgStore] = []
    notes = Notes()
    base = 0
    for part in parts:
        texts = strings.codes(part.strings.texts)
        for name in ("ph", "ts_ns", "dur_ns"):
            columns.setdefault(name, []).append(getattr(part, name))
        for name in ("name", "cat"):
            columns.setdefault(name, []).append(translate(texts, getattr(part, name)))
        everything = slice(None)
        for name, ids in (("pid", part.pids(everything)), ("tid", part.tids(everything)), ("id", part.id)):
            columns.setdefault(name, []).append(translate_ids(texts, ids))
        keys += [k for k in part.args.keys if k not in keys]
        key = np.array([keys.index(k) for k in part.args.keys] or [0], np.uint16)[part.args.key]
        tag, value = part.args.entries()
        is_text = np.isin(tag, TEXT_TAGS)
        value[is_text] = texts[value[is_text]]
        args.append(ArgStore(strings, keys, part.args.event + np.int32(base), key, tag, value))
        notes.extend(part.notes)
        base += len(part)
    joined: dict[str, Any] = {name: np.concatenate(values) for name, values in columns.items()}
    threads, joined["thread"] = Threads.of(joined.pop("pid"), joined.pop("tid"))
    return RawEvents(strings, threads, args=ArgStore.joined(args), top_level="array", notes=notes, **joined)


def finish(rank: RankBuilder, trace: Trace | None) -> tuple[Timeline, dict[str, Any]]:
    """Build the timeline of a rank and its link facts."""
    timeline = rank.builder.finish(clock="realtime")
    if timeline.origin_ns < 10**18:
        timeline.clock = "unknown"
    arrows = trace.arrows if trace is not None else Arrows.none()
    by_connection = trace.by_connection if trace is not None else 0
    cover = ascend_links.finish_links(rank.builder, timeline, arrows, by_connection)
    if trace is not None:
        cover.flows = trace.flow_counts
    had_links = trace is not None and (
        by_connection > 0 or len(arrows.event) > 0 or trace.bound_operators > 0
    )
    return timeline, link_facts(timeline, cover, had_links, rank)


def link_facts(timeline: Timeline, cover: Coverage, had_links: bool, rank: RankBuilder) -> dict[str, Any]:
    """Notes and facts of the links of one rank."""
    facts: dict[str, Any] = {}
    replays = ascend_links.graph_replays(timeline, cover, rank.notes)
    if len(timeline):
        ascend_links.note_links(timeline, cover, had_links, rank.notes)
    facts["links"] = {k: (None if isinstance(v, int) and v < 0 else v) for k, v in cover.facts().items()}
    if replays:
        facts["graph"] = replays
    if rank.unknown_types:
        facts["unknown_task_types"] = dict(list(rank.unknown_types.items())[:50])
    return facts


@dataclass
class _Process:
    """What a process of the trace stands for."""

    role: int
    name: str
    device: int
    device_told: bool
    """Whether the trace says the device; else it is 0 for want of better."""


class Trace:
    """Tokenised events and what their processes make of them; `add` hands them to the rank."""

    def __init__(self, raw: RawEvents, rank: RankBuilder) -> None:
        self.raw = raw
        self.rank = rank
        self.texts = raw.strings.texts
        self.arrows = Arrows.none()
        self.by_connection = 0
        self.bound_operators = 0
        self.flow_counts: dict[str, dict[str, int]] = {}
        self.threads: dict[tuple[int, int], str] = {}
        self.processes = self._processes()
        self.is_mindspore = any(p.name in ("MindSpore", "CPU OP") for p in self.processes.values())
        self.host_of_thread = self._host_of_thread()

    # -- processes -----------------------------------------------------------------------------------

    def _processes(self) -> dict[int, _Process]:
        raw = self.raw
        names: dict[int, str] = {}
        labels: dict[int, str] = {}
        for i in np.flatnonzero(raw.ph == ord("M")).tolist():
            what = self.texts[raw.name[i]] if raw.name[i] >= 0 else ""
            if what not in ("process_name", "process_labels", "thread_name"):
                continue
            args = raw.args.of(i)
            pid = int(raw.pids(i))
            if what == "process_name":
                names[pid] = str(args.get("name", ""))
            elif what == "process_labels":
                labels[pid] = str(args.get("labels", ""))
            else:
                self.threads[(pid, int(raw.tids(i)))] = str(args.get("name", ""))
        spans = np.flatnonzero(raw.ph == ord("X"))
        used = raw.pids(grouped(raw.thread)[1]).tolist() if len(raw) else []
        roles = {p: _role(names.get(p, "")) for p in used}
        for pid in used:
            if roles[pid] == OTHER:
                roles[pid] = self._infer(spans[raw.pids(spans) == pid])
            if roles[pid] == OTHER and labels.get(pid, "").startswith("NPU"):
                roles[pid] = LABELS
        is_new = _new_pid_scheme(roles)
        processes = {}
        for pid, role in roles.items():
            device, told = _device(pid, labels.get(pid, ""), is_new)
            processes[pid] = _Process(role, names.get(pid, ""), device, told)
        return processes

    def _infer(self, events: npt.NDArray[np.intp]) -> int:
        """The role of a process without a known name, by its rows (a cut trace has lost its metadata)."""
        if len(events) == 0:
            return OTHER
        raw = self.raw
        sample = events[:: max(len(events) // 200, 1)]
        names = [self.texts[raw.name[i]] for i in sample.tolist() if raw.name[i] >= 0]
        cats = {self.texts[raw.cat[i]] for i in sample.tolist() if raw.cat[i] >= 0}
        if cats & set(_CATEGORIES):
            return FRAMEWORK
        keys = {key for i in sample.tolist() for key in raw.args.of(i)}
        if "Task Type" in keys:
            return HARDWARE
        if keys & {"task type", "alg_type"}:
            return GROUPS
        if keys & set(_MARK_KEYS):
            return MARKS
        if any(_CANN_NAME.match(n) for n in names):
            return CANN
        if names and all(n in _OVERLAP_NAMES for n in names):
            return OVERLAP
        return OTHER

    def _host_of_thread(self) -> dict[int, int]:
        """Thread id -> the framework process it belongs to; thread ids are unique on a host."""
        raw = self.raw
        out: dict[int, int] = {}
        spans = np.flatnonzero(raw.ph == ord("X"))
        _, heads = grouped(raw.pids(spans), raw.tids(spans))
        for i in spans[heads].tolist():
            if self.processes[int(raw.pids(i))].role == FRAMEWORK:
                out.setdefault(int(raw.tids(i)), int(raw.pids(i)))
        return out

    @property
    def devices(self) -> list[int]:
        """Device numbers that tasks ran on."""
        return sorted({p.device for p in self.processes.values() if p.role in (HARDWARE, GROUPS)})

    def call_device(self, number: int) -> None:
        """Give the only device, where the trace has no number for it, the number another file knows."""
        processes = [p for p in self.processes.values() if p.role in (HARDWARE, GROUPS)]
        if any(p.device_told for p in processes):
            return
        for process in self.processes.values():
            process.device = number

    # -- handing over --------------------------------------------------------------------------------

    def add(self, kernels: Kernels | None) -> None:
        """Add all events to the rank, joined with the kernel table if there is one."""
        raw = self.raw
        events = self._valid(np.flatnonzero(raw.ph == ord("X")))
        role = self._roles(events)
        numbers = np.full(len(raw), -1, np.int64)
        host = np.isin(role, [FRAMEWORK, CANN, GC, MARKS, OTHER])
        calls = self._add_host(events[host], role[host], numbers)
        self._add_labels(events, role, numbers)
        work = self._add_device(events, role, kernels, numbers)
        self._link_connections(calls, work, numbers)
        self._link_queue(events, numbers)
        self._add_flows(events, numbers)
        self._add_counters()
        self._add_marks()

    def _roles(self, events: npt.NDArray[np.intp]) -> npt.NDArray[np.int8]:
        return self._by_process(events, lambda p: p.role).astype(np.int8)

    def _by_process(self, events: npt.NDArray[np.intp], what: Any) -> npt.NDArray[Any]:
        """A number of the process of each event, shape of `events`."""
        if len(events) == 0:
            return np.zeros(0, np.int64)
        group, heads = grouped(self.raw.pids(events))
        table = np.array([what(self.processes[int(p)]) for p in self.raw.pids(events[heads])], np.int64)
        return table[group]

    def _valid(self, events: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        ts, dur = self.raw.ts_ns[events], self.raw.dur_ns[events]
        timeless = ts == NO_TIME
        # a record that lost its time stamp stands at 0 among times of decades later
        if len(ts) and int(np.median(ts)) > 10**15:
            timeless |= ts == 0
        self.rank.notes.add(
            "span-without-time",
            "data_loss",
            "spans without a readable start were left out",
            int(timeless.sum()),
        )
        bad = ~timeless & ((dur < 0) | (dur > _MAX_DURATION_NS))
        self.rank.notes.add("invalid-duration", "data_loss",
                            "spans had a missing, negative or impossible duration; kept as points without length",
                            int(bad.sum()))  # fmt: skip
        timed: npt.NDArray[np.intp] = events[~timeless]
        return timed

    def _dur(self, events: npt.NDArray[Any]) -> Int64:
        dur = self.raw.dur_ns[events]
        return np.where((dur < 0) | (dur > _MAX_DURATION_NS), 0, dur)

    def _names(self, events: npt.NDArray[Any]) -> Int32:
        names = self.raw.name[events]
        return np.where(names < 0, self.raw.strings.code("(unnamed)"), names).astype(np.int32)

    def _name_is(self, events: npt.NDArray[Any], test: Any) -> npt.NDArray[np.bool_]:
        """`test(name)` per event, once per distinct name."""
        names = self._names(events)
        table = np.zeros(len(self.texts), bool)
        for code in used_codes(names, len(self.texts)):
            table[code] = bool(test(self.texts[code]))
        return table[names]

    # -- host ----------------------------------------------------------------------------------------

    def _add_host(
        self, events: npt.NDArray[np.intp], role: npt.NDArray[np.int8], numbers: Int64
    ) -> npt.NDArray[np.intp]:
        """Framework, CANN, garbage-collector and mstx rows on their threads; returns the CANN events."""
        raw = self.raw
        kind = self._host_kinds(events, role)
        category = raw.cat[events].copy()
        is_call = role == CANN
        is_call |= (role == OTHER) & self._name_is(events, _CANN_NAME.match)
        kind[is_call] = Kind.RUNTIME
        category[is_call] = self._levels(events[is_call])
        connection = np.full(len(events), NO_ID, np.int64)
        connection[is_call] = self._connections[events[is_call]]
        queue = kind == Kind.QUEUE
        connection[queue] = raw.args.ids("correlation_id", len(raw))[events[queue]]
        numbers[events] = self.rank.builder.add(
            track=by_pair(raw.pids(events), raw.tids(events), self._host_track),
            start_ns=raw.ts_ns[events],
            dur_ns=self._dur(events),
            name=self._names(events),
            kind=kind,
            category=category,
            correlation=connection,
            source=events,
        )
        calls: npt.NDArray[np.intp] = events[is_call]
        return calls

    def _host_kinds(self, events: npt.NDArray[np.intp], role: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
        raw = self.raw
        table = np.full(len(self.texts) + 1, -1, np.int8)
        for code in used_codes(raw.cat[events], len(self.texts)):
            table[code] = _CATEGORIES.get(self.texts[code].lower(), -1)
        kind = table[raw.cat[events]]
        default = np.full(len(events), int(Kind.OTHER), np.int8)
        default[role == FRAMEWORK] = Kind.OPERATOR
        default[role == GC] = Kind.PYTHON
        default[role == MARKS] = Kind.ANNOTATION
        untold = kind < 0
        default[(role == FRAMEWORK) & self._name_is(events, _PYTHON_NAME.search)] = Kind.PYTHON
        queue = untold & self._name_is(events, lambda n: n.startswith(("Enqueue", "Dequeue")))
        kind = np.where(untold, default, kind)
        kind[queue] = Kind.QUEUE
        step = self._name_is(events, lambda n: n.startswith("ProfilerStep#"))
        kind[step & (kind == Kind.OPERATOR)] = Kind.ANNOTATION
        return kind.astype(np.int8)

    def _levels(self, events: npt.NDArray[np.intp]) -> Int32:
        """The CANN level of calls as a string code: what the row says, else what its name begins with."""
        strings = self.raw.strings
        out = self._text_codes("level")[events]
        for code in used_codes(out, len(self.texts)):
            lower = strings.code(self.texts[code].lower())
            if lower != code:
                out[out == code] = lower
        names = self._names(events)
        for code in used_codes(names[out < 0], len(self.texts)):
            prefix = self.texts[code].partition("@")[0].lower()
            out[(names == code) & (out < 0)] = strings.code(_LEVEL_OF_PREFIX.get(prefix, "acl"))
        return out.astype(np.int32)

    def _text_codes(self, key: str) -> Int32:
        """The string code of a text argument per event, -1 where there is none. Shape (n,)."""
        args = self.raw.args
        out = np.full(len(self.raw), -1, np.int32)
        if key not in args.keys:
            return out
        at = np.flatnonzero(args.key == args.keys.index(key))
        plain = at[args.tag[at] == ARG_STRING]
        out[args.event[plain]] = args.value[plain]
        for i in at[args.tag[at] != ARG_STRING].tolist():
            event = int(args.event[i])
            out[event] = self.raw.strings.code(str(args.of(event).get(key, "")))
        return out

    def _host_track(self, pid: int, tid: int) -> int:
        owner = self.host_of_thread.get(tid, pid)
        name = self.processes[owner].name if owner in self.processes else ""
        process = self._id(owner)
        if owner == pid and self.processes[pid].role in (CANN, GC) and isinstance(process, int):
            hosts = [p for p, info in self.processes.items() if info.role == FRAMEWORK]
            if len(hosts) == 1:
                owner, process = hosts[0], self._id(hosts[0])
                name = self.processes[owner].name
            elif process >> 10 > 0:
                process = process >> 10
        thread = self.threads.get((owner, tid)) or self.threads.get((pid, tid)) or f"Thread {self._id(tid)}"
        return self.rank.host_track(process, self._id(tid), name, thread)

    def _id(self, code: int) -> int | str:
        value = decode_id(int(code), self.texts)
        return -1 if value is None else value

    # -- labels --------------------------------------------------------------------------------------

    def _add_labels(self, events: npt.NDArray[np.intp], role: npt.NDArray[np.int8], numbers: Int64) -> None:
        """Derived rows and the small tasks of collectives: shown, never counted."""
        for wanted, what in ((OVERLAP, "Overlap Analysis"), (SCOPES, "Scope Layer"), (LABELS, "")):
            mine = events[role == wanted]
            self._label(mine, what, numbers)
            if wanted == OVERLAP:
                self.rank.notes.add("derived-rows", "info",
                                    '"Overlap Analysis" rows are derived from other rows; kept as labels, never as work',
                                    len(mine))  # fmt: skip
        planes = events[role == GROUPS]
        self._label(planes[~self._is_group_op(planes)], "Communication", numbers)

    def _label(self, events: npt.NDArray[np.intp], what: str, numbers: Int64) -> None:
        raw = self.raw
        if len(events) == 0:
            return

        def make(pid: int, tid: int) -> int:
            thread = self.threads.get((pid, tid)) or str(self._id(tid))
            process = self.processes[pid]
            return self.rank.label_track(f"{what or process.name}: {thread}", process.device)

        numbers[events] = self.rank.builder.add(
            track=by_pair(raw.pids(events), raw.tids(events), make),
            start_ns=raw.ts_ns[events],
            dur_ns=self._dur(events),
            name=self._names(events),
            kind=Kind.DEVICE_ANNOTATION,
            source=events,
        )

    def _is_group_op(self, events: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Whether a row of the communication process is a whole operation, not one task of a plane."""
        raw = self.raw
        if len(events) == 0:
            return np.zeros(0, bool)
        lanes = by_pair(raw.pids(events), raw.tids(events), self._lane_class)
        has_parts = self._text_codes("task type")[events] >= 0
        return np.where(lanes == 0, ~has_parts, lanes == 1)

    def _lane_class(self, pid: int, tid: int) -> int:
        name = self.threads.get((pid, tid), "")
        if re.match(r"Plane\b", name, re.IGNORECASE):
            return 2
        return 1 if re.match(r"Group\b|.*\bCommunication$", name) else 0

    # -- device --------------------------------------------------------------------------------------

    def _add_device(
        self,
        events: npt.NDArray[np.intp],
        role: npt.NDArray[np.int8],
        kernels: Kernels | None,
        numbers: Int64,
    ) -> npt.NDArray[np.intp]:
        raw, n = self.raw, len(self.raw)
        tasks = events[role == HARDWARE]
        ops = events[role == GROUPS]
        ops = ops[self._is_group_op(ops)]
        connection = self._connections
        context = raw.args.ints("Subtask Id", n, NO_CONTEXT)
        task_rows = DeviceTasks(
            start_ns=raw.ts_ns[tasks],
            dur_ns=self._dur(tasks),
            name=self._names(tasks),
            device=self._device_of(tasks),
            stream=self._streams(tasks),
            task_type=self._task_types(tasks),
            connection=connection[tasks],
            subtask=context[tasks] != NO_CONTEXT,
            source=tasks.astype(np.int32),
            in_collective=self._on_planes(tasks, events[role == GROUPS]),
        )
        op_rows = GroupOps(
            start_ns=raw.ts_ns[ops],
            dur_ns=self._dur(ops),
            name=self._names(ops),
            device=self._device_of(ops),
            group=by_pair(raw.pids(ops), raw.tids(ops), self._group_number).astype(np.int64),
            connection=connection[ops],
            source=ops.astype(np.int32),
        )
        if len(tasks) + len(ops) or kernels is not None:
            numbers[tasks], numbers[ops] = self.rank.add_tasks(task_rows, op_rows, kernels)
        return np.concatenate([tasks, ops])

    def _on_planes(self, tasks: npt.NDArray[np.intp], groups: npt.NDArray[np.intp]) -> npt.NDArray[np.bool_]:
        """Tasks that also stand on a plane of a communication group: same device, stream and start."""
        raw = self.raw
        planes = groups[~self._is_group_op(groups)]
        stream = raw.args.ints("stream id", len(raw), NO_ID)[planes]
        planes, stream = planes[stream != NO_ID], stream[stream != NO_ID]
        if len(planes) == 0:
            return np.zeros(len(tasks), bool)
        wanted = mix(mix(self._device_of(planes).astype(np.int64), stream), raw.ts_ns[planes])
        device = self._device_of(tasks).astype(np.int64)
        found: npt.NDArray[np.bool_] = np.isin(
            mix(mix(device, self._streams(tasks)), raw.ts_ns[tasks]), wanted
        )
        return found

    def _device_of(self, events: npt.NDArray[np.intp]) -> Int32:
        return self._by_process(events, lambda p: p.device).astype(np.int32)

    def _streams(self, events: npt.NDArray[np.intp]) -> Int64:
        """The stream a row stands on: its lane, "Stream 7" or just 7."""

        def stream(pid: int, tid: int) -> int:
            name = self.threads.get((pid, tid), "")
            digits = re.search(r"(\d{1,18})\s*$", name)
            return int(digits[1]) if digits else tid

        return by_pair(self.raw.pids(events), self.raw.tids(events), stream, dtype=np.int64)

    def _task_types(self, events: npt.NDArray[np.intp]) -> Int32:
        return self._text_codes("Task Type")[events]

    def _group_number(self, pid: int, tid: int) -> int:
        # a group may also be named by its hash or by an address, whose digits are no number of its own
        digits = re.match(r"Group (\d{1,9}) Communication$", self.threads.get((pid, tid), ""))
        return int(digits[1]) if digits else max(int(tid), 0) if abs(int(tid)) < 1 << 30 else 0

    @cached_property
    def _connections(self) -> Int64:
        """The connection id of every event; -1 and 2^32-1 mean none."""
        ids = self.raw.args.ids("connection_id", len(self.raw))
        return np.where((ids == -1) | (ids == NO_CONTEXT), NO_ID, ids)

    # -- links ---------------------------------------------------------------------------------------

    def _link_connections(
        self, calls: npt.NDArray[np.intp], work: npt.NDArray[np.intp], numbers: Int64
    ) -> None:
        raw = self.raw
        ids = self._connections
        levels = self._levels(calls)
        order = np.full(len(self.texts), 5, np.int8)
        for level, place in ascend_links.LEVEL_ORDER.items():
            if (code := self.raw.strings.find(level)) >= 0:
                order[code] = place
        self.by_connection = ascend_links.link_by_connection(
            self.rank.builder,
            numbers[calls],
            ids[calls],
            order[levels],
            raw.ts_ns[calls],
            numbers[work],
            ids[work],
        )

    def _link_queue(self, events: npt.NDArray[np.intp], numbers: Int64) -> None:
        raw = self.raw
        ids = raw.args.ids("correlation_id", len(raw))
        queued = events[(ids[events] != NO_ID) & (numbers[events] >= 0)]
        enqueue = queued[self._name_is(queued, lambda n: n.startswith("Enqueue"))]
        dequeue = queued[self._name_is(queued, lambda n: n.startswith("Dequeue"))]
        ascend_links.link_queue(
            self.rank.builder, numbers[enqueue], ids[enqueue], numbers[dequeue], ids[dequeue]
        )

    def _add_flows(self, events: npt.NDArray[np.intp], numbers: Int64) -> None:
        """Arrows by category: both ends on the span that starts exactly there, HostToDevice inside its call."""
        raw = self.raw
        starts = np.flatnonzero((raw.ph == ord("s")) & (raw.ts_ns != NO_TIME))
        ends = np.flatnonzero(((raw.ph == ord("f")) | (raw.ph == ord("t"))) & (raw.ts_ns != NO_TIME))
        bound = _Binder(raw, events, numbers, np.concatenate([starts, ends]))
        categories = used_codes(np.concatenate([raw.cat[starts], raw.cat[ends]]), len(self.texts))
        for code in [*categories, -1]:
            name = self.texts[code] if code >= 0 else "flow"
            s, f = starts[raw.cat[starts] == code], ends[raw.cat[ends] == code]
            if len(s) + len(f) == 0:
                continue
            start_span, end_span = bound(s), bound(f)
            self.flow_counts[name[:40]] = {
                "starts": len(s),
                "ends": len(f),
                "starts_on_a_span": int((start_span >= 0).sum()),
                "ends_on_a_span": int((end_span >= 0).sum()),
            }
            partner = pair_flows(raw.id[s], raw.id[f])
            paired = partner >= 0
            self.flow_counts[name[:40]]["pairs"] = int(paired.sum())
            if name == "HostToDevice":
                self._host_to_device(s[partner[paired]], end_span[paired])
            elif name != "async_task_queue" or not self._queue_has_ids():
                self.rank.builder.add_flows(start_span[partner[paired]], end_span[paired], code)
            if name == "async_npu":
                self.bound_operators = int(
                    ((start_span[partner[paired]] >= 0) & (end_span[paired] >= 0)).sum()
                )

    def _queue_has_ids(self) -> bool:
        return "correlation_id" in self.raw.args.keys

    def _host_to_device(self, starts: npt.NDArray[np.intp], end_events: Int64) -> None:
        raw = self.raw
        good = end_events >= 0
        starts, end_events = starts[good], end_events[good]
        self.arrows = Arrows(
            track=by_pair(raw.pids(starts), raw.tids(starts), self._host_track),
            time_ns=raw.ts_ns[starts],
            event=end_events,
        )

    # -- counters and marks --------------------------------------------------------------------------

    def _add_counters(self) -> None:
        """One counter per (process, name, argument); units stay in the argument's name."""
        raw = self.raw
        is_counter = (raw.ph == ord("C")) & (raw.ts_ns != NO_TIME)
        if not is_counter.any():
            return
        n = len(raw)
        entry = np.flatnonzero(is_counter[raw.args.event])
        entry_keys = raw.args.key[entry]
        used = used_codes(entry_keys, len(raw.args.keys))
        part = raw.args.ints("acc_id", n, -1) if "acc_id" in raw.args.keys else None
        for key in (raw.args.keys[k] for k in used):
            if key == "acc_id":
                continue
            mine = entry[entry_keys == raw.args.keys.index(key)]
            values = _numbers(*raw.args.entries(mine))
            good = ~np.isnan(values)
            at, values = raw.args.event[mine[good]], values[good]
            if len(at) == 0:
                continue
            parts = np.full(len(at), -1) if part is None else part[at]
            group, heads = grouped(raw.pids(at), raw.name[at], parts)
            order = np.argsort(group, kind="stable")
            ends = np.cumsum(np.bincount(group, minlength=len(heads)))
            for head, end, begin in zip(heads.tolist(), ends.tolist(), [0, *ends[:-1].tolist()], strict=True):
                i, rows = int(at[head]), order[begin:end]
                name = counter_label(self.texts[raw.name[i]] if raw.name[i] >= 0 else "", key)
                self._counter(at[rows], int(raw.pids(i)), name, int(parts[head]), values[rows])

    def _counter(
        self, events: npt.NDArray[Any], pid: int, label: str, acc: int, values: npt.NDArray[np.float64]
    ) -> None:
        process = self.processes[pid]
        label = (label or process.name) + (f" {acc}" if acc >= 0 else "")
        track = self.rank.label_track(process.name or "counters", process.device)
        self.rank.builder.add_counters(self.raw.ts_ns[events], self.raw.strings.code(label), track, values)

    def _add_marks(self) -> None:
        raw = self.raw
        points = np.flatnonzero(
            np.isin(raw.ph, [ord("i"), ord("I"), ord("n"), ord("R")]) & (raw.ts_ns != NO_TIME)
        )
        if len(points):
            self.rank.builder.add_marks(raw.ts_ns[points], self._names(points), -1, points)

    def step_ends(self) -> dict[int, tuple[int, int]]:
        """Host start and end of each ProfilerStep, by its number; absolute ns."""
        raw = self.raw
        spans = self._valid_steps()
        out: dict[int, tuple[int, int]] = {}
        for i in spans.tolist():
            digits = self.texts[raw.name[i]].partition("#")[2]
            if digits.isdecimal() and len(digits) < 19:
                start = int(raw.ts_ns[i])
                out[int(digits)] = (start, start + max(int(raw.dur_ns[i]), 0))
        return out

    def _valid_steps(self) -> npt.NDArray[np.intp]:
        raw = self.raw
        spans = np.flatnonzero((raw.ph == ord("X")) & (raw.ts_ns != NO_TIME))
        return spans[self._name_is(spans, lambda n: n.startswith("ProfilerStep#"))]


class _Binder:
    """Finds the span that starts exactly where an arrow's end stands: same process, thread and time."""

    def __init__(
        self, raw: RawEvents, events: npt.NDArray[np.intp], numbers: Int64, points: npt.NDArray[np.intp]
    ) -> None:
        self.raw = raw
        wanted = np.sort(self._key(points))
        known = events[numbers[events] >= 0]
        key = self._key(known)
        # arrows are fewer than spans: keep the spans that any of them may mean before sorting
        if len(wanted):
            meant = wanted[np.minimum(np.searchsorted(wanted, key), len(wanted) - 1)] == key
            known, key = known[meant], key[meant]
        # of spans that start together on a thread the innermost is the one an arrow means
        order = np.lexsort((raw.dur_ns[known], key))
        self.order = np.arange(len(known))
        self.numbers = numbers[known[order]]
        self.sorted = key[order]
        self.ts = raw.ts_ns[known[order]]

    def _key(self, events: npt.NDArray[np.intp]) -> Int64:
        return mix(mix(self.raw.pids(events), self.raw.tids(events)), self.raw.ts_ns[events])

    def __call__(self, points: npt.NDArray[np.intp]) -> Int64:
        """Event numbers of the spans at flow events, -1 where there is none."""
        if len(points) == 0 or len(self.sorted) == 0:
            return np.full(len(points), -1, np.int64)
        wanted = self._key(points)
        at = np.minimum(np.searchsorted(self.sorted, wanted), len(self.sorted) - 1)
        found = self.order[at]
        hit = (self.sorted[at] == wanted) & (self.ts[found] == self.raw.ts_ns[points])
        return np.where(hit, self.numbers[found], -1)


def pair_flows(start_ids: Int64, end_ids: Int64) -> npt.NDArray[np.intp]:
    """For each end the index of its start, or -1. Starts that share an id pair with the ends in order.

    Two kernels that start in one nanosecond share an `async_npu` id; one start may have many ends.
    """
    if len(start_ids) == 0 or len(end_ids) == 0:
        return np.full(len(end_ids), -1, np.intp)
    order = np.argsort(start_ids, kind="stable")
    ids = start_ids[order]
    first = np.searchsorted(ids, end_ids, side="left")
    count = np.searchsorted(ids, end_ids, side="right") - first
    end_order = np.argsort(end_ids, kind="stable")
    sorted_ends = end_ids[end_order]
    new = np.ones(len(end_ids), bool)
    new[1:] = sorted_ends[1:] != sorted_ends[:-1]
    begin = np.maximum.accumulate(np.where(new, np.arange(len(end_ids)), 0))
    place = np.empty(len(end_ids), np.int64)
    place[end_order] = np.arange(len(end_ids)) - begin
    at = first + np.minimum(place, np.maximum(count - 1, 0))
    return np.where(count > 0, order[np.minimum(at, len(order) - 1)], -1)


def mix(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> Int64:
    """A 64-bit mix of two columns; equal pairs give equal values."""
    with np.errstate(over="ignore"):
        x = a.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(31)
        x += b.astype(np.uint64) * np.uint64(0xD6E8FEB86659FD93)
        x ^= x >> np.uint64(32)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(29)
    return x.view(np.int64)


def _numbers(tag: npt.NDArray[np.uint8], value: Int64) -> npt.NDArray[np.float64]:
    """Arguments as floats, NaN for what is no number."""
    out = np.where(tag == ARG_INT, value, np.nan)
    real = tag == ARG_FLOAT
    out[real] = value[real].view(np.float64)
    return out


def _role(name: str) -> int:
    return next((role for pattern, role in _ROLES if re.search(pattern, name)), OTHER)


def _new_pid_scheme(roles: dict[int, int]) -> bool:
    """Whether pids of device processes are (host pid << 10) | (layer << 5) | device.

    True where they agree on a host pid that is there, or, without a framework process, among themselves.
    """
    layers = [p for p, r in roles.items() if r in (CANN, HARDWARE, GROUPS, OVERLAP) and 0 < p < 1 << 52]
    bases = {p >> 10 for p in layers}
    if len(bases) != 1 or 0 in bases:
        return False
    hosts = {p for p, r in roles.items() if r == FRAMEWORK}
    if hosts & bases:
        return True
    return len(layers) >= 2 and len({(p >> 5) & 31 for p in layers}) == len(layers)


def _device(pid_code: int, label: str, is_new: bool) -> tuple[int, bool]:
    """The device of a process, and whether the trace says it: by its label, else by the newer pid scheme."""
    if digits := re.search(r"NPU\s*(\d{1,5})\b", label):
        return int(digits[1]), True
    if is_new and 0 < pid_code < 1 << 52:
        return pid_code & 31, True
    return 0, False


def counter_label(name: str, key: str) -> str:
    """A counter's name with its unit: "HBM 0/Read (MB/s)".

    >>> counter_label("HBM 0/Read", "Read(MB/s)"), counter_label("AI Core Freq", "MHz"), counter_label("QoS", "value")
    ('HBM 0/Read (MB/s)', 'AI Core Freq (MHz)', 'QoS')
    """
    if key in ("value", name):
        return name
    if unit := re.search(r"\(([^()]+)\)$", key):
        return f"{name} ({unit[1]})"
    return f"{name} ({key})"


def dims(text: str) -> list[Any]:
    """Operator shapes of torch_npu ("8,64;\\r\\n64,64") as lists of integers; a scalar is the empty list.

    >>> dims("8,64;\\r\\n64,64;\\r\\n")
    [[8, 64], [64, 64], []]
    """
    return [
        [int(d) for d in part.split(",") if d.strip().lstrip("-").isdecimal()] for part in text.split(";")
    ]


def types(text: str) -> list[str]:
    """Operator input types of torch_npu as a list."""
    return [part.strip() for part in text.split(";")]


__all__ = ["READER_VERSION", "Trace", "finish", "link_facts", "load_trace", "read", "sniff"]
