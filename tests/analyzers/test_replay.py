"""The replay model on drawn timelines whose gains are worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from stallscope.analyzers.replay import Change, Replay
from stallscope.analyzers.run import Run
from stallscope.profiler.device import QUEUED_SHORT_NS
from support.lanes import timeline


def model(drawing: str) -> Replay:
    return Replay(Run(timeline(drawing)))


def row(replay: Replay, name: str, nth: int = 0) -> int:
    t = replay.timeline
    return [r for r in range(len(t)) if t.name(r) == name][nth]


SYNC_EACH_STEP = """
    host    rt:cudaLaunchKernel@0..5#1 sync:cudaStreamSynchronize@5..105 python:sample@105..155 rt:cudaLaunchKernel@155..160#2
    stream7 kernel:a@10..100#1 kernel:b@165..255#2
"""


def test_the_unchanged_program_comes_out_as_recorded() -> None:
    replay = model(SYNC_EACH_STEP)
    outcome = replay.replay()

    assert outcome.makespan_ns == replay.recorded_ns == 255_000
    assert outcome.op_start_ns == [10_000, 165_000]
    assert replay.self_error == 0


def test_without_the_wait_the_host_runs_ahead() -> None:
    replay = model(SYNC_EACH_STEP)

    gain = replay.gain_ns(Change(no_wait={row(replay, "cudaStreamSynchronize")}))

    # the call itself stays (3 us), Python ends at 58, so b follows a after the usual 1 us: 101..191
    assert gain == 255_000 - 191_000


def test_less_python_shortens_the_gap_only_while_the_host_is_the_limit() -> None:
    replay = model(SYNC_EACH_STEP)
    times = (np.array([105_000]), np.array([155_000]))
    track = int(replay.call_track[0])

    assert replay.gain_ns(Change(host_cuts=[(track, times, 0.5)])) == 25_000
    assert replay.gain_ns(Change(host_cuts=[(track, times, 0.0)])) == 50_000


def test_a_faster_kernel_helps_only_where_the_device_is_the_limit() -> None:
    replay = model(
        """
        host    rt:cudaLaunchKernel@0..5#1 rt:cudaLaunchKernel@5..10#2 rt:cudaLaunchKernel@10..15#3
        stream7 kernel:a@10..110#1 kernel:b@111..211#2 kernel:c@212..312#3
        """
    )

    assert replay.gain_ns(Change(op_factor={row(replay, "b"): 0.5})) == 50_000


def test_host_work_behind_a_busy_device_costs_nothing() -> None:
    replay = model(
        """
        host    rt:cudaLaunchKernel@0..5#1 python:slow@5..60 rt:cudaLaunchKernel@60..65#2
        stream7 kernel:a@10..110#1 kernel:b@111..211#2
        """
    )
    times = (np.array([5_000]), np.array([60_000]))

    assert replay.gain_ns(Change(host_cuts=[(int(replay.call_track[0]), times, 0.0)])) == 0


def test_many_launches_become_one_graph() -> None:
    replay = model(
        """
        host    rt:cudaLaunchKernel@0..5#1 op:aten::add@5..45 rt:cudaLaunchKernel@45..50#2 op:aten::add@50..90
        host    rt:cudaLaunchKernel@90..95#3
        stream7 kernel:a@10..15#1 kernel:b@55..60#2 kernel:c@100..105#3
        """
    )
    launches = tuple(int(c) for c in replay.calls)

    # a 10..15, then b and c 0.1 us after one another
    assert replay.gain_ns(Change(as_graph=[launches])) == 105_000 - 25_200


def test_work_of_another_stream_is_waited_for() -> None:
    replay = model(
        """
        host    rt:cudaLaunchKernel@0..5#1 rt:cudaLaunchKernel@5..10#2 rt:cudaLaunchKernel@10..15#3
        stream7 kernel:a@10..20#1 kernel:c@213..223#3
        stream9 coll:"ncclDevKernel_AllReduce"@20..210#2
        """
    )

    assert replay.gain_ns(Change(op_factor={row(replay, "ncclDevKernel_AllReduce"): 0.5})) == 95_000


def test_a_blocking_copy_is_a_wait() -> None:
    replay = model(
        """
        host    rt:cudaLaunchKernel@0..5#1 rt:cudaMemcpy@5..130#2 rt:cudaLaunchKernel@130..135#3
        stream7 kernel:a@10..110#1 memcpy:Memcpy_DtoH@111..126#2 kernel:b@140..150#3
        """
    )

    assert replay.gain_ns(Change(no_wait={row(replay, "cudaMemcpy")})) == 150_000 - 137_000


def test_a_wait_that_met_nothing_is_no_wait() -> None:
    replay = model(
        """
        host    rt:cudaLaunchKernel@0..5#1 sync:cudaDeviceSynchronize@50..60
        stream7 kernel:a@10..20#1
        """
    )

    assert replay.wait_op.tolist() == [-1, -1]


def test_a_model_that_does_not_describe_the_run_is_not_trusted() -> None:
    """Gaps of a millisecond between queued kernels are nothing that typical delays explain."""
    kernels = " ".join(f"kernel:k@{i * 1000 + 10}..{i * 1000 + 20}#{i + 1}" for i in range(20))
    launches = " ".join(f"rt:cudaLaunchKernel@{i}..{i + 1}#{i + 1}" for i in range(20))
    replay = model(f"host {launches}\nstream7 {kernels}")

    assert replay.self_error == 0
    assert replay.model_error > 0.05
    assert not replay.trusted


def test_cpu_only_runs_have_nothing_to_replay() -> None:
    replay = model("host op:aten::mm@0..10")

    assert replay.replay().makespan_ns == 0
    assert not replay.trusted


@pytest.mark.parametrize("lag", [1, QUEUED_SHORT_NS // 1000 - 1])
def test_an_empty_change_gains_nothing(lag: int) -> None:
    replay = model(f"host rt:cudaLaunchKernel@0..1#1\nstream7 kernel:k@{1 + lag}..50#1")

    assert replay.gain_ns(Change()) == 0
