"""docs/operating/new-version.md shows what commands print during an upgrade from 0.1.0.

Its commands of root are run by ``tests/boot``; this has the group of two versions that they need.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from ledgermq.model.features import LEVEL
from tests.operating_commands import blocks_of
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import Group, Member, make_group
from tests.process.other_versions import THIS, version_before
from tests.process.rolling import (
    OldLoopback,
    level,
    refusal_of,
    refused_enabling,
    replace,
    start,
    stop,
    upgrade_check,
)

pytestmark = pytest.mark.slow


def without_numbers(line: str) -> str:
    """The line as the page may have it with other members and versions."""
    return re.sub(r"\d+", "N", line.strip())


def shown() -> list[str]:
    """Lines that the page says are printed."""
    blocks = [block.text for block in blocks_of("new-version.md") if block.language == "text"]
    return [line for text in blocks for line in text.splitlines()]


def features(member: Member, *words: str) -> str:
    done = THIS.command("cluster", "features", *words, "--address", member.address)
    assert done.returncode == 0, done.stderr
    return done.stdout


def upgraded(group: Group) -> list[str]:
    """What is printed while all members but the leader, and then that, get this version."""
    last = group.leader()
    first, second = group.others(last)
    said = [upgrade_check(last).stdout]
    replace(group, first, THIS)
    said += [first.command("raft", "status").stdout, upgrade_check(first, "--to", "0.1.0").stdout]
    replace(group, second, THIS)
    wait_until(lambda: f"{second.name} {LEVEL}" in features(first), "it to be heard of")
    said.append(features(first))
    replace(group, last, THIS)
    wait_until(lambda: "next  " in features(group.leader()), "the last one to be heard of")
    return [*said, features(group.leader())]


@pytest.mark.long
def test_what_the_page_shows_is_what_is_printed(make_node: Callable[[], Node]) -> None:
    old = version_before()
    group = make_group(make_node, ack="majority-fsync", network=OldLoopback(old))
    for member in group.members:
        member.node.wait_ready()
    said = upgraded(group)
    gone = group.others(group.leader())[0]
    replace(group, gone, old)
    said.append(refused_enabling(group.leader()))
    replace(group, gone, THIS)
    wait_until(lambda: "next  " in features(group.leader()), "all to be heard of")
    said.append(features(group.leader(), "--enable"))
    wait_until(lambda: level(gone.node) == LEVEL, "the level to be in force")
    said.append(upgrade_check(gone, "--to", "0.1.0").stderr)
    stop(gone.node)
    start(old, gone.node)
    refusal_of(group, gone)
    said.append(group.leader(besides=gone).command("raft", "status").stdout)
    stop(gone.node)
    assert set(group.stop()) == {0}

    printed = without_numbers("\n".join(said)).splitlines()
    missing = [
        line
        for line in map(without_numbers, shown())
        # An error goes on with its details in parentheses.
        if not any(one == line or one.startswith(f"{line} (") for one in printed)
    ]
    assert missing == []
