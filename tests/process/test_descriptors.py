"""Few files may be open: connections are bounded by that, and no disk counts as failed."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable
from contextlib import ExitStack, suppress

import pytest

from ledgermq.client import Admin, Producer
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.node_start import SERVE
from tests.process.running import topics_document

pytestmark = pytest.mark.slow

# A gRPC client's first bytes: HTTP/2's preface, and an empty frame of its settings.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)


def start(node: Node, limit: str, ports: list[int]) -> None:
    consume, produce, remoting = ports
    node.configure(
        listen={
            "consume": f"tcp://127.0.0.1:{consume}",
            "produce": f"tcp://127.0.0.1:{produce}",
            "remoting": f"127.0.0.1:{remoting}",
        },
        ack={"mode": "majority-memory"},
    )
    config = node.root / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(topics_document("orders"))
    node.launch([*SERVE, str(node.config)], prefix=("prlimit", f"--nofile={limit}"))
    node.wait_ready()


@pytest.mark.parametrize("limit", [160, 1_024])
def test_idle_connections_take_no_file_from_a_node(
    limit: int, make_node: Callable[[], Node]
) -> None:
    node, ports = make_node(), [free_port() for _ in range(3)]
    start(node, f"{limit}:{limit}", ports)
    with ExitStack() as strangers, Producer(f"ipc://{node.runtime}") as producer:
        for port in ports:
            for _ in range(limit + limit // 2):
                stranger = strangers.enter_context(socket.socket())
                stranger.settimeout(1)
                with suppress(OSError):
                    stranger.connect(("127.0.0.1", port))
        for number in range(3):
            producer.send("orders", b"%d" % number).result()
            with Admin(f"ipc://{node.runtime}") as admin:
                admin.create_topic(f"made{number}", queues=1)
    told = [line for line in node.log.read_text().splitlines() if "fewer connections" in line]

    assert len(told) == 1
    assert f"each process may open {limit} files" in told[0]
    for name in ("limits.connections_max", "remoting.connections_max"):
        assert f"{name}=" in told[0]
    assert node.process is not None and node.process.poll() is None
    assert not node.logged(" CRITICAL "), node.log.read_text()


def test_a_soft_limit_is_raised_as_far_as_it_may_be(make_node: Callable[[], Node]) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = min(hard, 65_536)
    node = make_node()
    start(node, f"256:{hard}", [free_port() for _ in range(3)])
    limits = {
        role: resource.prlimit(pid, resource.RLIMIT_NOFILE) for role, pid in node.pids().items()
    }

    assert set(limits.values()) == {(hard, hard)}


def test_a_process_that_finds_no_descriptor_is_begun_anew(make_node: Callable[[], Node]) -> None:
    """However they went: a limit that is lowered beneath what is open is an EMFILE for all."""
    node = make_node()
    start(node, "1024:1024", [free_port() for _ in range(3)])
    pid = node.pid("broker")
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (4, 1_024))
    with Admin(f"ipc://{node.runtime}") as admin:
        with suppress(Exception):
            admin.create_topic("made", queues=1)
        wait_until(lambda: node.pid("broker") != pid, "another broker")
        wait_until(lambda: node.status()["state"] == "ready", "the node to be ready")
        admin.create_topic("made2", queues=1)

    assert node.process is not None and node.process.poll() is None
    assert node.logged("Too many open files")


def test_idle_grpc_connections_take_no_file_from_their_process(
    make_node: Callable[[], Node],
) -> None:
    """Each of them has three, once it has said that it speaks HTTP/2."""
    clients = pytest.importorskip("tests.process.grpc_clients", reason="no grpcio")
    limit, node, grpc = 256, make_node(), free_port()
    node.configure(listen={"grpc": f"127.0.0.1:{grpc}"}, ack={"mode": "majority-memory"})
    config = node.root / "config"
    config.mkdir(parents=True)
    (config / "topics.json").write_text(topics_document("orders"))
    node.launch([*SERVE, str(node.config)], prefix=("prlimit", f"--nofile={limit}:{limit}"))
    node.wait_ready()
    pid = node.pid("grpc")
    with ExitStack() as strangers:
        for _ in range(limit):
            stranger = strangers.enter_context(socket.create_connection(("127.0.0.1", grpc)))
            with suppress(OSError):
                stranger.sendall(GREETING)
        honest = clients.RawClient(f"127.0.0.1:{grpc}")
        strangers.callback(honest.close)
        assert honest.send("orders").status.code == 20_000
    (told,) = [line for line in node.log.read_text().splitlines() if "fewer connections" in line]

    assert "grpc.connections_max=32 instead of" in told
    assert node.pid("grpc") == pid
    assert not node.logged("Too many open files"), node.log.read_text()
