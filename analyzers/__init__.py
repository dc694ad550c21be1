"""Reads sessions, yields findings; draws and prints nothing.

RULES is the one table of rules. A code, once released, keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from stallscope.analyzers.engine import analyze_session
from stallscope.analyzers.finding import Report
from stallscope.analyzers.registry import Rule
from stallscope.profiler.session import Session

__all__ = ["RULES", "Rule", "analyze"]

RULES: dict[str, Rule] = {
    rule.code: rule
    for rule in [
        *[],
    ]
}


def analyze(session: Session, rules: Mapping[str, Rule] | None = None) -> Report:
    """Run the rules (all of them unless given) and return the report; the costliest finding first."""
    return analyze_session(session, RULES if rules is None else rules)
