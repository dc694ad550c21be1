"""A step is replayed in pieces, with kernels launched one by one between them.

## What it finds
Steps with several graph launches and kernels launched one by one in between: graph breaks. The finding names the operator
and the Python line that launch most of what stands between the pieces. What one graph for the whole step would save is
priced by replaying the recording; where the device stays busy over the breaks, that is nothing, and nothing is found.

## Why it costs time
At each break the host must come back: return from the replay, run Python and an operator, launch its kernels, and start the
next piece. With short kernels the device waits for that, once per layer.

## What to try
Make the operator capturable (static shapes, no host reads, a backend that supports full graphs), capture the whole decode
step (`full_cuda_graph`, `FULL_AND_PIECEWISE` in vLLM), or move the operator out of the step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers import kernelwords
from stallscope.analyzers.finding import Evidence, Finding
from stallscope.analyzers.gain import replayable, why_not_replayable
from stallscope.analyzers.graphs import Rows, StepUse
from stallscope.analyzers.places import Place
from stallscope.analyzers.registry import NotAnalysable, limit
from stallscope.analyzers.units import duration
from stallscope.profiler import kernels
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "GR502"
NEEDS = {"host", "device", "launches", "steps", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When breaks are worth a finding."""

    min_share: float = limit(
        0.03, "Share of the run's time that whole graphs must give back.",
        source="XProf calls 3 % of a step moderate",
    )  # fmt: skip
    min_breaks: float = limit(1, "Breaks per step from which a step counts as broken.")


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per phase."""
    for phase in dict.fromkeys(s.phase for s in run.steps):
        broken = [u for u in run.graphs.of_phase(phase) if _breaks(run, u) >= max(limits.min_breaks, 1)]
        if not broken:
            continue
        if not replayable(run):
            raise NotAnalysable(f"what whole graphs would save cannot be priced: {why_not_replayable(run)}")
        fix = run.graphs.as_graphs(broken, between_replays=True)
        # a graph shortens no kernel: it cannot save more than the device idles
        saved = min(run.replay.gain_ns(fix), run.graphs.idle_ns(broken))
        if saved >= limits.min_share * kernelwords.run_span_ns(run):
            yield replace(_finding(run, phase, broken, saved), fix=fix)


def _breaks(run: Run, use: StepUse) -> int:
    """Holes between two replays in which something was launched."""
    spans = run.timeline.spans
    holes = np.searchsorted(spans.start_ns[use.replays], spans.start_ns[use.between])
    return len(kernels.distinct(holes))


def _finding(run: Run, phase: str, broken: Sequence[StepUse], saved_ns: int) -> Finding:
    between = np.concatenate([u.between for u in broken])
    breaks = sum(_breaks(run, u) for u in broken)
    place, part = _culprit(run, between)
    late = run.whole.rows[kernels.among(run.timeline.spans.launch_row[run.whole.rows], between)]
    lost = run.graphs.idle_ns(broken)
    name = f"{phase} " if phase != "other" else ""
    pieces = sum(len(u.replays) for u in broken) / len(broken)
    return Finding(
        code=CODE,
        name="graph-break",
        title=f"{_count(breaks / len(broken))} a {name}step, {'most of them ' if breaks > len(broken) else ''}at {place.operator or place.text}",
        lost_ns=lost,
        recoverable_ns=saved_ns,
        confidence="high" if place.python or place.operator else "medium",
        phase=phase,
        where=place.where(run.timeline.name(int(late[0]))[:200] if len(late) else ""),
        detail=(
            f"{len(broken)} steps are replayed in {pieces:.0f} pieces each; {len(late)} kernels between them are launched one by "
            f"one, {part:.0%} of these launches from there. The device idles {duration(lost)} in these steps. One graph for each "
            f"would save up to {duration(saved_ns)} (priced by replaying the recording)."
        ),
        advice="Make that operator capturable, or capture the whole step instead of pieces.",
        evidence=_evidence(run, between),
        facts={
            "steps": len(broken),
            "breaks": breaks,
            "replays": sum(len(u.replays) for u in broken),
            "kernels_between": len(late),
            "share_of_culprit": round(part, 4),
            "per_step_ns": lost // len(broken),
            "priced_by": "replay",
        },
    )


def _count(breaks: float) -> str:
    return "1 graph break" if round(breaks) == 1 else f"{breaks:.0f} graph breaks"


def _culprit(run: Run, between: Rows) -> tuple[Place, float]:
    """The place most launches between pieces come from, and its share of them."""
    name = run.timeline.spans.name
    outer = run.places.outer_operators(between)
    frame = run.places.user_frames(between)
    keys = list(
        zip(
            np.where(outer >= 0, name[np.maximum(outer, 0)], -1).tolist(),
            np.where(frame >= 0, name[np.maximum(frame, 0)], -1).tolist(),
            strict=True,
        )
    )
    key, count = Counter(keys).most_common(1)[0]
    at = keys.index(key)
    found = Place(
        run.places.name(int(frame[at])),
        run.places.name(int(outer[at])),
        run.places.place(int(between[at])).annotation,
    )
    return found, count / len(keys)


def _evidence(run: Run, between: Rows) -> tuple[Evidence, ...]:
    spans = run.timeline.spans
    at = run.places.outer_operators(between)
    rows = kernels.distinct(np.where(at >= 0, at, between))
    longest = rows[np.argsort(-spans.dur_ns[rows], kind="stable")[: kernelwords.EVIDENCE]]
    return tuple(
        Evidence(
            int(spans.track[r]),
            int(spans.start_ns[r]),
            int(spans.start_ns[r] + spans.dur_ns[r]),
            run.timeline.name(int(r))[:120],
        )
        for r in longest.tolist()
    )
