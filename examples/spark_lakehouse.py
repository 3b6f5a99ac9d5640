"""Orders in a lake: archived into an Iceberg table, asked by Spark and by DuckDB, given a column
later, and as they were at a moment that is past: a notebook.

python examples/spark_lakehouse.py tcp://a:10922,tcp://b:10922 lake.mq.orders \
    s3://backups/orders-a 2026-11-24T09:30:00Z /srv/as-it-was

The arguments are the nodes of a group; a table of a catalog in PyIceberg's configuration, whose
warehouse may be a bucket (then Spark needs Hadoop's s3a, by ``spark.jars`` and
``spark.hadoop.fs.s3a.*``); the repository of the group's backup stream; a moment; and a folder that
is not there yet. The body of an order is a JSON object with ``customer`` and ``cents``. Each run
archives what is new.
"""

# %% A session, and the commands as a shell has them.
import os
import sys

import duckdb
from pyiceberg.catalog import load_catalog
from pyiceberg.types import StringType
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from ledgermq.cli.main import main
from ledgermq.pipeline.spark_source import register

nodes, name, repository, moment, folder = sys.argv[1:6]
os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
register(spark)


def ledgermq(*words: str) -> None:
    """Run a command; the notebook ends where it fails."""
    status = main([*words])
    if status:
        sys.exit(status)


# %% One run into the table: one snapshot, with how far it came. Again, it adds nothing.
ledgermq("spark", "archive", "--nodes", nodes, "--topics", "orders", "--iceberg", name)
catalog, _, path = name.partition(".")
table = load_catalog(catalog).load_table(path)
run = table.current_snapshot().summary.additional_properties["ledgermq.run"]
print(f"runs: {run}")

# %% What each customer has ordered, asked by Spark of the files that the table has.
files = [task.file.file_path.replace("s3://", "s3a://", 1) for task in table.scan().plan_files()]
order = f.from_json(f.col("body").cast("string"), "customer string, cents bigint")
orders = spark.read.parquet(*files).select(order.alias("order")).select("order.*")
sums = orders.groupBy("customer").agg(f.sum("cents")).orderBy("customer")
by_spark = [tuple(row) for row in sums.collect()]
print("Spark:", ", ".join(f"{customer} {cents}" for customer, cents in by_spark))

# %% And by DuckDB, of the rows as PyIceberg reads them.
duck = duckdb.connect()
duck.register("messages", table.scan(selected_fields=("body",)).to_arrow())
by_duck = duck.sql("""
    SELECT decode(body)->>'customer' AS customer, sum((decode(body)->>'cents')::BIGINT)::BIGINT
    FROM messages GROUP BY 1 ORDER BY 1
""").fetchall()
print("DuckDB has the same:", by_duck == by_spark)

# %% A column of our own, later. Rows that are there have nothing in it, nor have those to come.
if "region" not in table.schema().column_names:
    with table.update_schema() as schema:
        schema.add_column("region", StringType())
without = table.scan(row_filter="region is null", selected_fields=("queueOffset",)).to_arrow()
print(f"orders without a region: {len(without)}")

# %% The orders as they were at the moment: another group's store, of the backup stream's pieces.
ledgermq(
    "backup", "restore", repository, folder,
    "--to-time", moment, "--group", "as-it-was", "--self-id", "n0",
)  # fmt: skip
then = spark.read.format("ledgermq").option("subscribe", "orders").load(folder)
print(f"orders at {moment}: {then.count()}")
