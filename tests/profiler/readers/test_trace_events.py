"""The tokenisers: exact columns, the same from every implementation, and one bad event costs one event."""

from __future__ import annotations

import json
import os
import random
import tempfile
from collections.abc import Callable, Iterable
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stallscope.profiler import kernels
from stallscope.profiler.errors import InputError
from stallscope.profiler.ids import NO_ID, decode_id
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers import source, trace_events
from stallscope.profiler.readers.event_fallback import PythonEngine
from stallscope.profiler.readers.event_part import Part, Sieve
from stallscope.profiler.readers.trace_events import (
    Engine,
    RawEvents,
    Threads,
    decimal_ns,
    tokenise,
    tokenise_chunks,
)
from stallscope.profiler.timeline import ARG_SPILLED, NO_TIME

PATH = Path("trace.json")
COMPILED = ["avx2", "sse2", "word"]


def usable(isa: str) -> bool:
    if kernels.core is None:
        return False
    try:
        kernels.core.Tokeniser(None, isa=isa)
    except ValueError:
        return False
    return True


ENGINES = [
    pytest.param(isa, marks=pytest.mark.skipif(not usable(isa), reason=f"no compiled parser for {isa} here"))
    for isa in COMPILED
] + ["python", "mending"]
every_engine = pytest.mark.parametrize("engine", ENGINES)
FAST = "" if kernels.core is not None else "python"


def read(text: bytes | str, engine: str = FAST, chunk: int | None = None, **options: Any) -> RawEvents:
    data = text.encode() if isinstance(text, str) else text
    pieces: Iterable[bytes] = [data]
    if chunk:
        pieces = (data[at : at + chunk] for at in range(0, len(data), chunk))
    return read_chunks(pieces, engine, PATH, **options)


def read_chunks(pieces: Iterable[bytes], engine: str, path: Path, part: Part | None = None) -> RawEvents:
    notes = Notes()
    if engine in ("python", "mending"):
        python: Engine = PythonEngine(notes, always_mend=engine == "mending")
        sieve = python if part is None else Sieve(python, part, notes)
        return tokenise_chunks(pieces, path, notes=notes, engine=sieve)
    return tokenise_chunks(pieces, path, notes=notes, isa=engine, part=part)


def rows(raw: RawEvents) -> list[dict[str, Any]]:
    """The events as plain dicts, without what is missing."""
    texts = raw.strings.texts
    out = []
    for i in range(len(raw)):
        row: dict[str, Any] = {
            "ph": chr(raw.ph[i]) if raw.ph[i] else None,
            "name": texts[raw.name[i]] if raw.name[i] >= 0 else None,
            "cat": texts[raw.cat[i]] if raw.cat[i] >= 0 else None,
            "ts": int(raw.ts_ns[i]) if raw.ts_ns[i] != NO_TIME else None,
            "dur": int(raw.dur_ns[i]) if raw.dur_ns[i] != NO_TIME else None,
            "pid": decode_id(int(raw.pids(i)), texts),
            "tid": decode_id(int(raw.tids(i)), texts),
            "id": decode_id(int(raw.id[i]), texts),
            "args": raw.args.of(i) or None,
        }
        out.append({key: value for key, value in row.items() if value is not None})
    return out


def names(raw: RawEvents) -> list[str]:
    return [row.get("name", "") for row in rows(raw)]


def codes(raw: RawEvents) -> dict[str, int]:
    return {note.code: note.count for note in raw.notes}


def event(name: str = "a", ts: float = 1, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "pid": 1, "tid": 2, "ts": ts, "dur": 3, **more}


def wrapped(*events: str) -> str:
    return '{"schemaVersion": 1, "traceEvents": [\n' + ",\n".join(events) + '\n], "traceName": "x"}'


# -- values -----------------------------------------------------------------------------------------


@every_engine
def test_every_field_of_an_event(engine: str) -> None:
    raw = read(
        """{"displayTimeUnit": "ms", "traceEvents": [
        {"ph": "X", "cat": "kernel", "name": "gemm \\"x\\" \\u00e9", "pid": 0, "tid": "stream 7",
         "ts": "1695122369466466.780", "dur": 12.5, "id": "0x1f",
         "args": {"correlation": 18446744073709551617, "n": -4, "x": 0.1, "ok": true, "no": false, "none": null,
                  "Input Dims": [[4, 8], []], "what": "txt", "o": {"a": [1]}}},
        {"ph": "M", "name": "process_name", "pid": "Spans", "args": {"name": "python"}}
        ], "deviceProperties": [{"id": 0, "name": "GPU"}], "baseTimeNanoseconds": 1767225600000000000}""",
        engine,
    )
    assert rows(raw) == [
        {
            "ph": "X",
            "cat": "kernel",
            "name": 'gemm "x" é',
            "pid": 0,
            "tid": "stream 7",
            "ts": 1695122369466466780,
            "dur": 12500,
            "id": "0x1f",
            "args": {
                "correlation": 18446744073709551617,
                "n": -4,
                "x": 0.1,
                "ok": True,
                "no": False,
                "none": None,
                "Input Dims": [[4, 8], []],
                "what": "txt",
                "o": {"a": [1]},
            },
        },
        {"ph": "M", "name": "process_name", "pid": "Spans", "args": {"name": "python"}},
    ]
    assert raw.meta == {
        "displayTimeUnit": "ms",
        "deviceProperties": [{"id": 0, "name": "GPU"}],
        "baseTimeNanoseconds": 1767225600000000000,
    }
    assert raw.top_level == "object"
    assert list(raw.notes) == []


@pytest.mark.parametrize(
    ("text", "nanoseconds"),
    [
        ("0", 0),
        ("1000", 1_000_000),
        ("1736405443871413.640", 1736405443871413640),
        ("1.7364054438714136e15", 1736405443871413600),
        ("0.0004", 0),
        ("0.0005", 1),
        ("0.00049999", 0),
        ("-0.0015", -2),
        ("-3.5", -3500),
        ("12e3", 12_000_000),
        ("5E-3", 5),
        ("49e-5", 0),
        ("5e-4", 1),
        ("9223372036854775.807", 9223372036854775807),
        ("9223372036854775.808", NO_TIME),
        ("99999999999999999999", NO_TIME),
        ("1e400", NO_TIME),
        ("0e400", 0),
        ("1e-400", 0),
        ('"1060.25"', 1060250),
        ('" 7 "', 7000),
        ('".5"', 500),
        ('"x"', NO_TIME),
        ('""', NO_TIME),
        ("null", NO_TIME),
        ("true", NO_TIME),
        ("[1]", NO_TIME),
        ("{}", NO_TIME),
        ("NaN", NO_TIME),
        ("-inf", NO_TIME),
        ("1.#INF", NO_TIME),
    ],
)
@every_engine
def test_times_are_exact(text: str, nanoseconds: int, engine: str) -> None:
    assert decimal_ns(text) == nanoseconds
    raw = read('[{"ph": "X", "ts": ' + text + ', "dur":' + text + "}]", engine)
    assert (raw.ts_ns.tolist(), raw.dur_ns.tolist()) == ([nanoseconds], [nanoseconds])


@every_engine
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.from_regex(r"-?(?:0|[1-9][0-9]{0,19})(?:\.[0-9]{1,22})?(?:[eE][+-]?[0-9]{1,2})?", fullmatch=True),
        min_size=1,
        max_size=20,
    )
)
def test_any_decimal_number(engine: str, numbers: list[str]) -> None:
    raw = read("[" + ",".join(f'{{"ph":"X","ts":{n},"args":{{"v":{n}}}}}' for n in numbers) + "]", engine)
    for i, text in enumerate(numbers):
        exact = (
            (Decimal(text) * 1000).quantize(Decimal(1), ROUND_HALF_UP)
            if abs(Decimal(text)) < 10**17
            else None
        )
        wanted = int(exact) if exact is not None and abs(exact) < 1 << 63 else NO_TIME
        assert raw.ts_ns[i] == wanted, text
        value = raw.args.of(i)["v"]
        plain = json.loads(text)
        assert (value, type(value)) == (plain, type(plain)), text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-5", -5),
        ('"7"', 7),
        ('"07"', "07"),
        ('"-7"', -7),
        ("7.0", 7),
        ("1e3", 1000),
        ("7.5", "7.5"),
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", 9223372036854775808),
        ('"9223372036854775808"', 9223372036854775808),
        ("-9223372036854775808", -9223372036854775808),
        ('"99999999999999999999999"', 99999999999999999999999),
        ("true", 1),
        ("null", None),
        ('""', ""),
        ('{"local": "0x3"}', '{"local": "0x3"}'),
    ],
)
@every_engine
def test_ids_stay_what_they_are(text: str, value: Any, engine: str) -> None:
    raw = read('[{"ph": "b", "pid": ' + text + ', "tid":' + text + ', "id" : ' + text + " }]", engine)
    for column in (raw.pids(slice(None)), raw.tids(slice(None)), raw.id):
        assert decode_id(int(column[0]), raw.strings.texts) == value


@every_engine
def test_threads_are_numbered_once(engine: str) -> None:
    raw = read(
        '[{"pid":1,"tid":2},{"pid":1,"tid":3},{"ph":"X"},{"pid":1,"tid":2},{"pid":7},{"tid":"a"},{"tid":3,"pid":1}]',
        engine,
    )
    assert raw.thread.tolist() == [0, 1, -1, 0, 2, 3, 1]
    assert raw.pids(slice(None)).tolist() == [1, 1, NO_ID, 1, 7, NO_ID, 1]
    assert raw.tids(raw.thread >= 0).tolist()[:4] == [2, 3, 2, NO_ID]
    assert len(raw.threads) == 4 and decode_id(int(raw.threads.tid[3]), raw.strings.texts) == "a"


def test_pairs_of_columns_become_threads() -> None:
    none = NO_ID
    threads, code = Threads.of(np.array([5, none, 5, none, 6]), np.array([1, none, 1, 1, none]))
    assert code.tolist() == [0, -1, 0, 1, 2] and code.dtype == np.int32
    assert threads.pid[code].tolist() == [5, none, 5, none, 6]
    assert threads.tid[code].tolist() == [1, none, 1, 1, none]


@every_engine
def test_the_second_form_of_id_and_repeated_keys(engine: str) -> None:
    raw = read(
        '[{"ph": "b", "id2": {"local": "0x1"}}, {"ph":"b","id":4,"id2":5}, '
        '{"ph":"X","ph":"i","ts":1,"ts":2,"args":{"a":1},"args":{"b":2}}]',
        engine,
    )
    assert [row.get("id") for row in rows(raw)] == ['{"local": "0x1"}', 4, None]
    assert rows(raw)[2] == {"ph": "i", "ts": 2000, "args": {"b": 2}}


@every_engine
def test_names_that_are_no_text_are_kept_as_written(engine: str) -> None:
    raw = read(
        '[{"ph":"X","name":12.50,"cat":true},{"ph":"X","name":null,"cat":[1, 2]},{"ph":"XY"},{"ph":3}]',
        engine,
    )
    assert rows(raw) == [
        {"ph": "X", "name": "12.50", "cat": "true"},
        {"ph": "X", "cat": "[1, 2]"},
        {"ph": "X"},
        {},
    ]


@every_engine
def test_elements_that_are_no_events_keep_their_row(engine: str) -> None:
    raw = read('[{}, null, "text", 12, -1.5e3, [1, [2]], true, {"ph": "X", "ts": 1}, {}]', engine)
    assert raw.ph.tolist() == [0, 0, 0, 0, 0, 0, 0, ord("X"), 0]
    assert list(raw.notes) == []


@every_engine
def test_equal_texts_have_one_code_however_they_are_written(engine: str) -> None:
    raw = read('[{"ph":"X","name":"a\\u0041\\/"},{"name":"aA/"},{"cat":"a\\u0041/"}]', engine)
    assert raw.name.tolist()[:2] == [raw.cat[2]] * 2
    assert len(set(raw.strings.texts)) == len(raw.strings.texts)


# -- the text around -----------------------------------------------------------------------------------

BODY = '{"ph":"X","name":"a","ts":1},\n{"ph":"X","name":"b","ts":2}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"[{BODY}]", {}),
        (f"\n\n  [\n{BODY}\n]\n", {}),
        (f"[{BODY},]", {}),
        (f"[{BODY}", {}),  # the format allows it
        (f"[{BODY},\n", {}),
        (f'{{"traceEvents": [{BODY}]}}', {}),
        (f'\n{{"a": {{"traceEvents": [1]}}, "b": [[{{}}]], "traceEvents": [{BODY}], "c": "]"}}\n', {}),
        (f'{{"traceEvents": [{BODY}', {"list-not-closed": 1}),
        (f'{{"traceEvents": [{BODY}]', {"document-not-closed": 1}),
        (f'{{"traceEvents": [{BODY}], "x": 1', {"bad-metadata": 1}),
        (f'{{"x": {{"y": 1]}}, "traceEvents": [{BODY}]}}', {"bad-metadata": 1}),
        (f'{{"traceEvents": [{BODY}]}} trailing', {"trailing-text": 1}),
        (f"[{BODY}]\0\0\0", {}),
        (BODY, {}),
        (BODY.replace(",\n", "\n"), {}),
    ],
)
@every_engine
def test_shapes_of_a_file(text: str, expected: dict[str, int], engine: str) -> None:
    for chunk in (None, 7):
        raw = read(text, engine, chunk)
        assert names(raw) == ["a", "b"]
        assert codes(raw) == expected


@every_engine
def test_several_documents_are_moved_to_one_base(engine: str) -> None:
    text = "".join(
        json.dumps({"baseTimeNanoseconds": base, "traceEvents": [event(name, 1)], "rank": name})
        for base, name in ((1_000_000, "a"), (1_005_000, "b"))
    )
    raw = read(text + json.dumps([event("c", 1)]), engine)
    assert names(raw) == ["a", "b", "c"]
    assert raw.ts_ns.tolist() == [1000, 6000, 1000 - 1_000_000]
    assert raw.meta["baseTimeNanoseconds"] == 1_000_000
    assert codes(raw) == {"several-documents": 2}


@every_engine
def test_two_lists_in_one_document(engine: str) -> None:
    raw = read(f'{{"traceEvents": [{BODY}], "x": 1, "traceEvents": [{BODY}]}}', engine)
    assert names(raw) == ["a", "b", "a", "b"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty file"),
        (" \n", "empty file"),
        ("{}", "without traceEvents"),
        ('{"a": 1}', "without traceEvents"),
        ('{"traceEvents": {}}', "traceEvents is no list"),
        ("hello, world", "a table of text"),
        ("not a trace", "no trace"),
        ("[[1, 2, 3, 4], [5, 6, 7, 8]]", "memory timeline"),
        ('{"schema": "1.0.1", "pid": 1, "nodes": [{"id": 1, "ctrl_deps": 0}]}', "execution trace"),
        ('{"rocprofiler-sdk-tool": []}', "rocprofv3"),
        ('["a", "b"]', "without traceEvents"),
        ("[1, 2]", "without traceEvents"),
        ("\x80\x04\x95", "pickle"),
    ],
)
@every_engine
def test_files_that_are_no_trace_are_named(text: str, said: str, engine: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read(text.encode("latin-1"), engine)
    assert caught.value.next_step


@every_engine
def test_an_empty_list_is_a_trace_without_events(engine: str) -> None:
    assert len(read('{"traceEvents": []}', engine)) == 0
    assert len(read("[]", engine)) == 0


# -- damage ---------------------------------------------------------------------------------------------

GOOD = json.dumps(event("before"))
AFTER = json.dumps(event("after"))


@pytest.mark.parametrize(
    ("bad", "name", "code"),
    [
        ('{"ph": "X", "name": "f", "ts": 2, tid": 0, "pid": "CUDA functions"}', "f", "bad-event-repaired"),
        ('{"ph": "X", "name": "say "hi" there", "ts": 2}', 'say "hi" there', "bad-event-repaired"),
        ('{"ph": "X", "name": "f, "ts": 2}', "f", "bad-event-repaired"),
        ('{"ph": "X", "name": f", "ts": 2}', "f", "bad-event-repaired"),
        ('{"ph": "X", "name": "f", "ts": 2, "args": {"p": "D:\\runs\\"}}', "f", "bad-event-repaired"),
        ('{"ph": "X", "name": "f", "ts": 2, "args": {"a": [1, 2, "b": 3}}', "f", "bad-event-repaired"),
        ('{"ph": "X", "name": "f", "ts": 2, "args": {"a": 1}', "f", "bad-event-repaired"),
        ('{"ph": "X", "name": "f" "ts": 2}', "f", "bad-event-repaired"),
        ('{"ph": "X", "name": "f", "ts": 2,}', "f", "bad-event-repaired"),
        ('{"ph": "X", "name": "f", "ts": , "dur": None}', "f", "bad-event-repaired"),
        ('"ph": "X", "name": "f", "ts": 2}', "f", "bad-event-repaired"),
        ('{"ph": "X", "name": "f", "ts": 2}}', "f", "stray-bracket"),
        ('[{"ph": "X", "name": "f", "ts": 2}', "f", "stray-bracket"),
        ('{"ph": "X", "name": "f", "ts": 2, "args": {"x": nan, "y": -Infinity}}', "f", "not-finite"),
        ('{"ph": "X", "name": "f", "ts": 2, "args": {"x": [1, inf]}}', "f", "bad-argument"),
        (
            '{"ph": "X", "name": "C:\\tmp\\new\\base.py(3): f", "ts": 2}',
            "C:\\tmp\\new\\base.py(3): f",
            "bad-escape",
        ),
        (
            '{"ph": "X", "name": "torch\\nn\\functional.py(9): f"}',
            "torch\\nn\\functional.py(9): f",
            "bad-escape",
        ),
        ('{"ph": "X", "name": "D:\\runs\\_x"}', "D:\\runs\\_x", "bad-escape"),
        ('{"ph": "X", "name": "x\\ud800y", "ts": 2}', "x\N{REPLACEMENT CHARACTER}y", "bad-escape"),
        ('{"ph": "X", "name": "a\nb\x01", "ts": 2}', "a\nb\x01", "control-character"),
        ('{"ph": "X", "name": "f", "args": {"d": ' + "[" * 400 + "]" * 400 + "}}", "f", "too-deep"),
        ('{"ph": "X", "name": ' + "{" * 30 + '"', None, "bad-event-skipped"),
        ("%%%% rubbish", None, "bad-event-skipped"),
    ],
)
@every_engine
def test_one_bad_event_costs_at_most_itself(bad: str, name: str | None, code: str, engine: str) -> None:
    for chunk in (None, 11):
        raw = read(wrapped(GOOD, bad, AFTER), engine, chunk)
        assert names(raw) == ["before", *([name] if name is not None else []), "after"]
        note = raw.notes.get(code)
        assert note is not None
        if engine not in ("python", "mending"):  # which know it only for whole events
            kind, number = note.first.split()
            assert int(number) >= (1 if kind == "event" else wrapped(GOOD, bad, AFTER).index(bad[:4]))
        assert raw.meta["traceName"] == "x"


@every_engine
def test_bytes_that_are_no_utf8(engine: str) -> None:
    raw = read(b'[{"ph":"X","name":"k\xff\xc3(\xe2\x82_v1","ts":1,"args":{"s":"\xed\xa0\x80"}}]', engine)
    assert names(raw) == [b"k\xff\xc3(\xe2\x82_v1".decode("utf-8", "replace")]
    assert codes(raw) == {"bad-utf8": 2}
    assert json.dumps(rows(raw), ensure_ascii=False).encode()


@every_engine
def test_a_path_that_swallows_the_end_of_the_file(engine: str) -> None:
    raw = read('{"traceEvents": [' + GOOD + '],\n"traceName": "D:\\runs\\"\n}', engine)
    assert names(raw) == ["before"]
    assert codes(raw) == {"bad-metadata": 1}


@every_engine
def test_every_cut_keeps_the_whole_events(engine: str) -> None:
    items = [json.dumps(event(f"e{i}", i, args={"x": [i, {"y": "z"}], "s": 'q"'})) for i in range(4)]
    text = wrapped(*items)
    starts = [text.index(item) for item in items]
    ends = [start + len(item) for start, item in zip(starts, items, strict=True)]
    for cut in range(starts[0], ends[-1] + 1):
        raw = read(text[:cut], engine)
        assert names(raw) == [f"e{i}" for i in range(sum(end <= cut for end in ends))], text[cut - 20 : cut]
        inside = any(start < cut < end for start, end in zip(starts, ends, strict=True))
        assert ("file-cut" in raw.notes) == inside


@every_engine
def test_a_list_that_was_closed_too_early_goes_on(engine: str) -> None:
    raw = read('{"traceEvents": [' + GOOD + "],\n" + AFTER + '], "traceName": "x"}', engine)
    assert names(raw) == ["before", "after"]
    assert codes(raw) == {"list-interrupted": 1}


@every_engine
def test_an_event_where_every_event_is_damaged(engine: str) -> None:
    bad = [f'{{"ph": "X", "name": "f{i}", "ts": {i}, tid": 0}}' for i in range(500)]
    raw = read(wrapped(*bad), engine, 997)
    assert names(raw) == [f"f{i}" for i in range(500)]
    assert codes(raw) == {"bad-event-repaired": 500}


MUTATIONS = [b'"', b"\\", b"{", b"}", b"[", b"]", b",", b":", b"\n", b"\xff", b"a", b"0", b"."]


@settings(max_examples=400, deadline=None)
@given(st.integers(0, 10**9))
def test_one_wrong_byte_costs_one_event_at_most(seed: int) -> None:
    rng = random.Random(seed)
    layout = rng.choice([None, 1, 2])
    events = [
        event(
            f'op{i} "q"' if i % 4 == 0 else f"op{i}",
            10 * i,
            args={"n": i, "d": [[1], [2]], "o": {"a": [{"name": 1}]}},
        )
        for i in range(10)
    ]
    text = json.dumps({"a": 1, "traceEvents": events, "traceName": "x.json"}, indent=layout).encode()
    at = rng.randrange(text.index(b'"ph"') + 4, len(text) - 30)
    byte = rng.choice(MUTATIONS)
    how = rng.choice(["delete", "insert", "replace"])
    text = text[:at] + (b"" if how == "delete" else byte) + text[at + (how != "insert") :]
    raw = read(text)
    wanted = {e["name"] for e in events}
    assert len(wanted - set(names(raw))) <= 1
    assert same_values(raw, read(text, "python"))
    assert same_values(raw, read(text, chunk=rng.choice([1, 17, 300])))


# -- equality of the implementations ----------------------------------------------------------------------


def same_values(a: RawEvents, b: RawEvents) -> bool:
    assert rows(a) == rows(b)
    assert a.meta == b.meta
    return True


texts = st.text(max_size=12) | st.sampled_from(
    ["aten::mm", "stream 7", "C:\\x", 'q"', "\ud7ff", "a,b}]", "\\"]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3)
)
ids = st.integers(-(2**65), 2**65) | texts
events = st.fixed_dictionaries(
    {},
    optional={
        "ph": st.sampled_from("XBEMisfC"),
        "name": texts,
        "cat": texts,
        "pid": ids,
        "tid": ids,
        "id": ids,
        "ts": st.integers(-(10**16), 10**16) | st.decimals(-(10**9), 10**15, places=3).map(float),
        "dur": st.integers(0, 10**9) | st.floats(0, 1e9),
        "args": st.dictionaries(texts, values, max_size=5),
        "s": texts,
        "other": values,
    },
)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(events, max_size=12),
    st.dictionaries(texts.filter(lambda k: k != "traceEvents"), values, max_size=3),
    st.sampled_from([None, 0, 2]),
    st.booleans(),
    st.integers(1, 400),
)
def test_all_engines_agree_with_the_library_on_valid_files(
    items: list[dict[str, Any]], meta: dict[str, Any], indent: int | None, ascii_only: bool, chunk: int
) -> None:
    text = json.dumps({**meta, "traceEvents": items}, indent=indent, ensure_ascii=ascii_only)
    reference = read(text)
    assert list(reference.notes) == []
    assert len(reference) == len(items)
    for item, row in zip(json.loads(text)["traceEvents"], rows(reference), strict=True):
        assert row.get("args", {}) == item.get("args", {})
        for key in ("name", "cat"):
            assert row.get(key) == item.get(key)
        for key in ("pid", "tid", "id"):
            assert str(row.get(key)) == str(item.get(key))
    for param in ENGINES:
        engine = param if isinstance(param, str) else str(param.values[0])
        if engine in COMPILED and not usable(engine):
            continue
        other = read(text, engine, chunk)
        assert same_values(reference, other)
        assert list(other.notes) == []


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=300), st.integers(1, 50))
def test_any_bytes_end_in_columns_or_a_sentence(data: bytes, chunk: int) -> None:
    for prefix in (b"", b'{"traceEvents": [', b'[{"ph":"X","name":"'):
        results = []
        for engine, size in ((FAST, None), (FAST, chunk), ("python", None)):
            try:
                results.append(len(read(prefix + data, engine, size)))
            except InputError as error:
                results.append(-1)
                assert "\n" not in str(error)
        assert results[0] == results[1]


def corpus(shared: Path, largest: int) -> list[Path]:
    files = [p for p in sorted((shared / "traces").glob("*/*.json*")) if p.stat().st_size <= largest]
    return files + sorted((shared / "cases").glob("*.json*"))


def check_corpus(files: list[Path], engines: list[str]) -> None:
    checked = 0
    for path in files:
        try:
            reference = tokenise(path)
        except InputError as error:
            for engine in engines:
                with pytest.raises(InputError, match=r".") as caught:
                    read_chunks(source.Source(path).chunks(), engine, path)
                assert str(caught.value) == str(error)
            continue
        for engine in engines:
            other = read_chunks(source.Source(path).chunks(), engine, path)
            assert_same_columns(reference, other)
        checked += len(reference)
    assert checked > 1000


def assert_same_columns(a: RawEvents, b: RawEvents) -> None:
    """Equal columns where codes may be numbered differently."""
    to_b = np.array([b.strings.find(text) for text in a.strings.texts] + [-1], np.int64)
    np.testing.assert_array_equal(a.ph, b.ph)
    np.testing.assert_array_equal(to_b[a.name], b.name)
    np.testing.assert_array_equal(to_b[a.cat], b.cat)
    np.testing.assert_array_equal(a.ts_ns, b.ts_ns)
    np.testing.assert_array_equal(a.dur_ns, b.dur_ns)
    of_all = slice(None)
    ids = ((a.pids(of_all), b.pids(of_all)), (a.tids(of_all), b.tids(of_all)), (a.id, b.id))
    for left, right in ids:
        text = (left <= -(1 << 62)) & (left != NO_TIME)
        moved = left.copy()
        moved[text] = -(1 << 62) - to_b[-(1 << 62) - left[text]]
        np.testing.assert_array_equal(moved, right)
    keys = np.array([b.args.keys.index(key) for key in a.args.keys], np.int64)
    np.testing.assert_array_equal(a.args.event, b.args.event)
    np.testing.assert_array_equal(keys[a.args.key] if len(keys) else a.args.key, b.args.key)
    np.testing.assert_array_equal(a.args.tag, b.args.tag)
    coded = np.isin(a.args.tag, (2, 3, 5))
    np.testing.assert_array_equal(to_b[a.args.value[coded]], b.args.value[coded])
    np.testing.assert_array_equal(a.args.value[~coded], b.args.value[~coded])
    np.testing.assert_array_equal(a.args.wide, b.args.wide)
    assert a.meta == b.meta
    assert {note.code for note in a.notes} == {note.code for note in b.notes}


def usable_engines() -> list[str]:
    return [isa for isa in COMPILED if usable(isa)] + ["python", "mending"]


@pytest.mark.shared
def test_all_engines_agree_on_small_real_traces(shared: Path) -> None:
    check_corpus(corpus(shared, 60_000), usable_engines())


@pytest.mark.shared
@pytest.mark.slow
def test_all_engines_agree_on_all_real_traces(shared: Path) -> None:
    """The compiled engines on every file; the slow ones on what they read in reasonable time, or, with
    STALLSCOPE_WHOLE_COLLECTION set, on every file too (half an hour)."""
    no_limit = bool(os.environ.get("STALLSCOPE_WHOLE_COLLECTION"))
    limits = {"python": 400_000, "mending": 60_000}
    for engine in usable_engines():
        check_corpus(corpus(shared, 1 << 40 if no_limit else limits.get(engine, 1 << 40)), [engine])


# -- bounds ----------------------------------------------------------------------------------------------


@every_engine
def test_only_the_window_is_kept(engine: str) -> None:
    items = [event(f"e{i}", 10 * i, dur=5, args={"i": i, "wide": i << 40}) for i in range(10)]
    items.append({"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "p"}})
    raw = read(json.dumps(items), engine, part=Part(25_000, 40_000))
    assert names(raw) == ["e2", "e3", "e4", "process_name"]
    assert [raw.args.of(i) for i in range(4)] == [
        *({"i": i, "wide": i << 40} for i in (2, 3, 4)),
        {"name": "p"},
    ]
    assert raw.args.wide.tolist() == [i << 40 for i in (2, 3, 4)]
    assert codes(raw) == {"outside-window": 7}


@every_engine
def test_what_a_part_keeps_from_everywhere(engine: str) -> None:
    items = [
        event("launch", 1, dur=1, args={"correlation": 7}),
        event("other launch", 1, dur=1, args={"correlation": 8, "stream": 7, "bytes": 1 << 33, "share": 0.5}),
        event("wide launch", 1, dur=1, args={"correlation": 1 << 33}),
        event("operator", 1, dur=1, args={"External id": 7}),
        event("text id", 1, dur=1, args={"correlation": "7"}),
        event("caller", 2, dur=4),
        event("ends on the point", 2, dur=1),
        event("begins on the point", 3, dur=1),
        event("before the point", 1, dur=1),
        {"ph": "i", "name": "Record Window End", "ts": 1},
        {"ph": "i", "name": "[memory]", "cat": "cpu_instant_event", "ts": 1},
        {"ph": "s", "name": "arrow", "ts": 1},
        {"ph": "C", "name": "counter", "ts": 1},
        *({"ph": phase, "name": phase, "ts": 1} for phase in "BEbeSF"),
        {"name": "no phase", "ts": 1},
        event("inside", 100, dur=5),
    ]
    part = Part(100_000, 200_000, np.array([9, 7, 1 << 33, 9]), np.array([3_000, 50_000]))
    raw = read(json.dumps(items), engine, part=part)

    assert names(raw) == ["launch", "wide launch", "operator", "caller", "ends on the point", "begins on the point",
                          "Record Window End", *"BEbeSF", "no phase", "inside"]  # fmt: skip
    assert raw.outside == len(items) - len(raw)
    assert raw.firsts == {"": 1000}


@every_engine
def test_the_earliest_start_of_each_category(engine: str) -> None:
    items = [
        {"ph": "X", "cat": "a", "ts": 5, "dur": 1},
        {"ph": "X", "cat": "a", "ts": 3},
        {"ph": "B", "cat": "b", "ts": 9},
        {"ph": "E", "cat": "b", "ts": 1},
        {"ph": "i", "cat": "a", "ts": 1},
        {"ph": "X", "cat": "c", "ts": "nan", "dur": 2},
        {"ph": "X", "ts": -2, "dur": 1},
    ]
    nothing = Part(NO_TIME + 1, NO_TIME + 1)
    assert read(json.dumps(items), engine, part=nothing).firsts == {"a": 3000, "b": 9000, "": -2000}
    assert read(json.dumps(items), engine).firsts is None

    lost = {"ph": "X", "cat": "kernel", "ts": 0, "dur": 0}
    assert read(json.dumps([*items, lost]), engine, part=nothing).firsts is None
    many = [{"ph": "X", "cat": f"c{i}", "ts": 1 + i, "dur": 1} for i in range(64)]
    assert len(read(json.dumps(many), engine, part=nothing).firsts or {}) == 64
    assert read(json.dumps([*many, *items]), engine, part=nothing).firsts is None


@every_engine
def test_argument_texts_beyond_the_budget_go_to_disk(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_events, "TEXT_BUDGET", 1000)
    items = [event(args={"stack": f"{i} " + "frame;" * 20, "short": f"s{i}"}) for i in range(50)]
    raw = read(json.dumps(items), engine)
    assert (raw.args.tag == ARG_SPILLED).sum() > 30
    assert sum(map(len, raw.strings.texts)) < 3000
    assert [raw.args.of(i) for i in range(50)] == [e["args"] for e in items]


@every_engine
def test_a_hundred_thousand_argument_names(engine: str) -> None:
    items = [{"ph": "C", "ts": 1, "args": {f"k{i * 100 + j}": 1 for j in range(100)}} for i in range(1000)]
    raw = read(json.dumps(items), engine)
    assert len(raw.args.keys) == 65535
    assert codes(raw)["too-many-arguments"] == 100_000 - 65535


@every_engine
def test_a_long_event_and_a_long_fact(engine: str) -> None:
    text = json.dumps({"x": ["y" * 100] * 30_000, "traceEvents": [event(args={"s": "z" * 3_000_000})]})
    raw = read(text, engine, 100_000)
    assert len(raw.args.of(0)["s"]) == 3_000_000
    assert len(raw.meta["x"]) == 30_000


def test_columns_of_many_empty_events_stay_small() -> None:
    if kernels.core is None:
        pytest.skip("the compiled core was not built")
    raw = read(b"[" + b"{}," * 1_200_000 + b'{"ph":"i"}]')
    assert len(raw) == 1_200_001
    assert raw.ts_ns.strides == (0,)


# -- files ------------------------------------------------------------------------------------------------


def test_progress_reaches_the_end(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps([event()] * 20_000))
    seen: list[float] = []
    assert len(tokenise(path, progress=seen.append)) == 20_000
    assert seen == sorted(seen)
    assert seen[-1] == 1.0


def test_a_missing_file_is_an_input_error() -> None:
    with pytest.raises(InputError, match="cannot be read"):
        tokenise(Path(tempfile.gettempdir()) / "no such trace.json")


def test_the_compiled_tokeniser_refuses_to_be_entered_twice() -> None:
    if kernels.core is None:
        pytest.skip("the compiled core was not built")
    calls: list[Callable[[bytes], object]] = []

    class Helper:
        def repair(self, window: bytes, offset: int, final: bool) -> tuple[int, bytes]:
            calls[0](b"[]")
            return len(window), b""

    core = kernels.core.Tokeniser(Helper())
    calls.append(core.feed)
    core.begin(0)
    with pytest.raises(RuntimeError, match="already at work"):
        core.feed(b'{"ph": oops}, ' * 20)


def test_errors_of_the_helper_come_through() -> None:
    if kernels.core is None:
        pytest.skip("the compiled core was not built")

    class Helper:
        def repair(self, window: bytes, offset: int, final: bool) -> tuple[int, bytes]:
            raise KeyError("mine")

    core = kernels.core.Tokeniser(Helper())
    core.begin(0)
    with pytest.raises(KeyError, match="mine"):
        core.feed(b'{"ph": oops}, ' * 20)
