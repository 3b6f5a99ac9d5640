"""Simulated node: the real workers of raft and writer, on a simulated disk and clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import ClassVar, TypeVar, cast

from ledgermq.formats.kernels.kernel import SteadyLine
from ledgermq.ipc.append_ring import AppendRing
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import CursorPage, LogCursor, Role
from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import TopicsChanged, encode
from ledgermq.ipc.run_fence import RunFence
from ledgermq.model.config import amounts
from ledgermq.model.config.settings import Settings
from ledgermq.model.ids import NodeId, Position
from ledgermq.model.names.message_types import UNSPECIFIED
from ledgermq.process.environment import Environment
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.raft.core import RaftCore
from ledgermq.raft_node.raft_process import RaftWorker
from ledgermq.raft_node.term_file import TermFile
from ledgermq.rules.tables.topics import TopicTable
from ledgermq.sessions.client_rights import AccessGate
from ledgermq.sessions.client_socket import ClientSocket
from ledgermq.store.files.file_names import file_name
from ledgermq.store.files.store_paths import StorePaths
from ledgermq.store.recovery.log_damage import damage_path
from ledgermq.writer.log.log_opening import OpenLog, open_log
from ledgermq.writer.retention.space_gate import SpaceGate
from ledgermq.writer.writer import WriterWorker
from tests.simulator.machine.client_port import CLIENTS_SOURCE, ClientPort
from tests.simulator.machine.compared_line import ComparedLine, compared_line
from tests.simulator.machine.disk import Disk
from tests.simulator.machine.events import Events, NodeClock
from tests.simulator.machine.log_flusher import FlusherMaker
from tests.simulator.machine.network import (
    FEED_SOURCE,
    FOLLOWERS_SOURCE,
    PEERS_SOURCE,
    FeedEnd,
    FollowersEnd,
    Network,
    PeersEnd,
)
from tests.simulator.machine.process import InlineExecutor, Process, SimulatedBell, SimulatedInbox
from tests.simulator.machine.steady import SimSteady
from tests.simulator.readers import ROLES, Readers

AGAIN = 0.8
"""How probable one more turn of raft is while the others are about to do something."""

TOLD = 0.8
"""How probable it is that the others hear of the death of raft at once, by their connections to it:
a host that has lost its power says nothing.
"""

HELD_NS = 200_000
"""Longest that the writer waits for the processor then, at least: several turns of raft."""

STEPS_MAX = 4
"""A sync that begins behind a turn of the writer is over with the second step."""

Made = TypeVar("Made")
EMPTY_DISK = amounts.FileSystem(total=1 << 40, used=0, free=1 << 40)
RING_SIZE = 1 << 20
"""A run fills a ring of so many bytes; one of its real size is never full, and takes longer."""

TOPIC = "orders"
QUEUES = 2


class Interruptions:
    """Those of one node's raft: writer and flusher go on where it looks at what they share.

    On a real node they run beside the raft process, and between any two of its looks at the cursor
    page or at a bell. Here every such look is a *point*: whatever the two are about to do may be
    done there, with a probability that the seed decides on. Where it is not zero, raft may also
    turn for no reason while they have something to do, for here it has fewer reasons than under a
    real load. So an order of looks that is wrong is found.

    Attributes:
        chance: how probable one is at each point where writer or flusher are about to do something.
        is_under_way: a turn of raft is not over, and the writer's is within it: neither of the two
            may be killed now.
        is_fenced: the fence is held: who waits for it does not go on.
    """

    def __init__(
        self, random: Random, flushers: FlusherMaker, find_writer: Callable[[], Process | None]
    ) -> None:
        self.chance = 0.0
        self.is_under_way = False
        self.is_fenced = False
        self._random = random
        self._flushers = flushers
        self._find_writer = find_writer

    def point(self) -> None:
        """Raft is about to look at something."""
        if self.is_under_way or self.is_fenced or not self._comes(self.chance):
            return
        writer = self._find_writer()
        assert writer is not None
        self.is_under_way = True
        try:
            for _ in range(self._random.randint(1, STEPS_MAX)):
                writer.turn_early()
                self._flushers.go_on_early()
        finally:
            self.is_under_way = False

    def wants_turn(self) -> bool:
        """Whether raft, whose turn is over, is to turn once more."""
        return self._comes(AGAIN)

    def _comes(self, probability: float) -> bool:
        """Whether something of this ``probability`` happens now, before what the others do next."""
        if not self.chance:
            return False
        writer = self._find_writer()
        if writer is None or not (writer.is_about_to_turn or self._flushers.is_about_to_go_on):
            return False
        return self._random.random() < probability


class InterruptedPage(CursorPage):
    """The page as a raft process maps it: each look at it is a point.

    Attributes:
        point: called before each look.
    """

    point: Callable[[], None] = staticmethod(lambda: None)

    def is_asleep(self, role: Role) -> bool:
        self.point()
        return super().is_asleep(role)

    def cursor_cells(self) -> tuple[memoryview, ...]:
        """The page's cells; what is read of them by their number is a look, too."""
        cells = [_Cell(self, cell) for cell in super().cursor_cells()]
        return cast("tuple[memoryview, ...]", tuple(cells))

    def read_written(self) -> LogCursor:
        """End of what the writer has put in the log; each look may be interrupted before."""
        self.point()
        return super().read_written()

    def read_committed(self) -> LogCursor:
        """End of what is committed; each look may be interrupted before."""
        self.point()
        return super().read_committed()

    def _snapshot(self, slot: int, count: int) -> list[int]:
        self.point()
        return super()._snapshot(slot, count)

    def _known(self, slot: int, count: int, make: Callable[[list[int]], Made]) -> Made:
        self.point()
        return super()._known(slot, count, make)


class _Cell:
    """One cell of the page."""

    def __init__(self, page: InterruptedPage, cell: memoryview) -> None:
        self._page = page
        self._cell = cell

    def __getitem__(self, number: int) -> int:
        self._page.point()
        value: int = self._cell[number]
        return value


class SimFence(RunFence):
    """A process's end of the fence: who holds it is not interrupted by who waits for it."""

    def __init__(self, path: Path, interruptions: Interruptions) -> None:
        super().__init__(path)
        self._interruptions = interruptions

    def __enter__(self) -> None:
        super().__enter__()
        self._interruptions.is_fenced = True

    def __exit__(self, *error: object) -> None:
        self._interruptions.is_fenced = False
        super().__exit__(*error)


@dataclass(slots=True)
class SimEnvironment:
    """The ``process.environment.Environment`` of one life of a process.

    Attributes:
        point: called before another process is told something.
    """

    settings: Settings
    paths: RuntimePaths
    page: CursorPage
    inbox: SimulatedInbox
    clock: NodeClock
    node: Node
    port: ClientPort
    point: Callable[[], None] = lambda: None

    def bell(self, target: Role) -> SimulatedBell:
        def find() -> Process | None:
            self.point()
            return self.node.living(target)

        return SimulatedBell(self.page, target, self.node.events, find)

    def run_fence(self) -> RunFence:
        return SimFence(self.paths.run_fence, self.node.interruptions)

    def append_ring(self) -> AppendRing:
        return AppendRing.create(self.paths.append_ring, RING_SIZE)

    def background(self) -> Executor:
        return InlineExecutor()

    def produce_socket(
        self, gate: AccessGate, *, message_size_max: int, note_ended: Callable[[], object]
    ) -> ClientSocket:
        return self.port


class Node:
    """Machine, disk and processes.

    Attributes:
        page: of the node's present start; None while it is off.
        readers: dispatcher and broker; None where they are not driven.
        feature_level: the one in force, where no broker knows it.
        spoilt: numbers of the entries that its disk has changed, and that stand there so.
        interruptions: those of its raft process's turns.
        line_of: the straight line of a core; it is compared with the long way.
        waits: its writers take what they can where they wait, as compiled ones do.
        turned: called after each turn of one of its processes.
        failed: called when a process ends by itself; true when that may be.
    """

    line_of: ClassVar[Callable[[RaftCore], SteadyLine]] = ComparedLine

    def __init__(
        self,
        settings: Settings,
        peers: list[NodeId],
        *,
        disk: Disk,
        clock: NodeClock,
        network: Network,
        events: Events,
        random: Random,
        has_readers: bool = False,
    ) -> None:
        self.name = NodeId(settings.node.self_id)
        self.settings = settings
        self.disk = disk
        self.clock = clock
        self.events = events
        self.page: CursorPage | None = None
        self.raft: Process | None = None
        self.writer: Process | None = None
        self.port: ClientPort | None = None
        self.spoilt: set[int] = set()
        self.recovered: Callable[[Node], None] = lambda node: None
        self.turned: Callable[[Node, Role], None] = lambda node, role: None
        self.failed: Callable[[Node, Role, Exception], None] = _raise
        self.paths = RuntimePaths(settings.listen.runtime_dir)
        self.store = StorePaths.of(settings)
        self.flushers = FlusherMaker(events, random, disk, clock)
        self.interruptions = Interruptions(random, self.flushers, lambda: self.living(Role.WRITER))
        self.step_ns = 0
        self.waits = False
        self._steady: SimSteady | None = None
        self.feature_level = 0
        self.readers = Readers(self, self._process, self._environment) if has_readers else None
        self._peers = peers
        self._network = network
        self.random = random
        self._told: tuple[int, int] | None = None
        self._raft_worker: RaftWorker | None = None
        self._raft_page: InterruptedPage | None = None
        self._log: OpenLog | None = None
        self._feed: FeedEnd | None = None
        self._followers: FollowersEnd | None = None

    def format(
        self, *, index_file_size: int, topics: Iterable[str] = (), message_type: str = UNSPECIFIED
    ) -> None:
        """An empty store with one topic, of that type, and ``topics`` of one queue."""
        assert self.store.index is not None
        for folder in (self.store.data, self.store.index, self.store.own, self.paths.directory):
            folder.mkdir(parents=True)
        # The size of index files is no setting: it is that of those there are.
        with (self.store.index / file_name(0)).open("wb") as file:
            file.truncate(index_file_size)
        table = TopicTable()
        table.put(table.plan(TOPIC, QUEUES).with_message_type(message_type), 0)
        for name in topics:
            table.put(table.plan(name, 1), 0)
        self.store.topics.parent.mkdir()
        if self.readers is None:
            self.store.topics.write_text(json.dumps(table.to_document()))
        else:
            self.readers.format(table)
        self.disk.format()

    def report(self, role: Role, error: Exception) -> None:
        """One of its processes has ended by itself.

        Raises:
            Exception: ``error``, where that may not be; behind raft's turn, if that was within it.
        """
        self.when_whole(lambda: self.failed(self, role, error))

    def when_whole(self, act: Callable[[], None]) -> None:
        """``act``, which may kill its processes: now, or behind the turn that is under way."""
        if self.interruptions.is_under_way:
            self.events.after(0, act)
        else:
            act()

    @property
    def is_on(self) -> bool:
        """Whether its machine runs, with processes or without."""
        return self.page is not None

    @property
    def is_marked(self) -> bool:
        """Whether it knows that its log lost durable entries, and has not all again."""
        return damage_path(self.store.root).exists()

    @property
    def membership_index(self) -> int:
        """Entry of the membership that its raft process goes by; -1: the first one, or none."""
        worker = self._raft_worker
        return -1 if worker is None else int(worker.core.status().membership_index)

    @property
    def leans(self) -> bool:
        """Whether it leads, and counts a witness in the place of who does not keep up."""
        worker = self._raft_worker
        lead = None if worker is None else worker.core._state.leadership
        return lead is not None and lead.attesting is not None and lead.attesting.leans

    def living(self, role: Role) -> Process | None:
        """The present life of a process; None while there is none, or of one that is not driven."""
        if role in ROLES:
            return None if self.readers is None else self.readers.living(role)
        process = {Role.RAFT: self.raft, Role.WRITER: self.writer}.get(role)
        return process if process is not None and process.alive else None

    def start(self) -> None:
        """Power on, all processes."""
        assert self.page is None, self.name
        self.page = CursorPage.create(self.paths.cursors)
        if self.feature_level:
            # There is no broker that says so.
            self.page.counters(Role.BROKER)[BrokerCounter.FEATURE_LEVEL] = self.feature_level
        if self.readers is None:
            # There is no dispatcher, and no queue: all is numbered by the log.
            self.page.publish_queues(Position(0))
        for role in self.roles:
            self.start_process(role)

    @property
    def roles(self) -> list[Role]:
        """The processes that it has."""
        return [Role.WRITER, Role.RAFT, *(() if self.readers is None else ROLES)]

    @property
    def processes(self) -> list[Process]:
        """Lives of processes that were begun, perhaps over."""
        known = [self.raft, self.writer, *([] if self.readers is None else self.readers.processes)]
        return [process for process in known if process is not None]

    def start_process(self, role: Role) -> None:
        """Begin a life of a process, if there is none."""
        if role in ROLES:
            assert self.readers is not None
            self.readers.start(role)
        elif role is Role.RAFT:
            self.start_raft()
        else:
            self.start_writer()

    def kill_process(self, role: Role) -> None:
        """It is gone from one moment to the next; files and page stay as they are."""
        if role in ROLES:
            assert self.readers is not None
            self.readers.kill(role)
        elif role is Role.RAFT:
            self.kill_raft()
        else:
            self.kill_writer()

    def start_raft(self) -> None:
        """Begin a life of the raft process."""
        page = self.page
        if page is None or self.living(Role.RAFT) is not None:
            return
        process = self._process(Role.RAFT, page)
        try:
            peers = PeersEnd(
                self.name, self._peers, self._network, lambda: process.notify(PEERS_SOURCE)
            )
            term_file = TermFile(self.store.term, self.store.current_term)
            own_page = InterruptedPage.attach(self.paths.cursors)
            own_page.point = self.interruptions.point
            environment = self._environment(process, own_page, self.interruptions.point)
            worker = RaftWorker(environment, term_file, peers)
            worker.core.line = type(self).line_of(worker.core)
            self._raft_worker, self._raft_page = worker, own_page
        except Exception as error:
            process.alive = False
            self.report(Role.RAFT, error)
            return
        self.raft = process
        process.begin(self._raft_worker)

    def start_writer(self) -> None:
        """Begin a life of the writer: the log is recovered."""
        page = self.page
        if page is None or self.living(Role.WRITER) is not None:
            return
        process = self._process(Role.WRITER, page)
        self.port = ClientPort(self.events, self.random, lambda: process.notify(CLIENTS_SOURCE))
        try:
            self._log = open_log(
                self.settings, is_in_use=page.has_written(), sign_of_life=lambda: None
            )
            gate = SpaceGate(
                page,
                self.store.root,
                self.settings.retention,
                reserve=None,
                has_others=lambda: True,
                now_ns=self.clock.monotonic_ns,
                look=lambda root: EMPTY_DISK,
            )
            self._feed = self._followers = None
            if self.settings.raft.direct_writers:
                self._feed = FeedEnd(self.name, self._network, lambda: process.notify(FEED_SOURCE))
                self._followers = FollowersEnd(
                    self.name, self._network, lambda: process.notify(FOLLOWERS_SOURCE)
                )
            worker = WriterWorker(
                self._environment(process, page),
                self._log,
                self.flushers.of(process),
                gate,
                feed=self._feed,
                followers=self._followers,
            )
            for run in (worker.followed, worker.led):
                if run is not None:
                    run.line_of = compared_line
            if self.waits and self._feed is not None and self._followers is not None:
                environment = self._environment(process, page)
                self._steady = SimSteady(environment, worker, self._feed, self._followers)
                process.step = self._steady.step
        except Exception as error:
            process.alive = False
            self.report(Role.WRITER, error)
            return
        self.writer = process
        self.recovered(self)
        process.begin(worker)

    def kill_raft(self) -> None:
        """Its process is gone from one moment to the next; files and page stay as they are."""
        worker, page = self._raft_worker, self.page
        if self.raft is not None:
            self.raft.end()
        if worker is None or page is None:
            return
        left, run, alone_ns = page.read_grant(), page.run_cell()[0], page.read_alone_until_ns()
        worker.close()
        page.publish_grant(left)
        page.publish_alone(alone_ns)
        page.run_cell()[0] = run
        if self.random.random() < TOLD:
            self._network.process_ended(self.name)
        if self._raft_page is not None:
            self._raft_page.close()
        self._raft_worker = self._raft_page = None

    def kill_writer(self) -> None:
        """The writer's process is gone from one moment to the next; a sync that ran is over, with
        or without effect.
        """
        if self.writer is not None:
            self.writer.end()
        if self._steady is not None:
            self._steady.close()
            self._steady = None
        for end in (self._feed, self._followers):
            if end is not None:
                end.close()
        if self._log is not None:
            self._log.writer.close()
            self._log = None
        # The kernel lives, and so does what was written.
        self.disk.let_go(durable=False)

    def kill(self) -> None:
        """All processes are killed; the machine's memory goes with the next start's page."""
        if self.page is None:
            return
        for role in reversed(self.roles):
            self.kill_process(role)
        self.page.close()
        self.page = None

    def serve_operator(self) -> None:
        """The raft process looks at its control socket, and does nothing else."""
        if self._raft_worker is not None and self.raft is not None:
            worker = self._raft_worker
            self.raft.turn_for([source for source in worker.sources() if _is_descriptor(source)])

    def pause(self, role: Role, until: int) -> None:
        """Stop a process until then, as SIGSTOP does."""
        process = self.living(role)
        if process is not None:
            process.paused_until = until

    def set_step(self, step_ns: int) -> None:
        """Longest that a process is kept from the processor."""
        self.step_ns = step_ns
        for process in self.processes:
            process.step_ns = self._step_ns(process.role)

    def _step_ns(self, role: Role) -> int:
        is_held = role is Role.WRITER and self.interruptions.chance
        return max(self.step_ns, HELD_NS) if is_held else self.step_ns

    def _process(self, role: Role, page: CursorPage) -> Process:
        page.enter_process(role)
        process = Process(role, page, self.clock, self.events, self.random)
        process.step_ns = self._step_ns(role)
        process.turned = lambda: self._has_turned(process)
        process.failed = lambda error: self.report(role, error)
        return process

    def _has_turned(self, process: Process) -> None:
        self.turned(self, process.role)
        if self.readers is None:
            self._tell_topics()
        if process.role is Role.RAFT and process.alive and self.interruptions.wants_turn():
            process.wake_at_once()

    def _tell_topics(self) -> None:
        """There is no broker that has the writer know that its topics are those of all."""
        page, writer = self.page, self.living(Role.WRITER)
        if page is None or writer is None:
            return
        grant, start = page.read_grant(), page.read_process(Role.WRITER).generation
        told = int(grant.term), start
        if grant.granted and told != self._told:
            self._told = told
            bell = SimulatedBell(page, Role.WRITER, self.events, lambda: writer)
            bell.send(encode(TopicsChanged(1, term=told[0], writer_start=start)))

    def _environment(
        self, process: Process, page: CursorPage, point: Callable[[], None] = lambda: None
    ) -> Environment:
        assert self.port is not None
        return SimEnvironment(
            self.settings, self.paths, page, process.inbox, self.clock, self, self.port, point
        )


def _is_descriptor(source: Pollable) -> bool:
    """Whether it is the operating system's: what the simulator has for sockets is negative."""
    return isinstance(source, int) and source >= 0


def _raise(node: Node, role: Role, error: Exception) -> None:
    raise error


def runtime_folder(root: Path) -> Path:
    """Where the sockets and the page of a node at ``root`` are: not on its disk."""
    return root.with_name(root.name + "-run")
