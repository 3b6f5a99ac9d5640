"""A listening socket that stays when processes go: systemd's part is played by the test.

It holds the socket, and passes it as sd_listen_fds(3) says; the node is a real one.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.remoting.codes import RequestCode
from tests.process.conftest import Node, wait_until
from tests.process.node_start import SERVE, run_command
from tests.process.remoting_client import RemotingClient

pytestmark = pytest.mark.slow

UNIT = "ledgermq-remoting.socket"
LAUNCHER = str(Path(__file__).with_name("socket_unit.py"))


@pytest.fixture
def held() -> Iterator[socket.socket]:
    """What systemd would hold."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener


def address_of(listener: socket.socket) -> str:
    return f"127.0.0.1:{listener.getsockname()[1]}"


def launch(node: Node, held: socket.socket) -> None:
    prefix = (sys.executable, LAUNCHER, str(held.fileno()), UNIT)
    node.launch([*SERVE, str(node.config)], prefix=prefix, passes=(held.fileno(),))


def ask(client: RemotingClient) -> int:
    """Code of the reply to what any node answers."""
    return client.ask(RequestCode.GET_BROKER_CLUSTER_INFO).code


def test_who_connects_while_no_process_serves_waits_and_is_answered(
    make_node: Callable[[], Node], held: socket.socket
) -> None:
    node = make_node()
    node.configure(listen={"remoting": address_of(held), "vip_channel": False})
    early = RemotingClient(address_of(held))
    question = early.send(RequestCode.GET_BROKER_CLUSTER_INFO)
    launch(node, held)
    node.wait_ready()

    assert early.reply_to(question).code == 0
    assert node.status()["ports"] == [
        {"setting": "listen.remoting", "address": address_of(held), "unit": UNIT}
    ]
    told = run_command("service", "status", "--config", node.config)
    assert f"port        {address_of(held)} (listen.remoting): held by systemd ({UNIT})" in (
        told.stdout.splitlines()
    )

    pid = node.pid("broker")
    os.kill(pid, signal.SIGKILL)
    between = RemotingClient(address_of(held))
    assert ask(between) == 0
    wait_until(lambda: node.pids().get("broker", pid) != pid, "another broker")

    assert node.stop() == 0
    late = RemotingClient(address_of(held))
    question = late.send(RequestCode.GET_BROKER_CLUSTER_INFO)
    launch(node, held)

    assert late.reply_to(question).code == 0
    for client in (early, between, late):
        client.close()


def test_a_unit_that_listens_elsewhere_ends_the_start_before_anything_is_touched(
    make_node: Callable[[], Node], held: socket.socket
) -> None:
    node = make_node()
    node.configure(listen={"remoting": "127.0.0.1:10911"})
    launch(node, held)
    status = node.wait_end()
    told = node.log.read_text()

    assert status == 1
    assert UNIT in told
    assert address_of(held) in told
    assert "127.0.0.1:10911" in told
    assert not node.root.exists()
