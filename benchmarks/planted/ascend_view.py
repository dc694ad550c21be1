"""A recording seen as torch_npu and CANN see it: numbers, queues, CANN calls, tasks and derived bars.

Both Ascend writers start from here, so that text and database of one case tell the same. Times are
nanoseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from benchmarks.planted.actions import Kernel, Tensor
from benchmarks.planted.hardware import ASCEND_KERNELS, Chip
from benchmarks.planted.recording import DeviceRow, HostRow, Recording

EPOCH_NS = 1_764_246_877_000_000_000
EAGER_MODEL = 4_294_967_295
ACL, MODEL, NODE, COMMUNICATION, RUNTIME = 20000, 15000, 10000, 5500, 5000

CALLS: dict[str, str] = {
    "graph_launch": "aclmdlRIExecuteAsync",
    "memcpy_async": "aclrtMemcpyAsync",
    "memcpy": "aclrtMemcpy",
    "memset_async": "aclrtMemsetAsync",
    "stream_sync": "aclrtSynchronizeStreamWithTimeout",
    "device_sync": "aclrtSynchronizeDevice",
    "event_sync": "aclrtSynchronizeEvent",
    "event_record": "aclrtRecordEvent",
    "stream_wait_event": "aclrtStreamWaitEvent",
    "stream_is_capturing": "aclmdlRICaptureGetInfo",
    "malloc": "aclrtMalloc",
    "free": "aclrtFree",
    "capture_begin": "aclmdlRICaptureBegin",
    "capture_end": "aclmdlRICaptureEnd",
    "module_load": "aclrtBinaryLoadFromFile",
}
DTYPES = {"bf16": "DT_BF16", "fp16": "FLOAT16", "fp32": "FLOAT", "int64": "INT64", "int32": "INT32",
          "bool": "BOOL", "fp64": "DOUBLE", "int8": "INT8"}  # fmt: skip
STREAMS = {7: 2, 20: 5}
LAUNCH_AT_NS = 2_000
"""How long after the library's call the launch in it begins, at most."""


@dataclass
class Api:
    """One CANN call. `item` is the kernel of a `launch` at node level."""

    level: int
    name: str
    mode: str
    tid: int
    start_ns: int
    end_ns: int
    connection: int
    item: str = "0"


@dataclass
class Task:
    """One task of the device. `kind` is the task type that the hardware lane shows."""

    name: str
    kind: str
    device: int
    stream: int
    start_ns: int
    end_ns: int
    connection: int
    task_id: int
    model_id: int = EAGER_MODEL
    kernel: Kernel | None = None
    op: HostRow | None = None
    bytes: int = 0
    copy: str = ""
    collective: str = ""


@dataclass
class View:
    """Everything the writers need; see `view_of`."""

    recording: Recording
    chip: Chip
    pid: int
    ops: list[HostRow]
    frames: list[HostRow]
    queues: list[HostRow]
    collections: list[HostRow]
    apis: list[Api]
    tasks: list[Task]
    steps: list[tuple[int, int, int]]
    launch_of: dict[int, list[int]] = field(default_factory=dict)
    """External id of an operator -> connection ids of the kernels it launched."""
    task_of: dict[int, Task] = field(default_factory=dict)
    """Connection id -> the first task it started."""
    called: set[int] = field(default_factory=set)
    """Connection ids of all calls."""
    step_ranges: list[tuple[int, int, int, int]] = field(default_factory=list)
    """(step, device, start of its first kernel, end of its last kernel or of its host range), in order."""

    def epoch(self, ns: int) -> int:
        return EPOCH_NS + ns

    def kernels(self) -> list[Task]:
        """Compute kernels, collectives excluded."""
        return [t for t in self.tasks if t.kernel is not None and not t.collective]

    def collectives(self) -> list[Task]:
        return [t for t in self.tasks if t.collective]

    def devices(self) -> list[int]:
        return sorted({t.device for t in self.tasks} | {0})

    def overlap(self, device: int) -> list[tuple[str, int, int]]:
        """A device's derived bars: Computing, Communication, Communication(Not Overlapped), Free."""
        compute = merge([(t.start_ns, t.end_ns) for t in self.kernels() if t.device == device])
        comm = merge([(t.start_ns, t.end_ns) for t in self.collectives() if t.device == device])
        bare = subtract(comm, compute)
        both = merge(compute + comm)
        free = [(a[1], b[0]) for a, b in pairwise(both) if b[0] > a[1]]
        bars = [("Computing", *s) for s in compute] + [("Communication", *s) for s in comm]
        bars += [("Communication(Not Overlapped)", *s) for s in bare] + [("Free", *s) for s in free]
        return sorted(bars, key=lambda b: b[1])

    def step_of(self, ns: int, device: int) -> int | None:
        """The first step whose range on the device holds this moment."""
        for number, on, low, high in self.step_ranges:
            if on == device and low <= ns < high:
                return number
        return None


def merge(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The union of spans as disjoint spans in order."""
    out: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if out and start <= out[-1][1]:
            out[-1] = (out[-1][0], max(out[-1][1], end))
        else:
            out.append((start, end))
    return out


def subtract(spans: list[tuple[int, int]], holes: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """What of disjoint `spans` lies outside of disjoint `holes`."""
    out = []
    for start, end in spans:
        at = start
        for low, high in holes:
            if high <= at or low >= end:
                continue
            if low > at:
                out.append((at, low))
            at = max(at, high)
        if at < end:
            out.append((at, end))
    return out


def view_of(recording: Recording, chip: Chip, stack: bool = True, cpu_only: bool = False) -> View:
    """Give a recording the numbers that CANN gives it."""
    rows = recording.visible_host()
    ops = [r for r in rows if r.kind in ("op", "annotation")]
    frames = [r for r in rows if r.kind in ("python", "gc")] if stack else []
    collections = [r for r in rows if r.name == "<built-in function collect>"]
    queues = [] if cpu_only else [r for r in rows if r.kind in ("enqueue", "dequeue")]
    view = View(
        recording, chip, recording.pid + 800_000, ops, frames, queues, collections, [], [], _steps(ops)
    )
    if cpu_only:
        return view
    connections = _calls(view, rows)
    _tasks(view, connections)
    for task in view.tasks:
        view.task_of.setdefault(task.connection, task)
    launched = {a.connection: a.start_ns for a in view.apis}
    view.called = set(launched)
    for number, start, end in view.steps:
        for device in view.devices():
            mine = [t for t in view.tasks if t.device == device and start <= _asked(t, launched) < end]
            mine = [t for t in mine if t.kernel is not None]
            if mine:
                last = max(t.end_ns for t in mine)
                view.step_ranges.append((number, device, min(t.start_ns for t in mine), max(last, end)))
    return view


def _asked(task: Task, launched: dict[int, int]) -> int:
    """When the program asked for a task: its operator's start, else its call's."""
    return task.op.start_ns if task.op is not None else launched.get(task.connection, -1)


def _steps(ops: list[HostRow]) -> list[tuple[int, int, int]]:
    found = []
    for row in ops:
        name, _, number = row.name.partition("#")
        if name == "ProfilerStep":
            found.append((int(number), row.start_ns, row.end_ns))
    return found


def _calls(view: View, rows: list[HostRow]) -> dict[int, int]:
    """CANN rows of all runtime calls; gives correlation -> connection id of the tasks they start."""
    number = 900
    connections: dict[int, int] = {}
    for row in rows:
        if row.kind != "runtime" or row.name == "graph_instantiate":
            continue
        number += 1
        kernel = row.args.get("kernel")
        if row.name in ("launch", "launch_ex"):
            name, mode = _entry(kernel)
            view.apis.append(Api(ACL, name, mode, row.tid, row.start_ns, row.end_ns, number))
            if "captured" in row.args:
                continue
            number += 1
            span = row.end_ns - row.start_ns
            # the model submits as the call begins: no task may start before its launch
            start, end = row.start_ns + min(span // 5, LAUNCH_AT_NS), row.end_ns - span // 8
            collective = isinstance(kernel, Kernel) and kernel.role == "collective"
            level, inner = (COMMUNICATION, "Launch_Ffts") if collective else (NODE, "launch")
            item = kernel.name if isinstance(kernel, Kernel) and not collective else inner
            view.apis.append(
                Api(level, inner, "master" if collective else "launch", row.tid, start, end, number, item)
            )
            connections[row.correlation] = number
            if row.external:
                view.launch_of.setdefault(row.external, []).append(number)
            continue
        view.apis.append(Api(ACL, CALLS[row.name], "ACL_RTS", row.tid, row.start_ns, row.end_ns, number))
        connections[row.correlation] = number
    return connections


def _entry(kernel: Any) -> tuple[str, str]:
    """The library call around a launch, and its mode."""
    if not isinstance(kernel, Kernel):
        return "aclnnUnknown", "ACL_NN"
    if kernel.role == "collective":
        return "hcom_allReduce_", "HOST_HCCL"
    return kernel.name.split("_")[0], "ACL_NN"


def _tasks(view: View, connections: dict[int, int]) -> None:
    by_external = {r.external: r for r in view.ops}
    number, collective = 10_000, 0
    for row in view.recording.visible_device():
        if row.kind == "sync":
            continue
        number += 1
        connection = connections.get(row.correlation, EAGER_MODEL)
        task = Task(
            name=row.name, kind="", device=row.device, stream=STREAMS.get(row.stream, row.stream),
            start_ns=row.start_ns, end_ns=row.end_ns, connection=connection, task_id=number,
            model_id=1 if row.graph else EAGER_MODEL, op=None if row.graph else by_external.get(row.external),
        )  # fmt: skip
        _describe(task, row)
        if row.kernel is not None and row.kernel.role == "collective":
            task.collective = f"hcom_allReduce__868_{collective}_1"
            collective += 1
        view.tasks.append(task)


def _describe(task: Task, row: DeviceRow) -> None:
    if row.kind == "wait":
        task.name, task.kind = "EVENT_WAIT", "EVENT_WAIT_SQE"
    elif row.kind == "memcpy":
        task.name, task.bytes, task.copy = "MEMCPY_ASYNC", row.args["bytes"], row.args["kind"]
        task.kind = "SDMA_SQE" if task.copy == "DtoD" else "PCIE_DMA_SQE"
    elif row.kind == "memset":
        task.name, task.kind, task.bytes = "MEMSET_ASYNC", "SDMA_SQE", row.args["bytes"]
    elif row.kernel is not None:
        task.kernel = row.kernel
        core = core_of(row.kernel)
        task.kind = "AI_CORE" if core == "AI_VECTOR_CORE" else core


def op_type(kernel: Kernel) -> str:
    if kernel.name.startswith("aclnn"):
        return kernel.name.rpartition("_")[2]
    return ASCEND_KERNELS[kernel.role][0] if kernel.role in ASCEND_KERNELS else "Mul"


def core_of(kernel: Kernel) -> str:
    return ASCEND_KERNELS[kernel.role][1] if kernel.role in ASCEND_KERNELS else "AI_VECTOR_CORE"


def blocks_of(kernel: Kernel, chip: Chip) -> int:
    """Cores a kernel uses: never more than there are."""
    most = chip.vector_cores if core_of(kernel) == "AI_VECTOR_CORE" else chip.cores
    return min(most, kernel.grid[0])


def shapes(tensors: tuple[Tensor, ...]) -> str:
    return ";".join(",".join(str(n) for n in t.shape) for t in tensors)


def dtypes(tensors: tuple[Tensor, ...]) -> str:
    return ";".join(DTYPES[t.dtype] for t in tensors)


def formats(tensors: tuple[Tensor, ...]) -> str:
    return ";".join("ND" for _ in tensors)


PMU = (
    "aicore_time(us)", "aic_total_cycles", "aic_mac_time(us)", "aic_mac_ratio", "aic_scalar_time(us)",
    "aic_scalar_ratio", "aic_mte1_time(us)", "aic_mte1_ratio", "aic_mte2_time(us)", "aic_mte2_ratio",
    "aic_fixpipe_time(us)", "aic_fixpipe_ratio", "aic_icache_miss_rate", "aiv_time(us)", "aiv_total_cycles",
    "aiv_vec_time(us)", "aiv_vec_ratio", "aiv_scalar_time(us)", "aiv_scalar_ratio", "aiv_mte2_time(us)",
    "aiv_mte2_ratio", "aiv_mte3_time(us)", "aiv_mte3_ratio", "aiv_icache_miss_rate", "cube_utilization(%)",
)  # fmt: skip


def pmu(kernel: Kernel, chip: Chip) -> dict[str, float]:
    """PipeUtilization counters of one kernel, from what it computes and moves.

    The cube's share is the time the floating-point work needs at peak, MTE2's and MTE3's (fixpipe's) the
    time that reading and writing need; cycles are core time x clock x cores, so that the clock can be
    had back from them.
    """
    values = dict.fromkeys(PMU, 0.0)
    us = kernel.ns / 1000
    blocks = blocks_of(kernel, chip)
    busy = us * 0.96
    compute = min(0.98, kernel.flops / chip.flops * 1e9 / kernel.ns) if kernel.ns else 0.0
    read = sum(t.bytes for t in kernel.inputs)
    written = sum(t.bytes for t in kernel.outputs)
    share = read / (read + written) if read + written else 0.5
    memory = min(0.98, kernel.moved / chip.bandwidth * 1e9 / kernel.ns) if kernel.ns else 0.0
    if core_of(kernel) == "AI_VECTOR_CORE":
        parts = {"vec": max(0.05, memory / 4), "scalar": 0.08, "mte2": memory * (0.3 + 0.7 * share),
                 "mte3": memory * (1 - share)}  # fmt: skip
        values["aiv_time(us)"], values["aiv_total_cycles"] = busy, round(busy * chip.mhz * blocks)
        side = "aiv"
    else:
        parts = {"mac": compute, "scalar": 0.12, "mte1": min(0.9, compute + 0.1), "mte2": memory,
                 "fixpipe": memory * (1 - share)}  # fmt: skip
        values["aicore_time(us)"], values["aic_total_cycles"] = busy, round(busy * chip.mhz * blocks)
        values["cube_utilization(%)"] = 100 * busy * blocks / (us * chip.cores) if us else 0.0
        side = "aic"
    for part, ratio in parts.items():
        values[f"{side}_{part}_time(us)"] = busy * ratio
        values[f"{side}_{part}_ratio"] = ratio
    values[f"{side}_icache_miss_rate"] = 0.02
    return values
