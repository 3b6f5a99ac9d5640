"""A real node's port for RocketMQ's clients: what it answers whatever they ask."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node

from ledgermq.remoting.codes import RequestCode, ResponseCode
from ledgermq.remoting.command import HeaderKind

pytestmark = pytest.mark.slow


@pytest.fixture
def address(make_node: Callable[[], Node]) -> Iterator[str]:
    node = make_node()
    yield start_remoting_node(node)
    node.stop()


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
            {"brokerAddrs": {"0": address}, "brokerName": "broker-a", "cluster": "DefaultCluster"}
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
