"""torch_npu (Ascend): noted for now; a backend of its own records it (see `backends`)."""

from __future__ import annotations

from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stallscope.profiler.recorder.agent import Agent


def install(module: ModuleType, agent: Agent) -> None:
    agent.writer.line("module", name="torch_npu", version=str(getattr(module, "__version__", "")))
    agent.note(
        "npu-not-recorded",
        "warning",
        "the script uses torch_npu: its host side was recorded, its NPU kernels were not. Record them with "
        "torch_npu.profiler and give that folder to `stallscope analyze`",
    )
