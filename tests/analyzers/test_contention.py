"""A pool of compute threads larger than the cores is told by what the kernel counts per thread."""

from __future__ import annotations

import pytest

from stallscope.analyzers import RULES, analyze
from support.lanes import timeline

MAIN = {
    "name": "MainThread",
    "wall_ns": 4_000_000_000,
    "cpu_ns": 3_900_000_000,
    "run_queue_wait_ns": 20_000_000,
}
OPERATORS = " ".join(f"op:aten::mm@{start}..{start + 35}" for start in range(5, 1005, 40))
DRAWING = f"""
    host  counter:"thread run_queue_wait_ns"@0=0 counter:"thread run_queue_wait_ns"@1010=1000
    host  {OPERATORS}
"""


def worker(cpu_ms: int, wait_ms: int) -> dict[str, object]:
    return {
        "name": "python",
        "wall_ns": 2_000_000_000,
        "cpu_ns": cpu_ms * 10**6,
        "run_queue_wait_ns": wait_ms * 10**6,
    }


@pytest.mark.parametrize(
    ("workers", "found"),
    [
        ([worker(45, 120)] * 7, True),
        ([worker(120, 45)] * 7, False),  # they run longer than they wait
        ([worker(45, 120)] * 2, False),  # no more of them than cores
        ([worker(2, 10)] * 7, False),  # hardly used at all
        ([], False),
    ],
)
def test_more_compute_threads_than_cores(workers: list[dict[str, object]], found: bool) -> None:
    session = timeline(DRAWING, host={"usable_cores": 2}, host_threads=[MAIN, *workers])

    findings = analyze(session, {"HB104": RULES["HB104"]}).findings

    assert bool(findings) is found
    if found:
        assert "7 threads share 2 cores" in findings[0].title
        assert findings[0].recoverable_ns == 120_000_000
