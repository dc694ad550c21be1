"""The discrete-event simulation: host threads, a launch queue of limited depth, streams, events, ranks.

Time only moves forward: a heap holds who continues when. Host threads are generators that say until
when, or for which device command, they wait. A device command starts when it has been submitted, the
command before it on its stream has ended, and every event its stream waits for has been reached; a
collective also waits for its peers. A launch call blocks while the launch queue is full, as drivers do.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field

from benchmarks.planted.actions import (
    Action,
    Call,
    CaptureBegin,
    CaptureEnd,
    Copy,
    DropLaunches,
    Free,
    Kernel,
    Launch,
    Malloc,
    Memset,
    Pop,
    ProfilerStop,
    Program,
    Push,
    Record,
    Sleep,
    SyncDevice,
    SyncEvent,
    SyncStream,
    Thread,
    WaitEvent,
    WindowStart,
    Work,
)
from benchmarks.planted.recording import DeviceRow, HostRow, Recording

Through = Generator["Wait", None, None]
DEVICE_SIDE = (Launch, Copy, Memset, Record, WaitEvent)


@dataclass(frozen=True)
class Machine:
    """Costs of the simulated host, driver and device that no single program sets."""

    queue_depth: int = 1024
    submit_ns: int = 5200
    """From the moment a launch call submits to the earliest start of its kernel."""
    kernel_gap_ns: int = 900
    """Between two commands of one stream that stand in a row."""
    graph_gap_ns: int = 500
    wake_ns: int = 2500
    """From the end of what a host waits for to the return of the waiting call."""
    gil_slice_ns: int = 5_000_000
    sync_rows: bool = False
    """Whether the profiler also draws synchronisations on the device's lanes."""
    task_queue: bool = False
    """Launches are handed to a second thread that talks to the device (Ascend's task queue)."""
    task_queue_depth: int = 4096
    enqueue_ns: int = 1600
    dequeue_ns: int = 700


@dataclass(frozen=True)
class Wait:
    """Why a thread stops: until a time, or until a command has started or ended (plus `extra_ns`)."""

    until_ns: int = -1
    command: Command | None = None
    end: bool = True
    extra_ns: int = 0
    gate: Gate | None = None


class Gate:
    """Something threads wait for and another thread opens."""

    def __init__(self) -> None:
        self.waiting: list[Task] = []


@dataclass(eq=False)
class Command:
    """One entry of a stream; rows are written when its times are known."""

    submitted_ns: int
    gap_ns: int
    ns: int
    previous: Command | None
    after: list[Command] = field(default_factory=list)
    row: DeviceRow | None = None
    wait: DeviceRow | None = None
    collective: str = ""
    peer_lag_ns: int = 0
    marker: bool = False
    start_ns: int = -1
    end_ns: int = -1
    dependents: list[Command] = field(default_factory=list)
    waiting: list[tuple[Task, bool, int]] = field(default_factory=list)


@dataclass(eq=False)
class Task:
    """A running host thread."""

    name: str
    steps: Through


class Simulation:
    """Runs the programs of all ranks together; `run` gives one recording per rank."""

    def __init__(self, programs: tuple[Program, ...], machine: Machine) -> None:
        self.machine = machine
        self.heap: list[tuple[int, int, Task]] = []
        self.order = 0
        self.now = 0
        self.live = 0
        self.meetings: dict[str, list[Command]] = {}
        self.expected = _collective_members(programs)
        self.ranks = [Rank(self, program) for program in programs]

    def run(self) -> list[Recording]:
        for rank in self.ranks:
            rank.start()
        while self.heap:
            self.now, _, task = heapq.heappop(self.heap)
            self._continue(task)
        if self.live:
            raise RuntimeError(f"{self.live} threads wait for ever: the program deadlocks")
        return [rank.finish() for rank in self.ranks]

    def spawn(self, name: str, steps: Through) -> None:
        self.live += 1
        self.at(self.now, Task(name, steps))

    def at(self, time_ns: int, task: Task) -> None:
        self.order += 1
        heapq.heappush(self.heap, (max(time_ns, self.now), self.order, task))

    def open(self, gate: Gate) -> None:
        for task in gate.waiting:
            self.at(self.now, task)
        gate.waiting.clear()

    def _continue(self, task: Task) -> None:
        try:
            wait = next(task.steps)
        except StopIteration:
            self.live -= 1
            return
        if wait.gate is not None:
            wait.gate.waiting.append(task)
        elif wait.command is None:
            self.at(wait.until_ns, task)
        else:
            known = wait.command.end_ns if wait.end else wait.command.start_ns
            if known >= 0:
                self.at(max(known + wait.extra_ns, wait.until_ns), task)
            else:
                extra = max(wait.extra_ns, 0)
                wait.command.waiting.append((task, wait.end, extra))

    def resolve(self, command: Command) -> None:
        """Give a command its start and end as soon as everything it depends on has them."""
        todo = [command]
        while todo:
            current = todo.pop()
            if current.start_ns < 0 and not self._try_start(current):
                continue
            if current.end_ns < 0 and not self._try_end(current):
                continue
            todo.extend(current.dependents)
            current.dependents = []

    def _try_start(self, command: Command) -> bool:
        start = command.submitted_ns
        if command.previous is not None:
            if command.previous.end_ns < 0:
                return False
            gap = 0 if command.marker or command.previous.marker else command.gap_ns
            start = max(start, command.previous.end_ns + gap)
        for other in command.after:
            if other.end_ns < 0:
                return False
            start = max(start, other.end_ns + command.gap_ns)
        command.start_ns = start
        if command.wait is not None:
            begin = command.submitted_ns if command.previous is None else command.previous.end_ns
            command.wait.start_ns = min(max(begin, command.submitted_ns), start)
            command.wait.end_ns = start - (command.gap_ns if start > command.wait.start_ns else 0)
        self._wake(command, end=False)
        return True

    def _try_end(self, command: Command) -> bool:
        if not command.collective:
            return self._finish(command, command.start_ns + command.ns)
        group = self.meetings.setdefault(command.collective, [])
        if command not in group:
            group.append(command)
        if len(group) < self.expected.get(command.collective, 1):
            return False
        together = max(c.start_ns + c.peer_lag_ns for c in group)
        for member in group:
            if member is not command:
                self._finish(member, together + member.ns)
                for dependent in member.dependents:
                    self.resolve(dependent)
                member.dependents = []
        return self._finish(command, together + command.ns)

    def _finish(self, command: Command, end_ns: int) -> bool:
        command.end_ns = end_ns
        if command.row is not None:
            command.row.start_ns = command.start_ns
            command.row.end_ns = end_ns
        self._wake(command, end=True)
        return True

    def _wake(self, command: Command, end: bool) -> None:
        time = command.end_ns if end else command.start_ns
        still = []
        for task, wants_end, extra in command.waiting:
            if wants_end == end:
                self.at(time + extra, task)
            else:
                still.append((task, wants_end, extra))
        command.waiting = still


class Rank:
    """One process: its threads, its streams, its launch queue, its interpreter lock."""

    def __init__(self, sim: Simulation, program: Program) -> None:
        self.sim = sim
        self.program = program
        self.out = Recording(rank=program.rank, pid=4200 + 37 * program.rank)
        self.last: dict[tuple[int, int], Command] = {}
        self.pending_waits: dict[tuple[int, int], list[Command]] = {}
        self.queue: dict[int, deque[Command]] = {}
        self.events: dict[str, Command] = {}
        self.correlation = 1000
        self.external = 0
        self.capturing = False
        self.dropping = False
        self.gil_owner: HostThread | None = None
        self.gil_queue: deque[tuple[HostThread, Gate]] = deque()
        self.gil_since = 0
        self.tasks: deque[tuple[Action, int, int]] = deque()
        self.task_gate = Gate()
        self.drained = Gate()
        self.worker_busy = False
        self.mains = len(program.threads)
        self.threads: list[HostThread] = []

    def start(self) -> None:
        for thread in self.program.threads:
            self.out.threads[thread.tid] = thread.name
            host = HostThread(self, thread)
            self.threads.append(host)
            self.sim.spawn(thread.name, host.steps())
        if self.sim.machine.task_queue:
            tid = self.program.threads[0].tid + 90
            self.out.threads[tid] = "acl_thread"
            worker = HostThread(self, Thread(tid, "acl_thread", ()))
            self.sim.spawn("acl_thread", worker.work_off())

    def finish(self) -> Recording:
        device_end = max((r.end_ns for r in self.out.device), default=0)
        self.out.program_end_ns = max(self.out.program_end_ns, device_end)
        self.out.window_end_ns = max(self.out.window_end_ns, self.out.program_end_ns)
        return self.out

    def submit(
        self, device: int, stream: int, at_ns: int, ns: int, row: DeviceRow | None, kernel: Kernel | None = None,
        gap_ns: int | None = None, marker: bool = False,
    ) -> Command:  # fmt: skip
        """Put one command at the end of a stream."""
        key = (device, stream)
        previous = self.last.get(key)
        command = Command(
            submitted_ns=at_ns if marker else at_ns + self.sim.machine.submit_ns,
            gap_ns=self.sim.machine.kernel_gap_ns if gap_ns is None else gap_ns,
            ns=ns,
            previous=previous,
            after=self.pending_waits.pop(key, []),
            row=row,
            marker=marker,
        )
        if kernel is not None and kernel.collective:
            command.collective, command.peer_lag_ns = kernel.collective, kernel.peer_lag_ns
        if command.after and self.sim.machine.task_queue:
            command.wait = DeviceRow("wait", "EVENT_WAIT", device, stream, 0, 0, self.correlation)
            self.out.device.append(command.wait)
        for other in ([previous] if previous is not None else []) + command.after:
            if other.end_ns < 0:
                other.dependents.append(command)
        self.last[key] = command
        if row is not None:
            self.out.device.append(row)
        self.sim.resolve(command)
        return command

    def new_correlation(self) -> int:
        self.correlation += 3
        return self.correlation

    def new_external(self) -> int:
        self.external += 1
        return self.external


class HostThread:
    """Turns the actions of one thread into rows and device commands."""

    def __init__(self, rank: Rank, thread: Thread) -> None:
        self.rank = rank
        self.sim = rank.sim
        self.machine = rank.sim.machine
        self.thread = thread
        self.stack: list[int] = []
        self.do: dict[type[Action], Callable[..., Through]] = {
            Push: self._push,
            Pop: self._pop,
            Work: self._work,
            Sleep: self._sleep,
            Call: self._call,
            Launch: self._launch,
            Copy: self._copy,
            Memset: self._memset,
            Record: self._record,
            WaitEvent: self._wait_event,
            SyncEvent: self._sync_event,
            SyncStream: self._sync_stream,
            SyncDevice: self._sync_device,
            Malloc: self._malloc,
            Free: self._free,
            CaptureBegin: self._capture_begin,
            CaptureEnd: self._capture_end,
            WindowStart: self._window_start,
            ProfilerStop: self._profiler_stop,
            DropLaunches: self._drop,
        }

    def steps(self) -> Through:
        for action in self.thread.actions:
            yield from self._hold_gil()
            if self.machine.task_queue and isinstance(action, DEVICE_SIDE) and not self.rank.capturing:
                if isinstance(action, Copy) and action.blocks:
                    yield from self._drain()
                    yield from self._copy(action)
                else:
                    yield from self._enqueue(action)
            else:
                yield from self.do[type(action)](action)
        self._release_gil()
        if self.thread is self.rank.program.threads[0]:
            if not self.rank.out.program_end_ns:
                self.rank.out.program_end_ns = self.sim.now
            self.rank.out.window_end_ns = max(self.rank.out.window_end_ns, self.sim.now)
        self.rank.mains -= 1
        self.sim.open(self.rank.task_gate)

    # The interpreter lock: held while a thread runs, given up while it waits, and every slice of
    # `gil_slice_ns` when another thread asks for it.

    def _hold_gil(self) -> Iterator[Wait]:
        rank = self.rank
        if not rank.program.gil:
            return
        if rank.gil_owner is self and rank.gil_queue:
            if self.sim.now - rank.gil_since < self.machine.gil_slice_ns:
                return
            self._release_gil()
        if rank.gil_owner is self:
            return
        if rank.gil_owner is not None:
            gate = Gate()
            rank.gil_queue.append((self, gate))
            yield Wait(gate=gate)
        else:
            rank.gil_owner, rank.gil_since = self, self.sim.now

    def _release_gil(self) -> None:
        """Give the lock up; whoever asked first has it at once."""
        rank = self.rank
        if rank.gil_owner is not self:
            return
        rank.gil_owner = None
        if rank.gil_queue:
            rank.gil_owner, gate = rank.gil_queue.popleft()
            rank.gil_since = self.sim.now
            self.sim.open(gate)

    # Rows.

    def _open(self, row: HostRow) -> int:
        row.parent = next((i for i in reversed(self.stack) if self.rank.out.host[i].kind == "python"), -1)
        self.rank.out.host.append(row)
        return len(self.rank.out.host) - 1

    def _runtime(self, name: str, start_ns: int, work: int = 0, kernels: int = 0, **args: object) -> HostRow:
        row = HostRow(
            kind="runtime", name=name, tid=self.thread.tid, start_ns=start_ns, end_ns=self.sim.now,
            external=self._external(), correlation=self.rank.new_correlation(), work=work, kernels=kernels,
            args=dict(args), lost=self.rank.dropping and work > 0,
        )  # fmt: skip
        self._open(row)
        return row

    def _external(self) -> int:
        for i in reversed(self.stack):
            if self.rank.out.host[i].external:
                return self.rank.out.host[i].external
        return 0

    def _until(self, ns: int) -> Wait:
        return Wait(until_ns=self.sim.now + ns)

    # Frames and host work.

    def _push(self, action: Push) -> Through:
        external = 0 if action.kind == "python" else self.rank.new_external()
        kind = action.kind
        row = HostRow(
            kind="gc" if action.args.get("gc") else kind, name=action.name, tid=self.thread.tid,
            start_ns=self.sim.now, external=external, args=dict(action.args),
        )  # fmt: skip
        self.stack.append(self._open(row))
        yield self._until(0)

    def _pop(self, action: Pop) -> Through:
        self.rank.out.host[self.stack.pop()].end_ns = self.sim.now
        yield self._until(0)

    def _work(self, action: Work) -> Through:
        left = action.ns
        while left > 0:
            part = min(left, self.machine.gil_slice_ns) if self.rank.program.gil else left
            yield self._until(part)
            left -= part
            if left > 0:
                yield from self._hold_gil()

    def _sleep(self, action: Sleep) -> Through:
        self._release_gil()
        yield self._until(action.ns)

    def _call(self, action: Call) -> Through:
        start = self.sim.now
        yield self._until(action.ns)
        self._runtime(action.api, start)

    # Device side.

    def _room(self, device: int) -> Iterator[Wait]:
        queue = self.rank.queue.setdefault(device, deque())
        while queue and 0 <= queue[0].start_ns <= self.sim.now:
            queue.popleft()
        if len(queue) >= self.machine.queue_depth:
            self._release_gil()
            yield Wait(command=queue[len(queue) - self.machine.queue_depth], end=False)

    def _launch(self, action: Launch, external: int = 0) -> Through:
        start = self.sim.now
        if self.rank.capturing:
            yield self._until(action.ns)
            self._runtime(action.api, start, captured=True)
            return
        yield from self._room(action.device)
        submit = self.sim.now + action.overhead_ns
        if action.overhead_ns:
            self.rank.out.host.append(HostRow("overhead", "Activity Buffer Request", 0, self.sim.now, submit))
        yield Wait(until_ns=submit + action.ns)
        row = self._runtime(
            "graph_launch" if action.graph else action.api, start, work=len(action.kernels),
            kernels=len(action.kernels), stream=action.stream, device=action.device,
            kernel=action.kernels[0] if len(action.kernels) == 1 else None, blocked_ns=submit - start,
        )  # fmt: skip
        external = external or row.external
        for i, kernel in enumerate(action.kernels):
            self._submit_kernel(action, kernel, submit, row.correlation, external, first=i == 0)

    def _submit_kernel(
        self, action: Launch, kernel: Kernel, submit: int, correlation: int, external: int, first: bool
    ) -> None:
        memset = kernel.memset_bytes >= 0
        out = DeviceRow(
            "memset" if memset else "kernel", kernel.name, action.device, action.stream, 0, 0, correlation,
            external, kernel=kernel, graph=action.graph, args={"bytes": kernel.memset_bytes} if memset else {},
        )  # fmt: skip
        gap = self.machine.graph_gap_ns if action.graph and not first else None
        command = self.rank.submit(action.device, action.stream, submit, kernel.ns, out, kernel, gap)
        if first:
            self.rank.queue.setdefault(action.device, deque()).append(command)

    def _copy(self, action: Copy, external: int = 0) -> Through:
        start = self.sim.now
        yield from self._room(action.device)
        submit = self.sim.now
        correlation = self.rank.new_correlation()
        external = external or self._external()
        out = DeviceRow(
            "memcpy", action.kind, action.device, action.stream, 0, 0, correlation, external,
            args={"bytes": action.bytes, "kind": action.kind, "host": action.host},
        )  # fmt: skip
        command = self.rank.submit(action.device, action.stream, submit, action.ns, out)
        self.rank.queue.setdefault(action.device, deque()).append(command)
        yield Wait(until_ns=submit + action.call_ns)
        if action.blocks:
            self._release_gil()
            yield Wait(command=command, extra_ns=self.machine.wake_ns, until_ns=self.sim.now)
        row = self._runtime(
            action.api, start, work=1, stream=action.stream, device=action.device, bytes=action.bytes,
            copy=action.kind,
        )  # fmt: skip
        row.correlation = correlation
        row.external = external

    def _memset(self, action: Memset, external: int = 0) -> Through:
        start = self.sim.now
        yield from self._room(action.device)
        submit = self.sim.now
        yield Wait(until_ns=submit + action.call_ns)
        row = self._runtime("memset_async", start, work=1, stream=action.stream, device=action.device)
        out = DeviceRow(
            "memset", "Memset (Device)", action.device, action.stream, 0, 0, row.correlation,
            external or row.external, args={"bytes": action.bytes},
        )  # fmt: skip
        command = self.rank.submit(action.device, action.stream, submit, action.ns, out)
        self.rank.queue.setdefault(action.device, deque()).append(command)

    def _record(self, action: Record, external: int = 0) -> Through:
        start = self.sim.now
        self.rank.events[action.event] = self.rank.submit(
            action.device, action.stream, start, 0, None, marker=True
        )
        yield self._until(action.ns)
        self._runtime("event_record", start, stream=action.stream, event=action.event)

    def _wait_event(self, action: WaitEvent, external: int = 0) -> Through:
        start = self.sim.now
        event = self.rank.events.get(action.event)
        if event is None:
            raise RuntimeError(f"stream {action.stream} waits for event {action.event!r}, never recorded")
        self.rank.pending_waits.setdefault((action.device, action.stream), []).append(event)
        yield self._until(action.ns)
        row = self._runtime("stream_wait_event", start, stream=action.stream, event=action.event)
        if self.machine.sync_rows:
            self._sync_row("Stream Wait Event", start, action.stream, action.device, row.correlation)

    def _sync_row(self, name: str, start_ns: int, stream: int, device: int, correlation: int) -> None:
        row = DeviceRow("sync", name, device, stream, start_ns + 400, self.sim.now - 300, correlation,
                        self._external())  # fmt: skip
        if row.end_ns > row.start_ns:
            self.rank.out.device.append(row)

    def _wait_for(self, commands: list[Command], least_ns: int) -> Through:
        start = self.sim.now
        self._release_gil()
        for command in commands:
            yield Wait(command=command, extra_ns=self.machine.wake_ns, until_ns=start + least_ns)
        if self.sim.now < start + least_ns:
            yield Wait(until_ns=start + least_ns)

    def _sync_event(self, action: SyncEvent) -> Through:
        yield from self._drain()
        start = self.sim.now
        event = self.rank.events.get(action.event)
        if event is None:
            raise RuntimeError(f"the host waits for event {action.event!r}, never recorded")
        yield from self._wait_for([event], action.ns)
        row = self._runtime("event_sync", start, event=action.event)
        if self.machine.sync_rows:
            self._sync_row("Event Sync", start, -1, 0, row.correlation)

    def _sync_stream(self, action: SyncStream) -> Through:
        yield from self._drain()
        start = self.sim.now
        last = self.rank.last.get((action.device, action.stream))
        yield from self._wait_for([last] if last is not None else [], action.ns)
        row = self._runtime("stream_sync", start, stream=action.stream, device=action.device)
        if self.machine.sync_rows:
            self._sync_row("Stream Sync", start, action.stream, action.device, row.correlation)

    def _all_of(self, device: int) -> list[Command]:
        return [c for (d, _), c in self.rank.last.items() if d == device]

    def _sync_device(self, action: SyncDevice) -> Through:
        yield from self._drain()
        start = self.sim.now
        yield from self._wait_for(self._all_of(action.device), action.ns)
        row = self._runtime("device_sync", start, device=action.device)
        if self.machine.sync_rows:
            self._sync_row("Context Sync", start, -1, action.device, row.correlation)

    def _malloc(self, action: Malloc) -> Through:
        start = self.sim.now
        yield self._until(action.ns)
        self._runtime("malloc", start, bytes=action.bytes, device=action.device)

    def _free(self, action: Free) -> Through:
        yield from self._drain()
        start = self.sim.now
        yield from self._wait_for(self._all_of(action.device), 0)
        yield self._until(action.ns)
        self._runtime("free", start, device=action.device)

    # Graph capture and the profiler.

    def _capture_begin(self, action: CaptureBegin) -> Through:
        yield from self._drain()
        start = self.sim.now
        yield self._until(action.ns)
        self._runtime("capture_begin", start)
        self.rank.capturing = True

    def _capture_end(self, action: CaptureEnd) -> Through:
        self.rank.capturing = False
        start = self.sim.now
        yield self._until(action.ns)
        self._runtime("capture_end", start)
        start = self.sim.now
        yield self._until(action.instantiate_ns)
        self._runtime("graph_instantiate", start)

    def _window_start(self, action: WindowStart) -> Through:
        self.rank.out.window_start_ns = self.sim.now
        yield self._until(0)

    def _profiler_stop(self, action: ProfilerStop) -> Through:
        yield from self._drain()
        out = self.rank.out
        devices = sorted({device for device, _ in self.rank.last}) or [0]
        start = self.sim.now
        commands = [c for d in devices for c in self._all_of(d)]
        yield from self._wait_for(commands, 4000)
        out.program_end_ns = max([start] + [c.end_ns for c in commands])
        self._runtime("device_sync", start, device=devices[0], profiler=True)
        yield self._until(6000)

    def _drop(self, action: DropLaunches) -> Through:
        self.rank.dropping = action.on
        yield self._until(0)

    # The task queue: the thread hands its device work over, a second thread passes it on.

    def _enqueue(self, action: Action) -> Through:
        rank = self.rank
        start = self.sim.now
        while len(rank.tasks) >= self.machine.task_queue_depth:
            yield Wait(gate=rank.drained)
        yield self._until(self.machine.enqueue_ns)
        correlation = rank.new_correlation()
        row = HostRow("enqueue", _task_name(action), self.thread.tid, start, self.sim.now,
                      external=self._external(), correlation=correlation)  # fmt: skip
        self._open(row)
        rank.tasks.append((action, row.external, correlation))
        self.sim.open(rank.task_gate)

    def _drain(self) -> Through:
        while self.machine.task_queue and (self.rank.tasks or self.rank.worker_busy):
            yield Wait(gate=self.rank.drained)

    def work_off(self) -> Through:
        """The second thread's life."""
        rank = self.rank
        while True:
            while not rank.tasks:
                rank.worker_busy = False
                self.sim.open(rank.drained)
                if not rank.mains:
                    return
                yield Wait(gate=rank.task_gate)
            rank.worker_busy = True
            action, external, correlation = rank.tasks.popleft()
            row = HostRow("dequeue", _task_name(action), self.thread.tid, self.sim.now,
                          external=external, correlation=correlation)  # fmt: skip
            self.stack.append(self._open(row))
            yield self._until(self.machine.dequeue_ns)
            yield from self.do[type(action)](action, external)
            self.stack.pop()
            row.end_ns = self.sim.now


def _task_name(action: Action) -> str:
    if isinstance(action, Launch):
        return action.kernels[0].name if len(action.kernels) == 1 else "graph"
    return type(action).__name__


def _collective_members(programs: tuple[Program, ...]) -> dict[str, int]:
    """How many ranks take part in each collective."""
    members: dict[str, int] = {}
    for program in programs:
        keys = {
            kernel.collective
            for thread in program.threads
            for action in thread.actions
            if isinstance(action, Launch)
            for kernel in action.kernels
            if kernel.collective
        }
        for key in keys:
            members[key] = members.get(key, 0) + 1
    return members


def simulate(programs: Program | tuple[Program, ...], machine: Machine | None = None) -> list[Recording]:
    """Run one program, or the programs of several ranks that meet in collectives.

    Raises RuntimeError where a program waits for something that never happens.
    """
    many = (programs,) if isinstance(programs, Program) else programs
    return Simulation(many, machine or Machine()).run()
