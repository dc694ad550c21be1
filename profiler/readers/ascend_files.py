"""The side files of an Ascend recording as facts: settings, versions, steps, statistics, communication, memory.

Reads:  profiler_info*.json, profiler_metadata.json, step_trace_time.csv, op_statistic.csv, api_statistic.csv,
        communication.json, communication_matrix.json, l2_cache.csv, data_preprocess.csv (aicpu), npu_module_mem.csv,
        memory_record.csv, operator_memory.csv; info.json.N and start_info of msprof.
Leaves: operator_details.csv (no times; the trace says the same with times), task_time.csv, soc_pmu.csv, nic, roce,
        pcie and hccs tables. Host names, paths, user metadata and all environment variables but a few.

Every value is in nanoseconds or bytes whatever the file's unit; every table is cut at MAX_ROWS.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler.errors import InputError
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers.ascend_content import content
from stallscope.profiler.readers.ascend_rank import RankBuilder, rank_number
from stallscope.profiler.readers.ascend_table import DestroyedTimes, Table, read_table
from stallscope.profiler.timeline import NO_TIME, Allocations, Int64

MAX_ROWS = 1_000
MAX_TEXT = 200

ENVIRONMENT = (
    "ASCEND_GLOBAL_LOG_LEVEL", "HCCL_RDMA_TC", "HCCL_RDMA_SL", "ACLNN_CACHE_LIMIT", "HOST_CACHE_CAPACITY",
    "ASCEND_ENHANCE_ENABLE", "PYTORCH_NPU_ALLOC_CONF", "ASCEND_LAUNCH_BLOCKING", "HCCL_ALGO", "TASK_QUEUE_ENABLE",
    "CPU_AFFINITY_CONF", "HCCL_OP_EXPANSION_MODE", "HCCL_BUFFSIZE", "HCCL_DETERMINISTIC", "COMBINED_ENABLE",
    "MULTI_STREAM_MEMORY_REUSE", "INF_NAN_MODE_ENABLE", "OMP_NUM_THREADS",
)  # fmt: skip
"""Variables that change how fast a run is and hold no names or secrets; no other is ever kept."""

_SETTINGS = {
    "_profiler_level": "level",
    "_aic_metrics": "aic_metrics",
    "_l2_cache": "l2_cache",
    "_msprof_tx": "msprof_tx",
    "_mstx": "mstx",
    "_op_attr": "op_attr",
    "_gc_detect_threshold": "gc_detect_threshold",
    "_export_type": "export_type",
    "_sys_io": "sys_io",
    "_sys_interconnection": "sys_interconnection",
    "_host_sys": "host_sys",
    "_data_simplification": "data_simplification",
}
_AIC_METRICS = {
    "ACL_AICORE_PIPE_UTILIZATION": "PipeUtilization",
    "ACL_AICORE_ARITHMETIC_UTILIZATION": "ArithmeticUtilization",
    "ACL_AICORE_MEMORY_BANDWIDTH": "Memory",
    "ACL_AICORE_L0B_AND_WIDTH": "MemoryL0",
    "ACL_AICORE_MEMORY_UB": "MemoryUB",
    "ACL_AICORE_RESOURCE_CONFLICT_RATIO": "ResourceConflictRatio",
    "ACL_AICORE_L2_CACHE": "L2Cache",
    "ACL_AICORE_MEMORY_ACCESS": "MemoryAccess",
    "ACL_AICORE_NONE": "None",
}
_PARALLEL = (
    "tensor_model_parallel_size", "pipeline_model_parallel_size", "data_parallel_size", "context_parallel_size",
    "expert_model_parallel_size", "sequence_parallel", "rank", "world_size",
)  # fmt: skip


def read_json(path: Path, notes: Notes) -> Any:
    """A JSON file, or None with a note where it cannot be used."""
    try:
        return json.loads(content(path, notes).decode("utf-8-sig"))
    except (OSError, InputError, ValueError, RecursionError, MemoryError) as error:
        notes.add(
            "side-file-unreadable",
            "warning",
            f"{path.name} could not be read and was left out ({_first(error)})",
            1,
            path.name,
        )
        return None


def load_table(path: Path, notes: Notes) -> Table | None:
    """A CSV, or None with a note where it cannot be used; skipped rows are noted."""
    try:
        table = read_table(path, notes)
    except (OSError, InputError, MemoryError) as error:
        notes.add(
            "side-file-unreadable",
            "warning",
            f"{path.name} could not be read and was left out ({_first(error)})",
            1,
            path.name,
        )
        return None
    notes.add(
        "csv-rows-skipped",
        "warning",
        "rows with too few or too many cells were left out (cut file?)",
        table.ragged,
        path.name,
    )
    return table


def note_destroyed(path: Path, error: Exception, notes: Notes) -> None:
    """One file whose times a spreadsheet has rounded away is refused; the rest of the recording is not."""
    notes.add("destroyed-timestamps", "data_loss",
              f"{path.name} was saved by a spreadsheet, which rounded its times away ({error}); the file was left out. "
              "Use the file the profiler wrote", 1, path.name)  # fmt: skip


def _first(error: Exception) -> str:
    text = str(error).splitlines()
    return text[0][:160] if text else type(error).__name__


# -- settings ----------------------------------------------------------------------------------------


def profiler_info(info: Any) -> dict[str, Any]:
    """Settings, versions and rank of profiler_info*.json; keys with and without leading underscores."""
    out: dict[str, Any] = {}
    if not isinstance(info, dict):
        return out
    config = _dict(info, "config")
    common = _dict(config, "common_config")
    special = _dict(config, "experimental_config")
    # MindSpore writes its settings flat
    flat = {k: v for k, v in info.items() if isinstance(v, str | int | float | bool | list)}
    for key, ours in _SETTINGS.items():
        for source in (special, common, flat):
            value = source.get(key, source.get(key.lstrip("_")))
            if isinstance(value, str | int | float | bool | list) and ours not in out:
                out[ours] = _short(value)
    if isinstance(out.get("aic_metrics"), str):
        out["aic_metrics"] = _AIC_METRICS.get(out["aic_metrics"], out["aic_metrics"])
    for key in ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules"):
        if isinstance(common.get(key), bool):
            out[key] = common[key]
    if isinstance(common.get("activities"), list):
        out["activities"] = [str(a).rpartition(".")[2][:20] for a in common["activities"][:10]]
    schedule = common.get("schedule")
    if isinstance(schedule, dict):
        out["schedule"] = {k.lstrip("_"): v for k, v in schedule.items() if isinstance(v, int)}
    for key in ("torch_npu_version", "cann_version", "mindspore_version", "ms_version"):
        if isinstance(info.get(key), str):
            out["mindspore_version" if key == "ms_version" else key] = info[key][:60]
    out["rank"] = rank_number(info.get("rank_id"))
    end = info.get("end_info")
    if isinstance(end, dict) and isinstance(end.get("collectionTimeEnd"), int):
        out["collection_end_ns"] = end["collectionTimeEnd"]
    return out


def profiler_metadata(meta: Any) -> dict[str, Any]:
    """Environment (a fixed list), parallel groups and layout of profiler_metadata.json."""
    out: dict[str, Any] = {}
    if not isinstance(meta, dict):
        return out
    variables = meta.get("ENV_VARIABLES")
    if isinstance(variables, dict):
        out["environment"] = {k: str(variables[k])[:MAX_TEXT] for k in ENVIRONMENT if k in variables}
    layout = meta.get("distributed_args")
    if isinstance(layout, dict):
        out["parallel"] = {k: layout[k] for k in _PARALLEL if isinstance(layout.get(k), int | bool)}
    groups = meta.get("parallel_group_info")
    if isinstance(groups, dict):
        out["groups"] = {
            str(key)[:MAX_TEXT]: {
                "name": str(g.get("group_name", ""))[:60],
                "rank": g.get("group_rank") if isinstance(g.get("group_rank"), int) else -1,
                "ranks": [r for r in g.get("global_ranks", []) if isinstance(r, int)][:1024],
            }
            for key, g in list(groups.items())[:64]
            if isinstance(g, dict)
        }
    return out


def _dict(document: dict[str, Any], key: str) -> dict[str, Any]:
    value = document.get(key)
    return value if isinstance(value, dict) else {}


def _short(value: Any) -> Any:
    if isinstance(value, str):
        return value[:MAX_TEXT]
    if isinstance(value, list):
        return [_short(v) for v in value[:20] if isinstance(v, str | int | float | bool)]
    return value


# -- statistic tables --------------------------------------------------------------------------------


def _ns(table: Table, name: str) -> Int64:
    """A duration column in nanoseconds, 0 where it is absent or N/A."""
    values = table.times_ns(name)
    return np.where(values == NO_TIME, 0, values)


def _rows(
    table: Table, columns: dict[str, npt.NDArray[Any] | list[Any]], order: npt.NDArray[Any] | None = None
) -> list[dict[str, Any]]:
    chosen = (np.arange(table.rows) if order is None else order)[:MAX_ROWS].tolist()
    return [{key: _plain(column[i]) for key, column in columns.items()} for i in chosen]


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _text_column(table: Table, name: str) -> list[str]:
    codes, texts = table.texts(name)
    return [texts[c][:MAX_TEXT] for c in codes.tolist()] if table.rows else []


def op_statistic(table: Table) -> list[dict[str, Any]]:
    """Kernels by type and core, as the profiler added them up."""
    return _rows(table, {
        "device": table.ints("Device_id", -1),
        "type": _text_column(table, "Type"),
        "core": _text_column(table, "Core Type"),
        "count": table.ints("Count", 0),
        "total_ns": _ns(table, "Total Time"),
        "min_ns": _ns(table, "Min Time"),
        "max_ns": _ns(table, "Max Time"),
    }, np.argsort(-_ns(table, "Total Time"), kind="stable"))  # fmt: skip


def api_statistic(table: Table) -> list[dict[str, Any]]:
    """CANN calls by level and name. Levels nest: acl holds node holds runtime, so they must not be added."""
    return _rows(table, {
        "level": _text_column(table, "Level"),
        "name": _text_column(table, "API Name"),
        "count": table.ints("Count", 0),
        "total_ns": _ns(table, "Time"),
        "min_ns": _ns(table, "Min"),
        "max_ns": _ns(table, "Max"),
    }, np.argsort(-_ns(table, "Time"), kind="stable"))  # fmt: skip


def step_trace_time(table: Table) -> list[dict[str, Any]]:
    """The profiler's own split of each step: computing, communication, free."""
    columns = {
        "computing_ns": "Computing",
        "communication_not_overlapped_ns": "Communication(Not Overlapped)",
        "overlapped_ns": "Overlapped",
        "communication_ns": "Communication",
        "free_ns": "Free",
        "stage_ns": "Stage",
        "bubble_ns": "Bubble",
        "preparing_ns": "Preparing",
    }
    values: dict[str, Any] = {"device": table.ints("Device_id", -1), "step": table.ints("Step", -1)}
    values |= {ours: _ns(table, theirs) for ours, theirs in columns.items()}
    return _rows(table, values)


def aicpu(table: Table) -> list[dict[str, Any]]:
    """AI CPU kernels of data_preprocess.csv; older headers are in milliseconds."""
    columns: dict[str, Any] = {"node": _text_column(table, "Node")}
    for ours, theirs in (("compute_ns", "Compute_time"), ("memcpy_ns", "Memcpy_time"), ("task_ns", "Task_time"),
                         ("dispatch_ns", "Dispatch_time"), ("total_ns", "Total_time")):  # fmt: skip
        columns[ours] = _ns(table, theirs)
    return _rows(table, columns, np.argsort(-columns["total_ns"], kind="stable"))


def l2_cache(table: Table) -> list[dict[str, Any]]:
    """Mean hit and victim rate by kernel name; a hit rate is N/A on some chips, a victim rate may exceed 1."""
    codes, texts = table.texts("Name")
    if table.rows == 0:
        return []
    out = []
    hit, victim = table.numbers("Hit Rate"), table.numbers("Victim Rate")
    for code, count in sorted(
        enumerate(np.bincount(codes, minlength=len(texts)).tolist()), key=lambda x: -x[1]
    )[:MAX_ROWS]:
        mine = codes == code
        out.append(
            {
                "name": texts[code][:MAX_TEXT],
                "count": count,
                "hit_rate": _mean(hit[mine]),
                "victim_rate": _mean(victim[mine]),
            }
        )
    return out


def _mean(values: npt.NDArray[np.float64]) -> float | None:
    good = values[~np.isnan(values)]
    return float(good.mean()) if len(good) else None


def module_memory(table: Table) -> list[dict[str, Any]]:
    """Peak and last reserved bytes per CANN component; -1 in the file stands for unknown."""
    codes, texts = table.texts("Component")
    reserved, _ = _bytes(table, "Total Reserved")
    out: list[dict[str, Any]] = []
    for code, name in enumerate(texts):
        values = reserved[(codes == code) & (reserved >= 0)]
        if len(values) and values.max() > 0:
            out.append(
                {"component": name[:60], "peak_bytes": int(values.max()), "last_bytes": int(values[-1])}
            )
    return sorted(out, key=lambda row: -row["peak_bytes"])[:MAX_ROWS]


def _bytes(table: Table, name: str) -> tuple[npt.NDArray[np.float64], str]:
    column = table.get(name)
    unit = "" if column is None else column.unit
    factor = {"KB": 2.0**10, "MB": 2.0**20, "GB": 2.0**30, "B": 1.0}.get(unit.upper(), 2.0**20)
    return table.numbers(name) * factor, unit


TABLES: dict[str, tuple[str, Callable[[Table], list[dict[str, Any]]]]] = {
    "op_statistic": ("op_statistic", op_statistic),
    "api_statistic": ("api_statistic", api_statistic),
    "step_trace_time": ("step_trace_time", step_trace_time),
    "data_preprocess": ("aicpu", aicpu),
    "aicpu": ("aicpu", aicpu),
    "l2_cache": ("l2_cache_by_kernel", l2_cache),
    "npu_module_mem": ("module_memory", module_memory),
}
"""File stem (without msprof's time stamp) -> key of the facts and the function that reads the table."""


def statistic_tables(files: dict[str, Path], notes: Notes) -> dict[str, Any]:
    """Facts of every statistic table that is there. `files` maps stems to paths."""
    out: dict[str, Any] = {}
    for stem, (key, read) in TABLES.items():
        if stem not in files:
            continue
        table = load_table(files[stem], notes)
        if table is None or table.rows == 0:
            continue
        try:
            out[key] = read(table)
        except DestroyedTimes as error:
            note_destroyed(files[stem], error, notes)
    return out


# -- communication -----------------------------------------------------------------------------------

_MS, _MB = 1e6, 1e6


def communication(document: Any) -> list[dict[str, Any]]:
    """Collectives of communication.json with how their time splits; megabytes there are 10^6 bytes."""
    out: list[dict[str, Any]] = []
    for step, kinds in _items(document):
        for kind, ops in _items(kinds):
            for name, parts in _items(ops):
                if name == "Total Op Info":
                    continue
                timing = parts.get("Communication Time Info", {}) if isinstance(parts, dict) else {}
                if not isinstance(timing, dict):
                    continue
                op, _, group = name.partition("@")
                row: dict[str, Any] = {
                    "step": step_number(step),
                    "kind": kind[:20],
                    "name": op[:MAX_TEXT],
                    "group": group[:60],
                }
                row["start_us"] = number(timing.get("Start Timestamp(us)"))
                for ours in ("Elapse", "Transit", "Wait", "Synchronization", "Idle"):
                    row[f"{ours.lower()}_ns"] = round(number(timing.get(f"{ours} Time(ms)")) * _MS)
                row["links"] = _bandwidths(parts.get("Communication Bandwidth Info"))
                out.append(row)
    return sorted(out, key=lambda r: -int(r["elapse_ns"]))[:MAX_ROWS]


def _bandwidths(info: Any) -> list[dict[str, Any]]:
    out = []
    for transport, entry in _items(info):
        size = number(entry.get("Transit Size(MB)")) if isinstance(entry, dict) else 0.0
        if not isinstance(entry, dict) or size <= 0:
            continue
        packets = [
            {
                "bytes": round(number(text) * _MB),
                "count": round(number(pair[0])),
                "ns": round(number(pair[1]) * _MS),
            }
            for text, pair in list(_items(entry.get("Size Distribution")))[:32]
            if isinstance(pair, list) and len(pair) == 2
        ]
        out.append({
            "transport": transport[:20],
            "bytes": round(size * _MB),
            "transit_ns": round(number(entry.get("Transit Time(ms)")) * _MS),
            "gb_per_s": number(entry.get("Bandwidth(GB/s)")),
            "large_packet_ratio": number(entry.get("Large Packet Ratio")),
            "packets": packets,
        })  # fmt: skip
    return out


def communication_matrix(document: Any) -> list[dict[str, Any]]:
    """Links between ranks of communication_matrix.json."""
    out: list[dict[str, Any]] = []
    for step, kinds in _items(document):
        for _, ops in _items(kinds):
            for name, links in _items(ops):
                op, _, group = name.partition("@")
                for pair, entry in _items(links):
                    if not isinstance(entry, dict):
                        continue
                    source, _, target = pair.partition("-")
                    out.append({
                        "step": step_number(step), "name": op[:60], "group": group[:60], "from": source[:10], "to": target[:10],
                        "transport": str(entry.get("Transport Type", ""))[:20],
                        "bytes": round(number(entry.get("Transit Size(MB)")) * _MB),
                        "transit_ns": round(number(entry.get("Transit Time(ms)")) * _MS),
                        "gb_per_s": number(entry.get("Bandwidth(GB/s)")),
                    })  # fmt: skip
    return out[:MAX_ROWS]


def _items(value: Any) -> list[tuple[str, Any]]:
    return [(str(k), v) for k, v in value.items()] if isinstance(value, dict) else []


def step_number(value: Any) -> int:
    """The number of "step50" or "50", -1 for a step without one."""
    digits = str(value).removeprefix("step")
    return int(digits) if digits.isdecimal() and len(digits) < 19 else -1


def number(value: Any) -> float:
    """A finite float of a JSON or SQL value, 0 for anything else."""
    try:
        found = float(value)
    except (TypeError, ValueError):
        return 0.0
    return found if math.isfinite(found) else 0.0


# -- memory ------------------------------------------------------------------------------------------


def add_memory_record(rank: RankBuilder, table: Table) -> int:
    """Allocated and reserved bytes over time as counters, one per component; returns the peak reserved."""
    times = table.times_ns("Timestamp")
    codes, components = table.texts("Component")
    peak = 0
    for name in ("Allocated", "Reserved", "Active"):
        values, _ = _bytes(table, f"Total {name}")
        for code, component in enumerate(components):
            at = np.flatnonzero((codes == code) & ~np.isnan(values) & (times != NO_TIME))
            if len(at) == 0:
                continue
            device = _device_of(table, int(at[0]))
            label = f"memory {component} {name.lower()} (bytes)"
            track = rank.label_track("memory", device)
            rank.builder.add_counters(times[at], rank.strings.code(label), track, values[at])
            peak = max(peak, int(values[at].max())) if name == "Reserved" else peak
    return peak


def _device_of(table: Table, row: int) -> int:
    codes, texts = table.texts("Device Type")
    return _device_number(texts[codes[row]]) if table.rows else 0


def _device_number(text: str) -> int:
    """The number of "NPU:3", 0 where there is none."""
    digits = text.rpartition(":")[2]
    return int(digits) if digits.isdecimal() and len(digits) < 6 else 0


def add_operator_memory(rank: RankBuilder, table: Table) -> None:
    """Each allocation and its release as allocation events; an empty release is still alive."""
    size, _ = _bytes(table, "Size")
    codes, devices = table.texts("Device Type")
    numbers = np.array([_device_number(d) for d in devices] or [0])
    device = numbers[codes] if table.rows else np.zeros(0, np.int64)
    for what, total, sign in (
        ("Allocation Time", "Allocation Total Allocated", 1),
        ("Release Time", "Release Total Allocated", -1),
    ):
        times = table.times_ns(what)
        at = np.flatnonzero((times != NO_TIME) & ~np.isnan(size) & (size != 0))
        if len(at) == 0:
            continue
        totals, _ = _bytes(table, total)
        rank.builder.add_allocations(
            Allocations(
                time_ns=times[at],
                bytes=(sign * np.abs(size[at])).astype(np.int64),
                total_bytes=np.where(np.isnan(totals[at]), -1, totals[at]).astype(np.int64),
                address=np.zeros(len(at), np.int64),
                device=device[at].astype(np.int32),
                track=np.full(len(at), -1, np.int32),
            )
        )


def add_memory(rank: RankBuilder, files: dict[str, Path], facts: dict[str, Any]) -> None:
    """memory_record and operator_memory, each refused alone if damaged."""
    for stem in ("memory_record", "operator_memory"):
        if stem not in files:
            continue
        table = load_table(files[stem], rank.notes)
        if table is None or table.rows == 0:
            continue
        try:
            if stem == "memory_record":
                facts["peak_reserved_bytes"] = add_memory_record(rank, table)
            else:
                add_operator_memory(rank, table)
        except DestroyedTimes as error:
            note_destroyed(files[stem], error, rank.notes)


# -- hardware ----------------------------------------------------------------------------------------


def device_info(document: Any) -> dict[str, Any]:
    """Cores and clocks of msprof's info.json.N. Host name, addresses and process names are left out."""
    entries = document.get("DeviceInfo") if isinstance(document, dict) else None
    if not isinstance(entries, list) or not entries or not isinstance(entries[0], dict):
        return {}
    entry = entries[0]
    out: dict[str, Any] = {}
    for theirs, ours in (("ai_core_num", "aic_cores"), ("aiv_num", "aiv_cores"), ("ai_cpu_core_num", "ai_cpu_cores"),
                         ("aic_frequency", "aic_mhz"), ("aiv_frequency", "aiv_mhz")):  # fmt: skip
        value = number(entry.get(theirs))
        if value > 0:
            out[ours] = int(value)
    if "aic_cores" in out:
        out["cores"] = out["aic_cores"]
    cpu = document.get("CPU")
    if (
        isinstance(cpu, list)
        and cpu
        and isinstance(cpu[0], dict)
        and (n := int(number(cpu[0].get("Logical_CPU_Count"))))
    ):
        out["host_logical_cpus"] = n
    return out


def rank_of_info(document: Any) -> int:
    """The rank in an msprof info.json, -1 if it names none."""
    value = document.get("rank_id") if isinstance(document, dict) else None
    return rank_number(value) if isinstance(value, int) else -1
