"""Where everything stands in an exported trace: processes and threads with small numbers of their own.

Ids of the source may be text, negative or beyond 32 bits, and repeat between ranks; viewers then merge
lines that are not one. Here every line gets a number no other line and no process has.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import field
from typing import Any

import numpy as np

from stallscope.exporters.base import one_line, process_label
from stallscope.exporters.lanes import timeline_lanes
from stallscope.profiler.light import dataclass
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import Int32, Int64, Track

FINDINGS = "stallscope findings"
STEPS = "stallscope steps"
COUNTERS = "counters"


@dataclass
class Line:
    """A thread of the trace: one line, on which slices nest or are disjoint."""

    name: str
    tid: int
    sort: int
    original: dict[str, Any] = field(default_factory=dict)


@dataclass
class Process:
    """A group of lines. `original` holds the ids of the source."""

    name: str
    pid: int
    original: dict[str, Any] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)


class Layout:
    """Processes and lines for all tracks of a session, and for more that an exporter draws.

    `lane` is the lane of each row on its track, shape (n,); `process_of` and `first_tid` are by track:
    lane k of a track has the number `first_tid[track] + k`.
    """

    def __init__(self, session: Session) -> None:
        self.tracks = session.timeline.tracks
        self.lane: Int32 = timeline_lanes(session.timeline)
        self.processes: list[Process] = []
        self.findings = self.process(FINDINGS)
        self.steps = self.process(STEPS)
        self.counters = self.process(COUNTERS)
        # tids begin after the last pid: some viewers take a thread with its process's number for the main one
        self.next_tid = 1 + len(self.processes) + len({_process_key(t) for t in self.tracks})
        self.process_of: list[Process] = [self.findings] * len(self.tracks)
        self.first_tid: list[int] = [0] * len(self.tracks)
        self._place_tracks(session)

    def process(self, name: str, original: dict[str, Any] | None = None) -> Process:
        """A new process."""
        added = Process(name, len(self.processes) + 1, original or {})
        self.processes.append(added)
        return added

    def line(
        self, process: Process, name: str, original: dict[str, Any] | None = None, sort: int = -1
    ) -> Line:
        """A new line of a process, the last one unless `sort` says otherwise."""
        added = Line(name, self.next_tid, len(process.lines) if sort < 0 else sort, original or {})
        self.next_tid += 1
        process.lines.append(added)
        return added

    def order(self) -> list[int]:
        """Tracks as the file has them: threads, labels, then devices, so an arrow's start comes before its end."""
        roles = ("host", "label", "device")
        return sorted(range(len(self.tracks)), key=lambda n: (roles.index(self.tracks[n].role), n))

    def tids(self, tracks: Int32, lanes: Int32) -> Int64:
        """The numbers of lines, shape of the arguments."""
        return np.array(self.first_tid or [0], np.int64)[tracks] + lanes

    def _place_tracks(self, session: Session) -> None:
        known: dict[Any, Process] = {}
        devices = session.facts.get("devices")
        for number in self.order():
            track = self.tracks[number]
            key = _process_key(track)
            if key not in known:
                original = {"process": track.process, "process_name": track.process_name, "rank": track.rank}
                known[key] = self.process(_process_name(track, devices), original)
            self.process_of[number] = known[key]
            lanes = self.lane[session.timeline.track_rows(number)]
            for lane in range(int(lanes.max(initial=0)) + 1):
                line = self.line(
                    known[key], _line_name(track, lane), {"thread": track.thread, "stream": track.stream}
                )
                self.first_tid[number] = self.first_tid[number] or line.tid
        self._tell_apart()

    def _tell_apart(self) -> None:
        """Processes of one name (device 0 of several processes) get their original number added."""
        times = Counter(p.name for p in self.processes)
        for process in self.processes:
            if times[process.name] > 1 and "process" in process.original:
                process.name += f" (process {one_line(str(process.original['process']))})"


def _process_key(track: Track) -> tuple[int, int | str, int]:
    return track.rank, track.process, track.device if track.role != "host" else -1


def _process_name(track: Track, devices: Any) -> str:
    label = process_label(track)
    device = devices.get(str(track.device)) if isinstance(devices, dict) and track.device >= 0 else None
    name = device.get("name") if isinstance(device, dict) else ""
    return f"{label}: {one_line(str(name))}" if name else label


def _line_name(track: Track, lane: int) -> str:
    name = one_line(track.name) or "line"
    return f"{name}, lane {lane + 1}" if lane else name
