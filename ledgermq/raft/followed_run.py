"""Follower's run: the state on which a writer goes the straight line by itself.

Raft lets it where all of the log is the leader's (``RaftCore.follows_level``), and takes back what
came of it by ``RaftCore.run_told``. The state is as much of a follower's as the line looks at: the
rules stay those of the line (docs/decisions/0133).
"""

from __future__ import annotations

from ledgermq.formats.kernels.kernel import SteadyLine
from ledgermq.model.ids import Index, NodeId, Term
from ledgermq.raft.effects import LeaderChange
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import EntryId, HardState, RaftRole, TermRun
from ledgermq.raft.roles.node_state import NodeState, Policy, WriterState
from ledgermq.raft.roles.progress import ProgressMode
from ledgermq.raft.timing import FlowLimits, Timing

_POLICY = Policy(Timing(), FlowLimits(), (), entries_have_terms=True)


def followed_state(
    node: NodeId,
    leader: NodeId,
    last: EntryId,
    *,
    held: Index,
    commit: Index,
    round_: int,
    now: int,
) -> NodeState:
    """That of a follower of ``leader`` in the term of ``last``.

    Args:
        last: last entry of its log, and the leader's, too.
        held: the last one that counts for an acknowledgement.
        commit: an index known to be committed.
        round_: the leader's last round of heartbeats that was heard of.
        now: tick.
    """
    state = NodeState(
        node,
        Membership(frozenset({node, leader})),
        HardState(last.term, None),
        commit=commit,
        policy=_POLICY,
        seed=0,
        now=now,
    )
    state.know_leader(leader)
    state.published = LeaderChange(leader, last.term)
    before = EntryId(last.term, Index(last.index - 1))
    state.log = EntryTerms(before, [TermRun(Term(last.term), 1)])
    state.writer = WriterState.IDLE
    state.held = min(held, last.index)
    following = state.following
    following.verified = last.index
    following.leader_commit = commit
    following.round, following.round_began = round_, now
    return state


def steady_line(state: NodeState) -> SteadyLine:
    """The straight line that works on ``state``."""
    return SteadyLine(
        state,
        follower=RaftRole.FOLLOWER,
        idle=WriterState.IDLE,
        granted=WriterState.GRANTED,
        replicate=ProgressMode.REPLICATE,
    )
