"""Names of the counters a recording holds. Totals since the first reading, so that any range can be differenced."""

from __future__ import annotations

CPU_NS = "thread cpu_ns"
"""Time a thread ran on a core."""
RUN_QUEUE_NS = "thread run_queue_wait_ns"
"""Time a thread was ready to run and waited for a core."""
VOLUNTARY = "thread voluntary_switches"
INVOLUNTARY = "thread involuntary_switches"
RESIDENT_BYTES = "process resident_bytes"
"""Memory in use; not a total but the value at that time."""
