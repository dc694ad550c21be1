"""All readers, in the order in which they are asked; content decides, the file name only helps."""

from __future__ import annotations

import importlib
import os
import stat
from pathlib import Path
from typing import Protocol, cast

from stallscope.profiler.content import content_later
from stallscope.profiler.errors import InputError
from stallscope.profiler.pages import computing
from stallscope.profiler.readers import ascend_content
from stallscope.profiler.session import Session, is_session, is_unfinished

__all__ = ["Reader", "load", "reader_of"]


class Reader(Protocol):
    """What a reader module offers. `sniff` reads a little and never raises for a foreign input."""

    def sniff(self, path: Path) -> bool: ...

    def read(self, path: Path) -> Session: ...


OF_FOLDERS = ("recording_dir", "ascend_pt")
OF_FILES = ("ascend_db", "ascend_csv", "ascend_trace")
"""Modules of this package; each has `sniff(path)` and `read(path)`. The first that knows the input reads it;
chrome_trace reads any other file, and says what it is if it is none of its own. Imported when asked."""


def _may_know(path: Path) -> tuple[str, ...]:
    """The readers to ask. Most files are traces of others: to import all readers of Ascend files for them takes longer
    than to read a small one."""
    if path.is_dir():
        return OF_FOLDERS
    start = ascend_content.head(path)
    if not ascend_content.is_json(start):
        return OF_FILES
    return ("ascend_trace",) if ascend_content.is_trace(start) else ()


def reader_of(path: Path) -> Reader | None:
    """The reader that knows this file or folder, or None."""
    for name in _may_know(path):
        module = importlib.import_module(f"stallscope.profiler.readers.{name}")
        if module.sniff(path):
            return cast(Reader, module)
    return None


def load(path: str | os.PathLike[str]) -> Session:
    """Read any file or folder we know into a Session. Raises InputError with the next step otherwise."""
    source = Path(path)
    _check(source)
    with computing():
        return _load(source)


def _load(source: Path) -> Session:
    if is_session(source):
        return Session.load(source)
    content = content_later(source)
    session = _read(source)
    if session.facts.get("format") != "stallscope-recording":  # which is its own source
        session.content = content
    return session


def _check(source: Path) -> None:
    """Raises InputError for what is not there, and for what does not end or can be read only once."""
    try:
        mode = source.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        if str(source) == "-":
            raise InputError(
                source, "standard input, which can be read only once", "Save it to a file first."
            ) from None
        raise InputError(source, "no such file or folder") from None
    except (OSError, ValueError) as error:  # too long a name, no permission, a NUL in the name
        raise InputError(source, f"cannot be read ({getattr(error, 'strerror', None) or error})") from error
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
        raise InputError(
            source, "neither a file nor a folder but a pipe or a device", "Save its content to a file first."
        )


def _read(source: Path) -> Session:
    if (reader := reader_of(source)) is not None:
        return reader.read(source)
    if is_unfinished(source):
        raise InputError(
            source, "a session whose saving was never finished", "Analyse the original trace again."
        )
    if source.is_dir():
        raise InputError(
            source,
            "a folder that holds no saved session and no known profile",
            "Known are *.stallscope sessions, *_ascend_pt and *_ascend_ms folders and PROF_* trees.",
        )
    from stallscope.profiler.readers import chrome_trace

    return chrome_trace.read(source)
