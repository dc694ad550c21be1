"""Which rules run: prefixes, settings files, and rules that other packages bring."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from stallscope.analyzers import RULES, analyze
from stallscope.analyzers.selection import Config, all_rules, find_config, load_config, select_rules
from stallscope.profiler.errors import OptionError
from support.lanes import timeline

HOW_TO = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "write-a-rule.md"
NO_CONFIG = Config()


def test_prefixes_select_and_ignore() -> None:
    codes = set(select_rules(["SY", "HB101"], ["SY203"], NO_CONFIG))

    assert codes == {c for c in RULES if c.startswith("SY")} - {"SY203"} | {"HB101"}


def test_all_rules_without_a_choice() -> None:
    assert list(select_rules(config=NO_CONFIG)) == list(all_rules())


@pytest.mark.parametrize("chosen", [{"select": ["QQ"]}, {"ignore": ["QQ"]}])
def test_a_prefix_that_no_rule_has_is_refused(chosen: dict[str, list[str]]) -> None:
    with pytest.raises(OptionError, match=r"No rule's code begins with 'QQ'. The rules: HB101"):
        select_rules(**chosen, config=NO_CONFIG)


def test_settings_of_a_project_are_found_from_a_folder_below(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.stallscope]\nselect = ["hb", "SY"]\nignore = ["SY203"]\n[tool.stallscope.limits.hb101]\nmin_share = 0.2\n'
    )
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)

    found = find_config(below)
    assert found == tmp_path / "pyproject.toml"
    config = load_config(found)
    rules = select_rules(config=config)

    assert config.select == ("HB", "SY") and "SY203" not in rules and "LN401" not in rules
    assert rules["HB101"].limits.min_share == 0.2
    assert RULES["HB101"].limits.min_share != 0.2
    assert "LN401" in select_rules(["LN"], config=config), "the command line wins"


def test_our_own_file_wins_and_a_foreign_pyproject_is_no_settings_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.other]\n")
    assert find_config(tmp_path) != tmp_path / "pyproject.toml"
    (tmp_path / "pyproject.toml").write_text("[tool.stallscope]\n")
    (tmp_path / "stallscope.toml").write_text("[limits.LN401]\nmin_launches = 3\n")

    assert find_config(tmp_path) == tmp_path / "stallscope.toml"
    rules = select_rules(config=load_config(tmp_path / "stallscope.toml"))
    assert rules["LN401"].limits.min_launches == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("colour = 1", "no setting 'colour'"),
        ("select = 'HB'", "a list of code prefixes"),
        ("limits = 3", "limits are tables by rule"),
        ("select = [", "is no valid TOML"),
        ("[limits.HB101]\nmin_gap = 1", "HB101 has no limit 'min_gap'"),
        ("[limits.ZZ999]\nmin_gap = 1", "there is no rule ZZ999"),
    ],
)
def test_settings_that_mean_nothing_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "stallscope.toml"
    path.write_text(text)

    with pytest.raises(OptionError, match=message) as error:
        select_rules(config=load_config(path))
    assert "\n" not in str(error.value)


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package as an installer would lay it down, with a rule named in the entry point group."""
    info = tmp_path / "mypackage-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mypackage\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[stallscope.rules]\nXM901 = mypackage.memset_share\n")
    package = tmp_path / "mypackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("mypackage", "mypackage.memset_share"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return package / "memset_share.py"


def test_the_rule_of_the_how_to_page_runs_from_another_package(foreign: Path) -> None:
    code = re.search(r"```python\n(.*?)```", HOW_TO.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    foreign.write_text(code[1])

    rules = select_rules(["XM"], config=Config(limits={"XM901": {"min_share": 0.3}}))
    report = analyze(
        timeline(
            """
            host     op:aten::zero@0..9 rt:cudaMemsetAsync@1..3#1 rt:cudaLaunchKernel@4..6#2
            stream7  memset:"Memset (Device)"@5..45#1 kernel:gemm@46..106#2
            """
        ),
        rules,
    )

    assert list(rules) == ["XM901"] and rules["XM901"].limits.min_share == 0.3
    (finding,) = report.findings
    assert (finding.code, finding.lost_ns, finding.where.operator) == ("XM901", 40_000, "aten::zero")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import nothing_like_this", "cannot be imported"),
        ("CODE = 'XM901'", "it lacks NEEDS, Limits, check"),
        (
            "CODE = 'HB101'\nNEEDS = set()\nclass Limits: ...\ndef check(run, limits): ...",
            "a code that is taken",
        ),
    ],
)
def test_a_foreign_rule_that_is_none_is_named(foreign: Path, text: str, message: str) -> None:
    foreign.write_text(text)

    with pytest.raises(OptionError, match=message):
        all_rules()
