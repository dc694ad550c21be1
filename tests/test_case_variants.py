"""More of the faults real trace files have: each kind at other places, in other dialects and sizes."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from stallscope.profiler.session import Session
from support.events import HOST, Case, call, count, durations_us, kernel, op

BASE = [op("aten::mm", 1000, 20), call("cudaLaunchKernel", 1005, 4, 1), call("cudaLaunchKernel", 1010, 4, 2),
        kernel("good", 1020, 50, 2)]  # fmt: skip


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


# -- times ------------------------------------------------------------------------------------------

YEAR_US = 31_536_000e6


@pytest.mark.parametrize("at", [0, 2, 4])
@pytest.mark.parametrize("ts", [1000 + YEAR_US, -1_767_225_600_000_000])
@pytest.mark.parametrize("what", ["kernel", "operator"])
def test_a_span_far_from_all_others_does_not_stretch_the_window(
    case: Case, ts: float, what: str, at: int
) -> None:
    odd = kernel("odd", ts, 5, 1) if what == "kernel" else op("odd", ts, 5)
    session, report = case.read([*BASE[:at], odd, *BASE[at:]])

    assert "odd" not in durations_us(session)
    assert (report.headline.busy_ns, report.headline.host_span_ns) == (50_000, 20_000)
    note = session.notes.get("time-out-of-range")
    assert note is not None
    assert (note.count, note.severity, note.first) == (1, "data_loss", f"event {at}: odd")
    assert count(session, "invalid-times") == 1


@pytest.mark.parametrize("first_us", [1, 100, 1000, 1_715_594_400_000_000])
def test_device_records_at_zero_have_lost_their_stamp_wherever_the_recording_begins(
    case: Case, first_us: int
) -> None:
    events: list[Any] = [call("hipLaunchKernel", first_us + i, 1, i + 1, "hip_runtime") for i in range(20)]
    events += [kernel("lost", 0, 0, i + 1) for i in range(19)] + [kernel("good", first_us + 50, 10, 20)]
    session, report = case.read(events)

    assert count(session, "device-record-without-timestamp") == 19
    assert (report.headline.device_events, report.headline.busy_ns) == (1, 10_000)


def test_a_recording_that_begins_at_zero_keeps_its_first_record(case: Case) -> None:
    _, report = case.read([op("aten::mm", 0, 20), kernel("memset", 0, 0), kernel("k", 10, 10)])

    assert report.headline.device_events == 2


def test_events_of_phases_without_a_meaning_here_are_counted(case: Case) -> None:
    session, _ = case.read([*BASE, {"ph": "q", "ts": 5, "name": "x"}, {"ph": "V", "ts": 5, "name": "x"}])

    note = session.notes.get("ignored-phases")
    assert note is not None
    assert (note.count, note.first) == (2, "'V': 1, 'q': 1")


@pytest.mark.parametrize(
    "element", [{}, None, "text", 5, [], {"name": "x", "ts": 1100, "dur": 5}, {"ph": None}]
)
@pytest.mark.parametrize("at", [0, 2, 4])
def test_any_element_that_is_no_event_is_skipped_with_its_place(case: Case, element: Any, at: int) -> None:
    session, report = case.read([*BASE[:at], element, *BASE[at:]])

    assert (len(session.timeline), report.headline.busy_ns) == (4, 50_000)
    note = session.notes.get("skipped-elements")
    assert note is not None
    assert (note.count, note.severity, note.first) == (1, "info", f"event {at}")


# -- Ascend, in other clothes -----------------------------------------------------------------------


def ascend_rows() -> list[dict[str, Any]]:
    base = 1_715_594_400_000_000
    names = {100: "Python", 101: "CANN", 102: "Ascend Hardware"}
    rows: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": p, "tid": 0, "args": {"name": n}} for p, n in names.items()
    ]
    for name, at, dur, pid in (("aten::mm", 0, 40, 100), ("AscendCL@aclnnMm", 10, 5, 101), ("MatMulV2", 56.78, 10, 102),
                               ("Add", 66.8, 5, 102)):  # fmt: skip
        args = {"Task Type": "AI_CORE"} if pid == 102 else {}
        rows.append(
            {
                "ph": "X",
                "name": name,
                "pid": pid,
                "tid": 2,
                "ts": f"{base + int(at)}.{at % 1 * 1000:03.0f}",
                "dur": dur,
                "args": args,
            }
        )
    return rows


@pytest.mark.parametrize(
    "form", ["array", "object", "zip", "utf-16", "blank lines", "metadata last", "indented"]
)
def test_an_ascend_trace_is_known_in_any_form(case: Case, form: str) -> None:
    rows = ascend_rows()
    text = json.dumps(rows)
    zipped = io.BytesIO()
    with zipfile.ZipFile(zipped, "w") as archive:
        archive.writestr("trace_view.json", text)
    content: dict[str, str | bytes] = {
        "array": text,
        "object": json.dumps({"schemaVersion": 1, "traceEvents": rows}),
        "zip": zipped.getvalue(),
        "utf-16": text.encode("utf-16"),
        "blank lines": "\n" * 70_000 + text,
        "metadata last": json.dumps(rows[3:] + rows[:3]),
        "indented": json.dumps(rows, indent=2),
    }
    session, report = case.read(content[form])

    assert session.facts["format"] == "ascend-trace"
    assert (report.headline.busy_ns, report.headline.idle_ns) == (15_000, 20)


def test_an_array_with_text_times_is_not_ascends_where_its_categories_say_so(case: Case) -> None:
    rows = [e | {"ts": f"{1_715_594_400_000_000 + e['ts']}.125"} for e in BASE]
    session, report = case.read(json.dumps(rows))

    assert session.facts["format"] == "chrome-trace"
    assert (report.headline.busy_ns, report.headline.unlinked_device_events) == (50_000, 0)


# -- links ------------------------------------------------------------------------------------------


def launches(session: Session) -> list[tuple[str, int, float]]:
    """For each linked device event: its name, its rank, and its delay in microseconds."""
    t = session.timeline
    rows = [int(r) for r in t.device_work() if t.spans.launch_row[r] >= 0]
    return [
        (t.name(r), t.tracks[t.spans.track[r]].rank,
         float(t.spans.start_ns[r] - t.spans.start_ns[t.spans.launch_row[r]]) / 1000)
        for r in rows
    ]  # fmt: skip


def test_an_id_that_comes_again_later_belongs_to_the_calls_before(case: Case) -> None:
    events: list[Any] = []
    for i in range(6):
        events += [
            call("cudaLaunchKernel", 1000 + 100 * i, 5, 1 + i % 3),
            kernel("k", 1020 + 100 * i, 50, 1 + i % 3),
        ]
    session, report = case.read(events)

    assert report.headline.launches == 6
    assert launches(session) == [("k", -1, 20.0)] * 6


@pytest.mark.parametrize("thread", [HOST, 9])
def test_a_driver_call_with_the_id_of_the_runtime_call_is_the_same_launch(case: Case, thread: int) -> None:
    events: list[Any] = []
    for i in range(4):
        driver = call("cuLaunchKernel", 1005 + 100 * i, 5, i + 1, "cuda_driver") | {"tid": thread}
        events += [
            driver,
            call("cudaLaunchKernel", 1000 + 100 * i, 15, i + 1),
            kernel("k", 1030 + 100 * i, 50, i + 1),
        ]
    session, report = case.read(events)

    assert report.headline.launches == 4
    assert launches(session) == [("k", -1, 30.0)] * 4


def two_processes() -> list[dict[str, Any]]:
    """Calls of processes 100 and 200 with the same ids, and the work of devices 0 and 1."""
    events = []
    for device, process in enumerate((100, 200)):
        for i in range(3):
            at = 1000 + 100 * i + 3 * device
            events.append(call("cudaLaunchKernel", at, 5, i + 1) | {"pid": process, "tid": process})
            events.append(kernel(f"k{device}", at + 20, 50, i + 1, device=device) | {"pid": device})
    return events


def test_ids_of_several_processes_that_cannot_be_told_apart_link_nothing(case: Case) -> None:
    session, report = case.read(two_processes())

    assert launches(session) == []
    assert count(session, "ambiguous-launch") == 6
    assert "linked" in report.verdict.text


@pytest.mark.parametrize("arrows", [False, True])
@pytest.mark.parametrize(
    "scheme", ["{pid}", "{rank}{pid:08d}", "[TP-{rank}] {pid}", "[TP{rank:02d}-DP00] {pid}"]
)
def test_ids_count_within_one_process_or_rank(case: Case, scheme: str, arrows: bool) -> None:
    events: list[dict[str, Any]] = []
    for rank in (0, 1):
        for i in range(3):
            one = call("cudaLaunchKernel", 1000 + 100 * i, 5, i + 1)
            other = kernel(f"k{rank}", 1030 + 100 * i + rank, 50, i + 1)
            if arrows:
                ends = {"cat": "ac2g", "name": "ac2g", "id": i + 1}
                events += [
                    ends | {"ph": "s", "ts": one["ts"], "pid": one["pid"], "tid": one["tid"], "r": rank},
                    ends
                    | {"ph": "f", "bp": "e", "ts": other["ts"], "pid": other["pid"], "tid": 7, "r": rank},
                ]
                one["args"], other["args"] = {}, {"device": 0, "stream": 7}
            events += [one | {"r": rank}, other | {"r": rank}]
    plain = scheme == "{pid}"
    for event in events:
        rank = event.pop("r")
        pid = scheme.format(pid=100 + rank if plain else event["pid"], rank=rank)
        event["pid"] = int(pid) if pid.isdigit() else pid
        if plain and "device" in event.get("args", {}):
            event["args"]["device"] = rank
    if plain and arrows:
        for event in events:  # an arrow's id is of the whole file
            if "id" in event:
                event["id"] += 1000 * event["pid"]
    session, report = case.read(events)

    ranks = (-1, -1) if plain else (0, 1)
    assert sorted(launches(session)) == [("k0", ranks[0], 30.0)] * 3 + [("k1", ranks[1], 31.0)] * 3
    assert len(report.devices) == 2


@pytest.mark.parametrize("times", [2, 3])
def test_records_that_come_twice_count_once(case: Case, times: int) -> None:
    graph = [call("cudaGraphLaunch", 2000, 10, 5), *[kernel("g", 2030 + 10 * i, 10, 5) for i in range(5)]]
    session, report = case.read((BASE + graph) * times)

    assert (report.headline.device_events, report.headline.busy_ns, report.headline.launches) == (
        6,
        100_000,
        2,
    )
    assert count(session, "repeated-events") == 9 * (times - 1)


def test_records_that_are_merely_alike_all_count(case: Case) -> None:
    _, report = case.read(
        [kernel("k", 1000, 10), kernel("k", 1000, 10), kernel("z", 1020, 0, 3), kernel("z", 1020, 0, 3)]
    )

    assert report.headline.device_events == 4


# -- nothing to judge -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([], "has no events"),
        (
            [call("cudaLaunchKernel", 1000 + i, 1, i + 1) for i in range(5)],
            "none of 5 launches left a device record",
        ),
        ([kernel("step", 1000, 50, cat="gpu_user_annotation")], "only 1 other span"),
        ([{"ph": "X", "name": "mine", "pid": 1, "tid": 1, "ts": 5, "dur": 5}], "only 1 other span"),
        ([op("aten::mm", 1000, 50)], "No device activity was recorded"),
    ],
)
def test_a_verdict_speaks_of_nothing_that_was_not_recorded(case: Case, events: list[Any], told: str) -> None:
    _, report = case.read(events)

    assert told in report.verdict.text
    assert ("stall" in report.verdict.text) == (told == "No device activity was recorded")


@pytest.mark.parametrize(
    "category", ["cuda_driver", "hip_runtime", "XPU_Driver", "privateuse1_runtime", "new_runtime"]
)
def test_calls_of_any_runtime_are_launches(case: Case, category: str) -> None:
    _, report = case.read(
        [op("aten::mm", 1000, 50), call("launch", 1010, 5, 1, category), kernel("k", 1030, 9, 1)]
    )

    assert (report.headline.launches, report.headline.unlinked_device_events) == (1, 0)


@pytest.mark.parametrize(
    "text", ["77", "77.0", "7.7e1", '"77"', "9007199254740993", "18446744073709551615", '"0x4d"', "-3"]
)
def test_an_id_links_however_it_is_written(case: Case, text: str) -> None:
    events = [call("cudaLaunchKernel", 1000, 5, 1), kernel("k", 1020, 9, 1), call("cudaLaunchKernel", 1100, 5, 2),
              kernel("z", 1120, 9, 2)]  # fmt: skip
    written = json.dumps({"traceEvents": events}).replace('"correlation": 1}', f'"correlation": {text}}}')
    session, _ = case.read(written)

    assert launches(session) == [("k", -1, 20.0), ("z", -1, 20.0)]


# -- streams and clocks -----------------------------------------------------------------------------


def test_records_inside_of_others_on_their_stream_are_doubted(case: Case) -> None:
    session, report = case.read(
        [kernel("long", 1000, 1000, 1), *[kernel(f"k{i}", 1010 + 10 * i, 9, i + 2) for i in range(9)]]
    )

    assert report.headline.busy_ns == 1_000_000
    note = session.notes.get("stream-overlap")
    assert note is not None
    assert (note.count, note.severity, note.first) == (9, "warning", "k0")


@pytest.mark.parametrize(
    "events",
    [
        [kernel("a", 1000, 100, 1), kernel("b", 1096, 64, 2), kernel("c", 1155, 45, 3)],
        [kernel("graph", 1000, 100, 1), kernel("branch", 1010, 20, 1)],
        [kernel("a", 1000, 100, 1), kernel("b", 1010, 20, 2, stream=8) | {"tid": 8}],
        [kernel("a", 1000, 100), kernel("b", 1010, 20)],
    ],
    ids=["the next one only", "branches of a graph", "two streams", "no ids"],
)
def test_overlap_that_devices_have_is_not_doubted(case: Case, events: list[Any]) -> None:
    session, report = case.read(events)

    assert "stream-overlap" not in session.notes
    assert report.headline.device_events == len(events)


@pytest.mark.parametrize("early_us", [10, 5e6])
def test_where_most_kernels_precede_their_launch_the_host_is_not_judged(case: Case, early_us: float) -> None:
    events: list[Any] = []
    for i in range(30):
        at = 6e6 + 50 * i
        events += [
            call("hipLaunchKernel", at, 5, i + 1, "hip_runtime"),
            kernel("k", at - early_us, 30, i + 1),
        ]
    session, report = case.read(events)

    assert count(session, "clock-inversion") == 30
    assert report.verdict.text.startswith("No verdict on the host: 30 kernels start before their launch")
    assert report.findings == []
