"""A session: one capture as plain data, with what is known about it. Saves and loads itself.

On disk it is a folder `NAME.stallscope/` of Parquet tables and one `session.json`; every table opens
in pandas, DuckDB or polars on its own. `spans.parquet` carries readable names.
"""

from __future__ import annotations

import dataclasses
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from stallscope.profiler.errors import InputError
from stallscope.profiler.kinds import KIND_NAMES, Kind
from stallscope.profiler.notes import Note, Notes
from stallscope.profiler.timeline import (
    Allocations,
    ArgStore,
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
SUFFIX = ".stallscope"
INFO_FILE = "session.json"


@dataclass
class Session:
    """Timeline, run facts and notes.

    `facts` are plain JSON values: source, producer, hardware, settings, overhead. Never an environment
    dump: real traces carry user names and tokens there. Known keys: `source` (file name without
    folder), `format`, `producer`, `devices` ({id: {"name", "memory_bytes", "cores", ...}}), `rank`,
    `world_size`, `argv`, `overhead`.
    """

    timeline: Timeline
    facts: dict[str, Any] = field(default_factory=dict)
    notes: Notes = field(default_factory=Notes)

    def save(self, path: str | os.PathLike[str], *, force: bool = False) -> Path:
        """Write the session to a folder. Raises InputError if it exists and `force` is not given."""
        folder = Path(path)
        if folder.exists() and not force and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(folder, "exists already", "Choose another name or pass --force.")
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in _tables(self.timeline).items():
            _write(folder / f"{name}.parquet", table)
        info = {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "origin_ns": self.timeline.origin_ns,
            "clock": self.timeline.clock,
            "tracks": [dataclasses.asdict(t) for t in self.timeline.tracks],
            "arg_keys": self.timeline.args.keys,
            "kinds": {str(int(k)): KIND_NAMES[k] for k in Kind},
            "facts": self.facts,
            "notes": [dataclasses.asdict(n) for n in self.notes],
        }
        # the info file is written last: a folder without it is an unfinished save
        (folder / INFO_FILE).write_text(json.dumps(info, ensure_ascii=False, indent=1), encoding="utf-8")
        return folder

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Session:
        """Read a saved session. Raises InputError for what is none, or is from a newer version."""
        folder = Path(path)
        info = _read_info(folder)
        if info.get("version", 0) > FORMAT_VERSION:
            raise InputError(
                folder,
                f"saved by a newer stallscope (session format {info['version']}, this one reads up to {FORMAT_VERSION})",
                "Update stallscope, or analyse the original trace again.",
            )
        tables = {}
        for name in ("strings", "spans", "args", "counters", "flows", "allocations", "marks"):
            tables[name] = _read(folder / f"{name}.parquet")
        timeline = _timeline(info, tables)
        return cls(timeline, info["facts"], Notes(Note(**n) for n in info["notes"]))


def is_session(path: Path) -> bool:
    """Whether a folder holds a saved session."""
    return path.is_dir() and (path / INFO_FILE).is_file()


def _read_info(folder: Path) -> dict[str, Any]:
    try:
        info = json.loads((folder / INFO_FILE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            folder, f"no {INFO_FILE} in it", "A saved session is a folder NAME.stallscope."
        ) from None
    except ValueError as error:
        raise InputError(
            folder, f"{INFO_FILE} is damaged ({error})", "Analyse the original trace again."
        ) from None
    if not isinstance(info, dict) or info.get("format") != FORMAT:
        raise InputError(
            folder, f"{INFO_FILE} is not a stallscope session", "Analyse the original trace again."
        )
    return info


def _tables(timeline: Timeline) -> dict[str, dict[str, Any]]:
    spans = timeline.spans
    columns = {f.name: getattr(spans, f.name) for f in dataclasses.fields(Spans)}
    columns["name"] = _dictionary(spans.name, timeline.strings)
    columns["category"] = _dictionary(spans.category, timeline.strings)
    args = timeline.args
    return {
        "strings": {"text": [_clean(t) for t in timeline.strings.texts]},
        "spans": columns,
        "args": {"event": args.event, "key": args.key, "tag": args.tag, "value": args.value},
        "counters": vars(timeline.counters) | {"name": _dictionary(timeline.counters.name, timeline.strings)},
        "flows": vars(timeline.flows) | {"name": _dictionary(timeline.flows.name, timeline.strings)},
        "allocations": dict(vars(timeline.allocations)),
        "marks": vars(timeline.marks) | {"name": _dictionary(timeline.marks.name, timeline.strings)},
    }


def _clean(text: str) -> str:
    """Parquet text is UTF-8; a lone surrogate from a damaged source is not."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _dictionary(codes: Any, strings: StringTable) -> Any:
    """A dictionary column of only the texts that occur; code -1 becomes null."""
    import pyarrow as pa

    used, compact = np.unique(codes, return_inverse=True)
    texts = [_clean(strings[int(c)]) for c in used if c >= 0]
    shift = len(used) - len(texts)
    indices = pa.array(compact.reshape(-1).astype(np.int32) - shift, mask=codes < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array(texts, pa.string()))


_DELTA = ("start_ns", "time_ns", "event")


def _write(path: Path, columns: dict[str, Any]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns)
    delta = {name: "DELTA_BINARY_PACKED" for name in table.column_names if name in _DELTA}
    plain = [name for name in table.column_names if name not in delta]
    pq.write_table(
        table,
        path,
        compression="zstd",
        use_dictionary=plain,
        column_encoding=delta or None,
        write_statistics=False,
    )


def _read(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        return pq.read_table(path, memory_map=True)
    except (OSError, pa.ArrowException) as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InputError(path, f"cannot be read ({first})", "Analyse the original trace again.") from None


def _codes(table: Any, column: str, strings: StringTable) -> Any:
    import pyarrow as pa

    chunked = table.column(column)
    if not pa.types.is_dictionary(chunked.type):
        chunked = chunked.dictionary_encode()
    out = []
    for chunk in chunked.chunks:
        translate = np.append(strings.codes(chunk.dictionary.to_pylist()), np.int32(-1))
        out.append(translate[chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False)])
    return np.concatenate(out).astype(np.int32) if out else np.zeros(0, np.int32)


def _timeline(info: dict[str, Any], tables: dict[str, Any]) -> Timeline:
    strings = StringTable(tables["strings"].column("text").to_pylist())

    def build(kind: Any, table: Any) -> Any:
        columns = {}
        for spec in dataclasses.fields(kind):
            if spec.name in ("name", "category"):
                columns[spec.name] = _codes(table, spec.name, strings)
            else:
                columns[spec.name] = table.column(spec.name).to_numpy().copy()
        return kind(**columns)

    args = tables["args"]
    store = ArgStore(
        strings,
        list(info["arg_keys"]),
        *(args.column(c).to_numpy() for c in ("event", "key", "tag", "value")),
    )
    return Timeline(
        strings=strings,
        spans=build(Spans, tables["spans"]),
        tracks=[Track(**t) for t in info["tracks"]],
        args=store,
        origin_ns=info["origin_ns"],
        clock=info["clock"],
        counters=build(Counters, tables["counters"]),
        flows=build(Flows, tables["flows"]),
        allocations=build(Allocations, tables["allocations"]),
        marks=build(Marks, tables["marks"]),
    )
