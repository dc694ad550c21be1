"""Figures say what the report says, and stay small."""

from __future__ import annotations

from typing import Any

from stallscope.analyzers.finding import KernelTotal, Report, Step
from stallscope.exporters import charts
from stallscope.exporters.base import short_kernel


def test_device_time_sums_to_the_span(small_report: Report) -> None:
    [device] = small_report.devices
    parts = charts.device_parts(device)
    assert sum(parts.values()) == device.span_ns
    assert parts == {"compute": 28_000, "memset": 0, "collective": 10_000, "memcpy": 4_000, "idle": 88_000}

    figure = charts.breakdown(small_report.devices)

    assert figure is not None
    assert sum(trace["x"][0] for trace in figure["data"]) * 1000 == device.span_ns


def test_waterfall_steps_down_to_the_idle_time(small_report: Report) -> None:
    figure = charts.idle_waterfall(small_report.devices)

    assert figure is not None
    [bar] = figure["data"]
    assert bar["x"] == [54.0, 20.0, 8.0, 4.0, 2.0, 88.0]
    assert bar["base"] == [0.0, 54.0, 74.0, 82.0, 86.0, 0]
    assert figure["layout"]["yaxis"]["ticktext"][:2] == ["python", "sync"]


def test_kernels_beyond_the_top_are_one_bar() -> None:
    kernels = [KernelTotal(f"k{i}", 1, 1_000_000 * (100 - i)) for i in range(40)]

    figure = charts.top_kernels(kernels)

    assert figure is not None
    [bar] = figure["data"]
    assert len(bar["x"]) == charts.TOP_KERNELS + 1
    assert sum(bar["x"]) == sum(k.total_ns for k in kernels) / 1e6
    assert figure["layout"]["yaxis"]["ticktext"][-1] == "25 other names"


def test_two_kernels_with_one_short_name_keep_two_bars() -> None:
    kernels = [KernelTotal("void a::f<int>(int)", 1, 20), KernelTotal("void b::f<int>(int)", 1, 10)]

    figure = charts.top_kernels(kernels)

    assert figure is not None
    assert figure["data"][0]["y"] == [0, 1]
    assert figure["layout"]["yaxis"]["ticktext"] == ["f&lt;int&gt;", "f&lt;int&gt;"]


def test_steps_keep_the_extremes_of_what_is_not_drawn() -> None:
    found = [Step("decode", "decode", i * 1000, 100 + (i == 7_000) * 900, i) for i in range(10_000)]

    figure = charts.steps(found)

    assert figure is not None
    [line] = figure["data"]
    assert len(line["x"]) <= charts.MAX_MARKS
    assert max(line["y"]) == 1000


def roofline_row(**changes: Any) -> dict[str, Any]:
    row = {"operator": "aten::mm", "kernel": "gemm", "intensity": 10.0, "flops_per_s": 2e13, "bytes_per_s": 2e12,
           "bound": "memory", "total_ns": 5, "peak_flops_per_s": 1e15, "peak_bytes_per_s": 3e12}  # fmt: skip
    return row | changes


def test_roofline_draws_what_has_numbers_and_both_roofs() -> None:
    figure = charts.roofline([roofline_row(), roofline_row(intensity=None), roofline_row(flops_per_s=0)])

    assert figure is not None
    points, roof = figure["data"]
    assert (points["x"], points["y"]) == ([10.0], [20.0])
    assert roof["y"][1:] == [1000.0, 1000.0]
    assert roof["x"][1] == 1e15 / 3e12
    assert "2 rows have no FLOPs" in figure["caption"]


def test_roofline_without_peaks_has_no_roof() -> None:
    figure = charts.roofline([roofline_row(peak_flops_per_s=None, peak_bytes_per_s=None)])

    assert figure is not None
    assert [t["mode"] for t in figure["data"]] == ["markers"]


def test_no_numbers_no_figure() -> None:
    assert charts.breakdown([]) is None
    assert charts.idle_waterfall([]) is None
    assert charts.top_kernels([]) is None
    assert charts.roofline([roofline_row(intensity=None)]) is None
    assert charts.steps([Step("a", "decode", 0, 5)]) is None
    assert charts.ranking("operators", [{"name": "aten::mm"}]) is None


def test_short_names_are_what_people_call_a_kernel() -> None:
    assert (
        short_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL") == "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    )
    long = "void at::native::vectorized_elementwise_kernel<4, at::native::AUnaryFunctor<c10::BFloat16>>(int, char*)"
    assert short_kernel(long) == "vectorized_elementwise_kernel<4, AUnaryFunctor<BFloat16>>"
    assert short_kernel("triton_poi_fused_add_0") == "triton_poi_fused_add_0"
    assert short_kernel("") == ""


def test_host_tables_are_ranked_by_self_time_then_total_then_any_time() -> None:
    rows = [
        {"name": "a", "total_ns": 9_000_000, "self_ns": 2_000_000, "count": 3},
        {"name": "b", "self_ns": 4_000_000},
    ]
    figure = charts.ranking("operators", rows)
    assert figure is not None
    assert figure["data"][0]["x"] == [4.0, 2.0]
    assert figure["layout"]["yaxis"]["ticktext"] == ["b", "a"]

    figure = charts.ranking(
        "contention", [{"thread": "main", "waited_ns": None}, {"thread": "io", "waited_ns": 7_000}]
    )
    assert figure is not None
    assert (figure["title"], figure["data"][0]["x"]) == ("Host contention", [7.0])
