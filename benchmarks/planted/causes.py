"""The one table that ties planted causes to rule codes. Rule authors edit this file only.

A cause is named first when the first finding carries one of its codes. A cause without codes has no rule
yet: its cases count as missed, and the table says so.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """`codes` are accepted answers; `text` is what was planted and `mended` what the fixed program does."""

    codes: tuple[str, ...]
    text: str
    mended: str


CAUSES: dict[str, Cause] = {
    "python-gap": Cause(("HB101",), "Python work at one line starves the device", "the line takes no time"),
    "dispatch": Cause(
        # the same mending under two names: HB101 looks at the gaps, LN401 at the launches of a step
        ("HB101", "LN401"),
        "operator dispatch is slower than the kernels it starts",
        "each step is one graph launch",
    ),
    "explicit-sync": Cause(
        ("SY201",), "the program synchronises by hand", "the synchronisations are removed"
    ),
    "implicit-sync": Cause(
        ("SY202",),
        "an operator reads a value back and so waits for the device",
        "the value stays on the device",
    ),
    "blocking-copy": Cause(
        ("SY203",),
        "a copy from or to pageable memory blocks host and device",
        "the copy is hidden behind work",
    ),
    "memory-bound": Cause(
        ("MB301",), "kernels move more bytes than needed", "the chain is one kernel, or the type half as wide"
    ),
    "launch-bound": Cause(("LN401",), "kernels shorter than their launches", "each step is one graph launch"),
    "gc": Cause(("HB103",), "garbage collections stop the host", "no collection in the loop"),
    "allocator": Cause(("SY204",), "the cache of device memory is emptied and refilled", "memory is kept"),
    "cuda-malloc": Cause(
        ("SY204",), "device memory is taken from the driver in the loop", "memory is there already"
    ),
    "compile": Cause(("HB106",), "code is compiled inside of the window", "compiled before"),
    "contention": Cause(
        ("HB104",), "other threads or processes keep the launching thread from running", "it runs alone"
    ),
    "stream-dependency": Cause(
        ("DP501",), "a stream waits for another stream or device", "the wait is removed"
    ),
    "collective": Cause(
        ("CC601",), "a collective is not hidden behind work", "it is hidden, or the peers come in time"
    ),
    "graph-break": Cause(
        ("GR501", "GR502"), "decode kernels are launched outside of graphs", "each step is one graph launch"
    ),
    "scheduler": Cause(
        # the scheduler's line is the cause whatever the class of the gap is called
        ("HB105", "HB101"),
        "the scheduler works between steps while the device has nothing to do",
        "it takes no time",
    ),
    "no-requests": Cause(
        ("HB105",), "there is nothing to serve between steps", "the next request is there at once"
    ),
    "inefficient": Cause(
        ("MB302",), "kernels reach a small share of the roof", "they reach 80 % of the roof"
    ),
    "latency-kernel": Cause(
        ("MB303",), "a kernel uses a fraction of the cores", "it reaches 80 % of the roof"
    ),
    "copy-tax": Cause(("MB305",), "casts, copies and transpositions take device time", "they are not needed"),
    "warm-up": Cause(
        ("ST701",), "first steps are slow: the window holds the warm-up", "warm before the window"
    ),
    "drift": Cause(
        # a finding at the growing line is right; that it grows is for the step table to say
        ("ST702", "HB101"),
        "each step takes longer than the one before",
        "all steps are as fast as the first",
    ),
}
