"""What `stallscope run` costs the target: CPU and wall time against plain python, in interleaved pairs.

    python benchmarks/overhead.py                 all workloads, 5 pairs each
    python benchmarks/overhead.py --only start    one of them
    python benchmarks/overhead.py --pairs 9

Each pair runs the same script plainly and recorded, one right after the other, so that a busy machine
disturbs both alike; the table shows medians over the pairs. CPU time is the target's own, user and
system, as it measures itself over its loop (`loop`) and as the kernel counts the whole process (`total`,
which holds start-up and closing the windows, but not the launcher).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

LOOP = """
import json, sys, time
def measure(run):
    cpu, wall = time.process_time(), time.perf_counter()
    run()
    loop = time.process_time() - cpu, time.perf_counter() - wall
    print(json.dumps({"loop_cpu": loop[0], "loop_wall": loop[1]}))
"""

WORKLOADS = {
    "start": LOOP + "measure(lambda: None)\n",
    "pure python": LOOP
    + (
        "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\n"
        "measure(lambda: [fib(20) for _ in range(200)])\n"
    ),
    "decode": LOOP
    + f"sys.path.insert(0, {str(ROOT / 'sample_traces' / 'scripts')!r})\n"
    + "import torch\ntorch.set_num_threads(1)\nfrom decode import Config, TinyLLM, generate\n"
    "model = TinyLLM(Config()).eval()\nprompt = torch.arange(1, 33).reshape(1, -1)\n"
    "with torch.inference_mode():\n    generate(model, prompt, 8, 'none', 0.0)\n"
    "    measure(lambda: generate(model, prompt, 80, 'none', 0.0))\n",
}
OPTIONS: dict[str, list[str]] = {
    "default": [],
    "no operators": ["--no-ops"],
    "operators only": ["--python", "off"],
    "every call": ["--python", "calls"],
    "marks only": ["--no-ops", "--python", "off"],
    "rate 1000": ["--rate", "1000", "--no-ops"],
}


@dataclass(frozen=True)
class Cost:
    """Seconds of one run."""

    loop_cpu: float
    loop_wall: float
    total_cpu: float


def run(command: list[str], folder: Path) -> Cost:
    """Run a command whose target prints its loop's times; the target's CPU time is that of all children."""
    before = children_cpu()
    # compiled modules are cached, as they are for a user
    env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=True)
    total = children_cpu() - before
    loop = json.loads(done.stdout.splitlines()[-1])
    return Cost(loop["loop_cpu"], loop["loop_wall"], total)


def pair(script: Path, options: list[str], folder: Path) -> tuple[Cost, Cost]:
    """The same script plainly and recorded."""
    plain = run([sys.executable, str(script)], folder)
    launcher = [sys.executable, "-c", TARGET_ONLY, *options, str(script)]
    return plain, run(launcher, folder)


TARGET_ONLY = """
import shutil, sys
from pathlib import Path
from stallscope.cli.run import _settings, command
from stallscope.profiler.recorder import launch
import click
context = command.make_context("run", sys.argv[1:])
raw = Path("recording")
shutil.rmtree(raw, ignore_errors=True)
raw.mkdir()
launch.run_target(context.meta["stallscope.target"], raw, _settings(context.params))
"""
"""Record without merging: the launcher's part of the target's time is start-up alone."""


def empty_launcher(folder: Path) -> float:
    """CPU seconds of the launcher itself, to be taken off the totals."""
    before = children_cpu()
    code = TARGET_ONLY.replace("launch.run_target(", "(lambda *a: None)(")
    subprocess.run([sys.executable, "-c", code, "x.py"], cwd=folder, check=True, capture_output=True)
    return children_cpu() - before


def children_cpu() -> float:
    """CPU seconds of all children that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--only", choices=list(WORKLOADS))
    parser.add_argument("--options", choices=list(OPTIONS), help="only this way of recording")
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stallscope-overhead-"))
    launcher = statistics.median(empty_launcher(folder) for _ in range(3))
    print(f"{'workload':<12} {'options':<15} {'loop CPU':>9} {'loop wall':>10} {'total CPU':>20}")
    for name, text in WORKLOADS.items():
        if args.only not in (None, name) or (name == "decode" and find_spec("torch") is None):
            continue
        script = folder / f"{name.replace(' ', '_')}.py"
        script.write_text(text, encoding="utf-8")
        for label, options in OPTIONS.items():
            if (name != "decode" and label not in ("default", "rate 1000")) or args.options not in (
                None,
                label,
            ):
                continue
            print(
                row(name, label, [pair(script, options, folder) for _ in range(args.pairs)], launcher),
                flush=True,
            )
    shutil.rmtree(folder)


def row(name: str, label: str, pairs: list[tuple[Cost, Cost]], launcher: float) -> str:
    """One line of the table: ratios of the loop, difference of the whole."""

    def ratio(field: str) -> str:
        values = [getattr(ours, field) / getattr(plain, field) for plain, ours in pairs]
        return f"x{statistics.median(values):.2f}"

    extra = statistics.median(ours.total_cpu - launcher - plain.total_cpu for plain, ours in pairs)
    base = statistics.median(plain.total_cpu for plain, _ in pairs)
    loops = ("-", "-") if name == "start" else (ratio("loop_cpu"), ratio("loop_wall"))
    return f"{name:<12} {label:<15} {loops[0]:>9} {loops[1]:>10} {base:>8.2f} s {1000 * extra:>+6.0f} ms"


if __name__ == "__main__":
    start = time.perf_counter()
    main()
    print(f"took {time.perf_counter() - start:.0f} s")
