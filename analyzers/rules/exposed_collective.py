"""Communication between devices that no kernel runs beside.

## What it finds
Collectives (all-reduce, all-gather, all-to-all, send and receive) during which this device does nothing else, added
up by kernel name. Where sizes were recorded and calls of one name and size differ in length, the excess over the
shortest is time spent waiting for ranks that came late; the rest is transfer.

## Why it costs time
A collective takes as long as the slowest rank needs to arrive, plus the transfer. Both are added to the step unless
other work hides them.

## What to try
Waiting: look at the late rank's own trace. Transfer: overlap with compute of another micro-batch, use one-shot or
fused all-reduce kernels for small messages, quantise what is sent, or use fewer devices per model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Evidence, Finding, Where
from stallscope.analyzers.losses import amount
from stallscope.analyzers.registry import NotAnalysable, limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler import intervals
from stallscope.profiler.device import DeviceView
from stallscope.profiler.kinds import Kind
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

_NUMBERED = re.compile(r"__\d+(?:_\d+)*$")
"""What HCCL appends to each call's name: group, index, and so on."""

CODE = "CC601"
NEEDS = {"device", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When exposed communication is worth a finding."""

    min_share: float = limit(
        0.05, "Share of the device's span that a collective is exposed.",
        source="TraceLens reports exposed communication above 5 %, the PyTorch plug-in above 10 %",
    )  # fmt: skip
    wait_ratio: float = limit(0.5, "Share of the exposed time that must be waiting to blame late ranks.")


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per collective, on the device where most of it is exposed."""
    if not any(len(view.compute[0]) for view in run.devices.values()):
        raise NotAnalysable(
            "no kernels were recorded beside the communication, so what is exposed cannot be told"
        )
    best: dict[str, Finding] = {}
    for view in run.devices.values():
        for finding in _device(run, view, limits):
            name = finding.where.kernel
            if name not in best or best[name].lost_ns < finding.lost_ns:
                best[name] = finding
    yield from best.values()


def _device(run: Run, view: DeviceView, limits: Limits) -> Iterator[Finding]:
    spans = run.timeline.spans
    rows = view.rows[view.kind == Kind.COLLECTIVE]
    rows = rows[run.is_steady(spans.start_ns[rows])]
    exposed = intervals.covered(view.exposed_collective, spans.start_ns[rows], spans.end_ns[rows])
    names = spans.name[rows]
    kinds = {int(c): _NUMBERED.sub("", run.timeline.strings[int(c)]) for c in np.unique(names)}
    for kind in sorted(set(kinds.values())):
        mine = np.isin(names, [c for c, k in kinds.items() if k == kind])
        if int(exposed[mine].sum()) >= limits.min_share * run.steady_span_ns(view):
            yield _finding(run, view, rows[mine], exposed[mine], limits)


def _finding(
    run: Run, view: DeviceView, rows: npt.NDArray[np.intp], exposed: Int64, limits: Limits
) -> Finding:
    spans = run.timeline.spans
    lost = int(exposed.sum())
    waited = int(np.minimum(_waiting(run, rows), exposed).sum())
    late = waited >= limits.wait_ratio * lost
    name = _NUMBERED.sub("", run.timeline.name(int(rows[0])))
    phases = run.phase_at(spans.start_ns[np.maximum(spans.launch_row[rows], 0)])
    phase = max(set(phases), key=phases.count) if phases else ""
    steps = run.steady_steps(phase) if phase else 0
    recoverable = waited if late else lost
    place = run.places.place(int(spans.launch_row[rows[0]])) if spans.launch_row[rows[0]] >= 0 else None
    facts = {"calls": len(rows), "exposed_ns": lost, "waiting_ns": waited, "transfer_ns": lost - waited}
    if steps:
        facts |= {"steps": steps, "per_step_ns": lost // steps}
    known = bool((run.timeline.arg_ints("In msg nelems", -1)[rows] >= 0).all())
    why = ", mostly waiting for ranks that come late" if late else ", mostly transfer" if known else ""
    split = (
        f"{duration(waited)} is longer than the shortest calls of the same size (late ranks), {duration(lost - waited)} "
        f"is transfer."
        if known
        else "Message sizes were not recorded, so waiting for late ranks cannot be told from transfer."
    )
    longest = rows[np.argsort(-exposed, kind="stable")][:5]
    return Finding(
        code=CODE,
        name="exposed-collective",
        title=f"{name[:60]} is exposed for {amount(lost, facts, phase)}{why}",
        lost_ns=lost,
        recoverable_ns=recoverable,
        confidence="high" if known and not late else "medium",
        phase=phase,
        where=Where(place.python if place else "", place.operator if place else "", name),
        detail=(
            f"{len(rows)} calls; {share(lost, run.steady_span_ns(view))} of the device's time nothing runs beside them. "
            f"{split}"
        ),
        advice="Look at the late rank's own trace."
        if late
        else "Overlap it with compute, fuse it, or send less.",
        evidence=tuple(
            Evidence(int(spans.track[r]), int(spans.start_ns[r]), int(spans.end_ns[r]), name[:60])
            for r in longest.tolist()
        ),
        facts=facts,
    )


def _waiting(run: Run, rows: npt.NDArray[np.intp]) -> Int64:
    """How much longer than the shortest tenth of its name and size each call took; 0 where sizes are unknown."""
    took = run.timeline.spans.dur_ns[rows]
    size = run.timeline.arg_ints("In msg nelems", -1)[rows]
    out = np.zeros(len(rows), np.int64)
    for value in np.unique(size[size >= 0]).tolist():
        same = size == value
        out[same] = np.maximum(took[same] - int(np.quantile(took[same], 0.1)), 0)
    return out
