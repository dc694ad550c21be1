"""What an analysis says. Plain data: exporters read it, nothing else writes it."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal

from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Note

Confidence = Literal["high", "medium", "low"]
Severity = Literal["high", "medium", "low", "info"]
Status = Literal["found", "clean", "not_analysable"]


@dataclass(frozen=True)
class Evidence:
    """One span of the timeline a reader can jump to; `track` is the track's index (-1: no track).

    Times are nanoseconds from the timeline's origin.
    """

    track: int
    start_ns: int
    end_ns: int
    label: str = ""


@dataclass(frozen=True)
class Where:
    """What to look at: a Python line, a framework operator, a kernel; "" where not known."""

    python: str = ""
    operator: str = ""
    kernel: str = ""


@dataclass(frozen=True)
class Finding:
    """One cause of lost time, with its proof.

    `lost_ns` is the time the cause takes, `recoverable_ns` the upper bound of what mending it gives
    back, never more than that; both are over the whole recording. `detail` is one or two plain sentences, `advice` what to
    try. `severity` is set in one place from the share of the span that could be recovered, so a rule
    leaves it at "info". `phase` is "" where the finding is not tied to one.
    `facts` holds further numbers, each with its unit in its key.
    """

    code: str
    name: str
    title: str
    lost_ns: int
    recoverable_ns: int
    confidence: Confidence = "medium"
    severity: Severity = "info"
    phase: str = ""
    where: Where = Where()
    detail: str = ""
    advice: str = ""
    evidence: tuple[Evidence, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    fix: Any = field(default=None, repr=False, compare=False)
    """The `replay.Change` that `recoverable_ns` was priced with, None where no replay priced it. No exporter
    shows it; `together` replays the fixes of all findings at once."""


@dataclass(frozen=True)
class RuleOutcome:
    """How one rule ended. `reason` is set for "not_analysable" and tells what was missing."""

    code: str
    name: str
    status: Status
    reason: str = ""


@dataclass(frozen=True)
class Step:
    """One step or phase range on the host clock; `index` counts within its name, -1 unknown."""

    name: str
    phase: str
    start_ns: int
    dur_ns: int
    index: int = -1
    confidence: Confidence = "medium"
    track: int = -1
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelTotal:
    """All launches of one kernel name."""

    name: str
    count: int
    total_ns: int
    min_ns: int = 0
    max_ns: int = 0
    kind: str = "kernel"


@dataclass(frozen=True)
class DeviceSummary:
    """One device over its own span. `idle_classes` and `gap_classes` each sum to `idle_ns` exactly.

    `gap_classes` split the device's gaps by what ended them (host, queued_short, queued_long,
    launched_before_recording, unknown); `idle_classes` name the cause of each idle nanosecond.
    """

    id: int
    name: str
    span_ns: int
    busy_ns: int
    idle_ns: int
    compute_ns: int
    collective_ns: int
    memcpy_ns: int
    memset_ns: int
    exposed_collective_ns: int
    exposed_memcpy_ns: int
    idle_classes: dict[str, int]
    gap_classes: dict[str, int]
    gap_counts: dict[str, int]
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Headline:
    """Whole file: unions over all devices, so overlapping devices are not counted twice.

    All zero where no device activity was recorded.
    """

    span_ns: int = 0
    busy_ns: int = 0
    idle_ns: int = 0
    compute_ns: int = 0
    collective_ns: int = 0
    memcpy_ns: int = 0
    memset_ns: int = 0
    exposed_collective_ns: int = 0
    exposed_memcpy_ns: int = 0
    device_events: int = 0
    unlinked_device_events: int = 0
    launches: int = 0
    host_span_ns: int = 0
    """First start to last end of anything on a host thread."""


@dataclass(frozen=True)
class Verdict:
    """The first thing a person reads: one sentence, and up to three that support it."""

    text: str
    lines: tuple[str, ...] = ()


@dataclass
class Report:
    """Everything an exporter needs, next to the session itself."""

    verdict: Verdict
    headline: Headline
    devices: list[DeviceSummary]
    kernels: list[KernelTotal]
    steps: list[Step]
    findings: list[Finding]
    rules: list[RuleOutcome]
    notes: list[Note]
    facts: dict[str, Any] = field(default_factory=dict)
    """Run facts worth showing: source, producer, devices, settings, overhead. Never the environment."""
    tables: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """Named extra tables (operators, trust, phases, roofline...): rows of plain JSON values, ns in key names."""
    run: Any = field(default=None, repr=False, compare=False)
    """The `analyzers.run.Run` behind the report, with what it derived, so that an exporter that draws idle
    pieces need not derive them again; None for a report made by hand."""
