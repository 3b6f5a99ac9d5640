"""A real node's port for RocketMQ's clients: what it answers whatever they ask."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator

import pytest

from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import HeaderKind
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node

pytestmark = pytest.mark.slow


@pytest.fixture
def address(make_node: Callable[[], Node]) -> Iterator[str]:
    node = make_node()
    yield start_remoting_node(node)
    node.stop()


def second(address: str) -> str:
    """Where RocketMQ's clients with ``vipChannelEnabled`` look for a broker."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 2}"


def test_the_second_port_answers_as_the_first_and_a_node_goes_on_without_it(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    address = start_remoting_node(node)
    client = RemotingClient(second(address))
    wait_until(lambda: brokers_of(client, "orders") == {"0": address}, "the node to lead")
    client.close()
    ports = {one["setting"]: one["address"] for one in node.status()["ports"]}
    node.stop()

    with socket.create_server(("127.0.0.1", int(second(address).rpartition(":")[2]))):
        node.serve()
        other = RemotingClient(address)
        wait_until(lambda: brokers_of(other, "orders") == {"0": address}, "the node to lead")
        other.close()
        node.stop()

    assert ports == {"listen.remoting": address, "listen.vip_channel": second(address)}
    assert "clients with vipChannelEnabled find no port here" in node.log.read_text()


@pytest.mark.parametrize("kind", list(HeaderKind))
def test_a_node_tells_where_topics_are_and_what_it_does_not_know(
    address: str, kind: HeaderKind
) -> None:
    client = RemotingClient(address, kind=kind)

    wait_until(lambda: "0" in brokers_of(client, "orders"), "the node leads its group of one")
    route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "orders"})
    unknown = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "nothing"})
    lacking = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC)
    strange = client.ask(9_999)
    client.close()

    assert route.kind is kind
    assert json.loads(bytes(route.body)) == {
        "brokerDatas": [
            {
                "brokerAddrs": {"0": address},
                "brokerName": "broker-a",
                "cluster": "DefaultCluster",
                "enableActingMaster": False,
            }
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": "broker-a",
                "perm": 6,
                "readQueueNums": 4,
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            }
        ],
    }
    assert unknown.code == ResponseCode.TOPIC_NOT_EXIST
    assert lacking.code == ResponseCode.SYSTEM_ERROR
    assert "topic" in str(lacking.remark)
    assert strange.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED


def brokers_of(client: RemotingClient, topic: str) -> dict[str, str]:
    route = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    found: dict[str, str] = json.loads(bytes(route.body))["brokerDatas"][0]["brokerAddrs"]
    return found
