"""Child processes of the supervisor: forked, watched, counted.

A child is forked from a supervisor that has one thread, no ZeroMQ context, and all modules
imported; so a restart takes milliseconds, and the pages of code are shared.
"""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from ledgermq.ipc.cursor_page import PORTS, CursorPage, Role
from ledgermq.model.config.settings import Settings
from ledgermq.model.exit_status import EXIT_BUG, EXIT_CONFIG, EXIT_OUTDATED, EXIT_STORAGE
from ledgermq.process import child_process
from ledgermq.process.child_process import Entry
from ledgermq.process.port_roles import port_roles

EntryPoints = Mapping[Role, Entry]

START_ORDER = (Role.RAFT, Role.WRITER, Role.DISPATCHER, Role.BROKER, *PORTS, Role.OBSERVER)

STOP_ORDER = (Role.BROKER, *PORTS, Role.WRITER, Role.RAFT, Role.DISPATCHER, Role.OBSERVER)
"""Each stops once nobody needs it any more.

The broker proposes through the writer, and what it still answers goes through the port processes.
They store through the writer, too, and stop together. The writer accepts no more, and answers what
raft commits meanwhile. Raft commits what the writer has left durable. Then ``committed`` stands
still, and the dispatcher catches up with it and flushes. The observer says until then that the node
is stopping.
"""


OF_CLIENTS = frozenset({Role.BROKER, *PORTS, Role.OBSERVER})
"""What these die of may be requests, which come again. A node goes on without them: it stores, and
replicates.
"""

WATCHING = frozenset({Role.OBSERVER})
"""What becomes of these is nothing to the node: whether it serves goes by the others."""

PAUSE_MIN_NS = 100_000_000
"""Pause before the second restart in a row; before the first there is none, and each next one
doubles."""


def start_order(settings: Settings) -> list[Role]:
    """The processes that the settings want, in the order in which they are started."""
    if settings.node.witness:
        return [Role.RAFT]
    unwanted = {*PORTS} - {*port_roles(settings)}
    if settings.listen.http is None:
        unwanted |= WATCHING
    return [role for role in START_ORDER if role not in unwanted]


START_PATIENCE = 12
"""A process that recovers its files may be silent so many times longer than one that turns."""

_SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD}


class ChildState(StrEnum):
    """Where a child is in its life."""

    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"
    DOWN = "down"


class Exit(NamedTuple):
    """How a child ended: its exit status, or minus the number of the signal that killed it."""

    code: int

    @property
    def text(self) -> str:
        """The exit as an operator reads it: ``exit status 2``, or the name of the signal."""
        if self.code >= 0:
            return f"exit status {self.code}"
        try:
            return signal.Signals(-self.code).name
        except ValueError:
            return f"signal {-self.code}"

    @property
    def node_status(self) -> int:
        """Exit status of a node that ends because of this."""
        if self.ends_node:
            return self.code
        # The kernel's way to say that a page of a mapped file cannot be read.
        return EXIT_STORAGE if self.code == -signal.SIGBUS else EXIT_BUG

    @property
    def ends_node(self) -> bool:
        """Whether a restart cannot help, or must not be tried."""
        return self.code in (EXIT_CONFIG, EXIT_STORAGE, EXIT_OUTDATED)


@dataclass(slots=True)
class Child:
    """One child over all its lives; ``pid`` is 0 while it is down.

    Attributes:
        short_lives: how many lives in a row were shorter than ``restart_window_s``.
        restart_at_ns: when it is started again; 0: it is up, or is not to be.
    """

    role: Role
    entry: Entry
    pid: int = 0
    forked_ns: int = 0
    restarts: int = 0
    last_exit: Exit | None = None
    stop_deadline_ns: int = 0
    is_killed: bool = False
    short_lives: int = 0
    restart_at_ns: int = 0

    def pause_ns(self, now_ns: int, settings: Settings) -> int:
        """It has died; how long its restart waits, of those ``OF_CLIENTS``."""
        supervision = settings.supervision
        window_ns = supervision.restart_window_s * 1_000_000_000
        self.short_lives = self.short_lives + 1 if now_ns - self.forked_ns < window_ns else 1
        if self.short_lives == 1:
            return 0
        doubled = PAUSE_MIN_NS << min(self.short_lives - 2, 32)
        return min(doubled, supervision.restart_pause_max_ms * 1_000_000)

    def spawn(self, settings: Settings, leave: Callable[[], None], now_ns: int) -> None:
        """Fork; ``leave`` is called in the child and closes what is the supervisor's alone."""
        assert self.pid == 0, self
        assert _thread_count() == 1, "fork with threads would copy their locks in any state"
        sys.stdout.flush()
        sys.stderr.flush()
        supervisor_pid = os.getpid()
        # A signal that comes before the child has its own handlers must wait for them.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pid = os.fork()
        if pid == 0:
            child_process.live(
                self.role,
                self.entry,
                settings,
                supervisor_pid=supervisor_pid,
                leave=leave,
                signals=before,
            )
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        self.pid = pid
        self.forked_ns = now_ns
        self.restart_at_ns = 0
        self.stop_deadline_ns = 0
        self.is_killed = False

    def reap(self) -> Exit | None:
        """How the child ended, once it has; never waits."""
        if self.pid == 0:
            return None
        pid, status = os.waitpid(self.pid, os.WNOHANG)
        if pid == 0:
            return None
        self.pid = 0
        self.last_exit = Exit(os.waitstatus_to_exitcode(status))
        return self.last_exit

    def send(self, number: signal.Signals) -> None:
        """Send a signal; the pid is ours until it is reaped, so it cannot be another process."""
        if self.pid:
            os.kill(self.pid, number)

    def ask_to_stop(self, deadline_ns: int) -> None:
        """Send SIGTERM, and remember until when the child may take its time."""
        self.stop_deadline_ns = deadline_ns
        self.send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, once."""
        self.is_killed = True
        self.send(signal.SIGKILL)

    def is_turning(self, page: CursorPage) -> bool:
        """Whether this life of the child has reached its loop."""
        slot = page.read_process(self.role)
        return self.pid != 0 and slot.pid == self.pid and slot.turns

    def beat_ns(self, page: CursorPage) -> int:
        """Last sign of life of this life: a beat, or the fork."""
        slot = page.read_process(self.role)
        return max(self.forked_ns, slot.beat_ns) if slot.pid == self.pid else self.forked_ns

    def silence_ms(self, page: CursorPage, now_ns: int, *, since_ns: int = 0) -> int:
        """Milliseconds without a sign of life; what lies before ``since_ns`` does not count."""
        return max(0, now_ns - max(self.beat_ns(page), since_ns)) // 1_000_000

    def silence_max_ms(self, page: CursorPage, settings: Settings) -> int:
        """Longest silence that is taken for life."""
        limit = settings.supervision.beat_timeout_ms
        return limit if self.is_turning(page) else limit * START_PATIENCE

    def state(self, page: CursorPage) -> ChildState:
        """Where the child is in its life."""
        if self.pid == 0:
            return ChildState.DOWN
        if self.stop_deadline_ns or self.is_killed:
            return ChildState.STOPPING
        return ChildState.RUNNING if self.is_turning(page) else ChildState.STARTING


def stopped_with(child: Child, to_stop: Iterable[Child]) -> list[Child]:
    """Who is asked to stop when ``child`` is: port processes do not wait for one another."""
    return [one for one in to_stop if one.role in PORTS] if child.role in PORTS else [child]


class Deaths:
    """Deaths of all children but those ``OF_CLIENTS`` within the last ``restart_window_s``."""

    def __init__(self) -> None:
        self._at_ns: deque[int] = deque()

    def add(self, now_ns: int, settings: Settings) -> bool:
        """Count one; true when the node has to give up.

        ``restarts_max`` deaths within the window are too many: five in a minute by default.
        """
        self._at_ns.append(now_ns)
        window_ns = settings.supervision.restart_window_s * 1_000_000_000
        while self._at_ns[0] < now_ns - window_ns:
            self._at_ns.popleft()
        return len(self._at_ns) >= settings.supervision.restarts_max


def _thread_count() -> int:
    # Also those that no Python code knows of, such as a linear algebra library's.
    return sum(1 for _ in Path("/proc/self/task").iterdir())
