"""When windows open and close, with a backend that only counts and a clock that only moves when told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from stallscope.profiler.recorder import windows
from stallscope.profiler.recorder.backends.base import Backend
from stallscope.profiler.recorder.settings import Settings
from stallscope.profiler.recorder.windows import DONE, MARK, MODULE, OPEN, WAITING, WindowController

S = 1_000_000_000
EVENTS_A_STEP = 1000


class FakeBackend(Backend):
    """Pretends that each step since `start` made EVENTS_A_STEP events."""

    name = "fake"
    any_thread = True

    def __init__(self, world: World) -> None:
        super().__init__(Settings(), SimpleNamespace())  # type: ignore[arg-type]
        self.world = world
        self.calls: list[str] = []
        self.begun_at = 0
        self.fails = ""

    def busy(self) -> bool:
        return False

    def _call(self, name: str) -> None:
        self.calls.append(name)
        if self.fails == name:
            raise RuntimeError("no")

    def start(self) -> None:
        self._call("start")
        self.begun_at = self.world.steps

    def stop(self) -> None:
        self._call("stop")

    def collect(self, stem: str) -> str:
        self._call("collect")
        Path(stem + ".json").write_bytes(b"x" * max((self.world.steps - self.begun_at) * EVENTS_A_STEP, 1))
        return stem + ".json"

    def discard(self) -> None:
        self._call("discard")

    def after_fork(self, was_open: bool) -> bool:
        return True

    def activities(self) -> list[str]:
        return ["cpu"]

    def estimate_events(self, bytes_: int) -> int:
        return bytes_

    def facts(self) -> dict[str, object]:
        return {}


class World:
    """An agent that only remembers, and time."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100 * S
        self.steps = 0
        self.lines: list[dict[str, Any]] = []
        self.notes: list[str] = []
        self.overheads: list[str] = []
        self.backend = FakeBackend(self)
        self.folder = str(folder)
        monkeypatch.setattr(windows, "choose", lambda settings, torch: self.backend)
        monkeypatch.setattr("stallscope.profiler.recorder.windows.time.perf_counter_ns", lambda: self.now)

    def controller(self, kind: str = "main", **settings: Any) -> WindowController:
        writer = SimpleNamespace(stem="p1-1", line=lambda ev, **f: self.lines.append({"ev": ev, **f}))
        agent: Any = SimpleNamespace(
            settings=Settings(**settings),
            folder=self.folder,
            kind=kind,
            writer=writer,
            note=lambda code, severity, text: self.notes.append(code),
            overhead=lambda name, a, b: self.overheads.append(name),
            fault=lambda where, error: self.notes.append(f"fault: {where}"),
        )
        controller = WindowController(agent)
        controller.torch_ready(SimpleNamespace())  # type: ignore[arg-type]
        return controller

    def step(self, controller: WindowController, length_ns: int = S // 100, source: str = MODULE) -> None:
        counted = controller.step_begins(source)
        self.steps += 1
        self.now += length_ns
        if counted:
            controller.step_ends()

    def closed(self) -> list[tuple[str, int]]:
        return [(line["why"], line["steps"]) for line in self.lines if line["ev"] == "window"]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    yield World(tmp_path, monkeypatch)


def test_the_first_step_throws_the_provisional_window_away(world: World) -> None:
    controller = world.controller()
    assert (controller.state, world.backend.calls) == (OPEN, ["start"])

    world.step(controller)

    assert world.backend.calls == ["start", "stop", "discard", "start"]
    assert world.closed() == []


def test_without_steps_the_provisional_window_is_kept(world: World) -> None:
    controller = world.controller()
    controller.close("atexit")

    assert world.closed() == [("atexit", 0)]
    assert [line["provisional"] for line in world.lines if line["ev"] == "window"] == [True]


def test_one_step_measures_and_the_rest_is_one_window(world: World) -> None:
    controller = world.controller()
    for _ in range(50):
        world.step(controller)
    controller.close("atexit")

    assert world.closed() == [("size", 1), ("atexit", 49)]
    assert len(world.overheads) == world.backend.calls.count("start") + len(world.closed()) + 1


def test_the_cap_on_events_ends_recording_with_a_note(world: World) -> None:
    controller = world.controller(max_events=20_000)
    for _ in range(100):
        world.step(controller)

    assert controller.state == DONE
    assert sum(steps for _, steps in world.closed()) == 20
    assert world.notes == ["window-full"]


def test_a_long_run_is_cut_into_windows_that_fit_in_memory(world: World) -> None:
    controller = world.controller(max_events=400_000)
    for _ in range(1000):
        world.step(controller)

    assert [steps for _, steps in world.closed()] == [1, 150, 150, 99]


def test_warm_up_and_count(world: World) -> None:
    controller = world.controller(warmup=3, steps=4)
    assert controller.state == WAITING
    for _ in range(20):
        world.step(controller)

    assert controller.state == DONE
    assert sum(steps for _, steps in world.closed()) == 4
    opened = [line for line in world.lines if line["ev"] == "window-open"]
    assert opened[0]["start_ns"] == 100 * S + 3 * (S // 100)


def test_an_idle_server_saves_its_window_and_opens_a_new_one_for_the_next_request(world: World) -> None:
    controller = world.controller(max_events=400_000)
    for _ in range(3):
        world.step(controller)
    world.now += 5 * S
    controller.tick(world.now)
    assert controller.state == OPEN
    world.now += 6 * S
    controller.tick(world.now)

    assert world.closed()[-1] == ("idle", 2)
    world.step(controller)
    assert controller.state == OPEN


def test_a_step_that_never_ends_is_not_idle_but_runs_into_the_limit(world: World) -> None:
    controller = world.controller(max_seconds=60)
    controller.step_begins(MODULE)
    world.now += 3 * S
    controller.tick(world.now)
    assert controller.state == OPEN
    world.now += 2 * S
    controller.tick(world.now)

    assert world.closed() == [("time", 1)]


def test_marks_are_steps_until_a_module_is_called(world: World) -> None:
    controller = world.controller()
    world.step(controller, source=MARK)
    assert controller.state == OPEN
    assert controller.step_begins(MODULE)
    assert not controller.step_begins(MARK)
    controller.step_ends()

    assert world.closed() == []  # the module's first step goes on in the window the mark had opened


def test_two_profilers_of_the_script_one_in_the_other(world: World) -> None:
    controller = world.controller()
    for _ in range(3):
        world.step(controller)
    controller.give_way()
    controller.give_way()
    world.step(controller)
    controller.take_back()
    assert controller.state == WAITING
    controller.take_back()

    assert controller.state == OPEN
    assert world.closed()[-1] == ("the script's own profiler", 2)


def test_a_backend_that_fails_is_not_asked_again(world: World) -> None:
    world.backend.fails = "collect"
    controller = world.controller()
    for _ in range(5):
        world.step(controller)
    controller.close("atexit")

    assert world.notes == ["fault: closing a window", "operators-not-recorded"]
    assert world.backend.calls.count("collect") == 1


def test_a_child_has_no_window_before_its_first_step(world: World) -> None:
    controller = world.controller(kind="child")
    assert (controller.state, world.backend.calls) == (WAITING, [])
    world.step(controller)
    assert controller.state == OPEN


def elsewhere(run: Callable[[], None]) -> None:
    """Run something in another thread, and wait for it."""
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def bound(world: World, **settings: Any) -> WindowController:
    """A controller whose backend opens and closes in one thread only, with its window open in this one."""
    world.backend.any_thread = False
    controller = world.controller(**settings)
    assert controller.state == WAITING
    world.step(controller)
    assert controller.state == OPEN
    return controller


def test_a_backend_bound_to_its_thread_opens_with_a_step_only(world: World) -> None:
    controller = bound(world)
    closers: list[int] = []
    world.backend.stop = lambda: closers.append(threading.get_ident())  # type: ignore[method-assign]
    world.now += 100 * S

    elsewhere(lambda: controller.tick(world.now))
    for _ in range(1000):  # the interpreter calls us back between two of these
        time.sleep(0)

    assert controller.state == WAITING
    assert closers == [threading.get_ident()]
    assert world.closed() == [("idle", 1)]


def test_a_window_of_another_thread_is_closed_at_its_next_step(world: World) -> None:
    world.backend.any_thread = False
    controller = world.controller()
    begun, asked, done = threading.Event(), threading.Event(), threading.Event()

    def owner() -> None:
        world.step(controller)
        begun.set()
        asked.wait()
        world.step(controller)
        done.set()

    thread = threading.Thread(target=owner)
    thread.start()
    begun.wait()
    world.now += 100 * S
    controller.tick(world.now)
    world.step(controller)  # not ours to close
    assert (controller.state, world.closed()) == (OPEN, [])
    asked.set()
    thread.join()

    assert world.closed()[0] == ("idle", 1)
    assert "steps-of-other-threads" in world.notes
    assert done.is_set()


def test_a_window_whose_thread_is_gone_is_lost_and_said_to_be(world: World) -> None:
    world.backend.any_thread = False
    controller = world.controller()
    elsewhere(lambda: world.step(controller))

    controller.close("atexit")

    assert world.backend.calls == ["start"]
    assert world.notes == ["window-lost"]


def test_the_scripts_profiler_waits_for_the_thread_that_owns_our_window(world: World) -> None:
    controller = bound(world)

    elsewhere_thread = threading.Thread(target=controller.give_way)
    elsewhere_thread.start()
    while elsewhere_thread.is_alive():
        time.sleep(0.001)

    assert world.closed() == [("the script's own profiler", 1)]
    assert world.notes == []


def test_a_bound_window_comes_back_with_the_next_step(world: World) -> None:
    controller = bound(world)
    world.now += S
    controller.give_way()
    controller.take_back()
    assert controller.state == WAITING

    world.step(controller)

    assert controller.state == OPEN


def test_a_window_of_another_framework_is_thrown_away_before_the_first_step(world: World) -> None:
    controller = world.controller()
    other = FakeBackend(world)
    controller.take_over(other)
    world.step(controller)

    assert world.backend.calls == ["start", "stop", "discard"]
    assert other.calls == ["start"]


def test_a_device_that_comes_into_use_starts_a_whole_run_again(world: World) -> None:
    controller = world.controller(whole=True)
    world.backend.wants_device = lambda: True  # type: ignore[method-assign]
    world.now += S

    controller.device_ready()

    assert world.backend.calls == ["start", "stop", "collect", "start"]
    assert world.closed() == [("the script began to use its device", 0)]


def test_whole_runs_record_from_the_start(world: World) -> None:
    controller = world.controller(whole=True, max_seconds=1000)
    assert [line["provisional"] for line in world.lines] == [False]
    for _ in range(5):
        world.step(controller)
    controller.close("atexit")

    assert sum(steps for _, steps in world.closed()) == 5
