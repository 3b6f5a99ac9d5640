"""Readers of the week: each reads topics as a whole, and says what it has read in the same form."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ledgermq.client import Consumer, ConsumerOptions
from tests.compat.remoting_group import run_java
from tests.suite.patience import PATIENCE_S
from tests.week.week_load import QUEUES, Stored, name_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_S = 1_800.0


class Sum(NamedTuple):
    """How many messages a topic has, and the hash of queues, offsets and bodies in their order."""

    count: int
    digest: str


class TopicRead(NamedTuple):
    """What our own client has read of a topic.

    Attributes:
        messages: by queue and offset.
        reached: offsets up to which each queue was read; all before that were given, or are gone.
    """

    messages: dict[int, dict[int, Stored]]
    reached: dict[int, int]
    sum: Sum


def read_natively(addresses: Sequence[str], topic: str, *, timeout_s: float) -> TopicRead:
    """Read a topic from its first message to the last one that it has now.

    Raises:
        LedgerError: it was refused, or not answered.
        AssertionError: a body is not what was sent, or an offset came twice.
    """
    messages: dict[int, dict[int, Stored]] = {queue: {} for queue in range(QUEUES)}
    bodies: dict[tuple[int, int], bytes] = {}
    options = ConsumerOptions(timeout_s=timeout_s, hold_ms=500)
    with Consumer(list(addresses), topic=topic, start="first", options=options) as consumer:
        reached = dict(consumer.offsets())
        ends = consumer.ends()
        begun = time.monotonic()
        while any(reached[queue] < end for queue, end in ends.items()):
            assert time.monotonic() - begun < 10 * PATIENCE_S, (topic, reached, ends)
            for one in consumer.poll(1.0):
                place = one.queue_id, one.queue_offset
                assert place not in bodies, (topic, place)
                bodies[place] = bytes(one.body)
                messages[one.queue_id][one.queue_offset] = Stored(
                    one.physical_offset, one.store_timestamp, name_in(bodies[place])
                )
            reached.update(consumer.offsets())
    return TopicRead(messages, reached, summed(bodies))


def summed(bodies: dict[tuple[int, int], bytes]) -> Sum:
    """The sum of bodies by queue and offset."""
    digest = sha256()
    for (queue, offset), body in sorted(bodies.items()):
        digest.update(b"%d %d " % (queue, offset))
        digest.update(body)
    return Sum(len(bodies), digest.hexdigest())


def java_sums(name_servers: str, topics: Sequence[str], folder: Path) -> dict[str, Sum]:
    """What RocketMQ's client reads."""
    program = Path(__file__).with_name("Sums.java")
    said = run_java(name_servers, program, *topics, folder=folder, timeout_s=JAVA_S)
    rows = [line.split()[1:] for line in said if line.startswith("sum ")]
    return {topic: Sum(int(count), digest) for topic, count, digest in rows}


def spark_sums(spark: SparkSession, pieces: str, topics: Sequence[str]) -> dict[str, Sum]:
    """What Spark reads of the pieces, without a broker."""
    frame = (
        spark.read.format("ledgermq")
        .option("pieces", pieces)
        .option("subscribe", ",".join(topics))
        .load()
        .select("topic", "queueId", "queueOffset", "body")
    )
    found: dict[str, dict[tuple[int, int], bytes]] = defaultdict(dict)
    for row in frame.toArrow().to_pylist():
        place = row["queueId"], row["queueOffset"]
        assert place not in found[row["topic"]], (row["topic"], place)
        found[row["topic"]][place] = row["body"]
    return {topic: summed(found[topic]) for topic in topics}
