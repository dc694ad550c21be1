"""A part holds what is inside, what explains it, and no more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from stallscope.cli.main import cli
from stallscope.profiler.errors import OptionError
from stallscope.profiler.part import FAR, parse_time, parse_window, part
from stallscope.profiler.readers import load
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import Timeline
from support.lanes import timeline as drawn
from support.parts import differences

US = 1000


def names(t: Timeline) -> set[str]:
    return {t.name(row) for row in range(len(t))}


def row(t: Timeline, name: str) -> int:
    return next(r for r in range(len(t)) if t.name(r) == name)


@pytest.mark.parametrize(
    ("text", "ends"),
    [
        ("10s..12s", (10 * 10**9, 12 * 10**9)),
        ("1.5ms..2", (1_500_000, 2 * 10**9)),
        ("..3us", (-FAR, 3000)),
        ("7ns..", (7, FAR)),
        ("..", (-FAR, FAR)),
    ],
)
def test_windows_as_they_are_written(text: str, ends: tuple[int, int]) -> None:
    assert parse_window(text) == ends


@pytest.mark.parametrize("text", ["10s", "a..b", "2s..1s", "1s..1s", "-1s..2s", "1 parsec..2s"])
def test_windows_that_are_none(text: str) -> None:
    with pytest.raises(OptionError):
        parse_window(text)


def test_a_bare_number_is_seconds() -> None:
    assert parse_time("2") == 2 * 10**9


def test_what_a_window_keeps(small_session: Session) -> None:
    cut = part(small_session, window="100us..125us")
    t = cut.timeline

    assert names(t) == {
        "decode", "aten::mm", "cudaLaunchKernel", "gemm", "loader.py(3): read", "ncclDevKernel_AllReduce_Sum"
    }  # fmt: skip
    note = cut.notes.get("part-window")
    assert note is not None and "100us..125us" in note.text
    assert len(t.marks) == 0 and len(t.counters) == 0
    assert t.origin_ns == small_session.timeline.origin_ns


def test_work_is_explained_by_its_launch_from_before(small_session: Session) -> None:
    whole = small_session.timeline
    t = part(small_session, window="86us..90us").timeline
    copy = row(t, "Memcpy DtoH")
    launch = int(t.spans.launch_row[copy])

    assert t.name(launch) == "cudaMemcpyAsync"
    assert t.spans.start_ns[launch] == whole.spans.start_ns[row(whole, "cudaMemcpyAsync")]
    assert t.spans.self_ns[launch] == 0 and t.spans.parent[launch] == -1


def test_self_time_is_time_inside_the_window() -> None:
    session = drawn("host  python:main@0..100 op:a@10..40 op:b@50..90 rt:cudaFree@60..70")
    t = part(session, window="35us..65us").timeline
    self_us = {t.name(r): int(t.spans.self_ns[r]) // US for r in range(len(t))}

    assert self_us == {"main": 10, "a": 5, "b": 10, "cudaFree": 5}
    assert [t.name(r) for r in t.ancestors(row(t, "cudaFree"))] == ["b", "main"]
    assert int(t.spans.dur_ns[row(t, "main")]) == 100 * US


def test_only_the_arguments_of_kept_rows_stay(small_session: Session) -> None:
    whole = small_session.timeline
    t = part(small_session, window="100us..125us").timeline

    assert 0 < len(t.args) < len(whole.args)
    for r in range(len(t)):
        same = np.flatnonzero(
            (whole.spans.start_ns == t.spans.start_ns[r]) & (whole.spans.dur_ns == t.spans.dur_ns[r])
        )
        assert t.arguments(r) in [whole.arguments(int(s)) for s in same]


def test_the_whole_window_is_the_whole(small_session: Session) -> None:
    once = part(small_session, window="..").timeline
    assert len(once) == len(small_session.timeline)
    assert differences(once, part(small_session, window="..").timeline) == []
    assert sorted(once.spans.self_ns) == sorted(small_session.timeline.spans.self_ns)


def test_a_part_of_a_part(small_session: Session) -> None:
    direct = part(small_session, window="60us..90us")
    nested = part(part(small_session, window="40us..95us"), window="60us..90us")
    assert differences(direct.timeline, nested.timeline) == []


def test_steps_and_a_window_keep_what_both_hold(small_session: Session) -> None:
    step = part(small_session, steps="1..1").timeline
    both = part(small_session, steps="1..1", window="..110us").timeline

    assert names(both) < names(step) or len(both) < len(step)
    assert both.spans.start_ns.max() < 110 * US
    assert {"gemm"} <= names(step)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": "5s..6s"}, "nothing was recorded in that part of the trace, which ends after 0.00015 s"),
        ({"steps": "7..9"}, "no steps 7..9 in this recording. It has 2"),
        ({"steps": "a..b"}, "whole numbers"),
        ({"steps": "3"}, "takes A..B"),
        ({"rank": 4}, "no rank 4 in this recording. Its ranks: unknown"),
    ],
)
def test_ranges_that_hold_nothing(small_session: Session, options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said.replace(".", r"\.")):
        part(small_session, **options)  # type: ignore[arg-type]


def test_a_part_of_a_saved_session(small_session: Session, tmp_path: Path) -> None:
    again = load(small_session.save(tmp_path / "s.stallscope"))
    cut = part(again, window="60us..90us")
    saved = load(cut.save(tmp_path / "part.stallscope"))

    assert differences(part(small_session, window="60us..90us").timeline, cut.timeline) == []
    assert differences(cut.timeline, saved.timeline) == []
    assert "part-window" in saved.notes


def test_on_the_command_line_the_report_says_that_it_is_a_part(
    small_session: Session, tmp_path: Path
) -> None:
    saved = small_session.save(tmp_path / "s.stallscope")
    good = CliRunner().invoke(cli, ["analyze", str(saved), "--window", "60us..90us", "--json", "-"])
    bad = CliRunner().invoke(cli, ["analyze", str(saved), "--window", "90us..60us"])

    assert good.exit_code == 0 and "only the window 60us..90us was analysed" in good.stdout
    assert bad.exit_code == 2 and bad.stderr.count("\n") == 1
