"""Every exporter of the table: the promised names, found by them and by file endings, fed one report."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.analyzers.finding import Report
from stallscope.exporters import EXPORTERS, SUFFIXES, exporter, exporter_for
from stallscope.profiler.errors import OptionError
from stallscope.profiler.session import Session


@pytest.mark.parametrize("name", EXPORTERS)
def test_every_exporter_writes_the_small_report(
    name: str, small_session: Session, small_report: Report, tmp_path: Path
) -> None:
    module = exporter(name)
    out = tmp_path / f"report{module.SUFFIX}"
    module.export(small_session, small_report, out)
    first = out.read_bytes()
    assert name == module.NAME and len(first) > 100
    assert exporter_for(out) is module
    module.export(small_session, small_report, out)
    assert out.read_bytes() == first


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("a.json", "json"),
        ("a.JSON.GZ", "chrome"),
        ("a.trace.json", "chrome"),
        ("x.html", "html"),
        ("x.txt", "text"),
    ],
)
def test_a_file_name_chooses_its_exporter(file: str, name: str) -> None:
    assert name == exporter_for(file).NAME


def test_unknown_names_and_endings_say_what_there_is() -> None:
    with pytest.raises(OptionError, match="html, json, chrome, text"):
        exporter("pdf")
    with pytest.raises(OptionError, match=r"\.trace\.json"):
        exporter_for("report.pdf")
    assert set(SUFFIXES.values()) == set(EXPORTERS)
