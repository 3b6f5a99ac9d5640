"""Elections: campaigns and votes (Raft paper, section 5.2 and 5.4.1; pre-vote: 9.6)."""

from __future__ import annotations

from ledgermq.model.ids import NodeId, Term
from ledgermq.raft.messages import (
    HardState,
    PreVote,
    PreVoteReply,
    RaftRole,
    TimeoutNow,
    Vote,
    VoteRefusal,
    VoteReply,
    VoteRequest,
)
from ledgermq.raft.quorum import has_majority
from ledgermq.raft.roles import leader
from ledgermq.raft.roles.node_state import NodeState, Poll, WriterState


def election_due(state: NodeState) -> None:
    """Nothing was heard of a leader for too long, or since the connection to it has ended.

    Who campaigns because of the connection and is not agreed with, for others hear the leader, or
    do not know yet, waits as long for the next time as without that.
    """
    is_early = state.is_leader_gone and state.now < state.waits_until
    state.leader = None
    state.waits_without_leader += not is_early
    barriers = state.barriers()
    if barriers:
        state.note(f"no candidate: {', '.join(barriers)}")
        state.arm_election()
    else:
        pre_campaign(state)
    if is_early and state.role is not RaftRole.LEADER:
        state.election_deadline = state.waits_until


def pre_campaign(state: NodeState) -> None:
    """Ask who would vote for us, so that an election that cannot be won disturbs nobody."""
    state.role = RaftRole.PRE_CANDIDATE
    state.leader = None
    state.arm_election()
    poll = _open_poll(state, pre=True)
    if has_majority(state.membership.voters, poll.agreed):
        campaign(state, transfer=False)
        return
    for voter in sorted(state.membership.voters - {state.node}):
        state.send(voter, PreVote(poll.asked, state.log.last))


def campaign(state: NodeState, *, transfer: bool) -> None:
    """Stand for election in the next term."""
    assert not state.barriers() and state.leadership is None
    poll = _open_poll(state, pre=False)
    state.role = RaftRole.CANDIDATE
    state.leader = None
    state.persist(HardState(poll.asked, state.node))
    state.arm_election()
    if has_majority(state.membership.voters, poll.agreed):
        leader.begin(state)
        return
    for voter in sorted(state.membership.voters - {state.node}):
        state.send(voter, Vote(poll.asked, state.log.last, transfer))


def on_vote_request(state: NodeState, source: NodeId, request: VoteRequest) -> None:
    """Vote, or say why not.

    Nothing is asked about ``source`` being a member: one that is may have become it in entries that
    this node has not seen yet (thesis, section 4.2.2).
    """
    is_vote = isinstance(request, Vote)
    reason = _early_refusal(state, request)
    if reason is None and is_vote and request.term > state.term:
        state.follow(request.term, None)
    if reason is None:
        reason = _refusal(state, source, request)
    if not is_vote:
        state.send(source, PreVoteReply(state.term, request.term, reason))
        return
    if reason is None:
        if state.hard_state.vote is None:
            state.persist(HardState(state.term, source))
        state.arm_election()
    state.send(source, VoteReply(state.term, request.term, reason))


def on_vote_reply(state: NodeState, source: NodeId, reply: PreVoteReply | VoteReply) -> None:
    """Count a vote."""
    if reply.term > state.term:
        state.follow(reply.term, None)
        return
    poll = state.poll
    if poll is None or reply.asked != poll.asked or isinstance(reply, PreVoteReply) != poll.pre:
        return
    if reply.reason is not None:
        poll.refused[source] = reply.reason
        return
    poll.agreed.add(source)
    if not has_majority(state.membership.voters, poll.agreed):
        return
    if not poll.pre:
        leader.begin(state)
    # The answers took a round trip: the disk may have become sick meanwhile.
    elif not state.barriers():
        campaign(state, transfer=False)


def on_timeout_now(state: NodeState, source: NodeId, message: TimeoutNow) -> None:
    """The leader wants this node to succeed it."""
    if message.term != state.term or source != state.leader or state.role is RaftRole.LEADER:
        return
    barriers = state.barriers()
    if barriers:
        state.note(f"{source} hands over in vain: {', '.join(barriers)}")
        return
    state.note(f"campaigns because {source} hands over")
    campaign(state, transfer=True)


def _open_poll(state: NodeState, *, pre: bool) -> Poll:
    # A term that is in the log has been some leader's: the next one must be above it.
    asked = Term(max(state.term, state.log.last.term) + 1)
    state.poll = state.last_poll = Poll(asked, pre, {state.node})
    return state.poll


def _early_refusal(state: NodeState, request: VoteRequest) -> VoteRefusal | None:
    """Refusals that leave the term as it is."""
    if request.term < state.term:
        return VoteRefusal.OLD_TERM
    # The leader has asked for this election itself (thesis, section 4.2.3).
    if isinstance(request, Vote) and request.transfer:
        hears = False
    elif state.role is RaftRole.LEADER:
        # It would have stepped down without a majority behind it.
        hears = True
    else:
        hears = state.hears_leader
    if hears:
        return VoteRefusal.HEARS_LEADER
    if state.writer is WriterState.UNREAD:
        return VoteRefusal.LOG_UNREAD
    return None


def _refusal(state: NodeState, source: NodeId, request: VoteRequest) -> VoteRefusal | None:
    if request.term == state.term:
        vote = state.hard_state.vote
        if vote not in (None, source) or state.leader not in (None, source):
            return VoteRefusal.VOTED
    ours = state.last_held_ever
    if (request.last.term, request.last.index) < (ours.term, ours.index):
        return VoteRefusal.LOG_BEHIND
    return None
