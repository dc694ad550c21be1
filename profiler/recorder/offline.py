"""After a run: have what an NPU's profiler left raw analysed by the tools that wrote it, in a process of its own.

The analysis is the framework's (torch_npu, MindSpore), which calls CANN's msprof. It is refused in daemon
processes, sets the start method of multiprocessing, and takes minutes for large recordings: nothing for the
process that was recorded, and nothing for ours. What it prints is kept beside the recording.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stallscope.profiler.recorder.backends.ascend import (
    DONE,
    FRAMEWORK,
    OUTPUT,
    bytes_of,
    device_data,
    plain_message,
    recordings,
)
from stallscope.profiler.recorder.backends.cann import find_msprof
from stallscope.profiler.recorder.format import ANALYSIS, ANALYSIS_LOG

LIMIT_S = 3600.0
ATTEMPTS = 4
"""torch_npu 2.14's parser loses track of one of its own tasks now and then, says so, and leaves out what depends on
it. The same data is read whole the next time, or the one after it."""
SHORT_ATTEMPTS, SHORT_S = 12, 60.0
"""So many while all of them together take less than this: of a short recording the parser loses most."""
_LOST_TASK = "run failed"
_WINDOW = re.compile(r"^p\d{1,10}-\d{1,20}-w\d{1,9}$")
_TORCH_NPU, _MINDSPORE = "torch_npu", "mindspore"
_CODE = {
    _TORCH_NPU: """
import sys
from torch_npu.profiler.profiler import analyse
for folder in sys.argv[1:]:
    analyse(folder)
""",
    # a recording of a CPU has no settings file, and is analysed by what MindSpore calls at the end of a run
    _MINDSPORE: """
import glob, os, sys
from mindspore.profiler import ProfilerActivity
from mindspore.profiler.common.log import ProfilerLogger
from mindspore.profiler.common.profiler_context import ProfilerContext
from mindspore.profiler.platform.cpu_profiler import CPUProfilerAnalysis
from mindspore.profiler.profiler import analyse
for folder in sys.argv[1:]:
    if glob.glob(os.path.join(glob.escape(folder), "*", "profiler_info_*.json")):
        analyse(folder)
        continue
    for recording in glob.glob(os.path.join(glob.escape(folder), "*_ascend_ms")):
        if os.fork() == 0:
            ProfilerLogger.init(recording)
            context = ProfilerContext()
            context.set_params(activities=[ProfilerActivity.CPU])
            context.ascend_ms_dir = recording
            CPUProfilerAnalysis.online_analyse()
            sys.stdout.flush()
            os._exit(0)
        os.wait()
""",
}
_NEXT = {
    _TORCH_NPU: "`torch_npu.profiler.profiler.analyse(FOLDER)`",
    _MINDSPORE: "`mindspore.profiler.profiler.analyse(FOLDER)`",
}


@dataclass
class Outcome:
    """What an analysis came to. `unfinished` recordings are worth keeping: they can be analysed elsewhere."""

    seconds: float = 0.0
    analysed: int = 0
    unfinished: list[str] = field(default_factory=list)
    notes: list[tuple[str, str, str]] = field(default_factory=list)


def waiting(raw: Path) -> list[Path]:
    """Folders of windows that hold recordings nobody has analysed yet, in name order.

    A window from before the first step only counts where there is no other, so it is not analysed then.
    """
    found = [p for p in sorted(raw.iterdir()) if _WINDOW.match(p.name) and p.is_dir() and not p.is_symlink()]
    provisional = _provisional(raw)
    real = {p.name.rpartition("-")[0] for p in found if p.name not in provisional}
    wanted = [p for p in found if p.name not in provisional or p.name.rpartition("-")[0] not in real]
    return [p for p in wanted if any(not is_analysed(r) for r in recordings(str(p)))]


def _provisional(raw: Path) -> set[str]:
    out = set()
    for lines in sorted(raw.glob("p*.jsonl")):
        for line in lines.read_text(encoding="utf-8", errors="replace").splitlines():
            if '"ev":"window"' not in line or '"provisional":true' not in line:
                continue
            try:
                out.add(str(json.loads(line).get("file", "")))
            except ValueError:  # cut by a kill
                continue
    return out


def is_analysed(recording: str) -> bool:
    """Whether results are there, all of them."""
    output = os.path.join(recording, OUTPUT)
    if recording.endswith("_ascend_ms"):
        return os.path.isfile(os.path.join(output, "trace_view.json"))
    return os.path.isfile(os.path.join(output, DONE))


def analyse(raw: Path, say: Callable[[str], None] = lambda text: None) -> Outcome:
    """Analyse every window of a recording that waits for it, and write down how that went.

    Raises nothing: what could not be analysed is named in the outcome and in the recording.
    """
    outcome = Outcome()
    windows = waiting(raw)
    if not windows:
        return outcome
    begin = time.monotonic()
    kinds: dict[str, list[Path]] = {}
    for window in windows:
        kind = _MINDSPORE if recordings(str(window))[0].endswith("_ascend_ms") else _TORCH_NPU
        kinds.setdefault(kind, []).append(window)
    for kind, mine in kinds.items():
        say(f"analyse {len(mine)} NPU window{'s' if len(mine) > 1 else ''}")
        said = _run_until_whole(kind, raw, mine)
        for window in mine:
            for recording in recordings(str(window)):
                _judge(kind, recording, said, outcome)
    outcome.seconds = time.monotonic() - begin
    _write_down(raw, outcome)
    return outcome


def _run_until_whole(kind: str, raw: Path, windows: Sequence[Path]) -> list[str]:
    said: list[str] = []
    begin = time.monotonic()
    for attempt in range(SHORT_ATTEMPTS):
        if attempt >= ATTEMPTS and time.monotonic() - begin > SHORT_S:
            break
        said = _run(kind, raw, windows)
        if not any(_LOST_TASK in text for text in said):
            break
        windows = [w for w in windows if not all(_is_whole(r) for r in recordings(str(w)))]
        if not windows:
            break
    return said


def _is_whole(recording: str) -> bool:
    """Whether the results hold kernels wherever the raw data does."""
    if not is_analysed(recording) or not _has(recording, "trace_view.json"):
        return False
    return not device_data(recording) or _has_kernels(recording)


def _has_kernels(recording: str) -> bool:
    names = os.listdir(os.path.join(recording, OUTPUT))
    return "kernel_details.csv" in names or any(n.endswith(".db") for n in names)


def _run(kind: str, raw: Path, windows: Sequence[Path]) -> list[str]:
    """Run the framework's analysis in a fresh interpreter; returns what it complained about."""
    with open(raw / ANALYSIS_LOG, "ab") as log:
        begin = log.tell()
        try:
            child = subprocess.Popen(
                [sys.executable, "-c", _CODE[kind], *(str(w.resolve()) for w in windows)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # the first place Python looks for modules: a folder without any
                cwd=raw,
                env=_environment(),
                start_new_session=True,
            )
            status = _wait(child)
        except OSError as error:
            return [f"ERROR: it could not be started ({error.strerror})"]
    if status is None:
        return [f"ERROR: it took longer than {LIMIT_S:.0f} s and was ended"]
    return _complaints(raw / ANALYSIS_LOG, begin, status)


def _wait(child: subprocess.Popen[bytes]) -> int | None:
    try:
        return child.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        return None
    finally:
        if child.returncode is None:
            # its workers too: they are in its process group
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()


def _environment() -> dict[str, str]:
    """Ours, with the msprof command on PATH if it is anywhere, and relative module paths still meaning the same."""
    env = dict(os.environ)
    msprof = find_msprof()
    if msprof:
        env["PATH"] = os.pathsep.join(p for p in (env.get("PATH", ""), os.path.dirname(msprof)) if p)
    if env.get("PYTHONPATH"):
        env["PYTHONPATH"] = os.pathsep.join(
            os.path.abspath(p) for p in env["PYTHONPATH"].split(os.pathsep) if p
        )
    return env


def _complaints(log: Path, begin: int, status: int) -> list[str]:
    """Errors the analysis printed from a place in its log on, and the last line of a traceback."""
    with open(log, encoding="utf-8", errors="replace") as file:
        file.seek(begin)
        lines = file.read().splitlines()[-2000:]
    said = [plain_message(line) for line in lines if "[ERROR]" in line]
    if status:
        last = next((line for line in reversed(lines) if line.strip()), "")
        said.append(plain_message(last) or f"it ended with status {status}")
    return list(dict.fromkeys(m for m in said if m))[:4]


def _judge(kind: str, recording: str, said: list[str], outcome: Outcome) -> None:
    """Only the files tell whether it worked: the frameworks print their errors and go on."""
    name = os.path.join(os.path.basename(os.path.dirname(recording)), os.path.basename(recording))
    if not is_analysed(recording) or not _has(recording, "trace_view.json"):
        if not bytes_of(os.path.join(recording, FRAMEWORK)) and not device_data(recording):
            return  # nothing was recorded, which the window has told already
        why = f" ({'; '.join(said)})" if said else ""
        text = (
            f"NPU windows could not be analysed{why}; the raw recording is kept. Where its framework and CANN are "
            f"installed, {_NEXT[kind]} and `stallscope analyze` go on from it"
        )
        outcome.unfinished.append(name)
        outcome.notes.append(("npu-not-analysed", "data_loss", text))
        return
    outcome.analysed += 1
    if not _is_whole(recording):
        outcome.unfinished.append(name)
        outcome.notes.append(("npu-no-kernels", "data_loss", _no_kernels(kind, said)))


def _no_kernels(kind: str, said: list[str]) -> str:
    if not find_msprof():
        return (
            "NPU kernels were recorded but not exported: there is no msprof command on PATH, nor in CANN's folder. The raw "
            f"recording is kept; source CANN's set_env.sh, then {_NEXT[kind]} and `stallscope analyze` go on from it"
        )
    why = f" ({'; '.join(said)})" if said else ""
    return f"NPU kernels were recorded, but CANN's msprof exported none{why}; the raw recording is kept"


def _has(recording: str, name: str) -> bool:
    return os.path.isfile(os.path.join(recording, OUTPUT, name))


def _write_down(raw: Path, outcome: Outcome) -> None:
    document = {
        "seconds": round(outcome.seconds, 3),
        "analysed": outcome.analysed,
        "unfinished": outcome.unfinished,
        "notes": [list(note) for note in dict.fromkeys(outcome.notes)],
    }
    (raw / ANALYSIS).write_text(json.dumps(document, indent=1), encoding="utf-8")
