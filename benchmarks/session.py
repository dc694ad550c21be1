"""What a saved session costs: to write, on disk, and to open again, against reading its trace.

    python benchmarks/session.py TRACE [TRACE ...] [--size 1400] [--keep FILE]

Makes a trace as `load.py` does, reads it, saves the session and opens that; each step in a process of its own,
in turns, median of `--rounds`. CPU seconds are user and system with the start of Python left out.

    read       the trace to a timeline
    save       that, and write the session
    open       the saved session to a timeline; arguments are left on disk until one is asked for
    arguments  that, and all arguments
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent


def step_start(trace: Path, saved: Path) -> None:
    import stallscope.profiler.readers  # noqa: F401 -- what every step pays


def step_read(trace: Path, saved: Path) -> None:
    from stallscope.profiler.readers import load

    print(f"{len(load(trace).timeline)} spans")


def step_save(trace: Path, saved: Path) -> None:
    from stallscope.profiler.readers import load

    load(trace).save(saved, force=True)


def step_open(trace: Path, saved: Path) -> None:
    from stallscope.profiler.readers import load

    print(f"{len(load(saved).timeline)} spans")


def step_arguments(trace: Path, saved: Path) -> None:
    from stallscope.profiler.readers import load

    args = load(saved).timeline.args
    print(f"{len(args.event)} arguments")


STEPS = {name[5:]: f for name, f in list(globals().items()) if name.startswith("step_")}


def made(options: argparse.Namespace, folder: Path) -> tuple[Path, int]:
    """The trace to measure with, and its number of events."""
    path: Path = options.keep or folder / "made.json.gz"
    note = path.with_suffix(".count")
    if not (path.exists() and note.exists()):
        size = ["--size", str(options.size)]
        command = [
            sys.executable,
            str(HERE / "load.py"),
            "--make",
            str(path),
            *size,
            *map(str, options.traces),
        ]
        subprocess.run(command, check=True)
    return path, int(note.read_text().split()[0])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--size", type=int, default=1400, help="megabytes of JSON to make")
    parser.add_argument(
        "--keep", type=Path, help="keep the made trace in this file, and use it if it is there"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        STEPS[options.step](*options.traces)
        return
    from load import measure

    with tempfile.TemporaryDirectory() as folder:
        trace, events = made(options, Path(folder))
        saved = Path(folder) / "made.stallscope"
        print(f"{events} events, {trace.stat().st_size / 1e6:.0f} MB gzipped")
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in STEPS}
        said = dict.fromkeys(STEPS, "")
        for _ in range(options.rounds):
            for name in STEPS:
                command = [sys.executable, __file__, "--step", name, str(trace), str(saved)]
                result = measure(command)
                said[name] = result.pop("said")
                runs[name].append(result)
            time.sleep(0.2)
        middle = {n: {k: statistics.median(r[k] for r in rs) for k in rs[0]} for n, rs in runs.items()}
        start = middle["start"]["cpu"]
        print(f"{'':10}{'CPU s':>8}{'wall s':>8}{'peak MiB':>10}{'read / this':>13}")
        for name, m in middle.items():
            ratio = (middle["read"]["cpu"] - start) / (m["cpu"] - start) if name != "start" else float("nan")
            print(f"{name:10}{m['cpu']:8.2f}{m['wall']:8.2f}{m['peak']:10.0f}{ratio:13.1f}  {said[name]}")
        sizes = {p.name: p.stat().st_size / 1e6 for p in sorted(saved.iterdir())}
        whole = sum(sizes.values())
        print(f"session: {whole:.1f} MB, {whole / events * 1e7:.0f} MB per 10 million events: "
              + ", ".join(f"{name} {size:.1f}" for name, size in sizes.items() if size >= 0.05))  # fmt: skip


if __name__ == "__main__":
    main()
