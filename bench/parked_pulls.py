"""Pulls that wait: consumers of ours, or connections of RocketMQ's protocol, in a process aside."""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import zmq

from bench.remoting_idle import SUSPEND_MS, Clients
from bench.remoting_idle import TOPIC as PORT_TOPIC
from ledgermq.client import Admin
from ledgermq.client.aio import AsyncConsumer

TOPIC = "parked"
QUEUES = 500
AT_ONCE = 50
"""So many clients are connected at a time."""

SOCKETS_EACH = 8
LIVES_S = 86_400.0
PARKED = "parked"


@contextmanager
def parked(address: str, count: int, *, port: int | None) -> Iterator[None]:
    """So many pulls wait at a node, each of a client of its own, until the end of the block.

    Args:
        port: of the node for RocketMQ's clients; None: they are clients of ours.
    """
    with Admin(address) as admin:
        admin.create_topic(TOPIC if port is None else PORT_TOPIC, queues=QUEUES)
    place = address if port is None else str(port)
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.parked_pulls", place, str(count)], stdout=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        if process.stdout.readline().decode().strip() != PARKED:
            raise RuntimeError("the clients could not be connected")
        yield
    finally:
        process.terminate()
        process.wait()


def _hold_ours(address: str, count: int) -> None:
    # Three sockets each, with what the library needs to hear of their ends.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    zmq.Context.instance().set(zmq.MAX_SOCKETS, SOCKETS_EACH * count + 1_000)
    asyncio.run(_read(address, count))


async def _read(address: str, count: int) -> None:
    consumers: list[AsyncConsumer] = []
    for first in range(0, count, AT_ONCE):
        more = [
            AsyncConsumer(address, topic=TOPIC, queues=[number % QUEUES], start="last")
            for number in range(first, min(first + AT_ONCE, count))
        ]
        await asyncio.gather(*(one.__aenter__() for one in more))
        consumers += more
    waits = [asyncio.create_task(one.poll(None)) for one in consumers]
    print(PARKED, flush=True)
    await asyncio.gather(*waits)


def _hold_at_port(port: int, count: int) -> None:
    clients = Clients(port)
    clients.connect(count)
    for number, client in enumerate(clients.all.values()):
        client.pull()
        if number % AT_ONCE == 0:
            # As clients have it that were not all started at once.
            clients.live(SUSPEND_MS / 1_000 * AT_ONCE / count, polls=True)
    print(PARKED, flush=True)
    clients.live(LIVES_S, polls=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place", help="address of a node, or a port")
    parser.add_argument("count", type=int)
    given = parser.parse_args()
    if given.place.isdigit():
        _hold_at_port(int(given.place), given.count)
    else:
        _hold_ours(given.place, given.count)


if __name__ == "__main__":
    main()
