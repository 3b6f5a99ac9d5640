"""Members that join a group and leave it while it works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.process.conftest import (
    Node,
    wait_until,
)
from tests.process.group_nodes import TOPIC, Group, Member, make_growing_group, producer
from tests.process.test_console_group import console, roles_of
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow


def raft_status(member: Member) -> dict[str, Any]:
    status: dict[str, Any] = json.loads(member.command("raft", "status", "--json").stdout)
    return status


def raft_answers(member: Member) -> bool:
    return member.command("raft", "status", "--json").returncode == 0


def change(group: Group, *words: str) -> dict[str, Any]:
    """Ask the leader, and the next one if that one leads no more: on a busy machine it may."""

    def asked() -> subprocess.CompletedProcess[str] | None:
        done = group.leader().command("raft", *words, "--json", "--timeout", str(PATIENCE_S))
        return None if "NotLeaderError" in done.stderr else done

    done: subprocess.CompletedProcess[str] = wait_until(asked, "an answer of the leader")
    assert done.returncode == 0, (done.stdout, done.stderr)
    members: dict[str, Any] = json.loads(done.stdout)
    return members


def join(group: Group, member: Member, *kind: str) -> dict[str, Any]:
    member.start()
    # Its processes start before anything can be sent to it.
    wait_until(lambda: raft_answers(member), f"{member.name} to answer")
    return change(group, "add", member.name, member.peer_address, *kind)


def remove_a_follower(group: Group, kept: Member) -> tuple[Member, dict[str, Any]]:
    """A member that was removed, and who is left. Who leads may change between look and order."""

    def removed() -> tuple[Member, dict[str, Any]] | None:
        leader = group.leader()
        gone = next(one for one in group.members if one not in (leader, kept))
        done = leader.command("raft", "remove", gone.name, "--json", "--timeout", str(PATIENCE_S))
        if done.returncode == 0:
            return gone, json.loads(done.stdout)
        assert any(one in done.stderr for one in ("NotLeaderError", "cannot leave")), done.stderr
        return None

    found: tuple[Member, dict[str, Any]] = wait_until(removed, "a member to be removed")
    return found


def leave(group: Group, gone: Member) -> None:
    """Stop a member that was removed, so that the others can be waited for."""
    gone.node.signal(signal.SIGTERM)
    assert gone.node.wait_end() == 0


def send(group: Group, prefix: str, count: int = 200) -> None:
    with producer(*group.up()) as one:
        bodies = [f"{prefix}-{number}".encode() for number in range(count)]
        assert len(one.send_batch(TOPIC, bodies).result()) == count


@pytest.mark.long
def test_one_node_grows_to_three_and_outlives_the_first(make_node: Callable[[], Node]) -> None:
    group = make_growing_group(make_node, first=1, members=3)
    first, second, third = group.members
    group.leader()
    send(group, "alone")
    join(group, second)
    send(group, "two")
    members = join(group, third)
    send(group, "three")
    group.wait_equal()
    first.kill()
    group.leader(besides=first)
    send(group, "without-the-first")
    first.start()
    group.wait_equal()
    statuses = group.stop()

    assert members == {"voters": ["n0", "n1", "n2"], "learners": [], "witnesses": []}
    assert statuses == [0, 0, 0]
    assert group.has_one_log()
    assert [len(member.bodies()) for member in group.members] == [800, 800, 800]


@pytest.mark.long
def test_a_node_whose_settings_still_name_a_group_of_one_hands_over_and_is_ready_as_a_follower(
    make_node: Callable[[], Node],
) -> None:
    group = make_growing_group(make_node, first=1, members=3)
    first, *others = group.members
    group.leader()
    for other in others:
        join(group, other)

    def leads() -> bool:
        if not first.leads:
            group.leader().command("raft", "transfer", first.name)
        return first.leads

    wait_until(leads, f"{first.name} to lead")
    leave(group, first)
    group.leader()
    first.start()
    first.node.wait_ready()
    send(group, "again")
    group.wait_equal()
    group.stop()

    assert "leadership is handed over: to=" in first.node.log.read_text()
    assert group.has_one_log()


def test_a_member_is_replaced_under_load(make_node: Callable[[], Node]) -> None:
    group = make_growing_group(make_node, first=3, members=4)
    *_, fresh = group.members
    group.leader()
    with producer(*group.up()) as one:
        futures = [one.send_batch(TOPIC, [b"%d" % turn] * 20) for turn in range(20)]
        join(group, fresh)
        futures += [one.send_batch(TOPIC, [b"%d" % turn] * 20) for turn in range(20)]
        gone, members = remove_a_follower(group, fresh)
        futures += [one.send_batch(TOPIC, [b"%d" % turn] * 20) for turn in range(20)]
        acked = sum(len(future.result()) for future in futures)
    why = wait_until(
        lambda: [one for one in raft_status(gone)["refusals"].values() if "no member" in one],
        "the removed member to be told",
    )
    leave(group, gone)
    group.wait_equal()
    group.stop()

    assert acked == 1_200
    assert members["voters"] == sorted(m.name for m in group.members if m is not gone)
    assert why
    assert group.has_one_log(gone)


@pytest.mark.long
def test_the_members_are_known_after_every_restart(make_node: Callable[[], Node]) -> None:
    group = make_growing_group(make_node, first=3, members=5)
    join(group, group.members[3], "--learner")
    witness = group.members[4].node
    text = witness.config.read_text()
    witness.config.write_text(text.replace("[listen]\n", '[listen]\nhttp = "unix"\n'))
    join(group, group.members[4], "--witness")
    group.wait_equal()
    # Of itself it publishes that it follows: what it is says the membership.
    roles_of(console(witness.runtime / "http.sock"), {"n4": "witness"})
    for member in group.members:
        os.kill(member.node.pid("raft"), signal.SIGKILL)
    group.leader()
    send(group, "after-raft-died")
    group.wait_equal()
    after_raft = [raft_status(member) for member in group.members]
    group.stop()
    for member in group.members:
        member.start()
    group.leader()
    send(group, "after-all-stopped")
    group.wait_equal()
    after_all = [raft_status(member) for member in group.members]
    group.stop()

    for status in after_raft + after_all:
        assert status["voters"] == ["n0", "n1", "n2", "n4"]
        assert status["learners"] == ["n3"]
        assert status["witnesses"] == ["n4"]
    assert group.has_one_log()


@pytest.mark.long
def test_a_change_that_cannot_be_says_why(make_node: Callable[[], Node]) -> None:
    group = make_growing_group(make_node, first=3, members=4)
    leader = group.leader()
    group.wait_equal()
    follower = next(one for one in group.up() if one is not leader)
    refusals = [
        follower.command("raft", "add", "n3", "127.0.0.1:1").stderr,
        leader.command("raft", "add", "n9", "127.0.0.1:1").stderr,
        leader.command("raft", "add", "n3").stderr,
        leader.command("raft", "add", "n3", "nowhere").stderr,
        leader.command("raft", "add", "n3", leader.peer_address).stderr,
        leader.command("raft", "remove", leader.name).stderr,
        leader.command("raft", "remove", "n7").stderr,
        leader.command("raft", "add", follower.name, "--learner").stderr,
        leader.command("raft", "add", follower.name, "--witness").stderr,
        follower.command("raft", "add", leader.name).stderr,
    ]
    again = leader.command("raft", "add", follower.name)
    members = raft_status(leader)["voters"]
    group.stop()

    assert "this node does not lead" in refusals[0]
    assert "no key" in refusals[1] and "n9.public" in refusals[1]
    assert "a new member needs its address" in refusals[2]
    assert "not the address of a member" in refusals[3]
    assert "another member listens there" in refusals[4]
    assert "the leader cannot leave: hand over first" in refusals[5]
    assert "no such member" in refusals[6]
    assert "votes otherwise" in refusals[7] and "votes otherwise" in refusals[8]
    # Of one that is there, too: only the leader knows whether that is certain.
    assert "only the leader knows what is committed" in refusals[9]
    assert again.returncode == 0
    assert members == ["n0", "n1", "n2"]
