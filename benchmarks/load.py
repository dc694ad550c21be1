"""What it costs to load and analyse a trace of a gigabyte, against a floor and against other tools.

    python benchmarks/load.py TRACE [TRACE ...] [--size 1000] [--hta PYTHON] [--keep FOLDER] [--ten-million]

Real traces are repeated, with their times and ids shifted, into one .json.gz of at least `--size` megabytes
in the producer's own layout. Each contender then runs in a process of its own, so that CPU seconds (user and
system) and peak memory are its own; each runs `--rounds` times in turns. Seconds are those of the run with the least
CPU. How many times as much one needs as another is the median of that of each turn: where a machine changes its speed
from second to second, the least run of a short contender falls into a fast moment, that of a long one never does.
The ratio of the least runs stands beside it.

    inflate    gzip decoding alone
    floor      gzip decoding and the bare tokeniser: every byte parsed, nothing kept
    tokens     to exact columns, all arguments kept
    load       to a timeline: the call tree, launch links and device lanes made
    rules      load, and all rules
    html       load, all rules, and the HTML report
    quarter    as load and as html, of a trace with a quarter of the events
    kernels    the interval kernels, in nanoseconds per item, on the columns of this trace
    plain      as load, of the same text on disk without gzip: what orjson is compared with
    msgspec, orjson   decode the same bytes to Python objects, as a reference; without the inflating
    hta        HolisticTraceAnalysis; --hta names the Python of an environment that has it
    ten        with --ten-million: as html, of a trace of ten million events

Then every target is printed with what was measured and whether it is reached. Needs the `isal` package for the
floor. Nothing is fetched.
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
from collections.abc import Callable, Iterator
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


def make(traces: list[Path], out: Path, size: int, least_events: int) -> tuple[int, int]:
    """Write at least `size` bytes of JSON and so many events, gzipped; returns (events, bytes)."""
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
        while written < size or events < least_events:
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


def _alone(decode: Callable[[bytes], Any], path: Path) -> dict[str, Any]:
    """The CPU of the decoder alone; inflating is not its business."""
    text = _inflated(path)
    start = time.process_time()
    events = len(decode(text)["traceEvents"])
    return {"cpu": time.process_time() - start, "said": f"{events} dicts (decoding alone)"}


def one_msgspec(path: Path) -> dict[str, Any]:
    import msgspec

    return _alone(msgspec.json.decode, path)


def one_orjson(path: Path) -> dict[str, Any]:
    import orjson

    return _alone(orjson.loads, path)


def one_kernels(path: Path) -> dict[str, Any]:
    """Nanoseconds of CPU per item, the least of five runs each."""
    import numpy as np

    from stallscope.profiler import kernels
    from stallscope.profiler.device import whole_view
    from stallscope.profiler.readers import load

    timeline = load(path).timeline
    spans, view = timeline.spans, whole_view(timeline)
    work = view.rows[np.argsort(spans.start_ns[view.rows], kind="stable")]
    start, end = spans.start_ns[work], spans.end_ns[work]
    host = np.flatnonzero(np.array([t.role == "host" for t in timeline.tracks])[spans.track])
    track, host_start, host_dur = spans.track[host], spans.start_ns[host], spans.dur_ns[host]
    tree = kernels.nest(track, host_start, host_dur)
    gaps = (view.gaps.start_ns, view.gaps.end_ns)
    return {
        "said": f"{len(host)} host spans, {len(work)} device spans, {len(view.gaps)} gaps",
        "nest": _least(lambda: kernels.nest(track, host_start, host_dur), len(host)),
        "union": _least(lambda: kernels.union(start, end), len(work)),
        "gaps": _least(lambda: kernels.self_inside(gaps, host_start, tree[3], tree[0]), len(host)),
    }


def _least(run: Callable[[], Any], items: int) -> float:
    took = []
    for _ in range(5):
        start = time.process_time()
        run()
        took.append(time.process_time() - start)
    return min(took) / max(items, 1) * 1e9


HTA = """
import sys, warnings
warnings.filterwarnings("ignore")
from hta.common.trace_parser import parse_trace_dataframe
from hta.configs.parser_config import ParserConfig
meta, frame, *_ = parse_trace_dataframe(sys.argv[1], ParserConfig.get_default_cfg())
print(len(frame), "rows of a DataFrame")
"""

CONTENDERS = {name[4:]: f for name, f in list(globals().items()) if name.startswith("one_")}
DEFAULT = "inflate,floor,tokens,load,plain,rules,html,quarter,kernels,msgspec,orjson"
REPEATED = ("inflate", "floor", "tokens", "load", "plain", "rules", "html", "kernels", "load/4", "html/4")
Result = dict[str, Any]


def measure(command: list[str]) -> Result:
    """Run a command; its CPU seconds, wall seconds, peak MiB and last line of output."""
    start = time.monotonic()
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        wall = time.monotonic() - start
        output.seek(0)
        lines = output.read().decode(errors="replace").strip().splitlines()
    said = lines[-1] if lines else ""
    result: Result = {
        "cpu": usage.ru_utime + usage.ru_stime,
        "wall": wall,
        "peak": usage.ru_maxrss / 1024,
        "said": said,
        "failed": bool(child.returncode),
    }
    if child.returncode:
        result["said"] = f"failed ({child.returncode}): {said[:100]}"
    elif said.startswith("{"):
        result |= json.loads(said)
    return result


def commands(names: list[str], traces: dict[str, Path], hta: str | None) -> dict[str, list[str]]:
    def ours(name: str, path: Path) -> list[str]:
        return [sys.executable, __file__, "--one", name, str(path)]

    out = {name: ours(name, traces["whole"]) for name in names if name in CONTENDERS}
    if "quarter" in traces:
        out |= {f"{name}/4": ours(name, traces["quarter"]) for name in ("load", "html")}
    if "plain" in traces:
        out["plain"] = ours("load", traces["plain"])
    if hta:
        out["hta"] = [hta, "-c", HTA, str(traces["whole"])]
    if "ten" in traces:
        out["ten"] = ours("html", traces["ten"])
    return out


def run_all(todo: dict[str, list[str]], rounds: int, events: dict[str, int]) -> dict[str, Result]:
    """Run the contenders in turns and print a line for each: the run with the least CPU."""
    runs: dict[str, list[Result]] = {}
    for turn in range(rounds):
        for name, command in todo.items():
            if not turn or name in REPEATED:
                runs.setdefault(name, []).append(measure(command))
    print(f"{'':10}{'CPU s':>9}{'wall s':>9}{'peak MiB':>10}{'ns/event':>10}{'x floor':>9}{'of least':>9}")
    best: dict[str, Result] = {}
    for name, results in runs.items():
        good = [r for r in results if not r["failed"]]
        if not good:
            print(f"{name:10}{results[0]['said']}")
            continue
        least = min(good, key=lambda r: r["cpu"])
        best[name] = least | {"wall": min(r["wall"] for r in good), "peak": max(r["peak"] for r in good)}
        best[name]["turns"] = [None if r["failed"] else r["cpu"] for r in results]
        best[name] |= {k: min(r[k] for r in good) for k in ("nest", "union", "gaps") if k in least}
        floors = (times(best, name, "floor"), least["cpu"] / best["floor"]["cpu"]) if "floor" in best else ()
        count = events["quarter" if name.endswith("/4") else "ten" if name == "ten" else "whole"]
        print(f"{name:10}{least['cpu']:9.2f}{best[name]['wall']:9.2f}{best[name]['peak']:10.0f}"
              f"{least['cpu'] / count * 1e9:10.0f}{''.join(f'{x:9.2f}' for x in floors):18}  {least['said']}")  # fmt: skip
    return best


def times(best: dict[str, Result], one: str, other: str) -> float:
    """How many times the CPU of another a contender needs: the median over the turns in which both ran."""
    pairs = zip(best[one]["turns"], best[other]["turns"], strict=False)
    found = [a / b for a, b in pairs if a and b]
    return statistics.median(found) if found else float("nan")


# -- the targets -----------------------------------------------------------------------------------


def targets(best: dict[str, Result], events: dict[str, int]) -> list[tuple[str, float | None, float, bool]]:
    """What is promised: a text, the measured value (None: not measured), the limit, and whether it is an upper one."""

    def ratio(a: str, b: str) -> float | None:
        return times(best, a, b) if a in best and b in best else None

    def of(name: str, key: str) -> float | None:
        return best.get(name, {}).get(key)

    def at_three_million(name: str) -> float | None:
        """The peak less what a process without events holds, for three million events."""
        if name not in best or "inflate" not in best:
            return None
        empty = best["inflate"]["peak"]
        return float(empty + (best[name]["peak"] - empty) * 3e6 / events["whole"])

    more = events["whole"] / events.get("quarter", events["whole"])
    wall = best["load"]["wall"] / best["load"]["cpu"] if "load" in best else None
    return [
        ("load, CPU in floors", ratio("load", "floor"), 1.6, True),
        ("load, wall per CPU second (below 1: inflating runs beside it)", wall, 1.0, True),
        ("load + rules + HTML, CPU in floors", ratio("html", "floor"), 2.5, True),
        ("orjson.loads alone, CPU in loads of the same inflated text", ratio("orjson", "plain"), 8, False),
        ("orjson.loads alone, CPU in loads that inflate too", ratio("orjson", "load"), 8, False),
        ("HTA, CPU in loads", ratio("hta", "load"), 30, False),
        ("load, peak MiB for 3 M events", at_three_million("load"), 900, True),
        ("load + rules + HTML, peak MiB for 3 M events", at_three_million("html"), 900, True),
        ("nesting, ns per span", of("kernels", "nest"), 15, True),
        ("union, ns per span", of("kernels", "union"), 3, True),
        ("gap attribution, ns per span", of("kernels", "gaps"), 5, True),
        (f"load, CPU for {more:.2f} times the events", ratio("load", "load/4"), 1.1 * more, True),
        ("load + rules + HTML, the same", ratio("html", "html/4"), 1.1 * more, True),
        ("10 M events analysed, peak GiB", of("ten", "peak") and best["ten"]["peak"] / 1024, 2.5, True),
    ]  # fmt: skip


def print_targets(found: list[tuple[str, float | None, float, bool]]) -> None:
    print(f"\n{'target':64}{'measured':>10}{'limit':>10}")
    for text, value, limit, is_upper in found:
        bound = f"{'<=' if is_upper else '>='} {limit:.3g}"
        if value is None:
            print(f"{text:64}{'-':>10}{bound:>10}  not measured")
            continue
        reached = value <= limit if is_upper else value >= limit
        print(f"{text:64}{value:10.2f}{bound:>10}  {'reached' if reached else 'NOT reached'}")


# -- the whole -------------------------------------------------------------------------------------


def made(
    folder: Path, name: str, traces: list[Path], *, size: int = 0, least_events: int = 0
) -> tuple[Path, int]:
    """The trace of that name in the folder, made if it is not there, and its number of events."""
    path = folder / f"{name}.json.gz"
    note = folder / f"{name}.count"
    if not (path.exists() and note.exists()):
        # in a process of its own: a child's peak memory counts what its parent held when it was started
        command = [
            sys.executable,
            __file__,
            "--make",
            path,
            "--size",
            size,
            "--events",
            least_events,
            *traces,
        ]
        subprocess.run([str(part) for part in command], check=True)
    events, written = map(int, note.read_text().split())
    print(
        f"{name}: {events} events, {written / 1e6:.0f} MB of JSON, {path.stat().st_size / 1e6:.0f} MB gzipped"
    )
    return path, events


def inflated(path: Path) -> Path:
    """The text of a trace beside it, written if it is not there."""
    from stallscope.profiler.readers.source import Source

    out = path.with_suffix("")
    if not out.exists():
        with out.open("wb") as file:
            file.writelines(Source(path).chunks())
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="*", type=Path)
    parser.add_argument("--size", type=int, default=1000, help="megabytes of JSON to make")
    parser.add_argument("--keep", type=Path, help="keep the made traces in this folder, and use those there")
    parser.add_argument("--only", default=DEFAULT)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--hta", help="a Python that has HolisticTraceAnalysis installed")
    parser.add_argument("--ten-million", action="store_true")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--make", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--events", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.make:
        if not options.traces:
            parser.error("name the traces to make one of")
        if options.make.exists():
            parser.error(f"{options.make} exists, and it is not known what is in it: name another file")
        unfinished = options.make.with_name(options.make.name + ".part")
        counts = make(options.traces, unfinished, options.size * 1_000_000, options.events)
        unfinished.rename(options.make)
        options.make.with_name(options.make.name.removesuffix(".json.gz") + ".count").write_text(
            "{} {}".format(*counts)
        )
        return
    if options.one:
        said = CONTENDERS[options.one](options.traces[0])
        print(json.dumps(said) if isinstance(said, dict) else said, flush=True)
        os._exit(0)  # as the command ends: without taking apart what it holds
    names = options.only.split(",")
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        wanted: dict[str, dict[str, int]] = {"whole": {"size": options.size}}
        if "quarter" in names:
            wanted["quarter"] = {"size": options.size // 4}
        if options.ten_million:
            wanted["ten"] = {"least_events": 10_000_000}
        found = {name: made(folder, name, options.traces, **much) for name, much in wanted.items()}
        events = {name: count for name, (_, count) in found.items()}
        paths = {name: path for name, (path, _) in found.items()}
        if "plain" in names:
            paths["plain"] = inflated(paths["whole"])
        todo = commands(names, paths, options.hta)
        measure(
            [sys.executable, "-c", "import stallscope.analyzers, stallscope.exporters.html"]
        )  # its bytecode
        print_targets(targets(run_all(todo, options.rounds, events), events))


if __name__ == "__main__":
    main()
