"""A real node as a name server: what tools ask and change there."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from ledgermq.remoting.command import Command
from tests.process.conftest import Node, wait_until
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node

pytestmark = pytest.mark.slow


@pytest.fixture
def client(make_node: Callable[[], Node]) -> Iterator[RemotingClient]:
    node = make_node()
    made = RemotingClient(start_remoting_node(node))
    wait_until(lambda: "0" in brokers(made), "the node to lead")
    yield made
    made.close()
    node.stop()


def body(reply: Command) -> Any:
    assert reply.code == ResponseCode.SUCCESS, reply.remark
    return json.loads(bytes(reply.body))


def route(client: RemotingClient, topic: str = "orders") -> Any:
    return body(client.ask(Code.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}))


def brokers(client: RemotingClient) -> dict[str, str]:
    found: dict[str, str] = route(client)["brokerDatas"][0]["brokerAddrs"]
    return found


def test_tools_read_and_change_what_a_name_server_has(client: RemotingClient) -> None:
    order = {"namespace": "ORDER_TOPIC_CONFIG", "key": "orders"}
    missing = client.ask(Code.GET_KV_CONFIG, order)
    put = client.ask(Code.PUT_KV_CONFIG, {**order, "value": "broker-a:4"})
    got = client.ask(Code.GET_KV_CONFIG, order)
    ordered = route(client)
    listed = body(client.ask(Code.GET_KVLIST_BY_NAMESPACE, {"namespace": order["namespace"]}))
    client.ask(Code.DELETE_KV_CONFIG, order)
    gone = client.ask(Code.GET_KV_CONFIG, order)
    nameless = client.ask(Code.PUT_KV_CONFIG, {"namespace": "", "key": "k", "value": "v"})

    assert (missing.code, gone.code) == (ResponseCode.QUERY_NOT_FOUND,) * 2
    assert (put.code, got.fields["value"]) == (0, "broker-a:4")
    assert ordered["orderTopicConf"] == "broker-a:4"
    assert listed == {"table": {"orders": "broker-a:4"}}
    assert nameless.code == ResponseCode.SYSTEM_ERROR
    assert "wrong length" in str(nameless.remark)

    closed = client.ask(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    while_closed = route(client)["queueDatas"][0]["perm"]
    opened = client.ask(Code.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "broker-a"})
    other = client.ask(Code.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "broker-z"})

    assert int(closed.fields["wipeTopicCount"]) == int(opened.fields["addTopicCount"]) > 2
    assert (while_closed, route(client)["queueDatas"][0]["perm"]) == (4, 6)
    assert other.code == ResponseCode.SYSTEM_ERROR

    topics = body(client.ask(Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER))["topicList"]
    own = body(client.ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_NS))
    of_cluster = body(client.ask(Code.GET_TOPICS_BY_CLUSTER, {"cluster": "DefaultCluster"}))
    of_none = body(client.ask(Code.GET_TOPICS_BY_CLUSTER, {"cluster": "other"}))
    built_in = body(client.ask(Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER))["topicList"]
    unit = body(client.ask(Code.GET_UNIT_TOPIC_LIST))

    assert {"orders", "other", "TBW102"} <= set(topics)
    assert of_cluster["topicList"] == topics
    assert (of_none, unit) == ({"topicList": []},) * 2
    assert own == {"topicList": ["DefaultCluster", "broker-a"], "brokerAddr": brokers(client)["0"]}
    assert "TBW102" in built_in
    assert "orders" not in built_in

    left = client.ask(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "orders"})
    settings = client.ask(Code.GET_NAMESRV_CONFIG)
    refused = client.ask(Code.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true")

    assert client.ask(Code.DELETE_TOPIC_IN_NAMESRV, {"topic": "nothing"}).code == 0
    assert "DELETE_TOPIC_IN_BROKER" in str(left.remark)
    assert b"orderMessageEnable=true\n" in bytes(settings.body)
    assert "settings.md" in str(refused.remark)
