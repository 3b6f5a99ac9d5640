"""A group of the version before gets this one, member by member, while clients go on.

Java's clients are at the port, ours beside them: nobody loses anything, and what is there twice was
sent twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgermq.client import Consumer
from ledgermq.model.features import LEVEL, version_of
from tests.compat.remoting_group import JavaProgram, java_program, make_remoting_group
from tests.compat.rocketmq import oracle_program
from tests.process.batch_load import BatchLoad
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group
from tests.process.in_background import InBackground
from tests.process.other_versions import THIS, Version, version_before
from tests.process.rolling import (
    OldLoopback,
    create,
    features,
    level,
    load_on,
    refusal_of,
    refused_enabling,
    replace,
    start,
    stop,
    upgrade_check,
)

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

THROUGH = Path(__file__).with_name("Through.java")
NATIVE_TOPIC = "native"
START_S = 120.0
THROUGH_S = 150.0
POLL_S = 0.5


class Reading(InBackground):
    """A consumer of ours in a thread, from the first message on, until it is ended."""

    def __init__(self, group: Group) -> None:
        super().__init__()
        self.bodies: list[bytes] = []
        self._addresses = [member.address for member in group.members]

    def run(self) -> None:
        """See ``InBackground``."""
        with Consumer(self._addresses, topic=NATIVE_TOPIC, start="first") as consumer:
            while not self.is_ended.is_set():
                self.bodies += [bytes(message.body) for message in consumer.poll(POLL_S)]


class Clients:
    """RocketMQ's and our own, which send and read all the time."""

    def __init__(self, java: JavaProgram, native: BatchLoad, read: Reading) -> None:
        self.java = java
        self.native = native
        self.read = read
        self._steps = 0

    def wait_more(self) -> None:
        """Until all have sent something from now on, and read what was acknowledged before."""
        self._steps += 1
        step = f"through {self._steps} "
        self.java.tell(str(self._steps))
        self.native.wait_more()
        wait_until(lambda: self.java.has_said(step), step, THROUGH_S)
        self.wait_read()

    def wait_read(self) -> None:
        """Until our consumer has what is acknowledged now."""
        sent = set(self.native.acknowledged)
        wait_until(lambda: sent <= set(self.read.bodies), "our consumer to read that", THROUGH_S)


@contextmanager
def clients_of(group: Group, name_servers: str, folder: Path) -> Iterator[Clients]:
    """Clients that have begun; at the end Java's have told what they found."""
    with java_program(name_servers, THROUGH, TOPIC, "through", folder=folder) as java:
        wait_until(lambda: java.has_said("runs"), "producers and consumers", START_S)
        with Reading(group) as read:
            with load_on(group, topic=NATIVE_TOPIC) as native:
                clients = Clients(java, native, read)
                yield clients
            clients.wait_read()
        java.tell("stop")
        java.wait()


def upgrade_there_and_back(group: Group, old: Version, clients: Clients) -> None:
    """All members run this version then, and one ran that of before again in between."""
    last = group.leader()
    first, second = group.others(last)
    clients.wait_more()
    replace(group, first, THIS)
    clients.wait_more()
    # Before the level is in force there is a way back.
    assert upgrade_check(first, "--to", "0.1.0").returncode == 0
    replace(group, first, old)
    clients.wait_more()
    for member in (first, second):
        replace(group, member, THIS)
        clients.wait_more()
    replace(group, last, old)
    newer = group.leader(besides=last)
    older = f"{last.name} knows level 0, and needs version {version_of(LEVEL)}"
    wait_until(lambda: older in refused_enabling(newer), "the newer leader to have heard of it")
    clients.wait_more()
    replace(group, last, THIS)
    clients.wait_more()


def switch_on(group: Group) -> None:
    """Put the level in force, and wait until all members know that."""
    wait_until(
        lambda: features(THIS, group.leader().node)["members_know"] == LEVEL,
        "all to say what they know",
    )
    assert [level(member.node) for member in group.members] == [0, 0, 0]
    assert features(THIS, group.leader().node, "--enable") == {"in_force": LEVEL}
    for member in group.members:
        wait_until(lambda member=member: level(member.node) == LEVEL, "the level to be in force")


def refuse_the_old_version(group: Group, old: Version, clients: Clients) -> None:
    """The command does, and so do the others where it is started all the same."""
    gone = next(member for member in group.members if not member.leads)
    refused = upgrade_check(gone, "--to", "0.1.0")
    assert refused.returncode == 1
    assert f"it knows feature level 0, and level {LEVEL} is in force" in refused.stderr
    stop(gone.node)
    start(old, gone.node)
    assert f"knows feature level 0, but level {LEVEL} is in force" in refusal_of(group, gone)
    clients.wait_more()
    stop(gone.node)
    start(THIS, gone.node)
    gone.node.wait_ready()
    clients.wait_more()


def test_clients_of_both_kinds_go_through_an_upgrade_and_its_switch(
    make_node: Callable[[], Node], tmp_path: Path
) -> None:
    oracle_program()
    old = version_before()
    group, name_servers = make_remoting_group(
        make_node, ack="majority-fsync", network=OldLoopback(old)
    )
    for member in group.members:
        member.node.wait_ready()
    create(old, group.leader().node, NATIVE_TOPIC)
    with clients_of(group, name_servers, tmp_path) as clients:
        upgrade_there_and_back(group, old, clients)
        switch_on(group)
        clients.wait_more()
        refuse_the_old_version(group, old, clients)
    java = clients.java
    group.wait_equal()
    assert group.stop() == [0, 0, 0]
    assert group.has_one_log()
    print(*java.said("through "), *java.said("acked "), *java.said("again "), sep="\n")

    # Ours name each message, so that a retry stores it once.
    assert sorted(clients.read.bodies) == sorted(clients.native.acknowledged)
    assert "ordered missing 0 turned 0" in java.lines
    assert "concurrent missing 0" in java.lines
    (counts,) = java.said("acked ")
    acknowledged, refused = (int(word) for word in counts.split()[::2])
    stored = Counter(group.members[0].bodies())
    assert len(stored) >= acknowledged
    # RocketMQ's do not, and send again what was refused.
    assert stored.total() - len(stored) <= refused
