"""Which waits belong together, whose they are, and what they answer for."""

from __future__ import annotations

import numpy as np

from stallscope.analyzers import analyze
from stallscope.analyzers.run import Run
from stallscope.analyzers.waits import WaitBlocks
from support.lanes import timeline


def blocks(drawing: str) -> tuple[Run, WaitBlocks]:
    run = Run(timeline(drawing))
    return run, run.wait_blocks(0)


def test_reading_back_a_value_is_one_wait_from_its_operator_on() -> None:
    run, found = blocks(
        """
        host     python:serve.py(9):_step@0..400 rt:cudaLaunchKernel@2..6#1
        host     op:aten::item@10..112 op:"aten::_local_scalar_dense"@11..111 rt:cudaMemcpyAsync@12..16#2 sync:cudaStreamSynchronize@17..110
        stream7  kernel:a@8..107#1 memcpy:Memcpy_DtoH@107..109#2
        """
    )
    assert (found.start_ns.tolist(), found.end_ns.tolist()) == ([10_000], [112_000])
    # the copy itself is asynchronous: its call returned before it was done
    assert found.wait_ns.tolist() == [93_000]
    assert run.timeline.name(int(found.operator[0])) == "aten::item"
    assert run.timeline.name(int(found.frame[0])) == "serve.py(9): step"
    assert not found.is_copy[0]


def test_a_loop_of_read_backs_is_one_wait_and_a_launch_or_long_work_ends_it() -> None:
    def item(at: float, number: int) -> str:
        return f"op:aten::item@{at}..{at + 8} rt:cudaMemcpyAsync@{at + 1}..{at + 3}#{number} sync:cudaStreamSynchronize@{at + 3}..{at + 7}"

    _, found = blocks(
        f"""
        host     {item(10, 1)} {item(30, 2)} {item(50, 3)} rt:cudaLaunchKernel@62..64#9 {item(70, 4)} {item(400, 5)}
        stream7  memcpy:c@12..13#1 memcpy:c@32..33#2 memcpy:c@52..53#3 kernel:a@66..68#9 memcpy:c@72..73#4 memcpy:c@402..403#5
        """
    )
    assert list(zip((found.start_ns // 1000).tolist(), (found.end_ns // 1000).tolist(), strict=True)) == [
        (10, 58), (70, 78), (400, 408),
    ]  # fmt: skip
    assert found.repeats.tolist() == [3, 3, 3]


def test_what_is_around_an_operator_is_not_what_waits() -> None:
    """A step, a range of the autograd engine or an operator that holds a model is no call for a value."""
    inner = " ".join(f"rt:cudaLaunchKernel@{20 + 2 * i}..{21 + 2 * i}#{i + 1}" for i in range(12))
    kernels = " ".join(f"kernel:k@{40 + 2 * i}..{41 + 2 * i}#{i + 1}" for i in range(12))
    run, found = blocks(
        f"""
        host     op:"ProfilerStep#9"@0..300 op:"autograd::engine::evaluate_function: IndexBackward0"@5..290 op:vllm::attention@10..280
        host     {inner} op:aten::nonzero@100..200 sync:cudaStreamSynchronize@110..190
        stream7  {kernels}
        """
    )
    assert run.timeline.name(int(found.operator[0])) == "aten::nonzero"
    assert found.start_ns.tolist() == [100_000]


def test_a_copy_blocks_if_its_call_outlives_it_and_is_not_tiny() -> None:
    run, found = blocks(
        """
        host     rt:cudaMemcpyAsync@0..60#1 rt:cudaLaunchKernel@61..63#2 rt:cudaMemcpyAsync@70..75#3 rt:cudaMemcpyAsync@80..82#4
        stream7  memcpy:big@10..55#1{bytes=65536} kernel:a@66..69#2 memcpy:small@71..72#3 memcpy:late@90..140#4
        """
    )
    waits = [run.timeline.spans.start_ns[r] // 1000 for r in np.flatnonzero(run.is_wait)]
    assert waits == [0]
    assert found.is_copy.tolist() == [True] and found.copy_bytes.tolist() == [65536]


def test_the_profilers_synchronisations_are_nobodys() -> None:
    run, found = blocks(
        """
        host     sync:cudaDeviceSynchronize@0..20 python:run.py(3):_main@30..200 rt:cudaLaunchKernel@32..36#1
        host     sync:cudaDeviceSynchronize@50..90 sync:cudaDeviceSynchronize@210..230
        stream7  kernel:a@38..89#1
        """
    )
    assert found.start_ns.tolist() == [50_000]
    assert len(run.profiler_syncs) == 2


def test_a_read_back_once_a_step_does_not_answer_for_long_python() -> None:
    step = """
        host     mark:decode@{a}..{b} rt:cudaLaunchKernel@{l}..{m}#{n} op:aten::item@{i}..{j} sync:cudaStreamSynchronize@{i}..{j}
        host     python:pick.py(4):_pick@{j}..{p}
        stream7  kernel:k@{k}..{j}#{n}
    """
    drawing = "".join(
        step.format(a=t, b=t + 1000, l=t + 2, m=t + 6, n=n, i=t + 10, j=t + 500, k=t + 8, p=t + 990)
        for n, t in enumerate(range(0, 4000, 1000), 1)
    )
    run = Run(timeline(drawing))
    totals = run.idle[0].totals()

    assert run.wait_blocks(0).once_a_step.all()
    # three gaps of 508 us: 490 in Python at one line, 12 in code of the host that left no record, which the
    # wait does not answer for either, and 6 of launching
    assert totals["python"] == 3 * 490_000
    assert totals["unrecorded"] == 3 * 12_000
    assert totals["sync"] == 3 * 6_000


def two_gpu_drawing() -> str:
    """The shape of a public two-GPU recording: each device 99 % busy; each rank spends 44 % of the time in stream
    synchronisation and most of the rest in launches that wait for room in a full queue."""
    lines = []
    for rank, (host, gpu) in enumerate((("host", "stream7"), ("host2", "gpu1.stream7"))):
        calls, kernels = [], []
        for step in range(2):
            at, first = 1000 * step, 100 * rank + 10 * step
            calls += [
                f"rt:cudaLaunchKernel@{at + 1 + 3 * k}..{at + 3 + 3 * k}#{first + k + 1}" for k in range(2)
            ]
            calls += [
                f"rt:cudaLaunchKernel@{at + begin}..{at + end}#{first + k}"
                for k, begin, end in ((3, 7, 107), (4, 108, 208), (5, 209, 389), (6, 390, 550))
            ]
            calls.append(f"sync:cudaStreamSynchronize@{at + 552}..{at + 995}#{first + 9}")
            kernels += [
                f"kernel:gemm@{at + 5 + 165 * k}..{at + 168 + 165 * k}#{first + k + 1}" for k in range(6)
            ]
        lines += [f"{host} python:train.py(9):_step@0..2000 {' '.join(calls)}", f"{gpu} {' '.join(kernels)}"]
    return "\n".join(lines)


def test_two_busy_devices_are_not_blamed_on_waits_and_full_queues() -> None:
    report = analyze(timeline(two_gpu_drawing()))
    waits = sum(row["waited_ns"] for row in report.tables["waits"])
    assert waits > 0.4 * 2 * report.headline.span_ns
    assert len(report.devices) == 2
    for device in report.devices:
        assert device.busy_ns > 0.98 * device.span_ns
    assert report.findings == []
    assert "no stall keeps" in report.verdict.text
