"""What the host does while an NPU idles, as torch_npu writes it: collections, allocations, waits, compilation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stallscope.analyzers import analyze
from stallscope.analyzers.finding import Finding, Report
from stallscope.analyzers.run import Run
from stallscope.profiler.readers import load
from stallscope.profiler.session import Session
from support.lanes import timeline

AT = 1_715_594_400_000_000
PYTHON, GC, CANN, NPU = 4242, 4242 << 10 | 1 << 5, 4242 << 10 | 7 << 5, 4242 << 10 | 13 << 5
MAIN, WORKER = 1, 2
GAP = (110, 1000)
"""The device idles from 110 to 1000 us of every 2,000."""


def span(
    name: str, pid: int, tid: int, start: float, dur: float, cat: str = "", **args: Any
) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": f"{AT + start:.3f}",
        "dur": dur,
        "cat": cat,
        "args": args,
    }


def report(
    tmp_path: Path,
    *extra: tuple[str, int, int, float, float],
    times: int = 12,
    env: dict[str, str] | None = None,
) -> Report:
    """A run of some rounds: kernel, then the extra spans (name, process, thread, start, length in us), then a kernel."""
    names = {PYTHON: "Python", GC: "Python GC", CANN: "CANN", NPU: "Ascend Hardware"}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        for pid, name in names.items()
    ]
    for i in range(times):
        base = 2000.0 * i
        events.append(span("model.py(3): forward", PYTHON, MAIN, base, 1990, "python_function"))
        for k, (asked, emptied, started, took) in enumerate(((20, 40, 60, 50), (970, 985, 1000, 1055))):
            number = 2 * i + k
            task: dict[str, Any] = {"Task Type": "AI_CORE", "connection_id": number + 1}
            events += [
                span(f"aten::op{k}", PYTHON, MAIN, base + asked - 5, 15, "cpu_op"),
                span(f"Enqueue@k{k}", PYTHON, MAIN, base + asked, 2, "enqueue", correlation_id=number + 7),
                span(
                    f"Dequeue@k{k}", PYTHON, WORKER, base + emptied, 12, "dequeue", correlation_id=number + 7
                ),
                span(
                    "Node@launch", CANN, WORKER, base + emptied + 2, 4, level="node", connection_id=number + 1
                ),
                span(f"k{k}", NPU, 2, base + started, took, "", **task),
            ]
        for name, process, thread, start, dur in extra:
            events.append(
                span(name, process, thread, base + start, dur, "GC" if process == GC else "", level="acl")
            )
    folder = tmp_path / "rank0_ascend_pt"
    (folder / "ASCEND_PROFILER_OUTPUT").mkdir(parents=True)
    (folder / "ASCEND_PROFILER_OUTPUT" / "trace_view.json").write_text(json.dumps(events))
    (folder / "profiler_info_0.json").write_text(json.dumps({"config": {}, "rank_id": 0}))
    (folder / "profiler_metadata.json").write_text(json.dumps({"ENV_VARIABLES": env or {}}))
    return analyze(load(folder))


def first(found: Report) -> Finding:
    return found.findings[0]


def test_a_collection_of_torch_npus_own_record(tmp_path: Path) -> None:
    """GC rows stand in a process of their own, without a thread."""
    found = report(tmp_path, ("GC", GC, 0, 150, 800))

    assert first(found).code == "HB103"
    assert first(found).lost_ns == 12 * 800_000


@pytest.mark.parametrize(
    "call", ["AscendCL@aclMallocMemInner", "AscendCL@aclrtFreePhysical", "AscendCL@aclrtFree", "AscendCL@aclrtMapMem"]
)  # fmt: skip
def test_an_allocation_on_the_thread_that_runs_operators(tmp_path: Path, call: str) -> None:
    found = report(tmp_path, (call, CANN, MAIN, 150, 790))

    assert first(found).code == "SY204"
    assert first(found).lost_ns == 12 * 790_000
    assert found.devices[0].idle_classes["allocator"] == 12 * 790_000


def test_the_runtime_level_below_a_call_is_no_other_cause(tmp_path: Path) -> None:
    """Level 2 records Runtime@ rows inside of the AscendCL@ ones."""
    plain = report(tmp_path / "1", ("AscendCL@aclrtSynchronizeStreamWithTimeout", CANN, MAIN, 70, 50))
    nested = report(
        tmp_path / "2",
        ("AscendCL@aclrtSynchronizeStreamWithTimeout", CANN, MAIN, 70, 50),
        ("Runtime@StreamSynchronize", CANN, MAIN, 71, 48),
    )

    assert plain.devices[0].idle_classes == nested.devices[0].idle_classes
    assert [f.code for f in plain.findings] == [f.code for f in nested.findings]


def test_a_wait_for_the_stream_outside_of_operators(tmp_path: Path) -> None:
    found = report(tmp_path, ("AscendCL@aclrtSynchronizeStreamWithTimeout", CANN, MAIN, 40, 900))

    assert first(found).code == "SY201"
    assert "aclrtSynchronizeStreamWithTimeout" in first(found).title


def test_an_operator_that_was_compiled_before_is_not_compiling(tmp_path: Path) -> None:
    """aclopCompileAndExecute looks its operator up, and compiles only what it does not find."""
    cached = report(
        tmp_path / "1",
        ("AscendCL@aclopCompileAndExecute", CANN, MAIN, 150, 790),
        ("AscendCL@opCompile", CANN, MAIN, 160, 20),
    )
    compiled = report(
        tmp_path / "2",
        ("AscendCL@aclopCompileAndExecute", CANN, MAIN, 150, 790),
        ("AscendCL@opCompile", CANN, MAIN, 160, 770),
    )
    untold = report(tmp_path / "3", ("AscendCL@aclopCompileAndExecute", CANN, MAIN, 150, 790))

    assert [r.devices[0].idle_classes["compile"] for r in (cached, compiled, untold)] == [
        12 * 20_000, 12 * 790_000, 12 * 790_000,
    ]  # fmt: skip
    assert [first(r).code for r in (cached, compiled, untold)] == ["HB101", "HB106", "HB106"]


@pytest.mark.parametrize(
    ("variable", "value", "call", "thread", "words"),
    [
        ("PYTORCH_NPU_ALLOC_CONF", "", "AscendCL@aclMallocMemInner", MAIN, "while memory is taken"),
        ("PYTORCH_NPU_ALLOC_CONF", "max_split_size_mb:64", "AscendCL@aclrtFreePhysical", MAIN, "while memory is taken"),
        ("ASCEND_GLOBAL_LOG_LEVEL", "1", "AscendCL@aclnnMul", MAIN, "while the host dispatches"),
        ("ACLNN_CACHE_LIMIT", "", "AscendCL@aclnnMulGetWorkspaceSize", MAIN, "in tiling and workspace look-ups"),
        ("", "", "AscendCL@aclopCompileAndExecute", MAIN, "in aclopCompileAndExecute"),
    ],
)  # fmt: skip
def test_a_setting_is_named_with_the_idle_time_it_answers_for(
    tmp_path: Path, variable: str, value: str, call: str, thread: int, words: str
) -> None:
    found = report(
        tmp_path, (call, CANN, thread, 150, 790), env={variable: value} if variable else {"HCCL_ALGO": ""}
    )

    (remark,) = [f for f in found.findings if f.code == "EV901"]
    assert (remark.severity, remark.recoverable_ns, remark.facts["variable"]) == ("info", 0, variable)
    assert remark.lost_ns >= 12 * 790_000 and words in remark.title
    assert first(found).code == remark.facts["counted_by"][:5] or variable == ""


@pytest.mark.parametrize(
    ("variable", "value", "call"),
    [
        ("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True", "AscendCL@aclMallocMemInner"),
        ("ASCEND_GLOBAL_LOG_LEVEL", "3", "AscendCL@aclnnMul"),
        ("ACLNN_CACHE_LIMIT", "", "AscendCL@aclnnMul"),
    ],
)
def test_a_setting_that_is_right_or_costs_nothing_is_not_named(
    tmp_path: Path, variable: str, value: str, call: str
) -> None:
    found = report(tmp_path, (call, CANN, MAIN, 150, 790), env={variable: value})

    assert [r.status for r in found.rules if r.code == "EV901"] == ["clean"]


@pytest.mark.parametrize(
    ("settings", "text"),
    [({"with_stack": True, "profile_memory": True}, "recorded with with_stack, profile_memory:"),
     ({"with_modules": True}, "recorded with with_modules:"), ({"profile_memory": True}, None), ({}, None)],
)  # fmt: skip
def test_settings_that_slow_the_host_down_are_told(settings: dict[str, bool], text: str | None) -> None:
    session = timeline(
        """
        host     op:"aten::mm"@0..10 rt:"Node@launch"@2..6#1
        stream7  kernel:MatMulV3@8..50#1
        """,
        ascend={"ranks": [{"rank": 0, **settings}]},
    )

    told = [n.text for n in analyze(session).notes if n.code == "trust-settings"]

    assert len(told) == (text is not None) and all(t.startswith(text or "") for t in told)


def blocking(operators: int, launches: int, operator: str = "aten::add", together: bool = False) -> Session:
    """Operators of some launches each; every one waits for the stream at its end, or (`together`) one around all does."""
    lines, number = [], 0
    whole = operators * 100
    around = f'op:"{operator}"@0..{whole} ' if together else ""
    wait = f'sync:"AscendCL@aclrtSynchronizeStreamWithTimeout"@{whole - 5}..{whole - 1}' if together else ""
    for i in range(operators):
        base = 100 * i
        inner = "aten::mul" if together else operator
        line = f'op:"{inner}"@{base}..{base + 80}'
        for k in range(launches):
            number += 1
            start = base + 5 + 10 * k
            line += f' rt:"Node@launch"@{start}..{start + 4}#{number}'
            lines.append(f"stream7  kernel:Mul@{base + 8 + 10 * k}..{base + 14 + 10 * k}#{number}")
        if not together:
            line += f' sync:"AscendCL@aclrtSynchronizeStreamWithTimeout"@{base + 50}..{base + 75}'
        lines.append("host " + (around if i == 0 else "") + line)
    return timeline("\n".join([*lines, f"host {wait}" if wait else "host"]), ascend={"ranks": [{"rank": -1}]})


@pytest.mark.parametrize("launches", [1, 3])
def test_every_operator_waits_whatever_it_launches(launches: int) -> None:
    run = Run(blocking(30, launches))

    assert run.blocking.active and run.blocking.share == 1.0
    assert len(run.blocking.syncs) == 30 and run.blocking.switch == ""


def test_a_step_that_waits_once_for_all_it_launched_is_not_blocking() -> None:
    run = Run(blocking(30, 1, operator="Optimizer.step#SGD.step", together=True))

    assert not run.blocking.active and len(run.blocking.syncs) == 0
