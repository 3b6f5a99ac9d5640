"""A node's registrations, turned by hand: its group has two members, it is the first."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.names.registrations import Registrations
from ledgermq.gateway.transport.addresses import GroupAddresses
from ledgermq.gateway.transport.server_links import ServerLinks
from ledgermq.model.config.settings import NodeSection, RemotingSection, Settings, StoreSection
from ledgermq.rules.tables.topics import Topic, TopicTable
from ledgermq.wire.session import Standing
from tests.readable import is_readable
from tests.suite.patience import PATIENCE_S

STUCK_S = 2.0


class Tables(NamedTuple):
    topics: TopicTable


class Surroundings(NamedTuple):
    settings: Settings


@dataclass
class Port:
    can_be_reached: bool = True


class Context(NamedTuple):
    """What registrations need of a port's."""

    environment: Surroundings
    tables: Tables
    addresses: GroupAddresses
    sockets: Port


class RegisteredNode:
    """Such a node, and its time."""

    def __init__(self, root: Path, *name_servers: str) -> None:
        self.now_ms = 0
        self.links = ServerLinks()
        self.topics = TopicTable()
        self.topics.put(topic("orders"), 1)
        settings = Settings(
            node=NodeSection(
                self_id="n0", peers=("n0-10.0.0.1:7000", "n1-10.0.0.2:7000"), broker_ip="10.0.0.1"
            ),
            store=StoreSection(path_root_dir=root),
            remoting=RemotingSection(name_servers=name_servers),
        )
        self.addresses = GroupAddresses(settings, frozenset)
        self.port = Port()
        made = Context(Surroundings(settings), Tables(self.topics), self.addresses, self.port)
        self.registrations = Registrations(cast("BrokerContext", made), self.links)

    def lead(self, leader: str) -> None:
        standing = Standing("leader" if leader == "n0" else "follower", 1, leader)
        self.addresses.tell_standing(standing)
        self.registrations.tell_standing(standing)

    def until(self, condition: Callable[[], bool]) -> None:
        """Turn until ``condition`` is true; its time goes on only where that takes long."""
        began_s = time.monotonic()
        while (waited_s := time.monotonic() - began_s) < PATIENCE_S:
            self.links.turn(self.now_ms)
            self.registrations.turn(self.now_ms)
            if condition():
                return
            is_readable(self.links, 0.01)
            if waited_s > STUCK_S:
                # A look-up or a connection that failed on a busy machine is tried again later.
                self.now_ms += 10
        raise AssertionError("it did not come to that")

    def is_idle(self) -> bool:
        return self.links.next_deadline_ms() is None

    def close(self) -> None:
        self.registrations.close()
        self.links.close()


def topic(name: str) -> Topic:
    return Topic.read(name, {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6})
