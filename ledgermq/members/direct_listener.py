"""Listener for direct connections: open while somebody is awaited, who was told where."""

from __future__ import annotations

import select
import socket

from ledgermq.hosts.host_name import socket_address

LISTEN_S = 5.0
"""Who is invited dials at once; then nobody is listened to any more."""

HANDSHAKES_MAX = 8
"""Most handshakes under way at once: each costs a process half a millisecond, whoever began it."""

ACCEPTED_MAX = 16
"""Most connections that strangers make while somebody is awaited: after that nobody is listened to
before the next attempt."""


class DirectListener:
    """Owned by one thread. Nothing here blocks.

    Attributes:
        until: seconds of the clock that ``open`` was told; nobody is awaited after that.
    """

    def __init__(self, poll: select.epoll) -> None:
        """Nobody is awaited.

        Args:
            poll: the set that the socket is in while it is open.
        """
        self.until = 0.0
        self._poll = poll
        self._socket: socket.socket | None = None
        self._accepted = 0

    @property
    def descriptor(self) -> int:
        """The socket's; -1 while nobody is awaited."""
        return -1 if self._socket is None else self._socket.fileno()

    def open(self, host: str, port: int, now: float) -> int:
        """Listen for ``LISTEN_S`` from ``now`` on; the port.

        Args:
            host: numeric.
            port: 0: any that is free. One that listens already stays where it is.

        Raises:
            OSError: the system refused.
        """
        self.until, self._accepted = now + LISTEN_S, 0
        if self._socket is None:
            family, own = socket_address(host, port)
            opened = socket.create_server(own, family=family, backlog=HANDSHAKES_MAX)
            opened.setblocking(False)
            self._socket = opened
            self._poll.register(opened.fileno(), select.EPOLLIN)
        found: int = self._socket.getsockname()[1]
        return found

    def accept(self, shaking: int) -> socket.socket | None:
        """Who has come, to begin a handshake with; None: nobody, or one too many.

        Args:
            shaking: handshakes that are under way.

        Raises:
            OSError: the system refused, and nobody is awaited any more.
        """
        if self._socket is None:
            return None
        try:
            accepted, _ = self._socket.accept()
        except (BlockingIOError, ConnectionAbortedError):
            # Gone again.
            return None
        except OSError:
            # No descriptor is left, and who waits would wake the process at once, again and again.
            self.close()
            raise
        self._accepted += 1
        if shaking >= HANDSHAKES_MAX or self._accepted > ACCEPTED_MAX:
            accepted.close()
            return None
        accepted.setblocking(False)
        return accepted

    def look(self, now: float) -> None:
        """Listen to nobody who does not come, or whom too many strangers come before."""
        if now >= self.until or self._accepted >= ACCEPTED_MAX:
            self.close()

    def close(self) -> None:
        """Listen no more."""
        if self._socket is not None:
            self._poll.unregister(self._socket.fileno())
            self._socket.close()
            self._socket = None
