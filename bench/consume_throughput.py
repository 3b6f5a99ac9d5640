"""How many messages a second does a consumer get from the log, as batches and one by one, and what
does a copy of each body cost?

Estimate beforehand: a message of 1 KiB crosses one socket, about 0.8 µs of copies; as batches
nothing runs once a message, so some 700,000 a second; one by one costs the client 3 µs of Python.

    python -m bench.consume_throughput [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench.idle import fill
from bench.machine import spread, write
from bench.node import bench_node
from ledgermq.client import Consumer


def consume(address: str, messages: int, how: str) -> tuple[float, int]:
    """Messages a second, and a digest of what was received: bytes, or bodies and queue offsets."""
    digest = 0
    received = 0
    with Consumer(address, topic="bench", start="first") as consumer:
        begin = time.perf_counter()
        while received < messages:
            batch = consumer.poll(5.0)
            assert len(batch), (received, messages)
            received += len(batch)
            if how == "as batches":
                digest += batch.size
            elif how == "one by one":
                for message in batch:
                    digest += len(message.body) + message.queue_offset
            else:
                for message in batch:
                    digest += len(message.body_view) + message.queue_offset
        return received / (time.perf_counter() - begin), digest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    size, runs = (2**24, 1) if given.smoke else (2**30, 5)
    messages = size // 1_250
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        base = Path(scratch)
        with bench_node(base, ack="majority-memory") as node:
            fill(node.address, size)
            rows: dict[str, list[float]] = {
                "as batches": [],
                "one by one": [],
                "one by one, as views": [],
            }
            for _ in range(runs):
                for name, rates in rows.items():
                    rate, _ = consume(node.address, messages, name)
                    rates.append(rate)
    figures: dict[str, object] = {
        "body_bytes": 1024,
        "messages": messages,
        "runs": runs,
        "rocketmq_4_9_4_push_consumer, measured on such a machine": 49_819,
        **{name: spread(rates) for name, rates in rows.items()},
    }
    if given.smoke:
        print(figures)
    else:
        write("consume_throughput", figures)


if __name__ == "__main__":
    main()
