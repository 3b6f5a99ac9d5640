"""Real nodes on stores that were upgraded, by us and by RocketMQ, and on downgraded ones."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from ledgermq.cli.store.store_reading import plain_body
from ledgermq.client import Consumer
from ledgermq.client.reading.pull_pipeline import ConsumerOptions
from ledgermq.store.store_view import StoreView
from tests.conftest import Golden
from tests.process.conftest import SOURCES, Node, wait_until
from tests.process.group_nodes import COMMAND, SIZES, Group, Member, make_group, producer
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

JAVA_SIZES = {
    **SIZES,
    "mapped_file_size_commit_log": 1_048_576,
    "mapped_file_size_consume_queue": 4_000,
}
OLD_TOPIC = "plain0"
DELAYED_TOPIC, DELAYED_LEFT = "delay", 4
"""Java left delayed messages to be delivered, all of them long due."""

DIVIDED = 1_048_576

Places = dict[tuple[int, int], bytes]
"""Bodies by queue and queue offset."""


def store(verb: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run ``ledgermq store VERB``."""
    return subprocess.run(
        [*COMMAND, "store", verb, *map(str, words)],
        capture_output=True, text=True, check=False, env={"PYTHONPATH": str(SOURCES)},
    )  # fmt: skip


def take_over(source: Path, target: Path) -> None:
    subprocess.run(["cp", "-a", "--sparse=always", f"{source}/.", str(target)], check=True)


def old_messages(root: Path, topic: str = OLD_TOPIC) -> Places:
    with closing(StoreView(root)) as view:
        return {
            (queued.queue.queue_id, queued.queue_offset): bytes(plain_body(queued.message))
            for queued in view.messages(topic)
        }


def served(address: str, topic: str = OLD_TOPIC) -> Places:
    """All that a node serves of the old topic now, or of another one."""
    options = ConsumerOptions(hold_ms=0, timeout_s=PATIENCE_S)
    found: Places = {}
    with Consumer(address, topic=topic, start="first", options=options) as consumer:
        for queue, first in consumer.offsets().items():
            offset = first
            while batch := consumer.pull(queue, offset):
                for message in batch:
                    found[message.queue_id, message.queue_offset] = bytes(message.body)
                offset = batch.next_offset
    return found


def upgraded_group(
    make_node: Callable[[], Node], golden: Golden, *, without: tuple[str, ...] = ()
) -> Group:
    """A group of three whose members were upgraded from the same plain store, but for some."""

    def prepare(member: Member) -> None:
        if member.name in without:
            return
        take_over(golden("gs1"), member.node.root)
        done = store("upgrade", member.node.root, "--group", "g", "--self-id", member.name)

        assert done.returncode == 0, done.stderr

    return make_group(make_node, ack="majority-fsync", sizes=JAVA_SIZES, prepare=prepare)


@pytest.mark.long
def test_an_upgraded_group_serves_old_messages_and_takes_new_ones_and_can_leave_again(
    make_node: Callable[[], Node], golden: Golden
) -> None:
    group = upgraded_group(make_node, golden)
    leader = group.leader()
    before = old_messages(golden("gs1"))
    ends = {queue: max(o for q, o in before if q == queue) + 1 for queue, _ in before}
    with producer(*group.members) as sender:
        futures = [sender.send(OLD_TOPIC, b"new %d" % number) for number in range(40)]
        results = [future.result(PATIENCE_S) for future in futures]
    group.wait_equal()
    sent = {(one.queue_id, one.queue_offset): b"new %d" % n for n, one in enumerate(results)}

    assert all(offset >= ends.get(queue, 0) for queue, offset in sent)
    wait_until(lambda: served(leader.address) == before | sent, "all messages")
    delayed = len(old_messages(golden("gs1"), DELAYED_TOPIC)) + DELAYED_LEFT
    wait_until(lambda: len(served(leader.address, DELAYED_TOPIC)) == delayed, "delayed messages")
    group.wait_equal()
    assert group.stop() == [0, 0, 0]
    assert group.has_one_log()
    assert [one.name for one in group.members if one.node.logged("ERROR")] == []

    member = group.members[0]
    done = store("downgrade", member.node.root, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["messages"] == 40 + DELAYED_LEFT
    assert json.loads(done.stdout)["entries_left_out"] > 0
    assert old_messages(member.node.root) == before | sent
    with closing(StoreView(member.node.root)) as view:
        assert {queue.topic for queue in view.queues()} == {
            path.name for path in (golden("gs1") / "consumequeue").iterdir()
        }

    member.node.configure(node={"self_id": "n0"}, store={**JAVA_SIZES, "log": "commitlog"})
    member.start()
    member.node.wait_ready()
    wait_until(lambda: served(member.address) == before | sent, "all messages")
    assert member.node.stop() == 0
    assert not member.node.logged("ERROR"), member.node.log.read_text()


@pytest.mark.long(but=1)
@pytest.mark.parametrize("name", ["gu0", "gs1", "gd0"])
def test_a_node_goes_on_with_a_store_that_changed_its_kind(
    name: str, make_node: Callable[[], Node], golden: Golden
) -> None:
    """``gu0`` was upgraded by RocketMQ, ``gs1`` is upgraded by us, and ``gd0`` downgraded."""
    node = make_node()
    take_over(golden(name), _made(node.root))
    if name == "gs1":
        done = store("upgrade", node.root, "--group", "g", "--self-id", "n0")
        assert done.returncode == 0, done.stderr
    if name == "gd0":
        done = store("downgrade", node.root)
        assert done.returncode == 0, done.stderr
    before = old_messages(golden(name))
    kind = "commitlog" if name == "gd0" else "dledger"
    node.configure(node={"self_id": "n0"}, store={**JAVA_SIZES, "log": kind})
    member = Member(node, "n0")
    for number in range(2):
        member.start()
        node.wait_ready()
        with producer(member) as sender:
            sent = sender.send(OLD_TOPIC, b"new %d" % number).result(PATIENCE_S)
        before[sent.queue_id, sent.queue_offset] = b"new %d" % number

        wait_until(lambda: served(member.address) == before, "all messages")

        assert node.stop() == 0
        assert not node.logged("ERROR"), node.log.read_text()


def test_a_node_on_a_plain_store_that_is_to_be_a_members_names_the_command(
    make_node: Callable[[], Node], golden: Golden
) -> None:
    node = make_node()
    take_over(golden("gs1"), _made(node.root))
    node.configure(node={"self_id": "n0"}, store=JAVA_SIZES)
    node.launch(["-m", "ledgermq.cli.main", "serve", "--config", str(node.config)])

    assert node.wait_end() == 1
    assert node.logged(f"ledgermq store upgrade {node.root} --group")


def test_a_member_that_lacks_the_old_log_of_the_others_ends_and_says_what_to_do(
    make_node: Callable[[], Node], golden: Golden
) -> None:
    group = upgraded_group(make_node, golden, without=("n2",))
    nodes = {member.name: member.node for member in group.members}

    # Who differs from the leader ends, whoever leads.
    def ended() -> set[str]:
        gone = nodes.keys() - {member.name for member in group.up()}
        return gone if "n2" in gone or gone == {"n0", "n1"} else set()

    for name in wait_until(ended, "the end of those who differ", PATIENCE_S):
        assert nodes[name].wait_end() == 1
        assert nodes[name].logged("do not begin at the same position")
        assert nodes[name].logged("docs/operating/upgrade.md")


def _made(root: Path) -> Path:
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    return root
