"""The small parts of NPU recording: which way is taken, what is kept, what is heard, what is missing."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from stallscope.profiler.errors import OptionError
from stallscope.profiler.recorder import launch, offline
from stallscope.profiler.recorder.backends import ascend, cann, npu
from stallscope.profiler.recorder.backends.npu import HOST, MSPTI, TORCH_NPU, NpuBackend
from stallscope.profiler.recorder.settings import Settings


class Host:
    """Stands for the Kineto backend."""

    any_thread = True

    def __init__(self) -> None:
        self.devices: tuple[str, ...] = ("cuda", "xpu")
        self.calls: list[str] = []

    def suits(self) -> bool:
        return True

    def busy(self) -> bool:
        return False

    def start(self) -> None:
        self.calls.append(f"start {' '.join(self.devices)}")


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A process with a torch_npu in use, an msprof and a libmspti; tests take things away."""
    state = SimpleNamespace(initialised=True, msprof="/x/msprof", mspti="/x/libmspti.so")
    names = {name: object() for name in npu._NAMES}
    module: Any = ModuleType("torch_npu")
    module.profiler = SimpleNamespace(**names)
    module.npu = SimpleNamespace(is_initialized=lambda: state.initialised)
    monkeypatch.setitem(sys.modules, "torch_npu", module)
    monkeypatch.setattr(npu, "find_msprof", lambda: state.msprof)
    monkeypatch.setattr(npu, "find_mspti", lambda: state.mspti)
    monkeypatch.setattr(NpuBackend, "_has_private_use", lambda self: True)
    for name in ascend.BLOCKING_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    state.module = module
    return state


def backend(**settings: Any) -> tuple[NpuBackend, Host]:
    host = Host()
    made = NpuBackend(Settings(**settings), SimpleNamespace(), host)  # type: ignore[arg-type]
    made._running = False
    return made, host


def test_its_own_profiler_is_taken_where_it_can_do_something(world: SimpleNamespace) -> None:
    made, _ = backend()
    assert made.suits()
    assert (made.route(), made.any_thread) == (TORCH_NPU, False)


def test_before_the_device_is_in_use_only_the_host_is_recorded(world: SimpleNamespace) -> None:
    world.initialised = False
    made, host = backend()
    assert (made.route(), made.any_thread) == (HOST, True)

    made.start()
    assert not made.wants_device()
    world.initialised = True
    assert made.wants_device()
    assert host.calls == ["start cuda xpu"]
    assert made.notes == []


@pytest.mark.parametrize("obstacle", ["PROFILER_SAMPLECONFIG", "PROFILING_MODE", "no msprof"])
def test_libmspti_is_taken_where_only_that_works(
    obstacle: str, world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    if obstacle == "no msprof":
        world.msprof = ""
    else:
        monkeypatch.setenv(obstacle, "1")
    made, host = backend()

    assert (made.route(), made.any_thread) == (MSPTI, True)
    made.start()
    assert host.calls == ["start npu"]
    assert [code for code, _, _ in made.notes] == ["npu-by-mspti"]
    assert ("msprof" if obstacle == "no msprof" else obstacle) in made.notes[0][2]


def test_without_either_way_the_loss_is_said(world: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROFILING_MODE", "dynamic")
    world.mspti = ""
    made, host = backend()

    made.start()
    assert host.calls == ["start cuda xpu"]
    assert [(code, severity) for code, severity, _ in made.notes] == [("npu-not-recorded", "data_loss")]


def test_a_recording_without_msprof_is_made_all_the_same(world: SimpleNamespace) -> None:
    """It can be analysed where there is one."""
    world.msprof = world.mspti = ""
    assert backend()[0].route() == TORCH_NPU


def test_another_device_asked_for_leaves_the_npu_alone(world: SimpleNamespace) -> None:
    made, _ = backend(device="cpu")
    assert made.route() == HOST
    made.start()
    assert made.notes == []


def test_a_torch_npu_without_a_known_profiler_does_not_suit(world: SimpleNamespace) -> None:
    del world.module.profiler._ExperimentalConfig
    assert not backend()[0].suits()


# -- settings ------------------------------------------------------------------------------------------


def test_level_and_metrics_travel_to_the_child() -> None:
    settings = Settings(npu_level="Level2", npu_metrics="MemoryAccess", npu_mstx=True)
    assert Settings.decode(settings.encode()).values() == settings.values()


@pytest.mark.parametrize(("name", "value"), [("npu_level", "Level9"), ("npu_metrics", "Everything")])
def test_unknown_levels_and_metrics_are_refused(name: str, value: str) -> None:
    with pytest.raises(OptionError, match=value):
        Settings(**{name: value})


def test_switches_are_kept_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASK_QUEUE_ENABLE", "2")
    monkeypatch.setenv("PYTORCH_NPU_ALLOC_CONF", "expandable_segments:True,max_split_size_mb:256")
    monkeypatch.setenv("CPU_AFFINITY_CONF", "/home/somebody/file")
    monkeypatch.setenv("HCCL_WHITELIST_FILE", "secret")
    found = ascend.environment()

    assert found["TASK_QUEUE_ENABLE"] == "2"
    assert found["PYTORCH_NPU_ALLOC_CONF"].startswith("expandable_segments")
    assert not {"CPU_AFFINITY_CONF", "HCCL_WHITELIST_FILE"} & found.keys()


@pytest.mark.parametrize(
    ("printed", "heard"),
    [
        (
            "[2026-01-02 03:04:05] [WARNING] [7] profiler.py: Invalid path /a/b_c/d.",
            "WARNING: Invalid path d.",
        ),
        ("|[2026-01-02-03:04:05] [ERROR] [7] profiler.py: x", "ERROR: x"),
        ("two\nlines  of '~/secret/name.so'", "two lines of 'name.so'"),
        ("a/b ratio 1/2", "a/b ratio 1/2"),
    ],
)
def test_messages_lose_their_stamp_and_their_paths(printed: str, heard: str) -> None:
    assert ascend.plain_message(printed) == heard


# -- CANN ----------------------------------------------------------------------------------------------


def test_cann_is_found_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cann, "_USUAL_HOMES", ())
    for name in ("LD_PRELOAD", "LD_LIBRARY_PATH", *cann.HOME_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", "")
    assert (cann.homes(), cann.find_msprof(), cann.find_mspti(), cann.version()) == ([], "", "", "")

    for name in ("tools/profiler/bin/msprof", "tools/mspti/lib64/libmspti.so"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("")
    (tmp_path / "tools/profiler/bin/msprof").chmod(0o755)
    (tmp_path / "x86_64-linux").mkdir()
    (tmp_path / "x86_64-linux" / "ascend_toolkit_install.info").write_text("package_name=x\nversion=8.5.0\n")
    monkeypatch.setenv("ASCEND_TOOLKIT_HOME", str(tmp_path))

    assert cann.find_msprof().endswith("bin/msprof")
    assert cann.find_mspti().endswith("libmspti.so")
    assert cann.version() == "8.5.0"


def test_what_will_be_missing_is_known_before_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    monkeypatch.setattr(cann, "find_msprof", lambda: "")
    monkeypatch.setattr(cann, "find_mspti", lambda: "")
    assert "msprof" in launch.npu_warnings("auto")[0]
    assert launch.npu_warnings("cuda") == []
    monkeypatch.setenv("PROFILING_MODE", "dynamic")
    assert "no kernels will be recorded" in launch.npu_warnings("npu")[0]


# -- analysis after the run ----------------------------------------------------------------------------


def window(raw: Path, number: int, *, provisional: bool = False, analysed: bool = False) -> Path:
    folder = raw / f"p1-2-w{number}"
    recording = folder / "h_1_20260101000000000_ascend_pt"
    (recording / "FRAMEWORK").mkdir(parents=True)
    (recording / "FRAMEWORK" / "torch.op_range").write_bytes(b"x")
    if analysed:
        (recording / "ASCEND_PROFILER_OUTPUT").mkdir()
        (recording / "ASCEND_PROFILER_OUTPUT" / "analyse.done").write_text("")
    with (raw / "p1-2.jsonl").open("a") as lines:
        lines.write(json.dumps({"ev": "window", "n": number, "file": folder.name, "provisional": provisional},
                               separators=(",", ":")) + "\n")  # fmt: skip
    return folder


def test_windows_that_count_wait_for_their_analysis(tmp_path: Path) -> None:
    window(tmp_path, 1, provisional=True)
    assert [p.name for p in offline.waiting(tmp_path)] == ["p1-2-w1"]
    window(tmp_path, 2)
    window(tmp_path, 3, analysed=True)
    (tmp_path / "elsewhere_ascend_pt").mkdir()

    assert [p.name for p in offline.waiting(tmp_path)] == ["p1-2-w2"]


def test_nothing_to_analyse_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(offline, "_run", lambda *_: pytest.fail("started"))
    assert offline.analyse(tmp_path).unfinished == []
    assert not (tmp_path / "analysis.json").exists()


def test_an_analysis_without_the_framework_is_a_note_and_keeps_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window(tmp_path, 1)
    monkeypatch.setenv("PYTHONPATH", "")
    outcome = offline.analyse(tmp_path)

    assert outcome.unfinished == ["p1-2-w1/h_1_20260101000000000_ascend_pt"]
    assert "torch_npu" in outcome.notes[0][2]
    document = json.loads((tmp_path / "analysis.json").read_text())
    assert document["notes"][0][0] == "npu-not-analysed"


def test_an_analysis_that_hangs_is_ended_with_its_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    window(tmp_path, 1)
    monkeypatch.setattr(offline, "LIMIT_S", 1.0)
    monkeypatch.setitem(offline._CODE, "torch_npu", "import time, os\nos.fork()\ntime.sleep(600)")
    assert "longer than 1 s" in offline.analyse(tmp_path).notes[0][2]


def test_faults_of_a_window_are_told_by_its_files(tmp_path: Path) -> None:
    folder = window(tmp_path, 1)
    codes = [code for code, _, _ in ascend.faults_of_window(str(folder), wants_device=True)]
    assert codes == ["npu-window-cut", "npu-no-device-data"]

    recording = Path(ascend.recordings(str(folder))[0])
    (recording / "profiler_info_0.json").write_text("{}")
    (recording / "PROF_000001_20260101000000000_ABC").mkdir()
    assert ascend.faults_of_window(str(folder), wants_device=True) == []
    assert [f[0] for f in ascend.faults_of_window(str(tmp_path / "none"), True)] == ["npu-window-empty"]
