"""A switch of the NPU's environment stands where this run pays for it.

## What it finds
Settings that the recording tells (`profiler_metadata.json`, a database, our own recorder) and whose cost can be seen in
it; the idle time behind each is that of the cause, and its gain is counted by the rule named:

| setting | cost that must be there |
| --- | --- |
| `PYTORCH_NPU_ALLOC_CONF` without `expandable_segments:True` | the device idles while memory is taken or given back (SY204) |
| `CPU_AFFINITY_CONF` not set | the launching thread is kept from running (HB104) |
| `ASCEND_GLOBAL_LOG_LEVEL` 0 or 1 (debug, info) | the device idles while the host dispatches (HB101, LN401) |
| `TASK_QUEUE_ENABLE=0` | the device idles in launch calls of operators (LN403) |
| `ACLNN_CACHE_LIMIT`, `HOST_CACHE_CAPACITY` | the device idles in tiling and workspace look-ups of aclnn operators |
| `jit_compile`, internal formats | the device idles in `aclopCompileAndExecute` |
| `HCCL_ALGO` set by hand | communication is exposed (CC601) |

Two switches that only slow down are named without a cost, too: `ASCEND_LAUNCH_BLOCKING` (LN402) and logs to the terminal.
All findings are remarks.

## Why it costs time
Each switch moves work onto the path of the launches, or leaves it there.

## What to try
Set what the finding names, and record again: the gain is that of the rule it points to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.environment import is_told, variable
from stallscope.analyzers.finding import Evidence, Finding, Where
from stallscope.analyzers.idle import Cause, IdleAccount
from stallscope.analyzers.losses import evidence, together
from stallscope.analyzers.registry import NotAnalysable, NotApplicable, limit
from stallscope.analyzers.taskqueue import DIRECT
from stallscope.analyzers.units import duration, share
from stallscope.profiler import intervals
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]

CODE = "EV901"
NEEDS = {"device", "trusted_device"}

DISPATCH = (Cause.DISPATCH, Cause.LAUNCH_PATH, Cause.UNRECORDED)


@dataclass(frozen=True)
class Limits:
    """What a setting must cost to be named."""

    min_share: float = limit(
        0.02, "Share of the device's span it must idle for the cause.", source="as SY201"
    )
    min_share_dispatch: float = limit(
        0.10, "The same for dispatch as a whole.", source="TensorRT-LLM calls 10 % host-bound"
    )
    min_share_exposed: float = limit(0.05, "The same for exposed communication.", source="as CC601")


@dataclass(frozen=True)
class Switch:
    """One setting: `bad` says of its value ("" not set) whether it may cost, `cost` which idle pieces of a device
    it answers for, `counted` the rules that count the time, `limit` the name of the limit."""

    name: str
    bad: Callable[[str], bool]
    cost: Callable[[Run, IdleAccount], Rows]
    text: str
    advice: str
    counted: str
    limit: str = "min_share"


def _causes(*causes: Cause) -> Callable[[Run, IdleAccount], Rows]:
    return lambda run, account: run.idle_index[account.view.device].of_any(*causes)


def _in_calls(word: Callable[[str], bool]) -> Callable[[Run, IdleAccount], Rows]:
    """Idle pieces in runtime calls of such a name, or in calls inside of these."""

    def inside(run: Run, account: IdleAccount) -> Rows:
        named = run.timeline.match_names(word, Kind.RUNTIME)
        found = np.flatnonzero(run.places.nearest(account.pieces.row, named) >= 0)
        return run.idle_index[account.view.device].inside(account.is_host, found)

    return inside


def _without_queue(run: Run, account: IdleAccount) -> Rows:
    index, queue = run.idle_index[account.view.device], run.task_queues[account.view.device]
    return index.inside(queue.side == DIRECT, index.of(Cause.LAUNCH_PATH))


def _is_lookup(name: str) -> bool:
    return name.endswith(("_Tiling", "GetWorkspaceSize"))


SWITCHES = (
    Switch("PYTORCH_NPU_ALLOC_CONF", lambda v: "expandable_segments:true" not in v.replace(" ", "").lower(),
           _causes(Cause.ALLOCATOR), "while memory is taken from the driver or given back",
           "Set PYTORCH_NPU_ALLOC_CONF=expandable_segments:True.", "SY204"),
    Switch("CPU_AFFINITY_CONF", lambda v: v in ("", "0"), _causes(Cause.CONTENTION),
           "while the launching thread is kept from running",
           "Set CPU_AFFINITY_CONF=1, which binds the process to the cores near its NPU.", "HB104"),
    Switch("ASCEND_GLOBAL_LOG_LEVEL", lambda v: v in ("0", "1"), _causes(*DISPATCH), "while the host dispatches",
           "Set ASCEND_GLOBAL_LOG_LEVEL=3.", "HB101 and LN401", "min_share_dispatch"),
    Switch("TASK_QUEUE_ENABLE", lambda v: v == "0", _without_queue, "in launch calls that a task queue would take away",
           "Set TASK_QUEUE_ENABLE=1 or 2.", "LN403"),
    Switch("ACLNN_CACHE_LIMIT", lambda v: True, _in_calls(_is_lookup),
           "in tiling and workspace look-ups of aclnn operators",
           "Raise ACLNN_CACHE_LIMIT, and HOST_CACHE_CAPACITY for changing shapes, so that operators are found again.",
           "HB101 and LN401"),
    Switch("", lambda v: True, _in_calls(lambda name: "aclopCompileAndExecute" in name),
           "in aclopCompileAndExecute, the slow way to launch an operator",
           "Call torch_npu.npu.set_compile_mode(jit_compile=False) and set torch.npu.config.allow_internal_format = False.",
           "HB101, HB106 and LN403"),
)  # fmt: skip


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One remark per setting."""
    if not run.communication.ranks:
        raise NotApplicable("the settings of NPUs matter to Ascend recordings only")
    if not is_told(run):
        raise NotAnalysable(
            "the recording does not tell the environment (profiler_metadata.json, or our own recorder)"
        )
    trusted = not run.missing(frozenset({"host", "launches", "trusted_host"}))
    if trusted:
        for switch in SWITCHES:
            yield from _costly(run, switch, getattr(limits, switch.limit))
    yield from _algorithm(run, limits)
    yield from _debugging(run)


def _costly(run: Run, switch: Switch, least: float) -> Iterator[Finding]:
    value = variable(run, switch.name) if switch.name else ""
    if value is None or not switch.bad(value):
        return
    found = []
    for account in run.idle.values():
        found += together(run, account, switch.cost(run, account))
    worst = max(found, key=lambda loss: loss.lost_ns, default=None)
    if worst is None or worst.share < least:
        return
    state = f"{switch.name} is {value or 'not set'}" if switch.name else "Operators are not launched by aclnn"
    yield Finding(
        code=CODE,
        name="npu-environment",
        title=f"{state}: the device idles {duration(worst.lost_ns)} {switch.text}",
        lost_ns=worst.lost_ns,
        recoverable_ns=0,
        confidence="medium",
        phase=worst.phase,
        where=worst.place.where(),
        detail=(
            f"{share(worst.lost_ns, run.steady_span_ns(worst.account.view))} of the device's time. What mending it gives back "
            f"is counted by {switch.counted}."
        ),
        advice=switch.advice,
        evidence=evidence(run, worst, "idle"),
        facts={"variable": switch.name, "value": value, "counted_by": switch.counted},
    )


def _algorithm(run: Run, limits: Limits) -> Iterator[Finding]:
    value = variable(run, "HCCL_ALGO")
    if not value:
        return
    view = max(run.devices.values(), key=lambda v: intervals.length(v.exposed_collective))
    lost = intervals.length(view.exposed_collective)
    if lost >= limits.min_share_exposed * view.span_ns:
        rank = run.timeline.tracks[int(run.timeline.spans.track[view.rows[0]])].rank
        yield _remark(
            f"HCCL_ALGO is {value}: communication is exposed for {duration(lost)}", lost,
            "HCCL chooses the algorithm by size and topology unless told. What mending it gives back is counted by CC601.",
            "Unset HCCL_ALGO, and compare.", run.communication.evidence(rank),
            {"variable": "HCCL_ALGO", "value": value, "counted_by": "CC601"},
        )  # fmt: skip


def _debugging(run: Run) -> Iterator[Finding]:
    """Switches for finding faults that are on; what they cost need not be on record."""
    for name, why in (
        ("ASCEND_LAUNCH_BLOCKING", "each operator waits for its kernel"),
        ("ASCEND_SLOG_PRINT_TO_STDOUT", "the runtime writes its log to the terminal"),
    ):
        value = variable(run, name)
        if value not in (None, "", "0") and not (name == "ASCEND_LAUNCH_BLOCKING" and run.blocking.active):
            view = run.whole
            place = Evidence(
                int(run.timeline.spans.track[view.rows[0]]),
                view.first_ns,
                view.last_ns,
                "the whole recording",
            )
            yield _remark(
                f"{name} is {value}: {why}", 0, "This recording does not show what it costs.", f"Unset {name}.",
                (place,), {"variable": name, "value": value},
            )  # fmt: skip


def _remark(
    title: str, lost: int, detail: str, advice: str, spans: tuple[Evidence, ...], facts: dict[str, object]
) -> Finding:
    return Finding(
        CODE,
        "npu-environment",
        title,
        lost,
        0,
        "medium",
        "info",
        "",
        Where(),
        detail,
        advice,
        spans,
        dict(facts),
    )
