"""Options and small steps that several commands share."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stallscope.profiler.errors import InputError, OptionError

if TYPE_CHECKING:
    from rich.console import Console

    from stallscope.analyzers.finding import Report
    from stallscope.profiler.session import Session

SEVERITIES = ("low", "medium", "high")


def output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--html, --json, --trace, --save, --force and --quiet."""
    for option in reversed(
        [
            click.option("--html", "html", is_flag=False, flag_value="", default=None, metavar="[FILE]",
                         help="Write the interactive report (default: NAME.html)."),
            click.option("--json", "json_", is_flag=False, flag_value="-", default=None, metavar="[FILE]",
                         help="Write the report as JSON (default: to standard output)."),
            click.option("--trace", "trace", is_flag=False, flag_value="", default=None, metavar="[FILE]",
                         help="Write a Chrome trace with the findings drawn in (default: NAME.trace.json.gz)."),
            click.option("--save", "save", is_flag=False, flag_value="", default=None, metavar="[DIR]",
                         help="Save the session for later (default: NAME.stallscope)."),
            click.option("--force", is_flag=True, help="Overwrite what exists."),
            click.option("-q", "--quiet", is_flag=True, help="No verdict on the terminal."),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def rule_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--select, --ignore and --fail-on."""
    for option in reversed(
        [
            click.option("--select", multiple=True, metavar="CODES", help="Only these rules or families (HB,SY201)."),
            click.option("--ignore", multiple=True, metavar="CODES", help="All but these rules or families."),
            click.option("--fail-on", type=click.Choice(SEVERITIES), default=None,
                         help="Exit with 1 if a finding is at least this severe."),
        ]
    ):  # fmt: skip
        function = option(function)
    return function


def stdout_console() -> Console:
    """Where a report is printed. That its reader went away is told to the command, which ends on it."""
    from rich.console import Console

    class Printer(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return Printer(highlight=False)


def stderr_console() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False)


@contextmanager
def progress(stages: int) -> Iterator[Callable[[str], None]]:
    """A progress bar over named stages, on stderr; silent where stderr is no terminal.

    >>> with progress(2) as stage:
    ...     stage("load")
    ...     stage("analyse")
    """
    if not sys.stderr.isatty():
        yield lambda _name: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=stderr_console(), transient=True) as bar:
        task = bar.add_task("", total=stages)
        started = False

        def stage(name: str) -> None:
            nonlocal started
            bar.update(task, description=name, advance=1 if started else 0)
            started = True

        yield stage


def stem(path: str | os.PathLike[str]) -> str:
    """The name outputs are called after: the file name without its known endings."""
    name = Path(path).name or "trace"
    for ending in (".gz", ".zip", ".json", ".pt.trace", ".trace", ".stallscope", ".db"):
        name = name.removesuffix(ending)
    return name or "trace"


def check_output(path: str, force: bool) -> Path:
    """A path we may write to. Raises before any long work if it exists or its folder does not."""
    target = Path(path)
    if not target.parent.exists():
        raise InputError(target, f"the folder {target.parent} does not exist", "Make it first.")
    if target.exists() and not force:
        raise InputError(target, "exists already", "Choose another name or pass --force.")
    return target


class Outputs:
    """What a command was asked to write, checked before the work starts and written after it."""

    def __init__(
        self,
        name: str,
        *,
        html: str | None,
        json_: str | None,
        trace: str | None,
        save: str | None,
        force: bool,
    ) -> None:
        self.force = force
        self.html = check_output(html or f"{name}.html", force) if html is not None else None
        self.trace = check_output(trace or f"{name}.trace.json.gz", force) if trace is not None else None
        self.save = check_output(save or f"{name}.stallscope", force) if save is not None else None
        self.json_to_stdout = json_ == "-"
        self.json = check_output(json_, force) if json_ not in (None, "-") else None

    @property
    def count(self) -> int:
        return sum(x is not None for x in (self.html, self.trace, self.save, self.json)) + self.json_to_stdout

    def write(self, session: Session, report: Report, stage: Callable[[str], None]) -> list[tuple[str, Path]]:
        """Write all of them; returns (what, where) for the closing lines."""
        written: list[tuple[str, Path]] = []
        if self.html:
            stage("write HTML")
            from stallscope.exporters import html

            html.export(session, report, self.html)
            written.append(("report", self.html))
        if self.trace:
            stage("write Chrome trace")
            from stallscope.exporters import chrome_trace

            chrome_trace.export(session, report, self.trace)
            written.append(("trace", self.trace))
        if self.save:
            stage("save session")
            try:
                written.append(("session", session.save(self.save, force=self.force)))
            except OSError as error:
                raise InputError(self.save, f"cannot be written ({error.strerror or error})") from error
        if self.json or self.json_to_stdout:
            stage("write JSON")
            written.extend(self._write_json(session, report))
        return written

    def _write_json(self, session: Session, report: Report) -> list[tuple[str, Path]]:
        from stallscope.exporters import json_report

        if self.json_to_stdout:
            click.echo(json_report.render(session, report))
            return []
        assert self.json is not None
        json_report.export(session, report, self.json)
        return [("JSON", self.json)]


def choose_rules(select: tuple[str, ...], ignore: tuple[str, ...]) -> Any:
    """The rules after --select, --ignore and the project's settings file."""
    from stallscope.analyzers.selection import select_rules

    return select_rules(_codes(select), _codes(ignore))


def _codes(values: tuple[str, ...]) -> list[str]:
    return [code.strip().upper() for value in values for code in value.split(",") if code.strip()]


def fail_status(report: Report, fail_on: str | None) -> int:
    """1 if a finding is at least as severe as `fail_on`, else 0."""
    if fail_on is None:
        return 0
    least = SEVERITIES.index(fail_on)
    return int(
        any(f.severity in SEVERITIES and SEVERITIES.index(f.severity) >= least for f in report.findings)
    )


def parse_range(text: str, what: str) -> tuple[str, str]:
    """Both ends of `A..B`; either may be empty."""
    first, dots, last = text.partition("..")
    if not dots:
        raise OptionError(f"{what} takes A..B, not {text!r}.")
    return first.strip(), last.strip()
