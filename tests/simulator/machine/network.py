"""Simulated network: loses, repeats, delays and so reorders; one way, or both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import ClassVar

from ledgermq.ipc.loop import Pollable
from ledgermq.ipc.orders import AwaitFollower, FeedFrom
from ledgermq.ipc.page_slots import names_cells
from ledgermq.model.features import LEVEL
from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers.peers import Arrived, PeerMessage
from tests.simulator.machine.events import MS, Events

PEERS_SOURCE = -100
FEED_SOURCE = -101
FOLLOWERS_SOURCE = -102
FASTEST_NS = 50_000

BROKEN = 0.05
"""How many of the messages that are lost between two raft processes take their connection along."""


@dataclass(slots=True)
class Weather:
    """How bad things are: probabilities, and longest times.

    Attributes:
        delay_ns: a message is on its way for so long.
        step_ns: a process is kept from the processor for so long.
        sync_ns: the disk takes so long for a sync.
    """

    loss: float = 0.0
    duplication: float = 0.0
    delay_ns: int = 0
    step_ns: int = 0
    sync_ns: int = MS


class Network:
    """Carries messages between those that are attached.

    Attributes:
        blocked: pairs of source and target between which nothing gets through.
        seen: called with everything that is sent.
        taken: called with target and source when a raft process, or a writer that feeds others, has
            taken a message.
    """

    def __init__(self, events: Events, random: Random) -> None:
        self.weather = Weather()
        self.blocked: set[tuple[NodeId, NodeId]] = set()
        self.seen: Callable[[NodeId, NodeId, Sequence[bytes]], None] = lambda *_: None
        self.taken: Callable[[NodeId, NodeId], None] = lambda *_: None
        self._events = events
        self._random = random
        self._ends: dict[NodeId, PeersEnd] = {}
        self._feeds: dict[tuple[NodeId, bool], FeedEnd | FollowersEnd] = {}
        self._fed_at: dict[tuple[NodeId, NodeId, bool], int] = {}

    def attach(self, end: PeersEnd) -> None:
        """Messages to its node go to ``end`` from now on."""
        self._ends[end.node] = end

    def detach(self, end: PeersEnd) -> None:
        """Its node hears nothing any more."""
        if self._ends.get(end.node) is end:
            del self._ends[end.node]

    def carry(self, source: NodeId, target: NodeId, parts: Sequence[bytes]) -> None:
        """Take a message of ``source``."""
        self.seen(source, target, parts)
        weather, random = self.weather, self._random
        copies = 2 if weather.duplication and random.random() < weather.duplication else 1
        for _ in range(copies):
            if weather.loss and random.random() < weather.loss:
                if random.random() < BROKEN:
                    self._break(source, target)
                continue
            wait = FASTEST_NS + random.randrange(FASTEST_NS + weather.delay_ns)
            self._events.after(wait, lambda: self._deliver(source, target, parts))

    def process_ended(self, source: NodeId) -> None:
        """A raft process has died: its kernel tells those that are connected to it."""
        for target in sorted(self._ends.keys() - {source}):
            self._break(source, target)

    def attach_feed(self, end: FeedEnd | FollowersEnd) -> None:
        """What is sent to the writer of its node goes to ``end`` from now on."""
        self._feeds[end.node, end.leads] = end

    def detach_feed(self, end: FeedEnd | FollowersEnd) -> None:
        """The writer of its node hears nothing any more."""
        if self._feeds.get((end.node, end.leads)) is end:
            del self._feeds[end.node, end.leads]

    def feed(
        self, source: NodeId, target: NodeId, parts: Sequence[bytes], *, to_leader: bool
    ) -> None:
        """Take a message of the writer of ``source`` to that of ``target``.

        What is lost and what comes twice is as with the others, but nothing overtakes: a run that
        must be given back with each of them would hardly ever be one.
        """
        self.seen(source, target, parts)
        weather, random = self.weather, self._random
        copies = 2 if weather.duplication and random.random() < weather.duplication else 1
        way = source, target, to_leader
        for _ in range(copies):
            if weather.loss and random.random() < weather.loss:
                continue
            at = self._events.now + FASTEST_NS + random.randrange(FASTEST_NS + weather.delay_ns)
            at = self._fed_at[way] = max(at, self._fed_at.get(way, 0) + 1)
            self._events.after(at - self._events.now, lambda: self._deliver_fed(way, parts))

    def isolate(self, name: NodeId, others: Sequence[NodeId]) -> None:
        """Nothing gets to ``name`` or away from it."""
        for other in others:
            self.blocked |= {(name, other), (other, name)}

    def _break(self, source: NodeId, target: NodeId) -> None:
        """The connection ends for ``target``; messages may come behind that, by another one."""
        wait = FASTEST_NS + self._random.randrange(FASTEST_NS + self.weather.delay_ns)

        def tell() -> None:
            end = self._ends.get(target)
            if end is not None and (source, target) not in self.blocked:
                end.lose(source)

        self._events.after(wait, tell)

    def _deliver(self, source: NodeId, target: NodeId, parts: Sequence[bytes]) -> None:
        end = self._ends.get(target)
        if end is not None and (source, target) not in self.blocked:
            end.take(PeerMessage(source, [memoryview(part) for part in parts]))

    def _deliver_fed(self, way: tuple[NodeId, NodeId, bool], parts: Sequence[bytes]) -> None:
        source, target, to_leader = way
        end = self._feeds.get((target, to_leader))
        if end is not None and (source, target) not in self.blocked:
            end.bring(source, [memoryview(part) for part in parts])


class PeersEnd:
    """The ``raft_node.peers.peers.Peers`` of one life of a raft process; everybody is let in.

    Attributes:
        level_needed: the feature level that who is let in would have to know.
    """

    def __init__(
        self, node: NodeId, others: Sequence[NodeId], network: Network, wake: Callable[[], None]
    ) -> None:
        self.node = node
        self.voters: Sequence[NodeId] = (node, *others)
        self.refusals: Mapping[NodeId, str] = {}
        self.direct: Collection[NodeId] = ()
        self.level_needed = 0
        self._members: Collection[NodeId] = self.voters
        self._network = network
        self._wake = wake
        self._waiting: deque[PeerMessage] = deque()
        self._ended: list[NodeId] = []
        network.attach(self)

    @property
    def sources(self) -> list[Pollable]:
        return [PEERS_SOURCE]

    @property
    def levels(self) -> Mapping[NodeId, int]:
        """The level of this version, for all members: there is no other version."""
        return dict.fromkeys(self._members, LEVEL)

    @property
    def absent(self) -> Sequence[NodeId]:
        """Nobody: members do not greet here, and no client asks for routes."""
        return ()

    def need_level(self, level: int) -> None:
        """Note the level in force; it never falls."""
        self.level_needed = max(self.level_needed, level)

    def take(self, message: PeerMessage) -> None:
        """The network brings a message."""
        self._waiting.append(message)
        self._wake()

    def lose(self, peer: NodeId) -> None:
        """The connection to ``peer`` has ended."""
        self._ended.append(peer)
        self._wake()

    def ended(self) -> Sequence[NodeId]:
        ended, self._ended = self._ended, []
        return ended

    def send(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        self._network.carry(self.node, peer, parts)
        return True

    def may_feed(self, leader: NodeId) -> bool:
        del leader
        return True

    def await_follower(self, peer: NodeId) -> AwaitFollower | None:
        """The network connects writers by itself."""
        return AwaitFollower(names_cells([peer])[0], 0, "-", b"-", b"-")

    def feed_from(self, peer: NodeId, port: int) -> FeedFrom | None:
        """None: nobody is invited."""
        del peer, port
        return None

    def arrived(self) -> deque[Arrived]:
        """Nothing: ``receive`` gives what comes, one by one."""
        return deque()

    def receive(self) -> PeerMessage | None:
        if not self._waiting:
            return None
        message = self._waiting.popleft()
        self._network.taken(self.node, message.node)
        if self._waiting:
            self._wake()
        return message

    def watch(self) -> None:
        pass

    def forget(self, node: NodeId) -> bool:
        """False: no disk is known to anybody here."""
        return False

    def set_members(self, addresses: Mapping[NodeId, str]) -> None:
        """The group has these members now; the network finds everybody by name."""
        self._members = tuple(addresses)

    def check_new(self, node: NodeId) -> bool:
        """True: there are no keys, and all have one version."""
        return True

    def check_level(self, node: NodeId) -> bool:
        del node
        return False

    def close(self) -> None:
        self._network.detach(self)


class WriterEnd:
    """One end of the connections between one life of a writer and the writers of other members."""

    leads: ClassVar[bool]

    def __init__(self, node: NodeId, network: Network, wake: Callable[[], None]) -> None:
        self.node = node
        self._network = network
        self._wake = wake
        self._waiting: list[tuple[NodeId, list[memoryview]]] = []

    def bring(self, source: NodeId, parts: list[memoryview]) -> None:
        """The network brings a message."""
        self._waiting.append((source, parts))
        self._wake()

    @property
    def peers(self) -> list[NodeId]:
        """Members of whom something has come, in its order."""
        return list(dict.fromkeys(peer for peer, _ in self._waiting))

    def take_of(self, peer: NodeId) -> list[list[memoryview]]:
        """What has come of one, in its order."""
        taken = [parts for one, parts in self._waiting if one == peer]
        self._waiting = [message for message in self._waiting if message[0] != peer]
        return taken

    def put_back(self, peer: NodeId, messages: list[list[memoryview]]) -> None:
        """What was taken comes again, before all else."""
        self._waiting[:0] = [(peer, parts) for parts in messages]

    def take(self) -> list[tuple[NodeId, list[memoryview]]]:
        """All that has come, in its order."""
        waiting, self._waiting = self._waiting, []
        return waiting


class FeedEnd(WriterEnd):
    """The ``writer.followed_run.MemberFeed`` of one life of a writer."""

    leads = False

    def __init__(self, node: NodeId, network: Network, wake: Callable[[], None]) -> None:
        super().__init__(node, network, wake)
        network.attach_feed(self)

    @property
    def sources(self) -> list[Pollable]:
        return [FEED_SOURCE]

    def dial(self, order: FeedFrom) -> None:
        raise AssertionError(order)

    def send(self, peer: NodeId, reply: bytes) -> None:
        self._network.feed(self.node, peer, [reply], to_leader=True)

    def close(self) -> None:
        self._network.detach_feed(self)


class FollowersEnd(WriterEnd):
    """The ``writer.led_run.FollowerFeed`` of one life of a writer."""

    leads = True

    def __init__(self, node: NodeId, network: Network, wake: Callable[[], None]) -> None:
        super().__init__(node, network, wake)
        network.attach_feed(self)

    @property
    def sources(self) -> list[Pollable]:
        return [FOLLOWERS_SOURCE]

    def take(self) -> list[tuple[NodeId, list[memoryview]]]:
        taken = super().take()
        for source, _ in taken:
            self._network.taken(self.node, source)
        return taken

    def take_of(self, peer: NodeId) -> list[list[memoryview]]:
        taken = super().take_of(peer)
        for _ in taken:
            self._network.taken(self.node, peer)
        return taken

    def await_follower(self, peer: NodeId, order: AwaitFollower) -> int:
        """0: whether there is a writer that listens is not known here: as on a real network."""
        del peer, order
        return 0

    def send(self, peer: NodeId, first: bytes, second: bytes | None = None) -> bool:
        parts = [first] if second is None else [first, second]
        self._network.feed(self.node, peer, parts, to_leader=False)
        return True

    def look(self) -> None:
        """Nothing takes too long here."""

    def close(self) -> None:
        self._network.detach_feed(self)
