"""Arguments in long form: what is wider than 32 bits comes back as it was, wherever the arguments go."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stallscope.profiler.builder import TimelineBuilder
from stallscope.profiler.readers import chrome_trace
from stallscope.profiler.timeline import ARG_FLOAT, ARG_INT, ARG_STRING, ArgStore, StringTable

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
ENTRIES = st.lists(
    st.tuples(
        st.integers(0, 9),
        st.one_of(
            st.tuples(st.just(ARG_INT), st.one_of(st.integers(-9, 9), INT64)),
            st.tuples(st.just(ARG_FLOAT), INT64),
            st.tuples(st.just(ARG_STRING), st.integers(0, 2)),
        ),
    ),
    max_size=20,
)
Entries = list[tuple[int, tuple[int, int]]]


def store(strings: StringTable, entries: Entries) -> ArgStore:
    entries.sort(key=lambda e: e[0])
    event = np.array([e for e, _ in entries], np.int32)
    tag = np.array([t for _, (t, _) in entries], np.uint8)
    value = np.array([v for _, (_, v) in entries], np.int64)
    return ArgStore(strings, ["k"], event, np.zeros(len(event), np.uint16), tag, value)


def told(args: ArgStore) -> Entries:
    tag, value = (column.tolist() for column in args.entries())
    assert args.value.dtype == np.int32
    return list(zip(args.event.tolist(), zip(tag, value, strict=True), strict=True))


@given(ENTRIES)
def test_values_come_back_as_they_were_given(entries: Entries) -> None:
    args = store(StringTable("abc"), entries)

    assert told(args) == entries
    assert told(args.part(np.arange(len(args))[::2], args.event[::2])) == entries[::2]


@given(st.lists(ENTRIES, min_size=1, max_size=4))
def test_joined_stores_keep_their_values(parts: list[Entries]) -> None:
    strings = StringTable("abc")

    assert told(ArgStore.joined([store(strings, part) for part in parts])) == [e for p in parts for e in p]


@given(ENTRIES, ENTRIES)
def test_arguments_put_between_others_keep_their_values(entries: Entries, more: Entries) -> None:
    args = store(StringTable("abc"), entries)
    builder = TimelineBuilder(args.strings, args)
    for event, (tag, value) in more:
        builder.add_args(np.array([event]), "k", tag, np.array([value]))
    expected = sorted([*entries, *sorted(more, key=lambda e: e[0])], key=lambda e: e[0])

    assert told(builder._all_args()) == expected


def test_ids_of_more_than_32_bits_are_found(tmp_path: Path) -> None:
    ids = [7, 1 << 33, -(1 << 40), (1 << 63) - 1]
    events = [{"ph": "X", "name": "a", "ts": 10 * i, "dur": 5, "pid": 1, "tid": 1,
               "args": {"External id": number, "share": 0.5}} for i, number in enumerate(ids)]  # fmt: skip
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": events}))
    timeline = chrome_trace.read(path).timeline

    assert timeline.spans.external_id.tolist() == ids
    assert timeline.args.ids_at("External id", np.array([3, 0])).tolist() == [ids[3], 7]
    assert timeline.args.codes("External id", 4)[1] == ids
    assert timeline.arguments(3) == {"External id": (1 << 63) - 1, "share": 0.5}
