"""From idle pieces to findings: sums per place, phase and step, and the spans that prove them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Evidence
from stallscope.analyzers.idle import IdleAccount
from stallscope.analyzers.places import Place
from stallscope.analyzers.units import duration
from stallscope.profiler import kernels
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]
AnyRows = npt.NDArray[np.signedinteger[Any]]
MOST_PLACES = 128
"""Places told apart; of more than this none is worth a finding."""

ONCE = 0.9
ONCE_TEXT = " Nearly all of it is one gap, so it may be a first use (a library that starts, memory that grows) and not come again."

EVIDENCE = 5
"""Spans a finding shows at most; the longest ones."""


@dataclass(frozen=True)
class Loss:
    """Idle time of one device behind one place.

    `gap_ns` is the time lost in each of `gaps` (indices into the device's gaps, by length), `by_phase`
    the same sums by phase of the step the launch belongs to. `here_ns` is the part lost at `place` itself where losses
    of several places were joined, else -1.
    """

    place: Place
    row: int
    account: IdleAccount
    lost_ns: int
    gaps: Rows
    gap_ns: Int64
    by_phase: dict[str, int]
    here_ns: int = -1

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
    mask: npt.NDArray[np.bool_],
    rows: AnyRows,
    keys: Sequence[Rows] | None = None,
    *,
    steady: bool = True,
    most: int = MOST_PLACES,
) -> list[Loss]:
    """Sum the masked pieces of an account by the place of `rows` (one host row per piece, -1 none).

    Pieces of warm-up steps are left out if `steady`. Places are equal when user frame, operator and annotation have
    equal names; other `keys` (one number per piece) may be given. The `most` largest come, the largest first.
    """
    pieces = account.pieces
    if steady:
        mask = mask & run.is_steady(account.host_end_ns[pieces.gap])
    chosen = np.flatnonzero(mask)
    if len(chosen) == 0:
        return []
    parts = [k[chosen] for k in keys] if keys is not None else place_keys(run, rows[chosen])
    label, _ = kernels.group(*parts)
    order = np.argsort(label, kind="stable")
    heads = np.flatnonzero(np.append(True, np.diff(label[order]) != 0))
    sums = np.add.reduceat(pieces.lengths(chosen[order]), heads)
    bounds = np.append(heads, len(order))
    out = []
    for k in np.argsort(-sums, kind="stable")[:most].tolist():
        mine = chosen[order[bounds[k] : bounds[k + 1]]]
        longest = mine[int(np.argmax(pieces.lengths(mine)))]
        out.append(_loss(run, account, mine, int(rows[longest])))
    return out


def place_keys(run: Run, rows: AnyRows) -> list[Rows]:
    """Name codes of user frame, where there is none of the operator, and where there is neither of the range. Shape (p,)
    each. An operator in numbered steps is one place; what is known by its step alone stays apart: that is no place."""
    places, name = run.places, run.timeline.spans.name
    at, first = kernels.group(rows)
    distinct = rows[first]
    parts, has = [], np.zeros(len(distinct), bool)
    for find in (places.user_frames, places.operators, places.annotations):
        found = find(distinct)
        parts.append(np.where(~has & (found >= 0), name[np.maximum(found, 0)], -1).astype(np.intp))
        has |= found >= 0
    return [p[at] for p in parts]


def _loss(run: Run, account: IdleAccount, mine: Rows, row: int) -> Loss:
    pieces = account.pieces
    by_gap = mine[np.argsort(pieces.gap[mine], kind="stable")]
    heads = np.flatnonzero(np.append(True, np.diff(pieces.gap[by_gap]) != 0))
    gaps = pieces.gap[by_gap[heads]].astype(np.intp)
    lengths = np.add.reduceat(pieces.lengths(by_gap), heads)
    order = np.argsort(-lengths, kind="stable")
    phase, names = run.phase_codes(account.host_end_ns[gaps])
    by_phase: dict[str, int] = {}
    for code in np.unique(phase[phase >= 0]).tolist():
        by_phase[names[code]] = int(lengths[phase == code].sum())
    by_phase = dict(sorted(by_phase.items()))
    return Loss(run.places.place(row) if row >= 0 else Place(), row, account, int(lengths.sum()), gaps[order],
                lengths[order], by_phase)  # fmt: skip


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
    gaps, at = np.unique(np.concatenate([x.gaps for x in parts]), return_inverse=True)
    lengths = np.zeros(len(gaps), np.int64)
    np.add.at(lengths, np.asarray(at).reshape(-1), np.concatenate([x.gap_ns for x in parts]))
    order = np.argsort(-lengths, kind="stable")
    by_phase: dict[str, int] = {}
    for part in parts:
        for name, ns in part.by_phase.items():
            by_phase[name] = by_phase.get(name, 0) + ns
    return replace(
        parts[0], lost_ns=int(lengths.sum()), gaps=gaps[order], gap_ns=lengths[order], by_phase=by_phase,
        here_ns=parts[0].lost_ns,
    )  # fmt: skip


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
