"""The files of an Ascend recording by name and by content, whether they are plain or gzip.

People compress what they pass on: `trace_view.json.gz`, `kernel_details.csv.gz`, `ascend_pytorch_profiler_0.db.gz`
are the files without `.gz`. Where both lie side by side the plain one is taken.
"""

from __future__ import annotations

import re
from pathlib import Path

from stallscope.profiler.errors import InputError
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers.source import Source
from stallscope.profiler.readers.source import head as source_head

GZ = ".gz"
_GZIP_MAGIC = b"\x1f\x8b"

_HEAD = 1 << 18
# torch_npu always writes three decimals; other tools write whole numbers as text too
_STRING_TIME = re.compile(rb'"ts"\s*:\s*"\d{12,17}\.\d+"')
_OTHER_DEVICE = re.compile(rb'"cat"\s*:\s*"(?:kernel|gpu_mem\w+|(?:cuda|hip|xpu|mtia)_\w+)"')
_ASCEND_WORDS = re.compile(
    rb'"(Ascend Hardware|CANN|Overlap Analysis|HostToDevice|async_npu|AscendCL@\w+|AI Core Freq)"'
)


def plain_name(path: Path) -> str:
    """The name of a file without `.gz`."""
    return path.name.removesuffix(GZ)


def stem(path: Path) -> str:
    """The name without `.gz` and without the ending."""
    return plain_name(path).rpartition(".")[0]


def ending(path: Path) -> str:
    """The ending of a name without `.gz`, with its dot: ".csv" for `a.csv.gz`."""
    return Path(plain_name(path)).suffix


def named(folder: Path, name: str) -> Path | None:
    """A file of a folder by its plain name, or its gzip."""
    return next((p for p in (folder / name, folder / (name + GZ)) if p.is_file()), None)


def by_stem(folder: Path, *endings: str) -> dict[str, Path]:
    """Files of a folder with some endings, by stem. An ending that stands later wins, plain wins over gzip."""
    found: dict[str, Path] = {}
    try:
        files = sorted(p for p in folder.iterdir() if p.is_file())
    except OSError:
        return found
    for wanted in endings:
        of_ending = [p for p in files if ending(p) == wanted]
        for path in sorted(of_ending, key=lambda p: not p.name.endswith(GZ)):
            found[stem(path)] = path
    return found


def first_bytes(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of a file, inflated if it is packed; empty if it cannot be read."""
    try:
        with path.open("rb") as file:
            start = file.read(2)
            if start != _GZIP_MAGIC:
                return start + file.read(size - 2)
        return source_head(path, size)
    except (OSError, InputError):
        return b""


def content(path: Path, notes: Notes | None = None) -> bytes:
    """The whole content, inflated if it is gzip. Raises InputError or OSError where it cannot be read.

    A gzip that is cut gives what is left of it and a note; one that grows beyond `Limits` is refused.
    """
    with path.open("rb") as file:
        packed = file.read(2) == _GZIP_MAGIC
    if not packed:
        return path.read_bytes()
    source = Source(path)
    data = b"".join(source.chunks(ahead=False))
    if notes is not None:
        notes.extend(source.notes)
    return data


def head(path: Path) -> bytes:
    """The first bytes of a file's content, unpacked; empty if it cannot be read."""
    try:
        return source_head(path, _HEAD)
    except InputError:
        return b""


def is_json(data: bytes) -> bool:
    """Whether a text begins as a list or an object."""
    return data.lstrip(b"\0 \r\n\t")[:1] in (b"[", b"{")


def is_trace(data: bytes) -> bool:
    """Events with Ascend process names, or a bare array with decimal-string times."""
    text = data.lstrip(b"\0 \r\n\t")
    if not is_json(text) or b'"name":"stallscope findings"' in text:
        # our own export may carry the words of the trace it was made from
        return False
    if _ASCEND_WORDS.search(text) is not None:
        return text[:1] == b"[" or b'"traceEvents"' in text
    # without its processes only the times tell it from the arrays of others, who name what runs on a device
    return text[:1] == b"[" and _STRING_TIME.search(text) is not None and _OTHER_DEVICE.search(text) is None
