"""How many rows a second does Spark get from a store, and how soon does it see a new message?

Estimate beforehand, two cores, 1 KiB, page cache: a task's Python makes 1.2 million rows a second
with all columns, and writes them as Arrow through a socket to the JVM, 1.3 GB/s at best; the JVM
reads them in a thread of its own. So the socket is the limit: some 500,000 rows a second with
bodies, and a million without. A new message waits half a trigger (50 ms), one look at the store
(20 ms), and a batch of Spark with its two commits (150 ms): a quarter of a second.

    python -m bench.pipeline_scan [--smoke] [--directory DIR] [--gib N]
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from bench.machine import spread, write
from bench.made_store import BODY_SIZE, asked_for, build_queues, write_log
from bench.node import BenchNode, bench_node
from bench.pipeline_parse import CASES
from bench.spark_session import spark_session
from ledgermq.client import Producer
from ledgermq.pipeline.source.store_source import StoreSource

SLOTS = (1, 2)
TOPIC = "bench"
TRIGGER_MS = 100
LOOK_S = 0.005
VISIBLE_MAX_S = 120


def scanned_rows_per_s(session: SparkSession, root: Path, columns: Sequence[str]) -> float:
    """Rows a second of wall time, from the plan to the last row in the JVM."""
    reader = session.read.format("ledgermq").option("columns", ",".join(columns))
    begin = time.perf_counter()
    frame = reader.option("subscribe", TOPIC).load(str(root))
    frame.write.format("noop").mode("overwrite").save()
    return messages_in(root) / (time.perf_counter() - begin)


def messages_in(root: Path) -> int:
    """How many messages the queues hold."""
    source = StoreSource(root)
    held = source.bounds(source.queues()).values()
    source.close()
    return sum(range_.end - range_.first for range_ in held)


def visible_ms(
    session: SparkSession, node: BenchNode, folder: Path, *, way: str, messages: int
) -> list[float]:
    """From each send to when the Parquet sink has committed the file with the message."""
    place = {"path": str(node.directory / "store"), "nodes": node.address}[way]
    sink = folder / way
    times: list[float] = []
    with Producer(node.address) as producer:
        producer.send(TOPIC, b"first").result(60)
        query = (
            session.readStream.format("ledgermq")
            .options(subscribe=TOPIC, startingOffsets="earliest")
            .option(way, place)
            .load()
            .writeStream.format("parquet")
            .option("checkpointLocation", str(folder / f"{way}-checkpoint"))
            .trigger(processingTime=f"{TRIGGER_MS} milliseconds")
            .start(str(sink / "rows"))
        )
        _wait_for_batches(sink / "rows", 1)
        for _ in range(messages):
            before = len(_batches(sink / "rows"))
            begin = time.perf_counter()
            producer.send(TOPIC, b"next").result(60)
            _wait_for_batches(sink / "rows", before + 1)
            times.append((time.perf_counter() - begin) * 1_000)
        query.stop()
    return times


def _batches(rows: Path) -> set[str]:
    """Batches that the sink has committed; readers of the folder go by these files."""
    try:
        names = [path.name for path in (rows / "_spark_metadata").iterdir()]
    except FileNotFoundError:
        return set()
    return {name.partition(".")[0] for name in names if not name.startswith(".")}


def _wait_for_batches(rows: Path, count: int) -> None:
    until = time.monotonic() + VISIBLE_MAX_S
    while len(_batches(rows)) < count:
        assert time.monotonic() < until, f"not visible within {VISIBLE_MAX_S} s"
        time.sleep(LOOK_S)


def main() -> None:
    """Make a store, scan it, follow a node, write the figures down."""
    asked = asked_for(__doc__, gib=1.0)
    runs = 2 if asked.smoke else 7
    messages = 3 if asked.smoke else 60
    figures: dict[str, object] = {"body_size": BODY_SIZE, "trigger_ms": TRIGGER_MS}
    with tempfile.TemporaryDirectory(dir=asked.directory) as scratch:
        folder = Path(scratch)
        root = folder / "store"
        root.mkdir()
        write_log(root, size=asked.size, file_size=min(asked.size, 2**30))
        build_queues(root)
        for slots in SLOTS:
            with spark_session(folder, slots=slots) as session:
                for name in ("all", "no_body", "three"):
                    # The first one starts Python's workers and compiles the JVM's code.
                    rates = [
                        scanned_rows_per_s(session, root, CASES[name]) for _ in range(runs + 1)
                    ]
                    figures[f"krows_per_s_{name}_local_{slots}"] = spread(
                        [rate / 1_000 for rate in rates[1:]]
                    )
        with spark_session(folder, slots=2) as session:
            for way in ("path", "nodes"):
                with bench_node(folder, ack="majority-fsync") as node:
                    times = visible_ms(session, node, folder, way=way, messages=messages + 1)
                    figures[f"visible_ms_{way}"] = spread(times[1:])
    if asked.smoke:
        print(figures)
    else:
        write("pipeline_scan", figures)


if __name__ == "__main__":
    main()
