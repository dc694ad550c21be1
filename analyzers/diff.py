"""Two reports side by side: what became faster or slower, by how much, and which cause went or came.

Times are compared per step where both recordings have steps of one phase, else over the whole device span. A
difference is only as good as the comparison: `same_work` says how much of the kernel time is in kernels both have.
"""

from __future__ import annotations

from collections import Counter

from stallscope.analyzers.finding import Finding, Report
from stallscope.analyzers.idle import IDLE_CLASSES
from stallscope.analyzers.units import duration, share
from stallscope.profiler.errors import OptionError
from stallscope.profiler.light import dataclass

GROUPS: dict[str, tuple[str, ...]] = {
    "launch overhead": ("dispatch", "launch_path", "graph_launch"),
    "Python and unrecorded code": ("python", "garbage_collection", "scheduler", "unrecorded"),
    "waits and copies": ("sync", "blocking_copy"),
    "compilation and allocation": ("compile", "allocator"),
    "other streams": ("dependency", "queue_latency"),
}
"""Idle classes that go together when a difference is put into words."""

LEAST_SAME_WORK = 0.5
"""Below this share of common kernel time the two are called different programs."""


@dataclass(frozen=True)
class Row:
    """One quantity of both recordings, in nanoseconds per unit (a step, or the whole span)."""

    name: str
    before_ns: int
    after_ns: int

    @property
    def delta_ns(self) -> int:
        return self.after_ns - self.before_ns


@dataclass(frozen=True)
class Difference:
    """What changed from one report to the other. `unit` is "step" or "recording"."""

    text: str
    unit: str
    same_work: float
    rows: tuple[Row, ...]
    groups: tuple[Row, ...]
    gone: tuple[Finding, ...]
    new: tuple[Finding, ...]
    steps: tuple[int, int]

    @property
    def comparable(self) -> bool:
        return self.same_work >= LEAST_SAME_WORK


def compare(before: Report, after: Report) -> Difference:
    """Compare two reports of runs on a device. Raises OptionError where one saw no device."""
    if not before.devices or not after.devices:
        raise OptionError(
            "one of the recordings has no device activity: there is nothing to compare on the device."
        )
    steps = _steps(before, after)
    scale = steps if all(steps) else (1, 1)
    rows = _rows(before, after, scale)
    groups = _groups(before, after, scale)
    codes = ({f.code for f in before.findings}, {f.code for f in after.findings})
    unit = "step" if all(steps) else "recording"
    same = same_work(before, after)
    return Difference(
        text=_sentence(rows[0], groups, unit, same),
        unit=unit,
        same_work=same,
        rows=rows,
        groups=groups,
        gone=tuple(f for f in before.findings if f.code not in codes[1]),
        new=tuple(f for f in after.findings if f.code not in codes[0]),
        steps=steps,
    )


def _steps(before: Report, after: Report) -> tuple[int, int]:
    """How many steps of the phase that both have most of; (0, 0) where there is none."""
    counts = [Counter(s.phase for s in report.steps) for report in (before, after)]
    common = set(counts[0]) & set(counts[1])
    if not common:
        return 0, 0
    phase = max(sorted(common), key=lambda p: counts[0][p] + counts[1][p])
    return counts[0][phase], counts[1][phase]


def _rows(before: Report, after: Report, scale: tuple[int, int]) -> tuple[Row, ...]:
    names = {"device time": "span_ns", "busy": "busy_ns", "idle": "idle_ns"}
    return tuple(
        Row(name, getattr(before.headline, key) // scale[0], getattr(after.headline, key) // scale[1])
        for name, key in names.items()
    )


def _groups(before: Report, after: Report, scale: tuple[int, int]) -> tuple[Row, ...]:
    """Kernels and the groups of idle causes, the largest change first; idle classes are means over devices."""
    idle = [_idle(report) for report in (before, after)]
    rows = [
        Row("kernels and copies", before.headline.busy_ns // scale[0], after.headline.busy_ns // scale[1])
    ]
    told = {name for classes in GROUPS.values() for name in classes}
    groups = dict(GROUPS) | {"other causes": tuple(sorted(set(IDLE_CLASSES) - told))}
    for name, classes in groups.items():
        sums = [sum(part.get(c, 0) for c in classes) for part in idle]
        rows.append(Row(name, sums[0] // scale[0], sums[1] // scale[1]))
    return tuple(sorted(rows, key=lambda r: -abs(r.delta_ns)))


def _idle(report: Report) -> dict[str, int]:
    total: Counter[str] = Counter()
    for device in report.devices:
        total.update(device.idle_classes)
    return {name: ns // len(report.devices) for name, ns in total.items()}


def same_work(before: Report, after: Report) -> float:
    """Share of kernel time in kernels that both have, each counted as far as the shorter total goes."""
    left, right = ({k.name: k.total_ns for k in report.kernels} for report in (before, after))
    common = sum(min(left[name], right[name]) for name in left.keys() & right.keys())
    most = max(min(sum(left.values()), sum(right.values())), 1)
    return common / most


def _sentence(whole: Row, groups: tuple[Row, ...], unit: str, same: float) -> str:
    if same < LEAST_SAME_WORK:
        return f"Only {100 * same:.0f} % of the kernel time is common to both: these are different programs"
    change = whole.delta_ns
    if not change:
        return f"No change: {duration(whole.before_ns)} a {unit} in both"
    word = "faster" if change < 0 else "slower"
    text = f"{duration(abs(change))} ({share(abs(change), whole.before_ns)}) {word} a {unit}"
    cause = next((g for g in groups if (g.delta_ns < 0) == (change < 0) and g.delta_ns), None)
    if cause is None:
        return text
    less = "less" if cause.delta_ns < 0 else "more"
    return f"{text}: {duration(abs(cause.delta_ns))} {less} {cause.name}"
