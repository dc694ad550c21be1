"""`stallscope export`: the timeline as a Chrome trace that opens in Perfetto without a dropped slice."""

from __future__ import annotations

from pathlib import Path

import click

from stallscope.cli.options import check_output, progress, stem


@click.command("export")
@click.argument("path", type=click.Path())
@click.option(
    "-o", "--output", metavar="FILE", help="Where to write (.json or .json.gz; default NAME.trace.json.gz)."
)
@click.option("--force", is_flag=True, help="Overwrite what exists.")
def command(path: str, output: str | None, force: bool) -> None:
    """Write PATH, with its findings drawn in, as a Chrome trace.

    Repairs what viewers trip over: overlapping slices get lanes of their own, times keep their
    nanoseconds, ids become small, arrows bind to the right slice.
    """
    from stallscope.analyzers import analyze
    from stallscope.exporters import chrome_trace
    from stallscope.profiler.readers import load

    target = check_output(output or f"{stem(path)}.trace.json.gz", force)
    with progress(3) as stage:
        stage("read")
        session = load(Path(path))
        stage("analyse")
        report = analyze(session)
        stage("write")
        chrome_trace.export(session, report, target)
    click.echo(f"trace: {target} (open it at ui.perfetto.dev or chrome://tracing)")
