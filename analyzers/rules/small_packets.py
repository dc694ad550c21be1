"""Communication in many small packets, which do not reach the rate of large ones.

## What it finds
Transfers between NPUs of which at least a fifth is smaller than the size that fills a link (16 MB over SDMA, which is
HCCS, PCIe and SIO; 1 MB over RDMA), where these small ones are slower than the best rate of the same transport in the
recording. What they would take at that rate is the saving; many small packets at full rate are no finding.

## Why it costs time
Each packet pays for its start and its signal. Below some megabytes that is most of its time.

## What to try
Fewer, larger collectives: fuse them, gather several layers or requests, raise the batch. `HCCL_BUFFSIZE` sets the size
HCCL cuts large messages into.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stallscope.analyzers.communication import Packets
from stallscope.analyzers.environment import variable
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.registry import NotAnalysable, NotApplicable, limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "CC603"
NEEDS = {"device", "trusted_device"}


@dataclass(frozen=True)
class Limits:
    """When packets are small, and when that is worth a finding."""

    sdma_mb: float = limit(
        16, "Smaller packets over SDMA are small.", unit="MB", source="Ascend advisor, rule 19"
    )
    rdma_mb: float = limit(
        1, "Smaller packets over RDMA are small.", unit="MB", source="Ascend advisor, rule 19"
    )
    min_share_of_packets: float = limit(
        0.2, "Share of packets that must be small.", source="Ascend advisor, rule 19"
    )
    min_share: float = limit(0.02, "Share of the span that being small must cost.", source="as SY201")


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding per transport at most, on the rank that loses most."""
    if not run.communication.ranks:
        raise NotApplicable("only Ascend recordings tell the sizes of packets")
    packets = run.communication.packets
    if not packets:
        raise NotAnalysable("no sizes of packets were recorded (communication.json, or the tasks on planes)")
    for transport in sorted({p.transport for p in packets}):
        best: Finding | None = None
        for rank in sorted({p.rank for p in packets}):
            mine = [p for p in packets if p.transport == transport and p.rank == rank]
            found = _check(run, mine, limits) if mine else None
            if found is not None and (best is None or found.lost_ns > best.lost_ns):
                best = found
        if best is not None:
            yield best


def _check(run: Run, packets: list[Packets], limits: Limits) -> Finding | None:
    remote = "RDMA" in packets[0].transport or "ROCE" in packets[0].transport
    size = 1e6 * (limits.rdma_mb if remote else limits.sdma_mb)
    small = [p for p in packets if p.bytes < size]
    count, whole = sum(p.count for p in small), sum(p.count for p in packets)
    if not small or count < limits.min_share_of_packets * whole:
        return None
    rate = max(p.rate for p in packets)
    if rate <= 0:
        return None
    lost = round(sum(p.wall * max(p.ns - p.bytes * p.count / rate, 0.0) for p in small))
    if lost < limits.min_share * run.whole.span_ns:
        return None
    rank, transport = packets[0].rank, packets[0].transport
    buffer = variable(run, "HCCL_BUFFSIZE")
    told = f" HCCL_BUFFSIZE is {buffer or 'not set'}." if buffer is not None else ""
    return Finding(
        code=CODE,
        name="small-packets",
        title=f"{count} of {whole} {transport} packets are small and slow: {duration(lost)} more than at the best rate",
        lost_ns=lost,
        recoverable_ns=lost,
        confidence="medium",
        where=Where("", "", transport),
        detail=(
            f"Packets under {size / 1e6:g} MB move {sum(p.bytes * p.count for p in small) / 1e6:.3g} MB in "
            f"{duration(sum(p.ns for p in small))}; the best rate in this recording is {rate:.1f} GB/s. What of the difference nothing runs "
            f"beside is {share(lost, run.whole.span_ns)} of the run.{told}"
        ),
        advice="Fuse collectives or send more at a time.",
        evidence=run.communication.evidence(rank),
        facts={"small": count, "packets": whole, "best_gb_per_s": round(rate, 2), "rank": rank},
    )  # fmt: skip
