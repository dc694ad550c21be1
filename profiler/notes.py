"""What a hook or a reader could not see, and how bad that is. Part of every result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Literal

from stallscope.profiler.light import dataclass

Severity = Literal["info", "warning", "data_loss"]


@dataclass(frozen=True)
class Note:
    """One thing the reader of a report must know about the recording.

    `code` is stable and kebab-case (`bad-event`), `count` says how many records it is about,
    `first` where the first one was seen (a byte offset, a row, a name), if that is known.
    """

    code: str
    severity: Severity
    text: str
    count: int = 1
    first: str = ""


class Notes:
    """The notes of one session, one per code: adding a code again adds to its count."""

    def __init__(self, notes: Iterable[Note] = ()) -> None:
        self._by_code: dict[str, Note] = {}
        for note in notes:
            self.extend([note])

    def add(self, code: str, severity: Severity, text: str, count: int = 1, first: str = "") -> None:
        """Add a note; a count of 0 or less adds nothing, so that callers need no `if`."""
        if count <= 0:
            return
        self.extend([Note(code, severity, text, count, first)])

    def extend(self, notes: Iterable[Note]) -> None:
        for note in notes:
            known = self._by_code.get(note.code)
            self._by_code[note.code] = replace(known, count=known.count + note.count) if known else note

    def get(self, code: str) -> Note | None:
        return self._by_code.get(code)

    def __iter__(self) -> Iterator[Note]:
        return iter(self._by_code.values())

    def __len__(self) -> int:
        return len(self._by_code)

    def __contains__(self, code: object) -> bool:
        return code in self._by_code
