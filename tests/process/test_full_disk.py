"""Real nodes on full disks: refused with a reason, read on, resumed without a restart."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from ledgermq.formats.index_file import HEADER_SIZE, IndexHeader, IndexLayout, put_header
from ledgermq.formats.queue_unit import UNIT_SIZE
from ledgermq.model.errors import DiskFullError, LedgerError
from ledgermq.process.table_files import UnsettledTables
from tests.plain_codecs import QueueUnit, put_unit
from tests.process.conftest import SOURCES, Node, wait_until
from tests.process.full_disk import SmallDisk, SmallMemory, disk_of, small_disks, why_not
from tests.process.group_nodes import SIZES, TOPIC, Group, Member, make_group, producer
from tests.process.running import topics_document
from tests.suite.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(why_not()), reason=why_not())]

ROUNDS = int(os.environ.get("LEDGERMQ_FULL_DISK_ROUNDS", "1"))
FILES = {**SIZES, "mapped_file_size_commit_log": 4 * 1024 * 1024}
RETENTION: dict[str, object] = {
    "file_reserved_time": 876_000,
    "refuse_above": "100%",
    "reserve_bytes": 2 * 1024 * 1024,
}
LEFT = 6 * 1024 * 1024
BATCH = 50


@pytest.fixture
def kind() -> type[SmallDisk]:
    """What file systems are made of."""
    return SmallDisk


@pytest.fixture
def make_small(
    make_node: Callable[[], Node], kind: type[SmallDisk]
) -> Iterator[Callable[[], Node]]:
    """Makes nodes with a disk of 96 MiB each."""
    with small_disks(make_node, kind) as make:
        yield make


def group_of(make_small: Callable[[], Node], members: int, **retention: object) -> Group:
    def make() -> Node:
        node = make_small()
        configure = node.configure
        # The group writes the file; what it has of retention is that of these tests.
        node.configure = lambda **tables: configure(  # type: ignore[method-assign]
            **tables, retention={**RETENTION, **retention}
        )
        return node

    return make_group(make, members=members, ack="majority-fsync", sizes=FILES)


def wait_prepared(group: Group) -> None:
    """Until all serve and have their reserves: on a disk that is full before, none starts."""
    for member in group.members:
        member.node.wait_ready()
        reserve = member.node.root / "ledgermq" / "reserve"
        wait_until(
            lambda reserve=reserve: (
                reserve.exists() and reserve.stat().st_size >= RETENTION["reserve_bytes"]
            ),
            "the reserve",
            timeout_s=PATIENCE_S,
        )


def batch(turn: int) -> list[bytes]:
    return [f"{turn:06d}-{number:03d}-".encode() + b"x" * 1_000 for number in range(BATCH)]


class Sender:
    """Sends batches one after the other; remembers what was acknowledged."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.acknowledged: list[bytes] = []
        self._turns = count()

    def until_refused(self) -> LedgerError:
        """Send until a batch fails; why it did."""
        with producer(*self.group.members) as one:
            while True:
                bodies = batch(next(self._turns))
                try:
                    one.send_batch(TOPIC, bodies).result()
                except LedgerError as error:
                    return error
                self.acknowledged += bodies

    def goes_through(self) -> bool:
        """Whether one batch is taken now."""
        bodies = batch(next(self._turns))
        with producer(*self.group.members, timeout_s=5.0) as one:
            try:
                one.send_batch(TOPIC, bodies).result()
            except LedgerError:
                return False
        self.acknowledged += bodies
        return True


def check_stores(group: Group, sender: Sender) -> None:
    """After the end: what was acknowledged is stored everywhere, once."""
    group.wait_equal()
    assert set(group.stop()) == {0}
    for member in group.members:
        bodies = member.bodies()
        assert set(sender.acknowledged) <= set(bodies)
        assert len(bodies) == len(set(bodies))


def is_dispatched(member: Member) -> bool:
    return not member.cursors()["not_dispatched_bytes"]


@pytest.mark.long(but=1)
@pytest.mark.parametrize("kind", [SmallDisk, SmallMemory], ids=["ext4", "tmpfs"])
def test_a_full_disk_refuses_is_read_survives_a_restart_and_resumes(
    make_small: Callable[[], Node],
) -> None:
    group = group_of(make_small, 1)
    wait_prepared(group)
    (member,) = group.members
    member.node.wait_ready()
    sender, disk = Sender(group), disk_of(member.node)
    for _ in range(ROUNDS):
        disk.fill(leave=LEFT)
        refusal = sender.until_refused()
        assert isinstance(refusal, DiskFullError)
        assert "SERVICE_NOT_AVAILABLE" in str(refusal)
        assert "retention.reserve_bytes" in str(refusal)
        disk.fill()
        assert not sender.goes_through()
        reasons = member.node.status()["health"]["reasons"]
        assert [reason["code"] for reason in reasons] == ["disk_full"]
        pids = member.node.pids()
        disk.give_back()
        wait_until(sender.goes_through, "writes to resume", timeout_s=PATIENCE_S)
        wait_until(lambda: is_dispatched(member), "dispatch to resume", timeout_s=PATIENCE_S)
        assert member.node.pids() == pids
        assert member.node.status()["state"] == "ready"
        group.wait_read(set(sender.acknowledged))
    disk.fill()
    member.kill()
    member.start()
    member.node.wait_ready()
    group.wait_read(set(sender.acknowledged))
    disk.give_back()
    wait_until(sender.goes_through, "writes to resume", timeout_s=PATIENCE_S)
    check_stores(group, sender)


LOOK = """
import sys
from pathlib import Path
from ledgermq.store.queues.queue_reader import QueueReader
print(QueueReader(Path(sys.argv[1]), file_size=None).bounds(2**40))
"""


def test_the_end_of_a_queue_is_found_on_a_full_tmpfs(tmp_path: Path) -> None:
    memory = SmallMemory(tmp_path)
    memory.make()
    try:
        queue = memory.mount / "queue"
        queue.mkdir()
        page = bytearray(10 * UNIT_SIZE)
        for number in range(10):
            unit = QueueUnit(100 * number, 100, 0)
            put_unit(memoryview(page), number, unit)
        with (queue / f"{0:020d}").open("wb") as file:
            file.write(page)
            file.truncate(1_000 * UNIT_SIZE)
        memory.fill()
        # A process of its own: it would die of SIGBUS.
        done = subprocess.run(
            [sys.executable, "-c", LOOK, str(queue)],
            env={**os.environ, "PYTHONPATH": str(SOURCES)},
            capture_output=True, text=True, check=False, timeout=PATIENCE_S,
        )  # fmt: skip
        free = memory.free
    finally:
        memory.unmount()

    assert (done.returncode, done.stdout) == (0, "(0, 10)\n")
    assert free < 4_096


PUT = """
import sys
from pathlib import Path
import numpy as np
from ledgermq.formats.index_file import IndexLayout
from ledgermq.model.errors import DiskFullError
from ledgermq.store.index.index_files import IndexFiles, NewKeys
root = Path(sys.argv[1])
layout = IndexLayout(slots=int(sys.argv[2]), items=int(sys.argv[2]))
index = IndexFiles(root, layout, aside=root.parent / "aside")
numbers = np.arange(50)
hashes, rows = (numbers * 7_919).astype(np.int32), numbers.astype(np.int32)
keys = NewKeys(hashes, rows, numbers * 100 + 100, numbers + 1_600_000_000_000)
try:
    print(index.put(keys, range(50)))
except DiskFullError:
    print("no space")
"""
SLOTS = 100_000


def test_an_index_file_of_rocketmq_gets_its_blocks_before_keys_are_put(tmp_path: Path) -> None:
    disk = SmallMemory(tmp_path)
    disk.make()
    try:
        index = disk.mount / "index"
        index.mkdir()
        layout = IndexLayout(slots=SLOTS, items=SLOTS)
        # As RocketMQ makes it: as long as it will ever be, and a hole where nothing was put.
        page = bytearray(HEADER_SIZE)
        put_header(memoryview(page), IndexHeader(1_600_000_000_000, 1_600_000_000_000, 0, 0, 1, 2))
        with (index / "20260101000000000").open("wb") as file:
            file.write(page)
            file.truncate(layout.file_size)
        said = []
        for makes_room in (False, True):
            disk.give_back() if makes_room else disk.fill()
            # A process of its own: it would die of SIGBUS.
            done = subprocess.run(
                [sys.executable, "-c", PUT, str(index), str(SLOTS)],
                env={**os.environ, "PYTHONPATH": str(SOURCES)},
                capture_output=True, text=True, check=False, timeout=PATIENCE_S,
            )  # fmt: skip
            said.append((done.returncode, done.stdout))
    finally:
        disk.unmount()

    assert said == [(0, "no space\n"), (0, "50\n")]


def test_a_watermark_refuses_and_a_reload_that_raises_it_lets_in(
    make_small: Callable[[], Node],
) -> None:
    group = group_of(make_small, 1, refuse_above="70MiB")
    wait_prepared(group)
    (member,) = group.members
    member.node.wait_ready()
    sender = Sender(group)
    refusal = sender.until_refused()
    assert isinstance(refusal, DiskFullError)
    assert "setting='retention.refuse_above'" in str(refusal)
    text = member.node.config.read_text().replace('"70MiB"', '"4MiB"')
    member.node.config.write_text(text)
    member.reload()
    wait_until(sender.goes_through, "writes to resume", timeout_s=PATIENCE_S)

    check_stores(group, sender)


def test_a_full_leader_hands_over_and_a_full_follower_comes_back(
    make_small: Callable[[], Node],
) -> None:
    group = group_of(make_small, 3)
    wait_prepared(group)
    sender = Sender(group)
    first = group.leader()
    wait_until(sender.goes_through, "the first message", timeout_s=PATIENCE_S)
    disk_of(first.node).fill()

    def another_leads() -> bool:
        sender.goes_through()
        return any(member.leads for member in group.others(first))

    wait_until(another_leads, "another leader", timeout_s=PATIENCE_S)
    for _ in range(10):
        wait_until(sender.goes_through, "the others to take messages", timeout_s=PATIENCE_S)
    assert first.node.logged("its disk is full")
    disk_of(first.node).give_back()
    check_stores(group, sender)


@pytest.mark.long
def test_a_group_whose_disks_are_all_full_refuses_elects_and_resumes(
    make_small: Callable[[], Node],
) -> None:
    group = group_of(make_small, 3)
    wait_prepared(group)
    sender = Sender(group)
    group.leader()
    assert sender.goes_through()
    for member in group.members:
        disk_of(member.node).fill()
    sender.until_refused()
    group.wait_read(set(sender.acknowledged))
    first = group.leader()
    first.kill()
    group.leader(besides=first)
    group.wait_read(set(sender.acknowledged))
    first.start()
    for member in group.members:
        disk_of(member.node).give_back()
    wait_until(sender.goes_through, "writes to resume", timeout_s=PATIENCE_S)
    check_stores(group, sender)


def test_without_space_for_their_place_tables_from_outside_are_refused(
    make_node: Callable[[], Node],
) -> None:
    """Better than to acknowledge what the next start would pass over."""
    with small_disks(make_node, SmallMemory) as make:
        node = make()
        config = node.root / "config"
        config.mkdir(parents=True)
        (config / "topics.json").write_text(topics_document(TOPIC))
        disk = disk_of(node)
        disk.fill()
        full = UnsettledTables.find(config)
        assert full is not None
        with pytest.raises(DiskFullError, match="make room, and start the node again"):
            full.settle(3, lambda _queue: None)
        disk.give_back()
        again = UnsettledTables.find(config)
        assert again is not None
        again.settle(3, lambda _queue: None)

        assert UnsettledTables.find(config) is None
