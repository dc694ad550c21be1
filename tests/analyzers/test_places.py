"""Where a finding points: the user's own frame, else a frame with a file and a line, else what there is."""

from __future__ import annotations

import numpy as np
import pytest

from stallscope.analyzers import places as places_module
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


@pytest.mark.parametrize("small", [64, 1])
def test_below_is_all_that_stands_under_a_row(small: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places_module, "_SMALL_TREE", small)
    drawn = "host op:a@0..50 op:b@0..40 op:c@10..20 op:d@60..90 rt:cudaMalloc@65..70 op:e@95..99\nhost2 op:f@61..62"
    # many rows beside them: what is below few rows of many is found another way
    more = " ".join(f"op:x@{i}..{i + 1}" for i in range(200, 400, 2))
    session = timeline(f"{drawn}\nhost3 {more}")
    found, places = session.timeline, Run(session).places
    named = found.match_names(lambda n: n in ("b", "d"))
    assert sorted(found.name(int(r)) for r in places.below(named)) == ["b", "c", "cudaMalloc", "d"]
    assert (
        places.below(named).tolist()
        == np.flatnonzero(places.nearest(np.arange(len(found)), named) >= 0).tolist()
    )


@pytest.mark.parametrize("levels", [0, 1, 256])
@pytest.mark.parametrize("count", [4, 120])
def test_the_nearest_by_a_test_of_rows_is_that_of_a_mask(
    levels: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places_module, "_FEW_LEVELS", levels)
    more = " ".join(f"op:x@{i}..{i + 1}" for i in range(200, 400, 2))
    session = timeline(f"host op:a@0..90 op:b@0..80 op:c@10..70 op:d@20..60 op:e@30..50 {more}")
    found, places = session.timeline, Run(session).places
    rows = np.concatenate([[-1], np.arange(len(found))])[:count]

    def test(
        rows: np.ndarray[tuple[int, ...], np.dtype[np.signedinteger]],
    ) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
        return found.match_names_at(lambda n: n in ("b", "e"), rows)

    expected = places.nearest(rows, test(np.arange(len(found))))
    assert places.nearest_where(rows, test).tolist() == expected.tolist()


def test_a_profiler_step_is_no_operator_and_no_place() -> None:
    found = timeline("host op:ProfilerStep#3@0..100 op:aten::mm@10..20 rt:cudaLaunchKernel@12..14")
    rows = {found.timeline.name(r): r for r in range(len(found.timeline))}
    places = Run(found).places

    inner = places.place(rows["aten::mm"])
    assert (inner.operator, inner.annotation) == ("aten::mm", "ProfilerStep#3")
    whole = places.place(rows["ProfilerStep#3"])
    assert whole.operator == "" and whole.text == "code that left no record"
