"""What Kineto and Chrome events mean, on small inputs written here."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallscope.profiler.ids import NO_ID
from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import chrome_trace, load
from stallscope.profiler.session import Session


def x(name: str, cat: str, ts: float, dur: float, pid: Any = 1, tid: Any = 1, **args: Any) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "pid": pid, "tid": tid, "args": args}


def read(tmp_path: Path, events: list[Any], **top: Any) -> Session:
    file = tmp_path / "trace.json"
    file.write_text(json.dumps({**top, "traceEvents": events}))
    return load(file)


def kinds(session: Session) -> Counter[str]:
    return Counter(Kind(int(k)).name for k in session.timeline.spans.kind)


CHAIN = [
    x("aten::mm", "cpu_op", 1000, 50),
    x("cudaLaunchKernel", "cuda_runtime", 1010, 5, correlation=7),
    x("gemm", "kernel", 1040, 100, pid=0, tid=7, device=0, stream=7, correlation=7),
]


def test_a_launch_chain(tmp_path: Path) -> None:
    session = read(tmp_path, CHAIN, baseTimeNanoseconds=1_700_000_000_000_000_000)
    t = session.timeline
    (kernel,) = t.rows(Kind.KERNEL)

    assert t.name(int(t.spans.launch_row[kernel])) == "cudaLaunchKernel"
    assert t.origin_ns == 1_700_000_000_001_000_000
    assert t.clock == "realtime"
    assert t.track_of(int(kernel)).device == 0
    assert t.track_of(int(kernel)).stream == 7


def test_ids_are_read_when_they_are_asked_for(tmp_path: Path) -> None:
    events = [x("a", "cpu_op", 10, 5, **{"External id": 9}), x("b", "cpu_op", 20, 5), *CHAIN]
    session = read(tmp_path, events)
    spans = session.timeline.spans

    assert spans.ids_at("external_id", np.array([1, 0])).tolist() == [NO_ID, 9]
    assert spans.ids_at("correlation", spans.launch_row[-1:]).tolist() == [7]
    assert not {"external_id", "correlation"} & set(vars(spans))
    assert spans.take(np.array([0])).external_id.tolist() == [9]
    assert spans.external_id.tolist() == [9, *[NO_ID] * 4]
    assert spans.ids_at("external_id", np.array([0])).tolist() == [9]
    assert sorted(spans.correlation.tolist())[-2:] == [7, 7]
    with pytest.raises(AttributeError, match="external_od"):
        spans.external_od  # type: ignore[attr-defined]  # noqa: B018


def test_calls_of_one_moment_with_different_external_ids_are_no_repeats(tmp_path: Path) -> None:
    calls = [x("cudaFree", "cuda_runtime", 10, 5, correlation=3, **{"External id": i}) for i in (1, 1, 2)]
    session = read(tmp_path, calls)

    assert len(session.timeline) == 2
    assert session.timeline.spans.external_id.tolist() == [1, 2]
    note = session.notes.get("repeated-events")
    assert note is not None and note.count == 1


def test_phases_are_counted_whatever_they_are() -> None:
    phases = np.random.default_rng(1).choice(np.frombuffer(b"XXXXXXsfiM\0BEq\xff", np.uint8), 100_000)

    assert chrome_trace._letter_counts(phases) == np.bincount(phases, minlength=256).tolist()
    assert chrome_trace._letter_counts(phases[:0]) == [0] * 256


@pytest.mark.parametrize(
    ("category", "kind"),
    [
        ("cpu_op", "OPERATOR"), ("Operator", "OPERATOR"), ("python_function", "PYTHON"), ("user_annotation", "ANNOTATION"),
        ("gpu_user_annotation", "DEVICE_ANNOTATION"), ("Kernel", "KERNEL"), ("kernel", "KERNEL"),
        ("gpu_memcpy", "MEMCPY"), ("Memcpy", "MEMCPY"), ("gpu_memset", "MEMSET"), ("cuda_runtime", "RUNTIME"),
        ("cuda_driver", "RUNTIME"), ("Runtime", "RUNTIME"), ("xpu_runtime", "RUNTIME"), ("xpu_driver", "RUNTIME"),
        ("mtia_runtime", "RUNTIME"), ("mtia_ccp_events", "KERNEL"), ("cuda_sync", "DEVICE_WAIT"),
        ("overhead", "OVERHEAD"), ("something else", "OTHER"),
    ],
)  # fmt: skip
def test_categories(tmp_path: Path, category: str, kind: str) -> None:
    session = read(tmp_path, [x("name", category, 1000, 5), x("op", "cpu_op", 1000, 9, tid=2)])

    assert kinds(session)[kind] >= 1


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16", Kind.COLLECTIVE),
        ("void vllm::cross_device_reduce_1stage<__half, 2>", Kind.COLLECTIVE),
        ("multimem_all_reduce_kernel", Kind.COLLECTIVE),
        ("hipLaunchedThing", Kind.KERNEL),
        ("reduce_kernel", Kind.KERNEL),
    ],
)
def test_collectives_are_told_by_name(tmp_path: Path, name: str, kind: Kind) -> None:
    session = read(tmp_path, [x(name, "kernel", 1000, 5, pid=0, tid=7)])

    assert session.timeline.spans.kind.tolist() == [kind]


def test_ids_above_2_to_the_63_link_and_stay_exact(tmp_path: Path) -> None:
    big = 40004068119343529983
    session = read(
        tmp_path,
        [
            x("launch", "cuda_runtime", 1, 1, correlation=big),
            x("k", "kernel", 3, 1, pid=0, tid=7, correlation=big),
        ],
    )
    t = session.timeline
    (kernel,) = t.rows(Kind.KERNEL)

    assert t.correlation(int(kernel)) == big
    assert t.spans.launch_row[kernel] >= 0


def test_an_arrow_from_inside_of_a_call_links_it(tmp_path: Path) -> None:
    arrow = {"cat": "api_op", "name": "api_op", "id": 3}
    session = read(
        tmp_path,
        [
            x("hipLaunchKernel", "cuda_runtime", 100, 20), x("k", "kernel", 150, 5, pid=0, tid=7),
            arrow | {"ph": "s", "ts": 110, "pid": 1, "tid": 1}, arrow | {"ph": "f", "ts": 150, "pid": 0, "tid": 7},
        ],
    )  # fmt: skip
    t = session.timeline

    assert t.name(int(t.spans.launch_row[t.rows(Kind.KERNEL)[0]])) == "hipLaunchKernel"


def test_whole_microseconds_as_text_are_no_ascend_trace(tmp_path: Path) -> None:
    events = [x("k1()", "", 0, 0, pid="2", tid="0") | {"ts": "8306017670485", "dur": "40"}]
    meta = {"ph": "M", "name": "process_name", "pid": "2", "args": {"name": "GPU2"}}
    (tmp_path / "t.json").write_text(json.dumps([{}, meta, *events]))
    session = load(tmp_path / "t.json")

    assert session.facts["format"] == "chrome-trace"
    assert [session.timeline.track_of(int(r)).device for r in session.timeline.device_work()] == [2]


def test_begin_and_end(tmp_path: Path) -> None:
    def edge(ph: str, ts: int, tid: int = 13, name: str = "") -> dict[str, Any]:
        return {"ph": ph, "ts": ts, "pid": 1, "tid": tid, "name": name}

    session = read(
        tmp_path,
        [edge("B", 0, name="A"), edge("B", 10, name="B"), edge("E", 20), edge("E", 30), edge("E", 40),
         edge("B", 50, name="C"), edge("B", 60, name="D"), edge("E", 65), edge("B", 5, 14, "A"), edge("E", 8, 14)],
    )  # fmt: skip
    t = session.timeline
    spans = {(t.name(i), int(t.spans.start_ns[i]), int(t.spans.dur_ns[i])) for i in range(len(t))}

    assert spans == {
        ("A", 0, 30_000),
        ("B", 10_000, 10_000),
        ("C", 50_000, 15_000),
        ("D", 60_000, 5_000),
        ("A", 5_000, 3_000),
    }
    assert {n.code: n.count for n in session.notes if n.severity == "warning"}["stray-end"] == 1
    assert session.notes.get("span-not-closed") is not None


def test_lost_device_records_do_not_stretch_the_window(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        [*CHAIN, x("lost", "kernel", 0, 0, pid=0, tid=7), x("open", "kernel", 1150, -3, pid=0, tid=7)],
    )
    t = session.timeline

    assert t.spans.end_ns.max() == 150_000
    assert session.notes.get("device-record-without-timestamp").count == 1  # type: ignore[union-attr]
    assert t.spans.dur_ns.min() >= 0


def test_memory_instants_become_allocations(tmp_path: Path) -> None:
    memory = {"ph": "i", "name": "[memory]", "ts": 1001, "pid": 1, "tid": 1, "s": "t"}
    args = {"Bytes": -512, "Addr": 99, "Total Allocated": 4096, "Device Type": 1, "Device Id": 3}
    session = read(tmp_path, [*CHAIN, memory | {"args": args}])
    table = session.timeline.allocations

    assert (table.bytes.tolist(), table.total_bytes.tolist(), table.device.tolist()) == ([-512], [4096], [3])


def test_counters_with_several_values(tmp_path: Path) -> None:
    counter = {"ph": "C", "name": "HBM", "ts": 1001, "pid": 1, "args": {"Read": 5, "Write": 7.5}}
    t = read(tmp_path, [*CHAIN, counter]).timeline

    assert {t.strings[int(n)]: float(v) for n, v in zip(t.counters.name, t.counters.value, strict=True)} == {
        "HBM Read": 5.0,
        "HBM Write": 7.5,
    }


def test_facts_hold_devices_and_rank_but_no_host(tmp_path: Path) -> None:
    session = read(
        tmp_path,
        CHAIN,
        deviceProperties=[{"id": 0, "name": "NVIDIA H100", "totalGlobalMem": 85}],
        distributedInfo={"rank": 3, "world_size": 8, "backend": "nccl"},
        host_name="secret-host",
        username="somebody",
    )

    assert session.facts["devices"]["0"]["name"] == "NVIDIA H100"
    assert session.facts["rank"] == 3
    assert "secret-host" not in json.dumps(session.facts)
    assert "somebody" not in json.dumps(session.facts)


@pytest.mark.parametrize(
    "events", [[], [{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "python"}}]]
)
def test_a_trace_without_events_says_so(tmp_path: Path, events: list[Any]) -> None:
    session = read(tmp_path, events)

    assert len(session.timeline) == 0
    assert "no-events" in session.notes


def test_the_file_name_tells_nothing(tmp_path: Path) -> None:
    text = json.dumps(CHAIN)
    (tmp_path / "a.json").write_text(text)
    (tmp_path / "picture.png").write_text("\n \n" + text)

    assert kinds(load(tmp_path / "a.json")) == kinds(load(tmp_path / "picture.png"))


# -- the whole collection -----------------------------------------------------------------------------


def trace_files(shared: Path) -> list[Path]:
    return sorted(p for p in (shared / "traces").glob("*/*") if p.name.endswith((".json", ".json.gz")))


@pytest.mark.shared
@pytest.mark.slow
def test_no_event_of_the_collection_is_lost_in_silence(shared: Path) -> None:
    """Every complete event of every file is a span or counted in a note."""
    import gzip

    seen = 0
    for file in trace_files(shared):
        data = file.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        if len(data) > 20_000_000:
            continue
        try:
            document = json.loads(data)
        except ValueError:
            continue
        events = document.get("traceEvents") if isinstance(document, dict) else document
        if not isinstance(events, list) or not any(
            isinstance(e, dict) and e.get("ph") == "X" for e in events
        ):
            continue
        if any(
            str(e.get("ts", "")).startswith('"') or isinstance(e.get("ts"), str)
            for e in events[:50]
            if isinstance(e, dict)
        ):
            continue  # Ascend and rocprof dialects have tests of their own
        session = load(file)
        complete = sum(isinstance(e, dict) and e.get("ph") == "X" and e.get("ts") is not None for e in events)
        begun = sum(isinstance(e, dict) and e.get("ph") in ("B", "b", "S") for e in events)
        dropped = sum(
            n.count
            for n in session.notes
            if n.code in ("time-out-of-range", "device-record-without-timestamp")
        )
        assert len(session.timeline) + dropped == complete + begun, file.name
        seen += 1

    assert seen >= 30


@pytest.mark.shared
@pytest.mark.parametrize("name", ["bert-h100", "qwen15-hf-h100", "sglang-decode-mi300x", "event-sync-a100"])
def test_counts_per_kind_equal_an_independent_count(shared: Path, name: str) -> None:
    import gzip

    (file,) = (shared / "traces" / name).iterdir()
    data = file.read_bytes()
    document = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)
    counted = Counter(e["cat"].lower() for e in document["traceEvents"] if e.get("ph") == "X")
    ours = kinds(load(file))

    assert ours["OPERATOR"] == counted["cpu_op"]
    assert ours["PYTHON"] == counted["python_function"]
    assert ours["KERNEL"] + ours["COLLECTIVE"] == counted["kernel"]
    assert ours["MEMCPY"] == counted["gpu_memcpy"]
    assert ours["MEMSET"] == counted["gpu_memset"]
    assert ours["RUNTIME"] == counted["cuda_runtime"] + counted["cuda_driver"]
    assert ours["DEVICE_WAIT"] == counted["cuda_sync"]
