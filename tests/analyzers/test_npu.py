"""NPU kernels: core kinds, pipes, cores, clocks; and the faults that tools for them are known for."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallscope.analyzers import RULES, analyze
from stallscope.analyzers.fusion import LETTERS, PATTERNS, offered
from stallscope.analyzers.models.call import Cost
from stallscope.analyzers.models.chips import find_chip
from stallscope.analyzers.models.family import Family
from stallscope.analyzers.models.roofline import roofline
from stallscope.analyzers.npu import op_type
from stallscope.analyzers.pipes import Pipes, with_bytes, with_pipes
from stallscope.analyzers.run import Run
from stallscope.profiler.readers import load
from support import ascend
from support.lanes import timeline
from support.rule_cases import cases

NPU = {"0": {"vendor": "Ascend", "aic_cores": 20, "aiv_cores": 40}}
RULES_FOR_NPU = {code: rule for code, rule in RULES.items() if code.startswith("NP80")}


def run_of(drawing: str, **facts: Any) -> Run:
    return Run(timeline(drawing, **({"devices": NPU} | facts)))


# -- pipes -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ratios", "bound", "factor"),
    [
        # the cube goes first, however busy reading is (0.8 to 0.95 is bound, not room for improvement)
        ({("aic", "mac"): 0.85, ("aic", "mte2"): 0.97}, "cube-bound", 1.0),
        ({("aic", "mac"): 0.50, ("aic", "mte2"): 0.95}, "memory-bound", 0.50 / 0.95),
        ({("aic", "mac"): 0.50, ("aic", "fixpipe"): 0.90}, "memory-bound", 0.50 / 0.90),
        ({("aic", "mac"): 0.60, ("aic", "mte1"): 0.90, ("aic", "mte2"): 0.3}, "feed-bound", 0.60 / 0.90),
        ({("aiv", "vec"): 0.81, ("aiv", "mte2"): 0.5}, "vector-bound", 0.5 / 0.81),
        ({("aiv", "vec"): 0.05, ("aiv", "mte2"): 0.55, ("aiv", "mte3"): 0.40}, "memory-bound", 0.05 / 0.55),
        ({("aiv", "vec"): 0.30, ("aiv", "scalar"): 0.85}, "scalar-bound", 0.30 / 0.85),
        ({("", "vec"): 0.40, ("", "mte2"): 0.60}, "unbound", 0.60 / 0.80),
    ],
)
def test_the_pipe_that_was_busy_nearly_all_the_time_binds(
    ratios: dict[tuple[str, str], float], bound: str, factor: float
) -> None:
    pipes = Pipes(ratios)

    assert pipes.bound == bound
    assert pipes.best_factor == pytest.approx(factor if bound != "cube-bound" else 1.0)


def test_a_busy_scalar_unit_of_a_mixed_kernel_only_waits() -> None:
    ratios = {("aic", "mac"): 0.35, ("aic", "scalar"): 0.96, ("aiv", "vec"): 0.62}

    assert Pipes(ratios, mixed=True).bound == "unbound"
    assert Pipes(ratios, mixed=True).busiest == ("aiv", "vec", 0.62)


def point_of(
    dtype: str, duration_ns: int, flops: int, moved: int, pipes: Pipes, chip: str = "Ascend910B3"
) -> Any:
    cost = Cost(flops, moved, 0, dtype, Family.GEMM, unit="matrix")
    return with_pipes(roofline(cost, duration_ns, find_chip(chip)), pipes, cost, duration_ns)


def test_a_roofline_that_cannot_tell_hears_the_pipes() -> None:
    reads = Pipes({("aic", "mac"): 0.1, ("aic", "mte2"): 0.98})
    cube = Pipes({("aic", "mac"): 0.9, ("aic", "mte2"): 0.5})

    # no peak for fp32: reading all the time at 31 % of the bandwidth is inefficient
    point = point_of("fp32", 100_000, 10**9, 50_000_000, reads)
    assert (point.verdict, round(point.share, 3)) == ("inefficient", 0.312)
    assert point.gain_ns == pytest.approx(100_000 * (1 - 0.3125 / 0.8), abs=2)
    assert "MTE2" in point.reason
    # an unknown chip: what binds is told, a gain is not
    point = point_of("bf16", 100_000, 10**9, 50_000_000, reads, "nobody knows it")
    assert (point.verdict, point.gain_ns) == ("memory-bound", None)
    # a busy cube is bound by arithmetic whatever the peak says
    point = point_of("bf16", 100_000, 10**10, 10**6, cube)
    assert (point.verdict, point.gain_ns) == ("compute-bound", None)
    # where shapes can tell, they do
    point = point_of("bf16", 100_000, 28 * 10**9, 10**6, reads)
    assert point.verdict == "compute-bound" and "MTE2" not in point.reason


# -- what a table tells ------------------------------------------------------------------------------


def test_core_kinds_come_from_the_table_and_a_trace_is_believed_for_ai_cpus_only() -> None:
    run = run_of("""
        stream7 kernel:a@0..10{Task Type=AI_CORE;Accelerator Core=AI_VECTOR_CORE} kernel:b@10..20{Task Type=AI_CORE}
        stream7 kernel:c@20..30{Task Type=AI_CPU} kernel:d@30..40{Accelerator Core=MIX_AIC} kernel:e@40..50
    """)
    assert [run.npu.core_of(int(r)) for r in run.whole.rows] == [
        "AI_VECTOR_CORE",
        "",
        "AI_CPU",
        "MIX_AIC",
        "",
    ]


def test_operator_types_are_in_names_too() -> None:
    assert op_type("aclnnNonzero_NonZeroAiCpu_NonZero") == "NonZero"
    assert op_type("trans_TransData_0") == "TransData"
    assert op_type("aclnnMatmul_MatMulV3Common_MatMulV3") == op_type("MatMulV3") == "MatMulV3"
    assert op_type("Conv2D1") == "Conv2D"
    assert op_type("42") == "42"


def test_cores_are_told_or_measured_and_never_guessed() -> None:
    measured = "aicore_time(us)=96.0;cube_utilization(%)=48.0;aiv_vec_ratio=0.0"
    kernel = "stream7 kernel:Conv2D@0..100{Accelerator Core=AI_CORE;Block Num=12;%s}"

    assert run_of(kernel % measured).npu.cores[0].source == "as the recording tells"
    count = run_of(kernel % measured, devices={"0": {"vendor": "Ascend"}}).npu.cores[0]
    assert (count.cube, count.vector) == (24, 48)
    # 23.4 cores are no whole number: something else is at work
    assert not run_of(
        kernel % measured.replace("48.0", "49.2"), devices={"0": {"vendor": "Ascend"}}
    ).npu.cores
    assert not run_of(kernel % "x=1", devices={"0": {"vendor": "Ascend"}}).npu.cores


def test_measured_cores_and_clock_single_out_a_chip() -> None:
    kernel = """stream7 kernel:Conv2D@0..100{Accelerator Core=AI_CORE;Block Num=12;aicore_time(us)=%s;cube_utilization(%%)=%s;aiv_vec_ratio=0.0}"""
    device = {"vendor": "Ascend", "measured_aic_mhz": 1800.0}

    b3 = run_of(kernel % ("80.0", "48.0"), devices={"0": device}).chips[0]
    assert b3.name == "Ascend 910B3, by cores and clock"
    assert b3.bandwidth is not None
    # two chips of 20 cores at 1650 MHz differ in their memory: the matrix rate is known, the bandwidth is not
    b4 = run_of(kernel % ("80.0", "48.0"), devices={"0": device | {"measured_aic_mhz": 1650.0}}).chips[0]
    assert (round(b4.peaks["bf16"].value / 1e12, 1), b4.bandwidth) == (270.3, None)
    # what the recording says stands
    told = run_of(kernel % ("80.0", "48.0"), devices={"0": device | {"name": "Ascend910_9391"}}).chips[0]
    assert told.name.startswith("Ascend 910C")


def test_bytes_are_those_that_memory_access_counted() -> None:
    run = run_of("""
        stream7 kernel:x@0..100{Accelerator Core=AI_VECTOR_CORE;Type=Add;Block Num=40;aiv_read_main_memory_datas(KB)=1000.0;aiv_write_main_memory_datas(KB)=500.0}
    """)
    (row,) = run.npu.table()
    assert row["bytes"] == 1500 * 1024
    assert row["bytes_per_s"] == round(1500 * 1024 / 100e-6)


def test_the_table_names_what_bound_each_kernel() -> None:
    run = run_of("""
        stream7 kernel:a@0..100{Accelerator Core=AI_CORE;Type=MatMulV3;Block Num=20;aic_mac_ratio=0.85;aic_mte2_ratio=0.9}
        stream7 kernel:b@100..150{Accelerator Core=AI_CPU;Type=NonZero}
    """)
    first, second = run.npu.table()
    assert (first["type"], first["bound"], first["pipe"], first["busy"], first["cores"]) == (
        "MatMulV3", "cube-bound", "aic_mac", 0.85, 20,
    )  # fmt: skip
    assert (second["bound"], second["note"]) == ("", "AI CPUs have no pipes")
    assert (
        run_of("stream7 kernel:gemm@0..10", devices={"0": {"name": "NVIDIA H100 80GB HBM3"}}).npu.table()
        == []
    )


def test_the_ai_cpu_finding_uses_the_profilers_own_table() -> None:
    facts = {
        "ranks": [
            {"aicpu": [{"node": "Cumsum", "compute_ns": 150_000, "memcpy_ns": 20_000, "dispatch_ns": 9_000}]}
        ]
    }
    session = timeline(
        'stream7 kernel:aclnnCumsum@0..200{Accelerator Core=AI_CPU;Type=Cumsum;Input Data Types=["DOUBLE"]}',
        devices=NPU,
        ascend=facts,
    )
    (finding,) = analyze(session, {"NP801": RULES["NP801"]}).findings

    assert "The AI CPU spent 150 us computing, 20.0 us copying, 9.00 us dispatching." in finding.detail
    assert finding.advice == "Cast its DOUBLE input to float32 before this operator, if the values fit."


# -- fused operators ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("types", "fused"),
    [
        (["Cast", "Pows", "ReduceMean", "Adds", "Rsqrt", "Mul", "Cast", "Mul"], "npu_rms_norm"),
        (["Add", "RmsNorm"], "npu_add_rms_norm"),
        (["Add", "RmsNorm", "DynamicQuant"], "npu_add_rms_norm_dynamic_quant"),
        (["Swish", "Mul"], "npu_swiglu"),
        (["Mul", "Neg", "ConcatD", "Mul", "Add"], "npu_rotary_mul"),
        (["BatchMatMulV2", "Muls", "Add", "SoftmaxV2", "BatchMatMulV2"], "npu_fused_infer_attention_score"),
        (["SoftmaxV2", "TopKV2"], "npu_moe_gating_top_k_softmax"),
        (["MatMulV3", "Add"], ""),
        (["AddRmsNorm", "MatMulV3", "SwiGlu"], ""),
    ],
)
def test_sequences_are_known_by_operator_type(types: list[str], fused: str) -> None:
    assert offered(types).split(" ")[0] == fused


def test_every_type_has_one_letter_and_patterns_use_known_ones() -> None:
    names = [n for group in LETTERS.values() for n in group.split()]
    assert len(names) == len(set(names))
    used = set(re.sub(r"\(\?:|[^A-Z]", "", "".join(p.form for p in PATTERNS)))
    assert used <= set(LETTERS)


def test_a_chain_on_an_npu_names_the_operator_that_does_it_at_once() -> None:
    case = next(c for c in cases("MB304") if "kernel table of an NPU" in c["name"])
    (finding,) = analyze(timeline(case["lanes"], **case["facts"]), {"MB304": RULES["MB304"]}).findings

    assert "torch_npu.npu_swiglu" in finding.advice


# -- faults that tools for NPUs are known for --------------------------------------------------------

HEADER_OLD = (
    "Step Id,Name,Type,OP State,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim,Mix Block Dim,"
    "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,Output Formats,"
    "aicore_time(us),aic_total_cycles,aic_mac_ratio,aic_mte2_ratio,cube_utilization(%)"
)


def table(path: Path, header: str = HEADER_OLD, state: str = "dynamic", comm: str = "HCCL") -> Path:
    """Twenty convolutions on 12 of 24 cores, a cumulative sum on the AI CPU, a short collective."""
    rows = []
    for i in range(20):
        rows.append(
            f'1,Conv2D{i},Conv2D,{state},AI_CORE,{1_700_000_000_000_000 + i * 310}.000\t,300.0,0,12,0,"""8,64""",FLOAT16,ND,'
            '"""8,64""",FLOAT16,ND,288.0,6220800,0.9,0.3,48.0'
        )
    at = 1_700_000_000_000_000 + 20 * 310
    rows.append(
        f'1,aclnnCumsum_CumsumAiCpu_Cumsum,Cumsum,{state},AI_CPU,{at}.000\t,800.0,0,1,0,"""4096""",INT64,ND,"""4096""",INT64,ND,'
        "N/A,N/A,N/A,N/A,N/A"
    )
    rows.append(
        f"1,hcom_allReduce__1_0_1,hcom_allReduce_,N/A,{comm},{at + 800}.000\t,20.0,0,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A"
    )
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def said(path: Path) -> list[tuple[str, int, int]]:
    return [(f.code, f.lost_ns, f.recoverable_ns) for f in analyze(load(path), RULES_FOR_NPU).findings]


def test_a_renamed_header_loses_no_rule(tmp_path: Path) -> None:
    renamed = HEADER_OLD.replace("Block Dim", "Block Num")
    op_summary = (
        renamed.replace(",Name,Type,", ",Op Name,OP Type,").replace("Accelerator Core", "Task Type")
        .replace("Start Time", "Task Start Time").replace("Duration", "Task Duration").replace("Wait", "Task Wait")
    )  # fmt: skip
    old = said(table(tmp_path / "old.csv"))

    assert [code for code, *_ in old] == ["NP803", "NP801"]
    assert said(table(tmp_path / "new.csv", renamed, comm="COMMUNICATION")) == old
    assert said(table(tmp_path / "summary.csv", op_summary)) == old


def test_that_every_eager_operator_is_called_dynamic_is_no_finding(tmp_path: Path) -> None:
    assert said(table(tmp_path / "a.csv", state="dynamic")) == said(table(tmp_path / "b.csv", state="static"))
    report = analyze(load(table(tmp_path / "c.csv")))
    assert not any("dynamic" in f.title.lower() or "shape" in f.title.lower() for f in report.findings)


def test_a_table_cut_to_a_few_columns_is_not_analysable_and_not_clean(tmp_path: Path) -> None:
    path = tmp_path / "cut.csv"
    path.write_text(
        "Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us)\n"
        "Conv2D1,Conv2D,AI_CORE,1700000000000000.000\t,300.0,0\n"
    )
    report = analyze(load(path), RULES_FOR_NPU)

    assert {o.code: o.status for o in report.rules} == {
        "NP801": "clean", "NP802": "not_analysable", "NP803": "not_analysable", "NP804": "not_analysable",
        "NP805": "not_analysable", "NP806": "not_analysable",
    }  # fmt: skip
    assert all(o.reason for o in report.rules if o.status == "not_analysable")


# -- real recordings ---------------------------------------------------------------------------------

REAL = {
    "alexnet-train-910b/text_level1/rank0_ascend_pt": (24, 1800),
    "alexnet-train-910b/text_level1/rank1_ascend_pt": (24, 1800),
    "qwen3-0.6b-train-910b4/rank_0_ascend_pt": (20, 1650),
    "mstt-tables/kernel_details_pipe.csv": (20, 1800),
}


@pytest.mark.parametrize("name", REAL)
def test_cores_and_clocks_of_real_recordings_are_measured(shared: Path, name: str) -> None:
    run = Run(load(shared / "ascend" / name))
    cores, mhz = REAL[name]
    (device,) = run.devices

    assert (run.npu.cores[device].cube, run.npu.cores[device].vector) == (cores, 2 * cores)
    clock = run.npu.clock_mhz[np.isfinite(run.npu.clock_mhz)]
    assert len(clock) > 10
    assert float(np.median(clock)) == pytest.approx(mhz, rel=1e-4)


def test_attention_of_a_real_training_step_is_told_by_its_pipes(shared: Path) -> None:
    run = Run(load(shared / "ascend" / "qwen3-0.6b-train-910b4" / "rank_0_ascend_pt"))
    bound: dict[str, set[str]] = {}
    for row in run.npu.table():
        bound.setdefault(str(row["type"]), set()).add(str(row["bound"]))

    assert bound["ApplyAdamWV2"] >= {"memory-bound"}
    assert bound["FlashAttentionScoreGrad"] == {"unbound"}
    assert "cube-bound" in bound["MatMulV2"]


def test_no_kernel_rule_cries_on_real_recordings(shared: Path) -> None:
    for name in (
        *REAL,
        "alexnet-train-910b/db_level1/rank0_ascend_pt",
        "groupedmatmul-msprof/PipeUtilization",
    ):
        report = analyze(load(shared / "ascend" / name), RULES_FOR_NPU)
        assert report.findings == [], name
        assert all(o.reason for o in report.rules if o.status == "not_analysable")


def test_a_point_without_pipes_stays_as_it_is() -> None:
    cost = Cost(10**9, 10**6, 0, "bf16", Family.GEMM, unit="matrix")
    point = roofline(cost, 100_000, find_chip("Ascend910B3"))

    assert with_pipes(point, None, cost, 100_000) == point == replace(point)


def test_measured_bytes_prove_that_memory_binds_where_shapes_hide_the_work() -> None:
    hidden = Cost(10**9, 10**6, 0, "bf16", Family.ATTENTION, "lower bound", "the cache is hidden", "matrix")
    chip = find_chip("Ascend910B3")
    point = roofline(hidden, 100_000, chip)
    assert point.verdict == "unknown"

    # 130 MB in 100 us are 81 % of 1.6 TB/s
    told = with_bytes(point, 130_000_000, hidden, 100_000)
    assert (told.verdict, told.gain_ns) == ("memory-bound", None)
    assert "130.0 times what its operands hold, at 81% of the bandwidth" in told.reason
    assert with_bytes(point, 10_000_000, hidden, 100_000).verdict == "unknown"
    assert with_bytes(point, None, hidden, 100_000) == point


def test_a_slow_kernel_says_how_often_it_moved_its_operands() -> None:
    session = timeline(
        """
        stream7 kernel:"aclnnMatmul_MatMulV3Common_MatMulV3"@0..1000{Accelerator Core=AI_CORE;Type=MatMulV3;Block Num=20;Input Shapes=[[4096,4096],[4096,4096]];Input Data Types=["DT_BF16","DT_BF16"];Output Shapes=[[4096,4096]];Output Data Types=["DT_BF16"];aic_read_main_memory_datas(KB)=294912.0;aic_write_main_memory_datas(KB)=98304.0}
        """,
        devices={"0": {"vendor": "Ascend", "name": "Ascend910B3", "aic_cores": 20, "aiv_cores": 40}},
    )
    (finding,) = analyze(session, {"MB302": RULES["MB302"]}).findings

    assert "moved 384.0 MiB, 4.0 times what their operands hold" in finding.detail


def test_text_database_and_msprof_of_one_run_say_the_same(tmp_path: Path) -> None:
    folders = [
        ascend.write_text(tmp_path / "text"),
        ascend.write_text(tmp_path / "old", block="Block Dim", collective="HCCL", new_pids=False),
        ascend.write_db(tmp_path / "db"),
        ascend.write_db(tmp_path / "old-db", block="blockDim"),
    ]
    told = []
    for folder in folders:
        report = analyze(load(folder), RULES_FOR_NPU)
        told.append(
            (
                [(f.code, f.title, f.lost_ns, f.recoverable_ns, f.where.operator) for f in report.findings],
                [(o.code, o.status, o.reason) for o in report.rules],
            )
        )
    assert [code for code, *_ in told[0][0]] == ["NP801"]
    assert told[1:] == told[:1] * 3
    msprof = analyze(load(ascend.write_msprof(tmp_path / "msprof")), RULES_FOR_NPU)
    assert [(f.code, f.title) for f in msprof.findings][:1] == [f[:2] for f in told[0][0]]


def test_arithmetic_counters_prove_a_busy_cube_and_nothing_else() -> None:
    run = run_of("""
        stream7 kernel:a@0..100{Accelerator Core=AI_CORE;Type=MatMulV3;Block Num=20;aic_mac_fp16_ratio=0.83;aic_mac_int8_ratio=0.0}
        stream7 kernel:b@100..300{Accelerator Core=AI_VECTOR_CORE;Type=Add;Block Num=40;aiv_vec_fp32_ratio=0.1;aiv_vec_fp16_ratio=0.05}
    """)
    vector, cube = run.npu.table()
    assert (cube["bound"], cube["busy"]) == ("cube-bound", 0.83)
    assert (vector["bound"], vector["busy"]) == ("unknown", 0.15)
    report = analyze(run.session, {"NP802": RULES["NP802"]})
    assert "PipeUtilization" in report.rules[0].reason
