"""What the name of a range says about a step: which engine wrote it, its phase and its sizes.

Sources of the forms: vLLM's worker annotations (plain and detailed), SGLang's step spans (with and without token
sums), ATOM's `prefill[...]` and `decode[...]`, xDiT's `execute_diffusion_...`, vLLM's and vLLM-Ascend's custom
scopes, torch's ProfilerStep, and words that users write.
"""

from __future__ import annotations

import re
from dataclasses import field
from enum import IntEnum
from typing import Any, Literal

from stallscope.profiler.light import dataclass

Confidence = Literal["high", "medium", "low"]

PHASES = ("prefill", "decode", "mixed", "sampling", "vision encoder", "denoising", "other")


class Level(IntEnum):
    """How near a range is to one engine step; a lower one stands above a higher one where both are told."""

    MARK = 0
    """An engine's or a user's own mark of one step or phase."""
    SCOPE = 1
    """A stage inside of a step (`gpu_model_runner: forward`); stages are joined to cycles."""
    LOOP = 2
    """A range around several steps (ProfilerStep, a diffusion pipeline), unless nothing is told inside."""


@dataclass(frozen=True)
class StepName:
    """Phase ("" if the name does not tell), confidence in it, sizes, and the place in the order of stages."""

    phase: str
    confidence: Confidence
    level: Level = Level.MARK
    facts: dict[str, Any] = field(default_factory=dict)
    stage: int = 0


_SUMS = r"\(sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)\)"
_VLLM_SUMS = re.compile(rf"^execute_(?:(\d+)_)?context_(\d+){_SUMS}_generation_(\d+){_SUMS}")
_VLLM = re.compile(r"^execute_(?:(\d+)_)?context_(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)")
_SGLANG = re.compile(r"^step\[(?P<mode>[A-Z_]+)(?P<rest>[^\]]*)\]")
_BRACKETS = re.compile(r"^(?P<word>prefill|decode|mixed)\[(?P<rest>[^\]]*)\]")
_DIFFUSION = re.compile(r"^execute_diffusion_(\d+)_(\d+)x(\d+)")
_PROFILER_STEP = re.compile(r"^ProfilerStep#(\d+)")
_SIZE = re.compile(r"(\w+)\s*=\s*(\d{1,15})\b")
_SCOPE = re.compile(r"^(?:v\d_)?(?:gpu|npu|tpu|xpu|cpu)?_?model_runner:\s*(?P<stage>[\w ]+)$")

_MODES = {
    "EXTEND": "prefill", "PREFILL": "prefill", "SPLIT_PREFILL": "prefill", "DLLM_EXTEND": "prefill",
    "DECODE": "decode", "VERIFY": "decode", "TARGET_VERIFY": "decode", "DRAFT_EXTEND": "decode", "DRAFT": "decode",
    "MIXED": "mixed", "IDLE": "other",
}  # fmt: skip

_STAGES = {
    "preprocess": 0, "prepare input": 0, "prepare_inputs": 0, "state_update": 0, "update_states": 0,
    "forward": 1, "_model_forward": 1,
    "post process": 2, "postprocess": 2, "sample": 2, "sample_token": 2, "sample_logits": 2, "draft": 2,
    "draft_token": 2, "bookkeep": 2, "sample_postprocess": 2, "async_output": 2, "async_state_update": 2,
}  # fmt: skip
_BARE_STAGES = frozenset(("prepare input", "forward", "post process", "sample_token", "draft_token"))
"""vLLM-Ascend writes its stages without a prefix; of these words only the telling ones count."""

_WORD = re.compile(
    r"(?P<word>prefill|decode|mixed|sampling|sample|vision|image_?encod\w*|denois\w*|diffusion)"
    r"(?:[_ -]?(?:step|iter(?:ation)?|phase|forward|batch|chunk|tokens?|encoder|tower|loop))?"
    r"(?:[_ #:-]{0,2}\d+)?(?=$|[\[({:#=,]|\s+(?:[\[({#]|\w+\s*[=:]|\d))",
    re.IGNORECASE,
)
_NOT_A_PHASE = re.compile(
    r"token(?:i[sz]er|s_to)|detoken|jpe?g|png|video|audio|utf|base64|json", re.IGNORECASE
)
_LONGEST = 300
"""Longer names are code or data, no marks."""

_SIZE_NAMES = {
    "bs": "batch", "batch_size": "batch", "num_reqs": "batch", "toks": "tokens", "tok": "tokens",
    "num_tokens": "tokens", "ctx": "context", "padded": "bucket", "bucket_size": "bucket", "graph_bs": "bucket",
    "cuda_graph_bs": "bucket", "num_tokens_padded": "bucket",
}  # fmt: skip


def read_name(name: str) -> StepName | None:
    """What the name of an annotation says, None if it names no step.

    >>> read_name("step[DECODE bs=32]").facts
    {'batch': 32}
    >>> read_name("execute_context_2(512)_generation_3(3)").phase
    'mixed'
    >>> read_name("tokenizer.decode") is None
    True
    """
    if len(name) > _LONGEST:
        return None
    return _engine(name) or _scope(name) or _loop(name) or _written(name)


def _engine(name: str) -> StepName | None:
    if vllm := _VLLM_SUMS.match(name):
        return _vllm_sums(vllm)
    if vllm := _VLLM.match(name):
        contexts, context_q, generations, generation_q = (int(x) for x in vllm.groups()[1:])
        facts = {
            "batch": contexts + generations,
            "context_requests": contexts,
            "generation_requests": generations,
            "context_tokens": context_q,
            "decode_tokens": generation_q,
            "tokens": context_q + generation_q,
        }
        return StepName(_composition(contexts, generations), "high", facts=facts)
    if sglang := _SGLANG.match(name):
        phase = _MODES.get(sglang["mode"])
        told = _sglang_sizes(phase, sizes(sglang["rest"]))
        return StepName(phase or "other", "high", facts={"mode": sglang["mode"]} | told)
    if plain := _BRACKETS.match(name):
        return StepName(plain["word"], "high", facts=sizes(plain["rest"]))
    return None


def _composition(contexts: int, generations: int) -> str:
    if contexts and generations:
        return "mixed"
    return "prefill" if contexts else "decode" if generations else "other"


def _vllm_sums(found: re.Match[str]) -> StepName:
    numbers = [int(x) if x else 0 for x in found.groups()]
    total = numbers.pop(0)
    contexts, generations = numbers[0], numbers[5]
    tokens = numbers[1] + numbers[6]
    facts: dict[str, Any] = {
        "batch": contexts + generations,
        "context_requests": contexts,
        "generation_requests": generations,
        "context_tokens": numbers[1],
        "decode_tokens": numbers[6],
        "tokens": tokens,
        "context_sums": numbers[1:5],
        "generation_sums": numbers[6:10],
    }
    if total > tokens:
        facts["bucket"] = total
    return StepName(_composition(contexts, generations), "high", facts=facts)


def _sglang_sizes(phase: str | None, told: dict[str, Any]) -> dict[str, Any]:
    """Sizes of an SGLang span; `c_` sums are those of requests in prefill, `g_` those in decode."""
    facts = {
        key: value for key, value in told.items() if not key.startswith(("c_", "g_")) and key not in "cg"
    }
    batch, tokens = told.get("batch"), told.get("tokens")
    contexts = told.get("c", batch if phase == "prefill" else 0)
    generations = told.get("g", batch if phase == "decode" else 0)
    if contexts is None or generations is None:
        return facts
    facts |= {"context_requests": contexts, "generation_requests": generations}
    for letter, key, count, usual in (
        ("c", "context_sums", contexts, tokens),
        ("g", "generation_sums", generations, generations),
    ):
        sums = [told.get(f"{letter}_{k}", usual if k == "sq" else None) for k in ("sq", "sk", "sqsq", "sqsk")]
        if count and None not in sums:
            facts[key] = sums
    return facts


def sizes(text: str) -> dict[str, Any]:
    """The whole numbers of `key=value` pairs, under the names this project uses.

    >>> sizes("bs=32 toks=4096")
    {'batch': 32, 'tokens': 4096}
    """
    return {_SIZE_NAMES.get(key.lower(), key): int(value) for key, value in _SIZE.findall(text)}


def renamed(key: str) -> str:
    """The name this project uses for a size that a mark gave as an argument."""
    return _SIZE_NAMES.get(key.lower(), key.lower())


def _scope(name: str) -> StepName | None:
    found = _SCOPE.match(name)
    stage = found["stage"].strip() if found else name if name in _BARE_STAGES else ""
    if stage not in _STAGES:
        return None
    return StepName("", "medium", Level.SCOPE, stage=_STAGES[stage])


def _loop(name: str) -> StepName | None:
    if step := _PROFILER_STEP.match(name):
        return StepName("", "high", Level.LOOP, {"profiler_step": int(step[1])})
    if diffusion := _DIFFUSION.match(name):
        batch, height, width = (int(x) for x in diffusion.groups())
        return StepName("denoising", "medium", Level.LOOP, {"batch": batch, "height": height, "width": width})
    return None


def _written(name: str) -> StepName | None:
    """Words a user or a framework wrote: "decode", "model.prefill", "decode step 12", "## denoise ##"."""
    text = name.strip("# ")
    if "::" in text or _NOT_A_PHASE.search(text):
        return None
    word = _WORD.match(text) or _WORD.match(text.rpartition(".")[2])
    if word is None:
        return None
    found = word["word"].lower()
    if found.startswith(("vision", "image")):
        phase = "vision encoder"
    elif found.startswith(("denois", "diffusion")):
        phase = "denoising"
    else:
        phase = {"sample": "sampling"}.get(found, found)
    return StepName(phase, "high", facts=sizes(text))
