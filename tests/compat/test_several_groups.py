"""RocketMQ's own broker at our name service alone: its clients use both kinds as one cluster."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from ledgermq.client.admin.admin import Admin
from ledgermq.remoting.codes import RequestCode
from tests.compat.remoting_group import JavaProgram, java_program
from tests.compat.rocketmq import START_TIMEOUT_S, oracle_program
from tests.compat.test_mqadmin import Mqadmin
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.remoting_client import RemotingClient
from tests.process.remoting_node import start_remoting_node

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

BROKER = "org.apache.rocketmq.broker.BrokerStartup"
THROUGH = Path(__file__).with_name("Through.java")
MQADMIN = Path(__file__).with_name("Mqadmin.java")
CLUSTER, OURS, THEIRS = "both", "ours", "theirs"


@contextmanager
def java_broker(name_server: str, folder: Path) -> Iterator[tuple[str, JavaProgram]]:
    """A plain broker of RocketMQ with a new store; its address, and the program."""
    port = free_port()
    store = folder / "java-store"
    config = folder / "java-broker.conf"
    settings = {
        "brokerClusterName": CLUSTER,
        "brokerName": THEIRS,
        "brokerId": 0,
        "brokerIP1": "127.0.0.1",
        "listenPort": port,
        "haListenPort": free_port(),
        "namesrvAddr": name_server,
        "registerNameServerPeriod": 10_000,
        "mappedFileSizeCommitLog": 16 * 1024 * 1024,
        "storePathRootDir": store,
        "storePathCommitLog": store / "commitlog",
    }
    config.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    with java_program("", BROKER, "-c", str(config), folder=folder) as java:
        wait_until(lambda: java.has_said("The broker["), "RocketMQ's broker", START_TIMEOUT_S)
        yield f"127.0.0.1:{port}", java


def brokers_of(server: str, topic: str) -> list[str]:
    """Broker names of a route that have a master, in its order."""
    with closing(RemotingClient(server)) as client:
        fields = {"topic": topic, "acceptStandardJsonOnly": True}
        reply = client.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
    rows = json.loads(bytes(reply.body))["brokerDatas"] if reply.code == 0 else []
    return [row["brokerName"] for row in rows if "0" in row["brokerAddrs"]]


def end_of(address: str, topic: str) -> int:
    """Messages of both queues."""
    with closing(RemotingClient(address)) as client:
        return sum(
            int(
                client.ask(RequestCode.GET_MAX_OFFSET, {"topic": topic, "queueId": queue}).fields[
                    "offset"
                ]
            )
            for queue in range(2)
        )


def test_javas_broker_and_clients_need_no_other_name_server_than_ours(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    node = make_node()
    server = start_remoting_node(
        node,
        node={"broker_name": OURS, "broker_cluster_name": CLUSTER},
        remoting={"registrations_from": ["127.0.0.0/8"]},
    )
    with Admin(f"ipc://{node.runtime}") as admin:
        admin.create_topic("mixed", queues=2)
    with ExitStack() as ends:
        theirs, java = ends.enter_context(java_broker(server, tmp_path))
        wait_until(lambda: node.logged(f"broker registered: name={THEIRS}"), "it to register")
        tool = ends.enter_context(java_program(server, MQADMIN, folder=tmp_path))
        mqadmin = Mqadmin(tool, server)
        listed = mqadmin("clusterList")
        created = mqadmin("updateTopic", "-b", theirs, "-t", "mixed", "-r", "2", "-w", "2")
        wait_until(lambda: brokers_of(server, "mixed") == [OURS, THEIRS], "both to be told")
        through = ends.enter_context(java_program(server, THROUGH, "mixed", "m", folder=tmp_path))
        wait_until(lambda: through.has_said("runs"), "producers, consumers", START_TIMEOUT_S)
        through.tell("both")
        wait_until(lambda: through.has_said("through both "), "both used", START_TIMEOUT_S)
        through.tell("stop")
        lines = through.wait()
        stored = end_of(server, "mixed"), end_of(theirs, "mixed")
        os.killpg(java.process.pid, signal.SIGKILL)
        wait_until(lambda: brokers_of(server, "mixed") == [OURS], "the dead one to be gone")
    assert node.stop() == 0

    rows = [line.split()[:3] for line in listed.splitlines()]
    assert [CLUSTER, OURS, "0"] in rows, listed
    assert [CLUSTER, THEIRS, "0"] in rows, listed
    assert "success" in created, created
    assert min(stored) > 0
    assert "ordered missing 0 turned 0" in lines, lines[-50:]
    assert "concurrent missing 0" in lines, lines[-50:]
