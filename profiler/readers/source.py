"""The bytes of a file, whatever it is packed in, and what kind of file that is. Content decides, not the name.

Reads:  plain files; gzip with any number of members; zip with one file of interest; a gzip in a zip and the
        like; UTF-8 with a byte order mark, UTF-16 and UTF-32 (made UTF-8). Everything is a stream: memory
        stays at a few chunks, and a second thread reads and inflates ahead of the reader.
Leaves: other archives (tar, 7z, bzip2, xz, zstd), which are named with the command that unpacks them.

A cut or damaged archive gives what can be read of it and a note. An archive that grows beyond `Limits` is
refused: a small file that inflates without end is an attack or a mistake.
"""

from __future__ import annotations

import codecs
import os
import queue
import re
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import field
from pathlib import Path
from typing import Any, BinaryIO

from stallscope.profiler.errors import InputError
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Notes

CHUNK = 1 << 20
"""Bytes a chunk aims at: large enough to be rare, small enough to stay in a core's cache."""
_BLOCK = 1 << 18
_SMALL = 4 << 20
_HEAD = 1 << 16
_MAX_LAYERS = 3
_MOST_MEMBERS = 64

_OTHER_ARCHIVES = {
    b"BZh": ("a bzip2 archive", "bunzip2"),
    b"\xfd7zXZ\x00": ("an xz archive", "unxz"),
    b"\x28\xb5\x2f\xfd": ("a zstd archive", "unzstd"),
    b"\x04\x22\x4d\x18": ("an lz4 archive", "unlz4"),
    b"7z\xbc\xaf\x27\x1c": ("a 7z archive", "7z x"),
    b"Rar!": ("a rar archive", "unrar x"),
}


@dataclass(frozen=True)
class Limits:
    """How far an archive may grow. Both can be set by the environment, for files that are honest but extreme.

    `max_ratio` (STALLSCOPE_MAX_RATIO, 300): refused once the content is over 256 MiB and this many times the
    archive; traces reach 10 to 60. `max_bytes` (STALLSCOPE_MAX_BYTES, 64 GiB): refused beyond that.
    """

    max_ratio: float = 300.0
    max_bytes: int = 64 << 30
    free_bytes: int = 256 << 20

    @classmethod
    def from_environment(cls) -> Limits:
        """The limits with the two variables applied; a value that is no number is an InputError."""
        values: dict[str, Any] = {}
        for name, convert in (("MAX_RATIO", float), ("MAX_BYTES", int)):
            text = os.environ.get(f"STALLSCOPE_{name}", "")
            if not text:
                continue
            try:
                values[name.lower()] = convert(text)
            except ValueError:
                raise InputError(f"STALLSCOPE_{name}", f"{text!r} is not a number", "Unset it.") from None
        return cls(**values)


@dataclass
class Source:
    """One opened input. `chunks()` gives its bytes once; `notes` fill up while they are read."""

    path: Path
    containers: tuple[str, ...] = ()
    """What it was packed in, outermost first: "gzip", "zip", "utf-16"."""
    notes: Notes = field(default_factory=Notes)
    limits: Limits = field(default_factory=Limits.from_environment)
    member: str | None = None
    """The file to take from a zip with several; None refuses such a zip."""
    packed_read: int = 0
    """Bytes taken from the file so far: the progress of a reader, out of the file's size."""

    def chunks(self, *, ahead: bool = True) -> Iterator[bytes]:
        """The content, unpacked and as UTF-8. Raises InputError for what cannot be opened.

        With `ahead`, large files are read by a second thread; it ends with the iterator.
        """
        parts = self._text(self._unpacked())
        if not ahead or self._size() < _SMALL:
            return parts
        return _read_ahead(parts)

    def _size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0

    # -- layers ------------------------------------------------------------------------------------

    def _unpacked(self) -> Iterator[bytes]:
        try:
            handle = self.path.open("rb")
        except OSError as error:
            raise InputError(self.path, f"cannot be read ({error.strerror})") from error
        with handle:
            blocks: Iterator[bytes] = self._blocks(handle, CHUNK)
            first = next(blocks, b"")
            for depth in range(_MAX_LAYERS + 1):
                layer = self._layer(first, blocks, handle if depth == 0 else None)
                if layer is None:
                    break
                if depth == _MAX_LAYERS:
                    raise InputError(self.path, f"an archive in an archive, {depth} deep", "Unpack it first.")
                blocks = self._guarded(layer)
                first = next(blocks, b"")
            if first:
                yield first
            try:
                yield from blocks
            except OSError as error:
                raise InputError(self.path, f"cannot be read to the end ({error})") from error

    def _blocks(self, handle: BinaryIO, size: int) -> Iterator[bytes]:
        while True:
            try:
                block = handle.read(size)
            except OSError as error:
                raise InputError(self.path, f"cannot be read ({error.strerror})") from error
            if not block:
                return
            self.packed_read += len(block)
            yield block

    def _layer(self, first: bytes, rest: Iterator[bytes], handle: BinaryIO | None) -> Iterator[bytes] | None:
        """The content of the archive that begins with `first`, or None if that is no archive."""
        if first[:2] == b"\x1f\x8b":
            self.containers += ("gzip",)
            return self._inflate_members(_small_blocks(first, rest))
        if first[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
            self.containers += ("zip",)
            if handle is None:
                raise InputError(self.path, "a zip inside an archive", "Unpack it first.")
            return self._zip_member(handle)
        for magic, (what, command) in _OTHER_ARCHIVES.items():
            if first.startswith(magic):
                raise InputError(self.path, what, f"Unpack it with `{command}` and give the file inside.")
        if first[257:262] == b"ustar":
            raise InputError(self.path, "a tar archive", "Unpack it with `tar xf` and give the folder.")
        return None

    def _guarded(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Stops what grows beyond the limits."""
        limits, total = self.limits, 0
        for chunk in chunks:
            total += len(chunk)
            if total > limits.max_bytes:
                raise InputError(
                    self.path,
                    f"holds more than {limits.max_bytes} bytes when unpacked",
                    "If that is right, set STALLSCOPE_MAX_BYTES to a higher limit.",
                )
            if total > limits.free_bytes and total > limits.max_ratio * max(self.packed_read, 1):
                raise InputError(
                    self.path,
                    f"grows to more than {limits.max_ratio:g} times its size when unpacked, as no trace does",
                    "If that is right, set STALLSCOPE_MAX_RATIO to a higher limit.",
                )
            yield chunk

    # -- gzip --------------------------------------------------------------------------------------

    def _inflate_members(self, blocks: Iterator[bytes]) -> Iterator[bytes]:
        """All members of a gzip, one after the other. Headers and checksums are read here, so that a wrong
        checksum or a cut end costs a note and no data."""
        make, crc32, errors = _inflater()
        window = _Window(blocks)
        member = 0
        while True:
            if member and not self._another_member(window):
                return
            if not window.gzip_header():
                if not member:
                    raise InputError(self.path, "begins like a gzip file but is none", "Was it copied whole?")
                self._cut("gzip")
                return
            member += 1
            inflate, crc, size = make(-15), 0, 0
            while not inflate.eof:
                data = inflate.unconsumed_tail or window.take()
                if not data:
                    self._cut("gzip")
                    return
                try:
                    out = inflate.decompress(data, CHUNK)
                except errors as error:
                    self._damaged("gzip", error)
                    return
                if out:
                    crc = crc32(out, crc)
                    size += len(out)
                    yield out
            window.give_back(inflate.unused_data)
            trailer = window.exactly(8)
            if len(trailer) < 8:
                self._cut("gzip")
                return
            if trailer != crc.to_bytes(4, "little") + (size & 0xFFFFFFFF).to_bytes(4, "little"):
                self._damaged("gzip", "its checksum does not fit its content")

    def _another_member(self, window: _Window) -> bool:
        window.skip_zeros()
        head = window.exactly(2)
        window.give_back(head)
        if head == b"\x1f\x8b":
            return True
        if head:
            self.notes.add(
                "trailing-bytes",
                "warning",
                "bytes behind the gzip data are neither gzip nor padding",
                1,
                f"before byte {self.packed_read}",
            )
        return False

    def _cut(self, what: str) -> None:
        self.notes.add(
            "archive-cut",
            "data_loss",
            f"the {what} data ends too early: the file was cut; what is there was read",
            1,
            f"byte {self.packed_read}",
        )

    def _damaged(self, what: str, error: object) -> None:
        self.notes.add(
            "archive-damaged",
            "data_loss",
            f"the {what} data is damaged ({error}); what comes before was read",
            1,
            f"before byte {self.packed_read}",
        )

    # -- zip ---------------------------------------------------------------------------------------

    def _zip_member(self, handle: BinaryIO) -> Iterator[bytes]:
        handle.seek(0)
        self.packed_read = self._size()
        try:
            archive = zipfile.ZipFile(handle)
        except NotImplementedError as error:
            raise InputError(
                self.path, f"a zip that cannot be opened ({error})", "Unpack it first."
            ) from error
        except zipfile.BadZipFile:
            yield from self._cut_zip(handle)
            return
        with archive:
            name = self._chosen(archive)
            try:
                with archive.open(name) as stream:
                    # a piece at a time, so that damage costs no more than its own piece
                    while chunk := stream.read1(CHUNK):  # type: ignore[attr-defined]
                        yield chunk
            except RuntimeError as error:  # zipfile's word for "needs a password"
                raise InputError(self.path, "an encrypted zip", "Unpack it first.") from error
            except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
                self._damaged("zip", error)

    def _chosen(self, archive: zipfile.ZipFile) -> str:
        """The member to read: the one asked for, the only one, or the only trace among them."""
        names = _zip_names(archive)
        if self.member is not None:
            names = [name for name in names if name == self.member]
        if len(names) == 1:
            return names[0]
        traces = [name for name in names[:_MOST_MEMBERS] if _is_trace(archive, name)]
        if len(traces) != 1 or len(names) > _MOST_MEMBERS:
            raise InputError(self.path, *_zip_choice(traces or names))
        self.notes.add(
            "other-files-in-zip",
            "info",
            "other files in the zip are no traces and were not read",
            len(names) - 1,
        )
        return traces[0]

    def _cut_zip(self, handle: BinaryIO) -> Iterator[bytes]:
        """The first file of a zip that lost its table of contents, which is written last."""
        handle.seek(0)
        window = _Window(_small_blocks(b"", iter(lambda: handle.read(CHUNK), b"")))
        while (head := window.zip_header()) is not None:
            name, method, flags, size = head
            if flags & 1:
                raise InputError(self.path, "an encrypted zip", "Unpack it first.")
            if not size or _is_junk(name):
                window.exactly(size)
                continue
            self._cut("zip")
            yield from window.stored(size) if method == 0 else self._inflated(window)
            return
        raise InputError(
            self.path, "a zip that cannot be opened: it is cut or damaged", "Was it copied whole?"
        )

    def _inflated(self, window: _Window) -> Iterator[bytes]:
        """As much raw deflate data as can be read."""
        make, _, errors = _inflater()
        inflate = make(-15)
        while not inflate.eof and (data := inflate.unconsumed_tail or window.take()):
            try:
                if out := inflate.decompress(data, CHUNK):
                    yield out
            except errors as error:
                self._damaged("zip", error)
                return

    # -- text --------------------------------------------------------------------------------------

    def _text(self, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Makes UTF-16 and UTF-32 into UTF-8 and takes the byte order mark away; other bytes pass as they are."""
        first = b""
        for chunk in chunks:
            first += chunk
            if len(first) >= 4:
                break
        encoding, skip = _encoding(first)
        if encoding is None:
            if len(first) > skip:
                yield first[skip:]
            yield from chunks
            return
        self.containers += (encoding[:6],)
        decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        yield decoder.decode(first[skip:]).encode("utf-8", "replace")
        for chunk in chunks:
            if text := decoder.decode(chunk):
                yield text.encode("utf-8", "replace")
        if text := decoder.decode(b"", final=True):
            yield text.encode("utf-8", "replace")


def zip_members(path: Path) -> list[str]:
    """The files in a zip that may be traces; [] for what is no zip. One of them is opened by `Source.member`."""
    try:
        with zipfile.ZipFile(path) as archive:
            return _zip_names(archive)
    except (OSError, zipfile.BadZipFile, NotImplementedError):
        return []


def _zip_names(archive: zipfile.ZipFile) -> list[str]:
    return [info.filename for info in archive.infolist() if not _is_junk(info.filename)]


def _is_junk(name: str) -> bool:
    """Whether a member of a zip is a folder or what a Mac adds."""
    return name.endswith(("/", ".DS_Store")) or "__MACOSX/" in name


def _is_trace(archive: zipfile.ZipFile, name: str) -> bool:
    try:
        with archive.open(name) as stream:
            data = stream.read(_HEAD)
    except (RuntimeError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError):
        return False
    if data[:2] == b"\x1f\x8b":
        try:
            data = _inflater()[0](31).decompress(data, _HEAD)
        except _inflater()[2]:
            return False
    return kind_of(data, name) == "trace-events"


def _zip_choice(names: list[str]) -> tuple[str, str]:
    if not names:
        return "a zip without a file in it", "Give a zip that holds one trace."
    some = ", ".join(repr(name[:60]) for name in names[:4]) + (", ..." if len(names) > 4 else "")
    return f"a zip with {len(names)} files ({some})", "Unpack it and give the folder, or one of the files."


def _inflater() -> tuple[Callable[[int], Any], Callable[[bytes, int], int], tuple[type[Exception], ...]]:
    """A maker of raw inflate objects, a matching crc32, and their errors; isal where it is installed."""
    try:
        from isal import isal_zlib
    except ImportError:
        return zlib.decompressobj, zlib.crc32, (zlib.error,)
    errors: Any = (isal_zlib.error, zlib.error)
    return isal_zlib.decompressobj, isal_zlib.crc32, errors


def inflater_name() -> str:
    """ "isal" or "zlib": what inflates gzip here."""
    return "isal" if "isal" in _inflater()[0].__module__ else "zlib"


def _small_blocks(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    # What inflate leaves over of its input is copied each time, so that the input comes in small blocks.
    def cut(block: bytes) -> Iterator[bytes]:
        for at in range(0, len(block), _BLOCK):
            yield block[at : at + _BLOCK]

    yield from cut(first)
    for block in rest:
        yield from cut(block)


class _Window:
    """A look at a stream of blocks that can take small pieces and give back what it did not need."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks = blocks
        self._held = b""

    def take(self) -> bytes:
        """The next bytes, as they come; b"" at the end."""
        held, self._held = self._held, b""
        return held or next(self._blocks, b"")

    def give_back(self, data: bytes) -> None:
        self._held = data + self._held

    def exactly(self, size: int) -> bytes:
        """`size` bytes, fewer only at the end."""
        while len(self._held) < size and (more := next(self._blocks, b"")):
            self._held += more
        data, self._held = self._held[:size], self._held[size:]
        return data

    def skip_zeros(self) -> None:
        while block := self.take():
            if kept := block.lstrip(b"\0"):
                self.give_back(kept)
                return

    def gzip_header(self) -> bool:
        """Steps over a member's header (RFC 1952, section 2.3); False if there is none or it is cut."""
        head = self.exactly(10)
        if len(head) < 10 or head[:3] != b"\x1f\x8b\x08":
            return False
        flags = head[3]
        if flags & 4:
            length = int.from_bytes(self.exactly(2), "little")
            if len(self.exactly(length)) < length:
                return False
        for bit in (8, 16):  # name and comment
            if flags & bit and not self._skip_text():
                return False
        return not flags & 2 or len(self.exactly(2)) == 2

    def zip_header(self) -> tuple[str, int, int, int] | None:
        """Steps over a local file header of a zip (APPNOTE 4.3.7): name, method, flags and packed size."""
        head = self.exactly(30)
        if len(head) < 30 or head[:4] != b"PK\x03\x04":
            return None
        flags, method = int.from_bytes(head[6:8], "little"), int.from_bytes(head[8:10], "little")
        sizes = int.from_bytes(head[26:28], "little"), int.from_bytes(head[28:30], "little")
        name = self.exactly(sizes[0]).decode("utf-8", "replace")
        self.exactly(sizes[1])
        # a size of 0 with bit 3 stands behind the data
        size = int.from_bytes(head[18:22], "little") or (0xFFFFFFFF if flags & 8 and method else 0)
        return name, method, flags, size

    def stored(self, size: int) -> Iterator[bytes]:
        """`size` bytes as they come, fewer at the end."""
        while size and (data := self.take()):
            yield data[:size]
            size -= min(len(data), size)

    def _skip_text(self) -> bool:
        for _ in range(1 << 16):
            byte = self.exactly(1)
            if byte in (b"\0", b""):
                return byte == b"\0"
        return False


def _encoding(first: bytes) -> tuple[str | None, int]:
    """The encoding that is not UTF-8, or None, and how many bytes of byte order mark to skip."""
    for mark, name in (
        (codecs.BOM_UTF8, None),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
        (codecs.BOM_UTF32_BE, "utf-32-be"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
    ):
        if first.startswith(mark):
            return name, len(mark)
    # without a mark: JSON begins with a bracket or white space, which is one byte beside zeros
    if len(first) >= 4 and first[0] in b"{[ \r\n\t" and first[1:2] == b"\0":
        return ("utf-32-le" if first[2:4] == b"\0\0" else "utf-16-le"), 0
    if len(first) >= 4 and first[:1] == b"\0":
        if first[1] in b"{[ \r\n\t":
            return "utf-16-be", 0
        if first[1:3] == b"\0\0" and first[3] in b"{[ \r\n\t":
            return "utf-32-be", 0
    return None, 0


def _read_ahead(parts: Iterator[bytes]) -> Generator[bytes, None, None]:
    """The same chunks, made by a second thread that stays two chunks ahead."""
    ready: queue.Queue[bytes | BaseException | None] = queue.Queue(maxsize=2)
    stopped = threading.Event()

    def put(item: bytes | BaseException | None) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def produce() -> None:
        try:
            for part in parts:
                if not put(part):
                    return
            put(None)
        except BaseException as error:  # noqa: BLE001 -- handed to the reader, who raises it
            put(error)

    thread = threading.Thread(target=produce, name="stallscope-inflate", daemon=True)
    thread.start()
    try:
        while (item := ready.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join()


# -- what a file is -------------------------------------------------------------------------------------


def head(path: Path, size: int = _HEAD) -> bytes:
    """The first bytes of a file's content, unpacked. Raises InputError for what cannot be opened."""
    data = b""
    for chunk in Source(path).chunks(ahead=False):
        data += chunk
        if len(data) >= size:
            break
    return data[:size]


def sniff(path: Path) -> str:
    """What a file is, by its content: "trace-events", "sqlite", "nsight-sqlite", "memory-timeline",
    "execution-trace", "rocprofv3", "xplane", "json", "empty", "csv", "html", "pickle", "parquet", "nsys-rep",
    "text" or "binary".

    Raises InputError for what cannot be opened, such as a tar archive or a zip with several files.
    """
    return kind_of(head(path), path.name)


def kind_of(data: bytes, name: str = "") -> str:
    """`sniff` for content whose first bytes are at hand; the name helps only with binary files."""
    if not data.strip(b"\0 \r\n\t"):
        return "empty"
    if data.startswith(b"PAR1"):
        return "parquet"
    if data.startswith(b"SQLite format 3\0"):
        return (
            "nsight-sqlite"
            if re.search(rb"CUPTI_ACTIVITY|TARGET_INFO_SYSTEM_ENV|TARGET_INFO_GPU", data)
            else "sqlite"
        )
    text = data.lstrip()
    if text[:1] == b"{":
        return _object_kind(text)
    if text[:1] == b"[":
        return _array_kind(text)
    if re.match(rb"<!doctype html|<html", text, re.IGNORECASE):
        return "html"
    if re.match(rb"\x80[\x02-\x05]", data):
        return "pickle"
    if text.startswith(b"version https://git-lfs"):
        return "lfs-pointer"
    if _is_text(data):
        return "csv" if re.match(rb"[^\n{}\[\]=]*,[^\n{}\[\]=]*(?:\n|$)", text) else "text"
    if data[:1] == b"\n" and (b"/host:" in data or b"/device:" in data):
        return "xplane"
    if re.search(r"\.(?:nsys-rep|qdrep|qdstrm|ncu-rep)$", name, re.IGNORECASE):
        return "nsys-rep"
    if data[:1] == b"\n" and re.search(
        r"\.(?:perfetto-trace|pftrace|perfetto)(?:\.gz)?$", name, re.IGNORECASE
    ):
        return "perfetto"
    return "binary"


def _object_kind(text: bytes) -> str:
    if re.match(rb'\{\s*"schema"\s*:\s*"stallscope\.', text):
        return "our-report"
    if b'"traceEvents"' in text:
        return "trace-events"
    if re.match(rb'\{\s*"rocprofiler-sdk-tool"', text):
        return "rocprofv3"
    if re.search(rb'"schema"\s*:\s*"[^"]*(?:chakra|\d)', text[:2000]) and b'"nodes"' in text:
        return "execution-trace"
    if re.search(rb'"nodes"\s*:\s*\[', text) and re.search(
        rb'"(?:ctrl|ctrl_deps|rf_id|fw_parent|op_schema)"', text
    ):
        return "execution-trace"
    if _looks_like_events(text):
        return "trace-events"
    if re.search(rb'"(?:device_traces|segments)"\s*:\s*\[', text):
        return "memory-snapshot"
    if b"speedscope.app" in text or re.search(rb'"(?:callFrame|timeDeltas)"\s*:', text):
        return "cpu-profile"
    return "json"


def _array_kind(text: bytes) -> str:
    if re.match(rb"\[\s*(?:\]|\{|null|$)", text):
        return "trace-events" if _looks_like_events(text) or re.match(rb"\[\s*(?:\]\s*)?$", text) else "json"
    if re.match(rb"\[\s*\[\s*-?\d+\s*(?:,\s*(?:-?\d+|\")|\]\s*,\s*\[)", text):
        return "memory-timeline"
    return "json"


def _looks_like_events(text: bytes) -> bool:
    return re.search(rb'"ph"\s*:\s*"', text) is not None


def _is_text(data: bytes) -> bool:
    sample = data[:4096]
    return b"\0" not in sample and sum(c < 9 or 13 < c < 32 for c in sample) * 50 < len(sample)


_RECORD = "Record the same run with `stallscope run` or torch.profiler and give that trace."
NOT_TRACES = {
    "empty": ("empty file", "The profiler wrote nothing; record again."),
    "memory-timeline": (
        "a memory timeline (export_memory_timeline), not a trace",
        "Give the trace that export_chrome_trace wrote.",
    ),
    "execution-trace": (
        "an execution trace (ExecutionTraceObserver), which has no times on a device",
        "Give the profiler's trace of the same run.",
    ),
    "memory-snapshot": (
        "a snapshot of PyTorch's memory (torch.cuda.memory), not a trace",
        "Give the trace that export_chrome_trace wrote.",
    ),
    "cpu-profile": (
        "a sampled CPU profile, which tells nothing of devices",
        "Record the same run with `stallscope run`.",
    ),
    "perfetto": (
        "a Perfetto trace in its binary form",
        "Convert it with Perfetto's `traceconv json` and give that.",
    ),
    "rocprofv3": ("rocprofv3's own JSON, which is not read", _RECORD),
    "nsys-rep": (
        "a raw Nsight report, which only Nsight itself can open (`nsys export`, `nsys-ui`)",
        _RECORD,
    ),
    "nsight-sqlite": ("a database of Nsight Systems, which is no trace-event file", _RECORD),
    "xplane": (
        "an XPlane profile (JAX, TensorFlow)",
        "Give the .trace.json.gz that the profiler wrote beside it.",
    ),
    "parquet": (
        "a Parquet table, perhaps of a saved session",
        "Give the whole folder NAME.stallscope, or the trace.",
    ),
    "pickle": (
        "a Python pickle (a memory snapshot?), which is never opened: it could run code",
        "Give the profiler's trace.",
    ),
    "html": ("a web page, not a trace", "Give the trace file it was made from."),
    "no-event-list": (
        "JSON whose traceEvents is no list of events at the top level",
        "Was it cut, or is it the trace inside of something else?",
    ),
    "damaged-archive": (
        "an archive that is cut or damaged at its beginning: nothing in it can be read",
        "Was it copied whole?",
    ),
    "lfs-pointer": ("a Git LFS pointer, not the file it stands for", "Fetch the file with `git lfs pull`."),
    "our-report": (
        "a report of Stallscope, not a recording",
        "Give the trace or the *.stallscope session it was made from.",
    ),
    "json": ("JSON without traceEvents", "A Kineto or Chrome trace has that key, or is a list of events."),
    "csv": (
        "a table of text, not a trace-event file",
        "Give the JSON trace, or the folder the profiler wrote.",
    ),
    "text": ("text that is no trace", "Give a Kineto or Chrome trace (.json or .json.gz)."),
    "binary": ("binary data of no known kind", "Give a Kineto or Chrome trace (.json or .json.gz)."),
    "sqlite": (
        "an SQLite database of an unknown kind",
        "Of databases, those of Ascend's msprof are read; else give the profiler's JSON trace.",
    ),
}
"""For each kind that is no trace-event file: what it is, and what to do instead."""


def refusal(path: Path, data: bytes, notes: Notes | None = None) -> InputError:
    """The error for a file that cannot be read as a trace, by its first bytes and what was noted on the way."""
    kind = kind_of(data, path.name)
    if kind == "empty" and notes is not None and ("archive-cut" in notes or "archive-damaged" in notes):
        kind = "damaged-archive"
    elif kind == "trace-events":
        kind = "no-event-list" if b'"traceEvents"' in data else "json"
    return InputError(path, *NOT_TRACES.get(kind, NOT_TRACES["binary"]))


@contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A plain file with the content of `path`: itself, or a temporary copy if it is packed.

    For readers of formats that need a real file, such as SQLite inside gzip. The copy is deleted at the end.
    """
    source = Source(path)
    chunks = source._unpacked()
    first = next(chunks, b"")
    if not source.containers:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="stallscope-") as folder:
        copy = Path(folder) / "content"
        with copy.open("wb") as out:
            out.write(first)
            for chunk in chunks:
                out.write(chunk)
        yield copy
