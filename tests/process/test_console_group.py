"""The console of three nodes: who leads there leads elsewhere by a form."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.process.conftest import Node, wait_until
from tests.process.console_client import ConsoleClient
from tests.process.group_nodes import Group, Member, make_group
from tests.process.http_client import listens

pytestmark = pytest.mark.slow


def test_the_leadership_is_handed_over(make_node: Callable[[], Node]) -> None:
    def with_http(member: Member) -> None:
        text = member.node.config.read_text()
        member.node.config.write_text(text.replace("[listen]", '[listen]\nhttp = "unix"'))

    group: Group = make_group(make_node, ack="majority-memory", prepare=with_http)
    leader = group.leader()
    one, other = group.others(leader)
    consoles = {member.name: console(member.node.runtime / "http.sock") for member in group.members}
    roles_of(consoles[leader.name], {one.name: "follower", other.name: "follower"})
    leader, heir = wait_until(lambda: handed_over(group, consoles), "the hand-over")
    roles_of(consoles[heir.name], {leader.name: "follower", heir.name: "leader"})

    assert leader.node.logged(f"act=transfer on={heir.name}")


def handed_over(group: Group, consoles: dict[str, ConsoleClient]) -> tuple[Member, Member] | None:
    """Who led and who leads; None where the page says that it did not come about.

    Raft abandons a hand-over that takes longer than ``raft.transfer_timeout_ms``, and whoever wants
    it asks again.
    """
    leader = group.leader()
    heir = group.others(leader)[1]
    done = consoles[leader.name].act("/", "transfer", node=heir.name)
    if f"{heir.name} leads in term " in done.text:
        return leader, heir
    assert "the leadership was not handed over" in done.text or not leader.leads, done.text
    return None


def console(path: Path) -> ConsoleClient:
    wait_until(lambda: listens(path), "the socket")
    client = ConsoleClient(path, host="localhost")
    wait_until(lambda: client.get("/").status == 200, "the console")
    return client


def roles_of(at: ConsoleClient, wanted: dict[str, str]) -> None:
    """Wait until the page of the group tells these roles."""

    def told() -> bool:
        rows = json.loads(at.get("/?export=json&table=members").text)
        return wanted.items() <= {row["node"]: row["role"] for row in rows}.items()

    wait_until(told, f"{wanted}")
