"""How many messages a second does a group of three take, beside NATS JetStream R3?

Three loads: batches (two producers, frames of 64, 16 of them unanswered), 32 in flight (one message
a frame), one in flight. Estimate beforehand: three nodes and the clients share two cores, so each
entry costs its leader's path once and its followers' twice: a third of a single node's throughput.

    python -m bench.group_produce [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections import deque
from multiprocessing.connection import Connection
from pathlib import Path

from bench.group import BenchGroup, bench_group
from bench.machine import spread, write
from bench.produce_throughput import IN_FLIGHT, PRODUCERS, TOPIC, produce
from bench.rivals import jetstream
from ledgermq.client import Producer

SIZE = 1024
SINGLY_IN_FLIGHT = 16
"""Of each of the two producers; the rival has as many connections with one each."""

DURABILITY = {"majority-memory": False, "majority-fsync": True}
"""Our modes, and the rival's ``sync_interval: always`` that each is compared with."""


def produce_singly(address: str, size: int, seconds: float, result: Connection) -> None:
    """One producer process: a frame for each message, ``SINGLY_IN_FLIGHT`` of them unanswered."""
    body = b"x" * size
    latencies: list[float] = []
    with Producer(address) as producer:
        producer.send(TOPIC, body).result()
        result.send("ready")
        result.recv()
        waiting = deque()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            while len(waiting) < SINGLY_IN_FLIGHT:
                waiting.append((time.perf_counter(), producer.send_batch(TOPIC, [body])))
            begin, future = waiting.popleft()
            future.result()
            latencies.append((time.perf_counter() - begin) * 1_000)
        while waiting:
            waiting.popleft()[1].result()
    latencies.sort()
    result.send((len(latencies) / seconds, latencies[len(latencies) // 2]))


def one_in_flight(address: str, seconds: float) -> tuple[float, float]:
    """Milliseconds at the median, and at 99 per cent."""
    latencies: list[float] = []
    with Producer(address) as producer:
        for _ in range(200):
            producer.send(TOPIC, b"x" * SIZE, tag="TagA").result()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begin = time.perf_counter()
            producer.send(TOPIC, b"x" * SIZE, tag="TagA").result()
            latencies.append((time.perf_counter() - begin) * 1_000)
    latencies.sort()
    return latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]


def run_ledgermq(base: Path, *, ack: str, seconds: float) -> dict[str, float]:
    """All three loads on one group."""
    context = multiprocessing.get_context("spawn")
    figures: dict[str, float] = {}
    with bench_group(base, ack=ack) as group:
        results, lag = _together(context, group, produce, PRODUCERS, seconds)
        figures["batches, messages/s"] = sum(results)
        figures["batches, dispatch behind by s"] = lag
        results, _ = _together(context, group, produce_singly, PRODUCERS, seconds)
        figures["32 in flight, messages/s"] = sum(rate for rate, _ in results)
        figures["32 in flight, p50 ms"] = max(p50 for _, p50 in results)
        p50, p99 = one_in_flight(group.addresses, seconds)
        figures["1 in flight, p50 ms"] = p50
        figures["1 in flight, p99 ms"] = p99
    return figures


def _together(context, group: BenchGroup, target, count: int, seconds: float):
    pairs = [context.Pipe() for _ in range(count)]
    processes = [
        context.Process(target=target, args=(group.addresses, SIZE, seconds, theirs))
        for _, theirs in pairs
    ]
    for process in processes:
        process.start()
    for ours, _ in pairs:
        ours.recv()
    for ours, _ in pairs:
        ours.send("go")
    results = [ours.recv() for ours, _ in pairs]
    begin = time.perf_counter()
    while group.dispatch_lag_bytes() and time.perf_counter() - begin < 30:
        time.sleep(0.001)
    lag = time.perf_counter() - begin
    for process in processes:
        process.join(30)
    return results, lag


def run_nats(base: Path, *, sync_always: bool, seconds: float) -> dict[str, float]:
    """The same loads on NATS; its async client keeps 512 messages under way."""
    figures: dict[str, float] = {}
    with jetstream.jetstream_group(base, sync_always=sync_always) as url:

        def load(mode: str, clients: int) -> jetstream.NatsLoad:
            return jetstream.load(
                url, mode=mode, clients=clients, size=SIZE, seconds=seconds, replicas=3
            )

        figures["batches, messages/s"] = load("async", PRODUCERS).messages_per_second
        many = load("sync", PRODUCERS * SINGLY_IN_FLIGHT)
        figures["32 in flight, messages/s"] = many.messages_per_second
        figures["32 in flight, p50 ms"] = many.p50_ms
        one = load("sync", 1)
        figures["1 in flight, p50 ms"] = one.p50_ms
        figures["1 in flight, p99 ms"] = one.p99_ms
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    seconds, runs = (1.5, 1) if given.smoke else (5.0, 3)
    rows: dict[str, list[dict[str, float]]] = {}
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        for _ in range(runs):
            for ack, sync_always in DURABILITY.items():
                own = run_ledgermq(Path(scratch), ack=ack, seconds=seconds)
                rows.setdefault(f"ledgermq {ack}", []).append(own)
                name = "nats R3, " + ("sync_interval always" if sync_always else "default")
                theirs = run_nats(Path(scratch), sync_always=sync_always, seconds=seconds)
                rows.setdefault(name, []).append(theirs)
    figures: dict[str, object] = {
        "nodes": 3,
        "body_bytes": SIZE,
        "producers": PRODUCERS,
        "batches_in_flight": IN_FLIGHT,
        "seconds": seconds,
        "runs": runs,
    }
    for name, measured in rows.items():
        figures[name] = {key: spread([row[key] for row in measured]) for key in measured[0]}
    if given.smoke:
        print(figures)
    else:
        write("group_produce", figures)


if __name__ == "__main__":
    main()
