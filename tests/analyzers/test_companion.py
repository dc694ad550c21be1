"""Kernels inside of graph replays, named by a second recording, or refused with numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.analyzers import analyze
from stallscope.analyzers.run import Run
from stallscope.profiler.readers import load
from stallscope.profiler.session import Session
from support.lanes import timeline

BF16 = '"c10::BFloat16"'


def mm(rows: int) -> str:
    return f"{{Input Dims=[[{rows},4096],[4096,4096]];Input type=[{BF16},{BF16}]}}"


def capture(sizes: list[int], names: tuple[str, ...] = ("norm", "gemm", "act")) -> Session:
    """One captured graph per size; on ROCm a launch tells its kernel."""
    items = []
    t = 0
    for size in sizes:
        items.append(f'mark:"capture_{size}_DECODE"@{t}..{t + 98} rt:hipStreamBeginCapture@{t + 1}..{t + 2}')
        for i, name in enumerate(names):
            at = t + 10 + 20 * i
            items.append(
                f"op:aten::mm@{at}..{at + 10}{mm(size)} rt:hipLaunchKernel@{at + 2}..{at + 4}{{kernel={name}}}"
            )
        items.append(f"rt:hipStreamEndCapture@{t + 90}..{t + 92}")
        t += 100
    return timeline("host " + " ".join(items))


REPLAY = """
    host    mark:"step[DECODE bs={size}]"@0..50 rt:hipGraphLaunch@5..10#1
    stream7 kernel:norm@20..30#1 kernel:gemm@30..60#1 kernel:act@60..70#1
"""


def replayed(size: int = 32) -> Session:
    return timeline(REPLAY.replace("{size}", str(size)), devices={"0": {"name": "AMD Instinct MI300X"}})


def test_a_capture_names_the_kernels_of_a_replay_and_gives_them_costs() -> None:
    run = Run(replayed(), capture([32]))
    assert run.work.modelled_ns == run.work.total_ns == 50_000
    assert [g.operator for g in run.work.groups] == ["aten::mm"] * 3
    (note,) = run.work.notes()
    assert (note.severity, note.text) == (
        "info",
        "3 of 3 kernels in 1 graph replays are named by the companion",
    )


def test_without_a_companion_nothing_inside_a_replay_is_known() -> None:
    assert Run(replayed()).work.modelled_ns == 0


def test_of_several_captures_the_one_that_the_step_fits_is_taken() -> None:
    run = Run(replayed(20), capture([8, 16, 32, 64]))
    assert {g.cost.flops for g in run.work.groups if g.cost is not None} == {2 * 32 * 4096 * 4096}
    assert run.work.companion is not None
    assert list(run.work.companion.match.buckets.values()) == [32]


def test_several_captures_that_fit_alike_are_no_answer() -> None:
    session = timeline(REPLAY.replace("step[DECODE bs={size}]", "something"))
    run = Run(session, capture([8, 16]))
    (note,) = run.work.notes()
    assert note.severity == "warning"
    assert (
        "0 of 3 kernels in 1 graph replays are found in it in order (0.0%, at least 95% is needed, 3 of them fit several captures)"
        in note.text
    )
    assert run.work.modelled_ns == 0


def test_another_model_is_refused_with_numbers() -> None:
    report = analyze(replayed(), companion=capture([32], ("norm", "other", "act")))
    (note,) = [n for n in report.notes if n.code == "companion"]
    assert note.text.startswith("the companion is not used: 0 of 3 kernels")


def test_a_recording_without_replays_needs_no_companion() -> None:
    run = Run(timeline("stream7 kernel:a@0..10"), capture([32]))
    assert (
        run.work.notes()[0].text
        == "the companion is not used: this recording holds no kernels of graph replays"
    )


def eager(us: int) -> Session:
    return timeline(f"""
        host    op:aten::mm@0..10{mm(32)} rt:hipLaunchKernel@2..4#1 op:aten::mm@20..30{mm(32)} rt:hipLaunchKernel@22..24#2
        host    op:aten::mm@40..50{mm(32)} rt:hipLaunchKernel@42..44#3
        stream7 kernel:norm@20..30#1 kernel:gemm@30..{30 + us}#2 kernel:act@{30 + us}..{40 + us}#3
    """)


def test_an_eager_run_names_them_too_if_its_times_agree() -> None:
    run = Run(replayed(), eager(30))
    assert run.work.modelled_ns == 50_000
    assert run.work.companion is not None
    assert run.work.companion.match.time_ratio == 1.0


def test_an_eager_run_on_other_hardware_is_refused() -> None:
    run = Run(replayed(), eager(130))
    assert (
        "its kernels take other times: matched ones take 0.33 times as long here (accepted: 0.67 to 1.50)"
        in run.work.notes()[0].text
    )
    assert run.work.modelled_ns == 0


@pytest.mark.parametrize(
    ("trace", "companion", "before", "after"),
    [
        ("sglang-decode-mi300x", "sglang-capture-mi300x", 0.02, 0.99),
        ("vllm-piecewise-mi300x", "vllm-piecewise-capture-mi300x", 0.05, 0.99),
    ],
)
def test_captures_of_public_recordings_name_all_replayed_kernels(
    shared: Path, trace: str, companion: str, before: float, after: float
) -> None:
    session, other = (load(next((shared / "traces" / name).iterdir())) for name in (trace, companion))
    assert Run(session).work.modelled_ns <= before * Run(session).work.total_ns
    run = Run(session, other)
    assert run.work.modelled_ns >= after * run.work.total_ns
    assert run.work.companion is not None
    assert run.work.companion.match.found == run.work.companion.match.kernels > 0


def test_the_capture_of_another_engine_is_refused(shared: Path) -> None:
    traces = shared / "traces"
    session = load(next((traces / "sglang-decode-mi300x").iterdir()))
    run = Run(session, load(next((traces / "vllm-piecewise-capture-mi300x").iterdir())))
    assert "0 of 544 kernels" in run.work.notes()[0].text
