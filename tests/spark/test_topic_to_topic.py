"""Rows from topic to topic: what was consumed and what was made of it are committed together.

The offsets of the query's group stand in the command that has the rows become messages. So whoever
looks finds as many rows as the group has consumed messages, whatever died, and a query that has
lost its checkpoint goes on where the group is.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from ledgermq.client import Producer
from tests.process.conftest import Node
from tests.spark.started_streams import run_to_end
from tests.spark.topic_copies import QUEUES, SOURCE, consumed, copied, copying
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BATCH = 60


def produce(addresses: list[str], numbers: range) -> None:
    """Send numbered messages, to all queues in turn."""
    with Producer(addresses) as producer:
        for queue_id in range(QUEUES):
            bodies = [b"%d" % number for number in numbers[queue_id::QUEUES]]
            producer.send_batch(SOURCE, bodies, queue_id=queue_id).result(PATIENCE_S)


@pytest.mark.long
def test_a_lost_checkpoint_doubles_nothing_and_an_old_one_is_refused(
    spark: SparkSession, node: Node, tmp_path: Path
) -> None:
    addresses = [f"ipc://{node.runtime}"]

    def run(checkpoint: Path) -> None:
        writer = copying(spark, addresses, checkpoint, rows=BATCH)
        run_to_end(writer.trigger(availableNow=True))

    kept, fresh = tmp_path / "kept", tmp_path / "fresh"
    produce(addresses, range(100))
    run(kept)
    first = copied(addresses), sum(consumed(addresses).values())
    # As a driver leaves it that died between the sink's commit and Spark's.
    (kept / "commits" / "1").unlink()
    (kept / "commits" / ".1.crc").unlink()
    produce(addresses, range(100, 140))
    run(kept)
    again = copied(addresses), sum(consumed(addresses).values())
    produce(addresses, range(140, 200))
    run(fresh)
    anew = copied(addresses), sum(consumed(addresses).values())
    produce(addresses, range(200, 220))
    with pytest.raises(StreamingQueryException, match="group is not where the batch begins"):
        run(kept)

    assert first == (Counter(range(100)), 100)
    assert again == (Counter(range(140)), 140)
    assert anew == (Counter(range(200)), 200)
    assert (copied(addresses), sum(consumed(addresses).values())) == anew
