"""A raw recording of ours: what `stallscope run` leaves when it was killed before it could merge.

Reads:  the directory format described in `stallscope.profiler.recorder.format`, complete or cut anywhere.
Leaves: `busy-*` files; records of a type this version does not know (counted in a note).

`read_raw` is the file format alone; what the records mean on one timeline is `merge`.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler.errors import InputError
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Notes
from stallscope.profiler.recorder.format import (
    ANALYSIS,
    BOOT_ERRORS,
    END,
    FORMAT,
    FORMAT_VERSION,
    HOST_MEM,
    MANIFEST,
    RAW_FOLDER,
    RECORD_BYTES,
)
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import Int64

RECORD_TYPE = np.dtype(
    [("t", "<i8"), ("dur", "<i8"), ("a", "<i8"), ("tid", "<u4"), ("flags", "<u2"), ("type", "<u2")]
)
_STEM = re.compile(r"^[ph]\d{1,10}-\d{1,20}$")
_MAX_LINES_BYTES = 1 << 30

Records = npt.NDArray[np.void]


@dataclass
class RawProcess:
    """One process image: its descriptions, by kind, and its fixed records in the order written."""

    stem: str
    start: dict[str, Any] = field(default_factory=dict)
    clocks: list[tuple[int, int, int]] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)
    codes: dict[int, tuple[int, int, int]] = field(default_factory=dict)
    """Code number to (name text, file text, first line)."""
    threads: dict[int, str] = field(default_factory=dict)
    modules: list[dict[str, Any]] = field(default_factory=list)
    windows: list[dict[str, Any]] = field(default_factory=list)
    opened: set[int] = field(default_factory=set)
    """Numbers of windows that were opened and neither closed nor thrown away."""
    user_profiles: list[dict[str, Any]] = field(default_factory=list)
    notes: list[dict[str, Any]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)
    meter: dict[str, Any] = field(default_factory=dict)
    finish: dict[str, Any] | None = None
    framework: dict[str, Any] = field(default_factory=dict)
    records: Records = field(default_factory=lambda: np.zeros(0, RECORD_TYPE))
    slots: Int64 = field(default_factory=lambda: np.zeros(0, np.int64))
    """The place of each record in the file, which is how other records refer to it."""

    @property
    def pid(self) -> int:
        return int(self.start.get("pid", 0))

    def text(self, number: int) -> str:
        return self.texts.get(int(number), "?")

    def of_type(self, *types: int) -> Records:
        """The records of some types."""
        return self.records[np.isin(self.records["type"], types)]


@dataclass
class RawRecording:
    """A whole recording directory."""

    folder: Path
    manifest: dict[str, Any]
    end: dict[str, Any] | None
    processes: list[RawProcess]
    host: dict[str, RawProcess]
    """/proc readings by the stem of the process they are about."""
    boot_errors: list[dict[str, Any]]
    notes: Notes


def raw_folder(path: Path) -> Path | None:
    """The folder that holds the raw files of a recording, for the recording's or that folder's own path."""
    for folder in (path, path / RAW_FOLDER):
        if (folder / MANIFEST).is_file():
            return folder
    return None


def sniff(path: Path) -> bool:
    """Whether a folder holds a raw recording."""
    return path.is_dir() and raw_folder(path) is not None


def read(path: Path) -> Session:
    """Read and merge a raw recording. Raises InputError where there is none."""
    from stallscope.profiler.merge import merge_recording

    return merge_recording(read_raw(path))


def read_raw(path: Path) -> RawRecording:
    """The files of a recording as plain data. Raises InputError for no recording or one of a newer version."""
    folder = raw_folder(path)
    if folder is None:
        raise InputError(
            path, f"no {MANIFEST} in it", "A recording is the folder that `stallscope run` made."
        )
    notes = Notes()
    manifest = _json_file(folder / MANIFEST)
    if manifest is None or manifest.get("format") != FORMAT:
        raise InputError(folder / MANIFEST, "not a recording's manifest", "Record the run again.")
    if not isinstance(manifest.get("version"), int) or manifest["version"] > FORMAT_VERSION:
        raise InputError(
            folder, f"recorded by another stallscope (format {manifest.get('version')})", "Update it."
        )
    processes, host = [], {}
    for file in sorted(folder.glob("*.jsonl")):
        if not _STEM.match(file.stem):
            continue
        process = _read_process(file, notes)
        if file.stem[0] == "h":
            host["p" + file.stem[1:]] = process
        elif process.start:
            processes.append(process)
    _note_analysis(folder / ANALYSIS, notes)
    errors = _json_lines(folder / BOOT_ERRORS, Notes())
    return RawRecording(folder, manifest, _json_file(folder / END), processes, host, errors, notes)


def _note_analysis(file: Path, notes: Notes) -> None:
    """What the analysis of NPU windows, after the run, could not do."""
    document = _json_file(file) or {}
    found = document.get("notes")
    for entry in found if isinstance(found, list) else []:
        if isinstance(entry, list) and len(entry) == 3 and entry[1] in ("info", "warning", "data_loss"):
            notes.add(str(entry[0]), entry[1], str(entry[2]))


def window_file(folder: Path, process: RawProcess, name: object) -> Path | None:
    """The path of a window or a user profile, if the name is one that this process could have given it."""
    if not isinstance(name, str) or not re.fullmatch(
        re.escape(process.stem) + r"-[wu]\d{1,9}(?:\.json)?", name
    ):
        return None
    path = folder / name
    return path if path.exists() and not path.is_symlink() else None


def _read_process(file: Path, notes: Notes) -> RawProcess:
    process = RawProcess(file.stem)
    for entry in _json_lines(file, notes):
        _take(process, entry)
    process.records, process.slots = _read_records(file.with_suffix(".rec"), notes)
    return process


def _take(process: RawProcess, entry: dict[str, Any]) -> None:
    """Put one description where it belongs; ill-formed ones raise nothing and are left out."""
    ev = entry.get("ev")
    number = entry.get("id", entry.get("n", entry.get("tid")))
    if ev == "start" and isinstance(entry.get("pid"), int):
        process.start = entry
    elif ev == "clock":
        reading = tuple(entry.get(k) for k in ("mono_ns", "real_ns", "width_ns"))
        if all(isinstance(v, int) for v in reading):
            process.clocks.append(reading)  # type: ignore[arg-type]
    elif ev == "text" and isinstance(number, int):
        process.texts[number] = str(entry.get("text", ""))
    elif ev == "code" and isinstance(number, int):
        values = [entry.get(k) for k in ("name", "file", "line")]
        process.codes[number] = tuple(v if isinstance(v, int) else 0 for v in values)  # type: ignore[assignment]
    elif ev == "thread" and isinstance(number, int):
        process.threads[number] = str(entry.get("name", ""))
    elif ev == "window-open" and isinstance(number, int):
        process.opened.add(number)
    elif ev == "window-discarded" and isinstance(number, int):
        process.opened.discard(number)
    elif ev == "window" and isinstance(number, int):
        process.opened.discard(number)
        process.windows.append(entry)
    elif ev == "user-profiler" and isinstance(number, int):
        process.user_profiles.append(entry)
    elif ev == "meter":
        process.meter = entry
    elif ev == "framework" and isinstance(entry.get("facts"), dict):
        process.framework = entry["facts"]
    elif ev == "finish":
        process.finish = entry
    elif ev == "resumed":
        process.finish = None
    elif isinstance(bucket := {"module": process.modules, "note": process.notes, "error": process.errors}.get(
        str(ev)), list):  # fmt: skip
        bucket.append(entry)


def _read_records(file: Path, notes: Notes) -> tuple[Records, Int64]:
    if not file.is_file():
        return np.zeros(0, RECORD_TYPE), np.zeros(0, np.int64)
    whole = file.stat().st_size // RECORD_BYTES
    records = np.fromfile(file, RECORD_TYPE, count=whole)
    # type 0: reserved space, or a record in the middle of which the process died
    slots = np.flatnonzero((records["type"] != 0) & (records["type"] <= HOST_MEM))
    unknown = int((records["type"] > HOST_MEM).sum())
    notes.add("unknown-record", "warning", "records of an unknown type were left out", unknown, file.name)
    return records[slots], slots.astype(np.int64)


def _json_file(file: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _json_lines(file: Path, notes: Notes) -> list[dict[str, Any]]:
    """The objects of a file, one a line; a cut or damaged line costs only itself."""
    if not file.is_file() or file.stat().st_size > _MAX_LINES_BYTES:
        return []
    out, bad = [], 0
    with file.open("rb") as lines:
        for line in lines:
            try:
                value = json.loads(line)
            except ValueError:
                bad += 1
                continue
            if isinstance(value, dict):
                out.append(value)
    notes.add("damaged-line", "data_loss", "lines of the recording could not be read", bad, file.name)
    return out
