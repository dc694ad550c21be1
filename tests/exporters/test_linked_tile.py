"""The tile that tells how much work is linked to its launch says n/a where the source tells no links at all."""

from __future__ import annotations

import pytest

from stallscope.analyzers import analyze
from stallscope.exporters.html_sections import key_numbers
from support.lanes import timeline


@pytest.mark.parametrize(
    ("drawing", "expected", "unexpected"),
    [
        ("stream7 kernel:a@0..20 kernel:b@22..40", "not told by this source", "0 of 2"),
        ("host rt:cudaLaunchKernel@0..4#1\nstream7 kernel:a@10..20#1 kernel:b@22..40#9", "1 of 2 to a launch", "n/a"),
        ("host op:aten::mm@0..4\nstream7 kernel:a@10..20#5 kernel:b@22..40#6", "0 of 2 to a launch", "not told"),
    ],
)  # fmt: skip
def test_linked(drawing: str, expected: str, unexpected: str) -> None:
    text = str(key_numbers(analyze(timeline(drawing))))
    assert expected in text and unexpected not in text
