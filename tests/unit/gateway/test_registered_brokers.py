"""Brokers that have registered: ids, roles, topics, silence and bounds, as RocketMQ has them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pytest

from ledgermq.gateway.names import registered_brokers
from ledgermq.gateway.names.registered_brokers import (
    ADDRESSES_PER_NAME_MAX,
    BROKER_NAMES_MAX,
    CLUSTERS_PER_NAME_MAX,
    SILENT_MS,
    RegisteredBrokers,
)
from ledgermq.model.errors import ProtocolError
from ledgermq.remoting.registration import (
    RegisteredBroker,
    Registration,
    TableVersion,
    TopicShape,
)
from ledgermq.remoting.routes import BrokerAddresses

FOUR, EIGHT = TopicShape(4, 4, 6), TopicShape(8, 8, 6)
A, B = "10.0.0.1:1", "10.0.0.2:1"


class Told:
    """The table under test, each address on a connection of its own."""

    def __init__(self) -> None:
        self.brokers = RegisteredBrokers()
        self.now_ms = 0
        self.connections: dict[str, int] = {}
        self._ids = itertools.count(1)

    def register(
        self,
        address: str,
        number: int,
        topics: Mapping[str, TopicShape] = {},
        *,
        version: int = 1,
        name: str = "b",
        cluster: str = "c",
        is_whole: bool = False,
    ) -> None:
        connection = self.connections.setdefault(address, next(self._ids))
        told = Registration(TableVersion(version), topics, is_whole, f"{address}2")
        broker = RegisteredBroker(cluster, name, number, address)
        self.brokers.register(broker, told, connection=connection, now_ms=self.now_ms)

    def addresses(self, name: str = "b") -> dict[int, str]:
        return {
            number: address
            for one in self.brokers.brokers([name])
            for number, address in one.addresses.items()
        }

    def shapes(self, topic: str) -> dict[str, TopicShape]:
        return dict(self.brokers.of_topic(topic))

    def rows(self) -> int:
        return sum(map(len, self.brokers.topics().values()))


@pytest.fixture
def told() -> Told:
    return Told()


def test_topics_are_those_of_the_broker_with_id_0(told: Told) -> None:
    told.register(B, 1, {"slaves": FOUR})
    told.register(A, 0, {"orders": FOUR, "other": FOUR})

    assert told.shapes("orders") == {"b": FOUR}
    assert told.shapes("slaves") == {}
    assert told.brokers.brokers() == [BrokerAddresses("c", "b", {0: A, 1: B})]
    assert told.brokers.master_of("b") == (A, f"{A}2")
    assert told.brokers.master_of("nobody") is None


def test_keys_of_an_order_topic_go_to_nobody_who_takes_nothing(told: Told) -> None:
    ordered = TopicShape(4, 2, 6, is_ordered=True)
    told.register(A, 0, {"orders": ordered, "other": FOUR}, name="a")
    told.register(B, 0, {"orders": ordered, "other": FOUR}, name="b")
    both = told.brokers.order_of("orders")
    told.register(B, 0, {"orders": ordered._replace(perm=4)}, name="b", version=2)
    closed = told.brokers.order_of("orders")
    told.brokers.close_writes("a")

    assert both == ["a:2", "b:2"]
    assert closed == ["a:2"]
    assert told.brokers.order_of("orders") == []
    assert told.brokers.order_of("other") == told.brokers.order_of("nothing") == []


def test_a_topic_is_changed_by_another_version_alone_and_never_removed_by_its_absence(
    told: Told,
) -> None:
    told.register(A, 0, {"orders": FOUR, "other": FOUR})
    told.register(A, 0, {"orders": EIGHT, "other": FOUR})
    same = told.shapes("orders")
    told.register(A, 0, {"orders": EIGHT}, version=2)

    assert same == {"b": FOUR}
    assert told.shapes("orders") == {"b": EIGHT}
    assert told.shapes("other") == {"b": FOUR}


def test_who_says_that_it_tells_all_has_no_other_topics(told: Told) -> None:
    told.register(A, 0, {"orders": FOUR, "other": FOUR}, is_whole=True)
    told.register(A, 0, {"orders": FOUR}, version=2, is_whole=True)

    assert told.shapes("other") == {}
    assert told.rows() == 1


def test_one_topic_alone_of_a_broker_that_is_new_is_not_taken_for_all(told: Told) -> None:
    told.register(A, 0, {"orders": FOUR}, version=7)
    asked_again = told.brokers.version_of(A)
    told.register(A, 0, {"orders": FOUR, "other": FOUR}, version=7)

    assert asked_again is None
    assert told.shapes("other") == {"b": FOUR}
    assert told.brokers.version_of(A) == TableVersion(7)


def test_an_address_that_changes_its_id_has_the_new_one_alone(told: Told) -> None:
    told.register(A, 0, {"orders": FOUR})
    told.register(B, 1)
    told.register(A, 2)
    without_leader = told.addresses(), told.shapes("orders")
    told.register(B, 0, {"orders": EIGHT}, version=1)

    assert without_leader == ({1: B, 2: A}, {"b": FOUR})
    assert told.addresses() == {0: B, 2: A}
    assert told.shapes("orders") == {"b": EIGHT}


def test_the_only_address_keeps_its_topics_when_it_leads_no_more(told: Told) -> None:
    told.register(A, 0, {"orders": FOUR})
    told.register(A, 1)

    assert told.addresses() == {1: A}
    assert told.shapes("orders") == {"b": FOUR}


def test_another_address_takes_an_id_and_the_end_of_the_old_one_leaves_it(told: Told) -> None:
    told.register(A, 0, {"orders": FOUR})
    told.register(B, 0, {"orders": FOUR})
    told.brokers.forget(told.connections[A])

    assert told.addresses() == {0: B}
    assert told.brokers.version_of(A) is None
    assert len(told.brokers) == 1


def test_an_address_under_another_name_is_gone_from_the_first_one(told: Told) -> None:
    told.register(A, 0, {"orders": FOUR})
    told.register(A, 0, {"orders": EIGHT}, name="renamed")

    assert told.shapes("orders") == {"renamed": EIGHT}
    assert told.addresses() == {}


def test_a_broker_goes_with_its_connection_and_its_topics_with_the_last_one(told: Told) -> None:
    told.register(A, 0, {"orders": FOUR})
    told.register(B, 1)
    told.register("10.0.0.3:1", 0, {"orders": EIGHT}, name="z")
    told.brokers.forget(told.connections[A])
    without_leader = told.addresses(), told.shapes("orders")
    told.brokers.forget(told.connections[B])

    assert without_leader == ({1: B}, {"b": FOUR, "z": EIGHT})
    assert told.addresses() == {}
    assert told.shapes("orders") == {"z": EIGHT}
    assert told.rows() == 1


def test_a_broker_that_is_heard_over_another_connection_outlives_the_first_one(
    told: Told,
) -> None:
    told.register(A, 0, {"orders": FOUR})
    told.brokers.hear(A, connection=99, now_ms=1)
    told.brokers.forget(told.connections[A])
    still = told.addresses()
    told.brokers.forget(99)

    assert still == {0: A}
    assert told.addresses() == {}


def test_who_is_silent_for_two_minutes_is_dropped_and_who_is_heard_is_not(told: Told) -> None:
    told.register(A, 0, {"orders": FOUR})
    told.register(B, 1)
    told.brokers.hear(A, connection=told.connections[A], now_ms=60_000)
    told.brokers.hear("10.0.0.9:1", connection=9, now_ms=60_000)
    first_ms = told.brokers.next_deadline_ms()
    told.brokers.expire(SILENT_MS - 1)
    before = told.addresses()
    told.brokers.expire(SILENT_MS)

    assert first_ms == SILENT_MS
    assert before == {0: A, 1: B}
    assert told.addresses() == {0: A}
    assert told.brokers.next_deadline_ms() == 60_000 + SILENT_MS


def test_a_farewell_is_that_of_an_address_and_not_of_an_id(told: Told) -> None:
    told.register(A, 0, {"orders": FOUR})
    told.register(B, 0, {"orders": FOUR})
    told.brokers.unregister(RegisteredBroker("c", "b", 0, A))
    told.brokers.unregister(RegisteredBroker("c", "other", 0, B))
    left = told.addresses()
    told.brokers.unregister(RegisteredBroker("c", "b", 0, B))

    assert left == {0: B}
    assert told.addresses() == {}


def test_a_name_in_two_clusters_is_listed_in_both_and_is_of_the_first(told: Told) -> None:
    told.register(A, 0, {"orders": FOUR})
    told.register(B, 1, cluster="d")

    assert told.brokers.brokers()[0].cluster == "c"
    assert set(told.brokers.clusters()) == {("c", "b"), ("d", "b")}
    assert told.brokers.of_cluster("d") == told.brokers.of_cluster("c") == {"orders"}
    assert told.brokers.of_cluster("e") == set()


def test_writes_are_closed_until_the_broker_tells_of_another_version(told: Told) -> None:
    told.register(A, 0, {"orders": FOUR, "other": FOUR})
    count = told.brokers.close_writes("b")
    told.register(A, 0, {"orders": FOUR, "other": FOUR})
    closed = told.shapes("orders")["b"].perm
    told.register(A, 0, {"orders": FOUR}, version=2)

    assert (count, closed, told.shapes("orders")["b"].perm) == (2, 4, 6)
    assert told.shapes("other")["b"].perm == 4
    assert told.brokers.open_writes("b") == 2
    assert told.shapes("other")["b"].perm == 6
    assert told.brokers.close_writes("nobody") is None


def test_a_deleted_topic_comes_back_with_a_broker_that_still_has_it(told: Told) -> None:
    told.register(A, 0, {"orders": FOUR, "other": FOUR})
    told.register(B, 0, {"orders": FOUR, "other": FOUR}, name="z", cluster="d")
    told.brokers.delete_topic("orders", "d")
    of_one = told.shapes("orders")
    told.brokers.delete_topic("orders")
    gone = told.shapes("orders")
    versions = told.brokers.version_of(A), told.brokers.version_of(B)
    told.register(A, 0, {"orders": FOUR, "other": FOUR})

    assert of_one == {"b": FOUR}
    assert (gone, versions) == ({}, (None, None))
    assert told.shapes("orders") == {"b": FOUR}
    assert not told.brokers.delete_topic("nothing")


def test_the_same_again_is_known_by_its_digest_while_nothing_was_taken_away(told: Told) -> None:
    broker = RegisteredBroker("c", "b", 0, A)
    table = Registration(TableVersion(1), {"orders": FOUR, "other": FOUR})
    told.brokers.register(broker, table, connection=1, now_ms=0, digest=b"d")

    assert told.brokers.repeats(broker, b"d")
    assert not told.brokers.repeats(broker, b"e")
    assert not told.brokers.repeats(broker._replace(id=1), b"d")
    assert not told.brokers.repeats(broker._replace(cluster="d"), b"d")
    told.brokers.delete_topic("orders")
    assert not told.brokers.repeats(broker, b"d")


def test_there_are_bounds_and_nothing_changes_at_them(
    told: Told, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(BROKER_NAMES_MAX):
        told.register(f"10.1.0.1:{number + 1}", 0, name=f"b{number}")
    with pytest.raises(ProtocolError, match=rf"broker names.*limit={BROKER_NAMES_MAX}"):
        told.register(A, 0, name="one more")
    for number in range(1, ADDRESSES_PER_NAME_MAX):
        told.register(f"10.2.0.1:{number}", number, name="b0")
    with pytest.raises(ProtocolError, match="brokers of a name"):
        told.register(A, 1_000, name="b0")
    for number in range(1, CLUSTERS_PER_NAME_MAX):
        told.register("10.1.0.1:1", 0, name="b0", cluster=f"c{number}")
    with pytest.raises(ProtocolError, match="clusters of a broker"):
        told.register("10.1.0.1:1", 0, name="b0", cluster="one more")
    monkeypatch.setattr(registered_brokers, "TOPIC_ROWS_MAX", 3)
    told.register("10.1.0.1:1", 0, {"a": FOUR, "b": FOUR, "c": FOUR}, name="b0", version=2)
    with pytest.raises(ProtocolError, match=r"topics of other brokers.*limit=3"):
        told.register("10.1.0.1:2", 0, {"a": FOUR}, name="b1", version=2)
    told.register("10.1.0.1:1", 0, {"a": EIGHT}, name="b0", version=3)

    assert len(told.brokers) == BROKER_NAMES_MAX + ADDRESSES_PER_NAME_MAX - 1
    assert told.shapes("a") == {"b0": EIGHT}
