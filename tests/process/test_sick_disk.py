"""Real nodes whose disk fails with EIO: such a node ends, another leads, nothing is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ledgermq.model.errors import LedgerError
from ledgermq.model.exit_status import EXIT_STORAGE
from tests.process.conftest import Node, is_alive, wait_until
from tests.process.full_disk import disk_of, small_disks, why_not
from tests.process.group_nodes import TOPIC, Member, make_group, producer
from tests.process.sick_disk import SickDisk
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

BATCH = 20


@pytest.fixture
def make_small(make_node: Callable[[], Node]) -> Iterator[Callable[[], Node]]:
    """Makes nodes with a disk of their own each."""
    with small_disks(make_node) as make:
        yield make


class Sender:
    """Sends batches; remembers what was acknowledged."""

    def __init__(self, members: list[Member]) -> None:
        self.acknowledged: list[bytes] = []
        self._members = members
        self._turn = 0

    def goes_through(self) -> bool:
        """Whether a batch is acknowledged."""
        self._turn += 1
        bodies = [b"%06d-%03d-" % (self._turn, row) + b"x" * 500 for row in range(BATCH)]
        try:
            with producer(*self._members, timeout_s=3.0) as one:
                one.send_batch(TOPIC, bodies).result()
        except LedgerError:
            return False
        self.acknowledged += bodies
        return True


def wait_given_up(member: Member, pids: list[int]) -> int:
    """The exit status of a node that ends by itself, once all of it has ended."""
    process = member.node.process
    assert process is not None
    wait_until(lambda: process.poll() is not None, "the node to end", PATIENCE_S)
    wait_until(lambda: not any(map(is_alive, pids)), "its processes to end", PATIENCE_S)
    status: int = process.wait()
    return status


def says_why(member: Member) -> bool:
    """Whether what ended the node is told; ext4 refuses writes after an error of its journal."""
    lines = member.node.log.read_text().splitlines()
    reasons = ("Input/output error", "Read-only file system")
    return any(" CRITICAL " in line and any(why in line for why in reasons) for line in lines)


def come_back(member: Member, disk: SickDisk) -> None:
    """Start a node whose disk is well again."""
    disk.heal()
    member.start()
    member.node.wait_ready()


@pytest.mark.long
@pytest.mark.parametrize("ack", ["majority-fsync", "majority-memory"])
def test_a_leader_whose_disk_fails_ends_and_another_leads_with_all_that_was_acknowledged(
    make_small: Callable[[], Node], ack: str
) -> None:
    group = make_group(make_small, ack=ack)
    sender = Sender(group.members)
    first = group.leader()
    wait_until(sender.goes_through, "the first messages", PATIENCE_S)
    group.wait_equal()
    # Messages are taken before all processes of a node are there: one that has not begun yet would
    # not come up, which is another story.
    first.node.wait_ready()
    pids = list(first.node.pids().values())
    disk = SickDisk(disk_of(first.node))
    disk.fail()

    def has_ended() -> bool:
        sender.goes_through()
        return first not in group.up()

    wait_until(has_ended, "the node to end", PATIENCE_S)
    status = wait_given_up(first, pids)
    second = group.leader(besides=first)
    for _ in range(3):
        wait_until(sender.goes_through, "the others to take messages", PATIENCE_S)
    group.wait_read(set(sender.acknowledged))
    come_back(first, disk)
    group.wait_equal()
    assert set(group.stop()) == {0}

    assert status == EXIT_STORAGE
    assert says_why(first)
    assert second is not first
    assert group.has_one_log()
    for member in group.members:
        bodies = member.bodies()
        assert set(sender.acknowledged) <= set(bodies)
        assert len(bodies) == len(set(bodies))


def test_a_node_of_its_own_acknowledges_nothing_that_its_disk_refused(
    make_small: Callable[[], Node],
) -> None:
    group = make_group(make_small, members=1, ack="majority-fsync")
    (member,) = group.members
    group.leader()
    sender = Sender(group.members)
    wait_until(sender.goes_through, "the first messages", PATIENCE_S)
    member.node.wait_ready()
    pids = list(member.node.pids().values())
    disk = SickDisk(disk_of(member.node))
    disk.fail()
    taken = []

    def has_ended() -> bool:
        # A disk that nobody asks fails nobody: what is sent may find no session for seconds.
        taken.append(sender.goes_through())
        return member not in group.up()

    wait_until(has_ended, "the node to end", PATIENCE_S)
    status = wait_given_up(member, pids)
    come_back(member, disk)
    wait_until(sender.goes_through, "messages after the repair", PATIENCE_S)
    group.wait_read(set(sender.acknowledged))
    assert group.stop() == [0]

    assert not any(taken)
    assert status == EXIT_STORAGE
    assert says_why(member)
    assert set(sender.acknowledged) <= set(member.bodies())
