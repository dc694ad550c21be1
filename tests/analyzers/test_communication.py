"""How the time of HCCL operations splits into waiting and transfer."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.analyzers import RULES, analyze
from stallscope.analyzers.communication import base_name, is_notify_wait, table_wait_ns
from stallscope.analyzers.run import Run
from stallscope.profiler.readers import load
from support.lanes import timeline


@pytest.mark.parametrize(
    ("entry", "waited"),
    [
        ({"elapse_ns": 100, "links": [{"transport": "HCCS", "transit_ns": 30}]}, 70),
        # SDMA is the sum of the links below it, and is not counted twice
        ({"elapse_ns": 100, "links": [{"transport": "HCCS", "transit_ns": 30}, {"transport": "SDMA", "transit_ns": 30}]},
         70),
        ({"elapse_ns": 100, "links": [{"transport": "SDMA", "transit_ns": 30}]}, 70),
        # transfers on several planes side by side may add up to more than the operation took
        ({"elapse_ns": 100, "links": [{"transport": "HCCS", "transit_ns": 700}]}, 0),
        # one that only receives moves nothing itself
        ({"elapse_ns": 100, "wait_ns": 90, "links": []}, 90),
        ({"elapse_ns": 100, "wait_ns": 0, "links": []}, None),
    ],
)  # fmt: skip
def test_what_a_table_entry_tells_of_waiting(entry: dict[str, object], waited: int | None) -> None:
    assert table_wait_ns(entry) == waited


def test_names() -> None:
    assert base_name("hcom_batchSendRecv__128_3_1") == "hcom_batchSendRecv"
    assert (
        is_notify_wait("Notify_Wait")
        and is_notify_wait("Notify Wait")
        and not is_notify_wait("Notify_Record")
    )


def test_tasks_of_operations_at_one_time_are_not_told_apart() -> None:
    session = timeline("""
        stream7  coll:"hcom_allReduce__586_0_1"@100..300{alg_type=MESH}
        stream8  coll:"hcom_allGather__587_0_1"@200..400{alg_type=MESH}
        stream9  coll:"hcom_allGather__587_1_1"@500..600{alg_type=MESH}
        plane0   gmark:"Notify_Wait"@102..280{dst rank=3} gmark:"Notify_Wait"@510..590{dst rank=2}
    """)

    split = Run(session).communication.split

    assert split.wait_ns.tolist() == [-1, -1, 80_000]
    assert split.peer.tolist() == [-1, -1, 2]


def test_over_rdma_a_wait_holds_the_transfer() -> None:
    session = timeline("""
        stream7  coll:"hcom_allReduce__586_0_1"@100..300{alg_type=MESH}
        plane0   gmark:RDMASend@101..102{src rank=0;dst rank=8;size(Byte)=4096;transport type=RDMA} gmark:"Notify_Wait"@102..280{dst rank=8}
    """)

    assert Run(session).communication.split.wait_ns.tolist() == [-1]


@pytest.mark.parametrize("form", ["text_level1", "db_level1"])
def test_the_late_rank_of_a_real_recording(shared: Path, form: str) -> None:
    """Read off the planes by hand: one Notify_Wait lasts 78.76 of 79.09 ms (text), on the plane of rank 5."""
    run = Run(load(shared / "ascend" / "alexnet-train-910b" / form / "rank0_ascend_pt"))

    split = run.communication.split

    took = run.timeline.spans.dur_ns[split.rows]
    assert split.by_tasks.all() and len(split.rows) == 4
    assert split.wait_ns[0] / took[0] > 0.99
    assert split.peer[0] == split.peer[3] == {"text_level1": 5, "db_level1": 6}[form]
    assert len(run.communication.transfers) == 56


def test_the_table_of_a_real_recording(shared: Path) -> None:
    """hcom_batchSendRecv__128_4_1: 158.55328 ms, one packet of 0.40168 ms."""
    run = Run(load(shared / "ascend" / "qwen3-0.6b-train-910b4" / "rank_0_ascend_pt"))

    split = run.communication.split

    names = [run.timeline.name(int(r)) for r in split.rows]
    assert split.wait_ns[names.index("hcom_batchSendRecv__128_4_1")] == 158_553_280 - 401_680
    assert split.known.all() and not split.by_tasks.any()


def test_an_rdma_transfer_of_seconds_was_sent_again() -> None:
    session = timeline("""
        rank0.stream7  kernel:MatMulV3@10..455 coll:"hcom_allReduce__586_0_1"@455..4500545 kernel:MatMulV3@4500545..4501010
        rank0.plane0   gmark:RDMASend@455..4500455{src rank=0;dst rank=8;size(Byte)=1048576;transport type=RDMA}
    """, ascend={"ranks": [{"rank": 0}]})  # fmt: skip

    report = analyze(session, {"CC602": RULES["CC602"]})

    (finding,) = report.findings
    assert finding.title == "An RDMA transfer took 4.50 s: it was sent again"
    assert finding.lost_ns == 4_500_000_000


@pytest.mark.parametrize("code", ["CC602", "CC603", "CC604"])
@pytest.mark.parametrize("recording", ["alexnet-train-910b/text_level1", "alexnet-train-910b/db_level1",
                                       "qwen3-0.6b-train-910b4"])  # fmt: skip
def test_links_and_packets_of_real_recordings_cost_next_to_nothing(
    shared: Path, code: str, recording: str
) -> None:
    """Sizes that are no multiple of 512 bytes and packets under 16 MB are there; by hand they cost under 1 % of the span."""
    session = load(shared / "ascend" / recording)

    report = analyze(session, {code: RULES[code]})

    assert [r.status for r in report.rules] == ["clean"]


def test_ranks_that_compute_unevenly_are_named_beside_the_waiting() -> None:
    """Step tables of three ranks: the second stage of a pipeline computes 400 us, the first 230."""
    entry = {"name": "hcom_batchSendRecv__1_4_1", "group": "1", "step": 3, "start_us": 100.0, "elapse_ns": 200_000,
             "wait_ns": 0, "links": [{"transport": "HCCS", "transit_ns": 20_000}]}  # fmt: skip
    ranks = [
        {"rank": rank, "step_trace_time": [{"step": 3, "computing_ns": ns}]}
        for rank, ns in ((0, 230_000), (1, 231_000), (3, 400_000))
    ]
    session = timeline(
        """
        rank0.host     rt:"Node@launch"@2..6#1 rt:"Node@launch"@12..16#2
        rank0.stream7  kernel:MatMulV3@8..100#1 coll:"hcom_batchSendRecv__1_4_1"@100..300#2 kernel:MatMulV3@301..400
        """,
        ascend={"ranks": [ranks[0] | {"communication": [entry]}, *ranks[1:]]},
    )

    (finding,) = analyze(session, {"CC601": RULES["CC601"]}).findings

    assert "rank 3 400 us, rank 0 230 us in the same steps." in finding.detail
    assert finding.detail.endswith("only makes the wait longer.")
