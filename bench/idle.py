"""What does an idle node cost, and how soon is it ready on a store of 1 GiB after a clean stop?

Estimate beforehand: five processes that share their imported modules, 15 MiB of their own each; at
most five wake-ups a second a process at 50 µs; READY is the forks, one read of the checkpoints and
an election of one: 0.5 s, most of it imports.

    python -m bench.idle [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench.machine import spread, write
from bench.node import BenchNode, bench_node
from bench.processes import cpu_seconds, memory_mib
from ledgermq.client import Producer


def cpu_percent(node: BenchNode, seconds: float) -> float:
    """CPU of all processes over ``seconds``, in per cent of one core."""
    before = cpu_seconds(node.process.pid)
    time.sleep(seconds)
    return (cpu_seconds(node.process.pid) - before) / seconds * 100


def fill(address: str, size: int) -> None:
    """Put ``size`` bytes of 1 KiB messages into the log."""
    bodies = [bytes([65 + number % 26]) * 1024 for number in range(64)]
    with Producer(address) as producer:
        done = 0
        while done < size:
            for future in [producer.send_batch("bench", bodies, tag="TagA") for _ in range(16)]:
                done += len(future.result()) * 1_250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    size, seconds, runs = (2**24, 1.0, 1) if given.smoke else (2**30, 20.0, 3)
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        base = Path(scratch)
        with bench_node(base, ack="majority-fsync", directory=base) as node:
            fill(node.address, size)
        ready, memory, cpu = [], [], []
        rows: dict[str, float] = {}
        for _ in range(runs):
            with bench_node(base, ack="majority-fsync", directory=base) as node:
                ready.append(node.ready_after_s)
                time.sleep(2)
                rows = memory_mib(node.process.pid)
                memory.append(sum(rows.values()))
                cpu.append(cpu_percent(node, seconds))
    figures = {
        "store_bytes": size,
        "runs": runs,
        "durability": "majority-fsync",
        "ready_after_s, two starts of the interpreter included": spread(ready),
        "pss_mib_all_processes": spread(memory),
        "pss_mib_last_run": rows,
        "cpu_percent_of_one_core": spread(cpu),
    }
    if given.smoke:
        print(figures)
    else:
        write("idle", figures)


if __name__ == "__main__":
    main()
