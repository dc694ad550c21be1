"""Turns a report into something a person or a tool reads; computes and decides nothing.

EXPORTERS is the one table of exporters. A module in it has NAME, SUFFIX and
`export(session, report, out)`, and is imported when it is used.
"""

from __future__ import annotations

import os
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from stallscope.profiler.errors import OptionError

if TYPE_CHECKING:
    from stallscope.analyzers.finding import Report
    from stallscope.profiler.session import Session

__all__ = ["EXPORTERS", "SUFFIXES", "Exporter", "exporter", "exporter_for"]


class Exporter(Protocol):
    """What an exporter module offers."""

    NAME: str
    SUFFIX: str

    def export(self, session: Session, report: Report, out: Path) -> None:
        """Write the whole output to `out`. Raises InputError where it cannot be written."""


EXPORTERS: dict[str, str] = {
    "html": "stallscope.exporters.html",
    "json": "stallscope.exporters.json_report",
    "chrome": "stallscope.exporters.chrome_trace",
    "text": "stallscope.exporters.terminal",
}
"""Name -> module."""

SUFFIXES: dict[str, str] = {
    ".html": "html",
    ".trace.json.gz": "chrome",
    ".trace.json": "chrome",
    ".json.gz": "chrome",
    ".json": "json",
    ".txt": "text",
}
"""Ending of an output file -> exporter; of several that fit the longest counts."""


def exporter(name: str) -> Exporter:
    """The exporter of that name. Raises OptionError for one there is not."""
    if name not in EXPORTERS:
        raise OptionError(f"no exporter {name!r}. There are: {', '.join(EXPORTERS)}.")
    return cast("Exporter", import_module(EXPORTERS[name]))


def exporter_for(path: str | os.PathLike[str]) -> Exporter:
    """The exporter an output file's name asks for. Raises OptionError where it asks for none."""
    file = Path(path).name.lower()
    fitting = [ending for ending in SUFFIXES if file.endswith(ending)]
    if not fitting:
        raise OptionError(f"{file}: no exporter writes such a file. Known endings: {', '.join(SUFFIXES)}.")
    return exporter(SUFFIXES[max(fitting, key=len)])
