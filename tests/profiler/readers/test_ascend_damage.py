"""Damaged recordings: cut, overwritten, emptied and odd files cost what was in them and never more."""

from __future__ import annotations

import random
import re
import shutil
import sqlite3
import warnings
from pathlib import Path

import pytest

from stallscope.profiler.errors import InputError
from stallscope.profiler.readers import load
from support import ascend

ODD_NUMBERS = (b"-1", b"9" * 23, b"nan", b"null", b"1e400", b'""', b"4294967295", b"0", b"0.5", b"true")
ODD_CELLS = (None, -1, "x", 2**62, 1.5, b"\xff\xfe", 4294967295, 0)
ROUNDS = 40


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One intact recording of each form."""
    base = tmp_path_factory.mktemp("whole")
    ascend.write_text(base / "text")
    ascend.write_db(base / "db")
    ascend.write_msprof(base / "msprof")
    return {form: base / form for form in ("text", "db", "msprof")}


def damage(path: Path, random_: random.Random) -> None:
    data = bytearray(path.read_bytes())
    choice = random_.randrange(7)
    if choice == 6 and path.suffix == ".db":
        damage_cells(path, random_)
        return
    if choice == 0:
        data = data[: random_.randrange(len(data) + 1)]
    elif choice == 1 and data:
        for _ in range(random_.choice([1, 5, 50])):
            data[random_.randrange(len(data))] = random_.randrange(256)
    elif choice == 2 and data:
        at = random_.randrange(len(data))
        del data[at : at + random_.randrange(1, 200)]
    elif choice == 3 and (numbers := list(re.finditer(rb"\d+", bytes(data)))):
        found = random_.choice(numbers)
        data[found.start() : found.end()] = random_.choice(ODD_NUMBERS)
    elif choice == 4:
        path.unlink()
        return
    else:
        data = bytearray()
    path.write_bytes(bytes(data))


def damage_cells(path: Path, random_: random.Random) -> None:
    """One column of one table gets a value that does not belong there."""
    connection = sqlite3.connect(path)
    tables = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = random_.choice(tables)
    column = random_.choice([row[1] for row in connection.execute(f"PRAGMA table_info({table})")])
    connection.execute(
        f"UPDATE {table} SET {column} = ? WHERE rowid % ? = 0",
        (random_.choice(ODD_CELLS), random_.choice([1, 2, 3])),
    )
    connection.commit()
    connection.close()


@pytest.mark.parametrize("form", ["text", "db", "msprof"])
def test_damage_is_refused_or_read_around(whole: dict[str, Path], tmp_path: Path, form: str) -> None:
    random_ = random.Random(f"ascend {form}")
    loaded = 0
    for number in range(ROUNDS):
        copy = tmp_path / str(number)
        shutil.copytree(whole[form], copy)
        files = sorted(p for p in copy.rglob("*") if p.is_file())
        damage(random_.choice(files), random_)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                session = load(copy)
            except InputError as error:
                assert str(error)
            else:
                loaded += 1
                assert (session.timeline.spans.dur_ns >= 0).all()
        shutil.rmtree(copy)
    # one damaged file of many leaves most recordings readable
    assert loaded > ROUNDS // 2


def test_rows_before_a_damaged_place_are_kept(tmp_path: Path) -> None:
    folder = ascend.write_db(tmp_path)
    path = next((folder / "ASCEND_PROFILER_OUTPUT").glob("ascend_pytorch_profiler*.db"))
    connection = sqlite3.connect(path)
    connection.execute("UPDATE PYTORCH_API SET startNs = 'unknown' WHERE rowid = 3")
    connection.commit()
    connection.close()
    session = load(folder)
    note = session.notes.get("span-without-time")
    assert note is not None and note.count == 1
    assert session.timeline.origin_ns >= ascend.BASE
