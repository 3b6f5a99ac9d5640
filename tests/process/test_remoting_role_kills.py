"""Each process of a node dies while RocketMQ's clients send and consume at its port.

What was acknowledged is there, and once; more than once is only what was refused as one that may be
stored, or never answered. The others of a node's processes keep their connections.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from tests.compat.remoting_group import make_remoting_group
from tests.process.conftest import Node, wait_until
from tests.process.faults import pid_of
from tests.process.group_nodes import TOPIC, Group
from tests.process.port_clients import QUEUES, PortConsumer, PortProducer

pytestmark = pytest.mark.slow

ROUNDS = max(1, int(os.environ.get("LEDGERMQ_KILLS", "2")) // 2)
ROLES = ("dispatcher", "writer", "raft", "broker")


class Scene:
    """A group under load."""

    def __init__(self, group: Group, addresses: list[str], ends: ExitStack) -> None:
        self.group = group
        self.producers = [
            ends.enter_context(PortProducer(addresses, TOPIC, one)) for one in range(QUEUES)
        ]
        self.consumer = ends.enter_context(PortConsumer(addresses, TOPIC, "port"))

    @property
    def lost(self) -> int:
        """Connections that the other side has ended."""
        return self.consumer.lost + sum(one.lost for one in self.producers)

    def goes_on(self) -> None:
        """Wait until each producer was acknowledged what it sent from now on, and that was read."""
        wanted = [len(one.acknowledged) + 2 for one in self.producers]

        def has_gone_on() -> bool:
            assert self.consumer.is_well
            assert all(one.is_well for one in self.producers)
            acked = (len(one.acknowledged) for one in self.producers)
            return all(map(int.__ge__, acked, wanted)) and self._has_read(wanted)

        wait_until(has_gone_on, "producers and the consumer to go on")

    def kill(self, role: str) -> int:
        """-9 for a process of the leader; how many connections ended before all went on."""
        before = self.lost
        leader = self.group.leader()
        pid = pid_of(leader, role)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: pid_of(leader, role) != pid, "the successor")
        self.goes_on()
        return self.lost - before

    def _has_read(self, counts: list[int]) -> bool:
        return all(
            one.body(count - 1) in self.consumer.got[one.queue_id]
            for one, count in zip(self.producers, counts, strict=True)
        )


def check_queue(producer: PortProducer, got: list[bytes]) -> None:
    """Compare what a producer was told with what its queue has, from its first offset on."""
    stored = Counter(got)
    numbers = range(len(producer.acknowledged))
    for number in numbers:
        times = stored[producer.body(number)]

        assert 1 <= times <= 1 + producer.doubtful.get(number, 0), (number, times)
        assert got[producer.acknowledged[number]] == producer.body(number)
    firsts = list(dict.fromkeys(got))
    assert firsts[: len(numbers)] == [producer.body(number) for number in numbers]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("members", [1, 3])
def test_each_process_of_a_leader_dies_under_load_and_nothing_is_lost_or_doubled(
    make_node: Callable[[], Node], members: int
) -> None:
    group, listed = make_remoting_group(make_node, members=members)
    group.leader()
    lost: dict[str, int] = {}
    with ExitStack() as ends:
        scene = Scene(group, listed.split(";"), ends)
        scene.goes_on()
        for _ in range(ROUNDS):
            for role in ROLES:
                lost[role] = lost.get(role, 0) + scene.kill(role)
    # Nobody sends any more: the reader takes what is left, each as often as it is there.
    with PortConsumer(listed.split(";"), TOPIC, "audit") as audit:
        wait_until(
            lambda: (
                audit.is_well
                and all(
                    len(audit.got[one.queue_id]) > one.acknowledged[-1] for one in scene.producers
                )
            ),
            "all that was acknowledged to be read",
        )
        wait_until(
            lambda: all(audit.committed(one) == len(audit.got[one]) for one in range(QUEUES)),
            "what was read to be committed",
        )
    refusals = Counter(code for one in scene.producers for code, _ in one.refusals)
    print(f"connections lost {lost}, refused {dict(refusals)}")
    for producer in scene.producers:
        check_queue(producer, audit.got[producer.queue_id])
        seen = scene.consumer.got[producer.queue_id]
        assert seen == audit.got[producer.queue_id][: len(seen)]

    assert set(refusals) <= {14}
    assert {role: lost[role] for role in ROLES[:-1]} == dict.fromkeys(ROLES[:-1], 0)
    assert lost["broker"] > 0
    group.wait_equal()
    assert group.stop() == [0] * members
    assert group.has_one_log()
