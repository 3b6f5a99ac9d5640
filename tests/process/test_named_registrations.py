"""Name servers behind one name of the settings: all that its records name, as they come and go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from ledgermq.gateway.names.registrations import ASK_MS, DOUBT_MS, PERIOD_MS
from ledgermq.remoting.codes import RequestCode as Code
from tests.process.name_server import NameServer
from tests.process.own_network import in_own_network
from tests.process.raw_name_server import RawNameServer, raw_name_server
from tests.unit.gateway.registered_node import RegisteredNode, topic

pytestmark = pytest.mark.slow
PORT = 9_876
HOSTS = ["127.0.0.2", "127.0.0.3", "127.0.0.4"]


@pytest.fixture
def names() -> Iterator[NameServer]:
    with NameServer() as server:
        yield server


@pytest.fixture
def servers() -> Iterator[list[RawNameServer]]:
    """One at each of the hosts, and each knows all when it is asked."""
    with ExitStack() as ends:
        made = [ends.enter_context(raw_name_server(host, PORT)) for host in HOSTS]
        for one in made:
            one.fields = {"changed": "false"}
        yield made


@pytest.fixture
def node(tmp_path: Path) -> Iterator[RegisteredNode]:
    made = RegisteredNode(tmp_path, f"names.test:{PORT}", f"{HOSTS[0]}:{PORT}")
    yield made
    made.close()


def registrations(server: RawNameServer) -> int:
    return sum(one.code == Code.REGISTER_BROKER for one in list(server.told))


def counts(servers: list[RawNameServer]) -> list[int]:
    return [registrations(one) for one in servers]


@in_own_network
def test_a_node_registers_with_all_servers_of_a_name_and_with_new_ones(
    node: RegisteredNode, names: NameServer, servers: list[RawNameServer]
) -> None:
    names.set("names", *HOSTS[:2])
    node.lead("n0")
    # The first one has an address of its own in the settings, too: it is one server all the same.
    node.until(lambda: counts(servers) == [1, 1, 0] and node.is_idle())
    names.set("names", *HOSTS[1:])
    node.now_ms += ASK_MS
    node.until(lambda: counts(servers) == [1, 1, 1] and node.is_idle())
    node.topics.put(topic("sales"), 2)
    node.until(lambda: counts(servers) == [2, 2, 2] and node.is_idle())


@in_own_network
def test_who_is_gone_from_a_name_is_let_go_once_its_connection_has_ended(
    node: RegisteredNode, names: NameServer, servers: list[RawNameServer]
) -> None:
    names.set("names", *HOSTS[1:])
    node.lead("n0")
    node.until(lambda: counts(servers) == [1, 1, 1] and node.is_idle())
    names.set("names", HOSTS[2])
    node.now_ms += ASK_MS
    node.until(lambda: len(servers[2].told) == 2 and node.is_idle())
    node.topics.put(topic("sales"), 2)
    # Resolvers leave addresses out now and then: who is connected is told.
    node.until(lambda: counts(servers) == [2, 2, 2] and node.is_idle())
    servers[1].drop()
    servers[2].drop()
    # Its time may go on meanwhile, by which those who are there are told again.
    node.until(lambda: counts(servers)[2] >= 3 and node.is_idle())
    first, _, third = counts(servers)
    node.topics.put(topic("more"), 3)
    node.until(lambda: counts(servers)[0] > first and counts(servers)[2] > third and node.is_idle())

    assert servers[1].opened == 1 and counts(servers)[1] == 2


@in_own_network
def test_a_name_that_is_not_known_is_asked_for_again_and_holds_up_nobody(
    node: RegisteredNode, names: NameServer, servers: list[RawNameServer]
) -> None:
    node.lead("n0")
    node.until(lambda: counts(servers) == [1, 0, 0] and bool(names.asked) and node.is_idle())
    names.set("names", HOSTS[1])

    def is_found() -> bool:
        # Its time passes about as fast as ours.
        node.now_ms += 10
        return counts(servers) == [1, 1, 0]

    node.until(is_found)

    assert node.now_ms >= DOUBT_MS
    assert registrations(servers[0]) == 1


@in_own_network
def test_a_server_that_has_moved_is_found_sooner_than_the_name_is_asked_for(
    node: RegisteredNode, names: NameServer, servers: list[RawNameServer]
) -> None:
    names.set("names", HOSTS[1])
    node.lead("n0")
    node.until(lambda: counts(servers) == [1, 1, 0] and node.is_idle())
    names.set("names", HOSTS[2])
    servers[1].code = 1
    node.topics.put(topic("sales"), 2)
    node.until(lambda: counts(servers) == [2, 2, 0] and node.is_idle())
    node.now_ms += DOUBT_MS
    node.until(lambda: counts(servers)[2] == 1)

    assert node.now_ms < PERIOD_MS < ASK_MS
