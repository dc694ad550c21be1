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
from stallscope.profiler import intervals

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run


def block_columns(account: IdleAccount, cause: Cause) -> dict[str, npt.NDArray[Any]]:
    """Per piece of a cause that belongs to a wait block: the block's row and place. Columns of shape (p,)."""
    pieces = account.pieces
    mask = (pieces.cause == cause) & (pieces.block >= 0)
    row = np.full(len(pieces), -1, np.intp)
    operator = np.full(len(pieces), -1, np.intp)
    frame = np.full(len(pieces), -1, np.intp)
    for track in np.unique(account.track[pieces.gap[mask]]).tolist():
        mine = mask & (account.track[pieces.gap] == track)
        blocks = account.blocks(track)
        row[mine] = blocks.row[pieces.block[mine]]
        operator[mine] = blocks.operator[pieces.block[mine]]
        frame[mine] = blocks.frame[pieces.block[mine]]
    return {"mask": mask, "row": row, "operator": operator, "frame": frame}


def sync_findings(
    run: Run, code: str, name: str, min_share: float, *, implicit: bool, advice: str
) -> Iterator[Finding]:
    """One finding per place that waits: inside an operator (implicit) or not."""
    found = widest(_sync_losses(run, account, implicit) for account in run.idle.values())
    for loss, devices in found:
        if loss.share >= min_share:
            yield _finding(run, code, name, loss, devices, advice)


def _sync_losses(run: Run, account: IdleAccount, implicit: bool) -> list[Loss]:
    columns = block_columns(account, Cause.SYNC)
    mask = columns["mask"] & ((columns["operator"] >= 0) == implicit)
    if run.blocking.active:  # LN402
        mask &= ~np.isin(columns["row"], run.blocking.syncs)
    return losses(run, account, mask, columns["row"], place_codes(run, columns))


def place_codes(run: Run, columns: dict[str, npt.NDArray[Any]]) -> list[npt.NDArray[np.intp]]:
    """Numbers that are equal for waits at one place: call, outer operator and user frame by name."""
    name = run.timeline.spans.name
    return [np.where(columns[c] >= 0, name[np.maximum(columns[c], 0)], -1).astype(np.intp)
            for c in ("row", "operator", "frame")]  # fmt: skip


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
    worth = price(run, loss.lost_ns, without_waits(run, blocks, same))
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
