"""The report as JSON, schema `stallscope.report/1`: for CI, for scripts, and for the HTML page.

docs/reference/json-report.md describes every key, `assets/report.schema.json` checks them.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from stallscope import __version__
from stallscope.analyzers.finding import DeviceSummary, Evidence, Finding, KernelTotal, Report, Step
from stallscope.exporters.base import clean, plain, process_label, track_label, writing
from stallscope.profiler.notes import Note
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import Track

NAME = "json"
SUFFIX = ".json"

SCHEMA = "stallscope.report/1"
SCHEMA_FILE = Path(__file__).resolve().parent / "assets" / "report.schema.json"


def export(session: Session, report: Report, out: Path) -> None:
    """Write the report. Raises InputError where the file cannot be written."""
    text = render(session, report)
    with writing(out) as file:
        file.write(text.encode("utf-8"))
        file.write(b"\n")


def render(session: Session, report: Report) -> str:
    """The report as indented JSON text; equal input gives equal text."""
    packed = msgspec.json.encode(report_data(session, report))
    return msgspec.json.format(packed, indent=1).decode("utf-8")


def report_data(session: Session, report: Report) -> dict[str, Any]:
    """The report as plain JSON values, in the order of the file."""
    tracks = session.timeline.tracks
    timeline = session.timeline
    data = {
        "schema": SCHEMA,
        "producer": {"name": "stallscope", "version": __version__},
        "verdict": asdict(report.verdict),
        "headline": asdict(report.headline),
        "devices": [_device(d) for d in report.devices],
        "kernels": [_kernel(k) for k in report.kernels],
        "steps": [_step(s, tracks) for s in report.steps],
        "findings": [_finding(f, tracks) for f in report.findings],
        "rules": [
            {"code": r.code, "name": r.name, "status": r.status, "reason": r.reason} for r in report.rules
        ],
        "notes": [_note(n) for n in report.notes],
        "facts": report.facts,
        "tables": report.tables,
        "timeline": {"origin_ns": timeline.origin_ns, "clock": timeline.clock, "spans": len(timeline)},
        "tracks": [_track(t) for t in tracks],
    }
    out: dict[str, Any] = plain(data)
    return out


def schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of the report."""
    loaded: dict[str, Any] = json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))
    return loaded


def _device(device: DeviceSummary) -> dict[str, Any]:
    return asdict(device)


def _kernel(kernel: KernelTotal) -> dict[str, Any]:
    return asdict(kernel)


def _step(step: Step, tracks: list[Track]) -> dict[str, Any]:
    out = asdict(step)
    out["track"], out["track_index"] = _where_drawn(step.track, tracks)
    return out


def _finding(finding: Finding, tracks: list[Track]) -> dict[str, Any]:
    return {
        "code": finding.code,
        "name": finding.name,
        "title": finding.title,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "phase": finding.phase,
        "lost_ns": finding.lost_ns,
        "recoverable_ns": finding.recoverable_ns,
        "where": asdict(finding.where),
        "detail": finding.detail,
        "advice": finding.advice,
        "evidence": [_evidence(e, tracks) for e in finding.evidence],
        "facts": finding.facts,
    }


def _evidence(evidence: Evidence, tracks: list[Track]) -> dict[str, Any]:
    track, index = _where_drawn(evidence.track, tracks)
    return {
        "track": track,
        "track_index": index,
        "start_ns": evidence.start_ns,
        "end_ns": evidence.end_ns,
        "label": evidence.label,
    }


def _where_drawn(index: int, tracks: list[Track]) -> tuple[str, int]:
    return (track_label(tracks[index]), index) if 0 <= index < len(tracks) else ("", -1)


def _note(note: Note) -> dict[str, Any]:
    return asdict(note)


def _track(track: Track) -> dict[str, Any]:
    return {
        "label": track_label(track),
        "process_label": process_label(track),
        "name": clean(track.name),
        "role": track.role,
        "rank": track.rank,
        "process": track.process,
        "process_name": track.process_name,
        "thread": track.thread,
        "device": track.device,
        "stream": track.stream,
    }
