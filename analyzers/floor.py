"""The floor of a step: the least time its modelled operators need on this chip; and how far the run is from it.

Floor: the sum over calls of max(FLOPs / peak, bytes / bandwidth), each no more than the call took (a tensor that
stayed in the cache can be faster than memory). It counts nothing for work without a model, so it is a lower bound;
`modelled_share` says of how much device time it speaks. MFU and MBU are FLOPs and bytes of modelled calls over what
the chip could have done in the step's whole time, idle time included (MBU: Databricks, "LLM Inference
Performance Engineering: Best Practices"; MFU: PaLM, arXiv 2204.02311, with dense peaks).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from stallscope.analyzers.models.call import Cost
from stallscope.analyzers.models.chips import Chip
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.phases import PhaseSeries
from stallscope.analyzers.units import duration, share
from stallscope.analyzers.work import Group
from stallscope.profiler import intervals
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Row = dict[str, Any]

SPOKEN = 0.80
"""From this share of modelled device time on, a floor is said in a sentence."""
FAMILIES_SAID = 3
SHOWN = 200
"""Rows of the roofline table at most, the longest; the rest is summed in one row."""


@dataclass(frozen=True)
class PhaseFloor:
    """One phase, per step and per device (the busiest of them). Times in nanoseconds.

    `measured_ns` is the time from step to step (the run's span where there are no steps), at least what the device
    was busy in it; `device_ns` is the kernel time and `floor_ns` the floor in it. Shares are 0 to 1, MFU and MBU None
    where chip or model are not known. `modelled_share` counts work with any cost, `bounded_share` only costs that are
    no mere lower bounds.
    """

    phase: str
    device: int
    steps: int
    measured_ns: int
    device_ns: int
    floor_ns: int | None
    modelled_share: float
    bounded_share: float
    named_share: float
    mfu: float | None
    mbu: float | None
    families: dict[str, int]

    @property
    def speaks(self) -> bool:
        """Whether the floor covers enough to be said without its share."""
        return self.floor_ns is not None and self.bounded_share >= SPOKEN

    @property
    def text(self) -> str:
        """ "9.10 ms, floor 3.60 ms", as far as it is known."""
        text = duration(self.measured_ns)
        return f"{text}, floor {duration(self.floor_ns)}" if self.speaks and self.floor_ns else text


class Floor:
    """Floors of all phases of a run, the phase that takes longest first."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def phases(self) -> list[PhaseFloor]:
        return [f for series in self.run.series if (f := self._phase(series)) is not None] or self._whole()

    def of(self, phase: str) -> PhaseFloor | None:
        """The floor of one phase, None where none of its device work is known."""
        return next((f for f in self.phases if f.phase == phase), None)

    def _phase(self, series: PhaseSeries) -> PhaseFloor | None:
        from stallscope.analyzers.verdict import period_ns

        steps = len(series.steps) - series.warm_up
        return self._made(series.phase, steps, period_ns(self.run, series)) if steps else None

    def _whole(self) -> list[PhaseFloor]:
        """The whole recording as one step, where there are no steps."""
        found = self._made(None, 1, self.run.whole.span_ns)
        return [found] if found is not None else []

    def _made(self, phase: str | None, steps: int, measured_ns: int) -> PhaseFloor | None:
        groups = [g for g in self.run.work.step_groups if phase is None or g.phase == phase]
        by_device: dict[int, int] = {}
        for group in groups:
            by_device[group.device] = by_device.get(group.device, 0) + group.total_ns
        if not any(by_device.values()):
            return None
        device = max(by_device, key=lambda d: by_device[d])
        groups = [g for g in groups if g.device == device]
        total = by_device[device]
        modelled = sum(g.total_ns for g in groups if g.cost is not None)
        named = sum(g.total_ns for g in groups if g.family is not Family.OTHER)
        floors = [g.floor_ns for g in groups if g.floor_ns is not None]
        families: dict[str, int] = {}
        for group in groups:
            families[str(group.family)] = families.get(str(group.family), 0) + group.total_ns
        bounded = sum(g.total_ns for g in groups if g.cost is not None and g.cost.basis != "lower bound")
        measured_ns = max(measured_ns, self._busy_ns(groups) // steps)
        mfu, mbu = self._utilisation(groups, device, measured_ns * steps)
        return PhaseFloor(
            phase=phase or "",
            device=device,
            steps=steps,
            measured_ns=measured_ns,
            device_ns=total // steps,
            floor_ns=sum(floors) // steps if floors else None,
            modelled_share=modelled / total,
            bounded_share=bounded / total,
            named_share=named / total,
            mfu=mfu,
            mbu=mbu,
            families={k: v // steps for k, v in sorted(families.items(), key=lambda item: -item[1])},
        )

    def _busy_ns(self, groups: list[Group]) -> int:
        """How long the device was busy with these groups."""
        spans = self.run.timeline.spans
        rows = np.concatenate([g.rows for g in groups])
        return intervals.length(
            intervals.union(spans.start_ns[rows], spans.start_ns[rows] + spans.dur_ns[rows])
        )

    def _utilisation(
        self, groups: list[Group], device: int, wall_ns: int
    ) -> tuple[float | None, float | None]:
        chip = self.run.chips.get(device)
        if chip is None or wall_ns <= 0:
            return None, None
        seconds = wall_ns / 1e9
        compute = sum(_compute_s(g.cost, chip, g) * g.calls for g in groups if g.cost is not None)
        moved = sum(g.cost.bytes * g.calls for g in groups if g.cost is not None and _on_device(g))
        memory = moved / chip.bandwidth.value / seconds if chip.bandwidth is not None else None
        return compute / seconds, memory

    @cached_property
    def line(self) -> str:
        """One sentence on what the models know, for the report's head; "" without device work."""
        work = self.run.work
        if work.total_ns == 0:
            return ""
        known = f"cost models know {share(work.modelled_ns, work.total_ns)} of the device time ({self._families()})"
        told = max(self.phases, key=lambda f: (f.phase != "other", f.device_ns * f.steps), default=None)
        if told is None or not told.speaks or told.mfu is None or told.mbu is None:
            return known
        name = f" in {told.phase}" if told.phase not in ("", "other") else ""
        return f"{known}; MFU {100 * told.mfu:.1f} %, MBU {100 * told.mbu:.1f} %{name}"

    def _families(self) -> str:
        """The families that take most of the device's time: "gemm 61 %, attention 20 %"."""
        sums: dict[Family, int] = {}
        for group in self.run.work.groups:
            sums[group.family] = sums.get(group.family, 0) + group.total_ns
        total = max(self.run.work.total_ns, 1)
        first = sorted(sums.items(), key=lambda item: -item[1])[:FAMILIES_SAID]
        return ", ".join(f"{family} {ns / total:.0%}".replace("%", " %") for family, ns in first)

    # -- tables ------------------------------------------------------------------------------------

    def tables(self) -> dict[str, list[Row]]:
        """The tables "floor", "families" and "roofline" of a report; empty ones are left out."""
        if self.run.work.total_ns == 0:
            return {}
        found = {
            "floor": self._floor_rows(),
            "families": self._family_rows(),
            "roofline": self._roofline_rows(),
        }
        return {name: rows for name, rows in found.items() if rows}

    def _floor_rows(self) -> list[Row]:
        return [
            {
                "phase": f.phase,
                "device": f.device,
                "chip": self._chip_name(f.device),
                "steps": f.steps,
                "measured_ns": f.measured_ns,
                "device_ns": f.device_ns,
                "floor_ns": f.floor_ns,
                "times_floor": round(f.measured_ns / f.floor_ns, 2) if f.speaks and f.floor_ns else None,
                "modelled_share": round(f.modelled_share, 4),
                "bounded_share": round(f.bounded_share, 4),
                "named_share": round(f.named_share, 4),
                "mfu": _rounded(f.mfu) if f.speaks else None,
                "mbu": _rounded(f.mbu) if f.speaks else None,
                "note": self._note(f),
            }
            for f in self.phases
        ]

    def _chip_name(self, device: int) -> str:
        chip = self.run.chips.get(device)
        return chip.name if chip is not None else ""

    def _note(self, found: PhaseFloor) -> str:
        if self.run.chips.get(found.device) is None:
            return "the chip is unknown, or its peaks are not in the table"
        if not found.modelled_share:
            return "no operator with a cost model was recorded (record_shapes)"
        if found.modelled_share < SPOKEN:
            return f"the floor speaks of {found.modelled_share:.0%} of the device time only"
        if found.bounded_share < SPOKEN:
            return f"for {found.modelled_share - found.bounded_share:.0%} of the device time only a lower bound of the work is known"
        return ""

    def _family_rows(self) -> list[Row]:
        """Device time per phase and family, with the part that has a model."""
        sums: dict[tuple[str, str], list[int]] = {}
        for group in self.run.work.groups:
            entry = sums.setdefault((group.phase, str(group.family)), [0, 0, 0])
            entry[0] += group.total_ns
            entry[1] += group.total_ns if group.cost is not None else 0
            entry[2] += group.calls
        total = max(self.run.work.total_ns, 1)
        return [
            {"phase": phase, "family": family, "total_ns": ns, "share": round(ns / total, 4), "modelled_ns": known,
             "calls": calls}
            for (phase, family), (ns, known, calls) in sorted(sums.items(), key=lambda item: -item[1][0])
        ]  # fmt: skip

    def _roofline_rows(self) -> list[Row]:
        groups = self.run.work.groups
        rows = [roofline_row(g, self.run.chips.get(g.device)) for g in groups[:SHOWN]]
        rest = groups[SHOWN:]
        if rest:
            rows.append(
                {
                    "operator": f"{len(rest)} more",
                    "kernel": "",
                    "calls": sum(g.calls for g in rest),
                    "total_ns": sum(g.total_ns for g in rest),
                }
            )
        return rows


def _on_device(group: Group) -> bool:
    """Whether a group's bytes go through device memory: not those over a link to the host or another device."""
    return group.point is None or group.point.memory_share is not None


def _compute_s(cost: Cost | None, chip: Chip, group: Group) -> float:
    """The least seconds the arithmetic of one call takes, 0 where its peak is unknown."""
    if cost is None or group.point is None or group.point.peak_flops is None:
        return 0.0
    return cost.flops / group.point.peak_flops.value


def roofline_row(group: Group, chip: Chip | None) -> Row:
    """One group as a row of the table. `share` is None, and `note` says why, where it may not be believed."""
    row: Row = {
        "operator": group.operator,
        "kernel": group.kernel,
        "shapes": group.shapes,
        "phase": group.phase,
        "device": group.device,
        "family": str(group.family),
        "calls": group.calls,
        "total_ns": group.total_ns,
        "mean_ns": group.mean_ns,
    }
    cost, point = group.cost, group.point
    if cost is None or point is None:
        return row | {"bound": "", "note": "no cost model, or no shapes were recorded"}
    fault = point.verdict == "model-or-clock-fault"
    return row | {
        "flops": cost.flops,
        "bytes": cost.bytes,
        "intensity": round(cost.intensity, 3) if cost.intensity is not None else None,
        "flops_per_s": round(point.flops_per_s),
        "bytes_per_s": round(point.bytes_per_s),
        "share": None if fault else _rounded(point.share),
        "compute_share": None if fault else _rounded(point.compute_share),
        "memory_share": None if fault else _rounded(point.memory_share),
        "bound": point.verdict,
        "basis": cost.basis,
        "dtype": point.dtype,
        "chip": chip.name if chip is not None else "",
        "peak_flops_per_s": point.peak_flops.value if point.peak_flops is not None else None,
        "peak_bytes_per_s": point.peak_bytes.value if point.peak_bytes is not None else None,
        "floor_ns": group.floor_ns,
        "gain_ns": group.gain_ns if point.gain_ns is not None else None,
        "blocks": group.blocks,
        "note": "; ".join(x for x in (point.reason, cost.note) if x),
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
