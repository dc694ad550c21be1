"""Findings about waits: what SY201, SY202 and SY203 share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Finding
from stallscope.analyzers.idle import Cause, IdleAccount
from stallscope.analyzers.losses import Loss, amount, evidence, losses, per_step, widest
from stallscope.analyzers.places import Place
from stallscope.analyzers.pricing import price, without_waits
from stallscope.analyzers.units import count, duration, share
from stallscope.analyzers.waits import WaitBlocks
from stallscope.profiler import intervals, kernels
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Bool, Int32

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]


@dataclass(frozen=True)
class BlockPieces:
    """Pieces of idle time that belong to wait blocks, ascending, and what each one's block tells. Columns of shape (k,).

    `row` is the block's longest wait, `operator` the row of the operator around it or -1, `code` a number that is the
    same for waits at one place: call, outer operator and user frame by name.
    """

    chosen: Rows
    row: Rows
    operator: Rows
    code: Int32

    def where(self, keep: Bool) -> BlockPieces:
        return BlockPieces(self.chosen[keep], self.row[keep], self.operator[keep], self.code[keep])


def block_pieces(run: Run, account: IdleAccount, cause: Cause) -> BlockPieces:
    """The pieces of a cause that belong to a wait block."""
    pieces = account.pieces
    chosen = run.idle_index[account.view.device].of(cause)
    chosen = chosen[pieces.block[chosen] >= 0]
    tracks = account.track[pieces.gap[chosen]]
    blocks = {int(t): account.blocks(int(t)) for t in kernels.distinct(tracks)}
    row, operator, frame = (
        np.concatenate([np.zeros(0, np.intp), *(getattr(b, name) for b in blocks.values())])
        for name in ("row", "operator", "frame")
    )
    name = run.timeline.spans.name
    code, _ = kernels.group(*(np.where(r >= 0, name[r], -1) for r in (row, operator, frame)))
    # the blocks of all tracks stand behind one another
    before = np.cumsum([0, *(len(b) for b in blocks.values())])
    first = np.zeros(int(tracks.max(initial=-1)) + 1, np.intp)
    first[list(blocks)] = before[:-1]
    at = first[tracks] + pieces.block[chosen]
    return BlockPieces(chosen, row[at], operator[at], code[at])


def sync_findings(
    run: Run, code: str, name: str, min_share: float, *, implicit: bool, advice: str
) -> Iterator[Finding]:
    """One finding per place that waits: inside an operator (implicit) or not."""
    found = widest(_sync_losses(run, account, implicit) for account in run.idle.values())
    for loss, devices in found:
        if loss.share >= min_share:
            yield _finding(run, code, name, loss, devices, advice)


def _sync_losses(run: Run, account: IdleAccount, implicit: bool) -> list[Loss]:
    found = block_pieces(run, account, Cause.SYNC)
    keep = (found.operator >= 0) == implicit
    if run.blocking.active:  # LN402
        keep &= ~kernels.among(found.row, run.blocking.syncs)
    found = found.where(keep)
    return losses(run, account, found.chosen, found.row, found.code)


def wait_facts(run: Run, loss: Loss) -> dict[str, Any]:
    """How often the place waited in all, and how long while the device was busy and while it was idle."""
    track = int(run.timeline.spans.track[loss.row])
    blocks = run.wait_blocks(track)
    same = blocks.key == blocks.key[int(np.flatnonzero(blocks.row == loss.row)[0])]
    idle = intervals.covered(
        intervals.complement(loss.account.view.busy, loss.account.view.first_ns, loss.account.view.last_ns),
        blocks.start_ns[same], blocks.end_ns[same],
    )  # fmt: skip
    waited = int(blocks.wait_ns[same].sum())
    return {
        "waits": int(same.sum()),
        "waited_ns": waited,
        # a block is as long as the operator that waits in it, which works for the rest
        "waited_while_idle_ns": min(int(idle.sum()), waited),
        "gaps": len(loss.gaps),
    }


def wait_place(run: Run, blocks: WaitBlocks, row: int) -> Place:
    """The place of a wait: its outer operator rather than the inner one that does the copying."""
    at = int(np.flatnonzero(blocks.row == row)[0])
    return Place(
        run.places.name(int(blocks.frame[at])),
        run.places.name(int(blocks.operator[at])),
        run.places.place(row).annotation,
    )


def _finding(run: Run, code: str, name: str, loss: Loss, devices: list[int], advice: str) -> Finding:
    place = wait_place(run, run.wait_blocks(int(run.timeline.spans.track[loss.row])), loss.row)
    call = run.timeline.name(loss.row)
    facts = (
        per_step(run, loss.lost_ns, loss.by_phase)
        | wait_facts(run, loss)
        | {"call": call, "devices": devices}
    )
    blocks = run.wait_blocks(int(run.timeline.spans.track[loss.row]))
    same = np.flatnonzero(blocks.key == blocks.key[int(np.flatnonzero(blocks.row == loss.row)[0])])
    worth = price(run, loss.lost_ns, lambda: without_waits(run, blocks, same))
    what = place.operator or call
    at = f" in {place.text}" if place.python else ""
    span = run.steady_span_ns(loss.account.view)
    return Finding(
        code=code,
        name=name,
        title=f"The device runs dry for {amount(loss.lost_ns, facts, loss.phase)} after the host waits for it: {what}{at}",
        lost_ns=loss.lost_ns,
        recoverable_ns=worth.ns,
        confidence="high" if place.python or place.operator else "medium",
        phase=loss.phase,
        where=place.where() if place.operator else Place(place.python, call, "").where(),
        detail=(
            f"{count(facts['waits'], 'wait')} of {duration(facts['waited_ns'])} in all, {_beside(facts)}. "
            f"{'In or after it' if facts['waits'] == 1 else 'In or after them'} the device idled "
            f"{duration(loss.lost_ns)} ({share(loss.lost_ns, span)}) until the next launches came."
        ),
        advice=advice,
        evidence=evidence(run, loss, "idle after the wait"),
        facts=facts | worth.facts(),
        fix=worth.fix,
    )


def _beside(facts: dict[str, Any]) -> str:
    """What the device did meanwhile, as a part of a sentence."""
    idle, waited = facts["waited_while_idle_ns"], facts["waited_ns"]
    if 2 * idle >= waited:
        return f"up to {duration(idle)} of it while the device was idle"
    return f"most of it while the device was busy anyway ({duration(idle)} while it was idle)"
