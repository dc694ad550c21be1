"""The small parts: settings, record files, clocks, phases, the import watch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.profiler.clocks import ClockMap
from stallscope.profiler.errors import OptionError
from stallscope.profiler.notes import Notes
from stallscope.profiler.readers.recording_dir import _read_process
from stallscope.profiler.recorder.clock_pairs import read_clocks
from stallscope.profiler.recorder.format import ARG, MARK, to_json
from stallscope.profiler.recorder.hostsampler import HostSampler
from stallscope.profiler.recorder.importhook import ImportWatch
from stallscope.profiler.recorder.phases import phase_of, token_shape
from stallscope.profiler.recorder.settings import NAMES, Settings
from stallscope.profiler.recorder.writer import RecordWriter

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(JSON_VALUES)
def test_our_json_is_json(value: object) -> None:
    text = to_json(value)

    assert json.loads(text) == value
    assert text.isascii()


def test_json_of_what_json_has_no_word_for() -> None:
    assert to_json([float("nan"), float("inf"), {1: Path("x")}]) == '[null,null,{"1":"x"}]'


# -- settings ------------------------------------------------------------------------------------------


def test_settings_survive_the_environment() -> None:
    settings = Settings(
        python="calls", rate_hz=250, ops=False, warmup=2, steps=20, max_events=5000, shapes=False
    )

    assert Settings.decode(settings.encode()).values() == settings.values()
    assert ";" in settings.encode() and "'" not in settings.encode()


def test_settings_of_another_version_are_ignored() -> None:
    assert Settings.decode("rate_hz=50;from_the_future=1").values() == Settings(rate_hz=50).values()


@pytest.mark.parametrize(
    ("text", "window"),
    [("auto", (0, 0, False)), ("all", (0, 0, True)), ("20", (0, 20, False)), ("3:20", (3, 20, False))],
)
def test_windows_as_text(text: str, window: tuple[int, int, bool]) -> None:
    settings = Settings().with_window(text)

    assert (settings.warmup, settings.steps, settings.whole) == window


@pytest.mark.parametrize("text", ["", ":", "a", "2:", "-1:3", "1:2:3"])
def test_windows_that_are_none(text: str) -> None:
    with pytest.raises(OptionError, match="WARMUP:STEPS"):
        Settings().with_window(text)


def test_an_unknown_setting_names_the_known_ones() -> None:
    with pytest.raises(OptionError, match="rate_hz"):
        Settings(rate=3)
    with pytest.raises(OptionError, match="1 to 1000"):
        Settings(rate_hz=0)
    assert "python" in NAMES


# -- record files --------------------------------------------------------------------------------------


def test_records_and_their_arguments_come_back(tmp_path: Path) -> None:
    writer = RecordWriter(str(tmp_path), "p1-1")
    writer.line("start", pid=1, mono_ns=5)
    slot = writer.put(MARK, 100, 20, writer.text("décode"), 77)
    writer.arguments(slot, {"step": 3, "share": 0.5, "big": 1 << 70, "who": "me"})
    for i in range(20_000):  # more than the first 256 KiB hold
        writer.put(MARK, i, 1, writer.text("decode"), 77)
    process = _read_process(tmp_path / "p1-1.jsonl", Notes())

    assert process.text(int(process.records[0]["a"])) == "décode"
    assert len(process.of_type(MARK)) == 20_001
    arguments = process.of_type(ARG)
    assert [process.text(int(n)) for n in arguments["dur"]] == ["step", "share", "big", "who"]
    assert (arguments["t"] == slot).all()
    assert writer.dropped == 0


def test_a_record_that_grows(tmp_path: Path) -> None:
    writer = RecordWriter(str(tmp_path), "p1-1")
    slot = writer.put(MARK, 10, 0, 1, 1, 1)
    writer.put(MARK, 20, 0, 1, 1, 1)
    writer.extend(slot, 500, 9)
    process = _read_process(tmp_path / "p1-1.jsonl", Notes())

    assert process.records[0].tolist() == (10, 500, 1, 1, 9, MARK)
    assert process.records[1].tolist() == (20, 0, 1, 1, 1, MARK)


def test_a_full_disk_loses_records_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    writer = RecordWriter(str(tmp_path), "p1-1")
    monkeypatch.setattr(os, "posix_fallocate", full)

    assert writer.put(MARK, 1, 1, 1, 1) == -1
    assert writer.dropped == 1
    writer.arguments(-1, {"x": 1})


def test_a_process_that_dies_at_once_keeps_what_was_written(tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom stallscope.profiler.recorder.writer import RecordWriter\n"
        "w = RecordWriter(sys.argv[1], 'p1-1')\nw.line('start', pid=1)\n"
        "for i in range(1000): w.put(1, i + 1, 1, 1, 1)\nos.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    process = _read_process(tmp_path / "p1-1.jsonl", Notes())

    assert done.returncode == -9
    assert process.records["t"].tolist() == list(range(1, 1001))


def test_a_cut_file_costs_only_what_is_cut(tmp_path: Path) -> None:
    writer = RecordWriter(str(tmp_path), "p1-1")
    writer.line("start", pid=1)
    writer.text("one")
    writer.put(MARK, 1, 1, 1, 1)
    writer.put(MARK, 2, 1, 1, 1)
    lines, records = tmp_path / "p1-1.jsonl", tmp_path / "p1-1.rec"
    lines.write_bytes(lines.read_bytes()[:-5])
    records.write_bytes(records.read_bytes()[:45])
    notes = Notes()
    process = _read_process(lines, notes)

    assert process.start["pid"] == 1
    assert process.records["t"].tolist() == [1]
    assert "damaged-line" in notes


# -- clocks --------------------------------------------------------------------------------------------


def test_a_reading_is_tight() -> None:
    mono, real, width = read_clocks()

    assert 0 < width < 10_000_000
    assert real > 1_600_000_000 * 10**9 > 0 < mono


def test_wall_clock_times_come_back_to_the_even_axis() -> None:
    # drifting by 10 ns in 10 s
    clock = ClockMap([(0, 1000, 200), (10_000, 11_010, 100)])

    assert clock.common(5_000) == 6_000
    assert clock.shift_of_realtime(0) == 0
    assert clock.shift_of_realtime(5_000) == -5
    assert clock.shift_of_realtime(99_999) == -10
    assert clock.steps() == []
    assert clock.uncertainty_ns == 100 + 1 + 10 + 1000


def test_a_clock_that_was_set_is_noticed_and_undone() -> None:
    hour = 3600 * 10**9
    clock = ClockMap([(0, 10, 100), (100, 110, 100), (200, hour + 210, 100)])

    assert clock.steps() == [hour]
    assert clock.shift_of_realtime(140) == 0
    assert clock.shift_of_realtime(160) == -hour
    assert clock.uncertainty_ns < 2000


# -- phases --------------------------------------------------------------------------------------------


def tensor(*shape: int, floating: bool = False) -> SimpleNamespace:
    return SimpleNamespace(shape=shape, dtype=SimpleNamespace(is_floating_point=floating, is_complex=False))


@pytest.mark.parametrize(
    ("args", "kwargs", "shape"),
    [
        ((tensor(2, 32),), {}, (2, 32)),
        ((), {"attention_mask": tensor(2, 40), "input_ids": tensor(2, 1)}, (2, 1)),
        ((tensor(2, 32, floating=True), tensor(2, 7)), {}, (2, 7)),
        ((tensor(5),), {}, None),
        (("text", 3, None), {"x": [1]}, None),
    ],
)
def test_the_tokens_of_a_call(args: tuple[object, ...], kwargs: dict[str, object], shape: object) -> None:
    assert token_shape(args, kwargs) == shape


def test_phases() -> None:
    assert phase_of((1, 8), (1, 1)) == "prefill"
    assert phase_of((4, 1), (4, 8)) == "decode"
    assert phase_of((4, 9), (4, 8)) == "decode"  # no cache: everything goes through again
    assert phase_of((4, 9), (2, 8)) == "prefill"
    assert phase_of(None, (4, 8)) == "forward"


# -- the import watch ----------------------------------------------------------------------------------


def test_a_module_is_reported_once_right_after_its_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "watched_mod.py").write_text("VALUE = 7\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[tuple[str, int, bool]] = []

    def imported(name: str, module: ModuleType, start_ns: int, end_ns: int) -> None:
        seen.append((name, getattr(module, "VALUE", 0), start_ns < end_ns))

    watch = ImportWatch(["watched_mod", "json", "not_there_mod"], imported)
    watch.install()
    try:
        assert seen == [("json", 0, False)]
        import watched_mod  # type: ignore[import-not-found]

        assert seen[1:] == [("watched_mod", 7, True)]
        with pytest.raises(ModuleNotFoundError, match="not_there_mod"):
            import not_there_mod  # type: ignore[import-not-found]  # noqa: F401
        assert "exec_module" not in vars(watched_mod.__loader__)
    finally:
        watch.remove()
        sys.modules.pop("watched_mod", None)
    assert watch not in sys.meta_path


def test_an_import_that_fails_raises_what_it_would_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_mod.py").write_text("raise OSError('libhccl.so not found')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    seen: list[str] = []
    watch = ImportWatch(["broken_mod"], lambda name, *_: seen.append(name))
    watch.install()
    try:
        with pytest.raises(OSError, match="libhccl"):
            import broken_mod  # type: ignore[import-not-found]  # noqa: F401
    finally:
        watch.remove()
    assert seen == []


# -- /proc ---------------------------------------------------------------------------------------------


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="this system has no /proc")
def test_proc_readings_of_this_process(tmp_path: Path) -> None:
    sampler = HostSampler(os.getpid(), RecordWriter(str(tmp_path), "h1-1"))

    assert sampler.sweep(10**9)
    assert sampler.sweep(10**9)  # too soon after a sweep: done nothing, and says that the process lives
    process = _read_process(tmp_path / "h1-1.jsonl", Notes())
    mine = process.records[process.records["tid"] == os.getpid()]
    assert sorted(set(mine["type"].tolist())) == [8, 9, 10]
    assert (mine["dur"] >= 0).all()


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="this system has no /proc")
def test_a_round_of_readings_goes_on_where_its_time_ran_out(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import threading\nfor _ in range(4):\n  threading.Thread(target=input).start()",
        ],
        stdin=subprocess.PIPE,
    )
    try:
        while len(os.listdir(f"/proc/{child.pid}/task")) < 5:
            assert child.poll() is None
            time.sleep(0.01)
        sampler = HostSampler(child.pid, RecordWriter(str(tmp_path), "h1-1"))
        seen: list[int] = []
        for now in range(1, 6):
            assert sampler.sweep(now, budget_ns=0)
            records = _read_process(tmp_path / "h1-1.jsonl", Notes()).records
            seen.append(len(np.unique(records["tid"][records["type"] == 8])))
    finally:
        child.kill()
        child.communicate()
    assert seen == [1, 2, 3, 4, 5]


def test_lines_held_back_are_written_in_order_and_by_one_thread_only(tmp_path: Path) -> None:
    writer = RecordWriter(str(tmp_path), "p1-1")
    path = tmp_path / "p1-1.jsonl"
    writer.hold()
    writer.line("a")
    other = threading.Thread(target=writer.line, args=("b",))
    other.start()
    other.join()
    assert path.read_text() == '{"ev":"b"}\n'
    writer.line("c")
    writer.release()
    writer.line("d")
    assert path.read_text() == "".join(f'{{"ev":"{name}"}}\n' for name in "bacd")


def test_a_process_that_is_gone(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()

    assert not HostSampler(child.pid, RecordWriter(str(tmp_path), "h1-1")).sweep(1)
