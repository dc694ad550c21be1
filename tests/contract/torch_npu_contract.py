"""Everything the recorder expects of torch_npu, in one table.

`test_torch_npu_contract.py` holds it against the sources of the real wheel, without importing them; the fake
torch_npu of `tests/support/fake_torch_npu` is built from it. So a fake that the recorder works with can only
differ from the real one where this table does.

Signatures are Python source. A default is compared where it is written here; `...` stands for "has a default,
whichever". Nothing but the standard library is imported: the fake loads this file in a process of its own.
"""

from __future__ import annotations

import ast
import inspect
from dataclasses import dataclass
from typing import Any

VERSION = "2.14.0"


@dataclass(frozen=True)
class Function:
    """A function of torch_npu that we call or replace."""

    file: str
    name: str
    """Dotted, within the file: `profile.start`."""
    signature: str
    used_for: str

    def parameters(self) -> list[inspect.Parameter]:
        """The parameters as Python's own objects, defaults evaluated (`...` is Ellipsis)."""
        return list(self.python_signature().parameters.values())

    def python_signature(self) -> inspect.Signature:
        """What `inspect.signature` gives for such a function."""
        return signature_of(f"def f{self.signature}: ...")


@dataclass(frozen=True)
class Constants:
    """Strings of a class that we pass or look for."""

    file: str
    name: str
    values: dict[str, str]


@dataclass(frozen=True)
class Pattern:
    """Words the source must hold, because the recorder is built round this behaviour."""

    file: str
    words: tuple[str, ...]
    meaning: str


PROFILER = "torch_npu/profiler/profiler.py"
CONFIG = "torch_npu/profiler/experimental_config.py"
PATHS = "torch_npu/profiler/_profiler_path_creator.py"
CONSTANT = "torch_npu/profiler/analysis/prof_common_func/_constant.py"
NPU = "torch_npu/npu/__init__.py"

PROFILE = (
    "(self, *, activities=None, schedule=None, on_trace_ready=None, record_shapes=False, profile_memory=False, "
    "with_stack=False, with_flops=False, with_modules=False, experimental_config=None, "
    "execution_trace_observer=None, custom_trace_id_callback=None, use_cuda=None)"
)

FUNCTIONS = (
    Function(PROFILER, "profile.__init__", PROFILE, "recording a window"),
    Function(PROFILER, "profile.start", "(self)", "opening a window"),
    Function(PROFILER, "profile.stop", "(self)", "closing a window"),
    Function(
        PROFILER,
        "_KinetoProfile.__init__",
        "(self, *, activities=None, record_shapes=False, profile_memory=False, with_stack=False, with_flops=False, "
        "with_modules=False, experimental_config=None, custom_trace_id_callback=None)",
        "noticing a profiler the script starts",
    ),
    Function(PROFILER, "_KinetoProfile.start", "(self)", "noticing a profiler the script starts"),
    Function(PROFILER, "_KinetoProfile.stop", "(self)", "noticing that it ended"),
    Function(
        PROFILER,
        "tensorboard_trace_handler",
        "(dir_name=None, worker_name=None, analyse_flag=True, async_mode=False)",
        "naming the folder of a window and leaving its analysis for later",
    ),
    Function(
        PROFILER,
        "analyse",
        "(profiler_path, max_process_number=..., export_type=None)",
        "analysing windows after the run",
    ),
    Function(
        CONFIG,
        "_ExperimentalConfig.__init__",
        "(self, profiler_level='Level0', aic_metrics='ACL_AICORE_PIPE_UTILIZATION', l2_cache=False, msprof_tx=False, "
        "mstx=False, data_simplification=True, record_op_args=False, op_attr=False, gc_detect_threshold=None, "
        "export_type='text', host_sys=None, mstx_domain_include=None, mstx_domain_exclude=None, sys_io=False, "
        "sys_interconnection=False)",
        "the level and the metrics of a window",
    ),
    Function(
        PATHS,
        "ProfPathCreator.init",
        "(self, worker_name=None, dir_name=None, export_only_mode=False)",
        "giving the script its own choice of folder back",
    ),
    Function(CONSTANT, "print_info_msg", "(message)", "hearing what the profiler only prints"),
    Function(CONSTANT, "print_warn_msg", "(message)", "hearing what the profiler only prints"),
    Function(CONSTANT, "print_error_msg", "(message)", "hearing what the profiler only prints"),
    Function(NPU, "is_initialized", "()", "not starting a device that the script does not use"),
    Function(NPU, "_lazy_init", "()", "noticing that the script begins to use the device"),
    Function(NPU, "device_count", "()", "naming the devices"),
    Function(NPU, "get_device_name", "(device_name=None)", "naming the devices"),
    Function(
        "torch_npu/npu/mstx.py",
        "mstx.range_start",
        "(message, stream=None, domain='default')",
        "showing marks on the device",
    ),
    Function(
        "torch_npu/npu/mstx.py",
        "mstx.range_end",
        "(range_id, domain='default')",
        "showing marks on the device",
    ),
    Function("torch_npu/npu/utils.py", "current_stream", "(device=None)", "showing marks on the device"),
)

CONSTANTS = (
    Constants(
        CONFIG,
        "ProfilerLevel",
        {"Level0": "Level0", "Level1": "Level1", "Level2": "Level2", "Level_none": "Level_none"},
    ),
    Constants(
        CONFIG,
        "AiCMetrics",
        {
            "PipeUtilization": "ACL_AICORE_PIPE_UTILIZATION",
            "ArithmeticUtilization": "ACL_AICORE_ARITHMETIC_UTILIZATION",
            "Memory": "ACL_AICORE_MEMORY_BANDWIDTH",
            "MemoryL0": "ACL_AICORE_L0B_AND_WIDTH",
            "MemoryUB": "ACL_AICORE_MEMORY_UB",
            "ResourceConflictRatio": "ACL_AICORE_RESOURCE_CONFLICT_RATIO",
            "L2Cache": "ACL_AICORE_L2_CACHE",
            "MemoryAccess": "ACL_AICORE_MEMORY_ACCESS",
            "AiCoreNone": "ACL_AICORE_NONE",
        },
    ),
    Constants(CONFIG, "ExportType", {"Text": "text", "Db": "db"}),
    Constants(
        CONSTANT,
        "Constant",
        {
            "FRAMEWORK_DIR": "FRAMEWORK",
            "OUTPUT_DIR": "ASCEND_PROFILER_OUTPUT",
            "PROFILER_META_DATA": "profiler_metadata.json",
            "MSPROF_STATIC_ENV": "PROFILER_SAMPLECONFIG",
            "MSPROF_DYNAMIC_ENV": "PROFILING_MODE",
        },
    ),
)

EXPORTS = {
    "torch_npu/profiler/__init__.py": (
        "profile",
        "_KinetoProfile",
        "tensorboard_trace_handler",
        "ProfilerActivity",
        "_ExperimentalConfig",
        "ProfilerLevel",
        "AiCMetrics",
        "ExportType",
    ),
    NPU: ("mstx", "current_stream", "is_initialized", "_lazy_init"),
}
"""Names a module must offer, defined in it or imported into it."""

ATTRIBUTES = {
    (PATHS, "ProfPathCreator"): ("_worker_name", "_dir_path", "_export_only_mode", "is_prof_inited"),
}
"""What `__init__` of a class must set, because we save it and put it back."""

PATTERNS = (
    Pattern(PATHS, ('"{}_{}_ascend_pt"',), "folders of recordings end in _ascend_pt"),
    Pattern(
        "torch_npu/profiler/analysis/prof_common_func/_path_manager.py",
        (r'r"^PROF_\d+_\d+_[0-9a-zA-Z]+"',),
        "device data lies in PROF_*",
    ),
    Pattern(
        "torch_npu/profiler/analysis/_profiling_parser.py",
        ('"analyse.done"',),
        "analyse.done marks that the analysis ended",
    ),
    Pattern(
        "torch_npu/profiler/analysis/_npu_profiler.py",
        ("current_process().daemon", 'set_start_method("fork", force=True)'),
        "analysis is refused in daemons and changes the start method, so it runs in a process of its own",
    ),
    Pattern(
        "torch_npu/profiler/analysis/prof_view/cann_parse/_cann_export.py",
        ('"--export=on"', 'f"--output={self._cann_path}"'),
        "kernels are exported by the command msprof",
    ),
    Pattern(
        PROFILER,
        ("@no_exception_func()\n    def start(self):", "@no_exception_func()\n    def stop(self):"),
        "errors are printed, not raised, so files are checked",
    ),
    Pattern(
        "torch_npu/__init__.py",
        ("_check_device_conflict()", "ERR00007", "raise RuntimeError("),
        "the import is refused where torch has another accelerator",
    ),
)

OP_RANGE = "<3q4QB?"
OP_MARK = "<q4Q"
FORMATS = {"OP_RANGE": OP_RANGE, "OP_MARK": OP_MARK}
"""Fixed parts of FRAMEWORK records, as the fake writes them."""


def signature_of(source: str) -> inspect.Signature:
    """The signature of a one-line `def`, its defaults evaluated as literals."""
    tree = ast.parse(source).body[0]
    assert isinstance(tree, ast.FunctionDef)
    return inspect.Signature(parameters(tree.args, ast.literal_eval))


def parameters(args: ast.arguments, value: Any) -> list[inspect.Parameter]:
    """Parameters of parsed arguments; `value` turns the expression of a default into what is compared."""
    kinds = inspect.Parameter
    out: list[inspect.Parameter] = []
    positional: list[tuple[ast.arg, Any]] = [(a, kinds.POSITIONAL_ONLY) for a in args.posonlyargs]
    positional += [(a, kinds.POSITIONAL_OR_KEYWORD) for a in args.args]
    padding: list[ast.expr | None] = [None] * (len(positional) - len(args.defaults))
    for (arg, kind), default in zip(positional, [*padding, *args.defaults], strict=True):
        out.append(kinds(arg.arg, kind, default=kinds.empty if default is None else value(default)))
    if args.vararg:
        out.append(kinds(args.vararg.arg, kinds.VAR_POSITIONAL))
    for arg, keyword_default in zip(args.kwonlyargs, args.kw_defaults, strict=True):
        default_value = kinds.empty if keyword_default is None else value(keyword_default)
        out.append(kinds(arg.arg, kinds.KEYWORD_ONLY, default=default_value))
    if args.kwarg:
        out.append(kinds(args.kwarg.arg, kinds.VAR_KEYWORD))
    return out


def function(name: str) -> Function:
    """The entry of a function, by its dotted name within its file."""
    return next(f for f in FUNCTIONS if f.name == name)
