"""The key of a file or folder changes with what is in it, and with nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stallscope.profiler.content import Content, content_later, content_of

MIB = 1 << 20


def test_time_and_place_play_no_part(tmp_path: Path) -> None:
    first, second = tmp_path / "a.json", tmp_path / "below" / "a.json"
    second.parent.mkdir()
    for path in (first, second):
        path.write_bytes(b"[]")
    os.utime(second, (1, 1))

    assert content_of(first) == content_of(second)
    assert content_of(first) == Content("a.json", 2, content_of(first).key)  # type: ignore[union-attr]


def test_a_key_that_is_asked_for_later_is_that_of_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"[1]")
    later, known = content_later(path), content_of(path)
    assert later() == known
    path.write_bytes(b"[12]")
    assert later() not in (known, content_of(path), None)
    path.unlink()
    assert later() == Content("t.json", 3, later().key)  # type: ignore[union-attr]
    assert content_later(path)() is None

    folder = tmp_path / "run"
    folder.mkdir()
    later, known = content_later(folder), content_of(folder)
    (folder / "a").write_text("1")
    assert later() == known


@pytest.mark.parametrize("size", [1, 8 * MIB, 8 * MIB + 1, 40 * MIB])
@pytest.mark.parametrize("where", ["first", "last", "longer", "shorter"])
def test_what_is_noticed_in_a_file_of_any_size(tmp_path: Path, size: int, where: str) -> None:
    path = tmp_path / "t.json"
    with path.open("wb") as file:
        file.truncate(size)
    before = content_of(path)
    with path.open("r+b") as file:
        if where in ("first", "last"):
            file.seek(0 if where == "first" else size - 1)
            file.write(b"x")
        else:
            file.truncate(size + (1 if where == "longer" else -1))

    assert content_of(path) != before


def test_a_thousand_places_in_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(bytes(1000))
    seen = {content_of(path)}
    for at in range(1000):
        path.write_bytes(bytes(at) + b"x" + bytes(999 - at))
        seen.add(content_of(path))
    assert len(seen) == 1001


def test_a_folder_is_the_files_in_it(tmp_path: Path) -> None:
    folder = tmp_path / "run_ascend_pt"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.csv").write_text("1")
    before = content_of(folder)
    assert before is not None and before.name == "run_ascend_pt" and before.bytes == 1

    saved = folder / "run.stallscope"
    saved.mkdir()
    (saved / "session.json").write_text("{}")
    assert content_of(folder) == before

    (folder / "sub" / "b.csv").write_text("")
    assert content_of(folder) != before


def test_what_cannot_be_read_has_no_key(tmp_path: Path) -> None:
    assert content_of(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("t.json", True),
        ("a b", True),
        ("", False),
        ("..", False),
        ("a/b", False),
        ("a\\b", False),
        ("x" * 300, False),
    ],
)
def test_a_name_is_a_neighbour_or_nothing(name: str, plain: bool) -> None:
    assert Content(name, 0, "").is_plain_name is plain


def test_a_name_is_shown_without_its_tricks() -> None:
    assert Content("a\x1b[31m\nb", 0, "").shown == "a?[31m?b"
