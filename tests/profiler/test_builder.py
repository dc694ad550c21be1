"""Batches in any order become sorted rows, call trees and launch links."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from stallscope.profiler.builder import TimelineBuilder
from stallscope.profiler.ids import NO_ID
from stallscope.profiler.kinds import Kind
from stallscope.profiler.timeline import ARG_INT, Timeline, Track
from support.lanes import timeline


def us(*values: int) -> npt.NDArray[np.int64]:
    return np.array(values, np.int64) * 1000


def build() -> TimelineBuilder:
    builder = TimelineBuilder()
    builder.add_track(Track("main", "host", process=10, thread=10))
    builder.add_track(Track("stream 7", "device", process=0, device=0, stream=7))
    return builder


def row_named(t: Timeline, name: str) -> int:
    return next(i for i in range(len(t)) if t.name(i) == name)


def test_rows_are_sorted_by_track_start_and_longer_first() -> None:
    builder = build()
    names = builder.strings.codes(["inner", "outer", "late"])
    builder.add(track=0, start_ns=us(5, 5, 50), dur_ns=us(10, 30, 1), name=names, kind=Kind.OPERATOR)

    t = builder.finish()

    assert [t.name(i) for i in range(3)] == ["outer", "inner", "late"]
    assert t.origin_ns == 5000
    assert t.spans.start_ns.tolist() == [0, 0, 45_000]
    assert t.spans.parent.tolist() == [-1, 0, -1]
    assert t.spans.self_ns.tolist() == [20_000, 10_000, 1000]


def test_one_graph_launch_starts_many_kernels() -> None:
    builder = build()
    launch = builder.strings.code("cudaGraphLaunch")
    kernel = builder.strings.code("gemm")
    builder.add(
        track=1, start_ns=us(20, 31, 42), dur_ns=us(10, 10, 10), name=kernel, kind=Kind.KERNEL, correlation=77
    )
    builder.add(track=0, start_ns=us(0), dur_ns=us(5), name=launch, kind=Kind.RUNTIME, correlation=77)

    t = builder.finish()

    assert {t.name(int(r)) for r in t.spans.launch_row[t.rows(Kind.KERNEL)]} == {"cudaGraphLaunch"}


def test_of_two_calls_with_one_correlation_id_the_earlier_is_the_launch() -> None:
    builder = build()
    names = builder.strings.codes(["urEnqueueKernelLaunch", "zeCommandListAppendLaunchKernel"])
    builder.add(track=0, start_ns=us(10, 12), dur_ns=us(20, 10), name=names, kind=Kind.RUNTIME, correlation=5)
    builder.add(track=1, start_ns=us(40), dur_ns=us(9), name=0, kind=Kind.KERNEL, correlation=5)

    t = builder.finish()

    assert t.name(int(t.spans.launch_row[t.rows(Kind.KERNEL)[0]])) == "urEnqueueKernelLaunch"


def test_a_kernel_without_correlation_is_linked_by_its_arrow() -> None:
    builder = build()
    host = builder.add(
        track=0, start_ns=us(0), dur_ns=us(5), name=builder.strings.code("launch"), kind=Kind.RUNTIME
    )
    work = builder.add(
        track=1, start_ns=us(9), dur_ns=us(5), name=builder.strings.code("k"), kind=Kind.KERNEL
    )
    builder.add_flows(host, work, builder.strings.code("ac2g"))

    t = builder.finish()

    assert t.spans.launch_row[t.rows(Kind.KERNEL)].tolist() == [row_named(t, "launch")]


def test_a_reader_may_say_the_link_itself() -> None:
    builder = build()
    names = builder.strings.codes(["by id", "by reader"])
    host = builder.add(
        track=0,
        start_ns=us(0, 6),
        dur_ns=us(5, 5),
        name=names,
        kind=Kind.RUNTIME,
        correlation=np.array([3, NO_ID]),
    )
    work = builder.add(track=1, start_ns=us(9), dur_ns=us(5), name=names[:1], kind=Kind.KERNEL, correlation=3)
    builder.link(host[1:], work)

    t = builder.finish()

    assert t.name(int(t.spans.launch_row[t.rows(Kind.KERNEL)[0]])) == "by reader"


def test_arguments_are_found_by_row_after_sorting() -> None:
    builder = build()
    name = builder.strings.code("op")
    events = builder.add(track=0, start_ns=us(30, 10, 20), dur_ns=us(1, 1, 1), name=name, kind=Kind.OPERATOR)
    builder.add_args(builder.sources(events), "bytes", ARG_INT, np.array([3, 1, 2]))

    t = builder.finish()

    assert t.arg_ints("bytes").tolist() == [1, 2, 3]
    assert t.arguments(2) == {"bytes": 3}


def test_a_python_frame_ends_with_its_caller() -> None:
    t = timeline("host python:caller@0..400 python:<built-in>@50..5000").timeline

    assert t.spans.end_ns.tolist() == [400_000, 400_000]
    assert t.spans.self_ns.tolist() == [50_000, 350_000]


def test_an_operator_that_outlives_its_parent_keeps_its_time_and_is_still_a_child() -> None:
    t = timeline("host op:aten::mul@0..20 rt:hipLaunchKernel@10..22").timeline

    assert t.spans.parent.tolist() == [-1, 0]
    assert t.spans.dur_ns.tolist() == [20_000, 12_000]
    assert t.spans.self_ns[0] == 10_000


def test_neighbours_that_overlap_by_rounding_are_siblings() -> None:
    builder = build()
    name = builder.strings.code("op")
    builder.add(
        track=0,
        start_ns=np.array([0, 9_750]),
        dur_ns=np.array([10_000, 9_000]),
        name=name,
        kind=Kind.OPERATOR,
    )

    assert builder.finish().spans.parent.tolist() == [-1, -1]
