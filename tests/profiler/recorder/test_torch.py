"""Recordings of programs that use torch: operators, phases, windows, and not being in the way."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from stallscope.profiler.kinds import Kind
from stallscope.profiler.session import Session
from stallscope.profiler.steps import find_steps
from support.recording import environment, plain, recorded, session_of

pytestmark = pytest.mark.torch
pytest.importorskip("torch", reason="torch is not installed")

ROOT = Path(__file__).resolve().parents[3]
DECODE = str(ROOT / "sample_traces" / "scripts" / "decode.py")
SMALL = ["--layers", "2", "--width", "64"]


def windows(session: Session) -> list[dict[str, object]]:
    found: list[dict[str, object]] = session.facts["windows"]
    return found


@pytest.fixture(scope="module")
def python_fault(tmp_path_factory: pytest.TempPathFactory) -> Session:
    """The sample script with 20 ms of Python after each of 16 tokens."""
    folder = tmp_path_factory.mktemp("fault")
    ended = recorded([DECODE, "--fault", "python", "--steps", "16", *SMALL], folder)
    assert ended.status == 0
    assert ended.err == ""
    return session_of(folder)


def test_the_samples_name_the_python_that_runs_between_the_steps(python_fault: Session) -> None:
    """16 x 20 ms, each between two forward passes: the samples put it there and call it by its name."""
    timeline = python_fault.timeline
    rows = [
        int(r)
        for r in timeline.rows(Kind.PYTHON)
        if timeline.name(int(r)).startswith("postprocess (decode.py:")
    ]
    sampled = timeline.spans.dur_ns[rows]
    source = Path(DECODE).read_text(encoding="utf-8").splitlines()

    assert 0.9 * 320e6 < sampled.sum() < 1.2 * 320e6
    lines = {source[timeline.arguments(r)["line"] - 1].strip() for r in rows}
    body = source[source.index('    text = ""') : source.index("    return text")]
    assert lines <= {line.strip() for line in body}
    callers = {timeline.name(a).split(" ")[0] for r in rows for a in timeline.ancestors(r)}
    assert {"generate", "main"} <= callers


def test_phases_and_operators_of_the_sample(python_fault: Session) -> None:
    steps = find_steps(python_fault.timeline)
    by_phase = {p: sum(s.phase == p for s in steps) for p in ("prefill", "decode")}

    assert by_phase == {"prefill": 2, "decode": 18}  # with the warm-up of one prefill and two tokens
    timeline = python_fault.timeline
    decode = next(int(r) for r in timeline.rows(Kind.ANNOTATION) if timeline.name(int(r)) == "decode")
    assert timeline.arguments(decode) == {"module": "TinyLLM", "batch": 1, "tokens": 1}
    last = max(windows(python_fault), key=lambda w: int(str(w["start_ns"])))
    inside = [s for s in steps if int(str(last["start_ns"])) <= s.start_ns < int(str(last["end_ns"]))]
    mm = timeline.match_names(lambda n: n == "aten::mm")
    # 2 layers of 7 projections and the head, in every step
    for step in inside:
        within = (timeline.spans.start_ns >= step.start_ns) & (timeline.spans.start_ns < step.end_ns)
        assert int((mm & within).sum()) == 15
    assert len(inside) >= 17


def test_operators_lie_inside_the_marks_around_them(python_fault: Session) -> None:
    """Two clocks, one axis: an operator of a forward pass never sticks out of the pass's mark."""
    timeline = python_fault.timeline
    spans = timeline.spans
    uncertainty = python_fault.facts["clock"]["uncertainty_ns"]
    marks = [int(r) for r in timeline.rows(Kind.ANNOTATION) if timeline.name(int(r)) in ("prefill", "decode")]
    embeddings = np.flatnonzero(timeline.match_names(lambda n: n == "aten::embedding"))
    starts, ends = spans.start_ns[marks], spans.end_ns[marks]

    at = np.searchsorted(starts, spans.start_ns[embeddings] + uncertainty, side="right") - 1
    assert (spans.start_ns[embeddings] >= starts[at] - uncertainty).all()
    assert (spans.end_ns[embeddings] <= ends[at] + uncertainty).all()
    assert len(embeddings) >= 18


def test_our_own_work_is_overhead_and_not_a_gap_of_the_program(python_fault: Session) -> None:
    timeline = python_fault.timeline
    rows = timeline.rows(Kind.OVERHEAD)
    ours = [int(r) for r in rows if timeline.category(int(r)) == "recorder"]

    assert {timeline.name(r) for r in ours} >= {"stallscope opens a window", "stallscope closes a window"}
    assert all(timeline.track_of(r).role == "label" for r in ours)
    assert sum(int(timeline.spans.dur_ns[r]) for r in ours) == python_fault.facts["overhead"]["windows_ns"]
    assert not timeline.match_names(lambda n: "discarded" in n).any()


def test_facts_of_the_framework(python_fault: Session) -> None:
    assert python_fault.facts["torch"] == python_fault.facts["framework"]["torch"]
    assert python_fault.facts["framework"]["build"] in ("cpu", "cuda", "hip")
    assert python_fault.facts["framework"]["torch_threads"] == 1


def test_a_window_of_so_many_steps(tmp_path: Path) -> None:
    recorded([DECODE, "--steps", "20", *SMALL], tmp_path, options=["--window", "5:4", "--python", "off"])
    session = session_of(tmp_path)

    assert sum(int(str(w["steps"])) for w in windows(session)) == 4
    steps = find_steps(session.timeline)
    covered = [
        i
        for i, s in enumerate(steps)
        if any(int(str(w["start_ns"])) <= s.start_ns < int(str(w["end_ns"])) for w in windows(session))
    ]
    assert covered == [5, 6, 7, 8]
    assert len(session.timeline.rows(Kind.PYTHON)) == 0


def test_every_call_inside_the_window(tmp_path: Path) -> None:
    recorded([DECODE, "--steps", "3", *SMALL], tmp_path, options=["--python", "calls"])
    timeline = session_of(tmp_path).timeline
    names = {timeline.name(int(r)) for r in timeline.rows(Kind.PYTHON)}

    assert any("tiny_llm.py" in n and n.endswith(": rotate") for n in names)
    assert not any("recorder" in n or "autograd/profiler.py" in n for n in names)


def test_a_program_without_modules_is_recorded_from_the_import_on(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import torch\nx = torch.ones(8, 8)\nfor _ in range(9):\n    x = x @ x\n"
    )
    recorded(["script.py"], tmp_path)
    session = session_of(tmp_path)

    assert int(session.timeline.match_names(lambda n: n == "aten::mm").sum()) == 9
    assert [w["provisional"] for w in windows(session)] == [True]


NOT_IN_THE_WAY = """
import copy, io, pickle, sys, traceback
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    def forward(self, x):
        return self.b(self.a(x))

torch.manual_seed(0)
net, x = Net(), torch.ones(2, 4)
print(net(x).sum().item())
print(nn.Module.__call__.__name__, nn.Module.__call__.__qualname__)
buffer = io.BytesIO()
torch.save(copy.deepcopy(net).state_dict(), buffer)
print(sorted(torch.load(io.BytesIO(buffer.getvalue()))))
print(len(net._forward_hooks), len(net._forward_pre_hooks))

import torch._dynamo as dynamo
graphs = []
def backend(graph, inputs):
    graphs.append(len(list(graph.graph.nodes)))
    return graph.forward
compiled = torch.compile(net, backend=backend, fullgraph=True)
print(compiled(x).sum().item(), graphs)
compiled(torch.ones(3, 4)), compiled(torch.ones(3, 4))
print(graphs, dict(dynamo.utils.counters["graph_break"]))
@torch.compile(backend=backend, fullgraph=True)
def step(x):
    return net(x) + 1
print(step(x).sum().item(), graphs)
print(torch.jit.trace(net, x)(x).sum().item())
print(torch.fx.symbolic_trace(net).graph)
threads = torch.get_num_threads()
print(torch.autograd._profiler_enabled() in (True, False), sys.getprofile(), sys.gettrace())
class Bad(nn.Module):
    def forward(self, x):
        raise ValueError("inside forward")
Bad()(x)
"""


def test_torch_code_cannot_tell_either(tmp_path: Path) -> None:
    """Compilation, tracing, copies, tracebacks: printed results equal plain Python's, word for word."""
    (tmp_path / "script.py").write_text(NOT_IN_THE_WAY)

    ours, theirs = recorded(["script.py"], tmp_path), plain(["script.py"], tmp_path)

    assert ours.out == theirs.out
    assert ours.err == theirs.err
    assert ours.status == theirs.status == 1


OWN_PROFILER = """
import json, sys, threading
import torch
from torch.profiler import ProfilerActivity, profile, schedule
x = torch.ones(4, 4)
net = torch.nn.Linear(4, 4)

def count(path, name):
    return sum(e.get("name") == name for e in json.load(open(path))["traceEvents"])

for _ in range(3):
    net(x)
with profile(activities=[ProfilerActivity.CPU]) as p:
    x.neg(); x.neg()
p.export_chrome_trace("own.json")
print(count("own.json", "aten::neg"), [e.key for e in p.key_averages()])
net(x)
done = []
with profile(activities=[ProfilerActivity.CPU], schedule=schedule(wait=1, warmup=1, active=2, repeat=1),
             on_trace_ready=lambda q: (q.export_chrome_trace("sched.json"), done.append(1))) as p:
    for _ in range(5):
        x.abs(); p.step()
print(done, count("sched.json", "aten::abs"))
def elsewhere():
    with profile(activities=[ProfilerActivity.CPU]) as q:
        x.cos()
t = threading.Thread(target=elsewhere); t.start(); t.join()
net(x); net(x)
"""


def test_a_script_with_a_profiler_of_its_own(tmp_path: Path) -> None:
    """Theirs sees what it saw without us; ours gives way, comes back, and keeps a copy of what they exported."""
    (tmp_path / "script.py").write_text(OWN_PROFILER)
    theirs = plain(["script.py"], tmp_path, KINETO_LOG_LEVEL="6")
    ours = recorded(["script.py"], tmp_path)

    assert ours == theirs
    session = session_of(tmp_path)
    count = {
        n: int(session.timeline.match_names(lambda x, n=n: x == n).sum())
        for n in ("aten::linear", "aten::neg")
    }
    assert count == {"aten::linear": 6, "aten::neg": 2}
    assert "recorder-fault" not in session.notes
    assert "second-profiler" in session.notes


FORKING = """
import os, sys
import torch
net = torch.nn.Linear(4, 4)
x = torch.ones(4, 4)
net(x); net(x)
pid = os.fork()
for _ in range(3 if pid else 5):
    net(x)
if pid == 0:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def test_a_fork_in_the_middle_of_a_window(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FORKING)

    assert recorded(["script.py"], tmp_path) == plain(["script.py"], tmp_path)
    session = session_of(tmp_path)
    timeline = session.timeline
    linear = np.flatnonzero(timeline.match_names(lambda n: n == "aten::linear"))
    pids = [timeline.track_of(int(r)).process for r in linear]
    main, child = (p["pid"] for p in session.facts["processes"])
    assert (pids.count(main), pids.count(child)) == (5, 5)
    assert "recorder-fault" not in session.notes


def test_sigterm_in_the_middle_of_decoding_keeps_the_window(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        "import torch\nnet = torch.nn.Linear(64, 64)\nx = torch.ones(1, 64)\n"
        "for i in range(10**9):\n    net(x)\n    if i == 500:\n        print('up', flush=True)\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "stallscope", "run", "-q", "--no-report", "-o", "run.stallscope", "script.py"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        env=environment(),
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"up\n"
    child.terminate()

    assert child.wait(90) == -signal.SIGTERM
    session = session_of(tmp_path)
    assert int(session.timeline.match_names(lambda n: n == "aten::linear").sum()) > 400
    assert "process-killed" not in session.notes


GENERATE = """
import os
os.environ["HF_HUB_OFFLINE"] = "1"
import torch
from transformers import LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(hidden_size=32, num_hidden_layers=1, num_attention_heads=2,
    num_key_value_heads=2, intermediate_size=64, vocab_size=64)).eval()
model.generation_config.pad_token_id = 0
model.generation_config.eos_token_id = None
ids = torch.arange(1, 9).reshape(1, 8)
with torch.no_grad():
    for prompt in (ids, ids[:, :1]):
        out = model.generate(prompt, max_new_tokens=5, min_new_tokens=5, do_sample=False,
                             attention_mask=torch.ones_like(prompt))
        print(out.shape)
"""


@pytest.mark.slow
def test_hugging_face_generate(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    (tmp_path / "script.py").write_text(GENERATE)

    ended = recorded(["script.py"], tmp_path)

    assert (ended.status, ended.out) == (0, "torch.Size([1, 13])\ntorch.Size([1, 6])\n")
    session = session_of(tmp_path)
    steps = [s.phase for s in find_steps(session.timeline)]
    assert steps == (["prefill"] + ["decode"] * 4) * 2
    timeline = session.timeline
    names = [
        timeline.name(int(r)) for r in timeline.rows(Kind.ANNOTATION) if timeline.category(int(r)) == "mark"
    ]
    assert names.count("generate") == 2
    assert "recorder-fault" not in session.notes
    assert json.dumps(session.facts["transformers"])
