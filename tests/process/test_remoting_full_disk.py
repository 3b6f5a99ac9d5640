"""A full disk at the port: refused so that clients look elsewhere, read on, and taken again."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command
from tests.compat.remoting_group import make_remoting_group
from tests.process.conftest import Node, wait_until
from tests.process.full_disk import disk_of, small_disks, why_not
from tests.process.group_nodes import TOPIC
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_steps import NOW_MS, beat_when_leading, members, pull
from tests.process.test_full_disk import FILES, LEFT, RETENTION, wait_prepared
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

UNDER_WAY = 50
FILLING = b"x" * 4_000


@pytest.fixture
def make_small(make_node: Callable[[], Node]) -> Iterator[Callable[[], Node]]:
    """Makes nodes with a disk of 96 MiB each, and settings for it."""
    with small_disks(make_node) as make:

        def made() -> Node:
            node = make()
            configure = node.configure
            node.configure = lambda **tables: configure(  # type: ignore[method-assign]
                **tables, retention=RETENTION
            )
            return node

        yield made


class Sender:
    """Sends many messages at a time on one connection; remembers the acknowledged ones."""

    def __init__(self, client: RemotingClient) -> None:
        self.client = client
        self.acknowledged: set[bytes] = set()
        self._sent = 0

    def send(self, *, count: int = UNDER_WAY) -> list[Command]:
        """Send messages to the first queue, and wait for all replies: the refusals."""
        bodies = [f"{self._sent + one:08d}".encode() + FILLING for one in range(count)]
        self._sent += count
        sent = ("port", TOPIC, "TBW102", 4, 0, 0, NOW_MS, 0, "", 0)
        fields: dict[str, object] = dict(zip("abcdefghij", sent, strict=True))
        numbers = [self.client.send(Code.SEND_MESSAGE_V2, fields, body) for body in bodies]
        replies = [self.client.reply_to(number) for number in numbers]
        taken = zip(bodies, replies, strict=True)
        self.acknowledged.update(body for body, reply in taken if reply.code == 0)
        return [reply for reply in replies if reply.code]


def test_a_full_disk_refuses_sends_serves_reads_and_takes_sends_again(
    make_small: Callable[[], Node],
) -> None:
    group, address = make_remoting_group(make_small, members=1, ack="majority-fsync", sizes=FILES)
    wait_prepared(group)
    (member,) = group.members
    group.leader()
    sender, reader = Sender(RemotingClient(address)), RemotingClient(address)
    beat_when_leading(reader, "reader", TOPIC)
    disk = disk_of(member.node)
    assert sender.send() == []
    disk.fill(leave=LEFT)
    refused: list[Command] = []
    while not refused:
        refused = sender.send()
    pids = member.node.pids()
    found: set[bytes] = set()

    def has_all() -> bool:
        """Read on; that the queue has everything may be a moment later."""
        reply = pull(reader, TOPIC, 0, len(found))
        found.update(reply.bodies)
        return sender.acknowledged <= found

    wait_until(has_all, "what was acknowledged to be read from the full disk", PATIENCE_S)
    still = members(reader)
    disk.give_back()
    wait_until(lambda: not sender.send(count=1), "sends to be taken again", PATIENCE_S)
    assert sender.send() == []
    wait_until(has_all, "the rest to be read", PATIENCE_S)
    same = member.node.pids() == pids
    sender.client.close()
    reader.close()

    assert {reply.code for reply in refused} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    assert all("retention." in str(reply.remark) for reply in refused), refused[0]
    assert still == ["reader"]
    assert same
    assert group.stop() == [0]
    assert sender.acknowledged <= set(member.bodies())
