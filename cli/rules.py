"""`stallscope rules`: the table of rules."""

from __future__ import annotations

import json

import click


@click.command("rules")
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(as_json: bool) -> None:
    """List the rules: code, name, what each finds."""
    from stallscope.analyzers import RULES

    if as_json:
        rows = [
            {"code": r.code, "name": r.name, "summary": r.summary, "needs": sorted(r.needs)}
            for r in RULES.values()
        ]
        click.echo(json.dumps(rows, indent=1))
        return
    width = max((len(r.name) for r in RULES.values()), default=0)
    for rule in RULES.values():
        click.echo(f"{rule.code}  {rule.name:<{width}}  {rule.summary}")
    click.echo("\nstallscope explain CODE tells more about one.")
