"""The recorder inside one process: opens its record, runs the sampling thread, closes everything in time.

A process can end in many ways; each is met where it can be: normal end (atexit), `os._exit`, `exec*`, the
default action of SIGTERM and SIGHUP, a fork. SIGKILL and crashes cannot be met: what was written stays.
Every function the interpreter or the user's program calls into is guarded, so that a fault of ours ends up
in the recording and not in the program.
"""

from __future__ import annotations

import _thread
import atexit
import gc
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from types import FrameType, ModuleType, TracebackType

from stallscope.profiler.recorder.clock_pairs import read_clocks
from stallscope.profiler.recorder.format import GC, IMPORT, MARK, OVERHEAD
from stallscope.profiler.recorder.hooks import HOOKS
from stallscope.profiler.recorder.importhook import ImportWatch
from stallscope.profiler.recorder.pysampler import PythonSampler
from stallscope.profiler.recorder.settings import Settings
from stallscope.profiler.recorder.windows import WindowController
from stallscope.profiler.recorder.writer import RecordWriter

TYPE_CHECKING = False  # `typing` itself would cost every recorded process 5 ms
if TYPE_CHECKING:
    from threading import Lock
    from typing import Any

    from stallscope.profiler.recorder.hostsampler import HostSampler

TICK_NS = 100_000_000
HOST_BUDGET_NS = 5_000_000
"""How long a tick may wait for readings of threads: meanwhile no stacks are sampled."""
CLOCK_NS = 10_000_000_000
METER_NS = 1_000_000_000
SHORTEST_GC_NS = 10_000
KILL_DELAY_S = 15.0
STUCK_S = 2.0
"""How long the main thread may take to see a SIGTERM before our thread carries it out."""

MAIN, CHILD, FORK, RECORD = "main", "child", "fork", "record"


class Agent:
    """The recorder of one process. `start` and `finish` may each be called more than once."""

    def __init__(self, folder: str, settings: Settings, kind: str) -> None:
        self.folder = folder
        self.settings = settings
        self.kind = kind
        self.follows_children = kind != RECORD
        self.hidden: set[int] = set()
        self.writer: RecordWriter
        self.windows: WindowController
        self.watch: ImportWatch | None = None
        self.host: HostSampler | None = None
        self.marks = 0
        self.on_detach: list[Callable[[], None]] = []
        """What hooks must undo when a recording ends before its process."""
        self._sampler: PythonSampler | None = None
        self._stop = _thread.allocate_lock()
        self._ended = _thread.allocate_lock()
        self._running = False
        self._finished = False
        self._own_ident = 0
        self._own_tid = 0
        self._sampler_cpu_ns = 0
        self._ended_cpu_ns = 0
        self._gc_start_ns = 0
        self._last_clock_ns = 0
        self._last_meter_ns = 0
        self._wakeup = (-1, -1)
        self._signalled_ns = 0
        self._pending_signal = 0
        self._handling = False
        self._fork_lock = _thread.allocate_lock()
        self._forking = False
        self._mask: Iterable[int] = ()
        self._open(kind)

    # -- life --------------------------------------------------------------------------------------

    def _open(self, kind: str) -> None:
        self.pid = os.getpid()
        now = time.perf_counter_ns()
        self.writer = RecordWriter(self.folder, f"p{self.pid}-{now}")
        argv = list(getattr(sys, "orig_argv", []))
        self.writer.line(
            "start",
            kind=kind,
            pid=self.pid,
            ppid=os.getppid(),
            argv=argv[:64],
            python=sys.version.split()[0],
            stem=self.writer.stem,
            mono_ns=now,
        )
        self._clock()
        self._finished = False
        interval_ns = 1_000_000_000 // self.settings.rate_hz
        main = (_thread.get_ident(), _thread.get_native_id())
        if self.settings.python == "sample":
            self._sampler = PythonSampler(self.writer, interval_ns, self.hidden, main)
        self.windows = WindowController(self)

    def start(self) -> None:
        """Install the hooks and start the sampling thread."""
        self.watch = ImportWatch(tuple(HOOKS), self._imported, self._not_imported)
        self.watch.install()
        gc.callbacks.append(self._gc)
        if self.follows_children:
            self._patch_os()
            self._catch_signals()
            atexit.register(self.finish, "atexit")
            self._wrap_excepthook()
        _follow_forks(self)
        self.start_thread()

    def finish(self, why: str) -> None:
        """Close the window, write the last records. The first call counts."""
        if self._finished or os.getpid() != self.pid:
            return
        self._finished = True
        self.stop_thread()
        self.guard("window", self.windows.close, why)
        self._meter()
        self._clock()
        self.writer.line("finish", why=why, mono_ns=time.perf_counter_ns())

    def resume(self) -> None:
        """Go on after a `finish` that turned out to be early (an `exec` that failed)."""
        self.writer.line("resumed", mono_ns=time.perf_counter_ns())
        self._finished = False
        self.start_thread()

    def detach(self) -> None:
        """Take the hooks out again and close the files, for a recording that ends before its process."""
        if self.watch is not None:
            self.watch.remove()
        if self._gc in gc.callbacks:
            gc.callbacks.remove(self._gc)
        for undo in self.on_detach:
            self.guard("detach", undo)
        self.writer.abandon()

    # -- faults and marks --------------------------------------------------------------------------

    def fault(self, where: str, error: BaseException) -> None:
        """Write down a fault of ours."""
        place = ""
        trace = error.__traceback__
        while trace is not None:
            place = f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}"
            trace = trace.tb_next
        self.writer.line("error", where=where, error=f"{type(error).__name__}: {error} ({place})"[:500])

    def guard(self, where: str, run: Callable[..., Any], *args: Any) -> Any:
        """Call one of our functions; what it raises is written down and None returned."""
        try:
            return run(*args)
        except Exception as error:  # noqa: BLE001 - whatever it is, the user's program must go on
            self.fault(where, error)
            return None

    def hide(self, function: Callable[..., Any]) -> None:
        """Leave a wrapper of ours out of sampled stacks and printed tracebacks."""
        self.hidden.add(id(function.__code__))

    def note(self, code: str, severity: str, text: str) -> None:
        """Something the reader of the report must know."""
        self.writer.line("note", code=code, severity=severity, text=text)

    def mark(
        self,
        name: str,
        start_ns: int,
        end_ns: int,
        values: Mapping[str, object] | None = None,
        flags: int = 0,
    ) -> None:
        """A named range of the calling thread, times monotonic."""
        text = self.writer.text(name)
        slot = self.writer.put(MARK, start_ns, end_ns - start_ns, text, _thread.get_native_id(), flags)
        self.marks += 1
        if values:
            self.writer.arguments(slot, values)

    def overhead(self, name: str, start_ns: int, end_ns: int) -> None:
        """A range in which the calling thread did our work."""
        self.writer.put(
            OVERHEAD, start_ns, end_ns - start_ns, self.writer.text(name), _thread.get_native_id()
        )

    def _imported(self, name: str, module: ModuleType, start_ns: int, end_ns: int) -> None:
        if end_ns > start_ns:
            text = self.writer.text(f"import {name}")
            self.writer.put(IMPORT, start_ns, end_ns - start_ns, text, _thread.get_native_id())
        self.guard(f"hook for {name}", self._run_hook, name, module)

    def _not_imported(self, name: str, error: Exception) -> None:
        """A framework that is there and cannot be loaded: said, because the script may go on without its device."""
        self.guard(f"import of {name}", self._note_failed_import, name, error)

    def _note_failed_import(self, name: str, error: Exception) -> None:
        text = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        self.note("import-failed", "warning", f"{name} could not be imported ({text})")

    def _run_hook(self, name: str, module: ModuleType) -> None:
        import importlib

        importlib.import_module(HOOKS[name]).install(module, self)

    def _gc(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self._gc_start_ns = time.perf_counter_ns()
            return
        length = time.perf_counter_ns() - self._gc_start_ns
        if self._gc_start_ns and length >= SHORTEST_GC_NS:
            self.writer.put(
                GC,
                self._gc_start_ns,
                length,
                info.get("collected", 0),
                _thread.get_native_id(),
                info.get("generation", 0),
            )

    # -- the thread --------------------------------------------------------------------------------

    def start_thread(self) -> None:
        """A bare thread: `threading` would list it to the user's program."""
        if self._running:
            return
        self._stop = _thread.allocate_lock()
        self._ended = _thread.allocate_lock()
        self._stop.acquire()
        self._ended.acquire()
        self._running = True
        try:
            _thread.start_new_thread(self._thread, (self._stop, self._ended))
        except RuntimeError as error:  # no more threads allowed
            self._running = False
            self.fault("sampling thread", error)

    def stop_thread(self) -> None:
        """Ends the thread and waits for it; does nothing from inside it."""
        if not self._running or _thread.get_ident() == self._own_ident:
            return
        self._running = False
        self._stop.release()
        self._ended.acquire(timeout=5)

    def _thread(self, stop: Lock, ended: Lock) -> None:
        self._own_ident, self._own_tid = _thread.get_ident(), _thread.get_native_id()
        try:
            self.guard("sampling thread", self._loop, stop)
        finally:
            self._ended_cpu_ns = self._sampler_cpu_ns = self._ended_cpu_ns + time.thread_time_ns()
            ended.release()

    def _loop(self, stop: Lock) -> None:
        sampler = self._sampler
        period = 1_000_000_000 // self.settings.rate_hz if sampler is not None else TICK_NS
        next_tick = next_sample = time.perf_counter_ns() + period
        while True:
            now = time.perf_counter_ns()
            if stop.acquire(timeout=max(min(next_sample, next_tick) - now, 0) / 1e9):
                return
            now = time.perf_counter_ns()
            if sampler is not None and now >= next_sample:
                sampler.sweep(self._own_ident, next_sample, now)
                # after a long wait start afresh: a burst of late samples would all see the same stack
                next_sample = max(next_sample + period, now + period // 2)
            if now >= next_tick:
                self._tick(now)
                next_tick = now + TICK_NS
            if sampler is None:
                next_sample = next_tick

    def _tick(self, now: int) -> None:
        self.windows.tick(now)
        if self.host is not None:
            self.host.sweep(now, HOST_BUDGET_NS)
        if now - self._last_clock_ns >= CLOCK_NS:
            self._clock()
        if now - self._last_meter_ns >= METER_NS:
            self._meter()
        if self._wakeup[0] >= 0:
            self._look_for_signals(now)

    def _clock(self) -> None:
        mono, real, width = read_clocks()
        self._last_clock_ns = mono
        self.writer.line("clock", mono_ns=mono, real_ns=real, width_ns=width)

    def _meter(self) -> None:
        self._last_meter_ns = time.perf_counter_ns()
        if _thread.get_ident() == self._own_ident:
            self._sampler_cpu_ns = self._ended_cpu_ns + time.thread_time_ns()
        self.writer.line(
            "meter",
            sampler_cpu_ns=self._sampler_cpu_ns,
            samples=self._sampler.samples if self._sampler is not None else 0,
            marks=self.marks,
            window_ns=self.windows.cost_ns,
            dropped=self.writer.dropped,
        )

    # -- ways to end -------------------------------------------------------------------------------

    def _patch_os(self) -> None:
        real_exit, real_kill = os._exit, os.kill

        def _exit(status: int) -> None:
            self.guard("os._exit", self.finish, "os._exit")
            real_exit(status)

        def kill(pid: int, signum: int, /) -> None:
            if signum == signal.SIGKILL:
                self.guard("os.kill", self._wait_for_busy, pid)
            real_kill(pid, signum)

        os._exit = _exit  # type: ignore[assignment]
        os.kill = kill
        self.hide(kill)
        for name in ("execv", "execve"):
            setattr(os, name, self._exec_wrapper(getattr(os, name)))

    def _exec_wrapper(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def wrapper(*args: Any) -> Any:
            self.guard("exec", self.finish, "exec")
            try:
                return original(*args)
            except BaseException:
                self.guard("exec", self.resume)
                raise

        wrapper.__name__ = original.__name__
        wrapper.__doc__ = original.__doc__
        self.hide(wrapper)
        return wrapper

    def _wait_for_busy(self, pid: int) -> None:
        """One of our processes is about to be killed while it saves its window: let it finish."""
        busy = os.path.join(self.folder, f"busy-{pid}")
        limit = time.monotonic() + KILL_DELAY_S
        while os.path.exists(busy) and time.monotonic() < limit:
            time.sleep(0.02)

    def _catch_signals(self) -> None:
        """Flush before the default action of SIGTERM and SIGHUP. A handler the user sets wins."""
        try:
            mine = [n for n in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(n) is signal.SIG_DFL]
            for signum in mine:
                signal.signal(signum, self._on_signal)
            if mine:
                self._watch_signals()
        except (ValueError, OSError) as error:
            self.fault("signals", error)

    def _watch_signals(self) -> None:
        """Let our thread see signals too: the main thread may be inside a call that never returns.

        Called again in a forked child: with the parent's pipe each would see the other's signals.
        """
        inherited, self._wakeup = self._wakeup, (-1, -1)
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        known = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        unused: tuple[int, ...] = inherited
        if known in (-1, inherited[1]):
            self._wakeup = (reader, writer)
        else:  # somebody else's, asyncio's for one
            signal.set_wakeup_fd(known)
            unused = (*inherited, reader, writer)
        for descriptor in unused:
            if descriptor >= 0:
                os.close(descriptor)

    def _look_for_signals(self, now: int) -> None:
        try:
            arrived = os.read(self._wakeup[0], 256)
        except OSError:
            arrived = b""
        for signum in (signal.SIGTERM, signal.SIGHUP):
            if signum in arrived and not self._pending_signal:
                self._pending_signal, self._signalled_ns = int(signum), now
        if self._pending_signal and now - self._signalled_ns > STUCK_S * 1e9:
            self._act_for_main_thread(self._pending_signal)

    def _act_for_main_thread(self, signum: int) -> None:
        self._pending_signal = 0
        if self._handling or signal.getsignal(signum) != self._on_signal:
            return
        self.guard("signal", self.finish, f"signal {signum}, main thread stuck")
        import ctypes

        # only the main thread may call signal.signal, and it is not listening
        ctypes.CDLL(None).signal(signum, 0)
        os.kill(os.getpid(), signum)

    def _on_signal(self, signum: int, frame: FrameType | None) -> None:
        self._handling = True
        self.guard("signal", self.finish, f"signal {signum}")
        signal.signal(signum, signal.SIG_DFL)
        os.kill(os.getpid(), signum)

    # -- tracebacks --------------------------------------------------------------------------------

    def _wrap_excepthook(self) -> None:
        """Uncaught exceptions are printed without the frames of our wrappers, like plain Python prints them."""
        original = sys.excepthook

        def excepthook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
            self.guard("traceback", self._strip, error, set())
            original(kind, error, error.__traceback__ if trace is not None else None)

        sys.excepthook = excepthook

    def _strip(self, error: BaseException | None, seen: set[int]) -> None:
        while error is not None and id(error) not in seen:
            seen.add(id(error))
            error.__traceback__ = without_hidden(error.__traceback__, self.hidden)
            self._strip(error.__context__, seen)
            error = error.__cause__

    # -- forks -------------------------------------------------------------------------------------

    def before_fork(self) -> None:
        if self._finished or os.getpid() != self.pid:
            return
        self._fork_lock.acquire()  # two threads may fork at once
        self._forking = True
        # A signal that reaches the child before it is set up must wait: Python forgets those it has seen by
        # then, and with our handler in place of the default action the child would not die of it.
        self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGHUP))
        # Our thread must not exist at the fork: it may hold a lock, and Python 3.12 warns about threads.
        self.guard("fork", self.stop_thread)
        if sys.version_info >= (3, 12):
            self.guard("fork", hide_own_thread_from_fork, self._own_tid)
        self.guard("fork", self.windows.before_fork)
        self.writer.frozen = True

    def after_fork_in_parent(self) -> None:
        if not self._forking:
            return
        self._forking = False
        self.writer.frozen = False
        self.guard("fork", self.windows.after_fork_in_parent)
        self.guard("fork", self.start_thread)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)
        self._fork_lock.release()

    def after_fork_in_child(self) -> None:
        if not self._forking:
            return
        self._forking = self._running = False
        self._finished = True
        self._fork_lock = _thread.allocate_lock()
        try:
            self._begin_again()
        except Exception as error:  # noqa: BLE001 - the child has no record yet to write a fault to
            boot_error(self.folder, error)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask)

    def _begin_again(self) -> None:
        """In a forked child: a record of its own, or none."""
        self.writer.abandon()
        if not self.follows_children:
            self.windows.leave()
            return
        windows, self.marks = self.windows, 0
        self._ended_cpu_ns = 0
        self._pending_signal = 0
        if self._wakeup[0] >= 0:
            self._watch_signals()
        self._open(FORK)
        self.windows.inherit(windows)
        self.start_thread()


_forking: list[Agent] = []


def _follow_forks(agent: Agent) -> None:
    """Fork handlers cannot be taken back, so they are registered once and act for the newest agent."""
    if not _forking:
        os.register_at_fork(
            before=lambda: _forking[0].before_fork(),
            after_in_parent=lambda: _forking[0].after_fork_in_parent(),
            after_in_child=lambda: _forking[0].after_fork_in_child(),
        )
    _forking[:] = [agent]


_FORK_WARNING = r"This process \(pid=\d+\) is multi-threaded, use of \w+\(\) may lead to deadlocks"


def hide_own_thread_from_fork(tid: int) -> None:
    """Make Python warn about forking with threads exactly where it would without us.

    It counts threads after the fork; since 3.13 only once our own runs again. So where the program has but
    one thread that warning is filtered out, until the next fork decides anew.
    """
    limit = time.monotonic() + 0.05
    while os.path.exists(f"/proc/self/task/{tid}") and time.monotonic() < limit:
        time.sleep(0.0001)  # it has left our code, but not yet the system's list
    import warnings

    ours = [entry for entry in warnings.filters if getattr(entry[1], "pattern", "") == _FORK_WARNING]
    alone = len(os.listdir("/proc/self/task")) == 1
    if alone and not ours:
        warnings.filterwarnings("ignore", _FORK_WARNING, DeprecationWarning)
    elif ours and not alone:
        for entry in ours:
            warnings.filters.remove(entry)  # type: ignore[attr-defined]
        warnings._filters_mutated()  # type: ignore[attr-defined]


def without_hidden(trace: TracebackType | None, hidden: set[int]) -> TracebackType | None:
    """A traceback without the frames whose code is in `hidden`."""
    while trace is not None and id(trace.tb_frame.f_code) in hidden:
        trace = trace.tb_next
    at = trace
    while at is not None:
        following = at.tb_next
        while following is not None and id(following.tb_frame.f_code) in hidden:
            following = following.tb_next
        at.tb_next = following
        at = following
    return trace


def boot_error(folder: str, error: BaseException) -> None:
    """The recorder could not start here; the launcher turns this into a note."""
    from stallscope.profiler.recorder.format import BOOT_ERRORS, to_json

    line = to_json(
        {
            "pid": os.getpid(),
            "error": f"{type(error).__name__}: {error}"[:500],
            "python": sys.version.split()[0],
        }
    )
    try:
        with open(os.path.join(folder, BOOT_ERRORS), "a", encoding="ascii") as log:
            log.write(line + "\n")
    except OSError:
        return
