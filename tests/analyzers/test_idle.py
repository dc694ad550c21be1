"""Every idle nanosecond has one cause, and the causes sum to the idle time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallscope.analyzers.hostcause import _middle_inside
from stallscope.analyzers.idle import IDLE_CLASSES, Cause
from stallscope.analyzers.run import Run
from stallscope.profiler import intervals
from stallscope.profiler.errors import StallscopeError
from stallscope.profiler.readers import load
from support.lanes import timeline


def classes(drawing: str, device: int = 0) -> dict[str, float]:
    """Idle microseconds by class of a drawing's device, without the classes that have none."""
    account = Run(timeline(drawing)).idle[device]
    assert_conserved(account.run)
    return {name: ns / 1000 for name, ns in account.totals().items() if ns}


def assert_conserved(run: Run) -> None:
    for number, account in run.idle.items():
        assert sum(account.totals().values()) == run.devices[number].idle_ns
        pieces, gaps = account.pieces, account.view.gaps
        per_gap = np.zeros(len(gaps), np.int64)
        np.add.at(per_gap, pieces.gap, pieces.dur_ns)
        assert per_gap.tolist() == gaps.dur_ns.tolist()
        assert (pieces.dur_ns > 0).all()
        assert (pieces.start_ns >= gaps.start_ns[pieces.gap]).all()
        assert (pieces.end_ns <= gaps.end_ns[pieces.gap]).all()


def test_every_class_is_explained() -> None:
    assert set(IDLE_CLASSES) == {cause.key for cause in Cause}


def test_what_the_launching_thread_did_splits_a_gap() -> None:
    assert classes(
        """
        host     python:step.py(3):_run@0..400 rt:cudaLaunchKernel@2..6#1 op:aten::mm@60..100 rt:cudaGetDevice@70..90
        host     rt:cudaLaunchKernel@110..114#2
        stream7  kernel:a@8..20#1 kernel:b@118..130#2
        """
    ) == {"python": 50.0, "dispatch": 20.0, "launch_path": 28.0}
    # 20..60 and 100..110 Python; 60..70 and 90..100 the operator; 70..90 a call, 110..114 the launch, 114..118 latency


def test_moments_in_python_code_of_one_place_are_one_piece() -> None:
    run = Run(
        timeline(
            """
            host     python:step.py(3):_run@0..400 python:<built-in_len>@30..33 python:torch/nn.py(8):_call@40..52
            host     python:other.py(5):_pick@60..90 op:aten::mm@70..72
            host     rt:cudaLaunchKernel@2..6#1 rt:cudaLaunchKernel@110..114#2
            stream7  kernel:a@8..20#1 kernel:b@118..130#2
            """
        )
    )
    pieces, name = run.idle[0].pieces, run.timeline.name
    found = [
        (begin // 1000, end // 1000, name(row), longest // 1000)
        for begin, end, row, longest in zip(
            *(c.tolist() for c in (pieces.start_ns, pieces.end_ns, pieces.row, pieces.longest_ns)),
            strict=True,
        )
    ]
    # 20..60 in step.py, whoever was called from there: its longest moment is the call of 40..52; then the launch and
    # the device's latency behind it, 4 us each
    assert found == [
        (20, 60, "torch/nn.py(8): call", 12),
        (60, 70, "other.py(5): pick", 10),
        (70, 72, "aten::mm", 2),
        (72, 90, "other.py(5): pick", 18),
        (90, 110, "step.py(3): run", 20),
        (110, 118, "cudaLaunchKernel", 4),
    ]


def test_code_that_left_no_record_is_not_called_python() -> None:
    assert classes(
        """
        host     rt:cudaLaunchKernel@2..6#1 mark:host_work@30..90 rt:cudaLaunchKernel@110..114#2
        stream7  kernel:a@8..20#1 kernel:b@118..130#2
        """
    ) == {"unrecorded": 90.0, "launch_path": 8.0}


def test_queued_work_leaves_no_gap_to_the_host() -> None:
    rest = " ".join(f"kernel:w@{20 + 10 * i}..{30 + 10 * i}#{i + 1}" for i in range(9))
    calls = " ".join(f"rt:cudaLaunchKernel@{i}..{i}.5#{i + 1}" for i in range(9))
    found = classes(
        f"""
        host     {calls} rt:cudaLaunchKernel@9..9.5#10 rt:cudaLaunchKernel@9.6..9.9#11 python:step.py(3):_run@12..400
        stream7  {rest} kernel:b@112..120#10 kernel:c@190..210#11
        """
    )
    # one stream and one device: what was launched waits for nothing but the driver
    assert found == {"queue_latency": 2.0, "launch_path": 70.0}


def test_queued_work_waits_for_other_streams_where_there_are_any() -> None:
    rest = " ".join(f"kernel:w@{8 + 10 * i}..{18 + 10 * i}#{i + 1}" for i in range(9))
    calls = " ".join(f"rt:cudaLaunchKernel@{i}..{i}.5#{i + 1}" for i in range(9))
    found = classes(
        f"""
        host     {calls} rt:cudaLaunchKernel@9..9.5#10 rt:cudaLaunchKernel@9.6..9.9#11
        stream7  {rest} kernel:c@200..220#10
        stream9  kernel:d@221..230#11
        """
    )
    assert found == {"dependency": 102.0, "queue_latency": 1.0}


def test_a_long_wait_behind_the_first_events_is_for_work_from_before_the_recording() -> None:
    found = classes(
        """
        host     rt:cudaLaunchKernel@2..6#1 rt:cudaLaunchKernel@7..9#2
        stream7  kernel:a@8..20#1
        stream9  kernel:b@5000..5010#2
        """
    )
    assert found == {"before_recording": 4980.0}


def test_a_wait_answers_for_idle_time_up_to_its_own_length() -> None:
    found = classes(
        """
        host     python:step.py(3):_run@0..900 rt:cudaLaunchKernel@2..6#1 sync:cudaStreamSynchronize@10..50 rt:cudaLaunchKernel@140..144#2
        stream7  kernel:a@8..49#1 kernel:b@146..160#2
        """
    )
    # the wait took 40 us, so without it the gap of 97 us would have been 57: 1 us inside of the wait, 39 after it
    assert found == {"sync": 41.0, "python": 50.0, "launch_path": 6.0}


def test_gaps_inside_a_replay_are_the_devices_own() -> None:
    found = classes(
        """
        host     rt:cudaLaunchKernel@0..2#1 rt:cudaGraphLaunch@30..37#2
        stream7  kernel:a@4..10#1 kernel:b@50..60#2 kernel:c@61..70#2 kernel:d@72..80#2
        """
    )
    assert found == {"unrecorded": 20.0, "graph_launch": 20.0, "queue_latency": 3.0}


def test_the_profilers_own_time_is_nobody_elses() -> None:
    found = classes(
        """
        host     python:step.py(3):_run@0..400 rt:cudaLaunchKernel@2..6#1 rt:cudaLaunchKernel@110..114#2
        label    overhead:"Buffer flush"@30..80
        stream7  kernel:a@8..20#1 kernel:b@116..130#2
        """
    )
    assert found == {"python": 40.0, "profiler": 50.0, "launch_path": 6.0}


def test_a_launch_without_a_record_makes_its_gap_unexplained() -> None:
    found = classes(
        """
        host     rt:cudaLaunchKernel@2..6#1 rt:cudaLaunchKernel@60..64#90 rt:cudaLaunchKernel@110..114#2
        stream7  kernel:a@8..20#1 kernel:b@116..130#2
        """
    )
    assert found == {"unexplained": 96.0}


def test_two_devices_are_accounted_apart() -> None:
    drawing = """
        host          rt:cudaLaunchKernel@2..6#1 rt:cudaLaunchKernel@7..9#2 rt:cudaLaunchKernel@110..114#3
        stream7       kernel:a@8..20#1 kernel:b@116..130#3
        gpu1.stream7  kernel:c@10..300#2
        """
    assert classes(drawing, 0) == {"unrecorded": 90.0, "launch_path": 6.0}
    assert classes(drawing, 1) == {}


_TIMES = st.lists(st.integers(1, 40), min_size=6, max_size=40)


@settings(max_examples=60, deadline=None)
@given(_TIMES, st.integers(0, 2**32 - 1))
def test_causes_sum_to_idle_whatever_happens(steps: list[int], seed: int) -> None:
    """Random calls on two threads, random kernels on two streams; some linked, some not, some overlapping."""
    random = np.random.default_rng(seed)
    lanes: dict[str, list[str]] = {"host": [], "host2": [], "stream7": [], "stream9": []}
    clock = {"host": 0, "host2": 3, "stream7": 1, "stream9": 2}
    kinds = ["rt:cudaLaunchKernel", "sync:cudaStreamSynchronize", "op:aten::item", "python:a.py(1):_f", "rt:cudaMalloc",
             "rt:cudaGraphLaunch", "other:gc", "mark:decode", "rt:cudaMemcpyAsync"]  # fmt: skip
    for number, step in enumerate(steps):
        thread = "host" if random.random() < 0.7 else "host2"
        start = clock[thread]
        end = start + int(random.integers(0, step + 1))
        lanes[thread].append(f"{kinds[int(random.integers(len(kinds)))]}@{start}..{end}#{number + 1}")
        clock[thread] = end + int(random.integers(0, step + 1))
        stream = "stream7" if random.random() < 0.7 else "stream9"
        begin = clock[stream] + int(random.integers(0, 2 * step + 1))
        until = begin + int(random.integers(0, step + 1))
        work = "memcpy:copy" if random.random() < 0.2 else "kernel:k"
        lanes[stream].append(f"{work}@{begin}..{until}#{int(random.integers(1, len(steps) + 3))}")
        clock[stream] = begin if random.random() < 0.1 else until
    drawing = "\n".join(f"{lane} {' '.join(items)}" for lane, items in lanes.items() if items)

    assert_conserved(Run(timeline(drawing)))


def test_causes_sum_to_idle_on_every_public_trace(shared: Path) -> None:
    seen = 0
    for path in sorted((shared / "traces").glob("*/*.json*")):
        try:
            session = load(path)
        except StallscopeError:
            continue
        if len(session.timeline) > 100_000:
            continue  # the same code on more of the same; kept out for time
        run = Run(session)
        assert_conserved(run)
        for view in run.devices.values():
            assert view.idle_ns == view.span_ns - intervals.length(view.busy)
            seen += 1
    assert seen >= 30


@pytest.mark.slow
def test_causes_sum_to_idle_on_the_large_public_traces(shared: Path) -> None:
    for path in sorted((shared / "traces").glob("*/*.json*")):
        try:
            session = load(path)
        except StallscopeError:
            continue
        assert_conserved(Run(session))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 200), max_size=30), st.lists(st.integers(0, 200), max_size=20))
def test_middles_are_told_by_the_edges_of_a_set(ends: list[int], edges: list[int]) -> None:
    points, marks = np.unique(np.array(ends, np.int64)), np.unique(np.array(edges, np.int64))
    begin, until = points[:-1:2], points[1::2][: len(points[:-1:2])]
    some = marks[: len(marks) // 2 * 2].reshape(-1, 2)

    found = _middle_inside((some[:, 0], some[:, 1]), begin, until)

    assert (
        found.tolist() == intervals.contains((some[:, 0], some[:, 1]), begin + (until - begin) // 2).tolist()
    )
