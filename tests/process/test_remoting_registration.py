"""Nodes at RocketMQ's name servers, and followers that hand on what only the leader can do."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable

import pytest

from ledgermq.client.admin.admin import Admin
from ledgermq.remoting.codes import RequestCode as Code
from ledgermq.remoting.codes import ResponseCode
from tests.compat.remoting_group import BROKER_NAME, make_remoting_group
from tests.process.conftest import Node, wait_until
from tests.process.raw_name_server import raw_name_server
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node

pytestmark = pytest.mark.slow


def test_a_node_registers_again_when_a_topic_changes_and_after_each_failure(
    make_node: Callable[[], Node],
) -> None:
    with raw_name_server() as server:
        server.code = int(ResponseCode.SYSTEM_ERROR)
        node = make_node()
        address = start_remoting_node(node, remoting={"name_servers": [server.address]})
        wait_until(lambda: len(server.told) >= 2, "the node to ask again after a refusal")
        server.code = 0
        wait_until(lambda: node.logged("registered with a name server"), "the registration")
        before = len(server.told)
        server.drop()
        with Admin(f"ipc://{node.runtime}") as admin:
            admin.create_topic("sales", queues=2)
        wait_until(lambda: len(server.told) > before, "the node to tell of the new topic")
        wait_until(lambda: b'"sales"' in bytes(server.told[-1].body), "the topic to be told of")
        told = server.told[-1]

        assert node.stop() == 0
        wait_until(lambda: server.ended == server.opened, "the connections to end")

    body = json.loads(bytes(told.body))
    table = body["topicConfigSerializeWrapper"]["topicConfigTable"]
    assert told.code == Code.REGISTER_BROKER
    assert (told.fields["brokerId"], told.fields["brokerAddr"]) == ("0", address)
    assert int(told.fields["bodyCrc32"]) == zlib.crc32(bytes(told.body)) & 0x7FFF_FFFF
    assert (table["sales"]["readQueueNums"], table["orders"]["perm"]) == (2, 6)
    assert body["topicConfigSerializeWrapper"]["dataVersion"]["counter"] > 0


def is_done(client: RemotingClient, code: int, fields: dict[str, object]) -> Callable[[], bool]:
    return lambda: client.ask(code, fields).code == 0


def test_a_group_registers_by_its_roles_and_its_followers_hand_changes_on(
    make_node: Callable[[], Node],
) -> None:
    with raw_name_server() as server:
        group, addresses = make_remoting_group(
            make_node,
            tables={
                "remoting": {"name_servers": [server.address]},
                "access": {"admin_over_clients": True},
            },
        )
        ports = dict(zip(group.members, addresses.split(";"), strict=True))
        leader = group.leader()
        follower = group.others(leader)[0]
        wait_until(lambda: ("0", ports[leader]) in server.ids(), "the leader to register")
        wait_until(lambda: len({one for one in server.ids() if one[0] != "0"}) >= 2, "followers")
        client = RemotingClient(ports[follower])

        def route_leads(to: str) -> bool:
            route = client.ask(Code.GET_BROKER_CLUSTER_INFO)
            told = json.loads(bytes(route.body))["brokerAddrTable"][BROKER_NAME]["brokerAddrs"]
            return bool(told.get("0") == to)

        wait_until(lambda: route_leads(ports[leader]), "the follower to know the leader")
        topic: dict[str, object] = {
            "topic": "sales",
            "readQueueNums": 2,
            "writeQueueNums": 2,
            "perm": 6,
        }
        value: dict[str, object] = {"namespace": "n", "key": "k", "value": "v"}
        # Where a machine is very busy the leader's answer may come too late for the follower.
        for code, fields in (
            (Code.UPDATE_AND_CREATE_TOPIC, topic),
            (Code.DELETE_TOPIC_IN_BROKER, {"topic": "sales"}),
            (Code.PUT_KV_CONFIG, value),
        ):
            wait_until(is_done(client, code, fields), code.name)
        system = {**topic, "topic": "TBW102"}
        refused = client.ask(Code.UPDATE_AND_CREATE_TOPIC, system)

        def value_is_there() -> bool:
            return client.ask(Code.GET_KV_CONFIG, value).fields.get("value") == "v"

        wait_until(value_is_there, "the value to be on the follower")
        leader.kill()
        next_leader = group.leader(besides=leader)
        wait_until(lambda: ("0", ports[next_leader]) in server.ids(), "the next to register")
        wait_until(lambda: route_leads(ports[next_leader]), "the route to name the next leader")
        client.close()
        group.stop()

    assert refused.code != 0
