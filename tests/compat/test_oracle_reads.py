"""Every kind of read, of the stores that the Java broker wrote: it and our broker say the same.

The real broker opens a copy of the store, and our broker another one. What the real one adds to its
copy meanwhile (it delivers delayed messages that fell due) is behind the end of the store that both
began with, and such queues are compared up to there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Queries
from ledgermq.formats.java_hash import java_hash
from ledgermq.model.config.settings import ReadsSection
from ledgermq.model.errors import TopicUnknownError
from tests.compat.dump_checks import FILE_SIZES, INDEX_SIZES
from tests.compat.remoting_reader import (
    GET_EARLIEST_MSG_STORETIME,
    GET_MAX_OFFSET,
    GET_MIN_OFFSET,
    SEARCH_OFFSET_BY_TIMESTAMP,
    RemotingReader,
)
from tests.compat.rocketmq import rocketmq_serving
from tests.process.broker_node import BrokerNode, NodeMaker, broker_nodes, pull_all
from tests.process.raw_consumer import RawConsumer

pytestmark = [pytest.mark.slow, pytest.mark.oracle]

LIKE_ROCKETMQ = ReadsSection(
    max_transfer_bytes_on_message_in_memory=262_144,
    max_transfer_count_on_message_in_memory=32,
    max_transfer_bytes_on_message_in_disk=65_536,
    max_transfer_count_on_message_in_disk=8,
)
UNITS_PER_FILE = FILE_SIZES["mappedFileSizeConsumeQueue"] // 20
TAGS = ("TagA", "TagB", "no such tag")

Json = dict[str, Any]


@pytest.fixture
def node(golden_copy: Callable[[str], Path]) -> Iterator[NodeMaker]:
    with broker_nodes(golden_copy) as make:
        yield make


@pytest.mark.parametrize("name", ["gs1", "gd0"])
def test_all_reads_are_answered_as_the_java_broker_answers_them(
    node: NodeMaker, golden: Callable[[str], Path], golden_json: Any, tmp_path: Path, name: str
) -> None:
    document = golden_json(name)
    ours = node(
        name,
        reads=LIKE_ROCKETMQ,
        store={
            "max_hash_slot_num": INDEX_SIZES["maxHashSlotNum"],
            "max_index_num": INDEX_SIZES["maxIndexNum"],
        },
    )
    with (
        rocketmq_serving(
            golden(name), tmp_path / "java", plain=name[1] == "s",
            settings={**FILE_SIZES, **INDEX_SIZES},
        ) as rocketmq,
        RemotingReader(rocketmq.broker_address) as java,
        Queries(f"ipc://{ours.runtime}") as queries,
    ):  # fmt: skip
        queues = compared_queues(document, java, queries)
        statuses = compare_pulls(queues, java, ours.client())
        compare_walks(queues, java, ours.client())
        compare_times(queues, java, queries, document)
        compare_messages(ours, java, queries, document)
        compare_keys(ours, java, queries, document)

    assert set(statuses) == {
        "FOUND", "NO_MESSAGE_IN_QUEUE", "OFFSET_TOO_SMALL", "OFFSET_OVERFLOW_ONE",
        "OFFSET_OVERFLOW_BADLY", "NO_MATCHED_MESSAGE",
    }  # fmt: skip
    assert sum(statuses.values()) > 500


def compared_queues(
    document: Json, java: RemotingReader, queries: Queries
) -> dict[tuple[str, int], tuple[int, int]]:
    """Bounds of the queues that the Java broker has added nothing to."""
    queues = {}
    # The dump leaves out queues without a message.
    empty = {"topic": "BenchmarkTest", "queue": 1_023, "max": 0}
    for queue in [*document["queues"], empty]:
        topic, number = queue["topic"], queue["queue"]
        try:
            first, end = queries.offsets(topic, number)
        except TopicUnknownError:
            # The dump asked for more queues than the table of topics has, and they are empty.
            assert queue["max"] == 0
            continue
        theirs = tuple(
            java.number(code, "offset", topic=topic, queueId=number)
            for code in (GET_MIN_OFFSET, GET_MAX_OFFSET)
        )
        if theirs == (first, end):
            queues[topic, number] = (first, end)
    assert len(queues) > 20
    assert sum(end > 0 for _, end in queues.values()) > 15
    return queues


def asked_offsets(first: int, end: int) -> list[int]:
    middle = (first + end) // 2
    return sorted({-1, 0, first, first + 1, middle, end - 1, end, end + 1, end + 100})


def compare_pulls(
    queues: dict[tuple[str, int], tuple[int, int]], java: RemotingReader, client: RawConsumer
) -> Counter[str]:
    """Status, offsets and bounds at every kind of offset, with and without tags."""
    statuses: Counter[str] = Counter()
    for (topic, number), (first, end) in queues.items():
        for offset in asked_offsets(first, end):
            for tag in ("*", *TAGS):
                theirs = java.pull(topic, number, offset, messages=1, tags=tag)
                hashes = () if tag == "*" else (java_hash(tag),)
                mine = client.pull(topic, number, offset, messages=1, tag_hashes=hashes)
                statuses[theirs.status] += 1
                told = mine.pulled
                found = (told.status.name, told.begin, told.end)

                assert found == (theirs.status, theirs.begin, theirs.end), (topic, number, offset)
                assert positions(mine.records) == theirs.positions
                if offset + UNITS_PER_FILE - offset % UNITS_PER_FILE >= end or tag == "*":
                    # Java's scan ends with the file of the queue, ours with the queue.
                    assert told.next_offset == theirs.next_offset, (topic, number, offset, tag)
    return statuses


def compare_walks(
    queues: dict[tuple[str, int], tuple[int, int]], java: RemotingReader, client: RawConsumer
) -> None:
    """From the first to the last message in large steps, by number and by bytes."""
    for (topic, number), (first, end) in queues.items():
        for tag in ("*", "TagA"):
            hashes = () if tag == "*" else (java_hash(tag),)
            theirs = list[int]()
            offset = first
            while offset < end:
                answer = java.pull(topic, number, offset, messages=1_000, tags=tag)
                given = client.pull(topic, number, offset, messages=1_000, tag_hashes=hashes)
                now = positions(given.records)
                shorter = min(len(now), len(answer.positions))
                # One answer ends with the file of the queue (Java's), or that of the log (ours).
                assert now[:shorter] == answer.positions[:shorter]
                assert bool(now) == bool(answer.positions) or tag != "*"
                theirs += answer.positions
                assert answer.next_offset > offset
                offset = answer.next_offset

            assert all_of(client, topic, number, hashes) == theirs
            assert len(theirs) == end - first or tag != "*"


def all_of(client: RawConsumer, topic: str, number: int, hashes: tuple[int, ...]) -> list[int]:
    """Positions of what our broker gives of a queue, in its own steps."""
    records = pull_all(client, topic, number, messages=1_000, tag_hashes=hashes)
    return positions(records)


def compare_times(
    queues: dict[tuple[str, int], tuple[int, int]],
    java: RemotingReader,
    queries: Queries,
    document: Json,
) -> None:
    """Offsets of times before, at, between and behind the messages; the earliest store times."""
    stored: dict[tuple[str, int], list[int]] = {}
    for message in document["messages"]:
        key = (message["readTopic"], message["readQueue"])
        stored.setdefault(key, []).append(message["storeTimestamp"])
    for topic, number in queues:
        where = {"topic": topic, "queueId": number}
        earliest = java.number(GET_EARLIEST_MSG_STORETIME, "timestamp", **where)

        assert (queries.earliest_time(topic, number) or -1) == earliest, where
        times = sorted(stored.get((topic, number), []))
        asked = {0, 2**62, *times[:2], *times[-2:], *(time + 1 for time in times[::9])}
        for time in asked:
            theirs = java.number(SEARCH_OFFSET_BY_TIMESTAMP, "offset", timestamp=time, **where)

            assert queries.offset_by_time(topic, number, time) == theirs, (where, time)


def compare_messages(
    ours: BrokerNode, java: RemotingReader, queries: Queries, document: Json
) -> None:
    """Each message by its position; between messages and behind the end nothing is found."""
    for message in document["messages"][::3]:
        position = message["physicalOffset"]
        found = queries.message_at(position)

        assert found is not None
        assert found.physical_offset == java.message_at(position) == position
        by_id = queries.message_by_id(message["offsetMsgId"])
        assert by_id is not None
        assert bytes(by_id.record) == bytes(found.record)
    # What Java answers there is of no use: it takes any four bytes for a size.
    assert queries.message_at(document["messages"][0]["physicalOffset"] + 1) is None
    assert queries.message_at(ours.log_end) is None


def compare_keys(ours: BrokerNode, java: RemotingReader, queries: Queries, document: Json) -> None:
    """Each key and each unique id, also within bounds of time."""
    asked: dict[tuple[str, str], list[int]] = {}
    for message in document["messages"]:
        if message["topic"] != message["readTopic"]:
            continue
        properties = message["properties"]
        for key in (*properties.get("KEYS", "").split(), properties.get("UNIQ_KEY")):
            if key:
                times = asked.setdefault((message["topic"], key), [])
                times.append(message["storeTimestamp"])
    for (topic, key), times in list(asked.items())[::5]:
        theirs = [at for at in java.by_key(topic, key) if at < ours.log_end]
        found = queries.by_key(topic, key, messages_max=64)
        mine = {message.physical_offset for message in found.messages}

        # Java compares hashes alone; its client compares the keys.
        assert mine <= set(theirs), (topic, key)
        assert {at for at in theirs if has_key(queries, at, topic, key)} == mine
        since = queries.by_key(topic, key, messages_max=64, begin=max(times)).messages
        assert {one.physical_offset for one in since} <= mine
        assert since
    assert len(asked) > 200


def has_key(queries: Queries, position: int, topic: str, key: str) -> bool:
    message = queries.message_at(position)
    return (
        message is not None and message.topic == topic and key in (*message.keys, message.unique_id)
    )


def positions(records: list[bytes]) -> list[int]:
    return [int.from_bytes(record[28:36], "big") for record in records]
