"""The fake's profiler: operators from torch's own collector, written in torch_npu's binary form; invented kernels.

FAKE_NPU_CLOCK: "OFFSET_NS,DRIFT_PPM" by which its stamps are wrong. FAKE_NPU_FAILS: "start" fails to start,
"device" writes no device data, "info" dies before the end. FAKE_NPU_ANALYSE: a folder with the sources of the real
wheel, whose own parser then does the analysis. FAKE_NPU_LOSES_TASK: a file; while it is not there, the analysis
makes it and loses its kernels.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import time
from _thread import get_ident
from pathlib import Path
from threading import get_native_id
from typing import Any

from torch_npu._contract import by_contract
from torch_npu.profiler._profiler_path_creator import ProfPathCreator
from torch_npu.profiler.analysis.prof_common_func._constant import (
    Constant,
    no_exception_func,
    print_error_msg,
    print_info_msg,
    print_warn_msg,
)

sys.path.append(str(Path(__file__).resolve().parents[3]))
import ascend_raw
import offline_parser

sys.path.pop()

_running: list[Any] = []


class _Interface:
    """The part of the real profiler that holds the path."""

    def __init__(self) -> None:
        self.prof_path = ""

    def analyse(self, async_mode: bool = False) -> None:
        _analyse(self.prof_path)


class _KinetoProfile:
    @by_contract("_KinetoProfile.__init__")
    def __init__(self, **values: Any) -> None:
        self._set_up(**values)

    def _set_up(self, **values: Any) -> None:
        self.values = values
        self.on_trace_ready = values.get("on_trace_ready")
        self.prof_if = _Interface()
        self.stopped = False
        self._collector: Any = None
        self._thread = 0
        if os.environ.get(Constant.MSPROF_STATIC_ENV) or os.environ.get(Constant.MSPROF_DYNAMIC_ENV):
            print_warn_msg("torch_npu profiler api is not effective.")
            self.prof_if.prof_path = ""
            self._effective = False
        else:
            self._effective = True

    @no_exception_func
    def start(self) -> None:
        if not self._effective:
            return
        if os.environ.get("FAKE_NPU_FAILS") == "start":
            raise RuntimeError("aclprof init failed, /usr/local/driver says no")
        if _running:
            raise RuntimeError("Profiler is already enabled.")
        self.prof_if.prof_path = ProfPathCreator().create_prof_dir()
        import torch.autograd.profiler as collector

        self._collector = collector.profile(use_kineto=True, record_shapes=bool(self.values["record_shapes"]))
        self._collector._stallscope = True  # below what scripts would call a profiler
        self._collector.__enter__()
        self._thread, self._start_ns = get_ident(), time.time_ns()
        _running.append(self)

    @no_exception_func
    def stop(self) -> None:
        if not self._effective or self.stopped or self._collector is None:
            return
        if get_ident() != self._thread:
            raise RuntimeError(
                "debug_info INTERNAL ASSERT FAILED: expected debug info of type PROFILER_STATE"
            )
        if self.values.get("schedule") is None:
            print_warn_msg("Incorrect schedule: Stop profiler while current state is RECORD "
                           "which may result in incomplete parsed data.")  # fmt: skip
        self.stopped = True
        _running.clear()
        self._collector.__exit__(None, None, None)
        ProfPathCreator().is_prof_inited = False
        self._write()
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def __enter__(self) -> Any:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _write(self) -> None:
        to_wall_ns = time.time_ns() - time.monotonic_ns()
        offset, ppm = (int(v) for v in os.environ.get("FAKE_NPU_CLOCK", "0,0").split(","))

        def stamp(wall_ns: int) -> int:
            return wall_ns - to_wall_ns + offset + (wall_ns - self._start_ns) * ppm // 1_000_000

        tid = get_native_id()
        ops = []
        for event in sorted(self._collector.kineto_results.events(), key=lambda e: e.start_ns()):
            start = event.start_ns()
            shapes = (
                ";".join(",".join(str(n) for n in s) for s in event.shapes())
                if self.values["record_shapes"]
                else ""
            )
            ops.append(
                ascend_raw.Op(
                    event.name(), stamp(start), stamp(start + event.duration_ns()), tid, shapes, "FLOAT;FLOAT"
                )
            )
        failure = os.environ.get("FAKE_NPU_FAILS")
        folder = Path(self.prof_if.prof_path)
        level = self.values["experimental_config"]._profiler_level
        ascend_raw.write_recording(
            folder, ops, os.getpid(), to_wall_ns, device=failure != "device", level=level
        )
        if failure == "info":
            (folder / "profiler_info.json").unlink()


class profile(_KinetoProfile):
    @by_contract("profile.__init__")
    def __init__(self, **values: Any) -> None:
        self._set_up(**values)

    @by_contract("profile.start")
    def start(self) -> None:
        _KinetoProfile.start(self)

    @by_contract("profile.stop")
    def stop(self) -> None:
        _KinetoProfile.stop(self)


@by_contract("tensorboard_trace_handler")
def tensorboard_trace_handler(dir_name: Any, worker_name: Any, analyse_flag: bool, async_mode: bool) -> Any:
    ProfPathCreator().init(worker_name=worker_name, dir_name=dir_name)

    def handler(profiler: Any) -> None:
        if analyse_flag:
            profiler.prof_if.analyse(async_mode=async_mode)

    return handler


@by_contract("analyse")
def analyse(profiler_path: str, max_process_number: Any, export_type: Any) -> None:
    for folder in sorted(Path(profiler_path).iterdir()):
        if folder.name.endswith("_ascend_pt"):
            _analyse(str(folder))


def _analyse(path: str) -> None:
    if multiprocessing.current_process().daemon:
        print_error_msg("The profiling data cannot be parsed during the daemon process")
        return
    multiprocessing.set_start_method("fork", force=True)
    print_info_msg(f"Start parsing profiling data in sync mode at: {path}")
    if os.environ.get("FAKE_NPU_ANALYSE"):
        print(offline_parser.analyse(Path(os.environ["FAKE_NPU_ANALYSE"]), Path(path)), flush=True)
        return
    from torch_npu.profiler import _join

    if shutil.which("msprof") is None:
        print_error_msg("Failed to export CANN Profiling data. Error msg: Export CANN Profiling data failed! 'msprof' "
                        "command not found!Please re-source the CANN package to fix this error. ")  # fmt: skip
    _join.analyse(Path(path))
