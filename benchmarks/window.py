"""What loading a window or some steps costs against loading the whole and cutting it, in memory and CPU.

    python benchmarks/window.py TRACE [TRACE ...] [--size 1400] [--keep FILE]

Makes a trace as `load.py` does. Each step runs in a process of its own, in turns; the median of `--rounds`.
The window is the hundredth of the recording in its middle, the steps the hundredth of all steps there; a trace without
named steps has to be read whole for them.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from turns import arguments, made, measured, steps_in


def step_start(trace: str, window: str, steps: str) -> None:
    import stallscope.profiler.readers.partial  # noqa: F401 -- what every step pays


def step_whole(trace: str, window: str, steps: str) -> None:
    from stallscope.profiler.readers import load

    print(f"{len(load(trace).timeline)} spans")


def step_cut(trace: str, window: str, steps: str) -> None:
    from stallscope.profiler.part import part
    from stallscope.profiler.readers import load

    print(f"{len(part(load(trace), window=window).timeline)} spans")


def step_window(trace: str, window: str, steps: str) -> None:
    from stallscope.profiler.readers.partial import load_part

    print(f"{len(load_part(trace, window=window).timeline)} spans")


def step_steps_cut(trace: str, window: str, steps: str) -> None:
    from stallscope.profiler.part import part
    from stallscope.profiler.readers import load

    print(f"{len(part(load(trace), steps=steps).timeline)} spans")


def step_steps(trace: str, window: str, steps: str) -> None:
    from stallscope.profiler.readers.partial import load_part

    session = load_part(trace, steps=steps)
    how = " (read whole)" if "part-read-whole" in session.notes else ""
    print(f"{len(session.timeline)} spans{how}")


STEPS = steps_in(globals())


def middle_of(trace: Path) -> tuple[str, str]:
    """The window and the steps, found in a process of its own, whose memory is not inherited."""
    code = (
        "import sys; from stallscope.profiler.readers import load; from stallscope.profiler.steps import find_steps; "
        "t = load(sys.argv[1]).timeline; print(int(t.spans.end_ns.max()), len(find_steps(t)))"
    )
    out = subprocess.run([sys.executable, "-c", code, str(trace)], check=True, capture_output=True).stdout
    end, steps = map(int, out.split())
    return f"{end // 2}ns..{end // 2 + end // 100}ns", f"{steps // 2}..{steps // 2 + steps // 100}"


def main() -> None:
    options = arguments(__doc__, STEPS, rounds=3)
    if options is None:
        return
    with tempfile.TemporaryDirectory() as folder:
        trace, events = made(options, Path(folder))
        window, steps = middle_of(trace)
        print(
            f"{events} events, {trace.stat().st_size / 1e6:.0f} MB gzipped; --window {window}, --steps {steps}"
        )
        middle, said = measured(__file__, STEPS, options.rounds, trace, window, steps)
        print(f"{'':10}{'CPU s':>8}{'wall s':>8}{'peak MiB':>10}")
        for name, m in middle.items():
            print(f"{name:10}{m['cpu']:8.2f}{m['wall']:8.2f}{m['peak']:10.0f}  {said[name]}")


if __name__ == "__main__":
    main()
