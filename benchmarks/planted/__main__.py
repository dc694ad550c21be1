"""`python -m benchmarks.planted`: write the cases, analyse them, print the table."""

from __future__ import annotations

import argparse
import sys
import tempfile
import traceback
from pathlib import Path

from benchmarks.planted.cases import Case, all_cases
from benchmarks.planted.causes import CAUSES
from benchmarks.planted.forms import FORMS, Form, chip_for, write
from benchmarks.planted.score import Result, compare, table


def main(argv: list[str] | None = None) -> int:
    """Exit status 0 whatever the score is; 2 for an unknown case."""
    options = _options(argv)
    cases = [c for c in all_cases() if _wanted(c, options.case)]
    if not cases:
        print(f"No case matches {options.case!r}. See --list.", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(_describe(c) for c in cases))
        return 0
    if options.write_only:
        for case in cases:
            print(write(case, options.form, options.write))
        return 0
    if options.write is not None:
        results = [_run(c, options.form, options.write, options.trace) for c in cases]
    else:
        with tempfile.TemporaryDirectory() as folder:
            results = [_run(c, options.form, Path(folder), options.trace) for c in cases]
    print(table(results))
    if options.detail:
        print("\n".join(_detail(r) for r in results))
    return 0


def _options(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planted", description=__doc__)
    parser.add_argument("--case", default="", help="only cases whose id holds this text")
    parser.add_argument("--form", choices=FORMS, default="kineto")
    parser.add_argument("--write", type=Path, default=None, metavar="DIR", help="keep the traces in DIR")
    parser.add_argument(
        "--write-only", action="store_true", help="write the traces to DIR and analyse nothing"
    )
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    parser.add_argument("--detail", action="store_true", help="print all findings of each case")
    parser.add_argument("--trace", action="store_true", help="show the traceback of a case that raises")
    options = parser.parse_args(argv)
    if options.write_only and options.write is None:
        parser.error("--write-only needs --write DIR")
    return options


def _wanted(case: Case, text: str) -> bool:
    return not text or text in case.id


def _describe(case: Case) -> str:
    if case.truth is None:
        return f"{case.id:48} {case.chip:7} healthy"
    codes = "/".join(CAUSES[case.truth.cause].codes) or "no code yet"
    place = case.truth.python or "/".join(case.truth.operators[:1]) or "-"
    return f"{case.id:48} {case.chip:7} {case.truth.cause:18} {codes:12} {place}"


def _run(case: Case, form: Form, folder: Path, show: bool) -> Result:
    from stallscope.analyzers import analyze
    from stallscope.profiler.readers import load

    chip = chip_for(case, form)
    true_ns = case.gain_ns(chip) if case.truth is not None else 0
    try:
        report = analyze(load(write(case, form, folder)))
    except Exception as error:  # noqa: BLE001 - a case that raises is counted and shown, the others still run
        if show:
            traceback.print_exc()
        return Result(case, "-", False, False, 0, true_ns, (), (), error=f"{type(error).__name__}: {error}")
    return compare(case, report, true_ns)


def _detail(result: Result) -> str:
    lines = [f"\n{result.case.id}"]
    lines += [f"  {text}" for text in result.findings]
    lines += [f"  (info) {text}" for text in result.remarks]
    lines += [f"  not analysable  {text}" for text in result.not_analysable]
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
