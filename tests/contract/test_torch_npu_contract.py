"""The table of what we expect of torch_npu against the sources of the real wheel, which is never imported."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from contract import torch_npu_contract as contract
from contract.source import (
    attributes_set,
    constant_differences,
    differences,
    find,
    names_of,
    value,
)

from stallscope.profiler.recorder.backends import npu
from support import wheels


@pytest.fixture(scope="module")
def wheel() -> Path:
    folder = wheels.torch_npu()
    if folder is None:
        pytest.skip(
            f"the torch_npu {wheels.TORCH_NPU} wheel is not here; `{wheels.COMMAND}` downloads it (43 MB)"
        )
    return folder


@pytest.mark.parametrize("function", contract.FUNCTIONS, ids=lambda f: f.name)
def test_a_function_takes_what_we_pass(wheel: Path, function: contract.Function) -> None:
    assert not differences(wheel, function), differences(wheel, function)


@pytest.mark.parametrize("constants", contract.CONSTANTS, ids=lambda c: c.name)
def test_strings_are_spelled_as_we_spell_them(wheel: Path, constants: contract.Constants) -> None:
    assert not constant_differences(wheel, constants), constant_differences(wheel, constants)


@pytest.mark.parametrize("file", contract.EXPORTS)
def test_a_module_offers_the_names_we_take(wheel: Path, file: str) -> None:
    missing = [n for n in contract.EXPORTS[file] if n not in names_of(wheel / file)]
    assert not missing, f"{file} no longer offers {', '.join(missing)}"


@pytest.mark.parametrize(("file", "name"), contract.ATTRIBUTES)
def test_a_class_keeps_its_state_where_we_look(wheel: Path, file: str, name: str) -> None:
    expected = contract.ATTRIBUTES[file, name]
    missing = [a for a in expected if a not in attributes_set(wheel / file, name)]
    assert not missing, f"{name} in {file} no longer sets {', '.join(missing)}"


@pytest.mark.parametrize("pattern", contract.PATTERNS, ids=lambda p: p.meaning[:40])
def test_a_behaviour_we_build_on_is_still_there(wheel: Path, pattern: contract.Pattern) -> None:
    text = (wheel / pattern.file).read_text(encoding="utf-8-sig")
    missing = [w for w in pattern.words if w not in text]
    assert not missing, (
        f"{pattern.file} no longer holds {missing[0]!r}: check whether it is still so that {pattern.meaning}"
    )


@pytest.mark.parametrize("name", ["print_info_msg", "print_warn_msg", "print_error_msg"])
def test_messages_go_through_the_print_of_their_module(wheel: Path, name: str) -> None:
    """We put a `print` of ours into that module while a window opens or closes."""
    node = find(wheel / contract.CONSTANT, name)
    assert node is not None
    called = {n.func.id for n in ast.walk(node) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert "print" in called, f"{name} no longer prints"
    assert "print" not in names_of(wheel / contract.CONSTANT)


@pytest.mark.parametrize(
    ("file", "struct"), [("_torch_op_bean.py", contract.OP_RANGE), ("_op_mark_bean.py", contract.OP_MARK)]
)
def test_records_have_the_layout_the_fake_writes(wheel: Path, file: str, struct: str) -> None:
    text = (wheel / "torch_npu/profiler/analysis/prof_bean" / file).read_text(encoding="utf-8-sig")
    assert f'CONSTANT_STRUCT = "{struct}"' in text


def test_the_recorder_uses_nothing_that_is_not_in_the_table() -> None:
    levels = next(c for c in contract.CONSTANTS if c.name == "ProfilerLevel").values
    metrics = next(c for c in contract.CONSTANTS if c.name == "AiCMetrics").values

    assert set(npu.LEVELS) <= set(levels)
    assert set(npu.METRICS) <= set(metrics)
    for name in ("profile.__init__", "_ExperimentalConfig.__init__", "tensorboard_trace_handler"):
        assert set(npu.KEYWORDS[name]) <= {p.name for p in contract.function(name).parameters()}
    assert set(npu.BLOCKING_VARIABLES) == {"PROFILER_SAMPLECONFIG", "PROFILING_MODE"}


def changed(tmp_path: Path, source: str) -> Path:
    path = tmp_path / contract.PROFILER
    path.parent.mkdir(parents=True)
    path.write_text(source)
    return tmp_path


HANDLER = contract.function("tensorboard_trace_handler")


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "def tensorboard_trace_handler(dir_name=None, analyse_flag=True): ...",
            "has the parameter 'analyse_flag' where 'worker_name' was",
        ),
        (
            "def tensorboard_trace_handler(dir_name=None, worker_name=None, analyse_flag=False, async_mode=False): ...",
            "has analyse_flag=False where True was the default",
        ),
        (
            "def tensorboard_trace_handler(dir_name=None, worker_name=None, analyse_flag=True): ...",
            "has other parameters",
        ),
        ("def handler(): ...", "is gone"),
    ],
)
def test_a_changed_signature_is_named_in_a_sentence(tmp_path: Path, source: str, said: str) -> None:
    sentence = differences(changed(tmp_path, source), HANDLER)
    assert sentence.startswith("tensorboard_trace_handler in torch_npu/profiler/profiler.py, used for")
    assert said in sentence


def test_a_changed_string_is_named_in_a_sentence(tmp_path: Path) -> None:
    expected = next(c for c in contract.CONSTANTS if c.name == "ExportType")
    path = tmp_path / expected.file
    path.parent.mkdir(parents=True)
    path.write_text("class ExportType:\n    Db = 'database'\n    Text = 'text'\n")
    assert constant_differences(tmp_path, expected) == (
        f"ExportType in {expected.file} has changed: Db is 'database' where 'db' was"
    )


def test_expressions_are_not_taken_for_values(tmp_path: Path) -> None:
    node = ast.parse("os.cpu_count() // 2", mode="eval").body
    assert repr(value(tmp_path / "x.py", node)) == "os.cpu_count() // 2"
