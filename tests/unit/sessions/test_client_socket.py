"""Messages with very many parts: some of them a turn, and their sender's connection ends."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from ledgermq.model.config.settings import AccessSection
from ledgermq.rules.access.access import UserTable
from ledgermq.sessions.client_rights import AccessGate
from ledgermq.sessions.client_socket import (
    PARTS_MAX,
    PARTS_SKIPPED_MAX,
    RouterSocket,
    bind_client_socket,
)
from ledgermq.sessions.socket_watch import SocketWatch, WatchLimits
from tests.process.raw_zmtp import ZmtpClient
from tests.suite.patience import PATIENCE_S

TURNS = 5
EMPTY_PARTS = [b""] * (PARTS_MAX + TURNS * PARTS_SKIPPED_MAX + 1)


GATE = AccessGate(AccessSection(enabled=True), UserTable())
"""It is looked with each message who has sent it."""


class Router:
    """A node's socket, and how many connections it has ended."""

    def __init__(self, folder: Path) -> None:
        self.ended = 0
        self.context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self.watch = watch = SocketWatch(
            WatchLimits(1 << 30, 100, 100, 1 << 30), is_sealed=False, note_ended=self._note
        )
        self.raw = bind_client_socket(
            self.context,
            folder / "produce",
            "tcp://127.0.0.1:*",
            mode=0o600,
            message_size_max=1 << 20,
            watch=watch,
        )
        self.socket = RouterSocket(self.raw, guard=None, gate=GATE, watch=watch)
        last = self.raw.getsockopt(zmq.LAST_ENDPOINT)
        assert isinstance(last, bytes)
        self.port = int(last.rpartition(b":")[2].rstrip(b"\0"))

    def _note(self) -> None:
        self.ended += 1

    def wait(self) -> None:
        assert self.raw.poll(int(PATIENCE_S * 1_000)), "nothing has come"

    def close(self) -> None:
        self.socket.close()
        self.context.term()


@pytest.fixture
def router(tmp_path: Path) -> Iterator[Router]:
    made = Router(tmp_path)
    yield made
    made.close()


def connected(router: Router) -> ZmtpClient:
    return ZmtpClient(("127.0.0.1", router.port))


def test_parts_that_no_message_has_so_many_are_let_go_of_a_bounded_number_a_turn(
    router: Router,
) -> None:
    # One that tells its descriptor, as version 3 of the protocol does.
    greedy = router.context.socket(zmq.DEALER)
    greedy.setsockopt(zmq.RECONNECT_IVL, -1)
    events = greedy.get_monitor_socket(zmq.EVENT_DISCONNECTED)
    greedy.connect(f"tcp://127.0.0.1:{router.port}")
    honest = connected(router)
    greedy.send_multipart(EMPTY_PARTS)
    router.wait()

    turns = 0
    while (parts := router.socket.receive()) is None:
        turns += 1
        # There is more to read at once: whoever polls is not kept waiting for it.
        assert router.raw.getsockopt(zmq.EVENTS) == zmq.POLLIN | zmq.POLLOUT

    assert turns == TURNS
    assert len(parts) == PARTS_MAX + 1
    assert router.ended == 1
    assert events.poll(int(PATIENCE_S * 1_000)), "not disconnected"
    honest.send([b"one", b"two"])
    router.wait()
    following = router.socket.receive()
    assert following is not None
    assert following[1:] == [b"one", b"two"]
    assert router.ended == 1
    greedy.disable_monitor()
    greedy.close(0)
    honest.close()


def test_a_connection_that_zeromq_has_not_closed_yet_is_not_ended_and_counted_again(
    router: Router,
) -> None:
    greedy = router.context.socket(zmq.DEALER)
    greedy.setsockopt(zmq.RECONNECT_IVL, -1)
    greedy.connect(f"tcp://127.0.0.1:{router.port}")
    greedy.send(b"one")
    router.wait()
    message = router.raw.recv_multipart(copy=False)[-1]
    assert isinstance(message, zmq.Frame)
    fd = message.get(zmq.SRCFD)
    assert isinstance(fd, int)

    router.watch.end_sender(b"nobody", fd)
    router.watch.end_sender(b"nobody", fd)

    assert router.ended == 1
    greedy.close(0)


def test_a_message_of_a_few_parts_too_many_is_given_to_be_refused(router: Router) -> None:
    client = connected(router)

    client.send([b"%d" % number for number in range(PARTS_SKIPPED_MAX)])
    client.send([b"next"])
    router.wait()

    parts = router.socket.receive()
    assert parts is not None
    assert parts[1:] == [b"%d" % number for number in range(PARTS_MAX)]
    router.wait()
    following = router.socket.receive()
    assert following is not None
    assert following[1:] == [b"next"]
    assert router.ended == 0
    client.close()


def test_who_connects_from_another_host_wakes_the_process_and_is_looked_after_from_then_on(
    router: Router,
) -> None:
    (heard,) = router.socket.guards
    assert isinstance(heard, zmq.Socket)
    assert not router.socket.is_watched

    # It says nothing: what has no end wakes nobody.
    client = connected(router)
    assert heard.poll(int(PATIENCE_S * 1_000)), "nothing was heard"
    router.socket.let_in()

    assert router.socket.is_watched
    assert not heard.poll(0)
    client.close()
    assert heard.poll(int(PATIENCE_S * 1_000)), "its end was not heard"
    router.socket.let_in()
    assert not router.socket.is_watched
