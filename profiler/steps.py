"""Steps and phases: which part of the timeline is one decode step, and how sure that is.

Sources, best first:

1. marks: annotations of an engine (vLLM, SGLang, ATOM), of this recorder, or of a user ("decode", step=3);
2. scopes: vLLM's stages (`gpu_model_runner: forward`), joined to one step per cycle;
3. loops: ProfilerStep and diffusion pipelines, split into the passes of a module they repeat;
4. device annotations, where the host was not recorded;
5. passes: calls of an outermost `nn.Module`;
6. repetition of the sequence of kernels, or of operators where there is no device.

A phase that no name tells comes from shapes and attention kernels (`step_evidence`); where nothing tells it,
it is "other". A step is a range on a host thread; device work belongs to the step in which it was launched. Where the
host was not recorded, steps lie on the device's own track and have `facts["clock"] == "device"`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from stallscope.profiler import kernels, step_evidence, step_pattern
from stallscope.profiler.kinds import DEVICE_WORK, Kind, is_graph_launch
from stallscope.profiler.light import dataclass
from stallscope.profiler.step_names import PHASES, Confidence, Level, StepName, read_name, renamed
from stallscope.profiler.timeline import Int64, Timeline, Track

Rows = npt.NDArray[np.intp]
Codes = npt.NDArray[np.signedinteger[Any]]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Step:
    """One step or phase range on the host clock; `index` counts within its phase, -1 unknown.

    `confidence` is that of the phase. `facts["source"]` says what told the step; sizes stand under
    `batch`, `tokens`, `context_requests`, `generation_requests`, `bucket` ... where they were told.
    """

    name: str
    phase: str
    start_ns: int
    dur_ns: int
    index: int = -1
    confidence: Confidence = "medium"
    track: int = -1
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.dur_ns


def find_steps(timeline: Timeline) -> list[Step]:
    """The steps of a timeline, by start; those of one thread never overlap. Empty where nothing tells any."""
    if len(timeline) == 0:
        return []
    steps = (
        _annotated(timeline) or _device_annotated(timeline) or _module_passes(timeline) or _repeated(timeline)
    )
    return _numbered(steps)


@dataclass(frozen=True)
class Holder:
    """A named range in which others of its level begin, the last of them at `last_ns`; or a pass of a module.

    Which of them is the step follows from the call tree; whether this one still runs then, and ends when it says, is
    only sure if all that ran when it began is known: it ends with its caller at the latest.
    """

    track: Track
    start_ns: int
    end_ns: int
    last_ns: int


def is_step_sign(name: str) -> bool:
    """Whether spans of this name are among those that `named_steps` has to see."""
    return name.startswith(_MODULE) or read_name(name) is not None


def named_steps(timeline: Timeline) -> tuple[list[Step], list[Holder]] | None:
    """The steps that names tell, of a timeline that needs to hold only the spans for which `is_step_sign`.

    Bounds and order are those that `find_steps` gives for the whole timeline, if the holders run as long as they say;
    phases are not told. None where steps follow from more than that: from shapes and kernels.
    """
    steps = (_annotated(timeline) or _device_annotated(timeline)) if len(timeline) else []
    starts = [step.start_ns for step in steps]
    if not steps or len(set(starts)) < len(starts) or _split_by_work(timeline, steps):
        return None
    return _numbered(steps), _holders(timeline)


def _split_by_work(timeline: Timeline, steps: list[Step]) -> bool:
    """Whether a loop may split into passes of a module that it repeats, which shapes and kernels decide."""
    loops = [step for step in steps if step.facts["source"] == "loop" and "clock" not in step.facts]
    modules, outer = _pass_rows(timeline)
    if not loops or len(modules) == 0:
        return False
    spans = timeline.spans
    starts = spans.start_ns[outer]
    for loop in loops:
        first, last = np.searchsorted(starts, [loop.start_ns, loop.end_ns])
        names = spans.name[outer[first:last]]
        if len(kernels.distinct(names)) < len(names):
            return True
    return False


def _holders(timeline: Timeline) -> list[Holder]:
    """The marks and the scopes that others of their level begin in, on their own track; and the passes of modules."""
    spans = timeline.spans
    rows, told = _read_names(timeline, (Kind.ANNOTATION, Kind.OPERATOR, Kind.DEVICE_ANNOTATION))
    group = spans.track[rows].astype(np.int64) * len(Level) + told.level(rows)
    found: list[Holder] = []
    for number in kernels.distinct(group[told.level(rows) != Level.LOOP]).tolist():
        mine = rows[group == number]
        found.extend(_begun_inside(timeline, mine, mine))
    modules, outer = _pass_rows(timeline)
    for track in kernels.distinct(spans.track[outer]).tolist():
        passes = outer[spans.track[outer] == track]
        found.extend(_begun_inside(timeline, passes, modules[spans.track[modules] == track], always=True))
    return found


def _begun_inside(timeline: Timeline, rows: Rows, others: Rows, always: bool = False) -> Iterator[Holder]:
    """The rows of a track in which more than one of `others`, which hold them, begins; or all, if `always`."""
    spans = timeline.spans
    starts = np.sort(spans.start_ns[others])
    first = np.searchsorted(starts, spans.start_ns[rows])
    last = np.maximum(np.searchsorted(starts, spans.end_ns[rows]) - 1, first)
    for row, a, b in zip(rows.tolist(), first.tolist(), last.tolist(), strict=True):
        if always or b > a:
            track = timeline.tracks[int(spans.track[row])]
            yield Holder(track, int(spans.start_ns[row]), int(spans.end_ns[row]), int(starts[b]))


# -- annotations -----------------------------------------------------------------------------------


@dataclass
class _Told:
    """What names say: `name` has a text's number per row of the timeline, `table` an entry of `names` per text or -1."""

    name: npt.NDArray[np.int32]
    table: npt.NDArray[np.int32]
    names: list[StepName]

    def code(self, rows: Rows) -> npt.NDArray[np.int32]:
        """Which of `names` the given rows are told by. Shape of `rows`."""
        return self.table[self.name[rows]]

    def level(self, rows: Rows) -> npt.NDArray[np.int8]:
        table = np.array([int(n.level) for n in self.names] or [0], np.int8)
        return table[self.code(rows)]

    def of(self, row: int) -> StepName:
        return self.names[int(self.table[self.name[row]])]


def _read_names(timeline: Timeline, kinds: tuple[Kind, ...]) -> tuple[Rows, _Told]:
    """Rows of these kinds whose name tells a step, and what it tells. One look per distinct name."""
    name = timeline.spans.name
    rows = np.sort(np.concatenate([timeline.named_rows(_tells_step, kind) for kind in kinds])).astype(np.intp)
    table = np.full(len(timeline.strings), -1, np.int32)
    names: list[StepName] = []
    for code in kernels.distinct(name[rows]).tolist():
        told = read_name(timeline.strings[code])
        if told is not None:
            table[code] = len(names)
            names.append(told)
    return rows, _Told(name, table, names)


def _tells_step(name: str) -> bool:
    return read_name(name) is not None


def _annotated(timeline: Timeline) -> list[Step]:
    rows, told = _read_names(timeline, (Kind.ANNOTATION, Kind.OPERATOR))
    if len(rows) == 0:
        return []
    host = np.array([t.role == "host" for t in timeline.tracks] or [False])
    on_host = rows[host[timeline.spans.track[rows]]]
    rows = on_host if len(on_host) else rows
    level = told.level(rows)
    marks = _marks(timeline, rows[level == Level.MARK], told)
    marked = np.zeros(len(timeline.tracks), np.bool_)
    marked[[s.track for s in marks]] = True
    scopes = rows[level == Level.SCOPE]
    scopes = scopes[~marked[timeline.spans.track[scopes]]]
    steps = marks + _cycles(timeline, scopes, told)
    return steps + _loops(timeline, rows[level == Level.LOOP], told, steps)


def _ancestor_in(timeline: Timeline, rows: Rows, mask: Mask) -> Rows:
    """For each row its nearest ancestor inside `mask`, else -1. Shape of `rows`."""
    parent = timeline.spans.parent
    return kernels.nearest(parent, mask, parent[rows]).astype(np.intp, copy=False)


def _marks(timeline: Timeline, rows: Rows, told: _Told) -> list[Step]:
    """The outermost marks, but for those that only hold several marks of their own phase (loops)."""
    if len(rows) == 0:
        return []
    phase = np.array([PHASES.index(n.phase) if n.phase in PHASES else 0 for n in told.names])
    mask = np.zeros(len(timeline), bool)
    mask[rows] = True
    above = _ancestor_in(timeline, rows, mask)
    same = (above >= 0) & (phase[told.code(rows)] == phase[told.code(np.maximum(above, 0))])
    holders, count = np.unique(above[same], return_counts=True)
    mask[holders[count >= 2]] = False
    kept = rows[mask[rows]]
    above = _ancestor_in(timeline, kept, mask)
    outer = kept[above < 0]
    facts = {int(r): _facts(timeline, int(r), told, "mark") for r in outer}
    _join_inner_facts(timeline, kept[above >= 0], above[above >= 0], told, facts)
    return [_step(timeline, r, told.of(r).phase, told.of(r).confidence, f) for r, f in facts.items()]


def _facts(timeline: Timeline, row: int, told: _Told, source: str) -> dict[str, Any]:
    """Sizes from the name, and the whole numbers among the mark's own arguments."""
    given = {
        renamed(key): value
        for key, value in timeline.arguments(row).items()
        if isinstance(value, int) and not isinstance(value, bool) and key.isidentifier() and key.islower()
    }
    return {"source": source} | given | told.of(row).facts


def _join_inner_facts(
    timeline: Timeline, inner: Rows, above: Rows, told: _Told, facts: dict[int, dict[str, Any]]
) -> None:
    """Sizes that only a nested mark of the same phase tells belong to the step around it."""
    for row, holder in zip(inner.tolist(), above.tolist(), strict=True):
        if holder in facts and told.of(row).phase == told.of(holder).phase:
            for key, value in told.of(row).facts.items():
                facts[holder].setdefault(key, value)


def _step(timeline: Timeline, row: int, phase: str, confidence: Confidence, facts: dict[str, Any]) -> Step:
    spans = timeline.spans
    return Step(
        name=timeline.name(row),
        phase=phase or "other",
        start_ns=int(spans.start_ns[row]),
        dur_ns=int(spans.dur_ns[row]),
        confidence=confidence,
        track=int(spans.track[row]),
        facts=facts,
    )


def _cycles(timeline: Timeline, rows: Rows, told: _Told) -> list[Step]:
    """One step per cycle of an engine's stages on a thread: from its first stage to the end of its last."""
    spans = timeline.spans
    steps = []
    stage = np.array([n.stage for n in told.names] or [0])
    for track in kernels.distinct(spans.track[rows]).tolist():
        mine = rows[spans.track[rows] == track]
        mask = np.zeros(len(timeline), bool)
        mask[mine] = True
        mine = mine[_ancestor_in(timeline, mine, mask) < 0]
        order = stage[told.code(mine)]
        new = np.append(True, (order[1:] < order[:-1]) | ((order[1:] == 1) & (order[:-1] == 1)))
        first = np.flatnonzero(new)
        last = np.append(first[1:], len(mine)) - 1
        for a, b in zip(first.tolist(), last.tolist(), strict=True):
            if 1 not in order[a : b + 1]:
                continue
            start = int(spans.start_ns[mine[a]])
            end = int(spans.start_ns[mine[b]] + spans.dur_ns[mine[b]])
            steps.append(
                Step("engine step", "other", start, end - start, -1, "medium", track, {"source": "scopes"})
            )
    return _with_evidence(timeline, steps)


def _loops(timeline: Timeline, rows: Rows, told: _Told, inside: list[Step]) -> list[Step]:
    """ProfilerSteps and pipelines in which no step was told, the innermost; or the passes they repeat."""
    if len(rows) == 0:
        return []
    passes = _passes(timeline)
    pass_starts = np.array([p.start_ns for p in passes], np.int64)
    steps: list[Step] = []
    untold: list[Step] = []
    for row in _innermost(timeline, rows, inside).tolist():
        name = told.of(row)
        whole = _step(timeline, row, name.phase, name.confidence, _facts(timeline, row, told, "loop"))
        first, last = np.searchsorted(pass_starts, [whole.start_ns, whole.end_ns])
        parts = _repeated_passes(passes[int(first) : int(last)], name.phase)
        if parts:
            steps.extend(parts)
        elif name.phase:
            steps.append(whole)
        else:
            untold.append(whole)
    return steps + _with_evidence(timeline, untold)


def _innermost(timeline: Timeline, rows: Rows, inside: list[Step]) -> Rows:
    """The rows in which neither another of them nor a step begins, by thread and start."""
    spans = timeline.spans
    rows = rows[np.lexsort((-spans.dur_ns[rows], spans.start_ns[rows], spans.track[rows]))]
    start, track = spans.start_ns[rows], spans.track[rows]
    end = start + spans.dur_ns[rows]
    holds = np.append((track[1:] == track[:-1]) & (start[1:] < end[:-1]), False)
    for number in kernels.distinct(track).tolist():
        mine = track == number
        begins = np.array(sorted(s.start_ns for s in inside if s.track == number), np.int64)
        holds[mine] |= np.searchsorted(begins, end[mine]) > np.searchsorted(begins, start[mine])
    return np.asarray(rows[~holds], np.intp)


# -- passes of a module ----------------------------------------------------------------------------

_MODULE = "nn.Module: "


def _is_module(name: str) -> bool:
    return name.startswith(_MODULE)


def _pass_rows(timeline: Timeline) -> tuple[Rows, Rows]:
    """Rows of all calls of modules, and by start those of outermost ones that have modules inside."""
    rows = timeline.named_rows(_is_module, Kind.PYTHON).astype(np.intp)
    if len(rows) == 0:
        return rows, rows
    mask = np.zeros(len(timeline), np.bool_)
    mask[rows] = True
    above = _ancestor_in(timeline, rows, mask)
    outer = kernels.distinct(above[kernels.among(above, rows[above < 0])])
    # what torch.compile made of a module has none inside
    compiled = timeline.match_names_at(lambda name: "OptimizedModule" in name, rows)
    outer = kernels.distinct(np.append(outer, rows[(above < 0) & compiled]))
    return rows, outer[np.argsort(timeline.spans.start_ns[outer], kind="stable")]


def _passes(timeline: Timeline) -> list[Step]:
    """Calls of outermost modules that have modules inside, as steps with the phase their shapes tell."""
    _, outer = _pass_rows(timeline)
    steps = []
    for row in outer.tolist():
        name = timeline.name(row).removeprefix(_MODULE)
        steps.append(
            dataclasses.replace(
                _step(timeline, row, "", "medium", {"source": "module", "module": name}), name=name
            )
        )
    return _with_evidence(timeline, steps)


def _repeated_passes(passes: list[Step], phase: str) -> list[Step]:
    """The passes of a loop, if one module was called several times and what it did is known; else none."""
    names = [p.name for p in passes]
    again = {name for name in names if names.count(name) >= 2}
    if phase:
        # the module that a pipeline repeats is what its loop is about; the others stand around the loop
        return (
            [dataclasses.replace(p, phase=phase if p.name in again else "other") for p in passes]
            if again
            else []
        )
    if not again or any(p.phase == "other" for p in passes if p.name in again):
        return []
    return passes


def _module_passes(timeline: Timeline) -> list[Step]:
    """Passes as steps where no annotation tells any: those of a module that was called again, or of a known phase."""
    passes = _passes(timeline)
    names = [p.name for p in passes]
    return [p for p in passes if p.phase != "other" or names.count(p.name) >= 2]


def _with_evidence(timeline: Timeline, steps: list[Step]) -> list[Step]:
    """The steps with the phase that modules, shapes and kernels tell; "other" where none does."""
    if not steps:
        return []
    start = np.array([s.start_ns for s in steps], np.int64)
    end = np.array([s.end_ns for s in steps], np.int64)
    causal = _causal(timeline, start, end)
    out = []
    for step, told in zip(steps, step_evidence.phases(timeline, start, end, causal), strict=True):
        named = step_evidence.module_phase(str(step.facts.get("module", "")))
        if named:
            out.append(dataclasses.replace(step, phase=named, confidence="medium"))
        elif told is not None and not _is_encoder(step):
            out.append(dataclasses.replace(step, phase=told.phase, confidence=told.confidence))
        else:
            out.append(step)
    return out


def _is_encoder(step: Step) -> bool:
    """Text encoders of pipelines attend causally and generate nothing."""
    name = str(step.facts.get("module", ""))
    return "TextModel" in name or "Encoder" in name


def _causal(timeline: Timeline, start: Int64, end: Int64) -> Mask:
    """Whether a module that generates text begins in each range."""
    modules = timeline.named_rows(_is_module, Kind.PYTHON)
    named = modules[timeline.match_names_at(step_evidence.is_causal_module, modules)]
    at = np.sort(timeline.spans.start_ns[named])
    return np.asarray(np.searchsorted(at, end) > np.searchsorted(at, start), np.bool_)


# -- no host annotations ---------------------------------------------------------------------------


def _device_annotated(timeline: Timeline) -> list[Step]:
    """Marks as the device saw them, where the host's own are not recorded."""
    rows, told = _read_names(timeline, (Kind.DEVICE_ANNOTATION,))
    rows = rows[told.level(rows) != Level.SCOPE]
    marks = _marks(timeline, rows[told.level(rows) == Level.MARK], told)
    if not marks:
        marks = [
            _step(timeline, int(r), told.of(r).phase, "medium", _facts(timeline, int(r), told, "loop"))
            for r in rows
        ]
    marks.sort(key=lambda s: s.start_ns)
    steps: list[Step] = []
    for mark in marks:
        # one mark is mirrored once per stream: the copies overlap, the first stands for all
        if not steps or mark.start_ns >= steps[-1].end_ns:
            steps.append(dataclasses.replace(mark, facts=mark.facts | {"clock": "device"}))
    return steps


def _repeated(timeline: Timeline) -> list[Step]:
    """Steps from the sequence of kernels of the busiest stream, or of operators where there is no device."""
    rows = _busiest(timeline, timeline.device_work())
    if len(rows) == 0:
        operators = timeline.rows(Kind.OPERATOR)
        rows = _busiest(timeline, operators[timeline.spans.depth[operators] == timeline.spans.depth[operators].min()]
                        if len(operators) else operators)  # fmt: skip
    if len(rows) == 0:
        return []
    pattern = step_pattern.find_pattern(timeline.spans.name[rows], _tail_names(timeline)[rows])
    if pattern is None:
        return []
    launch = timeline.spans.launch_row[rows]
    on_host = bool((launch >= 0).mean() > 0.95) or not timeline.of_kind(*DEVICE_WORK)[rows[0]]
    by = np.where(launch >= 0, launch, rows)
    times = np.maximum.accumulate(timeline.spans.start_ns[by if on_host else rows])
    pattern = step_pattern.rotate(pattern, timeline.spans.name[rows], times)
    return _with_evidence(timeline, _pattern_steps(timeline, rows, by if on_host else rows, pattern, on_host))


def _busiest(timeline: Timeline, rows: Rows) -> Rows:
    """The rows of the track that has most of them, by start."""
    if len(rows) == 0:
        return rows
    track = timeline.spans.track[rows]
    mine = rows[track == np.argmax(np.bincount(track))]
    return np.asarray(mine[np.argsort(timeline.spans.start_ns[mine], kind="stable")], np.intp)


def _tail_names(timeline: Timeline) -> Mask:
    """Work that a step does once and a layer never: the choice of a token, a copy of it to the host."""
    return timeline.match_names(step_pattern.is_tail)


def _pattern_steps(
    timeline: Timeline, rows: Rows, by: Rows, pattern: step_pattern.Pattern, on_host: bool
) -> list[Step]:
    spans = timeline.spans
    graph = timeline.match_names_at(is_graph_launch, by)
    at = pattern.starts[:, None] + np.arange(pattern.length)
    start = spans.start_ns[by][at].min(axis=1)
    end = (spans.start_ns[by] + spans.dur_ns[by])[at].max(axis=1)
    # a replayed graph's launch call is over before its kernels run; steps of one thread do not overlap
    end[:-1] = np.minimum(end[:-1], start[1:])
    facts: dict[str, Any] = {"source": "repetition", "kernels": pattern.length}
    if not on_host:
        facts["clock"] = "device"
    if graph[at].all():
        facts["graph"] = True
    confidence: Confidence = "medium" if pattern.exact else "low"
    return [
        Step(
            "repeated sequence",
            "other",
            int(a),
            int(b - a),
            -1,
            confidence,
            int(spans.track[by[k]]),
            dict(facts),
        )
        for a, b, k in zip(start.tolist(), end.tolist(), pattern.starts.tolist(), strict=True)
        if b > a
    ]


# -- order -----------------------------------------------------------------------------------------


def _numbered(steps: list[Step]) -> list[Step]:
    """By start, counted within their phase."""
    counts: dict[str, int] = {}
    out = []
    for step in sorted(steps, key=lambda s: (s.start_ns, s.track)):
        out.append(dataclasses.replace(step, index=counts.get(step.phase, 0)))
        counts[step.phase] = out[-1].index + 1
    return out


# -- which step a row belongs to -------------------------------------------------------------------


def step_of_device_rows(timeline: Timeline, steps: list[Step]) -> Codes:
    """For each row the index into `steps` of the step that launched it, or -1. Shape (n,).

    Host rows belong to the step they start in; device work to the step in which its launch started. A
    thread with steps of its own asks only those, another one those of its process. Steps on the
    device's clock own the device work that starts in them.
    """
    spans = timeline.spans
    out = np.full(len(spans), -1, kernels.code_type(len(steps)))
    if not steps:
        return out
    work = timeline.device_work()
    # device work asks by its launch, and one track is a slice of rows: no column is looked up for all rows
    launched = work[spans.launch_row[work] >= 0]
    by = spans.launch_row[launched]
    began, thread = spans.start_ns[by], spans.track[by]
    texts = [f"{t.rank}/{t.process}" for t in timeline.tracks]
    tracks = _tracks_by_steps(steps)
    for number in tracks:
        mine = [i for i, s in enumerate(steps) if s.track == number]
        clock = steps[mine[0]].facts.get("clock")
        asking = [
            k
            for k, track in enumerate(timeline.tracks)
            if number < 0
            or (
                track.rank == timeline.tracks[number].rank if clock == "device" else texts[k] == texts[number]
            )
        ]
        if clock == "device":
            for k in asking:
                rows = timeline.track_rows(k)
                _assign_sorted(out[rows], _in(work, rows), spans.start_ns[rows], steps, mine)
            continue
        asking = [k for k in asking if k == number or k not in tracks]
        for k in asking:
            rows = timeline.track_rows(k)
            _assign_sorted(out[rows], ~_in(work, rows), spans.start_ns[rows], steps, mine)
        allowed = np.zeros(len(timeline.tracks) + 1, bool)
        allowed[asking] = True
        found = out[launched]
        _assign(found, allowed[thread], began, steps, mine)
        out[launched] = found
    return out


def _in(chosen: Rows, rows: slice) -> Mask:
    """Which rows of a track are among the chosen, which come in order."""
    mask = np.zeros(rows.stop - rows.start, np.bool_)
    mask[chosen[slice(*np.searchsorted(chosen, [rows.start, rows.stop]))] - rows.start] = True
    return mask


def _tracks_by_steps(steps: list[Step]) -> list[int]:
    """Tracks that have steps, those with the most first."""
    count: dict[int, int] = {}
    for step in steps:
        count[step.track] = count.get(step.track, 0) + 1
    return sorted(count, key=lambda t: (-count[t], t))


def _assign(out: Codes, asks: Mask, when: Int64, steps: list[Step], mine: list[int]) -> None:
    """Give rows that ask, and have no step yet, the one of `mine` (by start, not overlapping) they are in."""
    starts = np.array([steps[i].start_ns for i in mine], dtype=np.int64)
    ends = np.array([steps[i].end_ns for i in mine], dtype=np.int64)
    asking = np.flatnonzero(asks & (out < 0))
    when = when[asking]
    at = np.searchsorted(starts, when, side="right") - 1
    inside = (at >= 0) & (when < ends[np.maximum(at, 0)])
    out[asking[inside]] = np.array(mine, np.int32)[at[inside]]


def _assign_sorted(out: Codes, asks: Mask, when: Int64, steps: list[Step], mine: list[int]) -> None:
    """As `_assign`, for moments in order: the steps are looked for among them, not each moment among the steps."""
    starts = np.array([steps[i].start_ns for i in mine], dtype=np.int64)
    ends = np.array([steps[i].end_ns for i in mine], dtype=np.int64)
    ends[:-1] = np.minimum(ends[:-1], starts[1:])
    low, high = np.searchsorted(when, starts), np.searchsorted(when, ends)
    for step, a, b in zip(mine, low.tolist(), high.tolist(), strict=True):
        if b > a:
            asking = asks[a:b] & (out[a:b] < 0)
            if asking.all():
                out[a:b] = step
            else:
                out[a:b][asking] = step
