"""What to record, in a form that travels to every child through one environment variable."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from stallscope.profiler.errors import OptionError

PYTHON_MODES = ("sample", "calls", "off")
DEVICES = ("auto", "cuda", "xpu", "npu", "cpu", "off")
WINDOW_AUTO, WINDOW_ALL = "auto", "all"


@dataclass(frozen=True)
class Settings:
    """Recording options. `python`: sample, calls or off; `rate_hz`: samples a second.

    `warmup` steps run unrecorded, then operators of `steps` steps (0: as many as the caps allow) are
    recorded. `whole` records from the import of torch to the end instead. `max_events` caps the
    operators and kernels kept in all windows of a process, `max_seconds` their length together.
    """

    python: str = "sample"
    rate_hz: int = 100
    ops: bool = True
    device: str = "auto"
    warmup: int = 0
    steps: int = 0
    whole: bool = False
    max_events: int = 300_000
    max_seconds: int = 120
    shapes: bool = True

    def __post_init__(self) -> None:
        if self.python not in PYTHON_MODES:
            raise OptionError(f"python mode {self.python!r} is not known. Modes: {', '.join(PYTHON_MODES)}.")
        if self.device not in DEVICES:
            raise OptionError(f"device {self.device!r} is not known. Devices: {', '.join(DEVICES)}.")
        if not 1 <= self.rate_hz <= 1000:
            raise OptionError(f"a sampling rate of {self.rate_hz} Hz is not possible; 1 to 1000 is.")
        if self.warmup < 0 or self.steps < 0:
            raise OptionError("warm-up and step counts are 0 or more.")
        if self.max_events < 1000 or self.max_seconds < 1:
            raise OptionError("at least 1000 events and 1 second are needed for a window.")

    def encode(self) -> str:
        """One line without quotes, for the environment."""
        return ";".join(f"{f.name}={getattr(self, f.name)}" for f in dataclasses.fields(self))

    @classmethod
    def decode(cls, text: str) -> Settings:
        """The settings of `encode`; unknown names (of another version) are ignored."""
        values: dict[str, str | int | bool] = {}
        defaults = cls()
        for part in text.split(";"):
            name, _, value = part.partition("=")
            known = getattr(defaults, name, None) if name in cls.__dataclass_fields__ else None
            if isinstance(known, bool):
                values[name] = value == "True"
            elif isinstance(known, int):
                values[name] = int(value)
            elif isinstance(known, str):
                values[name] = value
        return cls(**values)  # type: ignore[arg-type]

    def with_window(self, text: str) -> Settings:
        """`auto`, `all`, `WARMUP:STEPS` or `STEPS`. Raises OptionError for anything else."""
        if text == WINDOW_AUTO:
            return dataclasses.replace(self, warmup=0, steps=0, whole=False)
        if text == WINDOW_ALL:
            return dataclasses.replace(self, warmup=0, steps=0, whole=True)
        warmup, colon, steps = text.rpartition(":")
        if not steps.isdecimal() or (colon and not warmup.isdecimal()):
            raise OptionError(f"window {text!r} is not known. It is auto, all, STEPS or WARMUP:STEPS, as in 2:20.")
        return dataclasses.replace(self, warmup=int(warmup or 0), steps=int(steps), whole=False)
