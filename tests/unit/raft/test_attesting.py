"""What a leader tells a witness without bodies: of what so many others hold."""

from __future__ import annotations

import pytest

from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import Effects
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import (
    NO_ENTRY,
    AppendReply,
    Attest,
    EntryId,
    HardState,
    PreVoteReply,
    RaftRole,
    VoteReply,
)
from ledgermq.raft.quorum import majority
from ledgermq.raft.roles.attesting import bodies_needed
from ledgermq.raft.timing import FlowLimits, Timing

N0, N1, N2, W = NodeId("n0"), NodeId("n1"), NodeId("n2"), NodeId("w0")
TIMING = Timing()


def group(full: int, bodiless: int) -> Membership:
    names = frozenset(NodeId(f"n{number}") for number in range(full))
    witnesses = frozenset(NodeId(f"w{number}") for number in range(bodiless))
    return Membership(names | witnesses, witnesses=witnesses, bodiless=witnesses)


@pytest.mark.parametrize(
    ("full", "bodiless", "needed", "leaning"),
    [(2, 1, 2, 1), (3, 1, 2, 2), (4, 1, 3, 2), (3, 2, 3, 2), (5, 1, 3, 3), (6, 1, 4, 3)],
)
def test_a_loss_that_the_group_tolerates_leaves_a_body(
    full: int, bodiless: int, needed: int, leaning: int
) -> None:
    membership = group(full, bodiless)
    voters = len(membership.voters)

    assert bodies_needed(membership, leans=False) == needed
    assert bodies_needed(membership, leans=True) == leaning
    # So many may be lost that a majority is left, and one of them has it.
    assert needed > voters - majority(voters)
    # With the witness they are a majority: what it knows of is committed.
    assert leaning + 1 >= majority(voters)


def leader(full: int = 2, bodiless: int = 1) -> RaftCore:
    """n0, elected by the others of so many beside a witness; its term begins with entry 0."""
    others = [NodeId(f"n{number}") for number in range(1, full)]
    core = RaftCore(
        N0,
        group(full, bodiless),
        HardState(Term(0), None),
        commit=Index(-1),
        entries_have_terms=True,
        timing=TIMING,
        flow=FlowLimits(),
        seed=1,
        now=0,
    )
    core.log_ready(NO_ENTRY, EntryTerms())
    core.tick(core.deadline)
    for peer in others:
        core.receive(core.now, peer, PreVoteReply(Term(0), Term(1), None))
    for peer in others:
        core.receive(core.now, peer, VoteReply(Term(1), Term(1), None))
    core.writer_granted(Term(1), NO_ENTRY)
    for peer in (*others, W):
        answer(core, peer, -1)
    written(core, 0)
    return core


def written(core: RaftCore, last: int) -> list[Attest]:
    """The leader has entries up to ``last``, durably; what it tells the witness of that."""
    effects = [
        core.entries_written(EntryId(Term(1), Index(last))),
        core.entries_held(N0, Index(last)),
    ]
    return [attest for one in effects for attest in attests(one)]


def answer(core: RaftCore, peer: NodeId, held: int, now: int | None = None) -> list[Attest]:
    """``peer`` says that it holds entries up to ``held``; what the witness is told then."""
    reply = AppendReply(Term(1), 0, True, Index(held), Index(held), None, peer == N1)
    return attests(core.receive(core.now if now is None else now, peer, reply))


def attests(effects: Effects) -> list[Attest]:
    return [sent for target, sent in effects.send if target == W and isinstance(sent, Attest)]


def heartbeat(core: RaftCore) -> list[Attest]:
    return attests(core.tick(core.deadline))


def pass_time(core: RaftCore, ticks: int, *, alive: tuple[NodeId, ...]) -> None:
    """Heartbeats for so long, answered by ``alive`` alone, with what each has held."""
    known = {peer.peer: peer.match for peer in core.status().peers}
    end = core.now + ticks
    while core.now < end:
        core.tick(core.deadline)
        for peer in alive:
            answer(core, peer, known[peer])


def test_while_all_keep_up_a_witness_is_told_of_what_all_hold_and_by_heartbeats() -> None:
    core = leader()

    assert written(core, 9) == []
    assert [one.last for one in heartbeat(core)] == [-1]
    assert core.commit == -1
    assert answer(core, N1, 5) == []
    assert core.commit == 5
    assert [one.last for one in heartbeat(core)] == [5]


def test_a_witness_alone_commits_nothing_while_all_keep_up() -> None:
    core = leader()
    written(core, 9)

    answer(core, W, 9)

    assert core.commit == -1


def test_a_leader_leans_on_its_witness_when_a_voter_is_away_and_no_more_when_it_is_back() -> None:
    core = leader()
    written(core, 9)
    answer(core, N1, 9)

    pass_time(core, TIMING.witness_wait + 2 * TIMING.heartbeat, alive=(W,))
    told = written(core, 12)
    answer(core, W, 12)

    assert core.status().leans
    assert [one.last for one in told] == [12]
    assert (core.commit, core.status().copies) == (12, 1)

    answer(core, N1, 12)
    pass_time(core, 2 * TIMING.heartbeat, alive=(N1, W))

    assert not core.status().leans
    assert core.status().copies == 2
    assert written(core, 15) == []


def test_a_voter_that_answers_and_takes_nothing_is_not_waited_for_either() -> None:
    core = leader()
    written(core, 9)
    answer(core, N1, 9)
    written(core, 12)

    pass_time(core, TIMING.witness_wait + 2 * TIMING.heartbeat, alive=(N1, W))

    assert core.status().leans


def test_a_witness_that_is_taken_in_is_sent_no_entries_from_the_first_moment_on() -> None:
    core = leader(bodiless=0)
    answer(core, N1, 0)

    effects = core.membership_appended(Index(1), group(2, 1))

    assert [sent for target, sent in effects.send if target == W] == [Attest(Term(1), Index(0), 1)]


def test_a_leader_that_leaves_is_none_of_those_that_have_to_keep_up() -> None:
    core = leader(full=3)
    for peer in (N1, N2):
        answer(core, peer, 0)
    witness = frozenset({W})
    core.membership_appended(
        Index(1), Membership(frozenset({N1, N2, W}), frozenset(), *2 * [witness])
    )
    written(core, 1)
    answer(core, N1, 1)

    pass_time(core, TIMING.witness_wait + 2 * TIMING.heartbeat, alive=(N1, W))
    answer(core, W, 1)

    assert core.commit == 1
    assert core.role is RaftRole.FOLLOWER


def test_what_a_witness_was_told_while_it_was_leant_on_is_not_committed_by_it_later() -> None:
    core = leader()
    written(core, 9)
    answer(core, N1, 9)
    pass_time(core, TIMING.witness_wait + 2 * TIMING.heartbeat, alive=(W,))
    written(core, 12)
    answer(core, N1, 10)
    pass_time(core, 2 * TIMING.heartbeat, alive=(N1,))

    answer(core, W, 12)

    assert not core.status().leans
    assert core.commit == 10
    # Who lacks what the witness knows of could not be elected.
    assert core.status().copies == 1
    answer(core, N1, 12)
    assert (core.commit, core.status().copies) == (12, 2)


def test_reads_are_confirmed_by_a_witness() -> None:
    core = leader()
    written(core, 3)
    answer(core, N1, 3)

    asked = core.read_index(7)
    (attest,) = attests(asked)
    reply = AppendReply(Term(1), attest.round, True, Index(3), Index(3), None, False)
    answered = core.receive(core.now, W, reply)

    assert [read.index for read in answered.reads] == [3]


def test_who_holds_bodies_and_is_taken_for_a_witness_counts_for_nothing() -> None:
    core = leader()

    effects = core.receive(core.now, N1, Attest(Term(1), Index(0), 1))

    assert effects.send == ()
    assert effects.notes == ("n1 takes this node for a witness without bodies, and it is none",)
