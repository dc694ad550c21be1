"""What `doctor` says about Ascend NPUs, on machines that are pretended: versions, CANN folders, variables."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.profiler import doctor
from stallscope.profiler.doctor import Check
from stallscope.profiler.recorder.backends import cann
from support import ascend_raw, npu


class Machine:
    """A machine with torch_npu, nothing else of Ascend; each test adds to it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = monkeypatch
        self.versions = {"torch-npu": "2.14.0"}
        monkeypatch.setattr(doctor, "version", lambda name: self.versions.get(name, ""))
        monkeypatch.setattr(cann, "_USUAL_HOMES", ())
        monkeypatch.setattr(cann, "device_nodes", list)
        monkeypatch.setenv("PYTHONPATH", str(npu.FAKE))
        monkeypatch.setenv("PATH", "/usr/bin:/bin")
        for name in ("LD_LIBRARY_PATH", "LD_PRELOAD", *cann.HOME_VARIABLES, "PROFILER_SAMPLECONFIG",
                     "MSMONITOR_USE_DAEMON", "ASCEND_LAUNCH_BLOCKING"):  # fmt: skip
            monkeypatch.delenv(name, raising=False)

    def install_cann(self) -> Path:
        root = self.folder / "cann"
        ascend_raw.install_msprof(root)
        (root / "version.info").write_text("Version=8.5.0\n")
        self.patch.setenv("ASCEND_HOME_PATH", str(root))
        return root

    def install_mspti(self) -> None:
        (self.folder / "lib").mkdir()
        (self.folder / "lib" / "libmspti.so").write_text("")
        self.patch.setenv("LD_LIBRARY_PATH", str(self.folder / "lib"))

    def check(self, name: str) -> Check:
        return next(c for c in doctor._npu() if c.name == name)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_nothing_of_ascend_is_no_problem(machine: Machine) -> None:
    machine.versions.clear()
    assert [c.status for c in doctor._npu()] == ["missing"]


def test_cann_that_was_not_sourced_is_told_with_what_to_do(machine: Machine) -> None:
    assert machine.check("CANN").status == "problem"
    assert "set_env.sh" in machine.check("CANN").next_step
    assert machine.check("msprof").text == "not found: a recording will hold no kernels"


def test_msprof_is_found_in_canns_folder_too(machine: Machine) -> None:
    machine.install_cann()

    assert (machine.check("CANN").status, machine.check("CANN").text) == ("ok", "8.5.0")
    assert "not on PATH" in machine.check("msprof").text
    assert machine.check("msprof").status == "ok"


def test_libmspti_is_the_way_without_msprof(machine: Machine) -> None:
    machine.install_mspti()
    assert "through libmspti" in machine.check("msprof").text
    assert machine.check("libmspti").status == "ok"


@pytest.mark.parametrize(
    ("mode", "words", "cure"),
    [("libhccl", "OSError: libhccl.so", "set_env.sh"), ("conflict", "Two accelerators", "CPU build")],
)
def test_a_torch_npu_that_cannot_be_loaded_is_told_with_its_reason(
    mode: str, words: str, cure: str, machine: Machine
) -> None:
    machine.patch.setenv("FAKE_TORCH_NPU", mode)
    found = machine.check("torch_npu")

    assert found.status == "problem"
    assert words in found.text
    assert cure in found.next_step


@pytest.mark.parametrize(
    ("name", "value"),
    [("PROFILER_SAMPLECONFIG", "{}"), ("MSMONITOR_USE_DAEMON", "1"), ("ASCEND_LAUNCH_BLOCKING", "1")],
)
def test_variables_that_stand_in_the_way_are_named(name: str, value: str, machine: Machine) -> None:
    assert name not in {c.name for c in doctor._npu()}
    machine.patch.setenv(name, value)
    assert machine.check(name).status == "problem"
    assert machine.check(name).next_step == f"unset {name}"
