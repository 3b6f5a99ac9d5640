"""Three real nodes: whole files for a member that needs what the leader's log has no more."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable

import pytest
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, make_group, producer

pytestmark = pytest.mark.slow

FILE_SIZE = 262_144
SLOW = {"shipping_bytes_per_s": 1_048_576}


def bodies(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix}-{number:05d}-".encode() + b"x" * 900 for number in range(count)]


def fill(members: list[Member], prefix: str, *, batches: int) -> list[bytes]:
    """Send batches of fifty, about 55 KiB each; what was sent."""
    with producer(*members) as one:
        sent = [bodies(f"{prefix}{turn}", 50) for turn in range(batches)]
        futures = [one.send_batch(TOPIC, batch) for batch in sent]
        assert all(len(future.result()) == 50 for future in futures)
    return [body for batch in sent for body in batch]


def data_files(member: Member) -> list[str]:
    folder = member.node.root / f"dledger-{member.name}" / "data"
    return sorted(path.name for path in folder.iterdir())


def delete_oldest(member: Member, *, keep: int) -> None:
    """As retention does: the stopped member's log begins later."""
    folder = member.node.root / f"dledger-{member.name}" / "data"
    for name in data_files(member)[:-keep]:
        (folder / name).unlink()


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
        self.leader = self.group.leader()
        self.late = self.group.others(self.leader)[0]
        self.full = [one for one in self.group.members if one is not self.late]
        self.old = fill(self.full, "old", batches=max(old, 1))
        self.group.wait_equal()
        self.late.kill()
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

    def settings(self, **raft: object) -> None:
        """Change settings of all, while nobody runs."""
        for member in self.group.members:
            text = member.node.config.read_text()
            for key, value in raft.items():
                text = text.replace("[raft]\n", f"[raft]\n{key} = {value}\n")
            member.node.config.write_text(text)

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
        assert len({tuple(data_files(member)) for member in self.group.members}) == 1
        assert len({member.log_digest() for member in self.group.members}) == 1
        found = [member.bodies() for member in self.group.members]
        assert len(found[0]) > 0
        assert found[1:] == found[:1] * 2


@pytest.mark.parametrize("ack", ["majority-fsync", "majority-memory"])
def test_a_member_with_an_old_log_is_shipped_the_leaders_files(
    make_node: Callable[[], Node], ack: str
) -> None:
    made = Shortened(make_node, old=5, new=40, keep=5, ack=ack)
    made.start()
    wait_until(lambda: made.late.node.logged("log replaced by"), "the files")
    sent = fill(made.group.members, "after", batches=5)
    made.check_equal()

    assert set(sent) <= set(made.late.bodies())
    assert not set(made.old) & set(made.late.bodies())
    assert not (made.late.node.root / "ledgermq" / "shipped" / "data").exists()


def test_a_member_with_an_empty_disk_is_shipped_the_leaders_files_once_it_is_trusted(
    make_node: Callable[[], Node],
) -> None:
    made = Shortened(make_node, old=0, new=30, keep=4, ack="majority-fsync")
    made.start()
    made.trust_new_disk()
    wait_until(lambda: made.late.node.logged("log replaced by"), "the files")
    made.check_equal()


def test_a_log_of_a_single_file_is_shipped_as_far_as_it_goes(
    make_node: Callable[[], Node],
) -> None:
    made = Shortened(make_node, old=2, new=20, keep=1, ack="majority-memory")
    made.start()
    wait_until(lambda: made.late.node.logged("log replaced by"), "the file")
    made.check_equal()


@pytest.mark.parametrize("role", ["raft", "writer", "supervisor"])
def test_a_process_that_dies_while_files_arrive_costs_nothing_that_has_arrived(
    make_node: Callable[[], Node], role: str
) -> None:
    made = Shortened(make_node, old=3, new=60, keep=10, ack="majority-memory")
    made.settings(shipping_bytes_per_s=3 * FILE_SIZE)
    made.start()
    late = made.late
    wait_until(lambda: received(late) >= 3 * FILE_SIZE, "some files")
    if role == "supervisor":
        late.kill()
        late.start()
    else:
        os.kill(late.node.child(role)["pid"], signal.SIGKILL)
    sent = fill(made.full, "meanwhile", batches=10)
    was_shipped = late.node.logged("log replaced by")
    wait_until(lambda: late.node.logged("log replaced by"), "the files", timeout_s=60)
    made.check_equal()

    assert not was_shipped
    assert set(sent) <= set(late.bodies())
    assert role == "writer" or late.node.logged("files that are here already: bytes=")
