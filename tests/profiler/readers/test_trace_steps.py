"""Steps that names tell are loaded without the rest, and are those of the whole."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stallscope.profiler import kernels
from stallscope.profiler.errors import OptionError
from stallscope.profiler.notes import Notes
from stallscope.profiler.part import part
from stallscope.profiler.readers import load, partial
from stallscope.profiler.readers.event_fallback import PythonEngine
from stallscope.profiler.readers.event_part import Part, Sieve
from stallscope.profiler.readers.partial import load_part
from stallscope.profiler.readers.trace_events import tokenise_chunks
from stallscope.profiler.steps import find_steps
from support.parts import differences

Event = dict[str, Any]


@pytest.fixture(autouse=True)
def _every_file_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial, "SMALL", 0)


def span(name: str, ts: float, dur: float, cat: str = "cpu_op", tid: Any = 1, **args: Any) -> Event:
    return {"ph": "X", "cat": cat, "name": name, "pid": 1, "tid": tid, "ts": ts, "dur": dur, "args": args}


def written(path: Path, events: list[Event], **more: Any) -> Path:
    text = json.dumps({**more, "traceEvents": events}).encode()
    path.write_bytes(gzip.compress(text, 1) if path.suffix == ".gz" else text)
    return path


def mark(name: str, ts: float, dur: float, tid: Any = 1) -> Event:
    return span(name, ts, dur, "user_annotation", tid)


def call(name: str, ts: float, dur: float) -> Event:
    return span(name, ts, dur, "python_function")


KERNELS = ["embed", *("qkv", "attend", "mlp") * 3, "argmax"]


def kernel(number: int, ts: float) -> list[Event]:
    launch = span("cudaLaunchKernel", ts, 2, "cuda_runtime", correlation=number)
    work = span(
        KERNELS[number % len(KERNELS)],
        ts + 7,
        9,
        "kernel",
        "stream 7",
        correlation=number,
        stream=7,
        device=0,
    ) | {"pid": 0}
    return [launch, work]


WORK = [event for i in range(900) for event in (span(f"op{i % 7}", 1000 + i * 20, 15), *kernel(i + 1, 1002 + i * 20))]  # fmt: skip
ENDS = 1000 + 900 * 20


def steps_of(path: Path, steps: str) -> tuple[list[str], bool]:
    """How the steps loaded from the file differ from those cut out of the whole, and whether it was read whole."""
    try:
        whole = part(load(path), steps=steps)
    except OptionError as error:
        with pytest.raises(OptionError) as again:
            load_part(path, steps=steps)
        said, expected = (str(e).partition(", which ends")[0].rstrip(".") for e in (again.value, error))
        assert said == expected
        return [], False
    cut = load_part(path, steps=steps)
    return differences(whole.timeline, cut.timeline), "part-read-whole" in cut.notes


def check(path: Path, steps: str, *, read_whole: bool) -> None:
    assert steps_of(path, steps) == ([], read_whole)


NAMED = {
    "ProfilerStep": [mark(f"ProfilerStep#{i + 3}", 1000 + i * 2000, 1990) for i in range(9)],
    "an engine's marks": [
        mark(f"execute_context_0(0)_generation_{i + 1}({i + 1})", 1100 + i * 2000, 1500) for i in range(9)
    ],
    "stages": [
        mark(f"gpu_model_runner: {stage}", 1000 + i * 2000 + k * 600, 500)
        for i in range(9)
        for k, stage in enumerate(("preprocess", "forward", "sample"))
    ],
    "a loop of marks": [
        mark("decode loop", 900, 19_000),
        *(mark("decode", 1000 + i * 2000, 1500) for i in range(9)),
    ],
    "marks in steps": [
        *(mark(f"ProfilerStep#{i}", 1000 + i * 2000, 1990) for i in range(9)),
        *(mark("decode", 1100 + i * 2000, 1500) for i in range(9)),
    ],
    "passes of a pipeline": [
        mark("execute_diffusion_1_512x512", 900, 19_000),
        *(call("nn.Module: Transformer_0", 1000 + i * 2000, 1800) for i in range(9)),
        *(call("nn.Module: Block_0", 1100 + i * 2000, 900) for i in range(9)),
    ],
    "as the device saw them": [
        span(f"decode step {i}", 1000 + i * 2000, 1500, "gpu_user_annotation", 7) for i in range(9)
    ],
}


@pytest.mark.parametrize("kind", NAMED)
@pytest.mark.parametrize("steps", ["0..0", "3..4", "..2", "7..", "..", "8..30", "9..12"])
def test_steps_that_names_tell(tmp_path: Path, kind: str, steps: str) -> None:
    path = written(tmp_path / "t.json.gz", [*WORK, *NAMED[kind]])
    assert len(find_steps(load(path).timeline)) == 9
    check(path, steps, read_whole=False)


def test_only_the_steps_are_held(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", [*WORK, *NAMED["ProfilerStep"]])
    cut = load_part(path, steps="4..4")
    note = cut.notes.get("outside-window")

    assert len(cut.timeline) < len(WORK) / 8
    assert note is not None and note.count >= 1
    assert cut.content is not None


@pytest.mark.parametrize("kind", NAMED)
def test_without_a_compiler(tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "core", None)
    check(written(tmp_path / "t.json", [*WORK, *NAMED[kind]]), "3..4", read_whole=False)


UNNAMED = {
    "only their work repeats": [],
    "a module that is called again": [
        *(call("nn.Module: Net_0", 1000 + i * 2000, 1800) for i in range(9)),
        *(call("nn.Module: Block_0", 1100 + i * 2000, 900) for i in range(9)),
    ],
    "a loop that may split into passes": [
        mark("ProfilerStep#1", 900, 19_000),
        *(call("nn.Module: Net_0", 1000 + i * 2000, 1800) for i in range(9)),
        *(call("nn.Module: Block_0", 1100 + i * 2000, 900) for i in range(9)),
    ],
}


@pytest.mark.parametrize("kind", UNNAMED)
def test_steps_that_follow_from_the_work_are_loaded_with_all_of_it(tmp_path: Path, kind: str) -> None:
    path = written(tmp_path / "t.json", [*WORK, *UNNAMED[kind]])
    cut = load_part(path, steps="0..0")

    note = cut.notes.get("part-read-whole")
    assert note is not None and note.severity == "info" and "no name in the trace tells" in note.text
    assert differences(part(load(path), steps="0..0").timeline, cut.timeline) == []


def test_a_mark_that_ended_with_its_caller(tmp_path: Path) -> None:
    """The outer mark says that it holds the second one; its caller, which no name tells, was over before."""
    path = written(
        tmp_path / "t.json",
        [*WORK, call("run", 1900, 3000), mark("decode", 2000, 9000), mark("prefill", 6000, 2000)],
    )
    assert [s.phase for s in find_steps(load(path).timeline)] == ["decode", "prefill"]
    check(path, "1..1", read_whole=True)
    check(path, "0..0", read_whole=True)


def test_a_mark_that_outlived_nobody(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.json",
        [*WORK, call("run", 1900, 8000), mark("decode", 2000, 7000), mark("decode", 6000, 2000)],
    )
    assert len(find_steps(load(path).timeline)) == 1
    check(path, "0..0", read_whole=False)


def test_a_pass_that_ended_with_its_caller(tmp_path: Path) -> None:
    events = [*WORK, *NAMED["passes of a pipeline"], call("main", 4900, 1000)]
    path = written(tmp_path / "t.json", [*events, call("nn.Module: Block_0", 5000, 700)])
    check(path, "2..2", read_whole=True)


def test_steps_and_a_window_and_a_rank(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.json", [*WORK, *NAMED["ProfilerStep"]], distributedInfo={"rank": 1, "world_size": 2}
    )
    both = load_part(path, steps="2..5", window="5ms..7ms", rank=1)
    assert (
        differences(part(load(path), steps="2..5", window="5ms..7ms", rank=1).timeline, both.timeline) == []
    )
    assert 0 < len(both.timeline) < 400
    with pytest.raises(OptionError, match=r"the chosen steps do not reach into the window 15ms\.\."):
        load_part(path, steps="2..5", window="15ms..")


@pytest.mark.parametrize("steps", ["5", "a..b", "-1..2", "8..5", "\u00b2..3", "9999999999999..", "1.5..2"])
def test_what_is_no_range_is_said_before_the_file_is_read(tmp_path: Path, steps: str) -> None:
    path = tmp_path / "none.json"
    path.write_text("no trace at all")
    with pytest.raises(OptionError, match="--steps"):
        load_part(path, steps=steps)


# -- what the tokeniser keeps ------------------------------------------------------------------------


@pytest.mark.parametrize("compiled", [True, False])
def test_a_name_is_asked_for_once(tmp_path: Path, compiled: bool) -> None:
    if compiled and kernels.core is None:
        pytest.skip("no compiled core here")
    asked: list[str] = []

    def wanted(name: str) -> bool:
        asked.append(name)
        return name.startswith("Profiler")

    path = written(tmp_path / "t.json", [*WORK, *NAMED["ProfilerStep"], span("caf\u00e9 \"x\"", 5, 1), {"ph": "X", "ts": 1}])  # fmt: skip
    held = Part(-5, -4, names=wanted)
    notes = Notes()
    engine = None if compiled else Sieve(PythonEngine(notes), held, notes)
    text = path.read_bytes()
    chunks = [text[i : i + 997] for i in range(0, len(text), 997)]
    raw = tokenise_chunks(chunks, path, notes=notes, part=held, engine=engine)

    assert len(raw) == 9 and {raw.strings[int(c)][:13] for c in raw.name} == {"ProfilerStep#"}
    assert sorted(asked) == sorted(set(asked)) and 'caf\u00e9 "x"' in asked
    assert raw.outside == len(WORK) + 2


def test_a_fault_in_the_question_reaches_the_caller(tmp_path: Path) -> None:
    def wanted(_name: str) -> bool:
        raise ZeroDivisionError

    path = written(tmp_path / "t.json", WORK)
    with pytest.raises(ZeroDivisionError):
        tokenise_chunks([path.read_bytes()], path, part=Part(-5, -4, names=wanted))


# -- any trace ---------------------------------------------------------------------------------------

ticks = st.integers(0, 4000).map(lambda tick: tick * 5 + 0.5)
lengths = st.one_of(st.integers(0, 40), st.integers(0, 4000)).map(lambda tick: tick * 5)
any_span = st.builds(
    span,
    st.sampled_from(
        ["decode", "decode", "prefill", "ProfilerStep#1", "ProfilerStep#2", "gpu_model_runner: forward",
         "gpu_model_runner: sample", "execute_diffusion_1_8x8", "nn.Module: A_0", "nn.Module: B_0", "x", "y"]
    ),
    ticks,
    lengths,
    st.sampled_from(["cpu_op", "user_annotation", "user_annotation", "python_function", "gpu_user_annotation"]),
    st.integers(1, 2),
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    events=st.lists(any_span, min_size=1, max_size=14),
    first=st.integers(0, 3),
    more=st.integers(0, 2),
    starts=st.lists(ticks, max_size=8),
)
def test_steps_of_any_trace(
    tmp_path: Path, events: list[Event], first: int, more: int, starts: list[float]
) -> None:
    work = [event for i, ts in enumerate(starts) for event in kernel(i + 1, ts)]
    path = written(tmp_path / "t.json", [*events, *work])
    assert steps_of(path, f"{first}..{first + more}")[0] == []


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "read_whole"),
    [
        ("sglang-decode-mi300x", False), ("bert-h100", False), ("cudagraph-callables-5080", False),
        ("nograph-manual-5080", False), ("replay-mi300x", False), ("ns-float-v100", False),
        ("vllm-piecewise-mi300x", False), ("a100-launches-no-kernels", True), ("norm-layers-mi300x", True),
    ],
)  # fmt: skip
def test_steps_of_real_traces(shared: Path, name: str, read_whole: bool) -> None:
    path = min((shared / "traces" / name).glob("*.json*"))
    count = len(find_steps(load(path).timeline))
    for steps in (f"{count // 2}..{count // 2}", f"{count - 1}.."):
        check(path, steps, read_whole=read_whole)
