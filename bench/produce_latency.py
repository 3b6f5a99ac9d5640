"""How long does one message take, one in flight, beside NATS JetStream R1?

Estimate beforehand: four hops between processes (client, writer, raft, writer, client) at some
20 µs each, and 30 µs of Python in each of them: 0.2 ms in memory; with fsync one fdatasync of
0.11 ms and two more switches of threads.

    python -m bench.produce_latency [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench.machine import spread, write
from bench.node import bench_node
from bench.rivals import jetstream
from ledgermq.client import Producer, ProducerOptions


def run_ledgermq(base: Path, *, ack: str, size: int, seconds: float) -> tuple[float, float, float]:
    """Milliseconds at the median and at 99 per cent, and messages a second."""
    body = b"x" * size
    latencies: list[float] = []
    with (
        bench_node(base, ack=ack) as node,
        Producer(node.address, options=ProducerOptions(compress_above=None)) as producer,
    ):
        for _ in range(200):
            producer.send("bench", body, tag="TagA").result()
        begin = time.perf_counter()
        while time.perf_counter() - begin < seconds:
            sent = time.perf_counter()
            producer.send("bench", body, tag="TagA").result()
            latencies.append((time.perf_counter() - sent) * 1000)
    latencies.sort()
    count = len(latencies)
    return latencies[count // 2], latencies[count * 99 // 100], count / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    seconds, runs = (1.0, 1) if given.smoke else (5.0, 3)
    figures: dict[str, object] = {"in_flight": 1, "seconds": seconds, "runs": runs}
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        base = Path(scratch)
        for size in (1024, 100):
            rows: dict[str, list[tuple[float, float, float]]] = {}
            for _ in range(runs):
                for ack in ("lossy-leader", "majority-memory", "majority-fsync"):
                    row = run_ledgermq(base, ack=ack, size=size, seconds=seconds)
                    rows.setdefault(f"ledgermq {ack}", []).append(row)
                for always in (False, True):
                    name = "nats R1 sync, " + ("sync_interval always" if always else "default")
                    with jetstream.jetstream(base, sync_always=always) as url:
                        load = jetstream.load(
                            url, mode="sync", clients=1, size=size, seconds=seconds
                        )
                    row = (load.p50_ms, load.p99_ms, load.messages_per_second)
                    rows.setdefault(name, []).append(row)
            figures[f"{size} byte bodies"] = {
                name: {
                    "p50_ms": spread([value[0] for value in values]),
                    "p99_ms": spread([value[1] for value in values]),
                    "messages_per_second": spread([value[2] for value in values]),
                }
                for name, values in rows.items()
            }
    if given.smoke:
        print(figures)
    else:
        write("produce_latency", figures)


if __name__ == "__main__":
    main()
