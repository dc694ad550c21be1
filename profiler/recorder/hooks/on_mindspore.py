"""MindSpore: noted for now; a backend of its own records it (see `backends`)."""

from __future__ import annotations

from types import ModuleType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from stallscope.profiler.recorder.agent import Agent


def install(module: ModuleType, agent: Agent) -> None:
    agent.writer.line("module", name="mindspore", version=str(getattr(module, "__version__", "")))
    agent.note(
        "mindspore-not-recorded",
        "warning",
        "the script uses MindSpore: Python and host activity were recorded, its operators and kernels were not. "
        "Record them with mindspore.profiler and give that folder to `stallscope analyze`",
    )
