"""What a core knows behind a run in which its writer took entries by itself."""

from __future__ import annotations

import pytest

from ledgermq.model.ids import NO_INDEX, Index, Term
from ledgermq.raft.core import RaftCore
from ledgermq.raft.messages import (
    Append,
    EntryId,
    PreVote,
    PreVoteReply,
    TermRun,
    Vote,
    VoteRefusal,
    VoteReply,
)
from tests.unit.raft.test_full_disk import TERM, A, B, C, follower

TAKEN = EntryId(TERM, Index(9))


def level() -> RaftCore:
    """A follower whose log is its leader's, up to entry 1."""
    core = follower()
    previous = EntryId(Term(3), Index(0))
    core.receive(10, B, Append(TERM, previous, (TermRun(TERM, 1),), NO_INDEX, 1))
    core.entries_held(A, Index(1))
    return core


def behind_a_run(*, heard: int) -> RaftCore:
    core = level()
    core.run_begins()
    core.run_told(TAKEN, held=Index(8), commit=Index(7), heard=heard, round_=5, round_began=heard)
    return core


def test_a_run_may_begin_where_all_of_the_log_is_the_leaders() -> None:
    core = follower()
    before = core.follows_level

    assert not before
    assert level().follows_level


@pytest.mark.parametrize("last", [EntryId(TERM, Index(8)), EntryId(Term(3), Index(20))])
def test_a_vote_goes_by_what_the_writer_took(last: EntryId) -> None:
    core = behind_a_run(heard=0)
    later = core.deadline + 1_000
    (refused,) = core.receive(later, C, Vote(Term(9), last, transfer=False)).send
    (given,) = core.receive(later, C, Vote(Term(10), TAKEN, transfer=False)).send

    assert refused == (C, VoteReply(Term(9), Term(9), VoteRefusal.LOG_BEHIND))
    assert given == (C, VoteReply(Term(10), Term(10), None))


def test_a_leader_that_the_writer_has_heard_is_not_unseated() -> None:
    core = behind_a_run(heard=5_000)
    (answer,) = core.receive(5_100, C, PreVote(Term(9), TAKEN)).send

    assert answer == (C, PreVoteReply(TERM, Term(9), VoteRefusal.HEARS_LEADER))


def test_who_waits_for_a_leader_waits_from_when_the_writer_heard_it_last() -> None:
    core = level()
    core.run_begins()
    core.tick(200)
    core.run_told(TAKEN, held=Index(9), commit=Index(9), heard=100, round_=5, round_began=100)

    assert 100 + 300 <= core.deadline <= 100 + 600


def test_behind_a_run_the_leader_is_told_where_the_log_ends() -> None:
    core = behind_a_run(heard=20)
    ((peer, reply),) = core.run_ended().send
    taken = core.receive(30, B, Append(TERM, TAKEN, (TermRun(TERM, 2),), Index(8), 6))

    assert (peer, reply.accepted, reply.held, reply.round) == (B, False, 8, 5)  # type: ignore[union-attr]
    assert core.last == EntryId(TERM, Index(11))
    assert taken.commit == 8


def test_a_new_writer_may_have_more_than_was_told() -> None:
    """The one before it had appended an entry, and died before it could say so."""
    core = behind_a_run(heard=20)
    core.log_ready(EntryId(TERM, Index(10)))

    assert core.last == EntryId(TERM, Index(10))
