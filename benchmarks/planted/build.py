"""Writes programs: frames, operators and launches with jittered costs.

Every cost is drawn from a generator seeded by where it stands (step, layer, label, count), so a program
with a fault and the mended one share all costs they have in common.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from benchmarks.planted.actions import (
    Action,
    Call,
    Copy,
    CopyKind,
    HostMemory,
    Kernel,
    Launch,
    Pop,
    Push,
    Record,
    SyncStream,
    Tensor,
    Work,
)
from benchmarks.planted.hardware import Chip, Maker, operators

STREAM = 7
TORCH_DTYPES = {
    "bf16": "c10::BFloat16", "fp16": "c10::Half", "fp32": "float", "fp64": "double", "int64": "long int",
    "int32": "int", "bool": "bool", "int8": "signed char",
}  # fmt: skip


@dataclass(frozen=True)
class HostCosts:
    """What the host side of one operator call costs, in nanoseconds before `scale`."""

    frame_ns: int = 300
    op_ns: int = 2600
    inner_op_ns: int = 1200
    launch_ns: int = 4300
    scale: float = 1.0


class Builder:
    """Collects the actions of one thread."""

    def __init__(
        self, chip: Chip, seed: int, costs: HostCosts | None = None, maker: Maker | None = None
    ) -> None:
        self.chip = chip
        self.seed = seed
        self.costs = costs or HostCosts()
        self.maker = maker or Maker(chip)
        self.actions: list[Action] = []
        self.scope: tuple[Any, ...] = ()
        self.scale = 1.0
        self.device = 0
        self.stream = STREAM
        self.graph: list[Kernel] | None = None
        self._counts: dict[tuple[Any, ...], int] = {}

    def add(self, *actions: Action) -> None:
        self.actions.extend(actions)

    def uniform(self, label: str) -> float:
        """A number in [0, 1) that depends on the seed and on where the program stands only."""
        key = (*self.scope, label)
        count = self._counts[key] = self._counts.get(key, 0) + 1
        return random.Random(f"{self.seed}/{key}/{count}").random()

    def around(self, ns: float, label: str, spread: float = 0.08) -> int:
        """`ns`, give or take `spread` of it."""
        return max(1, round(ns * (1 + spread * (2 * self.uniform(label) - 1))))

    def host(self, ns: float, label: str) -> int:
        return self.around(ns * self.costs.scale * self.scale, label)

    @contextmanager
    def within(self, *part: Any) -> Iterator[None]:
        before, self.scope = self.scope, self.scope + part
        yield
        self.scope = before

    @contextmanager
    def span(self, kind: Any, name: str, args: Mapping[str, Any] | None = None) -> Iterator[None]:
        """Open and close one span; while a graph is collected nothing runs, so nothing is opened."""
        if self.graph is not None:
            yield
            return
        self.add(Push(kind, name, args or {}))
        yield
        self.add(Pop())

    @contextmanager
    def frame(self, name: str, ns: float = -1) -> Iterator[None]:
        """A Python function `file.py(line): name` that first works for `ns` itself."""
        cost = self.host(self.costs.frame_ns if ns < 0 else ns, name)
        with self.span("python", name):
            if self.graph is None:
                self.add(Work(cost))
            yield

    def python(self, name: str, ns: float, exact: bool = False) -> None:
        """A Python function that works for `ns` and calls nothing that a profiler shows."""
        with self.span("python", name):
            self.add(Work(self.around(ns, name) if not exact else round(ns)))

    @contextmanager
    def op(self, name: str, inputs: tuple[Tensor, ...] = (), ns: float = -1) -> Iterator[None]:
        """A framework operator; half of its own cost comes before what it calls, half after."""
        cost = self.host(self.costs.op_ns if ns < 0 else ns, name)
        with self.span("op", name, op_args(inputs)):
            self.add(Work(cost - cost // 3))
            yield
            self.add(Work(cost // 3))

    def launch(self, kernel: Kernel, api: str = "launch", overhead_ns: int = 0) -> None:
        """Start one kernel, or put it into the graph that is being collected."""
        jittered = self.jitter(kernel)
        if self.graph is not None:
            self.graph.append(jittered)
            return
        cost = self.host(self.costs.launch_ns, "launch")
        self.add(Launch((jittered,), self.stream, cost, api=api, device=self.device, overhead_ns=overhead_ns))

    def jitter(self, kernel: Kernel, spread: float = 0.015) -> Kernel:
        ns = self.around(kernel.ns, f"kernel {kernel.role}", spread)
        return Kernel(**{**kernel.__dict__, "ns": ns})

    def call(self, role: str, inputs: tuple[Tensor, ...], outputs: tuple[Tensor, ...], **work: Any) -> None:
        """One operator call that ends in one kernel launch."""
        kernel = self.maker.kernel(role, inputs, outputs, **work)
        self.op_call(role, inputs, kernel)

    def op_call(self, role: str, inputs: tuple[Tensor, ...], kernel: Kernel) -> None:
        chain = operators(self.chip.vendor, role)
        if self.graph is not None:
            self.launch(kernel)
            return
        self._nest(chain, inputs, kernel, outermost=True)

    def _nest(
        self, chain: tuple[str, ...], inputs: tuple[Tensor, ...], kernel: Kernel, outermost: bool
    ) -> None:
        if not chain:
            api = "launch_ex" if kernel.role in ("gemm", "attention") else "launch"
            self.launch(kernel, api)
            return
        with self.op(chain[0], inputs, self.costs.op_ns if outermost else self.costs.inner_op_ns):
            self._nest(chain[1:], gemm_inputs(chain[0], inputs), kernel, outermost=False)

    @contextmanager
    def replay(self, name: str = "graph") -> Iterator[None]:
        """Collect the kernels of the block and start them with one graph launch."""
        self.graph = []
        yield
        kernels, self.graph = tuple(self.graph), None
        if not kernels:
            return
        cost = self.host(7000 + 12 * len(kernels), f"replay {name}")
        self.add(Call("stream_is_capturing", 400))
        self.add(Launch(kernels, self.stream, cost, device=self.device, graph=True))

    def copy(
        self, kind: CopyKind, size: int, host: HostMemory, blocks: bool = False, stream: int = -1,
        ns: int = 0, api: str = "memcpy_async",
    ) -> None:  # fmt: skip
        rate = self.chip.pageable if host == "Pageable" else self.chip.pinned
        took = ns or max(1500, round(size / rate * 1e9))
        call = self.host(5200, "memcpy")
        self.add(
            Copy(kind, size, self.around(took, "copy", 0.02), self.stream if stream < 0 else stream, call,
                 host=host, blocks=blocks, api=api, device=self.device)
        )  # fmt: skip

    def item(
        self, operator: str = "aten::item", size: int = 8, inner: str = "aten::_local_scalar_dense"
    ) -> None:
        """Read a value from the device: a small copy to the host and a wait for it."""
        scalar = (Tensor((1,), "int64"),)
        with self.op(operator, scalar, 900), self.op(inner, scalar, 1100):
            self.read_back(size)

    def read_back(self, size: int = 8) -> None:
        """The copy and the wait that a framework does to read a value; each vendor's own way."""
        if self.chip.vendor == "hip":
            self.copy("DtoH", size, "Pageable", blocks=True, ns=1300, api="memcpy_with_stream")
            return
        if self.chip.vendor == "ascend":
            self.add(SyncStream(self.stream, device=self.device))
            self.copy("DtoH", size, "Pageable", blocks=True, ns=1300, api="memcpy")
            return
        self.copy("DtoH", size, "Pinned", ns=1300)
        self.add(SyncStream(self.stream, device=self.device))

    def token_copy(self, event: str, requests: int) -> None:
        """Send the sampled ids to the host without waiting, and mark when they are there."""
        with self.op("aten::copy_", (Tensor((requests,), "int64"), Tensor((requests,), "int64")), 1500):
            self.copy("DtoH", 8 * requests, "Pinned")
        self.add(Record(event, self.stream, device=self.device))


def gemm_inputs(operator: str, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """`aten::linear` takes [.., K] and [N, K]; the `aten::mm` within takes [M, K] and [K, N]."""
    if operator != "aten::linear" or len(inputs) < 2:
        return inputs
    x, w = inputs[0], inputs[1]
    rows = x.elements // x.shape[-1]
    return (Tensor((rows, x.shape[-1]), x.dtype), Tensor((w.shape[1], w.shape[0]), w.dtype))


def op_args(inputs: tuple[Tensor, ...]) -> dict[str, Any]:
    """Shapes and types as torch writes them."""
    if not inputs:
        return {}
    strides = []
    for tensor in inputs:
        stride, row = 1, []
        for size in reversed(tensor.shape):
            row.append(stride)
            stride *= max(size, 1)
        strides.append(row[::-1])
    return {
        "Concrete Inputs": ["" for _ in inputs],
        "Input type": [TORCH_DTYPES[t.dtype] for t in inputs],
        "Input Strides": strides,
        "Input Dims": [list(t.shape) for t in inputs],
    }
