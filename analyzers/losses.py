"""From idle pieces to findings: sums per place, phase and step, and the spans that prove them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Evidence
from stallscope.analyzers.idle import Cause, IdleAccount
from stallscope.analyzers.places import Place
from stallscope.analyzers.units import duration
from stallscope.profiler import kernels
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Int32, Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]
AnyRows = npt.NDArray[np.signedinteger[Any]]
MOST_PLACES = 128
"""Places told apart; of more than this none is worth a finding. Fits a byte."""

ONCE = 0.9
ONCE_TEXT = " Nearly all of it is one gap, so it may be a first use (a library that starts, memory that grows) and not come again."

EVIDENCE = 5
"""Spans a finding shows at most; the longest ones."""


@dataclass(frozen=True)
class Loss:
    """Idle time of one device behind one place: that of `row`, the host row of the longest moment in its `pieces`.

    `own` are the pieces of the place itself. `joins` are the losses it puts together, if it does, the costliest first; `here_ns` is then the part lost at its own
    place, else -1.
    """

    account: IdleAccount
    row: int
    lost_ns: int
    own: Rows
    joins: tuple[Loss, ...] = ()
    here_ns: int = -1

    @cached_property
    def pieces(self) -> Rows:
        """The pieces of idle time it adds up, ascending."""
        if not self.joins:
            return self.own
        taken = np.zeros(len(self.account.pieces), np.bool_)
        for part in self.joins:
            taken[part.own] = True
        return np.flatnonzero(taken)

    @cached_property
    def place(self) -> Place:
        return self.account.run.places.place(self.row) if self.row >= 0 else Place()

    @property
    def gaps(self) -> Rows:
        """Indices into the device's gaps, by the time lost in them, the longest first."""
        return self._by_gap[0]

    @property
    def gap_ns(self) -> Int64:
        """The time lost in each of `gaps`."""
        return self._by_gap[1]

    @cached_property
    def _by_gap(self) -> tuple[Rows, Int64]:
        pieces = self.account.pieces
        gap = pieces.gap[self.pieces]
        heads = np.flatnonzero(np.append(True, gap[1:] != gap[:-1]))
        lengths = np.add.reduceat(pieces.lengths(self.pieces), heads)
        order = np.argsort(-lengths, kind="stable")
        return gap[heads[order]].astype(np.intp), lengths[order]

    @cached_property
    def by_phase(self) -> dict[str, int]:
        """The time lost by phase of the step the launch belongs to."""
        out: dict[str, int] = {}
        for part in self.joins:
            for name, ns in part.by_phase.items():
                out[name] = out.get(name, 0) + ns
        if self.joins:
            return out
        run, (gaps, lengths) = self.account.run, self._by_gap
        phase, names = run.phase_codes(self.account.host_end_ns[gaps])
        for code in kernels.distinct(phase[phase >= 0]).tolist():
            out[names[code]] = int(lengths[phase == code].sum())
        return dict(sorted(out.items()))

    @property
    def phase(self) -> str:
        """The phase that holds most of it; "" where none does."""
        name, most = max(self.by_phase.items(), key=lambda item: item[1], default=("", 0))
        return name if 10 * most >= 8 * self.lost_ns else ""

    @property
    def is_once(self) -> bool:
        """Whether nearly all of it is one gap: something that happens once in the recording."""
        return bool(len(self.gap_ns) and self.gap_ns[0] >= ONCE * self.lost_ns)

    @property
    def share(self) -> float:
        """Of the device's steady span."""
        return self.lost_ns / max(self.account.run.steady_span_ns(self.account.view), 1)


def losses(
    run: Run,
    account: IdleAccount,
    chosen: Rows,
    rows: AnyRows | None = None,
    codes: Int32 | None = None,
    *,
    steady: bool = True,
    most: int = MOST_PLACES,
) -> list[Loss]:
    """Sum some pieces of an account (their numbers, ascending) by the place of their host rows.

    `rows` and `codes` have an entry per chosen piece: its host row (-1 none), the innermost span unless given, and a
    number, equal where the place is (`Run.place_codes` unless given). Pieces of warm-up steps are left out if `steady`.
    The `most` largest come, at most 128, the largest first, of equal ones that which comes first.
    """
    index = run.idle_index[account.view.device]
    pieces = account.pieces
    if steady and not index.all_steady:
        keep = index.are_steady(chosen)
        chosen, rows, codes = chosen[keep], *(None if x is None else x[keep] for x in (rows, codes))
    if len(chosen) == 0:
        return []
    if rows is None:
        rows = pieces.row.take(chosen)
    if codes is None:
        codes = run.place_codes(rows)
    out = []
    for mine, lost in _largest(codes, pieces.lengths(chosen), most):
        own = chosen[mine]
        longest = int(np.argmax(pieces.longest_ns[own]))  # it is at the row of the longest moment
        out.append(Loss(account, int(rows[mine[longest]]), lost, own))
    return out


def _largest(codes: Int32, lengths: Int64, most: int) -> Iterator[tuple[Rows, int]]:
    """Of the `most` numbers with the largest sums of lengths, where each stands, ascending, and that sum."""
    wide = codes.astype(np.intp)  # once for all that count by it
    sums, count = kernels.sums(wide, lengths), np.bincount(wide)
    del wide
    known = np.flatnonzero(count)
    known = known[np.argsort(-sums[known], kind="stable")]
    worth = sums[known[: most + 1]]
    if (worth[1:] == worth[:-1]).any():
        first = np.empty(len(count), np.int32)
        first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1, dtype=np.int32)  # the last one written stays
        known = known[np.lexsort((first[known], -sums[known]))]
    top = known[:most]
    rank = np.full(len(count), len(top), np.uint8)
    rank[top] = np.arange(len(top))
    order = np.argsort(kernels.mapped(rank, codes), kind="stable")  # of one byte: a count, no comparisons
    at = 0
    for size, lost in zip(count[top].tolist(), sums[top].tolist(), strict=True):
        yield order[at : at + size], lost
        at += size


def together(run: Run, account: IdleAccount, chosen: Rows, rows: AnyRows | None = None) -> list[Loss]:
    """Some pieces as one loss, without those of warm-up steps; none where none is left. As `losses`."""
    index, pieces = run.idle_index[account.view.device], account.pieces
    rows = pieces.row.take(chosen) if rows is None else rows
    if not index.all_steady:
        keep = index.are_steady(chosen)
        chosen, rows = chosen[keep], rows[keep]
    if len(chosen) == 0:
        return []
    longest = int(np.argmax(pieces.longest_ns[chosen]))
    return [Loss(account, int(rows[longest]), int(pieces.lengths(chosen).sum()), chosen)]


def cause_losses(run: Run, account: IdleAccount, cause: Cause, *, steady: bool = True) -> list[Loss]:
    """The losses of one cause by place, worked out once."""
    index = run.idle_index[account.view.device]
    key = cause, steady and not index.all_steady
    if key not in index.losses:
        index.losses[key] = losses(run, account, index.of(cause), steady=steady)
    return index.losses[key]


def evidence(run: Run, loss: Loss, label: str) -> tuple[Evidence, ...]:
    """The longest gaps of a loss on the device's track, and the host span behind the longest."""
    gaps, spans = loss.account.view.gaps, run.timeline.spans
    out = []
    for g in loss.gaps[:EVIDENCE].tolist():
        ended = int(gaps.ended_by[g])
        text = f"{label}, before {run.timeline.name(ended)[:80]}"
        out.append(Evidence(int(spans.track[ended]), int(gaps.start_ns[g]), int(gaps.end_ns[g]), text))
    if loss.row >= 0:
        begin = int(spans.start_ns[loss.row])
        end = begin + int(spans.dur_ns[loss.row])
        out.append(Evidence(int(spans.track[loss.row]), begin, end, run.timeline.name(loss.row)[:120]))
    return tuple(out)


def per_step(run: Run, loss_ns: int, by_phase: dict[str, int]) -> dict[str, Any]:
    """What a loss is per step of its phase, and per token where the phase is decode: facts of a finding."""
    facts: dict[str, Any] = {}
    name, part = max(by_phase.items(), key=lambda item: item[1], default=("", 0))
    count = run.steady_steps(name) if 10 * part >= 8 * loss_ns > 0 else 0
    if count:
        facts["steps"] = count
        facts["per_step_ns"] = part // count
        if name == "decode":
            facts["per_token_ns"] = part // count
    if len(by_phase) > 1:
        facts["by_phase_ns"] = by_phase
    return facts


def amount(lost_ns: int, facts: dict[str, Any], phase: str) -> str:
    """A loss in words, per step where steps are known: "2.10 ms a decode step (25.2 ms in all)"."""
    if "per_step_ns" not in facts or facts["steps"] < 2:
        return duration(lost_ns)
    name = "" if phase in ("", "other") else f"{phase} "
    return f"{duration(facts['per_step_ns'])} a {name}step ({duration(lost_ns)} in all)"


def joined(parts: list[Loss]) -> Loss:
    """Losses of one device as one, at the place of the first."""
    first = parts[0]
    return Loss(
        first.account, first.row, sum(x.lost_ns for x in parts), first.own, tuple(parts), first.lost_ns
    )


def widest(found: Iterable[list[Loss]]) -> list[tuple[Loss, list[int]]]:
    """Losses of several devices joined by place: the device that loses most, and all the devices.

    Devices idle at one time, so their losses are not added.
    """
    by_place: dict[Place, list[Loss]] = {}
    for device in found:
        for loss in device:
            place = loss.place
            known = replace(place, annotation="") if place.python or place.operator else place
            by_place.setdefault(known, []).append(loss)
    joined = []
    for same in by_place.values():
        best = max(same, key=lambda x: x.lost_ns)
        joined.append((best, sorted({x.account.view.device for x in same})))
    return sorted(joined, key=lambda item: -item[0].lost_ns)
