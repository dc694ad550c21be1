"""What loading a window costs against loading the whole and cutting it, in memory and CPU.

    python benchmarks/window.py TRACE [TRACE ...] [--size 1400] [--keep FILE]

Makes a trace as `load.py` does. Each step runs in a process of its own, in turns; the median of `--rounds`.
The window is the hundredth of the recording in its middle.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def step_start(trace: Path, window: str) -> None:
    import stallscope.profiler.readers.partial  # noqa: F401 -- what every step pays


def step_whole(trace: Path, window: str) -> None:
    from stallscope.profiler.readers import load

    print(f"{len(load(trace).timeline)} spans")


def step_cut(trace: Path, window: str) -> None:
    from stallscope.profiler.part import part
    from stallscope.profiler.readers import load

    print(f"{len(part(load(trace), window=window).timeline)} spans")


def step_window(trace: Path, window: str) -> None:
    from stallscope.profiler.readers.partial import load_part

    print(f"{len(load_part(trace, window=window).timeline)} spans")


STEPS = {name[5:]: f for name, f in list(globals().items()) if name.startswith("step_")}


def middle_of(trace: Path) -> str:
    """The window, found in a process of its own, whose memory is not inherited."""
    code = (
        "import sys; from stallscope.profiler.readers import load; "
        "s = load(sys.argv[1]).timeline.spans; print(int(s.end_ns.max()))"
    )
    end = int(
        subprocess.run([sys.executable, "-c", code, str(trace)], check=True, capture_output=True).stdout
    )
    return f"{end // 2}ns..{end // 2 + end // 100}ns"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--size", type=int, default=1400, help="megabytes of JSON to make")
    parser.add_argument(
        "--keep", type=Path, help="keep the made trace in this file, and use it if it is there"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--step", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step:
        STEPS[options.step[0]](options.traces[0], options.step[1])
        return
    from load import measure
    from session import made

    with tempfile.TemporaryDirectory() as folder:
        trace, events = made(options, Path(folder))
        window = middle_of(trace)
        print(f"{events} events, {trace.stat().st_size / 1e6:.0f} MB gzipped; --window {window}")
        runs: dict[str, list[dict[str, float]]] = {name: [] for name in STEPS}
        said = dict.fromkeys(STEPS, "")
        for _ in range(options.rounds):
            for name in STEPS:
                result = measure([sys.executable, __file__, str(trace), "--step", name, window])
                said[name] = str(result.pop("said"))
                runs[name].append(result)
        print(f"{'':10}{'CPU s':>8}{'wall s':>8}{'peak MiB':>10}")
        for name, results in runs.items():
            cpu, wall, peak = (statistics.median(r[k] for r in results) for k in ("cpu", "wall", "peak"))
            print(f"{name:10}{cpu:8.2f}{wall:8.2f}{peak:10.0f}  {said[name]}")


if __name__ == "__main__":
    main()
