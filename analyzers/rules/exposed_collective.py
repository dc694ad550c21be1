"""Communication between devices that no kernel runs beside.

## What it finds
Collectives (all-reduce, all-gather, all-to-all, send and receive) during which this device does nothing else, added
up by kernel name, and split into waiting and transfer where the recording tells:

* HCCL with its tasks on planes (level 1 and 2): a collective waits while one of its tasks waits for another rank's
  signal and none moves bytes. The rank that was waited for longest is named by its number within the group.
* HCCL with `communication.json`: a collective moves bytes for no longer than its transfers took in all; the rest it
  waited.
* The same HCCL operation on several ranks: a collective ends on all of them at about the same time, so what it lasts
  longer here than on the rank that came last is waiting.
* Sizes of messages alone: of calls of one name and size the excess over the shortest is waiting.

One rank alone without any of these cannot tell waiting from transfer.

## Why it costs time
A collective takes as long as the slowest rank needs to arrive, plus the transfer. Both are added to the step unless
other work hides them.

## What to try
Waiting: look at the late rank's own trace. Between stages of a pipeline: balance the stages, use more micro-batches.
Transfer: overlap with compute of another micro-batch, use one-shot or
fused all-reduce kernels for small messages, quantise what is sent, or use fewer devices per model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.communication import base_name
from stallscope.analyzers.finding import Confidence, Evidence, Finding, Where
from stallscope.analyzers.losses import amount
from stallscope.analyzers.registry import NotAnalysable, limit
from stallscope.analyzers.units import count, duration, share
from stallscope.profiler import intervals, kernels
from stallscope.profiler.device import DeviceView
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

_PAIRED = re.compile(r"send|recv|receive|p2p", re.IGNORECASE)
"""Names of communication between two ranks, the stages of a pipeline as a rule."""

KNOWN = 0.9
"""Share of the exposed time that a source must know to be believed for all of it."""

SAME_PEER = 0.8
"""Share of the waiting that must be for one rank to name it."""

ALONE = " What this rank alone saves elsewhere only makes the wait longer."
"""Said with a wait for other ranks: their arrival is not this rank's to change."""

UNEVEN = 1.1
"""Ranks that compute this many times as much as others are told; the Ascend advisor tells 5 % of the mean."""

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
    exposed = intervals.covered(view.exposed_collective, spans.start_ns[rows], spans.end_at(rows))
    names = spans.name[rows]
    kinds = {int(c): base_name(run.timeline.strings[int(c)]) for c in kernels.distinct(names)}
    for kind in sorted(set(kinds.values())):
        mine = kernels.among(names, [c for c, k in kinds.items() if k == kind])
        if int(exposed[mine].sum()) >= limits.min_share * run.steady_span_ns(view):
            yield _finding(run, view, rows[mine], exposed[mine], limits)


def _finding(
    run: Run, view: DeviceView, rows: npt.NDArray[np.intp], exposed: Int64, limits: Limits
) -> Finding:
    spans = run.timeline.spans
    lost = int(exposed.sum())
    told = _split(run, rows, exposed)
    waited = told.waited_ns
    late = waited >= limits.wait_ratio * lost
    name = base_name(run.timeline.name(int(rows[0])))
    phase = run.phase_of_most(spans.start_ns[np.maximum(spans.launch_row[rows], 0)])
    steps = run.steady_steps(phase) if phase else 0
    recoverable = waited if late else lost
    place = run.places.place(int(spans.launch_row[rows[0]])) if spans.launch_row[rows[0]] >= 0 else None
    facts = {"calls": len(rows), "exposed_ns": lost, "split_by": told.by}
    if told.by:
        facts |= {"waiting_ns": waited, "transfer_ns": lost - waited}
    if told.peer >= 0:
        facts |= {"late_rank_of_group": told.peer, "late_rank_ns": told.peer_ns}
    if told.rank >= 0:
        facts |= {"late_rank": told.rank, "late_rank_ns": told.peer_ns}
    if steps:
        facts |= {"steps": steps, "per_step_ns": lost // steps}
    paired = _PAIRED.search(name) is not None
    whom = told.whom or ("the rank at the other end" if paired else "ranks that come late")
    why = f", mostly waiting for {whom}" if late else ", mostly transfer" if told.transfer else ""
    longest = rows[np.argsort(-exposed, kind="stable")][:5]
    return Finding(
        code=CODE,
        name="exposed-collective",
        title=f"{name[:60]} is exposed for {amount(lost, facts, phase)}{why}",
        lost_ns=lost,
        recoverable_ns=recoverable,
        confidence=_confidence(told, late),
        phase=phase,
        where=Where(place.python if place else "", place.operator if place else "", name),
        detail=(
            f"{count(len(rows), 'call')}; {share(lost, run.steady_span_ns(view))} of the device's time nothing runs beside them. "
            f"{told.text(lost)}{(_uneven(run) + ALONE) if late else ''}"
        ),
        advice=_advice(told, late, paired),
        evidence=tuple(
            Evidence(int(spans.track[r]), int(spans.start_ns[r]), int(spans.end_at(r)), name[:60])
            for r in longest.tolist()
        ),
        facts=facts,
    )


def _confidence(told: _Told, late: bool) -> Confidence:
    if told.first and not told.by:
        return "low"
    return "high" if told.sure and not told.first and (late or told.transfer) else "medium"


def _uneven(run: Run) -> str:
    """Which rank computes most and which least, where that differs much; with a space before it."""
    computing = run.communication.computing
    if not computing:
        return ""
    most, least = max(computing, key=lambda r: computing[r]), min(computing, key=lambda r: computing[r])
    if computing[most] < UNEVEN * computing[least]:
        return ""
    return (
        f" The ranks compute unevenly: rank {most} {duration(computing[most])}, rank {least} "
        f"{duration(computing[least])} in the same steps."
    )


def _advice(told: _Told, late: bool, paired: bool) -> str:
    if not late:
        return "Overlap it with compute, fuse it, or send less."
    if paired:
        return "Balance the stages of the pipeline or use more micro-batches; look at the other rank's own trace."
    return f"Look at {f'the trace of {told.whom}' if told.whom else 'the late rank'}: what does it do before?"


@dataclass(frozen=True)
class _Told:
    """What the recording tells of the exposed time of some calls: how much was waiting, and by what it is known
    ("tasks", "table", "ranks", "sizes", "" unknown). `peer` is the rank within the group that was waited for, `rank` the same as a
    rank of the whole job, -1 unknown; `first` whether most of the waiting was in the first collective of the recording, `transfer` whether most of the
    exposed time is known to be transfer."""

    waited_ns: int
    by: str
    sure: bool
    peer: int = -1
    rank: int = -1
    peer_ns: int = 0
    first: bool = False
    transfer: bool = False
    lacks: str = "Message sizes were not recorded"

    @property
    def whom(self) -> str:
        """The rank that was waited for, or ""."""
        return (
            f"rank {self.rank}"
            if self.rank >= 0
            else f"rank {self.peer} of its group"
            if self.peer >= 0
            else ""
        )

    def text(self, lost: int) -> str:
        """The split in a sentence or two."""
        of = f", {duration(self.peer_ns)} of it for {self.whom}" if self.whom else ""
        wait, rest = duration(self.waited_ns), duration(lost - self.waited_ns)
        if self.by == "tasks":
            of = (
                f", {duration(self.peer_ns)} of it for rank {self.peer} of the group"
                if self.peer >= 0
                else ""
            )
            out = f"For {wait} they move no bytes and wait for other ranks{of}; {rest} is transfer."
        elif self.by == "table":
            out = f"Their transfers take {rest} at most; for at least {wait} they wait for other ranks{of}."
        elif self.by == "ranks":
            out = f"They are {wait} longer here than on the rank that came last{of}; {rest} is transfer at most."
        elif self.by == "sizes":
            return (
                f"{wait} is longer than the shortest calls of the same size (late ranks), {rest} is transfer."
            )
        else:
            out = f"{self.lacks}, so waiting for late ranks cannot be told from transfer."
        if self.first:
            out += (
                f" Most of {'the waiting' if self.by else 'it'} is in the first collective recorded: a rank that began "
                "to record late is late there too. Record several steps to be sure."
            )
        return out


def _split(run: Run, rows: npt.NDArray[np.intp], exposed: Int64) -> _Told:
    """Waiting and transfer of some collectives, by the best source that knows most of them."""
    split, lost = run.communication.split, int(exposed.sum())
    at = split.of(rows)
    hccl = split.wait_ns[at]
    if int(exposed[hccl >= 0].sum()) < KNOWN * lost:
        sized = run.timeline.arg_ints_at("In msg nelems", rows, -1) >= 0
        waited = int(np.minimum(_waiting(run, rows), exposed).sum())
        late = waited >= 0.5 * lost
        lacks = (
            "Neither the tasks of these collectives nor communication.json is here (profiler level 1 writes both)"
            if run.communication.ranks
            else "Message sizes were not recorded"
        )
        return (
            _Told(waited, "sizes", not late, transfer=not late)
            if sized.all()
            else _Told(0, "", False, first=_in_first(run, rows, exposed), lacks=lacks)
        )
    waits = np.minimum(np.maximum(hccl, 0), exposed)
    waited = int(waits.sum())
    tasks = int(waits[split.by_tasks[at]].sum()) >= KNOWN * waited
    first = int(waits[rows == int(run.communication.first(rows))].sum()) >= 0.5 * waited
    peer, peer_ns = -1, 0
    rank = -1
    if tasks and waited:
        peers = split.peer[at]
        sums = {
            p: int(np.minimum(split.peer_wait_ns[at], waits)[peers == p].sum())
            for p in kernels.distinct(peers[peers >= 0]).tolist()
        }
        best = max(sums, key=lambda p: sums[p], default=-1)
        if best >= 0 and sums[best] >= SAME_PEER * waited:
            peer, peer_ns = best, sums[best]
    else:
        rank, peer_ns = _latest(run, rows, waits)
    others = not tasks and int(waits[split.by_ranks[at]].sum()) >= KNOWN * waited
    by = "tasks" if tasks else "ranks" if others else "table"
    moved = int(np.minimum(split.transfer_ns[at], exposed).sum())
    return _Told(waited, by, True, peer, rank, peer_ns, first and 2 * waited >= lost, 2 * moved >= lost)


def _in_first(run: Run, rows: npt.NDArray[np.intp], exposed: Int64) -> bool:
    """Whether most of the exposed time is in the device's first collective, though there are others of the name."""
    first = run.communication.first(rows)
    return len(rows) > 1 and 2 * int(exposed[rows == first].sum()) >= int(exposed.sum())


def _latest(run: Run, rows: npt.NDArray[np.intp], waits: Int64) -> tuple[int, int]:
    """The recorded rank that most of the waiting was for, by the other ranks' tables, and how much; (-1, 0) unknown."""
    sums: dict[int, int] = {}
    for row, wait in zip(rows.tolist(), waits.tolist(), strict=True):
        rank = run.communication.last_to_come(row) if wait else -1
        sums[rank] = sums.get(rank, 0) + wait
    best = max(sums, key=lambda r: sums[r], default=-1)
    return (best, sums[best]) if best >= 0 and sums[best] >= SAME_PEER * int(waits.sum()) else (-1, 0)


def _waiting(run: Run, rows: npt.NDArray[np.intp]) -> Int64:
    """How much longer than the shortest tenth of its name and size each call took; 0 where sizes are unknown."""
    took = run.timeline.spans.dur_ns[rows]
    size = run.timeline.arg_ints_at("In msg nelems", rows, -1)
    out = np.zeros(len(rows), np.int64)
    for value in kernels.distinct(size[size >= 0]).tolist():
        same = size == value
        out[same] = np.maximum(took[same] - int(kernels.quantile(took[same], 0.1)), 0)
    return out
