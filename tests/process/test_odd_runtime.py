"""What lies in the way in a node's runtime directory, as when it is full, ends nobody."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest

from ledgermq.client import Admin, Producer
from ledgermq.process.runtime_paths import RuntimePaths
from ledgermq.process.settings.reload import published_path
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def test_settings_that_cannot_be_given_to_the_processes_stay_as_they_are(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    start_client_node(node)
    pids = node.pids()
    in_the_way = published_path(node.runtime).with_suffix(".new")
    in_the_way.mkdir()
    node.signal(signal.SIGHUP)
    wait_until(lambda: node.logged("settings cannot be given to the processes"), "a line about it")
    with Producer(node.address) as producer:
        producer.send("orders", b"goes on").result(PATIENCE_S)
    in_the_way.rmdir()
    before = published_path(node.runtime).stat().st_ino
    node.signal(signal.SIGHUP)
    wait_until(lambda: published_path(node.runtime).stat().st_ino != before, "they are given")

    assert node.pids() == pids
    assert node.stop() == 0


def test_what_is_in_the_way_of_grpcs_process_is_no_failed_disk(
    make_node: Callable[[], Node],
) -> None:
    pytest.importorskip("grpc", reason="no grpcio: packaging/bootstrap.sh")
    node = make_node()
    start_client_node(node, listen={"grpc": f"127.0.0.1:{free_port()}"})
    socket = RuntimePaths(node.runtime).grpc
    socket.unlink()
    socket.mkdir()
    os.kill(node.pid("grpc"), signal.SIGKILL)
    wait_until(lambda: node.logged("exit status 2"), "it cannot begin")
    with Admin(node.address) as admin:
        admin.create_topic("made", queues=1)
    socket.rmdir()
    wait_until(lambda: node.status()["state"] == "ready", "the node to be ready")

    assert node.stop() == 0
