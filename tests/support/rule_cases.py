"""The drawn cases of the rules, from sample_traces/rules/<code>.toml, and how a finding is compared with one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from stallscope.analyzers.finding import Finding

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FOLDER = Path(__file__).resolve().parents[2] / "sample_traces" / "rules"


def cases(code: str) -> list[dict[str, Any]]:
    """The cases drawn for one rule; none if it has no file."""
    path = FOLDER / f"{code}.toml"
    return list(tomllib.loads(path.read_text(encoding="utf-8"))["case"]) if path.exists() else []


def seen(finding: Finding) -> dict[str, Any]:
    """What a case may say about a finding."""
    return {
        "code": finding.code,
        "lost_us": finding.lost_ns / 1000,
        "recoverable_us": finding.recoverable_ns / 1000,
        "python": finding.where.python,
        "operator": finding.where.operator,
        "kernel": finding.where.kernel,
        "phase": finding.phase,
        "confidence": finding.confidence,
        "title": finding.title,
    }
