"""`analyze --window` says the same whether the file is cut while it is read or loaded whole first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stallscope.cli.main import cli
from stallscope.profiler.readers import partial, trace_window

SAMPLES = Path(__file__).resolve().parents[2] / "sample_traces" / "synthetic"


def report(path: Path, *options: str) -> dict[str, Any]:
    result = CliRunner().invoke(cli, ["analyze", str(path), *options, "--json", "-"])
    assert result.exit_code == 0, result.output
    out: dict[str, Any] = json.loads(result.stdout)
    return out


@pytest.mark.parametrize("name", ["gpu_item_sync.json", "gpu_python_gap.json", "gpu_tiny_kernels.json.gz"])
def test_two_ways_to_a_window_give_one_report(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    window = ("--window", "2ms..4ms")
    whole = report(SAMPLES / name, *window)
    monkeypatch.setattr(partial, "SMALL", 0)
    monkeypatch.setattr(trace_window, "BEFORE_NS", 100_000)
    cut = report(SAMPLES / name, *window)

    codes = {note["code"] for note in cut.pop("notes")}
    assert {"outside-window", "part-window"} <= codes
    assert "part-window" in {note["code"] for note in whole.pop("notes")}
    assert whole == cut


@pytest.mark.parametrize("name", ["gpu_item_sync.json", "gpu_python_gap.json", "gpu_tiny_kernels.json.gz"])
def test_two_ways_to_some_steps_give_one_report(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    steps = ("--steps", "1..1")
    whole = report(SAMPLES / name, *steps)
    monkeypatch.setattr(partial, "SMALL", 0)
    cut = report(SAMPLES / name, *steps)

    codes = {note["code"] for note in cut.pop("notes")}
    assert {"outside-window", "part-steps"} <= codes and "part-read-whole" not in codes
    whole.pop("notes")
    assert whole == cut


def test_a_folder_of_ranks_and_one_of_them(tmp_path: Path) -> None:
    for rank in range(3):
        trace = json.loads((SAMPLES / "gpu_item_sync.json").read_text())
        head = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 3}}
        (tmp_path / f"r{rank}.json").write_text(json.dumps(head | trace))

    one = CliRunner().invoke(cli, ["analyze", str(tmp_path), "--rank", "1"])
    none = CliRunner().invoke(cli, ["analyze", str(tmp_path), "--rank", "9"])

    assert one.exit_code == 0 and "r1.json" in one.stdout and "r0.json" not in one.stdout
    assert none.exit_code == 2
    assert none.stderr == "stallscope: there is no rank 9 in this folder. Its ranks: 0, 1, 2.\n"
