"""Writes a recording as the JSON that torch.profiler exports for CUDA and HIP devices.

Form taken from recordings of torch 2.4 to 2.9: microseconds with three decimals relative to
`baseTimeNanoseconds`, `ac2g` flows, device lanes as (device, stream), annotations mirrored on the device.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

from benchmarks.planted.actions import Kernel
from benchmarks.planted.hardware import Chip
from benchmarks.planted.recording import NOT_WORK, DeviceRow, HostRow, Recording

ORIGIN_NS = 1_428_625_731_456_483
BASE_NS = 1_751_410_836_000_000_000

# role: (category, name, callback id) of the CUDA runtime; HIP has one category
CUDA_CALLS: dict[str, tuple[str, str, int]] = {
    "launch": ("cuda_runtime", "cudaLaunchKernel", 211),
    "launch_ex": ("cuda_runtime", "cudaLaunchKernelExC", 430),
    "launch_driver": ("cuda_driver", "cuLaunchKernelEx", 652),
    "graph_launch": ("cuda_runtime", "cudaGraphLaunch", 311),
    "memcpy_async": ("cuda_runtime", "cudaMemcpyAsync", 41),
    "memset_async": ("cuda_runtime", "cudaMemsetAsync", 51),
    "stream_sync": ("cuda_runtime", "cudaStreamSynchronize", 131),
    "device_sync": ("cuda_runtime", "cudaDeviceSynchronize", 165),
    "event_sync": ("cuda_runtime", "cudaEventSynchronize", 137),
    "event_record": ("cuda_runtime", "cudaEventRecord", 135),
    "stream_wait_event": ("cuda_runtime", "cudaStreamWaitEvent", 147),
    "stream_is_capturing": ("cuda_runtime", "cudaStreamIsCapturing", 317),
    "malloc": ("cuda_runtime", "cudaMalloc", 20),
    "free": ("cuda_runtime", "cudaFree", 22),
    "capture_begin": ("cuda_runtime", "cudaStreamBeginCapture", 314),
    "capture_end": ("cuda_runtime", "cudaStreamEndCapture", 315),
    "graph_instantiate": ("cuda_runtime", "cudaGraphInstantiate", 316),
    "module_load": ("cuda_runtime", "cudaLibraryLoadData", 449),
}
HIP_CALLS: dict[str, tuple[str, int]] = {
    "launch": ("hipLaunchKernel", 211),
    "launch_ex": ("hipExtModuleLaunchKernel", 94),
    "launch_driver": ("hipModuleLaunchKernel", 169),
    "graph_launch": ("hipGraphLaunch", 215),
    "memcpy_async": ("hipMemcpyAsync", 134),
    "memcpy_with_stream": ("hipMemcpyWithStream", 153),
    "memset_async": ("hipMemsetAsync", 165),
    "stream_sync": ("hipStreamSynchronize", 198),
    "device_sync": ("hipDeviceSynchronize", 48),
    "event_sync": ("hipEventSynchronize", 60),
    "event_record": ("hipEventRecord", 59),
    "stream_wait_event": ("hipStreamWaitEvent", 200),
    "stream_is_capturing": ("hipStreamIsCapturing", 290),
    "malloc": ("hipMalloc", 119),
    "free": ("hipFree", 73),
    "capture_begin": ("hipStreamBeginCapture", 285),
    "capture_end": ("hipStreamEndCapture", 287),
    "graph_instantiate": ("hipGraphInstantiate", 213),
    "module_load": ("hipModuleLoadData", 171),
}
_SYNCS = ("stream_sync", "device_sync", "event_sync")
_HIP_STREAMS = {7: 0, 20: 3}
_HOST_MEMORY = {"Pageable": "Pageable", "Pinned": "Pinned", "Device": "Device"}
_NCCL_TYPES = {"bf16": "BFloat16", "fp16": "Half", "fp32": "Float"}


@dataclass
class KinetoWriter:
    """Turns one recording into a Kineto document. `stack` keeps the Python frames."""

    recording: Recording
    chip: Chip
    stack: bool = True
    world: int = 1
    cpu_only: bool = False
    events: list[str] = field(default_factory=list)
    index: int = 0

    def write(self, out: TextIO) -> None:
        self._host_rows()
        if not self.cpu_only:
            self._device_rows()
            self._annotations()
        self._metadata()
        out.write(self._head())
        out.write(",\n".join(self.events))
        out.write('\n  ],\n  "traceName": "trace.json"\n}\n')

    # Pieces of text.

    def _event(
        self, fields: dict[str, Any], ts_ns: int, dur_ns: int | None, args: dict[str, Any] | None
    ) -> None:
        head = ", ".join(f'"{k}": {json.dumps(v)}' for k, v in fields.items())
        time = f'"ts": {_us(ORIGIN_NS + ts_ns)}' + ("" if dur_ns is None else f', "dur": {_us(dur_ns)}')
        body = ""
        if args is not None:
            inner = ", ".join(f'"{k}": {json.dumps(v)}' for k, v in args.items())
            body = f',\n    "args": {{\n      {inner}\n    }}'
        self.events.append(f"  {{\n    {head},\n    {time}{body}\n  }}")

    def _flow(self, phase: str, number: int, pid: int, tid: int, ts_ns: int) -> None:
        bind = ', "bp": "e"' if phase == "f" else ""
        self.events.append(
            f'  {{\n    "ph": "{phase}", "id": {number}, "pid": {pid}, "tid": {tid}, '
            f'"ts": {_us(ORIGIN_NS + ts_ns)},\n    "cat": "ac2g", "name": "ac2g"{bind}\n  }}'
        )

    # Rows.

    def _host_rows(self) -> None:
        rows = self.recording.visible_host()
        ids = {id(row): i for i, row in enumerate(self.recording.host)}
        numbers: dict[int, int] = {}
        for row in rows:
            if row.kind in ("op", "annotation"):
                self._op(row)
        for row in rows if self.stack else []:
            if row.kind in ("python", "gc"):
                numbers[ids[id(row)]] = len(numbers) + 1
                self._python(row, numbers)
        for row in rows if not self.cpu_only else []:
            if row.kind == "runtime":
                self._call(row)
            elif row.kind == "overhead":
                self._event(
                    {"ph": "X", "cat": "overhead", "name": row.name, "pid": -1, "tid": 0},
                    row.start_ns, row.end_ns - row.start_ns, None,
                )  # fmt: skip

    def _op(self, row: HostRow) -> None:
        args: dict[str, Any] = {"External id": row.external, "Record function id": 0}
        args.update(row.args)
        if row.name == "record_param_comms":
            args.update(self._collective_args(row))
        args["Ev Idx"] = self._next()
        cat = "cpu_op" if row.kind == "op" else "user_annotation"
        self._event(
            {"ph": "X", "cat": cat, "name": row.name, "pid": self.recording.pid, "tid": row.tid},
            row.start_ns, row.end_ns - row.start_ns, args,
        )  # fmt: skip

    def _collective_args(self, row: HostRow) -> dict[str, Any]:
        dims = row.args.get("Input Dims") or [[0]]
        elements = 1
        for size in dims[0]:
            elements *= size
        return collective_args(elements, "bf16", self.world)

    def _python(self, row: HostRow, numbers: dict[int, int]) -> None:
        start = max(row.start_ns, self.recording.window_start_ns)
        args = {
            "Python parent id": numbers.get(row.parent),
            "Python id": len(numbers),
            "Ev Idx": self._next(),
        }
        self._event(
            {"ph": "X", "cat": "python_function", "name": row.name, "pid": self.recording.pid, "tid": row.tid},
            start, row.end_ns - start, args,
        )  # fmt: skip

    def _call(self, row: HostRow) -> None:
        args: dict[str, Any] = {"External id": row.external} if row.external else {}
        kernel = row.args.get("kernel")
        if self.chip.vendor == "hip":
            cat, (name, number) = "cuda_runtime", HIP_CALLS[row.name]
            if isinstance(kernel, Kernel):
                args["kernel"] = kernel.name
            args.update({"cid": number, "correlation": row.correlation})
            if isinstance(kernel, Kernel):
                args.update(
                    {"grid": kernel.grid, "block": kernel.block, "shared memory": kernel.shared_memory}
                )
            if "copy" in row.args:
                kind = {"HtoD": "1", "DtoH": "2", "DtoD": "3"}[row.args["copy"]]
                args.update({"src": "0x7f1818900000", "dst": "0x7f14db1a4000", "bytes": str(row.args["bytes"]),
                             "kind": kind})  # fmt: skip
        else:
            role = row.name
            if role == "launch_ex" and isinstance(kernel, Kernel) and kernel.name.startswith("nvjet"):
                role = "launch_driver"
            cat, name, number = CUDA_CALLS[role]
            args.update({"cbid": number, "correlation": row.correlation})
        self._event(
            {"ph": "X", "cat": cat, "name": name, "pid": self.recording.pid, "tid": row.tid},
            row.start_ns, row.end_ns - row.start_ns, args,
        )  # fmt: skip
        starts = row.work > 0 or "captured" in row.args
        starts = starts or (self.chip.vendor == "cuda" and row.name in _SYNCS)
        self._flow("s" if starts else "f", row.correlation, self.recording.pid, row.tid, row.start_ns)

    def _device_rows(self) -> None:
        for row in self.recording.visible_device():
            stream = self._stream(row.stream)
            if row.kind in NOT_WORK:
                if self.chip.vendor == "cuda" and row.kind == "sync":
                    self._sync(row)
                continue
            args: dict[str, Any] = {"External id": row.external} if row.external else {}
            if row.kind == "kernel" and row.kernel is not None:
                name, cat = row.name, "kernel"
                args.update(self._kernel_args(row, row.kernel, stream))
            elif row.kind == "memcpy":
                name, cat = self._copy_name(row), "gpu_memcpy"
                args.update(self._transfer_args(row, stream))
            else:
                name, cat = "Memset (Device)", "gpu_memset"
                args.update(self._transfer_args(row, stream))
            self._event(
                {"ph": "X", "cat": cat, "name": name, "pid": row.device, "tid": stream},
                row.start_ns, row.end_ns - row.start_ns, args,
            )  # fmt: skip
            self._flow("f", row.correlation, row.device, stream, row.start_ns)

    def _stream(self, stream: int) -> int:
        return _HIP_STREAMS.get(stream, stream) if self.chip.vendor == "hip" else stream

    def _kernel_args(self, row: DeviceRow, kernel: Kernel, stream: int) -> dict[str, Any]:
        blocks = kernel.grid[0] * kernel.grid[1] * kernel.grid[2]
        per_core = round(blocks / self.chip.cores, 6)
        warps = round(per_core * kernel.block[0] / self.chip.warp, 6)
        where: dict[str, Any] = {"device": row.device}
        if self.chip.vendor == "cuda":
            args: dict[str, Any] = {"queued": 0, **where, "context": 1, "stream": stream,
                    "correlation": row.correlation, "registers per thread": kernel.registers,
                    "shared memory": kernel.shared_memory, "blocks per SM": per_core, "warps per SM": warps,
                    "grid": kernel.grid, "block": kernel.block,
                    "est. achieved occupancy %": min(100, round(warps * 100 / 64))}  # fmt: skip
        else:
            args = {**where, "stream": stream, "correlation": row.correlation, "kind": "Dispatch Kernel",
                    "grid": kernel.grid, "block": kernel.block}  # fmt: skip
        if kernel.role == "collective" and kernel.inputs:
            args.update(collective_args(kernel.inputs[0].elements, kernel.inputs[0].dtype, self.world))
        return args

    def _copy_name(self, row: DeviceRow) -> str:
        kind = row.args["kind"]
        host = _HOST_MEMORY[row.args["host"]] if self.chip.vendor == "cuda" else "Host"
        ends = {"HtoD": f"({host} -> Device)", "DtoH": f"(Device -> {host})", "DtoD": "(Device -> Device)"}
        return f"Memcpy {kind} {ends[kind]}"

    def _transfer_args(self, row: DeviceRow, stream: int) -> dict[str, Any]:
        size = row.args["bytes"]
        args: dict[str, Any] = {"device": row.device}
        if self.chip.vendor == "cuda":
            args["context"] = 1
        args.update({"stream": stream, "correlation": row.correlation})
        if self.chip.vendor == "hip" and row.kind == "memcpy":
            args["kind"] = row.args["kind"]
        args.update({"bytes": size, "memory bandwidth (GB/s)": size / (row.end_ns - row.start_ns)})
        return args

    def _sync(self, row: DeviceRow) -> None:
        args: dict[str, Any] = {"External id": row.external} if row.external else {}
        args.update({"cuda_sync_kind": row.name, "stream": row.stream, "correlation": row.correlation,
                     "device": row.device, "context": 1})  # fmt: skip
        self._event(
            {"ph": "X", "cat": "cuda_sync", "name": row.name, "pid": row.device, "tid": row.stream},
            row.start_ns, row.end_ns - row.start_ns, args,
        )  # fmt: skip
        self._flow("f", row.correlation, row.device, row.stream, row.start_ns)

    def _annotations(self) -> None:
        """Each annotation's mirror on each lane: first start to last end of what was launched within."""
        rows = self.recording.visible_host()
        calls = {r.correlation: r for r in rows if r.kind == "runtime" and r.work}
        device = [r for r in self.recording.visible_device() if r.kind not in NOT_WORK]
        for note in (r for r in rows if r.kind == "annotation"):
            lanes: dict[tuple[int, int], tuple[int, int]] = {}
            for work in device:
                call = calls.get(work.correlation)
                if call is None or call.tid != note.tid or not note.start_ns <= call.start_ns < note.end_ns:
                    continue
                lane = (work.device, self._stream(work.stream))
                low, high = lanes.get(lane, (work.start_ns, work.end_ns))
                lanes[lane] = (min(low, work.start_ns), max(high, work.end_ns))
            for (number, stream), (low, high) in sorted(lanes.items()):
                self._event(
                    {"ph": "X", "cat": "gpu_user_annotation", "name": note.name, "pid": number, "tid": stream},
                    low, high - low, {"External id": note.external},
                )  # fmt: skip

    # The rest of the document.

    def _metadata(self) -> None:
        out, start = self.recording, self.recording.window_start_ns
        self._process(out.pid, "python", "CPU", out.pid, start)
        if not self.cpu_only:
            for device in range(8):
                self._process(device, "python", f"GPU {device}", 5_000_000 + device, start)
        lanes = (
            {(r.device, self._stream(r.stream)) for r in out.visible_device()} if not self.cpu_only else set()
        )
        for device, stream in sorted(lanes):
            self._thread(device, stream, f"stream {stream} " if stream >= 0 else f"Device {device}", start)
        for tid, name in out.threads.items():
            self._thread(out.pid, tid, f"thread {tid} ({name})", start)
        end = out.window_end_ns
        self._event(
            {"ph": "X", "cat": "Trace", "pid": "Spans", "tid": "PyTorch Profiler", "name": "PyTorch Profiler (0)"},
            start, end - start, {"Op count": 0},
        )  # fmt: skip
        mark = {"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces",
                "tid": "Trace PyTorch Profiler"}  # fmt: skip
        self._event(mark, start, None, None)
        self._event({"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": ""}, end, None, None)

    def _process(self, pid: int, name: str, label: str, order: int, ts_ns: int) -> None:
        for what, args in (
            ("process_name", {"name": name}),
            ("process_labels", {"labels": label}),
            ("process_sort_index", {"sort_index": order}),
        ):
            self._event({"name": what, "ph": "M", "pid": pid, "tid": 0}, ts_ns, None, args)

    def _thread(self, pid: int, tid: int, name: str, ts_ns: int) -> None:
        self._event({"name": "thread_name", "ph": "M", "pid": pid, "tid": tid}, ts_ns, None, {"name": name})
        self._event({"name": "thread_sort_index", "ph": "M", "pid": pid, "tid": tid}, ts_ns, None,
                    {"sort_index": tid})  # fmt: skip

    def _head(self) -> str:
        keys: dict[str, Any] = {"schemaVersion": 1}
        devices = {r.device for r in self.recording.device} | {0}
        keys["deviceProperties"] = [] if self.cpu_only else [self._properties(d) for d in sorted(devices)]
        if self.world > 1:
            keys["distributedInfo"] = {
                "backend": "nccl", "rank": self.recording.rank, "world_size": self.world, "pg_count": 1,
                "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "backend_config": "cuda:nccl",
                               "pg_size": self.world, "ranks": list(range(self.world))}],
            }  # fmt: skip
        if not self.cpu_only and self.chip.vendor == "cuda":
            keys.update({"cupti_version": 26, "cuda_runtime_version": 12080, "cuda_driver_version": 12080})
        elif not self.cpu_only:
            keys.update({"roctracer_version": 4.1, "hip_runtime_version": 70253211})
        keys["record_shapes"] = 1
        if self.stack:
            keys["with_stack"] = 1
        keys["trace_id"] = f"{self.recording.pid:032X}"
        keys["displayTimeUnit"] = "ms"
        keys["baseTimeNanoseconds"] = BASE_NS
        body = ",\n  ".join(f'"{k}": {json.dumps(v)}' for k, v in keys.items())
        return f'\n  {{\n  {body},\n  "traceEvents": [\n'

    def _properties(self, device: int) -> dict[str, Any]:
        chip = self.chip
        base = {
            "id": device, "name": chip.name, "totalGlobalMem": chip.memory, "computeMajor": chip.major,
            "computeMinor": chip.minor, "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,
            "regsPerBlock": 65536, "warpSize": chip.warp, "sharedMemPerBlock": 49152, "numSms": chip.cores,
        }  # fmt: skip
        if chip.vendor == "hip":
            return {**base, "maxSharedMemoryPerMultiProcessor": 65536}
        return {**base, "regsPerMultiprocessor": 65536, "sharedMemPerBlockOptin": 232448,
                "sharedMemPerMultiprocessor": 233472}  # fmt: skip

    def _next(self) -> int:
        self.index += 1
        return self.index - 1


def collective_args(elements: int, dtype: str, world: int) -> dict[str, Any]:
    """What torch writes about a collective, on its operator and on its kernel."""
    return {
        "Collective name": "allreduce", "dtype": _NCCL_TYPES.get(dtype, "Float"), "In msg nelems": elements,
        "Out msg nelems": elements, "Group size": world, "Process Group Name": "0",
        "Process Group Description": "default_pg", "Process Group Ranks": str(list(range(world))),
    }  # fmt: skip


def _us(ns: int) -> str:
    """Microseconds with three decimals, exact."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def write_kineto(
    recording: Recording, chip: Chip, path: Path, stack: bool = True, world: int = 1, cpu_only: bool = False
) -> Path:
    """Write one recording to `path` as Kineto JSON; returns the path."""
    with path.open("w", encoding="utf-8") as out:
        KinetoWriter(recording, chip, stack, world, cpu_only).write(out)
    return path
