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

import tempfile
from pathlib import Path

from turns import arguments, made, measured, steps_in


def step_start(trace: str, saved: str) -> None:
    import stallscope.profiler.readers  # noqa: F401 -- what every step pays


def step_read(trace: str, saved: str) -> None:
    from stallscope.profiler.readers import load

    print(f"{len(load(trace).timeline)} spans")


def step_save(trace: str, saved: str) -> None:
    from stallscope.profiler.readers import load

    load(trace).save(saved, force=True)


def step_open(trace: str, saved: str) -> None:
    from stallscope.profiler.readers import load

    print(f"{len(load(saved).timeline)} spans")


def step_arguments(trace: str, saved: str) -> None:
    from stallscope.profiler.readers import load

    args = load(saved).timeline.args
    print(f"{len(args.event)} arguments")


STEPS = steps_in(globals())


def main() -> None:
    options = arguments(__doc__, STEPS, rounds=5)
    if options is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        trace, events = made(options, Path(folder))
        saved = Path(folder) / "made.stallscope"
        print(f"{events} events, {trace.stat().st_size / 1e6:.0f} MB gzipped")
        middle, said = measured(__file__, STEPS, options.rounds, trace, saved)
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
