"""What does the writer's own stream socket bring a client of this machine, beside ZeroMQ's?

Two producers of one process have a session each with the same nodes, one over ``produce.sock`` and
one over ZeroMQ, and send by turns: one message at a time, 32 under way, as many as a thread hands
over without waiting, and batches of 256.

Estimate beforehand: two threads of ZeroMQ less on either way, some 30 us each where a core has to
be woken: 0.1 ms of one message, and nothing of batches.

    python -m bench.writer_socket [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.group import bench_group
from bench.machine import spread, write
from bench.node import bench_node
from bench.processes import end_in_order
from ledgermq.client import Producer, ProducerOptions
from ledgermq.client.core.link import Link

TOPIC = "bench"
BODY = b"x" * 1024
BATCH = 256
WAYS = ("zeromq", "stream")


@contextmanager
def over(way: str) -> Iterator[None]:
    """Producers that are opened meanwhile take that way to their writers."""
    opened = Link.__init__

    def open_link(link: Link, *given: Any, is_writers: bool = False, **named: Any) -> None:
        opened(link, *given, is_writers=is_writers and way == "stream", **named)

    Link.__init__ = open_link  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Link.__init__ = opened  # type: ignore[method-assign]


def one_at_a_time(producer: Producer, count: int) -> float:
    """Milliseconds of a message, at the median."""
    taken = []
    for _ in range(count):
        begin = time.perf_counter()
        producer.send(TOPIC, BODY).result()
        taken.append((time.perf_counter() - begin) * 1_000)
    return sorted(taken)[count // 2]


def rate(send: Callable[[], Any], count: int, *, under_way: int) -> float:
    """How often a second ``send`` is answered with so many under way."""
    sent: deque[Any] = deque()
    begin = time.perf_counter()
    for _ in range(count):
        sent.append(send())
        if len(sent) >= under_way:
            sent.popleft().result()
    while sent:
        sent.popleft().result()
    return count / (time.perf_counter() - begin)


def figures_of(address: str, *, runs: int, messages: int) -> dict[str, object]:
    """Both ways to the writer of ``address``, by turns."""
    producers: dict[str, Producer] = {}
    rows: dict[str, dict[str, list[float]]] = {way: {} for way in WAYS}
    try:
        for way in WAYS:
            with over(way):
                options = ProducerOptions(compress_above=None)
                producers[way] = Producer(address, options=options)
                producers[way].send(TOPIC, BODY).result()
        for run in range(runs):
            for way in WAYS if run % 2 else reversed(WAYS):
                _measure(producers[way], rows[way], messages)
    finally:
        for producer in producers.values():
            producer.close()
    return {way: {name: spread(found) for name, found in rows[way].items()} for way in WAYS}


def _measure(producer: Producer, row: dict[str, list[float]], messages: int) -> None:
    def one() -> Any:
        return producer.send(TOPIC, BODY)

    def batch() -> Any:
        return producer.send_batch(TOPIC, [BODY] * BATCH)

    found = {
        "p50_ms": one_at_a_time(producer, messages),
        "32 in flight, messages_per_second": rate(one, 10 * messages, under_way=32),
        "without waiting, messages_per_second": rate(one, 20 * messages, under_way=4_000),
        "batches, messages_per_second": BATCH * rate(batch, messages // 5, under_way=8),
    }
    for name, value in found.items():
        row.setdefault(name, []).append(value)


def main() -> None:
    end_in_order()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    runs, messages = (1, 50) if given.smoke else (5, 300)
    figures: dict[str, object] = {"size": len(BODY), "runs": runs, "messages": messages}
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        with bench_node(Path(scratch), ack="lossy-leader") as node:
            figures["one node, leader"] = figures_of(node.address, runs=runs, messages=messages)
        with bench_group(Path(scratch), ack="majority-memory", curve=True) as group:
            figures["group of three, majority-memory"] = figures_of(
                group.addresses, runs=runs, messages=messages
            )
    print(figures)
    if not given.smoke:
        write("writer_socket", figures)


if __name__ == "__main__":
    main()
