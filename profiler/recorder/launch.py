"""Starts a Python target as a child that records itself, and stays out of its way.

The child is a plain `python TARGET`, so argv, `__main__`, `sys.path[0]`, stdin, `-m` packages and tracebacks are
Python's own. All that differs is the environment: PYTHONPATH leads to our `sitecustomize`. We wait, pass
signals on, read /proc, and report the child's own status, whatever happened to it.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import stallscope
from stallscope.profiler.errors import InputError, OptionError
from stallscope.profiler.recorder.clock_pairs import read_clocks
from stallscope.profiler.recorder.format import (
    BOOT_FOLDER,
    END,
    ENV_FOLDER,
    ENV_HOME,
    ENV_LAUNCHER,
    ENV_SETTINGS,
    FORMAT,
    FORMAT_VERSION,
    MANIFEST,
    RAW_FOLDER,
)
from stallscope.profiler.recorder.hostsampler import HostSampler
from stallscope.profiler.recorder.settings import Settings
from stallscope.profiler.recorder.writer import RecordWriter

PASSED_ON = ("SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2")
HOST_PERIOD_S = 0.1
_RECORD_FILE = re.compile(r"^p(\d+)-\d+\.jsonl$")


def target_name(target: Sequence[str]) -> str:
    """A short name for a target: the script's stem, the module, "code" or "stdin".

    >>> target_name(["dir/infer.py", "--x"]), target_name(["-m", "pkg.cli"]), target_name(["-c", "1"])
    ('infer', 'pkg.cli', 'code')
    """
    first = target[0]
    if first == "-":
        return "stdin"
    if first.startswith("-m"):
        return (first[2:] or (target[1] if len(target) > 1 else "")) or "module"
    if first.startswith("-c"):
        return "code"
    return Path(first).stem or "script"


def target_exists(target: Sequence[str]) -> bool:
    """False where the target is a script that is not there; modules are for Python itself to find."""
    return target[0].startswith("-") or os.path.exists(target[0])


def run_unrecorded(target: Sequence[str]) -> int:
    """Run the target without recording: Python's own message and status for what cannot be started."""
    return subprocess.call([sys.executable, *interpreter_flags(), *target], close_fds=False)


def interpreter_flags() -> list[str]:
    """The options this interpreter was started with, for the child to have too (-O, -W, -X...)."""
    flags: list[str] = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    return flags


def check_interpreter() -> None:
    """Raises OptionError where the child could not be reached."""
    if sys.flags.ignore_environment or sys.flags.no_site:
        raise OptionError(
            "Python was started with -E, -I or -S, so the recorder cannot reach the target. "
            "Start stallscope without that option."
        )


def check_device(device: str) -> None:
    """Raises OptionError where the device asked for cannot be recorded with what is installed."""
    from importlib.util import find_spec

    if device == "npu":
        if not any(find_spec(name) for name in ("torch_npu", "mindspore")):
            raise OptionError(
                "--device npu needs torch_npu or mindspore, and this Python has neither. Try --device auto."
            )
        return
    if device not in ("cuda", "xpu"):
        return
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        raise OptionError(
            f"--device {device} needs torch, which this Python does not have. Try --device auto."
        )
    text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text(
        encoding="utf-8", errors="replace"
    )
    built_for = [
        n for n in ("cuda", "hip", "xpu") if re.search(rf"^{n}\b[^=\n]*=\s*['\"]", text, re.MULTILINE)
    ]
    if not built_for or (device == "xpu" and "xpu" not in built_for):
        raise OptionError(
            f"--device {device} cannot work: the installed torch is a CPU build. Try --device auto, or install a "
            f"torch build for that device."
        )


def npu_warnings(device: str) -> list[str]:
    """What will be missing of an NPU recording on this machine, to be said before the target runs."""
    from importlib.util import find_spec

    from stallscope.profiler.recorder.backends.ascend import blocking
    from stallscope.profiler.recorder.backends.cann import find_msprof, find_mspti

    if device not in ("auto", "npu") or find_spec("torch_npu") is None:
        return []
    out = []
    if blocking():
        way = (
            "kernels will come from libmspti, without details"
            if find_mspti()
            else "no kernels will be recorded"
        )
        out.append(f"{' and '.join(blocking())} set, so torch_npu's profiler does nothing: {way}.")
    elif not find_msprof():
        out.append(
            "no msprof command was found, so NPU kernels cannot be exported here. Source CANN's set_env.sh first."
        )
    return out


def prepare_folder(folder: Path, force: bool) -> None:
    """Make the output folder. Raises InputError if it is in use and `force` was not given."""
    if folder.exists() and not folder.is_dir():
        raise InputError(folder, "exists and is no folder", "Choose another name for the output.")
    if folder.is_dir() and any(folder.iterdir()):
        if not force:
            raise InputError(
                folder, "exists already and is not empty", "Choose another name or pass --force."
            )
        if not ((folder / "session.json").is_file() or (folder / RAW_FOLDER).is_dir()):
            raise InputError(folder, "holds something that is no recording", "It will not be overwritten.")
        shutil.rmtree(folder)
    try:
        (folder / RAW_FOLDER).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            folder, f"cannot be made ({error.strerror})", "Choose another place with -o."
        ) from error


def child_environment(raw: Path, settings: Settings, environ: Mapping[str, str]) -> dict[str, str]:
    """The target's environment: the caller's plus what leads to the recorder."""
    env = dict(environ)
    env["PYTHONPATH"] = os.pathsep.join(part for part in (BOOT_FOLDER, env.get("PYTHONPATH", "")) if part)
    env[ENV_FOLDER] = str(raw.resolve())
    env[ENV_SETTINGS] = settings.encode()
    env[ENV_HOME] = str(Path(stallscope.__file__).resolve().parent.parent)
    env[ENV_LAUNCHER] = str(os.getpid())
    # Kineto prints a line for each start and stop unless this is set before torch is loaded
    env.setdefault("KINETO_LOG_LEVEL", "6")
    return env


def write_manifest(raw: Path, argv: Sequence[str], settings: Settings, kind: str) -> None:
    """`recording.json`: what is known before the target starts."""
    mono, real, width = read_clocks()
    manifest = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "kind": kind,
        "argv": list(argv),
        "settings": settings.values(),
        "stallscope": stallscope.__version__,
        "clock": {"mono_ns": mono, "real_ns": real, "width_ns": width},
        "host": host_facts(),
    }
    (raw / MANIFEST).write_text(json.dumps(manifest, indent=1), encoding="utf-8")


def write_end(raw: Path, status: int, start_ns: int, monitor_ns: int) -> None:
    """`end.json`: how the target ended."""
    end = {
        "status": status,
        "start_ns": start_ns,
        "end_ns": time.perf_counter_ns(),
        "monitor_cpu_ns": monitor_ns,
    }
    (raw / END).write_text(json.dumps(end), encoding="utf-8")


def host_facts() -> dict[str, object]:
    """The machine: processor, cores we may use, kernel, Python."""
    facts: dict[str, object] = {
        "platform": platform.platform(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "cores": os.cpu_count() or 0,
    }
    if hasattr(os, "sched_getaffinity"):
        facts["usable_cores"] = len(os.sched_getaffinity(0))
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as info:
            facts["cpu"] = next(
                line.split(":", 1)[1].strip() for line in info if line.startswith("model name")
            )
    except (OSError, StopIteration):
        facts["cpu"] = platform.processor()
    return facts


def run_target(target: Sequence[str], raw: Path, settings: Settings) -> int:
    """Run the target under observation; returns its wait status (negative: died of that signal)."""
    write_manifest(raw, target, settings, "run")
    start_ns = time.perf_counter_ns()
    with _signals() as forward:
        child = subprocess.Popen(
            [sys.executable, *interpreter_flags(), *target],
            env=child_environment(raw, settings, os.environ),
            close_fds=False,
        )
        forward(child)
        monitor = _HostMonitor(raw)
        monitor.start()
        status = child.wait()
        monitor.stop()
    write_end(raw, status, start_ns, monitor.cpu_ns)
    return status


@contextmanager
def _signals() -> Iterator[_Forward]:
    """While the target runs: Ctrl-C is for it alone (the whole group gets it), the others are passed on."""
    forward = _Forward()
    before: dict[int, Any] = {}
    for name in ("SIGINT", *PASSED_ON):
        signum = getattr(signal, name, None)
        # an ignored signal (nohup) stays ignored, for us and for the child
        if signum is None or signal.getsignal(signum) is signal.SIG_IGN:
            continue
        handler = forward.ignore if name == "SIGINT" else forward.pass_on
        before[signum] = signal.signal(signum, handler)
    try:
        yield forward
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


class _Forward:
    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._early: list[int] = []

    def __call__(self, child: subprocess.Popen[bytes]) -> None:
        self._child = child
        for signum in self._early:
            child.send_signal(signum)

    def ignore(self, signum: int, frame: FrameType | None) -> None:
        return

    def pass_on(self, signum: int, frame: FrameType | None) -> None:
        if self._child is None:
            self._early.append(signum)
        elif self._child.returncode is None:
            self._child.send_signal(signum)


class _HostMonitor:
    """A thread of the launcher that reads /proc about every process that has a record."""

    def __init__(self, raw: Path) -> None:
        self._raw = raw
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stallscope-host", daemon=True)
        self.cpu_ns = 0

    def start(self) -> None:
        if os.path.isdir("/proc/self/task"):
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        samplers: dict[str, HostSampler] = {}
        ended: set[str] = set()
        while not self._stop.wait(HOST_PERIOD_S):
            for name in os.listdir(self._raw):
                match = _RECORD_FILE.match(name)
                if match and name not in samplers and name not in ended:
                    stem = "h" + name[1 : -len(".jsonl")]
                    samplers[name] = HostSampler(int(match[1]), RecordWriter(str(self._raw), stem))
            now = time.perf_counter_ns()
            for name in [n for n, sampler in samplers.items() if not sampler.sweep(now)]:
                samplers.pop(name).writer.abandon()
                ended.add(name)
            self.cpu_ns = time.thread_time_ns()


def die_like(status: int) -> int:
    """End as the target did. For a signal this does not return: the caller must have flushed its output.

    Whoever started us sees what it would have seen from the target itself, a shell's 128+n included.
    """
    if status >= 0:
        return status
    import resource

    signum = -status
    # one core dump, the target's, is enough
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    if signum not in (signal.SIGKILL, signal.SIGSTOP):
        signal.signal(signum, signal.SIG_DFL)
    os.kill(os.getpid(), signum)
    return 128 + signum
