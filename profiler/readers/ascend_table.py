"""The CSV files of Ascend profilers as columns, always looked up by name.

Reads:  any CSV that torch_npu, MindSpore or msprof write: tab-terminated numbers, `N/A`, headers renamed from
        version to version, cells in triple quotes, Windows line ends, a byte-order mark, a cut last row.
Leaves: what a column means; the readers that ask for it know.

Columns are kept as (code per row, distinct texts), so a cell that occurs a thousand times is parsed once.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import field
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler.errors import InputError
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers.ascend_content import content, first_bytes
from stallscope.profiler.timeline import NO_TIME, Int32, Int64

UNIT_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000}
_SMALL_FILE = 2 << 20
_ABSENT = {"", "n/a", "na", "none", "null", "nan"}

# Older and other-tool names of a column -> the newest name. Compared without unit, case, "_" and blanks.
_RENAMES = {
    "opname": "Name",
    "optype": "Type",
    "tasktype": "Accelerator Core",
    "taskstarttime": "Start Time",
    "taskduration": "Duration",
    "taskwaittime": "Wait Time",
    "blockdim": "Block Num",
    "mixblockdim": "Mix Block Num",
    "deviceid": "Device_id",
    "stepid": "Step Id",
    "modelname": "Model Name",
}


class DestroyedTimes(ValueError):
    """A time column went through a spreadsheet: 1.69512E+15 has lost everything below a second."""


def _key(name: str) -> str:
    return re.sub(r"[\s_]", "", name).lower()


def canonical(header: str) -> tuple[str, str]:
    """The newest name of a header without its unit, and the unit ("" if it has none).

    >>> canonical("Task Start Time(us)"), canonical("Block Dim"), canonical("aic_l2_read_bw(GB/s)")
    (('Start Time', 'us'), ('Block Num', ''), ('aic_l2_read_bw', 'GB/s'))
    """
    header = header.strip().strip("\ufeff").strip()
    unit = ""
    # no pattern: it would try every blank of a line that is no header, each with all blanks behind it
    before, bracket, inside = header[:-1].rpartition("(") if header.endswith(")") else ("", "", "")
    # "Communication(Not Overlapped)" is a name, not a unit
    if bracket and ")" not in inside and (len(inside) <= 5 or "/" in inside):
        header, unit = before.strip(), inside.strip()
    return _RENAMES.get(_key(header), header), unit


@dataclass
class Column:
    """One column: `codes` of shape (n,) into the distinct `texts`; `header` as the file writes it."""

    header: str
    unit: str
    codes: Int32
    texts: list[str]

    def take(self, rows: npt.NDArray[Any]) -> Column:
        return Column(self.header, self.unit, self.codes[rows], self.texts)


@dataclass
class Table:
    """A CSV file, shape (rows, columns). `ragged` rows had the wrong number of cells and were left out."""

    path: Path
    rows: int
    columns: dict[str, Column] = field(default_factory=dict)
    ragged: int = 0

    def __contains__(self, name: str) -> bool:
        return _key(name) in self._index

    @property
    def _index(self) -> dict[str, str]:
        return {_key(name): name for name in self.columns}

    def get(self, name: str) -> Column | None:
        """A column by its newest name, any spelling of blanks and case."""
        found = self._index.get(_key(name))
        return None if found is None else self.columns[found]

    def texts(self, name: str, missing: str = "") -> tuple[Int32, list[str]]:
        """Code per row and distinct cleaned texts; one empty text where the column is absent."""
        column = self.get(name)
        if column is None:
            return np.zeros(self.rows, np.int32), [missing]
        return column.codes, [clean(t) for t in column.texts]

    def numbers(self, name: str) -> npt.NDArray[np.float64]:
        """A float per row, shape (rows,), NaN for N/A, for text and where the column is absent."""
        column = self.get(name)
        if column is None:
            return np.full(self.rows, np.nan)
        return np.array([to_float(t) for t in column.texts] or [np.nan])[column.codes]

    def ints(self, name: str, missing: int = -1) -> Int64:
        """An exact integer per row, shape (rows,)."""
        column = self.get(name)
        if column is None:
            return np.full(self.rows, missing, np.int64)
        return np.array([to_int(t, missing) for t in column.texts] or [missing], np.int64)[column.codes]

    def times_ns(self, name: str) -> Int64:
        """Nanoseconds per row from decimal text in the header's unit (microseconds if it names none).

        NO_TIME for N/A. Raises DestroyedTimes where a spreadsheet has rounded the column away.
        """
        column = self.get(name)
        if column is None or not column.texts:
            return np.full(self.rows, NO_TIME, np.int64)
        if is_destroyed(column.texts):
            raise DestroyedTimes(f"{column.header} holds values such as {_first_destroyed(column.texts)!r}")
        return decimal_ns(column.texts, UNIT_NS.get(column.unit.lower(), 1_000))[column.codes]

    def take(self, rows: npt.NDArray[Any]) -> Table:
        """The given rows."""
        picked = {name: column.take(rows) for name, column in self.columns.items()}
        return Table(self.path, len(rows), picked, self.ragged)


def clean(text: str) -> str:
    """A cell without the tab, blanks and quotes around it; "" for N/A."""
    text = text.strip().strip('"').strip()
    return "" if text.lower() in _ABSENT else text


def to_float(text: str) -> float:
    """A finite number below 2^62, NaN for anything else."""
    text = clean(text)
    try:
        number = float(text) if text else float("nan")
    except ValueError:
        return float("nan")
    return number if abs(number) < 2.0**62 else float("nan")


def to_int(text: str, missing: int = -1) -> int:
    text = clean(text)
    digits = text[1:] if text[:1] in "+-" and len(text) > 1 else text
    if digits.isdecimal() and len(digits) < 19:
        return int(text)
    number = to_float(text)
    return int(number) if abs(number) < 2**62 else missing


_EXPONENT = re.compile(r"^\s*\"?\d(?:\.\d+)?[eE]\+?(\d+)\s*\"?\s*$")


def is_destroyed(texts: Sequence[str]) -> bool:
    """Whether a time column shows a spreadsheet's rounding: most times carry an exponent."""
    found = sum(1 for t in texts[:1000] if _EXPONENT.match(t))
    return found * 2 > min(len(texts), 1000)


def _first_destroyed(texts: Sequence[str]) -> str:
    return next(t.strip() for t in texts if _EXPONENT.match(t))


def decimal_ns(texts: Sequence[str], unit_ns: int = 1_000) -> Int64:
    """Decimal texts in a unit of `unit_ns` to integer nanoseconds, exactly; shape (n,).

    Half a nanosecond rounds up; NO_TIME where a text is no number or beyond the year 2116. Never goes
    through a float.

    >>> decimal_ns(["1736405443871413.640\\t", "0.0005", "N/A"]).tolist()[:2]
    [1736405443871413640, 1]
    """
    places = len(str(unit_ns)) - 1
    return np.fromiter((_exact_ns(text, places) for text in texts), np.int64, len(texts))


def _exact_ns(text: str, places: int) -> int:
    whole, _, decimals = text.strip().partition(".")
    short = len(decimals) <= places and len(whole) + places <= 18
    if short and whole.isdecimal() and (decimals.isdecimal() or not decimals):
        return int(whole + decimals + "0" * (places - len(decimals)))
    try:
        exact = (Decimal(clean(text)) * 10**places).to_integral_value(ROUND_HALF_UP)
    except (InvalidOperation, ValueError):
        return NO_TIME
    return int(exact) if exact.is_finite() and abs(exact) < 1 << 62 else NO_TIME


def read_table(path: Path, notes: Notes | None = None) -> Table:
    """Read a CSV, plain or gzip. An empty file is a table without rows; raises InputError for what is no text."""
    data = content(path, notes)
    if b"\0" in data[:4096]:
        raise InputError(path, "not a text file", "A CSV of the profiler was expected.")
    data = data.removeprefix(b"\xef\xbb\xbf")
    if not data.strip():
        return Table(path, 0)
    # a tab only ever ends a number here, and makes every number parser stumble
    data = data.replace(b"\t", b"")
    if len(data) > _SMALL_FILE:
        table = _read_large(path, data)
        if table is not None:
            return table
    return _read_small(path, data)


def header_of(path: Path) -> list[str]:
    """The canonical column names in the first line of a CSV; empty if it does not look like one."""
    try:
        line = first_bytes(path).split(b"\n", 1)[0]
        if b"\0" in line or b"," not in line:
            return []
        row = next(csv.reader([line.decode("utf-8-sig", "replace")]))
    except (OSError, csv.Error, StopIteration):
        return []
    return [canonical(cell)[0] for cell in row]


def _read_small(path: Path, data: bytes) -> Table:
    text = io.StringIO(data.decode("utf-8", "replace"), newline="")
    reader = csv.reader(text)
    try:
        header = next(reader)
        interned: list[dict[str, int]] = [{} for _ in header]
        codes: list[list[int]] = [[] for _ in header]
        ragged = 0
        for row in reader:
            if len(row) != len(header):
                ragged += bool(row)
                continue
            for seen, column, cell in zip(interned, codes, row, strict=True):
                column.append(seen.setdefault(cell, len(seen)))
    except csv.Error as error:
        raise InputError(
            path, f"not readable as CSV ({error})", "Is the profiler still writing it?"
        ) from None
    except StopIteration:
        return Table(path, 0)
    rows = len(codes[0]) if codes else 0
    table = Table(path, rows, ragged=ragged)
    for name, seen, column in zip(header, interned, codes, strict=True):
        _put(table, name, np.array(column, np.int32), list(seen))
    return table


def _read_large(path: Path, data: bytes) -> Table | None:
    """The same by Arrow, or None where Arrow finds fault with the file."""
    import pyarrow as pa
    import pyarrow.csv as arrow_csv

    first = next(csv.reader([data[: data.find(b"\n") + 1].decode("utf-8", "replace")]), [])
    names = [f"c{i}" for i in range(len(first))]
    ragged = 0

    def skip(_row: Any) -> str:
        nonlocal ragged
        ragged += 1
        return "skip"

    try:
        read = arrow_csv.read_csv(
            pa.BufferReader(data),
            read_options=arrow_csv.ReadOptions(column_names=names, skip_rows=1, block_size=1 << 20),
            parse_options=arrow_csv.ParseOptions(newlines_in_values=True, invalid_row_handler=skip),
            convert_options=arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.dictionary(pa.int32(), pa.string())),
                strings_can_be_null=False,
            ),
        ).unify_dictionaries()
    except pa.ArrowException:
        return None
    table = Table(path, read.num_rows, ragged=ragged)
    for name, header in zip(names, first, strict=True):
        chunks = read.column(name).chunks
        if not chunks:
            _put(table, header, np.zeros(0, np.int32), [])
            continue
        codes = np.concatenate([c.indices.to_numpy(zero_copy_only=False) for c in chunks])
        _put(table, header, codes.astype(np.int32), chunks[0].dictionary.to_pylist())
    return table


def _put(table: Table, header: str, codes: Int32, texts: list[str]) -> None:
    name, unit = canonical(header)
    # of two columns with one name ("Task Type" beside "Accelerator Core") the first stays
    if name and name not in table.columns:
        table.columns[name] = Column(header.strip().strip("\ufeff"), unit, codes, texts)
