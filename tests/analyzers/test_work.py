"""Device work by operator: groups, floors, chains, kernels from before the recording, and what changes save."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallscope.analyzers import analyze
from stallscope.analyzers.chains import find_chains
from stallscope.analyzers.earlier import longest_matches
from stallscope.analyzers.gain import saving
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.registry import NotAnalysable
from stallscope.analyzers.run import Run
from stallscope.analyzers.work import step_tokens
from stallscope.profiler.session import Session
from support.lanes import timeline

H100 = {"0": {"name": "NVIDIA H100 80GB HBM3"}}
MM = '{Input Dims=[[4096,4096],[4096,4096]];Input type=["c10::BFloat16","c10::BFloat16"]}'
FLOPS = 2 * 4096**3
PEAK = 989.4e12


def run_of(drawing: str, **facts: Any) -> Run:
    return Run(timeline(drawing, **({"devices": H100} | facts)))


def test_calls_of_one_operator_and_cost_make_one_group_and_all_groups_make_all_device_time() -> None:
    run = run_of(f"""
        host    op:aten::mm@0..10{MM} rt:cudaLaunchKernel@2..4#1 rt:cudaLaunchKernel@5..7#2 op:aten::mm@20..30{MM}
        host    rt:cudaLaunchKernel@22..24#3 rt:cudaLaunchKernel@40..42#4
        stream7 kernel:gemm@10..210#1 kernel:splitk_reduce@210..220#2 kernel:gemm@220..430#3 kernel:mystery@430..440#4
    """)
    first, second = run.work.groups
    assert (first.operator, first.kernel, first.calls, first.total_ns) == ("aten::mm", "gemm", 2, 420_000)
    assert first.cost is not None
    assert first.cost.flops == FLOPS
    assert (second.operator, second.kernel, second.cost, second.family) == ("", "mystery", None, Family.OTHER)
    assert run.work.total_ns == 430_000 == first.total_ns + second.total_ns
    assert run.work.modelled_ns == 420_000


def test_a_floor_is_the_roof_of_each_call_and_speaks_where_enough_is_known() -> None:
    run = run_of(f"""
        host    mark:decode@0..300 op:aten::mm@0..10{MM} rt:cudaLaunchKernel@2..4#1
        host    mark:decode@300..600 op:aten::mm@300..310{MM} rt:cudaLaunchKernel@302..304#2
        stream7 kernel:gemm@10..210#1 kernel:gemm@310..510#2
    """)
    (floor,) = run.floor.phases
    assert (floor.phase, floor.steps, floor.measured_ns, floor.device_ns) == ("decode", 2, 300_000, 200_000)
    assert floor.floor_ns == int(np.ceil(FLOPS / PEAK * 1e9))
    assert floor.speaks
    assert floor.mfu == pytest.approx(FLOPS / 300e-6 / PEAK, rel=1e-6)
    assert "floor 139 us" in analyze(run.session).verdict.text
    assert "cost models know 100.0 % of the device time (gemm 100 %)" in run.floor.line


def test_a_floor_of_which_little_is_known_is_not_said() -> None:
    run = run_of(f"""
        host    mark:decode@0..300 op:aten::mm@0..10{MM} rt:cudaLaunchKernel@2..4#1 rt:cudaLaunchKernel@20..22#3
        host    mark:decode@300..600 op:aten::mm@300..310{MM} rt:cudaLaunchKernel@302..304#2 rt:cudaLaunchKernel@320..322#4
        stream7 kernel:gemm@10..150#1 kernel:mystery@150..290#3 kernel:gemm@310..450#2 kernel:mystery@450..590#4
    """)
    (floor,) = run.floor.phases
    assert floor.modelled_share == 0.5
    assert not floor.speaks
    (row,) = run.floor.tables()["floor"]
    assert (row["mfu"], row["times_floor"], row["modelled_share"]) == (None, None, 0.5)
    assert row["note"] == "the floor speaks of 50% of the device time only"
    assert "floor" not in analyze(run.session).verdict.text


def test_a_step_is_never_shorter_than_what_the_device_did_for_it() -> None:
    run = run_of(f"""
        host    mark:prefill@0..20 op:aten::mm@0..10{MM} rt:cudaLaunchKernel@2..4#1
        stream7 kernel:gemm@10..410#1
    """)
    assert run.floor.phases[0].measured_ns == 400_000


def test_without_a_chip_nothing_is_claimed_but_the_modelled_share_is_said() -> None:
    run = run_of(f"""
        host    op:aten::mm@0..10{MM} rt:cudaLaunchKernel@2..4#1
        stream7 kernel:gemm@10..410#1
    """, devices={"0": {"name": "Some GPU"}})  # fmt: skip
    (row,) = run.floor.tables()["floor"]
    assert (row["floor_ns"], row["mfu"], row["modelled_share"]) == (None, None, 1.0)
    (roof,) = run.floor.tables()["roofline"]
    assert (roof["share"], roof["bound"], roof["flops"]) == (None, "unknown", FLOPS)


def test_a_share_over_the_roof_is_never_shown() -> None:
    run = run_of(f"""
        host    op:aten::mm@0..10{MM} rt:cudaLaunchKernel@2..4#1
        stream7 kernel:gemm@10..60#1
    """)
    (roof,) = run.floor.tables()["roofline"]
    assert (roof["bound"], roof["share"], roof["compute_share"], roof["gain_ns"]) == (
        "model-or-clock-fault",
        None,
        None,
        None,
    )
    assert "faster than the roof" in roof["note"]


def test_a_device_the_source_does_not_describe_is_of_the_only_chip_there_is() -> None:
    drawing = "gpu9.stream7 kernel:gemm@10..60#1"
    assert run_of(drawing).chips[9].name == "H100 SXM5"
    mixed = {"0": {"name": "NVIDIA H100 80GB HBM3"}, "1": {"name": "NVIDIA A100-SXM4-80GB"}}
    assert run_of(drawing, devices=mixed).chips == {}


@pytest.mark.parametrize(
    ("facts", "pairs"),
    [
        ({"generation_requests": 2, "generation_sums": [2, 30, 2, 30]}, 30),
        ({"context_requests": 1, "context_sums": [8, 8, 64, 64]}, 36),
        ({"context_requests": 1, "generation_requests": 2, "generation_sums": [2, 30, 2, 30]}, None),
        ({"batch": 4}, None),
        ({"context_requests": "x"}, None),
    ],
)
def test_token_sums_come_from_the_facts_of_a_step_or_not_at_all(
    facts: dict[str, Any], pairs: int | None
) -> None:
    tokens = step_tokens(facts)
    assert (tokens.causal_pairs if tokens is not None else None) == pairs


# -- chains ----------------------------------------------------------------------------------------

BF16 = '"c10::BFloat16"'


def elementwise(names: list[str], rows: list[int] | None = None, us: int = 80) -> str:
    """One operator and one kernel after the other on (rows, 14336) tensors in bf16."""
    rows = rows or [4096] * len(names)
    host = " ".join(
        f"op:{n}@{10 * i}..{10 * i + 4}{{Input Dims=[[{r},14336]];Input type=[{BF16}]}} rt:cudaLaunchKernel@{10 * i + 1}..{10 * i + 2}#{i + 1}"
        for i, (n, r) in enumerate(zip(names, rows, strict=True))
    )
    device = " ".join(f"kernel:e{i}@{20 + us * i}..{20 + us * (i + 1)}#{i + 1}" for i in range(len(names)))
    return f"host {host}\nstream7 {device}"


def test_a_chain_ends_where_sizes_no_longer_fit() -> None:
    names = ["aten::silu", "aten::neg", "aten::tanh", "aten::silu", "aten::neg", "aten::tanh"]
    (first, second) = find_chains(run_of(elementwise(names, [4096] * 3 + [2048] * 3)))
    assert (first.operators, first.length, first.times) == (("aten::silu", "aten::neg", "aten::tanh"), 3, 1)
    assert first.bytes == 3 * 2 * 4096 * 14336 * 2
    assert first.fused_bytes == 2 * 4096 * 14336 * 2
    assert first.saved_share == pytest.approx(2 / 3)
    assert second.fused_bytes * 2 == first.fused_bytes


def test_the_same_chain_elsewhere_is_counted_and_other_work_between_cuts_it() -> None:
    names = ["aten::silu", "aten::neg", "aten::tanh"]
    (chain,) = find_chains(run_of(elementwise([*names, "aten::softmax", *names])))
    assert (chain.times, chain.length, chain.total_ns) == (2, 3, 480_000)


def test_fusing_leaves_the_first_kernel_with_the_time_of_the_fused_one() -> None:
    run = run_of(elementwise(["aten::silu", "aten::neg", "aten::tanh"]))
    (chain,) = run.chains
    factors = chain.fused(run.timeline.spans.dur_ns)
    assert list(factors.values()).count(0.0) == 2
    assert max(factors.values()) == pytest.approx(1.0)
    assert saving(run, factors).ns == pytest.approx(160_000, abs=2)


def test_what_a_faster_kernel_saves_is_not_claimed_where_it_cannot_be_told() -> None:
    run = run_of("stream7 kernel:a@0..10 kernel:b@1000..1010")
    rows = {int(r): 0.5 for r in run.whole.rows}
    with pytest.raises(
        NotAnalysable, match=r"busy 2\.0 % of its time, and it cannot be replayed without launches"
    ):
        saving(run, rows)


def test_without_launches_a_busy_device_gives_an_upper_bound() -> None:
    run = run_of("stream7 kernel:a@0..500 kernel:b@510..1010")
    found = saving(run, {int(r): 0.5 for r in run.whole.rows})
    assert (found.ns, found.by) == (500_000, "kernel time")
    assert "upper bound" in found.text


# -- kernels from before the recording -------------------------------------------------------------


def test_longest_matches_run_on_into_what_follows() -> None:
    before, after = np.array([5, 1, 2, 3]), np.array([9, 1, 2, 3, 9, 1, 2, 3, 9])
    length, place = longest_matches(before, after)
    assert length.tolist() == [0, 8, 7, 6]
    assert [int(after[p]) for p in place[1:]] == [1, 2, 3]


def layers(count: int, start: int, launched: bool) -> tuple[list[str], list[str]]:
    """`count` layers of a product and eleven elementwise kernels; with or without their launches."""
    host, device = [], []
    for i in range(count * 12):
        at, number = start + 10 * i, 1000 + start + i if launched else 1 + i
        kernel = "gemm" if i % 12 == 0 else f"k{i % 12}"
        device.append(f"kernel:{kernel}@{at}..{at + 9}#{number}")
        if launched:
            shapes = MM if i % 12 == 0 else f"{{Input Dims=[[64,4096]];Input type=[{BF16}]}}"
            name = "aten::mm" if i % 12 == 0 else "aten::silu"
            host.append(
                f"op:{name}@{at - 8}..{at - 3}{shapes} rt:cudaLaunchKernel@{at - 6}..{at - 5}#{number}"
            )
    return host, device


def test_kernels_launched_before_the_recording_get_the_operators_they_repeat() -> None:
    _, before = layers(2, 0, False)
    host, after = layers(3, 300, True)
    run = run_of(f"host {' '.join(host)}\nstream7 {' '.join(before + after)}")
    assert len(run.work.earlier) == 24
    assert run.work.modelled_ns == run.work.total_ns
    (product,) = [g for g in run.work.groups if g.operator == "aten::mm"]
    assert product.calls == 5
    # no step of this recording launched them
    assert sum(g.calls for g in run.work.step_groups if g.operator == "aten::mm") == 3


def test_kernels_that_repeat_nothing_stay_unnamed() -> None:
    host, after = layers(3, 300, True)
    before = [f"kernel:other{i}@{10 * i}..{10 * i + 9}#{i + 1}" for i in range(24)]
    run = run_of(f"host {' '.join(host)}\nstream7 {' '.join(before + after)}")
    assert run.work.earlier == {}


def test_work_of_a_lost_launch_is_of_the_phase_around_it() -> None:
    run = run_of(
        """
        host    mark:"step[DECODE bs=4 toks=4]"@0..100 rt:cudaLaunchKernel@10..15#1 rt:cudaLaunchKernel@20..25#2
        host    mark:"step[DECODE bs=4 toks=4]"@200..300 rt:cudaLaunchKernel@210..215#4
        host    mark:"step[EXTEND bs=1 toks=64]"@400..500 rt:cudaLaunchKernel@410..415#6
        stream7 kernel:a@30..50#1 kernel:a@60..80#2 kernel:lost@150..170#3 kernel:a@230..250#4 kernel:unsure@330..350#5
        stream7 kernel:a@430..450#6 kernel:late@460..470#7
        """
    )
    phases = {g.kernel: g.phase for g in run.work.groups if g.kernel != "a"}
    assert phases == {"lost": "decode", "unsure": "", "late": ""}


# -- public recordings -----------------------------------------------------------------------------


def load_only(folder: Path) -> Session:
    from stallscope.profiler.readers import load

    return load(next(p for p in sorted(folder.iterdir()) if ".json" in p.name))


@pytest.mark.parametrize(
    ("trace", "modelled"),
    [("qwen15-hf-h100", 0.99), ("bert-h100", 0.99), ("vit-nsfw-h100", 0.99), ("nograph-manual-5080", 0.99)],
)
def test_most_device_time_of_public_inference_recordings_has_a_model(
    shared: Path, trace: str, modelled: float
) -> None:
    run = Run(load_only(shared / "traces" / trace))
    assert run.work.modelled_ns >= modelled * run.work.total_ns
    assert run.work.named_ns >= 0.99 * run.work.total_ns


def test_the_unfused_norms_of_a_public_recording_are_found(shared: Path) -> None:
    report = analyze(load_only(shared / "traces" / "qwen15-hf-h100"))
    first = report.findings[0]
    assert first.code == "MB301"
    assert first.facts["operators"] == [
        "aten::add", "aten::copy_", "aten::pow", "aten::mean", "aten::add", "aten::rsqrt", "aten::mul", "aten::copy_", "aten::mul",
    ]  # fmt: skip
    assert "modeling_qwen2.py" in first.where.python


def test_a_chain_from_before_the_recording_is_the_same_chain(shared: Path) -> None:
    run = Run(load_only(shared / "traces" / "qwen15-hf-h100"))
    norms = [c for c in run.chains if c.length == 9]
    assert [c.times for c in norms] == [69]
