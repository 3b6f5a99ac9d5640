"""Under load: whatever was acknowledged is there when the power comes back, of all or of some."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from ledgermq.client import Admin, Producer
from tests.power.clients import ONCE_TOPIC, Namer, Resender, Writer
from tests.power.conftest import MakeMachine
from tests.power.groups import machines, under_load, wait_for_work
from tests.power.machines import Powers
from tests.power.promises import (
    check_content,
    check_messages,
    check_names,
    steady,
    stop_and_compare,
)
from tests.process.group_nodes import Group, Member
from tests.process.service_load import STORED, Keeper, Load
from tests.process.test_state_log import broker_of

pytestmark = [pytest.mark.slow, pytest.mark.power]

ROUND = 10
"""So often the power fails before all stop and are compared, byte by byte."""

COMMITS_MAX = 20_000


class Office:
    """All clients of a group or node, and what they were told."""

    def __init__(self, group: Group, seed: int) -> None:
        addresses = group.addresses
        self._addresses = addresses
        self._seed = seed
        self.writers: list[Writer] = []
        self.namers: list[Namer] = []
        self.keeper = Keeper(addresses, seed, 0)
        self.once = Resender(addresses, seed)
        with Admin(addresses, timeout_s=60) as admin:
            admin.create_topic(STORED, queues=1)
            admin.create_topic(ONCE_TOPIC, queues=2, deduplication_window_ms=3_600_000)
        with Producer(addresses) as one:
            for _ in range(COMMITS_MAX // 500):
                one.send_batch(STORED, [b"x"] * 500, queue_id=0).result()

    def round(self) -> list[Load]:
        """Fresh clients; those of before are known on."""
        number = len(self.namers)
        self.namers.append(Namer(self._addresses, self._seed + number, str(number)))
        fresh = [
            Writer(self._addresses, self._seed + 10 * number + k, f"w{number}.{k}")
            for k in range(2)
        ]
        self.writers += fresh
        before = self.keeper.acknowledged
        self.keeper = Keeper(self._addresses, self._seed, 0)
        self.keeper.acknowledged = before
        known, turns = self.once.acknowledged, self.once.turns
        self.once = Resender(self._addresses, self._seed + number)
        self.once.acknowledged, self.once.turns = known, turns
        return [*fresh, self.namers[-1], self.keeper, self.once]

    def check(self) -> int:
        """What was acknowledged so far is true; how many messages that is."""
        for namer in self.namers:
            check_names(self._addresses, namer)
        acknowledged = self.keeper.acknowledged
        with broker_of(self._addresses) as broker:
            known = steady(lambda: broker.group_offset("keepers", STORED))
        assert known.get(0, 0) >= acknowledged
        return check_messages(self._addresses, self.writers)


def draw_failing(group: Group, powers: Powers, number: int) -> Sequence[Member]:
    """All; each third time one or two, if there are so many."""
    if len(group.members) == 1 or number % 3 != 2:
        return group.members
    return powers.chance.sample(group.members, powers.chance.choice((1, 2)))


def restore(group: Group, powers: Powers, failing: Sequence[Member]) -> None:
    """Boot those without power; the group is whole, and led."""
    powers.restore(failing)
    group.leader()


@pytest.mark.parametrize("kind", ["plain node", "group of three"])
def test_what_was_acknowledged_is_there_after_each_power_failure(
    kind: str, make_machine: MakeMachine, cuts: int, seed: int
) -> None:
    if kind == "plain node":
        group = machines(make_machine, members=1, log="commitlog")
    else:
        group = machines(make_machine)
    powers = Powers(seed)
    office = Office(group, seed)
    acknowledged = 0
    for first in range(0, cuts, ROUND):
        loads = office.round()
        with under_load(loads, group):
            for number in range(first, min(cuts, first + ROUND)):
                wait_for_work(loads, 2)
                time.sleep(powers.chance.uniform(0, 1))  # anywhere within what they do
                failing = draw_failing(group, powers, number)
                powers.fail(group, failing)
                restore(group, powers, failing)
                acknowledged = office.check()
                check_content(powers.chance.choice(group.members).node.root)
        acknowledged = office.check()
        stop_and_compare(group)
        if first + ROUND < cuts:
            restore(group, powers, group.members)
    print(
        f"RESULT {kind}: power failures {powers.failures}, of all {powers.of_all}, acknowledged"
        f" {acknowledged}, commits {office.keeper.acknowledged}, lost 0"
    )
