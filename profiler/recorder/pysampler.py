"""Takes stacks of all Python threads from one thread of ours.

A stack is a chain of nodes (caller node, code, line), written once each; a sample is then one number.
"""

from __future__ import annotations

import os
import sys
from types import CodeType, FrameType

from stallscope.profiler.recorder.format import NODE, SAMPLE
from stallscope.profiler.recorder.writer import RecordWriter

IDLE_SAMPLES = 10
"""A thread seen in one place more often than this in a row only lengthens its last record. Sooner, each sample
has a record of its own: two visits to one place look like one long stay otherwise."""
MAX_DEPTH = 400
MAX_NODES = 1_000_000
MAX_CODES = 100_000
_OWN_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PSEUDO_TID = 1 << 31
"""Threads that Python never told the operating system's number of are numbered from here."""


class PythonSampler:
    """Turns `sys._current_frames()` into records. Not thread-safe: only the recorder's thread calls it."""

    def __init__(
        self, writer: RecordWriter, interval_ns: int, hidden: set[int], main: tuple[int, int]
    ) -> None:
        """`hidden` holds ids of code objects of ours, which are left out of stacks; `main` is the main thread
        as (identifier, operating system's number)."""
        self._writer = writer
        self._interval_ns = interval_ns
        self._hidden = hidden
        self._nodes: dict[tuple[int, int, int], int] = {}
        self._node_number = 0
        # the code object itself is kept so that its id stays its own
        self._codes: dict[int, tuple[int, CodeType]] = {}
        self._tids: dict[int, int] = {main[0]: main[1]}
        self._names: dict[int, str] = {}
        self._last: dict[int, tuple[int, int, int, int, int]] = {}
        self._main_tid = main[1]
        self.samples = 0

    def sweep(self, own: int, wanted_ns: int, now_ns: int) -> None:
        """Sample every thread but `own`.

        `wanted_ns` is when this sweep was due, `now_ns` when it could run. Where the second is much later,
        one thread held the interpreter all that time, and is still where it was: the sample covers both.
        """
        first_ns = wanted_ns if now_ns - wanted_ns > self._interval_ns else now_ns
        self._writer.hold()
        try:
            for ident, frame in sys._current_frames().items():
                if ident != own:
                    self._sample(ident, self._node(frame), first_ns, now_ns)
        finally:
            self._writer.release()
        self.samples += 1

    def _sample(self, ident: int, node: int, first_ns: int, now_ns: int) -> None:
        last = self._last.get(ident)
        repeats = 0
        if last is not None:
            slot, known_node, start_ns, end_ns, count = last
            if known_node == node and now_ns - end_ns < 8 * self._interval_ns:
                repeats = count + 1
                if repeats > IDLE_SAMPLES and slot >= 0:
                    self._writer.extend(slot, now_ns - start_ns, min(repeats - IDLE_SAMPLES, 0xFFFF))
                    self._last[ident] = (slot, node, start_ns, now_ns, repeats)
                    return
            first_ns = max(first_ns, end_ns)
        slot = self._writer.put(SAMPLE, first_ns, now_ns - first_ns, node, self._tid(ident), 1)
        self._last[ident] = (slot, node, first_ns, now_ns, repeats)

    def _node(self, frame: FrameType | None) -> int:
        frames: list[FrameType] = []
        while frame is not None and len(frames) < MAX_DEPTH:
            frames.append(frame)
            frame = frame.f_back
        node = 0
        nodes = self._nodes
        for frame in reversed(frames):
            # the instruction, not the line: finding a line walks a table, and is needed once a node only
            key = (node, id(frame.f_code), frame.f_lasti)
            known = nodes.get(key)
            node = self._new_node(key, frame) if known is None else known
        return node

    def _new_node(self, key: tuple[int, int, int], frame: FrameType) -> int:
        """The node of a frame seen for the first time under this caller; frames of ours have their caller's."""
        if len(self._nodes) >= MAX_NODES:
            return key[0]
        code = self._code(frame.f_code)
        if code < 0:
            self._nodes[key] = key[0]
            return key[0]
        self._node_number += 1
        self._nodes[key] = self._node_number
        self._writer.put(NODE, key[0], frame.f_lineno or 0, code, self._node_number)
        return self._node_number

    def _code(self, code: CodeType) -> int:
        known = self._codes.get(id(code))
        if known is not None:
            return known[0]
        if id(code) in self._hidden or code.co_filename.startswith(_OWN_FOLDER):
            self._codes[id(code)] = (-1, code)
            return -1
        if len(self._codes) >= MAX_CODES:
            return 0  # its id may be used again by another one, which is why it is not remembered
        number = len(self._codes) + 1
        self._codes[id(code)] = (number, code)
        name = getattr(code, "co_qualname", code.co_name)
        texts = (self._writer.text(name), self._writer.text(code.co_filename))
        self._writer.line("code", id=number, name=texts[0], file=texts[1], line=code.co_firstlineno)
        return number

    def _tid(self, ident: int) -> int:
        """The operating system's number of a thread, from `threading`, if that was ever imported."""
        tid = self._tids.get(ident)
        threading = sys.modules.get("threading")
        thread = getattr(threading, "_active", {}).get(ident)
        native = getattr(thread, "native_id", None)
        if tid is None or (native is not None and native != tid):
            # an ident is used again after its thread ended
            tid = native if native is not None else _PSEUDO_TID + len(self._tids)
            self._tids[ident] = tid
        main = tid == self._main_tid
        name = thread.name if thread is not None else "MainThread" if main else f"thread {ident:#x}"
        if self._names.get(tid) != name:
            self._names[tid] = name
            self._writer.line("thread", tid=tid, name=name)
        return tid
