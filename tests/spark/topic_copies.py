"""A query that makes a row of one topic from each message of another, for a consumer group.

    python -m tests.spark.topic_copies ADDRESSES FOLDER

runs it in small batches until it is killed; ``FOLDER/started`` says that it has begun, and has the
number of the JVM's process.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ledgermq.client import Consumer
from ledgermq.client.broker_connection import connect_broker
from ledgermq.pipeline.spark_source import register
from tests.process.conftest import wait_until
from tests.spark.conftest import SETTINGS
from tests.suite.patience import PATIENCE_S

SOURCE, TARGET = "orders", "other"
QUEUES = 4
GROUP = "copier"
STARTED = "started"
ROWS_PER_BATCH = 20
"""While it waits to be killed: each batch is a chance."""


def copying(
    spark: SparkSession, addresses: list[str], checkpoint: Path, *, rows: int
) -> DataStreamWriter:
    """The query, with so many messages in a batch at most."""
    nodes = ",".join(addresses)
    read = (
        spark.readStream.format("ledgermq")
        .options(nodes=nodes, subscribe=SOURCE, columns="body", group=GROUP)
        .options(startingOffsets="earliest", maxOffsetsPerTrigger=str(rows))
        .load()
    )
    # Rows come from other tasks than those that have read them.
    made = read.select(f.col("body").cast("string").alias("body")).repartition(2, "body")
    return (
        made.writeStream.format("ledgermq")
        .options(nodes=nodes, topic=TARGET, commitOffsets="true")
        .option("checkpointLocation", str(checkpoint))
    )


def copied(addresses: list[str]) -> Counter[int]:
    """How often each number is a row by now; what is committed has become messages."""
    found: Counter[int] = Counter()
    with connect_broker(addresses, name="test", timeout_s=PATIENCE_S) as broker:
        wait_until(
            lambda: not any(one["packs_left"] for one in broker.call("sinks")["sinks"]),
            "rows that are committed to be messages",
        )
        ends = [broker.queue(TARGET, queue).end for queue in range(QUEUES)]
    with Consumer(addresses, topic=TARGET, start="first") as consumer:
        while found.total() < sum(ends):
            found.update(int(one.body) for one in consumer.poll(20))
    return found


def consumed(addresses: list[str]) -> dict[int, int]:
    """Where the group is in each queue of the source."""
    with connect_broker(addresses, name="test", timeout_s=PATIENCE_S) as broker:
        return broker.group_offset(GROUP, SOURCE)


def main() -> None:
    """Run until killed; a query that fails ends it."""
    addresses, folder = sys.argv[1].split(","), Path(sys.argv[2])
    builder = SparkSession.builder.master("local[2,2]").appName("copying")
    for name, value in {**SETTINGS, "spark.local.dir": str(folder / "local")}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    (folder / "jvm").write_text(str(jvm.java.lang.ProcessHandle.current().pid()))
    (folder / "jvm").rename(folder / STARTED)
    copying(spark, addresses, folder / "checkpoint", rows=ROWS_PER_BATCH).start().awaitTermination()


if __name__ == "__main__":
    main()
