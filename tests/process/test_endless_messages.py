"""What a client sends and never ends takes a bounded piece of memory, whatever it is cut into."""

from __future__ import annotations

import mmap
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgermq.client import Consumer, Producer
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import free_port
from tests.process.node_start import run_python
from tests.process.raw_zmtp import LONG, MORE, ZmtpClient
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

MIB = 1 << 20
LIMIT = 32 * MIB
PARTS = {
    "large": bytes([MORE | LONG]) + (1_000_000).to_bytes(8, "big") + bytes(1_000_000),
    "small": (bytes([MORE, 40]) + bytes(40)) * 4_096,
    "empty": bytes([MORE, 0]) * 65_536,
}
SENT_MAX = 1024 * MIB
"""More than any process may have had: who could send so much was not stopped."""

GROWTH_MAX = SENT_MAX
"""The bound, and what comes while nobody looks: 100 ms, and as long as the process waits for a
processor. Without an end it would be as much and more: small parts take many times their size."""


class Endless:
    """A connection that sends parts of a message until it is ended."""

    def __init__(self, port: int, part: bytes) -> None:
        self.client = ZmtpClient(("127.0.0.1", port))
        self._part = part
        self.sent = 0

    def send_until_ended(self) -> bool:
        """Whether it was ended."""
        sock: socket.socket = self.client._socket
        try:
            while self.sent < SENT_MAX:
                sock.sendall(self._part)
                self.sent += len(self._part)
        except ConnectionError:
            return True
        return False


def anonymous(pid: int) -> int:
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * mmap.PAGESIZE


@pytest.fixture
def node(make_node: Callable[[], Node]) -> Iterator[Node]:
    yield make_node()


def served(node: Node, **limits: int) -> dict[str, int]:
    """Ports of a node that listens in clear, by whose they are."""
    ports = {"writer": free_port(), "broker": free_port()}
    node.configure(
        listen={
            "produce": f"tcp://127.0.0.1:{ports['writer']}",
            "consume": f"tcp://127.0.0.1:{ports['broker']}",
        },
        limits={"total_unread_bytes": LIMIT, **limits},
    )
    node.serve()
    return ports


@pytest.mark.long(but=2)
@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("role", ["writer", "broker"])
def test_a_message_without_an_end_costs_its_sender_the_connection(
    node: Node, role: str, parts: str
) -> None:
    ports = served(node)
    pids = node.pids()
    before = anonymous(pids[role])
    with Producer(f"tcp://127.0.0.1:{ports['broker']}") as honest:
        honest.send("orders", b"before").result(PATIENCE_S)
        attacker = Endless(ports[role], PARTS[parts])
        was_ended = attacker.send_until_ended()
        grown = anonymous(pids[role]) - before
        sent = honest.send("orders", b"after").result(PATIENCE_S)
    attacker.client.close()
    ended = node.status()["counters"][role]["connections_ended"]

    assert was_ended
    assert grown < GROWTH_MAX
    assert sent.queue_offset >= 0
    assert ended >= 1
    assert node.pids() == pids
    assert node.stop() == 0


def test_who_sends_much_and_ends_each_message_is_never_ended(node: Node) -> None:
    ports = served(node)
    body = bytes(512 * 1024)
    with Producer(f"tcp://127.0.0.1:{ports['broker']}") as producer:
        for _ in range(6):
            for send in [producer.send("orders", body, queue_id=0) for _ in range(64)]:
                send.result(PATIENCE_S)
    count = 0
    address = f"tcp://127.0.0.1:{ports['broker']}"
    with Consumer(address, topic="orders", queues=[0], start="first") as consumer:
        while batch := consumer.poll(5.0 if count < 6 * 64 else 0.0):
            count += len(batch)
    counters = node.status()["counters"]

    assert count == 6 * 64
    assert counters["writer"]["connections_ended"] == 0
    assert counters["broker"]["connections_ended"] == 0
    assert node.stop() == 0


@pytest.mark.parametrize("setting", ["connections_max", "connections_per_address"])
def test_connections_of_one_host_are_bounded_and_those_of_operators_are_not(
    node: Node, setting: str
) -> None:
    ports = served(node, **{setting: 8})
    opened = [ZmtpClient(("127.0.0.1", ports["writer"])) for _ in range(8)]

    def count() -> int:
        return int(node.status()["counters"]["writer"]["connections_ended"])

    before = count()
    more = [socket.create_connection(("127.0.0.1", ports["writer"])) for _ in range(4)]
    wait_until(lambda: count() == 4, "connections to be ended")
    with Producer(f"ipc://{node.runtime}") as local:
        sent = local.send("orders", b"operator").result(PATIENCE_S)
    for one in (*opened, *more):
        one.close()
    with Producer(f"tcp://127.0.0.1:{ports['broker']}") as remote:
        again = remote.send("orders", b"when others have gone").result(PATIENCE_S)

    assert before == 0
    assert sent.queue_offset >= 0
    assert again.queue_offset >= 0
    assert node.stop() == 0


LOCAL = """
import os, socket, sys
from tests.adversary import zmtp3
from tests.process.node_start import run_python
from tests.process.raw_zmtp import LONG, MORE
os.setgroups([])
os.setgid(65_534)
os.setuid(65_534)
sock = socket.socket(socket.AF_UNIX)
sock.connect(sys.argv[1])
sock.sendall(zmtp3.greeting() + zmtp3.ready())
part = bytes([MORE | LONG]) + (1_000_000).to_bytes(8, "big") + bytes(1_000_000)
sent = 0
try:
    while sent < int(sys.argv[2]):
        sock.sendall(part)
        sent += len(part)
except (BrokenPipeError, ConnectionResetError):
    print("ended")
"""


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs another account, which root may be")
@pytest.mark.parametrize("name", ["produce", "consume"])
def test_a_local_account_that_never_ends_a_message_is_ended(node: Node, name: str) -> None:
    limits = {"total_unread_bytes": LIMIT}
    node.configure(listen={"socket_mode": 0o666}, limits=limits)
    node.serve()
    for folder in node.runtime.parents:
        if folder.stat().st_uid == os.geteuid() and folder != folder.parent:
            folder.chmod(folder.stat().st_mode | 0o755)
    role = {"produce": "writer", "consume": "broker"}[name]
    pid = node.pid(role)
    # It becomes another account when all is imported: that may not read the interpreter's files.
    stranger = run_python("-c", LOCAL, node.runtime / name, SENT_MAX)
    with Producer(f"ipc://{node.runtime}") as producer:
        producer.send("orders", b"honest").result()

    assert (stranger.returncode, stranger.stdout) == (0, "ended\n"), stranger.stderr
    assert node.pid(role) == pid

    def ended() -> int:
        # A process that was begun anew meanwhile would count from zero.
        assert node.pid(role) == pid, node.log.read_text()
        return int(node.status()["counters"][role]["connections_ended"])

    # It is counted behind the end, which its client sees before.
    wait_until(ended, "the end to be counted")
    assert ended() == 1, node.log.read_text()
    assert node.stop() == 0
