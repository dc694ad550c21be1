"""torch_npu's own offline parser, from the real wheel, on raw data of ours; our reader on what it writes."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import load
from stallscope.profiler.recorder.offline import SHORT_ATTEMPTS
from stallscope.profiler.session import Session
from support import ascend_raw, wheels
from support.ascend_raw import Kernel, Op
from support.offline_parser import analyse

WALL = 1_700_000_000_000_000_000
PID, TID = 77, 78


def operators() -> list[Op]:
    """Six steps of a linear layer and an activation, 100 us apart."""
    out = []
    for start in range(10**9, 10**9 + 6 * 100_000, 100_000):
        out.append(Op("aten::linear", start, start + 60_000, TID, "4,64;64,64", "float;float"))
        out.append(Op("aten::addmm", start + 10_007, start + 50_003, TID, "64;4,64", "float;float"))
        out.append(Op("aten::relu", start + 70_000, start + 80_000, TID, "4,64", "float"))
    return out


def lagging_operators() -> list[Op]:
    """Four steps of five operators each; the device needs longer for each than the host, so it falls behind."""
    out = []
    for step in range(4):
        begin = 10**9 + step * 110_000
        out.append(Op(f"ProfilerStep#{step + 5}", begin, begin + 100_000, TID))
        for start in range(begin + 5_000, begin + 85_000, 16_000):
            out.append(Op("aten::addmm", start, start + 8_000, TID, "64;4,64", "float;float"))
    return out


def parse(base: Path, ops: list[Op]) -> tuple[Path, str]:
    """Write a recording and let the wheel's parser analyse it; the folder, and what was printed."""
    sources = wheels.torch_npu()
    if sources is None:
        pytest.skip(
            f"the torch_npu {wheels.TORCH_NPU} wheel is not here; `{wheels.COMMAND}` downloads it (43 MB)"
        )
    folder = base / f"host_{PID}_20260101000000000_ascend_pt"
    ascend_raw.write_recording(folder, ops, PID, WALL)
    place = ascend_raw.install_msprof(base / "cann")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", f"{place}{os.pathsep}{os.environ.get('PATH', '')}")
        # now and then it loses track of a task of its own and says so; `offline` starts it again, too
        for _ in range(SHORT_ATTEMPTS):
            said = analyse(sources, folder)
            if "run failed" not in said:
                break
    return folder, said


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder after the parser ran, and what it printed."""
    return parse(tmp_path_factory.mktemp("parser"), operators())


@pytest.fixture(scope="module")
def stepped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recording of several steps after the parser ran."""
    return parse(tmp_path_factory.mktemp("steps"), lagging_operators())[0]


@pytest.fixture(scope="module")
def session(parsed: tuple[Path, str]) -> Session:
    return load(parsed[0])


def kernels() -> list[Kernel]:
    return ascend_raw.kernels_of([op for op in operators() if op.name in ascend_raw.KERNEL_OF], WALL)


def test_the_parser_ends_and_writes_what_we_look_for(parsed: tuple[Path, str]) -> None:
    folder, said = parsed
    output = folder / "ASCEND_PROFILER_OUTPUT"

    assert "[ERROR]" not in said, said
    names = {p.name for p in output.iterdir()}
    assert {"analyse.done", "trace_view.json", "kernel_details.csv", "step_trace_time.csv"} <= names


def test_every_kernel_arrives_with_its_exact_time(session: Session) -> None:
    timeline = session.timeline
    rows = [int(r) for r in timeline.rows(Kind.KERNEL)]
    found = [(timeline.name(r), timeline.origin_ns + int(timeline.spans.start_ns[r]), int(timeline.spans.dur_ns[r]))
             for r in rows]  # fmt: skip

    assert found == [(k.name, k.start_ns, k.dur_ns) for k in kernels()]


def test_every_kernel_has_the_call_that_launched_it(session: Session) -> None:
    timeline = session.timeline
    rows = timeline.rows(Kind.KERNEL)
    launches = timeline.spans.launch_row[rows]

    assert (launches >= 0).all()
    starts = [timeline.origin_ns + int(timeline.spans.start_ns[r]) for r in launches]
    assert starts == [k.launch_ns for k in kernels()]
    assert {timeline.name(int(r)) for r in launches} == {"Node@launch"}


def test_operators_arrive_with_their_exact_times_and_shapes(session: Session) -> None:
    timeline = session.timeline
    rows = [int(r) for r in timeline.rows(Kind.OPERATOR) if timeline.name(int(r)) == "aten::addmm"]
    starts = timeline.spans.start_ns[rows] + timeline.origin_ns

    expected = np.array([op.start_ns + WALL for op in operators() if op.name == "aten::addmm"])
    assert (starts == expected).all()
    assert timeline.arguments(rows[0])["Input Dims"] == [[64], [4, 64]]


def test_core_metrics_and_the_chip_are_read(session: Session) -> None:
    chip = session.facts["devices"]["0"]
    assert (chip["measured_aic_mhz"], chip["aic_mhz"], chip["aic_cores"]) == (
        ascend_raw.MHZ,
        ascend_raw.MHZ,
        20,
    )
    table = session.facts["ascend"]["ranks"][0]["op_statistic"]
    assert {(row["type"], row["count"], row["total_ns"]) for row in table} == {
        ("MatMulV3", 6, 6 * ascend_raw.KERNEL_NS),
        ("Relu", 6, 6 * ascend_raw.KERNEL_NS),
    }


def test_step_times_are_those_of_the_parser(stepped: Path) -> None:
    """Also where the device lags behind the host, and without the table that names each kernel's step."""
    whole = load(stepped).facts["ascend"]["ranks"][0]
    (stepped / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv").rename(stepped / "kept.csv")
    alone = load(stepped).facts["ascend"]["ranks"][0]
    (stepped / "kept.csv").rename(stepped / "ASCEND_PROFILER_OUTPUT" / "kernel_details.csv")

    told = whole["step_trace_time"]
    assert [row["step"] for row in told] == [5, 6, 7, 8]
    assert sum(row["computing_ns"] for row in told) == 20 * ascend_raw.KERNEL_NS
    for facts in (whole, alone):
        assert [row["step"] for row in facts["steps"]] == [5, 6, 7, 8]
        for row, own in zip(told, facts["steps"], strict=True):
            for key in ("computing_ns", "communication_ns", "free_ns"):
                assert own[key] == pytest.approx(row[key], abs=1_000, rel=0), (row["step"], key)
