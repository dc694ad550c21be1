"""Recording a script that uses (a fake) torch_npu: end to end, and where it goes wrong."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stallscope.profiler.kinds import Kind
from stallscope.profiler.session import Session
from support import npu, wheels
from support.npu import INFER, KERNELS_A_STEP, STEPS
from support.recording import Ended, environment, plain, recorded, session_of

pytestmark = pytest.mark.torch
pytest.importorskip("torch", reason="torch is not installed")


def run(
    folder: Path, env: dict[str, str], script: str = INFER, options: Sequence[str] = ()
) -> tuple[Ended, Ended]:
    """The script recorded and plain, in the same surroundings."""
    (folder / "infer.py").write_text(script)
    ours = recorded(["infer.py"], folder, options=options, **env)
    return ours, plain(["infer.py"], folder, **env)


def record(folder: Path, env: dict[str, str], script: str = INFER, options: Sequence[str] = ()) -> Ended:
    """The script recorded."""
    (folder / "infer.py").write_text(script)
    return recorded(["infer.py"], folder, options=options, **env)


DONE = Ended(3, "done (4, 64)\n", "")


def codes(session: Session) -> list[str]:
    return [note.code for note in session.notes]


def said(session: Session, code: str) -> str:
    return next(note.text for note in session.notes if note.code == code)


def kernels(session: Session) -> list[int]:
    return [int(r) for r in session.timeline.rows(Kind.KERNEL)]


@pytest.fixture(scope="module", params=["fake", "wheel"])
def whole(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Ended, Ended, Path]:
    """A run whose windows were analysed by the fake, or by the parser of the real wheel; its clock is off."""
    folder = tmp_path_factory.mktemp(f"npu-{request.param}")
    env: dict[str, Any] = {
        "FAKE_NPU_CLOCK": "700000,40",
        "TASK_QUEUE_ENABLE": "2",
        "ASCEND_LAUNCH_BLOCKING": "0",
    }
    if request.param == "wheel":
        sources = wheels.torch_npu()
        if sources is None:
            pytest.skip(f"the torch_npu wheel is not here; `{wheels.COMMAND}` downloads it (43 MB)")
        env["FAKE_NPU_ANALYSE"] = str(sources)
    ours, alone = run(folder, npu.environment(folder, **env))
    return ours, alone, folder


def test_the_script_cannot_tell(whole: tuple[Ended, Ended, Path]) -> None:
    ours, alone, _ = whole
    assert ours == alone
    assert (ours.status, ours.out) == (3, "done (4, 64)\n")


def test_every_kernel_of_every_step_is_there_with_its_launch(whole: tuple[Ended, Ended, Path]) -> None:
    session = session_of(whole[2])
    timeline = session.timeline
    rows = kernels(session)

    assert len(rows) == STEPS * KERNELS_A_STEP
    assert Counter(timeline.name(r).split("_")[0] for r in rows) == {
        "aclnnAddmm": 2 * STEPS,
        "aclnnRelu": STEPS,
    }
    launches = timeline.spans.launch_row[rows]
    assert (launches >= 0).all()
    assert (timeline.spans.start_ns[launches] <= timeline.spans.start_ns[rows]).all()


def test_operators_lie_inside_the_steps_that_called_them(whole: tuple[Ended, Ended, Path]) -> None:
    """The profiler's clock is 0.7 ms off and drifts; the steps are stamped by ours and last less than 1 ms."""
    session = session_of(whole[2])
    timeline, spans = session.timeline, session.timeline.spans
    steps = [
        (int(spans.start_ns[r]), int(spans.end_ns[r]))
        for r in timeline.rows(Kind.ANNOTATION)
        if timeline.arguments(int(r)).get("module") == "Sequential"
    ]
    linear = [r for r in range(len(spans)) if timeline.name(r) == "aten::linear"]

    assert (len(steps), len(linear)) == (STEPS, 2 * STEPS)
    for row in linear:
        start, end = int(spans.start_ns[row]), int(spans.end_ns[row])
        assert any(low <= start and end <= high for low, high in steps)
    assert not any(
        "stallscope" in timeline.name(r) for r in range(len(spans)) if spans.kind[r] == Kind.OPERATOR
    )
    assert session.facts["clock"]["uncertainty_ns"] < 500_000


def test_settings_switches_and_the_chip_are_facts(whole: tuple[Ended, Ended, Path]) -> None:
    session = session_of(whole[2])
    rank = session.facts["ascend"]["ranks"][0]

    assert (rank["level"], rank["aic_metrics"]) == ("Level1", "PipeUtilization")
    assert rank["environment"]["TASK_QUEUE_ENABLE"] == "2"
    assert session.facts["devices"]["0"]["name"] == "Ascend910B3"
    assert session.facts["devices"]["0"]["aic_cores"] == 20
    assert session.facts["torch_npu"] == "2.14.0"
    assert {w["activities"][-1] for w in session.facts["windows"]} == {"npu"}
    assert not (whole[2] / "run.stallscope" / "raw").exists()
    assert not {c for c in codes(session) if c.startswith("npu")}


# -- what can be missing -------------------------------------------------------------------------------


def test_without_msprof_there_are_no_kernels_and_that_is_said(tmp_path: Path) -> None:
    ours = record(tmp_path, npu.environment(tmp_path, msprof=False))
    session = session_of(tmp_path)

    assert ours == DONE
    assert kernels(session) == []
    assert "no msprof command" in said(session, "npu-no-kernels")
    assert list((tmp_path / "run.stallscope" / "raw").glob("*-w*/*_ascend_pt/PROF_*"))
    assert any(session.timeline.name(r) == "aten::linear" for r in range(len(session.timeline.spans)))


def test_a_launcher_without_msprof_says_so_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "infer.py").write_text("print('ran')\n")
    import subprocess
    import sys

    env = environment(**npu.environment(tmp_path, msprof=False))
    command = [sys.executable, "-m", "stallscope", "run", "--no-report", "-o", "run.stallscope", "infer.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=120, check=False
    )

    assert done.stdout == "ran\n"
    assert "no msprof command was found" in done.stderr


@pytest.mark.parametrize(
    ("failure", "code", "words"),
    [
        ("device", "npu-no-device-data", "no PROF_ folder"),
        ("info", "npu-window-cut", "no profiler_info.json"),
        ("start", "npu-window-empty", "wrote nothing"),
    ],
)
def test_errors_that_are_only_printed_are_found_in_the_files(
    failure: str, code: str, words: str, tmp_path: Path
) -> None:
    ours = record(tmp_path, npu.environment(tmp_path, FAKE_NPU_FAILS=failure))
    session = session_of(tmp_path)

    assert ours == DONE
    assert words in said(session, code)
    assert kernels(session) == []
    if failure == "start":
        assert "aclprof init failed, says no" not in said(session, "npu-profiler-said")
        assert "/" not in said(session, "npu-profiler-said")


def test_an_analysis_that_loses_a_task_of_its_own_is_started_again(tmp_path: Path) -> None:
    """torch_npu 2.14's parser does, about once in twenty times, and calls itself done."""
    lost = tmp_path / "lost"
    ours = record(tmp_path, npu.environment(tmp_path, FAKE_NPU_LOSES_TASK=str(lost)))

    assert ours == DONE
    assert lost.is_file()
    assert len(kernels(session_of(tmp_path))) == STEPS * KERNELS_A_STEP


@pytest.mark.parametrize("mode", ["libhccl", "conflict"])
def test_a_torch_npu_that_cannot_be_loaded_fails_as_without_us(mode: str, tmp_path: Path) -> None:
    ours, alone = run(tmp_path, npu.environment(tmp_path, FAKE_TORCH_NPU=mode))

    assert ours.status == alone.status == 1
    assert ours.err == alone.err
    assert {"libhccl": "libhccl.so", "conflict": "ERR00007"}[mode] in said(
        session_of(tmp_path), "import-failed"
    )


def test_a_script_that_catches_the_failed_import_goes_on(tmp_path: Path) -> None:
    script = "try:\n    import torch_npu\nexcept OSError as error:\n    print(error)\nimport torch\nprint(torch.ones(2).sum())\n"
    ours, alone = run(tmp_path, npu.environment(tmp_path, FAKE_TORCH_NPU="libhccl"), script)

    assert ours == alone
    assert "libhccl.so" in ours.out
    assert any(
        session_of(tmp_path).timeline.name(int(r)) == "aten::sum"
        for r in session_of(tmp_path).timeline.rows(Kind.OPERATOR)
    )


def test_under_msprof_nothing_is_recorded_and_that_is_said(tmp_path: Path) -> None:
    ours = record(tmp_path, npu.environment(tmp_path, PROFILER_SAMPLECONFIG="1"))
    session = session_of(tmp_path)

    assert ours == DONE
    assert "PROFILER_SAMPLECONFIG set" in said(session, "npu-not-recorded")
    assert any(session.timeline.name(r) == "aten::linear" for r in range(len(session.timeline.spans)))


# -- the script's own profiler -------------------------------------------------------------------------

OWN_PROFILER = """
import time
import torch
import torch_npu
from torch_npu.profiler import profile, tensorboard_trace_handler, _ExperimentalConfig

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
torch_npu.npu.set_device(0)
x = torch.ones(4, 64)
theirs = profile(on_trace_ready=tensorboard_trace_handler("mine", analyse_flag=False), record_shapes=True,
                 experimental_config=_ExperimentalConfig(profiler_level="Level1"), schedule=lambda step: 2)

def steps(n):
    with torch.no_grad():
        for _ in range(n):
            model(x)
            time.sleep(0.002)

steps(4)
theirs.start()
steps(3)
theirs.stop()
steps(4)
print("end")
"""


def test_the_scripts_own_profiler_wins_and_writes_where_it_wanted_to(tmp_path: Path) -> None:
    (tmp_path / "infer.py").write_text(OWN_PROFILER)
    ours = recorded(["infer.py"], tmp_path, **npu.environment(tmp_path))
    session = session_of(tmp_path)

    assert (ours.status, ours.out, ours.err) == (0, "end\n", "")
    theirs = list((tmp_path / "mine").glob("*_ascend_pt"))
    assert len(theirs) == 1
    assert json.loads((theirs[0] / "profiler_info.json").read_text())["torch_npu_version"] == "2.14.0"
    assert theirs[0].name in said(session, "scripts-own-npu-profile")
    assert len(kernels(session)) == 8
    assert [w["closed_by"] for w in session.facts["windows"]].count("the script's own profiler") == 1


# -- ways of running -----------------------------------------------------------------------------------

RAW_OPERATORS = """
import torch
import torch_npu

torch.set_num_threads(1)
a = torch.ones(32, 32)
torch_npu.npu.set_device(0)
for _ in range(5):
    torch.mm(a, a)
print("end")
"""


def test_a_script_without_modules_is_recorded_whole_when_asked(tmp_path: Path) -> None:
    ours = record(tmp_path, npu.environment(tmp_path), RAW_OPERATORS, ["--window", "all"])

    assert ours == Ended(0, "end\n", "")
    assert len(kernels(session_of(tmp_path))) == 5


def test_and_is_told_how_where_it_did_not(tmp_path: Path) -> None:
    record(tmp_path, npu.environment(tmp_path), RAW_OPERATORS)
    assert "--window all" in said(session_of(tmp_path), "npu-no-window")


def test_a_device_that_is_not_used_is_not_started(tmp_path: Path) -> None:
    script = INFER.replace("torch_npu.npu.set_device(0)", "")
    ours = record(tmp_path, npu.environment(tmp_path), script)
    session = session_of(tmp_path)

    assert ours == DONE
    assert kernels(session) == []
    assert {tuple(w["activities"]) for w in session.facts["windows"]} == {("cpu",)}
    assert not {c for c in codes(session) if c.startswith("npu")}


def test_part_of_a_script_is_recorded_and_analysed(tmp_path: Path) -> None:
    script = """
import stallscope
import torch
import torch_npu

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
torch_npu.npu.set_device(0)
model(torch.ones(4, 64))
with stallscope.record(npu_level="Level2") as recording:
    for _ in range(3):
        model(torch.ones(4, 64))
session = recording.session
print(len(session.timeline.rows(4)), session.facts["ascend"]["ranks"][0]["level"])
""".replace("rows(4)", f"rows({int(Kind.KERNEL)})")
    (tmp_path / "infer.py").write_text(script)
    done = plain(["infer.py"], tmp_path, **npu.environment(tmp_path))

    assert (done.status, done.out) == (0, "3 Level2\n"), done.err


def test_marks_are_shown_on_the_device_when_asked(tmp_path: Path) -> None:
    log = tmp_path / "mstx.txt"
    script = (
        INFER.replace("    for _ in", "    for _ in")
        .replace(
            "        x = model(x)\n", "        with stallscope.mark('decode'):\n            x = model(x)\n"
        )
        .replace("import torch_npu\n", "import torch_npu\nimport stallscope\n")
    )
    ours = record(tmp_path, npu.environment(tmp_path, FAKE_MSTX=str(log)), script, ["--npu-mstx"])
    lines = log.read_text().splitlines()

    assert ours.status == 3
    begun = [line for line in lines if line.startswith("start") and "decode" in line]
    assert len(begun) >= STEPS
    assert all("stallscope decode on stream 2" in line for line in begun)
    assert sum(line.startswith("end") for line in lines) >= STEPS


def test_a_killed_script_keeps_the_windows_that_were_closed(tmp_path: Path) -> None:
    script = INFER.replace(
        'print("done"', 'import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\nprint("done"'
    )
    ours, alone = run(tmp_path, npu.environment(tmp_path), script)
    session = session_of(tmp_path)

    assert ours.status == alone.status == -9
    assert len(kernels(session)) == KERNELS_A_STEP  # the first window, of one step
    assert "window-lost" in codes(session)


def test_a_fork_after_the_device_came_into_use_is_no_trouble(tmp_path: Path) -> None:
    script = INFER.replace('print("done"', (
        "import os\npid = os.fork()\nif pid == 0:\n    os._exit(5)\n"
        'print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)\nprint("done"'))  # fmt: skip
    ours, alone = run(tmp_path, npu.environment(tmp_path), script)

    assert ours == alone
    assert len(kernels(session_of(tmp_path))) == STEPS * KERNELS_A_STEP
