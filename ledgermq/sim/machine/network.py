"""Simulated network: loses, repeats, delays and so reorders; one way, or both."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from ledgermq.ipc.loop import Pollable
from ledgermq.model.features import LEVEL
from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers.peers import Arrived, PeerMessage
from ledgermq.sim.machine.events import MS, Events

PEERS_SOURCE = -100
FASTEST_NS = 50_000


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
        taken: called with target and source when a raft process has taken a message.
    """

    def __init__(self, events: Events, random: Random) -> None:
        self.weather = Weather()
        self.blocked: set[tuple[NodeId, NodeId]] = set()
        self.seen: Callable[[NodeId, NodeId, Sequence[bytes]], None] = lambda *_: None
        self.taken: Callable[[NodeId, NodeId], None] = lambda *_: None
        self._events = events
        self._random = random
        self._ends: dict[NodeId, PeersEnd] = {}

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
                continue
            wait = FASTEST_NS + random.randrange(FASTEST_NS + weather.delay_ns)
            self._events.after(wait, lambda: self._deliver(source, target, parts))

    def isolate(self, name: NodeId, others: Sequence[NodeId]) -> None:
        """Nothing gets to ``name`` or away from it."""
        for other in others:
            self.blocked |= {(name, other), (other, name)}

    def _deliver(self, source: NodeId, target: NodeId, parts: Sequence[bytes]) -> None:
        end = self._ends.get(target)
        if end is not None and (source, target) not in self.blocked:
            end.take(PeerMessage(source, [memoryview(part) for part in parts]))


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

    def send(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        self._network.carry(self.node, peer, parts)
        return True

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
