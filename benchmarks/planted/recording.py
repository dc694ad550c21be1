"""What the model writes down: rows of the host and of the device, before they take any file's form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.planted.actions import Kernel

HostKind = Literal["python", "op", "annotation", "runtime", "overhead", "enqueue", "dequeue", "gc"]
DeviceKind = Literal["kernel", "memcpy", "memset", "sync", "wait"]
NOT_WORK = ("sync", "wait")


@dataclass
class HostRow:
    """One span on a host thread. `external` numbers operators and annotations (0: none).

    `correlation` numbers runtime calls (0: none); `work` tells whether it started anything on a device.
    `parent` is the row's Python parent frame (index into Recording.host, -1: none).
    """

    kind: HostKind
    name: str
    tid: int
    start_ns: int
    end_ns: int = -1
    external: int = 0
    correlation: int = 0
    work: int = 0
    kernels: int = 0
    args: dict[str, Any] = field(default_factory=dict)
    parent: int = -1
    lost: bool = False
    """The profiler lost this record: it happened, but no file shows it."""


@dataclass
class DeviceRow:
    """One span on a device stream; a sync row has stream -1 where it is about the whole device.

    A wait row is the stream itself waiting for an event (only some profilers draw it).
    """

    kind: DeviceKind
    name: str
    device: int
    stream: int
    start_ns: int
    end_ns: int
    correlation: int
    external: int = 0
    kernel: Kernel | None = None
    args: dict[str, Any] = field(default_factory=dict)
    graph: bool = False


@dataclass
class Recording:
    """All rows of one rank, times in nanoseconds from the start of the simulation."""

    rank: int
    pid: int
    host: list[HostRow] = field(default_factory=list)
    device: list[DeviceRow] = field(default_factory=list)
    threads: dict[int, str] = field(default_factory=dict)
    window_start_ns: int = 0
    window_end_ns: int = 0
    """When the profiler had stopped."""
    program_end_ns: int = 0
    """When the program and everything it started had ended, before the profiler's own synchronisation."""
    tables: dict[str, Any] = field(default_factory=dict)

    @property
    def wall_ns(self) -> int:
        """What the program takes from the start of the window to its end."""
        return self.program_end_ns - self.window_start_ns

    def visible_host(self) -> list[HostRow]:
        """Rows that a profiler would show, oldest first.

        Python frames that were open when recording began start with it; operators and calls that
        began before are not shown, as torch does it.
        """
        rows = []
        for row in self.host:
            if row.lost or row.end_ns <= self.window_start_ns:
                continue
            if row.start_ns < self.window_start_ns and row.kind != "python":
                continue
            rows.append(row)
        return sorted(rows, key=lambda r: (max(r.start_ns, self.window_start_ns), -r.end_ns))

    def visible_device(self) -> list[DeviceRow]:
        """Device rows that started within the window, oldest first."""
        rows = [r for r in self.device if r.start_ns >= self.window_start_ns]
        return sorted(rows, key=lambda r: (r.start_ns, r.end_ns))


def union_ns(spans: Iterable[tuple[int, int]]) -> int:
    """Length of the union of [start, end) spans in nanoseconds."""
    total = 0
    last = -1
    for start, end in sorted(spans):
        begin = max(start, last)
        if end > begin:
            total += end - begin
            last = end
    return total


def device_totals(recording: Recording, device: int | None = None) -> dict[str, int]:
    """Span, busy and idle time and the unions of the four classes, of one device or of all together.

    Sync rows are waiting, not work. All values are nanoseconds but `device_events`.
    """
    rows = [
        r
        for r in recording.visible_device()
        if r.kind not in NOT_WORK and (device is None or r.device == device)
    ]
    if not rows:
        return dict.fromkeys(
            ("span_ns", "busy_ns", "idle_ns", "compute_ns", "collective_ns", "memcpy_ns", "memset_ns",
             "device_events"), 0)  # fmt: skip
    span = max(r.end_ns for r in rows) - min(r.start_ns for r in rows)
    busy = union_ns((r.start_ns, r.end_ns) for r in rows)

    def total(keep: str) -> int:
        return union_ns((r.start_ns, r.end_ns) for r in rows if device_class(r) == keep)

    return {
        "span_ns": span,
        "busy_ns": busy,
        "idle_ns": span - busy,
        "compute_ns": total("compute"),
        "collective_ns": total("collective"),
        "memcpy_ns": total("memcpy"),
        "memset_ns": total("memset"),
        "device_events": len(rows),
    }


def device_class(row: DeviceRow) -> str:
    """compute, collective, memcpy or memset."""
    if row.kind in ("memcpy", "memset"):
        return row.kind
    if row.kernel is not None and row.kernel.role == "collective":
        return "collective"
    return "compute"
