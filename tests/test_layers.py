"""Imports point one way: profiler <- analyzers <- exporters <- cli."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ORDER = ["profiler", "analyzers", "exporters", "cli"]


def imported_modules(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names


@pytest.mark.parametrize("folder", ORDER)
def test_a_folder_imports_only_what_comes_before_it(folder: str) -> None:
    later = set(ORDER[ORDER.index(folder) + 1 :])

    wrong = {
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (ROOT / folder).rglob("*.py")
        for name in imported_modules(path)
        if name.startswith("stallscope.") and name.split(".")[1] in later
    }

    assert wrong == set()


HEAVY = ["pandas", "plotly", "pyarrow", "torch", "rich", "numpy"]


def modules_after(code: str) -> set[str]:
    listing = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name.split(".")[0] for name in listing.stdout.split()}


@pytest.mark.parametrize("code", ["import stallscope", "from stallscope import record, mark"])
def test_the_package_imports_nothing_heavy(code: str) -> None:
    assert modules_after(code) & set(HEAVY) == set()


def test_help_imports_nothing_heavy() -> None:
    code = "from click.testing import CliRunner; from stallscope.cli.main import cli; CliRunner().invoke(cli, ['-h'])"

    assert modules_after(code) & set(HEAVY) == set()
