"""What do 10,000 topics and 2,000 groups cost: memory, start, commits of offsets, throughput?

Estimate beforehand: a topic is 0.5 KiB in the broker and 0.2 KiB in the writer, a group with eight
offsets 1 KiB, so less than 20 MiB in all; to be started a node reads 4 MB of JSON, a quarter of a
second. A commit is one call with the offsets of eight queues: 50 µs of the broker, so 160,000
offsets a second at most. Messages of many topics take a lookup each more than those of one, and
queue files that are written one by one: 10 %.

    python -m bench.many_topics [--smoke] [--directory DIR] [--topics N] [--groups N]
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import zmq

from bench.machine import spread, write
from bench.node import BenchNode, bench_node
from bench.processes import end_in_order, memory_mib
from ledgermq.client import Admin, Producer, ProducerOptions
from ledgermq.client.aio import AsyncAdmin
from ledgermq.client.core.address import parse_addresses
from ledgermq.client.core.nodes import broker_link
from ledgermq.client.core.questions import ask
from ledgermq.client.loop_watch import AsyncRequests

QUEUES = 8
UNDER_WAY = 64
COMMITTERS = 2
CONSUMED = "consumed"
TIMEOUT_S = 60.0
QUEUE_FILE = "mapped_file_size_consume_queue = 20000\n"
"""6 MB for each of 10,000 queues would be a measurement of the disk."""


def topic_name(number: int) -> str:
    return f"orders-{number:05d}"


async def create_all(address: str, topics: int) -> None:
    """All topics, some under way at a time, as a script would do it."""
    numbers = iter(range(topics))
    async with AsyncAdmin(address, timeout_s=TIMEOUT_S) as admin:

        async def work() -> None:
            for number in numbers:
                await admin.create_topic(topic_name(number), queues=QUEUES)

        await asyncio.gather(*(work() for _ in range(UNDER_WAY)))


def commit_for(address: str, groups: Sequence[str], rounds: int) -> tuple[int, float, float]:
    """Offsets that were committed for these groups, each time one further; in its own process.

    With the times of its begin and its end, which all processes of a machine reckon alike.
    """

    async def commit() -> tuple[int, float, float]:
        link = broker_link(zmq.Context.instance(), parse_addresses(address), client="bench")
        requests = AsyncRequests(link, timeout_s=TIMEOUT_S)
        waiting = iter([(group, at) for at in range(1, rounds + 1) for group in groups])
        done, begin = 0, time.monotonic()

        async def work() -> None:
            nonlocal done
            for group, at in waiting:
                offsets = {str(queue): at for queue in range(QUEUES)}
                await requests.run(
                    ask("group_commit", group=group, topic=CONSUMED, offsets=offsets, reset=True)
                )
                done += QUEUES

        await asyncio.gather(*(work() for _ in range(UNDER_WAY)))
        end = time.monotonic()
        requests.close()
        return done, begin, end

    return asyncio.run(commit())


def commit_rate(node: BenchNode, groups: int, rounds: int) -> float:
    """Offsets a second, of all groups in turn, from two processes."""
    names = [f"group-{number:04d}" for number in range(groups)]
    shares = [names[start::COMMITTERS] for start in range(COMMITTERS)]
    with ProcessPoolExecutor(COMMITTERS, mp_context=get_context("spawn")) as pool:
        asked = [pool.submit(commit_for, node.address, share, rounds) for share in shares]
        done = [one.result() for one in asked]
    taken_s = max(end for _, _, end in done) - min(begin for _, begin, _ in done)
    return sum(offsets for offsets, _, _ in done) / taken_s


def send_rate(node: BenchNode, topics: Sequence[str], messages: int) -> float:
    """Acknowledged messages of 1 KiB a second, the topics in turn; all queues are there before."""
    body = b"x" * 1024
    with Producer(node.address, options=ProducerOptions(compress_above=None)) as producer:
        for topic in topics:
            producer.send(topic, body, queue_id=0).result()
        begin = time.perf_counter()
        sent = [
            producer.send(topics[one % len(topics)], body, queue_id=0) for one in range(messages)
        ]
        for one in sent:
            one.result()
        return messages / (time.perf_counter() - begin)


def create_one(node: BenchNode) -> float:
    """Milliseconds until one more topic is there, when there are many."""
    with Admin(node.address, timeout_s=TIMEOUT_S) as admin:
        admin.topic(CONSUMED)
        begin = time.perf_counter()
        admin.create_topic("one-more", queues=QUEUES)
        return (time.perf_counter() - begin) * 1000


def measure(
    base: Path, *, topics: int, groups: int, rounds: int, messages: int
) -> dict[str, float]:
    """All figures of one node."""
    directory = Path(tempfile.mkdtemp(prefix="many-", dir=base))
    figures: dict[str, float] = {}
    with bench_node(base, ack="majority-memory", directory=directory, store=QUEUE_FILE) as node:
        figures["memory_mib_empty"] = sum(memory_mib(node.process.pid).values())
        figures["start_s_empty"] = node.ready_after_s
        with Producer(node.address) as producer, Admin(node.address) as admin:
            admin.create_topic(CONSUMED, queues=QUEUES)
            for queue in range(QUEUES):
                producer.send_batch(CONSUMED, [b"x"] * rounds, queue_id=queue).result()
        figures["one_topic_messages_per_s"] = send_rate(node, [CONSUMED], messages)
        begin = time.perf_counter()
        asyncio.run(create_all(node.address, topics))
        figures["created_topics_per_s"] = topics / (time.perf_counter() - begin)
        figures["create_one_more_ms"] = create_one(node)
        figures["offsets_per_s"] = commit_rate(node, groups, rounds)
        names = [topic_name(number) for number in range(topics)]
        figures["many_topics_messages_per_s"] = send_rate(node, names, messages)
        figures["memory_mib"] = sum(memory_mib(node.process.pid).values())
    with bench_node(base, ack="majority-memory", directory=directory, store=QUEUE_FILE) as node:
        figures["start_s"] = node.ready_after_s
        figures["memory_mib_started"] = sum(memory_mib(node.process.pid).values())
    figures["throughput_lost_percent"] = 100 * (
        1 - figures["many_topics_messages_per_s"] / figures["one_topic_messages_per_s"]
    )
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--smoke", action="store_true", help="a short run, nothing is kept")
    parser.add_argument("--directory", type=Path, help="where stores are made")
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=2_000)
    given = parser.parse_args()
    end_in_order()
    topics, groups = (100, 20) if given.smoke else (given.topics, given.groups)
    rounds, messages, runs = (5, 2_000, 1) if given.smoke else (10, 100_000, 3)
    rows = []
    with tempfile.TemporaryDirectory(dir=given.directory) as scratch:
        for _ in range(runs):
            rows.append(
                measure(
                    Path(scratch), topics=topics, groups=groups, rounds=rounds, messages=messages
                )
            )
    figures: dict[str, object] = {
        "topics": topics, "groups": groups, "queues": QUEUES, "messages": messages, "runs": runs,
        **{name: spread([row[name] for row in rows]) for name in rows[0]},
    }  # fmt: skip
    if given.smoke:
        print(figures)
    else:
        write("many_topics", figures)


if __name__ == "__main__":
    main()
