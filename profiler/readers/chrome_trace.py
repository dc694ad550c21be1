"""Kineto and Chrome trace-event files.

Reads:  complete (X), begin/end (B/E) and async (b/e) spans, instants, counters, flows and metadata, from
        torch.profiler on CUDA, HIP, XPU, MTIA and CPU (torch 1.4 to today), rocprof's Chrome dialect and plain
        Chrome traces; `[memory]` instants become allocation events.
Leaves: samples (P), object snapshots (N, O, D), clock syncs (c) and stack frame tables; each is counted in
        a note. Ascend `trace_view.json` arrays have a reader of their own.

What an event *is* follows from its category; where there is none, from the process it belongs to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels
from stallscope.profiler.builder import TimelineBuilder
from stallscope.profiler.ids import NO_ID, TEXT_ID_BASE, decode_id
from stallscope.profiler.kinds import DEVICE_WORK, Kind, is_collective
from stallscope.profiler.light import dataclass
from stallscope.profiler.links import is_device_work
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers.trace_events import RawEvents, tokenise
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import NO_TIME, Allocations, ArgStore, Int64, Timeline, Track

READER_VERSION = 1

CATEGORY_KINDS: dict[str, Kind] = {
    "cpu_op": Kind.OPERATOR,
    "operator": Kind.OPERATOR,
    "python_function": Kind.PYTHON,
    "fee": Kind.PYTHON,
    "user_annotation": Kind.ANNOTATION,
    "gpu_user_annotation": Kind.DEVICE_ANNOTATION,
    "cuda_profiler_range": Kind.DEVICE_ANNOTATION,
    "mtia_user_annotation": Kind.DEVICE_ANNOTATION,
    "kernel": Kind.KERNEL,
    "concurrent_kernel": Kind.KERNEL,
    "mtia_ccp_events": Kind.KERNEL,
    "gpu_memcpy": Kind.MEMCPY,
    "memcpy": Kind.MEMCPY,
    "gpu_memset": Kind.MEMSET,
    "memset": Kind.MEMSET,
    "cuda_runtime": Kind.RUNTIME,
    "cuda_driver": Kind.RUNTIME,
    "hip_runtime": Kind.RUNTIME,
    "hip_driver": Kind.RUNTIME,
    "xpu_runtime": Kind.RUNTIME,
    "xpu_driver": Kind.RUNTIME,
    "mtia_runtime": Kind.RUNTIME,
    "privateuse1_runtime": Kind.RUNTIME,
    "privateuse1_driver": Kind.RUNTIME,
    "glow_runtime": Kind.RUNTIME,
    "runtime": Kind.RUNTIME,
    "cuda_sync": Kind.DEVICE_WAIT,
    "hip_sync": Kind.DEVICE_WAIT,
    "overhead": Kind.OVERHEAD,
    "trace": Kind.OTHER,
    "collective": Kind.COLLECTIVE,
    "queue": Kind.QUEUE,
}
"""Lower-case category to kind; the producers differ only in case (torch 1.8 wrote "Kernel")."""

_DEVICE_PROCESS = re.compile(
    r"^\d+ GPU(\d+)$|^\d+ COPY$|^CUDA functions$|^/device:(?:GPU|TPU|CUSTOM):(\d+)|^GPU ?(\d+)$|^NPU ?(\d*)$"
)
_RUNTIME_NAME = re.compile(r"^(?:cuda|cu|hip|hsa|xpu|mtia)_?[A-Z_]|^(?:ur|ze)[A-Z]")
_WAIT_NAME = re.compile(r"(?:^|_)wait(?:$|_)", re.IGNORECASE)
_COPY_NAME = re.compile(
    r"memcpy|^copy(?:Buffer|Image|(?:Host|Device)To(?:Host|Device))|rocclr.*copy|dma", re.IGNORECASE
)
_RANK_STEP = 10**8
_RANK_LABEL = re.compile(r"^\[([^\]]{1,80})\] ?(\S.*)$")
_PROFILER_THREADS = ("__xpu_profiler__",)
_WINDOW_END = "Record Window End"
_IGNORED_PHASES = {
    "P": "samples",
    "N": "objects",
    "O": "objects",
    "D": "objects",
    "c": "clock syncs",
    "R": "marks",
}
_KNOWN_PHASES = "XBEbenSFiICstfM" + "".join(_IGNORED_PHASES)
_LAUNCH_ARROWS = ("ac2g", "async_gpu")
_IS_WORK = np.isin(np.arange(len(Kind)), [int(k) for k in DEVICE_WORK])
_STREAM, _MIRRORED, _PROFILER, _ASYNC, _GROUPS = range(1, 6)
"""What lanes rows stand on: of device work, of annotations seen from the device, of the profiler; of the host is 0."""
_BLOCK = 1 << 15
"""Events looked at at once where nothing but a sum or an extreme is kept."""
LONG_WORK_NS = 10 * 10**9
"""Device work up to 10 seconds is believed to be as long as it says."""
_MAX_DURATION_NS = 30 * 24 * 3600 * 10**9
"""Longer than 30 days is a broken record, not a span."""


def read(path: Path) -> Session:
    """Read one file. Raises InputError where it is no trace; a trace without events gives an empty session."""
    return interpret(tokenise(path), path.name)


def interpret(raw: RawEvents, source: str, origin_ns: int | None = None) -> Session:
    """Give tokenised events their meaning. `origin_ns` is that of the whole file, where `raw` is a part of it."""
    return _Interpreter(raw, source, origin_ns).session()


def first_of(firsts: dict[str, int]) -> int:
    """The origin of a file from the earliest start of each category: the first span that is the program's own."""
    own = {c: ts for c, ts in firsts.items() if CATEGORY_KINDS.get(c.lower()) != Kind.OVERHEAD}
    return min((own or firsts).values())


@dataclass
class _Lanes:
    """What metadata rows said about processes and threads, by encoded id."""

    process: dict[int, str]
    thread: dict[tuple[int, int], str]
    labels: dict[int, str]


class _Interpreter:
    def __init__(self, raw: RawEvents, source: str, origin_ns: int | None) -> None:
        self.raw = raw
        self.source = source
        self.origin_ns = origin_ns
        self.builder = TimelineBuilder(raw.strings, raw.args)
        self.notes: Notes = self.builder.notes
        self.notes.extend(raw.notes)
        self.texts = raw.strings.texts
        self.lanes = self._lanes()
        self.phases = _letter_counts(raw.ph)
        self.dur_ns = raw.dur_ns
        self.paired: list[npt.NDArray[np.intp]] = []
        self.told_by_id = np.zeros(0, np.int64)
        self.timeless = np.zeros(0, np.intp)
        self.ranks: dict[int, tuple[int, int | str]] = {}
        # broken times lie outside of these; set where there are any
        self.first_ns, self.last_ns = NO_TIME + 1, (1 << 63) - 1

    def session(self) -> Session:
        raw = self.raw
        kind = self._kinds()
        spans = self._spans(kind)
        if not spans.any():
            return self._nothing()
        # from here on everything is read in the order of the timeline's rows, so that no column is copied twice
        track = self._tracks(spans, kind)
        rows = kernels.order(track, raw.ts_ns, self.dur_ns)
        track_of_event, track, kind = track, kernels.mapped(track, rows), kernels.mapped(kind, rows)
        self.told_by_id = self._calls_that_tell(kind, rows)
        self._flows(rows)
        self._instants()
        self._counters()
        self._leftovers()
        base = _as_int(raw.meta.get("baseTimeNanoseconds"))
        base = base if abs(base) < 1 << 62 else 0  # no clock counts that far
        del spans
        # nobody reads the events' columns any more: what they held the rows' columns hold
        room = self.builder.room
        room.give(track_of_event)
        for done in ("thread", "id"):
            room.give(raw.let_go(done))
        start = raw.moved("ts_ns", rows, room)
        raw.dur_ns, self.dur_ns = self.dur_ns, raw.dur_ns[:0]
        dur = raw.moved("dur_ns", rows, room)
        name, category = self._names(raw.moved("name", rows, room)), raw.moved("cat", rows, room)
        raw.release()
        first = self._first_time(start, kind) if self.origin_ns is None else self.origin_ns
        self.builder.add_in_order(
            track=track,
            start_ns=start,
            dur_ns=dur,
            name=name,
            kind=kind,
            category=category,
            source=rows,
            correlations=partial(_correlations, raw.args),
            external_ids=partial(raw.args.ids_at, "External id"),
        )
        del start, dur, name, category, kind, track, rows  # nesting needs room
        timeline = self.builder.finish(origin_ns=first)
        timeline.origin_ns += base
        timeline.clock = "realtime" if timeline.origin_ns > 10**18 else "unknown"
        _note_links(timeline, self.notes)
        return Session(timeline, self._facts(timeline), self.notes)

    @staticmethod
    def _first_time(start: Int64, kind: npt.NDArray[np.int8]) -> int:
        """The start of the first span that is the program's own, if there is one."""
        own = kind != np.int8(Kind.OVERHEAD)
        return int(start.min() if own.all() or not own.any() else start[own].min())

    def _nothing(self) -> Session:
        """A readable file in which nothing happened: an empty timeline that says so."""
        self.notes.add(
            "no-events", "data_loss", "no events: the file is a trace, but nothing was recorded in its window"
        )
        self._leftovers()
        timeline = self.builder.finish()
        return Session(timeline, self._facts(timeline), self.notes)

    # -- what the lanes are ------------------------------------------------------------------------

    def _lanes(self) -> _Lanes:
        raw = self.raw
        lanes = _Lanes({}, {}, {})
        at = np.flatnonzero(raw.ph == ord("M"))
        of_process, of_thread, _ = kinds = [
            raw.strings.find(name) for name in ("process_name", "thread_name", "process_labels")
        ]
        at = at[kernels.among(raw.name[at], [code for code in kinds if code >= 0])]
        names, labels = (raw.args.values_at(key, at) for key in ("name", "labels"))
        told = [
            str(names[1][name] if name >= 0 else labels[1][label] if label >= 0 else "")
            for name, label in zip(names[0].tolist(), labels[0].tolist(), strict=True)
        ]
        columns = (c.tolist() for c in (raw.name[at], raw.pids(at), raw.tids(at)))
        for value, code, pid, tid in zip(told, *columns, strict=True):
            if code == of_process:
                lanes.process[pid] = value
            elif code == of_thread:
                lanes.thread[(pid, tid)] = value
            else:
                lanes.labels[pid] = value
        return lanes

    def _id(self, code: int) -> int | str:
        value = decode_id(int(code), self.texts)
        return -1 if value is None else value

    # -- kinds -------------------------------------------------------------------------------------

    def _kinds(self) -> npt.NDArray[np.int8]:
        """The kind of every event, shape (n,); meaningless for phases that are no spans."""
        raw = self.raw
        table = np.full(len(self.texts) + 1, -1, np.int8)
        for code in _used(raw.cat, len(self.texts)):
            table[code] = _kind_of_category(self.texts[code].lower())
        kind: npt.NDArray[np.int8] = kernels.mapped(
            table, raw.cat
        )  # -1, without a category, is the last place
        spans = self._of_phases("XBbS")
        untold = spans & ((kind < 0) | (kind == np.int8(Kind.OTHER)))
        if untold.any():
            for pid in kernels.distinct(raw.pids(untold)):
                name = self.lanes.process.get(int(pid), str(self._id(pid)))
                if _DEVICE_PROCESS.match(name):
                    kind[untold & (raw.threads.pid == pid)[raw.thread]] = Kind.KERNEL
        kind[kind < 0] = Kind.OTHER
        self._refine_by_name(kind, spans)
        for name in _PROFILER_THREADS:
            if (code := raw.strings.find(name)) >= 0:
                own = raw.threads.tid == TEXT_ID_BASE - code
                if own.any():
                    kind[own[raw.thread]] = Kind.OVERHEAD
        return kind

    def _refine_by_name(self, kind: npt.NDArray[np.int8], spans: npt.NDArray[np.bool_]) -> None:
        """Collectives, waits, copies and uncategorised runtime calls, told by their distinct names."""
        raw = self.raw
        at = np.flatnonzero(spans & ((kind == np.int8(Kind.KERNEL)) | (kind == np.int8(Kind.OTHER))))
        names, categories = raw.name.take(at), raw.cat.take(at)
        named = names >= 0
        is_kernel = named & (kind.take(at) == Kind.KERNEL)
        mtia = raw.strings.find("mtia_ccp_events")
        for to, tells, where in (
            (Kind.MEMCPY, _is_copy, is_kernel & (categories < 0)),
            (Kind.COLLECTIVE, is_collective, is_kernel),
            (Kind.DEVICE_WAIT, _is_wait, named & (categories == mtia) & (categories >= 0)),
            (Kind.RUNTIME, _is_runtime, named & ~is_kernel),
        ):
            rows, name = at[where], names[where]
            table = np.zeros(len(self.texts), bool)
            for code in _used(name, len(self.texts)):
                table[code] = tells(self.texts[code])
            kind[rows[table.take(name)]] = to

    def _names(self, names: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        unnamed = names < 0
        if unnamed.any():
            names[unnamed] = self.raw.strings.code("(unnamed)")
        return names

    # -- spans -------------------------------------------------------------------------------------

    def _spans(self, kind: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
        """Which events are spans, shape (n,); `self.dur_ns` has their lengths then."""
        spans = self._complete(kind)
        for events, dur in (self._begin_end(), self._async(kind)):
            if len(events) == 0:
                continue
            if self.dur_ns is self.raw.dur_ns:
                self.dur_ns = np.array(self.dur_ns)
            self.dur_ns[events] = dur
            spans[events] = True
            self.paired.append(events)
        self._after_window(spans, kind)
        return spans

    def _complete(self, kind: npt.NDArray[np.int8]) -> npt.NDArray[np.bool_]:
        """Spans with a length of their own: drop those without a time, keep those without a length as points, and
        say how many.
        """
        ts, dur = self.raw.ts_ns, self.raw.dur_ns
        spans = self._of_phases("X")
        if self._all_sound(spans):
            return spans
        timeless = spans & (ts == NO_TIME)
        far = self._far(spans & ~timeless)
        lost = self._lost_stamps(spans, kind, timeless | far)
        far &= ~lost
        gone = timeless | lost | far
        # negative and missing ones are huge without their sign
        bad_length = spans & (dur.view(np.uint64) > LONG_WORK_NS)
        bad_length &= ~gone
        if bad_length.any():
            long, bad_length = bad_length, bad_length & (dur.view(np.uint64) > _MAX_DURATION_NS)
            bad_length |= self._endless(spans & ~(gone | bad_length), long & ~bad_length, kind)
        odd = lost | bad_length | far
        self.timeless = np.flatnonzero(timeless)
        self.notes.add("device-record-without-timestamp", "data_loss",
                       "device records lost their time stamp in the profiler and were left out",
                       int(lost.sum()), self._first(lost))  # fmt: skip
        self.notes.add("time-out-of-range", "data_loss",
                       "spans lie over 30 days away from all others: their times are broken, and they were left out",
                       int(far.sum()), self._first(far))  # fmt: skip
        self.notes.add("invalid-duration", "data_loss",
                       "spans had a missing, negative or impossible duration; kept as points without length",
                       int(bad_length.sum()), self._first(bad_length))  # fmt: skip
        self.notes.add("invalid-times", "warning", "events had invalid or missing times", int(odd.sum()),
                       self._first(odd))  # fmt: skip
        if bad_length.any():
            self.dur_ns = np.where(bad_length, 0, dur)
        spans &= ~gone
        return spans

    def _all_sound(self, spans: npt.NDArray[np.bool_]) -> bool:
        """Whether times and lengths can be seen at a glance to be right: all of them are in one range behind 0, and no
        length is missing, negative or long.
        """
        low, high = (1 << 63) - 1, 1
        for at in range(0, len(spans), _BLOCK):
            ts, dur, mask = (c[at : at + _BLOCK] for c in (self.raw.ts_ns, self.raw.dur_ns, spans))
            if int(ts.min()) <= 0:  # what is no span often is
                ts = ts[mask]
            if len(ts):
                low, high = min(low, int(ts.min())), max(high, int(ts.max()))
            if (mask & (dur.view(np.uint64) > LONG_WORK_NS)).any():  # without its sign a negative one is long
                return False
        return low > 0 and high - low <= _MAX_DURATION_NS

    def _endless(
        self, known: npt.NDArray[np.bool_], long: npt.NDArray[np.bool_], kind: npt.NDArray[np.int8]
    ) -> npt.NDArray[np.bool_]:
        """Which long device records lie about their end: other work begins on their stream while they are said to
        run, and everything in the recording begins within a tenth of their length. A part does not know that.
        """
        ts, dur = self.raw.ts_ns, self.raw.dur_ns
        found: npt.NDArray[np.bool_] = np.zeros(len(ts), bool)
        long = long & _IS_WORK.take(kind)
        if self.origin_ns is not None or not long.any():
            return found
        low, high = _range(ts, known)
        work = np.flatnonzero(known & _IS_WORK.take(kind))
        lane = self.raw.thread[work]
        order = np.lexsort((ts[work], lane))
        work, lane = work[order], lane[order]
        over = (lane[1:] == lane[:-1]) & (ts[work[1:]] < ts[work[:-1]] + dur[work[:-1]])
        over &= long[work[:-1]] & (dur[work[:-1]] > 10 * (high - low))
        found[work[:-1][over]] = True
        return found

    def _far(self, known: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
        """Which of the spans with a time start over 30 days from the middle one: no recording is that long, their
        time is broken.
        """
        ts = self.raw.ts_ns
        none: npt.NDArray[np.bool_] = np.zeros(len(ts), bool)
        if not known.any():
            return none
        low, high = _range(ts, known)
        if high - low <= _MAX_DURATION_NS:
            return none
        times = ts[known]
        middle = int(np.partition(times, len(times) // 2)[len(times) // 2])
        self.first_ns, self.last_ns = middle - _MAX_DURATION_NS, middle + _MAX_DURATION_NS
        far: npt.NDArray[np.bool_] = known & ((ts < self.first_ns) | (ts > self.last_ns))
        return far

    def _lost_stamps(
        self, spans: npt.NDArray[np.bool_], kind: npt.NDArray[np.int8], odd: npt.NDArray[np.bool_]
    ) -> npt.NDArray[np.bool_]:
        """Which device records lost their time stamp (buffer overflow): without length, and at 0 or far off.

        Where other events are at 0 too, that is when the recording begins.
        """
        ts, dur = self.raw.ts_ns, self.raw.dur_ns
        at_zero: npt.NDArray[np.bool_] = spans & (ts == 0)
        if not (at_zero.any() or odd.any()):
            return at_zero
        empty_work = spans & (dur == 0) & _IS_WORK.take(kind)
        at_zero &= empty_work
        if at_zero.any():
            others = ts[spans & ~(at_zero | odd)]
            if len(others) == 0 or int(others.min()) <= 0:
                at_zero[:] = False
        lost: npt.NDArray[np.bool_] = at_zero | (empty_work & odd & (ts != NO_TIME))
        return lost

    def _first(self, mask: npt.NDArray[np.bool_]) -> str:
        return self._named(int(mask.argmax())) if mask.any() else ""

    def _named(self, at: int) -> str:
        name = self.texts[self.raw.name[at]] if self.raw.name[at] >= 0 else "(unnamed)"
        return f"event {at}: {name[:80]}"

    def _begin_end(self) -> tuple[npt.NDArray[np.intp], Int64]:
        """Pair B and E per thread: E closes the innermost open B; an open B runs to the end."""
        raw = self.raw
        edges = self._timed("BE")
        if len(edges) == 0:
            return _no_spans()
        edges = edges[np.argsort(raw.ts_ns[edges], kind="stable")]
        end_of_trace = self._last_time()
        stacks: dict[int, list[int]] = {}
        spans: list[tuple[int, int]] = []
        stray: list[int] = []
        for i in edges.tolist():
            stack = stacks.setdefault(int(raw.thread[i]), [])
            if raw.ph[i] == ord("B"):
                stack.append(i)
            elif stack:
                begin = stack.pop()
                spans.append((begin, int(raw.ts_ns[i] - raw.ts_ns[begin])))
            else:
                stray.append(i)
        left = [i for stack in stacks.values() for i in stack]
        spans.extend((i, max(end_of_trace - int(raw.ts_ns[i]), 0)) for i in left)
        self.notes.add(
            "stray-end", "warning", "end events without a begin were ignored", len(stray), _place(stray)
        )
        self.notes.add("span-not-closed", "warning", "spans were never closed; drawn to the end of the trace",
                       len(left), self._named(left[0]) if left else "")  # fmt: skip
        return _span_columns(spans)

    def _async(self, kind: npt.NDArray[np.int8]) -> tuple[npt.NDArray[np.intp], Int64]:
        """Pair async begin and end by (category, id); each id gets a lane of its own."""
        raw = self.raw
        starts = (ord("b"), ord("S"))
        edges = self._timed("bSeF")
        if len(edges) == 0:
            return _no_spans()
        edges = edges[np.argsort(raw.ts_ns[edges], kind="stable")]
        end_of_trace = self._last_time()
        open_: dict[tuple[int, int], list[int]] = {}
        spans: list[tuple[int, int]] = []
        stray: list[int] = []
        for i in edges.tolist():
            stack = open_.setdefault((int(raw.cat[i]), int(raw.id[i])), [])
            if raw.ph[i] in starts:
                stack.append(i)
            elif stack:
                begin = stack.pop()
                spans.append((begin, int(raw.ts_ns[i] - raw.ts_ns[begin])))
            else:
                stray.append(i)
        left = [i for stack in open_.values() for i in stack]
        spans.extend((i, max(end_of_trace - int(raw.ts_ns[i]), 0)) for i in left)
        self.notes.add(
            "stray-async-end", "warning", "async ends without a begin were ignored", len(stray), _place(stray)
        )
        self.notes.add("async-not-closed", "warning", "async spans were never closed; drawn to the end of the trace",
                       len(left), self._named(left[0]) if left else "")  # fmt: skip
        for begin, _ in spans:
            kind[begin] = Kind.OTHER
        return _span_columns(spans)

    def _timed(self, phases: str) -> npt.NDArray[np.intp]:
        """The events of some phases that have a time that can be true."""
        if not any(self.phases[ord(letter)] for letter in phases):
            return np.zeros(0, np.intp)
        at = np.flatnonzero(self._of_phases(phases))
        ts = self.raw.ts_ns[at]
        return at[(ts >= self.first_ns) & (ts <= self.last_ns)]

    def _of_phases(self, letters: str) -> npt.NDArray[np.bool_]:
        """Which events are of some phases, shape (n,)."""
        there = "".join(letter for letter in letters if self.phases[ord(letter)])
        return _phase_in(self.raw.ph, there) if there else np.zeros(len(self.raw), bool)

    def _last_time(self) -> int:
        raw = self.raw
        timed = (raw.ts_ns >= self.first_ns) & (raw.ts_ns <= self.last_ns)
        length = np.where((raw.dur_ns > 0) & (raw.dur_ns <= _MAX_DURATION_NS), raw.dur_ns, 0)
        return int((raw.ts_ns[timed] + length[timed]).max()) if timed.any() else 0

    def _after_window(self, spans: npt.NDArray[np.bool_], kind: npt.NDArray[np.int8]) -> None:
        """Runtime calls after the profiler closed its window are the profiler's own."""
        code = self.raw.strings.find(_WINDOW_END)
        if code < 0:
            return
        marks = self.raw.ts_ns[self.raw.name == code]
        marks = marks[marks != NO_TIME]
        if len(marks):
            calls = np.flatnonzero(spans & (kind == np.int8(Kind.RUNTIME)))
            kind[calls[self.raw.ts_ns.take(calls) >= int(marks.max())]] = Kind.OVERHEAD

    # -- tracks ------------------------------------------------------------------------------------

    def _tracks(self, spans: npt.NDArray[np.bool_], kind: npt.NDArray[np.int8]) -> npt.NDArray[np.int32]:
        """The track of every span: thread, stream, or a lane of labels. Shape (n,), -1 for what is no span."""
        raw = self.raw
        group = _lane_groups(kind)
        for events in self.paired:
            group[events[_phase_in(raw.ph[events], "bS")]] = _ASYNC
        # a number per lane: threads by what kind of lane they are, behind them streams and async ids
        label = np.empty(len(raw), np.int32)
        for low in range(0, len(raw), _BLOCK):
            some = slice(low, low + _BLOCK)
            lanes = np.multiply(raw.thread[some] + np.int32(1), np.int32(_GROUPS), out=label[some])
            lanes += group[some]
            np.putmask(lanes, ~spans[some], np.int32(-1))
        behind = (len(raw.threads) + 1) * _GROUPS
        streams = np.flatnonzero(spans & (group == _STREAM)).astype(np.int32)
        stream = raw.args.ids_at("stream", streams)
        device = raw.args.ints_at("device", streams, missing=NO_TIME)
        stream = np.where(stream != NO_ID, stream, raw.tids(streams))
        code, first_stream = kernels.group(raw.pids(streams), stream, device)
        label[streams] = behind + code
        if any(self.phases[ord(letter)] for letter in "bS"):
            ids = np.flatnonzero(spans & (group == _ASYNC))
            code, _ = kernels.group(raw.pids(ids), raw.id[ids])
            label[ids] = behind + len(first_stream) + code
        heads = self._heads(label)
        self.ranks = _merged_ranks({p: self._id(p) for p in kernels.distinct(raw.pids(heads)).tolist()})
        track_of = np.full(int(label.max()) + 2, -1, np.int32)  # -1 is the last place
        for row in heads.tolist():
            what, lane, number = int(group[row]), int(raw.tids(row)), NO_TIME
            if what == _STREAM:
                which = first_stream[label[row] - behind]
                lane, number = int(stream[which]), int(device[which])
            elif what == _ASYNC:
                lane = int(raw.id[row])
            track = self._track(what, int(raw.pids(row)), int(raw.tids(row)), lane, number)
            track_of[label[row]] = self.builder.add_track(track)
        return kernels.mapped(track_of, label, label)

    def _heads(self, label: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
        """The first event of each label as they come: complete spans, then paired ones. Tracks are numbered so."""
        if not self.paired:
            return _first_of_each(label)
        complete = np.where(self.raw.ph == ord("X"), label, -1)
        heads = [_first_of_each(complete), *(events[_first_of_each(label[events])] for events in self.paired)]
        joined = np.concatenate(heads)
        _, first = kernels.group(label[joined])
        return joined[first]

    def _track(self, group: int, pid: int, tid: int, lane: int, device: int) -> Track:
        rank, process = self.ranks.get(pid, (_rank(self.raw.meta), self._id(pid)))
        if not -1 <= device < 1 << 31:  # NO_TIME, or more than any machine has
            device = NO_TIME
        name = self.lanes.process.get(pid, "")
        thread_name = self.lanes.thread.get((pid, tid), "")
        if group == _STREAM:
            number = device if device != NO_TIME else self._device_number(process, name)
            stream = self._stream(self._id(lane), thread_name)
            label = thread_name or f"stream {stream}"
            return Track(label, "device", rank, process, name, device=number, stream=stream)
        thread = self._id(tid)
        label = thread_name or (f"thread {thread}" if thread != -1 else "thread")
        if group == _MIRRORED:
            label = f"annotations ({label})"
        elif group == _PROFILER:
            label = "profiler overhead"
        elif group == _ASYNC:
            label = f"async {self._id(lane)}"
        number = device if group == _MIRRORED and device != NO_TIME else -1
        role = "label" if group != 0 or process in ("Spans", "Traces") else "host"
        return Track(label, role, rank, process, name, thread, number)

    @staticmethod
    def _device_number(process: int | str, name: str) -> int:
        match = _DEVICE_PROCESS.match(name) or _DEVICE_PROCESS.match(str(process))
        if match:
            digits = next((g for g in match.groups() if g), "0")
            return int(digits)
        return process if isinstance(process, int) and 0 <= process < 4096 else 0

    @staticmethod
    def _stream(lane: int | str, thread_name: str) -> int | str:
        if isinstance(lane, str) and (digits := re.search(r"(\d+)\s*$", lane)):
            return int(digits[1])
        return lane

    # -- links and the rest ------------------------------------------------------------------------

    def _calls_that_tell(self, kind: npt.NDArray[np.int8], rows: npt.NDArray[np.int32]) -> Int64:
        """Correlation ids of runtime calls, if every device event carries such an id; else none."""
        work, calls = (
            rows.take(np.flatnonzero(m)) for m in (is_device_work(kind), kind == np.int8(Kind.RUNTIME))
        )
        if (_correlations(self.raw.args, work) == NO_ID).any():
            return np.zeros(0, np.int64)
        ids = _correlations(self.raw.args, calls)
        told: Int64 = ids[ids != NO_ID]
        return told

    def _flows(self, rows: npt.NDArray[np.int32]) -> None:
        """Arrows: start (s) to finish (f, t) of one id and category, each end bound to a span.

        `rows` are the events of the timeline's rows.
        """
        raw = self.raw
        arrows = self._wanted_flows()
        is_start = raw.ph[arrows] == ord("s")
        starts, ends = arrows[is_start], arrows[~is_start]
        if len(starts) == 0 or len(ends) == 0:
            self.notes.add(
                "flow-without-partner", "info", "flow ends without a partner", len(starts) + len(ends)
            )
            return
        start_key, end_key = (_hash(raw.id[at], raw.cat[at].astype(np.int64)) for at in (starts, ends))
        found = kernels.join(start_key, end_key)
        hit = found >= 0
        partner = starts[np.maximum(found, 0)]
        self.notes.add("flow-without-partner", "info", "flow ends without a partner",
                       int((~hit).sum()) + int(len(starts) - len(kernels.distinct(partner[hit]))))  # fmt: skip
        bound = self._bind(np.concatenate([partner[hit], ends[hit]]), rows)
        half = int(hit.sum())
        label = np.where(raw.cat[ends[hit]] >= 0, raw.cat[ends[hit]], raw.name[ends[hit]])
        self.builder.add_flows(bound[:half], bound[half:], label)

    def _wanted_flows(self) -> npt.NDArray[np.intp]:
        """The ends of arrows, less what is told already: launch arrows carry the correlation id of their call, and
        where that id does the linking they only repeat it.
        """
        raw = self.raw
        arrows = np.flatnonzero(self._of_phases("sft"))
        if len(self.told_by_id) == 0:
            return arrows
        kept = np.ones(len(arrows), bool)
        category = raw.cat[arrows]
        for name in _LAUNCH_ARROWS:
            if (code := raw.strings.find(name)) >= 0:
                at = np.flatnonzero(category == code)
                kept[at] = ~kernels.among(raw.id[arrows[at]], self.told_by_id)
        return arrows[kept]

    def _bind(self, points: npt.NDArray[Any], rows: npt.NDArray[np.int32]) -> Int64:
        """The span that starts exactly where a flow end stands on its lane, or -1.

        Flow rows write plain numbers where the lane's own rows write "stream 7", so lanes are compared
        by their trailing number.
        """
        if len(points) == 0:
            return np.zeros(0, np.int64)
        raw = self.raw
        numbers = np.argsort(rows)  # of the spans as they stand in the file
        events = rows[numbers].astype(np.intp)
        ts = raw.ts_ns[events]
        lane_of = _hash(raw.threads.pid, np.array([self._lane_number(t) for t in raw.threads.tid.tolist()]))
        lane, point_lane = lane_of[raw.thread[events]], lane_of[raw.thread[points]]
        found = kernels.join(_hash(lane, ts), _hash(point_lane, raw.ts_ns[points]))
        at = np.maximum(found, 0)
        exact = (found >= 0) & (ts[at] == raw.ts_ns[points])
        out = np.where(exact, numbers[at], -1)
        inside = self._enclosing(points[~exact], point_lane[~exact], lane, events, ts)
        out[~exact] = np.where(inside >= 0, numbers[np.maximum(inside, 0)], -1)
        return out

    def _enclosing(
        self,
        points: npt.NDArray[Any],
        point_lane: Int64,
        lane: Int64,
        events: npt.NDArray[np.intp],
        ts: Int64,
    ) -> npt.NDArray[np.intp]:
        """The span last begun on the point's lane before it, if it has not ended there; else -1.

        Some tools draw an arrow from inside of the call rather than from its start.
        """
        raw = self.raw
        out = np.full(len(points), -1, np.intp)
        for value in kernels.distinct(point_lane).tolist():
            mine = np.flatnonzero(lane == value)
            if len(mine) == 0:
                continue
            mine = mine[np.argsort(ts[mine], kind="stable")]
            asked = np.flatnonzero(point_lane == value)
            when = raw.ts_ns[points[asked]]
            at = np.searchsorted(ts[mine], when, side="right") - 1
            last = mine[np.maximum(at, 0)]
            length = np.maximum(raw.dur_ns[events[last]], 0)
            hit = (at >= 0) & (when <= ts[last] + length)
            out[asked[hit]] = last[hit]
        return out

    def _lane_number(self, code: int) -> int:
        value = self._id(code)
        if isinstance(value, str) and (digits := re.search(r"(\d{1,18})\s*$", value)):
            return int(digits[1])
        return code

    def _instants(self) -> None:
        raw = self.raw
        points = self._timed("iIn")
        if len(points) == 0:
            return
        is_memory = raw.name[points] == raw.strings.find("[memory]")
        self._allocations(points[is_memory])
        rest = points[~is_memory]
        names = np.where(raw.name[rest] >= 0, raw.name[rest], raw.strings.code("(unnamed)"))
        self.builder.add_marks(raw.ts_ns[rest], names, -1, rest)

    def _allocations(self, events: npt.NDArray[np.intp]) -> None:
        if len(events) == 0:
            return
        args = self.raw.args
        on_host = args.ints_at("Device Type", events, 0) == 0
        self.builder.add_allocations(
            Allocations(
                time_ns=self.raw.ts_ns[events],
                bytes=args.ints_at("Bytes", events, 0),
                total_bytes=args.ints_at("Total Allocated", events, -1),
                address=args.ints_at("Addr", events, 0),
                device=np.where(on_host, -1, args.ints_at("Device Id", events, 0)).astype(np.int32),
                track=np.full(len(events), -1, np.int32),
            )
        )

    def _counters(self) -> None:
        """One counter per (name, argument): a C event may carry several values."""
        raw = self.raw
        counters = self._timed("C")
        if len(counters) == 0:
            return
        n = len(raw)
        is_counter = np.zeros(n, bool)
        is_counter[counters] = True
        entry = np.repeat(is_counter, np.diff(raw.args.first, append=len(raw.args))[:n])
        for key_code in kernels.distinct(raw.args.key[entry]):
            key = raw.args.keys[int(key_code)]
            values = raw.args.floats(key, n)
            at = np.flatnonzero(is_counter & ~np.isnan(values))
            for code in kernels.distinct(raw.name[at]):
                mine = at[raw.name[at] == code]
                name = self.texts[code] if code >= 0 else "counter"
                label = name if key in ("value", name) else f"{name} {key}"
                self.builder.add_counters(raw.ts_ns[mine], raw.strings.code(label), -1, values[mine])

    def _leftovers(self) -> None:
        raw = self.raw
        counts = self.phases
        for phase, what in _IGNORED_PHASES.items():
            self.notes.add(f"ignored-{what.replace(' ', '-')}", "info", f"{what} ({phase} events) are not read",
                           counts[ord(phase)])  # fmt: skip
        other = {chr(i): n for i, n in enumerate(counts) if n and i and chr(i) not in _KNOWN_PHASES}
        self.notes.add("ignored-phases", "info", "events of other phases are not read", sum(other.values()),
                       ", ".join(f"{phase!r}: {n}" for phase, n in list(other.items())[:5]))  # fmt: skip
        skipped = counts[0] + len(self.timeless)
        if skipped == 0:
            return
        first = min([*np.flatnonzero(raw.ph == 0)[:1].tolist(), *self.timeless[:1].tolist()])
        text = "elements of the event list that are no events were skipped"
        if len(self.timeless):
            text += f"; {len(self.timeless)} of them are spans without a readable start"
        many = len(self.timeless) > max(10, len(raw) // 100)
        self.notes.add("skipped-elements", "data_loss" if many else "info", text, skipped, f"event {first}")

    # -- facts -------------------------------------------------------------------------------------

    def _facts(self, timeline: Timeline) -> dict[str, Any]:
        meta = self.raw.meta
        facts: dict[str, Any] = {
            "source": self.source,
            "format": "chrome-trace",
            "reader_version": READER_VERSION,
            "producer": self._producer(),
            "devices": _devices(meta),
            "source_events": len(self.raw) + self.raw.outside,
        }
        for key in ("schemaVersion", "record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules",
                    "cuda_runtime_version", "cuda_driver_version", "hip_runtime_version"):  # fmt: skip
            if isinstance(meta.get(key), int | float | str):
                facts[key] = meta[key]
        info = meta.get("distributedInfo")
        if isinstance(info, dict):
            facts["distributed"] = {k: info[k] for k in ("backend", "rank", "world_size") if k in info}
        if (rank := _rank(meta)) >= 0:
            facts["rank"] = rank
        return facts

    def _producer(self) -> str:
        meta = self.raw.meta
        if "deviceProperties" in meta or "schemaVersion" in meta or "baseTimeNanoseconds" in meta:
            return "torch.profiler (Kineto)"
        if "viztracer_metadata" in meta:
            return "VizTracer"
        return "trace events"


def _kind_of_category(name: str) -> Kind:
    known = CATEGORY_KINDS.get(name)
    if known is not None:
        return known
    # each new backend of torch names its calls after itself
    return Kind.RUNTIME if re.fullmatch(r"\w+_(?:runtime|driver)", name) else Kind.OTHER


def _is_copy(name: str) -> bool:
    return _COPY_NAME.search(name) is not None


def _is_wait(name: str) -> bool:
    return _WAIT_NAME.search(name) is not None


def _is_runtime(name: str) -> bool:
    return _RUNTIME_NAME.match(name) is not None


def _phase_in(ph: npt.NDArray[np.uint8], letters: str) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = ph == ord(letters[0])
    for letter in letters[1:]:
        found |= ph == ord(letter)
    return found


def _letter_counts(ph: npt.NDArray[np.uint8]) -> list[int]:
    """How many events there are of each phase, by the letter's number."""
    counts = np.zeros(256, np.int64)
    for low in range(0, len(ph), _BLOCK):
        some, left = ph[low : low + _BLOCK], min(_BLOCK, len(ph) - low)
        for letter in b"XsfiM":  # what nearly all of them are: comparing takes a fraction of counting
            if left:
                found = int(np.count_nonzero(some == letter))
                counts[letter] += found
                left -= found
        if left:
            rest = np.bincount(some, minlength=256)
            rest[list(b"XsfiM")] = 0
            counts += rest
    return counts.tolist()


def _range(values: Int64, mask: npt.NDArray[np.bool_]) -> tuple[int, int]:
    """The least and the largest value under a mask that is not empty; piece by piece, so that no copy is made."""
    low, high = (1 << 63) - 1, NO_TIME
    for at in range(0, len(values), 1 << 16):
        some = values[at : at + (1 << 16)][mask[at : at + (1 << 16)]]
        if len(some):
            low, high = min(low, int(some.min())), max(high, int(some.max()))
    return low, high


def _first_of_each(label: npt.NDArray[np.int32]) -> npt.NDArray[np.intp]:
    """Where each label >= 0 comes first, in that order; quick because neighbours mostly have the same one."""
    known = np.zeros(int(label.max(initial=-1)) + 2, bool)
    known[-1] = True  # -1 marks the extra last place
    found = [np.zeros(0, np.intp)]
    for low, at in _changes(label):
        some = label[low : low + _BLOCK]
        new = at[~known.take(some.take(at))]
        if len(new):
            heads = new[kernels.group(some.take(new))[1]]
            known[some.take(heads)] = True
            found.append(heads + low)
    return np.concatenate(found)


def _used(codes: npt.NDArray[np.int32], size: int) -> list[int]:
    """The distinct codes >= 0 that occur, ascending."""
    seen = np.zeros(size + 1, bool)
    for low, at in _changes(codes):
        seen[codes[low : low + _BLOCK].take(at)] = True  # code -1 marks the extra last place
    return np.flatnonzero(seen[:size]).tolist()


def _changes(codes: npt.NDArray[np.int32]) -> Iterator[tuple[int, npt.NDArray[np.intp]]]:
    """Per block of codes where it begins, and the places in it whose code is not the one before: many repeat that."""
    for low in range(0, len(codes), _BLOCK):
        some = codes[low : low + _BLOCK]
        new = np.ones(len(some), bool)
        np.not_equal(some[1:], some[:-1], out=new[1:])
        yield low, np.flatnonzero(new)


def _lane_groups(kind: npt.NDArray[np.int8]) -> npt.NDArray[np.int8]:
    """The group of lanes that rows of some kinds stand on, shape of `kind`."""
    group = is_device_work(kind).view(np.int8)
    group |= (kind == np.int8(Kind.DEVICE_WAIT)).view(np.int8)
    for of, number in ((Kind.DEVICE_ANNOTATION, _MIRRORED), (Kind.OVERHEAD, _PROFILER)):
        group += (kind == np.int8(of)).view(np.int8) * np.int8(number)
    return group


def _place(events: list[int]) -> str:
    return f"event {min(events)}" if events else ""


def _as_int(value: Any, otherwise: int = 0) -> int:
    if isinstance(value, bool) or value is None:
        return otherwise
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):  # the last for an infinity
        return otherwise


def _rank(meta: dict[str, Any]) -> int:
    info = meta.get("distributedInfo")
    rank = _as_int(info.get("rank"), -1) if isinstance(info, dict) else -1
    return rank if 0 <= rank < 1 << 31 else -1


def _merged_ranks(pids: dict[int, int | str]) -> dict[int, tuple[int, int | str]]:
    """Rank and own pid by encoded pid, where a tool merged the files of several ranks; else empty.

    TraceLens adds 10^8 for each rank, far beyond any pid of Linux; SGLang writes "[TP-0] 4100".
    """
    out: dict[int, tuple[int, int | str]] = {}
    labels = {p: match for p, value in pids.items() if (match := _RANK_LABEL.match(str(value)))}
    names = sorted({m[1] for m in labels.values()}, key=lambda name: (len(name), name))
    for pid, value in pids.items():
        if pid in labels:
            own = labels[pid][2]
            out[pid] = (names.index(labels[pid][1]), int(own) if own.isdigit() else own)
        elif isinstance(value, int) and 0 <= value < _RANK_STEP * 100_000:
            out[pid] = divmod(value, _RANK_STEP)
    return out if len({rank for rank, _ in out.values()}) > 1 else {}


def _devices(meta: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Device properties by device id (as text, so that they survive JSON)."""
    known = meta.get("deviceProperties")
    out: dict[str, dict[str, Any]] = {}
    if not isinstance(known, list):
        return out
    names = {"name": "name", "totalGlobalMem": "memory_bytes", "numSms": "cores", "computeMajor": "compute_major",
             "computeMinor": "compute_minor", "maxThreadsPerMultiprocessor": "threads_per_core",
             "warpSize": "warp_size"}  # fmt: skip
    for entry in known:
        if isinstance(entry, dict) and "id" in entry:
            out[str(entry["id"])] = {ours: entry[theirs] for theirs, ours in names.items() if theirs in entry}
    return out


def _correlations(args: ArgStore, events: npt.NDArray[np.int32]) -> Int64:
    ids = args.ids_at("correlation", events)
    for key in ("correlation_id", "Index"):
        if key in args.keys:
            ids = np.where(ids == NO_ID, args.ids_at(key, events), ids)
    return ids


def _hash(a: npt.NDArray[np.int64], b: npt.NDArray[np.int64]) -> Int64:
    """A 64-bit mix of two columns; equal pairs give equal values, others collide with odds of 2^-64."""
    with np.errstate(over="ignore"):
        x = a.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x ^= x >> np.uint64(29)
        x += b.astype(np.uint64)
        x *= np.uint64(0xBF58476D1CE4E5B9)
        x ^= x >> np.uint64(32)
        x *= np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(29)
    return x.view(np.int64)


def _no_spans() -> tuple[npt.NDArray[np.intp], Int64]:
    return np.zeros(0, np.intp), np.zeros(0, np.int64)


def _span_columns(spans: list[tuple[int, int]]) -> tuple[npt.NDArray[np.intp], Int64]:
    """Event numbers and durations."""
    if not spans:
        return _no_spans()
    table = np.array(spans, dtype=np.int64)
    return table[:, 0].astype(np.intp), table[:, 1]


def _inside_of_others(timeline: Timeline, work: npt.NDArray[np.intp]) -> tuple[int, str]:
    """How many records lie within one that began before them on their track, and the name of the first.

    Kernels of one launch are left out (a graph's branches are drawn on one lane), and so are kernels that only
    overlap the next one (programmatic dependent launch).
    """
    spans = timeline.spans
    end = spans.start_ns[work] + spans.dur_ns[work]
    track = spans.track[work].astype(np.int64)
    base = int(end.max()) + 1
    if base * (len(timeline.tracks) + 1) >= 1 << 62:
        return 0, ""
    reach = np.maximum.accumulate(end + track * base)  # tracks stand one after the other
    at = np.flatnonzero((end[1:] + track[1:] * base < reach[:-1]) & (spans.dur_ns[work[1:]] > 0)) + 1
    holder = np.searchsorted(reach, reach[at - 1])
    at = at[spans.ids_at("correlation", work[at]) != spans.ids_at("correlation", work[holder])]
    return len(at), timeline.name(int(work[at[0]])) if len(at) else ""


def _note_links(timeline: Timeline, notes: Notes) -> None:
    """Notes every reader of launches owes: nothing on a device, kernels without a launch, inversions."""
    work = timeline.device_work()
    if len(work) == 0:
        notes.add(
            "no-device-activity",
            "warning",
            "no device activity was recorded: the run was CPU only, the profiler was asked for CPU activities, "
            "it lacked permission for device counters (container, WSL), or nothing ran in the window",
        )
        return
    launch = timeline.spans.launch_row[work]
    unlinked = int((launch < 0).sum())
    notes.add("unlinked-device-events", "info" if unlinked * 20 < len(work) else "warning",
              f"of {len(work)} device events have no launch in the recording", unlinked)  # fmt: skip
    inside, first = _inside_of_others(timeline, work)
    notes.add("stream-overlap", "info" if inside * 100 < len(work) else "warning",
              "device records lie inside of others on their stream, which no stream can do: their times are doubtful, "
              "or several streams or programs share a lane", inside, first)  # fmt: skip
    linked = work[launch >= 0]
    delay = timeline.spans.start_ns[linked] - timeline.spans.start_ns[timeline.spans.launch_row[linked]]
    early = delay < 0
    if early.any():
        notes.add(
            "clock-inversion",
            "warning",
            f"of {len(linked)} device events start before their launch call, by at most {-int(delay.min())} ns: "
            "host and device clocks agree no better than that",
            int(early.sum()),
        )
