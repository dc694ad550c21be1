"""Everything the recorder expects of MindSpore, in one table; see `torch_npu_contract` for how it is written."""

from __future__ import annotations

from contract.torch_npu_contract import Constants, Function, Pattern

VERSION = "2.10.0"

PROFILER = "mindspore/profiler/profiler.py"
CONSTANT = "mindspore/profiler/common/constant.py"
CONTEXT = "mindspore/profiler/common/profiler_context.py"
PATHS = "mindspore/profiler/common/profiler_path_manager.py"

FUNCTIONS = (
    Function(
        PROFILER,
        "Profile.__init__",
        "(self, activities=None, with_stack=False, profile_memory=False, data_process=False, parallel_strategy=False, "
        "start_profile=True, hbm_ddr=False, pcie=False, sync_enable=True, record_shapes=False, schedule=None, "
        "on_trace_ready=None, experimental_config=None)",
        "recording a window",
    ),
    Function(PROFILER, "Profile.start", "(self)", "opening a window"),
    Function(PROFILER, "Profile.stop", "(self)", "closing a window"),
    Function(PROFILER, "Profiler.__init__", "(self, **kwargs)", "noticing a profiler the script makes"),
    Function(PROFILER, "Profiler.start", "(self)", "noticing a profiler the script starts"),
    Function(PROFILER, "Profiler.stop", "(self)", "noticing that it ended"),
    Function(
        PROFILER,
        "tensorboard_trace_handler",
        "(dir_name=None, worker_name=None, analyse_flag=True, async_mode=False)",
        "naming the folder of a window and leaving its analysis for later",
    ),
    Function(
        PROFILER,
        "analyse",
        "(profiler_path, max_process_number=..., pretty=False, step_list=None, data_simplification=True)",
        "analysing windows after the run",
    ),
    Function(
        "mindspore/profiler/experimental_config.py",
        "_ExperimentalConfig.__init__",
        "(self, profiler_level=..., aic_metrics=..., l2_cache=False, mstx=False, data_simplification=True, export_type=None, "
        "mstx_domain_include=None, mstx_domain_exclude=None, sys_io=False, sys_interconnection=False, host_sys=None)",
        "the level and the metrics of a window",
    ),
    Function("mindspore/log.py", "_get_logger", "()", "hearing what the profiler only logs"),
    Function("mindspore/nn/cell.py", "Cell.__call__", "(self, *args, **kwargs)", "noticing steps"),
    Function(
        "mindspore/profiler/platform/cpu_profiler.py",
        "CPUProfilerAnalysis.online_analyse",
        "(cls, async_mode=False)",
        "analysing recordings of a CPU",
    ),
)

CONSTANTS = (
    Constants(CONSTANT, "ProfilerActivity", {"NPU": "NPU", "CPU": "CPU"}),
    Constants(CONSTANT, "ProfilerLevel", {"Level0": "Level0", "Level1": "Level1", "Level2": "Level2"}),
    Constants(
        CONSTANT,
        "AicoreMetrics",
        {
            "PipeUtilization": "PipeUtilization",
            "ArithmeticUtilization": "ArithmeticUtilization",
            "Memory": "Memory",
            "MemoryL0": "MemoryL0",
            "MemoryUB": "MemoryUB",
            "ResourceConflictRatio": "ResourceConflictRatio",
            "L2Cache": "L2Cache",
            "MemoryAccess": "MemoryAccess",
            "AiCoreNone": "None",
        },
    ),
)

EXPORTS = {
    "mindspore/profiler/__init__.py": (
        "profile",
        "Profiler",
        "tensorboard_trace_handler",
        "ProfilerActivity",
        "_ExperimentalConfig",
        "ProfilerLevel",
        "AicoreMetrics",
    ),
}

PATTERNS = (
    Pattern(PATHS, ('"{}_{}_ascend_ms"', "@Singleton"), "folders of recordings end in _ascend_ms"),
    Pattern(
        CONTEXT,
        ("@Singleton", "set_params("),
        "settings live in one object of the process, put back after a window",
    ),
    Pattern(
        "mindspore/profiler/common/singleton.py",
        ("self._cls = cls", "self._instance = {}"),
        "the one object can be found and taken away",
    ),
    Pattern(
        "mindspore/profiler/profiler_interface.py",
        ("class ProfilerInterface", "is_initialized"),
        "whether a profiler runs can be seen",
    ),
)
