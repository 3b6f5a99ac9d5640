"""Three real nodes under load: leaders die, queries are begun again, each row is there once.

``LEDGERMQ_SPARK_KILLS`` is how often a leader dies.
"""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

from ledgermq.client import Producer, ProducerOptions
from ledgermq.client.broker_connection import connect_broker
from ledgermq.model.errors import LedgerError
from tests.process.conftest import nodes_made, wait_until
from tests.process.group_nodes import TOPIC, Group, make_group
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KILLS = int(os.environ.get("LEDGERMQ_SPARK_KILLS", "1"))
QUEUES = 4
BATCH = 20


class Load:
    """A thread that sends numbered messages, some at once to each queue in turn."""

    def __init__(self, addresses: list[str]) -> None:
        self.acked: Counter[bytes] = Counter()
        self.sent: set[bytes] = set()
        self._addresses = addresses
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Wait for the answer to what was sent last."""
        self._stopping.set()
        self._thread.join()

    def wait_more(self, count: int) -> None:
        """Until so many more messages are acknowledged."""
        wanted = self.acked.total() + count
        wait_until(lambda: self.acked.total() >= wanted, "acknowledgements")

    def _run(self) -> None:
        with Producer(self._addresses, options=ProducerOptions(timeout_s=PATIENCE_S)) as producer:
            number = 0
            while not self._stopping.is_set():
                bodies = [b"%d" % (number + one) for one in range(BATCH)]
                queue_id = number // BATCH % QUEUES
                number += BATCH
                self.sent.update(bodies)
                future = producer.send_batch(TOPIC, bodies, queue_id=queue_id)
                try:
                    future.result(PATIENCE_S)
                except LedgerError:
                    # Its outcome is unknown: it may be stored, once.
                    continue
                self.acked.update(bodies)


@pytest.fixture
def group() -> Iterator[Group]:
    with nodes_made() as make:
        yield make_group(make, ack="majority-fsync")


def start(spark: SparkSession, options: dict[str, str], folder: Path) -> StreamingQuery:
    frame = (
        spark.readStream.format("ledgermq")
        .options(subscribe=TOPIC, startingOffsets="earliest", columns="queueId,queueOffset,body")
        .options(**options)
        .load()
    )
    return (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="200 milliseconds")
        .start(str(folder / "rows"))
    )


def rows_of(spark: SparkSession, folder: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = spark.read.parquet(str(folder / "rows")).toArrow().to_pylist()
    return rows


def read_until(query: StreamingQuery, ends: dict[str, int]) -> None:
    """Wait until a query has committed all queues to their ends."""

    def is_there() -> bool:
        error = query.exception()
        assert error is None, error
        progress = query.lastProgress
        return progress is not None and any(
            source.endOffset is not None and all_read(source.endOffset, ends)
            for source in progress.sources
        )

    wait_until(is_there, "the query to be at the end", 120)


def all_read(offset: Any, ends: dict[str, int]) -> bool:
    document = json.loads(offset) if isinstance(offset, str) else offset
    return bool(document.get(TOPIC) == ends)


@pytest.mark.long
def test_each_acknowledged_message_is_a_row_once_whoever_dies(
    spark: SparkSession, group: Group, tmp_path: Path
) -> None:
    group.leader()
    ways = {
        "nodes": {"nodes": ",".join(group.addresses)},
        # Files of one member, which follows, leads or is dead.
        "path": {"path": str(group.members[0].node.root)},
    }
    load = Load(group.addresses)
    try:
        load.wait_more(200)
        queries = {way: start(spark, ways[way], tmp_path / way) for way in ways}
        for _ in range(KILLS):
            load.wait_more(200)
            killed = group.leader()
            killed.kill()
            load.wait_more(200)
            for query in queries.values():
                query.stop()
            queries = {way: start(spark, ways[way], tmp_path / way) for way in ways}
            load.wait_more(200)
            killed.start()
            wait_until(lambda one=killed: one.status() is not None, "the node to be back")
    finally:
        load.stop()
    group.wait_equal()
    with connect_broker(group.addresses, name="test", timeout_s=PATIENCE_S) as broker:
        ends = {str(queue): broker.queue(TOPIC, queue).end for queue in range(QUEUES)}
    for way, query in queries.items():
        read_until(query, ends)
        query.stop()
        rows = rows_of(spark, tmp_path / way)
        bodies = Counter(row["body"] for row in rows)
        places = [(row["queueId"], row["queueOffset"]) for row in rows]

        assert load.acked.keys() <= bodies.keys() <= load.sent
        assert set(bodies.values()) == {1}
        assert sorted(places) == [(q, n) for q in range(QUEUES) for n in range(ends[str(q)])]
