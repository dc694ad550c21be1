"""Which operator a kernel belongs to, and what that operator's call costs.

The operator of a device span is the innermost operator around its launch call that recorded shapes. A
kernel of a graph replay has none: the call that replays the graph is not the call that made the kernel.
Costs are worked out once per distinct call (name, shapes, types, arguments), of which a trace of a million
kernels holds some hundred; everything per event is columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.models.call import Cost, StepTokens
from stallscope.analyzers.models.cost import estimate, estimate_kernel_row
from stallscope.analyzers.models.family import Family, kernel_family
from stallscope.profiler.kernels import group, nearest, ranked
from stallscope.profiler.kinds import Kind, is_graph_launch
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Int32, Int64, Timeline

FAMILIES: tuple[Family, ...] = tuple(Family)
"""What the codes of `Attribution.family` mean."""

_SHAPES = ("Input Dims", "Input dims")
_KEYS = ("Input type", "Concrete Inputs", "Input Strides")
_ROW_KEYS = ("Type", "Input Shapes", "Input Data Types", "Output Shapes", "Output Data Types")
_LISTED = ("aten::cat", "aten::_cat", "aten::concat", "aten::stack")


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

    Per device span, shape (n,): `device_rows` its row, `owner` its operator's row or -1, `family` an index
    into FAMILIES (of its operator's cost, else of its own name). Per operator call with shapes, shape (m,),
    by row: `op_rows`, `duration_ns`, `longest`, and `cost_code`, an index into `costs` or -1 for no model.
    `grouped_rows[starts[i]:starts[i + 1]]` are the device spans of call i.
    """

    device_rows: npt.NDArray[np.intp]
    owner: Int32
    family: npt.NDArray[np.int8]
    op_rows: Int64
    duration_ns: Int64
    longest: Int64
    cost_code: Int32
    costs: list[Cost]
    grouped_rows: Int64
    starts: Int64

    @property
    def work(self) -> Iterator[OperatorWork]:
        """The operator calls one by one, by row."""
        for i in range(len(self.op_rows)):
            code = int(self.cost_code[i])
            yield OperatorWork(
                int(self.op_rows[i]),
                self.grouped_rows[self.starts[i] : self.starts[i + 1]],
                int(self.duration_ns[i]),
                int(self.longest[i]),
                self.costs[code] if code >= 0 else None,
            )

    def modelled_ns(self, *, exact: bool = False) -> int:
        """Device time of calls with a cost; with `exact`, of costs that the shapes fix."""
        known = self.cost_code >= 0
        if exact and self.costs:
            fixed = np.array([cost.exact for cost in self.costs])
            known &= fixed[self.cost_code]
        return int(self.duration_ns[known].sum())

    def family_ns(self, timeline: Timeline) -> dict[Family, int]:
        """Device time per family, longest first."""
        sums = np.zeros(len(FAMILIES), np.int64)
        np.add.at(sums, self.family, timeline.spans.dur_ns[self.device_rows])
        return {FAMILIES[i]: int(sums[i]) for i in np.argsort(-sums, kind="stable") if sums[i]}


def operator_rows(timeline: Timeline, rows: npt.NDArray[Any]) -> Int32:
    """The innermost operator with shapes at or above each of some rows, -1 for none. Shape of `rows`."""
    parent = timeline.spans.parent
    operators = timeline.rows(Kind.OPERATOR)
    with_shapes = np.zeros(len(timeline), dtype=bool)
    for key in _SHAPES:
        with_shapes[operators] |= timeline.have_arg(key, operators)
    return nearest(parent, with_shapes, rows).astype(np.int32)


def attribute(
    timeline: Timeline, steps: Sequence[StepTokens] = (), step_of: npt.NDArray[Any] | None = None
) -> Attribution:
    """Join device work to operators and their costs.

    `steps` are token sums of engine steps and `step_of`, shape (rows of the timeline,), tells which of them
    a row belongs to (-1: none). Without `step_of` a single entry of `steps` stands for the whole timeline.
    """
    spans = timeline.spans
    device = timeline.device_work()
    owner = _owners(timeline, device)
    own_shapes = timeline.have_arg("Input Shapes", device)
    # a kernel tells its shapes better than an operator that no call, only an arrow, ties it to
    launch = spans.launch_row[device]
    loose = (owner < 0) | ((launch >= 0) & (spans.kind[np.maximum(launch, 0)] == Kind.OPERATOR))
    by = np.where(loose & own_shapes, device, owner).astype(np.int64)
    at = np.flatnonzero(by >= 0)
    # by call, then by duration, so that the last of each group is its longest
    at = at[np.lexsort((spans.dur_ns[device[at]], by[at]))]
    by = by[at]
    first = np.flatnonzero(np.append(True, by[1:] != by[:-1])) if len(by) else np.zeros(0, np.intp)
    op_rows = by[first]
    starts = np.append(first, len(at)).astype(np.int64)
    grouped = device[at].astype(np.int64)
    durations = np.add.reduceat(spans.dur_ns[grouped], first) if len(at) else np.zeros(0, np.int64)
    longest = grouped[starts[1:] - 1] if len(at) else np.zeros(0, np.int64)
    if step_of is None:
        step_of = np.full(len(timeline), 0 if len(steps) == 1 else -1, np.int64)
    code, costs = call_costs(timeline, op_rows, longest, steps, step_of[op_rows])
    family = _families(timeline, device)
    if costs:
        of_cost = np.array([FAMILIES.index(cost.family) for cost in costs], np.int8)
        per_span = np.repeat(code, np.diff(starts))
        family[at[per_span >= 0]] = of_cost[per_span[per_span >= 0]]
    return Attribution(device, owner, family, op_rows, durations, longest, code, costs, grouped, starts)


def launch_costs(
    timeline: Timeline,
    launches: npt.NDArray[Any],
    steps: Sequence[StepTokens] = (),
    step_of: npt.NDArray[Any] | None = None,
) -> tuple[Int32, Int32, list[Cost]]:
    """Operators and costs behind launch calls, also where no device record followed (a graph's capture).

    `launches` are rows of launch calls, shape (k,). Returns the operator's row per launch or -1, an index
    into the costs per launch or -1, and the costs. A cost is that of the whole operator call, which may
    stand behind several launches. `steps` and `step_of` as in `attribute`.
    """
    owner = operator_rows(timeline, launches)
    op_rows, inverse = np.unique(owner, return_inverse=True)
    known = op_rows >= 0
    if step_of is None:
        step_of = np.full(len(timeline), 0 if len(steps) == 1 else -1, np.int64)
    code = np.full(len(op_rows), -1, np.int32)
    found = op_rows[known].astype(np.int64)
    code[known], costs = call_costs(timeline, found, found, steps, step_of[found])
    return owner, code[inverse.reshape(-1)], costs


def _owners(timeline: Timeline, device: npt.NDArray[np.intp]) -> Int32:
    """Per device span its operator's row or -1."""
    launch = timeline.spans.launch_row[device]
    linked = launch >= 0
    linked[linked] = ~timeline.match_names_at(is_graph_launch, launch[linked])
    owner = np.full(len(device), -1, dtype=np.int32)
    owner[linked] = operator_rows(timeline, launch[linked])
    return owner


def _families(timeline: Timeline, device: npt.NDArray[np.intp]) -> npt.NDArray[np.int8]:
    """Per device span the family that its kind or name tells, as an index into FAMILIES."""
    used, inverse, _ = ranked(timeline.spans.name[device])
    table = np.array([FAMILIES.index(kernel_family(timeline.strings[int(n)])) for n in used], np.int8)
    family = table[inverse] if len(used) else np.zeros(0, np.int8)
    kind = timeline.spans.kind[device]
    family[(kind == Kind.MEMCPY) | (kind == Kind.MEMSET)] = FAMILIES.index(Family.COPY)
    family[kind == Kind.COLLECTIVE] = FAMILIES.index(Family.COLLECTIVE)
    return family


def call_costs(
    timeline: Timeline,
    op_rows: Int64,
    kernels: Int64,
    steps: Sequence[StepTokens],
    step: npt.NDArray[Any],
) -> tuple[Int32, list[Cost]]:
    """A cost code per operator call (-1: no model) and the distinct costs.

    All of shape (m,): `op_rows` the operators' rows, `kernels` rows of a kernel that each started (any row where
    none is known), `step` indices into `steps` or -1.
    """
    spans = timeline.spans
    dims = next((key for key in _SHAPES if key in timeline.args.keys), _SHAPES[0])
    columns = [timeline.arg_values(key, op_rows) for key in (dims, *_KEYS, *_ROW_KEYS)]
    kernel = np.where(timeline.match_names_at(lambda name: name in _LISTED, op_rows), spans.name[kernels], -1)
    parts = [
        spans.name[op_rows],
        spans.kind[op_rows],
        kernel,
        step,
        *(codes for codes, _ in columns),
    ]
    inverse, first = group(*(np.asarray(part, np.int64) for part in parts))
    calls = np.stack([np.asarray(part, np.int64)[first] for part in parts], axis=1)
    costs: list[Cost] = []
    code_of = np.full(len(calls), -1, np.int32)
    same: dict[tuple[int, ...], int] = {}
    known: dict[Cost, int] = {}
    for i, (name, kind, kernel_name, number, *codes) in enumerate(calls.tolist()):
        key = (name, kind, kernel_name, *codes)
        if key in same:
            code_of[i] = same[key]
            continue
        given = [
            values[code] if code >= 0 else None for code, (_, values) in zip(codes, columns, strict=True)
        ]
        tokens = steps[number] if 0 <= number < len(steps) else None
        text = timeline.strings[name]
        cost = (
            _operator_cost(text, given, timeline.strings[kernel_name] if kernel_name >= 0 else "", tokens)
            if kind == Kind.OPERATOR
            else _kernel_cost(text, given, tokens)
        )
        if cost is not None:
            code_of[i] = known.setdefault(cost, len(costs))
            if code_of[i] == len(costs):
                costs.append(cost)
            if cost.family is not Family.ATTENTION:
                # the tokens of a step matter to attention alone
                same[key] = int(code_of[i])
    return code_of[inverse].astype(np.int32), costs


def _operator_cost(name: str, given: list[Any], kernel: str, step: StepTokens | None) -> Cost | None:
    dims, types, args, strides = given[: 1 + len(_KEYS)]
    return estimate(name, dims, types, args, strides=strides, kernel=kernel, step=step)


def _kernel_cost(name: str, given: list[Any], step: StepTokens | None) -> Cost | None:
    op_type, shapes, types, outputs, output_types = given[1 + len(_KEYS) :]
    called = str(op_type) if op_type else name
    if isinstance(shapes, list) or isinstance(outputs, list):
        return estimate(
            called,
            _listed(shapes),
            _listed(types),
            outputs=_listed(outputs),
            output_dtypes=_listed(output_types),
            step=step,
        )
    texts = [str(value) if value is not None else "" for value in (shapes, types, outputs, output_types)]
    return estimate_kernel_row(called, *texts, step=step)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
