"""Orders and their payments joined as they come, and what came too late: a notebook.

python examples/spark_joined.py tcp://a:10922,tcp://b:10922 /var/lib/spark/joined

The first argument has the addresses of the nodes, the second one is a folder for checkpoint and
table. Bodies in the topics ``orders`` and ``payments`` are JSON with ``order`` and ``at``, the time
at which it happened. What is more than ten minutes older than the newest of both topics is late: it
is dropped, and counted. Each run reads what is new.
"""

# %% A session.
import json
import os
import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from ledgermq.pipeline.spark_source import register

nodes, folder = sys.argv[1:3]
job = "joining-1"
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
register(spark)


# %% Two topics, and how long one waits for the other.
def events(topic: str, time: str) -> DataFrame:
    """What happened to orders, and when."""
    read = (
        spark.readStream.format("ledgermq")
        .option("nodes", nodes)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .option("columns", "body")
        .load()
    )
    parsed = f.from_json(f.col("body").cast("string"), "order string, at timestamp")
    event = read.select(parsed.alias("event"))
    return event.select(
        f.col("event.order").alias(f"{topic}_order"), f.col("event.at").alias(time)
    ).withWatermark(time, "10 minutes")


ordered, paid = events("orders", "ordered_at"), events("payments", "paid_at")
joined = ordered.join(
    paid,
    f.expr(
        "orders_order = payments_order"
        " AND paid_at BETWEEN ordered_at AND ordered_at + INTERVAL 1 HOUR"
    ),
)
rows = joined.select(
    f.col("orders_order").alias("keys"),
    f.to_json(f.struct("ordered_at", "paid_at")).alias("body"),
)


# %% Each batch into the topic ``paid`` and into a table. Both know the batch's number, so a batch
# that Spark runs again is in neither twice. With a fresh checkpoint numbers begin again at 0: then
# the job needs another name, or its batches are taken for those that were committed.
def write(batch: DataFrame, number: int) -> None:
    """Write one batch."""
    batch.persist()
    (
        batch.write.format("ledgermq")
        .option("nodes", nodes)
        .option("topic", "paid")
        .option("jobId", job)
        .option("jobBatch", number)
        .mode("append")
        .save()
    )
    batch.write.mode("overwrite").parquet(f"{folder}/paid/batch={number}")
    batch.unpersist()


query = (
    rows.writeStream.foreachBatch(write)
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()

# %% What there is by now, and what of this run came too late.
table = spark.read.parquet(f"{folder}/paid")
topic = spark.read.format("ledgermq").option("nodes", nodes).option("subscribe", "paid").load()
dropped = [
    operator["numRowsDroppedByWatermark"]
    for progress in query.recentProgress
    for operator in json.loads(progress.json)["stateOperators"]
]
print("paid:", ", ".join(row["keys"] for row in table.orderBy("keys").collect()))
print("in both:", table.count() == topic.count())
print("too late:", sum(dropped))
