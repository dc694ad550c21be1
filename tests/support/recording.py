"""Runs a target under plain Python and under `stallscope run`, to be compared."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stallscope.profiler.session import Session


@dataclass(frozen=True)
class Ended:
    """How a process ended, and what it wrote."""

    status: int
    out: str
    err: str


def environment(**changes: str) -> dict[str, str]:
    """Ours, without what a coverage run or another recording would add to children."""
    env = {
        k: v for k, v in os.environ.items() if not k.startswith(("STALLSCOPE_", "COVERAGE_", "PYTHONPATH"))
    }
    return {**env, "PYTHONDONTWRITEBYTECODE": "1", **changes}


def plain(target: Sequence[str], cwd: Path, stdin: str = "", **env: str) -> Ended:
    """`python TARGET`."""
    return _run([sys.executable, *target], cwd, stdin, environment(**env))


def recorded(
    target: Sequence[str], cwd: Path, stdin: str = "", options: Sequence[str] = (), **env: str
) -> Ended:
    """`stallscope run -q TARGET`; the session lands in `cwd/run.stallscope`."""
    command = [
        sys.executable,
        "-m",
        "stallscope",
        "run",
        "-q",
        "--no-report",
        "--force",
        "-o",
        "run.stallscope",
    ]
    return _run([*command, *options, *target], cwd, stdin, environment(**env))


def session_of(cwd: Path) -> Session:
    """The session the last `recorded` left."""
    return Session.load(cwd / "run.stallscope")


def _run(command: Sequence[str], cwd: Path, stdin: str, env: dict[str, str]) -> Ended:
    done = subprocess.run(
        command, cwd=cwd, input=stdin, capture_output=True, text=True, env=env, timeout=120, check=False
    )
    return Ended(done.returncode, done.stdout, re.sub(r"\(pid=\d+\)", "(pid=N)", done.stderr))
