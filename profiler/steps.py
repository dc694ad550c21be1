"""Steps and phases: which part of the timeline is one decode step, and how sure that is.

Sources, best first: ProfilerStep, engine annotations (vLLM, SGLang), Hugging Face and user marks. A step is
a range on a host thread; device work belongs to the step in which it was launched.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from stallscope.profiler.kinds import DEVICE_WORK, Kind
from stallscope.profiler.timeline import Timeline

Confidence = Literal["high", "medium", "low"]


@dataclass(frozen=True)
class Step:
    """One step or phase range on the host clock; `index` counts within its phase, -1 unknown."""

    name: str
    phase: str
    start_ns: int
    dur_ns: int
    index: int = -1
    confidence: Confidence = "medium"
    track: int = -1
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.dur_ns


_VLLM = re.compile(r"^execute_context_(\d+)\((\d+)\)_generation_(\d+)\((\d+)\)")
_SGLANG = re.compile(r"^step\[(EXTEND|PREFILL|DECODE|MIXED|IDLE)(?P<rest>[^\]]*)\]")
_PROFILER_STEP = re.compile(r"^ProfilerStep#(\d+)")
_PHASE_WORD = re.compile(r"\b(prefill|decode|mixed|sampling|sample|encode[r]?|denois\w*)\b", re.IGNORECASE)
_PHASE_OF_WORD = {
    "prefill": "prefill",
    "decode": "decode",
    "mixed": "mixed",
    "sampling": "sampling",
    "sample": "sampling",
}


def classify(name: str) -> tuple[str, Confidence, dict[str, Any]] | None:
    """Phase, confidence and sizes told by an annotation's name, or None if it names no step."""
    if vllm := _VLLM.match(name):
        contexts, context_tokens, generations, generation_tokens = (int(x) for x in vllm.groups())
        phase = "mixed" if contexts and generations else "prefill" if contexts else "decode"
        sizes = {
            "batch": contexts + generations,
            "context_tokens": context_tokens,
            "decode_tokens": generation_tokens,
        }
        return phase, "high", sizes
    if sglang := _SGLANG.match(name):
        phase = {"EXTEND": "prefill", "PREFILL": "prefill"}.get(sglang[1], sglang[1].lower())
        return phase, "high", {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", sglang["rest"])}
    if step := _PROFILER_STEP.match(name):
        return "other", "high", {"profiler_step": int(step[1])}
    word = _PHASE_WORD.match(name) or _PHASE_WORD.match(name.rpartition(".")[2])
    if word and len(name) <= 120:
        found = word[1].lower()
        phase = _PHASE_OF_WORD.get(found, "vision encoder" if found.startswith("encode") else "denoising")
        return phase, "high", {k: int(v) for k, v in re.findall(r"(\w+)=(\d+)", name)}
    return None


def find_steps(timeline: Timeline) -> list[Step]:
    """The steps of a timeline, by start. Empty where nothing in it says so."""
    rows = timeline.rows(Kind.ANNOTATION, Kind.OPERATOR)
    names = timeline.spans.name[rows]
    told = {int(c): classify(timeline.strings[int(c)]) for c in np.unique(names)}
    is_step = (
        np.array([told[int(c)] is not None for c in names], dtype=bool) if len(names) else np.zeros(0, bool)
    )
    chosen = _outermost(timeline, rows[is_step])
    chosen = chosen[np.argsort(timeline.spans.start_ns[chosen], kind="stable")]
    counts: dict[str, int] = {}
    steps = []
    for row in chosen.tolist():
        phase, confidence, sizes = told[int(timeline.spans.name[row])] or ("other", "low", {})
        index = counts.get(phase, 0)
        counts[phase] = index + 1
        steps.append(
            Step(
                name=timeline.name(row),
                phase=phase,
                start_ns=int(timeline.spans.start_ns[row]),
                dur_ns=int(timeline.spans.dur_ns[row]),
                index=index,
                confidence=confidence,
                track=int(timeline.spans.track[row]),
                facts=sizes,
            )
        )
    return steps


def _outermost(timeline: Timeline, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Engine marks win over ProfilerStep around them; of nested marks with a phase the outer one stays."""
    if len(rows) == 0:
        return rows
    plain = np.array([_PROFILER_STEP.match(timeline.name(int(r))) is None for r in rows])
    if plain.any():
        rows = rows[plain]
    chosen = set(rows.tolist())
    return np.array(
        [r for r in rows.tolist() if not any(a in chosen for a in timeline.ancestors(r))], dtype=np.intp
    )


def step_of_device_rows(timeline: Timeline, steps: list[Step]) -> npt.NDArray[np.int32]:
    """For each row the index into `steps` of the step that launched it, or -1. Shape (n,).

    Host rows belong to the step they start in; device work to the step in which its launch started.
    """
    spans = timeline.spans
    when = spans.start_ns.copy()
    work = np.isin(spans.kind, [int(k) for k in DEVICE_WORK])
    linked = work & (spans.launch_row >= 0)
    when[linked] = spans.start_ns[spans.launch_row[linked]]
    out = np.full(len(spans), -1, dtype=np.int32)
    if not steps:
        return out
    starts = np.array([s.start_ns for s in steps], dtype=np.int64)
    ends = np.array([s.end_ns for s in steps], dtype=np.int64)
    at = np.searchsorted(starts, when, side="right") - 1
    inside = (at >= 0) & (when < ends[np.maximum(at, 0)]) & (~work | linked)
    out[inside] = at[inside]
    return out
