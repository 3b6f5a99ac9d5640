"""An idle node: what wakes its processes, and what has to wake them all the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from ledgermq.client import Consumer, Producer
from tests.process.conftest import Node, wait_until
from tests.process.test_real_node import SMALL_FILES, serve

pytestmark = pytest.mark.slow

ROLES = ("raft", "writer", "dispatcher", "broker")
WINDOW_S = 2.0
WAKES_A_SECOND_MAX = 2.5
"""Once to look at what rings no bell, and whatever the machine brings."""


def wakes(node: Node) -> dict[str, int]:
    """How often the loop of each process was woken so far."""
    found = {}
    for role, pid in node.pids().items():
        if role in ROLES:
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            (line,) = [one for one in lines if one.startswith("voluntary_ctxt_switches")]
            found[role] = int(line.split()[1])
    return found


def woken_within(node: Node, seconds: float) -> Mapping[str, float]:
    """Wake-ups a second of each process, for so long."""
    before, began = wakes(node), time.monotonic()
    time.sleep(seconds)
    after, took_s = wakes(node), time.monotonic() - began
    return {role: (after[role] - before[role]) / took_s for role in ROLES}


def test_processes_of_an_idle_node_are_hardly_woken_and_a_message_reaches_its_consumer_at_once(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    node.configure(store=SMALL_FILES)
    serve(node)
    address = f"ipc://{node.runtime}"
    with Producer(address) as producer:
        producer.send("orders", b"first").result()

    # Queues become durable, maps are let go, and files of the log are looked at, a moment later.
    wait_until(
        lambda: max(woken_within(node, WINDOW_S).values()) <= WAKES_A_SECOND_MAX,
        "rest of all processes",
    )
    with Producer(address) as producer, Consumer(address, topic="orders", start="first") as reader:
        assert [one.body for one in reader.poll(30.0)] == [b"first"]
        producer.send("orders", b"second").result()
        assert [one.body for one in reader.poll(30.0)] == [b"second"]
    assert node.stop() == 0
