"""One link between two devices is much slower than the others of its kind, or a transfer was sent again.

## What it finds
Links (from one rank to another) over which large transfers reach less than 80 % of the median of all links of the same
transport, from `communication_matrix.json`, its database form, or the tasks on planes; and single RDMA transfers of
four seconds and more, which is what a retransmission takes.

## Why it costs time
A collective over several links ends with the slowest one; the others wait for it.

## What to try
Look at the link: `hccn_tool` for link state and errors, the order of ranks on the hosts, other traffic on the same
switch. Slow on every link of one rank: that rank's memory or bus is busy, look at what runs beside.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from stallscope.analyzers.communication import Link
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.registry import NotAnalysable, NotApplicable, limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "CC602"
NEEDS = {"device", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When a link is slow."""

    max_share_of_typical: float = limit(
        0.8, "A link is slow below this share of the median rate of its transport.",
        source="the Ascend advisor warns at a spread of 5 % and, for contention, below 80 % of 18 GB/s",
    )  # fmt: skip
    min_links: float = limit(3, "Links of one transport that are needed to know what is typical.")
    min_share: float = limit(0.02, "Share of the span that the slow link must cost.", source="as SY201")
    retransmission_ms: float = limit(
        4000, "An RDMA transfer this long was sent again.", unit="ms", source="Ascend advisor, rule 22"
    )


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per transport at most: its slowest link."""
    if not run.communication.ranks:
        raise NotApplicable("only Ascend recordings tell single links")
    yield from _sent_again(run, limits)
    links = run.communication.links
    known = {
        t for t in {k.transport for k in links} if sum(k.transport == t for k in links) >= limits.min_links
    }
    if not known and not any("RDMA" in p.transport for p in run.communication.packets):
        raise NotAnalysable(
            "fewer than three links of one transport with transfers of 1 MB and more, so none can be called slow"
        )
    for transport in sorted(known):
        mine = [k for k in links if k.transport == transport]
        typical = float(np.median([k.rate for k in mine]))
        slowest = min(mine, key=lambda k: k.rate)
        excess = slowest.ns - slowest.bytes / typical
        lost = round(excess * run.communication.exposed_share(slowest.rank))
        slow = slowest.rate < limits.max_share_of_typical * typical
        if slow and lost >= limits.min_share * run.whole.span_ns:
            yield _finding(run, slowest, typical, lost, len(mine))


def _finding(run: Run, link: Link, typical: float, lost: int, links: int) -> Finding:
    way = f"rank {link.source} to rank {link.target}"
    return Finding(
        code=CODE,
        name="slow-link",
        title=f"The {link.transport} link from {way} is slow: {link.rate:.1f} GB/s, others reach {typical:.1f}",
        lost_ns=lost,
        recoverable_ns=lost,
        confidence="medium",
        where=Where("", "", way),
        detail=(
            f"{link.bytes / 1e6:.1f} MB took {duration(link.ns)}; at the median rate of {links} links it would be "
            f"{duration(round(link.bytes / typical))}. What of the difference nothing runs beside is "
            f"{share(lost, run.whole.span_ns)} of the run."
        ),
        advice="Look at the state and the errors of this link, and at other traffic on it.",
        evidence=run.communication.evidence(link.rank),
        facts={"gb_per_s": round(link.rate, 2), "typical_gb_per_s": round(typical, 2), "links": links,
               "transport": link.transport},
    )  # fmt: skip


def _sent_again(run: Run, limits: Limits) -> Iterator[Finding]:
    least = round(limits.retransmission_ms * 1e6)
    # of packets of one size only the mean is known: one that was sent again is told where it is alone or all were
    slow = [p for p in run.communication.packets if ("RDMA" in p.transport or "ROCE" in p.transport)
            and p.ns >= least * p.count]  # fmt: skip
    if not slow:
        return
    worst = max(slow, key=lambda p: p.ns / p.count)
    took = worst.ns // worst.count
    lost = round(took * run.communication.exposed_share(worst.rank))
    yield Finding(
        code=CODE,
        name="slow-link",
        title=f"An RDMA transfer took {duration(took)}: it was sent again",
        lost_ns=lost,
        recoverable_ns=lost,
        confidence="medium",
        where=Where("", "", f"rank {worst.rank}"),
        detail=f"{worst.count} transfers of {worst.bytes / 1e6:.3g} MB took {duration(took)} each.",
        advice="Look for packet loss: link errors, flow control (PFC), HCCL_RDMA_TC and HCCL_RDMA_SL on all hosts.",
        evidence=run.communication.evidence(worst.rank),
        facts={"transfers": worst.count, "bytes": worst.bytes, "transport": worst.transport},
    )
