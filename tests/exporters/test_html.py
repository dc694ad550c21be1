"""The page as text and as data, read back without a browser."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallscope.analyzers import analyze
from stallscope.analyzers.finding import Evidence, Finding, Report, RuleOutcome, Step, Where
from stallscope.analyzers.units import duration
from stallscope.exporters import html, html_data
from stallscope.exporters.html_values import fact_text
from stallscope.profiler.builder import TimelineBuilder
from stallscope.profiler.errors import InputError
from stallscope.profiler.kinds import KIND_NAMES, Kind
from stallscope.profiler.notes import Note, Notes
from stallscope.profiler.session import Session
from stallscope.profiler.timeline import ARG_FLOAT, ARG_INT, ARG_JSON, ARG_STRING, Track
from support import page as pages
from support.lanes import timeline

STRIPS = {"idle gap", "step", "finding"}


def drawn_page(session: Session, report: Report | None = None, **settings: Any) -> pages.Page:
    return pages.read(html.render(session, report or analyze(session), **settings))


@pytest.fixture
def page(small_session: Session, small_report: Report) -> pages.Page:
    return drawn_page(small_session, small_report)


# -- what is drawn ------------------------------------------------------------------------------------


def spans_of(session: Session) -> Counter[tuple[int, int, str, str]]:
    spans, names = session.timeline.spans, session.timeline.strings
    return Counter(
        (int(spans.start_ns[i]), int(spans.dur_ns[i]), names[int(spans.name[i])], KIND_NAMES[Kind(int(spans.kind[i]))])
        for i in range(len(spans))
    )  # fmt: skip


def slices_of(page: pages.Page) -> Counter[tuple[int, int, str, str]]:
    s = page.slices
    rows = zip(s.start.tolist(), s.dur.tolist(), s.name, s.kind, strict=True)
    return Counter(row for row in rows if row[3] not in STRIPS)


def test_every_span_is_a_slice_with_its_exact_times(small_session: Session, page: pages.Page) -> None:
    assert slices_of(page) == spans_of(small_session)


def test_no_two_slices_of_a_row_overlap_as_drawn(page: pages.Page) -> None:
    s = page.slices
    for track, level in set(zip(s.track.tolist(), s.level.tolist(), strict=True)):
        mine = np.flatnonzero((s.track == track) & (s.level == level))
        assert (s.start[mine][1:] >= (s.start + s.drawn)[mine][:-1]).all(), (track, level)


def test_overlapping_kernels_of_a_stream_get_lanes_of_their_own() -> None:
    session = timeline("stream7  kernel:a@0..10 kernel:b@5..15 kernel:c@6..8 kernel:d@20..30")

    page = drawn_page(session)

    [stream] = [t for t in page.tracks if t["kind"] == "stream"]
    assert [many for _, many in stream["rows"]] == [2, 1, 1]
    assert page.layout["clipped"] == []


def test_a_child_that_outlives_its_parent_keeps_its_length() -> None:
    # the second operator begins before the first one's child ended: drawn to there, told in full
    session = timeline("host  op:outer@0..10 op:inner@5..14 op:next@10..20 op:leaf@12..13")

    page = drawn_page(session)

    at = page.slices.name.index("inner")
    assert (int(page.slices.start[at]), int(page.slices.dur[at])) == (5_000, 9_000)
    assert int(page.slices.drawn[at]) == 7_000


def test_times_beyond_32_bits_stay_exact() -> None:
    far = 3 * 10**9 + 1
    session = timeline(f"host  op:a@0..1 op:b@{far}..{far + 0.001}")

    assert slices_of(drawn_page(session)) == spans_of(session)
    assert (far * 1000, 1, "b", "operator") in spans_of(session)


UNEXPLAINED = """
    host     op:aten::mm@0..100
    stream7  kernel:a@10..20 kernel:b@60..90
"""


@pytest.mark.parametrize("drawing", ["", UNEXPLAINED])
def test_idle_strip_holds_each_idle_nanosecond_once(drawing: str, small_session: Session) -> None:
    session = timeline(drawing) if drawing else small_session
    report = analyze(session)

    page = drawn_page(session, report)

    gaps = [i for i, kind in enumerate(page.slices.kind) if kind == "idle gap"]
    by_class: Counter[str] = Counter()
    for i in gaps:
        by_class[page.slices.name[i]] += int(page.slices.dur[i])
    [device] = report.devices
    assert dict(by_class) == {k: v for k, v in device.idle_classes.items() if v}
    assert sum(by_class.values()) == device.idle_ns > 0


def test_launch_links_and_self_times_are_in_the_second_blob(small_session: Session, page: pages.Page) -> None:
    linked = np.cumsum(page.details["linked"])
    launch = np.cumsum(pages.unzigzag(page.details["launch"]))
    pairs = {
        (page.slices.name[int(w)], int(page.slices.start[int(w)])): int(page.slices.start[int(h)])
        for w, h in zip(linked, launch, strict=True)
    }
    assert pairs[("gemm", 64_000)] == 62_000
    assert pairs[("add", 74_000)] == 72_000
    assert pairs[("gemm", 110_000)] == 104_000

    real = [i for i, kind in enumerate(page.slices.kind) if kind not in STRIPS]
    residue = dict(zip(real, pages.unzigzag(page.details["child"]).tolist(), strict=True))
    mm = next(i for i in real if page.slices.name[i] == "aten::mm" and page.slices.start[i] == 60_000)
    # 10 us with a launch of 4 us inside, which is drawn one level down: nothing is missing to the drawn sum
    assert residue[mm] == 0


def test_what_is_left_out_of_the_drawing_still_counts_as_children() -> None:
    session = timeline("host  op:outer@0..100 op:long@10..60 op:short@70..71 op:tiny@80..80.5")

    page = drawn_page(session, max_slices=2)

    assert [n for n, k in zip(page.slices.name, page.slices.kind, strict=True) if k == "operator"] == [
        "outer",
        "long",
    ]
    residue = pages.unzigzag(page.details["child"])
    assert residue.tolist() == [1_500, 0]
    assert "2 of 4 slices are not drawn: 2 host slices and 0 device slices" in page.text


def test_device_slices_are_the_last_to_be_left_out() -> None:
    session = timeline("host  op:a@0..100 op:b@200..300\nstream7  kernel:k@0..1 kernel:k@2..3 kernel:k@4..5")

    page = drawn_page(session, max_slices=4)

    assert Counter(slices_of(page).elements()) == Counter(
        {(0, 1000, "k", "kernel"): 1, (2000, 1000, "k", "kernel"): 1, (4000, 1000, "k", "kernel"): 1,
         next(s for s in slices_of(page) if s[3] == "operator"): 1}
    )  # fmt: skip


def test_a_stack_of_3000_levels_is_folded_not_lost() -> None:
    drawing = "host " + " ".join(f"python:f{i}@{i * 0.001:.3f}..{10 - i * 0.001:.3f}" for i in range(3000))
    session = timeline(drawing)

    page = drawn_page(session)

    [thread] = [t for t in page.tracks if t["kind"] == "thread"]
    assert len(thread["rows"]) == 3000
    assert page.layout["folded"] == 64
    assert slices_of(page) == spans_of(session)


def test_arguments_are_shared_and_complete(page: pages.Page) -> None:
    head = page.details["head"]["args"]
    real = [i for i, kind in enumerate(page.slices.kind) if kind not in STRIPS]
    at = real.index(next(i for i in real if page.slices.name[i] == "gemm"))

    chosen = head["sets"][int(page.details["args"][at])]

    told = {
        head["keys"][k]["key"]: head["keys"][k]["values"][v]
        for k, v in zip(chosen[::2], chosen[1::2], strict=True)
    }
    assert told == {"grid": "[1, 1, 1]"}
    empty = real.index(next(i for i in real if page.slices.name[i] == "aten::mm"))
    assert head["sets"][int(page.details["args"][empty])] == []


def test_slices_have_the_arguments_of_their_event_however_many_share_them() -> None:
    builder, rng = TimelineBuilder(), np.random.default_rng(5)
    host = builder.add_track(Track("thread", "host", process=1, thread=1))
    many = 400
    builder.add(
        track=host,
        start_ns=np.arange(many) * 10,
        dur_ns=np.full(many, 9),
        name=builder.strings.code("op"),
        kind=int(Kind.OPERATOR),
    )
    shapes = [builder.strings.code(text) for text in ("[[1, 2], []]", "[[3]]", "7")]
    for key, tag, values in (
        ("Python id", ARG_INT, np.arange(many)),  # in no page
        ("bytes", ARG_INT, rng.integers(0, 3, many)),
        ("bytes", ARG_FLOAT, rng.integers(0, 2, many)),  # a second one, which counts; 0 is not 0.0
        ("Input Dims", ARG_JSON, rng.choice(shapes, many)),
        ("kernel", ARG_STRING, rng.choice(shapes, many)),
        ("stream", ARG_INT, rng.integers(0, 9, many)),
    ):
        some = np.flatnonzero(rng.random(many) < 0.6)
        builder.add_args(some, key, tag, values[some])
    session = Session(builder.finish(), {}, Notes())

    page = drawn_page(session)

    head, args = page.details["head"]["args"], session.timeline.args
    told = [
        {
            head["keys"][k]["key"]: head["keys"][k]["values"][v]
            for k, v in zip(head["sets"][i][::2], head["sets"][i][1::2], strict=True)
        }
        for i in page.details["args"].tolist()
    ]
    true = [
        {
            k: v if isinstance(v, str) else json.dumps(v)
            for k, v in args.of(i).items()
            if k in html_data.ARGUMENTS
        }
        for i in range(many)
    ]
    assert told == true
    assert 20 < len(head["sets"]) == len({json.dumps(t, sort_keys=True) for t in true})


def test_ids_that_javascript_would_round_are_kept_as_text() -> None:
    session = timeline(
        f"host  rt:cudaLaunchKernel@0..1#{2**60 + 1}\nstream7  kernel:k@2..3#{2**60 + 1} kernel:j@4..5#12"
    )

    head = drawn_page(session).details["head"]

    assert set(head["correlationText"].values()) == {str(2**60 + 1)}


def test_counters_keep_their_extremes() -> None:
    values = [0.0] * 10_000
    values[4_321], values[7_777] = 99.0, -5.0
    session = timeline("host op:a@0..1 " + " ".join(f"counter:c@{i}={v}" for i, v in enumerate(values)))

    [line] = drawn_page(session).layout["counters"]

    assert line["points"] == 10_000
    assert len(line["times"]) <= html_data.COUNTER_POINTS
    assert (max(line["values"]), min(line["values"])) == (99.0, -5.0)
    assert (line["high"], line["low"]) == (99.0, -5.0)


# -- what it says -------------------------------------------------------------------------------------


def test_first_screen_has_verdict_numbers_and_top_findings(small_report: Report, page: pages.Page) -> None:
    assert small_report.verdict.text in page.text
    assert all(line in page.text for line in small_report.verdict.lines)
    for ns in (small_report.headline.span_ns, small_report.headline.busy_ns, small_report.headline.idle_ns):
        assert duration(ns) in page.text
    assert (
        "Top findings up to 56.0 us The device waits for Python in sampler.py:214 high confidence high"
        in page.text
    )
    assert "decode 2 50.0 us 100 us" in page.text


def test_what_could_not_be_told_is_on_the_first_screen(page: pages.Page) -> None:
    [_, after] = page.text.split("What this recording cannot tell", 1)
    told, _ = after.split("Findings ", 1)
    assert "data lost device records were lost" in told
    assert "operator shapes were not recorded (record_shapes): MB301 memory-bound" in told
    # an info note is no limit of the recording; it is in the list at the end
    assert "Python frames ended" not in told
    assert "Python frames ended after their caller" in page.text


def test_findings_carry_everything_a_reader_needs(page: pages.Page) -> None:
    for text in ("HB101 host-bound-gaps", "Move the sampling to the device", "sampler.py(214): sample", "aten::mm",
                 "up to 56.0 us of 60.0 us lost · 43.1 % of the span · confidence high · decode"):  # fmt: skip
        assert text in page.text
    assert page.layout["evidence"][0] == {
        "rows": [[0, 2_000, 58_000, ""], [2, 4_000, 64_000, "gap before gemm"]],
        "total": 2,
        "first": 1,
    }


def test_the_island_agrees_with_the_report(small_report: Report, page: pages.Page) -> None:
    assert page.island["findings"] == [
        {"code": f.code, "title": f.title, "evidence": len(f.evidence)} for f in small_report.findings
    ]
    assert page.island["charts"] == [f["id"] for f in page.figures]


def test_a_missing_number_is_not_zero(small_session: Session, small_report: Report) -> None:
    small_report.tables["roofline"] = [
        {"operator": "aten::mm", "kernel": "gemm", "flops_per_s": None, "share": 0.25}
    ]
    small_report.findings[0].facts.update(per_token_ns=None)

    text = drawn_page(small_session, small_report).text

    assert "aten::mm gemm n/a 25.0 %" in text
    assert "per token n/a" in text


def test_more_evidence_than_a_page_can_hold_is_cut_to_the_longest(
    small_session: Session, small_report: Report
) -> None:
    many = tuple(Evidence(0, i * 10, i * 10 + 1 + (i == 2500) * 5) for i in range(3000))
    small_report.findings[0] = dataclasses.replace(small_report.findings[0], evidence=many)

    evidence = drawn_page(small_session, small_report).layout["evidence"][0]

    assert evidence["total"] == 3000
    assert len(evidence["rows"]) == html_data.MAX_EVIDENCE
    assert evidence["rows"][evidence["first"]][1] == 25_000


def test_long_tables_say_how_much_is_shown(small_session: Session, small_report: Report) -> None:
    small_report.steps = [Step("decode", "decode", i * 100, 50, i) for i in range(5_000)]

    page = drawn_page(small_session, small_report)

    assert "first 300 of 5,000 rows; the JSON report has all" in page.text
    steps = page.figure("steps")
    assert sum(len(line["x"]) for line in steps["data"]) <= 2_000
    assert "of 5,000 drawn" in steps["caption"]


def test_a_cpu_run_says_that_device_claims_cannot_be_made() -> None:
    session = timeline("host  mark:decode@0..50 op:aten::mm@1..20 mark:decode@50..110 op:aten::mm@60..90")
    report = analyze(session)
    report.tables["operators"] = [{"name": "aten::mm", "count": 2, "self_ns": 49_000, "total_ns": 49_000}]

    page = drawn_page(session, report)

    assert "not analysable: no device activity was recorded" in page.text
    assert "not analysable device claims: no device activity was recorded" in page.text
    assert [f["id"] for f in page.figures] == ["steps", "operators"]
    assert page.figure("operators")["data"][0]["x"] == [49.0]
    assert page.layout["overview"][0]["label"] == "host"


def test_an_empty_recording_still_makes_a_page() -> None:
    session = timeline("")

    page = drawn_page(session)

    assert page.layout["slices"] == 0
    assert page.layout["end"] > page.layout["start"]
    assert page.figures == []


def test_lines_over_time_are_drawn_and_not_tabulated(small_session: Session, small_report: Report) -> None:
    small_report.tables["lanes"] = [
        {"device": 0, "lane": "launch_delay_ns", "time_ns": t, "value": v}
        for t, v in ((10, 5), (20, 900), (30, 7))
    ]

    page = drawn_page(small_session, small_report)

    [line] = [c for c in page.layout["counters"] if c["device"] == 0]
    assert (line["label"], line["unit"], line["times"], line["values"]) == (
        "launch delay",
        "ns",
        [10, 20, 30],
        [5, 900, 7],
    )
    assert [g["device"] for g in page.layout["groups"] if g["kind"] == "device"] == [0]
    assert not [a for _, a in page.elements if a.get("id") == "table-lanes"]


def test_trust_notes_are_told_and_rules_that_do_not_apply_are_not(
    small_session: Session, small_report: Report
) -> None:
    small_report.tables["trust"] = [
        {"check": "linked", "state": "note", "value": 0.7, "text": "1198 of 1707 events are linked"},
        {"check": "records", "state": "ok", "value": 0, "text": "no record was dropped"},
    ]
    small_report.rules.append(
        RuleOutcome("HB102", "host-gap", "not_analysable", "does not apply: a device was recorded")
    )

    text = drawn_page(small_session, small_report).text

    told = text.split("What this recording cannot tell", 1)[1].split("Findings ", 1)[0]
    assert "note 1198 of 1707 events are linked" in told
    assert "no record was dropped" not in told
    assert "HB102" not in told
    assert "not analysable HB102 host-gap does not apply: a device was recorded" in text


def test_counters_carry_the_unit_of_their_name() -> None:
    label = html_data._label_and_unit
    assert label("memory PTA allocated (bytes)") == ("memory PTA allocated", "bytes")
    assert label("AI Core Freq (MHz)") == ("AI Core Freq", "MHz")
    assert label("queue (of two things)") == ("queue (of two things)", "")
    assert label("") == ("", "")


def test_rules_that_fail_for_one_reason_are_told_together(
    small_session: Session, small_report: Report
) -> None:
    gone = [RuleOutcome(code, "x", "not_analysable", "no steps") for code in ("A1", "A2", "A3")]
    page = drawn_page(small_session, dataclasses.replace(small_report, rules=gone))

    assert "A1 x, A2 x, A3 x" in page.text


def test_values_carry_the_unit_of_their_key() -> None:
    places = [{"place": "a.py:3 (f)", "ns": 543_026}, {"place": "b.py:4 (g)", "ns": 1_500}]
    assert fact_text("places", places) == "a.py:3 (f) 543 us; b.py:4 (g) 1.50 us"
    assert fact_text("split_ns", {"python": 3_000, "sync": None}) == "python 3.00 us; sync n/a"
    assert fact_text("rate_flops_per_s", 2.5e12) == "2.5 TFLOP/s"
    assert fact_text("idle_share", 0.125) == "12.5 %"
    assert fact_text("cuda_runtime_version", 12080) == "12080"
    assert fact_text("settings", {"level": "Level1", "host": "", "marks": []}) == "level Level1"
    assert fact_text("x", True) == "yes"
    assert fact_text("devices", {}) == "none"


# -- hostile input ------------------------------------------------------------------------------------

HOSTILE = [
    "</script><script>alert(1)</script>",
    "</code></p><h1>",
    "<img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)" x=\'',
    "<!--<script>",
    "line\u2028separator\u2029",
    "\ud800lone\udfff",
    "nul\x00bell\x07esc\x1b[31m",
    "override\u202ednuora",
    "{{policy}} {{island}}",
    "&lt;script&gt; &amp;",
    "@compute",
]


@pytest.fixture
def hostile_page() -> pages.Page:
    session = timeline(
        "host rt:launch@0..1#1 op:x@2..3\nstream7 kernel:k@2..4#1{grid=[1,1,1]} kernel:j@9..12"
    )
    strings = session.timeline.strings
    for text in HOSTILE:
        strings.code(text)
    everything = " ".join(HOSTILE)
    code = strings.code(everything)
    session.timeline.spans.name[:] = code
    session.facts.update(source=everything, producer=everything, extra={everything: [everything]})
    session.notes.add(HOSTILE[0], "warning", everything, 3, everything)
    report = analyze(session)
    place = Where(everything, everything, everything)
    report.findings = [
        Finding(everything, everything, everything, 5, 3, where=place, phase=everything, detail=everything,
                advice=everything, evidence=(Evidence(0, 0, 5, everything),), facts={everything: everything})
    ]  # fmt: skip
    report.rules = [RuleOutcome(everything, everything, "not_analysable", everything)]
    report.steps = [Step(everything, everything, 0, 5), Step(everything, everything, 6, 5)]
    report.tables = {
        everything: [{everything: everything}],
        "operators": [{"name": everything, "total_ns": 3}],
    }
    report.verdict = dataclasses.replace(report.verdict, text=everything, lines=(everything,))
    report.notes = [Note("x", "warning", everything), *report.notes]
    return drawn_page(session, report)


def test_no_name_becomes_an_element(hostile_page: pages.Page, page: pages.Page) -> None:
    tags = {tag for tag, _ in hostile_page.elements}
    assert tags <= {tag for tag, _ in page.elements}
    assert "img" not in tags
    assert len(hostile_page.scripts) == len(page.scripts)
    names = {name for _, attributes in hostile_page.elements for name in attributes}
    assert not [n for n in names if n.startswith("on")]


def test_names_come_through_as_text(hostile_page: pages.Page) -> None:
    for text in (*HOSTILE[:5], "{{policy}} {{island}}", "&lt;script&gt; &amp;"):
        assert text in hostile_page.text, text
    [name] = {
        n for n, k in zip(hostile_page.slices.name, hostile_page.slices.kind, strict=True) if k not in STRIPS
    }
    assert "</script><script>alert(1)</script>" in name
    assert "\ufffdlone\ufffd" in name
    assert "\x1b" not in name
    assert "\u202e" not in name


def test_the_page_is_valid_utf8_without_control_characters(hostile_page: pages.Page) -> None:
    hostile_page.source.encode("utf-8")
    assert not set("\x00\x07\x1b\u2028\u2029\u202e") & set(hostile_page.source)


def test_chart_labels_are_no_markup_and_no_colours(hostile_page: pages.Page) -> None:
    def texts(value: Any) -> list[str]:
        if isinstance(value, str):
            return [value]
        if isinstance(value, list):
            return [t for v in value for t in texts(v)]
        return [t for v in value.values() for t in texts(v)] if isinstance(value, dict) else []

    allowed = ("<br>", "<extra></extra>")
    for figure in hostile_page.figures:
        for text in texts([figure["data"], figure["layout"]]):
            bare = text
            for tag in allowed:
                bare = bare.replace(tag, "")
            assert "<" not in bare, text


# -- one file, no request -----------------------------------------------------------------------------


def test_nothing_on_the_page_points_outside(page: pages.Page) -> None:
    for tag, attributes in page.elements:
        for name in ("src", "href", "action", "data", "srcset", "poster"):
            value = attributes.get(name)
            assert value is None or value.startswith("#") or value == "data:,", (tag, name, value)
    [style] = [s for s in page.source.split("<style>")[1:]]
    assert "url(" not in style.split("</style>")[0]
    assert "@import" not in style.split("</style>")[0]


def test_the_policy_forbids_requests_and_every_other_script(page: pages.Page) -> None:
    [policy] = [a["content"] for t, a in page.elements if t == "meta" and a.get("http-equiv")]
    assert policy is not None
    rules = {part.split()[0]: part.split()[1:] for part in policy.split(";")}
    assert rules["default-src"] == ["'none'"]
    assert "connect-src" not in rules
    assert not [v for values in rules.values() for v in values if v == "*" or v.startswith("http")]
    hashes = {f"'sha256-{base64.b64encode(hashlib.sha256(c.encode()).digest()).decode()}'" for c in page.code}
    bundle = f"'sha256-{base64.b64encode(hashlib.sha256(pages.plotly(page)).digest()).decode()}'"
    assert len(page.code) == 3
    assert set(rules["script-src"]) == hashes | {bundle}


def test_the_bundle_is_the_one_that_is_recorded(page: pages.Page) -> None:
    known = json.loads((Path(html.__file__).parent / "assets" / "vendor" / "plotly.json").read_text())
    bundle = pages.plotly(page)
    assert len(bundle) == known["bytes"]
    assert f"v{known['version']}".encode() in bundle[:400]
    assert b"MIT license" in bundle[:400]
    assert page.island["plotly"]["version"] == known["version"]


def test_own_scripts_and_styles_stay_small() -> None:
    own = [Path(html.__file__).parent / "assets" / n for n in ("report.html", "report.css", *html.SCRIPTS)]
    assert sum(p.stat().st_size for p in own) < 300_000
    for path in own:
        text = path.read_text(encoding="utf-8")
        assert "</script" not in text or path.name == "report.html"
        assert "http://" not in text.replace("http://www.w3.org", "")
        assert "https://" not in text


def test_no_heavy_package_is_imported(small_session: Session, tmp_path: Path) -> None:
    code = (
        "import sys; from stallscope.exporters import html; "
        "print(sorted({'pandas', 'plotly', 'pyarrow', 'torch', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_export_writes_the_page_and_says_why_it_cannot(
    small_session: Session, small_report: Report, tmp_path: Path
) -> None:
    out = tmp_path / "report.html"
    html.export(small_session, small_report, out)
    assert out.read_text(encoding="utf-8") == html.render(small_session, small_report)

    with pytest.raises(InputError, match="cannot be written"):
        html.export(small_session, small_report, tmp_path / "none" / "report.html")


def test_real_traces_are_drawn_whole(shared: Path) -> None:
    from stallscope.profiler.readers import load

    for folder in ("sglang-decode-mi300x", "sync-in-order-h100", "mtia-inference"):
        [path] = (shared / "traces" / folder).glob("*.json*")
        session = load(path)
        report = analyze(session)
        page = drawn_page(session, report)
        assert slices_of(page) == spans_of(session), folder
        for device in report.devices:
            assert device.idle_ns == 0 or device.name in page.text
