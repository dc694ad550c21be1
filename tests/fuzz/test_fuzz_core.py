"""A short run of the fuzzers with address and undefined-behaviour sanitizers; README.md has the long one."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FLAGS = ["-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DARG_STATES=16"]


def build(compiler: str, flags: list[str], out: Path) -> str:
    """Build the fuzzer; the compiler's complaint if it cannot, else ""."""
    if shutil.which(compiler) is None:
        return f"{compiler} is not installed"
    command = [compiler, *flags, "-o", str(out), str(HERE / "fuzz_core.c")]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:  # for want of sanitizers, not because the fuzzer does not fit the core
        plain = [compiler, "-fsyntax-only", "-DSTANDALONE", str(HERE / "fuzz_core.c")]
        subprocess.run(plain, check=True)
    return "" if done.returncode == 0 else f"{compiler} cannot build with sanitizers: {done.stderr[-300:]}"


def run(*command: str, cwd: Path) -> str:
    done = subprocess.run(
        command,
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "ASAN_OPTIONS": "quarantine_size_mb=8:hard_rss_limit_mb=512"},
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, output[-3000:]
    return output


def test_random_mutations(tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    problem = build("cc", [*FLAGS, "-DSTANDALONE"], program)
    if problem:
        pytest.skip(problem)
    assert "30000 inputs" in run(str(program), "30000", cwd=tmp_path)


def test_coverage_guided(tmp_path: Path) -> None:
    program = tmp_path / "fuzz"
    problem = build("clang", [*FLAGS, "-fsanitize=fuzzer"], program)
    if problem:
        pytest.skip(problem)
    (tmp_path / "corpus").mkdir()
    # libFuzzer's own limit reads the peak that a child inherits from whoever started it: here all of the
    # test process. The sanitizer's limit above reads what this process holds.
    limits = ["-max_len=600", "-rss_limit_mb=0", "-malloc_limit_mb=200", "-runs=15000", "-seed=1"]
    seeds = str(HERE / "seeds")
    output = run(str(program), f"-dict={HERE / 'words.dict'}", *limits, "corpus", seeds, cwd=tmp_path)
    assert "Done 15000 runs" in output
