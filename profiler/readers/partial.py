"""Loads a part of a recording: a window of time, a range of steps, one rank, or what all of these share.

What pays is decided by what the input is:

* a window of a trace-event file is cut out while the file is read (`trace_window`);
* one rank of a folder of traces, or of Ascend recordings, is read from that rank's files alone (its times then
  count from its own start);
* everything else is loaded whole and then cut (`stallscope.profiler.part`): steps are found in
  the whole recording, and the tables of other formats only make sense together.

The result is the same either way. Small trace files are loaded whole too, which costs less time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from stallscope.profiler import part as cutting
from stallscope.profiler.content import content_of
from stallscope.profiler.errors import InputError, OptionError
from stallscope.profiler.readers import load, reader_of, source
from stallscope.profiler.session import Session

SMALL = 8 << 20
"""Files up to this size are loaded whole: a part costs a second reading, and saves little memory there."""
_RANK = re.compile(rb'"distributedInfo"\s*:\s*\{[^}]{0,2000}?"rank"\s*:\s*"?(\d{1,9})')


def load_part(
    path: str | os.PathLike[str],
    *,
    window: str | None = None,
    steps: str | None = None,
    rank: int | None = None,
) -> Session:
    """As `load`, of a part; see `part` for what the options mean. With none of them, the whole.

    Raises InputError as `load` does, and OptionError for a range that is none or holds nothing.
    """
    if window is None and steps is None and rank is None:
        return load(path)
    whole = None
    if window is not None and steps is None:
        whole = _windowed(Path(path), *cutting.parse_window(window))
    elif window is None and steps is None and rank is not None:
        whole = _of_rank(Path(path), rank)
    return cutting.part(whole or load(path), window=window, steps=steps, rank=rank)


def _windowed(path: Path, low_ns: int, high_ns: int) -> Session | None:
    """What touches the window, of a trace-event file; None for other inputs and where that is not enough."""
    if not path.is_file() or path.stat().st_size < SMALL or reader_of(path) is not None:
        return None
    from stallscope.profiler.readers import trace_window

    content = content_of(path)
    session = trace_window.read_window(path, low_ns, high_ns)
    if session is not None:
        session.content = content
    return session


def _of_rank(path: Path, rank: int) -> Session | None:
    """One rank of a folder of Ascend recordings; None for other inputs."""
    if not path.is_dir():
        return None
    from stallscope.profiler.readers import ascend_pt

    if reader_of(path) is not ascend_pt:
        return None
    content = content_of(path)
    session = ascend_pt.read(path, rank)
    session.content = content
    # a file's name is not its content
    is_it = session.facts.get("rank") == rank or any(t.rank == rank for t in session.timeline.tracks)
    return session if is_it else None


def rank_of(path: Path) -> int | None:
    """The rank that a trace file says it is of, at its beginning; None if it says none or cannot be read."""
    try:
        found = _RANK.search(source.head(path))
    except InputError:
        return None
    return int(found[1]) if found else None


def files_of_rank(files: Sequence[Path], rank: int) -> list[Path]:
    """The files of one rank among trace files; those that do not say their rank only if none says this one.

    Raises OptionError where all say another rank.
    """
    ranks = [rank_of(path) for path in files]
    for wanted in (rank, None):
        if chosen := [path for path, known in zip(files, ranks, strict=True) if known == wanted]:
            return chosen
    known = sorted({r for r in ranks if r is not None})
    raise OptionError(f"there is no rank {rank} in this folder. Its ranks: {', '.join(map(str, known))}.")


__all__ = ["SMALL", "files_of_rank", "load_part", "rank_of"]
