"""Which phase a range belongs to, where its name does not tell: from shapes, else from kinds of attention kernels.

A range is decode if attention has one query token per sequence, prefill if it has more and is causal. What
is not causal (an encoder, a diffusion transformer) is neither: without a sign of images it stays "other".
"""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.step_names import Confidence
from stallscope.profiler.timeline import Int64, Timeline

Rows = npt.NDArray[np.intp]

EXAMINED = 6
"""Attention calls looked at per range: layers of a model agree."""

_TELLING = re.compile(
    r"attention|flash_attn|fmha|mha_|varlen|sdpa|^aten::conv2d$|^aten::embedding$", re.IGNORECASE
)
_CAUSAL_ARGUMENT = {
    "aten::scaled_dot_product_attention": 5,
    "aten::_scaled_dot_product_flash_attention": 4,
    "aten::_scaled_dot_product_flash_attention_for_cpu": 4,
    "aten::_scaled_dot_product_efficient_attention": 6,
    "aten::_scaled_dot_product_cudnn_attention": 6,
    "aten::_scaled_dot_product_fused_attention_overrideable": 5,
}
_HEAD = 120
_INDEX_TYPES = ("int", "long int", "long", "int32", "int64")

_DECODE_KERNEL = re.compile(
    r"paged_?attention(?!.*(?:prefill|context))|decode_att|batch_?decode_?with|(?:^|[_:])mmha|fwd_kernel_stage[12]|fwd_grouped_kernel_stage"
    r"|flash_?mla|flash_fwd_splitkv_mla|incre_?flash_?attention|(?:^|[_: ])pa_(?:fwd|bf16|fp16|decode)|single_?decode",
    re.IGNORECASE,
)
_PREFILL_KERNEL = re.compile(
    r"context_attention|batch_?prefill_?with|prompt_?flash_?attention|unpad_?flash_?attention|single_?prefill|prefill_att",
    re.IGNORECASE,
)
_VISION_MODULE = re.compile(r"vision|\bvit|siglip|image_?encoder|dino", re.IGNORECASE)
_DENOISING_MODULE = re.compile(
    r"transformer2d|unet\w*condition|\bunet|\bmm?dit\b|\w*dit_?model|transformer3d", re.IGNORECASE
)
_CAUSAL_MODULE = re.compile(r"causal_?lm|gpt|llama|qwen|mistral|gemma|deepseek", re.IGNORECASE)


@dataclass(frozen=True)
class Evidence:
    """A phase with the confidence of the sign that told it."""

    phase: str
    confidence: Confidence


def module_phase(name: str) -> str:
    """The phase a module's class name tells, "" if none.

    >>> module_phase("FluxTransformer2DModel"), module_phase("ViTModel"), module_phase("Qwen2Model")
    ('denoising', 'vision encoder', '')
    """
    if _DENOISING_MODULE.search(name):
        return "denoising"
    return "vision encoder" if _VISION_MODULE.search(name) else ""


def is_causal_module(name: str) -> bool:
    """Whether a module of this class generates text token by token."""
    return _CAUSAL_MODULE.search(name) is not None


def phases(
    timeline: Timeline, start_ns: Int64, end_ns: Int64, causal: npt.NDArray[np.bool_]
) -> list[Evidence | None]:
    """The phase of each range [start, end) of host time, None where nothing tells.

    `causal` marks ranges that are known to generate text. All arrays have shape (k,).
    """
    rows = _telling_rows(timeline)
    first = np.searchsorted(timeline.spans.start_ns[rows], start_ns)
    last = np.searchsorted(timeline.spans.start_ns[rows], end_ns)
    chosen = kernels.distinct(np.concatenate([np.arange(a, min(b, a + EXAMINED)) for a, b in zip(first, last, strict=True)]
                                      or [np.zeros(0, np.intp)])).astype(np.intp)  # fmt: skip
    told = dict(zip(chosen.tolist(), _read(timeline, rows[chosen]), strict=True))
    by_kernel = _kernel_hints(timeline, start_ns, end_ns)
    out: list[Evidence | None] = []
    for i, (a, b) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        signs = [told[j] for j in range(a, min(b, a + EXAMINED))]
        out.append(_conclude(signs, bool(causal[i])) or by_kernel[i])
    return out


def _telling_rows(timeline: Timeline) -> Rows:
    """Operators that can tell a phase, by start."""
    rows = timeline.named_rows(_tells, Kind.OPERATOR).astype(np.intp)
    return rows[np.argsort(timeline.spans.start_ns[rows], kind="stable")]


def _tells(name: str) -> bool:
    return _TELLING.search(name) is not None


# a kernel calls itself by the first part of its name; the rest is template arguments
def _decodes(name: str) -> bool:
    return _DECODE_KERNEL.search(name[:_HEAD]) is not None


def _prefills(name: str) -> bool:
    return _PREFILL_KERNEL.search(name[:_HEAD]) is not None


def _read(timeline: Timeline, rows: Rows) -> list[str]:
    """A sign per row: "one" (a query token per sequence), "many causal", "many", "image" or ""."""
    columns = [timeline.arg_values(key, rows) for key in ("Input Dims", "Input type", "Concrete Inputs")]
    known: dict[tuple[int, ...], str] = {}
    signs = []
    for i, row in enumerate(rows.tolist()):
        key = (int(timeline.spans.name[row]), *(int(codes[i]) for codes, _ in columns))
        if key not in known:
            values = [found[codes[i]] if codes[i] >= 0 else None for codes, found in columns]
            known[key] = _sign(timeline.name(row), *values)
        signs.append(known[key])
    return signs


def _sign(name: str, dims: Any, types: Any, args: Any) -> str:
    shapes = [d if _is_shape(d) else [] for d in dims] if isinstance(dims, list) else []
    if not shapes:
        return ""
    if name == "aten::conv2d":
        return "image" if len(shapes[0]) == 4 and shapes[0][1] in (1, 3) else ""
    if name == "aten::embedding":
        return "one" if len(shapes) > 1 and len(shapes[1]) == 2 and shapes[1][1] == 1 else ""
    if name in _CAUSAL_ARGUMENT:
        return _dense_sign(name, shapes, args)
    return _cached_sign(shapes, types if isinstance(types, list) else [])


def _is_shape(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(n, int) for n in value)


def _dense_sign(name: str, shapes: list[list[int]], args: Any) -> str:
    """Attention over (batch, heads, tokens, size): one query against more keys is decoding."""
    if len(shapes) < 2 or len(shapes[0]) != 4 or len(shapes[1]) != 4:
        return ""
    queries, keys = shapes[0][2], shapes[1][2]
    if queries == 1:
        return "one" if keys > 1 else ""
    at = _CAUSAL_ARGUMENT[name]
    causal = isinstance(args, list) and len(args) > at and str(args[at]) == "True"
    return "many causal" if causal else "many"


def _cached_sign(shapes: list[list[int]], types: list[Any]) -> str:
    """Attention over a cache: queries (tokens, heads, size) and offsets of length sequences + 1."""
    if len(shapes[0]) != 3:
        return ""
    lengths = [s[0] for s, t in zip(shapes[1:], types[1:], strict=False) if len(s) == 1 and t in _INDEX_TYPES]
    if len(lengths) == 0:
        return ""
    # both offsets (sequences + 1) and lengths (sequences) may stand among the arguments
    sequences = min(lengths) if len(set(lengths)) > 1 else lengths[0] - 1
    if sequences < 1:
        return ""
    return "one" if shapes[0][0] == sequences else "many causal" if shapes[0][0] > sequences else ""


def _conclude(signs: list[str], causal: bool) -> Evidence | None:
    counts = Counter(s for s in signs if s)
    if not counts:
        return None
    if counts["image"]:
        attends = counts["many"] > 0
        return Evidence("vision encoder", "medium") if attends and not causal else Evidence("other", "medium")
    if counts["one"] and counts["one"] >= counts["many"] + counts["many causal"]:
        return Evidence("decode", "medium")
    if counts["many causal"] or (counts["many"] and causal):
        return Evidence("prefill", "medium")
    return None


def _kernel_hints(timeline: Timeline, start_ns: Int64, end_ns: Int64) -> list[Evidence | None]:
    """What the names of attention kernels launched in each range tell; both kinds together are mixed."""
    hints = []
    for test in (_decodes, _prefills):
        rows = timeline.named_rows(test, Kind.KERNEL)
        launch = timeline.spans.launch_row
        linked = launch[rows][launch[rows] >= 0]
        # what was launched before the recording belongs to none of its steps
        by = linked if len(linked) or (launch >= 0).any() else rows
        at = np.sort(timeline.spans.start_ns[by])
        hints.append(np.searchsorted(at, end_ns) - np.searchsorted(at, start_ns))
    out: list[Evidence | None] = []
    for decode, prefill in zip(hints[0].tolist(), hints[1].tolist(), strict=True):
        phase = "mixed" if decode and prefill else "decode" if decode else "prefill" if prefill else ""
        out.append(Evidence(phase, "low") if phase else None)
    return out
