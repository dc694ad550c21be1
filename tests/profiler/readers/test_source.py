"""Opening by content: packings, cut and damaged archives, limits, and what a file is."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import sqlite3
import tarfile
import threading
import zipfile
import zlib
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stallscope.profiler.errors import InputError
from stallscope.profiler.notes import Note
from stallscope.profiler.readers import source
from stallscope.profiler.readers.source import Limits, Source, kind_of, sniff, unpacked, zip_members
from stallscope.profiler.readers.trace_events import tokenise

EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 1, "tid": 1, "ts": 1000, "dur": 50},
    {
        "ph": "X",
        "cat": "cuda_runtime",
        "name": "cudaLaunchKernel é",
        "pid": 1,
        "tid": 1,
        "ts": 1010,
        "dur": 5,
    },
    {"ph": "X", "cat": "kernel", "name": "gemm_kernel", "pid": 0, "tid": 7, "ts": 1030, "dur": 100},
]
TEXT = "\n" + json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}, ensure_ascii=False)
DATA = TEXT.encode()


def member(data: bytes, flags: int = 0) -> bytes:
    """A gzip member with every optional field of the header that `flags` names."""
    head = b"\x1f\x8b\x08" + bytes([flags]) + b"\0\0\0\0\0\xff"
    head += b"\x05\0extra" if flags & 4 else b""
    head += b"name\0" if flags & 8 else b""
    head += b"a comment\0" if flags & 16 else b""
    head += b"\x12\x34" if flags & 2 else b""
    squeeze = zlib.compressobj(6, zlib.DEFLATED, -15)
    body = squeeze.compress(data) + squeeze.flush()
    return (
        head + body + zlib.crc32(data).to_bytes(4, "little") + (len(data) & 0xFFFFFFFF).to_bytes(4, "little")
    )


def zipped(*files: tuple[str, bytes]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files:
            archive.writestr(name, data)
    return out.getvalue()


def written(folder: Path, data: bytes, name: str = "t.json") -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


def content(path: Path, limits: Limits | None = None) -> tuple[bytes, list[Note], tuple[str, ...]]:
    opened = Source(path, limits=limits or Limits())
    data = b"".join(opened.chunks())
    return data, list(opened.notes), opened.containers


HALF = len(DATA) // 2
PACKED = {
    "plain": (DATA, ()),
    "gzip": (gzip.compress(DATA), ("gzip",)),
    "two gzip members": (gzip.compress(DATA[:HALF]) + gzip.compress(DATA[HALF:]), ("gzip",)),
    "a member a byte": (b"".join(member(DATA[i : i + 1]) for i in range(len(DATA))), ("gzip",)),
    "an empty member": (gzip.compress(b"") + gzip.compress(DATA), ("gzip",)),
    "every gzip header field": (member(DATA[:9], 4 | 8 | 16 | 2) + member(DATA[9:], 8), ("gzip",)),
    "gzip with padding": (gzip.compress(DATA) + b"\0" * 700, ("gzip",)),
    "gzip in gzip": (gzip.compress(gzip.compress(DATA)), ("gzip", "gzip")),
    "zip": (zipped(("trace.json", DATA)), ("zip",)),
    "zip of gzip": (zipped(("trace.json.gz", gzip.compress(DATA))), ("zip", "gzip")),
    "zip from a Mac": (zipped(("a/", b""), ("a/t.json", DATA), ("__MACOSX/a/._t.json", b"x")), ("zip",)),
    "UTF-8 with mark": (b"\xef\xbb\xbf" + DATA, ()),
    "UTF-16 with mark": (TEXT.encode("utf-16"), ("utf-16",)),
    "UTF-16 big": (b"\xfe\xff" + TEXT.encode("utf-16-be"), ("utf-16",)),
    "UTF-16 without mark": (TEXT.encode("utf-16-le"), ("utf-16",)),
    "UTF-16 big without mark": (TEXT.encode("utf-16-be"), ("utf-16",)),
    "UTF-32 with mark": (TEXT.encode("utf-32"), ("utf-32",)),
    "UTF-32 big without mark": (TEXT.encode("utf-32-be"), ("utf-32",)),
    "gzip of UTF-16": (gzip.compress(TEXT.encode("utf-16")), ("gzip", "utf-16")),
}


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "t.bin"])
@pytest.mark.parametrize("packing", PACKED)
def test_content_decides_and_not_the_name(packing: str, name: str, tmp_path: Path) -> None:
    data, containers = PACKED[packing]
    path = written(tmp_path, data, name)
    assert content(path) == (DATA, [], containers)
    assert sniff(path) == "trace-events"
    raw = tokenise(path)
    assert [raw.strings[code] for code in raw.name] == [e["name"] for e in EVENTS]
    assert raw.ts_ns.tolist() == [1_000_000, 1_010_000, 1_030_000]
    assert raw.containers == containers


@pytest.mark.parametrize("library", ["isal", "zlib"])
def test_without_isal_the_standard_library_inflates(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if library == "isal":
        pytest.importorskip("isal")
    else:
        monkeypatch.setitem(__import__("sys").modules, "isal", None)
    assert source.inflater_name() == library
    assert content(written(tmp_path, PACKED["two gzip members"][0]))[0] == DATA


def test_large_files_come_in_pieces_from_a_second_thread(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40_000
    before = threading.active_count()
    for packed in (data, gzip.compress(data, 1) + gzip.compress(b"x" * 10_000_000, 0)):
        opened = Source(written(tmp_path, packed))
        chunks = opened.chunks()
        first = next(chunks)
        assert threading.active_count() == before + 1
        assert 0 < len(first) <= 1 << 20
        whole = first + b"".join(chunks)
        assert whole[: len(data)] == data
        assert opened.packed_read == len(packed)
    assert threading.active_count() == before


def test_a_reader_that_stops_early_stops_the_thread(tmp_path: Path) -> None:
    before = threading.active_count()
    chunks = Source(written(tmp_path, b"x" * 30_000_000)).chunks()
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before


# -- cut and damaged -----------------------------------------------------------------------------------


def test_every_cut_of_a_gzip_gives_its_beginning(tmp_path: Path) -> None:
    data = json.dumps([{"ph": "X", "name": f"n{i}", "ts": i} for i in range(300)]).encode()
    packed = gzip.compress(data[:5000]) + gzip.compress(data[5000:])
    longest = 0
    for cut in range(12, len(packed), 7):
        got, notes, _ = content(written(tmp_path, packed[:cut]))
        assert data.startswith(got)
        assert len(got) >= longest
        longest = len(got)
        assert [note.code for note in notes] == ["archive-cut"] or cut == len(gzip.compress(data[:5000]))
    assert longest > 9000


def test_a_cut_gzip_still_gives_events(tmp_path: Path) -> None:
    data = json.dumps([{"ph": "X", "name": f"n{i}", "ts": i} for i in range(300)]).encode()
    raw = tokenise(written(tmp_path, gzip.compress(data)[:-300]))
    assert 50 < len(raw) < 300
    assert raw.notes.get("archive-cut") is not None


def test_a_wrong_checksum_costs_no_data(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(DATA))
    packed[-6] ^= 0xFF
    got, notes, _ = content(written(tmp_path, bytes(packed)))
    assert got == DATA
    assert [(note.code, note.severity) for note in notes] == [("archive-damaged", "data_loss")]


def test_damage_inside_keeps_what_comes_before(tmp_path: Path) -> None:
    data = b"".join(b"%d," % i for i in range(400_000))
    packed = bytearray(gzip.compress(data))
    packed[len(packed) * 3 // 4 : len(packed) * 3 // 4 + 40] = b"\xff" * 40
    got, notes, _ = content(written(tmp_path, bytes(packed)))
    assert len(got) > 500_000
    assert data.startswith(got[:500_000])
    assert notes[0].code == "archive-damaged"


def test_bytes_behind_a_gzip_are_named(tmp_path: Path) -> None:
    got, notes, _ = content(written(tmp_path, gzip.compress(DATA) + b"\0\0garbage"))
    assert got == DATA
    assert [note.code for note in notes] == ["trailing-bytes"]


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200))
def test_whatever_follows_a_magic_number_is_no_crash(
    tmp_path_factory: pytest.TempPathFactory, tail: bytes
) -> None:
    folder = tmp_path_factory.mktemp("any")
    for magic in (
        b"\x1f\x8b",
        b"\x1f\x8b\x08\0\0\0\0\0\0\xff",
        b"PK\x03\x04",
        b"PK\x05\x06",
        b"\xff\xfe",
        b"\0",
    ):
        path = written(folder, magic + tail)
        try:
            content(path)
            sniff(path)
        except InputError as error:
            assert "\n" not in str(error)


# -- refused -------------------------------------------------------------------------------------------


def tar() -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("t.json"), io.BytesIO(b""))
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (bz2.compress(DATA), "bunzip2"),
        (lzma.compress(DATA), "unxz"),
        (b"\x28\xb5\x2f\xfd" + DATA, "unzstd"),
        (tar(), "tar xf"),
        (gzip.compress(tar()), "tar xf"),
        (zipped(("a.json", DATA), ("b.json", DATA)), "2 files .'a.json', 'b.json'."),
        (zipped(), "without a file"),
        (gzip.compress(zipped(("a.json", DATA))), "zip inside"),
        (b"PK\x03\x04 cut", "cannot be opened"),
        (b"\x1f\x8b\x07 no deflate", "is none"),
        (gzip.compress(gzip.compress(gzip.compress(gzip.compress(DATA)))), "3 deep"),
    ],
)
def test_archives_that_are_not_opened_say_what_to_do(data: bytes, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, data)
    with pytest.raises(InputError, match=said) as caught:
        content(path)
    assert caught.value.next_step
    with pytest.raises(InputError):
        tokenise(path)


def test_a_zip_with_several_files_opens_the_chosen_one(tmp_path: Path) -> None:
    path = written(tmp_path, zipped(("r0.json", DATA), ("r1.json", b'[{"ph": "X", "ts": 1}]')))
    assert zip_members(path) == ["r0.json", "r1.json"]
    assert zip_members(written(tmp_path, DATA, "plain.json")) == []
    assert len(tokenise(path, member="r0.json")) == 3
    assert len(tokenise(path, member="r1.json")) == 1


def test_the_only_trace_in_a_zip_is_read_and_the_rest_noted(tmp_path: Path) -> None:
    files = [("README.md", b"# a run"), ("logs/run.csv", b"a,b\n1,2\n"), ("t.json.gz", gzip.compress(DATA))]
    raw = tokenise(written(tmp_path, zipped(*files)))

    assert len(raw) == 3
    assert [(n.code, n.severity, n.count) for n in raw.notes] == [("other-files-in-zip", "info", 2)]


@pytest.mark.parametrize("stored", [False, True])
def test_every_cut_of_a_zip_gives_its_beginning(stored: bool, tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__MACOSX/._t", b"x")
        archive.writestr("t.json", DATA)
    whole = out.getvalue()
    longest = 0
    for cut in range(1, len(whole)):
        path = written(tmp_path, whole[:cut])
        try:
            data, notes, _ = content(path)
        except InputError:
            assert cut < 120
            continue
        longest = max(longest, len(data))
        assert DATA.startswith(data) or cut < 4
        assert "archive-cut" in [n.code for n in notes] or cut < 4
    assert longest == len(DATA)


def test_a_zip_written_as_a_stream_gives_its_beginning_too(tmp_path: Path) -> None:
    class Pipe(io.RawIOBase):
        """A file that cannot seek: sizes then stand behind the data."""

        def __init__(self) -> None:
            self.data = b""

        def writable(self) -> bool:
            return True

        def write(self, data: object) -> int:
            self.data += bytes(data)  # type: ignore[call-overload]
            return len(data)  # type: ignore[arg-type]

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.json", DATA)
    assert content(written(tmp_path, pipe.data[:-40]))[0] == DATA


def test_damage_in_a_zip_keeps_what_comes_before(tmp_path: Path) -> None:
    data = b"".join(b'{"ph": "X", "ts": %d},\n' % (i * 7919) for i in range(60_000))
    packed = bytearray(zipped(("t.json", data)))
    packed[len(packed) // 2 : len(packed) // 2 + 40] = b"\xff" * 40
    got, notes, _ = content(written(tmp_path, bytes(packed)))

    assert len(got) > len(data) // 3
    assert got[: len(data) // 3] == data[: len(data) // 3]
    assert [n.code for n in notes] == ["archive-damaged"]


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (gzip.compress(DATA)[:12], "cut or damaged at its beginning"),
        (gzip.compress(DATA)[:14] + b"\xff" * 200, "cut or damaged at its beginning"),
        (b"", "empty file"),
        (gzip.compress(b""), "empty file"),
        (b'{"traceEvents": null}', "no list of events"),
        (b'{"data": {"traceEvents": [{"ph": "X", "ts": 1}]}}', "no list of events"),
        (b'{"traceEvents": ', "no list of events"),
        (b"{}", "without traceEvents"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n", "git lfs pull"),
        (b'{\n "schema": "stallscope.report/1"}', "a report of Stallscope"),
        (b'var trace = {"traceEvents": [], "a": 1};', "text that is no trace"),
        (b"name,ts,dur\na,1,2\n", "a table of text"),
    ],
)
def test_what_is_no_trace_is_named_for_what_it_is(data: bytes, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said) as caught:
        tokenise(written(tmp_path, data))
    assert caught.value.next_step


def test_an_encrypted_zip_is_an_input_error(tmp_path: Path) -> None:
    data = bytearray(zipped(("t.json", DATA)))
    data[6] |= 1  # the flag in the local header
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    with pytest.raises(InputError, match="encrypted"):
        content(written(tmp_path, bytes(data)))


@pytest.mark.parametrize("how", ["gzip", "zip", "gzip in gzip"])
def test_what_grows_without_end_is_stopped(how: str, tmp_path: Path) -> None:
    zeros = b"\0" * 3_000_000
    packed = {
        "gzip": gzip.compress(zeros),
        "zip": zipped(("t.json", zeros)),
        "gzip in gzip": gzip.compress(gzip.compress(zeros)),
    }[how]
    path = written(tmp_path, packed)
    with pytest.raises(InputError, match="STALLSCOPE_MAX_RATIO") as caught:
        content(path, Limits(max_ratio=50, free_bytes=1 << 20))
    assert "50 times" in caught.value.seen
    with pytest.raises(InputError, match="STALLSCOPE_MAX_BYTES"):
        content(path, Limits(max_bytes=2_000_000))
    assert len(content(path)[0]) == 3_000_000  # under the size that needs no ratio


def test_the_environment_overrides_the_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STALLSCOPE_MAX_RATIO", "1e6")
    monkeypatch.setenv("STALLSCOPE_MAX_BYTES", "1000000")
    limits = Limits.from_environment()
    assert (limits.max_ratio, limits.max_bytes) == (1e6, 1_000_000)
    monkeypatch.setenv("STALLSCOPE_MAX_BYTES", "lots")
    with pytest.raises(InputError, match="not a number"):
        Limits.from_environment()


def test_folders_and_missing_files(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(InputError, match="cannot be read"):
            content(path)


# -- what a file is -------------------------------------------------------------------------------------


def database() -> bytes:
    memory = sqlite3.connect(":memory:")
    memory.execute("create table t (x)")
    return memory.serialize() if hasattr(memory, "serialize") else b"SQLite format 3\0"


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "empty"),
        (b" \r\n", "empty"),
        (b"\0\0\0\0", "empty"),
        (database(), "sqlite"),
        (b'{"a": 1}', "json"),
        (b"{}", "json"),
        (b"[]", "trace-events"),
        (b'[{"ph": "X"}]', "trace-events"),
        (b'{"x": 1, "traceEvents": [', "trace-events"),
        (b'{"ph": "X", "ts": 1}\n{"ph": "X"}', "trace-events"),
        (b'[{"name": 1}]', "json"),
        (b"[[-1, 1, 37888, 7], [-1, 1, 512, 7]]", "memory-timeline"),
        (b'[[12, "PREEXISTING", ["k", 0], 4]]', "memory-timeline"),
        (b'{"schema": "1.1.1-chakra.0.0.4", "pid": 3, "nodes": [', "execution-trace"),
        (b'{"nodes": [{"id": 1, "name": "a", "rf_id": 3}]}', "execution-trace"),
        (b'{"rocprofiler-sdk-tool": [{}]}', "rocprofv3"),
        (b"<!DOCTYPE html><html>", "html"),
        (b"\x80\x05\x95\x10", "pickle"),
        (b"PAR1\x15\x04\x15\x10", "parquet"),
        (b"a,b,c\n1,2,3\n", "csv"),
        (b"hello\nworld, too\n", "text"),
        (b"\x0a\x8f\x01\x12\0\0\0", "binary"),
        (b"\x0a\x8f\x01\x12\x0e/device:GPU:0\0", "xplane"),
        (b"SQLite format 3\0" + b"\0" * 84 + b"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL", "nsight-sqlite"),
    ],
)
def test_kinds(data: bytes, kind: str, tmp_path: Path) -> None:
    assert kind_of(data) == kind
    assert sniff(written(tmp_path, data)) == kind
    if data:
        assert sniff(written(tmp_path, gzip.compress(data), "t.json")) == kind


def test_the_name_helps_only_with_binary_files() -> None:
    assert kind_of(b"\x01\x02\x03\0", "run.nsys-rep") == "nsys-rep"
    assert kind_of(b'{"traceEvents": []}', "run.nsys-rep") == "trace-events"
    assert "nsys export" in str(source.refusal(Path("run.nsys-rep"), b"\x01\x02\x03\0"))


def test_a_database_in_a_gzip_is_unpacked_for_its_reader(tmp_path: Path) -> None:
    plain = written(tmp_path, database(), "p.sqlite")
    with unpacked(plain) as path:
        assert path == plain
    packed = written(tmp_path, gzip.compress(database()), "p.rpd.gz")
    assert sniff(packed) == "sqlite"
    with unpacked(packed) as path:
        assert path.read_bytes() == database()
        copy = path
    assert not copy.exists()
    with pytest.raises(InputError, match="SQLite"):
        tokenise(packed)


@pytest.mark.shared
def test_every_file_of_the_collection_is_a_known_kind(shared: Path) -> None:
    kinds = {path: sniff(path) for path in sorted((shared / "traces").glob("*/*")) if path.is_file()}
    assert len(kinds) > 80
    for path, kind in kinds.items():
        if path.name.endswith((".sqlite", ".db")):
            assert kind == ("nsight-sqlite" if "nsys" in path.parent.name else "sqlite")
        elif path.name.endswith(".csv"):
            assert kind == "csv"
        elif path.name.endswith(".pb"):
            assert kind == "xplane"
        else:
            assert kind in ("trace-events", "json", "memory-timeline", "rocprofv3")
