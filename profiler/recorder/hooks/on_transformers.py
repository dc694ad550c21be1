"""Hugging Face transformers: `generate` is a mark, and says which of its forward passes are the prefill.

Version 5 has a `_prefill` method: what runs inside it is prefill, every later pass decodes. Version 4 has
none in that form; there the first pass of each generate call is the prefill.
"""

from __future__ import annotations

import functools
import time
from _thread import get_ident
from types import ModuleType

from stallscope.profiler.recorder.hooks.on_torch import forward_watch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from stallscope.profiler.recorder.agent import Agent


def install(module: ModuleType, agent: Agent) -> None:
    mixin = module.GenerationMixin
    if hasattr(
        mixin.generate, "_stallscope"
    ):  # by an earlier recording; the wrappers act for the present one
        return
    announces = hasattr(mixin, "_prefill")
    if announces:
        mixin._prefill = _prefill_wrapper(mixin._prefill)
        agent.hide(mixin._prefill)
    mixin.generate = _generate_wrapper(mixin.generate, announces)
    mixin.generate._stallscope = True
    agent.hide(mixin.generate)
    import sys

    transformers = sys.modules.get("transformers")
    agent.writer.line("module", name="transformers", version=str(getattr(transformers, "__version__", "")))


def _prefill_wrapper(original: Any) -> Any:
    @functools.wraps(original)
    def _prefill(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch, thread = forward_watch(), get_ident()
        if watch is None or thread in watch.prefilling:
            return original(self, *args, **kwargs)
        watch.prefilling.add(thread)
        try:
            return original(self, *args, **kwargs)
        finally:
            watch.prefilling.discard(thread)
            watch.announced.add(thread)

    return _prefill


def _generate_wrapper(original: Any, announces: bool) -> Any:
    @functools.wraps(original)
    def generate(self: Any, *args: Any, **kwargs: Any) -> Any:
        watch, thread = forward_watch(), get_ident()
        if watch is None:
            return original(self, *args, **kwargs)
        start_ns = time.perf_counter_ns()
        outer = thread in watch.announced
        watch.announced.discard(thread)
        if not announces:
            watch.expecting.add(thread)
        try:
            return original(self, *args, **kwargs)
        finally:
            watch.expecting.discard(thread)
            (watch.announced.add if outer else watch.announced.discard)(thread)
            values = {"model": type(self).__name__}
            watch.agent.guard(
                "generate", watch.agent.mark, "generate", start_ns, time.perf_counter_ns(), values
            )

    return generate
