"""Simulated process: the loop of ``ipc.loop`` around a real worker."""

from __future__ import annotations

from collections.abc import Callable, Container
from concurrent.futures import Executor, Future
from random import Random
from typing import ParamSpec, TypeVar

from ledgermq.ipc.cursor_page import CursorPage, Role
from ledgermq.ipc.loop import SLEEP_MAX_MS, Pollable, Worker
from tests.simulator.machine.events import MS, Events, NodeClock

READABLE = 1

SOON_NS = 20_000
"""Who is woken turns within this time, if nothing keeps it from the processor."""


class SimulatedInbox:
    """``OrderInbox`` of a process; ``source`` stands for the socket and the bell's descriptor."""

    def __init__(self, source: int) -> None:
        self.source = source
        self.orders: list[bytes] = []

    @property
    def sources(self) -> list[Pollable]:
        return [self.source]

    def drain(self, ready: Container[Pollable]) -> list[bytes]:
        if self.source not in ready:
            return []
        orders, self.orders = self.orders, []
        return orders


class Process:
    """One life of a process; a later one is another object.

    Attributes:
        step_ns: longest that it may be kept from the processor before a turn.
        paused_until: stopped, as by SIGSTOP, until then.
        turned: called after each turn.
        failed: called when a turn has raised; the process is dead then.
        step: does what it can where the process waits; whether no turn is needed.
    """

    def __init__(
        self, role: Role, page: CursorPage, clock: NodeClock, events: Events, random: Random
    ) -> None:
        self.role = role
        self.inbox = SimulatedInbox(-1 - role)
        self.alive = True
        self.step_ns = 0
        self.paused_until = 0
        self.turned: Callable[[], None] = lambda: None
        self.failed: Callable[[Exception], None] = _raise
        self.step: Callable[[dict[Pollable, int], int], bool] = lambda ready, now_ns: False
        self._page = page
        self._clock = clock
        self._events = events
        self._random = random
        self._worker: Worker | None = None
        self._ready: dict[Pollable, int] = {}
        self._wake_at = -1

    def begin(self, worker: Worker) -> None:
        """Turn for the first time soon."""
        self._worker = worker
        self.wake()

    def end(self) -> None:
        """It is dead; what is on its way to it is lost."""
        self.alive = False
        self._worker = None

    def notify(self, source: int) -> None:
        """``source`` can be read."""
        self._ready[source] = READABLE
        self.wake()

    def wake(self) -> None:
        """Turn as soon as the machine lets it."""
        self._plan(self._random.randint(1_000, SOON_NS) + self._hindrance())

    def wake_at_once(self) -> None:
        """Turn for no reason, and nothing keeps it from the processor."""
        self._plan(self._random.randint(1_000, SOON_NS))

    @property
    def is_about_to_turn(self) -> bool:
        """Whether it turns as soon as the machine lets it, and is not stopped."""
        now = self._events.now
        is_woken = bool(self._ready) or 0 <= self._wake_at <= now + SOON_NS
        return self.alive and self._worker is not None and is_woken and now >= self.paused_until

    def turn_early(self) -> None:
        """Turn now, in the midst of another process's turn, if it is about to turn."""
        if self.is_about_to_turn:
            self._wake_at = self._events.now
            self._turn(self._wake_at)

    def turn_for(self, sources: list[Pollable]) -> None:
        """Turn now, because ``sources`` may be readable."""
        for source in sources:
            self._ready[source] = READABLE
        self._wake_at = self._events.now
        self._turn(self._wake_at)

    def _hindrance(self) -> int:
        return self._random.randrange(self.step_ns) if self.step_ns else 0

    def _plan(self, wait_ns: int) -> None:
        at = self._events.now + wait_ns
        if self._worker is None or (self._events.now <= self._wake_at <= at):
            return
        self._wake_at = at
        self._events.after(wait_ns, lambda: self._turn(at))

    def _turn(self, planned: int) -> None:
        worker = self._worker
        if not self.alive or planned != self._wake_at or worker is None:
            return
        self._wake_at = -1
        if self._events.now < self.paused_until:
            self._plan(self.paused_until - self._events.now)
            return
        self._page.set_asleep(self.role, False)
        ready, self._ready = self._ready, {}
        now_ns = self._clock.monotonic_ns()
        try:
            if not self.step(ready, now_ns):
                worker.turn(ready, now_ns)
            self._page.beat(self.role, now_ns)
            self.turned()
            if not self.alive:
                return
            now_ns = self._clock.monotonic_ns()
            hears_bells = worker.hears_bells
            self._page.set_asleep(self.role, hears_bells is None or hears_bells(now_ns))
            wait_ms = min(worker.sleep_ms(now_ns), SLEEP_MAX_MS)
        except Exception as error:  # whatever it is, the process dies of it
            self.alive = False
            self.failed(error)
            return
        if wait_ms <= 0:
            self._page.set_asleep(self.role, False)
            self.wake()
        else:
            self._plan(self._clock.until(wait_ms * MS) + self._hindrance())


def _raise(error: Exception) -> None:
    raise error


class SimulatedBell:
    """``OrderBell`` to another process of the node; ``find`` gives its present life, if there is
    one.
    """

    def __init__(
        self, page: CursorPage, target: Role, events: Events, find: Callable[[], Process | None]
    ) -> None:
        self._page = page
        self._target = target
        self._events = events
        self._find = find

    def ring(self) -> None:
        if self._page.is_asleep(self._target):
            self._page.set_asleep(self._target, False)
            process = self._find()
            if process is not None:
                process.notify(process.inbox.source)

    def rouse(self) -> None:
        process = self._find()
        if process is not None:
            process.notify(process.inbox.source)

    def send(self, order: bytes) -> bool:
        process = self._find()
        if process is None:
            return False
        process.inbox.orders.append(order)
        process.notify(process.inbox.source)
        return True

    def close(self) -> None:
        pass


_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class InlineExecutor(Executor):
    """What is submitted has been done when ``submit`` returns."""

    def submit(
        self,
        fn: Callable[_Arguments, _Result],
        /,
        *args: _Arguments.args,
        **kwargs: _Arguments.kwargs,
    ) -> Future[_Result]:
        future: Future[_Result] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # whoever asks for the result gets it
            future.set_exception(error)
        return future
