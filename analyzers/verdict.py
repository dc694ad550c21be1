"""The first sentence of a report: what the run is bound by, and what to do about it first.

Everything in it is a number of the report; what the recording cannot support is said instead of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers.finding import Finding, RuleOutcome, Verdict
from stallscope.analyzers.idle import Cause
from stallscope.analyzers.phases import PhaseSeries
from stallscope.analyzers.trust import FEW_EVENTS
from stallscope.analyzers.units import count, duration, share
from stallscope.profiler import intervals

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

BUSY = 0.9
"""From this share of its explained time on, a device is called busy."""
MOSTLY = 0.5
IDLE_MUCH = 0.3
"""From this share of idle time on, a finding worth under 3 % is not what a run is about."""
_MOST_CODES = 12
HOST_RULE = "HB102"
"""The rule that judges the host of a run without a device."""


def verdict(run: Run, findings: Sequence[Finding], outcomes: Sequence[RuleOutcome]) -> Verdict:
    """One sentence and up to six that support it."""
    lines = [
        line
        for line in (
            _device_line(run),
            _idle_line(run),
            _pressure_line(run),
            _together_line(findings),
            _work_line(run),
            _trust_line(run),
        )
        if line
    ]
    first = _first(run, findings, outcomes)
    lines = [line for line in lines if line.removeprefix("trust: ") not in first]
    untold = [
        o.code for o in outcomes if o.status == "not_analysable" and not o.reason.startswith("does not apply")
    ]
    if untold:
        some = ", ".join(untold) if len(untold) <= _MOST_CODES else f"{len(untold)} of {len(outcomes)} rules"
        lines.append(f"not analysable: {some}")
    return Verdict(first, tuple(lines))


def _first(run: Run, findings: Sequence[Finding], outcomes: Sequence[RuleOutcome]) -> str:
    if "trusted_device" in run.trust.blocks and "device" in run.has:
        return f"No verdict: {run.trust.blocks['trusted_device']}"
    top = next((f for f in findings if f.severity != "info"), None)
    step = _step(run, top.phase if top else "")
    if top is not None:
        # a number of the whole recording must not read like one of a step
        whole = "in all, " if step and "per_step_ns" not in top.facts else ""
        rest = _rest(run, top, findings)
        title = _lower(top.title) if step or rest else top.title
        text = f"{step}{rest}{whole}{title}; {_worth(top)}"
        return text if step else _capital(text)
    if len(run.timeline) == 0:
        tables = run.session.facts.get("tables_only")
        return f"No verdict: the recording has no {'timeline, only what its tables tell' if tables else 'events'}"
    if "device" not in run.has and (lost := _lost(run)):
        return f"No verdict: {lost}"
    if "device" not in run.has and run.host_span[0] == run.host_span[1]:
        others = f"{len(run.timeline)} other span{'s' if len(run.timeline) > 1 else ''}"
        return f"No verdict: no work of a device or of the host was recorded, only {others}"
    if "device" not in run.has:
        looked = next((o for o in outcomes if o.code == HOST_RULE), None)
        if looked is not None and looked.status == "not_analysable":
            return f"No verdict: no device activity was recorded, and of the host {looked.reason}"
        return f"{step}no device activity was recorded; the host shows no stall" if step else (
            "No device activity was recorded; the host shows no stall"
        )  # fmt: skip
    if few := _few(run):
        return f"No verdict: {few}"
    if "trusted_host" in run.trust.blocks:
        return f"No verdict on the host: {run.trust.blocks['trusted_host']}"
    return _capital(step + _calm(run))


def _few(run: Run) -> str:
    """Why the device's own time tells nothing of the run: few events in a small part of it; else ""."""
    events, view = len(run.whole.rows), run.whole
    recorded = max(run.host_span[1] - run.host_span[0], view.span_ns)
    if events >= FEW_EVENTS or (events > 1 and 2 * view.span_ns >= recorded):
        return ""
    text = f"only {count(events, 'device event')} {'was' if events == 1 else 'were'} recorded"
    return f"{text}, in {duration(view.span_ns)} of {duration(recorded)}" if view.span_ns < recorded else text


def _lost(run: Run) -> str:
    """What became of the device's records where launches left none, or ""."""
    lost = (
        check.text for check in run.trust.checks if check.name == "lost-launches" and check.state == "bad"
    )
    return next(lost, "")


def _rest(run: Run, top: Finding, findings: Sequence[Finding]) -> str:
    """What to say before a small finding of a device that idles much for other reasons."""
    view = run.whole
    explained = sum(f.lost_ns for f in findings)
    times = {"low": 2, "medium": 5}.get(top.severity)
    if times is None or view.idle_ns < IDLE_MUCH * view.span_ns or times * explained > view.idle_ns:
        return ""
    number = max(run.devices, key=lambda n: run.devices[n].idle_ns)
    name, ns = max(run.idle[number].totals().items(), key=lambda item: item[1])
    part = f", {share(ns, run.devices[number].idle_ns)} of that {name.replace('_', ' ')}"
    return f"the device is idle {share(view.idle_ns, view.span_ns)} of the time{part}; of causes with a place the first is small: "


def _calm(run: Run) -> str:
    """What to say without a finding."""
    busy, explained = _explained(run)
    view = run.whole
    unknown = view.span_ns - explained
    rest = ""
    if unknown > 0.05 * view.span_ns:
        rest = f" of the {duration(explained)} that the recording explains; the other {duration(unknown)} have no recorded cause"
    if explained and busy / explained >= BUSY:
        of = explained if rest else view.span_ns if len(run.devices) == 1 else explained
        return f"the device is busy {share(busy, of)}{rest or ' of the time'}; no stall keeps it from working"
    if unknown > MOSTLY * view.idle_ns:
        return f"no verdict on idle time: the device is busy {share(busy, explained)}{rest}"
    return (
        f"the device is idle {share(view.idle_ns, view.span_ns)} of the time, but no single cause stands out"
    )


def _explained(run: Run) -> tuple[int, int]:
    """Busy time, and the span without idle time that the recording cannot explain, of the busiest device."""
    best = (0, 0)
    for number, view in run.devices.items():
        totals = run.idle[number].totals()
        unknown = sum(
            totals[c.key] for c in (Cause.UNEXPLAINED, Cause.BEFORE_RECORDING, Cause.BETWEEN_WINDOWS)
        )
        if view.busy_ns > best[0]:
            best = (view.busy_ns, view.span_ns - unknown)
    return best


def _step(run: Run, phase: str) -> str:
    """ "decode, batch 32: 9.10 ms a step; ", or "" where no steps are known."""
    series = next((s for s in run.series if s.phase == phase), _main_series(run))
    if series is None or len(series.steady_ns) < 2:
        return ""
    name = "" if series.phase == "other" else series.phase
    sizes = {s.facts.get("batch", s.facts.get("bs")) for s in series.steps}
    size = sizes.pop() if len(sizes) == 1 else None
    batch = f"batch {size}" if size is not None else ""
    head = ", ".join(x for x in (name, batch) if x)
    told = run.floor.of(series.phase)
    floor = f", floor {duration(told.floor_ns)}" if told is not None and told.speaks and told.floor_ns else ""
    text = f"{duration(step_time_ns(run, series))} a step{floor}; "
    return f"{head}: {text}" if head else text


def _main_series(run: Run) -> PhaseSeries | None:
    """The phase with a name that keeps the devices busy longest, else the longest; None without steps."""

    def weight(series: PhaseSeries) -> tuple[bool, int, int]:
        told = run.floor.of(series.phase)
        busy = told.device_ns * told.steps if told is not None else 0
        return series.phase != "other" and len(series.steady_ns) >= 2, busy, int(series.length_ns.sum())

    return max(run.series, key=weight, default=None)


def step_time_ns(run: Run, series: PhaseSeries) -> int:
    """What one step of a phase takes: on the device where its work is known, else from step to step."""
    told = run.floor.of(series.phase)
    return told.measured_ns if told is not None else period_ns(run, series)


def period_ns(run: Run, series: PhaseSeries) -> int:
    """The median time from step to step where they follow each other, else the median step."""
    steps = series.steps[series.warm_up :]
    numbers = {id(s): i for i, s in enumerate(run.leading_steps)}
    at = np.array([numbers[id(s)] for s in steps])
    starts = np.array([s.start_ns for s in steps], np.int64)
    follows = np.diff(at) == 1
    return int(np.median(np.diff(starts)[follows])) if follows.any() else series.median_ns


def _worth(top: Finding) -> str:
    # no more than the time that the sentence itself has just told
    worth = min(top.recoverable_ns, top.facts.get("counted_ns", top.recoverable_ns))
    per = top.facts.get("per_step_ns")
    if per and top.lost_ns and top.facts.get("steps", 0) > 1:
        gain = per * top.recoverable_ns // top.lost_ns
        return f"worth up to {duration(gain)} a {'token' if top.phase == 'decode' else 'step'}, confidence {top.confidence}"
    return f"worth up to {duration(worth)}, confidence {top.confidence}"


def _device_line(run: Run) -> str:
    if "device" not in run.has:
        return ""
    view = run.whole
    which = "device" if len(run.devices) == 1 else f"at least one of {len(run.devices)} devices"
    idle = "idle" if len(run.devices) == 1 else "all idle"
    away = intervals.length(intervals.clip(run.unrecorded, view.first_ns, view.last_ns))
    seen = view.span_ns - away
    text = f"{which} busy {share(view.busy_ns, seen)} of {duration(seen)}, {idle} {duration(view.idle_ns - away)}"
    return f"{text}; {duration(away)} between windows were not recorded" if away else text


def _idle_line(run: Run) -> str:
    """The largest causes of idle time, on the device that idles most."""
    if not run.devices:
        return ""
    number = max(run.devices, key=lambda n: run.devices[n].idle_ns)
    idle = run.devices[number].idle_ns
    if not idle:
        return ""
    parts = sorted(run.idle[number].totals().items(), key=lambda item: -item[1])
    text = ", ".join(
        f"{name.replace('_', ' ')} {share(ns, idle)}" for name, ns in parts[:3] if 100 * ns >= idle
    )
    return f"idle by cause: {text}"


def _pressure_line(run: Run) -> str:
    """Evidence that the device is the slower side."""
    bound = [p for p in run.pressure.values() if p.device_bound]
    if not bound or _few(run):
        return ""
    found = max(bound, key=lambda p: p.median_delay_ns)
    return (
        f"launches wait a median of {duration(found.median_delay_ns)} for the device, and the host waited "
        f"{duration(found.waited_busy_ns + found.long_launch_ns)} while it was busy: the device is the slower side"
    )


def _work_line(run: Run) -> str:
    """How much of the device's time the cost models know, and how near it is to the chip's peaks."""
    return run.floor.line


def _together_line(findings: Sequence[Finding]) -> str:
    """What all findings give at once, where that is less than the sum of what each gives alone."""
    told = [f for f in findings if f.severity != "info"]
    alone = sum(f.recoverable_ns for f in told)
    whole = sum(f.facts.get("adds_ns", f.recoverable_ns) for f in told)
    if len(told) < 2 or whole >= alone:
        return ""
    return f"the {len(told)} findings overlap: all together are worth up to {duration(whole)}"


def _trust_line(run: Run) -> str:
    bad = [c.text for c in run.trust.checks if c.state == "bad"]
    return f"trust: {bad[0]}" if bad else ""


def _lower(text: str) -> str:
    """A sentence as a clause: names and codes keep their first letter."""
    first = text.split(" ", 1)[0]
    return text if not first[:1].isupper() or first[1:] != first[1:].lower() else text[0].lower() + text[1:]


def _capital(text: str) -> str:
    """A sentence begins with a capital; the name of a kernel keeps its letters."""
    first = text.split(" ", 1)[0]
    return text if "_" in first or "::" in first else text[:1].upper() + text[1:]
