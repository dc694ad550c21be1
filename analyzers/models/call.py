"""One operator call as a trace records it, and what a model says about it.

Every model is a pure function of a `Call`; nothing here knows the timeline. A call is made from what a
profiler writes down: Kineto's `Input Dims`, `Input type`, `Concrete Inputs` and `Input Strides`, or the
shape and type columns of Ascend's kernel_details. All of it comes from files, so nothing is trusted:
what is not a list of small whole numbers is no shape, and a missing argument is no model, not an error.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import field, replace
from typing import Any, Literal

from stallscope.analyzers.models.family import Family
from stallscope.profiler.light import dataclass

Basis = Literal["shapes", "lower bound", "expected"]
Unit = Literal["matrix", "vector"]

_BITS: dict[str, int] = {
    "fp64": 64, "fp32": 32, "tf32": 32, "fp16": 16, "bf16": 16, "fp8": 8, "fp4x2": 8, "c64": 64,
    "c128": 128, "int64": 64, "int32": 32, "int16": 16, "int8": 8, "int4": 4, "uint64": 64, "uint32": 32,
    "uint16": 16, "uint8": 8, "bool": 8, "c32": 32,
}  # fmt: skip

_NAMES: dict[str, str] = {
    "bfloat16": "bf16", "bf16": "bf16", "half": "fp16", "float16": "fp16", "fp16": "fp16",
    "float": "fp32", "float32": "fp32", "fp32": "fp32", "double": "fp64", "float64": "fp64",
    "long int": "int64", "long": "int64", "long long": "int64", "int64": "int64", "int64_t": "int64",
    "int": "int32", "int32": "int32", "short int": "int16", "short": "int16", "int16": "int16",
    "signed char": "int8", "char": "int8", "int8": "int8", "qint8": "int8", "quint8": "uint8",
    "unsigned char": "uint8", "byte": "uint8", "uint8": "uint8", "bool": "bool", "int4": "int4",
    "unsigned short": "uint16", "unsigned int": "uint32", "unsigned long": "uint64",
    "uint16": "uint16", "uint32": "uint32", "uint64": "uint64",
    "float4_e2m1fn_x2": "fp4x2", "float4_e2m1": "fp4x2", "hifloat8": "fp8", "float8_e8m0fnu": "fp8",
    "complex<float>": "c64", "complex<double>": "c128", "complex<half>": "c32", "complex64": "c64",
    "complex128": "c128",
}  # fmt: skip

# torch.ScalarType numbers, which Kineto prints for dtype arguments.
SCALAR_TYPES: dict[int, str] = {
    0: "uint8", 1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "fp16", 6: "fp32", 7: "fp64", 8: "c32",
    9: "c64", 10: "c128", 11: "bool", 15: "bf16", 23: "fp8", 24: "fp8", 25: "fp8", 26: "fp8",
}  # fmt: skip

_CATEGORY = {"bool": 0, "uint8": 1, "int8": 1, "int16": 1, "int32": 1, "int64": 1, "fp8": 2, "fp16": 2,
             "bf16": 2, "fp32": 2, "fp64": 2, "c32": 3, "c64": 3, "c128": 3}  # fmt: skip


def parse_dtype(text: object) -> str:
    """The short name of an element type (`c10::BFloat16` and `DT_BF16` give "bf16"), "" where it is none."""
    if not isinstance(text, str):
        return ""
    name = text.strip().lower().replace("c10::", "").removeprefix("dt_").removeprefix("torch.")
    if name.startswith("float8_e"):
        return "fp8"
    return _NAMES.get(name, "")


def bits(dtype: str) -> int:
    """Bits of one stored element; 0 where the type is unknown."""
    return _BITS.get(dtype, 0)


def nbytes(count: int, dtype: str) -> int:
    """Bytes of `count` stored elements, rounded up; 0 where the type is unknown."""
    return -(-count * bits(dtype) // 8)


def promote(dtypes: Iterable[str]) -> str:
    """The element type that arithmetic on these types gives (torch's type promotion, widest wins)."""
    best = ""
    for dtype in dtypes:
        if not dtype or dtype not in _CATEGORY:
            continue
        if not best:
            best = dtype
            continue
        a, b = _CATEGORY[best], _CATEGORY[dtype]
        if b > a or (b == a and bits(dtype) > bits(best)):
            best = dtype
        elif {best, dtype} == {"fp16", "bf16"}:
            best = "fp32"
    return best


class NoModel(Exception):
    """The recorded arguments are not those the model needs; `estimate` turns it into None."""


@dataclass(frozen=True)
class Tensor:
    """Shape and element type of an argument; dtype is "" where the trace does not tell.

    `strides` may be empty; a stride of 0 marks a dimension that was expanded and lies in memory once.
    """

    shape: tuple[int, ...]
    dtype: str = ""
    strides: tuple[int, ...] = ()

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def stored(self) -> int:
        """Distinct elements in memory: dimensions with stride 0 count once."""
        if len(self.strides) != len(self.shape):
            return self.numel
        return math.prod(n for n, step in zip(self.shape, self.strides, strict=True) if step != 0 or n == 0)

    @property
    def bytes(self) -> int:
        """Bytes that reading it once moves; 0 where the element type is unknown."""
        return nbytes(self.stored, self.dtype)

    @property
    def is_float(self) -> bool:
        return self.dtype in ("fp64", "fp32", "fp16", "bf16", "fp8", "fp4x2")

    @property
    def is_index(self) -> bool:
        return self.dtype in ("int64", "int32")


@dataclass(frozen=True)
class StepTokens:
    """Token sums of one engine step, over the requests in it.

    For the requests in prefill (context) and in decode (generation): how many requests, `q` the sum of
    new tokens, `kv` the sum of attended tokens, `qq` the sum of q*q and `qk` the sum of q*kv per request.
    None is "not told". Source of the form: vLLM's `execute_*_context_*_generation_*` annotations.
    """

    context_requests: int = 0
    context_q: int = 0
    context_kv: int = 0
    context_qq: int = 0
    context_qk: int = 0
    generation_requests: int = 0
    generation_q: int = 0
    generation_kv: int = 0
    generation_qq: int = 0
    generation_qk: int = 0

    @property
    def kv_tokens(self) -> int:
        """Cached tokens that attention reads, over all requests."""
        return self.context_kv + self.generation_kv

    @property
    def causal_pairs(self) -> int:
        """Query-key pairs under a causal mask: per request q*kv - q(q-1)/2, summed."""
        context = self.context_qk - (self.context_qq - self.context_q) // 2
        return context + self.generation_qk - (self.generation_qq - self.generation_q) // 2

    _FORM = re.compile(
        r"context_(\d+)\(sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)\)_generation_(\d+)\(sq(\d+)sk(\d+)sqsq(\d+)sqsk(\d+)\)"
    )

    @classmethod
    def parse(cls, annotation: str) -> StepTokens | None:
        """The sums of a vLLM step annotation, or None where the text holds no sums."""
        found = cls._FORM.search(annotation)
        return None if found is None else cls(*(int(part) for part in found.groups()))


@dataclass(frozen=True)
class Cost:
    """What one operator call has to compute and to move at the least.

    `flops` counts a multiply-add as two. `bytes_read` and `bytes_written` count every tensor once, as if
    caches were perfect, so both are minima. `dtype` is the element type whose peak binds, `unit` whether
    the matrix engines or the vector units do the work. `basis` tells how far to trust it: "shapes" when
    the recorded shapes fix it, "lower bound" when they hide a part, "expected" when a mean over unknown
    data (expert routing) stands in; `note` says which part.
    """

    flops: int
    bytes_read: int
    bytes_written: int
    dtype: str
    family: Family
    basis: Basis = "shapes"
    note: str = ""
    unit: Unit = "vector"

    @property
    def exact(self) -> bool:
        """Whether the recorded shapes fix every number."""
        return self.basis == "shapes"

    @property
    def bytes(self) -> int:
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float | None:
        """FLOP per byte, None where no bytes are known."""
        return self.flops / self.bytes if self.bytes else None


@dataclass
class Traffic:
    """Adds up bytes and remembers whether some element type was unknown."""

    read: int = 0
    written: int = 0
    unknown: bool = False

    def reads(self, *tensors: Tensor | None) -> Traffic:
        for tensor in tensors:
            if tensor is not None:
                self.read += tensor.bytes
                self.unknown |= not tensor.dtype and tensor.numel > 0
        return self

    def writes(self, count: int, dtype: str) -> Traffic:
        self.written += nbytes(count, dtype)
        self.unknown |= not dtype and count > 0
        return self

    def cost(
        self,
        flops: int,
        dtype: str,
        family: Family,
        *,
        unit: Unit = "vector",
        basis: Basis = "shapes",
        note: str = "",
    ) -> Cost:
        """The finished cost; unknown element types turn it into a lower bound."""
        if self.unknown:
            told = "element types are not recorded, so bytes are not all counted"
            return Cost(
                flops,
                self.read,
                self.written,
                dtype,
                family,
                "lower bound",
                f"{note}; {told}" if note else told,
                unit,
            )
        return Cost(flops, self.read, self.written, dtype, family, basis, note, unit)


@dataclass(frozen=True)
class Call:
    """An operator call: `tensors[i]` is argument i where that is a tensor, else None.

    `lists[i]` holds the tensors of a list argument (their element type is not recorded by Kineto),
    `concrete[i]` the text of argument i. `outputs` is filled only by sources that record outputs
    (Ascend). `kernel` is the name of a kernel the call started, "" where not known.
    """

    name: str
    tensors: tuple[Tensor | None, ...] = ()
    lists: dict[int, tuple[Tensor, ...]] = field(default_factory=dict)
    concrete: tuple[str, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    kernel: str = ""
    step: StepTokens | None = None

    @property
    def base(self) -> str:
        """The name without its namespace: `_C::silu_and_mul` gives `silu_and_mul`."""
        return self.name.rsplit("::", 1)[-1]

    @property
    def inplace(self) -> bool:
        return self.base.endswith("_") and not self.base.endswith("__")

    @property
    def given(self) -> list[Tensor]:
        """The tensor arguments in order, without the gaps; empty tensors are left out."""
        return [t for t in self.tensors if t is not None and t.numel > 0]

    def tensor(self, index: int) -> Tensor | None:
        """Argument `index` if it is a tensor."""
        return self.tensors[index] if -len(self.tensors) <= index < len(self.tensors) else None

    def need(self, index: int) -> Tensor:
        """Argument `index`, which the model cannot do without. Raises NoModel."""
        tensor = self.tensor(index)
        if tensor is None:
            raise NoModel
        return tensor

    def text(self, index: int) -> str:
        return self.concrete[index] if 0 <= index < len(self.concrete) else ""

    def integer(self, index: int) -> int | None:
        """Argument `index` as a whole number, None where it is none or was not recorded."""
        return parse_int(self.text(index))

    def integers(self, index: int) -> list[int] | None:
        """Argument `index` as a list of whole numbers; one number is a list of one."""
        return parse_ints(self.text(index))

    def flag(self, index: int) -> bool | None:
        return {"True": True, "False": False, "1": True, "0": False}.get(self.text(index).strip())

    def scalar_type(self, index: int) -> str:
        """Argument `index` read as a dtype number, "" where there is none."""
        number = self.integer(index)
        return SCALAR_TYPES.get(number, "") if number is not None else ""

    def with_step(self, step: StepTokens | None) -> Call:
        return replace(self, step=step)


def parse_int(text: str) -> int | None:
    """A whole number of at most 18 digits, else None."""
    body = text.strip()
    digits = body[1:] if body[:1] == "-" else body
    return int(body) if digits.isdecimal() and len(digits) <= 18 else None


def parse_ints(text: str) -> list[int] | None:
    """`[1, 2]`, `(1, 2)` or `3` as a list of numbers, else None. Never evaluates the text."""
    body = text.strip()
    if body[:1] in "[(" and body[-1:] in "])" and body:
        body = body[1:-1]
        if not body.strip():
            return []
    numbers = [parse_int(part) for part in body.split(",") if part.strip()]
    return [n for n in numbers if n is not None] if numbers and None not in numbers else None


def _shape(value: Any) -> tuple[int, ...] | None:
    """A shape of whole numbers >= 0, else None; over 32 dimensions or 2^62 elements is a broken file."""
    if not isinstance(value, (list, tuple)) or len(value) > 32:
        return None
    if all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 62 for n in value):
        return tuple(value) if math.prod(value) < 1 << 62 else None
    return None


def _list_of_tensors(value: Any, strides: Any, dtype: str) -> tuple[Tensor, ...]:
    shapes = [_shape(item) for item in value]
    steps = [_shape(item) or () for item in strides] if isinstance(strides, (list, tuple)) else []
    steps += [()] * (len(shapes) - len(steps))
    return tuple(Tensor(s, dtype, t) for s, t in zip(shapes, steps, strict=False) if s is not None)


def make_call(
    name: str,
    shapes: Sequence[Any] | None,
    dtypes: Sequence[Any] | None = None,
    args: Sequence[Any] | None = None,
    *,
    strides: Sequence[Any] | None = None,
    outputs: Sequence[Any] | None = None,
    output_dtypes: Sequence[Any] | None = None,
    kernel: str = "",
    step: StepTokens | None = None,
) -> Call:
    """A call from recorded arguments; anything malformed becomes "no tensor".

    Where `dtypes` is empty (Kineto before torch 1.10) every argument with at least one dimension is
    taken for a tensor of unknown type.
    """
    shapes = shapes if isinstance(shapes, (list, tuple)) else []
    dtypes = dtypes if isinstance(dtypes, (list, tuple)) else []
    tensors: list[Tensor | None] = []
    lists: dict[int, tuple[Tensor, ...]] = {}
    for i, dims in enumerate(shapes):
        step_dims = strides[i] if isinstance(strides, (list, tuple)) and i < len(strides) else ()
        written = dtypes[i] if i < len(dtypes) else None
        dtype = parse_dtype(written)
        shape = _shape(dims)
        nested = shape is None and isinstance(dims, (list, tuple))
        if nested:
            lists[i] = _list_of_tensors(dims, step_dims, dtype)
        known = bool(dtype) or (not dtypes and bool(shape))
        tensors.append(Tensor(shape, dtype, _shape(step_dims) or ()) if shape is not None and known else None)
    out = _output_tensors(outputs, output_dtypes)
    concrete = tuple(a if isinstance(a, str) else "" for a in args) if isinstance(args, (list, tuple)) else ()
    return Call(name, tuple(tensors), lists, concrete, out, kernel, step)


def _output_tensors(outputs: Any, dtypes: Any) -> tuple[Tensor, ...]:
    if not isinstance(outputs, (list, tuple)):
        return ()
    kinds = dtypes if isinstance(dtypes, (list, tuple)) else []
    made = []
    for i, dims in enumerate(outputs):
        shape = _shape(dims)
        if shape is not None:
            made.append(Tensor(shape, parse_dtype(kinds[i]) if i < len(kinds) else ""))
    return tuple(made)


def broadcast(shapes: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape that these shapes broadcast to (NumPy's rule). Raises NoModel where they do not."""
    out: list[int] = []
    for shape in shapes:
        if len(shape) > len(out):
            out = [1] * (len(shape) - len(out)) + out
        for i in range(1, len(shape) + 1):
            n = shape[-i]
            if out[-i] == 1:
                out[-i] = n
            elif n not in (1, out[-i]):
                raise NoModel
    return tuple(out)
