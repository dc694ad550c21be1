"""Names the kernels inside of graph replays by a second recording of the same program.

A replay is one launch with many kernels, and no operator stands behind any of them. A recording of the graph's
*capture* holds the launches with their operators and shapes (and, on ROCm, the kernels' names), but no kernels; an
*eager* recording holds both. The kernels of a replay are matched to it by the sequence of their names, exactly.
Nothing is claimed unless the sanity check holds: nearly all kernels of replays must be found, and where the other
recording has times, they must agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.models.attribution import call_costs, operator_rows
from stallscope.profiler.kernels import distinct, group
from stallscope.profiler.kinds import Kind, is_kernel_launch
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Note
from stallscope.profiler.session import Session
from stallscope.profiler.step_pattern import stretch_hashes
from stallscope.profiler.timeline import Int32, Int64, Timeline

if TYPE_CHECKING:
    from stallscope.analyzers.work import Calls, Work

Rows = npt.NDArray[np.intp]

LEAST_MATCHED = 0.95
"""Share of the kernels in replays that must be found in the companion."""
TIME_RATIO = (2 / 3, 3 / 2)
"""Bounds of the time of matched kernels here over their time in an eager companion."""

_BUCKET = re.compile(r"capture\D*?(?:bs|size|tokens)?[_= ]?(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Unit:
    """A stretch of launches in the companion: names, operator rows and own times of its kernels.

    `bucket` is the size a capture was made for, 0 where not told. `ns` is 0 for launches without a kernel.
    """

    names: tuple[str, ...]
    op_rows: Int64
    ns: Int64
    bucket: int = 0


@dataclass
class Match:
    """How far the replays were found, with the numbers that the decision rests on."""

    kernels: int = 0
    found: int = 0
    replays: int = 0
    replays_found: int = 0
    ambiguous: int = 0
    here_ns: int = 0
    there_ns: int = 0
    buckets: dict[int, int] = field(default_factory=dict)
    """Graph launch row to the size its capture was made for."""

    @property
    def time_ratio(self) -> float | None:
        return self.here_ns / self.there_ns if self.there_ns else None

    @property
    def refusal(self) -> str:
        """Why the companion is not used, "" if it is."""
        if self.kernels == 0:
            return "this recording holds no kernels of graph replays"
        if self.found < LEAST_MATCHED * self.kernels:
            rest = f", {self.ambiguous} of them fit several captures" if self.ambiguous else ""
            return (
                f"{self.found} of {self.kernels} kernels in {self.replays} graph replays are found in it in order "
                f"({self.found / self.kernels:.1%}, at least {LEAST_MATCHED:.0%} is needed{rest})"
            )
        ratio = self.time_ratio
        if ratio is not None and not TIME_RATIO[0] <= ratio <= TIME_RATIO[1]:
            return (
                f"its kernels take other times: matched ones take {ratio:.2f} times as long here "
                f"(accepted: {TIME_RATIO[0]:.2f} to {TIME_RATIO[1]:.2f})"
            )
        return ""

    @property
    def text(self) -> str:
        """The sanity check in one sentence."""
        if self.refusal:
            return f"the companion is not used: {self.refusal}"
        ratio = self.time_ratio
        times = f"; they take {ratio:.2f} times as long here" if ratio is not None else ""
        return f"{self.found} of {self.kernels} kernels in {self.replays} graph replays are named by the companion{times}"


class Companion:
    """The second recording, and what it says about replays of the first."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.timeline = session.timeline
        self.match = Match()

    def note(self) -> Note:
        """What became of the companion, for the report."""
        return Note("companion", "warning" if self.match.refusal else "info", self.match.text)

    def calls(self, work: Work) -> Calls | None:
        """The operator calls behind replayed kernels, or None if the companion does not fit."""
        matched = list(self._matches(work))
        if self.match.refusal or not matched:
            return None
        return self._as_calls(work, matched)

    def _matches(self, work: Work) -> Iterator[tuple[int, Rows, Int64]]:
        """Per replay that is found: its step, its kernels and the operator row behind each."""
        units = self._units()
        by_names: dict[tuple[str, ...], list[Unit]] = {}
        for unit in units:
            by_names.setdefault(unit.names, []).append(unit)
        eager = _Eager(self.timeline)
        seen: dict[tuple[int, tuple[str, ...]], int] = {}
        self.match = Match()
        for launch, kernels in _replays(work):
            step = int(work.run.step_of_row[launch])
            names = tuple(work.timeline.name(int(r)) for r in kernels)
            self.match.kernels += len(kernels)
            self.match.replays += 1
            candidates = by_names.get(names) or eager.find(names)
            turn = seen[step, names] = seen.get((step, names), -1) + 1
            chosen = self._choose(candidates, _size(work, step), turn)
            if chosen is None:
                self.match.ambiguous += len(kernels) if candidates else 0
                continue
            self._count(work.timeline, kernels, chosen, launch)
            yield step, kernels, chosen.op_rows

    def _count(self, timeline: Timeline, kernels: Rows, unit: Unit, launch: int) -> None:
        self.match.found += len(kernels)
        self.match.replays_found += 1
        if unit.bucket:
            self.match.buckets[launch] = unit.bucket
        if unit.ns.any():
            self.match.here_ns += int(timeline.spans.dur_ns[kernels].sum())
            self.match.there_ns += int(unit.ns.sum())

    def _choose(self, units: list[Unit], size: int, turn: int) -> Unit | None:
        """The unit behind the `turn`-th replay of one sequence in a step of a size; None for none, or several."""
        buckets = sorted({u.bucket for u in units})
        if len(buckets) > 1:
            fitting = [b for b in buckets if size and b >= size]
            if not fitting:
                return None
            units = [u for u in units if u.bucket == fitting[0]]
        if not units:
            return None
        calls = {self._signature(u) for u in units}
        return units[0] if len(calls) == 1 else units[turn] if turn < len(units) else None

    def _signature(self, unit: Unit) -> tuple[int, ...]:
        """What the operators of a unit were called with: units that agree in it cost the same."""
        known = unit.op_rows[unit.op_rows >= 0]
        return (*self.timeline.spans.name[known].tolist(), *self._shape_code[known].tolist())

    @cached_property
    def _shape_code(self) -> Int32:
        return self.timeline.arg_codes("Input Dims")[0]

    # -- what the companion holds ------------------------------------------------------------------

    def _units(self) -> list[Unit]:
        """One unit per captured graph."""
        from stallscope.analyzers.run import Run

        run = Run(self.session)
        spans = self.timeline.spans
        launches = self.timeline.named_rows(is_kernel_launch, Kind.RUNTIME)
        owner = operator_rows(self.timeline, launches)
        codes, values = self.timeline.arg_values("kernel", launches)
        units = []
        for track in run.host_tracks:
            for start, end in zip(*run.captures(track), strict=True):
                mine = (spans.track[launches] == track) & (spans.start_ns[launches] >= start)
                mine &= spans.start_ns[launches] < end
                at = np.flatnonzero(mine)
                names = tuple(str(values[c]) if c >= 0 else "" for c in codes[at].tolist())
                if names and all(names):
                    rows = owner[at].astype(np.int64)
                    units.append(
                        Unit(names, rows, np.zeros(len(at), np.int64), self._bucket(track, int(start)))
                    )
        return units

    def _bucket(self, track: int, at_ns: int) -> int:
        """The size that an annotation around a capture tells, 0 if none does."""
        spans = self.timeline.spans
        rows = self.timeline.rows(Kind.ANNOTATION)
        rows = rows[
            (spans.track[rows] == track) & (spans.start_ns[rows] <= at_ns) & (spans.end_at(rows) > at_ns)
        ]
        for row in rows[::-1].tolist():
            found = _BUCKET.match(self.timeline.name(row))
            if found is not None:
                return int(found[1])
        return 0

    # -- costs -------------------------------------------------------------------------------------

    def _as_calls(self, work: Work, matched: list[tuple[int, Rows, Int64]]) -> Calls:
        from stallscope.analyzers.work import Calls, shown_shapes

        sums, of_row = work.tokens
        per_step = _token_codes(work, of_row)
        kernels = np.concatenate([k for _, k, _ in matched]).astype(np.int64)
        owners = np.concatenate([o for _, _, o in matched])
        replay = np.repeat(np.arange(len(matched)), [len(k) for _, k, _ in matched])
        tokens = np.repeat([per_step[s] for s, _, _ in matched], [len(k) for _, k, _ in matched])
        keep = owners >= 0
        kernels, owners, replay, tokens = kernels[keep], owners[keep], replay[keep], tokens[keep]
        duration = work.timeline.spans.dur_ns[kernels]
        order = np.lexsort((duration, owners, replay))
        kernels, owners, replay, tokens = kernels[order], owners[order], replay[order], tokens[order]
        first = np.flatnonzero(np.append(True, (np.diff(owners) != 0) | (np.diff(replay) != 0)))
        first = first if len(kernels) else np.zeros(0, np.intp)
        starts = np.append(first, len(kernels)).astype(np.int64)
        at, heads = group(owners[first], tokens[first].astype(np.int64))
        pairs = np.stack([owners[first][heads], tokens[first][heads]])
        code, costs = call_costs(self.timeline, pairs[0], pairs[0], sums, pairs[1])
        texts, operator, shapes = _texts(self.timeline, pairs[0], shown_shapes)
        sums_ns = np.add.reduceat(duration[order], first) if len(first) else np.zeros(0, np.int64)
        return Calls(
            texts=texts,
            costs=costs,
            operator=operator[at],
            shapes=shapes[at],
            cost=code[at],
            longest=kernels[starts[1:] - 1],
            duration_ns=sums_ns,
            op_row=np.full(len(first), -1, np.int64),
            rows=kernels,
            starts=starts,
        )


class _Eager:
    """Kernels of the companion with their operators, to look sequences up in. Prepared when first asked."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self._streams: list[tuple[Int32, Rows]] | None = None
        self._found: dict[tuple[str, ...], list[Unit]] = {}

    def find(self, names: tuple[str, ...]) -> list[Unit]:
        """All places where this sequence of kernels stands in one stream."""
        if names not in self._found:
            self._found[names] = list(self._look(names))
        return self._found[names]

    def _look(self, names: tuple[str, ...]) -> Iterator[Unit]:
        wanted = np.array([self.timeline.strings.find(n) for n in names])
        if (wanted < 0).any() or len(wanted) < 2:
            return
        spans = self.timeline.spans
        for codes, rows in self.streams:
            start = np.flatnonzero(codes == wanted[0]).astype(np.int64)
            start = start[start + len(wanted) <= len(codes)]
            if len(start) == 0:
                continue
            both = np.concatenate([codes, wanted])
            stop = start + len(wanted)
            there = stretch_hashes(both, start, stop)
            here = stretch_hashes(both, np.array([len(codes)]), np.array([len(both)]))
            for at in start[there == here[0]].tolist():
                mine = rows[at : at + len(wanted)]
                op_rows = operator_rows(self.timeline, spans.launch_row[mine]).astype(np.int64)
                yield Unit(names, op_rows, spans.dur_ns[mine].astype(np.int64))

    @property
    def streams(self) -> list[tuple[Int32, Rows]]:
        if self._streams is None:
            spans = self.timeline.spans
            rows = self.timeline.rows(Kind.KERNEL, Kind.COLLECTIVE)
            self._streams = []
            for track in distinct(spans.track[rows]).tolist():
                mine = rows[spans.track[rows] == track]
                self._streams.append((spans.name[mine], mine))
        return self._streams


def _replays(work: Work) -> Iterator[tuple[int, Rows]]:
    """Graph launches and the kernels each started, in the order they ran."""
    spans = work.timeline.spans
    rows = work.run.whole.rows
    rows = rows[work.timeline.are_kind(rows, Kind.KERNEL, Kind.COLLECTIVE)]
    launch = spans.launch_row[rows]
    replayed = (launch >= 0) & work.run.is_graph_launch[np.maximum(launch, 0)]
    rows, launch = rows[replayed], launch[replayed]
    if len(rows) == 0:
        return
    order = np.argsort(launch, kind="stable")
    rows, launch = rows[order], launch[order]
    edges = np.flatnonzero(np.append(True, np.diff(launch) != 0))
    for start, stop in zip(edges.tolist(), [*edges[1:].tolist(), len(rows)], strict=True):
        yield int(launch[start]), rows[start:stop]


def _size(work: Work, step: int) -> int:
    """The size a step's graph must hold: its bucket, else its tokens, else its requests; 0 if not told."""
    facts = work.run.steps[step].facts if step >= 0 else {}
    for key in ("bucket", "tokens", "batch"):
        value = facts.get(key)
        if isinstance(value, int) and value > 0:
            return value
    return 0


def _token_codes(work: Work, of_row: Int32) -> dict[int, int]:
    """Step number to its index among the token sums; -1 for steps without."""
    out = {-1: -1}
    used = np.flatnonzero(work.run.step_of_row >= 0)
    out.update(zip(work.run.step_of_row[used].tolist(), of_row[used].tolist(), strict=True))
    return out


def _texts(timeline: Timeline, op_rows: Int64, shown: Any) -> tuple[list[str], Int32, Int32]:
    """Names and shapes of operators as texts, and codes into them."""
    texts: list[str] = []
    codes: dict[str, int] = {}
    given, values = timeline.arg_values("Input Dims", op_rows)
    operator = np.zeros(len(op_rows), np.int32)
    shapes = np.full(len(op_rows), -1, np.int32)
    for i, row in enumerate(op_rows.tolist()):
        for column, text in (
            (operator, timeline.name(row)),
            (shapes, shown(values[given[i]]) if given[i] >= 0 else ""),
        ):
            if text and text not in codes:
                codes[text] = len(texts)
                texts.append(text)
            column[i] = codes.get(text, -1)
    return texts, operator, shapes
