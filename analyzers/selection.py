"""Which rules run and with which limits: `--select`, `--ignore`, a settings file, and rules of other packages.

Settings stand in `stallscope.toml`, or in `[tool.stallscope]` of a `pyproject.toml`:

    select = ["HB", "SY"]          # code prefixes; all rules unless given
    ignore = ["SY203"]
    [limits.HB101]
    min_share = 0.05

A package adds rules through the entry point group `stallscope.rules`: each entry names a module with CODE,
NEEDS, Limits and check (see the how-to page).
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from stallscope.analyzers.registry import Rule
from stallscope.profiler.errors import OptionError
from stallscope.profiler.light import dataclass

if sys.version_info >= (3, 11):
    import tomllib
else:  # pragma: no cover - which branch runs depends on the interpreter
    import tomli as tomllib

ENTRY_POINT_GROUP = "stallscope.rules"
OWN_FILE = "stallscope.toml"
PROJECT_FILE = "pyproject.toml"


@dataclass(frozen=True)
class Config:
    """Settings of one file. `limits` maps a rule's code to changed limits; `source` is where it all stood."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    limits: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    source: str = ""


def find_config(start: Path) -> Path | None:
    """The nearest settings file in a folder or above it; `stallscope.toml` wins over `pyproject.toml`."""
    for folder in (start, *start.parents):
        if (folder / OWN_FILE).is_file():
            return folder / OWN_FILE
        project = folder / PROJECT_FILE
        if project.is_file() and "stallscope" in _tool_tables(project):
            return project
    return None


def load_config(path: Path) -> Config:
    """The settings of a `stallscope.toml` or `pyproject.toml`. Raises OptionError for what is none."""
    table = _tool_tables(path).get("stallscope", {}) if path.name == PROJECT_FILE else _toml(path)
    unknown = sorted(set(table) - {"select", "ignore", "limits"})
    if unknown:
        raise OptionError(f"{path}: no setting {unknown[0]!r}. There are select, ignore and limits.")
    limits = table.get("limits", {})
    if not isinstance(limits, dict) or not all(isinstance(v, dict) for v in limits.values()):
        raise OptionError(f"{path}: limits are tables by rule, as in [limits.HB101] with min_share = 0.05.")
    return Config(
        _prefixes(path, table, "select"),
        _prefixes(path, table, "ignore"),
        {code.upper(): dict(values) for code, values in limits.items()},
        str(path),
    )


def _prefixes(path: Path, table: Mapping[str, Any], name: str) -> tuple[str, ...]:
    value = table.get(name, [])
    if not isinstance(value, list) or not all(isinstance(v, str) for v in value):
        raise OptionError(f'{path}: {name} is a list of code prefixes, as in ["HB", "SY201"].')
    return tuple(v.upper() for v in value)


def _tool_tables(path: Path) -> dict[str, Any]:
    tables = _toml(path).get("tool", {})
    return tables if isinstance(tables, dict) else {}


def _toml(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise OptionError(f"{path} cannot be read ({error.strerror}).") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise OptionError(f"{path} is no valid TOML ({error}).") from None


def select_rules(
    select: Iterable[str] = (), ignore: Iterable[str] = (), config: Config | None = None
) -> dict[str, Rule]:
    """The rules to run. `select` and `ignore` are code prefixes and win over the settings file.

    Without `config` the nearest settings file above the working folder is read. Raises OptionError for a prefix
    no rule begins with and for a limit that a rule does not have.
    """
    if config is None:
        found = find_config(Path.cwd())
        config = load_config(found) if found is not None else Config()
    rules = all_rules()
    wanted, unwanted = tuple(select) or config.select, tuple(ignore) or config.ignore
    for prefix in (*wanted, *unwanted):
        if not any(code.startswith(prefix) for code in rules):
            raise OptionError(f"No rule's code begins with {prefix!r}. The rules: {', '.join(rules)}.")
    for code in config.limits:
        if code not in rules:
            raise OptionError(f"{config.source}: there is no rule {code}. The rules: {', '.join(rules)}.")
    return {
        code: rule.with_limits(config.limits.get(code, {}))
        for code, rule in rules.items()
        if (not wanted or code.startswith(wanted)) and not (unwanted and code.startswith(unwanted))
    }


def all_rules() -> dict[str, Rule]:
    """Our rules and those of installed packages. Raises OptionError where two rules share a code."""
    from stallscope.analyzers import RULES

    rules = dict(RULES)
    for entry in sorted(entry_points(group=ENTRY_POINT_GROUP), key=lambda e: e.name):
        rule = _foreign(entry)
        if rule.code in rules:
            raise OptionError(f"The rule {rule.code} of {entry.value} has a code that is taken.")
        rules[rule.code] = rule
    return rules


def _foreign(entry: EntryPoint) -> Rule:
    """The rule of another package. Its faults are told as such: they are neither the user's nor ours."""
    try:
        loaded = entry.load()
    except Exception as error:
        raise OptionError(f"The rule {entry.name} ({entry.value}) cannot be imported: {error}.") from error
    if isinstance(loaded, Rule):
        return loaded
    missing = [n for n in ("CODE", "NEEDS", "Limits", "check") if not hasattr(loaded, n)]
    if not isinstance(loaded, ModuleType) or missing:
        raise OptionError(
            f"The rule {entry.name} ({entry.value}) is no rule module: it lacks {', '.join(missing) or 'all of it'}."
        )
    return Rule.from_module(loaded)
