"""`stallscope explain`: one rule's page."""

from __future__ import annotations

import dataclasses

import click

from stallscope.profiler.errors import OptionError


@click.command("explain")
@click.argument("code")
def command(code: str) -> None:
    """Explain the rule CODE (HB101, or its name): what it finds, why it costs time, what to try."""
    from stallscope.analyzers import RULES

    by_name = {rule.name: rule for rule in RULES.values()}
    rule = RULES.get(code.upper()) or by_name.get(code.lower())
    if rule is None:
        raise OptionError(f"There is no rule {code!r}. The rules: {', '.join(RULES)}.")
    click.echo(f"{rule.code} {rule.name}\n\n{rule.doc}\n")
    if rule.needs:
        click.echo(f"Needs: {', '.join(sorted(rule.needs))}\n")
    fields = dataclasses.fields(rule.limits)
    if fields:
        click.echo("Limits:")
    for spec in fields:
        unit = f" {spec.metadata['unit']}" if spec.metadata["unit"] else ""
        source = f" Source: {spec.metadata['source']}." if spec.metadata.get("source") else ""
        click.echo(
            f"  {spec.name} = {getattr(rule.limits, spec.name):g}{unit}\n      {spec.metadata['help']}{source}"
        )
