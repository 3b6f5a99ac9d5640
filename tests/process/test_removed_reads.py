"""Files that are deleted while consumers read: their messages are gone, and nobody is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgermq.client import Queries
from ledgermq.wire.pull_frame import PullStatus
from tests.process.broker_node import NodeMaker, broker_nodes, pull_all, root_of, told, units_of

pytestmark = pytest.mark.slow


@pytest.fixture
def node(golden_copy: Callable[[str], Path]) -> Iterator[NodeMaker]:
    with broker_nodes(golden_copy) as make:
        yield make


def test_messages_of_a_deleted_log_file_were_removed(node: NodeMaker) -> None:
    one = node("gd0")
    root, client = root_of(one), one.client()
    oldest, *kept = sorted(next(root.glob("dledger-*/data")).iterdir())
    queues = [
        (row["topic"], queue)
        for row in client.call("topics")["topics"]
        if row["messages"]
        for queue in range(row["read_queues"])
    ]
    for topic, queue in queues:
        client.call("queue", topic=topic, queue=queue)
    first = int(kept[0].name)
    units = {(topic, queue): units_of(root, topic, queue) for topic, queue in queues}
    oldest.unlink()
    removed = []
    for (topic, queue), column in units.items():
        if len(column) and int(column["position"][0]) < first:
            answer = client.pull(topic, queue, 0, messages=1)
            removed.append(answer.status)
            assert answer.pulled.next_offset > 0
            assert all(told(record)["physicalOffset"] >= first for record in answer.records)
    found = [
        told(record)
        for topic, queue in queues
        for record in pull_all(client, topic, queue, messages=50)
    ]
    with Queries(f"ipc://{one.runtime}") as queries:
        gone = [queries.message_at(int(column["position"][0]))
                for column in units.values()
                if len(column) and int(column["position"][0]) < first]  # fmt: skip
        earliest = queries.earliest_time()
        topic, queue = found[0]["topic"], found[0]["queue"]
        begin, end = queries.offsets(topic, queue)
        oldest_left = queries.offset_by_time(topic, queue, 0)

    # Who comes upon the missing file first passes it over; then the queues begin behind it.
    assert set(removed[1:]) == {PullStatus.OFFSET_TOO_SMALL}
    assert removed[0] in (PullStatus.MESSAGE_WAS_REMOVING, PullStatus.FOUND, removed[1])
    assert min(message["physicalOffset"] for message in found) >= first
    assert gone
    assert set(gone) == {None}
    assert earliest is not None
    assert earliest <= min(message["storeTimestamp"] for message in found)
    assert begin == oldest_left < end
