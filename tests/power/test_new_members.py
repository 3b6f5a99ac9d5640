"""The power fails while a member is added to a group; the command is said again."""

from __future__ import annotations

import json
import subprocess
import time
from functools import partial

import pytest

from tests.power.clients import Writer
from tests.power.groups import under_load, wait_for_work
from tests.power.machines import (
    Machine,
    Powers,
    machine_of,
    sync_all,
    wait_ready,
)
from tests.power.promises import check_messages, stop_and_compare
from tests.process.conftest import nodes_made, wait_until
from tests.process.group_nodes import COMMAND, Group, make_growing_group
from tests.process.node_start import SOURCES
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.power]

CHANGES_MAX = 100


def add_last(group: Group) -> bool:
    """Ask the leader to take the last member in; whether it says that it is a voter."""
    fresh = group.members[-1]
    leader = group.leader(besides=fresh)
    words = ("raft", "add", fresh.name, fresh.peer_address, "--json", "--timeout", "20")
    done = leader.command(*words)
    return done.returncode == 0 and fresh.name in json.loads(done.stdout)["voters"]


@pytest.mark.parametrize("first", [1, 2])
def test_a_member_that_is_added_while_the_power_fails_becomes_one(
    first: int, cuts: int, seed: int
) -> None:
    powers = Powers(seed)
    acknowledged = 0
    for number in range(cuts):
        with nodes_made(Machine) as make_machine:
            group = make_growing_group(make_machine, first=first, members=first + 1)
            *founders, fresh = group.members
            for member in group.members:
                sync_all(member.node.root)
            for member in founders:
                wait_ready(member)
            group.leader()
            # The last one may lead once it is a member, and the power has failed.
            writers = [Writer(group.addresses, seed + number + k, f"w{k}") for k in range(2)]
            with under_load(writers, group):
                wait_for_work(writers, 5)
                begin_to_add_last(group, powers)
                powers.fail(group)
                # It is ready once it is a member.
                fresh.start()
                powers.restore(founders)
                group.leader()
                check_messages(group.addresses, writers)
                wait_until(partial(add_last, group), "the new member", PATIENCE_S)
            acknowledged += check_messages(group.addresses, writers)
            stop_and_compare(group)
    print(
        f"RESULT raft add to {first}: power failures {powers.failures}, of all {powers.of_all},"
        f" acknowledged {acknowledged}, lost 0"
    )


def begin_to_add_last(group: Group, powers: Powers) -> None:
    """Begin to add the last member; back at a moment that is drawn, or when a disk is cut."""
    fresh = group.members[-1]
    leader = group.leader()
    for member in group.members:
        if powers.chance.random() < 0.5:
            machine_of(member).disk.arm(powers.chance.randint(1, CHANGES_MAX))
    fresh.start()
    words = ["raft", "add", fresh.name, fresh.peer_address, "--runtime-dir"]
    until = time.monotonic() + powers.chance.uniform(0.5, 5.0)
    with subprocess.Popen(
        [*COMMAND, *words, str(leader.node.runtime)],
        env={"PYTHONPATH": str(SOURCES)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as asking:
        wait_until(
            lambda: (
                time.monotonic() > until
                or any(machine_of(member).disk.is_cut for member in group.members)
            ),
            "the moment of the failure",
        )
        asking.kill()
