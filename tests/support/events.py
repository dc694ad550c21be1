"""Small trace-event inputs for tests: events, files of them, and what is asked about the result."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from stallscope.analyzers import analyze
from stallscope.analyzers.finding import Report
from stallscope.profiler.readers import load
from stallscope.profiler.session import Session

HOST = 4100


def host(cat: str, name: str, ts: Any, dur: Any, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "cat": cat, "name": name, "pid": HOST, "tid": HOST, "ts": ts, "dur": dur, "args": args}


def op(name: str, ts: float, dur: float, **args: Any) -> dict[str, Any]:
    return host("cpu_op", name, ts, dur, **args)


def call(name: str, ts: float, dur: float, correlation: int, cat: str = "cuda_runtime") -> dict[str, Any]:
    return host(cat, name, ts, dur, correlation=correlation)


def kernel(
    name: str, ts: Any, dur: Any, correlation: int = -1, cat: str = "kernel", **args: Any
) -> dict[str, Any]:
    told = {"device": 0, "stream": 7} | ({"correlation": correlation} if correlation >= 0 else {}) | args
    return {"ph": "X", "cat": cat, "name": name, "pid": 0, "tid": 7, "ts": ts, "dur": dur, "args": told}


CHAIN = [op("aten::mm", 1000, 50), call("cudaLaunchKernel", 1010, 5, 1), kernel("gemm_kernel", 1040, 100, 1)]


class Case:
    """A file on disk, read and analysed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "trace.json"

    def write(self, content: Any, name: str = "trace.json") -> Path:
        self.path = self.folder / name
        if isinstance(content, list):
            content = {"traceEvents": content}
        if isinstance(content, dict):
            content = json.dumps(content)
        self.path.write_bytes(content.encode() if isinstance(content, str) else content)
        return self.path

    def read(self, content: Any, name: str = "trace.json") -> tuple[Session, Report]:
        session = load(self.write(content, name))
        return session, analyze(session)


def durations_us(session: Session) -> dict[str, float]:
    t = session.timeline
    return {t.name(i): float(t.spans.dur_ns[i]) / 1000 for i in range(len(t))}


def count(session: Session, code: str) -> int:
    note = session.notes.get(code)
    return note.count if note else 0


def delays_us(session: Session) -> list[float]:
    """Launch-to-start delays of linked device events, by their start."""
    spans = session.timeline.spans
    work = session.timeline.device_work()
    work = work[np.argsort(spans.start_ns[work])]
    linked = work[spans.launch_row[work] >= 0]
    return [float(x) / 1000 for x in spans.start_ns[linked] - spans.start_ns[spans.launch_row[linked]]]


def idle_us(report: Report) -> dict[str, float]:
    return {k: v / 1000 for d in report.devices for k, v in d.idle_classes.items() if v}
