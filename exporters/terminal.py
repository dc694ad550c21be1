"""The verdict on a terminal: what the run waits for, where, and what to do, on the first screen.

Names from traces go through `Text` objects only, which know no markup, and lose their control characters.
Nothing needs colour: without it, and without UTF-8, the same words are there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stallscope.analyzers.finding import DeviceSummary, Finding, Report
from stallscope.analyzers.units import duration, share
from stallscope.exporters.base import one_line, short_kernel, writing
from stallscope.profiler.notes import Note
from stallscope.profiler.session import Session

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

NAME = "text"
SUFFIX = ".txt"

MAX_FINDINGS = 5
MAX_DEVICES = 8
MAX_KERNELS = 5
MAX_CLASSES = 5
MAX_INFO_NOTES = 3
MAX_PHASES = 8
BAR_WIDTH = 30

_STYLE = {"high": "bold red", "medium": "yellow", "low": "cyan", "info": "dim",
          "data_loss": "bold red", "warning": "yellow"}  # fmt: skip


def export(session: Session, report: Report, out: Path) -> None:
    """Write the verdict as plain text, 100 columns wide. Raises InputError where it cannot be written."""
    from rich.console import Console

    page = StringIO()
    render(session, report, Console(file=page, width=100, color_system=None, force_terminal=False))
    text = "\n".join(line.rstrip() for line in page.getvalue().splitlines()) + "\n"
    with writing(out) as file:
        file.write(text.encode("utf-8"))


def render(session: Session, report: Report, console: Console, *, next_steps: Sequence[str] = ()) -> None:
    """Print the verdict. `next_steps` are commands or files to offer at its end, before our own."""
    page = _Page(console)
    _head(page, session, report)
    _devices(page, report)
    _findings(page, report)
    _steps(page, report)
    _kernels(page, report)
    _rules(page, report)
    _notes(page, report.notes)
    _next(page, report, next_steps)


class _Page:
    """A console on which only text is printed, never markup."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.ascii = console.options.ascii_only
        self.dot = " | " if self.ascii else " · "

    def text(self, content: str, style: str = "", *, cut: bool = False) -> Text:
        """Text of one paragraph; `cut` keeps it on one line, its end replaced by an ellipsis."""
        from rich.text import Text

        safe = one_line(content)
        if self.ascii:
            safe = safe.encode("ascii", "replace").decode()
        if not cut:
            return Text(safe, style)
        return Text(safe, style, no_wrap=True, overflow="crop" if self.ascii else "ellipsis")

    def line(self, *parts: tuple[str, str]) -> None:
        from rich.text import Text

        whole = Text()
        for content, style in parts:
            whole.append_text(self.text(content, style))
        self.show(whole)

    def show(self, thing: Any) -> None:
        self.console.print(thing, highlight=False)

    def heading(self, title: str) -> None:
        self.console.print()
        self.line((title, "bold"))

    def grid(self, columns: str, indent: int = 2) -> Table:
        """A borderless table; `columns` has one letter each: l left, r right, w the one that takes the rest."""
        from rich.table import Table

        table = Table.grid(padding=(0, 2, 0, 0))
        table.add_column(width=max(indent - 2, 0))
        for kind in columns:
            table.add_column(justify="right" if kind == "r" else "left", no_wrap=kind != "w")
        return table

    def row(self, table: Table, *cells: Text | str, style: str = "") -> None:
        table.add_row("", *(self.text(c, style) if isinstance(c, str) else c for c in cells))


def _head(page: _Page, session: Session, report: Report) -> None:
    from stallscope import __version__

    facts = report.facts or session.facts
    about = [str(facts[key]) for key in ("source", "producer") if facts.get(key)]
    page.line((f"stallscope {__version__}  " + page.dot.join(about), "dim"))
    page.line((report.verdict.text, "bold"))
    table = page.grid("w")
    for text in report.verdict.lines:
        page.row(table, text)
    if report.verdict.lines:
        page.show(table)


def _devices(page: _Page, report: Report) -> None:
    if not report.devices:
        return
    page.heading("Devices")
    table = page.grid("wrrrrr")  # the name gives way, numbers never
    page.row(table, "device", "span", "busy", "", "idle", "", style="dim")
    for device in report.devices[:MAX_DEVICES]:
        page.row(
            table,
            page.text(f"{_device(device)} {device.name}"[:32].strip(), cut=True),
            duration(device.span_ns),
            duration(device.busy_ns),
            share(device.busy_ns, device.span_ns),
            duration(device.idle_ns),
            share(device.idle_ns, device.span_ns),
        )
    page.show(table)
    if len(report.devices) == 1:
        _idle_bars(page, report.devices[0])
    else:
        for device in report.devices[:MAX_DEVICES]:
            _idle_line(page, device)
    if len(report.devices) > MAX_DEVICES:
        page.line((f"  and {len(report.devices) - MAX_DEVICES} more devices", "dim"))


def _idle_classes(device: DeviceSummary) -> list[tuple[str, int]]:
    """The largest idle classes of a device, the rest as one."""
    classes = [(name.replace("_", " "), ns) for name, ns in device.idle_classes.items() if ns > 0]
    classes.sort(key=lambda c: (-c[1], c[0]))
    rest = sum(ns for _, ns in classes[MAX_CLASSES:])
    return classes[:MAX_CLASSES] + ([("other causes", rest)] if rest else [])


def _idle_bars(page: _Page, device: DeviceSummary) -> None:
    if not device.idle_ns:
        return
    page.heading("Idle time by cause")
    table = page.grid("lrrw")
    # the bars get what names and numbers leave
    width = max(min(BAR_WIDTH, page.console.width - 44), 5)
    for name, ns in _idle_classes(device):
        bar = ("#" if page.ascii else "█") * max(1, round(width * ns / device.idle_ns))
        page.row(table, name, duration(ns), share(ns, device.idle_ns), page.text(bar, "cyan", cut=True))
    page.show(table)


def _device(device: DeviceSummary) -> str:
    """The number of a device, or with several ranks "rank 1 device 0"."""
    return str(device.facts.get("label") or device.id)


def _idle_line(page: _Page, device: DeviceSummary) -> None:
    told = [f"{name} {share(ns, device.idle_ns)}" for name, ns in _idle_classes(device)]
    if told:
        table = page.grid("lw")
        page.row(table, f"idle {_device(device)}", ", ".join(told))
        page.show(table)


def _findings(page: _Page, report: Report) -> None:
    page.heading("Findings")
    if not report.findings:
        asked = [r for r in report.rules if r.status != "not_analysable"]
        page.line(("  none" if asked else "  none, because no rule could be answered; see below", ""))
        return
    whole = max(report.headline.span_ns, report.headline.host_span_ns)
    for number, finding in enumerate(report.findings[:MAX_FINDINGS], 1):
        _finding(page, number, finding, whole)
    if len(report.findings) > MAX_FINDINGS:
        page.line((f"  and {len(report.findings) - MAX_FINDINGS} more; --html or --json show all", "dim"))


def _finding(page: _Page, number: int, finding: Finding, whole_ns: int) -> None:
    title = page.grid("rlw", indent=0)
    page.row(title, str(number), page.text(finding.code, "bold"), page.text(finding.title, "bold"))
    page.show(title)
    worth = f"up to {duration(finding.recoverable_ns)} recoverable ({share(finding.recoverable_ns, whole_ns)} of the run)"
    if finding.lost_ns != finding.recoverable_ns:
        worth += f", {duration(finding.lost_ns)} lost"
    body = page.grid("lw", indent=5)
    page.row(body, "worth", worth)
    sure = page.text(f"{finding.confidence} confidence, ")
    sure.append_text(page.text(f"{finding.severity} severity", _STYLE.get(finding.severity, "")))
    if finding.phase:
        sure.append_text(page.text(f", phase {finding.phase}"))
    page.row(body, "sure", sure)
    kernel = short_kernel(finding.where.kernel)
    where = [w for w in (finding.where.python, finding.where.operator, kernel) if w]
    for key, content in (("where", page.dot.join(where)), ("what", finding.detail), ("try", finding.advice)):
        if content:
            page.row(body, key, page.text(content))
    page.show(body)


def _steps(page: _Page, report: Report) -> None:
    """Lengths on the host; "a step" is what the verdict speaks of."""
    phases: dict[str, list[int]] = {}
    for step in report.steps:
        phases.setdefault(step.phase or step.name, []).append(step.dur_ns)
    if not phases:
        return
    times = {row["phase"]: row["step_time_ns"] for row in report.tables.get("phases", ())}
    page.heading("Steps")
    table = page.grid("lrrrrr")
    page.row(table, "phase", "count", "a step", "host median", "host p99", "host total", style="dim")
    by_total = sorted(phases.items(), key=lambda p: (-sum(p[1]), p[0]))
    for phase, lengths in by_total[:MAX_PHASES]:
        page.row(
            table,
            page.text(phase[:32], cut=True),
            str(len(lengths)),
            duration(times[phase]) if phase in times else "",
            duration(quantile(lengths, 0.5)),
            duration(quantile(lengths, 0.99)),
            duration(sum(lengths)),
        )
    page.show(table)


def quantile(values: Iterable[int], share_below: float) -> int:
    """The smallest value that at least this share of the values does not exceed (nearest rank).

    >>> quantile([4, 1, 3, 2], 0.5), quantile([4, 1, 3, 2], 0.99)
    (2, 4)
    """
    ordered = sorted(values)
    rank = -(-len(ordered) * round(share_below * 1000) // 1000)
    return ordered[max(rank, 1) - 1]


def plural(count: int, what: str) -> str:
    """
    >>> plural(1, "kernel"), plural(2, "kernel")
    ('1 kernel', '2 kernels')
    """
    return f"{count} {what}{'' if count == 1 else 's'}"


def _kernels(page: _Page, report: Report) -> None:
    if report.kernels:
        total = sum(k.total_ns for k in report.kernels)
        rows = [(k.name, k.count, k.total_ns) for k in report.kernels[:MAX_KERNELS]]
        _totals(
            page,
            "Top kernels",
            f"of {duration(total)} in {plural(len(report.kernels), 'kernel')}",
            rows,
            total,
        )
        return
    operators = [o for o in report.tables.get("operators", []) if "name" in o]
    key = next((k for k in ("self_ns", "total_ns") if operators and k in operators[0]), "")
    if key:
        operators.sort(key=lambda o: (-o[key], o["name"]))
        total = sum(o[key] for o in operators)
        rows = [(o["name"], o.get("count", 0), o[key]) for o in operators[:MAX_KERNELS]]
        _totals(
            page,
            "Top operators",
            f"of {duration(total)} in {plural(len(operators), 'operator')}",
            rows,
            total,
        )


def _totals(page: _Page, title: str, remark: str, rows: list[tuple[str, int, int]], total_ns: int) -> None:
    page.heading(title)
    table = page.grid("rrrw")
    page.row(table, "total", "share", "count", remark, style="dim")
    for name, count, ns in rows:
        page.row(table, duration(ns), share(ns, total_ns), str(count), page.text(name, cut=True))
    page.show(table)


def _rules(page: _Page, report: Report) -> None:
    clean = [r.code for r in report.rules if r.status == "clean"]
    reasons: dict[str, list[str]] = {}
    for rule in report.rules:
        if rule.status == "not_analysable":
            reasons.setdefault(rule.reason, []).append(rule.code)
    if not clean and not reasons:
        return
    page.heading("Rules")
    table = page.grid("lw")
    if clean:
        page.row(table, "clean", page.text(", ".join(clean)))
    for reason, codes in reasons.items():
        page.row(table, "not analysable", page.text(f"{', '.join(codes)}: {reason}"))
    page.show(table)


def _notes(page: _Page, notes: Sequence[Note]) -> None:
    if not notes:
        return
    page.heading("Notes on the recording")
    table = page.grid("lw")
    left_out = 0
    shown = 0
    for note in sorted(notes, key=lambda n: ("data_loss", "warning", "info").index(n.severity)):
        if note.severity == "info":
            shown += 1
            if shown > MAX_INFO_NOTES:
                left_out += 1
                continue
        times = f" ({note.count})" if note.count > 1 else ""
        severity = page.text(note.severity.replace("_", " "), _STYLE.get(note.severity, ""))
        page.row(table, severity, page.text(f"{note.text}{times}"))
    page.show(table)
    if left_out:
        page.line((f"  and {left_out} more of severity info; --json shows all", "dim"))


def _next(page: _Page, report: Report, next_steps: Sequence[str]) -> None:
    steps = list(next_steps)
    if report.findings:
        steps.append(f"stallscope explain {report.findings[0].code}")
    if not steps:
        return
    page.heading("Next")
    for step in steps:
        page.line((f"  {step}", ""))
