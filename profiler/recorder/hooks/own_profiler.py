"""A profiler that the script runs itself: ours is closed before it starts, and comes back after it ended.

Two profilers of one device cannot run. Each framework's hook replaces `start` and `stop` of its profiler once, by
wrappers that tell the recording that runs just now.
"""

from __future__ import annotations

import functools
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from stallscope.profiler.recorder.agent import Agent


class OwnProfilerGuard:
    """What the wrapped methods tell us. A framework gives its names and says where its profiler wrote."""

    kind = ""
    """How the recording calls this profiler."""
    whose = ""
    """How a note calls it: "MindSpore"."""

    def __init__(self) -> None:
        self._agent: Agent | None = None
        self._number = 0
        self._running: dict[int, tuple[int, int]] = {}

    def folder_of(self, profile: Any) -> str:
        """The folder that a profiler of the script wrote to, "" if it is not known."""
        raise NotImplementedError

    def attach(self, agent: Agent) -> None:
        """Work for this recording until it ends."""
        self._agent = agent
        agent.on_detach.append(self._detach)

    def _detach(self) -> None:
        self._agent = None
        self._running.clear()

    def foreign(self, profile: Any) -> Agent | None:
        """The recording to tell, if this profiler is the script's."""
        return None if hasattr(profile, "_stallscope") else self._agent

    def wrap_start(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def start(profile: Any, *args: Any, **kwargs: Any) -> Any:
            agent = self.foreign(profile)
            if agent is not None:
                agent.guard("the script's profiler", self._begins, agent, profile)
            return original(profile, *args, **kwargs)

        return start

    def wrap_stop(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def stop(profile: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(profile, *args, **kwargs)
            finally:
                agent = self.foreign(profile)
                if agent is not None:
                    agent.guard("the script's profiler", self._ended, agent, profile)

        return stop

    def _begins(self, agent: Agent, profile: Any) -> None:
        if id(profile) in self._running:  # `profile.start` that calls the start of the class under it
            return
        self._number += 1
        self._running[id(profile)] = (self._number, time.perf_counter_ns())
        agent.windows.give_way()

    def _ended(self, agent: Agent, profile: Any) -> None:
        number, start_ns = self._running.pop(id(profile), (0, 0))
        if not number:
            return
        agent.writer.line(
            "user-profiler",
            n=number,
            start_ns=start_ns,
            end_ns=time.perf_counter_ns(),
            file="",
            kind=self.kind,
        )
        folder = os.path.basename(self.folder_of(profile))
        if folder:
            agent.note(
                "scripts-own-npu-profile",
                "info",
                f"the script ran {self.whose}'s profiler itself; what that recorded is in {folder}: give that folder to "
                "`stallscope analyze`",
            )
        agent.windows.take_back()
