"""A small invented Ascend run, written the way its profilers write it: text folder, database, msprof tree.

Two steps on one device. The main thread (tid 500) runs operators that enqueue; a second thread (tid 501)
dequeues and launches. One collective of two plane tasks, one copy, one event wait, one AI CPU kernel.

    step 1   aten::linear -> MatMulV3 (cube)   aten::add -> Add (vector)   copy   all-reduce
    step 2   aten::linear -> MatMulV3          npu::fa -> FlashAttentionScore (mixed)   aten::nonzero -> NonZero (AI CPU)

All times below are nanoseconds from `BASE`.
"""

from __future__ import annotations

import csv
import json
import sqlite3
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

BASE = 1_700_000_000_000_000_000
PID, MAIN, WORKER = 4242, 500, 501
DEVICE = 3
STEPS = {7: (0, 1_000_000), 8: (1_000_000, 2_200_000)}


@dataclass(frozen=True)
class Kernel:
    name: str
    type: str
    core: str
    start: int
    dur: int
    step: int
    operator: str
    op_start: int
    connection: int
    blocks: int = 20
    mix_blocks: int = 0
    shapes: str = "8,64;64,64"
    dtypes: str = "FLOAT16;FLOAT16"


KERNELS = (
    Kernel("aclnnMatmul_MatMulV3Common_MatMulV3", "MatMulV3", "AI_CORE", 200_000, 120_500, 7, "aten::linear", 100_000, 11),
    Kernel("aclnnAdd_AddAiCore_Add", "Add", "AI_VECTOR_CORE", 340_000, 40_000, 7, "aten::add", 200_000, 12, 40, 0, "8,64;"),
    Kernel("aclnnMatmul_MatMulV3Common_MatMulV3", "MatMulV3", "AI_CORE", 1_200_000, 100_250, 8, "aten::linear", 1_050_000, 15),
    Kernel("aclnnFlashAttentionScore_FlashAttentionScore_FlashAttentionScore", "FlashAttentionScore", "MIX_AIC",
           1_400_000, 300_000, 8, "npu::npu_fusion_attention", 1_200_000, 16, 20, 40),
    Kernel("aclnnNonzero_NonZeroAiCpu_NonZero", "NonZero", "AI_CPU", 1_900_000, 80_000, 8, "aten::nonzero", 1_700_000, 17, 1),
)  # fmt: skip
COPY = ("MEMCPY_ASYNC", 420_000, 30_000, 13)
WAIT = ("EVENT_WAIT", 455_000, 40_000, 18)
COLLECTIVE = ("hcom_allReduce__123_0_1", 500_000, 250_000, 14)
PLANE_TASKS = (("Memcpy", 505_000, 100_000, 0), ("Notify_Wait", 610_000, 130_000, 1))
GROUP = "group_hash_1"


def us(ns: int) -> str:
    """Absolute microseconds as the profiler writes them: 16 digits and 3 decimals."""
    total = BASE + ns
    return f"{total // 1000}.{total % 1000:03d}"


def launch_of(start: int) -> int:
    """When the launch call of a kernel began."""
    return start - 50_000


# -- text --------------------------------------------------------------------------------------------


def trace_events(
    level: int = 1, *, new_pids: bool = True, communication: str = "HCCL"
) -> list[dict[str, Any]]:
    """The rows of trace_view.json at a profiler level, in the old or the new pid scheme."""
    pids = _pids(new_pids)
    events = _metadata(pids, level, new_pids, communication)
    calls = _calls()
    for step, (start, end) in STEPS.items():
        events.append(
            _x(f"ProfilerStep#{step}", PID, MAIN, start, end - start, "cpu_op", **{"Sequence number": -1})
        )
    events.append(
        _x("model.py(10): forward", PID, MAIN, 90_000, 800_000, "python_function", **{"Python id": 1})
    )
    for number, (name, operator, op_start, start, connection) in enumerate(calls):
        events += _operator(number, name, operator, op_start)
        launch = launch_of(start)
        if level >= 1:
            events.append(_x("Node@launch" if connection != 13 else "AscendCL@aclrtMemcpyAsync", pids["CANN"], WORKER,
                             launch, 20_000, None, level="node" if connection != 13 else "acl", connection_id=connection,
                             Mode="launch"))  # fmt: skip
        if level >= 2:
            events.append(_x("Runtime@KernelLaunch", pids["CANN"], WORKER, launch + 1_000, 10_000, None, level="runtime",
                             connection_id=connection))  # fmt: skip
        events += _queue(number, name, op_start, launch)
        events += _arrows(pids, name, op_start, start, connection)
    events += _device(pids)
    if level >= 1:
        events.append(_x("AscendCL@aclrtSynchronizeStreamWithTimeout", pids["CANN"], MAIN, 900_000, 90_000, None, level="acl",
                         connection_id=90))  # fmt: skip
        for name, start, dur, plane in PLANE_TASKS:
            events.append(
                _x(name, pids["HCCL"], plane + 1, start, dur, None, **{"task type": name, "size(Byte)": 4096})
            )
    events += [
        {
            "ph": "C",
            "name": "AI Core Freq",
            "ts": str((BASE + t) // 1000),
            "pid": pids["Freq"],
            "tid": 0,
            "args": {"MHz": mhz},
        }
        for t, mhz in ((0, 1800), (1_500_000, 800))
    ]
    return events


def _pids(new: bool) -> dict[str, int]:
    if not new:
        return {"CANN": 900, "Ascend Hardware": 43767502, "HCCL": 1100, "Overlap": 1200, "Freq": 1300}
    layers = {"CANN": 7, "Ascend Hardware": 13, "HCCL": 15, "Overlap": 23, "Freq": 14}
    return {name: PID << 10 | layer << 5 | DEVICE for name, layer in layers.items()}


def _metadata(pids: dict[str, int], level: int, new: bool, communication: str) -> list[dict[str, Any]]:
    names = {PID: "Python", pids["Ascend Hardware"]: "Ascend Hardware", pids["HCCL"]: communication,
             pids["Overlap"]: "Overlap Analysis", pids["Freq"]: "AI Core Freq"}  # fmt: skip
    if level >= 1:
        names[pids["CANN"]] = "CANN"
    rows: list[dict[str, Any]] = []
    for pid, name in names.items():
        rows.append({"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}})
        label = "CPU" if name in ("Python", "CANN") else "NPU" if new else f"NPU {DEVICE}"
        rows.append({"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": label}})
    threads = {(pids["Ascend Hardware"], 2): "Stream 2", (pids["Ascend Hardware"], 4): "Stream 4",
               (pids["HCCL"], 0): "Group 0 Communication", (pids["HCCL"], 1): "Plane 0", (pids["HCCL"], 2): "Plane 1",
               (PID, MAIN): f"Thread {MAIN}", (PID, WORKER): f"Thread {WORKER}"}  # fmt: skip
    for (pid, tid), name in threads.items():
        rows.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}})
    return rows


def _calls() -> list[tuple[str, str, int, int, int]]:
    """(enqueued name, operator, its start, device start, connection id) of everything launched."""
    out = [(f"aclnn{k.type}", k.operator, k.op_start, k.start, k.connection) for k in KERNELS]
    out.append(("acl_memcpy", "aten::copy_", 300_000, COPY[1], COPY[3]))
    out.append(("HcclAllreduce", "c10d::allreduce_", 400_000, COLLECTIVE[1], COLLECTIVE[3]))
    return sorted(out, key=lambda c: c[2])


def _x(name: str, pid: int, tid: int, start: int, dur: int, cat: str | None, **args: Any) -> dict[str, Any]:
    row: dict[str, Any] = {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": us(start),
        "dur": dur / 1000,
    }
    if cat:
        row["cat"] = cat
    if args:
        row["args"] = args
    return row


def _operator(number: int, name: str, operator: str, start: int) -> list[dict[str, Any]]:
    args = {
        "Sequence number": number,
        "Fwd thread id": 0,
        "Input Dims": "8,64;\r\n64,64;\r\n",
        "Input type": "c10::Half;\r\nc10::Half;\r\nScalar",
    }
    return [_x(operator, PID, MAIN, start, 60_000, "cpu_op", **args)]


def _queue(number: int, name: str, op_start: int, launch: int) -> list[dict[str, Any]]:
    enqueue, dequeue = op_start + 20_000, launch - 10_000
    identity = 1000 + number
    return [
        _x(f"Enqueue@{name}", PID, MAIN, enqueue, 10_000, "enqueue", correlation_id=identity),
        _x(f"Dequeue@{name}", PID, WORKER, dequeue, 40_000, "dequeue", correlation_id=identity),
        _flow("s", "async_task_queue", "enqueue_to_dequeue", identity, PID, MAIN, enqueue),
        _flow("f", "async_task_queue", "enqueue_to_dequeue", identity, PID, WORKER, dequeue),
    ]


def _flow(ph: str, cat: str, name: str, identity: Any, pid: int, tid: int, at: int) -> dict[str, Any]:
    return {
        "ph": ph,
        "bp": "e",
        "cat": cat,
        "name": name,
        "id": identity,
        "pid": pid,
        "tid": tid,
        "ts": us(at),
    }


def _arrows(
    pids: dict[str, int], name: str, op_start: int, start: int, connection: int
) -> list[dict[str, Any]]:
    hardware = (pids["HCCL"], 0) if connection == COLLECTIVE[3] else (pids["Ascend Hardware"], 2)
    text_id = str((connection << 64) + 7)
    return [
        # the start of a HostToDevice arrow is a time inside the call, not its start
        _flow(
            "s",
            "HostToDevice",
            f"HostToDevice{connection}",
            text_id,
            pids["CANN"],
            WORKER,
            launch_of(start) + 5_000,
        ),
        _flow("f", "HostToDevice", f"HostToDevice{connection}", text_id, *hardware, start),
        _flow("s", "async_npu", "torch_to_npu", BASE + start, PID, MAIN, op_start),
        _flow("f", "async_npu", "torch_to_npu", BASE + start, *hardware, start),
    ]


def _device(pids: dict[str, int]) -> list[dict[str, Any]]:
    pid = pids["Ascend Hardware"]
    # the trace calls vector kernels AI_CORE too; only the kernel table tells them apart
    shown = {"AI_VECTOR_CORE": "AI_CORE"}
    rows = [
        _x(k.name, pid, 2, k.start, k.dur, None, **_task(shown.get(k.core, k.core), 2, 100 + i, k.connection))
        for i, k in enumerate(KERNELS)
    ]
    rows.append(_x(COPY[0], pid, 2, COPY[1], COPY[2], None, **_task("SDMA_SQE", 2, 200, COPY[3])))
    rows.append(_x(WAIT[0], pid, 2, WAIT[1], WAIT[2], None, **_task("EVENT_WAIT_SQE", 2, 201, WAIT[3])))
    rows.append(_x(COLLECTIVE[0], pids["HCCL"], 0, COLLECTIVE[1], COLLECTIVE[2], None, connection_id=COLLECTIVE[3],
                   data_type="FP16", alg_type="MESH-RING", count=4096))  # fmt: skip
    names = {"Memcpy": ("SDMA", "SDMA"), "Notify_Wait": ("Notify Wait", "Notify Wait")}
    for i, (name, start, dur, _) in enumerate(PLANE_TASKS):
        task = _task(names[name][1], 4, 300, COLLECTIVE[3]) | {"Subtask Id": i}
        rows.append(_x(names[name][0], pid, 4, start, dur, None, **task))
    overlap = pids["Overlap"]
    rows += [_x("Computing", overlap, 0, k.start, k.dur, None) for k in KERNELS]
    rows += [_x("Communication", overlap, 1, COLLECTIVE[1], COLLECTIVE[2], None)]
    rows += [_x("Free", overlap, 3, a, b - a, None) for a, b in free_bars()]
    return rows


def _task(kind: str, stream: int, task: int, connection: int) -> dict[str, Any]:
    return {"Model Id": 4294967295, "Task Type": kind, "Physic Stream Id": stream, "Task Id": task, "Batch Id": 0,
            "Subtask Id": 4294967295, "connection_id": connection}  # fmt: skip


def free_bars() -> list[tuple[int, int]]:
    """Holes between kernels and collectives; copies do not count as work there."""
    work = sorted(
        [(k.start, k.start + k.dur) for k in KERNELS] + [(COLLECTIVE[1], COLLECTIVE[1] + COLLECTIVE[2])]
    )
    return [(a[1], b[0]) for a, b in pairwise(work) if b[0] > a[1]]


def step_rows() -> list[dict[str, Any]]:
    """step_trace_time.csv by its definition: bars counted to the step in whose device range they begin."""
    out = []
    for step in STEPS:
        mine = [k for k in KERNELS if k.step == step]
        comm = COLLECTIVE[2] if step == 7 else 0
        low = min(k.start for k in mine)
        last = max([k.start + k.dur for k in mine] + ([COLLECTIVE[1] + COLLECTIVE[2]] if step == 7 else []))
        high = max(last, STEPS[step][1])
        free = sum(b - a for a, b in free_bars() if low <= a < high)
        out.append({"Device_id": DEVICE, "Step": step, "Computing": sum(k.dur for k in mine) / 1000,
                    "Communication(Not Overlapped)": comm / 1000, "Overlapped": 0, "Communication": comm / 1000,
                    "Free": free / 1000, "Stage": (last - low) / 1000, "Bubble": 0,
                    "Communication(Not Overlapped and Exclude Receive)": comm / 1000,
                    "Preparing": (low - STEPS[step][0]) / 1000})  # fmt: skip
    return out


def kernel_rows(
    level: int = 1, *, block: str = "Block Num", collective: str = "COMMUNICATION"
) -> list[dict[str, Any]]:
    """Rows of kernel_details.csv; block and collective spelled as in some version."""
    rows: list[dict[str, Any]] = []
    for i, k in enumerate(KERNELS):
        row: dict[str, Any] = {"Step Id": k.step, "Device_id": DEVICE, "Model ID": 4294967295, "Task ID": 100 + i,
                               "Stream ID": 2, "Name": k.name, "Type": k.type, "OP State": "dynamic",
                               "Accelerator Core": k.core, "Start Time(us)": us(k.start) + "\t",
                               "Duration(us)": f"{k.dur / 1000:.3f}", "Wait Time(us)": "12.5", block: k.blocks,
                               f"Mix {block}": k.mix_blocks, "Input Shapes": f'"{k.shapes}"', "Input Data Types": k.dtypes,
                               "Input Formats": "ND;ND", "Output Shapes": '"8,64"', "Output Data Types": "FLOAT16",
                               "Output Formats": "ND"}  # fmt: skip
        cube = k.core in ("AI_CORE", "MIX_AIC")
        vector = k.core in ("AI_VECTOR_CORE", "MIX_AIC")
        time_us = k.dur / 1000 - 1
        row |= {"aicore_time(us)": time_us if cube else 0, "aic_total_cycles": round(time_us * 1800 * k.blocks) if cube else 0,
                "aic_mac_ratio": 0.8 if cube else 0, "aiv_time(us)": time_us if vector else 0,
                "aiv_total_cycles": round(time_us * 1800 * (k.mix_blocks or k.blocks)) if vector else 0,
                "aiv_vec_ratio": 0.3 if vector else 0}  # fmt: skip
        if k.core == "AI_CPU":
            row |= {c: "N/A" for c in ("aicore_time(us)", "aic_total_cycles", "aic_mac_ratio", "aiv_time(us)",
                                       "aiv_total_cycles", "aiv_vec_ratio")}  # fmt: skip
        rows.append(row)
    comm = dict.fromkeys(rows[0], "N/A") | {"Step Id": 7, "Device_id": DEVICE, "Name": COLLECTIVE[0], "Type": "hcom_allReduce_",
                                           "Accelerator Core": collective, "Start Time(us)": us(COLLECTIVE[1] - 1) + "\t",
                                           "Duration(us)": f"{COLLECTIVE[2] / 1000:.3f}", "Wait Time(us)": "0", block: 0}  # fmt: skip
    rows.append(comm)
    if level == 0:
        keep = (
            "Step Id",
            "Device_id",
            "Name",
            "Type",
            "Accelerator Core",
            "Start Time(us)",
            "Duration(us)",
            "Wait Time(us)",
            block,
        )
        for row in rows:
            if row["Accelerator Core"] != collective:
                row |= {"Type": "N/A", "Accelerator Core": "N/A", block: 0}
            for key in [key for key in row if key not in keep]:
                del row[key]
    return sorted(rows, key=lambda r: str(r["Start Time(us)"]))


def op_statistic_rows() -> list[dict[str, Any]]:
    totals: dict[tuple[str, str], list[int]] = {}
    for k in KERNELS:
        totals.setdefault((k.type, k.core), []).append(k.dur)
    return [
        {"Device_id": DEVICE, "OP Type": t, "Core Type": c, "Count": len(d), "Total Time(us)": sum(d) / 1000,
         "Min Time(us)": min(d) / 1000, "Avg Time(us)": sum(d) / len(d) / 1000, "Max Time(us)": max(d) / 1000, "Ratio(%)": 0}
        for (t, c), d in totals.items()
    ]  # fmt: skip


def write_csv(path: Path, rows: list[dict[str, Any]]) -> None:
    """As the profilers do: no file at all without rows."""
    if not rows:
        return
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def write_info(folder: Path, rank: int, level: str = "Level1") -> None:
    """profiler_info and profiler_metadata of a rank; the latter with things that must not be kept."""
    info = {"config": {"common_config": {"activities": ["ProfilerActivity.CPU", "ProfilerActivity.NPU"], "record_shapes": True,
                                         "on_trace_ready": {"_dir_name": "/home/someone/private"}},
                       "experimental_config": {"_profiler_level": level, "_aic_metrics": "ACL_AICORE_PIPE_UTILIZATION",
                                               "_export_type": ["text"]}},
            "torch_npu_version": "2.14.0", "cann_version": "9.0.0", "rank_id": str(rank)}  # fmt: skip
    (folder / f"profiler_info_{rank}.json").write_text(json.dumps(info))
    metadata = {"ENV_VARIABLES": {"ASCEND_LAUNCH_BLOCKING": "1", "SECRET_TOKEN": "hunter2"}, "user_note": "secret",
                "distributed_args": {"world_size": 2, "rank": rank, "master_addr": "10.0.0.1"},
                "parallel_group_info": {"g": {"group_name": "tp", "group_rank": rank, "global_ranks": [0, 1]}}}  # fmt: skip
    (folder / "profiler_metadata.json").write_text(json.dumps(metadata))


def write_text(
    parent: Path,
    rank: int = 0,
    level: int = 1,
    *,
    new_pids: bool = True,
    block: str = "Block Num",
    collective: str = "COMMUNICATION",
    process: str = "HCCL",
) -> Path:
    """A `*_ascend_pt` folder of text results; returns it."""
    folder = parent / f"rank{rank}_ascend_pt"
    output = folder / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    write_info(folder, rank, f"Level{level}")
    events = trace_events(level, new_pids=new_pids, communication=process)
    (output / "trace_view.json").write_text(json.dumps(events))
    write_csv(output / "kernel_details.csv", kernel_rows(level, block=block, collective=collective))
    write_csv(output / "step_trace_time.csv", step_rows())
    if level:
        write_csv(output / "op_statistic.csv", op_statistic_rows())
    memory = {"Component": "PTA", "Timestamp(us)": us(0) + "\t", "Total Allocated(MB)": 1.5, "Total Reserved(MB)": 4.0,
              "Total Active(MB)": 1.5, "Stream Ptr": 2, "Device Type": f"NPU:{DEVICE}"}  # fmt: skip
    write_csv(output / "memory_record.csv", [memory])
    allocation = {"Name": "aten::empty", "Size(KB)": 2, "Allocation Time(us)": us(10_000) + "\t", "Release Time(us)": "",
                  "Allocation Total Allocated(MB)": 1.0, "Release Total Allocated(MB)": "", "Device Type": f"NPU:{DEVICE}"}  # fmt: skip
    write_csv(output / "operator_memory.csv", [allocation])
    return folder


# -- database ----------------------------------------------------------------------------------------


class _Ids:
    def __init__(self) -> None:
        self.ids: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        return self.ids.setdefault(text, len(self.ids))


def write_db(parent: Path, rank: int = 0, *, block: str = "blockNum", wal: bool = False) -> Path:
    """The same run as an `*_ascend_pt` folder with databases; returns the folder."""
    folder = parent / f"rank{rank}_ascend_pt"
    output = folder / "ASCEND_PROFILER_OUTPUT"
    output.mkdir(parents=True)
    write_info(folder, rank)
    connection = sqlite3.connect(output / f"ascend_pytorch_profiler_{rank}.db")
    if wal:
        connection.execute("PRAGMA journal_mode=WAL")
    ids = _Ids()
    _db_device(connection, ids, block)
    _db_host(connection, ids)
    _table(connection, "RANK_DEVICE_MAP", "rankId INT, deviceId INT", [(rank, DEVICE)])
    _table(connection, "NPU_INFO", "id INT, name TEXT", [(DEVICE, "Ascend910B")])
    _table(
        connection,
        "AICORE_FREQ",
        "deviceId INT, timestampNs INT, freq INT",
        [(DEVICE, BASE, 1800), (DEVICE, BASE + 1_500_000, 800)],
    )
    _table(connection, "META_DATA", "name TEXT, value TEXT",
           [("SCHEMA_VERSION", "1.0.0"), ("ENV_VARIABLES", '{"ASCEND_LAUNCH_BLOCKING": "1", "SECRET_TOKEN": "hunter2"}')])  # fmt: skip
    _table(connection, "STRING_IDS", "id INT, value TEXT", [(i, t) for t, i in ids.ids.items()])
    # text that is not UTF-8 occurs in the wild
    connection.execute("INSERT INTO STRING_IDS VALUES (99999, CAST(X'ff80' AS TEXT))")
    connection.commit()
    connection.close()
    analysis = sqlite3.connect(output / "analysis.db")
    keys = (
        "computing",
        "communication_not_overlapped",
        "overlapped",
        "communication",
        "free",
        "stage",
        "bubble",
        "preparing",
    )
    names = (
        "Computing",
        "Communication(Not Overlapped)",
        "Overlapped",
        "Communication",
        "Free",
        "Stage",
        "Bubble",
        "Preparing",
    )
    _table(analysis, "StepTraceTime", "deviceId INT, step TEXT, " + ", ".join(f"{k} NUMERIC" for k in keys),
           [(DEVICE, str(r["Step"]), *(r[n] for n in names)) for r in step_rows()])  # fmt: skip
    analysis.commit()
    analysis.close()
    return folder


def _table(connection: sqlite3.Connection, name: str, columns: str, rows: list[tuple[Any, ...]]) -> None:
    connection.execute(f"CREATE TABLE {name} ({columns})")
    if rows:
        connection.executemany(f"INSERT INTO {name} VALUES ({','.join('?' * len(rows[0]))})", rows)


def _db_device(connection: sqlite3.Connection, ids: _Ids, block: str) -> None:
    none, tasks, compute, metrics, parts = 4294967295, [], [], [], []
    kinds = {
        "AI_CORE": "KERNEL_AICORE",
        "AI_VECTOR_CORE": "KERNEL_AIVEC",
        "MIX_AIC": "KERNEL_AICORE",
        "AI_CPU": "KERNEL_AICPU",
    }
    for i, k in enumerate(KERNELS):
        context = 0 if k.core == "MIX_AIC" else none
        tasks.append(
            (
                BASE + k.start,
                BASE + k.start + k.dur,
                DEVICE,
                k.connection,
                i,
                PID,
                ids(kinds[k.core]),
                context,
                2,
                100 + i,
                none,
            )
        )
        compute.append((ids(k.name), i, k.blocks, k.mix_blocks, ids(k.core), ids(k.type), ids("ND;ND"), ids(k.dtypes),
                        ids(f'"{k.shapes}"'), ids("ND"), ids("FLOAT16"), ids('"8,64"'), ids("dynamic")))  # fmt: skip
        if k.core == "MIX_AIC":
            # a mixed kernel has a parent task around it that is no kernel of its own
            tasks.append((BASE + k.start - 500, BASE + k.start + k.dur + 500, DEVICE, k.connection, 50, PID,
                          ids("AI_CORE"), none, 2, 100 + i, none))  # fmt: skip
        row = next(r for r in kernel_rows() if r["Task ID"] == 100 + i)
        for theirs, ours, factor in (("aic_total_time", "aicore_time(us)", 1000), ("aic_total_cycles", "aic_total_cycles", 1),
                                     ("aic_mac_ratio", "aic_mac_ratio", 1), ("aiv_total_time", "aiv_time(us)", 1000),
                                     ("aiv_total_cycles", "aiv_total_cycles", 1), ("aiv_vec_ratio", "aiv_vec_ratio", 1)):  # fmt: skip
            if row[ours] != "N/A":
                metrics.append((i, ids(theirs), float(row[ours]) * factor))
    for number, (name, start, dur, id_) in ((20, COPY), (21, WAIT)):
        kind = "MEMCPY_ASYNC" if name == COPY[0] else "EVENT_WAIT"
        tasks.append(
            (
                BASE + start,
                BASE + start + dur,
                DEVICE,
                id_,
                number,
                PID,
                ids(kind),
                none,
                2,
                180 + number,
                none,
            )
        )
    for i, (name, start, dur, plane) in enumerate(PLANE_TASKS):
        kind = {"Memcpy": "SDMA", "Notify_Wait": "Notify Wait"}[name]
        tasks.append(
            (BASE + start, BASE + start + dur, DEVICE, COLLECTIVE[3], 30 + i, PID, ids(kind), i, 4, 300, none)
        )
        parts.append((ids(COLLECTIVE[0]), 30 + i, ids(name), plane, ids(GROUP), 0, 1, 4096, 1))
    _table(connection, "TASK", "startNs INT, endNs INT, deviceId INT, connectionId INT, globalTaskId INT, globalPid INT, "
           "taskType INT, contextId INT, streamId INT, taskId INT, modelId INT", tasks)  # fmt: skip
    _table(connection, "COMPUTE_TASK_INFO", f"name INT, globalTaskId INT, {block} INT, mix{block[0].upper()}{block[1:]} INT, "
           "taskType INT, opType INT, inputFormats INT, inputDataTypes INT, inputShapes INT, outputFormats INT, "
           "outputDataTypes INT, outputShapes INT, opState INT", compute)  # fmt: skip
    _table(connection, "TASK_PMU_INFO", "globalTaskId INT, name INT, value NUMERIC", metrics)
    _table(connection, "COMMUNICATION_TASK_INFO", "name INT, globalTaskId INT, taskType INT, planeId INT, groupName INT, "
           "srcRank INT, dstRank INT, size INT, opId INT", parts)  # fmt: skip
    _table(connection, "COMMUNICATION_OP", "opName INT, startNs INT, endNs INT, connectionId INT, groupName INT, opId INT, "
           "dataType INT, algType INT, count INT",
           [(ids(COLLECTIVE[0]), BASE + COLLECTIVE[1], BASE + COLLECTIVE[1] + COLLECTIVE[2], COLLECTIVE[3], ids(GROUP), 1, 3,
             ids("MESH-RING"), 4096)])  # fmt: skip


def _db_host(connection: sqlite3.Connection, ids: _Ids) -> None:
    tid = {MAIN: PID << 32 | MAIN, WORKER: PID << 32 | WORKER}
    apis: list[tuple[Any, ...]] = []
    framework: list[tuple[Any, ...]] = []
    links: list[tuple[int, int]] = []
    for step, (start, end) in STEPS.items():
        framework.append(
            (
                str(BASE + start),
                str(BASE + end),
                tid[MAIN],
                None,
                ids(f"ProfilerStep#{step}"),
                -1,
                0,
                None,
                None,
                None,
                50001,
            )
        )
    framework.append(
        (
            str(BASE + 90_000),
            str(BASE + 890_000),
            tid[MAIN],
            None,
            ids("model.py(10): forward"),
            None,
            None,
            None,
            None,
            None,
            50003,
        )
    )
    for number, (name, operator, op_start, start, connection_id) in enumerate(_calls()):
        launch = launch_of(start)
        node = connection_id != COPY[3]
        api = (10000, "launch") if node else (20000, "aclrtMemcpyAsync")
        apis.append((BASE + launch, BASE + launch + 20_000, api[0], tid[WORKER], connection_id, ids(api[1])))
        # only node launches are joined to operators
        own = 2000 + number if node else None
        if own is not None:
            links.append((own, connection_id))
        framework.append((str(BASE + op_start), str(BASE + op_start + 60_000), tid[MAIN], own, ids(operator), number, 0,
                          ids("c10::Half;c10::Half;Scalar"), ids("8,64;64,64;"), 1, 50001))  # fmt: skip
        for i, (what, thread, begin, length) in enumerate(
            (("Enqueue", MAIN, op_start + 20_000, 10_000), ("Dequeue", WORKER, launch - 10_000, 40_000))
        ):
            own = 3000 + 2 * number + i
            links.append((own, (5 << 28) + 1000 + number))
            framework.append(
                (
                    str(BASE + begin),
                    str(BASE + begin + length),
                    tid[thread],
                    own,
                    ids(f"{what}@{name}"),
                    None,
                    None,
                    None,
                    None,
                    None,
                    50002,
                )
            )
    apis.append(
        (BASE + 900_000, BASE + 990_000, 20000, tid[MAIN], 90, ids("aclrtSynchronizeStreamWithTimeout"))
    )
    _table(
        connection,
        "CANN_API",
        "startNs INT, endNs INT, type INT, globalTid INT, connectionId INT, name INT",
        apis,
    )
    _table(connection, "PYTORCH_API", "startNs TEXT, endNs TEXT, globalTid INT, connectionId INT, name INT, sequenceNumber INT, "
           "fwdThreadId INT, inputDtypes INT, inputShapes INT, callchainId INT, type INT", framework)  # fmt: skip
    _table(connection, "CONNECTION_IDS", "id INT, connectionId INT", links)
    _table(connection, "PYTORCH_CALLCHAINS", "id INT, stack INT, stackDepth INT",
           [(1, ids("main.py(3): run"), 1), (1, ids("model.py(10): forward"), 0)])  # fmt: skip


# -- msprof ------------------------------------------------------------------------------------------


def write_msprof(parent: Path, *, stamps: tuple[str, ...] = ("20260101120000",), slices: int = 1) -> Path:
    """A PROF_* tree, exported once per stamp, the trace and the table cut into slices."""
    folder = parent / "PROF_000001_20260101120000123_ABCDEF"
    output = folder / "mindstudio_profiler_output"
    output.mkdir(parents=True)
    device = folder / f"device_{DEVICE}"
    device.mkdir()
    (folder / "host").mkdir()
    (device / f"info.json.{DEVICE}").write_text(json.dumps({
        "DeviceInfo": [{"ai_core_num": 20, "aiv_num": 40, "aic_frequency": "1800", "aiv_frequency": "1800"}],
        "CPU": [{"Logical_CPU_Count": "192"}], "hostname": "secret-host", "rank_id": -1}))  # fmt: skip
    events = [e for e in trace_events() if e["pid"] != PID and e.get("cat") != "async_npu"]
    rows = kernel_rows()
    renames = {"Name": "Op Name", "Type": "OP Type", "Accelerator Core": "Task Type", "Start Time(us)": "Task Start Time(us)",
               "Duration(us)": "Task Duration(us)", "Wait Time(us)": "Task Wait Time(us)"}  # fmt: skip
    rows = [{renames.get(k, k): v for k, v in row.items() if k != "Step Id"} for row in rows]
    for n, stamp in enumerate(stamps):
        for i in range(slices):
            middle = f"slice_{i}_" if slices > 1 else ""
            # an older export of fewer rows must lose against the newest
            part = events[i::slices] if n == len(stamps) - 1 else events[:10]
            (output / f"msprof_{middle}{stamp}.json").write_text(json.dumps(part))
            write_csv(output / f"op_summary_{middle}{stamp}.csv", rows[i::slices])
        write_csv(output / f"op_statistic_{stamp}.csv", op_statistic_rows())
    return folder
