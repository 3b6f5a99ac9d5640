"""Where members listen for RocketMQ's clients: by the settings, and by the log once it says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ledgermq.gateway.transport.addresses import GroupAddresses
from ledgermq.members.roster import Roster, RosterEntry, RosterFile
from ledgermq.model.config.settings import (
    ListenSection,
    NodeSection,
    RemotingSection,
    Settings,
    StoreSection,
)
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.membership import Membership
from ledgermq.store.files.store_paths import StorePaths

NODE = NodeSection(
    self_id="n0",
    peers=("n0-10.0.0.1:40911", "n1-10.0.0.2:40911"),
    broker_ip="10.0.0.1",
    listen_port=10911,
)


def settings(root: Path, *addresses: str) -> Settings:
    return Settings(
        node=NODE,
        store=StoreSection(path_root_dir=root),
        remoting=RemotingSection(addresses=addresses),
    )


def put_members(root: Path, voters: set[str], learners: set[str], witnesses: set[str]) -> None:
    path = StorePaths.of(settings(root)).members
    path.parent.mkdir(parents=True, exist_ok=True)
    names = {NodeId(name) for name in voters | learners}
    roster = Roster(
        Membership(
            frozenset(map(NodeId, voters)),
            frozenset(map(NodeId, learners)),
            frozenset(map(NodeId, witnesses)),
        ),
        {name: f"10.0.0.{int(name[1:]) + 1}:40911" for name in names},
    )
    RosterFile(path).put(RosterEntry(Index(len(names)), Term(1), roster))


def test_the_leader_has_id_0_and_the_others_have_theirs(tmp_path: Path) -> None:
    addresses = GroupAddresses(settings(tmp_path, "n1-rocket.example:7000"), frozenset)

    assert addresses.brokers("n1").addresses == {1: "10.0.0.1:10911", 0: "rocket.example:7000"}
    assert addresses.brokers("").addresses == {1: "10.0.0.1:10911", 2: "rocket.example:7000"}
    assert (addresses.of("n0"), addresses.of("n9")) == ("10.0.0.1:10911", None)


def test_members_that_give_no_sign_of_life_are_left_out_while_somebody_leads(
    tmp_path: Path,
) -> None:
    absent = {NodeId("n1")}
    addresses = GroupAddresses(settings(tmp_path), lambda: absent)

    assert addresses.brokers("n0").addresses == {0: "10.0.0.1:10911"}
    # Without a leader it may be this node that nobody hears, and who leads is no longer asked.
    assert sorted(addresses.brokers("").addresses) == [1, 2]
    assert sorted(addresses.brokers("n1").addresses) == [0, 1]
    assert addresses.of("n1") == "10.0.0.2:10911"
    absent.clear()
    assert sorted(addresses.brokers("n0").addresses) == [0, 2]


def test_members_that_come_and_go_are_known_as_the_log_has_them(tmp_path: Path) -> None:
    addresses = GroupAddresses(settings(tmp_path, "n3-10.0.0.4:7000"), frozenset)
    assert sorted(addresses.brokers("").addresses) == [1, 2]

    put_members(tmp_path, {"n0", "n1", "n2", "n3"}, {"n4"}, {"n2"})

    assert addresses.brokers("n3").addresses == {
        1: "10.0.0.1:10911",
        2: "10.0.0.2:10911",
        0: "10.0.0.4:7000",
    }

    put_members(tmp_path, {"n0", "n3", "n5", "n6", "n7"}, {"n4"}, set())

    assert sorted(addresses.brokers("n0").addresses) == [0, 4, 6, 7, 8]


def test_a_list_of_members_that_is_damaged_changes_no_route(tmp_path: Path) -> None:
    put_members(tmp_path, {"n0", "n1", "n2"}, set(), set())
    addresses = GroupAddresses(settings(tmp_path), frozenset)
    before = addresses.brokers("n0")
    assert sorted(before.addresses) == [0, 2, 3]

    StorePaths.of(settings(tmp_path)).members.write_bytes(b"{")

    assert addresses.brokers("n0") == before


def test_an_address_of_ipv6_has_brackets(tmp_path: Path) -> None:
    alone = replace(settings(tmp_path), node=replace(NODE, peers=(), broker_ip="::1"))

    assert GroupAddresses(alone, frozenset).brokers("n0").addresses == {0: "[::1]:10911"}


def test_slaves_are_told_an_address_that_they_can_reach(tmp_path: Path) -> None:
    def told(ha: str | None) -> str | None:
        given = replace(settings(tmp_path), listen=ListenSection(ha=ha))
        return GroupAddresses(given, frozenset).ha

    assert told(None) is None
    assert told("10.9.0.1:10912") == "10.9.0.1:10912"
    for anywhere in ("*:10912", "0.0.0.0:10912", "[::]:10912"):
        assert told(anywhere) == "10.0.0.1:10912"
