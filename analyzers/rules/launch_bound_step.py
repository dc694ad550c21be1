"""The host launches kernels one by one, slower than the device runs them.

## What it finds
Phases in which the device idles before most kernels for the ordinary time the host needs from one launch to the
next: Python, dispatch and the launch path together, no single place. Where kernels are shorter than ten
microseconds, the device's own latency from one queued kernel to the next counts too. Gaps that are longer than
the thread's own pace are HB101; replayed graphs are left out.

## Why it costs time
Each operator costs the host ten to a hundred microseconds, however little work it is. With small batches the kernels
are shorter than that, so the device runs at the pace of the host.

## What to try
Replay the step from a captured graph (CUDA graph, HIP graph, ACL graph), compile it so that fewer and larger kernels
are launched, or batch more requests per step. A faster CPU core helps as well.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Finding
from stallscope.analyzers.idle import HOST_WORK, Cause, IdleAccount
from stallscope.analyzers.losses import Loss, amount, evidence, per_step, together
from stallscope.analyzers.places import Place
from stallscope.analyzers.pricing import as_graphs, price
from stallscope.analyzers.registry import limit
from stallscope.analyzers.replay import GRAPH_GAP_NS
from stallscope.analyzers.units import duration, share
from stallscope.profiler import intervals, kernels
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Bool

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]

CODE = "LN401"
NEEDS = {"host", "device", "launches", "trusted_host"}

SINGLE_WORK = tuple(cause for cause in HOST_WORK if cause is not Cause.GRAPH_LAUNCH)
"""The host's work for launches one by one."""

GRAPH_START_NS = 14_000
"""From the launch call of a graph to its first kernel (14 us in the SGLang, 15 us in the FLUX trace on MI300X)."""


@dataclass(frozen=True)
class Limits:
    """When launch pace is worth a finding."""

    min_share: float = limit(
        0.05, "Share of the device's span that it must idle at launch pace.",
        source="half of MindStudio-Agent's 10 %, which counts all idle time",
    )  # fmt: skip
    min_share_prefill: float = limit(
        0.30, "The same for prefill.", source="TensorRT-LLM perf-host-analysis M1"
    )
    min_launches: float = limit(
        16, "Fewer kernels launched one by one in the phase's steps (or in all) are no pace."
    )
    tiny_kernel_us: float = limit(
        10, "If the mean kernel is shorter, the device's latency between queued kernels counts too.", unit="us",
        source="TensorRT-LLM perf-nsight-compute-analysis, nsys-ai",
    )  # fmt: skip
    slow_kernel_ratio: float = limit(
        1.0, "For the host's pace to count, the median time from launch to launch must be this many median kernels.",
        source="queueing: a host faster than the device builds a queue",
    )  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per device at most: the device that idles most."""
    found = [f for account in run.idle.values() for f in _device(run, account, limits)]
    yield from sorted(found, key=lambda f: -f.recoverable_ns)[:1]


def _device(run: Run, account: IdleAccount, limits: Limits) -> Iterator[Finding]:
    pace, index = run.pace[account.view.device], run.idle_index[account.view.device]
    chosen = np.zeros(0, np.intp)
    single = _single(run, account)
    rates = _rates(run, account, single)
    _, between, kernel = rates
    if between >= limits.slow_kernel_ratio * kernel:
        chosen = index.of_any(*SINGLE_WORK, gaps=~pace.is_stall & account.is_host)
    if _mean_kernel(account, single) < limits.tiny_kernel_us * 1000:
        latency = index.inside(~_inside_graph(run, account), index.of(Cause.QUEUE_LATENCY))
        chosen = np.sort(np.concatenate([chosen, latency]))
    everything = together(run, account, chosen, np.full(len(chosen), -1, np.intp))
    if not everything:
        return
    loss = everything[0]
    needed = limits.min_share_prefill if loss.phase == "prefill" else limits.min_share
    unlinked = _unlinked_steps(run, account, loss)
    steps = run.steady_steps(loss.phase) - unlinked[0] if loss.phase else 0
    if loss.share < needed or rates[0] < limits.min_launches * max(steps, 1):
        return
    yield _finding(run, account, loss, chosen, rates, unlinked)


def _single(run: Run, account: IdleAccount) -> Bool:
    """Which device rows of the view are kernels that were launched one by one, in steady steps."""
    spans, view = run.timeline.spans, account.view
    launch = spans.launch_row[view.rows]
    single = (launch >= 0) & ~run.is_graph_launch[np.maximum(launch, 0)] & (view.kind == Kind.KERNEL)
    return np.asarray(single & run.is_steady(spans.start_ns[np.maximum(launch, 0)]), np.bool_)


def _mean_kernel(account: IdleAccount, single: Bool) -> float:
    took = account.view.end_ns[single] - account.view.start_ns[single]
    return float(took.mean()) if len(took) else 0.0


def _inside_graph(run: Run, account: IdleAccount) -> Bool:
    """Gaps ended by work of a replayed graph. Shape (g,)."""
    launch = account.view.gaps.launch
    return np.asarray((launch >= 0) & run.is_graph_launch[np.maximum(launch, 0)], np.bool_)


def _rates(run: Run, account: IdleAccount, single: Bool) -> tuple[int, int, int]:
    """Kernels launched one by one, median time from one such launch to the next, median kernel."""
    spans, view = run.timeline.spans, account.view
    launch = spans.launch_row[view.rows]
    if not single.any():
        return 0, 0, 0
    starts = np.sort(spans.start_ns[launch[single]])
    between = int(np.median(np.diff(starts))) if len(starts) > 1 else 0
    return int(single.sum()), between, int(np.median(spans.dur_ns[view.rows[single]]))


def _finding(
    run: Run,
    account: IdleAccount,
    loss: Loss,
    chosen: Rows,
    rates: tuple[int, int, int],
    unlinked_steps: tuple[int, int],
) -> Finding:
    (launches, between, kernel), (unlinked, more) = rates, unlinked_steps
    pieces = account.pieces
    replays = max(run.steady_steps(loss.phase) if loss.phase else 1, 1)
    bound = max(loss.lost_ns - GRAPH_GAP_NS * len(loss.gaps) - GRAPH_START_NS * replays, 0)
    worth = price(run, bound, lambda: as_graphs(run, loss.phase))
    lost, saved = loss.lost_ns + more, min(bound, worth.ns)
    took = kernels.sums(pieces.activity[chosen], pieces.lengths(chosen), len(Cause))
    parts = {
        cause.key: int(took[cause])
        for cause in (Cause.PYTHON, Cause.DISPATCH, Cause.LAUNCH_PATH, Cause.UNRECORDED, Cause.QUEUE_LATENCY)
    }
    place = _busiest(run, account, chosen)
    facts = per_step(run, loss.lost_ns, loss.by_phase) | {
        "launches": launches, "launch_to_launch_ns": between, "median_kernel_ns": kernel, "gaps": len(loss.gaps),
        "split_ns": parts,
    }  # fmt: skip
    if unlinked:
        facts |= {"steps_without_launches": unlinked, "per_step_ns": facts["per_step_ns"] * facts["steps"]
                  // (facts["steps"] - unlinked)}  # fmt: skip
        facts |= {"per_token_ns": facts["per_step_ns"]} if "per_token_ns" in facts else {}
    steps = facts.get("steps", 0) - unlinked
    count = f"{launches // steps} kernels a step" if steps else f"{launches} kernels"
    span = run.steady_span_ns(account.view)
    named = {Cause.PYTHON.key: "Python", Cause.DISPATCH.key: "operator dispatch", Cause.LAUNCH_PATH.key: "launch path",
             Cause.UNRECORDED.key: "not recorded",
        Cause.QUEUE_LATENCY.key: "device latency", Cause.QUEUE_LATENCY.key: "device latency"}  # fmt: skip
    split = ", ".join(
        f"{named[k]} {share(v, loss.lost_ns)}" for k, v in sorted(parts.items(), key=lambda i: -i[1]) if v
    )
    return Finding(
        code=CODE,
        name="launch-bound-step",
        title=(
            f"{'Prefill' if loss.phase == 'prefill' else 'Decode' if loss.phase == 'decode' else 'The run'} is launch-bound: "
            f"the device idles {amount(lost, facts, loss.phase)} waiting for single launches"
        ),
        lost_ns=lost,
        recoverable_ns=saved * lost // max(loss.lost_ns, 1),
        confidence="high" if loss.share >= 0.3 and between >= 2 * kernel else "medium",
        phase=loss.phase,
        where=place.where(),
        detail=(
            f"{count} launched one by one; the host takes {duration(between)} from launch to launch, the median kernel "
            f"{duration(kernel)}. Idle in {len(loss.gaps)} short gaps: {share(loss.lost_ns, span)} of the device's time "
            f"({split}).{_queue(run, account)}{_unlinked_text(unlinked, more)}"
        ),
        advice="Replay the step from a captured graph, compile it into fewer kernels, or batch more per step.",
        evidence=evidence(run, loss, "idle at launch pace"),
        facts=facts | worth.facts(),
        fix=worth.fix,
    )


def _queue(run: Run, account: IdleAccount) -> str:
    """Which side of an NPU's task queue is the slow one, as a sentence with a space before it; "" for none."""
    text = run.task_queues[account.view.device].text() if run.communication.ranks else ""
    return f" {text}" if text else ""


def _unlinked_steps(run: Run, account: IdleAccount, loss: Loss) -> tuple[int, int]:
    """Steps of the phase whose launches were all lost, and how much of the unexplained idle time in them is like the
    loss of a step with launches."""
    series = next((s for s in run.series if s.phase == loss.phase), None)
    if series is None or not loss.by_phase.get(loss.phase):
        return 0, 0
    rows, pieces = account.view.rows, account.pieces
    linked = kernels.distinct(run.step_of_row[rows[run.timeline.spans.launch_row[rows] >= 0]])
    known = {id(run.steps[i]) for i in linked[linked >= 0].tolist()}
    steady = series.steps[series.warm_up :]
    lost = [s for s in steady if id(s) not in known]
    if not lost or len(lost) == len(steady):
        return 0, 0
    times = intervals.union(np.array([s.start_ns for s in lost]), np.array([s.end_ns for s in lost]))
    unknown = run.idle_index[account.view.device].of(Cause.UNEXPLAINED)
    idle = int(intervals.covered(times, pieces.start_ns[unknown], pieces.end_ns[unknown]).sum())
    return len(lost), min(idle, len(lost) * loss.by_phase[loss.phase] // (len(steady) - len(lost)))


def _unlinked_text(steps: int, idle_ns: int) -> str:
    if not idle_ns:
        return ""
    which = f"{steps} more steps" if steps > 1 else "one more step"
    return f" Of {which} no launch was recorded: {duration(idle_ns)} idle there are taken for the same."


def _busiest(run: Run, account: IdleAccount, chosen: Rows) -> Place:
    """The user frame and the operator in which most of the short gaps passed."""
    pieces, name = account.pieces, run.timeline.spans.name
    inside, lengths = pieces.row[chosen], pieces.lengths(chosen)
    texts = []
    for find in (run.places.user_frames, run.places.outer_operators):
        rows = find(inside)
        has = rows >= 0
        if not has.any():
            texts.append("")
            continue
        sums = kernels.sums(name[rows[has]], lengths[has])
        texts.append(run.timeline.strings[int(np.argmax(sums))])
    return Place(texts[0], texts[1], "")
