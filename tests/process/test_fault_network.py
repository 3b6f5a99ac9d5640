"""Networks of the fault tests lose exactly what they are told to lose, and nothing once healed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.process.conftest import wait_until
from tests.process.fault_namespaces import NamespaceNetwork
from tests.process.fault_network import LossyNetwork, ProxyNetwork
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ECHO = """
import socket, sys, threading
def serve(connection):
    while chunk := connection.recv(100):
        connection.sendall(chunk)
listener = socket.create_server((sys.argv[1], int(sys.argv[2])))
print("listens", flush=True)
while True:
    threading.Thread(target=serve, args=listener.accept()[:1], daemon=True).start()
"""
ASK = """
import socket, sys
for _ in sys.stdin:
    try:
        with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=0.3) as connection:
            connection.sendall(b"x")
            print("answer" if connection.recv(1) else "end", flush=True)
    except OSError as error:
        print(type(error).__name__, flush=True)
"""


class Hosts:
    """Something that answers at each member, and something that asks for each way."""

    def __init__(self, network: LossyNetwork) -> None:
        self.network = network
        self._processes: list[subprocess.Popen[str]] = []
        for member in range(3):
            one = self._start(member, ECHO, network.peers(member)[member])
            assert one.stdout is not None and one.stdout.readline() == "listens\n"
        self._asking = {
            (source, target): self._start(source, ASK, network.peers(source)[target])
            for source in range(3)
            for target in range(3)
            if source != target
        }

    def answers(self) -> dict[tuple[int, int], bool]:
        """Whether an answer came, for each way that a question was sent; all at the same time."""
        for asking in self._asking.values():
            assert asking.stdin is not None
            asking.stdin.write("ask\n")
            asking.stdin.flush()
        found = {}
        for way, asking in self._asking.items():
            assert asking.stdout is not None
            found[way] = asking.stdout.readline() == "answer\n"
        return found

    def close(self) -> None:
        for one in self._processes:
            one.kill()
            one.communicate()

    def _start(self, member: int, script: str, peer: str) -> subprocess.Popen[str]:
        host, _, port = peer.partition("-")[2].partition(":")
        started = subprocess.Popen(
            [*self.network.prefix(member), sys.executable, "-c", script, host, port],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._processes.append(started)
        return started


@pytest.fixture(params=[ProxyNetwork, NamespaceNetwork])
def hosts(request: pytest.FixtureRequest) -> Iterator[Hosts]:
    make: Callable[[int], LossyNetwork] = request.param
    try:
        network = make(3)
    except PermissionError as error:
        pytest.skip(f"no network namespaces can be made here: {error}")
    with closing(network), closing(Hosts(network)) as made:
        yield made


def test_what_goes_one_way_is_lost_and_no_other(hosts: Hosts) -> None:
    wait_until(lambda: all(hosts.answers().values()), "answers of all")
    hosts.network.lose(0, 1)
    # A question needs both ways for its answer.
    wait_until(
        lambda: {way for way, came in hosts.answers().items() if not came} == {(0, 1), (1, 0)},
        "the loss of one way",
    )
    hosts.network.lose(2, 0)
    wait_until(
        lambda: {way for way, came in hosts.answers().items() if came} == {(1, 2), (2, 1)},
        "the loss of two",
    )
    hosts.network.heal()
    wait_until(lambda: all(hosts.answers().values()), "answers of all again")


def test_a_connection_stands_a_short_loss() -> None:
    with closing(ProxyNetwork(3)) as network, closing(Hosts(network)) as hosts:
        host, _, port = network.peers(0)[1].partition("-")[2].partition(":")
        with socket.create_connection((host, int(port)), timeout=PATIENCE_S) as connection:
            connection.sendall(b"1")
            assert connection.recv(1) == b"1"
            network.lose(1, 0)
            wait_until(lambda: not hosts.answers()[0, 1], "the loss")
            connection.sendall(b"2")
            network.heal()

            assert connection.recv(1) == b"2"


def test_namespaces_leave_nothing_behind() -> None:
    try:
        network = NamespaceNetwork(2)
    except PermissionError as error:
        pytest.skip(f"no network namespaces can be made here: {error}")
    names = network.names
    listed = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    network.close()
    left = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout

    assert len(names) == 3 and all(name in listed for name in names)
    assert not any(name in left for name in names)
