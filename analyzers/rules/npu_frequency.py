"""The NPU's cores run at a lower clock than they can.

## What it finds
Kernels that ran at a clock below the highest this device showed: by the clock counter at the kernel's time, or by cycles
over core time where these were recorded. The clock between kernels does not count, since an idle device is slowed down on
purpose. Kernels that wait for memory are not counted, as far as the pipes tell.

## Why it costs time
Work on the cores takes as long as its cycles take. A chip slows its clock when it is too hot or at its power limit.

## What to try
Look at temperature and power (`npu-smi info -t power`, `-t temp`) while the program runs, at cooling and the power limit, and
at other processes on the card.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers import kernelwords
from stallscope.analyzers.finding import Finding
from stallscope.analyzers.gain import saving
from stallscope.analyzers.registry import NotAnalysable, limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "NP805"
NAME = "npu-frequency"
NEEDS = {"device", "trusted_device"}

COUNTER = "AI Core Freq"
Rows = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Limits:
    """When a lower clock is worth a finding."""

    min_drop: float = limit(
        0.05, "Mean drop of the clock below its maximum, over kernel time.",
        source="msprof-analyze advisor, AI Core frequency",
    )  # fmt: skip
    min_share: float = limit(
        0.03, "Share of the run's time that the full clock must give back.", source="XProf calls 3 % of a step moderate"
    )  # fmt: skip
    min_known: float = limit(
        0.5, "Share of kernel time whose clock must be known.", source="chosen by us: a plain majority"
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per device."""
    run.npu.need()
    clocks = {number: _clocks(run, number) for number in run.devices}
    if not any(np.isfinite(mhz).any() for _, mhz in clocks.values()):
        raise NotAnalysable(
            "the clock was not recorded: neither its counter nor cycles of kernels on a known number of cores"
        )
    for number, (rows, mhz) in clocks.items():
        yield from _device(run, number, rows, mhz, limits)


def _clocks(run: Run, number: int) -> tuple[Rows, Floats]:
    """The kernels on cores of a device and the clock of each in MHz, NaN where not known."""
    rows = run.work.device_rows[run.work.device_of(run.work.device_rows) == number]
    rows = rows[run.npu.is_core_task[rows]]
    mhz = run.npu.clock_mhz[rows]
    unknown = ~np.isfinite(mhz)
    mhz[unknown] = _counter(run, number, rows[unknown])
    return rows, mhz


def _counter(run: Run, number: int, rows: Rows) -> Floats:
    """The clock counter's value in the middle of each kernel: it is written only when it changes."""
    when, value = run.npu.counter(number, COUNTER)
    if len(when) == 0:
        return np.full(len(rows), np.nan)
    spans = run.timeline.spans
    middle = spans.start_ns[rows] + spans.dur_ns[rows] // 2
    return value[np.maximum(np.searchsorted(when, middle, side="right") - 1, 0)]


def _device(run: Run, number: int, rows: Rows, mhz: Floats, limits: Limits) -> Iterator[Finding]:
    length = run.timeline.spans.dur_ns[rows]
    known = np.isfinite(mhz) & (mhz > 0)
    if not known.any() or length[known].sum() < limits.min_known * length.sum():
        return
    top = _highest(run, number, mhz[known])
    drop = np.where(known, np.maximum(1 - mhz / top, 0.0), 0.0)
    mean = float((drop * length).sum() / max(int(length[known].sum()), 1))
    if mean < limits.min_drop:
        return
    drop[_waits_for_memory(run, rows)] = 0.0
    lost = round(float((drop * length).sum()))
    least = limits.min_share * kernelwords.run_span_ns(run)
    if lost < least:
        return
    slow = np.flatnonzero(drop > 0)
    saved = saving(run, {int(rows[i]): float(1 - drop[i]) for i in slow})
    if saved.ns < least:
        return
    lowest = float(mhz[known].min())
    yield Finding(
        code=CODE,
        name=NAME,
        title=f"The cores run {100 * mean:.0f} % below their highest clock on average, down to {lowest:.0f} of {top:.0f} MHz",
        lost_ns=lost,
        recoverable_ns=saved.ns,
        confidence="medium",
        detail=(
            f"{len(slow)} of {len(rows)} kernels ran below {top:.0f} MHz, the highest clock known of device {number % 1000}; kernels that "
            f"wait for memory are not counted. At the full clock the run would be up to {duration(saved.ns)} shorter "
            f"({saved.text}); {share(lost, int(length.sum()))} of the kernel time."
        ),
        advice="Check temperature, power limit and other load of the card (npu-smi info).",
        evidence=kernelwords.evidence(run, rows[slow]),
        facts=_facts(mean, lowest, top, saved.by) | {"device": number, "kernels": len(slow)},
        fix=saved.fix,
    )


def _facts(mean: float, lowest: float, top: float, by: str) -> dict[str, Any]:
    return {
        "mean_drop": round(mean, 4),
        "lowest_mhz": round(lowest, 1),
        "highest_mhz": round(top, 1),
        "priced_by": by,
    }


def _highest(run: Run, number: int, mhz: Floats) -> float:
    """The highest clock that the device showed or that the recording says it has."""
    seen = run.npu.counter(number, COUNTER)[1]
    told = run.npu.told(number).get("aic_mhz")
    known = [float(mhz.max())]
    if len(seen):
        known.append(float(seen.max()))
    if isinstance(told, int | float) and not isinstance(told, bool):
        known.append(float(told))
    return max(known)


def _waits_for_memory(run: Run, rows: Rows) -> npt.NDArray[np.bool_]:
    bound = np.zeros(len(run.timeline), bool)
    for group in run.npu.groups:
        if group.pipes is not None and group.pipes.bound == "memory-bound":
            bound[group.rows] = True
    return bound[rows]
