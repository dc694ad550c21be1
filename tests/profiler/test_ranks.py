"""Joining finished timelines: clocks, strings, links, arguments, texts on disk."""

from __future__ import annotations

import numpy as np

from stallscope.profiler.builder import TimelineBuilder
from stallscope.profiler.ids import encode_id
from stallscope.profiler.kinds import Kind
from stallscope.profiler.ranks import join_ranks
from stallscope.profiler.timeline import ARG_SPILLED, ARG_STRING, ArgStore, Timeline, Track

BASE = 1_700_000_000_000_000_000


class Texts:
    """Texts on disk, as a tokeniser keeps them: a place is offset << 24 | length."""

    def __init__(self, data: str) -> None:
        self.data = data
        self.size = len(data)

    def read(self, place: int) -> str:
        at = place >> 24
        return self.data[at : at + (place & 0xFFFFFF)]


def rank(number: int, at: int, name: str, spilled: str = "") -> Timeline:
    """One launch of one kernel, with a text argument each, starting `at` ns after BASE."""
    builder = TimelineBuilder()
    strings = builder.strings
    strings.code(f"filler of rank {number}")
    host = builder.add_track(Track("main", "host", number, 100 + number, "Python", thread=1))
    device = builder.add_track(Track("Stream 2", "device", number, device=0, stream=2))
    ident = encode_id("same text id", strings)
    calls = builder.add(track=host, start_ns=np.array([BASE + at]), dur_ns=np.array([10]), name=strings.code("launch"),
                        kind=Kind.RUNTIME, correlation=ident)  # fmt: skip
    works = builder.add(track=device, start_ns=np.array([BASE + at + 20]), dur_ns=np.array([30]), name=strings.code(name),
                        kind=Kind.KERNEL, correlation=ident)  # fmt: skip
    builder.link(calls, works)
    builder.add_flows(calls, works, strings.code("arrow"))
    builder.add_args(builder.sources(works), "Type", ARG_STRING, np.array([strings.code(f"type {name}")]))
    builder.add_counters(np.array([BASE + at]), strings.code("MHz"), device, np.array([1800.0]))
    builder.add_marks(np.array([BASE + at + 5]), strings.code(f"mark {number}"), host)
    timeline = builder.finish(clock="realtime")
    if spilled:
        args = timeline.args
        timeline.args = ArgStore(strings, [*args.keys, "Stack"], np.append(args.event, args.event[-1]).astype(np.int32),
                                 np.append(args.key, len(args.keys)).astype(np.uint16),
                                 np.append(args.tag, ARG_SPILLED).astype(np.uint8),
                                 np.append(args.value, (3 << 24) | (len(spilled) - 3)), Texts(spilled))  # fmt: skip
    return timeline


def test_ranks_keep_their_times_links_and_texts() -> None:
    joined = join_ranks([rank(0, 1_000, "gemm"), rank(1, 0, "add"), rank(2, 5_000, "gemm")])
    assert joined.origin_ns == BASE and joined.clock == "realtime"
    kernels = joined.rows(Kind.KERNEL).tolist()
    assert [joined.name(r) for r in kernels] == ["gemm", "add", "gemm"]
    assert joined.spans.start_ns[kernels].tolist() == [1_020, 20, 5_020]
    for row in kernels:
        launch = int(joined.spans.launch_row[row])
        assert joined.name(launch) == "launch"
        assert joined.track_of(launch).rank == joined.track_of(row).rank
        assert joined.correlation(row) == "same text id"
        assert joined.arguments(row) == {"Type": f"type {joined.name(row)}"}
    assert [joined.name(int(r)) for r in joined.flows.to_row] == ["gemm", "add", "gemm"]
    assert [joined.strings[int(c)] for c in joined.marks.name] == ["mark 0", "mark 1", "mark 2"]
    assert joined.counters.time_ns.tolist() == [1_000, 0, 5_000]
    assert [joined.tracks[int(t)].rank for t in joined.counters.track] == [0, 1, 2]


def test_texts_on_disk_stay_with_their_rank() -> None:
    joined = join_ranks([rank(0, 0, "a", "xx first"), rank(1, 0, "b"), rank(2, 0, "c", "yyysecond text")])
    stacks = [joined.arguments(r).get("Stack") for r in joined.rows(Kind.KERNEL).tolist()]
    assert stacks == ["first", None, "second text"]


def test_one_part_and_empty_parts() -> None:
    only = rank(0, 0, "a")
    empty = TimelineBuilder().finish()
    assert join_ranks([empty, only]) is only
    assert len(join_ranks([empty, empty])) == 0
