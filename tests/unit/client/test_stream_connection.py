"""The stream to the writer: whole messages of any size, its end, and older nodes without one."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from ledgermq.client.core.connection import Context, Part
from ledgermq.client.core.link import Link
from ledgermq.client.stream_connection import SUFFIX, StreamConnection, open_stream
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.wire.byte_stream import MessageReader, message_head
from tests.suite.patience import PATIENCE_S


class Writer:
    """The other end, which a test plays."""

    def __init__(self, path: Path) -> None:
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path) + SUFFIX)
        self.listener.listen()
        self.stream = self.listener
        self.reader = MessageReader(1 << 30)

    def accept(self) -> None:
        self.stream, _ = self.listener.accept()
        self.stream.setblocking(False)

    def read(self) -> None:
        try:
            self.reader.feed(self.stream.recv(1 << 16))
        except BlockingIOError:
            return

    def close(self) -> None:
        self.stream.close()
        self.listener.close()


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Writer]:
    made = Writer(tmp_path / "produce")
    yield made
    made.close()


@pytest.fixture
def connection(tmp_path: Path, writer: Writer) -> Iterator[StreamConnection]:
    made = open_stream(str(tmp_path / "produce"))
    assert made is not None
    writer.accept()
    yield made
    made.close(0)


def wait(connection: StreamConnection) -> None:
    (descriptor,) = connection.descriptors
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    assert poll.poll(PATIENCE_S * 1_000), "nothing has come"


def received(connection: StreamConnection) -> list[Part]:
    while (parts := connection.receive()) is None:
        wait(connection)
    return parts


def test_what_the_kernel_does_not_take_at_once_leaves_later_and_in_order(
    writer: Writer, connection: StreamConnection
) -> None:
    messages = [[b"%d" % number, bytes([number]) * 700_000] for number in range(8)]
    for parts in messages:
        assert connection.send(parts)
    while len(writer.reader.messages) < len(messages):
        writer.read()
        assert connection.receive() is None

    assert list(writer.reader.messages) == messages
    assert connection.send([b"after"])


def test_messages_before_the_end_are_received_and_then_the_end_is_known(
    writer: Writer, connection: StreamConnection
) -> None:
    writer.stream.sendall(message_head([b"a", b"b"])[0] + b"ab" + message_head([b"c"])[0] + b"c")
    writer.stream.close()

    assert received(connection) == [b"a", b"b"]
    assert not connection.has_ended(0.0)
    assert received(connection) == [b"c"]
    assert connection.receive() is None
    assert connection.has_ended(0.0)
    assert not connection.send([b"too late"])


def test_who_sends_what_is_no_message_is_not_understood(
    writer: Writer, connection: StreamConnection
) -> None:
    writer.stream.sendall(b"\xff" * 8)
    wait(connection)

    with pytest.raises(ProtocolError):
        connection.receive()


def test_an_older_node_is_spoken_to_by_zeromq_whatever_a_newer_one_has_left(
    tmp_path: Path,
) -> None:
    path = tmp_path / "produce"
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(f"ipc://{path}")

        assert open_stream(str(path)) is None
        Writer(path).close()
        assert Path(str(path) + SUFFIX).exists()
        assert open_stream(str(path)) is None


def test_where_nobody_listens_nothing_is_decided(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        open_stream(str(tmp_path / "produce"))


def test_where_the_path_is_too_long_for_a_stream_there_is_none(tmp_path: Path) -> None:
    assert open_stream(str(tmp_path / ("x" * 107))) is None


def forked(found: Callable[[], bool]) -> bool:
    """What a child finds."""
    pid = os.fork()
    if not pid:
        status = 1
        try:
            status = 0 if found() else 1
        finally:
            # Whatever it raised: it is no second process of pytest.
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_forked_child_leaves_the_connection_to_its_parent(
    connection: StreamConnection, writer: Writer
) -> None:
    writer.stream.sendall(message_head([b"answer"])[0] + b"answer")

    def leaves() -> bool:
        has_sent = connection.send([b"child's"])
        connection.close(0)
        return connection.has_ended(0.0) and not has_sent and connection.receive() is None

    assert forked(leaves)
    assert connection.send([b"parent's"])
    writer.read()
    assert list(writer.reader.messages) == [[b"parent's"]]
    assert connection.receive() == [b"answer"]
    assert not connection.has_ended(0.0)


def test_a_forked_child_opens_no_session_in_its_parents_name(
    tmp_path: Path, writer: Writer
) -> None:
    context: Context = zmq.Context.instance()
    link = Link(context, f"ipc://{tmp_path}/produce", client="c", is_writers=True)
    link.advance(1.0)

    def refuses() -> bool:
        link.advance(2.0)
        link.advance(3.0)
        return isinstance(link.failure, ConfigError) and not link.descriptors

    assert forked(refuses)
    link.advance(2.0)
    assert link.failure is None
    assert link.descriptors
    link.close()
