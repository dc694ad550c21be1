"""What the recording can be trusted for, and that rules keep silent where it cannot."""

from __future__ import annotations

from typing import Any

import pytest

from stallscope.analyzers import RULES, analyze
from stallscope.analyzers.run import Run
from stallscope.profiler.session import Session
from support.lanes import timeline


def checks(session: Session) -> dict[str, Any]:
    return {c.name: (c.state, c.value) for c in Run(session).trust.checks}


def blocked(session: Session) -> set[str]:
    """Codes of rules that are not analysable."""
    return {o.code for o in analyze(session).rules if o.status == "not_analysable"}


WELL = """
    host     op:aten::mm@0..8 rt:cudaLaunchKernel@2..6#1 op:aten::mm@10..18 rt:cudaLaunchKernel@12..16#2
    stream7  kernel:a@8..20#1 kernel:b@22..30#2
"""


def test_a_complete_recording_passes_every_check() -> None:
    report = analyze(timeline(WELL))

    assert {row["state"] for row in report.tables["trust"] if row["check"] != "events"} == {"ok"}
    assert next(iter(report.tables)) == "trust"


def test_launches_without_device_records_are_counted() -> None:
    found = checks(
        timeline(
            """
            host     rt:cudaLaunchKernel@0..2#1 rt:cudaLaunchKernel@3..5#2 rt:cudaLaunchKernel@10..12#3 rt:cudaGraphLaunch@20..22#4
            host     rt:cudaLaunchKernel@30..32#5 rt:cudaLaunchKernel@33..35#6 rt:cudaLaunchKernel@36..38#7
            stream7  kernel:a@14..20#3 kernel:b@34..40#5 kernel:b@41..50#6 kernel:b@51..60#7
            """
        )
    )
    assert found["lost-launches"] == ("note", 3 / 7)


def test_mostly_lost_launches_silence_the_rules_about_device_and_host() -> None:
    session = timeline(
        """
        host     python:a.py(1):_f@0..900 rt:cudaLaunchKernel@0..2#1 rt:cudaLaunchKernel@3..5#2 rt:cudaLaunchKernel@100..102#3
        stream7  kernel:a@900..910#3
        """
    )
    assert checks(session)["lost-launches"][0] == "bad"
    assert {"HB101", "SY201", "LN401", "CC601", "DP501"} <= blocked(session)
    assert analyze(session).verdict.text.startswith("No verdict: 2 of 3 launches have no device record")


def test_no_device_record_at_all_is_said_to_be_lost() -> None:
    report = analyze(timeline("host rt:cudaLaunchKernel@0..2#1 op:aten::mm@0..9 rt:cudaLaunchKernel@3..5#2"))

    assert (
        report.tables["trust"][0]["text"]
        == "none of 2 launches left a device record: the device's records were lost"
    )
    assert report.findings == []


def test_captured_launches_are_not_lost_ones() -> None:
    captured = " ".join(f"rt:cudaLaunchKernel@{10 + 3 * i}..{12 + 3 * i}#{i + 10}" for i in range(9))
    session = timeline(
        f"""
        host     rt:cudaLaunchKernel@0..2#1 rt:cudaStreamBeginCapture@5..6#2 {captured} rt:cudaStreamEndCapture@60..62#3
        host     rt:cudaLaunchKernel@90..92#4
        stream7  kernel:a@4..8#1 kernel:b@94..99#4
        """
    )
    found = checks(session)
    assert found["capture"] == ("bad", 9 / 11) and found["lost-launches"] == ("ok", 0)
    assert {code for code in RULES if code[:2] in ("HB", "SY", "LN")} <= blocked(session)
    assert analyze(session).verdict.text.startswith(
        "No verdict: this is the recording of a graph capture: 9 of 11"
    )


def test_a_capture_followed_by_replays_is_worth_a_note_only() -> None:
    replay = " ".join(f"kernel:k@{100 + 10 * i}..{110 + 10 * i}#50" for i in range(30))
    session = timeline(
        f"""
        host     rt:cudaLaunchKernel@0..2#1 rt:cudaStreamBeginCapture@5..6#2 rt:cudaLaunchKernel@10..12#3
        host     rt:cudaStreamEndCapture@60..62#4 rt:cudaGraphLaunch@90..95#50
        stream7  kernel:a@4..8#1 {replay}
        """
    )
    assert checks(session)["capture"][0] == "note"
    assert "HB103" not in blocked(session)


@pytest.mark.parametrize(("took", "state"), [(4, "ok"), (6, "note"), (16, "bad")])
def test_profiler_overhead_is_noted_at_five_and_withholds_host_verdicts_at_fifteen_percent(
    took: int, state: str
) -> None:
    session = timeline(
        f"""
        host     op:aten::mm@0..8 rt:cudaLaunchKernel@2..6#1 rt:cudaLaunchKernel@90..94#2
        label    overhead:Buffer_Flush@40..{40 + took} overhead:Buffer_Flush@500..900
        stream7  kernel:a@8..20#1 kernel:b@96..100#2
        """
    )
    assert checks(session)["overhead"] == (state, took / 100)
    assert ("HB101" in blocked(session)) == (state == "bad")
    assert "DP501" not in blocked(session), "claims about the device alone stand"


def test_clock_inversions_give_the_uncertainty() -> None:
    session = timeline(
        """
        host     rt:cudaLaunchKernel@10..14#1 rt:cudaLaunchKernel@20..24#2
        stream7  kernel:a@7..15#1 kernel:b@26..30#2
        """
    )
    assert checks(session)["clocks"] == ("note", 3_000)
    assert min(Run(session).pressure[0].delay_ns.tolist()) == 0


def test_work_from_before_the_window_and_few_links() -> None:
    session = timeline(
        """
        host     op:aten::mm@40..50 rt:cudaLaunchKernel@42..46#90 rt:cudaLaunchKernel@50..54#91
        stream7  kernel:old@0..20#3 kernel:old@22..40#4 kernel:old@41..60#5 kernel:new@60..80#90 kernel:new@81..90#91
        """
    )
    found = checks(session)
    assert found["before-recording"] == ("note", 3)
    assert found["linked"] == ("bad", 2 / 5)
    assert "SY201" in blocked(session)


def test_lost_records_of_the_source_are_passed_on() -> None:
    session = timeline(WELL)
    session.notes.add("records-dropped", "data_loss", "the ring was full", 12)

    assert checks(session)["records"] == ("note", 12)
    assert next(iter(analyze(session).notes)).code == "trust-records"


def test_idle_time_that_nobody_can_explain_makes_no_verdict() -> None:
    report = analyze(
        timeline(
            """
            host     op:aten::mm@0..8 rt:cudaLaunchKernel@2..6#1 rt:cudaLaunchKernel@7..9#2
            stream7  kernel:a@8..20#1
            stream9  kernel:b@50000..50100#2
            """
        )
    )
    assert report.findings == []
    assert "50.0 ms have no recorded cause" in report.verdict.text


def test_a_source_without_any_link_is_not_said_to_have_lost_them() -> None:
    session = timeline("stream7 kernel:a@0..20 kernel:b@22..40 kernel:c@41..60")
    assert checks(session)["linked"] == ("note", None)
    report = analyze(session)
    assert "n/a" in report.verdict.text and "0 of" not in report.verdict.text
    assert "SY201" in blocked(session)


def test_links_that_failed_are_counted() -> None:
    session = timeline("host rt:cudaLaunchKernel@0..4#1\nstream7 kernel:a@10..20#5 kernel:b@22..40#6")
    assert checks(session)["linked"] == ("bad", 0)


def test_nothing_is_said_twice_on_the_first_screen() -> None:
    session = timeline("host op:aten::mm@0..4\nstream7 kernel:a@10..20#5 kernel:b@22..40#6")
    session.notes.add("unlinked-device-events", "warning", "of 2 device events have no launch", 2)
    report = analyze(session)
    assert "0 of 2 device events" in report.verdict.text
    assert not [line for line in report.verdict.lines if "0 of 2 device events" in line]
    assert [n.code for n in report.notes if "linked" in n.code] == ["unlinked-device-events"]


TWO_WINDOWS = """
    host    mark:"step[DECODE bs=1 toks=1]"@0..100 rt:cudaLaunchKernel@2..6#1 op:aten::mm@10..20 rt:cudaLaunchKernel@40..44#2
    host    mark:"step[DECODE bs=1 toks=1]"@100..200 mark:"step[DECODE bs=1 toks=1]"@200..300
    host    mark:"step[DECODE bs=1 toks=1]"@5000..5100 rt:cudaLaunchKernel@5002..5006#3 op:aten::mm@5010..5020
    host    rt:cudaLaunchKernel@5040..5044#4
    stream7 kernel:a@10..40#1 kernel:b@50..90#2 kernel:a@5010..5040#3 kernel:b@5050..5090#4
"""


def test_between_two_windows_nothing_was_recorded_so_nothing_is_blamed() -> None:
    windows = [{"start_ns": 0, "end_ns": 100_000}, {"start_ns": 5_000_000, "end_ns": 5_100_000}]
    report = analyze(timeline(TWO_WINDOWS, windows=windows))

    (device,) = report.devices
    assert device.idle_classes["between_windows"] == 5_010_000 - 90_000
    assert sum(device.idle_classes.values()) == device.idle_ns
    assert report.run.steady_steps("decode") == 2, "only those that were recorded count"
    assert len(report.steps) == 4
    assert not [f for f in report.findings if f.code.startswith(("HB", "LN", "ST"))]
    assert any("4.90 ms between windows were not recorded" in line for line in report.verdict.lines)
    assert "device busy 77.8 % of 180 us" in report.verdict.lines[0]

    # without windows the same drawing is a host that keeps its device waiting
    blamed = analyze(timeline(TWO_WINDOWS))
    assert blamed.findings[0].code == "HB101"
    assert blamed.run.steady_steps("decode") == 4


def test_shares_are_of_the_time_that_was_recorded() -> None:
    """Loading a model for 10 ms before the window of 0.1 ms must not make its findings small."""
    drawing = """
        host    python:load.py(3):_load@0..10000
        host    mark:"step[DECODE bs=1 toks=1]"@10000..10100 rt:cudaLaunchKernel@10002..10006#1
        stream7 kernel:a@10010..10040#1
    """
    windows = [{"start_ns": 10_000_000, "end_ns": 10_100_000}]
    assert Run(timeline(drawing, windows=windows)).span_ns == 100_000
    assert Run(timeline(drawing)).span_ns == 10_100_000
