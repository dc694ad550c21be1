"""The first sentence, the order of findings, and what severity means."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stallscope.analyzers import RULES, analyze
from stallscope.analyzers.chains import looks_like
from stallscope.analyzers.engine import disjoint, severity
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.verdict import verdict
from stallscope.profiler.readers import load
from support.lanes import timeline


def steps(gap: int, count: int = 6, batch: int = 32) -> str:
    """Decode steps of `gap` us of Python, then a kernel of 100 us that is launched 2 us later."""
    lines, t = [], 0
    for n in range(1, count + 1):
        start = t + gap + 2
        lines.append(
            f'host mark:"decode[step={n} bs={batch}]"@{t}..{start + 110} python:"serve/sampler.py(214): pick"@{t}..{t + gap}'
        )
        lines.append(f"host rt:cudaLaunchKernel@{start}..{start + 4}#{n}")
        lines.append(f"stream7 kernel:gemm@{start + 6}..{start + 106}#{n}")
        t = start + 110
    return "\n".join(lines)


def test_a_stall_is_told_per_step_with_its_place_and_worth() -> None:
    report = analyze(timeline(steps(800)))

    # five gaps of 812 us in six steps; without the 800 us of Python in each the launch path would stay
    assert report.verdict.text == (
        "decode, batch 32: 912 us a step; the device idles 677 us a decode step (4.06 ms in all) while the host is in "
        "sampler.py:214 (pick); worth up to 667 us a token, confidence high"
    )
    assert report.verdict.lines[0] == "device busy 12.9 % of 4.66 ms, idle 4.06 ms"


def test_a_busy_device_is_called_busy() -> None:
    report = analyze(
        timeline(
            """
            host     python:run.py(1):_main@0..400 rt:cudaLaunchKernel@2..6#1 rt:cudaLaunchKernel@7..9#2 rt:cudaLaunchKernel@10..12#3
            host     sync:cudaStreamSynchronize@20..299
            stream7  kernel:a@8..100#1 kernel:b@101..200#2 kernel:c@201..300#3
            """
        )
    )
    assert report.findings == []
    assert report.verdict.text == "The device is busy 99.3 % of the time; no stall keeps it from working"
    assert any("the device is the slower side" in line for line in report.verdict.lines)


def test_severity_follows_from_the_share_of_the_run() -> None:
    assert [severity(n, 1000) for n in (150, 100, 99, 30, 29, 0)] == [
        "high",
        "high",
        "medium",
        "medium",
        "low",
        "info",
    ]


def test_findings_come_by_what_they_could_give_back() -> None:
    report = analyze(timeline(steps(800)))
    gains = [f.recoverable_ns for f in report.findings]
    assert gains == sorted(gains, reverse=True)


def test_growth_at_a_place_is_not_counted_twice() -> None:
    def finding(code: str, ns: int, python: str) -> Finding:
        return Finding(code, "x", "x", ns, ns, where=Where(python=python))

    whole, other, grown = (
        finding("HB101", 100, "a.py(1): f"),
        finding("HB101", 50, "b.py(2): g"),
        finding("ST702", 70, "a.py(1): f"),
    )
    left = disjoint([whole, other, grown])
    assert [f.lost_ns for f in left] == [30, 50, 70]
    assert left[0].facts["lost_with_growth_ns"] == 100


EXPECTED = {
    # trace: (codes that must be found first, codes that must not be found at all)
    "nograph-manual-5080": (("LN401",), ("SY201", "SY202", "CC601")),
    "bert-h100": (("LN401",), ("SY201", "SY202", "SY203")),
    "two-gpu-v100-memory": (("LN401",), ("SY201", "SY202")),
    "qwen15-hf-h100": ((), ("HB101", "SY201", "SY202", "LN401")),
    "vllm-piecewise-mi300x": ((), ("HB101", "SY201", "SY202", "LN401", "DP501")),
    "sglang-decode-mi300x": ((), ("HB101", "SY201", "SY202", "LN401", "DP501")),
    "sglang-capture-mi300x": ((), ("HB101", "HB106", "LN401", "SY201")),
    "vllm-piecewise-capture-mi300x": ((), ("HB101", "HB106", "LN401", "SY201")),
    "a100-launches-no-kernels": ((), ("HB101", "LN401", "SY201")),
    "ddp-resnet18-mi300x": (("SY204",), ()),
    "merged-nccl-mi300": ((), ("CC601",)),
    "rank-non-gpu": ((), ("HB102",)),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_public_traces_get_the_verdict_an_expert_gives(shared: Path, name: str) -> None:
    first, never = EXPECTED[name]
    path = next(p for p in sorted((shared / "traces" / name).iterdir()) if ".json" in p.name)

    found = [f.code for f in analyze(load(path)).findings]

    if first:
        assert found[0] in first
    assert not set(found) & set(never)


def test_host_work_after_each_step_is_found_without_a_device(shared: Path) -> None:
    report = analyze(load(shared / "cpu_traces" / "hf_llama_hostgap.json.gz"))

    finding = report.findings[0]
    assert (finding.code, finding.where.operator, finding.phase) == ("HB102", "host_work", "decode")
    assert 18_000_000 < finding.facts["per_step_ns"] < 24_000_000
    assert {o.reason for o in report.rules if o.code in ("HB101", "SY201")} == {
        "no device activity was recorded"
    }


@pytest.mark.parametrize(
    "case", ["c17", "c19", "c21", "c23", "c24", "c27", "c29", "c30", "c32", "c35", "c37"]
)
def test_small_faulty_recordings_raise_no_alarm(shared: Path, case: str) -> None:
    (path,) = (shared / "cases").glob(f"{case}-*.json")

    assert analyze(load(path)).findings == []


def test_steps_of_several_ranks_are_counted_once_and_devices_are_called_by_rank() -> None:
    """Two ranks go through the same two steps; a number like 1000 tells the devices apart but is nobody's name."""
    lanes = ""
    for rank in (0, 1):
        lanes += f"""
        rank{rank}.host     mark:"ProfilerStep#1"@0..300 rt:aclrtLaunchKernel@10..14#{rank}1 mark:"ProfilerStep#2"@300..600 rt:aclrtLaunchKernel@310..314#{rank}2
        rank{rank}.stream7  kernel:MatMulV3@20..280#{rank}1 kernel:MatMulV3@320..580#{rank}2
        """
    report = analyze(timeline(lanes))

    assert len(report.steps) == 4
    assert report.run.steady_steps("other") == 2
    assert [(d.id, d.facts["label"]) for d in report.devices] == [
        (0, "rank 0 device 0"),
        (1000, "rank 1 device 0"),
    ]


def test_a_number_of_the_whole_recording_does_not_read_like_one_of_a_step() -> None:
    report = analyze(timeline(steps(800)))
    (first, *_) = report.findings
    told = verdict(report.run, [replace(first, facts={"steps": 6})], [])
    assert " a step; in all, " in told.text
    assert "in all, " not in verdict(report.run, [first], []).text


@pytest.mark.parametrize(
    ("operators", "expected"),
    [
        (["aten::add", "aten::copy_", "aten::pow", "aten::mean", "aten::add", "aten::rsqrt", "aten::mul"], "RMSNorm"),
        (["Pows", "ReduceMean", "Adds", "Rsqrt", "Mul"], "RMSNorm"),
        (["aten::mean", "aten::sub", "aten::pow", "aten::mean", "aten::rsqrt", "aten::mul"], "LayerNorm"),
        (["aten::neg", "aten::cat", "aten::mul", "aten::add"], "rotary embedding"),
        (["aten::exp", "aten::sum", "aten::div"], "softmax"),
        (["aten::silu", "aten::mul"], "gated SiLU"),
        (["aten::mul", "aten::add", "aten::mul"], ""),
    ],
)  # fmt: skip
def test_known_chains_are_named(operators: list[str], expected: str) -> None:
    assert looks_like(operators) == expected


def test_a_small_finding_is_not_told_as_what_an_idle_device_is_about() -> None:
    """A copy blocks for 60 us of 3 ms in which the device idles before an unlinked kernel."""
    report = analyze(
        timeline(
            """
            host    op:aten::to@0..80 rt:cudaMemcpyAsync@2..72#1 op:aten::mm@90..110 rt:cudaLaunchKernel@100..104#2
            stream7 memcpy:"Memcpy HtoD (Pageable -> Device)"@6..66#1 kernel:a@106..200#2 kernel:b@2900..3000#900
            """
        ),
        {"SY203": RULES["SY203"]},
    )
    (finding,) = report.findings
    assert finding.severity in ("low", "medium")
    assert report.verdict.text.startswith("The device is idle 91.")
    assert "unexplained; of causes with a place the first is small: copies that block" in report.verdict.text


def test_overlapping_findings_are_summed_for_the_reader() -> None:
    report = analyze(timeline(steps(800)))
    (first, *_) = report.findings
    pair = [
        replace(first, facts={"adds_ns": 3_000_000}, recoverable_ns=3_000_000, lost_ns=3_000_000),
        replace(first, facts={"adds_ns": 500_000}, recoverable_ns=2_000_000, lost_ns=2_000_000),
    ]
    lines = verdict(report.run, pair, []).lines
    assert "the 2 findings overlap: all together are worth up to 3.50 ms" in lines
    assert not [line for line in verdict(report.run, pair[:1], []).lines if "overlap" in line]


def test_one_kernel_in_a_long_recording_is_no_busy_device() -> None:
    report = analyze(
        timeline(
            """
            host     python:run.py(1):_main@0..4000 rt:cudaLaunchKernel@2..6#1
            stream7  kernel:a@8..100#1
            """
        )
    )
    assert report.verdict.text == "No verdict: only 1 device event was recorded, in 92.0 us of 4.00 ms"
    assert not any("slower side" in line for line in report.verdict.lines)


def test_a_host_that_no_rule_looked_at_is_not_called_free_of_stalls() -> None:
    report = analyze(timeline("host     python:run.py(1):_main@0..4000 python:run.py(7):_work@10..3000"))

    assert report.verdict.text == (
        "No verdict: no device activity was recorded, and of the host no framework operators were recorded"
    )


def test_a_loss_of_many_places_is_not_put_at_one() -> None:
    allocations = " ".join(
        f"python:net.py({i}):_f{i}@{200 * i}..{200 * i + 190} rt:cudaMalloc@{200 * i + 10}..{200 * i + 150} "
        f"rt:cudaLaunchKernel@{200 * i + 152}..{200 * i + 156}#{i + 1}"
        for i in range(12)
    )
    kernels = " ".join(f"kernel:k@{200 * i + 158}..{200 * i + 180}#{i + 1}" for i in range(12))
    report = analyze(timeline(f"host     {allocations}\nstream7  {kernels}"))

    (finding,) = [f for f in report.findings if f.code == "SY204"]
    assert "9.1 % of it in net.py:1 (f1)" in finding.title
