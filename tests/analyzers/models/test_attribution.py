"""Which operator a kernel belongs to, on a drawn timeline."""

from __future__ import annotations

from stallscope.analyzers.models.attribution import FAMILIES, attribute, launch_costs
from stallscope.analyzers.models.family import Family
from stallscope.profiler.kinds import Kind
from support.lanes import timeline

DRAWN = """
    host  op:aten::linear@0..50{Input_Dims=1} op:aten::mm@2..40{K=1} rt:cudaLaunchKernel@4..8#1
    host  rt:cudaLaunchKernel@10..14#2
    host  op:aten::mm@60..80{K=1} rt:cudaGraphLaunch@62..70#3
    host  op:aten::view@82..90 rt:cudaLaunchKernel@84..86#4
    stream7 kernel:gemm@20..40#1 memset:Memset@42..44#2 kernel:"attn_fwd"@70..90#3 kernel:"my_kernel"@95..99#4
"""
SHAPED = {"Input Dims": "[[2,3],[3,4]]", "Input type": '["float","float"]', "Concrete Inputs": '["",""]'}


def drawn() -> str:
    """The drawing with real argument names, which may hold blanks."""
    arguments = ";".join(f"{key}={value}" for key, value in SHAPED.items())
    return DRAWN.replace("{K=1}", "{" + arguments + "}").replace("{Input_Dims=1}", "")


def test_the_innermost_operator_with_shapes_owns_the_kernels_it_launched() -> None:
    session = timeline(drawn())
    joined = attribute(session.timeline)
    names = [session.timeline.name(int(row)) for row in joined.device_rows]
    owners = [session.timeline.name(int(row)) if row >= 0 else "" for row in joined.owner]
    assert dict(zip(names, owners, strict=True)) == {
        "gemm": "aten::mm",
        "Memset": "aten::mm",
        "attn_fwd": "",  # made by a graph, not by the operator around its replay
        "my_kernel": "",  # a view records no shapes here
    }


def test_a_call_is_compared_with_all_its_kernels() -> None:
    session = timeline(drawn())
    joined = attribute(session.timeline)
    (work,) = list(joined.work)
    assert work.duration_ns == 22_000 and session.timeline.name(work.longest) == "gemm"
    assert work.cost is not None and work.cost.flops == 48
    assert joined.modelled_ns() == joined.modelled_ns(exact=True) == 22_000


def test_families_come_from_the_cost_else_from_the_name() -> None:
    session = timeline(drawn())
    joined = attribute(session.timeline)
    by_name = {
        session.timeline.name(int(row)): FAMILIES[family]
        for row, family in zip(joined.device_rows, joined.family, strict=True)
    }
    assert by_name == {
        "gemm": Family.GEMM,
        "Memset": Family.GEMM,
        "attn_fwd": Family.ATTENTION,
        "my_kernel": Family.OTHER,
    }


def test_kernels_with_their_own_shapes_need_no_operator() -> None:
    session = timeline("""
        host  rt:aclnnMatmul@0..8#1
        stream7 kernel:MatMulV3@20..40#1{Type=MatMulV3;Input Shapes=2,3;Input Data Types=FLOAT}
        stream7 kernel:SwiGlu@50..60{Type=SwiGlu;Input Shapes=2,16;Input Data Types=DT_BF16;Output Shapes=2,8;Output Data Types=DT_BF16}
    """)
    joined = attribute(session.timeline)
    costs = {session.timeline.name(work.op_row): work.cost for work in joined.work}
    assert costs["MatMulV3"] is None  # no output recorded
    swiglu = costs["SwiGlu"]
    assert swiglu is not None and swiglu.flops == 80


def test_an_empty_timeline_has_no_work() -> None:
    joined = attribute(timeline("").timeline)
    assert list(joined.work) == [] and len(joined.family) == len(joined.owner) == 0
    assert joined.modelled_ns() == 0


def test_launches_of_a_capture_have_operators_without_any_kernel() -> None:
    captured = drawn().splitlines()
    session = timeline("\n".join(line for line in captured if "stream7" not in line))
    launches = session.timeline.rows(Kind.RUNTIME)
    owner, code, costs = launch_costs(session.timeline, launches)
    assert [cost.flops for cost in costs] == [48]
    names = [session.timeline.name(int(row)) if row >= 0 else "" for row in owner]
    assert names == ["aten::mm", "aten::mm", "aten::mm", ""]
    assert list(code) == [0, 0, 0, -1]
