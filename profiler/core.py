"""The compiled core, `_core.c`, called by ctypes: each kernel as a function over arrays, and the tokeniser as a class.

The library is plain C. ctypes lets go of the interpreter's lock while it works, and takes it again for callbacks.
Importing this raises ImportError where the library was not built, or was built from other sources than these.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Generator
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_ssize_t, c_uint32, c_void_p
from importlib.util import find_spec
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


def _library() -> ctypes.CDLL:
    found = find_spec("stallscope.profiler._core")
    if found is None or not found.origin:
        raise ImportError("the compiled core was not built")
    try:
        library = ctypes.CDLL(found.origin)
        layout = library.tokens_layout
    except (OSError, AttributeError) as error:
        raise ImportError(f"the compiled core cannot be used: {error}") from error
    layout.restype = c_size_t
    if layout() != ctypes.sizeof(_Tokens):
        raise ImportError("the compiled core is that of another version: build it again")
    return library


# -- kernels -----------------------------------------------------------------------------------------------

_MAX_ARRAYS = 32
_NO_MEMORY, _MISMATCH = -2, -3
_SIZE = {"q": 8, "i": 4, "h": 2, "b": 1}
"""Bytes of an item by the letter of its kind."""


class _Arrays(ctypes.Structure):
    """`Arrays` in _kernels.h."""

    _fields_: ClassVar = [
        ("at", c_void_p * _MAX_ARRAYS),
        ("length", c_size_t * _MAX_ARRAYS),
        ("count", c_int),
    ]


def _kernel(name: str, kinds: str, writable: int) -> Callable[..., int]:
    """A kernel as a function of arrays, the last `writable` of which it fills; returns its count.

    `kinds` has a letter for each array; the first one repeats where there are more arrays than letters. The function
    raises TypeError for what is no array or too few or many of them, and ValueError for arrays of another kind, or
    whose lengths do not fit each other.
    """
    run = _declare(f"kernel_{name}", c_ssize_t, POINTER(_Arrays))
    sizes = [_SIZE[kind] for kind in kinds]

    def call(*arrays: Array) -> int:
        more = len(arrays) - len(sizes)
        if more < 0 or len(arrays) > _MAX_ARRAYS:
            raise TypeError(f"{name}: {len(arrays)} arrays")
        given = _Arrays(count=len(arrays))
        for i, array in enumerate(arrays):
            size = sizes[max(i - more, 0)]
            given.at[i] = _address(array, size, i >= len(arrays) - writable)
            given.length[i] = len(array)
        count: int = run(byref(given))
        if count == _NO_MEMORY:
            raise MemoryError
        if count == _MISMATCH:
            raise ValueError(f"{name}: arrays of different lengths")
        return count

    return call


def _address(array: Array, size: int, is_written: bool) -> int:
    """Where the items of an array stand, which are of so many bytes and in the order of the machine."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"not an array but {type(array).__name__}")
    flags = array.flags
    fits = array.itemsize == size and array.ndim == 1 and flags.c_contiguous and flags.aligned
    if not fits or not array.dtype.isnative or (is_written and not flags.writeable):
        raise ValueError(f"an array of {array.dtype}, not of aligned items of {size} bytes side by side")
    return array.ctypes.data


# -- the tokeniser -----------------------------------------------------------------------------------------

_OK, _BAD, _RAISED = 0, 2, 4
"""Of `Status` in _tokens.h: up to the second all is well, above it memory lacked or the helper raised."""


class Helper(Protocol):
    """What the tokeniser asks about text that is not strict JSON; `event_repair.Mender` is one."""

    def clean_text(self, raw: bytes, offset: int) -> bytes:
        """A string's text, as UTF-8, from what stands between its quotes."""

    def repair(self, window: bytes, offset: int, final: bool) -> tuple[int, bytes]:
        """How many bytes to skip of what stands at a damaged event (0: not before more is seen), and an event to take
        in their place, or nothing."""


class _Question(ctypes.Structure):
    """`Question` in _tokens.h."""

    _fields_: ClassVar = [
        ("tokens", c_void_p), ("text", c_void_p), ("size", c_size_t), ("skip", POINTER(c_size_t)), ("offset", c_int64),
        ("final", c_int),
    ]  # fmt: skip


_ASK = ctypes.CFUNCTYPE(c_int, POINTER(_Question))


class _Bytes(ctypes.Structure):
    _fields_: ClassVar = [("data", c_void_p), ("length", c_size_t), ("room", c_size_t)]

    def read(self, start: int = 0) -> memoryview:
        """What stands there from a place on, not copied: good until the library is called again. (`string_at` counts in
        32 bits.)"""
        if self.length <= start:
            return memoryview(b"")
        return memoryview((ctypes.c_ubyte * (self.length - start)).from_address(self.data + start)).cast("B")


class _Table(ctypes.Structure):
    _fields_: ClassVar = [
        ("bytes", _Bytes), ("texts", _Bytes), ("slot", c_void_p), ("mask", c_uint32), ("count", c_int32)
    ]  # fmt: skip


_TEXT = np.dtype([("start", np.uintp), ("size", np.uint32), ("hash", np.uint32)])
_COLUMN_TYPES = ("u1", "i4", "i4", "i8", "i8", "i4", "i8", "i4", "u2", "u1", "i4", "i8")


class _Tokens(ctypes.Structure):
    """The head of `struct Tokens` in _tokens.h."""

    _fields_: ClassVar = [
        ("column", c_void_p * len(_COLUMN_TYPES)),
        *((name, c_size_t) for name in ("rows", "row_room", "args", "arg_room", "wide", "wide_room")),
        *((name, c_size_t) for name in ("args_from", "wide_from")),
        *((name, _Table) for name in ("strings", "keys", "threads")),
        *((name, _Bytes) for name in ("carry", "spill")),
        ("text_budget", c_size_t),
        *((name, c_int64) for name in ("base", "keys_dropped", "unmended")),
        *((name, c_int) for name in ("keep", "done")),
        ("ask", _ASK),
    ]


class _Column:
    """The memory of a column, given away by the library and freed with the last array on it."""

    def __init__(self, address: int, count: int, kind: str) -> None:
        # its own reference: where Python ends, globals may be gone before this is
        self._free, self._at = _LIBRARY.core_free, address
        self.__array_interface__ = {
            "data": (address, False), "shape": (count,), "typestr": np.dtype(kind).str, "version": 3
        }  # fmt: skip

    def __del__(self) -> None:
        self._free(self._at)


def _answers(helper: Helper, errors: list[BaseException]) -> Generator[int, Any, None]:
    """Answers each question that is sent with a status. An error ends it, and waits in `errors`: none gets through C.

    Where a function begins Python looks for signals, outside of any `try` of it: there an interruption would be lost.
    Where this goes on it is inside of one.
    """
    status = _OK
    try:
        while True:
            status = _answer(helper, (yield status).contents)
    except GeneratorExit:
        return
    except BaseException as error:  # noqa: BLE001 -- `feed` raises it
        errors.append(error)
    yield _RAISED


def _answer(helper: Helper, question: _Question) -> int:
    raw = ctypes.string_at(question.text, question.size)
    if question.skip:
        question.skip[0], text = helper.repair(raw, question.offset, bool(question.final))
    else:
        text = helper.clean_text(raw, question.offset)
    return int(_LIBRARY.tokens_answer(question.tokens, text, len(text)))


class Tokeniser:
    """Turns the text of event lists into columns, as it comes.

    `seed` is that of the hashes. Without `keep` all is parsed and nothing stored. `isa` is "avx2", "sse2" or "word",
    or "" for the fastest that runs here; ValueError for one that does not. `text_budget` is how many bytes of distinct
    texts stay in memory; argument texts beyond go to `take_spill`.
    """

    def __init__(
        self, helper: Helper, seed: int = 0, keep: bool = True, isa: str = "", text_budget: int = 1 << 27
    ) -> None:
        self._free, self._at = _LIBRARY.tokens_free, _LIBRARY.tokens_new(seed)
        if not self._at:
            raise MemoryError
        name = _LIBRARY.tokens_choose(self._at, isa.encode())
        if name is None:
            raise ValueError(f"no parser for {isa} here")
        self._isa = name.decode()
        self._busy = False
        self._errors: list[BaseException] = []
        answers = _answers(helper, self._errors)
        next(answers)
        tokens = self._tokens = _Tokens.from_address(self._at)
        tokens.keep, tokens.text_budget, tokens.ask = keep, max(text_budget, 0), _ASK(answers.send)

    def __del__(self) -> None:
        self._free(self._at)

    def begin(self, offset: int) -> None:
        """An event list starts at this offset of the input."""
        self._not_at_work()
        _LIBRARY.tokens_begin(self._at, offset)

    def feed(self, data: bytes | None) -> bytes | None:
        """The next bytes of the list, or None at the end of the input. Returns the bytes behind the list once it has
        ended. Raises what the helper raises; nothing can be fed any more then."""
        self._not_at_work()
        self._busy = True
        used = c_size_t(0)
        try:
            if data is None:
                status = _LIBRARY.tokens_finish(self._at)
            else:
                status = _LIBRARY.tokens_feed(self._at, data, len(data), byref(used))
        finally:
            self._busy = bool(self._errors)
        if status == _RAISED:
            raise self._errors.pop()
        if status > _BAD:
            raise MemoryError
        tokens = self._tokens
        return bytes(tokens.carry.read()) + (data or b"")[used.value :] if tokens.done else None

    def take(self) -> list[Array | None]:
        """The columns, given away; None for one of which every row holds the default. Rows and arguments are counted
        anew then; texts stay."""
        self._not_at_work()
        out: list[Array | None] = []
        for i, kind in enumerate(_COLUMN_TYPES):
            size = c_size_t(0)
            address = _LIBRARY.tokens_take(self._at, i, byref(size))
            count = size.value // np.dtype(kind).itemsize
            out.append(np.asarray(_Column(address, count, kind)) if address else None)
        tokens = self._tokens
        tokens.rows = tokens.row_room = tokens.args = tokens.arg_room = tokens.wide = tokens.wide_room = 0
        tokens.args_from = tokens.wide_from = 0
        return out

    def texts(self, keys: bool, first: int) -> list[str]:
        """The strings by code, or the argument names by number, from the first on."""
        table = self._tokens.keys if keys else self._tokens.strings
        texts = np.frombuffer(table.texts.read(first * _TEXT.itemsize), _TEXT)
        base = int(texts["start"][0]) if len(texts) else 0
        data = bytes(table.bytes.read(base))
        starts = (texts["start"] - base).tolist()
        return [
            data[start : start + size].decode("utf-8", "surrogateescape")
            for start, size in zip(starts, texts["size"].tolist(), strict=True)
        ]

    def threads(self, first: int) -> npt.NDArray[np.int64]:
        """The pid and tid of each thread from the first on, shape (threads, 2)."""
        return np.frombuffer(self._tokens.threads.bytes.read(16 * first), np.int64).reshape(-1, 2).copy()

    def take_spill(self) -> bytes:
        """The texts put aside since the last call."""
        spill = self._tokens.spill
        data = bytes(spill.read())
        spill.length = 0
        return data

    def counts(self) -> dict[str, Any]:
        """What was read: `rows`, `args`, `wide`, the `position` in the input, `keys_dropped`, `unmended`, and `isa`."""
        tokens = self._tokens
        names = ("rows", "args", "wide", "keys_dropped", "unmended")
        return {**{name: getattr(tokens, name) for name in names}, "position": tokens.base, "isa": self._isa}

    def _not_at_work(self) -> None:
        if self._busy:
            raise RuntimeError("the tokeniser is already at work, or an error stopped it")


# -- the library -------------------------------------------------------------------------------------------


def _declare(name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(_LIBRARY, name, None)
    if function is None:
        raise ImportError(f"the compiled core has no {name}: build it again")
    function.restype, function.argtypes = result, arguments
    return function


_LIBRARY = _library()
_declare("core_free", None, c_void_p)
_declare("tokens_new", c_void_p, ctypes.c_uint64)
_declare("tokens_free", None, c_void_p)
_declare("tokens_choose", c_char_p, c_void_p, c_char_p)
_declare("tokens_begin", None, c_void_p, c_int64)
_declare("tokens_feed", c_int, c_void_p, c_char_p, c_size_t, POINTER(c_size_t))
_declare("tokens_finish", c_int, c_void_p)
_declare("tokens_answer", c_int, c_void_p, c_char_p, c_size_t)
_declare("tokens_take", c_void_p, c_void_p, c_int, POINTER(c_size_t))

nest = _kernel("nest", "iqqiiqq", 4)
union = _kernel("union", "qqqq", 2)
covered = _kernel("covered", "qqqqiq", 1)
join = _kernel("join", "qqqi", 1)
group = _kernel("group", "qii", 2)
inherit = _kernel("inherit", "ibi", 1)
cut = _kernel("cut", "qqiiqqqqiiq", 5)
flatten = _kernel("flatten", "iiqqqi", 2)
order = _kernel("order", "iqqi", 1)
take_bytes = _kernel("take_bytes", "bib", 1)
take_ints = _kernel("take_ints", "iii", 1)
take_longs = _kernel("take_longs", "qiq", 1)
pick = _kernel("pick", "qihbiqiq", 1)
replay = _kernel("replay", "q", 4)
