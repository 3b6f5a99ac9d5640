"""Orders in a store directory, looked at with Spark: a notebook, cell by cell.

python examples/spark_orders.py /var/lib/ledgermq/store /tmp/orders

The first argument is a store directory (that of a running node will do), the second one a folder
for Parquet files. The topic is ``orders``; tags are its kinds.
"""

# %% A session. Workers must run the Python that has this package.
import os
import sys

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from ledgermq.pipeline.spark_source import register

store, folder = sys.argv[1:3]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
register(spark)

# %% All orders, without their bodies: that is twice as fast. Several questions, one scan.
orders = (
    spark.read.format("ledgermq")
    .option("subscribe", "orders")
    .option("columns", "queueId,queueOffset,tags,keys,bornTimestamp,storeTimestamp")
    .load(store)
    .cache()
)
print("orders:", orders.count())

# %% How many of each kind.
kinds = orders.groupBy("tags").count().orderBy("tags")
for row in kinds.collect():
    print(f"{row.tags}: {row['count']}")

# %% Is any queue's numbering broken? Offsets follow one another without a gap.
gaps = (
    orders.groupBy("queueId")
    .agg(f.count("*").alias("rows"), f.max("queueOffset") - f.min("queueOffset") + 1)
    .toDF("queueId", "rows", "numbers")
    .where("rows <> numbers")
)
print("queues with gaps:", gaps.count())
orders.unpersist()

# %% What is new since the last time, into Parquet: run it again and again.
arrivals = (
    spark.readStream.format("ledgermq")
    .option("subscribe", "orders")
    .option("startingOffsets", "earliest")
    .option("maxOffsetsPerTrigger", 100_000)
    .load(store)
)
query = (
    arrivals.select("keys", "tags", "storeTimestamp", f.col("body").cast("string").alias("order"))
    .writeStream.format("parquet")
    .option("checkpointLocation", f"{folder}/checkpoint")
    .trigger(availableNow=True)
    .start(f"{folder}/orders")
)
query.awaitTermination()
archived = spark.read.parquet(f"{folder}/orders")
print("archived:", archived.count())
