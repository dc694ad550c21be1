"""Where a finding points: the user's own frame, else a frame with a file and a line, else what there is."""

from __future__ import annotations

import pytest

from stallscope.analyzers.run import Run
from support.lanes import timeline

BUILTIN = "<built-in method linear of type object at 0x7f>"
MODULE = "nn.Module: Linear_0"
LIBRARY = "torch/nn/functional.py(12): linear"
USER = "serve/model.py(7): forward"


def frames(*names: str) -> str:
    """A drawing of frames inside of each other, and an operator that launches a kernel in the innermost."""
    spans = [f'python:"{name}"@{i}..{200 - i}' for i, name in enumerate(names)]
    return f"host {' '.join(spans)} op:aten::mm@60..80 rt:cudaLaunchKernel@62..66#1\nstream7 kernel:gemm@70..90#1"


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((USER, LIBRARY, BUILTIN), USER),
        ((LIBRARY, MODULE, BUILTIN), LIBRARY),
        ((MODULE, BUILTIN), BUILTIN),
        ((), ""),
    ],
)
def test_the_frame_of_an_operator_and_of_its_kernel(names: tuple[str, ...], expected: str) -> None:
    run = Run(timeline(frames(*names)))
    rows = {run.timeline.name(r): r for r in range(len(run.timeline))}
    assert run.places.place(rows["aten::mm"]).python == expected
    assert run.python_of(rows["gemm"]) == expected


def test_a_profiler_step_is_no_operator_and_no_place() -> None:
    found = timeline("host op:ProfilerStep#3@0..100 op:aten::mm@10..20 rt:cudaLaunchKernel@12..14")
    rows = {found.timeline.name(r): r for r in range(len(found.timeline))}
    places = Run(found).places

    inner = places.place(rows["aten::mm"])
    assert (inner.operator, inner.annotation) == ("aten::mm", "ProfilerStep#3")
    whole = places.place(rows["ProfilerStep#3"])
    assert whole.operator == "" and whole.text == "code that left no record"
