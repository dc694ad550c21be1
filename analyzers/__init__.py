"""Reads sessions, yields findings; draws and prints nothing.

RULES is the one table of rules. A code, once released, keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from stallscope.analyzers.engine import analyze_session
from stallscope.analyzers.finding import Report
from stallscope.analyzers.registry import Rule
from stallscope.analyzers.rules import (
    blocking_copy,
    explicit_sync,
    host_bound_gap,
    implicit_sync,
    launch_bound_step,
)
from stallscope.profiler.session import Session

__all__ = ["RULES", "Rule", "analyze"]

RULES: dict[str, Rule] = {
    rule.code: rule
    for rule in [
        Rule.from_module(host_bound_gap),
        Rule.from_module(explicit_sync),
        Rule.from_module(implicit_sync),
        Rule.from_module(blocking_copy),
        Rule.from_module(launch_bound_step),
    ]
}


def analyze(session: Session, rules: Mapping[str, Rule] | None = None) -> Report:
    """Run the rules (all of them unless given) and return the report; the costliest finding first."""
    return analyze_session(session, RULES if rules is None else rules)
