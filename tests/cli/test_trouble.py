"""Whatever goes wrong costs one clear line and a documented exit code; what was there before stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from stallscope.cli.main import cli
from stallscope.exporters.base import writing
from stallscope.profiler.errors import InputError
from support.events import CHAIN

GOOD = json.dumps({"traceEvents": CHAIN})


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.json").write_text(GOOD)
    return tmp_path


def invoke(*args: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, args)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("command", ["analyze", "report", "export"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("missing.json", "no such file"),
        ("good.json/inside", "no such file"),
        ("x" * 300, "name too long"),
        ("pipe", "a pipe or a device"),
        ("/dev/zero", "a pipe or a device"),
        ("nothing", "empty file"),
        ("folder", "a folder"),
    ],
)
def test_what_cannot_be_read_costs_one_line(command: str, name: str, told: str, here: Path) -> None:
    os.mkfifo(here / "pipe")
    (here / "nothing").touch()
    (here / "folder").mkdir()
    status, out, err = invoke(command, name)

    assert (status, out) == (2, "")
    assert told in err
    assert len(err.splitlines()) == 1


def test_names_that_are_no_utf8_are_names(here: Path) -> None:
    name = os.fsdecode(b"bad\xff\xfename.json")
    (here / name).write_text(GOOD)

    assert invoke("analyze", name, "--html", "--json")[0] == 0
    assert (here / os.fsdecode(b"bad\xff\xfename.html")).is_file()


@pytest.mark.parametrize("option", ["--html", "--json", "--trace", "--save"])
@pytest.mark.parametrize(
    ("place", "told"), [("/proc/none/x", "does not exist"), ("/proc/x.gz", "cannot be written")]
)
def test_what_cannot_be_written_costs_one_line(option: str, place: str, told: str) -> None:
    status, _, err = invoke("analyze", "-q", "good.json", f"{option}={place}")

    assert status == 2
    assert told in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize("option", ["--html", "--json", "--trace"])
def test_a_full_disk_leaves_the_older_file(option: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "out").write_text("precious")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stallscope.exporters.html.export", full)
    for module in ("html", "json_report", "chrome_trace"):
        monkeypatch.setattr(f"stallscope.exporters.{module}.writing", full, raising=False)
    status, _, err = invoke("analyze", "-q", "good.json", f"{option}=out", "--force")

    assert status == 2
    assert "No space left" in err
    assert (here / "out").read_text() == "precious"


def test_a_file_appears_when_it_is_whole(here: Path) -> None:
    target = here / "out.txt"
    target.write_text("old")
    with pytest.raises(InputError, match="No space left"), writing(target) as file:
        file.write(b"half")
        raise OSError(28, "No space left on device")
    assert target.read_text() == "old"
    with writing(target) as file:
        file.write(b"new")
        assert target.read_text() == "old"
    assert target.read_text() == "new"
    assert {p.name for p in here.iterdir()} == {"good.json", "out.txt"}


def test_a_link_to_a_file_stays_a_link(here: Path) -> None:
    (here / "real.html").write_text("old")
    (here / "link.html").symlink_to("real.html")
    with writing(here / "link.html") as file:
        file.write(b"new")

    assert (here / "link.html").is_symlink()
    assert (here / "real.html").read_text() == "new"


@pytest.mark.parametrize(
    ("names", "status"),
    [(["good.json", "good.json"], 0), (["good.json", "missing"], 2), (["missing", "gone"], 2), (["mix"], 0)],
)
def test_several_traces_are_each_on_their_own(names: list[str], status: int, here: Path) -> None:
    (here / "mix").mkdir()
    for name, text in (("a", ""), ("b", GOOD), ("c", "{}")):
        (here / "mix" / f"{name}.json").write_text(text)
    got, out, err = invoke("analyze", *names)

    assert got == status
    assert out.count("stallscope 0") == sum(name == "good.json" for name in names) + ("mix" in names)
    assert err.count("\n") == {"mix": 2}.get(names[0], names.count("missing") + 2 * names.count("gone"))


def interruptible() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_ctrl_c_ends_an_analysis_with_one_line(here: Path) -> None:
    code = (
        "import time, stallscope.profiler.readers as r\n"
        "def load(path):\n    print('up', flush=True)\n    time.sleep(60)\n"
        "r.load = load\nfrom stallscope.cli.main import main\nmain()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code, "analyze", "good.json"], stdout=subprocess.PIPE,
                             stderr=subprocess.PIPE, text=True, preexec_fn=interruptible)  # fmt: skip # noqa: PLW1509
    assert child.stdout is not None
    assert child.stdout.readline() == "up\n"
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    _, err = child.communicate(timeout=30)

    assert child.returncode == 130
    assert err == "stallscope: interrupted\n"


@pytest.mark.parametrize(("extra", "status"), [("", 0), ("import sys; sys.setprofile(lambda *a: None)\n", 0)])
def test_the_command_ends_with_its_output_written_and_its_hooks_run(
    extra: str, status: int, here: Path
) -> None:
    code = f"import atexit\natexit.register(print, 'last words')\n{extra}from stallscope.cli.main import main\nmain()\n"
    done = subprocess.run([sys.executable, "-c", code, "analyze", "good.json"], check=False, capture_output=True,
                          text=True)  # fmt: skip

    assert (done.returncode, done.stderr) == (status, "")
    assert done.stdout.startswith("stallscope 0") and done.stdout.endswith("last words\n")


@pytest.mark.parametrize("command", [["analyze", "good.json"], ["report", "good.json"], ["explain", "HB101"]])
def test_a_reader_that_went_away_is_no_finding(command: list[str], here: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        code = "from stallscope.cli.main import main\nmain()\n"
        done = subprocess.run([sys.executable, "-c", code, *command], check=False, stdout=write,
                              stderr=subprocess.PIPE, text=True)  # fmt: skip
    finally:
        os.close(write)

    assert (done.returncode, done.stderr) == (141, "")
