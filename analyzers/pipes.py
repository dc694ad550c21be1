"""Which pipe of an NPU's cores bound a kernel, by the counters that the profiler recorded with it.

Every core has pipes that work side by side: a cube core multiplies (mac), moves from L1 to its operand buffers (mte1),
from memory to L1 (mte2) and results out (fixpipe); a vector core computes (vec), reads (mte2) and writes (mte3) memory;
both run scalar code. A ratio is the share of the core's own cycles in which the pipe was busy. Pipes overlap, so ratios
add up to more than 1; a pipe that was busy nearly all the time is what the kernel waited for.

Limits: 0.8 busy is bound and all at most 0.8 is bound by none (msprof-analyze's advisor, rule "operator no bound"); a
vector kernel that reads and writes in turn is bound by memory where both together reach 0.9 (its vector rule). The cube
goes first: at 0.8 busy nothing but less arithmetic helps, however busy the rest is.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from stallscope.analyzers.models.call import Cost
from stallscope.analyzers.models.roofline import IMPOSSIBLE, LOW, TARGET, RooflinePoint, far_from_roofs
from stallscope.analyzers.units import size
from stallscope.profiler.light import dataclass

Bound = Literal[
    "cube-bound", "vector-bound", "memory-bound", "feed-bound", "scalar-bound", "unbound", "unknown"
]

BUSY = 0.80
"""Share of its cycles from which on a pipe binds (msprof-analyze)."""
AGAIN = 1.5
"""From this many times its operands' bytes on, a kernel reads them more than once."""
IN_TURN = 0.90
"""Reading and writing together, for vector kernels that do one after the other (msprof-analyze)."""

COMPUTE: dict[str, Bound] = {"mac": "cube-bound", "vec": "vector-bound"}
MEMORY = ("mte2", "mte3", "fixpipe")
SIDES = ("aic", "aiv", "")
"""Cube core, vector core, and the one core of chips that do not split them."""
PIPES = ("mac", "vec", "mte1", "mte2", "mte3", "fixpipe", "scalar")

PIPE_WORDS = {
    "mac": "the cube",
    "vec": "the vector unit",
    "mte1": "MTE1 (L1 to the cube's buffers)",
    "mte2": "MTE2 (reading memory)",
    "mte3": "MTE3 (writing memory)",
    "fixpipe": "the fixpipe (results of the cube)",
    "scalar": "the scalar unit",
}


@dataclass(frozen=True)
class Pipes:
    """How busy the pipes of a kernel were. `ratios` maps (side, pipe) to 0..1, as far as recorded.

    `mixed` tells that cube and vector cores worked together: each waits for the other in its scalar unit, so a busy
    scalar unit proves nothing there. `compute_only` tells that only cube and vector units were counted
    (ArithmeticUtilization): what binds where they do not is unknown.
    """

    ratios: Mapping[tuple[str, str], float]
    mixed: bool = False
    compute_only: bool = False

    @property
    def bound(self) -> Bound:
        """What the kernel waited for."""
        for pipe, verdict in COMPUTE.items():
            if self._most((pipe,)) >= BUSY:
                return verdict
        if self.compute_only:
            return "unknown"
        if self._most(MEMORY) >= BUSY or self._moves_in_turn():
            return "memory-bound"
        if self._most(("mte1",)) >= BUSY:
            return "feed-bound"
        if self._most(("scalar",)) >= BUSY and not self.mixed:
            return "scalar-bound"
        return "unbound"

    @property
    def busiest(self) -> tuple[str, str, float]:
        """Side, pipe and ratio of the pipe that binds, or of the busiest one where none does."""
        wanted: tuple[str, ...] = {
            "cube-bound": ("mac",),
            "vector-bound": ("vec",),
            "memory-bound": MEMORY,
            "feed-bound": ("mte1",),
            "scalar-bound": ("scalar",),
            "unknown": tuple(COMPUTE),
            "unbound": tuple(p for p in PIPES if not (self.mixed and p == "scalar")),
        }[self.bound]
        (side, pipe), ratio = max(
            ((key, r) for key, r in self.ratios.items() if key[1] in wanted), key=lambda item: item[1]
        )
        return side, pipe, ratio

    @property
    def best_factor(self) -> float:
        """The share of its time the kernel would need at the least, if what it waited for cost nothing.

        Bound: it runs until the next busy pipe binds. Bound by none: until the busiest pipe is busy at 0.8.
        """
        _, pipe, ratio = self.busiest
        if self.bound == "unknown":
            return 1.0
        if self.bound == "unbound":
            return min(1.0, ratio / BUSY)
        binding = MEMORY if self.bound == "memory-bound" else (pipe,)
        others = [
            r
            for key, r in self.ratios.items()
            if key[1] not in binding and not (self.mixed and key[1] == "scalar")
        ]
        return min(1.0, max(others, default=0.0) / ratio) if ratio else 1.0

    @property
    def text(self) -> str:
        """ "MTE2 (reading memory) was busy 97 % of the time"."""
        side, pipe, ratio = self.busiest
        where = (
            {"aic": " of the cube cores", "aiv": " of the vector cores"}.get(side, "") if self.mixed else ""
        )
        return f"{PIPE_WORDS[pipe]}{where} was busy {100 * ratio:.0f} % of the time"

    def _most(self, pipes: tuple[str, ...]) -> float:
        return max((r for (_, pipe), r in self.ratios.items() if pipe in pipes), default=0.0)

    def _moves_in_turn(self) -> bool:
        """Whether a vector core did nothing but read and write, one after the other."""
        read, written = self.ratios.get(("aiv", "mte2"), 0.0), self.ratios.get(("aiv", "mte3"), 0.0)
        cube = max((r for (side, _), r in self.ratios.items() if side == "aic"), default=0.0)
        return read + written >= IN_TURN and cube < BUSY and not self.mixed


def with_bytes(point: RooflinePoint, moved: int | None, cost: Cost, duration_ns: int) -> RooflinePoint:
    """A roofline point with the bytes that a call was measured to move (MemoryAccess), where shapes could not tell.

    Shapes give the least a kernel must move. One that moved more, at the speed of memory, waits for memory; one that
    moved more than its operands hold reads them again and again.
    """
    if (
        moved is None
        or point.peak_bytes is None
        or point.verdict not in ("unknown", "inefficient", "latency-bound")
    ):
        return point
    share = moved / (duration_ns / 1e9) / point.peak_bytes.value
    again = (
        f", {moved / cost.bytes:.1f} times what its operands hold"
        if cost.bytes and moved > AGAIN * cost.bytes
        else ""
    )
    reason = f"{point.reason}; it moved {size(moved)}{again}, at {share:.0%} of the bandwidth"
    if point.verdict == "unknown" and LOW <= share <= IMPOSSIBLE:
        return replace(point, verdict="memory-bound", reason=reason)
    return replace(point, reason=reason)


def with_pipes(
    point: RooflinePoint,
    pipes: Pipes | None,
    cost: Cost,
    duration_ns: int,
    blocks: int | None = None,
    cores: int | None = None,
) -> RooflinePoint:
    """A roofline point with what the pipes tell where shapes and peaks cannot.

    A busy cube or vector unit proves that arithmetic binds, whatever share of the peak the shapes give (padding, a
    lower clock, a slower type). Where no peak is known, a busy memory pipe beside an idle cube proves that moving data
    binds; if the bandwidth is known and not reached, the data is moved badly, and the cube's own share of the time is
    the other floor.
    """
    if pipes is None or point.verdict in ("memory-bound", "compute-bound", "model-or-clock-fault"):
        return point
    if pipes.bound in ("cube-bound", "vector-bound"):
        reason = f"{pipes.text}: only less work helps" + (f"; {point.reason}" if point.reason else "")
        return replace(point, verdict="compute-bound", reason=reason, gain_ns=None)
    if pipes.bound != "memory-bound":
        return point
    if point.verdict != "unknown":
        return replace(point, reason=f"{point.reason}; {pipes.text}")
    if point.memory_share is None or point.memory_share >= LOW:
        return replace(point, verdict="memory-bound", reason=f"{pipes.text}; {point.reason}")
    if point.compute_share is not None or cost.basis != "shapes":
        return point
    busy = max((r for (_, pipe), r in pipes.ratios.items() if pipe in COMPUTE), default=0.0)
    share = max(point.memory_share, busy)
    if share >= LOW:
        return point
    verdict, reason = far_from_roofs(duration_ns, share, (blocks, cores))
    floor = math.ceil(share * duration_ns)
    return replace(
        point,
        verdict=verdict,
        reason=f"{reason}; {pipes.text}",
        roof="memory" if share == point.memory_share else "compute",
        share=share,
        floor_ns=floor,
        gain_ns=max(0, duration_ns - math.ceil(floor / TARGET)),
    )
