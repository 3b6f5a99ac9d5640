"""Members whose hosts have names: what they stand for changes, and a resolver falls silent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgermq.model.errors import ConfigError, StorageError
from ledgermq.sessions.keys.peer_keys import init_keys
from tests.process.conftest import StartNode, wait_until
from tests.process.group_nodes import TOPIC, Group, make_group, producer
from tests.process.name_server import NameServer
from tests.process.own_network import in_own_network
from tests.process.peer_members import N0, N1, N2, Members, deliver
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow
PORT = 4_711


class NamedHosts:
    """``n0.test`` and so on, each at first at an address of its own."""

    raft: Mapping[str, object] = {}

    def __init__(self, names: NameServer, members: int) -> None:
        self._members = members
        for member in range(members):
            names.set(f"n{member}", f"10.9.1.{member + 1}")

    def peers(self, member: int) -> list[str]:
        del member
        return [f"n{other}-n{other}.test:{PORT}" for other in range(self._members)]

    def prefix(self, member: int) -> list[str]:
        del member
        return []


@pytest.fixture
def names() -> Iterator[NameServer]:
    with NameServer() as server:
        yield server


@contextmanager
def named_group(
    start_node: StartNode, names: NameServer, raft: Mapping[str, object] | None = None
) -> Iterator[Group]:
    hosts = NamedHosts(names, 3)
    group = make_group(start_node, ack="majority-fsync", network=hosts, raft=raft)
    group.leader()
    yield group
    group.stop()


def supervisors(group: Group) -> dict[str, int]:
    """Process ids by the names of members."""
    return {one.name: one.node.process.pid for one in group.members if one.node.process}


@pytest.mark.long
@in_own_network
def test_a_member_with_a_new_address_is_found_by_its_name_and_nobody_else_starts_again(
    make_node: StartNode, names: NameServer
) -> None:
    with named_group(make_node, names) as group:
        old_leader = group.leader()
        with producer(*group.members, timeout_s=PATIENCE_S) as sender:
            for number, moved in enumerate([group.others(old_leader)[0], old_leader]):
                before = supervisors(group)
                moved.kill()
                names.set(moved.name, f"10.9.2.{number + 1}")
                sender.send(TOPIC, b"while it is away").result(PATIENCE_S)
                moved.start()
                sender.send(TOPIC, b"and after that").result(PATIENCE_S)
                group.wait_equal()
                wait_until(lambda: _are_direct(group), "direct connections to all")
                after = supervisors(group)

                assert before.items() ^ after.items() == {
                    (moved.name, before[moved.name]),
                    (moved.name, after[moved.name]),
                }
    assert group.has_one_log()


def _are_direct(group: Group) -> bool:
    """Whether each member has a direct connection to both others."""
    told = [member.command("raft", "status", "--json") for member in group.members]
    return all(one.returncode == 0 and len(json.loads(one.stdout)["direct"]) == 2 for one in told)


@pytest.mark.long
@in_own_network
def test_a_resolver_that_hangs_holds_no_member_that_is_connected(
    make_node: StartNode, names: NameServer
) -> None:
    with named_group(make_node, names, raft={"direct": False}) as group:
        leader = group.leader()
        away = group.others(leader)[0]
        with producer(*group.members, timeout_s=PATIENCE_S) as sender:
            sender.send(TOPIC, b"before").result(PATIENCE_S)
            group.wait_equal()
            names.is_silent = True
            away.kill()
            asked = len(names.asked)
            # Both others ask, for an address of each family.
            wait_until(lambda: len(names.asked) >= asked + 4, "questions that hang")
            began = time.monotonic()
            for _ in range(20):
                sender.send(TOPIC, b"meanwhile").result(PATIENCE_S)
            took_s = time.monotonic() - began
            leaders = [member for member in group.up() if member.leads]
        # The resolver asks again after 30 s: nothing has waited for that.
        assert (leaders, took_s < 20) == ([leader], True)
        names.is_silent = False
        away.start()
        group.wait_equal()


@pytest.mark.long
@in_own_network
def test_all_addresses_of_a_member_are_tried_one_after_the_other(
    tmp_path: Path, names: NameServer
) -> None:
    with Members(tmp_path) as members:
        port = members.ports[1]
        names.set("n1", "::1", "127.0.3.8", "127.0.3.9")
        peers = (members.peers[0], f"n1-n1.test:{port}", members.peers[2])
        first = members.start(N0, peers=peers)
        second = members.start(N1, peers=(members.peers[0], f"n1-127.0.3.9:{port}", peers[2]))
        deliver(first, second, b"at the third address")
        # And stays there, though the name is asked for no more.
        asked = len(names.asked)
        deliver(first, second, b"once more")

        assert len(names.asked) == asked


@in_own_network
def test_who_finds_another_member_at_an_address_asks_for_the_name_again(
    tmp_path: Path, names: NameServer
) -> None:
    """Without keys a connection to the wrong member stands: only its refusal tells."""
    with Members(tmp_path) as members:
        port = members.ports[0]
        names.set("n1", "127.0.3.2")
        names.set("n2", "127.0.3.2")
        peers = (members.peers[0], f"n1-n1.test:{port}", f"n2-n2.test:{port}")
        first = members.start(N0, peers=peers)
        third = members.start(N2, peers=(peers[0], peers[1], f"n2-127.0.3.2:{port}"))
        deliver(first, third, b"to n2")

        def is_refused() -> bool:
            first.pump()
            third.pump()
            return "means n1" in first.group.refusals.get(N1, "")

        wait_until(is_refused, "the refusal of n2, which n1's name leads to")
        names.set("n1", "127.0.3.1")
        second = members.start(N1, peers=(peers[0], f"n1-127.0.3.1:{port}", peers[2]))

        def has_arrived() -> bool:
            # Who does not read would end the connection in the end, and that is another matter.
            third.pump()
            first.group.send(N1, [b"to n1"])
            first.pump()
            return (N0, [b"to n1"]) in second.pump()

        wait_until(has_arrived, "a message at the right member")


@pytest.mark.long
@in_own_network
def test_an_own_name_that_is_not_resolved_is_named_and_stops_nobody_who_has_keys(
    tmp_path: Path, names: NameServer
) -> None:
    with Members(tmp_path / "clear") as members:
        port = members.ports[0]
        peers = (f"n0-n0.test:{port}", *members.peers[1:])
        with pytest.raises(ConfigError, match=r"name not resolved.*n0\.test.*node\.peers"):
            members.start(N0, peers=peers)
        names.is_silent = True
        with pytest.raises(StorageError, match=r"not answered.*n0\.test.*node\.peers"):
            members.start(N0, peers=peers)
    init_keys(tmp_path / "keys", [N0, N1, N2])
    with Members(tmp_path / "guarded", keys=tmp_path / "keys") as members:
        port = members.ports[0]
        first = members.start(N0, peers=(f"n0-n0.test:{port}", *members.peers[1:]))
        second = members.start(N1, peers=(f"n0-127.0.0.1:{port}", *members.peers[1:]))
        deliver(second, first, b"without a resolver")
