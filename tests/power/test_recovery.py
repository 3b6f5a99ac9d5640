"""The power fails again while nodes recover from its failure, or catch up with the others."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.power.clients import Writer
from tests.power.conftest import MakeMachine
from tests.power.groups import machines, under_load, wait_for_work
from tests.power.machines import (
    Powers,
    machine_of,
)
from tests.power.promises import check_content, check_messages, stop_and_compare
from tests.process.conftest import wait_until
from tests.process.group_nodes import Group
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.power]

CHANGES_MAX = 130
"""So many calls that change a file a start makes, about."""

Way = Callable[[Group, Powers], None]


def in_recovery(group: Group, powers: Powers) -> None:
    """All fail; then once or twice more while they start, before a change that is drawn."""
    powers.fail(group)
    for _ in range(powers.chance.choice((1, 2))):
        at_a_change = powers.chance.random() < 0.7
        for member in group.members:
            if at_a_change:
                machine_of(member).disk.arm(powers.chance.randint(1, CHANGES_MAX))
            member.start()
        if at_a_change:
            wait_for_a_cut(group)
        else:
            time.sleep(powers.chance.uniform(0.3, 4.0))
        powers.fail(group)


def in_catch_up(group: Group, powers: Powers) -> None:
    """A follower fails, the others go on; all fail while it takes what it lacks."""
    leader = group.leader()
    follower = powers.chance.choice(group.others(leader))
    before = leader.cursors()["committed"]["index"]
    powers.fail(group, [follower])
    wait_until(
        lambda: group.leader(besides=follower).cursors()["committed"]["index"] > before + 30,
        "entries that it lacks",
        PATIENCE_S,
    )
    if powers.chance.random() < 0.7:
        machine_of(follower).disk.arm(powers.chance.randint(1, CHANGES_MAX))
        follower.start()
        wait_for_a_cut(group)
    else:
        follower.start()
        time.sleep(powers.chance.uniform(0.3, 3.0))
    powers.fail(group)


def wait_for_a_cut(group: Group) -> None:
    """Until the power of one fails at its change, or all are ready without having come there."""

    def has_happened() -> bool:
        disks = [machine_of(member).disk for member in group.members]
        return any(disk.is_cut for disk in disks) or all(
            "READY=1" in member.node.listen() for member in group.members
        )

    wait_until(has_happened, "a change", PATIENCE_S)


@pytest.mark.parametrize(("members", "way"), [(1, in_recovery), (3, in_recovery), (3, in_catch_up)])
def test_recoveries_that_are_cut_end_with_all_that_was_acknowledged(
    members: int, way: Way, make_machine: MakeMachine, cuts: int, seed: int
) -> None:
    log = "commitlog" if members == 1 else "dledger"
    group = machines(make_machine, members=members, log=log)
    powers = Powers(seed)
    writers = [Writer(group.addresses, seed + k, f"w{k}") for k in range(2)]
    acknowledged = 0
    with under_load(writers, group):
        while powers.of_all < cuts:
            wait_for_work(writers, 3)
            way(group, powers)
            powers.restore(group.members)
            group.leader()
            acknowledged = check_messages(group.addresses, writers)
            check_content(powers.chance.choice(group.members).node.root)
    check_messages(group.addresses, writers)
    stop_and_compare(group)
    print(
        f"RESULT {way.__name__}, {members} member(s): power failures {powers.failures}, of all"
        f" {powers.of_all}, acknowledged {acknowledged}, lost 0"
    )
