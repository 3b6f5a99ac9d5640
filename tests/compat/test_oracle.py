"""Our node continues a store that RocketMQ wrote, and RocketMQ continues it again.

One way of a store: the Java broker wrote it; our node serves it to our consumers, takes 100,000
messages more, and stops; the Java broker opens what is there, serves it, and goes on writing. What
that broker says last is compared with what it said first, with what our producers were told, and
with our own reading of the files.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.client import Consumer, ReceivedMessage
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.store.store_view import StoreView
from tests.compat.dump_checks import (
    FILE_SIZES,
    INDEX_SIZES,
    NOT_IN_TOPICS,
    Json,
    Place,
    Way,
    by_place,
    check_answers,
    place,
    without_bounds,
)
from tests.compat.rocketmq import oracle_program, rocketmq_serving
from tests.compat.varied_load import varied_load
from tests.process.conftest import Node
from tests.suite.patience import PATIENCE_S
from tests.suite.space import short_folder

MESSAGES_EACH = 25_000

DELAYED = "SCHEDULE_TOPIC_XXXX"
# Where the Java broker notes that nobody decides a transaction, once a minute.
TRANSACTIONS = {
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
}


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a name that is short enough for unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="lmq-", dir=short_folder()))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def node(folder: Path) -> Iterator[Node]:
    (folder / "node").mkdir()
    made = Node(folder / "node")
    yield made
    made.destroy()


@pytest.mark.oracle
@pytest.mark.slow
@pytest.mark.parametrize("name", ["gd0", "gs1"])
def test_rocketmq_serves_all_that_it_wrote_and_all_that_our_node_added(
    name: str, node: Node, folder: Path, request: pytest.FixtureRequest
) -> None:
    oracle_program()
    way = go(name, node, folder, *golden_data(name, request))
    told = by_place(way.dump["messages"])
    with closing(StoreView(way.ours)) as ours:
        check_old_messages(way, told)
        check_answers(way, told, ours)
        check_delayed_messages_came(way, ours)


def golden_data(name: str, request: pytest.FixtureRequest) -> tuple[Path, Json]:
    """The store and its answers; without them the test fails, for it was asked for."""
    try:
        return (
            request.getfixturevalue("golden_copy")(name),
            request.getfixturevalue("golden_json")(name),
        )
    except pytest.skip.Exception as missing:
        pytest.fail(str(missing))


def go(name: str, node: Node, folder: Path, store: Path, answers: Json) -> Way:
    """Let our node continue ``store``, then RocketMQ."""
    is_plain = name.startswith("gs")
    node.root = store
    node.configure(
        node={"self_id": "n0"},
        store={
            "path_root_dir": str(store),
            "log": "commitlog" if is_plain else "dledger",
            "max_hash_slot_num": INDEX_SIZES["maxHashSlotNum"],
            "max_index_num": INDEX_SIZES["maxIndexNum"],
        },
        ack={"mode": "majority-memory"},
        # Nobody is there to be asked, and a question puts a half message again.
        transactions={"transaction_check_interval_ms": 3_600_000},
    )
    node.serve()
    topics = {path.name for path in (store / "consumequeue").iterdir()} - NOT_IN_TOPICS
    with varied_load(f"ipc://{node.runtime}", folder, each=MESSAGES_EACH) as load:
        sent = load.told([node.log])
    # Behind the load: what Java left to be delivered has been, as it was long due.
    places = {place(one) for one in sent}
    found = check_consumer_gets_old_messages(node, answers, topics)
    late = [one for one in found if place(one) not in places]

    assert node.stop() == 0, node.log.read_text()
    assert not node.logged("ERROR"), node.log.read_text()
    settings = INDEX_SIZES | FILE_SIZES
    with rocketmq_serving(store, folder / "java", plain=is_plain, settings=settings) as broker:
        dump = broker.dump(folder / "dump.json")
    return Way(answers, late, sent, store, dump, broker.store)


def check_consumer_gets_old_messages(node: Node, answers: Json, topics: set[str]) -> list[Json]:
    """Every message that the answers name comes to our consumer as they say; the others."""
    said = by_place(answers["messages"])
    late: list[Json] = []
    ends = {(queue["topic"], queue["queue"]): queue["max"] for queue in answers["queues"]}
    for topic in sorted(topics):
        for message in receive(node, topic):
            ours = received_as_json(message)
            theirs = said.pop(place(ours), None)
            if theirs is None:
                assert message.queue_offset >= ends.get((topic, message.queue_id), 0)
                late.append(ours)
                continue

            assert ours == {key: without_bounds(theirs)[key] for key in ours}

    assert said == {}
    return late


def receive(node: Node, topic: str) -> Iterator[ReceivedMessage]:
    """All messages that a topic holds now."""
    options = ConsumerOptions(hold_ms=0, timeout_s=PATIENCE_S)
    address = f"ipc://{node.runtime}"
    with Consumer(address, topic=topic, start="first", options=options) as consumer:
        for queue, first in consumer.offsets().items():
            offset = first
            while batch := consumer.pull(queue, offset):
                yield from batch
                offset = batch.next_offset

            assert offset == batch.end


def received_as_json(message: ReceivedMessage) -> Json:
    """All that our client tells of a message, in the form of the answers."""
    body = bytes(message.body)
    host, port = message.store_host
    return {
        "readTopic": message.stored_topic,
        "readQueue": message.queue_id,
        "topic": message.stored_topic,
        "queue": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "storeSize": len(message.record),
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "bornHost": message.born_host[0],
        "storeHost": f"/{host}:{port}",
        "reconsumeTimes": message.reconsume_times,
        "msgId": message.unique_id or message.offset_message_id,
        "offsetMsgId": message.offset_message_id,
        "bodyLength": len(body),
        "bodyMd5": hashlib.md5(body, usedforsecurity=False).hexdigest(),
        "properties": dict(message.properties),
    }


def check_old_messages(way: Way, told: dict[Place, Json]) -> None:
    """Every field of every old message is what it was."""
    for said in [*way.answers["messages"], *way.late]:
        before, now = without_bounds(said), without_bounds(told[place(said)])

        assert {key: now[key] for key in before} == before


def check_delayed_messages_came(way: Way, ours: StoreView) -> None:
    """Our node has delivered what Java had delayed, each once; Java goes on behind that.

    All that the golden stores delay has been due for long.
    """
    waited = Counter(
        (queued.message.parsed_properties()["REAL_TOPIC"], queued.message.unique_id)
        for queued in ours.messages(DELAYED)
    )
    there = Counter(
        (queued.queue.topic, queued.message.unique_id)
        for queued in ours.messages()
        if queued.queue.topic not in {DELAYED, *TRANSACTIONS}
    )
    with closing(StoreView(way.theirs)) as theirs:
        came = [
            (queued.queue.topic, queued.message.unique_id)
            for queued in theirs.messages()
            if queued.message.physical_offset >= ours.log.end
            and queued.queue.topic not in TRANSACTIONS
        ]

    assert waited
    assert {delayed: there[delayed] for delayed in waited} == waited
    assert came == []
