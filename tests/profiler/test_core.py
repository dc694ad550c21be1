"""The seam to the compiled library: what it gives away lives on, and what does not fit it is refused."""

from __future__ import annotations

import _thread
import ctypes.util
import gc
import mmap
import signal
import sys
import threading
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stallscope.profiler import kernels

core = kernels.core
pytestmark = pytest.mark.skipif(core is None, reason="the compiled core was not built")
EVENTS = (
    b'{"ph":"X","name":"a\\u0062","ts":1.5,"dur":2,"pid":1,"tid":2,"args":{"n":7,"f":0.5,"s":"text"}},' * 50
)


class Helper:
    """Answers with what the test says."""

    def __init__(self, clean: Callable[[bytes], bytes] = lambda raw: raw) -> None:
        self.clean = clean

    def clean_text(self, raw: bytes, offset: int) -> bytes:
        return self.clean(raw)

    def repair(self, window: bytes, offset: int, final: bool) -> tuple[int, bytes]:
        return len(window), b""


def test_columns_outlive_the_tokeniser() -> None:
    tokeniser = core.Tokeniser(Helper(lambda raw: b"ab"))
    tokeniser.begin(0)
    assert tokeniser.feed(EVENTS) is None
    assert tokeniser.feed(None) is None
    texts = tokeniser.texts(False, 0)
    columns = tokeniser.take()
    assert tokeniser.counts()["rows"] == 0
    del tokeniser
    gc.collect()
    ph, name, cat, ts, dur, *_ = columns
    assert ph.tobytes() == b"X" * 50
    assert [texts[code] for code in name] == ["ab"] * 50
    assert cat is None  # every event has the default
    assert (ts == 1500).all()
    assert (dur == 2000).all()
    assert all(column.flags.writeable for column in columns if column is not None)


def test_what_follows_the_list_comes_back_whole() -> None:
    tokeniser = core.Tokeniser(Helper())
    tokeniser.begin(0)
    whole = EVENTS[:-1] + b"], " + b"behind " * 100
    given = [whole[at : at + 37] for at in range(0, len(whole), 37)]
    rest: bytes | None = None
    while rest is None:
        rest = tokeniser.feed(given.pop(0) if given else None)
    assert rest + b"".join(given) == b", " + b"behind " * 100


def test_texts_and_threads_come_from_the_one_asked_for_on() -> None:
    tokeniser = core.Tokeniser(Helper())
    tokeniser.begin(0)
    tokeniser.feed(b'{"name":"a","pid":1},{"name":"\xc3\xa9","pid":2},{"name":"","pid":1}]' + b" " * 99)
    assert tokeniser.texts(False, 0) == ["a", "\u00e9", ""]
    assert tokeniser.texts(False, 2) == [""]
    assert tokeniser.texts(False, 3) == tokeniser.texts(False, 99) == tokeniser.texts(True, 0) == []
    assert tokeniser.threads(0)[:, 0].tolist() == [1, 2]
    assert tokeniser.threads(2).shape == (0, 2)


def test_texts_of_over_two_gigabytes_are_read_whole(tmp_path: Path) -> None:
    size = (1 << 32) + 5
    with (tmp_path / "nothing").open("w+b") as file:
        file.truncate(size)  # takes no room: nothing is written
        memory = mmap.mmap(file.fileno(), size)
        start = ctypes.c_ubyte.from_buffer(memory)
        held = core._Bytes(ctypes.addressof(start), size, size)
        assert held.read().nbytes == size
        assert held.read(size - 3) == bytes(3)
        assert held.read(size) == held.read(size + 1) == b""
        del start
        memory.close()


def test_an_interruption_inside_of_a_callback_is_raised_behind_it() -> None:
    def stop(raw: bytes) -> bytes:
        raise KeyboardInterrupt

    tokeniser = core.Tokeniser(Helper(stop))
    tokeniser.begin(0)
    with pytest.raises(KeyboardInterrupt):
        tokeniser.feed(EVENTS)


def test_an_interruption_while_the_library_works_is_not_lost() -> None:
    tokeniser = core.Tokeniser(Helper())
    tokeniser.begin(0)
    gate = threading.Lock()

    def interrupt() -> None:
        with gate:
            _thread.interrupt_main()

    gate.acquire()
    other = threading.Thread(target=interrupt)
    other.start()
    patience, handler = sys.getswitchinterval(), signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.setswitchinterval(100)  # the other thread runs when `feed` lets go of the interpreter, not before
    try:
        with pytest.raises(KeyboardInterrupt):
            gate.release()
            tokeniser.feed(b'{"name":"plain"},' * 100_000 + EVENTS)
            other.join()
    finally:
        sys.setswitchinterval(patience)
        signal.signal(signal.SIGINT, handler)
    with pytest.raises(RuntimeError, match="an error stopped it"):
        tokeniser.feed(EVENTS)


@pytest.mark.parametrize("answer", [None, 7, "text", bytearray(b"ab"), [b"ab"]])
def test_an_answer_that_is_not_bytes_is_an_error(answer: Any) -> None:
    tokeniser = core.Tokeniser(Helper(lambda raw: answer))
    tokeniser.begin(0)
    with pytest.raises((TypeError, ctypes.ArgumentError)):
        tokeniser.feed(EVENTS)


def test_an_unknown_instruction_set_is_refused() -> None:
    with pytest.raises(ValueError, match="no parser for mmx here"):
        core.Tokeniser(Helper(), isa="mmx")


def _read_only() -> Any:
    out = np.zeros(1, np.int32)
    out.flags.writeable = False
    return out


@pytest.mark.parametrize(
    ("code", "out", "error"),
    [
        (np.zeros(4, np.int32)[::2], np.zeros(2, np.int32), ValueError),
        (np.zeros((1, 1), np.int32), np.zeros(1, np.int32), ValueError),
        (np.frombuffer(bytes(9), np.int32, 1, 1), np.zeros(1, np.int32), ValueError),
        (np.zeros(1, np.int64), np.zeros(1, np.int32), ValueError),
        (np.zeros(1, np.dtype(np.int32).newbyteorder()), np.zeros(1, np.int32), ValueError),
        (np.zeros(1, np.int32), _read_only(), ValueError),
        (np.zeros(1, np.int32), np.zeros(2, np.int32), ValueError),
        (b"1234", np.zeros(1, np.int32), TypeError),
    ],
)
def test_arrays_that_the_library_could_not_read_are_refused(
    code: Any, out: Any, error: type[Exception]
) -> None:
    with pytest.raises(error):
        core.take_ints(np.array([5], np.int32), code, out)


def test_too_few_and_too_many_arrays_are_refused() -> None:
    one = np.zeros(1, np.int64)
    with pytest.raises(TypeError, match="2 arrays"):
        core.union(one, one)
    with pytest.raises(TypeError, match="33 arrays"):
        core.replay(*[one] * 33)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        (None, "was not built"),
        (ModuleSpec("x", None, origin="no such library.so"), "cannot be used"),
        (ModuleSpec("x", None, origin=ctypes.util.find_library("m")), "cannot be used"),
    ],
)
def test_a_library_that_is_none_of_ours_is_refused(
    monkeypatch: pytest.MonkeyPatch, spec: ModuleSpec | None, says: str
) -> None:
    monkeypatch.setattr(core, "find_spec", lambda name: spec)
    with pytest.raises(ImportError, match=says):
        core._library()


def test_a_library_without_one_of_the_functions_is_refused() -> None:
    with pytest.raises(ImportError, match="has no kernel_of_tomorrow: build it again"):
        core._kernel("of_tomorrow", "q", 1)


def test_a_library_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    class Other(ctypes.Structure):
        pass

    monkeypatch.setattr(core, "_Tokens", Other)
    with pytest.raises(ImportError, match="another version"):
        core._library()
