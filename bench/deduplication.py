"""What does a window of de-duplication cost a producer, in memory and beyond it?

Estimate beforehand: to hash an id, to look it up in sixteen tables and to note it is a
microsecond of the writer, beside two or three for all else: a quarter less. Beyond memory there are
three look-ups more an id and index file, each a cache miss or two: half a microsecond more while
the index is in the page cache. A duplicate is read, compared with its CRC and told in Python: 5 µs.

    python -m bench.deduplication [--smoke] [--directory DIR] [--messages N]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from bench.machine import spread, write
from bench.node import BenchNode, bench_node
from bench.processes import end_in_order, processes_of
from ledgermq.client import Admin, OutgoingMessage, Producer, ProducerOptions
from ledgermq.client.core.results import BatchResult
from ledgermq.client.sending.send_future import SendFuture

PLAIN, SHORT, LONG = "plain", "short", "long"
SHORT_MS = 5_000
LONG_MS = 24 * 3_600_000
BODY = b"x" * 100
BATCH = 256
UNDER_WAY = 64


def batches(prefix: str, count: int) -> Iterator[list[OutgoingMessage]]:
    """``count`` messages with ids of their own."""
    for begin in range(0, count, BATCH):
        yield [
            OutgoingMessage(BODY, unique_id=f"{prefix}-{number:024d}")
            for number in range(begin, min(count, begin + BATCH))
        ]


def send_all(node: BenchNode, topic: str, prefix: str, count: int) -> tuple[float, float]:
    """Messages a second that are answered, and microseconds of the writer's processor for each."""
    made = list(batches(prefix, count))
    under_way: deque[SendFuture[BatchResult]] = deque()
    writer = next(one for one in processes_of(node.process.pid) if "writer" in one.name())
    with Producer(node.address, options=ProducerOptions(compress_above=None)) as producer:
        producer.send(topic, b"first").result()
        used = sum(writer.cpu_times()[:2])
        begin = time.perf_counter()
        for batch in made:
            under_way.append(producer.send_batch(topic, batch))
            if len(under_way) > UNDER_WAY:
                under_way.popleft().result()
        while under_way:
            under_way.popleft().result()
        taken = time.perf_counter() - begin
        used = sum(writer.cpu_times()[:2]) - used
        again = producer.send_batch(topic, made[-1]).result()
        assert topic == PLAIN or all(one.is_duplicate for one in again), "an id was forgotten"
    return count / taken, 1e6 * used / count


def measure(base: Path, count: int) -> dict[str, float]:
    """All figures of one node."""
    directory = Path(tempfile.mkdtemp(prefix="deduplication-", dir=base))
    figures: dict[str, float] = {}

    def note(node: BenchNode, name: str, topic: str, prefix: str) -> None:
        figures[f"{name}_per_s"], figures[f"{name}_writer_us"] = send_all(
            node, topic, prefix, count
        )

    with bench_node(base, ack="majority-fsync", directory=directory) as node:
        with Admin(node.address) as admin:
            admin.create_topic(PLAIN, queues=4)
            admin.create_topic(SHORT, queues=4, deduplication_window_ms=SHORT_MS)
            admin.create_topic(LONG, queues=4, deduplication_window_ms=LONG_MS)
        note(node, "plain", PLAIN, "first")
        send_all(node, SHORT, "zeroth", BATCH)
        time.sleep(SHORT_MS / 1_000)
        # Memory reaches back as far as the window now: nothing has to be looked up behind it.
        note(node, "window", SHORT, "first")
        note(node, "first", LONG, "first")
        note(node, "duplicates", LONG, "first")
    # A writer that was just started has nothing in memory: each id is looked up in the index.
    with bench_node(base, ack="majority-fsync", directory=directory) as node:
        note(node, "index", LONG, "second")
        note(node, "index_duplicates", LONG, "first")
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    parser.add_argument("--messages", type=int, default=1_000_000, help="of each kind")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    end_in_order()
    count, runs = (20_000, 1) if given.smoke else (given.messages, given.runs)
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        rows = [measure(Path(scratch), count) for _ in range(runs)]
    figures: dict[str, object] = {
        "messages": count, "runs": runs, "batch": BATCH,
        **{name: spread([row[name] for row in rows]) for name in rows[0]},
    }  # fmt: skip
    if given.smoke:
        print(figures)
    else:
        write("deduplication", figures)


if __name__ == "__main__":
    main()
