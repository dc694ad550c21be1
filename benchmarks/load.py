"""What it costs to load and analyse a trace of a gigabyte, against a floor and against other tools.

    python benchmarks/load.py TRACE [TRACE ...] [--size 1000] [--hta PYTHON] [--keep FILE]

Real traces are repeated, with their times and ids shifted, into one .json.gz of at least `--size` megabytes
in the producer's own layout. Each contender then runs in a process of its own, so that CPU seconds (user and
system) and peak memory are its own; each runs `--rounds` times in turns, and the median is printed.

    inflate    gzip decoding alone
    floor      gzip decoding and the bare tokeniser: every byte parsed, nothing kept
    tokens     to exact columns, all arguments kept
    load       to a timeline: the call tree, launch links and device lanes made
    rules      load, and all rules
    html       load, all rules, and the HTML report
    msgspec, orjson   decode the same bytes to Python objects, as a reference
    hta        HolisticTraceAnalysis; --hta names the Python of an environment that has it

Needs the `isal` package for the floor. Nothing is fetched.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ID_KEYS = rb"correlation|External id|Ev Idx|Python id|Python parent id"
_SHIFTED = re.compile(
    rb'(?P<ts>"ts":\s*"?)(?P<time>-?\d+(?:\.\d+)?)|(?P<key>"(?:'
    + ID_KEYS
    + rb'|id)":\s*)(?P<id>\d+)(?=[,\s}])'
)


# -- the input -------------------------------------------------------------------------------------


class Template:
    """One real trace, cut up so that its times and ids can be printed anew."""

    def __init__(self, path: Path) -> None:
        import msgspec

        from stallscope.profiler.readers.source import Source

        text = b"".join(Source(path).chunks())
        document = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        self.head = {k: msgspec.json.decode(v) for k, v in document.items() if k != "traceEvents"}
        # raw values lose their indentation; the producer's own line breaks inside an event stay
        self.pieces: list[tuple[bytes, list[tuple[bool, int]]]] = []
        low, high, self.ids = 1 << 62, 0, 0
        for raw in msgspec.json.decode(document["traceEvents"], type=list[msgspec.Raw]):
            event = bytes(raw)
            if b'"ph": "X"' in event or b'"ph":"X"' in event:
                match = re.search(rb'"ts":\s*"?(\d+(?:\.\d+)?)', event)
                if match and float(match[1]) > 1e6:
                    low = min(low, _ns(match[1]))
                    high = max(high, _ns(match[1]))
        for raw in msgspec.json.decode(document["traceEvents"], type=list[msgspec.Raw]):
            self._cut(bytes(raw), low)
        self.span = high - low + 1_000_000

    def _cut(self, event: bytes, low: int) -> None:
        numbers: list[tuple[bool, int]] = []
        text, at = b"", 0
        for match in _SHIFTED.finditer(event):
            is_time = match["time"] is not None
            value = _ns(match["time"]) - low if is_time else int(match["id"])
            if is_time and value < 0:
                return  # metadata at time 0, once per file in reality
            numbers.append((is_time, value))
            self.ids = max(self.ids, 0 if is_time else value)
            text += event[at : match.start()].replace(b"%", b"%%") + (match["ts"] or match["key"])
            text += b"%d.%03d" if is_time else b"%d"
            at = match.end()
        self.pieces.append((text + event[at:].replace(b"%", b"%%"), numbers))

    def events(self, time_ns: int, id_base: int) -> Iterator[bytes]:
        for text, numbers in self.pieces:
            values: list[int] = []
            for is_time, value in numbers:
                if is_time:
                    values += divmod(value + time_ns, 1000)
                else:
                    values.append(value + id_base)
            yield text % tuple(values)


def _ns(text: bytes) -> int:
    whole, _, part = text.partition(b".")
    return int(whole) * 1000 + int((part + b"000")[:3])


def make(traces: list[Path], out: Path, size: int) -> tuple[int, int]:
    """Write at least `size` bytes of JSON, gzipped; returns (events, bytes)."""
    import zlib

    templates = [Template(path) for path in traces]
    events = written = ids = 0
    clock = 1_419_117_003_000
    squeeze = zlib.compressobj(4, zlib.DEFLATED, 31)
    with out.open("wb") as file:
        head: dict[str, Any] = {
            key: value
            for key, value in templates[0].head.items()
            if key in ("schemaVersion", "deviceProperties")
        }
        head["displayTimeUnit"] = "ms"
        head["baseTimeNanoseconds"] = 1751410836000000000
        start = json.dumps(head, indent=2).encode()[:-2] + b',\n  "traceEvents": [\n  '
        file.write(squeeze.compress(start))
        written += len(start)
        first = True
        while written < size:
            for template in templates:
                body = b",\n  ".join(template.events(clock, ids))
                body = body if first else b",\n  " + body
                first = False
                file.write(squeeze.compress(body))
                events += len(template.pieces)
                written += len(body)
                clock += template.span
                ids += template.ids + 10
        file.write(squeeze.compress(b"\n  ]\n}\n") + squeeze.flush())
    return events, written


# -- the contenders --------------------------------------------------------------------------------


def one_inflate(path: Path) -> str:
    from stallscope.profiler.readers.source import Source

    return f"{sum(len(chunk) for chunk in Source(path).chunks(ahead=False)) / 1e6:.0f} MB"


def one_floor(path: Path) -> str:
    from stallscope.profiler import kernels
    from stallscope.profiler.notes import Notes
    from stallscope.profiler.readers.event_repair import Mender
    from stallscope.profiler.readers.source import Source

    core = kernels.core.Tokeniser(Mender(Notes()), keep=False)
    started = False
    for chunk in Source(path).chunks():
        if not started:
            chunk = chunk[chunk.index(b'"traceEvents": [') + 16 :]
            core.begin(0)
            started = True
        core.feed(chunk)
    return f"{core.counts()['rows']} rows"


def one_tokens(path: Path) -> str:
    from stallscope.profiler.readers.trace_events import tokenise

    raw = tokenise(path)
    return f"{len(raw)} rows, {len(raw.args)} arguments, {len(raw.strings)} texts"


def one_load(path: Path) -> str:
    from stallscope.profiler.readers import load

    session = load(path)
    return f"{len(session.timeline)} spans"


def _analysed(path: Path) -> tuple[Any, Any]:
    from stallscope.analyzers import analyze
    from stallscope.profiler.readers import load

    session = load(path)
    return session, analyze(session)


def one_rules(path: Path) -> str:
    return f"{len(_analysed(path)[1].findings)} findings"


def one_html(path: Path) -> str:
    from stallscope.exporters import html

    session, report = _analysed(path)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "report.html"
        html.export(session, report, out)
        return f"{out.stat().st_size / 1e6:.1f} MB of HTML"


def _inflated(path: Path) -> bytes:
    from stallscope.profiler.readers.source import Source

    return b"".join(Source(path).chunks())


def one_msgspec(path: Path) -> str:
    import msgspec

    return f"{len(msgspec.json.decode(_inflated(path))['traceEvents'])} dicts"


def one_orjson(path: Path) -> str:
    import orjson

    return f"{len(orjson.loads(_inflated(path))['traceEvents'])} dicts"


HTA = """
import sys, warnings
warnings.filterwarnings("ignore")
from hta.common.trace_parser import parse_trace_dataframe
from hta.configs.parser_config import ParserConfig
meta, frame, *_ = parse_trace_dataframe(sys.argv[1], ParserConfig.get_default_cfg())
print(len(frame), "rows of a DataFrame")
"""

CONTENDERS = {name[4:]: f for name, f in list(globals().items()) if name.startswith("one_")}
REPEATED = ("inflate", "floor", "tokens", "load", "rules", "html")


def measure(command: list[str]) -> dict[str, Any]:
    """Run a command; its CPU seconds, wall seconds, peak MiB and last line of output."""
    start = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - start
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    said = lines[-1] if lines else ""
    if child.returncode:
        said = f"failed ({child.returncode}): {said[:100]}"
    return {
        "cpu": usage.ru_utime + usage.ru_stime,
        "wall": wall,
        "peak": usage.ru_maxrss / 1024,
        "said": said,
        "failed": bool(child.returncode),
    }


def commands(path: Path, names: list[str], hta: str | None) -> dict[str, list[str]]:
    out = {name: [sys.executable, __file__, "--one", name, str(path)] for name in names if name != "hta"}
    if hta:
        out["hta"] = [hta, "-c", HTA, str(path)]
    return out


def report(
    path: Path, events: int, names: list[str], rounds: int, hta: str | None
) -> dict[str, dict[str, Any]]:
    runs: dict[str, list[dict[str, Any]]] = {}
    for turn in range(rounds):
        for name, command in commands(path, names, hta).items():
            if turn and name not in REPEATED:
                continue
            runs.setdefault(name, []).append(measure(command))
    print(f"{'':10}{'CPU s':>9}{'wall s':>9}{'peak MiB':>10}{'ns/event':>10}{'x floor':>9}")
    medians: dict[str, dict[str, Any]] = {}
    for name, results in runs.items():
        good = [r for r in results if not r["failed"]]
        if not good:
            print(f"{name:10}{results[0]['said']}")
            continue
        middle = {k: statistics.median(r[k] for r in good) for k in ("cpu", "wall", "peak")}
        medians[name] = middle
        floor = medians.get("floor", {}).get("cpu", float("nan"))
        print(f"{name:10}{middle['cpu']:9.2f}{middle['wall']:9.2f}{middle['peak']:10.0f}"
              f"{middle['cpu'] / events * 1e9:10.0f}{middle['cpu'] / floor:9.2f}  {good[0]['said']}")  # fmt: skip
    return medians


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--size", type=int, default=1000, help="megabytes of JSON to make")
    parser.add_argument(
        "--keep", type=Path, help="keep the made trace in this file, and use it if it is there"
    )
    parser.add_argument("--only", default="inflate,floor,tokens,load,rules,html,msgspec,orjson")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis installed")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        counts = make(options.traces, options.make, options.size * 1_000_000)
        options.make.with_suffix(".count").write_text("{} {}".format(*counts))
        return
    if options.one:
        print(CONTENDERS[options.one](options.traces[0]))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = options.keep or Path(folder) / "made.json.gz"
        note = path.with_suffix(".count")
        if path.exists() and note.exists():
            events, size = map(int, note.read_text().split())
        else:
            # in a process of its own: a child's peak memory counts what its parent held when it was started
            made = [
                sys.executable,
                __file__,
                "--make",
                str(path),
                "--size",
                str(options.size),
                *options.traces,
            ]
            subprocess.run([str(part) for part in made], check=True)
            events, size = map(int, note.read_text().split())
        print(f"{events} events, {size / 1e6:.0f} MB of JSON, {path.stat().st_size / 1e6:.0f} MB gzipped")
        report(path, events, options.only.split(","), options.rounds, options.hta)


if __name__ == "__main__":
    main()
