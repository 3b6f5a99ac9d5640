"""Rules of the consensus core, by the sections of the Raft paper."""

from __future__ import annotations

from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.core import RaftCore
from ledgermq.raft.effects import Effects, LeaderChange
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import EntryId, HardState, RaftRole
from ledgermq.raft.quorum import committed_index, has_majority, majority
from ledgermq.raft.timing import FlowLimits, Timing

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
