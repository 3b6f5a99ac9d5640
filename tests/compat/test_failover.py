"""Time without a stored message when a leader of Java's producer is killed: at ours, at RocketMQ's.

The producer has its defaults. Its client asks for routes every 30 s (``pollNameServerInterval``),
and sends nowhere else before: that, and not the election, is what it waits for. Both are measured
by the same program.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.compat.other_clients import Command, NotToBeHadError, java4_failover
from tests.compat.remoting_group import make_remoting_group
from tests.compat.rocket_group import RocketGroup
from tests.compat.rocketmq import oracle_program
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

START_S = 180.0
POLL_S = 30.0
"""``pollNameServerInterval`` of the client."""

BEHIND_S = 30.0
"""Elections, registrations and a busy machine."""


class Sender:
    """The producer, and what it has said."""

    def __init__(self, process: subprocess.Popen[str], said: Path) -> None:
        self._process = process
        self._said = said

    def said(self, begin: str) -> list[str]:
        """The rest of all lines that begin so."""
        lines = self._said.read_text().splitlines()
        return [line.removeprefix(begin) for line in lines if line.startswith(begin)]

    def wait_running(self) -> None:
        """Until messages are stored."""
        wait_until(lambda: self.said("runs"), "the producer to run", START_S)

    def longest_s(self) -> float:
        """The longest time without a message that was stored, once there was one and it is over."""
        wait_until(lambda: self.said("over "), "messages to be stored again", POLL_S + BEHIND_S)
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._process.wait(START_S) == 0
        return max(map(int, self.said("over "))) / 1_000


@pytest.fixture(scope="module")
def program() -> Command:
    try:
        return java4_failover()
    except NotToBeHadError as reason:
        pytest.skip(str(reason))


@contextmanager
def sending(program: Command, name_servers: str, topic: str, folder: Path) -> Iterator[Sender]:
    """The producer, until the end of the block."""
    words, needed = program
    said = folder / "said"
    with said.open("w") as target:
        process = subprocess.Popen(
            [*words, topic], env={**os.environ, **needed, "NAMESRV": name_servers},
            stdin=subprocess.PIPE, stdout=target, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
    try:
        yield Sender(process, said)
    finally:
        process.kill()
        process.wait()


def test_a_producer_goes_on_at_the_next_leader_of_ours(
    make_node: Callable[[], Node], program: Command, tmp_path: Path
) -> None:
    group, name_servers = make_remoting_group(make_node, ack="majority-fsync")
    leader = group.leader()
    with sending(program, name_servers, TOPIC, tmp_path) as sender:
        sender.wait_running()
        leader.kill()
        group.leader(besides=leader)
        longest_s = sender.longest_s()
    print(f"ours: no message stored for {longest_s:.1f} s")

    assert longest_s < POLL_S + BEHIND_S
    assert group.stop() == [0, 0]


def test_a_producer_goes_on_at_the_next_leader_of_rocketmq(
    program: Command, tmp_path: Path
) -> None:
    oracle_program()
    group = RocketGroup(tmp_path)
    group.start()
    try:
        leader = wait_until(group.leader, "RocketMQ's leader", START_S)
        with sending(program, group.places["namesrv"], "fail-over", tmp_path) as sender:
            sender.wait_running()
            kill_listener(group.places[leader])
            longest_s = sender.longest_s()
    finally:
        group.end()
    print(f"RocketMQ: no message stored for {longest_s:.1f} s")

    assert longest_s < POLL_S + BEHIND_S


def kill_listener(address: str) -> None:
    """Kill the process that listens at ``HOST:PORT``."""
    port = int(address.rpartition(":")[2])
    (pid,) = {
        one.pid
        for one in psutil.net_connections("tcp")
        if one.status == psutil.CONN_LISTEN and one.laddr.port == port
    }
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
