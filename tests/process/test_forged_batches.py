"""Records of several messages as no client of RocketMQ sends them, in a store from there."""

from __future__ import annotations

import zlib
from collections.abc import Callable

import pytest

from ledgermq.client import Consumer, MessageFilter
from tests.plain_codecs import BatchItem, encode_batch
from tests.process.batch_store import FILE_SIZE, TOPIC, write_batch_store
from tests.process.conftest import Node

pytestmark = pytest.mark.slow

MIB = 1 << 20
STORE = {
    "log": "commitlog",
    "mapped_file_size_commit_log": FILE_SIZE,
    "mapped_file_size_consume_queue": 4_000,
    "max_hash_slot_num": 500,
    "max_index_num": 400,
}
RECORDS = 40
SMALLEST = bytes(encode_batch([BatchItem(0, b"", b"")]))
SMALL = bytes(encode_batch([BatchItem(0, b"x", b"TAGS\x01red\x02")]))


def packed(item: bytes, size: int) -> bytes:
    """A body of as many of these as ``size`` bytes take, compressed."""
    return zlib.compress(item * (size // len(item)), 9)


@pytest.mark.parametrize("expression", ["", "TAGS IS NOT NULL OR TAGS IS NULL"])
@pytest.mark.parametrize("forged", [packed(SMALLEST, 64 * MIB), packed(SMALL, 3 * MIB)])
def test_what_becomes_millions_of_messages_costs_the_broker_what_it_gives_of_them(
    make_node: Callable[[], Node], forged: bytes, expression: str
) -> None:
    node = make_node()
    node.configure(store=STORE, ack={"mode": "majority-memory"})
    stored = write_batch_store(node.root, records=RECORDS, body=10, forged=forged)
    node.serve()
    broker, offsets = node.pid("broker"), []
    wanted = MessageFilter.by_sql(expression) if expression else None
    with Consumer(node.address, topic=TOPIC, start="first", filter=wanted) as consumer:
        while len(offsets) < len(stored):
            offsets += [one.queue_offset for one in consumer.poll(1.0)]

    assert offsets == [one.queue_offset for one in stored]
    assert node.pid("broker") == broker
    assert not node.logged("hangs")
