"""Calls about a cluster of groups: what they have in the log, and what they tell."""

from __future__ import annotations

import base64
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ledgermq.broker.callers import Caller
from ledgermq.broker.calls import Call
from ledgermq.broker.cluster.cluster_calls import ClusterAge, ClusterCalls
from ledgermq.model.config.settings import NodeSection, Settings, StoreSection
from ledgermq.model.errors import ConfigError, ProtocolError
from ledgermq.process.clock import MACHINE_CLOCK
from ledgermq.rules.access.access import User, UserTable
from ledgermq.rules.cluster.certificates import Certificate, certify
from ledgermq.rules.cluster.signatures import SigningKey
from ledgermq.rules.state.cluster_copy import ClusterCopy
from ledgermq.sessions.keys.user_secrets import UserSecrets
from tests.unit.broker.answers import answers

ROOT = SigningKey(b"r" * 32)
A, B = "tcp://10.0.0.1:10912", "tcp://10.0.0.2:10912"


def b64(content: bytes) -> str:
    return base64.b64encode(content).decode()


class LeadingGroup:
    """Tables of a group's leader, to which all is applied as it comes."""

    def __init__(self, folder: Path, name: str) -> None:
        settings = Settings(store=StoreSection(path_root_dir=folder / name))
        self.users, self.copy = UserTable(), ClusterCopy()
        tables: Any = SimpleNamespace(
            cluster=self.copy,
            node=NodeSection(broker_name=name),
            secrets=UserSecrets(settings),
            users=self.users,
        )
        log: Any = SimpleNamespace(
            submit=self._submit,
            check_leads=lambda: None,
            check_newest=lambda: None,
            check=lambda: None,
        )
        self._answers = answers(
            ClusterCalls(
                tables, log, lambda _: ClusterAge(None, False, ""), lambda: [], MACHINE_CLOCK
            ).verbs
        )
        self._told: Any = None
        self.commands = 0

    def _submit(self, request: Any, _now_ms: int) -> None:
        for change in request.plan():
            self.copy.apply(change, 0, 0)
            self.commands += 1
        self._told = request.answer()

    def ask(self, verb: str, **arguments: object) -> Any:
        found = self._answers[verb](Call(Caller(b"c", 1), arguments, 0))
        return self._told if found is None else found

    def begin(self) -> Any:
        own = self.ask("cluster_key")
        key = base64.b64decode(own["key"])
        chain = [certify(ROOT, Certificate("c", 1, True, own["group"], key, 0, b"")).signed]
        return self.ask(
            "cluster_begin", cluster="c", root=b64(ROOT.public), chain=[*map(b64, chain)], nodes=[A]
        )


def test_a_home_begins_takes_a_group_and_that_joins(tmp_path: Path) -> None:
    home, other = LeadingGroup(tmp_path, "a"), LeadingGroup(tmp_path, "b")
    assert other.ask("cluster_show")["cluster"] == ""
    home.begin()
    ticket = home.ask("cluster_group_set", group="b", nodes=[B])

    told = other.ask(
        "cluster_join", cluster="c", root=ticket["root"], chain=ticket["chain"],
        nodes=ticket["home_nodes"],
    )  # fmt: skip

    assert (ticket["is_home"], ticket["signs"], ticket["epoch"]) == (True, True, 1)
    assert [row["group"] for row in ticket["groups"]] == ["a", "b"]
    assert (told["home"], told["is_home"], told["signs"]) == ("a", False, False)
    assert (told["group"], told["home_nodes"], told["groups"]) == ("b", [A], [])


def test_what_is_asked_twice_is_done_once(tmp_path: Path) -> None:
    """Nobody knew what had become of it."""
    home = LeadingGroup(tmp_path, "a")
    first = home.begin()
    commands = home.commands

    assert home.begin() == first
    assert home.commands == commands


def test_a_home_without_its_key_says_so(tmp_path: Path) -> None:
    home = LeadingGroup(tmp_path, "a")
    home.begin()
    (tmp_path / "a" / "ledgermq" / "keys" / "users.key").unlink()

    assert home.ask("cluster_show")["signs"] is False


def test_a_group_is_known_by_a_user_that_there_is(tmp_path: Path) -> None:
    home = LeadingGroup(tmp_path, "a")
    home.begin()
    with pytest.raises(ConfigError, match="user does not exist"):
        home.ask("cluster_group_set", group="b", nodes=[B], user="other")
    home.users.put(User(name="other", topics={}, groups={}))

    told = home.ask("cluster_group_set", group="b", nodes=[B], user="other")

    assert told["groups"][1] == {"group": "b", "nodes": [B], "user": "other"}


def test_groups_are_told_to_who_does_not_know_of_the_last_change(tmp_path: Path) -> None:
    home = LeadingGroup(tmp_path, "a")
    alone = home.ask("cluster_groups")
    home.begin()
    number = home.ask("cluster_groups")["number"]
    home.ask("cluster_group_set", group="b", nodes=[B])

    told = home.ask("cluster_groups", known=number)
    again = home.ask("cluster_groups", known=told["number"])

    assert alone == {"group": "a", "cluster": "", "number": 0, "groups": []}
    assert told["groups"] == [{"group": "a", "nodes": [A]}, {"group": "b", "nodes": [B]}]
    assert (told["group"], told["cluster"]) == ("a", "c")
    assert told["number"] > number
    assert (again["number"], again["groups"]) == (told["number"], None)


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("cluster_groups", {"known": -1}),
        ("cluster_groups", {"known": "1"}),
        ("cluster_groups", {"known": 2**63}),
        ("cluster_begin", {"cluster": "c", "root": "%", "chain": [], "nodes": [A]}),
        ("cluster_begin", {"cluster": "c" * 128, "root": "AAAA", "chain": [], "nodes": [A]}),
        ("cluster_begin", {"cluster": "c\n", "root": "AAAA", "chain": [], "nodes": [A]}),
        ("cluster_join", {"cluster": "c", "root": "AAAA", "chain": ["AAAA"] * 65, "nodes": [A]}),
        ("cluster_join", {"cluster": "c", "root": "AAAA", "chain": [], "nodes": [A] * 65}),
        ("cluster_join", {"cluster": "c", "root": "AAAA", "chain": [], "nodes": [7]}),
        ("cluster_group_set", {"group": "b", "nodes": "all"}),
        ("cluster_group_remove", {}),
    ],
)
def test_arguments_of_other_kinds_are_refused(
    tmp_path: Path, verb: str, arguments: dict[str, object]
) -> None:
    group = LeadingGroup(tmp_path, "a")

    with pytest.raises(ProtocolError):
        group.ask(verb, **arguments)
    assert group.commands == 0
