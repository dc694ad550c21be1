"""Files that are odd as a whole: traces that stand in them twice, zeros of a full disk, other tools' files."""

from __future__ import annotations

import gzip
import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.analyzers import analyze
from stallscope.profiler.errors import InputError
from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import load, trace_window
from stallscope.profiler.readers.ascend_table import canonical
from stallscope.profiler.readers.event_repair import IN_STRING
from support.events import call, count, kernel, op


def events(pairs: int = 5, start: float = 1000) -> list[dict[str, Any]]:
    out = []
    for i in range(pairs):
        ts = start + i * 30
        out += [op("aten::mm", ts, 12), call("cudaLaunchKernel", ts + 2, 5, i + 1), kernel(f"k{i}", ts + 10, 9, i + 1)]  # fmt: skip
    return out


def written(path: Path, data: bytes | str) -> Path:
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


# -- the same trace again ----------------------------------------------------------------------------

ONE = json.dumps({"baseTimeNanoseconds": 3, "traceEvents": events()})


@pytest.mark.parametrize("times", [2, 3])
@pytest.mark.parametrize("text", [ONE, json.dumps(events()), "\n" + ONE])
def test_a_trace_that_stands_in_the_file_again_counts_once(tmp_path: Path, times: int, text: str) -> None:
    session = load(written(tmp_path / "t.json.gz", gzip.compress((text * times).encode())))

    assert len(session.timeline) == 15
    assert len(session.timeline.rows(Kind.OPERATOR)) == 5
    note = session.notes.get("repeated-documents")
    assert note is not None and note.count == times - 1 and note.first == "event 15"
    several = session.notes.get("several-documents")
    assert several is not None and several.first.startswith("byte ")


@pytest.mark.parametrize(
    "other",
    [
        json.dumps({"baseTimeNanoseconds": 1_000_003, "traceEvents": events()}),
        json.dumps({"baseTimeNanoseconds": 3, "traceEvents": events(4)}),
        json.dumps({"baseTimeNanoseconds": 3, "traceEvents": events(5, 1001)}),
    ],
)
def test_a_trace_that_is_only_alike_counts(tmp_path: Path, other: str) -> None:
    session = load(written(tmp_path / "t.json", ONE + other))
    assert "repeated-documents" not in session.notes
    assert len(session.timeline) > 15


# -- zeros -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zeros", ["\0", "\0\0\0 \n", "\0" * 5000])
def test_zeros_between_events_are_no_lost_events(tmp_path: Path, zeros: str) -> None:
    text = json.dumps({"traceEvents": events()})
    for name, torn in {
        "between": text.replace("}, {", "}," + zeros + "{", 1),
        "before the comma": text.replace("}, {", "}" + zeros + ", {", 1),
        "at the end of what was written": text[:-2] + zeros,
    }.items():
        session = load(written(tmp_path / "t.json", torn))
        assert len(session.timeline) == 15, name
        assert count(session, "bad-event-skipped") == 0, name
        assert count(session, "file-cut") == 0, name
        assert count(session, "stray-zeros") == 1, name


def test_zeros_inside_of_an_event_cost_that_event(tmp_path: Path) -> None:
    text = json.dumps({"traceEvents": events()})
    at = text.index("k2")
    session = load(written(tmp_path / "t.json", text[:at] + "\0" * 300 + text[at + 40 :]))
    assert len(session.timeline) == 14
    assert count(session, "bad-event-skipped") + count(session, "skipped-elements") == 1


# -- places ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("phase", "code"), [("E", "stray-end"), ("e", "stray-async-end")])
def test_ends_without_a_begin_are_told_with_their_place(tmp_path: Path, phase: str, code: str) -> None:
    strays = [
        {"ph": phase, "cat": "c", "id": 1, "name": "x", "pid": 1, "tid": 1, "ts": 2000 - i} for i in range(3)
    ]
    session = load(written(tmp_path / "t.json", json.dumps(events() + strays)))
    note = session.notes.get(code)
    assert note is not None and (note.count, note.first) == (3, "event 15")


# -- numbers that nothing has ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "huge", ["9223372036854775807", "-9223372036854775808", "1e30", '"1e400"', "1e400", "[1]"]
)
def test_numbers_beyond_all_machines(tmp_path: Path, huge: str) -> None:
    text = json.dumps(
        {"baseTimeNanoseconds": "HUGE", "distributedInfo": {"rank": "HUGE"}, "traceEvents": events()}
    )
    text = text.replace('"device": 0', '"device": "HUGE"').replace('"HUGE"', huge)
    session = load(written(tmp_path / "t.json", text))
    report = analyze(session)

    assert len(session.timeline) == 15 and report.verdict.text
    assert session.facts.get("rank") is None
    assert session.timeline.origin_ns == 1_000_000
    again = load(session.save(tmp_path / "t.stallscope"))
    assert len(again.timeline) == 15


def with_length(dur_us: float, at: int = 2) -> list[dict[str, Any]]:
    """Five kernels, of which the one at this place says that it took so long."""
    out = events()
    kernels = [e for e in out if e["cat"] == "kernel"]
    kernels[at]["dur"] = dur_us
    return out


@pytest.mark.parametrize("dur_us", [2**32 - 1, 3.6e9, 2.5e7])
def test_a_kernel_that_lies_about_its_end(tmp_path: Path, dur_us: float) -> None:
    """Others begin on its stream while it is said to run, and all of the recording is a sliver of it."""
    path = written(tmp_path / "t.json", json.dumps(with_length(dur_us)))
    session = load(path)
    note = session.notes.get("invalid-duration")

    assert note is not None and (note.count, note.first) == (1, "event 8: k2")
    assert int(session.timeline.spans.end_ns.max()) < 1_000_000
    assert count(session, "stream-overlap") == 0
    assert (
        trace_window.read_window(path, 60_000, 100_000) is None
    )  # a part does not know how long the whole is


@pytest.mark.parametrize(
    "trace",
    [
        with_length(2.5e7, at=4),  # the last of its stream may run on
        with_length(5e6),  # short enough to be true
        [*with_length(2.5e7), op("late", 1e7, 5)],  # the recording is long as well
        [{**e, "tid": i} if e["cat"] == "kernel" else e for i, e in enumerate(with_length(2.5e7))],
    ],
)
def test_long_kernels_that_can_be_true(tmp_path: Path, trace: list[dict[str, Any]]) -> None:
    for e in trace:
        e.get("args", {}).pop("stream", None)
    session = load(written(tmp_path / "t.json", json.dumps(trace)))
    assert "invalid-duration" not in session.notes
    assert int(session.timeline.spans.dur_ns.max()) >= 5 * 10**9


# -- without end -------------------------------------------------------------------------------------


@pytest.mark.parametrize("levels", [11_000, 200_000])
@pytest.mark.parametrize("opening", ['{"a":', "["])
def test_facts_that_nest_without_end_are_passed_over(tmp_path: Path, levels: int, opening: str) -> None:
    text = '{"m": ' + opening * levels + ', "traceEvents": ' + json.dumps(events()) + "}"
    session = load(written(tmp_path / "t.json", text))
    assert len(session.timeline) == 15 and count(session, "bad-metadata") >= 1


@given(st.text('"\\ab\n', max_size=12).map(str.encode))
def test_a_string_ends_at_its_first_bare_quote(text: bytes) -> None:
    end = next((i for i in range(len(text)) if text[i : i + 1] == b'"' and _escapes(text, i) % 2 == 0), None)
    found = re.match(rb"(" + IN_STRING + rb')"', text, re.DOTALL)
    assert (found[1] if found else None) == (None if end is None else text[:end])


def _escapes(text: bytes, at: int) -> int:
    """How many backslashes stand right before a byte."""
    return len(text[:at]) - len(text[:at].rstrip(b"\\"))


# -- what is no trace --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "data", "what", "step"),
    [
        ("snapshot.json", '{"segments": [], "device_traces": [[]]}', "snapshot of PyTorch's memory", "export_chrome_trace"),
        ("p.json", '{"$schema": "https://www.speedscope.app/x.json", "profiles": []}', "sampled CPU profile", "stallscope run"),
        ("p.cpuprofile", '{"nodes": [{"id": 1, "callFrame": {}}], "samples": []}', "sampled CPU profile", "stallscope run"),
        ("p.pftrace", b"\n\x1fR\x0b\x08\x00\xff" * 50, "Perfetto trace in its binary form", "traceconv json"),
        ("memory.json", "[[17], [[0, 0, 0]]]", "memory timeline", "export_chrome_trace"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("packed", [False, True])
def test_files_of_other_tools_are_named(
    tmp_path: Path, name: str, data: bytes | str, what: str, step: str, packed: bool
) -> None:
    raw = data.encode() if isinstance(data, str) else data
    path = written(tmp_path / (name + ".gz" * packed), gzip.compress(raw) if packed else raw)
    with pytest.raises(InputError) as error:
        load(path)
    assert what in str(error.value) and step in str(error.value)


def test_standard_input_is_no_file() -> None:
    with pytest.raises(InputError, match=r"standard input, which can be read only once. Save it to a file"):
        load("-")


def test_a_line_of_blanks_costs_no_time() -> None:
    begun = time.process_time()
    assert canonical(" x" + " " * 200_000 + "y") == (f"x{' ' * 200_000}y", "")
    assert canonical("a (b) (us)") == ("a (b)", "us") and canonical("a(b)c") == ("a(b)c", "")
    assert time.process_time() - begun < 5  # a pattern that tries each blank with all behind it takes hours
