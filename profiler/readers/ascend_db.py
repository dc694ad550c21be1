"""Ascend profiler databases: ascend_pytorch_profiler*.db, ascend_mindspore_profiler*.db, msprof_*.db, analysis.db.

Reads:  device tasks, kernels with shapes and core metrics, collectives and their parts, CANN and framework calls,
        the task queue, mstx ranges, garbage collections, steps, memory, clock and bandwidth counters; the step
        and communication tables of analysis.db. Older report_*.db files with an API table.
Leaves: ACC_PMU, QOS, SOC_BANDWIDTH_LEVEL, network and host-usage tables; what MindStudio Insight writes into a
        database it opens (depth, waitNs, OVERLAP_ANALYSIS: derived values).

Tables and columns are optional and found by name. What an operator caused is joined by ids, not by time.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.errors import InputError
from stallscope.profiler.ids import NO_ID
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers import (
    ascend_analysis,
    ascend_files,
    ascend_links,
    ascend_steps,
    ascend_trace,
)
from stallscope.profiler.readers.ascend_links import Arrows
from stallscope.profiler.readers.ascend_rank import (
    MAX_DEVICE,
    MAX_RANK,
    NO_CONTEXT,
    ArgColumn,
    DeviceTasks,
    GroupOps,
    Kernels,
    RankBuilder,
    by_pair,
    core_name,
    device_numbers,
    listed,
    shapes,
)
from stallscope.profiler.readers.ascend_sqlite import MISSING, Database, is_database, opened
from stallscope.profiler.readers.ascend_table import clean
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import (
    ARG_FLOAT,
    ARG_INT,
    ARG_JSON,
    ARG_STRING,
    Allocations,
    Int32,
    Int64,
    StringTable,
    Timeline,
)

READER_VERSION = 1
_MAX_STACK_ROWS = 5_000_000
_OWN_NAME = re.compile(r"(ascend_|msprof|analysis)")
"""Names of the profilers' own databases; viewers leave others beside them."""
_MAIN_TABLES = {"TASK", "PYTORCH_API", "CANN_API", "API", "COMPUTE_TASK_INFO", "MSTX_EVENTS"}
_ANALYSIS_TABLES = {"StepTraceTime", "CommAnalyzerTime", "CommAnalyzerBandwidth", "CommAnalyzerMatrix"}

_API_LEVELS = {20000: ("AscendCL", "acl"), 15000: ("Model", "model"), 10000: ("Node", "node"),
               5500: ("Hccl", "hccl"), 5000: ("Runtime", "runtime")}  # fmt: skip
_OP, _QUEUE, _PYTHON = 50001, 50002, 50003
# 50004 are the operators that set mstx marks, which the trace shows as operators, too


_KERNEL_COLUMNS = (
    "name", "taskType", "opType", "opState", "hf32Eligible", "blockNum|blockDim|block_dim",
    "mixBlockNum|mixBlockDim|mix_block_dim", "inputShapes", "inputDataTypes", "inputFormats", "outputShapes",
    "outputDataTypes", "outputFormats", "waitNs",
)  # fmt: skip
"""Columns of COMPUTE_TASK_INFO, read together; newest names first."""


# -- which file ------------------------------------------------------------------------------------


def split_databases(paths: list[Path], notes: Notes | None = None) -> tuple[list[Path], list[Path]]:
    """Recordings and analysis databases among some files; others are in neither list, damaged ones in the notes."""
    mains, analyses = [], []
    for path in paths:
        try:
            with opened(path) as db:
                if db.tables.keys() & _MAIN_TABLES:
                    mains.append(path)
                elif db.tables.keys() & _ANALYSIS_TABLES:
                    analyses.append(path)
        except InputError as error:
            if notes is not None and _OWN_NAME.match(path.name):
                notes.add(
                    "database-unreadable",
                    "data_loss",
                    f"{path.name} could not be used ({error.seen}) and was left out",
                    1,
                    path.name,
                )
    return mains, analyses


def sniff(path: Path) -> bool:
    """An SQLite file with tables that Ascend profilers write."""
    if not path.is_file() or not is_database(path):
        return False
    try:
        with opened(path) as db:
            names = db.tables.keys()
            return bool(names & _ANALYSIS_TABLES) or ("STRING_IDS" in names and bool(names & _MAIN_TABLES))
    except InputError:
        return False


# -- one rank ----------------------------------------------------------------------------------------


@dataclass
class RankResult:
    """What a database gave."""

    timeline: Timeline
    facts: dict[str, Any]
    notes: Notes
    devices: dict[str, dict[str, Any]]


def read(path: Path) -> Session:
    """Read a lone database. Raises InputError where nothing in it can be used."""
    with opened(path) as db:
        main = bool(db.tables.keys() & _MAIN_TABLES)
    if not main:
        raise InputError(
            path,
            "a database of step and communication times, without a timeline",
            "Give the folder it lies in, or ascend_pytorch_profiler.db.",
        )
    found = read_rank(path, -1, [])
    facts: dict[str, Any] = {
        "source": path.name,
        "format": "ascend-db",
        "reader_version": READER_VERSION,
        "producer": "MindSpore"
        if "mindspore" in path.name
        else "msprof"
        if path.name.startswith("msprof")
        else "torch_npu",
        "devices": found.devices,
        "ascend": {"ranks": [found.facts]},
    }
    if found.facts.get("rank", -1) >= 0:
        facts["rank"] = found.facts["rank"]
    return Session(found.timeline, facts, found.notes)


def read_rank(path: Path, number: int, analyses: list[Path]) -> RankResult:
    """Read one rank's database, and the step and communication tables of the analysis databases beside it."""
    with opened(path) as db:
        reader = _Reader(db, number)
        reader.add_all()
        result = reader.result()
    for other in analyses:
        try:
            for key, rows in ascend_analysis.analysis_facts(other).items():
                result.facts.setdefault(key, rows)
        except InputError as error:
            result.notes.add(
                "database-unreadable",
                "warning",
                f"{other.name} could not be used ({error.seen})",
                1,
                other.name,
            )
    if "step_trace_time" in result.facts and "steps" in result.facts:
        ascend_steps.compare_steps(result.facts["step_trace_time"], result.facts["steps"], result.notes)
    return result


class _Reader:
    def __init__(self, db: Database, number: int) -> None:
        self.db = db
        self.facts: dict[str, Any] = {"rank": self._rank(number), "form": "db"}
        self.rank = RankBuilder(self.facts["rank"], StringTable())
        self.strings = self.rank.strings
        self.text = db.texts(self.strings)
        self.by_connection = 0
        self.bound_operators = 0
        self.host_steps: dict[int, tuple[int, int]] = {}
        self.step_ranges: dict[int, tuple[int, int]] = {}
        self.many_processes = self._count_processes() > 1

    def _rank(self, number: int) -> int:
        if number >= 0:
            return number
        ranks = [
            r
            for r, _ in self.db.rows("RANK_DEVICE_MAP", "rankId", "deviceId")
            if isinstance(r, int) and 0 <= r < MAX_RANK
        ]
        return ranks[0] if len(set(ranks)) == 1 else -1

    def _count_processes(self) -> int:
        (tids,) = self.db.ints("CANN_API", "globalTid")
        return len(kernels.distinct(tids >> 32))

    def add_all(self) -> None:
        calls = self._add_calls()
        framework = self._add_framework()
        self._add_collections()
        marks = self._add_mstx()
        self._add_device(calls, framework, marks)
        self._add_steps()
        self._add_counters()
        self._add_memory()
        self._meta()

    def result(self) -> RankResult:
        timeline = self.rank.builder.finish(clock="realtime")
        if timeline.origin_ns < 10**18:
            timeline.clock = "unknown"
        cover = ascend_links.finish_links(self.rank.builder, timeline, Arrows.none(), self.by_connection)
        notes = self.rank.notes
        self.facts |= ascend_trace.link_facts(
            timeline, cover, self.by_connection + self.bound_operators > 0, self.rank
        )
        ascend_steps.add_kernel_facts(self.facts, timeline, self.rank, self.host_steps, self.step_ranges)
        notes.extend(self.db.notes)
        return RankResult(timeline, self.facts, notes, self._devices(timeline))

    def _timed(self, start: Int64, end: Int64) -> npt.NDArray[np.bool_]:
        """Rows with a start and an end; a start of 0 is a record that lost its time."""
        timed = (start > 0) & (end > 0)
        self.rank.notes.add(
            "span-without-time",
            "data_loss",
            "spans without a readable start were left out",
            int((~timed).sum()),
        )
        return timed

    # -- ids -----------------------------------------------------------------------------------------

    def _scoped(self, process: Int64, connection: Int64) -> Int64:
        """Connection ids that cannot meet those of another process; NO_ID for none (-1, NULL, 2^32-1)."""
        none = (connection < 0) | (connection == NO_CONTEXT)
        ids = connection
        if self.many_processes:
            ids = connection + ((process & 0x3FFFFF) << 40)
        return np.where(none, NO_ID, ids)

    def _host_tracks(self, global_tid: Int64, process: str) -> Int32:
        def make(pid: int, tid: int) -> int:
            return self.rank.host_track(pid if pid > 0 else -1, tid, process)

        return by_pair(global_tid >> 32, global_tid & 0xFFFFFFFF, make)

    # -- host ----------------------------------------------------------------------------------------

    def _add_calls(self) -> tuple[Int64, Int64, npt.NDArray[np.int8], Int64]:
        """CANN calls; returns their events, scoped connection ids, level order and starts."""
        table = "CANN_API" if "CANN_API" in self.db else "API"
        start, end, level, tid, connection, name = self.db.ints(
            table, "startNs", "endNs", "type", "globalTid", "connectionId|globalTaskId", "name"
        )
        keep = self._timed(start, end) & (level < _OP)
        start, end, level, tid, connection, name = (
            c[keep] for c in (start, end, level, tid, connection, name)
        )
        codes = self.text(name, self.strings.code("(unnamed)"))
        category = np.full(len(start), -1, np.int32)
        order = np.full(len(start), 5, np.int8)
        names = codes.copy()
        enum = {int(i): str(n) for i, n in self.db.rows("ENUM_API_TYPE", "id", "name") if isinstance(i, int)}
        for number in kernels.distinct(level).tolist():
            prefix, short = _API_LEVELS.get(
                int(number), (enum.get(int(number), "CANN").title(), enum.get(int(number), "acl"))
            )
            mine = level == number
            category[mine] = self.strings.code(short)
            order[mine] = ascend_links.LEVEL_ORDER.get(short, 5)
            distinct, inverse = np.unique(codes[mine], return_inverse=True)
            full = self.strings.codes([f"{prefix}@{self.strings[int(c)]}" for c in distinct])
            names[mine] = full[inverse.reshape(-1)] if len(full) else names[mine]
        ids = self._scoped(tid >> 32, connection)
        events = self.rank.builder.add(
            track=self._host_tracks(tid, "Python"),
            start_ns=start,
            dur_ns=np.maximum(end - start, 0),
            name=names,
            kind=Kind.RUNTIME,
            category=category,
            correlation=ids,
        )
        return events, ids, order, start

    def _add_framework(self) -> tuple[Int64, Int64, Int64]:
        """PyTorch or MindSpore rows; returns the operators' events, their CONNECTION_IDS ids and processes."""
        table = next(
            (t for t in ("PYTORCH_API", "MINDSPORE_API", "FRAMEWORK_API") if t in self.db), "PYTORCH_API"
        )
        start, end, tid, link, name, kind_number, sequence, forward, types, dims, chain = self.db.ints(
            table, "startNs", "endNs", "globalTid", "connectionId", "name", "type",
            "sequenceNumber", "fwdThreadId", "inputDtypes", "inputShapes", "callchainId",
        )  # fmt: skip
        keep = self._timed(start, end)
        columns = (start, end, tid, link, name, kind_number, sequence, forward, types, dims, chain)
        start, end, tid, link, name, kind_number, sequence, forward, types, dims, chain = (
            c[keep] for c in columns
        )
        codes = self.text(name, self.strings.code("(unnamed)"))
        kind, category = self._framework_kinds(codes, kind_number)
        queue_ids = np.full(len(start), NO_ID, np.int64)
        is_queue = kind == Kind.QUEUE
        queue_ids[is_queue] = self._queue_ids(link[is_queue])
        events = self.rank.builder.add(
            track=self._host_tracks(tid, "Python"),
            start_ns=start,
            dur_ns=np.maximum(end - start, 0),
            name=codes,
            kind=kind,
            category=category,
            correlation=queue_ids,
        )
        self._queue(events, codes, is_queue, queue_ids)
        self._find_steps(codes, start, end)
        operator = (kind == Kind.OPERATOR) | (kind == Kind.ANNOTATION)
        self._operator_args(events, operator, sequence, forward, types, dims, chain)
        return events[operator], link[operator], (tid >> 32)[operator]

    def _framework_kinds(self, codes: Int32, number: Int64) -> tuple[npt.NDArray[np.int8], Int32]:
        kind = np.full(len(codes), int(Kind.OPERATOR), np.int8)
        kind[number == _PYTHON] = Kind.PYTHON
        kind[number == _QUEUE] = Kind.QUEUE
        operator = kind == Kind.OPERATOR
        kind[operator & self._named(codes, "ProfilerStep#")] = Kind.ANNOTATION
        if not (number == _QUEUE).any():
            kind[operator & self._named(codes, "Enqueue", "Dequeue")] = Kind.QUEUE
        category = np.full(len(codes), self.strings.code("cpu_op"), np.int32)
        category[kind == Kind.PYTHON] = self.strings.code("python_function")
        enqueue, dequeue = self.strings.code("enqueue"), self.strings.code("dequeue")
        queue = kind == Kind.QUEUE
        category[queue] = np.where(self._named(codes[queue], "Dequeue"), dequeue, enqueue)
        return kind, category

    def _named(self, codes: Int32, *starts: str) -> npt.NDArray[np.bool_]:
        """Whether the text of each code begins with one of some words, asked once per distinct text."""
        distinct, inverse = np.unique(codes, return_inverse=True)
        found = np.array([self.strings[int(c)].startswith(starts) for c in distinct] or [False])
        named: npt.NDArray[np.bool_] = found[inverse.reshape(-1)]
        return named

    def _queue_ids(self, link: Int64) -> Int64:
        """The id a queue step shares with its partner: the first CONNECTION_IDS value of its own id."""
        ids, values = self._connection_ids()
        out = np.full(len(link), NO_ID, np.int64)
        if len(ids):
            at = np.minimum(np.searchsorted(ids, link), len(ids) - 1)
            hit = ids[at] == link
            out[hit] = values[at[hit]]
        return out

    def _connection_ids(self) -> tuple[Int64, Int64]:
        ids, values = self.db.ints("CONNECTION_IDS", "id", "connectionId")
        order = np.argsort(ids, kind="stable")
        return ids[order], values[order]

    def _queue(self, events: Int64, codes: Int32, is_queue: npt.NDArray[np.bool_], ids: Int64) -> None:
        is_enqueue = self._named(codes, "Enqueue")
        enqueue, dequeue = is_queue & is_enqueue, is_queue & ~is_enqueue
        ascend_links.link_queue(
            self.rank.builder, events[enqueue], ids[enqueue], events[dequeue], ids[dequeue]
        )

    def _find_steps(self, codes: Int32, start: Int64, end: Int64) -> None:
        distinct, first = np.unique(codes, return_index=True)
        for code, at in zip(distinct.tolist(), first.tolist(), strict=True):
            head, _, digits = self.strings[code].partition("#")
            if head == "ProfilerStep" and digits.isdecimal() and len(digits) < 19:
                self.host_steps[int(digits)] = (int(start[at]), int(end[at]))

    def _operator_args(
        self,
        events: Int64,
        operator: npt.NDArray[np.bool_],
        sequence: Int64,
        forward: Int64,
        types: Int64,
        dims: Int64,
        chain: Int64,
    ) -> None:
        sources = self.rank.builder.sources(events)
        for key, column in (("Sequence number", sequence), ("Fwd thread id", forward)):
            given = operator & (column != MISSING)
            self.rank.builder.add_args(sources[given], key, ARG_INT, column[given])
        for key, column, convert in (
            ("Input type", types, ascend_trace.types),
            ("Input Dims", dims, ascend_trace.dims),
        ):
            given = operator & (column != MISSING)
            codes = self.text(column[given])
            self._json_arg(sources[given], key, codes, convert)
        self._stacks(sources[operator], chain[operator])

    def _json_arg(self, sources: Int32, key: str, codes: Int32, convert: Any) -> None:
        distinct, inverse = np.unique(codes, return_inverse=True)
        table = np.array(
            [self.strings.code(json.dumps(convert(self.text.text(int(c))))) for c in distinct] or [0],
            np.int64,
        )
        self.rank.builder.add_args(sources, key, ARG_JSON, table[inverse.reshape(-1)])

    def _stacks(self, sources: Int32, chain: Int64) -> None:
        """Call stacks of operators, innermost frame first, as one text each."""
        ids, frames, depth = self.db.ints("PYTORCH_CALLCHAINS", "id", "stack", "stackDepth")
        if len(ids) == 0:
            return
        if len(ids) > _MAX_STACK_ROWS:
            self.rank.notes.add(
                "call-stacks-skipped", "info", "call stacks of operators are too many to be kept", len(ids)
            )
            return
        order = np.lexsort((depth, ids))
        ids, codes = ids[order], self.text(frames[order])
        first = np.flatnonzero(np.append(True, ids[1:] != ids[:-1]))
        ends = np.append(first[1:], len(ids))
        texts = [
            ";\r\n".join(self.strings[c] for c in codes[a:b].tolist() if c >= 0)
            for a, b in zip(first, ends, strict=True)
        ]
        known = ids[first]
        at = np.minimum(np.searchsorted(known, chain), len(known) - 1)
        hit = known[at] == chain
        values = self.strings.codes(texts)[at[hit]]
        self.rank.builder.add_args(sources[hit], "Call stack", ARG_STRING, values)

    def _add_collections(self) -> None:
        start, end, tid = self.db.ints("GC_RECORD", "startNs", "endNs", "globalTid")
        keep = self._timed(start, end)
        if keep.any():
            self.rank.builder.add(
                track=self._host_tracks(tid[keep], "Python"),
                start_ns=start[keep],
                dur_ns=np.maximum(end - start, 0)[keep],
                name=self.strings.code("GC"),
                kind=Kind.PYTHON,
                category=self.strings.code("GC"),
            )

    def _add_mstx(self) -> Int64:
        """mstx ranges as annotations and marks as points; returns the scoped connection ids they use."""
        start, end, event_type, message, tid, connection = self.db.ints(
            "MSTX_EVENTS", "startNs", "endNs", "eventType", "message", "globalTid", "connectionId"
        )
        keep = start > 0
        start, end, event_type, message, tid, connection = (
            c[keep] for c in (start, end, event_type, message, tid, connection)
        )
        names = self.text(message, self.strings.code("(unnamed)"))
        point = np.isin(event_type, [0, 3]) | (end == MISSING)
        tracks = self._host_tracks(tid, "Python")
        self.rank.builder.add(
            track=tracks[~point],
            start_ns=start[~point],
            dur_ns=np.maximum(end - start, 0)[~point],
            name=names[~point],
            kind=Kind.ANNOTATION,
            category=self.strings.code("mstx"),
        )
        self.rank.builder.add_marks(start[point], names[point], tracks[point])
        ids = self._scoped(tid >> 32, connection)
        used: Int64 = ids[ids != NO_ID]
        return used

    # -- device --------------------------------------------------------------------------------------

    def _add_device(
        self,
        calls: tuple[Int64, Int64, npt.NDArray[np.int8], Int64],
        framework: tuple[Int64, Int64, Int64],
        marks: Int64,
    ) -> None:
        start, end, device, connection, number, process, task_type, context, stream, task, model = self.db.ints(
            "TASK", "startNs", "endNs", "deviceId", "connectionId|globalTaskId", "globalTaskId", "globalPid",
            "taskType", "contextId", "streamId", "taskId", "modelId",
        )  # fmt: skip
        device = device_numbers(device).astype(np.int64)
        keep = self._timed(start, end)
        tasks = _Tasks(
            *(
                c[keep]
                for c in (
                    start,
                    end,
                    device,
                    connection,
                    number,
                    process,
                    task_type,
                    context,
                    stream,
                    task,
                    model,
                )
            )
        )
        if "API" in self.db and "CANN_API" not in self.db:
            tasks.connection = tasks.number
        info = self._kernel_info(tasks)
        tasks, info = self._without_parents(tasks, info)
        ids = self._scoped(tasks.process, tasks.connection)
        ops, op_ids = self._group_ops(tasks, ids)
        rows = self._device_rows(tasks, info, ids, marks)
        kernels, of_task, of_op = self._kernel_table(tasks, info, ids, ops)
        task_events, op_events = self.rank.add_tasks(rows, ops, kernels, (of_task, of_op))
        self._task_args(tasks, task_events)
        self._planes(tasks)
        events, call_ids, order, call_start = calls
        self.by_connection = ascend_links.link_by_connection(
            self.rank.builder, events, call_ids, order, call_start,
            np.concatenate([task_events, op_events]), np.concatenate([ids, op_ids]),
        )  # fmt: skip
        is_kernel = np.zeros(len(tasks.start), bool)
        is_kernel[of_task[of_task >= 0]] = True
        targets = np.concatenate([task_events[is_kernel], op_events])
        self._link_operators(framework, targets, np.concatenate([ids[is_kernel], op_ids]))

    def _kernel_info(self, tasks: _Tasks) -> Int64:
        """Row of COMPUTE_TASK_INFO of each task, -1 for none."""
        number = self.db.ints("COMPUTE_TASK_INFO", "globalTaskId", *_KERNEL_COLUMNS)[0]
        return _lookup(number, tasks.number)

    def _without_parents(self, tasks: _Tasks, info: Int64) -> tuple[_Tasks, Int64]:
        """Drop tasks that only hold sub-tasks: the kernel itself has a row of its own with a context id."""
        whole = tasks.context == NO_CONTEXT
        key = ascend_trace.mix(
            ascend_trace.mix(tasks.device, tasks.stream), ascend_trace.mix(tasks.task, tasks.connection)
        )
        parent = whole & np.isin(key, key[~whole]) & (info < 0)
        (parts,) = self.db.ints("COMMUNICATION_TASK_INFO", "globalTaskId")
        parent &= ~np.isin(tasks.number, parts)
        if parent.any():
            self.facts["parent_tasks"] = int(parent.sum())
        return tasks.take(~parent), info[~parent]

    def _group_ops(self, tasks: _Tasks, ids: Int64) -> tuple[GroupOps, Int64]:
        name, start, end, connection, group, device = self.db.ints(
            "COMMUNICATION_OP", "opName", "startNs", "endNs", "connectionId", "groupName", "deviceId"
        )
        keep = self._timed(start, end)
        name, start, end, connection, group, device = (
            c[keep] for c in (name, start, end, connection, group, device)
        )
        # a collective names no process; its tasks do
        order = np.argsort(tasks.connection, kind="stable")
        at = _lookup(tasks.connection[order], connection)
        owner = np.where(at >= 0, order[np.maximum(at, 0)], -1) if len(order) else np.full(len(start), -1)
        process = (
            np.where(owner >= 0, tasks.process[np.maximum(owner, 0)], 0)
            if len(order)
            else np.zeros(len(start), np.int64)
        )
        from_task = tasks.device[np.maximum(owner, 0)] if len(order) else np.zeros(len(start), np.int64)
        fallback = self._only_device(tasks)
        device = np.where(
            (device >= 0) & (device < MAX_DEVICE), device, np.where(owner >= 0, from_task, fallback)
        )
        groups, first, inverse = np.unique(group, return_index=True, return_inverse=True)
        number = (
            np.argsort(np.argsort(start[first], kind="stable"), kind="stable")
            if len(groups)
            else np.zeros(0, np.int64)
        )
        op_ids = self._scoped(process, connection)
        ops = GroupOps(
            start_ns=start,
            dur_ns=np.maximum(end - start, 0),
            name=self.text(name, self.strings.code("(unnamed)")),
            device=device.astype(np.int32),
            group=number[inverse.reshape(-1)].astype(np.int64) if len(groups) else np.zeros(0, np.int64),
            connection=op_ids,
        )
        return ops, op_ids

    def _only_device(self, tasks: _Tasks) -> int:
        known = [
            d
            for _, d in self.db.rows("RANK_DEVICE_MAP", "rankId", "deviceId")
            if isinstance(d, int) and 0 <= d < MAX_DEVICE
        ]
        if known:
            return known[0]
        return int(tasks.device[0]) if len(tasks.device) else 0

    def _device_rows(self, tasks: _Tasks, info: Int64, ids: Int64, marks: Int64) -> DeviceTasks:
        types = self.text(tasks.type)
        types = self._core_names(types)
        names = np.where(types >= 0, types, self.strings.code("(unnamed)"))
        kernel_name, kernel_type = (
            self.text(c) for c in self.db.ints("COMPUTE_TASK_INFO", "name", "taskType")
        )
        has = info >= 0
        names[has] = np.where(kernel_name[info[has]] >= 0, kernel_name[info[has]], names[has])
        core = self._core_names(kernel_type)
        types[has] = np.where(core[info[has]] >= 0, core[info[has]], types[has])
        mark = np.isin(ids, marks) & (ids != NO_ID) & ~has
        types[mark] = self.strings.code("MSTX")
        return DeviceTasks(
            start_ns=tasks.start,
            dur_ns=np.maximum(tasks.end - tasks.start, 0),
            name=names.astype(np.int32),
            device=tasks.device.astype(np.int32),
            stream=np.where(tasks.stream == MISSING, NO_ID, tasks.stream),
            task_type=types.astype(np.int32),
            connection=ids,
            subtask=tasks.context != NO_CONTEXT,
            in_collective=np.isin(tasks.number, self.db.ints("COMMUNICATION_TASK_INFO", "globalTaskId")[0]),
        )

    def _core_names(self, codes: Int32) -> Int32:
        """Codes of core names in one spelling; -1 for N/A."""
        out = codes.copy()
        for code in kernels.distinct(codes[codes >= 0]).tolist():
            text = clean(self.strings[code])
            out[codes == code] = self.strings.code(core_name(text)) if text else -1
        return out

    def _kernel_table(
        self, tasks: _Tasks, info: Int64, ids: Int64, ops: GroupOps
    ) -> tuple[Kernels, npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """The same table as kernel_details.csv: compute tasks, then collectives; and which row each is."""
        at = np.flatnonzero(info >= 0)
        n, m = len(at), len(ops)
        name, core, op_type = (
            self.text(c)[info[at]] for c in self.db.ints("COMPUTE_TASK_INFO", "name", "taskType", "opType")
        )
        kernels = Kernels(
            start_ns=np.concatenate([tasks.start[at], ops.start_ns]),
            dur_ns=np.concatenate([np.maximum(tasks.end - tasks.start, 0)[at], ops.dur_ns]),
            name=np.concatenate([name, ops.name]).astype(np.int32),
            device=np.concatenate([tasks.device[at], ops.device]).astype(np.int32),
            stream=np.concatenate([tasks.stream[at], np.full(m, NO_ID, np.int64)]),
            core=np.concatenate(
                [self._core_names(core), np.full(m, self.strings.code("COMMUNICATION"), np.int32)]
            ),
            op_type=np.concatenate(
                [np.where(self._says_something(op_type), op_type, -1), np.full(m, -1, np.int32)]
            ).astype(np.int32),
            is_collective=np.concatenate([np.zeros(n, bool), np.ones(m, bool)]),
            step=np.full(n + m, -1, np.int64),
        )
        self.step_ranges = self._step_ranges(tasks, ids)
        kernels.step = self._steps_of(kernels)
        kernels.args = self._kernel_args(tasks, info, at) + self._op_args(n, ops, kernels)
        _add_column(kernels.args, "Step Id", ARG_INT, kernels.step, kernels.step >= 0)
        of_task = np.full(n + m, -1, np.intp)
        of_task[:n] = at
        of_op = np.full(n + m, -1, np.intp)
        of_op[n:] = np.arange(m)
        return kernels, of_task, of_op

    def _step_ranges(self, tasks: _Tasks, ids: Int64) -> dict[int, tuple[int, int]]:
        """Start and end of each step on the device by its number, in time order.

        A step's device range runs from the first task that a node launch inside the host step started to the
        later of the last such task's end and the host step's end, as the profiler's own tables have it.
        """
        for number, start, end in zip(*self.db.ints("STEP_TIME", "id", "startNs", "endNs"), strict=True):
            if start != MISSING and end != MISSING:
                self.host_steps.setdefault(int(number), (int(start), int(end)))
        if not self.host_steps:
            return {}
        start, end, level, tid, connection = self.db.ints(
            "CANN_API", "startNs", "endNs", "type", "globalTid", "connectionId"
        )
        launch_ids = self._scoped(tid >> 32, connection)
        node = np.flatnonzero((level == 10000) & (launch_ids != NO_ID))
        node = node[np.argsort(start[node], kind="stable")]
        order = np.argsort(ids, kind="stable")
        out = {}
        for number, (low, high) in sorted(self.host_steps.items(), key=lambda item: item[1]):
            inside = node[slice(*np.searchsorted(start[node], [low, high + 1]))]
            wanted = kernels.distinct(launch_ids[inside[end[inside] <= high]])
            first, last = (np.searchsorted(ids[order], wanted, side=side) for side in ("left", "right"))
            mine = order[_ranges(first[first < last], last[first < last])]
            if len(mine):
                out[number] = int(tasks.start[mine].min()), max(int(tasks.end[mine].max()), high)
            else:
                out[number] = low, high
        return out

    def _steps_of(self, kernels: Kernels) -> Int64:
        """The step in whose device range each kernel began, both ends included, -1 for none; of two the earlier."""
        numbers = np.array([*self.step_ranges, -1], np.int64)
        inclusive = [(step, (low, high + 1)) for step, (low, high) in self.step_ranges.items()]
        return numbers[ascend_steps.range_of(kernels.start_ns, inclusive)]

    def _kernel_args(self, tasks: _Tasks, info: Int64, at: npt.NDArray[np.intp]) -> list[ArgColumn]:
        out: list[ArgColumn] = []
        rows = info[at]
        for key, column in (
            ("Block Num", "blockNum|blockDim|block_dim"),
            ("Mix Block Num", "mixBlockNum|mixBlockDim|mix_block_dim"),
        ):
            (values,) = self.db.ints("COMPUTE_TASK_INFO", column)
            _add_column(out, key, ARG_INT, values[rows], values[rows] != MISSING)
        for key, column in (
            ("Type", "opType"),
            ("Accelerator Core", "taskType"),
            ("OP State", "opState"),
            ("HF32 Eligible", "hf32Eligible"),
        ):
            (values,) = self.db.ints("COMPUTE_TASK_INFO", column)
            codes = self.text(values[rows])
            codes = self._core_names(codes) if key == "Accelerator Core" else codes
            _add_column(out, key, ARG_STRING, codes.astype(np.int64), self._says_something(codes))
        for side in ("Input", "Output"):
            for key, column, convert in ((f"{side} Shapes", f"{side.lower()}Shapes", shapes),
                                         (f"{side} Data Types", f"{side.lower()}DataTypes", listed),
                                         (f"{side} Formats", f"{side.lower()}Formats", listed)):  # fmt: skip
                (values,) = self.db.ints("COMPUTE_TASK_INFO", column)
                self._add_lists(out, key, self.text(values[rows]), convert)
        (wait,) = self.db.ints("COMPUTE_TASK_INFO", "waitNs")
        _add_column(
            out, "Wait Time(us)", ARG_FLOAT, (wait[rows] / 1000.0).view(np.int64), wait[rows] != MISSING
        )
        out += self._core_metrics(tasks.number[at])
        return out

    def _says_something(self, codes: Int32) -> npt.NDArray[np.bool_]:
        distinct = kernels.distinct(codes)
        good = np.array([c >= 0 and self.strings[int(c)] not in ("", "N/A") for c in distinct] or [False])
        return good[np.searchsorted(distinct, codes)] if len(codes) else np.zeros(0, bool)

    def _add_lists(self, out: list[ArgColumn], key: str, codes: Int32, convert: Any) -> None:
        given = self._says_something(codes)
        distinct, inverse = np.unique(codes[given], return_inverse=True)
        table = np.array(
            [self.strings.code(json.dumps(convert(self.strings[int(c)]))) for c in distinct] or [0], np.int64
        )
        values = np.zeros(len(codes), np.int64)
        values[given] = table[inverse.reshape(-1)] if len(distinct) else 0
        _add_column(out, key, ARG_JSON, values, given)

    def _core_metrics(self, number: Int64) -> list[ArgColumn]:
        """TASK_PMU_INFO under the names of the CSV; times there are ns, here us. Cores that never ran say nothing."""
        ids, name, value = self.db.columns("TASK_PMU_INFO", ("globalTaskId", "name"), ("value",))
        if len(ids) == 0 or len(number) == 0:
            return []
        order = np.argsort(number, kind="stable")
        at = _lookup(number[order], ids)
        row = np.where(at >= 0, order[np.maximum(at, 0)], -1)
        codes = self.text(name)
        ran = self._ran(codes, row, value, len(number))
        out: list[ArgColumn] = []
        for code in kernels.distinct(codes).tolist():
            key, factor = metric_key(self.text.text(code))
            mine = np.flatnonzero((codes == code) & (row >= 0) & ~np.isnan(value))
            side = self.text.text(code)[:4]
            if side in ran:
                mine = mine[ran[side][row[mine]]]
            if len(mine):
                scaled = value[mine] / factor
                if key.endswith("_cycles"):
                    out.append(
                        ArgColumn(key, row[mine].astype(np.intp), ARG_INT, np.rint(scaled).astype(np.int64))
                    )
                else:
                    out.append(ArgColumn(key, row[mine].astype(np.intp), ARG_FLOAT, scaled.view(np.int64)))
        return out

    def _ran(
        self, codes: Int32, row: npt.NDArray[Any], value: npt.NDArray[np.float64], kernels: int
    ) -> dict[str, npt.NDArray[np.bool_]]:
        out: dict[str, npt.NDArray[np.bool_]] = {}
        for side in ("aic_", "aiv_"):
            code = self.strings.find(f"{side}total_cycles")
            mine = (codes == code) & (row >= 0) & (code >= 0)
            if mine.any():
                ran = np.zeros(kernels, bool)
                ran[row[mine]] = value[mine] > 0
                out[side] = ran
        return out

    def _op_args(self, first: int, ops: GroupOps, kernels: Kernels) -> list[ArgColumn]:
        out: list[ArgColumn] = []
        rows = np.arange(first, first + len(ops))
        if len(ops) == 0:
            return out
        keep = np.flatnonzero(
            np.logical_and(*(c > 0 for c in self.db.ints("COMMUNICATION_OP", "startNs", "endNs")))
        )
        types = [name.split("__")[0] + "_" for name in (self.strings[int(c)] for c in ops.name)]
        out.append(ArgColumn("Type", rows, ARG_STRING, self.strings.codes(types).astype(np.int64)))
        out.append(
            ArgColumn(
                "Accelerator Core",
                rows,
                ARG_STRING,
                np.full(len(ops), self.strings.code("COMMUNICATION"), np.int64),
            )
        )
        kernels.op_type[rows] = self.strings.codes(types)
        (count,) = self.db.ints("COMMUNICATION_OP", "count")
        given = count[keep] != MISSING
        out.append(ArgColumn("count", rows[given], ARG_INT, count[keep][given]))
        data_types = {
            int(i): str(n) for i, n in self.db.rows("ENUM_HCCL_DATA_TYPE", "id", "name") if isinstance(i, int)
        }
        (kind, algorithm) = self.db.ints("COMMUNICATION_OP", "dataType", "algType")
        names = [data_types.get(k, "") for k in kind[keep].tolist()]
        told = np.array([bool(n) for n in names])
        out.append(
            ArgColumn("data_type", rows[told], ARG_STRING, self.strings.codes(names).astype(np.int64)[told])
        )
        codes = self.text(algorithm[keep])
        out.append(ArgColumn("alg_type", rows[codes >= 0], ARG_STRING, codes[codes >= 0].astype(np.int64)))
        return out

    def _task_args(self, tasks: _Tasks, events: Int64) -> None:
        sources = self.rank.builder.sources(events)
        for key, column in (
            ("Task Id", tasks.task),
            ("Model Id", tasks.model),
            ("connection_id", tasks.connection),
        ):
            given = column != MISSING
            self.rank.builder.add_args(sources[given], key, ARG_INT, column[given])
        types = self.text(tasks.type)
        self.rank.builder.add_args(sources[types >= 0], "Task Type", ARG_STRING, types[types >= 0])

    def _planes(self, tasks: _Tasks) -> None:
        """The small tasks of collectives on their planes, as labels."""
        number, kind, plane, source, target, size = self.db.ints(
            "COMMUNICATION_TASK_INFO", "globalTaskId", "taskType", "planeId", "srcRank", "dstRank", "size"
        )
        order = np.argsort(tasks.number, kind="stable")
        at = _lookup(tasks.number[order], number)
        hit = at >= 0
        if not hit.any():
            return
        row = order[at[hit]]
        events = self.rank.builder.add(
            track=by_pair(
                tasks.device[row],
                plane[hit],
                lambda d, p: self.rank.label_track(f"Communication: Plane {p}", d),
            ),
            start_ns=tasks.start[row],
            dur_ns=np.maximum(tasks.end - tasks.start, 0)[row],
            name=self.text(kind[hit], self.strings.code("(unnamed)")),
            kind=Kind.DEVICE_ANNOTATION,
        )
        sources = self.rank.builder.sources(events)
        for key, column in (("src rank", source), ("dst rank", target), ("size(Byte)", size)):
            given = column[hit] != MISSING
            self.rank.builder.add_args(sources[given], key, ARG_INT, column[hit][given])
        for key, column_name, enum in (
            ("transport type", "transportType", "ENUM_HCCL_TRANSPORT_TYPE"),
            ("link type", "linkType", "ENUM_HCCL_LINK_TYPE"),
        ):
            (numbers,) = self.db.ints("COMMUNICATION_TASK_INFO", column_name)
            texts = {int(i): str(n) for i, n in self.db.rows(enum, "id", "name") if isinstance(i, int)}
            codes = self.strings.codes([texts.get(k, "") for k in numbers[hit].tolist()]).astype(np.int64)
            told = np.isin(numbers[hit], list(texts))
            self.rank.builder.add_args(sources[told], key, ARG_STRING, codes[told])

    def _link_operators(
        self, framework: tuple[Int64, Int64, Int64], targets: Int64, target_ids: Int64
    ) -> None:
        """Arrows from operators to the kernels they caused: PYTORCH_API - CONNECTION_IDS - TASK."""
        events, link, process = framework
        ids, values = self._connection_ids()
        known = link != MISSING
        events, link, process = events[known], link[known], process[known]
        if len(events) == 0 or len(ids) == 0 or len(targets) == 0:
            return
        # every value of an operator's id: rows of CONNECTION_IDS, each with its operator
        order = np.argsort(link, kind="stable")
        at = _lookup(link[order], ids)
        hit = at >= 0
        operator = order[at[hit]]
        wanted = self._scoped(process[operator], values[hit])
        target_order = np.argsort(target_ids, kind="stable")
        sorted_ids = target_ids[target_order]
        low, high = np.searchsorted(sorted_ids, wanted, "left"), np.searchsorted(sorted_ids, wanted, "right")
        low, high = np.where(wanted == NO_ID, 0, low), np.where(wanted == NO_ID, 0, high)
        count = high - low
        if not count.any():
            return
        start = np.repeat(low - np.concatenate([[0], np.cumsum(count)[:-1]]), count) + np.arange(
            int(count.sum())
        )
        from_events = np.repeat(events[operator], count)
        self.bound_operators = int(count.sum())
        self.rank.builder.add_flows(from_events, targets[target_order[start]], self.strings.code("async_npu"))

    # -- the rest ------------------------------------------------------------------------------------

    def _add_steps(self) -> None:
        """Host steps where no framework row says them."""
        if self.strings.find("ProfilerStep#") >= 0 or not self.host_steps:
            return
        named = [f"ProfilerStep#{k}" for k in sorted(self.host_steps)]
        if any(self.strings.find(n) >= 0 for n in named):
            return
        spans = [self.host_steps[k] for k in sorted(self.host_steps)]
        starts = np.array([s for s, _ in spans], np.int64)
        self.rank.builder.add(
            track=self.rank.label_track("Steps on the host"),
            start_ns=starts,
            dur_ns=np.maximum(np.array([e for _, e in spans], np.int64) - starts, 0),
            name=self.strings.codes(named),
            kind=Kind.ANNOTATION,
        )

    def _add_counters(self) -> None:
        for table, column, where, label in (
            ("AICORE_FREQ", "freq", "AI Core Freq", "AI Core Freq (MHz)"),
            ("DDR", "read", "DDR", "DDR/Read (B/s)"),
            ("DDR", "write", "DDR", "DDR/Write (B/s)"),
        ):
            device, time = self.db.ints(table, "deviceId", "timestampNs")
            (value,) = self.db.floats(table, column)
            self._counter(where, label, device, time, value, np.zeros(len(time), np.int64))
        device, time, bank, kind = self.db.ints("HBM", "deviceId", "timestampNs", "hbmId", "type")
        (value,) = self.db.floats("HBM", "bandwidth")
        self._by_text("HBM", "HBM {0}/{1} (B/s)", device, time, value, bank, kind)
        device, time, bank, kind = self.db.ints("LLC", "deviceId", "timestampNs", "llcId", "mode")
        throughput, hits = self.db.floats("LLC", "throughput", "hitRate")
        self._by_text("LLC", "LLC {0} {1}/Throughput (B/s)", device, time, throughput, bank, kind)
        self._by_text("LLC", "LLC {0} {1}/Hit Rate (%)", device, time, hits, bank, kind)
        device, time, kind = self.db.ints("NPU_MEM", "deviceId", "timestampNs", "type")
        for part in ("ddr", "hbm"):
            (value,) = self.db.floats("NPU_MEM", part)
            self._by_text(
                "NPU MEM",
                "{1}/" + part.upper() + " (bytes)",
                device,
                time,
                value,
                np.zeros(len(time), np.int64),
                kind,
            )

    def _by_text(
        self,
        where: str,
        label: str,
        device: Int64,
        time: Int64,
        value: npt.NDArray[np.float64],
        bank: Int64,
        kind: Int64,
    ) -> None:
        names = self.text(kind)
        for code in kernels.distinct(names).tolist():
            mine = names == code
            word = self.text.text(code)
            word = word.upper() if word == "app" else word.title()
            for number in kernels.distinct(bank[mine]).tolist():
                at = mine & (bank == number)
                self._counter(where, label.format(number, word), device[at], time[at], value[at], bank[at])

    def _counter(
        self, where: str, label: str, device: Int64, time: Int64, value: npt.NDArray[np.float64], bank: Int64
    ) -> None:
        good = (time != MISSING) & ~np.isnan(value)
        numbers = device_numbers(device)
        for number in kernels.distinct(numbers[good]).tolist():
            at = good & (numbers == number)
            track = self.rank.label_track(where, int(number))
            self.rank.builder.add_counters(time[at], self.strings.code(label), track, value[at])

    def _add_memory(self) -> None:
        component, time, allocated, reserved, active, device = self.db.ints(
            "MEMORY_RECORD",
            "component",
            "timestamp",
            "totalAllocated",
            "totalReserved",
            "totalActive",
            "deviceId",
        )
        names = self.text(component)
        for code in kernels.distinct(names).tolist():
            for what, column in (("allocated", allocated), ("reserved", reserved), ("active", active)):
                at = (names == code) & (column != MISSING) & (time != MISSING)
                label = f"memory {self.text.text(code)} {what} (bytes)"
                self._counter(
                    "memory", label, device[at], time[at], column[at].astype(np.float64), device[at]
                )
        if (reserved != MISSING).any():
            self.facts["peak_reserved_bytes"] = int(reserved[reserved != MISSING].max())
        size, taken, freed, total, total_after, device = self.db.ints(
            "OP_MEMORY",
            "size",
            "allocationTime",
            "releaseTime",
            "allocationTotalAllocated",
            "releaseTotalAllocated",
            "deviceId",
        )
        for time, totals, sign in ((taken, total, 1), (freed, total_after, -1)):
            at = np.flatnonzero((time != MISSING) & (size != MISSING) & (size != 0))
            if len(at):
                self.rank.builder.add_allocations(
                    Allocations(
                        time_ns=time[at],
                        bytes=sign * np.abs(size[at]),
                        total_bytes=np.where(totals[at] == MISSING, -1, totals[at]),
                        address=np.zeros(len(at), np.int64),
                        device=device_numbers(device[at]),
                        track=np.full(len(at), -1, np.int32),
                    )
                )

    def _meta(self) -> None:
        document: dict[str, Any] = {}
        for name, value in self.db.rows("META_DATA", "name", "value"):
            if not isinstance(name, str) or not isinstance(value, str):
                continue
            if name.startswith("SCHEMA_VERSION"):
                if name == "SCHEMA_VERSION":
                    self.facts["schema"] = value[:20]
                continue
            try:
                document[name] = json.loads(value)
            except (ValueError, RecursionError):
                continue
        self.facts |= ascend_files.profiler_metadata(document)

    def _devices(self, timeline: Timeline) -> dict[str, dict[str, Any]]:
        named = {int(i): str(n)[:60] for i, n in self.db.rows("NPU_INFO", "id", "name") if isinstance(i, int)}
        named |= {
            int(i): str(n)[:60]
            for i, n in self.db.rows("TARGET_INFO_NPU", "id", "name")
            if isinstance(i, int)
        }
        out: dict[str, dict[str, Any]] = {}
        for number in sorted({t.device for t in timeline.tracks if t.role == "device"}):
            properties: dict[str, Any] = {"vendor": "Ascend"}
            if number in named:
                properties["name"] = named[number]
            properties |= {f"measured_{k}": v for k, v in self.facts.get("core_clock", {}).items()}
            out[str(number)] = properties
        return out


@dataclass
class _Tasks:
    """TASK columns, shape (n,); MISSING where a column or a cell is absent."""

    start: Int64
    end: Int64
    device: Int64
    connection: Int64
    number: Int64
    process: Int64
    type: Int64
    context: Int64
    stream: Int64
    task: Int64
    model: Int64

    def take(self, rows: npt.NDArray[Any]) -> _Tasks:
        return _Tasks(*(column[rows] for column in vars(self).values()))


def _ranges(low: npt.NDArray[np.intp], high: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """The indices low[0]..high[0]-1, low[1]..high[1]-1 and so on."""
    count = high - low
    return np.repeat(high - np.cumsum(count), count) + np.arange(int(count.sum()))


def _lookup(sorted_or_not: Int64, wanted: Int64) -> Int64:
    """Position of each wanted value in a column, -1 for none; of equal values the first."""
    if len(sorted_or_not) == 0:
        return np.full(len(wanted), -1, np.int64)
    order = np.argsort(sorted_or_not, kind="stable")
    ordered = sorted_or_not[order]
    at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where((ordered[at] == wanted) & (wanted != MISSING), order[at], -1)


def _add_column(
    out: list[ArgColumn], key: str, tag: int, values: Int64, given: npt.NDArray[np.bool_]
) -> None:
    rows = np.flatnonzero(given)
    if len(rows):
        out.append(ArgColumn(key, rows, tag, values[rows]))


def metric_key(name: str) -> tuple[str, float]:
    """The CSV's name of a core metric of the database, and by what its value must be divided.

    >>> metric_key("aic_total_time"), metric_key("aiv_mte2_time"), metric_key("aic_mac_ratio")
    (('aicore_time(us)', 1000.0), ('aiv_mte2_time(us)', 1000.0), ('aic_mac_ratio', 1.0))
    """
    if name in ("aic_total_time", "total_time"):
        return "aicore_time(us)", 1000.0
    if name == "aiv_total_time":
        return "aiv_time(us)", 1000.0
    if name.endswith("_time"):
        return f"{name}(us)", 1000.0
    return name, 1.0
