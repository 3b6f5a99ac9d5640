"""Real nodes whose disks change bytes of queues and index: compared with the log, put right."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import SIZES, TOPIC, Member, make_group
from tests.process.running import topics_document
from tests.process.test_scrub import (
    FAST,
    fill,
    read_all,
    refusal_of,
)
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def flip(path: Path, at: int) -> None:
    fd = os.open(path, os.O_RDWR)
    try:
        found = os.pread(fd, 1, at)[0]
        os.pwrite(fd, bytes([found ^ 0xFF]), at)
    finally:
        os.close(fd)


def test_damaged_queues_and_index_of_a_running_node_are_as_they_were_and_messages_are_read(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, members=1, ack="majority-fsync", scrub=FAST)
    (member,) = group.members
    group.leader()
    sent = fill(group.members, "first")
    group.wait_equal()
    root = member.node.root
    queues = sorted((root / "consumequeue" / "orders").glob("*/*"))
    index = sorted((root / "index").iterdir())
    before = [path.read_bytes() for path in queues]
    keys = [path.read_bytes() for path in index]
    for path in queues:
        flip(path, 45)
        flip(path, 50)
    flip(index[0], 40 + 4 * 500 + 20 + 6)

    def is_repaired() -> bool:
        counters = member.node.status()["counters"]["dispatcher"]
        return counters["repaired_units"] >= len(queues) and counters["repaired_index_files"] > 0

    wait_until(is_repaired, "the repair", PATIENCE_S)
    wait_until(lambda: member.node.logged("index is repaired: "), "the keys", PATIENCE_S)
    found = read_all(member.address, len(sent))
    assert group.stop() == [0]

    assert sorted(found) == sorted(sent)
    assert [path.read_bytes() for path in queues] == before
    assert [path.read_bytes() for path in sorted((root / "index").iterdir())] == keys
    assert not (root / "ledgermq" / "index-incomplete").exists()


def test_a_plain_log_with_a_damaged_record_is_told_counted_and_not_taken_for_shorter(
    make_node: Callable[[], Node],
) -> None:
    node = make_node()
    node.configure(store={"log": "commitlog", **SIZES}, scrub=FAST)
    (node.root / "config").mkdir(parents=True)
    (node.root / "config" / "topics.json").write_text(topics_document(TOPIC))
    node.serve()
    member = Member(node, "n7")
    sent = fill([member], "first")
    path = sorted((node.root / "commitlog").iterdir())[0]
    at = path.read_bytes().index(sent[0])
    flip(path, at + 200)
    wait_until(lambda: node.logged("log stays damaged: "), "the report", PATIENCE_S)
    found, reasons = refusal_of(member, len(sent) * 3 // 4)

    def counted() -> int:
        number: int = node.status()["counters"]["raft"]["damaged_entries"]
        return number

    wait_until(lambda: counted() == 1, "the count", PATIENCE_S)
    more = fill([member], "second", batches=2)
    text = member.command("status").stdout
    end = node.stop()

    assert end == 0
    assert sent[0] not in found
    assert set(found) <= set(sent)
    assert len(more) == 100
    assert reasons == ["there is no other member"]
    assert "damage      1 place" in text
    assert node.logged("request not answered: message is damaged")
