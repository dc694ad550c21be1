"""Which operator a kernel belongs to, and what that operator's call costs.

The operator of a device span is the innermost operator around its launch call that recorded shapes. A
kernel of a graph replay has none: the call that replays the graph is not the call that made the kernel.
Costs are worked out once per distinct call (name, shapes, types, arguments), of which a trace of a million
kernels holds some hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.models.call import Cost, StepTokens
from stallscope.analyzers.models.cost import estimate, estimate_kernel_row
from stallscope.analyzers.models.family import Family, kernel_family
from stallscope.profiler.kinds import Kind, is_graph_launch
from stallscope.profiler.timeline import Int32, Int64, Timeline

_SHAPES = ("Input Dims", "Input dims")
_KEYS = ("Input type", "Concrete Inputs", "Input Strides")
_ROW_KEYS = ("Type", "Input Shapes", "Input Data Types", "Output Shapes", "Output Data Types")


@dataclass(frozen=True)
class OperatorWork:
    """One operator call with what its device spans took together.

    `op_row` is the operator's row, or the kernel's own row where the source records shapes per kernel
    (Ascend tables). `rows` are its device spans, `duration_ns` the sum of their times, `longest` the row
    of the longest one. `cost` is None where no model fits.
    """

    op_row: int
    rows: Int64
    duration_ns: int
    longest: int
    cost: Cost | None


@dataclass(frozen=True)
class Attribution:
    """All device work of a timeline by operator call.

    `device_rows` are the rows of all device work, shape (n,); `owner` the operator row of each or -1;
    `family` the family of each (of its operator's cost, else of its own name). `work` is one entry per
    operator call that has shapes, by row.
    """

    device_rows: npt.NDArray[np.intp]
    owner: Int32
    family: list[Family]
    work: list[OperatorWork]

    def modelled_ns(self, timeline: Timeline, *, exact: bool = False) -> int:
        """Device time of calls with a cost; with `exact`, of costs that the shapes fix."""
        return sum(w.duration_ns for w in self.work if w.cost is not None and (w.cost.exact or not exact))


def operator_rows(timeline: Timeline) -> Int32:
    """Per row, the innermost operator with shapes at or above it, -1 for none. Shape (n,)."""
    spans = timeline.spans
    with_shapes = np.zeros(len(timeline), dtype=bool)
    for key in _SHAPES:
        with_shapes |= timeline.arg_codes(key)[0] >= 0
    qualifies = with_shapes & (spans.kind == Kind.OPERATOR)
    owner = np.where(qualifies, np.arange(len(timeline)), -1).astype(np.int32)
    if not len(timeline):
        return owner
    order = np.argsort(spans.depth, kind="stable")
    edges = np.searchsorted(spans.depth[order], np.arange(int(spans.depth.max()) + 2))
    for depth in range(1, len(edges) - 1):
        rows = order[edges[depth] : edges[depth + 1]]
        rows = rows[(owner[rows] < 0) & (spans.parent[rows] >= 0)]
        owner[rows] = owner[spans.parent[rows]]
    return owner


def attribute(timeline: Timeline, step_of: Callable[[int], StepTokens | None] | None = None) -> Attribution:
    """Join device work to operators and their costs.

    `step_of` gives the token sums of the engine step that a row (of an operator) belongs to.
    """
    spans = timeline.spans
    device = timeline.device_work()
    launch = spans.launch_row[device]
    replays = timeline.match_names(is_graph_launch)
    owner = np.full(len(device), -1, dtype=np.int32)
    linked = launch >= 0
    linked[linked] = ~replays[launch[linked]]
    owner[linked] = operator_rows(timeline)[launch[linked]]
    costs = _Costs(timeline, step_of)
    work = [*_by_operator(timeline, device, owner, costs), *_by_kernel_row(timeline, device, owner, costs)]
    work.sort(key=lambda w: w.op_row)
    return Attribution(device, owner, _families(timeline, device, work), work)


def _by_operator(
    timeline: Timeline, device: npt.NDArray[np.intp], owner: Int32, costs: _Costs
) -> list[OperatorWork]:
    owned = np.flatnonzero(owner >= 0)
    order = owned[np.argsort(owner[owned], kind="stable")]
    starts = np.flatnonzero(np.diff(owner[order], prepend=-2))
    made = []
    for group in np.split(order, starts[1:]) if len(order) else []:
        rows = device[group].astype(np.int64)
        durations = timeline.spans.dur_ns[rows]
        longest = int(rows[durations.argmax()])
        op_row = int(owner[group[0]])
        cost = costs.of_operator(op_row, timeline.name(longest))
        made.append(OperatorWork(op_row, rows, int(durations.sum()), longest, cost))
    return made


def _by_kernel_row(
    timeline: Timeline, device: npt.NDArray[np.intp], owner: Int32, costs: _Costs
) -> list[OperatorWork]:
    """Kernels that carry their own shapes (Ascend's kernel tables) and have no operator with a cost."""
    codes, _ = timeline.arg_codes("Input Shapes")
    made = []
    for row in device[(owner < 0) & (codes[device] >= 0)]:
        cost = costs.of_kernel_row(int(row))
        made.append(
            OperatorWork(int(row), np.array([row], np.int64), int(timeline.spans.dur_ns[row]), int(row), cost)
        )
    return made


def _families(timeline: Timeline, device: npt.NDArray[np.intp], work: list[OperatorWork]) -> list[Family]:
    """Per device span the family of its operator's cost, else what its own name tells."""
    of_row = {int(row): w.cost.family for w in work if w.cost is not None for row in w.rows}
    return [of_row.get(int(row)) or _kind_family(timeline, int(row)) for row in device]


def _kind_family(timeline: Timeline, row: int) -> Family:
    kind = timeline.spans.kind[row]
    if kind in (Kind.MEMCPY, Kind.MEMSET):
        return Family.COPY
    if kind == Kind.COLLECTIVE:
        return Family.COLLECTIVE
    return kernel_family(timeline.name(row))


class _Costs:
    """Costs by distinct call."""

    def __init__(self, timeline: Timeline, step_of: Callable[[int], StepTokens | None] | None) -> None:
        self._timeline = timeline
        self._step_of = step_of
        dims = next((key for key in _SHAPES if key in timeline.args.keys), _SHAPES[0])
        self._operator = [timeline.arg_codes(key) for key in (dims, *_KEYS)]
        self._row = [timeline.arg_codes(key) for key in _ROW_KEYS]
        self._known: dict[Any, Cost | None] = {}

    def of_operator(self, row: int, kernel: str) -> Cost | None:
        """The cost of an operator row; `kernel` is the name of its longest kernel."""
        step = self._step_of(row) if self._step_of is not None else None
        name = self._timeline.name(row)
        listed = kernel if name in ("aten::cat", "aten::_cat", "aten::concat", "aten::stack") else ""
        key = (name, *(int(codes[row]) for codes, _ in self._operator), listed, step)
        if key not in self._known:
            dims, types, args, strides = (
                values[codes[row]] if codes[row] >= 0 else None for codes, values in self._operator
            )
            self._known[key] = estimate(
                name, dims, types, args, strides=_plain(strides), kernel=kernel, step=step
            )
        return self._known[key]

    def of_kernel_row(self, row: int) -> Cost | None:
        """The cost of a kernel that carries its own shapes."""
        step = self._step_of(row) if self._step_of is not None else None
        texts = tuple(str(values[codes[row]]) if codes[row] >= 0 else "" for codes, values in self._row)
        key = (texts, step)
        if key not in self._known:
            op_type = texts[0] or self._timeline.name(row)
            self._known[key] = estimate_kernel_row(op_type, *texts[1:], step=step)
        return self._known[key]


def _plain(strides: Any) -> list[Any] | None:
    return strides if isinstance(strides, list) else None
