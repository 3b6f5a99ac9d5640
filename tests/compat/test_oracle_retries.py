"""RocketMQ reads what our consumers gave back, and goes on with what still waits for its time."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.client import Consumer, DeadLetters, Producer, ReceivedMessage
from ledgermq.client.reading.retries import DEAD
from ledgermq.formats.records.message import Message
from ledgermq.store.store_view import StoreView
from tests.compat.dump_checks import by_place, check_fields_as_we_read_them
from tests.compat.rocketmq import oracle_program, rocketmq_serving
from tests.process.client_node import start_client_node
from tests.process.conftest import Node
from tests.suite.patience import PATIENCE_S

SIZES = {
    "mappedFileSizeCommitLog": 1_048_576,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 400,
}
LATER = 2
"""Delay level of five seconds: RocketMQ delivers it, not we."""


def read(consumer: Consumer, count: int) -> list[ReceivedMessage]:
    messages: list[ReceivedMessage] = []
    deadline = time.monotonic() + PATIENCE_S
    while len(messages) < count:
        assert time.monotonic() < deadline, f"{len(messages)} of {count} messages came"
        messages += consumer.poll(1.0)
    return messages


def stored(view: StoreView, topic: str) -> list[Message]:
    return [one.message for one in view.messages() if one.queue.topic == topic]


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("log", ["dledger", "commitlog"])
def test_rocketmq_reads_retries_and_dead_letters_and_delivers_what_waits(
    log: str, make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    node = make_node()
    start_client_node(node, log=log)
    address = f"ipc://{node.runtime}"
    with Producer(address) as producer:
        producer.send_batch("orders", [b"%d" % n for n in range(6)], queue_id=0).result()
    with Consumer(address, topic="orders", group="g") as consumer:
        messages = read(consumer, 6)
        consumer.retry_later(*messages[:2], delay_level=1)
        consumer.retry_later(*messages[2:4], delay_level=DEAD)
        came_again = read(consumer, 2)
        consumer.commit()
        consumer.retry_later(*came_again, *messages[4:], delay_level=LATER)
    with DeadLetters(address, group="g") as letters:
        letters.replay([0])
    assert node.stop() == 0, node.log.read_text()

    with rocketmq_serving(
        node.root, tmp_path / "java", plain=log == "commitlog", settings=SIZES, self_id="n7"
    ) as broker:
        # Whatever its clock says: it delivers within a second of its start, and what it dumps is
        # everything up to then. It is asked until all that waited is there.
        deadline = time.monotonic() + PATIENCE_S
        while True:
            dump = broker.dump(tmp_path / "dump.json")
            retries = [row for row in dump["messages"] if row["readTopic"] == "%RETRY%g"]
            if len(retries) >= 7:
                break
            assert time.monotonic() < deadline, [row["properties"] for row in retries]
    dead = [row for row in dump["messages"] if row["readTopic"] == "%DLQ%g"]

    with closing(StoreView(node.root)) as ours:
        check_fields_as_we_read_them(ours, by_place(dump["messages"]))
        waiting = stored(ours, "SCHEDULE_TOPIC_XXXX")
        delivered = stored(ours, "%RETRY%g")

    assert len(waiting) == 6
    assert len(delivered) == 3
    assert [row["reconsumeTimes"] for row in dead] == [1, 1]
    assert {row["properties"]["RETRY_TOPIC"] for row in (*retries, *dead)} == {"orders"}
    assert sorted(row["reconsumeTimes"] for row in retries) == [0, 1, 1, 1, 1, 2, 2]
