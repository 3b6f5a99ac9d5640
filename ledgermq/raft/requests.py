"""Operator requests to a leader, and the reasons to refuse them."""

from __future__ import annotations

from ledgermq.model.errors import BusyError, ConfigError, NotLeaderError
from ledgermq.model.ids import NodeId
from ledgermq.raft.membership import Membership, change_problem
from ledgermq.raft.quorum import has_majority
from ledgermq.raft.roles import leader, transfer
from ledgermq.raft.roles.leadership import Leadership
from ledgermq.raft.roles.node_state import NodeState, WriterState


def transfer_to(state: NodeState, target: NodeId) -> None:
    """Begin to hand over to ``target``; errors as ``RaftCore.transfer_leadership`` has them."""
    lead = _leading(state)
    if target == state.node:
        return
    if target not in state.membership.electable:
        raise ConfigError("target is no voter that can lead", target=target)
    if lead.transfer is not None:
        raise BusyError("a hand-over is under way", target=lead.transfer.target)
    if not transfer.is_able(state, lead.progress[target]):
        raise BusyError("target does not answer or cannot lead now", target=target)
    transfer.start(state, lead, target, hurried=False)


def change_members(state: NodeState, membership: Membership) -> None:
    """Propose ``membership``; errors as ``RaftCore.propose_membership`` has them."""
    lead = _leading(state)
    problem = change_problem(state.membership, membership)
    if problem is not None:
        raise ConfigError(problem)
    if state.node not in membership.electable:
        # It would go with entries that a witness has, and no one who could lead.
        raise ConfigError("the leader cannot leave: hand over first", leader=state.node)
    if not leader.has_committed(state, lead) or lead.transfer is not None:
        # Two leaders that each begin a change without this could both reach a majority.
        raise BusyError("nothing of this term is committed yet, or a hand-over is under way")
    if state.writer is not WriterState.GRANTED:
        # What was proposed before the grant counts as lost when the answer to it comes.
        raise BusyError("the writer is about to begin anew")
    if lead.change_proposed or state.history.index > state.commit:
        raise BusyError("a change of the membership is under way")
    for voter in membership.full - state.membership.voters:
        if not transfer.is_near(state, lead.progress[voter]):
            raise BusyError("learner has not caught up", learner=voter)
    heard = leader.heard_since(state, lead, state.now - state.policy.timing.election_max)
    if not has_majority(membership.voters, heard):
        raise BusyError("a majority of the new voters does not answer")
    lead.change_proposed = True
    state.out.propose_membership = membership


def _leading(state: NodeState) -> Leadership:
    if state.leadership is None:
        raise NotLeaderError("this node does not lead", leader=state.leader, term=state.term)
    return state.leadership
