"""Three real nodes: old messages are read from a follower, new ones from the leader."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgermq.client import Consumer
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.ipc.counters import BrokerCounter
from ledgermq.ipc.cursor_page import CursorPage, Role
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, make_group, producer

pytestmark = pytest.mark.slow

COUNT = 400
FOLLOWERS = ConsumerOptions(read_from="followers", messages_max=20, hold_ms=200)


def test_old_messages_come_from_a_follower_and_none_is_missed_when_it_dies(
    make_node: Callable[[], Node],
) -> None:
    # Whatever is behind the end counts as on disk.
    group = make_group(
        make_node, ack="majority-memory", reads={"access_message_in_memory_max_ratio": 0}
    )
    leader = group.leader()
    sent = [b"%05d" % number for number in range(COUNT)]
    with producer(leader) as made:
        for future in [made.send_batch(TOPIC, [body], queue_id=0) for body in sent]:
            future.result()
    group.wait_equal()
    wait_until(lambda: suggested(leader), "a follower that readers are sent to")

    def one_follower() -> list[Member]:
        read, readers = read_all(group, leader, COUNT)
        assert read == sent
        # Not suggested for a moment, it is not asked: the leader gives all.
        return readers

    readers = wait_until(one_follower, "a follower to be read from")

    assert [messages_given(member) > COUNT // 2 for member in readers] == [True]
    readers[0].kill()
    again, _ = read_all(group, leader, COUNT)

    assert again == sent
    for member in group.others(leader):
        if member is not readers[0]:
            wait_until(lambda one=member: suggested(leader) == one.name, "the other follower")


def read_all(group: Group, leader: Member, count: int) -> tuple[list[bytes], list[Member]]:
    """All messages, and the followers that gave some of them."""
    read: list[bytes] = []
    before = {member.name: messages_given(member) for member in group.up()}
    with Consumer(group.addresses, topic=TOPIC, start="first", options=FOLLOWERS) as consumer:
        while len(read) < count:
            batch = consumer.poll(20.0)
            assert len(batch), len(read)
            read += [bytes(message.body) for message in batch]
        assert consumer.resets == []
    readers = [
        member
        for member in group.up()
        if member is not leader and messages_given(member) > before[member.name]
    ]
    return read, readers


def suggested(member: Member) -> str:
    with CursorPage.attach(member.node.runtime / "cursors") as page:
        return page.read_reader()


def messages_given(member: Member) -> int:
    with CursorPage.attach(member.node.runtime / "cursors") as page:
        counters = page.counters(Role.BROKER)
        return int(counters[BrokerCounter.MESSAGES])
