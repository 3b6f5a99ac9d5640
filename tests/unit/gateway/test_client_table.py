"""Who is connected, by heartbeats: what each group has, and when it is another one."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from ledgermq.gateway.clients.client_table import ClientTable
from ledgermq.gateway.transport.remoting_sockets import Connection
from ledgermq.model.config.settings import LimitsSection
from ledgermq.model.errors import BusyError
from ledgermq.remoting.heartbeat import (
    ConsumeFrom,
    ConsumerGroup,
    ConsumeType,
    Heartbeat,
    MessageModel,
    Subscription,
)

GROUPS = LimitsSection().groups_per_client
GROUP = "billing"


@pytest.fixture
def connections() -> Iterator[list[Connection]]:
    ends = [socket.socket() for _ in range(4)]
    yield [
        Connection(end, ("10.0.0.1", 1_000 + number), number, 1_024, 0)
        for number, end in enumerate(ends, 1)
    ]
    for end in ends:
        end.close()


def consumer(*topics: str, group: str = GROUP, version: int = 1) -> ConsumerGroup:
    wanted = tuple(
        Subscription(topic, "*", "TAG", version, frozenset(), frozenset()) for topic in topics
    )
    return ConsumerGroup(
        group,
        ConsumeType.CONSUME_PASSIVELY,
        MessageModel.CLUSTERING,
        ConsumeFrom.CONSUME_FROM_LAST_OFFSET,
        wanted,
    )


def heartbeat(
    client_id: str, *consumers: ConsumerGroup, producers: tuple[str, ...] = ()
) -> Heartbeat:
    return Heartbeat(client_id, producers, consumers)


def test_a_group_is_another_one_when_a_member_comes_or_wants_other_topics(
    connections: list[Connection],
) -> None:
    table = ClientTable(LimitsSection())
    first, second = connections[:2]

    assert table.heartbeat(first, heartbeat("a", consumer("x")), 0) == {GROUP}
    assert table.heartbeat(first, heartbeat("a", consumer("x")), 1) == set()
    assert table.heartbeat(second, heartbeat("b", consumer("x")), 2) == {GROUP}
    assert table.heartbeat(second, heartbeat("b", consumer("x", "y")), 3) == {GROUP}
    assert table.heartbeat(second, heartbeat("b", consumer("x", "y", version=2)), 4) == set()
    assert table.consumer_ids(GROUP) == ["a", "b"]
    assert [one.connection for one in table.consumers(GROUP)] == [first, second]


def test_a_client_that_connects_anew_is_one_member(connections: list[Connection]) -> None:
    table = ClientTable(LimitsSection())
    for connection in connections[:2]:
        table.heartbeat(connection, heartbeat("a", consumer("x")), 0)

    assert table.consumer_ids(GROUP) == ["a"]
    assert table.forget(connections[0]) == {GROUP}
    assert table.consumer_ids(GROUP) == ["a"]


def test_who_leaves_or_disconnects_is_in_no_group_any_more(connections: list[Connection]) -> None:
    table = ClientTable(LimitsSection())
    first, second = connections[:2]
    table.heartbeat(first, heartbeat("a", consumer("x"), producers=("p", "q")), 0)
    table.heartbeat(second, heartbeat("b", consumer("x"), producers=("p",)), 0)

    assert not table.leave(first, producer_group="", consumer_group="another")
    assert table.leave(first, producer_group="q", consumer_group=GROUP)
    assert not table.leave(first, producer_group="q", consumer_group=GROUP)
    assert table.producer_groups == ["p"]
    assert table.producers("p") == [first, second]
    assert table.producer_of("a") is first
    assert table.forget(second) == {GROUP}
    assert table.forget(second) == set()
    assert (table.consumer_groups, table.producers("p")) == ([], [first])
    assert table.forget(first) == set()
    assert (table.producer_groups, table.producer_of("a")) == ([], None)
    assert table.next_expiry_ms() is None


def test_the_latest_connection_of_a_producers_id_is_the_one_to_ask(
    connections: list[Connection],
) -> None:
    table = ClientTable(LimitsSection())
    for connection in connections[:2]:
        table.heartbeat(connection, heartbeat("a", producers=("p",)), 0)

    table.forget(connections[0])

    assert table.producer_of("a") is connections[1]


def test_who_is_silent_is_let_go_of_and_nobody_else(connections: list[Connection]) -> None:
    table = ClientTable(LimitsSection(), expiry_ms=100)
    first, second = connections[:2]
    table.heartbeat(first, heartbeat("a", consumer("x"), producers=("p",)), 0)
    table.heartbeat(second, heartbeat("b", consumer("x")), 10)
    table.heartbeat(first, heartbeat("a", producers=("p",)), 50)

    assert table.next_expiry_ms() == 100
    assert table.expire(99) == []
    assert [one.client_id for one in table.expire(100)] == ["a"]
    assert table.producers("p") == [first]
    assert [one.client_id for one in table.expire(110)] == ["b"]
    assert table.expire(150) == []
    assert (table.producers("p"), table.next_expiry_ms()) == ([], None)


def test_each_member_has_its_own_subscription_and_a_stranger_the_newest(
    connections: list[Connection],
) -> None:
    table = ClientTable(LimitsSection())
    first, second, stranger = connections[:3]
    table.heartbeat(first, heartbeat("a", consumer("x", version=7)), 0)
    table.heartbeat(second, heartbeat("b", consumer("x", "y", version=5)), 0)

    def version_for(connection: Connection, topic: str) -> int | None:
        found = table.subscription(connection, GROUP, topic)
        return None if found is None else found.version

    assert (version_for(first, "x"), version_for(second, "x")) == (7, 5)
    assert (version_for(first, "y"), version_for(second, "y")) == (None, 5)
    assert (version_for(stranger, "x"), version_for(stranger, "y")) == (7, 5)
    assert table.subscription(first, "another", "x") is None


def test_a_client_that_leaves_costs_what_it_had_itself(connections: list[Connection]) -> None:
    table = ClientTable(LimitsSection(), expiry_ms=100)
    names = [tuple(f"{side}{one}" for one in range(GROUPS)) for side in "ab"]
    for connection, mine in zip(connections, names, strict=False):
        table.heartbeat(connection, Heartbeat(str(connection.number), mine, ()), 0)
    table.forget(connections[0])

    assert table.producer_of("1") is None
    assert table.producer_of("2") is connections[1]
    assert len(table.producer_groups) == GROUPS
    table.expire(100)
    assert table.producer_of("2") is None
    assert table.producer_groups == []


def test_a_producer_is_found_by_its_id_until_the_last_of_its_groups_goes(
    connections: list[Connection],
) -> None:
    table = ClientTable(LimitsSection())
    first, _, _, _ = connections
    table.heartbeat(first, Heartbeat("c", ("one", "two"), (consumer("orders"),)), 0)
    table.leave(first, producer_group="one", consumer_group="")
    one_left = table.producer_of("c")
    table.leave(first, producer_group="two", consumer_group="")

    assert one_left is first
    assert table.producer_of("c") is None
    assert table.consumer_ids(GROUP) == ["c"]


def test_a_client_does_not_come_to_more_groups_by_naming_others(
    connections: list[Connection],
) -> None:
    table = ClientTable(LimitsSection(), expiry_ms=100)
    first, second, _, _ = connections
    table.heartbeat(
        first,
        Heartbeat("c", tuple(f"p{one}" for one in range(GROUPS)), ()),
        0,
    )
    table.heartbeat(first, Heartbeat("c", ("p0",), (consumer("orders"),)), 90)
    with pytest.raises(BusyError, match=f"limit={GROUPS}"):
        table.heartbeat(first, Heartbeat("c", ("another",), (consumer("orders"),)), 90)
    table.heartbeat(second, Heartbeat("d", ("another",), ()), 90)
    table.expire(100)

    assert table.producer_groups == ["p0", "another"]
    table.heartbeat(first, Heartbeat("c", ("another",), ()), 100)


@pytest.mark.parametrize(
    ("setting", "hosts"), [("producer_groups_max", "abcd"), ("producer_groups_per_address", "aaaa")]
)
def test_producers_begin_a_bounded_number_of_groups(setting: str, hosts: str) -> None:
    table = ClientTable(LimitsSection(**{setting: 5}))
    ends = [socket.socket() for _ in hosts]
    clients = [
        Connection(end, (host, 1), row, 1_024, 0)
        for row, (host, end) in enumerate(zip(hosts, ends, strict=True))
    ]
    refused = []
    for row, connection in enumerate(clients):
        groups = tuple(f"{row}-{one}" for one in range(2))
        try:
            table.heartbeat(connection, Heartbeat(str(row), groups, ()), 0)
        except BusyError as error:
            refused.append(str(error))
    table.forget(clients[0])
    table.heartbeat(clients[3], Heartbeat("3", ("again",), ()), 0)
    for end in ends:
        end.close()

    assert table.producer_groups == ["1-0", "1-1", "again"]
    assert len(refused) == 2
    assert "limit=5" in refused[0] and f"limits.{setting}" in refused[0]


def test_a_group_that_others_have_begun_takes_no_share() -> None:
    table = ClientTable(LimitsSection(producer_groups_per_address=1))
    with socket.socket() as one, socket.socket() as other:
        first = Connection(one, ("a", 1), 1, 1_024, 0)
        second = Connection(other, ("b", 1), 2, 1_024, 0)
        table.heartbeat(first, Heartbeat("1", ("shared",), ()), 0)
        table.heartbeat(second, Heartbeat("2", ("shared", "own"), ()), 0)

        assert table.producer_groups == ["shared", "own"]
