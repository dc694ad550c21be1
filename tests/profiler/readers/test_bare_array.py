"""An array of events with text times is not yet Ascend's: what it holds decides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stallscope.analyzers.run import Run
from stallscope.profiler.readers import load

EVENTS: list[dict[str, Any]] = [
    {},
    {"name": "process_name", "ph": "M", "pid": "2", "args": {"name": "GPU2"}},
    {"name": "thread_name", "ph": "M", "pid": "77", "tid": "77", "args": {"name": "Hip 77"}},
    {"pid": "2", "tid": "0", "name": "CopyHostToDevice", "ts": "8306017670485", "dur": "120", "ph": "X",
     "args": {"desc": "CopyHostToDevice"}},
    {"pid": "2", "tid": "0", "name": "gemm", "ts": "8306017671000", "dur": "50", "ph": "X",
     "args": {"desc": "KernelExecution"}},
    {"pid": "77", "tid": "77", "name": "hipMemcpyWithStream", "ts": "8306017670400", "dur": "250", "ph": "X",
     "args": {"desc": ""}},
]  # fmt: skip


def test_a_rocm_trace_with_text_times_is_a_trace_of_events(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    path.write_text(json.dumps(EVENTS))
    session = load(path)
    assert session.facts["format"] == "chrome-trace"
    spans = session.timeline.spans
    assert session.timeline.origin_ns + int(spans.start_ns.min()) == 8_306_017_670_400_000
    run = Run(session)
    assert run.whole.busy_ns == 170_000
