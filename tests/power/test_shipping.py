"""Whole files are shipped to a member that needs what retention has deleted; the power fails."""

from __future__ import annotations

import pytest

from tests.power.clients import Writer
from tests.power.conftest import MakeMachine
from tests.power.groups import machines, under_load, wait_for_work
from tests.power.machines import (
    Powers,
    machine_of,
)
from tests.power.promises import (
    check_content,
    check_ends,
    check_messages,
    stop_and_compare,
)
from tests.process.conftest import wait_until
from tests.process.group_nodes import SIZES, Group, Member, producer
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.power]

FILE_SIZE = SIZES["mapped_file_size_commit_log"]
RETENTION = {"bytes_max": "2MiB", "keep_for_members": "512KiB"}
ARMED = 0.8
"""So often the power fails before a change that is drawn of those that the shipping made before;
else when the files are there."""

IDLE = "idle"


def begin_of(member: Member) -> int:
    """Position of the oldest file of its log."""
    folder = member.node.root / f"dledger-{member.name}" / "data"
    return min(int(path.name) for path in folder.iterdir())


def end_of(member: Member) -> int:
    """Position behind what it has written."""
    return int(member.cursors()["written"]["position"])


def let_it_lag(group: Group, powers: Powers) -> Member:
    """A follower fails, and the others delete what it would need."""
    late = powers.chance.choice(group.others(group.leader()))
    end = end_of(group.leader())
    powers.fail(group, [late])
    others = group.others(late)
    wait_until(
        lambda: all(begin_of(member) > end for member in others), "old files to go", PATIENCE_S
    )
    return late


def hand_over(group: Group, member: Member) -> None:
    """Have it lead."""

    def leads() -> bool:
        if member.leads:
            return True
        group.leader().command("raft", "transfer", member.name)
        return member.leads

    wait_until(leads, "the hand-over", PATIENCE_S)


def test_a_member_that_is_shipped_files_while_the_power_fails_has_what_was_acknowledged(
    make_machine: MakeMachine, cuts: int, seed: int
) -> None:
    group = machines(make_machine, retention=RETENTION)
    powers = Powers(seed)
    with producer(*group.members, timeout_s=60) as one:
        for number in range(4):
            one.send(IDLE, b"%d" % number, queue_id=0).result()
    ends = {0: 4}
    writers = [Writer(group.addresses, seed + k, f"w{k}", size=8_000) for k in range(3)]
    replaced = changes = 0
    with under_load(writers, group):
        while powers.of_all < cuts:
            wait_for_work(writers, 2)
            late = let_it_lag(group, powers)
            disk = machine_of(late).disk
            # How many changes there are is known once the files have arrived without a failure.
            is_armed = replaced and powers.chance.random() < ARMED
            disk.arm(powers.chance.randint(1, changes) if is_armed else 0)
            changed = disk.changes
            seen = late.node.log.read_text().count("log replaced by")

            def has_happened(late: Member = late, seen: int = seen) -> bool:
                shipped = late.node.log.read_text().count("log replaced by") > seen
                return machine_of(late).disk.is_cut or shipped

            late.start()
            wait_until(has_happened, "a change, or the files", PATIENCE_S)
            if not disk.is_cut:
                replaced += 1
                changes = max(disk.changes - changed, 1)
            failing = [late] if powers.chance.random() < 0.3 else group.members
            powers.fail(group, failing)
            powers.restore(failing)
            group.leader()
            check_messages(group.addresses, writers)
            check_ends(group.addresses, IDLE, ends)
            check_content(late.node.root)
            # Idle queues are numbered on by whoever leads.
            hand_over(group, late)
            check_ends(group.addresses, IDLE, ends)
            if powers.chance.random() < 0.3:
                with producer(*group.members, timeout_s=60) as one:
                    ends[0] = one.send(IDLE, b"on", queue_id=0).result().queue_offset + 1
    acknowledged = check_messages(group.addresses, writers)
    stop_and_compare(group, is_retained=False)
    print(
        f"RESULT shipping: power failures {powers.failures}, of all {powers.of_all}, files had"
        f" arrived {replaced} times, acknowledged {acknowledged}, lost 0"
    )
