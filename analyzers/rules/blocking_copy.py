"""A copy blocks the host until it is done, and the device does nothing else meanwhile.

## What it finds
Copies between host and device whose call returns only when the copy is done (pageable memory, `cudaMemcpy` without
`Async`), where the device did nothing but copy, or idled after it because its next work came late. Copies of a few
bytes that read a value back are SY202.

## Why it costs time
Pageable memory is first copied to a pinned buffer by the host, piece by piece; no kernel runs beside it, and no
launch is prepared.

## What to try
Pin the host memory (`pin_memory=True`) and copy with `non_blocking=True`, on a stream of its own, before the data
is needed. Keep on the device what is copied in every step.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Evidence, Finding
from stallscope.analyzers.idle import Cause, IdleAccount
from stallscope.analyzers.losses import amount
from stallscope.analyzers.places import Place
from stallscope.analyzers.pricing import Price, price, without_waits
from stallscope.analyzers.registry import limit
from stallscope.analyzers.stalls import block_pieces
from stallscope.analyzers.units import duration, share, size
from stallscope.profiler import intervals, kernels
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Bool, Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]

CODE = "SY203"
NEEDS = {"host", "device", "launches", "trusted_host"}


@dataclass(frozen=True)
class Limits:
    """When blocking copies are worth a finding."""

    min_share: float = limit(
        0.02, "A place is reported if it costs at least this share of the device's span.",
        source="as SY201; Nsight Systems reports every pageable copy",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per place."""
    best: dict[Place, Finding] = {}
    for account in run.idle.values():
        for finding, place in _device(run, account, limits):
            if place not in best or best[place].lost_ns < finding.lost_ns:
                best[place] = finding
    yield from best.values()


def _device(run: Run, account: IdleAccount, limits: Limits) -> Iterator[tuple[Finding, Place]]:
    """Per place: the copies' exposed time and the idle time that goes with them."""
    found = block_pieces(run, account, Cause.BLOCKING_COPY)
    pieces, spans = account.pieces, run.timeline.spans
    found = found.where(run.idle_index[account.view.device].steady[pieces.gap[found.chosen]])
    copies = account.view.rows[account.view.kind == Kind.MEMCPY]
    known, waiter = run.copy_waiters
    at = np.searchsorted(known, copies)
    calls = np.where(np.append(known, -1)[at] == copies, np.append(waiter, -1)[at], -1)
    exposed = intervals.covered(account.view.exposed_memcpy, spans.start_ns[copies], spans.end_at(copies))
    for track in kernels.distinct(spans.track[calls[calls >= 0]]).tolist():
        blocks = run.wait_blocks(track)
        for key in kernels.distinct(blocks.key[blocks.is_copy]).tolist():
            of_place = np.flatnonzero((blocks.key == key) & blocks.is_copy)
            inside = _block_of(run, track, of_place, calls)
            inside &= run.is_steady(spans.start_ns[np.maximum(calls, 0)])
            mine = found.chosen[kernels.among(found.row, blocks.row[of_place])]
            idle = int(pieces.lengths(mine).sum())
            lost = int(exposed[inside].sum()) + idle
            if lost < limits.min_share * run.steady_span_ns(account.view) or not inside.any():
                continue
            place = Place(run.places.name(int(blocks.frame[of_place[0]])),
                          run.places.name(int(blocks.operator[of_place[0]])), "")  # fmt: skip
            row = int(blocks.row[of_place[0]])
            worth = price(run, lost, partial(without_waits, run, blocks, of_place))
            yield _finding(run, account, place, copies[inside], exposed[inside], idle, row, worth), place


def _block_of(run: Run, track: int, of_place: Rows, calls: Rows) -> Bool:
    """Which copies were started by a blocking call of these blocks."""
    blocks, spans = run.wait_blocks(track), run.timeline.spans
    start = spans.start_ns[np.maximum(calls, 0)]
    at = np.searchsorted(blocks.start_ns, start, side="right") - 1
    inside = (calls >= 0) & (spans.track[np.maximum(calls, 0)] == track) & (at >= 0)
    inside &= start < blocks.end_ns[np.maximum(at, 0)] + 1
    return np.asarray(inside & kernels.among(at, of_place) & run.is_wait[np.maximum(calls, 0)], np.bool_)


def _finding(
    run: Run,
    account: IdleAccount,
    place: Place,
    copies: Rows,
    exposed: Int64,
    idle: int,
    call: int,
    worth: Price,
) -> Finding:
    spans = run.timeline.spans
    moved = int(np.maximum(run.timeline.arg_ints_at("bytes", copies, 0), 0).sum())
    took = int(spans.dur_ns[copies].sum())
    lost = int(exposed.sum()) + idle
    phase = run.phase_of_most(spans.start_ns[spans.launch_row[copies]])
    steps = run.steady_steps(phase) if phase else 0
    kinds_of = {run.timeline.name(int(r)) for r in copies}
    longest = copies[np.argsort(-spans.dur_ns[copies])][:5]
    facts = {"copies": len(copies), "bytes": moved, "copy_ns": took, "exposed_copy_ns": int(exposed.sum()),
             "idle_ns": idle, "kinds": sorted(kinds_of)}  # fmt: skip
    if steps:
        facts |= {"steps": steps, "per_step_ns": lost // steps}
    at = f" in {place.text}" if place.python else f" in {place.operator}" if place.operator else ""
    return Finding(
        code=CODE,
        name="blocking-copy",
        title=f"Copies that block the host take {amount(lost, facts, phase)}{at}",
        lost_ns=lost,
        recoverable_ns=min(worth.ns, lost),  # the copy is still made, but beside other work
        confidence="high" if place.python or place.operator else "medium",
        phase=phase,
        where=Place(place.python, place.operator or run.timeline.name(call), "").where(min(kinds_of)),
        detail=(
            f"{len(copies)} cop{'y' if len(copies) == 1 else 'ies'}{f' of {size(moved)} in all' if moved else ''} ({', '.join(sorted(kinds_of))[:120]}) took {duration(took)}, "
            f"{duration(int(exposed.sum()))} of it with nothing beside them; the device idled {duration(idle)} around "
            f"them: {share(lost, account.view.span_ns)} of its time."
        ),
        advice="Pin the host memory and copy without blocking, early, on a stream of its own.",
        evidence=tuple(
            Evidence(
                int(spans.track[r]),
                int(spans.start_ns[r]),
                int(spans.end_at(r)),
                run.timeline.name(int(r))[:80],
            )
            for r in longest.tolist()
        ),
        facts=facts | worth.facts(),
        fix=worth.fix,
    )
