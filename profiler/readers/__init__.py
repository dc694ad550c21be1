"""All readers, in the order in which they are asked; content decides, the file name only helps."""

from __future__ import annotations

import os
from pathlib import Path

from stallscope.profiler.errors import InputError
from stallscope.profiler.readers import chrome_trace, recording_dir
from stallscope.profiler.session import Session, is_session

__all__ = ["load"]


def load(path: str | os.PathLike[str]) -> Session:
    """Read any file or folder we know into a Session. Raises InputError with the next step otherwise."""
    source = Path(path)
    if not source.exists():
        raise InputError(source, "no such file or folder")
    if is_session(source):
        return Session.load(source)
    if recording_dir.sniff(source):
        return recording_dir.read(source)
    if source.is_dir():
        raise InputError(source, "a folder that holds no saved session and no known profile")
    return chrome_trace.read(source)
