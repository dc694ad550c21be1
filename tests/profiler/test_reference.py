"""Device numbers of real traces equal an independent reading of the same files.

The independent reading computes with float microseconds. That is exact where a file's times have few
digits; a file with absolute times of 16 digits loses a quarter of a microsecond per event there, so
that one is compared after rounding our exact times the same way.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallscope.analyzers import analyze
from stallscope.exporters import json_report
from stallscope.profiler import intervals
from stallscope.profiler.device import DeviceView, whole_view
from stallscope.profiler.readers import load
from stallscope.profiler.session import Session

TRACES = [
    "amd-mi250-toy", "bert-h100", "ddp-nccl-a100", "flux-sage-mi300x", "gpu-only-mi210", "ns-float-v100",
    "qwen15-hf-h100", "sglang-decode-mi300x", "train-a100-2022", "two-gpu-v100-memory", "vllm-piecewise-mi300x",
]  # fmt: skip
QUANTISED_REFERENCE = "ns-float-v100"
TOLERANCE_NS = 1000


def reference(shared: Path, name: str) -> dict[str, Any]:
    metrics: dict[str, Any] = json.loads((shared / "reference" / f"{name}.json").read_text())["raw"][
        "metrics"
    ]
    return metrics


def trace(shared: Path, name: str) -> Session:
    return load(next(iter(sorted((shared / "traces" / name).iterdir()))))


def close(ours_ns: float, theirs_us: float) -> bool:
    return abs(ours_ns - theirs_us * 1000) <= TOLERANCE_NS


@pytest.mark.shared
@pytest.mark.parametrize("name", [n for n in TRACES if n != QUANTISED_REFERENCE])
def test_report_equals_the_reference(shared: Path, name: str) -> None:
    metrics = reference(shared, name)
    session = trace(shared, name)
    report = json.loads(json_report.render(session, analyze(session)))
    head = report["headline"]
    view = whole_view(session.timeline)
    # the reference counts memsets as computation: compare the union of both
    compute = intervals.union(
        np.concatenate([view.compute[0], view.memset[0]]), np.concatenate([view.compute[1], view.memset[1]])
    )

    assert close(head["span_ns"], metrics["total_us"])
    assert close(head["busy_ns"], metrics["busy_us"])
    assert close(head["idle_ns"], metrics["idle_us"])
    assert close(intervals.length(compute), metrics["computation_us"])
    assert close(head["exposed_collective_ns"], metrics["exposed_comm_us"])
    assert close(head["exposed_memcpy_ns"], metrics["exposed_memcpy_us"])
    assert head["device_events"] == metrics["gpu_events"]
    assert head["unlinked_device_events"] == metrics["gpu_events_without_launch_record"]


@pytest.mark.shared
@pytest.mark.parametrize("name", [n for n in TRACES if n != QUANTISED_REFERENCE])
def test_gap_classes_equal_the_reference(shared: Path, name: str) -> None:
    theirs = reference(shared, name)["device_gaps"]
    totals = whole_view(trace(shared, name).timeline).gaps.totals()

    assert close(totals["host"], theirs["host_wait"]["us"])
    assert close(totals["queued_short"], theirs["queued_lt30"]["us"])
    assert close(totals["queued_long"], theirs["queued_ge30"]["us"])
    assert close(totals["launched_before_recording"] + totals["unknown"], theirs["unknown"]["us"])


@pytest.mark.shared
@pytest.mark.parametrize("name", TRACES)
def test_top_kernels_equal_the_reference(shared: Path, name: str) -> None:
    """Their top ten hold copies and memsets too; ours hold kernels and collectives only."""
    session = trace(shared, name)
    ours = {k["name"]: k for k in json.loads(json_report.render(session, analyze(session)))["kernels"]}
    theirs = [
        k for k in reference(shared, name)["top10_kernels"] if not k["name"].startswith(("Memcpy", "Memset"))
    ]

    assert theirs
    for kernel in theirs:
        assert ours[kernel["name"]]["count"] == kernel["count"]
        assert close(ours[kernel["name"]]["total_ns"], kernel["total_us"])


@pytest.mark.shared
def test_the_one_difference_is_the_reference_losing_digits(shared: Path) -> None:
    metrics = reference(shared, QUANTISED_REFERENCE)
    session = trace(shared, QUANTISED_REFERENCE)
    view = whole_view(session.timeline)
    base = session.timeline.origin_ns

    def quantised(view: DeviceView) -> float:
        """Busy time as float microseconds would have it: start and end each rounded to a double."""
        start = (view.start_ns + base) / 1000.0
        end = start + (view.end_ns - view.start_ns) / 1000.0
        reach = np.maximum.accumulate(end)
        first = np.append(True, start[1:] > reach[:-1])
        at = np.flatnonzero(first)
        return float((reach[np.append(at[1:], len(start)) - 1] - start[at]).sum())

    assert len(view.rows) == metrics["gpu_events"]
    assert not close(view.busy_ns, metrics["busy_us"])
    assert abs(quantised(view) - metrics["busy_us"]) <= 1
