"""Child processes of the supervisor: what each runs, forked, watched, counted, reloaded.

A child is forked from a supervisor that has one thread, no ZeroMQ context, and all modules
imported; so a restart takes milliseconds, and the pages of code are shared.
"""

from __future__ import annotations

import gc
import importlib
import logging
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn, Protocol, Self, cast

import setproctitle

from ledgermq.ipc.cursor_page import PORTS, CursorPage, Role
from ledgermq.ipc.loop import StopFlag
from ledgermq.model.config.settings import Settings
from ledgermq.model.events import Event
from ledgermq.model.exit_status import EXIT_BUG, EXIT_CONFIG, EXIT_OUTDATED, EXIT_STORAGE
from ledgermq.process import child_process
from ledgermq.process.child_process import Entry, die_with
from ledgermq.process.library_threads import keep_libraries_to_one_thread
from ledgermq.process.port_roles import port_roles
from ledgermq.store.files.disk_space import bytes_on_disk

logger = logging.getLogger(__name__)

START_ORDER = (
    Role.RAFT,
    Role.WRITER,
    Role.DISPATCHER,
    Role.COLD,
    Role.BROKER,
    *PORTS,
    Role.GRPC,
    Role.SLAVES,
    Role.RECEIPTS,
    Role.OBSERVER,
)

STOP_ORDER = (
    Role.GRPC,
    Role.BROKER,
    *PORTS,
    Role.COLD,
    Role.RECEIPTS,
    Role.WRITER,
    Role.RAFT,
    Role.DISPATCHER,
    Role.SLAVES,
    Role.OBSERVER,
)
"""Each stops once nobody needs it any more.

What answers gRPC clients is a client of the others. The broker proposes through the writer, and
what it still answers goes through the port processes. They store through the writer, too, and stop
together. The writer accepts no more, and answers what raft commits meanwhile. Raft commits what the
writer has left durable. Then ``committed`` stands still, and the dispatcher catches up with it and
flushes, and slaves get the rest. The observer says until then that the node is stopping.
"""


WATCHING = frozenset({Role.OBSERVER, Role.COLD, Role.SLAVES, Role.RECEIPTS})
"""What becomes of these is nothing to the node: whether it serves goes by the others."""

OF_CLIENTS = WATCHING | {Role.BROKER, *PORTS, Role.GRPC}
"""What these die of may be requests, which come again. A node goes on without them: it stores, and
replicates.
"""

WRITING_NOTHING = frozenset({*PORTS, Role.GRPC})
"""A file that one of these could not use is no disk that has failed: it is started again."""

PAUSE_MIN_NS = 100_000_000
"""Pause before the second restart in a row; before the first there is none, and each next one
doubles."""


def start_order(settings: Settings) -> list[Role]:
    """The processes that the settings want, in the order in which they are started."""
    if settings.node.witness:
        return [Role.RAFT]
    unwanted = {*PORTS} - {*port_roles(settings)}
    if settings.listen.http is None:
        unwanted.add(Role.OBSERVER)
    if settings.cold.place is None:
        unwanted.add(Role.COLD)
    if settings.listen.grpc is None:
        unwanted.add(Role.GRPC)
    if settings.listen.ha is None:
        unwanted.add(Role.SLAVES)
    if settings.receipts.key_file is None:
        unwanted.add(Role.RECEIPTS)
    return [role for role in START_ORDER if role not in unwanted]


START_PATIENCE = 12
"""A process that recovers its files may be silent so many times longer than one that turns."""

GIVING_WAY = frozenset({Role.RECEIPTS})
"""Where others leave them no processor these are silent for as long, and do not hang."""

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

    def ends_node(self, exit_: Exit) -> bool:
        """Whether the node has to end because of how it ended."""
        if self.role in WATCHING:
            return False
        return exit_.ends_node and not (exit_.code == EXIT_STORAGE and self.role in WRITING_NOTHING)

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
        is_prompt = self.is_turning(page) and self.role not in GIVING_WAY
        return limit if is_prompt else limit * START_PATIENCE

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


MODULES = {
    Role.RAFT: "ledgermq.raft_node.raft_process",
    Role.WRITER: "ledgermq.writer.writer_process",
    Role.DISPATCHER: "ledgermq.dispatcher.dispatcher",
    Role.BROKER: "ledgermq.gateway.broker_with_port",
    Role.GRPC: "ledgermq.gateway.grpc_process",
    Role.OBSERVER: "ledgermq.observer.observer_process",
    Role.COLD: "ledgermq.cold.cold_process",
    Role.SLAVES: "ledgermq.gateway.slaves.slave_process",
    Role.RECEIPTS: "ledgermq.broker.receipts.receipt_process",
}

PORT_MODULE = "ledgermq.gateway.port_process"
"""One module for all port processes: its ``run`` is told first which of them to be."""


class _ProcessModule(Protocol):
    run: Entry


class _PortModule(Protocol):
    run: Callable[[Role, Settings, StopFlag], int]


@dataclass(frozen=True, slots=True)
class ProcessTable:
    """Process modules, imported before the first fork: each has ``run``, its exit status."""

    entries: Mapping[Role, Entry]

    @classmethod
    def load(cls, roles: Collection[Role] = (*MODULES, *PORTS)) -> Self:
        """Import the processes of ``roles``; no ZeroMQ context and no thread may come of it.

        Raises:
            ModuleNotFoundError: a distribution that brings one of them is not installed, as
                ``ledgermq-web``, which a node without ``listen.http`` does not need.
        """
        keep_libraries_to_one_thread()
        entries: dict[Role, Entry] = {}
        # Modules are no garbage: to look for some again and again is an eighth of the imports.
        gc.disable()
        try:
            for role in roles:
                if role in PORTS:
                    ports = cast("_PortModule", importlib.import_module(PORT_MODULE))
                    entries[role] = partial(ports.run, role)
                else:
                    module = importlib.import_module(MODULES[role])
                    entries[role] = cast("_ProcessModule", module).run
        finally:
            gc.enable()
        return cls(entries)


PATIENCE = 2
"""A reload is waited for ``supervision.beat_timeout_ms`` times this. A process that turns no more
is killed before that, and the next one is forked with the new settings."""


class Reloading:
    """Reload of settings: from SIGHUP until every process has taken what was published.

    Invariants: ``is_awaited`` implies ``is_going_on``; ``late`` is empty while ``is_awaited``.

    Attributes:
        is_going_on: some process may lack the newest settings.
        is_awaited: and that is what the end of the reload waits for.
        late: the processes that lack them and are waited for no more, in words.
    """

    def __init__(self, page: CursorPage) -> None:
        self._page = page
        self._number = 0
        self._begun_ns = 0
        self._deadline_ns = 0
        self._patience_ms = 0
        self.is_going_on = False
        self.is_awaited = False
        self.late = ""

    def begin(self, settings: Settings, now_ns: int) -> None:
        """Settings are published; call it before the processes are told, who look at the number."""
        self._number = self._page.count_settings()
        self._begun_ns = time.monotonic_ns()
        self._patience_ms = PATIENCE * settings.supervision.beat_timeout_ms
        self._deadline_ns = now_ns + self._patience_ms * 1_000_000
        self.is_going_on = self.is_awaited = True
        self.late = ""

    def look(self, children: Iterable[Child], now_ns: int) -> None:
        """Look who has taken the settings; who has not in time is told of in the log, once, and
        looked at on.
        """
        lacking = [child.role.title for child in children if self._lacks(child)]
        if not lacking:
            if self.late:
                logger.info("settings are taken by all processes")
            self.is_going_on = self.is_awaited = False
            self.late = ""
            return
        if self.is_awaited and now_ns >= self._deadline_ns:
            self.is_awaited = False
            logger.warning(
                "settings are not taken by every process",
                extra={
                    "event": Event.SETTINGS_LATE,
                    "processes": ",".join(lacking),
                    "waited_ms": self._patience_ms,
                },
            )
        if not self.is_awaited:
            self.late = " and ".join(lacking)

    def _lacks(self, child: Child) -> bool:
        # One that is down, or was forked since, begins with what the supervisor has.
        if child.pid == 0 or child.forked_ns >= self._begun_ns:
            return False
        slot = self._page.read_process(child.role)
        return slot.pid != child.pid or slot.settings < self._number


MAX_AGE_NS = 30_000_000_000
"""Greatest age of a count that is told; an older one is counted anew."""

SMALL_S = 0.1
"""A count is waited for so long when it begins: a small store is told at once."""

_NICE = 5
_TOLD_SIZE_MAX = 32


class StoreMeter:
    """Meter of a store's size: files are counted by a process of its own, however many there are.

    A store of ten thousand topics has a hundred thousand files: to look at them takes seconds, and
    on a disk that hangs for ever. The supervisor answers for the health of the node meanwhile.
    Nothing goes on while nobody asks.
    """

    def __init__(self, root: Path, *, count: Callable[[Path], int] = bytes_on_disk) -> None:
        """Nothing is counted yet.

        Args:
            count: gives the bytes on disk below ``root``.
        """
        self._root = root
        self._count = count
        self._size: int | None = None
        self._begun_ns: int | None = None
        self._pid = 0
        self._told = -1

    def ask(self, now_ns: int) -> int | None:
        """Bytes that the store occupied when it was counted last, mostly in the last half minute;
        None before the first count has ended.
        """
        self.look()
        begun_ns = self._begun_ns
        if not self._pid and (begun_ns is None or now_ns - begun_ns > MAX_AGE_NS):
            self._begin(now_ns)
            told = select.poll()
            told.register(self._told, select.POLLIN)
            told.poll(SMALL_S * 1_000)
            self._take()
        return self._size

    def look(self) -> None:
        """Take what was counted, if a count has ended; call it in each turn."""
        self._take()
        if self._pid and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = 0

    def close(self) -> None:
        """End a count that is going on, without waiting: on a disk that hangs nothing ends it."""
        self._close_pipe()
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, os.WNOHANG)
            self._pid = 0

    def close_in_child(self) -> None:
        """Close what a child of the supervisor does not need: the count under way is not for it."""
        self._close_pipe()

    def _begin(self, now_ns: int) -> None:
        self._begun_ns = now_ns
        told, tells = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        parent = os.getpid()
        # Handlers of the supervisor are not for the other process, which is never asked to stop.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        pid = os.fork()
        if pid == 0:
            self._be_counting(parent, tells)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        os.close(tells)
        self._pid, self._told = pid, told

    def _be_counting(self, parent: int, tells: int) -> NoReturn:
        status = 1
        try:
            die_with(parent)
            # Locks and sockets of the node: should this process not end, they are not held by it.
            os.closerange(3, tells)
            os.closerange(tells + 1, os.sysconf("SC_OPEN_MAX"))
            os.nice(_NICE)
            setproctitle.setproctitle(f"ledgermq: size of {self._root}")
            os.write(tells, str(self._count(self._root)).encode())
            status = 0
        finally:
            os._exit(status)

    def _take(self) -> None:
        if self._told < 0:
            return
        with suppress(BlockingIOError):
            told = os.read(self._told, _TOLD_SIZE_MAX)
            self._close_pipe()
            if told:
                self._size = int(told)

    def _close_pipe(self) -> None:
        if self._told >= 0:
            os.close(self._told)
            self._told = -1
