"""Whole recordings, made for real: what lands on the timeline, and what a violent end leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import stallscope
from stallscope.profiler import counters
from stallscope.profiler.errors import InputError, StallscopeError
from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import load, recording_dir
from stallscope.profiler.session import Session
from support.recording import environment, plain, recorded, session_of

MARKED = """
import time
import stallscope

def work(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(500))

@stallscope.mark("prepare")
def prepare():
    work(0.15)

prepare()
for i in range(4):
    with stallscope.mark("decode", step=i, share=0.25, who="me"):
        work(0.05)
"""


def python_ns(session: Session, function: str) -> int:
    """Sampled nanoseconds of a function, its callees included."""
    spans = session.timeline.spans
    rows = session.timeline.rows(Kind.PYTHON)
    return sum(
        int(spans.dur_ns[r]) for r in rows if session.timeline.arguments(int(r)).get("function") == function
    )


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Session:
    folder = tmp_path_factory.mktemp("marked")
    (folder / "script.py").write_text(MARKED)
    assert recorded(["script.py", "--secret"], folder).status == 0
    return session_of(folder)


def test_marks_land_on_the_thread_with_their_values(marked: Session) -> None:
    timeline = marked.timeline
    rows = [int(r) for r in timeline.rows(Kind.ANNOTATION) if timeline.category(int(r)) == "mark"]

    assert [timeline.name(r) for r in rows] == ["prepare"] + ["decode"] * 4
    assert timeline.arguments(rows[2]) == {"step": 1, "share": 0.25, "who": "me"}
    assert {timeline.track_of(r).name for r in rows} == {"MainThread"}
    lengths = timeline.spans.dur_ns[rows]
    assert (lengths[1:] >= 50_000_000).all()
    assert int(lengths[0]) >= 150_000_000


def test_samples_name_the_function_its_file_and_line(marked: Session) -> None:
    timeline = marked.timeline
    rows = timeline.rows(Kind.PYTHON)
    names = {timeline.name(int(r)).split(":")[0] for r in rows}
    work = [timeline.arguments(int(r)) for r in rows if timeline.name(int(r)).startswith("work ")]

    assert {"<module> (script.py", "prepare (script.py", "work (script.py"} <= names
    assert all(w["file"].endswith("script.py") and 5 <= w["line"] <= 8 for w in work)
    assert 0.6 * 350e6 < python_ns(marked, "work") < 1.5 * 350e6
    assert not any("recorder" in str(timeline.arguments(int(r)).get("file")) for r in rows)


def test_facts_tell_the_run_but_not_the_environment(marked: Session) -> None:
    facts = marked.facts

    assert facts["argv"] == ["script.py", "--secret"]
    assert facts["exit_status"] == 0
    assert facts["clock"]["uncertainty_ns"] < 1_000_000
    assert facts["processes"][0]["closed_by"] == "atexit"
    assert facts["overhead"]["sampling_cpu_ns"] > 0
    assert facts["overhead"]["samples"] > 10
    assert facts["overhead"]["marks"] == 5
    assert "no-framework" in marked.notes
    assert "PATH" not in json.dumps(facts)


def test_the_host_is_counted_per_thread(marked: Session) -> None:
    table = marked.timeline.counters
    names = {marked.timeline.strings[int(c)] for c in np.unique(table.name)}
    main = next(t for t in marked.facts["host_threads"] if t["name"] == "MainThread")

    assert {counters.CPU_NS, counters.RUN_QUEUE_NS, counters.RESIDENT_BYTES} <= names
    cpu = table.value[table.name == marked.timeline.strings.find(counters.CPU_NS)]
    assert (np.diff(cpu[:3]) >= 0).all()
    assert 50e6 < main["cpu_ns"] <= main["wall_ns"]


def test_nothing_of_ours_but_the_session_stays(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("print(1)\n")
    recorded(["script.py"], tmp_path)

    assert sorted(p.name for p in tmp_path.iterdir()) == ["run.stallscope", "script.py"]
    assert not (tmp_path / "run.stallscope" / "raw").exists()


def test_garbage_collections_are_spans(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import gc\nkeep = [[i, str(i)] for i in range(200_000)]\nfor _ in range(3):\n    gc.collect()\n"
    )
    recorded(["script.py"], tmp_path)
    timeline = session_of(tmp_path).timeline
    rows = [int(r) for r in timeline.rows(Kind.OTHER) if timeline.category(int(r)) == "gc"]

    full = [r for r in rows if timeline.arguments(r)["generation"] == 2]
    assert len(full) >= 3
    assert timeline.name(full[0]) == "garbage collection"


FAMILY = """
import multiprocessing as mp
import subprocess
import sys
import time

def work(name):
    end = time.perf_counter() + 0.3
    while time.perf_counter() < end:
        sum(range(500))

if __name__ == "__main__":
    for method in ("fork", "spawn"):
        p = mp.get_context(method).Process(target=work, args=(method,))
        p.start()
        p.join()
    subprocess.run([sys.executable, "-c", "import time; time.sleep(0.2)"], env={"A": "1"}, check=True)
"""


def test_children_of_every_kind_are_on_the_same_timeline(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FAMILY)
    assert recorded(["script.py"], tmp_path).status == 0
    session = session_of(tmp_path)
    processes = session.facts["processes"]

    assert [p["kind"] for p in processes] == ["main", "fork", "child", "child"]
    assert processes[3]["name"] == "python -c"
    assert {p["parent"] for p in processes[1:]} == {processes[0]["pid"]}
    main = processes[0]
    assert all(main["start_ns"] < p["start_ns"] < p["end_ns"] < main["end_ns"] for p in processes[1:])
    working = {
        session.timeline.track_of(int(r)).process
        for r in session.timeline.rows(Kind.PYTHON)
        if session.timeline.name(int(r)).startswith("work ")
    }
    assert working == {processes[1]["pid"], processes[2]["pid"]}
    assert "process-killed" not in session.notes


def test_a_killed_child_is_told_and_keeps_its_samples(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, signal, time\n\ndef spin():\n    end = time.perf_counter() + 0.4\n"
        "    while time.perf_counter() < end:\n        sum(range(500))\n    os.kill(os.getpid(), signal.SIGKILL)\n\n"
        "pid = os.fork()\nif pid == 0:\n    spin()\nos.waitpid(pid, 0)\n"
    )
    assert recorded(["script.py"], tmp_path).status == 0
    session = session_of(tmp_path)

    note = session.notes.get("process-killed")
    assert note is not None
    assert (note.severity, note.count) == ("data_loss", 1)
    assert python_ns(session, "spin") > 200_000_000


def test_a_target_that_was_killed_still_gets_its_session(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import os, signal, time\ntime.sleep(0.3)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    assert recorded(["script.py"], tmp_path).status == -signal.SIGKILL
    session = session_of(tmp_path)

    assert session.facts["exit_status"] == -signal.SIGKILL
    assert "process-killed" in session.notes
    assert python_ns(session, "<module>") > 100_000_000


def test_a_launcher_that_was_killed_leaves_what_analyze_can_read(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text("import time\nprint('up', flush=True)\ntime.sleep(1)\n")
    launcher = subprocess.Popen(
        [sys.executable, "-m", "stallscope", "run", "-q", "-o", "run.stallscope", "script.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == b"up\n"
    time.sleep(0.4)
    launcher.kill()
    launcher.wait()
    assert launcher.stdout.read() == b""  # the target ended by itself

    folder = tmp_path / "run.stallscope"
    assert recording_dir.sniff(folder)
    session = load(folder)
    assert "launcher-killed" in session.notes
    assert python_ns(session, "<module>") > 300_000_000


def test_a_main_thread_that_never_returns_still_obeys_sigterm(tmp_path: Path) -> None:
    # 4 s in one C call that gives the interpreter away: the handler cannot run, plain Python would be dead
    (tmp_path / "script.py").write_text(
        "import ctypes\nprint('up', flush=True)\nsleep = ctypes.CDLL(None).sleep\nwhile sleep(100):\n    pass\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "stallscope", "run", "-q", "--no-report", "-o", "run.stallscope", "script.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    begin = time.monotonic()
    child.terminate()

    assert child.wait(30) == -signal.SIGTERM
    assert time.monotonic() - begin < 20
    closed_by = session_of(tmp_path).facts["processes"][0]["closed_by"]
    assert closed_by.startswith("signal 15")


def test_our_faults_stay_ours(tmp_path: Path) -> None:
    # a subprocess module whose Popen our hook cannot wrap
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "subprocess.py").write_text("Popen = 7\n")
    (tmp_path / "app" / "script.py").write_text("import subprocess\nprint(subprocess.Popen)\n")

    assert recorded(["app/script.py"], tmp_path) == plain(["app/script.py"], tmp_path)
    note = session_of(tmp_path).notes.get("recorder-fault")
    assert note is not None
    assert "subprocess" in note.first


def test_a_folder_without_a_recording(tmp_path: Path) -> None:
    assert not recording_dir.sniff(tmp_path)
    with pytest.raises(InputError, match=r"recording\.json"):
        recording_dir.read_raw(tmp_path)
    (tmp_path / "recording.json").write_text('{"format": "stallscope.recording", "version": 99}')
    with pytest.raises(InputError, match="99"):
        recording_dir.read_raw(tmp_path)
    (tmp_path / "recording.json").write_text('{"format": "stallscope.recording", "version": 1}')
    with pytest.raises(InputError, match="no process"):
        recording_dir.read(tmp_path)


def test_file_names_in_a_recording_cannot_lead_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "secret.json").write_text("{}")
    raw = tmp_path / "raw"
    raw.mkdir()
    process = recording_dir.RawProcess("p1-1")

    for name in ("../secret.json", "/etc/passwd", "p2-1-w1.json", "p1-1-w1.json/..", 3, None):
        assert recording_dir.window_file(raw, process, name) is None
    (raw / "p1-1-w1.json").symlink_to(tmp_path / "secret.json")
    assert recording_dir.window_file(raw, process, "p1-1-w1.json") is None
    (raw / "p1-1-w2.json").write_text("{}")
    assert recording_dir.window_file(raw, process, "p1-1-w2.json") == raw / "p1-1-w2.json"


# -- record() in this process --------------------------------------------------------------------------


def spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        sum(range(500))


def test_record_a_part_of_this_process(tmp_path: Path) -> None:
    with stallscope.record(tmp_path / "part.stallscope", rate_hz=200) as recording:
        with pytest.raises(StallscopeError, match="not ended"):
            _ = recording.session
        with stallscope.mark("decode", step=1):
            spin(0.2)
    session = recording.session

    assert python_ns(session, "spin") > 100_000_000
    assert 200_000_000 < session.facts["wall_ns"] < 60_000_000_000
    assert len(Session.load(tmp_path / "part.stallscope").timeline) == len(session.timeline)
    marks = [session.timeline.name(int(r)) for r in session.timeline.rows(Kind.ANNOTATION)]
    assert "decode" in marks
    with stallscope.mark("nothing records this"):
        spin(0.001)


def test_record_as_a_decorator_numbers_its_folders(tmp_path: Path) -> None:
    @stallscope.record(tmp_path / "f.stallscope", ops=False)
    def f(x: int) -> int:
        return x + 1

    assert (f(1), f(2)) == (2, 3)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["f-2.stallscope", "f.stallscope"]


def test_record_refuses_an_existing_folder_before_it_starts(tmp_path: Path) -> None:
    ran = []
    with pytest.raises(InputError, match="exists already"), stallscope.record(tmp_path):
        ran.append(1)
    assert ran == []


def test_record_under_run_is_a_mark(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import stallscope\nwith stallscope.record() as r:\n    pass\n"
        "try:\n    r.session\nexcept Exception as e:\n    print(type(e).__name__)\n"
    )
    assert recorded(["script.py"], tmp_path).out == "StallscopeError\n"
    timeline = session_of(tmp_path).timeline

    assert "stallscope.record" in [timeline.name(int(r)) for r in timeline.rows(Kind.ANNOTATION)]


def test_a_recorded_child_loads_little(tmp_path: Path) -> None:
    code = "import sys; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    extra = set(recorded(["-c", code], tmp_path).out.split()) - set(plain(["-c", code], tmp_path).out.split())

    heavy = {
        "numpy",
        "pandas",
        "torch",
        "json",
        "dataclasses",
        "inspect",
        "subprocess",
        "typing",
        "click",
        "rich",
    }
    assert extra & heavy == set()
    assert len(extra) < 30, extra


def test_the_environment_of_the_target_differs_only_in_our_variables(tmp_path: Path) -> None:
    code = "import os; print(*sorted(f'{k}={v}' for k, v in os.environ.items()), sep='\\n')"
    ours = set(recorded(["-c", code], tmp_path).out.splitlines()) - set(
        plain(["-c", code], tmp_path).out.splitlines()
    )

    names = {line.split("=", 1)[0] for line in ours}
    assert names <= {n for n in os.environ if n == "_"} | {
        "PYTHONPATH",
        "KINETO_LOG_LEVEL",
        "STALLSCOPE_RECORDING",
        "STALLSCOPE_SETTINGS",
        "STALLSCOPE_HOME",
        "STALLSCOPE_LAUNCHER",
    }
