"""Rows that are staged and committed on real nodes, whose leaders die between."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from ledgermq.client import Consumer
from ledgermq.client.blocking.producer import Producer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.client.sending.outgoing import properties_bytes
from ledgermq.client.staging import SinkClient, StagedRows, StageWriter, staging_producer
from ledgermq.model.errors import (
    MessageIllegalError,
    NoPermissionError,
    StagedUnknownError,
    TopicUnknownError,
)
from ledgermq.model.limits import STAGED_TOPIC
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

QUEUES = 4
PACK_BYTES = 16_384
"""Small beside the files of these groups, so that packs and rows cross their ends."""


def stage(
    producer: Producer, numbers: Sequence[int], *, sink: str = "query", batch: int = 0
) -> StagedRows:
    """Stage numbered rows, in runs of ten for each queue in turn."""
    writer = StageWriter(producer, sink, batch, pack_bytes=PACK_BYTES)
    for first in range(0, len(numbers), 10):
        some = numbers[first : first + 10]
        writer.add(
            TOPIC,
            first // 10 % QUEUES,
            [b"%d" % number for number in some],
            [properties_bytes("even" if number % 2 == 0 else "odd", [], None) for number in some],
            list(some),
        )
    return writer.finish()


def rows(addresses: list[str]) -> list[tuple[int, int, int]]:
    """Queue, number and flag of each message of the topic, in the order of the queues."""
    found: list[tuple[int, int, int]] = []
    with connect_broker(addresses, name="test", timeout_s=PATIENCE_S) as broker:
        ends = {queue: broker.queue(TOPIC, queue).end for queue in range(QUEUES)}
    with Consumer(addresses, topic=TOPIC, start="first") as consumer:
        while len(found) < sum(ends.values()):
            found += [(one.queue_id, int(one.body), one.flag) for one in consumer.poll(20)]
    return found


def test_rows_are_there_once_when_leaders_die_between_stage_and_commit(group: Group) -> None:
    group.leader()
    with (
        staging_producer(group.addresses) as producer,
        SinkClient(group.addresses) as sinks,
    ):
        first = stage(producer, range(3_000))
        unwanted = stage(producer, range(5_000, 5_100))
        before = rows(group.addresses)
        killed = group.leader()
        killed.kill()
        committed = sinks.commit("query", 0, [first])
        again = sinks.commit("query", 0, [first])
        sinks.wait("query", 0)
        killed.start()
        replayed = sinks.commit("query", 0, [stage(producer, range(3_000))])
        second = stage(producer, range(3_000, 3_500), batch=1)
        group.leader().kill()
        assert sinks.commit("query", 1, [second]).rows == 500
        sinks.wait("query", 1)
        with pytest.raises(StagedUnknownError, match="no such rows"):
            sinks.commit("query", 2, [unwanted])
        found = rows(group.addresses)

    assert before == []
    assert len(first.offsets) > 10
    assert (committed.rows, committed.is_already) == (3_000, False)
    assert again.is_already and replayed.is_already
    assert sorted(number for _, number, _ in found) == list(range(3_500))
    assert all(number == flag for _, number, flag in found)
    for queue in range(QUEUES):
        of_queue = [number for one, number, _ in found if one == queue]
        assert of_queue == sorted(of_queue), "rows of a queue keep their order"


def test_a_leader_that_dies_while_rows_are_moved_leaves_each_once(group: Group) -> None:
    group.leader()
    with (
        staging_producer(group.addresses) as producer,
        SinkClient(group.addresses) as sinks,
    ):
        parts = [stage(producer, range(at, at + 5_000)) for at in range(0, 20_000, 5_000)]
        leader = group.leader()
        committed = sinks.commit("query", 0, parts)
        leader.kill()
        sinks.wait("query", 0)
        numbers = Counter(number for _, number, _ in rows(group.addresses))

    assert committed.rows == 20_000
    assert numbers == Counter(range(20_000))


NODE = {"sinks": {"staged_reserved_ms": 2_000}}
"""What nobody commits is dropped after two seconds."""


def test_what_a_topic_would_not_take_is_not_staged(node: Node) -> None:
    with staging_producer(f"ipc://{node.runtime}") as producer:
        for topic, queue, error in (
            ("nothing", 0, TopicUnknownError),
            (TOPIC, 99, TopicUnknownError),
            (STAGED_TOPIC, 0, NoPermissionError),
        ):
            writer = StageWriter(producer, "query", 0)
            writer.add(topic, queue, [b"row"], [properties_bytes(None, [], None)])
            with pytest.raises(error):
                writer.finish()
        writer = StageWriter(producer, "query", 0, pack_bytes=2_000)
        with pytest.raises(MessageIllegalError, match="too large to be staged"):
            writer.add(TOPIC, 0, [bytes(5_000)], [properties_bytes(None, [], None)])


def test_aborted_rows_and_orphans_go_and_the_log_with_them(node: Node) -> None:
    address = f"ipc://{node.runtime}"
    with staging_producer(address) as producer, SinkClient(address) as sinks:
        aborted = stage(producer, range(100), sink="job")
        sinks.abort("job", 0, [aborted])
        orphan = stage(producer, range(100, 200))
        wait_until(lambda: is_all_dropped(address), "the orphans to be dropped")
        with pytest.raises(StagedUnknownError, match=r"sinks\.staged_reserved_ms"):
            sinks.commit("query", 0, [orphan])
        found = rows([address])

    assert found == []


def is_all_dropped(address: str) -> bool:
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        answer = broker.call("sinks")
    return bool(answer["staged_first"] == answer["staged_end"] > 0)
