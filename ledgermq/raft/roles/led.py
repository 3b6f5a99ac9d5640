"""Leading beside a writer that feeds the members by itself: before, meanwhile and behind that.

See ``raft.led_run`` for what the writer goes by (docs/decisions/0133).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from ledgermq.model.ids import Index, NodeId
from ledgermq.raft.messages import Append, EntryId, TermRun
from ledgermq.raft.roles import leader
from ledgermq.raft.roles.leadership import Leadership
from ledgermq.raft.roles.node_state import NodeState, WriterState
from ledgermq.raft.roles.progress import Progress, ProgressMode


def is_level(state: NodeState, lead: Leadership) -> bool:
    """Whether nothing but entries and their acknowledgements is to be expected."""
    log, membership = state.log, state.membership
    return (
        state.writer is WriterState.GRANTED
        and bool(lead.progress)
        and leader.has_committed(state, lead)
        and bool(log.terms)
        and log.terms[-1] == state.term
        and state.node in membership.voters
        and not membership.witnesses
        and state.history.index <= state.commit
        and lead.attesting is None
        and lead.transfer is None
        and not lead.change_proposed
        and lead.reads.is_idle()
        and state.lost is None
        and not (state.sick or state.full or state.outdated)
        and lead.progress.keys() == membership.members - {state.node}
    )


def hold_sends(state: NodeState, *, holds: bool) -> None:
    """Send no entries, so that all that was sent is answered; or send again."""
    flow = replace(state.policy.flow, is_held=holds)
    state.policy = replace(state.policy, flow=flow)


def resume(state: NodeState, lead: Leadership) -> None:
    """Send what was held back."""
    hold_sends(state, holds=False)
    for peer in lead.progress:
        leader.pump(state, lead, peer)


def is_drained(state: NodeState, progress: Progress) -> bool:
    """Whether a member holds all that it was sent, and lacks little of the log: no membership,
    which its raft process would have to know, and nothing of earlier terms.
    """
    return (
        progress.mode is ProgressMode.REPLICATE
        and not progress.inflight
        and progress.next == progress.match + 1
        and progress.match >= max(state.history.index, state.log.firsts[-1])
        and state.log.last_index - progress.match <= state.policy.flow.lag_max
    )


def tick(state: NodeState, lead: Leadership, fed: Collection[NodeId]) -> None:
    """A heartbeat to those members that the writer does not feed, for the others get its own."""
    lead.next_heartbeat = state.now + state.policy.timing.heartbeat
    for peer, progress in lead.progress.items():
        if peer not in fed:
            previous = state.log.entry(Index(max(progress.next, state.log.first) - 1))
            state.send(peer, Append(state.term, previous, (), state.commit, lead.round))


def told(
    state: NodeState,
    last: EntryId,
    matches: Mapping[NodeId, Index],
    *,
    held: Index,
    commit: Index,
    confirmed: int,
    round_: int,
) -> None:
    """Know what the writer has done by itself; see ``RaftCore.led_run_told``."""
    log = state.log
    count = last.index - log.last_index
    assert count >= 0, (last, log.last)
    if count:
        log.append([TermRun(last.term, count)])
    state.held = max(state.held, min(held, last.index))
    state.commit = max(state.commit, commit)
    lead = state.leadership
    if lead is None:
        # It has just stepped down by what nobody asked the writer about.
        return
    lead.round = max(lead.round, round_)
    for peer, match in matches.items():
        progress = lead.progress[peer]
        # That a majority has answered since is all that is known; who does not is given back.
        progress.heard = max(progress.heard, confirmed)
        progress.held(match)
    if confirmed:
        lead.sure_by_run = max(lead.sure_by_run, confirmed + state.policy.timing.lease)


def ended(state: NodeState, lead: Leadership, fed: Collection[NodeId]) -> None:
    """Lead on without the writer's help: where the members' logs end is asked anew."""
    hold_sends(state, holds=False)
    for peer in fed:
        progress = lead.progress.get(peer)
        if progress is not None:
            progress.turn(ProgressMode.PROBE, Index(state.log.last_index + 1))
    leader.heartbeat(state, lead)
