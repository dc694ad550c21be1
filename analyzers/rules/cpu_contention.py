"""The launching thread is ready to run but is kept from it: no core, or another thread holds the interpreter.

## What it finds
With a device: idle time during spans that usually take microseconds and now took a hundred times as long, and during
unusually long moments of Python code while another thread of the process was in Python; also stays in Python after a
call that gives the lock up, if time and again they end at the very moment at which another thread stops to run Python.
Without a device: the time the threads that execute operators waited for a core, as the kernel counts it (`stallscope run` records that), and pools
of compute threads larger than the cores, whose threads wait for a core longer than they run.

## Why it costs time
A launch that waits for a core, or for the interpreter lock, waits a whole time slice: milliseconds instead of
microseconds.

## What to try
Run fewer threads (`OMP_NUM_THREADS`, `torch.set_num_threads`), pin the launching process to cores of its own near the
device, move tokenizing, detokenizing and logging to another process, and lower the share of other jobs on the host.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from stallscope.analyzers import contention
from stallscope.analyzers.causes import CauseText, cause_findings
from stallscope.analyzers.finding import Evidence, Finding, Where
from stallscope.analyzers.frames import short_place
from stallscope.analyzers.idle import Cause
from stallscope.analyzers.registry import NotAnalysable, limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler import intervals
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "HB104"
NAME = "cpu-contention"
NEEDS = {"host", "trusted_host"}
ADVICE = "Run fewer threads, pin the launching process to cores of its own, and keep other work off them."
TEXT = CauseText(
    CODE, NAME, lambda loss: "while the launching thread was kept from running", "kept from running", ADVICE
)


@dataclass(frozen=True)
class Limits:
    """When contention is worth a finding."""

    min_share: float = limit(
        0.03, "Share of the device's span it must idle while the launching thread is kept from running.",
        source="XProf calls 3 % of a step spent on the host moderate",
    )  # fmt: skip
    min_wait_share: float = limit(
        0.10, "Without a device: share of its time that a thread must have waited for a core.",
        source="measured: a quiet 2-thread run waited 3 %, an oversubscribed one 69 %",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per device run, or one per starved thread."""
    if "device" in run.has:
        for finding in cause_findings(run, Cause.CONTENTION, TEXT, limits.min_share, together=True):
            yield _with_culprit(run, finding)
        return
    waits = {track: contention.queue_wait(run, track) for track in run.host.threads}
    if not any(waits.values()):
        raise NotAnalysable(
            "the time threads waited for a core was not recorded (`stallscope run` records it)"
        )
    starved = [
        _starved(run, track, *found)
        for track, found in waits.items()
        if found is not None and found[0] >= limits.min_wait_share * found[1]
    ]
    yield from starved or _oversubscribed(run, limits)


def _oversubscribed(run: Run, limits: Limits) -> Iterator[Finding]:
    """A pool of more compute threads than cores, each of which waits longer for a core than it runs."""
    facts = run.session.facts
    host, threads = facts.get("host"), facts.get("host_threads")
    cores = host.get("usable_cores") if isinstance(host, dict) else None
    if not isinstance(cores, int) or not isinstance(threads, list):
        return
    pool = [t for t in threads if isinstance(t, dict) and _starves(t, limits)]
    if len(pool) <= cores:
        return
    waited = max(int(t["run_queue_wait_ns"]) for t in pool)
    ran, waiting = (sum(int(t[key]) for t in pool) for key in ("cpu_ns", "run_queue_wait_ns"))
    start, end = run.host_span
    yield Finding(
        code=CODE,
        name=NAME,
        title=f"{len(pool)} threads share {cores} cores and wait for one {share(waiting, waiting + ran)} of the time",
        lost_ns=waited,
        recoverable_ns=waited,
        confidence="medium",
        detail=(
            f"The kernel counts up to {duration(waited)} a thread as ready to run but without a core; work shared "
            "out among threads is done when the last of them is."
        ),
        advice=f"Use at most {cores} compute threads (OMP_NUM_THREADS, torch.set_num_threads).",
        evidence=(Evidence(-1, start, end, "run-queue wait"),),
        facts={"threads": len(pool), "cores": cores, "run_queue_wait_ns": waiting, "cpu_ns": ran},
    )


def _starves(thread: dict[str, object], limits: Limits) -> bool:
    """Whether a thread waits for a core longer than it runs, and that is worth a word."""
    numbers = [thread.get(key) for key in ("run_queue_wait_ns", "cpu_ns", "wall_ns")]
    if not all(isinstance(n, int) for n in numbers):
        return False
    waited, ran, wall = (int(str(n)) for n in numbers)
    return waited > ran and waited >= limits.min_share * wall


def _with_culprit(run: Run, finding: Finding) -> Finding:
    """The finding with the place of the thread that held the interpreter, where that explains most of it."""
    tracks = sorted({int(t) for account in run.idle.values() for t in account.track[account.is_host]})
    best, most = "", 0
    for track in tracks:
        locked = contention.lock_time(run, track)
        if intervals.length(locked) > most:
            most = intervals.length(locked)
            row = contention.busiest_other(run, track, locked)
            best = run.timeline.name(row) if row >= 0 else ""
    if not best or 2 * most < finding.lost_ns:
        text = "Calls that usually take microseconds took hundreds of times as long: the thread had lost its core."
        return replace(finding, confidence="medium", where=Where(), detail=f"{finding.detail} {text}")
    title = finding.title.replace(
        "the launching thread was kept from running", f"{short_place(best)} holds the interpreter"
    )
    return replace(
        finding,
        title=title,
        confidence="medium",
        where=Where(python=best),
        detail=f"{finding.detail} Another thread was in {best} meanwhile, and only one can run Python at a time.",
    )


def _starved(run: Run, track: int, waited: int, wall: int) -> Finding:
    start, end = run.host_span
    name = run.timeline.tracks[track].name
    threads = run.session.facts.get("host_threads")
    return Finding(
        code=CODE,
        name=NAME,
        title=f"{name} waited {duration(waited)} of {duration(wall)} for a core",
        lost_ns=waited,
        recoverable_ns=waited,
        confidence="high",
        detail=(
            f"The kernel counts {share(waited, wall)} of the thread's time as ready to run but without a core"
            + (f"; {len(threads)} threads of the run were busy." if isinstance(threads, list) else ".")
        ),
        advice=ADVICE,
        evidence=(Evidence(track, start, end, "run-queue wait"),),
        facts={"run_queue_wait_ns": waited, "observed_ns": wall},
    )
