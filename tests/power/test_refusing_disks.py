"""A disk refuses writes and tells of room, by a quota or a thin volume: it is said, and passes."""

from __future__ import annotations

import errno
import os
import signal

import pytest

from ledgermq.client import Producer
from ledgermq.model.errors import DiskFullError
from tests.power.clients import Writer
from tests.power.conftest import MakeMachine
from tests.power.groups import machines, under_load, wait_for_work
from tests.power.machines import machine_of
from tests.power.promises import check_messages, stop_and_compare
from tests.process.conftest import wait_until
from tests.process.group_nodes import Group

pytestmark = [pytest.mark.slow, pytest.mark.power]

REASONS = {errno.EDQUOT: "Disk quota exceeded", errno.ENOSPC: "No space left on device"}


def has_room(group: Group) -> bool:
    """Whether no member's disk counts as full."""
    return all(member.node.status()["disk"]["state"] == "roomy" for member in group.members)


@pytest.mark.parametrize("folder", ["data", "index"])
@pytest.mark.parametrize("error", REASONS)
def test_a_leader_whose_log_is_refused_hands_over_and_comes_back_by_writing(
    error: int, folder: str, make_machine: MakeMachine, seed: int
) -> None:
    group = machines(make_machine)
    writers = [Writer(group.addresses, seed + number, f"w{number}") for number in range(2)]
    with under_load(writers, group):
        wait_for_work(writers, 3)
        sick = group.leader()
        machine_of(sick).disk.refuse(error, f"/dledger-{sick.name}/{folder}/")
        wait_until(lambda: group.leader() is not sick, "another leader")
        wait_for_work(writers, 5)
        told = sick.node.log.read_text()
        assert "disk full, producers are refused: no space for the log" in told
        assert REASONS[error] in told
        machine_of(sick).disk.refuse(0, "-")
        wait_until(lambda: has_room(group), "the disk takes writes again")
        assert sick.node.logged("disk has room again")
        wait_for_work(writers, 3)
    check_messages(group.addresses, writers)
    stop_and_compare(group)


def test_a_node_of_its_own_refuses_meanwhile_and_goes_on_by_itself(
    make_machine: MakeMachine,
) -> None:
    group = machines(make_machine, members=1, log="commitlog")
    (member,) = group.members
    with Producer(group.addresses) as producer:
        producer.send("orders", b"before").result()
        machine_of(member).disk.refuse(errno.EDQUOT, "/commitlog/")
        with pytest.raises(DiskFullError, match="Disk quota exceeded"):
            producer.send("orders", b"refused").result()
        assert member.node.status()["disk"]["state"] == "full"
        machine_of(member).disk.refuse(0, "-")
        wait_until(lambda: has_room(group), "the disk takes writes again")
        after = producer.send("orders", b"after").result()

    assert after.queue_offset >= 0
    assert member.node.process is not None and member.node.process.poll() is None


def test_a_member_that_cannot_note_its_vote_waits_and_votes_when_it_can(
    make_machine: MakeMachine, seed: int
) -> None:
    group = machines(make_machine)
    writers = [Writer(group.addresses, seed, "w")]
    with under_load(writers, group):
        wait_for_work(writers, 2)
        leader = group.leader()
        sick = group.others(leader)[0]
        machine_of(sick).disk.refuse(errno.EDQUOT, "/ledgermq/term")
        os.kill(leader.node.pid("raft"), signal.SIGKILL)
        waits = "term and vote wait for space on the disk"
        wait_until(lambda: sick.node.logged(waits), "it has no space for the next term")
        wait_for_work(writers, 2)
        pid = sick.node.pid("raft")
        machine_of(sick).disk.refuse(0, "-")
        wait_for_work(writers, 2)
    check_messages(group.addresses, writers)
    stop_and_compare(group)
    assert sick.node.log.read_text().count(f"child died child=raft pid={pid}") == 0
