"""Nodes at RocketMQ's own name server: its clients find them there, and the leader at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client.admin.admin import Admin
from ledgermq.remoting.codes import RequestCode, ResponseCode
from tests.compat.remoting_group import java_program, make_remoting_group
from tests.compat.rocket_group import NAMES, RocketGroup
from tests.compat.rocketmq import oracle_program
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient

NAME_SERVER = "org.apache.rocketmq.namesrv.NamesrvStartup"
START_S = 120.0
THROUGH = Path(__file__).with_name("Through.java")


@pytest.mark.oracle
@pytest.mark.slow
def test_rocketmqs_name_server_routes_to_our_leader_and_to_the_next_one(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    port = free_port()
    config = tmp_path / "namesrv.conf"
    config.write_text(f"listenPort={port}\n")
    with java_program("", NAME_SERVER, "-c", str(config), folder=tmp_path) as java:
        wait_until(lambda: java.has_said("The Name Server boot success"), "it", timeout_s=START_S)
        group, listed = make_remoting_group(
            make_node, tables={"remoting": {"name_servers": [f"127.0.0.1:{port}"]}}
        )
        ports = dict(zip(group.members, listed.split(";"), strict=True))
        client = RemotingClient(f"127.0.0.1:{port}")

        def route(topic: str) -> Any:
            reply = client.ask(
                RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic, "acceptStandardJsonOnly": True}
            )
            return json.loads(bytes(reply.body)) if reply.code == ResponseCode.SUCCESS else None

        leader = group.leader()
        wait_until(lambda: route("orders"), "the topic to be known there")
        wait_until(
            lambda: route("orders")["brokerDatas"][0]["brokerAddrs"].get("0") == ports[leader],
            "the leader to be id 0",
        )
        wait_until(lambda: len(route("orders")["brokerDatas"][0]["brokerAddrs"]) == 3, "slaves")
        with Admin([member.address for member in group.members]) as admin:
            admin.create_topic("sales", queues=3)
        wait_until(lambda: route("sales"), "a new topic to be known there")
        queues = route("sales")["queueDatas"]
        leader.kill()
        after = group.leader(besides=leader)
        wait_until(
            lambda: route("orders")["brokerDatas"][0]["brokerAddrs"].get("0") == ports[after],
            "the next leader to be id 0",
        )
        left = route("orders")["brokerDatas"][0]["brokerAddrs"]
        client.close()
        group.stop()

    assert [row["writeQueueNums"] for row in queues] == [3]
    assert ports[leader] not in left.values()


@pytest.mark.oracle
@pytest.mark.slow
def test_topics_are_on_brokers_of_both_kinds_and_java_uses_them_as_one(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    with ExitStack() as ends:
        rocketmq = RocketGroup(tmp_path, "--plain", names=NAMES[:1])
        ends.callback(rocketmq.end)
        rocketmq.start()
        server = rocketmq.places["namesrv"]
        group, listed = make_remoting_group(
            make_node,
            tables={"remoting": {"name_servers": [server]}, "node": {"broker_name": "ours"}},
        )
        leader = group.leader()
        with Admin([member.address for member in group.members]) as admin:
            admin.create_topic("mixed", queues=2)
        java_broker = RemotingClient(rocketmq.places[NAMES[0]])
        wished = {
            "topic": "mixed", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6, "topicSysFlag": 0,
            "topicFilterType": "SINGLE_TAG", "order": "false", "defaultTopic": "TBW102",
        }  # fmt: skip
        assert java_broker.ask(RequestCode.UPDATE_AND_CREATE_TOPIC, wished).code == 0
        client = RemotingClient(server)

        def brokers() -> list[str]:
            fields = {"topic": "mixed", "acceptStandardJsonOnly": True}
            reply = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
            rows = json.loads(bytes(reply.body))["brokerDatas"] if reply.code == 0 else []
            return sorted(row["brokerName"] for row in rows if "0" in row["brokerAddrs"])

        wait_until(lambda: brokers() == ["oracle", "ours"], "both to be routed to")
        with java_program(server, THROUGH, "mixed", "mixed", folder=tmp_path) as java:
            wait_until(lambda: java.has_said("runs"), "producers and consumers", START_S)
            java.tell("both")
            wait_until(lambda: java.has_said("through both "), "both to be used", START_S)
            java.tell("stop")
            lines = java.wait()
        ports = dict(zip(group.members, listed.split(";"), strict=True))
        ours = RemotingClient(ports[leader])
        stored = [
            int(
                one.ask(RequestCode.GET_MAX_OFFSET, {"topic": "mixed", "queueId": 0}).fields[
                    "offset"
                ]
            )
            for one in (java_broker, ours)
        ]
        for one in (client, java_broker, ours):
            one.close()
        statuses = group.stop()
        rocketmq.stop()

    assert min(stored) > 0
    assert "ordered missing 0 turned 0" in lines, lines[-50:]
    assert "concurrent missing 0" in lines, lines[-50:]
    assert statuses == [0, 0, 0]
