"""The kernel refuses what a writer writes: the node ends, says why, and comes back."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable

import pytest

from ledgermq.model.exit_status import EXIT_STORAGE
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, make_group, producer
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

ALLOWED = 65_536


def test_a_follower_that_cannot_append_what_it_was_sent_says_which_file_and_why(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-fsync")
    leader = group.leader()
    sick = group.others(leader)[0]
    with producer(*group.members) as one:
        one.send_batch(TOPIC, [b"before"] * 20).result()
        group.wait_equal()
        sick.node.wait_ready()
        # Nothing may be written behind so much of a file: its own log lines stay below.
        resource.prlimit(sick.node.pid("writer"), resource.RLIMIT_FSIZE, (ALLOWED, ALLOWED))
        one.send_batch(TOPIC, [os.urandom(ALLOWED // 10) for _ in range(20)]).result()
    process = sick.node.process
    assert process is not None
    wait_until(lambda: process.poll() is not None, "the node to end", PATIENCE_S)
    told = sick.node.log.read_text()
    sick.start()
    sick.node.wait_ready()
    group.wait_equal()
    assert set(group.stop()) == {0}

    assert process.returncode == EXIT_STORAGE
    assert "CRITICAL writer: process failed: could not " in told
    assert "File too large" in told
    assert "Traceback" not in told
    assert group.has_one_log()
