"""A real node's port: who asks for something else than to store is served beside many who send."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from ledgermq.client import Admin
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.process.conftest import nodes_made, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node
from tests.process.remoting_steps import (
    NOW_MS,
    beat,
    beat_when_leading,
    members,
    pull_fields,
    pulled,
    send,
)
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

UNDER_WAY = 16


class Senders:
    """A connection on which messages are always under way, until ``stop``."""

    def __init__(self, address: str) -> None:
        self._client = RemotingClient(address)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.stored = 0
        self.codes: set[int] = set()
        self._thread.start()

    def _run(self) -> None:
        under_way: deque[int] = deque()
        while not self._is_over.is_set():
            while len(under_way) < UNDER_WAY:
                fields = dict(
                    zip(
                        "abcdefghijk",
                        ("many", "flood", "TBW102", 4, 0, 0, NOW_MS, 0, "", 0, "false"),
                        strict=True,
                    )
                )
                under_way.append(self._client.send(RequestCode.SEND_MESSAGE_V2, fields, b"x"))
            self.codes.add(self._client.reply_to(under_way.popleft()).code)
            self.stored += 1

    def wait_for_more(self, count: int = 200) -> None:
        """Until so many more are stored: nothing has stopped them."""
        target = self.stored + count
        wait_until(lambda: self.stored >= target, "messages go on", PATIENCE_S)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(PATIENCE_S)
        self._client.close()


@contextmanager
def sending(address: str) -> Iterator[Senders]:
    senders = Senders(address)
    try:
        senders.wait_for_more()
        yield senders
        senders.wait_for_more()
    finally:
        senders.stop()
    assert senders.codes == {ResponseCode.SUCCESS}


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[str, str]]:
    """The address of the port, and that of our own clients."""
    with nodes_made() as make:
        node = make()
        address = start_remoting_node(node)
        client = RemotingClient(address)
        beat_when_leading(client, "10.0.0.1@1", "orders")
        send(client, "orders", 0, b"so that the topic is there")
        client.close()
        yield address, f"ipc://{node.runtime}"
        node.stop()


def test_pulls_are_held_answered_and_ended_while_others_send(served: tuple[str, str]) -> None:
    address, _ = served
    client, waiting = RemotingClient(address), RemotingClient(address)
    beat(client, "10.0.0.1@1", "orders")
    with sending(address):
        held = waiting.send(
            RequestCode.LITE_PULL_MESSAGE,
            pull_fields("orders", 1, 0, suspend_ms=30_000, subscription="*"),
        )
        short = waiting.send(
            RequestCode.LITE_PULL_MESSAGE,
            pull_fields("orders", 2, 0, suspend_ms=100, subscription="*"),
        )
        ended = waiting.reply_to(short)
        send(client, "orders", 1, b"late")
        answer = pulled(waiting.reply_to(held))

    assert ended.code == ResponseCode.PULL_NOT_FOUND
    assert answer.bodies == [b"late"]
    client.close()
    waiting.close()


def test_topics_are_made_and_told_of_while_others_send(served: tuple[str, str]) -> None:
    address, own = served
    client = RemotingClient(address)
    with sending(address):
        # One by a message that is its first, one by our own client.
        send(client, "by-message", 3, b"first")
        with Admin(own) as admin:
            admin.create_topic("by-admin", queues=2)
        routes = [
            client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}).code
            for topic in ("by-message", "by-admin")
        ]

    assert routes == [ResponseCode.SUCCESS] * 2
    client.close()


def test_members_come_and_go_with_their_connections_while_others_send(
    served: tuple[str, str],
) -> None:
    address, _ = served
    client, other = RemotingClient(address), RemotingClient(address)
    with sending(address):
        for one, name in ((client, "10.0.0.1@7"), (other, "10.0.0.1@8")):
            beat(one, name, "orders", group="comers")
        both = members(client, "comers")
        other.close()
        wait_until(lambda: members(client, "comers") == ["10.0.0.1@7"], "one has gone", PATIENCE_S)

    assert sorted(both) == ["10.0.0.1@7", "10.0.0.1@8"]
    client.close()
