"""The fake's functions take exactly what the table of expectations says the real ones take."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PATH = Path(__file__).resolve().parents[3] / "contract" / "torch_npu_contract.py"
_spec = importlib.util.spec_from_file_location("_torch_npu_contract", _PATH)
assert _spec is not None and _spec.loader is not None
contract: Any = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = contract
_spec.loader.exec_module(contract)


def by_contract(name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Bind calls to the signature in the table, so that what the real one refuses is refused here."""
    signature = contract.function(name).python_signature()

    def decorate(run: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(run)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(*args, **kwargs)
            bound.apply_defaults()
            return run(**bound.arguments)

        wrapper.__signature__ = signature  # type: ignore[attr-defined]
        return wrapper

    return decorate


def constants(name: str) -> Any:
    """A class with the constants of the table."""
    values = next(c.values for c in contract.CONSTANTS if c.name == name)
    return type(name, (), dict(values))
