"""The key of a file or folder: is this still the source that a saved session was made from?

A file's key is its size and a hash of its bytes: of all of them up to 8 MiB, beyond that of the first and
the last MiB and of 96 pieces of 64 KiB spread evenly, at places that depend on the size alone. That
costs a hundredth of a second for any size. A change that keeps the size and misses every piece goes unseen.
A folder's key is made of the names, sizes and keys of the files in it. Times and paths play no part.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path

from stallscope.profiler.light import dataclass

_WHOLE = 8 << 20
_ENDS = 1 << 20
_PIECE = 64 << 10
_PIECES = 96
_MAX_FILES = 10_000
_CHANGED = "changed while it was read"


@dataclass(frozen=True)
class Content:
    """Name without folder, bytes in all, and the key as hexadecimal text."""

    name: str
    bytes: int
    key: str

    @property
    def is_plain_name(self) -> bool:
        """Whether the name is that of a neighbour and no path; a saved name is not trusted."""
        return self.name not in ("", ".", "..") and not set(self.name) & set("/\\\0") and len(self.name) < 256

    @property
    def shown(self) -> str:
        """The name for a message: short, without control characters."""
        return "".join(c if c.isprintable() else "?" for c in self.name)[:120]


def content_of(path: str | os.PathLike[str]) -> Content | None:
    """The key of a file or folder; None where it cannot be read."""
    source = Path(path)
    digest = hashlib.blake2b(digest_size=16)
    total = 0
    try:
        for name, file in _files(source):
            size = file.stat().st_size
            digest.update(f"{len(name)}:{name}:{size}:".encode("utf-8", "surrogateescape"))
            for piece in _pieces(file, size):
                digest.update(piece)
            total += size
    except OSError:
        return None
    return Content(Path(os.path.abspath(source)).name, total, digest.hexdigest())


def content_later(path: str | os.PathLike[str]) -> Callable[[], Content | None]:
    """What tells the key of a file as it is now, found out only when it is asked for, which is when a session is saved.
    A file that has changed by then gets a key that is that of no file."""
    source = Path(path)
    before = _state(source)
    if before is None or source.is_dir():
        content = content_of(source)
        return lambda: content

    def told() -> Content | None:
        content = content_of(source)
        if _state(source) == before:
            return content
        return Content(Path(os.path.abspath(source)).name, before[0], _CHANGED)

    return told


def _state(source: Path) -> tuple[int, int, int, int] | None:
    """What changes with a file; None where it cannot be seen."""
    try:
        stat = source.stat()
    except OSError:
        return None
    return stat.st_size, stat.st_mtime_ns, stat.st_ino, stat.st_dev


def _files(source: Path) -> Iterator[tuple[str, Path]]:
    """The file itself, nameless: a renamed copy is the same content. Or the files below a folder, by name."""
    if not source.is_dir():
        yield "", source
        return
    found: list[tuple[str, Path]] = []
    for folder, below, names in os.walk(source):
        # what we saved there ourselves is no part of the source
        below[:] = sorted(name for name in below if not name.endswith(".stallscope"))
        for name in names:
            file = Path(folder, name)
            if file.is_file() and not file.is_symlink():
                found.append((file.relative_to(source).as_posix(), file))
        if len(found) > _MAX_FILES:
            break
    yield from sorted(found)[:_MAX_FILES]


def _pieces(file: Path, size: int) -> Iterator[bytes]:
    with file.open("rb") as handle:
        if size <= _WHOLE:
            yield handle.read(_WHOLE)
            return
        yield handle.read(_ENDS)
        for i in range(_PIECES):
            handle.seek(_ENDS + (size - 2 * _ENDS - _PIECE) * i // (_PIECES - 1))
            yield handle.read(_PIECE)
        handle.seek(size - _ENDS)
        yield handle.read(_ENDS)
