"""The families of device work, and which of them a kernel's own name tells.

Needed where no operator stands behind a kernel: graph replays, kernels launched before the recording
began, libraries that call the runtime directly. A name is first cut down to what it calls itself
(`head`): template arguments of a C++ kernel name many other operations and would mislead.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import cache, lru_cache


class Family(str, Enum):
    """What kind of work a kernel or an operator does."""

    GEMM = "gemm"
    ATTENTION = "attention"
    MOE = "moe"
    CONV = "conv"
    NORM = "norm"
    SOFTMAX = "softmax"
    ROPE = "rope"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    EMBEDDING = "embedding"
    SAMPLING = "sampling"
    KV_CACHE = "kv_cache"
    COPY = "copy"
    QUANTISE = "quantise"
    COLLECTIVE = "collective"
    OTHER = "other"

    def __str__(self) -> str:
        return self.value


# Kernels of these names are shells: what they do is told by their first template arguments.
_SHELLS = frozenset(
    ("kernel", "kernel2", "kentry", "device_kernel", "trampoline_kernel", "multi_tensor_apply_kernel")
)


_TEMPLATE = re.compile(r"[<(]")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_TRAILING_NUMBER = re.compile(r"(?:_\d+)+$")
_MANGLED_PART = re.compile(r"(\d+)(?=[A-Za-z_])")


def head(name: str) -> str:
    """What a kernel calls itself, in lower snake case, with its namespaces but without arguments.

    >>> head("void at::native::(anonymous namespace)::CatArrayBatchedCopy<float, int>(float*)")
    'at::native::cat_array_batched_copy'
    >>> head("_ZN5aiter24add_rmsnorm_quant_kernelIDF16bEEvPT0_")
    'aiter::add_rmsnorm_quant_kernel'
    >>> head("aclnnAddmm_MatMulCommon_MatMulV2")
    'mat_mul_v2'
    """
    short = name[:2000].replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    if short.lower().startswith(("memcpy", "memset", "memory ")):
        return short.split(" ", maxsplit=1)[0].lower()
    if short.startswith("_Z"):
        short = _demangled_head(short)
    elif short.startswith("aclnn"):
        short = _TRAILING_NUMBER.sub("", short).rsplit("_", 1)[-1] or short
    else:
        short = _TEMPLATE.split(short.removeprefix("void ").strip(), maxsplit=1)[0].strip() or short
        short = short.rsplit(" ", 1)[-1]
    return _CAMEL.sub("_", short).lower()


def _demangled_head(name: str) -> str:
    """The nested name of an Itanium-mangled symbol: `_ZN5aiter3fooI..` gives `aiter::foo`."""
    parts: list[str] = []
    at = 3 if name.startswith("_ZN") else 2
    while True:
        found = _MANGLED_PART.match(name, at)
        if found is None:
            break
        size = int(found.group(1)[:4])
        part = name[found.end() : found.end() + size]
        at = found.end() + size
        if not part.startswith("_GLOBAL__N"):
            parts.append(part)
    return "::".join(parts) or name


_WORD = re.compile(r"(?:[a-z0-9:_]|_\?)+")
_BEGINS = re.compile(r"(?:\^|\(\?:\^\|_(?:\|:)?\))?([a-z0-9:_]{2,})(?![?*+{])")


class _Rule:
    """Regular expressions one of which is to be found in a text; none has a "|" outside of brackets.

    Most are words, perhaps with a `_?` or two, and most others begin with one. Looking for words takes a tenth of the
    time that it takes to compile the expressions and to search with them, which few of the names of a run need.
    """

    def __init__(self, *parts: str) -> None:
        self.words: list[str] = []
        self.begun: list[tuple[str, str]] = []
        rest = []
        for part in parts:
            if _WORD.fullmatch(part):
                self.words += _spellings(part)
            elif begins := _BEGINS.match(part):
                self.begun.append((begins[1], part))
            else:
                rest.append(part)
        self.rest = "|".join(rest)

    def finds(self, text: str) -> bool:
        for word in self.words:
            if word in text:
                return True
        for word, part in self.begun:
            if word in text and _compiled(part).search(text) is not None:
                return True
        return self.rest != "" and _compiled(self.rest).search(text) is not None


@cache
def _compiled(expression: str) -> re.Pattern[str]:
    return re.compile(expression)


def _spellings(word: str) -> list[str]:
    """A word with and without each of its underscores that may be left out."""
    if "_?" not in word:
        return [word]
    return _spellings(word.replace("_?", "", 1)) + _spellings(word.replace("_?", "_", 1))


_INDUCTOR: list[tuple[Family, _Rule]] = [
    (Family.GEMM, _Rule(r"^triton_tem_")),
    (Family.NORM, _Rule(r"^triton_(?:red|per|mix)_fused\w*(?:layer_norm|rms_norm|group_norm|rsqrt)")),
    (Family.SOFTMAX, _Rule(r"^triton_(?:red|per|mix)_fused\w*softmax")),
    (Family.REDUCTION, _Rule(r"^triton_(?:red|per|mix|split_scan)_")),
    (Family.EMBEDDING, _Rule(r"^triton_poi_fused\w*embedding")),
    (Family.ELEMENTWISE, _Rule(r"^triton_(?:poi|for)_")),
]

# On the head, first match wins. A fused kernel goes to its dearest part: exchange between devices, then
# attention and experts, matrix products, norms, and elementwise work last.
_RULES: list[tuple[Family, _Rule]] = [
    (Family.COLLECTIVE, _Rule(
        r"nccl", r"rccl", r"hccl", r"lccl", r"^hcom_", r"cross_device_reduce", r"multimem_", r"symm_mem",
        r"all_?reduce", r"quick_?reduce", r"all_?gather_(?:kernel|matmul|base|v)", r"reduce_?scatter",
        r"all_?to_?all", r"nvshmem", r"deep_ep::", r"lamport", r"moe_distribute", r"allgather", r"^elastic_")),
    (Family.COPY, _Rule(r"^mem(?:cpy|set|move|ory)\b", r"^mem_?set\d*$", r"(?:^|_)mem_set$", r"^copy_?(?:device|host|buffer)",
                        r"rocclr", r"fill_?buffer")),
    (Family.KV_CACHE, _Rule(
        r"reshape_and_cache", r"store_kv_?cache", r"store_cache", r"concat_and_cache", r"kv_?cache_(?:update|write)",
        r"append_paged_k_?v", r"scatter_pa_kv", r"swap_blocks", r"copy_blocks", r"kv_rms_norm_rope_cache",
        r"kv_indices", r"set_(?:kv|mla_kv)", r"gather_(?:and_)?(?:cache|kv)", r"kv_buffer")),
    (Family.MOE, _Rule(
        r"(?:^|_|:)moe(?:_|$|[a-z0-9])", r"(?:^|_|:)fmoe(?:_|$|[a-z0-9])", r"fused_moe", r"_moe",
        r"matmul_ogs", r"finalize_matmul_scatter", r"combined_routing", r"sum_bitmatrix", r"experts?(?:_|$)", r"topk_?gating", r"^_topk_forward",
        r"grouped_(?:mat_?mul|gemm|mm)", r"group_gemm", r"grouped_topk", r"permute_tokens", r"expand_input_rows",
        r"sorted_token", r"count_and_sort_expert", r"compute_(?:seg|expert)", r"ep_scatter", r"ep_gather",
        r"post_reorder", r"pre_reorder")),
    (Family.ROPE, _Rule(r"rotary", r"(?:^|_|:)rope", r"qk_norm_rope", r"_rope(?:_|$)")),
    (Family.QUANTISE, _Rule(
        r"^sage_quant", r"^(?!.*(?:norm|gemm|matmul|mat_mul|attention|silu|gelu|act_and_mul)).*(?:^|_|:)(?:de)?quant(?:ize|ise)?",
        r"^(?!.*(?:norm|gemm|mm)).*scaled_(?:fp8|fp4|int8)", r"per_token_group_quant", r"convert_fp8", r"group_quant_8bit")),
    (Family.ATTENTION, _Rule(
        r"attention", r"flash_?(?:fwd|bwd|attn|mla|decod)", r"fmha", r"paged_?attn", r"(?:^|_|:)pa_(?:fwd|bf16|fp16|decode)",
        r"(?:^|_|:)mha_", r"mmha", r"(?:^|_|:)attn_", r"_attn(?:_|$)", r"sage_(?:fwd|attn)", r"(?:^|_|:)mla_", r"split_?kv",
        r"fwd_kernel_stage\d", r"fwd_grouped_kernel", r"decode_att", r"^_?(?:att_)?fwd_kernel",
        r"batch_(?:decode|prefill)_with", r"single_(?:decode|prefill)", r"merge_states?", r"merge_attn",
        r"ring_mla", r"unpad_f", r"sdpa", r"xqa", r"fused_infer_attention", r"lightning_indexer", r"delta_rule", r"fused_attn", r"persistent_variable_length")),
    (Family.CONV, _Rule(
        r"conv(?:_|\d|$|olution|olve|fwd|bwd|2d)", r"^igemm_", r"implicit_gemm", r"implicit_convolve", r"explicit_convolve",
        r"wgrad", r"dgrad", r"fprop", r"scudnn", r"winograd", r"nchw_?to_?nhwc", r"nhwc_?to_?nchw", r"im2_?col",
        r"im2d2", r"col2im", r"batched_transpose_\d+x\d+", r"sub_tensor_op", r"compute_b?offsets_kernel",
        r"cudnn::cnn::", r"naive_conv", r"h884cudnn", r"s\d+cudnn", r"grouped_conv")),
    (Family.NORM, _Rule(
        r"rms_?norm", r"layer_?norm", r"group_?norm", r"batch_?norm", r"instance_?norm", r"(?:^|_|:)bn_(?:fw|bw)",
        r"rowwise_moments", r"compute_fused_params", r"cu_compute_(?:grad|part_grad)", r"gamma_beta",
        r"compute_internal_gradients", r"compute_backward_fused_params", r"l2_?norm", r"_norm_(?:fwd|bwd|kernel)",
        r"add_norm", r"welford", r"cudnn::bn_", r"(?:^|_)norm_kernel")),
    (Family.GEMM, _Rule(
        r"gemm", r"gemv", r"^cijk_", r"mat_?mul", r"(?:^|_|:)mm(?:_|$)", r"split_?k_?reduce", r"nvjet",
        r"^(?:ampere|volta|turing|hopper|maxwell|sm\d+)_", r"xmma", r"wv_?split_?k", r"llmm1", r"marlin", r"machete",
        r"wgmma", r"(?:^|_)dot_kernel", r"cutlass", r"linear(?:_|$)(?!ize|index)", r"post_gsu", r"reduce_1_?block",
        r"batch_mat", r"awq_", r"gptq_", r"^epilogue::", r"^ffn(?:_|$)")),
    (Family.SOFTMAX, _Rule(r"soft_?max", r"logsumexp")),
    (Family.SAMPLING, _Rule(
        r"top_?[kp](?:_|\d|v\d|$)", r"topk", r"(?<!up)sampl", r"multinomial", r"radix_?sort", r"(?:^|_|:)(?:merge_|segmented_|block_)?sort",
        r"bitonic", r"(?<!with_)arg_?(?:max|min)", r"exponential", r"random", r"distribution", r"gumbel", r"penalt",
        r"min_p", r"curand", r"philox", r"gen_?bit_?mask", r"genbitmask", r"sort_(?:kernel|pairs)", r"onesweep", r"rocrand")),
    (Family.REDUCTION, _Rule(r"device_(?:segmented_)?(?:reduce|scan|select|run_length)", r"rocprim")),
    (Family.EMBEDDING, _Rule(
        r"embedding", r"index_?(?:select|add|put|copy|fill|elementwise|kernel|func|\d*$)", r"gather", r"scatter",
        r"indexing_backward", r"take_along", r"permute_\w*(?:sparse|pooled|indices)", r"bounds_check", r"lookup",
        r"linear(?:ize)?_index", r"recat_")),
    (Family.COPY, _Rule(
        r"cop(?:y|ies)", r"(?:^|_|:)cat_?(?:array|kernel)", r"concat", r"transpose", r"trans_?data", r"tensor_move",
        r"(?:^|_)(?:cast|fill|slice|tile(?:_|d|\d|$)|pad(?:_|d|v|\d|$)|roll|split(?:_|v|d|$)|(?:un)?pack(?:_|\d|$)|range\d*$|tri[lu])",
        r"memcpy", r"memset", r"contiguous", r"zeros?_?like", r"ones_?like", r"strided_slice", r"as_strided",
        r"broadcast_to", r"convert", r"flip", r"identity", r"kernel_with_index", r"arange", r"repeat_interleave",
        r"expand(?:_|$|\d)", r"format_cast", r"permute")),
    (Family.REDUCTION, _Rule(
        r"reduce", r"reduction", r"cum_?sum", r"(?:^|_|:)scan", r"device_?scan", r"rocprim", r"(?:^|_)sum(?:_|$)",
        r"non_?zero", r"unique", r"(?:^|_)mean", r"lp_norm", r"segment", r"pool", r"cross_entropy", r"n_?ll_?loss",
        r"nll", r"histogram", r"bincount", r"device_run_length", r"scan_by_key", r"device_select", r"compact")),
    (Family.ELEMENTWISE, _Rule(
        r"elementwise", r"pointwise", r"act_and_mul", r"silu", r"gelu", r"swi_?glu", r"relu", r"activation", r"dropout",
        r"drop_out", r"mask", r"upsample", r"sigmoid", r"tanh", r"pow(?:_|$)", r"sqrt", r"op_tensor", r"clamp", r"adam", r"sgd",
        r"foreach", r"lerp", r"(?:^|_)(?:add|mul|sub|div|scale)(?:_|$)", r"future_token", r"compute_position", r"req_to_token",
        r"scale_packed_tensor", r"threshold", r"vectorized_", r"weight_update", r"(?:^|_)relu", r"axpy", r"optimizer")),
]  # fmt: skip

_ASCEND_VECTOR = re.compile(
    r"^(?:add|adds|sub|subs|mul|muls|div|divs|real_div|neg|exp|log|sqrt|rsqrt|square|abs|pow|pows|equal|not_equal"
    r"|greater|greater_equal|less|less_equal|logical_and|logical_or|logical_not|maximum|minimum|select|cos|sin"
    r"|clip_by_value|masked_fill|axpy|addcmul|addcdiv|reciprocal|bitwise_not|bitwise_and|bitwise_or|floor_div"
    r"|floor_mod|erf|sign|ceil|floor|round|is_nan|is_inf|is_finite|add_n|trunc|mod|softplus|mish|swish|where"
    r"|assign|assign_add|lp_norm_update_?)(?:_?v?\d+)?(?:_grad)?$"
)

_COPY_FUNCTOR = re.compile(
    r"direct_copy_kernel|copy_kernel_cuda|copy_kernel|FillFunctor|CatArray|float_?copy|bfloat16_copy|CopyFunctor"
)
_ARG_REDUCTION = re.compile(r"ArgMaxOps|ArgMinOps|ArgReduce")


@lru_cache(maxsize=65536)
def kernel_family(name: str) -> Family:
    """The family that a kernel's name tells, `Family.OTHER` where it tells none.

    Works on demangled and mangled names, on Triton, Tensile, CUTLASS and CANN names alike; only the
    first 2000 characters are looked at.
    """
    short = head(name)
    if short.startswith("triton_"):
        for family, rule in _INDUCTOR:
            if rule.finds(short):
                return family
    if "elementwise_kernel" in short and "at::" in short:
        return Family.COPY if _COPY_FUNCTOR.search(name[:2000]) is not None else Family.ELEMENTWISE
    if short.endswith("reduce_kernel") and "at::native" in short:
        return Family.SAMPLING if _ARG_REDUCTION.search(name[:2000]) is not None else Family.REDUCTION
    if _ASCEND_VECTOR.search(short) is not None:
        return Family.ELEMENTWISE
    if short.rsplit("::", 1)[-1] in _SHELLS:
        return _shell_family(name[:2000])
    return _first(short)


def _shell_family(name: str) -> Family:
    """A kernel whose own name is a shell (`cutlass::Kernel2`): its arguments tell what it does."""
    if "multi_tensor_apply" in name:
        return Family.COPY if "Copy" in name else Family.ELEMENTWISE
    return _first(_CAMEL.sub("_", name).lower())


@lru_cache(maxsize=65536)  # kernels that differ in their template arguments alone have one head
def _first(text: str) -> Family:
    for family, rule in _RULES:
        if rule.finds(text):
            return family
    return Family.OTHER
