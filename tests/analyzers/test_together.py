"""What findings are worth together: never more than all of their fixes replayed at once, nor than there is time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stallscope.analyzers import analyze
from stallscope.analyzers.finding import Finding
from stallscope.analyzers.replay import Change
from stallscope.analyzers.run import Run
from stallscope.analyzers.together import together
from stallscope.analyzers.whatif import combined
from stallscope.profiler import intervals
from stallscope.profiler.readers import load
from support.lanes import timeline

PYTHON_BETWEEN = """
    host    rt:cudaLaunchKernel@0..5#1 python:sample@5..405 rt:cudaLaunchKernel@405..410#2
    stream7 kernel:a@10..110#1 kernel:b@415..515#2
"""


def cut(run: Run, start_us: int, end_us: int, factor: float = 0.0) -> Change:
    times = (np.array([start_us * 1000], np.int64), np.array([end_us * 1000], np.int64))
    return Change(host_cuts=[(run.replay.main_track, times, factor)])


def finding(ns: int, fix: Change | None, code: str = "HB101") -> Finding:
    facts = (
        {"priced_by": "replay"} if fix else {"priced_by": "kernel time" if code == "MB302" else "idle time"}
    )
    return Finding(code, "n", "t", ns, ns, detail="d.", facts=facts, fix=fix)


def test_gains_in_the_same_time_are_not_added() -> None:
    run = Run(timeline(PYTHON_BETWEEN))
    one, two = cut(run, 5, 305), cut(run, 205, 405)
    alone = [run.replay.gain_ns(change) for change in (one, two)]
    assert alone == [300_000, 200_000]

    told, whole = together(run, [finding(alone[0], one), finding(alone[1], two)])

    # the device is busy until 110, so no more than the 305 us after that can be won
    assert run.replay.gain_ns(combined([one, two])) == 304_000
    assert [f.facts["adds_ns"] for f in told] == [300_000, 4_000]
    assert (whole.alone_ns, whole.together_ns) == (500_000, 304_000)
    assert told[0].detail == "d."
    assert told[1].detail == "d. Of what it is worth, 196 us are counted in findings above."


def test_a_first_finding_speaks_of_none_above_it() -> None:
    run = Run(timeline(PYTHON_BETWEEN))
    [told], _ = together(run, [finding(900_000, cut(run, 5, 305))])
    assert told.facts["adds_ns"] < 900_000
    assert told.detail == "d."


def test_gains_that_do_not_meet_are_added() -> None:
    run = Run(timeline(PYTHON_BETWEEN))
    one, two = cut(run, 5, 105), cut(run, 205, 305)
    told, whole = together(run, [finding(100_000, one), finding(100_000, two)])
    assert [f.facts["adds_ns"] for f in told] == [100_000, 100_000]
    assert whole.together_ns == whole.alone_ns == 200_000


def test_what_no_replay_priced_is_bounded_by_the_time_it_lies_in() -> None:
    run = Run(timeline(PYTHON_BETWEEN))
    told, _ = together(run, [finding(250_000, None), finding(150_000, None), finding(190_000, None, "MB302"),
                             finding(90_000, None, "MB302")])  # fmt: skip
    # idle 305 us, kernels 200 us
    assert [f.facts["adds_ns"] for f in told] == [250_000, 55_000, 190_000, 10_000]


def test_one_time_of_a_thread_is_cut_once_when_changes_are_combined() -> None:
    run = Run(timeline(PYTHON_BETWEEN))
    both = combined([cut(run, 100, 300, 0.5), cut(run, 200, 400, 0.0), cut(run, 150, 250, 0.5)])
    assert [(f, intervals.length(times)) for _, times, f in both.host_cuts] == [
        (0.0, 200_000),
        (0.5, 100_000),
    ]
    faster = combined([Change(op_factor={1: 0.5, 2: 0.9}), Change(op_factor={1: 0.7})])
    assert faster.op_factor == {1: 0.5, 2: 0.9}


@pytest.mark.parametrize(
    "name", ["nograph-manual-5080", "bert-h100", "rpd2tracing-json", "amd-mi250-toy", "simple-add-a100"]
)
def test_on_real_traces_no_finding_is_worth_more_than_it_took_nor_all_more_than_their_fixes(
    shared: Path, name: str
) -> None:
    (path,) = [p for p in sorted((shared / "traces" / name).iterdir()) if p.is_file()][:1]
    report = analyze(load(path))
    for one in report.findings:
        assert 0 <= one.facts["adds_ns"] <= one.recoverable_ns <= one.lost_ns
    replayed = [f for f in report.findings if f.fix and f.facts.get("priced_by") == "replay"]
    if replayed:
        at_once = report.run.replay.gain_ns(combined([f.fix for f in replayed]))
        assert sum(f.facts["adds_ns"] for f in replayed) <= at_once
    assert sum(f.facts["adds_ns"] for f in report.findings) <= max(
        report.headline.span_ns, report.headline.host_span_ns
    )
