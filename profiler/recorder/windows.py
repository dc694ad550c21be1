"""When operators are recorded: bounded windows that open and close by themselves.

Kineto keeps every event in memory (0.5 KB each while recording, 3.6 KB once stopped), so windows are bounded
by events. How many events a step makes is only known after a window was written, so the first one holds one
step and the later ones are sized by it. Windows open and close where a step begins; what opening and
closing took is written down as our overhead, never left looking like a gap of the program.

Before the first step a *provisional* window runs, for programs that have no steps (no module is ever
called). The first step throws it away: loading a model is not inference.
"""

from __future__ import annotations

import os
import time
from _thread import RLock
from collections.abc import Callable
from types import ModuleType

from stallscope.profiler.recorder.backends import choose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stallscope.profiler.recorder.agent import Agent
    from stallscope.profiler.recorder.backends.base import Backend

S = 1_000_000_000
FIRST_NS = 4 * S
"""The first window is one step, and no longer than this."""
WINDOW_EVENTS = 150_000
"""The most events one window is sized for: 0.5 GB while it is stopped."""
SLACK = 4
"""A window may last this many times as long as its events would take at the rate of the last windows: steps
can be further apart later on. Beyond that it is closed in mid-step."""
IDLE_NS = 10 * S
"""Without a step for this long a window is closed: servers are often killed while they idle."""

NOTHING, WAITING, OPEN, DONE = "nothing", "waiting", "open", "done"
MODULE, MARK = "module", "mark"


class WindowController:
    """Opens and closes windows of one process. Steps come from user threads, ticks from the recorder's."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent
        self._settings = agent.settings
        self._lock = RLock()
        self.state = NOTHING
        self.cost_ns = 0
        self.backend: Backend | None = None
        self.at_once = False
        """Open as soon as torch is there and record everything: `stallscope.record()`."""
        self._number = 0
        self._provisional = False
        self._open_ns = 0
        self._limit_steps = 0
        self._limit_ns = 0
        self._events = 0
        self._used_ns = 0
        self._steps = 0
        self._steps_recorded = 0
        self._steps_at_open = 0
        self._steps_running = 0
        self._last_step_ns = 0
        self._modules_seen = False
        self._others = 0
        self._reopen = False

    # -- what the hooks call -----------------------------------------------------------------------

    def torch_ready(self, torch: ModuleType) -> None:
        """torch was imported."""
        self.backend = choose(self._settings, torch)
        if self.backend is None:
            return
        self.state = WAITING
        # a child that only imports torch (a compile worker) needs no window before its first step
        wanted = self._settings.whole or self.at_once
        if self.backend.any_thread and (
            wanted or (self._agent.kind == "main" and self._settings.warmup == 0)
        ):
            with self._lock:
                self._open(provisional=not wanted)

    def step_begins(self, source: str) -> bool:
        """A step may start in the calling thread; returns whether it counts, then `step_ends` must follow.

        A step is a call of an outermost module. Marks count only in programs that call none.
        """
        if source == MODULE:
            if not self._modules_seen:
                self._modules_seen = True
                # marks round the whole program were taken for steps so far
                self._steps = 0
                self._steps_at_open = self._steps_recorded
        elif self._modules_seen:
            return False
        self._steps += 1
        self._steps_running += 1
        if self.state in (WAITING, OPEN):
            with self._lock:
                self._at_step()
        return True

    def step_ends(self) -> None:
        self._steps_running = max(self._steps_running - 1, 0)
        self._last_step_ns = time.perf_counter_ns()

    def _at_step(self) -> None:
        settings = self._settings
        if self.state == OPEN and self._provisional:
            self._discard()
        if self.state == OPEN:
            if settings.steps and self._steps_recorded >= settings.steps:
                self._close("steps")
                self.state = DONE
            elif self._full():
                self._close("size")
        if self.state == WAITING and self._steps > settings.warmup:
            self._open(provisional=False)
        if self.state == OPEN:
            self._steps_recorded += 1

    def _full(self) -> bool:
        too_many = self._steps_recorded - self._steps_at_open >= self._limit_steps
        return too_many or time.perf_counter_ns() - self._open_ns >= self._limit_ns

    def tick(self, now: int) -> None:
        """Ten times a second, from the recorder's thread."""
        backend = self.backend
        if backend is None or not backend.any_thread or self.state not in (WAITING, OPEN):
            return
        with self._lock:
            if self.state == OPEN and now - self._open_ns >= self._limit_ns:
                self._close("time" if self._steps_running else "idle")
            elif self.state == OPEN and self._idle(now):
                self._close("idle")
            if self.state == WAITING and (self._settings.whole or self.at_once):
                self._open(provisional=False)

    def _idle(self, now: int) -> bool:
        stepping = self._steps_running > 0 or self._last_step_ns == 0
        bounded = not (self._settings.whole or self.at_once or self._provisional)
        return bounded and not stepping and now - self._last_step_ns > IDLE_NS

    def close(self, why: str) -> None:
        """The process ends, or the recording does."""
        with self._lock:
            if self.state == OPEN:
                self._close(why)
            self.state = DONE
            if self.backend is not None:
                self._agent.writer.line("framework", facts=self.backend.facts())

    # -- somebody else's profiler ------------------------------------------------------------------

    def give_way(self) -> None:
        """The script starts a profiler of its own: two cannot run, ours yields."""
        with self._lock:
            self._others += 1
            if self.state != OPEN:
                return
            if self._provisional:
                self._discard()
            else:
                self._close("the script's own profiler")
            self._reopen = True

    def take_back(self) -> None:
        """The script's profiler ended."""
        with self._lock:
            self._others = max(self._others - 1, 0)
            if self._others == 0 and self._reopen and self.state == WAITING:
                self._reopen = False
                self._open(provisional=self._steps == 0 and not (self._settings.whole or self.at_once))

    # -- forks -------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        self._lock.acquire()

    def after_fork_in_parent(self) -> None:
        self._lock.release()

    def inherit(self, parent: WindowController) -> None:
        """In a forked child: use the parent's backend, without its window."""
        backend = parent.backend
        if backend is None:
            return
        if not backend.after_fork(parent.state == OPEN):
            self._agent.note(
                "fork-while-recording",
                "data_loss",
                "a process was forked while device work was being recorded; operators of the child are not recorded",
            )
            return
        self.backend = backend
        self.state = WAITING

    def leave(self) -> None:
        """In a forked child that is not recorded: end what runs in it of the parent's window."""
        was_open, self.state = self.state == OPEN, DONE
        if self.backend is not None:
            self.backend.after_fork(was_open)

    # -- opening and closing; the lock is held -----------------------------------------------------

    def _open(self, provisional: bool) -> None:
        backend = self.backend
        if backend is None or self._others or self.state != WAITING:
            return
        if backend.busy():
            return
        begin = time.perf_counter_ns()
        if not self._try("starting a window", backend.start):
            return
        self._number += 1
        self._provisional = provisional
        self._open_ns = time.perf_counter_ns()
        self._limit_steps, self._limit_ns = self._limits()
        self._steps_at_open = self._steps_recorded
        self.state = OPEN
        self.cost_ns += self._open_ns - begin
        self._agent.overhead("stallscope opens a window", begin, self._open_ns)
        self._agent.writer.line(
            "window-open", n=self._number, start_ns=self._open_ns, provisional=provisional
        )

    def _limits(self) -> tuple[int, int]:
        """How much the window may hold: steps, and nanoseconds. Zero where the budget is used up."""
        left_ns = self._settings.max_seconds * S - self._used_ns
        if self._events == 0:
            return 1, min(FIRST_NS, left_ns)
        left = min(self._settings.max_events - self._events, WINDOW_EVENTS)
        steps = left * self._steps_recorded // self._events if self._steps_recorded else left
        return max(steps, 0), min(left * self._used_ns * SLACK // self._events, left_ns)

    def _close(self, why: str) -> None:
        backend, agent = self.backend, self._agent
        if backend is None:
            return
        busy = os.path.join(agent.folder, f"busy-{os.getpid()}")
        stop_ns = time.perf_counter_ns()
        self.state = WAITING
        path, stopped_ns, size = "", 0, 0

        def stop_and_save() -> None:
            nonlocal path, stopped_ns, size
            with open(busy, "w"):
                backend.stop()
            stopped_ns = time.perf_counter_ns()
            path = backend.collect(os.path.join(agent.folder, f"{agent.writer.stem}-w{self._number}"))
            size = size_of(path)

        done = self._try("closing a window", stop_and_save)
        remove(busy)
        if not done:
            return
        end_ns = time.perf_counter_ns()
        events = backend.estimate_events(size)
        if not self._provisional:
            self._events += events
            self._used_ns += stop_ns - self._open_ns
        self.cost_ns += end_ns - stop_ns
        agent.overhead("stallscope closes a window", stop_ns, end_ns)
        agent.writer.line(
            "window",
            n=self._number,
            file=os.path.basename(path),
            start_ns=self._open_ns,
            stop_ns=stop_ns,
            stopped_ns=stopped_ns,
            saved_ns=end_ns,
            why=why,
            steps=self._steps_recorded - self._steps_at_open,
            bytes=size,
            events_estimate=events,
            provisional=self._provisional,
            activities=backend.activities(),
            backend=backend.name,
        )
        self._check_budget()

    def _check_budget(self) -> None:
        if self._provisional:
            # without steps one window is enough: nothing tells where the interesting part is
            return
        steps, limit_ns = self._limits()
        if steps < 1 or limit_ns <= 0:
            self.state = DONE
            self._agent.note(
                "window-full",
                "info",
                f"operators were recorded for {self._used_ns / S:.1f} s (about {self._events} events), then the cap of "
                f"{self._settings.max_events} events or {self._settings.max_seconds} s was reached; samples and "
                "marks cover the rest",
            )

    def _discard(self) -> None:
        backend = self.backend
        if backend is None:
            return
        begin = time.perf_counter_ns()
        self.state = WAITING
        if not (self._try("ending a window", backend.stop) and self._try("discarding it", backend.discard)):
            return
        end = time.perf_counter_ns()
        self.cost_ns += end - begin
        self._agent.overhead("stallscope discards a window", begin, end)
        self._agent.writer.line("window-discarded", n=self._number)

    def _try(self, where: str, run: Callable[[], None]) -> bool:
        """Call the backend. If it fails, that is written down and it is not used again."""
        try:
            run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's program must go on
            self.state = DONE
            self._agent.fault(where, error)
            text = f"{where} failed ({type(error).__name__}); operators are missing"
            self._agent.note("operators-not-recorded", "data_loss", text)
            return False
        return True


def size_of(path: str) -> int:
    """Bytes of a file, or of all files below a folder."""
    if not os.path.isdir(path):
        return os.path.getsize(path)
    return sum(
        os.path.getsize(os.path.join(root, name)) for root, _, names in os.walk(path) for name in names
    )


def remove(path: str) -> None:
    """Delete a file that may be gone already."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
