"""Reads from /proc how the threads of a process are scheduled: CPU time, waiting for a core, switches, memory.

The launcher does this from outside, so that the user's process pays nothing; `stallscope.record()` does it from
the recorder's thread. Linux only: elsewhere there is nothing to read, and the report says so.
"""

from __future__ import annotations

import os
import time

from stallscope.profiler.recorder.format import HOST_CPU, HOST_MEM, HOST_SW
from stallscope.profiler.recorder.writer import RecordWriter

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
MAX_SHARE = 0.01
"""Of one core. With hundreds of threads a sweep takes long, so sweeps then come less often."""
MAX_THREADS = 512
UNLIMITED_NS = 1 << 62


class HostSampler:
    """Readings of one process into a record file. `sweep` returns False once the process is gone."""

    def __init__(self, pid: int, writer: RecordWriter) -> None:
        self.pid = pid
        self.writer = writer
        self._task = f"/proc/{pid}/task"
        self._names: dict[str, str] = {}
        self._pending: list[str] = []
        self._due_ns = 0
        self._round_ns = 0
        self.cost_ns = 0

    def sweep(self, now: int, budget_ns: int = UNLIMITED_NS) -> bool:
        """Read every thread once, unless the last round was too costly to do it again already.

        After `budget_ns` of waiting the rest is left to the next call: inside a process each system call
        gives up the interpreter lock, and a thread that computes in Python hands it back 5 ms later.
        """
        if now < self._due_ns:
            return True
        began, cpu_began = time.perf_counter_ns(), time.thread_time_ns()
        if not self._pending and not self._begin_round():
            return False
        while self._pending:
            self._read_thread(self._pending.pop())
            if time.perf_counter_ns() - began >= budget_ns:
                break
        took = time.thread_time_ns() - cpu_began
        self.cost_ns += took
        self._round_ns += took
        if not self._pending:
            self._due_ns = now + int(self._round_ns / MAX_SHARE)
            self._round_ns = 0
        return True

    def finish(self) -> None:
        """A last reading of every thread, whenever the one before was."""
        self._pending, self._due_ns = [], 0
        self.sweep(time.perf_counter_ns())

    def _begin_round(self) -> bool:
        try:
            threads = os.listdir(self._task)
            resident = _read(f"/proc/{self.pid}/statm").split()
        except OSError:
            return False
        self._pending = threads[:MAX_THREADS][::-1]
        if len(resident) > 1:
            self.writer.put(HOST_MEM, time.perf_counter_ns(), int(resident[1]) * PAGE, 0, self.pid)
        return True

    def _read_thread(self, thread: str) -> None:
        try:
            schedule = _read(f"{self._task}/{thread}/schedstat").split()
            status = _read(f"{self._task}/{thread}/status")
        except OSError:  # the thread ended meanwhile
            return
        t, tid = time.perf_counter_ns(), int(thread)
        if len(schedule) >= 2:
            self.writer.put(HOST_CPU, t, int(schedule[0]), int(schedule[1]), tid)
        switches = _switches(status)
        if switches is not None:
            self.writer.put(HOST_SW, t, switches[0], switches[1], tid)
        self._name(thread, status)

    def _name(self, thread: str, status: str) -> None:
        name = status[6 : status.find("\n")].strip() if status.startswith("Name:") else ""
        if name and self._names.get(thread) != name:
            self._names[thread] = name
            self.writer.line("thread", tid=int(thread), name=name)


def _switches(status: str) -> tuple[int, int] | None:
    """(voluntary, involuntary) context switches out of a status file.

    >>> _switches("Name:\\tx\\nvoluntary_ctxt_switches:\\t12\\nnonvoluntary_ctxt_switches:\\t3\\n")
    (12, 3)
    """
    at = status.find("voluntary_ctxt_switches:")
    end = status.find("nonvoluntary_ctxt_switches:")
    if at < 0 or end < 0:
        return None
    return int(status[at + 24 : end]), int(status[end + 27 :].split("\n", 1)[0])


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 8192).decode("ascii", "replace")
    finally:
        os.close(descriptor)
