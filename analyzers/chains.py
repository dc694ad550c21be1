"""Chains of kernels that one kernel could replace: elementwise work, casts and copies, one feeding the next.

Two neighbours on a stream are linked if the first writes as many bytes as some input of the second has. What is
passed from link to link goes to memory and back; one fused kernel would read what comes from outside and write the
last result. Which tensor is which is not recorded, so the saving is an upper bound: an intermediate may be needed
elsewhere as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.models.call import Cost, make_call
from stallscope.analyzers.models.family import Family
from stallscope.profiler import kernels
from stallscope.profiler.light import dataclass
from stallscope.profiler.step_pattern import stretch_hashes
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

FUSIBLE = (Family.ELEMENTWISE, Family.COPY, Family.QUANTISE)
"""Families whose kernels compilers fuse with each other."""

FUSIBLE_REDUCTIONS = (
    "aten::mean",
    "aten::sum",
    "aten::var",
    "aten::amax",
    "ReduceMean",
    "ReduceSum",
    "ReduceMax",
)
"""Reductions over rows that compilers fuse with the elementwise work around them (a norm in pieces)."""

LEAST_LENGTH = 3
"""Two neighbours are no chain: there is always some pair."""


@dataclass(frozen=True)
class Chain:
    """The same chain wherever it occurs. `rows` has shape (times, length), rows of kernels in order.

    `saved_share` is the share of its time that fusing could save, at the rate its kernels ran.
    """

    operators: tuple[str, ...]
    kernels: tuple[str, ...]
    phase: str
    device: int
    rows: Int64
    total_ns: int
    bytes: int
    fused_bytes: int
    computes: bool
    saved_share: float

    def fused(self, durations: Int64) -> dict[int, float]:
        """The factor on each kernel's time if the first of each chain did the work of all."""
        kept = 1 - self.saved_share
        factors = dict.fromkeys(self.rows[:, 1:].reshape(-1).tolist(), 0.0)
        sums = durations[self.rows].sum(axis=1) * kept
        firsts = self.rows[:, 0].tolist()
        return factors | {r: float(s / max(int(durations[r]), 1)) for r, s in zip(firsts, sums, strict=True)}

    @property
    def times(self) -> int:
        return int(self.rows.shape[0])

    @property
    def length(self) -> int:
        return int(self.rows.shape[1])

    @property
    def mean_kernel_ns(self) -> int:
        return self.total_ns // max(self.rows.size, 1)

    @property
    def title(self) -> str:
        """What it is in words: ", an unfused RMSNorm," or ""."""
        known = looks_like(self.operators)
        return f", {'an' if known[:1] in 'R' else 'a'} {known} in pieces," if known else ""

    @property
    def name(self) -> str:
        """ "aten::mul, aten::silu (2x), aten::add"."""
        parts: list[list[str | int]] = []
        for operator in self.operators:
            if parts and parts[-1][0] == operator:
                parts[-1][1] = int(parts[-1][1]) + 1
            else:
                parts.append([operator, 1])
        return ", ".join(str(name) if count == 1 else f"{name} ({count}x)" for name, count in parts)


def looks_like(operators: Sequence[str]) -> str:
    """What a chain of these operators computes, as models write it in pieces; "" where it is nothing known.

    >>> looks_like(["aten::pow", "aten::mean", "aten::add", "aten::rsqrt", "aten::mul"]), looks_like(["aten::add"])
    ('RMSNorm', '')
    """
    names = {name.rpartition("::")[2].strip("_").lower() for name in operators}
    text = " ".join(names)
    for name, needed, unwanted in _PATTERNS:
        if all(word in text for word in needed) and not any(word in text for word in unwanted):
            return name
    return ""


_PATTERNS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("RMSNorm", ("rsqrt", "mean"), ("sub", "var")),
    ("LayerNorm", ("mean", "sub"), ()),
    ("softmax", ("exp", "sum", "div"), ()),
    ("rotary embedding", ("neg", "cat", "mul"), ()),
    ("GELU", ("tanh", "pow", "mul"), ()),
    ("gated SiLU", ("silu", "mul"), ()),
)
"""What models compute in pieces: its name, words among the operators' names, words that rule it out."""


def find_chains(run: Run) -> list[Chain]:
    """All chains outside of warm-up, the longest in sum first."""
    work, spans = run.work, run.timeline.spans
    rows = work.device_rows
    rows = rows[np.lexsort((spans.start_ns[rows], spans.track[rows]))].astype(np.int64)
    calls = work.call_of_row[rows].astype(np.int64)
    fits = _fusible_calls(run)[calls] & (calls >= 0)
    rows, calls, place = rows[fits], calls[fits], np.flatnonzero(fits)
    if len(rows) < LEAST_LENGTH:
        return []
    linked = (np.diff(place) == 1) & (spans.track[rows][1:] == spans.track[rows][:-1])
    linked &= _feeds(run, calls) & ~_siblings(run, calls)
    start = np.flatnonzero(np.append(True, ~linked)).astype(np.int64)
    stop = np.append(start[1:], len(rows)).astype(np.int64)
    long = stop - start >= LEAST_LENGTH
    start, stop = start[long], stop[long]
    if len(start) == 0:
        return []
    kind = kernels.group(work.calls.cost[calls], work.calls.operator[calls])[0]
    code, first = kernels.group(
        stretch_hashes(kind, start, stop).view(np.int64), stop - start, work.device_of(rows[start]),
        work.phase_of_row[rows[start]],
    )  # fmt: skip
    chains = [
        _chain(run, rows[start[code == k][:, None] + np.arange(stop[f] - start[f])])
        for k, f in enumerate(first.tolist())
    ]
    return sorted(chains, key=lambda c: -c.total_ns)


def _fusible_calls(run: Run) -> npt.NDArray[np.bool_]:
    """Whether each call is fusible: its cost is fixed by shapes, its family fits, it has one kernel. Shape (m + 1,)."""
    calls = run.work.calls
    costs = np.array(
        [
            c.exact and (c.family in FUSIBLE or c.family is Family.REDUCTION) and c.bytes > 0
            for c in calls.costs
        ]
        + [False]
    )
    fits = costs[calls.cost] & (np.diff(calls.starts) == 1)
    reductions = np.array([c.family is Family.REDUCTION for c in calls.costs] + [False])[calls.cost]
    named = np.array([text in FUSIBLE_REDUCTIONS for text in calls.texts] + [False])[calls.operator]
    return np.append(fits & (~reductions | named), False)


def _feeds(run: Run, calls: Int64) -> npt.NDArray[np.bool_]:
    """Whether each call writes as many bytes as an input of the next one has. Shape (k - 1,)."""
    cost = run.work.calls.cost[calls]
    pair, first = kernels.group(cost[:-1], cost[1:])
    costs = run.work.calls.costs
    told = [costs[int(cost[i])].bytes_written in input_bytes(run, int(calls[i + 1])) for i in first.tolist()]
    return np.array(told, bool)[pair]


def _siblings(run: Run, calls: Int64) -> npt.NDArray[np.bool_]:
    """Which neighbours are one operation on tensor after tensor, not one after the other. Shape (k - 1,).

    The same operator on the same shapes three times in a row (a loop over parameters), or a copy twice
    (query, key and value made contiguous).
    """
    cost, operator = run.work.calls.cost[calls], run.work.calls.operator[calls]
    same = (cost[1:] == cost[:-1]) & (operator[1:] == operator[:-1])
    copies = np.array([c.family is Family.COPY for c in run.work.calls.costs] + [False])[cost]
    before, after = np.append(False, same[:-1]), np.append(same[1:], False)
    return np.asarray(same & (before | after | copies[1:]), np.bool_)


def _cost(run: Run, call: int) -> Cost | None:
    code = int(run.work.calls.cost[call])
    return run.work.calls.costs[code] if code >= 0 else None


def input_bytes(run: Run, call: int) -> frozenset[int]:
    """Sizes in bytes of the tensors a call was given; none for a call of another recording."""
    op_row = int(run.work.calls.op_row[call])
    if op_row < 0:
        return frozenset()
    given = run.timeline.arguments(op_row)
    made = make_call(
        run.timeline.name(op_row),
        given.get("Input Dims", given.get("Input dims", given.get("Input Shapes"))),
        given.get("Input type", given.get("Input Data Types")),
        strides=given.get("Input Strides"),
    )
    listed = [t for tensors in made.lists.values() for t in tensors]
    return frozenset(t.bytes for t in [*made.given, *listed] if t.bytes)


def _chain(run: Run, rows: Int64) -> Chain:
    work, spans = run.work, run.timeline.spans
    calls = work.call_of_row[rows[0]]
    costs = [c for c in (_cost(run, int(i)) for i in calls) if c is not None]
    moved = sum(c.bytes for c in costs)
    # each link's tensor is written once and read once, and would stay on the chip
    passed = sum(min(a.bytes_written, b.bytes_read) + a.bytes_written for a, b in itertools.pairwise(costs))
    fused = max(moved - passed, costs[-1].bytes_written)
    durations = spans.dur_ns[rows]
    total = int(durations.sum())
    # at the rate they ran, but no less than the shortest of them takes
    fused_ns = np.maximum(durations.sum(axis=1) * (fused / max(moved, 1)), durations.min(axis=1))
    return Chain(
        operators=tuple(work.calls.texts[int(work.calls.operator[i])] for i in calls),
        kernels=tuple(run.timeline.name(int(r)) for r in rows[0]),
        phase=work.phase_names[int(work.phase_of_row[rows[0, 0]])],
        device=int(work.device_of(rows[0, 0])),
        rows=rows,
        total_ns=total,
        bytes=moved * len(rows),
        fused_bytes=fused * len(rows),
        computes=sum(c.family is not Family.COPY for c in costs) >= 2,
        saved_share=float(max(1 - fused_ns.sum() / max(total, 1), 0.0)),
    )
