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
from _thread import RLock, get_ident
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

OWNER_S = 2.0
"""How long the script's own profiler waits for a window of ours that only another thread can close."""
LEAVING_S = 0.3
"""The same when the process ends and that thread takes no steps any more."""

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
        self.device_range: Callable[[str], Callable[[], None]] | None = None
        """Shows a mark on the device's timeline too: called when it begins, what it returns when it ends."""
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
        self._owner = 0
        """The thread that opened the window: some backends can only be closed in it."""
        self._busy = False
        self._asked = ""
        self._foreign_steps = 0
        self._pending: object = None

    # -- what the hooks call -----------------------------------------------------------------------

    def torch_ready(self, torch: ModuleType) -> None:
        """torch was imported, in the calling thread."""
        self.serve(choose(self._settings, torch))

    def serve(self, backend: Backend | None) -> None:
        """Use this backend from now on; called in a thread of the script."""
        self.backend = backend
        if backend is None:
            return
        self.state = WAITING
        # a child that only imports torch (a compile worker) needs no window before its first step
        wanted = self._whole()
        if wanted or (backend.any_thread and self._agent.kind == "main" and self._settings.warmup == 0):
            with self._lock:
                self._open(provisional=not wanted)

    def replace(self, make: Callable[[Backend], Backend]) -> None:
        """Go on with a backend made from the present one; a window that is open is the new one's to close."""
        with self._lock:
            if self.backend is not None:
                self.backend = make(self.backend)

    def take_over(self, backend: Backend) -> None:
        """Use another backend from now on; a window that is open ends, unused if it is from before the first step."""
        with self._lock:
            if self.state == OPEN:
                if self._provisional:
                    self._discard()
                else:
                    self._close("another framework")
            self.backend = backend
            if self.state == NOTHING:
                self.state = WAITING

    @property
    def is_busy(self) -> bool:
        """Whether a window is being opened or closed just now."""
        return self._busy

    def device_ready(self) -> None:
        """The script began to use its device, in the calling thread: a window of the whole run starts again."""
        backend = self.backend
        if backend is None or self.state != OPEN or self._busy or not self._whole():
            return
        with self._lock:
            if self.state == OPEN and backend.wants_device():
                self._close("the script began to use its device")
                self._open(provisional=False)

    def _whole(self) -> bool:
        return self._settings.whole or self.at_once

    @property
    def has_steps(self) -> bool:
        """Whether any step began so far."""
        return self._steps > 0

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
        if self._asked:
            self._answer()

    def _at_step(self) -> None:
        settings = self._settings
        if not self._in_reach():
            self._foreign_steps += 1
            return
        self._answer()
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
        if backend is None or self.state not in (WAITING, OPEN):
            return
        with self._lock:
            if self.state == OPEN and now - self._open_ns >= self._limit_ns:
                self._close_soon("time" if self._steps_running else "idle")
            elif self.state == OPEN and self._idle(now):
                self._close_soon("idle")
            if self.state == WAITING and self._whole() and backend.any_thread:
                self._open(provisional=False)

    def _idle(self, now: int) -> bool:
        stepping = self._steps_running > 0 or self._last_step_ns == 0
        bounded = not (self._whole() or self._provisional)
        return bounded and not stepping and now - self._last_step_ns > IDLE_NS

    def close(self, why: str) -> None:
        """The process ends, or the recording does."""
        if not self._in_reach():
            self._await_owner(why, OWNER_S if self._steps_running else LEAVING_S)
        with self._lock:
            if self.state == OPEN and self._in_reach():
                self._close(why)
            elif self.state == OPEN:
                self._agent.note(
                    "window-lost",
                    "data_loss",
                    "an operator window was open in another thread when the process ended, and only that thread could "
                    "have closed it; its operators and kernels are lost",
                )
            self.state = DONE
            if self.backend is not None:
                self._agent.writer.line("framework", facts=self.backend.facts())
                self._pass_notes_on()

    # -- windows that belong to a thread -----------------------------------------------------------

    def _in_reach(self) -> bool:
        """Whether the calling thread may close the window that is open, if one is."""
        if self.state != OPEN or self.backend is None or self.backend.any_thread:
            return True
        return get_ident() == self._owner

    def _close_soon(self, why: str) -> None:
        """Close the window here if this thread may, else have its owner do it."""
        if self._in_reach():
            self._close(why)
        elif not self._asked:
            self._ask_owner(why)

    def _ask_owner(self, why: str) -> None:
        """The owner looks at every step; the main thread can be called between any two instructions as well."""
        self._asked = why
        from threading import main_thread

        if self._owner == main_thread().ident:
            self._pending = call_in_main_thread(self._answer)

    def _answer(self) -> None:
        """In any thread: close the window if another thread asked for it and this one owns it."""
        if not self._asked or self._busy:
            return
        with self._lock:
            if self.state == OPEN and self._in_reach():
                why, self._asked = self._asked, ""
                self._close(why)

    def _await_owner(self, why: str, seconds: float) -> None:
        self._ask_owner(why)
        limit = time.monotonic() + seconds
        while self.state == OPEN and time.monotonic() < limit:
            time.sleep(0.01)

    # -- somebody else's profiler ------------------------------------------------------------------

    def give_way(self) -> None:
        """The script starts a profiler of its own: two cannot run, ours yields."""
        with self._lock:
            self._others += 1
            if self.state != OPEN:
                return
            self._reopen = True
            if self._in_reach():
                if self._provisional:
                    self._discard()
                else:
                    self._close("the script's own profiler")
                return
        self._await_owner("the script's own profiler", OWNER_S)
        if self.state == OPEN:
            self._agent.note(
                "profilers-in-conflict",
                "warning",
                "the script started a profiler of its own while a window of ours was open in another thread, which "
                "did not close it in time; either may lack data",
            )

    def take_back(self) -> None:
        """The script's profiler ended."""
        with self._lock:
            self._others = max(self._others - 1, 0)
            if self._others == 0 and self._reopen and self.state == WAITING:
                self._reopen = False
                if self._steps and self.backend is not None and not self.backend.any_thread:
                    return  # the next step opens it, in the thread that steps
                self._open(provisional=self._steps == 0 and not self._whole())

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
        backend.place = os.path.join(self._agent.folder, f"{self._agent.writer.stem}-w{self._number + 1}")
        self._asked, self._owner = "", get_ident()
        started = self._try("starting a window", backend.start)
        self._pass_notes_on()
        if not started:
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
        self._pass_notes_on()
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
            **backend.window_facts(),
        )
        if self._foreign_steps:
            self._foreign_steps = 0
            agent.note(
                "steps-of-other-threads",
                "warning",
                "steps ran in several threads, and this profiler records the operators of one thread at a time",
            )
        self._check_budget()

    def _pass_notes_on(self) -> None:
        if self.backend is None:
            return
        notes, self.backend.notes = self.backend.notes, []
        for code, severity, text in notes:
            self._agent.note(code, severity, text)

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
        self._busy = True
        try:
            run()
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's program must go on
            self.state = DONE
            self._agent.fault(where, error)
            text = f"{where} failed ({type(error).__name__}); operators are missing"
            self._agent.note("operators-not-recorded", "data_loss", text)
            return False
        finally:
            self._busy = False
        return True


def call_in_main_thread(run: Callable[[], None]) -> object:
    """Have the interpreter call `run` in the main thread, between two instructions, as it calls signal handlers.

    Returns what must be kept alive until then. `run` must not raise.
    """
    import ctypes

    def pending(_: object) -> int:
        run()
        return 0

    callback = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(pending)
    ctypes.pythonapi.Py_AddPendingCall(callback, None)
    return callback


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
