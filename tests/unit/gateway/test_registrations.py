"""A node at a name server: told whole when something has changed, else asked whether it knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, cast

import pytest
from tests.process.raw_name_server import RawNameServer, raw_name_server
from tests.readable import is_readable

from ledgermq.gateway.context import BrokerContext
from ledgermq.gateway.names.registrations import PERIOD_MS, RETRY_MS, Registrations
from ledgermq.gateway.transport.addresses import GroupAddresses
from ledgermq.gateway.transport.server_links import ServerLinks
from ledgermq.model.config.settings import NodeSection, RemotingSection, Settings, StoreSection
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.command import Command
from ledgermq.remoting.registration import TableVersion, decode_registration, decode_version
from ledgermq.rules.tables.topics import Topic, TopicTable
from ledgermq.wire.session import Standing

TURNS_MAX = 2_000


class Tables(NamedTuple):
    topics: TopicTable


class Surroundings(NamedTuple):
    settings: Settings


class Context(NamedTuple):
    """What registrations need of a port's."""

    environment: Surroundings
    tables: Tables
    addresses: GroupAddresses


class Registered:
    """A node of a group of two, turned by hand."""

    def __init__(self, server: RawNameServer, root: Path) -> None:
        self.server = server
        self.now_ms = 0
        self.links = ServerLinks()
        self.topics = TopicTable()
        self.topics.put(topic("orders"), 1)
        settings = Settings(
            node=NodeSection(
                self_id="n0", peers=("n0-10.0.0.1:7000", "n1-10.0.0.2:7000"), broker_ip="10.0.0.1"
            ),
            store=StoreSection(path_root_dir=root),
            remoting=RemotingSection(name_servers=(server.address,)),
        )
        self.addresses = GroupAddresses(settings, frozenset)
        made = Context(Surroundings(settings), Tables(self.topics), self.addresses)
        self.registrations = Registrations(cast("BrokerContext", made), self.links)

    def lead(self, leader: str) -> None:
        standing = Standing("leader" if leader == "n0" else "follower", 1, leader)
        self.addresses.tell_standing(standing)
        self.registrations.tell_standing(standing)

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(TURNS_MAX):
            self.links.turn(self.now_ms)
            self.registrations.turn(self.now_ms)
            if condition():
                return
            is_readable(self.links, 0.01)
        raise AssertionError("it did not come to that")

    def told(self, count: int) -> list[Command]:
        """What the server was told, so many times; nothing more is due then."""
        self.until(lambda: len(self.server.told) >= count and self.is_idle())
        assert len(self.server.told) == count
        return self.server.told

    def is_idle(self) -> bool:
        return self.links.next_deadline_ms() is None

    def close(self) -> None:
        self.registrations.close()
        self.links.close()


def topic(name: str) -> Topic:
    return Topic.read(name, {"readQueueNums": 4, "writeQueueNums": 4, "perm": 6})


@pytest.fixture
def registered(tmp_path: Path) -> Iterator[Registered]:
    with raw_name_server() as server:
        made = Registered(server, tmp_path)
        yield made
        made.close()


def test_a_server_that_knows_all_is_asked_each_half_minute_and_told_nothing(
    registered: Registered,
) -> None:
    registered.lead("n0")
    registered.told(1)
    registered.server.fields = {"changed": "false"}
    for count in (2, 3):
        registered.now_ms += PERIOD_MS - 1
        registered.told(count - 1)
        registered.now_ms += 1
        registered.told(count)
    first, *later = registered.server.told
    table = decode_registration(first.fields, first.body)

    assert first.code == Code.REGISTER_BROKER
    assert table.is_whole
    assert table.topics["orders"].write_queues == 4
    assert [one.code for one in later] == [Code.QUERY_DATA_VERSION] * 2
    assert {decode_version(one.body) for one in later} == {table.version}
    assert registered.registrations.next_deadline_ms() == registered.now_ms + PERIOD_MS


@pytest.mark.parametrize("answer", [{"changed": "true"}, {}])
def test_a_server_that_knows_something_else_is_told_all_again(
    registered: Registered, answer: dict[str, str]
) -> None:
    registered.lead("n0")
    registered.told(1)
    registered.server.fields = answer
    registered.now_ms += PERIOD_MS
    codes = [one.code for one in registered.told(3)]

    assert codes == [Code.REGISTER_BROKER, Code.QUERY_DATA_VERSION, Code.REGISTER_BROKER]


def test_what_changes_is_told_at_once_and_followers_tell_of_no_topics(
    registered: Registered,
) -> None:
    registered.lead("n0")
    registered.told(1)
    registered.topics.put(topic("sales"), 2)
    changed = registered.told(2)[-1]
    registered.lead("n1")
    follows = registered.told(3)[-1]
    registered.topics.put(topic("more"), 3)
    registered.told(3)
    registered.lead("n0")
    leads = registered.told(4)[-1]

    assert set(decode_registration(changed.fields, changed.body).topics) == {"orders", "sales"}
    assert follows.fields["brokerId"] == "1"
    told = decode_registration(follows.fields, follows.body)
    assert (told.version, told.topics) == (TableVersion(), {})
    assert leads.fields["brokerId"] == "0"
    assert "more" in decode_registration(leads.fields, leads.body).topics


def test_a_server_whose_connection_has_ended_is_told_again_at_once(registered: Registered) -> None:
    registered.lead("n0")
    registered.told(1)
    registered.server.drop()
    again = registered.told(2)[-1]

    assert again.code == Code.REGISTER_BROKER


def test_a_server_that_refuses_is_asked_again_later_and_later(registered: Registered) -> None:
    registered.server.code = 1
    registered.lead("n0")
    registered.told(1)
    first_ms = registered.registrations.next_deadline_ms()
    registered.now_ms = 2 * RETRY_MS
    registered.told(2)
    registered.server.code = 0
    registered.now_ms += 4 * RETRY_MS
    registered.told(3)

    assert first_ms == 2 * RETRY_MS
    assert registered.registrations.next_deadline_ms() == registered.now_ms + PERIOD_MS
