"""Makes the traces in `sample_traces/synthetic`: invented runs with round numbers, in real formats.

Run from anywhere: `python sample_traces/make_synthetic.py [FOLDER]`. Nothing here was recorded on a
device; `synthetic/EXPECTED.toml` says what each must yield, with the arithmetic by hand.
"""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.planted.actions import (
    Action,
    Copy,
    Kernel,
    Launch,
    Pop,
    ProfilerStop,
    Program,
    Push,
    Record,
    SyncEvent,
    SyncStream,
    Tensor,
    Thread,
    WindowStart,
    Work,
)
from benchmarks.planted.ascend_db import write_db
from benchmarks.planted.ascend_text import write_text
from benchmarks.planted.build import op_args
from benchmarks.planted.hardware import B3, H100, Chip, aclnn_name, kernel_name
from benchmarks.planted.kineto import write_kineto
from benchmarks.planted.recording import Recording
from benchmarks.planted.simulate import Machine, simulate

US = 1000
STREAM = 7
MACHINE: dict[str, Any] = {
    "submit_ns": 5 * US, "kernel_gap_ns": 1 * US, "graph_gap_ns": 500, "wake_ns": 2 * US,
    "enqueue_ns": 2 * US, "dequeue_ns": 1 * US,
}  # fmt: skip
Form = Literal["kineto", "ascend-text", "ascend-db"]


@dataclass(frozen=True)
class Sample:
    """A name, the program's actions on a chip, and the form it is written in."""

    name: str
    actions: Callable[[Chip], list[Action]]
    form: Form = "kineto"
    packed: bool = False


def span(kind: Any, name: str, inner: list[Action], args: dict[str, Any] | None = None) -> list[Action]:
    return [Push(kind, name, args or {}), *inner, Pop()]


def matmul(chip: Chip) -> list[Action]:
    """One product of 500 us that streams its weight at 85 % of the chip's bandwidth; 10 us on the host."""
    columns = 174_592 if chip is H100 else 83_968
    x, w, y = Tensor((32, 4096)), Tensor((columns, 4096)), Tensor((32, columns))
    moved = float(x.bytes + w.bytes + y.bytes)
    kernel = Kernel(kernel_name(chip, "gemm", 32), 500 * US, role="gemm", grid=(1024, 1, 1), registers=168,
                    inputs=(x, w), outputs=(y,), flops=2.0 * 32 * 4096 * columns, moved=moved)  # fmt: skip
    call: list[Action] = [Launch((kernel,), STREAM, 5 * US, api="launch_ex")]
    if chip is not H100:
        call = span("op", aclnn_name("gemm"), call)
    return span("op", "aten::linear", [Work(4 * US), *call, Work(1 * US)], op_args((x, w)))


def tiny(chip: Chip) -> list[Action]:
    """One addition of 3 us; 12 us on the host."""
    x = Tensor((4, 1024))
    kernel = Kernel(kernel_name(chip, "add"), 3 * US, role="add", grid=(4, 1, 1), inputs=(x, x), outputs=(x,),
                    moved=3.0 * x.bytes)  # fmt: skip
    return span(
        "op", "aten::add", [Work(5 * US), Launch((kernel,), STREAM, 5 * US), Work(2 * US)], op_args((x, x))
    )


def steps(count: int, body: Callable[[int], list[Action]]) -> list[Action]:
    """Decode steps as a serving engine marks them, inside of the program's frames."""
    inner: list[Action] = [WindowStart()]
    for i in range(count):
        mark = "execute_context_0(0)_generation_32(32)"
        inner += span("annotation", mark, span("python", "engine.py(52): step", body(i)))
    stop = span("python", "torch/profiler/profiler.py(844): stop", [ProfilerStop()])
    return span("python", "infer.py(12): main", [*inner, *stop])


def forward(chip: Chip) -> list[Action]:
    return span("python", "model.py(88): forward", matmul(chip) * 4)


def healthy(chip: Chip) -> list[Action]:
    """The host runs one step ahead and waits for the step before, while the device works."""

    def body(i: int) -> list[Action]:
        wait: list[Action] = [SyncEvent(f"done {i - 1}")] if i else []
        return [*forward(chip), Record(f"done {i}", STREAM), *wait]

    return steps(6, body)


def python_gap(chip: Chip) -> list[Action]:
    """3 ms of Python per step against 2 ms of kernels."""
    return steps(
        6, lambda i: forward(chip) + span("python", "sampler.py(214): pick_tokens", [Work(3000 * US)])
    )


def item_sync(chip: Chip) -> list[Action]:
    """A value is read back in each step, then 200 us of Python before the next."""
    scalar = op_args((Tensor((1,), "int64"),))
    copy = Copy("DtoH", 8, 2 * US, STREAM, 5 * US, host="Pinned")
    if chip is H100:
        read: list[Action] = [Work(2 * US), copy, SyncStream(STREAM, ns=1 * US)]
    else:
        blocking = Copy("DtoH", 8, 2 * US, STREAM, 5 * US, host="Pageable", blocks=True, api="memcpy")
        read = [Work(2 * US), SyncStream(STREAM, ns=1 * US), blocking]

    def body(i: int) -> list[Action]:
        item = span("op", "aten::item", span("op", "aten::_local_scalar_dense", read, scalar), scalar)
        return forward(chip) + span("python", "stop.py(29): hit_stop", [*item, Work(200 * US)])

    return steps(6, body)


def pageable_copy(chip: Chip) -> list[Action]:
    """8 MB come from pageable memory before each step: 1 ms in which nothing else runs."""
    batch = op_args((Tensor((2_097_152,), "fp32"),))
    copy = Copy("HtoD", 8 << 20, 1000 * US, STREAM, 5 * US, host="Pageable", blocks=True)

    def body(i: int) -> list[Action]:
        move = span("op", "aten::to", span("op", "aten::copy_", [Work(4 * US), copy], batch), batch)
        return span("python", "batch.py(47): to_device", move) + forward(chip)

    return steps(6, body)


def tiny_kernels(chip: Chip) -> list[Action]:
    """120 kernels of 3 us per step, each launched in 12 us."""
    return steps(3, lambda i: span("python", "model.py(88): forward", tiny(chip) * 120))


SAMPLES = (
    Sample("gpu_healthy", healthy),
    Sample("gpu_python_gap", python_gap),
    Sample("gpu_item_sync", item_sync),
    Sample("gpu_pageable_copy", pageable_copy),
    Sample("gpu_tiny_kernels", tiny_kernels, packed=True),
    Sample("npu_healthy", healthy, "ascend-text"),
    Sample("npu_python_gap", python_gap, "ascend-text"),
    Sample("npu_python_gap_db", python_gap, "ascend-db"),
    Sample("npu_item_sync", item_sync, "ascend-text"),
)


def record(sample: Sample) -> tuple[Recording, Chip]:
    """Simulate one sample."""
    chip = H100 if sample.form == "kineto" else B3
    machine = Machine(**MACHINE, task_queue=sample.form != "kineto")
    program = Program((Thread(4200, "python", tuple(sample.actions(chip))),))
    return simulate(program, machine)[0], chip


def write(sample: Sample, folder: Path) -> Path:
    """Write one sample below `folder`; returns the file or directory a reader is to be given."""
    recording, chip = record(sample)
    folder.mkdir(parents=True, exist_ok=True)
    if sample.form == "kineto":
        path = write_kineto(recording, chip, folder / f"{sample.name}.json")
        return pack(path) if sample.packed else path
    place = folder / f"{sample.name}_ascend_pt"
    return (write_text if sample.form == "ascend-text" else write_db)(recording, chip, place)


def pack(path: Path) -> Path:
    """Compress a file, without a time stamp, and remove the plain one."""
    packed = path.with_name(path.name + ".gz")
    packed.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    path.unlink()
    return packed


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent / "synthetic"
    for sample in SAMPLES:
        print(write(sample, folder))


if __name__ == "__main__":
    main()
