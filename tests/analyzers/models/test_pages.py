"""The pages on models and chips are what the tables say."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from stallscope.analyzers.models.chips import CHIPS
from stallscope.analyzers.models.cost import MODELS

DOCS = Path(__file__).resolve().parents[3] / "docs"


def pages() -> dict[str, str]:
    spec = importlib.util.spec_from_file_location("build_models", DOCS / "build_models.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: dict[str, str] = module.pages()
    return made


@pytest.mark.parametrize("name", ["reference/models.md", "reference/chips.md"])
def test_pages_are_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], "run: make docs"


def test_every_model_and_chip_has_its_line() -> None:
    made = pages()
    assert all(f"`{name}`" in made["reference/models.md"] for name in MODELS)
    assert all(f"| {chip.name} |" in made["reference/chips.md"] for chip in CHIPS)


def test_every_model_says_what_it_counts() -> None:
    for name, model in MODELS.items():
        assert (model.__doc__ or "").strip(), name
