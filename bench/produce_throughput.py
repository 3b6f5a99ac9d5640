"""How many messages a second does one node take, clients included, beside NATS JetStream R1?

Estimate beforehand: two cores are shared by two producers and the node. A producer's encoding
costs about 0.6 µs a message, the writer 1.5 µs, dispatch 0.5 µs, the sockets about 1 µs: CPU is the
limit, at some 400,000 messages of 1 KiB a second; with fsync the disk's 0.8 GB/s comes near.

    python -m bench.produce_throughput [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from bench.lag import lag_watch
from bench.machine import spread, write
from bench.node import bench_node
from bench.rivals import jetstream
from ledgermq.client import BatchResult, Producer, ProducerOptions
from ledgermq.client.sending.send_future import SendFuture

PRODUCERS = 2
BATCH = 64
IN_FLIGHT = 16
TOPIC = "bench"


def produce(address: str, size: int, seconds: float, result: Connection) -> None:
    """One producer process: batches of ``BATCH``, ``IN_FLIGHT`` of them unanswered."""
    bodies = [bytes([65 + number % 26]) * size for number in range(BATCH)]
    acked = 0
    with Producer(address, options=ProducerOptions(compress_above=None)) as producer:
        producer.send_batch(TOPIC, bodies, tag="TagA", keys=("key-1",)).result()
        result.send("ready")
        result.recv()
        begin = time.perf_counter()
        waiting: deque[SendFuture[BatchResult]] = deque()
        while time.perf_counter() - begin < seconds:
            while len(waiting) < IN_FLIGHT:
                waiting.append(producer.send_batch(TOPIC, bodies, tag="TagA", keys=("key-1",)))
            acked += len(waiting.popleft().result())
        while waiting:
            acked += len(waiting.popleft().result())
        result.send(acked / (time.perf_counter() - begin))
        # It stays until its processor time was looked at.
        result.recv()


@contextmanager
def producers(address: str, *, size: int, seconds: float) -> Iterator[Callable[[], list[float]]]:
    """``PRODUCERS`` processes that are ready; calling it has them send, and gives their rates."""
    context = multiprocessing.get_context("spawn")
    pairs = [context.Pipe() for _ in range(PRODUCERS)]
    processes = [
        context.Process(target=produce, args=(address, size, seconds, theirs))
        for _, theirs in pairs
    ]

    def go() -> list[float]:
        for ours, _ in pairs:
            ours.send("go")
        return [ours.recv() for ours, _ in pairs]

    for process in processes:
        process.start()
    for ours, _ in pairs:
        ours.recv()
    yield go
    for ours, _ in pairs:
        ours.send("end")
    for process in processes:
        process.join(30)


def run_ledgermq(base: Path, *, ack: str, size: int, seconds: float) -> tuple[float, float]:
    """Messages a second of all producers, and the largest dispatch lag in seconds."""
    with (
        bench_node(base, ack=ack) as node,
        producers(node.address, size=size, seconds=seconds) as go,
        lag_watch({"node": node.runtime}) as watch,
    ):
        rates = go()
    return sum(rates), watch.worst_s["node"]


def run_nats(base: Path, *, sync_always: bool, size: int, seconds: float) -> float:
    """Messages a second of NATS JetStream R1, async, as many clients."""
    with jetstream.jetstream(base, sync_always=sync_always) as url:
        return jetstream.load(
            url, mode="async", clients=PRODUCERS, size=size, seconds=seconds
        ).messages_per_second


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    seconds, runs = (1.0, 1) if given.smoke else (6.0, 3)
    figures: dict[str, object] = {
        "producers": PRODUCERS,
        "batch": BATCH,
        "in_flight": IN_FLIGHT,
        "seconds": seconds,
        "runs": runs,
    }
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        base = Path(scratch)
        for size in (1024, 100):
            rows: dict[str, list[float]] = {}
            lags: list[float] = []
            for _ in range(runs):
                for ack in ("majority-memory", "majority-fsync"):
                    rate, lag = run_ledgermq(base, ack=ack, size=size, seconds=seconds)
                    rows.setdefault(f"ledgermq {ack}", []).append(rate)
                    lags.append(lag)
                for always in (False, True):
                    name = "nats R1 async, " + ("sync_interval always" if always else "default")
                    rate = run_nats(base, sync_always=always, size=size, seconds=seconds)
                    rows.setdefault(name, []).append(rate)
            section: dict[str, object] = {name: spread(rates) for name, rates in rows.items()}
            section["dispatch_lag_max_s"] = round(max(lags), 3)
            figures[f"{size} byte bodies, messages per second"] = section
    if given.smoke:
        print(figures)
    else:
        write("produce_throughput", figures)


if __name__ == "__main__":
    main()
