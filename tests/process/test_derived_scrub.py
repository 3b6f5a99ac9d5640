"""Real nodes whose disks change bytes of queues and index: compared with the log, put right."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import make_group
from tests.process.test_scrub import FAST, PATIENCE_S, fill, read_all

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
