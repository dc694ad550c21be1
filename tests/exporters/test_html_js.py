"""The page's pure helpers under Node, where it is installed."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

TESTS = Path(__file__).parent / "js" / "format.test.js"


def test_helpers_of_the_page() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("no Node here: the page's helpers are tested in a browser only")
    done = subprocess.run(
        [node, "--test", str(TESTS)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert "# fail 0" in done.stdout or "fail 0" in done.stdout
    assert "pass 0" not in done.stdout
