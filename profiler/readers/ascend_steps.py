"""What can be worked out from a kernel table alone: time per step, and the core clock.

Step time by the profiler's own definition (step_trace_time.csv): computing and communication are the unions
of kernels and of collectives that begin in the step's device range, free the holes that begin in it. The range
runs from the step's first device task to the later of its last task's end and the host step's end.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import intervals
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers.ascend_rank import Kernels
from stallscope.profiler.timeline import ARG_FLOAT, Int64

AGREE_NS = 1_000
"""The tables round to picoseconds of a float; beyond 1 us they disagree for a reason."""


def step_times(kernels: Kernels, host_steps: dict[int, tuple[int, int]]) -> list[dict[str, Any]]:
    """Computing, communication and free time per device and step; one nameless step (-1) if none is named.

    `host_steps` gives each step's start and end on the host, absolute ns. Tasks outside any step belong to none.
    """
    out: list[dict[str, Any]] = []
    for device in np.unique(kernels.device).tolist():
        mine = np.flatnonzero(kernels.device == device)
        compute = mine[~kernels.is_collective[mine]]
        comm = mine[kernels.is_collective[mine]]
        busy = intervals.union(kernels.start_ns[mine], kernels.end_ns[mine])
        steps = np.unique(kernels.step[mine])
        named = steps[steps >= 0]
        for step in (named if len(named) else steps).tolist():
            of_step = mine[kernels.step[mine] == step] if step >= 0 else mine
            low = int(kernels.start_ns[of_step].min())
            high = max(int(kernels.end_ns[of_step].max()), host_steps.get(step, (0, 0))[1])
            out.append(_step(kernels, device, int(step), low, high, compute, comm, busy))
    return out


def _step(
    kernels: Kernels,
    device: int,
    step: int,
    low: int,
    high: int,
    compute: npt.NDArray[np.intp],
    comm: npt.NDArray[np.intp],
    busy: intervals.IntervalSet,
) -> dict[str, Any]:
    def chosen(rows: npt.NDArray[np.intp]) -> intervals.IntervalSet:
        rows = rows[(kernels.start_ns[rows] >= low) & (kernels.start_ns[rows] < max(high, low + 1))]
        return intervals.union(kernels.start_ns[rows], kernels.end_ns[rows])

    computing, communication = chosen(compute), chosen(comm)
    alone = intervals.subtract(communication, computing)
    starts, ends = intervals.gaps(busy)
    free = (starts >= low) & (starts < high)
    return {
        "device": device,
        "step": step,
        "start_ns": low,
        "computing_ns": intervals.length(computing),
        "communication_ns": intervals.length(communication),
        "communication_not_overlapped_ns": intervals.length(alone),
        "free_ns": int((ends - starts)[free].sum()),
        "free_inside_ns": _length_between(chosen(np.concatenate([compute, comm]))),
    }


def _length_between(work: intervals.IntervalSet) -> int:
    """Holes between the pieces of a step's own work; databases call this free, without the pause after it."""
    return intervals.length(intervals.gaps(work))


def compare_steps(told: list[dict[str, Any]], own: list[dict[str, Any]], notes: Notes) -> None:
    """Note where the profiler's step table and the kernel table disagree by more than rounding."""
    if len(told) == 1 and len(own) == 1:
        pairs = [(told[0], own[0])]
    else:
        by_step = {(row["step"], row["device"]): row for row in own}
        pairs = [(t, by_step[at]) for t in told if (at := (t["step"], max(t["device"], 0))) in by_step]
    worst, where = 0, ""
    for file_row, own_row in pairs:
        for key in ("computing_ns", "communication_ns", "free_ns"):
            own_values = [own_row[key]] + ([own_row["free_inside_ns"]] if key == "free_ns" else [])
            differs = min(abs(file_row[key] - value) for value in own_values)
            if differs > max(worst, AGREE_NS):
                worst, where = differs, f"step {file_row['step']}, {key}"
    notes.add("step-times-differ", "warning",
              f"the step table and the kernel table disagree by up to {worst} ns ({where}): one of them is incomplete",
              int(worst > 0), where)  # fmt: skip


def _column(kernels: Kernels, key: str) -> npt.NDArray[np.float64]:
    out = np.full(len(kernels), np.nan)
    for column in kernels.args:
        if column.key == key:
            out[column.rows] = column.value.view(np.float64) if column.tag == ARG_FLOAT else column.value
    return out


def core_clock(kernels: Kernels) -> dict[str, float]:
    """Measured core clocks in MHz, cycles / (core time x cores), as medians; {} without cycle counts.

    The cycles are summed over cores, so they are divided by the cores used: Block Num for the kernel's own
    core kind, Mix Block Num for the other kind of a mixed kernel.
    """
    blocks = {"aic": _column(kernels, "Block Num"), "aiv": _column(kernels, "Block Num")}
    out: dict[str, float] = {}
    for side, time_key in (("aic", "aicore_time(us)"), ("aiv", "aiv_time(us)")):
        cycles, time_us = _column(kernels, f"{side}_total_cycles"), _column(kernels, time_key)
        with np.errstate(divide="ignore", invalid="ignore"):
            clock = cycles / (time_us * blocks[side])
        good = np.isfinite(clock) & (time_us >= 10) & _only_side(kernels, side)
        if good.any():
            out[f"{side}_mhz"] = round(float(np.median(clock[good])), 1)
    return out


def _only_side(kernels: Kernels, side: str) -> npt.NDArray[np.bool_]:
    """Kernels whose Block Num counts cores of one side: pure kernels of it."""
    other = _column(kernels, "aiv_total_cycles" if side == "aic" else "aic_total_cycles")
    mix = _column(kernels, "Mix Block Num")
    only: npt.NDArray[np.bool_] = (np.isnan(other) | (other == 0)) & (np.isnan(mix) | (mix == 0))
    return only


def kernel_summary(kernels: Kernels) -> dict[str, Any]:
    """Counts of a kernel table for the facts."""
    return {
        "count": len(kernels),
        "collectives": int(kernels.is_collective.sum()),
        "compute_ns_sum": int(kernels.dur_ns[~kernels.is_collective].sum()),
        "collective_ns_sum": int(kernels.dur_ns[kernels.is_collective].sum()),
    }


__all__ = ["Int64", "compare_steps", "core_clock", "kernel_summary", "step_times"]
