"""Raw Ascend recordings, as torch_npu and CANN leave them before anybody analyses them; and a pretended msprof.

FRAMEWORK holds torch_npu's own binary records, so that its own parser reads them. CANN's binary records are not
public in a form worth imitating: PROF_* holds a list of kernels as JSON instead, and `msprof`, a script made by
`install_msprof`, turns that into the files the real command writes. Standard library only: a fake torch_npu uses
this inside a recorded process.

    operator (tid)   |--aten::mm--------|
      Enqueue          |-|
    worker (tid + 1)        |-Dequeue-|
      Node@launch             |--|
    device                        |--MatMulV3--|
"""

from __future__ import annotations

import csv
import json
import os
import struct
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

OP_RANGE, OP_MARK = struct.Struct("<3q4QB?"), struct.Struct("<q4Q")
NAME, DTYPES, SHAPES = 2, 3, 4
ENQUEUE_START, ENQUEUE_END, DEQUEUE_START, DEQUEUE_END = range(4)

KERNEL_OF = {
    "aten::mm": ("aclnnMm_MatMulV3Common_MatMulV3", "MatMulV3", "AI_CORE"),
    "aten::addmm": ("aclnnAddmm_MatMulV3Common_MatMulV3", "MatMulV3", "AI_CORE"),
    "aten::relu": ("aclnnRelu_ReluAiCore_Relu", "Relu", "AI_VECTOR_CORE"),
}
"""Operators that start a kernel: its name, type and core."""
KERNEL_NS = 20_000
LAUNCH_NS = 15_000
QUEUE_NS = 8_000
BLOCKS, MHZ = 20, 1800


@dataclass
class Op:
    """One operator, times in nanoseconds of the clock FRAMEWORK uses."""

    name: str
    start_ns: int
    end_ns: int
    tid: int
    shapes: str = ""
    dtypes: str = ""


@dataclass
class Kernel:
    """One kernel with the calls that started it, times in nanoseconds of the wall clock."""

    name: str
    type: str
    core: str
    start_ns: int
    dur_ns: int
    launch_ns: int
    tid: int
    connection: int
    shapes: str
    dtypes: str


# -- FRAMEWORK -----------------------------------------------------------------------------------------


def field(kind: int, data: bytes) -> bytes:
    return struct.pack("<HI", kind, len(data)) + data


def op_record(op: Op, pid: int) -> bytes:
    fixed = OP_RANGE.pack(op.start_ns, op.end_ns, -1, pid, op.tid, op.tid, 0, 0, False)
    texts = ((NAME, op.name), (DTYPES, op.dtypes), (SHAPES, op.shapes))
    return field(1, fixed + b"".join(field(k, t.encode()) for k, t in texts if t))


def mark_record(time_ns: int, category: int, correlation: int, tid: int, pid: int, name: str) -> bytes:
    return field(2, OP_MARK.pack(time_ns, category, correlation, tid, pid) + field(1, name.encode()))


def records(data: bytes) -> list[bytes]:
    """The payloads of a file of records."""
    out, at = [], 0
    while at + 6 <= len(data):
        (length,) = struct.unpack_from("<I", data, at + 2)
        out.append(data[at + 6 : at + 6 + length])
        at += 6 + length
    return out


def texts_of(payload: bytes, fixed: int) -> dict[int, str]:
    """The text fields behind the fixed part of a record."""
    out, at = {}, fixed
    while at + 6 <= len(payload):
        kind, length = struct.unpack_from("<HI", payload, at)
        out[kind] = payload[at + 6 : at + 6 + length].decode()
        at += 6 + length
    return out


def read_ops(folder: Path) -> list[Op]:
    """The operators of a recording, as they were written."""
    out = []
    for payload in records((folder / "FRAMEWORK" / "torch.op_range").read_bytes()):
        fixed = OP_RANGE.unpack_from(payload)
        texts = texts_of(payload, OP_RANGE.size)
        out.append(
            Op(
                texts.get(NAME, ""),
                fixed[0],
                fixed[1],
                fixed[4],
                texts.get(SHAPES, ""),
                texts.get(DTYPES, ""),
            )
        )
    return out


# -- a whole recording ---------------------------------------------------------------------------------


def write_recording(
    folder: Path, ops: list[Op], pid: int, to_wall_ns: int, *, device: bool = True, level: str = "Level1"
) -> None:
    """FRAMEWORK, PROF_* and profiler_info.json. `to_wall_ns` is added to a stamp to get wall-clock time."""
    framework = folder / "FRAMEWORK"
    framework.mkdir(parents=True, exist_ok=True)
    launching = [op for op in ops if op.name in KERNEL_OF]
    (framework / "torch.op_range").write_bytes(b"".join(op_record(op, pid) for op in ops))
    (framework / "torch.op_mark").write_bytes(
        b"".join(_marks(op, number, pid) for number, op in enumerate(launching, 1))
    )
    if device:
        write_device(folder, kernels_of(launching, to_wall_ns), to_wall_ns)
    activities = ["ProfilerActivity.CPU", "ProfilerActivity.NPU"][: 2 if device else 1]
    info = {
        "config": {
            "common_config": {"activities": activities, "schedule": None, "record_shapes": True},
            "experimental_config": {
                "_profiler_level": level,
                "_aic_metrics": "ACL_AICORE_PIPE_UTILIZATION",
                "_export_type": ["text"],
                "_data_simplification": True,
            },
        },
        "start_info": {"syscnt_enable": False, "freq": 100, "start_cnt": 0, "start_monotonic": 0},
        "end_info": {"collectionTimeEnd": to_wall_ns + 10**9, "MonotonicTimeEnd": 10**9},
        "torch_npu_version": "2.14.0",
        "cann_version": "8.5.0",
    }
    (folder / "profiler_info.json").write_text(json.dumps(info))


def _marks(op: Op, correlation: int, pid: int) -> bytes:
    name, worker = f"aclnn{op.name.rpartition(':')[2].title()}", op.tid + 1
    middle = (op.start_ns + op.end_ns) // 2
    times = (
        (middle, ENQUEUE_START, op.tid),
        (op.end_ns - 1, ENQUEUE_END, op.tid),
        (op.end_ns + QUEUE_NS, DEQUEUE_START, worker),
        (op.end_ns + QUEUE_NS + LAUNCH_NS, DEQUEUE_END, worker),
    )
    return b"".join(mark_record(t, category, correlation, tid, pid, name) for t, category, tid in times)


def kernels_of(launching: list[Op], to_wall_ns: int) -> list[Kernel]:
    """One kernel an operator, on one stream, each after the one before it."""
    out: list[Kernel] = []
    free = 0
    for number, op in enumerate(launching, 1):
        name, kind, core = KERNEL_OF[op.name]
        launch = op.end_ns + QUEUE_NS + 2_000 + to_wall_ns
        start = max(free, launch + LAUNCH_NS)
        free = start + KERNEL_NS
        out.append(
            Kernel(name, kind, core, start, KERNEL_NS, launch, op.tid + 1, number, op.shapes, op.dtypes)
        )
    return out


def write_device(folder: Path, kernels: list[Kernel], to_wall_ns: int) -> None:
    """The CANN half: clocks and chip in the real files' form, kernels in our own."""
    prof = folder / "PROF_000001_20260101000000000_ABCDEFGH"
    (prof / "host" / "data").mkdir(parents=True)
    (prof / "device_0" / "data").mkdir(parents=True)
    raw = 10**9
    start = {"clockMonotonicRaw": str(raw), "collectionTimeBegin": str((raw + to_wall_ns) / 1000)}
    (prof / "host" / "start_info").write_text(json.dumps(start))
    chip = {
        "ai_core_num": 20,
        "aiv_num": 40,
        "ai_cpu_core_num": 6,
        "aic_frequency": str(MHZ),
        "aiv_frequency": str(MHZ),
    }
    (prof / "device_0" / "info.json.0").write_text(json.dumps({"DeviceInfo": [chip], "CPU": [{}]}))
    document = {"pid": os.getpid(), "kernels": [asdict(k) for k in kernels]}
    (prof / "device_0" / "data" / "kernels.json").write_text(json.dumps(document))


def us(ns: int) -> str:
    """Microseconds with three decimals, exact."""
    return f"{ns // 1000}.{ns % 1000:03d}"


# -- msprof --------------------------------------------------------------------------------------------


def install_msprof(root: Path) -> Path:
    """A CANN folder with an msprof command that understands `write_device`; returns the folder for PATH."""
    tool = root / "tools" / "profiler"
    script = tool / "profiler_tool" / "analysis" / "msprof" / "msprof.py"
    script.parent.mkdir(parents=True)
    script.write_text("")
    command = tool / "bin" / "msprof"
    command.parent.mkdir(parents=True)
    here = Path(__file__).resolve().parent
    command.write_text(
        f"#!{sys.executable}\nimport sys\nsys.path.insert(0, {str(here)!r})\n"
        "from ascend_raw import msprof\nsys.exit(msprof(sys.argv[1:]))\n"
    )
    command.chmod(0o755)
    return command.parent


def msprof(arguments: list[str]) -> int:
    """What the command does: `--export=on --output=PROF_x` writes tables and a timeline beside the raw data."""
    options = dict(a.lstrip("-").partition("=")[::2] for a in arguments)
    if "help" in options:
        print("--export --output --analyze")
        return 0
    if options.get("export") == "on":
        export(Path(options["output"]))
    return 0


def export(prof: Path) -> None:
    document = json.loads((prof / "device_0" / "data" / "kernels.json").read_text())
    kernels = [Kernel(**k) for k in document["kernels"]]
    # torch_npu starts reading as soon as it sees a table: all of them appear at once
    output = prof / "writing"
    output.mkdir()
    stamp = "20260101000000"
    (output / f"msprof_{stamp}.json").write_text(json.dumps(timeline(kernels, document["pid"])))
    write_csv(output / f"op_summary_{stamp}.csv", [summary_row(i, k, kernels) for i, k in enumerate(kernels)])
    write_csv(output / f"op_statistic_{stamp}.csv", statistic_rows(kernels))
    output.rename(prof / "mindstudio_profiler_output")


def timeline(kernels: list[Kernel], pid: int) -> list[dict[str, Any]]:
    """CANN calls, device tasks and the arrows between them."""
    cann, device = pid << 10 | 7 << 5, pid << 10 | 13 << 5
    rows: list[dict[str, Any]] = []
    overlap = pid << 10 | 23 << 5
    names = ((cann, "CANN", "CPU"), (device, "Ascend Hardware", "NPU"), (overlap, "Overlap Analysis", "NPU"))
    for number, name, label in names:
        rows.append({"ph": "M", "name": "process_name", "pid": number, "tid": 0, "args": {"name": name}})
        rows.append({"ph": "M", "name": "process_labels", "pid": number, "tid": 0, "args": {"labels": label}})
    rows.append({"ph": "M", "name": "thread_name", "pid": device, "tid": 2, "args": {"name": "Stream 2"}})
    for k in kernels:
        call = {"Thread Id": k.tid, "Mode": "launch", "level": "node", "connection_id": k.connection}
        task = {"Model Id": 4294967295, "Task Type": "AI_CORE", "Physic Stream Id": 2, "Task Id": k.connection,
                "Batch Id": 0, "Subtask Id": 4294967295, "connection_id": k.connection}  # fmt: skip
        arrow = {"cat": "HostToDevice", "name": f"HostToDevice{k.connection}", "id": str(k.connection << 32)}
        rows += [
            {"ph": "X", "name": "Node@launch", "pid": cann, "tid": k.tid, "ts": us(k.launch_ns), "dur": 9, "args": call},
            {"ph": "X", "name": k.name, "pid": device, "tid": 2, "ts": us(k.start_ns), "dur": k.dur_ns / 1000, "args": task},
            {"ph": "s", "bp": "e", **arrow, "pid": cann, "tid": k.tid, "ts": us(k.launch_ns + 1_000)},
            {"ph": "f", "bp": "e", **arrow, "pid": device, "tid": 2, "ts": us(k.start_ns)},
        ]  # fmt: skip
    bars = [("Computing", k.start_ns, k.dur_ns) for k in kernels]
    ends = [k.start_ns + k.dur_ns for k in kernels]
    bars += [
        ("Free", end, k.start_ns - end) for end, k in zip(ends, kernels[1:], strict=False) if k.start_ns > end
    ]
    rows += [
        {
            "ph": "X",
            "name": name,
            "pid": overlap,
            "tid": 0 if name == "Computing" else 3,
            "ts": us(start),
            "dur": dur / 1000,
        }
        for name, start, dur in bars
    ]
    return rows


def summary_row(number: int, k: Kernel, kernels: list[Kernel]) -> dict[str, Any]:
    wait = (k.start_ns - kernels[number - 1].start_ns - KERNEL_NS) / 1000 if number else 0
    cube, vector = k.core == "AI_CORE", k.core == "AI_VECTOR_CORE"
    busy = k.dur_ns / 1000 - 1
    cycles = round(busy * MHZ * BLOCKS)
    return {
        "Device_id": 0, "Model ID": 4294967295, "Task ID": k.connection, "Stream ID": 2, "Op Name": k.name,
        "OP Type": k.type, "OP State": "dynamic", "Task Type": k.core, "Task Start Time(us)": us(k.start_ns) + "\t",
        "Task Duration(us)": k.dur_ns / 1000, "Task Wait Time(us)": wait, "Block Num": BLOCKS, "Mix Block Num": 0,
        "HF32 Eligible": "NO", "Input Shapes": f'"{k.shapes}"', "Input Data Types": k.dtypes, "Input Formats": "ND;ND",
        "Output Shapes": '"4,64"', "Output Data Types": "FLOAT", "Output Formats": "ND", "Context ID": "N/A",
        "aicore_time(us)": busy if cube else 0, "aic_total_cycles": cycles if cube else 0,
        "aic_mac_ratio": 0.5 if cube else 0, "aic_mte2_ratio": 0.3 if cube else 0,
        "aiv_time(us)": busy if vector else 0, "aiv_total_cycles": cycles if vector else 0,
        "aiv_vec_ratio": 0.4 if vector else 0,
    }  # fmt: skip


def statistic_rows(kernels: list[Kernel]) -> list[dict[str, Any]]:
    kinds = dict.fromkeys((k.type, k.core) for k in kernels)
    rows = []
    for kind, core in kinds:
        each = [k.dur_ns / 1000 for k in kernels if (k.type, k.core) == (kind, core)]
        rows.append({"Device_id": 0, "OP Type": kind, "Core Type": core, "Count": len(each), "Total Time(us)": sum(each),
                     "Min Time(us)": min(each), "Avg Time(us)": sum(each) / len(each), "Max Time(us)": max(each),
                     "Ratio(%)": 100 / len(kinds)})  # fmt: skip
    return rows


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """As the profilers do: no file at all without rows."""
    if not rows:
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
