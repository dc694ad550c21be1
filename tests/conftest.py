"""Fixtures every test may ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stallscope.analyzers import engine
from stallscope.analyzers.finding import (
    DeviceSummary,
    Evidence,
    Finding,
    Headline,
    KernelTotal,
    Report,
    RuleOutcome,
    Step,
    Verdict,
    Where,
)
from stallscope.analyzers.registry import Rule
from stallscope.profiler.notes import Note
from stallscope.profiler.session import Session
from support.lanes import timeline

ROOT = Path(__file__).resolve().parent.parent
SHARED_VARIABLE = "STALLSCOPE_SHARED"


@pytest.fixture(scope="session")
def shared() -> Path:
    """The collection of public traces, named by STALLSCOPE_SHARED or lying beside the checkout."""
    folder = Path(os.environ.get(SHARED_VARIABLE) or ROOT.parent / "shared")
    if not (folder / "traces" / "INDEX.tsv").is_file():
        pytest.skip(f"the collection of public traces is not here ({SHARED_VARIABLE}, else ../shared)")
    return folder


@pytest.fixture(scope="session", autouse=True)
def faults_of_rules_are_raised() -> Iterator[None]:
    """A user gets the other rules' answers where one fails; a test of ours must not pass over it."""

    def raise_again(rule: Rule, error: Exception) -> str:
        raise error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "on_fault", raise_again)
        yield


DRAWING = """
    host     mark:decode@0..100 python:sampler.py(214):_sample@2..58{Python id=7} op:aten::mm@60..70
    host     rt:cudaLaunchKernel@62..66#1 op:aten::add@70..80 rt:cudaLaunchKernel@72..76#2
    host     rt:cudaMemcpyAsync@80..84#3 sync:cudaStreamSynchronize@85..99#4
    host     mark:decode@100..150 op:aten::mm@102..112 rt:cudaLaunchKernel@104..106#5
    host2    python:loader.py(3):_read@10..140
    stream7  kernel:gemm@64..74#1{stream=7;grid=[1,1,1]} kernel:add@74..78#2{stream=7} memcpy:Memcpy_DtoH@86..90#3
    stream7  kernel:gemm@110..120#5{stream=7}
    stream9  kernel:warmup@0..4#77 coll:"ncclDevKernel_AllReduce_Sum"@112..130
    host     counter:memory@0=1024 counter:memory@75=2048.5 point:here@50
"""


@pytest.fixture
def small_session() -> Session:
    """Two decode steps on two streams of one device; drawn above, each test may check it by hand."""
    session = timeline(
        DRAWING,
        source="small.json",
        producer="torch.profiler (Kineto)",
        devices={"0": {"name": "Drawn GPU", "memory_bytes": 85_899_345_920}},
    )
    session.notes.add("python-frame-clamped", "info", "Python frames ended after their caller", 2, "frame 3")
    session.notes.add("device-record-lost", "data_loss", "device records were lost", 1)
    return session


@pytest.fixture
def small_report(small_session: Session) -> Report:
    """What an analysis could say about `small_session`: hand-made, so that exporters have all there is."""
    python = Where(python="sampler.py(214): sample", operator="aten::mm", kernel="gemm")
    return Report(
        verdict=Verdict(
            "decode: 75.0 us a step; 58.0 us is Python in sampler.py:214 while the device idles; "
            "worth up to 56.0 us, confidence high",
            ("device busy 34.6 % of 130 us", "floor 36.0 us a step"),
        ),
        headline=Headline(
            span_ns=130_000,
            busy_ns=42_000,
            idle_ns=88_000,
            compute_ns=28_000,
            collective_ns=18_000,
            memcpy_ns=4_000,
            memset_ns=0,
            exposed_collective_ns=10_000,
            exposed_memcpy_ns=4_000,
            device_events=6,
            unlinked_device_events=2,
            launches=4,
            host_span_ns=150_000,
        ),
        devices=[
            DeviceSummary(
                id=0,
                name="Drawn GPU",
                span_ns=130_000,
                busy_ns=42_000,
                idle_ns=88_000,
                compute_ns=28_000,
                collective_ns=18_000,
                memcpy_ns=4_000,
                memset_ns=0,
                exposed_collective_ns=10_000,
                exposed_memcpy_ns=4_000,
                idle_classes={
                    "python": 54_000,
                    "sync": 20_000,
                    "launch_path": 8_000,
                    "dispatch": 4_000,
                    "unrecorded": 2_000,
                    "dependency": 0,
                },
                gap_classes={"host": 88_000, "queued_short": 0, "unknown": 0},
                gap_counts={"host": 3, "queued_short": 0, "unknown": 0},
                facts={"start_ns": 0, "events": 6},
            )
        ],
        kernels=[
            KernelTotal("gemm", 2, 20_000, 10_000, 10_000),
            KernelTotal("ncclDevKernel_AllReduce_Sum", 1, 18_000, 18_000, 18_000, "collective"),
            KernelTotal("add", 1, 4_000, 4_000, 4_000),
            KernelTotal("warmup", 1, 4_000, 4_000, 4_000),
        ],
        steps=[
            Step("decode", "decode", 0, 100_000, 0, "high", 0),
            Step("decode", "decode", 100_000, 50_000, 1, "high", 0, {"batch": 32}),
        ],
        findings=[
            Finding(
                code="HB101",
                name="host-bound-gaps",
                title="The device waits for Python in sampler.py:214",
                lost_ns=60_000,
                recoverable_ns=56_000,
                confidence="high",
                severity="high",
                phase="decode",
                where=python,
                detail="Between two launches the launching thread was in Python.",
                advice="Move the sampling to the device, or capture the step as a graph.",
                evidence=(Evidence(2, 4_000, 64_000, "gap before gemm"), Evidence(0, 2_000, 58_000)),
                facts={"gaps": 1},
            ),
            Finding(
                code="SY201",
                name="sync-stalls",
                title="cudaStreamSynchronize once a step",
                lost_ns=9_000,
                recoverable_ns=4_000,
                severity="low",
                evidence=(Evidence(0, 85_000, 99_000),),
            ),
        ],
        rules=[
            RuleOutcome("HB101", "host-bound-gaps", "found"),
            RuleOutcome("SY201", "sync-stalls", "found"),
            RuleOutcome("LN401", "launch-bound", "clean"),
            RuleOutcome(
                "MB301", "memory-bound", "not_analysable", "operator shapes were not recorded (record_shapes)"
            ),
        ],
        notes=[
            Note("python-frame-clamped", "info", "Python frames ended after their caller", 2, "frame 3"),
            Note("device-record-lost", "data_loss", "device records were lost"),
        ],
        facts=dict(small_session.facts),
        tables={"operators": [{"name": "aten::mm", "count": 2, "total_ns": 20_000}]},
    )
