"""Python sources read as syntax trees: signatures and constants of a package that is never imported."""

from __future__ import annotations

import ast
import inspect
from functools import cache
from pathlib import Path

from contract.torch_npu_contract import Constants, Function, parameters


class Unresolved:
    """A default that is an expression; only its presence can be compared."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


@cache
def tree(path: Path) -> ast.Module:
    """The syntax tree of a file; some of the wheel's begin with a byte-order mark."""
    return ast.parse(path.read_text(encoding="utf-8-sig"))


def find(path: Path, dotted: str) -> ast.FunctionDef | ast.ClassDef | None:
    """A function or class by its dotted name within a file, or None."""
    body: list[ast.stmt] = tree(path).body
    found: ast.FunctionDef | ast.ClassDef | None = None
    for part in dotted.split("."):
        named = [n for n in body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name == part]
        if not named:
            return None
        found, body = named[-1], named[-1].body
    return found


def class_constants(path: Path, name: str) -> dict[str, object]:
    """The plain assignments of a class body; names of other classes' constants resolved in the same package."""
    node = find(path, name)
    out: dict[str, object] = {}
    if not isinstance(node, ast.ClassDef):
        return out
    for statement in node.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            out[statement.targets[0].id] = value(path, statement.value)
    return out


def value(path: Path, node: ast.expr) -> object:
    """A literal, or a constant of a class named in the file or in the profiler's table of constants."""
    try:
        literal: object = ast.literal_eval(node)
    except ValueError:
        pass
    else:
        return literal
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        for place in (path, *_constant_files(path)):
            if find(place, node.value.id) is not None:
                return class_constants(place, node.value.id).get(node.attr, Unresolved(ast.unparse(node)))
    return Unresolved(ast.unparse(node))


def _constant_files(path: Path) -> list[Path]:
    places = [p / "analysis" / "prof_common_func" / "_constant.py" for p in path.parents[:4]]
    return [p for p in places if p.is_file()]


def differences(root: Path, expected: Function) -> str:
    """A sentence that says how a function differs from what we expect, "" where it does not."""
    path = root / expected.file
    where = f"{expected.name} in {expected.file}, used for {expected.used_for},"
    node = find(path, expected.name) if path.is_file() else None
    if not isinstance(node, ast.FunctionDef):
        return f"{where} is gone"
    found = inspect.Signature(parameters(node.args, lambda n: value(path, n)))
    for ours, theirs in zip(expected.parameters(), list(found.parameters.values()), strict=False):
        if (ours.name, ours.kind) != (theirs.name, theirs.kind):
            return f"{where} has the parameter {theirs.name!r} where {ours.name!r} was; its signature is now {found}"
        if not same_default(ours.default, theirs.default):
            return f"{where} has {theirs.name}={theirs.default!r} where {ours.default!r} was the default"
    if len(expected.parameters()) != len(found.parameters):
        return f"{where} has other parameters than {expected.signature}; its signature is now {found}"
    return ""


def same_default(ours: object, theirs: object) -> bool:
    """Whether a default is the expected one; Ellipsis stands for any."""
    empty = inspect.Parameter.empty
    if ours is Ellipsis:
        return theirs is not empty
    return bool(ours == theirs) if (ours is not empty and theirs is not empty) else ours is theirs


def constant_differences(root: Path, expected: Constants) -> str:
    """A sentence that says which constants of a class differ, "" where none does."""
    path = root / expected.file
    found = class_constants(path, expected.name) if path.is_file() else {}
    wrong = [
        f"{k} is {found.get(k, 'gone')!r} where {v!r} was"
        for k, v in expected.values.items()
        if found.get(k) != v
    ]
    return f"{expected.name} in {expected.file} has changed: {'; '.join(wrong)}" if wrong else ""


def names_of(path: Path) -> set[str]:
    """Names a module defines or imports at its top level."""
    out: set[str] = set()
    for node in tree(path).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            out |= {(alias.asname or alias.name) for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            out.add(node.name)
        elif isinstance(node, ast.Assign):
            out |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return out


def attributes_set(path: Path, name: str) -> set[str]:
    """Attributes that `__init__` of a class assigns."""
    node = find(path, f"{name}.__init__")
    if node is None:
        return set()
    return {
        n.attr
        for n in ast.walk(node)
        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and isinstance(n.value, ast.Name)
    }
