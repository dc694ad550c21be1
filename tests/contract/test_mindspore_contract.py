"""The table of what we expect of MindSpore against its sources, where they are at hand: the wheel has 800 MB."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract import mindspore_contract as contract
from contract.source import constant_differences, differences, names_of
from contract.torch_npu_contract import Constants, Function, Pattern

from stallscope.profiler.recorder.backends import mindspore
from stallscope.profiler.recorder.settings import NPU_LEVELS, NPU_METRICS
from support import wheels


@pytest.fixture(scope="module")
def wheel() -> Path:
    folder = wheels.mindspore()
    if folder is None:
        pytest.skip(
            f"MindSpore {contract.VERSION} is not unpacked in .tools/mindspore (800 MB, never fetched by itself)"
        )
    return folder


@pytest.mark.parametrize("function", contract.FUNCTIONS, ids=lambda f: f.name)
def test_a_function_takes_what_we_pass(wheel: Path, function: Function) -> None:
    assert not differences(wheel, function), differences(wheel, function)


@pytest.mark.parametrize("constants", contract.CONSTANTS, ids=lambda c: c.name)
def test_names_are_spelled_as_we_spell_them(wheel: Path, constants: Constants) -> None:
    assert not constant_differences(wheel, constants), constant_differences(wheel, constants)


@pytest.mark.parametrize("file", contract.EXPORTS)
def test_a_module_offers_the_names_we_take(wheel: Path, file: str) -> None:
    missing = [n for n in contract.EXPORTS[file] if n not in names_of(wheel / file)]
    assert not missing, f"{file} no longer offers {', '.join(missing)}"


@pytest.mark.parametrize("pattern", contract.PATTERNS, ids=lambda p: p.meaning[:40])
def test_a_behaviour_we_build_on_is_still_there(wheel: Path, pattern: Pattern) -> None:
    text = (wheel / pattern.file).read_text(encoding="utf-8-sig")
    missing = [w for w in pattern.words if w not in text]
    assert not missing, (
        f"{pattern.file} no longer holds {missing[0]!r}: check whether it is still so that {pattern.meaning}"
    )


def test_the_recorder_uses_nothing_that_is_not_in_the_table() -> None:
    values = {c.name: c.values for c in contract.CONSTANTS}
    assert set(NPU_LEVELS) <= set(values["ProfilerLevel"])
    assert set(NPU_METRICS) <= set(values["AicoreMetrics"])
    for name, keywords in mindspore.KEYWORDS.items():
        expected = next(f for f in contract.FUNCTIONS if f.name == name)
        assert set(keywords) <= {p.name for p in expected.parameters()}
