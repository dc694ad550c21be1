"""A window of a trace-event file, loaded without holding the rest.

Reads:  what `chrome_trace` reads. Only events that touch the window are kept while the file is read (see
        `trace_events.tokenise`), so memory is that of the part and of the distinct texts.
Leaves: files whose part cannot be told from the part alone; for those the answer is None, and the caller
        reads the whole.

Times count from the first span of the whole file, which is known only at its end. It is guessed from the head
of the file; where the guess was far off, the file is read again. What explains the window from outside of it
is fetched in one more reading: launches of its device work, by their ids, and what ran when spans began that
reach into it. (A span ends with its caller at the latest: a frame whose return was lost does not reach as far as
it says.)
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from stallscope.profiler import kernels
from stallscope.profiler.errors import InputError
from stallscope.profiler.ids import NO_ID, TEXT_ID_BASE
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.links import is_device_work
from stallscope.profiler.part import FAR
from stallscope.profiler.readers import chrome_trace, source
from stallscope.profiler.readers.event_part import Part
from stallscope.profiler.readers.trace_events import RawEvents, tokenise, tokenise_chunks
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import NO_TIME, Int64, Timeline

BEFORE_NS = 10_000_000
"""How far before the window events are kept: most launches and callers of what is inside lie there."""
_HEAD = 4 << 20
_OTHER = "__xpu_profiler__"
_NOTHING = Part(NO_TIME + 1, NO_TIME + 1)
_NOT_WHOLE = ("several-documents", "span-not-closed", "async-not-closed")


@dataclass(frozen=True)
class Sketch:
    """The spans of a file whose names were asked for, and when its first span of all starts, as the file says it."""

    timeline: Timeline
    origin_ns: int


def read_names(path: Path, names: Callable[[str], bool]) -> Sketch | None:
    """The spans whose name `names` says yes to (it is asked once per name), as the whole file's session has them.

    None where that is not sure, as for `read_window`.
    """
    raw = tokenise(path, part=dataclasses.replace(_NOTHING, names=names))
    origin = _origin(raw)
    if origin is None:
        return None
    session = chrome_trace.interpret(raw, path.name, origin)
    return None if _is_cut(session) else Sketch(session.timeline, origin)


def read_window(
    path: Path, low_ns: int, high_ns: int, *, origin_ns: int | None = None, points: Int64 | None = None
) -> Session | None:
    """A session of at least all that touches [low, high), in nanoseconds from the file's first span.

    Its origin and every row in the window are those of the whole file's session. None where that is not sure,
    or the beginning of the file is no trace. `origin_ns` is when the first span starts, where that is known; what
    runs at one of `points`, in nanoseconds from then, is kept too.
    """
    guess = _guess(path) if origin_ns is None else origin_ns
    if guess is None:
        return None
    more = np.zeros(0, np.int64) if points is None else points
    held = _range(guess, low_ns, high_ns, more)
    raw = tokenise(path, part=held)
    origin = _origin(raw)
    if origin is not None and not _holds(held, origin, low_ns, high_ns):
        held = _range(origin, low_ns, high_ns, more)
        raw = tokenise(path, part=held)
    if origin is None:
        return None
    session = chrome_trace.interpret(raw, path.name, origin)
    missing = _missing(session.timeline, low_ns, high_ns, held.low_ns - origin)
    if missing is not None and (len(missing.ids) or len(missing.points)):
        both = np.concatenate([held.points, missing.points + origin])
        held = dataclasses.replace(held, ids=missing.ids, points=both)
        del raw, session
        session = chrome_trace.interpret(tokenise(path, part=held), path.name, origin)
    return None if len(session.timeline) == 0 or missing is None or _is_cut(session) else session


def _is_cut(session: Session) -> bool:
    """Whether it may lack what lies outside of a part and belongs to rows inside."""
    return any(code in session.notes for code in _NOT_WHOLE)


def _range(origin: int, low: int, high: int, points: Int64) -> Part:
    """What to keep for a window, if this is the origin; `points` count from it."""
    return Part(max(origin + low - BEFORE_NS, -FAR), min(origin + high, FAR), points=points + origin)


def _guess(path: Path) -> int | None:
    """The origin as the first few megabytes tell it; None where they do not, or are no trace by themselves."""
    opened = source.Source(path)

    def head() -> Iterator[bytes]:
        size = 0
        for chunk in opened.chunks(ahead=False):
            yield chunk[: _HEAD - size]
            size += len(chunk)
            if size >= _HEAD:
                return

    try:
        return _origin(tokenise_chunks(head(), path, part=_NOTHING))
    except InputError:
        return None  # reading the whole says what is wrong, if anything is


def _origin(raw: RawEvents) -> int | None:
    # the profiler's own threads are told by their id there, not by a category
    if not raw.firsts or raw.strings.find(_OTHER) >= 0:
        return None
    return chrome_trace.first_of(raw.firsts)


def _holds(held: Part, origin: int, low: int, high: int) -> bool:
    """Whether what was kept after a guess holds the window from the true origin."""
    return held.low_ns <= max(origin + low, -FAR) and held.high_ns >= min(origin + high, FAR)


@dataclass(frozen=True)
class _Missing:
    """Ids of launches that may not be loaded, and times whose callers may be missing, from the origin."""

    ids: Int64
    points: Int64


def _missing(timeline: Timeline, low: int, high: int, edge: int) -> _Missing | None:
    """What explains the window and is not loaded; None where nobody can say. Only what touches `edge` or
    comes later is loaded yet."""
    spans = timeline.spans
    work = is_device_work(spans.kind) & (spans.start_ns < high) & (spans.end_ns > low)
    ids = spans.ids_at("correlation", np.flatnonzero(work))
    if (ids == NO_ID).any():
        return None
    # whether such a length is believed depends on the whole recording
    if (spans.dur_ns[is_device_work(spans.kind)] > chrome_trace.LONG_WORK_NS).any():
        return None
    # of several calls with one id the earliest counts, which may lie before
    by_other = work & ((spans.launch_row < 0) | (spans.kind[spans.launch_row] != Kind.RUNTIME))
    ids = np.concatenate([ids, spans.ids_at("external_id", np.flatnonzero(by_other))])
    ids = kernels.distinct(ids[(ids != NO_ID) & (ids != 0)])
    if (ids <= TEXT_ID_BASE).any():
        return None
    # whether a span still runs at the edge depends on what it was called by, which may have ended before
    host = np.array([track.role != "device" for track in timeline.tracks] or [False])
    over = host[spans.track] & (spans.start_ns < edge) & (spans.end_ns >= edge)
    return _Missing(ids, kernels.distinct(spans.start_ns[over]))


__all__ = ["BEFORE_NS", "Sketch", "read_names", "read_window"]
