"""One self-contained interactive page: report, timeline and charts. Works from file://, asks for nothing.

The text is plain HTML made here; the timeline and the charts are data islands that `assets/*.js` unpack. A
content security policy forbids every request and every script but the four of the page (by their hashes), so
that a name in a hostile trace can do nothing even if an escape were missing.
"""

from __future__ import annotations

import base64
import hashlib
import json
from functools import lru_cache
from pathlib import Path

from stallscope.analyzers.finding import Report
from stallscope.exporters import html_sections as sections
from stallscope.exporters import html_tables as lower
from stallscope.exporters.base import writing
from stallscope.exporters.charts import figures
from stallscope.exporters.html_data import MAX_SLICES, timeline_data
from stallscope.exporters.html_pack import pack_json
from stallscope.exporters.html_text import Markup, escape, json_island
from stallscope.profiler.pages import computing
from stallscope.profiler.session import Session

NAME = "html"
SUFFIX = ".html"

_ASSETS = Path(__file__).parent / "assets"
SCRIPTS = ("format.js", "timeline.js", "report.js")


def export(session: Session, report: Report, out: Path) -> None:
    """Write the page. Raises InputError where `out` cannot be written."""
    with computing():
        pieces = _pieces(session, report, MAX_SLICES)
    with writing(out) as file:
        # one by one: nearly all of the page is ASCII, and one wider character would widen all of its text
        file.writelines(piece.encode("utf-8") for piece in pieces)


def render(session: Session, report: Report, max_slices: int = MAX_SLICES) -> str:
    """The page as text, pure and without a lone surrogate; `max_slices` spans are drawn at most."""
    return "".join(_pieces(session, report, max_slices))


def _pieces(session: Session, report: Report, max_slices: int) -> list[str]:
    timeline = timeline_data(session, report, max_slices)
    made = figures(report)
    plotly = _plotly()
    island = {
        "version": 1,
        "slices": timeline.drawn,
        "findings": [
            {"code": f.code, "title": f.title, "evidence": len(f.evidence)} for f in report.findings
        ],
        "charts": [f["id"] for f in made],
        "plotly": {"version": plotly["version"], "hash": plotly["sha256"]},
    }
    contents = lower.contents(report)
    charts = lower.charts(report, made, contents)
    parts = {
        "title": escape(f"{report.facts.get('source') or 'recording'} · stallscope"),
        "policy": escape(_policy(plotly["sha256"])),
        "style": Markup(_asset("report.css")),
        "header": sections.header(report),
        "nav": sections.nav(report, charts is not None),
        "summary": sections.summary(report),
        "findings": sections.findings(report),
        "charts": charts or Markup(""),
        "tables": lower.tables(report, contents),
        "recording": lower.recording(report, timeline.left_out, timeline.drawn, timeline.total),
        "island": json_island(island),
        "layout": Markup(timeline.layout),
        "slices": Markup(timeline.slices),
        "details": Markup(timeline.details),
        "figures": Markup(pack_json(made)),
        "plotly": Markup(_plotly_bundle() if made else ""),
        "scripts": Markup("\n".join(f"<script>{_asset(name)}</script>" for name in SCRIPTS)),
    }
    return _fill(_asset("report.html"), parts)


def _fill(template: str, parts: dict[str, Markup]) -> list[str]:
    """The template with each `{{name}}` replaced once, in pieces; what is filled in is never searched again."""
    out: list[str] = []
    for piece in template.split("{{"):
        name, closed, rest = piece.partition("}}")
        out += [parts[name], rest] if closed else [piece]
    return out


def _policy(plotly_hash: str) -> str:
    hashes = [f"'sha256-{_sha256(_asset(name))}'" for name in SCRIPTS] + [f"'sha256-{plotly_hash}'"]
    return (
        f"default-src 'none'; script-src {' '.join(hashes)}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _sha256(text: str) -> str:
    return base64.b64encode(hashlib.sha256(text.encode("utf-8")).digest()).decode("ascii")


@lru_cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


@lru_cache
def _plotly() -> dict[str, str]:
    """Name, version and script hash of the plotly.js bundle that ships with the package."""
    known: dict[str, str] = json.loads(_asset("vendor/plotly.json"))
    return known


def _plotly_bundle() -> str:
    """The bundle as it is stored, gzip, in base64."""
    return base64.b64encode((_ASSETS / "vendor" / _plotly()["file"]).read_bytes()).decode("ascii")
