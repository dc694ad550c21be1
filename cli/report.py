"""`stallscope report`: the report of a saved session or trace, in the form its file name asks for."""

from __future__ import annotations

from pathlib import Path

import click

from stallscope.cli.options import check_output, choose_rules, progress, rule_options, stdout_console, stem
from stallscope.profiler.errors import OptionError


@click.command("report")
@click.argument("path", type=click.Path())
@click.option(
    "-o", "--output", metavar="FILE", help="Where to write (.html or .json; default NAME.html; - is text)."
)
@click.option("--force", is_flag=True, help="Overwrite what exists.")
@rule_options
def command(path: str, output: str | None, force: bool, select: tuple[str, ...], ignore: tuple[str, ...],
            fail_on: str | None) -> None:  # fmt: skip
    """Make the report of PATH, a saved session or any trace that `analyze` reads."""
    from stallscope.analyzers import analyze
    from stallscope.cli.options import fail_status
    from stallscope.exporters import html, json_report, terminal
    from stallscope.profiler.readers import load

    target = None
    if output != "-":
        target = check_output(output or f"{stem(path)}.html", force)
        if target.suffix not in (".html", ".json"):
            raise OptionError(
                f"{target}: reports end in .html or .json; for a Chrome trace use stallscope export."
            )
    rules = choose_rules(select, ignore)
    with progress(3) as stage:
        stage("read")
        session = load(Path(path))
        stage("analyse")
        report = analyze(session, rules)
        stage("write")
        if target is not None:
            (html if target.suffix == ".html" else json_report).export(session, report, target)
    if target is None:
        terminal.render(session, report, stdout_console())
    else:
        click.echo(f"report: {target}")
    click.get_current_context().exit(fail_status(report, fail_on))
