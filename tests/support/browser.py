"""A Chromium for tests of the page; tests skip with a reason where there is none."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-dev-shm-usage",
]


def executable() -> str | None:
    """Debian's Chromium, or the one STALLSCOPE_CHROMIUM names."""
    named = os.environ.get("STALLSCOPE_CHROMIUM")
    return (
        named or shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    )


@contextmanager
def chromium() -> Iterator[Any]:
    """A running browser."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        pytest.skip("no Playwright here (pip install playwright)")
    found = executable()
    if found is None:
        pytest.skip("no Chromium here (apt-get install chromium, or set STALLSCOPE_CHROMIUM)")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        try:
            yield browser
        finally:
            browser.close()
