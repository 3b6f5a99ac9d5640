"""How many rows a second does Spark write into a group of three, each a message once?

Estimate beforehand, two cores, 1 KiB: a row is replicated twice, staged and as a message. A group
takes 190,000 messages a second in batches, which are half a gigabyte a second of copies and
checksums on the two cores; twice that, and Spark's part of a row (JVM to Python, 1 µs, and its
encoding, 2 µs), leaves 70,000 rows a second. Small rows cost by their number: 150,000.

    python -m bench.pipeline_sink [--smoke] [--directory DIR] [--rows N] [--ack MODE]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from bench.group import BenchGroup, bench_group
from bench.machine import spread, write
from bench.spark_session import spark_session
from ledgermq.client.broker_connection import connect_broker

SLOTS = 2
TOPIC = "bench"
BODY_SIZES = (100, 1024)
ACK = "majority-fsync"


def written_rows_per_s(session: SparkSession, group: BenchGroup, rows: int, size: int) -> float:
    """Rows a second of wall time, until the last one can be consumed."""
    frame = session.range(0, rows, 1, SLOTS).select(
        f.lpad(f.col("id").cast("string"), size, "x").alias("body"),
        (f.col("id") % 7).cast("string").alias("tags"),
        f.col("id").cast("string").alias("keys"),
    )
    before = messages_of(group)
    begin = time.perf_counter()
    frame.write.format("ledgermq").mode("append").options(nodes=group.addresses, topic=TOPIC).save()
    seconds = time.perf_counter() - begin
    found = messages_of(group) - before
    assert found == rows, f"{found} messages of {rows} rows"
    return rows / seconds


def messages_of(group: BenchGroup) -> int:
    """How many messages the topic's queues hold."""
    with connect_broker(group.addresses, name="bench", timeout_s=60) as broker:
        queues = broker.write_queues(TOPIC)
        ranges = [broker.queue(TOPIC, number) for number in range(queues)]
    return sum(one.end - one.begin for one in ranges)


def main() -> None:
    """Start a group, write rows of each size, write the figures down."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--rows", type=int, default=500_000)
    parser.add_argument("--ack", default=ACK)
    arguments = parser.parse_args()
    rows = 20_000 if arguments.smoke else arguments.rows
    runs = 1 if arguments.smoke else 5
    figures: dict[str, object] = {"ack": arguments.ack, "rows": rows}
    with tempfile.TemporaryDirectory(dir=arguments.directory) as scratch:
        folder = Path(scratch)
        with (
            bench_group(folder, ack=arguments.ack, curve=True) as group,
            spark_session(folder, slots=SLOTS) as session,
        ):
            for size in BODY_SIZES:
                # The first one starts Python's workers and compiles the JVM's code.
                rates = [written_rows_per_s(session, group, rows, size) for _ in range(runs + 1)]
                figures[f"krows_per_s_{size}_bytes"] = spread([one / 1_000 for one in rates[1:]])
    if arguments.smoke:
        print(figures)
    else:
        write("pipeline_sink", figures)


if __name__ == "__main__":
    main()
