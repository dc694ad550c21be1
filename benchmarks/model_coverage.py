"""How much of the device time of a trace the cost models know.

    python benchmarks/model_coverage.py TRACE... [--top N]

Prints, per trace: device time; its share with a cost (and with one that the shapes fix exactly); its share
with a family, by cost or by the kernel's own name; time per family; and how many calls stand at each verdict.
`--top` also lists the kernels of no family and the operators without a model that take the most time.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path

from stallscope.analyzers.models.attribution import FAMILIES, Attribution, attribute
from stallscope.analyzers.models.call import StepTokens
from stallscope.analyzers.models.chips import Chip, chip_of_device
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.roofline import roofline
from stallscope.profiler.errors import StallscopeError
from stallscope.profiler.kinds import Kind
from stallscope.profiler.readers import load
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import Timeline


def only_step(timeline: Timeline) -> StepTokens | None:
    """The token sums, where all annotations of the trace that hold sums say the same."""
    rows = timeline.rows(Kind.ANNOTATION, Kind.DEVICE_ANNOTATION)
    names = {timeline.name(int(row)) for row in rows}
    sums = {step for step in map(StepTokens.parse, names) if step is not None}
    return sums.pop() if len(sums) == 1 else None


def chip_of(session: Session) -> Chip | None:
    """The chip, where the devices of the trace are all of one known kind."""
    chips: set[str] = set()
    found = None
    for device in session.facts.get("devices", {}).values():
        found = chip_of_device(device)
        chips.add(found.name if found is not None else "")
    return found if len(chips) == 1 else None


def report(path: Path, top: int) -> None:
    session = load(path)
    timeline = session.timeline
    step = only_step(timeline)
    joined = attribute(timeline, [step] if step is not None else [])
    total = int(timeline.spans.dur_ns[joined.device_rows].sum())
    if total == 0:
        print(f"{path.name}: no device time")
        return
    chip = chip_of(session)
    modelled, exact = joined.modelled_ns(), joined.modelled_ns(exact=True)
    by_family = joined.family_ns(timeline)
    named = total - by_family.get(Family.OTHER, 0)
    print(
        f"{path.parent.name}/{path.name}: {total / 1e6:.3f} ms on {chip.name if chip else 'an unknown chip'}"
    )
    print(
        f"  with a cost {modelled / total:6.1%} (exact {exact / total:.1%}), with a family {named / total:6.1%}"
    )
    print("  " + ", ".join(f"{family} {ns / total:.1%}" for family, ns in list(by_family.items())[:9]))
    print("  " + verdicts(timeline, joined, chip))
    if top:
        leftovers(timeline, joined, top)


def verdicts(timeline: Timeline, joined: Attribution, chip: Chip | None) -> str:
    """Time per verdict of the calls with a cost."""
    time: Counter[str] = Counter()
    for work in joined.work:
        if work.cost is not None:
            point = roofline(work.cost, work.duration_ns, chip, kernel=timeline.name(work.longest))
            time[point.verdict] += work.duration_ns
    total = sum(time.values()) or 1
    return "of modelled time: " + ", ".join(
        f"{verdict} {ns / total:.1%}" for verdict, ns in time.most_common()
    )


def leftovers(timeline: Timeline, joined: Attribution, top: int) -> None:
    kernels: Counter[str] = Counter()
    for row, family in zip(joined.device_rows, joined.family, strict=True):
        if FAMILIES[family] is Family.OTHER:
            kernels[timeline.name(int(row))[:120]] += int(timeline.spans.dur_ns[row])
    for name, ns in kernels.most_common(top):
        print(f"    no family {ns / 1e3:10.1f} us  {name}")
    operators: Counter[str] = Counter()
    for work in joined.work:
        if work.cost is None:
            operators[timeline.name(work.op_row)] += work.duration_ns
    for name, ns in operators.most_common(top):
        print(f"    no model  {ns / 1e3:10.1f} us  {name}")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("traces", nargs="+", type=Path)
    parser.add_argument("--top", type=int, default=0)
    options = parser.parse_args()
    for path in options.traces:
        try:
            report(path, options.top)
        except StallscopeError as error:
            print(f"{path}: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
