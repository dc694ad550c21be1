"""Every trace of a folder in one command: does it load, or is it refused with a sentence, and is nothing lost?

    python benchmarks/corpus.py FOLDER [FOLDER ...]

For trace-event files the number of events per phase, of arguments and of distinct names is compared with
what the standard library's JSON decoder sees. Ends with status 1 if anything differs or fails.
"""

from __future__ import annotations

import collections
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from stallscope.profiler.errors import InputError
from stallscope.profiler.readers import load, source
from stallscope.profiler.readers.trace_events import RawEvents, tokenise


def independent(path: Path) -> list[Any] | None:
    """The events as the standard library reads them; None if the file is not valid JSON."""
    try:
        document = json.loads(b"".join(source.Source(path).chunks()))
    except ValueError:
        return None
    events = document["traceEvents"] if isinstance(document, dict) else document
    return list(events)


def differences(raw: RawEvents, events: list[Any]) -> list[str]:
    """What two readers of one file disagree about."""
    dicts = [event for event in events if isinstance(event, dict)]
    phases = collections.Counter(event["ph"][:1] for event in dicts if isinstance(event.get("ph"), str))
    ours = {
        chr(letter): int(count) for letter, count in zip(*np.unique(raw.ph, return_counts=True), strict=True)
    }
    arguments = sum(len(event["args"]) for event in dicts if isinstance(event.get("args"), dict))
    names = {event["name"] for event in dicts if isinstance(event.get("name"), str)}
    our_names = {raw.strings[code] for code in np.unique(raw.name[raw.name >= 0])}
    pairs = {
        "events": (len(raw), len(events)),
        "phases": ({k: v for k, v in ours.items() if k != "\0"}, dict(phases)),
        "arguments": (len(raw.args), arguments),
        "names": (len(our_names & names), len(names)),
    }
    return [f"{what}: {mine} against {theirs}" for what, (mine, theirs) in pairs.items() if mine != theirs]


def check(path: Path) -> tuple[str, bool]:
    """One line about a file, and whether all is well."""
    start = time.process_time()
    try:
        session = load(path)
    except InputError as error:
        return f"refused: {error.seen}. {error.next_step}", True
    except Exception as error:  # noqa: BLE001 -- the point is to find these
        return f"FAILED: {type(error).__name__}: {error}", False
    spent = time.process_time() - start
    notes = ", ".join(f"{note.code} {note.count}" for note in session.notes)
    line = f"{len(session.timeline)} spans, {spent:.2f} s CPU; {notes}"
    if source.sniff(path) != "trace-events":
        return line, True
    raw, events = tokenise(path), independent(path)
    if events is None:
        return f"{line}; not valid JSON", True
    wrong = differences(raw, events)
    return (f"{line}; {len(events)} events, as independently counted", True) if not wrong else (
        f"{line}; DIFFERS: {'; '.join(wrong)}", False)  # fmt: skip


def main(folders: list[str]) -> int:
    if not folders:
        print(__doc__)
        return 2
    bad = 0
    files = [
        p
        for folder in folders
        for p in sorted(Path(folder).rglob("*"))
        if p.is_file() and p.stat().st_size < 1 << 40
    ]
    for path in files:
        line, good = check(path)
        bad += not good
        print(f"{path.parent.name}/{path.name}: {line}", flush=True)
    print(f"{len(files)} files, {bad} with a fault")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
