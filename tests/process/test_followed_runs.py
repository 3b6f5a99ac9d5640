"""Writers feed one another, and count what they hold, as long as their raft processes let them."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from ledgermq.client import Producer
from ledgermq.ipc.cursor_page import CursorPage
from ledgermq.model.errors import StaleGenerationError
from tests.process.conftest import Node, wait_until
from tests.process.group_nodes import TOPIC, Group, Member, make_group, producer
from tests.process.test_own_commits import stopped
from tests.suite.patience import PATIENCE_S

pytestmark = pytest.mark.slow

MODES = ["majority-fsync", "majority-memory"]
LATER_NS = 500_000_000


@pytest.fixture(params=MODES)
def group(request: pytest.FixtureRequest, make_node: Callable[[], Node]) -> Group:
    return make_group(make_node, ack=request.param)


def run_of(member: Member) -> int:
    """What its writer does by itself: above 0 as a leader, below as a follower; 0: nothing, or the
    node has just been started.
    """
    cursors = member.node.runtime / "cursors"
    if not cursors.exists():
        return 0
    try:
        page = CursorPage.attach(cursors)
    except StaleGenerationError:
        # It is being made.
        return 0
    with page:
        return int(page.run_cell()[0])


def runs(group: Group) -> dict[str, int]:
    """All runs, by member."""
    return {member.name: run_of(member) for member in group.members}


def wait_runs(group: Group) -> list[Member]:
    """The followers, once all members have runs: a busy machine may elect another leader
    meanwhile.
    """

    def running() -> list[Member] | None:
        found = runs(group)
        if not all(found.values()):
            return None
        return [member for member in group.members if found[member.name] < 0]

    found: list[Member] = wait_until(running, "runs of all members")
    return found


def is_sent_past_raft(group: Group, one: Producer, sent: list[bytes]) -> bool:
    """Send a message while all raft processes stand still; false where a run has ended by then, or
    by itself meanwhile: a disk was so slow that a follower seemed silent.
    """
    wait_runs(group)
    with ExitStack() as still:
        for member in group.members:
            still.enter_context(stopped(member.node.pid("raft")))
        before = runs(group)
        if not all(before.values()):
            return False
        sent.append(b"past raft %d" % len(sent))
        one.send(TOPIC, sent[-1]).result(PATIENCE_S)
        return runs(group) == before


def test_a_message_needs_no_raft_process(group: Group) -> None:
    sent = [b"first"]
    with producer(*group.members) as one:
        one.send(TOPIC, sent[0]).result(PATIENCE_S)
        wait_until(
            lambda: is_sent_past_raft(group, one, sent), "a message that raft knows nothing of"
        )
        sent.append(b"last")
        one.send(TOPIC, sent[-1]).result(PATIENCE_S)
    group.wait_equal()
    group.stop()

    assert group.has_one_log()
    for member in group.members:
        assert member.bodies() == sent


def has_lease_past_raft(group: Group) -> bool:
    """Whether a leader's lease lasts on while all raft processes stand still; false where its run
    has ended by itself meanwhile.
    """
    followers = wait_runs(group)
    leader = next(member for member in group.members if member not in followers)
    with ExitStack() as still, CursorPage.attach(leader.node.runtime / "cursors") as page:
        for member in group.members:
            still.enter_context(stopped(member.node.pid("raft")))
        # Longer than that of one round: later ones have been answered.
        until_ns = page.read_alone_until_ns() + LATER_NS
        wait_until(
            lambda: page.read_alone_until_ns() > until_ns or run_of(leader) <= 0, "later rounds"
        )
        return page.read_alone_until_ns() > until_ns


def test_a_leaders_lease_needs_no_raft_process(group: Group) -> None:
    wait_until(lambda: has_lease_past_raft(group), "a lease that raft knows nothing of")


def test_a_group_without_one_of_its_members_has_a_run_and_takes_it_back_in(group: Group) -> None:
    with producer(*group.members) as one:
        one.send(TOPIC, b"first").result(PATIENCE_S)
        away = wait_runs(group)[0]
        away.kill()

        def go_on_without() -> bool:
            others = [run_of(member) for member in group.members if member is not away]
            return sorted(run > 0 for run in others) == [False, True] and all(others)

        wait_until(go_on_without, "runs of the other two")
        one.send(TOPIC, b"second").result(PATIENCE_S)
        away.start()
        wait_runs(group)
        one.send(TOPIC, b"third").result(PATIENCE_S)
    group.wait_equal()
    group.stop()

    assert group.has_one_log()
    for member in group.members:
        assert member.bodies() == [b"first", b"second", b"third"]


def test_a_leader_whose_writer_nobody_answers_steps_down(group: Group) -> None:
    followers = wait_runs(group)
    leader = next(member for member in group.members if member not in followers)
    with ExitStack() as still:
        for member in followers:
            for name in ("writer", "raft"):
                still.enter_context(stopped(member.node.pid(name)))
        wait_until(lambda: not leader.leads, "the leader steps down")
        assert run_of(leader) == 0
    wait_runs(group)


def test_a_leaders_death_is_told_by_its_connections(group: Group) -> None:
    followers = wait_runs(group)
    leader = next(member for member in group.members if member not in followers)
    leader.kill()
    heir = group.leader(besides=leader)

    told = f"connection to the leader has ended: leader={leader.name}"
    # The other one may hear of its heir before it is its turn to say why.
    wait_until(lambda: all(member.node.logged(told) for member in followers), "both say so")
    assert heir in followers


@pytest.mark.long(but=1)
def test_whoever_dies_the_others_go_on_and_runs_come_back(group: Group) -> None:
    with producer(*group.members) as one:
        sent = []
        for number, victim in enumerate(("raft", "writer", "raft", "writer")):
            follower = wait_runs(group)[number % 2]
            deaths = follower.node.child(victim)["restarts"] + 1
            os.kill(follower.node.pid(victim), signal.SIGKILL)
            sent.append(f"{number}-{victim}".encode())
            one.send(TOPIC, sent[-1]).result(PATIENCE_S)
            wait_until(
                lambda node=follower.node, name=victim, count=deaths: (
                    node.child(name)["restarts"] == count
                ),
                "restart",
            )
    group.wait_equal()
    group.stop()

    assert group.has_one_log()
    for member in group.members:
        assert set(member.bodies()) == set(sent)
