"""`stallscope whatif`: what a change would save, by replaying the recording."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from stallscope.cli.options import progress
from stallscope.profiler.errors import InputError, OptionError


@click.command("whatif")
@click.argument("path", type=click.Path())
@click.option("--remove-sync", is_flag=True, help="No call waits for the device any more.")
@click.option("--graph-decode", is_flag=True, help="Each decode step is one graph launch.")
@click.option(
    "--speedup",
    multiple=True,
    metavar="kernel=REGEX:FACTOR",
    help="Kernels that match become FACTOR times faster.",
)
@click.option(
    "--host",
    type=float,
    default=None,
    metavar="FACTOR",
    help="Host work takes FACTOR of its time (0.5: half).",
)
@click.option("--json", "as_json", is_flag=True, help="As JSON.")
def command(path: str, remove_sync: bool, graph_decode: bool, speedup: tuple[str, ...], host: float | None,
            as_json: bool) -> None:  # fmt: skip
    """Predict what changes to the run recorded in PATH would save, each alone and all together."""
    if not (remove_sync or graph_decode or speedup or host is not None):
        raise click.UsageError("Name a change: --remove-sync, --graph-decode, --speedup or --host.")
    if host is not None and not 0 <= host <= 10:
        raise OptionError("--host takes a factor between 0 and 10.")
    wanted = [_speedup(text) for text in speedup]
    from stallscope.analyzers.registry import NotAnalysable
    from stallscope.analyzers.run import Run
    from stallscope.analyzers.whatif import WhatIf, combined
    from stallscope.profiler.readers import load

    with progress(2) as stage:
        stage("read")
        run = Run(load(Path(path)))
        stage("replay")
        try:
            model = WhatIf(run)
            changes: list[tuple[str, Any]] = []
            if remove_sync:
                changes.append(("no waits for the device", model.remove_waits()))
            if graph_decode:
                name = "decode steps" if any(s.phase == "decode" for s in run.steps) else "steps"
                changes.append((f"{name} as graphs", model.graph_steps()))
            if host is not None:
                changes.append((f"host work at {host:g} of its time", model.scale_host(host)))
            for pattern, factor in wanted:
                changes.append(
                    (f"kernels {pattern} {factor:g} times faster", model.speed_up(pattern, factor))
                )
        except NotAnalysable as reason:
            raise InputError(path, f"cannot be replayed: {reason}") from None
        if len(changes) > 1:
            changes.append(("all of these", combined([change for _, change in changes])))
        predictions = [model.predict(name, change) for name, change in changes]
    if as_json:
        click.echo(
            json.dumps(
                {"schema": "stallscope.whatif/1", "predictions": [asdict(p) for p in predictions]}, indent=1
            )
        )
        return
    _print(predictions)


def _speedup(text: str) -> tuple[str, float]:
    pattern, colon, factor = text.removeprefix("kernel=").rpartition(":")
    try:
        value = float(factor)
    except ValueError:
        value = 0.0
    if not colon or not pattern or value <= 0:
        raise OptionError(f"--speedup takes kernel=REGEX:FACTOR, such as kernel=gemm:1.5, not {text!r}.")
    return pattern, value


def _print(predictions: list[Any]) -> None:
    from stallscope.analyzers.units import duration

    first = predictions[0]
    click.echo(
        f"recorded {duration(first.recorded_ns)}; replaying it unchanged misses that by {100 * first.model_error:.1f} %"
    )
    width = max(len(p.change) for p in predictions)
    for p in predictions:
        step = f", {duration(p.per_step_ns)} a step" if p.per_step_ns is not None else ""
        share = 100 * p.gain_ns / p.recorded_ns if p.recorded_ns else 0.0
        click.echo(
            f"{p.change:<{width}}  {duration(p.predicted_ns)}  saves up to {duration(p.gain_ns)} ({share:.1f} %){step}"
        )
