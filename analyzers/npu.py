"""Kernels of NPUs by core kind, with blocks, core counters and clocks; what a kernel table tells beside times.

Nothing here looks at framework operators: a kernel of a lone kernel table is as good as one of a whole recording.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.models.call import bits, parse_dtype
from stallscope.analyzers.pipes import MEMORY, PIPES, SIDES, Pipes
from stallscope.analyzers.registry import NotAnalysable, NotApplicable
from stallscope.analyzers.units import size
from stallscope.analyzers.work import Group, grid_blocks
from stallscope.profiler import kernels
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Int32, Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]
Row = dict[str, Any]

CUBE, VECTOR, MIX_CUBE, MIX_VECTOR, AI_CPU = "AI_CORE", "AI_VECTOR_CORE", "MIX_AIC", "MIX_AIV", "AI_CPU"
CORES = (CUBE, VECTOR, MIX_CUBE, MIX_VECTOR)
"""Core kinds that compute at speed; AI CPUs are ordinary processors beside them."""
MIXED = (MIX_CUBE, MIX_VECTOR)

VECTOR_PER_CUBE = 2
"""Vector cores per cube core on every Ascend that splits them (910B, 910C, 950: platform files)."""
CLOCK_FROM_NS = 10_000
"""Shorter kernels tell cycles over time too coarsely: times have three decimals of a microsecond."""
WHOLE = 0.01
"""How far a core count worked out from utilisation may be from a whole number."""
UNUSED = 0.05
"""No pipe of a side busier than this: the kernel did not use that kind of core."""
SHOWN = 200
KIB = 1024

BURST_BYTES = 512
"""What MTE2 fetches at once at full speed (CANN operator guides; msprof-analyze asks for 256 elements of 16 bits)."""
PLAIN = ("ND", "FORMAT_ND", "NCHW", "NCL", "")
"""Layouts whose rows lie in memory as the shape says; FRACTAL_NZ and the like are tiled, and so aligned."""

_NUMBERED = re.compile(r"(?:_\d+)+$|(?<=[a-zA-UW-Z])\d+$")
_AIV_ONLY = re.compile(r"^aiv_")


def op_type(name: str) -> str:
    """The operator's type as a kernel's name tells it, where no table does.

    >>> op_type("aclnnAdd_AddAiCore_Add"), op_type("trans_TransData_12"), op_type("Conv2D1")
    ('Add', 'TransData', 'Conv2D')
    """
    short = _NUMBERED.sub("", name[:500])
    if short.startswith(("aclnn", "trans_")):
        short = short.rsplit("_", 1)[-1]
    return short or name[:500]


@dataclass(frozen=True)
class KernelGroup:
    """Kernels of one operator type, core kind, shapes, types and blocks, on one device, in one phase.

    `group` is the work group of the operator calls behind them where each call is this one kernel, so that its cost
    and roofline are the kernel's own.
    """

    op_type: str
    kernel: str
    core: str
    device: int
    phase: str
    rows: Rows
    total_ns: int
    blocks: int | None
    shapes: list[list[int]] = field(default_factory=list)
    dtypes: list[str] = field(default_factory=list)
    formats: list[str] = field(default_factory=list)
    pipes: Pipes | None = None
    moved_bytes: int | None = None
    group: Group | None = None

    @property
    def calls(self) -> int:
        return len(self.rows)

    @property
    def mean_ns(self) -> int:
        return self.total_ns // max(len(self.rows), 1)

    @property
    def shapes_text(self) -> str:
        text = " ".join(str(s) for s in self.shapes if s)
        return text if len(text) <= 160 else text[:159] + "…"


@dataclass(frozen=True)
class Operand:
    """The operand that most bytes of a kernel belong to."""

    shape: tuple[int, ...]
    dtype: str
    bytes: int
    row_bytes: int

    @property
    def aligned(self) -> bool:
        return self.row_bytes % BURST_BYTES == 0


@dataclass(frozen=True)
class CoreCount:
    """How many cube and vector cores a device has, and who says so."""

    cube: int
    vector: int
    source: str

    def of(self, core: str) -> int:
        return self.vector if core in (VECTOR, MIX_VECTOR) else self.cube


class Npu:
    """What is known of the NPU kernels of a run. All row arrays are in timeline order."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.timeline = run.timeline

    def need(self) -> None:
        """Raises NotApplicable where no NPU was recorded."""
        if not self.present:
            raise NotApplicable("no Ascend NPU was recorded")

    def need_pipes(self) -> None:
        """Raises NotAnalysable where the busy shares of all pipes were not recorded."""
        if not self.has_pipes:
            raise NotAnalysable(
                "how busy the pipes were was not recorded: record with profiler level Level1 and aic_metrics PipeUtilization"
            )

    def by_operator(self, wanted: Callable[[KernelGroup], bool]) -> list[list[KernelGroup]]:
        """The wanted groups of kernels, those of one operator type, phase and device together."""
        found: dict[tuple[str, str, int], list[KernelGroup]] = {}
        for group in self.groups:
            if wanted(group):
                found.setdefault((group.op_type, group.phase, group.device), []).append(group)
        return list(found.values())

    @cached_property
    def present(self) -> bool:
        """Whether any device is an NPU, by the source's word or by the core kinds of its kernels."""
        told = self.run.session.facts.get("devices", {}).values()
        vendors = {d.get("vendor") for d in told if isinstance(d, dict)}
        return "Ascend" in vendors or "Huawei" in vendors or bool((self.core >= 0).any())

    # -- columns -------------------------------------------------------------------------------------

    @cached_property
    def core_names(self) -> list[str]:
        return [*CORES, AI_CPU]

    @cached_property
    def core(self) -> npt.NDArray[np.int8]:
        """An index into `core_names` per row of kernels, -1 where the kind is not told. Shape (n,).

        A kernel table knows best. Traces alone call vector kernels AI_CORE too, so there only AI CPU and mixed kinds
        are believed.
        """
        spans, rows = self.timeline.spans, self.timeline.rows(Kind.KERNEL)
        out = np.full(len(spans), -1, np.int8)
        table = np.full(len(self.timeline.strings) + 1, -1, np.int8)  # the last one is for no category
        for code in self._categories():
            table[code] = self._core_code(self.timeline.strings[code], sure=False)
        out[rows] = table[spans.category[rows]]
        for key, sure in (("Task Type", False), ("Accelerator Core", True)):
            if key in self.timeline.args.keys:
                codes, values = self.timeline.arg_values(key, rows)
                known = np.array([self._core_code(str(v), sure) for v in values] + [-1], np.int8)[codes]
                out[rows[known >= 0]] = known[known >= 0]
        return out

    def _categories(self) -> list[int]:
        """String codes of the categories that kernels have."""
        found = kernels.distinct(self.timeline.spans.category[self.timeline.rows(Kind.KERNEL)])
        return [code for code in found.tolist() if code >= 0]

    def _core_code(self, text: str, sure: bool) -> int:
        text = text.upper().replace("AICPU", "AI_CPU")
        if text not in self.core_names or (text == CUBE and not sure):
            return -1
        return self.core_names.index(text)

    @cached_property
    def is_core_task(self) -> npt.NDArray[np.bool_]:
        """Kernels that ran on cores of whichever kind, not on AI CPUs. Shape (n,)."""
        spans = self.timeline.spans
        table = np.zeros(max(len(self.timeline.strings), 1), bool)
        for code in self._categories():
            table[code] = self.timeline.strings[code].upper() in CORES
        on_core = (spans.kind == Kind.KERNEL) & (spans.category >= 0) & table[np.maximum(spans.category, 0)]
        return np.asarray(on_core | np.isin(self.core, [self.core_names.index(c) for c in CORES]), np.bool_)

    @cached_property
    def rows(self) -> Rows:
        """Kernels on NPU cores of a known kind, outside of warm-up, by start."""
        rows = self.run.work.device_rows
        return rows[self.core[rows] >= 0]

    def core_of(self, row: int) -> str:
        return self.core_names[int(self.core[row])] if self.core[row] >= 0 else ""

    @cached_property
    def types(self) -> tuple[Int32, list[str]]:
        """Operator type per row of kernels, as a code (-1 no kernel) and the texts. Shape (n,)."""
        spans = self.timeline.spans
        texts: dict[str, int] = {}
        out = np.full(len(spans), -1, np.int32)
        kernel = np.flatnonzero(spans.kind == Kind.KERNEL)
        names, at = np.unique(spans.name[kernel], return_inverse=True)
        by_name = [texts.setdefault(op_type(self.timeline.strings[int(n)]), len(texts)) for n in names]
        if len(kernel):
            out[kernel] = np.array(by_name, np.int32)[at.reshape(-1)]
            codes, values = self.timeline.arg_values("Type", kernel)
            told = [texts.setdefault(str(v), len(texts)) for v in values]
            has = codes >= 0
            out[kernel[has]] = np.array(told or [0], np.int32)[codes[has]]
        return out, list(texts)

    def type_of(self, row: int) -> str:
        codes, texts = self.types
        return texts[int(codes[row])] if codes[row] >= 0 else ""

    def numbers(self, key: str) -> Floats:
        """A number argument per row, NaN where it was not recorded. Shape (n,)."""
        if key not in self._numbers:
            known = key in self.timeline.args.keys
            self._numbers[key] = (
                self.timeline.arg_floats(key) if known else np.full(len(self.timeline), np.nan)
            )
        return self._numbers[key]

    @cached_property
    def _numbers(self) -> dict[str, Floats]:
        return {}

    # -- counters of the cores -----------------------------------------------------------------------

    @cached_property
    def _ratio_keys(self) -> dict[tuple[str, str], str]:
        """The recorded ratio columns: (side, pipe) to the argument's key. Empty without PipeUtilization."""
        found = {}
        for side in SIDES:
            for pipe in PIPES:
                key = f"{side}_{pipe}_ratio" if side else f"{pipe}_ratio"
                if key in self.timeline.args.keys:
                    found[side, pipe] = key
        return found

    @cached_property
    def _compute_keys(self) -> dict[tuple[str, str], list[str]]:
        """ArithmeticUtilization: cube and vector time by element type, whose sum is how busy the unit was."""
        parts = {("aic", "mac"): ("aic_mac_fp16_ratio", "aic_mac_int8_ratio"),
                 ("aiv", "vec"): tuple(f"aiv_vec_{t}_ratio" for t in ("fp32", "fp16", "int32", "misc")),
                 ("", "mac"): ("mac_fp16_ratio", "mac_int8_ratio"),
                 ("", "vec"): tuple(f"vec_{t}_ratio" for t in ("fp32", "fp16", "int32", "misc"))}  # fmt: skip
        known = self.timeline.args.keys
        return {where: found for where, keys in parts.items() if (found := [k for k in keys if k in known])}

    @property
    def has_pipes(self) -> bool:
        """Whether the busy shares of all pipes were recorded."""
        return any(pipe in MEMORY for _, pipe in self._ratio_keys)

    @property
    def has_counters(self) -> bool:
        """Whether anything was recorded of how busy pipes were."""
        return bool(self._ratio_keys or self._compute_keys)

    def pipes(self, rows: Rows) -> Pipes | None:
        """The pipes of some kernels of one kind, their mean by time; None where nothing was recorded."""
        if not self.has_counters:
            return None
        weight = self.timeline.spans.dur_ns[rows].astype(np.float64)
        ratios = {}
        for where, keys in self._columns().items():
            values = sum((self.numbers(key)[rows] for key in keys), np.zeros(len(rows)))
            good = np.isfinite(values) & (values >= 0) & (values <= 1.05)
            if good.any() and weight[good].sum() > 0:
                ratios[where] = float((values[good] * weight[good]).sum() / weight[good].sum())
        if not any(r > 0 for r in ratios.values()):
            return None
        both = all(any(r > UNUSED for (side, _), r in ratios.items() if side == s) for s in ("aic", "aiv"))
        return Pipes(ratios, both and self.core_of(int(rows[0])) in MIXED, not self.has_pipes)

    def _columns(self) -> dict[tuple[str, str], list[str]]:
        """The columns whose sum is each pipe's busy share."""
        if self._ratio_keys:
            return {where: [key] for where, key in self._ratio_keys.items()}
        return self._compute_keys

    @cached_property
    def _byte_keys(self) -> list[str]:
        """Columns of bytes to and from device memory; databases tell no unit, so theirs are not used."""
        return [k for k in self.timeline.args.keys if k.endswith("main_memory_datas(KB)")]

    def moved_bytes(self, rows: Rows) -> int | None:
        """Bytes that these kernels moved to and from device memory (MemoryAccess), None where not recorded."""
        total, known = 0.0, np.zeros(len(rows), bool)
        for key in self._byte_keys:
            values = self.numbers(key)[rows]
            known |= np.isfinite(values)
            total += float(np.nansum(np.maximum(values, 0)))
        return round(total * KIB) if len(rows) and known.all() else None

    # -- cores and clocks ----------------------------------------------------------------------------

    @cached_property
    def cores(self) -> dict[int, CoreCount]:
        """Core counts of each device whose number is known: told, measured, or those of its chip."""
        found = {}
        for number in self.run.devices:
            known = self._told_cores(number) or self._measured_cores(number) or self._chip_cores(number)
            if known is not None:
                found[number] = known
        return found

    def told(self, number: int) -> dict[str, Any]:
        """What the source says of a device; {} where it says nothing."""
        entry = self.run.session.facts.get("devices", {}).get(str(number % 1000), {})
        return entry if isinstance(entry, dict) else {}

    def _told_cores(self, number: int) -> CoreCount | None:
        cube, vector = self.told(number).get("aic_cores"), self.told(number).get("aiv_cores")
        if not isinstance(cube, int) or cube <= 0:
            return None
        if not isinstance(vector, int) or vector <= 0:
            vector = cube
        return CoreCount(cube, vector, "as the recording tells")

    def _measured_cores(self, number: int) -> CoreCount | None:
        """From the cube's utilisation, which is core time x blocks / (cores x duration), where it comes out whole."""
        rows = self.rows[self.run.work.device_of(self.rows) == number]
        rows = rows[self.core[rows] == self.core_names.index(CUBE)]
        time_us, share = self.numbers("aicore_time(us)")[rows], self.numbers("cube_utilization(%)")[rows]
        blocks = self.blocks[rows]
        with np.errstate(divide="ignore", invalid="ignore"):
            count = time_us * 1000 * blocks / (self.timeline.spans.dur_ns[rows] * share / 100)
        count = count[np.isfinite(count) & (time_us * 1000 >= CLOCK_FROM_NS) & (share > 0)]
        if len(count) == 0:
            return None
        cube = int(np.round(np.median(count)))
        if cube <= 0 or np.abs(count / cube - 1).max() > WHOLE:
            return None
        split = any(_AIV_ONLY.match(key) for key in self.timeline.args.keys)
        return CoreCount(
            cube, cube * VECTOR_PER_CUBE if split else cube, "measured by the cube's utilisation"
        )

    def measured(self, device: int) -> dict[str, int]:
        """Cores and clock in MHz of a device by its own number, where the recording tells neither; {} if unknown."""
        told = self.told(device)
        clock = told.get("measured_aic_mhz")
        if (
            told.get("vendor") != "Ascend"
            or told.get("name")
            or told.get("cores")
            or not isinstance(clock, float)
        ):
            return {}
        counts = [self._measured_cores(n) for n in self.run.devices if n % 1000 == device]
        known = next((c for c in counts if c is not None), None)
        return {"cores": known.cube, "aic_mhz": round(clock)} if known is not None else {}

    def _chip_cores(self, number: int) -> CoreCount | None:
        chip = self.run.chips.get(number)
        if chip is None or chip.vendor != "Huawei" or not chip.cores:
            return None
        one = "310P" in chip.name
        return CoreCount(chip.cores, chip.cores if one else chip.cores * VECTOR_PER_CUBE, f"of a {chip.name}")

    @cached_property
    def blocks(self) -> Int64:
        """Blocks per row, 0 where not recorded. Shape (n,)."""
        keys = [k for k in ("Block Num", "Block Dim") if k in self.timeline.args.keys]
        return (
            np.maximum(self.timeline.arg_ints(keys[0], 0), 0)
            if keys
            else np.zeros(len(self.timeline), np.int64)
        )

    def cores_of(self, row: int) -> int | None:
        """How many cores there are of the kind that a kernel runs on, None where not known."""
        core = self.core_of(row)
        if core not in CORES:
            return None
        known = self.cores.get(int(self.run.work.device_of(row)))
        return known.of(core) if known is not None else None

    @cached_property
    def clock_mhz(self) -> Floats:
        """The core clock in which each kernel ran, cycles / (core time x blocks), NaN where not known. Shape (n,).

        Only of kernels on one kind of core with at most as many blocks as cores: with more, core time counts rounds.
        """
        out = np.full(len(self.timeline), np.nan)
        device = self.run.work.device_of(self.rows)
        for core, side, time_key in ((CUBE, "aic", "aicore_time(us)"), (VECTOR, "aiv", "aiv_time(us)")):
            for number, count in self.cores.items():
                rows = self.rows[(self.core[self.rows] == self.core_names.index(core)) & (device == number)]
                blocks, time_us = self.blocks[rows], self.numbers(time_key)[rows]
                with np.errstate(divide="ignore", invalid="ignore"):
                    clock = self.numbers(f"{side}_total_cycles")[rows] / (time_us * blocks)
                good = np.isfinite(clock) & (time_us * 1000 >= CLOCK_FROM_NS) & (blocks <= count.of(core))
                out[rows[good]] = clock[good]
        return out

    def counter(self, number: int, name: str) -> tuple[Int64, Floats]:
        """Times and values of a device's counter whose name begins so, by time."""
        counters, tracks = self.timeline.counters, self.timeline.tracks
        if len(counters) == 0:
            return np.zeros(0, np.int64), np.zeros(0)
        wanted = [
            c
            for c in kernels.distinct(counters.name).tolist()
            if self.timeline.strings[int(c)].startswith(name)
        ]
        views = self.run.devices[number]
        ranks = {tracks[int(t)].rank for t in kernels.distinct(self.timeline.spans.track[views.rows])}
        devices = {tracks[int(t)].device for t in kernels.distinct(self.timeline.spans.track[views.rows])}
        here = np.array([t.rank in ranks and max(t.device, 0) in devices for t in tracks] + [False])
        rows = np.flatnonzero(kernels.among(counters.name, wanted) & here[counters.track])
        rows = rows[np.argsort(counters.time_ns[rows], kind="stable")]
        return counters.time_ns[rows], counters.value[rows]

    # -- groups --------------------------------------------------------------------------------------

    @cached_property
    def groups(self) -> list[KernelGroup]:
        """All kernels of known core kind outside of warm-up, by group, the longest in sum first."""
        rows = self.rows
        if len(rows) == 0:
            return []
        work = self.run.work
        lists = {
            k: self.timeline.arg_values(k, rows)
            for k in ("Input Shapes", "Input Data Types", "Input Formats")
        }
        code, first = kernels.group(
            self.types[0][rows], self.core[rows], self.blocks[rows], work.device_of(rows), work.phase_of_row[rows],
            *(codes for codes, _ in lists.values()),
        )  # fmt: skip
        order = np.argsort(code, kind="stable")
        members = np.split(rows[order], np.cumsum(np.bincount(code))[:-1])
        blocks = grid_blocks(self.timeline, rows[first])
        found = []
        for head, mine, count in zip(first.tolist(), members, blocks, strict=True):
            values = [v[int(c[head])] if c[head] >= 0 else [] for c, v in lists.values()]
            found.append(self._group(mine, count, *(v if isinstance(v, list) else [] for v in values)))
        return sorted(found, key=lambda g: (-g.total_ns, g.op_type, g.kernel))

    def _group(
        self, rows: Rows, blocks: int | None, shapes: list[Any], dtypes: list[Any], formats: list[Any]
    ) -> KernelGroup:
        head = int(rows[0])
        work = self.run.work
        return KernelGroup(
            op_type=self.type_of(head),
            kernel=self.timeline.name(head),
            core=self.core_of(head),
            device=int(work.device_of(head)),
            phase=work.phase_names[int(work.phase_of_row[head])],
            rows=rows,
            total_ns=int(self.timeline.spans.dur_ns[rows].sum()),
            blocks=blocks,
            shapes=[s for s in shapes if isinstance(s, list)],
            dtypes=[str(d) for d in dtypes],
            formats=[str(f) for f in formats],
            pipes=self.pipes(rows),
            moved_bytes=self.moved_bytes(rows),
            group=self._work_group(rows),
        )

    @cached_property
    def _group_of_row(self) -> Int32:
        """The work group of each row whose call is that one kernel, else -1. Shape (n,)."""
        out = np.full(len(self.timeline), -1, np.int32)
        for i, group in enumerate(self.run.work.groups):
            if len(group.rows) == group.calls:
                out[group.rows] = i
        return out

    def _work_group(self, rows: Rows) -> Group | None:
        codes = kernels.distinct(self._group_of_row[rows])
        return self.run.work.groups[int(codes[0])] if len(codes) == 1 and codes[0] >= 0 else None

    def operator_of(self, row: int) -> str:
        """The framework operator that launched a kernel, else the kernel's own type."""
        return self.run.places.name(self.run.operator_of(row)) or self.type_of(row)

    def words(self, group: Group) -> str:
        """What pipes and layout tell of a work group's longest kernel, as a sentence to append; "" if nothing."""
        if group.pipes is None:
            return self._moved_words(group)
        text = f" {group.pipes.text[0].upper()}{group.pipes.text[1:]}"
        told = self.timeline.arguments(self._longest(group))
        lists = [told.get(k) for k in ("Input Shapes", "Input Data Types", "Input Formats")]
        operand = largest_operand(*(v if isinstance(v, list) else [] for v in lists))
        if group.pipes.bound == "memory-bound" and operand is not None and not operand.aligned:
            text += f"; the rows of its largest operand are {operand.row_bytes} bytes, no multiple of {BURST_BYTES}"
        return f"{text}."

    def _moved_words(self, group: Group) -> str:
        """What MemoryAccess tells: only one group of counters is recorded at a time, so it stands alone."""
        if group.moved_bytes is None or group.cost is None or not group.cost.bytes:
            return ""
        times = group.moved_bytes / (group.cost.bytes * group.calls)
        return f" Its kernels moved {size(group.moved_bytes)}, {times:.1f} times what their operands hold."

    def _longest(self, group: Group) -> int:
        return int(group.rows[np.argmax(self.timeline.spans.dur_ns[group.rows])])

    # -- table ---------------------------------------------------------------------------------------

    def table(self) -> list[Row]:
        """Kernels by type and core kind with what bound them, the longest first; [] where no NPU was recorded."""
        return [self._row(g) for g in self.groups[:SHOWN]]

    def _row(self, group: KernelGroup) -> Row:
        row: Row = {
            "type": group.op_type,
            "core": group.core,
            "phase": group.phase,
            "device": group.device,
            "shapes": group.shapes_text,
            "calls": group.calls,
            "total_ns": group.total_ns,
            "mean_ns": group.mean_ns,
            "blocks": group.blocks,
            "cores": self.cores[group.device].of(group.core) if group.device in self.cores else None,
        }
        if group.moved_bytes is not None:
            row["bytes"] = group.moved_bytes
            row["bytes_per_s"] = round(group.moved_bytes / max(group.total_ns, 1) * 1e9)
        if group.pipes is None:
            return row | {"bound": "", "note": _why_no_pipes(self, group)}
        side, pipe, ratio = group.pipes.busiest
        ratios = {f"{s}_{p}" if s else p: round(r, 3) for (s, p), r in group.pipes.ratios.items()}
        bound = {
            "bound": group.pipes.bound,
            "pipe": f"{side}_{pipe}" if side else pipe,
            "busy": round(ratio, 3),
        }
        return row | bound | ratios


def largest_operand(shapes: list[list[int]], dtypes: list[str], formats: list[str]) -> Operand | None:
    """The largest input by bytes, if it has rows and a plain layout; None where types are not known."""
    operands = []
    for i, shape in enumerate(shapes):
        dtype = parse_dtype(dtypes[i]) if i < len(dtypes) else ""
        layout = formats[i] if i < len(formats) else ""
        if shape and bits(dtype):
            size = math.prod(shape) * bits(dtype) // 8
            operands.append((size, Operand(tuple(shape), dtype, size, shape[-1] * bits(dtype) // 8), layout))
    if not operands:
        return None
    _, operand, layout = max(operands, key=lambda o: o[0])
    return operand if layout in PLAIN and len(operand.shape) >= 2 else None


def _why_no_pipes(npu: Npu, group: KernelGroup) -> str:
    if group.core == AI_CPU:
        return "AI CPUs have no pipes"
    return "" if npu.has_pipes else "no pipe ratios were recorded (Level1, PipeUtilization)"
