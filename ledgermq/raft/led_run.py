"""Leader's run: the state on which a writer goes the straight line by itself, as a leader.

Raft lets it where nothing is to be judged (``RaftCore.leads_level``), and takes back what came of
it by ``RaftCore.led_run_told``. The state is as much of a leader's as the line looks at: the rules
stay those of the line (docs/decisions/0133).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from ledgermq.model.ids import NO_INDEX, Index, NodeId, Term
from ledgermq.raft.effects import LeaderChange
from ledgermq.raft.entry_terms import EntryTerms
from ledgermq.raft.membership import Membership
from ledgermq.raft.message_codec import encode_message
from ledgermq.raft.messages import Append, EntryId, HardState, RaftRole, TermRun
from ledgermq.raft.roles import leader
from ledgermq.raft.roles.leadership import Leadership
from ledgermq.raft.roles.node_state import NodeState, Policy, WriterState
from ledgermq.raft.roles.progress import Progress, ProgressMode
from ledgermq.raft.timing import NEVER, FlowLimits, Timing


class LedPeer(NamedTuple):
    """Another member in the run.

    Attributes:
        match: the last entry that it holds, and was sent.
        is_fed: entries are sent to it; the others are silent.
        votes: it is no learner.
    """

    match: Index
    is_fed: bool
    votes: bool


def leading_state(
    node: NodeId,
    term: Term,
    last: Index,
    peers: Mapping[NodeId, LedPeer],
    *,
    held: Index,
    commit: Index,
    begin: Index,
    round_: int,
    flow: FlowLimits,
    now: int,
) -> NodeState:
    """That of the leader of ``term``.

    Args:
        last: last entry of its log, as far as raft knows.
        held: the last one that counts for an acknowledgement.
        commit: an index known to be committed.
        begin: the first entry of ``term``.
        round_: the last round of heartbeats.
        now: tick.
    """
    voters = {node, *(peer for peer, one in peers.items() if one.votes)}
    membership = Membership(frozenset(voters), frozenset(peers.keys() - voters))
    state = NodeState(
        node,
        membership,
        HardState(term, node),
        commit=commit,
        policy=Policy(Timing(), flow, (), entries_have_terms=True),
        seed=0,
        now=now,
    )
    state.role = RaftRole.LEADER
    state.know_leader(node)
    state.published = LeaderChange(node, term)
    state.log = EntryTerms(EntryId(term, Index(begin - 1)), [TermRun(term, last - begin + 1)])
    state.writer = WriterState.GRANTED
    state.held = min(held, last)
    state.leadership = Leadership(
        began=now,
        progress={
            peer: Progress(
                Index(one.match + 1 if one.is_fed else last + 1),
                now,
                match=one.match if one.is_fed else NO_INDEX,
                mode=ProgressMode.REPLICATE if one.is_fed else ProgressMode.PROBE,
            )
            for peer, one in sorted(peers.items())
        },
        next_preferred=NEVER,
        preferred_wait=NEVER,
        term_begin=begin,
        round=round_,
    )
    return state


def confirmed_tick(state: NodeState) -> int:
    """Tick at which the last round began that a majority has answered; 0: there is none."""
    lead = state.leadership
    assert lead is not None
    confirmed = leader.confirmed_round(state, lead)
    return next((tick for round_, tick in reversed(lead.begun) if round_ <= confirmed), 0)


def begin_round(state: NodeState, now: int) -> Sequence[tuple[NodeId, bytes]]:
    """Begin a round of heartbeats: what is sent to each member that is fed."""
    lead = state.leadership
    assert lead is not None
    state.now = max(state.now, now)
    lead.round += 1
    lead.begun.append((lead.round, state.now))
    return [
        (peer, encode_message(_heartbeat(state, lead, progress)))
        for peer, progress in lead.progress.items()
        if progress.mode is ProgressMode.REPLICATE
    ]


def _heartbeat(state: NodeState, lead: Leadership, progress: Progress) -> Append:
    previous = EntryId(state.term, Index(progress.next - 1))
    return Append(state.term, previous, (), state.commit, lead.round)
