"""Ranges that two clocks saw, and the line between the clocks that follows from them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.profiler.anchors import Tie, anchor_rows, bend, tie
from stallscope.profiler.recorder.backends.ascend import ANCHOR
from stallscope.profiler.timeline import Int64
from support.lanes import timeline

MS, S = 1_000_000, 1_000_000_000
START, END = 1000 * S, 1010 * S


def anchors(offset: int, drift: int, widths: list[int]) -> tuple[Int64, Int64, Int64]:
    """Stamps of a clock that is `offset` behind and loses `drift` until END, and our readings around each."""
    half = len(widths) // 2
    ours = [START + 100_000 * i for i in range(half)] + [END + 100_000 * i for i in range(len(widths) - half)]
    stamps = [t - offset - drift * (t - START) // (END - START) for t in ours]
    before = [t - w // 3 for t, w in zip(ours, widths, strict=True)]
    after = [t + w - w // 3 for t, w in zip(ours, widths, strict=True)]
    return np.array(stamps, np.int64), np.array(before, np.int64), np.array(after, np.int64)


@given(
    st.integers(-5 * S, 5 * S),
    st.integers(-2 * MS, 2 * MS),
    st.lists(st.integers(1_000, 60_000), min_size=6, max_size=16),
)
def test_a_stamp_is_brought_back_to_within_the_told_error(offset: int, drift: int, widths: list[int]) -> None:
    found = tie(*anchors(offset, drift, widths))
    assert found is not None

    ours = np.linspace(START, END, 11).astype(np.int64)
    stamps = ours - offset - drift * (ours - START) // (END - START)
    back = stamps + found.offset_ns + found.correction(stamps)

    assert np.abs(back - ours).max() <= 3 * found.error_ns + 1_000
    assert found.error_ns <= max(widths)


def test_a_clock_that_does_not_drift_is_not_bent() -> None:
    found = tie(*anchors(700_000, 0, [9_000] * 16))

    assert found is not None
    assert found.drift_ns == 0
    assert found.offset_ns == pytest.approx(700_000, abs=4_500)


def test_drift_is_found_where_it_is_more_than_the_readings_leave_open() -> None:
    found = tie(*anchors(0, 500_000, [9_000] * 16))

    assert found is not None
    assert found.drift_ns == pytest.approx(500_000, abs=10_000)


def test_ranges_that_cannot_be_ours_give_nothing() -> None:
    stamps, before, after = anchors(0, 0, [9_000] * 8)
    stamps[4:] += 5 * S

    assert tie(stamps, before, after) is None
    assert tie(stamps[:1], before[:1], after[:1]) is None
    assert tie(stamps, before[:4], after[:4]) is None


@given(st.lists(st.integers(0, 10 * S), min_size=2, max_size=40), st.integers(-5 * MS, 5 * MS))
def test_bending_keeps_the_order_of_times(times: list[int], drift: int) -> None:
    sorted_times = np.array(sorted(times), np.int64)
    bent = sorted_times + Tie(0, 10 * S, 0, drift, 0).correction(sorted_times)
    assert (np.diff(bent) >= 0).all()


def test_a_timeline_is_bent_as_a_whole_and_stays_nested() -> None:
    drawn = timeline("host op:outer@0..1000 op:inner@500..1000\nstream7 kernel:k@900..1000")
    before = drawn.timeline.spans.end_ns.copy()
    scale = int(before.max())
    bend(drawn.timeline, Tie(drawn.timeline.origin_ns, drawn.timeline.origin_ns + scale, 0, -scale // 10, 0))
    spans = drawn.timeline.spans

    assert spans.end_ns.tolist() == [int(e + -(scale // 10) * e // scale) for e in before.tolist()]
    assert spans.end_ns[0] == spans.end_ns[1]


def test_anchors_are_found_in_order_of_time() -> None:
    drawn = timeline(f'host op:"{ANCHOR}"@50..51 op:work@20..30 op:"{ANCHOR}"@10..11')
    spans = drawn.timeline.spans
    found = spans.start_ns[anchor_rows(drawn.timeline)]
    assert len(found) == 2
    assert found[0] < found[1]
    assert len(anchor_rows(timeline("host op:work@0..1").timeline)) == 0
