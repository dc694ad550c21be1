"""A session on disk is the same session, and opens in other tools."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from click.testing import CliRunner

from stallscope.cli.main import cli
from stallscope.profiler import session_tables
from stallscope.profiler.errors import InputError
from stallscope.profiler.readers import load, trace_events
from stallscope.profiler.session import INFO_FILE, READER_VERSION, Session
from stallscope.profiler.timeline import ARG_BIGINT, Timeline

TABLES = ["spans", "args", "counters", "flows", "allocations", "marks"]
ARGUMENTS = ["event", "key", "tag", "value"]


def texts(t: Timeline, codes: npt.NDArray[np.int32]) -> list[str]:
    return [t.strings[int(c)] if c >= 0 else "" for c in codes]


def same(a: Timeline, b: Timeline) -> None:
    for table in TABLES:
        left, right = getattr(a, table), getattr(b, table)
        columns = ARGUMENTS if table == "args" else [field.name for field in dataclasses.fields(left)]
        for name in columns:
            if name in ("name", "category"):
                assert texts(a, getattr(left, name)) == texts(b, getattr(right, name))
            elif isinstance(getattr(left, name), np.ndarray):
                assert np.array_equal(getattr(left, name), getattr(right, name)), name


def test_round_trip(small_session: Session, tmp_path: Path) -> None:
    again = load(small_session.save(tmp_path / "one.stallscope"))

    same(small_session.timeline, again.timeline)
    assert again.timeline.tracks == small_session.timeline.tracks
    assert again.timeline.origin_ns == small_session.timeline.origin_ns
    assert again.facts == small_session.facts
    assert list(again.notes) == list(small_session.notes)
    for row in range(len(again.timeline)):
        assert again.timeline.arguments(row) == small_session.timeline.arguments(row)


def test_tables_in_several_groups_of_rows_are_put_together(
    small_session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import pyarrow.parquet as pq

    monkeypatch.setattr(session_tables, "_ROWS", 7)
    folder = small_session.save(tmp_path / "groups.stallscope")
    assert pq.ParquetFile(folder / "spans.parquet").num_row_groups > 1
    same(small_session.timeline, load(folder).timeline)


def test_saving_the_loaded_session_gives_the_same_tables(small_session: Session, tmp_path: Path) -> None:
    first = small_session.save(tmp_path / "a.stallscope")
    second = Session.load(first).save(tmp_path / "b.stallscope")

    assert (first / INFO_FILE).read_text() == (second / INFO_FILE).read_text()
    same(Session.load(first).timeline, Session.load(second).timeline)


def test_other_tools_read_the_tables(small_session: Session, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    duckdb = pytest.importorskip("duckdb")
    polars = pytest.importorskip("polars")
    spans = small_session.save(tmp_path / "s.stallscope") / "spans.parquet"
    busy = int(small_session.timeline.spans.dur_ns.sum())

    assert int(pandas.read_parquet(spans)["dur_ns"].sum()) == busy
    assert duckdb.sql(f"select sum(dur_ns)::bigint from '{spans}'").fetchall() == [(busy,)]
    assert polars.read_parquet(spans)["dur_ns"].sum() == busy
    assert "gemm" in set(pandas.read_parquet(spans)["name"])


def test_an_existing_folder_is_not_overwritten(small_session: Session, tmp_path: Path) -> None:
    small_session.save(tmp_path / "s.stallscope")

    with pytest.raises(InputError, match="exists already"):
        small_session.save(tmp_path / "s.stallscope")
    small_session.save(tmp_path / "s.stallscope", force=True)


def test_it_can_be_saved_over_itself(small_session: Session, tmp_path: Path) -> None:
    folder = small_session.save(tmp_path / "s.stallscope")

    load(folder).save(folder, force=True)

    same(small_session.timeline, load(folder).timeline)


def test_texts_that_were_put_on_disk_are_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_events, "TEXT_BUDGET", 10)
    texts = [f"a long text of its own, with number {i}" for i in range(5000)]
    source = trace(tmp_path / "t.json", [event(i, args={"x": text}) for i, text in enumerate(texts)])

    again = load(load(source).save(tmp_path / "t.stallscope")).timeline

    assert (tmp_path / "t.stallscope" / "spilled.parquet").exists()
    assert [again.arguments(row)["x"] for row in range(len(again))] == texts


def test_a_second_save_leaves_no_table_of_the_first(
    small_session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_events, "TEXT_BUDGET", 10)
    source = trace(
        tmp_path / "t.json",
        [event(i, args={"x": f"a long text of its own, with number {i}"}) for i in range(50)],
    )
    folder = load(source).save(tmp_path / "t.stallscope")
    small_session.save(folder, force=True)

    assert not (folder / "spilled.parquet").exists()
    assert not list(folder.glob("*.part"))
    same(small_session.timeline, load(folder).timeline)


# -- refused, with a sentence ----------------------------------------------------------------------


def edited(folder: Path, **changes: Any) -> Path:
    info = json.loads((folder / INFO_FILE).read_text())
    (folder / INFO_FILE).write_text(json.dumps(info | changes))
    return folder


@pytest.fixture
def saved(small_session: Session, tmp_path: Path) -> Path:
    return small_session.save(tmp_path / "s.stallscope")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": 99}, "saved by a newer stallscope .session format 99, this one reads 1.. Update"),
        ({"version": 0}, "saved by another stallscope .session format 0"),
        ({"version": "x" * 500}, "saved by another stallscope"),
        ({"version": None}, "saved by another stallscope"),
        ({"format": "some.other"}, "is not a stallscope session"),
        ({"reader": READER_VERSION + 1}, "saved by another stallscope .reader version"),
        ({"kinds": {"0": "something else"}}, "saved by another stallscope"),
        ({"kinds": {"77": "later"}}, "saved by another stallscope"),
        ({"tracks": [{"name": 3}]}, "is damaged"),
        ({"tracks": [[]]}, "is damaged"),
        ({"tracks": []}, "do not fit together"),
        ({"notes": [{"code": "x", "severity": "bad", "text": ""}]}, "is damaged"),
        ({"facts": []}, "is damaged"),
        ({"facts": {"devices": 5}}, "is damaged"),
        ({"facts": {"devices": {"0": "x"}}}, "is damaged"),
        ({"facts": {"rank": "x"}}, "is damaged"),
        ({"facts": {"windows": [3]}}, "is damaged"),
        ({"origin_ns": 10**30}, "is damaged"),
        ({"origin_ns": "0"}, "is damaged"),
        ({"tables": {"spans": {"rows": 7, "key": ""}}}, "not the table that was saved with the session"),
        ({"tables": {"args": {}}}, "is damaged"),
    ],
)
def test_a_session_of_another_time_or_tool(saved: Path, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        load(edited(saved, **changes))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500 + len(str(saved))


@pytest.mark.parametrize("damage", ["{", "[]", '{"format": "else"}', "[" * 100_000, "\0", '"text"'])
def test_a_damaged_info_file_is_refused_with_a_sentence(saved: Path, damage: str) -> None:
    (saved / INFO_FILE).write_text(damage)

    with pytest.raises(InputError, match="Analyse the original trace again"):
        load(saved)


@pytest.mark.parametrize("name", [*TABLES, "strings"])
def test_a_damaged_table_is_refused_with_a_sentence(saved: Path, name: str) -> None:
    (saved / f"{name}.parquet").write_bytes(b"PAR1 nothing")

    with pytest.raises(InputError, match="cannot be read"):
        load(saved)


@pytest.mark.parametrize("name", [*TABLES, "strings"])
def test_a_missing_table_is_refused_with_a_sentence(saved: Path, name: str) -> None:
    (saved / f"{name}.parquet").unlink()

    with pytest.raises(InputError, match=f"{name}.parquet: cannot be read"):
        load(saved)


@pytest.mark.parametrize("name", TABLES)
def test_a_table_of_another_session_is_refused(saved: Path, name: str) -> None:
    other = "flows" if name == "spans" else "spans"
    (saved / f"{name}.parquet").write_bytes((saved / f"{other}.parquet").read_bytes())
    edited(saved, tables={})

    with pytest.raises(InputError, match="Analyse the original trace again"):
        load(saved).timeline.args.of(0)


def test_a_table_of_a_like_session_is_refused(small_session: Session, saved: Path, tmp_path: Path) -> None:
    small_session.timeline.spans.start_ns[5] += 1
    other = small_session.save(tmp_path / "other.stallscope")
    (saved / "spans.parquet").write_bytes((other / "spans.parquet").read_bytes())

    with pytest.raises(InputError, match="not the table that was saved with the session"):
        load(saved)


@pytest.mark.parametrize("name", ["spans", "args", "strings"])
def test_a_flipped_byte_is_noticed_or_harmless(small_session: Session, saved: Path, name: str) -> None:
    path = saved / f"{name}.parquet"
    good = path.read_bytes()
    refused = 0
    for at in range(4, len(good), 7):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        try:
            again = load(saved).timeline
            texts_of = [again.arguments(row) for row in range(len(again))]
        except InputError:
            refused += 1
            continue
        same(small_session.timeline, again)
        assert texts_of == [small_session.timeline.arguments(row) for row in range(len(again))]
    assert refused > 20


def test_arguments_are_read_when_asked_for_and_then_refused(saved: Path) -> None:
    path = saved / "args.parquet"
    data = bytearray(path.read_bytes())
    data[40] ^= 0xFF
    path.write_bytes(data)
    session = load(saved)

    assert len(session.timeline) > 0
    with pytest.raises(InputError, match=r"args.parquet: cannot be read"):
        session.timeline.args.of(0)


def broken(table: str, column: str, row: int, value: int) -> Callable[[Timeline], None]:
    def change(timeline: Timeline) -> None:
        getattr(getattr(timeline, table), column)[row] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        broken("spans", "parent", 3, 3),
        broken("spans", "parent", 3, 10**6),
        broken("spans", "parent", 3, -2),
        broken("spans", "launch_row", 3, 21),
        broken("spans", "track", 0, 50),
        broken("spans", "kind", 0, 100),
        broken("spans", "kind", 0, -1),
        broken("spans", "source", 0, (1 << 31) - 1),
        broken("spans", "dur_ns", 0, -5),
        broken("spans", "dur_ns", 0, (1 << 63) - 1),
        broken("spans", "start_ns", 0, 10**9),
        broken("marks", "track", 0, 50),
        broken("counters", "track", 0, 50),
        broken("args", "event", 0, (1 << 31) - 1),
        broken("args", "event", 0, -1),
        broken("args", "key", 0, 600),
        broken("args", "tag", 0, 9),
    ],
)
def test_numbers_that_point_nowhere_are_refused(
    small_session: Session, tmp_path: Path, change: Callable[[Timeline], None]
) -> None:
    change(small_session.timeline)
    folder = small_session.save(tmp_path / "forged.stallscope")

    with pytest.raises(InputError, match=r"do not fit together|does not fit the session"):
        load(folder).timeline.args.of(0)


@pytest.mark.parametrize(
    ("column", "value"), [("correlation", -(1 << 62) - 5000), ("external_id", 1 - (1 << 63))]
)
def test_ids_are_read_when_asked_for_and_then_refused(
    small_session: Session, tmp_path: Path, column: str, value: int
) -> None:
    broken("spans", column, 0, value)(small_session.timeline)
    spans = load(small_session.save(tmp_path / "forged.stallscope")).timeline.spans

    with pytest.raises(InputError, match=f"spans.parquet: {column} out of range"):
        spans.ids_at(column, np.array([1]))
    with pytest.raises(InputError, match=f"{column} out of range"):
        getattr(spans, column)


def test_ids_read_later_are_those_that_were_saved(small_session: Session, tmp_path: Path) -> None:
    known = small_session.timeline.spans
    spans = load(small_session.save(tmp_path / "s.stallscope")).timeline.spans
    rows = np.array([5, 0, 5])
    for column in ("correlation", "external_id"):
        assert column not in vars(spans)
        assert spans.ids_at(column, rows).tolist() == getattr(known, column)[rows].tolist()
        assert getattr(spans, column).tolist() == getattr(known, column).tolist()


def test_an_integer_that_is_none_is_refused(small_session: Session, tmp_path: Path) -> None:
    args = small_session.timeline.args
    args.tag[0], args.value[0] = ARG_BIGINT, args.strings.code("12abc")
    folder = small_session.save(tmp_path / "forged.stallscope")

    with pytest.raises(InputError, match="an integer is none"):
        load(folder).timeline.args.of(0)


def test_tables_larger_than_their_files_are_refused(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLSCOPE_MAX_BYTES", "1000")

    with pytest.raises(InputError, match="far larger than their files"):
        load(saved)


def test_an_unfinished_save_is_named(saved: Path) -> None:
    (saved / INFO_FILE).unlink()

    with pytest.raises(InputError, match="a session whose saving was never finished"):
        load(saved)


def test_a_save_that_breaks_off_leaves_no_session(
    small_session: Session, saved: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(session_tables, "write", full)
    with pytest.raises(OSError, match="No space"):
        small_session.save(saved, force=True)

    with pytest.raises(InputError, match="never finished"):
        load(saved)


# -- the trace it was made from --------------------------------------------------------------------


def event(number: int, **more: Any) -> dict[str, Any]:
    return {"ph": "X", "name": f"n{number % 7}", "pid": 1, "tid": 1, "ts": number * 10, "dur": 5, **more}


def trace(path: Path, events: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"traceEvents": events}))
    return path


@pytest.fixture
def beside(tmp_path: Path) -> tuple[Path, Path]:
    """A trace, and its session in the same folder."""
    source = trace(tmp_path / "t.json", [event(i) for i in range(20)])
    return source, load(source).save(tmp_path / "t.stallscope")


def test_it_needs_its_trace_no_more(beside: tuple[Path, Path]) -> None:
    source, folder = beside
    assert len(load(folder).timeline) == 20
    source.unlink()
    assert len(load(folder).timeline) == 20


def test_a_trace_that_was_only_touched_is_the_same(beside: tuple[Path, Path]) -> None:
    source, folder = beside
    os.utime(source, (1, 1))
    assert len(load(folder).timeline) == 20


def test_a_trace_that_changed_since_is_told(beside: tuple[Path, Path], tmp_path: Path) -> None:
    source, folder = beside
    source.write_text(source.read_text().replace('"ts": 50', '"ts": 51'))

    with pytest.raises(InputError, match=r"made from t.json, which lies beside it and has changed since"):
        load(folder)

    away = tmp_path / "away"
    away.mkdir()
    assert len(load(folder.rename(away / "t.stallscope")).timeline) == 20


def test_a_trace_saved_again_replaces_the_stale_session(beside: tuple[Path, Path]) -> None:
    source, folder = beside
    trace(source, [event(i) for i in range(3)])
    load(source).save(folder, force=True)
    assert len(load(folder).timeline) == 3


def test_a_session_of_an_older_reader_is_stale(beside: tuple[Path, Path]) -> None:
    with pytest.raises(
        InputError, match=r"stale: made by an older reader .* Analyse t.json again with --save"
    ):
        load(edited(beside[1], reader=READER_VERSION - 1))


def test_a_recording_of_an_older_reader_has_no_source_to_go_back_to(saved: Path) -> None:
    session = load(edited(saved, reader=READER_VERSION - 1))
    assert session.notes.get("older-reader") is not None


@pytest.mark.parametrize("name", ["../t.json", "/etc/passwd", "..", "", "a/b", "x" * 5000, "a\0b"])
def test_no_path_in_a_session_is_followed(
    beside: tuple[Path, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked(path: object) -> None:
        raise AssertionError(f"looked at {path}")

    monkeypatch.setattr("stallscope.profiler.session.content_of", looked)
    folder = edited(beside[1], content={"name": name, "bytes": 1, "key": "00"})
    assert len(Session.load(folder).timeline) == 20


def test_a_link_beside_it_is_not_followed(beside: tuple[Path, Path], tmp_path: Path) -> None:
    source, folder = beside
    source.unlink()
    source.symlink_to(tmp_path / "t.stallscope" / INFO_FILE)
    assert len(load(folder).timeline) == 20


# -- on the command line ---------------------------------------------------------------------------


def test_analyze_saves_and_reads_again(beside: tuple[Path, Path], tmp_path: Path) -> None:
    source, _ = beside
    made = tmp_path / "again.stallscope"
    first = CliRunner().invoke(cli, ["analyze", str(source), "--save", str(made), "--json", "-"])
    second = CliRunner().invoke(cli, ["analyze", str(made), "--json", "-"])

    assert (first.exit_code, second.exit_code) == (0, 0), first.output + second.output
    assert json.loads(first.stdout) == json.loads(second.stdout)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda folder: edited(folder, version=99),
        lambda folder: edited(folder, reader=READER_VERSION - 1),
        lambda folder: (folder / INFO_FILE).write_text("{}"),
        lambda folder: (folder / INFO_FILE).unlink(),
        lambda folder: (folder / "spans.parquet").unlink(),
        lambda folder: (folder / "spans.parquet").write_bytes(b"x"),
        lambda folder: (folder.parent / "t.json").write_text("[]"),
    ],
)
def test_analyze_refuses_with_one_line(beside: tuple[Path, Path], spoil: Callable[[Path], Any]) -> None:
    spoil(beside[1])

    result = CliRunner().invoke(cli, ["analyze", str(beside[1])])

    assert result.exit_code == 2
    assert result.stderr.startswith("stallscope: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.output
