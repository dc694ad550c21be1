"""Findings about one idle cause: what the rules on collection, compilation, allocation and the like share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Finding
from stallscope.analyzers.idle import Cause
from stallscope.analyzers.losses import (
    ONCE_TEXT,
    Loss,
    amount,
    cause_losses,
    evidence,
    joined,
    per_step,
    widest,
)
from stallscope.analyzers.pricing import price, without_times
from stallscope.analyzers.units import count, duration, share
from stallscope.profiler import intervals, kernels
from stallscope.profiler.intervals import IntervalSet
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]

NEARLY_ALL = 0.9
"""From this share of a loss on, the place that costs most is named for all of it."""


@dataclass(frozen=True)
class CauseText:
    """How a rule tells of its cause. `while_` ends "the device idles 3 ms ..."; `label` names a span."""

    code: str
    name: str
    while_: Callable[[Loss], str]
    label: str
    advice: str


def cause_findings(
    run: Run,
    cause: Cause,
    text: CauseText,
    min_share: float,
    *,
    together: bool = False,
    steady: bool = True,
) -> Iterator[Finding]:
    """One finding per place (or one in all, if `together`) whose idle time of a cause is a share of the span.

    A finding over several places stands at the one that costs most and lists the next.
    """
    if not together:
        for loss, devices in widest(cause_losses(run, a, cause, steady=steady) for a in run.idle.values()):
            if loss.share >= min_share:
                yield _finding(run, cause, loss, devices, text, [])
        return
    by_device = [cause_losses(run, a, cause, steady=steady) for a in run.idle.values()]
    most = max(by_device, key=lambda found: sum(x.lost_ns for x in found), default=[])
    if most:
        whole = joined(most)
        if whole.share >= min_share:
            yield _finding(run, cause, whole, [whole.account.view.device], text, most)


def _finding(
    run: Run, cause: Cause, loss: Loss, devices: list[int], text: CauseText, places: list[Loss]
) -> Finding:
    facts = per_step(run, loss.lost_ns, loss.by_phase) | {
        "gaps": len(loss.gaps),
        "longest_gap_ns": int(loss.gap_ns[0]),
        "devices": devices,
    }
    if len(places) > 1:
        facts["places"] = [{"place": x.place.text, "lost_ns": x.lost_ns} for x in places[:10]]
    once = cause == Cause.ALLOCATOR and loss.is_once
    worth = price(run, loss.lost_ns, lambda: without_times(_times(run, loss, cause)))
    span = run.steady_span_ns(loss.account.view)
    others = ", ".join(f"{x.place.text} ({duration(x.lost_ns)})" for x in places[1:4])
    return Finding(
        code=text.code,
        name=text.name,
        title=f"The device idles {amount(loss.lost_ns, facts, loss.phase)} {text.while_(loss)}",
        lost_ns=loss.lost_ns,
        recoverable_ns=worth.ns,
        confidence="high" if loss.row >= 0 and not once else "medium",
        phase=loss.phase,
        where=loss.place.where(),
        detail=(
            f"{count(len(loss.gaps), 'gap')} of up to {duration(int(loss.gap_ns[0]))}, {share(loss.lost_ns, span)} of the device's "
            f"time." + (f" Also in {others}." if others else "") + (ONCE_TEXT if once else "")
        ),
        advice=text.advice,
        evidence=evidence(run, loss, text.label),
        facts=facts | worth.facts(),
        fix=worth.fix,
    )


def _times(run: Run, loss: Loss, cause: Cause) -> dict[int, IntervalSet]:
    """When each launching thread was in the cause, whether its device was idle meanwhile or not."""
    account, causes, spans = loss.account, run.host_causes, run.timeline.spans
    out = {}
    for track in kernels.distinct(account.track[loss.gaps]).tolist():
        if cause in (Cause.GARBAGE_COLLECTION, Cause.COMPILE):
            out[track] = causes.set_of("gc" if cause == Cause.GARBAGE_COLLECTION else "compile", track)
        elif cause == Cause.CONTENTION:
            out[track] = run.contention(track)
        elif cause == Cause.ALLOCATOR:
            rows = run.timeline.track_rows(track)
            mine = rows.start + np.flatnonzero(causes.is_allocator[rows])
            out[track] = intervals.union(spans.start_ns[mine], spans.end_at(mine))
        else:
            pieces, index = account.pieces, run.idle_index[account.view.device]
            asked = np.zeros(len(account.view.gaps), np.bool_)
            asked[loss.gaps] = True
            mine = index.inside(asked & (account.track == track), index.of(cause))
            rows_of = kernels.distinct(pieces.row[mine][pieces.row[mine] >= 0])
            # of the spans themselves only what lies between two steps is the scheduler's
            whole = intervals.union(spans.start_ns[rows_of], spans.end_at(rows_of))
            out[track] = intervals.intersect(whole, run.between_steps) if run.steps else whole
    return out


def in_place(loss: Loss) -> str:
    """ " in sampler.py:214 (pick)", or "" where no place is known; with its share where it is one of several."""
    place = loss.place
    if not (place.python or place.operator or place.annotation):
        return ""
    if 0 <= loss.here_ns < NEARLY_ALL * loss.lost_ns:
        return f", {share(loss.here_ns, loss.lost_ns)} of it in {place.text}"
    return f" in {place.text}"
