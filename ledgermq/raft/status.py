"""Status of the core for operators: role, term, peers, and why nobody leads."""

from __future__ import annotations

from dataclasses import dataclass

from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import EntryId, RaftRole
from ledgermq.raft.quorum import majority
from ledgermq.raft.roles import attesting
from ledgermq.raft.roles.node_state import NodeState, WriterState
from ledgermq.raft.roles.progress import ProgressMode
from ledgermq.raft.roles.witness import WitnessCore


@dataclass(frozen=True, slots=True)
class PeerStatus:
    """Where a leader believes a peer to be; ``silent_for`` in ticks."""

    peer: NodeId
    mode: ProgressMode
    match: Index
    next: Index
    inflight_count: int
    inflight_bytes: int
    silent_for: int
    fit: bool


@dataclass(frozen=True, slots=True)
class CoreStatus:
    """One node's view; ``peers`` only at the leader.

    Attributes:
        lost: the last entry that it held before its log was damaged, until it holds as much again.
        leans: this leader counts a witness without bodies in the place of a voter that does not
            keep up.
        copies: so many voters hold the bodies of all that is committed, and could be elected; None:
            this node does not lead, or all voters hold bodies anyway.
    """

    node: NodeId
    role: RaftRole
    term: Term
    vote: NodeId | None
    leader: NodeId | None
    last: EntryId
    held: Index
    commit: Index
    writer: WriterState
    sick: bool
    outdated: bool
    lost: EntryId | None
    membership: Membership
    membership_index: Index
    transfer: str | None
    peers: tuple[PeerStatus, ...]
    leans: bool
    copies: int | None


def status(state: NodeState) -> CoreStatus:
    """A copy that does not change any more."""
    lead = state.leadership
    transfer = lead.transfer if lead is not None else None
    attests = lead.attesting if lead is not None else None
    peers = sorted(lead.progress.items()) if lead is not None else []
    return CoreStatus(
        node=state.node,
        role=state.role,
        term=state.term,
        vote=state.hard_state.vote,
        leader=state.leader,
        last=state.log.last,
        held=state.held,
        commit=state.commit,
        writer=state.writer,
        sick=state.sick,
        outdated=state.outdated,
        lost=state.lost,
        membership=state.membership,
        membership_index=state.history.index,
        transfer=f"{transfer.target}: {transfer.stage.value}" if transfer else None,
        peers=tuple(
            PeerStatus(
                peer,
                progress.mode,
                progress.match,
                progress.next,
                len(progress.inflight),
                progress.inflight_bytes,
                state.now - progress.heard,
                progress.fit,
            )
            for peer, progress in peers
        ),
        leans=attests is not None and attests.leans,
        copies=None if lead is None or attests is None else attesting.copies(state, lead, attests),
    )


def witness_status(core: WitnessCore, membership: Membership) -> CoreStatus:
    """That of a witness without bodies: what it knows of is all that it holds.

    Args:
        membership: its members, as far as it knows of them.
    """
    return CoreStatus(
        node=core.node,
        role=RaftRole.FOLLOWER,
        term=core.term,
        vote=core.kept.hard_state.vote,
        leader=core.leader,
        last=core.last,
        held=core.last.index,
        # Whatever a witness was told of is committed.
        commit=core.last.index,
        writer=WriterState.IDLE,
        sick=False,
        outdated=False,
        lost=None,
        membership=membership,
        membership_index=NO_INDEX,
        transfer=None,
        peers=(),
        leans=False,
        copies=None,
    )


def majority_heard(state: NodeState, now: int) -> int | None:
    """Tick of the last proof that a majority has one leader; None while none is known.

    At a leader the tick as of which a majority of the voters had answered it; at a follower the
    last word of its leader, who goes on without a majority for an election timeout at most.
    """
    lead = state.leadership
    if lead is None:
        return state.heard if state.leader is not None else None
    heard = {peer: progress.heard for peer, progress in lead.progress.items()}
    heard[state.node] = now
    voters = state.membership.voters
    latest = sorted((heard[voter] for voter in voters if voter in heard), reverse=True)
    needed = majority(len(voters))
    return latest[needed - 1] if len(latest) >= needed else None


def why_no_leader(state: NodeState) -> list[str]:
    """Reasons in words, as far as this node knows; empty when it knows a leader."""
    if state.leader is not None:
        return []
    reasons = [f"not a candidate: {barrier}" for barrier in state.barriers()]
    poll = state.last_poll
    if poll is None:
        if not reasons:
            wait = state.election_deadline - state.now
            reasons.append(f"no election yet: campaigns in {wait} ticks if no leader is heard of")
        return reasons
    voters = state.membership.voters
    kind = "pre-vote" if poll.pre else "vote"
    count, needed = len(poll.agreed & voters), majority(len(voters))
    reasons.append(
        f"{kind} for term {poll.asked}: {count} of {len(voters)} agreed, {needed} needed"
    )
    for voter in sorted(voters - poll.agreed):
        refusal = poll.refused.get(voter)
        reasons.append(f"{voter} did not answer" if refusal is None else f"{voter} {refusal.value}")
    return reasons
