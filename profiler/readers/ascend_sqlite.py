"""SQLite files of profilers, opened so that nothing is ever written to them, and read as columns.

Tables and columns are optional and found by name; times in TEXT columns are cast; text that is not UTF-8 is
read with replacement marks. A damaged table costs that table.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.errors import InputError
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers.ascend_content import ending, first_bytes
from stallscope.profiler.readers.source import unpacked
from stallscope.profiler.timeline import Int32, Int64, StringTable

_MAGIC = b"SQLite format 3\x00"
_COPY_LIMIT = 4 << 30

SQL_ERRORS = (sqlite3.Error, UnicodeDecodeError, OverflowError)
"""What a damaged database raises; SQLite's own messages may hold bytes that are no text."""

MISSING = -(1 << 62)
"""The integer for NULL, for text that is no number and for a column that is not there."""


def is_database(path: Path) -> bool:
    """Whether a file is SQLite by its content, plain or gzip."""
    return first_bytes(path, 16) == _MAGIC


def databases(folder: Path) -> list[Path]:
    """SQLite files of a folder, by name."""
    try:
        return sorted(p for p in folder.iterdir() if ending(p) == ".db" and p.is_file() and is_database(p))
    except OSError:
        return []


@contextmanager
def opened(path: Path) -> Iterator[Database]:
    """A database opened for reading only, unpacked first if it is gzip. Raises InputError for what is none.

    SQLite creates files beside a database in write-ahead mode even when it only reads, and fails in a folder
    that cannot be written. So it is opened as immutable; where a log with unmerged pages lies beside it, a copy
    of both is opened instead.
    """
    with unpacked(path) as plain, tempfile.TemporaryDirectory(prefix="stallscope-") as scratch:
        target = _with_log(path, Path(scratch)) if plain == path else plain
        uri = f"file:{_quoted(target)}?mode=ro" + ("&immutable=1" if target in (path, plain) else "")
        try:
            connection = sqlite3.connect(uri, uri=True)
        except SQL_ERRORS as error:
            raise InputError(path, f"cannot be opened as a database ({error})") from None
        connection.text_factory = lambda data: data.decode("utf-8", "replace")
        try:
            yield Database(path, connection)
        finally:
            connection.close()


def _with_log(path: Path, scratch: Path) -> Path:
    logs = [path.with_name(path.name + end) for end in ("-wal", "-journal")]
    logs = [log for log in logs if log.is_file() and log.stat().st_size > 0]
    if not logs or path.stat().st_size > _COPY_LIMIT:
        return path
    copy = scratch / "copy.db"
    shutil.copyfile(path, copy)
    for log in logs:
        shutil.copyfile(log, scratch / ("copy.db" + log.name[len(path.name) :]))
    return copy


def _quoted(path: Path) -> str:
    return quote(str(path.resolve()))


class Database:
    """An open database: which tables and columns it has, and columns as arrays."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        self.notes = Notes()
        self._lengths: dict[str, int] = {}
        self._odd: dict[str, set[str]] = {}
        self._read: dict[tuple[str, str, str], npt.NDArray[Any]] = {}
        try:
            names = connection.execute(
                "SELECT name FROM sqlite_master WHERE type IN ('table', 'view')"
            ).fetchall()
            self.tables = {str(n): self._columns(str(n)) for (n,) in names}
        except SQL_ERRORS as error:
            raise InputError(path, f"a damaged database ({error})", "Export it again.") from None
        if not self.tables:
            raise InputError(path, "a database without tables", "The profiler did not finish writing it.")

    def _columns(self, table: str) -> dict[str, str]:
        rows = self.connection.execute(f"PRAGMA table_info({_name(table)})").fetchall()
        return {str(row[1]).lower(): str(row[1]) for row in rows}

    def __contains__(self, table: object) -> bool:
        return table in self.tables

    def has(self, table: str, column: str) -> bool:
        return column.lower() in self.tables.get(table, {})

    def ints(self, table: str, *columns: str) -> list[Int64]:
        """Integer columns of a table, exactly, each of shape (n,); MISSING for NULL, text and absent columns.

        Of "new|old" names the first that exists is taken. An absent or damaged table gives empty columns.
        """
        return self.columns(table, ints=columns)

    def floats(self, table: str, *columns: str) -> list[npt.NDArray[np.float64]]:
        """Number columns, NaN for NULL, text and absent columns."""
        return self.columns(table, floats=columns)

    def columns(
        self, table: str, ints: Sequence[str] = (), floats: Sequence[str] = ()
    ) -> list[npt.NDArray[Any]]:
        """Integer columns, then number columns, in one reading; what was read is kept until the file closes."""
        wanted = [(c, "i8") for c in ints] + [(c, "f8") for c in floats]
        new = [key for key in dict.fromkeys(wanted) if (table, *key) not in self._read]
        if new:
            parts = [
                self._int_expression(table, c) if kind == "i8" else self._float_expression(table, c)
                for c, kind in new
            ]
            dtype = np.dtype([(f"c{i}", kind) for i, (_, kind) in enumerate(new)])
            for key, column in zip(new, self._select(table, parts, dtype), strict=True):
                value = np.where(np.isinf(column), np.nan, column) if key[1] == "f8" else column
                self._read[(table, *key)] = value
        return [self._read[(table, *key)] for key in wanted]

    def _found(self, table: str, names: str) -> str:
        known = self.tables.get(table, {})
        return next((known[n.lower()] for n in names.split("|") if n.lower() in known), "")

    def _int_expression(self, table: str, names: str) -> str:
        column = self._found(table, names)
        if not column:
            return str(MISSING)
        if column not in self._text_columns(table):
            return f"IFNULL(CAST({_name(column)} AS INTEGER), {MISSING})"
        # a cast alone would make 0 of text that is no number
        name, text = _name(column), f"typeof({_name(column)}) = 'text'"
        return (
            f"CASE WHEN {name} IS NULL OR typeof({name}) = 'blob' OR ({text} AND {name} NOT GLOB '[0-9-]*') "
            f"THEN {MISSING} ELSE CAST({name} AS INTEGER) END"
        )

    def _float_expression(self, table: str, names: str) -> str:
        column = self._found(table, names)
        # 1e999 is infinity: SQLite has no literal for "not a number"
        return f"IFNULL(CAST({_name(column)} AS REAL), 1e999)" if column else "1e999"

    def _text_columns(self, table: str) -> set[str]:
        """Columns with a cell of text or bytes; SQLite holds any type anywhere.

        Such cells sort after all numbers, so the greatest of a column tells; checking each cell costs more.
        """
        if table not in self._odd:
            columns = list(self.tables.get(table, {}).values())
            tests = ", ".join(f"typeof(max({_name(c)})) IN ('text', 'blob')" for c in columns)
            try:
                found = self.connection.execute(f"SELECT {tests} FROM {_name(table)}").fetchone()
                self._odd[table] = {c for c, odd in zip(columns, found, strict=True) if odd}
            except SQL_ERRORS:
                self._odd[table] = set(columns)
        return self._odd[table]

    def _select(self, table: str, parts: list[str], kind: np.dtype[Any]) -> list[npt.NDArray[Any]]:
        if table not in self.tables:
            return [np.zeros(0, kind[name]) for name in kind.names or ()]
        sql = f"SELECT {', '.join(parts)} FROM {_name(table)}"
        rows = np.fromiter(self._until_damage(table, sql), kind)
        # two readings of a damaged table may end at different rows; all columns must have one length
        known = self._lengths.setdefault(table, len(rows))
        if len(rows) < known:
            filler = np.zeros(known - len(rows), kind)
            for name in kind.names or ():
                filler[name] = MISSING if kind[name].kind == "i" else np.inf
            rows = np.concatenate([rows, filler])
        return [np.ascontiguousarray(rows[:known][name]) for name in kind.names or ()]

    def _until_damage(self, table: str, sql: str) -> Iterator[Any]:
        """Rows of a query up to where the file is damaged."""
        try:
            yield from self.connection.execute(sql)
        except SQL_ERRORS as error:
            self.notes.add(
                "database-damaged",
                "data_loss",
                f"a table could be read only up to a damaged place ({error})",
                1,
                table,
            )

    def rows(self, table: str, *columns: str) -> list[tuple[Any, ...]]:
        """Rows of a small table as Python values; absent columns are None."""
        if table not in self.tables:
            return []
        found = [self._found(table, c) for c in columns]
        parts = [_name(c) if c else "NULL" for c in found]
        try:
            return self.connection.execute(
                f"SELECT {', '.join(parts)} FROM {_name(table)} LIMIT 200000"
            ).fetchall()
        except SQL_ERRORS as error:
            self.notes.add(
                "database-damaged",
                "data_loss",
                f"table {table} could not be read ({error}) and was left out",
                1,
                table,
            )
            return []

    def texts(self, strings: StringTable) -> TextIds:
        """STRING_IDS as codes of a string table."""
        ids, codes = [], []
        for number, text in self._string_rows():
            if isinstance(number, int):
                ids.append(number)
                codes.append(strings.code(text if isinstance(text, str) else str(text)))
        order = np.argsort(np.array(ids, np.int64), kind="stable")
        return TextIds(np.array(ids, np.int64)[order], np.array(codes, np.int32)[order], strings)

    def _string_rows(self) -> Iterator[tuple[Any, Any]]:
        if "STRING_IDS" not in self.tables:
            return
        try:
            yield from self.connection.execute("SELECT id, value FROM STRING_IDS")
        except SQL_ERRORS as error:
            self.notes.add(
                "database-damaged", "data_loss", f"some texts could not be read ({error})", 1, "STRING_IDS"
            )


def _name(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


@dataclass
class TextIds:
    """STRING_IDS: sorted ids and the string codes they stand for."""

    ids: Int64
    codes: Int32
    strings: StringTable

    def __call__(self, wanted: Int64, missing: int = -1) -> Int32:
        """Codes of ids, shape of `wanted`; `missing` for MISSING, a text "string N" for an id without a row."""
        out = np.full(len(wanted), missing, np.int32)
        if len(self.ids):
            at = np.minimum(np.searchsorted(self.ids, wanted), len(self.ids) - 1)
            hit = self.ids[at] == wanted
            out[hit] = self.codes[at[hit]]
        else:
            hit = np.zeros(len(wanted), bool)
        for number in kernels.distinct(wanted[~hit]).tolist():
            if number != MISSING:
                out[wanted == number] = self.strings.code(f"string {number}")
        return out

    def text(self, code: int) -> str:
        return self.strings[code] if code >= 0 else ""
