"""The upper half of the page as text: verdict, numbers, findings, what cannot be told. Readable without a script.

Every number comes from the report; what it does not hold is "n/a", never 0.
"""

from __future__ import annotations

from collections.abc import Sequence

from stallscope.analyzers.finding import DeviceSummary, Finding, Report, Step
from stallscope.analyzers.units import duration, share
from stallscope.exporters.base import plain
from stallscope.exporters.charts import (
    DEVICE_PARTS,
    class_label,
    device_label,
    device_parts,
    idle_totals,
)
from stallscope.exporters.html_tables import NO_DEVICE, NOTE_ORDER, SEVERITY_OF_NOTE
from stallscope.exporters.html_text import Content, Markup, clean, el, join
from stallscope.exporters.html_values import column_title, count_text, fact_text, phase_rows, time_text
from stallscope.profiler.notes import Note

DOES_NOT_APPLY = "does not apply"
"""How the reason of a rule begins that had nothing to look at, which is no fault of the recording."""

# -- first screen -------------------------------------------------------------------------------------


def header(report: Report) -> Markup:
    """Name, source and the two buttons every page has."""
    facts = report.facts
    source = str(facts.get("source") or "recording")
    about = [str(facts[k]) for k in ("producer", "format") if facts.get(k)][:1]
    devices = sorted({d.name for d in report.devices if d.name})
    return el(
        "header",
        [
            el("a", [Markup(LOGO), el("span", "stallscope")], class_="brand", href="#summary"),
            el(
                "div",
                [el("strong", source, class_="source"), el("span", " · ".join(about + devices))],
                class_="about",
            ),
            el(
                "div",
                [
                    el(
                        "button",
                        "Theme",
                        id="theme",
                        type="button",
                        title="Light, dark, or as the system has it",
                    ),
                    el("button", "Print", id="print", type="button"),
                ],
                class_="tools",
            ),
        ],
        class_="top",
    )


LOGO = (
    '<svg class="logo" viewBox="0 0 24 24" aria-hidden="true"><path d="M2 7h7M13 7h9M2 12h3M15 12h7M2 17h11M17 17h5"/>'
    "</svg>"
)


def nav(report: Report, has_charts: bool) -> Markup:
    links = [("summary", "Summary"), ("work", "Findings and timeline")]
    links += [("charts", "Charts")] if has_charts else []
    links += [("tables", "Tables"), ("recording", "About this recording")]
    return el("nav", [el("a", text, href=f"#{anchor}") for anchor, text in links], aria_label="Sections")


def summary(report: Report) -> Markup:
    """The screen that has to answer in ten seconds."""
    left = [
        el("h1", report.verdict.text, id="verdict"),
        el("ul", [el("li", line) for line in report.verdict.lines], class_="lines")
        if report.verdict.lines
        else None,
        key_numbers(report),
        device_bars(report.devices),
    ]
    right = [top_findings(report), phases(report)]
    return el(
        "section",
        [el("div", left, class_="main"), el("div", right, class_="side"), trust(report)],
        id="summary",
        aria_labelledby="verdict",
    )


def _linked_tile(report: Report, linked: int) -> tuple[str, str, str]:
    checks = {check.get("check"): check for check in report.tables.get("trust", [])}
    if not linked and checks.get("linked", {}).get("value", 0) is None:
        return "linked", "n/a", "not told by this source"
    events = report.headline.device_events
    return "linked", share(linked, events), f"{linked:,} of {events:,} to a launch"


def key_numbers(report: Report) -> Markup:
    h = report.headline
    if h.device_events:
        linked = h.device_events - h.unlinked_device_events
        tiles = [
            ("device span", duration(h.span_ns), "first to last device event"),
            ("busy", share(h.busy_ns, h.span_ns), duration(h.busy_ns)),
            ("idle", share(h.idle_ns, h.span_ns), duration(h.idle_ns)),
            ("device events", f"{h.device_events:,}", f"{h.launches:,} launches seen"),
            _linked_tile(report, linked),
        ]
    else:
        tiles = [
            (
                "host span",
                duration(h.host_span_ns) if h.host_span_ns else "n/a",
                "first to last host activity",
            ),
            ("device", "n/a", NO_DEVICE),
        ]
    if report.steps:
        tiles.append(("steps", f"{len(report.steps):,}", ", ".join(_phase_counts(report.steps))))
    return el(
        "dl",
        [
            el("div", [el("dt", name), el("dd", value), el("dd", more, class_="more")])
            for name, value, more in tiles
        ],
        class_="keys",
    )


def _phase_counts(steps: Sequence[Step]) -> list[str]:
    counts: dict[str, int] = {}
    for step in steps:
        counts[step.phase or "no phase"] = counts.get(step.phase or "no phase", 0) + 1
    return [f"{n:,} {phase}" for phase, n in sorted(counts.items(), key=lambda item: -item[1])][:3]


def device_bars(devices: Sequence[DeviceSummary]) -> Markup | None:
    """One bar per device over its span, and one for its idle time by class."""
    if not devices:
        return None
    bars: list[Content] = []
    for device in devices[:8]:
        parts = device_parts(device)
        named = [(key, text, parts[key]) for key, text in DEVICE_PARTS]
        bars.append(_bar(device_label(device), device.span_ns, named))
        idle = [(f"idle-{n}", class_label(n), v) for n, v in idle_totals([device])]
        if idle:
            bars.append(_bar("its idle time", device.idle_ns, idle, most=5))
    if len(devices) > 8:
        bars.append(el("p", f"{len(devices) - 8} more devices are in the tables.", class_="more"))
    return el("div", bars, class_="bars")


def _bar(title: str, whole: int, parts: Sequence[tuple[str, str, int]], most: int = 9) -> Markup:
    shown = [p for p in parts if p[2] > 0]
    rects, legend, at = [], [], 0.0
    for key, text, value in shown:
        width = 1000 * value / whole if whole else 0
        what = f"{text}: {duration(value)} ({share(value, whole)})"
        rects.append(
            el(
                "rect",
                el("title", what),
                x=f"{at:.3f}",
                y=0,
                width=f"{width:.3f}",
                height=10,
                class_=f"fill c-{key}",
            )
        )
        at += width
    for key, text, value in shown[:most]:
        chip = el("i", "", class_=f"chip c-{key}", aria_hidden="true")
        legend.append(
            el("li", [chip, el("span", text), el("b", share(value, whole)), el("span", duration(value))])
        )
    if len(shown) > most:
        rest = sum(p[2] for p in shown[most:])
        legend.append(
            el("li", [el("span", f"{len(shown) - most} more"), el("b", share(rest, whole)), duration(rest)])
        )
    picture = el(
        "svg", rects, viewBox="0 0 1000 10", preserveAspectRatio="none", role="img", aria_label=title
    )
    head = el("p", [el("span", title), el("span", duration(whole), class_="num")], class_="bar-title")
    return el("div", [head, picture, el("ul", legend, class_="legend")], class_="bar")


def top_findings(report: Report) -> Markup:
    if not report.findings:
        clean_rules = sum(r.status == "clean" for r in report.rules)
        told = (
            f"{clean_rules} rules looked and found nothing"
            if clean_rules
            else "No rule had anything to go by"
        )
        return el("div", [el("h2", "Top findings"), el("p", f"{told}.", class_="more")], class_="card")
    items = [_top_finding(report, number, f) for number, f in enumerate(report.findings[:3])]
    rest = len(report.findings) - 3
    more = el("p", el("a", f"{rest} more below", href="#work"), class_="more") if rest > 0 else None
    return el("div", [el("h2", "Top findings"), el("ol", items, class_="top-findings"), more], class_="card")


def _top_finding(report: Report, number: int, finding: Finding) -> Markup:
    return el(
        "li",
        el(
            "a",
            [
                el("span", _recoverable(finding), class_="gain"),
                el("span", finding.title, class_="title"),
                el("span", [_severity(finding.severity), f"confidence {finding.confidence}"], class_="meta"),
                _where(finding, short=True),
            ],
            href=f"#finding-{number}",
            data_finding=number,
        ),
    )


def _recoverable(finding: Finding) -> str:
    return f"up to {duration(finding.recoverable_ns)}" if finding.recoverable_ns > 0 else "gain n/a"


def _severity(severity: str) -> Markup:
    return el("span", severity, class_=f"severity s-{severity}")


def _where(finding: Finding, short: bool = False) -> Markup | None:
    where = finding.where
    named = [("Python", where.python), ("operator", where.operator), ("kernel", where.kernel)]
    known = [(k, v) for k, v in named if v]
    if not known:
        return None
    if short:
        kind, text = known[0]
        return el(
            "span", [el("span", f"{kind} ", class_="kind"), el("code", clean(text, 90))], class_="where"
        )
    return el("dl", [[el("dt", k), el("dd", el("code", v))] for k, v in known], class_="where")


def phases(report: Report) -> Markup | None:
    """Steps by phase: from the analysis' own table where there is one, else counted from the steps."""
    rows = [r for r in report.tables.get("phases", []) if "median_ns" in r] or phase_rows(report.steps)
    if not rows:
        return None
    times = [("step_time_ns", "a step"), ("median_ns", "host median"), ("p99_ns", "host p99")]
    times = [(key, text) for key, text in times if any(key in r for r in rows)]
    names = [("phase", "phase"), ("steps", "steps"), *times]
    head = el(
        "tr", [el("th", text, scope="col", class_=None if key == "phase" else "num") for key, text in names]
    )
    body = []
    for row in rows[:8]:
        count = row.get("steps", row.get("count"))
        cells = [
            el("th", str(row.get("phase") or "no phase"), scope="row"),
            el("td", count_text(count), class_="num"),
        ]
        cells += [el("td", time_text(row.get(k)), class_="num") for k, _ in times]
        body.append(el("tr", cells))
    table = el("table", [el("thead", head), el("tbody", body)], class_="plain")
    return el("div", [el("h2", "Steps"), table], class_="card")


def trust(report: Report) -> Markup:
    """What this recording cannot tell: lost data and warnings, and rules that could not look."""
    notes = [n for n in report.notes if n.severity != "info"]
    notes.sort(key=lambda n: NOTE_ORDER.get(n.severity, 3))
    reasons: dict[str, list[str]] = {}
    for rule in report.rules:
        if rule.status == "not_analysable" and not rule.reason.startswith(DOES_NOT_APPLY):
            reasons.setdefault(rule.reason or "no reason given", []).append(f"{rule.code} {rule.name}")
    items: list[Content] = [
        el(
            "li",
            [
                el("span", SEVERITY_OF_NOTE.get(n.severity, n.severity), class_=f"tag n-{n.severity}"),
                _note_text(n),
            ],
        )
        for n in notes
    ]
    items += [
        el("li", [el("span", "note", class_="tag"), str(check.get("text", ""))])
        for check in report.tables.get("trust", [])
        if check.get("state") == "note"
    ]
    items += [
        el(
            "li",
            [
                el("span", "not analysable", class_="tag"),
                f"{reason}: ",
                el("span", ", ".join(codes), class_="codes"),
            ],
        )
        for reason, codes in reasons.items()
    ]
    if not report.devices:
        items.insert(
            0,
            el(
                "li",
                [
                    el("span", "not analysable", class_="tag"),
                    "device claims: no device activity was recorded",
                ],
            ),
        )
    title = el("h2", "What this recording cannot tell")
    if not items:
        return el(
            "div",
            [title, el("p", "No reader or rule reported anything missing.", class_="more")],
            class_="trust",
        )
    first, rest = items[:4], items[4:]
    folded = el("details", [el("summary", f"{len(rest)} more"), el("ul", rest)]) if rest else None
    return el("div", [title, el("ul", first), folded], class_="trust")


def _note_text(note: Note) -> str:
    count = f"{note.count:,} × " if note.count > 1 else ""
    return count + note.text


# -- findings ------------------------------------------------------------------------------------------


def findings(report: Report) -> Markup:
    """The list beside the timeline."""
    items = [_finding(report, number, f) for number, f in enumerate(report.findings)]
    body = el("ol", items, class_="findings") if items else el("p", "No findings.", class_="more")
    return join([el("h2", ["Findings ", el("span", str(len(items)), class_="count")]), body, rules(report)])


def _finding(report: Report, number: int, finding: Finding) -> Markup:
    span = report.headline.span_ns or report.headline.host_span_ns
    evidence = len(finding.evidence)
    head = el(
        "button",
        [
            el(
                "span",
                [_severity(finding.severity), el("span", f"{finding.code} {finding.name}", class_="code")],
                class_="meta",
            ),
            el("span", finding.title, class_="title"),
            el(
                "span",
                [
                    el("b", _recoverable(finding)),
                    f" of {duration(finding.lost_ns)} lost · " if finding.lost_ns else " · ",
                    f"{share(finding.recoverable_ns, span)} of the span · "
                    if finding.recoverable_ns > 0
                    else "",
                    f"confidence {finding.confidence}",
                    f" · {finding.phase}" if finding.phase else "",
                ],
                class_="meta",
            ),
        ],
        type="button",
        class_="finding-head",
        data_finding=number,
        aria_expanded="false",
        aria_controls=f"finding-body-{number}",
    )
    facts = [[el("dt", column_title(k)), el("dd", fact_text(k, v))] for k, v in plain(finding.facts).items()]
    steps = (
        el(
            "p",
            [
                el("button", "◂", type="button", data_step=-1, aria_label="previous evidence"),
                el("span", f"{evidence:,} places", class_="place"),
                el("button", "▸", type="button", data_step=1, aria_label="next evidence"),
            ],
            class_="evidence",
        )
        if evidence
        else el("p", "No place on the timeline belongs to this finding.", class_="more")
    )
    body = el(
        "div",
        [
            el("p", finding.detail) if finding.detail else None,
            el("p", [el("b", "Try: "), finding.advice], class_="advice") if finding.advice else None,
            _where(finding),
            steps,
            el("dl", facts, class_="facts") if facts else None,
        ],
        id=f"finding-body-{number}",
        class_="finding-body",
    )
    return el("li", [head, body], id=f"finding-{number}", class_="finding", data_finding=number)


def rules(report: Report) -> Markup | None:
    """How every rule ended."""
    if not report.rules:
        return None
    groups: dict[tuple[str, str], list[str]] = {}
    for rule in report.rules:
        groups.setdefault((rule.status, rule.reason), []).append(f"{rule.code} {rule.name}")
    rows = [
        el(
            "li",
            [
                el("span", status.replace("_", " "), class_=f"tag r-{status}"),
                el("span", ", ".join(names), class_="code"),
                el("span", reason, class_="reason") if reason else None,
            ],
        )
        for (status, reason), names in groups.items()
    ]
    counts = {s: sum(r.status == s for r in report.rules) for s in ("found", "clean", "not_analysable")}
    told = f"{counts['found']} found, {counts['clean']} clean, {counts['not_analysable']} not analysable"
    title = el("summary", [f"{len(report.rules)} rules: ", el("span", told)])
    return el(
        "details", [title, el("ul", rows, class_="rules")], class_="rule-list", open=not report.findings
    )
