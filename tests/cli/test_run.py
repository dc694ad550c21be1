"""`stallscope run X` behaves as `python X`: each case is run both ways, for real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner

from stallscope.cli.main import cli
from stallscope.profiler.kinds import Kind
from support.recording import Ended, environment, plain, recorded, session_of

SCRIPTS = {
    "prints and exits 3": "import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(3)\n",
    "exits with a message": "import sys\nsys.exit('that was it')\n",
    "raises": "def inner():\n    raise ValueError('no')\n\n\ndef outer():\n    inner()\n\n\nouter()\n",
    "raises from another": (
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('x') from error\n"
    ),
    "argparse": (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--force', action='store_true')\n"
        "p.add_argument('-o')\np.add_argument('rest', nargs='*')\nprint(p.parse_args())\n"
    ),
    "argparse usage error": "import argparse\nargparse.ArgumentParser().parse_args(['--nope'])\n",
    "paths and names": (
        "import sys\nprint(sys.path)\nprint(sys.argv, __name__, __file__, __spec__)\n"
        "print(sys.modules['__main__'].__dict__.keys() == globals().keys())\n"
    ),
    "reads stdin": "import sys\nprint(sys.stdin.read().upper(), end='')\n",
    "input()": "print(input('? ') * 2)\n",
    "os._exit": "import os, sys\nprint('going', flush=True)\nos._exit(4)\n",
    "keyboard interrupt of its own": "raise KeyboardInterrupt\n",
    "kills itself with SIGKILL": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)\n",
    "kills itself with SIGTERM": "import os, signal\nos.kill(os.getpid(), signal.SIGTERM)\n",
    "aborts": "import os\nos.abort()\n",
    "handles SIGTERM": (
        "import os, signal, sys\nsignal.signal(signal.SIGTERM, lambda *a: sys.exit(7))\n"
        "os.kill(os.getpid(), signal.SIGTERM)\nprint('not reached')\n"
    ),
    "atexit": "import atexit\natexit.register(print, 'last words')\nprint('body')\n",
    "threads it can see": (
        "import threading, time\nt = threading.Thread(target=time.sleep, args=(0.05,))\nt.start()\n"
        "print(threading.active_count(), [x.name for x in threading.enumerate()])\n"
    ),
    "forks": (
        "import os, sys\nprint('parent', flush=True)\npid = os.fork()\nif pid == 0:\n    print('child', flush=True)\n"
        "    os._exit(5)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    ),
    "forks and falls through": (
        "import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)\n    print('parent')\nelse:\n    print('child')\n"
    ),
    "multiprocessing fork": (
        "import multiprocessing as mp\n\n\ndef f(x):\n    return x * x\n\n\nif __name__ == '__main__':\n"
        "    with mp.get_context('fork').Pool(2) as pool:\n        print(pool.map(f, range(5)))\n"
    ),
    "multiprocessing spawn": (
        "import multiprocessing as mp\n\n\ndef f(q):\n    q.put(__name__)\n\n\nif __name__ == '__main__':\n"
        "    mp.set_start_method('spawn')\n    q = mp.Queue()\n    p = mp.Process(target=f, args=(q,))\n    p.start()\n"
        "    print(q.get())\n    p.join()\n    print(p.exitcode)\n"
    ),
    "subprocess with an environment of its own": (
        "import subprocess, sys\nr = subprocess.run([sys.executable, '-c', 'print(40 + 2)'], env={'A': '1'},\n"
        "                   capture_output=True, text=True)\nprint(r)\n"
    ),
    "a program that is not there": "import subprocess\nsubprocess.run(['/no/such/program'])\n",
    "execs another": (
        "import os, sys\nprint('before', flush=True)\nos.execv(sys.executable, [sys.executable, '-c', 'print(\"after\")'])\n"
    ),
    "exec that fails": (
        "import os\ntry:\n    os.execv('/no/such', ['/no/such'])\nexcept FileNotFoundError as e:\n    print(e)\n"
    ),
    "asyncio": "import asyncio\n\n\nasync def f():\n    await asyncio.sleep(0.01)\n    return 1\n\n\nprint(asyncio.run(f()))\n",
    "warnings": "import warnings\nwarnings.warn('careful')\n",
    "excepthook of its own": (
        "import sys\nsys.excepthook = lambda t, v, tb: print('mine:', v)\nraise RuntimeError('x')\n"
    ),
    "forks with a thread": (
        "import os, threading\ngo = threading.Event()\nthreading.Thread(target=go.wait).start()\n"
        "pid = os.fork()\nif pid == 0:\n    os._exit(0)\nos.waitpid(pid, 0)\ngo.set()\nprint('done')\n"
    ),
    "an import hook of its own": (
        "import sys\n\n\nclass Finder:\n    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'subprocess':\n            print('looked for', name)\n\n\n"
        "sys.meta_path.insert(0, Finder())\nimport subprocess\nprint(subprocess.PIPE)\n"
    ),
    "an exception in a thread": (
        "import threading\n\n\ndef f():\n    raise ValueError('in thread')\n\n\n"
        "t = threading.Thread(target=f, name='T')\nt.start()\nt.join()\nprint('ok')\n"
    ),
    "a daemon thread that never ends": (
        "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()\nprint('end')\n"
    ),
    "a thread that prints after the end": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.2), print('late'))).start()\nprint('end')\n"
    ),
    "too deep": "def f(n):\n    return f(n + 1)\n\n\nf(0)\n",
    "how deep it may go": (
        "def f(n):\n    try:\n        return f(n + 1)\n    except RecursionError:\n        return n\n\n\nprint(f(0))\n"
    ),
    "pickles a class of its own": (
        "import pickle\n\n\nclass A:\n    pass\n\n\nprint(pickle.dumps(A()), type(pickle.loads(pickle.dumps(A()))) is A)\n"
    ),
    "dies of a bad pointer": "import ctypes\nprint('x', flush=True)\nctypes.string_at(0)\n",
    "profiles itself": (
        "import cProfile, sys\np = cProfile.Profile()\np.enable()\nsum(range(9))\np.disable()\ncalls = []\n"
        "sys.setprofile(lambda frame, event, arg: calls.append(event))\n(lambda: 0)()\nsys.setprofile(None)\nprint(calls)\n"
    ),
    "traces itself": (
        "import sys\nseen = []\n\n\ndef trace(frame, event, arg):\n    seen.append((event, frame.f_code.co_name))\n"
        "    return trace\n\n\nsys.settrace(trace)\n(lambda: 0)()\nsys.settrace(None)\nprint(seen)\n"
    ),
    "a signal handler of asyncio": (
        "import asyncio, os, signal\n\n\nasync def main():\n    done = asyncio.Event()\n"
        "    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, done.set)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n    await done.wait()\n    print('heard')\n\n\nasyncio.run(main())\n"
    ),
    "closes all descriptors": "import os\nos.closerange(3, 256)\nprint('ok')\n",
    "writes bytes and other scripts": (
        "import sys\nprint('\\u00e9\\u4e2d\\U0001f600', flush=True)\nsys.stdout.buffer.write(b'\\x00\\x01')\n"
    ),
    "streams from a generator": (
        "def tokens():\n    for i in range(5):\n        yield i\n\n\n"
        "for token in tokens():\n    print(token, end=' ', flush=True)\n"
    ),
    "removes its own folder": (
        "import os, tempfile\nfolder = tempfile.mkdtemp()\nos.chdir(folder)\nos.rmdir(folder)\nprint('gone')\n"
    ),
    "a syntax error": "def f(:\n",
}
ARGUMENTS = {"argparse": ["--force", "-o", "x", "--", "--html"]}
STDIN = {"reads stdin": "a\nb\n", "input()": "ab\n"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_cannot_tell(name: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPTS[name], encoding="utf-8")
    target, stdin = ["script.py", *ARGUMENTS.get(name, [])], STDIN.get(name, "")

    assert recorded(target, tmp_path, stdin) == plain(target, tmp_path, stdin)


@pytest.mark.parametrize(
    "target",
    [
        ["-c", "import sys; print(sys.argv, sys.path, __name__); sys.exit(2)", "-c", "--force"],
        ["-m", "pkg", "--quiet", "x"],
        ["-mpkg.tool", "-m"],
        ["-m", "no_such_module"],
        ["no_such_script.py"],
        ["folder"],
        ["-"],
    ],
    ids=lambda t: " ".join(t)[:20],
)
def test_every_kind_of_target(target: list[str], tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    (tmp_path / "folder").mkdir()
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "rel.py").write_text("NAME = __name__\n")
    body = (
        "import sys\nfrom .rel import NAME\nprint(NAME, sys.argv, sys.path[0], __package__, __spec__.name)\n"
    )
    (package / "__main__.py").write_text(body)
    (package / "tool.py").write_text(body)
    (tmp_path / "folder" / "__main__.py").write_text("import sys\nprint(sys.argv, sys.path[0])\n")

    assert recorded(target, tmp_path, "print(__name__)\n") == plain(target, tmp_path, "print(__name__)\n")


def test_modules_with_our_names_stay_the_users(tmp_path: Path) -> None:
    for name in ("profiler", "cli", "analyzers", "exporters", "agent", "settings"):
        (tmp_path / f"{name}.py").write_text(f"WHO = 'user {name}'\n")
    (tmp_path / "script.py").write_text(
        "import profiler, cli, analyzers, exporters, agent, settings\n"
        "print([m.WHO for m in (profiler, cli, analyzers, exporters, agent, settings)])\n"
    )

    got = recorded(["script.py"], tmp_path)

    assert got == plain(["script.py"], tmp_path)
    assert "user profiler" in got.out


def test_a_sitecustomize_behind_ours_still_runs(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text("import builtins\nbuiltins.CUSTOM = 'ran'\n")
    (tmp_path / "script.py").write_text("import sys\nprint(CUSTOM, sys.path[:2])\nimport sitecustomize\n")

    got = recorded(["script.py"], tmp_path, PYTHONPATH=str(site))

    assert got == plain(["script.py"], tmp_path, PYTHONPATH=str(site))
    assert got.out.startswith("ran")


def default_signals() -> None:
    """A job in the background inherits signals that are ignored; here each must be able to end its target."""
    for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT):
        signal.signal(signum, signal.SIG_DFL)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
def test_a_signal_to_the_launcher_ends_the_target_as_it_would_end_python(signum: int, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(60)\nprint('no')\n")

    def run(command: list[str]) -> Ended:
        child = subprocess.Popen(
            [sys.executable, *command],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
            start_new_session=True,
            preexec_fn=default_signals,  # noqa: PLW1509 - the tests start no threads
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "up\n"
        time.sleep(0.3)
        if signum == signal.SIGINT:  # a terminal sends it to the whole group
            os.killpg(child.pid, signum)
        else:
            child.send_signal(signum)
        out, err = child.communicate(timeout=60)
        return Ended(child.returncode, out, err)

    ours = run(["-m", "stallscope", "run", "-q", "--no-report", "-o", "run.stallscope", "script.py"])

    assert ours == run(["script.py"])
    assert ours.status == -signum
    names = [f["function"] for f in _functions(tmp_path)]
    assert "<module>" in names


def _functions(cwd: Path) -> list[dict[str, object]]:
    timeline = session_of(cwd).timeline
    return [timeline.arguments(int(row)) for row in timeline.rows(Kind.PYTHON)]


# -- what is checked before the target starts ----------------------------------------------------------


def refused(*args: str) -> str:
    result = CliRunner().invoke(cli, ["run", *args])
    assert result.exit_code == 2, result.output
    return result.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--window", "2:x"], "WARMUP:STEPS"),
        (["--rate", "5000"], "1 to 1000"),
        (["--device", "npu"], "torch_npu"),
        (["--html", "no/such/folder/r.html"], "does not exist"),
        (["--json", "taken.json"], "--force"),
        (["-o", "full"], "--force"),
        (["-o", "taken.json"], "no folder"),
        (["--select", "NOPE"], "NOPE"),
        (["--no-such-option"], "No such option"),
    ],
)
def test_a_bad_option_is_refused_before_anything_runs(
    options: list[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "script.py").write_text("open('ran', 'w').close()\n")
    (tmp_path / "taken.json").write_text("{}")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")

    output = refused(*options, "script.py")

    assert told in output
    assert not (tmp_path / "ran").exists()


def test_force_never_deletes_what_is_no_recording(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("precious")

    assert "no recording" in refused("--force", "-o", "full", "-c", "1")
    assert (tmp_path / "full" / "mine.txt").read_text() == "precious"


def test_a_target_is_asked_for() -> None:
    assert "Name a script" in refused()
    assert "Name a script" in refused("-m")


def test_the_verdict_goes_to_stderr_and_names_the_next_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stallscope", "run", "-o", "a b.stallscope", "-c", "print('hello')"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=120,
        check=False,
    )

    assert (done.returncode, done.stdout) == (0, "hello\n")
    assert "stallscope report 'a b.stallscope'" in done.stderr
    assert not (tmp_path / "a b.stallscope" / "raw").exists()
