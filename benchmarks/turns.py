"""What several steps on one made trace cost, each in a process of its own, in turns.

A benchmark names its steps (functions `step_...` that take paths or texts) and hands its command line to `run`.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent

Steps = Mapping[str, Callable[..., None]]


def steps_in(module: dict[str, Any]) -> Steps:
    """The functions `step_NAME` of a module's globals, by NAME."""
    return {name[5:]: f for name, f in module.items() if name.startswith("step_")}


def arguments(doc: str | None, steps: Steps, *, rounds: int) -> argparse.Namespace | None:
    """The options of the command line; None where it asked for one step, which then has run."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--size", type=int, default=1400, help="megabytes of JSON to make")
    parser.add_argument(
        "--keep", type=Path, help="keep the made trace in this file, and use it if it is there"
    )
    parser.add_argument("--rounds", type=int, default=rounds)
    parser.add_argument("--step", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        steps[options.step[0]](*options.step[1:])
        return None
    return options


def made(options: argparse.Namespace, folder: Path) -> tuple[Path, int]:
    """The trace to measure with, and its number of events."""
    path: Path = options.keep or folder / "made.json.gz"
    note = path.with_name(path.name.removesuffix(".json.gz") + ".count")
    if not (path.exists() and note.exists()):
        command = [sys.executable, HERE / "load.py", "--make", path, "--size", options.size, *options.traces]
        subprocess.run([str(word) for word in command], check=True)
    return path, int(note.read_text().split()[0])


def measured(
    script: str, steps: Steps, rounds: int, *inputs: Path | str
) -> tuple[dict[str, dict[str, float]], dict[str, str]]:
    """Run each step with these inputs, all steps in each round: the median of each figure, and what each step said."""
    from load import measure

    runs: dict[str, list[dict[str, float]]] = {name: [] for name in steps}
    said = dict.fromkeys(steps, "")
    for _ in range(rounds):
        for name in steps:
            result = measure([sys.executable, script, "--step", name, *map(str, inputs)])
            said[name] = str(result.pop("said"))
            runs[name].append(result)
    return {n: {k: statistics.median(r[k] for r in rs) for k in rs[0]} for n, rs in runs.items()}, said
