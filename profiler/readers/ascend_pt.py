"""Ascend profiler directories of PyTorch (`*_ascend_pt`) and MindSpore (`*_ascend_ms`), one rank or many.

Reads:  ASCEND_PROFILER_OUTPUT with what its level left there: trace_view.json, kernel_details.csv, the statistic,
        communication and memory tables, the databases; profiler_info*.json and profiler_metadata.json beside it.
        Any folder that holds such folders (or msprof trees) is read as the ranks of one run.
Leaves: FRAMEWORK and raw PROF_* data that were never analysed: these need the tools that came with them, and the
        error says so. operator_details.csv and other tables without times.

Absence of a file is never an error; a damaged file costs what is in it; a damaged rank costs that rank.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from stallscope.profiler.errors import InputError
from stallscope.profiler.kernels import distinct
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Note, Notes
from stallscope.profiler.ranks import join_ranks
from stallscope.profiler.readers import (
    ascend_analysis,
    ascend_db,
    ascend_files,
    ascend_steps,
    ascend_trace,
)
from stallscope.profiler.readers.ascend_content import by_stem, ending, named, stem
from stallscope.profiler.readers.ascend_rank import (
    Kernels,
    RankBuilder,
    is_kernel_table,
    kernels_from_table,
    rank_number,
)
from stallscope.profiler.readers.ascend_sqlite import databases, opened
from stallscope.profiler.readers.ascend_table import DestroyedTimes, header_of
from stallscope.profiler.readers.ascend_trace import Trace
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import StringTable, Timeline

READER_VERSION = 1
OUTPUT = "ASCEND_PROFILER_OUTPUT"
_TABLES = (
    "kernel_details",
    "step_trace_time",
    "op_statistic",
    "api_statistic",
    "operator_details",
    "task_time",
)
_TOLD = {"step_trace_time", "op_statistic", "communication"}
"""Facts that say something of a run whose timeline is missing."""
_SEARCH_DEPTH = 4
_MAX_FOLDERS = 4096


@dataclass
class Part:
    """What one recording gave."""

    folder: Path
    timeline: Timeline
    facts: dict[str, Any]
    notes: Notes
    devices: dict[str, dict[str, Any]]
    producer: str

    @property
    def rank(self) -> int:
        return int(self.facts.get("rank", -1))


# -- finding recordings ------------------------------------------------------------------------------


def is_output(folder: Path) -> bool:
    """Whether a folder holds analysed results (is an ASCEND_PROFILER_OUTPUT)."""
    if named(folder, "trace_view.json") or named(folder, "kernel_details.csv"):
        return True
    # op_statistic.csv and the like are also msprof's
    if _is_msprof(folder):
        return False
    if any(named(folder, f"{name}.csv") for name in _TABLES):
        return True
    return named(folder, "communication.json") is not None or any(map(any, _databases(folder)))


def _databases(folder: Path) -> tuple[list[Path], list[Path]]:
    return ascend_db.split_databases(databases(folder))


def is_recording(folder: Path) -> bool:
    """Whether a folder is one recording of a rank."""
    if (folder / OUTPUT).is_dir() or is_output(folder):
        return True
    return (folder / "FRAMEWORK").is_dir() and any(folder.glob("profiler_info*.json"))


def find_recordings(folder: Path) -> list[Path]:
    """Recordings in a folder and below, in name order; a recording is not searched further."""
    found: list[Path] = []
    seen = 0

    def walk(at: Path, depth: int) -> None:
        nonlocal seen
        seen += 1
        if seen > _MAX_FOLDERS:
            return
        if is_recording(at) or _is_msprof(at):
            found.append(at)
            return
        try:
            below = sorted(p for p in at.iterdir() if not p.is_symlink())
        except OSError:
            return
        lone = [p for p in below if p.is_file() and _is_lone_table(p)]
        found.extend(lone)
        if depth == 0 or lone:
            return
        for child in below:
            if child.is_dir():
                walk(child, depth - 1)

    walk(folder, _SEARCH_DEPTH)
    return found


def _is_lone_table(path: Path) -> bool:
    """A kernel table under a name of its own, outside any recording."""
    return ending(path) == ".csv" and is_kernel_table(header_of(path))


def _is_msprof(folder: Path) -> bool:
    from stallscope.profiler.readers import msprof

    return msprof.is_tree(folder)


def sniff(path: Path) -> bool:
    """A folder with at least one Ascend recording in it."""
    return path.is_dir() and (bool(find_recordings(path)) or _is_cluster_output(path))


def _is_cluster_output(folder: Path) -> bool:
    return any(
        (folder / name).is_file() for name in ("cluster_step_trace_time.csv", "cluster_communication.json")
    )


def read(path: Path, rank: int | None = None) -> Session:
    """Read a recording, or the ranks in a folder. Raises InputError where nothing can be used.

    With a `rank`, only the recordings whose file names tell it are read; all, if none does.
    """
    recordings = find_recordings(path)
    recordings = [r for r in recordings if rank is not None and _told_rank(r) == rank] or recordings
    if not recordings:
        raise InputError(
            path,
            "tables that msprof-analyze made of several ranks, without a timeline",
            "Give the folder that holds the ranks' own *_ascend_pt folders.",
        )
    parts: list[Part] = []
    failed: list[tuple[Path, InputError]] = []
    for folder in recordings:
        try:
            parts.append(read_recording(folder))
        except InputError as error:
            failed.append((folder, error))
    if not parts:
        raise failed[0][1]
    return session_of(path, parts, failed)


def _told_rank(folder: Path) -> int | None:
    """The rank that the name of a recording's `profiler_info_N.json` tells; None where none does."""
    names = [p.stem.removeprefix("profiler_info_") for p in folder.glob("profiler_info_*.json")]
    return next((int(name) for name in names if name.isascii() and name.isdecimal()), None)


def session_of(path: Path, parts: list[Part], failed: list[tuple[Path, InputError]]) -> Session:
    """One session out of the recordings of one run; others are named in notes."""
    notes = Notes()
    for folder, error in failed:
        notes.add(
            "rank-not-loaded",
            "data_loss",
            f"a rank could not be loaded: {error.seen}",
            1,
            _relative(folder, path),
        )
    parts = _one_run(path, parts, notes)
    _number_ranks(parts, notes)
    for part in parts:
        for note in part.notes:
            first = (
                ": ".join(t for t in (part.folder.name, note.first) if t) if len(parts) > 1 else note.first
            )
            notes.extend([Note(note.code, note.severity, note.text, note.count, first)])
    timeline = join_ranks([part.timeline for part in parts])
    for part in parts:
        part.facts["directory"] = _relative(part.folder, path)
    facts: dict[str, Any] = {
        "source": path.name or str(path.resolve().name),
        "format": "ascend-" + "+".join(sorted({part.facts["form"] for part in parts})),
        "reader_version": READER_VERSION,
        "producer": parts[0].producer,
        "devices": _merged_devices(parts),
        "ascend": {"ranks": [part.facts for part in parts]},
    }
    if len(parts) == 1 and parts[0].rank >= 0:
        facts["rank"] = parts[0].rank
    if len(timeline) == 0 and any(part.facts.keys() & _TOLD for part in parts):
        facts["tables_only"] = True
    world = max((int(p.facts.get("parallel", {}).get("world_size", 0)) for p in parts), default=0)
    if world:
        facts["world_size"] = world
    return Session(timeline, facts, notes)


def _relative(folder: Path, base: Path) -> str:
    try:
        return str(folder.relative_to(base)) if folder != base else folder.name
    except ValueError:
        return folder.name


def _merged_devices(parts: list[Part]) -> dict[str, dict[str, Any]]:
    out: dict[str, dict[str, Any]] = {}
    for part in parts:
        for number, properties in part.devices.items():
            out.setdefault(number, {}).update(properties)
    return out


def _span(part: Part) -> tuple[int, int]:
    spans = part.timeline.spans
    if len(spans) == 0:
        return 0, 0
    return part.timeline.origin_ns + int(spans.start_ns.min()), part.timeline.origin_ns + int(
        spans.end_ns.max()
    )


def _one_run(path: Path, parts: list[Part], notes: Notes) -> list[Part]:
    """The recordings that belong together: ranks of one moment. Of several runs or cycles the newest stays.

    A timeline with a pause of hours between two runs in it would call everything idle.
    """
    timed = [p for p in parts if len(p.timeline)]
    if not timed:
        return _newest_per_rank(parts)
    newest = max(timed, key=lambda p: (_span(p)[0], p.folder.name))
    # ranks of one run sit side by side; the same rank elsewhere is another run
    together = [p for p in parts if p.folder.parent == newest.folder.parent or p is newest]
    together += _on_other_nodes(timed, together, newest)
    apart = [p for p in together if len(p.timeline) and not _overlap(p, newest)]
    ranks = [p.rank for p in together if p.rank >= 0]
    if len(ranks) != len(set(ranks)) or len(ranks) < len(together):
        together = [p for p in together if p not in apart]
    together = [p for p in parts if p in together]
    left = [p for p in parts if p not in together]
    notes.add("several-recordings", "warning",
              f"the folder holds {len(parts)} recordings of different moments; this is the newest "
              f"({', '.join(_relative(p.folder, path) for p in together[:4])}). Name another folder to see another", len(left),
              ", ".join(_relative(p.folder, path) for p in left[:4]))  # fmt: skip
    return together


def _overlap(a: Part, b: Part) -> bool:
    (low, high), (start, end) = _span(a), _span(b)
    return start <= high and end >= low


def _on_other_nodes(timed: list[Part], together: list[Part], newest: Part) -> list[Part]:
    """Recordings in other folders (one a node) that are ranks of the same run: of the same time, and ranks of
    their own."""
    taken = {p.rank for p in together}
    if newest.rank < 0 or len(taken) < len(together):
        return []
    out: list[Part] = []
    for part in timed:
        if part not in together and part.rank >= 0 and part.rank not in taken and _overlap(part, newest):
            taken.add(part.rank)
            out.append(part)
    return out


def _newest_per_rank(parts: list[Part]) -> list[Part]:
    by_rank: dict[int, Part] = {}
    for index, part in enumerate(parts):
        by_rank[part.rank if part.rank >= 0 else -1 - index] = part
    return list(by_rank.values())


def _number_ranks(parts: list[Part], notes: Notes) -> None:
    """Ranks of several recordings must differ; those without a number, or with a taken one, get the next free."""
    if len(parts) < 2:
        return
    taken: set[int] = set()
    renumbered = 0
    for part in sorted(parts, key=lambda p: p.rank < 0):
        rank = part.rank
        if rank < 0 or rank in taken:
            rank = next(r for r in range(len(parts) + len(taken) + 1) if r not in taken)
            renumbered += 1
            part.facts["rank"] = rank
            part.timeline.tracks = [_with_rank(t, rank) for t in part.timeline.tracks]
        taken.add(rank)
    notes.add(
        "ranks-numbered",
        "info",
        "recordings do not say their rank; they were numbered in name order",
        renumbered,
    )


def _with_rank(track: Any, rank: int) -> Any:
    import dataclasses

    return dataclasses.replace(track, rank=rank)


# -- one recording -----------------------------------------------------------------------------------


def read_recording(folder: Path) -> Part:
    """Read one rank's folder, or a kernel table on its own. Raises InputError where nothing can be used."""
    if folder.is_file():
        return read_lone_table(folder)
    from stallscope.profiler.readers import msprof

    if _is_msprof(folder) and not is_recording(folder):
        return msprof.read_tree(folder)
    output = folder / OUTPUT if (folder / OUTPUT).is_dir() else folder
    home = output.parent if output.name == OUTPUT else folder
    notes = Notes()
    facts = _settings(home, notes)
    files = by_stem(output, ".csv", ".json")
    if _is_msprof(output) and not is_output(output):
        return _with_settings(msprof.read_tree(output), facts, notes)
    mains, analyses = ascend_db.split_databases(databases(output), notes)
    if not is_output(output):
        return _exported_only(home, facts, notes)
    trace_path = files.get("trace_view")
    part = None
    # text is whole with its trace; without it a database knows more than the tables
    if mains and (trace_path is None or not ascend_trace.sniff(trace_path)):
        part = _try_database(home, mains, analyses, files, facts, notes)
    if part is None:
        part = _read_text(home, files, mains, analyses, facts, notes)
    _add_hardware(part)
    return part


def _exported_only(home: Path, facts: dict[str, Any], notes: Notes) -> Part:
    """The device's half of a recording whose analysis did not end: the export inside its PROF_* folder."""
    from stallscope.profiler.readers import msprof

    for folder in sorted(home.glob("PROF_*")):
        if any(export.has_core for export in msprof.exports(folder / msprof.OUTPUT)):
            part = _with_settings(msprof.read_tree(folder), facts, notes)
            part.notes.add(
                "analysis-unfinished",
                "warning",
                "the recording was exported but not analysed to its end: framework operators are missing",
                1,
                folder.name,
            )
            return part
    raise _damaged(home / OUTPUT) or _not_analysed(home)


def _damaged(output: Path) -> InputError | None:
    """The fault of the first database that cannot be opened, where a folder holds nothing but such."""
    for path in databases(output):
        try:
            with opened(path):
                pass
        except InputError as error:
            return error
    return None


def _with_settings(part: Part, facts: dict[str, Any], notes: Notes) -> Part:
    """A part read from msprof's files, with what the folder around them says."""
    part.facts = part.facts | {k: v for k, v in facts.items() if v not in (-1, None)}
    part.notes.extend(notes)
    return part


def _add_hardware(part: Part) -> None:
    """Cores and clocks of the raw data's info.json, where the PROF_* folders were kept."""
    from stallscope.profiler.readers import msprof

    for folder in sorted(part.folder.glob("PROF_*")):
        for number, properties in msprof.device_files(folder, {"rank": 0}, part.notes).items():
            if number in part.devices:
                part.devices[number] = part.devices[number] | properties


def read_lone_table(path: Path) -> Part:
    """A kernel table without anything around it."""
    rank = RankBuilder(-1, StringTable())
    kernels = read_kernels([path], rank, 0)
    if kernels is None or len(kernels) == 0:
        lost = rank.notes.get("destroyed-timestamps")
        seen = "times that a spreadsheet has rounded away" if lost else "a kernel table without kernels"
        raise InputError(path, seen, "Give the file the profiler wrote.")
    add_table_only(rank, kernels)
    facts: dict[str, Any] = {"rank": -1, "form": "table"}
    _label_steps(rank, kernels)
    timeline, links = ascend_trace.finish(rank, None)
    facts |= links
    ascend_steps.add_kernel_facts(facts, timeline, rank, {})
    devices = ascend_steps.device_facts(
        facts, sorted({t.device for t in timeline.tracks if t.role == "device"})
    )
    return Part(path, timeline, facts, rank.notes, devices, "Ascend kernel table")


def _not_analysed(home: Path) -> InputError:
    raw = (home / "FRAMEWORK").is_dir() or any(home.glob("PROF_*"))
    seen = "a recording that was never analysed" if raw else "an Ascend profile folder without results"
    return InputError(
        home, seen, 'Run `torch_npu.profiler.profiler.analyse("PATH")` where CANN\'s msprof is on the PATH.'
    )


def _settings(home: Path, notes: Notes) -> dict[str, Any]:
    """Facts of profiler_info*.json and profiler_metadata.json."""
    facts: dict[str, Any] = {"rank": -1}
    for path in sorted(home.glob("profiler_info*.json*"))[:1]:
        facts |= ascend_files.profiler_info(ascend_files.read_json(path, notes))
        digits = re.search(r"_(\d+)$", stem(path))
        if facts["rank"] < 0 and digits:
            facts["rank"] = rank_number(digits[1])
    if (metadata := named(home, "profiler_metadata.json")) is not None:
        facts |= ascend_files.profiler_metadata(ascend_files.read_json(metadata, notes))
    if facts["rank"] < 0 and isinstance(facts.get("parallel", {}).get("rank"), int):
        facts["rank"] = rank_number(facts["parallel"]["rank"])
    return facts


def _try_database(
    home: Path,
    mains: list[Path],
    analyses: list[Path],
    files: dict[str, Path],
    facts: dict[str, Any],
    notes: Notes,
) -> Part | None:
    """The database's view of the recording, or None with a note where it cannot be used."""
    try:
        found = ascend_db.read_rank(mains[0], facts.get("rank", -1), analyses)
    except InputError as error:
        notes.add(
            "database-unreadable",
            "warning",
            f"{mains[0].name} could not be used ({error.seen}); read the tables instead",
            1,
            mains[0].name,
        )
        return None
    if len(found.timeline) == 0 and "kernel_details" in files:
        notes.extend(found.notes)
        return None
    known = {k: v for k, v in facts.items() if v not in (-1, None) or k not in found.facts}
    merged = found.facts | known | ascend_files.statistic_tables(files, found.notes)
    found.notes.extend(notes)
    return Part(home, found.timeline, merged, found.notes, found.devices, producer_of(merged))


def _read_text(
    home: Path,
    files: dict[str, Path],
    mains: list[Path],
    analyses: list[Path],
    facts: dict[str, Any],
    notes: Notes,
) -> Part:
    rank, trace = _open_trace(files, mains, analyses, facts, notes)
    rank.notes.extend(notes)
    kernels = _kernel_table(files, rank, trace)
    facts["form"] = "text"
    if trace is not None:
        trace.add(kernels)
    elif kernels is not None:
        add_table_only(rank, kernels)
    facts |= ascend_files.statistic_tables(files, rank.notes)
    _communication(files, analyses, facts, rank)
    ascend_files.add_memory(rank, files, facts)
    _label_steps(rank, kernels)
    timeline, links = ascend_trace.finish(rank, trace)
    facts |= links
    host_steps = trace.step_ends() if trace is not None else {}
    on_host = trace is not None and trace.is_mindspore
    ascend_steps.add_kernel_facts(facts, timeline, rank, host_steps, on_host_time=on_host)
    if kernels is None and trace is None:
        if not facts.keys() & _TOLD and "trace_view" not in files:
            raise InputError(home, "tables of a profiler without a timeline",
                             "Give the folder that holds trace_view.json, kernel_details.csv or a database.")  # fmt: skip
        rank.notes.add("no-kernels", "warning",
                       "a folder has neither a trace nor a kernel table: only step times and communication are known of it",
                       )  # fmt: skip
    devices = ascend_steps.device_facts(
        facts, sorted({t.device for t in timeline.tracks if t.role == "device"})
    )
    return Part(home, timeline, facts, rank.notes, devices, producer_of(facts, trace))


def _open_trace(
    files: dict[str, Path], mains: list[Path], analyses: list[Path], facts: dict[str, Any], notes: Notes
) -> tuple[RankBuilder, Trace | None]:
    del mains, analyses
    number = int(facts.get("rank", -1))
    path = files.get("trace_view")
    if path is None:
        notes.add("no-trace-view", "warning",
                  "there is no trace_view.json: no host activity, no streams of waits and copies, no links to operators")  # fmt: skip
        return RankBuilder(number, StringTable()), None
    try:
        return ascend_trace.load_trace(path, number)
    except (InputError, OSError, MemoryError) as error:
        seen = error.seen if isinstance(error, InputError) else str(error)
        notes.add(
            "trace-unreadable",
            "data_loss",
            f"trace_view.json could not be read ({seen}); the tables were read alone",
        )
        return RankBuilder(number, StringTable()), None


def _kernel_table(files: dict[str, Path], rank: RankBuilder, trace: Trace | None) -> Kernels | None:
    path = files.get("kernel_details")
    if path is None:
        return None
    devices = trace.devices if trace is not None else []
    kernels = read_kernels([path], rank, devices[0] if len(devices) == 1 else 0)
    if kernels is not None and trace is not None and len(set(kernels.device.tolist())) == 1:
        trace.call_device(int(kernels.device[0]))
    return kernels


def read_kernels(paths: list[Path], rank: RankBuilder, device: int) -> Kernels | None:
    """The kernel table of one file or of the slices of one, or None with a note."""
    found: list[Kernels] = []
    for path in paths:
        table = ascend_files.load_table(path, rank.notes)
        if table is None or table.rows == 0:
            continue
        try:
            kernels, timeless = kernels_from_table(table, rank.strings, device)
        except DestroyedTimes as error:
            ascend_files.note_destroyed(path, error, rank.notes)
            continue
        rank.notes.add(
            "span-without-time", "data_loss", "spans without a readable start were left out", timeless
        )
        found.append(kernels)
    return join_kernels(found)


def join_kernels(parts: list[Kernels]) -> Kernels | None:
    """Slices of one table as one."""
    if len(parts) < 2:
        return parts[0] if parts else None
    import dataclasses

    import numpy as np

    columns: dict[str, Any] = {
        f.name: np.concatenate([getattr(p, f.name) for p in parts])
        for f in dataclasses.fields(Kernels)
        if f.name != "args"
    }
    joined = Kernels(**columns)
    base = 0
    for part in parts:
        for column in part.args:
            joined.args.append(dataclasses.replace(column, rows=column.rows + base))
        base += len(part)
    return joined


def add_table_only(rank: RankBuilder, kernels: Kernels) -> None:
    """A kernel table without a trace: kernels on their streams, nothing else."""
    rank.add_tasks(*_no_tasks(), kernels)


def _no_tasks() -> tuple[Any, Any]:
    import numpy as np

    from stallscope.profiler.readers.ascend_rank import DeviceTasks, GroupOps

    i8, i4 = np.zeros(0, np.int64), np.zeros(0, np.int32)
    return DeviceTasks(i8, i8, i4, i4, i8, i4, i8, np.zeros(0, bool)), GroupOps(i8, i8, i4, i4, i8, i8)


def _label_steps(rank: RankBuilder, kernels: Kernels | None) -> None:
    """The device range of each step as a label, so that steps show where the host was not recorded."""
    import numpy as np

    from stallscope.profiler.kinds import Kind

    if kernels is None:
        return
    for device in distinct(kernels.device).tolist():
        mine = (kernels.device == device) & (kernels.step >= 0)
        rows = np.flatnonzero(mine)
        if len(rows) == 0:
            continue
        rows = rows[np.argsort(kernels.step[rows], kind="stable")]
        steps, begin = np.unique(kernels.step[rows], return_index=True)
        starts = np.minimum.reduceat(kernels.start_ns[rows], begin)
        ends = np.maximum.reduceat(kernels.end_ns[rows], begin)
        rank.builder.add(
            track=rank.label_track("Steps on the device", device),
            start_ns=starts,
            dur_ns=ends - starts,
            name=rank.strings.codes([f"ProfilerStep#{s}" for s in steps.tolist()]),
            kind=Kind.DEVICE_ANNOTATION,
        )


def _communication(
    files: dict[str, Path], analyses: list[Path], facts: dict[str, Any], rank: RankBuilder
) -> None:
    """communication.json and its matrix; analysis.db says the same where these are missing."""
    for name, key, convert in (
        ("communication", "communication", ascend_files.communication),
        ("communication_matrix", "communication_matrix", ascend_files.communication_matrix),
    ):
        if name in files and (document := ascend_files.read_json(files[name], rank.notes)) is not None:
            facts[key] = convert(document)
    for path in analyses:
        try:
            for key, rows in ascend_analysis.analysis_facts(path).items():
                facts.setdefault(key, rows)
        except InputError as error:
            rank.notes.add(
                "database-unreadable",
                "warning",
                f"{path.name} could not be used ({error.seen})",
                1,
                path.name,
            )


def producer_of(facts: dict[str, Any], trace: Trace | None = None) -> str:
    """Who wrote the recording, with versions where it says so."""
    if "mindspore_version" in facts or (trace is not None and trace.is_mindspore):
        name = f"MindSpore {facts.get('mindspore_version', '')}".strip()
    else:
        name = f"torch_npu {facts.get('torch_npu_version', '')}".strip()
    return name + (f", CANN {facts['cann_version']}" if "cann_version" in facts else "")
