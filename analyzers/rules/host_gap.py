"""On a recording without a device: the thread that runs the operators spends long times outside of them.

## What it finds
Gaps between outermost operators of a thread that are far longer than its usual ones, added up by what ran in them:
a Python line, an annotated range, or code that left no record. It answers for CPU runs and for recordings whose
device activity is missing; where a device was recorded, its own idle time is analysed instead (HB101).

## Why it costs time
No tensor work happens in a gap. On a CPU run the gap is lost as it stands; with a device, it is what the device
will wait for as soon as it is fast enough.

## What to try
Move the work out of the loop, batch it, or run it in another thread or process while the next step computes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Evidence, Finding
from stallscope.analyzers.hostgaps import HostGaps
from stallscope.analyzers.losses import amount, per_step
from stallscope.analyzers.places import Place
from stallscope.analyzers.registry import NotApplicable, limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler import kernels
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "HB102"
NEEDS = {"host", "operators", "trusted_host"}


@dataclass(frozen=True)
class Limits:
    """Which gaps are stalls, and when a place is worth a finding."""

    min_gap_us: float = limit(
        1000, "Shorter gaps are the framework's and Python's ordinary overhead.", unit="us",
        source="TensorRT-LLM perf-host-analysis: from 0.5 to 1 ms a gap is heavy Python",
    )  # fmt: skip
    min_ratio: float = limit(10, "A gap is a stall from this many times the thread's median gap.")
    min_share: float = limit(
        0.05, "A place is reported if its gaps take at least this share of the thread's time.",
        source="between XProf's 3 % (moderate) and 15 % (high) for host time",
    )  # fmt: skip
    min_gaps: float = limit(3, "Fewer gaps at a place are chance: the thread may have lost its core.")
    single_share: float = limit(0.30, "Unless they take this share of the thread's time.")


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per thread and place."""
    if "device" in run.has:
        raise NotApplicable("a device was recorded, whose own idle time is analysed (HB101)")
    for gaps in run.host.gaps:
        yield from _thread(run, gaps, limits)


def _thread(run: Run, gaps: HostGaps, limits: Limits) -> Iterator[Finding]:
    length = gaps.dur_ns
    usual = float(np.median(length)) if len(length) else 0.0
    stall = (length >= limits.min_gap_us * 1000) & (length >= limits.min_ratio * usual)
    chosen = np.flatnonzero(stall & run.is_steady(gaps.end_ns) & ~_in_backward(run, gaps))
    if len(chosen) == 0:
        return
    place = run.place_codes(gaps.row[chosen])
    for k in kernels.distinct(place).tolist():
        mine = chosen[place == k]
        needed = limits.min_share if len(mine) >= limits.min_gaps else limits.single_share
        if int(length[mine].sum()) >= needed * gaps.span_ns:
            yield _finding(run, gaps, mine[np.argsort(-length[mine], kind="stable")])


def _in_backward(run: Run, gaps: HostGaps) -> npt.NDArray[np.bool_]:
    """Gaps inside of a range named for the backward pass: autograd runs it on threads of its own, and a
    recording of one thread shows nothing of them."""
    inside: npt.NDArray[np.bool_] = gaps.row >= 0
    inside[inside] = run.timeline.match_names_at(lambda name: "backward" in name.lower(), gaps.row[inside])
    return inside


def _finding(run: Run, gaps: HostGaps, mine: npt.NDArray[np.intp]) -> Finding:
    length = gaps.dur_ns[mine]
    lost, row = int(length.sum()), int(gaps.row[mine[0]])
    place = run.places.place(row) if row >= 0 else Place()
    following = run.timeline.name(int(gaps.next_row[mine[0]]))
    by_phase: dict[str, int] = {}
    for phase, ns in zip(run.phase_at(gaps.end_ns[mine]), length.tolist(), strict=True):
        if phase:
            by_phase[phase] = by_phase.get(phase, 0) + ns
    phase = max(by_phase, key=lambda p: by_phase[p]) if by_phase else ""
    facts = per_step(run, lost, by_phase) | {
        "gaps": len(mine), "longest_gap_ns": int(length[0]), "median_gap_ns": int(np.median(length)),
    }  # fmt: skip
    text = place.annotation if place.annotation and not place.python else place.text
    track = gaps.track
    spans = [Evidence(track, int(gaps.start_ns[g]), int(gaps.end_ns[g]), f"no operator, before {following[:60]}")
             for g in mine[:5].tolist()]  # fmt: skip
    return Finding(
        code=CODE,
        name="host-gap",
        title=f"No operator runs for {amount(lost, facts, phase)} while the host is in {text}",
        lost_ns=lost,
        recoverable_ns=lost,
        confidence="high" if row >= 0 else "medium",
        phase=phase,
        where=place.where(),
        detail=(
            f"{len(mine)} gaps between operators, median {duration(int(np.median(length)))}, longest "
            f"{duration(int(length[0]))}: {share(lost, gaps.span_ns)} of the time of {run.timeline.tracks[track].name}. "
            f"The longest is followed by {following}."
        ),
        advice="Take this work out of the loop, batch it, or do it in another thread or process.",
        evidence=tuple(spans),
        facts=facts,
    )
