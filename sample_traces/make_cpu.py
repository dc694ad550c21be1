"""Record the CPU sample sessions again: `python sample_traces/make_cpu.py`.

Each is `scripts/decode.py` under `stallscope run`, with one known fault. They are real recordings, so times
differ from machine to machine; what must come out of each is in `cpu/EXPECTED.toml`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from stallscope.profiler.session import Session

HERE = Path(__file__).parent
SAMPLES: dict[str, tuple[str, ...]] = {
    "healthy": ("--fault", "none", "--steps", "12"),
    "python_gap": ("--fault", "python", "--steps", "12"),
    "item": ("--fault", "item", "--steps", "12"),
    # the host is sampled ten times a second: contention needs a run of some seconds to be seen
    "threads": ("--fault", "threads", "--steps", "400"),
}
"""Name of the sample -> arguments of the script."""
WINDOW = "2:13"
"""Operators of 13 steps after the warm-up are recorded; a sample stays below half a megabyte."""


def record(name: str, arguments: tuple[str, ...]) -> None:
    """Record one sample over the one that is there. Raises CalledProcessError if the run fails."""
    script = HERE / "scripts" / "decode.py"
    with tempfile.TemporaryDirectory() as folder:
        raw = Path(folder) / f"{name}.stallscope"
        run = [sys.executable, "-m", "stallscope", "run", "-q", "--window", WINDOW, "-o", str(raw)]
        subprocess.run([*run, str(script), *arguments], check=True)
        session = without_paths(Session.load(raw))
    session.save(HERE / "cpu" / f"{name}.stallscope", force=True)


def without_paths(session: Session) -> Session:
    """The session with the folders of this machine cut out of every text."""
    folders = {
        f"{HERE.parent}/": "",
        f"{sys.prefix}/": "venv/",
        f"{sys.base_prefix}/": "python/",
        f"{Path.home()}/": "~/",
    }

    def cut(text: str) -> str:
        for folder, short in folders.items():
            text = text.replace(folder, short)
        return text

    strings = session.timeline.strings
    strings.texts = [cut(text) for text in strings.texts]
    session.facts = json.loads(cut(json.dumps(session.facts)))
    return session


if __name__ == "__main__":
    (HERE / "cpu").mkdir(exist_ok=True)
    for sample, planted in SAMPLES.items():
        record(sample, planted)
