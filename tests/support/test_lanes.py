"""A drawing becomes the spans, links, arguments and tracks it shows."""

from __future__ import annotations

import pytest

from stallscope.profiler.kinds import Kind
from support.lanes import timeline


def test_a_drawing_becomes_spans_links_and_arguments() -> None:
    session = timeline(
        """
        # one step
        host          python:infer.py(3):_step@0..100 op:aten::mm@10..40 rt:cudaLaunchKernel@20..25.5#1
        host          sync:cudaStreamSynchronize@50..90 rt:"cuda_x@y"@92..93^8
        gpu1.stream7  kernel:gemm@30..80#1{Input Dims=[[1,2],[2,3]];bytes=4096;note=as is}
        host          counter:power@5=80 point:here@6
        """,
        devices={"1": {"name": "chip"}},
    )
    line = session.timeline
    rows = {line.name(row): row for row in range(len(line))}
    assert set(rows) == {
        "infer.py(3): step",
        "aten::mm",
        "cudaLaunchKernel",
        "cudaStreamSynchronize",
        "cuda_x@y",
        "gemm",
    }
    gemm = rows["gemm"]
    assert (line.spans.start_ns[gemm], line.spans.dur_ns[gemm]) == (30_000, 50_000)
    assert line.spans.launch_row[gemm] == rows["cudaLaunchKernel"]
    assert line.spans.parent[rows["cudaLaunchKernel"]] == rows["aten::mm"]
    assert line.spans.dur_ns[rows["cudaLaunchKernel"]] == 5_500
    assert line.spans.kind[rows["cudaStreamSynchronize"]] == Kind.RUNTIME
    assert line.external_id(rows["cuda_x@y"]) == 8
    assert line.arguments(gemm) == {"Input Dims": [[1, 2], [2, 3]], "bytes": 4096, "note": "as is"}
    assert (line.track_of(gemm).device, line.track_of(gemm).stream) == (1, 7)
    assert line.counters.value.tolist() == [80.0] and line.marks.time_ns.tolist() == [6_000]
    assert session.facts["devices"]["1"]["name"] == "chip"


@pytest.mark.parametrize("drawing", ["cpu op:a@0..1", "host op:a", "host thing:a@0..1", "host op:a@5..1"])
def test_a_drawing_that_cannot_be_read_says_so(drawing: str) -> None:
    with pytest.raises(ValueError, match=r"no such|cannot read|ends before"):
        timeline(drawing)
