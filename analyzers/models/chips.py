"""Peaks of chips: what a device could do at the best.

All rates are dense: data sheets often print the rate with 2:4 sparsity first, which is halved here. A
value carries where it comes from and how far to trust it; a value that no public source states is absent,
never guessed. Matrix rates are those of tensor cores, matrix cores or cubes with 32-bit accumulation, as
frameworks use them; `vector` is the FP32 rate of the ordinary cores. They hold at the boost clock: a chip
at its power limit runs slower, so 100 % is out of reach for long kernels.

Confidence:
- "data sheet": the figure the vendor's data sheet or architecture paper is known for (or half of one with sparsity),
  as remembered from that document, which is where to check it;
- "derived": follows from stated figures (cores x clock x operations per cycle, or half of a two-die part);
- "doubtful": sources differ, or only third parties state it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from stallscope.profiler.light import dataclass

Confidence = Literal["data sheet", "derived", "doubtful"]
Vendor = Literal["NVIDIA", "AMD", "Huawei"]

GIB = 1 << 30


@dataclass(frozen=True)
class Figure:
    """A number with its source and how far to trust it."""

    value: float
    source: str
    confidence: Confidence = "data sheet"


@dataclass(frozen=True)
class Chip:
    """One kind of device as a framework shows it (half of a package where a package is two devices).

    `pattern` finds it in the name that a runtime prints, in upper or lower case. `peaks` maps an element type to
    dense matrix FLOP/s (OP/s for integers), `vector` is FP32 FLOP/s of the ordinary cores, `bandwidth` bytes/s of
    device memory. `memory_bytes` is the marketed size in GiB.
    `cores` counts SMs, compute units or AI cores. `cache_bytes` is the last cache before device memory:
    tensors that fit there can be read faster than the memory's peak.
    """

    name: str
    vendor: Vendor
    pattern: str
    peaks: dict[str, Figure]
    bandwidth: Figure | None
    memory_bytes: int | None
    cores: int | None
    clock_mhz: int | None
    vector: Figure | None = None
    cache_bytes: int | None = None
    capability: tuple[int, int] | None = None
    note: str = ""

    def peak(self, dtype: str, unit: str = "matrix") -> Figure | None:
        """The dense peak for an element type, None where it is not known.

        On vector units every type runs at the FP32 rate at the least, so that rate stands for all of them.
        Complex numbers and 64-bit integers have no figure.
        """
        if unit == "vector":
            return self.vector
        return self.peaks.get(_ALIASES.get(dtype, dtype))


_ALIASES = {"uint8": "int8", "fp4x2": "fp4"}


def _sheet(
    source: str, tera: dict[str, float], doubt: dict[str, Confidence] | None = None
) -> dict[str, Figure]:
    """Figures in 1e12/s from one source; `doubt` names the ones that are not simply printed there."""
    marks = doubt or {}
    return {key: Figure(value * 1e12, source, marks.get(key, "data sheet")) for key, value in tera.items()}


def _rate(tera: float, source: str, confidence: Confidence = "data sheet") -> Figure:
    return Figure(tera * 1e12, source, confidence)


def _gbs(gigabytes: float, source: str, confidence: Confidence = "data sheet") -> Figure:
    return Figure(gigabytes * 1e9, source, confidence)


_V100 = "NVIDIA V100 data sheet; Volta architecture white paper (WP-08608-001)"
_T4 = "NVIDIA T4 data sheet; Turing architecture white paper (WP-09183-001)"
_A10 = "NVIDIA A10 data sheet"
_A100 = "NVIDIA A100 data sheet; Ampere GA100 architecture white paper"
_ADA = "NVIDIA Ada GPU architecture white paper, appendix A"
_GA102 = "NVIDIA Ampere GA102 GPU architecture white paper, appendix A"
_RTXB = "NVIDIA RTX Blackwell GPU architecture white paper, appendix A"
_H100 = "NVIDIA H100 data sheet; Hopper architecture white paper"
_H200 = "NVIDIA H200 data sheet"
_H20 = "third-party listings; NVIDIA publishes no data sheet"
_B200 = "NVIDIA HGX B200 data sheet, one eighth of the board"
_GB200 = "NVIDIA GB200 NVL72 data sheet, per GPU"
_MI200 = "AMD Instinct MI200 series data sheets; CDNA 2 white paper"
_MI300 = "AMD Instinct MI300X data sheet; CDNA 3 white paper"
_MI325 = "AMD Instinct MI325X data sheet"
_MI350 = "AMD Instinct MI355X and MI350X data sheets; CDNA 4 white paper"
_CUBE = "cores x clock x 8192 FP16 operations per cycle, the formula of msprof-analyze's operator_mfu recipe; CANN platform files"
_HUAWEI = "Huawei product pages and public recordings"

_CUBE_OPS = 16 * 16 * 16 * 2
"""FP16 operations of one Ascend cube per cycle; INT8 runs at twice that."""

CHIPS: list[Chip] = [
    # NVIDIA, data centre
    Chip("V100 SXM2", "NVIDIA", r"V100-SXM[23]", _sheet(_V100, {"fp64": 7.8, "fp32": 15.7, "fp16": 125}),
         _gbs(900, _V100), None, 80, 1530, _rate(15.7, _V100), 6 << 20, (7, 0), "16 or 32 GB"),
    Chip("V100 PCIe", "NVIDIA", r"V100-PCIE", _sheet(_V100, {"fp64": 7.0, "fp32": 14.0, "fp16": 112}),
         _gbs(900, _V100), None, 80, 1380, _rate(14.0, _V100), 6 << 20, (7, 0), "16 or 32 GB"),
    Chip("T4", "NVIDIA", r"(?:Tesla|NVIDIA)\s+T4$|^T4$", _sheet(_T4, {"fp32": 8.1, "fp16": 65, "int8": 130}),
         _gbs(320, _T4), 16 * GIB, 40, 1590, _rate(8.1, _T4), 4 << 20, (7, 5)),
    Chip("A10", "NVIDIA", r"\bA10$",
         _sheet(_A10, {"fp32": 31.2, "tf32": 62.5, "fp16": 125, "bf16": 125, "int8": 250}),
         _gbs(600, _A10), 24 * GIB, 72, 1695, _rate(31.2, _A10), 6 << 20, (8, 6)),
    Chip("A100 SXM4 40GB", "NVIDIA", r"A100-SXM4-40GB$",
         _sheet(_A100, {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624}),
         _gbs(1555, _A100), 40 * GIB, 108, 1410, _rate(19.5, _A100), 40 << 20, (8, 0)),
    Chip("A100 SXM4 80GB", "NVIDIA", r"A100-SXM4-80GB$|A100-SXM-80GB$|A800-SXM4-80GB$",
         _sheet(_A100, {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624}),
         _gbs(2039, _A100), 80 * GIB, 108, 1410, _rate(19.5, _A100), 40 << 20, (8, 0)),
    Chip("A100 PCIe 40GB", "NVIDIA", r"A100-PCIE-40GB$",
         _sheet(_A100, {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624}),
         _gbs(1555, _A100), 40 * GIB, 108, 1410, _rate(19.5, _A100), 40 << 20, (8, 0)),
    Chip("A100 PCIe 80GB", "NVIDIA", r"A100 80GB PCIe$|A800 80GB PCIe$",
         _sheet(_A100, {"fp64": 19.5, "fp32": 19.5, "tf32": 156, "fp16": 312, "bf16": 312, "int8": 624}),
         _gbs(1935, _A100), 80 * GIB, 108, 1410, _rate(19.5, _A100), 40 << 20, (8, 0)),
    Chip("L4", "NVIDIA", r"\bL4$",
         _sheet("NVIDIA L4 data sheet", {"fp32": 30.3, "tf32": 60, "fp16": 121, "bf16": 121, "fp8": 242.5, "int8": 242.5}),
         _gbs(300, "NVIDIA L4 data sheet"), 24 * GIB, 58, 2040, _rate(30.3, "NVIDIA L4 data sheet"), 48 << 20, (8, 9)),
    Chip("L40S", "NVIDIA", r"\bL40S$",
         _sheet("NVIDIA L40S data sheet", {"fp32": 91.6, "tf32": 183, "fp16": 362, "bf16": 362, "fp8": 733, "int8": 733}),
         _gbs(864, "NVIDIA L40S data sheet"), 48 * GIB, 142, 2520, _rate(91.6, "NVIDIA L40S data sheet"), 96 << 20, (8, 9)),
    Chip("H100 SXM5", "NVIDIA", r"H100 80GB HBM3$|H100 SXM5?|H800(?: 80GB HBM3)?$",
         _sheet(_H100, {"fp64": 66.9, "fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9, "int8": 1978.9}),
         _gbs(3352, _H100), 80 * GIB, 132, 1830, _rate(66.9, _H100), 50 << 20, (9, 0),
         "H800: as H100 but for FP64"),
    Chip("H100 PCIe", "NVIDIA", r"H100 PCIe$|H100 80GB HBM2e$",
         _sheet(_H100, {"fp64": 51.2, "fp32": 51.2, "tf32": 378, "fp16": 756, "bf16": 756, "fp8": 1513, "int8": 1513}),
         _gbs(2039, _H100), 80 * GIB, 114, 1755, _rate(51.2, _H100), 50 << 20, (9, 0)),
    Chip("H100 NVL", "NVIDIA", r"H100 NVL$",
         _sheet(_H100, {"fp64": 60, "fp32": 60, "tf32": 417.5, "fp16": 835.5, "bf16": 835.5, "fp8": 1670.5, "int8": 1670.5}),
         _gbs(3900, _H100), 94 * GIB, 132, 1785, _rate(60, _H100), 50 << 20, (9, 0)),
    Chip("H20", "NVIDIA", r"\bH20$",
         _sheet(_H20, {"fp32": 44, "tf32": 74, "fp16": 148, "bf16": 148, "fp8": 296, "int8": 296},
                dict.fromkeys(("fp32", "tf32", "fp16", "bf16", "fp8", "int8"), "doubtful")),
         _gbs(4000, _H20, "doubtful"), 96 * GIB, 78, None, _rate(44, _H20, "doubtful"), 60 << 20, (9, 0)),
    Chip("H200 SXM", "NVIDIA", r"\bH200$",
         _sheet(_H200, {"fp64": 66.9, "fp32": 66.9, "tf32": 494.7, "fp16": 989.4, "bf16": 989.4, "fp8": 1978.9, "int8": 1978.9}),
         _gbs(4800, _H200), 141 * GIB, 132, 1830, _rate(66.9, _H200), 50 << 20, (9, 0)),
    Chip("H200 NVL", "NVIDIA", r"H200 NVL$",
         _sheet(_H200, {"fp64": 60, "fp32": 60, "tf32": 417.5, "fp16": 835.5, "bf16": 835.5, "fp8": 1670.5, "int8": 1670.5}),
         _gbs(4800, _H200), 141 * GIB, 132, None, _rate(60, _H200), 50 << 20, (9, 0)),
    Chip("B200", "NVIDIA", r"(?<![A-Z])B200$",
         _sheet(_B200, {"fp64": 37, "fp32": 75, "tf32": 1125, "fp16": 2250, "bf16": 2250, "fp8": 4500, "int8": 4500, "fp4": 9000},
                {"tf32": "derived", "fp64": "derived", "fp32": "derived"}),
         _gbs(7700, _B200, "doubtful"), 180 * GIB, 148, None, _rate(75, _B200, "derived"), 126 << 20, (10, 0),
         "sheets give 7.7 or 8 TB/s"),
    Chip("GB200", "NVIDIA", r"\bGB200$",
         _sheet(_GB200, {"fp64": 40, "fp32": 80, "tf32": 1250, "fp16": 2500, "bf16": 2500, "fp8": 5000, "int8": 5000, "fp4": 10000}),
         _gbs(8000, _GB200), 186 * GIB, None, None, _rate(80, _GB200), 126 << 20, (10, 0)),
    # NVIDIA, desktop
    Chip("RTX 3090", "NVIDIA", r"RTX 3090$",
         _sheet(_GA102, {"fp32": 35.6, "tf32": 35.6, "fp16": 71, "bf16": 71, "int8": 284}),
         _gbs(936, _GA102), 24 * GIB, 82, 1695, _rate(35.6, _GA102), 6 << 20, (8, 6), "FP16 with 16-bit sums: twice"),
    Chip("RTX 4080", "NVIDIA", r"RTX 4080$",
         _sheet(_ADA, {"fp32": 48.7, "tf32": 48.7, "fp16": 97.5, "bf16": 97.5, "fp8": 194.9, "int8": 389.9}),
         _gbs(716.8, _ADA), 16 * GIB, 76, 2505, _rate(48.7, _ADA), 64 << 20, (8, 9), "FP16 and FP8 with 16-bit sums: twice"),
    Chip("RTX 4080 Laptop", "NVIDIA", r"RTX 4080 Laptop GPU$",
         _sheet("58 SM at 2280 MHz, the highest boost clock; the power limit of the laptop sets the real one",
                {"fp32": 33.9, "tf32": 33.9, "fp16": 67.7, "bf16": 67.7, "fp8": 135.4, "int8": 270.8},
                dict.fromkeys(("fp32", "tf32", "fp16", "bf16", "fp8", "int8"), "doubtful")),
         _gbs(432, "NVIDIA product page: 192 bit GDDR6 at 18 Gbit/s", "derived"), 12 * GIB, 58, 2280,
         _rate(33.9, "58 SM x 128 lanes x 2 x 2280 MHz", "doubtful"), 48 << 20, (8, 9)),
    Chip("RTX 4090", "NVIDIA", r"RTX 4090$",
         _sheet(_ADA, {"fp32": 82.6, "tf32": 82.6, "fp16": 165.2, "bf16": 165.2, "fp8": 330.3, "int8": 660.6}),
         _gbs(1008, _ADA), 24 * GIB, 128, 2520, _rate(82.6, _ADA), 72 << 20, (8, 9), "FP16 and FP8 with 16-bit sums: twice"),
    Chip("RTX 5080", "NVIDIA", r"RTX 5080$",
         _sheet(_RTXB, {"fp32": 56.3, "tf32": 56.3, "fp16": 112.6, "bf16": 112.6, "fp8": 225.1, "int8": 450.2, "fp4": 900.4}),
         _gbs(960, _RTXB), 16 * GIB, 84, 2617, _rate(56.3, _RTXB), 64 << 20, (12, 0), "FP16 and FP8 with 16-bit sums: twice"),
    Chip("RTX 5090", "NVIDIA", r"RTX 5090$",
         _sheet(_RTXB, {"fp32": 104.8, "tf32": 104.8, "fp16": 209.5, "bf16": 209.5, "fp8": 419, "int8": 838, "fp4": 1676}),
         _gbs(1792, _RTXB), 32 * GIB, 170, 2407, _rate(104.8, _RTXB), 96 << 20, (12, 0), "FP16 and FP8 with 16-bit sums: twice"),
    # AMD
    Chip("MI210", "AMD", r"MI210$", _sheet(_MI200, {"fp64": 45.3, "fp32": 45.3, "fp16": 181, "bf16": 181, "int8": 181}),
         _gbs(1638.4, _MI200), 64 * GIB, 104, 1700, _rate(22.6, _MI200), 8 << 20, (9, 0)),
    Chip("MI250 (one of two dies)", "AMD", r"MI250$",
         _sheet(_MI200 + "; half of the package", {"fp64": 45.3, "fp32": 45.3, "fp16": 181, "bf16": 181, "int8": 181},
                dict.fromkeys(("fp64", "fp32", "fp16", "bf16", "int8"), "derived")),
         _gbs(1638.4, _MI200, "derived"), 64 * GIB, 104, 1700, _rate(22.6, _MI200, "derived"), 8 << 20, (9, 0)),
    Chip("MI250X (one of two dies)", "AMD", r"MI250X$",
         _sheet(_MI200 + "; half of the package", {"fp64": 47.9, "fp32": 47.9, "fp16": 191.5, "bf16": 191.5, "int8": 191.5},
                dict.fromkeys(("fp64", "fp32", "fp16", "bf16", "int8"), "derived")),
         _gbs(1638.4, _MI200, "derived"), 64 * GIB, 110, 1700, _rate(23.9, _MI200, "derived"), 8 << 20, (9, 0)),
    Chip("MI300X", "AMD", r"MI300X(?: VF)?$",
         _sheet(_MI300, {"fp64": 163.4, "fp32": 163.4, "tf32": 653.7, "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9, "int8": 2614.9}),
         _gbs(5325, _MI300), 192 * GIB, 304, 2100, _rate(163.4, _MI300), 256 << 20, (9, 4)),
    Chip("MI325X", "AMD", r"MI325X(?: VF)?$",
         _sheet(_MI325, {"fp64": 163.4, "fp32": 163.4, "tf32": 653.7, "fp16": 1307.4, "bf16": 1307.4, "fp8": 2614.9, "int8": 2614.9}),
         _gbs(6000, _MI325), 256 * GIB, 304, 2100, _rate(163.4, _MI325), 256 << 20, (9, 4)),
    Chip("MI350X", "AMD", r"MI350X(?: VF)?$",
         _sheet(_MI350, {"fp64": 72.1, "fp32": 144.2, "fp16": 2306.9, "bf16": 2306.9, "fp8": 4613.7, "int8": 4613.7, "fp4": 9227.5}),
         _gbs(8000, _MI350), 288 * GIB, 256, 2200, _rate(144.2, _MI350), 256 << 20, (9, 5)),
    Chip("MI355X", "AMD", r"MI355X(?: VF)?$",
         _sheet(_MI350, {"fp64": 78.6, "fp32": 157.3, "fp16": 2516.6, "bf16": 2516.6, "fp8": 5033.2, "int8": 5033.2, "fp4": 10066.3}),
         _gbs(8000, _MI350), 288 * GIB, 256, 2400, _rate(157.3, _MI350), 256 << 20, (9, 5)),
    # Huawei Ascend: one device is one die. Vector rates have no clear public source and are absent.
    Chip("Ascend 910A", "Huawei", r"^Ascend910A$|^Ascend910Pro(?:A|B)$",
         _sheet("Huawei at Hot Chips 31 (2019)", {"fp16": 256, "int8": 512}, {"fp16": "doubtful", "int8": "doubtful"}),
         _gbs(1200, "Huawei at Hot Chips 31 (2019)", "doubtful"), 32 * GIB, 32, 1000, None, 32 << 20,
         note="no bfloat16"),
    Chip("Ascend 910B1", "Huawei", r"^Ascend910B1$",
         _sheet(_CUBE, {"fp16": 363.7, "bf16": 363.7, "int8": 727.5}, dict.fromkeys(("fp16", "bf16", "int8"), "doubtful")),
         _gbs(1600, _HUAWEI, "doubtful"), 64 * GIB, 24, 1850, None, 192 << 20, note="another public table gives 373.9 TFLOPS"),
    Chip("Ascend 910B2", "Huawei", r"^Ascend910B2C?$",
         _sheet(_CUBE, {"fp16": 353.9, "bf16": 353.9, "int8": 707.8}, dict.fromkeys(("fp16", "bf16", "int8"), "derived")),
         _gbs(1600, _HUAWEI, "doubtful"), 64 * GIB, 24, 1800, None, 192 << 20),
    Chip("Ascend 910B3", "Huawei", r"^Ascend910B3$",
         _sheet(_CUBE, {"fp16": 294.9, "bf16": 294.9, "int8": 589.8}, dict.fromkeys(("fp16", "bf16", "int8"), "derived")),
         _gbs(1600, _HUAWEI, "doubtful"), 64 * GIB, 20, 1800, None, 192 << 20),
    Chip("Ascend 910B4", "Huawei", r"^Ascend910B4$",
         _sheet(_CUBE + "; at 1650 MHz, the clock seen in a public recording", {"fp16": 270.3, "bf16": 270.3, "int8": 540.7},
                dict.fromkeys(("fp16", "bf16", "int8"), "doubtful")),
         _gbs(800, _HUAWEI, "doubtful"), 32 * GIB, 20, 1650, None, 192 << 20, note="nominal 1500 MHz would give 245.8 TFLOPS"),
    Chip("Ascend 910B4-1", "Huawei", r"^Ascend910B4-1$",
         _sheet(_CUBE + "; at 1650 MHz", {"fp16": 270.3, "bf16": 270.3, "int8": 540.7},
                dict.fromkeys(("fp16", "bf16", "int8"), "doubtful")),
         None, 64 * GIB, 20, 1650, None, 192 << 20, note="bandwidth stated by one user only: left out"),
    Chip("Ascend 910C (one of two dies)", "Huawei", r"^Ascend910_93\d\d$|^Ascend910C$",
         _sheet(_CUBE + "; at 1800 MHz", {"fp16": 353.9, "bf16": 353.9, "int8": 707.8},
                dict.fromkeys(("fp16", "bf16", "int8"), "doubtful")),
         _gbs(1600, _HUAWEI, "doubtful"), 64 * GIB, 24, 1800, None, 192 << 20, note="1850 MHz is seen, too: 363.7 TFLOPS"),
    Chip("Ascend 310P", "Huawei", r"^Ascend310P\d?$",
         _sheet(_HUAWEI, {"fp16": 70, "int8": 140}, {"fp16": "doubtful", "int8": "doubtful"}),
         _gbs(204.8, _HUAWEI, "doubtful"), None, 8, 1080, None, None, note="24 or 48 GB, no bfloat16"),
]  # fmt: skip

_PARTITION = re.compile(r"\bMIG\b|\bvGPU\b|GRID\b|\d+g\.\d+gb", re.IGNORECASE)

_SHARED_NAME = re.compile(r"MI250X\s*/\s*MI250", re.IGNORECASE)
"""Printed for an MI250 and an MI250X alike: their compute units tell."""


def find_chip(
    name: str,
    *,
    memory_bytes: int | None = None,
    cores: int | None = None,
    capability: tuple[int, int] | None = None,
    clock_mhz: int | None = None,
) -> Chip | None:
    """The chip of a device, None where it is not clearly one of the table.

    `name` is what the runtime prints ("NVIDIA H100 80GB HBM3", "AMD Instinct MI300X", "Ascend910B4"). An
    empty name (or ROCm's nameless "AMD Radeon Graphics") is matched by properties alone, if memory size and
    cores fit one chip, or several with the same figures. Where the
    number of cores is told and differs from the table's, the device is a partition or another variant, and
    None is returned: a slice of a chip has not the chip's peaks. For Ascend, `cores` and `clock_mhz` as
    recorded in `info.json` replace the table's and the peaks follow from them.

    >>> find_chip("NVIDIA H100 80GB HBM3").name
    'H100 SXM5'
    >>> find_chip("NVIDIA A100-SXM4-40GB MIG 1g.5gb") is None
    True
    """
    text = " ".join(name.split())
    if not text or text == "AMD Radeon Graphics":
        return _by_properties(memory_bytes, cores, capability)
    if _PARTITION.search(text) is not None:
        return None
    if _SHARED_NAME.search(text) is not None:
        found = [chip for chip in CHIPS if chip.name.startswith("MI250") and cores and chip.cores == cores]
    else:
        found = [chip for chip in CHIPS if re.search(chip.pattern, text, re.IGNORECASE)]
    if len(found) != 1:
        return None
    chip = found[0]
    if chip.vendor == "Huawei":
        return _as_recorded(chip, cores, clock_mhz)
    return chip if not cores or chip.cores is None or cores == chip.cores else None


def _as_recorded(chip: Chip, cores: int | None, clock_mhz: int | None) -> Chip:
    """The Ascend chip with the peaks of its recorded cores and clock."""
    if not cores or not clock_mhz:
        return chip
    fp16 = cores * clock_mhz * 1e6 * _CUBE_OPS
    source = f"{cores} cores x {clock_mhz} MHz as recorded x {_CUBE_OPS} operations per cycle"
    peaks = {key: Figure(fp16 * (2 if key == "int8" else 1), source, "derived") for key in chip.peaks}
    return replace(chip, cores=cores, clock_mhz=clock_mhz, peaks=peaks)


def _by_properties(
    memory_bytes: int | None, cores: int | None, capability: tuple[int, int] | None
) -> Chip | None:
    """The chip whose cores, memory size and compute capability fit; None for none, or several that differ."""
    if not memory_bytes or not cores:
        return None
    found = [
        chip
        for chip in CHIPS
        if chip.cores == cores
        and chip.memory_bytes is not None
        and 0.9 * chip.memory_bytes <= memory_bytes <= 1.02 * chip.memory_bytes
        and (capability is None or chip.capability in (None, capability))
    ]
    if len({_numbers(chip) for chip in found}) != 1:
        return None
    return replace(found[0], name=" or ".join(chip.name for chip in found))


def _numbers(chip: Chip) -> tuple[object, ...]:
    """What a roofline needs of a chip; chips that agree in it need not be told apart."""
    rates = tuple(sorted((key, figure.value) for key, figure in chip.peaks.items()))
    return rates, chip.bandwidth and chip.bandwidth.value, chip.vector and chip.vector.value


def chip_of_device(device: Mapping[str, Any]) -> Chip | None:
    """The chip of one entry of `Session.facts["devices"]`: its name and what else it tells."""

    def whole(key: str) -> int | None:
        value = device.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None

    major, minor = whole("compute_major"), device.get("compute_minor")
    capability = (major, minor) if major is not None and isinstance(minor, int) else None
    name = device.get("name")
    clock = whole("clock_mhz") or whole("aic_mhz")
    if not name and device.get("vendor") == "Ascend":
        return _ascend_by_clock(whole("cores"), clock)
    return find_chip(
        name if isinstance(name, str) else "",
        memory_bytes=whole("memory_bytes"),
        cores=whole("cores"),
        capability=capability,
        clock_mhz=clock,
    )


def _ascend_by_clock(cores: int | None, clock_mhz: int | None) -> Chip | None:
    """The Ascend chip with this number of AI cores at this clock, as recordings tell them without a name.

    Cores and clock give the matrix rate by its formula. They also single out a row of the table, whose bandwidth is
    then doubtful in two ways; chips that agree in it need not be told apart, and where they do not it stays unknown.
    """
    found = [
        c for c in CHIPS if c.vendor == "Huawei" and cores and c.cores == cores and c.clock_mhz == clock_mhz
    ]
    if not found:
        return None
    name = " or ".join(c.name for c in found) + ", by cores and clock"
    same = len({c.bandwidth and c.bandwidth.value for c in found}) == 1
    return replace(
        _as_recorded(found[0], cores, clock_mhz), name=name, bandwidth=found[0].bandwidth if same else None
    )
