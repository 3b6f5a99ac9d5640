"""Orders of each customer counted as they come, each order once, into another topic: a notebook.

python examples/spark_counts.py tcp://a:10922,tcp://b:10922 /var/lib/spark/counts

The first argument has the addresses of the nodes, the second one is the folder of the query's
checkpoint. In the topic ``orders`` the tag is a customer, and the message's key is the order: one
that an application has sent twice counts once. The topic ``counts`` gets a message each time that a
customer's count has changed, and what was read is committed with it, for the group ``counting``.
Each run reads what is new.
"""

# %% A session. Keys that were seen are state, which Spark keeps in RocksDB.
import os
import sys
from collections.abc import Iterator
from typing import Any

from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from ledgermq.pipeline.spark_source import register

nodes, folder = sys.argv[1:3]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
provider = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
spark.conf.set("spark.sql.streaming.stateStore.providerClass", provider)
register(spark)


# %% What is kept for each customer: its count, and for a day the orders that were seen. Time is
# that of the messages: it goes on as they come.
HOUR_MS = 3_600_000


class CountOnce(StatefulProcessor):
    """Counts orders; one that was seen within a day is not counted again."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Name the state."""
        self.handle = handle
        self.count = handle.getValueState("count", "orders bigint")
        self.seen = handle.getMapState("seen", "id string", "hour bigint")

    def handleInputRows(  # noqa: N802 - Spark's name
        self, key: Any, rows: Iterator[Row], _timers: Any
    ) -> Iterator[Row]:
        """The customer's count, if it is another one now."""
        before = self.count.get()[0] if self.count.exists() else 0
        count = before
        for row in rows:
            if not self.seen.containsKey((row["order"],)):
                hour = row["stored_ms"] // HOUR_MS + 1
                self.seen.updateValue((row["order"],), (hour,))
                self.handle.registerTimer(hour * HOUR_MS)
                count += 1
        if count > before:
            self.count.update((count,))
            yield Row(customer=key[0], orders=count)

    def handleExpiredTimer(  # noqa: N802 - Spark's name
        self, _key: Any, _timers: Any, expired: Any
    ) -> Iterator[Row]:
        """Forget the orders of an hour that is a day ago."""
        hour = expired.getExpiryTimeInMs() // HOUR_MS
        old = [order for order, (stored,) in self.seen.iterator() if stored <= hour]
        for order in old:
            self.seen.removeKey(order)
        return iter(())


# %% From topic to topic: rows and offsets are committed together. A topic is appended to.
orders = (
    spark.readStream.format("ledgermq")
    .option("nodes", nodes)
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("group", "counting")
    .option("columns", "tags,keys,storeTimestamp")
    .load()
    .withWatermark("storeTimestamp", "1 day")
    .select(
        f.col("tags").alias("customer"),
        f.col("keys").alias("order"),
        f.unix_millis("storeTimestamp").alias("stored_ms"),
        "storeTimestamp",
    )
)
counts = orders.groupBy("customer").transformWithState(
    CountOnce(), "customer string, orders bigint", "append", "eventTime"
)
query = (
    counts.select(
        f.col("customer").alias("queueKey"),
        f.col("customer").alias("tags"),
        f.col("orders").cast("string").alias("body"),
    )
    .writeStream.format("ledgermq")
    .option("nodes", nodes)
    .option("topic", "counts")
    .option("commitOffsets", "true")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# %% The last count of each customer.
told = (
    spark.read.format("ledgermq")
    .option("nodes", nodes)
    .option("subscribe", "counts")
    .option("columns", "tags,queueOffset,body")
    .load()
)
newest = told.groupBy("tags").agg(f.max_by(f.col("body").cast("string"), "queueOffset"))
for customer, count in newest.orderBy("tags").collect():
    print(f"{customer}: {count}")
