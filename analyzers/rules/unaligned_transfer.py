"""Transfers between NPUs whose size is no multiple of 512 bytes, and which are slower for it.

## What it finds
Transfers of a size that is no multiple of 512 bytes, where aligned transfers of about the same size and transport in the
same recording are faster by a tenth and more. An odd size alone is no finding: often it costs nothing.

## Why it costs time
The copy engine moves aligned blocks; the rest of an odd size goes by in small pieces.

## What to try
Pad what is sent so that each rank's part is a multiple of 512 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from stallscope.analyzers.communication import Packets
from stallscope.analyzers.finding import Finding, Where
from stallscope.analyzers.registry import NotAnalysable, NotApplicable, limit
from stallscope.analyzers.units import duration, share
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

CODE = "CC604"
NEEDS = {"device", "trusted_device"}
NEAR = 2.0
"""Sizes within this factor are about the same."""


@dataclass(frozen=True)
class Limits:
    """When odd sizes are worth a finding."""

    align_bytes: float = limit(512, "Sizes that are no multiple of this are odd.", unit="bytes",
                               source="Ascend advisor, rule 21")  # fmt: skip
    min_slower: float = limit(0.1, "An odd transfer must be slower than aligned ones by this share.")
    min_share: float = limit(0.02, "Share of the span that odd sizes must cost.", source="as SY201")


def check(run: Run, limits: Limits) -> Iterator[Finding]:
    """One finding in all, on the rank that loses most."""
    if not run.communication.ranks:
        raise NotApplicable("only Ascend recordings tell the sizes of packets")
    packets = [p for p in run.communication.packets if p.bytes >= limits.align_bytes]
    if not packets:
        raise NotAnalysable("no sizes of packets were recorded (communication.json, or the tasks on planes)")
    slow = [
        (p, lost)
        for p in packets
        if p.bytes % int(limits.align_bytes) and (lost := _lost(p, packets, limits))
    ]
    by_rank = {r: [(p, x) for p, x in slow if p.rank == r] for r in {p.rank for p, _ in slow}}
    if not by_rank:
        return
    worst = max(by_rank.values(), key=lambda found: sum(x for _, x in found))
    lost = sum(x for _, x in worst)
    if lost >= limits.min_share * run.whole.span_ns:
        yield _finding(run, [p for p, _ in worst], lost, limits)


def _lost(packet: Packets, packets: list[Packets], limits: Limits) -> int:
    """What a packet of an odd size lost against aligned ones like it; 0 where nothing can be compared."""
    like = [
        p.rate for p in packets
        if p.rank == packet.rank and p.transport == packet.transport and p.bytes % int(limits.align_bytes) == 0
        and packet.bytes / NEAR <= p.bytes <= packet.bytes * NEAR
    ]  # fmt: skip
    if not like or packet.rate >= (1 - limits.min_slower) * min(like):
        return 0
    return round(packet.wall * (packet.ns - packet.bytes * packet.count / min(like)))


def _finding(run: Run, packets: list[Packets], lost: int, limits: Limits) -> Finding:
    count = sum(p.count for p in packets)
    largest = max(packets, key=lambda p: p.ns)
    return Finding(
        code=CODE,
        name="unaligned-transfer",
        title=f"{count} transfers of odd sizes are slower than aligned ones: {duration(lost)} more",
        lost_ns=lost,
        recoverable_ns=lost,
        confidence="medium",
        where=Where("", "", largest.transport),
        detail=(
            f"Most of it in {largest.count} transfers of {largest.bytes} bytes, {largest.bytes % int(limits.align_bytes)} over "
            f"a multiple of {limits.align_bytes:g}, at {largest.rate:.1f} GB/s; "
            f"{share(lost, run.whole.span_ns)} of the run."
        ),
        advice=f"Pad each rank's part to a multiple of {limits.align_bytes:g} bytes.",
        evidence=run.communication.evidence(largest.rank),
        facts={"transfers": count, "rank": largest.rank, "bytes": largest.bytes},
    )
