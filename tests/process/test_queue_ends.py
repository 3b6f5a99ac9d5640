"""Queues whose last message retention has deleted go on where they ended, on every member.

However a member came to its log: with its own life, with files of a leader that may have been
filled so itself, as a new member, out of a backup, without its queues, or converted.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ledgermq.client import Consumer
from ledgermq.formats.arrays import UNIT
from ledgermq.formats.findings import Severity
from ledgermq.repair.check.check_store import CheckOptions, check_store
from ledgermq.store.files.mapped_files import MappedFiles
from ledgermq.store.queues.queue_ends import ends_path, read_queue_ends, write_queue_ends
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import (
    SIZES,
    TOPIC,
    Group,
    Member,
    make_group,
    make_growing_group,
    producer,
)
from tests.process.node_start import run_command
from tests.staged_derived import stage
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

IDLE, GROUP, SENT = 3, "readers", 4
OF_QUEUES = ("--queue-file-size", SIZES["mapped_file_size_consume_queue"])
RETENTION = '[retention]\nbytes_max = "2MiB"\nkeep_for_members = "0B"\n'


def keep_little(member: Member) -> None:
    """The store keeps some 2 MiB; the file is read at the next start."""
    text = member.node.config.read_text()
    assert "[retention]\n" in text
    member.node.config.write_text(text.replace("[retention]\n", RETENTION))


def use(group: Group) -> None:
    """Four messages in the queue, which a group reads and commits."""
    with producer(*group.members) as one:
        sent = [one.send(TOPIC, b"%d" % n, queue_id=IDLE).result() for n in range(SENT)]
    with Consumer(group.addresses, topic=TOPIC, group=GROUP, start="first") as consumer:
        read: list[bytes] = []

        def has_read() -> bool:
            read.extend(bytes(message.body) for message in consumer.poll(0.2))
            return len(read) == SENT

        wait_until(has_read, "the messages")
        consumer.commit()

    assert [one.queue_offset for one in sent] == list(range(SENT))


def load(members: list[Member], *, batches: int = 55) -> None:
    """Batches of fifty, about 55 KiB each, to another queue."""
    with producer(*members) as one:
        for turn in range(batches):
            bodies = [b"%d-%d-" % (turn, n) + b"x" * 1_000 for n in range(50)]
            one.send_batch(TOPIC, bodies, queue_id=0).result()


def log_begin(root: Path) -> int:
    folder = next(iter(root.glob("dledger-*/data")), root / "commitlog")
    return MappedFiles(folder).first


def wait_deleted(members: list[Member]) -> None:
    """Until no log has a message of the queue: they are in its first file."""
    for member in members:
        wait_until(lambda m=member: log_begin(m.node.root) > 0, "files to go", PATIENCE_S)


def idle_group(make_node: Callable[[], Node], *, members: int = 1) -> Group:
    """A group that runs, and whose queue has ended."""
    group = make_group(make_node, members=members, ack="majority-fsync", prepare=keep_little)
    group.leader()
    use(group)
    load(group.members)
    wait_deleted(group.members)
    return group


def check_goes_on(member: Member, *, at: int = SENT) -> None:
    """The leader's next message of the queue has the next number, and the group reads it."""
    with Consumer(member.address, topic=TOPIC, group=GROUP) as consumer:
        assert consumer.ends()[IDLE] == at
        with producer(member) as one:
            assert one.send(TOPIC, b"after", queue_id=IDLE).result().queue_offset == at
        assert consumer.committed()[IDLE] == SENT
        found: list[tuple[int, int]] = []

        def has_found() -> bool:
            for message in consumer.poll(0.2):
                if message.queue_id == IDLE:
                    found.append((message.queue_offset, len(message.body)))
            return (at, 5) in found

        wait_until(has_found, "the message")

    assert [offset for offset, _ in found] == list(range(SENT, at + 1))


def check_stores(members: list[Member]) -> None:
    """Stopped members: a check finds nothing, and units of messages that are there are the same."""
    for member in members:
        checked = check_store(member.node.root, CheckOptions())
        faults = [one.as_text() for one in checked.findings if one.severity is not Severity.NOTE]
        assert faults == [], member.name
    begin = max(log_begin(member.node.root) for member in members)
    queues = [live_units(member.node.root, begin) for member in members]
    assert queues[1:] == queues[:1] * (len(queues) - 1)


def live_units(root: Path, begin: int) -> dict[str, tuple[int, bytes]]:
    """Of each queue its end, and the units of messages from ``begin`` on."""
    found = {}
    for folder in sorted((root / "consumequeue").glob("*/*")):
        files = sorted(folder.iterdir())
        units = np.frombuffer(b"".join(path.read_bytes() for path in files), UNIT)
        used = units[: int(np.flatnonzero(units["size"] > 0)[-1]) + 1]
        name = f"{folder.parent.name}/{folder.name}"
        end = int(files[0].name) // UNIT.itemsize + len(used)
        found[name] = (end, used[used["position"] >= begin].tobytes())
    return found


def transfer(group: Group, target: Member) -> None:
    done = group.leader().command("raft", "transfer", target.name, "--json")
    assert (done.returncode, done.stderr) == (0, "")
    wait_until(lambda: target.leads, "the hand-over")


def fill_by_files(group: Group, late: Member) -> None:
    """Stop a member until the others have deleted what it lacks; it is shipped their files."""
    assert late.node.stop() == 0
    others = [member for member in group.members if member is not late]
    before = MappedFiles(late.node.root / f"dledger-{late.name}" / "data").end
    load(others)
    for member in others:
        wait_until(lambda m=member: log_begin(m.node.root) > before, "files to go", PATIENCE_S)
    late.start()
    wait_until(lambda: late.node.logged("log replaced by"), "the files", PATIENCE_S)
    group.wait_equal()


def ledgermq(*words: object) -> None:
    done = run_command(*words)
    assert done.returncode == 0, (done.stdout, done.stderr)


@pytest.mark.long
def test_a_member_that_was_shipped_files_leads_and_numbers_an_idle_queue_on(
    make_node: Callable[[], Node],
) -> None:
    group = idle_group(make_node, members=3)
    late = group.others(group.leader())[0]
    fill_by_files(group, late)
    transfer(group, late)
    check_goes_on(late)
    group.wait_equal()

    assert group.stop() == [0, 0, 0]
    check_stores(group.members)


@pytest.mark.long
def test_a_member_filled_by_one_that_was_filled_so_knows_the_ends_too(
    make_node: Callable[[], Node],
) -> None:
    group = idle_group(make_node, members=3)
    first, second = group.others(group.leader())
    fill_by_files(group, first)
    transfer(group, first)
    fill_by_files(group, second)
    transfer(group, second)
    check_goes_on(second)
    group.wait_equal()

    assert group.stop() == [0, 0, 0]
    check_stores(group.members)


@pytest.mark.long
def test_a_member_that_is_added_knows_the_ends(make_node: Callable[[], Node]) -> None:
    group = make_growing_group(make_node, first=1, members=2)
    first, fresh = group.members
    first.node.wait_ready()
    keep_little(first)
    first.reload()
    group = Group([first])
    use(group)
    load([first])
    wait_deleted([first])
    fresh.start()
    words = ("raft", "add", fresh.name, fresh.peer_address, "--json", "--timeout", "60")
    done = first.command(*words)
    assert done.returncode == 0, (done.stdout, done.stderr)
    both = Group([first, fresh])
    both.wait_equal()
    transfer(both, fresh)
    check_goes_on(fresh)
    both.wait_equal()

    assert fresh.node.logged("log replaced by")
    assert both.stop() == [0, 0]
    check_stores(both.members)


@pytest.mark.long
def test_a_member_that_an_older_version_filled_heals_with_a_leaders_next_snapshot(
    make_node: Callable[[], Node],
) -> None:
    group = idle_group(make_node, members=3)
    leader = group.leader()
    hurt, other = group.others(leader)
    assert hurt.node.stop() == 0
    path = ends_path(hurt.node.root)
    table = read_queue_ends(path)
    assert table is not None
    rest = {queue: end for queue, end in table.ends.items() if queue != (TOPIC.encode(), IDLE)}
    write_queue_ends(path, table._replace(ends=rest))
    shutil.rmtree(hurt.node.root / "consumequeue")
    hurt.start()
    group.wait_equal()
    transfer(group, other)
    wait_until(lambda: hurt.node.logged("ends of queues told"), "the ends", PATIENCE_S)
    # Queues that its own table has end as they did before; this one by what was told alone.
    idle = hurt.node.root / "consumequeue" / TOPIC / str(IDLE)
    wait_until(lambda: idle.is_dir() and any(idle.iterdir()), "a look", PATIENCE_S)
    transfer(group, hurt)
    check_goes_on(hurt)
    group.wait_equal()

    assert group.stop() == [0, 0, 0]
    check_stores(group.members)


def lose_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


def lose_queues_and_checkpoints(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")
    (root / "ledgermq" / "dispatch-checkpoint").unlink()
    (root / "checkpoint").unlink()


def rebuild(root: Path) -> None:
    ledgermq("store", "rebuild", root, *OF_QUEUES)


def rebuild_without_table(root: Path) -> None:
    """As a store of an older version: its queues alone know how far they go."""
    ends_path(root).unlink()
    rebuild(root)


def lose_table(root: Path) -> None:
    ends_path(root).unlink()


def tear_table(root: Path) -> None:
    ends_path(root).write_bytes(b'{"ends":')


HARMS = (
    lose_queues,
    lose_queues_and_checkpoints,
    rebuild,
    rebuild_without_table,
    lose_table,
    tear_table,
)


@pytest.mark.long
def test_a_store_whose_queues_are_built_again_numbers_them_on(
    make_node: Callable[[], Node],
) -> None:
    (member,) = idle_group(make_node).members
    for harm in HARMS:
        assert member.node.stop() == 0
        harm(member.node.root)
        member.start()
        member.node.wait_ready()
        with Consumer(member.address, topic=TOPIC) as consumer:
            # Queues are built again while the node serves.
            wait_until(lambda c=consumer: c.ends()[IDLE] == SENT, harm.__name__)
        path = ends_path(member.node.root)
        table = wait_until(lambda path=path: path.exists() and read_queue_ends(path), "the table")
        assert table.position >= log_begin(member.node.root)
        assert table.ends[TOPIC.encode(), IDLE] == SENT
    check_goes_on(member)

    assert member.node.stop() == 0
    check_stores([member])


@pytest.mark.long
@pytest.mark.parametrize("has_grown", [False, True], ids=["at once", "the log has grown"])
def test_queues_that_were_built_elsewhere_are_numbered_on(
    make_node: Callable[[], Node], has_grown: bool
) -> None:
    """A job that has nothing but the log knows nothing of the queue: what is installed does."""
    (member,) = idle_group(make_node).members
    root, copied = member.node.root, member.node.folder / "copied"
    assert member.node.stop() == 0
    shutil.copytree(root, copied)
    lose_queues_and_checkpoints(copied)
    rebuild_without_table(copied)
    assert not (copied / "consumequeue" / TOPIC / str(IDLE)).exists()
    stage(root, copied, SIZES)
    if has_grown:
        table = read_queue_ends(ends_path(root))
        assert table is not None
        member.start()
        member.node.wait_ready()
        load([member], batches=15)
        later = table.position + SIZES["mapped_file_size_commit_log"]

        def is_later() -> bool:
            found = read_queue_ends(ends_path(root))
            return found is not None and found.position >= later

        wait_until(is_later, "a later table")
        assert member.node.stop() == 0
    ledgermq("store", "install-derived", root)
    if not has_grown:
        check_stores([member])
    member.start()
    member.node.wait_ready()
    with Consumer(member.address, topic=TOPIC) as consumer:
        # Queues are built on from where the job has left them while the node serves.
        wait_until(lambda: consumer.ends()[IDLE] == SENT, "the end")
    check_goes_on(member)
    assert member.node.stop() == 0
    check_stores([member])


@pytest.mark.long
@pytest.mark.parametrize("runs", [True, False], ids=["running", "stopped"])
def test_a_restored_backup_numbers_queues_on(make_node: Callable[[], Node], runs: bool) -> None:
    (member,) = idle_group(make_node).members
    node, target = member.node, member.node.folder / "backups"
    if runs:
        ledgermq("backup", "create", node.root, target, "--runtime-dir", node.runtime)
    assert node.stop() == 0
    if not runs:
        # An older version left none.
        ends_path(node.root).unlink()
        ledgermq("backup", "create", node.root, target)
    shutil.rmtree(node.root)
    node.root.mkdir()
    ledgermq("backup", "restore", next(target.iterdir()), node.root)
    check_stores([member])
    member.start()
    member.node.wait_ready()
    check_goes_on(member)
    assert member.node.stop() == 0
    check_stores([member])


@pytest.mark.long
def test_conversions_keep_the_ends(make_node: Callable[[], Node]) -> None:
    (member,) = idle_group(make_node).members
    root = member.node.root
    assert member.node.stop() == 0
    shutil.rmtree(root / "consumequeue")
    ledgermq("store", "downgrade", root, *OF_QUEUES)
    ledgermq("store", "downgrade", root, "--finish")
    check_stores([member])
    shutil.rmtree(root / "consumequeue")
    ledgermq("store", "upgrade", root, "--group", "g", "--self-id", "n0", *OF_QUEUES)
    check_stores([member])
