"""Figures of the report as plain dicts that plotly.js draws. Python's plotly is not imported: it takes longer
to load than a report takes to write.

A figure is `{"id", "title", "caption", "data", "layout", "height"}`. Colours are tokens (`@compute`) which the
page replaces by those of its theme, also when that changes. Every text that could come from a trace goes
through `plot_text`, as plotly.js reads tags and links in labels. The tables under the figures are made from
the same report in `html_sections`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from stallscope.analyzers.finding import DeviceSummary, KernelTotal, Report, Step
from stallscope.analyzers.idle import IDLE_CLASSES
from stallscope.exporters.base import short_kernel
from stallscope.exporters.html_pack import extremes
from stallscope.exporters.html_text import clean

Figure = dict[str, Any]

MAX_MARKS = 2_000
"""Marks of one figure; plotly.js needs about a second for 10,000."""
TOP_KERNELS = 15
TOP_ROWS = 20
NARROW_LABEL = 20
"""Characters of a bar's label on a narrow screen (`"narrow"` of a figure)."""

HOST_TABLES = {
    "operators": ("Hot operators", "Time in each operator; self time is without the operators it calls."),
    "gaps": ("Gaps between operators", "Time in which no operator ran on its thread."),
    "contention": ("Host contention", "Time in which threads wanted to run and could not."),
}
"""Tables that have a figure on a run without a device: title and caption."""

DEVICE_PARTS = (
    ("compute", "compute kernels"),
    ("memset", "memset, nothing beside it"),
    ("collective", "communication, exposed"),
    ("memcpy", "copies, exposed"),
    ("idle", "idle"),
)
"""Disjoint parts of a device's span, in the order they are drawn; they sum to the span exactly."""


_SHORT_PARTS = {
    "compute": "compute",
    "memset": "memset",
    "collective": "communication",
    "memcpy": "copies",
    "idle": "idle",
}


def figures(report: Report) -> list[Figure]:
    """All figures this report has the numbers for."""
    made = [
        breakdown(report.devices),
        idle_waterfall(report.devices),
        top_kernels(report.kernels),
        roofline(report.tables.get("roofline", [])),
        steps(report.steps),
    ]
    if not report.devices:
        made += [ranking(name, report.tables.get(name, [])) for name in HOST_TABLES]
    return [figure for figure in made if figure is not None]


def device_parts(device: DeviceSummary) -> dict[str, int]:
    """Disjoint nanoseconds of DEVICE_PARTS; busy = (compute or memset) + exposed communication + exposed copies."""
    memset = device.busy_ns - device.compute_ns - device.exposed_collective_ns - device.exposed_memcpy_ns
    return {
        "compute": device.compute_ns,
        "memset": memset,
        "collective": device.exposed_collective_ns,
        "memcpy": device.exposed_memcpy_ns,
        "idle": device.idle_ns,
    }


def device_title(device: DeviceSummary) -> str:
    """ "device 0", or in a session of several ranks "rank 1 device 0"; the id tells these apart but reads as neither."""
    return str(device.facts.get("label") or f"device {device.id}")


def device_label(device: DeviceSummary) -> str:
    return device_title(device) + (f" ({device.name})" if device.name else "")


def breakdown(devices: Sequence[DeviceSummary]) -> Figure | None:
    """One stacked bar per device: what its span was spent on."""
    if not devices:
        return None
    parts = [device_parts(d) for d in devices]
    labels = [device_title(d) + (f"<br>{plot_text(d.name, 40)}" if d.name else "") for d in devices]
    scale, unit = axis_unit(max(d.span_ns for d in devices))
    data = []
    for key, _ in DEVICE_PARTS:
        text = _SHORT_PARTS[key]
        values = [p[key] for p in parts]
        if not any(values):
            continue
        shares = [percent(v, d.span_ns) for v, d in zip(values, devices, strict=True)]
        data.append(
            _bar(
                [v / scale for v in values], list(range(len(devices))), f"@{key}",
                name=text, orientation="h", customdata=shares,
                hovertemplate=f"{text}: %{{x:.4~g}} {unit} (%{{customdata}})<extra></extra>",
            )
        )  # fmt: skip
    layout = {
        "barmode": "stack",
        "xaxis": {"title": {"font": {"size": 12}, "text": f"time, {unit}"}},
        "yaxis": {
            "tickvals": list(range(len(devices))),
            "ticktext": labels,
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
        },
        "legend": {"orientation": "h", "traceorder": "normal"},
    }
    caption = (
        "Disjoint parts of each device's span, from its first to its last event; they sum to the span. "
        "Memset, communication and copies count only where nothing before them in the list runs."
    )
    return _figure("breakdown", "Device time", caption, data, layout, 150 + 46 * len(devices))


def idle_waterfall(devices: Sequence[DeviceSummary]) -> Figure | None:
    """Idle classes, the largest first, each bar where the one before it ended; the last bar is the idle time."""
    totals = idle_totals(devices)
    if not totals:
        return None
    idle = sum(d.idle_ns for d in devices)
    scale, unit = axis_unit(idle)
    names, values = [n for n, _ in totals], [v for _, v in totals]
    bases = [sum(values[:i]) / scale for i in range(len(values))]
    bar = _bar(
        [v / scale for v in values] + [idle / scale],
        list(range(len(values) + 1)),
        [f"@idle-{n}" for n in names] + ["@idle"],
        orientation="h",
        base=[*bases, 0],
        customdata=[[percent(v, idle), plot_text(IDLE_CLASSES.get(n, n))] for n, v in totals]
        + [["100 %", "all idle time"]],
        hovertemplate=f"%{{x:.4~g}} {unit} (%{{customdata[0]}})<br>%{{customdata[1]}}<extra></extra>",
        text=[percent(v, idle) for v in values] + ["100 %"],
        textposition="outside",
        cliponaxis=False,
    )
    layout = {
        "xaxis": {
            "title": {"font": {"size": 12}, "text": f"idle time, {unit}"},
            "range": [0, 1.2 * idle / scale],
        },
        "yaxis": {
            "tickvals": list(range(len(values) + 1)),
            "ticktext": [plot_text(class_label(n), 40) for n in names] + ["all idle time"],
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
        },
        "showlegend": False,
    }
    several = f" Summed over {len(devices)} devices." if len(devices) > 1 else ""
    caption = f"Every idle nanosecond has one class; together they are the idle time.{several}"
    return _figure("idle", "Where the idle time went", caption, [bar], layout, 110 + 30 * (len(values) + 1))


def idle_totals(devices: Sequence[DeviceSummary]) -> list[tuple[str, int]]:
    """Idle classes over all devices that hold any time, the largest first."""
    sums: dict[str, int] = {}
    for device in devices:
        for name, ns in device.idle_classes.items():
            sums[name] = sums.get(name, 0) + ns
    return sorted(((n, v) for n, v in sums.items() if v > 0), key=lambda item: -item[1])


def class_label(name: str) -> str:
    return name.replace("_", " ")


def top_kernels(kernels: Sequence[KernelTotal]) -> Figure | None:
    """The kernels with the largest total time, and all the others as one bar."""
    if not kernels:
        return None
    top, rest = kernels[:TOP_KERNELS], kernels[TOP_KERNELS:]
    whole = sum(k.total_ns for k in kernels)
    rows = [(short_kernel(k.name), k.name, k.count, k.total_ns, f"@{k.kind}") for k in top]
    if rest:
        name = f"{len(rest):,} other names"
        rows.append((name, name, sum(k.count for k in rest), sum(k.total_ns for k in rest), "@rest"))
    scale, unit = axis_unit(max(r[3] for r in rows))
    bar = _bar(
        [r[3] / scale for r in rows],
        list(range(len(rows))),
        [r[4] for r in rows],
        orientation="h",
        customdata=[[plot_lines(r[1]), f"{r[2]:,}", percent(r[3], whole)] for r in rows],
        hovertemplate=f"%{{customdata[0]}}<br>%{{x:.4~g}} {unit} in %{{customdata[1]}} launches "
        "(%{customdata[2]} of kernel time)<extra></extra>",
        text=[percent(r[3], whole) for r in rows],
        textposition="outside",
        cliponaxis=False,
    )
    layout = {
        "xaxis": {
            "title": {"font": {"size": 12}, "text": f"total time, {unit}"},
            "range": [0, 1.2 * max(r[3] for r in rows) / scale],
        },
        "yaxis": {
            "tickvals": list(range(len(rows))),
            "ticktext": [plot_text(r[0], 72) for r in rows],
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
        },
        "showlegend": False,
    }
    caption = "Kernels and collectives by name, summed over all devices; copies and memsets are not in it."
    figure = _figure("kernels", "Top kernels", caption, [bar], layout, 110 + 24 * len(rows))
    return figure | {"narrow": [plot_text(r[0], NARROW_LABEL) for r in rows]}


def roofline(rows: Sequence[dict[str, Any]]) -> Figure | None:
    """Operators by arithmetic intensity and achieved rate, with the chip's two roofs where they are known."""
    points = [r for r in rows if _positive(r.get("intensity")) and _positive(r.get("flops_per_s"))]
    if not points:
        return None
    points = sorted(points, key=lambda r: -(r.get("total_ns") or 0))[:MAX_MARKS]
    data = []
    for bound in sorted({str(r.get("bound") or "unknown") for r in points}):
        mine = [r for r in points if str(r.get("bound") or "unknown") == bound]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plot_text(bound.replace("_", " "), 40),
                "x": [float(r["intensity"]) for r in mine],
                "y": [float(r["flops_per_s"]) / 1e12 for r in mine],
                "marker": {"color": f"@bound-{_token(bound)}", "size": 9, "opacity": 0.85},
                "customdata": [
                    [plot_text(r.get("operator") or ""), plot_lines(str(r.get("kernel") or ""))] for r in mine
                ],
                "hovertemplate": "%{customdata[0]}<br>%{customdata[1]}<br>%{x:.3~g} FLOP/byte, %{y:.3~g} TFLOP/s"
                "<extra></extra>",
            }
        )
    data += _roofs(points)
    layout = {
        "xaxis": {
            "type": "log",
            "title": {"font": {"size": 12}, "text": "arithmetic intensity, FLOP per byte"},
        },
        "yaxis": {"type": "log", "title": {"font": {"size": 12}, "text": "achieved, TFLOP/s"}},
        "legend": {"orientation": "h"},
    }
    missing = len(rows) - len(points)
    caption = "FLOPs and bytes are modelled from shapes and types."
    if missing:
        caption += f" {missing:,} rows have no FLOPs or no rate and are only in the table."
    return _figure("roofline", "Roofline", caption, data, layout, 420)


def _roofs(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    known = [(r.get("peak_flops_per_s"), r.get("peak_bytes_per_s")) for r in points]
    peaks = {(float(f), float(b)) for f, b in known if _positive(f) and _positive(b)}
    lines = []
    intensities = [float(r["intensity"]) for r in points]
    for flops, rate in sorted(peaks):
        ridge = flops / rate
        low, high = min(*intensities, ridge) / 4, max(*intensities, ridge) * 4
        lines.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": f"roof {flops / 1e12:.4g} TFLOP/s, {rate / 1e12:.3g} TB/s",
                "x": [low, ridge, high],
                "y": [low * rate / 1e12, flops / 1e12, flops / 1e12],
                "line": {"color": "@muted", "width": 1.5, "dash": "dot"},
                "hoverinfo": "name",
            }
        )
    return lines


def steps(found: Sequence[Step]) -> Figure | None:
    """The duration of each step over time, one line per phase."""
    if len(found) < 2:
        return None
    scale, unit = axis_unit(max(s.dur_ns for s in found))
    ends = max(s.start_ns + s.dur_ns for s in found)
    time_scale, time_unit = axis_unit(ends)
    phases = sorted({s.phase for s in found}, key=lambda p: -sum(s.phase == p for s in found))[:12]
    room = MAX_MARKS // len(phases)
    data = []
    for number, phase in enumerate(phases):
        mine = [s for s in found if s.phase == phase]
        durations = np.array([s.dur_ns for s in mine], np.float64)
        mine = [mine[i] for i in extremes(durations, room).tolist()]
        data.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if len(mine) > 1 else "markers",
                "name": plot_text(phase or "no phase", 40),
                "x": [s.start_ns / time_scale for s in mine],
                "y": [s.dur_ns / scale for s in mine],
                "line": {"color": f"@series-{number}", "width": 1.5},
                "marker": {"color": f"@series-{number}", "size": 5},
                "customdata": [plot_text(s.name, 120) for s in mine],
                "hovertemplate": f"%{{customdata}}<br>%{{y:.4~g}} {unit}, at %{{x:.5~g}} {time_unit}<extra></extra>",
            }
        )
    shown = sum(len(line["x"]) for line in data)
    caption = "Duration of each step on the host clock."
    if shown < len(found):
        caption += f" {shown:,} of {len(found):,} drawn: the shortest and the longest of each stretch."
    layout = {
        "xaxis": {
            "title": {"font": {"size": 12}, "text": f"start, {time_unit} from the start of the recording"}
        },
        "yaxis": {"title": {"font": {"size": 12}, "text": f"duration, {unit}"}, "rangemode": "tozero"},
        "legend": {"orientation": "h"},
    }
    return _figure("steps", "Steps", caption, data, layout, 340)


def ranking(name: str, rows: Sequence[dict[str, Any]]) -> Figure | None:
    """One of HOST_TABLES as bars, the longest first: its first text column by its self, total or first time."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    times = [c for c in columns if c.endswith("_ns") and any(_positive(r.get(c)) for r in rows)]
    key = next((c for c in ("self_ns", "total_ns") if c in times), times[0] if times else None)
    named = next((c for c in columns if any(isinstance(r.get(c), str) for r in rows)), None)
    if key is None or named is None:
        return None
    top = sorted((r for r in rows if _positive(r.get(key))), key=lambda r: -r[key])[:TOP_ROWS]
    scale, unit = axis_unit(top[0][key])
    bar = _bar(
        [r[key] / scale for r in top],
        list(range(len(top))),
        "@operator",
        orientation="h",
        customdata=[[plot_lines(str(r[named])), str(r.get("count") or r.get("calls") or "n/a")] for r in top],
        hovertemplate=f"%{{customdata[0]}}<br>%{{x:.4~g}} {unit}, count %{{customdata[1]}}<extra></extra>",
    )
    what = key.removesuffix("_ns").replace("_", " ")
    layout = {
        "xaxis": {"title": {"font": {"size": 12}, "text": plot_text(f"{what} time, {unit}")}},
        "yaxis": {
            "tickvals": list(range(len(top))),
            "ticktext": [plot_text(r[named], 72) for r in top],
            "autorange": "reversed",
            "showgrid": False,
            "zeroline": False,
        },
        "showlegend": False,
    }
    title, caption = HOST_TABLES[name]
    figure = _figure(name, title, caption, [bar], layout, 110 + 24 * len(top))
    return figure | {"narrow": [plot_text(r[named], NARROW_LABEL) for r in top]}


# -- text and numbers ---------------------------------------------------------------------------------


def plot_text(text: Any, longest: int = 400) -> str:
    """Text for a plotly.js label: cleaned, and without the tags and entities it would interpret.

    >>> plot_text("k<4, float>&")
    'k&lt;4, float&gt;&amp;'
    """
    plain = clean(str(text), longest)
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def plot_lines(text: str, width: int = 80, lines: int = 4) -> str:
    """A long name as several lines of a hover box, escaped.

    >>> plot_lines("ab<c", 2)
    'ab<br>&lt;c'
    """
    pieces = [text[i : i + width] for i in range(0, len(text), width)]
    if len(pieces) > lines:
        pieces = [*pieces[:lines], "…"]
    return "<br>".join(plot_text(piece) for piece in pieces)


def axis_unit(largest_ns: int) -> tuple[int, str]:
    """What to divide nanoseconds by on an axis, and its unit.

    >>> axis_unit(12_000_000)
    (1000000, 'ms')
    """
    for scale, unit in ((10**9, "s"), (10**6, "ms"), (10**3, "us")):
        if largest_ns >= 2 * scale:
            return scale, unit
    return 1, "ns"


def percent(part: int, whole: int) -> str:
    """A share for a label; "n/a" without a whole.

    >>> percent(1, 8), percent(1, 0)
    ('12.5 %', 'n/a')
    """
    return f"{100 * part / whole:.1f} %" if whole else "n/a"


def _positive(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < float("inf")


def _token(text: str) -> str:
    return re.sub(r"[^a-z]+", "-", text.lower()).strip("-")


def _bar(x: list[float], y: list[int], color: Any, **more: Any) -> dict[str, Any]:
    return {"type": "bar", "x": x, "y": y, "marker": {"color": color}, **more}


def _figure(
    id: str, title: str, caption: str, data: list[dict[str, Any]], layout: dict[str, Any], height: int
) -> Figure:
    return {"id": id, "title": title, "caption": caption, "data": data, "layout": layout, "height": height}
