"""`stallscope doctor`: what can be recorded here, and what is missing."""

from __future__ import annotations

import click


@click.command("doctor")
def command() -> None:
    """Say what can be recorded on this machine, and what is missing for the rest."""
    from stallscope.profiler.doctor import examine

    marks = {"ok": "ok     ", "missing": "-      ", "problem": "PROBLEM"}
    for check in examine():
        click.echo(f"{marks[check.status]}  {check.name}: {check.text}")
        if check.next_step:
            click.echo(f"           {check.next_step}")
