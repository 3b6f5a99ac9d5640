"""HTTP port: the listening socket, and the connections taken from it, no more than there may be.

A connection has h11 on one side, an ASGI application on the other, and every wait has an end.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import struct
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote

import h11

from ledgermq.formats.records.host_address import plain_address
from ledgermq.hosts.address_share import share_of
from ledgermq.ipc.counters import Counts, ObserverCounter
from ledgermq.model.config.settings_rules import HTTP_UNIX
from ledgermq.model.errors import ConfigError
from ledgermq.observer.callers import PEER
from ledgermq.observer.http_limits import ConnectionPhase, HttpLimits, Room
from ledgermq.sessions.request_faults import RequestFaults

Event = MutableMapping[str, Any]
App = Callable[
    [Event, Callable[[], Awaitable[Event]], Callable[[Event], Awaitable[None]]], Awaitable[None]
]
"""An ASGI application."""

_SENT_ALWAYS: tuple[tuple[bytes, bytes], ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'"),
)
"""Headers of each answer that does not say otherwise itself."""


class RequestKind(Enum):
    """Kind of a request by what it costs to answer it, as its path tells."""

    HEALTH = "health"
    """Answered however many others read slowly: who asks there restarts the node that does not
    answer. Such answers are small, and as many as there are connections.
    """
    FILE = "file"
    """There already, in memory."""
    SIGN_IN = "sign-in"
    """A request by somebody who has shown nothing yet."""
    OTHER = "other"


_KINDS = (
    (b"/health/", RequestKind.HEALTH),
    (b"/static/", RequestKind.FILE),
    (b"/sign-in", RequestKind.SIGN_IN),
)


class HttpConnection(asyncio.Protocol):
    """One client; requests are answered one after the other.

    Attributes:
        was_opened: whether ``connection_made`` was ever called: with TLS not before the handshake.
        shaking: what waits for that; None behind it.
        share, phase, since, unread_bytes, only_health: see ``Placed``.

    Invariant: while a request is being answered nothing is read, so what waits in memory is one
    head, one body and ``unsent_bytes`` of an answer.
    """

    def __init__(
        self, app: App, counts: HttpPort, limits: HttpLimits, *, address: str, scheme: str
    ) -> None:
        """Nobody is there yet; ``address`` is the client's, empty at a unix socket."""
        self.address = address
        self.share = share_of(address)
        self.phase = ConnectionPhase.ASKS
        self.since = time.monotonic()
        self.unread_bytes = 0
        self.only_health = False
        self.shaking: asyncio.Task[None] | None = None
        self._app = app
        self._counts = counts
        self._limits = limits
        self._scheme = scheme
        self._loop = asyncio.get_running_loop()
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self._transport: asyncio.Transport | None = None
        self._account: tuple[int, int] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._request: h11.Request | None = None
        self._body = bytearray()
        self._task: asyncio.Task[None] | None = None
        self._can_write = asyncio.Event()
        self._can_write.set()
        self._is_gone = asyncio.Event()
        self.was_opened = False
        self._is_asking = False
        self._kind: RequestKind | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The client is there; it has ``first_byte_s`` to say something."""
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(self._limits.unsent_bytes)
        self._account = _account_of(transport.get_extra_info("socket"))
        self.was_opened = True
        self._counts.opened(self)
        self._await(self._limits.first_byte_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """It has gone; who answers it is told."""
        del exc
        self._stop_timer()
        self._is_gone.set()
        self._can_write.set()
        if self._task is not None:
            self._task.cancel()
        self._counts.gives_up(self)
        self._counts.closed(self)

    def pause_writing(self) -> None:
        """The client reads slowly."""
        self._can_write.clear()

    def resume_writing(self) -> None:
        """It has read."""
        self._can_write.set()

    def data_received(self, data: bytes) -> None:
        """More of a request."""
        if not self._is_asking:
            # Its first bytes: from here on it has to come to an end, however slowly more comes.
            self._is_asking = True
            self._is_at(ConnectionPhase.ASKS)
            self._await(self._limits.request_s)
        self._http.receive_data(data)
        self._read()

    def eof_received(self) -> bool:
        """The client says no more; what it has asked is answered."""
        if self._task is None and self.phase is not ConnectionPhase.WAITS:
            return False
        self._http.receive_data(b"")
        return True

    def end(self) -> None:
        """Close it: at once where nothing is being answered, else behind the answer."""
        if self._task is None:
            self._abort()

    def give_way(self) -> None:
        """End it at once, and tell the client nothing: another one is given its place."""
        self._counts.refused()
        if self.shaking is not None:
            self.shaking.cancel()
        self._abort()

    def _is_at(self, phase: ConnectionPhase) -> None:
        self.phase, self.since = phase, time.monotonic()

    def _read(self) -> None:
        while self._task is None and self._transport is not None:
            try:
                event = self._http.next_event()
                if isinstance(event, h11.Request):
                    # h11 bounds what is not whole yet; this one may have come at once.
                    if _size_of(event) > self._limits.head_bytes:
                        raise h11.RemoteProtocolError("head too long", error_status_hint=431)
                    self._request = event
                    self._body.clear()
                elif isinstance(event, h11.Data):
                    self._body += event.data
                    if len(self._body) > self._limits.body_bytes:
                        raise h11.RemoteProtocolError("body too long", error_status_hint=413)
                elif isinstance(event, h11.EndOfMessage):
                    self._begin()
                elif isinstance(event, h11.ConnectionClosed):
                    self._transport.close()
                    return
                else:
                    # NEED_DATA, or PAUSED until the request before is answered.
                    if self._http.they_are_waiting_for_100_continue:
                        raise h11.RemoteProtocolError("no bodies on demand", error_status_hint=417)
                    return
            except h11.RemoteProtocolError as error:
                self._refuse(error.error_status_hint)
                return

    def _begin(self) -> None:
        assert self._request is not None and self._transport is not None
        target = self._request.target
        kind = next((one for path, one in _KINDS if target.startswith(path)), RequestKind.OTHER)
        if self.only_health and kind is not RequestKind.HEALTH:
            self._refuse(503)
            return
        self._transport.pause_reading()
        if self._counts.begins(self, kind):
            self._work(kind)
        else:
            self._is_at(ConnectionPhase.WAITS)
            self._await(self._limits.turn_s)

    def go_on(self, kind: RequestKind) -> None:
        """It is its turn to be answered."""
        if not self._counts.begins(self, kind):
            return
        self._work(kind)

    def _work(self, kind: RequestKind) -> None:
        assert self._request is not None
        self._kind = kind
        self._is_at(ConnectionPhase.WORKS)
        self._await(self._limits.answer_s)
        self._task = self._loop.create_task(self._answer(self._request, bytes(self._body)))
        self._task.add_done_callback(self._finish)

    async def _answer(self, request: h11.Request, body: bytes) -> None:
        try:
            await self._app(
                self._scope(request), _Receiver(body, self._is_gone).receive, self._send
            )
        except Exception as error:
            # A bug of ours: the client is told, or sees the answer end early; the others go on.
            self._counts.failed(error, request.method.decode("ascii"))

    def _finish(self, _task: asyncio.Task[None]) -> None:
        """The application has come to an end with a request, or was ended."""
        self._task = self._request = None
        self._made()
        self.unread_bytes = 0
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        ours, theirs = self._http.our_state, self._http.their_state
        if ours is h11.DONE and theirs is h11.DONE:
            self._http.start_next_cycle()
            self._is_asking = bool(self._http.trailing_data[0])
            self._is_at(ConnectionPhase.ASKS if self._is_asking else ConnectionPhase.RESTS)
            self._await(self._limits.request_s if self._is_asking else self._limits.idle_s)
            transport.resume_reading()
            self._read()
        elif ours in (h11.DONE, h11.MUST_CLOSE):
            transport.close()
            # ``close`` waits for the client to read: not for ever.
            self._await(self._limits.request_s)
        elif ours is h11.SEND_RESPONSE:
            self._refuse(500)
        else:
            self._abort()

    def _made(self) -> None:
        """The application has done its part of a request: what is left is its client's."""
        if self._kind is not None:
            self._counts.made(self, self._kind)
            self._kind = None
            self._is_at(ConnectionPhase.READS)

    async def _send(self, event: Event) -> None:
        if self._is_gone.is_set() or self._transport is None:
            raise asyncio.CancelledError
        if event["type"] == "http.response.start":
            own = list(event.get("headers", ()))
            given = {name for name, _ in own}
            headers = [*own, *(one for one in _SENT_ALWAYS if one[0] not in given)]
            head = h11.Response(status_code=event["status"], headers=headers)
            self._transport.write(self._http.send(head) or b"")
            return
        content = event.get("body", b"")
        is_last = not event.get("more_body", False)
        assert self._request is not None
        if is_last:
            self._made()
        if content and self._request.method != b"HEAD":
            view = memoryview(content)
            for at in range(0, len(view), self._limits.unsent_bytes):
                part = h11.Data(data=bytes(view[at : at + self._limits.unsent_bytes]))
                self._transport.write(self._http.send(part) or b"")
                await self._has_read(len(view) - at)
        if is_last:
            self._transport.write(self._http.send(h11.EndOfMessage()) or b"")
            await self._has_read(0)

    async def _has_read(self, unread_bytes: int) -> None:
        """Wait until the client has read, while ``unread_bytes`` are kept for it."""
        if not self._can_write.is_set():
            self.unread_bytes = unread_bytes
            self._counts.unread(self)
            await self._can_write.wait()

    def _refuse(self, status: int) -> None:
        """Say why in one line, and close: nothing that comes behind can be trusted."""
        self._counts.refused()
        self._is_at(ConnectionPhase.READS)
        transport = self._transport
        if transport is None or self._http.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self._abort()
            return
        text = f"{status}\n".encode()
        headers = [
            (b"content-length", str(len(text)).encode()),
            (b"content-type", b"text/plain"),
            (b"connection", b"close"),
            *_SENT_ALWAYS,
        ]
        if status == 503:
            headers.append((b"retry-after", b"1"))
        transport.write(self._http.send(h11.Response(status_code=status, headers=headers)) or b"")
        transport.write(self._http.send(h11.Data(data=text)) or b"")
        transport.write(self._http.send(h11.EndOfMessage()) or b"")
        transport.close()
        # ``close`` waits for the client to read: not for ever.
        self._await(self._limits.request_s)

    def _scope(self, request: h11.Request) -> Event:
        path, _, query = request.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": request.http_version.decode("ascii"),
            "method": request.method.decode("ascii"),
            "scheme": self._scheme,
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": [(name.lower(), value) for name, value in request.headers],
            "client": (self.address, 0) if self.address else None,
            "server": None,
            PEER: self._account,
        }

    def _await(self, seconds: float) -> None:
        """From now on something has to happen within ``seconds``."""
        self._stop_timer()
        self._timer = self._loop.call_later(seconds, self._too_late)

    def _too_late(self) -> None:
        if self.phase is ConnectionPhase.WAITS:
            self._counts.gives_up(self)
            self._refuse(503)
            return
        if self._http.our_state is not h11.IDLE or self._http.trailing_data[0]:
            self._counts.refused()
        self._abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


def _account_of(sock: socket.socket) -> tuple[int, int] | None:
    """Account and group at the other end, as the kernel says; None of what is no unix socket."""
    if sock.family != socket.AF_UNIX:
        return None
    size = struct.calcsize("3I")
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    _pid, uid, gid = struct.unpack("3I", found)
    return uid, gid


def _size_of(request: h11.Request) -> int:
    return len(request.target) + sum(len(name) + len(value) for name, value in request.headers)


class _Receiver:
    """What an application hears: the request's body, and then that the client has gone."""

    def __init__(self, body: bytes, is_gone: asyncio.Event) -> None:
        self._body: bytes | None = body
        self._is_gone = is_gone

    async def receive(self) -> Event:
        """ASGI's ``receive``."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self._is_gone.wait()
        return {"type": "http.disconnect"}


logger = logging.getLogger(__name__)

ACCEPTED_MAX = 32
"""Connections taken in one turn of the loop."""

PENDING_MAX = 128

AGAIN_S = 0.2
"""Where a connection could not be taken, the next attempt is made so much later."""


class HttpPort:
    """An HTTP port, which accepts by itself: connections in their TLS handshake count like all
    others. It is told by its connections of themselves, and asked, for all of them together.
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
        """It is there, and was given room before (``HttpPort``)."""
        self._connections.add(connection)
        self._counters[ObserverCounter.CONNECTIONS] = len(self._connections)

    def closed(self, connection: HttpConnection) -> None:
        """It has ended."""
        self._connections.discard(connection)
        self._room.leave(connection)
        self._counters[ObserverCounter.CONNECTIONS] = len(self._connections)

    def begins(self, connection: HttpConnection, kind: RequestKind) -> bool:
        """Whether its answer may be made now; else ``go_on`` is called when it is its turn."""
        if not self._has_turn(connection, kind):
            self._waiting[connection] = kind
            return False
        self._counters[ObserverCounter.REQUESTS] += 1
        if _places_of(kind, self._limits) is not None:
            self._under_way[kind][connection.share] += 1
        return True

    def gives_up(self, connection: HttpConnection) -> None:
        """It waits for its turn no more."""
        self._waiting.pop(connection, None)

    def made(self, connection: HttpConnection, kind: RequestKind) -> None:
        """The answer to a request that had begun is made, or given up."""
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
        """An answer waits for its client to read; others may have to give way."""
        self._room.bound_unread(connection)

    def refused(self) -> None:
        """What came was too much, too slow or no HTTP."""
        self._counters[ObserverCounter.REFUSED] += 1

    def failed(self, error: Exception, method: str) -> None:
        """A request has met a bug."""
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
