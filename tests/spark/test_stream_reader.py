"""``readStream.format("ledgermq")`` beside a running node, and through it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ledgermq.client import OutgoingMessage, Producer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.pipeline.columns.message_schema import COLUMNS
from ledgermq.pipeline.stream_reader import lag
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, nodes_made, wait_until
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

WAYS = ["path", "nodes"]
COUNT = 1_000
QUEUES = 4
COLUMNS_USED = "topic,queueId,queueOffset,body"


@pytest.fixture(scope="module")
def node() -> Iterator[Node]:
    """A node with ``COUNT`` messages of ``orders`` in four queues, which goes on running."""
    with nodes_made() as make:
        made = make()
        start_client_node(made)
        produce(made, "orders", 0, COUNT)
        yield made


def produce(node: Node, topic: str, first: int, count: int) -> None:
    """Send messages whose bodies are numbers, to all queues; they are dispatched on return."""
    address = f"ipc://{node.runtime}"
    everything = range(first, first + count)
    with Producer(address) as producer:
        sent = []
        for queue_id in range(QUEUES):
            messages = [
                OutgoingMessage(str(number).encode(), tag="t", keys=(f"k{number}",))
                for number in everything[queue_id::QUEUES]
            ]
            sent.append(producer.send_batch(topic, messages, queue_id=queue_id))
        ends = [future.result(PATIENCE_S)[-1].queue_offset + 1 for future in sent]
    with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
        wait_until(
            lambda: all(broker.queue(topic, n).end >= end for n, end in enumerate(ends)), "dispatch"
        )


def options_of(node: Node, way: str) -> dict[str, str]:
    if way == "path":
        return {"path": str(node.root)}
    return {"nodes": f"ipc://{node.runtime}"}


def stream(spark: SparkSession, node: Node, way: str, **options: object) -> DataFrame:
    reader = spark.readStream.format("ledgermq").options(**options_of(node, way))
    texts = {name: str(value) for name, value in options.items()}
    return reader.options(columns=COLUMNS_USED).options(**texts).load()


def rows_at(spark: SparkSession, node: Node, way: str) -> list[dict[str, Any]]:
    reader = spark.read.format("ledgermq").options(**options_of(node, way))
    frame = reader.options(subscribe="orders", minPartitions="3").load()
    rows: list[dict[str, Any]] = frame.where("queueOffset < 200").toArrow().to_pylist()
    return sorted(rows, key=lambda row: (row["queueId"], row["queueOffset"]))


def test_both_ways_give_the_same_rows(spark: SparkSession, node: Node) -> None:
    by_path, by_node = (rows_at(spark, node, way) for way in WAYS)
    assert len(by_path) > 100
    for ours, theirs in zip(by_path, by_node, strict=True):
        assert dict(ours.pop("properties")) == dict(theirs.pop("properties"))
        assert ours == theirs
    assert [row["crcOk"] for row in by_node] == [True] * len(by_node)
    assert all(row["raftIndex"] >= 0 and row["raftTerm"] > 0 for row in by_node)
    assert set(by_node[0]) | {"properties"} == set(COLUMNS)


def run_once(frame: DataFrame, folder: Path, **options: str) -> StreamingQuery:
    """Read all that is there into Parquet files; the query, which has ended."""
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .options(**options)
        .trigger(availableNow=True)
        .start(str(folder / "rows"))
    )
    assert query.awaitTermination(120)
    return query


def counted(spark: SparkSession, folder: Path) -> Counter[bytes]:
    rows = spark.read.parquet(str(folder / "rows")).select("body").toArrow().to_pylist()
    return Counter(row["body"] for row in rows)


def numbers(first: int, end: int) -> Counter[bytes]:
    return Counter(str(number).encode() for number in range(first, end))


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_batches_are_as_large_as_allowed_until_all_is_read_once(
    spark: SparkSession, node: Node, tmp_path: Path, way: str
) -> None:
    frame = stream(
        spark, node, way, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=400
    )
    query = run_once(frame, tmp_path)
    sizes = [progress["numInputRows"] for progress in query.recentProgress]

    assert counted(spark, tmp_path)[b"0"] == 1
    assert max(counted(spark, tmp_path).values()) == 1
    assert [size for size in sizes if size][:2] == [400, 400]
    assert sum(sizes) == counted(spark, tmp_path).total() >= COUNT


def uncommit(folder: Path) -> int:
    """Make a query's last batch one that the sink has, and of which Spark does not know it.

    That is what a death between the sink's commit and Spark's leaves.
    """
    commits = folder / "checkpoint" / "commits"
    last = max(int(path.name) for path in commits.iterdir() if path.name.isdigit())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink(missing_ok=True)
    return last


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
def test_a_death_between_the_commits_of_sink_and_spark_doubles_no_row(
    spark: SparkSession, node: Node, tmp_path: Path, way: str
) -> None:
    chosen = {"subscribe": "other", "startingOffsets": "earliest"}
    first = 10_000 if way == "path" else 20_000
    produce(node, "other", first, 300)
    doubled: Counter[bytes] = Counter()

    def append(frame: DataFrame, number: int) -> None:
        doubled.update(row["body"] for row in frame.select("body").toArrow().to_pylist())

    def appended() -> StreamingQuery:
        query = (
            stream(spark, node, way, **chosen)
            .writeStream.foreachBatch(append)
            .option("checkpointLocation", str(tmp_path / "control" / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        return query

    run_once(stream(spark, node, way, **chosen), tmp_path)
    appended()
    assert uncommit(tmp_path) == uncommit(tmp_path / "control")
    before = counted(spark, tmp_path)
    produce(node, "other", first + 300, 50)
    run_once(stream(spark, node, way, **chosen), tmp_path)
    appended()
    # The control shows that the batch was run again: without a sink that knows its number, it
    # is there twice.
    assert {doubled[body] // count for body, count in before.items()} == {2}
    assert counted(spark, tmp_path) == before + numbers(first + 300, first + 350)


@pytest.mark.parametrize("way", WAYS)
def test_a_running_query_sees_what_comes_and_says_how_far_it_is(
    spark: SparkSession, node: Node, tmp_path: Path, way: str
) -> None:
    seen: Counter[bytes] = Counter()
    first = 100_000 if way == "path" else 200_000

    def take(frame: DataFrame, number: int) -> None:
        seen.update(row["body"] for row in frame.select("body").toArrow().to_pylist())

    query = (
        stream(spark, node, way, subscribe="orders")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="100 milliseconds")
        .start()
    )
    try:
        wait_until(lambda: query.lastProgress is not None or query.exception(), "first progress")
        produce(node, "orders", first, 60)
        wait_until(lambda: seen.total() >= 60 or query.exception(), "the rows")
        wait_until(lambda: not any(lags(query)), "progress without a lag")
    finally:
        query.stop()

    assert query.exception() is None
    assert seen == numbers(first, first + 60)


def lags(query: StreamingQuery) -> list[int]:
    progress = query.lastProgress
    assert progress is not None
    source = json.loads(progress.json)["sources"][0]
    table = lag({name: as_object(source[name]) for name in ("endOffset", "latestOffset")})
    return [count for queues in table.values() for count in queues.values()]


def as_object(offset: Any) -> Any:
    return json.loads(offset) if isinstance(offset, str) else offset


def read_golden(spark: SparkSession, root: Path, folder: Path, **options: object) -> StreamingQuery:
    texts = {name: str(value) for name, value in options.items()}
    frame = (
        spark.readStream.format("ledgermq")
        .options(columns=COLUMNS_USED, subscribePattern=".*", startingOffsets="earliest")
        .options(**texts)
        .load(str(root))
    )
    return run_once(frame, folder)


@pytest.mark.long
def test_what_retention_deletes_before_it_is_read_fails_or_is_left_out(
    spark: SparkSession, golden_copy: Callable[[str], Path], tmp_path: Path
) -> None:
    root = golden_copy("gd0")
    query = read_golden(spark, root, tmp_path, maxOffsetsPerTrigger=250)
    sizes = [progress["numInputRows"] for progress in query.recentProgress]
    assert sizes[:2] == [250, 194]
    # Go on behind the first batch, as a query does that was stopped there.
    for folder in ("checkpoint/commits", "checkpoint/offsets", "rows/_spark_metadata"):
        (tmp_path / folder / "1").unlink()
        (tmp_path / folder / ".1.crc").unlink()
    (root / "dledger-n0" / "data" / ("0" * 20)).unlink()

    with pytest.raises(StreamingQueryException) as caught:
        read_golden(spark, root, tmp_path)
    assert "messages that were asked for have been deleted" in str(caught.value)
    assert "missing=" in str(caught.value)
    # The failed batch is in the checkpoint and is run again.
    read_golden(spark, root, tmp_path, failOnDataLoss="false")
    assert 250 < counted(spark, tmp_path).total() < 444
