"""What do a million pending timers cost, and how late are 20,000 a second delivered?

Estimate beforehand: a timer is 33 bytes in the broker, so 32 MiB for a million, and as much again
for a moment while runs of them are merged. A group of 512 is one order to the writer and one sync,
some 3 ms; what becomes of a record is 10 µs of Python in the broker and 5 in the writer, so 20,000
a second are a third of one processor, and each waits for the group before it: 15 ms. A start reads
the timers' queue, 250 bytes a timer: a second for a million.

    python -m bench.timers [--smoke] [--directory DIR] [--pending N] [--rate N] [--seconds N]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import closing
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import zmq

from bench.machine import spread, write
from bench.node import BenchNode, bench_node
from bench.processes import end_in_order, memory_mib
from ledgermq.client import Consumer, Producer, ProducerOptions
from ledgermq.client.blocking.broker import Broker
from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.nodes import broker_link

TOPIC = "due"
QUEUES = 4
BODY = b"x" * 100
TIMEOUT_S = 120.0
PATIENCE_S = 300.0
DAY_MS = 86_400_000
LEAD_S = 3.0
"""So long before the first is due the last of them is to be stored."""

STORED_PER_S = 15_000
"""Less than what one producer stores on two cores."""

TARGET_MS = 50


def waiting(node: BenchNode) -> int:
    """Timers that wait, as the node counts them."""
    link = broker_link(zmq.Context.instance(), parse_addresses(node.address), client="bench")
    with closing(link):
        return Broker(link, timeout_s=TIMEOUT_S).timers(count=1).waiting


def wait_waiting(node: BenchNode, count: int) -> None:
    """Until the node counts so many: what is acknowledged comes to the queues a moment later."""
    until = time.monotonic() + PATIENCE_S
    while (found := waiting(node)) != count:
        assert time.monotonic() < until, (found, count)
        time.sleep(0.1)


def store_far(producer: Producer, count: int) -> float:
    """Timers a second that are stored, each with its own time weeks ahead."""
    due = int(time.time() * 1000) + 30 * DAY_MS
    begin = time.perf_counter()
    for number in range(count):
        # Neither in order nor all at once.
        producer.send(TOPIC, BODY, deliver_at=due + number * 7_919 % DAY_MS)
    producer.flush()
    return count / (time.perf_counter() - begin)


def store_due(producer: Producer, rate: int, seconds: float) -> int:
    """Timers that come due at an even rate, once all are stored; when the first is (epoch ms)."""
    count = int(rate * seconds)
    begin_ms = int((time.time() + LEAD_S + count / STORED_PER_S) * 1000)
    for number in range(count):
        producer.send(
            TOPIC, BODY, queue_id=number % QUEUES, deliver_at=begin_ms + number * 1000 // rate
        )
    producer.flush()
    assert time.time() * 1000 < begin_ms, "stored too slowly: they were due before"
    return begin_ms


def watch(address: str, count: int, answer: Connection) -> None:
    """Lateness of each of so many messages (ms): stored, and seen; in a process of its own."""
    stored = np.empty(count, np.float64)
    seen = np.empty(count, np.float64)
    at = 0
    with Consumer(address, topic=TOPIC, start="last") as consumer:
        consumer.poll(0.0)
        answer.send(True)
        until = time.monotonic() + PATIENCE_S
        while at < count and time.monotonic() < until:
            batch = consumer.poll(1.0)
            now_ms = time.time() * 1000
            for message in batch:
                due = int(message.properties["DELIVER_AT"])
                stored[at], seen[at] = message.store_timestamp - due, now_ms - due
                at += 1
    answer.send((stored[:at], seen[:at]))


def lateness(node: BenchNode, rate: int, seconds: float) -> dict[str, float]:
    """How late timers at such a rate are in their topic's log, and with a consumer."""
    context = get_context("spawn")
    ours, theirs = context.Pipe()
    count = int(rate * seconds)
    watcher = context.Process(target=watch, args=(node.address, count, theirs))
    watcher.start()
    theirs.close()
    try:
        assert ours.poll(PATIENCE_S), "no consumer"
        ours.recv()
        with Producer(node.address, options=ProducerOptions(compress_above=None)) as producer:
            store_due(producer, rate, seconds)
        assert ours.poll(PATIENCE_S), "timers were not delivered"
        stored, seen = ours.recv()
    finally:
        watcher.terminate()
        watcher.join()
    assert len(stored) == count, f"{len(stored)} of {count} delivered"
    figures: dict[str, float] = {}
    for name, late in (("stored", stored), ("seen", seen)):
        for quantile, label in ((0.5, "p50"), (0.99, "p99"), (1.0, "max")):
            figures[f"{name}_late_ms_{label}"] = float(np.quantile(late, quantile))
    figures["earliest_ms"] = float(stored.min())
    figures["within_target_percent"] = 100 * float((stored <= TARGET_MS).mean())
    return figures


def served_after(base: Path, directory: Path, pending: int) -> dict[str, float]:
    """A start with so many pending: until one that is stored now is delivered, and all counted."""
    begin = time.monotonic()
    with bench_node(base, ack="majority-fsync", directory=directory) as node:
        figures = {"start_s": node.ready_after_s}
        with (
            Producer(node.address) as producer,
            Consumer(node.address, topic=TOPIC, start="last") as consumer,
        ):
            consumer.poll(0.0)
            producer.send(TOPIC, b"now", deliver_at=int(time.time() * 1000)).result()
            while not any(bytes(message.body) == b"now" for message in consumer.poll(TIMEOUT_S)):
                pass
        figures["start_to_delivery_s"] = time.monotonic() - begin
        wait_waiting(node, pending)
        figures["broker_mib_started"] = settled_mib(node)
        figures["stop_s"] = time.monotonic()
    figures["stop_s"] = time.monotonic() - figures["stop_s"]
    return figures


def settled_mib(node: BenchNode) -> float:
    """PSS of the broker once it has given back what it read."""
    broker_name = next(name for name in memory_mib(node.process.pid) if "broker" in name)
    last = memory_mib(node.process.pid)[broker_name]
    for _ in range(10):
        time.sleep(2.0)
        now = memory_mib(node.process.pid)[broker_name]
        if abs(now - last) < 0.2:
            break
        last = now
    return last


def measure(base: Path, *, pending: int, rate: int, seconds: float) -> dict[str, float]:
    """All figures of one node."""
    directory = Path(tempfile.mkdtemp(prefix="timers-", dir=base))
    figures: dict[str, float] = {}
    with bench_node(base, ack="majority-fsync", directory=directory) as node:
        with Producer(node.address, options=ProducerOptions(compress_above=None)) as producer:
            for queue in range(QUEUES):
                producer.send(TOPIC, b"", queue_id=queue).result()
            figures["broker_mib_before"] = settled_mib(node)
            figures["stored_per_s"] = store_far(producer, pending)
        wait_waiting(node, pending)
        figures["broker_mib_pending"] = settled_mib(node)
        figures["broker_mib_more"] = figures["broker_mib_pending"] - figures["broker_mib_before"]
        figures |= lateness(node, rate, seconds)
    return figures | served_after(base, directory, pending)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    parser.add_argument("--pending", type=int, default=1_000_000)
    parser.add_argument("--rate", type=int, default=20_000, help="timers due a second")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long they fall due")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    end_in_order()
    pending, rate, seconds, runs = given.pending, given.rate, given.seconds, given.runs
    if given.smoke:
        pending, rate, seconds, runs = 20_000, min(rate, 2_000), 2.0, 1
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        rows = [
            measure(Path(scratch), pending=pending, rate=rate, seconds=seconds) for _ in range(runs)
        ]
    figures: dict[str, object] = {
        "pending": pending, "rate": rate, "seconds": seconds, "runs": runs,
        "target_late_ms": TARGET_MS,
        **{name: spread([row[name] for row in rows]) for name in rows[0]},
    }  # fmt: skip
    if given.smoke:
        print(figures)
    else:
        write("timers", figures)


if __name__ == "__main__":
    main()
