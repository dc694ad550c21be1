"""Settings of the fake: kept, and refused with a printed warning where the real one would."""

from __future__ import annotations

from typing import Any

from torch_npu._contract import by_contract, constants
from torch_npu.profiler.analysis.prof_common_func._constant import print_warn_msg

ProfilerLevel = constants("ProfilerLevel")
AiCMetrics = constants("AiCMetrics")
ExportType = constants("ExportType")


class _ExperimentalConfig:
    @by_contract("_ExperimentalConfig.__init__")
    def __init__(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self, f"_{name}", value)
        if self._profiler_level == ProfilerLevel.Level0 and self._aic_metrics != AiCMetrics.AiCoreNone:
            print_warn_msg(
                "Please use level1 or level2 if you want to collect aic metrics, reset aic metrics to None!"
            )
            self._aic_metrics = AiCMetrics.AiCoreNone
        if self._aic_metrics not in vars(AiCMetrics).values():
            print_warn_msg("Invalid parameter aic_metrics, reset it to default.")
