"""What can be worked out from the kernels of a recording: totals by type, time per step, and the core clock.

Step time is by the profiler's own definition (step_trace_time.csv). Computing and communication are the unions of
kernels and of collectives, free the holes between them; each piece counts whole to the first step in whose device
range it begins. The range runs from the first task of the first call that the host made in the step to the later
of the end of the last call's tasks and the host step's end.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import intervals
from stallscope.profiler.kernels import distinct
from stallscope.profiler.kinds import Kind
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers import ascend_links
from stallscope.profiler.readers.ascend_rank import Kernels, RankBuilder, core_name, grouped
from stallscope.profiler.timeline import ARG_FLOAT, Int64, StringTable, Timeline

AGREE_NS = 1_000
"""The tables round to picoseconds of a float; beyond 1 us they disagree for a reason."""
MAX_TYPES = 1_000

StepRanges = Mapping[int, tuple[int, int]]
"""Step number to where its device range starts and ends, absolute ns, in time order."""


def kernels_on(timeline: Timeline, rank: RankBuilder) -> Kernels:
    """Every kernel and collective of the timeline, with type, core and step where the kernel table told them."""
    rows = timeline.rows(Kind.KERNEL, Kind.COLLECTIVE)
    spans = timeline.spans
    place = np.full(len(spans), -1, np.int64)
    place[rows] = np.arange(len(rows))
    devices = np.array([t.device for t in timeline.tracks] or [0], np.int32)
    out = Kernels(
        start_ns=spans.start_ns[rows] + timeline.origin_ns,
        dur_ns=spans.dur_ns[rows],
        name=spans.name[rows],
        device=devices[spans.track[rows]],
        stream=np.zeros(len(rows), np.int64),
        core=spans.category[rows].copy(),
        op_type=np.full(len(rows), -1, np.int32),
        is_collective=spans.kind[rows] == Kind.COLLECTIVE,
        step=np.full(len(rows), -1, np.int64),
    )
    if rank.kernels is not None:
        at = rank.builder.rows(rank.kernel_events)
        known = at >= 0
        known[known] &= place[at[known]] >= 0
        here = place[at[known]]
        out.op_type[here] = rank.kernels.op_type[known]
        # "N/A" in the table is what Level0 knows of a core; the trace says more
        told = known & (rank.kernels.core >= 0)
        out.core[place[at[told]]] = rank.kernels.core[told]
        out.step[here] = rank.kernels.step[known]
    return out


def by_type(kernels: Kernels, strings: StringTable) -> list[dict[str, Any]]:
    """Count and time by device, type and core, the longest first: op_statistic.csv, worked out from the kernels."""
    if len(kernels) == 0:
        return []
    group, heads = grouped(kernels.device, kernels.op_type, kernels.core)
    order = np.argsort(group, kind="stable")
    dur = kernels.dur_ns[order]
    begin = np.searchsorted(group[order], np.arange(len(heads)))
    total, low, high = (f.reduceat(dur, begin) for f in (np.add, np.minimum, np.maximum))
    count = np.bincount(group, minlength=len(heads))
    return [
        {
            "device": int(kernels.device[heads[i]]),
            "type": _text(strings, int(kernels.op_type[heads[i]])),
            "core": core_name(_text(strings, int(kernels.core[heads[i]]))),
            "count": int(count[i]),
            "total_ns": int(total[i]),
            "min_ns": int(low[i]),
            "max_ns": int(high[i]),
        }
        for i in np.argsort(-total, kind="stable")[:MAX_TYPES].tolist()
    ]


def _text(strings: StringTable, code: int) -> str:
    return strings[code][:200] if code >= 0 else ""


def step_ranges(kernels: Kernels, links: StepRanges, host_steps: StepRanges) -> dict[int, tuple[int, int]]:
    """Each step's device range: from the links, widened to where the table has kernels of the step."""
    out: dict[int, tuple[int, int]] = dict(links)
    rows = np.flatnonzero(kernels.step >= 0)
    rows = rows[np.argsort(kernels.step[rows], kind="stable")]
    steps, begin = np.unique(kernels.step[rows], return_index=True)
    if len(steps):
        starts = kernels.start_ns[rows]
        columns = (np.minimum.reduceat(starts, begin), np.maximum.reduceat(starts, begin),
                   np.maximum.reduceat(kernels.end_ns[rows], begin))  # fmt: skip
        for step, low, last, end in zip(steps.tolist(), *(c.tolist() for c in columns), strict=True):
            if step in links:
                out[step] = min(links[step][0], low), max(links[step][1], last + 1)
            else:
                out[step] = low, max(end, host_steps.get(step, (0, 0))[1], low + 1)
    return dict(sorted(out.items(), key=lambda item: item[1]))


def step_times(kernels: Kernels, ranges: StepRanges, *, cut_free: bool = False) -> list[dict[str, Any]]:
    """Computing, communication and free time per device and step; one nameless step (-1) if `ranges` is empty.

    Pieces outside any range belong to no step; steps in which a device did nothing are left out. With `cut_free`
    free time counts to each step as far as it lies inside.
    """
    out: list[dict[str, Any]] = []
    for device in distinct(kernels.device).tolist():
        mine = np.flatnonzero(kernels.device == device)
        out += _device_steps(kernels, int(device), mine, ranges, cut_free)
    return out


def _device_steps(
    kernels: Kernels, device: int, mine: npt.NDArray[np.intp], ranges: StepRanges, cut_free: bool
) -> list[dict[str, Any]]:
    compute, comm = mine[~kernels.is_collective[mine]], mine[kernels.is_collective[mine]]
    start, end = kernels.start_ns, kernels.end_ns
    computing = intervals.union(start[compute], end[compute])
    communication = intervals.union(start[comm], end[comm])
    sets = {
        "computing_ns": computing,
        "communication_ns": communication,
        "communication_not_overlapped_ns": intervals.subtract(communication, computing),
        "free_ns": intervals.gaps(intervals.union(start[mine], end[mine])),
    }
    spans = list(ranges.items()) or [(-1, (int(start[mine].min()), int(end[mine].max()) + 1))]
    sums = {key: _sums(pieces, spans) for key, pieces in sets.items()}
    if cut_free:
        bounds = np.array([span for _, span in spans], np.int64)
        sums["free_ns"] = intervals.covered(sets["free_ns"], bounds[:, 0], bounds[:, 1])
    busy = _sums(intervals.union(start[mine], end[mine]), spans)
    of_kernel = range_of(start[mine], spans)
    order = np.argsort(of_kernel, kind="stable")
    present, begin = np.unique(of_kernel[order], return_index=True)
    low = np.minimum.reduceat(start[mine][order], begin).tolist()
    high = np.maximum.reduceat(end[mine][order], begin).tolist()
    return [
        {"device": device, "step": spans[i][0], "start_ns": first}
        | {key: int(values[i]) for key, values in sums.items()}
        # databases call the holes inside a step free, without the pause after it
        | {"free_inside_ns": max(last - first - int(busy[i]), 0)}
        for i, first, last in zip(present.tolist(), low, high, strict=True)
        if i >= 0
    ]


def _sums(pieces: intervals.IntervalSet, spans: list[tuple[int, tuple[int, int]]]) -> Int64:
    """Time of the pieces that begin in each range, shape (ranges,)."""
    out = np.zeros(len(spans), np.int64)
    at = range_of(pieces[0], spans)
    np.add.at(out, at[at >= 0], (pieces[1] - pieces[0])[at >= 0])
    return out


def range_of(times: Int64, spans: list[tuple[int, tuple[int, int]]]) -> npt.NDArray[np.intp]:
    """Index of the first range [low, high) that holds each time, -1 for none. Ranges are sorted by their start."""
    if not spans:
        return np.full(len(times), -1, np.intp)
    bounds = np.array([span for _, span in spans], np.int64)
    low, reach = bounds[:, 0], np.maximum.accumulate(bounds[:, 1])
    # a range that begins inside earlier ones is left what is behind them
    low = np.maximum(low, np.concatenate([low[:1], reach[:-1]]))
    at = np.searchsorted(low, times, side="right") - 1
    inside = (at >= 0) & (times < bounds[np.maximum(at, 0), 1])
    return np.where(inside, at, -1)


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


def add_kernel_facts(
    facts: dict[str, Any],
    timeline: Timeline,
    rank: RankBuilder,
    host_steps: StepRanges,
    device_steps: StepRanges | None = None,
    *,
    on_host_time: bool = False,
) -> None:
    """Facts worked out from the kernels, compared with the profiler's own step table.

    `device_steps` are the steps' ranges on the device where the source tells them; else the links do. With
    `on_host_time` (MindSpore) a step is what its time on the host holds, and free time is cut at its ends.
    """
    kernels = kernels_on(timeline, rank)
    if len(kernels) == 0:
        return
    if rank.kernels is not None and len(rank.kernels):
        facts["kernel_table"] = kernel_summary(rank.kernels)
        facts["core_clock"] = core_clock(rank.kernels)
    facts["kernel_types"] = by_type(kernels, rank.strings)
    if device_steps is None:
        linked = facts["links"]["kernels_with_launch"]
        device_steps = ascend_links.device_ranges(timeline, host_steps) if linked else {}
    if on_host_time and host_steps:
        ranges = {
            step: (low, high + 1) for step, (low, high) in sorted(host_steps.items(), key=lambda s: s[1])
        }
    else:
        ranges = step_ranges(kernels, device_steps, host_steps)
    facts["steps"] = step_times(kernels, ranges, cut_free=on_host_time)
    if "step_trace_time" in facts:
        compare_steps(facts["step_trace_time"], facts["steps"], rank.notes)


def device_facts(facts: dict[str, Any], numbers: list[int]) -> dict[str, dict[str, Any]]:
    """Properties of each device that the recording tells; the chip's name stays unknown unless it is written."""
    out: dict[str, dict[str, Any]] = {}
    for number in numbers:
        properties: dict[str, Any] = {"vendor": "Ascend"}
        properties |= {f"measured_{k}": v for k, v in facts.get("core_clock", {}).items()}
        out[str(number)] = properties
    return out


__all__ = [
    "add_kernel_facts", "by_type", "compare_steps", "core_clock", "device_facts", "kernel_summary", "kernels_on",
    "step_ranges", "step_times",
]  # fmt: skip
