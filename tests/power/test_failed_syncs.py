"""An fsync fails once, with EIO: the node ends, and nothing that was acknowledged rests on it."""

from __future__ import annotations

import pytest

from ledgermq.model.exit_status import EXIT_STORAGE
from tests.power.clients import Writer
from tests.power.conftest import MakeMachine
from tests.power.forgetful_disk import STRICT
from tests.power.groups import machines, under_load, wait_for_work
from tests.power.machines import (
    Powers,
    machine_of,
    wait_ready,
)
from tests.power.promises import check_content, check_messages, stop_and_compare
from tests.process.conftest import wait_until
from tests.process.group_nodes import TOPIC, Group, Member
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.power]


FILES = {
    "the log": {"commitlog": "/commitlog/", "dledger": "/data/"},
    "a queue": dict.fromkeys(("commitlog", "dledger"), f"/consumequeue/{TOPIC}/"),
    "the index": dict.fromkeys(("commitlog", "dledger"), "/store/index/"),
}
"""Words in the paths of files, by the kind of the log."""


def fail_a_sync(group: Group, member: Member, word: str) -> None:
    """Have a sync of a file with this word in its path fail; until it has ended by itself."""
    disk = machine_of(member).disk
    before = disk.failed_syncs
    disk.fail_next_sync(word)
    wait_until(lambda: disk.failed_syncs > before, "a sync", PATIENCE_S)
    process = member.node.process
    assert process is not None
    wait_until(lambda: process.poll() is not None, "the node to end", PATIENCE_S)
    assert process.wait() == EXIT_STORAGE
    log = member.node.log.read_text()
    assert any(
        " CRITICAL " in line and "Input/output error" in line for line in log.splitlines()
    ), log[-3_000:]
    assert member not in group.up()


@pytest.mark.parametrize("of", FILES)
@pytest.mark.parametrize("comes_back", ["after a power failure", "with the same page cache"])
@pytest.mark.parametrize("members", [1, 3])
def test_nothing_acknowledged_rests_on_a_sync_that_failed(
    *, members: int, comes_back: str, of: str, make_machine: MakeMachine, cuts: int, seed: int
) -> None:
    """With the same page cache the node sees as clean what is not on its disk."""
    log = "commitlog" if members == 1 else "dledger"
    group = machines(make_machine, members=members, log=log)
    powers = Powers(seed, policy=STRICT)
    writers = [Writer(group.addresses, seed + k, f"w{k}") for k in range(2)]
    with under_load(writers, group):
        for _ in range(cuts):
            wait_for_work(writers, 3)
            leader = group.leader()
            fail_a_sync(group, leader, FILES[of][log])
            if comes_back == "with the same page cache":
                machine_of(leader).stays_up = True
                leader.start()
                wait_ready(leader)
                machine_of(leader).stays_up = False
                wait_for_work(writers, 3)
            powers.fail(group)
            powers.restore(group.members)
            group.leader()
            acknowledged = check_messages(group.addresses, writers)
            for member in group.members:
                check_content(member.node.root)
    stop_and_compare(group)
    print(
        f"RESULT failed syncs of {of}, {members} member(s), {comes_back}: failed syncs {cuts},"
        f" power failures {powers.failures}, acknowledged {acknowledged}, lost 0"
    )
