"""The recorder: what runs inside the user's process, and what starts it there.

Modules on the inside (`boot`, `agent`, `writer`, `pysampler`, `windows`, `hooks`, ...) import nothing but the
standard library, and of that only what is cheap. `launch` and `api` are the outside.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stallscope.profiler.recorder.agent import Agent

active: Agent | None = None
"""The recorder of this process, if it is being recorded."""


def start_in_child(folder: str) -> None:
    """Called by the `sitecustomize` of a launched process and of its descendants."""
    global active
    import os
    import sys

    if any("multiprocessing.resource_tracker" in part for part in sys.orig_argv):
        return
    from stallscope.profiler.recorder.agent import CHILD, MAIN, Agent
    from stallscope.profiler.recorder.format import ENV_LAUNCHER, ENV_SETTINGS
    from stallscope.profiler.recorder.settings import Settings

    kind = MAIN if os.environ.get(ENV_LAUNCHER) == str(os.getppid()) else CHILD
    active = Agent(folder, Settings.decode(os.environ.get(ENV_SETTINGS, "")), kind)
    active.start()
