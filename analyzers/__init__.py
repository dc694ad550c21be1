"""Reads sessions, yields findings; draws and prints nothing.

RULES is the one table of rules. A code, once released, keeps its meaning.
"""

from __future__ import annotations

from collections.abc import Mapping

from stallscope.analyzers.engine import analyze_session
from stallscope.analyzers.finding import Report
from stallscope.analyzers.registry import Rule
from stallscope.analyzers.rules import (
    allocator_stall,
    blocking_copy,
    compile_in_window,
    copy_tax,
    cpu_contention,
    explicit_sync,
    exposed_collective,
    garbage_collection,
    graph_break,
    graph_coverage,
    graph_padding,
    host_bound_gap,
    host_gap,
    implicit_sync,
    inefficient_kernel,
    launch_blocking,
    launch_bound_step,
    memory_bound_kernel,
    npu_ai_cpu,
    npu_alignment,
    npu_core_use,
    npu_environment,
    npu_frequency,
    npu_fusion,
    npu_pipes,
    scheduler_idle,
    slow_link,
    small_grid_kernel,
    small_packets,
    step_drift,
    stream_dependency,
    task_queue,
    tiny_kernel_chain,
    unaligned_transfer,
    warm_up,
)
from stallscope.profiler.pages import computing
from stallscope.profiler.session import Session

__all__ = ["RULES", "Rule", "analyze"]

RULES: dict[str, Rule] = {
    rule.code: rule
    for rule in [
        Rule.from_module(host_bound_gap),
        Rule.from_module(host_gap),
        Rule.from_module(garbage_collection),
        Rule.from_module(cpu_contention),
        Rule.from_module(scheduler_idle),
        Rule.from_module(compile_in_window),
        Rule.from_module(explicit_sync),
        Rule.from_module(implicit_sync),
        Rule.from_module(blocking_copy),
        Rule.from_module(allocator_stall),
        Rule.from_module(memory_bound_kernel),
        Rule.from_module(inefficient_kernel),
        Rule.from_module(small_grid_kernel),
        Rule.from_module(tiny_kernel_chain),
        Rule.from_module(copy_tax),
        Rule.from_module(launch_bound_step),
        Rule.from_module(launch_blocking),
        Rule.from_module(task_queue),
        Rule.from_module(graph_coverage),
        Rule.from_module(graph_break),
        Rule.from_module(graph_padding),
        Rule.from_module(stream_dependency),
        Rule.from_module(exposed_collective),
        Rule.from_module(slow_link),
        Rule.from_module(small_packets),
        Rule.from_module(unaligned_transfer),
        Rule.from_module(warm_up),
        Rule.from_module(step_drift),
        Rule.from_module(npu_ai_cpu),
        Rule.from_module(npu_pipes),
        Rule.from_module(npu_core_use),
        Rule.from_module(npu_alignment),
        Rule.from_module(npu_frequency),
        Rule.from_module(npu_fusion),
        Rule.from_module(npu_environment),
    ]
}


def analyze(
    session: Session, rules: Mapping[str, Rule] | None = None, companion: Session | None = None
) -> Report:
    """Run the rules (all of them unless given) and return the report; the costliest finding first.

    `companion`: a recording of a graph's capture, or of the same program without graphs. It names the kernels of
    graph replays if they match; if not, a note says why.
    """
    with computing():
        return analyze_session(session, RULES if rules is None else rules, companion)
