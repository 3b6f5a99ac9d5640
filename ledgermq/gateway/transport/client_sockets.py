"""Connections of RocketMQ's clients: the port's own, and those of port processes."""

from __future__ import annotations

import ssl
from collections.abc import Container, Iterator
from typing import Protocol

from ledgermq.gateway.transport.remoting_sockets import Arrival, Connection, RemotingLimits
from ledgermq.remoting.command import Command


class ClientSockets(Protocol):
    """Commands in, in the order in which each connection has sent them, and commands out."""

    tls: ssl.SSLContext | None
    limits: RemotingLimits

    def fileno(self) -> int:
        """Can be read when ``turn`` has work."""
        ...

    @property
    def can_be_reached(self) -> bool:
        """Whether a client that connects is not refused."""
        ...

    def listen(self) -> None:
        """Take connections from now on, where that was put off."""
        ...

    def next_deadline_ms(self) -> int | None:
        """When ``turn`` has work that the descriptor does not tell of; ``None`` when never."""
        ...

    def turn(self, now_ms: int, *, unread: Container[int] = ()) -> Iterator[Arrival]:
        """What has come; to be gone through to its end.

        Args:
            unread: numbers of connections that are not to be read from now, as far as that goes.
        """
        ...

    def send(self, connection: Connection, command: Command) -> None:
        """Queue a command for a client; nothing is done when it has gone."""
        ...

    def send_bytes(self, connection: Connection, data: bytes) -> None:
        """Queue a whole encoded command; see ``send``."""
        ...

    def flush(self) -> None:
        """Write what was queued, as far as it goes without waiting."""
        ...

    @property
    def has_closed(self) -> bool:
        """Whether ``take_closed`` has anything to tell."""
        ...

    def take_closed(self) -> list[Connection]:
        """Connections that have ended since the last call, by whichever side."""
        ...

    def end(self, connection: Connection, reason: str) -> None:
        """Write what was queued, as far as it goes, and end a connection; logs the reason."""
        ...

    def close(self) -> None:
        """End all, and take nothing more."""
        ...
