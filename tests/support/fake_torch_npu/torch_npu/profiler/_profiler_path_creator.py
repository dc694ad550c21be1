"""Where recordings go: one object for the whole process, which every profiler of it shares."""

from __future__ import annotations

import os
import time
from datetime import datetime
from typing import Any

from torch_npu._contract import by_contract


class _ProfPathCreator:
    def __init__(self) -> None:
        self._prof_path = ""
        self._worker_name: str | None = None
        self._dir_path: str | None = None
        self._export_only_mode = False
        self.is_prof_inited = False

    @by_contract("ProfPathCreator.init")
    def init(self, worker_name: Any, dir_name: Any, export_only_mode: bool) -> None:
        self._worker_name, self._export_only_mode = worker_name, export_only_mode
        self._dir_path = os.path.realpath(dir_name) if dir_name else None

    def create_prof_dir(self) -> str:
        stamp = f"{datetime.now():%Y%m%d%H%M%S}{time.time_ns() // 1_000_000 % 1000:03d}"
        name = f"{self._worker_name or 'fakehost'}_{os.getpid()}_{stamp}_ascend_pt"
        self._prof_path = os.path.join(self._dir_path or os.getcwd(), name)
        os.makedirs(self._prof_path)
        self.is_prof_inited = True
        return self._prof_path


_only = _ProfPathCreator()


def ProfPathCreator() -> _ProfPathCreator:
    """The real one is a class made a singleton by a decorator: a call gives the one object."""
    return _only
