"""Three real nodes: whole files for a member that needs what the leader's log has no more."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress

import pytest

from ledgermq.client import Consumer
from ledgermq.model.errors import NotLeaderError, OutcomeUnknownError
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import (
    TOPIC,
    Group,
    Member,
    make_group,
    make_growing_group,
    producer,
)

pytestmark = pytest.mark.slow

FILE_SIZE = 262_144


def bodies(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}-{number:05d}-".encode() + b"x" * 900 for number in range(count)]


def fill(members: list[Member], prefix: str, *, batches: int) -> list[bytes]:
    """Send batches of fifty, about 55 KiB each; what was sent."""
    with producer(*members) as one:
        sent = [bodies(f"{prefix}{turn}", 50) for turn in range(batches)]
        futures = [one.send_batch(TOPIC, batch) for batch in sent]
        assert all(len(future.result()) == 50 for future in futures)
    return [body for batch in sent for body in batch]


def fill_led(group: Group, member: Member) -> list[bytes]:
    """Hand over to the member, and send to it alone; nothing if another leads before the end."""
    if not member.leads:
        group.leader().command("raft", "transfer", member.name)
    if not member.leads:
        return []
    try:
        return fill([member], "led", batches=2)
    except (NotLeaderError, OutcomeUnknownError):
        return []


def data_files(member: Member) -> list[str]:
    folder = member.node.root / f"dledger-{member.name}" / "data"
    return sorted(path.name for path in folder.iterdir())


def delete_oldest(member: Member, *, keep: int) -> None:
    """As retention does: the stopped member's log begins later."""
    folder = member.node.root / f"dledger-{member.name}" / "data"
    for name in data_files(member)[:-keep]:
        (folder / name).unlink()


def add(leader: Member, member: Member, *kind: str) -> None:
    words = ("raft", "add", member.name, member.peer_address, *kind, "--json", "--timeout", "60")
    done = leader.command(*words)
    assert done.returncode == 0, (done.stdout, done.stderr)


def wait_replaced(member: Member) -> None:
    wait_until(lambda: member.node.logged("log replaced by"), "the files")


def received(member: Member) -> int:
    """Bytes of slices that the raft process has received since the page was made."""
    status = member.status()
    if status is None:
        return 0
    return int(status["counters"]["raft"]["shipped_bytes_received"])


class Shortened:
    """A group whose member ``late`` has less than the first entry that the others still have."""

    def __init__(
        self, make_node: Callable[[], Node], *, old: int, new: int, keep: int, ack: str
    ) -> None:
        """Nobody runs yet.

        Args:
            old: batches that all have; 0: ``late`` comes with an empty disk.
            new: batches that ``late`` has not.
            keep: files that the others keep.
        """
        self.group: Group = make_group(make_node, ack=ack)
        self.late = self.group.others(self.group.leader())[0]
        self.full = [one for one in self.group.members if one is not self.late]
        # The lead may go on to anybody at any time, ``late`` as well: each producer knows all.
        self.old = fill(self.group.members, "old", batches=max(old, 1))
        self.group.wait_equal()
        self.late.kill()
        self.group.leader()
        fill(self.full, "new", batches=new)
        self.group.wait_equal()
        self.group.stop()
        for member in self.full:
            delete_oldest(member, keep=keep)
        if old == 0:
            shutil.rmtree(self.late.node.root / f"dledger-{self.late.name}")
            shutil.rmtree(self.late.node.root / "consumequeue")
            shutil.rmtree(self.late.node.root / "index")
            for name in ("identity", "log-checkpoint", "term", "dispatch-checkpoint"):
                (self.late.node.root / "ledgermq" / name).unlink(missing_ok=True)

    def ship_slowly(self, bytes_per_s: int) -> None:
        """Change the settings of all, while nobody runs."""
        for member in self.group.members:
            text = member.node.config.read_text()
            limit = f"[raft]\nshipping_bytes_per_s = {bytes_per_s}\n"
            member.node.config.write_text(text.replace("[raft]\n", limit))

    def start(self) -> None:
        for member in self.group.members:
            member.start()

    def trust_new_disk(self) -> None:
        for member in self.full:
            wait_until(
                lambda member=member: (
                    member.node.logged("peer refused: peer=" + self.late.name)
                    and member.command("raft", "forget", self.late.name).returncode == 0
                ),
                "the new disk to be known",
            )

    def check_equal(self) -> None:
        """Stop all; every log has the same bytes, and every message in it can be read."""
        self.group.wait_equal()
        assert self.group.stop() == [0, 0, 0]
        assert self.group.has_one_log()
        found = [member.bodies() for member in self.group.members]
        assert len(found[0]) > 0
        assert found[1:] == found[:1] * 2


@pytest.mark.long
@pytest.mark.parametrize("ack", ["majority-fsync", "majority-memory"])
def test_a_member_with_an_old_log_is_shipped_the_leaders_files(
    make_node: Callable[[], Node], ack: str
) -> None:
    made = Shortened(make_node, old=5, new=40, keep=5, ack=ack)
    made.start()
    wait_replaced(made.late)
    sent = fill(made.group.members, "after", batches=5)
    made.check_equal()

    assert set(sent) <= set(made.late.bodies())
    assert not set(made.old) & set(made.late.bodies())
    assert not (made.late.node.root / "ledgermq" / "shipped" / "data").exists()


@pytest.mark.long
def test_a_member_with_an_empty_disk_is_shipped_the_leaders_files_once_it_is_trusted(
    make_node: Callable[[], Node],
) -> None:
    made = Shortened(make_node, old=0, new=30, keep=4, ack="majority-fsync")
    made.start()
    made.trust_new_disk()
    wait_replaced(made.late)
    made.check_equal()


@pytest.mark.long
def test_a_member_whose_log_was_replaced_serves_and_leads(make_node: Callable[[], Node]) -> None:
    made = Shortened(make_node, old=3, new=25, keep=3, ack="majority-fsync")
    made.start()
    late = made.late
    wait_replaced(late)
    made.group.wait_equal()
    sent = wait_until(lambda: fill_led(made.group, late), "the lead of who got the files")
    made.group.wait_equal()
    # All queues, not only those that the last messages are in.
    wanted = late.bodies()
    found: list[bytes] = []
    with Consumer(late.address, topic=TOPIC) as consumer:

        def has_all() -> bool:
            found.extend(bytes(message.body) for message in consumer.poll(0.2))
            return len(found) >= len(wanted)

        wait_until(has_all, "the messages")
    made.check_equal()

    assert set(sent) <= set(wanted)
    assert sorted(found) == sorted(wanted) == sorted(late.bodies())


@pytest.mark.long
def test_a_log_of_a_single_file_is_shipped_as_far_as_it_goes(
    make_node: Callable[[], Node],
) -> None:
    made = Shortened(make_node, old=2, new=20, keep=1, ack="majority-memory")
    made.start()
    wait_replaced(made.late)
    made.check_equal()


@pytest.mark.long
@pytest.mark.parametrize("role", ["raft", "writer", "supervisor"])
def test_a_process_that_dies_while_files_arrive_costs_nothing_that_has_arrived(
    make_node: Callable[[], Node], role: str
) -> None:
    made = Shortened(make_node, old=3, new=60, keep=10, ack="majority-memory")
    made.ship_slowly(2 * FILE_SIZE)
    made.start()
    late = made.late
    wait_until(lambda: received(late) >= 3 * FILE_SIZE, "some files")
    was_shipped = late.node.logged("log replaced by")
    if role == "supervisor":
        late.kill()
        late.start()
    else:
        os.kill(late.node.pid(role), signal.SIGKILL)
    # Once it has the files ``late`` may come to lead, too.
    sent = fill(made.group.members, "meanwhile", batches=10)
    wait_replaced(late)
    made.check_equal()

    assert not was_shipped
    assert set(sent) <= set(late.bodies())
    assert role == "writer" or late.node.logged("files that are here already: bytes=")


def test_a_new_member_is_shipped_the_files_and_who_the_members_are(
    make_node: Callable[[], Node],
) -> None:
    group = make_growing_group(make_node, first=1, members=3)
    first, learner, fresh = group.members
    group.leader()
    learner.start()
    add(first, learner, "--learner")
    fill([first], "old", batches=30)
    group.wait_equal()
    group.stop()
    for member in (first, learner):
        delete_oldest(member, keep=3)
        member.start()
    leader = group.leader()
    fresh.start()
    add(leader, fresh)
    # From here on the fresh one may lead as well.
    sent = fill(group.members, "new", batches=3)
    group.wait_equal()
    status = json.loads(fresh.command("raft", "status", "--json").stdout)
    group.stop()

    assert fresh.node.logged("log replaced by")
    assert (status["voters"], status["learners"]) == (["n0", "n2"], ["n1"])
    assert group.has_one_log()
    assert set(sent) <= set(fresh.bodies())


@pytest.mark.long
@pytest.mark.parametrize("seed", [1, 2])
def test_deaths_at_any_moment_end_in_the_leaders_log(
    make_node: Callable[[], Node], seed: int
) -> None:
    made = Shortened(make_node, old=3, new=40, keep=6, ack="majority-memory")
    made.ship_slowly(4 * FILE_SIZE)
    made.start()
    late = made.late
    chance = random.Random(seed)
    wait_until(lambda: late.node.logged("files are taken"), "the beginning")
    for _ in range(12):
        time.sleep(chance.uniform(0.0, 0.4))
        role = chance.choice(["supervisor", "supervisor", "raft", "writer", "dispatcher"])
        status = late.status()
        processes = status["processes"] if status is not None else []
        pid = next((one["pid"] for one in processes if one["role"] == role), 0)
        if role == "supervisor":
            late.kill()
            late.start()
        elif pid:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    wait_replaced(late)
    made.check_equal()
