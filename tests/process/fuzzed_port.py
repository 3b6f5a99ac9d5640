"""A node whose port is sent what no client would send, and a client that minds its own business."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager

import psutil

from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node

FUZZ_S = float(os.environ.get("LEDGERMQ_FUZZ_S", "8"))
SEED = int(os.environ.get("LEDGERMQ_FUZZ_SEED") or random.SystemRandom().randrange(2**32))
GROWTH_MAX = 96 * 1024 * 1024
"""Bytes that the broker may grow by: the largest frame a few times over, and what Python keeps."""


class TimeOverError(Exception):
    """Ends a run of hypothesis."""


class FuzzedPort:
    """What a test looks at beside what it sends."""

    def __init__(self, node: Node, address: str) -> None:
        self.node = node
        self.address = address
        self.pid = node.pid("broker")
        self.client = RemotingClient(address)

    @property
    def memory(self) -> int:
        """Resident bytes of the broker process that are its own."""
        return int(psutil.Process(self.pid).memory_full_info().uss)

    def check(self) -> None:
        """Others are served as before, by the process that there was."""
        route = self.client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})

        assert route.code == ResponseCode.SUCCESS
        assert self.node.pid("broker") == self.pid


@contextmanager
def fuzzed_port() -> Iterator[FuzzedPort]:
    """One that leads; at its end it must stop in order, and must have had no bug."""
    with nodes_made() as make:
        node = make()
        address = start_remoting_node(
            node,
            reads={"enable_property_filter": True},
            remoting={"registrations_from": ["127.0.0.0/8"]},
        )
        made = FuzzedPort(node, address)
        wait_until(lambda: node.status()["raft"]["granted"], "the node leads")
        yield made
        made.client.close()

        assert node.stop() == 0, node.log.read_text()[-5_000:]
        assert not node.logged("Traceback"), node.log.read_text()[-5_000:]
