"""Ways of a message between members, for ``bench.peer_transport``: today's, and own sockets.

Own sockets: one TCP connection a pair without Nagle's delay, in the poll of the process itself. A
frame is the sizes of its two parts (u32 each) and the parts. Who the other side is was settled when
the connection was made, so no preamble goes along with each message. Connections are made by
blocking calls, and nothing of a frame that the kernel does not take at once is kept: what a product
would need besides costs a message nothing.
"""

from __future__ import annotations

import importlib
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from struct import Struct
from typing import Any, Protocol

import zmq

from ledgermq.ipc.loop import Pollable
from ledgermq.model.config.settings import NodeSection, RaftSection, Settings, StoreSection
from ledgermq.model.ids import NodeId
from ledgermq.raft_node.peers.peer_group import PeerGroup
from ledgermq.raft_node.peers.peers import PeerMessage

_SIZES = Struct("<II")
_RECORD = Struct(">H")
_RECORD_MAX = 65_535
"""Of a transport message of Noise, its tag of 16 bytes included."""

_TAG = 16
READ_SIZE = 64 * 1024
"""More than 128 KiB of memory is asked of the kernel anew each time: 18 µs."""

SSL_READ_SIZE = 16 * 1024


class Way(Protocol):
    """What a member of the benchmark says and hears."""

    @property
    def sources(self) -> list[Pollable]:
        """What wakes the process."""
        ...

    def send(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        """Hand over a message; false when it is not taken."""
        ...

    def take(self, ready: Mapping[Pollable, int]) -> Iterator[PeerMessage]:
        """What has come, given which sources can be read."""
        ...

    def close(self) -> None:
        """Close what was opened."""
        ...


class TodaysWay:
    """The sockets of the raft process as it has them: ``PeerGroup``."""

    def __init__(self, self_id: NodeId, peers: Sequence[str], folder: Path, *, curve: bool) -> None:
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        settings = Settings(
            node=NodeSection(self_id=self_id, peers=tuple(peers)),
            store=StoreSection(path_root_dir=folder / f"store-{self_id}"),
            raft=RaftSection(curve=curve, keys_dir=folder / self_id if curve else None),
        )
        self.group = PeerGroup.of(settings, self._context)
        self.sources = self.group.sources
        self._wanted = frozenset(self.sources)

    def send(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        """See ``Way``."""
        return self.group.send(peer, parts)

    def take(self, ready: Mapping[Pollable, int]) -> Iterator[PeerMessage]:
        """See ``Way``."""
        if not self._wanted.isdisjoint(ready):
            while (message := self.group.receive()) is not None:
                yield message

    def close(self) -> None:
        """See ``Way``."""
        self.group.close()
        self._context.destroy(linger=0)


class Plain:
    """A connection in the clear; the others differ from it in what they make of bytes."""

    def __init__(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._buffer = bytearray()
        self.fileno = connection.fileno()

    def send(self, parts: Sequence[bytes]) -> bool:
        """Send a frame of one part or of two."""
        head = parts[0]
        entries = parts[1] if len(parts) > 1 else b""
        return self._write(b"".join((_SIZES.pack(len(head), len(entries)), head, entries)))

    def receive(self) -> Iterator[list[memoryview]]:
        """The frames that are whole by now."""
        data = self._read()
        if self._buffer:
            self._buffer += data
            data = bytes(self._buffer)
            self._buffer.clear()
        at = 0
        while len(data) - at >= _SIZES.size:
            head, entries = _SIZES.unpack_from(data, at)
            begin, end = at + _SIZES.size, at + _SIZES.size + head + entries
            if end > len(data):
                break
            view = memoryview(data)[begin:end]
            yield [view[:head], view[head:]] if entries else [view]
            at = end
        if at < len(data):
            self._buffer += data[at:]

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _write(self, data: bytes) -> bool:
        return self._socket.send(data) == len(data)

    def _read(self) -> bytes:
        return self._socket.recv(READ_SIZE)


class TlsInMemory(Plain):
    """TLS over bytes in memory: one call of the kernel for what may be many records."""

    def __init__(
        self,
        connection: socket.socket,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
    ) -> None:
        super().__init__(connection)
        self._tls, self._incoming, self._outgoing = tls, incoming, outgoing

    def _write(self, data: bytes) -> bool:
        self._tls.write(data)
        return super()._write(self._outgoing.read())

    def _read(self) -> bytes:
        self._incoming.write(super()._read())
        plain = b""
        # An exception where a record is not whole yet: seldom, and not with each message.
        while self._incoming.pending or self._tls.pending():
            try:
                plain += self._tls.read(SSL_READ_SIZE)
            except ssl.SSLWantReadError:
                break
        return plain


class TlsSocket(Plain):
    """TLS by a socket of Python's ``ssl``, which asks the kernel for each record twice."""

    def __init__(self, connection: ssl.SSLSocket) -> None:
        super().__init__(connection)
        self._tls = connection

    def _write(self, data: bytes) -> bool:
        return self._tls.send(data) == len(data)

    def _read(self) -> bytes:
        plain = b""
        try:
            plain = self._tls.recv(SSL_READ_SIZE)
            while self._tls.pending():
                plain += self._tls.recv(SSL_READ_SIZE)
        except ssl.SSLWantReadError:
            return plain
        return plain


class Noise(Plain):
    """Transport messages of Noise with AES-GCM, behind a handshake that is left out here."""

    def __init__(self, connection: socket.socket, sending: bytes, receiving: bytes) -> None:
        super().__init__(connection)
        aead: Any = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
        self._seal: Callable[[bytes, bytes, None], bytes] = aead.AESGCM(sending).encrypt
        self._open: Callable[[bytes, bytes, None], bytes] = aead.AESGCM(receiving).decrypt
        self._sent = self._received = 0
        self._sealed = b""

    def _write(self, data: bytes) -> bool:
        sealed = b""
        for at in range(0, len(data), _RECORD_MAX - _TAG):
            nonce = b"\0\0\0\0" + self._sent.to_bytes(8, "big")
            self._sent += 1
            record = self._seal(nonce, data[at : at + _RECORD_MAX - _TAG], None)
            sealed += _RECORD.pack(len(record)) + record
        return super()._write(sealed)

    def _read(self) -> bytes:
        sealed = self._sealed + super()._read()
        plain, at = b"", 0
        while len(sealed) - at >= _RECORD.size:
            begin = at + _RECORD.size
            end = begin + _RECORD.unpack_from(sealed, at)[0]
            if end > len(sealed):
                break
            nonce = b"\0\0\0\0" + self._received.to_bytes(8, "big")
            self._received += 1
            plain += self._open(nonce, sealed[begin:end], None)
            at = end
        self._sealed = sealed[at:]
        return plain


class OwnSockets:
    """One connection to each peer, in the poll of the process itself."""

    def __init__(self, streams: Mapping[NodeId, Plain]) -> None:
        self._streams = dict(streams)
        self._by_source: dict[Pollable, tuple[NodeId, Plain]] = {
            stream.fileno: (peer, stream) for peer, stream in streams.items()
        }
        self.sources: list[Pollable] = list(self._by_source)

    def send(self, peer: NodeId, parts: Sequence[bytes]) -> bool:
        """See ``Way``."""
        return self._streams[peer].send(parts)

    def take(self, ready: Mapping[Pollable, int]) -> Iterator[PeerMessage]:
        """See ``Way``."""
        for source, (peer, stream) in self._by_source.items():
            if source in ready:
                for parts in stream.receive():
                    yield PeerMessage(peer, parts)

    def close(self) -> None:
        """See ``Way``."""
        for stream in self._streams.values():
            stream.close()


def make_certificates(folder: Path, nodes: Sequence[NodeId]) -> None:
    """A key and a certificate that it signs itself for each member, by the program ``openssl``."""
    for node in nodes:
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
             "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", f"/CN={node}",
             "-keyout", folder / f"{node}.key", "-out", folder / f"{node}.crt"],
            check=True, capture_output=True,
        )  # fmt: skip


def tls_context(folder: Path, node: NodeId, peer: NodeId, *, is_server: bool) -> ssl.SSLContext:
    """TLS 1.3 that believes one certificate only: that of the peer."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_cert_chain(folder / f"{node}.crt", folder / f"{node}.key")
    context.load_verify_locations(folder / f"{peer}.crt")
    if is_server:
        context.num_tickets = 0
    return context


def secured(
    way: str,
    connection: socket.socket,
    folder: Path,
    node: NodeId,
    peer: NodeId,
    *,
    is_server: bool,
) -> Plain:
    """The connection with what ``way`` puts around its bytes."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if way == "plain":
        return Plain(connection)
    if way == "noise":
        keys = (folder / "noise").read_bytes()
        first, second = keys[:32], keys[32:]
        return Noise(connection, *((second, first) if is_server else (first, second)))
    context = tls_context(folder, node, peer, is_server=is_server)
    if way == "tls-socket":
        return TlsSocket(context.wrap_socket(connection, server_side=is_server))
    assert way == "tls", way
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_side=is_server)
    is_done = False
    while not is_done:
        try:
            tls.do_handshake()
            is_done = True
        except ssl.SSLWantReadError:
            pass
        connection.sendall(outgoing.read())
        if not is_done:
            incoming.write(connection.recv(READ_SIZE))
    return TlsInMemory(connection, tls, incoming, outgoing)
