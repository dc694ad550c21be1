"""The parts of the page that are text: verdict, numbers, findings, tables, notes. Readable without a script.

Every number comes from the report; what it does not hold is "n/a", never 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from stallscope.analyzers.finding import DeviceSummary, Finding, Report, Step
from stallscope.analyzers.idle import IDLE_CLASSES
from stallscope.analyzers.units import duration, share, size
from stallscope.exporters.base import plain
from stallscope.exporters.charts import (
    DEVICE_PARTS,
    Figure,
    class_label,
    device_label,
    device_parts,
    idle_totals,
)
from stallscope.exporters.html_text import Content, Markup, clean, el, join
from stallscope.profiler.notes import Note

MAX_TABLE_ROWS = 300
"""Rows of one table on the page, the first ones; the JSON report has all."""
MAX_CELL = 300
NO_DEVICE = "not analysable: no device activity was recorded"

SEVERITY_OF_NOTE = {"data_loss": "data lost", "warning": "warning", "info": "note"}
_NOTE_ORDER = {"data_loss": 0, "warning": 1, "info": 2}

TABLE_TITLES = {
    "operators": "Operators",
    "phases": "Phases",
    "roofline": "Roofline",
    "trust": "How far this recording can be trusted",
    "gaps": "Gaps",
    "contention": "Host contention",
    "syncs": "Synchronisation",
    "copies": "Copies",
    "collectives": "Collectives",
}


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


def key_numbers(report: Report) -> Markup:
    h = report.headline
    if h.device_events:
        linked = h.device_events - h.unlinked_device_events
        tiles = [
            ("device span", duration(h.span_ns), "first to last device event"),
            ("busy", share(h.busy_ns, h.span_ns), duration(h.busy_ns)),
            ("idle", share(h.idle_ns, h.span_ns), duration(h.idle_ns)),
            ("device events", f"{h.device_events:,}", f"{h.launches:,} launches seen"),
            ("linked", share(linked, h.device_events), f"{linked:,} of {h.device_events:,} to a launch"),
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
    names = [("phase", "phase"), ("steps", "steps"), ("median_ns", "median"), ("p99_ns", "p99")]
    head = el(
        "tr", [el("th", text, scope="col", class_=None if key == "phase" else "num") for key, text in names]
    )
    body = []
    for row in rows[:8]:
        count = row.get("steps", row.get("count"))
        cells = [
            el("th", str(row.get("phase") or "no phase"), scope="row"),
            el("td", _count(count), class_="num"),
        ]
        cells += [el("td", _ns(row.get(k)), class_="num") for k in ("median_ns", "p99_ns")]
        body.append(el("tr", cells))
    table = el("table", [el("thead", head), el("tbody", body)], class_="plain")
    return el("div", [el("h2", "Steps"), table], class_="card")


def phase_rows(steps: Sequence[Step]) -> list[dict[str, Any]]:
    """Count, median and p99 (nearest rank, so always a duration that occurred) of each phase's steps."""
    by_phase: dict[str, list[int]] = {}
    for step in steps:
        by_phase.setdefault(step.phase, []).append(step.dur_ns)
    rows = []
    for phase, values in sorted(by_phase.items(), key=lambda item: -len(item[1])):
        values.sort()
        n = len(values)
        rows.append(
            {
                "phase": phase,
                "steps": n,
                "median_ns": values[(n - 1) // 2],
                "p99_ns": values[-(-99 * n // 100) - 1],
                "min_ns": values[0],
                "max_ns": values[-1],
            }
        )
    return rows


def trust(report: Report) -> Markup:
    """What this recording cannot tell: lost data and warnings, and rules that could not look."""
    notes = [n for n in report.notes if n.severity != "info"]
    notes.sort(key=lambda n: _NOTE_ORDER.get(n.severity, 3))
    reasons: dict[str, list[str]] = {}
    for rule in report.rules:
        if rule.status == "not_analysable":
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
    rows = []
    for rule in report.rules:
        status = rule.status.replace("_", " ")
        rows.append(
            el(
                "li",
                [
                    el("span", status, class_=f"tag r-{rule.status}"),
                    el("span", f"{rule.code} {rule.name}", class_="code"),
                    el("span", rule.reason, class_="reason") if rule.reason else None,
                ],
            )
        )
    counts = {s: sum(r.status == s for r in report.rules) for s in ("found", "clean", "not_analysable")}
    told = f"{counts['found']} found, {counts['clean']} clean, {counts['not_analysable']} not analysable"
    title = el("summary", [f"{len(report.rules)} rules: ", el("span", told)])
    return el("details", [title, el("ul", rows, class_="rules")], class_="rule-list")


def fact_text(key: str, value: Any) -> str:
    """A fact with its unit, which its key ends with: `_ns`, `_bytes`, `_share`, `_per_s`.

    >>> fact_text("median_gap_ns", 12_345), fact_text("kv_bytes", 3 * 2**20), fact_text("x", None)
    ('12.3 us', '3.0 MiB', 'n/a')
    """
    if value is None:
        return "n/a"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(key, value)
    return clean(_nested(key, value), MAX_CELL)


def _nested(key: str, value: Any) -> str:
    """Text of any plain value; what is inside lists and objects is written with its own unit."""
    if isinstance(value, Mapping):
        return "; ".join(f"{column_title(str(k))} {fact_text(str(k), v)}" for k, v in value.items())
    if isinstance(value, list):
        return ", ".join(fact_text(key, v) for v in value)
    return str(value)


def _number(key: str, value: float) -> str:
    if key.endswith("_ns"):
        return duration(round(value))
    if key.endswith("bytes"):
        return size(value)
    if key.endswith(("bytes_per_s", "flops_per_s")):
        unit = "B/s" if "bytes" in key else "FLOP/s"
        for limit, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
            if abs(value) >= limit:
                return f"{value / limit:.3g} {prefix}{unit}"
        return f"{value:.3g} {unit}"
    if key.endswith(("_share", "share", "_ratio_of_peak")):
        return f"{100 * value:.1f} %"
    if key.endswith("_percent"):
        return f"{value:.1f} %"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def _ns(value: Any) -> str:
    return duration(round(value)) if isinstance(value, int | float) else "n/a"


def _count(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) else "n/a"


# -- charts and tables ---------------------------------------------------------------------------------


def charts(report: Report, figures: Sequence[Figure]) -> Markup | None:
    """A place for each figure, with its numbers as a table under it."""
    boxes = [_chart(report, figure) for figure in figures]
    if not report.devices:
        missing = ["Device time", "Where the idle time went", "Top kernels", "Roofline"]
        boxes.insert(
            0,
            el(
                "div", [el("h3", " · ".join(missing)), el("p", NO_DEVICE, class_="more")], class_="chart none"
            ),
        )
    if not boxes:
        return None
    return el("section", [el("h2", "Charts", id="charts-title"), el("div", boxes, class_="charts")], id="charts",
              aria_labelledby="charts-title")  # fmt: skip


def _chart(report: Report, figure: Figure) -> Markup:
    name = figure["id"]
    plot = el("div", el("p", "The chart is drawn when the page's scripts run.", class_="more wait"), class_="plot",
              data_chart=name, data_height=figure["height"], role="img",
              aria_label=f"{figure['title']}; the table below has the same numbers")  # fmt: skip
    rows = _chart_rows(report, name)
    table = None
    if rows:
        table = el(
            "details",
            [el("summary", "Numbers"), _table(f"chart-{name}", rows[:MAX_TABLE_ROWS])],
            class_="numbers",
        )
    wide = " wide" if name in ("steps", "roofline", "kernels", "operators") else ""
    return el("figure", [el("h3", figure["title"]), el("figcaption", figure["caption"]), plot, table],
              class_="chart" + wide, id=f"chart-{name}")  # fmt: skip


def _chart_rows(report: Report, name: str) -> list[dict[str, Any]]:
    if name == "breakdown":
        return [
            {"device": device_label(d), "part": text, "time_ns": device_parts(d)[key],
             "share_of_span": share(device_parts(d)[key], d.span_ns)}
            for d in report.devices for key, text in DEVICE_PARTS
        ]  # fmt: skip
    if name == "idle":
        return [
            {"device": device_label(d), "class": class_label(n), "time_ns": v, "share_of_idle": share(v, d.idle_ns),
             "meaning": IDLE_CLASSES.get(n, "")}
            for d in report.devices for n, v in idle_totals([d])
        ]  # fmt: skip
    if name == "kernels":
        return [
            {"kernel": k.name, "kind": k.kind, "launches": k.count, "total_ns": k.total_ns}
            for k in report.kernels
        ]
    if name == "steps":
        return phase_rows(report.steps)
    return report.tables.get(name, [])


def tables(report: Report) -> Markup:
    """Kernels, steps, and every further table of the report."""
    kernels = [
        {"kernel": k.name, "kind": k.kind, "launches": k.count, "total_ns": k.total_ns,
         "mean_ns": k.total_ns / k.count if k.count else None, "min_ns": k.min_ns, "max_ns": k.max_ns}
        for k in report.kernels
    ]  # fmt: skip
    steps = [
        {"step": s.name, "phase": s.phase or "no phase", "index": s.index if s.index >= 0 else None,
         "start_ns": s.start_ns, "duration_ns": s.dur_ns, "confidence": s.confidence}
        for s in report.steps
    ]  # fmt: skip
    devices = [
        {"device": device_label(d), "span_ns": d.span_ns, "busy_ns": d.busy_ns, "idle_ns": d.idle_ns,
         "compute_ns": d.compute_ns, "collective_ns": d.collective_ns, "memcpy_ns": d.memcpy_ns,
         "memset_ns": d.memset_ns, "exposed_collective_ns": d.exposed_collective_ns,
         "exposed_memcpy_ns": d.exposed_memcpy_ns}
        for d in report.devices
    ]  # fmt: skip
    named: list[tuple[str, str, list[dict[str, Any]]]] = [
        ("kernels", "Kernels", kernels), ("steps", "Steps", steps), ("devices", "Devices", devices)
    ]  # fmt: skip
    for name, rows in report.tables.items():
        named.append((name, TABLE_TITLES.get(name, name.replace("_", " ").capitalize()), rows))
    boxes: list[Content] = [_table_box(name, title, rows) for name, title, rows in named if rows]
    if not report.devices:
        boxes.insert(0, el("p", f"Kernels, devices: {NO_DEVICE}.", class_="more"))
    return el(
        "section",
        [el("h2", "Tables", id="tables-title"), *boxes],
        id="tables",
        aria_labelledby="tables-title",
    )


def _table_box(name: str, title: str, rows: Sequence[dict[str, Any]]) -> Markup:
    shown = rows[:MAX_TABLE_ROWS]
    count = f"{len(rows):,} rows" if len(rows) != 1 else "1 row"
    if len(shown) < len(rows):
        count = f"first {len(shown):,} of {len(rows):,} rows; the JSON report has all"
    tools = el(
        "label",
        ["Filter ", el("input", type="search", data_filter=f"table-{name}", autocomplete="off")],
        class_="filter",
    )
    title_line = el("summary", [el("span", title), el("span", count, class_="count")])
    return el(
        "details", [title_line, tools, _table(f"table-{name}", shown)], class_="table-box", id=f"box-{name}"
    )


def _table(id: str, rows: Sequence[dict[str, Any]]) -> Markup:
    """Rows of plain values as a table; columns in the order they first appear, right-aligned if all numbers."""
    keys = list(dict.fromkeys(key for row in rows for key in row))[:24]
    numeric = {k for k in keys if _all_numbers([r.get(k) for r in rows])}
    head = [
        el(
            "th",
            el("button", column_title(k), type="button"),
            scope="col",
            class_="num" if k in numeric else None,
        )
        for k in keys
    ]
    body = [el("tr", [_cell(key, row.get(key), key in numeric) for key in keys]) for row in rows]
    table = el("table", [el("thead", el("tr", head)), el("tbody", body)], id=id, class_="sortable")
    return el("div", table, class_="scroll", tabindex=0)


def _cell(key: str, value: Any, numeric: bool) -> Markup:
    value = plain(value)
    text = fact_text(key, value)
    if not numeric:
        return el("td", text)
    return el("td", text, class_="num", data_v=repr(value) if value is not None else None)


def _all_numbers(values: Sequence[Any]) -> bool:
    known = [v for v in values if v is not None]
    return bool(known) and all(_is_number(v) for v in known)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def column_title(key: str) -> str:
    """A key as a column's heading: the unit is in the cells.

    >>> column_title("exposed_memcpy_ns"), column_title("flops_per_s")
    ('exposed memcpy', 'FLOP/s')
    """
    if key.endswith("flops_per_s"):
        return (key.removesuffix("flops_per_s").replace("_", " ") + "FLOP/s").strip()
    if key.endswith("bytes_per_s"):
        return (key.removesuffix("bytes_per_s").replace("_", " ") + "bytes/s").strip()
    return clean(key.removesuffix("_ns").replace("_", " "), 60)


# -- about the recording --------------------------------------------------------------------------------


def recording(report: Report, left_out: Sequence[str], drawn: int, total: int) -> Markup:
    """Run facts, all notes, and what this page leaves out."""
    facts = [
        [el("dt", clean(str(k), 60)), el("dd", fact_text(str(k), v))] for k, v in plain(report.facts).items()
    ]
    notes = sorted(report.notes, key=lambda n: (_NOTE_ORDER.get(n.severity, 3), n.code))
    rows = [
        {"severity": SEVERITY_OF_NOTE.get(n.severity, n.severity), "code": n.code, "count": n.count, "text": n.text,
         "first seen": n.first}
        for n in notes
    ]  # fmt: skip
    lines = [f"The timeline draws {drawn:,} of {total:,} spans.", *left_out]
    return el(
        "section",
        [
            el("h2", "About this recording", id="recording-title"),
            el("dl", facts, class_="facts") if facts else None,
            el("h3", "Notes"),
            _table("table-notes", rows) if rows else el("p", "None.", class_="more"),
            el("h3", "Limits of this page"),
            el("ul", [el("li", line) for line in lines], class_="limits"),
        ],
        id="recording",
        aria_labelledby="recording-title",
    )
