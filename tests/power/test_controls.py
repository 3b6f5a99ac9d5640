"""What must lose, loses: otherwise the tests beside this one would prove nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial

import pytest

from tests.power.clients import Writer
from tests.power.conftest import MakeMachine
from tests.power.forgetful_disk import STRICT
from tests.power.groups import machines
from tests.power.machines import (
    Powers,
    machine_of,
)
from tests.power.promises import count_lost
from tests.process.conftest import wait_until
from tests.process.group_nodes import Group
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.power]


def have_worked(writers: Sequence[Writer]) -> bool:
    """Whether each has sent a few times."""
    return all(one.turns > 5 for one in writers)


def count_losses(group: Group, powers: Powers, seed: int, count: int) -> tuple[int, int]:
    """Acknowledged and lost messages of so many power failures, each with its own clients."""
    acknowledged = lost = 0
    for number in range(count):
        # Bodies of their own, so that what is stored later at a lost place is not taken for it.
        writers = [Writer(group.addresses, seed + k, f"c{number}.{k}") for k in range(3)]
        for writer in writers:
            writer.start()
        try:
            wait_until(partial(have_worked, writers), "some turns", PATIENCE_S)
            time.sleep(powers.chance.uniform(0, 1))
            powers.fail(group)
            told = [one.acknowledged.copy() for one in writers]
            powers.restore(group.members)
            group.leader()
        finally:
            for writer in writers:
                writer.stop()
        for writer, known in zip(writers, told, strict=True):
            writer.acknowledged = known
        of_now = count_lost(group.addresses, writers)
        acknowledged, lost = acknowledged + of_now[0], lost + of_now[1]
    return acknowledged, lost


Make = Callable[[MakeMachine], Group]


def in_memory(make_machine: MakeMachine) -> Group:
    """A group that acknowledges what a majority has in memory."""
    return machines(make_machine, ack="majority-memory")


def lying_plain(make_machine: MakeMachine) -> Group:
    """A plain node that syncs before it acknowledges, on a disk whose fsync does nothing."""
    group = machines(make_machine, members=1, log="commitlog")
    machine_of(group.members[0]).disk.lie()
    return group


def lying_group(make_machine: MakeMachine) -> Group:
    """A group on such disks."""
    group = machines(make_machine)
    for member in group.members:
        machine_of(member).disk.lie()
    return group


@pytest.mark.parametrize("make", [in_memory, lying_plain, lying_group])
def test_what_rests_on_no_sync_is_lost(
    make: Make, make_machine: MakeMachine, cuts: int, seed: int
) -> None:
    group = make(make_machine)
    powers = Powers(seed, policy=STRICT)
    acknowledged, lost = count_losses(group, powers, seed, cuts)
    print(
        f"RESULT control {make.__name__}: power failures {powers.failures}, of all"
        f" {powers.of_all}, acknowledged {acknowledged}, lost {lost}"
    )

    assert lost > 0
