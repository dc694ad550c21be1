"""The cases: which fault, on which engine and chip, with which confounders, and the healthy ones.

A case is data until `Case.run` simulates it. The same case can be built for another chip: costs of the
host and sizes of the fault follow the chip's memory bandwidth, so that who waits for whom stays the same.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarks.planted import faults as f
from benchmarks.planted.build import HostCosts
from benchmarks.planted.hardware import CHIPS, H100, Chip, Maker
from benchmarks.planted.healthy import HEALTHY
from benchmarks.planted.llm import (
    LLAMA8,
    QWEN_SMALL,
    Engine,
    Hooks,
    Scenario,
    Shape,
    Step,
    decode_steps,
    prefill_steps,
    program,
)
from benchmarks.planted.recording import Recording
from benchmarks.planted.simulate import Machine, simulate


@dataclass(frozen=True)
class Truth:
    """What the analysis should say. `places` are texts of which one must stand in the finding's location.

    `python` is "file.py(line): function"; it is split so that file:line and file(line) both count.
    No places: any location will do.
    """

    cause: str
    phase: str = ""
    python: str = ""
    operators: tuple[str, ...] = ()
    kernels: tuple[str, ...] = ()

    def located(self, python: str, operator: str, kernel: str) -> bool:
        if not (self.python or self.operators or self.kernels):
            return True
        if self.python and _same_place(self.python, python):
            return True
        return any(
            token in said for token in self.operators + self.kernels for said in (operator, kernel) if said
        )


def _same_place(wanted: str, said: str) -> bool:
    found = re.fullmatch(r"(?:.*/)?([^/(]+)\((\d+)\): (.+)", wanted)
    if found is None:
        return wanted in said
    name, line, function = found.groups()
    return name in said and (re.search(rf"\b{line}\b", said) is not None or function in said)


@dataclass(frozen=True)
class Case:
    """One case; `faulty` and `mended` make the scenario, for healthy cases both are the same."""

    id: str
    seed: int
    truth: Truth | None
    faulty: Callable[[Chip], Scenario]
    mended: Callable[[Chip], Scenario] | None
    chip: str = "h100"
    machine: Machine = field(default_factory=Machine)
    stack: bool = True
    """Whether the recording has Python frames."""
    confounders: tuple[str, ...] = ()
    after: Callable[[Recording], None] | None = None
    """Changes to the finished recording (lost rows and the like)."""
    cpu_only: bool = False

    def run(self, chip: Chip | None = None, mended: bool = False) -> list[Recording]:
        """Simulate the case, or the mended program; one recording per rank."""
        used = chip or CHIPS[self.chip]
        make = self.mended if mended and self.mended is not None else self.faulty
        machine = replace(self.machine, task_queue=used.vendor == "ascend")
        recordings = simulate(program(make(used)), machine)
        if self.after is not None:
            for recording in recordings:
                self.after(recording)
        return recordings

    def gain_ns(self, chip: Chip | None = None) -> int:
        """What mending the fault gives, in nanoseconds of the program's wall time."""
        return self.run(chip)[0].wall_ns - self.run(chip, mended=True)[0].wall_ns


def pace(chip: Chip) -> float:
    """How much slower than on an H100 the memory-bound parts of a step are."""
    return H100.bandwidth / chip.bandwidth


@dataclass(frozen=True)
class Plant:
    """A fault before it meets a chip: `make(mended, pace)` gives the hooks."""

    make: Callable[[bool, float], Hooks]
    truth: Truth
    steps: tuple[Step, ...] = decode_steps(12)
    shape: Shape = LLAMA8
    graphs: bool = False
    host_scale: float = 1.0
    npu_scale: float = 1.0
    """Further factor on the NPU, where the launching thread does not make the launch calls itself."""
    gil: bool = False
    maker: Callable[[Chip], Maker] | None = None
    lag: int = 1

    def scenario(self, seed: int, engine: Engine, confounders: tuple[str, ...], mended: bool,
                 profiler_steps: bool, annotate: bool) -> Callable[[Chip], Scenario]:  # fmt: skip
        def build(chip: Chip) -> Scenario:
            scale = self.host_scale * pace(chip) * (self.npu_scale if chip.vendor == "ascend" else 1.0)
            return Scenario(
                seed=seed, steps=self.steps, chip=chip, shape=self.shape, engine=engine,
                costs=HostCosts(scale=scale), hooks=self.make(mended, pace(chip)),
                graphs=self.graphs, confounders=confounders, gil=self.gil, annotate=annotate,
                profiler_steps=profiler_steps, maker=self.maker(chip) if self.maker else None, lag=self.lag,
            )  # fmt: skip

        return build


def _ns(value: float, scale: float) -> int:
    return round(value * scale)


ROUTER = "serve/router.py(96): route"
PLANTS: dict[str, Plant] = {
    "python-gap/sampler": Plant(
        lambda m, p: f.PythonGap(m, ns=_ns(2_400_000, p)),
        Truth("python-gap", "decode", python="serve/sampler.py(214): pick_tokens"),
    ),
    "python-gap/layer": Plant(
        lambda m, p: f.PythonGap(m, "model.py(203): build_mask", _ns(330_000, p), per_layer=True),
        Truth("python-gap", "decode", python="model.py(203): build_mask"),
    ),
    "python-gap/graphed": Plant(
        lambda m, p: f.PythonGap(m, "serve/logits.py(61): apply_bias", _ns(3_200_000, p), busy_builtins=40),
        Truth("python-gap", "decode", python="serve/logits.py(61): apply_bias"),
        graphs=True,
    ),
    "dispatch/slow-host": Plant(
        lambda m, p: f.ReplayWhenMended(m), Truth("dispatch", "decode"), host_scale=4.5, npu_scale=2.2,
        steps=decode_steps(10),
    ),
    "dispatch/many-requests": Plant(
        lambda m, p: f.ReplayWhenMended(m), Truth("dispatch", "decode"), host_scale=6.0, npu_scale=2.2,
        steps=decode_steps(8, requests=64, context=2048),
    ),
    "explicit-sync/device": Plant(
        lambda m, p: f.ExplicitSync(m, "device"),
        Truth("explicit-sync", "decode", python="serve/timing.py(33): stop_timer"),
        steps=decode_steps(18),
    ),
    "explicit-sync/stream": Plant(
        lambda m, p: f.ExplicitSync(m, "stream", "serve/timing.py(71): mark"),
        Truth("explicit-sync", "decode", python="serve/timing.py(71): mark"),
        steps=decode_steps(18),
    ),
    "explicit-sync/event": Plant(
        lambda m, p: f.ExplicitSync(m, "event", "serve/timing.py(52): elapsed"),
        Truth("explicit-sync", "decode", python="serve/timing.py(52): elapsed"),
        steps=decode_steps(18),
    ),
    "explicit-sync/step": Plant(
        lambda m, p: f.StepSync(m),
        Truth("explicit-sync", "decode", python="serve/loop.py(64): run_once"),
        host_scale=2.0,
        steps=decode_steps(18),
    ),
    "implicit-sync/item": Plant(
        lambda m, p: f.ImplicitSync(m, "aten::item"),
        Truth("implicit-sync", "decode", python=ROUTER, operators=("aten::item", "aten::_local_scalar_dense")),
        steps=decode_steps(18),
    ),
    "implicit-sync/nonzero": Plant(
        lambda m, p: f.ImplicitSync(m, "aten::nonzero"),
        Truth("implicit-sync", "decode", python=ROUTER, operators=("aten::nonzero",)),
        steps=decode_steps(18),
    ),
    "implicit-sync/masked-select": Plant(
        lambda m, p: f.ImplicitSync(m, "aten::masked_select", times=2),
        Truth("implicit-sync", "decode", python=ROUTER, operators=("aten::masked_select",)),
        steps=decode_steps(18),
    ),
    "implicit-sync/cpu": Plant(
        lambda m, p: f.ImplicitSync(m, "aten::_to_copy"),
        Truth("implicit-sync", "decode", python=ROUTER,
              operators=("aten::_to_copy", "aten::to", "aten::copy_")),
        steps=decode_steps(18),
    ),
    "implicit-sync/sampling": Plant(
        lambda m, p: f.ImplicitSync(m, "aten::item", "serve/stop.py(29): hit_stop", per_step=True, times=16),
        Truth("implicit-sync", "decode", python="serve/stop.py(29): hit_stop",
              operators=("aten::item", "aten::_local_scalar_dense")),
    ),
    "blocking-copy/upload": Plant(
        lambda m, p: f.BlockingCopy(m, "HtoD"),
        Truth("blocking-copy", "decode", python="serve/batch.py(47): to_device",
              operators=("aten::copy_", "aten::to", "aten::_to_copy"), kernels=("Memcpy",)),
    ),
    "blocking-copy/logits": Plant(
        lambda m, p: f.BlockingCopy(m, "DtoH", 9 << 20, "serve/logits.py(30): to_host"),
        Truth("blocking-copy", "decode", python="serve/logits.py(30): to_host",
              operators=("aten::copy_", "aten::to", "aten::_to_copy"), kernels=("Memcpy",)),
    ),
    "memory-bound/chain": Plant(
        lambda m, p: f.UnfusedChain(m),
        Truth("memory-bound", "prefill", operators=("aten::mul", "aten::silu", "aten::add"),
              kernels=("elementwise", "aclnnMul", "aclnnSwish", "aclnnAdd")),
        steps=prefill_steps(5),
    ),
    "memory-bound/chain-fp32": Plant(
        lambda m, p: f.UnfusedChain(m, 4, "fp32"),
        Truth("memory-bound", "prefill", operators=("aten::mul", "aten::silu", "aten::add"),
              kernels=("elementwise", "aclnnMul", "aclnnSwish", "aclnnAdd")),
        steps=prefill_steps(4, 8192),
    ),
    "memory-bound/wide-type": Plant(
        lambda m, p: f.WideType(m),
        Truth("memory-bound", "decode", operators=("aten::mm", "aten::linear"),
              kernels=("nvjet", "gemm", "Cijk", "aclnnMatMul")),
    ),
    "launch-bound/small-model": Plant(
        lambda m, p: f.ReplayWhenMended(m), Truth("launch-bound", "decode"), shape=QWEN_SMALL,
        steps=decode_steps(8, requests=4, context=256), host_scale=1.3,
    ),
    "launch-bound/slow-cpu": Plant(
        lambda m, p: f.ReplayWhenMended(m), Truth("launch-bound", "decode"), shape=QWEN_SMALL,
        steps=decode_steps(12, requests=2, context=512), host_scale=2.4,
    ),
    "gc/loop": Plant(
        lambda m, p: f.GarbageCollection(m, _ns(22_000_000, p)),
        Truth("gc", "", python="serve/loop.py(120): step_done"),
    ),
    "gc/graphed": Plant(
        lambda m, p: f.GarbageCollection(m, _ns(9_000_000, p), every=3),
        Truth("gc", "", python="serve/loop.py(120): step_done"),
        graphs=True,
    ),
    "allocator/empty-cache": Plant(
        lambda m, p: f.Allocator(m, malloc_ns=_ns(330_000, p)),
        Truth("allocator", "", python="serve/memory.py(58): release", operators=("aten::empty",)),
    ),
    "cuda-malloc/growth": Plant(
        lambda m, p: f.Allocator(m, 5, emptied=False, malloc_ns=_ns(900_000, p)),
        Truth("cuda-malloc", "", python="serve/memory.py(31): reserve", operators=("aten::empty",)),
    ),
    "compile/new-shape": Plant(
        lambda m, p: f.Compile(m, ns=_ns(60_000_000, p)),
        Truth("compile", "", python="model.py(77): fused_mlp"),
    ),
    "compile/graphed": Plant(
        lambda m, p: f.Compile(m, (3, 8), _ns(25_000_000, p), "model.py(131): rotary"),
        Truth("compile", "", python="model.py(131): rotary"),
        graphs=True,
    ),
    "contention/thread": Plant(
        lambda m, p: f.OtherThread(m), Truth("contention"), gil=True,
    ),
    "contention/preempted": Plant(
        lambda m, p: f.Preempted(m, ns=_ns(1_100_000, p)), Truth("contention"),
    ),
    "stream-dependency/late-fetch": Plant(
        lambda m, p: f.SideStreamWait(m, ns=_ns(140_000, p)),
        Truth("stream-dependency", "decode", python="serve/offload.py(71): fetch_layer", kernels=("Memcpy HtoD",)),
    ),
    "stream-dependency/pipeline": Plant(
        lambda m, p: f.Pipeline(m), Truth("stream-dependency"), steps=decode_steps(14),
    ),
    "collective/exposed": Plant(
        lambda m, p: f.AllReduce(m, _ns(220_000, p)),
        Truth("collective", "prefill", operators=("c10d::allreduce_", "vllm::all_reduce", "record_param_comms"),
              kernels=("nccl", "hcom", "allReduce")),
        steps=prefill_steps(4),
    ),
    "collective/decode": Plant(
        lambda m, p: f.AllReduce(m, _ns(38_000, p)),
        Truth("collective", "decode", operators=("c10d::allreduce_", "vllm::all_reduce", "record_param_comms"),
              kernels=("nccl", "hcom", "allReduce")),
        steps=decode_steps(12), graphs=True,
    ),
    "collective/late-peer": Plant(
        lambda m, p: f.AllReduce(m, _ns(8_000, p), peer_lag_ns=_ns(700_000, p), every=3, hidden=False),
        Truth("collective", "decode", operators=("c10d::allreduce_", "vllm::all_reduce", "record_param_comms"),
              kernels=("nccl", "hcom", "allReduce")),
    ),
    "graph-break/attention": Plant(
        lambda m, p: f.GraphBreaks(m),
        Truth("graph-break", "decode", python="vllm/attention/layer.py(366): unified_attention_with_output",
              operators=("vllm::unified_attention_with_output", "vllm::unified_ascend_attention_with_output",
                         "fa3", "npu_fused_infer"),
              kernels=("attention", "flash", "FusedInferAttention")),
        shape=Shape(12, 2048, 5632, 16, 4, 128, 16000), steps=decode_steps(10, requests=8, context=512),
        graphs=True, host_scale=2.0,
    ),
    "graph-break/eager-steps": Plant(
        lambda m, p: f.EagerSteps(m), Truth("graph-break", "decode"),
        shape=Shape(12, 2048, 5632, 16, 4, 128, 16000), steps=decode_steps(12, requests=8, context=512),
        graphs=True, host_scale=2.2,
    ),
    "scheduler/busy": Plant(
        lambda m, p: f.Scheduler(m, ns=_ns(3_000_000, p)),
        Truth("scheduler", "", python="vllm/v1/core/sched/scheduler.py(402): schedule"),
        graphs=True,
    ),
    "no-requests/queue": Plant(
        lambda m, p: f.Scheduler(m, ns=_ns(5_000_000, p), sleeps=True), Truth("no-requests"), graphs=True,
    ),
    "inefficient/gemm": Plant(
        lambda m, p: f.SlowKernel(m, "gemm", 0.12),
        Truth("inefficient", "prefill", operators=("aten::mm", "aten::linear"),
              kernels=("nvjet", "gemm", "Cijk", "aclnnMatMul")),
        steps=prefill_steps(4),
    ),
    "inefficient/strided": Plant(
        lambda m, p: f.SlowKernel(m, "softmax", 0.05),
        Truth("inefficient", "prefill", operators=("aten::softmax", "aten::_softmax"),
              kernels=("SoftMax", "Softmax")),
        steps=prefill_steps(4, 8192),
    ),
    "latency-kernel/cumsum": Plant(
        lambda m, p: f.LatencyKernel(m, "cumsum", _ns(900_000, p)),
        Truth("latency-kernel", "decode", operators=("aten::cumsum",), kernels=("scan_innermost", "Cumsum")),
        graphs=True,
    ),
    "latency-kernel/softmax": Plant(
        lambda m, p: f.LatencyKernel(m, "softmax", _ns(500_000, p)),
        Truth("latency-kernel", "decode", operators=("aten::softmax", "aten::_softmax"),
              kernels=("SoftMax", "Softmax")),
    ),
    "copy-tax/casts": Plant(
        lambda m, p: f.CopyTax(m),
        Truth("copy-tax", "prefill",
              operators=("aten::copy_", "aten::to", "aten::_to_copy", "aten::contiguous", "aten::clone"),
              kernels=("copy_kernel", "Cast", "Transpose")),
        steps=prefill_steps(4),
    ),
    "warm-up/first-steps": Plant(
        lambda m, p: f.WarmUp(m), Truth("warm-up"), steps=decode_steps(14),
    ),
    "drift/history": Plant(
        lambda m, p: f.Drift(m, first_ns=_ns(150_000, p), growth_ns=_ns(420_000, p)),
        Truth("drift", "decode", python="serve/history.py(58): append_tokens"),
        steps=decode_steps(16),
    ),
}  # fmt: skip

# (plant, engine, chip, confounder or "", flags: n no Python frames, p ProfilerStep, a no annotations,
# s synchronisation rows)
PLAN: tuple[tuple[str, Engine, str, str, str], ...] = (
    ("python-gap/sampler", "vllm", "h100", "", ""),
    ("python-gap/sampler", "hf", "mi300x", "busy-sync", "p"),
    ("python-gap/sampler", "plain", "a100", "warm-up", "pa"),
    ("python-gap/layer", "sglang", "h100", "deep-queue", ""),
    ("python-gap/layer", "vllm", "mi300x", "late-window", ""),
    ("python-gap/graphed", "vllm", "h100", "capture", "s"),
    ("dispatch/slow-host", "vllm", "h100", "", ""),
    ("dispatch/slow-host", "hf", "a100", "busy-sync", "p"),
    ("dispatch/slow-host", "plain", "mi300x", "deep-queue", "n"),
    ("dispatch/many-requests", "sglang", "h100", "lost-launches", ""),
    ("explicit-sync/device", "vllm", "h100", "", ""),
    ("explicit-sync/device", "plain", "mi300x", "busy-sync", "p"),
    ("explicit-sync/stream", "vllm", "a100", "deep-queue", "s"),
    ("explicit-sync/stream", "hf", "h100", "warm-up", "p"),
    ("explicit-sync/event", "sglang", "h100", "", "s"),
    ("explicit-sync/event", "vllm", "mi300x", "late-window", ""),
    ("explicit-sync/step", "vllm", "h100", "", ""),
    ("implicit-sync/item", "vllm", "h100", "", ""),
    ("implicit-sync/item", "hf", "mi300x", "busy-sync", "p"),
    ("implicit-sync/nonzero", "vllm", "a100", "", "s"),
    ("implicit-sync/nonzero", "plain", "h100", "capture", "pa"),
    ("implicit-sync/masked-select", "sglang", "h100", "deep-queue", ""),
    ("implicit-sync/cpu", "vllm", "h100", "late-window", ""),
    ("implicit-sync/sampling", "vllm", "h100", "busy-sync", "n"),
    ("blocking-copy/upload", "vllm", "h100", "", ""),
    ("blocking-copy/upload", "plain", "mi300x", "busy-sync", "p"),
    ("blocking-copy/logits", "vllm", "a100", "", ""),
    ("blocking-copy/logits", "sglang", "h100", "deep-queue", "s"),
    ("memory-bound/chain", "vllm", "h100", "", ""),
    ("memory-bound/chain", "hf", "mi300x", "late-window", "p"),
    ("memory-bound/chain-fp32", "plain", "a100", "busy-sync", "p"),
    ("memory-bound/wide-type", "vllm", "h100", "", ""),
    ("memory-bound/wide-type", "sglang", "a100", "deep-queue", ""),
    ("launch-bound/small-model", "vllm", "h100", "", ""),
    ("launch-bound/small-model", "hf", "mi300x", "busy-sync", "p"),
    ("launch-bound/slow-cpu", "sglang", "h100", "warm-up", ""),
    ("launch-bound/slow-cpu", "plain", "a100", "lost-launches", "pa"),
    ("gc/loop", "vllm", "h100", "", ""),
    ("gc/loop", "sglang", "mi300x", "busy-sync", ""),
    ("gc/graphed", "vllm", "h100", "capture", ""),
    ("allocator/empty-cache", "vllm", "h100", "", ""),
    ("allocator/empty-cache", "hf", "a100", "busy-sync", "p"),
    ("cuda-malloc/growth", "vllm", "h100", "", ""),
    ("cuda-malloc/growth", "plain", "mi300x", "deep-queue", "p"),
    ("compile/new-shape", "vllm", "h100", "", ""),
    ("compile/new-shape", "plain", "a100", "warm-up", "p"),
    ("compile/graphed", "sglang", "h100", "busy-sync", ""),
    ("contention/thread", "vllm", "h100", "", ""),
    ("contention/thread", "sglang", "mi300x", "busy-sync", ""),
    ("contention/preempted", "vllm", "h100", "", ""),
    ("contention/preempted", "hf", "a100", "deep-queue", "p"),
    ("stream-dependency/late-fetch", "vllm", "h100", "", "s"),
    ("stream-dependency/late-fetch", "sglang", "a100", "busy-sync", ""),
    ("stream-dependency/pipeline", "hf", "h100", "", "ps"),
    ("collective/exposed", "vllm", "h100", "", ""),
    ("collective/exposed", "vllm", "mi300x", "late-window", ""),
    ("collective/decode", "vllm", "h100", "busy-sync", ""),
    ("collective/late-peer", "vllm", "h100", "", ""),
    ("collective/late-peer", "sglang", "a100", "deep-queue", ""),
    ("graph-break/attention", "vllm", "h100", "", ""),
    ("graph-break/attention", "vllm", "mi300x", "busy-sync", ""),
    ("graph-break/eager-steps", "sglang", "h100", "capture", ""),
    ("scheduler/busy", "vllm", "h100", "", ""),
    ("scheduler/busy", "vllm", "a100", "busy-sync", ""),
    ("no-requests/queue", "vllm", "h100", "", ""),
    ("inefficient/gemm", "vllm", "h100", "", ""),
    ("inefficient/gemm", "hf", "a100", "late-window", "p"),
    ("inefficient/strided", "vllm", "mi300x", "", ""),
    ("latency-kernel/cumsum", "vllm", "h100", "", ""),
    ("latency-kernel/cumsum", "sglang", "mi300x", "capture", ""),
    ("latency-kernel/softmax", "plain", "a100", "busy-sync", "p"),
    ("copy-tax/casts", "vllm", "h100", "", ""),
    ("copy-tax/casts", "hf", "mi300x", "lost-launches", "p"),
    ("warm-up/first-steps", "vllm", "h100", "", ""),
    ("warm-up/first-steps", "plain", "mi300x", "overhead", "p"),
    ("drift/history", "vllm", "h100", "", ""),
    ("drift/history", "plain", "a100", "busy-sync", "p"),
)  # fmt: skip


def _planted(number: int, row: tuple[str, Engine, str, str, str]) -> Case:
    name, engine, chip, confounder, flags = row
    plant = PLANTS[name]
    confounders = (confounder,) if confounder else ()
    seed = 1000 + number
    settings: dict[str, Any] = {"profiler_steps": "p" in flags, "annotate": "a" not in flags}
    return Case(
        id=f"p{number:02d}-{name.replace('/', '-')}" + (f"+{confounder}" if confounder else ""),
        seed=seed,
        truth=plant.truth,
        faulty=plant.scenario(seed, engine, confounders, False, **settings),
        mended=plant.scenario(seed, engine, confounders, True, **settings),
        chip=chip,
        machine=Machine(sync_rows="s" in flags),
        stack="n" not in flags,
        confounders=confounders,
    )


def _healthy(number: int, name: str) -> Case:
    sound = HEALTHY[name]
    seed = 5000 + number

    def build(chip: Chip) -> Scenario:
        return sound.scenario(chip, seed, pace(chip))

    return Case(
        id=f"h{number:02d}-{name}", seed=seed, truth=None, faulty=build, mended=None, chip=sound.chip,
        machine=sound.machine, stack=sound.stack, after=sound.after, cpu_only=sound.cpu_only,
    )  # fmt: skip


def all_cases() -> list[Case]:
    """Every case, planted ones first."""
    planted = [_planted(i + 1, row) for i, row in enumerate(PLAN)]
    return planted + [_healthy(i + 1, name) for i, name in enumerate(HEALTHY)]
