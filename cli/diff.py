"""`stallscope diff`: what changed from one recording to another, and which cause went or came."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from stallscope.cli.options import progress

if TYPE_CHECKING:
    from stallscope.analyzers.diff import Difference
    from stallscope.analyzers.finding import Finding


@click.command("diff")
@click.argument("before", type=click.Path())
@click.argument("after", type=click.Path())
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(before: str, after: str, as_json: bool) -> None:
    """Say what changed from BEFORE to AFTER: device time, idle causes, findings that went or came.

    What BEFORE's findings predicted stands beside what was measured.
    """
    from stallscope.analyzers import analyze
    from stallscope.analyzers.diff import compare
    from stallscope.profiler.readers import load

    reports = []
    with progress(2) as stage:
        for path in (before, after):
            stage(f"analyse {Path(path).name}")
            reports.append(analyze(load(Path(path))))
    found = compare(reports[0], reports[1])
    if as_json:
        click.echo(json.dumps(_data(found), indent=1, ensure_ascii=False))
    else:
        _print(found)


def _data(found: Difference) -> dict[str, object]:
    rows = [asdict(r) | {"delta_ns": r.delta_ns} for r in (*found.rows, *found.groups)]
    return {
        "schema": "stallscope.diff/1",
        "text": found.text,
        "unit": found.unit,
        "comparable": found.comparable,
        "same_work": round(found.same_work, 4),
        "rows": rows,
        "gone": [_finding(f) for f in found.gone],
        "new": [_finding(f) for f in found.new],
    }


def _finding(finding: Finding) -> dict[str, object]:
    return {"code": finding.code, "title": finding.title, "recoverable_ns": finding.recoverable_ns}


def _print(found: Difference) -> None:
    from stallscope.analyzers.units import duration

    click.echo(found.text)
    click.echo(f"{100 * found.same_work:.0f} % of the kernel time is in kernels both have\n")
    width = max(len(r.name) for r in (*found.rows, *found.groups))
    for row in (*found.rows, *found.groups):
        sign = "+" if row.delta_ns > 0 else "-" if row.delta_ns < 0 else " "
        numbers = (
            f"{duration(row.before_ns):>9}  {duration(row.after_ns):>9}  {sign}{duration(abs(row.delta_ns))}"
        )
        click.echo(f"  {row.name:<{width}}  {numbers}")
    count = found.steps[0] if found.unit == "step" else 1
    for finding in found.gone:
        predicted = duration(finding.recoverable_ns // max(count, 1))
        click.echo(
            f"\ngone  {finding.code} {finding.title}\n      it promised up to {predicted} a {found.unit}"
        )
    for finding in found.new:
        click.echo(f"\nnew   {finding.code} {finding.title}")
