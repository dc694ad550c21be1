"""msprof output: `PROF_*` trees, and exports that were copied out of one.

Reads:  mindstudio_profiler_output/{msprof_*.json, op_summary_*.csv, op_statistic_*.csv, ...} with slices and
        re-exports (the newest complete set is taken); msprof_*.db; device_N/info.json.N for cores and clocks;
        host/start_info. The same files without the tree around them, as people pass them on.
Leaves: raw data that was never exported; `msprof op` trees (OPPROF_*), which are another tool's.
"""

from __future__ import annotations

import re
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stallscope.profiler.errors import InputError
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers import ascend_db, ascend_files, ascend_steps, ascend_trace
from stallscope.profiler.readers.ascend_rank import RankBuilder
from stallscope.profiler.readers.ascend_sqlite import is_database
from stallscope.profiler.readers.ascend_trace import Trace
from stallscope.profiler.timeline import StringTable

if TYPE_CHECKING:
    from stallscope.profiler.readers.ascend_pt import Part

OUTPUT = "mindstudio_profiler_output"
_FILE = re.compile(
    r"^(?P<stem>[a-z][a-z0-9_]*?)(?:_slice_(?P<slice>\d{1,9}))?(?:_(?P<time>\d{10,20}))?\.(?P<end>json|csv|db)(?:\.gz)?$"
)
_STEMS = (
    "msprof",
    "op_summary",
    "op_statistic",
    "api_statistic",
    "task_time",
    "step_trace",
    "communication_statistic",
    "memory_",
    "operator_",
    "npu_",
    "l2_",
    "aicpu",
)


@dataclass
class Export:
    """The files of one export: stem -> its files, slices in order."""

    time: str
    files: dict[str, list[Path]] = field(default_factory=dict)

    @property
    def has_core(self) -> bool:
        return bool(self.files.keys() & {"msprof.json", "op_summary.csv"})


def is_tree(folder: Path) -> bool:
    """Whether a folder is a PROF_* tree or holds an msprof export."""
    if (folder / OUTPUT).is_dir():
        return True
    if any(_info_files(folder)) and ((folder / "host").is_dir() or folder.name.startswith("PROF_")):
        return True
    return any(e.has_core for e in exports(folder)) or _database(folder) is not None


def _info_files(folder: Path) -> list[Path]:
    try:
        return sorted(folder.glob("device_*/info.json.*")) + sorted(folder.glob("device_*/info.json"))
    except OSError:
        return []


def exports(folder: Path) -> list[Export]:
    """Exports in a folder by time stamp, the newest first; files without a stamp are one export of their own."""
    found: dict[str, Export] = {}
    try:
        names = sorted(p for p in folder.iterdir() if p.is_file())
    except OSError:
        return []
    for path in names:
        match = _FILE.match(path.name)
        if match is None or match["end"] == "db" or not match["stem"].startswith(_STEMS):
            continue
        stem = f"{match['stem']}.{match['end']}"
        found.setdefault(match["time"] or "", Export(match["time"] or "")).files.setdefault(stem, []).append(
            path
        )
    for export in found.values():
        for files in export.files.values():
            files.sort(key=_slice_number)
    return sorted(found.values(), key=lambda e: e.time, reverse=True)


def _slice_number(path: Path) -> int:
    match = _FILE.match(path.name)
    return int(match["slice"]) if match and match["slice"] else -1


def _newest(found: list[Export]) -> Export:
    """The newest export with a trace or a kernel table. Side files are taken from it alone; stamps of one
    export differ by seconds, so files up to the next export's core files count as its own."""
    cores = [e for e in found if "op_summary.csv" in e.files or "msprof.json" in e.files]
    if not cores:
        return found[0] if found else Export("")
    both = [e for e in cores if {"op_summary.csv", "msprof.json"} <= e.files.keys()]
    newest = (both or cores)[0]
    joined = Export(newest.time, dict(newest.files))
    for export in found:
        for stem, files in export.files.items():
            if stem not in joined.files and _near(export.time, newest.time):
                joined.files[stem] = files
    return joined


def _near(a: str, b: str) -> bool:
    """Whether two 14-digit stamps are of one export: within ten minutes by the clock digits."""
    if not a or not b or len(a) != 14 or len(b) != 14:
        return a == b
    from datetime import datetime

    try:
        times = [datetime.strptime(t, "%Y%m%d%H%M%S") for t in (a, b)]
    except ValueError:
        return False
    return abs((times[0] - times[1]).total_seconds()) < 600


def _database(folder: Path) -> Path | None:
    """The newest msprof_*.db in a tree."""
    places = [folder, folder / OUTPUT]
    found = [p for place in places if place.is_dir() for p in place.glob("msprof_*.db*") if is_database(p)]
    return max(found, key=lambda p: p.name, default=None)


def read_tree(folder: Path) -> Part:
    """Read one tree or export. Raises InputError where nothing was exported."""
    from stallscope.profiler.readers import ascend_pt

    output = folder / OUTPUT if (folder / OUTPUT).is_dir() else folder
    notes = Notes()
    facts: dict[str, Any] = {"rank": -1, "form": "msprof"}
    devices = device_files(folder, facts, notes)
    found = exports(output)
    export = _newest(found)
    older = [e.time for e in found if e.has_core and e.time != export.time]
    notes.add("older-exports", "info", "the tree was exported several times; the newest complete set is read", len(older),
              ", ".join(older[:4]))  # fmt: skip
    if not export.has_core:
        database = _database(folder)
        if database is None:
            raise InputError(
                folder,
                "an msprof recording that was never exported",
                "Run `msprof --export=on --output=PATH`.",
            )
        return _read_database(folder, database, facts, devices, notes)
    rank, trace = _open(export, notes)
    rank.notes.extend(notes)
    numbers = trace.devices if trace is not None else [int(d) for d in devices]
    kernels = ascend_pt.read_kernels(
        export.files.get("op_summary.csv", []), rank, numbers[0] if len(numbers) == 1 else 0
    )
    if trace is not None:
        trace.add(kernels)
    elif kernels is not None:
        ascend_pt.add_table_only(rank, kernels)
    files = {
        stem.rpartition(".")[0]: paths[0] for stem, paths in export.files.items() if stem.endswith(".csv")
    }
    facts |= ascend_files.statistic_tables(files, rank.notes)
    ascend_files.add_memory(rank, files, facts)
    timeline, links = ascend_trace.finish(rank, trace)
    facts |= links
    ascend_steps.add_kernel_facts(facts, timeline, rank, trace.step_ends() if trace is not None else {})
    told = ascend_steps.device_facts(facts, sorted({t.device for t in timeline.tracks if t.role == "device"}))
    for number, properties in told.items():
        devices[number] = properties | devices.get(number, {})
    return ascend_pt.Part(folder, timeline, facts, rank.notes, devices, "msprof")


def _open(export: Export, notes: Notes) -> tuple[RankBuilder, Trace | None]:
    """The trace of an export: one file, or slices as one array."""
    paths = export.files.get("msprof.json", [])
    if not paths:
        notes.add(
            "no-trace-view",
            "warning",
            "there is no msprof_*.json: no host calls, no waits and copies, no links",
        )
        return RankBuilder(-1, StringTable()), None
    try:
        return (
            ascend_trace.load_trace(paths[0], -1) if len(paths) == 1 else ascend_trace.load_slices(paths, -1)
        )
    except (InputError, OSError, MemoryError) as error:
        seen = error.seen if isinstance(error, InputError) else str(error)
        notes.add(
            "trace-unreadable",
            "data_loss",
            f"{paths[0].name} could not be read ({seen}); the tables were read alone",
        )
        return RankBuilder(-1, StringTable()), None


def device_files(folder: Path, facts: dict[str, Any], notes: Notes) -> dict[str, dict[str, Any]]:
    """Cores and clocks of each device_N/info.json.N, and the rank if one names it."""
    out: dict[str, dict[str, Any]] = {}
    for path in _info_files(folder):
        document = ascend_files.read_json(path, notes)
        properties = ascend_files.device_info(document)
        number = re.search(r"device_(\d+)$", path.parent.name)
        if properties and number:
            out[number[1]] = {"vendor": "Ascend"} | properties
        rank = ascend_files.rank_of_info(document)
        if rank >= 0 and facts["rank"] < 0:
            facts["rank"] = rank
    return out


def _read_database(
    folder: Path, database: Path, facts: dict[str, Any], devices: dict[str, dict[str, Any]], notes: Notes
) -> Part:
    from stallscope.profiler.readers import ascend_pt

    found = ascend_db.read_rank(database, facts["rank"], [])
    found.notes.extend(notes)
    merged = found.devices
    for number, properties in devices.items():
        merged[number] = merged.get(number, {}) | properties
    return ascend_pt.Part(folder, found.timeline, facts | found.facts, found.notes, merged, "msprof")
