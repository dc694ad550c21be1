"""The forms a case can be written in, and the chip each is simulated on."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from benchmarks.planted.cases import Case
from benchmarks.planted.hardware import B3, CHIPS, Chip
from benchmarks.planted.kineto import write_kineto
from benchmarks.planted.recording import Recording

Form = Literal["kineto", "ascend-text", "ascend-db"]
FORMS: tuple[Form, ...] = ("kineto", "ascend-text", "ascend-db")


def chip_for(case: Case, form: Form) -> Chip:
    """The chip a case runs on: its own, or the NPU for the Ascend forms."""
    return CHIPS[case.chip] if form == "kineto" else B3


def write(case: Case, form: Form, folder: Path) -> Path:
    """Simulate a case and write its trace below `folder`; returns what a reader is to be given."""
    chip = chip_for(case, form)
    recording = case.run(chip)[0]
    folder.mkdir(parents=True, exist_ok=True)
    if form == "kineto":
        path = folder / f"{case.id}.json"
        return write_kineto(recording, chip, path, case.stack, world_of(recording), case.cpu_only)
    if form == "ascend-text":
        from benchmarks.planted.ascend_text import write_text

        return write_text(recording, chip, folder / f"{case.id}_ascend_pt", case.stack, case.cpu_only)
    from benchmarks.planted.ascend_db import write_db

    return write_db(recording, chip, folder / f"{case.id}_ascend_pt", case.stack, case.cpu_only)


def world_of(recording: Recording) -> int:
    """Two ranks where there are collectives, else one."""
    collective = any(r.kernel is not None and r.kernel.role == "collective" for r in recording.device)
    return 2 if collective else 1
