"""Where on the host something happened: the nearest user frame, operator and annotation of many rows.

All functions take arrays of rows and walk up the call tree for all of them at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Where
from stallscope.analyzers.frames import is_user_frame, is_waiting_frame, short_place
from stallscope.profiler.kinds import Kind
from stallscope.profiler.timeline import Int64, Timeline

Rows = npt.NDArray[np.intp]


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
        return self.operator or self.annotation or "code that left no record"

    def where(self, kernel: str = "") -> Where:
        return Where(python=self.python, operator=self.operator or self.annotation, kernel=kernel)


class Places:
    """Nearest ancestors of rows in one timeline."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline

    def nearest(self, rows: Rows, mask: npt.NDArray[np.bool_]) -> Rows:
        """For each row (-1 allowed) itself or its nearest ancestor inside `mask`, else -1."""
        at = np.asarray(rows, np.intp).copy()
        parent = self.timeline.spans.parent
        open_ = (at >= 0) & ~mask[np.maximum(at, 0)]
        while open_.any():
            at[open_] = parent[at[open_]]
            open_ = (at >= 0) & ~mask[np.maximum(at, 0)]
        return at

    @cached_property
    def is_user(self) -> npt.NDArray[np.bool_]:
        """Python rows of the user's code, shape (n,)."""
        return self.is_python & self.timeline.match_names(is_user_frame)

    @cached_property
    def is_python(self) -> npt.NDArray[np.bool_]:
        return self.timeline.of_kind(Kind.PYTHON)

    @cached_property
    def is_operator(self) -> npt.NDArray[np.bool_]:
        return self.timeline.of_kind(Kind.OPERATOR)

    @cached_property
    def is_annotation(self) -> npt.NDArray[np.bool_]:
        return self.timeline.of_kind(Kind.ANNOTATION)

    @cached_property
    def is_waiting(self) -> npt.NDArray[np.bool_]:
        """Python rows that, when innermost, wait for something outside their thread. Shape (n,)."""
        return self.is_python & self.timeline.match_names(is_waiting_frame)

    def user_frames(self, rows: Rows) -> Rows:
        """The nearest user frame; the nearest frame of any code where there is no user's; else -1."""
        user = self.nearest(rows, self.is_user)
        lost = user < 0
        if lost.any():
            user[lost] = self.nearest(np.asarray(rows)[lost], self.is_python)
        return user

    def operators(self, rows: Rows) -> Rows:
        return self.nearest(rows, self.is_operator)

    def outer_operators(self, rows: Rows) -> Rows:
        """The outermost operator of the unbroken run of operators around each row, else -1."""
        at = self.operators(rows)
        parent = self.timeline.spans.parent
        while True:
            up = np.where(at >= 0, parent[np.maximum(at, 0)], -1)
            climbs = (up >= 0) & self.is_operator[np.maximum(up, 0)]
            if not climbs.any():
                return at
            at = np.where(climbs, up, at)

    def annotations(self, rows: Rows) -> Rows:
        return self.nearest(rows, self.is_annotation)

    def name(self, row: int) -> str:
        return self.timeline.name(row) if row >= 0 else ""

    def place(self, row: int) -> Place:
        """Frame, operator and annotation around one row."""
        one = np.array([row], np.intp)
        return Place(
            self.name(int(self.user_frames(one)[0])),
            self.name(int(self.operators(one)[0])),
            self.name(int(self.annotations(one)[0])),
        )

    def covering(self, rows: Rows, start_ns: Int64, end_ns: Int64, share: float) -> Rows:
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
