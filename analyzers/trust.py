"""What the recording itself can be trusted for. Stands first in every report; rules that need what it lacks
are not analysable, with the reason given here.

Limits: linked share 95 % (peers.md, recommended definitions), profiler overhead 5 % notable and 15 % contaminated
(nsys-ai). The rest are plain majorities: claims about the host need most of the device's work to be linked to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from stallscope.analyzers.idle import Cause
from stallscope.analyzers.units import duration, share
from stallscope.profiler import intervals, kernels
from stallscope.profiler.device import BEFORE_RECORDING
from stallscope.profiler.ids import NO_ID
from stallscope.profiler.kinds import HOST_CALLS
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Note

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

State = Literal["ok", "note", "bad"]

LINKED_GOOD = 0.95
MAJORITY = 0.5
OVERHEAD_NOTE = 0.05
OVERHEAD_BAD = 0.15
FEW_EVENTS = 10


@dataclass(frozen=True)
class Check:
    """One thing that was looked at. `value` is the measured number (a share unless the name says otherwise),
    None where it cannot be measured; `blocks` are the needs it takes away (see `run.NEEDS_TEXT`)."""

    name: str
    state: State
    value: float | int | None
    text: str
    blocks: frozenset[str] = frozenset()
    count: int = 1

    def row(self) -> dict[str, Any]:
        """The row of the trust table."""
        return {"check": self.name, "state": self.state, "value": self.value, "text": self.text}


SAID_BY_READERS = {
    "linked": frozenset({"unlinked-device-events", "host-device-links-missing"}),
    "clocks": frozenset({"clock-inversion"}),
}
"""Checks and the notes of readers that tell the same."""

HOST = frozenset({"trusted_host"})
DEVICE = frozenset({"trusted_host", "trusted_device"})


class Trust:
    """All checks of one run."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def checks(self) -> list[Check]:
        """The checks that mean something for this recording, the gravest first."""
        found: list[Check | None] = [self._lost_records(), self._overhead(), self._settings()]
        if "device" in self.run.has:
            found += [self._linked(), self._lost_launches(), self._capture(), self._before(), self._clocks(),
                      self._unexplained(), self._few()]  # fmt: skip
        elif len(self._captured_launches):
            found.append(self._capture())
        elif self._launches:
            text = f"none of {self._launches} launches left a device record: the device's records were lost"
            found.append(Check("lost-launches", "bad", 1.0, text, count=self._launches))
        found.append(self._warm_up())
        order = {"bad": 0, "note": 1, "ok": 2}
        return sorted((c for c in found if c is not None), key=lambda c: order[c.state])

    @cached_property
    def blocks(self) -> dict[str, str]:
        """Need to the reason it is not met."""
        out: dict[str, str] = {}
        for check in self.checks:
            for need in check.blocks:
                out.setdefault(need, check.text)
        return out

    def table(self) -> list[dict[str, Any]]:
        return [check.row() for check in self.checks]

    def notes(self) -> list[Note]:
        """A note for each check that is not well, unless the reader of the file said the same."""
        said = {n.code for n in self.run.session.notes}
        return [
            Note(f"trust-{c.name}", "warning" if c.state == "bad" else "info", c.text, c.count)
            for c in self.checks
            if c.state != "ok" and not said & SAID_BY_READERS.get(c.name, frozenset())
        ]

    # -- the recording -------------------------------------------------------------------------------

    def _lost_records(self) -> Check:
        lost = [n for n in self.run.session.notes if n.severity == "data_loss"]
        count = sum(n.count for n in lost)
        if not count:
            return Check("records", "ok", 0, "no record was dropped or impossible")
        kinds = ", ".join(f"{n.count} {n.code}" for n in lost[:4])
        return Check("records", "note", count, f"records were dropped or impossible: {kinds}", count=count)

    def _overhead(self) -> Check:
        run = self.run
        start, end = run.host_span
        if "device" in run.has:
            start, end = (
                min(start, run.whole.first_ns) if end else run.whole.first_ns,
                max(end, run.whole.last_ns),
            )
        span = end - start
        # before, between and after the windows the profiler is in nobody's way
        windows = recorded_windows(run.session.facts)
        seen = run.overhead if windows is None else intervals.intersect(run.overhead, windows)
        span = span if windows is None else min(span, intervals.length(windows))
        took = intervals.length(intervals.clip(seen, start, end)) if span else 0
        value = took / span if span else 0.0
        text = f"the profiler itself took {duration(took)}, {share(took, span)} of the recorded time"
        if value >= OVERHEAD_BAD:
            return Check("overhead", "bad", value, f"{text}: what the host did is not judged", HOST)
        return Check("overhead", "note" if value >= OVERHEAD_NOTE else "ok", value, text)

    def _settings(self) -> Check | None:
        """Settings of torch_npu's profiler that slow the host down while it records."""
        if "operators" not in self.run.has:
            return None
        ranks = self.run.communication.ranks
        slow = [
            k
            for k in ("with_stack", "with_modules", "profile_memory")
            if any(r.get(k) is True for r in ranks)
        ]
        if "with_stack" not in slow and "with_modules" not in slow:
            return None
        return Check("settings", "note", len(slow),
                     f"recorded with {', '.join(slow)}: operators take the host longer than they do without",
                     count=len(slow))  # fmt: skip

    # -- launches and device records -----------------------------------------------------------------

    def _linked(self) -> Check:
        rows = self.run.whole.rows
        linked = self.run.timeline.spans.launch_row[rows] >= 0
        value = float(linked.mean())
        if not linked.any() and not self._tells_links:
            return Check(
                "linked",
                "note",
                None,
                "which call launched what is not told by this source (linked: n/a)",
                HOST,
            )
        text = f"{int(linked.sum())} of {len(rows)} device events are linked to the call that launched them"
        if value < MAJORITY:
            return Check("linked", "bad", value, f"only {text}", HOST)
        return Check("linked", "note" if value < LINKED_GOOD else "ok", value, text)

    @cached_property
    def _tells_links(self) -> bool:
        """Whether anything in the recording could tie device work to the host: calls, and numbers or arrows."""
        timeline, rows = self.run.timeline, self.run.whole.rows
        flows = timeline.flows
        arrows = kernels.among(flows.to_row, rows) & (flows.from_row >= 0)
        numbers = timeline.spans.ids_at("correlation", rows) != NO_ID
        return len(timeline.rows(*HOST_CALLS)) > 0 and bool(numbers.any() or arrows.any())

    @cached_property
    def _launches(self) -> int:
        return int(np.count_nonzero(self.run.is_named_launch & ~self.run.is_capturing))

    def _lost_launches(self) -> Check:
        lost = self.run.lost_launches
        if len(lost) == 0:
            return Check("lost-launches", "ok", 0, "every launch left a device record")
        graphs = int(self.run.is_graph_launch[lost].sum())
        first = self.run.whole.first_ns
        early = int((self.run.timeline.spans.start_ns[lost] < first).sum())
        text = f"{len(lost)} of {self._launches} launches have no device record"
        if early:
            text += f", {early} of them in the first part of the window"
        if graphs:
            text += f"; {graphs} are graph replays, whose kernels are missing"
        value = len(lost) / max(self._launches, 1)
        if value >= MAJORITY:
            return Check("lost-launches", "bad", value, f"{text}: the device may have worked where it looks idle",
                         DEVICE, len(lost))  # fmt: skip
        return Check("lost-launches", "note", value, f"{text}; idle time around them is not explained",
                     count=len(lost))  # fmt: skip

    @cached_property
    def _captured_launches(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        return np.flatnonzero(self.run.is_named_launch & self.run.is_capturing)

    def _capture(self) -> Check:
        captured = len(self._captured_launches)
        took = self._capture_share()
        if not captured and not took:
            return Check("capture", "ok", 0.0, "no graph was captured")
        # one replay runs what many captured launches were, so device events and not launches are the measure
        value = captured / max(captured + len(self.run.whole.rows), 1)
        text = (
            f"{captured} of {captured + self._launches} launches were captured into a graph and did not run"
        )
        if not captured:
            text = f"graphs were captured in {share(round(1000 * took), 1000)} of the device's span"
        if max(value, took) >= MAJORITY:
            return Check(
                "capture",
                "bad",
                max(value, took),
                f"this is the recording of a graph capture: {text}",
                DEVICE,
            )
        return Check("capture", "note", max(value, took), text, count=max(captured, 1))

    def _capture_share(self) -> float:
        """Share of the device's span in which a thread was capturing."""
        view = self.run.whole
        if not view.span_ns:
            return 0.0
        sets = [self.run.captures(track) for track in self.run.host_tracks]
        whole = (
            intervals.union(np.concatenate([s[0] for s in sets]), np.concatenate([s[1] for s in sets]))
            if sets
            else intervals.EMPTY
        )
        return intervals.length(intervals.clip(whole, view.first_ns, view.last_ns)) / view.span_ns

    def _before(self) -> Check:
        gaps = [view.gaps for view in self.run.devices.values()]
        spans, rows = self.run.timeline.spans, self.run.whole.rows
        unlinked = rows[spans.launch_row[rows] < 0]
        ids = spans.ids_at("correlation", rows[spans.launch_row[rows] >= 0] if len(unlinked) else unlinked)
        first = int(ids.min()) if len(ids) else 0
        early = int((spans.ids_at("correlation", unlinked) < first).sum()) if len(ids) else 0
        waited = sum(int(g.dur_ns[g.gap_class == BEFORE_RECORDING].sum()) for g in gaps)
        if not early:
            return Check("before-recording", "ok", 0, "no kernel was launched before recording began")
        return Check("before-recording", "note", early,
                     f"{early} kernels were launched before recording began, with {duration(waited)} of idle time "
                     f"between them", count=early)  # fmt: skip

    def _clocks(self) -> Check:
        spans, rows = self.run.timeline.spans, self.run.whole.rows
        launch = spans.launch_row[rows]
        ahead = np.where(launch >= 0, spans.start_ns[np.maximum(launch, 0)] - spans.start_ns[rows], 0)
        count, worst = int((ahead > 0).sum()), int(ahead.max(initial=0))
        if not count:
            return Check("clocks", "ok", 0, "no kernel starts before its launch")
        text = (f"{count} kernels start before their launch, by {duration(worst)} at most: times between host and "
                f"device are uncertain by that much")  # fmt: skip
        if count * 2 > int((launch >= 0).sum()):
            return Check("clocks", "bad", worst, text, HOST, count=count)
        return Check("clocks", "note", worst, text, count=count)

    def _unexplained(self) -> Check | None:
        idle = {cause: 0 for cause in Cause}
        for account in self.run.idle.values():
            for cause in (Cause.UNEXPLAINED, Cause.BEFORE_RECORDING):
                idle[cause] += account.totals()[cause.key]
        if self.run.idle:
            self.run.let_go_of_threads()  # the pieces of all devices are made
        whole = sum(view.idle_ns for view in self.run.devices.values())
        if not whole:
            return None
        unknown = idle[Cause.UNEXPLAINED] + idle[Cause.BEFORE_RECORDING]
        value = unknown / whole
        text = (
            f"{duration(unknown)} of {duration(whole)} idle time has no recorded cause "
            f"({duration(idle[Cause.BEFORE_RECORDING])} waits for work from before the recording)"
        )
        return Check("explained", "note" if value >= MAJORITY else "ok", value, text)

    def _few(self) -> Check | None:
        count = len(self.run.whole.rows)
        if count >= FEW_EVENTS:
            return None
        return Check("events", "note", count, f"only {count} device events were recorded; shares mean little")

    def _warm_up(self) -> Check | None:
        slow = sum(s.warm_up for s in self.run.series)
        if not self.run.steps:
            return None
        if not slow:
            return Check("warm-up", "ok", 0, "the recording holds no warm-up steps")
        return Check("warm-up", "note", slow,
                     f"the first {slow} of {len(self.run.leading_steps)} steps are warm-up and left out of the findings",
                     count=slow)  # fmt: skip


def recorded_windows(facts: Mapping[str, Any]) -> intervals.IntervalSet | None:
    """When operators and kernels were recorded, or None where the source does not tell (then: all the time)."""
    windows = facts.get("windows")
    if not isinstance(windows, list) or not windows:
        return None
    ends = [(w.get("start_ns"), w.get("end_ns")) for w in windows if isinstance(w, dict)]
    if not all(isinstance(a, int) and isinstance(b, int) for a, b in ends):
        return None
    table = np.array(ends, np.int64).reshape(-1, 2)
    return intervals.union(table[:, 0], table[:, 1])
