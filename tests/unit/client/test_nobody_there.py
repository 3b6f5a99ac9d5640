"""Clients that reach nobody at first: they say who is there instead, and wait where a node may be.

No test asks how long that takes: each gives the client more time than its guard has patience.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import zmq

from ledgermq.client import (
    Admin,
    Consumer,
    GroupConsumer,
    Producer,
    ProducerOptions,
    Requester,
    TransactionalProducer,
)
from ledgermq.client.aio import (
    AsyncAdmin,
    AsyncConsumer,
    AsyncGroupConsumer,
    AsyncProducer,
    AsyncRequester,
    AsyncTransactionalProducer,
)
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.formats.first_bytes import Spoken, recognise
from ledgermq.model.errors import (
    ConnectDeniedError,
    LedgerError,
    NameUnknownError,
    NotLeaderError,
    StrangerError,
    TopicUnknownError,
    UnreachableError,
)
from ledgermq.wire.session import FOLLOWER, Standing
from tests.suite.patience import PATIENCE_S
from tests.unit.client.peer import Peer

LONG_S = 10 * PATIENCE_S
"""What a client would wait that does not notice: longer than a test may take."""

SENDS = ProducerOptions(timeout_s=LONG_S)
READS = ConsumerOptions(timeout_s=LONG_S)


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def send(address: str, timeout_s: float = LONG_S) -> object:
    with Producer(address, options=ProducerOptions(timeout_s=timeout_s)) as producer:
        return producer.send("T", b"x").result()


def poll_member(address: str) -> object:
    with GroupConsumer(address, group="g", options=READS) as member:
        member.subscribe("T")
        return member.poll(LONG_S)


def poll(address: str) -> object:
    with Consumer(address, topic="T", options=READS) as consumer:
        return consumer.poll(LONG_S)


def begin(address: str) -> object:
    with TransactionalProducer(address, group="g", options=SENDS) as producer:
        return producer.transaction()


def ask(address: str) -> object:
    with Requester(address, options=SENDS) as requester:
        return requester.request("T", b"x", timeout=LONG_S)


def administer(address: str) -> object:
    with Admin(address, timeout_s=LONG_S) as admin:
        return admin.topics()


@pytest.mark.parametrize("use", [send, poll, poll_member, begin, ask, administer])
def test_each_client_says_that_nobody_listens(use: Callable[[str], object]) -> None:
    address = free_address()

    with pytest.raises(UnreachableError, match="connection refused") as told:
        use(address)
    assert told.value.retriable and told.value.details["endpoint"] == address


async def send_in_a_loop(address: str) -> object:
    async with AsyncProducer(address, options=SENDS) as producer:
        return await producer.send("T", b"x")


async def poll_in_a_loop(address: str) -> object:
    async with AsyncConsumer(address, topic="T", options=READS) as consumer:
        return await consumer.poll(LONG_S)


async def poll_member_in_a_loop(address: str) -> object:
    member = AsyncGroupConsumer(address, group="g", options=READS)
    member.subscribe("T")
    async with member:
        return await member.poll(LONG_S)


async def begin_in_a_loop(address: str) -> object:
    producer = AsyncTransactionalProducer(address, group="g", options=SENDS)
    async with producer, producer.transaction() as transaction:
        return await transaction.send("T", b"x")


async def ask_in_a_loop(address: str) -> object:
    async with AsyncRequester(address, options=SENDS) as requester:
        return await requester.request("T", b"x", timeout=LONG_S)


async def administer_in_a_loop(address: str) -> object:
    async with AsyncAdmin(address, timeout_s=LONG_S) as admin:
        return await admin.topics()


@pytest.mark.parametrize("use", [
    send_in_a_loop, poll_in_a_loop, poll_member_in_a_loop, begin_in_a_loop, ask_in_a_loop,
    administer_in_a_loop,
])  # fmt: skip
def test_each_client_of_a_loop_says_so(use: Callable[[str], Awaitable[object]]) -> None:
    async def used() -> object:
        return await use(free_address())

    with pytest.raises(UnreachableError, match="connection refused"):
        asyncio.run(used())


def test_a_folder_without_sockets_and_a_socket_that_nobody_has_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match=r"no such socket.*No such file"):
        send(f"ipc://{tmp_path}/nothing")
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(tmp_path / "consume"))
    with pytest.raises(UnreachableError, match="nobody listens"):
        send(f"ipc://{tmp_path}")


def test_a_name_without_addresses_is_named() -> None:
    with pytest.raises(NameUnknownError, match=r"not resolved.*no\.such\.host\.invalid"):
        send("tcp://no.such.host.invalid:1")


@pytest.mark.skipif(os.geteuid() != 0, reason="another account needs root")
def test_who_may_not_connect_is_told_which_group_to_join() -> None:
    program = (
        "import os, sys\n"
        "from ledgermq.client import Admin\n"
        "os.setgroups([]); os.setgid(65534); os.setuid(65534)\n"
        "Admin(sys.argv[1], timeout_s=600).topics()\n"
    )
    peer = Peer()
    try:
        os.chown(peer.directory, 0, os.getgid())
        for mode, said in ((0o750, "usermod -aG root nobody"), (0o700, "its owner alone may")):
            peer.directory.chmod(mode)
            told = subprocess.run(
                [sys.executable, "-c", program, peer.address],
                capture_output=True, text=True, timeout=PATIENCE_S, check=False,
            )  # fmt: skip
            assert ConnectDeniedError.__name__ in told.stderr and said in told.stderr, told.stderr
    finally:
        peer.close()


class Page(BaseHTTPRequestHandler):
    """Says ``HTTP/1.0`` of what it cannot read."""

    def log_message(self, *_: object) -> None:
        """Nothing is printed."""


@contextmanager
def http_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def speaking(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """A server that does ``serve`` with each connection, one after the other."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        ends = threading.Event()

        def run() -> None:
            while not ends.is_set():
                connection, _ = server.accept()
                with connection:
                    try:
                        serve(connection)
                    except OSError:
                        continue

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{server.getsockname()[1]}"
        finally:
            ends.set()
            socket.create_connection(server.getsockname()).close()
            thread.join()


def settings_first(connection: socket.socket) -> None:
    """A server of HTTP/2 begins with its settings, and waits for the client's preface."""
    connection.sendall(bytes.fromhex("000012040000000000") + bytes(18))
    connection.recv(1)


def remoting(connection: socket.socket) -> None:
    head = connection.recv(8, socket.MSG_WAITALL)
    size = int.from_bytes(head[:4], "big") - 4
    # What ZeroMQ says is no size that remoting allows.
    if 0 < size < 1 << 24:
        connection.recv(size, socket.MSG_WAITALL)
        header = b'{"code":17,"opaque":1}'
        lengths = (len(header) + 4).to_bytes(4, "big") + len(header).to_bytes(4, "big")
        connection.sendall(lengths + header)


def tls_only(connection: socket.socket) -> None:
    """As OpenSSL does, it hangs up on what is no TLS without a word."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.wrap_socket(connection, server_side=True)


def greeting(connection: socket.socket) -> None:
    connection.sendall(b"220 mail.example ESMTP\r\n")
    connection.recv(1)


STRANGERS: list[tuple[Callable[[], AbstractContextManager[str]], str]] = [
    (http_server, "speaks HTTP;"),
    (lambda: speaking(settings_first), "gRPC"),
    (lambda: speaking(remoting), "RocketMQ's remoting protocol; .* listen.consume"),
    (lambda: speaking(tls_only), "speaks TLS"),
    (lambda: speaking(greeting), "another protocol.*220 mail"),
]


@pytest.mark.parametrize(("serve", "said"), STRANGERS)
def test_a_stranger_is_named(serve: Callable[[], AbstractContextManager[str]], said: str) -> None:
    with serve() as address:
        with pytest.raises(StrangerError, match=said) as told:
            send(address)
        assert not told.value.retriable


def test_another_service_of_zeromq_is_named() -> None:
    begun: Future[int] = Future()
    ends = threading.Event()

    def serve() -> None:
        with zmq.Context() as context, context.socket(zmq.ROUTER) as service:
            service.linger = 0
            begun.set_result(service.bind_to_random_port("tcp://127.0.0.1"))
            while not ends.is_set():
                if service.poll(20):
                    service.send_multipart([service.recv_multipart()[0], b"what?"])

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with pytest.raises(StrangerError, match="speaks ZeroMQ"):
            administer(f"tcp://127.0.0.1:{begun.result(PATIENCE_S)}")
    finally:
        ends.set()
        thread.join()


def test_who_says_nothing_may_be_a_node_and_is_waited_for() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=8) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(NotLeaderError, match="no node answers") as told:
            send(address, 0.4)
        assert not isinstance(told.value, UnreachableError)


def test_one_address_of_several_that_is_taken_is_enough_to_wait_for(peer: Peer) -> None:
    peer.standing = Standing(FOLLOWER, 1, "")
    with pytest.raises(NotLeaderError, match="no node leads") as told:
        send(f"{free_address()},{peer.address}", 1.5)
    assert not isinstance(told.value, UnreachableError)


def test_all_addresses_are_named_where_nobody_is_at_any(tmp_path: Path) -> None:
    with pytest.raises(UnreachableError, match=r"connection refused.*no such socket"):
        send(f"{free_address()},ipc://{tmp_path}/nothing")
    with speaking(greeting) as mail, pytest.raises(StrangerError, match=r"others=.*refused"):
        send(f"{free_address()},{mail}")


def test_a_client_that_was_told_so_uses_the_node_that_begins_later() -> None:
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        port = reserved.getsockname()[1]
    with Admin(f"tcp://127.0.0.1:{port}", timeout_s=LONG_S) as admin:
        with pytest.raises(UnreachableError):
            admin.lag("g")
        peer = Peer(over_tcp=True, ports=("*", str(port)))
        try:
            told: list[LedgerError] = []
            while not told or isinstance(told[-1], UnreachableError):
                try:
                    admin.lag("g")
                except LedgerError as error:
                    told.append(error)
            assert isinstance(told[-1], TopicUnknownError), "the peer was asked"
        finally:
            peer.close()


def test_a_node_that_has_answered_is_waited_for(peer: Peer) -> None:
    with Producer(peer.address, options=ProducerOptions(timeout_s=1.5)) as producer:
        producer.send("T", b"x").result()
        peer.stop_listening()
        with pytest.raises(LedgerError) as told:
            producer.send("T", b"y").result()
        assert not isinstance(told.value, UnreachableError)


@pytest.mark.parametrize(("first", "spoken"), [
    (b"PRI * HTTP/2.0", Spoken.GRPC),
    (bytes.fromhex("000000040000000000"), Spoken.GRPC),
    (b"GET / HTTP/1.1", Spoken.HTTP),
    (b"HTTP/1.1 400", Spoken.HTTP),
    (bytes.fromhex("1603010200"), Spoken.TLS),
    (bytes.fromhex("15030300020228"), Spoken.TLS),
    (b"\xff" + bytes(7) + b"\x01\x7f", Spoken.ZEROMQ),
    (b"\x00\x00\x00\x1a\x00\x00\x00\x16{", Spoken.REMOTING),
    (b"\x00\x00\x00\x1a\x01\x00\x00\x16\x00", Spoken.REMOTING),
    (b"", Spoken.UNKNOWN),
    (b"SSH-2.0-OpenSSH", Spoken.UNKNOWN),
    (bytes(16), Spoken.UNKNOWN),
])  # fmt: skip
def test_first_bytes_are_recognised(first: bytes, spoken: Spoken) -> None:
    assert recognise(first) is spoken


def test_a_message_that_was_not_sent_says_that_nothing_is_stored_and_a_reader_does_not(
    peer: Peer,
) -> None:
    peer.silent = True
    told: list[str] = []
    uses: list[Callable[[], Any]] = [
        lambda: send(f"ipc://{peer.directory}", 0.2),
        lambda: Admin(peer.address, timeout_s=0.2).topics(),
    ]
    peer.stop_listening()
    for use in uses:
        with pytest.raises(LedgerError) as found:
            use()
        told.append(str(found.value))
    assert not any(re.search("nothing was stored", text, re.IGNORECASE) for text in told), told
