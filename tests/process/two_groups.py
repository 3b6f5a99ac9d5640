"""Two groups of one real node each, of which the first is the home; a topic that is spread."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import Producer
from ledgermq.client.admin.broker_admins import ClusterAdmin
from ledgermq.client.broker_connection import connect_broker
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import free_port
from tests.process.test_cluster_groups import ClusterNode
from tests.suite.patience import PATIENCE_S

HOME, OTHER = "orders-a", "orders-b"
TOPIC, QUEUES = "sales", 2


Pair = tuple[ClusterNode, ClusterNode]


def joined_pair(
    make_node: Callable[[], Node],
    capsys: pytest.CaptureFixture[str],
    folder: Path,
    **tables: dict[str, Any],
) -> Pair:
    """A home, and another group that it knows of, each of a node with these settings."""
    home, other = (
        ClusterNode(
            make_node(),
            name,
            capsys,
            listen={"produce": f"tcp://127.0.0.1:{free_port()}"},
            **tables,
        )
        for name in (HOME, OTHER)
    )
    home.begin(folder / "root.json")
    other.tell("join", "--home", f"ipc://{home.node.runtime}", "--nodes", other.address)
    wait_until(lambda: len(other.tell("list")["groups"]) == 2, "the home's rows")
    return home, other


class TwoGroups:
    """See the module.

    Attributes:
        home, other: each has the topic from ``spread`` on, the home from the beginning.
    """

    def __init__(
        self, make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str], folder: Path
    ) -> None:
        """A home that knows of the other group, and has the topic alone."""
        self.home, self.other = joined_pair(make_node, capsys, folder)
        with self._admin() as admin:
            admin.set_topic(TOPIC, [HOME], queues=QUEUES)
        wait_topic(self.home)

    def spread(self) -> None:
        """Have the topic in both."""
        with self._admin() as admin:
            admin.set_topic(TOPIC, [OTHER], spread=True)
        wait_topic(self.other)

    def drain(self) -> None:
        """Have the other group leave; its nodes run on."""
        home = f"ipc://{self.home.node.runtime}"
        said = self.other.run("drain", OTHER, "--home", home, "--yes")
        assert said[0] == 0, said

    @contextmanager
    def _admin(self) -> Iterator[ClusterAdmin]:
        address = f"ipc://{self.home.node.runtime}"
        with connect_broker(address, name="test", timeout_s=PATIENCE_S) as broker:
            yield ClusterAdmin(broker)


@contextmanager
def two_groups(capsys: pytest.CaptureFixture[str], folder: Path) -> Iterator[TwoGroups]:
    """Both run until the end of the block."""
    with nodes_made(Node) as make:
        yield TwoGroups(make, capsys, folder)


def wait_topic(group: ClusterNode) -> None:
    """Until a group has the topic."""
    with connect_broker(group.address, name="test", timeout_s=PATIENCE_S) as broker:
        wait_until(lambda: any(row.topic == TOPIC for row in broker.topics()), "the topic")


def fill(group: ClusterNode, numbers: range) -> None:
    """Send numbered messages to a group, to its queues in turn."""
    with Producer(group.address, one_group=True) as producer:
        for number in numbers:
            producer.send(TOPIC, b"%d" % number, queue_id=number % QUEUES)
        producer.flush(PATIENCE_S)
