"""World of a run: nodes, network, producers, and their observers, in one thread."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Self

from ledgermq.broker.state.broker_tables import ROWS_AT_ONCE_MAX
from ledgermq.ipc.cursor_page import PublishedRole, Role
from ledgermq.members.log_trouble import LogDamagedError
from ledgermq.model.config.settings import (
    AckMode,
    AckSection,
    ClusterState,
    LimitsSection,
    ListenSection,
    NodeSection,
    RaftSection,
    Settings,
    SinksSection,
    StoreSection,
    TransactionsSection,
)
from ledgermq.model.errors import LedgerError
from ledgermq.model.ids import NodeId
from ledgermq.model.names.message_types import UNSPECIFIED
from ledgermq.raft.membership import Membership
from ledgermq.store.files.disk_sync import watched
from ledgermq.store.files.file_names import file_name
from ledgermq.store.recovery.log_checkpoint import decode
from tests.simulator.checks.checker import Checker, NodeEntry
from tests.simulator.checks.observer import Holder, Observer, WitnessObserver
from tests.simulator.checks.settled import QUEUE_FILE_SIZE
from tests.simulator.clients.producer import SimulatedProducer
from tests.simulator.machine.disk import PAGE_SIZE, Disk, Disks
from tests.simulator.machine.events import MS, Events, NodeClock
from tests.simulator.machine.network import Network, Weather
from tests.simulator.node import Node, runtime_folder
from tests.simulator.witness_node import WitnessNode

MEMORY_FOLDER = Path("/dev/shm")
IN_GROUP = 0.2
INDEX_SLOTS = 64
INDEX_ITEMS = 256
DELAY_LEVELS = "1s 1s 1s 2s 3s 1h"
SLOW_PUT_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Shape:
    """What a group is like; sizes in bytes, times in milliseconds.

    Attributes:
        has_readers: dispatchers and brokers are driven, too.
        frame_bytes, frames_in_flight: entries that a leader sends at once, and without an answer.
        catch_up_bytes_per_s: by which a lagging member comes nearer while producers send.
        staged_ms: for so long rows are kept that nobody commits.
        is_from_outside: the tables that nodes are made with say nothing of the log.
        topics: others than that of the producers, which the tables begin with.
        message_type: of the producers' topic.
        rows_at_once_max: larger tables of topics are written a second later.
        late_ms: the last member is first started then.
        interruptions: how probable one of raft's turns is at each point (``Interruptions``).
        feature_level: the one in force; brokers, where there are some, know it themselves.
        is_fed: writers feed one another, as long as raft lets them.
        waits: see ``Node.waits``.
        window: so much of the log is looked at for messages that are sent again, beside the index,
            which groups with readers have.
    """

    members: int = 3
    ack: AckMode = AckMode.MAJORITY_FSYNC
    file_size: int = 32_768
    index_file_size: int = 4_096
    election_max_ms: int = 800
    preferred: tuple[str, ...] = ()
    producers: int = 3
    has_readers: bool = False
    frame_bytes: int = 2_048
    frames_in_flight: int = 4
    catch_up_bytes_per_s: int = 16_384
    staged_ms: int = SinksSection().staged_reserved_ms
    is_from_outside: bool = False
    topics: tuple[str, ...] = ()
    message_type: str = UNSPECIFIED
    rows_at_once_max: int = ROWS_AT_ONCE_MAX
    late_ms: int = 0
    interruptions: float = 0.0
    feature_level: int = 0
    is_fed: bool = False
    waits: bool = False
    window: int = LimitsSection().total_window_bytes


class World:
    """All that a run consists of; a context, for it has files.

    Attributes:
        read: called after each turn of a dispatcher or broker.
        crash_points: how probable a crash is at the moments between a promise and what follows.
        witnesses: nodes without bodies, by name.
        lost: nodes whose disk is gone for good.
        is_inside_group: whether a log that ends with an index lacks what belongs to its last entry.
    """

    def __init__(self, seed: int, shape: Shape, checker: Checker | None = None) -> None:
        self.random = Random(seed)
        self.shape = shape
        self.events = Events()
        self.checker = checker or Checker()
        self.network = Network(self.events, self.random)
        self.network.seen = self.checker.sent
        self.network.taken = self._taken
        self.nodes: dict[NodeId, Node] = {}
        self.observers: dict[NodeId, Observer] = {}
        self.witnesses: dict[NodeId, WitnessNode] = {}
        self.lost: set[NodeId] = set()
        self._witness_observers: list[WitnessObserver] = []
        self.producers: list[SimulatedProducer] = []
        self.crash_points = 0.0
        self.is_inside_group: Callable[[int], bool] = lambda index: False
        self.read: Callable[[Node, Role], None] = lambda node, role: None
        self._disks = Disks()
        self._stack = ExitStack()
        self._order: list[Node] = []

    def __enter__(self) -> Self:
        memory = MEMORY_FOLDER if MEMORY_FOLDER.is_dir() else None
        self.root = Path(
            self._stack.enter_context(TemporaryDirectory(prefix="ledgermq-sim-", dir=memory))
        )
        self._stack.enter_context(watched(self._disks))
        self._first = [NodeId(f"n{number}") for number in range(self.shape.members)]
        for name in self._first:
            self._add(name)
        late = self._first[-1:] if self.shape.late_ms else []
        for name in self._first[: len(self._first) - len(late)]:
            self.start(name)
        for name in late:
            self.events.after(self.shape.late_ms * MS, partial(self.start, name))
        for number in range(self.shape.producers):
            self.add_producer(f"p{number}")
        return self

    def __exit__(self, *_: object) -> None:
        for node in self.nodes.values():
            node.kill()
        for witness in self.witnesses.values():
            witness.kill(power=False)
        for observer in self.observers.values():
            observer.close()
        self._stack.close()

    def add_producer(self, name: str) -> SimulatedProducer:
        """One more, which begins soon."""
        producer = SimulatedProducer(name, self._order, self.events, self.random, self.checker)
        producer.delay_ns = self.network.weather.delay_ns
        self.producers.append(producer)
        return producer

    def start(self, name: NodeId) -> None:
        """Power on, if it is off."""
        if name in self.witnesses:
            if not self.witnesses[name].is_on:
                self.events.trace(f"{name} starts")
                self.witnesses[name].start()
            return
        node = self.nodes[name]
        if not node.is_on and name not in self.lost:
            self.events.trace(f"{name} starts")
            self.observers[name].started()
            node.start()

    def lose(self, name: NodeId) -> None:
        """A node is off for good, and its disk holds nothing any more."""
        self.kill(name, power=False)
        self.lost.add(name)
        self.events.trace(f"{name} is lost for good")

    def kill_witness(self, name: NodeId) -> None:
        """Power fails: it always syncs what it promises, whatever the others do."""
        if self.witnesses[name].is_on:
            self.events.trace(f"{name} loses power")
            self.witnesses[name].kill(power=True)

    @property
    def names(self) -> list[NodeId]:
        """Those of all nodes."""
        return [*self.nodes, *self.witnesses]

    def kill(self, name: NodeId, *, power: bool) -> None:
        """Kill a node's processes; with ``power`` also what its disk had not kept yet.

        Only with ``majority-fsync``: else a power failure takes what was acknowledged.
        """
        node = self.nodes[name]
        if not node.is_on:
            return
        self.events.trace(f"{name} {'loses power' if power else 'is killed'}")
        self.look_once_more(node)
        node.kill()
        if power:
            assert self.shape.ack is AckMode.MAJORITY_FSYNC
            node.disk.power_failure()
            if node.readers is not None:
                node.readers.machine_restarted()

    def revive(self, name: NodeId, role: Role) -> None:
        """Start a process again that has ended, as the supervisor does."""
        self.nodes[name].start_process(role)

    def trouble(self, name: NodeId, role: Role) -> None:
        """Kill one process; the supervisor starts it again soon."""
        node = self.nodes[name]
        if node.living(role) is None:
            return
        self.events.trace(f"{name} loses its {role.title}")
        if role is Role.WRITER:
            self.look_once_more(node)
        node.kill_process(role)
        wait = self.random.randint(5, 100) * MS
        self.events.after(wait, lambda: self.revive(name, role))

    def flip(self, name: NodeId) -> None:
        """Turn a bit of an entry that the node's log checkpoint calls durable."""
        node = self.nodes[name]
        settled = self._settled(node)
        if not settled:
            return
        entry = self.random.choice(settled)
        start = entry.position - entry.position % self.shape.file_size
        low = entry.position - start
        flip = node.disk.flip(node.store.data / file_name(start), low, low + len(entry.data))
        node.spoilt.add(entry.number)
        self.events.trace(f"{name}: a bit flips in entry {entry}, at {flip.offset}")

    def lose_pages(self, name: NodeId) -> None:
        """Make zeros of pages that hold nothing but what the node's checkpoint calls durable."""
        node = self.nodes[name]
        settled = self._settled(node)
        pages = (settled[-1].end if settled else 0) // PAGE_SIZE
        for page in self.random.sample(range(pages), min(pages, self.random.choice((1, 1, 2)))):
            begin = page * PAGE_SIZE
            start = begin - begin % self.shape.file_size
            path = node.store.data / file_name(start)
            node.disk.lose(path, begin - start, begin - start + PAGE_SIZE)
            lost = [
                entry.number
                for entry in settled
                if entry.position < begin + PAGE_SIZE and entry.end > begin
            ]
            node.spoilt.update(lost)
            self.events.trace(f"{name}: the page at {begin} is lost, with entries {lost}")

    def _settled(self, node: Node) -> list[NodeEntry]:
        """The entries of a node's log that its checkpoint calls durable."""
        path = node.store.log_checkpoint
        checkpoint = decode(path.read_bytes()) if path.exists() else None
        if checkpoint is None:
            return []
        log = self.observers[node.name].log
        return [entry for entry in log if entry.end <= checkpoint.end.position]

    def set_weather(self, weather: Weather) -> None:
        """Have this weather from now on."""
        self.network.weather = weather
        for node in self.nodes.values():
            node.set_step(weather.step_ns)
            node.flushers.sync_ns = weather.sync_ns
        for witness in self.witnesses.values():
            witness.set_step(weather.step_ns)
        for producer in self.producers:
            producer.delay_ns = weather.delay_ns

    def ask(self, name: NodeId, verb: str, **arguments: str) -> dict[str, object]:
        """Ask a raft process over its control socket, as an operator does; its answer."""
        node = self.nodes[name]
        process = node.living(Role.RAFT)
        if process is None:
            return {"error": "down"}
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
            client.setblocking(False)
            try:
                client.connect(str(node.paths.raft_control))
            except BlockingIOError:
                # Whoever was asked stands still, and so many others wait for it.
                return {"error": "stopped"}
            client.sendall(json.dumps({"verb": verb, **arguments}).encode() + b"\n")
            answer = b""
            for _ in range(8):
                node.serve_operator()
                try:
                    answer += client.recv(65_536)
                except BlockingIOError:
                    continue
                except ConnectionResetError:
                    # What was asked for has ended the process.
                    break
                if answer.endswith(b"\n"):
                    break
        if not answer:
            return {"error": "stopped"}
        found = json.loads(answer)
        assert isinstance(found, dict), answer
        return found

    def leaders(self) -> list[Node]:
        """Nodes that say so."""
        found = []
        for node in self.nodes.values():
            page = node.page
            if page is not None and node.living(Role.RAFT) is not None:
                grant = page.read_grant()
                if grant.role is PublishedRole.LEADER:
                    found.append((grant.term, node))
        return [node for _, node in sorted(found, key=lambda pair: pair[0])]

    def join(self) -> NodeId:
        """Make one more node, which waits for being made a member, and start it."""
        name = NodeId(f"n{len(self.nodes)}")
        self._add(name)
        self.nodes[name].set_step(self.network.weather.step_ns)
        self.nodes[name].flushers.sync_ns = self.network.weather.sync_ns
        self.start(name)
        return name

    def join_witness(self, name: NodeId) -> None:
        """Make a node without bodies, which waits for being made a member, and start it."""
        root = self.root / name
        root.mkdir()
        disk = Disk(root, self.random)
        self._disks.disks.append(disk)
        node = WitnessNode(
            self._settings(name, [*self._first, name], root),
            list(self._first),
            disk=disk,
            clock=NodeClock(self.events, self.random, rate=self.random.randint(950, 1_050)),
            network=self.network,
            events=self.events,
            random=self.random,
        )
        observer = WitnessObserver(node, self.checker, self.observers.values)
        node.turned = observer.look
        node.failed = self._witness_failed
        node.set_step(self.network.weather.step_ns)
        self._witness_observers.append(observer)
        self.witnesses[name] = node
        self.start(name)

    def _holders(self) -> list[Holder]:
        return [*self.observers.values(), *self._witness_observers]

    def _add(self, name: NodeId) -> None:
        members = self._first if name in self._first else [*self._first, name]
        root = self.root / name
        root.mkdir()
        disk = Disk(root, self.random)
        self._disks.disks.append(disk)
        clock = NodeClock(self.events, self.random, rate=self.random.randint(950, 1_050))
        others = [other for other in members if other != name]
        node = Node(
            self._settings(name, members, root),
            others,
            disk=disk,
            clock=clock,
            network=self.network,
            events=self.events,
            random=self.random,
            has_readers=self.shape.has_readers,
        )
        node.waits = self.shape.waits
        if node.readers is not None:
            node.readers.is_from_outside = self.shape.is_from_outside
            node.readers.rows_at_once_max = self.shape.rows_at_once_max
        shape = self.shape
        node.format(
            index_file_size=shape.index_file_size,
            topics=shape.topics,
            message_type=shape.message_type,
        )
        node.recovered = self._recovered
        node.turned = self._turned
        node.failed = self._failed
        node.interruptions.chance = self.shape.interruptions
        node.feature_level = self.shape.feature_level
        self.nodes[name] = node
        self._order.append(node)
        self.observers[name] = Observer(
            node,
            self.checker,
            first=Membership(frozenset(self._first)),
            find=self._holders,
            file_size=self.shape.file_size,
            index_file_size=self.shape.index_file_size,
        )

    def _settings(self, name: NodeId, members: list[NodeId], root: Path) -> Settings:
        number = len(self.nodes)
        return Settings(
            node=NodeSection(
                self_id=name,
                group="sim",
                broker_name="sim",
                peers=tuple(f"{member}-{address_of(member)}" for member in members),
                listen_port=10_911 + number,
                initial_cluster_state=(
                    ClusterState.NEW if name in self._first else ClusterState.EXISTING
                ),
            ),
            store=StoreSection(
                path_root_dir=root,
                mapped_file_size_commit_log=self.shape.file_size,
                flush_interval_ms=100,
                checkpoint_interval_ms=500,
                mapped_file_size_consume_queue=QUEUE_FILE_SIZE,
                max_hash_slot_num=INDEX_SLOTS,
                max_index_num=INDEX_ITEMS,
                message_index_enable=self.shape.has_readers,
                message_delay_level=DELAY_LEVELS,
            ),
            transactions=TransactionsSection(
                transaction_timeout_ms=1_000, transaction_check_interval_ms=1_000
            ),
            raft=RaftSection(
                election_timeout_max_ms=self.shape.election_max_ms,
                in_flight_bytes=8_192,
                catch_up_bytes_per_s=self.shape.catch_up_bytes_per_s,
                in_flight_frames=self.shape.frames_in_flight,
                frame_bytes=self.shape.frame_bytes,
                transfer_timeout_ms=1_000,
                preferred_leaders=self.shape.preferred,
                direct_writers=self.shape.is_fed,
            ),
            ack=AckSection(mode=self.shape.ack),
            sinks=SinksSection(staged_reserved_ms=self.shape.staged_ms),
            listen=ListenSection(runtime_dir=runtime_folder(root)),
            # By the time of the machine that simulates: a busy one would make a seed another run.
            limits=LimitsSection(
                put_lock_warn_ms=SLOW_PUT_MS,
                total_window_bytes=self.shape.window,
                client_window_bytes=min(self.shape.window, LimitsSection().client_window_bytes),
            ),
        )

    def look_once_more(self, node: Node) -> None:
        """Since the writer's last turn a flush may have ended, and raft have promised more."""
        if node.page is not None and node.living(Role.WRITER) is not None:
            self.observers[node.name].look_at_log(node.page)

    def _taken(self, target: NodeId, source: NodeId) -> None:
        if target in self.observers:
            self.observers[target].heard(source)

    def _recovered(self, node: Node) -> None:
        assert node.page is not None
        self.observers[node.name].recovered(node.page)

    def _turned(self, node: Node, role: Role) -> None:
        if role in (Role.DISPATCHER, Role.BROKER):
            self.read(node, role)
            return
        page = node.page
        assert page is not None
        observer = self.observers[node.name]
        if role is Role.WRITER:
            observer.look_at_log(page)
            observer.look_at_run(page)
            self._cut_group(observer)
            return
        before = observer.standing
        observer.look_at_raft(page)
        after = observer.standing
        if after == before:
            return
        if after[:2] != before[:2]:
            self.events.trace(f"{node.name} is {after.role.name.lower()} in term {after.term}")
        # Between what a node has promised and what follows from it lies most trouble.
        if self.crash_points and self.random.random() < self.crash_points:
            self._crash(node)

    def _cut_group(self, observer: Observer) -> None:
        """The leader dies, perhaps, when a follower has a part of what belongs together."""
        if not self.crash_points or observer.role is PublishedRole.LEADER:
            return
        leaders = self.leaders()
        is_inside = self.is_inside_group(len(observer.log) - 1)
        if is_inside and leaders and self.random.random() < IN_GROUP:
            self._crash(leaders[-1])

    def _crash(self, node: Node) -> None:
        def kill() -> None:
            self.kill(node.name, power=self.shape.ack is AckMode.MAJORITY_FSYNC)
            wait = self.random.choice((5, 20, 100, 1_000)) * MS
            self.events.after(wait, lambda: self.start(node.name))

        node.when_whole(kill)

    def _witness_failed(self, node: WitnessNode, error: Exception) -> None:
        self.events.trace(f"{node.name}: its raft process ends: {error}")
        raise error

    def _failed(self, node: Node, role: Role, error: Exception) -> None:
        """A process has ended by itself: only one of a node whose disk has spoilt something may.

        The supervisor, or systemd, starts the node again.
        """
        if not ((node.spoilt or node.is_marked) and isinstance(error, LedgerError)):
            self.events.trace(f"{node.name}: its {role.title} ends")
            raise error
        self.events.trace(f"{node.name}: its {role.title} ends: {error}")
        self.kill(node.name, power=False)
        wait = (100 if isinstance(error, LogDamagedError) else 1_000) * MS
        self.events.after(wait, lambda: self.start(node.name))


def address_of(node: NodeId) -> str:
    """Where a member is said to listen; nobody does."""
    return f"127.0.0.1:{40_000 + int(node[1:])}"
