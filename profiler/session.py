"""A session: one capture as plain data, with what is known about it. Saves and loads itself.

On disk it is a folder `NAME.stallscope/` of Parquet tables and one `session.json`; every table opens
in pandas, DuckDB or polars on its own. `spans.parquet` carries readable names.

A saved session is as untrusted as a trace: nothing in it is run, no path in it is followed, every table is
held against its hash, and every number that points somewhere is checked before it is used.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable
from dataclasses import field
from pathlib import Path
from typing import Any

import msgspec

from stallscope.profiler import session_check, session_tables
from stallscope.profiler.content import Content, content_of
from stallscope.profiler.errors import InputError
from stallscope.profiler.kinds import KIND_NAMES, Kind
from stallscope.profiler.light import dataclass
from stallscope.profiler.notes import Note, Notes
from stallscope.profiler.timeline import (
    Allocations,
    Counters,
    Flows,
    Marks,
    Spans,
    StringTable,
    Timeline,
    Track,
)

FORMAT = "stallscope.session"
FORMAT_VERSION = 1
"""How the folder is laid out. Other versions are refused."""
READER_VERSION = 1
"""What the columns mean: raised whenever a reader or the builder makes something else of the same bytes."""
SUFFIX = ".stallscope"
INFO_FILE = "session.json"
_MAX_INFO = 64 << 20
_AGAIN = "Analyse the original trace again."
_TABLES = ("strings", "spans", "counters", "flows", "allocations", "marks")


@dataclass
class Session:
    """Timeline, run facts and notes.

    `facts` are plain JSON values: source, producer, hardware, settings, overhead. Never an environment
    dump: real traces carry user names and tokens there. Known keys: `source` (file name without
    folder), `format`, `producer`, `devices` ({id: {"name", "memory_bytes", "cores", ...}}), `rank`,
    `world_size`, `argv`, `overhead`. `content` is the key of the file or folder it was read from, or what tells it
    (`content_later`); None for a recording of ours, which is its own source.
    """

    timeline: Timeline
    facts: dict[str, Any] = field(default_factory=dict)
    notes: Notes = field(default_factory=Notes)
    content: Content | Callable[[], Content | None] | None = None

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the session to a folder. Raises InputError if it exists and `force` is not given."""
        folder = Path(path)
        if folder.exists() and not force and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(folder, "exists already", "Choose another name or pass --force.")
        if folder.exists() and not folder.is_dir():
            raise InputError(folder, "a file, where a folder has to be", "Choose another name.")
        folder.mkdir(parents=True, exist_ok=True)
        # the info file goes first and comes last: a folder without it is an unfinished save
        (folder / INFO_FILE).unlink(missing_ok=True)
        tables = session_tables.tables(self.timeline)
        saved = {
            name: session_tables.write(folder / f"{name}.parquet", table) for name, table in tables.items()
        }
        spilled = session_tables.write_spilled(folder, self.timeline.args)
        text = json.dumps(self._info(saved | spilled), ensure_ascii=False, indent=1)
        unfinished = folder / f"{INFO_FILE}.part"
        unfinished.write_text(text, encoding="utf-8", errors="replace")
        unfinished.replace(folder / INFO_FILE)
        return folder

    def _info(self, saved: dict[str, session_tables.Saved]) -> dict[str, Any]:
        content = self.content() if callable(self.content) else self.content
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "reader": READER_VERSION,
            "content": dataclasses.asdict(content) if content is not None else None,
            "tables": {name: dataclasses.asdict(table) for name, table in saved.items()},
            "origin_ns": self.timeline.origin_ns,
            "clock": self.timeline.clock,
            "tracks": [dataclasses.asdict(t) for t in self.timeline.tracks],
            "arg_keys": self.timeline.args.keys,
            "kinds": {str(int(k)): KIND_NAMES[k] for k in Kind},
            "facts": self.facts,
            "notes": [dataclasses.asdict(n) for n in self.notes],
        }

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Session:
        """Read a saved session.

        Raises InputError for what is none, is damaged or unfinished, comes from another format or reader
        version, or was made from a trace that lies beside it and has changed since.
        """
        folder = Path(path)
        info = _read_info(folder)
        notes = Notes(info.notes)
        _check_reader(folder, info, notes)
        _check_source(folder, info.content)
        timeline = _timeline(folder, info)
        fault = session_check.fault(timeline)
        if fault:
            raise InputError(folder, f"its tables do not fit together ({fault})", _AGAIN)
        return cls(timeline, info.facts, notes, info.content)


def is_session(path: Path) -> bool:
    """Whether a folder holds a saved session."""
    return path.is_dir() and (path / INFO_FILE).is_file()


def is_unfinished(path: Path) -> bool:
    """Whether a folder holds the tables of a session, but not the file that is written last."""
    return path.is_dir() and not is_session(path) and (path / "spans.parquet").is_file()


_Facts = dict[str, Any]
_FACT_TYPES: dict[str, Any] = {
    **dict.fromkeys(("source", "format", "producer"), str),
    **dict.fromkeys(("rank", "world_size"), int),
    **dict.fromkeys(("host", "framework", "settings", "clock", "overhead", "distributed"), _Facts),
    **dict.fromkeys(("windows", "processes", "host_threads"), list[_Facts]),
    "devices": dict[str, _Facts],
    "ascend": _Facts,
}
"""The shape of facts that later stages look into; other facts are only shown."""


class _Info(msgspec.Struct):
    """What `session.json` says. Fields with a default are missing in sessions saved before they came."""

    origin_ns: int
    clock: str
    tracks: list[Track]
    arg_keys: list[str]
    facts: dict[str, Any]
    notes: list[Note]
    reader: int = 1
    content: Content | None = None
    tables: dict[str, session_tables.Saved] = {}
    kinds: dict[str, str] = {}


def _read_info(folder: Path) -> _Info:
    document = _read_json(folder)
    if document.get("format") != FORMAT:
        raise InputError(folder, f"{INFO_FILE} is not a stallscope session", _AGAIN)
    version = document.get("version")
    if version != FORMAT_VERSION:
        newer = isinstance(version, int) and version > FORMAT_VERSION
        raise InputError(
            folder,
            f"saved by {'a newer' if newer else 'another'} stallscope (session format {str(version)[:20]}, "
            f"this one reads {FORMAT_VERSION})",
            "Update stallscope, or analyse the original trace again." if newer else _AGAIN,
        )
    try:
        info = msgspec.convert(document, _Info)
        for name, kind in _FACT_TYPES.items():
            if name in info.facts:
                msgspec.convert(info.facts[name], kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise InputError(folder, f"{INFO_FILE} is damaged ({str(error)[:200]})", _AGAIN) from None
    if not abs(info.origin_ns) < 1 << 63:
        raise InputError(folder, f"{INFO_FILE} is damaged (origin_ns is no time)", _AGAIN)
    return info


def _read_json(folder: Path) -> dict[str, Any]:
    path = folder / INFO_FILE
    try:
        if path.stat().st_size > _MAX_INFO:
            raise InputError(folder, f"{INFO_FILE} is longer than any session's", _AGAIN)
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise InputError(
            folder, f"no {INFO_FILE} in it", "A saved session is a folder NAME.stallscope."
        ) from None
    except OSError as error:
        raise InputError(folder, f"{INFO_FILE} cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise InputError(folder, f"{INFO_FILE} is damaged ({str(error)[:200]})", _AGAIN) from None
    if not isinstance(document, dict):
        raise InputError(folder, f"{INFO_FILE} is not a stallscope session", _AGAIN)
    return document


def _check_reader(folder: Path, info: _Info, notes: Notes) -> None:
    """Columns that another reader made may mean something else."""
    known = {str(int(k)): name for k, name in KIND_NAMES.items()}
    newer = info.reader > READER_VERSION or any(known.get(k) != name for k, name in info.kinds.items())
    if newer:
        raise InputError(
            folder,
            f"saved by another stallscope (reader version {info.reader}, this one has {READER_VERSION})",
            "Update stallscope, or analyse the original trace again.",
        )
    if info.reader == READER_VERSION:
        return
    if info.content is not None:
        raise InputError(
            folder,
            f"stale: made by an older reader (version {info.reader}, this stallscope has {READER_VERSION})",
            f"Analyse {info.content.shown} again with --save --force.",
        )
    # a recording has no source to read again
    notes.add("older-reader", "warning", "the recording was saved by an older stallscope; "
              f"its reader (version {info.reader}) may have understood less than this one's")  # fmt: skip


def _check_source(folder: Path, content: Content | None) -> None:
    """Refuse a session whose trace lies beside it and is not what it was. Elsewhere nobody looks."""
    if content is None or not content.is_plain_name:
        return
    beside = Path(os.path.abspath(folder)).parent / content.name
    if beside.is_symlink() or not beside.exists():
        return
    if content_of(beside) != content:
        raise InputError(
            folder,
            f"made from {content.shown}, which lies beside it and has changed since",
            f"Analyse {content.shown} again (--save --force replaces the session), or move one of them away.",
        )


def _timeline(folder: Path, info: _Info) -> Timeline:
    tables, opened = session_tables.read_all(folder, info.tables, _TABLES)
    strings = StringTable(tables["strings"]["text"])

    def build(kind: Any, name: str) -> Any:
        with session_tables.told(folder / f"{name}.parquet"):
            return kind(**session_tables.coded(tables[name], strings, kind))

    spans, arguments = build(Spans, "spans"), opened["args"]
    session_tables.put_off(spans, opened["spans"], strings)
    sources = session_check.most_sources(len(spans), arguments.rows)
    spill = session_tables.spilled(folder, info.tables.get(session_tables.SPILLED))
    store = session_tables.SavedArgs(strings, info.arg_keys, arguments, sources, spill)
    return Timeline(
        strings=strings,
        spans=spans,
        tracks=info.tracks,
        args=store,
        origin_ns=info.origin_ns,
        clock=info.clock,
        counters=build(Counters, "counters"),
        flows=build(Flows, "flows"),
        allocations=build(Allocations, "allocations"),
        marks=build(Marks, "marks"),
    )


__all__ = ["FORMAT", "FORMAT_VERSION", "INFO_FILE", "READER_VERSION", "SUFFIX", "Session", "is_session"]
