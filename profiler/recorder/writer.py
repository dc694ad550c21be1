"""Writes one process's record files so that whatever was written survives any death of the process.

Fixed records go to a memory map (0.6 us each, no system call); descriptions are one `write` a line.
Nothing here takes a lock on the usual path: a signal handler or a garbage collection may run in the
middle of `put` and call it again.
"""

from __future__ import annotations

import itertools
import mmap
import os
import struct
from _thread import RLock, get_ident
from collections.abc import Mapping

from stallscope.profiler.recorder.format import (
    ARG,
    ARG_IS_FLOAT,
    ARG_IS_INT,
    ARG_IS_TEXT,
    RECORD,
    RECORD_BYTES,
    to_json,
)

_FIRST_BYTES = 1 << 18
_STEP_BYTES = 1 << 22
_INT64 = 1 << 63
_DOUBLE = struct.Struct("<d")
_QUAD = struct.Struct("<q")
_FLAGS_AT = 28
_DUR_AT = 8

MAX_RECORD_BYTES = 1 << 28
"""A process stops adding fixed records here (8 M of them); the count of those left out is reported."""
MAX_TEXTS = 100_000


class RecordWriter:
    """The files `<stem>.jsonl` and `<stem>.rec` in a folder."""

    def __init__(self, folder: str, stem: str) -> None:
        self.stem = stem
        self.dropped = 0
        self.lines_bytes = 0
        self._path = os.path.join(folder, stem)
        self._lines = os.open(
            self._path + ".jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o644
        )
        self._records = -1
        self._map: mmap.mmap | None = None
        self._capacity = 0
        self._slots = itertools.count()
        self._grow_lock = RLock()
        self._last_slot = -1
        self._texts: dict[str, int] = {}
        self._text_ids = itertools.count(1)
        self._held: list[bytes] = []
        self._holder = 0
        self.frozen = False
        """True while a fork is under way: both sides share the map then, so nothing may be written."""

    # -- descriptions ------------------------------------------------------------------------------

    def line(self, ev: str, **fields: object) -> None:
        """One description. Never raises: a full disk must not end the user's program."""
        data = (to_json({"ev": ev, **fields}) + "\n").encode("ascii")
        if self._holder and self._holder == get_ident():
            self._held.append(data)
            return
        self._write(data)

    def hold(self) -> None:
        """Keep back the calling thread's lines until `release`.

        Each write gives up the interpreter lock, and a thread that computes in Python hands it back 5 ms
        later: a hundred new functions in one sample would cost half a second. One thread at a time.
        """
        self._holder = get_ident()

    def release(self) -> None:
        """Write the lines held back, in one piece."""
        self._holder = 0
        held, self._held = self._held, []
        if held:
            self._write(b"".join(held))

    def _write(self, data: bytes) -> None:
        try:
            os.write(self._lines, data)
            self.lines_bytes += len(data)
        except OSError:
            self.dropped += 1

    def text(self, text: str) -> int:
        """The number of a text, written once; 0 when there are more than are kept."""
        number = self._texts.get(text)
        if number is None:
            if len(self._texts) >= MAX_TEXTS:
                return 0
            number = next(self._text_ids)
            self._texts[text] = number
            self.line("text", id=number, text=text[:2000])
        return number

    # -- fixed records -----------------------------------------------------------------------------

    def put(self, type_: int, t: int, dur: int, a: int, tid: int, flags: int = 0) -> int:
        """Add one record; returns its slot, or -1 where it could not be kept."""
        if self.frozen:
            return -1
        slot = next(self._slots)
        at = slot * RECORD_BYTES
        if at + RECORD_BYTES > self._capacity and not self._grow(at + RECORD_BYTES):
            self.dropped += 1
            return -1
        RECORD.pack_into(self._map, at, t, dur, a, tid, flags, type_)  # type: ignore[arg-type]
        self._last_slot = slot
        return slot

    def extend(self, slot: int, dur: int, flags: int) -> None:
        """Change the length and flags of a record written earlier."""
        if self.frozen or self._map is None:
            return
        at = slot * RECORD_BYTES
        _QUAD.pack_into(self._map, at + _DUR_AT, dur)
        struct.pack_into("<H", self._map, at + _FLAGS_AT, flags)

    def arguments(self, slot: int, values: Mapping[str, object]) -> None:
        """Attach named values to a mark: whole numbers and floats as such, the rest as short text."""
        if slot < 0:
            return
        for key, value in values.items():
            if isinstance(value, int) and -_INT64 <= value < _INT64:
                kind, number = ARG_IS_INT, int(value)
            elif isinstance(value, float):
                kind, number = ARG_IS_FLOAT, _QUAD.unpack(_DOUBLE.pack(value))[0]
            else:
                kind, number = ARG_IS_TEXT, self.text(str(value)[:200])
            self.put(ARG, slot, self.text(str(key)[:100]), number, 0, kind)

    def _grow(self, needed: int) -> bool:
        with self._grow_lock:
            if needed <= self._capacity:
                return True
            if needed > MAX_RECORD_BYTES:
                return False
            size = max(_FIRST_BYTES, min(self._capacity * 4, self._capacity + _STEP_BYTES))
            size = max(size, -(-needed // _FIRST_BYTES) * _FIRST_BYTES)
            try:
                if self._records < 0:
                    flags = os.O_CREAT | os.O_RDWR | os.O_CLOEXEC
                    self._records = os.open(self._path + ".rec", flags, 0o644)
                # reserving the blocks turns a full disk into an error here; without it the store into
                # the map would be a SIGBUS in the user's process
                os.posix_fallocate(self._records, 0, size)
                self._map = mmap.mmap(self._records, size)
            except (OSError, ValueError):
                return False
            self._capacity = size
            return True

    @property
    def bytes(self) -> int:
        """Bytes written so far, reserved space not counted."""
        return self.lines_bytes + RECORD_BYTES * (self._last_slot + 1)

    def abandon(self) -> None:
        """Let go of the files without touching them: in a forked child they are the parent's."""
        self.frozen = True
        os.close(self._lines)
        if self._records >= 0:
            os.close(self._records)
        if self._map is not None:
            self._map.close()
        self._map, self._lines, self._records, self._capacity = None, -1, -1, 0
