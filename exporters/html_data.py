"""The timeline of a page as bytes: which slices it draws, in which lanes, and how they are packed.

Rows are (track, depth); of a device stream, where nothing is nested, the lanes that keep overlapping
slices apart. All slices of one row follow each other by start, and never overlap as drawn:

    gap    start less the drawn end of the slice before it in the row (the row's first: its start)
    dur    drawn length; where the true one is longer, `clipped` says so
    name   index into the table of (name, kind) pairs

Each column is an unsigned integer of the fewest bytes that hold its largest value, stored plane by plane
(all lowest bytes first), which halves what zlib makes of it. Exact to the nanosecond. What is read only
after a click (time in children, launch links, ids, arguments) is a second blob that the page leaves packed.
"""

from __future__ import annotations

import itertools
import json
import os
import re
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Finding, Report
from stallscope.analyzers.idle import IDLE_CLASSES, Cause, Pieces
from stallscope.analyzers.run import Run
from stallscope.exporters.html_pack import deflated, extremes, pack_json, planes, steps, zigzag, zigzag_steps
from stallscope.exporters.html_text import clean
from stallscope.exporters.lanes import assign_disjoint_lanes
from stallscope.profiler import intervals, kernels
from stallscope.profiler.ids import NO_ID, decode_id
from stallscope.profiler.kinds import KIND_NAMES, Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import ArgStore, Timeline, Track

Int64 = npt.NDArray[np.int64]
Int32 = npt.NDArray[np.int32]
Rows = npt.NDArray[np.intp]

MAX_SLICES = 1_000_000
"""Slices a page draws: all of the device's first, then host slices by length. 1 M opens in about a second."""
_FIRST, _SHORT = 1 << 61, 1 << 30
"""What a slice of a device weighs more than any of the host: in 64 bits, and in 32."""
_BLOCK = 1 << 15
"""Rows looked at at once where few numbers are made of many."""
MAX_GAPS = 100_000
MAX_EVIDENCE = 2_000
"""Evidence spans of one finding that a page can step through."""
MAX_COUNTERS = 24
COUNTER_POINTS = 2_000
OVERVIEW_BINS = 512
FOLDED_LEVELS = 64
"""Levels of one track that are open at first; deeper ones unfold on a click."""
MAX_ARGUMENT_SETS = 20_000
LONGEST_ARGUMENT = 400

KIND_GAP, KIND_STEP, KIND_FINDING = 13, 14, 15
PAGE_KINDS = [KIND_NAMES[k] for k in Kind] + ["idle gap", "step", "finding"]

# Arguments worth a line when a slice is clicked. Ids have their own columns or mean nothing to a reader.
ARGUMENTS = (
    "Input Dims", "Input type", "Input Shapes", "Input Data Types", "Input Formats", "Output Shapes",
    "Output Data Types", "Concrete Inputs", "Input Strides", "grid", "block", "Block Dim", "Block Num", "Task Type",
    "registers per thread", "shared memory", "bytes", "Bytes", "kind", "est. achieved occupancy %",
    "blocks per SM", "warps per SM", "memory bandwidth (GB/s)", "flops", "Collective name", "In msg nelems",
    "Out msg nelems", "dtype", "Group size", "Process Group Name", "In split size", "Out split size",
    "context", "priority", "graph node id", "kernel", "kernel_name", "kernel_backend", "num_warps", "num_stages",
    "Call stack", "Fwd thread id", "Sequence number",
)  # fmt: skip


@dataclass
class PageTrack:
    """One track of the page: a strip, a stream, a thread. `rows` are (depth, first slice, slices)."""

    label: str
    kind: str
    track: int = -1
    title: str = ""
    rows: list[tuple[int, int]] = field(default_factory=list)
    folded: bool = False
    finding: int = -1

    def plain(self) -> dict[str, Any]:
        return {"label": clean(self.label, 120), "kind": self.kind, "track": self.track, "title": clean(self.title),
                "rows": self.rows, "folded": self.folded, "finding": self.finding}  # fmt: skip


@dataclass
class PageTimeline:
    """What `report.js` gets: packed blobs (base64 text) and what to say about what was left out."""

    layout: str
    slices: str
    details: str
    drawn: int
    total: int
    left_out: list[str]


@dataclass
class _Drawn:
    """Rows of one track that are drawn, and the index of each one's (name, kind) pair."""

    rows: Int32
    codes: Int32


@dataclass
class _Lanes:
    """Slices of one track in page order: by the row of the track, then start. `row` is the timeline row or -1."""

    start: Int64
    dur: Int64
    name: Int32
    row: Int32


def timeline_data(session: Session, report: Report, max_slices: int = MAX_SLICES) -> PageTimeline:
    """Pack a session's timeline for the page; at most `max_slices` spans, more are counted and left out."""
    return _Packer(session, report, max_slices).pack()


def _longest_rows(pieces: Pieces, first: Rows, behind: Rows) -> Int32:
    """The host row of the longest piece of each run [first, behind) of pieces, of equal ones the last. Shape of `first`."""
    if len(first) == 0:
        return np.zeros(0, np.int32)
    count = behind - first
    heads = np.cumsum(count) - count
    at = np.repeat(first - heads, count) + np.arange(int(count.sum()))
    length = pieces.lengths(at)
    longest = np.repeat(np.maximum.reduceat(length, heads), count) == length
    out = np.empty(len(first), np.int32)
    out[np.repeat(np.arange(len(first)), count)[longest]] = pieces.row[at[longest]]  # the last one stays
    return out


class _Packer:
    def __init__(self, session: Session, report: Report, max_slices: int) -> None:
        self.timeline: Timeline = session.timeline
        self.report = report
        self.run = report.run or Run(session)
        self.max_slices = max_slices
        self.left_out: list[str] = []
        self.groups: list[dict[str, Any]] = []
        self.parts: list[_Lanes] = []
        self.count = 0
        self.row_starts: list[int] = []
        self.trees: list[PageTrack] = []
        self.names: dict[tuple[str, int], int] = {}
        self.gap_parts: list[tuple[int, Int32, Int32, Int64]] = []

    # -- which slices --------------------------------------------------------------------------------

    def pack(self) -> PageTimeline:
        kept = self._kept()
        self.codes, self.name_table = self._name_codes(kept)
        by_track = self._tracks_of(kept)
        self._findings_group()
        self._steps_group()
        self._device_groups(by_track)
        self._process_groups(by_track)
        drawn = len(kept)
        slices = _concat(self.parts)
        self.parts.clear()
        by_track.clear()  # what is packed needs the room
        self.codes, kept = self.codes[:0].copy(), kept[:0].copy()
        base = int(slices.start.min()) if len(slices.start) else 0
        columns = _columns(slices, self.row_starts, base)
        layout = pack_json(self._layout(columns, slices, base))
        packed = deflated(columns.gap[0] + columns.dur[0] + columns.name[0])
        place = np.flatnonzero(slices.row >= 0).astype(np.int32)
        row = kernels.mapped(slices.row, place)
        children = self._children_left_out(slices, columns.drawn)
        del slices, columns
        child = _column("child", zigzag(kernels.mapped(children, place)))
        del children
        details = self._details(row, place, child)
        return PageTimeline(layout, packed, details, drawn, len(self.timeline), self.left_out)

    def _kept(self) -> Int32:
        """Rows that are drawn, in timeline order: device tracks first, then the longest."""
        spans = self.timeline.spans
        if len(spans) <= self.max_slices:
            return np.arange(len(spans), dtype=np.int32)
        dropped = len(spans) - self.max_slices
        # half as wide is enough unless what is left out is longer than a second
        first, weight = _SHORT, self._weights(_SHORT, np.int32)
        ranked = np.partition(weight, dropped)
        if int((ranked[: dropped + 1] & (_SHORT - 1)).max()) == _SHORT - 1:
            first, weight = _FIRST, self._weights(_FIRST, np.int64)
            ranked = np.partition(weight, dropped)
        lost, least = ranked[:dropped], ranked[dropped]
        keep = weight > least
        # of equal ones, as many of the first as there is room for
        keep[np.flatnonzero(weight == least)[: self.max_slices - int(np.count_nonzero(keep))]] = True
        longest, lost_device = int(lost.max()), 0
        if longest >= first:
            lost_device, longest = int(np.count_nonzero(lost >= first)), int((lost & (first - 1)).max())
        self.left_out.append(
            f"{len(spans) - self.max_slices:,} of {len(spans):,} slices are not drawn: "
            f"{dropped - lost_device:,} host slices and {lost_device:,} device slices, the shortest ones "
            f"(none longer than {longest:,} ns). Every number outside the timeline counts them; "
            "the Chrome trace export holds all of them."
        )
        return np.flatnonzero(keep).astype(np.int32)

    def _weights(self, first: int, kind: type[np.signedinteger[Any]]) -> npt.NDArray[Any]:
        """What is drawn first weighs more: the device's slices `first` more than their length, which counts below it."""
        spans = self.timeline.spans
        weight = np.empty(len(spans), kind)
        np.minimum(spans.dur_ns, first - 1, out=weight, casting="unsafe")
        for number, track in enumerate(self.timeline.tracks):
            if track.role == "device":
                weight[self.timeline.track_rows(number)] += first
        return weight

    def _name_codes(self, kept: Int32) -> tuple[Int32, list[tuple[str, int]]]:
        """For each drawn row the index of its (name, kind) pair, the most frequent pair first. Shape of `kept`."""
        spans = self.timeline.spans
        pair = kernels.mapped(spans.name, kept).astype(np.int64)
        pair *= 16
        pair += kernels.mapped(spans.kind, kept)
        distinct, inverse, counts = kernels.ranked(pair)
        order = np.argsort(-counts, kind="stable")
        rank = np.empty(len(order), np.int32)
        rank[order] = np.arange(len(order))
        codes = kernels.mapped(rank, inverse)
        texts = self.timeline.strings
        table = [(clean(texts[int(distinct[i]) // 16]), int(distinct[i]) % 16) for i in order]
        self.names = {}
        return codes, table

    def _extra_name(self, text: str, kind: int) -> int:
        """The index of a name the page adds itself (gap classes, steps, findings)."""
        key = (clean(text), kind)
        if key not in self.names:
            self.names[key] = len(self.name_table)
            self.name_table.append(key)
        return self.names[key]

    def _tracks_of(self, kept: Int32) -> dict[int, _Drawn]:
        track = kernels.mapped(self.timeline.spans.track, kept)
        cuts = np.searchsorted(track, np.arange(len(self.timeline.tracks) + 1, dtype=track.dtype)).tolist()
        return {
            t: _Drawn(kept[a:b], self.codes[a:b])
            for t, (a, b) in enumerate(itertools.pairwise(cuts))
            if b > a
        }

    # -- groups --------------------------------------------------------------------------------------

    def _group(self, label: str, kind: str, tracks: list[PageTrack], device: int = -1) -> None:
        if tracks:
            self.groups.append(
                {
                    "label": clean(label, 160),
                    "kind": kind,
                    "device": device,
                    "tracks": [t.plain() for t in tracks],
                }
            )

    def _add(self, track: PageTrack, part: _Lanes, level: npt.NDArray[Any]) -> PageTrack:
        """Append slices to the page and note their rows on the track: one for each level, as many as have it."""
        first = self.count
        for count in np.bincount(level).tolist():
            track.rows.append((first, count))
            if count:
                self.row_starts.append(first)
            first += count
        self.count = first
        self.parts.append(part)
        return track

    def _span_track(self, number: int, drawn: _Drawn) -> PageTrack:
        source, rows = self.timeline.tracks[number], drawn.rows
        spans = self.timeline.spans
        if source.role == "device":
            start = kernels.mapped(spans.start_ns, rows)
            level = assign_disjoint_lanes(start, start + kernels.mapped(spans.dur_ns, rows))
        else:
            level = kernels.mapped(spans.depth, rows)
        order = _by_level(level)
        rows = rows[order]
        start, dur = kernels.mapped(spans.start_ns, rows), kernels.mapped(spans.dur_ns, rows)
        part = _Lanes(start, dur, drawn.codes[order], rows)
        kind = {"device": "stream", "host": "thread"}.get(source.role, "label")
        track = PageTrack(
            source.name.replace(" )", ")").strip(),
            kind,
            number,
            title=_track_title(source),
            folded=kind == "label",
        )
        if source.role != "device":
            self.trees.append(track)
        return self._add(track, part, level)

    def _strip(self, label: str, kind: str, start: Int64, end: Int64, names: Int32, title: str) -> PageTrack:
        level = assign_disjoint_lanes(start, end)
        order = _by_level(level)
        none = np.full(len(start), -1, np.int32)
        part = _Lanes(start[order], (end - start)[order], names[order], none)
        return self._add(PageTrack(label, kind, title=title), part, level)

    def _findings_group(self) -> None:
        tracks = []
        for number, finding in enumerate(self.report.findings):
            shown = evidence_shown(finding)
            if not shown:
                continue
            start = np.array([finding.evidence[i].start_ns for i in shown], np.int64)
            end = np.maximum([finding.evidence[i].end_ns for i in shown], start)
            order = np.argsort(start, kind="stable")
            name = self._extra_name(f"{finding.code} {finding.title}", KIND_FINDING)
            codes = np.full(len(start), name, np.int32)
            track = self._strip(finding.code, "finding", start[order], end[order], codes, finding.title)
            track.finding = number
            tracks.append(track)
        self._group("Findings", "findings", tracks)

    def _steps_group(self) -> None:
        steps = sorted(self.report.steps, key=lambda s: s.start_ns)
        if not steps:
            return
        start = np.array([s.start_ns for s in steps], np.int64)
        end = start + np.array([s.dur_ns for s in steps], np.int64)
        names = np.array([self._extra_name(s.name, KIND_STEP) for s in steps], np.int32)
        self._group(
            "Steps", "steps", [self._strip("steps", "step", start, end, names, "steps on the host clock")]
        )

    def _device_groups(self, by_track: dict[int, _Drawn]) -> None:
        tracks = self.timeline.tracks
        devices: dict[tuple[int, int], list[int]] = {}
        for number in by_track:
            if tracks[number].role == "device":
                devices.setdefault((tracks[number].rank, tracks[number].device), []).append(number)
        many_ranks = len({rank for rank, _ in devices}) > 1
        for rank, device in sorted(devices):
            mine = devices[rank, device]
            key = max(device, 0) + (1000 * max(rank, 0) if many_ranks else 0)
            name = self.run.device_name(key)
            homes = {(tracks[n].rank, tracks[n].process) for n in mine}
            labels = [
                n for n in by_track
                if tracks[n].role == "label" and (tracks[n].rank, tracks[n].process) in homes
                and (tracks[n].device in (-1, device))
            ]  # fmt: skip
            page = self._gap_strips(key)
            page += [
                self._span_track(n, by_track.pop(n))
                for n in sorted(mine, key=lambda n: _natural(tracks[n].stream))
            ]
            page += [self._span_track(n, by_track.pop(n)) for n in labels]
            label = (
                f"Rank {max(rank, 0)} device {max(device, 0)}" if many_ranks else f"Device {max(device, 0)}"
            )
            self._group(label + (f" · {name}" if name else ""), "device", page, key)

    def _gap_strips(self, key: int) -> list[PageTrack]:
        """The idle time of one device, cut where its cause changes."""
        account = self.run.idle.get(key)
        if account is None or len(account.pieces) == 0:
            return []
        gaps, pieces = account.view.gaps, account.pieces
        # neighbours with one cause become one slice; its host row is that of the longest of them
        new = np.ones(len(pieces), bool)
        np.not_equal(pieces.gap[1:], pieces.gap[:-1], out=new[1:])
        new[1:] |= pieces.cause[1:] != pieces.cause[:-1]
        first = np.flatnonzero(new)
        del new
        behind = np.append(first[1:], len(pieces))
        start, end = pieces.start_ns[first], pieces.end_ns[behind - 1]
        chosen = np.arange(len(first))
        if len(first) > MAX_GAPS:
            chosen = np.sort(np.argpartition(end - start, len(first) - MAX_GAPS)[-MAX_GAPS:])
            self.left_out.append(
                f"{self.run.rank_labels.get(key, f'device {key}')}: only the longest {MAX_GAPS:,} of {len(first):,} pieces of idle time are drawn."
            )
        first, behind = first[chosen], behind[chosen]
        cause = pieces.cause[first]
        names = np.full(len(Cause), -1, np.int32)
        for number in kernels.distinct(cause).tolist():
            names[number] = self._extra_name(Cause(number).key, KIND_GAP)
        at = self.count
        track = self._strip("idle", "gap", start[chosen], end[chosen], names[cause], "device idle, by cause")
        gap = pieces.gap[first]
        row = _longest_rows(pieces, first, behind)
        self.gap_parts.append((at, gaps.ended_by[gap], row, gaps.dur_ns[gap]))
        return [track]

    def _process_groups(self, by_track: dict[int, _Drawn]) -> None:
        tracks, spans = self.timeline.tracks, self.timeline.spans
        linked = spans.launch_row[spans.launch_row >= 0]
        launches = np.bincount(spans.track[linked], minlength=len(tracks))
        homes: dict[tuple[int, str], list[int]] = {}
        for number in by_track:
            homes.setdefault((tracks[number].rank, str(tracks[number].process)), []).append(number)

        def weight(number: int) -> tuple[bool, int, int]:
            rows = by_track[number].rows
            top = rows[spans.depth[rows] == 0]
            return tracks[number].role == "label", -int(launches[number]), -int(spans.dur_ns[top].sum())

        weights = {number: weight(number) for number in by_track}
        ordered = sorted(homes.items(), key=lambda item: min(weights[n] for n in item[1]))
        many_ranks = len({rank for rank, _ in homes}) > 1
        for (rank, _), numbers in ordered:
            numbers = sorted(numbers, key=weights.__getitem__)
            label = _process_label(tracks[numbers[0]]) + (f" · rank {rank}" if many_ranks else "")
            self._group(label, "process", [self._span_track(n, by_track[n]) for n in numbers])

    # -- what goes with it ----------------------------------------------------------------------------

    def _layout(self, columns: _Columns, slices: _Lanes, base: int) -> dict[str, Any]:
        start, end = self._range()
        return {
            "version": 1,
            "start": start,
            "end": end,
            "base": base,
            "slices": len(slices.start),
            "widths": [columns.gap[1], columns.dur[1], columns.name[1]],
            "clipped": columns.clipped,
            "kinds": PAGE_KINDS,
            "names": [n for n, _ in self.name_table],
            "nameKinds": [k for _, k in self.name_table],
            "classText": IDLE_CLASSES,
            "groups": self.groups,
            "counters": _counters(self.timeline) + _lanes_over_time(self.report),
            "overview": self._overview(start, end),
            "folded": FOLDED_LEVELS,
            "evidence": [evidence_rows(f) for f in self.report.findings],
        }

    def _range(self) -> tuple[int, int]:
        spans = self.timeline.spans
        start = int(spans.start_ns.min()) if len(spans) else 0
        blocks = (slice(low, low + _BLOCK) for low in range(0, len(spans), _BLOCK))
        end = max((int(spans.end_at(some).max()) for some in blocks), default=0)
        for times in (self.timeline.counters.time_ns, self.timeline.allocations.time_ns):
            if len(times):
                start, end = min(start, int(times.min())), max(end, int(times.max()))
        return start, max(end, start + 1)

    def _overview(self, start: int, end: int) -> list[dict[str, Any]]:
        """Busy permille of each device, or of the host, in equal bins of the whole range."""
        edges: Int64 = np.linspace(start, end, OVERVIEW_BINS + 1).astype(np.int64)
        labels = self.run.rank_labels
        lines = [(labels.get(n, f"device {n}"), view.busy) for n, view in list(self.run.devices.items())[:8]]
        if not lines:
            spans = self.timeline.spans
            top = np.flatnonzero(spans.depth == 0)
            host = np.array([t.role == "host" for t in self.timeline.tracks] or [False])
            top = top[host[spans.track[top]]]
            lines = [("host", intervals.union(spans.start_ns[top], spans.end_at(top)))]
        width = np.maximum(np.diff(edges), 1)
        return [
            {
                "label": label,
                "permille": (1000 * intervals.covered(busy, edges[:-1], edges[1:]) // width).tolist(),
            }
            for label, busy in lines
        ]

    def _children_left_out(self, slices: _Lanes, drawn: Int64) -> Int64:
        """Time in children of each slice of a thread, less the drawn time, in its next level, of the slices that start
        inside of it: the page adds that up itself. 0 but for clipped and left-out slices. Shape of `slices`.
        """
        out = np.zeros(len(slices.start), np.int64)
        for track in self.trees:
            first, many = track.rows[0][0], sum(count for _, count in track.rows)
            mine = slice(first, first + many)
            out[mine] = slices.dur[mine] - kernels.mapped(self.timeline.spans.self_ns, slices.row[mine])
        total = np.append(0, np.cumsum(drawn))
        for track in self.trees:
            for (first, many), (below, more) in itertools.pairwise(track.rows):
                if many == 0 or more == 0:
                    continue
                start, inner = slices.start[first : first + many], slices.start[below : below + more]
                end = start + drawn[first : first + many]
                low = np.searchsorted(inner, start)
                # nearly always all that start before the next slice of the row also start before the end of this one
                high = np.append(low[1:], more)
                late = np.flatnonzero((high > low) & (inner.take(high - 1) >= end))
                high[late] = np.searchsorted(inner, end[late])
                before = total[below : below + more + 1]
                out[first : first + many] -= before.take(high) - before.take(low)
        return out

    def _details(self, row: Int32, place: Int32, child: _Column) -> str:
        """The second blob: a JSON head, a zero byte, then its byte planes one after the other. `row` and `place` tell of
        each slice that is a span its row and the number of the slice."""
        spans = self.timeline.spans
        at = np.full(len(spans), -1, np.int32)
        at[row] = place
        launch = kernels.mapped(spans.launch_row, row)
        linked = np.flatnonzero(launch >= 0)
        columns = [child, _column("linked", steps(place[linked]))]
        columns.append(_column("launch", zigzag_steps(at[launch[linked]])))
        gaps: list[_Column] = []
        for _, ended_by, host_row, gap_ns in self.gap_parts:
            gaps.append(_column("endedBy", zigzag_steps(at[ended_by])))
            gaps.append(_column("hostRow", zigzag_steps(np.where(host_row >= 0, at[host_row], -1))))
            gaps.append(_column("gap", gap_ns))
        del at, launch, linked  # ids and arguments need the room
        head: dict[str, Any] = {"columns": []}
        for name, column in (("correlation", "correlation"), ("external", "external_id")):
            numbers, head[name + "Text"] = self._ids(spans.ids_at(column, row))
            columns.append(_column(name, numbers))
        codes, head["args"] = self._arguments(row)
        columns += [_column("args", codes), *gaps]
        head["columns"] = [about for about, _ in columns]
        head["gaps"] = [[first, len(gap_ns)] for first, *_, gap_ns in self.gap_parts]
        text = json.dumps(head, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
        return deflated(text.encode("ascii") + b"\0" + b"".join([raw for _, raw in columns]))

    def _ids(self, ids: Int64) -> tuple[Int64, dict[str, str]]:
        """Differences of the ids (0: the id before it), and as text those that JavaScript cannot hold."""
        odd = np.flatnonzero((ids >= 1 << 52) | ((ids <= -1 << 52) & (ids != NO_ID)))
        texts = self.timeline.strings.texts
        text = {
            str(i): clean(str(decode_id(int(ids[i]), texts)), 80) for i in odd.tolist()[:MAX_ARGUMENT_SETS]
        }
        ids[odd] = 0
        ids *= ids != NO_ID  # producers use 0 for "none" as well
        return zigzag_steps(ids), text

    def _arguments(self, row: Int32) -> tuple[Int32, dict[str, Any]]:
        """For each slice the index of its set of arguments; a set is pairs of indices into keys and values."""
        known = [k for k in ARGUMENTS if k in self.timeline.args.keys]
        alike, examples = _alike(self.timeline.args, known, kernels.mapped(self.timeline.spans.source, row))
        store, asked = _of_events(self.timeline.args, known, examples)
        events = int(asked.max(initial=-1)) + 1
        # per set the one it is made of, and the key and value that it has beside that
        chain: list[tuple[int, int, int]] = [(0, 0, 0)]
        keys: list[dict[str, Any]] = []
        skipped: list[str] = []
        codes, count = np.zeros(events, np.int32), np.array([events], np.int64)  # events by their set
        for key in known:
            having, mine, values = store.coded(key)
            if len(values) == 0:
                continue
            both = codes[having].astype(np.int64) * len(values) + mine
            distinct, inverse, many = kernels.ranked(both)
            before, value = distinct // len(values), distinct % len(values)
            left = count - np.bincount(before, many, len(count)).astype(np.int64)
            if np.count_nonzero(left) + len(distinct) > MAX_ARGUMENT_SETS:
                skipped.append(key)
                continue
            used = kernels.distinct(value)
            place = np.searchsorted(used, value)
            codes[having] = len(chain) + inverse
            count = np.concatenate([left, many])
            chain += zip(before.tolist(), itertools.repeat(len(keys)), place.tolist())
            keys.append({"key": clean(key, 60), "values": [_argument(values[v]) for v in used.tolist()]})
        # a slice without any of them has the empty set, which is the first; what -1 finds stands behind all
        kept = kernels.distinct(np.append(np.flatnonzero(count), 0))
        table = np.searchsorted(kept, np.append(codes, 0)).astype(np.int32)
        found = kernels.mapped(table.take(asked), alike)
        return found, {"keys": keys, "sets": [_set(chain, k) for k in kept.tolist()], "skipped": skipped}


_Column = tuple[list[Any], bytes]
"""What the head of the details says of a column, and its byte planes."""


def _column(name: str, values: npt.NDArray[Any]) -> _Column:
    raw, width = planes(values)
    return [name, len(values), width], raw


def _set(chain: list[tuple[int, int, int]], at: int) -> list[int]:
    """The keys and values of a set, in pairs, in the order in which they were added."""
    pairs: list[int] = []
    while at:
        at, key, value = chain[at]
        pairs += (value, key)
    return pairs[::-1]


_MIX = np.frombuffer(os.urandom(24), np.uint64) | np.uint64(1)
"""Odd numbers, drawn per run: nobody can write arguments that are taken for others. Nothing that is shown depends on
which they are."""


def _alike(store: ArgStore, keys: list[str], sources: Int32) -> tuple[Int32, Int32]:
    """A number for each source event, the same only where they have the same arguments of some keys, shape of
    `sources`; and of each number the first event that has it, at the end -1 for events without any arguments.

    Thousands of events share each set of arguments, so that what a set is need be found out for its first event only.
    Sets are told apart by a sum of 64 bits; two different ones have the same with odds of 2^-64.
    """
    wanted_key = _key_mask(store, keys)
    wanted = np.zeros(max(int(sources.max(initial=-1)) + 1, len(store.first) - 1), bool)
    wanted[sources] = True
    events = np.flatnonzero(wanted[: len(store.first) - 1])
    total = np.zeros(len(events), np.int64)
    for low in range(0, len(events), _BLOCK):  # a store may hold a hundred million
        some = slice(low, low + _BLOCK)
        total[some] = _sums_of_arguments(store, wanted_key, events[some])
    code, heads = kernels.group(total)
    number = np.full(len(wanted), len(heads), np.int32)
    number[events] = code
    return kernels.mapped(number, sources), np.append(events[heads], -1).astype(np.int32)


def _key_mask(store: ArgStore, keys: list[str]) -> npt.NDArray[np.bool_]:
    """Which key codes stand for some keys."""
    mask = np.zeros(1 << 16, bool)
    mask[[store.keys.index(k) for k in keys]] = True
    return mask


def _sums_of_arguments(store: ArgStore, wanted_key: npt.NDArray[np.bool_], events: Rows) -> Int64:
    """For some events the sum of a mix of each wanted argument. Shape of `events`."""
    at, heads, many = _places_of(store, events)
    if len(at) == 0:
        return many
    key = store.key.take(at)
    hit = np.flatnonzero(wanted_key.take(key))
    here = at.take(hit)
    tag, value = store.entries(here)
    mix = value.view(np.uint64)
    mix += key.take(hit) * _MIX[0]
    mix += tag * _MIX[1]
    mix *= _MIX[1]
    mix ^= mix >> np.uint64(32)
    mix *= _MIX[2]
    mixed = np.zeros(len(at), np.uint64)
    mixed[hit] = mix
    total = np.add.reduceat(mixed, np.minimum(heads, len(at) - 1)).view(np.int64)
    total[many == 0] = 0
    return total


def _places_of(store: ArgStore, events: Rows) -> tuple[Rows, Rows, Rows]:
    """The places of all arguments of some events one after the other, where those of each event begin, and how many."""
    first = store.first.take(events).astype(np.intp)
    many = store.first.take(events + 1) - first
    heads = np.cumsum(many) - many
    at = np.repeat(first - heads, many)
    at += np.arange(len(at))
    return at, heads, many


def _of_events(store: ArgStore, keys: list[str], sources: Int32) -> tuple[ArgStore, Int32]:
    """The arguments of some keys and some source events, which are numbered anew; and for each source its new number,
    -1 for one without any."""
    wanted_key = _key_mask(store, keys)
    known = kernels.distinct(sources)
    known = known[(known >= 0) & (known < len(store.first) - 1)]
    found, events = [np.zeros(0, np.intp)], [np.zeros(0, np.int32)]
    for low in range(0, len(known), 1 << 16):  # a store may hold a hundred million
        some = known[low : low + (1 << 16)]
        at, _, many = _places_of(store, some)
        keep = np.flatnonzero(wanted_key.take(store.key.take(at)))
        found.append(at[keep])
        events.append(np.repeat(some, many)[keep])
    at, event = np.concatenate(found), np.concatenate(events)
    new = np.append(True, event[1:] != event[:-1])[: len(event)]
    having = event[new]
    asked = np.full(len(sources), -1, np.int32)
    place = np.searchsorted(having, sources)
    has = np.append(having, -2).take(place) == sources
    asked[has] = place[has]
    number = np.cumsum(new, dtype=np.int32) - np.int32(1)
    return store.part(at, number), asked


_JSON = json.JSONEncoder(ensure_ascii=False)


def _argument(value: Any) -> str:
    text = value if isinstance(value, str) else _JSON.encode(value)
    return clean(text, LONGEST_ARGUMENT)


@dataclass
class _Columns:
    """Byte planes and their widths; `clipped` pairs of (slice, true duration)."""

    gap: tuple[bytes, int]
    dur: tuple[bytes, int]
    name: tuple[bytes, int]
    clipped: list[list[int]]
    drawn: Int64


def _columns(slices: _Lanes, row_starts: list[int], base: int) -> _Columns:
    """Byte planes of the drawn slices. Where a slice reaches into the next of its row (rounding, or a
    child that outlives its parent) it is drawn up to there, and `clipped` keeps its true length."""
    start, dur = slices.start, slices.dur
    if len(start) == 0:
        return _Columns((b"", 1), (b"", 1), (b"", 1), [], dur)
    heads = np.array(row_starts, np.intp)
    gap = np.empty(len(start), np.int64)
    np.subtract(start[1:], start[:-1], out=gap[:-1])  # at first how far it is to the next
    gap[heads - 1] = _FIRST  # behind the last slice of a row, and of all of them, nothing follows
    drawn = np.minimum(dur, gap)
    gap[1:] = gap[:-1] - drawn[:-1]
    gap[heads] = start[heads] - base
    clipped = np.flatnonzero(drawn != dur)
    pairs = [[int(i), int(dur[i])] for i in clipped.tolist()]
    return _Columns(planes(gap), planes(drawn), planes(slices.name), pairs, drawn)


def _concat(parts: list[_Lanes]) -> _Lanes:
    columns = {"start": np.int64, "dur": np.int64, "name": np.int32, "row": np.int32}
    return _Lanes(
        **{n: np.concatenate([np.zeros(0, t), *(getattr(p, n) for p in parts)]) for n, t in columns.items()}
    )


def _by_level(level: npt.NDArray[Any]) -> Rows:
    """A stable order by level; 16-bit keys sort in linear time."""
    if len(level) and int(level.max()) < 1 << 16:
        return np.argsort(level.astype(np.uint16), kind="stable")
    return np.argsort(level, kind="stable")


def evidence_shown(finding: Finding) -> list[int]:
    """Which evidence spans of a finding the page draws, by start: all, or the longest ones."""
    spans = finding.evidence
    longest = sorted(range(len(spans)), key=lambda i: spans[i].start_ns - spans[i].end_ns)[:MAX_EVIDENCE]
    return sorted(longest, key=lambda i: (spans[i].start_ns, spans[i].end_ns))


def evidence_rows(finding: Finding) -> dict[str, Any]:
    """Evidence as the page steps through it: `rows` of [track, start, end, label], how many there are in
    all, and which one to show first (the longest)."""
    shown = [finding.evidence[i] for i in evidence_shown(finding)]
    lengths = [e.end_ns - e.start_ns for e in shown]
    return {
        "rows": [[e.track, e.start_ns, max(e.end_ns, e.start_ns), clean(e.label, 200)] for e in shown],
        "total": len(finding.evidence),
        "first": lengths.index(max(lengths)) if lengths else -1,
    }


def _counters(timeline: Timeline) -> list[dict[str, Any]]:
    """Counter lines of the page: at most COUNTER_POINTS each, the extremes of every bucket kept."""
    counters, memory = timeline.counters, timeline.allocations
    lines: list[dict[str, Any]] = []
    _, first = kernels.group(counters.track, counters.name)
    pairs = np.stack([counters.track[first], counters.name[first]], axis=1)
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    for track, name in pairs.tolist()[:MAX_COUNTERS]:
        mine = (counters.track == track) & (counters.name == name)
        label, unit = _label_and_unit(timeline.strings[name])
        lines.append(_line(label, counters.time_ns[mine], counters.value[mine], unit, track))
    for device in kernels.distinct(memory.device).tolist()[:MAX_COUNTERS]:
        mine = (memory.device == device) & (memory.total_bytes >= 0)
        if mine.any():
            where = f"device {device}" if device >= 0 else "host"
            values = memory.total_bytes[mine].astype(np.float64)
            lines.append(_line(f"allocated, {where}", memory.time_ns[mine], values, "bytes", -1))
    return [line for line in lines if line["times"]]


def _label_and_unit(name: str) -> tuple[str, str]:
    """A counter's name without the unit at its end.

    >>> _label_and_unit("PTA allocated (bytes)"), _label_and_unit("clock (MHz)"), _label_and_unit("queue")
    (('PTA allocated', 'bytes'), ('clock', 'MHz'), ('queue', ''))
    """
    match = re.fullmatch(r"(.*\S) ?[(\[]([A-Za-z%/]{1,12})[)\]]", name)
    if match is None:
        return name, ""
    unit = match[2]
    return match[1], "bytes" if unit.lower() in ("b", "byte", "bytes") else unit


def _lanes_over_time(report: Report) -> list[dict[str, Any]]:
    """The report's own lines over time (queue depth, launch delay), drawn below the streams of their device."""
    points: dict[tuple[int, str], list[tuple[int, float]]] = {}
    for row in report.tables.get("lanes", []):
        points.setdefault((row["device"], row["lane"]), []).append((row["time_ns"], row["value"]))
    lines = []
    for (device, name), pairs in list(points.items())[:MAX_COUNTERS]:
        times, values = (np.array(column) for column in zip(*pairs, strict=True))
        unit = "ns" if name.endswith("_ns") else ""
        label = name.removesuffix("_ns").replace("_", " ")
        lines.append(
            _line(label, times.astype(np.int64), values.astype(np.float64), unit, -1) | {"device": device}
        )
    return lines


def _line(label: str, times: Int64, values: npt.NDArray[np.float64], unit: str, track: int) -> dict[str, Any]:
    good = np.isfinite(values)
    order = np.argsort(times[good], kind="stable")
    times, values = times[good][order], values[good][order]
    keep = extremes(values, COUNTER_POINTS)
    return {
        "label": clean(label, 120),
        "unit": unit,
        "track": track,
        "device": -1,
        "points": len(times),
        "times": times[keep].tolist(),
        "values": values[keep].tolist(),
        "low": float(values.min()) if len(values) else None,
        "high": float(values.max()) if len(values) else None,
    }


def _natural(value: int | str) -> tuple[int, str]:
    return (value, "") if isinstance(value, int) else (1 << 62, str(value))


def _track_title(track: Track) -> str:
    parts = [track.name.strip()]
    if track.process != -1:
        parts.append(f"process {track.process}" + (f" ({track.process_name})" if track.process_name else ""))
    if track.role == "device":
        parts.append(f"device {track.device}, stream {track.stream}")
    return ", ".join(parts)


def _process_label(track: Track) -> str:
    if track.process_name:
        return f"{track.process_name} · process {track.process}"
    if isinstance(track.process, str):
        return track.process
    return f"Process {track.process}" if track.process != -1 else "Process"
