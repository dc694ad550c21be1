"""What is on disk, what pyproject.toml lists and what a wheel holds agree."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).parent.parent
FOLDERS = ("profiler", "analyzers", "exporters", "cli")


def config() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def test_every_package_on_disk_is_listed() -> None:
    listed = set(config()["tool"]["setuptools"]["packages"])
    on_disk = {"stallscope"} | {
        "stallscope." + ".".join(init.parent.relative_to(ROOT).parts)
        for folder in FOLDERS
        for init in (ROOT / folder).rglob("__init__.py")
    }

    assert listed == on_disk


def test_every_folder_with_modules_is_a_package() -> None:
    with_modules = {path.parent for folder in FOLDERS for path in (ROOT / folder).rglob("*.py")}

    assert {str(p) for p in with_modules if not (p / "__init__.py").exists()} == set()


@pytest.mark.parametrize("folder", FOLDERS)
def test_signpost_points_to_the_root_folder(folder: str) -> None:
    link = ROOT / "src" / "stallscope" / folder
    if not link.is_symlink():
        pytest.skip("this checkout has no symbolic links (Windows or a zip download)")

    assert link.resolve() == ROOT / folder


def test_core_dependencies_stay_small() -> None:
    core = {d.split(">")[0].split(";")[0].strip() for d in config()["project"]["dependencies"]}

    assert core <= {"click", "rich", "numpy", "pandas", "plotly", "pyarrow", "msgspec", "isal", "tomli"}
