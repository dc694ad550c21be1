"""Programs with nothing to mend, most of which look bad to a rule that reads one number.

On all of them the device is busy, or the recording cannot tell, or nothing could be won. A finding above
"info" on any of them is a false one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.planted.actions import (
    CaptureBegin,
    CaptureEnd,
    Record,
    SyncStream,
    Tensor,
    WaitEvent,
    Work,
)
from benchmarks.planted.build import Builder, HostCosts
from benchmarks.planted.hardware import Chip
from benchmarks.planted.llm import (
    LLAMA8,
    Engine,
    Hooks,
    Scenario,
    Shape,
    Step,
    decode_steps,
    decoder_layer,
    prefill_steps,
)
from benchmarks.planted.recording import Recording
from benchmarks.planted.simulate import Machine

SIDE_STREAM = 20


@dataclass
class StepEndSync(Hooks):
    """A stream synchronisation after each long step: most of the wall time, next to no idle time."""

    def after(self, b: Builder, i: int, step: Step) -> None:
        with b.frame("serve/loop.py(88): wait"):
            b.add(SyncStream(b.stream))


@dataclass
class HiddenPython(Hooks):
    """Python work in each step that the device's backlog covers."""

    ns: int = 3_000_000
    name: str = "serve/stats.py(40): update"

    def after(self, b: Builder, i: int, step: Step) -> None:
        with b.frame(self.name, 1000):
            b.add(Work(b.around(self.ns, "hidden")))


@dataclass
class HiddenCollection(Hooks):
    """A garbage collection while the device works off its queue."""

    def after(self, b: Builder, i: int, step: Step) -> None:
        if i == 1:
            with b.frame("serve/loop.py(120): step_done"):
                b.python("<built-in function collect>", 9_000_000)


@dataclass
class SmallGaps(Hooks):
    """Tiny pauses in the launches of each step, together well under one percent of the run."""

    def logits(self, b: Builder, i: int, step: Step) -> None:
        if i % 4 == 1:
            with b.frame("serve/stop.py(29): hit_stop"):
                b.item()


@dataclass
class Prefetch(Hooks):
    """Weights come on a second stream, early enough: the copies run beside the kernels."""

    def start(self, b: Builder, i: int, step: Step) -> None:
        with b.frame("serve/offload.py(71): fetch_next"):
            b.copy("HtoD", 16 << 20, "Pinned", stream=SIDE_STREAM)
            b.add(Record(f"fetched {i}", SIDE_STREAM))

    def logits(self, b: Builder, i: int, step: Step) -> None:
        b.add(WaitEvent(f"fetched {i}", b.stream))


@dataclass
class HiddenCollective(Hooks):
    """Collectives on their own stream, hidden behind the next products."""

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        if layer == 0:
            return
        x = Tensor((step.tokens, 4096))
        kernel = b.maker.kernel("collective", (x,), (x,), ns=240_000, blocks=16)
        b.add(Record("ready", b.stream), WaitEvent("ready", SIDE_STREAM))
        before, b.stream = b.stream, SIDE_STREAM
        b.op_call("collective", (x,), kernel)
        b.stream = before


@dataclass
class TinyUploads(Hooks):
    """Pageable copies of a few bytes that return at once and take microseconds."""

    def start(self, b: Builder, i: int, step: Step) -> None:
        ids = (Tensor((64,), "int32"),)
        with b.frame("serve/batch.py(47): to_device"), b.op("aten::to", ids, 900), \
                b.op("aten::_to_copy", ids, 1000), b.op("aten::copy_", ids, 1000):  # fmt: skip
            b.copy("HtoD", 256, "Pageable")


@dataclass
class ProfilerPause(Hooks):
    """The profiler itself stops a launch call for milliseconds; the program cannot help it."""

    ns: int = 2_500_000

    def logits(self, b: Builder, i: int, step: Step) -> None:
        if i in (3, 8):
            x = (Tensor((step.requests, 4096)),)
            with b.op("aten::add", x):
                b.launch(b.maker.kernel("add", x, x), overhead_ns=self.ns)


@dataclass
class TwoDevices(Hooks):
    """Layers alternate between two devices without waiting for each other; both are busy."""

    def start(self, b: Builder, i: int, step: Step) -> None:
        b.device = 0

    def logits(self, b: Builder, i: int, step: Step) -> None:
        b.device = 1
        scenario = Scenario(0, (), chip=b.chip, costs=b.costs)
        with b.within("second device"):
            for layer in range(LLAMA8.layers):
                decoder_layer(b, scenario, step, layer, i, Hooks())
            b.call("argmax", (Tensor((step.requests, LLAMA8.vocab)),), (Tensor((step.requests,), "int64"),))


@dataclass
class CaptureOnly(Hooks):
    """Only graph captures: hundreds of launches, no kernels but those of the warm-up before."""

    def logits(self, b: Builder, i: int, step: Step) -> None:
        with b.frame("torch/cuda/graphs.py(186): capture_begin", 4000):
            b.add(CaptureBegin())
            scenario = Scenario(0, (), chip=b.chip, costs=b.costs)
            for layer in range(LLAMA8.layers):
                decoder_layer(b, scenario, decode_steps(1)[0], layer, i, Hooks())
            b.add(CaptureEnd())


def lose_device_rows(recording: Recording) -> None:
    """The device's records never arrived (buffers dropped, a second profiler held the counters)."""
    recording.device.clear()


def lose_host_rows(recording: Recording) -> None:
    """activities=[CUDA] only: no operators, no Python, calls stay."""
    for row in recording.host:
        row.lost = row.lost or row.kind in ("python", "op", "annotation")


@dataclass(frozen=True)
class Sound:
    """A healthy program before it meets a chip. `host_scale` times the chip's pace scales host costs."""

    steps: tuple[Step, ...] = decode_steps(12)
    hooks: Callable[[], Hooks] = Hooks
    chip: str = "h100"
    engine: Engine = "vllm"
    shape: Shape = LLAMA8
    graphs: bool = False
    lag: int = 1
    host_scale: float = 1.0
    confounders: tuple[str, ...] = ()
    machine: Machine = field(default_factory=Machine)
    stack: bool = True
    annotate: bool = True
    profiler_steps: bool = False
    after: Callable[[Recording], None] | None = None
    cpu_only: bool = False

    def scenario(self, chip: Chip, seed: int, pace: float) -> Scenario:
        settings: dict[str, Any] = {
            "engine": self.engine, "graphs": self.graphs, "lag": self.lag, "confounders": self.confounders,
            "annotate": self.annotate, "profiler_steps": self.profiler_steps,
        }  # fmt: skip
        return Scenario(seed, self.steps, chip=chip, shape=self.shape, hooks=self.hooks(),
                        costs=HostCosts(scale=self.host_scale * pace), **settings)  # fmt: skip


DEEP = Shape(26, 4096, 14336, 32, 8, 128, 64128)

HEALTHY: dict[str, Sound] = {
    "decode-host-ahead": Sound(steps=decode_steps(16)),
    "stream-sync-44-percent": Sound(
        # as on a public two-GPU recording: 99 % busy, 44 % of wall in stream synchronise, full queue
        steps=prefill_steps(4, 8192), shape=DEEP, hooks=StepEndSync, lag=-1,
        machine=Machine(queue_depth=96), stack=False,
    ),
    "two-devices-busy": Sound(steps=decode_steps(10), hooks=TwoDevices, engine="hf", profiler_steps=True),
    "decode-graphed": Sound(steps=decode_steps(24), graphs=True),
    "decode-graphed-hip": Sound(steps=decode_steps(24, 64, 2048), graphs=True, chip="mi300x", engine="sglang"),
    "prefill-compute-bound": Sound(steps=prefill_steps(5, 8192), lag=1),
    "prefill-compute-bound-a100": Sound(steps=prefill_steps(4, 4096), chip="a100", engine="hf", profiler_steps=True),
    "mixed-phases": Sound(steps=prefill_steps(2) + decode_steps(10) + prefill_steps(1) + decode_steps(6)),
    "small-gaps": Sound(steps=decode_steps(16, 64, 4096), hooks=SmallGaps),
    "one-step": Sound(steps=decode_steps(1, 64, 4096), engine="plain", annotate=False),
    "three-kernels": Sound(
        steps=decode_steps(1), shape=Shape(0, 4096, 14336, 32, 8, 128, 128256), engine="plain", annotate=False
    ),
    "cpu-only": Sound(steps=decode_steps(6), engine="hf", profiler_steps=True, cpu_only=True, lag=-1),
    "deep-queue": Sound(steps=decode_steps(10), confounders=("deep-queue",)),
    "long-prompt-syncs": Sound(steps=decode_steps(10), confounders=("busy-sync",), machine=Machine(sync_rows=True)),
    "capture-then-graphs": Sound(steps=decode_steps(16), graphs=True, confounders=("capture",)),
    "late-window": Sound(steps=decode_steps(14, 64, 2048), confounders=("late-window",)),
    "lost-launches": Sound(steps=decode_steps(14), confounders=("lost-launches",)),
    "profiler-pause": Sound(steps=decode_steps(12), hooks=ProfilerPause),
    "hidden-python": Sound(steps=prefill_steps(4, 8192), hooks=HiddenPython),
    "hidden-collection": Sound(steps=prefill_steps(4, 8192), hooks=HiddenCollection),
    "prefetch-hidden": Sound(steps=decode_steps(14, 64, 2048), hooks=Prefetch, graphs=False),
    "collective-hidden": Sound(steps=prefill_steps(4, 8192), hooks=HiddenCollective),
    "tiny-uploads": Sound(steps=decode_steps(14, 64, 2048), hooks=TinyUploads),
    "no-frames-no-marks": Sound(steps=decode_steps(14, 64, 2048), stack=False, annotate=False, engine="plain"),
    "device-only": Sound(steps=decode_steps(14, 64, 2048), after=lose_host_rows, annotate=False),
    "no-device-records": Sound(steps=decode_steps(6), after=lose_device_rows),
    "capture-only": Sound(
        steps=decode_steps(1), shape=Shape(0, 4096, 14336, 32, 8, 128, 128256), hooks=CaptureOnly, lag=-1
    ),
    "hip-host-ahead": Sound(steps=decode_steps(14, 64, 2048), chip="mi300x", engine="hf", profiler_steps=True),
}  # fmt: skip
