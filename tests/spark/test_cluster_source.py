"""Spark over two groups of one real node each: batches, and a stream while groups come and go."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ledgermq.client.broker_connection import connect_broker
from tests.process.two_groups import HOME, OTHER, TOPIC, TwoGroups, fill, two_groups
from tests.spark.started_streams import run_to_end
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.long]

Rows = Counter[tuple[str, int]]


@pytest.fixture
def groups(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Iterator[TwoGroups]:
    with two_groups(capsys, tmp_path) as made:
        yield made


def numbered(group: str, numbers: range) -> Rows:
    """One row of each message."""
    return Counter((group, number) for number in numbers)


def options_of(groups: TwoGroups) -> dict[str, str]:
    return {
        "nodes": groups.home.address,
        "brokerGroups": "all",
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "columns": "brokerGroup,body",
    }


def rows_of(frame: object) -> Rows:
    rows = frame.toArrow().to_pylist()  # type: ignore[attr-defined]
    return Counter((row["brokerGroup"], int(row["body"])) for row in rows)


def test_each_message_of_each_group_is_a_row_once_while_a_topic_is_spread_and_a_group_leaves(
    spark: SparkSession, groups: TwoGroups, tmp_path: Path
) -> None:
    rows, checkpoint = str(tmp_path / "rows"), tmp_path / "checkpoint"

    def run(**more: str) -> Rows:
        reader = spark.readStream.format("ledgermq").options(**options_of(groups)).options(**more)
        writer = reader.load().writeStream.format("parquet")
        writer = writer.option("checkpointLocation", str(checkpoint)).option("path", rows)
        run_to_end(writer.trigger(availableNow=True))
        return rows_of(spark.read.parquet(rows))

    fill(groups.home, range(20))
    first = run()
    groups.spread()
    fill(groups.other, range(20))
    fill(groups.home, range(20, 30))
    spread = run(maxOffsetsPerTrigger="7")
    read = rows_of(spark.read.format("ledgermq").options(**options_of(groups)).load())
    fill(groups.other, range(20, 25))
    # A driver that has died after its sink had the rows: the batch is run again, and known.
    last = max(int(one.name) for one in (checkpoint / "commits").iterdir() if one.name.isdigit())
    (checkpoint / "commits" / str(last)).unlink()
    (checkpoint / "commits" / f".{last}.crc").unlink()
    groups.drain()
    left = run()
    groups.other.node.end()
    fill(groups.home, range(30, 35))
    alone = run()

    assert first == numbered(HOME, range(20))
    assert spread == read == numbered(HOME, range(30)) + numbered(OTHER, range(20))
    assert left == spread + numbered(OTHER, range(20, 25))
    assert alone == left + numbered(HOME, range(30, 35))
    kept = max((checkpoint / "offsets").glob("[0-9]*"), key=lambda one: int(one.name))
    offsets = json.loads(kept.read_text().splitlines()[-1])["@groups"]
    assert offsets[OTHER]["finished"] is True
    assert sum(offsets[OTHER]["offsets"][TOPIC].values()) == 25
    with connect_broker(groups.home.address, name="test", timeout_s=PATIENCE_S) as broker:
        ends = {str(queue): broker.queue(TOPIC, queue).end for queue in range(2)}
    assert offsets[HOME]["offsets"][TOPIC] == ends
