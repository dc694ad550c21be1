"""The fake torch_npu is what the table of expectations says, and behaves where it matters as the real one is known to."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from contract import torch_npu_contract as contract

from support import npu
from support.recording import environment

MODULES = {
    contract.PROFILER: "torch_npu.profiler.profiler",
    contract.CONFIG: "torch_npu.profiler.experimental_config",
    contract.CONSTANT: "torch_npu.profiler.analysis.prof_common_func._constant",
    contract.NPU: "torch_npu.npu",
    "torch_npu/npu/mstx.py": "torch_npu.npu.mstx",
    "torch_npu/npu/utils.py": "torch_npu.npu",
}
pytestmark = pytest.mark.torch
pytest.importorskip("torch", reason="torch is not installed")


def in_child(code: str, **env: str) -> str:
    """What code prints in a process that finds the fake."""
    variables = environment(PYTHONPATH=str(npu.FAKE), TORCH_DEVICE_BACKEND_AUTOLOAD="0", **env)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=variables, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_its_signatures_are_those_of_the_table() -> None:
    names = [(f.name, MODULES[f.file]) for f in contract.FUNCTIONS if f.file in MODULES]
    code = (
        "import inspect, importlib, json, functools\n"
        f"out = {{}}\nfor name, module in {names!r}:\n"
        "    found = functools.reduce(getattr, name.split('.'), importlib.import_module(module))\n"
        "    out[name] = str(inspect.signature(found))\nprint(json.dumps(out))"
    )
    found = json.loads(in_child(code))

    for function in contract.FUNCTIONS:
        if function.file in MODULES and function.signature != "(self)":
            assert found[function.name] == str(function.python_signature())


def test_it_refuses_what_the_real_one_refuses() -> None:
    code = (
        "from torch_npu.profiler import tensorboard_trace_handler\n"
        "try:\n    tensorboard_trace_handler(folder='x')\nexcept TypeError as error:\n    print(error)"
    )
    assert "unexpected keyword argument 'folder'" in in_child(code)


def test_it_prints_errors_and_goes_on() -> None:
    code = (
        "from torch_npu.profiler import profile, _ExperimentalConfig\n"
        "p = profile(experimental_config=_ExperimentalConfig())\np.start()\nprint('went on')"
    )
    printed = in_child(code, FAKE_NPU_FAILS="start")
    assert "[ERROR]" in printed
    assert printed.endswith("went on\n")


@pytest.mark.parametrize(("mode", "error"), [("libhccl", "OSError"), ("conflict", "RuntimeError")])
def test_its_import_fails_as_the_real_one_does(mode: str, error: str) -> None:
    code = "try:\n    import torch_npu\nexcept Exception as error:\n    print(type(error).__name__, error)"
    printed = in_child(code, FAKE_TORCH_NPU=mode)
    assert printed.startswith(error)
    assert {"libhccl": "libhccl.so", "conflict": "ERR00007"}[mode] in printed


def test_every_function_of_the_table_is_in_the_fake_or_named_as_left_out() -> None:
    left_out = {f.name for f in contract.FUNCTIONS if f.file not in MODULES}
    assert left_out == {"ProfPathCreator.init"}
    assert Path(npu.FAKE, "torch_npu", "profiler", "_profiler_path_creator.py").is_file()
