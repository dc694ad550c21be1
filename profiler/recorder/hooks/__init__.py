"""Which modules are watched for, and what is done once they are loaded. The one table of hooks.

A hook is a file here with `install(module, agent)`. It runs once per process image, right after the import,
inside a guard: a fault of ours is written to the recording and the user's program goes on.
"""

from __future__ import annotations

HOOKS: dict[str, str] = {
    "subprocess": "stallscope.profiler.recorder.hooks.on_subprocess",
    "torch": "stallscope.profiler.recorder.hooks.on_torch",
    "transformers.generation.utils": "stallscope.profiler.recorder.hooks.on_transformers",
    "torch_npu": "stallscope.profiler.recorder.hooks.on_torch_npu",
    "mindspore": "stallscope.profiler.recorder.hooks.on_mindspore",
}
"""Watched module to the file that hooks it."""
