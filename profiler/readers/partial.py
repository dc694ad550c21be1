"""Loads a part of a recording: a window of time, a range of steps, one rank, or what all of these share.

What pays is decided by what the input is:

* a window of a trace-event file is cut out while the file is read (`trace_window`);
* steps of a trace-event file are such a window, where names tell them: a first reading keeps only what names steps;
* one rank of a folder of traces, or of Ascend recordings, is read from that rank's files alone (its times then
  count from its own start);
* everything else is loaded whole and then cut (`stallscope.profiler.part`): the tables of other formats only make
  sense together, and steps that no name tells follow from all the work there is. A note says where a large
  trace had to be read whole.

The result is the same either way. Small trace files are loaded whole too, which costs less time.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from stallscope.profiler import kernels
from stallscope.profiler import part as cutting
from stallscope.profiler.content import content_of
from stallscope.profiler.errors import InputError, OptionError
from stallscope.profiler.light import dataclass
from stallscope.profiler.nesting import SIBLING_OVERLAP_NS, nest
from stallscope.profiler.readers import load, reader_of, source
from stallscope.profiler.session import Session
from stallscope.profiler.steps import Holder, is_step_sign, named_steps
from stallscope.profiler.timeline import Int64, Timeline, Track

SMALL = 8 << 20
"""Files up to this size are loaded whole: a part costs a second reading, and saves little memory there."""
_WHY_WHOLE = "the part could not be told from itself alone, so the whole file was loaded and then cut"
_WHY_STEPS = "no name in the trace tells its steps, they follow from its work: so the whole file was loaded and then cut"
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
    if steps is not None:
        cutting.parse_steps(steps)  # what is wrong with it is said before any long work
    known = _known_part(Path(path), window, steps, rank)
    session = known.session
    if session is None:
        session = load(path)
        if known.why_whole:
            session.notes.add("part-read-whole", "info", known.why_whole)
    return cutting.part(session, window=window, steps=steps, rank=rank, step_times=known.step_times)


@dataclass(frozen=True)
class _Known:
    """A session that holds the part, None where the whole has to be read, and why if that is worth saying; where the
    chosen steps lie in it, if that is known."""

    session: Session | None = None
    why_whole: str = ""
    step_times: tuple[int, int] | None = None


def _known_part(path: Path, window: str | None, steps: str | None, rank: int | None) -> _Known:
    low, high = cutting.ends_of(window)
    if window is None and steps is None:
        return _Known(_of_rank(path, rank) if rank is not None else None)
    if not path.is_file() or path.stat().st_size < SMALL or reader_of(path) is not None:
        return _Known()
    if steps is not None:
        return _of_steps(path, window, steps)
    return _window(path, low, high)


def _window(
    path: Path, low_ns: int, high_ns: int, origin_ns: int | None = None, points: Int64 | None = None
) -> _Known:
    """What touches the window, of a trace-event file."""
    from stallscope.profiler.readers import trace_window

    content = content_of(path)
    session = trace_window.read_window(path, low_ns, high_ns, origin_ns=origin_ns, points=points)
    if session is None:
        return _Known(None, _WHY_WHOLE)
    session.content = content
    return _Known(session)


def _of_steps(path: Path, window: str | None, steps: str) -> _Known:
    """The chosen steps of a trace-event file, as far as they lie in the window."""
    from stallscope.profiler.readers import trace_window

    sketch = trace_window.read_names(path, is_step_sign)
    named = named_steps(sketch.timeline) if sketch is not None else None
    if sketch is None or named is None:
        return _Known(None, _WHY_STEPS)
    found, holders = named
    try:
        times = cutting.times_of_steps(found, steps)
        low, high = cutting.ends_of(window, times)
    except OptionError:
        if holders:
            return _Known(None, _WHY_WHOLE)
        raise
    points = kernels.distinct(np.array([h.start_ns for h in holders], np.int64))
    known = _window(path, low, high, sketch.origin_ns, points)
    if known.session is None or not _run_on(known.session.timeline, holders):
        return _Known(None, _WHY_WHOLE)
    return dataclasses.replace(known, step_times=times)


def _run_on(timeline: Timeline, holders: Sequence[Holder]) -> bool:
    """Whether each holder still runs when the last range inside of it begins. All that ran when it began is there."""
    if not holders:
        return True
    spans = timeline.spans
    ends = nest(spans.track, spans.start_ns, spans.dur_ns).effective_end_ns
    for holder in holders:
        rows = [
            timeline.track_rows(number)
            for number, track in enumerate(timeline.tracks)
            if _lane(track) == _lane(holder.track)
        ]
        found = [
            ends[at][(spans.start_ns[at] == holder.start_ns) & (spans.end_ns[at] == holder.end_ns)]
            for at in rows
        ]
        end = max((int(e.min()) for e in found if len(e)), default=holder.start_ns)
        if end - holder.last_ns <= SIBLING_OVERLAP_NS:
            return False
    return True


def _lane(track: Track) -> tuple[Any, ...]:
    return track.role, track.process, track.thread


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
