"""Errors of Raft's core, and of its witness, that both simulators have to find."""

from __future__ import annotations

import pytest

from ledgermq.model.ids import Index, NodeId
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import EntryId, VoteRefusal, VoteRequest
from ledgermq.raft.quorum import majority
from ledgermq.raft.roles import attesting, candidate, follower, leader
from ledgermq.raft.roles.leadership import Leadership
from ledgermq.raft.roles.node_state import NodeState
from ledgermq.raft.roles.witness import WitnessCore

Patch = pytest.MonkeyPatch


def old_terms_are_committed_by_counting(patch: Patch) -> None:
    """Figure 8."""

    def always(state: NodeState, lead: Leadership, index: Index) -> bool:
        return True

    patch.setattr(leader, "_is_own_term", always)


def previous_term_is_not_checked(patch: Patch) -> None:
    """Section 5.3, consistency check: the index alone says nothing."""

    def any_term(state: NodeState, previous: EntryId) -> bool:
        return previous.index <= state.log.last.index

    patch.setattr(follower, "_has_previous", any_term)


def commit_follows_the_end_of_the_log(patch: Patch) -> None:
    """dl316 and DLedger's clipping: entries that no leader has verified are taken for committed."""

    def clip(state: NodeState) -> None:
        index = min(state.following.leader_commit, state.held)
        if index > state.commit:
            state.set_commit(index)

    patch.setattr(follower, "learn_commit", clip)


def shorter_logs_get_votes(patch: Patch) -> None:
    """Section 5.4.1, election restriction."""
    refusal = candidate._refusal

    def lenient(state: NodeState, source: NodeId, request: VoteRequest) -> VoteRefusal | None:
        reason = refusal(state, source, request)
        return None if reason is VoteRefusal.LOG_BEHIND else reason

    patch.setattr(candidate, "_refusal", lenient)


def it_votes_for_shorter_logs(patch: Patch) -> None:
    """Section 5.4.1, election restriction: a witness knows one entry that counts."""
    refusal = WitnessCore._refusal

    def lenient(core: WitnessCore, source: NodeId, request: VoteRequest) -> VoteRefusal | None:
        reason = refusal(core, source, request)
        return None if reason is VoteRefusal.LOG_BEHIND else reason

    patch.setattr(WitnessCore, "_refusal", lenient)


def it_counts_as_one_that_holds_bodies(patch: Patch) -> None:
    """Told of everything at once, as a voter with bodies is sent it."""

    def at_once(state: NodeState, lead: Leadership) -> Index:
        return state.log.last_index if lead.term_begin is not None else Index(-1)

    patch.setattr(attesting, "attestable", at_once)


def it_is_always_leant_on(patch: Patch) -> None:
    """Committed with it and one body less while all keep up: nobody waits for the other site."""

    def fewest(membership: Membership, *, leans: bool) -> int:
        del leans
        return majority(len(membership.voters)) - 1

    patch.setattr(attesting, "bodies_needed", fewest)


def it_is_never_leant_on(patch: Patch) -> None:
    """Who is lost for good stops the group, and the witness is for nothing."""
    patch.setattr(attesting, "look", lambda state, lead, known: None)
