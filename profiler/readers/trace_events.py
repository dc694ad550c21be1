"""Trace Event Format text turned into columns: the envelope only, no meaning.

Reads:  the object form (`traceEvents` anywhere among other keys), the bare array, lists of events without
        brackets, and several such documents one after the other, of any producer and in any packing
        (see `source`). What is not valid costs only itself and is counted in the notes.
Leaves: what the events mean. Kineto, torch_npu, JAX and VizTracer files are interpreted by the readers
        that call `tokenise`.

`RawEvents` is the border between the tokenisers (the compiled one, or `event_fallback` without a compiler)
and those readers; both fill the same columns with the same values. The text is a stream: memory is the
columns, the distinct texts, and a few chunks.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.errors import InputError
from stallscope.profiler.ids import NO_ID
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Notes
from stallscope.profiler.pages import growing
from stallscope.profiler.readers import source
from stallscope.profiler.readers.event_repair import IN_STRING, Mender, is_strict, nested_end
from stallscope.profiler.room import Room
from stallscope.profiler.timeline import ARG_JSON, NO_TIME, ArgStore, Int32, Int64, StringTable

if TYPE_CHECKING:
    from stallscope.profiler.readers.event_part import Part

TEXT_BUDGET = 128 << 20
"""Bytes of distinct texts kept in memory; argument texts beyond go to a temporary file."""
COLUMNS = ("ph", "name", "cat", "ts_ns", "dur_ns", "thread", "id")
"""The columns of `RawEvents`."""
_MAX_META = 32 << 20
_MAX_NESTING = 10_000
"""Facts beside the event list that nest deeper are none."""


class Threads:
    """The pairs of pid and tid that occur, each once; both are `ids.encode_id` values. Thread -1, the last place of
    both, is for events that have neither."""

    def __init__(self) -> None:
        self.pid = self.tid = np.array([NO_ID])

    def __len__(self) -> int:
        return len(self.pid) - 1

    def add(self, pid: Int64, tid: Int64) -> None:
        """Append pairs that are not here yet."""
        self.pid, self.tid = (
            np.concatenate([old[:-1], more, [NO_ID]]) for old, more in ((self.pid, pid), (self.tid, tid))
        )

    @classmethod
    def of(cls, pid: Int64, tid: Int64) -> tuple[Threads, Int32]:
        """The threads of some events, in order of first appearance, and each event's number."""
        found = cls()
        code, first = kernels.group(pid, tid)
        none = (pid[first] == NO_ID) & (tid[first] == NO_ID)
        found.add(pid[first[~none]], tid[first[~none]])
        number = np.cumsum(~none, dtype=np.int32) - np.int32(1)
        number[none] = -1
        return found, number[code]


@dataclass
class RawEvents:
    """Columns of shape (n,), one row per element of the event array, in file order.

    `ph` is the phase letter's byte (0 where there is none). `name`, `cat` are string codes (-1 none).
    `ts_ns`, `dur_ns` are exact integer nanoseconds from the decimal text, which is in microseconds
    (half a nanosecond rounds away from zero); NO_TIME where absent, null or not a finite number. `thread` is a
    number of `threads`, which tell pid and tid. These and `id` are `ids.encode_id` values: integers, or text such as
    "stream 7"; `id` falls back to the JSON text of `id2`. Elements that are no objects keep their row with ph 0; damaged ones beyond repair
    have none. Names, categories and ids that are neither text nor integer are kept as they are written.
    Treat the columns as read-only: one that is all default may be a single value stretched to (n,).
    """

    strings: StringTable
    threads: Threads
    ph: npt.NDArray[np.uint8]
    name: Int32
    cat: Int32
    ts_ns: Int64
    dur_ns: Int64
    thread: Int32
    id: Int64
    args: ArgStore
    meta: dict[str, Any] = field(default_factory=dict)
    """The other top-level keys, decoded; `{}` for a bare array."""
    top_level: str = "object"
    """"object" or "array"."""
    notes: Notes = field(default_factory=Notes)
    """What was repaired, skipped or cut while reading the text."""
    containers: tuple[str, ...] = ()
    """What the file was packed in, outermost first."""

    outside: int = 0
    """Events that were left out because they lie outside of the window that was asked for."""
    firsts: dict[str, int] | None = None
    """With a window: the earliest start of a span per category ("" none), inside or not; None if not sure."""

    _rows: int = -1

    def __len__(self) -> int:
        return len(self.ph) if self._rows < 0 else self._rows

    def pids(self, events: Any) -> Int64:
        """The process ids of some events, by index or mask."""
        return np.asarray(self.threads.pid[self.thread[events]], np.int64)

    def tids(self, events: Any) -> Int64:
        """The thread ids of some events, by index or mask."""
        return np.asarray(self.threads.tid[self.thread[events]], np.int64)

    def moved(self, name: str, rows: npt.NDArray[np.int32], room: Room) -> Any:
        """A column's values of some rows, in `room`; the column itself goes, and its memory is there for others."""
        column = self.let_go(name)
        found = kernels.mapped(column, rows, room.empty(len(rows), column.dtype))
        room.give(column)
        return found

    def let_go(self, name: str) -> Any:
        """A column that is not asked for here again."""
        self._rows = len(self)
        column = getattr(self, name)
        setattr(self, name, np.zeros(0, column.dtype))
        return column

    def release(self) -> None:
        """Forget the event columns once they are interpreted: they are half of what a large trace holds.

        Arguments, texts, facts, notes and the number of rows stay.
        """
        for name in COLUMNS:
            self.let_go(name)


class Engine(Protocol):
    """Turns the elements of event lists into columns; fed with the text between `[` and behind."""

    def begin(self, offset: int) -> None:
        """An event list starts; its first byte is byte `offset` of the input."""

    def feed(self, data: bytes) -> bytes | None:
        """Take the next bytes. None while the list goes on, else what stands behind its end."""

    def finish(self) -> bytes | None:
        """The input is at its end: as `feed`; None if the list has no end."""

    def rows(self) -> int:
        """Rows stored so far, in no batch yet."""

    def position(self) -> int:
        """Offset in the input of the first byte behind the list's end, once it ended."""

    def batch(self) -> RawEvents:
        """What was stored since the last call. Its texts and argument names are those so far."""

    def result(self, raw: RawEvents | None = None) -> RawEvents:
        """The last batch, or what was made of all batches, with all texts as they are meant. Called once, at the end."""


# -- exact numbers ---------------------------------------------------------------------------------

_DECIMAL = re.compile(r'\s*"?\s*([+-]?)([0-9]*)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]+))?\s*"?\s*\Z')


def decimal_ns(text: str) -> int:
    """Microseconds as decimal text to integer nanoseconds, exactly; NO_TIME if it is no finite number.

    Half a nanosecond rounds away from zero. The text may be quoted.

    >>> decimal_ns("1736405443871413.640"), decimal_ns("-0.0015"), decimal_ns("12e3"), decimal_ns("nan")
    (1736405443871413640, -2, 12000000, -9223372036854775808)
    """
    match = _DECIMAL.match(text)
    if match is None or not (match[2] or match[3]):
        return NO_TIME
    digits = match[2] + (match[3] or "")
    exponent = max(min(int((match[4] or "0")[:12]), 99_999), -99_999)
    point = len(match[2]) + exponent + 3
    if point < 0 or not digits.strip("0"):
        return 0
    if point - (len(digits) - len(digits.lstrip("0"))) > 20:
        return NO_TIME
    digits = digits.ljust(point + 1, "0")
    value = int(digits[:point] or "0") + (digits[point] >= "5")
    if value >= 1 << 63:
        return NO_TIME
    return -value if match[1] == "-" else value


# -- the compiled engine ---------------------------------------------------------------------------


class Spill:
    """Argument texts that are kept on disk: an unnamed temporary file, gone with this object."""

    def __init__(self) -> None:
        self._file: Any = None
        self.size = 0

    def add(self, data: bytes) -> None:
        if not data:
            return
        if self._file is None:
            self._file = tempfile.TemporaryFile(prefix="stallscope-")  # noqa: SIM115 -- lives as long as we
        self._file.seek(0, os.SEEK_END)
        self._file.write(data)
        self.size += len(data)

    def read(self, place: int) -> str:
        """The text at a place: offset << 24 | length."""
        if self._file is None:
            return ""
        self._file.flush()
        data: bytes = os.pread(self._file.fileno(), place & 0xFFFFFF, place >> 24)
        return data.decode("utf-8", "replace")


class _CompiledEngine:
    def __init__(self, notes: Notes, isa: str = "") -> None:
        self.mender = Mender(notes)
        self.spill = Spill()
        self.strings = StringTable()
        self.threads = Threads()
        seed = int.from_bytes(os.urandom(8), "little")
        self.core = kernels.core.Tokeniser(self.mender, seed, isa=isa, text_budget=TEXT_BUDGET)

    def begin(self, offset: int) -> None:
        self.core.begin(offset)

    def feed(self, data: bytes) -> bytes | None:
        rest: bytes | None = self.core.feed(data)
        self.spill.add(self.core.take_spill())
        return rest

    def finish(self) -> bytes | None:
        rest: bytes | None = self.core.feed(None)
        self.spill.add(self.core.take_spill())
        return rest

    def rows(self) -> int:
        return int(self.core.counts()["rows"])

    def position(self) -> int:
        return int(self.core.counts()["position"])

    def batch(self) -> RawEvents:
        counts, memory = self.core.counts(), self.core.take()
        rows, many = counts["rows"], counts["args"]
        kinds = (("u1", 0), ("i4", -1), ("i4", -1), *[("i8", NO_TIME)] * 2, ("i4", -1), ("i8", NO_ID))
        columns = {
            name: _column(memory[i], rows, *kind)
            for i, (name, kind) in enumerate(zip(COLUMNS, kinds, strict=True))
        }
        first = _column(memory[7], rows + 1, "i4", 0)
        if first[-1] != many:  # all of them are the last event's
            first = np.append(np.zeros(rows, np.int32), np.int32(many))
        key, tag, value = (
            _column(m, many, k, 0) for m, k in zip(memory[8:], ("u2", "u1", "i4"), strict=False)
        )
        wide = _column(memory[11], counts["wide"], "i8", 0)
        self.strings.texts.extend(self.core.texts(False, len(self.strings)))
        pairs = self.core.threads(len(self.threads))
        self.threads.add(pairs[:, 0], pairs[:, 1])
        keys = self.core.texts(True, 0)
        args = ArgStore(self.strings, keys, None, key, tag, value, first=first, wide=wide)
        return RawEvents(self.strings, self.threads, args=args, **columns)

    def result(self, raw: RawEvents | None = None) -> RawEvents:
        raw = self.batch() if raw is None else raw
        note_counts(self.mender, self.core.counts())
        _clean_nested(raw.args, self.mender)
        self.mender.settle()
        if self.spill.size:
            raw.args.spill = self.spill
        return raw


def _column(memory: Any, rows: int, kind: str, default: int) -> Any:
    """A column as the compiled core gave it away; without one, a single value stretched where there are many rows."""
    if memory is not None:
        return memory
    if rows < 1 << 20:
        return np.full(rows, default, dtype=kind)
    return np.broadcast_to(np.array(default, dtype=kind), (rows,))


_BLOCK = 1 << 16
"""Arguments looked at at once."""


def _clean_nested(args: ArgStore, mender: Mender) -> None:
    """The compiled tokeniser looks only at the brackets of lists and objects in arguments. Here each distinct
    text is made strict JSON."""
    used = np.zeros(len(args.strings), bool)
    for low in range(0, len(args), _BLOCK):
        some = slice(low, low + _BLOCK)
        used[args.value[some].take(np.flatnonzero(args.tag[some] == ARG_JSON))] = True
    better = {}
    for code in np.flatnonzero(used).tolist():
        text = args.strings.texts[code]
        raw = text.encode("utf-8", "surrogateescape")  # bytes that are no UTF-8 come as lone surrogates
        if not is_strict(raw):
            args.strings.texts[code] = raw.decode("utf-8", "replace")
            first = args.events_of(np.flatnonzero((args.tag == ARG_JSON) & (args.value == code))[:1])
            better[code] = mender.clean_json(raw, -1 - int(first[0])).decode()
    if better:
        codes = np.arange(len(args.strings))
        codes[list(better)] = [args.strings.code(text) for text in better.values()]
        nested = args.tag == ARG_JSON
        args.value[nested] = codes[args.value[nested]]


def note_counts(mender: Mender, counts: dict[str, Any]) -> None:
    """What an engine only counted, as notes."""
    notes = mender.notes
    mender.settle()
    notes.add("bad-event-skipped", "data_loss", "damaged events could not be repaired and are missing",
              counts["unmended"])  # fmt: skip
    notes.add("too-many-arguments", "data_loss",
              "arguments were left out: the file has over 65535 different argument names",
              counts["keys_dropped"])  # fmt: skip


def _engine(notes: Notes, part: Part | None, isa: str = "") -> Engine:
    if kernels.core is not None:
        engine: Engine = _CompiledEngine(notes, isa)
    else:
        from stallscope.profiler.readers.event_fallback import PythonEngine

        engine = PythonEngine(notes)
    if part is None:
        return engine
    from stallscope.profiler.readers.event_part import Sieve

    return Sieve(engine, part, notes)


# -- the text around the event lists ---------------------------------------------------------------

_BLANK = re.compile(rb"[ \t\r\n,\0]*(?:\xef\xbb\xbf[ \t\r\n,\0]*)*")
_KEY = re.compile(rb'"(' + IN_STRING + rb')"\s*:\s*(?=[^\s])', re.DOTALL)
_STRING = re.compile(rb'"' + IN_STRING + rb'"', re.DOTALL)
_SCALAR = re.compile(rb"[^,}\]\s]+(?=[,}\]\s])")
# The quote before the key is lost where the value before it ends in a backslash (paths of Windows).
_EVENTS = re.compile(rb'\btraceEvents"\s*:\s*\[')
_EVENT_LINE = re.compile(rb'\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args)"\s*:')
_LOOK_AHEAD = 1 << 16


@dataclass
class _Document:
    """One of the JSON documents of a file, and what stands around its events."""

    first_row: int
    meta: dict[str, Any] = field(default_factory=dict)


class _Envelope:
    """Finds the event lists in the text, hands them to the engine, and keeps the other keys."""

    def __init__(self, path: Path, engine: Engine, notes: Notes) -> None:
        self.path, self.engine, self.notes = path, engine, notes
        self.documents: list[_Document] = []
        self.lists = 0
        self.top_level = ""
        self.head = b""
        self._in_list = False
        self._in_object = False
        self._loose = False  # a list that needs no closing bracket
        self._held: list[bytes] = []  # text outside of lists that is not understood yet
        self._held_size = 0
        self._needed = 0
        self._offset = 0  # of the first held byte

    def feed(self, chunk: bytes) -> None:
        if len(self.head) < _LOOK_AHEAD:
            self.head += chunk[: _LOOK_AHEAD - len(self.head)]
        if self._in_list:
            rest = self.engine.feed(chunk)
            if rest is not None:
                self._list_ended(rest)
            return
        self._held.append(chunk)
        self._held_size += len(chunk)
        if self._held_size >= self._needed:
            self._outside(self._joined(), final=False)

    def finish(self) -> None:
        while True:
            if self._in_list:
                rest = self.engine.finish()
                if rest is None:
                    self._not_closed()
                    return
                self._list_ended(rest)
            elif self._held_size:
                self._outside(self._joined(), final=True)
            else:
                break
        if self._in_object and self.lists and "bad-metadata" not in self.notes:
            self.notes.add("document-not-closed", "info", "the closing bracket of the file is missing")

    def _not_closed(self) -> None:
        self._in_list = False
        if not self._loose:
            self.notes.add("list-not-closed", "warning", "the event list has no end: the file was cut, or is still "
                           "being written")  # fmt: skip

    def _joined(self) -> bytes:
        data = b"".join(self._held)
        self._held, self._held_size, self._needed = [], 0, 0
        return data

    def _hold(self, data: bytes, at: int) -> None:
        """Wait for more text. Twice as much, so that long values are not looked at again and again."""
        self._held = [data[at:]]
        self._held_size = len(data) - at
        self._needed = 2 * self._held_size
        self._offset += at

    def _begin_list(self, data: bytes, at: int) -> None:
        self.lists += 1
        self._in_list = True
        self.engine.begin(self._offset + at)
        rest = self.engine.feed(data[at:])
        if rest is not None:
            self._list_ended(rest)

    def _list_ended(self, rest: bytes) -> None:
        self._in_list = self._loose = False
        self._offset = self.engine.position()
        self._held, self._held_size, self._needed = [rest], len(rest), 0
        self._outside(self._joined(), final=False)

    def _outside(self, data: bytes, final: bool) -> None:
        """Text outside of event lists. Whatever is incomplete is held back, unless `final`."""
        at = 0
        while True:
            blank = _BLANK.match(data, at)
            at = blank.end() if blank else at
            if at >= len(data):
                self._offset += at
                return
            step = self._in_document if self._in_object else self._between_documents
            after = step(data, at, final)
            if after is None:
                return
            at = after

    def _between_documents(self, data: bytes, at: int, final: bool) -> int | None:
        head = data[at : at + 1]
        if head == b"[":
            self._new_document("array", at)
            self._loose = True  # the format's definition makes the closing bracket optional
            self._begin_list(data, at + 1)
            return None
        if head == b"{":
            if len(data) - at < _LOOK_AHEAD and not final:
                self._hold(data, at)
                return None
            if _is_event(data[at : at + _LOOK_AHEAD]):
                self._new_document("array", at)
                self._loose = True
                self._begin_list(data, at)
                return None
            self._new_document("object", at)
            self._in_object = True
            return at + 1
        if not self.documents:
            raise source.refusal(self.path, self.head, self.notes)
        if not self.lists:
            return self._lost(data, at, final)
        match = _EVENT_LINE.search(data, at)
        if match and _is_event(data[match.start() : match.start() + _LOOK_AHEAD]):
            self._loose = True
            self._begin_list(data, match.start())
            return None
        self.notes.add("trailing-text", "warning", "text behind the end of the trace was skipped", 1,
                       f"byte {self._offset + at}")  # fmt: skip
        return len(data)

    def _new_document(self, top_level: str, at: int) -> None:
        self.top_level = self.top_level or top_level
        self.documents.append(_Document(self.engine.rows()))
        if len(self.documents) > 1:
            self.notes.add("several-documents", "warning",
                           "more traces follow the first one in the file; all were read", 1,
                           f"byte {self._offset + at}")  # fmt: skip

    def _in_document(self, data: bytes, at: int, final: bool) -> int | None:
        if data[at : at + 1] == b"}":
            self._in_object = False
            return at + 1
        match = _KEY.match(data, at)
        if match is None and _EVENT_LINE.match(data, at):
            self.notes.add("list-interrupted", "warning", "the event list was closed too early; what follows was read",
                           1, f"byte {self._offset + at}")  # fmt: skip
            self._begin_list(data, at)
            return None
        if match is None:
            return self._lost(data, at, final or len(data) - at > _LOOK_AHEAD)
        key, value_at = match[1], match.end()
        if key == b"traceEvents" and data[value_at : value_at + 1] == b"[":
            self._begin_list(data, value_at + 1)
            return None
        end = _value_end(data, value_at)
        if end is None:
            return self._lost(data, at, final)
        if end < 0:
            return self._lost(data, at, True)
        self._keep(key, data[value_at:end], self._offset + value_at)
        return end

    def _lost(self, data: bytes, at: int, final: bool) -> int | None:
        """The text makes no sense from here, or is incomplete: go on at the event list, if it is still ahead."""
        if not final:
            self._hold(data, at)
            return None
        match = _EVENTS.search(data, at)
        self.notes.add("bad-metadata", "warning", "facts beside the event list are damaged and were skipped", 1,
                       f"byte {self._offset + at}")  # fmt: skip
        if match:
            self._begin_list(data, match.end())
            return None
        return len(data)

    def _keep(self, key: bytes, value: bytes, offset: int) -> None:
        name = key.decode("utf-8", "replace")
        if len(value) > _MAX_META:
            self.notes.add(
                "metadata-left-out", "info", "facts beside the event list were too long to keep", 1, name
            )
            return
        self.documents[-1].meta[name] = _decoded(value, Mender(self.notes), offset)


def _is_event(text: bytes) -> bool:
    """Whether an object is an event itself rather than a document around a list."""
    return _EVENT_LINE.match(text) is not None and b'"ph"' in text[:4096] and _EVENTS.search(text) is None


def _value_end(data: bytes, at: int) -> int | None:
    """Behind the JSON value at `at`; None if it is incomplete, -1 if it is none."""
    head = data[at : at + 1]
    if head == b'"':
        match = _STRING.match(data, at)
        return match.end() if match else None
    if head in (b"{", b"["):
        return nested_end(data, at, _MAX_NESTING)[0] or None
    match = _SCALAR.match(data, at)
    if match is None and data[at : at + 1] in (b",", b"}", b"]"):
        return -1
    return match.end() if match else None


def _decoded(value: bytes, mender: Mender, offset: int) -> Any:
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass  # not strict JSON: the tolerant way
    try:
        if value[:1] == b'"':
            return mender.text(value[1:-1], offset)
        return json.loads(mender.clean_json(value, offset), parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        return value.decode("utf-8", "replace")
    finally:
        mender.settle()


# -- the whole -------------------------------------------------------------------------------------


def tokenise(
    path: Path,
    *,
    part: Part | None = None,
    member: str | None = None,
    progress: Callable[[float], None] | None = None,
    isa: str = "",
) -> RawEvents:
    """Read a trace-event file into columns. Raises InputError for what is no such file.

    With a `part` rows are numbered among those kept. `member` chooses a file of a zip with several.
    `progress` is called with the part of the file that is read, 0 to 1.
    `isa` chooses the compiled parser ("avx2", "sse2", "word"); for tests.
    """
    opened = source.Source(path, member=member)
    size = max(path.stat().st_size, 1) if path.exists() else 1

    def watched() -> Iterable[bytes]:
        for chunk in opened.chunks():
            yield chunk
            if progress is not None:
                progress(min(opened.packed_read / size, 1.0))

    engine = _engine(opened.notes, part, isa)
    raw = tokenise_chunks(watched(), path, notes=opened.notes, engine=engine)
    raw.containers = opened.containers
    return raw


def tokenise_chunks(
    chunks: Iterable[bytes],
    path: Path,
    *,
    notes: Notes | None = None,
    part: Part | None = None,
    isa: str = "",
    engine: Engine | None = None,
) -> RawEvents:
    """As `tokenise`, of UTF-8 text in pieces of any size. `path` is for messages."""
    notes = Notes() if notes is None else notes
    engine = engine or _engine(notes, part, isa)
    envelope = _Envelope(path, engine, notes)
    with growing():
        for chunk in chunks:
            envelope.feed(chunk)
        envelope.finish()
    if not envelope.lists:
        raise source.refusal(path, envelope.head, notes)
    raw = engine.result()
    raw.notes = notes
    raw.top_level = envelope.top_level
    raw.meta = _merge(raw, envelope.documents)
    _drop_repeats(raw, envelope.documents)
    if envelope.top_level == "array" and len(raw) and not raw.ph.any():
        raise source.refusal(path, envelope.head, notes)
    return raw


def _merge(raw: RawEvents, documents: list[_Document]) -> dict[str, Any]:
    """The facts of all documents; the times of later ones moved to the first one's base."""
    meta: dict[str, Any] = {}
    for document in documents:
        for key, value in document.meta.items():
            meta.setdefault(key, value)
    base = _base_ns(documents[0])
    for i, document in enumerate(documents):
        shift = _base_ns(document) - base
        if shift == 0:
            continue
        last = documents[i + 1].first_row if i + 1 < len(documents) else len(raw)
        rows = slice(document.first_row, last)
        ts = raw.ts_ns.copy()
        ts[rows] = np.where(ts[rows] == NO_TIME, NO_TIME, ts[rows] + shift)
        raw.ts_ns = ts
    return meta


def _drop_repeats(raw: RawEvents, documents: list[_Document]) -> None:
    """Forget traces at the end of the file that are the first one once more: it was exported twice, or appended."""
    first, *later = [d.first_row for d in documents]
    size = (later[0] if later else len(raw)) - first
    dropped, end = 0, len(raw)
    while later and size > 1 and end - later[-1] == size:
        start = later.pop()
        parts = [(getattr(raw, c)[first : first + size], getattr(raw, c)[start:end]) for c in COLUMNS]
        if not all(np.array_equal(one, other) for one, other in parts):
            break
        dropped, end = dropped + 1, start
    if dropped:
        for column in COLUMNS:
            setattr(raw, column, getattr(raw, column)[:end])
        raw.notes.add("repeated-documents", "warning", "the first trace of the file stands in it again; it counts once",
                      dropped, f"event {end}")  # fmt: skip


def _base_ns(document: _Document) -> int:
    value = document.meta.get("baseTimeNanoseconds", 0)
    return value if isinstance(value, int) and abs(value) < 1 << 62 else 0


__all__ = ["InputError", "RawEvents", "decimal_ns", "tokenise", "tokenise_chunks"]
