"""Leadership transfer: choice of the target, and its steps (thesis, section 3.10).

The writer is stopped only when the target lacks little, and gets its term back when the hand-over
takes too long: producers wait for one round trip, or for ``transfer_max`` at worst.
"""

from __future__ import annotations

from ledgermq.model.ids import NodeId
from ledgermq.raft.messages import TimeoutNow
from ledgermq.raft.roles.leadership import Leadership, Transfer, TransferStage
from ledgermq.raft.roles.node_state import NodeState, WriterState
from ledgermq.raft.roles.progress import Progress, ProgressMode


def start(state: NodeState, lead: Leadership, target: NodeId, *, hurried: bool) -> None:
    """Begin to hand over to ``target``."""
    deadline = state.now + state.policy.timing.transfer_max
    lead.transfer = Transfer(target, deadline, hurried)
    state.note(f"hands over to {target}")
    step(state, lead)


def step(state: NodeState, lead: Leadership) -> None:
    """Go on with the hand-over as far as it may go now."""
    transfer = lead.transfer
    if transfer is None:
        return
    progress = lead.progress.get(transfer.target)
    if progress is None:
        abandon(state, lead, "the target has left the group")
        return
    if not progress.fit:
        abandon(state, lead, "it could not lead now")
        return
    if transfer.stage is TransferStage.CATCHING_UP and is_near(state, progress):
        transfer.stage = TransferStage.DRAINING
        revoke(state)
    if transfer.stage is TransferStage.DRAINING:
        stopped = state.writer is WriterState.IDLE or transfer.hurried
        if stopped and progress.match >= state.log.last.index:
            transfer.stage = TransferStage.TOLD
            state.send(transfer.target, TimeoutNow(state.term))


def tick(state: NodeState, lead: Leadership) -> None:
    """Give up in time; tell again what may have been lost; look for a more preferred leader."""
    transfer = lead.transfer
    if transfer is None and state.sick:
        disk_sick(state, lead)
    elif transfer is None and (state.full or state.node in state.membership.witnesses):
        if state.now >= lead.next_preferred:
            leave_to_others(state, lead)
    elif transfer is None:
        target = preferred_now(state, lead)
        if target is not None:
            start(state, lead, target, hurried=False)
    elif state.now >= transfer.deadline:
        abandon(state, lead, "it took too long")
    elif transfer.stage is TransferStage.TOLD and state.now >= lead.next_heartbeat:
        state.send(transfer.target, TimeoutNow(state.term))


def abandon(state: NodeState, lead: Leadership, why: str) -> None:
    """Lead on, with the same term; step down where a sick disk was left to one that could lead."""
    transfer = lead.transfer
    assert transfer is not None
    lead.transfer = None
    state.note(f"does not hand over to {transfer.target}: {why}")
    progress = lead.progress.get(transfer.target)
    if transfer.hurried and state.sick and (progress is None or progress.fit):
        state.follow(state.term, None)
        return
    # Not again at once: each attempt stops the producers for a while.
    lead.preferred_wait *= 2
    lead.next_preferred = state.now + lead.preferred_wait
    if state.writer is WriterState.IDLE:
        grant(state)


def disk_sick(state: NodeState, lead: Leadership) -> None:
    """Our disk is sick: hand over to the best member, without waiting for our own writer.

    While none could do better it leads on.
    """
    others = state.membership.electable - {state.node}
    able = [peer for peer in sorted(others) if is_able(state, lead.progress[peer])]
    if not able:
        return
    best = max(able, key=lambda peer: lead.progress[peer].match)
    state.note("its disk is sick")
    start(state, lead, best, hurried=True)


def leave_to_others(state: NodeState, lead: Leadership) -> None:
    """Our disk is full, or this is a witness: hand over to the best member, if there is one that
    has room and lacks little; else lead on.
    """
    if lead.transfer is not None or state.writer is not WriterState.GRANTED:
        return
    able = [
        peer
        for peer in sorted(state.membership.electable - {state.node})
        if is_able(state, lead.progress[peer]) and is_near(state, lead.progress[peer])
    ]
    if able:
        best = max(able, key=lambda peer: lead.progress[peer].match)
        state.note("its disk is full" if state.full else "it is a witness")
        start(state, lead, best, hurried=False)


def is_able(state: NodeState, progress: Progress) -> bool:
    """Whether a peer lives and says that it could lead."""
    return progress.fit and state.now - progress.heard <= state.policy.timing.election_min


def is_near(state: NodeState, progress: Progress) -> bool:
    """Whether a peer lacks little enough to be waited for."""
    lacks = state.log.last.index - progress.match
    return progress.mode is ProgressMode.REPLICATE and lacks <= state.policy.flow.lag_max


def grant(state: NodeState) -> None:
    """Have the writer stamp in our term."""
    state.writer = WriterState.GRANTING
    state.granted_term = state.term
    state.out.grant = state.term


def revoke(state: NodeState) -> None:
    """Have the writer stop; we lead on."""
    if state.writer in (WriterState.GRANTING, WriterState.GRANTED):
        state.writer = WriterState.REVOKING
        state.out.revoke = True


def preferred_now(state: NodeState, lead: Leadership) -> NodeId | None:
    """Who should lead in the place of this node, and could; None: nobody."""
    preferred = state.policy.preferred
    if state.now < lead.next_preferred or state.writer is not WriterState.GRANTED:
        return None
    better = preferred[: preferred.index(state.node)] if state.node in preferred else preferred
    for node in better:
        progress = lead.progress.get(node)
        if progress is None or node not in state.membership.electable:
            continue
        if is_able(state, progress) and is_near(state, progress):
            return node
    return None
