"""Two threads and a task queue between them: whose fault is a gap, the one that fills it or the one that empties it?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallscope.analyzers import RULES, analyze
from stallscope.analyzers.replay import Change
from stallscope.analyzers.run import Run
from stallscope.profiler.kinds import Kind
from stallscope.profiler.links import submitters
from stallscope.profiler.readers import load

AT = 1_715_594_400_000_000
PYTHON, CANN, NPU = 4242, 4242 << 10 | 7 << 5, 4242 << 10 | 13 << 5
MAIN, WORKER = 1, 2


def span(name: str, pid: int, tid: int, start: int, dur: int, cat: str = "", **args: Any) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": name,
        "pid": pid,
        "tid": tid,
        "ts": f"{AT + start}.000",
        "dur": dur,
        "cat": cat,
        "args": args,
    }


def recording(tmp_path: Path, enqueue: int, dequeue: int, second: int, wait: int = 0) -> Run:
    """Kernel 0 ends at 110 us; kernel 1 is enqueued, dequeued and started at the given microseconds.

    With `wait` the first thread waits for the stream from there on, until 1 us after the kernel.
    """
    names = {PYTHON: "Python", CANN: "CANN", NPU: "Ascend Hardware"}
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
        for pid, name in names.items()
    ]
    events.append(span("sampler.py(3): sample", PYTHON, MAIN, 60, 900, "python_function"))
    for i, (asked, emptied, started) in enumerate(((20, 40, 100), (enqueue, dequeue, second))):
        operator = span(f"aten::op{i}", PYTHON, MAIN, asked - 5, 15, "cpu_op")
        events += [
            operator,
            span(f"Enqueue@k{i}", PYTHON, MAIN, asked, 2, "enqueue", correlation_id=i + 7),
            span(f"Dequeue@k{i}", PYTHON, WORKER, emptied, 10, "dequeue", correlation_id=i + 7),
            span("Node@launch", CANN, WORKER, emptied + 2, 4, level="node", connection_id=i + 1),
            span(f"k{i}", NPU, 2, started, 10, "", **{"Task Type": "AI_CORE", "connection_id": i + 1}),
        ]
    if wait:
        end = second + 11
        events.append(span("AscendCL@aclrtSynchronizeStream", CANN, MAIN, wait, end - wait, level="acl"))
    path = tmp_path / "trace_view.json"
    path.write_text(json.dumps(events))
    return Run(load(path))


def test_a_late_enqueue_is_the_main_threads_python(tmp_path: Path) -> None:
    run = recording(tmp_path, enqueue=500, dequeue=520, second=530)
    (account,) = run.idle.values()
    assert [run.timeline.track_of(int(r)).thread for r in account.asked] == [MAIN]
    totals = account.totals()
    # from the end of the kernel to the operator; then the operator, then queue and launch
    assert totals["python"] == (500 - 5 - 110) * 1000
    assert totals["dispatch"] == 5_000
    assert totals["unrecorded"] == 0
    assert sum(totals.values()) == (530 - 110) * 1000


def test_a_late_dequeue_is_the_worker_threads(tmp_path: Path) -> None:
    run = recording(tmp_path, enqueue=90, dequeue=520, second=530)
    (account,) = run.idle.values()
    assert [run.timeline.track_of(int(r)).thread for r in account.asked] == [WORKER]
    assert account.totals()["python"] == 0


def test_operators_and_frames_are_found_through_the_queue(tmp_path: Path) -> None:
    run = recording(tmp_path, enqueue=500, dequeue=520, second=530)
    timeline = run.timeline
    first, second = timeline.rows(Kind.KERNEL).tolist()
    assert [timeline.name(run.operator_of(k)) for k in (first, second)] == ["aten::op0", "aten::op1"]
    assert (run.python_of(first), run.python_of(second)) == ("", "sampler.py(3): sample")
    launch = timeline.spans.launch_row[[first, second]]
    asked = submitters(timeline.spans, np.append(launch, -1))
    assert [timeline.name(int(r)) for r in asked[:2]] == ["Enqueue@k0", "Enqueue@k1"]
    assert asked[2] == -1


@pytest.mark.parametrize("kind", [Kind.OPERATOR, Kind.RUNTIME])
def test_without_a_queue_the_launch_asked_itself(tmp_path: Path, kind: Kind) -> None:
    run = recording(tmp_path, enqueue=500, dequeue=520, second=530)
    spans = run.timeline.spans
    rows = run.timeline.rows(kind)
    outside = rows[spans.parent[rows] < 0]
    assert submitters(spans, outside).tolist() == outside.tolist()


def python_gone(run: Run) -> Change:
    """The first thread's Python between the two kernels left out."""
    times = (np.array([110_000], np.int64), np.array([495_000], np.int64))
    begin = run.timeline.rows(Kind.KERNEL)[:1]
    shift = int(run.timeline.spans.start_ns[begin[0]]) - 100_000
    return Change(host_cuts=[(run.replay.main_track, (times[0] + shift, times[1] + shift), 0.0)])


def test_what_the_asking_thread_saves_arrives_behind_the_queue(tmp_path: Path) -> None:
    run = recording(tmp_path, enqueue=500, dequeue=520, second=530)

    assert run.timeline.tracks[run.replay.main_track].thread == MAIN
    assert run.replay.self_error == 0
    assert run.replay.gain_ns(python_gone(run)) == 385_000


def test_it_arrives_nowhere_while_the_second_thread_is_the_late_one(tmp_path: Path) -> None:
    run = recording(tmp_path, enqueue=90, dequeue=520, second=530)

    assert run.replay.gain_ns(python_gone(run)) == 0


def test_launches_behind_a_queue_become_one_and_so_does_the_asking(tmp_path: Path) -> None:
    run = recording(tmp_path, enqueue=500, dequeue=520, second=530)
    launches = run.timeline.spans.launch_row[run.timeline.rows(Kind.KERNEL)]

    gain = run.replay.gain_ns(Change(as_graph=[tuple(int(r) for r in launches)]))

    # the second kernel follows the first after 0.1 us instead of ending at 540
    assert gain == 540_000 - 120_100


def test_a_wait_that_first_lets_the_queue_run_empty_does_not_take_that_for_the_hosts_work(
    tmp_path: Path,
) -> None:
    run = recording(tmp_path, enqueue=500, dequeue=800, second=810, wait=811)
    launches = run.timeline.spans.launch_row[run.timeline.rows(Kind.KERNEL)]

    gain = run.replay.gain_ns(Change(as_graph=[tuple(int(r) for r in launches)]))

    assert gain == 821_000 - 121_100


@pytest.mark.parametrize(
    ("enqueue", "dequeue", "late", "word"),
    [(500, 520, "python_late_ns", "Python enqueues late"), (90, 520, "calls_late_ns", "not Python"),
     (300, 520, "python_late_ns", "Python enqueues late")],
)  # fmt: skip
def test_which_side_of_the_queue_starves(
    tmp_path: Path, enqueue: int, dequeue: int, late: str, word: str
) -> None:
    run = recording(tmp_path, enqueue=enqueue, dequeue=dequeue, second=530)

    (queue,) = run.task_queues.values()
    row = queue.row()

    assert (row["queue"], row["entries"], row["max_depth"]) == ("on", 2, 1)
    assert row["median_wait_ns"] == (20 + dequeue - enqueue) * 1000 // 2
    assert {k: row[k] for k in ("python_late_ns", "calls_late_ns", "no_queue_ns")} == {
        "python_late_ns": 0, "calls_late_ns": 0, "no_queue_ns": 0, late: (530 - 110) * 1000
    }  # fmt: skip
    assert word in queue.text()


def test_a_late_calling_thread_is_a_finding(tmp_path: Path) -> None:
    run = recording(tmp_path, enqueue=90, dequeue=520, second=530)

    report = analyze(run.session, {"LN403": RULES["LN403"]})

    (finding,) = report.findings
    assert finding.lost_ns == (530 - 110) * 1000
    assert "is late" in finding.title
