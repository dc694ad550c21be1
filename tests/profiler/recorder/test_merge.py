"""Raw recordings written by hand, merged: windows with device work, several processes, a clock that was set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import recording_dir
from stallscope.profiler.recorder.writer import RecordWriter
from stallscope.profiler.session import Session

EPOCH = 1_790_000_000_000_000_000
MS = 1_000_000


def span(
    name: str, cat: str, start_us: float, dur_us: float, pid: int, tid: int, **args: Any
) -> dict[str, Any]:
    return {
        "ph": "X",
        "cat": cat,
        "name": name,
        "ts": start_us,
        "dur": dur_us,
        "pid": pid,
        "tid": tid,
        "args": args,
    }


class Raw:
    """A recording directory in the making. Monotonic time 0 is `EPOCH` on the wall clock."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        manifest = {
            "format": "stallscope.recording",
            "version": 1,
            "argv": ["infer.py"],
            "settings": {"rate_hz": 100, "ops": True, "device": "auto"},
            "clock": {"mono_ns": 0, "real_ns": EPOCH, "width_ns": 100},
        }
        (folder / "recording.json").write_text(json.dumps(manifest))
        (folder / "end.json").write_text('{"status": 0, "start_ns": 0, "end_ns": 1000}')

    def process(
        self, pid: int, start_ns: int, *, parent: int = 1, kind: str = "main", **start: Any
    ) -> RecordWriter:
        writer = RecordWriter(str(self.folder), f"p{pid}-{start_ns}")
        argv = ["python", "/x/infer.py"]
        writer.line(
            "start", kind=kind, pid=pid, ppid=parent, argv=argv, python="3.11", mono_ns=start_ns, **start
        )
        return writer

    def window(
        self, writer: RecordWriter, number: int, start_ns: int, stop_ns: int, events: list[Any], **more: Any
    ) -> None:
        name = f"{writer.stem}-w{number}.json"
        trace = {
            "schemaVersion": 1,
            "baseTimeNanoseconds": EPOCH + more.pop("clock_set_ns", 0),
            "traceEvents": events,
        }
        (self.folder / name).write_text(json.dumps(trace))
        writer.line("window-open", n=number, start_ns=start_ns, provisional=False)
        entry = {
            "n": number,
            "file": name,
            "start_ns": start_ns,
            "stop_ns": stop_ns,
            "why": "steps",
            "activities": ["cpu", "cuda"],
        }
        writer.line("window", **{**entry, **more})

    def merge(self) -> Session:
        return recording_dir.read(self.folder)


@pytest.fixture
def raw(tmp_path: Path) -> Raw:
    return Raw(tmp_path)


def launch_and_kernel(
    pid: int, at_us: float, kernel: str, correlation: int, external: int
) -> list[dict[str, Any]]:
    return [
        span(
            "aten::mm",
            "cpu_op",
            at_us,
            20,
            pid,
            pid,
            **{"External id": external, "Input Dims": [[2, 3], [3, 4]]},
        ),
        span("cudaLaunchKernel", "cuda_runtime", at_us + 5, 5, pid, pid, correlation=correlation),
        span(kernel, "kernel", at_us + 15, 30, 0, 7, correlation=correlation, device=0, stream=7),
    ]


def test_ids_that_return_in_another_window_or_process_join_nothing_there(raw: Raw) -> None:
    """Correlation 5 three times: each kernel belongs to the launch of its own file."""
    one = raw.process(100, 0)
    raw.window(one, 1, 1 * MS, 2 * MS, launch_and_kernel(100, 1000, "first", 5, 1))
    raw.window(one, 2, 3 * MS, 4 * MS, launch_and_kernel(100, 3000, "second", 5, 1))
    two = raw.process(200, 10, parent=100, kind="fork")
    raw.window(two, 1, 1 * MS, 4 * MS, launch_and_kernel(200, 3500, "other", 5, 1))
    timeline = raw.merge().timeline
    kernels = {timeline.name(int(r)): int(r) for r in timeline.rows(Kind.KERNEL)}

    assert set(kernels) == {"first", "second", "other"}
    for name, row in kernels.items():
        launch = int(timeline.spans.launch_row[row])
        assert timeline.name(launch) == "cudaLaunchKernel"
        assert timeline.spans.start_ns[row] - timeline.spans.start_ns[launch] == 10_000, name
    assert timeline.track_of(int(timeline.spans.launch_row[kernels["other"]])).process == 200
    # two processes on one device do not share a lane
    assert timeline.spans.track[kernels["first"]] == timeline.spans.track[kernels["second"]]
    assert timeline.spans.track[kernels["first"]] != timeline.spans.track[kernels["other"]]
    mm = [int(r) for r in timeline.rows(Kind.OPERATOR)]
    assert [timeline.arguments(r)["Input Dims"] for r in mm] == [[[2, 3], [3, 4]]] * 3


def test_marks_and_operators_share_the_thread_and_nest(raw: Raw) -> None:
    writer = raw.process(100, 0)
    raw.window(writer, 1, 1 * MS, 2 * MS, launch_and_kernel(100, 1000, "k", 5, 1))
    writer.arguments(writer.put(1, 990_000, 100_000, writer.text("decode"), 100, 1), {"batch": 4})
    timeline = raw.merge().timeline
    (mark,) = (int(r) for r in timeline.rows(Kind.ANNOTATION))
    (mm,) = (int(r) for r in timeline.rows(Kind.OPERATOR))

    assert timeline.spans.parent[mm] == mark
    assert timeline.arguments(mark) == {"batch": 4}
    assert timeline.origin_ns == EPOCH
    assert int(timeline.spans.start_ns[mark]) == 990_000


def test_a_wall_clock_set_in_the_run_moves_nothing(raw: Raw) -> None:
    """The second window's file is an hour ahead; on the timeline it stays where it was."""
    hour = 3600 * 10**9
    writer = raw.process(100, 0)
    raw.window(writer, 1, 1 * MS, 2 * MS, launch_and_kernel(100, 1000, "first", 5, 1))
    writer.line("clock", mono_ns=2 * MS, real_ns=EPOCH + 2 * MS, width_ns=100)
    writer.line("clock", mono_ns=int(2.5 * MS), real_ns=EPOCH + int(2.5 * MS) + hour, width_ns=100)
    raw.window(writer, 2, 3 * MS, 4 * MS, launch_and_kernel(100, 3000, "second", 6, 2), clock_set_ns=hour)
    session = raw.merge()
    starts = {
        session.timeline.name(int(r)): int(session.timeline.spans.start_ns[r])
        for r in session.timeline.rows(Kind.KERNEL)
    }

    assert starts == {"first": 1_015_000, "second": 3_015_000}
    note = session.notes.get("wall-clock-set")
    assert note is not None
    assert str(hour) in note.first


def test_a_missing_and_a_cut_window_are_told(raw: Raw) -> None:
    writer = raw.process(100, 0)
    raw.window(writer, 1, 1 * MS, 2 * MS, launch_and_kernel(100, 1000, "kept", 5, 1))
    raw.window(writer, 2, 3 * MS, 4 * MS, [])
    (raw.folder / f"{writer.stem}-w2.json").unlink()
    writer.line("window-open", n=3, start_ns=5 * MS, provisional=False)
    session = raw.merge()

    assert [session.timeline.name(int(r)) for r in session.timeline.rows(Kind.KERNEL)] == ["kept"]
    assert "window-unreadable" in session.notes
    assert "window-lost" in session.notes
    assert "process-killed" in session.notes


def test_a_fork_that_became_another_program_is_dropped(raw: Raw) -> None:
    raw.process(100, 0).line("finish", why="atexit", mono_ns=9)
    raw.process(200, 1, parent=100, kind="fork")
    raw.process(200, 2, parent=100, kind="child").line("finish", why="atexit", mono_ns=8)
    helper = raw.process(300, 3, parent=100, kind="child")
    helper.line(
        "start",
        kind="child",
        pid=300,
        ppid=100,
        argv=["python", "-c", "from multiprocessing.forkserver import main"],
        mono_ns=3,
    )
    session = raw.merge()

    assert [(p["pid"], p["kind"]) for p in session.facts["processes"]] == [(100, "main"), (200, "child")]
    assert "process-killed" not in session.notes


@pytest.mark.parametrize(
    ("activities", "told"), [(["cpu", "cuda"], "permission"), (["cpu"], "had not begun to use a device")]
)
def test_why_there_is_no_device_activity(raw: Raw, activities: list[str], told: str) -> None:
    writer = raw.process(100, 0)
    raw.window(
        writer, 1, 1 * MS, 2 * MS, [span("aten::mm", "cpu_op", 1000, 20, 100, 100)], activities=activities
    )
    note = raw.merge().notes.get("no-device-activity")

    assert note is not None
    assert told in note.text


def test_merging_twice_gives_the_same(raw: Raw) -> None:
    writer = raw.process(100, 0)
    raw.window(writer, 1, 1 * MS, 2 * MS, launch_and_kernel(100, 1000, "k", 5, 1))
    first, second = raw.merge(), raw.merge()

    assert first.timeline.frame().equals(second.timeline.frame())
    assert first.facts == second.facts
