"""How the time of HCCL operations splits: bytes on their way, waiting for other ranks, and for which rank.

Three sources, the better one first:

* the small tasks of an operation on its planes. Data tasks move bytes to or from another rank; `Notify_Wait` tasks
  wait for a rank's signal. Bytes move while any data task runs; the operation waits while one waits and none moves
  bytes. On RDMA a wait holds the transfer itself, so there the tasks do not tell.
* communication.json (or its database form): what the transfers of an operation took, added up over its links. They
  run side by side, so their sum is the most that the operation can have moved bytes for; the rest it waited. The
  table's own Wait and Transit Time are those of one plane and miss what the others wait for.
* the same operation on other ranks: it ends on all of them at about the same time, so what one is in it longer than
  the last to come it waited.

Without any of these nothing is known: the length of an operation alone does not tell waiting from transfer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from stallscope.analyzers.finding import Evidence
from stallscope.profiler import intervals, kernels
from stallscope.profiler.kinds import Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.timeline import Bool, Int64

if TYPE_CHECKING:
    from stallscope.analyzers.run import Run

Rows = npt.NDArray[np.intp]

NO_RANK = 0xFFFFFFFF
"""What HCCL writes where a task has no partner."""

SAME_NS = 1_000_000
"""A table entry and an operation of one name that begin this near each other are the same; the table's start is a
float of 16 digits."""

ON_CHIP = ("ON_CHIP", "LOCAL")
"""Links and transports that leave no chip."""

LARGE_BYTES = 1_000_000
"""Smaller transfers are bound by latency and tell nothing of a link's bandwidth."""

_NUMBERED = re.compile(r"__\d+(?:_\d+)*$")
"""What HCCL appends to each call's name: group, index, and so on."""


def base_name(name: str) -> str:
    """The operation without the number of the call.

    >>> base_name("hcom_allReduce__586_0_1")
    'hcom_allReduce'
    """
    return _NUMBERED.sub("", name)


@dataclass(frozen=True)
class Split:
    """How the time of each collective splits; columns of shape (k,), one per collective row of the timeline.

    `wait_ns` is -1 where nothing tells it; what is not waiting is transfer and its set-up. `peer` is the rank (within
    the group) that was waited for longest, -1 unknown; `by_tasks` whether the tasks told it, which is exact, `by_ranks`
    whether the lengths on other ranks did; else the table, and both of these tell the least. `transfer_ns` is
    the least time it moved bytes for.
    """

    rows: Rows
    wait_ns: Int64
    peer: Int64
    peer_wait_ns: Int64
    by_tasks: Bool
    by_ranks: Bool
    transfer_ns: Int64

    @cached_property
    def known(self) -> Bool:
        return np.asarray(self.wait_ns >= 0, np.bool_)

    def of(self, rows: Rows) -> npt.NDArray[np.intp]:
        """Where some collective rows stand in the columns."""
        return np.searchsorted(self.rows, rows)


@dataclass(frozen=True)
class Transfers:
    """Single transfers between ranks; columns of shape (t,). `source` and `target` are ranks within their group."""

    rows: Rows
    bytes: Int64
    dur_ns: Int64
    source: Int64
    target: Int64
    transport: npt.NDArray[np.intp]
    transports: list[str]

    def __len__(self) -> int:
        return len(self.rows)


class Communication:
    """What is known of the collectives of a run beyond their length."""

    def __init__(self, run: Run) -> None:
        self.run = run

    @cached_property
    def ranks(self) -> list[dict[str, Any]]:
        """The ranks of an Ascend recording, empty for other recordings."""
        told = self.run.session.facts.get("ascend")
        ranks = told.get("ranks") if isinstance(told, dict) else None
        return [r for r in ranks if isinstance(r, dict)] if isinstance(ranks, list) else []

    @cached_property
    def rows(self) -> Rows:
        return self.run.timeline.rows(Kind.COLLECTIVE)

    @cached_property
    def split(self) -> Split:
        """The collectives with what they waited."""
        n = len(self.rows)
        split = Split(self.rows, np.full(n, -1, np.int64), np.full(n, -1, np.int64), np.zeros(n, np.int64),
                      np.zeros(n, bool), np.zeros(n, bool), np.zeros(n, np.int64))  # fmt: skip
        if n:
            for key in self._places():
                self._by_tasks(split, key)
            self._by_table(split)
            self._by_ranks(split)
        return split

    def _places(self) -> list[tuple[int, int]]:
        """Rank and device of every track with collectives."""
        tracks = self.run.timeline.tracks
        used = kernels.distinct(self.run.timeline.spans.track[self.rows]).tolist()
        return sorted({(tracks[t].rank, tracks[t].device) for t in used})

    def _on(self, rows: Rows, key: tuple[int, int]) -> Bool:
        tracks = self.run.timeline.tracks
        mine = np.array([(t.rank, t.device) == key for t in tracks], bool)
        return np.asarray(mine[self.run.timeline.spans.track[rows]], np.bool_)

    def first(self, rows: Rows) -> int:
        """The collective that began first on the device of some collectives, before or among them."""
        tracks, spans = self.run.timeline.tracks, self.run.timeline.spans
        track = tracks[int(spans.track[rows[0]])]
        mine = self.rows[self._on(self.rows, (track.rank, track.device))]
        return int(mine[int(np.argmin(spans.start_ns[mine]))])

    # -- tasks ---------------------------------------------------------------------------------------

    @cached_property
    def _tasks(self) -> Rows:
        """Rows of the small tasks on planes."""
        timeline = self.run.timeline
        planes = np.array(
            [t.role == "label" and ": Plane" in t.name for t in timeline.tracks] or [False], bool
        )
        rows = timeline.rows(Kind.DEVICE_ANNOTATION)
        return np.asarray(rows[planes[timeline.spans.track[rows]]], np.intp)

    @cached_property
    def _is_wait(self) -> Bool:
        among = np.zeros(len(self.run.timeline), bool)
        among[self._tasks] = True
        return np.asarray(self.run.timeline.match_names(is_notify_wait, among)[self._tasks], np.bool_)

    @cached_property
    def transfers(self) -> Transfers:
        """Every task that moved bytes between two ranks."""
        timeline, rows = self.run.timeline, self._tasks
        size = timeline.arg_ints_at("size(Byte)", rows, 0)
        source, target = (timeline.arg_ints_at(f"{end} rank", rows, NO_RANK) for end in ("src", "dst"))
        link, links = timeline.arg_values("link type", rows)
        transport, transports = timeline.arg_values("transport type", rows)
        names = sorted({str(x) for x in [*links, *transports]} | {""})
        at = _codes(link, links, names)
        # a link says more than a transport: SDMA moves bytes over HCCS, PCIE and SIO
        at = np.where(at == names.index(""), _codes(transport, transports, names), at)
        local = np.isin(at, [names.index(t) for t in ON_CHIP if t in names])
        moved = (size > 0) & (source != target) & (target != NO_RANK) & ~local & ~self._is_wait
        return Transfers(rows[moved], size[moved], timeline.spans.dur_ns[rows[moved]], source[moved], target[moved],
                         at[moved], names)  # fmt: skip

    def _by_tasks(self, split: Split, key: tuple[int, int]) -> None:
        timeline, spans = self.run.timeline, self.run.timeline.spans
        mine = np.flatnonzero(self._on(self.rows, key))
        tasks = self._tasks[self._on(self._tasks, key)]
        if len(tasks) == 0:
            return
        moved = self.transfers
        waits = tasks[self._is_wait[self._on(self._tasks, key)]]
        data = moved.rows[self._on(moved.rows, key)]
        rdma = np.array(["RDMA" in t or "ROCE" in t for t in moved.transports])
        start, end = spans.start_ns[self.rows[mine]], spans.end_at(self.rows[mine])
        order = np.argsort(start, kind="stable")
        mine, start, end = mine[order], start[order], end[order]
        # of operations that run at the same time the tasks cannot be told apart
        alone = np.append(True, start[1:] >= np.maximum.accumulate(end)[:-1])
        alone &= np.append(start[1:] >= end[:-1], True)
        remote = moved.rows[rdma[moved.transport]]
        remote = remote[self._on(remote, key)]
        told = alone & (_inside(start, end, spans.start_ns[tasks]) > 0)
        told &= _inside(start, end, spans.start_ns[remote]) == 0
        busy = intervals.union(spans.start_ns[data], spans.end_at(data))
        waiting = intervals.subtract(intervals.union(spans.start_ns[waits], spans.end_at(waits)), busy)
        at = mine[told]
        split.wait_ns[at] = intervals.covered(waiting, start[told], end[told])
        split.by_tasks[at] = True
        split.transfer_ns[at] = intervals.covered(busy, start[told], end[told])
        peer = timeline.arg_ints_at("dst rank", waits, -1)
        # in a ring the neighbour that is waited for may wait for the next one itself
        codes, algorithms = timeline.arg_values("alg_type", self.rows[mine])
        direct = np.array([*("MESH" in str(a).upper() for a in algorithms), False], bool)[codes]
        op = np.searchsorted(start, spans.start_ns[waits], side="right") - 1
        known = (op >= 0) & (peer >= 0) & (peer != NO_RANK)
        known[known] = (told & direct)[op[known]] & (spans.start_ns[waits[known]] < end[op[known]])
        self._peers(split, mine, op[known], peer[known], spans.dur_ns[waits[known]])

    def _peers(self, split: Split, mine: Rows, op: Rows, peer: Int64, took: Int64) -> None:
        if len(op) == 0:
            return
        pair, at = np.unique(np.stack([op.astype(np.int64), peer]), axis=1, return_inverse=True)
        sums = np.zeros(pair.shape[1], np.int64)
        np.add.at(sums, np.asarray(at).reshape(-1), took)
        order = np.lexsort((sums, pair[0]))
        last = order[np.append(pair[0][order][1:] != pair[0][order][:-1], True)]
        where = mine[pair[0][last]]
        split.peer[where], split.peer_wait_ns[where] = pair[1][last], sums[last]

    # -- table ---------------------------------------------------------------------------------------

    def _by_table(self, split: Split) -> None:
        timeline, spans = self.run.timeline, self.run.timeline.spans
        rank_of = np.array([t.rank for t in timeline.tracks], np.int64)[spans.track[self.rows]]
        for rank in self.ranks:
            entries = rank.get("communication")
            if not isinstance(entries, list):
                continue
            open_ = np.flatnonzero((split.wait_ns < 0) & (rank_of == rank.get("rank", -1)))
            by_name: dict[str, Rows] = {}
            for code in kernels.distinct(spans.name[self.rows[open_]]).tolist():
                by_name[timeline.strings[code]] = open_[spans.name[self.rows[open_]] == code]
            for entry in entries:
                found = by_name.get(str(entry.get("name")))
                waited = table_wait_ns(entry)
                if found is None or waited is None:
                    continue
                begin = round(float(entry.get("start_us", 0.0)) * 1000) - timeline.origin_ns
                away = np.abs(spans.start_ns[self.rows[found]] - begin)
                best = int(np.argmin(away))
                if away[best] <= SAME_NS:
                    row = found[best]
                    took = int(spans.dur_ns[self.rows[row]])
                    split.wait_ns[row] = min(waited, took)
                    peers = self._peers_of_group(rank, str(entry.get("group")))
                    split.transfer_ns[row] = min(_moved_ns(entry) // peers, took) if peers else 0

    @cached_property
    def _by_operation(self) -> dict[tuple[str, str, int], dict[int, int]]:
        """Name, group and step of each operation in the tables to its length on each rank (ns)."""
        out: dict[tuple[str, str, int], dict[int, int]] = {}
        for rank in self.ranks:
            for entry in rank.get("communication") or []:
                key = (str(entry.get("name")), str(entry.get("group")), int(entry.get("step", -1)))
                out.setdefault(key, {})[int(rank.get("rank", -1))] = int(entry.get("elapse_ns", 0))
        return out

    def last_to_come(self, row: int) -> int:
        """The rank among those recorded that came last to a collective: it is in it for the shortest time. -1 where
        no other rank holds it, or where that one waited itself, for a rank that was not recorded."""
        rank, took = self.run.timeline.track_of(row).rank, int(self.run.timeline.spans.dur_ns[row])
        lengths = self._lengths.get(self.run.timeline.name(row), {})
        if rank not in lengths or len(lengths) < 2:
            return -1
        last = min(lengths, key=lambda r: lengths[r])
        return last if last != rank and 2 * lengths[last] <= took else -1

    @cached_property
    def _lengths(self) -> dict[str, dict[int, int]]:
        """Name of each HCCL operation that ran once on several ranks to its length on each (ns): by the tables, else
        by the timeline. HCCL numbers its operations alike on all ranks of a group."""
        spans, timeline = self.run.timeline.spans, self.run.timeline
        out: dict[str, dict[int, int]] = {}
        twice: set[str] = set()
        rank_of = np.array([t.rank for t in timeline.tracks], np.int64)[spans.track[self.rows]]
        numbered = timeline.match_names(is_numbered, Kind.COLLECTIVE)[self.rows]
        for row, rank in zip(self.rows[numbered].tolist(), rank_of[numbered].tolist(), strict=True):
            of_name = out.setdefault(timeline.name(row), {})
            if rank in of_name:
                twice.add(timeline.name(row))
            of_name[rank] = int(spans.dur_ns[row])
        tables: dict[str, dict[int, int]] = {}
        for (name, _, _), ranks in self._by_operation.items():
            if name in tables:
                twice.add(name)
            tables[name] = ranks
        for name, ranks in tables.items():
            out[name] = {**ranks, **out.get(name, {})}
        return {name: ranks for name, ranks in out.items() if name not in twice and len(ranks) > 1}

    def _by_ranks(self, split: Split) -> None:
        """A collective ends on all ranks at about the same time: what one is in it longer than the last to come, it
        waited at least."""
        timeline, spans = self.run.timeline, self.run.timeline.spans
        if not self._lengths:
            return
        for i in np.flatnonzero(split.wait_ns < 0).tolist():
            row = int(self.rows[i])
            lengths = self._lengths.get(timeline.name(row))
            if lengths and timeline.track_of(row).rank in lengths:
                split.wait_ns[i] = int(spans.dur_ns[row]) - min(min(lengths.values()), int(spans.dur_ns[row]))
                split.by_ranks[i] = True

    @cached_property
    def computing(self) -> dict[int, int]:
        """What each rank computed in the steps that all ranks recorded (ns), by the profilers' own step tables; empty
        for one rank."""
        tables: dict[int, dict[int, int]] = {}
        for rank in self.ranks:
            rows = rank.get("step_trace_time") or rank.get("steps") or []
            tables[int(rank.get("rank", -1))] = {
                int(r.get("step", -1)): int(r.get("computing_ns", 0)) for r in rows
            }
        steps = set.intersection(*(set(t) for t in tables.values())) if len(tables) > 1 else set()
        return {rank: sum(t[s] for s in steps) for rank, t in tables.items()} if steps else {}

    @staticmethod
    def _peers_of_group(rank: dict[str, Any], group: str) -> int:
        """How many ranks a rank exchanges bytes with in a group, by its matrix: so many transfers may run at once."""
        pairs = [
            (str(e.get("from")), str(e.get("to")))
            for e in rank.get("communication_matrix") or []
            if e.get("group") == group and e.get("from") != e.get("to")
        ]
        return len({end for pair in pairs for end in pair}) - 1 if pairs else 0

    # -- links ---------------------------------------------------------------------------------------

    @cached_property
    def packets(self) -> list[Packets]:
        """What was moved between ranks, by rank, transport and size: from the tables, or where there are none from tasks."""
        ranks_told = [(rank, self.exposed_share(int(rank.get("rank", -1)))) for rank in self.ranks]
        out = [packet for rank, exposed in ranks_told for packet in _table_packets(rank, exposed)]
        told = {packet.rank for packet in out}
        moved, tracks = self.transfers, self.run.timeline.tracks
        ranks = np.array([t.rank for t in tracks], np.int64)[self.run.timeline.spans.track[moved.rows]]
        wall = self._side_by_side()
        keys, at = np.unique(np.stack([ranks, moved.transport, moved.bytes]), axis=1, return_inverse=True)
        at = np.asarray(at).reshape(-1)
        for k in range(keys.shape[1]):
            rank, transport, size = (int(v) for v in keys[:, k])
            if rank in told:
                continue
            mine = at == k
            took = int(moved.dur_ns[mine].sum())
            share = wall.get(rank, 1.0) * self.exposed_share(rank)
            out.append(Packets(rank, moved.transports[transport], size, int(mine.sum()), took, share))
        return out

    def _side_by_side(self) -> dict[int, float]:
        """Per rank, the time in which any data task ran over the sum of their times: what of a saving arrives."""
        moved, spans, out = self.transfers, self.run.timeline.spans, {}
        ranks = np.array([t.rank for t in self.run.timeline.tracks], np.int64)[spans.track[moved.rows]]
        for rank in kernels.distinct(ranks).tolist():
            rows = moved.rows[ranks == rank]
            any_ = intervals.length(intervals.union(spans.start_ns[rows], spans.end_at(rows)))
            out[rank] = any_ / max(int(moved.dur_ns[ranks == rank].sum()), 1)
        return out

    @cached_property
    def links(self) -> list[Link]:
        """What went over each link between two ranks: from the matrices, or where there are none from tasks."""
        sums: dict[tuple[int, str, str, str], list[int]] = {}
        for rank in self.ranks:
            for entry in _matrix(rank):
                key = (
                    int(rank.get("rank", -1)),
                    str(entry["transport"]),
                    str(entry["from"]),
                    str(entry["to"]),
                )
                total = sums.setdefault(key, [0, 0])
                total[0] += int(entry["bytes"])
                total[1] += int(entry["transit_ns"])
        told = {key[0] for key in sums}
        moved = self.transfers
        ranks = np.array([t.rank for t in self.run.timeline.tracks], np.int64)[
            self.run.timeline.spans.track[moved.rows]
        ]
        large = np.flatnonzero((moved.bytes >= LARGE_BYTES) & ~kernels.among(ranks, list(told)))
        table = np.stack([ranks[large], moved.transport[large], moved.source[large], moved.target[large]])
        keys, at = np.unique(table, axis=1, return_inverse=True)
        for k in range(keys.shape[1]):
            mine = large[np.asarray(at).reshape(-1) == k]
            rank_, transport, source, target = (int(v) for v in keys[:, k])
            sums[rank_, moved.transports[transport], str(source), str(target)] = [
                int(moved.bytes[mine].sum()),
                int(moved.dur_ns[mine].sum()),
            ]
        return [Link(*key, *total) for key, total in sums.items() if total[1] > 0]

    def exposed_share(self, rank: int) -> float:
        """How much of a rank's communication no kernel runs beside (0 to 1); 1 where its timeline is not there."""
        tracks, exposed, whole = self.run.timeline.tracks, 0, 0
        for view in self.run.devices.values():
            if len(view.rows) and tracks[int(self.run.timeline.spans.track[view.rows[0]])].rank == rank:
                exposed += intervals.length(view.exposed_collective)
                whole += intervals.length(view.collective)
        return exposed / whole if whole else 1.0

    def longest(self, rank: int, most: int = 5) -> list[int]:
        """The longest collectives of a rank (of all ranks, if it has none): what a finding about it shows."""
        spans, tracks = self.run.timeline.spans, self.run.timeline.tracks
        of = np.array([t.rank for t in tracks], np.int64)[spans.track[self.rows]]
        rows = self.rows[of == rank] if (of == rank).any() else self.rows
        return [int(r) for r in rows[np.argsort(-spans.dur_ns[rows], kind="stable")][:most]]

    def evidence(self, rank: int) -> tuple[Evidence, ...]:
        """The same as spans of the timeline, each under its own name."""
        timeline, spans = self.run.timeline, self.run.timeline.spans
        return tuple(
            Evidence(int(spans.track[r]), int(spans.start_ns[r]), int(spans.end_at(r)), timeline.name(r)[:60])
            for r in self.longest(rank)
        )


@dataclass(frozen=True)
class Packets:
    """Transfers of one size over one transport of one rank. `ns` is the sum of their times; `wall` what of a saving in it
    arrives: transfers run side by side, and kernels beside them (0 to 1)."""

    rank: int
    transport: str
    bytes: int
    count: int
    ns: int
    wall: float

    @property
    def rate(self) -> float:
        """Bytes per nanosecond, which is GB/s."""
        return self.bytes * self.count / self.ns if self.ns else 0.0


@dataclass(frozen=True)
class Link:
    """What one rank's tables say of the way between two ranks."""

    rank: int
    transport: str
    source: str
    target: str
    bytes: int
    ns: int

    @property
    def rate(self) -> float:
        """Bytes per nanosecond, which is GB/s."""
        return self.bytes / self.ns


def _matrix(rank: dict[str, Any]) -> list[dict[str, Any]]:
    """Entries of large transfers between two ranks; "total" sums up the others where it is there."""
    entries = [e for e in rank.get("communication_matrix") or [] if e.get("from") != e.get("to")]
    entries = [e for e in entries if str(e.get("transport")) not in ON_CHIP]
    totals = [e for e in entries if "-total" in str(e.get("name"))]
    return [e for e in totals or entries if int(e.get("bytes", 0)) >= LARGE_BYTES]


def _table_packets(rank: dict[str, Any], exposed: float) -> Iterator[Packets]:
    for entry in rank.get("communication") or []:
        links = [x for x in entry.get("links", []) if x.get("transport") != "SDMA"] or entry.get("links", [])
        moved = sum(int(link.get("transit_ns", 0)) for link in links)
        # what the operation can have spent on its transfers, over the sum of them
        wall = min(int(entry.get("elapse_ns", 0)) / moved, 1.0) if moved else 1.0
        wall *= exposed
        for link in links:
            for packet in link.get("packets", []):
                yield Packets(int(rank.get("rank", -1)), str(link["transport"]), int(packet["bytes"]),
                              int(packet["count"]), int(packet["ns"]), wall)  # fmt: skip


def table_wait_ns(entry: dict[str, Any]) -> int | None:
    """The least time a table entry moved no bytes, or None where it does not tell.

    Transfers of one operation run side by side: their sum is the most it can have spent on them.
    """
    moved = _moved_ns(entry)
    elapse, waited = int(entry.get("elapse_ns", 0)), int(entry.get("wait_ns", 0))
    if moved > 0:
        return max(elapse - moved, 0)
    return waited if waited > 0 else None


def _moved_ns(entry: dict[str, Any]) -> int:
    """What the transfers of a table entry took in all; SDMA is the sum of the links below it."""
    links = [x for x in entry.get("links", []) if x.get("transport") != "SDMA"] or entry.get("links", [])
    return sum(int(link.get("transit_ns", 0)) for link in links)


def is_numbered(name: str) -> bool:
    """Whether HCCL numbered this call: the same call has the same name on all ranks of its group."""
    return _NUMBERED.search(name) is not None


def is_notify_wait(name: str) -> bool:
    """Whether a task of this name waits for a signal of another rank."""
    return name.lower().replace("_", " ") == "notify wait"


def _codes(codes: npt.NDArray[np.int32], values: list[Any], names: list[str]) -> npt.NDArray[np.intp]:
    """Codes into `values` (-1 none) as codes into `names`; INVALID_TYPE and N/A count as none."""
    none = names.index("")
    table = [none if str(v) in ("INVALID_TYPE", "N/A") else names.index(str(v)) for v in values]
    return np.array([*table, none], np.intp)[codes]


def _inside(start: Int64, end: Int64, moments: Int64) -> npt.NDArray[np.intp]:
    """How many moments lie in each of some disjoint spans, by start."""
    sorted_ = np.sort(moments)
    return np.searchsorted(sorted_, end, side="left") - np.searchsorted(sorted_, start, side="left")


__all__ = [
    "Communication",
    "Link",
    "Packets",
    "Split",
    "Transfers",
    "base_name",
    "is_notify_wait",
    "table_wait_ns",
]
