"""Main loop of a process: poll, drain a bounded number, tick, flush once a turn."""

from __future__ import annotations

import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import Protocol, runtime_checkable

import zmq

from ledgermq.ipc.cursor_page import BEAT_AT, TURNS_AT, CursorPage, Role
from ledgermq.ipc.zmq_flags import POLLIN
from ledgermq.model.config.settings import Settings

logger = logging.getLogger(__name__)

SLEEP_MAX_MS = 1_000
"""Longest sleep of an idle process: the bound on a lost bell."""

LOOK_AGAIN_MS = 200
"""Time between two looks at what changes without a bell; an idle node looks no more often."""

EVENTS_MAX = 64
"""Descriptors that one look tells of; the others are told of by the next one."""

SIGNS_MIN = 4
"""A process has given so many signs of life, at least, before one who watches it takes it for dead
or its disk for sick."""

Pollable = zmq.Socket[bytes] | int


class Worker(Protocol):
    """The part that differs between processes; it owns no loop and no clock."""

    def sources(self) -> list[Pollable]:
        """Sockets and descriptors that wake the process when they can be read."""

    def turn(self, ready: Mapping[Pollable, int], now_ns: int) -> None:
        """Take a bounded number of what waits, do the work, flush once."""

    def sleep_ms(self, now_ns: int) -> int:
        """How long the process may sleep now; 0 while there is work left."""

    @property
    def zmq_uses(self) -> Sequence[int] | None:
        """A cell, always the same, whose number changes when a source of ZeroMQ's is used that did
        not wake the process; None: each may be used in any turn.
        """

    @property
    def hears_bells(self) -> Callable[[int], bool] | None:
        """Says of a time whether a bell may end the sleep that begins then; None: any may.

        A wake-up that changes nothing costs those their processor who wait for an answer.
        """


Wait = Callable[[int, int], Sequence[tuple[int, int]]]
"""Waits at an epoll descriptor for so many milliseconds; descriptors and events, as ``epoll.poll``
has them.
"""


@runtime_checkable
class WaitingWorker(Protocol):
    """A worker that does some of what comes without a turn, where it is waited for."""

    @property
    def wait(self) -> Wait | None:
        """Waits in the place of the poll set, which it returns to for all else; None: it does not
        now, nor later.
        """


@dataclass(slots=True)
class StopFlag:
    """Set by a signal, read by the loop; the handler does nothing else.

    ``reload`` is set by SIGHUP and cleared by who has re-read the settings: the loop, by calling
    ``on_reload``, if there is one.
    """

    reason: str = ""
    reload: bool = False
    on_reload: Callable[[], object] | None = None
    _wakeup: tuple[int, int] = field(default=(-1, -1))

    def install(self) -> None:
        """Take SIGTERM, SIGINT and SIGHUP. Call once, from the main thread."""
        read, write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._wakeup = (read, write)
        signal.set_wakeup_fd(write, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, self._on_signal)

    def fileno(self) -> int:
        """Descriptor that can be read once a signal came; -1 before ``install``."""
        return self._wakeup[0]

    def close_in_child(self) -> None:
        """In a child that was forked behind ``install``: the descriptors are closed, and no signal
        is written to them any more; the parent's own stay as they are.
        """
        # From 3.12 on Python forgets the number in a child, and leaves the descriptor open.
        signal.set_wakeup_fd(-1)
        for fd in self._wakeup:
            os.close(fd)
        self._wakeup = (-1, -1)

    def drain(self) -> None:
        """Empty the descriptor."""
        try:
            os.read(self._wakeup[0], 256)
        except BlockingIOError:
            return

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.reload = True
        else:
            self.reason = signal.Signals(number).name


class PollSet:
    """What wakes a process: descriptors, and sockets of ZeroMQ by descriptors of theirs.

    ZeroMQ's own poll asks each socket before and behind a sleep, by two calls of the kernel each
    time; with each message that is more than all else that a writer asks of the kernel. Here a
    socket is asked when its descriptor tells of something, and when it was used: a use may swallow
    what its descriptor would have told (ZeroMQ's page zmq_getsockopt, ZMQ_FD).
    """

    def __init__(
        self, sources: Iterable[Pollable], uses: Sequence[int] | None, wait: Wait | None = None
    ) -> None:
        """Look at ``sources``, which stay open meanwhile.

        Args:
            uses: see ``Worker.zmq_uses``.
            wait: see ``WaitingWorker``.
        """
        self._epoll = select.epoll()
        self._wait = wait
        self._sockets: list[tuple[Pollable, int]] = []
        self._by_descriptor: dict[int, Pollable | None] = {}
        self._uses, self._uses_seen = uses, -1
        self._is_told = True
        for source in sources:
            if isinstance(source, int):
                self._by_descriptor[source] = source
            else:
                self._sockets.append((source, POLLIN))
                self._by_descriptor[source.fileno()] = None
        for descriptor in self._by_descriptor:
            self._epoll.register(descriptor, select.EPOLLIN)

    def wait(self, wait_ms: int) -> dict[Pollable, int]:
        """What can be read, within so many milliseconds; again and again as long as it can be."""
        ready: dict[Pollable, int] = {}
        uses = self._uses
        if uses is None or self._is_told or uses[0] != self._uses_seen:
            if uses is not None:
                self._uses_seen = uses[0]
            if self._ask(ready):
                wait_ms = 0
        is_told = False
        if self._wait is None:
            events: Sequence[tuple[int, int]] = self._epoll.poll(wait_ms / 1_000, EVENTS_MAX)
        else:
            events = self._wait(self._epoll.fileno(), wait_ms)
        for descriptor, _ in events:
            source = self._by_descriptor[descriptor]
            if source is None:
                is_told = True
            else:
                ready[source] = POLLIN
        if is_told:
            self._ask(ready)
        return ready

    def _ask(self, ready: dict[Pollable, int]) -> bool:
        """Add the sockets that can be read; whether there are any."""
        found = zmq.zmq_poll(self._sockets, 0) if self._sockets else ()
        ready.update(found)
        # Whoever reads them now may leave something.
        self._is_told = bool(found)
        return self._is_told


def sleep_max_ms(settings: Settings) -> int:
    """How long a process of this node may sleep: shorter where signs of life are awaited sooner."""
    awaited_ms = min(settings.supervision.beat_timeout_ms, settings.raft.disk_sick_after_ms)
    return min(SLEEP_MAX_MS, awaited_ms // SIGNS_MIN)


def run(
    worker: Worker,
    *,
    page: CursorPage,
    role: Role,
    stop: StopFlag,
    sleep_max_ms: int = SLEEP_MAX_MS,
) -> None:
    """Turn until told to stop.

    The order before a sleep (set ``asleep``, ask the worker once more, poll) is what keeps a bell
    from being lost: the worker's ``sleep_ms`` reads the cursors.
    """
    signals = stop.fileno()
    sources = worker.sources()
    wait = worker.wait if isinstance(worker, WaitingWorker) else None
    polled = PollSet([*sources, signals] if signals >= 0 else sources, worker.zmq_uses, wait)
    asleep, signs = page.asleep_cell(role), page.sign_cells(role)
    hears_bells = worker.hears_bells
    while not stop.reason:
        # As ``page.beat`` does it, without a call. Not behind the turn with the time before it: two
        # long turns would look like one silence, and what was said meanwhile be taken back.
        signs[BEAT_AT] = now_ns = time.monotonic_ns()
        asleep[0] = hears_bells is None or hears_bells(now_ns)
        wait_ms = worker.sleep_ms(now_ns)
        if wait_ms <= 0:
            wait_ms = asleep[0] = 0
        elif wait_ms > sleep_max_ms:
            wait_ms = sleep_max_ms
        ready = polled.wait(wait_ms)
        asleep[0] = 0
        if signals in ready:
            stop.drain()
        if stop.reload and stop.on_reload is not None:
            stop.reload = False
            # Read first: what is taken may be newer than its number, and never older.
            number = page.settings_number
            stop.on_reload()
            page.take_settings(role, number)
        signs[BEAT_AT] = now_ns = time.monotonic_ns()
        worker.turn(ready, now_ns)
        signs[TURNS_AT] = 1
