"""What does each node of an idle group of three cost?

Estimate beforehand: heartbeats every 100 ms wake the raft processes and their ZeroMQ threads, 20
messages a second at the leader (two peers, their replies) and 10 at a follower, some 100 µs each
with the switches; the other processes wake at most five times a second: half a per cent of a core.

    python -m bench.group_idle [--seconds N] [--no-curve] [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from bench.group import BenchGroup, bench_group
from bench.machine import write
from bench.processes import cpu_seconds, end_in_order, memory_mib
from ledgermq.client import Producer

SETTLED_S = 5.0
BATCHES = 100
BATCH = 64


def use(group: BenchGroup) -> None:
    """Send something, so that every process has done its work once; then let it settle."""
    with Producer(group.addresses) as producer:
        for _ in range(BATCHES):
            producer.send_batch("bench", [b"x" * 1024] * BATCH).result()
    time.sleep(SETTLED_S)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, help="default: 60, and 5 with --smoke")
    parser.add_argument("--ack", default="majority-fsync", help="ack.mode (default: %(default)s)")
    parser.add_argument("--curve", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    seconds = given.seconds or (5.0 if given.smoke else 60.0)
    rows: dict[str, dict[str, object]] = {}
    with (
        tempfile.TemporaryDirectory(dir=given.directory) as scratch,
        bench_group(Path(scratch), ack=given.ack, curve=given.curve) as group,
    ):
        use(group)
        term, leader = group.term(), group.leader()
        before = {node.name: cpu_seconds(node.pid) for node in group.nodes}
        begin = time.monotonic()
        time.sleep(seconds)
        took_s = time.monotonic() - begin
        for node in group.nodes:
            memory = memory_mib(node.pid)
            rows[node.name] = {
                "role": "leader" if node is leader else "follower",
                "cpu_percent_of_one_core": round(
                    (cpu_seconds(node.pid) - before[node.name]) / took_s * 100, 3
                ),
                "pss_mib": round(sum(memory.values()), 1),
                "pss_mib_each": memory,
            }
        elections = group.term() - term
    figures = {
        "seconds": seconds,
        "ack_mode": given.ack,
        "curve": given.curve,
        "elections": elections,
        "nodes": rows,
    }
    if given.smoke:
        print(figures)
    else:
        write("group_idle", figures)


if __name__ == "__main__":
    main()
