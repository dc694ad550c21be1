"""Recordings whose files were compressed, one by one or all."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from stallscope.analyzers import analyze
from stallscope.profiler.errors import InputError
from stallscope.profiler.readers import load
from support import ascend

OUTPUT = "ASCEND_PROFILER_OUTPUT"


def pack(path: Path) -> Path:
    """Replace a file by its gzip."""
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return packed


def same(one: Path, other: Path) -> None:
    """Two recordings give one answer."""
    a, b = load(one), load(other)
    assert len(a.timeline) == len(b.timeline)
    assert analyze(a, {}).headline == analyze(b, {}).headline
    assert analyze(a, {}).kernels == analyze(b, {}).kernels
    assert a.facts["ascend"] == b.facts["ascend"]


def test_a_folder_of_packed_files(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path / "packed")
    for path in [*(folder / OUTPUT).iterdir(), *folder.glob("*.json")]:
        pack(path)
    same(ascend.write_text(tmp_path / "plain"), folder)


@pytest.mark.parametrize("name", ["trace_view.json", "kernel_details.csv"])
def test_one_packed_file_among_plain_ones(tmp_path: Path, name: str) -> None:
    folder = ascend.write_text(tmp_path / "packed")
    pack(folder / OUTPUT / name)
    same(ascend.write_text(tmp_path / "plain"), folder)


def test_packed_databases(tmp_path: Path) -> None:
    folder = ascend.write_db(tmp_path / "packed")
    databases = [pack(path) for path in sorted((folder / OUTPUT).glob("*.db"))]
    plain = ascend.write_db(tmp_path / "plain")
    same(plain, folder)
    same(next((plain / OUTPUT).glob("ascend_pytorch*.db")), databases[1])


def test_a_packed_msprof_tree(tmp_path: Path) -> None:
    folder = ascend.write_msprof(tmp_path / "packed", slices=2)
    for path in (folder / "mindstudio_profiler_output").iterdir():
        pack(path)
    same(ascend.write_msprof(tmp_path / "plain", slices=2), folder)


@pytest.mark.parametrize("name", ["kernel_details.csv", "op_summary_20260101120000.csv"])
def test_a_packed_table_alone(tmp_path: Path, name: str) -> None:
    (tmp_path / name).parent.mkdir(exist_ok=True)
    ascend.write_csv(tmp_path / name, ascend.kernel_rows())
    plain = load(tmp_path / name)
    packed = load(pack(tmp_path / name))
    assert analyze(packed, {}).kernels == analyze(plain, {}).kernels


def test_a_cut_archive_gives_what_is_left_and_a_note(tmp_path: Path) -> None:
    folder = ascend.write_text(tmp_path)
    table = pack(folder / OUTPUT / "kernel_details.csv")
    table.write_bytes(table.read_bytes()[:-30])
    session = load(folder)
    assert sum(k.count for k in analyze(session, {}).kernels) == 6
    assert any(note.severity == "data_loss" for note in session.notes)


def test_an_archive_of_something_else_is_named(tmp_path: Path) -> None:
    path = tmp_path / "kernel_details.csv.gz"
    path.write_bytes(gzip.compress(b"just text"))
    with pytest.raises(InputError):
        load(path)
