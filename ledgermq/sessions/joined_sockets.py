"""Joined client sockets: a ROUTER, and the local connections beside it, as one client socket."""

from __future__ import annotations

from collections.abc import Container, Sequence, Sized

from ledgermq.ipc.loop import Pollable
from ledgermq.model.config.settings import LimitsSection
from ledgermq.sessions.client_rights import Peer
from ledgermq.sessions.client_socket import RouterSocket
from ledgermq.sessions.local_connections import LocalConnections, is_local_name


class JoinedSockets:
    """A ``ClientSocket``; identities of local connections are no client's of the ROUTER."""

    def __init__(self, router: RouterSocket, local: LocalConnections) -> None:
        """Owns both.

        Attributes:
            local: the local connections.
        """
        self.peer = Peer()
        self._router = router
        self.local = local
        self._local_source = local.source
        self._router_source = router.source
        self.waiting: Sized = local.ready
        local.share(router.watch)
        self._asks_router = self._is_routers_turn = False

    @property
    def sources(self) -> list[Pollable]:
        return [self._local_source, *self._router.sources]

    def hears(self, ready: Container[Pollable]) -> bool:
        self._asks_router = self._router_source in ready
        return self._asks_router or self._local_source in ready or bool(self.waiting)

    @property
    def zmq_uses(self) -> Sequence[int]:
        return self._router.zmq_uses

    @property
    def guards(self) -> list[Pollable]:
        return self._router.guards

    @property
    def is_watched(self) -> bool:
        return self._router.is_watched or self.local.is_watched

    def let_in(self) -> None:
        self._router.let_in()

    def receive(self) -> list[bytes] | None:
        """The client's identity and the parts of its message; those of the ROUTER and of local
        clients take turns, as long as there are both.

        In the ROUTER nothing is looked for in a turn in which it has not rung.
        """
        is_routers_turn, self._is_routers_turn = self._is_routers_turn, False
        if not is_routers_turn:
            self._is_routers_turn = self._asks_router
            parts = self.local.receive()
            if parts is not None:
                self.peer = self.local.peer
                return parts
            if not self._asks_router:
                return None
        parts = self._router.receive()
        if parts is None and is_routers_turn:
            self._asks_router = False
            return self.receive()
        self.peer = self._router.peer
        return parts

    def greet(self, identity: bytes) -> None:
        if not is_local_name(identity):
            self._router.greet(identity)

    def look(self, now_ns: int) -> None:
        self._router.look(now_ns)
        self.local.look()

    def take_limits(self, limits: LimitsSection) -> None:
        self._router.take_limits(limits)

    def send(self, identity: bytes, parts: Sequence[bytes]) -> bool:
        if identity in self.local.by_identity:
            return self.local.send(identity, parts)
        # One that has gone, or a client of the ROUTER.
        return not is_local_name(identity) and self._router.send(identity, parts)

    def close(self) -> None:
        self.local.close()
        self._router.close()
