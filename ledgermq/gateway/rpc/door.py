"""Door of gRPC clients: one port, plain and TLS told apart by the first byte, and its bounds.

gRPC's library serves a unix socket that only this process is to connect to; the door takes the
connections of clients, ends their TLS, and passes bytes on. What it connects with has a name, by
which a call's connection, and so its client's address, is found.

Its certificate is the operator's, or one that the process makes for itself: clients in Java and Go
speak TLS by default, and look at no certificate. So that they get in without any preparation, a
port that takes both kinds has a certificate also where the settings name none: it says nothing
about who answers, and keeps nobody out.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import socket
import ssl
import tempfile
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import NamedTuple, cast

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.x509.oid import NameOID

from ledgermq.formats.records.host_address import plain_address
from ledgermq.gateway.transport.tls_channel import HANDSHAKE
from ledgermq.hosts.address_share import share_of
from ledgermq.ipc.counters import Counts, GrpcCounter
from ledgermq.model.config.settings import GrpcSection, TlsMode
from ledgermq.model.errors import ConfigError
from ledgermq.process.one_loop import end_all
from ledgermq.sessions.keys.tls_files import server_context
from ledgermq.sessions.socket_watch import Strangers

_DAYS = 3_650
"""The process has another one at its next start."""


def make_context(settings: GrpcSection) -> ssl.SSLContext | None:
    """What connections need for TLS, read from the files now; None where nobody may speak it.

    Raises:
        ConfigError: a file cannot be read, or is not what it should be.
    """
    if settings.tls_mode is TlsMode.DISABLED:
        return None
    certificate, key = settings.tls_certificate_file, settings.tls_key_file
    if certificate is not None and key is not None:
        context = server_context(certificate, key, section="grpc")
    else:
        context = _own_context()
    context.set_alpn_protocols(["h2"])
    return context


def read_again(settings: GrpcSection, present: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """What connections need from now on; what they have at ``present`` if that cannot be read."""
    if settings.tls_certificate_file is None:
        return present
    try:
        return make_context(settings)
    except ConfigError as error:
        logger.warning("certificate for gRPC stays the one that was read before: %s", error)
        return present


def _own_context() -> ssl.SSLContext:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ledgermq")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=_DAYS))
        .sign(key, SHA256())
    )
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    # The library reads files alone; they are gone when it has.
    with tempfile.TemporaryDirectory(prefix="ledgermq-grpc-") as folder:
        paths = Path(folder) / "node.pem", Path(folder) / "node.key"
        for path, content in zip(paths, (made.public_bytes(Encoding.PEM), secret), strict=True):
            path.write_bytes(content)
        return server_context(*paths, section="grpc")


logger = logging.getLogger(__name__)

PREFACE = ord("P")
"""First byte of HTTP/2, of those who speak it without TLS."""

FIRST_BYTE_S = 10.0
HANDSHAKE_S = 10.0
INNER_S = 10.0
UNSENT_BYTES = 256 * 1024
"""For one client that does not read; then nothing more is read for it."""

KEEPALIVE_S = 60


class _Side(asyncio.Protocol):
    """One end of a connection that is passed on; what comes goes to the other end.

    Invariant: while the other end does not take more, nothing is read here.
    """

    def __init__(self) -> None:
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None
        self._early = b""
        self.gone = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """What comes before there is another end is kept, and no more is read."""
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(UNSENT_BYTES)

    def join(self, other: _Side) -> None:
        """Have both ends pass on what comes."""
        self.other, other.other = other, self
        for side in (self, other):
            assert side.transport is not None
            if side._early:
                side.data_received(side._early)
                side._early = b""
            side.transport.resume_reading()

    def data_received(self, data: bytes) -> None:
        """Pass it on."""
        if self.other is None:
            assert self.transport is not None
            self._early += data
            self.transport.pause_reading()
            return
        assert self.other.transport is not None
        self.other.transport.write(data)

    def eof_received(self) -> bool:
        """Both ends are closed, when the other one has got what came before."""
        return False

    def pause_writing(self) -> None:
        """This end takes no more for now."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        """It takes more."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the other end, too."""
        del exc
        if not self.gone.done():
            self.gone.set_result(None)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Passed(NamedTuple):
    host: str
    task: asyncio.Task[None] | None


class Door:
    """Owned by the process's loop."""

    def __init__(
        self,
        listener: socket.socket,
        inner: Path,
        counts: Counts,
        *,
        connections: int,
        per_address: int,
        tls: ssl.SSLContext | None,
        only_tls: bool,
    ) -> None:
        """Nobody is let in yet.

        Args:
            listener: non-blocking; the door closes it.
            inner: where gRPC's library listens.
            connections, per_address: bounds, of all and of one address.
            tls: of who speaks TLS; None: nobody may.
            only_tls: nobody may speak anything else.
        """
        self.tls = tls
        self._listener = listener
        self._inner = inner
        self._counts = counts
        self._connections, self._per_address = connections, per_address
        self._only_tls = only_tls
        self._passed: dict[str, _Passed] = {}
        self._strangers = Strangers()
        self._shares: Counter[str] = Counter()
        self._numbers = itertools.count(1)
        self._accepting: asyncio.Task[None] | None = None
        self._passing: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Let clients in."""
        self._accepting = asyncio.create_task(self._accept())

    async def close(self) -> None:
        """Let nobody in any more, and end all connections."""
        tasks = [*self._passing]
        if self._accepting is not None:
            tasks.append(self._accepting)
        await end_all(tasks)
        self._listener.close()

    def host_of(self, peer: str) -> str | None:
        """Address of the client whose call came from ``peer``, as gRPC's library names it; None:
        nobody that the door has let in. Its connection does not give way any more.
        """
        found = self._passed.get(peer)
        if found is None:
            return None
        self._strangers.discard(found.task)
        return found.host

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(self._listener)
            except OSError as error:
                # No descriptor is left, or the client has gone already.
                logger.debug("connection not taken: %s", error)
                await asyncio.sleep(0.05)
                continue
            host = plain_address(str(address[0]))
            share = share_of(host)
            is_full = not self._has_room(share)
            # This one is, or the one that gives way.
            self._counts[GrpcCounter.REFUSED] += is_full
            if is_full and not self._give_way(share):
                client.close()
                continue
            # At once: those that wait to be taken are, without any turn of others between.
            self._shares[share] += 1
            self._counts[GrpcCounter.CONNECTIONS] += 1
            task = asyncio.create_task(self._serve(client, host))
            self._passing.add(task)
            # It may have to give way before it has begun.
            task.add_done_callback(partial(self._forget, client, share))
            self._strangers.add(share, task, task.cancel)
            if is_full:
                # Who gives way is gone before the next one is taken.
                await asyncio.sleep(0)

    def _give_way(self, share: str) -> bool:
        """End a connection that keeps the place for nothing, of the same share first: who connects
        again and again is to push out himself. Whether there was one.
        """
        has_share = self._shares[share] < self._per_address
        return self._strangers.give_way(share) or (has_share and self._strangers.give_way())

    def _has_room(self, share: str) -> bool:
        return len(self._passing) < self._connections and self._shares[share] < self._per_address

    def _forget(self, client: socket.socket, share: str, task: asyncio.Task[None]) -> None:
        self._passing.discard(task)
        self._strangers.discard(task)
        client.close()
        self._counts[GrpcCounter.CONNECTIONS] -= 1
        self._shares[share] -= 1
        if not self._shares[share]:
            del self._shares[share]

    async def _serve(self, client: socket.socket, host: str) -> None:
        try:
            await self._pass(client, host)
        except (OSError, ssl.SSLError, TimeoutError) as error:
            self._counts[GrpcCounter.REFUSED] += 1
            logger.debug("connection of a gRPC client ended: peer=%s: %s", host, error)

    async def _pass(self, client: socket.socket, host: str) -> None:
        loop = asyncio.get_running_loop()
        client.setblocking(False)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
        async with asyncio.timeout(FIRST_BYTE_S):
            first = await _peek(client)
        is_tls = first == HANDSHAKE
        if not (self.tls is not None if is_tls else first == PREFACE and not self._only_tls):
            self._counts[GrpcCounter.REFUSED] += 1
            return
        _, outer = await loop.connect_accepted_socket(
            _Side,
            client,
            ssl=self.tls if is_tls else None,
            ssl_handshake_timeout=HANDSHAKE_S if is_tls else None,
        )
        assert outer.transport is not None
        name = f"ledgermq-grpc-{os.getpid()}-{next(self._numbers)}"
        peer = f"unix-abstract:{name}"
        try:
            self._passed[peer] = _Passed(host, asyncio.current_task())
            async with asyncio.timeout(INNER_S):
                inner = await self._connect(name)
            outer.join(inner)
            await asyncio.wait({outer.gone, inner.gone}, return_when=asyncio.FIRST_COMPLETED)
            # What is on its way to the client is written, if it reads.
            with suppress(TimeoutError):
                async with asyncio.timeout(FIRST_BYTE_S):
                    await outer.gone
        finally:
            outer.transport.abort()
            if outer.other is not None and outer.other.transport is not None:
                outer.other.transport.abort()
            del self._passed[peer]

    async def _connect(self, name: str) -> _Side:
        loop = asyncio.get_running_loop()
        inner = socket.socket(socket.AF_UNIX)
        try:
            inner.setblocking(False)
            inner.bind(f"\0{name}")
            await loop.sock_connect(inner, str(self._inner))
            _, side = await loop.create_unix_connection(_Side, sock=inner)
        except BaseException:
            inner.close()
            raise
        return side


async def _peek(client: socket.socket) -> int:
    """The first byte that comes, which stays to be read; -1: the client has gone."""
    loop = asyncio.get_running_loop()
    is_there: asyncio.Future[None] = loop.create_future()
    descriptor = client.fileno()

    def note() -> None:
        if not is_there.done():
            is_there.set_result(None)

    loop.add_reader(descriptor, note)
    try:
        await is_there
    finally:
        loop.remove_reader(descriptor)
    first = client.recv(1, socket.MSG_PEEK)
    return first[0] if first else -1
