"""Switches of the environment that change how fast a run is, as far as the recording tells them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run


def variable(run: Run, name: str) -> str | None:
    """The value of a variable, "" if it was not set, None if the recording does not tell.

    Profilers write down a few variables, whether set or not. Our own recorder keeps those of its list that are set,
    so one of its list that it does not name was not set.
    """
    values = {str(rank["environment"][name]) for rank in run.communication.ranks if name in _of(rank)}
    if values:
        # ranks that differ: the one that is set says more
        return max(values)
    framework = run.session.facts.get("framework")
    recorded = framework.get("environment") if isinstance(framework, dict) else None
    if isinstance(recorded, dict):
        return str(recorded.get(name, ""))
    return None


def is_told(run: Run) -> bool:
    """Whether the recording tells anything of the environment."""
    framework = run.session.facts.get("framework")
    recorded = framework.get("environment") if isinstance(framework, dict) else None
    return isinstance(recorded, dict) or any(_of(rank) for rank in run.communication.ranks)


def _of(rank: dict[str, object]) -> dict[str, object]:
    found = rank.get("environment")
    return found if isinstance(found, dict) else {}
