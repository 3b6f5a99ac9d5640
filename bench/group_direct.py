"""What do direct connections between members bring beside ZeroMQ's alone?

Two groups of three stand beside one another, one with ``raft.direct`` and one without, and get the
same in turn: bursts of single messages that each wait for their answer, then 32 in flight, then
batches. What the machine does meanwhile befalls both alike, so what counts is the ratio of a burst
to the other group's burst behind it.

Estimate beforehand: four passes through ZeroMQ's threads go away, some 0.13 ms of a message's way
(docs/decisions/0081): a fifth where p50 is 0.65 ms. Batches cost less processor time, and the raft
process more of it, for it encrypts itself.

    python -m bench.group_direct [--smoke] [--directory DIR]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from bench.group import bench_group
from bench.machine import spread, write
from bench.processes import end_in_order
from bench.produce_throughput import BATCH, IN_FLIGHT, TOPIC
from ledgermq.client import Producer, ProducerOptions
from ledgermq.client.sending.send_future import SendFuture

BODY = b"x" * 1024
SINGLY_IN_FLIGHT = 32
BURST = 50
WARM = 200

WAYS = {"zeromq": False, "direct": True}


def one_by_one(producer: Producer, count: int) -> list[float]:
    """Milliseconds that each of ``count`` messages took, one behind the other."""
    times_ms = []
    for _ in range(count):
        began = time.perf_counter()
        producer.send(TOPIC, BODY).result()
        times_ms.append((time.perf_counter() - began) * 1_000)
    return times_ms


def rate(send: Callable[[], SendFuture[object]], count: int, in_flight: int) -> float:
    """Sends a second, ``in_flight`` of them unanswered."""
    began = time.perf_counter()
    waiting: deque[SendFuture[object]] = deque()
    for _ in range(count):
        if len(waiting) >= in_flight:
            waiting.popleft().result()
        waiting.append(send())
    while waiting:
        waiting.popleft().result()
    return count / (time.perf_counter() - began)


def ratio(of: list[float], to: list[float]) -> dict[str, float]:
    """Of pairs that stood beside one another."""
    return spread([one / other for one, other in zip(of, to, strict=True)])


def run(base: Path, *, ack: str, pairs: int, rounds: int) -> dict[str, object]:
    """Both groups, all three loads, with one mode of acknowledgement."""
    singly: dict[str, list[float]] = {name: [] for name in WAYS}
    bursts: dict[str, list[float]] = {name: [] for name in WAYS}
    many: dict[str, list[float]] = {name: [] for name in WAYS}
    batches: dict[str, list[float]] = {name: [] for name in WAYS}
    with ExitStack() as opened:
        producers: dict[str, Producer] = {}
        for name, is_direct in WAYS.items():
            own = base / ack / name
            own.mkdir(parents=True)
            group = opened.enter_context(bench_group(own, ack=ack, curve=True, direct=is_direct))
            options = ProducerOptions(compress_above=None)
            producers[name] = opened.enter_context(Producer(group.addresses, options=options))
            one_by_one(producers[name], WARM)
        for number in range(pairs):
            for name in list(WAYS)[:: 1 if number % 2 else -1]:
                times_ms = one_by_one(producers[name], BURST)
                singly[name] += times_ms
                bursts[name].append(statistics.median(times_ms))
        bodies = [BODY] * BATCH
        for number in range(rounds):
            for name in list(WAYS)[:: 1 if number % 2 else -1]:
                one = producers[name]
                many[name].append(rate(partial(one.send, TOPIC, BODY), 4_000, SINGLY_IN_FLIGHT))
                batch = rate(partial(one.send_batch, TOPIC, bodies), 600, IN_FLIGHT)
                batches[name].append(BATCH * batch)
    return {
        "one in flight, p50 ms": {
            name: round(statistics.median(times), 3) for name, times in singly.items()
        },
        "one in flight, direct by zeromq": ratio(bursts["direct"], bursts["zeromq"]),
        "32 in flight, messages/s": {name: spread(rates) for name, rates in many.items()},
        "32 in flight, direct by zeromq": ratio(many["direct"], many["zeromq"]),
        "batches, messages/s": {name: spread(rates) for name, rates in batches.items()},
        "batches, direct by zeromq": ratio(batches["direct"], batches["zeromq"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    given = parser.parse_args()
    end_in_order()
    pairs, rounds = (3, 1) if given.smoke else (60, 7)
    figures: dict[str, object] = {"body_bytes": len(BODY), "pairs": pairs, "rounds": rounds}
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        for ack in ("majority-memory", "majority-fsync"):
            figures[ack] = run(Path(scratch), ack=ack, pairs=pairs, rounds=rounds)
    if given.smoke:
        print(figures)
    else:
        write("group_direct", figures)


if __name__ == "__main__":
    main()
