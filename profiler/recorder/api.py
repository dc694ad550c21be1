"""For people who edit their script: `stallscope.record()` around a part of it, `stallscope.mark()` for spans.

    import stallscope

    with stallscope.record("run.stallscope") as recording:
        for i in range(32):
            with stallscope.mark("decode", step=i):
                step()
    print(stallscope.analyze(recording.session).verdict.text)

Both work under `stallscope run` too: marks go to its recording, and `record` marks its part there.
"""

from __future__ import annotations

import functools
import os
import sys
import time

from stallscope.profiler.errors import StallscopeError
from stallscope.profiler.recorder.settings import Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, TypeVar

    from typing_extensions import Self

    from stallscope.profiler.recorder.agent import Agent
    from stallscope.profiler.session import Session

    F = TypeVar("F", bound=Callable[..., Any])


class mark:
    """A span of the calling thread on the timeline, as a context manager or a decorator.

    A name that begins with prefill, decode, mixed or sample tells the phase. `values` are shown with the
    span: whole numbers and floats as such, anything else as short text. Where nothing records, a mark
    costs less than a microsecond and does nothing.

    >>> with mark("decode", step=3):
    ...     pass
    """

    __slots__ = ("_counted", "_end_range", "_start_ns", "name", "values")

    def __init__(self, name: str, **values: object) -> None:
        self.name = name
        self.values = values
        self._start_ns = 0
        self._counted = False
        self._end_range: Any = None

    def __enter__(self) -> Self:
        agent = active_agent()
        if agent is not None:
            self._counted = bool(agent.guard("mark", agent.windows.step_begins, "mark"))
            if agent.windows.device_range is not None:
                self._end_range = agent.guard("mark", agent.windows.device_range, self.name)
            self._start_ns = time.perf_counter_ns()
        return self

    def __exit__(self, *_: object) -> None:
        agent = active_agent()
        if agent is None or not self._start_ns:
            return
        agent.guard("mark", agent.mark, self.name, self._start_ns, time.perf_counter_ns(), self.values)
        if self._end_range is not None:
            agent.guard("mark", self._end_range)
            self._end_range = None
        if self._counted:
            agent.windows.step_ends()
        self._start_ns = 0

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def marked(*args: Any, **kwargs: Any) -> Any:
            with mark(self.name, **self.values):
                return function(*args, **kwargs)

        return marked  # type: ignore[return-value]


class record:
    """Record a part of this process: a context manager that gives a `Recording`, or a decorator.

    `output`: a folder to save the session to when the part ends; refused, before anything runs, if it
    exists and `force` is not given. A decorated function called again saves to `NAME-2`, `NAME-3`, ...
    `settings`: `python`, `rate_hz`, `ops`, `device`, `max_events`, ... (see `Settings`). Recordings in one
    process do not overlap. Raises OptionError for a setting that is not known.

    If torch was imported before, Kineto prints a line for each window on stderr, unless KINETO_LOG_LEVEL=6
    was set.
    """

    def __init__(
        self, output: str | os.PathLike[str] | None = None, *, force: bool = False, **settings: Any
    ) -> None:
        self._output = os.fspath(output) if output is not None else None
        self._force = force
        self._settings = Settings(**settings)
        self._recording: Recording | None = None
        self._calls = 0

    def __enter__(self) -> Recording:
        self._calls += 1
        self._recording = Recording(self._target(), self._force, self._settings)
        self._recording._begin()
        return self._recording

    def _target(self) -> str | None:
        if self._output is None or self._calls == 1:
            return self._output
        name, ending = os.path.splitext(self._output)
        return f"{name}-{self._calls}{ending}"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._recording is not None:
            self._recording._end()

    def __call__(self, function: F) -> F:
        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return recorded  # type: ignore[return-value]


class Recording:
    """One recording made by `record`. `session` is there once the recorded part has ended."""

    def __init__(self, output: str | None, force: bool, settings: Settings) -> None:
        self.output = output
        self._force = force
        self._settings = settings
        self._agent: Agent | None = None
        self._outer: mark | None = None
        self._folder = ""
        self._start_ns = 0
        self._session: Session | None = None

    def _begin(self) -> None:
        if active_agent() is not None:
            self._outer = mark("stallscope.record")
            self._outer.__enter__()
            return
        self._refuse_existing()
        import tempfile

        from stallscope.profiler import recorder
        from stallscope.profiler.recorder.agent import RECORD, Agent
        from stallscope.profiler.recorder.hostsampler import HostSampler

        if "torch" not in sys.modules:
            os.environ.setdefault("KINETO_LOG_LEVEL", "6")
        self._folder = tempfile.mkdtemp(prefix="stallscope-")
        self._write_manifest()
        self._start_ns = time.perf_counter_ns()
        agent = Agent(self._folder, self._settings, RECORD)
        if os.path.isdir("/proc/self/task"):
            # whole readings at both ends; those in between come a few threads at a time
            agent.host = HostSampler(os.getpid(), agent.writer)
            agent.guard("host readings", agent.host.sweep, time.perf_counter_ns())
        agent.windows.at_once = True
        agent.start()
        self._agent = recorder.active = agent

    def _refuse_existing(self) -> None:
        """Before the part runs, not after it."""
        if self.output is None or self._force or not os.path.exists(self.output):
            return
        from stallscope.profiler.errors import InputError

        raise InputError(self.output, "exists already", "Choose another name or pass force=True.")

    def _write_manifest(self) -> None:
        from pathlib import Path

        from stallscope.profiler.recorder.launch import write_manifest

        write_manifest(Path(self._folder), sys.argv, self._settings, "record")

    def _end(self) -> None:
        if self._outer is not None:
            self._outer.__exit__()
        agent, self._agent = self._agent, None
        if agent is None:
            return
        from pathlib import Path

        from stallscope.profiler import recorder
        from stallscope.profiler.recorder.launch import write_end

        agent.finish("end of the recorded part")
        host_ns = 0
        if agent.host is not None:
            agent.guard("host readings", agent.host.finish)
            host_ns = agent.host.cost_ns
        agent.detach()
        recorder.active = None
        write_end(Path(self._folder), 0, self._start_ns, host_ns)
        if self.output is not None:
            self.session.save(self.output, force=self._force)

    @property
    def session(self) -> Session:
        """What was recorded, merged when it is first asked for. Raises StallscopeError while recording."""
        if self._session is None:
            self._session = self._merge()
        return self._session

    def _merge(self) -> Session:
        if self._outer is not None:
            raise StallscopeError(
                "this part runs under another recording (`stallscope run`, or a record() around it), which holds its data."
            )
        if self._agent is not None or not self._folder:
            raise StallscopeError("the recorded part has not ended yet.")
        import shutil
        from pathlib import Path

        from stallscope.profiler.readers.recording_dir import read
        from stallscope.profiler.recorder import offline

        outcome = offline.analyse(Path(self._folder))
        session = read(Path(self._folder))
        # only now: a merge that fails must not cost the recording; nor may data that waits to be analysed elsewhere
        if not outcome.unfinished:
            shutil.rmtree(self._folder)
        return session


def active_agent() -> Agent | None:
    """The recorder of this process, or None."""
    from stallscope.profiler import recorder

    return recorder.active
