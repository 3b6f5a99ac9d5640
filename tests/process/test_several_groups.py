"""Groups that register with one another, and brokers of RocketMQ's protocol that register: each
name service tells the routes of all of them.
"""

from __future__ import annotations

import json
import os
import signal
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from typing import Any, NamedTuple

import pytest

from ledgermq.client.admin.admin import Admin
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command
from tests.certificates import make_certificate
from tests.process.conftest import Node, nodes_made, wait_until
from tests.process.group_nodes import free_port
from tests.process.port_processes import one_at_each
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node

pytestmark = pytest.mark.slow

LOOPBACK = {"registrations_from": ["127.0.0.0/8"]}
BOTH = ["east", "west"]


class Group(NamedTuple):
    """A group of one node, and the address of its name service."""

    name: str
    node: Node
    server: str

    def ask(self, code: int, fields: Mapping[str, object] | None = None) -> Command:
        """Ask its name service, on a connection for that alone."""
        with closing(RemotingClient(self.server)) as client:
            return client.ask(code, fields)

    def brokers_of(self, topic: str) -> list[str]:
        """Broker names of a route that have a leader, in the order of the route."""
        return brokers_in(self.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))

    def tells_both(self) -> bool:
        """Whether it knows the way to both groups."""
        return sorted(self.brokers_of("orders")) == BOTH


def body(reply: Command) -> Any:
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return json.loads(bytes(reply.body))


def brokers_in(reply: Command) -> list[str]:
    """Broker names of a route that have a leader; none where there is no route, or not yet."""
    if reply.code in (ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SERVICE_NOT_AVAILABLE):
        return []
    return [one["brokerName"] for one in body(reply)["brokerDatas"] if "0" in one["brokerAddrs"]]


@pytest.fixture(params=["one process", "port processes"])
def groups(request: pytest.FixtureRequest) -> Iterator[list[Group]]:
    """Two, each at the other's name service; the topic ``orders`` is on both."""
    processes = 1 if request.param == "one process" else 2
    with nodes_made() as make:
        servers = [f"127.0.0.1:{free_port()}" for _ in BOTH]
        made = []
        for name, own, other in zip(BOTH, servers, reversed(servers), strict=True):
            node = make()
            start_remoting_node(
                node,
                node={"broker_name": name, "broker_cluster_name": "both"},
                listen={"name_server": own},
                remoting={**LOOPBACK, "name_servers": [other], "processes": processes},
            )
            made.append(Group(name, node, own))
        for group in made:
            wait_until(group.tells_both, f"{group.name} to tell of both")
        yield made
        assert [group.node.stop() for group in made] == [0, 0]


def test_either_node_tells_the_routes_of_both_groups_and_of_the_one_that_is_left(
    groups: list[Group],
) -> None:
    east, west = groups
    order = [group.brokers_of("orders") for group in groups]
    listed = [body(group.ask(Code.GET_BROKER_CLUSTER_INFO)) for group in groups]
    with Admin(f"ipc://{west.node.runtime}") as admin:
        admin.create_topic("west-alone", queues=3)
        wait_until(lambda: east.brokers_of("west-alone") == ["west"], "the new topic")
        topics = body(east.ask(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))["topicList"]
        admin.delete_topic("west-alone")
    wait_until(lambda: east.brokers_of("west-alone") == [], "the topic to be gone")
    counted = east.node.status()["counters"]["broker"]["registered_brokers"]

    west.node.signal(signal.SIGKILL)
    west.node.wait_end()
    wait_until(lambda: east.brokers_of("orders") == ["east"], "the dead one to be gone")
    without = body(east.ask(Code.GET_BROKER_CLUSTER_INFO))
    west.node.serve()
    for group in groups:
        wait_until(group.tells_both, f"{group.name} to tell of both again")

    assert order == [["east", "west"], ["west", "east"]]
    assert [sorted(one["clusterAddrTable"]["both"]) for one in listed] == [BOTH, BOTH]
    assert "west-alone" in topics
    assert counted == 1
    assert without["clusterAddrTable"] == {"both": ["east"]}


def test_a_broker_process_that_begins_anew_is_told_again_at_once(groups: list[Group]) -> None:
    east, _ = groups
    registrations = east.node.log.read_text().count("broker registered:")
    os.kill(east.node.pid("broker"), signal.SIGKILL)

    def registered() -> bool:
        return east.node.log.read_text().count("broker registered:") > registrations

    wait_until(registered, "the other group to register again")
    wait_until(east.tells_both, "both to be told")


def a_broker(**changed: object) -> dict[str, object]:
    return {
        "brokerName": "java",
        "brokerAddr": "10.0.0.1:10911",
        "clusterName": "other",
        "brokerId": 0,
        **changed,
    }


def a_table(version: int, **queues: int) -> bytes:
    topics = {
        name: {"topicName": name, "perm": 6, "readQueueNums": count, "writeQueueNums": count}
        for name, count in queues.items()
    }
    wrapper = {
        "dataVersion": {"counter": version, "timestamp": 1},
        "topicConfigTable": topics,
    }
    table = {"filterServerList": [], "topicConfigSerializeWrapper": wrapper}
    return json.dumps(table).encode()


@pytest.fixture
def port(make_node: Callable[[], Node]) -> Iterator[tuple[Node, str]]:
    """A node with three port processes that takes registrations, and its port."""
    node = make_node()
    remoting: dict[str, Any] = {**LOOPBACK, "processes": 3}
    address = start_remoting_node(node, node={"broker_name": "own"}, remoting=remoting)
    with closing(RemotingClient(address)) as client:
        route = partial(client.ask, Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
        wait_until(lambda: brokers_in(route()) == ["own"], "the node to lead")
    yield node, address
    assert node.stop() == 0


def test_a_broker_registers_at_one_process_and_is_routed_to_by_all(port: tuple[Node, str]) -> None:
    node, address = port
    clients = list(one_at_each(node, address).values())
    broker, others = clients[0], clients[1:]
    table = a_table(1, orders=2, java=3)
    checked = a_broker(bodyCrc32=zlib.crc32(table) & 0x7FFF_FFFF)
    unknown = broker.ask(Code.QUERY_DATA_VERSION, a_broker(), b'{"counter":1,"timestamp":1}')
    answers = [broker.ask(Code.REGISTER_BROKER, checked, table) for _ in range(2)]
    slave = broker.ask(
        Code.REGISTER_BROKER, a_broker(brokerAddr="10.0.0.2:10911", brokerId=1), table
    )
    known = broker.ask(Code.QUERY_DATA_VERSION, a_broker(), b'{"counter":1,"timestamp":1}')
    newer = broker.ask(Code.QUERY_DATA_VERSION, a_broker(), b'{"counter":2,"timestamp":1}')
    beaten = broker.ask(Code.BROKER_HEARTBEAT, a_broker())
    routes = [one.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"}) for one in others]
    java = body(others[0].ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "java"}))
    of_cluster = body(others[0].ask(Code.GET_TOPICS_BY_CLUSTER, {"cluster": "other"}))
    closed = others[0].ask(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "java"})
    while_closed = body(others[1].ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "java"}))
    others[0].ask(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "java", "clusterName": "other"})
    deleted = others[1].ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "java"})

    assert (unknown.fields["changed"], bytes(unknown.body)) == ("true", b"")
    assert {one.code for one in (*answers, slave, beaten)} == {0}
    assert slave.fields["masterAddr"] == "10.0.0.1:10911"
    assert known.fields["changed"] == "false"
    assert newer.fields["changed"] == "true"
    assert body(newer) == {"counter": 1, "stateVersion": 0, "timestamp": 1}
    assert [brokers_in(one) for one in routes] == [["own", "java"]] * 2
    assert java["brokerDatas"][0]["brokerAddrs"] == {"0": "10.0.0.1:10911", "1": "10.0.0.2:10911"}
    assert java["queueDatas"][0]["writeQueueNums"] == 3
    assert of_cluster == {"topicList": ["java", "orders"]}
    assert closed.fields["wipeTopicCount"] == "2"
    assert while_closed["queueDatas"][0]["perm"] == 4
    assert deleted.code == ResponseCode.TOPIC_NOT_EXIST

    broker.close()
    route = partial(others[0].ask, Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
    wait_until(lambda: brokers_in(route()) == ["own"], "the broker to be gone")
    for client in others:
        client.close()


def test_a_broker_of_the_groups_own_name_is_refused_and_its_members_change_nothing(
    port: tuple[Node, str],
) -> None:
    node, address = port
    with closing(RemotingClient(address)) as client:
        twin = client.ask(Code.REGISTER_BROKER, a_broker(brokerName="own"), a_table(1, java=1))
        member = a_broker(brokerName="own", brokerAddr=address)
        answers = [
            client.ask(code, member, a_table(1, java=1))
            for code in (Code.REGISTER_BROKER, Code.QUERY_DATA_VERSION, Code.UNREGISTER_BROKER)
        ]
        route = client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "java"})
        own = client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})

    assert twin.code == ResponseCode.SYSTEM_ERROR
    assert "node.broker_name" in str(twin.remark)
    assert "10.0.0.1:10911" in str(twin.remark)
    assert node.logged("broker is refused: peer=127.0.0.1")
    assert [one.code for one in answers] == [0, 0, 0]
    assert answers[1].fields["changed"] == "false"
    assert route.code == ResponseCode.TOPIC_NOT_EXIST
    assert brokers_in(own) == ["own"]


def test_registrations_are_refused_unless_the_settings_name_the_host(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    address = start_remoting_node(node, remoting={"registrations_from": ["10.0.0.0/8"]})
    with closing(RemotingClient(address)) as client:
        refused = [
            client.ask(code, a_broker(), a_table(1, java=1))
            for code in (
                Code.REGISTER_BROKER,
                Code.UNREGISTER_BROKER,
                Code.QUERY_DATA_VERSION,
                Code.BROKER_HEARTBEAT,
            )
        ]
        text = node.config.read_text()
        node.config.write_text(text.replace('["10.0.0.0/8"]', '["10.0.0.0/8", "127.0.0.1"]'))
        node.signal(signal.SIGHUP)
        ask = partial(client.ask, Code.REGISTER_BROKER, a_broker(), a_table(1, java=1))
        wait_until(lambda: ask().code == 0, "the settings to be read again")
    assert node.stop() == 0

    assert {one.code for one in refused} == {ResponseCode.NO_PERMISSION}
    assert all("remoting.registrations_from" in str(one.remark) for one in refused)
    assert node.logged("broker is refused: peer=127.0.0.1")


def test_groups_that_enforce_tls_register_with_one_another(make_node: Callable[[], Node]) -> None:
    nodes = [make_node() for _ in BOTH]
    servers = [f"127.0.0.1:{free_port()}" for _ in BOTH]
    made = [make_certificate(node.folder) for node in nodes]
    authorities = nodes[0].folder / "authorities.pem"
    authorities.write_text("".join(certificate.read_text() for certificate, _ in made))
    for number, (node, name) in enumerate(zip(nodes, BOTH, strict=True)):
        certificate, key = made[number]
        tls = {
            "tls_mode": "enforcing",
            "tls_certificate_file": str(certificate),
            "tls_key_file": str(key),
            "name_servers_ca_file": str(authorities),
        }
        start_remoting_node(
            node,
            node={"broker_name": name, "broker_cluster_name": "both"},
            listen={"name_server": servers[number]},
            remoting={**LOOPBACK, **tls, "name_servers": [servers[1 - number]]},
        )
    for node in nodes:
        wait_until(
            lambda node=node: node.status()["counters"]["broker"]["registered_brokers"] == 1,
            "the other group to register",
        )

    assert [node.stop() for node in nodes] == [0, 0]
