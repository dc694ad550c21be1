"""Two drawn runs of one program, compared by numbers worked out by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from stallscope.analyzers import analyze
from stallscope.analyzers.diff import Difference, compare
from stallscope.cli.main import cli
from stallscope.profiler.errors import OptionError
from support.lanes import timeline


def run(gap: int, kernel: str = "gemm", steps: int = 4) -> str:
    """Steps of `gap` us of dispatch, then a kernel of 100 us launched 4 us later."""
    lines, t = [], 0
    for n in range(1, steps + 1):
        launch = t + gap
        lines.append(f'host mark:"decode[step={n}]"@{t}..{launch + 104} op:aten::mm@{t}..{launch + 3}')
        lines.append(f"host rt:cudaLaunchKernel@{launch}..{launch + 2}#{n}")
        lines.append(f"stream7 kernel:{kernel}@{launch + 4}..{launch + 104}#{n}")
        t = launch + 104
    return "\n".join(lines)


def difference(before: str, after: str) -> Difference:
    return compare(analyze(timeline(before)), analyze(timeline(after)))


def test_the_cause_that_went_is_named() -> None:
    found = difference(run(300), run(100))
    rows = {row.name: row for row in (*found.rows, *found.groups)}

    # three gaps of 304 us against 104 us, over four steps
    assert found.unit == "step"
    assert rows["idle"].before_ns == 3 * 304_000 // 4
    assert rows["idle"].after_ns == 3 * 104_000 // 4
    assert rows["kernels and copies"].delta_ns == 0
    assert found.groups[0].name == "launch overhead"
    assert "150 us" in found.text and "faster a step" in found.text and "less launch overhead" in found.text


def test_the_same_run_twice_has_not_changed() -> None:
    found = difference(run(100), run(100))

    assert found.text.startswith("No change: ")
    assert found.text.endswith(" a step in both")


def test_the_other_way_round_is_slower() -> None:
    found = difference(run(100), run(300))

    assert "slower a step" in found.text
    assert "more launch overhead" in found.text


def test_the_same_run_twice_has_no_difference() -> None:
    found = difference(run(100), run(100))

    assert all(row.delta_ns == 0 for row in (*found.rows, *found.groups))
    assert found.gone == found.new == ()


def test_different_programs_are_not_compared_in_words() -> None:
    found = difference(run(100), run(100, kernel="conv"))

    assert not found.comparable
    assert "different programs" in found.text


def test_groups_hold_every_idle_class_once() -> None:
    found = difference(run(300), run(100))

    idle = sum(row.before_ns for row in found.groups if row.name != "kernels and copies")
    assert abs(idle - found.rows[2].before_ns) < len(found.groups)


def test_without_a_device_there_is_nothing_to_compare() -> None:
    with pytest.raises(OptionError, match="no device activity"):
        difference(run(100), "host op:aten::mm@0..10")


def test_the_command_prints_text_and_json(tmp_path: Path) -> None:
    for name, gap in (("a", 300), ("b", 100)):
        timeline(run(gap)).save(tmp_path / f"{name}.stallscope")
    paths = [str(tmp_path / f"{name}.stallscope") for name in "ab"]

    text = CliRunner().invoke(cli, ["diff", *paths])
    data = CliRunner().invoke(cli, ["diff", *paths, "--json"])

    assert text.exit_code == data.exit_code == 0
    assert "less launch overhead" in text.output
    assert json.loads(data.output)["comparable"] is True
