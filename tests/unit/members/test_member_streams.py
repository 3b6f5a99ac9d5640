"""Streams of members, compiled and plain: each says to each the same, and believes the same."""

from __future__ import annotations

import os
import random
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import product
from pathlib import Path
from struct import pack
from typing import Any

import pytest

from ledgermq.members import direct_connection, plain_stream
from ledgermq.members.direct_connection import (
    PART_SIZE_MAX,
    RAFT_PROTOCOL,
    UNSENT_MAX,
    WRITER_PROTOCOL,
    DirectConnection,
)
from tests.certificates import make_certificate
from tests.process.conftest import wait_until

PLAIN = "plain"
COMPILED = "compiled"
FORMS = [PLAIN, COMPILED] if direct_connection.IS_COMPILED else [PLAIN]
NO_CHECK_TIME = 0x200000


def form_of(name: str) -> tuple[Callable[..., Any], type[Any]]:
    """How a form makes contexts, and its connections."""
    if name == COMPILED:
        return direct_connection.tls_context, DirectConnection
    methods = {
        key: value
        for key, value in vars(DirectConnection).items()
        if key not in ("__dict__", "__weakref__", "__init__")
    }

    def init(self: Any, own: socket.socket, context: Any, poll: Any, *, is_server: bool) -> None:
        plain_stream.PlainStream.__init__(
            self, own, context, is_server=is_server, unsent_max=UNSENT_MAX, part_max=PART_SIZE_MAX
        )
        self.peer, self._socket, self._poll = None, own, poll
        poll.register(own.fileno(), select.EPOLLIN | (0 if is_server else select.EPOLLOUT))

    made = type("PlainConnection", (plain_stream.PlainStream,), {**methods, "__init__": init})

    def context(pem: bytes, believed: Any, protocols: Any, *, is_server: bool) -> Any:
        return plain_stream.plain_context(
            pem, believed, protocols, is_server=is_server, verify_flags=NO_CHECK_TIME
        )

    return context, made


class Certificates:
    """Of two sides and of a stranger: what each shows, with its key, and what that is believed by.

    Attributes:
        pem, der: by name.
    """

    def __init__(self, folder: Path) -> None:
        self.pem: dict[str, bytes] = {}
        self.der: dict[str, bytes] = {}
        for name in ("server", "client", "stranger"):
            (folder / name).mkdir()
            made, key = make_certificate(folder / name)
            self.pem[name] = made.read_bytes() + key.read_bytes()
            self.der[name] = ssl.PEM_cert_to_DER_cert(made.read_text())


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


class Pair:
    """A server and a client over a socket, each of its form."""

    def __init__(
        self,
        certificates: Certificates,
        forms: tuple[str, str],
        *,
        shows: str = "client",
        offers: tuple[str, ...] = (WRITER_PROTOCOL,),
        room: int = 0,
    ) -> None:
        self.poll = select.epoll()
        raws = socket.socketpair()
        for raw in raws:
            raw.setblocking(False)
            if room:
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, room)
        (context, self_type), (other_context, other_type) = map(form_of, forms)
        der = certificates.der
        server = context(
            certificates.pem["server"], [der["client"]], (WRITER_PROTOCOL,), is_server=True
        )
        client = other_context(certificates.pem[shows], [der["server"]], offers, is_server=False)
        self.server = _made(self_type, raws[0], server, self.poll, is_server=True)
        self.client = _made(other_type, raws[1], client, self.poll, is_server=False)
        self.got: dict[int, list[list[bytes]]] = {one.descriptor: [] for one in self.both}

    @property
    def both(self) -> tuple[Any, Any]:
        return self.server, self.client

    def pump(self) -> bool:
        """Have both go on; whether one has moved."""
        events = dict(self.poll.poll(0))
        for one in self.both:
            bits = events.get(one.descriptor, 0)
            if bits & select.EPOLLOUT and not one.failure:
                one.go_on()
            if bits & ~select.EPOLLOUT and not one.failure:
                found = one.receive()
                self.got[one.descriptor] += [[bytes(part) for part in parts] for parts in found]
        return bool(events)

    def open(self) -> Pair:
        wait_until(lambda: self.pump() and all(one.is_open for one in self.both), "both open")
        return self

    def close(self) -> None:
        for one in self.both:
            one.end("the test is over")
        self.poll.close()


def _made(kind: type[Any], raw: socket.socket, *given: Any, **more: Any) -> Any:
    connection = kind.__new__(kind)
    keepalive = direct_connection._KEEPALIVE
    try:
        # A socket of one machine knows nothing of TCP.
        direct_connection._KEEPALIVE = ()
        connection.__init__(raw, *given, **more)
    finally:
        direct_connection._KEEPALIVE = keepalive
    return connection


@pytest.fixture(params=list(product(FORMS, FORMS)), ids="-".join)
def pair(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[Pair]:
    with closing(Pair(certificates, request.param, room=64 * 1024)) as made:
        yield made.open()


def test_both_see_who_is_there(pair: Pair, certificates: Certificates) -> None:
    assert pair.server.certificate == certificates.der["client"]
    assert pair.client.certificate == certificates.der["server"]
    assert pair.server.protocol == pair.client.protocol == WRITER_PROTOCOL


def test_messages_of_all_sizes_come_as_they_were_sent(pair: Pair) -> None:
    edges = [1, 2, 8_191, 8_192, 16_375, 16_376, 16_377, 16_384, 65_536, 300_000, 2_000_000]
    chance = random.Random(46)
    sent: list[list[bytes]] = []
    for size in [*edges, *(chance.randrange(1, 40_000) for _ in range(60))]:
        first, second = chance.randbytes(size), chance.randbytes(chance.choice([0, 1, size]))
        for parts in ([first], [first, second]):
            for one in pair.both:
                # What is under way is bounded, and goes on when the other side has taken some.
                wait_until(lambda one=one, parts=parts: one.send(*parts) or pair.pump() is None,
                           "room for a message")  # fmt: skip
            sent.append(parts)
    wait_until(
        lambda: (
            pair.pump() is not None
            and all(len(pair.got[one.descriptor]) == len(sent) for one in pair.both)
        ),
        "all messages",
    )
    for one in pair.both:
        assert pair.got[one.descriptor] == sent
        assert not one.failure


def test_what_waits_to_leave_is_bounded(pair: Pair) -> None:
    body = bytes(1024 * 1024)
    taken = 0
    while pair.server.send(b"head", body):
        taken += 1
    assert UNSENT_MAX // len(body) <= taken <= UNSENT_MAX // len(body) + 2
    assert not pair.server.failure
    wait_until(
        lambda: pair.pump() is not None and len(pair.got[pair.client.descriptor]) == taken,
        "all that was taken",
    )
    assert pair.server.send(b"head", body)


@pytest.mark.parametrize(
    "head",
    [pack("<II", 0, 0), pack("<II", PART_SIZE_MAX + 1, 0), pack("<II", 1, PART_SIZE_MAX + 2)],
)
def test_a_size_that_there_is_not_ends_the_connection(
    certificates: Certificates, form: str, head: bytes
) -> None:
    with closing(Pair(certificates, (form, PLAIN))) as pair:
        pair.open()
        pair.client._tls.write(head + b"x")
        pair.client.flush()
        wait_until(lambda: pair.pump() is not None and bool(pair.server.failure), "the end")
        assert "part of no size" in pair.server.failure
        assert not pair.got[pair.server.descriptor]


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("other", FORMS)
def test_a_stranger_is_not_let_in(certificates: Certificates, form: str, other: str) -> None:
    with closing(Pair(certificates, (form, other), shows="stranger")) as pair:
        wait_until(lambda: pair.pump() is not None and bool(pair.server.failure), "a refusal")
        assert not pair.server.is_open
        assert not pair.got[pair.server.descriptor]


def test_another_protocol_is_no_protocol(certificates: Certificates, form: str) -> None:
    with closing(Pair(certificates, (form, PLAIN), offers=(RAFT_PROTOCOL,))) as pair:
        pair.open()
        assert pair.server.protocol == ""


def test_nothing_older_than_tls_1_3_is_taken(certificates: Certificates, form: str) -> None:
    make, kind = form_of(form)
    context = make(certificates.pem["server"], [certificates.der["client"]], (), is_server=True)
    older = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    older.check_hostname, older.verify_mode = False, ssl.CERT_NONE
    older.maximum_version = ssl.TLSVersion.TLSv1_2
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = older.wrap_bio(incoming, outgoing)
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    raws = socket.socketpair()
    raws[0].setblocking(False)
    with closing(raws[1]), closing(select.epoll()) as poll:
        server = _made(kind, raws[0], context, poll, is_server=True)
        raws[1].sendall(outgoing.read())
        server.receive()
        assert server.failure and not server.is_open


def test_bytes_that_are_no_tls_end_the_connection(certificates: Certificates, form: str) -> None:
    with closing(Pair(certificates, (form, PLAIN))) as pair:
        pair.open()
        os.write(pair.client.descriptor, b"\x17\x03\x03\x00\x20" + bytes(32))
        wait_until(lambda: pair.pump() is not None and bool(pair.server.failure), "the end")
        assert not pair.got[pair.server.descriptor]


def test_who_has_gone_is_noticed(pair: Pair) -> None:
    pair.client.end("it goes")
    wait_until(lambda: pair.pump() is not None and bool(pair.server.failure), "the end")
    assert pair.server.failure == "closed by the other side"
    assert not pair.server.send(b"more")


@pytest.mark.parametrize("pem", [b"", b"no certificate", b"-----BEGIN CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_told(certificates: Certificates, form: str, pem: bytes) -> None:
    make, _ = form_of(form)
    with pytest.raises(OSError, match=r"."):
        make(pem, [], (), is_server=True)
    with pytest.raises(OSError, match=r"."):
        make(certificates.pem["server"], [b"no certificate"], (), is_server=True)
