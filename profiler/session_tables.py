"""The tables of a saved session: a Timeline's columns to Parquet and back.

Times, ids and row numbers are delta-coded, the rest is dictionary-coded, all of it zstd. Tables are read
in groups of rows straight into their columns, so that what is read is held once. (One large group, whose memory could
be the column, mostly opens in two thirds of the time, and now and then in three times as much: Arrow decodes it into
large pages, which the system may have to make room for first.)
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels, session_check
from stallscope.profiler.errors import InputError
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import (
    ARG_SPILLED,
    Allocations,
    ArgStore,
    Counters,
    Flows,
    Marks,
    Spans,
    StringTable,
    Timeline,
)

SPILLED = "spilled"
_ROWS = 1 << 18
_SPILLED_ROWS = 1 << 12
_AGAIN = "Analyse the original trace again."
_FOREIGN = "it is not the table that was saved with the session"
_DELTA = ("start_ns", "time_ns", "event", "source", "correlation", "external_id", "parent", "launch_row",
          "from_row", "to_row", "address")  # fmt: skip
_EMPTY: dict[str, Any] = {
    "spans": Spans.empty(),
    "counters": Counters.empty(),
    "flows": Flows.empty(),
    "allocations": Allocations.empty(),
    "marks": Marks.empty(),
}
_TYPES: dict[str, dict[str, str]] = {
    "args": {"event": "i4", "key": "u2", "tag": "u1", "value": "i8"},
    **{
        name: {f.name: getattr(empty, f.name).dtype.str[1:] for f in dataclasses.fields(empty)}
        for name, empty in _EMPTY.items()
    },
}
_TEXTS = ("name", "category")
_PUT_OFF = {"spans": ("correlation", "external_id")}
"""Columns that stay on disk until one is asked for (`Spans.put_off`): few rows have ids, and few rules ask for them."""

Columns = dict[str, Any]


@dataclass(frozen=True)
class Saved:
    """What a session knows of one of its tables: rows, and a hash of its file, whose damage nothing else tells."""

    rows: int
    key: str


def _file_key(path: Path) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
    return digest.hexdigest()


# -- writing ---------------------------------------------------------------------------------------


def tables(timeline: Timeline) -> dict[str, Columns]:
    """The columns of every table, by the table's name."""
    strings, args = timeline.strings, timeline.args
    tag, value = args.entries()
    spilled = tag == ARG_SPILLED
    value[spilled] = np.arange(int(spilled.sum()))  # in the order in which the texts will be written
    out: dict[str, Columns] = {
        "strings": {"text": [_clean(t) for t in strings.texts]},
        "args": {"event": args.event, "key": args.key, "tag": tag, "value": value},
    }
    for name in _EMPTY:
        table = getattr(timeline, name)
        out[name] = {f.name: getattr(table, f.name) for f in dataclasses.fields(table)}
        for column in _TEXTS:
            if column in out[name]:
                out[name][column] = _dictionary(out[name][column], strings)
    return out


def _clean(text: str) -> str:
    """Parquet text is UTF-8; a lone surrogate from a damaged source is not."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _dictionary(codes: Any, strings: StringTable) -> Any:
    """A dictionary column of only the texts that occur; code -1 becomes null."""
    import pyarrow as pa

    used = np.zeros(len(strings) + 1, bool)
    used[codes] = True  # code -1 marks the extra last place
    present = np.flatnonzero(used[:-1])
    compact = np.zeros(len(strings) + 1, np.int32)
    compact[present] = np.arange(len(present), dtype=np.int32)
    missing = codes < 0
    indices = _arrow(compact[codes], ~missing if missing.any() else None)
    return pa.DictionaryArray.from_arrays(
        indices, pa.array([_clean(strings[c]) for c in present.tolist()], pa.string())
    )


def write(path: Path, columns: Columns) -> Saved:
    """Write one table."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: _arrow(c) if isinstance(c, np.ndarray) else c for name, c in columns.items()})
    delta = {name: "DELTA_BINARY_PACKED" for name in table.column_names if name in _DELTA}
    with _written(path) as part:
        pq.write_table(
            table,
            part,
            compression="zstd",
            use_dictionary=[name for name in table.column_names if name not in delta],
            column_encoding=delta or None,
            row_group_size=_ROWS,
            write_statistics=False,
        )
    return Saved(table.num_rows, _file_key(path))


@contextmanager
def _written(path: Path) -> Iterator[Path]:
    """A file beside `path` that takes its place at the end: the old one may still be open, even by ourselves."""
    part = path.with_name(f"{path.name}.part")
    yield part
    part.replace(path)


def write_spilled(folder: Path, args: ArgStore) -> dict[str, Saved]:
    """Write the texts that are too many for memory, if there are any; returns what is known of that table."""
    path = folder / f"{SPILLED}.parquet"
    at = np.flatnonzero(args.tag == ARG_SPILLED)
    if len(at) == 0 or args.spill is None:
        path.unlink(missing_ok=True)
        return {}
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([("text", pa.string())])
    options: dict[str, Any] = {"compression": "zstd", "write_statistics": False}
    with _written(path) as part, pq.ParquetWriter(part, schema, use_dictionary=False, **options) as writer:
        for first in range(0, len(at), _SPILLED_ROWS):
            places = args.entries(at[first : first + _SPILLED_ROWS])[1].tolist()
            writer.write_table(
                pa.table([pa.array([_clean(args.spill.read(p)) for p in places], pa.string())], schema)
            )
    return {SPILLED: Saved(len(at), _file_key(path))}


# -- reading ---------------------------------------------------------------------------------------


def read_all(
    folder: Path, known: dict[str, Saved], names: tuple[str, ...]
) -> tuple[dict[str, Columns], dict[str, Table]]:
    """The columns of the named tables, and all tables, of which that of the arguments is opened but not read.

    Each table must be what is known of it, if anything is. Raises InputError for what is missing, damaged, or
    larger than its file can be.
    """
    budget = _Budget(folder)
    tables = {name: Table(folder, name, known.get(name), budget) for name in (*names, "args")}
    return {name: tables[name].read() for name in names}, tables


class _Budget:
    """Stops tables that a few bytes make large: the limits of archives hold for them too."""

    def __init__(self, folder: Path) -> None:
        # late: the readers import sessions
        from stallscope.profiler.readers.source import Limits

        self.folder, self.limits = folder, Limits.from_environment()
        self.packed = sum(p.stat().st_size for p in folder.glob("*.parquet") if p.is_file())
        self.left = max(self.limits.free_bytes, int(self.limits.max_ratio * self.packed))
        self.left = min(self.left, self.limits.max_bytes)

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise InputError(
                self.folder,
                "its tables are far larger than their files, as no session's are",
                "If that is right, set STALLSCOPE_MAX_RATIO or STALLSCOPE_MAX_BYTES to a higher limit.",
            )


class Table:
    """One table on disk. `rows` is known when it is opened; its size is taken from the budget then."""

    def __init__(self, folder: Path, name: str, known: Saved | None, budget: _Budget) -> None:
        self.path, self.name = folder / f"{name}.parquet", name
        self._known, self._budget = known, budget
        self._file = _open(self.path, known)
        self.rows = int(self._file.metadata.num_rows)
        budget.take(self.rows * sum(int(kind[1:]) for kind in _TYPES.get(name, {}).values()))

    def read(self) -> Columns:
        """All columns by name; those that stay on disk (`later`) are empty. Raises InputError where a page is damaged or
        a column is not what it should be."""
        with told(self.path):
            _check_key(self.path, self._known)
            if self.name == "strings":
                return {"text": _texts(self._file, self._budget)}
            types, put_off = _TYPES[self.name], _PUT_OFF.get(self.name, ())
            for column in put_off:
                _check_type(column, self._file.schema_arrow.field(column).type, types[column])
            now = {column: kind for column, kind in types.items() if column not in put_off}
            none = {column: np.zeros(0, types[column]) for column in put_off}
            return none | _columns(self._file, now, self.rows)

    def later(self, column: str) -> npt.NDArray[Any]:
        """A column that `read` left on disk. Raises InputError as it does."""
        with told(self.path):
            kind = _TYPES[self.name][column]
            found: npt.NDArray[Any] = _columns(self._file, {column: kind}, self.rows)[column]
            return found


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Arrow's errors as one sentence."""
    import pyarrow as pa

    try:
        yield
    except (OSError, ValueError, LookupError, pa.ArrowException) as error:
        first = str(error).splitlines()[0][:200] if str(error) else type(error).__name__
        raise InputError(path, f"cannot be read ({first})", _AGAIN) from None


def _open(path: Path, known: Saved | None) -> Any:
    import pyarrow.parquet as pq

    with told(path):
        file = pq.ParquetFile(path, memory_map=True)
        if known is not None and known.rows != file.metadata.num_rows:
            raise ValueError(_FOREIGN)
        return file


def _check_key(path: Path, known: Saved | None) -> None:
    if known is not None and known.key != _file_key(path):
        raise ValueError(_FOREIGN)


def _texts(file: Any, budget: _Budget) -> list[str]:
    texts: list[str] = []
    for batch in file.iter_batches(_ROWS, columns=["text"], use_threads=False):
        budget.take(batch.nbytes + 64 * len(batch))
        texts.extend(batch.column(0).to_pylist())
    if any(text is None for text in texts):
        raise ValueError("a text is missing")
    return texts


def _columns(file: Any, types: dict[str, str], rows: int) -> Columns:
    """Columns of these types, filled group by group."""
    out: Columns = {
        column: [] if column in _TEXTS else np.empty(rows, kind) for column, kind in types.items()
    }
    at = 0
    for number in range(file.num_row_groups):
        group = file.read_row_group(number, columns=list(types), use_threads=False)
        for column, kind in types.items():
            chunks = group.column(column).chunks
            if column in _TEXTS:
                out[column].extend(chunks)
                continue
            place = at
            for chunk in chunks:
                _check_type(column, chunk.type if not chunk.null_count else None, kind)
                out[column][place : place + len(chunk)] = _numbers(chunk, kind)
                place += len(chunk)
        at += group.num_rows
    if at != rows:
        raise ValueError("rows are missing")
    return out


def _check_type(column: str, found: Any, kind: str) -> None:
    import pyarrow as pa

    if found != pa.from_numpy_dtype(np.dtype(kind)):
        raise ValueError(f"the column {column} is not what it should be")


def _numbers(array: Any, kind: str) -> npt.NDArray[Any]:
    """The memory of an Arrow array; its own `to_numpy` imports pandas, which costs more than the reading."""
    if len(array) == 0:
        return np.zeros(0, kind)
    size = np.dtype(kind).itemsize
    return np.frombuffer(array.buffers()[1], kind, len(array), array.offset * size)


def _present(array: Any) -> npt.NDArray[np.bool_] | None:
    """Where an Arrow array has a value; None where it has one everywhere."""
    bits = array.buffers()[0]
    if array.null_count == 0 or bits is None:
        return None
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
    return flags[array.offset : array.offset + len(array)].astype(bool)


def _arrow(values: Any, present: npt.NDArray[np.bool_] | None = None) -> Any:
    """An Arrow array over the memory of a NumPy array. (`pa.array` would import pandas.)"""
    import pyarrow as pa

    values = np.ascontiguousarray(values)
    bits = None if present is None else pa.py_buffer(np.packbits(present, bitorder="little"))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [bits, pa.py_buffer(values)])


def coded(columns: Columns, strings: StringTable, kind: Any) -> Columns:
    """The columns of one table with texts as codes of `strings`, null as -1."""
    out = dict(columns)
    for column in _TEXTS:
        if column in out:
            out[column] = _codes(out[column], strings)
    return {f.name: out[f.name] for f in dataclasses.fields(kind)}


def _codes(chunks: list[Any], strings: StringTable) -> npt.NDArray[np.int32]:
    import pyarrow as pa

    out = np.full(sum(map(len, chunks)), -1, np.int32)
    coded = [chunk if pa.types.is_dictionary(chunk.type) else chunk.dictionary_encode() for chunk in chunks]
    for chunk in coded:
        if chunk.indices.type != pa.int32():
            raise ValueError("texts are coded in an unknown way")
        at = _numbers(chunk.indices, "i4")
        if len(at) and (int(at.min()) < 0 or int(at.max()) >= max(len(chunk.dictionary), 1)):
            raise ValueError("a text is missing")
    codes, low = np.zeros(0, np.int32), 0
    for chunk in pa.chunked_array(coded).unify_dictionaries().chunks if coded else []:
        if len(codes) != len(chunk.dictionary):  # all share one now
            codes = strings.codes([str(text) for text in chunk.dictionary.to_pylist()])
        at, present = _numbers(chunk.indices, "i4"), _present(chunk.indices)
        some = out[low : low + len(at)]
        if present is None:
            kernels.mapped(codes, at, some)
        else:
            some[present] = codes[at[present]]
        low += len(at)
    return out


def spilled(folder: Path, known: Saved | None) -> Spilled | None:
    """The texts kept on disk; None if there are none. Raises InputError if they cannot be read."""
    if known is None:
        return None
    path = folder / f"{SPILLED}.parquet"
    return Spilled(path, known)


class Spilled:
    """Texts of a saved session that stay on disk; a few thousand neighbours are held at a time.

    A place is the number of the text. Quacks like the tokeniser's `Spill`.
    """

    def __init__(self, path: Path, known: Saved) -> None:
        self.path, self._known = path, known
        file = self._file = _open(path, known)
        self.size = int(file.metadata.num_rows)
        self._held: tuple[int, list[str]] = (-1, [])
        self._starts = np.cumsum(
            [0, *(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups))]
        )

    def read(self, place: int) -> str:
        """The text at a place; "" where there is none."""
        group = int(np.searchsorted(self._starts, place, side="right")) - 1
        if not 0 <= group < len(self._starts) - 1:
            return ""
        if self._held[0] != group:
            with told(self.path):
                if self._held[0] < 0:
                    _check_key(self.path, self._known)
                column = self._file.read_row_group(group, columns=["text"], use_threads=False).column(0)
            self._held = (group, column.to_pylist())
        return self._held[1][place - int(self._starts[group])] or ""


def put_off(spans: Spans, table: Table, strings: StringTable) -> None:
    """Leave the columns on disk that `Table.read` left there."""
    spans.put_off(**{column: _SavedIds(table, column, strings) for column in _PUT_OFF["spans"]})


class _SavedIds:
    """A column of ids that is read when one of them is first asked for; raises InputError where it is damaged."""

    def __init__(self, table: Table, column: str, strings: StringTable) -> None:
        self._table, self._column, self._strings = table, column, strings
        self._ids: npt.NDArray[np.int64] | None = None

    def __call__(self, rows: npt.NDArray[Any] | None) -> npt.NDArray[np.int64]:
        if self._ids is None:
            ids = self._table.later(self._column)
            if not session_check.are_ids(ids, self._strings):
                raise InputError(self._table.path, f"{self._column} out of range", _AGAIN)
            self._ids = ids
        return self._ids if rows is None else self._ids.take(rows)


class SavedArgs(ArgStore):
    """The arguments of a saved session: they are read when one is first asked for, which may be never.

    Reading them raises InputError where they are damaged.
    """

    def __init__(self, strings: StringTable, keys: list[str], table: Table, sources: int, spill: Any) -> None:
        self.strings, self.keys, self.spill = strings, keys, spill
        self._first, self._decoded = None, {}
        self._table, self._sources = table, sources

    def __getattr__(self, name: str) -> Any:
        if name not in ("_event", "key", "tag", "value", "wide"):
            raise AttributeError(name)
        columns = self._table.read()
        fault = session_check.arguments_fault(columns, self.keys, self.strings, self._sources)
        if fault:
            raise InputError(self._table.path, f"does not fit the session ({fault})", _AGAIN)
        event, key, tag, value = (columns[c] for c in ("event", "key", "tag", "value"))
        super().__init__(self.strings, self.keys, event, key, tag, value, self.spill)
        return vars(self)[name]

    def __len__(self) -> int:
        return self._table.rows


__all__ = [
    "SPILLED",
    "SavedArgs",
    "Spilled",
    "coded",
    "put_off",
    "read_all",
    "spilled",
    "tables",
    "write",
    "write_spilled",
]
