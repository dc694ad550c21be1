"""The files of an Ascend recording by name and by content, whether they are plain or gzip.

People compress what they pass on: `trace_view.json.gz`, `kernel_details.csv.gz`, `ascend_pytorch_profiler_0.db.gz`
are the files without `.gz`. Where both lie side by side the plain one is taken.
"""

from __future__ import annotations

from pathlib import Path

from stallscope.profiler.errors import InputError
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers.source import Source
from stallscope.profiler.readers.source import head as source_head

GZ = ".gz"
_GZIP_MAGIC = b"\x1f\x8b"


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
