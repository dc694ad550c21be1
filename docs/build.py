"""Write every generated page; with --check, only say which are stale (and exit 1)."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
GENERATORS = ["build_cli", "build_rules", "build_models"]
"""Modules beside this one, each with `pages() -> {path below docs: text}`."""


def pages_of(name: str) -> dict[str, str]:
    """The pages one generator makes."""
    spec = importlib.util.spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages: Callable[[], dict[str, str]] = module.pages
    return pages()


def stale(pages: dict[str, str]) -> list[str]:
    """Names of pages that are missing or differ on disk."""
    return [
        name
        for name, text in pages.items()
        if not (HERE / name).is_file() or (HERE / name).read_text(encoding="utf-8") != text
    ]


def main(check: bool) -> int:
    status = 0
    for generator in GENERATORS:
        pages = pages_of(generator)
        for name in stale(pages):
            status = 1
            print(f"docs/{name} {'is stale; run: make docs' if check else 'written'}")
            if not check:
                (HERE / name).parent.mkdir(parents=True, exist_ok=True)
                (HERE / name).write_text(pages[name], encoding="utf-8")
    return status if check else 0


if __name__ == "__main__":
    sys.exit(main("--check" in sys.argv))
