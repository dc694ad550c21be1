"""A session on disk is the same session, and opens in other tools."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from stallscope.profiler.errors import InputError
from stallscope.profiler.readers import load
from stallscope.profiler.session import INFO_FILE, Session
from stallscope.profiler.timeline import Timeline

TABLES = ["spans", "args", "counters", "flows", "allocations", "marks"]


def texts(t: Timeline, codes: npt.NDArray[np.int32]) -> list[str]:
    return [t.strings[int(c)] if c >= 0 else "" for c in codes]


def same(a: Timeline, b: Timeline) -> None:
    for table in TABLES:
        left, right = getattr(a, table), getattr(b, table)
        for field in dataclasses.fields(left):
            if field.name in ("name", "category"):
                assert texts(a, getattr(left, field.name)) == texts(b, getattr(right, field.name))
            elif isinstance(getattr(left, field.name), np.ndarray):
                assert np.array_equal(getattr(left, field.name), getattr(right, field.name)), field.name


def test_round_trip(small_session: Session, tmp_path: Path) -> None:
    again = load(small_session.save(tmp_path / "one.stallscope"))

    same(small_session.timeline, again.timeline)
    assert again.timeline.tracks == small_session.timeline.tracks
    assert again.timeline.origin_ns == small_session.timeline.origin_ns
    assert again.facts == small_session.facts
    assert list(again.notes) == list(small_session.notes)
    for row in range(len(again.timeline)):
        assert again.timeline.arguments(row) == small_session.timeline.arguments(row)


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


def test_a_newer_format_is_refused_with_a_sentence(small_session: Session, tmp_path: Path) -> None:
    folder = small_session.save(tmp_path / "s.stallscope")
    info = json.loads((folder / INFO_FILE).read_text())
    (folder / INFO_FILE).write_text(json.dumps(info | {"version": 99}))

    with pytest.raises(InputError, match="saved by a newer stallscope"):
        load(folder)


@pytest.mark.parametrize("damage", ["{", "[]", '{"format": "else"}'])
def test_a_damaged_info_file_is_refused_with_a_sentence(
    small_session: Session, tmp_path: Path, damage: str
) -> None:
    folder = small_session.save(tmp_path / "s.stallscope")
    (folder / INFO_FILE).write_text(damage)

    with pytest.raises(InputError, match="Analyse the original trace again"):
        load(folder)


def test_a_damaged_table_is_refused_with_a_sentence(small_session: Session, tmp_path: Path) -> None:
    folder = small_session.save(tmp_path / "s.stallscope")
    (folder / "spans.parquet").write_bytes(b"PAR1 nothing")

    with pytest.raises(InputError, match="cannot be read"):
        load(folder)
