"""The fake's analysis: just enough of what the real one writes, made of the same raw files by the same command."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import ascend_raw
from ascend_raw import us

from torch_npu.profiler.analysis.prof_common_func._constant import print_error_msg

RENAMED = {
    "Op Name": "Name",
    "OP Type": "Type",
    "Task Type": "Accelerator Core",
    "Task Start Time(us)": "Start Time(us)",
    "Task Duration(us)": "Duration(us)",
    "Task Wait Time(us)": "Wait Time(us)",
}


def analyse(folder: Path) -> None:
    info = json.loads((folder / "profiler_info.json").read_text())
    to_wall = info["end_info"]["collectionTimeEnd"] - info["end_info"]["MonotonicTimeEnd"]
    output = folder / "ASCEND_PROFILER_OUTPUT"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    lost = os.environ.get("FAKE_NPU_LOSES_TASK", "")
    loses = bool(lost) and not os.path.exists(lost)
    if loses:
        Path(lost).touch()
        print_error_msg("Task [CANNTimelineParser] run failed.")
    events = framework(folder, to_wall)
    for prof in folder.glob("PROF_*"):
        if loses or shutil.which("msprof") is None:
            continue
        subprocess.run(["msprof", "--export=on", f"--output={prof}"], check=True)
        exported = prof / "mindstudio_profiler_output"
        events += json.loads(next(exported.glob("msprof_*.json")).read_text())
        tables(exported, output)
        shutil.rmtree(exported)
    (output / "trace_view.json").write_text(json.dumps(events))
    (output / "analyse.done").write_text("")


def framework(folder: Path, to_wall: int) -> list[dict[str, Any]]:
    ops = ascend_raw.read_ops(folder)
    pid = int(folder.name.split("_")[-4])
    tids = dict.fromkeys(op.tid for op in ops)
    rows: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": "Python"}},
        {"ph": "M", "name": "process_labels", "pid": pid, "tid": 0, "args": {"labels": "CPU"}},
    ]
    rows += [
        {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": f"Thread {tid}"}}
        for tid in tids
    ]
    for op in ops:
        args = {"Sequence number": -1, "Fwd thread id": 0, "Input Dims": op.shapes.replace(";", ";\r\n")}
        rows.append({"ph": "X", "name": op.name, "pid": pid, "tid": op.tid, "ts": us(op.start_ns + to_wall),
                     "dur": (op.end_ns - op.start_ns) / 1000, "cat": "cpu_op", "args": args})  # fmt: skip
    return rows


def tables(exported: Path, output: Path) -> None:
    with next(exported.glob("op_summary_*.csv")).open(newline="") as file:
        rows = [{RENAMED.get(k, k): v for k, v in row.items()} for row in csv.DictReader(file)]
    ascend_raw.write_csv(output / "kernel_details.csv", rows)
    for table in exported.glob("op_statistic_*.csv"):
        shutil.copy(table, output / "op_statistic.csv")
