"""The console of three nodes: who leads there leads elsewhere by a form."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ledgermq.client import GroupConsumer, Producer, ShareConsumer
from tests.process.client_node import start_client_node
from tests.process.conftest import Node, wait_until
from tests.process.console_client import ConsoleClient
from tests.process.group_nodes import Group, Member, make_group
from tests.process.http_client import listens
from tests.process.test_cluster_groups import ClusterNode
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def with_http(member: Member) -> None:
    text = member.node.config.read_text()
    member.node.config.write_text(text.replace("[listen]", '[listen]\nhttp = "unix"'))


def test_the_leadership_is_handed_over(make_node: Callable[[], Node]) -> None:
    group: Group = make_group(make_node, ack="majority-memory", prepare=with_http)
    leader = group.leader()
    one, other = group.others(leader)
    consoles = {member.name: console(member.node.runtime / "http.sock") for member in group.members}
    roles_of(consoles[leader.name], {one.name: "follower", other.name: "follower"})
    leader, heir = wait_until(lambda: handed_over(group, consoles), "the hand-over")
    roles_of(consoles[heir.name], {leader.name: "follower", heir.name: "leader"})

    assert leader.node.logged(f"act=transfer on={heir.name}")


def test_who_is_silent_comes_first_and_is_an_event(make_node: Callable[[], Node]) -> None:
    group: Group = make_group(make_node, ack="majority-memory", prepare=with_http)
    consoles = [console(member.node.runtime / "http.sock") for member in group.members]

    def all_is_well() -> bool:
        pages = [one.get("/").text for one in consoles]
        in_step, heard = (
            sum(f"3 of 3 {words}, one may fail" in page for page in pages)
            for words in ("in step", "heard of")
        )
        return (in_step, heard) == (1, 2)

    wait_until(all_is_well, "the leader and its followers to say that all is well")
    (_, *others), at = group.members, consoles[0]
    for member in others:
        member.node.signal(signal.SIGKILL)
        member.node.wait_end()
    names = {member.name for member in others}
    wait_until(lambda: silent_in(at.get("/").text) == names, "both to be silent")
    page = wait_until(lambda: told(at, "No majority was heard of"), "nobody to lead")

    assert "There is no majority of 3." in page
    assert silent_in(page[page.index("<h1>") : page.index("<details>")]) == names
    assert "<details open" not in page
    # Who is silent may lead others, or have led: nobody here knows.
    rows = json.loads(at.get("/?export=json&table=members").text)
    assert {row["node"] for row in rows if row["role"] == "not known"} == names
    seen = json.loads(at.get("/events?export=json&table=seen").text)
    silent = {row["who"] for row in seen if row["event"] == "member_silent"}
    assert silent == names
    assert silent_in(at.get("/topics").text) == names


def test_a_cluster_is_seen_with_how_its_other_groups_are(
    make_node: Callable[[], Node], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    http = {"http": "unix"}
    home = ClusterNode(make_node(), "home", capsys, listen=http)
    other = ClusterNode(make_node(), "other", capsys)
    home.begin(tmp_path / "root.key")
    ticket = home.run("invite", "other", "--nodes", other.address)[1]
    (tmp_path / "ticket").write_text(ticket)
    other.tell("join", "--ticket", str(tmp_path / "ticket"))
    with (
        Producer(other.node.address) as producer,
        GroupConsumer(other.node.address, group="workers") as consumer,
    ):
        producer.send("orders", b"consumed").result(PATIENCE_S)
        consumer.subscribe("orders")
        wait_until(lambda: consumer.poll(1), "the first message")
        consumer.commit()
        producer.send("orders", b"waits").result(PATIENCE_S)
    at = console(home.node.runtime / "http.sock")

    def rows() -> dict[str, dict[str, Any]]:
        told = json.loads(at.get("/?export=json&table=cluster").text)
        return {row["group"]: row for row in told}

    def both_answer() -> bool:
        return all(row["health"] == "all answer" for row in rows().values())

    wait_until(both_answer, "both groups to be seen")
    wait_until(lambda: rows()["other"]["lag"] == 1, "the message that waits")
    seen = rows()
    assert all(row["leader"] for row in seen.values())
    assert (seen["other"]["told"], seen["other"]["behind"]) == ("1 of 1 answer", 0)
    other.node.end()
    wait_until(lambda: rows()["other"]["health"] == "no answer", "the end to be seen")
    assert rows()["other"]["silent"] == [other.address]
    assert rows()["home"]["health"] == "all answer"


def test_a_share_group_shows_what_its_consumers_have(make_node: Callable[[], Node]) -> None:
    node = make_node()
    start_client_node(node, listen={"http": "unix"})
    at = console(node.runtime / "http.sock")
    with (
        Producer(node.address) as producer,
        ShareConsumer(node.address, group="packing", topic="orders") as consumer,
    ):
        producer.send_batch("orders", [b"one", b"two", b"three"], queue_id=2).result(PATIENCE_S)
        messages = wait_until(lambda: consumer.poll(1), "the messages")
        consumer.accept(messages[0])
        consumer.flush()
        page = wait_until(lambda: told(at, "What its consumers have", path="/groups/packing"), "it")
        rows = json.loads(at.get("/groups/packing?export=json&table=shared").text)

    assert "Nobody consumes" not in page
    assert sum(row["in_flight"] for row in rows) == len(messages) - 1


def silent_in(page: str) -> set[str]:
    """Who is said to be silent: together, or one after the other where a look lay in between."""
    told = re.findall(r"(n\d(?:, n\d)*) silent since", page)
    return {name for names in told for name in names.split(", ")}


def told(at: ConsoleClient, text: str, *, path: str = "/") -> str:
    """A page if it says that; else nothing."""
    page = at.get(path).text
    return page if text in page else ""


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

    def are_told() -> bool:
        rows = json.loads(at.get("/?export=json&table=members").text)
        return wanted.items() <= {row["node"]: row["role"] for row in rows}.items()

    wait_until(are_told, f"{wanted}")
