"""Everything that one run recorded, on one timeline: Kineto windows, marks, stack samples, /proc readings.

    p*.rec, p*.jsonl   monotonic clock --+
    h*.rec             monotonic clock --+--> ClockMap --> TimelineBuilder --> Session
    p*-w*.json         wall clock -------+

This is the one place where clocks meet (`clocks.ClockMap`). Processes of one host share the monotonic clock,
so all of them land on one axis without a further step.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import anchors, counters, kernels
from stallscope.profiler.builder import TimelineBuilder
from stallscope.profiler.clocks import ClockMap
from stallscope.profiler.errors import InputError
from stallscope.profiler.ids import NO_ID, TEXT_ID_BASE
from stallscope.profiler.intervals import EMPTY, IntervalSet, union
from stallscope.profiler.kinds import Kind
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers.recording_dir import RawProcess, RawRecording, Records, window_file
from stallscope.profiler.recorder.format import (
    ARG,
    ARG_IS_FLOAT,
    ARG_IS_INT,
    FORWARD_PASS,
    GC,
    HOST_CPU,
    HOST_MEM,
    HOST_SW,
    IMPORT,
    MARK,
    NODE,
    OVERHEAD,
    SAMPLE,
)
from stallscope.profiler.samples import Stacks, fuse, hottest_lines, segments, unfold
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import (
    ARG_BIGINT,
    ARG_FLOAT,
    ARG_INT,
    ARG_JSON,
    ARG_STRING,
    Allocations,
    Int32,
    Int64,
    Timeline,
    Track,
)

SAMPLE_CATEGORY = "python_sample"
MARK_CATEGORY = "mark"
GC_CATEGORY = "gc"
IMPORT_CATEGORY = "import"
RECORDER_CATEGORY = "recorder"
_HIDDEN_KINDS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
_OWN_FILES = ("stallscope/profiler/recorder/", "torch/autograd/profiler.py", "torch_npu/profiler/")
_BUSY_THREAD_NS = 1_000_000
_LISTED_THREADS = 32


def merge_recording(raw: RawRecording) -> Session:
    """The session of a recording. Raises InputError where no process left anything to merge."""
    return _Merge(raw).session()


class _Merge:
    def __init__(self, raw: RawRecording) -> None:
        self.raw = raw
        self.notes = Notes(raw.notes)
        self.processes = _useful(raw.processes)
        if not self.processes:
            raise InputError(
                raw.folder,
                "no process was recorded in it",
                "The target did not start, or it runs Python with -E, -I or -S, which the recorder cannot reach.",
            )
        self.builder = TimelineBuilder()
        self.clock = ClockMap([c for p in raw.processes for c in p.clocks] + _manifest_clock(raw.manifest))
        self.links: list[tuple[Int64, Int64]] = []
        self.windows: list[dict[str, Any]] = []
        self.facts_of_parts: list[dict[str, Any]] = []
        self.host_threads: list[dict[str, Any]] = []
        self.next_source = 0
        self.operators: dict[int, list[tuple[Int64, Int64]]] = {}
        """Track to (starts, ends) of its operators: what bounds the stack samples of the same thread."""
        self.passes: dict[int, list[tuple[Int64, Int64]]] = {}
        self.ranks: dict[int, int] = {}
        self.tie_error_ns = 0

    def session(self) -> Session:
        for process in self.processes:
            parts = self._read_windows(process)
            if parts:
                self.ranks[process.pid] = max(_rank(part) for part, _ in parts)
            for part, window in parts:
                self._add_part(process, part, window)
        for process in self.processes:
            self._add_marks(process)
            self._add_pauses(process)
            self._add_samples(process)
            self._add_host(process)
            self._add_notes(process)
        self._add_recording_notes()
        origin = self.clock.common(min(int(p.start["mono_ns"]) for p in self.processes))
        timeline = self.builder.finish("realtime", origin)
        self._set_launches(timeline)
        self.notes.extend(self.builder.notes)
        return Session(timeline, self._facts(origin), self.notes)

    # -- tracks ------------------------------------------------------------------------------------

    def _track(self, process: RawProcess, tid: int, label: str = "", role: str = "host") -> int:
        """The track of a thread, or with a label a further track beside it."""
        name = self._thread_name(process, tid)
        return self.builder.add_track(
            Track(
                name=f"{name}: {label}" if label else name,
                role=role,
                rank=self.ranks.get(process.pid, -1),
                process=process.pid,
                process_name=_process_name(process),
                thread=tid,
            )
        )

    def _thread_name(self, process: RawProcess, tid: int) -> str:
        host = self.raw.host.get(process.stem)
        name = process.threads.get(tid) or (host.threads.get(tid) if host is not None else None)
        if tid == process.pid:
            return "MainThread"
        return name or f"thread {tid}"

    def _tracks(
        self, process: RawProcess, tids: npt.NDArray[Any], label: str = "", role: str = "host"
    ) -> Int32:
        distinct, inverse = np.unique(tids, return_inverse=True)
        table = np.array([self._track(process, int(t), label, role) for t in distinct] or [0], np.int32)
        return table[inverse.reshape(-1)]

    # -- framework windows -------------------------------------------------------------------------

    def _read_windows(self, process: RawProcess) -> list[tuple[Session, dict[str, Any]]]:
        """The windows of a process that count, read: a provisional one only if there is no other."""
        real = [w for w in process.windows if not w.get("provisional")]
        copies = [{**u, "why": "the script's own profiler"} for u in process.user_profiles if u.get("file")]
        out = []
        for window in sorted([*(real or process.windows), *copies], key=lambda w: int(w.get("start_ns", 0))):
            path = window_file(self.raw.folder, process, window.get("file"))
            part = self._read_window(path) if path is not None else None
            if part is None:
                self.notes.add(
                    "window-unreadable",
                    "data_loss",
                    "operator windows are missing or damaged",
                    1,
                    str(window.get("file")),
                )
                continue
            out.append((part, window))
        return out

    def _read_window(self, path: Path) -> Session | None:
        from stallscope.profiler.readers import load

        try:
            return load(path)
        except InputError as error:
            # without the path, which says nothing to whoever reads the report
            then = f". {error.next_step}" if error.next_step else ""
            self.notes.add(
                "window-error", "warning", f"an operator window could not be read: {error.seen}{then}"
            )
            return None

    def _add_part(self, process: RawProcess, part: Session, window: dict[str, Any]) -> None:
        """One window's timeline: names, tracks and ids translated, times brought to the common clock."""
        timeline, builder = part.timeline, self.builder
        stop_ns = int(window.get("stop_ns", 0))
        shift = timeline.origin_ns + self._offset_of_part(timeline, window)
        texts = np.append(builder.strings.codes(timeline.strings.texts), np.int32(-1))
        tracks = np.append(self._part_tracks(process, timeline), np.int32(-1))
        spans = timeline.spans
        keep = self._part_rows(timeline, shift, stop_ns)
        offset = self.next_source
        numbers = np.full(len(spans), -1, np.int64)
        numbers[keep] = builder.add(
            track=tracks[spans.track[keep]],
            start_ns=spans.start_ns[keep] + shift,
            dur_ns=spans.dur_ns[keep],
            name=texts[spans.name[keep]],
            kind=spans.kind[keep],
            category=texts[spans.category[keep]],
            correlation=_translated_ids(spans.correlation[keep], texts),
            external_id=_translated_ids(spans.external_id[keep], texts),
            source=spans.source[keep] + offset,
        )
        self._note_operators(timeline, tracks, shift)
        linked = np.flatnonzero((spans.launch_row >= 0) & (numbers >= 0))
        pair = (spans.source[spans.launch_row[linked]], spans.source[linked])
        self.links.append((pair[0].astype(np.int64) + offset, pair[1].astype(np.int64) + offset))
        self._add_part_args(timeline, texts, offset)
        self._add_part_tables(timeline, shift, texts, tracks, numbers)
        top = max(int(spans.source.max(initial=-1)), int(timeline.args.event.max(initial=-1)))
        self.next_source = offset + top + 1
        self.notes.extend(n for n in part.notes if n.code != "no-device-activity")
        self.facts_of_parts.append(part.facts)
        self._add_window_fact(process, timeline, window, shift)

    def _offset_of_part(self, timeline: Timeline, window: dict[str, Any]) -> int:
        """What is added to a window's wall-clock stamps: from ranges both clocks saw, else from the wall clock."""
        start_ns = int(window.get("start_ns", 0))
        readings = window.get("anchors")
        if not readings:
            return self.clock.shift_of_realtime(start_ns)
        rows = anchors.anchor_rows(timeline)
        found = None
        if isinstance(readings, list) and len(rows) == len(readings):
            pairs = np.array(readings, np.int64).reshape(-1, 2) + self.clock.origin_offset_ns
            found = anchors.tie(timeline.spans.start_ns[rows] + timeline.origin_ns, pairs[:, 0], pairs[:, 1])
        if found is None:
            self.notes.add(
                "clock-not-tied",
                "warning",
                "an NPU window lacks the ranges that tie its clock to ours; it was placed by the wall clock, which may be "
                "off by some 0.1 ms",
            )
            return self.clock.shift_of_realtime(start_ns)
        anchors.bend(timeline, found)
        self.tie_error_ns = max(self.tie_error_ns, found.error_ns)
        return found.offset_ns

    def _note_operators(self, timeline: Timeline, tracks: Int32, shift: int) -> None:
        spans = timeline.spans
        rows = np.flatnonzero((spans.kind == Kind.OPERATOR) | (spans.kind == Kind.RUNTIME))
        for track in kernels.distinct(spans.track[rows]):
            mine = rows[spans.track[rows] == track]
            start = spans.start_ns[mine] + shift
            self.operators.setdefault(int(tracks[track]), []).append((start, start + spans.dur_ns[mine]))

    @staticmethod
    def _union(parts: list[tuple[Int64, Int64]]) -> IntervalSet:
        if not parts:
            return EMPTY
        return union(*(np.concatenate(column) for column in zip(*parts, strict=True)))

    def _add_window_fact(
        self, process: RawProcess, timeline: Timeline, window: dict[str, Any], shift: int
    ) -> None:
        start = self.clock.common(int(window["start_ns"])) if window.get("start_ns") else shift
        stop = self.clock.common(int(window["stop_ns"])) if window.get("stop_ns") else 0
        spans = timeline.spans
        if not stop:
            stop = shift + int(spans.end_ns.max(initial=0))
        self.windows.append(
            {
                "pid": process.pid,
                "start_ns": start,
                "end_ns": stop,
                "steps": window.get("steps", 0),
                "events": len(spans),
                "device_events": len(timeline.device_work()),
                "closed_by": str(window.get("why", "")),
                "provisional": bool(window.get("provisional", False)),
                "activities": window.get("activities", []),
            }
        )

    def _part_tracks(self, process: RawProcess, timeline: Timeline) -> Int32:
        """Host threads become this process's thread tracks; lanes of devices keep what they were called."""
        several = len(self.processes) > 1
        out = []
        for track in timeline.tracks:
            if track.role == "host" and isinstance(track.thread, int) and track.thread >= 0:
                out.append(self._track(process, track.thread))
                continue
            name = f"{track.name} (pid {process.pid})" if several else track.name
            rank = self.ranks.get(process.pid, -1)
            out.append(
                self.builder.add_track(dataclasses.replace(track, name=name, rank=max(rank, track.rank)))
            )
        return np.array(out or [0], np.int32)

    def _part_rows(self, timeline: Timeline, shift: int, stop_ns: int) -> npt.NDArray[np.intp]:
        """All rows but our own: Python frames of the recorder, and those that ran while the window closed."""
        spans = timeline.spans
        drop = timeline.match_names(anchors.is_anchor)
        python = spans.kind == Kind.PYTHON
        if python.any():
            drop |= python & timeline.match_names(lambda name: any(part in name for part in _OWN_FILES))
            if stop_ns:
                drop |= python & (spans.start_ns + shift >= self.clock.common(stop_ns))
        return np.flatnonzero(~drop)

    def _add_part_args(self, timeline: Timeline, texts: Int32, offset: int) -> None:
        args = timeline.args
        if len(args) == 0:
            return
        is_text = np.isin(args.tag, [ARG_STRING, ARG_JSON, ARG_BIGINT])
        tag, value = args.entries()
        value[is_text] = texts[value[is_text]]
        for code, key in enumerate(args.keys):
            mine = np.flatnonzero(args.key == code)
            if len(mine):
                self.builder.add_args(args.event[mine] + offset, key, tag[mine], value[mine])

    def _add_part_tables(
        self, timeline: Timeline, shift: int, texts: Int32, tracks: Int32, numbers: Int64
    ) -> None:
        flows, counts, marks = timeline.flows, timeline.counters, timeline.marks
        if len(flows):
            ends = [np.where(rows >= 0, numbers[rows], -1) for rows in (flows.from_row, flows.to_row)]
            self.builder.add_flows(ends[0], ends[1], texts[flows.name])
        if len(counts):
            self.builder.add_counters(
                counts.time_ns + shift, texts[counts.name], tracks[counts.track], counts.value
            )
        if len(marks):
            self.builder.add_marks(marks.time_ns + shift, texts[marks.name], tracks[marks.track])
        if len(timeline.allocations):
            table = timeline.allocations
            self.builder.add_allocations(
                Allocations(
                    table.time_ns + shift,
                    table.bytes,
                    table.total_bytes,
                    table.address,
                    table.device,
                    tracks[table.track],
                )
            )

    def _set_launches(self, timeline: Timeline) -> None:
        """Links as each window's own reader found them: ids are only unique within a window."""
        spans = timeline.spans
        spans.launch_row[:] = -1
        if not self.links or len(spans) == 0:
            return
        launch = np.concatenate([pair[0] for pair in self.links])
        work = np.concatenate([pair[1] for pair in self.links])
        row_of = np.full(int(spans.source.max()) + 1, -1, np.int32)
        row_of[spans.source] = np.arange(len(spans), dtype=np.int32)
        spans.launch_row[row_of[work]] = row_of[launch]

    # -- our own records ---------------------------------------------------------------------------

    def _new_sources(self, n: int) -> Int32:
        first = self.next_source
        self.next_source += n
        return np.arange(first, first + n, dtype=np.int32)

    def _names(self, process: RawProcess, numbers: npt.NDArray[Any]) -> Int32:
        """String codes of text numbers."""
        distinct, inverse = np.unique(numbers, return_inverse=True)
        table = self.builder.strings.codes([process.text(int(n)) for n in distinct])
        return table[inverse.reshape(-1)] if len(distinct) else np.zeros(0, np.int32)

    def _add_marks(self, process: RawProcess) -> None:
        at = np.flatnonzero(np.isin(process.records["type"], [MARK, IMPORT]))
        marks = process.records[at]
        if len(marks) == 0:
            return
        category = self.builder.strings.codes([MARK_CATEGORY, IMPORT_CATEGORY])
        source = self._new_sources(len(marks))
        tracks = self._tracks(process, marks["tid"])
        start = marks["t"] + self.clock.origin_offset_ns
        self._note_passes(marks, tracks, start)
        self.builder.add(
            track=tracks,
            start_ns=start,
            dur_ns=np.maximum(marks["dur"], 0),
            name=self._names(process, marks["a"]),
            kind=int(Kind.ANNOTATION),
            category=category[(marks["type"] == IMPORT).astype(np.intp)],
            source=source,
        )
        self._add_mark_arguments(process, source, process.slots[at])

    def _note_passes(self, marks: Records, tracks: Int32, start: Int64) -> None:
        """Forward passes of outermost modules: they never nest in one thread."""
        is_pass = marks["flags"] == FORWARD_PASS
        for track in kernels.distinct(tracks[is_pass]):
            mine = is_pass & (tracks == track)
            self.passes.setdefault(int(track), []).append((start[mine], start[mine] + marks["dur"][mine]))

    def _add_mark_arguments(self, process: RawProcess, source: Int32, slots: Int64) -> None:
        """Arguments name their mark by its slot; marks are in slot order, so a search finds them."""
        arguments = process.of_type(ARG)
        if len(arguments) == 0:
            return
        where = np.minimum(np.searchsorted(slots, arguments["t"]), len(slots) - 1)
        hit = slots[where] == arguments["t"]
        owner = source[where]
        for key_number in kernels.distinct(arguments["dur"][hit]):
            mine = hit & (arguments["dur"] == key_number)
            kind, value = arguments["flags"][mine], arguments["a"][mine].copy()
            tag = np.select([kind == ARG_IS_INT, kind == ARG_IS_FLOAT], [ARG_INT, ARG_FLOAT], ARG_STRING)
            is_text = tag == ARG_STRING
            value[is_text] = self._names(process, value[is_text])
            self.builder.add_args(owner[mine], process.text(int(key_number)), tag, value)

    def _add_pauses(self, process: RawProcess) -> None:
        """Garbage collections as spans of their thread; our own work on a lane of its own."""
        pauses = process.of_type(GC)
        if len(pauses):
            source = self._new_sources(len(pauses))
            self.builder.add(
                track=self._tracks(process, pauses["tid"]),
                start_ns=pauses["t"] + self.clock.origin_offset_ns,
                dur_ns=np.maximum(pauses["dur"], 0),
                name=self.builder.strings.code("garbage collection"),
                kind=int(Kind.OTHER),
                category=self.builder.strings.code(GC_CATEGORY),
                source=source,
            )
            self.builder.add_args(source, "generation", ARG_INT, pauses["flags"].astype(np.int64))
            self.builder.add_args(source, "collected", ARG_INT, pauses["a"].astype(np.int64))
        ours = process.of_type(OVERHEAD)
        if len(ours):
            self.builder.add(
                track=self._tracks(process, ours["tid"], "recorder", "label"),
                start_ns=ours["t"] + self.clock.origin_offset_ns,
                dur_ns=np.maximum(ours["dur"], 0),
                name=self._names(process, ours["a"]),
                kind=int(Kind.OVERHEAD),
                category=self.builder.strings.code(RECORDER_CATEGORY),
                source=self._new_sources(len(ours)),
            )

    def _add_samples(self, process: RawProcess) -> None:
        samples, nodes = process.of_type(SAMPLE), process.of_type(NODE)
        if len(samples) == 0 or len(nodes) == 0:
            return
        nodes = nodes[np.argsort(nodes["tid"], kind="stable")]
        # node numbers are consecutive from 1; a damaged record leaves a hole, which becomes a root
        count = int(nodes["tid"].max())
        parents, codes, lines = (np.zeros(count, np.int64) for _ in range(3))
        index = nodes["tid"].astype(np.intp) - 1
        parents[index], codes[index], lines[index] = nodes["t"], nodes["a"], nodes["dur"]
        stacks, which = unfold(parents, codes, lines, samples["a"].astype(np.int64))
        weight = np.maximum(samples["flags"], 1).astype(np.int64)
        hot = hottest_lines(stacks, which, weight, max(process.codes, default=0))
        names = self._frame_names(process, hot)
        for tid in kernels.distinct(samples["tid"]):
            mine = np.flatnonzero(samples["tid"] == tid)
            self._add_thread_samples(
                process, int(tid), samples[mine], stacks, which[mine], weight[mine], names
            )

    def _frame_names(self, process: RawProcess, hot: Int32) -> Int32:
        """String code per code number of `function (file.py:line)`, the line being its hottest."""
        table = np.full(len(hot), self.builder.strings.code("?"), np.int32)
        for number, (name, file, first) in process.codes.items():
            if 0 <= number < len(table):
                line = int(hot[number]) or first
                text = f"{process.text(name)} ({process.text(file).rpartition('/')[2]}:{line})"
                table[number] = self.builder.strings.code(text)
        return table

    def _add_thread_samples(
        self,
        process: RawProcess,
        tid: int,
        samples: Records,
        stacks: Stacks,
        which: Int64,
        weight: Int64,
        names: Int32,
    ) -> None:
        order = np.argsort(samples["t"], kind="stable")
        samples, which, weight = samples[order], which[order], weight[order]
        first = samples["t"].astype(np.int64) + self.clock.origin_offset_ns
        interval_ns = 1_000_000_000 // max(int(self.raw.manifest.get("settings", {}).get("rate_hz", 100)), 1)
        track = self._track(process, tid)
        spans = fuse(
            stacks,
            segments(
                stacks,
                which,
                first,
                first + samples["dur"],
                weight,
                interval_ns,
                self._union(self.operators.get(track, [])),
                self._union(self.passes.get(track, [])),
            ),
        )
        if len(spans.start_ns) == 0:
            return
        source = self._new_sources(len(spans.start_ns))
        code = np.clip(spans.code, 0, len(names) - 1)
        self.builder.add(
            track=self._track(process, tid, "Python samples"),
            start_ns=spans.start_ns,
            dur_ns=spans.dur_ns,
            name=names[code],
            kind=int(Kind.PYTHON),
            category=self.builder.strings.code(SAMPLE_CATEGORY),
            source=source,
        )
        used, inverse = np.unique(spans.code, return_inverse=True)
        for key, column in (("function", 0), ("file", 1)):
            texts = [process.text(process.codes.get(int(c), (0, 0, 0))[column]) for c in used]
            table = self.builder.strings.codes(texts)
            self.builder.add_args(source, key, ARG_STRING, table[inverse.reshape(-1)].astype(np.int64))
        self.builder.add_args(source, "line", ARG_INT, spans.line.astype(np.int64))
        self.builder.add_args(source, "samples", ARG_INT, spans.samples)

    # -- /proc -------------------------------------------------------------------------------------

    def _add_host(self, process: RawProcess) -> None:
        host = self.raw.host.get(process.stem, process)
        readings = host.of_type(HOST_CPU)
        switches = host.of_type(HOST_SW)
        for tid in kernels.distinct(readings["tid"]):
            mine, moves = readings[readings["tid"] == tid], switches[switches["tid"] == tid]
            ran, waited = (int(mine[c][-1] - mine[c][0]) for c in ("dur", "a"))
            if ran + waited < _BUSY_THREAD_NS:
                continue
            track = self._track(process, int(tid))
            self._add_counter(mine, track, counters.CPU_NS, "dur")
            self._add_counter(mine, track, counters.RUN_QUEUE_NS, "a")
            self._add_counter(moves, track, counters.VOLUNTARY, "dur")
            self._add_counter(moves, track, counters.INVOLUNTARY, "a")
            self.host_threads.append(
                {
                    "pid": process.pid,
                    "thread": int(tid),
                    "name": self._thread_name(process, int(tid)),
                    "wall_ns": int(mine["t"][-1] - mine["t"][0]),
                    "cpu_ns": ran,
                    "run_queue_wait_ns": waited,
                    "involuntary_switches": int(moves["a"][-1] - moves["a"][0]) if len(moves) else 0,
                }
            )
        memory = host.of_type(HOST_MEM)
        if len(memory):
            code = self.builder.strings.code(counters.RESIDENT_BYTES)
            times = memory["t"] + self.clock.origin_offset_ns
            self.builder.add_counters(times, code, self._track(process, process.pid), memory["dur"])

    def _add_counter(self, readings: Records, track: int, name: str, column: str) -> None:
        if len(readings) == 0:
            return
        values = readings[column] - readings[column][0]
        times = readings["t"] + self.clock.origin_offset_ns
        self.builder.add_counters(times, self.builder.strings.code(name), track, values)

    # -- notes and facts ---------------------------------------------------------------------------

    def _add_notes(self, process: RawProcess) -> None:
        for entry in process.notes:
            severity = entry.get("severity")
            if severity in ("info", "warning", "data_loss"):
                self.notes.add(str(entry.get("code")), severity, str(entry.get("text")))
        for entry in process.errors:
            first = f"{entry.get('where')}: {entry.get('error')}"
            self.notes.add(
                "recorder-fault", "warning", "faults of the recorder itself were caught", 1, first[:300]
            )
        for entry in process.user_profiles:
            if not entry.get("file") and "kind" not in entry:
                self.notes.add(
                    "second-profiler",
                    "info",
                    "the script ran a profiler of its own; ours gave way to it, and what it exported was read",
                )
        if process.finish is None:
            self.notes.add(
                "process-killed",
                "data_loss",
                "processes ended without closing their record (killed or crashed); what they held in memory is lost",
                1,
                f"{_process_name(process)} (pid {process.pid})",
            )
            self.notes.add(
                "window-lost",
                "data_loss",
                "operator windows were open when their process was killed, and are lost",
                len(process.opened),
            )
        dropped = int(process.meter.get("dropped", 0) or 0)
        self.notes.add(
            "records-dropped", "data_loss", "records could not be written (disk full, or too many)", dropped
        )

    def _add_recording_notes(self) -> None:
        for entry in self.raw.boot_errors:
            self.notes.add(
                "process-not-recorded",
                "data_loss",
                "Python processes could not be recorded",
                1,
                f"Python {entry.get('python')}: {entry.get('error')}",
            )
        for jump in self.clock.steps():
            self.notes.add(
                "wall-clock-set",
                "warning",
                "the machine's clock was set while recording; operator windows were moved back",
                1,
                f"by {jump} ns",
            )
        if self.raw.end is None:
            self.notes.add("launcher-killed", "warning", "the recording was not ended by its launcher")
        settings = self.raw.manifest.get("settings", {})
        modules = {m.get("name") for p in self.processes for m in p.modules}
        if settings.get("ops") and settings.get("device") != "off" and not modules:
            self.notes.add(
                "no-framework",
                "info",
                "the script loaded neither torch nor MindSpore: Python and host activity were recorded, no operators",
            )
        elif settings.get("ops") and settings.get("device") != "off" and not self.windows:
            self.notes.add("no-window", "warning", "no operator window was recorded")
        if self.windows and not any(w["device_events"] for w in self.windows):
            self.notes.add(
                "no-device-activity", "warning", f"no device activity was recorded: {self._why_no_device()}"
            )

    def _why_no_device(self) -> str:
        """The likeliest cause, from what the windows were asked to record."""
        asked = {a for w in self.windows for a in w["activities"]} - {"cpu"}
        if asked:
            return (
                f"{', '.join(sorted(asked))} activity was asked for and none came. Either nothing ran there while the "
                "window was open, or the profiler lacks permission for the device (containers and shared machines)"
            )
        if any(p.framework.get("build") == "cpu" for p in self.processes):
            return "this torch is a CPU build, so the script computed on the CPU"
        return "the script had not begun to use a device when the window opened, or was told to leave it out"

    def _facts(self, origin: int) -> dict[str, Any]:
        main = self.processes[0]
        settings = dict(self.raw.manifest.get("settings", {}))
        facts: dict[str, Any] = {
            "source": _process_name(main),
            "format": "stallscope-recording",
            "producer": f"stallscope {self.raw.manifest.get('kind', 'run')}",
            "argv": self.raw.manifest.get("argv", []),
            "host": self.raw.manifest.get("host", {}),
            "python": main.start.get("python", ""),
            "settings": settings,
            "clock": {
                "axis": "realtime",
                "uncertainty_ns": max(self.clock.uncertainty_ns, self.tie_error_ns),
            },
            "processes": [self._process_fact(p, origin) for p in self.processes],
            "windows": [
                {**w, "start_ns": w["start_ns"] - origin, "end_ns": w["end_ns"] - origin}
                for w in self.windows
            ],
            "host_threads": sorted(self.host_threads, key=lambda t: -t["cpu_ns"] - t["run_queue_wait_ns"])[
                :_LISTED_THREADS
            ],
            "overhead": self._overhead(),
            "devices": {k: v for part in self.facts_of_parts for k, v in part.get("devices", {}).items()},
        }
        for module in (m for p in self.processes for m in p.modules):
            facts[str(module.get("name"))] = module.get("version", "")
        for process in self.processes:
            if process.framework:
                facts.setdefault("framework", process.framework)
        self._add_npu_facts(facts)
        if self.raw.end is not None:
            facts["exit_status"] = self.raw.end.get("status")
            facts["wall_ns"] = int(self.raw.end.get("end_ns", 0)) - int(self.raw.end.get("start_ns", 0))
        ranks = sorted(set(self.ranks.values()) - {-1})
        if len(ranks) == 1:
            facts["rank"] = ranks[0]
        return facts

    def _add_npu_facts(self, facts: dict[str, Any]) -> None:
        """What NPU windows tell about settings and steps, and what only the process itself knew."""
        recordings = [r for part in self.facts_of_parts for r in part.get("ascend", {}).get("ranks", [])]
        framework = facts.get("framework", {})
        variables = framework.get("environment", {})
        for recording in recordings:
            recording["environment"] = {**recording.get("environment", {}), **variables}
        if recordings:
            facts["ascend"] = {"ranks": recordings}
        names = set(framework.get("device_names", []))
        if framework.get("device_kind") == "npu" and len(names) == 1:
            for device in facts["devices"].values():
                device.setdefault("name", next(iter(names)))

    def _process_fact(self, process: RawProcess, origin: int) -> dict[str, Any]:
        end = int(process.finish.get("mono_ns", 0)) if process.finish else 0
        return {
            "pid": process.pid,
            "parent": process.start.get("ppid", -1),
            "kind": process.start.get("kind", ""),
            "name": _process_name(process),
            "start_ns": self.clock.common(int(process.start["mono_ns"])) - origin,
            "end_ns": self.clock.common(end) - origin if end else None,
            "closed_by": str(process.finish.get("why", "")) if process.finish else "nothing: it was killed",
        }

    def _overhead(self) -> dict[str, Any]:
        """What the recorder itself cost in this very run."""
        meters = [p.meter for p in self.processes]
        end = self.raw.end or {}
        return {
            "sampling_cpu_ns": sum(int(m.get("sampler_cpu_ns", 0)) for m in meters),
            "samples": sum(int(m.get("samples", 0)) for m in meters),
            "marks": sum(int(m.get("marks", 0)) for m in meters),
            "windows_ns": sum(int(m.get("window_ns", 0)) for m in meters),
            "launcher_cpu_ns": int(end.get("monitor_cpu_ns", 0)),
            "bytes_written": sum(f.stat().st_size for f in self.raw.folder.iterdir() if f.is_file()),
        }


def _useful(processes: list[RawProcess]) -> list[RawProcess]:
    """By start; without helpers of multiprocessing and without forks that became another image at once."""
    images: dict[int, list[RawProcess]] = {}
    for process in sorted(processes, key=lambda p: int(p.start.get("mono_ns", 0))):
        if isinstance(process.start.get("mono_ns"), int):
            images.setdefault(process.pid, []).append(process)
    out = []
    for group in images.values():
        for place, process in enumerate(group):
            argv = " ".join(str(a) for a in process.start.get("argv", []))
            helper = process.start.get("kind") != "fork" and any(h in argv for h in _HIDDEN_KINDS)
            became_another = place + 1 < len(group) and process.finish is None and len(process.records) < 8
            if not helper and not became_another:
                out.append(process)
    return sorted(out, key=lambda p: (p.start.get("kind") not in ("main", "record"), int(p.start["mono_ns"])))


def _process_name(process: RawProcess) -> str:
    """The script or module a process runs, without its folder."""
    argv: list[str] = [str(a) for a in process.start.get("argv", [])][1:]
    skip = False
    for place, word in enumerate(argv):
        if skip:
            skip = False
        elif word in ("-W", "-X"):
            skip = True
        elif word == "-m" and place + 1 < len(argv):
            return argv[place + 1]
        elif word == "-c":
            return "python -c"
        elif not word.startswith("-"):
            return word.rpartition("/")[2]
    return "python"


def _manifest_clock(manifest: dict[str, Any]) -> list[tuple[int, int, int]]:
    clock = manifest.get("clock")
    if not isinstance(clock, dict):
        return []
    reading = tuple(clock.get(k) for k in ("mono_ns", "real_ns", "width_ns"))
    return [reading] if all(isinstance(v, int) for v in reading) else []  # type: ignore[list-item]


def _rank(part: Session) -> int:
    rank = part.facts.get("rank", -1)
    return rank if isinstance(rank, int) else -1


def _translated_ids(ids: Int64, texts: Int32) -> Int64:
    """Ids that are references to text, pointed at the new string table."""
    is_text = (ids <= TEXT_ID_BASE) & (ids != NO_ID)
    if not is_text.any():
        return ids
    out = ids.copy()
    out[is_text] = TEXT_ID_BASE - texts[TEXT_ID_BASE - ids[is_text]].astype(np.int64)
    return out
