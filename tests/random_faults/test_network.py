"""The network of a run carries as it is told, and nothing of it is left when its run is killed."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator

import psutil
import pytest

from tests.process.conftest import is_alive, wait_until
from tests.random_faults import own_machine
from tests.random_faults.carrier import CLONE_NEWNET, Way
from tests.random_faults.network import FaultyNetwork, between
from tests.random_faults.own_machine import in_own_machine
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

PORT = 5_000
CUT = Way(is_cut=True)
MANY = 50


class Host:
    """A socket at a host, whose datagrams are numbers."""

    def __init__(self, network: FaultyNetwork, number: int) -> None:
        self._network = network
        made: list[socket.socket] = []
        # A thread has a network of its own; who made this one is given up with it.
        thread = threading.Thread(target=lambda: made.append(self._open(number)))
        thread.start()
        thread.join()
        self._socket = made[0]

    def send(self, target: int, *numbers: int) -> None:
        for one in numbers:
            self._socket.sendto(b"%32d" % one, (self._network.address(target), PORT))

    def take(self) -> int:
        """The next that comes."""
        return int(self._socket.recv(64))

    def close(self) -> None:
        self._socket.close()

    def _open(self, number: int) -> socket.socket:
        with open(self._network.namespace(number)) as file:
            assert ctypes.CDLL(None).setns(file.fileno(), CLONE_NEWNET) == 0
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        made.bind((self._network.address(number), PORT))
        made.settimeout(PATIENCE_S)
        return made


@pytest.fixture
def network() -> Iterator[FaultyNetwork]:
    made = FaultyNetwork(2, 1, seed=7)
    yield made
    made.close()


@pytest.fixture
def hosts(network: FaultyNetwork) -> Iterator[list[Host]]:
    made = [Host(network, number) for number in range(3)]
    yield made
    for one in made:
        one.close()


@in_own_machine
def test_a_way_is_cut_one_way_until_all_that_cuts_it_is_lifted(
    network: FaultyNetwork, hosts: list[Host]
) -> None:
    one, other, third = hosts
    network.lay("first", between([0], [1], CUT))
    network.lay("second", between([0], [1, 2], CUT))
    one.send(1, 1)
    other.send(0, 2)
    third.send(1, 3)
    answers = one.take(), other.take()
    network.lift("first")
    one.send(1, 4)
    one.send(2, 4)
    network.lift("second")
    one.send(1, 5)
    one.send(2, 5)

    assert answers == (2, 3)
    assert (other.take(), third.take()) == (5, 5)


@in_own_machine
def test_packets_come_twice_and_what_was_changed_does_not_come(
    network: FaultyNetwork, hosts: list[Host]
) -> None:
    one, other, _ = hosts
    network.lay("twice", between([0], [1], Way(duplicates=1.0)))
    one.send(1, 1)
    twice = other.take(), other.take()
    network.lift("twice")
    network.lay("changed", between([0], [1], Way(corrupt=1.0)))
    # Each has a checksum that is wrong then.
    one.send(1, *range(10, 20))
    network.lift("changed")
    one.send(1, 2)

    assert twice == (1, 1)
    assert other.take() == 2


@in_own_machine
def test_packets_that_are_late_overtake_one_another(
    network: FaultyNetwork, hosts: list[Host]
) -> None:
    one, other, _ = hosts
    network.lay("late", between([0], [1], Way(delay_s=0.01, jitter_s=0.3)))
    one.send(1, *range(MANY))
    came = [other.take() for _ in range(MANY)]

    assert came != sorted(came)
    assert sorted(came) == list(range(MANY))


def test_a_run_that_is_killed_leaves_nothing_running() -> None:
    if reason := own_machine.why_not():
        pytest.skip(reason)
    words = own_machine.command("tests.random_faults.carrier", ["2", "10.77.0", "7"])
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as run:
        assert run.stdout is not None
        namespaces = json.loads(run.stdout.readline())
        children = [one.pid for one in psutil.Process(run.pid).children(recursive=True)]
        os.kill(run.pid, signal.SIGKILL)

    assert len(namespaces) == 2
    assert len(children) == 2
    wait_until(lambda: not any(map(is_alive, children)), "the end of all that the run has begun")
