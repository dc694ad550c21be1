"""Roofline verdicts on a chip with round numbers: 100 TFLOP/s, 1 TB/s, 10 cores, 1 MiB cache."""

from __future__ import annotations

import pytest

from stallscope.analyzers.models.call import Basis, Cost, Unit
from stallscope.analyzers.models.chips import Chip, Figure
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.roofline import RooflinePoint, roofline

CHIP = Chip("round", "NVIDIA", "round",
            {"bf16": Figure(1e14, "test"), "fp32": Figure(1e13, "test"), "tf32": Figure(5e13, "test")},
            Figure(1e12, "test"), None, 10, None, Figure(1e13, "test"), 1 << 20)  # fmt: skip
"""A balanced kernel has 100 FLOP per byte; 100 us are 10 GFLOP or 100 MB."""

US = 1000


def cost(gflop: float, megabytes: float, *, dtype: str = "bf16", basis: Basis = "shapes", unit: Unit = "matrix",
         family: Family = Family.GEMM) -> Cost:  # fmt: skip
    return Cost(
        int(gflop * 1e9),
        int(megabytes * 1e6),
        0,
        dtype,
        family,
        basis,
        "why" if basis != "shapes" else "",
        unit,
    )


def place(work: Cost, microseconds: float, kernel: str = "", blocks: int | None = None) -> RooflinePoint:
    return roofline(work, int(microseconds * US), CHIP, kernel=kernel, blocks=blocks)


@pytest.mark.parametrize(
    ("work", "verdict", "roof", "share"),
    [
        (cost(9, 10), "compute-bound", "compute", 0.9),
        (cost(1, 90), "memory-bound", "memory", 0.9),
        (cost(7, 30), "compute-bound", "compute", 0.7),
        (cost(3, 70), "memory-bound", "memory", 0.7),
        (cost(5.9, 50), "inefficient", "compute", 0.59),
        (cost(1, 30), "inefficient", "memory", 0.3),
        (cost(11, 10), "model-or-clock-fault", "compute", 1.1),
        (cost(1, 111), "model-or-clock-fault", "memory", 1.11),
        # exactly on the limits
        (cost(8, 0), "compute-bound", "compute", 0.8),
        (cost(6, 0), "compute-bound", "compute", 0.6),
        (cost(10.5, 0), "compute-bound", "compute", 1.05),
    ],
)
def test_verdicts_at_100_us(work: Cost, verdict: str, roof: str, share: float) -> None:
    point = place(work, 100)
    assert (point.verdict, point.roof) == (verdict, roof)
    assert point.share == pytest.approx(share)
    assert point.reason


def test_numbers_of_a_point() -> None:
    point = place(cost(1, 30), 100)
    assert point.intensity == pytest.approx(1e9 / 30e6)
    assert point.flops_per_s == pytest.approx(1e13) and point.bytes_per_s == pytest.approx(3e11)
    assert point.compute_share == pytest.approx(0.1) and point.memory_share == pytest.approx(0.3)
    assert point.floor_ns == 30 * US
    # at 80 % of the roof it would take 30 / 0.8 = 37.5 us
    assert point.gain_ns == 62_500
    assert place(cost(1, 90), 100).gain_ns == 0
    assert point.peak_flops is not None and point.peak_bytes is not None and point.peak_bytes.source == "test"


def test_small_grids_and_short_kernels_are_latency_bound() -> None:
    assert place(cost(1, 30), 100, blocks=9).verdict == "latency-bound"
    assert place(cost(1, 30), 100, blocks=10).verdict == "inefficient"
    assert place(cost(0.01, 3), 9.9).verdict == "latency-bound"
    assert "9 blocks on 10 cores" in place(cost(1, 30), 100, blocks=9).reason
    # a full roof is a full roof, however short
    assert place(cost(0, 0.9), 1).verdict == "memory-bound"


def test_a_lower_bound_proves_a_roof_but_never_the_lack_of_one() -> None:
    low = place(cost(1, 30, basis="lower bound"), 100)
    assert low.verdict == "unknown" and low.gain_ns is None and "lower bound" in low.reason
    reached = place(cost(1, 85, basis="lower bound"), 100)
    assert reached.verdict == "memory-bound" and reached.gain_ns is None
    assert place(cost(1, 30, basis="expected"), 100).verdict == "inefficient"


def test_impossible_shares_carry_a_reason_and_no_gain() -> None:
    by_cache = place(cost(0, 2), 1)
    assert (
        by_cache.verdict == "model-or-clock-fault" and "cache" in by_cache.reason and by_cache.gain_ns is None
    )
    by_far = place(cost(0, 200), 100)
    assert "model, clock or chip" in by_far.reason
    too_many = place(cost(20, 0, basis="expected"), 100)
    assert "expected cost" in too_many.reason


def test_fp32_products_may_run_as_tf32() -> None:
    work = cost(0.9, 1, dtype="fp32")
    assert place(work, 100).verdict == "unknown"  # 90 % of FP32 or 18 % of TF32
    assert place(work, 100, "ampere_sgemm_128x64_tn").verdict == "compute-bound"
    told = place(work, 100, "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n")
    assert told.verdict == "inefficient" and told.dtype == "tf32" and told.share == pytest.approx(0.18)
    assert "TF32" in place(cost(2, 1, dtype="fp32"), 100).reason


def test_elementwise_work_uses_the_vector_rate() -> None:
    point = place(cost(0.5, 20, unit="vector", family=Family.ELEMENTWISE), 100)
    assert point.compute_share == pytest.approx(0.5)


def test_unknown_peaks_give_no_verdict_on_that_roof() -> None:
    point = place(cost(1, 30, dtype="fp8"), 100)
    assert point.verdict == "unknown" and point.compute_share is None and "fp8" in point.reason
    assert place(cost(1, 90, dtype="fp8"), 100).verdict == "memory-bound"


@pytest.mark.parametrize(
    ("point", "word"),
    [
        (roofline(cost(1, 1), 0, CHIP), "duration"),
        (roofline(cost(1, 1), 1000, None), "chip"),
        (roofline(cost(0, 1, family=Family.COLLECTIVE), 1000, CHIP), "links"),
        (
            roofline(cost(0, 1, family=Family.COPY), 1000, CHIP, kernel="Memcpy HtoD (Pageable -> Device)"),
            "host",
        ),
        (roofline(cost(0, 0), 1000, CHIP), "peak"),
    ],
)
def test_what_has_no_place_under_the_roof(point: RooflinePoint, word: str) -> None:
    assert point.verdict == "unknown" and word in point.reason
    assert point.share is None and point.floor_ns is None and point.gain_ns is None
