"""Our node continues a store that RocketMQ wrote, and RocketMQ continues it again.

One way of a store: the Java broker wrote it; our node serves it to our consumers, takes 100,000
messages more, and stops; the Java broker opens what is there, serves it, and goes on writing. What
that broker says last is compared with what it said first, with what our producers were told, and
with our own reading of the files.

Messages at or behind the end of our log are the Java broker's own of that last opening: it delivers
delayed messages that fell due since, and checks transactions that nobody decided.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.compat.rocketmq import oracle_program, rocketmq_serving
from tests.compat.varied_producer import QUEUES
from tests.process.conftest import SOURCES, Node

from ledgermq.cli.message_json import MAX_OFFSET, queued_message_as_json
from ledgermq.client import Consumer, ReceivedMessage
from ledgermq.client.pull_pipeline import ConsumerOptions
from ledgermq.model.limits import SYSTEM_TOPIC
from ledgermq.store.index_file import IndexLayout, get_header
from ledgermq.store.queue_unit import UNIT_SIZE
from ledgermq.store.store_view import StoreView

PRODUCERS = 4
MESSAGES_EACH = 25_000
NEW_TOPIC = "fresh"
OLD_TOPIC = "plain0"
SERVE = ["-m", "ledgermq.cli.main", "serve", "--config"]
PRODUCE_TIMEOUT_S = 120.0
READ_TIMEOUT_S = 20.0

KEYS_ASKED_EVERY = 5
"""The dump asks for every fifth of all keys in their order."""

INDEX_SIZES = {"maxHashSlotNum": 500, "maxIndexNum": 400}
FILE_SIZES = {"mappedFileSizeCommitLog": 1_048_576, "mappedFileSizeConsumeQueue": 4_000}

# The client adds them when it pulls: the bounds of the queue at that moment.
BOUNDS = ("MIN_OFFSET", MAX_OFFSET)
DELAYED = "SCHEDULE_TOPIC_XXXX"
# Where the Java broker notes that nobody decides a transaction, once a minute.
TRANSACTIONS = {
    "RMQ_SYS_TRANS_HALF_TOPIC",
    "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC",
}
# Ends of transactions and our own entries: no table of topics names them, so nobody can read them.
NOT_IN_TOPICS = {"RMQ_SYS_TRANS_OP_HALF_TOPIC", SYSTEM_TOPIC}

Json = dict[str, Any]
Place = tuple[str, int, int]
"""Topic and queue where a message was read, and its position in the log."""


@dataclass(frozen=True)
class Way:
    """What was said of one store on its way.

    Attributes:
        answers: the Java broker's, of the store as it left it first.
        late: messages of that store that came after the answers, as our consumer got them.
        sent: what our producers were told.
        ours: the store as our node left it.
        dump: the Java broker's answers, of what our node left.
        theirs: the store as the Java broker left it last.
    """

    answers: Json
    late: list[Json]
    sent: list[Json]
    ours: Path
    dump: Json
    theirs: Path


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a name that is short enough for unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="lmq-", dir="/tmp"))
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
        end = ours.log.end
        check_old_messages(way, told)
        check_new_messages(way, told)
        check_nothing_else(way, told, end)
        check_fields_as_we_read_them(ours, told)
        check_queue_bounds(way, told, ours)
        check_key_queries(way, told, end)
        check_time_queries(way, ours)
        check_files_are_continued(way, ours)
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
    )
    node.launch([*SERVE, str(node.config)])
    node.wait_ready()
    late = check_consumer_gets_old_messages(node, answers)
    sent = produce(node, folder)

    assert node.stop() == 0, node.log.read_text()
    assert not node.logged("ERROR"), node.log.read_text()
    settings = INDEX_SIZES | FILE_SIZES
    with rocketmq_serving(store, folder / "java", plain=is_plain, settings=settings) as broker:
        dump = broker.dump(folder / "dump.json")
    return Way(answers, late, sent, store, dump, broker.store)


def produce(node: Node, folder: Path) -> list[Json]:
    """What processes that produce at the same time were told of all their messages."""
    script = str(Path(__file__).with_name("varied_producer.py"))
    journals = [folder / f"journal-{number}" for number in range(PRODUCERS)]
    paths = os.pathsep.join([str(SOURCES), str(SOURCES.parent)])
    processes = [
        subprocess.Popen(
            [
                sys.executable, script, f"ipc://{node.runtime}", f"p{number}",
                str(MESSAGES_EACH), f"{NEW_TOPIC},{OLD_TOPIC}", str(journal),
            ],
            env={**os.environ, "PYTHONPATH": paths},
        )
        for number, journal in enumerate(journals)
    ]  # fmt: skip
    try:
        statuses = [process.wait(PRODUCE_TIMEOUT_S) for process in processes]
    finally:
        for process in processes:
            process.kill()

    assert statuses == [0] * PRODUCERS, node.log.read_text()
    sent = [json.loads(line) for journal in journals for line in journal.open(encoding="utf-8")]
    queues = Counter((document["topic"], document["queue"]) for document in sent)

    assert len(sent) == PRODUCERS * MESSAGES_EACH
    assert {(topic, queue) for topic in (OLD_TOPIC, NEW_TOPIC) for queue in range(QUEUES)} <= (
        queues.keys()
    )
    return sent


def check_consumer_gets_old_messages(node: Node, answers: Json) -> list[Json]:
    """Every message that the answers name comes to our consumer as they say; the others."""
    said = by_place(answers["messages"])
    late: list[Json] = []
    ends = {(queue["topic"], queue["queue"]): queue["max"] for queue in answers["queues"]}
    topics = {path.name for path in (node.root / "consumequeue").iterdir()}
    for topic in sorted(topics - NOT_IN_TOPICS):
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
    options = ConsumerOptions(hold_ms=0, timeout_s=READ_TIMEOUT_S)
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
        "readTopic": message.topic,
        "readQueue": message.queue_id,
        "topic": message.topic,
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


def check_new_messages(way: Way, told: dict[Place, Json]) -> None:
    """Every field of every new message is what its producer gave, or was told."""
    for sent in way.sent:
        found = without_bounds(told[place(sent)])
        known = sent.keys() - {"born"}
        first, last = sent["born"]

        assert {key: found[key] for key in known} == {key: sent[key] for key in known}
        assert first <= found["bornTimestamp"] <= last


def check_nothing_else(way: Way, told: dict[Place, Json], end: int) -> None:
    """Before the end of our log there is no other message, and none twice in a queue."""
    expected = [*way.answers["messages"], *way.late, *way.sent]
    own = [message for message in told.values() if message["physicalOffset"] >= end]

    assert {at for at in told if at[2] < end} == {place(message) for message in expected}
    assert len(told) == len(way.dump["messages"]) == len(expected) + len(own)


def check_fields_as_we_read_them(ours: StoreView, told: dict[Place, Json]) -> None:
    """Fields that nobody was told, too, as the time of birth: they are those in our files."""
    count = 0
    for queued in ours.messages():
        read: Json = queued_message_as_json(queued)
        found = told.get(place(read))
        if found is None:
            assert queued.queue.topic in NOT_IN_TOPICS
            continue
        count += 1

        assert without_bounds(read) == without_bounds(found)
        assert found["properties"]["MIN_OFFSET"] == str(queued.queue.first)
        assert int(found["properties"][MAX_OFFSET]) >= queued.queue.end

    assert count == sum(at[2] < ours.log.end for at in told)


def check_queue_bounds(way: Way, told: dict[Place, Json], ours: StoreView) -> None:
    """Queues begin and end where we left them, but for the Java broker's own messages."""
    bounds = {(queue.topic, queue.queue_id): queue for queue in ours.queues()}
    own = Counter(at[:2] for at in told if at[2] >= ours.log.end)
    for queue in way.dump["queues"]:
        key = (queue["topic"], queue["queue"])
        first, end = (bounds[key].first, bounds[key].end) if key in bounds else (0, 0)

        assert (queue["min"], queue["max"] - own[key]) == (first, end), key


def check_key_queries(way: Way, told: dict[Place, Json], end: int) -> None:
    """A key finds the messages that have it, no other and none less."""
    having: dict[tuple[str, str], set[int]] = defaultdict(set)
    for message in told.values():
        for key in message["properties"].get("KEYS", "").split():
            having[message["topic"], key].add(message["physicalOffset"])
    before = {(query["topic"], query["key"]): query for query in way.answers["keyQueries"]}
    asked = sorted("\t".join(key) for key in having)[::KEYS_ASKED_EVERY]

    # A key that the index does not find at all is left out of the dump.
    assert ["\t".join((q["topic"], q["key"])) for q in way.dump["keyQueries"]] == asked
    for query in way.dump["keyQueries"]:
        key = (query["topic"], query["key"])
        found = set(query["physicalOffsets"])

        assert {at for at in found if at < end} == {at for at in having[key] if at < end}, key
        if key in before:
            assert found >= set(before[key]["physicalOffsets"])


def check_time_queries(way: Way, ours: StoreView) -> None:
    """A time finds the offset that our node finds for it."""
    bounds = {(queue.topic, queue.queue_id): queue.end for queue in ours.queues()}
    grown = {
        (queue["topic"], queue["queue"])
        for queue in way.dump["queues"]
        if queue["max"] > bounds.get((queue["topic"], queue["queue"]), 0)
    }
    asked = [
        query for query in way.dump["timeQueries"] if (query["topic"], query["queue"]) not in grown
    ]
    for query in asked:
        offset = ours.query_time(query["topic"], query["queue"], query["timestamp"])

        assert offset == query["offset"], query

    assert {(OLD_TOPIC, 0), (NEW_TOPIC, 0)} <= {(q["topic"], q["queue"]) for q in asked}


def check_files_are_continued(way: Way, ours: StoreView) -> None:
    """The Java broker found nothing to rebuild or to cut: it only wrote behind what we wrote."""
    queues = [
        (Path("consumequeue", queue.topic, str(queue.queue_id)), queue.end * UNIT_SIZE)
        for queue in ours.queues()
    ]
    log = Path("commitlog") if ours.directory.commit_log else Path("dledger-n0", "data")
    for folder, end in [(log, int(ours.log.end)), *queues]:
        for file in sorted((way.ours / folder).iterdir()):
            size = min(end - int(file.name), file.stat().st_size)
            if size <= 0:
                continue
            mine, java = file.read_bytes()[:size], (way.theirs / folder / file.name).read_bytes()

            assert java[:size] == mine, file
            assert len(java) == file.stat().st_size

    index_files = sorted((way.ours / "index").iterdir())
    # All but the last are full.
    for file in index_files[:-1]:
        assert (way.theirs / "index" / file.name).read_bytes() == file.read_bytes(), file
    theirs = sorted(file.name for file in (way.theirs / "index").iterdir())

    assert theirs[: len(index_files)] == [file.name for file in index_files]
    check_index_file_is_continued(
        index_files[-1].read_bytes(), (way.theirs / "index" / index_files[-1].name).read_bytes()
    )


def check_index_file_is_continued(mine: bytes, java: bytes) -> None:
    """The Java broker added keys behind ours; slots change with every key, items never do."""
    layout = IndexLayout(slots=INDEX_SIZES["maxHashSlotNum"], items=INDEX_SIZES["maxIndexNum"])
    header = get_header(memoryview(mine), layout)
    theirs = get_header(memoryview(java), layout)
    items = slice(layout.item_at(0), layout.item_at(header.index_count))

    assert java[items] == mine[items]
    assert (theirs.begin_timestamp, theirs.begin_physical_offset) == (
        header.begin_timestamp,
        header.begin_physical_offset,
    )
    assert theirs.index_count >= header.index_count > 1


def check_delayed_messages_came(way: Way, ours: StoreView) -> None:
    """RocketMQ goes on with what was under way: what was delayed has come to its topics, no more.

    All that the golden stores delay has been due for long; the offset table tells what came before.
    """
    table = (way.ours / "config" / "delayOffset.json").read_text()
    # As Java writes it: the keys are numbers.
    done = {int(k): int(v) for k, v in re.findall(r"(\d+)\s*:\s*(\d+)", table)}
    due = Counter(
        (queued.message.parsed_properties()["REAL_TOPIC"], queued.message.unique_id)
        for queued in ours.messages(DELAYED)
        if queued.queue_offset >= done.get(queued.queue.queue_id + 1, 0)
    )
    with closing(StoreView(way.theirs)) as theirs:
        came = Counter(
            (queued.queue.topic, queued.message.unique_id)
            for queued in theirs.messages()
            if queued.message.physical_offset >= ours.log.end
            and queued.queue.topic not in TRANSACTIONS
        )

    assert came == due
    assert due


def place(message: Json) -> Place:
    return message["readTopic"], message["readQueue"], message["physicalOffset"]


def by_place(messages: list[Json]) -> dict[Place, Json]:
    return {place(message): message for message in messages}


def without_bounds(message: Json) -> Json:
    properties = {k: v for k, v in message["properties"].items() if k not in BOUNDS}
    return {**message, "properties": properties}
