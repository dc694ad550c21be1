"""`stallscope analyze`: a verdict on traces that this or another profiler wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click

from stallscope.cli.options import (
    Outputs,
    choose_rules,
    fail_status,
    output_options,
    progress,
    rule_options,
    stdout_console,
    stem,
)
from stallscope.profiler.errors import InputError, StallscopeError


@click.command("analyze")
@click.argument("paths", nargs=-1, metavar="TRACE...", type=click.Path())
@output_options
@rule_options
@click.option(
    "--window", metavar="A..B", help="Only this part, from the start of the trace (10s..12.5s, 300ms..)."
)
@click.option("--steps", metavar="A..B", help="Only these steps (5..8, counted from 0, both included).")
@click.option(
    "--companion",
    metavar="FILE",
    type=click.Path(),
    default=None,
    help="A recording of the graph's capture, or of a run without graphs: names the kernels of graph replays.",
)
@click.option("--rank", type=int, default=None, help="Only this rank of a trace of many.")
@click.pass_context
def command(ctx: click.Context, /, paths: tuple[str, ...], **options: Any) -> None:
    """Analyse TRACE: a file or folder from torch.profiler, torch_npu, msprof, or a saved session.

    Prints the verdict. Several traces are analysed one after the other; a folder of traces counts as
    all the traces in it.
    """
    paths = _swallowed_by_json(paths, options)
    if not paths:
        raise click.UsageError("Missing argument 'TRACE...'.")
    groups = [_expand(path, options["rank"]) for path in paths]
    traces = [trace for group in groups for trace in group]
    if len(traces) == 1:
        ctx.exit(_analyze_one(traces[0], options))
    # what was named is asked for; what merely lies in a folder may be anything
    ctx.exit(_analyze_many(traces, options, named={group[0] for group in groups if len(group) == 1}))


def _swallowed_by_json(paths: tuple[str, ...], options: dict[str, Any]) -> tuple[str, ...]:
    """`analyze --json TRACE` means JSON on standard output, not a report written over the trace."""
    value = options["json_"]
    if not paths and value not in (None, "-") and Path(value).exists():
        options["json_"] = "-"
        return (value,)
    return paths


def _expand(name: str, rank: int | None) -> list[Path]:
    """The traces a path stands for: itself, or the trace files of a plain folder; of one rank, if one is asked for."""
    if not name:
        raise InputError("''", "no file name")
    path = Path(name)
    if not os.path.isdir(path):  # never raises: the reader says what is wrong with a name
        return [path]
    from stallscope.profiler.readers import reader_of
    from stallscope.profiler.session import is_session

    if is_session(path) or reader_of(path) is not None:
        return [path]
    files = sorted(p for p in path.iterdir() if p.is_file() and p.suffix in (".json", ".gz", ".zip"))
    if not files:
        raise InputError(
            path, "a folder without a trace in it", "Name a trace file or a profiler's output folder."
        )
    if rank is not None:
        from stallscope.profiler.readers.partial import files_of_rank

        return files_of_rank(files, rank)
    return files


def _analyze_one(path: Path, options: dict[str, Any]) -> int:
    outputs = Outputs(stem(path), **{k: options[k] for k in ("html", "json_", "trace", "save", "force")})
    rules = choose_rules(options["select"], options["ignore"])
    session, report, written = _work(path, outputs, rules, options)
    if not options["quiet"] and not outputs.json_to_stdout:
        _print(session, report, written)
    if len(session.timeline) == 0 and not session.facts.get("tables_only"):
        raise InputError(path, "no events in it", "Was anything running in the profiling window?")
    return fail_status(report, options["fail_on"])


def _work(path: Path, outputs: Outputs, rules: Any, options: dict[str, Any]) -> tuple[Any, Any, Any]:
    from stallscope.analyzers import analyze
    from stallscope.profiler.readers import load
    from stallscope.profiler.readers.partial import load_part

    with progress(2 + (options["companion"] is not None) + outputs.count) as stage:
        stage(f"read {path.name}")
        session = load_part(path, **{k: options[k] for k in ("window", "steps", "rank")})
        companion = None
        if options["companion"] is not None:
            stage(f"read {Path(options['companion']).name}")
            companion = load(Path(options["companion"]))
        stage("analyse")
        report = analyze(session, rules, companion)
        return session, report, outputs.write(session, report, stage)


def _print(session: Any, report: Any, written: list[tuple[str, Path]]) -> None:
    from stallscope.exporters import terminal

    terminal.render(session, report, stdout_console())
    for what, where in written:
        click.echo(f"{what}: {where}")


def _analyze_many(traces: list[Path], options: dict[str, Any], named: set[Path]) -> int:
    """Each trace on its own; one that cannot be read costs only itself, and the exit status if it was named."""
    for name in ("html", "json_", "trace", "save"):
        if options[name] not in (None, "", "-"):
            raise click.UsageError(
                f"--{name.strip('_')} takes no file name for several traces; leave the name out."
            )
    status, good, failed = 0, 0, 0
    for path in traces:
        try:
            if not options["quiet"] and options["json_"] is None:
                click.echo(f"== {path}")
            status = max(status, _analyze_one(path, options))
            good += 1
        except StallscopeError as error:
            click.echo(f"stallscope: {error}", err=True)
            if path in named:
                failed = error.exit_code
    if good == 0:
        raise InputError(traces[0].parent, f"none of the {len(traces)} files could be analysed")
    return failed or status


__all__ = ["command"]
