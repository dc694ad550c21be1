"""Writes a recording as an Ascend PyTorch Profiler directory in text form (torch_npu 2.14, CANN 8.3).

`trace_view.json` is a bare array with decimal-string timestamps; beside it the CSV files of level 1 with
PipeUtilization. What an ACL graph's replay looks like is not shown by any public recording: here its
kernels carry the connection id of the execute call and a model id of their own, and no operator link.
"""

from __future__ import annotations

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.planted.ascend_view import (
    ACL,
    PMU,
    Api,
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

_LAYERS = {"CANN": 7, "Ascend Hardware": 13, "AI Core Freq": 14, "Communication": 15, "Overlap Analysis": 23,
           "Python GC": 3}  # fmt: skip
_OVERLAP_TIDS = {"Computing": 0, "Communication": 1, "Communication(Not Overlapped)": 2, "Free": 3}
_GROUP = "10.0.0.1%eth0_60000_0_1764246877000000"


def write_text(
    recording: Recording, chip: Chip, folder: Path, stack: bool = True, cpu_only: bool = False
) -> Path:
    """Write the directory `*_ascend_pt`; returns it."""
    view = view_of(recording, chip, stack, cpu_only)
    out = folder / "ASCEND_PROFILER_OUTPUT"
    out.mkdir(parents=True, exist_ok=True)
    (out / "trace_view.json").write_text(json.dumps(trace_view(view)), encoding="utf-8")
    write_csv(out / "operator_details.csv", operator_details(view))
    if view.tasks:
        write_csv(out / "kernel_details.csv", kernel_details(view))
        write_csv(out / "op_statistic.csv", op_statistic(view))
        write_csv(out / "api_statistic.csv", api_statistic(view))
        write_csv(out / "step_trace_time.csv", step_trace_time(view))
    (out / "analyse.done").touch()
    write_side_files(view, folder, "text", stack, cpu_only)
    return folder


def write_side_files(view: View, folder: Path, form: str, stack: bool, cpu_only: bool) -> None:
    """profiler_info, profiler_metadata and the device's info.json."""
    info = profiler_info(view, form, stack, cpu_only)
    (folder / f"profiler_info_{view.recording.rank}.json").write_text(json.dumps(info, indent=4))
    (folder / "profiler_metadata.json").write_text(json.dumps(metadata(view), indent=4))
    if cpu_only:
        return
    prof = folder / "PROF_000001_20251127123437000_SYNTHETIC"
    for device in view.devices():
        place = prof / f"device_{device}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"info.json.{device}").write_text(json.dumps(device_info(view.chip, device)))


def device_info(chip: Chip, device: int) -> dict[str, Any]:
    return {
        "DeviceInfo": [
            {"id": device, "ai_core_num": chip.cores, "aiv_num": chip.vector_cores, "ai_cpu_core_num": 6,
             "aic_frequency": str(chip.mhz), "aiv_frequency": str(chip.mhz), "hwts_frequency": "49.999001"}
        ],
        "CPU": [{"Id": 0, "Frequency": "100.000000", "Logical_CPU_Count": "192"}],
        "hostname": "host0", "pid_name": "python", "OS": "Linux", "version": "1.0", "devices": str(device),
    }  # fmt: skip


def us(ns: int) -> str:
    """Microseconds with three decimals, exact."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def trace_view(view: View) -> list[dict[str, Any]]:
    """All rows of trace_view.json in the order of the real file: framework, then CANN and device, then links."""
    events = _framework(view)
    if view.tasks or view.apis:
        events += _device_processes(view)
        events += _cann(view)
        events += _hardware(view)
        events += _communication(view)
        events += _overlap(view)
        events += _links(view)
    events += _collections(view)
    return events


def pid_of(view: View, process: str, device: int = 0) -> int:
    return (view.pid << 10) | (_LAYERS[process] << 5) | device


def _x(name: str, pid: int, tid: int, view: View, start: int, end: int, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, "ts": us(view.epoch(start)),
            "dur": (end - start) / 1000, **more}  # fmt: skip


def _meta(pid: int, name: str, label: str, order: int) -> list[dict[str, Any]]:
    return [
        {"name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}, "ph": "M"},
        {"name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}, "ph": "M"},
        {"name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": order}, "ph": "M"},
    ]


def _thread(pid: int, tid: int, name: str, order: int | None = None) -> list[dict[str, Any]]:
    return [
        {"name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}, "ph": "M"},
        {"name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid if order is None else order},
         "ph": "M"},
    ]  # fmt: skip


def _framework(view: View) -> list[dict[str, Any]]:
    out = []
    for row in view.ops:
        args: dict[str, Any] = {"Sequence number": -1, "Fwd thread id": 0}
        if "Input Dims" in row.args:
            args["Input Dims"] = ";\r\n".join(",".join(map(str, d)) for d in row.args["Input Dims"])
            args["Input type"] = ";\r\n".join(row.args["Input type"])
        stack = call_stack(view, row)
        if stack:
            args["Call stack"] = ";\r\n".join(stack)
        out.append(_x(row.name, view.pid, row.tid, view, row.start_ns, row.end_ns, cat="cpu_op", args=args))
    for row in view.queues:
        out += _queue(view, row)
    out += _meta(view.pid, "Python", "CPU", 0)
    for tid in sorted(view.recording.threads):
        out += _thread(view.pid, tid, f"Thread {tid}")
    numbers = {id(view.recording.host[i]): i for i in range(len(view.recording.host))}
    for row in view.frames:
        start = max(row.start_ns, view.recording.window_start_ns)
        args = {"Python id": numbers[id(row)], "Python parent id": row.parent}
        out.append(_x(row.name, view.pid, row.tid, view, start, row.end_ns, cat="python_function", args=args))
    return out


def call_stack(view: View, row: HostRow) -> list[str]:
    """Frames around an operator, innermost first (only where frames were recorded)."""
    if not view.frames:
        return []
    stack, at = [], row.parent
    while at >= 0:
        frame = view.recording.host[at]
        if frame.kind == "python" and not frame.name.startswith("<built-in"):
            stack.append(frame.name)
        at = frame.parent
    return stack


def _queue(view: View, row: HostRow) -> list[dict[str, Any]]:
    name = queue_name(row)
    phase = "s" if row.kind == "enqueue" else "f"
    flow = {"ph": phase, "bp": "e", "name": "enqueue_to_dequeue", "id": row.correlation, "pid": view.pid,
            "tid": row.tid, "ts": us(view.epoch(row.start_ns)), "cat": "async_task_queue"}  # fmt: skip
    args = {"correlation_id": row.correlation}
    return [_x(name, view.pid, row.tid, view, row.start_ns, row.end_ns, cat=row.kind, args=args), flow]


def queue_name(row: HostRow) -> str:
    """Enqueue@aclnnMatmul, Dequeue@acl_memcpy_host_to_device and so on."""
    plain = {"Copy": "acl_memcpy", "Memset": "acl_memset", "Record": "recordEvent", "WaitEvent": "waitEvent",
             "graph": "aclmdlRIExecuteAsync"}.get(row.name, row.name.split("_")[0])  # fmt: skip
    return f"{row.kind.capitalize()}@{plain}"


def _device_processes(view: View) -> list[dict[str, Any]]:
    out = _meta(pid_of(view, "CANN"), "CANN", "CPU", 7)
    for tid in sorted({a.tid for a in view.apis}):
        out += _thread(pid_of(view, "CANN"), tid, f"Thread {tid}")
    for device in view.devices():
        hardware = pid_of(view, "Ascend Hardware", device)
        out += _meta(hardware, "Ascend Hardware", f"NPU {device}", 13)
        for stream in sorted({t.stream for t in view.tasks if t.device == device}):
            out += _thread(hardware, stream, f"Stream {stream}")
        out += _meta(pid_of(view, "Overlap Analysis", device), "Overlap Analysis", f"NPU {device}", 23)
        for name, tid in _OVERLAP_TIDS.items():
            out += _thread(pid_of(view, "Overlap Analysis", device), tid, name)
        frequency = pid_of(view, "AI Core Freq", device)
        out += _meta(frequency, "AI Core Freq", f"NPU {device}", 14)
        start = view.epoch(view.recording.window_start_ns)
        out.append({"name": "AI Core Freq", "ts": us(start), "pid": frequency, "tid": 0,
                    "args": {"MHz": view.chip.mhz}, "ph": "C"})  # fmt: skip
    if view.collectives():
        pid = pid_of(view, "Communication")
        out += _meta(pid, "Communication", "NPU 0", 15)
        out += _thread(pid, 0, "Group 0 Communication") + _thread(pid, 1, "Plane 0")
    return out


def _cann(view: View) -> list[dict[str, Any]]:
    pid = pid_of(view, "CANN")
    out = []
    for api in view.apis:
        args = {"Thread Id": api.tid, "Mode": api.mode, "level": level_name(api), "id": api.name,
                "item_id": api.item, "connection_id": api.connection}  # fmt: skip
        if api.name == "launch":
            args["id"] = "0"
        out.append(_x(cann_name(api), pid, api.tid, view, api.start_ns, api.end_ns, args=args))
        if api.connection in view.task_of:
            at = api.start_ns + (150 if api.level != ACL else 0)
            number = flow_id(view, api.connection)
            out.append({"name": f"HostToDevice{number}", "ph": "s", "cat": "HostToDevice", "id": number,
                        "pid": pid, "tid": api.tid, "ts": us(view.epoch(at))})  # fmt: skip
    return out


def level_name(api: Api) -> str:
    return {20000: "acl", 10000: "node", 5500: "communication"}[api.level]


def cann_name(api: Api) -> str:
    prefix = {20000: "AscendCL", 10000: "Node", 5500: "Communication"}[api.level]
    return f"{prefix}@{api.name}"


def flow_id(view: View, connection: int) -> str:
    """Opaque ids: the connection id for copies, composites for collectives and kernels, as CANN writes them."""
    task = view.task_of.get(connection)
    if task is not None and task.collective:
        return str((connection << 32) - 1)
    if task is not None and task.kernel is not None:
        return str(40_004_068_119_343_529_983 + connection * 281_474_976_710_656)
    return str(connection)


def _hardware(view: View) -> list[dict[str, Any]]:
    out = []
    for task in view.tasks:
        pid = pid_of(view, "Ascend Hardware", task.device)
        if task.collective:
            continue
        args = {"Model Id": task.model_id, "Task Type": task.kind, "Physic Stream Id": task.stream,
                "Task Id": task.task_id, "Batch Id": 0, "Subtask Id": 4_294_967_295,
                "connection_id": task.connection}  # fmt: skip
        out.append(_x(task.name, pid, task.stream, view, task.start_ns, task.end_ns, args=args))
        out += _host_to_device(view, task, pid, task.stream)
    return out


def _host_to_device(view: View, task: Task, pid: int, tid: int) -> list[dict[str, Any]]:
    if task.connection not in view.called:
        return []
    number = flow_id(view, task.connection)
    return [{"name": f"HostToDevice{number}", "ph": "f", "id": number, "ts": us(view.epoch(task.start_ns)),
             "cat": "HostToDevice", "pid": pid, "tid": tid, "bp": "e"}]  # fmt: skip


def _communication(view: View) -> list[dict[str, Any]]:
    pid = pid_of(view, "Communication")
    out = []
    for task in view.collectives():
        assert task.kernel is not None
        count = task.kernel.inputs[0].elements if task.kernel.inputs else 0
        args: dict[str, Any] = {"connection_id": task.connection, "model id": task.model_id, "data_type": "BFP16",
                "alg_type": "MESH-RING", "count": count}  # fmt: skip
        out.append(_x(task.collective, pid, 0, view, task.start_ns, task.end_ns, args=args))
        out += _host_to_device(view, task, pid, 0)
        for name, kind, start, end in plane_tasks(task):
            inner = {"notify_id": "0", "duration estimated(us)": (end - start) / 1000, "stream id": 4,
                     "task id": task.task_id, "context id": 0, "task type": kind, "src rank": 0,
                     "dst rank": 1, "transport type": "SDMA", "size(Byte)": 2 * count if kind != "Notify_Wait" else 0,
                     "data type": "BFP16", "link type": "HCCS",
                     "bandwidth(GB/s)": 2 * count / max(1, end - start)}  # fmt: skip
            out.append(_x(name, pid, 1, view, start, end, args=inner))
    return out


def plane_tasks(task: Task) -> list[tuple[str, str, int, int]]:
    """A collective's parts on its plane: the wait for the peer, then the transfer."""
    assert task.kernel is not None
    ready = min(task.start_ns + task.kernel.peer_lag_ns, task.end_ns - 1)
    parts = [("Reduce_Inline", "Reduce_Inline", ready, task.end_ns)]
    if ready > task.start_ns:
        parts.insert(0, ("Notify_Wait", "Notify_Wait", task.start_ns, ready))
    return parts


def _overlap(view: View) -> list[dict[str, Any]]:
    return [
        _x(name, pid_of(view, "Overlap Analysis", device), _OVERLAP_TIDS[name], view, start, end)
        for device in view.devices()
        for name, start, end in view.overlap(device)
    ]


def _links(view: View) -> list[dict[str, Any]]:
    """torch_to_npu: from the innermost operator to the task, numbered by the task's start.

    torch_npu finds the operator through the CANN call: where that record is lost, so is the link.
    """
    out = []
    for task in view.tasks:
        if task.op is None or task.kind == "EVENT_WAIT_SQE" or task.connection not in view.called:
            continue
        number = view.epoch(task.start_ns)
        pid, tid = pid_of(view, "Ascend Hardware", task.device), task.stream
        if task.collective:
            pid, tid = pid_of(view, "Communication"), 0
        base = {"bp": "e", "name": "torch_to_npu", "id": number, "cat": "async_npu"}
        out.append(
            {"ph": "s", **base, "pid": view.pid, "tid": task.op.tid, "ts": us(view.epoch(task.op.start_ns))}
        )
        out.append({"ph": "f", **base, "pid": pid, "tid": tid, "ts": us(number)})
    return out


def _collections(view: View) -> list[dict[str, Any]]:
    if not view.collections:
        return []
    pid = pid_of(view, "Python GC")
    out = _meta(pid, "Python GC", "CPU", 3)
    for row in view.collections:
        out.append(_x("GC", pid, row.tid, view, row.start_ns, row.end_ns, cat="GC", args={}))
    return out + _thread(pid, view.collections[0].tid, "Python GC")


# The CSV files.


def write_csv(path: Path, rows: Sequence[Sequence[Any]]) -> None:
    """A header and rows; a file without rows is not written, as torch_npu does it."""
    if len(rows) < 2:
        return
    with path.open("w", newline="", encoding="utf-8") as out:
        csv.writer(out).writerows(rows)


def kernel_details(view: View) -> list[list[Any]]:
    """Kernels and collectives in order of start; start times end with a tab."""
    head = ["Device_id", "Model ID", "Task ID", "Stream ID", "Name", "Type", "OP State", "Accelerator Core",
            "Start Time(us)", "Duration(us)", "Wait Time(us)", "Block Num", "Mix Block Num", "HF32 Eligible",
            "Input Shapes", "Input Data Types", "Input Formats", "Output Shapes", "Output Data Types",
            "Output Formats", "Context ID", *PMU]  # fmt: skip
    stepped = bool(view.steps)
    rows: list[list[Any]] = [["Step Id", *head] if stepped else head]
    last: dict[int, int] = {}
    for task in (t for t in view.tasks if t.kernel is not None):
        assert task.kernel is not None
        wait = max(0, task.start_ns - last[task.device]) if task.device in last else 0
        last[task.device] = max(last.get(task.device, 0), task.end_ns)
        row = _collective_row(view, task, wait) if task.collective else _kernel_row(view, task, wait)
        step = view.step_of(task.start_ns, task.device)
        rows.append(["" if step is None else step, *row] if stepped else row)
    return rows


def _kernel_row(view: View, task: Task, wait: int) -> list[Any]:
    kernel = task.kernel
    assert kernel is not None
    values = pmu(kernel, view.chip)
    mixed = blocks_of(kernel, view.chip) * 2 if core_of(kernel) == "MIX_AIC" else 0
    return [
        task.device, task.model_id, task.task_id, task.stream, task.name, op_type(kernel), "dynamic", core_of(kernel),
        us(view.epoch(task.start_ns)) + "\t", us(task.end_ns - task.start_ns), us(wait),
        blocks_of(kernel, view.chip), mixed, "NO", f'"{shapes(kernel.inputs)}"', dtypes(kernel.inputs),
        formats(kernel.inputs), f'"{shapes(kernel.outputs)}"', dtypes(kernel.outputs), formats(kernel.outputs), "N/A",
        *(int(v) if "cycles" in name else round(v, 3) for name, v in values.items()),
    ]  # fmt: skip


def _collective_row(view: View, task: Task, wait: int) -> list[Any]:
    return [task.device, task.model_id, "N/A", "N/A", task.collective, "hcom_allReduce_", "N/A", "COMMUNICATION",
            us(view.epoch(task.start_ns)) + "\t", us(task.end_ns - task.start_ns), us(wait), 0,
            *["N/A"] * (9 + len(PMU))]  # fmt: skip


def op_statistic(view: View) -> list[list[Any]]:
    """Per operator type and core type, largest first."""
    groups: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for task in view.tasks:
        if task.kernel is not None:
            core = "COMMUNICATION" if task.collective else core_of(task.kernel)
            groups[task.device, op_type(task.kernel), core].append(task.end_ns - task.start_ns)
    total = sum(sum(v) for v in groups.values())
    rows: list[list[Any]] = [["Device_id", "OP Type", "Core Type", "Count", "Total Time(us)", "Min Time(us)",
                              "Avg Time(us)", "Max Time(us)", "Ratio(%)"]]  # fmt: skip
    for (device, kind, core), spans in sorted(groups.items(), key=lambda g: -sum(g[1])):
        rows.append([device, kind, core, len(spans), us(sum(spans)), us(min(spans)),
                     round(sum(spans) / len(spans) / 1000, 3), us(max(spans)),
                     round(100 * sum(spans) / total, 3)])  # fmt: skip
    return rows


def api_statistic(view: View) -> list[list[Any]]:
    """Per level and call; the device column says host."""
    groups: dict[tuple[str, str], list[float]] = defaultdict(list)
    for api in view.apis:
        groups[level_name(api), api.name].append((api.end_ns - api.start_ns) / 1000)
    rows: list[list[Any]] = [["Device_id", "Level", "API Name", "Time(us)", "Count", "Avg(us)", "Min(us)",
                              "Max(us)", "Variance"]]  # fmt: skip
    for (level, name), spans in sorted(groups.items()):
        mean = sum(spans) / len(spans)
        variance = sum((s - mean) ** 2 for s in spans) / len(spans)
        rows.append(["host", level, name, round(sum(spans), 3), len(spans), round(mean, 3), min(spans), max(spans),
                     round(variance, 3)])  # fmt: skip
    return rows


def step_trace_time(view: View) -> list[list[Any]]:
    """Sums of the overlap bars by their start; one row without a number where there are no steps."""
    rows: list[list[Any]] = [["Device_id", "Step", "Computing", "Communication(Not Overlapped)", "Overlapped",
                              "Communication", "Free", "Stage", "Bubble",
                              "Communication(Not Overlapped and Exclude Receive)", "Preparing"]]  # fmt: skip
    numbers: list[int | None] = [number for number, _, _ in view.steps]
    for device in view.devices():
        bars = view.overlap(device)
        for step in numbers or [None]:
            mine = [b for b in bars if step is None or view.step_of(b[1], device) == step]
            if mine:
                rows.append(
                    [device, "" if step is None else step, *_step_sums(mine, _host_start(view, step))]
                )
    return rows


def _step_sums(bars: list[tuple[str, int, int]], host_start_ns: int) -> list[float]:
    """The sums of one step in microseconds, in the order of the header."""
    sums: dict[str, int] = defaultdict(int)
    for name, start, end in bars:
        sums[name] += end - start
    stage = max(b[2] for b in bars) - min(b[1] for b in bars)
    bare, comm = sums["Communication(Not Overlapped)"], sums["Communication"]
    work = min((b[1] for b in bars if b[0] != "Free"), default=host_start_ns)
    values = (sums["Computing"], bare, comm - bare, comm, sums["Free"], stage, 0, bare, work - host_start_ns)
    return [n / 1000 for n in values]


def _host_start(view: View, step: int | None) -> int:
    if step is None:
        return min((r.start_ns for r in view.ops), default=0)
    return next(start for number, start, _ in view.steps if number == step)


def operator_details(view: View) -> list[list[Any]]:
    """One row per operator call; device time is that of the tasks linked to it or to what it calls."""
    rows: list[list[Any]] = [["Name", "Input Shapes", "Call Stack", "Host Self Duration(us)",
                              "Host Total Duration(us)", "Device Self Duration(us)", "Device Total Duration(us)",
                              "Device Self Duration With AICore(us)",
                              "Device Total Duration With AICore(us)"]]  # fmt: skip
    device, cube = _device_times(view)
    for row, total, children in _op_tree(view.ops):
        if row.name.startswith("ProfilerStep#"):
            continue
        inside = [row, *children]
        stack = ";\r\n".join(call_stack(view, row))
        dims = ";\r\n".join(",".join(map(str, d)) for d in row.args.get("Input Dims", []))
        host = row.end_ns - row.start_ns
        rows.append([row.name, dims, stack, (host - total) / 1000, host / 1000,
                     device[row.external] / 1000, sum(device[r.external] for r in inside) / 1000,
                     cube[row.external] / 1000, sum(cube[r.external] for r in inside) / 1000])  # fmt: skip
    return rows


def _device_times(view: View) -> tuple[dict[int, int], dict[int, int]]:
    device: dict[int, int] = defaultdict(int)
    cube: dict[int, int] = defaultdict(int)
    for task in view.tasks:
        if task.op is None or task.kind == "EVENT_WAIT_SQE":
            continue
        device[task.op.external] += task.end_ns - task.start_ns
        if task.kind == "AI_CORE":
            cube[task.op.external] += task.end_ns - task.start_ns
    return device, cube


def _op_tree(ops: Iterable[HostRow]) -> list[tuple[HostRow, int, list[HostRow]]]:
    """Each operator with its direct children's host time and all operators within it."""
    found: list[tuple[HostRow, list[HostRow]]] = []
    direct: dict[int, int] = defaultdict(int)
    for tid in sorted({r.tid for r in ops}):
        stack: list[tuple[HostRow, list[HostRow]]] = []
        for row in sorted((r for r in ops if r.tid == tid), key=lambda r: (r.start_ns, -r.end_ns)):
            while stack and stack[-1][0].end_ns <= row.start_ns:
                stack.pop()
            if stack:
                direct[id(stack[-1][0])] += row.end_ns - row.start_ns
            for _, inside in stack:
                inside.append(row)
            entry: tuple[HostRow, list[HostRow]] = (row, [])
            stack.append(entry)
            found.append(entry)
    return [(row, direct[id(row)], inside) for row, inside in found]


# Side files.


def profiler_info(view: View, form: str, stack: bool, cpu_only: bool) -> dict[str, Any]:
    activities = ["ProfilerActivity.CPU"] + ([] if cpu_only else ["ProfilerActivity.NPU"])
    end = view.epoch(view.recording.window_end_ns)
    return {
        "config": {
            "common_config": {
                "activities": activities, "schedule": None, "record_shapes": True, "profile_memory": False,
                "with_stack": stack, "with_flops": False, "with_modules": stack,
            },
            "experimental_config": {
                "_profiler_level": "Level1", "_aic_metrics": "ACL_AICORE_PIPE_UTILIZATION", "_l2_cache": False,
                "_msprof_tx": False, "_mstx": False, "_data_simplification": True, "record_op_args": False,
                "_export_type": [form], "_host_sys": [], "_op_attr": False, "_gc_detect_threshold": 0.0,
                "_mstx_domain_include": [], "_mstx_domain_exclude": [], "_sys_io": False,
                "_sys_interconnection": False,
            },
        },
        "start_info": {"syscnt_enable": True, "freq": 100, "start_cnt": 470_002_538_790_308,
                       "start_monotonic": 4_699_801_002_845_430},
        "end_info": {"collectionTimeEnd": end, "MonotonicTimeEnd": 4_699_801_002_845_430 + end % 10**12},
        "torch_npu_version": "2.14.0", "cann_version": "8.3.RC1", "rank_id": view.recording.rank,
    }  # fmt: skip


def metadata(view: View) -> dict[str, Any]:
    groups = {}
    if view.collectives():
        groups = {_GROUP: {"group_name": "default_group", "group_rank": 0, "global_ranks": [0, 1]}}
    return {
        "ENV_VARIABLES": {
            "ASCEND_GLOBAL_LOG_LEVEL": "3", "HCCL_RDMA_TC": "", "HCCL_RDMA_SL": "", "ACLNN_CACHE_LIMIT": "",
            "HOST_CACHE_CAPACITY": "", "ASCEND_ENHANCE_ENABLE": "",
            "PYTORCH_NPU_ALLOC_CONF": "expandable_segments:True", "ASCEND_LAUNCH_BLOCKING": "", "HCCL_ALGO": "",
        },
        "parallel_group_info": groups,
        "trace_id": f"{view.recording.pid:032x}",
    }  # fmt: skip
