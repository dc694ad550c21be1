"""The tables of a report beside its findings: plain rows, times in nanoseconds, shares as numbers from 0 to 1."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from stallscope.analyzers import backpressure
from stallscope.analyzers.idle import IDLE_CLASSES, Cause, IdleAccount
from stallscope.analyzers.losses import cause_losses, losses
from stallscope.analyzers.phases import PhaseSeries
from stallscope.analyzers.verdict import step_time_ns
from stallscope.profiler import intervals, kernels
from stallscope.profiler.kinds import Kind
from stallscope.profiler.timeline import Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Row = dict[str, Any]
TOP_PLACES = 5
TOP_OPERATORS = 100
TOP_WAITS = 50
SPIKE = 1.5
"""A step longer than this many medians is a spike (nsys-ai)."""


def all_tables(run: Run) -> dict[str, list[Row]]:
    """Every table that has rows; "trust" always stands first."""
    found: dict[str, list[Row]] = {
        "trust": run.trust.table(),
        "phases": phases(run),
        "idle_causes": [row for account in run.idle.values() for row in idle_causes(run, account)],
        "waits": waits(run),
        "backpressure": backpressure.table(run),
        "batches": batches(run),
        "operators": operators(run),
        "lanes": backpressure.lanes(run),
        "pipes": run.npu.table() if run.npu.has_counters else [],
    }
    return {name: rows for name, rows in found.items() if rows or name == "trust"}


def phases(run: Run) -> list[Row]:
    """One row per phase: how long its steps are, how much they vary, what the device does in them."""
    return [_phase(run, series) for series in run.series]


def _phase(run: Run, series: PhaseSeries) -> Row:
    steady = series.steady_ns
    median = series.median_ns
    idle = run.idle_per_step(series)[series.warm_up :]
    row: Row = {
        "phase": series.phase,
        "confidence": series.steps[0].confidence,
        "steps": len(series.steps),
        "warm_up_steps": series.warm_up,
        "total_ns": int(series.length_ns.sum()),
        "step_time_ns": step_time_ns(run, series),
        "median_ns": median,
        "p99_ns": int(kernels.quantile(steady, 0.99)),
        "min_ns": int(steady.min()),
        "max_ns": int(steady.max()),
        "variation": round(float(steady.std() / steady.mean()), 4) if steady.mean() else 0.0,
        "spikes": int((steady > SPIKE * median).sum()),
        "drift_ns_per_step": _slope(steady),
    }
    if run.devices:
        row["median_host_idle_ns"] = int(np.median(idle)) if len(idle) else 0
        row |= _device_work(run, series)
    return row


def _slope(length: Int64) -> int:
    """By how much each step is longer than the one before, fitted over all; 0 for fewer than three."""
    if len(length) < 3:
        return 0
    return round(float(np.polyfit(np.arange(len(length)), length.astype(np.float64), 1)[0]))


def _device_work(run: Run, series: PhaseSeries) -> Row:
    """Kernels, launches and busy time per steady step, on all devices together."""
    spans, rows = run.timeline.spans, run.whole.rows
    launch = spans.launch_row[rows]
    at = np.full(len(rows), -1, np.intp)
    linked = launch >= 0
    at[linked] = run.step_index(series, spans.start_ns[launch[linked]])
    mine = at >= series.warm_up
    count = max(len(series.steps) - series.warm_up, 1)
    busy = intervals.length(intervals.union(spans.start_ns[rows[mine]], spans.end_at(rows[mine])))
    return {
        "device_busy_ns_per_step": busy // count,
        "device_events_per_step": round(float(mine.sum()) / count, 1),
        "launches_per_step": round(len(kernels.distinct(launch[mine])) / count, 1),
    }


def idle_causes(run: Run, account: IdleAccount) -> Iterator[Row]:
    """One row per class that took any of a device's idle time, the largest first; they sum to it exactly."""
    idle = account.view.idle_ns
    totals = account.totals()
    for cause in sorted(Cause, key=lambda c: -totals[c.key]):
        if totals[cause.key] == 0:
            continue
        yield {
            "device": account.view.device,
            "class": cause.key,
            "ns": totals[cause.key],
            "share": round(totals[cause.key] / idle, 4) if idle else 0.0,
            "pieces": len(run.idle_index[account.view.device].of(cause)),
            "text": IDLE_CLASSES[cause.key],
            "places": _top_places(run, account, cause),
        }


def _top_places(run: Run, account: IdleAccount, cause: Cause) -> list[Row]:
    index = run.idle_index[account.view.device]
    if index.all_steady:
        found = cause_losses(run, account, cause)
    else:
        found = losses(run, account, index.of(cause), steady=False, most=TOP_PLACES)
    return [{"place": x.place.text, "ns": x.lost_ns} for x in found[:TOP_PLACES] if x.row >= 0]


def waits(run: Run) -> list[Row]:
    """One row per place where a launching thread waits for the device, the longest waiting first."""
    rows: list[Row] = []
    idle = intervals.complement(run.whole.busy, run.whole.first_ns, run.whole.last_ns)
    claimed = _claimed_idle(run)
    for track in run.host_tracks:
        blocks = run.wait_blocks(track)
        for key in kernels.distinct(blocks.key).tolist():
            mine = np.flatnonzero(blocks.key == key)
            at = int(mine[np.argmax(blocks.wait_ns[mine])])
            beside = int(intervals.covered(idle, blocks.start_ns[mine], blocks.end_ns[mine]).sum())
            waited = int(blocks.wait_ns[mine].sum())
            rows.append(
                {
                    "call": run.timeline.name(int(blocks.row[at])),
                    "operator": run.places.name(int(blocks.operator[at])),
                    "python": run.places.name(int(blocks.frame[at])),
                    "waits": len(mine),
                    "waited_ns": waited,
                    "while_device_idle_ns": min(beside, waited),
                    "then_device_idled_ns": int(claimed[track][mine].sum()) if track in claimed else 0,
                    "copies_ns": int(blocks.copy_ns[mine].sum()),
                }
            )
    return sorted(rows, key=lambda r: -int(r["waited_ns"]))[:TOP_WAITS]


def _claimed_idle(run: Run) -> dict[int, Int64]:
    """Per host track the idle nanoseconds of each of its wait blocks, on the device where the block costs most."""
    out: dict[int, Int64] = {}
    for number, account in run.idle.items():
        pieces = account.pieces
        chosen = run.idle_index[number].of_any(Cause.SYNC, Cause.BLOCKING_COPY)
        chosen = chosen[pieces.block[chosen] >= 0]
        tracks, block, length = (
            account.track[pieces.gap[chosen]],
            pieces.block[chosen],
            pieces.lengths(chosen),
        )
        for track in kernels.distinct(tracks).tolist():
            mine = tracks == track
            sums = kernels.sums(block[mine], length[mine], len(run.wait_blocks(track)))
            out[track] = np.maximum(out[track], sums) if track in out else sums
    return out


def batches(run: Run) -> list[Row]:
    """Where a phase ran with several batch sizes: step time and who waits, per size, smallest first.

    `launch_delay_ns` is flat while the host is the slower side and rises once the device is; `inflection` marks the
    first size at which the device idles less than a tenth of a step for the host.
    """
    rows: list[Row] = []
    for series in run.series:
        sizes = [s.facts.get("batch", s.facts.get("bs")) for s in series.steps]
        known = sorted({int(b) for b in sizes if b is not None})
        if len(known) < 2 or not run.devices:
            continue
        idle = run.idle_per_step(series)
        delay = _delay_per_step(run, series)
        turned = False
        for size in known:
            mine = np.array([b == size for b in sizes]) & (np.arange(len(sizes)) >= series.warm_up)
            if not mine.any():
                continue
            median = int(np.median(series.length_ns[mine]))
            share = float(np.median(idle[mine])) / median if median else 0.0
            here = not turned and share < 0.1
            turned |= here
            rows.append(
                {
                    "phase": series.phase, "batch": size, "steps": int(mine.sum()), "median_ns": median,
                    "host_idle_share": round(share, 4), "launch_delay_ns": int(np.median(delay[mine])), "inflection": here,
                }
            )  # fmt: skip
    return rows


def _delay_per_step(run: Run, series: PhaseSeries) -> Int64:
    """Median launch-to-start delay of each step's launches. Shape (k,)."""
    out = np.zeros(len(series.steps), np.int64)
    for found in run.pressure.values():
        at = run.step_index(series, found.launch_ns)
        for k in kernels.distinct(at[at >= 0]).tolist():
            out[k] = max(out[k], int(np.median(found.delay_ns[at == k])))
    return out


def operators(run: Run) -> list[Row]:
    """Operators by their own time on the host, with the device time of what they launched."""
    timeline, spans = run.timeline, run.timeline.spans
    rows = timeline.rows(Kind.OPERATOR)
    if len(rows) == 0:
        return []
    codes, at, count = kernels.ranked(spans.name[rows])
    at = at.astype(np.intp)
    own, total = kernels.sums(at, spans.self_ns[rows]), kernels.sums(at, spans.dur_ns[rows])
    work = run.whole.rows
    owner = run.places.operators(spans.launch_row[work].astype(np.intp))
    has = owner >= 0
    device = kernels.sums(np.searchsorted(codes, spans.name[owner[has]]), spans.dur_ns[work[has]], len(codes))
    order = np.argsort(-(own + device), kind="stable")[:TOP_OPERATORS]
    return [
        {"name": timeline.strings[int(codes[i])], "count": int(count[i]), "total_ns": int(total[i]),
         "self_ns": int(own[i]), "mean_ns": int(total[i] // count[i]), "device_ns": int(device[i])}
        for i in order.tolist()
    ]  # fmt: skip
