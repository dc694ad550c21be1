"""The timeline as a Chrome trace (`.json`, `.json.gz`) that viewers show whole, with the findings drawn in.

What viewers trip over, and what is done about it (docs/reference/chrome-export.md has the list):

* slices that cross on one line are dropped: each track is drawn on as many lanes as it takes, no span is
  shortened;
* times near the epoch lose their nanoseconds: the base is subtracted, three decimals come from integers;
* large or textual process, thread and flow ids collide: they are small numbers here, the originals are in
  the names and arguments;
* an arrow's end binds to the next slice: it stands on its slice and says so (`"bp":"e"`);
* escaped surrogates, NaN and final backslashes cost an argument or the file: text and numbers are cleaned;
* an object that is cut off does not load at all: the bare array form, streamed, loads up to the cut.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope import __version__
from stallscope.analyzers.finding import Evidence, Finding, Report
from stallscope.analyzers.idle import IDLE_CLASSES, Cause, Pieces
from stallscope.analyzers.run import Run
from stallscope.exporters.base import MAX_SAFE_INTEGER, one_line, track_label, writing
from stallscope.exporters.lanes import assign_disjoint_lanes, assign_lanes
from stallscope.exporters.trace_layout import Layout, Process
from stallscope.exporters.trace_text import (
    CLOSE,
    OPEN,
    Arguments,
    ArgumentWriter,
    Number,
    Objects,
    Rows,
    join_records,
    look_up,
    members,
    name_text,
    number_pieces,
    value_text,
)
from stallscope.profiler import kernels
from stallscope.profiler.device import GAP_CLASSES
from stallscope.profiler.ids import NO_ID, TEXT_ID_BASE
from stallscope.profiler.kinds import Kind, is_collective
from stallscope.profiler.light import dataclass
from stallscope.profiler.readers.chrome_trace import CATEGORY_KINDS
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import ARG_INT, ARG_STRING, Bool, Int32, Int64, Timeline

NAME = "chrome"
SUFFIX = ".trace.json.gz"

BATCH = 1 << 14
"""Rows that are turned into text at once; bounds the memory to some 20 MB."""

CATEGORIES: dict[Kind, str] = {
    Kind.PYTHON: "python_function",
    Kind.OPERATOR: "cpu_op",
    Kind.RUNTIME: "cuda_runtime",
    Kind.QUEUE: "queue",
    Kind.KERNEL: "kernel",
    Kind.COLLECTIVE: "kernel",
    Kind.MEMCPY: "gpu_memcpy",
    Kind.MEMSET: "gpu_memset",
    Kind.DEVICE_WAIT: "cuda_sync",
    Kind.ANNOTATION: "user_annotation",
    Kind.DEVICE_ANNOTATION: "gpu_user_annotation",
    Kind.OVERHEAD: "overhead",
    Kind.OTHER: "other",
}
"""The category of spans whose own one would not say their kind to a reader of Kineto traces."""

IDLE = "idle gaps"
MEMORY = "memory events"
OUR_CATEGORY = "stallscope"


def export(session: Session, report: Report, out: Path) -> None:
    """Write the trace. Raises InputError where the file cannot be written."""
    with writing(out) as file:
        for chunk in chunks(session, report):
            file.write(chunk)


def chunks(session: Session, report: Report) -> Iterator[bytes]:
    """The text of the trace, piece by piece. Equal input gives equal bytes."""
    return _Export(session, report).chunks()


@dataclass
class _Drawn:
    """Slices of our own (findings, steps, gaps): columns of shape (n,) and the rest of each record."""

    start_ns: Int64
    dur_ns: Int64
    tails: Objects


@dataclass
class _Ends:
    """Both ends of all arrows, by the row they stand on; columns of shape (m,)."""

    row: Rows
    time_ns: Int64
    number: Int64
    is_start: Bool
    name: Int32


class _Export:
    def __init__(self, session: Session, report: Report) -> None:
        self.session = session
        self.report = report
        self.timeline: Timeline = session.timeline
        self.spans = self.timeline.spans
        self.base_ns = self._first_time()
        self.layout = Layout(session)
        self.arguments = ArgumentWriter(self.timeline.args)
        self.ends, self.undrawn = self._arrows()
        self.drawn = [*self._gaps(), *self._steps(), *self._findings()]
        self.memory_tid = self._memory_line()

    def _first_time(self) -> int:
        timeline = self.timeline
        tables = (self.spans.start_ns, timeline.counters.time_ns, timeline.marks.time_ns,
                  timeline.allocations.time_ns)  # fmt: skip
        times = [int(t.min()) for t in tables if len(t)]
        times += [s.start_ns for s in self.report.steps]
        times += [e.start_ns for f in self.report.findings for e in f.evidence]
        return min(times, default=0)

    # -- the file ----------------------------------------------------------------------------------

    def chunks(self) -> Iterator[bytes]:
        yield self._metadata()
        for number in self.layout.order():
            rows = self.timeline.track_rows(number)
            for part in _batches(rows.start, rows.stop):
                yield self._rows(part, number)
        for drawn in self.drawn:
            yield self._slices(drawn)
        for part in _batches(0, len(self.timeline.marks)):
            yield self._marks(part)
        for part in _batches(0, len(self.timeline.allocations)):
            yield self._allocations(part)
        yield from self._counters()
        yield CLOSE + b"\n]\n"

    def _metadata(self) -> bytes:
        about = {
            "producer": f"stallscope {__version__}",
            "source": self.session.facts.get("source", ""),
            "recorded_by": self.session.facts.get("producer", ""),
            "time_0_ns": self.timeline.origin_ns + self.base_ns,
            "clock": self.timeline.clock,
            "arrows_not_drawn": self.undrawn,
        }
        records: list[bytes] = []
        for process in self.layout.processes:
            if process in (self.layout.steps, self.layout.counters) and not self._is_used(process):
                continue
            extra = about if process is self.layout.findings else process.original
            records.append(_label("process_name", process.pid, 0, {"name": process.name, **extra}))
            records.append(_label("process_sort_index", process.pid, 0, {"sort_index": process.pid}))
            for line in process.lines:
                records.append(
                    _label("thread_name", process.pid, line.tid, {"name": line.name, **line.original})
                )
                records.append(_label("thread_sort_index", process.pid, line.tid, {"sort_index": line.sort}))
        return b"[\n{" + OPEN.join(records)

    def _is_used(self, process: Process) -> bool:
        has_counters = bool((self.timeline.counters.track < 0).any())
        return bool(process.lines) or (process is self.layout.counters and has_counters)

    # -- spans -------------------------------------------------------------------------------------

    def _rows(self, rows: slice, track: int) -> bytes:
        spans = self.spans
        heads = number_pieces(
            [
                Number(OPEN + b'"ts":', spans.start_ns[rows] - self.base_ns, is_time=True),
                Number(b',"dur":', spans.dur_ns[rows], is_time=True),
            ]
        )
        tails = self._tails(rows, track)
        arguments = self._row_arguments(rows, track)
        follower_row, followers = self._followers(rows, track)
        return join_records(heads, tails, self.arguments.pieces(arguments), follower_row, followers)

    def _tails(self, rows: slice, track: int) -> Objects:
        spans, strings = self.spans, self.timeline.strings
        pid, tid = self.layout.process_of[track].pid, self.layout.first_tid[track]
        words, word = self._categories(rows)
        lanes = int(self.layout.lane[rows].max()) + 1
        code = (spans.name[rows].astype(np.int64) * len(words) + word) * lanes + self.layout.lane[rows]

        def tail(code: int) -> bytes:
            rest, lane = divmod(code, lanes)
            name, word = divmod(rest, len(words))
            category, kind, _ = words[word]
            if kind == Kind.COLLECTIVE and not is_collective(strings[name]):
                category = "collective"
            return b',"ph":"X","name":%s,"cat":%s,"pid":%d,"tid":%d,"args":{' % (
                name_text(strings[name]), name_text(category), pid, tid + lane,
            )  # fmt: skip

        return look_up(code, tail)

    def _categories(self, rows: slice) -> tuple[list[tuple[str, Kind, bool]], Int64]:
        """The categories of some rows as (text, kind, whether it stands for another one), and each row's."""
        spans = self.spans
        pair = spans.category[rows].astype(np.int64) * len(Kind) + spans.kind[rows]
        used, at = np.unique(pair, return_inverse=True)
        words = []
        for category, kind in (divmod(code, len(Kind)) for code in used.tolist()):
            text = self.timeline.strings[category] if category >= 0 else ""
            keep = _means(text, Kind(kind))
            words.append((text if keep else CATEGORIES[Kind(kind)], Kind(kind), bool(text) and not keep))
        return words, at.reshape(-1)

    def _row_arguments(self, rows: slice, track: int) -> Arguments:
        """What the source gave, and the ids and the stream where it did not have them as arguments."""
        timeline, spans = self.timeline, self.spans
        stored = self._stored_arguments(spans.source[rows])
        extra: list[tuple[str, Rows, int, Int64]] = []
        numbers = np.arange(rows.start, rows.stop)
        for key, column in (("correlation", "correlation"), ("External id", "external_id")):
            ids = spans.ids_at(column, numbers)
            lacking = np.flatnonzero((ids != NO_ID) & ~_has(stored, key, len(ids)))
            extra += self._ids(key, lacking, ids[lacking])
        words, word = self._categories(rows)
        replaced = np.flatnonzero(np.array([w[2] for w in words])[word])
        extra.append(("category", replaced, ARG_STRING, spans.category[rows][replaced].astype(np.int64)))
        owner = timeline.tracks[track]
        if owner.role == "device":
            count = rows.stop - rows.start
            for key, number in (("device", owner.device), ("stream", owner.stream)):
                if isinstance(number, int) and number >= 0:
                    lacking = np.flatnonzero(~_has(stored, key, count))
                    extra.append((key, lacking, ARG_INT, np.full(len(lacking), number)))
        return _merged(stored, extra)

    def _ids(self, key: str, rows: Rows, ids: Int64) -> Iterator[tuple[str, Rows, int, Int64]]:
        is_text = ids <= TEXT_ID_BASE
        yield key, rows[~is_text], ARG_INT, ids[~is_text]
        yield key, rows[is_text], ARG_STRING, TEXT_ID_BASE - ids[is_text]

    def _stored_arguments(self, sources: Int32) -> Arguments:
        store = self.timeline.args
        first = np.searchsorted(store.event, sources, side="left")
        count = np.searchsorted(store.event, sources, side="right") - first
        row = np.repeat(np.arange(len(sources)), count)
        at = np.arange(len(row)) + np.repeat(first - (np.cumsum(count) - count), count)
        return Arguments(store.keys, row, store.key[at], *store.entries(at))

    # -- arrows ------------------------------------------------------------------------------------

    def _arrows(self) -> tuple[_Ends, int]:
        """Launch arrows and the source's others; the number of those that end before they start.

        Viewers match ends in time order, so an arrow cannot point back: a kernel that starts before its
        launch (host and device clocks differ a little) gets its end a little later, inside itself.
        """
        spans = self.spans
        from_row, to_row, name = self._pairs()
        start = spans.start_ns[from_row]
        end = np.maximum(spans.start_ns[to_row], start)
        on_device = np.array([t.role == "device" for t in self.timeline.tracks] or [False])[
            spans.track[to_row]
        ]
        inside = (end == spans.start_ns[to_row]) | (on_device & (end < spans.end_at(to_row)))
        position = self._file_position()
        good = inside & ((end > start) | (position[from_row] < position[to_row]))
        from_row, to_row, name, start, end = (c[good] for c in (from_row, to_row, name, start, end))
        number = np.arange(1, len(from_row) + 1, dtype=np.int64)
        row = np.concatenate([from_row, to_row])
        order = np.argsort(row, kind="stable")
        ends = _Ends(
            row[order],
            np.concatenate([start, end])[order],
            np.concatenate([number, number])[order],
            np.repeat([True, False], len(from_row))[order],
            np.concatenate([name, name])[order],
        )
        return ends, int(len(good) - good.sum())

    def _pairs(self) -> tuple[Rows, Rows, Int32]:
        """Rows of both ends of every arrow, and its name (-1: a launch)."""
        spans, flows = self.spans, self.timeline.flows
        works = np.flatnonzero(spans.launch_row >= 0)
        launches = spans.launch_row[works].astype(np.intp)
        real = np.flatnonzero((flows.from_row >= 0) & (flows.to_row >= 0))
        start, end = flows.from_row[real].astype(np.intp), flows.to_row[real].astype(np.intp)
        # the source's own arrow of a launch: from the launch, or from a span that starts with it
        launch = spans.launch_row[end]
        same = (launch >= 0) & (spans.track[start] == spans.track[launch])
        same &= spans.start_ns[start] == spans.start_ns[launch]
        other = ~same
        return (
            np.concatenate([launches, start[other]]),
            np.concatenate([works, end[other]]),
            np.concatenate([np.full(len(works), -1, np.int32), flows.name[real][other]]),
        )

    def _file_position(self) -> Int64:
        """For each row where it stands among the spans of the file."""
        position = np.empty(len(self.spans), np.int64)
        at = 0
        for number in self.layout.order():
            rows = self.timeline.track_rows(number)
            position[rows] = np.arange(at, at + rows.stop - rows.start)
            at += rows.stop - rows.start
        return position

    def _followers(self, rows: slice, track: int) -> tuple[Rows, list[Objects]]:
        """The ends of arrows that stand on the rows of one track, each right behind its slice."""
        ends = self.ends
        low, high = np.searchsorted(ends.row, [rows.start, rows.stop])
        mine = slice(int(low), int(high))
        heads = number_pieces(
            [
                Number(OPEN + b'"ts":', ends.time_ns[mine] - self.base_ns, is_time=True),
                Number(b',"id":', ends.number[mine]),
            ]
        )
        lanes = int(self.layout.lane[rows].max()) + 1
        pid, tid = self.layout.process_of[track].pid, self.layout.first_tid[track]
        code = (ends.name[mine].astype(np.int64) * 2 + ends.is_start[mine]) * lanes
        code += self.layout.lane[ends.row[mine]]

        def tail(code: int) -> bytes:
            rest, lane = divmod(code, lanes)
            name, is_start = divmod(rest, 2)
            label = name_text("launch" if name < 0 else self.timeline.strings[name] or "flow")
            phase = b'"s"' if is_start else b'"f","bp":"e"'
            return b',"ph":%s,"name":%s,"cat":%s,"pid":%d,"tid":%d,"args":{' % (
                phase, label, label, pid, tid + lane,
            )  # fmt: skip

        return ends.row[mine] - rows.start, [heads, look_up(code, tail)]

    # -- our own lines -----------------------------------------------------------------------------

    def _slices(self, drawn: _Drawn) -> bytes:
        heads = number_pieces(
            [
                Number(OPEN + b'"ts":', drawn.start_ns - self.base_ns, is_time=True),
                Number(b',"dur":', drawn.dur_ns, is_time=True),
            ]
        )
        return join_records(heads, drawn.tails)

    def _gaps(self) -> Iterator[_Drawn]:
        """The idle gaps of each device, named by what ended them, and inside each the causes of its idle time."""
        run = self.report.run or Run(self.session)
        for number, view in run.devices.items():
            gaps = view.gaps
            if len(gaps) == 0:
                continue
            process = self.layout.process_of[int(self.spans.track[view.rows[0]])]
            line = self.layout.line(process, IDLE, sort=0)
            names = self.spans.name[gaps.ended_by].astype(np.int64)
            tails = look_up(names * len(GAP_CLASSES) + gaps.gap_class, self._gap_tail(process.pid, line.tid))
            start, end, cause = _merged_causes(run.idle[number].pieces)
            causes = look_up(cause, self._cause_tail(process.pid, line.tid))
            yield from _in_order(
                np.concatenate([gaps.start_ns, start]),
                np.concatenate([gaps.dur_ns, end - start]),
                np.concatenate([tails, causes]),
            )

    def _gap_tail(self, pid: int, tid: int) -> Callable[[int], bytes]:
        def tail(code: int) -> bytes:
            name, gap_class = divmod(code, len(GAP_CLASSES))
            return _slice_tail(GAP_CLASSES[gap_class], pid, tid, {"ended_by": self.timeline.strings[name]})

        return tail

    @staticmethod
    def _cause_tail(pid: int, tid: int) -> Callable[[int], bytes]:
        def tail(cause: int) -> bytes:
            key = Cause(cause).key
            return _slice_tail(key, pid, tid, {"cause": IDLE_CLASSES[key]})

        return tail

    def _steps(self) -> Iterator[_Drawn]:
        steps = self.report.steps
        if not steps:
            return
        start = np.array([s.start_ns for s in steps], np.int64)
        length = np.array([max(s.dur_ns, 0) for s in steps], np.int64)
        tids = self._lines(self.layout.steps, "steps", assign_lanes(start, start + length))
        tails = []
        for step, tid in zip(steps, tids, strict=True):
            args = {"phase": step.phase, "index": step.index, "confidence": step.confidence, **step.facts}
            name = f"{step.phase or step.name} {step.index}" if step.index >= 0 else step.phase or step.name
            tails.append(_slice_tail(name, self.layout.steps.pid, tid, {"step": step.name, **args}))
        yield from _in_order(start, length, _objects(tails))

    def _findings(self) -> Iterator[_Drawn]:
        """One slice per evidence; each finding has lines of its own, in the order of the report."""
        for finding in self.report.findings:
            if not finding.evidence:
                continue
            start = np.array([e.start_ns for e in finding.evidence], np.int64)
            length = np.array([max(e.end_ns - e.start_ns, 0) for e in finding.evidence], np.int64)
            name = one_line(f"{finding.code} {finding.title}")
            process = self.layout.findings
            tids = self._lines(process, name, assign_disjoint_lanes(start, start + length))
            common = _finding_arguments(finding)
            tails = [
                _slice_tail(name, process.pid, tid, common | self._evidence_arguments(evidence))
                for evidence, tid in zip(finding.evidence, tids, strict=True)
            ]
            yield from _in_order(start, length, _objects(tails))

    def _evidence_arguments(self, evidence: Evidence) -> dict[str, Any]:
        tracks = self.timeline.tracks
        told = 0 <= evidence.track < len(tracks)
        return {"label": evidence.label, "track": track_label(tracks[evidence.track]) if told else ""}

    def _lines(self, process: Process, name: str, lanes: Int32) -> list[int]:
        """Line numbers of spans on new lines of a process."""
        first = self.layout.next_tid
        for lane in range(int(lanes.max()) + 1):
            self.layout.line(process, f"{name}, lane {lane + 1}" if lane else name)
        return [first + lane for lane in lanes.tolist()]

    # -- points and values -------------------------------------------------------------------------

    def _marks(self, part: slice) -> bytes:
        marks, strings = self.timeline.marks, self.timeline.strings
        track = marks.track[part].astype(np.int64)

        def tail(code: int) -> bytes:
            name, track = divmod(code, len(self.timeline.tracks) + 1)
            scope, pid, tid = b"g", self.layout.findings.pid, 0
            if track > 0:
                scope, pid, tid = (
                    b"t",
                    self.layout.process_of[track - 1].pid,
                    self.layout.first_tid[track - 1],
                )
            return b',"ph":"i","s":"%s","name":%s,"cat":"instant","pid":%d,"tid":%d,"args":{' % (
                scope, name_text(strings[name]), pid, tid,
            )  # fmt: skip

        code = marks.name[part].astype(np.int64) * (len(self.timeline.tracks) + 1) + track + 1
        stored = self._stored_arguments(marks.source[part])
        return join_records(
            self._points(marks.time_ns[part]), look_up(code, tail), self.arguments.pieces(stored)
        )

    def _memory_line(self) -> int:
        if len(self.timeline.allocations) == 0:
            return 0
        return self.layout.line(self.layout.counters, MEMORY).tid

    def _allocations(self, part: slice) -> bytes:
        """Memory events in the form Kineto gives them, so that other tools read them too."""
        table = self.timeline.allocations
        device = table.device[part].astype(np.int64)
        columns = {
            "Device Type": np.where(device < 0, 0, 1),
            "Device Id": device,
            "Addr": table.address[part],
            "Bytes": table.bytes[part],
            "Total Allocated": table.total_bytes[part],
        }
        keys = list(columns)
        count, row = len(device), np.repeat(np.arange(len(device)), len(keys))
        values = np.stack([columns[key].astype(np.int64) for key in keys], axis=1).ravel()
        tags = np.full(len(row), ARG_INT, np.uint8)
        arguments = Arguments(keys, row, np.tile(np.arange(len(keys)), count), tags, values)
        tail = b',"ph":"i","s":"t","name":"[memory]","cat":"cpu_instant_event","pid":%d,"tid":%d,"args":{' % (
            self.layout.counters.pid, self.memory_tid,
        )  # fmt: skip
        tails = np.full(count, tail, object)
        return join_records(self._points(table.time_ns[part]), tails, self.arguments.pieces(arguments))

    def _counters(self) -> Iterator[bytes]:
        """One key each; values that are no finite number have nothing to draw and are left out."""
        counters = self.timeline.counters
        kept = np.flatnonzero(np.isfinite(counters.value))
        pair = (
            counters.name[kept].astype(np.int64) * (len(self.timeline.tracks) + 1) + counters.track[kept] + 1
        )
        names = self._counter_names(kernels.distinct(pair).tolist())

        def tail(code: int) -> bytes:
            track = code % (len(self.timeline.tracks) + 1) - 1
            pid = self.layout.process_of[track].pid if track >= 0 else self.layout.counters.pid
            return b',"ph":"C","name":%s,"pid":%d,"tid":0,"args":{' % (name_text(names[code]), pid)

        for part in _batches(0, len(kept)):
            yield self._values(
                counters.time_ns[kept[part]], look_up(pair[part], tail), counters.value[kept[part]]
            )
        yield from self._allocated()

    def _counter_names(self, pairs: list[int]) -> dict[int, str]:
        """The name of each (counter, track); tracks of one process that count the same thing are told apart."""
        tracks = self.timeline.tracks
        named: dict[int, tuple[str, int, int]] = {}
        for pair in pairs:
            name, track = divmod(pair, len(tracks) + 1)
            pid = self.layout.process_of[track - 1].pid if track else self.layout.counters.pid
            named[pair] = (self.timeline.strings[name], pid, track - 1)
        times = Counter((name, pid) for name, pid, _ in named.values())
        return {
            pair: f"{name} ({tracks[track].name})" if times[name, pid] > 1 and track >= 0 else name
            for pair, (name, pid, track) in named.items()
        }

    def _allocated(self) -> Iterator[bytes]:
        """Allocated bytes over time, one counter for each device and one for the host."""
        table = self.timeline.allocations
        for device in kernels.distinct(table.device).tolist():
            mine = np.flatnonzero((table.device == device) & (table.total_bytes >= 0))
            name = f"allocated bytes, device {device}" if device >= 0 else "allocated bytes, host"
            tail = b',"ph":"C","name":"%s","pid":%d,"tid":0,"args":{' % (
                name.encode(),
                self.layout.counters.pid,
            )
            for part in _batches(0, len(mine)):
                rows = mine[part]
                values = table.total_bytes[rows].astype(np.float64)
                yield self._values(table.time_ns[rows], np.full(len(rows), tail, object), values)

    def _values(self, time_ns: Int64, tails: Objects, values: npt.NDArray[np.float64]) -> bytes:
        bits = np.ascontiguousarray(values).view(np.int64)
        texts = look_up(bits, lambda code: b'"value":' + value_text(_number(code)))
        return join_records(self._points(time_ns), tails, (np.arange(len(texts)), texts))

    def _points(self, time_ns: Int64) -> Objects:
        return number_pieces([Number(OPEN + b'"ts":', time_ns - self.base_ns, is_time=True)])


def _batches(start: int, stop: int) -> Iterator[slice]:
    for first in range(start, stop, BATCH):
        yield slice(first, min(first + BATCH, stop))


def _label(kind: str, pid: int, tid: int, args: dict[str, Any]) -> bytes:
    return f'"ph":"M","name":"{kind}","pid":{pid},"tid":{tid},"args":{{'.encode() + members(args)


def _slice_tail(name: str, pid: int, tid: int, args: dict[str, Any]) -> bytes:
    return b',"ph":"X","name":%s,"cat":"%s","pid":%d,"tid":%d,"args":{%s' % (
        name_text(name), OUR_CATEGORY.encode(), pid, tid, members(args),
    )  # fmt: skip


def _number(bits: int) -> float | int:
    """The number behind a float's bits, whole ones as integers."""
    value = float(np.int64(bits).view(np.float64))
    return int(value) if value.is_integer() and abs(value) <= MAX_SAFE_INTEGER else value


def _finding_arguments(finding: Finding) -> dict[str, Any]:
    return {
        "lost_ns": finding.lost_ns,
        "recoverable_ns": finding.recoverable_ns,
        "confidence": finding.confidence,
        "severity": finding.severity,
        "phase": finding.phase,
        "python": finding.where.python,
        "operator": finding.where.operator,
        "kernel": finding.where.kernel,
        "detail": finding.detail,
        "advice": finding.advice,
    }


def _means(category: str, kind: Kind) -> bool:
    """Whether readers of Kineto traces take this category for that kind."""
    known = CATEGORY_KINDS.get(category.lower(), Kind.OTHER)
    return bool(category) and (known == kind or (known == Kind.KERNEL and kind == Kind.COLLECTIVE))


def _merged_causes(pieces: Pieces) -> tuple[Int64, Int64, Int64]:
    """Start, end and cause of idle time; pieces of one gap and cause that touch are one."""
    new = np.ones(len(pieces), bool)
    new[1:] = (
        (pieces.gap[1:] != pieces.gap[:-1])
        | (pieces.cause[1:] != pieces.cause[:-1])
        | (pieces.start_ns[1:] != pieces.end_ns[:-1])
    )
    first = np.flatnonzero(new)
    last = np.append(first[1:], len(pieces)) - 1
    return pieces.start_ns[first], pieces.end_ns[last], pieces.cause[first].astype(np.int64)


def _objects(pieces: list[bytes]) -> Objects:
    out = np.empty(len(pieces), object)
    out[:] = pieces
    return out


def _in_order(start_ns: Int64, dur_ns: Int64, tails: Objects) -> Iterator[_Drawn]:
    """The spans by start, longer ones first, as viewers need them to nest."""
    order = np.lexsort((-dur_ns, start_ns))
    for part in _batches(0, len(order)):
        rows = order[part]
        yield _Drawn(start_ns[rows], dur_ns[rows], tails[rows])


def _has(arguments: Arguments, key: str, count: int) -> Bool:
    """Which of `count` rows have an argument of that name."""
    out = np.zeros(count, bool)
    if key in arguments.keys:
        out[arguments.row[arguments.key == arguments.keys.index(key)]] = True
    return out


def _merged(stored: Arguments, extra: list[tuple[str, Rows, int, Int64]]) -> Arguments:
    """Stored arguments and more, each (key, rows, tag, values), after them."""
    extra = [e for e in extra if len(e[1])]
    if not extra:
        return stored
    keys = list(stored.keys)
    parts: list[tuple[Any, ...]] = [(stored.row, stored.key, stored.tag, stored.value)]
    for key, rows, tag, values in extra:
        if key not in keys:
            keys.append(key)
        count = len(rows)
        parts.append((rows, np.full(count, keys.index(key)), np.full(count, tag, np.uint8), values))
    row, key_code, tags, value = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.argsort(row, kind="stable")
    return Arguments(keys, row[order], key_code[order], tags[order], value[order])
