"""The faults: what each puts into a program, and how the mended program differs.

Each fault is a `Hooks` that takes `mended`; with it set the program is the same without the fault.
Sizes are chosen so that the fault takes between 8 and 80 percent of the run, and so that sensible
readings of what mending means give nearly the same gain.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

from benchmarks.planted.actions import (
    Call,
    Free,
    Kernel,
    Launch,
    Malloc,
    Record,
    Sleep,
    SyncDevice,
    SyncEvent,
    SyncStream,
    Tensor,
    Thread,
    WaitEvent,
    Work,
)
from benchmarks.planted.build import Builder
from benchmarks.planted.hardware import Chip, roof_ns
from benchmarks.planted.llm import Hooks, Step, linear

SIDE_STREAM = 20
ROOF_SHARE = 0.80


@dataclass
class Fault(Hooks):
    mended: bool = False


@dataclass
class PythonGap(Fault):
    """A function works for `ns` in Python, in each step or each layer."""

    place: str = "serve/sampler.py(214): pick_tokens"
    ns: int = 2_400_000
    per_layer: bool = False
    busy_builtins: int = 0

    def _gap(self, b: Builder) -> None:
        if self.mended:
            return
        with b.frame(self.place, 0):
            for _ in range(self.busy_builtins):
                b.python("<built-in method get of dict object at 0x7f0a5c0d1c40>", 600)
            b.add(Work(b.around(self.ns, "python gap")))

    def logits(self, b: Builder, i: int, step: Step) -> None:
        if not self.per_layer:
            self._gap(b)

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        if self.per_layer:
            self._gap(b)


@dataclass
class ReplayWhenMended(Fault):
    """The scenario itself is slow to launch; mended, decode steps are replayed from a graph."""

    def replays(self, i: int, step: Step) -> bool | None:
        return self.mended and step.phase == "decode"


@dataclass
class ExplicitSync(Fault):
    """Somebody measures time: a synchronisation and some bookkeeping after each part of a layer."""

    how: str = "device"
    place: str = "serve/timing.py(33): stop_timer"

    def _sync(self, b: Builder, part: str) -> None:
        with b.frame(self.place, 1500):
            if self.how == "event":
                b.add(Record(f"timer {part}", b.stream, device=b.device))
            if not self.mended:
                with b.frame("torch/cuda/__init__.py(1040): synchronize", 700):
                    if self.how == "device":
                        b.add(SyncDevice(device=b.device))
                    elif self.how == "stream":
                        b.add(SyncStream(b.stream, device=b.device))
                    else:
                        b.add(SyncEvent(f"timer {part}"))
            b.add(Work(b.around(18_000, "bookkeeping")))

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        self._sync(b, "attention")

    def mlp(self, b: Builder, i: int, layer: int, step: Step) -> None:
        self._sync(b, "mlp")


@dataclass
class StepSync(Fault):
    """A synchronisation at the end of each step exposes the preparation of the next batch."""

    place: str = "serve/loop.py(64): run_once"

    def after(self, b: Builder, i: int, step: Step) -> None:
        with b.frame(self.place, 2000):
            if not self.mended:
                with b.frame("torch/cuda/__init__.py(1040): synchronize", 700):
                    b.add(SyncDevice(device=b.device))

    def between(self, b: Builder, i: int, step: Step) -> None:
        with b.frame("serve/batch.py(118): prepare_inputs", 4000):
            for _ in range(24):
                with b.op("aten::slice", (Tensor((step.requests, 64), "int32"),)):
                    pass
            b.add(Work(b.around(120_000, "prepare")))


@dataclass
class ImplicitSync(Fault):
    """Operators that must know a value on the host: item, nonzero, masked_select, cpu.

    Mended, the value stays on the device: no copy and no wait; a kernel that computes it still runs.
    """

    operator: str = "aten::item"
    place: str = "serve/router.py(96): route"
    per_step: bool = False
    times: int = 2

    def _read(self, b: Builder) -> None:
        with b.frame(self.place, 2500):
            for _ in range(self.times):
                self._read_value(b)
                b.add(Work(b.around(32_000, "use of the value")))

    def _read_value(self, b: Builder) -> None:
        mask = (Tensor((256,), "bool"),)
        if self.mended and self.operator in ("aten::item", "aten::_to_copy"):
            return
        if self.operator == "aten::item":
            with b.frame("<built-in method item of Tensor object at 0x7f0a58e1b3d0>"):
                b.item()
            return
        if self.operator == "aten::_to_copy":
            with b.frame("<built-in method cpu of Tensor object at 0x7f0a58e1b3d0>"), b.op("aten::to", mask, 900), \
                    b.op("aten::_to_copy", mask, 1200), b.op("aten::copy_", mask, 1000):  # fmt: skip
                b.read_back(256)
            return
        with b.frame(f"<built-in method {self.operator.split('::')[1]} of type object at 0x7f0a91d2c1c0>"), \
                b.op(self.operator, mask):  # fmt: skip
            b.launch(_count_kernel(b))
            if not self.mended:
                b.read_back(4)

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        if not self.per_step:
            self._read(b)

    def logits(self, b: Builder, i: int, step: Step) -> None:
        if self.per_step:
            self._read(b)


def _count_kernel(b: Builder) -> Kernel:
    name = {
        "cuda": "void at_cuda_detail::cub::DeviceReduceSingleTileKernel<at_cuda_detail::cub::DeviceReducePolicy<int, "
        "unsigned int, cub::Sum>::Policy600, bool*, int*, int, cub::Sum, int, int>(bool*, int*, int, cub::Sum, int, int)",
        "hip": "void rocprim::detail::block_reduce_kernel<true, rocprim::default_config, int>(bool*, int*, unsigned long)",
        "ascend": "aclnnNonzeroV2_NonZeroAiCore_NonZero",
    }[b.chip.vendor]
    return Kernel(name, 2600, role="index", block=(256, 1, 1), inputs=(Tensor((256,), "bool"),),
                  outputs=(Tensor((1,), "int32"),))  # fmt: skip


@dataclass
class BlockingCopy(Fault):
    """A large tensor goes to or from pageable memory in each step."""

    kind: str = "HtoD"
    size: int = 16 << 20
    place: str = "serve/batch.py(47): to_device"

    def _copy(self, b: Builder) -> None:
        if self.mended:
            return
        tensor = (Tensor((self.size // 4,), "fp32"),)
        with b.frame(self.place, 2000), b.op("aten::to", tensor, 900), b.op("aten::_to_copy", tensor, 1200), \
                b.op("aten::copy_", tensor, 1000):  # fmt: skip
            hip = b.chip.vendor == "hip"
            api = {"hip": "memcpy_with_stream", "ascend": "memcpy"}.get(b.chip.vendor, "memcpy_async")
            b.copy("HtoD" if self.kind == "HtoD" else "DtoH", self.size, "Pageable", blocks=True, api=api)
            if not hip:
                b.add(SyncStream(b.stream, device=b.device))

    def start(self, b: Builder, i: int, step: Step) -> None:
        if self.kind == "HtoD" and i > 0:
            self._copy(b)

    def logits(self, b: Builder, i: int, step: Step) -> None:
        if self.kind == "DtoH":
            self._copy(b)


@dataclass
class UnfusedChain(Fault):
    """After the MLP's first product, `length` elementwise kernels instead of one pass over the data."""

    length: int = 5
    dtype: str = "bf16"

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        x = Tensor((step.tokens, 14336), self.dtype)
        for k in range(1 if self.mended else self.length):
            b.call(("mul", "silu", "add")[k % 3], (x,), (x,))


@dataclass
class WideType(Fault):
    """A product in fp32 that would do in bf16: twice the bytes of a weight."""

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        linear(b, Tensor((step.tokens, 4096), "bf16" if self.mended else "fp32"), 16384,
               Tensor((step.tokens, 16384), "bf16" if self.mended else "fp32"))  # fmt: skip


@dataclass
class GarbageCollection(Fault):
    """The collector runs in some steps and takes tens of milliseconds."""

    ns: int = 22_000_000
    every: int = 4
    place: str = "serve/loop.py(120): step_done"

    def between(self, b: Builder, i: int, step: Step) -> None:
        if i % self.every or self.mended:
            return
        with b.frame(self.place, 1500), b.span("python", "<built-in function collect>", {"gc": False}):
            b.add(Work(b.around(self.ns, "gc")))


@dataclass
class Allocator(Fault):
    """The allocator's cache is emptied after each step and filled again in the next."""

    blocks: int = 6
    place: str = "serve/memory.py(58): release"
    emptied: bool = True
    malloc_ns: int = 330_000

    def start(self, b: Builder, i: int, step: Step) -> None:
        if self.mended or i <= 0:
            return
        with b.frame("serve/memory.py(31): reserve", 1500):
            for _ in range(self.blocks):
                with b.op("aten::empty", (), 1200):
                    b.add(Malloc(b.around(self.malloc_ns, "malloc"), 64 << 20, device=b.device))

    def between(self, b: Builder, i: int, step: Step) -> None:
        if self.mended or not self.emptied:
            return
        with b.frame(self.place, 1500), b.frame("torch/cuda/memory.py(218): empty_cache", 900):
            for _ in range(self.blocks):
                b.add(Free(b.around(140_000, "free"), device=b.device))


@dataclass
class Compile(Fault):
    """A new shape makes the compiler run in the middle of the window."""

    at: tuple[int, ...] = (5,)
    ns: int = 60_000_000
    place: str = "model.py(77): fused_mlp"

    def logits(self, b: Builder, i: int, step: Step) -> None:
        if i not in self.at or self.mended:
            return
        parts = (
            ("torch/_dynamo/convert_frame.py(1272): __call__", 0.02),
            ("torch/_dynamo/convert_frame.py(624): _compile", 0.28),
            ("torch/_inductor/compile_fx.py(1371): compile_fx", 0.25),
            ("triton/compiler/compiler.py(226): compile", 0.45),
        )
        with ExitStack() as frames:
            frames.enter_context(b.frame(self.place, 1500))
            frames.enter_context(b.frame("torch/_dynamo/eval_frame.py(663): _fn", 2000))
            for name, share in parts:
                frames.enter_context(b.span("python", name))
                b.add(Work(b.around(self.ns * share, name)))
            b.add(Call("module_load", b.around(180_000, "module load")))


@dataclass
class OtherThread(Fault):
    """A second Python thread holds the interpreter lock for milliseconds at a time."""

    place: str = "serve/detokenizer.py(88): decode_batch"
    hold_ns: int = 3_000_000
    rounds: int = 40

    def threads(self, seed: int) -> tuple[Thread, ...]:
        if self.mended:
            return ()
        b = Builder(_ANY_CHIP, seed)
        b.add(Sleep(2_000_000))
        with b.frame("threading.py(1012): run", 900), b.frame("serve/detokenizer.py(61): loop", 900):
            for k in range(self.rounds):
                with b.within("round", k):
                    b.python(self.place, self.hold_ns)
                    with b.frame("queue.py(154): get", 900):
                        b.add(Sleep(b.around(500_000, "queue")))
        return (Thread(9100, "detokenizer", tuple(b.actions)),)


_ANY_CHIP = Chip("cuda", "", 1.0, 1.0, 1, 1)


@dataclass
class Preempted(Fault):
    """The launching thread loses its core now and then: ordinary calls take hundreds of microseconds."""

    ns: int = 900_000
    every: int = 3

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        if layer % self.every or self.mended:
            return
        add = b.actions.pop()
        if isinstance(add, Work):
            b.add(Work(add.ns + b.around(self.ns, "preempted", 0.5)))
            return
        for k in range(len(b.actions) - 1, -1, -1):
            last = b.actions[k]
            if isinstance(last, Launch):
                b.actions[k] = replace(last, ns=last.ns + b.around(self.ns, "preempted", 0.5))
                break
        b.add(add)


@dataclass
class SideStreamWait(Fault):
    """Each layer waits for a transfer on another stream, which starts only when the layer has come that far.

    Mended, the transfer does not wait for the layer and so runs ahead of it.
    """

    ns: int = 140_000
    place: str = "serve/offload.py(71): fetch_layer"

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        here, fetched = f"reached {layer}", f"fetched {layer}"
        with b.frame(self.place, 2500):
            b.add(Record(here, b.stream))
            if not self.mended:
                b.add(WaitEvent(here, SIDE_STREAM))
            b.copy("HtoD", round(self.ns * b.chip.pinned / 1e9), "Pinned", stream=SIDE_STREAM)
            b.add(Record(fetched, SIDE_STREAM), WaitEvent(fetched, b.stream))


@dataclass
class Pipeline(Fault):
    """Half of the layers live on a second device; each half waits for the other."""

    place: str = "accelerate/hooks.py(171): pre_forward"

    def start(self, b: Builder, i: int, step: Step) -> None:
        b.device = 0
        if i > 0 and not self.mended:
            b.add(WaitEvent("second half done", b.stream, device=0))

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        if layer != 3:
            return
        with b.frame(self.place, 5000):
            b.add(Record("first half done", b.stream, device=0))
            b.device = 1
            if not self.mended:
                b.add(WaitEvent("first half done", b.stream, device=1))

    def logits(self, b: Builder, i: int, step: Step) -> None:
        b.add(Record("second half done", b.stream, device=1))


@dataclass
class AllReduce(Fault):
    """Two all-reduces per layer on the compute stream; `peer_lag_ns` is how late the peer comes."""

    transfer_ns: int = 150_000
    peer_lag_ns: int = 0
    every: int = 1
    hidden: bool = True
    """Mended, the collective takes no time of the step; else only the peer's lateness is gone."""

    def _reduce(self, b: Builder, i: int, layer: int, step: Step, part: str) -> None:
        if self.mended and self.hidden:
            return
        x = Tensor((step.tokens, 4096))
        kernel = b.maker.kernel("collective", (x,), (x,), ns=self.transfer_ns, blocks=16)
        late = 0 if self.mended or layer % self.every else b.around(self.peer_lag_ns, "lag", 0.3)
        b.op_call("collective", (x,), replace(kernel, collective=f"{i}.{layer}.{part}", peer_lag_ns=late))

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        self._reduce(b, i, layer, step, "attention")

    def mlp(self, b: Builder, i: int, layer: int, step: Step) -> None:
        self._reduce(b, i, layer, step, "mlp")


@dataclass
class SlowPeer(AllReduce):
    """This rank is the other one: it prepares each step in Python, and so comes late to collectives."""

    work_ns: int = 3_000_000

    def start(self, b: Builder, i: int, step: Step) -> None:
        if not self.mended and i > 0:
            b.python("serve/grammar.py(140): advance", self.work_ns)


@dataclass
class GraphBreaks(Fault):
    """Each layer leaves the graph for attention, which is launched from Python."""

    place: str = "vllm/attention/layer.py(366): unified_attention_with_output"

    def replays(self, i: int, step: Step) -> bool | None:
        return step.phase == "decode"

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        if self.mended:
            return
        kernels, b.graph = tuple(b.graph or ()), None
        if kernels:
            eager, attention_kernel = kernels[:-1], kernels[-1]
            _launch_graph(b, eager)
            with b.frame(self.place, 30_000):
                b.op_call("attention", attention_kernel.inputs, attention_kernel)
        b.graph = []


def _launch_graph(b: Builder, kernels: tuple[Kernel, ...]) -> None:
    with b.frame("vllm/compilation/cuda_graph.py(112): __call__", 9000):
        b.add(Call("stream_is_capturing", 400))
        cost = b.host(7000 + 12 * len(kernels), "replay piece")
        b.add(Launch(kernels, b.stream, cost, device=b.device, graph=True))


@dataclass
class EagerSteps(Fault):
    """Some batch sizes were not captured: their steps are launched kernel by kernel."""

    eager: tuple[int, ...] = (2, 3, 6, 7, 10, 11)

    def replays(self, i: int, step: Step) -> bool | None:
        return step.phase == "decode" and (self.mended or i not in self.eager)


@dataclass
class Scheduler(Fault):
    """The scheduler works between steps while the device has nothing to do."""

    place: str = "vllm/v1/core/sched/scheduler.py(402): schedule"
    ns: int = 3_000_000
    sleeps: bool = False

    def between(self, b: Builder, i: int, step: Step) -> None:
        if self.mended:
            return
        if self.sleeps:
            with (
                b.frame("vllm/v1/engine/core.py(867): _process_input_queue", 1500),
                b.frame("queue.py(171): get", 800),
                b.span("python", "<built-in method acquire of _thread.lock object at 0x7f0a5b1f4c80>"),
            ):
                b.add(Sleep(b.around(self.ns, "no requests", 0.3)))
            return
        with b.frame(self.place, 1500):
            b.add(Work(b.around(self.ns, "schedule")))


@dataclass
class SlowKernel(Fault):
    """A kernel in each layer reaches `share` of the roof; mended, it reaches 80 % of it."""

    role: str = "gemm"
    share: float = 0.25
    blocks: int = 0
    per_step: bool = False
    name: str = ""

    def _run(self, b: Builder, step: Step) -> None:
        share = ROOF_SHARE if self.mended else self.share
        if self.role == "gemm":
            linear(b, Tensor((step.tokens, 4096)), 4096, Tensor((step.tokens, 4096)), share=share)
            return
        x = Tensor((step.tokens, 4096))
        b.call(self.role, (x,), (x,), share=share)

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        if not self.per_step:
            self._run(b, step)


@dataclass
class LatencyKernel(Fault):
    """One kernel with a single block runs for long on little data."""

    role: str = "cumsum"
    ns: int = 450_000
    size: int = 151_936

    def logits(self, b: Builder, i: int, step: Step) -> None:
        x = Tensor((1, self.size), "fp32")
        best = round(roof_ns(b.chip, 0.0, 2 * x.bytes) / ROOF_SHARE)
        with b.frame("serve/sample.py(44): top_p"):
            b.call(
                self.role, (x,), (x,), ns=max(best, b.maker.floor_ns) if self.mended else self.ns, blocks=1
            )


@dataclass
class CopyTax(Fault):
    """Casts to fp32 and back and a transposition in each layer that nobody needs."""

    transposes: bool = True

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        if self.mended:
            return
        narrow, wide = Tensor((step.tokens, 14336)), Tensor((step.tokens, 14336), "fp32")
        with b.frame("model.py(52): upcast"):
            b.call("cast", (narrow,), (wide,))
            b.call("cast", (wide,), (narrow,))
            if self.transposes:
                b.call("contiguous", (narrow,), (narrow,))


@dataclass
class WarmUp(Fault):
    """The first steps are slow on the host: modules are loaded at the first launch of each kernel."""

    steps: int = 2
    factor: float = 25.0

    def scale(self, i: int, step: Step) -> float:
        return self.factor if i < self.steps and not self.mended else 1.0


@dataclass
class Drift(Fault):
    """Python work that grows with each step."""

    place: str = "serve/history.py(58): append_tokens"
    first_ns: int = 150_000
    growth_ns: int = 260_000

    def logits(self, b: Builder, i: int, step: Step) -> None:
        grown = 0 if self.mended else max(i, 0) * self.growth_ns
        with b.frame(self.place, 0):
            b.add(Work(b.around(self.first_ns + grown, "history", 0.02)))
