"""The command's own environment."""

from __future__ import annotations

import os

import click
import pytest

from stallscope.cli.main import COMMANDS, cli


@pytest.mark.parametrize(
    ("command", "told"), [("analyze", "1"), ("diff", "1"), ("run", None), ("doctor", None)]
)
def test_only_commands_that_start_no_program_do_without_threads(
    command: str, told: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "x")  # so that it is as before at the end
    monkeypatch.delenv("OPENBLAS_NUM_THREADS")

    assert cli.get_command(click.Context(cli), command) is not None

    assert os.environ.get("OPENBLAS_NUM_THREADS") == told


def test_what_the_user_says_of_threads_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")

    for command in COMMANDS:
        cli.get_command(click.Context(cli), command)

    assert os.environ["OPENBLAS_NUM_THREADS"] == "3"
