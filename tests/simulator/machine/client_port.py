"""Simulated connections of clients to a node: in order, delayed, gone with its process."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Sequence, Sized
from random import Random

from ledgermq.ipc.loop import Pollable
from ledgermq.model.config.settings import LimitsSection
from ledgermq.sessions.client_rights import Peer
from tests.simulator.machine.events import Events
from tests.simulator.machine.network import FASTEST_NS

CLIENTS_SOURCE = -200


class SimulatedConnection:
    """A client's connection to one life of a writer."""

    def __init__(self, identity: bytes, port: ClientPort, take: Callable[[list[bytes]], None]):
        self.identity = identity
        self.is_open = True
        self._port = port
        self._take = take
        self._sent_until = self._answered_until = 0
        port.accept(self)

    def send(self, parts: Sequence[bytes]) -> None:
        """Send a message to the node."""
        self._sent_until = self._port.later(self._sent_until, lambda: self._port.take(self, parts))

    def answer(self, parts: Sequence[bytes]) -> None:
        """Send a message to the client."""
        self._answered_until = self._port.later(
            self._answered_until, lambda: self._arrived(list(parts))
        )

    def leave(self) -> None:
        """The client turns away; what it has sent is on its way all the same."""
        self.is_open = False

    def _arrived(self, parts: list[bytes]) -> None:
        if self.is_open:
            self._take(parts)


class ClientPort:
    """The ``sessions.client_socket.ClientSocket`` of one life of a writer."""

    def __init__(self, events: Events, random: Random, wake: Callable[[], None]) -> None:
        self.delay_ns = 0
        self.zmq_uses: Sequence[int] = (0,)
        self._events = events
        self._random = random
        self._wake = wake
        self._waiting: deque[list[bytes]] = deque()
        self._connections: dict[bytes, SimulatedConnection] = {}

    @property
    def sources(self) -> list[Pollable]:
        return [CLIENTS_SOURCE]

    @property
    def waiting(self) -> Sized:
        return ()

    def hears(self, ready: Container[Pollable]) -> bool:
        return CLIENTS_SOURCE in ready

    @property
    def is_watched(self) -> bool:
        return False

    @property
    def guards(self) -> list[Pollable]:
        """Nobody has keys here."""
        return []

    def let_in(self) -> None:
        raise AssertionError("no guard waits")

    @property
    def peer(self) -> Peer:
        """Nobody in particular."""
        return Peer()

    def accept(self, connection: SimulatedConnection) -> None:
        """A client connects."""
        self._connections[connection.identity] = connection

    def later(self, not_before: int, happen: Callable[[], None]) -> int:
        """Call ``happen`` after a delay, in the order of one direction; when that will be."""
        at = self._events.now + FASTEST_NS + self._random.randrange(FASTEST_NS + self.delay_ns)
        at = max(at, not_before + 1)
        self._events.after(at - self._events.now, happen)
        return at

    def take(self, connection: SimulatedConnection, parts: Sequence[bytes]) -> None:
        """A message of a client arrives."""
        self._waiting.append([connection.identity, *parts])
        self._wake()

    def receive(self) -> list[bytes] | None:
        if not self._waiting:
            return None
        return self._waiting.popleft()

    def greet(self, identity: bytes) -> None:
        pass

    def look(self, now_ns: int) -> None:
        """Nothing is held here that nobody takes."""

    def take_limits(self, limits: LimitsSection) -> None:
        pass

    def send(self, identity: bytes, parts: Sequence[bytes]) -> bool:
        connection = self._connections.get(identity)
        if connection is None or not connection.is_open:
            return False
        connection.answer(parts)
        return True

    def close(self) -> None:
        self._connections.clear()
