"""A driver of Spark that is killed: two streams of one store, into Parquet and into a plain file.

    python -m tests.spark.killed_driver STORE FOLDER

The second one is the control: a sink that appends, and knows nothing of batches. It stops dead
behind its first batch, between its own commit and Spark's.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamReader, DataStreamWriter

from ledgermq.pipeline.spark_source import register
from tests.spark.conftest import SETTINGS
from tests.spark.started_streams import run_to_end

ROWS_PER_BATCH = 10
"""While it waits to be killed: each batch is a chance."""
STARTED = "started"


def reader_of(spark: SparkSession, *, rows: int) -> DataStreamReader:
    """The stream of all messages of a store, so many at once."""
    options = {
        "subscribePattern": ".*",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(rows),
        "columns": "physicalOffset",
    }
    return spark.readStream.format("ledgermq").options(**options)


def append(frame: DataFrame, control: Path) -> None:
    """Put the rows behind those that are there."""
    rows = frame.select("physicalOffset").collect()
    with control.open("a") as file:
        file.writelines(f"{row.physicalOffset}\n" for row in rows)
        file.flush()
        os.fsync(file.fileno())


def parquet_of(reader: DataStreamReader, store: str, folder: Path) -> DataStreamWriter:
    """The stream whose rows must be there once."""
    writer = reader.load(store).writeStream.format("parquet").option("path", str(folder / "rows"))
    return writer.option("checkpointLocation", str(folder / "checkpoint"))


def run_or_end(writer: DataStreamWriter) -> None:
    """Run a query; the whole driver ends when it fails, and its log says why."""
    try:
        run_to_end(writer, timeout_s=None)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main() -> None:
    """Run until killed."""
    store, folder = sys.argv[1], Path(sys.argv[2])
    builder = SparkSession.builder.master("local[2]").appName("killed")
    for name, value in {**SETTINGS, "spark.local.dir": str(folder / "local")}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    never = threading.Event()

    def append_and_stop(frame: DataFrame, _batch: int) -> None:
        append(frame, folder / "control.txt")
        (folder / "appended").touch()
        never.wait()

    control = (
        reader_of(spark, rows=ROWS_PER_BATCH)
        .load(store)
        .writeStream.foreachBatch(append_and_stop)
        .option("checkpointLocation", str(folder / "control"))
    )
    threading.Thread(target=run_or_end, args=(control,), daemon=True).start()
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    pid = jvm.java.lang.ProcessHandle.current().pid()
    (folder / "pid").write_text(str(pid))
    (folder / "pid").rename(folder / STARTED)
    rows = parquet_of(reader_of(spark, rows=ROWS_PER_BATCH), store, folder)
    run_to_end(rows, timeout_s=None)


if __name__ == "__main__":
    main()
