"""Nine nodes under load of our clients, Java's and Go's: a group joins, one goes, leaders die."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.compat.other_clients import Command, NotToBeHadError, go_cluster_client
from tests.compat.remoting_group import java_program
from tests.compat.rocketmq import START_TIMEOUT_S, oracle_program
from tests.compat.test_name_server import NAME_SERVER
from tests.process.cluster_change import (
    ANY,
    KEYED,
    Client,
    Cluster,
    check,
    client_program,
    native_client,
    report,
)
from tests.process.cluster_history import History
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port

SWITCH = "LEDGERMQ_NINE_NODES"

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.environ.get(SWITCH) != "1",
        reason=f"twelve nodes and two JVMs, for a machine that does nothing else: {SWITCH}=1",
    ),
]

MEMBERS = 3
CLUSTER = Path(__file__).with_name("Cluster.java")
HEAP = "-Xmx512m -XX:+UseSerialGC"


def java_client(name_servers: str, folder: Path) -> AbstractContextManager[Client]:
    """RocketMQ's own; its consumer takes each queue in its order."""
    history = History("java", folder / "java.said", delivers_in_order=True, keeps_places=False)
    words = [sys.executable, str(oracle_program()), "java", str(CLUSTER), "java", KEYED, ANY]
    return client_program(history, words, {"NAMESRV": name_servers, "_JAVA_OPTIONS": HEAP})


def go_client(command: Command, name_servers: str, folder: Path) -> AbstractContextManager[Client]:
    """RocketMQ's in Go, whose consumer takes messages in any order."""
    program, environment = command
    history = History("go", folder / "go.said", delivers_in_order=False, keeps_places=False)
    return client_program(history, [*program, "go", KEYED, ANY, name_servers], environment)


@contextmanager
def rocketmqs_name_servers(folder: Path) -> Iterator[list[str]]:
    """Two of them, which know nothing of one another, as RocketMQ has it."""
    with ExitStack() as ends:
        servers = []
        for number in range(2):
            port = free_port()
            config = folder / f"namesrv-{number}.conf"
            config.write_text(f"listenPort={port}\n")
            java = ends.enter_context(
                java_program("", NAME_SERVER, "-c", str(config), folder=folder)
            )
            boots = java.has_said
            wait_until(
                lambda has_said=boots: has_said("The Name Server boot success"),
                "a name server",
                START_TIMEOUT_S,
            )
            servers.append(f"127.0.0.1:{port}")
        yield servers


@pytest.mark.parametrize("names", ["ours", "rocketmq"])
def test_nine_nodes_become_others_under_load_of_all_clients_while_leaders_die(
    names: str, make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    go, missing = None, ""
    try:
        go = go_cluster_client()
    except NotToBeHadError as reason:
        missing = f"without the Go client: {reason}"
    with ExitStack() as ends:
        servers = None
        if names == "rocketmq":
            servers = ends.enter_context(rocketmqs_name_servers(tmp_path))
        cluster = Cluster(make_node, members=MEMBERS, name_servers=servers)
        told = ";".join(cluster.name_servers)
        clients = [
            ends.enter_context(native_client("native", cluster.groups[:2], tmp_path)),
            ends.enter_context(java_client(told, tmp_path)),
        ]
        if go is not None:
            clients.append(ends.enter_context(go_client(go, told, tmp_path)))
        histories = [one.history for one in clients]
        ends.callback(lambda: print(report(cluster, histories), missing, sep="\n"))
        cluster.change(clients)
        cluster.end(clients)

    check(histories)
    if missing:
        pytest.skip(missing)
