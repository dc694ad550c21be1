"""Steps and phases: from names, scopes, modules, shapes, kernels and repetition, and never from nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from stallscope.profiler.kinds import Kind
from stallscope.profiler.step_names import Level, read_name
from stallscope.profiler.step_pattern import find_pattern, stretch_hashes
from stallscope.profiler.steps import Step, find_steps, step_of_device_rows
from stallscope.profiler.timeline import Timeline
from support.lanes import timeline


def drawn(drawing: str) -> Timeline:
    return timeline(drawing).timeline


def said(steps: list[Step]) -> list[tuple[str, str, int, int]]:
    """Phase, confidence, start and end in microseconds."""
    return [(s.phase, s.confidence, s.start_ns // 1000, s.end_ns // 1000) for s in steps]


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("execute_context_2(512)_generation_3(3)", "mixed"),
        ("execute_context_2(512)_generation_0(0)", "prefill"),
        ("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk99sqsq32sqsk99)", "decode"),
        ("step[EXTEND bs=2 toks=4096]", "prefill"),
        ("step[DECODE bs=32]", "decode"),
        ("step[VERIFY bs=4]", "decode"),
        ("step[IDLE]", "other"),
        ("prefill[bs=2 tok=16384]", "prefill"),
        ("decode", "decode"),
        ("model.decode", "decode"),
        ("decode step 12", "decode"),
        ("## denoise step 3 ##", "denoising"),
        ("vision encoder", "vision encoder"),
        ("sample", "sampling"),
    ],
)
def test_names_of_engines_and_users_tell_a_phase(name: str, phase: str) -> None:
    told = read_name(name)
    assert told is not None
    assert (told.phase, told.level) == (phase, Level.MARK)


@pytest.mark.parametrize(
    "name",
    ["tokenizer.decode", "decode_attention", "decode layer 3", "mixed precision", "host_work", "sampler.py(2)", "x" * 500,
     "aten::decode", "sample dataset", "jpeg decode"],
)  # fmt: skip
def test_names_that_only_sound_like_a_phase_tell_none(name: str) -> None:
    assert read_name(name) is None


def test_sizes_come_under_one_name_whatever_the_engine_calls_them() -> None:
    sglang = read_name(
        "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1 g_sqsk=12]"
    )
    vllm = read_name("execute_6_context_1(sq5sk8sqsq25sqsk40)_generation_1(sq1sk12sqsq1sqsk12)")
    assert sglang is not None
    assert vllm is not None
    for told in (sglang, vllm):
        assert told.facts["batch"] == 2
        assert told.facts["context_sums"] == [5, 8, 25, 40]
        assert told.facts["generation_sums"] == [1, 12, 1, 12]


def test_sums_that_a_decode_span_leaves_out_follow_from_the_batch() -> None:
    told = read_name("step[DECODE bs=2 g_sqsq=2 g_sqsk=30 g_sk=30]")
    assert told is not None
    assert told.facts["generation_sums"] == [2, 30, 2, 30]


def test_a_step_padded_over_its_tokens_tells_the_bucket() -> None:
    told = read_name("execute_8_context_0(sq0sk0sqsq0sqsk0)_generation_5(sq5sk50sqsq5sqsk50)")
    assert told is not None
    assert (told.facts["tokens"], told.facts["bucket"]) == (5, 8)


# -- marks, scopes, loops --------------------------------------------------------------------------


def test_the_mark_of_a_step_wins_over_profiler_steps_and_takes_the_sizes_of_marks_inside() -> None:
    steps = find_steps(
        drawn("""
        host mark:ProfilerStep#1@0..100 mark:"step[DECODE bs=4]"@10..90
        host mark:"execute_context_0(0)_generation_4(4)"@12..88
    """)
    )
    assert said(steps) == [("decode", "high", 10, 90)]
    assert (steps[0].facts["batch"], steps[0].facts["decode_tokens"]) == (4, 4)


def test_a_loop_around_steps_of_its_own_phase_is_no_step() -> None:
    steps = find_steps(drawn("host mark:decode@0..100 mark:decode[step=0]@2..40 mark:decode[step=1]@50..90"))
    assert said(steps) == [("decode", "high", 2, 40), ("decode", "high", 50, 90)]


def test_numbers_given_to_a_mark_become_facts() -> None:
    steps = find_steps(drawn("host mark:decode@0..50{step=7;batch=25;padded=32}"))
    assert steps[0].facts == {"source": "mark", "step": 7, "batch": 25, "bucket": 32}


def test_stages_of_an_engine_are_joined_to_cycles() -> None:
    steps = find_steps(
        drawn("""
        host mark:"gpu_model_runner: preprocess"@0..10 mark:"gpu_model_runner: forward"@10..50
        host mark:"gpu_model_runner: sample"@50..60 mark:"gpu_model_runner: preprocess"@70..80
        host mark:"gpu_model_runner: forward"@80..120 mark:"gpu_model_runner: sample"@120..130
        host op:"aten::scaled_dot_product_attention"@20..30{Input Dims=[[1,8,1,64],[1,8,40,64],[1,8,40,64]]}
    """)
    )
    assert [(s.start_ns, s.end_ns) for s in steps] == [(0, 60_000), (70_000, 130_000)]
    assert [s.phase for s in steps] == ["decode", "other"]


def test_profiler_steps_take_their_phase_from_shapes() -> None:
    steps = find_steps(
        drawn("""
        host mark:ProfilerStep#1@0..50 mark:ProfilerStep#2@50..100 mark:ProfilerStep#3@100..150
        host op:"aten::scaled_dot_product_attention"@10..20{Input Dims=[[2,8,77,64],[2,8,77,64],[2,8,77,64]];Concrete Inputs=["","","","","0.","True"]}
        host op:"aten::scaled_dot_product_attention"@60..70{Input Dims=[[2,8,1,64],[2,8,78,64],[2,8,78,64]]}
        host op:"aten::scaled_dot_product_attention"@110..120{Input Dims=[[2,8,77,64],[2,8,77,64],[2,8,77,64]];Concrete Inputs=["","","","","0.","False"]}
    """)
    )
    # attention that is not causal may be an encoder: no phase is claimed
    assert [(s.phase, s.confidence) for s in steps] == [
        ("prefill", "medium"),
        ("decode", "medium"),
        ("other", "high"),
    ]


def test_a_cache_kernel_with_one_query_per_sequence_is_decoding() -> None:
    dims = "[[3,8,32],[99,4,16,32],[99,4,16,32],[3,8,32],[4],[3]]"
    types = '["float","float","float","float","int","int"]'
    steps = find_steps(
        drawn(
            f'host mark:ProfilerStep#1@0..50 op:"_C::attention_with_kv_cache"@10..20{{Input Dims={dims};Input type={types}}}'
        )
    )
    assert said(steps) == [("decode", "medium", 0, 50)]


def test_names_of_attention_kernels_tell_a_phase_with_low_confidence() -> None:
    steps = find_steps(
        drawn("""
        host    mark:ProfilerStep#1@0..50 rt:cudaLaunchKernel@10..12#1 mark:ProfilerStep#2@50..100
        host    rt:cudaLaunchKernel@60..62#2
        stream7 kernel:"paged_attention_v2_kernel"@15..20#1 kernel:BatchPrefillWithPagedKVCacheKernel@65..90#2
    """)
    )
    assert [(s.phase, s.confidence) for s in steps] == [("decode", "low"), ("prefill", "low")]


def test_passes_of_a_pipeline_are_split_by_the_module_it_repeats() -> None:
    steps = find_steps(
        drawn("""
        host mark:"execute_diffusion_1_256x256"@0..100
        host python:"nn.Module: CLIPTextModel_0"@5..15 python:"nn.Module: Linear_0"@6..8
        host python:"nn.Module: OptimizedModule_0"@20..40 python:"nn.Module: OptimizedModule_0"@50..70
        host python:"nn.Module: Decoder_0"@80..95 python:"nn.Module: Conv2d_0"@82..84
    """)
    )
    assert [s.phase for s in steps] == ["other", "denoising", "denoising", "other"]


def test_modules_are_passes_where_nothing_else_is_told() -> None:
    steps = find_steps(
        drawn("""
        host python:"nn.Module: LlamaForCausalLM_0"@0..40 python:"nn.Module: LlamaModel_0"@1..39
        host op:"aten::scaled_dot_product_attention"@10..20{Input Dims=[[1,8,32,64],[1,8,32,64],[1,8,32,64]]}
        host python:"nn.Module: LlamaForCausalLM_0"@50..70 python:"nn.Module: LlamaModel_0"@51..69
        host op:"aten::scaled_dot_product_attention"@55..60{Input Dims=[[1,8,1,64],[1,8,33,64],[1,8,33,64]]}
    """)
    )
    assert said(steps) == [("prefill", "medium", 0, 40), ("decode", "medium", 50, 70)]


def test_marks_seen_by_the_device_only_stand_on_its_own_clock() -> None:
    drawing = """
        stream7 kernel:a@0..10#1 kernel:b@20..30#2
        label   gmark:"step[DECODE bs=2]"@0..12 gmark:"step[DECODE bs=2]"@18..31
    """
    steps = find_steps(drawn(drawing))
    assert [s.facts["clock"] for s in steps] == ["device", "device"]
    line = drawn(drawing)
    assert step_of_device_rows(line, steps)[line.device_work()].tolist() == [0, 1]


# -- repetition ------------------------------------------------------------------------------------

LAYER = [1, 2, 3, 4, 2, 5]


def test_a_step_is_found_by_its_repetition_and_not_a_layer_of_it() -> None:
    step = [0, *LAYER * 4, 7, 8]
    found = find_pattern(np.array(step * 6), np.zeros(6 * len(step), bool))
    assert found is not None
    assert (found.length, len(found.starts), found.exact) == (len(step), 6, True)


def test_layers_of_one_pass_are_no_steps() -> None:
    codes = np.array([9, *LAYER * 24, 10])
    assert find_pattern(codes, np.zeros(len(codes), bool)) is None


def test_a_step_of_one_layer_is_known_by_its_choice_of_a_token() -> None:
    codes = np.array([*LAYER, 20] * 8)
    assert find_pattern(codes, np.zeros(len(codes), bool)) is None
    found = find_pattern(codes, codes == 20)
    assert found is not None
    assert found.length == 7


@pytest.mark.parametrize("names", [2, 5, 40])
def test_random_sequences_have_no_steps(names: int) -> None:
    for seed in range(25):
        codes = np.random.default_rng(seed).integers(0, names, 2000)
        assert find_pattern(codes, np.zeros(2000, bool)) is None
        assert find_pattern(codes, codes == 0) is None


def test_one_name_over_and_over_has_no_steps() -> None:
    assert find_pattern(np.zeros(500, int), np.zeros(500, bool)) is None


def test_hashes_tell_stretches_apart_by_order_or_by_names() -> None:
    codes = np.array([1, 2, 3, 1, 2, 3, 3, 2, 1])
    at = np.array([0, 3, 6])
    first, second, third = stretch_hashes(codes, at, at + 3).tolist()
    assert first == second != third
    assert len(set(stretch_hashes(codes, at, at + 3, ordered=False).tolist())) == 1


def test_repeated_kernels_become_steps_that_begin_after_the_widest_pause() -> None:
    host, device, t = [], [], 0
    number = 0
    for _ in range(5):
        for name in ["embed", *["norm", "gemm", "attn", "mlp"] * 3, "head"]:
            number += 1
            host.append(f"rt:cudaLaunchKernel@{t}..{t + 2}#{number}")
            device.append(f"kernel:{name}@{t + 3}..{t + 9}#{number}")
            t += 10
        t += 90
    steps = find_steps(drawn(f"host {' '.join(host)}\nstream7 {' '.join(device)}"))
    assert [(s.start_ns // 1000, s.end_ns // 1000) for s in steps] == [
        (230 * i, 230 * i + 132) for i in range(5)
    ]
    assert {(s.phase, s.confidence, s.facts["source"]) for s in steps} == {("other", "medium", "repetition")}


# -- counting and belonging ------------------------------------------------------------------------


def test_steps_are_counted_within_their_phase() -> None:
    steps = find_steps(
        drawn("host mark:prefill@0..50 mark:decode@50..60 mark:decode@60..70 mark:prefill@70..90")
    )
    assert [(s.phase, s.index) for s in steps] == [
        ("prefill", 0),
        ("decode", 0),
        ("decode", 1),
        ("prefill", 1),
    ]


def test_device_work_belongs_to_the_step_that_launched_it() -> None:
    line = drawn("""
        host    mark:decode@0..50 rt:cudaLaunchKernel@10..12#1 mark:decode@50..100 rt:cudaLaunchKernel@60..62#2
        host    rt:cudaLaunchKernel@110..112#3
        stream7 kernel:late@55..90#1 kernel:b@90..95#2 kernel:c@115..120#3 kernel:unlinked@20..22#9
    """)
    of = step_of_device_rows(line, find_steps(line))
    by_name = {line.name(int(r)): int(of[r]) for r in line.rows(Kind.KERNEL)}
    assert by_name == {"late": 0, "b": 1, "c": -1, "unlinked": -1}


def test_ranks_and_threads_keep_their_own_steps() -> None:
    line = drawn("""
        rank0.host    mark:decode@0..100 rt:cudaLaunchKernel@10..12#1
        rank1.host    mark:decode@50..150 rt:cudaLaunchKernel@60..62#2
        rank0.host2   rt:cudaLaunchKernel@20..22#3
        rank0.stream7 kernel:a@15..20#1 kernel:c@30..40#3
        rank1.stream7 kernel:b@65..70#2
    """)
    of = step_of_device_rows(line, find_steps(line))
    by_name = {line.name(int(r)): int(of[r]) for r in line.rows(Kind.KERNEL)}
    assert by_name == {"a": 0, "b": 1, "c": 0}


def test_an_empty_timeline_has_no_steps() -> None:
    line = drawn("")
    assert find_steps(line) == []
    assert step_of_device_rows(line, []).tolist() == []


# -- public recordings -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("trace", "phases"),
    [
        ("vllm-piecewise-mi300x", {("mixed", "high"): 1}),
        ("sglang-decode-mi300x", {("decode", "high"): 1}),
        ("flux-sage-mi300x", {("denoising", "medium"): 4, ("other", "medium"): 3}),
        ("qwen15-hf-h100", {("prefill", "medium"): 1}),
        ("bert-h100", {("other", "high"): 1}),
        ("vit-nsfw-h100", {("vision encoder", "medium"): 1}),
        ("nograph-manual-5080", {("other", "high"): 7}),
        ("nanovllm-decode-4080", {}),
        ("gpu-only-mi210", {}),
    ],
)
def test_phases_of_public_recordings(shared: Path, trace: str, phases: dict[tuple[str, str], int]) -> None:
    from stallscope.profiler.readers import load

    file = next(p for p in sorted((shared / "traces" / trace).iterdir()) if ".json" in p.name)
    found: dict[tuple[str, str], int] = {}
    for step in find_steps(load(file).timeline):
        found[step.phase, step.confidence] = found.get((step.phase, step.confidence), 0) + 1
    assert found == phases


def test_steps_of_an_engine_without_marks_are_found_by_repetition(shared: Path) -> None:
    from stallscope.profiler.readers import load

    steps = find_steps(load(shared / "cpu_traces" / "vllm_inproc_wrapped_ops.json.gz").timeline)
    assert {s.facts["source"] for s in steps} == {"repetition"}
    assert sum(s.phase == "decode" for s in steps) >= 25
