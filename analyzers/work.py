"""What the device worked on: its kernels by operator call, with their cost and their place under the roofs.

One `Call` is one operator call with all kernels it started. Calls of one operator, one cost and one kernel make a
`Group`, which is what tables and rules speak of. Warm-up steps are left out of groups. Kernels behind no call, or
behind one without a cost model, make groups too, so that the groups add up to all device time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.earlier import earlier_kernels
from stallscope.analyzers.models.attribution import FAMILIES, Attribution, attribute
from stallscope.analyzers.models.call import Cost, StepTokens
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.roofline import RooflinePoint, roofline
from stallscope.analyzers.pipes import Pipes, with_bytes, with_pipes
from stallscope.profiler import kernels
from stallscope.profiler.device import device_keys
from stallscope.profiler.kinds import DEVICE_WORK, Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Note
from stallscope.profiler.timeline import Int32, Int64, Timeline

if TYPE_CHECKING:
    from stallscope.analyzers.companion import Companion
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]
Codes = npt.NDArray[np.signedinteger[Any]]
T = TypeVar("T")

SHAPES_SHOWN = 160
"""Characters of an operator's shapes that tables and findings show."""


@dataclass(frozen=True)
class Calls:
    """Operator calls, columns of shape (m,).

    `operator` and `shapes` are codes into `texts` (-1 none), `cost` into `costs` (-1: no model), `longest` the row of
    the longest kernel, `op_row` the operator's row or -1 where it stands in another recording.
    `rows[starts[i]:starts[i + 1]]` are the kernels of call i.
    """

    texts: list[str]
    costs: list[Cost]
    operator: Int32
    shapes: Int32
    cost: Int32
    longest: Int64
    duration_ns: Int64
    op_row: Int64
    rows: Int64
    starts: Int64

    def __len__(self) -> int:
        return len(self.operator)


@dataclass(frozen=True)
class Group:
    """Calls of one operator with one cost, one kernel, on one device, in one phase.

    `kernel` names the longest kernel, `rows` all kernels of the calls, by call. `calls` counts calls (kernels, where
    no call is known). `point` is the roofline at the mean duration of a call, None without a cost.
    """

    operator: str
    kernel: str
    shapes: str
    phase: str
    device: int
    family: Family
    calls: int
    total_ns: int
    rows: Int64
    cost: Cost | None = None
    point: RooflinePoint | None = None
    blocks: int | None = None
    op_row: int = -1
    cores: int | None = None
    """Cores of the kind the longest kernel runs on, None where not known."""
    pipes: Pipes | None = None
    """How busy the pipes of an NPU's cores were in the longest kernel, None where not recorded."""
    moved_bytes: int | None = None
    """Bytes that all kernels of the calls were measured to move (MemoryAccess), None where not recorded."""

    @property
    def mean_ns(self) -> int:
        return self.total_ns // max(self.calls, 1)

    @property
    def floor_ns(self) -> int | None:
        """The least time of all calls; never more than they took. None where it is not known."""
        if self.point is None or self.point.floor_ns is None:
            return None
        return min(self.point.floor_ns, self.mean_ns) * self.calls

    @property
    def gain_ns(self) -> int:
        """What all calls would save at 80 % of the roof; 0 where nothing can be claimed."""
        return (self.point.gain_ns or 0) * self.calls if self.point is not None else 0


class Work:
    """All device work of a run. `companion` names the kernels of graph replays, where one is given."""

    def __init__(self, run: Run, companion: Companion | None = None) -> None:
        self.run = run
        self.timeline = run.timeline
        self.companion = companion

    @cached_property
    def tokens(self) -> tuple[list[StepTokens], Int32]:
        """Token sums of engine steps, and per row which of them it belongs to (-1 none)."""
        sums: list[StepTokens] = []
        of_step = np.full(len(self.run.steps) + 1, -1, np.int32)
        for i, step in enumerate(self.run.steps):
            told = step_tokens(step.facts)
            if told is not None:
                of_step[i] = len(sums)
                sums.append(told)
        if not sums:
            return sums, np.broadcast_to(np.int32(-1), len(self.timeline))
        return sums, of_step[self.run.step_of_row]

    @cached_property
    def attribution(self) -> Attribution:
        return attribute(self.timeline, *self.tokens)

    @cached_property
    def calls(self) -> Calls:
        """Calls of this recording, those repeated by kernels from before it, and those that the companion names."""
        own = self._own_calls
        if self.earlier:
            own = _joined(own, _repeated_calls(own, self.earlier, self.timeline.spans.dur_ns))
        named = self.companion.calls(self) if self.companion is not None else None
        return own if named is None else _joined(own, named)

    @cached_property
    def _own_calls(self) -> Calls:
        return _own_calls(self.timeline, self.attribution)

    @cached_property
    def earlier(self) -> dict[int, int]:
        """Kernels launched before the recording, each with the later kernel whose operator it repeats."""
        return earlier_kernels(self, self._own_calls)

    def notes(self) -> list[Note]:
        """What became of the companion, if there is one."""
        if self.companion is None:
            return []
        assert self.calls is not None  # matching is done when calls are first asked for
        return [self.companion.note()]

    @cached_property
    def device_rows(self) -> Rows:
        """Device work outside of warm-up steps."""
        rows = self.attribution.device_rows
        return rows[self.run.is_steady(self._when(rows))]

    def _when(self, rows: npt.NDArray[Any]) -> Int64:
        spans = self.timeline.spans
        launch = spans.launch_row[rows]
        return np.asarray(spans.start_ns[np.where(launch >= 0, launch, rows)], np.int64)

    def device_of(self, rows: Any) -> Any:
        """The device number of a row of device work, or of several. Shape of `rows`."""
        return self._device_of_track[self.timeline.spans.track[rows]]

    @cached_property
    def _device_of_track(self) -> Int64:
        return device_keys(self.timeline)

    @cached_property
    def phase_names(self) -> list[str]:
        return [*dict.fromkeys(s.phase for s in self.run.steps), ""]

    @cached_property
    def phase_of_row(self) -> Codes:
        """An index into `phase_names` per row of device work, that of "" for other rows. Shape (n,)."""
        rows, none = self.attribution.device_rows, len(self.phase_names) - 1
        codes = [self.phase_names.index(s.phase) for s in self.run.steps] + [none]
        out = np.full(len(self.timeline), none, kernels.code_type(len(codes)))
        out[rows] = np.array(codes)[self.run.step_of_row[rows]]
        if self.earlier:
            out[list(self.earlier)] = out[list(self.earlier.values())]
        return self._between_linked(out)

    def _between_linked(self, phase: Codes) -> Codes:
        """Work whose launch was lost is of the phase of what was launched before and after it on its stream."""
        spans, none = self.timeline.spans, len(self.phase_names) - 1
        rows = self.attribution.device_rows
        for track in kernels.distinct(spans.track[rows]).tolist():
            mine = rows[spans.track[rows] == track]
            linked = np.flatnonzero(spans.launch_row[mine] >= 0)
            lost = np.flatnonzero((spans.launch_row[mine] < 0) & (phase[mine] == none))
            after = np.searchsorted(linked, lost)
            inside = (after > 0) & (after < len(linked))
            lost, after = lost[inside], after[inside]
            before, following = phase[mine[linked[after - 1]]], phase[mine[linked[after]]]
            phase[mine[lost]] = np.where(before == following, before, none)
        return phase

    @cached_property
    def family_of_row(self) -> npt.NDArray[np.int8]:
        """An index into FAMILIES per row of device work, by its operator's cost, else by its name. Shape (n,)."""
        out = np.full(len(self.timeline), FAMILIES.index(Family.OTHER), np.int8)
        out[self.attribution.device_rows] = self.attribution.family
        calls = self.calls
        known = np.flatnonzero(calls.cost >= 0)
        of_cost = np.array([FAMILIES.index(c.family) for c in calls.costs] or [0], np.int8)
        per_row = np.repeat(np.where(calls.cost >= 0, of_cost[calls.cost], -1), np.diff(calls.starts))
        if len(known):
            out[calls.rows[per_row >= 0]] = per_row[per_row >= 0]
        return out

    @cached_property
    def call_of_row(self) -> Int32:
        """The call of each row of device work, else -1. Shape (n,)."""
        out = np.full(len(self.timeline), -1, np.int32)
        out[self.calls.rows] = np.repeat(np.arange(len(self.calls)), np.diff(self.calls.starts))
        return out

    @cached_property
    def groups(self) -> list[Group]:
        """All device work outside of warm-up, by group, the longest in sum first."""
        return sorted([*self._call_groups(), *self._bare_groups()], key=lambda g: (-g.total_ns, g.kernel))

    def _call_groups(self) -> list[Group]:
        calls, spans = self.calls, self.timeline.spans
        steady = np.flatnonzero(self.run.is_steady(self._when(calls.longest)))
        if len(steady) == 0:
            return []
        longest = calls.longest[steady]
        code, first = kernels.group(
            calls.operator[steady], calls.cost[steady], spans.name[longest], self.device_of(longest),
            self.phase_of_row[longest], np.where(calls.cost[steady] >= 0, -1, calls.shapes[steady]),
        )  # fmt: skip
        members = _members(steady, code)
        heads = steady[first]
        grids = grid_blocks(self.timeline, calls.longest[heads])
        return [
            self._call_group(int(head), mine, blocks)
            for head, mine, blocks in zip(heads, members, grids, strict=True)
        ]

    def _call_group(self, head: int, members: Rows, blocks: int | None) -> Group:
        calls = self.calls
        longest = int(calls.longest[head])
        total = int(calls.duration_ns[members].sum())
        cost = calls.costs[int(calls.cost[head])] if calls.cost[head] >= 0 else None
        device, kernel = int(self.device_of(longest)), self.timeline.name(longest)
        chip, rows = self.run.chips.get(device), _ranges(calls.rows, calls.starts, members)
        cores = self.run.npu.cores_of(longest) or (chip.cores if chip is not None else None)
        pipes = None
        if self.run.npu.has_counters:
            pipes = self.run.npu.pipes(
                rows[self.timeline.spans.name[rows] == self.timeline.spans.name[longest]]
            )
        moved = self.run.npu.moved_bytes(rows)
        point = None
        if cost is not None and self.run.npu.core_of(longest) == "AI_CPU":
            point = replace(
                roofline(cost, 0, None), reason="ran on an AI CPU, which no peak of the chip bounds"
            )
        elif cost is not None:
            mean = total // len(members)
            point = roofline(cost, mean, chip, kernel=kernel, blocks=blocks, cores=cores)
            point = with_pipes(point, pipes, cost, mean, blocks, cores)
            point = with_bytes(point, moved // len(members) if moved is not None else None, cost, mean)
        text = calls.texts[int(calls.shapes[head])] if calls.shapes[head] >= 0 else ""
        return Group(
            operator=calls.texts[int(calls.operator[head])],
            kernel=kernel,
            shapes=text,
            phase=self.phase_names[int(self.phase_of_row[longest])],
            device=device,
            family=cost.family if cost is not None else FAMILIES[int(self.family_of_row[longest])],
            calls=len(members),
            total_ns=total,
            rows=rows,
            cost=cost,
            point=point,
            blocks=blocks,
            op_row=int(calls.op_row[head]),
            cores=cores,
            pipes=pipes,
            moved_bytes=moved,
        )

    def _bare_groups(self) -> list[Group]:
        """Kernels that belong to no call with shapes, by name."""
        rows = self.device_rows[self.call_of_row[self.device_rows] < 0]
        if len(rows) == 0:
            return []
        spans = self.timeline.spans
        code, _ = kernels.group(spans.name[rows], self.device_of(rows), self.phase_of_row[rows])
        out = []
        for mine in _members(rows, code):
            head = int(mine[0])
            out.append(
                Group(
                    operator=self.run.places.name(self.run.operator_of(head)),
                    kernel=self.timeline.name(head),
                    shapes="",
                    phase=self.phase_names[int(self.phase_of_row[head])],
                    device=int(self.device_of(head)),
                    family=FAMILIES[int(self.family_of_row[head])],
                    calls=len(mine),
                    total_ns=int(spans.dur_ns[mine].sum()),
                    rows=mine.astype(np.int64),
                )
            )
        return out

    @cached_property
    def step_groups(self) -> list[Group]:
        """As `groups`, without kernels that were launched before the recording: no step of it launched them."""
        if not self.earlier:
            return self.groups
        gone = np.zeros(len(self.timeline), bool)
        gone[list(self.earlier)] = True
        return [kept for g in self.groups if (kept := self._without(g, gone)) is not None]

    def _without(self, group: Group, gone: npt.NDArray[np.bool_]) -> Group | None:
        """The group without some rows; its calls go with their rows."""
        rows = group.rows[~gone[group.rows]]
        if len(rows) == len(group.rows):
            return group
        if len(rows) == 0:
            return None
        calls = (
            len(kernels.distinct(self.call_of_row[rows]))
            if (self.call_of_row[rows] >= 0).any()
            else len(rows)
        )
        total = int(self.timeline.spans.dur_ns[rows].sum())
        return replace(group, rows=rows, calls=calls, total_ns=total)

    @cached_property
    def total_ns(self) -> int:
        """Device time outside of warm-up, summed over streams."""
        return int(self.timeline.spans.dur_ns[self.device_rows].sum())

    @cached_property
    def modelled_ns(self) -> int:
        """How much of it has a cost model."""
        return sum(g.total_ns for g in self.groups if g.cost is not None)

    @cached_property
    def named_ns(self) -> int:
        """How much of it has a family, by its cost or by the kernel's own name."""
        return sum(g.total_ns for g in self.groups if g.family is not Family.OTHER)


def _members(values: Rows, code: Int32) -> list[Rows]:
    """The values of each group, in order; `code` numbers the groups from 0."""
    count = np.bincount(code)
    order = np.argsort(code.astype(kernels.code_type(len(count))), kind="stable")  # narrow codes are counted
    return np.split(values[order], np.cumsum(count)[:-1])


def _ranges(rows: Int64, starts: Int64, members: Rows) -> Int64:
    """`rows[starts[i]:starts[i + 1]]` of all members, one after the other."""
    first, count = starts[members], starts[members + 1] - starts[members]
    at = np.arange(int(count.sum())) - np.repeat(np.cumsum(count) - count, count) + np.repeat(first, count)
    return np.asarray(rows[at], np.int64)


def step_tokens(facts: dict[str, Any]) -> StepTokens | None:
    """The token sums of a step's facts, None where they do not tell them for all of its requests."""
    contexts, generations = facts.get("context_requests", 0), facts.get("generation_requests", 0)
    parts = [facts.get("context_sums"), facts.get("generation_sums")]
    if not all(isinstance(n, int) and n >= 0 for n in (contexts, generations)) or contexts + generations == 0:
        return None
    numbers: list[int] = []
    for count, sums in zip((contexts, generations), parts, strict=True):
        told = sums if isinstance(sums, list) and len(sums) == 4 else None
        if count and told is None:
            return None
        numbers += [count, *(told or (0, 0, 0, 0))]
    return StepTokens(*numbers)


def grid_blocks(timeline: Timeline, rows: npt.NDArray[Any]) -> list[int | None]:
    """Thread blocks of each kernel's grid, None where it was not recorded."""
    for key in ("grid", "Block Dim", "Block Num", "block_dim"):
        codes, values = timeline.arg_values(key, rows)
        if len(values):
            known = [_blocks(value) for value in values]
            return [known[c] if c >= 0 else None for c in codes.tolist()]
    return [None] * len(rows)


def _blocks(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value > 0 else None
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value) or None
    if isinstance(value, list) and value and all(isinstance(n, int) and 0 < n < 1 << 32 for n in value):
        return int(np.prod(np.array(value, object)))
    return None


def _own_calls(timeline: Timeline, found: Attribution) -> Calls:
    texts: list[str] = []
    codes: dict[str, int] = {}

    def code(text: str) -> int:
        if text not in codes:
            codes[text] = len(texts)
            texts.append(text)
        return codes[text]

    names, at, _ = kernels.ranked(timeline.spans.name[found.op_rows])
    name_code = np.array([code(timeline.strings[int(n)]) for n in names] or [0], np.int32)
    # a kernel table tells the operator's type beside the kernel's long name
    types, type_values = timeline.arg_values("Type", found.op_rows)
    is_kernel = timeline.are_kind(found.op_rows, *DEVICE_WORK)
    type_code = np.array([code(str(v)) for v in type_values] or [0], np.int32)
    shape_code = np.full(len(found.op_rows), -1, np.int32)
    for key in ("Input Dims", "Input dims", "Input Shapes"):
        mine, values = timeline.arg_values(key, found.op_rows)
        known = np.array([code(shown_shapes(v)) for v in values] or [0], np.int32)
        shape_code = np.where(mine >= 0, known[mine], shape_code).astype(np.int32)
    operator = name_code[at] if len(found.op_rows) else np.zeros(0, np.int32)
    operator = np.where(is_kernel & (types >= 0), type_code[types], operator).astype(np.int32)
    return Calls(
        texts, found.costs, operator, shape_code, found.cost_code, found.longest, found.duration_ns, found.op_rows,
        found.grouped_rows, found.starts,
    )  # fmt: skip


def shown_shapes(value: Any) -> str:
    """The shapes of an operator as short text: arguments without a shape left out.

    >>> shown_shapes([[8, 64], [], [64, 32]])
    '[8, 64] [64, 32]'
    """
    if isinstance(value, list):
        value = " ".join(str(part) for part in value if part != [])
    text = str(value).strip('"')
    return text if len(text) <= SHAPES_SHOWN else text[: SHAPES_SHOWN - 1] + "…"


def _repeated_calls(own: Calls, earlier: dict[int, int], durations: Int64) -> Calls:
    """The calls behind earlier kernels: one per stretch of neighbours that repeat kernels of one call."""
    call_of = dict(
        zip(own.rows.tolist(), np.repeat(np.arange(len(own)), np.diff(own.starts)).tolist(), strict=True)
    )
    rows = np.array([r for r, there in earlier.items() if there in call_of], np.int64)
    call = np.array([call_of[earlier[r]] for r in rows.tolist()], np.int64)
    # the same call again after another one is another repeat of it
    stretch = np.cumsum(np.append(False, call[1:] != call[:-1])) if len(call) else call
    order = np.lexsort((durations[rows], stretch))
    rows, stretch = rows[order], stretch[order]
    first = np.flatnonzero(np.append(True, np.diff(stretch) != 0)) if len(rows) else np.zeros(0, np.intp)
    starts = np.append(first, len(rows)).astype(np.int64)
    at = call[order][first]
    return Calls(
        texts=own.texts,
        costs=own.costs,
        operator=own.operator[at],
        shapes=own.shapes[at],
        cost=own.cost[at],
        longest=rows[starts[1:] - 1] if len(rows) else rows,
        duration_ns=np.add.reduceat(durations[rows], first) if len(rows) else rows,
        op_row=own.op_row[at],
        rows=rows,
        starts=starts,
    )


def _joined(first: Calls, second: Calls) -> Calls:
    """Both sets of calls, the second after the first. Equal texts and costs become one."""
    texts, of_text = _merged(first.texts, second.texts)
    costs, of_cost = _merged(first.costs, second.costs)
    return Calls(
        texts=texts,
        costs=costs,
        operator=np.concatenate([first.operator, of_text[second.operator]]),
        shapes=np.concatenate([first.shapes, of_text[second.shapes]]),
        cost=np.concatenate([first.cost, of_cost[second.cost]]),
        longest=np.concatenate([first.longest, second.longest]),
        duration_ns=np.concatenate([first.duration_ns, second.duration_ns]),
        op_row=np.concatenate([first.op_row, second.op_row]),
        rows=np.concatenate([first.rows, second.rows]),
        starts=np.concatenate([first.starts[:-1], second.starts + first.starts[-1]]),
    )


def _merged(first: list[T], second: list[T]) -> tuple[list[T], Int32]:
    """All distinct values, and the code of each of the second list's; -1 for the code -1."""
    known = {value: i for i, value in reversed(list(enumerate(first)))}
    out = list(first)
    codes = []
    for value in second:
        if value not in known:
            known[value] = len(out)
            out.append(value)
        codes.append(known[value])
    return out, np.array([*codes, -1], np.int32)


def copies_within_device(timeline: Timeline, rows: Sequence[int] | npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which device rows are kernels, or copies that are known to stay within device memory."""
    at = np.asarray(rows)
    kind = timeline.spans.kind[at]
    out = np.asarray(kind == Kind.KERNEL, np.bool_)
    copies = np.flatnonzero(kind == Kind.MEMCPY)
    names = timeline.spans.name[at[copies]]
    inside = [code for code in kernels.distinct(names).tolist() if _is_within_device(timeline.strings[code])]
    out[copies] = kernels.among(names, inside)
    return out


def _is_within_device(copy: str) -> bool:
    return "DtoD" in copy or "D2D" in copy or "Device -> Device" in copy
