"""LN401 where the launches of some steps were lost: what these steps idle is taken for the same, and said so."""

from __future__ import annotations

from stallscope.analyzers import RULES, analyze
from support.lanes import timeline

KERNELS = 20
STEP_US = 40 * KERNELS


def drawing(lost: tuple[int, ...], steps: int = 3) -> str:
    """Steps of 20 kernels of 5 us, one launch each 40 us; of the lost steps no launch is in the recording."""
    lines = []
    for step in range(steps):
        begin = step * STEP_US
        lines.append(f'host mark:"step[DECODE bs=1 toks=1]"@{begin}..{begin + STEP_US}')
        for i in range(KERNELS):
            at, number = begin + 40 * i, step * KERNELS + i + 1
            launch = "" if step in lost else f" rt:cudaLaunchKernel@{at + 4}..{at + 8}#{number}"
            lines.append(f"host op:aten::add@{at}..{at + 18}{launch}")
            lines.append(f"stream7 kernel:add@{at + 10}..{at + 15}#{number}")
    return "\n".join(lines)


def test_the_idle_time_of_steps_without_launches_is_taken_for_the_same() -> None:
    report = analyze(timeline(drawing(lost=(1,))), {"LN401": RULES["LN401"]})
    (finding,) = report.findings
    # 39 gaps of 35 us before known launches; in the middle step 20 more, of which 25 us lie in the first step
    assert finding.lost_ns == (39 * 35 + 20 * 35 - 25) * 1000
    assert finding.facts["steps_without_launches"] == 1
    assert finding.facts["per_step_ns"] == 39 * 35_000 // 3 * 3 // 2
    assert finding.recoverable_ns <= finding.lost_ns
    assert (
        "Of one more step no launch was recorded: 675 us idle there are taken for the same." in finding.detail
    )
    assert report.devices[0].idle_classes["unexplained"] == 20 * 35_000


def test_with_all_launches_nothing_is_added() -> None:
    (finding,) = analyze(timeline(drawing(lost=())), {"LN401": RULES["LN401"]}).findings
    assert finding.lost_ns == 59 * 35_000
    assert "steps_without_launches" not in finding.facts
    assert "no launch was recorded" not in finding.detail


def test_launch_calls_of_milliseconds_are_no_launch_pace() -> None:
    """A launch that takes a hundred times the others (a first use, a full context) is a stall: no graph saves it."""
    usual = [f"rt:cudaLaunchKernel@{40 * i}..{40 * i + 4}#{i + 1}" for i in range(24)]
    kernels = [f"kernel:k@{40 * i + 6}..{40 * i + 12}#{i + 1}" for i in range(24)]
    usual.append("rt:cudaLaunchKernel@1000..9000#90")
    kernels.append("kernel:k@9002..9010#90")
    report = analyze(
        timeline(f"host python:run.py(1):_main@0..9100 {' '.join(usual)}\nstream7 {' '.join(kernels)}")
    )

    paced = [f for f in report.findings if f.code == "LN401"]
    assert all(f.lost_ns < 1_000_000 for f in paced)
    (stalled,) = [f for f in report.findings if f.code == "HB101"]
    assert 8_000_000 <= stalled.lost_ns <= 8_100_000
