"""What do receipts of a topic cost the producers of it?

Estimate beforehand: hashing a message of 400 bytes takes the process of receipts some 2.5 µs, and
two producers and a node fill two processors. With a nice value of 19 beside processes of 0 it gets
15 of 1,039 parts of a processor that is asked for: below a hundredth of the throughput. What it
does not get through meanwhile it does behind the load.

Rounds without and with receipts take turns on one node; before each the process has nothing left.
Rates say little where others use the processors, too; what part of all processors the process had
while producers wanted them is what it can have taken from them, whoever else is there.

    python -m bench.receipts_cost [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil

from bench.machine import spread, write
from bench.node import BenchNode, bench_node
from bench.produce_throughput import TOPIC, producers
from ledgermq.client import Admin
from ledgermq.sessions.keys.receipt_key import make_signer

SIZE = 300
"""Bytes of a body: some 400 in the log."""


def counters(node: BenchNode) -> dict[str, int]:
    status: dict[str, Any] = node.status()
    found: dict[str, int] = status["counters"]["receipts"]
    return found


def receipts_process(node: BenchNode) -> psutil.Process:
    """The process that makes them."""
    status: dict[str, Any] = node.status()
    (pid,) = (one["pid"] for one in status["processes"] if one["role"] == "receipts")
    return psutil.Process(pid)


def processor_s(process: psutil.Process) -> float:
    """Seconds of a processor that it has had."""
    times = process.cpu_times()
    return float(times.user + times.system)


class Spent(NamedTuple):
    """Seconds of processors: of the process of receipts, and of node and producers beside it."""

    receipts_s: float
    others_s: float

    @classmethod
    def now(cls, receipts: psutil.Process) -> Spent:
        """All until now."""
        family = psutil.Process().children(recursive=True)
        others = sum(processor_s(one) for one in family if one.pid != receipts.pid)
        return cls(processor_s(receipts), others)

    def since(self, before: Spent) -> Spent:
        """What has come since."""
        return Spent(self.receipts_s - before.receipts_s, self.others_s - before.others_s)


def wait_through(node: BenchNode, messages: int) -> float:
    """Seconds until so many messages were hashed."""
    began = time.monotonic()
    while counters(node)["messages"] < messages:
        if time.monotonic() - began > 600:
            raise TimeoutError(f"{counters(node)} of {messages}")
        time.sleep(0.2)
    return time.monotonic() - began


def rounds(node: BenchNode, count: int, seconds: float) -> dict[str, object]:
    """Rates without and with receipts, by turns, and what hashing has cost."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    others_us: dict[bool, list[float]] = {False: [], True: []}
    behind: list[float] = []
    shares: list[float] = []
    hashed_meanwhile: list[float] = []
    receipts = receipts_process(node)
    with Admin(node.address) as admin:
        admin.create_topic(TOPIC, queues=4)
        for number in range(2 * count):
            has_receipts = number % 2 == 1
            admin.alter_topic(TOPIC, receipts=has_receipts)
            before = counters(node)["messages"]
            with producers(node.address, size=SIZE, seconds=seconds) as go:
                begun, spent = stored(node), Spent.now(receipts)
                rates[has_receipts].append(sum(go()))
                spent = Spent.now(receipts).since(spent)
                done, sent = counters(node)["messages"] - before, stored(node) - begun
            others_us[has_receipts].append(spent.others_s * 1e6 / sent)
            if has_receipts:
                shares.append(spent.receipts_s / spent.others_s)
                hashed_meanwhile.append(done / sent)
                behind.append(wait_through(node, before + sent))
    hashed = counters(node)
    ratios = [one / other for other, one in zip(rates[False], rates[True], strict=True)]
    return {
        "messages_per_s_without": spread(rates[False]),
        "messages_per_s_with": spread(rates[True]),
        "ratio": statistics.median(ratios),
        "ratios": [round(one, 3) for one in ratios],
        "processor_us_per_message_of_others_without": spread(others_us[False]),
        "processor_us_per_message_of_others_with": spread(others_us[True]),
        "processor_time_of_receipts_to_that_of_others": [round(one, 4) for one in shares],
        "hashed_while_loaded": [round(one, 3) for one in hashed_meanwhile],
        "caught_up_after_s": spread(behind),
        "processor_us_per_message": processor_s(receipts) * 1e6 / max(1, hashed["messages"]),
        "hashed": hashed["messages"],
        "checkpoints": hashed["checkpoints"],
        "hurried": hashed["hurried"],
        "failed": hashed["failed"],
    }


def stored(node: BenchNode) -> int:
    status: dict[str, Any] = node.status()
    found: int = status["counters"]["writer"]["messages"]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        base = Path(folder)
        make_signer(base / "receipts.key", "bench")
        more = f'[receipts]\nkey_file = "{base / "receipts.key"}"\n'
        with bench_node(base, ack="majority-memory", more=more) as node:
            count, seconds = (1, 1.0) if arguments.smoke else (4, 5.0)
            results = rounds(node, count, seconds)
    if arguments.smoke:
        print(results)
    else:
        write("receipts_cost", results)


if __name__ == "__main__":
    main()
