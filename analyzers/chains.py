"""Chains of kernels that one kernel could replace: elementwise work, casts and copies, one feeding the next.

Two neighbours on a stream are linked if the first writes as many bytes as some input of the second has. What is
passed from link to link goes to memory and back; one fused kernel would read what comes from outside and write the
last result. Which tensor is which is not recorded, so the saving is an upper bound: an intermediate may be needed
elsewhere as well.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.models.call import Cost, make_call
from stallscope.analyzers.models.family import Family
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
    def name(self) -> str:
        """ "aten::mul, aten::silu (2x), aten::add"."""
        parts: list[list[str | int]] = []
        for operator in self.operators:
            if parts and parts[-1][0] == operator:
                parts[-1][1] = int(parts[-1][1]) + 1
            else:
                parts.append([operator, 1])
        return ", ".join(str(name) if count == 1 else f"{name} ({count}x)" for name, count in parts)


def find_chains(run: Run) -> list[Chain]:
    """All chains outside of warm-up, the longest in sum first."""
    found: dict[tuple[object, ...], list[Int64]] = {}
    for rows in _candidates(run):
        for chain in _split(run, rows):
            found.setdefault(_key(run, chain), []).append(chain)
    chains = [_chain(run, np.stack(same)) for same in found.values()]
    return sorted(chains, key=lambda c: -c.total_ns)


def _candidates(run: Run) -> list[Int64]:
    """Runs of neighbouring fusible kernels on one stream, each of one call."""
    work, spans = run.work, run.timeline.spans
    rows = work.device_rows
    rows = rows[np.lexsort((spans.start_ns[rows], spans.track[rows]))]
    fits = _fusible_calls(run)[work.call_of_row[rows]] & (work.call_of_row[rows] >= 0)
    edges = np.flatnonzero(
        np.append(True, (fits[1:] != fits[:-1]) | (spans.track[rows][1:] != spans.track[rows][:-1]))
        if len(rows)
        else np.zeros(0, bool)
    )
    stops = np.append(edges[1:], len(rows))
    return [
        rows[a:b].astype(np.int64)
        for a, b in zip(edges.tolist(), stops.tolist(), strict=True)
        if fits[a] and b - a >= LEAST_LENGTH
    ]


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


def _split(run: Run, rows: Int64) -> list[Int64]:
    """The parts of a run of fusible kernels in which each feeds the next."""
    calls = run.work.call_of_row[rows]
    linked = np.array([_feeds(run, int(a), int(b)) for a, b in itertools.pairwise(calls)], bool)
    linked &= ~_siblings(run, calls)
    edges = np.flatnonzero(np.append(True, ~linked))
    stops = np.append(edges[1:], len(rows))
    return [rows[a:b] for a, b in zip(edges.tolist(), stops.tolist(), strict=True) if b - a >= LEAST_LENGTH]


def _siblings(run: Run, calls: npt.NDArray[np.int32]) -> npt.NDArray[np.bool_]:
    """Which neighbours are one operation on tensor after tensor, not one after the other. Shape (k - 1,).

    The same operator on the same shapes three times in a row (a loop over parameters), or a copy twice
    (query, key and value made contiguous).
    """
    code = run.work.calls.cost[calls].astype(np.int64) << 32 | run.work.calls.operator[calls]
    same = code[1:] == code[:-1]
    copies = np.array([c.family is Family.COPY for c in run.work.calls.costs] + [False])[
        run.work.calls.cost[calls]
    ]
    before, after = np.append(False, same[:-1]), np.append(same[1:], False)
    return np.asarray(same & (before | after | copies[1:]), np.bool_)


def _feeds(run: Run, first: int, second: int) -> bool:
    """Whether a call writes as many bytes as an input of the next one has."""
    cost = _cost(run, first)
    return cost is not None and cost.bytes_written in input_bytes(run, second)


def _cost(run: Run, call: int) -> Cost | None:
    code = int(run.work.calls.cost[call])
    return run.work.calls.costs[code] if code >= 0 else None


def input_bytes(run: Run, call: int) -> frozenset[int]:
    """Sizes in bytes of the tensors a call was given, looked up once per distinct cost."""
    known: dict[int, frozenset[int]] = run.work.__dict__.setdefault("_input_bytes", {})
    code = int(run.work.calls.cost[call])
    if code not in known:
        known[code] = _read_inputs(run, int(run.work.calls.op_row[call]))
    return known[code]


def _read_inputs(run: Run, op_row: int) -> frozenset[int]:
    if op_row < 0:
        return frozenset()
    given = run.timeline.arguments(op_row)
    call = make_call(
        run.timeline.name(op_row),
        given.get("Input Dims", given.get("Input dims", given.get("Input Shapes"))),
        given.get("Input type", given.get("Input Data Types")),
        strides=given.get("Input Strides"),
    )
    listed = [t for tensors in call.lists.values() for t in tensors]
    return frozenset(t.bytes for t in [*call.given, *listed] if t.bytes)


def _key(run: Run, rows: Int64) -> tuple[object, ...]:
    work = run.work
    calls = work.call_of_row[rows]
    return (
        int(work.device_of_row[rows[0]]),
        int(work.phase_of_row[rows[0]]),
        tuple(work.calls.cost[calls].tolist()),
        tuple(work.calls.operator[calls].tolist()),
    )


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
        device=int(work.device_of_row[rows[0, 0]]),
        rows=rows,
        total_ns=total,
        bytes=moved * len(rows),
        fused_bytes=fused * len(rows),
        computes=sum(c.family is not Family.COPY for c in costs) >= 2,
        saved_share=float(max(1 - fused_ns.sum() / max(total, 1), 0.0)),
    )
