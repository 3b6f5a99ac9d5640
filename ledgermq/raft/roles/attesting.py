"""Attestation: what a leader tells a witness without bodies, and when that counts.

Such a witness keeps one thing of the log, the last entry that it was told of. It is told of an
entry only

* of the leader's own term (with all before it), and
* once so many voters hold its body that with the witness they are a majority at least:

so that whatever a witness knows of is committed, it never has to take anything back, and one
number is enough. While as many voters with bodies keep up as make a majority, and without a
witness where there is an odd number of voters, it is told of what they all hold: then its answer
is not needed for a commit, and whatever the group tolerates to lose leaves a body. When they do
not keep up, the leader *leans* on the witness: one body less is enough (docs/decisions/0085).
"""

from __future__ import annotations

from ledgermq.model.ids import NO_INDEX, Index, NodeId
from ledgermq.raft.membership import Membership
from ledgermq.raft.messages import Attest
from ledgermq.raft.quorum import majority
from ledgermq.raft.roles import transfer
from ledgermq.raft.roles.leadership import Attesting, Leadership
from ledgermq.raft.roles.node_state import NodeState
from ledgermq.raft.roles.progress import Progress


def bodies_needed(membership: Membership, *, leans: bool) -> int:
    """How many voters must hold an entry's body before a witness without bodies is told of it."""
    voters = len(membership.voters)
    fewest = majority(voters) - 1
    return fewest if leans else voters - fewest


def attestable(state: NodeState, lead: Leadership) -> Index:
    """The last entry that a witness may be told of; -1 when there is none of our term."""
    attesting = lead.attesting
    if attesting is None or lead.term_begin is None:
        return NO_INDEX
    membership = state.membership
    held = [_match(state, lead, voter) for voter in membership.full]
    held.sort(reverse=True)
    index = min(held[bodies_needed(membership, leans=attesting.leans) - 1], state.held)
    return index if index >= lead.term_begin else NO_INDEX


def attest(state: NodeState, lead: Leadership, peer: NodeId, progress: Progress) -> None:
    """Tell a witness of more, where its answer is needed; else the next heartbeat does."""
    attesting, membership = lead.attesting, state.membership
    if attesting is None:
        return
    if bodies_needed(membership, leans=attesting.leans) >= majority(len(membership.voters)):
        return
    last = attestable(state, lead)
    if last >= progress.next and progress.has_room(state.policy.flow):
        _tell(state, lead, attesting, peer, last)
        progress.sent(last, 0)


def heartbeat(state: NodeState, lead: Leadership, attesting: Attesting, peer: NodeId) -> None:
    """We lead, and this may be known; also what was told before and perhaps lost."""
    _tell(state, lead, attesting, peer, attestable(state, lead))


def _tell(
    state: NodeState, lead: Leadership, attesting: Attesting, peer: NodeId, last: Index
) -> None:
    attesting.told = max(attesting.told, last)
    state.send(peer, Attest(state.term, last, lead.round))


def members_changed(state: NodeState, lead: Leadership) -> None:
    """A membership came into force."""
    if not state.membership.bodiless:
        lead.attesting = None
    elif lead.attesting is None:
        lead.attesting = Attesting()


def look(state: NodeState, lead: Leadership, attesting: Attesting) -> None:
    """Look, with each round of heartbeats, who keeps up, and whether we must lean on a witness.

    A voter keeps up while it is heard of, and has what we had at the last look, or gets on. Leaning
    ends when as many keep up as are needed and lack little: what is written meanwhile waits for
    them.
    """
    membership = state.membership
    horizon = state.now - state.policy.timing.witness_wait
    # A leader that is about to leave the group is none of those that are needed.
    keep_up, near = membership.full & {state.node}, membership.full & {state.node}
    for peer in membership.full & lead.progress.keys():
        progress = lead.progress[peer]
        match, since = attesting.kept_up.get(peer, (NO_INDEX, lead.began))
        if progress.match != match or progress.match >= attesting.held:
            since = progress.heard
        attesting.kept_up[peer] = (progress.match, since)
        if since >= horizon:
            keep_up |= {peer}
            if transfer.is_near(state, progress):
                near |= {peer}
    attesting.held = state.held
    needed = bodies_needed(membership, leans=False)
    if attesting.leans and len(near) >= needed:
        attesting.leans = False
        state.note(f"leans on no witness any more: {', '.join(sorted(near))} keep up")
    elif not attesting.leans and len(keep_up) < needed > bodies_needed(membership, leans=True):
        attesting.leans = True
        lost = ", ".join(sorted(membership.full - keep_up))
        state.note(f"leans on its witness: {lost} did not keep up for {state.now - horizon} ticks")


def copies(state: NodeState, lead: Leadership, attesting: Attesting) -> int:
    """How many voters hold the bodies of all that is committed, and could be elected.

    For that they need all that a witness may know of, also if it was told while we leant on it, and
    its answer did not count any more. Before an entry of our own term is committed we know neither.
    """
    begin = lead.term_begin
    if begin is None or state.commit < begin:
        return 0
    needed = max(state.commit, attesting.told)
    return sum(_match(state, lead, voter) >= needed for voter in state.membership.full)


def _match(state: NodeState, lead: Leadership, voter: NodeId) -> Index:
    if voter == state.node:
        return state.held
    progress = lead.progress.get(voter)
    return NO_INDEX if progress is None else progress.match
