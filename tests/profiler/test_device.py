"""Interval classes and gap classes, worked out by hand on drawn timelines."""

from __future__ import annotations

import pytest

from stallscope.analyzers import analyze
from stallscope.profiler import intervals
from stallscope.profiler.device import device_views, whole_view
from support.lanes import timeline


def test_the_four_classes_and_what_is_exposed() -> None:
    view = whole_view(
        timeline(
            """
            stream7 kernel:gemm@0..40 memset:Memset@60..65 kernel:gemm@90..100
            stream9 coll:ncclDevKernel_AllReduce@30..80 memcpy:Memcpy_DtoH@70..85
            """
        ).timeline
    )

    assert view.span_ns == 100_000
    assert view.busy_ns == 95_000
    assert view.idle_ns == 5_000
    assert intervals.length(view.compute) == 50_000
    assert intervals.length(view.collective) == 50_000
    assert intervals.length(view.memcpy) == 15_000
    # 30..80 less the kernel until 40 and the memset 60..65
    assert intervals.length(view.exposed_collective) == 35_000
    # 70..85 less the collective until 80
    assert intervals.length(view.exposed_memcpy) == 5_000


def test_every_gap_class() -> None:
    view = whole_view(
        timeline(
            """
            host    rt:cudaLaunchKernel@2..4#10 rt:cudaLaunchKernel@5..7#11 rt:cudaLaunchKernel@200..205#12
            stream7 kernel:old@0..10#3 kernel:older@15..20#4 kernel:queued@30..40#10 kernel:waited@90..100#11
            stream7 kernel:hosted@210..220#12 kernel:stray@250..260#99
            """
        ).timeline
    )

    assert view.gaps.totals() == {
        "host": 110_000,
        "queued_short": 10_000,
        "queued_long": 50_000,
        "launched_before_recording": 5_000,
        "unknown": 30_000,
    }
    assert sum(view.gaps.totals().values()) == view.idle_ns
    assert view.gaps.counts()["host"] == 1


def test_a_launch_that_begins_with_the_gap_was_already_on_its_way() -> None:
    drawing = """
        host    rt:cudaLaunchKernel@{launch}..{end}#1
        stream7 kernel:first@0..10#7 kernel:second@25..30#1
        """
    at_the_gap = whole_view(timeline(drawing.format(launch=10, end=12)).timeline)
    after_it = whole_view(timeline(drawing.format(launch=11, end=13)).timeline)

    assert at_the_gap.gaps.totals()["queued_short"] == 15_000
    assert after_it.gaps.totals()["host"] == 15_000


def test_annotations_waits_and_overhead_are_never_work() -> None:
    view = whole_view(
        timeline(
            """
            stream7 kernel:a@0..20 gmark:decode@0..100 wait:event@20..80 kernel:b@80..100
            host    overhead:flush@20..70
            """
        ).timeline
    )

    assert (view.busy_ns, view.idle_ns) == (40_000, 60_000)


def test_devices_are_kept_apart_and_united_for_the_headline() -> None:
    session = timeline(
        """
        stream7      kernel:a@0..10 kernel:a@30..40
        gpu1.stream7 kernel:b@5..35
        """
    )
    views = device_views(session.timeline)

    assert {number: view.idle_ns for number, view in views.items()} == {0: 20_000, 1: 0}
    assert whole_view(session.timeline).idle_ns == 0
    assert whole_view(session.timeline).busy_ns == 40_000


def test_an_empty_kernel_splits_a_gap_without_filling_it() -> None:
    view = whole_view(timeline("stream7 kernel:a@0..10 kernel:empty@15..15 kernel:b@30..40").timeline)

    assert view.idle_ns == 20_000
    assert view.gaps.dur_ns.tolist() == [5_000, 15_000]


@pytest.mark.parametrize("drawing", ["host op:aten::mm@0..10", "stream7 kernel:a@0..10"])
def test_a_trace_without_gaps_or_without_a_device_has_no_idle_time(drawing: str) -> None:
    report = analyze(timeline(drawing))

    assert report.headline.idle_ns == 0
    assert all(sum(d.idle_classes.values()) == 0 for d in report.devices)


@pytest.mark.shared
def test_idle_classes_sum_to_idle_on_real_traces(shared: object) -> None:
    from pathlib import Path

    from stallscope.profiler.readers import load

    folder = Path(str(shared)) / "traces"
    for name in ("qwen15-hf-h100", "sglang-decode-mi300x", "vllm-piecewise-mi300x", "cudagraph-v100-2022"):
        for file in sorted((folder / name).iterdir()):
            for device in analyze(load(file)).devices:
                assert sum(device.idle_classes.values()) == device.idle_ns
                assert sum(device.gap_classes.values()) == device.idle_ns
