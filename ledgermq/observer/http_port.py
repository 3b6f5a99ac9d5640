"""HTTP port: the listening socket, and the connections taken from it, no more than there may be."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path

from ledgermq.formats.records.host_address import plain_address
from ledgermq.ipc.counters import Counts, ObserverCounter
from ledgermq.model.config.settings_rules import HTTP_UNIX
from ledgermq.model.errors import ConfigError
from ledgermq.observer.http_connection import App, HttpConnection, RequestKind
from ledgermq.observer.http_limits import HttpLimits
from ledgermq.observer.http_room import Room
from ledgermq.sessions.request_faults import RequestFaults

logger = logging.getLogger(__name__)

ACCEPTED_MAX = 32
"""Connections taken in one turn of the loop."""

PENDING_MAX = 128

AGAIN_S = 0.2
"""Where a connection could not be taken, the next attempt is made so much later."""


class HttpPort:
    """An HTTP port, and its ``HttpCounts``. It accepts by itself: connections in their TLS
    handshake count like all others.
    """

    def __init__(
        self,
        app: App,
        listener: socket.socket,
        counters: Counts,
        limits: HttpLimits,
        *,
        tls: ssl.SSLContext | None,
    ) -> None:
        """Take ``listener``, which is closed with the port; call ``open`` within a loop."""
        self._app = app
        self._listener = listener
        self._counters = counters
        self._limits = limits
        self._tls = tls
        self._room = Room(limits, time.monotonic)
        self._connections: set[HttpConnection] = set()
        self._accepted: dict[HttpConnection, socket.socket] = {}
        self._shaking: set[asyncio.Task[None]] = set()
        self._under_way: dict[RequestKind, Counter[str]] = {kind: Counter() for kind in RequestKind}
        self._waiting: dict[HttpConnection, RequestKind] = {}
        self._faults = RequestFaults(counters, ObserverCounter.REQUESTS_FAILED)
        self._again: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Begin to accept, or go on."""
        self._again = None
        loop = asyncio.get_running_loop()
        loop.add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        """Accept no more, and end what is there."""
        if self._again is not None:
            self._again.cancel()
        asyncio.get_running_loop().remove_reader(self._listener.fileno())
        self._listener.close()
        for task in self._shaking:
            task.cancel()
        for connection in list(self._connections):
            connection.end()

    def opened(self, connection: HttpConnection) -> None:
        self._connections.add(connection)
        self._counters[ObserverCounter.CONNECTIONS] = len(self._connections)

    def closed(self, connection: HttpConnection) -> None:
        self._connections.discard(connection)
        self._room.leave(connection)
        self._counters[ObserverCounter.CONNECTIONS] = len(self._connections)

    def begins(self, connection: HttpConnection, kind: RequestKind) -> bool:
        if not self._has_turn(connection, kind):
            self._waiting[connection] = kind
            return False
        self._counters[ObserverCounter.REQUESTS] += 1
        if _places_of(kind, self._limits) is not None:
            self._under_way[kind][connection.share] += 1
        return True

    def gives_up(self, connection: HttpConnection) -> None:
        self._waiting.pop(connection, None)

    def made(self, connection: HttpConnection, kind: RequestKind) -> None:
        if _places_of(kind, self._limits) is None:
            return
        taken = self._under_way[kind]
        taken[connection.share] -= 1
        if not taken[connection.share]:
            del taken[connection.share]
        waiting = [
            one
            for one, wanted in self._waiting.items()
            if wanted is kind and self._has_turn(one, kind)
        ]
        if waiting:
            # Of whom fewest are answered now, and of these who came first.
            following = min(waiting, key=lambda one: taken[one.share])
            del self._waiting[following]
            following.go_on(kind)

    def _has_turn(self, connection: HttpConnection, kind: RequestKind) -> bool:
        limit = _places_of(kind, self._limits)
        if limit is None:
            return True
        taken, share = self._under_way[kind], connection.share
        return taken.total() < limit and not (share and taken[share] >= max(1, limit // 2))

    def unread(self, connection: HttpConnection) -> None:
        self._room.bound_unread(connection)

    def refused(self) -> None:
        self._counters[ObserverCounter.REFUSED] += 1

    def failed(self, error: Exception, method: str) -> None:
        self._faults.refusal(error, f"http {method}")

    def _accept(self) -> None:
        for _ in range(ACCEPTED_MAX):
            try:
                client, peer = self._listener.accept()
            except BlockingIOError:
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                # No descriptor is left, or no memory, and who waits would wake the loop at once.
                logger.warning("connection not accepted: %s", error.strerror)
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._listener.fileno())
                self._again = loop.call_later(AGAIN_S, self.open)
                return
            address = plain_address(str(peer[0])) if isinstance(peer, tuple) else ""
            client.setblocking(False)
            scheme = "https" if self._tls else "http"
            connection = HttpConnection(
                self._app, self, self._limits, address=address, scheme=scheme
            )
            if not self._room.take(connection):
                self.refused()
                client.close()
                continue
            self._accepted[connection] = client
            task = asyncio.get_running_loop().create_task(self._welcome(connection))
            connection.shaking = task
            self._shaking.add(task)
            task.add_done_callback(partial(self._welcomed, connection))

    def _welcomed(self, connection: HttpConnection, task: asyncio.Task[None]) -> None:
        self._shaking.discard(task)
        client = self._accepted.pop(connection, None)
        if client is not None:
            # It had to give way before its task began.
            client.close()

    async def _welcome(self, connection: HttpConnection) -> None:
        client = self._accepted.pop(connection)
        try:
            with suppress(OSError):  # also of TLS: who cannot shake hands is not served
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: connection,
                    client,
                    ssl=self._tls,
                    ssl_handshake_timeout=self._limits.handshake_s if self._tls else None,
                    ssl_shutdown_timeout=self._limits.handshake_s if self._tls else None,
                )
        finally:
            connection.shaking = None
            if not connection.was_opened:
                self._room.leave(connection)


def _places_of(kind: RequestKind, limits: HttpLimits) -> int | None:
    """How many there may be at once; None: any number."""
    return {RequestKind.SIGN_IN: limits.signing_in, RequestKind.OTHER: limits.under_way}.get(kind)


def listen(http: str, unix_path: Path, mode: int) -> socket.socket:
    """A socket that listens at ``listen.http``, non-blocking; the caller closes it.

    Raises:
        ConfigError: it cannot be listened at.
    """
    try:
        return _unix(unix_path, mode) if http == HTTP_UNIX else _tcp(http)
    except OSError as error:
        raise ConfigError(
            "HTTP port cannot be listened at",
            address=http,
            reason=error.strerror or str(error),
            setting="listen.http",
        ) from error


def _tcp(http: str) -> socket.socket:
    host, _, port = http.rpartition(":")
    host = host.strip("[]")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind((host, int(port)))
        listener.listen(PENDING_MAX)
    except OSError:
        listener.close()
        raise
    return listener


def _unix(path: Path, mode: int) -> socket.socket:
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    try:
        listener.setblocking(False)
        listener.bind(str(path))
        path.chmod(mode)
        listener.listen(PENDING_MAX)
    except OSError:
        listener.close()
        raise
    return listener
