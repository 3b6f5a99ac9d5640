"""``df.write`` and ``writeStream`` into three real nodes: each row is a message once.

Sinks of these tests are the real ones; some wait or fail at a place that a test chose, in the very
process where Spark runs them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark import TaskContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.datasource import DataSource, WriterCommitMessage
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

from ledgermq.client.broker_connection import connect_broker
from ledgermq.formats.java_hash import java_hash
from ledgermq.pipeline.sink.sink_options import SinkOptions, parse_sink_options
from ledgermq.pipeline.sink.spark_sink import (
    BatchSink,
    StagedMessage,
    StreamSink,
    commit_batch,
    stage_rows,
)
from tests.process.conftest import nodes_made, wait_until
from tests.process.group_nodes import TOPIC, Group, make_group
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.spark, pytest.mark.slow]

QUEUES = 4
PACK_BYTES = 16_384
"""Small beside the files of these groups."""

COUNT = 2_000
SCHEMA = "queueKey string, body string"


@pytest.fixture(scope="module")
def group() -> Iterator[Group]:
    """Three nodes; a test that kills one starts it again."""
    with nodes_made() as make:
        made = make_group(make, ack="majority-fsync", sinks={"staged_reserved_ms": 40_000})
        made.leader()
        yield made


class Places:
    """Where a sink waits or fails: files, which all of Spark's processes see."""

    def __init__(self, options: dict[str, str]) -> None:
        self.folder = Path(options.pop("places"))

    def reach(self, place: str) -> bool:
        """Say that ``place`` is reached; whether for the first time."""
        try:
            (self.folder / place).touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def reach_and_wait(self, place: str) -> None:
        """Say that ``place`` is reached, and wait until the test lets go on."""
        if self.reach(place):
            wait_until((self.folder / f"{place}-go").exists, f"the test to go on at {place}")


class FailingBatchSink(BatchSink):
    """Its second partition fails after it has staged its rows, so often as the test says."""

    def __init__(self, options: SinkOptions, schema: StructType, places: Places) -> None:
        super().__init__(options, schema)
        self._places = places

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage, and fail."""
        message = super().write(iterator)
        context = TaskContext.get()
        assert context is not None
        allowed = int((self._places.folder / "failures").read_text())
        if context.partitionId() == 1 and context.attemptNumber() < allowed:
            raise RuntimeError("a task dies after it has staged its rows")
        return message


class WaitingStreamSink(StreamSink):
    """Waits before it commits, so that a test can do something then."""

    def __init__(self, options: SinkOptions, schema: StructType, places: Places) -> None:
        super().__init__(options, schema)
        self._places = places

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Wait, and commit."""
        self._places.reach_and_wait(f"staged-{batchId}")
        super().commit(messages, batchId)


class ForgetfulStreamSink(StreamSink):
    """The control: what is committed is of a batch that nobody has ever seen."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Stage for a sink of a fresh name."""
        return StagedMessage(stage_rows(self._options, f"control-{uuid4().hex}", 0, iterator))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit under these names."""
        del batchId
        for message in messages:
            assert isinstance(message, StagedMessage)
            sink = message.staged.stage.sink
            commit_batch(self._options, sink, 0, [message], is_once=True)


class TriedSource(DataSource):
    """The sinks above, under a name of their own."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` is given."""
        return "ledgermq-tried"

    def writer(self, schema: StructType, overwrite: bool) -> BatchSink:
        """The one that fails."""
        assert not overwrite
        options = dict(self.options)
        places = Places(options)
        return FailingBatchSink(parse_sink_options(options, streaming=False), schema, places)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamSink:  # noqa: N802
        """The one that waits, or the control."""
        assert not overwrite
        options = dict(self.options)
        if "places" not in options:
            return ForgetfulStreamSink(parse_sink_options(options, streaming=True), schema)
        places = Places(options)
        return WaitingStreamSink(parse_sink_options(options, streaming=True), schema, places)


@pytest.fixture(scope="module")
def tried(spark: SparkSession) -> SparkSession:
    spark.dataSource.register(TriedSource)
    return spark


@pytest.fixture
def topic(group: Group, request: pytest.FixtureRequest) -> str:
    """A topic of the test's own."""
    name = request.node.name.replace("[", "-").replace("]", "")[:100]
    with connect_broker(group.addresses, name="test", timeout_s=PATIENCE_S) as broker:
        broker.call("topic_create", topic=name, queues=QUEUES)
    return name


def sink_options(group: Group, topic: str) -> dict[str, str]:
    return {
        "nodes": ",".join(group.addresses),
        "topic": topic,
        "packBytes": str(PACK_BYTES),
    }


def numbers(spark: SparkSession, first: int, end: int, partitions: int = 2) -> DataFrame:
    return spark.range(first, end, 1, partitions).select(
        f.col("id").cast("string").alias("queueKey"), f.col("id").cast("string").alias("body")
    )


def stored(
    spark: SparkSession, group: Group, topic: str, columns: str = "body"
) -> list[dict[str, Any]]:
    """The messages of a topic."""
    frame = (
        spark.read.format("ledgermq")
        .options(nodes=",".join(group.addresses), subscribe=topic, columns=columns)
        .load()
    )
    found: list[dict[str, Any]] = frame.toArrow().to_pylist()
    return found


def bodies(spark: SparkSession, group: Group, topic: str) -> Counter[int]:
    return Counter(int(row["body"]) for row in stored(spark, group, topic))


@pytest.mark.long
def test_every_column_becomes_what_it_says(spark: SparkSession, group: Group, topic: str) -> None:
    rows = [
        (topic, 3, None, "t", "a b", {"p": "1", "q": "ü"}, b"one", 7),
        (topic, None, "some key", None, None, None, b"two", None),
        (None, None, None, "u", None, {}, b"", -1),
    ]
    schema = (
        "topic string, queueId int, queueKey string, tags string, keys string,"
        " properties map<string,string>, body binary, flag int"
    )
    frame = spark.createDataFrame(rows, schema).coalesce(1)
    frame.write.format("ledgermq").options(**sink_options(group, topic)).mode("append").save()
    columns = "topic,queueId,tags,keys,properties,body,flag,crcOk"
    found = {row["body"]: row for row in stored(spark, group, topic, columns)}
    own = [
        {name: value for name, value in row["properties"] if len(name) == 1}
        for row in found.values()
    ]

    assert set(found) == {b"one", b"two", b""}
    first, second, third = found[b"one"], found[b"two"], found[b""]
    assert (first["queueId"], first["tags"], first["keys"], first["flag"]) == (3, "t", "a b", 7)
    queue = abs(java_hash("some key")) % QUEUES
    assert (second["queueId"], second["tags"], second["flag"]) == (queue, None, 0)
    assert (third["tags"], third["flag"]) == ("u", -1)
    assert sorted(map(len, own)) == [0, 0, 2]
    assert {"p": "1", "q": "ü"} in own
    assert all(row["crcOk"] and row["topic"] == topic for row in found.values())


@pytest.mark.long
def test_rows_of_a_task_that_is_run_again_are_there_once_and_of_a_failed_job_not_at_all(
    tried: SparkSession, group: Group, topic: str, tmp_path: Path
) -> None:
    options = {**sink_options(group, topic), "places": str(tmp_path)}
    frame = numbers(tried, 0, COUNT, partitions=3)
    writer = frame.write.format("ledgermq-tried").mode("append").options(**options)
    (tmp_path / "failures").write_text("1000")
    with pytest.raises(Exception, match="a task dies after it has staged"):
        writer.save()
    of_failed = bodies(tried, group, topic)
    (tmp_path / "failures").write_text("1")
    writer.option("jobId", topic).save()
    of_retried = bodies(tried, group, topic)
    # The whole job once more, as by somebody who does not know that it was done.
    writer.option("jobId", topic).save()

    assert of_failed == Counter()
    assert of_retried == Counter(range(COUNT))
    assert bodies(tried, group, topic) == Counter(range(COUNT))
    wait_until(lambda: is_all_dropped(group), "what nobody committed to be dropped", 180)


def is_all_dropped(group: Group) -> bool:
    with connect_broker(group.addresses, name="test", timeout_s=PATIENCE_S) as broker:
        answer = broker.call("sinks")
    return bool(answer["staged_first"] == answer["staged_end"])


class Stream:
    """A query that writes what a folder of files has, one file a batch."""

    def __init__(self, spark: SparkSession, folder: Path, options: dict[str, str]) -> None:
        self._spark = spark
        self._folder = folder
        self._options = options
        self._files = 0

    def add_rows(self, first: int, end: int) -> None:
        """One more file."""
        self._files += 1
        rows = numbers(self._spark, first, end, 1).toArrow()
        (self._folder / "in").mkdir(exist_ok=True)
        ready = self._folder / f"{self._files}.parquet"
        parquet.write_table(rows, ready)
        ready.rename(self._folder / "in" / ready.name)

    def start(self, name: str, **options: str) -> StreamingQuery:
        """Begin, or go on."""
        frame = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        return (
            frame.parquet(str(self._folder / "in"))
            .repartition(2)
            .writeStream.format(name)
            .options(**self._options, **options)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )

    def forget_commit(self, batch: int) -> None:
        """As if the driver had died after the sink's commit and before Spark's."""
        commits = self._folder / "checkpoint" / "commits"
        for name in (f"{batch}", f".{batch}.crc"):
            (commits / name).unlink(missing_ok=True)


def ended(query: StreamingQuery) -> None:
    """Wait for a query's end, which is to be a good one."""
    assert query.awaitTermination(120), "the query did not end"
    assert query.exception() is None


@pytest.mark.long
def test_a_batch_that_runs_again_is_there_once_whatever_died(
    tried: SparkSession, group: Group, topic: str, tmp_path: Path
) -> None:
    stream = Stream(tried, tmp_path, sink_options(group, topic))
    stream.add_rows(0, COUNT)
    query = stream.start("ledgermq-tried", places=str(tmp_path))
    wait_until((tmp_path / "staged-0").exists, "the batch to be staged", 120)
    before = bodies(tried, group, topic)
    killed = group.leader()
    killed.kill()
    (tmp_path / "staged-0-go").touch()
    ended(query)
    after_kill = bodies(tried, group, topic)
    killed.start()
    stream.forget_commit(0)
    stream.add_rows(COUNT, COUNT + 500)
    ended(stream.start("ledgermq"))

    assert before == Counter()
    assert after_kill == Counter(range(COUNT))
    assert bodies(tried, group, topic) == Counter(range(COUNT + 500))


def test_without_the_number_of_the_batch_its_rows_are_there_twice(
    tried: SparkSession, group: Group, topic: str, tmp_path: Path
) -> None:
    stream = Stream(tried, tmp_path, sink_options(group, topic))
    stream.add_rows(0, 100)
    ended(stream.start("ledgermq-tried"))
    stream.forget_commit(0)
    ended(stream.start("ledgermq-tried"))

    assert bodies(tried, group, topic) == Counter(dict.fromkeys(range(100), 2))


@pytest.mark.parametrize(
    ("options", "columns", "what"),
    [
        ({"nodes": ""}, "body", "nodes"),
        ({"path": "/tmp/x"}, "body", "no such option"),
        ({"topic": ""}, "body", "no topic"),
        ({"packBytes": "1"}, "body", "too small"),
        ({"jobId": "a b"}, "body", "no name of a sink"),
        ({}, "queueKey", "needs the column body"),
        ({}, "body, 1 as strange", "no such column"),
        ({}, "body, 'x' as flag", "another type"),
    ],
)
def test_what_cannot_be_used_is_named(
    spark: SparkSession, options: dict[str, str], columns: str, what: str
) -> None:
    given = {"nodes": "ipc:///nowhere", "topic": TOPIC, **options}
    frame = numbers(spark, 0, 1, 1).selectExpr(*columns.split(", "))
    with pytest.raises(Exception, match=what):
        frame.write.format("ledgermq").mode("append").options(**given).save()
