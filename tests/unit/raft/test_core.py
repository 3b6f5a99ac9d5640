"""Rules of the consensus core, by the sections of the Raft paper."""

from __future__ import annotations

import pytest

from ledgermq.model.errors import CorruptLogError
from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import AppendEntries, Effects, LeaderChange
from ledgermq.raft.entry_terms import UNKNOWN_TERM, EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import (
    Append,
    AppendReply,
    EntryId,
    HardState,
    PreVoteReply,
    RaftRole,
    TermRun,
    VoteReply,
)
from ledgermq.raft.quorum import committed_index, has_majority, majority
from ledgermq.raft.timing import NEVER, FlowLimits, Timing

A, B, C = NodeId("n0"), NodeId("n1"), NodeId("n2")
NOTHING = Effects()


def core(*voters: NodeId, term: int = 3, commit: int = NO_INDEX, terms: bool = True) -> RaftCore:
    state = HardState(Term(term), None)
    return RaftCore(
        A,
        Membership(frozenset(voters)),
        state,
        commit=Index(commit),
        entries_have_terms=terms,
        timing=Timing(),
        flow=FlowLimits(),
        seed=1,
        now=0,
    )


def entry(term: int, index: int) -> EntryId:
    return EntryId(Term(term), Index(index))


def test_a_group_of_one_elects_itself_when_its_log_is_ready() -> None:
    node = core(A)

    effects = node.log_ready(entry(3, 7))

    assert effects == Effects(
        persist=HardState(Term(4), A), grant=Term(4), leader=LeaderChange(A, Term(4))
    )
    assert node.role is RaftRole.LEADER


def test_the_new_term_is_above_every_term_in_the_log() -> None:
    node = core(A, term=3)

    effects = node.log_ready(entry(9, 7))

    assert effects.grant == 10


def test_a_leader_proposes_an_entry_of_its_term_before_it_commits_older_ones() -> None:
    """Section 5.4.2: entries of older terms are not committed by counting."""
    node = core(A)
    node.log_ready(entry(3, 7))

    proposed = node.writer_granted(Term(4), entry(3, 7))
    old_entries = node.entries_held(A, Index(7))
    own_entry = node.entries_held(A, Index(8))

    assert proposed == Effects(propose=Term(4))
    assert old_entries == NOTHING
    assert own_entry == Effects(commit=Index(8))


def test_nothing_is_committed_before_the_writer_has_the_grant() -> None:
    node = core(A)
    node.log_ready(entry(3, 7))

    assert node.entries_held(A, Index(7)) == NOTHING


def test_a_grant_of_another_term_counts_for_nothing() -> None:
    node = core(A)
    node.log_ready(entry(3, 7))

    assert node.writer_granted(Term(3), entry(3, 7)) == NOTHING
    assert not node.granted


def test_a_replaced_writer_gets_the_same_term_again_without_a_second_empty_entry() -> None:
    node = core(A)
    node.log_ready(entry(3, 7))
    node.writer_granted(Term(4), entry(3, 7))
    node.entries_held(A, Index(20))

    again = node.log_ready(entry(4, 20))
    granted = node.writer_granted(Term(4), entry(4, 20))

    assert again == Effects(grant=Term(4))
    assert granted == NOTHING
    assert node.entries_held(A, Index(21)) == Effects(commit=Index(21))


def test_a_writer_that_died_before_the_empty_entry_was_in_the_log_is_asked_again() -> None:
    node = core(A)
    node.log_ready(entry(3, 7))
    node.writer_granted(Term(4), entry(3, 7))

    node.log_ready(entry(3, 7))

    assert node.writer_granted(Term(4), entry(3, 7)) == Effects(propose=Term(4))


def test_commit_never_goes_back() -> None:
    node = core(A)
    node.log_ready(entry(3, 7))
    node.writer_granted(Term(4), entry(3, 7))
    node.entries_held(A, Index(9))

    assert node.entries_held(A, Index(8)) == NOTHING
    assert node.commit == 9


def test_a_plain_log_commits_what_its_only_member_has() -> None:
    node = core(A, terms=False, term=0)
    node.log_ready(entry(0, 5_000))

    granted = node.writer_granted(Term(1), entry(0, 5_000))
    held = node.entries_held(A, Index(5_000))

    assert granted == NOTHING
    assert held == Effects(commit=Index(5_000))


def test_the_committed_index_is_what_a_majority_has() -> None:
    match = {A: Index(9), B: Index(4), C: Index(6)}

    assert committed_index({A, B, C}, match) == 6
    assert committed_index({A, B, C}, {A: Index(9)}) == NO_INDEX
    assert committed_index({A}, match) == 9
    assert [majority(count) for count in (1, 2, 3, 4, 5)] == [1, 2, 2, 3, 3]
    assert not has_majority({A, B, C}, {A, NodeId("stranger")})


def test_a_leader_whose_log_lost_entries_that_were_seen_leads_no_longer_in_that_term() -> None:
    """It would give their names to other entries (section 5.3, leader append-only)."""
    node = core(A)
    node.log_ready(entry(3, 7))
    node.writer_granted(Term(4), entry(3, 7))
    node.entries_written(entry(4, 12))

    effects = node.log_ready(entry(4, 10))

    assert effects.persist == HardState(Term(5), A)
    assert effects.grant == 5


def test_a_log_that_ends_below_the_commit_index_is_refused() -> None:
    node = core(A, B, C, commit=9)

    with pytest.raises(CorruptLogError, match="log ends below the commit index"):
        node.log_ready(entry(3, 7))


def test_a_cut_that_the_writer_did_not_live_to_make_is_ordered_again() -> None:
    node = core(A, B, C)
    node.log_ready(entry(3, 2), EntryTerms(runs=[TermRun(Term(3), 3)]))
    append = Append(Term(4), entry(3, 0), (TermRun(Term(4), 1),), Index(0), 1)

    ordered = node.receive(5, B, append)
    again = node.log_ready(entry(3, 2))
    done = node.log_truncated(entry(3, 0))

    assert ordered.truncate == again.truncate == entry(3, 0)
    assert done.send[0][0] == B
    assert node.last == entry(3, 0)


def test_a_node_whose_log_is_not_read_yet_answers_and_says_where_it_ends_when_it_knows() -> None:
    """The leader counts the living, and leads on while others start."""
    node = core(A, B, C)
    heard = node.receive(1, B, Append(Term(5), entry(5, 9), (), Index(9), round=1))
    ready = node.log_ready(entry(3, 7), EntryTerms(entry(3, 7)))

    assert heard.persist == HardState(Term(5), None)
    assert heard.leader == LeaderChange(B, Term(5))
    assert heard.commit is None
    ((target, answer),) = heard.send
    assert isinstance(answer, AppendReply)
    assert (target, answer.term, answer.round, answer.accepted) == (B, 5, 1, False)
    assert (answer.held, answer.tail, answer.fit) == (NO_INDEX, None, False)
    ((target, told),) = ready.send
    assert isinstance(told, AppendReply) and told.tail is not None
    assert (target, told.accepted, told.tail.before) == (B, False, entry(3, 7))
    assert told.fit


def test_entries_that_the_writer_never_got_are_asked_for_again() -> None:
    node = core(A, B, C)
    node.log_ready(entry(3, 2), EntryTerms(runs=[TermRun(Term(3), 3)]))
    append = Append(Term(4), entry(3, 2), (TermRun(Term(4), 2),), Index(0), 1)

    taken = node.receive(5, B, append)
    node.entries_dropped(entry(3, 2))
    again = node.receive(6, B, append)

    assert taken.append == again.append == AppendEntries(Index(3), Index(4))


def test_a_committed_entry_is_the_leaders_though_that_has_its_term_no_more() -> None:
    node = core(A, B, C, commit=2)
    node.log_ready(entry(3, 2), EntryTerms(runs=[TermRun(Term(3), 3)]))
    append = Append(Term(4), EntryId(UNKNOWN_TERM, Index(2)), (TermRun(Term(4), 1),), Index(2), 1)

    effects = node.receive(5, B, append)

    assert effects.append == AppendEntries(Index(3), Index(3))
    assert node.last == entry(4, 3)


def test_an_uncommitted_entry_is_not_taken_for_one_of_a_term_that_nobody_knows() -> None:
    node = core(A, B, C, commit=1)
    node.log_ready(entry(3, 2), EntryTerms(runs=[TermRun(Term(3), 3)]))
    append = Append(Term(4), EntryId(UNKNOWN_TERM, Index(2)), (TermRun(Term(4), 1),), Index(2), 1)

    effects = node.receive(5, B, append)

    assert effects.append is None
    assert [reply.accepted for _, reply in effects.send if isinstance(reply, AppendReply)] == [
        False
    ]


def test_files_may_take_the_place_of_a_log_only_while_it_lacks_what_was_before_them() -> None:
    node = core(A, B, C)
    node.log_ready(entry(3, 2), EntryTerms(runs=[TermRun(Term(3), 3)]))
    before = node.lacks_before(B, Term(4), Index(40))
    node.receive(5, B, Append(Term(4), entry(4, 39), (), Index(50), 1))

    assert not before
    assert node.lacks_before(B, Term(4), Index(40))
    assert not node.lacks_before(C, Term(4), Index(40))
    assert not node.lacks_before(B, Term(3), Index(40))

    node.receive(6, B, Append(Term(4), entry(3, 2), (TermRun(Term(4), 37),), Index(1), 1))

    assert node.last == entry(4, 39)
    assert not node.lacks_before(B, Term(4), Index(40))
    assert node.lacks_before(B, Term(4), Index(41))


def test_a_committed_entry_is_never_cut() -> None:
    node = core(A, B, C, commit=2)
    node.log_ready(entry(3, 2), EntryTerms(runs=[TermRun(Term(3), 3)]))
    append = Append(Term(4), entry(3, 0), (TermRun(Term(4), 1),), Index(0), 1)

    with pytest.raises(CorruptLogError, match="a committed entry would be cut"):
        node.receive(5, B, append)


def test_the_deadline_is_within_the_bounds_of_the_election_timeout() -> None:
    timing = Timing()
    deadlines = {core(A, B, C).deadline for _ in range(3)}

    assert len(deadlines) == 1
    assert timing.election_min <= deadlines.pop() <= timing.election_max


def test_a_leader_alone_never_wakes_up() -> None:
    node = core(A)
    node.log_ready(entry(3, 7))

    assert node.deadline == NEVER


def test_a_replication_that_is_out_of_date_sends_nothing() -> None:
    node = core(A, B, C)
    node.log_ready(entry(3, 7), EntryTerms(entry(3, 6), [TermRun(Term(3), 1)]))
    node.tick(node.deadline)
    node.receive(700, B, PreVoteReply(Term(3), Term(4), None))
    node.receive(700, B, VoteReply(Term(4), Term(4), None))
    node.writer_granted(Term(4), entry(3, 7))
    reply = AppendReply(Term(4), 1, True, Index(7), Index(7), None, True)
    node.receive(700, B, reply)
    (request,) = node.entries_written(entry(4, 9)).replicate

    first = node.replicated(request, Index(8), 100)
    late = node.replicated(request, Index(8), 200)

    # The entry that opens the term goes by itself.
    assert (request.peer, request.previous, request.next, request.until) == (B, entry(3, 7), 8, 8)
    assert first.send == ((B, Append(Term(4), entry(3, 7), (TermRun(Term(4), 1),), Index(-1), 1)),)
    assert [again.next for again in first.replicate] == [9]
    assert late == NOTHING
