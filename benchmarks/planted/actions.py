"""What a program of the model is made of: actions of a host thread, and the kernels they start.

A program is a flat list of actions per host thread. Frames, operators and annotations are opened and
closed by `Push` and `Pop`. Every time is an integer number of nanoseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

SpanKind = Literal["python", "op", "annotation"]
CopyKind = Literal["HtoD", "DtoH", "DtoD"]
HostMemory = Literal["Pageable", "Pinned", "Device"]


@dataclass(frozen=True)
class Tensor:
    """Shape and type of one operand, as a framework prints them."""

    shape: tuple[int, ...]
    dtype: str = "bf16"

    @property
    def elements(self) -> int:
        n = 1
        for size in self.shape:
            n *= size
        return n

    @property
    def bytes(self) -> int:
        return self.elements * DTYPE_BYTES[self.dtype]


DTYPE_BYTES = {"bf16": 2, "fp16": 2, "fp32": 4, "int64": 8, "int32": 4, "bool": 1, "fp64": 8, "int8": 1}


@dataclass(frozen=True)
class Kernel:
    """One device kernel.

    `role` says what it computes (names of other hardware are derived from it). A kernel with a
    `collective` key ends `ns` after the last rank has started the kernel of that key; without peers
    it ends `peer_lag_ns + ns` after its own start.
    """

    name: str
    ns: int
    role: str = "elementwise"
    grid: tuple[int, int, int] = (1, 1, 1)
    block: tuple[int, int, int] = (128, 1, 1)
    registers: int = 32
    shared_memory: int = 0
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    flops: float = 0.0
    moved: float = 0.0
    """Bytes read and written."""
    collective: str = ""
    peer_lag_ns: int = 0
    memset_bytes: int = -1
    """0 or more: this is a memset node (inside a graph) of that many bytes."""


@dataclass(frozen=True)
class Action:
    """Base of all actions."""


@dataclass(frozen=True)
class Push(Action):
    """Open a Python frame, an operator or an annotation."""

    kind: SpanKind
    name: str
    args: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Pop(Action):
    """Close the innermost open span."""


@dataclass(frozen=True)
class Work(Action):
    """The thread computes for `ns` inside whatever is open."""

    ns: int


@dataclass(frozen=True)
class Sleep(Action):
    """The thread waits for `ns` without the interpreter lock (a poll, a socket)."""

    ns: int


@dataclass(frozen=True)
class Call(Action):
    """A runtime call that starts nothing on the device."""

    api: str
    ns: int


@dataclass(frozen=True)
class Launch(Action):
    """One runtime call that starts one kernel, or a whole graph of them.

    `ns` is what the call costs when the launch queue has room. `overhead_ns` is spent inside it by
    the profiler (a buffer request) and is drawn as such.
    """

    kernels: tuple[Kernel, ...]
    stream: int
    ns: int
    api: str = "launch"
    device: int = 0
    graph: bool = False
    overhead_ns: int = 0


@dataclass(frozen=True)
class Copy(Action):
    """A copy; `blocks` makes the call return only when the copy is done."""

    kind: CopyKind
    bytes: int
    ns: int
    stream: int
    call_ns: int
    host: HostMemory = "Pinned"
    blocks: bool = False
    api: str = "memcpy_async"
    device: int = 0


@dataclass(frozen=True)
class Memset(Action):
    bytes: int
    ns: int
    stream: int
    call_ns: int
    device: int = 0


@dataclass(frozen=True)
class Record(Action):
    """Record an event on a stream."""

    event: str
    stream: int
    ns: int = 1500
    device: int = 0


@dataclass(frozen=True)
class WaitEvent(Action):
    """Make a stream (not the host) wait for an event."""

    event: str
    stream: int
    ns: int = 1500
    device: int = 0


@dataclass(frozen=True)
class SyncEvent(Action):
    event: str
    ns: int = 2500


@dataclass(frozen=True)
class SyncStream(Action):
    stream: int
    ns: int = 2500
    device: int = 0


@dataclass(frozen=True)
class SyncDevice(Action):
    ns: int = 3000
    device: int = 0


@dataclass(frozen=True)
class Malloc(Action):
    """Take device memory from the driver (the caching allocator had none)."""

    ns: int
    bytes: int
    device: int = 0


@dataclass(frozen=True)
class Free(Action):
    """Give device memory back to the driver: waits for the device, then costs `ns`."""

    ns: int
    device: int = 0


@dataclass(frozen=True)
class CaptureBegin(Action):
    """From here launches are recorded into a graph and start nothing."""

    ns: int = 6000


@dataclass(frozen=True)
class CaptureEnd(Action):
    """End of the capture; `instantiate_ns` is the cost of making it executable."""

    ns: int = 9000
    instantiate_ns: int = 400_000


@dataclass(frozen=True)
class WindowStart(Action):
    """The profiler starts recording here; what came before leaves only what is still running."""


@dataclass(frozen=True)
class ProfilerStop(Action):
    """The profiler stops: its own device synchronisation. Not part of the program's wall time."""


@dataclass(frozen=True)
class DropLaunches(Action):
    """From here on (or no longer) the profiler loses the records of launch calls."""

    on: bool


@dataclass(frozen=True)
class Thread:
    """A host thread: its number within the process, its name and what it does."""

    tid: int
    name: str
    actions: tuple[Action, ...]


@dataclass(frozen=True)
class Program:
    """The threads of one rank. `main` (the first) is the one that the profiler stops."""

    threads: tuple[Thread, ...]
    rank: int = 0
    gil: bool = False
    """Whether the threads share one interpreter lock (only worth simulating with several threads)."""
