"""subprocess: a Python child whose caller built a new environment is recorded too.

Children inherit our variables by themselves. Where the caller passes `env`, a copy of it gets them back;
the caller's own mapping is left alone, and so is every child that is no Python.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from types import ModuleType

from stallscope.profiler.recorder.format import BOOT_FOLDER, ENV_FOLDER, ENV_NAMES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stallscope.profiler.recorder.agent import Agent

_ENV_POSITION = 10
"""Of `env` among the positional arguments of Popen after `self`."""


def install(module: ModuleType, agent: Agent) -> None:
    if not agent.follows_children:
        return
    original = module.Popen.__init__

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        args, kwargs = agent.guard("Popen", _repaired, args, kwargs) or (args, kwargs)
        original(self, *args, **kwargs)

    __init__.__wrapped__ = original  # type: ignore[attr-defined]
    __init__.__doc__ = original.__doc__
    agent.hide(__init__)
    module.Popen.__init__ = __init__


def _repaired(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    positional = len(args) > _ENV_POSITION
    env = args[_ENV_POSITION] if positional else kwargs.get("env")
    if env is None or not _is_python(args[0] if args else kwargs.get("args"), kwargs.get("executable")):
        return args, kwargs
    env = with_recording(env, os.environ)
    if positional:
        return (*args[:_ENV_POSITION], env, *args[_ENV_POSITION + 1 :]), kwargs
    return args, {**kwargs, "env": env}


def _is_python(command: Any, executable: Any) -> bool:
    if executable is None and isinstance(command, list | tuple):
        command = command[0] if command else ""
    first = command if executable is None else executable
    if not isinstance(first, str | bytes | os.PathLike):
        return False
    text = os.fsdecode(first).split(" ", 1)[0]
    return text == sys.executable or os.path.basename(text).startswith("python")


def with_recording(
    env: Mapping[Any, Any], ours: Mapping[str, str], boot: str = BOOT_FOLDER
) -> dict[Any, Any]:
    """A copy of an environment in which a Python child finds the recorder.

    >>> with_recording({"PYTHONPATH": "/x"}, {"STALLSCOPE_RECORDING": "/r"}, boot="/boot")
    {'PYTHONPATH': '/boot:/x', 'STALLSCOPE_RECORDING': '/r'}
    """
    copy = dict(env)
    if ENV_FOLDER not in ours:
        return copy
    path = os.fsdecode(copy.pop("PYTHONPATH", copy.pop(b"PYTHONPATH", "")))
    parts = [part for part in path.split(os.pathsep) if part and part != boot]
    copy["PYTHONPATH"] = os.pathsep.join([boot, *parts])
    copy.update({name: ours[name] for name in ENV_NAMES if name in ours})
    return copy
