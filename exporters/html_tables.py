"""The lower half of the page: places for the charts with their numbers, tables, and what is known of the recording."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from stallscope.analyzers.finding import Report
from stallscope.analyzers.idle import IDLE_CLASSES
from stallscope.analyzers.units import share
from stallscope.exporters.base import MAX_SAFE_INTEGER, plain
from stallscope.exporters.charts import (
    DEVICE_PARTS,
    HOST_TABLES,
    Figure,
    class_label,
    device_label,
    device_parts,
    idle_totals,
)
from stallscope.exporters.html_text import Content, Markup, el, escape, is_plain
from stallscope.exporters.html_values import column_title, fact_text, number_format, phase_rows

MAX_TABLE_ROWS = 300
"""Rows of one table on the page, the first ones; the JSON report has all."""
NO_DEVICE = "not analysable: no device activity was recorded"

SEVERITY_OF_NOTE = {"data_loss": "data lost", "warning": "warning", "info": "note"}
NOTE_ORDER = {"data_loss": 0, "warning": 1, "info": 2}

TABLE_TITLES = {
    "trust": "How far this recording can be trusted",
    "phases": "Phases",
    "idle_causes": "Causes of idle time, with the places that hold most of each",
    "waits": "Where the host waits for the device",
    "backpressure": "Launch queue",
    "task_queue": "Task queue: which side comes late",
    "batches": "Batch sizes",
    "operators": "Operators",
    "roofline": "Roofline",
    "floor": "Floor of each phase",
    "families": "Device time by kind of work",
    "pipes": "Pipes of the NPU's cores, by kernel",
    "together": "What all findings are worth together",
}


def contents(report: Report) -> dict[str, Markup]:
    """Heads and rows of the report's further tables by name: some stand on the page twice, and are made once. Not of
    lines over time, which are drawn on the timeline."""
    return {
        name: _content(_named_devices(report, rows))
        for name, rows in report.tables.items()
        if rows and name != "lanes"
    }


def charts(report: Report, figures: Sequence[Figure], contents: Mapping[str, Markup]) -> Markup | None:
    """A place for each figure, with its numbers as a table under it."""
    boxes = [_chart(report, figure, contents) for figure in figures]
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


def _chart(report: Report, figure: Figure, contents: Mapping[str, Markup]) -> Markup:
    name = figure["id"]
    plot = el("div", el("p", "The chart is drawn when the page's scripts run.", class_="more wait"), class_="plot",
              data_chart=name, data_height=figure["height"], role="img",
              aria_label=f"{figure['title']}; the table below has the same numbers")  # fmt: skip
    rows = _chart_rows(report, name)
    content = contents.get(name) if rows is None else _content(rows) if rows else None
    table = None
    if content is not None:
        table = el("details", [el("summary", "Numbers"), _table(f"chart-{name}", content)], class_="numbers")
    wide = " wide" if name in ("steps", "roofline", "kernels", *HOST_TABLES) else ""
    return el("figure", [el("h3", figure["title"]), el("figcaption", figure["caption"]), plot, table],
              class_="chart" + wide, id=f"chart-{name}")  # fmt: skip


def _chart_rows(report: Report, name: str) -> list[dict[str, Any]] | None:
    """The numbers of a figure; None where they are the table of its name."""
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
    return None


def _named_devices(report: Report, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows of several ranks with "rank 1 device 0" instead of the number that tells the devices apart."""
    labels = {d.id: d.facts["label"] for d in report.devices if "label" in d.facts}
    if not labels:
        return rows
    return [
        row | {"device": labels.get(row["device"], row["device"])} if "device" in row else row for row in rows
    ]


def tables(report: Report, contents: Mapping[str, Markup]) -> Markup:
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
    own: list[tuple[str, str, list[dict[str, Any]]]] = [
        ("kernels", "Kernels", kernels), ("steps", "Steps", steps), ("devices", "Devices", devices)
    ]  # fmt: skip
    boxes: list[Content] = [
        _table_box(name, title, len(rows), _content(rows)) for name, title, rows in own if rows
    ]
    for name, content in contents.items():
        title = TABLE_TITLES.get(name, name.replace("_", " ").capitalize())
        boxes.append(_table_box(name, title, len(report.tables[name]), content))
    if not report.devices:
        boxes.insert(0, el("p", f"Kernels, devices: {NO_DEVICE}.", class_="more"))
    return el(
        "section",
        [el("h2", "Tables", id="tables-title"), *boxes],
        id="tables",
        aria_labelledby="tables-title",
    )


def _table_box(name: str, title: str, rows: int, content: Markup) -> Markup:
    count = f"{rows:,} rows" if rows != 1 else "1 row"
    if rows > MAX_TABLE_ROWS:
        count = f"first {MAX_TABLE_ROWS:,} of {rows:,} rows; the JSON report has all"
    tools = el(
        "label",
        ["Filter ", el("input", type="search", data_filter=f"table-{name}", autocomplete="off")],
        class_="filter",
    )
    title_line = el("summary", [el("span", title), el("span", count, class_="count")])
    return el(
        "details", [title_line, tools, _table(f"table-{name}", content)], class_="table-box", id=f"box-{name}"
    )


def _table(id: str, content: Markup) -> Markup:
    return el("div", el("table", content, id=id, class_="sortable"), class_="scroll", tabindex=0)


def _content(rows: Sequence[dict[str, Any]]) -> Markup:
    """Head and first rows of a table of plain values; columns in the order they first appear, right-aligned if all
    numbers."""
    rows = rows[:MAX_TABLE_ROWS]
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
    columns = [_cells(key, [row.get(key) for row in rows], key in numeric) for key in keys]
    body = Markup("".join([f"<tr>{''.join(cells)}</tr>" for cells in zip(*columns, strict=True)]))
    return Markup(el("thead", el("tr", head)) + el("tbody", body))


def _cells(key: str, values: Sequence[Any], numeric: bool) -> list[str]:
    """The cells of a column as markup. Tables hold ten thousand: what `el` would make is put together here, the usual
    first, and texts that come again are made once."""
    texts: dict[str | None, str] = {}
    written = number_format(key)
    out = []
    for value in values:
        kind = type(value)
        if numeric and (
            (kind is int and -MAX_SAFE_INTEGER <= value <= MAX_SAFE_INTEGER)
            or (kind is float and math.isfinite(value))
        ):
            cell = f'<td class="num" data-v="{value!r}">{written(value)}</td>'
        elif kind is str or value is None:
            if (cell := texts.get(value, "")) == "":
                cell = texts[value] = _cell(key, value, numeric)
        else:
            cell = _cell(key, value, numeric)
        out.append(cell)
    return out


def _cell(key: str, value: Any, numeric: bool) -> str:
    if type(value) is str and is_plain(value):
        text = safe = value
    else:
        value = plain(value)
        text = fact_text(key, value)
        safe = escape(text)
    if numeric:
        sort_by = f' data-v="{escape(repr(value))}"' if value is not None else ""
        return f'<td class="num"{sort_by}>{safe}</td>'
    if len(text) > 120:
        # long kernel names would make a row ten lines high; the whole text is in the tip, and printed
        return f'<td><span class="clip" title="{safe}">{safe}</span></td>'
    return f"<td>{safe}</td>"


def _all_numbers(values: Sequence[Any]) -> bool:
    known = [v for v in values if v is not None]
    return bool(known) and all(_is_number(v) for v in known)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# -- about the recording --------------------------------------------------------------------------------


def recording(report: Report, left_out: Sequence[str], drawn: int, total: int) -> Markup:
    """Run facts, all notes, and what this page leaves out."""
    facts = [
        [el("dt", column_title(str(k))), el("dd", fact_text(str(k), v))]
        for k, v in plain(report.facts).items()
    ]
    notes = sorted(report.notes, key=lambda n: (NOTE_ORDER.get(n.severity, 3), n.code))
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
            _table("table-notes", _content(rows)) if rows else el("p", "None.", class_="more"),
            el("h3", "Limits of this page"),
            el("ul", [el("li", line) for line in lines], class_="limits"),
        ],
        id="recording",
        aria_labelledby="recording-title",
    )
