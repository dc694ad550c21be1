"""How a rule is described, how its limits are read, and how it says that it cannot tell."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import TYPE_CHECKING, Any

from stallscope.analyzers.finding import Finding
from stallscope.profiler.errors import OptionError
from stallscope.profiler.light import dataclass

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run


def limit(default: float, help: str, unit: str = "", source: str = "") -> Any:
    """A threshold of a rule: its default, what it means and where it comes from, in one place."""
    return dataclasses.field(default=default, metadata={"help": help, "unit": unit, "source": source})


class NotAnalysable(Exception):
    """Raised by a rule that cannot tell from this recording; the text says what is missing."""


class NotApplicable(NotAnalysable):
    """Raised by a rule that has nothing to say about this kind of recording; nothing is missing."""


@dataclass(frozen=True)
class Rule:
    """One rule: a module with CODE, NAME (optional), NEEDS, Limits and check(run, limits).

    `needs` are names from `run.NEEDS_TEXT`; the engine turns a missing one into "not analysable"
    before the rule is called.
    """

    code: str
    name: str
    needs: frozenset[str]
    limits: Any
    check: Callable[[Run, Any], Iterator[Finding]]
    doc: str

    @property
    def summary(self) -> str:
        return self.doc.splitlines()[0] if self.doc else ""

    @classmethod
    def from_module(cls, module: ModuleType) -> Rule:
        return cls(
            code=module.CODE,
            name=getattr(module, "NAME", module.__name__.rpartition(".")[2].replace("_", "-")),
            needs=frozenset(module.NEEDS),
            limits=module.Limits(),
            check=module.check,
            doc=inspect.cleandoc(module.__doc__ or ""),
        )

    def with_limits(self, changes: Mapping[str, float]) -> Rule:
        """The rule with some limits set otherwise. Raises OptionError for a name it does not have."""
        known = [f.name for f in dataclasses.fields(self.limits)]
        for name, value in changes.items():
            if name not in known:
                raise OptionError(
                    f"{self.code} has no limit {name!r}. Its limits: {', '.join(known) or 'none'}."
                )
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise OptionError(f"{self.code}.{name} must be a number, not {value!r}.")
        return dataclasses.replace(self, limits=dataclasses.replace(self.limits, **changes))
