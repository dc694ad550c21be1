"""Writes a recording as an Ascend PyTorch Profiler directory in database form (torch_npu 2.14).

`ascend_pytorch_profiler_{rank}.db` holds what the text files hold; times are nanoseconds since the epoch,
names are ids into STRING_IDS (CANN's from 0, torch's from 2^28). Tables without rows are not created.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.planted.actions import Kernel
from benchmarks.planted.ascend_text import (
    call_stack,
    metadata,
    plane_tasks,
    queue_name,
    step_trace_time,
    write_side_files,
)
from benchmarks.planted.ascend_view import (
    EAGER_MODEL,
    Task,
    View,
    blocks_of,
    core_of,
    dtypes,
    formats,
    op_type,
    pmu,
    shapes,
    view_of,
)
from benchmarks.planted.hardware import Chip
from benchmarks.planted.recording import HostRow, Recording

TORCH_STRINGS = 1 << 28
QUEUE_CONNECTIONS = 5 << 28
OP, QUEUE, PYTHON = 50001, 50002, 50003
API_TYPES = ((5000, "runtime"), (5500, "communication"), (10000, "node"), (15000, "model"), (20000, "acl"),
             (OP, "op"), (QUEUE, "queue"), (PYTHON, "trace"), (50004, "mstx"))  # fmt: skip
COPIES = {"HtoD": 1, "DtoH": 2, "DtoD": 3}

SCHEMA: dict[str, str] = {
    "STRING_IDS": "id INTEGER PRIMARY KEY, value TEXT",
    "TASK": "startNs INTEGER, endNs INTEGER, deviceId INTEGER, connectionId INTEGER, globalTaskId INTEGER,"
    " globalPid INTEGER, taskType INTEGER, contextId INTEGER, streamId INTEGER, taskId INTEGER, modelId INTEGER",
    "COMPUTE_TASK_INFO": "name INTEGER, globalTaskId INTEGER PRIMARY KEY, blockNum INTEGER, mixBlockNum INTEGER,"
    " taskType INTEGER, opType INTEGER, inputFormats INTEGER, inputDataTypes INTEGER, inputShapes INTEGER,"
    " outputFormats INTEGER, outputDataTypes INTEGER, outputShapes INTEGER, attrInfo INTEGER, opState INTEGER,"
    " hf32Eligible INTEGER",
    "TASK_PMU_INFO": "globalTaskId INTEGER, name INTEGER, value NUMERIC",
    "MEMCPY_INFO": "globalTaskId INTEGER, size NUMERIC, memcpyOperation INTEGER",
    "ENUM_MEMCPY_OPERATION": "id INTEGER PRIMARY KEY, name TEXT",
    "COMMUNICATION_OP": "opName INTEGER, startNs INTEGER, endNs INTEGER, connectionId INTEGER, groupName INTEGER,"
    " opId INTEGER PRIMARY KEY, relay INTEGER, retry INTEGER, dataType INTEGER, algType INTEGER, count NUMERIC,"
    " opType INTEGER, deviceId INTEGER",
    "COMMUNICATION_TASK_INFO": "name INTEGER, globalTaskId INTEGER, taskType INTEGER, planeId INTEGER,"
    " groupName INTEGER, notifyId INTEGER, rdmaType INTEGER, srcRank INTEGER, dstRank INTEGER,"
    " transportType INTEGER, size INTEGER, dataType INTEGER, linkType INTEGER, opId INTEGER, isMaster INTEGER,"
    " bandwidth NUMERIC",
    "CANN_API": "startNs INTEGER, endNs INTEGER, type INTEGER, globalTid INTEGER, connectionId INTEGER PRIMARY KEY,"
    " name INTEGER",
    "PYTORCH_API": "startNs TEXT, endNs TEXT, globalTid INTEGER, connectionId INTEGER, name INTEGER,"
    " sequenceNumber INTEGER, fwdThreadId INTEGER, inputDtypes INTEGER, inputShapes INTEGER, callchainId INTEGER,"
    " type INTEGER",
    "CONNECTION_IDS": "id INTEGER, connectionId INTEGER",
    "PYTORCH_CALLCHAINS": "id INTEGER, stack INTEGER, stackDepth INTEGER",
    "STEP_TIME": "id INTEGER, startNs INTEGER, endNs INTEGER",
    "RANK_DEVICE_MAP": "rankId INTEGER, deviceId INTEGER",
    "GC_RECORD": "startNs INTEGER, endNs INTEGER, globalTid INTEGER",
    "AICORE_FREQ": "deviceId INTEGER, timestampNs NUMERIC, freq INTEGER",
    "NPU_INFO": "id INTEGER, name TEXT",
    "HOST_INFO": "hostUid TEXT, hostName TEXT",
    "SESSION_TIME_INFO": "startTimeNs INTEGER, endTimeNs INTEGER",
    "META_DATA": "name TEXT, value TEXT",
    "ENUM_API_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
    "ENUM_HCCL_DATA_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
    "ENUM_HCCL_TRANSPORT_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
    "ENUM_HCCL_LINK_TYPE": "id INTEGER PRIMARY KEY, name TEXT",
}
STEP_TRACE = (
    "deviceId INTEGER, step TEXT, computing NUMERIC, communication_not_overlapped NUMERIC, overlapped NUMERIC,"
    " communication NUMERIC, free NUMERIC, stage NUMERIC, bubble NUMERIC,"
    " communication_not_overlapped_and_exclude_receive NUMERIC, preparing NUMERIC"
)
PMU_NAMES = {"aicore_time(us)": "aic_total_time", "aiv_time(us)": "aiv_total_time"}


class Strings:
    """STRING_IDS: CANN's texts count from 0, torch's from 2^28."""

    def __init__(self) -> None:
        self.cann: dict[str, int] = {}
        self.torch: dict[str, int] = {}

    def of_cann(self, text: str) -> int:
        return self.cann.setdefault(text, len(self.cann))

    def of_torch(self, text: str) -> int:
        return self.torch.setdefault(text, TORCH_STRINGS + len(self.torch))

    def rows(self) -> list[tuple[int, str]]:
        return [(n, t) for t, n in self.cann.items()] + [(n, t) for t, n in self.torch.items()]


def write_db(
    recording: Recording, chip: Chip, folder: Path, stack: bool = True, cpu_only: bool = False
) -> Path:
    """Write the directory `*_ascend_pt` with the two databases; returns it."""
    view = view_of(recording, chip, stack, cpu_only)
    out = folder / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True, exist_ok=True)
    _write(out / f"ascend_pytorch_profiler_{recording.rank}.db", Tables(view).all(), SCHEMA)
    if view.tasks:
        rows = [tuple(row) for row in step_trace_time(view)[1:]]
        _write(out / "analysis.db", {"StepTraceTime": rows}, {"StepTraceTime": STEP_TRACE})
    (out / "analyse.done").touch()
    write_side_files(view, folder, "db", stack, cpu_only)
    return folder


def _write(path: Path, tables: dict[str, list[tuple[Any, ...]]], schema: dict[str, str]) -> None:
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as db:
        for name, rows in tables.items():
            if not rows:
                continue
            db.execute(f"CREATE TABLE {name} ({schema[name]})")
            db.executemany(f"INSERT INTO {name} VALUES ({', '.join('?' * len(rows[0]))})", rows)
    db.close()


class Tables:
    """Collects the rows of all tables of one view."""

    def __init__(self, view: View) -> None:
        self.view = view
        self.strings = Strings()
        self.rows: dict[str, list[tuple[Any, ...]]] = {name: [] for name in SCHEMA}
        self.connections = 0
        self.chains: dict[tuple[str, ...], int] = {}

    def all(self) -> dict[str, list[tuple[Any, ...]]]:
        self._framework()
        self._cann()
        self._tasks()
        self._rest()
        self.rows["STRING_IDS"] = list(self.strings.rows())
        return self.rows

    def tid(self, tid: int) -> int:
        """globalTid: process in the upper, thread in the lower 32 bits."""
        return (self.view.pid << 32) | tid

    def connect(self, ids: Sequence[int]) -> int:
        """One entry per connection of an operator or queue row, under one number."""
        number, self.connections = self.connections, self.connections + 1
        self.rows["CONNECTION_IDS"] += [(number, c) for c in ids]
        return number

    def _framework(self) -> None:
        view, torch = self.view, self.strings.of_torch
        for row in view.queues:
            queued = self.connect([QUEUE_CONNECTIONS + row.correlation])
            self._api(row, torch(queue_name(row)), queued, QUEUE)
        for row in view.ops:
            ids = view.launch_of.get(row.external, [])
            connection = self.connect(ids) if ids else None
            dims = ";".join(",".join(map(str, d)) for d in row.args.get("Input Dims", []))
            types = ";".join(row.args.get("Input type", []))
            self._api(row, torch(row.name), connection, OP, torch(types) if types else None,
                      torch(dims) if dims else None, self._chain(row))  # fmt: skip
        for row in view.frames:
            self._api(row, torch(row.name), None, PYTHON)

    def _api(self, row: HostRow, name: int, connection: int | None, kind: int, types: int | None = None,
             dims: int | None = None, chain: int | None = None) -> None:  # fmt: skip
        start = max(row.start_ns, self.view.recording.window_start_ns)
        sequence, forward = (-1, 0) if kind == OP else (None, None)
        self.rows["PYTORCH_API"].append(
            (str(self.view.epoch(start)), str(self.view.epoch(row.end_ns)), self.tid(row.tid), connection, name,
             sequence, forward, types, dims, chain, kind)
        )  # fmt: skip

    def _chain(self, row: HostRow) -> int | None:
        stack = tuple(call_stack(self.view, row))
        if not stack:
            return None
        if stack not in self.chains:
            number = self.chains[stack] = len(self.chains)
            for depth, frame in enumerate(stack):
                self.rows["PYTORCH_CALLCHAINS"].append((number, self.strings.of_torch(frame), depth))
        return self.chains[stack]

    def _cann(self) -> None:
        for api in self.view.apis:
            self.rows["CANN_API"].append(
                (self.view.epoch(api.start_ns), self.view.epoch(api.end_ns), api.level, self.tid(api.tid),
                 api.connection, self.strings.of_cann(api.name))
            )  # fmt: skip

    def _tasks(self) -> None:
        for number, task in enumerate(self.view.tasks):
            if task.collective:
                self._collective(task, number)
                continue
            self._task(task, number, task.start_ns, task.end_ns, task.kind)
            if task.kernel is not None:
                self._compute(task, task.kernel, number)
            if task.copy:
                self.rows["MEMCPY_INFO"].append((number, task.bytes, COPIES[task.copy]))

    def _task(self, task: Task, number: int, start: int, end: int, kind: str) -> None:
        self.rows["TASK"].append(
            (self.view.epoch(start), self.view.epoch(end), task.device, task.connection, number, self.view.pid,
             self.strings.of_cann(kind), EAGER_MODEL, task.stream, task.task_id, task.model_id)
        )  # fmt: skip

    def _compute(self, task: Task, kernel: Kernel, number: int) -> None:
        text, chip = self.strings.of_cann, self.view.chip
        mixed = blocks_of(kernel, chip) * 2 if core_of(kernel) == "MIX_AIC" else 0
        self.rows["COMPUTE_TASK_INFO"].append(
            (text(task.name), number, blocks_of(kernel, chip), mixed, text(core_of(kernel)), text(op_type(kernel)),
             text(formats(kernel.inputs)), text(dtypes(kernel.inputs)), text(shapes(kernel.inputs)),
             text(formats(kernel.outputs)), text(dtypes(kernel.outputs)), text(shapes(kernel.outputs)), text(""),
             text("dynamic"), text("NO"))
        )  # fmt: skip
        for name, value in pmu(kernel, chip).items():
            # the database counts counters' times in nanoseconds
            short = PMU_NAMES.get(name, name.removesuffix("(us)").removesuffix("(%)"))
            scaled = value * 1000 if name.endswith("(us)") else value
            self.rows["TASK_PMU_INFO"].append((number, text(short), scaled))

    def _collective(self, task: Task, number: int) -> None:
        text, kernel = self.strings.of_cann, task.kernel
        assert kernel is not None
        count = kernel.inputs[0].elements if kernel.inputs else 0
        group, op = text("10.0.0.1%eth0_60000_0_1764246877000000"), len(self.rows["COMMUNICATION_OP"]) + 1
        self.rows["COMMUNICATION_OP"].append(
            (text(task.collective), self.view.epoch(task.start_ns), self.view.epoch(task.end_ns), task.connection,
             group, op, 0, 0, 10, text("MESH-RING"), count, text("hcom_allReduce_"), task.device)
        )  # fmt: skip
        for k, (name, kind, start, end) in enumerate(plane_tasks(task)):
            # parts of a collective are tasks of their own, numbered after all others
            inner = 1_000_000 + 10 * number + k
            self._task(task, inner, start, end, "Notify Wait" if kind == "Notify_Wait" else "SDMA")
            size = 0 if kind == "Notify_Wait" else 2 * count
            self.rows["COMMUNICATION_TASK_INFO"].append(
                (text(name), inner, text(kind), 0, group, 0, 65535, 0, 1, 0, size, 10, 1, op, 1,
                 size / max(1, end - start) * 1e9)
            )  # fmt: skip

    def _rest(self) -> None:
        view, rows = self.view, self.rows
        start, end = view.recording.window_start_ns, view.recording.window_end_ns
        rows["STEP_TIME"] = [(n, view.epoch(a), view.epoch(b)) for n, a, b in view.steps]
        rows["GC_RECORD"] = [
            (view.epoch(r.start_ns), view.epoch(r.end_ns), self.tid(r.tid)) for r in view.collections
        ]
        rows["HOST_INFO"] = [("0", "host0")]
        rows["SESSION_TIME_INFO"] = [(view.epoch(start), view.epoch(end))]
        rows["ENUM_API_TYPE"] = list(API_TYPES)
        meta = metadata(view)
        rows["META_DATA"] = [("SCHEMA_VERSION_MAJOR", "1"), ("SCHEMA_VERSION_MINOR", "1"),
                             ("SCHEMA_VERSION_MICRO", "1"), ("SCHEMA_VERSION", "1.1.1"),
                             ("ENV_VARIABLES", json.dumps(meta["ENV_VARIABLES"]))]  # fmt: skip
        if not view.tasks:
            return
        devices = sorted({t.device for t in view.tasks})
        rows["RANK_DEVICE_MAP"] = [(view.recording.rank, d) for d in devices]
        rows["AICORE_FREQ"] = [(d, view.epoch(start), view.chip.mhz) for d in devices]
        rows["NPU_INFO"] = [(d, view.chip.name) for d in devices]
        rows["ENUM_MEMCPY_OPERATION"] = [(0, "host to host"), (1, "host to device"), (2, "device to host"),
                                         (3, "device to device")]  # fmt: skip
        if view.collectives():
            rows["META_DATA"].append(("parallel_group_info", json.dumps(meta["parallel_group_info"])))
            rows["ENUM_HCCL_DATA_TYPE"] = [(4, "FP32"), (10, "BFP16")]
            rows["ENUM_HCCL_TRANSPORT_TYPE"] = [(0, "SDMA"), (1, "RDMA"), (2, "LOCAL")]
            rows["ENUM_HCCL_LINK_TYPE"] = [(0, "ON_CHIP"), (1, "HCCS"), (2, "PCIE"), (3, "ROCE")]
