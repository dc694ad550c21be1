"""What a backend must be able to do. The window controller calls these, and nothing else."""

from __future__ import annotations

from types import ModuleType

from stallscope.profiler.recorder.settings import Settings


class Backend:
    """Records operators and device work between `start` and `stop`, and writes them out in `collect`.

    One backend serves one process; `start`, `stop`, `collect` (or `discard`) repeat for each window. What
    `collect` writes must be readable by one of `stallscope.profiler.readers`: conversion is for later, outside
    the user's process. All may raise; the controller writes the error down and stops using the backend.
    """

    name = "none"
    any_thread = False
    """Whether windows cover all threads and may be opened and closed from any of them."""

    place = ""
    """Where the window that opens next may write: a path that does not exist yet, set by the controller."""

    def __init__(self, settings: Settings, torch: ModuleType) -> None:
        self.settings = settings
        self.torch = torch
        self.notes: list[tuple[str, str, str]] = []
        """(code, severity, text) of what the report must say; the controller takes them away."""

    def suits(self) -> bool:
        """Whether this process can be recorded this way."""
        raise NotImplementedError

    def busy(self) -> bool:
        """Whether somebody else records here just now, so that starting would disturb them."""
        raise NotImplementedError

    def start(self) -> None:
        """Begin a window."""
        raise NotImplementedError

    def stop(self) -> None:
        """End the window; what was recorded stays in memory."""
        raise NotImplementedError

    def collect(self, stem: str) -> str:
        """Write the window to a file or folder whose path begins with `stem`, which is `place`; returns that path."""
        raise NotImplementedError

    def discard(self) -> None:
        """Forget what was recorded."""
        raise NotImplementedError

    def wants_device(self) -> bool:
        """Whether the window that is open leaves out a device that the script uses by now."""
        return False

    def window_facts(self) -> dict[str, object]:
        """What the reader of the last window needs to know; plain values."""
        return {}

    def after_fork(self, was_open: bool) -> bool:
        """In a forked child: forget the parent's window. Returns whether windows can be used here."""
        raise NotImplementedError

    def activities(self) -> list[str]:
        """What the current or last window recorded: "cpu", "cuda", ..."""
        raise NotImplementedError

    def estimate_events(self, bytes_: int) -> int:
        """About how many events a file of this size holds."""
        raise NotImplementedError

    def facts(self) -> dict[str, object]:
        """What is worth knowing about the framework and its devices; plain values."""
        return {}
