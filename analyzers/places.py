"""Where on the host something happened: the nearest user frame, operator and annotation of many rows.

All functions take arrays of rows and walk up the call tree for all of them at once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Where
from stallscope.analyzers.frames import has_line, is_user_file, is_user_frame, is_waiting_frame, short_place
from stallscope.analyzers.hostwords import is_compilation, is_garbage_collection, is_scheduling
from stallscope.profiler import kernels
from stallscope.profiler.activity import Segments, flatten
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Int32, Int64, Timeline

Rows = npt.NDArray[np.intp]
AnyRows = npt.NDArray[np.signedinteger[Any]]

FEW_LAUNCHES = 8
"""An operator that starts more kernels than this is a part of a model, not a call for a value."""

PROFILER_STEP = "ProfilerStep#"
"""How the ranges of profiler steps begin, whatever kind a source gives them."""

_FEW_LEVELS = 256
"""Levels of a call tree up to which rows are gone up one by one."""

_SMALL_TREE = 64
"""Rows below one row up to which they are gone through one by one."""

SAMPLE_SUFFIX = ": Python samples"
"""What the name of a track with stack samples ends with."""


def _tells(name: str) -> bool:
    """Whether the name of a span of code tells by itself what its time is: what `Places.telling` can be asked for."""
    return (
        is_waiting_frame(name) or is_garbage_collection(name) or is_compilation(name) or is_scheduling(name)
    )


@dataclass(frozen=True)
class Place:
    """One spot on the host by name; texts are "" where not known."""

    python: str = ""
    operator: str = ""
    annotation: str = ""

    @property
    def text(self) -> str:
        """The most telling name, short."""
        if self.python:
            return short_place(self.python)
        # the whole step of a profiler says when and not where
        named = "" if self.annotation.startswith(PROFILER_STEP) else self.annotation
        return self.operator or named or "code that left no record"

    def where(self, kernel: str = "") -> Where:
        return Where(python=self.python, operator=self.operator or self.annotation, kernel=kernel)


class Places:
    """Nearest ancestors of rows in one timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._samples: dict[int, Segments] = {}

    def nearest(self, rows: AnyRows, mask: npt.NDArray[np.bool_]) -> Rows:
        """For each row (-1 allowed) itself or its nearest ancestor inside `mask`, else -1."""
        return kernels.nearest(self.above, mask, rows).astype(np.intp, copy=False)

    def nearest_where(self, rows: AnyRows, test: Callable[[AnyRows], npt.NDArray[np.bool_]]) -> Rows:
        """The same with a test of rows for a mask; of few rows only their ancestors are tested."""
        at = np.array(rows, np.intp)
        left = np.flatnonzero(at >= 0)
        for _ in range(_FEW_LEVELS if len(rows) * 16 < len(self.timeline) else 0):
            if len(left) == 0:
                break
            left = left[~test(at[left])]
            at[left] = self.above[at[left]]
            left = left[at[left] >= 0]
        if len(left):
            at[left] = self.nearest(at[left], test(np.arange(len(self.timeline))))
        return at

    def below(self, mask: npt.NDArray[np.bool_]) -> Rows:
        """The rows inside of `mask` and all below them, ascending."""
        rows = np.flatnonzero(mask)
        spans = self.timeline.spans
        if len(rows) * 16 > len(spans) or self.above is not spans.parent:
            return np.flatnonzero(kernels.inherited(self.above, mask)[:-1] >= 0)
        found, top = [rows], rows
        for after in range(1, _SMALL_TREE):  # what is below a row follows it
            top = top[top + after < len(spans)]
            at = top + after
            inside = (spans.depth[at] > spans.depth[top]) & (spans.track[at] == spans.track[top])
            top = top[inside]
            if len(top) == 0:
                return kernels.distinct(np.concatenate(found))
            found.append(top + after)
        return np.flatnonzero(kernels.inherited(self.above, mask)[:-1] >= 0)

    @cached_property
    def above(self) -> Int32:
        """Each row's parent; a dequeue without one continues at its enqueue, on the thread that asked for it."""
        spans = self.timeline.spans
        if not self.timeline.has_kind(Kind.QUEUE):
            return spans.parent
        over = (spans.parent < 0) & spans.of_kind(Kind.QUEUE) & (spans.launch_row >= 0)
        return np.where(over, spans.launch_row, spans.parent) if over.any() else spans.parent

    @cached_property
    def is_user(self) -> npt.NDArray[np.bool_]:
        """Python rows of the user's code, shape (n,)."""
        named = self.timeline.match_names(
            lambda n: is_user_frame(n) and not is_garbage_collection(n), Kind.PYTHON
        )
        if "file" not in self.timeline.args.keys:
            return named
        codes, files = self.timeline.arg_codes("file")
        told = np.array([is_user_file(str(f)) for f in files] + [False], bool)
        return np.asarray(self.is_python & np.where(codes >= 0, told[codes], named), np.bool_)

    @cached_property
    def sample_tracks(self) -> dict[int, int]:
        """Track of a thread to the track that holds the stack samples of the same thread."""
        samples = {
            (t.rank, t.process, t.thread): i
            for i, t in enumerate(self.timeline.tracks)
            if t.name.endswith(SAMPLE_SUFFIX)
        }
        return {
            i: samples[key]
            for i, t in enumerate(self.timeline.tracks)
            if t.role == "host" and (key := (t.rank, t.process, t.thread)) in samples and samples[key] != i
        }

    def samples(self, track: int) -> Segments | None:
        """The stack samples of a thread as innermost segments, or None if it has none."""
        at = self.sample_tracks.get(track)
        if at is None:
            return None
        if at not in self._samples:
            self._samples[at] = flatten(self.timeline, at)
        return self._samples[at]

    def _sampled(self, rows: AnyRows) -> Rows:
        """The innermost sampled frame of the same thread in the middle of each row, else -1."""
        spans = self.timeline.spans
        out = np.full(len(rows), -1, np.intp)
        for track in kernels.distinct(spans.track[rows]).tolist():
            found = self.samples(track)
            if found is None or len(found.row) == 0:
                continue
            mine = np.flatnonzero(spans.track[rows] == track)
            middle = spans.start_ns[rows[mine]] + spans.dur_ns[rows[mine]] // 2
            at = np.maximum(np.searchsorted(found.start_ns, middle, side="right") - 1, 0)
            inside = (found.start_ns[at] <= middle) & (middle < found.end_ns[at])
            out[mine[inside]] = found.row[at[inside]]
        return out

    @cached_property
    def is_python(self) -> npt.NDArray[np.bool_]:
        return self.timeline.of_kind(Kind.PYTHON)

    def _tell_line(self, rows: AnyRows) -> npt.NDArray[np.bool_]:
        """Which of some rows are of Python and tell a file and a line. Shape of `rows`."""
        return self.is_python[rows] & self.timeline.match_names_at(has_line, rows)

    @cached_property
    def is_operator(self) -> npt.NDArray[np.bool_]:
        found = self.timeline.of_kind(Kind.OPERATOR)
        found[self._steps] = False
        return found

    @cached_property
    def is_annotation(self) -> npt.NDArray[np.bool_]:
        found = self.timeline.of_kind(Kind.ANNOTATION)
        found[self._steps] = True
        return found

    @cached_property
    def _steps(self) -> AnyRows:
        """Ranges of profiler steps that a source (Kineto up to torch 1.9) wrote among the operators."""
        return self.timeline.named_rows(lambda n: n.startswith(PROFILER_STEP), Kind.OPERATOR)

    @cached_property
    def is_waiting(self) -> npt.NDArray[np.bool_]:
        """Python rows that, when innermost, wait for something outside their thread. Shape (n,)."""
        rows = self.telling(is_waiting_frame)
        found = np.zeros(len(self.timeline), np.bool_)
        found[rows[self.timeline.are_kind(rows, Kind.PYTHON)]] = True
        return found

    def telling(self, test: Callable[[str], bool]) -> AnyRows:
        """Spans of code (not of the runtime) by a test of names that is part of `_tells`."""
        return self._telling[self.timeline.match_names_at(test, self._telling)]

    @cached_property
    def _telling(self) -> AnyRows:
        """Spans of code that `_tells` finds: few, so that all rows are gone through only once."""
        kinds = (Kind.PYTHON, Kind.OPERATOR, Kind.ANNOTATION, Kind.OTHER)
        return np.concatenate([self.timeline.named_rows(_tells, kind) for kind in kinds])

    def user_frames(self, rows: AnyRows) -> Rows:
        """The nearest user frame; where there is none, the nearest of any code with a file and a line; where there
        is none either, the nearest at all (a built-in, a module); else -1."""
        return self.frame_of[rows].astype(np.intp)

    @cached_property
    def frame_of(self) -> Int32:
        """`user_frames` of every row, and behind them -1 for -1. Shape (n + 1,)."""
        frame = kernels.inherited(self.above, self.is_user)
        if self.sample_tracks:
            lost = np.flatnonzero(frame[:-1] < 0)
            sampled = self._sampled(lost)
            found = frame[sampled]
            frame[lost] = np.where(found >= 0, found, sampled)
        lost = self._below_python(frame)
        if len(lost):
            frame[lost] = self.nearest_where(lost, self._tell_line)
            lost = lost[frame[lost] < 0]
        if len(lost):
            frame[lost] = self.nearest(lost, self.is_python)
        return frame

    def _below_python(self, frame: Int32) -> Rows:
        """The rows without a frame that some Python row may be above of."""
        if self.above is not self.timeline.spans.parent:
            return np.flatnonzero(frame[:-1] < 0)
        tracks = map(
            self.timeline.track_rows, range(len(self.timeline.tracks))
        )  # what is above is on the same track
        found = [t.start + np.flatnonzero(frame[t] < 0) for t in tracks if self.is_python[t].any()]
        return np.concatenate(found) if found else np.zeros(0, np.intp)

    def operators(self, rows: AnyRows) -> Rows:
        return self.operator_of[rows].astype(np.intp)

    @cached_property
    def operator_of(self) -> Int32:
        """`operators` of every row, and behind them -1 for -1. Shape (n + 1,)."""
        return kernels.inherited(self.above, self.is_operator)

    def outer_operators(self, rows: AnyRows) -> Rows:
        """The outermost operator of the unbroken run of operators around each row, else -1."""
        at, parent = kernels.mapped(self.operator_of, rows), self.timeline.spans.parent
        rising = np.flatnonzero(at >= 0)
        inner = at[rising]
        while len(rising):
            up = kernels.mapped(parent, inner)
            more = (up >= 0) & kernels.mapped(self.is_operator, up)
            rising, inner = rising[more], up[more]
            at[rising] = inner
        return at.astype(np.intp)

    def calling_operators(self, rows: AnyRows) -> Rows:
        """The operator that a program called and that did the work of each row: the outermost of the unbroken run of
        operators around it that starts only a few kernels. What is around that (a step, a compiled region, a
        function of the autograd engine, a module) is no operator a program calls for its value. -1 for none.
        """
        at = kernels.mapped(self.operator_of, rows)
        at[(at >= 0) & ~kernels.mapped(self._is_call, at)] = -1
        return kernels.nearest(self.timeline.spans.parent, self._outer_call, at).astype(np.intp, copy=False)

    @cached_property
    def _outer_call(self) -> npt.NDArray[np.bool_]:
        """Operators in `_is_call` whose parent is not. Shape (n,)."""
        rows = self.timeline.rows(Kind.OPERATOR)
        rows = rows[self._is_call[rows]]
        up = self.timeline.spans.parent[rows]
        top = np.zeros(len(self.timeline), np.bool_)
        top[rows[(up < 0) | ~self._is_call[up]]] = True
        return top

    @cached_property
    def _is_call(self) -> npt.NDArray[np.bool_]:
        """Operators with a name space, which start few kernels. Shape (n,)."""
        named = self.timeline.named_rows(
            lambda n: "::" in n and not n.startswith(("autograd::engine", "##")) and " " not in n,
            Kind.OPERATOR,
        )
        found = np.zeros(len(self.timeline), np.bool_)
        found[named[self._launches_inside()[named] <= FEW_LAUNCHES]] = True
        found[self._steps] = False
        return found

    def _launches_inside(self) -> npt.NDArray[np.uint8]:
        """How many kernel launches each operator holds, by correlation of work on the device; of more than
        `FEW_LAUNCHES` only that they are more. Shape (n,)."""
        spans, many = self.timeline.spans, FEW_LAUNCHES + 1
        here = self.above is spans.parent
        around = self.operator_of if here else kernels.inherited(spans.parent, self.is_operator)
        out = np.zeros(len(spans), np.uint8)
        at = kernels.distinct(spans.launch_row[self.timeline.rows(Kind.KERNEL)])
        at = around[at[at >= 0]]
        at = at[at >= 0]
        inside = np.ones(len(at), np.int64)
        while len(at):
            order = np.argsort(at, kind="stable")  # nearly in order, and the higher up, the fewer are left
            at = at[order]
            heads = np.flatnonzero(np.append(True, at[1:] != at[:-1]))
            at, inside = at[heads], np.minimum(np.add.reduceat(inside[order], heads), many)
            out[at] = np.minimum(out[at] + inside, many)
            at = around[spans.parent[at]]
            at, inside = at[at >= 0], inside[at >= 0]
        return out

    def name(self, row: int) -> str:
        return self.timeline.name(row) if row >= 0 else ""

    def place(self, row: int) -> Place:
        """Frame, operator and annotation around one row."""
        frame, operator, label = int(self.frame_of[row]), int(self.operator_of[row]), row
        while label >= 0 and not self.is_annotation[label]:  # no column of all annotations for one row
            label = int(self.above[label])
        return Place(self.name(frame), self.name(operator), self.name(label))

    def covering(self, rows: AnyRows, start_ns: Int64, end_ns: Int64, share: float) -> Rows:
        """The deepest span (itself or an ancestor of each row) that covers `share` of [start, end); else -1."""
        spans = self.timeline.spans
        at = np.asarray(rows, np.intp).copy()
        need = share * (end_ns - start_ns)

        def short() -> npt.NDArray[np.bool_]:
            r = np.maximum(at, 0)
            got = np.minimum(spans.start_ns[r] + spans.dur_ns[r], end_ns) - np.maximum(
                spans.start_ns[r], start_ns
            )
            return np.asarray((at >= 0) & (got < need), np.bool_)

        open_ = short()
        while open_.any():
            at[open_] = spans.parent[at[open_]]
            open_ = short()
        return at
