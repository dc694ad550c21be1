"""What to record, in a form that travels to every child through one environment variable.

A plain class: `dataclasses` alone would cost every recorded process 16 ms of start-up.
"""

from __future__ import annotations

from stallscope.profiler.errors import OptionError

PYTHON_MODES = ("sample", "calls", "off")
DEVICES = ("auto", "cuda", "xpu", "npu", "cpu", "off")
NPU_LEVELS = ("Level0", "Level1", "Level2")
NPU_METRICS = (
    "PipeUtilization",
    "ArithmeticUtilization",
    "Memory",
    "MemoryL0",
    "MemoryUB",
    "ResourceConflictRatio",
    "L2Cache",
    "MemoryAccess",
    "AiCoreNone",
)
WINDOW_AUTO, WINDOW_ALL = "auto", "all"


class Settings:
    """Recording options.

    `python`: sample (a sampling thread), calls (every call, inside the operator window) or off.
    `rate_hz`: stack samples a second. `ops`: record operators and kernels. `device`: whose kernels.
    `warmup` steps run unrecorded, then operators of `steps` steps (0: as many as the caps allow) are
    recorded; `whole` records from the import of torch to the end instead. `max_events` caps the
    operators and kernels kept in all windows of one process, `max_seconds` the windows' length together.
    `shapes`: record operator input shapes and dtypes. `npu_level`, `npu_metrics`: how much an Ascend NPU tells,
    and which group of core counters; `npu_mstx`: show marks on the NPU's timeline too.
    """

    python: str = "sample"
    rate_hz: int = 100
    ops: bool = True
    device: str = "auto"
    warmup: int = 0
    steps: int = 0
    whole: bool = False
    max_events: int = 100_000
    max_seconds: int = 120
    shapes: bool = True
    npu_level: str = "Level1"
    npu_metrics: str = "PipeUtilization"
    npu_mstx: bool = False

    def __init__(self, **values: str | int | bool) -> None:
        for name, value in values.items():
            if name not in NAMES:
                raise OptionError(f"the recorder has no setting {name!r}. Its settings: {', '.join(NAMES)}.")
            setattr(self, name, value)
        self._check()

    def _check(self) -> None:
        if self.python not in PYTHON_MODES:
            raise OptionError(f"python mode {self.python!r} is not known. Modes: {', '.join(PYTHON_MODES)}.")
        if self.device not in DEVICES:
            raise OptionError(f"device {self.device!r} is not known. Devices: {', '.join(DEVICES)}.")
        if self.npu_level not in NPU_LEVELS:
            raise OptionError(f"NPU level {self.npu_level!r} is not known. Levels: {', '.join(NPU_LEVELS)}.")
        if self.npu_metrics not in NPU_METRICS:
            raise OptionError(
                f"NPU metrics {self.npu_metrics!r} are not known. Metrics: {', '.join(NPU_METRICS)}."
            )
        if not 1 <= self.rate_hz <= 1000:
            raise OptionError(f"a sampling rate of {self.rate_hz} Hz is not possible; 1 to 1000 is.")
        if self.warmup < 0 or self.steps < 0:
            raise OptionError("warm-up and step counts are 0 or more.")
        if self.max_events < 1000 or self.max_seconds < 1:
            raise OptionError("a window needs at least 1000 events and 1 second.")

    def values(self) -> dict[str, str | int | bool]:
        """All settings by name."""
        return {name: getattr(self, name) for name in NAMES}

    def replace(self, **changes: str | int | bool) -> Settings:
        return Settings(**{**self.values(), **changes})

    def encode(self) -> str:
        """One line without quotes, for the environment."""
        return ";".join(f"{name}={value}" for name, value in self.values().items())

    @classmethod
    def decode(cls, text: str) -> Settings:
        """The settings of `encode`; names of another version are ignored."""
        values: dict[str, str | int | bool] = {}
        for part in text.split(";"):
            name, _, value = part.partition("=")
            if name not in NAMES:
                continue
            default = getattr(cls, name)
            if isinstance(default, bool):
                values[name] = value == "True"
            else:
                values[name] = int(value) if isinstance(default, int) else value
        return cls(**values)

    def with_window(self, text: str) -> Settings:
        """`auto`, `all`, `STEPS` or `WARMUP:STEPS`. Raises OptionError for anything else."""
        if text == WINDOW_AUTO:
            return self.replace(warmup=0, steps=0, whole=False)
        if text == WINDOW_ALL:
            return self.replace(warmup=0, steps=0, whole=True)
        warmup, colon, steps = text.rpartition(":")
        if not steps.isdecimal() or (colon and not warmup.isdecimal()):
            raise OptionError(
                f"window {text!r} is not known. It is auto, all, STEPS or WARMUP:STEPS, as in 2:20."
            )
        return self.replace(warmup=int(warmup or 0), steps=int(steps), whole=False)


NAMES = tuple(name for name in Settings.__annotations__)
