"""What the members of a real group tell systemd, from start to hand-over."""

from __future__ import annotations

import re
import signal
import time
from collections.abc import Callable

import pytest

from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Member, make_group, producer

pytestmark = pytest.mark.slow

LED = re.compile(r"STATUS=leader in term (\d+), committed up to (\d+)")
FOLLOWED = re.compile(r"STATUS=follower in term (\d+), committed up to (\d+)")


def last_status(member: Member, pattern: re.Pattern[str]) -> tuple[int, int] | None:
    """Term and position of the last sentence, when it is such a one."""
    sentences = [message for message in member.node.listen() if message.startswith("STATUS=")]
    found = pattern.match(sentences[-1]) if sentences else None
    return None if found is None else (int(found[1]), int(found[2]))


def test_systemd_is_told_of_role_term_progress_reload_and_hand_over(
    make_node: Callable[[], Node],
) -> None:
    group = make_group(make_node, ack="majority-fsync")
    leader = group.leader()
    for member in group.members:
        member.node.wait_ready()
    with producer(*group.members) as sender:
        sender.send("orders", b"first").result()
        before = wait_until(lambda: last_status(group.leader(), LED), "the leader's sentence")
        sender.send("orders", b"second" * 100).result()
        wait_until(
            lambda: (now := last_status(group.leader(), LED)) and now[1] > before[1],
            "a sentence with a later position",
        )
    leader = group.leader()
    others = group.others(leader)
    wait_until(
        lambda: all(last_status(member, FOLLOWED) for member in others), "followers' sentences"
    )
    reloaded_us = time.monotonic_ns() // 1_000
    leader.reload()
    leader.node.wait_told("READY=1", count=2)
    leader.node.signal(signal.SIGTERM)
    status = leader.node.wait_end()
    told = leader.node.listen()
    heir = group.leader(besides=leader)
    wait_until(lambda: last_status(heir, LED), "the heir's sentence")

    assert status == 0
    reloading = told.index("RELOADING=1")
    assert int(told[reloading + 1].removeprefix("MONOTONIC_USEC=")) >= reloaded_us
    assert told.index("READY=1") < reloading < told.index("STOPPING=1")
    assert told.count("STOPPING=1") == 1
    assert leader.node.logged("leadership is handed over: to=")
    for member in others:
        assert "STOPPING=1" not in member.node.listen()
