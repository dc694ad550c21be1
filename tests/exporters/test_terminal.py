"""The verdict on a terminal: a snapshot, narrow and plain terminals, and names that try to steer it."""

from __future__ import annotations

import dataclasses
import re
from io import BytesIO, StringIO, TextIOWrapper
from pathlib import Path

import pytest
from rich.console import Console

from stallscope.analyzers import analyze
from stallscope.analyzers.finding import Finding, KernelTotal, Report, RuleOutcome, Verdict, Where
from stallscope.exporters import exporter, terminal
from stallscope.profiler.notes import Note
from stallscope.profiler.readers import load
from stallscope.profiler.session import Session
from support.lanes import timeline

SNAPSHOT = Path(__file__).parent / "snapshots" / "terminal.txt"


def shown(session: Session, report: Report, width: int = 80) -> str:
    page = StringIO()
    console = Console(file=page, width=width, color_system=None, force_terminal=False)
    terminal.render(session, report, console, next_steps=["open small.html"])
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines()) + "\n"


def test_steps_show_the_time_that_the_verdict_speaks_of(small_session: Session) -> None:
    report = analyze(small_session)
    row = next(r for r in report.tables["phases"] if r["phase"] == "decode")
    assert (
        row["step_time_ns"] == 100_000
    )  # from the start of one step to the next; the shorter one lasts 50 us
    assert "a step" in report.verdict.text
    line = next(x for x in shown(small_session, report).splitlines() if x.startswith("  decode"))
    assert line.split()[1:6] == ["2", "100", "us", "50.0", "us"]


def test_the_page_equals_its_snapshot(small_session: Session, small_report: Report) -> None:
    text = shown(small_session, small_report)
    assert text.replace(text.splitlines()[0], text.splitlines()[0].replace("0.1.0", "VERSION")) == (
        SNAPSHOT.read_text(encoding="utf-8")
    )


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_line_is_wider_than_the_terminal(small_session: Session, small_report: Report, width: int) -> None:
    small_report.kernels.append(KernelTotal("void at::native::" + "elementwise<" * 30, 3, 1))
    small_report.findings[0] = dataclasses.replace(small_report.findings[0], title="long " * 40)
    text = shown(small_session, small_report, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert small_report.verdict.text.split()[0] in text


@pytest.mark.parametrize(
    "evil", ["[bold]x[/bold]", "[/]", "[link=http://x]y", "a\x1b[31mb", ":skull:", "x\r\ny"]
)
def test_names_cannot_steer_the_terminal(small_session: Session, small_report: Report, evil: str) -> None:
    small_report.verdict = Verdict(f"verdict {evil}", (f"line {evil}",))
    small_report.kernels = [KernelTotal(f"k {evil}", 1, 5)]
    small_report.findings = [
        Finding("HB101", "n", f"t {evil}", 1, 1, where=Where(evil, evil, evil), detail=evil, advice=evil)
    ]
    small_report.rules = [RuleOutcome("MB301", "n", "not_analysable", evil)]
    small_report.notes = [Note("n", "warning", evil)]
    small_report.facts = {"source": evil}
    small_report.devices = [dataclasses.replace(small_report.devices[0], name=evil)]
    page = StringIO()
    terminal.render(small_session, small_report, Console(file=page, width=120, color_system=None))
    text = page.getvalue()
    assert "\x1b" not in text and "\r" not in text
    plain = evil.replace("\x1b", " ").replace("\r\n", "  ")
    assert text.count(plain) >= 8


def test_colour_is_only_an_addition(small_session: Session, small_report: Report) -> None:
    page = StringIO()
    console = Console(file=page, width=80, color_system="truecolor", force_terminal=True)
    terminal.render(small_session, small_report, console, next_steps=["open small.html"])
    bare = Console(file=StringIO(), width=80, color_system=None)
    from rich.text import Text

    assert "\x1b[" in page.getvalue()
    assert Text.from_ansi(page.getvalue()).plain.split() == shown(small_session, small_report).split()
    assert bare.options.ascii_only is False


def test_a_terminal_without_utf8_gets_ascii(small_session: Session, small_report: Report) -> None:
    small_report.kernels.append(KernelTotal("kernel_ü" * 30, 1, 1))
    raw = BytesIO()
    console = Console(file=TextIOWrapper(raw, encoding="ascii"), width=80, color_system=None)
    terminal.render(small_session, small_report, console)
    console.file.flush()
    text = raw.getvalue().decode("ascii")
    assert "kernel_?" in text and "HB101" in text and "###" in text


def test_what_is_not_there_is_not_shown(small_session: Session, small_report: Report) -> None:
    empty = dataclasses.replace(
        small_report, devices=[], kernels=[], steps=[], findings=[], notes=[], rules=[], tables={}
    )
    text = shown(small_session, empty)
    for heading in ("Devices", "Steps", "Top", "Rules", "Notes"):
        assert heading not in text
    assert "no rule could be answered" in text


def test_many_devices_and_findings_are_counted(small_session: Session, small_report: Report) -> None:
    small_report.devices = [dataclasses.replace(small_report.devices[0], id=i) for i in range(11)]
    small_report.findings = small_report.findings * 4
    small_report.notes = [Note(f"n{i}", "info", f"note {i}") for i in range(9)]
    text = shown(small_session, small_report)
    assert (
        "and 3 more devices" in text
        and "and 3 more; --html" in text
        and "and 6 more of severity info" in text
    )
    assert "idle 7" in text and "python 61.4 %, sync 22.7 %" in text


def test_operators_stand_in_for_kernels(small_session: Session, small_report: Report) -> None:
    small_report.kernels = []
    assert "Top operators" in shown(small_session, small_report)


def test_the_text_file_holds_the_page(small_session: Session, small_report: Report, tmp_path: Path) -> None:
    terminal.export(small_session, small_report, tmp_path / "page.txt")
    assert "HB101" in (tmp_path / "page.txt").read_text(encoding="utf-8")


def test_nothing_at_all_is_still_a_page() -> None:
    empty = timeline("host")
    assert "Findings" in shown(empty, analyze(empty))


@pytest.mark.shared
def test_a_real_trace_fits_the_terminal(shared: Path) -> None:
    session = load(shared / "cases" / "c19-pdl-overlap.json")
    text = shown(session, analyze(session))
    assert "moe_gemm_a" in text and max(len(line) for line in text.splitlines()) <= 80


@pytest.mark.parametrize("name", ["text", "html", "chrome"])
def test_devices_of_several_ranks_are_called_by_rank(name: str, tmp_path: Path) -> None:
    lanes = "".join(f"""
        rank{rank}.host     rt:aclrtLaunchKernel@10..14#{rank}1 rt:aclrtLaunchKernel@310..314#{rank}2
        rank{rank}.stream7  kernel:MatMulV3@20..280#{rank}1 kernel:MatMulV3@320..580#{rank}2
        """ for rank in (0, 3))  # fmt: skip
    session = timeline(lanes)
    report = analyze(session)
    report.tables["mixed"] = [{"device": 3000, "value": 1}, {"value": 2}]
    module = exporter(name)
    module.export(session, report, tmp_path / "out")
    text = (tmp_path / "out").read_bytes().decode().lower()
    assert "rank 3 device 0" in text and not re.search(r"device 3000|>3000<|idle 3000\b", text)


@pytest.mark.parametrize("width", [50, 60, 80])
def test_numbers_are_never_cut(width: int, small_session: Session, small_report: Report) -> None:
    told = shown(small_session, small_report, width=width)
    tables = told[told.index("Devices") : told.index("Findings")]

    assert "130 us" in tables
    assert "54.0 us" in tables
    for line in tables.splitlines():
        assert len(line) <= width
        assert "…" not in line.removeprefix("  ")[8:]
