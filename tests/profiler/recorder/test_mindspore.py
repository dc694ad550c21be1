"""Recording MindSpore: with a stand-in for what it does inside, and for real where an interpreter that has it is named.

STALLSCOPE_MINDSPORE_PYTHON names that interpreter; it needs the packages stallscope needs, not stallscope itself.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from stallscope.profiler.readers import load
from stallscope.profiler.recorder.backends.mindspore import MindSporeBackend
from stallscope.profiler.recorder.settings import Settings
from stallscope.profiler.session import Session
from support.recording import environment

ROOT = Path(__file__).resolve().parents[3]
VARIABLE = "STALLSCOPE_MINDSPORE_PYTHON"


# -- a stand-in ----------------------------------------------------------------------------------------


class Single:
    """As MindSpore makes one object of a class for the whole process."""

    def __init__(self, cls: type) -> None:
        self._cls = cls
        self._instance: dict[type, Any] = {}

    def __call__(self) -> Any:
        return self._instance.setdefault(self._cls, self._cls())


class World:
    """A mindspore module whose profiler writes files and logs, and whose settings are one object."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.target = "Ascend"
        self.made: list[dict[str, Any]] = []
        self.context = Single(SimpleNamespace)
        self.logger = logging.getLogger("stand-in")
        world = self

        class Profile:
            def __init__(self, **values: Any) -> None:
                world.made.append(values)
                world.context().output = values["on_trace_ready"]
                world.logger.warning("Profiler won't be using warmup, this can skew profiler results")

            def start(self) -> None:
                world.logger.error("Call to start failed. Exception: /usr/lib/driver.so says no")

            def stop(self) -> None:
                recording = Path(world.context().output) / "h_1_2026_ascend_ms"
                (recording / "FRAMEWORK").mkdir(parents=True)
                (recording / "FRAMEWORK" / "data").write_bytes(b"x" * 3000)

        module: Any = ModuleType("mindspore")
        module.get_context = lambda name: self.target
        module.profiler = SimpleNamespace(
            profile=Profile,
            tensorboard_trace_handler=lambda dir_name, analyse_flag: dir_name,
            ProfilerActivity=SimpleNamespace(CPU="CPU", NPU="NPU"),
            _ExperimentalConfig=lambda **values: values,
            ProfilerLevel=SimpleNamespace(Level1="L1"),
            AicoreMetrics=SimpleNamespace(PipeUtilization="PU"),
        )
        log: Any = ModuleType("mindspore.log")
        log._get_logger = lambda: self.logger
        module.log = log
        holder: Any = ModuleType("mindspore.profiler.common.profiler_context")
        holder.ProfilerContext = self.context
        for each in (module, log, holder):
            monkeypatch.setitem(sys.modules, each.__name__, each)
        self.module = module


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def window(world: World, place: Path, **settings: Any) -> MindSporeBackend:
    """A backend that has recorded one window."""
    backend = MindSporeBackend(Settings(**settings), world.module)
    backend.ready = True
    backend.place = str(place)
    backend.start()
    backend.stop()
    assert backend.collect(str(place)) == str(place)
    return backend


def test_settings_arrive_by_the_names_mindspore_has(world: World, tmp_path: Path) -> None:
    backend = window(world, tmp_path / "w1")

    assert backend.suits()
    assert world.made[0]["activities"] == ["CPU", "NPU"]
    assert world.made[0]["experimental_config"] == {
        "profiler_level": "L1",
        "aic_metrics": "PU",
        "mstx": False,
    }
    assert not world.made[0]["start_profile"]
    assert backend.activities() == ["cpu", "npu"]
    assert backend.estimate_events(0) == 10


@pytest.mark.parametrize("target", ["CPU", "GPU"])
def test_without_an_npu_only_operators_are_asked_for(target: str, world: World, tmp_path: Path) -> None:
    world.target = target
    backend = window(world, tmp_path / "w1")

    assert world.made[0]["activities"] == ["CPU"]
    assert "npu-no-device-data" not in {code for code, _, _ in backend.notes}


def test_what_the_script_had_chosen_is_there_again_after_a_window(world: World, tmp_path: Path) -> None:
    world.context().output = "theirs"
    held = world.context()
    window(world, tmp_path / "w1")

    assert world.context() is held
    assert vars(held) == {"output": "theirs"}


def test_objects_that_did_not_exist_do_not_exist_after_a_window(world: World, tmp_path: Path) -> None:
    """They remember the device of the moment they are made."""
    window(world, tmp_path / "w1")
    assert world.context._instance == {}


def test_what_is_only_logged_is_heard_and_kept_from_the_script(
    world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = window(world, tmp_path / "w1")
    texts = {code: text for code, _, text in backend.notes}

    assert "driver.so says no" in texts["npu-profiler-said"]
    assert "/usr/lib" not in texts["npu-profiler-said"]
    assert "warmup" not in texts["npu-profiler-said"]
    assert {"npu-window-cut", "npu-no-device-data"} <= texts.keys()
    assert caplog.records == []
    world.logger.warning("of the script")
    assert [r.getMessage() for r in caplog.records] == ["of the script"]


def test_nothing_opens_before_the_script_has_chosen_its_device(world: World) -> None:
    backend = MindSporeBackend(Settings(), world.module)
    assert backend.busy()
    backend.ready = True
    assert not backend.busy()


# -- the real one --------------------------------------------------------------------------------------

INFER = """
import sys, time
import numpy as np
import mindspore as ms
from mindspore import Tensor, nn

ms.set_device("CPU")

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.fc = nn.Dense(16, 16)
        self.act = nn.ReLU()

    def construct(self, x):
        return self.act(self.fc(x))

net, x = Net(), Tensor(np.ones((4, 16), np.float32))
for _ in range(6):
    y = net(x)
    y.asnumpy()
print("done", y.shape)
sys.exit(3)
"""
OWN = """
import numpy as np
import mindspore as ms
from mindspore import Tensor, nn
from mindspore.profiler import ProfilerActivity

ms.set_device("CPU")
net, x = nn.Dense(16, 16), Tensor(np.ones((4, 16), np.float32))

def steps(n):
    for _ in range(n):
        net(x).asnumpy()

steps(4)
theirs = ms.profiler.profile(activities=[ProfilerActivity.CPU], start_profile=False,
                             on_trace_ready=ms.profiler.tensorboard_trace_handler("mine", analyse_flag=False))
steps(2)
theirs.start()
steps(3)
theirs.stop()
steps(4)
print("end")
"""


@pytest.fixture(scope="module")
def python() -> str:
    found = os.environ.get(VARIABLE, "")
    if not found:
        pytest.skip(f"{VARIABLE} does not name an interpreter that has MindSpore")
    return found


def recorded(python: str, script: str, folder: Path) -> tuple[subprocess.CompletedProcess[str], Session]:
    (folder / "infer.py").write_text(script)
    command = [python, "-m", "stallscope", "run", "-q", "--no-report", "-o", "run.stallscope", "infer.py"]
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment(PYTHONPATH=str(ROOT / "src")),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return done, load(folder / "run.stallscope")


def names(session: Session) -> list[str]:
    return [session.timeline.name(r) for r in range(len(session.timeline.spans))]


def test_a_real_run_on_a_cpu_is_recorded_with_every_operator(python: str, tmp_path: Path) -> None:
    done, session = recorded(python, INFER, tmp_path)

    assert (done.returncode, done.stdout, done.stderr) == (3, "done (4, 16)\n", "")
    assert names(session).count("MatMul") == names(session).count("ReLU") == 6
    assert session.facts["framework"]["device_target"] == "CPU"
    assert sum(w["steps"] for w in session.facts["windows"]) == 6
    start, spans = session.timeline, session.timeline.spans
    steps = [int(spans.start_ns[r]) for r in range(len(spans)) if start.arguments(r).get("module") == "Net"]
    first = [int(spans.start_ns[r]) for r in range(len(spans)) if start.name(r) == "MatMul"]
    assert all(a < b for a, b in zip(steps, first, strict=True))


def test_a_profiler_of_the_script_wins_and_writes_where_it_wanted_to(python: str, tmp_path: Path) -> None:
    done, session = recorded(python, OWN, tmp_path)

    assert (done.returncode, done.stdout) == (0, "end\n")
    found = list((tmp_path / "mine").glob("*_ascend_ms/FRAMEWORK/cpu_op_execute_timestamp_0.txt"))
    assert len(found) == 1
    assert not (tmp_path / "data").exists()
    lines = found[0].read_text().splitlines()
    assert len(next(line for line in lines if line.startswith("MatMul")).split(";")[2].split()) == 3
    assert names(session).count("MatMul") == 10
    assert {"scripts-own-npu-profile"} <= {n.code for n in session.notes}
    assert not {n.code for n in session.notes if n.severity == "data_loss"}
