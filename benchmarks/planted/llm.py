"""A transformer that serves: prefill and decode steps as operators, kernels, frames and annotations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Literal

from benchmarks.planted.actions import (
    CaptureBegin,
    CaptureEnd,
    DropLaunches,
    ProfilerStop,
    Program,
    SyncEvent,
    SyncStream,
    Tensor,
    Thread,
    WindowStart,
    Work,
)
from benchmarks.planted.build import Builder, HostCosts
from benchmarks.planted.hardware import H100, Chip, Maker

Engine = Literal["vllm", "sglang", "hf", "plain"]
Phase = Literal["prefill", "decode", "mixed"]


@dataclass(frozen=True)
class Shape:
    """Sizes of a decoder."""

    layers: int
    hidden: int
    inter: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int


LLAMA8 = Shape(6, 4096, 14336, 32, 8, 128, 64128)
LLAMA3 = Shape(8, 3072, 8192, 24, 8, 128, 32064)
QWEN_SMALL = Shape(12, 1024, 2816, 16, 16, 64, 16000)


@dataclass(frozen=True)
class Step:
    """One engine step: how many requests it serves, tokens it takes in, tokens of context each has."""

    phase: Phase
    requests: int
    tokens: int
    context: int
    prompts: int = 0

    @property
    def decoding(self) -> int:
        return self.requests - self.prompts


def decode_steps(count: int, requests: int = 32, context: int = 1024) -> tuple[Step, ...]:
    return tuple(Step("decode", requests, requests, context + i) for i in range(count))


def prefill_steps(count: int, tokens: int = 4096) -> tuple[Step, ...]:
    return tuple(Step("prefill", 1, tokens, tokens, prompts=1) for _ in range(count))


class Hooks:
    """Where a fault gets into the program. Each method may add actions; the base adds none."""

    def setup(self, b: Builder) -> None:
        """Before the window starts."""

    def between(self, b: Builder, i: int, step: Step) -> None:
        """Before step `i`, outside of its annotation; not called before the first."""

    def start(self, b: Builder, i: int, step: Step) -> None:
        """Inside the step, before its first kernel."""

    def attention(self, b: Builder, i: int, layer: int, step: Step) -> None:
        """In each layer, after attention."""

    def mlp(self, b: Builder, i: int, layer: int, step: Step) -> None:
        """In each layer, after the MLP."""

    def logits(self, b: Builder, i: int, step: Step) -> None:
        """After the model, before sampling."""

    def after(self, b: Builder, i: int, step: Step) -> None:
        """After sampling, inside of the step's annotation."""

    def replays(self, i: int, step: Step) -> bool | None:
        """Whether the step is replayed from a graph; None: as the scenario says."""
        return None

    def scale(self, i: int, step: Step) -> float:
        """Factor on all host costs of a step."""
        return 1.0

    def threads(self, seed: int) -> tuple[Thread, ...]:
        """Further host threads."""
        return ()


@dataclass(frozen=True)
class Scenario:
    """A run of an engine on a chip, with everything but the fault."""

    seed: int
    steps: tuple[Step, ...]
    chip: Chip = H100
    shape: Shape = LLAMA8
    engine: Engine = "vllm"
    costs: HostCosts = field(default_factory=HostCosts)
    maker: Maker | None = None
    hooks: Hooks = field(default_factory=Hooks)
    graphs: bool = False
    """Decode steps are replayed from graphs, as serving engines do."""
    confounders: tuple[str, ...] = ()
    gil: bool = False
    annotate: bool = True
    profiler_steps: bool = False
    lag: int = 1
    """The host waits for the tokens of the step before the last `lag` ones; 0 waits at once, -1 never."""

    def with_hooks(self, hooks: Hooks) -> Scenario:
        return replace(self, hooks=hooks)


CONFOUNDERS = ("busy-sync", "deep-queue", "capture", "late-window", "lost-launches", "warm-up", "overhead")
WARM_UP_STEPS = 1

_FILES: dict[str, tuple[str, ...]] = {
    "vllm": ("serve_llm.py(41): <module>", "serve_llm.py(27): main", "vllm/v1/engine/core.py(812): run_busy_loop"),
    "sglang": ("launch_server.py(33): <module>", "sglang/srt/managers/scheduler.py(2411): run_scheduler_process",
               "sglang/srt/managers/scheduler.py(914): event_loop_overlap"),
    "hf": ("generate.py(58): <module>", "generate.py(31): main",
           "transformers/generation/utils.py(2294): generate", "transformers/generation/utils.py(2690): _sample"),
    "plain": ("infer.py(72): <module>", "infer.py(55): main", "infer.py(38): generate"),
}  # fmt: skip
_STEP: dict[str, tuple[str, str, str]] = {
    "vllm": ("vllm/v1/worker/gpu_model_runner.py(2088): execute_model",
             "vllm/model_executor/models/llama.py(392): forward",
             "vllm/model_executor/models/llama.py(317): forward"),
    "sglang": ("sglang/srt/managers/scheduler.py(2919): run_batch",
               "sglang/srt/models/llama.py(331): forward", "sglang/srt/models/llama.py(251): forward"),
    "hf": ("transformers/utils/generic.py(965): wrapper",
           "transformers/models/llama/modeling_llama.py(419): forward",
           "transformers/models/llama/modeling_llama.py(294): forward"),
    "plain": ("infer.py(24): step", "model.py(141): forward", "model.py(88): forward"),
}  # fmt: skip


def program(scenario: Scenario, rank: int = 0) -> Program:
    """The threads of a scenario, ready to simulate."""
    b = Builder(scenario.chip, scenario.seed, scenario.costs, scenario.maker)
    with ExitStack() as frames:
        for name in _FILES[scenario.engine]:
            frames.enter_context(b.span("python", name))
            b.add(Work(b.around(400, name)))
        scenario.hooks.setup(b)
        # what only surrounds the fault has a host of ordinary speed
        b.scale = _pace(b.chip) / b.costs.scale
        _start(b, scenario)
        _confounders(b, scenario)
        b.scale = 1.0
        for i, step in enumerate(scenario.steps):
            _one(b, scenario, i, step)
        _stop(b, scenario)
    threads = (Thread(4200 + 37 * rank, "python", tuple(b.actions)), *scenario.hooks.threads(scenario.seed))
    return Program(threads, rank=rank, gil=scenario.gil)


def _start(b: Builder, scenario: Scenario) -> None:
    if "late-window" in scenario.confounders:
        steps = prefill_steps(1, 2048) + decode_steps(1)
        clean = replace(scenario, hooks=Hooks(), confounders=(), graphs=False)
        for i, step in enumerate(steps):
            with b.within("before the window", i):
                model_step(b, clean, -1, step)
    b.add(WindowStart())
    if not scenario.annotate and "late-window" not in scenario.confounders:
        return
    with b.frame("torch/profiler/profiler.py(214): start_trace", 9000):
        b.add(Work(b.around(20_000, "start trace")))


def _stop(b: Builder, scenario: Scenario) -> None:
    """The last tokens arrive; then the profiler is stopped, which waits for the device by itself."""
    if scenario.lag >= 0 and scenario.steps:
        b.add(SyncEvent(_token_event(len(scenario.steps) - 1)))
    with (
        b.frame("torch/profiler/profiler.py(844): stop", 1500),
        b.frame("torch/autograd/profiler.py(331): __exit__", 1200),
    ):
        b.add(ProfilerStop())


def _confounders(b: Builder, scenario: Scenario) -> None:
    """Things that look bad and are not, before the steps that count."""
    clean = replace(scenario, hooks=Hooks(), confounders=(), graphs=False, lag=-1)
    if "capture" in scenario.confounders:
        _capture(b, clean)
    if "deep-queue" in scenario.confounders:
        for i, tokens in enumerate([_prompt(b.chip, 6144)] + [128] * 24):
            with b.within("chunk", i):
                model_step(b, clean, -1, Step("prefill", 1, tokens, tokens, prompts=1))
    if "busy-sync" in scenario.confounders:
        for i in range(2):
            with b.within("prompt", i):
                tokens = _prompt(b.chip, 4096)
                model_step(b, clean, -1, Step("prefill", 1, tokens, tokens, prompts=1))
                with b.frame("serve/prefill.py(77): wait_for_prompt"):
                    b.add(SyncStream(b.stream))


def _prompt(chip: Chip, tokens: int) -> int:
    """Prompt length that takes about as many decode steps' time on this chip as `tokens` on an H100."""
    return max(256, round(tokens * chip.flops / H100.flops * _pace(chip) / 256) * 256)


def _pace(chip: Chip) -> float:
    return H100.bandwidth / chip.bandwidth


def _capture(b: Builder, clean: Scenario) -> None:
    with (
        b.within("capture"),
        b.frame("vllm/v1/worker/gpu_model_runner.py(2630): capture_model", 30_000),
        b.frame("torch/cuda/graphs.py(186): capture_begin", 4000),
    ):
        b.add(CaptureBegin())
        model_body(b, clean, decode_steps(1)[0], Hooks(), -1)
        b.add(CaptureEnd())


def _one(b: Builder, scenario: Scenario, i: int, step: Step) -> None:
    hooks = scenario.hooks
    warm = "warm-up" in scenario.confounders and i < WARM_UP_STEPS
    active = Hooks() if warm else hooks
    lost = "lost-launches" in scenario.confounders and i == len(scenario.steps) // 2
    with b.within("step", i):
        b.scale = max(3.0, 9.0 * _pace(b.chip) / b.costs.scale) if warm else hooks.scale(i, step)
        if lost:
            b.add(DropLaunches(True))
        if i:
            active.between(b, i, step)
        if "overhead" in scenario.confounders and i == len(scenario.steps) // 2:
            x = (Tensor((step.requests, scenario.shape.hidden)),)
            with b.op("aten::add", x):
                b.launch(b.maker.kernel("add", x, x), overhead_ns=round(1_300_000 * _pace(b.chip)))
        model_step(b, scenario.with_hooks(active), i, step)
        if lost:
            b.add(DropLaunches(False))
        b.scale = 1.0


@contextmanager
def step_ranges(b: Builder, scenario: Scenario, i: int, step: Step) -> Iterator[None]:
    """The ranges an engine draws around a step."""
    names = []
    if scenario.profiler_steps and i >= 0:
        names.append(f"ProfilerStep#{i + 3}")
    if scenario.annotate and scenario.engine == "vllm":
        prompt_tokens = step.tokens - step.decoding if step.prompts else 0
        names.append(
            f"execute_context_{step.prompts}({prompt_tokens})_generation_{step.decoding}({step.decoding})"
        )
    if scenario.annotate and scenario.engine == "sglang":
        mode = {"prefill": "EXTEND", "decode": "DECODE", "mixed": "MIXED"}[step.phase]
        names.append(f"step[{mode} bs={step.requests} toks={step.tokens}]")
    with ExitStack() as open_:
        for name in names:
            open_.enter_context(b.span("annotation", name))
        yield


def model_step(b: Builder, scenario: Scenario, i: int, step: Step) -> None:
    """One step: prepare the batch, run the model, sample, send the tokens, wait for those of before."""
    outer, _, _ = _STEP[scenario.engine]
    hooks = scenario.hooks
    replays = hooks.replays(i, step)
    if replays is None:
        replays = scenario.graphs and step.phase == "decode"
    with step_ranges(b, scenario, i, step), b.frame(outer, 4000):
        hooks.start(b, i, step)
        _inputs(b, step)
        if replays:
            with b.frame("torch/cuda/graphs.py(88): replay", 900), b.replay():
                model_body(b, scenario, step, hooks, i)
        else:
            model_body(b, scenario, step, hooks, i)
        hooks.logits(b, i, step)
        _sample(b, scenario, step)
        if i >= 0:
            b.token_copy(_token_event(i), step.requests)
        hooks.after(b, i, step)
        _tokens(b, scenario, i)


def _inputs(b: Builder, step: Step) -> None:
    size = 16 * step.tokens
    ids = Tensor((step.tokens,), "int64")
    with b.op("aten::copy_", (ids, ids), 1500):
        b.copy("HtoD", size, "Pinned")


def _tokens(b: Builder, scenario: Scenario, i: int) -> None:
    wanted = i - scenario.lag
    if scenario.lag >= 0 and i >= 0 and wanted >= 0:
        with b.frame(
            "vllm/v1/outputs.py(161): get_output" if scenario.engine == "vllm" else "engine.py(90): results"
        ):
            b.add(SyncEvent(_token_event(wanted)))


def _token_event(i: int) -> str:
    return f"tokens {i}"


def model_body(b: Builder, scenario: Scenario, step: Step, hooks: Hooks, i: int) -> None:
    """Embedding, layers, final norm and the output projection."""
    _, model, layer_frame = _STEP[scenario.engine]
    shape = scenario.shape
    x = Tensor((step.tokens, shape.hidden))
    with b.frame(model, 3000):
        b.call("embedding", (Tensor((shape.vocab, shape.hidden)), Tensor((step.tokens,), "int64")), (x,),
               moved=2.0 * x.bytes)  # fmt: skip
        for layer in range(shape.layers):
            with b.within("layer", layer), b.frame(layer_frame, 2500):
                decoder_layer(b, scenario, step, layer, i, hooks)
        norm(b, x)
    rows = step.requests
    logits = Tensor((rows, shape.vocab))
    linear(b, Tensor((rows, shape.hidden)), shape.vocab, logits)


def linear(b: Builder, x: Tensor, n: int, out: Tensor, **work: float) -> None:
    """y = x W^T: 2 M N K operations; x, W and y are moved once."""
    k = x.shape[-1]
    rows = x.elements // k
    weight = Tensor((n, k), x.dtype)
    b.call("gemm", (x, weight), (out,), flops=2.0 * rows * n * k, **work)


def norm(b: Builder, x: Tensor) -> None:
    b.call("norm", (x, x, Tensor((x.shape[-1],))), (x, x))


def decoder_layer(b: Builder, scenario: Scenario, step: Step, layer: int, i: int, hooks: Hooks) -> None:
    shape = scenario.shape
    t = step.tokens
    x = Tensor((t, shape.hidden))
    q, kv = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    norm(b, x)
    linear(b, x, q + 2 * kv, Tensor((t, q + 2 * kv)))
    heads = Tensor((t, q + kv))
    b.call("rope", (Tensor((t,), "int64"), Tensor((t, q)), Tensor((t, kv))), (Tensor((t, q)),),
           moved=2.0 * heads.bytes)  # fmt: skip
    b.call("kv_write", (Tensor((t, shape.kv_heads, shape.head_dim)),) * 2,
           (Tensor((t, shape.kv_heads, shape.head_dim)),) * 2)  # fmt: skip
    attention(b, shape, step)
    hooks.attention(b, i, layer, step)
    linear(b, Tensor((t, q)), shape.hidden, x)
    norm(b, x)
    linear(b, x, 2 * shape.inter, Tensor((t, 2 * shape.inter)))
    b.call(
        "swiglu", (Tensor((t, shape.inter)), Tensor((t, 2 * shape.inter))), (), moved=6.0 * t * shape.inter
    )
    linear(b, Tensor((t, shape.inter)), shape.hidden, x)
    hooks.mlp(b, i, layer, step)


def attention(b: Builder, shape: Shape, step: Step) -> None:
    """Prefill: causal, 2 N (N+1) d operations per head, with N tokens; decode: the cache is read once."""
    query = Tensor((step.tokens, shape.heads, shape.head_dim))
    key = Tensor((step.tokens, shape.kv_heads, shape.head_dim))
    pairs = step.context * (step.context + 1) / 2 if step.prompts else float(step.requests * step.context)
    flops = 4.0 * shape.heads * shape.head_dim * pairs
    cache = 4.0 * step.requests * step.context * shape.kv_heads * shape.head_dim
    b.call("attention", (query, key, key, query), (query,), flops=flops, moved=cache + 2 * query.bytes)


def _sample(b: Builder, scenario: Scenario, step: Step) -> None:
    with b.frame("serve/sample.py(19): greedy", 1200):
        b.call(
            "argmax", (Tensor((step.requests, scenario.shape.vocab)),), (Tensor((step.requests,), "int64"),)
        )
