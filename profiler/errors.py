"""Errors a user can act on. Each says what was seen, what would have worked, and the next step."""

from __future__ import annotations


class StallscopeError(Exception):
    """Base of every error that is the input's or the user's, not ours: one line, no traceback.

    `exit_code` is what the command line exits with.
    """

    exit_code = 2


class InputError(StallscopeError):
    """A file or folder that cannot be used. `str(error)` is one line for the terminal."""

    def __init__(self, path: object, seen: str, next_step: str = "") -> None:
        self.path = str(path)
        self.seen = seen
        self.next_step = next_step
        super().__init__(f"{self.path}: {seen}." + (f" {next_step}" if next_step else ""))


class OptionError(StallscopeError):
    """A setting that does not exist or has no meaning here; the text lists what would have worked."""
