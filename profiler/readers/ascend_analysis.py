"""The step and communication tables of Ascend analysis databases (analysis.db), as facts.

Reads:  StepTraceTime, CommAnalyzerTime, CommAnalyzerBandwidth, CommAnalyzerMatrix.
Leaves: nothing; such a database has no timeline and is read beside a recording.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from stallscope.profiler.readers.ascend_files import MAX_ROWS, number, step_number
from stallscope.profiler.readers.ascend_sqlite import Database, opened

_MS, _MB = 1e6, 1e6


def analysis_facts(path: Path) -> dict[str, Any]:
    """Step times and communication of an analysis database, in the form of the files' facts.

    StepTraceTime holds microseconds, whatever its document says; the Comm tables milliseconds and 10^6 bytes.
    """
    out: dict[str, Any] = {}
    with opened(path) as db:
        steps = db.rows(
            "StepTraceTime", "deviceId", "step", "computing", "communication_not_overlapped", "overlapped",
            "communication", "free", "stage", "bubble", "preparing",
        )  # fmt: skip
        if steps:
            keys = ("computing_ns", "communication_not_overlapped_ns", "overlapped_ns", "communication_ns", "free_ns",
                    "stage_ns", "bubble_ns", "preparing_ns")  # fmt: skip
            out["step_trace_time"] = [
                {"device": row[0] if isinstance(row[0], int) else -1, "step": step_number(row[1])}
                | {k: round(number(v) * 1e3) for k, v in zip(keys, row[2:], strict=True)}
                for row in steps[:MAX_ROWS]
            ]
        links = _links(db)
        times = db.rows(
            "CommAnalyzerTime", "step", "type", "hccl_op_name", "group_name", "start_timestamp", "elapse_time",
            "transit_time", "wait_time", "synchronization_time", "idle_time",
        )  # fmt: skip
        if times:
            rows: list[dict[str, Any]] = [
                {
                    "step": step_number(r[0]),
                    "kind": str(r[1])[:20],
                    "name": str(r[2])[:200],
                    "group": str(r[3])[:60],
                    "start_us": number(r[4]),
                }
                | {
                    f"{k}_ns": round(number(v) * _MS)
                    for k, v in zip(
                        ("elapse", "transit", "wait", "synchronization", "idle"), r[5:], strict=True
                    )
                }
                | {"links": links.get((str(r[0]), str(r[2]), str(r[3])), [])}
                for r in times
            ]
            out["communication"] = sorted(rows, key=lambda r: -r["elapse_ns"])[:MAX_ROWS]
        matrix = db.rows(
            "CommAnalyzerMatrix", "step", "hccl_op_name", "group_name", "src_rank", "dst_rank", "transport_type",
            "transit_size", "transit_time", "bandwidth",
        )  # fmt: skip
        if matrix:
            out["communication_matrix"] = [
                {"step": step_number(r[0]), "name": str(r[1])[:60], "group": str(r[2])[:60], "from": str(r[3])[:10], "to": str(r[4])[:10],
                 "transport": str(r[5])[:20], "bytes": round(number(r[6]) * _MB), "transit_ns": round(number(r[7]) * _MS),
                 "gb_per_s": number(r[8])}
                for r in matrix[: MAX_ROWS]
            ]  # fmt: skip
    return out


def _links(db: Database) -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    rows = db.rows(
        "CommAnalyzerBandwidth", "step", "hccl_op_name", "group_name", "transport_type", "transit_size", "transit_time",
        "bandwidth", "large_packet_ratio", "package_size", "count", "total_duration",
    )  # fmt: skip
    out: dict[tuple[str, str, str], dict[str, dict[str, Any]]] = {}
    for step, op, group, transport, size, time, bandwidth, ratio, packet, count, total in rows:
        if number(size) <= 0:
            continue
        of_op = out.setdefault((str(step), str(op), str(group)), {})
        link = of_op.setdefault(str(transport)[:20], {
            "transport": str(transport)[:20], "bytes": round(number(size) * _MB), "transit_ns": round(number(time) * _MS),
            "gb_per_s": number(bandwidth), "large_packet_ratio": number(ratio), "packets": [],
        })  # fmt: skip
        if number(count) > 0 and len(link["packets"]) < 32:
            link["packets"].append(
                {
                    "bytes": round(number(packet) * _MB),
                    "count": round(number(count)),
                    "ns": round(number(total) * _MS),
                }
            )
    return {key: list(links.values()) for key, links in out.items()}
