"""How many messages a second does a group of three take, beside NATS JetStream R3 and RocketMQ?

Four loads: batches (two producers, frames of 64, 16 of them unanswered); 32 in flight (two
producers that call ``send`` with 16 messages unanswered); the same with a frame for each message;
one in flight. NATS has its async client for the first two, and 32 connections that wait for each
message for the third; RocketMQ 4.9.4 with DLedger has
batches of 256, 8 of them under way, and its async client, and knows no other durability than a
majority's memory. Estimate beforehand: three nodes and the clients share two cores, so each entry
costs its leader's path once and its followers' twice: a third of a single node's throughput.

    python -m bench.group_produce [--no-curve] [--no-rocketmq] [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TypeVar

from bench.group import BenchGroup, bench_group
from bench.lag import lag_watch
from bench.machine import spread, write
from bench.processes import end_in_order
from bench.produce_throughput import IN_FLIGHT, PRODUCERS, TOPIC, produce
from bench.rivals import jetstream, rocketmq
from ledgermq.client import BatchResult, Producer, ProducerOptions, SendResult
from ledgermq.client.sending.send_future import SendFuture

SIZE = 1024
SINGLY_IN_FLIGHT = 16
"""Of each of the two producers; the rival has as many connections with one each."""

DURABILITY = {"majority-memory": False, "majority-fsync": True}
"""Our modes, and the rival's ``sync_interval: always`` that each is compared with."""

ROCKETMQ_BATCH = 256
ROCKETMQ_BATCHES_IN_FLIGHT = 8
"""Threads, as its client sends a batch and waits; with 2 and with 32 it was slower."""

ROCKETMQ_LONGER = 2
"""Its clients run longer by this factor: each is a new JVM, which compiles at first."""

DISPATCH_TIMEOUT_S = 60.0

Result = TypeVar("Result")

SendOne = Callable[[str, bytes], SendFuture[SendResult] | SendFuture[BatchResult]]


def produce_singly(address: str, size: int, seconds: float, result: Connection) -> None:
    """One producer process: ``send``, with ``SINGLY_IN_FLIGHT`` messages unanswered."""
    _produce_one_by_one(address, size, seconds, result, lambda producer: producer.send)


def produce_in_frames(address: str, size: int, seconds: float, result: Connection) -> None:
    """One producer process: a frame for each message, ``SINGLY_IN_FLIGHT`` of them unanswered."""

    def way(producer: Producer) -> SendOne:
        return lambda topic, body: producer.send_batch(topic, [body])

    _produce_one_by_one(address, size, seconds, result, way)


def _produce_one_by_one(
    address: str,
    size: int,
    seconds: float,
    result: Connection,
    way: Callable[[Producer], SendOne],
) -> None:
    body = b"x" * size
    latencies: list[float] = []
    with Producer(address, options=ProducerOptions(compress_above=None)) as producer:
        producer.send(TOPIC, body).result()
        send = way(producer)
        result.send("ready")
        result.recv()
        waiting: deque[tuple[float, SendFuture[SendResult] | SendFuture[BatchResult]]] = deque()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            while len(waiting) < SINGLY_IN_FLIGHT:
                waiting.append((time.perf_counter(), send(TOPIC, body)))
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
    with Producer(address, options=ProducerOptions(compress_above=None)) as producer:
        for _ in range(200):
            producer.send(TOPIC, b"x" * SIZE, tag="TagA").result()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            begin = time.perf_counter()
            producer.send(TOPIC, b"x" * SIZE, tag="TagA").result()
            latencies.append((time.perf_counter() - begin) * 1_000)
    latencies.sort()
    return latencies[len(latencies) // 2], latencies[len(latencies) * 99 // 100]


def run_ledgermq(base: Path, *, ack: str, curve: bool, seconds: float) -> dict[str, float]:
    """All three loads on one group."""
    figures: dict[str, float] = {}
    with bench_group(base, ack=ack, curve=curve) as group:
        rates: list[float]
        rates, lags = together(group, produce, seconds)
        figures["batches, messages/s"] = sum(rates)
        for number, lag in enumerate(lags):
            figures[f"batches, dispatch of n{number} behind by s at most"] = lag
        loads: list[tuple[float, float]]
        for name, load in (("", produce_singly), (", a frame each", produce_in_frames)):
            loads, _ = together(group, load, seconds)
            figures[f"32 in flight{name}, messages/s"] = sum(rate for rate, _ in loads)
            figures[f"32 in flight{name}, p50 ms"] = max(p50 for _, p50 in loads)
        p50, p99 = one_in_flight(group.addresses, seconds)
        figures["1 in flight, p50 ms"] = p50
        figures["1 in flight, p99 ms"] = p99
    return figures


def together(
    group: BenchGroup, target: Callable[[str, int, float, Connection], None], seconds: float
) -> tuple[list[Result], list[float]]:
    """What producer processes that begin at once measure, and each node's worst dispatch lag."""
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(PRODUCERS)]
    processes = [
        context.Process(target=target, args=(group.addresses, SIZE, seconds, theirs), daemon=True)
        for _, theirs in pairs
    ]
    with ExitStack() as started:
        for process in processes:
            process.start()
            started.callback(process.kill)
        for _, theirs in pairs:
            # So that the end of a producer is the end of its pipe.
            theirs.close()
        for ours, _ in pairs:
            ours.recv()
        with lag_watch({node.name: node.runtime for node in group.nodes}) as watch:
            for ours, _ in pairs:
                ours.send("go")
            results: list[Result] = [ours.recv() for ours, _ in pairs]
            # What is not dispatched when the load ends counts as long as it takes.
            until = time.monotonic() + DISPATCH_TIMEOUT_S
            while not watch.is_level() and time.monotonic() < until:
                time.sleep(0.01)
        for process in processes:
            process.join(30)
    return results, list(watch.worst_s.values())


def run_nats(base: Path, *, sync_always: bool, seconds: float) -> dict[str, float]:
    """The same loads on NATS; its async client keeps 512 messages under way."""
    figures: dict[str, float] = {}
    with jetstream.jetstream_group(base, sync_always=sync_always) as url:

        def load(mode: str, clients: int, pending: int = 512) -> jetstream.NatsLoad:
            return jetstream.load(
                url,
                mode=mode,
                clients=clients,
                size=SIZE,
                seconds=seconds,
                replicas=3,
                pending=pending,
            )

        figures["batches, messages/s"] = load("async", PRODUCERS).messages_per_second
        few = load("async", PRODUCERS, SINGLY_IN_FLIGHT)
        figures["32 in flight, messages/s"] = few.messages_per_second
        many = load("sync", PRODUCERS * SINGLY_IN_FLIGHT)
        figures["32 in flight, a frame each, messages/s"] = many.messages_per_second
        figures["32 in flight, a frame each, p50 ms"] = many.p50_ms
        one = load("sync", 1)
        figures["1 in flight, p50 ms"] = one.p50_ms
        figures["1 in flight, p99 ms"] = one.p99_ms
    return figures


def run_rocketmq(base: Path, *, seconds: float) -> dict[str, float]:
    """Batches and async on RocketMQ with DLedger; then one in flight."""
    figures: dict[str, float] = {}
    with rocketmq.rocketmq_group(base) as name_server:

        def load(mode: str, clients: int) -> rocketmq.RocketLoad:
            return rocketmq.load(
                name_server, mode=mode, clients=clients, size=SIZE, seconds=seconds
            )

        # What is measured is not the compilation of the brokers' code.
        load("async", PRODUCERS)
        batches = load(f"batch{ROCKETMQ_BATCH}", ROCKETMQ_BATCHES_IN_FLIGHT)
        singly = load("async", PRODUCERS)
        many = load("sync", PRODUCERS * SINGLY_IN_FLIGHT)
        one = load("sync", 1)
        figures["batches of 256, messages/s"] = batches.messages_per_second
        figures["async, messages/s"] = singly.messages_per_second
        figures["32 in flight, messages/s"] = many.messages_per_second
        figures["32 in flight, p50 ms"] = many.p50_ms
        figures["1 in flight, p50 ms"] = one.p50_ms
        figures["1 in flight, p99 ms"] = one.p99_ms
        failed = batches.failed + singly.failed + many.failed + one.failed
        figures["sends that failed"] = failed
    return figures


def measure(
    base: Path, *, runs: int, seconds: float, curve: bool, with_rocketmq: bool
) -> dict[str, list[dict[str, float]]]:
    """Every system in turn, so many times over."""
    rows: dict[str, list[dict[str, float]]] = {}
    for _ in range(runs):
        for ack, sync_always in DURABILITY.items():
            own = run_ledgermq(base, ack=ack, curve=curve, seconds=seconds)
            rows.setdefault(f"ledgermq {ack}", []).append(own)
            name = "nats R3, " + ("sync_interval always" if sync_always else "default")
            theirs = run_nats(base, sync_always=sync_always, seconds=seconds)
            rows.setdefault(name, []).append(theirs)
        if with_rocketmq:
            rows.setdefault("rocketmq 4.9.4, dledger", []).append(
                run_rocketmq(base, seconds=seconds)
            )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--curve", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument(
        "--rocketmq",
        action=argparse.BooleanOptionalAction,
        default=rocketmq.program() is not None,
        help="default: if oracle.py, Java and Maven are there",
    )
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    seconds, runs = (2.0, 1) if given.smoke else (5.0, 3)
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        rows = measure(
            Path(scratch),
            runs=runs,
            seconds=seconds,
            curve=given.curve,
            with_rocketmq=given.rocketmq,
        )
    figures: dict[str, object] = {
        "nodes": 3,
        "curve": given.curve,
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
