"""The models on public traces: another tool's numbers, and how much device time is known."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from stallscope.analyzers.models.attribution import attribute
from stallscope.analyzers.models.chips import chip_of_device
from stallscope.analyzers.models.cost import estimate
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.roofline import roofline
from stallscope.profiler.readers import load

pytestmark = pytest.mark.shared

COMPARED = (
    "qwen15-hf-h100",
    "bert-h100",
    "flux-sage-mi300x",
    "vllm-piecewise-mi300x",
    "sglang-decode-mi300x",
)
PRODUCTS = ("aten::mm", "aten::addmm", "aten::bmm", "vllm::rocm_unquantized_gemm", "aiter::gemm_a16w16")


def reference_rows(shared: Path, trace: str) -> list[dict[str, Any]]:
    text = (shared / "reference" / f"{trace}.json").read_text(encoding="utf-8")
    rows: list[dict[str, Any]] = json.loads(text)["tracelens"]["roofline"]["top15_modelled_ops"]
    return rows


def plain(value: Any) -> Any:
    return [plain(item) for item in value] if isinstance(value, tuple) else value


@pytest.mark.parametrize("trace", COMPARED)
def test_products_agree_with_another_tool(shared: Path, trace: str) -> None:
    compared = 0
    for row in reference_rows(shared, trace):
        if row["op"] not in PRODUCTS:
            continue
        shapes, types = plain(ast.literal_eval(row["input_dims"])), plain(ast.literal_eval(row["input_type"]))
        cost = estimate(row["op"], shapes, types, [""] * len(shapes))
        assert cost is not None, row["op"]
        assert cost.flops == round(row["gflop_per_call"] * 1e9), (row["op"], shapes)
        assert cost.bytes == row["bytes_per_call"], (row["op"], shapes)
        compared += 1
    assert compared >= 2


# trace, least share of device time with a cost; graph replays and work launched before recording have none
COVERED = [
    ("qwen15-hf-h100", 0.69),
    ("bert-h100", 0.99),
    ("bert-mi300x", 0.99),
    ("vit-nsfw-h100", 0.99),
    ("vllm-piecewise-mi300x", 0.03),
    ("sglang-decode-mi300x", 0.009),
    ("flux-sage-mi300x", 0.15),
    ("triton-compile-mi300x", 0.99),
]


@pytest.mark.parametrize(("trace", "least"), COVERED)
def test_device_time_is_modelled_or_named(shared: Path, trace: str, least: float) -> None:
    (path,) = (shared / "traces" / trace).iterdir()
    session = load(path)
    timeline = session.timeline
    joined = attribute(timeline)
    times = joined.family_ns(timeline)
    total, unnamed = sum(times.values()), times.get(Family.OTHER, 0)
    assert unnamed / total <= 0.10
    assert joined.modelled_ns() / total >= least


@pytest.mark.parametrize("trace", ["qwen15-hf-h100", "bert-h100", "vit-nsfw-h100", "flux-sage-mi300x"])
def test_no_kernel_beats_its_roof(shared: Path, trace: str) -> None:
    """Inference traces on chips whose figures are stated: a share over 105 % would be our fault."""
    (path,) = (shared / "traces" / trace).iterdir()
    session = load(path)
    (chip,) = {
        c.name: c for c in map(chip_of_device, session.facts["devices"].values()) if c is not None
    }.values()
    for work in attribute(session.timeline).work:
        if work.cost is not None:
            kernel = session.timeline.name(work.longest)
            point = roofline(work.cost, work.duration_ns, chip, kernel=kernel)
            assert point.verdict != "model-or-clock-fault", (session.timeline.name(work.op_row), point.reason)
